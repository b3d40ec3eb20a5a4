"""Schedules of optical circuits: of a demand, and of a collective whose circuits change within (SWOT)."""

from __future__ import annotations

import csv
import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.hardware import Hardware, Workload, changes, one_step
from experiments.network.breakeven import study_phases
from experiments.study import Block, Progress, Result, Row, Study, file_name, option, refuse_unused
from heliograph.figures import DARK_TIME, PALETTE, REFERENCE, label, name_rows, new_figure, swatches
from heliograph.report import format_si, prefix_of, table_of
from optical.fabrics.switches import load_optics, load_switch
from optical.scheduling.overlap import (
    NODES,
    CollectiveStep,
    OverlapPlan,
    bruck_steps,
    collective_steps,
    overlap,
    staged,
)
from optical.scheduling.schedule import DARK, CircuitSchedule, OcsBank, SchedulePolicy, applies, schedule
from simulator.collectives.algorithms import Algorithm, algorithms
from simulator.errors import ParameterError, nearest
from simulator.files import read_text
from simulator.operators import CollectiveKind

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

SWITCH = "silicon-photonic-mzi"
"""Default switch, whose reconfiguration time is the delay."""
OPTICS = "lane-100g"
"""Default transceiver, whose line rate a circuit has."""


def bank_of(
    switch: str = SWITCH,
    planes: int = 1,
    *,
    reconfiguration_s: float | None = None,
    rate_bytes_per_s: float | None = None,
    packet_rate_bytes_per_s: float | None = None,
) -> OcsBank:
    """Return switches side by side.

    Parameters
    ----------
    switch : str
        Technology that sets the delay.
    planes : int
        How many.
    reconfiguration_s : float, optional
        Delay instead of the switch's, s.
    rate_bytes_per_s : float, optional
        Rate of a circuit instead of the transceiver's, B/s.
    packet_rate_bytes_per_s : float, optional
        Rate of each port into a packet switch; none if not given.
    """
    own_s, own_rate = load_switch(switch).reconfiguration_s, load_optics(OPTICS).bandwidth_bytes_per_s
    bank = OcsBank(
        rate_bytes_per_s=own_rate if rate_bytes_per_s is None else rate_bytes_per_s,
        reconfiguration_s=own_s if reconfiguration_s is None else reconfiguration_s,
        switches=planes,
    )
    if packet_rate_bytes_per_s is None:
        return bank
    return dataclasses.replace(bank, packet_rate_bytes_per_s=packet_rate_bytes_per_s)


BRUCK = "bruck"
"""Bruck's all-to-all, which no packet fabric here chooses."""
KINDS = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.ALL_TO_ALL,
)
"""Collectives that can be planned."""
MOST_EXACT = 32
"""Most steps times planes for the exact search; beyond, a heuristic chooses the moves."""
MOST_CHOICES = 64
"""Steps times planes beyond which an algorithm is left out; a choice, the search takes seconds there."""
MOST_RANKS = 512
"""Most ranks of a collective."""
PLANES = 2
"""Default number of parallel switches."""
MEGABYTE = 1e6
"""Default bytes of a rank before a collective."""


@dataclass(frozen=True, kw_only=True)
class PlannedCollective:
    """Plan of one algorithm of a collective on planes of circuits."""

    algorithm: str
    """Name of the algorithm."""
    steps: tuple[CollectiveStep, ...]
    """Steps, each a permutation of the ranks."""
    together_s: float
    """Makespan if all planes transmit together and all move before each other permutation."""
    plan: OverlapPlan
    """Plan that lets planes move while others transmit."""

    @property
    def changes(self) -> int:
        """Number of steps whose permutation differs from that of the step before."""
        return _changes(self.steps)

    @property
    def saved_percent(self) -> float:
        """Share of the time with all planes moving together that is saved, per cent."""
        return 100 * (1.0 - self.plan.makespan_s / self.together_s)


