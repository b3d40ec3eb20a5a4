"""Limits of light on a chip: what a waveguide, a ring, a source and a detector bear, and what a die yields.

Each limit is a number of a table and a law; `limits_of` holds a chip against all of them and tells those that
it passes, with the number that forbids it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from optical.devices.limits import photon_energy_j
from simulator.checks import check_positive, check_range
from simulator.tables import Table, read_table
from simulator.units import db_from_ratio

STEPS = 2000
"""Steps along a waveguide in which its light is followed; dimensionless."""
MOST_LOSS_DB = 1.0
"""Loss by nonlinear absorption from which it is told; a choice."""


@cache
def limits_table() -> Table:
    """Return the table of limits that ships with the package."""
    return read_table(Path(__file__).parents[1] / "parameters" / "limits.csv")


@dataclass(frozen=True, kw_only=True)
class SiliconStrip:
    """Silicon strip waveguide as its light bears it."""

    name: str
    """Name of its rows."""
    mode_area_m2: float
    """Effective area of the mode."""
    two_photon: float
    """Coefficient of two-photon absorption, metres per watt."""
    carrier_area_m2: float
    """Cross-section of absorption by free carriers."""
    carrier_lifetime_s: float
    """Lifetime of the carriers."""

    def __post_init__(self) -> None:
        check_positive(self, "mode_area_m2")
        check_range(self, "two_photon", "carrier_area_m2", "carrier_lifetime_s")

    def absorption_per_m(self, power_w: float, lines: int = 1) -> float:
        """Return the nonlinear absorption of all lines together.

        Parameters
        ----------
        power_w : float
            Power of all lines.
        lines : int
            Lines that share it; each is absorbed with the others twice as strongly as with itself.

        Notes
        -----
        dP/dz = -(beta I + sigma N) P with I = P / A. Two-photon absorption between lines counts twice:
        beta I (2 - 1/n) for n equal lines. Carriers follow slowly: N = tau beta I^2 (2 - 1/n) / (2 h nu).

        References
        ----------
        L. Yin and G. P. Agrawal, "Impact of two-photon absorption on self-phase modulation in silicon
        waveguides", Opt. Lett. 32 (2007) 2031.
        """
        intensity = power_w / self.mode_area_m2
        pairs = self.two_photon * intensity * (2.0 - 1.0 / lines)
        carriers = self.carrier_lifetime_s * pairs * intensity / (2.0 * photon_energy_j())
        return pairs + self.carrier_area_m2 * carriers

    def loss_db(
        self, power_w: float, length_m: float, *, lines: int = 1, linear_db_per_m: float = 0.0
    ) -> float:
        """Return the nonlinear loss of a length, beyond its linear loss, the light followed as it fades.

        Parameters
        ----------
        power_w : float
            Power of all lines at its beginning.
        length_m : float
            Length.
        lines : int
            Lines that share the power.
        linear_db_per_m : float
            Linear propagation loss.
        """
        linear = linear_db_per_m / db_from_ratio(math.e)
        step_m, now_w, lost = length_m / STEPS, power_w, 0.0
        for _ in range(STEPS):
            nonlinear = self.absorption_per_m(now_w, lines)
            middle_w = now_w * math.exp(-0.5 * step_m * (linear + nonlinear))
            nonlinear = self.absorption_per_m(middle_w, lines)
            lost += step_m * nonlinear
            now_w *= math.exp(-step_m * (linear + nonlinear))
        return lost * db_from_ratio(math.e)


def limit(name: str, parameter: str) -> float:
    """Return a number of the table of limits, SI."""
    return next(float(row.value) for row in limits_table().of(name) if row.parameter == parameter)


@cache
def silicon_strip() -> SiliconStrip:
    """Return the silicon strip of the table."""
    return limits_table().build(SiliconStrip, "silicon_strip")


def poisson_yield(area_m2: float, defects_per_m2: float) -> float:
    """Return the share of dies without a defect, exp(-area density).

    References
    ----------
    B. T. Murphy, "Cost-size optima of monolithic integrated circuits", Proc. IEEE 52 (1964) 1537.
    """
    return math.exp(-area_m2 * defects_per_m2)


@dataclass(frozen=True, kw_only=True)
class LitChip:
    """Light and size of a chip, as its limits are held against them."""

    lines: int
    """Lines of the comb; 1 for a single laser."""
    line_w: float
    """Power of a line at the source."""
    coupled_w: float
    """Power of a line on the chip, behind the coupling."""
    feed_m: float
    """Length of the strip that carries all lines."""
    linear_db_per_m: float
    """Linear loss of that strip."""
    rings: bool
    """Whether lines pass rings on resonance."""
    detector_a: float
    """Largest photocurrent of one detector, all lines together."""
    area_m2: float
    """Area of a die."""
    comb_line_w: float | None = None
    """Power of a line that its comb has given; None where it is not told, or there is no comb."""


def limits_of(chip: LitChip) -> tuple[str, ...]:
    """Return a sentence for each limit that a chip passes, with the number that forbids it."""
    found, strip = [], silicon_strip()
    feed_w, together_w = chip.lines * chip.coupled_w, chip.lines * chip.line_w
    lost_db = strip.loss_db(feed_w, chip.feed_m, lines=chip.lines, linear_db_per_m=chip.linear_db_per_m)
    if lost_db > MOST_LOSS_DB:
        found.append(
            f"a silicon strip with {1e3 * feed_w:.0f} mW loses {lost_db:.1f} dB of it to two-photon and free-"
            f"carrier absorption in {1e3 * chip.feed_m:.1f} mm, not counted; silicon nitride or fewer lines"
        )
    most_w = limit("silicon_ring", "most_line_w")
    if chip.rings and chip.coupled_w > most_w:
        found.append(
            f"a line brings {1e3 * chip.coupled_w:.1f} mW to a ring, and silicon rings turn bistable from "
            f"some {1e3 * most_w:g} mW"
        )
    most_w = limit("comb_pump", "most_power_w")
    if together_w > most_w:
        source = f"{together_w:.2f} W of one source"
        if chip.lines > 1:
            source += f" in {chip.lines} lines of {1e3 * chip.line_w:.1f} mW"
        found.append(f"{source}, and a packaged comb has had {most_w:g} W")
    if chip.comb_line_w is not None and chip.line_w > chip.comb_line_w:
        found.append(
            f"{1e3 * chip.line_w:.3g} mW are asked of a line, and this comb has given "
            f"{1e3 * chip.comb_line_w:.3g}; amplify each line, or take another comb"
        )
    most_a = limit("germanium_detector", "most_current_a")
    if chip.detector_a > most_a:
        found.append(
            f"{1e3 * chip.detector_a:.2f} mA at a detector, and germanium on a waveguide saturates at some "
            f"{1e3 * most_a:g} mA"
        )
    share = poisson_yield(chip.area_m2, 1e4 * limit("photonic_yield", "defects_per_cm2"))
    if share < 0.5:
        found.append(
            f"{100 * share:.0f} % of dies of {1e6 * chip.area_m2:.0f} mm2 are without a defect at "
            f"{limit('photonic_yield', 'defects_per_cm2'):g} per cm2; spare cores, or several dies"
        )
    return tuple(found)
