"""Steps as Chakra traces and back: the same time on every system, and traces that do not fit together."""

import json
from dataclasses import replace

import numpy as np
import pytest

import heliograph as hg
from electronic.fabrics.packets import Wires
from electronic.gpu import alignment_share, load_gpu
from experiments.network.flows import replay
from experiments.validation.peers.astra_sim import Dimension, Method, Run, Shape
from experiments.validation.peers.astra_sim import Wires as SimulatedWires
from heliograph.systems import build_system
from simulator.amounts import Matrices
from simulator.engine.replay import Clockwork, Replay, Together, as_recorded
from simulator.engine.simulation import Simulation
from simulator.errors import IncompleteWarning, ParameterError, WorkloadError
from simulator.operators import Elementwise, Held, MatMul, Phase
from workloads.models.config import load_model
from workloads.plan.plan import parse_plan
from workloads.step.step import build_step
from workloads.traces import (
    Attribute,
    CommType,
    Compute,
    Form,
    Node,
    NodeType,
    export_step,
    import_trace,
    read_trace,
    write_trace,
)
from workloads.traces.exporting import OPERATORS, numbered
from workloads.traces.importing import operator_of
from workloads.traces.nodes import operators_text, read_operators

PLANS = (
    "tp=2,pp=2,dp=2,global_batch=4,sequence_length=1024",
    "dp=4,global_batch=4,sequence_length=1024,zero=3",
    "tp=2,cp=2,dp=2,global_batch=4,sequence_length=1024,zero=0,overlap_tensor=true",
    "tp=2,pp=2,dp=1,global_batch=4,sequence_length=1024,schedule=zb_v",
)


def step(text):
    plan = parse_plan(text)
    return build_step(load_model("llama-3-8b"), plan), plan.axes.ranks


def coll(kind=CommType.ALL_REDUCE, size=1 << 20, group="", number=1):
    attributes = {
        "is_cpu_op": Attribute(Form.BOOL, value=False),
        "comm_type": Attribute(Form.INT64, int(kind)),
        "comm_size": Attribute(Form.INT64, size),
    }
    if group:
        attributes["pg_name"] = Attribute(Form.STRING, group)
    return Node(id=number, name="c", type=NodeType.COMM_COLL, attributes=attributes)


def end(kind, other, size=1000, tag=0, number=1):
    key = "comm_dst" if kind is NodeType.COMM_SEND else "comm_src"
    attributes = {
        "comm_size": Attribute(Form.INT64, size),
        key: Attribute(Form.INT32, other),
        "comm_tag": Attribute(Form.INT32, tag),
    }
    return Node(id=number, name="p", type=kind, attributes=attributes)


def write(folder, *ranks):
    for rank, nodes in enumerate(ranks):
        write_trace(folder / f"t.{rank}.et", nodes)
    return folder / "t"


@pytest.mark.slow
@pytest.mark.parametrize("text", PLANS)
@pytest.mark.parametrize("name", ["gpu_packet", "photonic_packet"])
def test_a_step_takes_the_same_time_as_a_trace(tmp_path, text, name):
    """To rounding, where the engine runs operators one by one, as a trace must, and launches do not bind:
    a trace says when each operator of a run ended, and not that the run waits for the host as a whole."""
    graph, ranks = step(text)
    system = build_system(name, accelerators=ranks, assignments=["host_operator_s=0us"])
    node = replace(system.node(), collective_share=0.0)  # a trace has durations, whatever they hold
    expected = Simulation(graph, node, system.fabric, fuse=False).run().makespan_s
    export_step(graph, node, tmp_path / "t")
    found = Replay(import_trace(tmp_path / "t"), as_recorded(node), system.fabric).run()
    assert found.makespan_s == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    "text",
    [
        "tp=8,pp=2,dp=1,global_batch=2,sequence_length=512",
        "tp=8,dp=2,global_batch=2,sequence_length=512,zero=1",
        "tp=4,pp=2,dp=2,global_batch=4,sequence_length=512,zero=1",
    ],
)
def test_circuits_serve_a_trace_as_they_serve_the_step(tmp_path, text):
    """Groups as far apart are one axis: circuits laid for it carry all, and none turn for a group alone."""
    plan = parse_plan(text)
    graph = build_step(replace(load_model("llama-3-8b"), layers=2), plan)
    system = build_system("gpu_ocs", accelerators=plan.axes.ranks)
    expected = Simulation(graph, system.node(), system.fabric, fuse=False).run()
    export_step(graph, system.node(), tmp_path / "t")
    found = Replay(import_trace(tmp_path / "t"), as_recorded(system.node()), system.fabric).run()
    assert found.makespan_s == pytest.approx(expected.makespan_s, rel=1e-9)
    assert found.reconfigurations == expected.reconfigurations


