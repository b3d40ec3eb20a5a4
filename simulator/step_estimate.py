"""Closed-form estimate of training steps, over arrays of candidate plans.

A step is the pipeline (the slowest stage's passes and the schedule's bubble), the gathers of parameters and
sums of gradients that no pass hides, the optimizer, and the dark time of circuits. Three stages stand for
all: the first, the fullest inner one, and the last. `estimate` adds up, for all plans at once:

1. Passes of a microbatch on each stage with its own gathers and sums (`_loaded_passes`). Without gathers
   there is a closed form; with gathers a few microbatches are simulated piece by piece (`_ShardedStages`).
2. The pipeline of all microbatches (`_pipeline_s`): closed forms for GPipe and 1F1B, and the longest of the
   paths that can be critical (max-plus) where backward passes are split.
3. Sums that end after the last pass: of the first stage (`_exposed_sums_s`), of later ones
   (`_later_stage_s`), and sums of every microbatch that form a queue (`_serial_sums_end_s`).
4. Extra time of passes because hidden gathers and sums hold compute units (`_once_a_step_slowdown_s`,
   `_last_pass_slowdown_s`).

`simulator.engine.simulation` is the reference; where they differ, this is wrong. Left out are the order of
passes within a stage beyond its schedule's bubble, and pieces of unequal size in gathers and sums. Traffic of
several axes on common links is in the given durations (`workloads.search.costs`).

References
----------
Narayanan et al., arXiv:2104.04473, section 2.2: bubbles of flushed and interleaved schedules. Qi et al.,
arXiv:2401.10241, sections 2 and 6: ZB-H1, ZB-V. DeepSeek-V3, arXiv:2412.19437, table 2: DualPipe. Baccelli
et al., "Synchronization and linearity" (1992), theorem 3.28: the period of a cyclic schedule is its
greatest cycle mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np


class Order(IntEnum):
    """Pipeline schedule, the order in which stages run their microbatches."""

    ALTERNATING = 0
    """One forward, one backward, with a flush (1F1B); interleaved where stages hold several chunks."""
    FORWARD_FIRST = 1
    """All forward passes, then all backward passes (GPipe)."""
    SPLIT_BACKWARD = 2
    """1F1B with backward passes of inputs, and backward passes of weights in the gaps (ZB-H1)."""
    FOLDED = 3
    """As `SPLIT_BACKWARD` on a pipeline folded into a V, two chunks per stage (ZB-V)."""
    BOTH_WAYS = 4
    """Half of the microbatches from either end, every block on two stages (DualPipe)."""
    SPLIT_AHEAD = 5
    """As `SPLIT_BACKWARD`, with twice as many microbatches ahead (ZB-H2)."""


SPLIT = (Order.SPLIT_BACKWARD, Order.SPLIT_AHEAD, Order.FOLDED)
"""Orders in which the backward passes of inputs and of weights are separate."""
LINES = (Order.ALTERNATING, Order.FORWARD_FIRST)
"""Orders with undivided backward passes, through chunks in a line."""
FIRST, INNER, LAST = range(3)
"""Columns of arrays of shape [P, 3]: the first stage, the fullest of the inner ones, the last stage."""
FORWARD, BACKWARD = range(2)
"""Last axis of arrays of shape [P, 3, 2]: forward pass, backward pass. Gathers of parameters are hidden
behind the former, sums of gradients behind the latter."""
INPUTS, WEIGHTS = 1, 2
"""Last axis of arrays of shape [P, 3, 2, 3], after `FORWARD`: backward pass of inputs, and of weights."""


@dataclass(frozen=True, kw_only=True)
class StepArrays:
    """Durations in the steps of P plans, in s and of one rank; counts and shares are dimensionless.

    Axes of length 3 are the stages `FIRST`, `INNER`, `LAST`, unless told otherwise.
    """

    order: np.ndarray
    """Schedule, members of `Order`, shape [P]."""
    stages: np.ndarray
    """Pipeline stages, shape [P]."""
    microbatches: np.ndarray
    """Microbatches of a step, shape [P]."""
    chunks: np.ndarray
    """Chunks of a stage, shape [P]."""
    forward_s: np.ndarray
    """Forward pass of a microbatch through all chunks of a stage, shape [P, 3]."""
    inputs_s: np.ndarray
    """Backward pass that gives the gradients of inputs, shape [P, 3]."""
    weights_s: np.ndarray
    """Backward pass that gives the gradients of weights, shape [P, 3]."""
    whole_s: np.ndarray
    """Sums over all stages of a microbatch's forward pass, backward pass of inputs and backward pass of
    weights, shape [P, 3]: here the last axis is these three."""
    period_s: np.ndarray
    """Least time between two microbatches due to chunks of unequal size, shape [P]; 0 where all are equal."""
    send_s: np.ndarray
    """Send of one microbatch from a stage to the next, shape [P]."""
    gather_s: np.ndarray
    """Gather of all parameters of a stage, shape [P, 3]."""
    sum_s: np.ndarray
    """Sum of all gradients of a stage, shape [P, 3]."""
    blocks: np.ndarray
    """Blocks (layers) of a stage, shape [P, 3]."""
    ends_s: np.ndarray
    """Passes of a stage's embedding and head, shape [P, 3, 2, 3]: stage; embedding or head; forward, backward
    of inputs, backward of weights."""
    ends_share: np.ndarray
    """Share of a stage's parameters that is in its embedding and in its head, shape [P, 3, 2]."""
    gathers: np.ndarray
    """Gathers of parameters per microbatch, shape [P]: 0 (once a step), 1 (forward) or 2 (backward, too)."""
    sums_each: np.ndarray
    """Whether gradients are summed after every microbatch rather than once a step, shape [P]."""
    pieces: np.ndarray
    """Pieces in which the gradients and parameters of a chunk travel, shape [P]."""
    taken_s: np.ndarray
    """Extra time of a pass, forward or backward, if a gather or sum held compute units from its start to its
    end, shape [P, 3, 2]."""
    slack_s: np.ndarray
    """Time that a pass, forward or backward, waits for kernel launches; extra time up to this costs nothing,
    shape [P, 3, 2]."""
    update_s: np.ndarray
    """Optimizer step of a stage, shape [P, 3]."""
    reconfiguration_s: np.ndarray
    """Time of one reconfiguration of circuits, shape [P]; 0 without circuits."""
    changes_each: np.ndarray
    """Reconfigurations per microbatch on a stage, shape [P]."""
    changes_once: np.ndarray
    """Further reconfigurations per step on a stage, shape [P]."""
    sums_last: np.ndarray
    """Whether sums wait until a stage has carried its last send, as its circuits must turn, shape [P]."""

    @property
    def moved_share(self) -> np.ndarray:
        """Share of a stage's parameters that one microbatch uses, shape [P]; half with `Order.BOTH_WAYS`."""
        return np.where(self.order == Order.BOTH_WAYS, 0.5, 1.0)


