"""Arrays of plans: the grid of a joint search, a model's rules over all of it, and work and memory of each.

Work, launches and traffic of a microbatch follow from the shape of a rank's share; memory from the formulas
of `workloads.step.memory`, stage by representative stage.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from simulator.amounts import smaller
from simulator.errors import WorkloadError
from simulator.layout import Axis
from simulator.node import Node
from simulator.operators import Collective, Overlapped
from workloads.layers.transformer import Item
from workloads.models.architecture import TransformerConfig, divisors
from workloads.pipeline.schedule import SCHEDULES as KNOWN
from workloads.pipeline.schedule import Chain, Pass, Schedule
from workloads.pipeline.schedules import ONE_FORWARD_ONE_BACKWARD
from workloads.plan.parts import Axes, ChoiceColumn, Recompute, trait
from workloads.plan.plan import Plan, Share
from workloads.plan.rules import SUBJECTS, broken_by_subject
from workloads.step.memory import (
    chunk_activation_bytes,
    head_bytes,
    parameter_bytes,
    pass_bytes,
    state_bytes,
)
from workloads.step.sharding import (
    RankParameters,
    StagePart,
    all_blocks,
    embedding_parameters,
    head_parameters,
    optimizer_bytes,
    part_parameters,
    stage_layers,
    whole_stage,
)
from workloads.step.stage import Passes
from workloads.step.step import MOST_TASKS, task_count

SHAPE = ("tp", "cp", "ep", "micro_batch", "recompute")
"""Columns that shape a rank's share of a microbatch."""
WORK = (*SHAPE, "overlap_tensor")
"""Columns on which its work depends; its memory does not on the last."""
DIRECTIONS = (Pass.FORWARD, Pass.BACKWARD, Pass.INPUT, Pass.WEIGHT)
"""Passes that are priced: a whole backward pass, and its two parts where they run apart."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Operators of one part of a stage in one direction, as numbers."""

    time_s: float = 0.0
    """Time of all products and element-wise work."""
    host_s: float = 0.0
    """Time the host needs to issue them."""
    busy_s: float = 0.0
    """Time in which units work, on other ranks' keys too, without waiting for launches."""
    energy_j: float = 0.0
    """Dynamic energy of one rank."""
    collectives: tuple[tuple[Collective, float], ...] = ()
    """Collectives that the pass waits for, and how often."""
    overlapped: tuple[tuple[Collective, float, float], ...] = ()
    """Collectives beside a product: how long that hides them in s, and how often."""
    beside_s: float = 0.0
    """Work on other ranks' keys, beside which those travel, or its launches if longer."""
    ring: tuple[tuple[Collective, float], ...] = ()
    """Collectives that bring them."""
    experts_s: float = 0.0
    """Work between an uneven exchange and its way back, while which circuits stay."""
    axes: tuple[str, ...] = ()
    """Axes of all collectives in the order in which they run, the ring of context ranks first."""

    @property
    def moved(self) -> tuple[tuple[Collective, float], ...]:
        """All collectives, and how often."""
        return (*self.collectives, *((one, times) for one, _, times in self.overlapped), *self.ring)


class ShapeWork:
    """Work of a mean block, the embedding and the head on one rank of a shape.

    Parameters
    ----------
    config, share : TransformerConfig, Share
        The model, and a rank's share of a microbatch.
    node : Node
        The accelerator.
    overlap_tensor : bool
        Whether traffic of tensor ranks travels beside the products that it feeds.
    """

    def __init__(self, config: TransformerConfig, share: Share, node: Node, *, overlap_tensor: bool) -> None:
        passes = Passes(config, share, overlap_tensor=overlap_tensor)
        blocks = all_blocks(config, share)
        each = 1.0 / config.layers
        self.block = {
            one: _work(passes.of(blocks, one), node, each, passes.ring(blocks, one), config.layers)
            for one in DIRECTIONS
        }
        single = StagePart(layers=1)
        self.single = {
            one: (*passes.ring(single, one)[1], *_in_order(passes.of(single, one))) for one in DIRECTIONS
        }
        """Collectives of one block with experts, in the order in which they ask for circuits."""
        ends = {
            one: [
                passes.of(StagePart(layers=0, embedding=True), one),
                passes.of(StagePart(layers=0, head=True), one),
            ]
            for one in DIRECTIONS
        }
        self.ends = {one: tuple(map(_in_order, both)) for one, both in ends.items()}
        """The same of the embedding and of the head."""
        self.embedding = {one: _work(embedding, node) for one, (embedding, _) in ends.items()}
        self.head = {one: _work(head, node) for one, (_, head) in ends.items()}


