"""TopoOpt's task graphs: a small one built by hand, what it means, and what damage is answered with."""

import sys

import flatbuffers
import pytest

from electronic.fabrics.packets import Wires
from experiments.validation.network import outcomes
from experiments.validation.rows import Record
from simulator.engine.replay import Clockwork, Replay
from simulator.errors import HeliographError, WorkloadError
from workloads.traces.task_graph import TaskType, rank_graph, read_task_graph


class Graph:
    """A file of the schema's tables, written with the format's own library."""

    def __init__(self):
        self.builder = flatbuffers.Builder()

    def table(self, **fields):
        """Return a table of fields such as f0=("Int16", 7), by number; "UOffsetTRelative" is a reference."""
        self.builder.StartObject(1 + max(int(name[1:]) for name in fields))
        for name, (form, value) in fields.items():
            getattr(self.builder, f"Prepend{form}Slot")(int(name[1:]), value, 0)
        return self.builder.EndObject()

    def vector(self, form, values):
        self.builder.StartVector(8 if form == "Uint64" else 4, len(values), 8)
        for value in reversed(values):
            getattr(self.builder, f"Prepend{form}")(value)
        return self.builder.EndVector()

    def task(self, kind, number, device, run, size, following):  # noqa: PLR0917
        following = self.vector("Uint64", following)
        return self.table(
            f0=("Int16", kind),
            f1=("Uint64", number),
            f2=("Uint64", device),
            f3=("Float32", run),
            f4=("Uint64", size),
            f5=("UOffsetTRelative", following),
        )

    def device(self, kind, number, node=0, place=0):
        return self.table(
            f0=("Int16", kind), f1=("Uint64", number), f2=("Uint64", node), f3=("Uint64", place)
        )


def graph_of(tmp_path, tasks, devices=None, nodes=2, switches=1):
    """Write a graph of two GPUs (devices 1 and 2) and the way from node 0 to 1 (device 3)."""
    build = Graph()
    made = devices or [(0, 1, 0, 0), (0, 2, 1, 1), (14, 3, 2**64 - 1, 0 * (nodes + switches) + 1)]
    told = build.vector("UOffsetTRelative", [build.task(*one) for one in tasks])
    device = build.vector("UOffsetTRelative", [build.device(*one) for one in made])
    root = build.table(
        f1=("Uint32", nodes),
        f2=("Uint32", switches),
        f5=("Float32", 12500000.0),
        f8=("UOffsetTRelative", told),
        f9=("UOffsetTRelative", device),
    )
    build.builder.Finish(root)
    path = tmp_path / "tiny.fbuf"
    path.write_bytes(build.builder.Output())
    return path


TASKS = [
    (TaskType.FORWARD, 100, 1, 2.0, 0, (200,)),
    (TaskType.NOMINAL_COMM, 200, 3, 9.9, 12_500_000, (300,)),
    (TaskType.BACKWARD, 300, 2, 1.0, 0, (400,)),
    (TaskType.ALLREDUCE, 400, 0, 0.5, 25_000_000, (0, 1)),
]
"""2 ms on node 0, 12.5 MB to node 1, 1 ms there, then 0.5 ms and an all-reduce of 25 MB."""


def replayed(path, latency_s=0.0):
    graph = read_task_graph(path)
    wires = Wires(endpoints=graph.nodes, link_bytes_per_s=graph.link_bytes_per_s, latency_s=latency_s)
    return Replay(rank_graph(graph), Clockwork(), wires).run()


def test_a_graph_by_hand_is_read_field_for_field(tmp_path):
    graph = read_task_graph(graph_of(tmp_path, TASKS))
    assert (graph.nodes, graph.switches, graph.link_bytes_per_s) == (2, 1, 12.5e9)
    assert [task.id for task in graph.tasks] == [100, 200, 300, 400]
    assert graph.tasks[1].size_bytes == 12_500_000
    assert graph.tasks[3].following == (0, 1)
    assert graph.tasks[0].run_time_s == pytest.approx(2e-3)


