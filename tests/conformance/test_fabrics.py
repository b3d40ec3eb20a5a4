"""What every fabric must keep, whatever it is made of."""

import dataclasses
from dataclasses import replace
from enum import Enum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electronic.devices import load_scale_up
from electronic.fabrics.packets import RailFabric
from optical.fabrics.cubes import Closing, CubeFabric
from optical.fabrics.rails import OcsRails
from optical.fabrics.rotor import RotorFabric
from optical.fabrics.switches import load_optics, load_switch, switch_names
from optical.fabrics.transceiver_ring import TransceiverRing
from simulator.errors import ParameterError
from simulator.fabric import CircuitPolicy, PortTiming, Traits, missing_members
from simulator.failures import failed_parts
from simulator.interfaces import Flows
from simulator.operators import CollectiveKind
from simulator.topology.scale_up import load_nic
from tests.conformance.registered import registered

ENDPOINTS = 128
SCALE_UP, NIC = load_scale_up("nvlink4"), load_nic("connectx-7")


def ocs(switch="palomar-mems", policy=CircuitPolicy.PER_AXIS, optics="lane-100g-boosted"):
    return OcsRails(
        name=f"{switch} {policy}",
        endpoints=ENDPOINTS,
        scale_up=SCALE_UP,
        nic=NIC,
        switch=load_switch(switch),
        optics=load_optics(optics),
        policy=policy,
    )


PACKET = RailFabric(endpoints=ENDPOINTS, scale_up=SCALE_UP, nic=NIC)
FABRICS = [
    PACKET,
    replace(PACKET, name="oversubscribed", oversubscription=3.0),
    *(ocs(name) for name in switch_names() if load_switch(name).ports > 3),  # three are a transceiver's
    ocs(policy=CircuitPolicy.STATIC),
]
ROUNDS = [
    CubeFabric(endpoints=ENDPOINTS, x=4, y=4),
    CubeFabric(name="cubes, twisted", endpoints=ENDPOINTS, x=4, y=4, closing=Closing.TWISTED),
    CubeFabric(name="cubes, per axis", endpoints=ENDPOINTS, x=4, y=4, closing=Closing.PER_AXIS),
    RotorFabric(endpoints=ENDPOINTS, scale_up=SCALE_UP),
    RotorFabric(name="opera", endpoints=ENDPOINTS, scale_up=SCALE_UP, bulk_bytes=1e7),
    TransceiverRing(endpoints=ENDPOINTS),
    TransceiverRing(name="ring past failed nodes", endpoints=ENDPOINTS, hops=4, failed_nodes=5),
]
REGISTERED = registered(ENDPOINTS)
any_fabric = pytest.mark.parametrize(
    "fabric",
    [*REGISTERED.values(), *FABRICS, *ROUNDS],
    ids=[*REGISTERED, *(fabric.name for fabric in FABRICS + ROUNDS)],
)
every_fabric = pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.name)


def grid(tp, dp, pp):
    return np.arange(tp * dp * pp).reshape(pp, dp, tp)


def ring(ranks, place, axis, size=1e8):
    groups = np.moveaxis(ranks, place, -1).reshape(-1, ranks.shape[place])
    return Flows.around(groups, size_bytes=size, axis=axis, kind=CollectiveKind.ALL_REDUCE)


def pipeline(ranks, step, size=1e7):
    here, there = (ranks[:-1], ranks[1:]) if step > 0 else (ranks[1:], ranks[:-1])
    return Flows(sources=here.ravel(), destinations=there.ravel(), size_bytes=size, axis="pp")


def step_demand(tp=8, dp=4, pp=4):
    ranks = grid(tp, dp, pp)
    return (ring(ranks, 2, "tp"), ring(ranks, 1, "dp"), pipeline(ranks, +1), pipeline(ranks, -1))


def lit(links):
    return links[links >= 0]


@any_fabric
def test_every_pattern_routes_after_configure(fabric):
    assert missing_members(fabric) == ()
    assert isinstance(fabric.traits, Traits)
    demand = step_demand()
    circuits = fabric.initial(demand)
    for _ in range(2):
        for flows in demand:
            circuits, _change = fabric.configure(circuits, flows, demand)
            assert fabric.connected(circuits, flows)
            links = fabric.route(circuits, flows)
            graph = fabric.graph(circuits)
            assert links.shape[0] == len(flows.sources)
            assert (graph.capacity_bytes_per_s[lit(links)] > 0).all()


@any_fabric
def test_capacities_and_latencies_are_not_negative(fabric):
    graph = fabric.graph(fabric.initial(step_demand()))
    assert (graph.capacity_bytes_per_s >= 0).all()
    assert (graph.latency_s >= 0).all()
    assert graph.capacity_bytes_per_s.shape == graph.latency_s.shape


