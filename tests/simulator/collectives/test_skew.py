"""Uneven all-to-alls: sums of their matrix, limits, and what they cost on links."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.collectives.algorithms import two_level_rounds
from simulator.collectives.flow_groups import skewed_flows
from simulator.errors import WorkloadError
from simulator.fabric import route_loads
from simulator.interfaces import LinkGraph
from simulator.operators import CollectiveKind, Skew, Spread, geometric_loads, spread_places
from simulator.results import outside_bytes

EVEN = (1.0,) * 8
SKEWS = [
    Skew(loads=EVEN, affinity=2.0),
    Skew(loads=geometric_loads(8, 2.0)),
    Skew(loads=geometric_loads(8, 3.0), affinity=3.0),
    Skew(loads=geometric_loads(12, 1.5), affinity=5.0, returns=True),
]


@pytest.mark.parametrize("skew", SKEWS, ids=str)
def test_everybody_sends_alike_and_gets_what_the_loads_say(skew):
    """Sinkhorn, Ann. Math. Statist. 35 (1964) 876: rows and columns of given sums."""
    out = skew.turned() if skew.returns else skew
    matrix, n = out.matrix(), len(skew.loads)
    np.testing.assert_allclose(matrix.sum(axis=1), n)
    np.testing.assert_allclose(matrix.sum(axis=0), n * np.array(skew.loads), rtol=1e-6)
    np.testing.assert_array_equal(out.turned().matrix(), matrix.T)
    assert (matrix >= 0.0).all()


@pytest.mark.parametrize("affinity", [1.0, 1.5, 3.0])
def test_affinity_is_the_favourites_share_and_makes_nobody_busier(affinity):
    matrix = Skew(loads=EVEN, affinity=affinity).matrix()
    others = matrix[~np.eye(8, dtype=bool)].reshape(8, 7)
    np.testing.assert_allclose(others.max(axis=1) / others.mean(axis=1), affinity)
    np.testing.assert_allclose(matrix.sum(axis=0), 8.0)
    np.testing.assert_allclose(np.diag(matrix), 1.0)


def test_no_skew_is_an_even_exchange():
    even = Skew(loads=EVEN)
    assert even.even
    np.testing.assert_allclose(even.matrix(), 1.0)


@pytest.mark.parametrize("count", [1, 2, 3, 6, 8, 12, 64, 97, 256])
def test_places_are_a_permutation_that_begins_with_the_first(count):
    places = spread_places(count)
    assert places[0] == 0
    assert sorted(places.tolist()) == list(range(count))


def test_what_cannot_be_is_refused():
    with pytest.raises(WorkloadError, match=r"affinity \(4\) of 8 members .*3.5"):
        Skew(loads=EVEN, affinity=4.0)
    with pytest.raises(WorkloadError, match="mean of 1"):
        Skew(loads=(2.0, 1.0))
    with pytest.raises(WorkloadError, match="mean of 1"):
        Skew(loads=(3.0, -1.0))


def test_a_port_carries_the_bytes_of_its_flows_whatever_their_weights():
    """On links of one node each the busiest port is the hottest receiver: load (n - 1) / n of a payload."""
    skew = Skew(loads=geometric_loads(8, 2.5))
    flows = skewed_flows(np.arange(16).reshape(2, 8), "ep", {skew: 800.0})
    routes = np.stack([flows.sources, 16 + flows.destinations], axis=1)
    graph = LinkGraph(capacity_bytes_per_s=np.ones(32), latency_s=np.zeros(32))
    found = route_loads(routes, graph.latency_s, flows.weights)
    sent = np.bincount(found.links, found.usage, minlength=32) * flows.size_bytes
    np.testing.assert_allclose(sent[16:24], 700.0 * np.array(skew.loads))
    np.testing.assert_allclose(sent[:16].sum(), sent[16:].sum())
    assert sent.max() == pytest.approx(outside_bytes(CollectiveKind.ALL_TO_ALL, 8, 1, 800.0, skew))
    assert flows.moved_bytes(np.ones(len(flows.sources))) == pytest.approx(flows.sizes_bytes.sum())


@pytest.mark.parametrize("spread", [None, Spread(targets=8, copies=1)])
@pytest.mark.parametrize("skew", [Skew(loads=geometric_loads(8, 2.0), affinity=2.0)])
def test_two_levels_carry_every_pairs_bytes_between_its_nodes(spread, skew):
    """HetuMoE, DeepSeek-V3: what crosses from node to node is what its members have for each other's."""
    local, groups = 4, np.arange(8)[None, :]
    matrix = skew.matrix() * 100.0 / 8
    crossing = {False: 0.0, True: 0.0}
    for one in two_level_rounds(groups, 100.0, "ep", local, spread, skew=skew):
        for source, destination, size in zip(
            one.flows.sources, one.flows.destinations, one.flows.sizes_bytes, strict=True
        ):
            crossing[source // local != destination // local] += size * one.count
            if source // local == destination // local:
                assert size > 0.0
    far = np.arange(8)[:, None] // local != np.arange(8) // local
    share = 1.0 if spread is None else spread.nodes_visited(2) / spread.copies
    assert crossing[True] == pytest.approx(share * matrix[far].sum())


def test_an_even_matrix_gives_the_rounds_of_an_even_exchange():
    groups = np.arange(16).reshape(2, 8)
    plain = two_level_rounds(groups, 64.0, "ep", 4)
    uneven = two_level_rounds(groups, 64.0, "ep", 4, skew=Skew(loads=EVEN))
    for one, other in zip(plain, uneven, strict=True):
        pairs = [
            dict(
                zip(zip(r.flows.sources.tolist(), r.flows.destinations.tolist(), strict=True), s, strict=True)
            )
            for r, s in ((one, one.flows.sizes_bytes), (other, other.flows.sizes_bytes))
        ]
        assert pairs[0].keys() == pairs[1].keys()
        assert all(pairs[1][pair] == pytest.approx(size) for pair, size in pairs[0].items())


def test_reversed_flows_carry_as_much_the_other_way():
    flows = skewed_flows(np.arange(8)[None, :], "ep", {SKEWS[2]: 1.0})
    back = flows.reversed()
    np.testing.assert_array_equal(back.sources, flows.destinations)
    assert replace(back, sources=flows.sources, destinations=flows.destinations).sizes_bytes.sum() == (
        flows.sizes_bytes.sum()
    )
