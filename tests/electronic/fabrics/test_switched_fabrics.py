"""Fat-trees, rail-only networks, switched domains, and what they become in their limits."""

from dataclasses import replace

import numpy as np
import pytest

from electronic.devices import load_adder, load_packet_switch, load_scale_up
from electronic.fabrics.fat_tree import FatTree, RailOnly, SwitchedDomain
from electronic.fabrics.packets import RailFabric, Reduction
from simulator.errors import LinkError, ParameterError
from simulator.operators import CollectiveKind
from simulator.topology.clos import Spreading
from tests.builders import SINGLE, permutation
from tests.conformance.graphs import collective_s, cut_bytes_per_s, flows, plan, rates

SMALL = replace(load_packet_switch("switch-400g"), radix=8)
TREE = FatTree(endpoints=128, scale_up=SINGLE, switch=SMALL, spreading=Spreading.SPRAYED)
SWITCH = replace(TREE, switch=replace(SMALL, radix=128))


@pytest.mark.parametrize("seed", range(3))
def test_a_full_fat_tree_carries_any_permutation_as_one_switch_does(seed):
    """Rearrangeably non-blocking Clos networks (Clos 1953), with packets on all paths."""
    every = np.arange(128)
    for fabric in (TREE, SWITCH):
        found, _ = rates(fabric, every, permutation(128, seed))
        np.testing.assert_allclose(found, fabric.port_bytes_per_s)


def test_a_full_fat_tree_bisects_at_half_of_its_ports():
    """N / 2 B, both in two levels and in three."""
    for fabric in (TREE, replace(TREE, endpoints=32)):
        half = np.arange(fabric.endpoints // 2)
        expected = fabric.endpoints / 2 * fabric.port_bytes_per_s
        assert cut_bytes_per_s(fabric, half) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("leaf", "spine"), [(3.0, 1.0), (1.0, 3.0), (3.0, 3.0), (7.0, 1.0)])
def test_oversubscription_divides_what_crosses_leaves_and_pods(leaf, spine):
    fabric = replace(TREE, endpoints=96, oversubscription=leaf, spine_oversubscription=spine)
    down, up = fabric.clos.down, fabric.clos.up
    below, above = fabric.clos.leaves_per_pod, fabric.clos.spine_up
    every = np.arange(96)
    to_next_leaf, _ = rates(fabric, every, (every + down) % 96)
    share = up / down
    if above:
        inside = every // (down * below) == (every + down) % 96 // (down * below)
        np.testing.assert_allclose(to_next_leaf[inside].min(), share * fabric.port_bytes_per_s)
        far, _ = rates(fabric, every, (every + down * below) % 96)
        assert far.min() == pytest.approx(share * above / below * fabric.port_bytes_per_s)
    else:
        np.testing.assert_allclose(to_next_leaf, share * fabric.port_bytes_per_s)


def test_less_above_the_leaves_costs_less():
    costs = [replace(TREE, oversubscription=ratio).cost_usd for ratio in (1.0, 3.0, 7.0)]
    assert costs == sorted(costs, reverse=True)
    watts = [replace(TREE, spine_oversubscription=ratio).static_w for ratio in (1.0, 3.0)]
    assert watts[1] < watts[0]


def test_static_routing_carries_shifts_in_full_and_other_permutations_less():
    """Zahavi 2012 for shifts; collisions of static routing otherwise (Hoefler et al., CLUSTER 2008)."""
    static, every = replace(TREE, spreading=Spreading.STATIC), np.arange(128)
    shifted, _ = rates(static, every, (every + 37) % 128)
    np.testing.assert_allclose(shifted, static.port_bytes_per_s)
    other, _ = rates(static, every, permutation(128))
    assert other.min() <= static.port_bytes_per_s / 2


@pytest.mark.parametrize("endpoints", [64, 512, 4096])
def test_as_many_switches_as_rail_optimised_networks_without_oversubscription(endpoints):
    rails, tree = RailFabric(endpoints=endpoints), FatTree(endpoints=endpoints)
    assert tree.bill() == rails.bill()


RAILS = RailOnly(endpoints=1024)


def test_rails_do_not_meet_outside_the_nodes():
    """Wang et al. 2024: no link joins two rails; all that crosses goes through scale-up domains."""
    network = np.arange(RAILS.wiring.links) >= 2 * RAILS.endpoints
    first = np.flatnonzero(np.arange(RAILS.endpoints) % 8 < 4)
    assert cut_bytes_per_s(RAILS, first, links=network) == 0.0
    assert cut_bytes_per_s(RAILS, first) > 0.0


def test_other_rails_are_reached_through_the_node():
    links = RAILS.route(None, flows([0, 0, 0], [8, 9, 1]))
    crossing = (links >= 0) & (links < 2 * RAILS.endpoints)
    assert crossing.sum(axis=1).tolist() == [0, 2, 2]
    assert RAILS.transfer_energy_j(flows(0, 9)) - RAILS.transfer_energy_j(flows(0, 8)) == pytest.approx(
        RAILS.transfer_energy_j(flows(0, 1))
    )


def test_along_rails_nothing_is_lost():
    ranks = np.arange(4096)
    for fabric in (RailFabric(endpoints=4096), RailOnly(endpoints=4096)):
        links = fabric.route(None, flows(ranks, (ranks + 8) % 4096))
        graph = fabric.graph(None)
        slowest = np.where(links >= 0, graph.capacity_bytes_per_s[links], np.inf).min(axis=1)
        np.testing.assert_allclose(slowest, fabric.port_bytes_per_s)


