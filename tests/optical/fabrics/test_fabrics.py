import dataclasses
from dataclasses import replace

import numpy as np
import pytest
import simpy

from heliograph.systems.fabrics import build_fabric
from optical.fabrics.rails import OcsRails
from optical.fabrics.switches import load_optics, load_switch
from simulator.collectives.traffic import Traffic
from simulator.engine.network import Network
from simulator.errors import LinkError, ParameterError, RouteError
from simulator.fabric import CircuitPolicy, missing_members
from simulator.interfaces import Flows
from simulator.layout import RankLayout
from simulator.operators import CollectiveKind
from simulator.topology.scale_up import Nic, ScaleUp
from tests.bounds import collective_bound_s
from tests.builders import collective

SCALE_UP = ScaleUp(
    size=4,
    bandwidth_bytes_per_s=450e9,
    efficiency=0.8,
    latency_s=1e-6,
    energy_j_per_bit=8e-12,
    static_w=25.0,
    price_usd=1500.0,
)
NIC = Nic(
    bandwidth_bytes_per_s=50e9,
    efficiency=0.97,
    latency_s=1.2e-6,
    energy_j_per_bit=5e-12,
    static_w=20.0,
    price_usd=1400.0,
)


def rails(endpoints=32, **changes):
    return OcsRails(endpoints=endpoints, scale_up=SCALE_UP, nic=NIC, **changes)


def flows(pairs, axis="dp", size=1e6):
    both = np.array(pairs)
    return Flows(sources=both[:, 0], destinations=both[:, 1], size_bytes=size, axis=axis)


def ring(endpoints, step, axis="dp", size=1e6):
    return flows([(e, (e + step) % endpoints) for e in range(endpoints)], axis, size)


def test_it_is_a_fabric():
    assert missing_members(rails()) == ()


def test_all_lanes_serve_a_ring():
    fabric = rails()
    demand = ring(32, 4)
    circuits = fabric.initial((demand,))
    links = fabric.route(circuits, demand)[:, 0]
    capacity = fabric.graph(circuits).capacity_bytes_per_s
    assert capacity[links] == pytest.approx(50e9 * 0.97)
    assert capacity[: 32 * 4].sum() == pytest.approx(32 * 50e9 * 0.97)


def test_moving_to_another_axis_takes_dark_time_and_names_links():
    fabric = rails()
    first, second = ring(32, 4, "dp"), ring(32, 8, "cp")
    circuits = fabric.initial((first, second))
    assert fabric.connected(circuits, first)
    assert not fabric.connected(circuits, second)
    with pytest.raises(RouteError, match="no circuit from endpoint 0 to 8 for axis 'cp'"):
        fabric.route(circuits, second)
    moved, change = fabric.configure(circuits, second, (second,))
    assert fabric.connected(moved, second)
    assert change.reconfiguration_s == fabric.switch.turn_s(32 * 4)
    assert len(change.moved_links) == 32 * 4
    assert change.energy_j == pytest.approx(32 * 4 * fabric.switch.move_energy_j)
    assert fabric.connected(circuits, first)


def test_what_is_served_already_does_not_move():
    fabric = rails()
    demand = ring(32, 4)
    circuits = fabric.initial((demand,))
    same, change = fabric.configure(circuits, demand, (demand,))
    assert same is circuits
    assert change.reconfiguration_s == 0.0
    assert len(change.moved_links) == 0