def test_a_chain_takes_the_sum_of_its_parts(tmp_path):
    """2 + 12.5 MB / 12.5 GB/s + 1 + 0.5 ms, two rounds of 12.5 MB; a transfer's own record is not used."""
    trace = replayed(graph_of(tmp_path, TASKS), latency_s=1e-6)
    assert trace.makespan_s == pytest.approx(2e-3 + 1e-3 + 1e-6 + 1e-3 + 0.5e-3 + 2 * (1e-3 + 1e-6), rel=1e-6)


def test_a_device_does_one_task_at_a_time_and_links_many(tmp_path):
    works = [(TaskType.FORWARD, 100 + one, 1, 1.0, 0, ()) for one in range(3)]
    sends = [(TaskType.NOMINAL_COMM, 200 + one, 3, 0.0, 12_500_000, ()) for one in range(3)]
    assert replayed(graph_of(tmp_path, works)).makespan_s == pytest.approx(3e-3, rel=1e-6)
    assert replayed(graph_of(tmp_path, sends)).makespan_s == pytest.approx(3e-3, rel=1e-6)
    assert replayed(graph_of(tmp_path, works + sends)).makespan_s == pytest.approx(3e-3, rel=1e-6)


@pytest.mark.parametrize(
    ("tasks", "sentence"),
    [
        ([(TaskType.FORWARD, 1, 9, 1.0, 0, ())], "task 1 .forward. is on device 9, which the file lacks"),
        ([(TaskType.FORWARD, 1, 3, 1.0, 0, ())], "on a device of type nominal_network, which cannot do it"),
        ([(TaskType.FORWARD, 1, 1, 1.0, 0, (5,))], "followed by task 5, which the file lacks"),
        ([(77, 1, 1, 1.0, 0, ())], "tiny.fbuf: not a task graph: byte [0-9]+: there is no TaskType 77; copy"),
    ],
)
def test_what_does_not_fit_together_is_one_sentence(tmp_path, tasks, sentence):
    with pytest.raises(WorkloadError, match=sentence):
        replayed(graph_of(tmp_path, tasks))


def test_no_truncated_graph_leaves_a_traceback(tmp_path):
    path = graph_of(tmp_path, TASKS)
    whole = path.read_bytes()
    for length in range(0, len(whole) - 8):
        path.write_bytes(whole[:length])
        with pytest.raises(
            WorkloadError, match=r"tiny\.fbuf: not a task graph: .* buffer of at least \d+ bytes"
        ):
            read_task_graph(path)


def test_any_byte_may_be_wrong_without_a_traceback(tmp_path):
    path = graph_of(tmp_path, TASKS)
    whole = path.read_bytes()
    refused = []
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
        try:
            rank_graph(read_task_graph(path))
        except WorkloadError as error:
            refused.append(str(error))
    assert len(refused) > len(whole) / 4
    assert all("tiny.fbuf" in sentence for sentence in refused)


def test_where_flatbuffers_is_missing_one_sentence_says_what_to_install(tmp_path, monkeypatch):
    path = graph_of(tmp_path, TASKS)
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    with pytest.raises(HeliographError, match=r"pip install 'heliograph\[task_graphs\]'"):
        read_task_graph(path)


def test_a_row_s_transport_shares_links_by_age_alike_or_is_no_transport(tmp_path):
    """A transfer beside all-reduces whose rounds open new connections ends later than if all shared alike."""
    sends = [
        (TaskType.NOMINAL_COMM, 200, 3, 0.0, 12_000_000, (300,)),
        (TaskType.BACKWARD, 300, 2, 1.0, 0, ()),
    ]
    sums = [(TaskType.ALLREDUCE, 400 + one, 0, 0.0, 16_000_000, (0, 1)) for one in range(4)]
    path = graph_of(tmp_path, sends + sums)
    found = {}
    for transport in ("", "fair", "dctcp-flexnet", "tahoe"):
        cells = {"task_graph": str(path), "value": "1", "unit": "ms", "links": "switched", "link_gbps": "100"}
        row = Record("rows.csv:2", {**cells, "path_ns": "1000", "transport": transport})
        (found[transport],) = outcomes(row)
    assert found[""].predicted == found["dctcp-flexnet"].predicted > 1.05 * found["fair"].predicted
    assert "if all shared alike" in found[""].hint
    assert "has no device 'tahoe'" in found["tahoe"].skipped