@any_fabric
def test_link_numbers_never_change(fabric):
    demand = step_demand()
    circuits = fabric.initial(demand)
    before = fabric.graph(circuits)
    circuits, change = fabric.configure(circuits, demand[2], demand)
    after = fabric.graph(circuits)
    np.testing.assert_array_equal(before.latency_s, after.latency_s)
    moved = np.flatnonzero(before.capacity_bytes_per_s != after.capacity_bytes_per_s)
    assert set(moved) <= set(change.moved_links)


@any_fabric
def test_text_where_an_enumeration_belongs_is_refused(fabric):
    for item in dataclasses.fields(fabric):
        value = getattr(fabric, item.name)
        if isinstance(value, Enum):
            with pytest.raises(ParameterError, match=f"{item.name} must be a {type(value).__name__}"):
                replace(fabric, **{item.name: str(value)})


@any_fabric
def test_a_policy_is_taken_where_there_is_one_to_choose(fabric):
    traits = fabric.traits
    for policy in traits.policies or CircuitPolicy:
        for timing in PortTiming:
            moved = fabric.with_policy(policy, timing)
            assert moved.endpoints == fabric.endpoints
            if traits.policy is None:
                assert moved is fabric
                continue
            assert moved.traits.policy is policy
            ahead = traits.can_prefetch and timing is PortTiming.PREFETCHED
            assert moved.traits.prefetches is ahead


@any_fabric
def test_loads_are_those_of_links_that_can_carry(fabric):
    demand = step_demand()
    circuits = fabric.initial(demand)
    for flows in demand:
        circuits, _ = fabric.configure(circuits, flows, demand)
        found = fabric.loads(circuits, flows)
        assert (fabric.graph(circuits).capacity_bytes_per_s[found.links] > 0).all()
        assert (found.usage > 0).all()
        assert len(np.unique(found.links)) == len(found.links)


@any_fabric
def test_ports_that_are_named_fail_one_by_one(fabric):
    ports = fabric.traits.ports
    if ports is None:
        return
    assert str(ports.owner) in fabric.port_name(0) or "chip" in fabric.port_name(0)
    found = failed_parts(fabric, ports=[(0, 0)], switches=(), nodes=())
    assert found.ports == ((0,) if ports.circuits else ())
    circuits = fabric.initial(step_demand())
    wiring = fabric.wired(circuits)
    assert wiring.links == fabric.graph(circuits).capacity_bytes_per_s.size
    if ports.circuits:
        dark, _ = fabric.without(circuits, np.arange(ports.count))
        assert (fabric.wired(dark).capacity_bytes_per_s <= wiring.capacity_bytes_per_s).all()
        lit = (wiring.tails != wiring.heads) & (wiring.capacity_bytes_per_s > 0)
        left = fabric.wired(dark)
        assert ((left.tails != left.heads) & (left.capacity_bytes_per_s > 0) <= lit).all()


@any_fabric
def test_variants_are_fabrics_of_the_same_endpoints(fabric):
    for name, variant in fabric.variants().items():
        assert missing_members(variant) == (), name
        assert variant.endpoints == fabric.endpoints
        assert variant != fabric


@every_fabric
def test_alone_is_size_over_port_rate_and_latency(fabric):
    demand = step_demand()
    circuits, _ = fabric.configure(fabric.initial(demand), demand[1], demand)
    graph = fabric.graph(circuits)
    links = lit(fabric.route(circuits, demand[1])[0])
    alone_s = demand[1].size_bytes / graph.capacity_bytes_per_s[links].min() + graph.latency_s[links].sum()
    port = NIC.bandwidth_bytes_per_s * NIC.efficiency
    share = 2 if fabric.traits.policy is CircuitPolicy.STATIC else 1
    assert alone_s >= demand[1].size_bytes / port + 2 * NIC.latency_s
    assert alone_s <= share * 2 * demand[1].size_bytes / port + 10e-6


@every_fabric
def test_what_leaves_a_node_arrives_at_another(fabric):
    demand = step_demand()
    circuits, _ = fabric.configure(fabric.initial(demand), demand[1], demand)
    links = fabric.route(circuits, demand[1])
    load = np.bincount(lit(links), minlength=len(fabric.graph(circuits).capacity_bytes_per_s))
    if isinstance(fabric, RailFabric):
        leaves = load[2 * ENDPOINTS : 3 * ENDPOINTS].sum(), load[3 * ENDPOINTS : 4 * ENDPOINTS].sum()
        assert leaves == (len(demand[1].sources), len(demand[1].sources))
    else:
        used = np.flatnonzero(load[: ENDPOINTS * fabric.lanes])
        peers = circuits.tx_peer.ravel()[used]
        np.testing.assert_array_equal(np.sort(peers), np.sort(demand[1].destinations))


