from dataclasses import replace

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from electronic.devices import REFERENCE_SYSTEMS, load_scale_up, scale_up_name
from electronic.fabrics.collectives import Cards, collective_plan, load_caller
from electronic.fabrics.packets import RailFabric
from electronic.gpu import gpu_names, load_gpu
from simulator.collectives.algorithms import Algorithm
from simulator.collectives.traffic import Traffic
from simulator.engine.network import Network
from simulator.engine.simulation import Simulation
from simulator.errors import ParameterError
from simulator.layout import RankLayout
from simulator.node import Node
from simulator.operators import CollectiveKind, StepGraph, Task
from tests.bounds import collective_bound_s, in_network_bound_s
from tests.builders import REDUCING, Idle, collective

MIB = 2**20


def bus_gb_per_s(gpu, n, nbytes):
    return 2 * (n - 1) / n * nbytes / collective_plan(gpu, n, nbytes).alone_s / 1e9


# Published bus bandwidths of all-reduce, GB/s: Azure ND A100 v4 and ND H100 v5 (NCCL 2.18.5), 8xH200 without
# and with NVLS of Bekman's ML Engineering; sizes in MiB. The bar of the project is 9.7 % in geometric mean.
PUBLISHED = {
    "a100": {
        1: 36.22,
        2: 53.54,
        4: 71.43,
        8: 89.99,
        16: 109.22,
        32: 132.77,
        64: 166.63,
        1024: 228.1,
        8192: 231.6,
    },
    "h100": {
        1: 43.7,
        2: 81.93,
        4: 128.73,
        8: 172.13,
        16: 234.45,
        32: 295.53,
        64: 361.78,
        1024: 466.4,
        8192: 478.9,
    },
    "h200": {
        1: 39.93,
        2: 64.53,
        4: 107.2,
        8: 155.5,
        16: 219.9,
        32: 275.8,
        64: 346.5,
        1024: 463.6,
        8192: 477.5,
    },
}


@pytest.mark.parametrize("gpu", PUBLISHED)
def test_eight_gpus_reduce_at_published_bus_bandwidths(gpu):
    """Azure runs nccl-tests with one process for all GPUs, Bekman events in PyTorch around each call."""
    caller = load_caller("torch-events" if gpu == "h200" else "nccl-tests")
    driven = 1 if gpu == "h200" else 8
    wrong = []
    for mib, rate in PUBLISHED[gpu].items():
        taken_s = caller.measured_s(collective_plan(gpu, 8, mib * MIB).alone_s, driven)
        wrong.append(abs(1.75 * mib * MIB / taken_s / 1e9 / rate - 1))
    assert np.exp(np.log1p(wrong).mean()) - 1 < 0.06


def test_without_adders_the_ring_is_what_is_left():
    plain = replace(load_scale_up("nvlink4"), adders=())
    fabric = RailFabric(endpoints=8, scale_up=plain)
    time_s = plan_on(fabric, CollectiveKind.ALL_REDUCE, 8, 8192.0 * MIB).alone_s
    # 8xH200 with SHARP/NVLS disabled, same source: 367.61 GB/s.
    assert 1.75 * 8192 * MIB / time_s / 1e9 == pytest.approx(367.61, rel=0.05)


def plan_on(fabric, kind, n, payload):
    traffic = Traffic(RankLayout(dp=n), fabric, Network(simpy.Environment(), fabric, ()), {})
    return traffic.plan(operator(kind, n, payload), 0)


def operator(kind, n, payload, axis="dp"):
    return collective(kind, n, payload, axis=axis)


def test_one_send_takes_what_nccl_was_measured_at():
    # li-plus, cuda/nccl.md: sendrecv of 1 GiB between two A100 at 195.1 GB/s.
    assert 2**30 / collective_plan("a100", 2, 2.0**30, CollectiveKind.SEND).alone_s / 1e9 == pytest.approx(
        195.1, rel=0.03
    )


