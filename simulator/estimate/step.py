"""The fast tier: a training step in closed form, over arrays of candidate plans.

`simulator.engine.simulation` is the truth; where the two differ, this is wrong. What is left out: the order
of passes within a stage beyond what its schedule's bubble says, and pieces of unequal size in what gathers
and sums move. Links that axes share are the caller's to count in the pieces (`workloads.search.costs`).

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
    """Forward and backward passes of a microbatch through all stages together, shape [P]."""
    whole_weights_s: np.ndarray
    """Backward passes of the weights alone through all stages together, shape [P]."""
    period_s: np.ndarray
    """Least time between two microbatches that chunks of unequal size leave, shape [P]; 0 where none do."""
    send_s: np.ndarray
    """One microbatch's send from a stage to the next, shape [P]."""
    gather_s: np.ndarray
    """Gather of a stage's parameters, shape [P, 3]."""
    sum_s: np.ndarray
    """Sum of a stage's gradients, shape [P, 3]."""
    ends_s: np.ndarray
    """Backward pass of a stage's first and last block, with what stands beside them, shape [P, 3]."""
    ends_share: np.ndarray
    """Share of a stage's parameters in those two blocks, shape [P, 3]."""
    gathers: np.ndarray
    """Gathers of a microbatch (0, 1 or 2: none, forward, both ways); once a step where 0, shape [P]."""
    sums_each: np.ndarray
    """Whether every microbatch's gradients are summed, not the step's only, shape [P]."""
    pieces: np.ndarray
    """Pieces in which a chunk's gradients and parameters travel, shape [P]."""
    taken_share: np.ndarray
    """Share of its rate that a pass loses while gathers or sums travel beside it, shape [P]."""
    update_s: np.ndarray
    """Optimizer of a stage, shape [P, 3]."""
    reconfiguration_s: np.ndarray
    """Reconfiguration time of one change of circuits, shape [P]; 0 without circuits."""
    changes_each: np.ndarray
    """Changes of circuits of a stage per microbatch, shape [P]."""
    changes_once: np.ndarray
    """Changes of circuits of a stage per step beside those, shape [P]."""

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
    forward_s, backward_s = _busy(arrays)
    pipeline_s = _pipeline_s(arrays, forward_s, backward_s)
    work_s = (forward_s + backward_s).max(axis=1) * arrays.microbatches
    chunk = arrays.chunks
    summed = exposed_s(arrays.sum_s[:, FIRST] / chunk, backward_s[:, FIRST] / chunk, arrays.pieces)
    # Chunks of a line or a V end a pipeline apart, those of DualPipe at once.
    apart = np.where(arrays.order == Order.BOTH_WAYS, 1, arrays.stages)
    room_s = apart * backward_s[:, FIRST] / chunk * (chunk - 1)
    backlog_s = np.maximum(0.0, arrays.sum_s[:, FIRST] * (chunk - 1) / chunk - room_s)
    backlog_s = np.where(arrays.sums_each, 0.0, backlog_s)
    gathered = exposed_s(arrays.gather_s[:, FIRST] / chunk, forward_s[:, FIRST] / chunk, arrays.pieces)
    # Stages end one after the other, the first one last: what later ones sum longer may hide behind that.
    lead_s = np.zeros_like(summed)
    together = (arrays.order == Order.FOLDED) | (arrays.order == Order.BOTH_WAYS)
    for place in (INNER, LAST):
        later = exposed_s(arrays.sum_s[:, place] / chunk, backward_s[:, place] / chunk, arrays.pieces)
        earlier_s = np.where(place == LAST, arrays.stages - 1, 1) * backward_s[:, INNER] / chunk
        earlier_s = np.where(together, 0.0, earlier_s)
        end_s = later + arrays.update_s[:, place] - earlier_s
        lead_s = np.maximum(lead_s, end_s - summed - arrays.update_s[:, FIRST])
    once_s = np.where(arrays.sums_each, 0.0, arrays.sum_s[:, FIRST] - summed - backlog_s)
    once_s = once_s + np.where(arrays.gathers > 0, 0.0, arrays.gather_s[:, FIRST] - gathered)
    taken_s = arrays.taken_share * np.maximum(0.0, once_s)
    dark_s = arrays.reconfiguration_s * (arrays.changes_once + arrays.changes_each * arrays.microbatches)
    return StepEstimate(
        pipeline_s=pipeline_s,
        bubble_s=np.maximum(0.0, pipeline_s - work_s),
        gradients_s=summed + gathered + backlog_s + taken_s + np.where(arrays.stages > 1, lead_s, 0.0),
        update_s=arrays.update_s[:, FIRST],
        exposed_dark_s=dark_s,
    )


def _busy(arrays: StepArrays) -> tuple[np.ndarray, np.ndarray]:
    """Return the forward and backward time of a microbatch on a stage, gathers and sums beside it counted.

    Without gathers in the backward pass, sums go on beside the next forward pass. With them a piece's gather
    waits for the sums before it, one piece ahead of compute, so that both must keep pace with the backward
    pass; and while the first and the last block, which travel alone, have time to spare, nothing else moves.
    """
    gathers = arrays.gathers[:, None]
    share = arrays.moved_share[:, None]
    taken = arrays.taken_share[:, None]
    ahead_s = np.where(gathers > 0, arrays.gather_s, 0.0) * share
    behind_s = np.where(gathers > 1, arrays.gather_s, 0.0) * share
    forward_s = np.maximum(arrays.forward_s + taken * ahead_s, ahead_s)
    summed_s = np.where(arrays.sums_each[:, None], arrays.sum_s, 0.0) * share
    moved_s = behind_s + summed_s
    work_s = arrays.inputs_s + arrays.weights_s + taken * moved_s
    spare_s = np.maximum(0.0, arrays.ends_s - moved_s * arrays.ends_share)
    paced_s = np.where(gathers > 1, moved_s + spare_s, ahead_s + summed_s - forward_s)
    # Where the backward pass is split, gathers go with its inputs and sums with its weights.
    inputs_s = np.maximum(arrays.inputs_s + taken * behind_s, behind_s)
    split_s = inputs_s + np.maximum(arrays.weights_s + taken * summed_s, summed_s)
    split = np.isin(arrays.order, SPLIT)[:, None] & (gathers > 1)
    return forward_s, np.maximum(work_s, np.where(split, np.maximum(split_s, paced_s), paced_s))


