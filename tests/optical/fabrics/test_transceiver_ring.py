"""A ring of nodes whose transceivers switch: full rings of any size, hops, failed nodes, light."""

import math
from dataclasses import replace

import numpy as np
import pytest
import simpy

from optical.fabrics.switches import load_switch
from optical.fabrics.transceiver_ring import TransceiverRing
from simulator.engine.network import FlowGroup, Network
from simulator.errors import LinkError, ParameterError, RouteError
from simulator.fabric import missing_members
from simulator.interfaces import Flows
from simulator.operators import CollectiveKind
from tests.bounds import collective_bound_s
from tests.builders import dead_numbers
from tests.conformance.graphs import collective_s

RING = TransceiverRing(endpoints=64)


def ring_flows(group, axis="tp", stride=1):
    ranks = np.arange(group) * stride
    return Flows(sources=ranks, destinations=np.roll(ranks, -1), size_bytes=1e8, axis=axis)


def taken_s(fabric, *several):
    env = simpy.Environment()
    network = Network(env, fabric, several)

    def run():
        for index, flows in enumerate(several):
            flow_group = FlowGroup(index=index, flows=flows, demand=several)
            yield from network.carry(flow_group, flows.size_bytes, 1)

    env.run(env.process(run()))
    return env.now


@pytest.mark.parametrize("group", [4, 8, 12, 20, 36, 64])
def test_any_run_of_nodes_is_a_ring_of_full_rate(group):
    """Shou et al., SIGCOMM 2025: rings of any number of nodes; the way back takes the other direction."""
    port = RING.graph(RING.circuits(1)).capacity_bytes_per_s.max()
    assert port == pytest.approx(400e9 * RING.link.efficiency)
    flows = ring_flows(group)
    wire_s = flows.size_bytes / port
    links = RING.route(RING.circuits(1), flows)
    assert np.unique(links[links >= 0], return_counts=True)[1].max() == 1
    assert taken_s(RING, flows) == pytest.approx(
        wire_s + RING.graph(RING.circuits(1)).latency_s[links[-1]].sum(), rel=0.05
    )


def test_every_route_ends_where_it_should():
    for hop in (1, 2, 3):
        fabric = replace(RING, hops=3)
        pairs = np.arange(64)
        flows = Flows(sources=pairs, destinations=(pairs + 4 * hop) % 64, size_bytes=1.0, axis="dp")
        circuits, _ = fabric.configure(fabric.circuits(1), flows, ())
        assert circuits.hop == hop
        here, heads = pairs.copy(), fabric.heads(circuits)
        for links in fabric.route(circuits, flows).T:
            here = np.where(links >= 0, heads[links], here)
        np.testing.assert_array_equal(here, flows.destinations)
        assert (np.bincount(heads, minlength=64) == 2).all()
    assert missing_members(fabric) == ()


