"""Dragonflies and tori: links of groups, bounds of their papers, and what they become in their limits."""

from dataclasses import replace

import numpy as np
import pytest

from electronic.devices import load_packet_switch
from electronic.fabrics.dragonfly import Dragonfly, DragonflyPlus, Routing
from electronic.fabrics.fat_tree import FatTree
from electronic.fabrics.torus import Medium, TorusFabric, Wrap, cube_sides
from simulator.errors import LinkError, ParameterError
from simulator.interfaces import Flows
from simulator.operators import CollectiveKind
from simulator.topology.clos import GlobalLinks
from simulator.topology.torus import TorusSpreading
from tests.bounds import collective_bound_s
from tests.builders import SINGLE, permutation
from tests.conformance.graphs import collective_s, cut_bytes_per_s, flows, plan, rates

SWITCH = load_packet_switch("switch-400g")
FLY = Dragonfly(endpoints=72, scale_up=SINGLE, terminals=2, routers=4, global_links=2)
PLUS = DragonflyPlus(endpoints=112, scale_up=SINGLE, terminals=4, leaves=4, spines=3, global_links=2)


@pytest.mark.parametrize(
    ("groups", "places", "each"), [(9, 4, 2), (5, 4, 2), (2, 3, 5), (7, 3, 4), (1, 4, 0)]
)
def test_every_two_groups_have_as_many_links_and_no_switch_too_many(groups, places, each):
    """Kim et al. 2008: a h links of a group lead to every other; g = a h + 1 at most."""
    links = GlobalLinks(groups=groups, places=places, each=each)
    begin, end = (side[: links.links] for side in links.ends)
    joined = np.zeros((groups, groups), dtype=int)
    np.add.at(joined, (begin // places, end // places), 1)
    np.testing.assert_array_equal(joined, links.parallel * (1 - np.eye(groups, dtype=int)))
    np.testing.assert_array_equal(joined, joined.T)
    for side in (begin, end):
        assert np.bincount(side, minlength=1).max(initial=0) <= each
    both = set(zip(begin.tolist(), end.tolist(), strict=True))
    assert both == {(tail, head) for head, tail in both}


def test_more_groups_than_links_are_refused():
    with pytest.raises(ParameterError, match="9 groups are possible"):
        GlobalLinks(groups=10, places=4, each=2)
    with pytest.raises(ParameterError, match="more global_links"):
        replace(FLY, endpoints=80)


def test_a_router_without_enough_ports_is_refused():
    with pytest.raises(ParameterError, match="needs 65 ports"):
        Dragonfly(endpoints=1000, terminals=18)
    with pytest.raises(ParameterError, match="needs 79 ports: 48 endpoints, 1 x 31 local and 0 global"):
        Dragonfly(endpoints=96, terminals=48)
    with pytest.raises(ParameterError, match="a leaf needs 65 ports"):
        DragonflyPlus(endpoints=64, terminals=33)


@pytest.mark.parametrize("fabric", [FLY, PLUS], ids=["dragonfly", "dragonfly+"])
def test_minimal_routes_take_at_most_one_link_between_groups(fabric):
    one, other = (side.ravel() for side in np.indices((fabric.endpoints, fabric.endpoints)))
    away = one // fabric.group_endpoints != other // fabric.group_endpoints
    links = fabric.paths(one[away], other[away])
    first = fabric.wiring.links - fabric.peers.links
    assert ((links >= first).sum(axis=1) == 1).all()
    assert ((links >= 0).sum(axis=1) <= 5).all()


def test_uniform_traffic_loads_global_links_alike():
    """Kim et al. 2008, section 3: with a h + 1 groups each pair of groups has one link, which all share."""
    one, other = (side.ravel() for side in np.indices((72, 72)))
    links = FLY.paths(one[one != other], other[one != other])
    load = np.bincount(links[links >= 0], minlength=FLY.wiring.links)[-FLY.peers.links :]
    assert set(load.tolist()) == {FLY.group_endpoints**2}


def test_traffic_to_the_next_group_has_one_link_for_all():
    """Kim et al. 2008, section 4.1: minimal routing sustains 1 / (a p) of the ports in the worst case."""
    every = np.arange(72)
    found, _ = rates(FLY, every, (every + FLY.group_endpoints) % 72)
    expected = FLY.trunk_bytes_per_s / FLY.group_endpoints
    np.testing.assert_allclose(found, expected)


def test_valiant_routing_gives_the_worst_case_near_half_and_costs_the_uniform_one():
    """Valiant 1982; Kim et al. 2008: up to half of the ports where minimal routing has 1 / (a p)."""
    every = np.arange(72)
    valiant = replace(FLY, routing=Routing.VALIANT)
    worst = (every + FLY.group_endpoints) % 72
    minimal_share, valiant_share = (
        rates(fabric, every, worst)[0].mean() / fabric.port_bytes_per_s for fabric in (FLY, valiant)
    )
    assert minimal_share == pytest.approx(1 / 8)
    assert 0.25 <= valiant_share <= 0.5 + 1 / 8
    kind = CollectiveKind.ALL_TO_ALL
    assert collective_s(valiant, kind=kind) > 1.3 * collective_s(FLY, kind=kind)


@pytest.mark.parametrize(("width", "flows_of_a_link"), [(1, 24 / 7), (2, 16 / 7)])
def test_valiant_detours_carry_a_shift_of_groups_in_equal_shares(width, flows_of_a_link):
    """Nine groups: 7 detours for each of 8 flows, over two global links, give 16/7. Single local links have
    more: 16/7 that pass through a group, and 4/7 each that leave and arrive (Garcia et al., ICPP 2012)."""
    valiant = replace(FLY, routing=Routing.VALIANT, local_width=width)
    every = np.arange(72)
    shift = Flows(sources=every, destinations=(every + valiant.group_endpoints) % 72, size_bytes=1.0)
    loads = valiant.loads(None, shift)
    busiest = (loads.usage / valiant.graph(None).capacity_bytes_per_s[loads.links]).max()
    assert busiest * valiant.port_bytes_per_s == pytest.approx(flows_of_a_link)


def test_wide_local_and_many_global_links_make_a_dragonfly_a_switch():
    ports = replace(SWITCH, radix=10**4)
    wide = replace(FLY, switch=ports, local_width=100, global_links=640)
    for seed in range(3):
        found, _ = rates(wide, np.arange(72), permutation(72, seed))
        np.testing.assert_allclose(found, wide.port_bytes_per_s)
    assert rates(FLY, np.arange(72), permutation(72))[0].min() < FLY.port_bytes_per_s


def test_a_single_group_of_dragonfly_plus_is_a_leaf_spine_network():
    """Full bisection inside a group whose leaves have a link up for each down (Shpiner et al. 2017)."""
    one = DragonflyPlus(endpoints=64, scale_up=SINGLE, terminals=8, leaves=8, spines=8, global_links=0)
    assert one.switches == 16
    half = np.arange(32)
    assert cut_bytes_per_s(one, half) == pytest.approx(32 * one.port_bytes_per_s, rel=1e-3)
    shifted, _ = rates(one, np.arange(64), (np.arange(64) + 8) % 64)
    np.testing.assert_allclose(shifted, one.port_bytes_per_s)


def test_what_has_no_endpoints_is_not_bought():
    assert Dragonfly(endpoints=8).switches == DragonflyPlus(endpoints=8).switches == 1
    assert Dragonfly(endpoints=8).trunks == DragonflyPlus(endpoints=8).trunks == 0


@pytest.mark.parametrize("endpoints", [16, 32, 72, 128, 512, 520])
@pytest.mark.parametrize("routing", Routing)
def test_a_dragonfly_carries_only_over_routers_and_links_that_it_buys(endpoints, routing):
    """Valiant's detours of a single group once went over routers that it did not have."""
    fabric = Dragonfly(endpoints=endpoints, routing=routing)
    links = fabric.wiring
    packets = endpoints + fabric.nodes
    between = (links.tails >= packets) & (links.heads >= packets)
    joined = links.capacity_bytes_per_s[between].sum() / fabric.trunk_bytes_per_s
    assert joined == pytest.approx(2 * fabric.trunks)
    assert max(links.tails.max(), links.heads.max()) == packets + fabric.switches - 1


@pytest.mark.parametrize("endpoints", [32, 128, 256])
def test_a_small_group_shares_the_ports_to_missing_routers(endpoints):
    """Traffic to all others then is as fast as over one switch; with single links it took up to ten times."""
    fabric = Dragonfly(endpoints=endpoints)
    assert fabric.terminals + (fabric.switches - 1) * fabric.local_links <= fabric.switch.radix
    given = {"kind": CollectiveKind.ALL_TO_ALL, "payload": 1e9}
    tree_s = collective_s(FatTree(endpoints=endpoints), **given)
    assert collective_s(fabric, **given) == pytest.approx(tree_s, rel=0.01)


def test_adaptive_routing_shares_a_shift_between_the_direct_link_and_detours():
    """8 (1 - s) flows on the link to the next group and 16/7 s on each other, which no shortest route takes:
    16/9 with s = 7/9, where Valiant has 16/7 and minimal routing 8 (UGAL; Kim et al. 2008, section 4)."""
    wide = replace(FLY, local_width=2)
    every = np.arange(72)
    shift = Flows(sources=every, destinations=(every + FLY.group_endpoints) % 72, size_bytes=1.0)
    found = {}
    for routing in Routing:
        fabric = replace(wide, routing=routing)
        loads = fabric.loads(None, shift)
        busiest = (loads.usage / fabric.graph(None).capacity_bytes_per_s[loads.links]).max()
        found[routing] = float(busiest) * fabric.port_bytes_per_s
    assert found[Routing.MINIMAL] == pytest.approx(8.0)
    assert found[Routing.VALIANT] == pytest.approx(16 / 7)
    assert found[Routing.ADAPTIVE] == pytest.approx(16 / 9, rel=1e-4)


@pytest.mark.parametrize("kind", [CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL])
def test_adaptive_routing_is_as_fast_as_the_faster_of_the_others(kind):
    """A step has to choose one for its all-reduces and its all-to-alls; each is 1.8 to 2 times slow on the
    other's routing."""
    took = {one: collective_s(replace(FLY, routing=one), kind=kind) for one in Routing}
    assert took[Routing.ADAPTIVE] <= min(took.values()) * (1.0 + 1e-6)
    assert max(took.values()) > 1.7 * took[Routing.ADAPTIVE]
    assert took[Routing.ADAPTIVE] >= collective_bound_s(kind, 72, 1e9, FLY.port_bytes_per_s)


@pytest.mark.parametrize("routing", Routing)
@pytest.mark.parametrize("seed", range(2))
def test_detours_of_a_dragonfly_leave_out_dead_links(routing, seed):
    """What fails slows by its share: a link of 72 dead may not send all flows back to one route each."""
    fabric = replace(FLY, routing=routing)
    every = np.arange(72)
    shift = Flows(sources=every, destinations=(every + FLY.group_endpoints) % 72, size_bytes=1.0)
    trunks = np.arange(4 * 72, fabric.wiring.links)
    whole = fabric.loads(None, shift)
    used = np.intersect1d(whole.links, trunks)
    dead = np.random.default_rng(seed).choice(used, 1)
    left = fabric.loads_around(None, shift, dead)
    assert not np.isin(left.links, dead).any()
    before, after = (
        float((one.usage / fabric.wiring.capacity_bytes_per_s[one.links]).max()) for one in (whole, left)
    )
    assert before <= after * (1.0 + 1e-9)
    if routing is not Routing.MINIMAL:
        assert after <= 2.0 * before
    card = np.array([2 * 72])  # of endpoint 0, which nothing then leaves but over its node
    assert 2 * 72 in fabric.loads_around(None, shift, card).links


CUBE = TorusFabric(endpoints=64, x=4, y=4)


@pytest.mark.parametrize(
    ("shape", "cut"), [((4, 4, 4), 32), ((4, 4, 8), 32), ((2, 4, 8), 16), ((8, 8, 8), 128)]
)
def test_a_torus_bisects_at_two_slabs_of_its_longest_axis(shape, cut):
    """2 N / d_max links of an even longest axis d_max."""
    nodes = int(np.prod(shape))
    fabric = TorusFabric(endpoints=nodes, x=shape[0], y=shape[1])
    assert cut == 2 * nodes // max(shape)
    places = fabric.ways.places[:, -1]
    half = np.flatnonzero(places < shape[2] // 2)
    assert cut_bytes_per_s(fabric, half) == pytest.approx(cut * fabric.link_bytes_per_s, rel=1e-3)


@pytest.mark.parametrize(("shape", "load"), [((4, 4, 4), 32), ((4, 4, 8), 128), ((4, 8, 8), 256)])
def test_an_all_to_all_takes_its_busiest_link(shape, load):
    """N d_max / 8 pairs over the busiest link: the exact optimum of a linear programme."""
    nodes = int(np.prod(shape))
    fabric = TorusFabric(endpoints=nodes, x=shape[0], y=shape[1])
    pair_bytes = 1e9 / nodes
    found = collective_s(fabric, kind=CollectiveKind.ALL_TO_ALL)
    assert found == pytest.approx(load * pair_bytes / fabric.link_bytes_per_s, rel=1e-3)


def test_a_twist_speeds_an_all_to_all_up():
    """TPU v4: 1.63 measured and 1.745 ideal on 4 x 4 x 8; all shortest ways reach what the graph allows,
    one static way a pair 1.49."""
    kind = CollectiveKind.ALL_TO_ALL
    gains = []
    for how in TorusSpreading:
        times = [
            collective_s(TorusFabric(endpoints=128, x=4, y=4, wrap=wrap, spreading=how), kind=kind)
            for wrap in Wrap
        ]
        gains.append(times[0] / times[1])
    sprayed, static = gains
    assert sprayed == pytest.approx(128 / (220 / 3), rel=1e-3)
    assert 1.4 < static < 1.55


@pytest.mark.parametrize("sides", [(4, 4), (8, 8)])
def test_an_all_reduce_on_a_cube_uses_all_six_links(sides):
    """2 (n-1)/n m over six links, and a latency for every step of every ring."""
    n = sides[0] ** 3
    fabric = TorusFabric(endpoints=n, x=sides[0], y=sides[1])
    assert plan(fabric)[0].algorithm == "bucket"
    ports = 6 * fabric.link_bytes_per_s
    latency_s = 2 * 3 * (sides[0] - 1) * fabric.link.latency_s
    least = collective_bound_s(CollectiveKind.ALL_REDUCE, n, 1e9, ports)
    assert collective_s(fabric) == pytest.approx(least + latency_s, rel=1e-9)


def test_part_of_a_torus_uses_the_axes_it_spans():
    fabric = TorusFabric(endpoints=512, x=8, y=8)
    found = plan(fabric, ranks=64)[0]
    assert found.algorithm == "bucket"
    ports = 4 * fabric.link_bytes_per_s
    assert collective_s(fabric, ranks=64) >= collective_bound_s(CollectiveKind.ALL_REDUCE, 64, 1e9, ports)


def test_every_link_of_a_way_costs_energy():
    joules = [CUBE.transfer_energy_j(flows(0, there)) for there in (1, 2, 21)]
    assert joules[1] == pytest.approx(2 * joules[0])
    assert joules[2] == pytest.approx(3 * joules[0])


def test_fibres_add_modules_latency_and_a_budget():
    fibre = replace(CUBE, medium=Medium.OPTICAL)
    assert fibre.bill()["transceiver"].count == 2 * 3 * 64
    assert fibre.cost_usd > CUBE.cost_usd
    assert fibre.wiring.latency_s[0] == CUBE.wiring.latency_s[0] + fibre.transceiver.link_latency_s
    with pytest.raises(LinkError, match=r"neighbours in 'torus'.*fibre"):
        replace(fibre, transceiver=replace(fibre.transceiver, fibre_m=9000.0))
    replace(CUBE, transceiver=replace(fibre.transceiver, fibre_m=9000.0))


def test_sides_are_as_equal_as_they_can_be():
    assert [cube_sides(n) for n in (1, 8, 64, 128, 4096, 16384)] == [
        (1, 1, 1),
        (2, 2, 2),
        (4, 4, 4),
        (8, 4, 4),
        (16, 16, 16),
        (32, 32, 16),
    ]
    with pytest.raises(ParameterError, match="try x=4, y=4"):
        TorusFabric(endpoints=64, x=3, y=4)


def test_sides_that_nobody_chose_close_round_the_nearest_ranks():
    free = TorusFabric(endpoints=4096)
    assert free.shape == (16, 16, 16)
    assert [one.shape for one in free.laid_for((8, 512, 4096))] == [(16, 16, 16), (32, 16, 8)]
    assert [one.shape for one in free.laid_for((1, 16, 4096))] == [(16, 16, 16), (256, 4, 4)]
    assert free.laid_for((1, 4096)) == (free,)
    assert replace(free, y=16).shape == (16, 16, 16)
    assert replace(free, x=64).laid_for((8, 512, 4096)) == (replace(free, x=64),)
