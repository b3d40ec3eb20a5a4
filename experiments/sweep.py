"""Any study at every point of a grid of numbers, parts, choices and options; and the page of a sweep."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from experiments.hardware import SYSTEM, Hardware, Workload
from experiments.study import (
    Block,
    Parser,
    Progress,
    Result,
    Row,
    Study,
    add_options,
    flags_of,
    option,
    study_from,
)
from heliograph import __version__
from heliograph.catalogue import description
from heliograph.parameters import SET, Parameter, unit_of
from heliograph.records import COLUMNS, SCHEMA, row_of, sha256_of
from heliograph.report import ReportRow, ReportTable, format_quantity
from heliograph.report_page.drawings import COLOURS, Drawing, Line, lines
from heliograph.report_page.page import (
    Cell,
    Formula,
    Number,
    Page,
    Section,
    Sheet,
    numbers,
    sheet_of,
    step_formulas,
    told,
)
from heliograph.simulation import simulate
from heliograph.sweeps.points import StepWork, asks_for_best, settled
from heliograph.sweeps.running import (
    Engine,
    Execution,
    Front,
    FrontRequest,
    Grid,
    SweepRequest,
    axis,
    check_columns,
    run_sweep,
    search_front,
)
from heliograph.sweeps.space import (
    STEP,
    Optimise,
    Range,
    Space,
    StudyFile,
    Value,
    is_context,
    read_study,
    values_in,
)
from heliograph.sweeps.store import Status, Store, SweepState
from heliograph.sweeps.work import Reader, code_digest, outside_digest
from heliograph.systems.names import DEFAULT_ACCELERATORS, is_system, narrow_format
from simulator.errors import HeliographError, ParameterError, is_number, nearest
from simulator.fabric import CircuitPolicy
from simulator.files import naming
from simulator.parameter_tree import parse_assignment
from workloads.plan.plan import parse_plan, plan_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = MappingProxyType(
    {
        "step_time_s": "step time",
        "energy_per_token_j": "energy per token",
        "usd_per_million_tokens": "$ per million tokens",
        "snr_db": "SNR",
    }
)
"""Columns of a step that the terminal shows, with their headings."""
MOST_LINES = 100
"""Most points that the terminal shows; a choice."""
USUAL_SYSTEM, USUAL_MODEL = "photonic_packet", "llama-3-8b"
"""Default system and model of a sweep."""
USUAL_Y = "energy_per_token_j"
"""Default column of the vertical axis of a step's figure."""