@dataclass(frozen=True, kw_only=True)
class CollectivePlans(Result):
    """Plans of one collective, by algorithm."""

    kind: CollectiveKind
    """Kind of collective."""
    ranks: int
    """Number of ranks."""
    size_bytes: float
    """Bytes of a rank before the collective."""
    bank: OcsBank
    """Switches; each is a plane with a circuit of every rank."""
    found: tuple[PlannedCollective, ...]
    """Plans of the algorithms."""
    left_out: tuple[str, ...]
    """Algorithms with too many steps to plan."""

    @property
    def name(self) -> str:
        """Name of the study."""
        return f"{self.kind}_{self.ranks}"

    @property
    def best(self) -> PlannedCollective:
        """The algorithm of least makespan."""
        return min(self.found, key=lambda one: one.plan.makespan_s)

    def record(self) -> dict[str, Any]:
        """Return the numbers of all plans as plain data."""
        return {
            "collective": str(self.kind),
            "ranks": self.ranks,
            "size_bytes": self.size_bytes,
            "plant": {"type": "CircuitPlant"} | dataclasses.asdict(self.bank),  # as records name it
            "best": self.best.algorithm,
            "left_out": list(self.left_out),
            "algorithms": self.rows(),
        }

    def rows(self) -> list[Row]:
        """Return a row for each algorithm."""
        return [
            {
                "algorithm": one.algorithm,
                "steps": len(one.steps),
                "changes": one.changes,
                "together_s": one.together_s,
                "makespan_s": one.plan.makespan_s,
                "bound_s": one.plan.bound_s,
                "is_optimal": one.plan.is_optimal,
            }
            for one in self.found
        ]

    def report(self) -> list[Block]:
        """Return a table with a line for each algorithm, and which is fastest."""
        bank = self.bank
        columns: dict[str, Callable[[PlannedCollective], str]] = {
            "steps": lambda one: str(len(one.steps)),
            "changes": lambda one: str(one.changes),
            "all move together": lambda one: format_si(one.together_s, "s"),
            "overlapped": lambda one: format_si(one.plan.makespan_s, "s"),
            "saved": lambda one: f"{one.saved_percent:z.1f} %",
            "over bound": lambda one: f"{one.plan.over_bound:.3f}",
        }
        title = (
            f"{str(self.kind).replace('_', ' ')} of {format_si(self.size_bytes, 'B')} on {self.ranks} ranks, "
            f"{bank.switches} plane{'s' if bank.switches > 1 else ''}, "
            f"{format_si(bank.rate_bytes_per_s, 'B/s')} a circuit, "
            f"reconfiguration {format_si(bank.reconfiguration_s, 's')}"
        )
        best = f"Least: {self.best.algorithm}."
        if self.left_out:
            left = ", ".join(self.left_out)
            best = f"Least of those planned: {self.best.algorithm}. Too long to plan, and maybe less: {left}."
        table = table_of(
            title,
            self.found,
            lambda one: one.algorithm,
            columns,
            note=lambda one: "no plan is faster" if one.plan.is_optimal else "best found",
        )
        return [table, best]

    def figure(self) -> Figure:
        """Return the planes of the fastest algorithm over time, and the makespans of all."""
        planes, several = self.bank.switches, len(self.found)
        heights = (_PLANE_IN * planes + 0.5, _ALGORITHM_IN * several + 0.5)
        figure = new_figure(sum(heights) + 0.9)
        grid = figure.add_gridspec(2, 1, height_ratios=heights)
        _draw_planes(figure.add_subplot(grid[0]), self, self.best)
        _draw_plan_makespans(figure.add_subplot(grid[1]), self)
        legend = {
            "Circuits carry (a number for each step)": PALETTE[0],
            "Dark: circuits move": DARK_TIME,
            "All planes move together": PALETTE[1],
        }
        figure.legend(handles=swatches(legend), loc="outside upper center", ncols=3, handlelength=1.4)
        return figure


