"""What every fabric whose circuits stand beside other ways must keep, whatever its circuits are made of."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
import simpy

from electronic.devices import load_scale_up
from electronic.fabrics.fat_tree import FatTree
from optical.fabrics.in_network_reduction import OpticalReduction, load_optical_adder
from optical.fabrics.node_circuits import CircuitChoice, DirectConnect, HybridFabric
from optical.fabrics.switches import load_optics, load_switch
from optical.fabrics.wafer import WaferFabric, load_wafer
from simulator.collectives.traffic import Traffic
from simulator.engine.network import Network, max_min_rates
from simulator.errors import LinkError
from simulator.fabric import CircuitPolicy, missing_members
from simulator.interfaces import Flows
from simulator.layout import Axis, RankLayout
from simulator.operators import CollectiveKind
from tests.bounds import collective_bound_s, in_network_bound_s
from tests.builders import collective, dead_numbers
from tests.conformance.registered import registered, with_circuits

N = 32
FOURS = replace(load_scale_up("nvlink4"), size=4)
TREE = FatTree(endpoints=N, scale_up=FOURS)
LIBRARY = replace(FOURS, adders=())
DIRECT = DirectConnect(endpoints=N, scale_up=FOURS, degree=4)
HYBRID = HybridFabric(packets=TREE, degree=3)
REGIONAL = HybridFabric(
    packets=TREE,
    degree=3,
    region=4,
    axis=Axis.EXPERT,
    choice=CircuitChoice.GREEDY,
    policy=CircuitPolicy.PER_AXIS,
)
WAFER = WaferFabric(packets=FatTree(endpoints=N, scale_up=replace(LIBRARY, size=16)))
LIGHT = OpticalReduction(packets=TREE)
FABRICS = {
    "direct connect": DIRECT,
    "direct connect, per axis": replace(DIRECT, policy=CircuitPolicy.PER_AXIS),
    "hybrid": HYBRID,
    "hybrid, greedy": replace(HYBRID, choice=CircuitChoice.GREEDY),
    "hybrid, per axis": replace(HYBRID, policy=CircuitPolicy.PER_AXIS),
    "regional": REGIONAL,
    **{f"wafer, {name}": replace(WAFER, wafer=load_wafer(name)) for name in load_wafer.table.names},
    "wafer, static": replace(WAFER, policy=CircuitPolicy.STATIC),
    "optical reduction": LIGHT,
}
FABRICS |= with_circuits(registered(N))
every_fabric = pytest.mark.parametrize("fabric", FABRICS.values(), ids=FABRICS)
RANKS = np.arange(N).reshape(2, 8, 2)
"""Ranks by pipeline stage, data and tensor parallelism."""


def flows(sources, destinations, axis, size=1e9):
    return Flows(
        sources=np.asarray(sources).ravel(),
        destinations=np.asarray(destinations).ravel(),
        size_bytes=size,
        axis=axis,
    )


def ring(place, axis, size=1e9, kind=CollectiveKind.ALL_REDUCE):
    groups = np.moveaxis(RANKS, place, -1).reshape(-1, RANKS.shape[place])
    return Flows.around(groups, size_bytes=size, axis=axis, kind=kind)


def experts(size=1e8):
    """Everyone of a stage's data-parallel ranks to every other."""
    one = np.repeat(RANKS, 8, axis=1)
    other = np.tile(RANKS, (1, 8, 1))
    return flows(one[one != other], other[one != other], "ep", size)


DEMAND = (
    ring(2, "tp"),
    ring(1, "dp", 4e9),
    flows(RANKS[:1], RANKS[1:], "pp"),
    flows(RANKS[1:], RANKS[:1], "pp"),
    ring(1, "ep", 4e9, CollectiveKind.ALL_TO_ALL),
)
ASKED = (*DEMAND[:4], experts())


def ends(fabric, circuits):
    """Return the vertices at both ends of every link."""
    wiring = fabric.wired(circuits)
    return wiring.tails, wiring.heads