def test_a_trace_carries_the_bytes_of_the_step(tmp_path):
    graph, ranks = step(PLANS[0])
    system = build_system("gpu_packet", accelerators=ranks)
    moved = sum(Simulation(graph, system.node(), system.fabric).run().network_bytes.values())
    export_step(graph, system.node(), tmp_path / "t")
    trace = Replay(import_trace(tmp_path / "t"), Clockwork(), system.fabric).run()
    assert sum(trace.network_bytes.values()) == pytest.approx(moved, rel=1e-6)


def test_files_are_what_astra_sim_reads(tmp_path):
    """Types of attributes as ASTRA-sim's feeder asks for them; groups from 1; pairs of equal tags."""
    graph, ranks = step(PLANS[0])
    written = export_step(graph, build_system("gpu_packet", accelerators=ranks).node(), tmp_path / "t")
    assert [path.name for path in written] == [*(f"t.{rank}.et" for rank in range(8)), "t.comm_groups.json"]
    groups = json.loads(written[-1].read_text())
    assert "0" not in groups
    assert all(isinstance(rank, int) for members in groups.values() for rank in members)
    forms = {
        "num_ops": Form.INT64,
        "tensor_size": Form.UINT64,
        "comm_type": Form.INT64,
        "comm_size": Form.INT64,
    }
    forms |= {"comm_src": Form.INT32, "comm_dst": Form.INT32, "comm_tag": Form.INT32, "pg_name": Form.STRING}
    sent, received, whole_us, exact_s = set(), set(), 0, 0.0
    for rank, path in enumerate(written[:-1]):
        seen = set()
        for node in read_trace(path):
            assert seen.issuperset(node.data_deps + node.ctrl_deps)
            seen.add(node.id)
            assert all(
                node.attributes[key].form is form for key, form in forms.items() if key in node.attributes
            )
            if node.type is NodeType.COMM_COLL:
                assert rank in groups[node.get("pg_name")]
            if node.type in {NodeType.COMM_SEND, NodeType.COMM_RECV}:
                ends = tuple(node.whole(key) for key in ("comm_src", "comm_dst", "comm_tag", "comm_size"))
                (sent if node.type is NodeType.COMM_SEND else received).add(ends)
            if node.type is NodeType.COMP and not node.whole("is_cpu_op") and rank == 0:
                whole_us, exact_s = whole_us + node.duration_us, exact_s + node.get("duration_s")
    assert sent == received
    assert sent
    assert whole_us * 1e-6 == pytest.approx(exact_s, abs=0.6e-6)


def test_thousands_of_groups_keep_tags_apart():
    """ASTRA-sim, CommunicatorGroup.cc and Sys.cc: streams of group g count from g * 10^6 in 32 bits, and
    tags are what is left of them over 5 * 10^8; two groups of a rank must differ in them."""
    rows = np.arange(16_384).reshape(8, 64, 32)
    axes = [
        rows.reshape(-1, 32),
        rows.transpose(0, 2, 1).reshape(-1, 64),
        rows.transpose(1, 2, 0).reshape(-1, 8),
    ]
    groups = [tuple(map(int, row)) for axis in axes for row in axis]
    found = numbered(groups)
    assert len(found.numbers) == 512 + 256 + 2048
    assert max(found.numbers.values()) * 10**6 < 2**31
    tags = [[] for _ in range(16_384)]
    for group, number in found.numbers.items():
        for rank in group:
            tags[rank].append((number + 1) * 10**6 % (5 * 10**8))
    assert all(len(set(own)) == 3 and 0 not in own for own in tags)
    assert found.file() == {}
    few = numbered(groups[:400])
    assert sorted(few.file(), key=int) == [str(one + 1) for one in range(400)]