def plan_collective(
    collective: str, ranks: int, bank: OcsBank, *, size_bytes: float = MEGABYTE, algorithm: str = ""
) -> CollectivePlans:
    """Return plans of a collective on planes of circuits, one for each algorithm.

    Parameters
    ----------
    collective : str
        Name of the collective.
    ranks : int
        Ranks, each with a circuit on every plane.
    bank : OcsBank
        Switches; each is a plane.
    size_bytes : float
        Bytes of a rank before the collective.
    algorithm : str
        Name of the only algorithm to plan; all if empty.

    Notes
    -----
    SWOT (arXiv:2510.19322) hides reconfigurations within a collective: planes that a step does not need
    already move for a later step. The plan for comparison moves all planes together before each step.
    """
    known = [str(kind) for kind in KINDS]
    if collective not in known:
        msg = f"no collective '{collective}' to plan; {nearest(collective, known, noun='collective')}"
        raise ParameterError(msg)
    if not 2 <= ranks <= MOST_RANKS:
        msg = f"ranks ({ranks}) must be 2 to {MOST_RANKS}"
        raise ParameterError(msg)
    if not 0.0 < size_bytes < math.inf:
        msg = f"size_bytes ({size_bytes:g}) must be above 0 and finite"
        raise ParameterError(msg)
    kind = CollectiveKind(collective)
    names = [str(one) for one in algorithms(kind, ranks)]
    names += [BRUCK] if kind is CollectiveKind.ALL_TO_ALL else []
    if algorithm and algorithm not in names:
        hint = nearest(algorithm, names, noun="algorithm")
        msg = f"no algorithm '{algorithm}' of {kind} on {ranks} ranks; {hint}"
        raise ParameterError(msg)
    found, left_out = [], []
    for name in [algorithm] if algorithm else names:
        steps = (
            bruck_steps(ranks, size_bytes)
            if name == BRUCK
            else collective_steps(kind, Algorithm(name), ranks, size_bytes)
        )
        plan = _planned(steps, bank)
        if plan is None:
            left_out.append(f"{name} ({len(steps)} steps)")
            continue
        found.append(
            PlannedCollective(algorithm=name, steps=steps, together_s=_together_s(steps, bank), plan=plan)
        )
    if not found:
        msg = (
            f"{', '.join(left_out)} on {bank.switches} plane(s) is too long to plan "
            f"(steps times planes at most {MOST_CHOICES}); take fewer ranks or planes"
        )
        raise ParameterError(msg)
    return CollectivePlans(
        kind=kind,
        ranks=ranks,
        size_bytes=size_bytes,
        bank=bank,
        found=tuple(found),
        left_out=tuple(left_out),
    )


def _planned(steps: Sequence[CollectiveStep], bank: OcsBank) -> OverlapPlan | None:
    """Return the shortest plan that is found, or None where stages follow each other too often to plan."""
    size, found = len(steps) * bank.switches, []
    stages = {step.stage for step in steps}
    if len(stages) < len(steps):
        found.append(staged(steps, bank))
    if size <= MOST_CHOICES or not _changes(steps):
        found.append(overlap(steps, bank, nodes=NODES if size <= MOST_EXACT else 0))
    return min(found, key=lambda plan: plan.makespan_s, default=None)


def _changes(steps: Sequence[CollectiveStep]) -> int:
    return sum(one.destinations != after.destinations for one, after in pairwise(steps))


def _together_s(steps: Sequence[CollectiveStep], bank: OcsBank) -> float:
    """Return the makespan if all planes share every step and move at once between steps."""
    work_s = sum(one.size_bytes for one in steps) / bank.rate_bytes_per_s
    return work_s / bank.switches + _changes(steps) * bank.reconfiguration_s


_PLANE_IN = 0.3
_ALGORITHM_IN = 0.42
_LEAST = 1e-9


def _draw_planes(axes: Axes, study: CollectivePlans, one: PlannedCollective) -> None:
    """Draw which plane serves which step, and when it moves."""
    symbol, factor = prefix_of(one.plan.makespan_s)
    reconfiguration_s, end_s = study.bank.reconfiguration_s, one.plan.makespan_s
    for plane in range(study.bank.switches):
        before = None
        for step, transfer in enumerate(one.steps):
            start_s, stop_s = one.plan.starts_s[step, plane], one.plan.ends_s[step, plane]
            if stop_s - start_s <= _LEAST * end_s:
                continue
            width = (stop_s - start_s) / factor
            axes.barh(
                plane, width, left=start_s / factor, color=PALETTE[0], height=0.8, edgecolor="white", lw=0.6
            )
            if width > 0.02 * end_s / factor:
                middle = (start_s + stop_s) / 2 / factor
                axes.text(middle, plane, str(step + 1), ha="center", va="center", color="white", fontsize=7)
            if before is not None and before != transfer.destinations:
                axes.barh(
                    plane,
                    reconfiguration_s / factor,
                    left=(start_s - reconfiguration_s) / factor,
                    color=DARK_TIME,
                    height=0.8,
                )
            before = transfer.destinations
    title = f"{label(one.algorithm)}: {len(one.steps)} steps, {one.saved_percent:z.1f} % saved"
    axes.set_title(title, loc="left")
    axes.set_xlim(0.0, end_s / factor)
    axes.set_ylim(study.bank.switches - 0.5, -0.5)
    axes.set_yticks(range(study.bank.switches))
    axes.set_ylabel("Plane")
    axes.set_xlabel(f"Time ({symbol}s)")