def _in_order(items: tuple[Item, ...]) -> tuple[Collective, ...]:
    """Return the collectives of a run as often as it has them, in its order."""
    return tuple(
        one.collective if isinstance(one, Overlapped) else one
        for one, count in items
        for _ in range(count)
        if isinstance(one, Collective | Overlapped)
    )


def _work(
    items: tuple[Item, ...],
    node: Node,
    share: float = 1.0,
    ring: tuple[tuple[Item, ...], tuple[Collective, ...]] = ((), ()),
    rings: int = 1,
) -> Work:
    time_s = host_s = energy_j = beside_s = launched_s = experts_s = 0.0
    collectives, overlapped, away = [], [], False
    axes = [one.axis for one in ring[1]]
    for one, count in items:
        if isinstance(one, Collective | Overlapped):
            axes.append(one.axis if isinstance(one, Collective) else one.collective.axis)
        if isinstance(one, Collective):
            collectives.append((one, count * share))
            host_s += node.collective_issue_s * count
            away ^= one.skew is not None
            continue
        times = float(count)
        operator = one.product if isinstance(one, Overlapped) else one
        if isinstance(one, Overlapped):
            hidden_s = node.cost(one.product).time_s * one.beside
            overlapped.append((one.collective, hidden_s, count * share))
            times = float(count * one.pieces)
            host_s -= (one.pieces - 1) * count * node.cost(one.product).host_s
        cost = node.cost(operator)
        time_s += cost.time_s * times
        experts_s += cost.time_s * times * away
        host_s += cost.host_s * times
        energy_j += sum(cost.energy_j.values()) * times
    for one, count in ring[0]:
        cost = node.cost(one)  # type: ignore[arg-type]
        beside_s += cost.time_s * count
        launched_s += (
            cost.host_s * count
        )  # a run of its own, which cannot wait for the block's other launches
        energy_j += sum(cost.energy_j.values()) * count
    return Work(
        time_s=time_s * share,
        host_s=host_s * share,
        busy_s=(time_s + beside_s) * share,
        energy_j=energy_j * share,
        collectives=tuple(collectives),
        overlapped=tuple(overlapped),
        beside_s=max(beside_s, launched_s) * share,
        experts_s=experts_s * share,
        axes=tuple(axes),
        ring=tuple((one, rings * share) for one in ring[1]),
    )


@dataclass(frozen=True, kw_only=True)
class Priced:
    """A part of a stage in one direction on one layout."""

    time_s: float
    """Work and what it waits for, launches apart."""
    host_s: float
    """Launches, and what is run beside the ring of context ranks, whose launches are its own."""
    busy_s: float
    """Time in which units work."""
    compute_j: float
    """Dynamic energy of one rank's work."""
    network_j: float
    """Dynamic energy of the class's transfers."""
    waited_s: float
    """What of the time is traffic."""
    tp_s: float
    """What of that is traffic of tensor ranks."""
    cp_s: float
    """What of that is traffic of context ranks, their ring apart."""
    ep_s: float
    """What of that is traffic of experts."""
    ring_s: float
    """Traffic on the ring of context ranks, hidden or not."""
    beside_s: float
    """Work that may hide it."""
    experts_s: float
    """Work between an uneven exchange and its way back."""


