"""Sweeps: one step at every point of a grid of choices and numbers of a system."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heliograph._version import __version__
from heliograph.records import COLUMNS, SCHEMA, row_of
from heliograph.report import format_quantity
from heliograph.results import Tabular
from heliograph.simulation import run_at_target, step_graph, system_of
from heliograph.systems import System
from heliograph.systems import system as named_system
from heliograph.workload import ModelLike, PlanLike
from heliograph.workload import model as model_of
from heliograph.workload import plan as plan_of
from simulator.engine.compiled.step import StepRuns
from simulator.errors import HeliographError, ParameterError, nearest
from simulator.parameter_tree import value_at
from simulator.units import dimension_of
from workloads.models.architecture import TransformerConfig
from workloads.plan.parallelism import plan_text
from workloads.plan.plan import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Value = float | str
"""A number in SI, text with a unit, or the name of a part or choice."""
CHOICES = ("accelerators", "gpu", "basis", "core", "fabric")
"""Choices of `heliograph.system`, which are swept where the system is told by its name."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of a grid."""

    inputs: Mapping[str, Value | None]
    """Values of what is swept, by name, in SI where they are numbers."""
    row: Mapping[str, Any]
    """Result, with the columns of `heliograph.records.COLUMNS`."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Grid(Tabular):
    """Results at all points of a sweep, the last name varying fastest."""

    axes: Mapping[str, tuple[Value, ...]]
    """Values of each name, as they were asked for."""
    points: tuple[Point, ...]
    """The points, in order."""

    def rows(self) -> list[dict[str, Any]]:
        """Return one row for each point: what is swept, then `heliograph.records.COLUMNS`.

        A point that could not be built or run says why in the column ``error``.
        """
        return [dict(point.inputs) | _outputs(point) for point in self.points]

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Rows of the points that could not be built or run."""
        return [row for row in self.rows() if row["error"]]

    def plot(self, x: str, y: str) -> Figure:
        """Return a figure of one column over another, a line for each combination of the other inputs.

        Parameters
        ----------
        x, y : str
            Columns that hold numbers.

        Raises
        ------
        ParameterError
            If there is no such column, or no point has numbers for both.
        """
        rows = self.rows()
        for column in (x, y):
            if column not in rows[0]:
                msg = f"no column '{column}' to draw; {nearest(column, rows[0], noun='column')}"
                raise ParameterError(msg)
        drawn = [row for row in rows if _is_number(row[x]) and _is_number(row[y])]
        if not drawn:
            msg = f"nothing to draw: no point has numbers for both {x} and {y}"
            raise ParameterError(msg)
        from heliograph.comparison_figures import lines_figure  # noqa: PLC0415 - matplotlib takes its time

        along = list(self.axes)[-1] if x not in self.axes else x
        others = [name for name, values in self.axes.items() if name != along and len(values) > 1]
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in drawn:
            name = ", ".join(f"{one} {_shown(one, row[one])}" for one in others)
            lines.setdefault(name, []).append((row[x], row[y]))
        return lines_figure(lines, x=x, y=y)

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return title and lines of the grid as it is shown."""
        done = [point.row for point in self.points if not point.row["error"]]
        lines = [(f"Grid of {len(self.points)} points", f"{len(done)} run")]
        lines += [(name, ", ".join(map(str, values))) for name, values in self.axes.items()]
        for column in ("step_time_s", "energy_per_token_j", "usd_per_million_tokens", "effective_bits"):
            if done:
                least, most = (pick(row[column] for row in done) for pick in (min, max))
                lines.append((column, f"{_shown(column, least)} to {_shown(column, most)}"))
        failed = [str(point.row["error"]) for point in self.points if point.row["error"]]
        return [*lines, ("not run", f"{len(failed)}: {failed[0]}")] if failed else lines


def sweep(
    system: System | str,
    changes: Mapping[str, Sequence[Value] | Value] | None = None,
    /,
    *,
    model: ModelLike,
    plan: PlanLike | None = None,
    progress: Callable[[str, int, int], None] = lambda label, done, total: None,
    **numbers: Sequence[Value] | Value,
) -> Grid:
    """Return one step at every point of a grid.

    Parameters
    ----------
    system : System or str
        Where the sweep starts from.
    changes, **numbers : mapping and keywords
        Values of each parameter or part, named as `System.with_` takes them, such as
        ``laser_power_w=["2 mW", "20 mW"]``.
        Where the system is told by its name, ``accelerators``, ``gpu``, ``basis``, ``core`` and ``fabric``
        may be swept as well.
    model : str, pathlib.Path, mapping or TransformerConfig
        As `heliograph.model` takes it.
    plan : str, mapping or Plan
        As `heliograph.plan` takes it; without it, the one chosen for the system, for each number of
        accelerators anew.
    progress : callable
        Told a label, how much is done, and how much there is.

    Raises
    ------
    HeliographError
        For a model, a plan or a name that is wrong at every point. What is wrong at some points only is told
        in their rows.
    """
    config = model_of(model)
    axes = _axes(system, {**(changes or {}), **numbers})
    combinations = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    runs: dict[Plan, StepRuns] = {}
    points: list[Point] = []
    base = system_of(system, plan) if isinstance(system, System) else None
    chosen = plan_of(plan, model=config, system=base) if plan is not None or base is not None else None
    for index, inputs in enumerate(combinations):
        progress("sweep", index, len(combinations))
        points.append(_point(system, inputs, config, chosen, runs, left=len(combinations) - index))
    progress("sweep", len(combinations), len(combinations))
    if all(point.row["error"] for point in points) and len(points) > 0:
        msg = f"no point of the sweep runs; the first says: {points[0].row['error']}"
        raise ParameterError(msg)
    return Grid(axes=axes, points=tuple(points))


def _axes(system: System | str, asked: Mapping[str, Sequence[Value] | Value]) -> dict[str, tuple[Value, ...]]:
    """Return the values of each name that is swept."""
    if not asked:
        msg = 'nothing to sweep; give values by name, such as laser_power_w=["2 mW", "20 mW"]'
        raise ParameterError(msg)
    axes: dict[str, tuple[Value, ...]] = {}
    for name, values in asked.items():
        axes[name] = (values,) if isinstance(values, int | float | str) else tuple(values)
        if not axes[name]:
            msg = f"{name} has no values to sweep"
            raise ParameterError(msg)
        if name in CHOICES and isinstance(system, System):
            msg = f"{name} is chosen when a system is built; sweep over it by the name of one"
            raise ParameterError(msg)
    return axes


def _point(
    system: System | str,
    inputs: Mapping[str, Value],
    config: TransformerConfig,
    plan: Plan | None,
    runs: dict[Plan, StepRuns],
    *,
    left: int,
) -> Point:
    """Return one point; `runs` keeps the steps of plans, which no change of a system alters.

    With `left` points, this one included, still to run.
    """
    built: System | None = None
    spread = plan
    try:
        built = _built(system, inputs, plan)
        spread = built.planned(plan or plan_of(None, model=config, system=built))
        if spread not in runs:
            runs[spread] = StepRuns(step_graph(config, spread), runs=left)
        row = row_of(run_at_target(built, config, spread, runs=runs[spread]).record())
    except HeliographError as error:
        row = row_of(_failed(system, built, config, spread, str(error)))
    known = built or (system if isinstance(system, System) else None)
    return Point(inputs={name: _value(known, name, value) for name, value in inputs.items()}, row=row)


def _built(system: System | str, inputs: Mapping[str, Value], plan: Plan | None) -> System:
    changes = {name: value for name, value in inputs.items() if name not in CHOICES}
    if isinstance(system, System):
        return system.with_(changes)
    choices: dict[str, Any] = {name: value for name, value in inputs.items() if name in CHOICES}
    if plan is not None:
        choices.setdefault("accelerators", plan.axes.ranks)
    return named_system(system, changes, **choices)


def _failed(
    system: System | str, built: System | None, config: TransformerConfig, plan: Plan | None, why: str
) -> dict[str, Any]:
    """Return the record of a point that could not be built or run."""
    known = built or (system if isinstance(system, System) else None)
    return {
        "schema": SCHEMA,
        "version": __version__,
        "model": config.name,
        "plan": plan_text(plan) if plan else "",
        "system": known.name if known else system,
        "settings": built.settings_text() if built else "",
        "error": why,
    }


def _value(system: System | None, name: str, value: Value) -> Value | None:
    """Return a swept value in SI, if it is that of a number of a system; else as it is."""
    if system is None or name in CHOICES:
        return value
    try:
        return value_at(system, name, value)
    except ParameterError:  # a part, told by its name, or a value that fits nothing
        return value


def _outputs(point: Point) -> dict[str, Any]:
    return {column: point.row[column] for column in COLUMNS if column not in point.inputs}


def _shown(name: str, value: object) -> str:
    """Return a value with its unit, by the name's ending."""
    if not isinstance(value, int | float):
        return str(value)
    dimension = dimension_of(name)
    return format_quantity(float(value), dimension[1] if dimension else "1")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
