"""Collectives whose levels, inside nodes and between them, work on different chunks at the same time."""

from dataclasses import replace

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from electronic.devices import load_packet_switch, load_scale_up, load_transceiver
from electronic.fabrics.collectives import CARD_PARTS, Cards
from electronic.fabrics.fat_tree import FatTree
from electronic.fabrics.packets import RailFabric, Reduction
from electronic.gpu import load_gpu
from optical.fabrics.node_circuits import DirectConnect
from simulator.collectives.flow_groups import PricedCollective
from simulator.collectives.lines import collective_lines, collective_slowdown
from simulator.collectives.traffic import Traffic
from simulator.engine.network import Network
from simulator.engine.simulation import Simulation
from simulator.fabric import Fabric
from simulator.layout import RankLayout
from simulator.node import Node
from simulator.operators import Collective, CollectiveKind, StepGraph, Task
from simulator.topology.scale_up import ScaleUp, load_nic
from tests.builders import REDUCING, Idle, collective

HALVES = REDUCING[1:]
GIB = 2.0**30


def rails(endpoints: int, scale_up: ScaleUp, network: Cards = Cards.NDR) -> RailFabric:
    nic, switch, module, _ = CARD_PARTS[network]
    return RailFabric(
        endpoints=endpoints,
        scale_up=scale_up,
        nic=load_nic(nic),
        switch=load_packet_switch(switch),
        transceiver=load_transceiver(module),
    )


def work(kind: CollectiveKind, n: int, nbytes: float) -> Collective:
    """Return a collective of so many bytes as nccl-tests counts them."""
    payload = nbytes / n if kind is CollectiveKind.ALL_GATHER else nbytes
    return collective(kind, n, payload)


def traffic_on(fabric: Fabric) -> Traffic:
    network = Network(simpy.Environment(), fabric, ())
    return Traffic(RankLayout(dp=fabric.endpoints), fabric, network, {})


def plans(fabric: Fabric, kind: CollectiveKind, nbytes: float) -> tuple[PricedCollective, ...]:
    return traffic_on(fabric).options(work(kind, fabric.endpoints, nbytes), 0)


def fastest(fabric: Fabric, kind: CollectiveKind, nbytes: float) -> PricedCollective:
    return min(plans(fabric, kind, nbytes), key=lambda plan: plan.alone_s)


def unchunked(scale_up: ScaleUp) -> ScaleUp:
    """Return a domain whose library takes the whole vector from level to level."""
    return replace(
        scale_up,
        protocols=tuple(replace(one, chunk_bytes=np.inf) for one in scale_up.protocols),
        adders=tuple(replace(one, chunk_bytes=np.inf) for one in scale_up.adders),
    )


# 2 x 8 H100 with eight cards of 200 Gb/s a node (Google A3 Mega, GPUDirect-TCPXO), nccl-tests' all-reduce.
A3_MEGA_US = {2**32: 24361.0, 2**33: 47535.0}


@pytest.mark.parametrize("size", A3_MEGA_US)
def test_two_nodes_reduce_long_vectors_as_measured(size: int) -> None:
    """4 and 8 GiB are met within 7 %; one level after the other took 1.65 and 1.68 times as long.

    Shorter ones are not: that software needs some 0.9 ms more whatever the size, which no source states.
    """
    fabric = rails(16, load_scale_up("nvlink4"), Cards.HDR)
    time_s = fastest(fabric, CollectiveKind.ALL_REDUCE, size).alone_s
    assert time_s == pytest.approx(A3_MEGA_US[size] * 1e-6, rel=0.07)


def test_many_nodes_reduce_at_published_bus_bandwidths() -> None:
    """Nvidia: 192 GB/s on DGX A100 (NCCL issue 812), 370 to 380 on H100 by NVLS and trees (issue 1649)."""
    for name, network, low, high in (
        ("nvlink3", Cards.HDR, 192.0, 192.0),
        ("nvlink4", Cards.NDR, 370.0, 380.0),
    ):
        n, nbytes = 256, 16.0 * GIB
        time_s = fastest(rails(n, load_scale_up(name), network), CollectiveKind.ALL_REDUCE, nbytes).alone_s
        rate = 2 * (n - 1) / n * nbytes / time_s / 1e9
        assert 0.95 * low < rate < 1.05 * high


