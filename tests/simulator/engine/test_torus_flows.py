"""Collectives on tori as flows, against closed forms and bounds."""

from dataclasses import dataclass

import numpy as np
import pytest

from benchmarks.flows import (
    all_links,
    all_reduce_orbits,
    all_to_all_orbits,
    dimension_ordered_routes,
    direction_links,
    shortest_steps,
    star,
    torus_all_to_all,
)
from simulator.engine.flow_simulation import FlowSet, FlowTimes, simulate
from simulator.errors import WorkloadError
from simulator.interfaces import LinkGraph
from simulator.topology.torus import regular, twisted
from tests.bounds import all_reduce_bound_s

RATE, PAIR = 50e9, 1e6


@dataclass(frozen=True, kw_only=True)
class ChunkHops:
    """Flows of one link each, and where they belong."""

    flows: FlowSet
    """One flow for every hop of every chunk."""
    first: np.ndarray
    """First hop of the first chunk of each given flow, shape [F]."""
    last: np.ndarray
    """Last hop of the last chunk of each given flow, shape [F]."""


def chunk_hops(flows: FlowSet, chunk_bytes: float) -> ChunkHops:
    """Return flows cut into chunks and hops.

    Parameters
    ----------
    flows : FlowSet
        Flows without orbits; the last chunk of each is what is left over.
    chunk_bytes : float
        Bytes of a chunk.

    """
    chunks = np.maximum(np.ceil(flows.size_bytes / chunk_bytes).astype(np.int64), 1)
    hops = np.maximum((flows.routes >= 0).sum(axis=1), 1)
    count = chunks * hops
    first = np.cumsum(count) - count
    owner = np.repeat(np.arange(count.size), count)
    inside = np.arange(owner.size) - first[owner]
    chunk, hop = inside // hops[owner], inside % hops[owner]
    packed = -np.sort(-(flows.routes >= 0).astype(np.int8), axis=1, kind="stable").astype(np.int64)
    order = np.argsort(flows.routes < 0, axis=1, kind="stable")
    links = np.where(packed > 0, np.take_along_axis(flows.routes, order, axis=1), -1)
    if not links.shape[1]:
        links = np.full((count.size, 1), -1)
    sizes = np.minimum(flows.size_bytes[owner] - chunk * chunk_bytes, chunk_bytes)
    index = np.arange(owner.size)
    ahead = index[hop > 0]
    behind = index[chunk > 0]
    last = first + count - 1
    arrived = np.column_stack((ahead - 1, ahead))
    left = np.column_stack((behind - hops[owner[behind]], behind))
    whole = [
        np.column_stack((last[pairs[:, 0]], first[pairs[:, 1]])) for pairs in (flows.after, flows.behind)
    ]
    start = None if flows.start_s is None else flows.start_s[owner]
    hopped = FlowSet(
        routes=links[owner, hop][:, None],
        size_bytes=sizes,
        start_s=start,
        after=np.concatenate((arrived, whole[0])),
        behind=np.concatenate((left, whole[1])),
    )
    return ChunkHops(flows=hopped, first=first, last=last)


def store_and_forward(flows: FlowSet, graph: LinkGraph, chunk_bytes: float) -> FlowTimes:
    """Return when each flow starts and arrives if every hop stores a whole chunk before it passes it on.

    Parameters
    ----------
    flows : FlowSet
        The flows; a chunk waits for the chunk ahead of it at every hop, other flows share the link fairly.
    graph : LinkGraph
        The links.
    chunk_bytes : float
        Bytes of a chunk.

    Notes
    -----
    A flow alone, of k equal chunks of c bytes over h equal links of rate B and latency a, takes
    (h + k - 1) c / B + h a (Kermani and Kleinrock, "Virtual cut-through", Computer Networks 3 (1979), of
    which this is the message-switched case); as chunks shrink it becomes a fluid.
    """
    cut = chunk_hops(flows, chunk_bytes)
    times = simulate(cut.flows, graph)
    return FlowTimes(
        start_s=times.start_s[cut.first],
        finish_s=times.finish_s[cut.last],
        link_bytes=times.link_bytes,
        events=times.events,
        classes=times.classes,
    )


@pytest.mark.parametrize(
    ("torus", "load"),
    [
        (regular((4, 4, 4)), 32.0),
        (regular((4, 4, 8)), 128.0),
        (regular((16, 16, 16)), 8192.0),
        (twisted((4, 4, 8)), 220.0 / 3.0),
        (twisted((4, 8, 8)), 184.0),
        (twisted((8, 16, 16)), 2976.0),
    ],
)
def test_an_all_to_all_takes_what_the_linear_programme_loads(torus, load):
    """Loads of the exact multicommodity linear programme (even longest side d: N d / 8)."""
    times = simulate(all_to_all_orbits(torus, PAIR), direction_links(torus, RATE))
    assert times.makespan_s == pytest.approx(load * PAIR / RATE, rel=1e-9)