@dataclass(frozen=True, kw_only=True)
class StepEstimate:
    """Times of the steps of P plans by part, in s, shape [P] each."""

    pipeline_s: np.ndarray
    """Time from the first forward pass to the last backward pass."""
    bubble_s: np.ndarray
    """Idle time of the busiest stage within `pipeline_s`."""
    gradients_s: np.ndarray
    """Gathers and sums that no pass hides, and the slowdown of passes by the others."""
    update_s: np.ndarray
    """Optimizer."""
    exposed_dark_s: np.ndarray
    """Reconfigurations of circuits."""

    @property
    def step_time_s(self) -> np.ndarray:
        """Time of the step."""
        return self.pipeline_s + self.gradients_s + self.update_s + self.exposed_dark_s


def exposed_s(moved_s: np.ndarray, beside_s: np.ndarray, pieces: np.ndarray) -> np.ndarray:
    """Return the time of a transfer in pieces that the work beside it does not hide.

    Parameters
    ----------
    moved_s, beside_s : numpy.ndarray
        Durations of the whole transfer and of the whole work.
    pieces : numpy.ndarray
        Number of equal pieces of both. A piece is transferred after its work (sums) or before it (gathers).

    Notes
    -----
    Two-machine flow shop of B equal jobs: one piece's transfer, and B - 1 times the excess of a transfer over
    its work (Johnson, Naval Research Logistics 1 (1954) 61).
    """
    piece_s = moved_s / pieces
    return piece_s + (pieces - 1) * np.maximum(0.0, piece_s - beside_s / pieces)


def estimate(arrays: StepArrays) -> StepEstimate:
    """Return the estimated steps of all plans."""
    passes = _loaded_passes(arrays)
    pipeline_s = _pipeline_s(arrays, passes)
    chunks, forward_s = arrays.chunks, passes.forward_s[:, FIRST]
    gathers_s = exposed_s(arrays.gather_s[:, FIRST] / chunks, forward_s / chunks, arrays.pieces)
    sums_s = _exposed_sums_s(arrays, passes)
    other_stages_s = np.where(arrays.stages > 1, _later_stage_s(arrays, passes, sums_s), 0.0)
    slowdown_s = _once_a_step_slowdown_s(arrays, passes, (gathers_s, sums_s)) + _last_pass_slowdown_s(arrays)
    sums_s = np.maximum(sums_s, _serial_sums_end_s(arrays) - pipeline_s)
    return StepEstimate(
        pipeline_s=pipeline_s,
        bubble_s=np.maximum(0.0, pipeline_s - passes.busiest_s * arrays.microbatches),
        gradients_s=sums_s + gathers_s + slowdown_s + other_stages_s,
        update_s=arrays.update_s[:, FIRST],
        exposed_dark_s=arrays.reconfiguration_s
        * (arrays.changes_once + arrays.changes_each * arrays.microbatches),
    )


def _exposed_sums_s(arrays: StepArrays, passes: _StagePasses) -> np.ndarray:
    """Return the time from the end of the first stage's last pass to the end of its sums, shape [P]."""
    chunks, sum_s = arrays.chunks, arrays.sum_s[:, FIRST]
    beside_s = passes.backward_s[:, FIRST] / chunks
    exposed_sums_s = exposed_s(sum_s / chunks, beside_s, arrays.pieces)
    # Sums that wait for the last send may start with the last pass, whose input has arrived by then.
    sums = np.where(arrays.sums_each, arrays.microbatches * arrays.moved_share, 1)
    waiting_s = np.maximum(exposed_sums_s, sums * sum_s - beside_s)
    return np.where(arrays.sums_last, waiting_s, exposed_sums_s)


def _later_stage_s(arrays: StepArrays, passes: _StagePasses, first_sums_s: np.ndarray) -> np.ndarray:
    """Return the time from the end of the first stage's optimizer to the latest stage's, at least 0, [P].

    Backward passes end stage by stage, on the first one last, so that other stages may have longer sums at
    no cost. With `FOLDED` and `BOTH_WAYS` all stages end at once.
    """
    chunks, backward_s = arrays.chunks, passes.backward_s
    end_together = (arrays.order == Order.FOLDED) | (arrays.order == Order.BOTH_WAYS)
    excess_s = np.zeros_like(first_sums_s)
    for stage in (INNER, LAST):
        sums_s = exposed_s(arrays.sum_s[:, stage] / chunks, backward_s[:, stage] / chunks, arrays.pieces)
        head_start_s = np.where(stage == LAST, arrays.stages - 1, 1) * backward_s[:, INNER] / chunks
        end_s = sums_s + arrays.update_s[:, stage] - np.where(end_together, 0.0, head_start_s)
        excess_s = np.maximum(excess_s, end_s - first_sums_s - arrays.update_s[:, FIRST])
    return excess_s


