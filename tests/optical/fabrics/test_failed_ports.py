"""Failures of ports, switches and nodes of optical fabrics: lost, lent and replaced lanes."""

from dataclasses import replace

import numpy as np
import pytest

from optical.fabrics.circuits import DARK
from optical.fabrics.cubes import CubeFabric
from optical.fabrics.switches import chassis_of, chassis_ports, load_switch, spare_time_s, switch_chassis
from optical.fabrics.transceiver_ring import TransceiverRing
from simulator.errors import ParameterError, RouteError
from simulator.failures import Failure, failed_parts, numbered
from simulator.interfaces import Flows
from tests.conformance.failed_circuits import CASES, RAILS, SHIFT, run, traffic

PALOMAR = load_switch("palomar-mems")


def named(fabric, **parts):
    return failed_parts(fabric, **({"ports": [], "switches": [], "nodes": []} | parts))


@pytest.mark.parametrize("dead", [1, 2, 3])
def test_a_striped_pair_keeps_its_other_lanes(dead):
    whole_s, _ = run(RAILS, traffic(SHIFT))
    ports = [[0, lane] for lane in range(dead)]
    hurt_s, _ = run(RAILS, traffic(SHIFT), (Failure(time_s=0.0, ports=named(RAILS, ports=ports).ports),))
    assert hurt_s == pytest.approx(whole_s * 4 / (4 - dead), rel=1e-3)


def test_a_pair_without_lanes_borrows_one_and_gives_it_back():
    """Endpoint 0 sends to three others over 2 + 1 + 1 lanes; the pair that loses its own takes one of two."""
    three = Flows(sources=np.zeros(3, int), destinations=np.array([4, 8, 12]), size_bytes=1e9, axis="dp")
    before = RAILS.initial((three,))
    counts = {peer: int((before.tx_peer[0] == peer).sum()) for peer in (4, 8, 12)}
    assert sorted(counts.values()) == [1, 1, 2]
    (poor, *_), rich = [peer for peer in counts if counts[peer] == 1], max(counts, key=counts.get)
    lane = int(np.flatnonzero(before.tx_peer[0] == poor)[0])
    hurt, change = RAILS.without(before, np.array([lane]))
    assert change.reconfiguration_s == 0.0
    assert not RAILS.connected(hurt, three)
    after, change = RAILS.configure(hurt, three, (three,))
    assert RAILS.connected(after, three)
    assert change.reconfiguration_s == RAILS.switch.reconfiguration_s
    assert (after.lit[0] == rich).sum() == 1
    assert after.lit[0, lane] == DARK
    back, change = RAILS.without(after, np.empty(0, dtype=np.int64))
    np.testing.assert_array_equal(back.lit, before.lit)
    assert change.moved_links.size


CARD = (0, 1, 2, 3)
"""All lanes of endpoint 0."""


@pytest.mark.parametrize("ports", [CARD, (16, 17, 18, 19), (0, 1, 18, 19)])
def test_a_dead_card_s_traffic_halves_a_neighbour(ports):
    """The node's other card forwards, as packets do (NCCL 2.12's PXN): two flows share its lanes."""
    flows = traffic(SHIFT)
    whole_s, _ = run(RAILS, flows)
    hurt_s, network = run(RAILS, flows, (Failure(time_s=0.0, ports=ports),))
    assert hurt_s == pytest.approx(2 * whole_s, rel=1e-3)
    assert not network.changes
    links = RAILS.route(network.circuits, flows)
    one, inside = RAILS.endpoints * RAILS.lanes, RAILS.endpoints
    assert (links[0] >= 0).sum() == 5 - (links[0] < 0).sum() == 5
    assert links[0, 0] == one
    assert links[0, 2] // RAILS.lanes in {1, 2, 3}
    assert links[0, 4] == one + inside + 4
    assert RAILS.carried_energy_j(network.circuits, flows) > RAILS.transfer_energy_j(flows)
    assert RAILS.carried_energy_j(RAILS.initial((flows,)), flows) == RAILS.transfer_energy_j(flows)