@pytest.mark.slow
def test_groups_that_share_numbers_come_back_from_the_traces(tmp_path, monkeypatch):
    """With more groups than numbers every trace names its own, and runs as long as with a file."""
    graph, ranks = step(PLANS[2])
    system = build_system("gpu_packet", accelerators=ranks)
    graphs = []
    for most in (498, 5):
        monkeypatch.setattr("workloads.traces.exporting.MOST", most)
        files = export_step(graph, system.node(), tmp_path / "t")
        graphs.append(import_trace(tmp_path / "t"))
        first = next(read_trace(files[0]))
        assert (json.loads(files[-1].read_text()) == {}) == (first.type is NodeType.METADATA) == (most == 5)
    groups = [
        [one.operation.groups for one in found.tasks if isinstance(one.operation, Together)]
        for found in graphs
    ]
    assert groups[0] == groups[1]
    times = [Replay(found, as_recorded(system.node()), system.fabric).run().makespan_s for found in graphs]
    assert times[0] == times[1]
    monkeypatch.setattr("workloads.traces.exporting.MOST", 2)
    with pytest.raises(WorkloadError, match="in 3 process groups"):
        export_step(graph, system.node(), tmp_path / "t")


@pytest.mark.slow
def test_one_node_for_each_operator_takes_as_long_and_has_more_nodes(tmp_path):
    graph, ranks = step(PLANS[0])
    system = build_system("gpu_packet", accelerators=ranks)
    times, counts = [], []
    for kernels in (False, True):
        export_step(graph, system.node(), tmp_path / f"t{kernels}", kernels=kernels)
        trace = import_trace(tmp_path / f"t{kernels}")
        counts.append(len(trace.tasks))
        times.append(Replay(trace, Clockwork(), system.fabric).run().makespan_s)
    assert counts[1] > 2 * counts[0]
    assert times[1] == pytest.approx(times[0], rel=1e-9)


def test_the_shipped_regression_of_astra_sim_follows_from_its_trace(tmp_path):
    """117 780 cycles: all-reduce of 1 MiB on a ring of 8 at 50 GB/s, 500 ns, 4 splits, 50 B/ns of memory
    (ASTRA-sim, tests/rt_template)."""
    graph = import_trace(write(tmp_path, *([coll()] for _ in range(8))))
    (task,) = graph.tasks
    assert task.operation.groups == (tuple(range(8)),)
    ring = SimulatedWires(shape=Shape.RING, ranks=len(task.classes), gigabytes_per_s=50.0, latency_ns=500.0)
    run = Run(
        kind=task.operation.kind,
        size_bytes=round(task.operation.payload_bytes),
        dimensions=(Dimension(wires=ring, method=Method.RING),),
        endpoint_ns=10,
        splits=4,
        memory_gb_per_s=50.0,
    )
    assert run.simulated_s() == pytest.approx(117_780e-9, rel=1e-12)
    wires = Wires(endpoints=8, link_bytes_per_s=50e9, latency_s=500e-9)
    assert Replay(graph, Clockwork(), wires).run().makespan_s >= 2 * 7 / 8 * 2**20 / 50e9


def test_groups_come_from_the_file_the_metadata_or_all_ranks(tmp_path):
    metadata = Node(
        id=9, name="pg", type=NodeType.METADATA, inputs=('[\'[{"pg_name": "7", "ranks": [2, 0]}]\']', "", "")
    )
    prefix = write(tmp_path, [metadata, coll(group="7")], [coll(group="3")], [coll(group="7")])
    (tmp_path / "t.comm_groups.json").write_text('{"3": [1]}')
    found = {task.operation.groups for task in import_trace(prefix).tasks if task.name == "c"}
    assert found == {((2, 0),), ((1,),)}
    assert import_trace(tmp_path).ranks == 3


@pytest.mark.parametrize(
    ("ranks", "sentence"),
    [
        ([[coll()], [coll(number=1), coll(number=2)]], "is never joined by rank 0 of group ''"),
        ([[coll()], [coll(size=5)]], "has comm_size 5, and t.0.et: byte 9"),
        ([[coll(kind=12)], [coll(kind=12)]], "is a collective 12, which is not known"),
        ([[coll(group="5")]], "is of group '5', which is not known"),
        ([[end(NodeType.COMM_SEND, 1)], [coll(group="0")]], "never"),
        (
            [[end(NodeType.COMM_SEND, 1)], [end(NodeType.COMM_RECV, 0, size=7)]],
            "sends 1000 bytes, and t.1",
        ),
        ([[end(NodeType.COMM_SEND, 1)], [end(NodeType.COMM_RECV, 0, tag=7)]], "is never received by rank 1"),
        (
            [[Node(id=1, name="x", type=NodeType.COMP, data_deps=(8,))]],
            "waits for node 8, which the file",
        ),
        ([[Node(id=1, name="x", type=NodeType.COMP)] * 2], "has the number of an earlier node"),
    ],
)
def test_traces_that_do_not_fit_together_are_one_sentence(tmp_path, ranks, sentence):
    with pytest.raises(WorkloadError, match="byte") as caught:
        import_trace(write(tmp_path, *ranks))
    assert sentence in str(caught.value)