def priced(work: Work, price: Callable[[Collective], tuple[float, float]]) -> Priced:
    """Return a part's work with its collectives' times.

    Parameters
    ----------
    work : Work
        The part.
    price : callable
        Gives time in s and dynamic energy in J of a collective.
    """
    network_j = 0.0
    waits = {"tp": 0.0, "cp": 0.0, "ep": 0.0}
    alone = ((one, 0.0, count) for one, count in work.collectives)
    for one, hidden_s, count in (*alone, *work.overlapped):
        time_s, energy_j = price(one)
        waits[one.axis] += max(0.0, time_s - hidden_s) * count
        network_j += energy_j * count
    ring_s = 0.0
    for one, count in work.ring:
        time_s, energy_j = price(one)
        ring_s += time_s * count
        network_j += energy_j * count
    waited_s = sum(waits.values()) + max(0.0, ring_s - work.beside_s)
    return Priced(
        time_s=work.time_s + work.beside_s + waited_s,
        host_s=work.host_s + max(work.beside_s, ring_s),
        busy_s=work.busy_s,
        compute_j=work.energy_j,
        network_j=network_j,
        waited_s=waited_s,
        tp_s=waits["tp"],
        cp_s=waits["cp"],
        ep_s=waits["ep"],
        ring_s=ring_s,
        beside_s=work.beside_s,
        experts_s=work.experts_s,
    )


SCHEDULES = tuple(one for one in KNOWN.values() if one.closed_form is not None)
"""Schedules that have a closed form, by their number in an array."""
RECOMPUTES = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
"""Kinds of recomputation, by their number in an array."""
CHOSEN: Mapping[str, tuple[Any, ...]] = {"schedule": SCHEDULES, "recompute": RECOMPUTES}
"""Members of the columns that are choices."""
SWITCHES = ("overlap_tensor",)
"""Columns that are true or false, as 1 or 0."""
PLACEMENTS = ("tp cp dp pp", "tp cp pp dp", "tp dp cp pp", "cp tp dp pp", "dp tp cp pp")
"""Axes from the nearest ranks to the farthest: which axis takes neighbours in a node, which whole rails."""

COLUMNS = (
    "tp",
    "cp",
    "pp",
    "dp",
    "ep",
    "micro_batch",
    "vpp",
    "schedule",
    "recompute",
    "zero",
    "overlap_tensor",
    "placement",
)
"""What a row of the arrays says of a plan."""


def column_of(plan: Plan, name: str) -> int:
    """Return what a column (`COLUMNS`, all but the placement) says of a plan."""
    value = plan.value(name)
    return CHOSEN[name].index(value) if name in CHOSEN else int(value)


CHOICES: Mapping[str, tuple[int, ...]] = {
    "micro_batch": (1, 2, 4, 8),
    "vpp": (1, 2, 3, 4, 6),
    "schedule": tuple(range(len(SCHEDULES))),
    "recompute": (0, 2),
    "zero": (0, 1, 2, 3),
    "overlap_tensor": (0, 1),
    "placement": (0, 1, 2),
}
"""Values that a search tries where nobody names others."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanArrays:
    """Many plans of one model, a column for each choice; all else is that of the base."""

    base: Plan
    """Plan whose other choices all rows share, the global batch among them."""
    columns: Mapping[str, np.ndarray]
    """Column by name (`COLUMNS`), each of shape [P]."""

    def __len__(self) -> int:
        return len(self.columns["tp"])

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def taken(self, which: np.ndarray) -> PlanArrays:
        """Return the rows of a mask, or of indices."""
        return replace(self, columns={name: column[which] for name, column in self.columns.items()})

    @cached_property
    def whole(self) -> Plan:
        """Plan whose counts and choices are the columns, of shape [P] each."""
        return self._as_plan(self.columns)

    @cached_property
    def by_stage(self) -> Plan:
        """The same in columns of shape [P, 1], for numbers of several stages."""
        return self._as_plan({name: column[:, None] for name, column in self.columns.items()})

    def _as_plan(self, columns: Mapping[str, np.ndarray]) -> Plan:
        counts: dict[str, Any] = {name: columns[name] for name in COLUMNS if name != "placement"}
        for name, members in CHOSEN.items():
            counts[name] = ChoiceColumn(members, counts[name])
        for name in SWITCHES:
            counts[name] = counts[name].astype(bool)
        return self.base.with_(**counts)

    @cached_property
    def microbatches(self) -> np.ndarray:
        """Microbatches of a step, rounded down, shape [P]."""
        return cast("np.ndarray", self.whole.microbatches)

    @cached_property
    def gradient_ranks(self) -> np.ndarray:
        """Ranks over which gradients are summed, shape [P]."""
        return cast("np.ndarray", self.whole.axes.gradient_ranks)

    def plan(self, row: int, **changes: Any) -> Plan:  # noqa: ANN401 - any choice of a plan
        """Return one row as a plan, with other choices for some of its columns."""
        values: dict[str, Any] = {name: int(self[name][row]) for name in COLUMNS if name != "placement"}
        for name, members in CHOSEN.items():
            values[name] = members[values[name]]
        for name in SWITCHES:
            values[name] = bool(values[name])
        return self.base.one_of_many(values | changes)

    def placement(self, row: int) -> str:
        """Return the axes of a row from the nearest ranks to the farthest."""
        return PLACEMENTS[int(self["placement"][row])]

    def distinct(self, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Return the first row of each distinct set of values, and which set each row has, shape [P]."""
        return distinct([self[name] for name in names])


