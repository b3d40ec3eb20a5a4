"""Training steps piece by piece, as arrays over candidate plans, from which their closed form follows."""

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
