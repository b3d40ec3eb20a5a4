"""Time that plans lose where gathers and sums share links with the traffic inside passes.

`slowdowns` says how much two collectives slow each other down while both move; `beside_sums` makes the
passes, gathers and sums of a step longer by the time for which they meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simulator.collectives.lines import LinePrices, inner_class
from simulator.layout import Axis, RankLayout
from simulator.operators import Collective, CollectiveKind, Phase
from simulator.step_estimate import StepArrays
from workloads.pipeline.schedule import Pass

AXES = ("tp", "cp", "ep")
"""Axes with traffic inside passes."""
BOTH = (Pass.FORWARD, Pass.BACKWARD)
"""Passes of a microbatch, the backward one whole."""

SUM = Collective(
    name="gradients",
    phase=Phase.GRAD_WEIGHT,
    kind=CollectiveKind.REDUCE_SCATTER,
    axis="dp",
    size=2,
    payload_bytes=1.0,
)
"""A sum of gradients; its axis, size and payload are those of a plan."""


@dataclass(frozen=True, kw_only=True)
class Slowdowns:
    """Time of traffic while another moves over its time alone, by axis inside passes, shape [P] each.

    Dimensionless, at least 1.
    """

    inside: Mapping[str, np.ndarray]
    """Of an axis' traffic, while gathers or sums move."""
    sums: Mapping[str, np.ndarray]
    """Of gathers and sums, while an axis' traffic moves."""

    def by_plan(self, number_of: np.ndarray) -> Slowdowns:
        """Return those of plans from those of layouts, of which each plan has a number, shape [P]."""
        return Slowdowns(
            inside={axis: column[number_of] for axis, column in self.inside.items()},
            sums={axis: column[number_of] for axis, column in self.sums.items()},
        )


@dataclass(frozen=True, kw_only=True)
class PassTraffic:
    """Traffic inside the passes of P plans, and its slowdown beside gathers and sums on the same links."""

    blocks: np.ndarray
    """Blocks of the first, the fullest inner and the last stage, shape [P, 3]."""
    layers: int
    """Blocks of the model."""
    waited_s: Mapping[str, np.ndarray]
    """Traffic of a block that a pass waits for, forward and backward, by axis, shape [P, 2] each."""
    ring_s: np.ndarray
    """Traffic of a block on the ring of context ranks, forward and backward, shape [P, 2]."""
    ring_work_s: np.ndarray
    """Work of a block that may hide it, shape [P, 2]."""
    slowdowns: Slowdowns
    """Slowdowns of this traffic and of gathers and sums by each other."""


def slowdowns(
    prices: LinePrices,
    layouts: Sequence[RankLayout],
    inside: Mapping[tuple[int, str], Collective],
    *,
    experts: bool = False,
) -> Slowdowns:
    """Return the slowdowns of traffic inside passes and of gathers and sums by each other, of L layouts.

    Parameters
    ----------
    prices : LinePrices
        Collectives on one fabric.
    layouts : sequence of RankLayout
        The L layouts of ranks.
    inside : mapping
        A collective inside passes, by number of layout and axis.
    experts : bool
        Whether the sums are those of experts' gradients, over `Axis.REPLICAS`, and not those of all others.
    """
    found = Slowdowns(
        inside={axis: np.ones(len(layouts)) for axis in AXES},
        sums={axis: np.ones(len(layouts)) for axis in AXES},
    )
    for (number, axis), operator in inside.items():
        layout = layouts[number]
        summed = Axis.REPLICAS if experts else "dp" if layout.cp == 1 else "dpcp"
        size = layout.groups(summed, inner_class(layout)).shape[1]
        both = prices.slowdown(operator, replace(SUM, axis=summed, size=size), layout)
        found.inside[axis][number], found.sums[axis][number] = both.one, both.other
    return found


def mixed(dense: Slowdowns, experts: Slowdowns, share: np.ndarray) -> Slowdowns:
    """Return the slowdowns beside sums of both kinds, those of experts for a share of the time, shape [P]."""
    return Slowdowns(
        inside={
            axis: column * (1.0 - share) + experts.inside[axis] * share
            for axis, column in dense.inside.items()
        },
        sums={
            axis: 1.0 / ((1.0 - share) / column + share / experts.sums[axis])
            for axis, column in dense.sums.items()
        },
    )