def _draw_plan_makespans(axes: Axes, study: CollectivePlans) -> None:
    """Draw each algorithm's makespan, moving together and overlapped, and its bound."""
    found = study.found
    symbol, factor = prefix_of(max(max(planned.together_s, planned.plan.makespan_s) for planned in found))
    places = np.arange(len(found))
    axes.barh(
        places - 0.19, [planned.together_s / factor for planned in found], height=0.36, color=PALETTE[1]
    )
    axes.barh(
        places + 0.19, [planned.plan.makespan_s / factor for planned in found], height=0.36, color=PALETTE[0]
    )
    for place, planned in zip(places, found, strict=True):
        if math.isfinite(planned.plan.bound_s):
            axes.plot(
                [planned.plan.bound_s / factor] * 2, [place - 0.4, place + 0.4], color=REFERENCE, lw=1.0
            )
    name_rows(axes, [label(planned.algorithm) for planned in found])
    axes.set_xlabel(f"Makespan ({symbol}s); line: no plan is faster")


ALL = "all"
"""Name that stands for every policy."""
MOST_UNASKED_PORTS = 5
"""Ports up to which the exact policy runs without being asked for; of six it may take minutes."""
MOST_PORTS = 512
"""Most ports of a demand."""


def policies_of(text: str) -> tuple[SchedulePolicy, ...]:
    """Return policies from their names, separated by commas; an empty tuple if all are named."""
    wanted = [name.strip() for name in text.split(",") if name.strip()] or [ALL]
    known = [*map(str, SchedulePolicy), ALL]
    for name in wanted:
        if name not in known:
            msg = f"no policy '{name}'; {nearest(name, known, noun='policy')}"
            raise ParameterError(msg)
    return () if ALL in wanted else tuple(one for one in SchedulePolicy if str(one) in wanted)


def schedule_demand(
    path: Path, bank: OcsBank, policy: str = ALL, progress: Progress | None = None
) -> DemandSchedules:
    """Return schedules of a demand from a file, one for each policy.

    Parameters
    ----------
    path : pathlib.Path
        As `read_demand` takes it.
    bank : OcsBank
        Switches.
    policy : str
        Policies by name, separated by commas; or `ALL` that apply, the exact one only for few ports.
    progress : Progress, optional
        Called with each policy.
    """
    policies, demand, tell = policies_of(policy), read_demand(path), progress or Progress()
    policies = policies or tuple(
        one
        for one in SchedulePolicy
        if applies(one, len(demand), bank)
        and (one is not SchedulePolicy.EXACT or len(demand) <= MOST_UNASKED_PORTS)
    )
    schedules = []
    for index, one in enumerate(policies):
        tell(str(one), index, len(policies))
        schedules.append(schedule(demand, one, bank))
    return DemandSchedules(name=path.stem, bank=bank, schedules=tuple(schedules))


