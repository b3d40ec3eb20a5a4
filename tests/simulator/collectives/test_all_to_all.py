"""All-to-alls in two levels: everything arrives, in fewer messages, and a token crosses to a node once."""

import itertools

import numpy as np
import pytest

from simulator.collectives.algorithms import Algorithm, Round, in_turns, rounds, two_level_rounds
from simulator.collectives.flow_groups import skewed_flows
from simulator.errors import WorkloadError
from simulator.operators import CollectiveKind, Skew, Spread


def off_node(one, local):
    return one.flows.sources // local != one.flows.destinations // local


def crossing(found, local):
    """Return the messages and the bytes that rank 0 sends to other nodes."""
    messages, moved = 0, 0.0
    for one in found:
        sent = int((off_node(one, local) & (one.flows.sources == 0)).sum()) * one.count
        messages += sent
        moved += sent * one.flows.size_bytes
    return messages, moved


@pytest.mark.parametrize(("n", "local"), [(8, 4), (16, 8), (12, 3), (64, 8)])
def test_aggregation_saves_messages_and_no_bytes(n, local):
    """n/g - 1 messages instead of n - g leave a rank's node, as many bytes (HetuMoE, arXiv:2203.14685)."""
    groups = np.arange(n)[None, :]
    direct = rounds(CollectiveKind.ALL_TO_ALL, Algorithm.DIRECT, groups, 1.0, "ep")
    two = two_level_rounds(groups, 1.0, "ep", local)
    messages, moved = crossing(direct, local)
    fewer, same = crossing(two, local)
    assert (messages, fewer) == (n - local, n // local - 1)
    assert same == pytest.approx(moved)


@pytest.mark.parametrize(("n", "local"), [(8, 4), (12, 3)])
def test_everything_arrives(n, local):
    """Replay on data: every message goes to its place inside the node, then to its node."""
    inside, across = two_level_rounds(np.arange(n)[None, :], float(n), "ep", local)
    held = {rank: {(rank, target) for target in range(n)} for rank in range(n)}
    for one, belongs in (
        (inside, lambda rank, target: rank % local == target % local),
        (across, lambda rank, target: rank == target),
    ):
        moved = {}
        for source, destination in zip(one.flows.sources, one.flows.destinations, strict=True):
            part = {message for message in held[source] if belongs(destination, message[1])}
            assert len(part) == pytest.approx(one.flows.size_bytes)
            moved[source, destination] = part
        for (source, destination), part in moved.items():
            held[source] = held[source] - part
            held[destination] = held[destination] | part
    assert all(held[rank] == {(source, rank) for source in range(n)} for rank in range(n))


def test_groups_must_fill_nodes():
    with pytest.raises(WorkloadError, match=r"neighbours \(4\) that divide the group \(6\)"):
        two_level_rounds(np.arange(6)[None, :], 1.0, "ep", 4)


@pytest.mark.parametrize(
    ("spread", "nodes"),
    [
        (Spread(targets=8, copies=3), 4),
        (Spread(targets=8, copies=2, sets=4, chosen_sets=2), 4),
        (Spread(targets=8, copies=2, sets=4, chosen_sets=2), 2),
        (Spread(targets=8, copies=3, sets=2, chosen_sets=1), 4),
        (Spread(targets=12, copies=4, sets=6, chosen_sets=3), 3),
    ],
)
def test_nodes_visited_are_those_counted_over_all_choices(spread, nodes):
    size = spread.targets // spread.sets
    counts = [
        len({target * nodes // spread.targets for target in chosen})
        for sets in itertools.combinations(range(spread.sets), spread.chosen_sets)
        for chosen in itertools.combinations(
            [one * size + i for one in sets for i in range(size)], spread.copies
        )
    ]
    assert spread.nodes_visited(nodes) == pytest.approx(np.mean(counts))


def test_deepseek_tokens_visit_at_most_four_nodes():
    """256 experts in 8 groups on 8 nodes, 8 of those in 4 chosen groups (arXiv:2412.19437, section 2.1.2)."""
    limited = Spread(targets=256, copies=8, sets=8, chosen_sets=4)
    free = Spread(targets=256, copies=8)
    assert limited.nodes_visited(8) < 4.0 < free.nodes_visited(8)
    assert limited.nodes_visited(8) == pytest.approx(4 * (1 - 0.0909), rel=0.01)


def test_a_token_crosses_to_a_node_once():
    """Bytes between nodes: one copy for each other node that a token visits, whatever its experts there."""
    spread = Spread(targets=64, copies=8, sets=8, chosen_sets=2)
    groups = np.arange(64)[None, :]
    aggregated = crossing(two_level_rounds(groups, 8.0, "ep", 8), 8)
    once = crossing(two_level_rounds(groups, 8.0, "ep", 8, spread), 8)
    assert once[0] == aggregated[0] == 7
    assert aggregated[1] == pytest.approx(8 * 7 / 8)
    assert once[1] == pytest.approx(spread.nodes_visited(8) * 7 / 8)


def test_impossible_spread_is_refused():
    with pytest.raises(WorkloadError, match="copies must fit"):
        Spread(targets=16, copies=8, sets=4, chosen_sets=1)


def peers_of(flows, local, column):
    """Return the most other nodes that an endpoint meets."""
    ends = np.stack([flows.sources, flows.destinations], axis=1)[off_node_flows(flows, local)] // local
    pairs = np.unique(ends, axis=0)
    return int(np.bincount(pairs[:, column]).max(initial=0))


def off_node_flows(flows, local):
    return flows.sources // local != flows.destinations // local


@pytest.mark.parametrize(("n", "local"), [(3, 1), (5, 1), (7, 1), (12, 1), (12, 3), (10, 2)])
@pytest.mark.parametrize("peers", [1, 2, 3, 4])
def test_turns_are_the_whole_exchange_and_never_more_peers_than_circuits(n, local, peers):
    """An even exchange of k nodes is k - 1 permutations, as many a turn as fit (Birkhoff 1946)."""
    groups = np.arange(3 * n).reshape(3, n)
    whole = rounds(CollectiveKind.ALL_TO_ALL, Algorithm.DIRECT, groups, float(n), "ep")
    turns = in_turns(whole, groups, local, peers)
    assert len(turns) == max(1, -(-(n // local - 1) // peers))
    sent = [pair for one in turns for pair in zip(one.flows.sources, one.flows.destinations, strict=True)]
    expected = [pair for one in whole for pair in zip(one.flows.sources, one.flows.destinations, strict=True)]
    assert sorted(sent) == sorted(expected)
    for one in turns:
        assert max(peers_of(one.flows, local, column) for column in (0, 1)) <= peers


@pytest.mark.parametrize("peers", [2, 3, 4, 5])
def test_an_uneven_exchange_keeps_its_bytes_and_comes_back_over_its_circuits(peers):
    groups = np.arange(14).reshape(2, 7)
    flows = skewed_flows(groups, "ep", {Skew(loads=(1.0,) * 7, affinity=3.0): 7.0})
    turns = in_turns((Round(flows=flows, count=1),), groups, 1, peers)
    assert sum(one.flows.sizes_bytes.sum() for one in turns) == pytest.approx(flows.sizes_bytes.sum())
    for one in turns:
        there = set(zip(one.flows.sources.tolist(), one.flows.destinations.tolist(), strict=True))
        assert {(to, by) for by, to in there} == there
        assert peers_of(one.flows, 1, 0) <= peers


def test_what_fits_stays_whole():
    groups = np.arange(8)[None, :]
    whole = rounds(CollectiveKind.ALL_TO_ALL, Algorithm.DIRECT, groups, 8.0, "ep")
    assert in_turns(whole, groups, 1, 7) == whole