@dataclass(frozen=True, kw_only=True)
class Swept(Result):
    """Results at all points of a grid."""

    grid: Grid
    """The points."""
    x: str
    """Column of the horizontal axis of the figure."""
    y: str
    """Column of the vertical axis."""
    notes: tuple[str, ...] = ()
    """Sentences beneath the table."""
    searched: bool = False
    """Whether a search chose the plan of each point."""
    work: StepWork | None = None
    """Work of a step, whose plans the figure compares with a GPU on packets; None for other studies."""

    def report(self) -> list[Block]:
        """Return a row for each point, with the reason if it has no result, and notes."""
        axes, rows = self.grid.axes, self.grid.rows()
        shown = {name: head for name, head in SHOWN.items() if name in rows[0]}
        for name in (self.x, self.y):
            if name not in (*shown, *axes) and name in rows[0]:
                shown[name] = name
        names = tuple(axes)
        if not any(name in shown for name in SHOWN):
            shown = {name: name for name in (*_numbers(rows), *shown) if name not in axes}
            names += self.grid.label_columns
        lines = [
            ReportRow(
                ", ".join(_formatted(name, row[name]) for name in names if row.get(name) not in ("", None)),
                tuple("" if row.get("error") else _formatted(name, row.get(name)) for name in shown),
                row.get("error") or self._searched_plan(row),
            )
            for row in rows[:MOST_LINES]
        ]
        about = " on ".join(str(rows[0][name]) for name in ("model", "system") if rows[0].get(name))
        title = f"{about or self.grid.study}: {', '.join(names)}"
        more = [f"{len(rows) - MOST_LINES:,} more rows: --export FILE.csv"] if len(rows) > MOST_LINES else []
        note = "plan" if self.searched else "why"
        return [
            ReportTable(title, list(shown.values()), lines, dense=self.searched, note=note),
            *more,
            *idle_of(self.grid),
            *self._undrawn(),
            *self.notes,
        ]

    def _searched_plan(self, row: Row) -> str:
        """Return the short text of a point's plan if plans were searched; else an empty one."""
        return plan_words(parse_plan(str(row["plan"]))) if self.searched else ""

    def record(self) -> dict[str, Any]:
        """Return the grid as plain data."""
        first = self.grid.points[0].row
        return {
            **{name: first[name] for name in ("model", "plan", "system") if first.get(name)},
            "axes": {name: list(values) for name, values in self.grid.axes.items()},
            "points": self.rows(),
        }

    def rows(self) -> list[Row]:
        """Return a row for each point: its inputs, then the columns of the study."""
        return self.grid.rows()

    def figure(self) -> Figure | None:
        """Return a plot of one column over another, with a line for each combination of the other inputs."""
        if not self._is_drawn:
            return None
        return self.grid.plot(self.x, self.y, beside=self.beside())

    def _undrawn(self) -> list[str]:
        """Return a sentence if there is no figure."""
        sentence = f"No picture: no point has numbers for both {self.x} and {self.y}."
        return [] if self._is_drawn else [sentence]

    @property
    def _is_drawn(self) -> bool:
        """Whether any point has numbers for both axes of the figure."""
        return any(is_number(row.get(self.x)) and is_number(row.get(self.y)) for row in self.grid.rows())

    def beside(self) -> dict[str, list[tuple[float, float]]]:
        """Return the points of GPUs with the same plans, for comparison in the figure, by label."""
        found: dict[str, list[tuple[float, float]]] = {}
        electronic = electronic_rows(self.work, self.grid) if self.work is not None else ()
        for row, own in zip(self.grid.rows(), electronic, strict=False):
            if own is None:
                continue
            across = (row if self.x in self.grid.axes else own).get(self.x)
            up = own.get(self.y)
            if is_number(across) and is_number(up):
                label = f"{own['gpu']} in {own['precision']} on {own['fabric']}, same plan"
                found.setdefault(label, []).append((across, up))
        return {name: sorted(set(points)) for name, points in found.items()}


MOST_COMPARED = 16
"""Most combinations of model, plan, GPU and size that a sweep also runs on a GPU; a choice."""


def electronic_rows(work: StepWork, grid: Grid) -> tuple[Row | None, ...]:
    """Return for each point the step of its GPU on a packet network with the same plan.

    None for points that are GPUs on packets already, that failed, or beyond `MOST_COMPARED` combinations.
    """
    kept: dict[tuple[str, ...], Row | None] = {}
    found: list[Row | None] = []
    for point in grid.points:
        row, model = point.row, {**work.fixed, **point.inputs}.get("model", work.model)
        compared = not row["error"] and (row["core"] or row["circuit_policy"] in set(CircuitPolicy))
        key = (str(model), str(row["gpu"]), str(row["plan"]), str(row["accelerators"]))
        if compared and key not in kept and len(kept) < MOST_COMPARED:
            kept[key] = _electronic(model, row)
        found.append(kept.get(key) if compared else None)
    return tuple(found)


def _electronic(model: Any, row: Mapping[str, Any]) -> Row | None:  # noqa: ANN401 - as `StepWork` takes it
    """Return the step of a row's GPU on a packet network; None if its plan does not run there."""
    precision = (narrow_format(row["gpu"]) if row["core"] else None) or row["precision"]
    name, accelerators = f"gpu_packet:{row['gpu']}:{precision}", row["accelerators"]
    try:
        result = simulate(name, model, row["plan"], accelerators=accelerators)
    except HeliographError:
        return None
    return row_of(result.record())


def idle_of(grid: Grid) -> list[str]:
    """Return a sentence for each axis that changes no result."""
    return [f"{name} changes no result: at all its values it is the same." for name in grid.idle]


def _numbers(rows: Sequence[Row]) -> list[str]:
    """Return the first few columns that hold numbers."""
    return [name for name, value in rows[0].items() if isinstance(value, float)][:MOST_NUMBERS]


def _first_number(grid: Grid, x: str) -> str:
    """Return the first column with numbers that is no input, of a study without the columns of a step."""
    return next((name for name in _numbers(grid.rows()) if name not in (*grid.axes, x)), USUAL_Y)


MOST_NUMBERS = 4
"""Most columns that the terminal shows of a study without the columns of a step; a choice."""


