"""All-to-alls over circuits that stand, by way of other nodes."""

import numpy as np
import pytest

from simulator.collectives.algorithms import forwarded_rounds, hop_loads, standing_distances

CASES = [(8, 4), (8, 2), (9, 4), (16, 4), (16, 5), (12, 8), (32, 4), (64, 4), (100, 6)]
every_case = pytest.mark.parametrize(("nodes", "peers"), CASES)


@every_case
def test_no_node_meets_more_than_it_has_circuits_for_and_light_comes_back(nodes, peers):
    distances = standing_distances(nodes, peers)
    assert 0 < len(distances) <= peers
    assert {nodes - one for one in distances} == set(distances)


@every_case
def test_every_message_arrives_and_crosses_as_many_circuits_as_the_shortest_way_has(nodes, peers):
    distances = standing_distances(nodes, peers)
    hops, reached = {0: 0}, [0]
    for node in reached:
        for one in distances:
            peer = (node + one) % nodes
            if peer not in hops:
                hops[peer] = hops[node] + 1
                reached.append(peer)
    assert len(hops) == nodes
    assert sum(hop.sum() for hop in hop_loads(nodes, distances)) == pytest.approx(sum(hops.values()))


@pytest.mark.parametrize(("nodes", "peers", "cost"), [(8, 4, 2.5), (8, 2, 8.0), (16, 8, 2.75)])
def test_a_small_circle_meets_the_bound_of_its_hops(nodes, peers, cost):
    """The busiest circuit has hops over circuits at least: (4 + 2 x 3) / 4, 16 / 2, (8 + 2 x 7) / 8."""
    loads = hop_loads(nodes, standing_distances(nodes, peers))
    assert sum(hop.max() for hop in loads) == pytest.approx(cost, rel=0.05)


def test_bytes_of_an_exchange_are_those_of_its_messages_times_their_hops():
    groups = np.arange(64).reshape(1, 64)
    rounds = forwarded_rounds(groups, 64.0, "ep", 8, peers=4)
    moved = [one.flows.sizes_bytes.sum() for one in rounds]
    assert moved[0] == pytest.approx(64 * 7 * 8.0)  # inside nodes: seven eighths of everything
    assert sum(moved[1:]) == pytest.approx(64 * 8.0 * (4 + 2 * 3))


def test_one_circuit_forwards_nothing():
    assert standing_distances(5, 1) == ()
    assert forwarded_rounds(np.arange(5).reshape(1, 5), 1.0, "ep", 1, peers=1) == ()
