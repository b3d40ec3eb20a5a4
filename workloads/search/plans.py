"""Arrays of plans: the grid of a joint search, and rules, memory and work of all its rows at once.

Arrays have a row for each of P plans. A stage array has shape [P, 3]: three stages stand for all of a
pipeline, the first, the fullest inner one and the last. Rules and memory are the formulas for one plan
(`workloads.plan.rules`, `workloads.step.memory`) over arrays. Work and collectives of a microbatch depend on
few columns (`SHAPE`), so that they are found once for each distinct shape (`ShapeWork`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

import numpy as np

from simulator.amounts import smaller
from simulator.errors import WorkloadError
from simulator.layout import Axis
from simulator.node import Node
from simulator.operators import Collective, Overlapped
from workloads.layers.transformer import Item
from workloads.models.architecture import TransformerConfig, divisors
from workloads.pipeline.schedule import SCHEDULES, Chain, Pass, Schedule
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

T = TypeVar("T")

SHAPE = ("tp", "cp", "ep", "micro_batch", "recompute")
"""Columns on which a rank's share of a microbatch depends, and the activations that it keeps."""
WORK = (*SHAPE, "overlap_tensor")
"""Columns on which its operators depend."""
DIRECTIONS = (Pass.FORWARD, Pass.BACKWARD, Pass.INPUT, Pass.WEIGHT)
"""Kinds of passes that are priced: forward, whole backward, and the two parts of a split backward pass."""


ESTIMATED_SCHEDULES = tuple(one for one in SCHEDULES.values() if one.closed_form is not None)
"""Schedules with a closed form of the step; an array holds their place in this tuple."""
RECOMPUTES = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
"""Kinds of recomputation; an array holds their place in this tuple."""
CHOSEN: Mapping[str, tuple[Any, ...]] = {"schedule": ESTIMATED_SCHEDULES, "recompute": RECOMPUTES}
"""Values of the columns that hold places in a tuple."""
SWITCHES = ("overlap_tensor",)
"""Columns that hold 1 for true and 0 for false."""
PLACEMENTS = ("tp cp dp pp", "tp cp pp dp", "tp dp cp pp", "cp tp dp pp", "dp tp cp pp")
"""Orders of axes from the nearest ranks to the farthest: the first one's are neighbours in a node."""

DEGREES = ("tp", "cp", "pp", "dp", "ep")
"""Degrees of parallelism, the first columns."""
COLUMNS = (
    *DEGREES,
    "micro_batch",
    "vpp",
    "schedule",
    "recompute",
    "zero",
    "overlap_tensor",
    "placement",
)
"""Columns of the arrays: the choices of a plan that a search varies."""


def column_of(plan: Plan, name: str) -> int:
    """Return the number that stands for a plan in a column (one of `COLUMNS` other than the placement)."""
    value = plan.value(name)
    return CHOSEN[name].index(value) if name in CHOSEN else int(value)


CHOICES: Mapping[str, tuple[int, ...]] = {
    "micro_batch": (1, 2, 4, 8),
    "vpp": (1, 2, 3, 4, 6),
    "schedule": tuple(range(len(ESTIMATED_SCHEDULES))),
    "recompute": (RECOMPUTES.index(Recompute.NONE), RECOMPUTES.index(Recompute.FULL)),
    "zero": (0, 1, 2, 3),
    "overlap_tensor": (0, 1),
    "placement": (0, 1, 2),
}
"""Values that a search tries by default, as numbers of their columns."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanArrays:
    """P plans of one model, which differ in the choices of `COLUMNS`."""

    base: Plan
    """Plan whose other choices all rows share, the global batch among them."""
    columns: Mapping[str, np.ndarray]
    """Numbers of every column (`COLUMNS`), shape [P] each."""

    def __len__(self) -> int:
        return len(self.columns["tp"])

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def taken(self, which: np.ndarray) -> PlanArrays:
        """Return the rows of a mask of shape [P], or of row numbers."""
        return replace(self, columns={name: column[which] for name, column in self.columns.items()})

    @cached_property
    def array_plan(self) -> Plan:
        """All rows as one plan whose counts and choices are arrays of shape [P]."""
        return self._as_plan(self.columns)

    @cached_property
    def stage_plan(self) -> Plan:
        """The same with arrays of shape [P, 1], to be combined with stage arrays."""
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
        return cast("np.ndarray", self.array_plan.microbatches)

    @cached_property
    def gradient_ranks(self) -> np.ndarray:
        """Ranks over which gradients are summed, shape [P]."""
        return cast("np.ndarray", self.array_plan.axes.gradient_ranks)

    def plan(self, row: int, **changes: Any) -> Plan:  # noqa: ANN401 - any choice of a plan
        """Return one row as a plan, with some of its choices changed."""
        values: dict[str, Any] = {name: int(self[name][row]) for name in COLUMNS if name != "placement"}
        for name, members in CHOSEN.items():
            values[name] = members[values[name]]
        for name in SWITCHES:
            values[name] = bool(values[name])
        return self.base.one_of_many(values | changes)

    def placement(self, row: int) -> str:
        """Return the order of axes of a row (one of `PLACEMENTS`)."""
        return PLACEMENTS[int(self["placement"][row])]

    def distinct(self, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Group rows that agree in some columns, as `distinct` does."""
        return distinct([self[name] for name in names])


