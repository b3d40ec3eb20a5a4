"""Flows hashed over equally short paths, and sent adaptively."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from electronic.devices import load_packet_switch
from electronic.fabrics.fat_tree import FatTree, RailOnly
from electronic.fabrics.packets import RailFabric
from electronic.fabrics.torus import TorusFabric
from simulator.errors import ParameterError
from simulator.interfaces import Flows
from simulator.topology.clos import Clos, Spreading
from tests.builders import SINGLE, permutation
from tests.conformance.graphs import rates

SMALL = replace(load_packet_switch("switch-400g"), radix=8)
TREES = (
    FatTree(endpoints=128, scale_up=SINGLE, switch=SMALL, spreading=Spreading.SPRAYED),
    RailOnly(endpoints=128, scale_up=SINGLE, switch=SMALL, spreading=Spreading.SPRAYED),
    RailFabric(endpoints=32, scale_up=SINGLE, switch=SMALL, spreading=Spreading.SPRAYED),
)
every_tree = pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.name)


def slowest(fabric, seed=1):
    """Return the least rate of a permutation's flows over that of a card."""
    every = np.arange(fabric.endpoints)
    flows = Flows(sources=every, destinations=permutation(fabric.endpoints, seed), size_bytes=1.0)
    loads = fabric.loads(None, flows)
    capacity = fabric.graph(None).capacity_bytes_per_s[loads.links]
    return (capacity / loads.usage).min() / fabric.port_bytes_per_s


def test_hashed_flows_collide_as_those_of_an_independent_hash():
    """Balls into bins: the same mean maximum, within three standard errors, for BLAKE2 of the headers."""
    tree, draws = Clos(ports=512, radix=32, spreading=Spreading.HASHED), 300
    sources = np.arange(tree.down)
    ours, theirs = [], []
    for seed in range(draws):
        there = 256 + permutation(tree.down, seed)
        first = replace(tree, hash_seed=seed).paths(sources, there)[0]
        ours.append(np.bincount(first).max())
        heads = [
            hashlib.blake2b(f"{a},{b},{seed}".encode(), digest_size=8).digest()
            for a, b in zip(sources, there, strict=True)
        ]
        theirs.append(np.bincount([int.from_bytes(head) % tree.up for head in heads]).max())
    error = np.hypot(np.std(ours), np.std(theirs)) / np.sqrt(draws)
    assert abs(np.mean(ours) - np.mean(theirs)) < 3 * error
    assert np.mean(ours) > 2.0


@every_tree
def test_hashed_flows_are_slower_and_queue_pairs_bring_them_back(tree):
    hashed = [
        np.mean([slowest(replace(tree, spreading=Spreading.HASHED, queue_pairs=pairs), s) for s in range(8)])
        for pairs in (1, 4, 16, 256)
    ]
    assert hashed[0] <= 0.5
    assert hashed == sorted(hashed)
    assert 0.8 < hashed[-1] < slowest(tree) == pytest.approx(1.0)


@every_tree
def test_adaptive_routing_reaches_its_share_of_parallel_links(tree):
    adaptive = replace(tree, spreading=Spreading.ADAPTIVE)
    assert slowest(adaptive) == pytest.approx(adaptive.switch.adaptive_efficiency)
    ideal = replace(adaptive, switch=replace(adaptive.switch, adaptive_efficiency=1.0))
    assert slowest(ideal) == pytest.approx(slowest(tree))


@every_tree
def test_a_flow_takes_the_same_way_in_every_run_and_another_with_another_seed(tree):
    one = replace(tree, spreading=Spreading.HASHED)
    every, others = np.arange(tree.endpoints), permutation(tree.endpoints)
    np.testing.assert_array_equal(one.paths(every, others), replace(one).paths(every, others))
    assert (one.paths(every, others) != replace(one, hash_seed=2).paths(every, others)).any()


@every_tree
def test_links_that_stand_apart_have_the_capacity_of_their_pool(tree):
    sums = [
        replace(tree, spreading=spreading).graph(None).capacity_bytes_per_s.sum()
        for spreading in (Spreading.SPRAYED, Spreading.HASHED, Spreading.STATIC)
    ]
    assert sums[1] == pytest.approx(sums[0])
    assert sums[2] == pytest.approx(sums[0])


def test_rails_carry_shifts_of_nodes_without_collision_where_routing_is_static():
    rails = RailFabric(endpoints=32, scale_up=SINGLE, switch=SMALL, spreading=Spreading.STATIC)
    every = np.arange(32)
    found, _ = rates(rails, every, (every + 5) % 32)
    np.testing.assert_allclose(found, rails.port_bytes_per_s)


def test_a_failed_link_moves_only_the_queue_pairs_that_crossed_it():
    tree = replace(TREES[0], spreading=Spreading.HASHED, queue_pairs=4)
    flows = Flows(sources=np.array([0]), destinations=np.array([127]), size_bytes=1.0)
    before = tree.loads(None, flows)
    crossed = before.links[before.links >= 4 * tree.endpoints]
    after = tree.loads_around(None, flows, crossed[:1])
    assert crossed[0] not in after.links
    assert set(before.links[before.links < 4 * tree.endpoints]) <= set(after.links)


@pytest.mark.parametrize("spreading", ["hashed", Spreading.HASHED, Spreading.SPRAYED])
def test_a_torus_refuses_what_only_packet_switches_do(spreading):
    with pytest.raises(ParameterError, match=r"TorusSpreading \(sprayed, static\)"):
        TorusFabric(endpoints=64, x=4, y=4, spreading=spreading)


@every_tree
@pytest.mark.parametrize(
    ("switch", "spread", "pairs"),
    [
        ("switch-400g", Spreading.ADAPTIVE, 2),
        ("ethernet-400g", Spreading.HASHED, 2),
        ("spectrum-400g", Spreading.ADAPTIVE, 2),
        ("switch-100g", Spreading.HASHED, 2),
    ],
)
def test_flows_spread_as_the_vendor_ships_the_switches(tree, switch, spread, pairs):
    shipped = replace(tree, spreading=None, switch=replace(load_packet_switch(switch), radix=8))
    assert (shipped.spread, shipped.flow_queue_pairs) == (spread, pairs)
    chosen = replace(shipped, spreading=spread, queue_pairs=pairs)
    assert slowest(shipped) == slowest(chosen) < slowest(replace(shipped, spreading=Spreading.SPRAYED))


@every_tree
def test_spreading_by_a_text_is_refused(tree):
    with pytest.raises(ParameterError, match="Spreading"):
        replace(tree, spreading="hashed")
    with pytest.raises(ParameterError, match="Spreading"):
        replace(tree, switch=replace(tree.switch, shipped_spreading="hashed"))
