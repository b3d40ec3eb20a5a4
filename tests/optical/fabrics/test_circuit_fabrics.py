"""Laws of fabrics whose circuits follow the traffic: published rules, limits and costs."""

import math
from dataclasses import replace

import numpy as np
import pytest
import simpy
from scipy.optimize import linear_sum_assignment

from electronic.devices import load_scale_up
from electronic.fabrics.fat_tree import FatTree
from optical.fabrics.circuits import (
    DARK,
    Circuits,
    DomainDemand,
    ForwardingCircuits,
    busiest_first,
    domain_demands,
    job_links,
    lanes_of,
)
from optical.fabrics.in_network_reduction import OpticalReduction, load_optical_adder
from optical.fabrics.node_circuits import CircuitChoice, DirectConnect, HybridFabric, region_links
from optical.fabrics.wafer import WaferFabric, load_wafer
from optical.scheduling.topology import AllReduceGroup, JobTopology, spread_strides
from simulator.collectives.algorithms import strided_rounds
from simulator.collectives.traffic import Traffic
from simulator.engine.network import Network
from simulator.errors import ParameterError, RouteError, WorkloadError
from simulator.fabric import CircuitPolicy
from simulator.interfaces import Flows
from simulator.layout import RankLayout
from simulator.operators import CollectiveKind
from tests.bounds import all_gather_bound_s, all_to_all_bound_s
from tests.builders import coin_change_hops, collective

ONE = replace(load_scale_up("nvlink4"), size=1, protocols=(), adders=())
"""Nodes of one accelerator, and no library: latency and bandwidth alone."""
KIND = CollectiveKind.ALL_REDUCE


def ring(count, axis="dp", size=1e9):
    kind = CollectiveKind.ALL_TO_ALL if axis == "ep" else CollectiveKind.ALL_REDUCE
    return Flows.around(np.arange(count)[None], size_bytes=size, axis=axis, kind=kind)


def plan(fabric, kind=KIND, payload=1e9, demand=None, axis="dp"):
    n = fabric.endpoints
    layout = RankLayout(dp=n, ep=n if axis == "ep" else 1)
    operator = collective(kind, n, payload, axis=axis)
    network = Network(simpy.Environment(), fabric, (ring(n, axis),) if demand is None else demand)
    return Traffic(layout, fabric, network, {}).plan(operator, 0)


@pytest.mark.parametrize(("n", "degree"), [(12, 4), (16, 4), (9, 2), (2, 8)])
def test_rings_of_spread_strides_fill_all_cards_of_a_node(n, degree):
    """TopoOpt, NSDI 2023, theorem 2, section 4.3: an all-reduce spreads over rings of coprime strides, so a
    node of d cards takes 2 (n-1)/n m / (d B), as if it had one card d times as fast."""
    fabric = DirectConnect(endpoints=n, scale_up=ONE, degree=degree)
    found = plan(fabric)
    rings = min(degree, len(spread_strides(n, degree)))
    even = degree - degree % rings
    least_s = 2 * (n - 1) / n * 1e9 / (degree * fabric.circuit_bytes_per_s)
    assert found.alone_s >= least_s
    assert found.alone_s <= least_s * degree / even + 2 * n * 2 * fabric.circuit_latency_s


def test_a_way_is_as_long_as_change_in_coins_of_the_strides():
    """TopoOpt, NSDI 2023, CoinChangeMod: hops of a distance are the fewest strides that add up to it."""
    n, degree = 24, 3
    fabric = DirectConnect(endpoints=n, scale_up=ONE, degree=degree)
    circuits = fabric.initial((ring(n),))
    strides = fabric.strides(circuits, np.arange(n))
    assert strides == tuple(sorted(spread_strides(n, degree)))
    hops = circuits.hops(np.zeros(n, dtype=int), np.arange(n))
    np.testing.assert_array_equal(hops, coin_change_hops(n, strides))


def test_who_passes_on_costs_latency_energy_and_capacity_once_a_hop():
    fabric = DirectConnect(endpoints=24, scale_up=ONE, degree=1)
    circuits = fabric.initial((ring(24),))
    near = Flows(sources=np.array([0]), destinations=np.array([1]), size_bytes=1e6, axis="dp")
    far = replace(near, destinations=np.array([5]))
    assert (fabric.route(circuits, far) >= 0).sum() - (fabric.route(circuits, near) >= 0).sum() == 4
    assert fabric.carried_energy_j(circuits, far) == pytest.approx(
        5 * fabric.carried_energy_j(circuits, near)
    )