@dataclass(frozen=True, kw_only=True)
class DemandSchedules(Result):
    """Schedules of one demand, by policy."""

    name: str
    """Name of the demand."""
    bank: OcsBank
    """Switches."""
    schedules: tuple[CircuitSchedule, ...]
    """Schedules of the policies."""

    @property
    def best(self) -> CircuitSchedule:
        """The schedule of least makespan."""
        return min(self.schedules, key=lambda one: one.makespan_s)

    def record(self) -> dict[str, Any]:
        """Return the numbers of all schedules as plain data."""
        return {
            "demand": self.name,
            "ports": self.best.ports,
            "demand_bytes": float(self.best.demand.sum()),
            "plant": {"type": "CircuitPlant"} | dataclasses.asdict(self.bank),  # as records name it
            "bound_s": self.best.bound_s,
            "best": self.best.policy,
            "policies": self.rows(),
        }

    def rows(self) -> list[Row]:
        """Return a row for each policy."""
        return [summary(one) for one in self.schedules]

    def tables(self) -> dict[str, list[Row]]:
        """Return the rows, and every configuration."""
        return {"": self.rows(), "configurations": configuration_rows(self)}

    def report(self) -> list[Block]:
        """Return a table with a line for each policy, and sentences on the bound and the best policy."""
        bank, best = self.bank, self.best
        columns: dict[str, Callable[[CircuitSchedule], str]] = {
            "configurations": lambda one: str(one.configurations),
            "makespan": lambda one: format_si(one.makespan_s, "s"),
            "ports alone": lambda one: format_si(max(one.ports_alone_s, one.packet_s), "s"),
            "duty": lambda one: f"{100 * one.duty:.1f} %",
            "over bound": lambda one: f"{one.over_bound:.3f}",
            "residue": lambda one: format_si(one.residue_bytes, "B"),
            "its packets": lambda one: "-" if one.packet_s == 0.0 else format_si(one.packet_s, "s"),
        }
        planes = "1 switch" if bank.switches == 1 else f"{bank.switches} switches"
        title = (
            f"{self.name.replace('_', ' ')}: {best.ports} ports, {format_si(float(best.demand.sum()), 'B')}, "
            f"{planes}, {format_si(bank.rate_bytes_per_s, 'B/s')} a circuit, "
            f"reconfiguration {format_si(bank.reconfiguration_s, 's')}"
        )
        packets = ""
        if bank.packet_rate_bytes_per_s:
            packets = f", packets at {format_si(bank.packet_rate_bytes_per_s, 'B/s')} a port beside them"
        bound = f"No schedule takes less than {format_si(best.bound_s, 's')}{packets}. Least: {best.policy}."
        others = [one for one in self.schedules if one.policy != SchedulePolicy.EXACT]
        if best.makespan_s > 0.0 and 0 < len(others) < len(self.schedules):
            near = min(others, key=lambda one: one.makespan_s)
            over = f"{100 * (near.makespan_s / best.makespan_s - 1.0):.1f} %"
            bound += f" It is the least there is; of the others {near.policy} comes nearest, {over} over it."
        alone_s, policy = min((max(one.ports_alone_s, one.packet_s), one.policy) for one in self.schedules)
        if alone_s < best.makespan_s:
            bound += f" Where a move does not stop all ports: {format_si(alone_s, 's')}, {policy}."
        return [table_of(title, self.schedules, lambda one: one.policy, columns), bound]

    def figure(self) -> Figure:
        """Return the schedule of least makespan over time, and all makespans beside the bound."""
        best = self.best
        several = len(self.schedules) > 1
        tall = min(0.22 * best.ports * min(best.switches, 3) + 0.6, _MOST_INCHES)
        beside = 0.24 * len(self.schedules) + 0.55 if several else 0.0
        figure = new_figure(tall + beside + 0.9)
        grid = figure.add_gridspec(2 if several else 1, 1, height_ratios=(tall, beside) if several else (1,))
        axes = figure.add_subplot(grid[0])
        _draw_schedule(axes, best)
        if several:
            _draw_makespans(figure.add_subplot(grid[1]), self)
        legend = {"Dark: circuits move": DARK_TIME, "No circuit": _IDLE}
        if best.ports <= _FEW:
            legend = {f"To {port}": colour for port, colour in enumerate(PALETTE[: best.ports])} | legend
        if any(one.packet_s > one.circuit_makespan_s for one in self.schedules):
            legend["Below: packets only"] = PALETTE[1]
        figure.legend(
            handles=swatches(legend), loc="outside upper center", ncols=6, handlelength=1.4, columnspacing=1.2
        )
        return figure


def summary(one: CircuitSchedule) -> dict[str, Any]:
    """Return the numbers of a schedule as plain data."""
    return {
        "policy": one.policy,
        "configurations": one.configurations,
        "makespan_s": one.makespan_s,
        "circuits_s": one.circuit_makespan_s,
        "ports_alone_s": one.ports_alone_s,
        "packets_s": one.packet_s,
        "dark_s": one.configurations * one.reconfiguration_s,
        "duty": one.duty,
        "over_bound": one.over_bound,
        "residue_bytes": one.residue_bytes,
    }


BYTES = re.compile(r"[\d.]+(?:e[+-]?\d+)?\s*[kKMGTP]?i?[bB](?:ytes?)?", re.ASCII)
"""A number of bytes with its unit, which a demand does not have: never a name."""