def test_a_forwarding_node_is_no_faster_than_its_own_switch():
    slow = replace(RAILS, scale_up=replace(RAILS.scale_up, bandwidth_bytes_per_s=1e9))
    hurt_s, _ = run(slow, traffic(SHIFT), (Failure(time_s=0.0, ports=CARD),))
    assert hurt_s >= 1e10 / slow.scale_up.capacity_bytes_per_s


def test_circuits_turn_for_a_rail_that_takes_over():
    """Only endpoint 0 sends, so no other rail is lit; one turns, for its dark time and not its rate."""
    pair = Flows(sources=np.array([0]), destinations=np.array([4]), size_bytes=1e10, axis="dp")
    whole_s, _ = run(RAILS, pair)
    hurt_s, network = run(RAILS, pair, (Failure(time_s=0.0, ports=CARD),))
    assert [change.end_s - change.start_s for change in network.changes] == [RAILS.switch.turn_s(4)]
    assert hurt_s == pytest.approx(whole_s + RAILS.switch.turn_s(4), rel=1e-3)


def test_too_few_lanes_for_all_peers_leave_some_to_other_rails():
    """Endpoints of node 0 send to three nodes each; endpoint 0 keeps one lane, so two pairs go elsewhere."""
    sources = np.repeat(np.arange(4), 3)
    flows = Flows(sources=sources, destinations=sources + np.tile([4, 8, 12], 4), size_bytes=1e10, axis="dp")
    for policy in RAILS.traits.policies:
        fabric = replace(RAILS, policy=policy)
        hurt_s, network = run(fabric, flows, (Failure(time_s=0.0, ports=CARD[:3]),))
        assert network.circuits.relays
        assert run(fabric, flows)[0] < hurt_s < 5 * run(fabric, flows)[0]


def test_a_node_without_any_lane_is_cut_off():
    with pytest.raises(RouteError, match="dp traffic waits for ever for port 0 of endpoint 0 and 15 more"):
        run(RAILS, traffic(SHIFT), (Failure(time_s=0.0, ports=tuple(range(16))),))


@pytest.mark.parametrize("seed", range(5))
def test_no_light_begins_or_ends_on_a_port_that_is_down(seed):
    rng = np.random.default_rng(seed)
    failed = rng.choice(RAILS.traits.ports.count, 20, replace=False)
    flows = traffic(SHIFT)
    circuits, _ = RAILS.without(RAILS.initial((flows,)), failed)
    circuits, _ = RAILS.configure(circuits, flows, (flows,))
    source, lane = np.nonzero(circuits.lit != DARK)
    assert not np.isin(source * RAILS.lanes + lane, failed).any()
    assert not np.isin(circuits.lit[source, lane] * RAILS.lanes + lane, failed).any()


@pytest.mark.parametrize(("rail", "planes"), [(16, 32), (100, 8), (200, 4), (1000, 2)])
def test_chassis_hold_every_port_and_are_those_of_the_bill(rail, planes):
    """One stage with shared chassis, three stages with inputs, outputs and middles."""
    count = switch_chassis(PALOMAR, rail, planes)
    lost = [chassis_ports(PALOMAR, rail, planes, one) for one in range(count)]
    held = np.concatenate(lost)
    assert len(np.unique(held, axis=0)) == rail * planes
    if rail <= PALOMAR.usable_ports:
        assert len(held) == rail * planes
    assert chassis_of(PALOMAR, rail, planes).max() < count
    assert all(len(ports) <= rail * planes for ports in lost)


def test_spare_ports_are_as_many_as_a_switch_keeps():
    assert spare_time_s(PALOMAR, [0] * 8 + [1] * 8) == PALOMAR.reconfiguration_s
    with pytest.raises(ParameterError, match=r"9 ports of switch 1 should .* keeps 8 spare ports"):
        spare_time_s(PALOMAR, [0] * 8 + [1] * 9)
    ports = np.array(numbered(RAILS, [[0, 0], [5, 1]]))
    assert RAILS.replacement_s(ports) == PALOMAR.reconfiguration_s