# 2 x 8 H200 with eight cards of 400 Gb/s a node (Google A3 Ultra), nccl-tests' all-gather, out of place.
A3_ULTRA_US = {2**26: 294.7, 2**28: 877.5, 2**30: 3105.7, 2**33: 24489.0}


@pytest.mark.parametrize("size", A3_ULTRA_US)
def test_two_nodes_gather_long_vectors_as_measured(size: int) -> None:
    """2 to 11 % too fast, where cards reach 42 of 50 GB/s; one level after the other is 13 to 16 % too slow.

    Against it stands one call on 256 H100 (NCCL issue 1218): 2 GiB at 200 GB/s, where this makes 277.
    """
    time_s = fastest(rails(16, load_scale_up("nvlink4")), CollectiveKind.ALL_GATHER, size).alone_s
    assert time_s == pytest.approx(A3_ULTRA_US[size] * 1e-6, rel=0.12)


@pytest.mark.parametrize("kind", REDUCING)
@pytest.mark.parametrize("nodes", [2, 5])
def test_rings_pass_all_but_a_rank_s_part_through_every_node(kind: CollectiveKind, nodes: int) -> None:
    """Where cards are slow, n - 1 of n parts of the vector leave a node, twice to sum (nccl-tests, busbw)."""
    fabric = rails(8 * nodes, load_scale_up("nvlink4"), Cards.HDR)
    nbytes, n = 1e15, 8 * nodes
    (time_s,) = (
        plan.alone_s for plan in plans(fabric, kind, nbytes) if plan.algorithm == "ring simple pipelined"
    )
    passes = 2.0 if kind is CollectiveKind.ALL_REDUCE else 1.0
    assert time_s == pytest.approx(passes * (n - 1) / n * nbytes / 8 / fabric.port_bytes_per_s, rel=1e-5)


@pytest.mark.parametrize("kind", REDUCING)
def test_long_vectors_have_their_levels_at_once(kind: CollectiveKind) -> None:
    assert fastest(rails(32, load_scale_up("nvlink4")), kind, GIB).at_once


MANY_CHUNKS = 1e8  # bytes; four of the longest chunks


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(["nvlink3", "nvlink4", "nvlink5"]),
    nodes=st.sampled_from([2, 3, 4, 8]),
    nbytes=st.one_of(st.floats(1.0, 1e11), st.floats(0.0, 11.0).map(lambda power: 10.0**power)),
    kind=st.sampled_from(REDUCING),
)
def test_levels_at_once_lie_between_their_bounds(
    name: str, nodes: int, nbytes: float, kind: CollectiveKind
) -> None:
    """Sums of many chunks take no longer than level after level; none beats a node's cards passing its part.

    With two or three nodes and few chunks, filling them costs up to a fifth more than level after level,
    which no library has.

    What leaves each of N nodes of a vector m is at least 2 (N - 1) / N m in an all-reduce, half of it in
    the others (Patarasuk and Yuan 2009, theorem 1, with nodes for ranks).
    """
    scale_up = load_scale_up(name)
    fabric = rails(8 * nodes, scale_up)
    time_s = fastest(fabric, kind, nbytes).alone_s
    if kind is CollectiveKind.ALL_REDUCE and nbytes >= MANY_CHUNKS:
        assert time_s <= fastest(rails(8 * nodes, unchunked(scale_up)), kind, nbytes).alone_s
    passes = 2.0 if kind is CollectiveKind.ALL_REDUCE else 1.0
    cards = 8 * fabric.nic.bandwidth_bytes_per_s
    assert time_s >= passes * (nodes - 1) / nodes * nbytes / cards