def test_longer_messages_take_thriftier_protocols():
    names = [collective_plan("a100", 8, nbytes).algorithm for nbytes in (1e4, 4e6, 1e9)]
    assert names == ["ring ll", "ring ll128", "ring simple"]
    adding = [collective_plan("h100", 8, nbytes).algorithm for nbytes in (4e6, 8e6, 3e7, 1e9)]
    assert adding == [f"in_network nvls-{chunk}k" for chunk in (16, 32, 64, 128)]
    assert collective_plan("a100", 16, 1e9).algorithm == "hierarchical simple pipelined"


def test_inside_a_node_a_library_sums_on_rings():
    """A tree of NCCL is a chain inside a node, of 2(n - 1) hops as a ring (src/graph/tuning.cc)."""
    hop_s = load_scale_up("nvlink3").latency_s
    start_s = min(one.start_s for one in load_scale_up("nvlink3").protocols)
    for n in (2, 4, 8):
        assert collective_plan("a100", n, 1.0).alone_s == pytest.approx(
            start_s + 2 * (n - 1) * hop_s, rel=1e-4
        )


def test_an_algorithm_that_is_forced_is_taken_where_there_is_one():
    assert collective_plan("h100", 8, 1e3, algorithm=Algorithm.IN_NETWORK).algorithm.startswith("in_network")
    assert collective_plan("h100", 8, 1e9, algorithm=Algorithm.RING).algorithm == "ring simple"
    assert collective_plan("a100", 8, 1e3, algorithm=Algorithm.IN_NETWORK).algorithm == "ring ll"


def test_two_ranks_gain_nothing_from_adders():
    assert collective_plan("h100", 2, 1e9).algorithm == "ring simple"


@settings(max_examples=60, deadline=None)
@given(
    gpu=st.sampled_from(["a100", "h100", "b200", "mi300x"]),
    n=st.sampled_from([2, 3, 4, 8, 16]),
    nbytes=st.floats(1.0, 1e11),
    kind=st.sampled_from(REDUCING),
)
def test_nothing_is_faster_than_its_ports(gpu, n, nbytes, kind):
    scale_up = load_scale_up(REFERENCE_SYSTEMS[gpu].scale_up)
    payload = nbytes / n if kind is CollectiveKind.ALL_GATHER else nbytes
    bound = in_network_bound_s if scale_up.adders else collective_bound_s
    least_s = bound(kind, n, payload, scale_up.bandwidth_bytes_per_s)
    assert collective_plan(gpu, n, nbytes, kind).alone_s >= least_s


@settings(max_examples=40, deadline=None)
@given(gpu=st.sampled_from(["a100", "h100"]), nbytes=st.floats(1.0, 1e10), more=st.floats(1.0, 10.0))
def test_more_bytes_never_take_less_time(gpu, nbytes, more):
    assert collective_plan(gpu, 8, nbytes * more).alone_s >= collective_plan(gpu, 8, nbytes).alone_s * (
        1 - 1e-12
    )


@pytest.mark.parametrize("nbytes", [1e4, 3e6, 1e9])
@pytest.mark.parametrize("kind", REDUCING)
def test_the_engine_takes_the_time_of_the_plan(nbytes, kind):
    fabric = RailFabric(endpoints=8, scale_up=load_scale_up("nvlink4"))
    task = Task(id=0, rank_class=0, operator=operator(kind, 8, nbytes))
    graph = StepGraph(tasks=(task,), layout=RankLayout(dp=8), tokens=1)
    memory = load_gpu("h100").memory
    node = Node(name="n", units=(Idle(),), memory=memory, peak_flop_per_s=1.0, static_parts_w={"idle": 0.0})
    simulation = Simulation(graph, node, fabric)
    assert simulation.run().makespan_s == pytest.approx(plan_on(fabric, kind, 8, nbytes).alone_s, rel=1e-9)


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("copy_bytes_per_s", 1e9),
        *((("protocols", index, name), value) for index in range(3) for name, value in [("start_s", 1e-9)]),
        (("protocols", 0, "efficiency"), 0.9),
        (("protocols", 2, "hop_s"), 1e-9),
        (("protocols", 2, "network_hop_s"), 1e-9),
        (("protocols", 2, "tree_hop_s"), 1e-9),
        (("protocols", 2, "network_efficiency"), 0.5),
        (("protocols", 0, "network_bytes_per_s"), 1e9),
        (("protocols", 1, "network_hop_s"), 1e-9),
        (("protocols", 2, "post_s"), 0.0),
        (("adders", -1, "tree_wait_s"), 0.0),
        (("adders", 0, "start_s"), 1e-9),
        (("adders", -1, "efficiency"), 0.4),
    ],
)
def test_no_knob_of_the_library_is_dead(part, changes):
    scale_up = load_scale_up("nvlink4")
    if isinstance(part, str):
        changed = replace(scale_up, **{part: changes})
    else:
        field, index, name = part
        items = list(getattr(scale_up, field))
        items[index] = replace(items[index], **{name: changes})
        changed = replace(scale_up, **{field: tuple(items)})

    def times(one):
        inside, outside = RailFabric(endpoints=8, scale_up=one), RailFabric(endpoints=16, scale_up=one)
        sizes = (1e3, 1e6, 1e7, 1e9)
        kinds = (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL)
        return [
            plan_on(fabric, kind, fabric.endpoints, nbytes).alone_s
            for fabric in (inside, outside)
            for nbytes in sizes
            for kind in kinds
        ]

    assert times(changed) != times(scale_up)