def _pipeline_s(arrays: StepArrays, forward_s: np.ndarray, backward_s: np.ndarray) -> np.ndarray:
    p, m, v = arrays.stages, arrays.microbatches, arrays.chunks
    busiest_s = (forward_s + backward_s).max(axis=1)
    # Gathers and sums of all stages go on at once, so that filling the pipeline waits for one stage's only.
    whole_s = arrays.whole_s + busiest_s - (arrays.forward_s + arrays.inputs_s + arrays.weights_s).max(axis=1)
    hops_s = 2 * arrays.send_s * (p - 1)
    # 1F1B: p microbatches are under way, so that a round trip bounds the period.
    period_s = np.maximum(busiest_s, np.maximum((whole_s + hops_s) / p, arrays.send_s))
    alternating = whole_s + hops_s + (m - 1) * busiest_s + np.maximum(0, m - p) * (period_s - busiest_s)
    # Fewer microbatches than stages wait in every chunk for the first one to come round.
    steady_s = m * np.maximum(busiest_s, arrays.period_s)
    filled_s = np.where(m < p, whole_s + (m - 1) * busiest_s / v, steady_s + (whole_s - busiest_s) / v)
    interleaved = filled_s + 2 * arrays.send_s * (p * v - 1)
    first_s = forward_s.max(axis=1) + backward_s.max(axis=1)
    forward_first = whole_s + hops_s + (m - 1) * np.maximum(first_s, 2 * arrays.send_s)
    weights_s = arrays.weights_s.max(axis=1)
    idle_s = whole_s - busiest_s - 2 * (arrays.whole_weights_s - weights_s)
    # Fewer microbatches than stages leave fewer passes of weights for the gaps.
    idle_s = idle_s + np.maximum(0, p - m) * weights_s
    fill_s = (p - 1) * arrays.forward_s[:, INNER] + 1.5 * hops_s
    drain_s = (p - 1) * arrays.inputs_s[:, INNER] + hops_s
    idle_s = idle_s + np.where(m < p, 1, 2) * hops_s
    split = m * busiest_s + np.maximum(idle_s, np.maximum(fill_s, drain_s))
    flushed = np.where(v > 1, interleaved, alternating)
    forms = {
        Order.FORWARD_FIRST: forward_first,
        Order.SPLIT_BACKWARD: split,
        Order.FOLDED: m * busiest_s + _folded_idle_s(arrays),
        Order.BOTH_WAYS: m * busiest_s + _both_ways_idle_s(arrays),
        Order.SPLIT_AHEAD: m * busiest_s + _ahead_idle_s(arrays),
    }
    piped = np.select([arrays.order == order for order in forms], list(forms.values()), flushed)
    return np.where(p == 1, m * busiest_s, piped)


def _ahead_idle_s(arrays: StepArrays) -> np.ndarray:
    """Return what a stage of ZB-H2 idles, shape [P]; forms as those of `_folded_idle_s`.

    The fill is left, and n (F + B - 2 W) of table 2 of the reference where that is longer; of m microbatches
    the weights' passes of m - 1 at most fill gaps.
    """
    n, send_s = arrays.stages - 1.0, arrays.send_s
    forward_s, inputs_s, weights_s = (
        column[:, INNER] for column in (arrays.forward_s, arrays.inputs_s, arrays.weights_s)
    )
    ways = (
        n * (forward_s + send_s),
        n * (forward_s + inputs_s + 2 * send_s) - np.minimum(arrays.microbatches - 1, 2 * n) * weights_s,
        n * (inputs_s - forward_s + 2 * send_s),
    )
    return np.max(ways, axis=0)


def _folded_idle_s(arrays: StepArrays) -> np.ndarray:
    """Return what a stage of ZB-V idles, shape [P].

    The longest of the ways from the first pass to the last (max-plus) that bind where passes of a chunk are
    within a factor of three of each other: forms in n = p - 1 and the passes' times, the same from 4 to 10
    stages, read off the gradient of a played order. With equal passes n F is left, the fill; with slow sends,
    a round of a microbatch over the p that are under way.
    """
    n, send_s = arrays.stages - 1.0, arrays.send_s
    forward_s, inputs_s, weights_s = (
        column[:, INNER] / 2.0 for column in (arrays.forward_s, arrays.inputs_s, arrays.weights_s)
    )
    ways = (
        n * inputs_s + (5 * n - 2) * send_s,
        n * forward_s - weights_s + 5 * n * send_s,
        2 * n * (inputs_s - weights_s) + (6 * n - 2) * send_s,
        (2 * n - 1) * forward_s - (n - 1) * inputs_s + (3 * n - 2) * send_s,
        inputs_s + (n - 1) * weights_s + 3 * n * send_s,
        forward_s + (n - 1) * weights_s + (3 * n - 2) * send_s,
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
