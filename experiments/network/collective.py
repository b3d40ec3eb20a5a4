"""Collectives whose circuits change between steps: one plane moves while the others transmit (SWOT)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.study import Block, Result, Row
from heliograph.report import format_si, prefix_of, table_of
from heliograph.style import (
    DARK_TIME,
    PALETTE,
    REFERENCE,
    label,
    name_rows,
    new_figure,
    styled,
    swatches,
)
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
from optical.scheduling.schedule import OcsBank
from simulator.collectives.algorithms import Algorithm, algorithms
from simulator.errors import ParameterError, nearest
from simulator.operators import CollectiveKind

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SWITCH = "silicon-photonic-mzi"
"""Switch whose reconfiguration time is the delay where nobody gives one."""
OPTICS = "lane-100g"
"""Transceiver whose line rate a circuit has where nobody gives one."""


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
"""Steps times planes up to which the exact search runs; beyond, moves are the heuristic's."""
MOST_CHOICES = 64
"""Steps times planes beyond which an algorithm is left out; a choice, the search takes seconds there."""
MOST_RANKS = 512
"""Most ranks of a collective."""
PLANES = 2
"""Switches side by side where nobody says how many."""
MEGABYTE = 1e6
"""Bytes of a rank before a collective where nobody says how many."""


@dataclass(frozen=True, kw_only=True)
class PlannedCollective:
    """One algorithm on the planes."""

    algorithm: str
    """Its name."""
    steps: tuple[CollectiveStep, ...]
    """Permutations, one after the other."""
    together_s: float
    """Makespan if all planes transmit together and all move before each other permutation."""
    plan: OverlapPlan
    """The planes' shares, moves beside transmissions."""

    @property
    def changes(self) -> int:
        """Steps whose permutation is not that of the step before."""
        return _changes(self.steps)

    @property
    def saved_percent(self) -> float:
        """Share of the time with all planes moving together that is saved, per cent."""
        return 100 * (1.0 - self.plan.makespan_s / self.together_s)


