"""Training steps in closed form, over arrays of candidate plans.

`simulator.engine.simulation` is the truth; where they differ, this is wrong. What is left out: the order of
passes within a stage beyond what its schedule's bubble says, and pieces of unequal size in what gathers and
sums move. Links that axes share are the caller's to count in the pieces (`workloads.search.costs`).

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
    """Order in which stages run their microbatches."""

    ALTERNATING = 0
    """One forward, one backward, with a flush; interleaved where stages hold several chunks."""
    FORWARD_FIRST = 1
    """All forward passes, then all backward passes."""
    SPLIT_BACKWARD = 2
    """One forward, one backward, weight gradients in the gaps (ZB-H1)."""
    FOLDED = 3
    """The same on a pipeline folded into a V, two chunks a stage (ZB-V)."""
    BOTH_WAYS = 4
    """Half of the microbatches from either end, every block on two stages (DualPipe)."""
    SPLIT_AHEAD = 5
    """As `SPLIT_BACKWARD`, with twice as many microbatches ahead (ZB-H2)."""


SPLIT = (Order.SPLIT_BACKWARD, Order.SPLIT_AHEAD, Order.FOLDED)
"""Orders that run the backward passes of inputs and of weights apart throughout."""
LINES = (Order.ALTERNATING, Order.FORWARD_FIRST)
"""Orders whose chunks follow each other in a line, backward passes whole."""
FIRST, INNER, LAST = range(3)
"""Stages that stand for all: columns of the arrays of shape [P, 3]."""


@dataclass(frozen=True, kw_only=True)
class StepArrays:
    """Durations of the steps of P plans, piece by piece; all in s, of one rank."""

    order: np.ndarray
    """Schedule of each plan, members of `Order`, shape [P]."""
    stages: np.ndarray
    """Pipeline stages, shape [P]."""
    microbatches: np.ndarray
    """Microbatches of a step, shape [P]."""
    chunks: np.ndarray
    """Chunks of a stage, shape [P]."""
    forward_s: np.ndarray
    """Forward pass of a microbatch through all of a stage's chunks, shape [P, 3]; inner is the fullest."""
    inputs_s: np.ndarray
    """Backward pass of the inputs, shape [P, 3]."""
    weights_s: np.ndarray
    """Backward pass of the weights, shape [P, 3]."""
    whole_s: np.ndarray
    """Forward pass of a microbatch through all stages together, and backward pass of the inputs and of the
    weights, shape [P, 3]."""
    period_s: np.ndarray
    """Least time between two microbatches that chunks of unequal size leave, shape [P]; 0 where none do."""
    send_s: np.ndarray
    """One microbatch's send from a stage to the next, shape [P]."""
    gather_s: np.ndarray
    """Gather of a stage's parameters, shape [P, 3]."""
    sum_s: np.ndarray
    """Sum of a stage's gradients, shape [P, 3]."""
    blocks: np.ndarray
    """Blocks of a stage, shape [P, 3]; dimensionless."""
    ends_s: np.ndarray
    """Passes of a stage's embedding and head: forward, of the inputs, of the weights; shape [P, 3, 2, 3]."""
    ends_share: np.ndarray
    """Share of a stage's parameters in those two, shape [P, 3, 2]; dimensionless."""
    gathers: np.ndarray
    """Gathers of a microbatch (0, 1 or 2: none, forward, both ways); once a step where 0, shape [P]."""
    sums_each: np.ndarray
    """Whether every microbatch's gradients are summed, not the step's only, shape [P]."""
    pieces: np.ndarray
    """Pieces in which a chunk's gradients and parameters travel, shape [P]."""
    taken_s: np.ndarray
    """Time by which a pass, forward and backward, is longer if gathers or sums move beside it all along, for
    they take units from it, shape [P, 3, 2]."""
    slack_s: np.ndarray
    """Wait of a pass for launches, forward and backward, in which it makes up for that, shape [P, 3, 2]."""
    update_s: np.ndarray
    """Optimizer of a stage, shape [P, 3]."""
    reconfiguration_s: np.ndarray
    """Reconfiguration time of one change of circuits, shape [P]; 0 without circuits."""
    changes_each: np.ndarray
    """Changes of circuits of a stage per microbatch, shape [P]."""
    changes_once: np.ndarray
    """Changes of circuits of a stage per step beside those, shape [P]."""
    sums_last: np.ndarray
    """Whether a step's sums wait until the ports of a stage have no sends any more, shape [P]."""

    @property
    def moved_share(self) -> np.ndarray:
        """Share of a stage's parameters through which one microbatch passes, shape [P]."""
        return np.where(self.order == Order.BOTH_WAYS, 0.5, 1.0)


