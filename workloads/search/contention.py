"""Time that plans lose where gathers and sums share links with the traffic inside passes."""

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
"""Axes whose traffic lies within the passes."""
BOTH = (Pass.FORWARD, Pass.BACKWARD)
"""Passes of a microbatch, of which those of inputs and of weights are parts."""

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
class PassTraffic:
    """Traffic inside the passes of P plans, for which links are shared with gathers and sums."""

    blocks: np.ndarray
    """Blocks of the first, the fullest inner and the last stage, shape [P, 3]."""
    layers: int
    """Blocks of the model."""
    waited_s: Mapping[str, np.ndarray]
    """Traffic of a block that a pass waits for, forward and backward, by axis, shape [P, 2] each."""
    ring_s: np.ndarray
    """Traffic of a block on the ring of context ranks, forward and backward, shape [P, 2]."""
    hiding_s: np.ndarray
    """Work of a block that may hide it, shape [P, 2]."""
    inside: Mapping[str, np.ndarray]
    """How many times as long an axis' traffic takes while gathers or sums move, shape [P]; dimensionless."""
    sums: Mapping[str, np.ndarray]
    """How many times as long gathers and sums take while an axis' traffic moves, shape [P]; dimensionless."""


Slowdowns = dict[str, tuple[np.ndarray, np.ndarray]]
"""By axis inside the passes, its slowdown beside gathers and sums, and theirs; dimensionless, at least 1."""


def slowdowns(
    prices: LinePrices,
    layouts: Sequence[RankLayout],
    inside: Mapping[tuple[int, str], Collective],
    *,
    experts: bool = False,
) -> Slowdowns:
    """Return the slowdown of each axis inside the passes beside gathers and sums, and theirs, shape [L].

    Parameters
    ----------
    prices : LinePrices
        Collectives on one fabric.
    layouts : sequence of RankLayout
        Where ranks stand, L ways.
    inside : mapping
        A collective of an axis by number of its layout and axis.
    experts : bool
        Whether the sums are those of experts, among fewer ranks, and not those of all else.
    """
    found = {axis: (np.ones(len(layouts)), np.ones(len(layouts))) for axis in AXES}
    for (number, axis), operator in inside.items():
        layout = layouts[number]
        summed = Axis.REPLICAS if experts else "dp" if layout.cp == 1 else "dpcp"
        size = layout.groups(summed, inner_class(layout)).shape[1]
        both = prices.slowdown(operator, replace(SUM, axis=summed, size=size), layout)
        found[axis][0][number], found[axis][1][number] = both.one, both.other
    return found


def mixed(dense: Slowdowns, experts: Slowdowns, share: np.ndarray) -> Slowdowns:
    """Return the slowdowns beside sums of which those of experts have a share of the time, shape [P] each."""
    return {
        axis: (
            one[0] * (1.0 - share) + experts[axis][0] * share,
            1.0 / ((1.0 - share) / one[1] + share / experts[axis][1]),
        )
        for axis, one in dense.items()
    }


def pass_traffic(
    both: tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]],
    *,
    blocks: np.ndarray,
    layers: int,
    met: Slowdowns,
) -> PassTraffic:
    """Return the traffic inside the passes of plans, and how it and the sums slow each other down.

    Parameters
    ----------
    both : tuple of mappings
        Columns of a block forward and backward (``block.tp_s``, ``block.ring_s``, ...), shape [P] each.
    blocks : numpy.ndarray
        Blocks of the three stages, shape [P, 3].
    layers : int
        Blocks of the model.
    met : dict
        What `slowdowns` gives, by plan.
    """

    def columns(name: str) -> np.ndarray:
        return np.stack([one[f"block.{name}"] for one in both], axis=1)

    return PassTraffic(
        blocks=blocks,
        layers=layers,
        waited_s={axis: columns(f"{axis}_s") for axis in AXES},
        ring_s=columns("ring_s"),
        hiding_s=columns("beside_s"),
        inside={axis: one for axis, (one, _) in met.items()},
        sums={axis: other for axis, (_, other) in met.items()},
    )


