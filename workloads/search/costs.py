"""From arrays of plans to the pieces of their steps on one fabric, for `simulator.step_estimate`.

They include the time lost where gathers and sums share links with the traffic inside passes
(`workloads.search.contention`) and where circuits turn (`workloads.search.circuits`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from enum import StrEnum
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
from workloads.search.circuits import (
    SEND,
    BlockTurns,
    CircuitWalk,
    PlanCircuits,
)
from workloads.search.contention import (
    AXES,
    BOTH,
    PassTraffic,
    Slowdowns,
    mixed,
    pass_traffic,
    slowdowns,
)
from workloads.search.plans import (
    DIRECTIONS,
    PLACEMENTS,
    SCHEDULES,
    WORK,
    PlanArrays,
    Priced,
    ShapeWork,
    Work,
    chunks_of,
    distinct,
    end_parameters,
    endpoints_of,
    ends_of,
    microbatch_gathers,
    parameters,
    priced,
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

ROUNDS = 3
"""Groups of microbatches that are played until the last one's time repeats; the second does so already where
chunks differ by a block."""


def periods(
    config: TransformerConfig,
    plans: PlanArrays,
    *,
    blocks: np.ndarray,
    forward_s: np.ndarray,
    backward_s: np.ndarray,
    send_s: np.ndarray,
) -> np.ndarray:
    """Return the time between two microbatches of plans whose stages hold several chunks, in s, shape [P].

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
    Stages run by turns a forward pass of one chunk and a backward pass of another
    (`workloads.pipeline.schedules.interleaved`). A pass waits for the one before it on its stage, and for its
    input from the neighbour one turn earlier (from the last stage, where it enters the next chunk): a
    max-plus linear system, of which a group of microbatches is played after others. Where chunks are unequal
    their turns meet shorter ones of neighbours, and the period is longer than the passes of any stage.

    References
    ----------
    Baccelli et al., "Synchronization and linearity" (1992), theorem 3.28.
    """
    found = np.zeros(len(plans))
    m, p, v = plans.microbatches, plans["pp"], plans["vpp"]
    woven = (v > 1) & (p > 1) & (m >= p)
    group = np.where(woven, -(-m // np.maximum(1, m // np.maximum(p, 1))), 0)
    sizes = zip(p[woven].tolist(), v[woven].tolist(), group[woven].tolist(), strict=True)
    for stages, chunks, many in sorted(set(sizes)):
        rows = np.flatnonzero(woven & (p == stages) & (v == chunks) & (group == many))
        shared = plans.base.schedule.blocks(config.layers, stages * chunks, config.predicted_tokens)
        held = np.array(shared, dtype=float).reshape(chunks, stages)
        passes = [_chunk_times(held, blocks[rows], times_s[rows]) for times_s in (forward_s, backward_s)]
        found[rows] = _period(passes[0], passes[1], send_s[rows], many)
    return found


def _chunk_times(held: np.ndarray, blocks: np.ndarray, stage_s: np.ndarray) -> np.ndarray:
    """Return the passes of all chunks, shape [chunks, stages, P], from those of three stages."""
    block_s = stage_s[:, 1] / np.maximum(blocks[:, 1], 1.0)
    times_s = held[:, :, None] * block_s
    times_s[0, 0] += np.maximum(0.0, stage_s[:, 0] - blocks[:, 0] * block_s)
    times_s[-1, -1] += np.maximum(0.0, stage_s[:, 2] - blocks[:, 2] * block_s)
    return times_s


def _period(forward_s: np.ndarray, backward_s: np.ndarray, send_s: np.ndarray, many: int) -> np.ndarray:
    """Return the time of a group of so many microbatches, over their number, shape [P]."""
    chunks, stages, plans = forward_s.shape
    place = np.arange(stages)
    behind = stages - 1 - place
    lag = many - stages + 1
    turns = chunks * many
    done_f = np.zeros((lag, stages, plans))  # ends of the last turns, the latest last
    done_b = np.zeros((lag, stages, plans))
    marks = []
    for turn in range(ROUNDS * turns):
        ahead = (turn + behind) // many + chunks - 1
        chunk_f, chunk_b = ahead % chunks, chunks - 1 - (turn - behind) // many % chunks
        input_f, input_b = np.empty((stages, plans)), np.empty((stages, plans))
        input_f[1:], input_b[:-1] = done_f[-1, :-1], done_b[-1, 1:]
        input_f[0] = done_f[0, -1] if chunk_f[0] else 0.0
        input_b[-1] = done_b[0, 0] if chunk_b[-1] < chunks - 1 else 0.0
        end_f = np.maximum(done_b[-1], input_f + send_s) + forward_s[chunk_f, place]
        end_b = np.maximum(end_f, input_b + send_s) + backward_s[chunk_b, place]
        done_f = np.concatenate([done_f[1:], end_f[None]])
        done_b = np.concatenate([done_b[1:], end_b[None]])
        if (turn + 1) % turns == 0:
            marks.append(end_b.max(axis=0))
    return (marks[-1] - marks[-2]) / many


LAYOUT = ("tp", "cp", "dp", "pp", "ep", "placement")
"""Columns that say where ranks stand."""


class Part(StrEnum):
    """Part of a model whose work is priced."""

    BLOCK = "block"
    EMBEDDING = "embedding"
    HEAD = "head"


INFINITE = CollectiveLines(start_s=np.full(1, np.inf), s_per_byte=np.zeros(1), energy_j_per_byte=np.zeros(1))
"""Lines of what a fabric cannot carry."""


@dataclass(frozen=True, kw_only=True)
class PlanCosts:
    """Steps of P plans on one fabric, in pieces."""

    arrays: StepArrays
    """Their times."""
    energy_j: np.ndarray
    """Dynamic energy of a step, all ranks, shape [P]."""
    outside_bytes: dict[str, np.ndarray]
    """Least bytes that a rank sends outside its node in a step, by axis, shape [P] each.

    Of stages that of one whose neighbour is in another node.
    """
    crossing: np.ndarray
    """Share of neighbouring stages in different nodes, shape [P]; dimensionless, 0 of one stage."""
    waited_s: np.ndarray
    """Traffic within the passes of one microbatch through the fullest stage, shape [P]."""
    experts_s: np.ndarray
    """Work between uneven exchanges and their ways back in the same passes, shape [P]."""
    beside: PassTraffic
    """What of it meets gathers and sums of the same stage on common links."""
    turns: BlockTurns
    """What circuits do that turn to the axis which asks."""
    delayed: bool
    """Whether no step waits for its gathers and sums: those of others run beside it, one after the other."""


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
        self._bare: tuple[PlanArrays, PlanCosts] | None = None
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
        with np.errstate(invalid="ignore"):  # what a fabric cannot carry takes for ever
            return _Pricing(self, plans, prices).costs()

    def walks(self, prices: LinePrices) -> dict[tuple[object, ...], CircuitWalk | None]:
        """Return the circuits on a fabric that were played before, by layout."""
        return self._walks.setdefault(prices, {})

    def without_traffic(self, plans: PlanArrays, fabric: Fabric) -> PlanCosts:
        """Return the pieces of all plans' steps where every transfer takes no time and no energy.

        Notes
        -----
        No step on any fabric is estimated shorter, so that a plan whose bare step is longer than another
        one's whole step need not be priced.
        """
        if self._bare is None or self._bare[0] is not plans:
            self._bare = plans, _Bare(self, plans, LinePrices(fabric)).costs()
        return self._bare[1]

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
        """Return what the update of a plan reads and writes on its fullest rank."""
        stages: Sequence[int] = range(plan.axes.pp)
        most = 0.0
        if plan.schedule.kind.chain is Chain.LINE:
            held = stage_layers(self.config, plan)
            stages = sorted({0, held.index(max(held)), plan.axes.pp - 1})
        for stage in stages:
            rank = part_parameters(self.config, plan, whole_stage(self.config, plan, stage))
            work = update_work(self.config, plan, rank)
            most = max(most, work.read_bytes + work.written_bytes)
        return most

    def update(self, plans: PlanArrays, row: int, held: RankParameters) -> tuple[float, float]:
        """Return time and dynamic energy of one rank's optimizer."""
        key = (
            held.dense,
            held.expert,
            int(plans["zero"][row] > 0),
            int(plans.gradient_ranks[row]),
            int(plans["ep"][row]),
            SCHEDULES[int(plans["schedule"][row])].two_copies,
        )
        if key not in self._updates:
            cost = self.node.cost(update_work(self.config, plans.plan(row), held))
            self._updates[key] = cost.time_s, sum(cost.energy_j.values()) * self.node.at_mains
        return self._updates[key]