def test_missing_dependencies_count_as_done_with_one_warning(tmp_path):
    """As in a trace that begins in the middle of a run: what is there keeps its order."""
    first = Node(id=1, name="x", type=NodeType.COMP, data_deps=(8, 9), duration_us=2000)
    second = Node(id=2, name="y", type=NodeType.COMP, data_deps=(1,), ctrl_deps=(7,), duration_us=3000)
    prefix = write(tmp_path, [first, second])
    with pytest.warns(IncompleteWarning, match="lack: 3") as caught:
        graph = import_trace(prefix, ignore_missing=True)
    assert len(caught) == 1
    assert {task.name: task.after for task in graph.tasks} == {"x": (), "y": (1,)}


def test_a_missing_rank_and_two_runs_in_a_directory_are_named(tmp_path):
    write_trace(tmp_path / "t.2.et", [])
    with pytest.raises(ParameterError, match=r"t\.0\.et is not there"):
        import_trace(tmp_path / "t")
    write_trace(tmp_path / "u.0.et", [])
    profile = tmp_path / "profile.json"
    profile.write_text('{"traceEvents": []}')
    with pytest.raises(ParameterError, match=r"profile.json: is JSON, .*chakra_converter"):
        import_trace(profile)
    with pytest.raises(ParameterError, match="holds traces of t, u"):
        import_trace(tmp_path)


def test_a_send_takes_both_ends_and_a_barrier_waits_for_all(tmp_path):
    slow = Node(id=0, name="w", type=NodeType.COMP, duration_us=2000)
    barrier = coll(kind=CommType.BARRIER, number=5)
    graph = import_trace(
        write(tmp_path, [slow, end(NodeType.COMM_SEND, 1), barrier], [end(NodeType.COMM_RECV, 0), barrier])
    )
    wires = Wires(endpoints=2, link_bytes_per_s=1e6, latency_s=0.0)
    assert Replay(graph, Clockwork(), wires).run().makespan_s == pytest.approx(2e-3)
    assert next(task for task in graph.tasks if task.name == "c").operation.payload_bytes == 0.0


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        (CommType.GATHER, 3e-3),
        (CommType.SCATTER, 0.75e-3),
        (CommType.BROADCAST, 1e-3),
        (CommType.REDUCE, 1e-3),
    ],
)
def test_rooted_collectives_are_bound_by_the_root_s_port(tmp_path, kind, seconds):
    """Four ranks, a thousand bytes at 1 MB/s: three reach the root, three quarters leave it."""
    graph = import_trace(write(tmp_path, *([coll(kind=kind, size=1000)] for _ in range(4))))
    wires = Wires(endpoints=4, link_bytes_per_s=1e6, latency_s=0.0)
    found = Replay(graph, Clockwork(), wires).run().makespan_s
    if kind in {CommType.GATHER, CommType.SCATTER}:
        assert found == pytest.approx(seconds, rel=1e-9)
    else:
        assert found >= seconds * (1 - 1e-9)


def node_of(operations, size):
    attributes = {"num_ops": Attribute(Form.INT64, operations), "tensor_size": Attribute(Form.UINT64, size)}
    return Node(id=1, name="w", type=NodeType.COMP, attributes=attributes, duration_us=5)


@pytest.mark.parametrize("shape", [(16, 4096), (256, 1024), (4096, 4096)])
def test_a_product_s_shape_comes_back_from_its_operations_and_bytes(shape):
    rows, side = shape
    found = operator_of(node_of(2 * rows * side**2, 2 * (side**2 + 2 * rows * side)))
    assert isinstance(found, MatMul)
    assert (found.m, found.k, found.n) == (rows, side, side)