@pytest.mark.parametrize("failed", [(), (1,), (0, 3)])
@pytest.mark.parametrize(("nodes", "node"), [(2, 4), (4, 4), (5, 2), (6, 3), (7, 1), (10, 1), (16, 4)])
def test_an_even_exchange_loads_all_links_alike(nodes, node, failed):
    """Least load of a ring's busiest link under any routing: distances over links, n^2 / 8 of n endpoints."""
    failed = tuple(one for one in failed if nodes > 2)
    fabric = TransceiverRing(endpoints=nodes * node, node=node, hops=len(failed) + 1)
    ends = np.flatnonzero(~np.isin(np.arange(nodes * node) // node, failed))
    pairs = np.array([(one, other) for one in ends for other in ends if one != other])
    flows = Flows(sources=pairs[:, 0], destinations=pairs[:, 1], size_bytes=1.0, axis="dp")
    usage = fabric.loads(fabric.circuits(1, failed), flows).usage
    assert usage.sum() == pytest.approx(2 * ends.size * (ends.size**2 // 4) / 2)
    assert usage.max() <= math.ceil(ends.size**2 // 4 / 2)


@pytest.mark.parametrize("hops", [1, 2, 4])
def test_flows_to_the_opposite_node_go_both_ways(hops):
    fabric = replace(RING, hops=hops)
    every = np.arange(64)
    flows = Flows(sources=every, destinations=(every + 32) % 64, size_bytes=1.0, axis="dp")
    circuits = fabric.initial((flows,))
    assert circuits.hop == hops
    np.testing.assert_array_equal(fabric.loads(circuits, flows).usage, np.full(128, 16 / hops))


def test_longer_hops_spare_links_and_cost_their_dark_time():
    """60 to 80 us of hardware (Shou et al.), control and relock beside; one turn there and none within."""
    near = ring_flows(8)
    far = Flows(sources=np.arange(64), destinations=(np.arange(64) + 8) % 64, size_bytes=1e9, axis="dp")
    with pytest.raises(RouteError, match="wants 2"):
        RING.route(RING.circuits(1), far)
    _, change = RING.configure(RING.circuits(1), far, ())
    assert 60e-6 <= RING.switch.switch_s <= 80e-6
    assert change.reconfiguration_s == RING.switch.reconfiguration_s
    assert change.moved_links.size == 2 * RING.nodes
    assert taken_s(RING, near, far) == pytest.approx(
        taken_s(RING, near) + taken_s(RING, far) + change.reconfiguration_s, rel=1e-9
    )
    assert taken_s(RING, far) < 0.6 * taken_s(replace(RING, hops=1), far)
    assert RING.configure(RING.circuits(2), near, ())[0].hop == 1


def test_all_reduces_stay_above_the_bound():
    ports = 2 * RING.graph(RING.circuits(1)).capacity_bytes_per_s.max()
    taken = collective_s(RING, payload=1e9)
    assert taken >= collective_bound_s(CollectiveKind.ALL_REDUCE, 64, 1e9, ports)


def test_failed_nodes_take_hops_and_too_many_break_the_ring():
    """A circuit passes K - 1 failed nodes in a row (Shou et al., K-hop ring)."""
    assert [replace(RING, failed_nodes=count).reach for count in (0, 1, 16)] == [2, 1, 1]
    assert replace(RING, hops=4, failed_nodes=1).reach == 3
    assert replace(RING, hops=3, failed_nodes=32).reach == 1
    with pytest.raises(ParameterError, match="try hops=3"):
        replace(RING, failed_nodes=17)
    flows = ring_flows(32)
    assert taken_s(replace(RING, failed_nodes=8), flows) == taken_s(RING, flows)
    assert replace(RING, failed_nodes=8).cost_usd > RING.cost_usd
    assert replace(RING, failed_nodes=8).static_w == RING.static_w


def test_light_that_is_lost_names_its_element():
    assert dict(RING.budget.losses_db)["optical switches"] == 2 * RING.switch.insertion_loss_db
    assert dict(RING.budget.losses_db)["connectors"] == 2 * RING.optics.connector_loss_db
    with pytest.raises(LinkError, match="greatest loss is optical switches"):
        replace(RING, switch=replace(load_switch("transceiver-switch"), insertion_loss_db=4.0))


SILENT = ("optics.circulator_loss_db", "switch.spare_ports", "switch.command_s")
"""There are no circulators, and a transceiver has no spare path and commands itself."""


def test_every_number_moves_an_answer():
    base = replace(RING, lanes=24, copper_links=5, failed_nodes=1, hops=3)
    far = Flows(sources=np.arange(64), destinations=(np.arange(64) + 8) % 64, size_bytes=1e7, axis="dp")

    def answers(fabric):
        change = fabric.configure(fabric.circuits(1), far, ())[1]
        times = taken_s(fabric, ring_flows(8), far), taken_s(fabric, ring_flows(3))
        return (
            fabric.bill(),
            change.reconfiguration_s,
            change.energy_j,
            *times,
            fabric.budget,
            fabric.transfer_energy_j(far),
        )

    refused = (ParameterError, LinkError, IndexError)
    assert not dead_numbers(
        base, answers, factors=(2, 0.5, 0.01, 8), idle=lambda path: path in SILENT, refused=refused
    )


@pytest.mark.parametrize("endpoints", [8, 32])
def test_an_all_reduce_goes_round_the_ring_both_ways(endpoints):
    """Twice all but one part of the vector ends over the two links of an endpoint: no schedule beats it."""
    fabric = TransceiverRing(endpoints=endpoints)
    vector, rate = 8e9, float(fabric.graph(fabric.circuits()).capacity_bytes_per_s.min())
    least_s = 2 * (endpoints - 1) / endpoints * vector / (2 * rate)
    assert least_s < collective_s(fabric, payload=vector) < 1.01 * least_s
