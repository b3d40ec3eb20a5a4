"""What the wires of a run allow: the same passing of messages without that simulator's rules, and a floor."""

from __future__ import annotations

import math

from experiments.validation.collective_simulator.algorithms import Method, Phase
from experiments.validation.collective_simulator.networks import Shape, Wires
from experiments.validation.collective_simulator.runs import Run
from simulator.operators import CollectiveKind
from simulator.topology.torus import regular
from simulator.units import to_si


def wires_s(run: Run) -> float:
    """Return the time that latency and rate of the wires allow for the same phases, with nothing in the way.

    Notes
    -----
    A gigabyte is 1e9 bytes, nothing waits at a rank, and splits overlap instead of waiting; dimensions are
    used one after another, though chunks in different dimensions at once can be sooner. Around a ring each
    rank passes its part on in steps, one way; direct exchange goes the shorter way on both directions of a
    ring (load n^2 / 8 of a link), at once through a switch (n - 1 parts out of each port) or over a link to
    each. At distance d of halving and doubling d messages share a ring's link, and half as many at the far
    side, where both ways are as long. Two trees move twice the size through each port, in both directions
    at once (Sanders, Speck and Traeff 2009, section 3).
    """
    return sum(_phase_s(phase, run.dimensions[phase.dimension].wires) for phase in run.phases(run.size_bytes))


def ports_bound_s(run: Run) -> float:
    """Return a time that no algorithm on these wires can beat.

    Notes
    -----
    A rank must pass 2 (n - 1) / n of the size in an all-reduce, (n - 1) / n in a reduce-scatter or an
    all-to-all and n - 1 sizes in an all-gather (Chan et al. 2007, table 1), over all of its links at once;
    and the farthest rank's word takes the latency of the links between.
    """
    ranks, size_bytes = run.ranks, float(run.size_bytes)
    least_bytes = {
        CollectiveKind.ALL_REDUCE: 2.0 * (ranks - 1) / ranks * size_bytes,
        CollectiveKind.ALL_GATHER: (ranks - 1) * size_bytes,
    }.get(run.kind, (ranks - 1) / ranks * size_bytes)
    wires = [one.wires for one in run.dimensions]
    rate = sum(_links(one) * _rate_bytes_per_s(one) for one in wires)
    farthest_s = sum(_latency_s(one) * one.hops(one.ranks // 2) for one in wires if one.ranks > 1)
    return max(least_bytes / rate, farthest_s)


def _links(wires: Wires) -> int:
    return {Shape.RING: 2, Shape.SWITCH: 1, Shape.FULLY_CONNECTED: wires.ranks - 1}[wires.shape]


def _rate_bytes_per_s(wires: Wires) -> float:
    return to_si("rate_bytes_per_s", wires.gigabytes_per_s, "GB/s")


def _latency_s(wires: Wires) -> float:
    return to_si("latency_s", wires.latency_ns, "ns")


def _phase_s(phase: Phase, wires: Wires) -> float:
    gathers = phase.kind is CollectiveKind.ALL_GATHER
    part_bytes = phase.size_bytes / (1 if gathers else phase.ranks)
    stages = 2 if phase.kind is CollectiveKind.ALL_REDUCE else 1
    if phase.kind is CollectiveKind.ALL_TO_ALL or phase.method is Method.DIRECT:
        return stages * _at_once_s(part_bytes, wires)
    if phase.method is Method.HALVING_DOUBLING:
        return stages * _halving_s(part_bytes, wires)
    if phase.method is Method.DOUBLE_TREE and wires.shape is not Shape.RING:
        levels = math.log2(phase.ranks)
        down_and_up_s = 2.0 * levels * wires.hops(1) * _latency_s(wires)
        return down_and_up_s + 2.0 * phase.size_bytes / _rate_bytes_per_s(wires)
    step_s = wires.hops(1) * _latency_s(wires) + part_bytes / _rate_bytes_per_s(wires)
    return stages * (phase.ranks - 1) * step_s


def _at_once_s(part_bytes: float, wires: Wires) -> float:
    rate, latency_s = _rate_bytes_per_s(wires), _latency_s(wires)
    if wires.shape is Shape.RING:
        ring = regular((wires.ranks,))
        return ring.diameter * latency_s + ring.time_s(part_bytes, rate)
    parts = wires.ranks - 1 if wires.shape is Shape.SWITCH else 1
    return wires.hops(1) * latency_s + parts * part_bytes / rate


def _halving_s(part_bytes: float, wires: Wires) -> float:
    rate, latency_s, ranks = _rate_bytes_per_s(wires), _latency_s(wires), wires.ranks
    total_s, distance = 0.0, 1
    while distance < ranks:
        shared = 1.0
        if wires.shape is Shape.RING:
            shared = max(1.0, distance / 2 if 2 * distance == ranks else distance)
        size_bytes = part_bytes * ranks / (2 * distance)
        total_s += wires.hops(distance) * latency_s + shared * size_bytes / rate
        distance *= 2
    return total_s
