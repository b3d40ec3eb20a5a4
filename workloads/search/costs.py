"""Steps of arrays of plans in the pieces that `simulator.step_estimate` puts together.

A `PlanPricer` finds for P plans on one fabric: the time of every kind of pass through the three stages that
stand for all, of gathers, sums, sends and the update, and the energy of a step. Rows that agree in a shape of
work (`workloads.search.plans.ShapeWork`) and a layout of ranks are priced once. Each collective is a line
over its payload (`simulator.collectives.lines`). Beside the pieces stand the facts by which
`workloads.search.contention` and `workloads.search.circuits` make them longer: which traffic shares links,
and which turns circuits.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from simulator.collectives.algorithms import vector_bytes
from simulator.collectives.flow_groups import main_kind
from simulator.collectives.lines import (
    AxisTraffic,
    CollectiveLines,
    LinePrices,
    StandingLines,
)
from simulator.fabric import Fabric
from simulator.layout import Axis, RankLayout, neighbours, placed
from simulator.node import Node
from simulator.operators import Collective, CollectiveKind, Elementwise, Skew
from simulator.results import outside_bytes
from simulator.step_estimate import SPLIT, StepArrays
from workloads.models.architecture import TransformerConfig
from workloads.pipeline.schedule import Chain, Pass
from workloads.plan.plan import Plan
from workloads.search.circuits import SEND, CircuitWalk, PlanCircuits, PlanTurns
from workloads.search.contention import (
    AXES,
    BOTH,
    PassTraffic,
    Slowdowns,
    mixed,
    slowdowns,
)
from workloads.search.plans import (
    DIRECTIONS,
    ESTIMATED_SCHEDULES,
    PLACEMENTS,
    WORK,
    PartCost,
    PlanArrays,
    ShapeWork,
    Work,
    chunks_of,
    distinct,
    end_parameters,
    endpoints_of,
    ends_of,
    microbatch_gathers,
    parameters,
    part_cost,
    stage_blocks,
    sum_groups,
    two_copies,
)
from workloads.step.sharding import (
    RankParameters,
    optimizer_share,
    part_parameters,
    pieces_of,
    stage_layers,
    update_work,
    whole_stage,
)
from workloads.step.stage import stream_share
from workloads.step.traffic import Graph, ShardedSums, gathering, gradient_sums, group_sums

GROUPS_PLAYED = 3
"""Groups of microbatches after which the time of a group repeats; the second one's does so already where
chunks differ by a block."""


def interleaved_periods(
    config: TransformerConfig,
    plans: PlanArrays,
    *,
    blocks: np.ndarray,
    forward_s: np.ndarray,
    backward_s: np.ndarray,
    send_s: np.ndarray,
) -> np.ndarray:
    """Return the time between two microbatches of interleaved plans in the steady state, in s, shape [P].

    Parameters
    ----------
    config, plans : TransformerConfig, PlanArrays
        The model and its plans.
    blocks : numpy.ndarray
        Blocks of the first, the fullest inner and the last stage, shape [P, 3].
    forward_s, backward_s : numpy.ndarray
        Passes of a microbatch through those stages, shape [P, 3].
    send_s : numpy.ndarray
        Send from a stage to the next, shape [P].

    Returns
    -------
    numpy.ndarray
        0 without interleaving, and where microbatches are fewer than stages.

    Notes
    -----
    Stages alternate between a forward pass of one chunk and a backward pass of another
    (`workloads.pipeline.schedules.interleaved`). A pass waits for the one before it on its stage, and for its
    input from the neighbour one turn earlier (from the last stage, where it enters the next chunk). That is a
    max-plus linear system; its period is the time of one group of microbatches after a few others. Where
    chunks are unequal, long passes meet short ones of neighbours, and the period is longer than the passes of
    any stage.

    References
    ----------
    Baccelli et al., "Synchronization and linearity" (1992), theorem 3.28.
    """
    period_s = np.zeros(len(plans))
    m, p, v = plans.microbatches, plans["pp"], plans["vpp"]
    interleaved = (v > 1) & (p > 1) & (m >= p)
    group = np.where(interleaved, -(-m // np.maximum(1, m // np.maximum(p, 1))), 0)
    sizes = zip(p[interleaved].tolist(), v[interleaved].tolist(), group[interleaved].tolist(), strict=True)
    for stages, chunks, group_size in sorted(set(sizes)):
        rows = np.flatnonzero(interleaved & (p == stages) & (v == chunks) & (group == group_size))
        layers = plans.base.schedule.blocks(config.layers, stages * chunks, config.predicted_tokens)
        chunk_blocks = np.array(layers, dtype=float).reshape(chunks, stages)
        forward, backward = (
            _chunk_times(chunk_blocks, blocks[rows], times_s[rows]) for times_s in (forward_s, backward_s)
        )
        period_s[rows] = _period(forward, backward, send_s[rows], group_size)
    return period_s


def _chunk_times(chunk_blocks: np.ndarray, blocks: np.ndarray, stage_s: np.ndarray) -> np.ndarray:
    """Return passes through all chunks, shape [chunks, stages, P], from those through three stages, [P, 3].

    A block takes as long as on the fullest stage; what the first and the last stage take longer goes to the
    chunk with the embedding and to that with the head.
    """
    block_s = stage_s[:, 1] / np.maximum(blocks[:, 1], 1.0)
    times_s = chunk_blocks[:, :, None] * block_s
    times_s[0, 0] += np.maximum(0.0, stage_s[:, 0] - blocks[:, 0] * block_s)
    times_s[-1, -1] += np.maximum(0.0, stage_s[:, 2] - blocks[:, 2] * block_s)
    return times_s


def _period(forward_s: np.ndarray, backward_s: np.ndarray, send_s: np.ndarray, group_size: int) -> np.ndarray:
    """Return the time of a group of microbatches in the steady state, over its size, shape [P].

    Parameters
    ----------
    forward_s, backward_s : numpy.ndarray
        Passes through all chunks, shape [chunks, stages, P].
    send_s : numpy.ndarray
        Send from a stage to the next, shape [P].
    group_size : int
        Microbatches that go through one chunk after the other.

    Notes
    -----
    In a turn every stage runs one forward and one backward pass. The state is when those of the last turns
    ended: the turn before for neighbours, and as many turns back as a microbatch takes from the last stage to
    the first one's next chunk.
    """
    chunks, stages, plans = forward_s.shape
    stage = np.arange(stages)
    behind = stages - 1 - stage
    turns_back = group_size - stages + 1
    group_turns = chunks * group_size
    forward_ends = np.zeros((turns_back, stages, plans))  # of the last turns, the latest last
    backward_ends = np.zeros((turns_back, stages, plans))
    group_ends = []
    for turn in range(GROUPS_PLAYED * group_turns):
        ahead = (turn + behind) // group_size + chunks - 1
        forward_chunk = ahead % chunks
        backward_chunk = chunks - 1 - (turn - behind) // group_size % chunks
        forward_input, backward_input = np.empty((stages, plans)), np.empty((stages, plans))
        forward_input[1:], backward_input[:-1] = forward_ends[-1, :-1], backward_ends[-1, 1:]
        forward_input[0] = forward_ends[0, -1] if forward_chunk[0] else 0.0
        backward_input[-1] = backward_ends[0, 0] if backward_chunk[-1] < chunks - 1 else 0.0
        forward_end = np.maximum(backward_ends[-1], forward_input + send_s) + forward_s[forward_chunk, stage]
        backward_end = np.maximum(forward_end, backward_input + send_s) + backward_s[backward_chunk, stage]
        forward_ends = np.concatenate([forward_ends[1:], forward_end[None]])
        backward_ends = np.concatenate([backward_ends[1:], backward_end[None]])
        if (turn + 1) % group_turns == 0:
            group_ends.append(backward_end.max(axis=0))
    return (group_ends[-1] - group_ends[-2]) / group_size


LAYOUT = ("tp", "cp", "dp", "pp", "ep", "placement")
"""Columns on which the endpoint of every rank depends."""
PARTS = ("block", "embedding", "head")
"""Parts of a model whose work is priced: attributes of `ShapeWork` and `PassCosts`."""
INFINITE = CollectiveLines(start_s=np.full(1, np.inf), s_per_byte=np.zeros(1), energy_j_per_byte=np.zeros(1))
"""Lines of a collective that the fabric cannot carry."""


@dataclass(frozen=True, kw_only=True)
class PlanCosts:
    """Steps of P plans on one fabric, in pieces."""

    arrays: StepArrays
    """Times of the pieces, each as if all others were elsewhere."""
    energy_j: np.ndarray
    """Dynamic energy of a step, all ranks, shape [P]."""
    outside_bytes: dict[str, np.ndarray]
    """Least bytes that a rank sends outside its node in a step, by axis, shape [P] each.

    Along the pipeline those of a stage whose neighbour is in another node.
    """
    crossing: np.ndarray
    """Share of neighbouring stages in different nodes, shape [P]; dimensionless, 0 of one stage."""
    waited_s: np.ndarray
    """Traffic that both passes of a microbatch through the fullest stage wait for, shape [P]."""
    between_exchanges_s: np.ndarray
    """Work of those passes between uneven exchanges of experts and their ways back, shape [P]."""
    beside: PassTraffic
    """Traffic inside passes, which shares links with gathers and sums of the same stage."""
    turns: PlanTurns
    """Turns of circuits, where these turn to the axis that asks."""
    delayed: bool
    """Whether steps do not wait for their gathers and sums, which then run beside later steps, in a row."""


class PlanPricer:
    """Prices arrays of plans of one model on one accelerator; shapes are worked out once for all fabrics.

    Parameters
    ----------
    config : TransformerConfig
        The model.
    node : Node
        The accelerator.
    """

    def __init__(self, config: TransformerConfig, node: Node) -> None:
        self.config = config
        self.node = node
        self._shapes: dict[tuple[object, ...], ShapeWork] = {}
        self._updates: dict[tuple[float, ...], tuple[float, float]] = {}
        self._free: tuple[PlanArrays, PlanCosts] | None = None
        self._walks: dict[LinePrices, dict[tuple[object, ...], CircuitWalk | None]] = {}

    def costs(self, plans: PlanArrays, prices: LinePrices) -> PlanCosts:
        """Return the pieces of all plans' steps on a fabric.

        Parameters
        ----------
        plans : PlanArrays
            Rows that break no rule.
        prices : LinePrices
            Collectives on what carries their traffic; with circuits, all of them serve the axis that asks.
            Those that were priced before, for other rows or another accelerator, are not priced again.
        """
        with np.errstate(invalid="ignore"):  # a collective that a fabric cannot carry takes an infinite time
            return _Pricing(self, plans, prices).costs()

    def walks(self, prices: LinePrices) -> dict[tuple[object, ...], CircuitWalk | None]:
        """Return the walks of circuits on a fabric that earlier calls have made, by shrunk layout."""
        return self._walks.setdefault(prices, {})

    def without_traffic(self, plans: PlanArrays, fabric: Fabric) -> PlanCosts:
        """Return the pieces of all plans' steps where every transfer takes no time and no energy.

        Notes
        -----
        No step on any fabric is estimated shorter, so that a plan whose step without traffic is longer than
        another one's with traffic need not be priced.
        """
        if self._free is None or self._free[0] is not plans:
            self._free = plans, _WithoutTraffic(self, plans, LinePrices(fabric)).costs()
        return self._free[1]

    def shape(self, plans: PlanArrays, row: int) -> ShapeWork:
        """Return the work of a row's shape."""
        key = (plans.base, *(int(plans[name][row]) for name in WORK))
        if key not in self._shapes:
            self._shapes[key] = ShapeWork(
                self.config,
                plans.plan(row).share,
                self.node,
                overlap_tensor=bool(plans["overlap_tensor"][row]),
            )
        return self._shapes[key]

    def touched_bytes(self, plan: Plan) -> float:
        """Return the bytes that the update of a plan reads and writes on its fullest rank."""
        stages: Sequence[int] = range(plan.axes.pp)
        if plan.schedule.kind.chain is Chain.LINE:
            layers = stage_layers(self.config, plan)
            stages = sorted({0, layers.index(max(layers)), plan.axes.pp - 1})
        touched = []
        for stage in stages:
            held = part_parameters(self.config, plan, whole_stage(self.config, plan, stage))
            work = update_work(self.config, plan, held)
            touched.append(work.read_bytes + work.written_bytes)
        return max(touched)

    def update(self, plans: PlanArrays, row: int, held: RankParameters) -> tuple[float, float]:
        """Return time in s and dynamic energy in J of one rank's optimizer."""
        key = (
            held.dense,
            held.expert,
            int(plans["zero"][row] > 0),
            int(plans.gradient_ranks[row]),
            int(plans["ep"][row]),
            ESTIMATED_SCHEDULES[int(plans["schedule"][row])].two_copies,
        )
        if key not in self._updates:
            cost = self.node.cost(update_work(self.config, plans.plan(row), held))
            self._updates[key] = cost.time_s, sum(cost.energy_j.values()) * self.node.at_mains
        return self._updates[key]