@dataclass(frozen=True, kw_only=True)
class CollectivePlans(Result):
    """One collective under several algorithms."""

    kind: CollectiveKind
    """Collective."""
    ranks: int
    """Ranks."""
    size_bytes: float
    """Bytes of a rank before it."""
    plant: OcsBank
    """Planes."""
    found: tuple[PlannedCollective, ...]
    """A plan of each algorithm."""
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
            "plant": {"type": "CircuitPlant"} | dataclasses.asdict(self.plant),  # as records name it
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
        plant = self.plant
        columns: dict[str, Callable[[PlannedCollective], str]] = {
            "steps": lambda one: str(len(one.steps)),
            "changes": lambda one: str(one.changes),
            "all move together": lambda one: format_si(one.together_s, "s"),
            "overlapped": lambda one: format_si(one.plan.makespan_s, "s"),
            "saved": lambda one: f"{one.saved_percent:.1f} %",
            "over bound": lambda one: f"{one.plan.over_bound:.3f}",
        }
        title = (
            f"{str(self.kind).replace('_', ' ')} of {format_si(self.size_bytes, 'B')} on {self.ranks} ranks, "
            f"{plant.switches} planes, {format_si(plant.rate_bytes_per_s, 'B/s')} a circuit, "
            f"reconfiguration {format_si(plant.reconfiguration_s, 's')}"
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
        planes, several = self.plant.switches, len(self.found)
        heights = (_PLANE_IN * planes + 0.5, _ALGORITHM_IN * several + 0.5)
        with styled():
            figure = new_figure(sum(heights) + 0.9)
            grid = figure.add_gridspec(2, 1, height_ratios=heights)
            _draw_planes(figure.add_subplot(grid[0]), self, self.best)
            _draw_makespans(figure.add_subplot(grid[1]), self)
            told = {
                "Circuits carry (a number for each step)": PALETTE[0],
                "Dark: circuits move": DARK_TIME,
                "All planes move together": PALETTE[1],
            }
            figure.legend(handles=swatches(told), loc="outside upper center", ncols=3, handlelength=1.4)
            return figure


def plan_collective(
    collective: str, ranks: int, plant: OcsBank, *, size_bytes: float = MEGABYTE, algorithm: str = ""
) -> CollectivePlans:
    """Return plans of a collective on planes of circuits, one for each algorithm.

    Parameters
    ----------
    collective : str
        Its name.
    ranks : int
        Ranks, each with a circuit on every plane.
    plant : OcsBank
        Planes.
    size_bytes : float
        Bytes of a rank before the collective.
    algorithm : str
        Only this algorithm; all if empty.

    Notes
    -----
    SWOT (arXiv:2510.19322) hides reconfiguration within a collective: planes that are not needed by a step
    move to a later one meanwhile. The plan beside it has all planes move together before each step.
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
        steps = _steps(kind, name, ranks, size_bytes)
        plan = _planned(steps, plant)
        if plan is None:
            left_out.append(f"{name} ({len(steps)} steps)")
            continue
        found.append(
            PlannedCollective(algorithm=name, steps=steps, together_s=_together_s(steps, plant), plan=plan)
        )
    if not found:
        msg = (
            f"{', '.join(left_out)} on {plant.switches} planes is too long to plan "
            f"(steps times planes at most {MOST_CHOICES}); take fewer ranks or planes"
        )
        raise ParameterError(msg)
    return CollectivePlans(
        kind=kind,
        ranks=ranks,
        size_bytes=size_bytes,
        plant=plant,
        found=tuple(found),
        left_out=tuple(left_out),
    )


def _steps(kind: CollectiveKind, name: str, ranks: int, size_bytes: float) -> tuple[CollectiveStep, ...]:
    if name == BRUCK:
        return bruck_steps(ranks, size_bytes)
    return collective_steps(kind, Algorithm(name), ranks, size_bytes)


def _planned(steps: Sequence[CollectiveStep], plant: OcsBank) -> OverlapPlan | None:
    """Return the shortest plan that is found, or None where stages follow each other too often to plan."""
    size, found = len(steps) * plant.switches, []
    stages = {step.stage for step in steps}
    if len(stages) < len(steps):
        found.append(staged(steps, plant))
    if size <= MOST_CHOICES or not _changes(steps):
        found.append(overlap(steps, plant, nodes=NODES if size <= MOST_EXACT else 0))
    return min(found, key=lambda plan: plan.makespan_s, default=None)


def _changes(steps: Sequence[CollectiveStep]) -> int:
    return sum(one.destinations != after.destinations for one, after in pairwise(steps))


def _together_s(steps: Sequence[CollectiveStep], plant: OcsBank) -> float:
    """Return the makespan if all planes share every step and move at once between steps."""
    work_s = sum(one.size_bytes for one in steps) / plant.rate_bytes_per_s
    return work_s / plant.switches + _changes(steps) * plant.reconfiguration_s


_PLANE_IN = 0.3
_ALGORITHM_IN = 0.42
_LEAST = 1e-9


def _draw_planes(axes: Axes, study: CollectivePlans, one: PlannedCollective) -> None:
    """Draw which plane serves which step, and when it moves."""
    symbol, factor = prefix_of(one.plan.makespan_s)
    reconfiguration_s, end_s = study.plant.reconfiguration_s, one.plan.makespan_s
    for plane in range(study.plant.switches):
        before = None
        for step, what in enumerate(one.steps):
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
            if before is not None and before != what.destinations:
                axes.barh(
                    plane,
                    reconfiguration_s / factor,
                    left=(start_s - reconfiguration_s) / factor,
                    color=DARK_TIME,
                    height=0.8,
                )
            before = what.destinations
    title = f"{label(one.algorithm)}: {len(one.steps)} steps, {one.saved_percent:.1f} % saved"
    axes.set_title(title, loc="left")
    axes.set_xlim(0.0, end_s / factor)
    axes.set_ylim(study.plant.switches - 0.5, -0.5)
    axes.set_yticks(range(study.plant.switches))
    axes.set_ylabel("Plane")
    axes.set_xlabel(f"Time ({symbol}s)")


def _draw_makespans(axes: Axes, study: CollectivePlans) -> None:
    """Draw each algorithm's makespan, moving together and overlapped, and its bound."""
    found = study.found
    symbol, factor = prefix_of(max(max(one.together_s, one.plan.makespan_s) for one in found))
    places = np.arange(len(found))
    axes.barh(places - 0.19, [one.together_s / factor for one in found], height=0.36, color=PALETTE[1])
    axes.barh(places + 0.19, [one.plan.makespan_s / factor for one in found], height=0.36, color=PALETTE[0])
    for place, one in zip(places, found, strict=True):
        if math.isfinite(one.plan.bound_s):
            axes.plot([one.plan.bound_s / factor] * 2, [place - 0.4, place + 0.4], color=REFERENCE, lw=1.0)
    name_rows(axes, [label(one.algorithm) for one in found])
    axes.set_xlabel(f"Makespan ({symbol}s); line: no plan is faster")