@pytest.mark.parametrize("name", ["rails", "direct", "hybrid"])
def test_all_switches_together_take_all_ports(name):
    fabric = CASES[name][0]
    every = named(fabric, switches=list(range(fabric.switches)))
    assert every.ports == tuple(range(fabric.traits.ports.count))
    with pytest.raises(ParameterError, match=f"has no switch {fabric.switches}; choices: 0 to"):
        named(fabric, switches=[fabric.switches])


def test_a_switch_between_cubes_carries_one_of_48_places():
    """Jouppi et al., arXiv:2304.01433: 48 switches; a slice loses a 48th of its circuits with one."""
    slices = CubeFabric(endpoints=512, x=8, y=8)
    assert slices.switches == 48
    lost = [named(slices, switches=[one]).links for one in range(48)]
    assert {len(links) for links in lost} == {int(slices.between.sum()) // 48}
    assert sorted(link for links in lost for link in links) == np.flatnonzero(slices.between).tolist()
    light = int(np.flatnonzero(slices.between)[0])
    links = named(slices, ports=[list(divmod(light, 6))]).links
    assert len(links) == 2
    assert set(slices.position[list(links)]) == {slices.position[light]}
    assert slices.replacement_s(np.array(links[:1])) == slices.switch.reconfiguration_s
    copper = np.flatnonzero(~slices.between)[:1]
    with pytest.raises(ParameterError, match="is copper inside a cube"):
        slices.replacement_s(copper)


@pytest.mark.parametrize(("dead", "passed"), [((2,), True), ((2, 3), True), ((2, 3, 4), False)])
def test_a_ring_passes_by_as_many_nodes_as_its_fibres_reach(dead, passed):
    """K - 1 failed nodes in a row (Shou et al., arXiv:2502.03885); past more, the way back is left."""
    ring = TransceiverRing(endpoints=32, node=2, hops=3)
    circuits, change = ring.without(ring.circuits(), np.array(dead))
    after = int(circuits.ahead(+1)[1])
    assert (after == dead[-1] + 1) is passed
    assert change.reconfiguration_s == ring.switch.reconfiguration_s
    assert (int(circuits.ahead(-1)[dead[-1] + 1]) == 1) is passed
    over = Flows(sources=np.array([3]), destinations=np.array([2 * dead[-1] + 2]), size_bytes=1e9, axis="tp")
    circuits, _ = ring.configure(circuits, over, ())
    assert ring.connected(circuits, over)
    links = ring.route(circuits, over)[0]
    assert (int((links >= 0).sum()) == 1) is passed


def test_two_broken_places_part_a_ring():
    ring = TransceiverRing(endpoints=32, node=2, hops=2)
    over = Flows(sources=np.array([0]), destinations=np.array([8]), size_bytes=1e9, axis="tp")
    ports = (2, 3, 12, 13)
    with pytest.raises(RouteError, match="waits for ever for the transceivers of node 2 and 3 more"):
        run(ring, over, (Failure(time_s=0.0, ports=ports),))
    assert run(ring, over, (Failure(time_s=0.0, ports=ports[:2]),))[0] > run(ring, over)[0]


def test_direct_circuits_detour_over_other_nodes():
    fabric, parts, _ = CASES["direct"]
    flows = traffic(SHIFT)
    circuits = fabric.initial((flows,))
    hurt, _ = fabric.without(circuits, np.array(parts["ports"]))
    nodes = np.array([0]), np.array([1])
    assert circuits.hops(*nodes)[0] == 1
    assert hurt.hops(*nodes)[0] > 1
    assert fabric.carried_energy_j(hurt, flows) > fabric.carried_energy_j(circuits, flows)


def test_relays_leave_out_ends_that_are_down():
    fabric = CASES["sirius"][0]
    some = Flows(sources=np.array([1]), destinations=np.array([5]), size_bytes=1e9, axis="dp")
    whole = fabric.loads(None, some)
    barred = fabric.loads_around(None, some, np.array([9]))
    assert 9 in whole.links
    assert 9 not in barred.links
    assert replace(fabric, lanes=4).rotation.slots == 1