def beside_sums(arrays: StepArrays, traffic: PassTraffic) -> StepArrays:
    """Return the pieces of steps whose gathers and sums share links with the traffic inside the passes.

    Parameters
    ----------
    arrays : StepArrays
        Pieces in which every collective has the network to itself.
    traffic : PassTraffic
        What the passes move.

    Notes
    -----
    Of a microbatch's passes with work c and traffic w, and gathers and sums b beside them, let w take s times
    as long while b moves, and b take r times as long while w does. Taken as fluid (w spread evenly over the
    passes), b moves for a share ``f = min(1, b / (c + w s / r))`` of them: the passes take ``f w (s - 1)``
    longer. Where b outlasts them it has lost ``w s (1 - 1 / r)`` by their end. Traffic on a ring counts with
    what its work does not hide. Sums once a step meet the last backward pass only, which is left out of the
    passes.
    """
    # Forward and backward, [P, 3, 2]; c is what remains of the passes.
    passes_s = np.stack([arrays.forward_s, arrays.inputs_s + arrays.weights_s], axis=2)
    blocks = traffic.blocks[:, :, None]
    gathers = arrays.gathers[:, None]
    moved_s = gathers * arrays.gather_s + np.where(arrays.sums_each[:, None], arrays.sum_s, 0.0)
    moved_s = moved_s * arrays.moved_share[:, None]
    waits = {axis: column[:, None, :] * blocks for axis, column in traffic.waited_s.items()}
    slowed_s = sum(waits[axis] * traffic.inside[axis][:, None, None] for axis in AXES)
    waited_s = sum(waits.values())
    ring_s, hiding_s = (column[:, None, :] * blocks for column in (traffic.ring_s, traffic.hiding_s))
    shown_s = np.maximum(0.0, ring_s - hiding_s)
    ring_slow_s = np.maximum(0.0, ring_s * traffic.inside["cp"][:, None, None] - hiding_s)
    longer_s = slowed_s - waited_s + ring_slow_s - shown_s
    # What gathers and sums lose while traffic inside moves beside them all along.
    lost = {axis: traffic.inside[axis] * (1.0 - 1.0 / traffic.sums[axis]) for axis in AXES}
    lost_s = sum(waits[axis] * lost[axis][:, None, None] for axis in AXES)
    lost_s = (lost_s + ring_s * lost["cp"][:, None, None]).sum(axis=2)
    whole_s = (passes_s + longer_s + np.maximum(0.0, arrays.taken_s - arrays.slack_s)).sum(axis=2)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(moved_s > 0.0, np.minimum(1.0, moved_s / np.maximum(whole_s - lost_s, 1e-300)), 0.0)
        later_s = longer_s * share[:, :, None]
        outlasting = np.where((share >= 1.0) & (moved_s > 0.0), 1.0 + lost_s / moved_s, 1.0)
        once_s = np.where(arrays.sums_each[:, None], 0.0, arrays.sum_s)
        behind_s = passes_s[:, :, 1] + longer_s[:, :, 1]
        outlasting_once = np.where(once_s > behind_s, 1.0 + lost_s / 2 / np.maximum(once_s, 1e-300), 1.0)
    whole_s = arrays.whole_s.copy()
    whole_s[:, :2] += later_s[:, 1] * (traffic.layers / np.maximum(traffic.blocks[:, 1:2], 1.0))
    return replace(
        arrays,
        forward_s=arrays.forward_s + later_s[:, :, 0],
        inputs_s=arrays.inputs_s + later_s[:, :, 1],
        whole_s=whole_s,
        gather_s=arrays.gather_s * np.where(gathers > 0, outlasting, 1.0),
        sum_s=arrays.sum_s * np.where(arrays.sums_each[:, None], outlasting, outlasting_once),
    )