def test_circuits_that_stay_refuse_what_they_cannot_reach_and_turning_ones_take_it():
    lonely = Flows(sources=np.array([0]), destinations=np.array([1]), size_bytes=1.0, axis="pp")
    other = Flows(sources=np.array([2]), destinations=np.array([3]), size_bytes=1.0, axis="dp")
    kept = DirectConnect(endpoints=4, scale_up=ONE, degree=1)
    assert kept.connected(kept.initial((lonely,)), other)  # a ring through all comes first
    turning = replace(kept, policy=CircuitPolicy.PER_AXIS)
    circuits, change = turning.configure(turning.initial((lonely,)), other, (other,))
    assert turning.connected(circuits, other)
    assert change.reconfiguration_s == turning.switch.reconfiguration_s
    two = replace(kept, endpoints=2)
    dark = replace(two.initial(()), circuits=Circuits(np.full((2, 1), DARK)))
    with pytest.raises(RouteError, match="no circuits lead from endpoint 0 to 1 for axis 'pp'"):
        two.route(dark, lonely)


def test_a_ring_over_several_nodes_is_found_and_experts_are_everyone_to_everyone():
    node_of = np.arange(8) // 2
    found = domain_demands([ring(8)], node_of, 4)[0]
    assert [group.members for group in found.groups] == [(0, 1, 2, 3)]
    everyone = domain_demands([ring(8, "ep", 8e9)], node_of, 4)[0].pairs
    off = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose(everyone[off], 8 * 8e9 / 16)
    assert not everyone[~off].any()


def skewed(n, seed):
    demand = np.random.default_rng(seed).pareto(1.2, (n, n)) + 0.05
    np.fill_diagonal(demand, 0.0)
    return demand