@dataclass(frozen=True, kw_only=True)
class BestFound(Swept):
    """Points that an optimiser evaluated; the report shows the Pareto front."""

    front: Front
    """Points that no other point beats in every objective."""

    def report(self) -> list[Block]:
        """Return a row for each point of the front."""
        rows, names, columns = self.front.rows(), list(self.grid.axes), list(self.front.columns)
        lines = [
            ReportRow(
                ", ".join(_formatted(name, row[name]) for name in names),
                tuple(_formatted(name, row[name]) for name in columns),
                self._searched_plan(row),
            )
            for row in rows[:MOST_LINES]
        ]
        title = f"Front of {len(rows):,} among {len(self.grid.points):,} points: {', '.join(names)}"
        return [ReportTable(title, columns, lines, dense=True, note="plan"), *self.notes]

    def record(self) -> dict[str, Any]:
        """Return all points and the front as plain data."""
        return {**super().record(), "front": self.front.rows()}

    def tables(self) -> dict[str, list[Row]]:
        """Return the tables of all points and of the front."""
        return {"": self.rows(), "front": self.front.rows()}


@dataclass(frozen=True, kw_only=True)
class States(Result):
    """State of all sweeps in a store."""

    states: tuple[SweepState, ...]
    """State of each sweep."""

    def report(self) -> list[Block]:
        """Return a row for each sweep."""
        counts = ("points", *map(str, Status), "left")
        lines = []
        for row in self.rows():
            mean = format_quantity(row["mean_s"], "s") if row["mean_s"] else ""
            lines.append(ReportRow(row["name"], (*(f"{row[name]:,}" for name in counts), mean)))
        return [ReportTable("Sweeps", (*counts, "mean time"), lines)]

    def record(self) -> dict[str, Any]:
        """Return the states as plain data."""
        return {"sweeps": self.rows()}

    def rows(self) -> list[Row]:
        """Return a row for each sweep."""
        return [
            {"name": one.name, "points": one.points, "left": one.left, "mean_s": one.mean_s}
            | {str(status): one.counts.get(status, 0) for status in Status}
            for one in self.states
        ]


@dataclass(frozen=True, kw_only=True)
class Running:
    """Options: processes that run points and the file that keeps results."""

    store: Path | None = option(
        None, "SQLite file of the points; default: that of the study file", metavar="FILE"
    )
    workers: int | None = option(None, "processes; default: one for each processor", metavar="N")
    engine: Engine = option(Engine.PROCESSES, "what runs the points")
    scheduler: str | None = option(
        None, "Dask scheduler to join; default with --engine dask: one on this machine", metavar="tcp://..."
    )
    retry_failed: bool = option(False, "run the points again that have no result")

    def execution(self, usual: Path | None) -> Execution:
        """Return the execution of a sweep whose default file of results is ``usual``."""
        store = self.store or usual
        if self.retry_failed and store is None:
            msg = "--retry-failed is not used: nothing is kept; say where with --store FILE"
            raise ParameterError(msg)
        return Execution(
            store=store,
            workers=self.workers,
            engine=Engine.DASK if self.scheduler else self.engine,
            scheduler=self.scheduler,
            retry_failed=self.retry_failed,
        )