@any_fabric
def test_power_price_and_energy_are_positive_and_linear(fabric):
    flows = step_demand()[1]
    bill = fabric.bill().values()
    assert fabric.static_w == pytest.approx(sum(item.count * item.w_each for item in bill))
    assert fabric.cost_usd == pytest.approx(sum(item.count * item.usd_each for item in bill))
    assert min(fabric.static_w, fabric.cost_usd) > 0
    flows = replace(flows, size_bytes=1e8)
    double = replace(flows, size_bytes=2 * flows.size_bytes)
    assert fabric.transfer_energy_j(double) == pytest.approx(2 * fabric.transfer_energy_j(flows))
    assert fabric.transfer_energy_j(flows) > 0


OPTICAL = [fabric for fabric in FABRICS if isinstance(fabric, OcsRails)]


@pytest.mark.parametrize("fabric", OPTICAL, ids=lambda fabric: fabric.name)
def test_optical_path_equals_the_packet_path_on_the_same_matching(fabric):
    flows = step_demand()[1]
    circuits = fabric.initial((flows,))
    optical = fabric.graph(circuits).capacity_bytes_per_s[fabric.route(circuits, flows)[:, 0]]
    links = PACKET.route(None, flows)
    packet = PACKET.graph(None).capacity_bytes_per_s[links[:, 0]]
    np.testing.assert_allclose(optical, packet)
    assert fabric.graph(circuits).latency_s[0] < PACKET.graph(None).latency_s[lit(links[0])].sum()


def test_static_never_asks_for_reconfiguration():
    fabric, demand = ocs(policy=CircuitPolicy.STATIC), step_demand()
    circuits = fabric.initial(demand)
    for flows in demand:
        same, change = fabric.configure(circuits, flows, demand)
        assert same is circuits
        assert change.reconfiguration_s == 0.0


def test_per_axis_gives_all_lanes_where_static_shares_them():
    demand = step_demand()
    rates = []
    for policy in ocs().traits.policies:
        fabric = ocs(policy=policy)
        circuits, _ = fabric.configure(fabric.initial(demand), demand[1], demand)
        links = fabric.route(circuits, demand[1])[:, 0]
        rates.append(fabric.graph(circuits).capacity_bytes_per_s[links].min())
    static, per_axis = rates
    assert per_axis == pytest.approx(NIC.bandwidth_bytes_per_s * NIC.efficiency)
    assert static < per_axis


def test_pipeline_neighbours_do_not_steal_from_each_other():
    fabric, ranks = ocs(), grid(8, 4, 4)
    sends = [
        Flows(sources=ranks[a].ravel(), destinations=ranks[b].ravel(), size_bytes=1e7, axis="pp")
        for a in range(4)
        for b in (a - 1, a + 1)
        if 0 <= b < 4
    ]
    circuits = fabric.initial((ring(ranks, 1, "dp"), *sends))
    for flows in sends:
        own = tuple(other for other in sends if other.sources[0] == flows.sources[0])
        circuits, _ = fabric.configure(circuits, flows, own)
    assert all(fabric.connected(circuits, flows) for flows in sends)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), rounds=st.integers(1, 6), lanes=st.sampled_from([1, 2, 4]))
def test_matchings_stay_valid_and_serve_those_who_ask(seed, rounds, lanes):
    rng = np.random.default_rng(seed)
    fabric = replace(ocs(), endpoints=32, scale_up=replace(SCALE_UP, size=2), lanes=lanes)
    circuits = fabric.initial(())
    for step in range(rounds):
        some = rng.permutation(32)[: rng.integers(1, 17)]
        flows = Flows(
            sources=some,
            destinations=(some + 2 * rng.integers(1, 16)) % 32,
            size_bytes=1e6,
            axis=f"axis {step}",
        )
        circuits, change = fabric.configure(circuits, flows, (flows,))
        assert fabric.connected(circuits, flows)
        for lane in range(lanes):
            peers = circuits.tx_peer[:, lane]
            peers = peers[peers >= 0]
            assert len(np.unique(peers)) == len(peers)
        reach = circuits.tx_peer % 2 == np.arange(32)[:, None] % 2
        assert (reach | (circuits.tx_peer < 0)).all()
        assert len(np.unique(change.moved_links)) == len(change.moved_links)