def read_demand(path: Path) -> np.ndarray:
    """Return a demand, shape [N, N], bytes from input (row) to output (column).

    Parameters
    ----------
    path : pathlib.Path
        CSV of N rows of N numbers. A first row of names is skipped, and so is a first column of names.
    """
    lines = list(enumerate(csv.reader(read_text(path).splitlines()), start=1))
    rows = [(f"{path.name}:{line}", [cell.strip() for cell in cells]) for line, cells in lines if any(cells)]
    if not rows:
        msg = f"{path.name}: holds no row"
        raise ParameterError(msg)
    if all(map(_is_name, rows[0][1][1:] or rows[0][1])):
        rows = rows[1:]
    named = len(rows) > 0 and all(_is_name(cells[0]) for _, cells in rows)
    body = [(where, cells[1:] if named else cells) for where, cells in rows]
    size = len(body)
    if size < 2 or size > MOST_PORTS:
        msg = f"{path.name}: holds {size} rows of numbers; a demand has 2 to {MOST_PORTS}"
        raise ParameterError(msg)
    return np.array([_row(where, cells, size) for where, cells in body])


def _row(where: str, cells: Sequence[str], size: int) -> list[float]:
    if len(cells) != size:
        msg = f"{where}: has {len(cells)} numbers, and the file {size} rows; a demand is square"
        raise ParameterError(msg)
    found = []
    for column, cell in enumerate(cells, start=1):
        value = _number(cell)
        if value is None or not math.isfinite(value) or value < 0.0:
            msg = f"{where}: column {column} is '{cell[:40]}'; it must be bytes, finite and at least 0"
            raise ParameterError(msg)
        found.append(value)
    return found


def _is_name(cell: str) -> bool:
    """Return whether a cell is neither a number nor a number of bytes with a unit."""
    return _number(cell) is None and BYTES.fullmatch(cell) is None


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


_IDLE = "#EEEEEE"
_ROW = 0.86
_FEW = 10
_DARKEST = 0.2
_MOST_INCHES = 6.0


def _colours(ports: int) -> Colormap:
    """Return a colour for each output: apart where there are few, in order where there are many."""
    import matplotlib as mpl  # noqa: PLC0415 - only to draw
    from matplotlib.colors import ListedColormap  # noqa: PLC0415 - only to draw

    if ports <= _FEW:
        return ListedColormap(PALETTE[:ports])
    return ListedColormap(mpl.colormaps["viridis"](np.linspace(_DARKEST, 1.0, ports)))


def _draw_schedule(axes: Axes, one: CircuitSchedule) -> None:
    """Draw each port's circuits on each switch, coloured by output."""
    from matplotlib.colors import BoundaryNorm, ListedColormap  # noqa: PLC0415 - only to draw

    end_s = max(one.circuit_makespan_s, one.packet_s if math.isfinite(one.packet_s) else 0.0)
    symbol, factor = prefix_of(end_s) if end_s > 0.0 else ("", 1.0)
    colours, lane = _colours(one.ports), _ROW / one.switches
    norm = BoundaryNorm(np.arange(one.ports + 1) - 0.5, one.ports)
    image = None
    axes.set_facecolor("white")
    for switch in range(one.switches):
        own = np.flatnonzero(one.switch_of == switch)
        ports = np.arange(one.ports)[:, None] - _ROW / 2 + switch * lane
        edges_y = np.concatenate([ports, ports + lane * (0.94 if one.switches > 1 else 1.0)], axis=1).ravel()
        times = np.stack([one.starts_s[own] - one.reconfiguration_s, one.starts_s[own]], axis=1).ravel()
        edges_x = np.append(times, [one.ends_s[own[-1]] if len(own) else 0.0, end_s]) / factor
        if not len(own):
            edges_x = np.array([0.0, end_s]) / factor
        kinds = np.full((one.ports, len(edges_x) - 1), float(DARK))
        kinds[:, 1 : 2 * len(own) : 2] = one.permutations[own].T
        rows = np.full((2 * one.ports - 1, kinds.shape[1]), np.nan)
        rows[::2] = kinds
        moving = np.zeros(kinds.shape, dtype=bool)
        moving[:, 0 : 2 * len(own) : 2] = True
        layers = (
            (np.where(moving, 1.0, np.nan), ListedColormap([DARK_TIME]), None),
            (np.where(~moving & (kinds == DARK), 1.0, np.nan), ListedColormap([_IDLE]), None),
            (np.where(~moving & (kinds != DARK), kinds, np.nan), colours, norm),
        )
        for values, shades, scale in layers:
            rows[::2] = values
            masked = np.ma.masked_invalid(rows)
            image = axes.pcolormesh(edges_x, edges_y, masked, cmap=shades, norm=scale, rasterized=True)
    if image is not None and one.ports > _FEW:
        bar = axes.figure.colorbar(image, ax=axes, label="Output", pad=0.01, ticks=_ticks(one.ports))
        bar.minorticks_off()
    planes = "" if one.switches == 1 else f" on {one.switches} switches (rows within a row)"
    axes.set_title(
        f"{one.policy}: {one.configurations} configurations{planes}, duty {100 * one.duty:.1f} %, "
        f"{one.over_bound:.2f} of the bound",
        loc="left",
    )
    axes.axvline(one.bound_s / factor, color=REFERENCE, linewidth=0.9, linestyle="--")
    axes.set_xlim(0.0, end_s / factor if end_s > 0.0 else 1.0)
    axes.set_ylim(one.ports - 0.5, -0.5)
    axes.set_yticks(_ticks(one.ports))
    axes.set_ylabel("Input")
    axes.set_xlabel(f"Time ({symbol}s); dashed: the bound")