@dataclass(frozen=True, kw_only=True)
class Sweep(Study):
    """Any study at every point of a grid; one training step where no study file says otherwise."""

    study: Path | None = option(
        None, "TOML file that says what is swept (docs/sweeps.md)", positional=True, metavar="STUDY.toml"
    )
    system: str | None = option(None, f"{SYSTEM}; default {USUAL_SYSTEM}")
    workload: Workload = field(default_factory=lambda: Workload(model=""))
    accelerators: int | None = option(None, "accelerators; default: what the plan uses", metavar="N")
    where: tuple[str, ...] = option(
        (), 'condition that points must meet, such as "plan.tp * plan.dp == 16"; may be repeated'
    )
    x: str | None = option(
        None, "column of the picture to the right; default: the first --set with several values"
    )
    y: str = option(
        USUAL_Y, "column of the picture upward (docs/records.md has all); of another study its first number"
    )
    running: Running = field(default_factory=Running)
    status: bool = option(False, "tell how far the sweeps of the store are, and run nothing")
    export: Path | None = option(
        None, "write all rows there, as CSV or Parquet", metavar="FILE", written=True
    )
    hardware: Hardware = field(default_factory=Hardware)

    def run(self, progress: Progress) -> Swept | States:
        """Return the results of all points, or with ``--status`` the progress of sweeps."""
        file = read_study(self.study) if self.study is not None else None
        if self.status:
            return self._states(file)
        if self.export is not None and self.export.suffix not in (".csv", ".parquet"):
            msg = f"--export {self.export}: the name must end in .csv or .parquet"
            raise ParameterError(msg)
        if file is not None and file.optimise is not None:
            return self._front(file, file.optimise, progress)
        request = self._request(file)
        if request.work.study == STEP:
            self._check_axes(request.space.names)
        grid = run_sweep(request, progress)
        grid.check()
        notes = []
        if self.export is not None:
            notes.append(f"Wrote {grid.export(self.export)}.")
        if (store := request.execution.store) is not None:
            notes.append(f"Points are kept in {store}; the same command goes on from there.")
        work, usual_x = request.work, grid.abscissa
        return Swept(
            grid=grid,
            x=self.x or usual_x,
            y=self.y if work.study == STEP or self.y != USUAL_Y else _first_number(grid, usual_x),
            notes=tuple(notes),
            searched=asks_for_best(work),
            work=work if isinstance(work, StepWork) else None,
        )

    def _check_axes(self, names: Sequence[str]) -> None:
        """Refuse columns of the figure that neither a step nor an axis of the sweep has."""
        known = (*names, *COLUMNS)
        for column in filter(None, (self.x, self.y)):
            if column not in known:
                msg = f"no column '{column}' to draw; {nearest(column, known, noun='column')}"
                raise ParameterError(msg)

    def _front(self, file: StudyFile, optimise: Optimise, progress: Progress) -> BestFound:
        """Return the points of an optimiser and their Pareto front."""
        self._refuse_both(file)
        execution = self.running.execution(file.store)
        work = _work(file)
        for key in ("minimise", "maximise") if file.study == STEP else ():
            with naming(file.path, f"optimise.{key}"):
                check_columns(getattr(optimise, key))
        front = search_front(
            FrontRequest(
                name=file.name,
                work=work,
                ranges=file.ranges,
                zips=file.zips,
                where=file.where,
                optimise=optimise,
                execution=execution,
            ),
            progress,
        )
        front.grid.check()
        notes = [f"Points are kept in {execution.store}; the same command goes on from there."]
        if self.export is not None:
            notes.insert(0, f"Wrote {front.grid.export(self.export)}.")
        x, y = (*front.columns, *front.grid.axes)[:2]
        searched = asks_for_best(work)
        return BestFound(grid=front.grid, x=x, y=y, notes=tuple(notes), front=front, searched=searched)

    def _states(self, file: StudyFile | None) -> States:
        """Return the progress of all sweeps in the file of results."""
        store = self.running.store or (file.store if file else None)
        if store is None:
            msg = "--status needs a study file, or --store FILE"
            raise ParameterError(msg)
        with Store(store, existing=True) as opened:
            return States(states=tuple(opened.sweep_states()))

    def _request(self, file: StudyFile | None) -> SweepRequest:
        """Return the sweep of a study file, or of the command line without one."""
        if file is None:
            return self._from_options()
        self._refuse_both(file)
        axes = []
        for name, values in file.ranges.items():
            with naming(file.path, f"sweep.{name}"):
                axes.append(axis(name, values))
        with naming(file.path, "sweep"):
            space = Space(axes=(*axes, *file.zips), where=file.where)
        execution = self.running.execution(file.store)
        work = _work(file)
        if isinstance(work, StepWork):
            for name in space.names:
                with naming(file.path, f"{'sweep' if name in file.ranges else 'zip'}.{name}"):
                    work.check_swept(name, space)
            work = settled(work, space)
        return SweepRequest(name=file.name, work=work, space=space, execution=execution)

    def _refuse_both(self, file: StudyFile) -> None:
        """Refuse options that a study file also sets, since one of both would be ignored."""
        usual = type(self)(study=self.study, running=self.running, export=self.export, x=self.x, y=self.y)
        for one in dataclasses.fields(self):
            if getattr(self, one.name) != getattr(usual, one.name) and one.name != "status":
                hardware = one.name == "hardware"
                options = "--set and other options of the hardware" if hardware else f"--{one.name}"
                msg = f"{file.path.name} says what is swept; write it there and leave {options} out"
                raise ParameterError(msg)

    def _from_options(self) -> SweepRequest:
        """Return the sweep of the command line."""
        ranges = dict(map(values_of, self.hardware.assignments))
        if len(ranges) < len(self.hardware.assignments):
            msg = "--set names a parameter twice; write all its values after one: PATH=V1,V2,..."
            raise ParameterError(msg)
        if not ranges:
            msg = (
                "nothing to sweep; give --set PATH=V1,V2,... or --set PATH=LOW:HIGH:N at least once, or a "
                "study file"
            )
            raise ParameterError(msg)
        space = Space(axes=tuple(axis(name, values) for name, values in ranges.items()), where=self.where)
        plain = dataclasses.replace(self.hardware, settings=(), penalties=None, precision_target=None)
        fixed: dict[str, Value] = dict(plain.given())
        if self.accelerators is not None:
            fixed["accelerators"] = self.accelerators
        if twice := [name for name in fixed if name in ranges]:
            msg = f"--{twice[0]} and --set {twice[0]}=... both name it; give one"
            raise ParameterError(msg)
        work = StepWork(
            system=self.system or USUAL_SYSTEM,
            model=self.workload.model or USUAL_MODEL,
            plan=self.workload.plan or None,
            fixed=fixed,
            usual_accelerators=DEFAULT_ACCELERATORS,
        )
        return SweepRequest(
            name="sweep", work=settled(work, space), space=space, execution=self.running.execution(None)
        )