def test_only_the_asking_group_and_its_victims_move():
    fabric = rails()
    everyone = ring(32, 4, "dp")
    circuits = fabric.initial((everyone,))
    group = flows([(0, 8), (8, 0)], "cp")
    moved, change = fabric.configure(circuits, group, (group,))
    assert set(np.unique(change.moved_links // 4)) == {0, 4, 8, 28}
    assert (moved.tx_peer[4] == -1).all()
    assert (moved.tx_peer[12] == circuits.tx_peer[12]).all()


def test_both_directions_of_a_pipeline_share_the_lanes():
    fabric = rails(8)
    forward, backward = flows([(0, 4)], "pp"), flows([(4, 0)], "pp")
    circuits = fabric.initial((forward, backward))
    assert fabric.connected(circuits, forward)
    assert fabric.connected(circuits, backward)


def test_a_middle_stage_splits_its_lanes_by_bytes():
    fabric = rails(12)
    up, down = flows([(0, 4), (4, 8)], "pp", 3e6), flows([(4, 0), (8, 4)], "pp", 1e6)
    circuits = fabric.initial((up, down))
    assert sorted(circuits.tx_peer[4].tolist()) == [0, 8, 8, 8]


def test_more_of_an_axis_than_fits_is_served_one_at_a_time():
    fabric = rails(32, lanes=2)
    rounds = tuple(ring(32, 4 * step, "ep") for step in range(1, 8))
    circuits = fabric.initial(rounds)
    for flow in rounds:
        circuits, _ = fabric.configure(circuits, flow, rounds)
        links = fabric.route(circuits, flow)[:, 0]
        assert fabric.graph(circuits).capacity_bytes_per_s[links] == pytest.approx(25e9 * 0.97)


def test_one_call_with_too_many_peers_is_refused():
    fabric = rails(32, lanes=2)
    fan = flows([(0, 4), (0, 8), (0, 12)], "ep")
    circuits = fabric.initial((fan,))
    assert (circuits.tx_peer < 0).all()
    with pytest.raises(RouteError, match="endpoint 0 needs circuits with 3 others and has 2 lanes"):
        fabric.configure(circuits, fan, (fan,))


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 5, 6, 7, 8])
def test_an_exchange_of_more_than_fits_goes_in_turns(lanes):
    """Birkhoff-von Neumann: seven permutations, as many a round as there are lanes, dark between rounds."""
    every_port_alike = dataclasses.replace(load_switch("palomar-mems"), switch_tail=1.0)
    fabric, payload = rails(32, lanes=lanes, switch=every_port_alike), 8e8
    exchange = collective(CollectiveKind.ALL_TO_ALL, 8, payload, axis="ep", name="exchange")
    env = simpy.Environment()
    network = Network(env, fabric, ())
    ways = Traffic(RankLayout(tp=4, dp=8, ep=8), fabric, network, {}).options(exchange, 0)
    found = next(one for one in ways if one.algorithm.startswith("direct"))
    assert found.in_turns == (lanes < 7)
    assert ("forwarded" in {one.algorithm for one in ways}) == (1 < lanes < 7)

    def run():
        yield env.timeout(found.protocol_s)
        for flow_group, size_bytes, count in found.parts:
            yield from network.carry(flow_group, size_bytes, count)

    env.run(env.process(run()))
    turns = -(-7 // lanes)
    each = -(-7 // turns)
    met = [min(each, 7 - each * turn) for turn in range(turns)]
    least_s = sum(payload / 8 / (lanes // one * fabric.lane_bytes_per_s) for one in met)
    dark_s = fabric.traits.reconfiguration_s * turns
    assert env.now >= least_s + dark_s
    assert env.now == pytest.approx(least_s + dark_s, rel=0.02)
    bound_s = collective_bound_s(CollectiveKind.ALL_TO_ALL, 8, payload, fabric.nic.bandwidth_bytes_per_s)
    assert env.now > bound_s
    first_s = 0.0 if found.in_turns else fabric.traits.reconfiguration_s
    assert found.alone_s + first_s == pytest.approx(env.now, rel=1e-12)


def test_static_circuits_take_no_turns():
    assert rails(32, lanes=2, policy=CircuitPolicy.STATIC).traits.peers is None
    assert rails(32, lanes=2).traits.peers == 2


def test_static_circuits_share_lanes_and_never_move():
    fabric = rails(policy=CircuitPolicy.STATIC)
    first, second = ring(32, 4, "dp"), ring(32, 8, "cp")
    circuits = fabric.initial((first, second))
    capacity = fabric.graph(circuits).capacity_bytes_per_s
    for flow in (first, second):
        same, change = fabric.configure(circuits, flow, (first, second))
        assert same is circuits
        assert change.reconfiguration_s == 0.0
        assert capacity[fabric.route(circuits, flow)[:, 0]] == pytest.approx(25e9 * 0.97)
    with pytest.raises(RouteError, match="per-axis"):
        fabric.configure(circuits, ring(32, 12, "ep"), ())


def test_other_rails_are_reached_through_the_node():
    fabric = rails()
    cross = flows([(0, 5)])
    circuits = fabric.initial((cross,))
    links = fabric.route(circuits, cross)[0]
    assert links[0] == 32 * 4 + 0
    assert links[1] == 32 * 5 + 1
    assert links[2] // 4 == 1
    assert fabric.transfer_energy_j(cross) == pytest.approx(8e6 * (8e-12 + 2 * 5e-12))


def test_traffic_within_a_node_needs_no_circuit():
    fabric = rails()
    inside = flows([(0, 1), (5, 5)])
    circuits = fabric.initial(())
    assert fabric.connected(circuits, inside)
    assert (fabric.route(circuits, inside)[1] == -1).all()
    assert fabric.graph(circuits).capacity_bytes_per_s[: 32 * 4].sum() == 0.0


def test_movers_never_cut_off_those_who_ask_with_them():
    fabric = rails(16, lanes=1)
    circuits = fabric.initial((flows([(0, 4), (4, 8)], "a"),))
    wanted = flows([(0, 4), (4, 12), (8, 0)], "b")
    moved, _ = fabric.configure(circuits, wanted, (wanted,))
    assert fabric.connected(moved, wanted)


def test_a_rail_beyond_one_switch_passes_three():
    optics = load_optics("lane-100g-boosted")
    small, large = rails(4 * 128, optics=optics), rails(4 * 256, optics=optics)
    assert (small.stages, large.stages) == (1, 3)
    assert large.budget.laser_w > 2 * small.budget.laser_w
    assert large.bill()["optical switch"].count == 3 * 2 * small.bill()["optical switch"].count
    with pytest.raises(LinkError, match="optical switches"):
        rails(4 * 256)
    with pytest.raises(ParameterError, match="larger switch"):
        rails(64, switch=replace(load_switch("palomar-mems"), ports=11))
    assert rails(32, switch=replace(load_switch("palomar-mems"), ports=11), optics=optics).stages == 3


def test_bill_holds_no_packet_switch_and_adds_up():
    fabric = rails(512)
    bill = fabric.bill()
    assert set(bill) == {"scale-up", "nic", "optical lane", "optical switch"}
    assert bill["optical switch"].count == 16
    assert fabric.static_w == pytest.approx(sum(item.count * item.w_each for item in bill.values()))
    assert fabric.cost_usd == pytest.approx(sum(item.count * item.usd_each for item in bill.values()))


def outputs(fabric):
    far, inside = ring(fabric.endpoints, 4), flows([(0, 1)])
    other = ring(fabric.endpoints, 8, "cp")
    circuits = fabric.initial((far,))
    graph = fabric.graph(circuits)
    change = fabric.configure(circuits, other, (other,))[1]
    return [
        fabric.static_w,
        fabric.cost_usd,
        change.reconfiguration_s,
        change.energy_j,
        graph.capacity_bytes_per_s.tolist(),
        graph.latency_s.tolist(),
        fabric.transfer_energy_j(far),
        fabric.transfer_energy_j(inside),
        fabric.stages,
    ]


PLAIN = rails(512, optics=replace(load_optics("lane-100g-duplex"), bandwidth_bytes_per_s=12e9))


@pytest.mark.parametrize(
    ("part", "parameter"),
    [
        (part, item.name)
        for part in ("scale_up", "nic", "switch", "optics")
        for item in dataclasses.fields(getattr(PLAIN, part))
        if item.name not in ("name", "launch_max_dbm", "copy_bytes_per_s", "protocols", "adders")
    ],
)
def test_no_knob_is_dead(part, parameter):
    device = getattr(PLAIN, part)
    value = getattr(device, parameter)
    moved = 2 * value if isinstance(value, int) else value * 0.9 if parameter != "group_index" else 1.4
    if parameter == "bandwidth_bytes_per_s" and part == "nic":
        moved = 20e9
    if parameter == "positions":
        moved = 8
    if parameter == "sensitivity_dbm":
        moved = value - 1.0
    if parameter == "circulators":
        moved = 0
    if parameter == "command_s":
        moved = 1e-3
    if parameter == "multiplexer_loss_db":
        moved = 0.5
    if (part, parameter) == ("scale_up", "size"):
        moved = 8
    plain = rails(64) if parameter in ("ports", "spare_ports") else PLAIN
    changed = replace(plain, **{part: replace(getattr(plain, part), **{parameter: moved})})
    assert outputs(changed) != outputs(plain)


def test_launch_limit_decides_whether_the_link_closes():
    with pytest.raises(LinkError):
        replace(PLAIN, optics=replace(PLAIN.optics, launch_max_dbm=0.0))


@pytest.mark.parametrize(("fabric", "name"), [("ocs_rails", "lanes"), ("direct_connect", "degree")])
def test_no_lanes_are_refused(fabric, name):
    with pytest.raises(ParameterError, match=f"{name} must be at least 1.*; got 0"):
        dataclasses.replace(build_fabric(fabric, 16, "h100"), **{name: 0})