def _backlog_s(arrays: StepArrays, direction: int, pass_s: np.ndarray) -> np.ndarray:
    """Return the lag of once-a-step gathers (`FORWARD`) or sums (`BACKWARD`) of the last chunk, shape [P].

    The transfers of a stage's chunks follow each other. Chunks in a line or a V start and end as far apart as
    the pipeline is deep, which leaves each transfer `stages` passes; those of DualPipe end at once.
    """
    moved_s = _moved_s(arrays, direction)
    passes_between = np.where(arrays.order == Order.BOTH_WAYS, 1, arrays.stages)
    lag_s = np.maximum(0.0, moved_s - passes_between * pass_s) * (arrays.chunks - 1) / arrays.chunks
    none = arrays.gathers > 0 if direction == FORWARD else arrays.sums_each | arrays.sums_last
    return np.where(none, 0.0, lag_s)


def _moved_s(arrays: StepArrays, direction: int) -> np.ndarray:
    """Return the first stage's gather of all parameters, or sum of all gradients, shape [P]."""
    return (arrays.gather_s if direction == FORWARD else arrays.sum_s)[:, FIRST]


def _once_a_step_slowdown_s(
    arrays: StepArrays, passes: _StagePasses, exposed: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Return the extra step time due to gathers and sums once a step that passes hide, shape [P].

    Parameters
    ----------
    arrays : StepArrays
        The steps.
    passes : _StagePasses
        Their passes.
    exposed : tuple of numpy.ndarray
        Times of the gathers and of the sums that no pass hides, in s, shape [P] each.

    Notes
    -----
    Hidden transfers take compute units from the passes beside them. With one chunk per stage, this is the
    first (gathers) or last (sums) pass, which being longer then hides more of them. With several chunks in a
    line, gathers run beside as many passes as there are stages; the sum of each chunk slows the first pass of
    the next chunk on every stage, unless that pass is late already because others were slowed. In any case
    passes may be late by the backlog of gathers or sums.
    """
    in_line = np.isin(arrays.order, LINES)
    several_chunks = in_line & (arrays.chunks > 1)
    total_s = np.zeros_like(exposed[0])
    for direction, pass_s in enumerate((passes.forward_s[:, FIRST], passes.backward_s[:, FIRST])):
        forward = direction == FORWARD
        slowed_passes = np.where(several_chunks, np.minimum(arrays.stages, arrays.microbatches), 1)
        taken_s = arrays.taken_s[:, FIRST, direction]
        share = taken_s / np.maximum(pass_s + taken_s, 1e-300)
        moved_s = _moved_s(arrays, direction)
        backlog_s = _backlog_s(arrays, direction, pass_s)
        late_sums_s = 0.0 if forward else backlog_s
        every_microbatch = arrays.gathers > 0 if forward else arrays.sums_each
        hidden_s = np.where(every_microbatch, 0.0, moved_s - exposed[direction] - late_sums_s)
        hidden_s = hidden_s / (slowed_passes if forward else 1.0 + share * (slowed_passes - 1))
        slowdown_s = slowed_passes * _pass_slowdown_s(arrays, direction, hidden_s[:, None])[:, FIRST]
        exposed_beside_slowed_s = exposed_s(moved_s, pass_s + slowdown_s, arrays.pieces)
        less_exposed_s = exposed_beside_slowed_s - exposed_s(moved_s, pass_s, arrays.pieces)
        one_chunk_s = slowdown_s + np.where(in_line, less_exposed_s, late_sums_s)
        total_s += np.where(several_chunks, np.maximum(slowdown_s, backlog_s), one_chunk_s)
    return total_s


def _serial_sums_end_s(arrays: StepArrays) -> np.ndarray:
    """Return the end of the sums of all microbatches, from the start of the step, if they form a queue.

    A lower bound, shape [P]: the queue starts with the first microbatch's gradients and then never empties.
    Before its first sum a stage waits for the fill of the pipeline, and runs the forward passes ahead and the
    backward passes of inputs ahead of those of weights; none of them hides a sum. The bound is 0 where
    gathers run between the sums, where these wait for the last send, and for `FOLDED` and `BOTH_WAYS`, whose
    stages hold two chunks of each microbatch.
    """
    p, m, send_s = arrays.stages, arrays.microbatches, arrays.send_s
    sums_s = np.where(arrays.sums_each[:, None], arrays.sum_s, 0.0)
    pieces = (arrays.pieces * arrays.chunks)[:, None]
    # The first piece of a backward pass has no sum beside it yet.
    late_s = _pass_slowdown_s(arrays, BACKWARD, sums_s) * (1.0 - 1.0 / pieces)
    split = np.isin(arrays.order, SPLIT)
    depth = np.where(arrays.order == Order.SPLIT_AHEAD, 2, 1)
    down_s = arrays.whole_s[:, 0] + (p - 1) * send_s
    ahead_s = np.where(arrays.order == Order.FORWARD_FIRST, (m - 1) * arrays.forward_s.max(axis=1), 0.0)
    # Going back, a microbatch passes the last stage and inner ones, each with sums of its own.
    backward_s = arrays.inputs_s + np.where(split[:, None], 0.0, arrays.weights_s + late_s)
    last_s, inner_s = backward_s[:, LAST], backward_s[:, INNER]
    to_first_s = last_s + np.maximum(p - 2, 0) * inner_s
    to_second_s = last_s + np.maximum(p - 3, 0) * inner_s
    latest_s = np.zeros_like(send_s)
    for stage, number, up_s in (
        (FIRST, 0, to_first_s),
        (INNER, np.minimum(1, p - 1), to_second_s),
        (LAST, p - 1, np.zeros_like(last_s)),
    ):
        arrives_s = down_s + ahead_s + np.where(p > 1, up_s + (p - 1 - number) * send_s, 0.0) / arrays.chunks
        inputs_s, weights_s = arrays.inputs_s[:, stage], arrays.weights_s[:, stage]
        waits = np.where(split, np.minimum(depth * number, np.maximum(m - 1, 0)), 0)
        waits_s = waits * (arrays.forward_s[:, stage] + inputs_s)
        before_s = np.where(split, inputs_s, 0.0)
        first_piece_s = np.where(split, weights_s, inputs_s + weights_s) / pieces[:, 0]
        end_s = arrives_s + waits_s + (before_s + first_piece_s) + m * sums_s[:, stage]
        latest_s = np.maximum(latest_s, end_s)
    one_way = ~np.isin(arrays.order, (Order.FOLDED, Order.BOTH_WAYS))
    return np.where(one_way & (arrays.gathers == 0) & ~arrays.sums_last, latest_s, 0.0)


def _last_pass_slowdown_s(arrays: StepArrays) -> np.ndarray:
    """Return the extra time of the step's last backward pass on all stages after the first, shape [P].

    Where a stage is one chunk in several pieces, each piece but the first runs beside the sum of the piece
    before it, which takes compute units from it. With split backward passes those of inputs come before any
    sum, and nothing is added.
    """
    single = np.isin(arrays.order, LINES) & (arrays.chunks == 1)
    once = single & (arrays.pieces > 1) & ~arrays.sums_each & ~arrays.sums_last
    blocks, pieces = arrays.blocks[:, INNER], arrays.pieces
    end, middle = (piece_blocks / blocks for piece_blocks in _piece_blocks(blocks, pieces))
    taken_s = arrays.taken_s[:, INNER, BACKWARD]
    pass_s, sum_s = (arrays.inputs_s + arrays.weights_s)[:, INNER] + taken_s, arrays.sum_s[:, INNER]
    beside_s = (
        np.minimum(middle * pass_s, end * sum_s)
        + np.maximum(0, pieces - 3) * middle * np.minimum(pass_s, sum_s)
        + np.where(pieces > 2, np.minimum(end * pass_s, middle * sum_s), 0.0)
    )
    slack_s = arrays.slack_s[:, INNER, BACKWARD]
    lost_s = np.maximum(0.0, beside_s * taken_s / np.maximum(pass_s, 1e-300) - slack_s)
    return np.where(once, (arrays.stages - 1) * lost_s, 0.0)


def _pass_slowdown_s(arrays: StepArrays, direction: int, moved_s: np.ndarray) -> np.ndarray:
    """Return the extra time of a pass (`FORWARD` or `BACKWARD`) beside transfers, shape [P, 3]."""
    pass_s = arrays.forward_s if direction == FORWARD else arrays.inputs_s + arrays.weights_s
    taken_s, slack_s = arrays.taken_s[:, :, direction], arrays.slack_s[:, :, direction]
    return _slowdown_s(pass_s, taken_s, slack_s, moved_s)


def _slowdown_s(
    work_s: np.ndarray, taken_s: np.ndarray, slack_s: np.ndarray, moved_s: np.ndarray
) -> np.ndarray:
    """Return the extra time of work beside transfers that take compute units from it.

    Parameters
    ----------
    work_s : numpy.ndarray
        Duration of the work alone.
    taken_s : numpy.ndarray
        Extra time if transfers ran beside it from start to end.
    slack_s : numpy.ndarray
        Time within it that waits for kernel launches; extra time up to this costs nothing.
    moved_s : numpy.ndarray
        Duration of the transfers beside it.
    """
    whole_s = work_s + taken_s
    share = np.divide(moved_s, whole_s, out=np.zeros_like(whole_s), where=whole_s > 0.0)
    return np.maximum(0.0, taken_s * np.minimum(np.maximum(share, 0.0), 1.0) - slack_s)


@dataclass(frozen=True, kw_only=True)
class _Passes:
    """Passes of a microbatch through a chunk or a stage, in s."""

    forward_s: np.ndarray
    inputs_s: np.ndarray
    weights_s: np.ndarray

    @property
    def backward_s(self) -> np.ndarray:
        return self.inputs_s + self.weights_s


class _StagePasses(_Passes):
    """Passes on the three stages, slowed by gathers and sums of each microbatch, shape [P, 3] each."""

    @property
    def busiest_s(self) -> np.ndarray:
        """Passes of a microbatch on the stage where they take longest, shape [P]."""
        return (self.forward_s + self.backward_s).max(axis=1)

    def rows(self, which: np.ndarray) -> _StagePasses:
        """Return the passes of some of the plans."""
        return _StagePasses(
            forward_s=self.forward_s[which], inputs_s=self.inputs_s[which], weights_s=self.weights_s[which]
        )


def _loaded_passes(arrays: StepArrays) -> _StagePasses:
    """Return the passes of a microbatch on each stage with the effect of its gathers and sums.

    Without gathers, sums run beside the backward pass and the next forward pass; if they take longer than
    both, the excess counts as a backward pass of weights. With gathers the passes are simulated piece by
    piece (`_ShardedStages`). Sums that wait for circuits until the last send (`waiting`) hold compute units
    from the first one on: beside all passes but those of the first microbatch.
    """
    inputs_s = arrays.inputs_s
    waiting = (arrays.sums_each & arrays.sums_last)[:, None]
    summed_s = np.where(arrays.sums_each[:, None] & ~waiting, arrays.sum_s, 0.0) * arrays.moved_share[:, None]
    beside_s = np.where(waiting, np.inf, summed_s)
    share = np.where(waiting, 1.0 - 1.0 / arrays.microbatches[:, None], 1.0)
    late_forward_s = np.where(waiting, share * _pass_slowdown_s(arrays, FORWARD, beside_s), 0.0)
    forward_s = arrays.forward_s + late_forward_s
    backward_s = inputs_s + arrays.weights_s + share * _pass_slowdown_s(arrays, BACKWARD, beside_s)
    weights_s = np.maximum(backward_s, summed_s - forward_s) - inputs_s
    rows = np.flatnonzero(arrays.gathers > 0)
    if not len(rows):
        return _StagePasses(forward_s=forward_s, inputs_s=inputs_s, weights_s=weights_s)
    forward_s, inputs_s = forward_s.copy(), inputs_s.copy()
    kinds = np.stack([arrays.order, arrays.pieces, arrays.chunks, arrays.gathers], axis=1)[rows]
    for order, pieces, chunks, gathers in np.unique(kinds, axis=0):
        which = rows[(kinds == (order, pieces, chunks, gathers)).all(axis=1)]
        stages = _ShardedStages(
            arrays, which, order=Order(int(order)), pieces=int(pieces), chunks=int(chunks)
        )
        sharded = stages.passes(gathers_backward=gathers > 1)
        forward_s[which], inputs_s[which] = sharded.forward_s, sharded.inputs_s
        weights_s[which] = sharded.weights_s
    return _StagePasses(forward_s=forward_s, inputs_s=inputs_s, weights_s=weights_s)


ROUNDS = 3
"""Microbatches that `_round_s` simulates; further ones take as long as the last of them."""


def _piece_blocks(blocks: np.ndarray, pieces: np.ndarray | int) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of blocks in the first and last piece of a chunk, and in each piece between them.

    Of more than two pieces, the first and the last hold one block each (less if there are fewer blocks than
    pieces), and the others share the rest.
    """
    even = blocks / pieces
    end = np.where(pieces > 2, np.minimum(1.0, even), even)
    inner = np.maximum(0.0, blocks - 2 * end) / np.maximum(1, pieces - 2)
    return end, np.where(pieces > 2, inner, even)


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """Work on one piece of a chunk in one pass, with its transfers; durations in s, shape [Q, 3] each."""

    work_s: np.ndarray
    """Work on the piece."""
    taken_s: np.ndarray
    """Extra time of the work if transfers ran beside it from start to end."""
    slack_s: np.ndarray
    """Time within the work that waits for kernel launches; extra time up to this costs nothing."""
    gather_s: np.ndarray
    """Gather of its parameters."""
    sum_s: np.ndarray
    """Sum of its gradients."""
    gathers: bool
    """Whether its parameters are gathered before the work."""
    sums: bool
    """Whether its gradients are summed after the work."""


class _ShardedStages:
    """Stages of Q plans that gather each piece of their parameters and sum its gradients every microbatch.

    Parameters
    ----------
    arrays : StepArrays
        Steps of all plans.
    rows : numpy.ndarray
        The Q plans, of the same order, chunks and pieces, shape [Q].
    order : Order
        Their order.
    pieces, chunks : int
        Pieces of a chunk, and chunks of a stage.

    Notes
    -----
    Work and transfers are two machines that wait for each other, as the engine runs them
    (`workloads.step.stage`). The gather of a piece starts when the work on the last piece but one has ended,
    behind all sums that were due before; the work on a piece starts when the piece has been gathered; its sum
    starts after its work. The embedding is in a chunk's first piece, the head in its last one. `ROUNDS`
    microbatches are simulated, and the last one's duration is taken for all (`_round_s`).
    """

    def __init__(
        self, arrays: StepArrays, rows: np.ndarray, *, order: Order, pieces: int, chunks: int
    ) -> None:
        self._order, self._chunks = order, 1 if order == Order.BOTH_WAYS else chunks
        self._rows, self._arrays = rows, arrays
        share = arrays.moved_share[rows][:, None]
        self._gather_s, self._sum_s = arrays.gather_s[rows] * share, arrays.sum_s[rows] * share
        self._sum_s = np.where(arrays.sums_each[rows][:, None], self._sum_s, 0.0)
        passes = (arrays.forward_s, arrays.inputs_s, arrays.weights_s)
        self._passes_s = np.stack([pass_s[rows] for pass_s in passes], axis=2)
        self._ends_s = np.minimum(arrays.ends_s[rows], 0.9 * self._passes_s[:, :, None])
        end, middle = _piece_blocks(arrays.blocks[rows] / self._chunks, pieces)
        self._piece_blocks = [end, *[middle] * (pieces - 2), end][:pieces]

    def passes(self, *, gathers_backward: bool) -> _StagePasses:
        """Return the passes of a microbatch; parameters are gathered for the forward or for both passes."""
        split = self._order in SPLIT
        passes = [(FORWARD,), *([(INPUTS,), (WEIGHTS,)] if split else [(INPUTS, WEIGHTS)])]
        last = self._chunks - 1
        alone_s = [np.zeros_like(self._gather_s) for _ in passes]
        round_s = np.zeros_like(self._gather_s)
        # Chunks differ by whether they hold the embedding or the head; one inner chunk stands for all.
        for chunk in sorted({0, min(1, last), last}):
            count = last - 1 if 0 < chunk < last else 1
            backward_chunk = chunk if self._order == Order.FOLDED else last - chunk
            pieces_of = [
                self._pieces_of_pass((FORWARD,), chunk, gathers=True),
                *(
                    self._pieces_of_pass(parts, backward_chunk, gathers=gathers_backward)
                    for parts in passes[1:]
                ),
            ]
            for index, pieces in enumerate(pieces_of):
                alone_s[index] += count * _round_s(pieces)
            round_s += count * _round_s([piece for pieces in pieces_of for piece in pieces])
        if self._order == Order.FORWARD_FIRST:
            round_s = alone_s[0] + alone_s[1]
        forward_s = np.minimum(alone_s[0], round_s)
        inputs_s = alone_s[1] if split else self._passes_s[:, :, INPUTS]
        inputs_s = np.minimum(inputs_s, round_s - forward_s)
        return _StagePasses(forward_s=forward_s, inputs_s=inputs_s, weights_s=round_s - forward_s - inputs_s)

    def _pieces_of_pass(self, parts: tuple[int, ...], chunk: int, *, gathers: bool) -> list[_Piece]:
        """Return the pieces of a pass of a chunk in the order in which they run.

        `parts` is the pass: `FORWARD`, `INPUTS`, `WEIGHTS`, or the last two as one undivided backward pass.
        """
        rows, count = self._rows, len(self._piece_blocks)
        direction = FORWARD if parts[0] == FORWARD else BACKWARD
        pass_s = sum(self._passes_s[:, :, part] for part in parts)
        ends_s = sum(self._ends_s[:, :, :, part] for part in parts)
        whole = np.maximum(pass_s, 1e-300)
        both_s = whole if direction == FORWARD else self._passes_s[:, :, INPUTS:].sum(axis=2)
        taken = self._arrays.taken_s[rows, :, direction] / np.maximum(both_s, 1e-300)
        slack = self._arrays.slack_s[rows, :, direction] / np.maximum(both_s, 1e-300)
        blocks = np.maximum(self._arrays.blocks[rows], 1e-300)
        block_s = (pass_s - ends_s.sum(axis=2)) / blocks
        ends_share = self._arrays.ends_share[rows]
        block_share = (1.0 - ends_share.sum(axis=2)) / blocks
        pieces = []
        for index, piece_blocks in enumerate(self._piece_blocks):
            work_s, share = piece_blocks * block_s, piece_blocks * block_share
            has_embedding = index == 0 and chunk == 0
            has_head = index == count - 1 and chunk == self._chunks - 1
            for end, has_end in enumerate((has_embedding, has_head)):
                if has_end:
                    work_s, share = work_s + ends_s[:, :, end], share + ends_share[:, :, end]
            pieces.append(
                _Piece(
                    work_s=work_s,
                    taken_s=taken * work_s,
                    slack_s=slack * work_s,
                    gather_s=share * self._gather_s,
                    sum_s=share * self._sum_s,
                    gathers=gathers and parts != (WEIGHTS,),
                    sums=WEIGHTS in parts,
                )
            )
        return pieces if parts == (FORWARD,) else pieces[::-1]


@dataclass(kw_only=True)
class _PendingSum:
    """Sum of the gradients of one piece in `_round_s`; durations and times in s, shape [Q, 3] each."""

    work_end_s: np.ndarray
    """End of the work on its piece."""
    sum_s: np.ndarray
    """Duration."""
    previous: _PendingSum | None
    """Sum of the piece before it in its pass, which must end first."""
    end_s: np.ndarray
    """End of the sum; infinite until it has started."""
    pending: np.ndarray
    """Whether it has not started."""


def _start_due_sums(transfers_end_s: np.ndarray, sums: list[_PendingSum], until_s: np.ndarray) -> np.ndarray:
    """Start the sums that are due by a time, and return the end of all transfers started so far.

    The sums' `end_s` and `pending` are updated in place.
    """
    for each in sums:
        due_s = each.work_end_s if each.previous is None else np.maximum(each.work_end_s, each.previous.end_s)
        starts = (due_s <= until_s) & each.pending
        if starts.any():
            end_s = np.maximum(transfers_end_s, due_s) + each.sum_s
            transfers_end_s = np.where(starts, end_s, transfers_end_s)
            each.end_s = np.where(starts, transfers_end_s, each.end_s)
            each.pending &= ~starts
    return transfers_end_s


def _round_s(pieces: list[_Piece]) -> np.ndarray:
    """Return the time of one round through pieces that are worked on round after round, shape [Q, 3].

    Transfers run one after the other in the order in which they are due: a gather when the work on the last
    piece but one has ended, a sum when the work on its piece and the sum before it have ended. Sums that are
    still pending may start beside the present piece, and slow its work.
    """
    work_end_s = np.zeros_like(pieces[0].work_s)
    gathered_s = pieces[0].gather_s  # end of the present piece's gather
    transfers_end_s = gathered_s  # end of all transfers started so far
    sums: list[_PendingSum] = []
    previous: _PendingSum | None = None
    round_ends_s = []
    transfers_s = sum(
        (piece.gather_s * piece.gathers + piece.sum_s * piece.sums for piece in pieces), 0.0 * work_end_s
    )
    for number in range(ROUNDS * len(pieces)):
        before, present, after = (pieces[(number + offset) % len(pieces)] for offset in (-1, 0, 1))
        start_s = np.maximum(work_end_s, gathered_s)
        if not before.sums:
            previous = None
        elif number:
            previous = _PendingSum(
                work_end_s=work_end_s,
                sum_s=before.sum_s,
                previous=previous,
                end_s=np.full_like(work_end_s, np.inf),
                pending=np.ones(work_end_s.shape, dtype=bool),
            )
            sums.append(previous)
        transfers_end_s = _start_due_sums(transfers_end_s, sums, work_end_s)
        sums = [each for each in sums if each.pending.any()]
        if after.gathers:
            transfers_end_s = gathered_s = np.maximum(transfers_end_s, work_end_s) + after.gather_s
        else:
            gathered_s = work_end_s
        pending_s = sum((np.where(each.pending, each.sum_s, 0.0) for each in sums), transfers_end_s - start_s)
        slowdown_s = _slowdown_s(present.work_s, present.taken_s, present.slack_s, pending_s)
        work_end_s = start_s + present.work_s + slowdown_s
        if (number + 1) % len(pieces) == 0:
            round_ends_s.append(work_end_s)
    # Sums that fall behind must run at some time: no round is shorter than its own transfers.
    return np.maximum(round_ends_s[-1] - round_ends_s[-2], transfers_s)


def _pipeline_s(arrays: StepArrays, passes: _StagePasses) -> np.ndarray:
    """Return the time from the first forward to the last backward pass under each plan's schedule, shape [P].

    Symbols: p stages, m microbatches, v chunks per stage.
    """
    p, m, v = arrays.stages, arrays.microbatches, arrays.chunks
    busiest_s = passes.busiest_s
    # Gathers and sums of all stages run at once, so that filling the pipeline waits for those of one stage.
    transfers_s = busiest_s - (arrays.forward_s + arrays.inputs_s + arrays.weights_s).max(axis=1)
    whole_s = arrays.whole_s.sum(axis=1) + transfers_s
    hops_s = 2 * arrays.send_s * (p - 1)
    # 1F1B: p microbatches are under way, so that a round trip bounds the period.
    period_s = np.maximum(busiest_s, np.maximum((whole_s + hops_s) / p, arrays.send_s))
    alternating = whole_s + hops_s + (m - 1) * busiest_s + np.maximum(0, m - p) * (period_s - busiest_s)
    # Interleaved: fewer microbatches than stages wait in every chunk until the first one comes round.
    steady_s = m * np.maximum(busiest_s, arrays.period_s)
    filled_s = np.where(
        m < p, whole_s + (m - 1) * _longest_chunk_s(arrays, passes), steady_s + (whole_s - busiest_s) / v
    )
    interleaved = filled_s + 2 * arrays.send_s * (p * v - 1)
    separate_s = passes.forward_s.max(axis=1) + passes.backward_s.max(axis=1)
    forward_first = whole_s + hops_s + (m - 1) * np.maximum(separate_s, 2 * arrays.send_s)
    passes_s = passes.forward_s + passes.backward_s
    first_s, inner_s = m * passes_s[:, FIRST], m * passes_s[:, INNER]
    forms = {
        Order.FORWARD_FIRST: forward_first,
        Order.FOLDED: np.maximum(inner_s + _folded_idle_s(arrays), first_s + _folded_first_idle_s(arrays)),
        Order.BOTH_WAYS: np.maximum(
            inner_s + _both_ways_idle_s(arrays), first_s + _both_ways_first_idle_s(arrays)
        ),
    }
    one_f_one_b = np.where(v > 1, interleaved, alternating)
    pipeline_s = np.select([arrays.order == order for order in forms], list(forms.values()), one_f_one_b)
    for order, depth in ((Order.SPLIT_BACKWARD, 1), (Order.SPLIT_AHEAD, 2)):
        rows = np.flatnonzero((arrays.order == order) & (p > 1))
        if len(rows):
            pipeline_s[rows] = transfers_s[rows] + _split_backward_s(
                arrays, passes.rows(rows), rows=rows, depth=depth, busiest_s=busiest_s[rows]
            )
    return np.where(p == 1, m * busiest_s, pipeline_s)


def _longest_chunk_s(arrays: StepArrays, passes: _StagePasses) -> np.ndarray:
    """Return the passes of a microbatch through the chunk where they take longest, shape [P].

    The embedding is in the first chunk of its stage, the head in the last chunk of its own.
    """
    passes_s = passes.forward_s + passes.backward_s
    ends_s = np.minimum(arrays.ends_s.sum(axis=3), passes_s[:, :, None])
    even_s = (passes_s - ends_s.sum(axis=2)) / arrays.chunks[:, None]
    return (even_s + ends_s.max(axis=2)).max(axis=1)


def _split_backward_s(
    arrays: StepArrays, passes: _StagePasses, *, rows: np.ndarray, depth: int, busiest_s: np.ndarray
) -> np.ndarray:
    """Return the time from the first to the last pass of ZB-H1 (depth 1) or ZB-H2 (depth 2), shape [rows].

    Stage i runs ``a = min(depth (p - 1 - i), m)`` forward passes ahead. The longest path through the order is
    taken (max-plus) among these: the first microbatch goes down to the last stage and back up to stage i;
    this runs all it has left until its last backward pass of inputs; that goes up to stage j <= i, which runs
    the backward passes of weights that it has left. As i and j the first and the last stage are tried, and
    the inner one as the second and as the last but one. With equal stages and no sends this is exact for
    ZB-H1 and within 3 % for ZB-H2, for any number of microbatches.
    """
    p, m, send_s = arrays.stages[rows], arrays.microbatches[rows], arrays.send_s[rows]
    down_s = arrays.whole_s[rows, 0] + (p - 1) * send_s
    inputs_s = passes.inputs_s
    up_s = arrays.whole_s[rows, 1]
    to_second_s, to_last_but_one_s = up_s - inputs_s[:, FIRST], inputs_s[:, INNER] + inputs_s[:, LAST]
    # Number of the stage, its column, and the backward passes of inputs from the last stage up to it.
    zero = np.zeros_like(p)
    stages = (
        (zero, FIRST, up_s),
        (zero + 1, INNER, to_second_s),
        (p - 2, INNER, to_last_but_one_s),
        (p - 1, LAST, inputs_s[:, LAST]),
    )
    longest_s = m * busiest_s
    for number, (i, column_i, _) in enumerate(stages):
        ahead = np.minimum(depth * (p - 1 - i), m)
        filled = np.minimum(ahead + 1, m)
        weights_done = np.maximum(0, m - 1 - np.minimum(depth * i, m - ahead))
        # Until passes of weights start, a round trip of ZB-H1 leaves no room for its sends.
        rounds = np.minimum(i, np.maximum(m - 2, 0)) if depth == 1 else zero
        run_s = (m - filled) * passes.forward_s[:, column_i] + (m - 1) * inputs_s[:, column_i]
        run_s = down_s + run_s + weights_done * passes.weights_s[:, column_i] + 2 * rounds * send_s
        for j, column_j, back_s in stages[: number + 1]:
            waiting = np.minimum(depth * j, np.maximum(m - depth * (p - 1 - j), 0))
            weights_left = m - np.maximum(0, m - 1 - waiting)
            end_s = run_s + back_s + (p - 1 - j) * send_s + weights_left * passes.weights_s[:, column_j]
            has_inner = INNER in (column_i, column_j)
            longest_s = np.where((p > 2) | (not has_inner), np.maximum(longest_s, end_s), longest_s)
    in_flight = depth * (p - 1) + 1
    round_trip_s = arrays.whole_s[rows, :2].sum(axis=1) + passes.weights_s[:, FIRST] + 2 * (p - 1) * send_s
    return longest_s + np.maximum(0, m - in_flight) * np.maximum(0.0, round_trip_s / in_flight - busiest_s)


class _Chunk(_Passes):
    """Passes of a microbatch through one chunk, shape [P] each."""

    @classmethod
    def of(cls, passes_s: np.ndarray) -> _Chunk:
        """Return the chunk of an array of shape [P, 3] whose columns are the three passes."""
        forward_s, inputs_s, weights_s = passes_s.T
        return cls(forward_s=forward_s, inputs_s=inputs_s, weights_s=weights_s)


@dataclass(frozen=True, kw_only=True)
class _Chunks:
    """Chunks of ZB-V or DualPipe, whose stages hold two each."""

    inner: _Chunk
    """A chunk of an inner stage."""
    embedding: _Chunk
    """Chunk of the first stage that has the embedding."""
    head: _Chunk
    """Chunk of the first stage that has the head."""

    @classmethod
    def of(cls, arrays: StepArrays, used: int) -> _Chunks:
        """Return the chunks; a microbatch passes through `used` of a stage's two (ZB-V 2, DualPipe 1)."""
        passes_s = np.stack((arrays.forward_s, arrays.inputs_s, arrays.weights_s), axis=2) / used
        ends_s = arrays.ends_s[:, FIRST] / used
        even_s = passes_s[:, FIRST] - ends_s.sum(axis=1)
        embedding, head = (_Chunk.of(even_s + 2.0 * ends_s[:, end]) for end in range(2))
        return cls(inner=_Chunk.of(passes_s[:, INNER]), embedding=embedding, head=head)


def _folded_first_idle_s(arrays: StepArrays) -> np.ndarray:
    """Return the idle time of ZB-V's first stage if embedding and head make it the slowest, shape [P].

    Derived as in `_folded_idle_s`, from the paths along which that stage waits for most microbatches, while
    the V fills and while it empties. n = p - 1.
    """
    n, send_s = arrays.stages - 1.0, arrays.send_s
    chunks = _Chunks.of(arrays, 2)
    inner, embedding, head = chunks.inner, chunks.embedding, chunks.head
    fills_s = np.maximum(0.0, 2 * n * (inner.forward_s - embedding.forward_s + send_s))
    empties_s = (
        n * (2 * inner.inputs_s - embedding.backward_s) + 2 * n * send_s,
        (n + 1) * (inner.backward_s - embedding.backward_s) + n * inner.weights_s + n * send_s,
        (inner.forward_s - embedding.forward_s + inner.weights_s - head.weights_s)
        + n * (4 * inner.inputs_s - embedding.backward_s - head.forward_s - head.backward_s + 4 * send_s),
    )
    return np.maximum(0.0, fills_s + np.max(empties_s, axis=0) - head.weights_s)


def _both_ways_first_idle_s(arrays: StepArrays) -> np.ndarray:
    """Return the idle time of DualPipe's outer stages if embedding and head make them the slowest, shape [P].

    Derived as in `_folded_first_idle_s`, with n = p / 2 - 1.
    """
    p, send_s = arrays.stages, arrays.send_s
    n = p / 2 - 1.0
    chunks = _Chunks.of(arrays, 1)
    inner, embedding, head = chunks.inner, chunks.embedding, chunks.head
    fills_s = np.maximum(0.0, 2 * n * (inner.forward_s - embedding.forward_s) + (p - 1) * send_s)
    empties_s = (
        n * (2 * inner.inputs_s - embedding.backward_s) + (p - 1) * send_s,
        (n + 1) * (inner.backward_s - embedding.backward_s + send_s),
        (inner.forward_s - embedding.forward_s + inner.weights_s - head.forward_s - head.weights_s)
        + n * (4 * inner.inputs_s + inner.weights_s - embedding.backward_s - head.forward_s - head.backward_s)
        + (4 * n + 1) * send_s,
    )
    return fills_s + np.maximum(0.0, np.max(empties_s, axis=0))


def _folded_idle_s(arrays: StepArrays) -> np.ndarray:
    """Return the idle time of an inner stage of ZB-V, shape [P].

    The length of the longest path from the first pass to the last (max-plus), less the stage's work. Which
    paths can be longest, while the passes of a chunk are within a factor of three of each other, was found
    from the derivatives of simulated pipelines of 4 to 10 stages by the passes' times; each path is linear in
    n = p - 1 and in the passes' times. With equal passes n F is left, the fill; with slow sends, a
    microbatch's round trip over the p microbatches under way. The last path counts where a stage holds an odd
    number of blocks, as its second chunk then has one more.
    """
    n, send_s = arrays.stages - 1.0, arrays.send_s
    forward_s, inputs_s, weights_s = (
        column[:, INNER] / 2.0 for column in (arrays.forward_s, arrays.inputs_s, arrays.weights_s)
    )
    odd = arrays.blocks[:, INNER] % 2.0 / arrays.blocks[:, INNER]
    paths = (
        n * inputs_s + (5 * n - 2) * send_s,
        n * forward_s - weights_s + 5 * n * send_s,
        2 * n * (inputs_s - weights_s) + (6 * n - 2) * send_s,
        (2 * n - 1) * forward_s - (n - 1) * inputs_s + (3 * n - 2) * send_s,
        inputs_s + (n - 1) * weights_s + 3 * n * send_s,
        forward_s + (n - 1) * weights_s + (3 * n - 2) * send_s,
        n * 2 * odd * (forward_s + inputs_s) + (n - 1) * (1 + odd) * weights_s + 3 * n * send_s,
    )
    round_s = 4 * n * send_s / arrays.stages - 2 * weights_s
    waits_s = np.maximum(0, arrays.microbatches - arrays.stages) * np.maximum(0.0, round_s)
    return np.maximum(0.0, np.max(paths, axis=0)) + waits_s


def _both_ways_idle_s(arrays: StepArrays) -> np.ndarray:
    """Return the idle time of an inner stage of DualPipe, shape [P].

    Derived as in `_folded_idle_s`, with n = p / 2 - 1. The first path is the formula of DeepSeek-V3's table
    2, with overlapped forward and backward passes as long as one after the other.
    """
    p, send_s = arrays.stages, arrays.send_s
    n = p / 2 - 1.0
    forward_s, inputs_s, weights_s = (
        column[:, INNER] for column in (arrays.forward_s, arrays.inputs_s, arrays.weights_s)
    )
    paths = (
        n * (forward_s + inputs_s - weights_s) + (5 * n + 2) * send_s,
        n * forward_s + 2 * (p - 1) * send_s,
        n * (2 * inputs_s - weights_s) - forward_s + (3 * p - 4) * send_s,
    )
    round_s = 4 * (p - 1) * send_s / p - forward_s - inputs_s - weights_s
    waits_s = np.maximum(0, arrays.microbatches - p) * np.maximum(0.0, round_s)
    return np.maximum(0.0, np.max(paths, axis=0)) + waits_s