@pytest.mark.parametrize(("rows", "side"), [(2048, 5418), (1956, 5544), (100, 3000), (3, 700)])
def test_odd_sides_are_whole_tiles_of_nearly_as_much_work(rows, side):
    """A GPU halves the rate of rows that are no multiple of 16 bytes, which no trained model has."""
    operations = 2 * rows * side**2
    found = operator_of(node_of(operations, 2 * (side**2 + 2 * rows * side)))
    assert found.k % 64 == found.n % 64 == 0
    assert found.m % 8 == 0 or found.m < 64
    assert found.flops == pytest.approx(operations, rel=1 / 16)
    assert alignment_share(load_gpu("h100"), replace(found, held=Held.B)) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "told", "most"),
    [
        ("gpu_packet", True, 1e-3),
        ("gpu_packet:fp8", True, 1e-3),
        ("photonic_packet", True, 1e-3),
        ("gpu_packet", False, 0.05),
        ("photonic_packet", False, 0.05),
    ],
)
def test_modelled_compute_of_a_step_s_own_trace_takes_the_step_s_time_and_energy(tmp_path, name, told, most):
    """On GPUs as in light; kernel by kernel also where only operations and bytes are told, as by others."""
    system = hg.system(name, accelerators=8).with_(penalties="none")
    system = system.with_({"lighting.target": "none"}) if system.photonic else system
    result = hg.simulate(system, "llama-3-8b", "tp=2,pp=2,dp=2,global_batch=8,sequence_length=2048")
    files = export_step(result.graph, system.node(), tmp_path / "t", kernels=not told)
    for file in () if told else files[:-1]:
        nodes = [
            replace(one, attributes={k: v for k, v in one.attributes.items() if k != OPERATORS})
            for one in read_trace(file)
        ]
        write_trace(file, nodes)
    found = replay(import_trace(tmp_path / "t", compute=Compute.MODELLED), system, Compute.MODELLED).record()
    assert found["time_s"] == pytest.approx(result.step_time_s, rel=most)
    assert found["energy_j"] == pytest.approx(result.energy_j, rel=most)


def test_operators_of_a_run_come_back_from_their_text():
    run = (
        (MatMul(name="a", phase=Phase.GRAD_WEIGHT, batch=2, m=3, k=4, n=5, held=Held.B), 7),
        (MatMul(name="b", phase=Phase.FORWARD, batch=1, m=1, k=1, n=1, on_chip=Matrices.A | Matrices.C), 1),
        (
            Elementwise(
                name="c", phase=Phase.UPDATE, flops=0.5, read_bytes=1.0, written_bytes=2.0, kernels=3
            ),
            2,
        ),
    )
    assert read_operators(operators_text(run)) == run


@pytest.mark.parametrize(
    "text", ["[", "7", '[[1,"sum",{}]]', '[[1,"product",{"m":4}]]', '[[1,"other",{"x":1}]]']
)
def test_operators_that_cannot_be_read_are_refused_with_their_node(tmp_path, text):
    node = node_of(1000, 4000)
    node = replace(node, attributes={**node.attributes, OPERATORS: Attribute(Form.STRING, text)})
    with pytest.raises(WorkloadError, match=r"t\.0\.et: byte \d+: node 1 'w': its operators cannot be read"):
        import_trace(write(tmp_path, [node]), compute=Compute.MODELLED)


def test_little_arithmetic_is_no_product_and_much_is_a_cube():
    assert isinstance(operator_of(node_of(1000, 4000)), Elementwise)
    cube = operator_of(node_of(2 * 512**3, 1000))
    assert (cube.m, cube.k, cube.n) == (512, 512, 512)


def test_modelled_compute_asks_the_accelerator_and_recorded_the_record(tmp_path):
    prefix = write(tmp_path, [node_of(2 * 4096**3, 6 * 4096**2)])
    system = build_system("gpu_packet", accelerators=1)
    recorded, modelled = (
        Replay(import_trace(prefix, compute=one), as_recorded(system.node()), system.fabric).run().makespan_s
        for one in (Compute.RECORDED, Compute.MODELLED)
    )
    assert recorded == pytest.approx(5e-6)
    product = operator_of(node_of(2 * 4096**3, 6 * 4096**2))
    assert modelled == pytest.approx(system.node().cost(product).time_s)


def test_what_a_trace_cannot_say_is_refused(tmp_path):
    plan = parse_plan("dp=4,global_batch=4,exchange=parameter_server")
    graph = build_step(load_model("llama-3-8b"), plan)
    with pytest.raises(WorkloadError, match="Chakra trace cannot say"):
        export_step(graph, build_system("gpu_packet", accelerators=4).node(), tmp_path / "t")


def test_kinds_are_those_of_the_schema():
    """et_def.proto, CollectiveCommType and NodeType."""
    assert [one.name for one in CommType][:8:2] == ["ALL_REDUCE", "ALL_GATHER", "SCATTER", "ALL_TO_ALL"]
    assert (CommType.REDUCE_SCATTER, CommType.BARRIER, NodeType.COMP, NodeType.COMM_COLL) == (7, 9, 4, 7)