def _work(file: StudyFile) -> StepWork | StudyWork:
    """Return the work that all points of a study file share."""
    if file.study != STEP:
        with naming(file.path, "study"):
            return StudyWork(command=file.study, fixed={**file.common, **file.fixed})
    chosen = {name: file.common[name] for name in file.common if name not in ("system", "model", "plan")}
    return StepWork(
        system=file.common.get("system", USUAL_SYSTEM),
        model=file.common.get("model", USUAL_MODEL),
        plan=file.common.get("plan"),
        fixed={**chosen, **file.fixed},
    )


def values_of(text: str) -> tuple[str, tuple[Value, ...]]:
    """Return a parameter's path and its values.

    Parameters
    ----------
    text : str
        ``path=value``, ``path=value,value,...``, or ``path=LOW:HIGH:N`` for N evenly spaced values with both
        ends. A suffix ``:log`` spaces them by equal factors. Ends may have units.
    """
    path, values = parse_assignment(text)
    if is_context(path):
        parts = (part.strip() for part in values.split(",") if part.strip())
        return path, tuple(int(part) if part.isdecimal() else part for part in parts)
    found = values_in(path, values)
    return path, found.values(path) if isinstance(found, Range) else found


@dataclass(frozen=True, kw_only=True)
class StudyWork:
    """Work of any study: its command, and the options of all points."""

    command: str
    """Words of its command."""
    fixed: Mapping[str, Any]
    """Options, and changes of the hardware, that hold at every point."""

    def __post_init__(self) -> None:
        from experiments.cli import COMMANDS  # noqa: PLC0415 - the driver, which imports this study

        known = [one for one in COMMANDS if one != "sweep"]
        if self.command not in known:
            msg = f"no study '{self.command}'; {nearest(self.command, known, noun='study')}"
            raise ParameterError(msg)

    @property
    def study(self) -> str:
        """Words of its command."""
        return self.command

    def keys(self, inputs: Sequence[Mapping[str, Value]]) -> list[str]:
        """Return a key for each point."""
        same = {"study": self.command, "code": code_digest(), "schema": SCHEMA}
        every = ({**self.fixed, **one} for one in inputs)
        return [
            sha256_of([same, {name: outside_digest(value) for name, value in one.items()}])[:32]
            for one in every
        ]

    def runner(self, expected: int) -> Callable[[Mapping[str, Value]], Mapping[str, Any]]:
        """Return the function that runs a point; a study keeps nothing between points."""
        del expected
        return self._run

    def reader(self, name: str) -> Reader | None:
        """Return None: a study reads its numbers itself."""
        del name
        return None

    def about(self, inputs: Mapping[str, Value]) -> Mapping[str, Any]:
        """Return the columns of a point without a result."""
        every = {**self.fixed, **inputs}
        return {
            "version": __version__,
            **{name: every[name] for name in ("model", "system") if name in every},
        }

    def _run(self, inputs: Mapping[str, Value]) -> Mapping[str, Any]:
        from experiments.cli import COMMANDS  # noqa: PLC0415 - as above

        module, _, name = COMMANDS[self.command].study.partition(":")
        kind = getattr(importlib.import_module(module), name)
        parser = Parser(prog=f"heliograph {self.command}")
        add_options(parser, kind)
        study = study_from(kind, parser.parse_args(words_of(kind, {**self.fixed, **inputs})))
        found = study.run(Progress())
        rows = found.rows()
        scalars = {
            key: value
            for key, value in found.record().items()
            if value is None or isinstance(value, bool | int | float | str)
        }
        if len(rows) == 1:
            return {"version": __version__, **scalars, **rows[0]}
        return {"version": __version__, **scalars, "rows": rows}