@dataclass(frozen=True, kw_only=True)
class PassCosts:
    """Cost of one kind of pass of P plans, by part of the model."""

    block: PartCost[np.ndarray]
    """A mean block."""
    embedding: PartCost[np.ndarray]
    """The embedding."""
    head: PartCost[np.ndarray]
    """The head."""
    outside_bytes: Mapping[str, np.ndarray]
    """Least bytes that a rank sends outside its node in a block, by axis, shape [P] each."""


@dataclass(frozen=True, kw_only=True)
class _StageTimes:
    """Times of one kind of pass of a microbatch of P plans, in s."""

    stages_s: np.ndarray
    """Through the three stages, shape [P, 3]."""
    ends_s: np.ndarray
    """Part of that in embedding and head, shape [P, 3, 2]."""
    block_s: np.ndarray
    """Through one block, shape [P]."""

    def with_other(
        self, other: _StageTimes, law: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> _StageTimes:
        """Return what a law of two arrays gives for each of these times and the same one of others."""
        return _StageTimes(
            **{one.name: law(getattr(self, one.name), getattr(other, one.name)) for one in fields(self)}
        )


@dataclass(frozen=True, kw_only=True)
class _AxisColumns:
    """Traffic of P plans along one axis in a step: `AxisTraffic` as columns, [P], or one value for all."""

    axis: str | np.ndarray
    kind: CollectiveKind | np.ndarray
    size_bytes: np.ndarray
    shift: int | np.ndarray = 0
    skew: np.ndarray | None = None

    def of(self, row: int) -> AxisTraffic:
        """Return the traffic of one plan."""
        return AxisTraffic(
            axis=str(self.axis if isinstance(self.axis, str) else self.axis[row]),
            kind=self.kind if isinstance(self.kind, CollectiveKind) else CollectiveKind(self.kind[row]),
            size_bytes=float(self.size_bytes[row]),
            shift=int(self.shift if isinstance(self.shift, int) else self.shift[row]),
            skew=None if self.skew is None else self.skew[row],
        )


LEAST_SHARE = 2.0**-10
"""Share of the traffic of the busiest axis below which an axis counts as if it had this share, where circuits
are laid; a choice."""
LEVEL = 2.0
"""Octaves within which the traffic of an axis counts as equal, so that plans share circuits; a choice."""


UNIT = 2**24
"""Parameters for which traffic and work of gathers and sums are found, which are in proportion to them;
enough for launches not to count."""


@dataclass(frozen=True, kw_only=True)
class _ParameterTraffic:
    """Traffic and work of gathering `UNIT` parameters and summing their gradients."""

    gathers: tuple[Collective, ...]
    """Collectives of a forward gather, and of a backward one where each microbatch makes both."""
    gather_count: int
    """Gathers that those are: 1 or 2."""
    sums: tuple[Collective, ...]
    """Collectives of one sum."""
    last_sums: tuple[Collective, ...]
    """Collectives that follow a step's last sum, among groups with copies of the same shares."""
    forward_work: tuple[Elementwise, ...]
    """Packing and unpacking in a forward pass."""
    backward_work: tuple[Elementwise, ...]
    """Packing and unpacking in a backward pass."""


def _parameter_traffic(plan: Plan, held: RankParameters) -> _ParameterTraffic:
    """Return the collectives and the work that gather parameters of a plan and sum their gradients."""
    both_ways = plan.sharding.gathers_every_microbatch(plan.axes) and plan.sharding.reshard
    directions = (True, False) if both_ways else (True,)
    gathers = [gathering(plan, held, forward=one) for one in directions] if plan.sharding.zero else []
    work = [
        (*one.at_source, *(item for item, _ in one.at_arrival if isinstance(item, Elementwise)))
        for one in gathers
    ]
    forward, backward = (*work, (), ())[:2]
    sums = gradient_sums(plan, held)
    if plan.traffic.quantised_gradients:
        sharded = ShardedSums(plan, 0, Graph())
        hops = range(len(sharded.hops))
        sums = tuple(sharded.exchange(held, hop) for hop in hops)
        packing = (item for item, _ in sharded.before(held) if isinstance(item, Elementwise))
        backward = (*backward, *packing, *(sharded.between(held, hop) for hop in hops))
    return _ParameterTraffic(
        gathers=tuple(one for gather in gathers for one in gather.collectives),
        gather_count=max(1, len(gathers)),
        sums=sums,
        last_sums=group_sums(plan, held),
        forward_work=forward,
        backward_work=backward,
    )


@dataclass(frozen=True, kw_only=True)
class _Moved:
    """Gathers of parameters and sums of gradients of P plans."""

    gather_s: np.ndarray
    """One gather of all parameters of the three stages, shape [P, 3]."""
    sum_s: np.ndarray
    """One sum of all their gradients, shape [P, 3]."""
    forward_s: np.ndarray
    """Packing and unpacking in a forward pass, shape [P, 3]."""
    backward_s: np.ndarray
    """Packing and unpacking in a backward pass, shape [P, 3]."""
    energy_j: np.ndarray
    """Dynamic energy of a step, all ranks, shape [P]."""
    outside_bytes: np.ndarray
    """Least bytes that a rank sends outside its node in a step, shape [P]."""
    experts_share: np.ndarray
    """Share of gathers and sums in which those of experts' parameters move, shape [P]; dimensionless."""

    @classmethod
    def none(cls, plans: int) -> _Moved:
        """Return those of plans that move nothing."""
        stages, rows = (plans, 3), plans
        return cls(
            gather_s=np.zeros(stages),
            sum_s=np.zeros(stages),
            forward_s=np.zeros(stages),
            backward_s=np.zeros(stages),
            energy_j=np.zeros(rows),
            outside_bytes=np.zeros(rows),
            experts_share=np.zeros(rows),
        )


@dataclass(frozen=True, kw_only=True)
class _Sends:
    """Sends of P plans between neighbouring stages."""

    time_s: np.ndarray
    """One send, shape [P]."""
    energy_j: np.ndarray
    """Dynamic energy of a microbatch's sends from one stage to the next, all its ranks, shape [P]."""
    sent_bytes: np.ndarray
    """Bytes of a microbatch that a rank sends, both ways, shape [P]."""


class _Pricing:
    """One pricing of P plans on one fabric.

    Plans that share a shape have a number in `shape_of`, those that share a layout one in `layout_of`.
    """

    def __init__(self, pricer: PlanPricer, plans: PlanArrays, prices: LinePrices) -> None:
        self.pricer = pricer
        self.plans = plans
        self.prices = prices
        self.chunks = chunks_of(plans)
        self.copies = np.where(two_copies(plans), 2, 1)
        self.blocks = stage_blocks(pricer.config, plans) / self.copies[:, None]
        self.held = parameters(pricer.config, plans)
        self.sum_groups = sum_groups(plans, self.held)
        self.gathers = microbatch_gathers(plans)
        rows, self.shape_of = plans.distinct(WORK)
        self.shapes = [pricer.shape(plans, int(row)) for row in rows]
        self.layout_rows, self.layout_of = self._distinct_layouts()
        self.layouts = [self._layout(int(row)) for row in self.layout_rows]
        self._lay_circuits()
        self.inside: dict[tuple[int, str], Collective] = {}
        """One collective inside passes, by number of layout and axis; `_passes` fills it."""
        self._known_local: dict[tuple[str, int], int] = {}

    def costs(self) -> PlanCosts:
        """Return the pieces of all rows' steps."""
        passes = {direction: self._passes(direction) for direction in DIRECTIONS}
        moved = self._gathers_and_sums()
        update_s, update_j = self._update()
        sends = self._sends()
        forward, backward = passes[Pass.FORWARD].block, passes[Pass.BACKWARD].block
        crossing = np.array([self._crossing(layout) for layout in self.layouts])[self.layout_of]
        between_exchanges_s = forward.between_exchanges_s + backward.between_exchanges_s
        return PlanCosts(
            arrays=self._arrays(passes, moved, update_s + self._twins(), sends.time_s),
            energy_j=self._passes_j(passes, sends.energy_j) + update_j + moved.energy_j,
            outside_bytes=self._outside(passes, moved, np.where(crossing > 0.0, sends.sent_bytes, 0.0)),
            crossing=crossing,
            beside=PassTraffic(
                blocks=self.blocks,
                layers=self.pricer.config.blocks,
                waited_s={axis: _stacked(passes, f"{axis}_s") for axis in AXES},
                ring_s=_stacked(passes, "ring_s"),
                ring_work_s=_stacked(passes, "ring_work_s"),
                slowdowns=self._slowdowns(moved.experts_share),
            ),
            waited_s=self.blocks[:, 1] * (forward.waited_s + backward.waited_s),
            between_exchanges_s=self.blocks[:, 1] * between_exchanges_s,
            turns=self._circuits().turns(moved.gather_s, moved.sum_s, moved.experts_share),
            delayed=self.plans.base.traffic.uses_servers and not self.plans.base.traffic.waits_for_pulls,
        )

    def _slowdowns(self, experts_share: np.ndarray) -> Slowdowns:
        """Return the slowdowns of traffic inside passes and of gathers and sums by each other, by plan.

        Parameters
        ----------
        experts_share : numpy.ndarray
            Share of the time of gathers and sums that those of experts take, shape [P].
        """
        with_experts = {key: one for key, one in self.inside.items() if self.layouts[key[0]].ep > 1}
        beside_dense = slowdowns(self.prices, self.layouts, self.inside)
        beside_experts = slowdowns(self.prices, self.layouts, with_experts, experts=True)
        return mixed(
            beside_dense.by_plan(self.layout_of), beside_experts.by_plan(self.layout_of), experts_share
        )

    def _circuits(self) -> PlanCircuits:
        """Return the circuits of all rows; to be asked for when `_passes` has filled `inside`."""
        return PlanCircuits(
            config=self.pricer.config,
            plans=self.plans,
            sum_groups=self.sum_groups,
            gathers=self.gathers,
            pieces=self._pieces(),
            shapes=self.shapes,
            shape_of=self.shape_of,
            layouts=self.layouts,
            layout_of=self.layout_of,
            prices=self.prices,
            inside=self.inside,
            local=self._local,
            walks=self.pricer.walks(self.prices),
        )

    def _arrays(
        self,
        passes: Mapping[Pass, PassCosts],
        moved: _Moved,
        update_s: np.ndarray,
        send_s: np.ndarray,
    ) -> StepArrays:
        """Return times of passes, gradients, update and sends as the closed form takes them."""
        plans, blocks, zero = self.plans, self.blocks, self.plans["zero"]
        order = np.array([schedule.closed_form for schedule in ESTIMATED_SCHEDULES])[plans["schedule"]]
        forward, backward, inputs, weights = self._four_passes(passes, moved, split=np.isin(order, SPLIT))
        busy_s, waited_s = (
            np.stack([self._of_stages(passes[direction], name) for direction in BOTH], axis=2)
            for name in ("busy_s", "waited_s")
        )
        lost = self.pricer.node.collective_share
        both_s = np.stack([forward.stages_s, inputs.stages_s + weights.stages_s], axis=2)
        ends_share = end_parameters(self.pricer.config, plans) / np.maximum(1.0, sum(self.held))[:, :, None]
        return StepArrays(
            order=order,
            stages=plans["pp"],
            microbatches=plans.microbatches,
            chunks=self.chunks,
            forward_s=forward.stages_s,
            inputs_s=inputs.stages_s,
            weights_s=weights.stages_s,
            whole_s=np.stack([self._through_all(one) for one in (forward, inputs, weights)], axis=1),
            period_s=interleaved_periods(
                self.pricer.config,
                plans,
                blocks=blocks,
                forward_s=forward.stages_s,
                backward_s=backward.stages_s,
                send_s=send_s,
            ),
            send_s=np.where(plans["pp"] > 1, send_s, 0.0),
            gather_s=moved.gather_s,
            sum_s=moved.sum_s,
            blocks=np.maximum(blocks, 1.0),
            ends_s=np.stack([one.ends_s for one in (forward, inputs, weights)], axis=3),
            ends_share=ends_share,
            gathers=self.gathers,
            sums_each=zero >= 2,
            pieces=self._pieces(),
            taken_s=busy_s * lost / max(1.0 - lost, 1e-9),
            slack_s=np.maximum(0.0, both_s - busy_s - waited_s),
            update_s=update_s,
            reconfiguration_s=np.zeros(len(plans)),
            changes_each=np.zeros(len(plans)),
            changes_once=np.zeros(len(plans)),
            sums_last=np.zeros(len(plans), dtype=bool),
        )

    def _four_passes(
        self, passes: Mapping[Pass, PassCosts], moved: _Moved, *, split: np.ndarray
    ) -> tuple[_StageTimes, ...]:
        """Return the times of `DIRECTIONS`: forward, backward, and its parts of inputs and of weights.

        The part of the weights is no longer than the whole. Where the parts run apart (`split`, shape [P]),
        each waits for its own launches, and traffic for the inputs has no product of weights beside it.
        """
        forward, backward, inputs_alone, weights = (self._stage_times(passes[way]) for way in DIRECTIONS)
        forward = replace(forward, stages_s=forward.stages_s + moved.forward_s)
        backward = replace(backward, stages_s=backward.stages_s + moved.backward_s)
        inputs_alone = replace(inputs_alone, stages_s=inputs_alone.stages_s + moved.backward_s)
        weights = weights.with_other(backward, np.minimum)
        inputs = inputs_alone.with_other(
            backward.with_other(weights, np.subtract),
            lambda alone, rest: np.where(split.reshape(-1, *[1] * (alone.ndim - 1)), alone, rest),
        )
        return forward, backward, inputs, weights

    def _passes_j(self, passes: Mapping[Pass, PassCosts], send_j: np.ndarray) -> np.ndarray:
        """Return the dynamic energy of a step's passes and sends between stages, all ranks, shape [P]."""
        compute_j, network_j = (
            sum(self._of_model(passes[direction], name) for direction in BOTH)
            for name in ("compute_j", "network_j")
        )
        ranks = self.plans["tp"] * self.plans.gradient_ranks
        own_j = compute_j * ranks * self.pricer.node.at_mains
        return self.plans.microbatches * (own_j + network_j + 2 * (self.plans["pp"] - 1) * send_j)

    def _of_model(self, costs: PassCosts, name: str) -> np.ndarray:
        """Return a quantity (a field of `PartCost`) of a pass through the whole model, shape [P]."""
        block, embedding, head = (getattr(getattr(costs, part), name) for part in PARTS)
        return np.asarray(self.pricer.config.blocks * block + embedding + head)

    def _of_stages(self, costs: PassCosts, name: str) -> np.ndarray:
        """Return a quantity (a field of `PartCost`) of a pass through the three stages, shape [P, 3]."""
        found = self.blocks * getattr(costs.block, name)[:, None]
        for end, held in zip((costs.embedding, costs.head), ends_of(self.plans), strict=True):
            found = found + held / self.copies[:, None] * getattr(end, name)[:, None]
        return found

    def _stage_times(self, costs: PassCosts) -> _StageTimes:
        """Return a pass through the three stages, and the parts of embedding, head and a block in it.

        A pass takes as long as its work and traffic, or as its launches if those take longer. Where every
        microbatch gathers or sums, it runs in pieces, and no piece or chunk hides another one's launches:
        then embedding and head are each beside the blocks of their own piece alone.
        """
        whole_s = np.maximum(self._of_stages(costs, "time_s"), self._of_stages(costs, "host_s"))
        zero = self.plans["zero"]
        in_pieces = (zero >= 2) & (self.plans.gradient_ranks > 1)
        pieces = self.chunks / self.copies * np.where(in_pieces, self._pieces(), 1)
        piece_blocks = np.where((in_pieces & (zero == 3))[:, None], 1.0, self.blocks / pieces[:, None])
        piece_blocks = np.minimum(piece_blocks, self.blocks)
        time_s, host_s = costs.block.time_s[:, None], costs.block.host_s[:, None]
        block_s = np.maximum(costs.block.time_s, costs.block.host_s)
        ends_s = np.empty((*whole_s.shape, 2))
        for place, (end, held) in enumerate(
            zip((costs.embedding, costs.head), ends_of(self.plans), strict=True)
        ):
            piece_s = np.maximum(
                piece_blocks * time_s + end.time_s[:, None], piece_blocks * host_s + end.host_s[:, None]
            )
            ends_s[:, :, place] = held / self.copies[:, None] * (piece_s - piece_blocks * block_s[:, None])
        pieces_s = self.blocks * block_s[:, None] + ends_s.sum(axis=2)
        stages_s = np.where((pieces > 1)[:, None], np.maximum(whole_s, pieces_s), whole_s)
        return _StageTimes(stages_s=stages_s, ends_s=ends_s, block_s=block_s)

    def _through_all(self, times: _StageTimes) -> np.ndarray:
        """Return a pass of a microbatch through all stages, shape [P]."""
        ends_s = times.stages_s - self.blocks * times.block_s[:, None]
        whole_s = self.pricer.config.blocks * times.block_s + ends_s[:, 0] + ends_s[:, 2]
        return np.where(self.plans["pp"] == 1, times.stages_s[:, 0], whole_s)

    def _distinct_layouts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the first row of each layout, shape [L], and the number of each row's layout, shape [P].

        Where circuits stay, plans with one layout whose axes share the traffic differently count as two
        layouts, for other circuits are laid for them.
        """
        if not isinstance(self.prices, StandingLines):
            return self.plans.distinct(LAYOUT)
        first, layout_of = self.plans.distinct(LAYOUT)
        sizes = np.stack([one.size_bytes for one in self._traffic], axis=1)
        sizes *= np.stack([self._leaves_node(int(row)) for row in first])[layout_of]
        most = np.maximum(sizes.max(axis=1, keepdims=True), 1.0)
        levels = np.round(np.log2(np.maximum(sizes / most, LEAST_SHARE)) / LEVEL)
        key = np.column_stack([layout_of, levels])
        _, first, layout_of = np.unique(key, axis=0, return_index=True, return_inverse=True)
        return first, layout_of.ravel()

    def _leaves_node(self, row: int) -> list[bool]:
        """Return whether each entry of `_traffic` leaves the nodes, on the layout of a row."""
        layout, size = self._layout(row), self.prices.fabric.node_size
        axes = [one.of(row).axis for one in self._traffic]
        leaves = {
            axis: bool(np.ptp(layout.groups(axis, 0) // size, axis=1).any())
            for axis in {*axes} - {Axis.PIPELINE}
        }
        leaves[Axis.PIPELINE] = self._crossing(layout) > 0.0
        return [leaves[axis] for axis in axes]

    def _lay_circuits(self) -> None:
        """Lay circuits for the first plan of each layout, where they stay."""
        if isinstance(self.prices, StandingLines):
            for row, layout in zip(self.layout_rows.tolist(), self.layouts, strict=True):
                self.prices.lay(layout, tuple(one.of(row) for one in self._traffic if one.size_bytes[row]))

    @cached_property
    def _traffic(self) -> list[_AxisColumns]:
        """Traffic of the fullest inner stage in a whole step, an entry for each axis and way to use it."""
        return [*self._pass_traffic(), *self._sum_traffic(), *self._send_traffic()]

    def _pass_traffic(self) -> list[_AxisColumns]:
        """Return the traffic of a step inside passes."""
        found = []
        layers = self.plans.microbatches * self.blocks[:, 1]
        for axis in AXES:
            by_shape = [_axis_of_block(shape, axis) for shape in self.shapes]
            size_bytes, kind, skew = (
                np.array(column, dtype=object)[self.shape_of] for column in zip(*by_shape, strict=True)
            )
            size_bytes = size_bytes.astype(float) * layers
            found.append(_AxisColumns(axis=axis, kind=kind, size_bytes=size_bytes, skew=skew))
        return found

    def _sum_traffic(self) -> list[_AxisColumns]:
        """Return the gathers and sums of a step, for parameters of experts apart from all others."""
        found = []
        formats, zero = self.plans.base.precision, self.plans["zero"]
        gathers, sums = self._gathers_and_sums_of_step()
        for groups in self.sum_groups:
            count = groups.parameters[:, 1]
            gathered, summed = count * formats.weight_bytes * gathers, count * formats.grad_bytes * sums
            either = np.where(gathered > summed, CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER)
            kind = np.where(zero > 0, either, CollectiveKind.ALL_REDUCE)
            size_bytes = np.where(groups.ranks > 1, gathered / np.maximum(groups.ranks, 1) + summed, 0.0)
            found.append(_AxisColumns(axis=groups.axis, kind=kind, size_bytes=size_bytes))
        return found

    def _send_traffic(self) -> list[_AxisColumns]:
        """Return the sends of a step: to the next stage, to the next chunk on the first one, to the twin."""
        plans, formats = self.plans, self.plans.base.precision
        once = self._message_bytes() * plans.microbatches
        chunks = self.chunks / self.copies
        both_bytes = formats.grad_bytes + formats.weight_bytes
        twins = np.where(self.copies > 1, self._twin_share(np.arange(len(plans)))[:, 1] * both_bytes, 0.0)
        by_shift = (
            (np.ones(len(plans)), once * chunks),
            (plans["pp"] - 1, once * np.maximum(chunks - 1, 0) * (plans["vpp"] > 1)),
            (np.zeros(len(plans)), twins),
        )
        return [
            _AxisColumns(
                axis=Axis.PIPELINE,
                kind=CollectiveKind.SEND,
                size_bytes=np.where(plans["pp"] > 1, size_bytes, 0.0),
                shift=shift,
            )
            for shift, size_bytes in by_shift
        ]

    def _layout(self, row: int) -> RankLayout:
        """Return the endpoints of all ranks of a row's plan."""
        plan = self.plans.plan(row)
        order = self.plans.placement(row)
        return plan.layout if order == PLACEMENTS[0] else placed(plan.layout, endpoints_of(plan.axes, order))

    def _lines(self, operator: Collective, number: int, stage: int | None = None) -> CollectiveLines:
        """Return the lines of a collective on the layout of a number, of one of its stages."""
        return self.prices.lines(operator, self.layouts[number], stage) or INFINITE

    def _price(self, operator: Collective, number: int) -> tuple[float, float]:
        """Return time in s and dynamic energy in J of a collective on the layout of a number."""
        return self._lines(operator, number).priced(operator.payload_bytes)

    def _passes(self, direction: Pass) -> PassCosts:
        """Return the costs of one kind of pass."""
        first, group_of = distinct((self.shape_of, self.layout_of))
        names = [item.name for item in fields(PartCost)]
        costs = np.zeros((len(PARTS), len(names), len(first)))
        sent = {axis: np.zeros(len(first)) for axis in AXES}
        for group, row in enumerate(first):
            shape = self.shapes[self.shape_of[row]]
            layout = int(self.layout_of[row])
            price = partial(self._price, number=layout)
            for place, part in enumerate(PARTS):
                work: Work = getattr(shape, part)[direction]
                costs[place, :, group] = astuple(part_cost(work, price))
            for transfer in shape.block[direction].all_transfers:
                operator = transfer.collective
                sent[operator.axis][group] += self._outside_bytes(operator, layout) * transfer.times
        columns = costs[:, :, group_of]
        block, embedding, head = (PartCost(**dict(zip(names, part, strict=True))) for part in columns)
        return PassCosts(
            block=block,
            embedding=embedding,
            head=head,
            outside_bytes={axis: column[group_of] for axis, column in sent.items()},
        )

    def _outside_bytes(self, operator: Collective, layout: int) -> float:
        """Return the least bytes that a rank sends outside its node, and enter the collective in `inside`."""
        self.inside.setdefault((layout, operator.axis), operator)
        local = self._local(operator.axis, layout)
        return outside_bytes(operator.kind, operator.size, local, operator.payload_bytes, operator.skew)

    def _pieces(self) -> np.ndarray:
        """Return the pieces in which a chunk's gradients and parameters travel, shape [P]."""
        chunk_blocks = self.blocks[:, 0] * self.copies / self.chunks
        return np.asarray(pieces_of(self.plans.array_plan, np.maximum(1, chunk_blocks), self.chunks))

    def _gathers_and_sums_of_step(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the gathers and the sums of each piece in a step, shape [P] each."""
        zero, microbatches = self.plans["zero"], self.plans.microbatches / self.copies
        once = np.where(zero > 0, 1.0, 0.0)
        gathers = np.where(self.gathers > 0, self.gathers * microbatches, once)
        return gathers, np.where(zero >= 2, microbatches, 1.0)

    def _gathers_and_sums(self) -> _Moved:
        """Return times, energy and traffic of gathers of parameters and sums of gradients."""
        plans = self.plans
        blocks = np.maximum(1, self.blocks[:, 0] * self.copies)
        units = (np.where(plans["zero"] == 3, blocks, self._pieces() * self.chunks))[:, None]
        stages = np.stack([np.ones(len(plans)), plans["pp"] - 2, np.ones(len(plans))], axis=1)
        stages = np.where((plans["pp"] == 1)[:, None], [1.0, 0.0, 0.0], np.maximum(stages, 0.0))
        moved = _Moved.none(len(plans))
        totals_s: list[np.ndarray] = []
        unit_of = (RankParameters(dense=UNIT), RankParameters(expert=UNIT))
        for groups, unit in zip(self.sum_groups, unit_of, strict=True):
            if groups.parameters.any() and (groups.ranks > 1).any():
                self._add_kind(moved, groups.parameters / UNIT, unit, units=units, stages=stages)
                totals_s.append((moved.gather_s + moved.sum_s)[:, 1])
        if not totals_s:
            return moved
        return replace(moved, experts_share=1.0 - totals_s[0] / np.maximum(totals_s[-1], 1e-300))

    def _add_kind(
        self,
        moved: _Moved,
        count: np.ndarray,
        unit: RankParameters,
        *,
        units: np.ndarray,
        stages: np.ndarray,
    ) -> None:
        """Add gathers and sums of one kind of parameters to the arrays of `moved`, in place.

        Parameters
        ----------
        moved : _Moved
            Where they are added.
        count : numpy.ndarray
            Parameters of this kind on the three stages, in `UNIT`, shape [P, 3].
        unit : RankParameters
            So many of this kind.
        units : numpy.ndarray
            Collectives in which a stage's parameters travel, shape [P, 1].
        stages : numpy.ndarray
            Stages that each of the three stands for, shape [P, 3].
        """
        gathers, sums = self._gathers_and_sums_of_step()
        first, group_of = distinct((self.layout_of, self.plans["zero"]))
        for group, row in enumerate(first.tolist()):
            rows = np.flatnonzero(group_of == group)
            layout = int(self.layout_of[row])
            traffic = _parameter_traffic(self.plans.plan(row), unit)
            per_sum = 1.0 / sums[rows, None]
            for total_s, operators, share, times in (
                (moved.gather_s, traffic.gathers, 1.0 / traffic.gather_count, gathers[rows]),
                (moved.sum_s, traffic.sums, 1.0, sums[rows]),
                (moved.sum_s, traffic.last_sums, per_sum, sums[rows]),
            ):
                for operator in operators:
                    payload = count[rows] * operator.payload_bytes
                    time_s, energy_j = self._price_stages(operator, layout, payload / units[rows])
                    total_s[rows] += time_s * units[rows] * share
                    stages_j = energy_j * units[rows] * share * stages[rows]
                    moved.energy_j[rows] += stages_j.sum(axis=1) * times
                    local = self._local(operator.axis, layout)
                    outside = outside_bytes(operator.kind, operator.size, local, 1.0)
                    moved.outside_bytes[rows] += (payload * share)[:, 0] * times * outside
            for pass_s, work in (
                (moved.forward_s, traffic.forward_work),
                (moved.backward_s, traffic.backward_work),
            ):
                pass_s[rows] += count[rows] * math.fsum(self.pricer.node.cost(one).time_s for one in work)

    def _price_stages(
        self, operator: Collective, layout: int, payload_bytes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return time in s and dynamic energy in J of payloads of the three stages, shape [n, 3] each."""
        crowding = self.prices.crowding(operator, self.layouts[layout])
        lines = [
            self._lines(operator, layout, stage).slowed(crowding)
            for stage in self.prices.stages(self.layouts[layout])
        ]
        if len(lines) == 1:  # one stage stands for all
            return lines[0].time_s(payload_bytes), lines[0].energy_j(payload_bytes)
        by_stage = list(zip(lines, payload_bytes.T, strict=True))
        return (
            np.stack([line.time_s(payload) for line, payload in by_stage], axis=1),
            np.stack([line.energy_j(payload) for line, payload in by_stage], axis=1),
        )

    def _twins(self) -> np.ndarray:
        """Return the time of twin stages to exchange gradients, and then weights, in s, shape [P, 3]."""
        plans, time_s = self.plans, np.zeros((len(self.plans), 3))
        formats = plans.base.precision
        for number, row in enumerate(self.layout_rows):
            rows = np.flatnonzero((self.layout_of == number) & (self.copies > 1))
            if not len(rows):
                continue
            stages = int(plans["pp"][row])  # twins are half the pipeline apart on average
            # Where circuits stay, the twins in its middle stand for all: each has a circuit to its own.
            distance = 1 if isinstance(self.prices, StandingLines) else stages // 2
            lines = self._lines(replace(SEND, shift=-distance) if stages > 2 else SEND, number)
            count = self._twin_share(rows)
            for element_bytes in (formats.grad_bytes, formats.weight_bytes):
                time_s[rows] += lines.time_s(count * element_bytes)
        return time_s

    def _message_bytes(self) -> np.ndarray:
        """Return the bytes of a microbatch that a rank sends to the next stage, shape [P]."""
        elements = stream_share(self.pricer.config, self.plans.array_plan)
        return np.asarray(elements * self.plans.base.precision.element_bytes)

    def _twin_share(self, rows: np.ndarray) -> np.ndarray:
        """Return the parameters that a rank exchanges with its twin stage, of some rows, shape [n, 3]."""
        held: Any = RankParameters(dense=self.held[0][rows], expert=self.held[1][rows])  # type: ignore[arg-type]
        return np.asarray(optimizer_share(self.plans.taken(rows).stage_plan, held))

    def _sends(self) -> _Sends:
        """Return the sends of a microbatch between stages."""
        plans, payload = self.plans, self._message_bytes()
        chunks = self.chunks / self.copies
        time_s, energy_j = np.zeros(len(plans)), np.zeros(len(plans))
        for number, row in enumerate(self.layout_rows):
            if plans["pp"][row] == 1:
                continue
            rows = np.flatnonzero(self.layout_of == number)
            lines = self._lines(SEND, number)
            time_s[rows] = lines.time_s(payload[rows])
            energy_j[rows] = lines.energy_j(payload[rows]) * chunks[rows]
        sent_bytes = payload * np.minimum(2, plans["pp"] - 1) * chunks
        return _Sends(time_s=time_s, energy_j=energy_j, sent_bytes=sent_bytes)

    def _update(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the optimizer's time on the three stages [P, 3], and its energy on all ranks [P]."""
        plans = self.plans
        dense, expert = self.held
        first, group_of = plans.distinct(("tp", "cp", "dp", "ep", "pp", "vpp", "zero", "schedule"))
        time_s, energy_j = np.zeros((len(first), 3)), np.zeros(len(first))
        for group, row in enumerate(first):
            inner = max(0, int(plans["pp"][row]) - 2)
            stands_for = (1, inner, 1) if plans["pp"][row] > 1 else (1, 0, 0)
            ranks = int(plans["tp"][row] * plans.gradient_ranks[row])
            for stage in range(3):
                held = RankParameters(dense=int(dense[row, stage]), expert=int(expert[row, stage]))
                time_s[group, stage], rank_j = self.pricer.update(plans, int(row), held)
                energy_j[group] += rank_j * stands_for[stage] * ranks
        return time_s[group_of], energy_j[group_of]

    def _outside(
        self, passes: Mapping[Pass, PassCosts], moved: _Moved, sent_bytes: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return the least bytes that a rank sends outside its node in a step, by axis."""
        m, blocks = self.plans.microbatches, self.blocks[:, 1]
        forward, backward = (passes[direction].outside_bytes for direction in BOTH)
        found = {axis: m * blocks * (forward[axis] + backward[axis]) for axis in AXES}
        return found | {"dpcp": moved.outside_bytes, "pp": m * sent_bytes}

    def _crossing(self, layout: RankLayout) -> float:
        """Return the share of neighbouring stages between which some ranks send to another node."""
        size = self.prices.fabric.node_size
        nodes = np.stack([layout.members(stage) // size for stage in range(layout.pp)])
        return float((nodes[1:] != nodes[:-1]).any(axis=1).mean()) if layout.pp > 1 else 0.0

    def _local(self, axis: str, number: int) -> int:
        """Return the ranks of a group that share a node, on the layout of a number."""
        key = (axis, number)
        if key not in self._known_local:
            group, size = self.layouts[number].groups(axis, 0)[0], self.prices.fabric.node_size
            self._known_local[key] = neighbours(group, size)
        return self._known_local[key]


def _stacked(passes: Mapping[Pass, PassCosts], name: str) -> np.ndarray:
    """Return a quantity (a field of `PartCost`) of a block, forward and backward, shape [P, 2]."""
    return np.stack([getattr(passes[direction].block, name) for direction in BOTH], axis=1)


def _axis_of_block(shape: ShapeWork, axis: str) -> tuple[float, CollectiveKind, Skew | None]:
    """Return the traffic of a block along one axis: bytes of a rank, their main kind, and their skew."""
    transfers = [
        transfer
        for direction in BOTH
        for transfer in shape.block[direction].all_transfers
        if transfer.collective.axis == axis
    ]
    vectors: defaultdict[CollectiveKind, float] = defaultdict(float)
    for transfer in transfers:
        one = transfer.collective
        vectors[one.kind] += vector_bytes(one.kind, one.payload_bytes, one.size) * transfer.times
    skew = next((each.collective.skew for each in transfers if each.collective.skew is not None), None)
    size_bytes = math.fsum(
        each.collective.payload_bytes * each.times for each in transfers if each.collective.size > 1
    )
    return size_bytes, main_kind(vectors), skew


class _WithoutTraffic(_Pricing):
    """Pricing where every transfer takes no time and no energy, wherever ranks stand."""

    def _distinct_layouts(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(1, dtype=int), np.zeros(len(self.plans), dtype=int)

    def _price(self, operator: Collective, number: int) -> tuple[float, float]:
        return 0.0, 0.0

    def _outside_bytes(self, operator: Collective, layout: int) -> float:
        return 0.0

    def _gathers_and_sums(self) -> _Moved:
        return _Moved.none(len(self.plans))

    def _twins(self) -> np.ndarray:
        return np.zeros((len(self.plans), 3))

    def _sends(self) -> _Sends:
        none = np.zeros(len(self.plans))
        return _Sends(time_s=none, energy_j=none, sent_bytes=none)