def test_every_gpu_has_a_domain():
    assert set(REFERENCE_SYSTEMS) == set(gpu_names())
    for name in gpu_names():
        assert load_scale_up(scale_up_name(name)).protocols


def test_few_volta_gpus_have_the_links_they_find():
    # vTrain's traces of a DGX-1: 22.5, 85 and 134 GB/s on 2, 4 and 8 GPUs.
    for n, rate in ((2, 22.5), (4, 85.2), (8, 134.4)):
        assert bus_gb_per_s("v100", n, 1e9) == pytest.approx(rate, rel=0.05)


def test_bad_protocols_and_kinds_are_refused():
    protocol = load_scale_up("nvlink3").protocols[0]
    with pytest.raises(ParameterError, match="efficiency"):
        replace(protocol, efficiency=1.5)
    with pytest.raises(ParameterError, match="start_s"):
        replace(protocol, start_s=-1.0)
    for name, kind in (("kind", CollectiveKind), ("algorithm", Algorithm), ("cards", Cards)):
        text = str(next(iter(kind)))
        with pytest.raises(ParameterError, match=f"{name} must be a {kind.__name__}.*{text}"):
            collective_plan("a100", 16, 1e6, **{name: text})


@pytest.mark.parametrize("kind", [CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER])
def test_gathers_over_nodes_take_every_hop_of_their_ring(kind):
    """NCCL gathers on rings through all n ranks: n - 1 hops, one of g between nodes (src/graph/tuning.cc)."""
    times = {n: collective_plan("a100", n, 1e3 * n, kind).alone_s for n in (64, 512)}
    least = min(one.hop_s for one in load_scale_up("nvlink3").protocols)
    assert (times[512] - times[64]) > (512 - 64) * 7 / 8 * least
    assert times[512] / times[64] == pytest.approx(8, rel=0.25)


def test_long_gathers_use_every_card_of_a_node():
    """One ring over each network card, hence a node's bytes are spread over all eight."""
    nbytes = 64e9
    fast, card = load_scale_up("nvlink3").bandwidth_bytes_per_s, 25e9
    two_levels = nbytes * 7 / 8 / fast + nbytes * 7 / 8 / 8 / card
    assert collective_plan("a100", 64, nbytes, CollectiveKind.ALL_GATHER).alone_s < 1.1 * two_levels


def test_cards_that_write_out_of_order_leave_the_simple_protocol():
    """EFA before P5 (aws/aws-ofi-nccl, issue 76): short messages wait, long ones are as quick."""
    kind = CollectiveKind.ALL_GATHER
    every, simple = (
        [collective_plan("a100", 16, size, kind, cards=cards) for size in (1e4, 1e9)]
        for cards in (Cards.HALF_EDR, Cards.EFA_HALF_EDR)
    )
    assert [one.algorithm for one in simple] == ["ring simple pipelined"] * 2
    assert simple[0].alone_s > 3 * every[0].alone_s
    assert simple[1].alone_s == pytest.approx(every[1].alone_s, rel=0.05)