@every_fabric
def test_every_flow_is_led_link_by_link_to_its_destination(fabric):
    assert missing_members(fabric) == ()
    circuits = fabric.initial(DEMAND)
    for _ in range(2):
        for asked in ASKED:
            circuits, _change = fabric.configure(circuits, asked, DEMAND)
            assert fabric.connected(circuits, asked)
            links = fabric.route(circuits, asked)
            graph = fabric.graph(circuits)
            assert (graph.capacity_bytes_per_s[links[links >= 0]] > 0).all()
            tails, heads = ends(fabric, circuits)
            here = asked.sources.copy()
            for hop in range(links.shape[1]):
                going = links[:, hop] >= 0
                np.testing.assert_array_equal(tails[links[going, hop]], here[going])
                here[going] = heads[links[going, hop]]
            np.testing.assert_array_equal(here, asked.destinations)


@every_fabric
def test_what_changes_is_said_to_move_and_a_second_asking_moves_nothing(fabric):
    circuits = fabric.initial(DEMAND)
    for asked in ASKED:
        before = fabric.graph(circuits)
        circuits, change = fabric.configure(circuits, asked, DEMAND)
        after = fabric.graph(circuits)
        np.testing.assert_array_equal(before.latency_s, after.latency_s)
        different = np.flatnonzero(before.capacity_bytes_per_s != after.capacity_bytes_per_s)
        assert set(different) <= set(change.moved_links)
        assert (change.reconfiguration_s > 0.0) == bool(change.moved_links.size)
        again, nothing = fabric.configure(circuits, asked, DEMAND)
        assert again is circuits
        assert (nothing.reconfiguration_s, nothing.energy_j) == (0.0, 0.0)


@every_fabric
def test_no_link_carries_more_than_it_can(fabric):
    circuits, _ = fabric.configure(fabric.initial(DEMAND), DEMAND[1], DEMAND)
    links = fabric.route(circuits, DEMAND[1])
    flow, hop = np.nonzero(links >= 0)
    capacity = fabric.graph(circuits).capacity_bytes_per_s
    found = max_min_rates(flow, links[flow, hop], capacity, flows=len(links))
    load = np.bincount(links[flow, hop], weights=found[flow], minlength=capacity.size)
    assert (load <= capacity * (1 + 1e-9)).all()
    assert (found > 0).all()


def priced(fabric, kind, payload=1e9, ranks=N):
    operator = collective(kind, ranks, payload)
    network = Network(simpy.Environment(), fabric, ())
    return Traffic(RankLayout(dp=ranks), fabric, network, {}).plan(operator, 0)


@every_fabric
@pytest.mark.parametrize(
    "kind", [CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL]
)
def test_no_collective_beats_all_ports_of_an_accelerator(fabric, kind):
    """Chan et al. 2007, table 1; with units that add Klenk et al. 2020."""
    circuits, ports = fabric.initial(DEMAND), 0.0
    for asked in DEMAND:
        circuits, _ = fabric.configure(circuits, asked, DEMAND)
        wiring = fabric.wired(circuits)
        lit = np.where(wiring.tails != wiring.heads, wiring.capacity_bytes_per_s, 0.0)
        ports = max(ports, np.bincount(wiring.tails, weights=lit)[:N].max())
    plan = priced(fabric, kind)
    adds = "in_switches" in plan.algorithm
    bound = (in_network_bound_s if adds else collective_bound_s)(kind, N, 1e9, ports)
    assert plan.alone_s >= bound


@every_fabric
def test_power_price_and_energy_add_up_and_grow_with_bytes(fabric):
    bill = fabric.bill()
    assert fabric.static_w == pytest.approx(sum(item.count * item.w_each for item in bill.values()))
    assert fabric.cost_usd == pytest.approx(sum(item.count * item.usd_each for item in bill.values()))
    flow = flows([0], [N - 1], "dp", 1e6)
    assert fabric.transfer_energy_j(flow) > 0
    assert fabric.transfer_energy_j(replace(flow, size_bytes=2e6)) == pytest.approx(
        2 * fabric.transfer_energy_j(flow)
    )
    assert fabric.transfer_energy_j(replace(flow, destinations=flow.sources)) == 0.0


