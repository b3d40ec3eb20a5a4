"""``heliograph network trace``, ``step --chakra`` and task graphs in ``validate network``."""

import json

import pytest

from experiments.__main__ import main
from experiments.validation.driver import validate
from tests.workloads.traces.test_task_graph import TASKS, graph_of
from workloads.traces import Attribute, Form, Node, NodeType, write_trace

STEP = ["--system", "gpu_packet", "--plan", "tp=2,dp=2,global_batch=4,sequence_length=1024", "--json"]


def test_traces_that_cannot_be_written_are_refused_before_the_step_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("experiments.hardware.one_step", lambda *_, **__: pytest.fail("it ran"))
    assert main(["step", *STEP, "--chakra", str(tmp_path / "missing" / "t")]) == 2
    assert "missing does not exist" in capsys.readouterr().err


def test_traces_may_begin_like_a_directory(tmp_path):
    (tmp_path / "llama").mkdir()
    words = ["step", "--system", "gpu_packet", "--model", "gpt2", "--plan", "dp=2,global_batch=2"]
    assert main([*words, "--chakra", str(tmp_path / "llama")]) == 0
    assert (tmp_path / "llama.0.et").is_file()


@pytest.mark.slow
def test_a_step_is_written_and_runs_on_another_system(tmp_path, capsys):
    alone = ["--set", "collective_share=0"]  # a trace has durations, whatever they hold
    assert main(["step", "--model", "llama-3-8b", *STEP, *alone, "--chakra", str(tmp_path / "t")]) == 0
    step = json.loads(capsys.readouterr().out)
    times = {}
    for system in ("gpu_packet", "gpu_ocs"):
        line = str(tmp_path / "line.json")
        assert (
            main(["network", "trace", str(tmp_path / "t"), "--system", system, "--json", "--trace", line])
            == 0
        )
        times[system] = json.loads(capsys.readouterr().out)
    assert times["gpu_packet"]["time_s"] == pytest.approx(step["step_time_s"], rel=1e-3)
    for record in times.values():
        assert sum(record["time_by_category_s"].values()) == pytest.approx(record["time_s"])
        assert sum(record["energy_by_component_j"].values()) == pytest.approx(record["energy_j"])
    assert main(["network", "trace", str(tmp_path), "--system", "gpu_packet", "--modelled"]) == 0
    assert "compute as modelled" in capsys.readouterr().out


def test_a_damaged_trace_is_one_sentence_and_exit_code_two(tmp_path, capsys):
    (tmp_path / "t.0.et").write_bytes(b"\x07\x0a\x050.0.4\x37\x08")
    assert main(["network", "trace", str(tmp_path / "t"), "--system", "gpu_packet"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("heliograph: t.0.et: byte 9: ")
    assert error.count("\n") == 1


def test_missing_nodes_are_one_line_and_no_failure_if_so_asked(tmp_path, capsys):
    write_trace(
        tmp_path / "t.0.et", [Node(id=1, name="x", type=NodeType.COMP, data_deps=(8,), duration_us=9)]
    )
    command = ["network", "trace", str(tmp_path / "t"), "--system", "gpu_packet"]
    assert main(command) == 2
    assert "--ignore-missing" in capsys.readouterr().err
    assert main([*command, "--ignore-missing"]) == 0
    error = capsys.readouterr().err
    assert (
        error == "heliograph: warning: t: dependencies that count as done, on nodes that the files lack: 1\n"
    )


def test_a_target_of_precision_is_refused_of_a_trace(tmp_path, capsys):
    """It tells no operands, so light stands as the system has it."""
    write_trace(tmp_path / "t.0.et", [Node(id=1, name="x", type=NodeType.COMP, duration_us=9)])
    command = ["network", "trace", str(tmp_path / "t"), "--system", "photonic_packet"]
    assert main([*command, "--precision-target", "int8"]) == 2
    assert "--precision-target (int8) is not used: a trace tells no operands" in capsys.readouterr().err
    drawn = []
    for power in ("20 mW", "200 mW"):
        assert main([*command, "--set", f"laser_power_w={power}", "--json", "--modelled"]) == 0
        drawn.append(json.loads(capsys.readouterr().out)["energy_j"])
    assert drawn[0] < drawn[1]


@pytest.mark.parametrize(
    ("setting", "options", "told"),
    [
        (
            "tdp_w=300",
            [],
            "changes nothing of this replay; its compute takes the time of the record (--modelled",
        ),
        ("nic.bandwidth_bytes_per_s=1e9", ["--modelled"], "changes nothing of this replay\n"),
        ("memory.bandwidth_bytes_per_s=1e12", ["--modelled"], ""),
    ],
)
def test_a_number_that_changes_nothing_of_a_replay_is_told(tmp_path, capsys, setting, options, told):
    work = {"num_ops": Attribute(Form.INT64, 10), "tensor_size": Attribute(Form.UINT64, 2**30)}
    write_trace(
        tmp_path / "t.0.et", [Node(id=1, name="x", type=NodeType.COMP, duration_us=9, attributes=work)]
    )
    command = ["network", "trace", str(tmp_path / "t"), "--system", "gpu_packet", *options]
    assert main([*command, "--set", setting]) == 0
    error = capsys.readouterr().err
    assert error.count("\n") == (1 if told else 0)
    assert told in error


def test_a_directory_of_task_graphs_is_judged_and_what_is_not_there_is_skipped(tmp_path):
    graph_of(tmp_path, TASKS).rename(tmp_path / "100dlrm_16.fbuf")
    outcomes = validate("network", data=tmp_path).outcomes
    assert len(outcomes) == 9
    assert {one.id.split()[0] for one in outcomes if one.skipped is None} == {"100dlrm_16.fbuf"}
    assert all("does not ship" in one.skipped for one in outcomes if one.skipped)
    assert all(one.predicted == pytest.approx(6.5e-3, rel=1e-2) for one in outcomes if one.predicted)


@pytest.mark.parametrize(
    ("links", "rate", "seconds"),
    [("switched", "100", 6.5e-3), ("direct", "100", 6.5e-3), ("direct", "50", 9.5e-3)],
)
def test_a_table_names_graph_links_and_rate(tmp_path, links, rate, seconds):
    graph_of(tmp_path, TASKS)
    table = tmp_path / "rows.csv"
    head = "system,metric,value,unit,task_graph,links,link_gbps,path_ns\n"
    table.write_text(f"{head}x,time,6.5,ms,tiny.fbuf,{links},{rate},0\n")
    (one,) = validate("network", data=table).outcomes
    assert one.predicted == pytest.approx(seconds, rel=1e-6)
    assert one.measured == pytest.approx(6.5e-3)