@dataclass(frozen=True, kw_only=True)
class StepEstimate:
    """Times of the steps of P plans by part, in s, each of shape [P]."""

    pipeline_s: np.ndarray
    """From the first forward to the last backward pass."""
    bubble_s: np.ndarray
    """What of that the busiest stage idles."""
    gradients_s: np.ndarray
    """Gathers before the first and sums after the last pass that nothing hides."""
    update_s: np.ndarray
    """The optimizer."""
    exposed_dark_s: np.ndarray
    """Changes of circuits."""

    @property
    def step_time_s(self) -> np.ndarray:
        """The whole step."""
        return self.pipeline_s + self.gradients_s + self.update_s + self.exposed_dark_s


def exposed_s(moved_s: np.ndarray, beside_s: np.ndarray, pieces: np.ndarray) -> np.ndarray:
    """Return how long a transfer in pieces outlasts the work whose pieces it follows, or delays it.

    Parameters
    ----------
    moved_s, beside_s : numpy.ndarray
        The whole transfer, and the whole work.
    pieces : numpy.ndarray
        Equal pieces of both; a piece travels when its work is done (or is worked on when it has arrived).

    Notes
    -----
    A two-machine flow shop of B equal jobs: the last transfer, and B - 1 times what a transfer takes longer
    than the work (Johnson, Naval Research Logistics 1 (1954) 61).
    """
    piece_s = moved_s / pieces
    return piece_s + (pieces - 1) * np.maximum(0.0, piece_s - beside_s / pieces)


def estimate(arrays: StepArrays) -> StepEstimate:
    """Return the step times of all plans."""
    busy = _busy(arrays)
    pipeline_s = _pipeline_s(arrays, busy)
    chunks, forward_s = arrays.chunks, busy.forward_s[:, FIRST]
    gathered_s = exposed_s(arrays.gather_s[:, FIRST] / chunks, forward_s / chunks, arrays.pieces)
    summed_s = _summed_s(arrays, busy)
    lead_s = np.where(arrays.stages > 1, _lead_s(arrays, busy, summed_s), 0.0)
    late_s = _late_once_s(arrays, busy, (gathered_s, summed_s)) + _slow_ends_s(arrays)
    summed_s = np.maximum(summed_s, _sums_behind_s(arrays) - pipeline_s)
    return StepEstimate(
        pipeline_s=pipeline_s,
        bubble_s=np.maximum(0.0, pipeline_s - busy.busiest_s * arrays.microbatches),
        gradients_s=summed_s + gathered_s + late_s + lead_s,
        update_s=arrays.update_s[:, FIRST],
        exposed_dark_s=arrays.reconfiguration_s
        * (arrays.changes_once + arrays.changes_each * arrays.microbatches),
    )


def _summed_s(arrays: StepArrays, busy: _Busy) -> np.ndarray:
    """Return how long sums of the first stage go on behind its last pass, shape [P]."""
    chunks, sum_s = arrays.chunks, arrays.sum_s[:, FIRST]
    beside_s = busy.backward_s[:, FIRST] / chunks
    shown_s = exposed_s(sum_s / chunks, beside_s, arrays.pieces)
    # The last gradients arrive before the last pass, beside which ports are free.
    every = np.where(arrays.sums_each, arrays.microbatches * arrays.moved_share, 1)
    return np.where(arrays.sums_last, np.maximum(shown_s, every * sum_s - beside_s), shown_s)


def _lead_s(arrays: StepArrays, busy: _Busy, summed_s: np.ndarray) -> np.ndarray:
    """Return how much later than the first stage another one ends, shape [P].

    Stages end one after the other, the first one last: what later ones sum longer may hide behind that.
    """
    chunks, backward_s = arrays.chunks, busy.backward_s
    together = (arrays.order == Order.FOLDED) | (arrays.order == Order.BOTH_WAYS)
    lead_s = np.zeros_like(summed_s)
    for place in (INNER, LAST):
        later_s = exposed_s(arrays.sum_s[:, place] / chunks, backward_s[:, place] / chunks, arrays.pieces)
        earlier_s = np.where(place == LAST, arrays.stages - 1, 1) * backward_s[:, INNER] / chunks
        end_s = later_s + arrays.update_s[:, place] - np.where(together, 0.0, earlier_s)
        lead_s = np.maximum(lead_s, end_s - summed_s - arrays.update_s[:, FIRST])
    return lead_s


def _backlog_s(arrays: StepArrays, way: int, pass_s: np.ndarray) -> np.ndarray:
    """Return how far gathers (way 0) or sums (1) once a step are behind chunks in the end, shape [P].

    Chunks of a line or a V begin and end a pipeline apart; those of DualPipe end at once.
    """
    moved_s = (arrays.gather_s, arrays.sum_s)[way][:, FIRST]
    apart = np.where(arrays.order == Order.BOTH_WAYS, 1, arrays.stages)
    behind_s = np.maximum(0.0, moved_s - apart * pass_s) * (arrays.chunks - 1) / arrays.chunks
    each = arrays.gathers > 0 if way == 0 else arrays.sums_each | arrays.sums_last
    return np.where(each, 0.0, behind_s)