def words_of(kind: type, values: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line that give a study its options.

    Keys of a plan (``plan.tp``) join the option ``--plan``. A name that is no option changes a number of the
    hardware, if the study has an option ``--set``.
    """
    flags = flags_of(kind)
    leading, words, plan_keys = list[str](), list[str](), list[str]()
    for name, value in values.items():
        key = name.replace("_", "-")
        if name.startswith("plan."):
            plan_keys.append(f"{name.partition('.')[2]}={value}")
        elif key not in flags:
            if "set" not in flags:
                msg = f"no option '{name}'; {nearest(name, flags, noun='option')}"
                raise ParameterError(msg)
            words.append(f"--set={name}={value}")
        elif flags[key] == "":
            leading.insert(0, str(value))
        elif value != "false":
            words.append(flags[key] if value == "true" else f"{flags[key]}={value}")
    words = [*leading, *words]
    if not plan_keys:
        return words
    plans = [one for one in words if one.startswith("--plan=")]
    pairs = [*(one.partition("=")[2] for one in plans), *plan_keys]
    return [*(one for one in words if one not in plans), f"--plan={','.join(pairs)}"]


def _formatted(name: str, value: object) -> str:
    """Return a value as the terminal shows it, with its unit."""
    if not is_number(value):
        return "" if value is None else str(value)
    unit = unit_of(name, without="")
    if unit == "dB":
        return f"{value:.4g} dB"
    return f"{value:.4g}" if unit in ("", "bit") else format_quantity(float(value), unit)


PAGE_HEADS = {
    "step_time_s": "step time",
    "energy_per_token_j": "energy",
    "usd_per_million_tokens": "cost, 10\u2076 tokens",
    "mean_power_w": "mean power",
    "snr_db": "SNR",
    "effective_bits": "effective bits",
    "photonic_cores": "cores",
}
"""Columns of a step in the table of the page, with their headings."""
BEST = {
    "step_time_s": "time",
    "energy_per_token_j": "energy",
    "usd_per_million_tokens": "cost of 10\u2076 tokens",
}
"""Columns whose least value the page names, with their names in sentences."""
MOST_ROWS = 1_000
"""Most points of the table; a choice."""
MOST_UNFOLDED = 300
"""Most points whose numbers have a formula each; with more, each column has one formula. A choice."""
MOST_MARKS = 2_000
"""Most points of a figure; a choice."""
MOST_VALUES = 40
"""Most values of an axis for a line through the least at each; a choice. Optimisers use each value once."""
EVERY = "every point"
"""First part of the keys of formulas that many points share."""


def page(found: Swept | States) -> Page:
    """Return the page of a sweep."""
    if isinstance(found, States):
        msg = "--report is a page of results, and --status runs none; leave one of them out"
        raise ParameterError(msg)
    rows, axes = found.rows(), found.grid.axes
    done = [row for row in rows if not row.get("error")]
    first = done[0] if done else rows[0]
    system = str(first.get("system") or found.grid.study)
    parameters = description(system) if is_system(system) else []
    shown = _columns(rows, axes)
    about = " on ".join(str(first[one]) for one in ("model", "system") if first.get(one))
    sections = [
        *_front(found),
        Section(title="Pictures", blocks=[_pictures(found, done)]),
        Section(title="All points", blocks=_table(rows, axes, shown)),
        Section(
            title="Every number that stays as it is",
            blocks=[_fixed(system, parameters)],
        ),
    ]
    return Page(
        title=f"{about or found.grid.study}: {len(rows):,} points over {', '.join(axes)}",
        asked=[(axis, ", ".join(_shown(axis, value) for value in values)) for axis, values in axes.items()],
        answers=[*answers_of(rows, done, axes), *idle_of(found.grid), *found.notes],
        sections=sections,
        formulas=sweep_formulas(rows[:MOST_ROWS], axes, shown, system, parameters),
    )


def _front(found: Swept) -> list[Section]:
    """Return the section of the Pareto front, for results of an optimiser."""
    if not isinstance(found, BestFound):
        return []
    names = (*found.grid.axes, *found.front.columns)
    cells: list[Sequence[Cell]] = [
        [str(at + 1), *(numbers(name, row.get(name), "") for name in names)]
        for at, row in enumerate(found.front.rows())
    ]
    sheet = Sheet(title="None of them is better in everything than another", heads=("", *names), rows=cells)
    return [Section(title="Front", blocks=[sheet])]


def _columns(rows: Sequence[Row], axes: Mapping[str, Any]) -> dict[str, str]:
    """Return the headings of the table by column: columns of a step, or all that hold numbers."""
    usual = {
        one: head
        for one, head in PAGE_HEADS.items()
        if one not in axes and any(is_number(row.get(one)) for row in rows)
    }
    if usual:
        return usual
    return {
        one: one
        for one in dict.fromkeys(one for row in rows for one in row)
        if one not in axes and any(isinstance(row.get(one), float) for row in rows)
    }


def _shown(name: str, value: object) -> str:
    return told(name.rpartition(".")[2], value)


def _point(row: Row, axes: Mapping[str, Any]) -> str:
    return ", ".join(f"{axis} {_shown(axis, row.get(axis))}" for axis in axes)


def answers_of(rows: Sequence[Row], done: Sequence[Row], axes: Mapping[str, Any]) -> list[str]:
    """Return sentences on the best points, and on the number of points without a result and a reason."""
    sentences = []
    for column, word in BEST.items():
        ran = [row for row in done if is_number(row.get(column))]
        if ran:
            ordered = sorted(ran, key=itemgetter(column))
            best, worst = ordered[0], ordered[-1]
            least = _shown(column, best[column])
            if len(ran) > 1 and least == _shown(column, worst[column]):
                sentences.append(f"All points have the same {word}: {least}.")
            else:
                sentences.append(f"Least {word}: {least} at {_point(best, axes)}.")
    failed = [row for row in rows if row.get("error")]
    if failed:
        sentences.append(
            f"{len(failed):,} of {len(rows):,} points have no result; the first says: {failed[0]['error']}."
        )
    return [*sentences, "Every underlined number unfolds to its formula, inputs, status and source."]


def _pictures(found: Swept, done: Sequence[Row]) -> list[Drawing]:
    """Return the figure of the command, its vertical axis over each swept number, and energy over time."""
    axes = found.grid.axes
    swept = [one for one, values in axes.items() if len(values) > 1 and all(map(is_number, values))]
    wanted = [(found.x, found.y), *((one, found.y) for one in swept), ("step_time_s", "energy_per_token_j")]
    drawings = (_picture(found.grid, done, x, y) for x, y in dict.fromkeys(wanted))
    return [one for one in drawings if one is not None]


def _picture(grid: Grid, done: Sequence[Row], x: str, y: str) -> Drawing | None:
    """Return a drawing of one column over another.

    There is a line for each combination of the other inputs; of too many, all points and a line through the
    least at each value.
    """
    drawn = [row for row in done if is_number(row.get(x)) and is_number(row.get(y))]
    if not drawn:
        return None
    thinned = drawn[:: -(-len(drawn) // MOST_MARKS)]
    others = grid.line_columns(x, y)
    named: dict[str, list[tuple[float, float]]] = {}
    for row in thinned:
        label = ", ".join(f"{one} {_shown(one, row[one])}" for one in others)
        named.setdefault(label, []).append((float(row[x]), float(row[y])))
    if len(named) <= COLOURS:
        drawn_lines = [
            Line(label=label, points=points, joined=x in grid.axes) for label, points in named.items()
        ]
    else:
        every = [point for points in named.values() for point in points]
        drawn_lines = [Line(label="every point", points=every, joined=False)]
        least = {
            at: min(up for across, up in every if across == at) for at in sorted({one for one, _ in every})
        }
        if x in grid.axes and len(least) <= MOST_VALUES:
            drawn_lines.append(Line(label="the least at each value", points=list(least.items())))
    title = f"{_head(y)} over {_head(x)}"
    note = f"{len(thinned):,} of {len(drawn):,} points." if len(thinned) < len(drawn) else ""
    found = lines(title, drawn_lines, x=(_head(x), _unit(x)), y=(_head(y), _unit(y)))
    return dataclasses.replace(found, legend=found.legend if len(drawn_lines) > 1 else [], note=note)


def _head(column: str) -> str:
    return PAGE_HEADS.get(column, COLUMNS.get(column, column))


def _unit(column: str) -> str:
    unit = unit_of(column, without="")
    return f"{unit}/token" if "_per_token_" in column else unit


def _table(rows: Sequence[Row], axes: Mapping[str, Any], shown: Mapping[str, str]) -> list[str | Sheet]:
    """Return the table of the points, and a sentence if it omits points."""
    kept = rows[:MOST_ROWS]
    failed = any(row.get("error") for row in kept)
    many = len(kept) > MOST_UNFOLDED
    cells: list[Sequence[Cell]] = []
    for at, row in enumerate(kept):
        owner = EVERY if many else f"point {at + 1}"
        inputs = [_input(axis, row.get(axis), owner) for axis in axes]
        outputs = [numbers(column, row.get(column), f"{owner}/{column}") for column in shown]
        cells.append([str(at + 1), *inputs, *outputs, *([str(row.get("error") or "")] if failed else [])])
    heads = ("point", *axes, *shown.values(), *(["why not"] if failed else []))
    table = Sheet(title="A row for each point; click a head to sort", heads=heads, rows=cells)
    if len(rows) > MOST_ROWS:
        return [f"The first {MOST_ROWS:,} of {len(rows):,} points; --export FILE.csv has all.", table]
    return [table]


def _input(axis: str, value: object, owner: str) -> Cell:
    shown = _shown(axis, value)
    if not isinstance(value, int | float):
        return shown
    return Number(text=shown, value=float(value), key=f"{owner}/{axis}")


def sweep_formulas(
    rows: Sequence[Row],
    axes: Mapping[str, Any],
    shown: Mapping[str, str],
    system: str,
    parameters: Sequence[Parameter],
) -> dict[str, Formula]:
    """Return the formulas of the numbers of the table: one for each number, or of many points each column."""
    many = len(rows) > MOST_UNFOLDED
    fixed = [one for one in parameters if not any(one.path.endswith(axis) for axis in axes)]
    formulas = step_formulas({}, fixed, owner=system)
    one_row = [next((row for row in rows if not row.get("error")), rows[0])]
    for at, row in enumerate(one_row if many else rows):
        owner = EVERY if many else f"point {at + 1}"
        own = step_formulas(row, [], owner=owner)
        given = tuple(f"{owner}/{axis}" for axis in axes)
        steps = step_formulas(row, fixed, owner=system)
        for key, one in own.items():
            inputs = steps[f"{system}/{key.partition('/')[2]}"].inputs
            value = "" if many else one.value
            formulas[key] = Formula(
                label=one.label,
                text=one.text,
                status=one.status,
                source=one.source,
                value=value,
                follows=(*one.follows, *given),
                inputs=inputs,
            )
        for name in axes:
            formulas[f"{owner}/{name}"] = Formula(
                label=name,
                text="set by the sweep",
                status=SET,
                source="what was asked",
                value="" if many else _shown(name, row.get(name)),
            )
        for column in shown:
            formulas.setdefault(f"{owner}/{column}", _column_formula(column, owner, given))
    return formulas


def _column_formula(column: str, owner: str, given: tuple[str, ...]) -> Formula:
    """Return the formula of a column that is none of a step's record."""
    return Formula(
        label=f"{COLUMNS.get(column, column)} ({owner})",
        text="column of the study's own table",
        status="simulated",
        source="docs/records.md",
        follows=given,
    )


def _fixed(system: str, parameters: Sequence[Parameter]) -> str | Sheet:
    if not parameters and " " in system:
        return f"heliograph {system} --help lists what else a point may set."
    if not parameters:
        return f"'{system}' is described by a file; heliograph show lists every number of it."
    return sheet_of(
        {system: parameters}, f"Parameters of {system} as it ships; the sweep sets those of its columns"
    )
