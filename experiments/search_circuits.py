"""What circuits make of a step in closed form: lanes shared by all axes, or turned to the one that asks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from experiments.circuit_modes import CircuitFabric, CircuitMode, dark_of
from heliograph.estimate import StepArrays
from optical.circuits import CircuitPolicy, Turning
from optical.fabrics import OcsRails
from workloads.plan_arrays import PlanArrays
from workloads.plan_costs import PlanCosts

INNER = ("tp", "cp", "ep")
"""Axes whose traffic lies within the passes."""


def under_mode(
    costs: PlanCosts, plans: PlanArrays, fabric: CircuitFabric, mode: CircuitMode, layers: int
) -> StepArrays:
    """Return the pieces of steps whose circuits move in a mode.

    Parameters
    ----------
    costs : PlanCosts
        Pieces in which all lanes serve the axis that asks.
    plans : PlanArrays
        The plans.
    fabric : CircuitFabric
        The switches.
    mode : CircuitMode
        When circuits move, and whether they turn ahead of traffic.
    layers : int
        Blocks of the model.

    Notes
    -----
    *Static*: on rails peers share the lanes of an endpoint in proportion to their bytes, at least one each,
    here without rounding; more peers than lanes is no plan (infinite time). Elsewhere nodes or packets pass
    on what has no circuit of its own, and axes meet on links as in `workloads.plan_contention`.
    *Per axis*: a change between the gathers, the passes and the sums of a step, around the traffic of every
    microbatch, and twice a block where two axes inside the passes leave the node.
    *Ahead*: a change around a microbatch's traffic hides behind the work between two of them,
    ``max(0, delta - work)`` (Opus, arXiv:2507.08119); those of a step do not.
    """
    if mode.policy is CircuitPolicy.STATIC:
        return _shared(costs, plans, fabric.lanes) if isinstance(fabric, OcsRails) else costs.arrays
    leaves = {axis: moved > 0 for axis, moved in costs.outside_bytes.items()}
    inside = sum(leaves[axis].astype(int) for axis in INNER)
    zero = plans["zero"]
    others = (inside > 0) | leaves["pp"]
    once = np.where(leaves["dpcp"] & others, np.where(zero > 0, 2, 1), 0)
    once = np.where((inside > 0) & leaves["pp"], once + 1, once)
    each = np.where(leaves["dpcp"] & others & (zero >= 2), 2, 0)
    each = each + np.where((inside > 0) & leaves["pp"], 4 * plans["vpp"], 0)
    each = each + np.where(inside > 1, 4 * plans["vpp"] * np.ceil(layers / plans["pp"]), 0)
    dark_s = dark_of(fabric)
    if mode.turning is Turning.AHEAD and dark_s > 0.0:
        arrays = costs.arrays
        passes_s = arrays.forward_s[:, 1] + arrays.inputs_s[:, 1] + arrays.weights_s[:, 1]
        work_s = np.maximum(0.0, passes_s - costs.waited_s) / np.maximum(each, 1.0)
        each = each * np.maximum(0.0, 1.0 - work_s / dark_s)
    return replace(
        costs.arrays,
        dark_s=np.full(len(plans), dark_s),
        changes_each=each.astype(float),
        changes_once=once.astype(float),
    )


def _shared(costs: PlanCosts, plans: PlanArrays, lanes: int) -> StepArrays:
    """Return the pieces where all axes share the lanes of each endpoint."""
    moved = costs.outside_bytes
    peers = {axis: (column > 0).astype(float) for axis, column in moved.items()}
    peers["pp"] = peers["pp"] * np.minimum(2, np.maximum(plans["pp"] - 1, 0))
    needed = sum(peers.values())
    whole = np.maximum(sum(moved.values()), 1.0)
    spare = np.maximum(lanes - needed, 0.0)
    slower = {}
    for axis, column in moved.items():
        mine = np.maximum(peers[axis] + spare * column / whole, 1e-300)
        share = np.where(axis == "pp", mine / np.maximum(peers[axis], 1.0), mine)
        full = lanes / np.where(axis == "pp", np.maximum(peers[axis], 1.0), 1.0)
        slower[axis] = np.where(peers[axis] > 0, full / np.maximum(share, 1e-300), 1.0)
    arrays = costs.arrays
    inner = np.max([np.where(moved[axis] > 0, slower[axis], 1.0) for axis in INNER], axis=0)
    later_s = costs.waited_s * (inner - 1.0)
    later_s = np.where(np.isfinite(costs.waited_s), later_s, 0.0)  # no way at all is infinite already
    share = later_s / np.maximum(
        arrays.forward_s[:, 1] + arrays.inputs_s[:, 1] + arrays.weights_s[:, 1], 1e-300
    )
    crowded = np.where(needed > lanes, np.inf, 1.0)
    return replace(
        arrays,
        forward_s=arrays.forward_s * (1 + share)[:, None] * crowded[:, None],
        inputs_s=arrays.inputs_s * (1 + share)[:, None] * crowded[:, None],
        whole_s=arrays.whole_s * (1 + share) * crowded,
        send_s=arrays.send_s * slower["pp"],
        gather_s=arrays.gather_s * slower["dpcp"][:, None],
        sum_s=arrays.sum_s * slower["dpcp"][:, None],
    )