def distinct(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the first row of each distinct set of whole numbers, and which set each row has, shape [P]."""
    key = np.zeros(columns[0].shape, dtype=np.int64)
    for column in columns:
        key = key * (int(column.max(initial=0)) + 1) + column.astype(np.int64)
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    return first, place.ravel()


def grid(
    base: Plan,
    accelerators: int,
    experts: int,
    choices: Mapping[str, tuple[int, ...]] | None = None,
) -> PlanArrays:
    """Return every combination of degrees that takes all accelerators, with every combination of choices.

    Parameters
    ----------
    base : Plan
        What all plans share.
    accelerators : int
        Accelerators that each plan takes.
    experts : int
        Experts of the model; their divisors are degrees of expert parallelism.
    choices : mapping, optional
        Values of a column that replace those of `CHOICES`, or pin a degree.

    Raises
    ------
    WorkloadError
        If no degrees that are allowed multiply to the accelerators.
    """
    wanted = dict(CHOICES) | dict(choices or {})
    degrees = [
        one
        for one in _degrees(accelerators, experts)
        if all(value in wanted.get(name, (value,)) for name, value in zip(COLUMNS, one, strict=False))
    ]
    if not degrees:
        fixed = ", ".join(
            f"{name}={' or '.join(map(str, wanted[name]))}" for name in COLUMNS[:5] if name in wanted
        )
        also = f" with ep dividing {experts} experts" if "ep" in wanted else ""
        msg = (
            f"no plan with {fixed} takes tp x cp x pp x dp = {accelerators} accelerators{also}; leave one of "
            "them out, or try another number of accelerators"
        )
        raise WorkloadError(msg)
    rest = list(itertools.product(*(wanted[name] for name in COLUMNS[5:])))
    left, right = np.array(degrees, dtype=np.int32).reshape(-1, 5), np.array(rest, dtype=np.int32)
    rows = np.hstack([np.repeat(left, len(right), axis=0), np.tile(right, (len(left), 1))])
    return PlanArrays(base=base, columns={name: rows[:, place] for place, name in enumerate(COLUMNS)})


def _degrees(accelerators: int, experts: int) -> Iterator[tuple[int, ...]]:
    """Yield all that take the accelerators, in the order of the first columns: tp, cp, pp, dp and ep."""
    for tp in divisors(accelerators):
        for cp in divisors(accelerators // tp):
            for pp in divisors(accelerators // (tp * cp)):
                for ep in divisors(experts):
                    yield tp, cp, pp, accelerators // (tp * cp * pp), ep


SAME = "the same as another plan"
"""Reason for which rows are left out that are another in disguise."""


def broken_rules(config: TransformerConfig, plans: PlanArrays) -> dict[str, np.ndarray]:
    """Return, for every rule that a plan must keep, which rows break it, shape [P] each.

    Notes
    -----
    The rules of `workloads.plan.rules`, and two of the search: a row that is another in
    disguise (a schedule without stages, shares of one rank, placements of axes of one rank) is left out, and
    so is a step of more tasks than are built.
    """
    tasks = task_count(config, plans.whole, plans.base.steps_in_run)
    found = broken_by_subject(config, plans.whole, len(plans))
    named = {subject: found.pop(subject) for subject in SUBJECTS} | {
        SAME: _disguised(plans),
        "more tasks than a step graph holds": np.asarray(tasks > MOST_TASKS),
    }
    left = ~np.logical_or.reduce(list(named.values()))
    return named | {subject: broken for subject, broken in found.items() if np.any(broken & left)}


def _disguised(plans: PlanArrays) -> np.ndarray:
    alone = (plans["pp"] == 1) & (plans["schedule"] != 0)
    alone |= (plans.gradient_ranks == 1) & (plans["zero"] != 0)
    same = np.zeros(len(plans), dtype=bool)
    for number, order in enumerate(PLACEMENTS):
        earlier = PLACEMENTS[:number]
        mine = plans["placement"] == number
        for other in earlier:
            same |= mine & _same_order(plans, order.split(), other.split())
    return alone | same


def _same_order(plans: PlanArrays, one: list[str], other: list[str]) -> np.ndarray:
    """Return where two orders of axes differ in axes of one rank only."""
    same = np.ones(len(plans), dtype=bool)
    for first, second in itertools.combinations(one, 2):
        if other.index(first) > other.index(second):
            same &= (plans[first] == 1) | (plans[second] == 1)
    return same


def strides(order: str, tp: int, cp: int, dp: int, pp: int) -> dict[str, int]:
    """Return how far neighbours along each axis stand from each other."""
    sizes = {"tp": tp, "cp": cp, "dp": dp, "pp": pp}
    found, stride = {}, 1
    for axis in order.split():
        found[axis] = stride
        stride *= sizes[axis]
    return found


def endpoints_of(axes: Axes, order: str) -> tuple[int, ...]:
    """Return the endpoint of every rank where axes stand in an order, nearest first.

    Raises
    ------
    WorkloadError
        If the order does not name every axis once.
    """
    if not isinstance(order, str) or sorted(order.split()) != sorted(PLACEMENTS[0].split()):
        msg = f"placement must name each of {PLACEMENTS[0]} once, nearest first; got {order!r:.60}"
        raise WorkloadError(msg)
    far = strides(order, axes.tp, axes.cp, axes.dp, axes.pp)
    names = ("pp", "dp", "cp", "tp")
    places = np.indices(tuple(getattr(axes, name) for name in names))
    found = sum(place * far[name] for place, name in zip(places, names, strict=True))
    return tuple(np.asarray(found).ravel().tolist())


def nearest_ranks(plans: PlanArrays) -> np.ndarray:
    """Return the ranks of the nearest axis that has more than one, or 1, shape [P]."""
    found = np.ones(len(plans), dtype=np.int64)
    for place, order in enumerate(PLACEMENTS):
        mine = plans["placement"] == place
        for axis in reversed(order.split()):
            found = np.where(mine & (plans[axis] > 1), plans[axis], found)
    return found


def chunks_of(plans: PlanArrays) -> np.ndarray:
    """Return the chunks of a stage, shape [P]."""
    lines = trait(plans.whole.schedule.kind, lambda one: one.chain is Chain.LINE)
    return np.where(lines, plans["vpp"], 2)


def two_copies(plans: PlanArrays) -> np.ndarray:
    """Return whether every parameter stands on two stages, which share the microbatches, shape [P]."""
    return np.asarray(trait(plans.whole.schedule.kind, lambda one: one.two_copies))


def ends_of(plans: PlanArrays) -> tuple[np.ndarray, np.ndarray]:
    """Return whether the first, an inner and the last stage hold the embedding, and the head, [P, 3] each."""
    alone = (plans["pp"] == 1)[:, None]
    folded = np.asarray(trait(plans.whole.schedule.kind, lambda one: one.folded))[:, None]
    first, last = np.array([True, False, False]), np.array([False, False, True])
    both = two_copies(plans)[:, None] & (first | last)
    return alone | first | both, alone | np.where(folded, first, last) | both


def stage_blocks(config: TransformerConfig, plans: PlanArrays) -> np.ndarray:
    """Return the blocks of the first, the fullest inner and the last stage, shape [P, 3]."""
    first, place = plans.distinct(("pp", "vpp", "schedule"))
    found = np.zeros((len(first), 3))
    for number, row in enumerate(first):
        layers = stage_layers(config, plans.plan(int(row)))
        found[number] = layers[0], max(layers[1:-1] or layers), layers[-1]
    return found[place]


def parameters(config: TransformerConfig, plans: PlanArrays) -> tuple[np.ndarray, np.ndarray]:
    """Return the parameters of a rank of the three stages: dense ones and experts', each of shape [P, 3]."""
    first, place = plans.distinct(("tp", "ep"))
    each = np.zeros((len(first), 2))
    for number, row in enumerate(first):
        plan = plans.plan(int(row))
        held = part_parameters(config, plan, all_blocks(config, plan))
        each[number] = held.dense / config.layers, held.expert / config.layers
    blocks = stage_blocks(config, plans)
    each = each[place]
    return blocks * each[:, :1] + end_parameters(config, plans).sum(axis=2), blocks * each[:, 1:]


@dataclass(frozen=True, kw_only=True, eq=False)
class SumGroups:
    """Groups in which ranks of P plans sum gradients and gather parameters, with what they share."""

    axis: np.ndarray
    """Axis along which a group's ranks stand, shape [P]."""
    ranks: np.ndarray
    """Ranks of a group, shape [P]."""
    parameters: np.ndarray
    """Parameters of a rank of the first, an inner and the last stage, shape [P, 3]."""


def sum_groups(plans: PlanArrays, held: tuple[np.ndarray, np.ndarray]) -> tuple[SumGroups, SumGroups]:
    """Return the groups of parameters that all data-parallel ranks hold, and of experts that stand apart.

    Parameters
    ----------
    plans : PlanArrays
        The plans.
    held : tuple of numpy.ndarray
        Dense parameters and those of experts, as `parameters` gives them.
    """
    dense, expert = held
    apart = (plans["ep"] > 1)[:, None]
    axes: Any = plans.whole.axes
    alike = np.where(apart, dense, dense + expert)
    return (
        SumGroups(axis=axes.gradient_axis, ranks=axes.gradient_ranks, parameters=alike),
        SumGroups(
            axis=np.full(len(plans), Axis.REPLICAS),
            ranks=axes.expert_replicas,
            parameters=np.where(apart, expert, 0.0),
        ),
    )


def microbatch_gathers(plans: PlanArrays) -> np.ndarray:
    """Return how often every microbatch gathers parameters: forward, and again backward, shape [P]."""
    whole = plans.whole
    each = whole.sharding.gathers_every_microbatch(whole.axes)
    return np.where(each, 2 if plans.base.sharding.reshard else 1, 0)


def end_parameters(config: TransformerConfig, plans: PlanArrays) -> np.ndarray:
    """Return the parameters of a rank's embedding and head on the three stages, shape [P, 3, 2]."""
    first, place = plans.distinct(("tp", "pp", "schedule"))
    each = np.zeros((len(first), 1, 2))
    for number, row in enumerate(first):
        plan = plans.plan(int(row))
        each[number, 0] = (
            embedding_parameters(config, plan.axes).total,
            head_parameters(config, plan.axes, plan.schedule.kind).total,
        )
    return each[place] * np.stack(ends_of(plans), axis=2)


def kept_blocks(plans: PlanArrays, blocks_P3: np.ndarray) -> np.ndarray:
    """Return the blocks whose activations the three stages keep, each microbatch counted, shape [P, 3].

    Notes
    -----
    What a schedule states (`Schedule.in_flight`); interleaved ones run 2 (p - 1 - i) + (v - 1) n passes
    ahead with a first group of n (`workloads.pipeline.schedules.interleaved`), each through a chunk, here of
    mean size. Stages of ZB-V keep p microbatches, those of DualPipe p + 1, each through one of two chunks.
    """
    plan: Any = plans.by_stage
    p, m, v = plan.axes.pp, plan.microbatches, plan.schedule.vpp
    woven = int(plan.traffic.overlap_experts)
    stage = np.concatenate([np.zeros_like(p), np.minimum(1, p - 1), p - 1], axis=1)
    group = -(-m // np.maximum(1, m // p))
    chunked = np.minimum(2 * (p - 1 - stage) + (v - 1) * group + 1, m * v) * blocks_P3 / v
    kept = trait(plan.schedule.kind, lambda one: _in_flight(one, p, m, stage))
    kept = np.where(v > 1, chunked, smaller(kept, m) * blocks_P3)
    return np.minimum(kept + np.where(two_copies(plans)[:, None], 0, woven), m * blocks_P3)


def _in_flight(schedule: Schedule, stages: Any, microbatches: Any, stage: Any) -> np.ndarray:  # noqa: ANN401
    """Return the microbatches that stages keep, each through all of a stage's chunks."""
    match schedule.chain:
        case Chain.FOLDED:
            kept = stages
        case Chain.BOTH_WAYS:
            kept = (stages + 1) / 2
        case _:
            kept = schedule.in_flight(stages, microbatches, stage)  # type: ignore[operator]
    return np.broadcast_to(kept, stage.shape)


def memory_bytes(config: TransformerConfig, plans: PlanArrays) -> np.ndarray:
    """Return the bytes that the fullest rank of each plan needs, shape [P]; of rows that break no rule.

    Notes
    -----
    `workloads.step.memory.memory_by_kind` of the first, the second and the last stage; blocks of a mixture
    with dense ones are taken at their mean.
    """
    dense, expert = parameters(config, plans)
    held: Any = RankParameters(dense=dense, expert=expert)  # type: ignore[arg-type]
    first, place = plans.distinct(("tp", "ep"))
    rows = [plans.plan(int(row)) for row in first]
    each = np.array([optimizer_bytes(config, row.axes, row.precision) for row in rows])[place]
    states = state_bytes(plans.by_stage, held, each[:, None])
    first, place = plans.distinct(SHAPE)
    shares = [plans.plan(int(row)).share for row in first]
    kept = [chunk_activation_bytes(config, share, all_blocks(config, share)) for share in shares]
    block = np.array(kept)[place] / config.layers
    activations = kept_blocks(plans, stage_blocks(config, plans)) * block[:, None]
    return (sum(states.values()) + activations + _buffers(config, plans)).max(axis=1)


def _buffers(config: TransformerConfig, plans: PlanArrays) -> np.ndarray:
    """Return `workloads.step.memory.buffer_bytes` of the three stages, shape [P, 3]."""
    staged = plans["pp"] > 1
    columns = dict(plans.columns) | {
        "staged": staged.astype(np.int32),
        "ends": ends_of(plans)[1] @ (1, 2, 4),  # stages that hold a head
        "moves": (plans.gradient_ranks > 1).astype(np.int32),
        "gathers": np.where(plans["zero"] > 1, plans["zero"], 0),  # less is gathered or kept nowhere
    }
    known = replace(plans, columns=columns)
    first, place = known.distinct((*SHAPE, "staged"))
    passes = np.array([pass_bytes(config, plans.plan(int(row))) for row in first])[place]
    first, place = known.distinct(("tp", "cp", "micro_batch"))
    heads = np.array([head_bytes(config, plans.plan(int(row))) for row in first])[place]
    shares = ("cp", "dp") if plans.base.traffic.uses_servers else ()
    first, place = known.distinct(("tp", "ep", "gathers", "staged", "ends", "moves", *shares))
    found = np.zeros((len(first), 3))
    for number, row in enumerate(first):
        stages = 3 if staged[row] and config.layers > 2 else 1 + int(staged[row])
        kind = SCHEDULES[int(plans["schedule"][row])]
        kind = ONE_FORWARD_ONE_BACKWARD if kind.chain is Chain.LINE else kind
        plan = plans.plan(int(row), pp=stages, vpp=1, schedule=kind)
        held = [whole_stage(config, plan, stage) for stage in range(stages)]
        found[number] = [parameter_bytes(config, plan, held[min(stage, stages - 1)]) for stage in range(3)]
    return found[place] + passes[:, None] + ends_of(plans)[1] * heads[:, None]