def test_more_bytes_and_longer_chunks_never_take_less_time() -> None:
    kind = CollectiveKind.ALL_REDUCE
    scale_up = load_scale_up("nvlink4")
    times = [fastest(rails(32, scale_up), kind, size).alone_s for size in np.geomspace(1e3, 1e11, 40)]
    assert np.all(np.diff(times) >= 0.0)
    for nbytes in (1e8, 1e10):
        longer = []
        for factor in (0.25, 1.0, 4.0, 16.0):
            protocols = tuple(
                replace(one, chunk_bytes=factor * one.chunk_bytes) for one in scale_up.protocols
            )
            longer.append(fastest(rails(32, replace(scale_up, adders=(), protocols=protocols)), kind, nbytes))
        times = [one.alone_s for one in longer]
        assert np.all(np.diff(times) >= 0.0)
        assert times[0] < times[1] < times[2]


@pytest.mark.parametrize("nodes", [2, 3])
def test_one_chunk_takes_one_level_after_the_other(nodes: int) -> None:
    """A vector of one chunk passes its levels in turn; trees of three nodes only pass more outside.

    Rings pass 2 (N - 1) / N of a card's part (Sanders et al. 2009), two nodes exchange it, and a chunk that
    climbs and descends a tree of three passes a card at each of 4 hops.
    """
    scale_up = replace(load_scale_up("nvlink4"), adders=(), copy_bytes_per_s=1e30)
    chunk = scale_up.protocols[-1].chunk_bytes
    fabric = rails(8 * nodes, scale_up)
    found = {plan.algorithm: plan for plan in plans(fabric, CollectiveKind.ALL_REDUCE, chunk)}
    more = 0.0 if nodes == 2 else 4.0 - 2.0 * (nodes - 1) / nodes
    extra_s = more * chunk / 8 / fabric.port_bytes_per_s
    whole = plans(rails(8 * nodes, unchunked(scale_up)), CollectiveKind.ALL_REDUCE, chunk)
    (in_turn_s,) = (plan.alone_s + extra_s for plan in whole if plan.algorithm == "hierarchical simple")
    assert "hierarchical simple" not in found  # no library has its levels take turns
    for name in ("hierarchical simple pipelined", "hierarchical simple in one chunk"):
        assert found[name].alone_s == pytest.approx(in_turn_s, rel=1e-9)


def test_long_vectors_take_as_long_as_their_slowest_level() -> None:
    """2 x 8 GPUs: M / 8 through each card, or 2 (7 / 8) M through each port and a copy of M."""
    domain = replace(load_scale_up("nvlink4"), adders=())
    nbytes = 1e15
    for network in (Cards.HDR, Cards.NDR):
        fabric = rails(16, domain, network)
        inside_s = 1.75 * nbytes / domain.capacity_bytes_per_s + nbytes / domain.copy_bytes_per_s
        between_s = nbytes / 8 / fabric.port_bytes_per_s
        time_s = fastest(fabric, CollectiveKind.ALL_REDUCE, nbytes).alone_s
        assert time_s == pytest.approx(max(inside_s, between_s), rel=1e-5)


FABRICS = {
    "rails": rails(32, load_scale_up("nvlink4")),
    "sharp": FatTree(endpoints=32, reduction=Reduction.SWITCHES),
    "relays": DirectConnect(endpoints=32, scale_up=load_scale_up("nvlink4"), nic=load_nic("connectx-7")),
}


@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize("kind", REDUCING)
def test_engine_and_closed_form_agree(name: str, kind: CollectiveKind) -> None:
    """The engine moves levels of a collective on one clock; the lines of a collective are its closed form.

    Where nodes relay for others, both levels load the same ports and share them.
    """
    fabric = FABRICS[name]
    one = work(kind, 32, 8.0 * GIB)
    task = Task(id=0, rank_class=0, operator=one)
    graph = StepGraph(tasks=(task,), layout=RankLayout(dp=32), tokens=1)
    memory = load_gpu("h100").memory
    node = Node(name="n", units=(Idle(),), memory=memory, peak_flop_per_s=1.0, static_parts_w={"idle": 0.0})
    simulation = Simulation(graph, node, fabric)
    plan = simulation.traffic.plan(one, 0)
    assert plan.at_once
    assert simulation.run().makespan_s == pytest.approx(plan.alone_s, rel=1e-9)
    lines = collective_lines(one, simulation.traffic, 0)
    assert float(lines.time_s(one.payload_bytes)) == pytest.approx(plan.alone_s, rel=1e-9)