@dataclass(frozen=True, kw_only=True)
class _Timed:
    """Times of one kind of pass of a microbatch of P plans, in s."""

    stages_s: np.ndarray
    """Through the three stages, shape [P, 3]."""
    ends_s: np.ndarray
    """What embedding and head take of that, shape [P, 3, 2]."""
    block_s: np.ndarray
    """Through one block, shape [P]."""

    def along(self, law: Callable[[np.ndarray, np.ndarray], np.ndarray], other: _Timed) -> _Timed:
        """Return what a law of two numbers makes of these times and others, each by itself."""
        return _Timed(
            stages_s=law(self.stages_s, other.stages_s),
            ends_s=law(self.ends_s, other.ends_s),
            block_s=law(self.block_s, other.block_s),
        )

    def where(self, chosen: np.ndarray, other: _Timed) -> _Timed:
        """Return these times of the plans of a mask, shape [P], and others of the rest."""
        return self.along(
            lambda mine, theirs: np.where(chosen.reshape(-1, *[1] * (mine.ndim - 1)), mine, theirs), other
        )


@dataclass(frozen=True, kw_only=True)
class _Column:
    """Traffic of P plans along one axis."""

    axis: str | np.ndarray
    kind: CollectiveKind | np.ndarray
    size_bytes: np.ndarray
    shift: int | np.ndarray = 0
    skew: np.ndarray | None = None

    def of(self, row: int) -> AxisTraffic:
        """Return that of one plan."""
        return AxisTraffic(
            axis=str(self.axis if isinstance(self.axis, str) else self.axis[row]),
            kind=self.kind if isinstance(self.kind, CollectiveKind) else CollectiveKind(self.kind[row]),
            size_bytes=float(self.size_bytes[row]),
            shift=int(self.shift if isinstance(self.shift, int) else self.shift[row]),
            skew=None if self.skew is None else self.skew[row],
        )


