"""Limits of light and size: what waveguides, rings, sources, detectors, a scanner and a buffer's ports bear.

Each limit is a number of a table; `limits_of` holds a chip against all of them and tells those that it
passes, with the number that forbids it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from simulator.tables import Table, read_table

MOST_LOSS_DB = 1.0
"""Loss by nonlinear absorption from which it is told, beside being charged; a choice."""

SOURCE = "source"
"""Name of the limit on the power of one source."""


@cache
def limits_table() -> Table:
    """Return the table of limits that ships with the package."""
    return read_table(Path(__file__).parents[1] / "parameters" / "limits.csv")


def limit(name: str, parameter: str) -> float:
    """Return a number of the table of limits, SI."""
    return next(float(row.value) for row in limits_table().of(name) if row.parameter == parameter)


@dataclass(frozen=True, kw_only=True)
class LitChip:
    """Light and size of a chip, as its limits are held against them."""

    lines: int
    """Lines of the comb; 1 for a single laser."""
    line_w: float
    """Power of a line at the source."""
    coupled_w: float
    """Power of a line on the chip, behind the coupling."""
    feed: str
    """Name of the waveguide that carries all lines."""
    absorbed_db: float
    """Loss by two photons and free carriers in all waveguides, charged to the link."""
    ring_w: float
    """Power of a line at a ring on resonance with it; 0 without rings."""
    detector_a: float
    """Largest photocurrent of one detector, all lines together."""
    cluster_m2: float
    """Area that cores which share light cover, dies stacked."""
    field_m2: float
    """Largest die."""
    words_bytes_per_s: float
    """Words that all cores fetch at full load."""
    buffer_bytes_per_s: float
    """What the ports of the buffer give."""
    comb_line_w: float | None = None
    """Power of a line that its comb has given; None where it is not told, or there is no comb."""


class Passed(NamedTuple):
    """A limit that a chip passes."""

    limit: str
    """Name of the limit."""
    excess: float
    """What is asked over what is possible."""
    sentence: str
    """One sentence with the number that forbids it."""

    def __str__(self) -> str:
        """Return the sentence."""
        return self.sentence


def limits_of(chip: LitChip) -> tuple[Passed, ...]:
    """Return each limit that a chip passes, with the number that forbids it."""
    return tuple(one for one in (*_light_passed(chip), *_size_passed(chip)) if one.excess > 1.0)


def _light_passed(chip: LitChip) -> tuple[Passed, ...]:
    """Return what a chip asks of waveguides, rings, source and detectors, over what they bear."""
    feed_w, together_w = chip.lines * chip.coupled_w, chip.lines * chip.line_w
    ring_w, detector_a = limit("silicon_ring", "most_line_w"), limit("germanium_detector", "most_current_a")
    source_w = limit("comb_pump" if chip.lines > 1 else "single_laser", "most_power_w")
    comb_w = math.inf if chip.comb_line_w is None else chip.comb_line_w
    lines = f" in {chip.lines} lines of {1e3 * chip.line_w:.1f} mW" if chip.lines > 1 else ""
    return (
        Passed(
            "absorption",
            chip.absorbed_db / MOST_LOSS_DB,
            f"'{chip.feed}' guides {1e3 * feed_w:.0f} mW, and {chip.absorbed_db:.1f} dB of the light are "
            "lost to two-photon and free-carrier absorption, charged; core.feed=waveguide_sin_2014 has none",
        ),
        Passed(
            "ring",
            chip.ring_w / ring_w,
            f"a line brings {1e3 * chip.ring_w:.1f} mW to a ring, and silicon rings turn bistable from "
            f"some {1e3 * ring_w:g} mW",
        ),
        Passed(
            SOURCE,
            together_w / source_w,
            f"{together_w:.2f} W of one source{lines}, and a packaged "
            f"{'comb' if chip.lines > 1 else 'laser'} has had {source_w:g} W",
        ),
        Passed(
            "comb line",
            chip.line_w / comb_w,
            f"{1e3 * chip.line_w:.3g} mW are asked of a line, and this comb has given {1e3 * comb_w:.3g}; "
            "amplify each line, or take another comb",
        ),
        Passed(
            "detector",
            chip.detector_a / detector_a,
            f"{1e3 * chip.detector_a:.2f} mA at a detector, and germanium on a waveguide saturates at some "
            f"{1e3 * detector_a:g} mA",
        ),
    )


def _size_passed(chip: LitChip) -> tuple[Passed, ...]:
    """Return what a chip asks of lithography and of the buffer, over what they give."""
    return (
        Passed(
            "reticle",
            chip.cluster_m2 / chip.field_m2,
            f"a cluster of cores that share light covers {1e6 * chip.cluster_m2:.0f} mm2, and a scanner "
            f"exposes {1e6 * chip.field_m2:.0f} mm2 at once; light crosses no dies here: take smaller cores, "
            "or fewer that share",
        ),
        Passed(
            "buffer",
            chip.words_bytes_per_s / chip.buffer_bytes_per_s,
            f"cores at full load fetch {1e-12 * chip.words_bytes_per_s:.1f} TB/s, and the ports of the "
            f"buffer give {1e-12 * chip.buffer_bytes_per_s:.1f} TB/s, which bounds the products",
        ),
    )