def distinct(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Group rows that agree in all of some columns of whole numbers, shape [P] each.

    Returns
    -------
    tuple of numpy.ndarray
        First row of each of the G groups, shape [G], and each row's group, shape [P]. A quantity found for
        the first rows, shape [G], is that of all plans under the second as an index.
    """
    key = np.zeros(columns[0].shape, dtype=np.int64)
    for column in columns:
        key = key * (int(column.max(initial=0)) + 1) + column.astype(np.int64)
    _, first, group_of = np.unique(key, return_index=True, return_inverse=True)
    return first, group_of.ravel()


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
        Choices that all plans share.
    accelerators : int
        Accelerators that each plan takes.
    experts : int
        Experts of the model; their divisors are degrees of expert parallelism.
    choices : mapping, optional
        Values of a column that replace those of `CHOICES`; values of a degree (tp, cp, pp, dp, ep) leave out
        all others.

    Raises
    ------
    WorkloadError
        If no degrees that are allowed multiply to the accelerators.
    """
    wanted = dict(CHOICES) | dict(choices or {})
    pinned = [(place, wanted[name]) for place, name in enumerate(DEGREES) if name in wanted]
    degrees = [
        one
        for one in _degrees(accelerators, experts)
        if all(one[place] in values for place, values in pinned)
    ]
    if not degrees:
        fixed = ", ".join(f"{DEGREES[place]}={' or '.join(map(str, values))}" for place, values in pinned)
        also = f" with ep dividing {experts} experts" if "ep" in wanted else ""
        msg = (
            f"no plan with {fixed} takes tp x cp x pp x dp = {accelerators} accelerators{also}; leave one of "
            "them out, or try another number of accelerators"
        )
        raise WorkloadError(msg)
    rest = list(itertools.product(*(wanted[name] for name in COLUMNS[len(DEGREES) :])))
    left, right = np.array(degrees, dtype=np.int32), np.array(rest, dtype=np.int32)
    rows = np.hstack([np.repeat(left, len(right), axis=0), np.tile(right, (len(left), 1))])
    return PlanArrays(base=base, columns={name: rows[:, place] for place, name in enumerate(COLUMNS)})


def _degrees(accelerators: int, experts: int) -> Iterator[tuple[int, ...]]:
    """Yield all values of `DEGREES` that take the accelerators."""
    for tp in divisors(accelerators):
        for cp in divisors(accelerators // tp):
            for pp in divisors(accelerators // (tp * cp)):
                yield from ((tp, cp, pp, accelerators // (tp * cp * pp), ep) for ep in divisors(experts))


SAME = "the same as another plan"
"""Reason for which rows are left out that describe the same plan as another row."""


def broken_rules(config: TransformerConfig, plans: PlanArrays) -> dict[str, np.ndarray]:
    """Return the rows that break each rule, shape [P], by subject of the rule.

    Notes
    -----
    The rules are those of `workloads.plan.rules` and two of the search. A row is left out if it describes the
    same plan as another: a schedule without stages, sharding over one rank, an order of axes that differs
    only in axes of one rank. So is a step of more tasks than are built.
    """
    tasks = task_count(config, plans.array_plan, plans.base.steps_in_run)
    by_subject = broken_by_subject(config, plans.array_plan, len(plans))
    always_told = {subject: by_subject.pop(subject) for subject in SUBJECTS} | {
        SAME: _repeats_another(plans),
        "more tasks than a step graph holds": np.asarray(tasks > MOST_TASKS),
    }
    left = ~np.logical_or.reduce(list(always_told.values()))
    return always_told | {subject: broken for subject, broken in by_subject.items() if np.any(broken & left)}


def _repeats_another(plans: PlanArrays) -> np.ndarray:
    """Return whether a row describes the same plan as a row of other numbers, shape [P]."""
    repeats = (plans["pp"] == 1) & (plans["schedule"] != 0)
    repeats |= (plans.gradient_ranks == 1) & (plans["zero"] != 0)
    for number, order in enumerate(PLACEMENTS):
        for earlier in PLACEMENTS[:number]:
            repeats |= (plans["placement"] == number) & _same_order(plans, order.split(), earlier.split())
    return repeats


def _same_order(plans: PlanArrays, order: list[str], other: list[str]) -> np.ndarray:
    """Return whether two orders of axes place ranks alike, for they differ in axes of one rank only, [P]."""
    same = np.ones(len(plans), dtype=bool)
    for first, second in itertools.combinations(order, 2):
        if other.index(first) > other.index(second):
            same &= (plans[first] == 1) | (plans[second] == 1)
    return same


def strides(order: str, axes: Axes) -> dict[str, int]:
    """Return the distance between neighbours along each axis, in endpoints."""
    found, stride = {}, 1
    for axis in order.split():
        found[axis] = stride
        stride *= getattr(axes, axis)
    return found


def endpoints_of(axes: Axes, order: str) -> tuple[int, ...]:
    """Return the endpoint of every rank where axes stand in an order, nearest first.

    Ranks count up along tp first, then cp, dp and pp.

    Raises
    ------
    WorkloadError
        If the order does not name every axis once.
    """
    if not isinstance(order, str) or sorted(order.split()) != sorted(PLACEMENTS[0].split()):
        msg = f"placement must name each of {PLACEMENTS[0]} once, nearest first; got {order!r:.60}"
        raise WorkloadError(msg)
    stride = strides(order, axes)
    names = ("pp", "dp", "cp", "tp")
    indices = np.indices(tuple(getattr(axes, name) for name in names))
    endpoints = sum(index * stride[name] for index, name in zip(indices, names, strict=True))
    return tuple(np.asarray(endpoints).ravel().tolist())


def nearest_ranks(plans: PlanArrays) -> np.ndarray:
    """Return the ranks of the nearest axis that has more than one, or 1, shape [P]."""
    ranks = np.ones(len(plans), dtype=np.int64)
    for number, order in enumerate(PLACEMENTS):
        rows = plans["placement"] == number
        for axis in reversed(order.split()):
            ranks = np.where(rows & (plans[axis] > 1), plans[axis], ranks)
    return ranks


def chunks_of(plans: PlanArrays) -> np.ndarray:
    """Return the chunks of a stage, shape [P]."""
    in_line = trait(plans.array_plan.schedule.kind, lambda kind: kind.chain is Chain.LINE)
    return np.where(in_line, plans["vpp"], 2)


def two_copies(plans: PlanArrays) -> np.ndarray:
    """Return whether every parameter stands on two stages, which share the microbatches, shape [P]."""
    return np.asarray(trait(plans.array_plan.schedule.kind, lambda kind: kind.two_copies))


def ends_of(plans: PlanArrays) -> tuple[np.ndarray, np.ndarray]:
    """Return whether the three stages hold the embedding, and whether the head, shape [P, 3] each."""
    alone = (plans["pp"] == 1)[:, None]
    folded = np.asarray(trait(plans.array_plan.schedule.kind, lambda kind: kind.folded))[:, None]
    first, last = np.array([True, False, False]), np.array([False, False, True])
    both = two_copies(plans)[:, None] & (first | last)
    return alone | first | both, alone | np.where(folded, first, last) | both


def stage_blocks(config: TransformerConfig, plans: PlanArrays) -> np.ndarray:
    """Return the blocks of the first, the fullest inner and the last stage, shape [P, 3]."""
    first, group_of = plans.distinct(("pp", "vpp", "schedule"))
    blocks = np.zeros((len(first), 3))
    for group, row in enumerate(first):
        layers = stage_layers(config, plans.plan(int(row)))
        blocks[group] = layers[0], max(layers[1:-1] or layers), layers[-1]
    return blocks[group_of]


def parameters(config: TransformerConfig, plans: PlanArrays) -> tuple[np.ndarray, np.ndarray]:
    """Return the dense parameters of a rank of the three stages, and those of experts, shape [P, 3] each."""
    first, group_of = plans.distinct(("tp", "ep"))
    per_block = np.zeros((len(first), 2))
    for group, row in enumerate(first):
        plan = plans.plan(int(row))
        held = part_parameters(config, plan, all_blocks(config, plan))
        per_block[group] = held.dense / config.layers, held.expert / config.layers
    blocks, per_block = stage_blocks(config, plans), per_block[group_of]
    dense = blocks * per_block[:, :1] + end_parameters(config, plans).sum(axis=2)
    return dense, blocks * per_block[:, 1:]


@dataclass(frozen=True, kw_only=True, eq=False)
class SumGroups:
    """Groups of ranks of P plans that sum the gradients of one kind of parameters, and gather these."""

    axis: np.ndarray
    """Axis along which a group's ranks stand, shape [P]."""
    ranks: np.ndarray
    """Ranks of a group, shape [P]."""
    parameters: np.ndarray
    """Parameters of this kind on a rank of the three stages, shape [P, 3]."""


def sum_groups(plans: PlanArrays, held: tuple[np.ndarray, np.ndarray]) -> tuple[SumGroups, SumGroups]:
    """Return the groups of parameters that all data-parallel ranks hold, and those of experts' parameters.

    Parameters
    ----------
    plans : PlanArrays
        The plans.
    held : tuple of numpy.ndarray
        Dense parameters and those of experts, as `parameters` gives them.
    """
    dense, expert = held
    apart = (plans["ep"] > 1)[:, None]
    axes: Any = plans.array_plan.axes
    on_all = np.where(apart, dense, dense + expert)
    return (
        SumGroups(axis=axes.gradient_axis, ranks=axes.gradient_ranks, parameters=on_all),
        SumGroups(
            axis=np.full(len(plans), Axis.REPLICAS),
            ranks=axes.expert_replicas,
            parameters=np.where(apart, expert, 0.0),
        ),
    )


def microbatch_gathers(plans: PlanArrays) -> np.ndarray:
    """Return the gathers of parameters by a microbatch: 0, 1 (forward) or 2 (also backward), shape [P]."""
    plan = plans.array_plan
    gathers = plan.sharding.gathers_every_microbatch(plan.axes)
    return np.where(gathers, 2 if plans.base.sharding.reshard else 1, 0)


def end_parameters(config: TransformerConfig, plans: PlanArrays) -> np.ndarray:
    """Return the parameters of a rank's embedding and head on the three stages, shape [P, 3, 2]."""
    first, group_of = plans.distinct(("tp", "pp", "schedule"))
    counts = np.zeros((len(first), 1, 2))
    for group, row in enumerate(first):
        plan = plans.plan(int(row))
        counts[group, 0] = (
            embedding_parameters(config, plan.axes).total,
            head_parameters(config, plan.axes, plan.schedule.kind).total,
        )
    return counts[group_of] * np.stack(ends_of(plans), axis=2)


def kept_blocks(plans: PlanArrays, blocks_P3: np.ndarray) -> np.ndarray:
    """Return the blocks of the three stages times the microbatches whose activations they keep, shape [P, 3].

    Notes
    -----
    Microbatches are those of the schedule (`Schedule.in_flight`). An interleaved one with v chunks runs 2 (p
    - 1 - i) + (v - 1) n passes ahead on stage i, with a first group of n microbatches
    (`workloads.pipeline.schedules.interleaved`); each keeps a chunk, here one of mean size. Stages of ZB-V
    keep p microbatches, those of DualPipe p + 1, each through one of two chunks. Overlapped exchanges of
    experts keep one block more.
    """
    plan: Any = plans.stage_plan
    p, m, v = plan.axes.pp, plan.microbatches, plan.schedule.vpp
    stage = np.concatenate([np.zeros_like(p), np.minimum(1, p - 1), p - 1], axis=1)
    group = -(-m // np.maximum(1, m // p))
    interleaved = np.minimum(2 * (p - 1 - stage) + (v - 1) * group + 1, m * v) * blocks_P3 / v
    microbatches = trait(plan.schedule.kind, lambda kind: _in_flight(kind, p, m, stage))
    kept = np.where(v > 1, interleaved, smaller(microbatches, m) * blocks_P3)
    more = np.where(two_copies(plans)[:, None], 0, int(plan.traffic.overlap_experts))
    return np.minimum(kept + more, m * blocks_P3)


def _in_flight(schedule: Schedule, stages: Any, microbatches: Any, stage: Any) -> np.ndarray:  # noqa: ANN401
    """Return the microbatches whose activations a stage keeps, as passes through all of its chunks."""
    match schedule.chain:
        case Chain.FOLDED:
            kept = stages
        case Chain.BOTH_WAYS:
            kept = (stages + 1) / 2
        case _:
            kept = schedule.in_flight(stages, microbatches, stage)  # type: ignore[operator]
    return np.broadcast_to(kept, stage.shape)


def memory_bytes(config: TransformerConfig, plans: PlanArrays) -> np.ndarray:
    """Return the bytes that the fullest rank of each plan needs, shape [P]; rows must break no rule.

    Notes
    -----
    `workloads.step.memory.memory_by_kind` of the first, the second and the last stage; blocks of a mixture
    with dense ones are taken at their mean.
    """
    dense, expert = parameters(config, plans)
    held: Any = RankParameters(dense=dense, expert=expert)  # type: ignore[arg-type]
    first, group_of = plans.distinct(("tp", "ep"))
    rows = [plans.plan(int(row)) for row in first]
    optimizer = np.array([optimizer_bytes(config, row.axes, row.precision) for row in rows])[group_of]
    states = state_bytes(plans.stage_plan, held, optimizer[:, None])
    first, group_of = plans.distinct(SHAPE)
    shares = [plans.plan(int(row)).share for row in first]
    kept = [chunk_activation_bytes(config, share, all_blocks(config, share)) for share in shares]
    per_block = np.array(kept)[group_of] / config.layers
    activations = kept_blocks(plans, stage_blocks(config, plans)) * per_block[:, None]
    return (sum(states.values()) + activations + _buffer_bytes(config, plans)).max(axis=1)


def _buffer_bytes(config: TransformerConfig, plans: PlanArrays) -> np.ndarray:
    """Return `workloads.step.memory.buffer_bytes` of the three stages, shape [P, 3].

    Parameters in transit depend on few facts of a row, which are added as columns to group rows by; they are
    found on a pipeline of as few stages as have the same ends.
    """
    heads_on = ends_of(plans)[1]
    known = replace(
        plans,
        columns=dict(plans.columns)
        | {
            "has_stages": (plans["pp"] > 1).astype(np.int32),
            "heads_on": heads_on @ (1, 2, 4),  # one bit for each of the three stages
            "sums": (plans.gradient_ranks > 1).astype(np.int32),
            "sharded": np.where(plans["zero"] > 1, plans["zero"], 0),  # below, no buffer depends on it
        },
    )
    first, group_of = known.distinct((*SHAPE, "has_stages"))
    in_passes = np.array([pass_bytes(config, plans.plan(int(row))) for row in first])[group_of]
    first, group_of = known.distinct(("tp", "cp", "micro_batch"))
    in_head = np.array([head_bytes(config, plans.plan(int(row))) for row in first])[group_of]
    shares = ("cp", "dp") if plans.base.traffic.uses_servers else ()
    first, group_of = known.distinct(("tp", "ep", "sharded", "has_stages", "heads_on", "sums", *shares))
    in_transit = np.zeros((len(first), 3))
    for group, row in enumerate(first):
        stages = 1 if plans["pp"][row] == 1 else 3 if config.layers > 2 else 2
        kind = ESTIMATED_SCHEDULES[int(plans["schedule"][row])]
        kind = ONE_FORWARD_ONE_BACKWARD if kind.chain is Chain.LINE else kind
        plan = plans.plan(int(row), pp=stages, vpp=1, schedule=kind)
        parts = [whole_stage(config, plan, min(stage, stages - 1)) for stage in range(3)]
        in_transit[group] = [parameter_bytes(config, plan, part) for part in parts]
    return in_transit[group_of] + in_passes[:, None] + heads_on * in_head[:, None]


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """A collective of a pass."""

    collective: Collective
    """The collective."""
    times: float
    """Its runs in a pass; of a mean block not always whole."""
    hidden_s: float = 0.0
    """Time of the product that it travels beside; 0 where the pass waits for all of it."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Operators of one part of a stage in one kind of pass, with their times on an accelerator."""

    time_s: float
    """Products and element-wise work, without `ring_work_s`."""
    host_s: float
    """Launches of that work, and of collectives."""
    busy_s: float
    """Time in which units work, `ring_work_s` included."""
    energy_j: float
    """Dynamic energy of one rank."""
    transfers: tuple[Transfer, ...]
    """Collectives, those that nothing hides first."""
    ring_transfers: tuple[Transfer, ...]
    """Collectives on the ring of context ranks, which bring other ranks' keys."""
    ring_work_s: float
    """Attention to other ranks' keys, which hides those, or its launches if they take longer."""
    between_exchanges_s: float
    """Work between an uneven exchange of experts and its way back, while circuits keep."""
    axes: tuple[str, ...]
    """Axes of all collectives in the order in which they run, the ring of context ranks first."""

    @property
    def all_transfers(self) -> tuple[Transfer, ...]:
        """Collectives of the pass, those on the ring last."""
        return (*self.transfers, *self.ring_transfers)


class ShapeWork:
    """Work of a mean block, the embedding and the head on one rank of a shape, by kind of pass.

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
        blocks, block = all_blocks(config, share), StagePart(layers=1)
        embedding, head = StagePart(layers=0, embedding=True), StagePart(layers=0, head=True)
        self.block: dict[Pass, Work] = {}
        self.embedding: dict[Pass, Work] = {}
        self.head: dict[Pass, Work] = {}
        self.block_run: dict[Pass, tuple[Collective, ...]] = {}
        """Collectives of one block with experts, in the order in which they ask for circuits."""
        self.end_runs: dict[Pass, tuple[tuple[Collective, ...], tuple[Collective, ...]]] = {}
        """The same of the embedding and of the head."""
        for direction in DIRECTIONS:
            attention, ring = passes.ring(blocks, direction)
            self.block[direction] = _work(
                passes.operators(blocks, direction),
                node,
                attention=attention,
                ring=ring,
                blocks=config.layers,
            )
            first, last = passes.operators(embedding, direction), passes.operators(head, direction)
            self.embedding[direction], self.head[direction] = _work(first, node), _work(last, node)
            self.block_run[direction] = (
                *passes.ring(block, direction)[1],
                *_collectives(passes.operators(block, direction)),
            )
            self.end_runs[direction] = _collectives(first), _collectives(last)


def _collectives(items: tuple[Item, ...]) -> tuple[Collective, ...]:
    """Return the collectives of a run in order, repeated ones as often as they run."""
    return tuple(
        one.collective if isinstance(one, Overlapped) else one
        for one, count in items
        for _ in range(count)
        if isinstance(one, Collective | Overlapped)
    )


def _work(
    items: tuple[Item, ...],
    node: Node,
    *,
    attention: tuple[Item, ...] = (),
    ring: tuple[Collective, ...] = (),
    blocks: int = 1,
) -> Work:
    """Return the work of a run of equal blocks, divided by their number.

    Parameters
    ----------
    items : tuple of Item
        Operators of the whole run.
    node : Node
        The accelerator.
    attention : tuple of Item
        Attention of the whole run to other ranks' keys.
    ring : tuple of Collective
        Collectives that bring those to one block.
    blocks : int
        Blocks of the run.
    """
    share = 1.0 / blocks
    time_s = host_s = energy_j = between_s = 0.0
    waited, hidden = [], []
    axes = [one.axis for one in ring]
    between = False  # an uneven exchange and its way back
    for item, count in items:
        if isinstance(item, Collective):
            axes.append(item.axis)
            waited.append(Transfer(collective=item, times=count * share))
            host_s += node.collective_issue_s * count
            between ^= item.skew is not None
            continue
        if isinstance(item, Overlapped):
            cost, times = node.cost(item.product), float(count * item.pieces)
            axes.append(item.collective.axis)
            hidden_s = cost.time_s * item.beside
            hidden.append(Transfer(collective=item.collective, times=count * share, hidden_s=hidden_s))
            host_s -= (item.pieces - 1) * count * cost.host_s  # pieces share a launch
        else:
            cost, times = node.cost(item), float(count)
        time_s += cost.time_s * times
        between_s += cost.time_s * times * between
        host_s += cost.host_s * times
        energy_j += sum(cost.energy_j.values()) * times
    ring_work_s = ring_host_s = 0.0
    for item, count in attention:
        cost = node.cost(item)  # type: ignore[arg-type]
        ring_work_s += cost.time_s * count
        ring_host_s += cost.host_s * count  # a run of its own, which no other launches can hide
        energy_j += sum(cost.energy_j.values()) * count
    return Work(
        time_s=time_s * share,
        host_s=host_s * share,
        busy_s=(time_s + ring_work_s) * share,
        energy_j=energy_j * share,
        transfers=(*waited, *hidden),
        ring_transfers=tuple(Transfer(collective=one, times=blocks * share) for one in ring),
        ring_work_s=max(ring_work_s, ring_host_s) * share,
        between_exchanges_s=between_s * share,
        axes=tuple(axes),
    )


@dataclass(frozen=True, kw_only=True)
class PartCost(Generic[T]):
    """Time and energy of a part of a stage in one kind of pass: numbers, or columns of shape [P]."""

    time_s: T
    """Work and the traffic that it waits for, without launches."""
    host_s: T
    """Launches, and on the ring of context ranks the longer of work and traffic."""
    busy_s: T
    """Time in which units work."""
    compute_j: T
    """Dynamic energy of one rank's work."""
    network_j: T
    """Dynamic energy of the transfers of all ranks of a class."""
    waited_s: T
    """Traffic that the pass waits for."""
    tp_s: T
    """Part of that between tensor ranks."""
    cp_s: T
    """Part of that between context ranks, without their ring."""
    ep_s: T
    """Part of that between expert ranks."""
    ring_s: T
    """Traffic on the ring of context ranks, hidden or not."""
    ring_work_s: T
    """Work that may hide it."""
    between_exchanges_s: T
    """Work between an uneven exchange of experts and its way back."""


def part_cost(work: Work, price: Callable[[Collective], tuple[float, float]]) -> PartCost[float]:
    """Return the cost of a part whose collectives take the times of a fabric.

    Parameters
    ----------
    work : Work
        The part.
    price : callable
        Gives time in s and dynamic energy in J of a collective.
    """
    network_j = 0.0
    waits_s = {"tp": 0.0, "cp": 0.0, "ep": 0.0}
    for transfer in work.transfers:
        time_s, energy_j = price(transfer.collective)
        waits_s[transfer.collective.axis] += max(0.0, time_s - transfer.hidden_s) * transfer.times
        network_j += energy_j * transfer.times
    ring_s = 0.0
    for transfer in work.ring_transfers:
        time_s, energy_j = price(transfer.collective)
        ring_s += time_s * transfer.times
        network_j += energy_j * transfer.times
    waited_s = sum(waits_s.values()) + max(0.0, ring_s - work.ring_work_s)
    return PartCost(
        time_s=work.time_s + work.ring_work_s + waited_s,
        host_s=work.host_s + max(work.ring_work_s, ring_s),
        busy_s=work.busy_s,
        compute_j=work.energy_j,
        network_j=network_j,
        waited_s=waited_s,
        tp_s=waits_s["tp"],
        cp_s=waits_s["cp"],
        ep_s=waits_s["ep"],
        ring_s=ring_s,
        ring_work_s=work.ring_work_s,
        between_exchanges_s=work.between_exchanges_s,
    )