LEAST_SHARE = 2.0**-10
"""Share of the largest traffic of an axis below which circuits are laid as for so little; a choice."""
LEVEL = 2.0
"""Octaves within which plans' shares count as alike, so that circuits are laid for the first; a choice."""


UNIT = 2**24
"""Parameters whose traffic and work are asked for, which go in proportion; so many that launches do not
count."""


@dataclass(frozen=True, kw_only=True)
class _Moved:
    """Traffic and work of gathering `UNIT` parameters and summing their gradients."""

    gathers: tuple[Collective, ...]
    """Collectives of one gather; of two unlike ones, forward and backward, those of both."""
    ways: int
    """Gathers that they are."""
    sums: tuple[Collective, ...]
    """Collectives of one sum."""
    last_sums: tuple[Collective, ...]
    """Those that follow a step's last sum."""
    work: tuple[tuple[Elementwise, ...], tuple[Elementwise, ...]]
    """Work on them in a pass forward and in one backward."""


def _moved(plan: Plan, held: RankParameters) -> _Moved:
    """Return what moves so many parameters of a plan and their gradients."""
    each = plan.sharding.gathers_every_microbatch(plan.axes) and plan.sharding.reshard
    directions = (True, False) if each else (True,)
    found = [gathering(plan, held, forward=one) for one in directions] if plan.sharding.zero else []
    work = [
        (*one.at_source, *(item for item, _ in one.at_arrival if isinstance(item, Elementwise)))
        for one in found
    ]
    forward, backward = (*work, (), ())[:2]
    sums = gradient_sums(plan, held)
    if plan.traffic.quantised_gradients:
        sharded = ShardedSums(plan, 0, Graph())
        hops = range(len(sharded.hops))
        sums = tuple(sharded.exchange(held, hop) for hop in hops)
        packed = (item for item, _ in sharded.before(held) if isinstance(item, Elementwise))
        backward = (*backward, *packed, *(sharded.between(held, hop) for hop in hops))
    return _Moved(
        gathers=tuple(one for each in found for one in each.collectives),
        ways=max(1, len(found)),
        sums=sums,
        last_sums=group_sums(plan, held),
        work=(forward, backward),
    )


