"""What every fabric that is a fixed graph must keep, whatever its topology."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest

from electronic.devices import load_packet_switch, load_scale_up
from electronic.fabrics.dragonfly import Dragonfly, DragonflyPlus, Routing
from electronic.fabrics.fat_tree import FatTree, RailOnly, SwitchedDomain
from electronic.fabrics.packets import RailFabric, Reduction
from electronic.fabrics.torus import Medium, TorusFabric, Wrap
from optical.fabrics.rotor import Relaying, RotorFabric
from optical.fabrics.switches import load_optics, load_switch
from simulator.fabric import missing_members
from simulator.interfaces import Flows
from simulator.operators import CollectiveKind
from simulator.topology.clos import Spreading
from simulator.topology.torus import TorusSpreading
from tests.bounds import collective_bound_s, in_network_bound_s
from tests.builders import dead_numbers
from tests.conformance.graphs import (
    alone_s,
    collective_s,
    cut_bytes_per_s,
    plan,
    ports_bytes_per_s,
    rates,
    walked,
)
from tests.conformance.registered import never_changing, registered

N = 64
PAIRS = replace(load_scale_up("nvlink4"), size=2)
SMALL = replace(load_packet_switch("switch-400g"), radix=8)
TREE = FatTree(endpoints=N, scale_up=PAIRS, switch=SMALL)
RAILS = RailOnly(endpoints=N, scale_up=PAIRS, switch=SMALL)
FLY = Dragonfly(endpoints=N, scale_up=PAIRS, switch=SMALL, terminals=2, routers=4, global_links=2)
PLUS = DragonflyPlus(
    endpoints=N, scale_up=PAIRS, switch=SMALL, terminals=4, leaves=4, spines=4, global_links=3
)
CUBE = TorusFabric(endpoints=N, x=4, y=4)
NVLINK = SwitchedDomain(endpoints=N, scale_up=replace(load_scale_up("nvlink4"), size=N), radix=16)
ROTOR = RotorFabric(endpoints=N, scale_up=PAIRS)
SIRIUS = replace(
    ROTOR,
    switch=load_switch("sirius-awgr"),
    optics=load_optics("lane-100g-boosted"),
    relaying=Relaying.ALWAYS,
)
FABRICS = {
    "fat-tree": TREE,
    "fat-tree, one switch": FatTree(endpoints=N, scale_up=PAIRS),
    "fat-tree, oversubscribed": replace(TREE, oversubscription=3.0, spine_oversubscription=2.0),
    "fat-tree, static": replace(TREE, spreading=Spreading.STATIC),
    "fat-tree, hashed": replace(TREE, spreading=Spreading.HASHED),
    "fat-tree, hashed by queue pairs": replace(TREE, spreading=Spreading.HASHED, queue_pairs=4),
    "fat-tree, adaptive": replace(TREE, spreading=Spreading.ADAPTIVE),
    "rails, hashed": RailFabric(endpoints=N, scale_up=PAIRS, switch=SMALL, spreading=Spreading.HASHED),
    "fat-tree, adding": replace(TREE, reduction=Reduction.SWITCHES),
    "rail-only": RAILS,
    "rail-only, static": replace(RAILS, spreading=Spreading.STATIC, oversubscription=2.0),
    "dragonfly": FLY,
    "dragonfly, valiant": replace(FLY, routing=Routing.VALIANT),
    "dragonfly, one group": Dragonfly(endpoints=N, scale_up=PAIRS),
    "dragonfly+": PLUS,
    "torus": CUBE,
    "torus, flat": TorusFabric(endpoints=N, x=1, y=8),
    "torus, odd": TorusFabric(endpoints=45, x=3, y=3),
    "torus, twisted": TorusFabric(endpoints=128, x=4, y=4, wrap=Wrap.TWISTED),
    "torus, fibre": replace(CUBE, medium=Medium.OPTICAL),
    "nvlink": NVLINK,
    "rotor": ROTOR,
    "rotor, a lane for every node": replace(ROTOR, lanes=32),
    "sirius": SIRIUS,
}
FABRICS |= never_changing(registered(N))
every_fabric = pytest.mark.parametrize("fabric", FABRICS.values(), ids=FABRICS)
KINDS = (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL)


def pairs(fabric):
    one, other = (side.ravel() for side in np.indices((fabric.endpoints, fabric.endpoints)))
    return one[one != other], other[one != other]


@every_fabric
def test_it_is_a_fabric_with_links_for_ever(fabric):
    assert missing_members(fabric) == ()
    circuits, change = fabric.configure(None, Flows(sources=[0], destinations=[1], size_bytes=1.0), ())
    assert circuits is None
    assert change.reconfiguration_s == 0.0
    graph = fabric.graph(None)
    assert (graph.capacity_bytes_per_s >= 0).all()
    assert (graph.latency_s >= 0).all()
    assert graph.capacity_bytes_per_s.shape == graph.latency_s.shape


@every_fabric
def test_every_flow_is_led_link_by_link_to_its_destination(fabric):
    """What a vertex takes in it passes on: bytes are conserved at every switch."""
    sources, destinations = pairs(fabric)
    np.testing.assert_array_equal(walked(fabric, sources, destinations), destinations)
    assert (
        fabric.route(None, Flows(sources=np.arange(3), destinations=np.arange(3), size_bytes=1.0)) < 0
    ).all()


@every_fabric
def test_no_route_passes_a_link_twice_and_all_can_carry(fabric):
    links = fabric.route(None, Flows(sources=pairs(fabric)[0], destinations=pairs(fabric)[1], size_bytes=1.0))
    assert (fabric.graph(None).capacity_bytes_per_s[links[links >= 0]] > 0).all()
    ordered = np.sort(links, axis=1)
    assert not ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any()


@every_fabric
def test_no_link_carries_more_than_it_can(fabric):
    found, load = rates(
        fabric, np.arange(fabric.endpoints), np.random.default_rng(1).permutation(fabric.endpoints)
    )
    assert (load <= fabric.graph(None).capacity_bytes_per_s * (1 + 1e-9)).all()
    assert (found > 0).all()


@every_fabric
def test_a_flow_alone_takes_size_over_rate_and_the_latency(fabric):
    """One that takes several paths at once takes as long as the slowest of them."""
    for destination in (1, fabric.endpoints // 2, fabric.endpoints - 1):
        one = Flows(sources=np.array([0]), destinations=np.array([destination]), size_bytes=1e6)
        links, graph, load = fabric.route(None, one), fabric.graph(None), fabric.loads(None, one)
        mine = links[links >= 0]
        expected = 1e6 / (graph.capacity_bytes_per_s[load.links] / load.usage).min() + load.latency_s
        if (load.usage == 1.0).all() and load.links.size == mine.size:
            relayed = fabric.hop_latency_s if isinstance(fabric, RotorFabric) else 0.0
            routed = 1e6 / graph.capacity_bytes_per_s[mine].min() + graph.latency_s[mine].sum()
            assert expected in (pytest.approx(routed, rel=1e-12), pytest.approx(routed + relayed, rel=1e-12))
        assert alone_s(fabric, 0, destination) == pytest.approx(expected, rel=1e-12)


@every_fabric
@pytest.mark.parametrize("kind", KINDS)
def test_no_collective_beats_its_ports(fabric, kind):
    """Chan et al. 2007, table 1; with adding switches Klenk et al. 2020."""
    bound = collective_bound_s
    if plan(fabric, kind)[0].algorithm.startswith(("in_", "hierarchical_in")):
        bound = in_network_bound_s
    least = bound(kind, fabric.endpoints, 1e9, ports_bytes_per_s(fabric))
    assert collective_s(fabric, kind=kind) >= least


@every_fabric
def test_no_all_to_all_beats_the_cut_through_the_middle(fabric):
    """Half of the endpoints send a quarter of all pairs' bytes to the other half over the least cut."""
    half = np.arange(fabric.endpoints // 2)
    crossing = half.size * (fabric.endpoints - half.size) * 1e9 / fabric.endpoints
    assert collective_s(fabric, kind=CollectiveKind.ALL_TO_ALL) >= crossing / cut_bytes_per_s(
        fabric, half
    ) * (1 - 1e-3)


@every_fabric
def test_power_price_and_energy_add_up_and_grow_with_bytes(fabric):
    bill = fabric.bill()
    assert fabric.static_w == pytest.approx(sum(item.count * item.w_each for item in bill.values()))
    assert fabric.cost_usd == pytest.approx(sum(item.count * item.usd_each for item in bill.values()))
    flow = Flows(sources=np.array([0]), destinations=np.array([fabric.endpoints // 2]), size_bytes=1e6)
    energy_j = fabric.transfer_energy_j(flow)
    assert energy_j > 0
    assert fabric.transfer_energy_j(replace(flow, size_bytes=2e6)) == pytest.approx(2 * energy_j)
    assert fabric.transfer_energy_j(replace(flow, destinations=flow.sources)) == 0.0


KNOBS = {
    "fat-tree": replace(TREE, oversubscription=2.0, spine_oversubscription=2.0),
    "fat-tree, adding": replace(TREE, reduction=Reduction.SWITCHES),
    "rail-only": replace(RAILS, reduction=Reduction.SWITCHES),
    "dragonfly": replace(FLY, reduction=Reduction.SWITCHES),
    "dragonfly+": replace(PLUS, reduction=Reduction.SWITCHES),
    "torus": CUBE,
    "torus, fibre": replace(CUBE, medium=Medium.OPTICAL),
    "nvlink": NVLINK,
    "opera": replace(
        ROTOR,
        bulk_bytes=6e5,
        switch=replace(load_switch("rotor"), positions=4),
        optics=load_optics("lane-100g-duplex"),
    ),
    "sirius": SIRIUS,
}
SILENT = {
    # Copper has no module, fibre no cable; switches that do not add have no adder.
    "torus": ("transceiver.", "hop."),
    "torus, fibre": ("link.price_usd",),
    "fat-tree": ("adder.",),
    # No circulators, gratings larger than needed, nothing small.
    "sirius": ("optics.circulator_loss_db", "switch.spare_ports", "bulk_bytes"),
}
LIBRARY = ("scale_up.protocols.", "scale_up.adders.", "scale_up.copy_bytes_per_s")
"""Numbers of a library, which act on collectives by size; tests of reductions hold them."""


def outputs(fabric):
    bill = list(fabric.bill().values())
    reduced_s = collective_s(fabric, payload=1e8)
    shuffled, _ = rates(fabric, np.arange(N), np.random.default_rng(2).permutation(N))
    alone = [alone_s(fabric, 0, one) for one in (1, 2, 7, 33, 63)]
    flow = Flows(sources=np.array([0, 0]), destinations=np.array([1, 63]), size_bytes=1e6)
    budget = fabric.optical_budget.spare_db if hasattr(fabric, "optical_budget") else 0.0
    return bill, reduced_s, shuffled.tolist(), alone, fabric.transfer_energy_j(flow), budget


@pytest.mark.parametrize("name", KNOBS)
def test_no_number_of_a_fabric_is_a_dead_knob(name):
    fabric = KNOBS[name]

    def idle(path):
        told = path.rpartition(".")[2] in fabric.traits.idle_numbers
        return told or path.startswith((*LIBRARY, *SILENT.get(name, ())))

    assert not dead_numbers(fabric, outputs, idle=idle)


@pytest.mark.parametrize("name", KNOBS)
def test_no_choice_of_a_fabric_is_without_effect(name):
    fabric = KNOBS[name]
    for item in dataclasses.fields(fabric):
        value = getattr(fabric, item.name)
        if isinstance(value, Spreading | TorusSpreading | Reduction | Medium | Routing | Relaying):
            others = [outputs(replace(fabric, **{item.name: other})) for other in type(value)]
            assert others[0] != others[1], item.name