def _late_once_s(arrays: StepArrays, busy: _Busy, shown_s: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return what a step is longer for gathers and sums once a step that something hides, shape [P].

    Parameters
    ----------
    arrays, busy : StepArrays, _Busy
        The steps, and their passes.
    shown_s : tuple of numpy.ndarray
        Gathers, and sums, that nothing hides, shape [P] each.

    Notes
    -----
    They slow what runs beside them. Where a stage is one chunk, that is its first or last pass, which then
    hides more of them. Of several chunks in a line, gathers run ahead beside as many passes as there are
    stages; the sum of each slows the first pass of the next one, on every stage, unless that comes later for
    being slowed on the others. Passes may be late by as much as gathers or sums are behind.
    """
    line = np.isin(arrays.order, LINES)
    several = line & (arrays.chunks > 1)
    found = np.zeros_like(shown_s[0])
    for way, pass_s in enumerate((busy.forward_s[:, FIRST], busy.backward_s[:, FIRST])):
        beside = np.where(several, np.minimum(arrays.stages, arrays.microbatches), 1)
        taken_s = arrays.taken_s[:, FIRST, way]
        share = taken_s / np.maximum(pass_s + taken_s, 1e-300)
        moved_s = (arrays.gather_s, arrays.sum_s)[way][:, FIRST]
        backlog_s = _backlog_s(arrays, way, pass_s)
        behind_s = 0.0 if way == 0 else backlog_s
        each = arrays.gathers > 0 if way == 0 else arrays.sums_each
        met_s = np.where(each, 0.0, moved_s - shown_s[way] - behind_s)
        met_s = met_s / (beside if way == 0 else 1.0 + share * (beside - 1))
        taken_s = beside * _late_s(arrays, way, met_s[:, None])[:, FIRST]
        alone_s, slowed_s = (exposed_s(moved_s, one, arrays.pieces) for one in (pass_s, pass_s + taken_s))
        of_one = taken_s + np.where(line, slowed_s - alone_s, behind_s)
        found += np.where(several, np.maximum(taken_s, backlog_s), of_one)
    return found


def _sums_behind_s(arrays: StepArrays) -> np.ndarray:
    """Return when the sums of every microbatch end that move one after the other from the first one on, [P].

    What a stage runs before its first sum hides none of them: the fill of the pipeline, forward passes that
    run ahead, and passes of inputs ahead of those of weights. 0 where gathers stand between the sums, where
    these wait for sends, and on pipelines with two chunks of a microbatch on every stage.
    """
    p, m, send_s = arrays.stages, arrays.microbatches, arrays.send_s
    sums_s = np.where(arrays.sums_each[:, None], arrays.sum_s, 0.0)
    pieces = (arrays.pieces * arrays.chunks)[:, None]
    late_s = _late_s(arrays, 1, sums_s) * (1.0 - 1.0 / pieces)  # none before the first piece's sum
    split = np.isin(arrays.order, SPLIT)
    depth = np.where(arrays.order == Order.SPLIT_AHEAD, 2, 1)
    down_s = arrays.whole_s[:, 0] + (p - 1) * send_s
    ahead_s = np.where(arrays.order == Order.FORWARD_FIRST, (m - 1) * arrays.forward_s.max(axis=1), 0.0)
    # On its way up, a microbatch passes the last stage and those inside, each with sums of its own.
    backward_s = arrays.inputs_s + np.where(split[:, None], 0.0, arrays.weights_s + late_s)
    last_s, inner_s = backward_s[:, LAST], backward_s[:, INNER]
    ups = [last_s + np.maximum(p - more, 0) * inner_s for more in (2, 3)]
    ups.append(np.zeros_like(last_s))
    found = np.zeros_like(send_s)
    for stage, place, up_s in zip((0, np.minimum(1, p - 1), p - 1), (FIRST, INNER, LAST), ups, strict=True):
        arrives_s = down_s + ahead_s + np.where(p > 1, up_s + (p - 1 - stage) * send_s, 0.0) / arrays.chunks
        waits = np.where(split, np.minimum(depth * stage, np.maximum(m - 1, 0)), 0)
        inputs_s, weights_s = arrays.inputs_s[:, place], arrays.weights_s[:, place]
        waits_s = waits * (arrays.forward_s[:, place] + inputs_s)
        ahead_of_s, summed_s = (
            np.where(split, inputs_s, 0.0),
            np.where(split, weights_s, inputs_s + weights_s),
        )
        own_s = ahead_of_s + summed_s / pieces[:, 0]
        found = np.maximum(found, arrives_s + waits_s + own_s + m * sums_s[:, place])
    lines = ~np.isin(arrays.order, (Order.FOLDED, Order.BOTH_WAYS))
    return np.where(lines & (arrays.gathers == 0) & ~arrays.sums_last, found, 0.0)


def _slow_ends_s(arrays: StepArrays) -> np.ndarray:
    """Return how much longer the step's last backward pass takes on the stages after the first, shape [P].

    Where a stage is one chunk in several pieces, each piece but the first runs beside the sum of the one
    before it. Passes of inputs apart from those of weights go up before any sum.
    """
    single = np.isin(arrays.order, LINES) & (arrays.chunks == 1)
    once = single & (arrays.pieces > 1) & ~arrays.sums_each & ~arrays.sums_last
    blocks, pieces = arrays.blocks[:, INNER], arrays.pieces
    end, middle = (one / blocks for one in _piece_blocks(blocks, pieces))
    taken_s = arrays.taken_s[:, INNER, 1]
    pass_s, sum_s = (arrays.inputs_s + arrays.weights_s)[:, INNER] + taken_s, arrays.sum_s[:, INNER]
    beside_s = (
        np.minimum(middle * pass_s, end * sum_s)
        + np.maximum(0, pieces - 3) * middle * np.minimum(pass_s, sum_s)
        + np.where(pieces > 2, np.minimum(end * pass_s, middle * sum_s), 0.0)
    )
    lost_s = np.maximum(0.0, beside_s * taken_s / np.maximum(pass_s, 1e-300) - arrays.slack_s[:, INNER, 1])
    return np.where(once, (arrays.stages - 1) * lost_s, 0.0)


def _late_s(arrays: StepArrays, way: int, moved_s: np.ndarray) -> np.ndarray:
    """Return how much longer passes forward (0) or backward (1) take beside what moves, shape [P, 3]."""
    pass_s = arrays.forward_s if way == 0 else arrays.inputs_s + arrays.weights_s
    return _lost_s(pass_s, arrays.taken_s[:, :, way], arrays.slack_s[:, :, way], moved_s)


def _lost_s(work_s: np.ndarray, taken_s: np.ndarray, slack_s: np.ndarray, moved_s: np.ndarray) -> np.ndarray:
    """Return how much longer work takes beside so much traffic, which takes units from it.

    Parameters
    ----------
    work_s : numpy.ndarray
        The work alone.
    taken_s : numpy.ndarray
        Time by which it is longer beside traffic all along.
    slack_s : numpy.ndarray
        Time of it that it waits for launches, and makes up in.
    moved_s : numpy.ndarray
        The traffic.
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


class _Busy(_Passes):
    """Passes on the three stages, gathers and sums beside them counted, shape [P, 3] each."""

    @property
    def busiest_s(self) -> np.ndarray:
        """All passes on the stage where they take longest, shape [P]."""
        return (self.forward_s + self.backward_s).max(axis=1)

    def rows(self, which: np.ndarray) -> _Busy:
        """Return some of the plans."""
        return _Busy(
            forward_s=self.forward_s[which], inputs_s=self.inputs_s[which], weights_s=self.weights_s[which]
        )


def _busy(arrays: StepArrays) -> _Busy:
    """Return the passes of a microbatch on a stage with the gathers and sums beside it.

    Without gathers, sums go on beside the next forward pass. With them both passes are played piece by piece.
    Sums that wait for their circuits until the last send hold units all that time.
    """
    inputs_s = arrays.inputs_s
    held = (arrays.sums_each & arrays.sums_last)[:, None]
    sums = arrays.sums_each[:, None] & ~held
    summed_s = np.where(sums, arrays.sum_s, 0.0) * arrays.moved_share[:, None]
    always_s = np.where(held, np.inf, summed_s)
    later = np.where(held, 1.0 - 1.0 / arrays.microbatches[:, None], 1.0)  # none before the first sum
    forward_s = arrays.forward_s + np.where(held, later * _late_s(arrays, 0, always_s), 0.0)
    backward_s = inputs_s + arrays.weights_s + later * _late_s(arrays, 1, always_s)
    weights_s = np.maximum(backward_s, summed_s - forward_s) - inputs_s
    rows = np.flatnonzero(arrays.gathers > 0)
    if not len(rows):
        return _Busy(forward_s=forward_s, inputs_s=inputs_s, weights_s=weights_s)
    forward_s, inputs_s = forward_s.copy(), inputs_s.copy()
    kinds = np.stack([arrays.order, arrays.pieces, arrays.chunks, arrays.gathers], axis=1)[rows]
    for order, pieces, chunks, gathers in np.unique(kinds, axis=0):
        which = rows[(kinds == (order, pieces, chunks, gathers)).all(axis=1)]
        played = _Pieces(arrays, which, order=Order(int(order)), pieces=int(pieces), chunks=int(chunks))
        found = played.busy(backward=gathers > 1)
        forward_s[which], inputs_s[which], weights_s[which] = (
            found.forward_s,
            found.inputs_s,
            found.weights_s,
        )
    return _Busy(forward_s=forward_s, inputs_s=inputs_s, weights_s=weights_s)


ROUNDS = 3
"""Microbatches that a stage plays until the last one's time repeats."""
FORWARD, INPUTS, WEIGHTS = range(3)
"""Parts of a microbatch's passes, in the arrays of shape [P, 3, 2, 3]."""


def _piece_blocks(blocks: np.ndarray, pieces: np.ndarray | int) -> tuple[np.ndarray, np.ndarray]:
    """Return the blocks of the first and the last piece of a chunk, and of each piece between them.

    Of more than two pieces the first and the last hold a block each, where there are so many.
    """
    even = blocks / pieces
    end = np.where(pieces > 2, np.minimum(1.0, even), even)
    inner = np.maximum(0.0, blocks - 2 * end) / np.maximum(1, pieces - 2)
    return end, np.where(pieces > 2, inner, even)


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """Work on one piece of a stage, what is gathered for it and summed after it, in s, [Q, 3] each."""

    work_s: np.ndarray
    taken_s: np.ndarray
    slack_s: np.ndarray
    gather_s: np.ndarray
    sum_s: np.ndarray
    gathers: bool
    sums: bool


class _Pieces:
    """Stages that gather each piece of their parameters before its pass, and sum its gradients after it.

    Parameters
    ----------
    arrays : StepArrays
        Steps of plans.
    rows : numpy.ndarray
        Plans of one order, and of as many chunks and pieces, shape [Q].
    order : Order
        Their order.
    pieces, chunks : int
        Pieces of a chunk, and chunks of a stage.

    Notes
    -----
    As `workloads.step.stage` has it: a piece's gather may begin when the last piece but one has been worked
    on, and waits for the sums before it; the embedding stands in a chunk's first piece and the head in its
    last one, which hold one block each where there are more than two. Compute and transfers are two machines
    that wait for each other, of which three microbatches are played (max-plus).
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
        self._passes_s = np.stack([one[rows] for one in passes], axis=2)
        self._ends_s = np.minimum(arrays.ends_s[rows], 0.9 * self._passes_s[:, :, None])
        end, middle = _piece_blocks(arrays.blocks[rows] / self._chunks, pieces)
        self._held = [end, *[middle] * (pieces - 2), end][:pieces]

    def busy(self, *, backward: bool) -> _Busy:
        """Return the passes, with gathers for the backward passes too or not."""
        split = self._order in SPLIT
        parts = [(FORWARD,), *([(INPUTS,), (WEIGHTS,)] if split else [(INPUTS, WEIGHTS)])]
        last = self._chunks - 1
        kinds = {0, last} | ({1} if last > 1 else set())
        alone_s = [np.zeros_like(self._gather_s) for _ in parts]
        round_s = np.zeros_like(self._gather_s)
        for kind in sorted(kinds):
            many = last - 1 if 0 < kind < last else 1
            other = kind if self._order == Order.FOLDED else last - kind
            runs = [
                self._run(part, kind if part == (FORWARD,) else other, gathers=backward or part == (FORWARD,))
                for part in parts
            ]
            for place, run in enumerate(runs):
                alone_s[place] += many * _period_s(run)
            round_s += many * _period_s([piece for run in runs for piece in run])
        if self._order == Order.FORWARD_FIRST:
            round_s = alone_s[0] + alone_s[1]
        forward_s = np.minimum(alone_s[0], round_s)
        inputs_s = alone_s[1] if split else self._passes_s[:, :, INPUTS]
        inputs_s = np.minimum(inputs_s, round_s - forward_s)
        return _Busy(forward_s=forward_s, inputs_s=inputs_s, weights_s=round_s - forward_s - inputs_s)

    def _run(self, parts: tuple[int, ...], chunk: int, *, gathers: bool) -> list[_Piece]:
        """Return the pieces of a pass through a chunk, in its order."""
        rows, many = self._rows, len(self._held)
        way = min(parts[0], 1)
        pass_s = sum(self._passes_s[:, :, part] for part in parts)
        ends_s = sum(self._ends_s[:, :, :, part] for part in parts)
        whole = np.maximum(pass_s, 1e-300)
        both_s = whole if way == 0 else self._passes_s[:, :, 1:].sum(axis=2)
        taken = self._arrays.taken_s[rows, :, way] / np.maximum(both_s, 1e-300)
        slack = self._arrays.slack_s[rows, :, way] / np.maximum(both_s, 1e-300)
        blocks = np.maximum(self._arrays.blocks[rows], 1e-300)
        block_s = (pass_s - ends_s.sum(axis=2)) / blocks
        ends = self._arrays.ends_share[rows]
        block_share = (1.0 - ends.sum(axis=2)) / blocks
        found = []
        for index, held in enumerate(self._held):
            work_s, share = held * block_s, held * block_share
            first = index == 0 and chunk == 0
            final = index == many - 1 and chunk == self._chunks - 1
            for end, here in enumerate((first, final)):
                if here:
                    work_s, share = work_s + ends_s[:, :, end], share + ends[:, :, end]
            found.append(
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
        return found if parts == (FORWARD,) else found[::-1]


@dataclass(kw_only=True)
class _Sum:
    """Sum of the gradients of one piece, in s, [Q, 3] each."""

    done_s: np.ndarray
    """End of the piece's work."""
    sum_s: np.ndarray
    """Time it takes."""
    earlier: _Sum | None
    """The one before it in its pass, which it waits for."""
    end_s: np.ndarray
    """Its end; infinite until it has begun."""
    waits: np.ndarray
    """Whether it has not begun."""


def _served(moved_s: np.ndarray, waiting: list[_Sum], until_s: np.ndarray) -> np.ndarray:
    """Begin the sums that are asked for until a time, and return when transfers end then."""
    for one in waiting:
        asked_s = one.done_s if one.earlier is None else np.maximum(one.done_s, one.earlier.end_s)
        begins = (asked_s <= until_s) & one.waits
        if begins.any():
            moved_s = np.where(begins, np.maximum(moved_s, asked_s) + one.sum_s, moved_s)
            one.end_s = np.where(begins, moved_s, one.end_s)
            one.waits &= ~begins
    return moved_s


def _period_s(run: list[_Piece]) -> np.ndarray:
    """Return the time of one round of pieces that are run over and over, shape [Q, 3].

    Gathers and sums move one after the other, in the order in which they are asked for: a gather when the
    last piece but one is done, a sum when its piece and the sum before it are.
    """
    end_s = np.zeros_like(run[0].work_s)
    moved_s, ready_s = run[0].gather_s, run[0].gather_s  # the transfers' end, and the next piece's arrival
    waiting: list[_Sum] = []
    earlier: _Sum | None = None
    marks = []
    all_s = sum((piece.gather_s * piece.gathers + piece.sum_s * piece.sums for piece in run), 0.0 * end_s)
    for number in range(ROUNDS * len(run)):
        before, here, after = (run[(number + step) % len(run)] for step in (-1, 0, 1))
        begin_s = np.maximum(end_s, ready_s)
        if not before.sums:
            earlier = None
        elif number:
            earlier = _Sum(
                done_s=end_s,
                sum_s=before.sum_s,
                earlier=earlier,
                end_s=np.full_like(end_s, np.inf),
                waits=np.ones(end_s.shape, dtype=bool),
            )
            waiting.append(earlier)
        moved_s = _served(moved_s, waiting, end_s)
        waiting = [one for one in waiting if one.waits.any()]
        if after.gathers:
            moved_s = ready_s = np.maximum(moved_s, end_s) + after.gather_s
        else:
            ready_s = end_s
        left_s = sum((np.where(one.waits, one.sum_s, 0.0) for one in waiting), moved_s - begin_s)
        end_s = begin_s + here.work_s + _lost_s(here.work_s, here.taken_s, here.slack_s, left_s)
        if (number + 1) % len(run) == 0:
            marks.append(end_s)
    # Sums that fall behind move in the end: no round is shorter than what all rounds' transfers take.
    return np.maximum(marks[-1] - marks[-2], all_s)


def _pipeline_s(arrays: StepArrays, busy: _Busy) -> np.ndarray:
    """Return the time from the first forward to the last backward pass by each plan's schedule, shape [P]."""
    p, m, v = arrays.stages, arrays.microbatches, arrays.chunks
    busiest_s = busy.busiest_s
    # Gathers and sums of all stages go on at once, so that filling the pipeline waits for one stage's only.
    beside_s = busiest_s - (arrays.forward_s + arrays.inputs_s + arrays.weights_s).max(axis=1)
    whole_s = arrays.whole_s.sum(axis=1) + beside_s
    hops_s = 2 * arrays.send_s * (p - 1)
    # 1F1B: p microbatches are under way, so that a round trip bounds the period.
    period_s = np.maximum(busiest_s, np.maximum((whole_s + hops_s) / p, arrays.send_s))
    alternating = whole_s + hops_s + (m - 1) * busiest_s + np.maximum(0, m - p) * (period_s - busiest_s)
    # Fewer microbatches than stages wait in every chunk for the first one to come round.
    steady_s = m * np.maximum(busiest_s, arrays.period_s)
    filled_s = np.where(
        m < p, whole_s + (m - 1) * _longest_chunk_s(arrays, busy), steady_s + (whole_s - busiest_s) / v
    )
    interleaved = filled_s + 2 * arrays.send_s * (p * v - 1)
    apart_s = busy.forward_s.max(axis=1) + busy.backward_s.max(axis=1)
    forward_first = whole_s + hops_s + (m - 1) * np.maximum(apart_s, 2 * arrays.send_s)
    passes_s = busy.forward_s + busy.backward_s
    first_s, inner_s = m * passes_s[:, FIRST], m * passes_s[:, INNER]
    forms = {
        Order.FORWARD_FIRST: forward_first,
        Order.FOLDED: np.maximum(inner_s + _folded_idle_s(arrays), first_s + _folded_first_idle_s(arrays)),
        Order.BOTH_WAYS: np.maximum(
            inner_s + _both_ways_idle_s(arrays), first_s + _both_ways_first_idle_s(arrays)
        ),
    }
    flushed = np.where(v > 1, interleaved, alternating)
    piped = np.select([arrays.order == order for order in forms], list(forms.values()), flushed)
    for order, depth in ((Order.SPLIT_BACKWARD, 1), (Order.SPLIT_AHEAD, 2)):
        rows = np.flatnonzero((arrays.order == order) & (p > 1))
        if len(rows):
            piped[rows] = beside_s[rows] + _split_s(
                arrays, busy.rows(rows), rows=rows, depth=depth, busiest_s=busiest_s[rows]
            )
    return np.where(p == 1, m * busiest_s, piped)


def _longest_chunk_s(arrays: StepArrays, busy: _Busy) -> np.ndarray:
    """Return the passes of a microbatch through the chunk where they take longest, shape [P].

    The embedding stands in the first chunk of its stage, the head in the last one of its own.
    """
    ends_s = np.minimum(arrays.ends_s.sum(axis=3), (busy.forward_s + busy.backward_s)[:, :, None])
    even_s = (busy.forward_s + busy.backward_s - ends_s.sum(axis=2)) / arrays.chunks[:, None]
    return (even_s + ends_s.max(axis=2)).max(axis=1)


def _split_s(
    arrays: StepArrays, busy: _Busy, *, rows: np.ndarray, depth: int, busiest_s: np.ndarray
) -> np.ndarray:
    """Return the time from the first to the last pass of ZB-H1 (depth 1) or ZB-H2 (2), shape [rows].

    Stage i runs ``a = min(depth (p - 1 - i), m)`` forward passes ahead, and g of the weights' passes before
    its last pass of inputs. The longest of these ways through the order (max-plus) is taken: the first
    microbatch goes down to the last stage and back up to stage i, which runs what it has left until its last
    pass of inputs; that goes up to stage j, which runs the weights that it has left. Stages are the first
    and the last one, and the inner one as the second and the last but one. With equal stages and no sends
    that is exact for ZB-H1, and within 3 % for ZB-H2, with any number of microbatches.
    """
    p, m, send_s = arrays.stages[rows], arrays.microbatches[rows], arrays.send_s[rows]
    down_s = arrays.whole_s[rows, 0] + (p - 1) * send_s
    inputs_s = busy.inputs_s
    up_s = arrays.whole_s[rows, 1]
    second_s, behind_s = up_s - inputs_s[:, FIRST], inputs_s[:, INNER] + inputs_s[:, LAST]
    # Stage, its place in the arrays, and the inputs' passes from the last stage up to it.
    zero = np.zeros_like(p)
    places = (
        (zero, FIRST, up_s),
        (zero + 1, INNER, second_s),
        (p - 2, INNER, behind_s),
        (p - 1, LAST, inputs_s[:, LAST]),
    )
    longest_s = m * busiest_s
    for number, (low, near, _) in enumerate(places):
        ahead = np.minimum(depth * (p - 1 - low), m)
        filled = np.minimum(ahead + 1, m)
        done = np.maximum(0, m - 1 - np.minimum(depth * low, m - ahead))
        # Until the weights' passes begin, a round trip of ZB-H1 leaves no room for its sends.
        rounds = np.minimum(low, np.maximum(m - 2, 0)) if depth == 1 else zero
        run_s = (m - filled) * busy.forward_s[:, near] + (m - 1) * inputs_s[:, near]
        run_s = down_s + run_s + done * busy.weights_s[:, near] + 2 * rounds * send_s
        for high, far, back_s in places[: number + 1]:
            ended = np.maximum(0, m - 1 - np.minimum(depth * high, np.maximum(m - depth * (p - 1 - high), 0)))
            end_s = run_s + back_s + (p - 1 - high) * send_s + (m - ended) * busy.weights_s[:, far]
            inner = (near == INNER) | (far == INNER)
            longest_s = np.where((p > 2) | (not inner), np.maximum(longest_s, end_s), longest_s)
    flying = depth * (p - 1) + 1
    round_s = arrays.whole_s[rows, :2].sum(axis=1) + busy.weights_s[:, FIRST] + 2 * (p - 1) * send_s
    return longest_s + np.maximum(0, m - flying) * np.maximum(0.0, round_s / flying - busiest_s)


class _Chunk(_Passes):
    """Passes through a chunk, shape [P] each."""

    @classmethod
    def of(cls, passes_s: np.ndarray) -> _Chunk:
        """Return the chunk of passes in an array of shape [P, 3]."""
        forward_s, inputs_s, weights_s = passes_s.T
        return cls(forward_s=forward_s, inputs_s=inputs_s, weights_s=weights_s)


@dataclass(frozen=True, kw_only=True)
class _Chunks:
    """Chunks of a folded pipeline, or of one that is entered at both ends."""

    inner: _Chunk
    """Of a stage inside it."""
    embedding: _Chunk
    """Of the first stage, with the embedding."""
    head: _Chunk
    """The other one of the first stage, with the head."""

    @classmethod
    def of(cls, arrays: StepArrays, chunks: int) -> _Chunks:
        """Return the chunks of stages where a microbatch passes through so many of their two."""
        three = (arrays.forward_s, arrays.inputs_s, arrays.weights_s)
        passes_s = np.stack(three, axis=2) / chunks
        ends_s = arrays.ends_s[:, FIRST] / chunks
        even_s = passes_s[:, FIRST] - ends_s.sum(axis=1)
        embedding, head = (_Chunk.of(even_s + 2.0 * ends_s[:, end]) for end in range(2))
        return cls(inner=_Chunk.of(passes_s[:, INNER]), embedding=embedding, head=head)


def _folded_first_idle_s(arrays: StepArrays) -> np.ndarray:
    """Return what the first stage of ZB-V idles where embedding and head make it the slowest, shape [P].

    The ways as for `_folded_idle_s`, along which most microbatches are waited for on that stage: while the V
    is filled, and while it is emptied.
    """
    n, send_s = arrays.stages - 1.0, arrays.send_s
    chunks = _Chunks.of(arrays, 2)
    one, first, last = chunks.inner, chunks.embedding, chunks.head
    fills_s = np.maximum(0.0, 2 * n * (one.forward_s - first.forward_s + send_s))
    empties_s = (
        n * (2 * one.inputs_s - first.backward_s) + 2 * n * send_s,
        (n + 1) * (one.backward_s - first.backward_s) + n * one.weights_s + n * send_s,
        (one.forward_s - first.forward_s + one.weights_s - last.weights_s)
        + n * (4 * one.inputs_s - first.backward_s - last.forward_s - last.backward_s + 4 * send_s),
    )
    return np.maximum(0.0, fills_s + np.max(empties_s, axis=0) - last.weights_s)


def _both_ways_first_idle_s(arrays: StepArrays) -> np.ndarray:
    """Return what the outer stages of DualPipe idle where embedding and head make them slowest, shape [P]."""
    p, send_s = arrays.stages, arrays.send_s
    n = p / 2 - 1.0
    chunks = _Chunks.of(arrays, 1)
    one, first, last = chunks.inner, chunks.embedding, chunks.head
    fills_s = np.maximum(0.0, 2 * n * (one.forward_s - first.forward_s) + (p - 1) * send_s)
    empties_s = (
        n * (2 * one.inputs_s - first.backward_s) + (p - 1) * send_s,
        (n + 1) * (one.backward_s - first.backward_s + send_s),
        (one.forward_s - first.forward_s + one.weights_s - last.forward_s - last.weights_s)
        + n * (4 * one.inputs_s + one.weights_s - first.backward_s - last.forward_s - last.backward_s)
        + (4 * n + 1) * send_s,
    )
    return fills_s + np.maximum(0.0, np.max(empties_s, axis=0))


def _folded_idle_s(arrays: StepArrays) -> np.ndarray:
    """Return what a stage of ZB-V idles, shape [P].

    The longest of the ways from the first pass to the last (max-plus) that bind where passes of a chunk are
    within a factor of three of each other: forms in n = p - 1 and the passes' times, the same from 4 to 10
    stages, read off the gradient of a played order. With equal passes n F is left, the fill; with slow sends,
    a round of a microbatch over the p that are under way. The last way binds where a stage holds an odd
    number of blocks, of which the second chunk has one more.
    """
    n, send_s = arrays.stages - 1.0, arrays.send_s
    forward_s, inputs_s, weights_s = (
        column[:, INNER] / 2.0 for column in (arrays.forward_s, arrays.inputs_s, arrays.weights_s)
    )
    odd = arrays.blocks[:, INNER] % 2.0 / arrays.blocks[:, INNER]
    ways = (
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
    return np.maximum(0.0, np.max(ways, axis=0)) + waits_s


def _both_ways_idle_s(arrays: StepArrays) -> np.ndarray:
    """Return what a stage of DualPipe idles, shape [P].

    As for ZB-V, in n = p / 2 - 1; the first form is that of table 2 of the reference, whose F & B passes of
    either way take as long as one after the other.
    """
    p, send_s = arrays.stages, arrays.send_s
    n = p / 2 - 1.0
    forward_s, inputs_s, weights_s = (
        column[:, INNER] for column in (arrays.forward_s, arrays.inputs_s, arrays.weights_s)
    )
    ways = (
        n * (forward_s + inputs_s - weights_s) + (5 * n + 2) * send_s,
        n * forward_s + 2 * (p - 1) * send_s,
        n * (2 * inputs_s - weights_s) - forward_s + (3 * p - 4) * send_s,
    )
    round_s = 4 * (p - 1) * send_s / p - forward_s - inputs_s - weights_s
    waits_s = np.maximum(0, arrays.microbatches - p) * np.maximum(0.0, round_s)
    return np.maximum(0.0, np.max(ways, axis=0)) + waits_s