def beside_sums(arrays: StepArrays, traffic: PassTraffic) -> StepArrays:
    """Return the pieces of steps whose gathers and sums share links with the traffic inside the passes.

    Parameters
    ----------
    arrays : StepArrays
        Pieces in which every collective has the network to itself.
    traffic : PassTraffic
        Traffic inside the passes, and the slowdowns.

    Notes
    -----
    Let the passes of a microbatch have work c and traffic w, and gathers and sums b move beside them. While
    both move, w takes s times and b takes r times as long. Taken as fluid (w spread evenly over the passes),
    b moves for a share ``f = min(1, b / (c + w s / r))`` of them, and the passes take ``f w (s - 1)`` longer.
    Where b outlasts the passes it has lost ``w s (1 - 1 / r)`` by their end. Traffic on a ring counts with
    what its work does not hide. Sums once a step meet the last backward pass only, which does not make the
    other passes longer.
    """
    inside, sums = traffic.slowdowns.inside, traffic.slowdowns.sums
    passes_s = np.stack([arrays.forward_s, arrays.inputs_s + arrays.weights_s], axis=2)  # [P, 3, 2]
    blocks = traffic.blocks[:, :, None]
    waits_s = {axis: column[:, None, :] * blocks for axis, column in traffic.waited_s.items()}
    ring_s, ring_work_s = (column[:, None, :] * blocks for column in (traffic.ring_s, traffic.ring_work_s))

    # By how much passes are longer while gathers or sums move beside them all along: w (s - 1).
    slowed_s = sum(waits_s[axis] * inside[axis][:, None, None] for axis in AXES)
    shown_s = np.maximum(0.0, ring_s - ring_work_s)
    slowed_shown_s = np.maximum(0.0, ring_s * inside["cp"][:, None, None] - ring_work_s)
    longer_s = slowed_s - sum(waits_s.values()) + slowed_shown_s - shown_s

    # Progress that gathers and sums lose in both passes meanwhile: w s (1 - 1 / r), shape [P, 3].
    lost = {axis: inside[axis] * (1.0 - 1.0 / sums[axis]) for axis in AXES}
    lost_s = sum(waits_s[axis] * lost[axis][:, None, None] for axis in AXES)
    lost_s = (lost_s + ring_s * lost["cp"][:, None, None]).sum(axis=2)

    # Gathers and sums of a microbatch, and the share of its passes for which they move, shape [P, 3].
    gathers, sums_each = arrays.gathers[:, None], arrays.sums_each[:, None]
    moved_s = gathers * arrays.gather_s + np.where(sums_each, arrays.sum_s, 0.0)
    moved_s = moved_s * arrays.moved_share[:, None]
    whole_s = (passes_s + longer_s + np.maximum(0.0, arrays.taken_s - arrays.slack_s)).sum(axis=2)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(moved_s > 0.0, np.minimum(1.0, moved_s / np.maximum(whole_s - lost_s, 1e-300)), 0.0)
        later_s = longer_s * share[:, :, None]
        outlasting = np.where((share >= 1.0) & (moved_s > 0.0), 1.0 + lost_s / moved_s, 1.0)
        once_s = np.where(sums_each, 0.0, arrays.sum_s)
        last_pass_s = passes_s[:, :, 1] + longer_s[:, :, 1]
        outlasting_once = np.where(once_s > last_pass_s, 1.0 + lost_s / 2 / np.maximum(once_s, 1e-300), 1.0)

    through_all_s = arrays.whole_s.copy()
    through_all_s[:, :2] += later_s[:, 1] * (traffic.layers / np.maximum(traffic.blocks[:, 1:2], 1.0))
    return replace(
        arrays,
        forward_s=arrays.forward_s + later_s[:, :, 0],
        inputs_s=arrays.inputs_s + later_s[:, :, 1],
        whole_s=through_all_s,
        gather_s=arrays.gather_s * np.where(gathers > 0, outlasting, 1.0),
        sum_s=arrays.sum_s * np.where(sums_each, outlasting, outlasting_once),
    )