class _Pricing:
    """One pricing of one set of rows on one fabric."""

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
        self.layout_rows, self.layout_of = self._sites()
        self.layouts = [self._layout(int(row)) for row in self.layout_rows]
        self._lay_circuits()
        self.inside: dict[tuple[int, str], Collective] = {}
        self._known: dict[tuple[object, ...], CollectiveLines] = {}
        self._paid: dict[tuple[object, ...], tuple[float, float]] = {}
        self._near: dict[tuple[str, int], int] = {}

    def costs(self) -> PlanCosts:
        """Return the pieces of all rows' steps."""
        passes = {one: self._passes(one) for one in DIRECTIONS}
        moved = self._gradients()
        update_s, update_j = self._update()
        send_s, send_j, send_bytes = self._sends()
        both = (passes[Pass.FORWARD], passes[Pass.BACKWARD])

        def of_mixtures(column: str) -> np.ndarray:
            return self.blocks[:, 1] * (both[0][f"block.{column}"] + both[1][f"block.{column}"])

        crossing = np.array([self._crossing(layout) for layout in self.layouts])[self.layout_of]
        return PlanCosts(
            arrays=self._arrays(passes, moved, update_s + self._twins(), send_s),
            energy_j=self._passes_j(passes, send_j) + update_j + moved["energy_j"],
            outside_bytes=self._outside(passes, moved, np.where(crossing > 0.0, send_bytes, 0.0)),
            crossing=crossing,
            beside=pass_traffic(
                both,
                blocks=self.blocks,
                layers=self.pricer.config.blocks,
                met=self._met(moved["experts_share"]),
            ),
            waited_s=of_mixtures("waited_s"),
            experts_s=of_mixtures("experts_s"),
            turns=self._circuits().turns(moved),
            delayed=self.plans.base.traffic.uses_servers and not self.plans.base.traffic.waits_for_pulls,
        )

    def _met(self, experts_share: np.ndarray) -> Slowdowns:
        """Return how traffic inside passes, and gathers and sums slow each other down, by plan.

        Parameters
        ----------
        experts_share : numpy.ndarray
            Share of the time of gathers and sums that those of experts take, shape [P].
        """
        beside = slowdowns(self.prices, self.layouts, self.inside)
        apart = {key: one for key, one in self.inside.items() if self.layouts[key[0]].ep > 1}
        dense, experts = (
            {axis: (mine[self.layout_of], theirs[self.layout_of]) for axis, (mine, theirs) in each.items()}
            for each in (beside, slowdowns(self.prices, self.layouts, apart, experts=True))
        )
        return mixed(dense, experts, experts_share)

    def _circuits(self) -> PlanCircuits:
        """Return the circuits of all rows, for collectives that `_passes` has met."""
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
        passes: Mapping[Pass, dict[str, np.ndarray]],
        moved: Mapping[str, np.ndarray],
        update_s: np.ndarray,
        send_s: np.ndarray,
    ) -> StepArrays:
        """Return times of passes, gradients, update and sends as the closed form takes them."""
        plans, blocks, zero = self.plans, self.blocks, self.plans["zero"]
        order = np.array([one.closed_form for one in SCHEDULES])[plans["schedule"]]
        forward, backward, alone, weights = (self._timed(passes[one]) for one in DIRECTIONS)
        forward, backward, alone = (
            replace(one, stages_s=one.stages_s + moved[key])
            for one, key in ((forward, "forward_s"), (backward, "backward_s"), (alone, "backward_s"))
        )
        # The weights' part of a backward pass is no longer than the whole of it. Where the parts run apart
        # they wait for launches each by itself, and traffic for inputs has no product of weights beside it.
        weights = weights.along(np.minimum, backward)
        apart = np.isin(order, SPLIT)
        inputs = alone.where(apart, backward.along(np.subtract, weights))
        three = (forward, inputs, weights)
        busy_s, idle_s = (
            np.stack([self._held(passes[one], name) for one in BOTH], axis=2)
            for name in ("busy_s", "waited_s")
        )
        lost = self.pricer.node.collective_share
        return StepArrays(
            order=order,
            stages=plans["pp"],
            microbatches=plans.microbatches,
            chunks=self.chunks,
            forward_s=forward.stages_s,
            inputs_s=inputs.stages_s,
            weights_s=weights.stages_s,
            whole_s=np.stack([self._through_all(one) for one in three], axis=1),
            period_s=periods(
                self.pricer.config,
                plans,
                blocks=blocks,
                forward_s=forward.stages_s,
                backward_s=backward.stages_s,
                send_s=send_s,
            ),
            send_s=np.where(plans["pp"] > 1, send_s, 0.0),
            gather_s=moved["gather_s"],
            sum_s=moved["sum_s"],
            blocks=np.maximum(blocks, 1.0),
            ends_s=np.stack([one.ends_s for one in three], axis=3),
            ends_share=end_parameters(self.pricer.config, plans)
            / np.maximum(1.0, sum(self.held))[:, :, None],
            gathers=self.gathers,
            sums_each=zero >= 2,
            pieces=self._pieces(),
            taken_s=busy_s * lost / max(1.0 - lost, 1e-9),
            slack_s=np.maximum(
                0.0,
                np.stack([forward.stages_s, inputs.stages_s + weights.stages_s], axis=2) - busy_s - idle_s,
            ),
            update_s=update_s,
            reconfiguration_s=np.zeros(len(plans)),
            changes_each=np.zeros(len(plans)),
            changes_once=np.zeros(len(plans)),
            sums_last=np.zeros(len(plans), dtype=bool),
        )

    def _passes_j(self, passes: Mapping[Pass, dict[str, np.ndarray]], send_j: np.ndarray) -> np.ndarray:
        """Return the energy of all microbatches' passes and of what stages send each other."""
        compute_j, network_j = (
            sum(self._whole(passes[one], name) for one in (Pass.FORWARD, Pass.BACKWARD))
            for name in ("compute_j", "network_j")
        )
        ranks = self.plans["tp"] * self.plans.gradient_ranks
        own_j = compute_j * ranks * self.pricer.node.at_mains
        return self.plans.microbatches * (own_j + network_j + 2 * (self.plans["pp"] - 1) * send_j)

    def _whole(self, columns: dict[str, np.ndarray], name: str) -> np.ndarray:
        """Return a column of a pass through all blocks, the embedding and the head."""
        layers = self.pricer.config.blocks
        return layers * columns[f"block.{name}"] + columns[f"embedding.{name}"] + columns[f"head.{name}"]

    def _held(self, columns: Mapping[str, np.ndarray], name: str) -> np.ndarray:
        """Return a column of a pass through blocks, embedding and head of the three stages, shape [P, 3]."""
        found = self.blocks * columns[f"block.{name}"][:, None]
        for part, held in zip(("embedding", "head"), ends_of(self.plans), strict=True):
            found = found + held / self.copies[:, None] * columns[f"{part}.{name}"][:, None]
        return found

    def _timed(self, columns: Mapping[str, np.ndarray]) -> _Timed:
        """Return a pass through the three stages, and what embedding, head and a block take of it.

        A pass takes as long as its work and traffic, or its launches if longer. Where every microbatch
        gathers or sums, it runs in pieces, and no piece or chunk can wait for another's launches: embedding
        and head stand beside blocks of their own.
        """
        whole_s = np.maximum(self._held(columns, "time_s"), self._held(columns, "host_s"))
        zero = self.plans["zero"]
        pieced = (zero >= 2) & (self.plans.gradient_ranks > 1)
        pieces = self.chunks / self.copies * np.where(pieced, self._pieces(), 1)
        each = np.where((pieced & (zero == 3))[:, None], 1.0, self.blocks / pieces[:, None])
        each = np.minimum(each, self.blocks)
        time_s, host_s = columns["block.time_s"], columns["block.host_s"]
        block_s = np.maximum(time_s, host_s)
        ends_s = np.empty((*whole_s.shape, 2))
        for end, (part, held) in enumerate(
            zip((Part.EMBEDDING, Part.HEAD), ends_of(self.plans), strict=True)
        ):
            more = [columns[f"{part}.{name}"][:, None] for name in ("time_s", "host_s")]
            both_s = np.maximum(each * time_s[:, None] + more[0], each * host_s[:, None] + more[1])
            ends_s[:, :, end] = held / self.copies[:, None] * (both_s - each * block_s[:, None])
        pieces_s = self.blocks * block_s[:, None] + ends_s.sum(axis=2)
        stages_s = np.where((pieces > 1)[:, None], np.maximum(whole_s, pieces_s), whole_s)
        return _Timed(stages_s=stages_s, ends_s=ends_s, block_s=block_s)

    def _through_all(self, timed: _Timed) -> np.ndarray:
        """Return a pass of a microbatch through all stages, shape [P]."""
        more_s = timed.stages_s - self.blocks * timed.block_s[:, None]
        whole_s = self.pricer.config.blocks * timed.block_s + more_s[:, 0] + more_s[:, 2]
        return np.where(self.plans["pp"] == 1, timed.stages_s[:, 0], whole_s)

    def _sites(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the first row of each layout, and the number of each row's layout.

        Where circuits stay, layouts of plans whose axes share the traffic otherwise are others.
        """
        if not isinstance(self.prices, StandingLines):
            return self.plans.distinct(LAYOUT)
        first, place = self.plans.distinct(LAYOUT)
        sizes = np.stack([one.size_bytes for one in self._traffic], axis=1)
        sizes *= np.stack([self._leaves(int(row)) for row in first])[place]
        most = np.maximum(sizes.max(axis=1, keepdims=True), 1.0)
        levels = np.round(np.log2(np.maximum(sizes / most, LEAST_SHARE)) / LEVEL)
        key = np.column_stack([place, levels])
        _, first, place = np.unique(key, axis=0, return_index=True, return_inverse=True)
        return first, place.ravel()

    def _leaves(self, row: int) -> list[bool]:
        """Return whether the traffic of each axis leaves the nodes, on the layout of a row."""
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
    def _traffic(self) -> list[_Column]:
        """Traffic of a whole step by axis, of the fullest inner stage."""
        plans = self.plans
        found = self._inner_traffic()
        formats, zero = plans.base.precision, plans["zero"]
        gathers, sums = self._moves()
        for one in self.sum_groups:
            sizes, count = one.ranks, one.parameters[:, 1]
            gathered, summed = count * formats.weight_bytes * gathers, count * formats.grad_bytes * sums
            either = np.where(gathered > summed, CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER)
            kind = np.where(zero > 0, either, CollectiveKind.ALL_REDUCE)
            size_bytes = np.where(sizes > 1, gathered / np.maximum(sizes, 1) + summed, 0.0)
            found.append(_Column(axis=one.axis, kind=kind, size_bytes=size_bytes))
        once = self._message_bytes() * plans.microbatches
        chunks = self.chunks / self.copies
        both_bytes = formats.grad_bytes + formats.weight_bytes
        twins = np.where(self.copies > 1, self._twin_share(np.arange(len(plans)))[:, 1] * both_bytes, 0.0)
        for shift, size_bytes in (
            (np.ones(len(plans)), once * chunks),
            (plans["pp"] - 1, once * np.maximum(chunks - 1, 0) * (plans["vpp"] > 1)),
            (np.zeros(len(plans)), twins),
        ):
            sent = np.where(plans["pp"] > 1, size_bytes, 0.0)
            found.append(_Column(axis=Axis.PIPELINE, kind=CollectiveKind.SEND, size_bytes=sent, shift=shift))
        return found

    def _inner_traffic(self) -> list[_Column]:
        """Return the traffic within passes of a whole step."""
        found = []
        layers = self.plans.microbatches * self.blocks[:, 1]
        for axis in AXES:
            each: list[tuple[float, CollectiveKind, Skew | None]] = []
            for shape in self.shapes:
                work = [shape.block[one] for one in BOTH]
                moved = [(one, times) for each in work for one, times in each.moved if one.axis == axis]
                vectors: defaultdict[CollectiveKind, float] = defaultdict(float)
                for one, times in moved:
                    vectors[one.kind] += vector_bytes(one.kind, one.payload_bytes, one.size) * times
                skew = next((one.skew for one, _ in moved if one.skew is not None), None)
                size = math.fsum(one.payload_bytes * times for one, times in moved if one.size > 1)
                each.append((size, main_kind(vectors), skew))
            size_bytes, kind, skew = (
                np.array(one, dtype=object)[self.shape_of] for one in zip(*each, strict=True)
            )
            size_bytes = size_bytes.astype(float) * layers
            found.append(_Column(axis=axis, kind=kind, size_bytes=size_bytes, skew=skew))
        return found

    def _layout(self, row: int) -> RankLayout:
        plan = self.plans.plan(row)
        order = self.plans.placement(row)
        return plan.layout if order == PLACEMENTS[0] else placed(plan.layout, endpoints_of(plan.axes, order))

    def _lines(self, operator: Collective, number: int, stage: int | None = None) -> CollectiveLines:
        """Return the lines of a collective on one of the layouts, of one of its stages."""
        key = (number, stage, *operator.terms)
        found = self._known.get(key)
        if found is None:
            found = self.prices.lines(operator, self.layouts[number], stage) or INFINITE
            self._known[key] = found
        return found

    def _price(self, operator: Collective, number: int) -> tuple[float, float]:
        """Return time in s and dynamic energy in J of a collective on one of the layouts."""
        key = (number, operator.payload_bytes, *operator.terms)
        found = self._paid.get(key)
        if found is None:
            found = self._paid[key] = self._lines(operator, number).priced(operator.payload_bytes)
        return found

    def _passes(self, direction: Pass) -> dict[str, np.ndarray]:
        """Return the columns of a direction's costs, each of shape [P]."""
        first, place = distinct((self.shape_of, self.layout_of))
        names = [item.name for item in fields(Priced)]
        found = np.zeros((len(first), len(Part), len(names)))
        sent = {axis: np.zeros(len(first)) for axis in AXES}
        for number, row in enumerate(first):
            shape = self.shapes[self.shape_of[row]]
            layout = int(self.layout_of[row])
            price = partial(self._price, number=layout)
            for which, part in enumerate(Part):
                work: Work = getattr(shape, part)[direction]
                found[number, which] = astuple(priced(work, price))
                for one, times in work.moved if part is Part.BLOCK else ():
                    sent[one.axis][number] += self._sent(one, layout) * times
        columns = {
            f"{part}.{name}": found[place, which, index]
            for which, part in enumerate(Part)
            for index, name in enumerate(names)
        }
        return columns | {f"sent.{axis}": column[place] for axis, column in sent.items()}

    def _sent(self, operator: Collective, layout: int) -> float:
        """Return the least bytes that a rank sends outside its node, and note that the axis is used."""
        self.inside.setdefault((layout, operator.axis), operator)
        local = self._local(operator.axis, layout)
        return outside_bytes(operator.kind, operator.size, local, operator.payload_bytes, operator.skew)

    def _pieces(self) -> np.ndarray:
        """Return in how many pieces a chunk's gradients and parameters travel, shape [P]."""
        held = self.blocks[:, 0] * self.copies / self.chunks
        return np.asarray(pieces_of(self.plans.whole, np.maximum(1, held), self.chunks))

    def _moves(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the gathers and the sums of each piece in a step, shape [P] each."""
        zero, passed = self.plans["zero"], self.plans.microbatches / self.copies
        once = np.where(zero > 0, 1.0, 0.0)
        gathers = np.where(self.gathers > 0, self.gathers * passed, once)
        return gathers, np.where(zero >= 2, passed, 1.0)

    def _no_gradients(self) -> dict[str, np.ndarray]:
        """Return what `_gradients` does where nothing is moved."""
        many = len(self.plans)
        found = {name: np.zeros((many, 3)) for name in ("gather_s", "sum_s", "forward_s", "backward_s")}
        return found | {name: np.zeros(many) for name in ("energy_j", "bytes", "experts_share")}

    def _gradients(self) -> dict[str, np.ndarray]:
        """Return times of gathers and sums [P, 3], their bytes of a rank, energy and experts' share [P]."""
        plans = self.plans
        blocks = np.maximum(1, self.blocks[:, 0] * self.copies)
        units = (np.where(plans["zero"] == 3, blocks, self._pieces() * self.chunks))[:, None]
        stages = np.stack([np.ones(len(plans)), plans["pp"] - 2, np.ones(len(plans))], axis=1)
        stages = np.where((plans["pp"] == 1)[:, None], [1.0, 0.0, 0.0], np.maximum(stages, 0.0))
        found = self._no_gradients()
        moved_s: list[np.ndarray] = []
        for groups, held in zip(
            self.sum_groups, (RankParameters(dense=UNIT), RankParameters(expert=UNIT)), strict=True
        ):
            if not (groups.parameters.any() and (groups.ranks > 1).any()):
                continue
            self._add_sums(found, groups.parameters, held, units=units, stages=stages)
            moved_s.append((found["gather_s"] + found["sum_s"])[:, 1])
        if moved_s:
            found["experts_share"] = 1.0 - moved_s[0] / np.maximum(moved_s[-1], 1e-300)
        return found

    def _add_sums(
        self,
        found: dict[str, np.ndarray],
        parameters: np.ndarray,
        held: RankParameters,
        *,
        units: np.ndarray,
        stages: np.ndarray,
    ) -> None:
        """Add gathers and sums of one set of parameters [P, 3], of a kind of which `held` are `UNIT`."""
        count = parameters / UNIT
        gathers, sums = self._moves()
        _, kind_of = distinct((self.layout_of, self.plans["zero"]))
        for kind in range(int(kind_of.max()) + 1):
            rows = np.flatnonzero(kind_of == kind)
            number = int(self.layout_of[rows[0]])
            moved = _moved(self.plans.plan(int(rows[0])), held)
            once = 1.0 / sums[rows, None]
            for key, operators, share, times in (
                ("gather_s", moved.gathers, 1.0 / moved.ways, gathers[rows]),
                ("sum_s", moved.sums, 1.0, sums[rows]),
                ("sum_s", moved.last_sums, once, sums[rows]),
            ):
                for one in operators:
                    slower = self.prices.crowding(one, self.layouts[number])
                    lines = [
                        self._lines(one, number, stage).slowed(slower)
                        for stage in self.prices.stages(self.layouts[number])
                    ]
                    payload = count[rows] * one.payload_bytes
                    times_s, energy_j = (
                        _of_stages([partial(law, each) for each in lines], payload / units[rows])
                        for law in (CollectiveLines.time_s, CollectiveLines.energy_j)
                    )
                    found[key][rows] += times_s * units[rows] * share
                    joules = (energy_j * units[rows] * share * stages[rows]).sum(axis=1)
                    found["energy_j"][rows] += joules * times
                    least = outside_bytes(one.kind, one.size, self._local(one.axis, number), 1.0)
                    found["bytes"][rows] += (payload * share)[:, 0] * times * least
            for key, work in zip(("forward_s", "backward_s"), moved.work, strict=True):
                found[key][rows] += count[rows] * math.fsum(self.pricer.node.cost(one).time_s for one in work)

    def _twins(self) -> np.ndarray:
        """Return the time in which twin stages exchange gradients, then parameters, shape [P, 3]."""
        plans, found = self.plans, np.zeros((len(self.plans), 3))
        formats = plans.base.precision
        for number, row in enumerate(self.layout_rows):
            mine = np.flatnonzero((self.layout_of == number) & (self.copies > 1))
            if not len(mine):
                continue
            stages = int(plans["pp"][row])  # twins stand half the pipeline apart on average
            # Where circuits stay, those in its middle stand for all: each has one to its own.
            apart = 1 if isinstance(self.prices, StandingLines) else stages // 2
            far = replace(SEND, shift=-apart) if stages > 2 else SEND
            lines = self._lines(far, number)
            share = self._twin_share(mine)
            for each in (formats.grad_bytes, formats.weight_bytes):
                found[mine] += lines.time_s(share * each)
        return found

    def _message_bytes(self) -> np.ndarray:
        """Return what a rank sends to the next stage, shape [P]."""
        elements = stream_share(self.pricer.config, self.plans.whole)
        return np.asarray(elements * self.plans.base.precision.element_bytes)

    def _twin_share(self, rows: np.ndarray) -> np.ndarray:
        """Return the parameters that a rank exchanges with its twin, three stages of some plans, [n, 3]."""
        held: Any = RankParameters(dense=self.held[0][rows], expert=self.held[1][rows])  # type: ignore[arg-type]
        return np.asarray(optimizer_share(self.plans.taken(rows).by_stage, held))

    def _sends(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return time, energy of a class and bytes of a rank of one send between stages, shape [P]."""
        plans, payload = self.plans, self._message_bytes()
        ways = self.chunks / self.copies
        time_s, energy_j = np.zeros(len(plans)), np.zeros(len(plans))
        for number, row in enumerate(self.layout_rows):
            if plans["pp"][row] == 1:
                continue
            mine = np.flatnonzero(self.layout_of == number)
            lines = self._lines(SEND, number)
            time_s[mine] = lines.time_s(payload[mine])
            energy_j[mine] = lines.energy_j(payload[mine]) * ways[mine]
        return time_s, energy_j, payload * np.minimum(2, plans["pp"] - 1) * ways

    def _update(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the optimizer's time on the three stages [P, 3], and its energy on all ranks [P]."""
        plans = self.plans
        dense, expert = self.held
        first, place = plans.distinct(("tp", "cp", "dp", "ep", "pp", "vpp", "zero", "schedule"))
        time_s, energy_j = np.zeros((len(first), 3)), np.zeros(len(first))
        for number, row in enumerate(first):
            inner = max(0, int(plans["pp"][row]) - 2)
            many = (1, inner, 1) if plans["pp"][row] > 1 else (1, 0, 0)
            ranks = int(plans["tp"][row] * plans.gradient_ranks[row])
            for stage in range(3):
                held = RankParameters(dense=int(dense[row, stage]), expert=int(expert[row, stage]))
                time_s[number, stage], joules = self.pricer.update(plans, int(row), held)
                energy_j[number] += joules * many[stage] * ranks
        return time_s[place], energy_j[place]

    def _outside(
        self, passes: dict[Pass, dict[str, np.ndarray]], moved: dict[str, np.ndarray], sent: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return the least bytes that a rank sends outside its node in a step, by axis."""
        m, blocks = self.plans.microbatches, self.blocks[:, 1]
        found = {
            axis: m * blocks * (passes[Pass.FORWARD][f"sent.{axis}"] + passes[Pass.BACKWARD][f"sent.{axis}"])
            for axis in AXES
        }
        return found | {"dpcp": moved["bytes"], "pp": m * sent}

    def _crossing(self, layout: RankLayout) -> float:
        """Return the share of neighbouring stages of which some ranks stand in different nodes."""
        size = self.prices.fabric.node_size
        nodes = np.stack([layout.members(stage) // size for stage in range(layout.pp)])
        return float((nodes[1:] != nodes[:-1]).any(axis=1).mean()) if layout.pp > 1 else 0.0

    def _local(self, axis: str, number: int) -> int:
        """Return how many of a group's ranks share a node, on one of the layouts."""
        found = self._near.get((axis, number))
        if found is None:
            group, size = self.layouts[number].groups(axis, 0)[0], self.prices.fabric.node_size
            found = self._near[axis, number] = neighbours(group, size)
        return found


def _of_stages(laws: Sequence[Callable[[np.ndarray], np.ndarray]], payload: np.ndarray) -> np.ndarray:
    """Return what laws make of payloads of the three stages, shape [n, 3]: one of all, or one of each."""
    if len(laws) == 1:
        return laws[0](payload)
    return np.stack([law(payload[:, place]) for place, law in enumerate(laws)], axis=1)


class _Bare(_Pricing):
    """The same where every transfer takes no time and no energy, wherever ranks stand."""

    def _sites(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(1, dtype=int), np.zeros(len(self.plans), dtype=int)

    def _price(self, operator: Collective, number: int) -> tuple[float, float]:
        return 0.0, 0.0

    def _sent(self, operator: Collective, layout: int) -> float:
        return 0.0

    def _gradients(self) -> dict[str, np.ndarray]:
        return self._no_gradients()

    def _twins(self) -> np.ndarray:
        return np.zeros((len(self.plans), 3))

    def _sends(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        none = np.zeros(len(self.plans))
        return none, none, none