def _ticks(ports: int) -> list[int]:
    step = max(1, 2 ** math.ceil(math.log2(ports / 16)))
    return list(range(0, ports, step))


def _draw_makespans(axes: Axes, study: DemandSchedules) -> None:
    """Draw each policy's time, split into carrying and dark, and the bound of all."""
    shown = [one for one in study.schedules if math.isfinite(one.makespan_s)]
    symbol, factor = prefix_of(max((one.makespan_s for one in shown), default=0.0) or 1.0)
    places = np.arange(len(shown))
    dark = np.array([_moves_of_busiest(one) * one.reconfiguration_s for one in shown])
    whole = np.array([one.circuit_makespan_s for one in shown])
    packets = np.array([max(0.0, one.packet_s - one.circuit_makespan_s) for one in shown])
    axes.barh(places, (whole - dark) / factor, color=PALETTE[0], height=0.7)
    axes.barh(places, dark / factor, left=(whole - dark) / factor, color=DARK_TIME, height=0.7)
    if packets.any():
        left = whole / factor
        axes.barh(places, packets / factor, left=left, color=PALETTE[1], height=0.7)
    axes.axvline(study.best.bound_s / factor, color=REFERENCE, linewidth=0.9, linestyle="--")
    name_rows(axes, [one.policy for one in shown])
    axes.set_xlabel(f"Makespan ({symbol}s): circuits carry, then dark time of the switch that ends last")


def _moves_of_busiest(one: CircuitSchedule) -> int:
    """Return the number of configurations of the switch that ends last."""
    if one.configurations == 0:
        return 0
    return int((one.switch_of == one.switch_of[one.ends_s.argmax()]).sum())


def configuration_rows(study: DemandSchedules) -> list[Row]:
    """Return every configuration of every policy, the outputs of all inputs in one cell."""
    rows: list[Row] = []
    for one in study.schedules:
        cells = zip(one.switch_of, one.starts_s, one.ends_s, one.permutations, strict=True)
        for index, (switch, start_s, end_s, row) in enumerate(cells):
            outputs = " ".join("-" if peer == DARK else str(peer) for peer in row.tolist())
            rows.append(
                {
                    "policy": one.policy,
                    "configuration": index,
                    "switch": int(switch),
                    "start_s": f"{start_s:.9g}",
                    "end_s": f"{end_s:.9g}",
                    "outputs": outputs,
                }
            )
    return rows


RANKS = 8
"""Default number of ranks of a collective."""
SYSTEM = "gpu_ocs"
"""Default system that runs a step."""
_BANK = ("switch", "reconfiguration_s", "rate_bytes_per_s", "planes")


class Use(StrEnum):
    """Traffic that circuits are scheduled for."""

    DEMAND = "demand"
    COLLECTIVE = "collective"
    MODEL = "model"


MEANT_FOR: Mapping[Use, tuple[str, ...]] = MappingProxyType(
    {
        Use.DEMAND: (*_BANK, "policy", "packet_rate_bytes_per_s"),
        Use.COLLECTIVE: (*_BANK, "ranks", "size_bytes", "algorithm"),
        Use.MODEL: ("plan", "system", "accelerators", "settings"),
    }
)
"""Options of each of the three uses."""


