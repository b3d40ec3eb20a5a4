"""Collectives over links from rank to rank: never below the bound of cuts, and near it on any graph."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from simulator.collectives.direct_links import broadcast_rounds, broadcast_ways, exchange_loads
from simulator.operators import CollectiveKind
from simulator.topology.graphs import DrawnFabric, bundle
from tests.bounds import all_gather_bound_s, all_to_all_bound_s
from tests.conformance.graphs import collective_s, plan

RATE = 50e9
CHUNK = 1e8
GATHER, SCATTER = CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER
REDUCE, EXCHANGE = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL


def without_links(graph, count):
    """Return a graph without its first links."""
    graph.remove_edges_from([*graph.edges][:count])
    return graph


def bridged(size):
    """Return two complete graphs that one link joins."""
    graph = nx.disjoint_union(nx.complete_graph(size), nx.complete_graph(size))
    graph.add_edge(0, size)
    return graph


def dragonfly(groups, size):
    """Return complete groups of which every two share a link, of other ranks in turn."""
    graph = nx.disjoint_union_all([nx.complete_graph(size)] * groups)
    for one in range(groups):
        for other in range(one + 1, groups):
            graph.add_edge(one * size + (other - 1) % size, other * size + one % size)
    return graph


def uneven(degree, size):
    """Return a random regular graph whose links have one to four times the rate."""
    graph = nx.random_regular_graph(degree, size, seed=3)
    factors = np.random.default_rng(3).integers(1, 5, graph.number_of_edges())
    nx.set_edge_attributes(graph, dict(zip(graph.edges, factors.astype(float), strict=True)), "weight")
    return graph


def shuffled(graph):
    """Return a graph with its ranks in another order."""
    order = np.random.default_rng(5).permutation(len(graph)).tolist()
    return nx.relabel_nodes(graph, dict(enumerate(order)))


def grid(*sides):
    return nx.convert_node_labels_to_integers(nx.grid_graph(sides, periodic=True))


GRAPHS = {
    "ring": (nx.cycle_graph(8), 1.01, 1.01),
    "ring, shuffled": (shuffled(nx.cycle_graph(8)), 1.01, 1.01),
    "line": (nx.path_graph(6), 1.01, 1.01),
    "one-way ring": (nx.cycle_graph(6, create_using=nx.DiGraph), 1.01, 1.01),
    "complete": (nx.complete_graph(8), 1.01, 1.01),
    "random of 3 links": (nx.random_regular_graph(3, 16, seed=1), 1.41, 1.1),
    "random of 4 links": (nx.random_regular_graph(4, 32, seed=1), 1.01, 1.1),
    "random of 5 links": (nx.random_regular_graph(5, 32, seed=2), 1.01, 1.1),
    "random, uneven": (uneven(4, 16), 1.01, 1.1),
    "torus": (grid(4, 8), 1.01, 1.01),
    "torus without a link": (without_links(grid(4, 4), 1), 1.01, 1.01),
    "torus of three axes without two links": (without_links(grid(3, 3, 3), 2), 1.01, 1.02),
    "hypercube": (nx.convert_node_labels_to_integers(nx.hypercube_graph(5)), 1.01, 1.01),
    "dragonfly": (dragonfly(5, 4), 1.01, 1.02),
    "dragonfly of nine groups": (dragonfly(9, 4), 1.01, 1.05),
    "two cliques": (bridged(4), 1.01, 1.01),
    "two larger cliques": (bridged(8), 1.01, 1.01),
    "star": (nx.star_graph(7), 1.01, 1.01),
}
every_graph = pytest.mark.parametrize("name", GRAPHS)


def rates_of(graph):
    """Return the rate of each link, shape [n, n]."""
    return RATE * nx.to_numpy_array(graph, nodelist=range(len(graph)))


def fabric_of(rates):
    """Return a fabric of these links alone."""
    tails, heads = np.nonzero(rates)
    links = bundle(tails, heads, rate_bytes_per_s=rates[tails, heads], latency_s=0.0)
    return DrawnFabric(
        name="drawn",
        endpoints=len(rates),
        links=links,
        energy_j_per_bit=np.zeros(links.links),
        parts={},
    )


def took_s(fabric, kind):
    """Return the time in the engine of a collective of `CHUNK` bytes for each rank or message."""
    return collective_s(fabric, kind=kind, payload=CHUNK * (1 if kind is GATHER else fabric.endpoints))


@every_graph
@pytest.mark.parametrize("kind", [GATHER, SCATTER, REDUCE])
def test_sums_and_gathers_are_above_the_bound_of_cuts_and_near_it(name, kind):
    """Rings at strides took 2 to 16 times the bound on most of these graphs."""
    graph, factor, _ = GRAPHS[name]
    rates = rates_of(graph)
    gather_s, scatter_s = (all_gather_bound_s(one, CHUNK) for one in (rates, rates.T))
    bound_s = gather_s * (kind is not SCATTER) + scatter_s * (kind is not GATHER)
    assert bound_s * (1.0 - 1e-5) <= took_s(fabric_of(rates), kind) <= bound_s * factor


@every_graph
def test_exchanges_are_above_the_linear_programme_and_near_it(name):
    """Flows over one shortest way each took up to 1.6 times as long."""
    graph, _, factor = GRAPHS[name]
    rates = rates_of(graph)
    bound_s = all_to_all_bound_s(rates, CHUNK)
    assert bound_s * (1.0 - 1e-5) <= took_s(fabric_of(rates), EXCHANGE) <= bound_s * factor


@every_graph
def test_links_of_a_broadcast_carry_enough_for_spanning_trees_of_all_ranks(name):
    """Edmonds 1973: trees exist just if every cut lets all chunks behind it through, in one unit of time."""
    rates = rates_of(GRAPHS[name][0])
    for way in broadcast_ways(rates):
        assert not way.chunks[rates == 0.0].any()
        np.testing.assert_allclose(way.chunks.sum(axis=0), len(rates) - 1)
        assert all_gather_bound_s(way.chunks, 1.0) == pytest.approx(1.0, rel=1e-4)


@every_graph
def test_messages_of_an_exchange_arrive(name):
    """In one unit of time a linear programme sends all of them over links of these rates."""
    rates = rates_of(GRAPHS[name][0])
    found = exchange_loads(rates)
    assert not found.chunks[rates == 0.0].any()
    assert all_to_all_bound_s(found.chunks, 1.0) <= 1.0 + 1e-4


@every_graph
@pytest.mark.parametrize("kind", [GATHER, REDUCE, EXCHANGE])
def test_the_engine_takes_the_time_of_the_plan(name, kind):
    """One law for a step's estimate and its simulation."""
    fabric = fabric_of(rates_of(GRAPHS[name][0]))
    fabric = replace(fabric, links=replace(fabric.links, latency_s=np.full(fabric.links.links, 1e-6)))
    found, _ = plan(fabric, kind=kind, payload=1e7)
    assert collective_s(fabric, kind=kind, payload=1e7) == pytest.approx(found.alone_s, rel=1e-9)