def test_slowest_level_decides_what_neighbours_cost() -> None:
    """Beside itself a collective takes twice as long; what meets only its quicker level costs less."""
    fabric = rails(32, replace(load_scale_up("nvlink4"), adders=()), Cards.HDR)
    traffic = traffic_on(fabric)
    options = traffic.options(work(CollectiveKind.ALL_REDUCE, 32, GIB), 0)
    (both,) = (one for one in options if one.algorithm == "hierarchical simple pipelined")
    inside, between = both.parts
    capacity = fabric.graph(fabric.initial(())).capacity_bytes_per_s
    quick = replace(both, parts=(inside,))
    assert both.at_once
    assert collective_slowdown(both, both, capacity).one == pytest.approx(2.0)
    assert collective_slowdown(both, replace(both, parts=(between,)), capacity).one == pytest.approx(2.0)
    assert collective_slowdown(both, quick, capacity).one == 1.0


# Rows of one table (NCCL issue 309, user qoofyk): 2 and 4 x 8 H100 with eight cards of 400 Gb/s a node.
LONE_US = {
    16: {2**6: 25.21, 2**16: 33.08, 2**18: 46.79, 2**20: 71.47, 2**24: 183.8, 2**26: 466.3, 2**28: 1276.0},
    32: {2**6: 34.92, 2**16: 47.60, 2**20: 82.21, 2**24: 258.3, 2**26: 574.4, 2**28: 1772.4, 2**30: 5802.8},
}


@pytest.mark.parametrize("ranks", LONE_US)
def test_reductions_of_all_lengths_between_nodes_are_met(ranks: int) -> None:
    """Nothing is fitted; two thirds of the time in the middle was missed by up to 40 % before chunks filled
    every hop, rounds that feed trees waited longer and hosts looked at the flags of short messages.
    """
    fabric = rails(ranks, load_scale_up("nvlink4"))
    times = {size: fastest(fabric, CollectiveKind.ALL_REDUCE, size).alone_s for size in LONE_US[ranks]}
    errors = [times[size] / (time_us * 1e-6) - 1.0 for size, time_us in LONE_US[ranks].items()]
    assert max(map(abs, errors)) < 0.14
    assert np.mean(np.abs(errors)) < 0.08


def test_exchanges_between_nodes_wait_for_every_message() -> None:
    """8 MiB on 64 H800 take 338 us (NCCL issue 1531); the host posts 56 messages of Simple, 3 us each."""
    fabric = rails(64, load_scale_up("nvlink4-h800"))
    found = fastest(fabric, CollectiveKind.ALL_TO_ALL, 2.0**23)
    assert found.algorithm == "direct simple"
    assert found.alone_s == pytest.approx(337.8e-6, rel=0.03)
    quick = tuple(replace(one, post_s=0.0) for one in fabric.scale_up.protocols)
    apart = replace(fabric, scale_up=replace(fabric.scale_up, protocols=quick))
    posted_s = found.alone_s - fastest(apart, CollectiveKind.ALL_TO_ALL, 2.0**23).alone_s
    assert posted_s == pytest.approx(55 * 3e-6)


@pytest.mark.parametrize("part", ["protocols", "adders"])
def test_chunks_of_protocols_and_adders_move_the_time(part: str) -> None:
    scale_up = load_scale_up("nvlink4")
    rows = tuple(replace(one, chunk_bytes=3 * one.chunk_bytes) for one in scale_up.protocols)
    if part == "adders":  # at the same rate
        rows = tuple(
            replace(one, chunk_bytes=3 * one.chunk_bytes, tree_wait_s=3 * one.tree_wait_s)
            for one in scale_up.adders
        )
    first = scale_up if part == "adders" else replace(scale_up, adders=())
    before, after = (
        fastest(rails(16, one), CollectiveKind.ALL_REDUCE, GIB).alone_s
        for one in (first, replace(first, **{part: rows}))
    )
    assert after > before