@pytest.mark.parametrize("seed", range(5))
def test_greedy_circuits_finish_skewed_experts_sooner_than_even_ones(seed):
    """MixNet, SIGCOMM 2025: the pair that finishes last gets the next circuit."""
    demand, degree = skewed(6, seed), 10
    greedy = busiest_first(demand, degree)
    assert greedy.sum(axis=0).max() <= degree
    assert greedy.sum(axis=1).max() <= degree
    even = np.where(demand > 0, degree // 5, 1)
    off = demand > 0
    lit = greedy[off] > 0
    assert lit.all()
    assert (demand[off] / greedy[off]).max() < (demand / even).max()
    bound = max((demand.sum(axis=1) / degree).max(), (demand.sum(axis=0) / degree).max())
    assert (demand[off] / greedy[off]).max() >= bound * (1 - 1e-12)


def test_even_experts_get_even_circuits():
    demand = np.ones((4, 4)) - np.eye(4)
    np.testing.assert_array_equal(busiest_first(demand, 6), 2 * demand)
    short = busiest_first(np.ones((8, 8)) - np.eye(8), 6)
    np.testing.assert_array_equal(short.sum(axis=0), 6)
    np.testing.assert_array_equal(short.sum(axis=1), 6)
    assert short.max() == 1


@pytest.mark.parametrize("seed", range(5))
def test_the_first_matching_carries_the_most_that_any_permutation_can(seed):
    """Helios and c-Through, SIGCOMM 2010: circuits are a matching of greatest traffic."""
    demand = skewed(7, seed)
    links = region_links(DomainDemand(groups=(), pairs=demand), 1, CircuitChoice.MATCHING)
    rows, columns = linear_sum_assignment(demand, maximize=True)
    assert (demand * links).sum() == pytest.approx(demand[rows, columns].sum())


def test_without_a_partner_in_its_region_a_hybrid_is_its_packets():
    packets = FatTree(endpoints=16, scale_up=replace(ONE, size=2))
    alone = HybridFabric(packets=packets, region=1)
    assert plan(alone).alone_s == plan(packets).alone_s
    assert plan(replace(alone, region=8)).alone_s < plan(packets).alone_s


def test_a_region_must_divide_the_nodes():
    packets = FatTree(endpoints=16, scale_up=replace(ONE, size=2))
    with pytest.raises(ParameterError, match="must divide the 8 nodes"):
        HybridFabric(packets=packets, region=3)


def test_circuits_turn_only_for_traffic_that_outweighs_their_delay():
    packets = FatTree(endpoints=16, scale_up=replace(ONE, size=2))
    fabric = HybridFabric(packets=packets, policy=CircuitPolicy.PER_AXIS)
    first = ring(16, "tp")
    back = Flows(sources=first.destinations, destinations=first.sources, size_bytes=1e3, axis="dp")
    small, large = back, replace(back, size_bytes=1e10)
    for asked, moves in ((small, False), (large, True)):
        circuits = fabric.initial((replace(first, size_bytes=1e10), asked))
        assert (fabric.configure(circuits, asked, ())[1].reconfiguration_s > 0.0) == moves
    quick = replace(fabric, switch=replace(fabric.switch, switch_s=0.0, relock_s=0.0, control_s=0.0))
    assert not quick.connected(quick.initial((first, small)), small)


def test_passage_reaches_every_chip_within_five_nanoseconds():
    """Lightmatter, 2020: 48 chips, links of 1 Tb/s, at most 5 ns between any two."""
    wafer = load_wafer("passage-2020")
    assert wafer.chips == 48
    assert wafer.lane_bytes_per_s == pytest.approx(1e12 / 8)
    assert wafer.latency_s <= 5e-9


@pytest.mark.parametrize(
    "name",
    [
        "chips",
        "pitch_m",
        "waveguide_loss_db_per_m",
        "crossings",
        "crossing_loss_db",
        "stitch_loss_db",
        "switch_loss_db",
        "modulator_loss_db",
    ],
)
def test_a_longer_or_lossier_way_over_the_wafer_takes_more_laser(name):
    wafer = load_wafer("lightpath")
    more = replace(wafer, **{name: type(getattr(wafer, name))(getattr(wafer, name) * 1.3)})
    assert more.budget().laser_w > wafer.budget().laser_w


def test_a_wafer_gives_one_ring_all_lanes_of_a_chip():
    library = replace(ONE, size=8, copy_bytes_per_s=math.inf)
    fabric = WaferFabric(packets=FatTree(endpoints=8, scale_up=library))
    n, payload = 8, 1e9
    egress_bytes_per_s = fabric.wafer.lanes * fabric.wafer.lane_bytes_per_s
    least_s = 2 * (n - 1) / n * payload / (egress_bytes_per_s * library.efficiency)
    assert least_s <= plan(fabric, payload=payload).alone_s <= least_s * 1.01


def test_an_exchange_among_more_chips_than_lanes_loads_the_circuits_of_a_wafer_evenly():
    """One way of each pair alone loads one circuit 2.8 times as much as the mean one."""
    library = replace(load_scale_up("nvlink4"), size=32, adders=(), protocols=())
    fabric = WaferFabric(packets=FatTree(endpoints=32, scale_up=library))
    sources, destinations = np.nonzero(~np.eye(32, dtype=bool))
    flows = Flows(sources=sources, destinations=destinations, size_bytes=1.0, axis="expert")
    circuits = fabric.initial((flows,))
    loads = fabric.loads(circuits, flows)
    assert loads.usage.sum() == pytest.approx(circuits.hops(sources, destinations).sum())
    assert loads.usage.max() <= 1.5 * loads.usage.mean()
    apart = fabric.loads_apart(circuits, flows)
    assert sum(one.usage.sum() for one in apart) == pytest.approx(loads.usage.sum())


@pytest.mark.parametrize("kind", [CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL])
@pytest.mark.parametrize("size", [8, 16, 32])
def test_collectives_over_the_circuits_of_a_wafer_are_near_the_bound_of_these(kind, size):
    """An exchange of 32 chips took 1.5 times the linear programme over four shortest ways in equal shares."""
    library = replace(load_scale_up("nvlink4"), size=size, adders=(), protocols=(), copy_bytes_per_s=math.inf)
    fabric = WaferFabric(packets=FatTree(endpoints=size, scale_up=library))
    sources, destinations = np.nonzero(~np.eye(size, dtype=bool))
    pairs = Flows(sources=sources, destinations=destinations, size_bytes=1e9, axis="dp", kind=kind)
    demand = (ring(size) if kind is CollectiveKind.ALL_REDUCE else pairs,)
    rates = fabric.direct_rates(fabric.initial(demand), np.arange(size))
    found = plan(fabric, kind, 1e9 * size, demand)
    bound = all_to_all_bound_s if kind is CollectiveKind.ALL_TO_ALL else all_gather_bound_s
    least_s = bound(rates, 1e9) * (2 if kind is CollectiveKind.ALL_REDUCE else 1)
    assert least_s * (1.0 - 1e-4) <= found.alone_s <= 1.1 * least_s


@pytest.mark.parametrize("axis", ["tp", "dp"])
def test_a_collective_is_laid_out_over_the_circuits_that_turn_to_its_axis(axis):
    """Gradients once had rings of the circuits for tensor parallelism, and took 3.5 times as long."""
    fabric = WaferFabric(
        packets=FatTree(endpoints=32, scale_up=replace(load_scale_up("nvlink4"), size=32, adders=()))
    )
    layout = RankLayout(tp=4, dp=8)
    demand = {
        (one, 0, 0): Flows.around(layout.groups(one, 0), size_bytes=1e9, axis=one, kind=KIND)
        for one in ("tp", "dp")
    }
    operator = collective(KIND, 4 if axis == "tp" else 8, 1e9, axis=axis)
    alone, beside = (
        Traffic(layout, fabric, Network(simpy.Environment(), fabric, tuple(some.values())), some)
        for some in ({key: one for key, one in demand.items() if key[0] == axis}, demand)
    )
    assert beside.plan(operator, 0).alone_s == pytest.approx(alone.plan(operator, 0).alone_s)


def test_a_ring_through_two_wafers_has_all_lanes_on_each_and_all_cards_between_them():
    """Circuits once had sixteen strides, which only a group on one wafer uses: it took 11 times as long."""
    library = replace(load_scale_up("nvlink4"), size=32, adders=())
    fabric = WaferFabric(packets=FatTree(endpoints=64, scale_up=library))
    nbytes = 1e10
    found = plan(fabric, CollectiveKind.ALL_GATHER, nbytes / 64)
    inside_s = 31 / 32 * nbytes / (fabric.wafer.lanes * fabric.circuit_bytes_per_s)
    inside_s += nbytes / 2 / library.copy_bytes_per_s
    between_s = 63 / 64 * nbytes / 32 / fabric.packets.nic.bandwidth_bytes_per_s
    least_s = max(inside_s, between_s)
    assert least_s < found.alone_s < 1.2 * least_s


@pytest.mark.parametrize("dbm", [10.0, -2.0, -4.0])
def test_the_bits_of_a_mean_are_those_that_it_comes_out_with(dbm):
    """What the budget says is what drawing every symbol gives, within its standard error."""
    unit = replace(load_optical_adder("optinc"), launch_dbm=dbm)
    rng = np.random.default_rng(5)
    values = rng.random((16, 60_000))
    error = unit.averaged(values, rng) - values.mean(axis=0)
    measured = -0.5 * np.log2(12 * np.mean(error**2))
    assert measured == pytest.approx(unit.effective_bits(16), abs=0.02)


def test_light_tells_more_senders_apart_with_more_power_and_less_speed():
    unit = replace(load_optical_adder("optinc"), fan_in=16)
    assert replace(unit, launch_dbm=12.0).misread < unit.misread
    assert replace(unit, symbol_rate_hz=unit.symbol_rate_hz / 2).misread < unit.misread
    assert replace(unit, fan_in=8).misread < unit.misread
    assert replace(unit, bits_per_symbol=1).misread < unit.misread


def test_a_mean_without_noise_has_the_bits_of_its_rounding():
    """One rounding before and one after: with n senders lsb^2 (1/n + 1 + 2/n^2) / 12."""
    unit = replace(load_optical_adder("optinc"), launch_dbm=40.0)
    expected = np.log2(255) - 0.5 * np.log2(1 / 4 + 1 + 2 / 16)
    assert unit.effective_bits(4) == pytest.approx(expected)
    finer = replace(unit, gradient_bits=16)
    assert finer.effective_bits(4) == pytest.approx(np.log2(2**16 - 1) - 0.5 * np.log2(1 / 4 + 1 + 2 / 16))


def test_sums_in_light_carry_the_vector_once_and_a_share():
    """Klenk et al., ISCA 2020: (n+1)/n of the vector each way, against 2 (n-1)/n around a ring."""
    packets = FatTree(endpoints=16, scale_up=ONE)
    light = OpticalReduction(packets=packets)
    found, around = plan(light, payload=1e10), plan(packets, payload=1e10)
    assert found.algorithm.startswith("in_switches")
    assert found.wire_bytes == pytest.approx(16 * 17 / 16 * 1e10)
    gain = 2 * 15 / 17 * light.adder.efficiency
    assert around.alone_s / found.alone_s == pytest.approx(gain, rel=0.01)


def test_units_form_a_tree_that_holds_all_senders():
    """OptINC, arXiv:2603.28290: units of a few servers, cascaded."""
    unit = load_optical_adder("optinc")
    assert [unit.levels(n) for n in (2, 4, 5, 16, 17)] == [1, 1, 2, 2, 3]
    assert [unit.units(n) for n in (4, 5, 16, 17)] == [1, 2 + 1, 4 + 1, 5 + 2 + 1]


def test_strided_rings_visit_everyone_and_refuse_strides_that_do_not():
    groups = np.arange(8)[None, :]
    (found,) = strided_rounds(KIND, groups, 8e6, "dp", (1, 3))
    assert found.count == 14
    assert found.flows.size_bytes == pytest.approx(8e6 / 8 / 2)
    after = dict(zip(found.flows.sources[8:].tolist(), found.flows.destinations[8:].tolist(), strict=True))
    seen, here = [], 0
    for _ in range(8):
        seen.append(here)
        here = after[here]
    assert sorted(seen) == list(range(8))
    with pytest.raises(WorkloadError, match="coprime to 8"):
        strided_rounds(KIND, groups, 8e6, "dp", (2,))


def test_links_of_a_job_join_all_even_if_traffic_does_not():
    pairs = np.zeros((6, 6))
    pairs[0, 1] = pairs[2, 3] = 1e9
    links = job_links(DomainDemand(groups=(), pairs=pairs), 2)
    reach = np.linalg.matrix_power(np.eye(6) + links, 6)
    assert (reach > 0).all()
    assert links.sum(axis=1).max() <= 2


def test_exchanges_among_as_many_as_there_are_lanes_leave_room_for_thin_traffic():
    # Three stages of 16 nodes: a ring in each, sends between, experts on eight nodes but in the first.
    within = np.kron(np.eye(6), np.ones((8, 8)) - np.eye(8)) * 1.8e11
    within[:16] = 0.0
    sends = np.kron(np.eye(3, k=1) + np.eye(3, k=-1), np.eye(16)) * 7.5e9
    rings = [AllReduceGroup(members=tuple(range(16 * k, 16 * k + 16)), size_bytes=4e9) for k in range(3)]
    demand = DomainDemand(groups=tuple(rings), pairs=within + sends)
    links = job_links(demand, 8)
    assert max(links.sum(axis=0).max(), links.sum(axis=1).max()) <= 8
    topology = JobTopology(links=links, degree=8, strides=(), matched_degree=8)
    assert topology.link_bytes(demand.matrix).max() < 1.2 * 1.8e11


@pytest.mark.parametrize(("nodes", "degree"), [(16, 4), (24, 8), (32, 8), (64, 16)])
def test_even_exchanges_among_more_nodes_than_lanes_are_spread(nodes, degree):
    """Bound: at most degree^k vertices are k hops away (Moore). Layouts for rings and few pairs carry up to
    eighteen times that over one circuit, as cliques joined by single lanes."""
    demand = DomainDemand(groups=(), pairs=1.0 - np.eye(nodes))
    links = job_links(demand, degree)
    assert (links.sum(axis=0) == degree).all()
    assert (links.sum(axis=1) == degree).all()
    near = np.minimum(degree, nodes - 1)
    bound = (near + 2 * (nodes - 1 - near)) / degree
    vertices = np.arange(nodes)
    circuits = ForwardingCircuits(circuits=Circuits(lanes_of(links, degree)), domain=nodes)
    one, other = (side.ravel() for side in np.meshgrid(vertices, vertices))
    carried = np.zeros(nodes * degree)
    for turn in range(4):
        for column in circuits.path_links(one, other, turn):
            np.add.at(carried, column[column >= 0], 0.25)
    assert bound <= carried.max() < 1.6 * bound


def test_flows_of_a_pair_take_turns_over_ways_equally_short():
    # Two vertices between which four others stand.
    peers = np.full((6, 4), DARK)
    peers[0] = (1, 2, 3, 4)
    peers[[1, 2, 3, 4], [0, 1, 2, 3]] = 5
    circuits = ForwardingCircuits(circuits=Circuits(peers), domain=6)
    turns = np.arange(8)
    second, first = circuits.path_links(np.zeros(8, int), np.full(8, 5), turns)
    assert sorted(np.unique(first)) == [0, 1, 2, 3]
    np.testing.assert_array_equal(second // 4, first + 1)  # on from where the first circuit led
    assert (circuits.hops(np.zeros(8, int), np.full(8, 5)) == 2).all()