@pytest.mark.parametrize("name", ["torus", "random of 5 links", "dragonfly", "hypercube"])
@pytest.mark.parametrize("kind", [GATHER, EXCHANGE])
@pytest.mark.parametrize("seed", range(2))
def test_detours_round_dead_links_are_above_the_bound_of_what_is_left(name, kind, seed):
    """What is laid out over links that then fail goes round them as any flow does."""
    rates = rates_of(GRAPHS[name][0])
    fabric = fabric_of(rates)
    dead = np.random.default_rng(seed).choice(fabric.links.links, 2, replace=False)
    payload = CHUNK * (1 if kind is GATHER else fabric.endpoints)
    found, _ = plan(fabric, kind=kind, payload=payload)
    time_s = 0.0
    for group, size_bytes, count in found.parts:
        loads = fabric.loads_around(None, group.flows, dead)
        assert not np.isin(loads.links, dead).any()
        busiest = loads.usage / fabric.links.capacity_bytes_per_s[loads.links]
        time_s += size_bytes * count * float(busiest.max())
    left = rates.copy()
    left[fabric.links.tails[dead], fabric.links.heads[dead]] = 0.0
    bound = all_gather_bound_s if kind is GATHER else all_to_all_bound_s
    assert bound(left, CHUNK) * (1.0 - 1e-5) <= time_s <= 3.0 * bound(left, CHUNK)


def test_a_short_vector_takes_the_way_of_fewest_links():
    """A broadcast over fewest links has as many hops as the graph is wide; a balanced one has more."""
    rates = rates_of(GRAPHS["random of 4 links"][0])
    first, balanced = broadcast_ways(rates)
    assert first.hops == nx.diameter(GRAPHS["random of 4 links"][0])
    assert first.hops < balanced.hops
    assert first.busiest_s(rates) > balanced.busiest_s(rates)


def test_what_links_do_not_join_is_not_laid_out_over_them():
    rates = rates_of(nx.path_graph(4))
    assert broadcast_ways(rates[::2, ::2]) == ()
    assert exchange_loads(rates[::2, ::2]) is None
    assert broadcast_ways(rates_of(nx.path_graph(3, create_using=nx.DiGraph))) == ()


def test_groups_on_different_links_wait_for_the_slowest():
    """All end when the line's link into its end has passed the chunks of the three others."""
    graphs = [rates_of(nx.complete_graph(4)), rates_of(nx.path_graph(4))]
    (way,) = broadcast_rounds(GATHER, np.arange(8).reshape(2, 4), CHUNK, "dp", graphs)
    (only,) = way
    assert only.count == 3
    assert only.count * only.flows.sizes_bytes.max() == pytest.approx(3 * CHUNK)
    inside = only.flows.sources // 4 == only.flows.destinations // 4
    assert inside.all()
    assert only.flows.sizes_bytes[only.flows.sources < 4].max() * only.count == pytest.approx(CHUNK)
