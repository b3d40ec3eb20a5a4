"""Lines of a comb as a table, one a row, that become the source of a core's light.

Columns are named by their unit: ``frequency_thz`` or ``wavelength_nm``, ``power_mw`` or ``power_dbm``, and if
they are known ``linewidth_khz`` and ``rin_db_per_hz``.
"""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from optical.cores.analog import AnalogCore
from optical.devices import Comb
from optical.measured.parts import OF
from simulator.errors import ParameterError, nearest
from simulator.files import read_text
from simulator.units import SPEED_OF_LIGHT_M_PER_S, to_si, watts_from_dbm

Real = NDArray[np.float64]

MOST_UNEVEN = 0.2
"""Deviation of a gap between lines from their mean, over it, from which a line is missing; a choice."""
MOST_WANDER_RAD2 = 0.01
"""Variance of a line's phase over a symbol from which it is no line any more; a choice."""
LEAST_MATCH = 0.1
"""Deviation of the lines' spacing from what a ring bank spreads them by, over it; a choice."""
_COLUMNS: dict[str, tuple[str, Callable[[float], float]]] = {
    "frequency_thz": ("frequency_hz", lambda value: to_si("x_hz", value, "THz")),
    "frequency_ghz": ("frequency_hz", lambda value: to_si("x_hz", value, "GHz")),
    "wavelength_nm": ("frequency_hz", lambda value: SPEED_OF_LIGHT_M_PER_S / to_si("x_m", value, "nm")),
    "power_mw": ("power_w", lambda value: to_si("x_w", value, "mW")),
    "power_dbm": ("power_w", watts_from_dbm),
    "linewidth_khz": ("linewidth_hz", lambda value: to_si("x_hz", value, "kHz")),
    "rin_db_per_hz": ("rin_db_per_hz", lambda value: value),
}
COLUMNS = MappingProxyType(_COLUMNS)
"""Column of a table -> what it says, and its value in SI."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CombLines:
    """Lines of a comb, by rising frequency."""

    name: str
    """Name of the file."""
    frequency_hz: Real
    """Frequencies, shape (lines,)."""
    power_w: Real
    """Powers at the source, before the light is coupled into a chip, shape (lines,)."""
    linewidth_hz: float | None
    """Width of the widest line; None where it is not told."""
    rin_db_per_hz: float | None
    """Relative intensity noise of the noisiest line; None where it is not told."""

    def brightest(self, count: int) -> CombLines:
        """Return the neighbours, so many, whose weakest line is brightest.

        Raises
        ------
        ParameterError
            If there are too few lines, or one is missing among them.
        """
        if count > self.power_w.size:
            msg = (
                f"{self.name}: has {self.power_w.size} lines, and {count} are needed; take another comb, or "
            )
            msg += "fewer wavelengths"
            raise ParameterError(msg)
        weakest = [float(self.power_w[at : at + count].min()) for at in range(self.power_w.size - count + 1)]
        first = int(np.argmax(weakest))
        taken = dataclasses.replace(
            self,
            frequency_hz=self.frequency_hz[first : first + count],
            power_w=self.power_w[first : first + count],
        )
        gaps = np.diff(taken.frequency_hz)
        if gaps.size and float(np.abs(gaps - gaps.mean()).max()) > MOST_UNEVEN * float(gaps.mean()):
            at = int(np.argmax(np.abs(gaps - gaps.mean())))
            msg = (
                f"{self.name}: behind {taken.frequency_hz[at]:.6g} Hz a gap of {gaps[at]:.4g} Hz stands "
                f"among gaps of {gaps.mean():.4g} Hz; is a line missing?"
            )
            raise ParameterError(msg)
        return taken

    @property
    def spacing_hz(self) -> float:
        """Mean distance of neighbouring lines; infinite of one."""
        size = self.frequency_hz.size
        return float(np.ptp(self.frequency_hz)) / (size - 1) if size > 1 else math.inf


def read_comb(path: Path) -> CombLines:
    """Return the lines of a table.

    Raises
    ------
    ParameterError
        If a column is unknown, missing or stands for the same as another, or a cell is no number that could
        be one.
    """
    rows = [row for row in csv.reader(read_text(path).splitlines()) if row]
    header = [cell.strip().lower() for cell in rows[0]]
    for column in header:
        if column not in COLUMNS:
            msg = f"{path.name}:1: column '{column}' is unknown; {nearest(column, COLUMNS, noun='column')}"
            raise ParameterError(msg)
    said = [COLUMNS[column][0] for column in header]
    for wanted, shown in (
        ("frequency_hz", "frequency_thz or wavelength_nm"),
        ("power_w", "power_mw or power_dbm"),
    ):
        if said.count(wanted) != 1:
            msg = f"{path.name}:1: give one column {shown}; there are {said.count(wanted)}"
            raise ParameterError(msg)
    if len(rows) < 2:
        msg = f"{path.name}: has a header and no line"
        raise ParameterError(msg)
    numbers = np.array([_row(path, line, header, row) for line, row in enumerate(rows[1:], 2)])
    values = dict(zip(said, numbers.T, strict=True))
    order = np.argsort(values["frequency_hz"])
    widths, noises = values.get("linewidth_hz"), values.get("rin_db_per_hz")
    return CombLines(
        name=path.name,
        frequency_hz=values["frequency_hz"][order],
        power_w=values["power_w"][order],
        linewidth_hz=None if widths is None else float(widths.max()),
        rin_db_per_hz=None if noises is None else float(noises.max()),
    )


def _row(path: Path, line: int, header: list[str], row: list[str]) -> list[float]:
    """Return the numbers of a row in SI."""
    if len(row) != len(header):
        msg = f"{path.name}:{line}: has {len(row)} cells, and the header {len(header)}"
        raise ParameterError(msg)
    found = []
    for column, cell in zip(header, row, strict=True):
        signed = column in ("power_dbm", "rin_db_per_hz")
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or (value <= 0.0 and not signed):
            msg = f"{path.name}:{line}: {column} is '{cell.strip()}'; write a finite number"
            msg += "" if signed else " above zero"
            raise ParameterError(msg)
        found.append(COLUMNS[column][1](value))
    return found


def with_comb(core: AnalogCore, comb: Comb, found: CombLines) -> AnalogCore:
    """Return a core lit by a comb's lines.

    Parameters
    ----------
    core : AnalogCore
        With a comb.
    comb : Comb
        The comb that stands there, whose conversion of a pump into all lines stays.
    found : CombLines
        The lines.

    Raises
    ------
    ParameterError
        If there are too few lines, they do not fit between the rings' resonances, or are too wide.

    Notes
    -----
    All lines are dimmed to the weakest that is used, so that the light of the others, and what the weakest
    lacks to the rest, is lost: the conversion efficiency falls by used over whole power.
    """
    count = len(core.lines_hz)
    used = found.brightest(count)
    weakest = float(used.power_w.min())
    if found.linewidth_hz is not None:
        wander = 2.0 * math.pi * found.linewidth_hz / core.symbol_rate_hz
        if wander > MOST_WANDER_RAD2:
            msg = (
                f"{found.name}: lines of {found.linewidth_hz:.3g} Hz turn by {math.sqrt(wander):.2g} rad "
                f"within a symbol of '{core.name}'; lines below "
                f"{MOST_WANDER_RAD2 * core.symbol_rate_hz / (2.0 * math.pi):.3g} Hz are needed"
            )
            raise ParameterError(msg)
    share = count * weakest / float(found.power_w.sum())
    lit = dataclasses.replace(
        comb,
        name=f"{comb.name.partition(OF)[0]}{OF}{found.name}",
        conversion_efficiency=comb.conversion_efficiency * share,
        line_w=weakest,
    )
    laser = core.laser
    if found.rin_db_per_hz is not None:
        name = f"{laser.name.partition(OF)[0]}{OF}{found.name}"
        laser = dataclasses.replace(laser, name=name, rin_db_per_hz=found.rin_db_per_hz)
    changes = {"comb": lit, "laser": laser, "laser_power_w": weakest} | _spaced(core, used)
    return dataclasses.replace(core, **changes)  # type: ignore[arg-type]


def _spaced(core: AnalogCore, used: CombLines) -> dict[str, object]:
    """Return the fields of a core that place its lines as a comb does."""
    if used.frequency_hz.size == 1:
        return {}
    middle_hz = float(used.frequency_hz.mean())
    grid = core.chip.grid
    if grid is not None:
        spacing_m = used.spacing_hz * SPEED_OF_LIGHT_M_PER_S / middle_hz**2
        wavelength_m = SPEED_OF_LIGHT_M_PER_S / middle_hz
        name = f"{grid.name.partition(OF)[0]}{OF}{used.name}"
        moved = dataclasses.replace(grid, name=name, spacing_m=spacing_m, wavelength_m=wavelength_m)
        return {"chip": dataclasses.replace(core.chip, grid=moved)}
    if "line_spacing_hz" in {item.name for item in dataclasses.fields(core)}:
        return {"line_spacing_hz": used.spacing_hz}
    wanted_hz = core.lines_hz[1] - core.lines_hz[0]
    if abs(used.spacing_hz - wanted_hz) > LEAST_MATCH * wanted_hz:
        msg = (
            f"{used.name}: lines stand {used.spacing_hz:.4g} Hz apart, and '{core.name}' spreads "
            f"{len(core.lines_hz)} lines {wanted_hz:.4g} Hz apart over the free spectral range of its rings; "
            "take another number of wavelengths, or other rings (ring.free_spectral_range_hz)"
        )
        raise ParameterError(msg)
    return {}