@dataclass(frozen=True, kw_only=True)
class Circuits(Study):
    """Schedules of optical circuits for a demand, within a collective, or between the phases of a step."""

    demand: Path | None = option(
        None, "bytes from each input (row) to each output (column)", metavar="DEMAND.csv", positional=True
    )
    collective: str | None = option(
        None, "all_reduce, reduce_scatter, all_gather, all_to_all", metavar="KIND"
    )
    model: str | None = option(None, "phases of a model's step, by name or a config.json")
    policy: str | None = option(
        None, "policies for a demand, separated by commas; default all", metavar="NAMES"
    )
    packet_rate_bytes_per_s: float | None = option(
        None, "of a port's packets for the rest of a demand; default none", metavar="RATE"
    )
    switch: str | None = option(
        None,
        f"that sets the reconfiguration time of a demand or a collective; default {SWITCH}",
        metavar="NAME",
    )
    reconfiguration_s: float | None = option(None, "instead of the switch's, e.g. 25us", metavar="TIME")
    rate_bytes_per_s: float | None = option(None, "of a circuit, e.g. 50GB/s", metavar="RATE")
    size_bytes: float | None = option(None, "of a rank before a collective; default 1MB", metavar="BYTES")
    algorithm: str | None = option(None, "of a collective; default all", metavar="NAME")
    plan: str | None = option(None, "of a model's step: tp=8,pp=4,dp=2,global_batch=32")
    system: str | None = option(None, f"that runs it; default {SYSTEM}", metavar="NAME")
    planes: int | None = option(None, "switches side by side; default 1 (2 of a collective)", metavar="K")
    ranks: int | None = option(None, f"of the collective; default {RANKS}", metavar="N")
    accelerators: int | None = option(None, "default: what the plan uses", metavar="N")
    settings: tuple[str, ...] = changes("change one number of the system")

    def default_out(self) -> Path:
        """Return a directory named after what is scheduled."""
        collective = f"{self.collective}_{RANKS if self.ranks is None else self.ranks}"
        name = collective if self.collective else self.model or (self.demand.stem if self.demand else "")
        return Path("results") / f"circuits_{file_name(name)}"

    def run(self, progress: Progress) -> Result:
        """Return the schedules for the demand, the collective or the step.

        Raises
        ------
        HeliographError
            If none or several of demand, collective and model are given, or an option of another use.
        """
        uses = {Use.DEMAND: self.demand, Use.COLLECTIVE: self.collective, Use.MODEL: self.model}
        given_uses = [name for name, value in uses.items() if value is not None]
        if len(given_uses) != 1:
            got = f"got {' and '.join(given_uses)}" if given_uses else "got none of them"
            msg = f"name one of DEMAND.csv, --collective KIND and --model NAME; {got}"
            raise ParameterError(msg)
        given = self._given(given_uses[0])
        more = {
            name: given.pop(name) for name in ("policy", "ranks", "size_bytes", "algorithm") if name in given
        }
        if self.demand is not None:
            return schedule_demand(self.demand, bank_of(**given), progress=progress, **more)
        if self.collective is not None:
            bank = bank_of(**({"planes": PLANES} | given))
            return plan_collective(self.collective, more.pop("ranks", RANKS), bank, **more)
        result = one_step(
            self.system or SYSTEM,
            Workload(model=self.model or "", plan=self.plan or ""),
            Hardware(settings=self.settings),
            accelerators=self.accelerators,
        )
        return study_phases(result)

    def _given(self, use: Use) -> dict[str, Any]:
        """Return the options that are given, all of this use."""
        for name in sorted({name for names in MEANT_FOR.values() for name in names} - {*MEANT_FOR[use]}):
            uses = " or ".join(other for other in MEANT_FOR if name in MEANT_FOR[other])
            own = use is Use.MODEL and name == "switch"
            hint = " (--set fabric.switch=NAME changes the system's)" if own else ""
            refuse_unused(self, (name,), f"it is for a {uses}, not for a {use}{hint}")
        values = {name: getattr(self, name) for name in MEANT_FOR[use]}
        return {name: value for name, value in values.items() if value not in (None, ())}