DUPLEX = load_optics("lane-100g-duplex")
CROWDED = replace(load_optical_adder("optinc"), fan_in=8, launch_dbm=12.0)
"""As many senders as its detector can just tell apart."""
SILENT = {
    "direct connect": (),
    "hybrid": ("packets.scale_up.adders", "packets.adder"),
    "regional": ("packets.scale_up.adders", "packets.adder"),
    "wafer": (
        "packets.scale_up.bandwidth",
        "packets.scale_up.latency",
        "packets.scale_up.energy",
        "packets.scale_up.static_w",
        "packets.scale_up.price",
        "packets.adder",
    ),
    "optical reduction": ("packets.scale_up.adders", "packets.adder", "unit.detector.cmrr_db"),
}
"""What another description replaces, what asks for a switch that adds, or for a balanced pair."""
EVERYWHERE = (
    "scale_up.protocols",
    "packets.scale_up.protocols",
    "scale_up.adders",
    "scale_up.copy",
    "packets.scale_up.copy",
    "packets.optical",
    "packets.hop",
    "packets.oversubscription",
    "packets.spine_oversubscription",
)
"""Library of the nodes and the packet fabric's own, held by the conformance tests of packet fabrics."""
KNOBS = {
    "direct connect": replace(
        DIRECT, policy=CircuitPolicy.PER_AXIS, degree=2, optics=DUPLEX, switch=load_switch("palomar-mems")
    ),
    "hybrid": replace(HYBRID, region=4, policy=CircuitPolicy.PER_AXIS, optics=DUPLEX),
    "regional": replace(REGIONAL, axis=None, optics=DUPLEX),
    "wafer": WAFER,
    "optical reduction": replace(LIGHT, unit=CROWDED),
}


def outputs(fabric):
    found = []
    circuits = fabric.initial(DEMAND)
    for asked in ASKED:
        circuits, change = fabric.configure(circuits, asked, DEMAND)
        links = fabric.route(circuits, asked)
        graph = fabric.graph(circuits)
        found += [change.reconfiguration_s, change.energy_j, links.tolist(), graph.latency_s.tolist()]
        found.append(graph.capacity_bytes_per_s.tolist())
        found.append(fabric.carried_energy_j(circuits, asked))
    bill = {item: dataclasses.astuple(one) for item, one in fabric.bill().items()}
    adds = [fabric.effective_bits, fabric.network_adder] if isinstance(fabric, OpticalReduction) else []
    if isinstance(fabric, OpticalReduction):
        adds += [fabric.unit.misread, fabric.unit.sum_bits]
    return bill, found, adds


@pytest.mark.slow
@pytest.mark.parametrize("name", KNOBS)
def test_no_number_of_a_fabric_is_a_dead_knob(name):
    fabric = KNOBS[name]

    def idle(path):
        told = path.rpartition(".")[2] in fabric.traits.idle_numbers
        return told or path.startswith((*EVERYWHERE, *SILENT[name])) or path.endswith("area_m2")

    assert not dead_numbers(fabric, outputs, factors=(2, 0.5, 0.01, 1e4), idle=idle)


@pytest.mark.parametrize(
    ("make", "element"),
    [
        (lambda: replace(DIRECT, switch=replace(DIRECT.switch, insertion_loss_db=30.0)), "optical switches"),
        (lambda: replace(HYBRID, optics=replace(HYBRID.optics, connector_loss_db=9.0)), "connectors"),
        (lambda: replace(WAFER, wafer=replace(WAFER.wafer, crossings=2000)), "crossings"),
        (lambda: replace(WAFER, wafer=replace(WAFER.wafer, waveguide_loss_db_per_m=200.0)), "waveguide"),
        (lambda: replace(LIGHT, unit=replace(load_optical_adder("optinc"), fibre_loss_db=25.0)), "fibre"),
    ],
)
def test_light_that_does_not_arrive_is_an_error_that_names_the_element(make, element):
    with pytest.raises(LinkError, match=f"greatest loss is {element}"):
        make()


@pytest.mark.parametrize("name", ["hybrid", "direct connect", "wafer"])
def test_no_choice_of_a_fabric_is_without_effect(name):
    fabric = FABRICS[name if name in FABRICS else "wafer, lightpath"]
    for item in dataclasses.fields(fabric):
        value = getattr(fabric, item.name)
        if isinstance(value, CircuitChoice | CircuitPolicy):
            known = fabric.traits.policies if isinstance(value, CircuitPolicy) else type(value)
            others = [outputs(replace(fabric, **{item.name: other})) for other in known]
            assert others[0] != others[1], item.name