@pytest.mark.parametrize(("radix", "saved"), [(64, 0.38), (128, 0.77)])
def test_rails_without_spines_save_what_was_published(radix, saved):
    """Wang et al. 2024: 38 to 77 % of the network's price.

    The sizes are chosen here: a three-level network becomes one of two levels, or of one, which are the ends
    of what can be saved. Tolerance 0.05: modules and switch ports have the prices of our tables, not theirs.
    """
    domain = replace(load_scale_up("nvlink4"), size=256)
    switch = replace(load_packet_switch("switch-400g"), radix=radix)
    prices = []
    for kind in (FatTree, RailOnly):
        bill = kind(endpoints=32768, scale_up=domain, switch=switch).bill()
        prices.append(
            sum(bill[part].count * bill[part].usd_each for part in ("transceiver", "packet switch"))
        )
    assert 1.0 - prices[1] / prices[0] == pytest.approx(saved, abs=0.05)


def test_a_node_of_one_makes_rail_only_a_fat_tree():
    every = np.arange(128)
    for fabric in (RailOnly(endpoints=128, scale_up=SINGLE, switch=SMALL, spreading=Spreading.SPRAYED), TREE):
        found, _ = rates(fabric, every, permutation(128))
        np.testing.assert_allclose(found, fabric.port_bytes_per_s)
    assert (
        RailOnly(endpoints=128, scale_up=SINGLE, switch=SMALL, spreading=Spreading.SPRAYED).bill()
        == TREE.bill()
    )


@pytest.mark.parametrize("n", [4, 16, 64])
def test_switches_that_add_halve_what_ports_carry(n):
    """(n+1)/n m/B against 2 (n-1)/n m/B (Klenk et al. 2020); the adder's efficiency counts."""
    ideal = replace(load_adder("sharp"), start_s=0.0, efficiency=1.0)
    fabric = FatTree(endpoints=n, scale_up=SINGLE, reduction=Reduction.SWITCHES, adder=ideal)
    payload, port = 1e11, fabric.port_bytes_per_s
    assert plan(fabric)[0].algorithm == "in_switches sharp"
    adding = collective_s(fabric, payload=payload)
    assert adding == pytest.approx((n + 1) / n * payload / port, rel=1e-3)
    alone = collective_s(replace(fabric, reduction=Reduction.ENDPOINTS), payload=payload, algorithm="ring")
    library = plan(replace(fabric, reduction=Reduction.ENDPOINTS), payload=payload)[0].algorithm
    share = next(one.network_efficiency for one in SINGLE.protocols if library.endswith(one.name))
    assert alone * share / adding == pytest.approx(2 * (n - 1) / (n + 1), rel=2e-2)


def test_nodes_and_switches_add_in_turn():
    fabric = FatTree(endpoints=64, reduction=Reduction.SWITCHES)
    options = {"kind": CollectiveKind.ALL_REDUCE, "payload": 1e9}
    assert plan(fabric, **options)[0].algorithm.startswith("hierarchical_in_switches")
    assert collective_s(fabric, **options) < collective_s(
        replace(fabric, reduction=Reduction.ENDPOINTS), **options
    )


def test_a_slow_adder_is_left_alone():
    slow = replace(load_adder("sharp"), efficiency=0.01)
    fabric = FatTree(endpoints=64, reduction=Reduction.SWITCHES, adder=slow)
    assert "in_switches" not in plan(fabric)[0].algorithm


@pytest.mark.parametrize(("endpoints", "levels"), [(8, 1), (72, 1), (144, 2), (4096, 3)])
def test_a_switched_domain_grows_levels_and_ports(endpoints, levels):
    scale_up = replace(load_scale_up("nvlink5-72"), size=endpoints)
    fabric = SwitchedDomain(endpoints=endpoints, scale_up=scale_up)
    assert fabric.clos.levels == levels
    per_endpoint = fabric.bill()["scale-up"].count / endpoints
    assert 2 * levels - 1 <= per_endpoint < 2 * levels + 0.5
    every = np.arange(endpoints)
    found, _ = rates(fabric, every, permutation(endpoints))
    np.testing.assert_allclose(found, scale_up.capacity_bytes_per_s)


def test_one_domain_adds_in_its_switches():
    """NVLS: (n+1)/n m/B at the efficiency of its long chunks (Klenk et al. 2020)."""
    scale_up = load_scale_up("nvlink5-72")
    fabric = SwitchedDomain(endpoints=72, scale_up=scale_up)
    adder = max(scale_up.adders, key=lambda one: one.efficiency)
    found = collective_s(fabric, payload=1e11, algorithm="in_network")
    expected = 73 / 72 * 1e11 / (scale_up.capacity_bytes_per_s * adder.efficiency)
    assert found == pytest.approx(expected, rel=1e-2)


def test_a_domain_must_hold_the_system():
    with pytest.raises(ParameterError, match="must hold all 64"):
        SwitchedDomain(endpoints=64, scale_up=load_scale_up("nvlink4"))


def test_a_link_too_long_for_its_modules_is_refused():
    long = replace(TREE.transceiver, fibre_m=5000.0)
    with pytest.raises(LinkError, match="the greatest loss is fibre"):
        replace(TREE, transceiver=long)
    with pytest.raises(LinkError, match="the greatest loss is connectors"):
        replace(TREE, hop=replace(TREE.hop, connectors=12))
