"""In words: which nodes a winner's circuits join, and what its topology was laid out for."""

from __future__ import annotations

import numpy as np

from experiments.search import Candidate
from heliograph.demand import step_demand
from optical.circuits import CircuitPolicy
from optical.direct_connect import DirectConnect
from optical.fabrics import OcsRails
from optical.job_lanes import domain_demands
from optical.scheduling.topology import JobTopology, job_time, job_topology


def topology_text(one: Candidate) -> str:
    """Return what a candidate's circuits join, or the name of its topology where there are none."""
    fabric = one.system.fabric
    match fabric:
        case DirectConnect() if fabric.policy is CircuitPolicy.STATIC and one.result is not None:
            return _job_text(fabric, one)
        case DirectConnect():
            return f"{fabric.degree} circuits a node for the axis that asks"
        case OcsRails():
            return f"{fabric.lanes} lanes an accelerator"
        case _:
            return one.topology


def _job_text(fabric: DirectConnect, one: Candidate) -> str:
    """Return strides and matchings of a job's circuits (TotientPerms), and the busiest over its bound."""
    if one.result is None:
        return one.topology
    demand = step_demand(one.result.graph)
    outside = [flows for flows in demand.values() if fabric.scale_up.off_node(flows).any()]
    node_of = fabric.scale_up.node_of(np.arange(fabric.endpoints))
    domains = domain_demands(outside, node_of, fabric.nodes)
    if not domains:
        return "no traffic between nodes"
    (job,) = domains.values()
    found: JobTopology = job_topology(job.groups, job.pairs, degree=fabric.degree)
    strides = sorted({stride for group in found.strides for stride in group})
    rings = f"rings of strides {' '.join(map(str, strides))}" if strides else "no rings"
    text = f"{fabric.degree} circuits a node, {rings}, {found.matched_degree} for pairs"
    if np.isinf(found.hops).any():  # one more ring makes all meet (`optical.job_lanes.job_links`)
        return text
    time = job_time(found, job.groups, job.pairs, rate_bytes_per_s=fabric.circuit_bytes_per_s)
    return f"{text}, {time.over_bound:.2f} of its bound"
