"""Collectives whose circuits change between steps: one plane moves while the others transmit (SWOT)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from experiments.circuits import plant_of
from heliograph.checks import check_range
from heliograph.collectives import Algorithm, algorithms
from heliograph.errors import ParameterError, nearest
from heliograph.operators import CollectiveKind
from heliograph.paths import replace_at
from optical.scheduling.overlap import (
    NODES,
    CollectiveStep,
    OverlapPlan,
    bruck_steps,
    collective_steps,
    overlap,
)
from optical.scheduling.plant import CircuitPlant

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


@dataclass(frozen=True, kw_only=True)
class CollectiveRequest:
    """What is asked, in the user's words."""

    kind: str
    """Collective by name."""
    ranks: int
    """Ranks, each with a circuit on every plane."""
    size: str
    """Bytes of a rank before the collective, with their unit."""
    algorithm: str = ""
    """Only this algorithm; all if empty."""
    switch: str
    """Switch technology that sets the delay."""
    delay: str = ""
    """Delay with its unit, instead of the switch's."""
    rate: str = ""
    """Rate of a circuit with its unit, instead of the transceiver's."""
    planes: int = 2
    """Circuit switches side by side."""

    @property
    def size_bytes(self) -> float:
        """Bytes of a rank before the collective.

        Raises
        ------
        ParameterError
            If the text is no size above zero.
        """
        return replace_at(_Vector(size_bytes=1.0), "size_bytes", self.size).size_bytes


@dataclass(frozen=True, kw_only=True)
class _Vector:
    """What a rank holds."""

    size_bytes: float
    """Its bytes."""

    def __post_init__(self) -> None:
        check_range(self, "size_bytes", open_low=True)


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


@dataclass(frozen=True, kw_only=True)
class CollectiveStudy:
    """One collective under several algorithms."""

    kind: CollectiveKind
    """What is done."""
    ranks: int
    """Ranks."""
    size_bytes: float
    """Bytes of a rank before it."""
    plant: CircuitPlant
    """Planes."""
    found: tuple[PlannedCollective, ...]
    """A plan of each algorithm."""
    left_out: tuple[str, ...]
    """Algorithms with too many steps to plan."""

    @property
    def name(self) -> str:
        """What the study is called."""
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
            "plant": self.plant,
            "best": self.best.algorithm,
            "left_out": list(self.left_out),
            "algorithms": [
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
            ],
        }


def plan_collective(request: CollectiveRequest) -> CollectiveStudy:
    """Return plans of a collective on planes of circuits, one for each algorithm.

    Parameters
    ----------
    request : CollectiveRequest
        What is asked.

    Raises
    ------
    ParameterError
        If a name or quantity cannot be read, or every algorithm has too many steps.

    Notes
    -----
    SWOT (arXiv:2510.19322) hides reconfiguration within a collective: planes that are not needed by a step
    move to a later one meanwhile. The plan beside it has all planes move together before each step.
    """
    known = [str(kind) for kind in KINDS]
    if request.kind not in known:
        msg = f"no collective '{request.kind}' to plan; {nearest(request.kind, known, noun='collective')}"
        raise ParameterError(msg)
    if not 2 <= request.ranks <= MOST_RANKS:
        msg = f"ranks ({request.ranks}) must be 2 to {MOST_RANKS}"
        raise ParameterError(msg)
    kind, size_bytes = CollectiveKind(request.kind), request.size_bytes
    plant = plant_of(
        request.switch, request.planes, {"delay_s": request.delay, "rate_bytes_per_s": request.rate}
    )
    names = [str(one) for one in algorithms(kind, request.ranks)]
    names += [BRUCK] if kind is CollectiveKind.ALL_TO_ALL else []
    if request.algorithm and request.algorithm not in names:
        hint = nearest(request.algorithm, names, noun="algorithm")
        msg = f"no algorithm '{request.algorithm}' of {kind} on {request.ranks} ranks; {hint}"
        raise ParameterError(msg)
    found, left_out = [], []
    for name in [request.algorithm] if request.algorithm else names:
        steps = _steps(kind, name, request.ranks, size_bytes)
        size = len(steps) * plant.switches
        if size > MOST_CHOICES and _changes(steps):
            left_out.append(f"{name} ({len(steps)} steps)")
            continue
        plan = overlap(steps, plant, nodes=NODES if size <= MOST_EXACT else 0)
        found.append(
            PlannedCollective(algorithm=name, steps=steps, together_s=_together_s(steps, plant), plan=plan)
        )
    if not found:
        msg = (
            f"{', '.join(left_out)} on {plant.switches} planes is too long to plan "
            f"(steps times planes at most {MOST_CHOICES}); take fewer ranks or planes"
        )
        raise ParameterError(msg)
    return CollectiveStudy(
        kind=kind,
        ranks=request.ranks,
        size_bytes=size_bytes,
        plant=plant,
        found=tuple(found),
        left_out=tuple(left_out),
    )


def _steps(kind: CollectiveKind, name: str, ranks: int, size_bytes: float) -> tuple[CollectiveStep, ...]:
    if name == BRUCK:
        return bruck_steps(ranks, size_bytes)
    return collective_steps(kind, Algorithm(name), ranks, size_bytes)


def _changes(steps: Sequence[CollectiveStep]) -> int:
    return sum(one.destinations != after.destinations for one, after in pairwise(steps))


def _together_s(steps: Sequence[CollectiveStep], plant: CircuitPlant) -> float:
    """Return the makespan if all planes share every step and move at once between steps."""
    work_s = sum(one.size_bytes for one in steps) / plant.rate_bytes_per_s
    return work_s / plant.switches + _changes(steps) * plant.delay_s
