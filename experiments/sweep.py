"""One step at every point of a grid of a system's numbers, parts and choices."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.hardware import DEFAULT_ACCELERATORS, SYSTEM, Hardware, Workload
from experiments.options import option
from experiments.study import Block, Progress, Result, Row, Study
from heliograph.records import COLUMNS
from heliograph.report import ReportRow, ReportTable, format_quantity
from heliograph.sweeps import CHOICES, Grid, sweep
from heliograph.workload import ranks_of
from simulator.errors import ParameterError, nearest
from simulator.parameter_tree import parse_assignment, quantity
from simulator.units import dimension_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = ("step_time_s", "energy_per_token_j", "usd_per_million_tokens", "effective_bits")
"""Columns that the terminal shows."""
HEADS = ("step time", "energy per token", "$ per million tokens", "effective bits")
"""Their heads."""
MOST_POINTS = 10_000
"""Most points of a range; a choice, hours of steps."""
LOGARITHMIC = "log"
"""Fourth part of a range whose points are evenly apart on a logarithmic scale."""


@dataclass(frozen=True, kw_only=True)
class Swept(Result):
    """Results at all points of a grid."""

    grid: Grid
    """The points."""
    x: str
    """Column that the picture has to the right."""
    y: str
    """Column that it has upward."""

    def report(self) -> list[Block]:
        """Return a line for each point, and why points are missing."""
        axes, rows = self.grid.axes, self.grid.rows()
        shown = dict(zip(SHOWN, HEADS, strict=True))
        if self.y not in shown:
            shown[self.y] = self.y
        lines = [
            ReportRow(
                label=", ".join(_told(name, row[name]) for name in axes),
                values=tuple("" if row["error"] else _told(name, row[name]) for name in shown),
                note=row["error"] or "",
            )
            for row in rows
        ]
        title = f"{rows[0]['model']} on {rows[0]['system']}: {', '.join(axes)}"
        return [ReportTable(title, list(shown.values()), lines)]

    def record(self) -> dict[str, Any]:
        """Return the grid as plain data."""
        return {
            "axes": {name: list(values) for name, values in self.grid.axes.items()},
            "points": self.rows(),
        }

    def rows(self) -> list[Row]:
        """Return a row for each point: what is swept, then the columns of a system's row."""
        return self.grid.rows()

    def figure(self) -> Figure:
        """Return one column over another, a line for each combination of the other inputs."""
        return self.grid.plot(self.x, self.y)


@dataclass(frozen=True, kw_only=True)
class Sweep(Study):
    """One step at every point of a grid of numbers, parts and choices of a system."""

    system: str = option("photonic_packet", SYSTEM)
    workload: Workload = field(default_factory=lambda: Workload(model="llama-3-8b"))
    accelerators: int | None = option(None, "accelerators; default: what the plan uses", metavar="N")
    x: str | None = option(
        None, "column of the picture to the right; default: the first --set with several values"
    )
    y: str = option("energy_per_token_j", "column of the picture upward (docs/records.md has all)")
    hardware: Hardware = field(default_factory=Hardware)

    def run(self, progress: Progress) -> Swept:
        """Return the grid.

        Raises
        ------
        HeliographError
            If a name, a value or a range is wrong, or no point runs.
        """
        axes = dict(map(values_of, self.hardware.assignments))
        if len(axes) < len(self.hardware.assignments):
            msg = "--set names a parameter twice; write all its values after one: PATH=V1,V2,..."
            raise ParameterError(msg)
        if not axes:
            msg = "nothing to sweep; give --set PATH=V1,V2,... or --set PATH=LOW:HIGH:N at least once"
            raise ParameterError(msg)
        several = [name for name, values in axes.items() if len(values) > 1] or list(axes)
        for column in filter(None, (self.x, self.y)):
            if column not in COLUMNS and column not in axes:
                msg = f"no column '{column}' to draw; {nearest(column, (*axes, *COLUMNS), noun='column')}"
                raise ParameterError(msg)
        grid = self._grid(axes, progress)
        return Swept(grid=grid, x=self.x or several[0], y=self.y)

    def _grid(self, axes: Mapping[str, tuple[str | float, ...]], progress: Progress) -> Grid:
        """Return the grid: of a built system where none of what it is built from is swept."""
        plan = self.workload.plan or None
        work: dict[str, Any] = {"model": self.workload.model, "plan": plan, "progress": progress}
        plain = dataclasses.replace(self.hardware, settings=(), penalties=None, precision_target=None)
        if not any(name in CHOICES for name in axes):
            usual = ranks_of(self.workload.plan) or DEFAULT_ACCELERATORS
            built = plain.system(self.system, accelerators=self.accelerators, usual_accelerators=usual)
            return sweep(built, axes, **work)
        size = {} if self.accelerators is None else {"accelerators": self.accelerators}
        chosen = {name: (value,) for name, value in (size | plain.given()).items()}
        if twice := [name for name in chosen if name in axes]:
            msg = f"--{twice[0]} and --set {twice[0]}=... both name it; give one"
            raise ParameterError(msg)
        return sweep(self.system, chosen | dict(axes), **work)


def values_of(text: str) -> tuple[str, tuple[str | float, ...]]:
    """Return a parameter's path and its values.

    Parameters
    ----------
    text : str
        ``path=value``, ``path=value,value,...``, or ``path=LOW:HIGH:N``: so many values from end to end,
        evenly apart, or by equal factors with ``:log`` behind it. Ends may have units.

    Raises
    ------
    ParameterError
        If it is none of them.
    """
    path, values = parse_assignment(text)
    parts = [part.strip() for part in values.split(":")]
    if len(parts) < 3 or path in CHOICES:
        return path, tuple(part.strip() for part in values.split(",") if part.strip())
    if len(parts) > 4 or (len(parts) == 4 and parts[3] != LOGARITHMIC):
        msg = f"'{text}' is no range; write {path}=LOW:HIGH:N, or LOW:HIGH:N:{LOGARITHMIC}"
        raise ParameterError(msg)
    name = path.rpartition(".")[2]
    low, high = (quantity(name, part, path=path) for part in parts[:2])
    if not parts[2].isdigit() or not 2 <= int(parts[2]) <= MOST_POINTS:
        msg = f"{path}: the number of values ({parts[2]}) must be a whole number of 2 to {MOST_POINTS}"
        raise ParameterError(msg)
    if len(parts) == 3:
        return path, tuple(np.linspace(low, high, int(parts[2])).tolist())
    if min(low, high) <= 0.0:
        msg = f"{path}: a logarithmic range ({values}) must begin and end above zero"
        raise ParameterError(msg)
    return path, tuple(np.geomspace(low, high, int(parts[2])).tolist())


def _told(name: str, value: object) -> str:
    """Return a value as the terminal shows it, with its unit."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    unit = (dimension_of(name.rpartition(".")[2]) or ("", ""))[1]
    return f"{value:.4g}" if unit in ("", "bit") else format_quantity(float(value), unit)