def test_orbits_are_what_all_flows_do():
    """Every flow of every node, in the order of axes, finishes when its orbit does."""
    torus = regular((2, 3, 4))
    steps, share = shortest_steps(torus)
    sources = np.repeat(np.arange(torus.nodes), share.size)
    routes = dimension_ordered_routes(torus, sources, np.tile(steps, (torus.nodes, 1)))
    every = FlowSet(routes=routes, size_bytes=np.tile(PAIR * share, torus.nodes))
    found = simulate(every, all_links(torus, RATE))
    orbits = simulate(all_to_all_orbits(torus, PAIR), direction_links(torus, RATE))
    assert found.classes <= share.size
    assert found.finish_s == pytest.approx(np.tile(orbits.finish_s, torus.nodes), rel=1e-12)


def test_one_sided_ties_load_a_torus_more():
    """4x4x8 with half way round always forwards: 160 units instead of 128 (a public simulator's routing)."""
    torus = regular((4, 4, 8))
    places = np.stack(np.unravel_index(np.arange(128), torus.box), axis=-1)
    away = (places[None, :, :] - places[:, None, :]) % torus.box
    steps = np.where(2 * away > torus.box, away - np.array(torus.box), away).reshape(-1, 3)
    sources = np.repeat(np.arange(128), 128)
    moving = np.abs(steps).any(axis=1)
    routes = dimension_ordered_routes(torus, sources[moving], steps[moving])
    flows = FlowSet(routes=routes, size_bytes=np.full(routes.shape[0], PAIR))
    times = simulate(flows, all_links(torus, RATE))
    assert routes.shape[0] == 16256
    assert times.makespan_s == pytest.approx(3.2e-3, rel=1e-12)


@pytest.mark.parametrize("shape", [(8,), (4, 4), (4, 4, 4), (16, 16, 16)])
def test_an_all_reduce_on_a_cube_meets_the_bound_of_its_ports(shape):
    """2 (N - 1)/N m over all ports (Sack and Gropp, ACM TOPC 2015), plus 2 sum(d - 1) latencies."""
    torus, latency_s = regular(shape), 1e-6
    flows = all_reduce_orbits(torus, 64 * PAIR)
    bound = all_reduce_bound_s(torus, 64 * PAIR, RATE)
    hops = 2 * sum(size - 1 for size in shape)
    found = simulate(flows, direction_links(torus, RATE, latency_s)).makespan_s
    assert found == pytest.approx(bound + hops * latency_s, rel=1e-9)


def test_an_all_reduce_on_unequal_axes_stays_above_the_bound():
    torus = regular((4, 4, 8))
    found = simulate(all_reduce_orbits(torus, PAIR), direction_links(torus, RATE)).makespan_s
    bound = all_reduce_bound_s(torus, PAIR, RATE)
    assert bound * 1.05 < found < bound * 2


def test_a_twisted_torus_has_no_rings_along_its_axes():
    with pytest.raises(WorkloadError, match="needs a regular torus"):
        all_reduce_orbits(twisted((4, 4, 8)), PAIR)


@pytest.mark.parametrize(("chunks", "hops"), [(1, 3), (10, 3), (7, 1), (64, 5)])
def test_chunks_are_stored_at_every_hop(chunks, hops):
    """(h + k - 1) c / B + h a: message switching (Kermani and Kleinrock, Computer Networks 3, 1979)."""
    flows = FlowSet(routes=np.arange(hops)[None, :], size_bytes=np.array([PAIR]))
    graph = LinkGraph(capacity_bytes_per_s=np.full(hops, RATE), latency_s=np.full(hops, 1e-6))
    chunk = PAIR / chunks
    times = store_and_forward(flows, graph, chunk)
    assert times.finish_s[0] == pytest.approx((hops + chunks - 1) * chunk / RATE + hops * 1e-6, rel=1e-12)
    assert times.link_bytes == pytest.approx(np.full(hops, PAIR))
    assert times.finish_s[0] >= simulate(flows, graph).finish_s[0] * (1 - 1e-12)


def test_small_chunks_become_a_fluid():
    flows = FlowSet(routes=np.array([[0, 1], [0, 1]]), size_bytes=np.array([PAIR, PAIR]))
    graph = LinkGraph(capacity_bytes_per_s=np.array([RATE, RATE]), latency_s=np.zeros(2))
    fluid = simulate(flows, graph).makespan_s
    late = [store_and_forward(flows, graph, PAIR / n).makespan_s / fluid - 1.0 for n in (1, 4, 16, 64)]
    assert late == sorted(late, reverse=True)
    assert 0.0 < late[-1] < 0.02 < late[0]


@pytest.mark.parametrize(
    ("case", "makespan_s"),
    [
        (lambda: star(128, 20, random_sizes=True), 377.95582e-6),
        (lambda: torus_all_to_all((4, 4, 8)), 3200e-6),
    ],
    ids=["random sizes on a switch", "torus"],
)
def test_flows_end_when_simgrid_says(case, makespan_s):
    """SimGrid 4.1.1 on the same flows (``benchmarks/flows_peer.cpp``, model CM02 without corrections)."""
    flows, graph = case()
    assert simulate(flows, graph).makespan_s == pytest.approx(makespan_s, rel=1e-12)
