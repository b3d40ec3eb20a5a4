"""Whole steps by ASTRA-sim's rules: exact where it ran, hung where it hangs, and what sets wires apart."""

import dataclasses
import math

import pytest

from experiments.validation import driver as command
from experiments.validation.driver import validate
from experiments.validation.peers.astra_sim import Dimension, Method, Run, Shape, Wires
from experiments.validation.peers.astra_sim_traces import Settings, finishing_ns, traces_record, traces_text
from simulator.errors import ParameterError, WorkloadError
from simulator.operators import CollectiveKind
from tests.workloads.traces.test_chakra_steps import coll, end, write
from workloads.traces import CommType, Node, NodeType
from workloads.traces.importing import rank_files

SWITCH = Settings(topology=Shape.SWITCH, gigabytes_per_s=50.0, latency_ns=500.0)
TRACES = command.REFERENCE / "traces"
HEAD = "trace,topology,backend,algo,splits,active,bw_GBps,lat_ns,endpoint_ns,cycles_ns\n"


def work(number, microseconds, *after):
    return Node(id=number, name="w", type=NodeType.COMP, duration_us=microseconds, data_deps=after)


@pytest.mark.parametrize("topology", list(Shape))
@pytest.mark.parametrize("kind", [CommType.ALL_REDUCE, CommType.REDUCE_SCATTER, CommType.ALL_GATHER])
def test_one_collective_takes_what_its_closed_form_says(tmp_path, topology, kind):
    """As a run of its own, held to runs of ASTRA-sim: messages of ranks that start together add up to it."""
    prefix = write(tmp_path, *([coll(kind=kind, size=1 << 20)] for _ in range(8)))
    settings = dataclasses.replace(SWITCH, topology=topology, splits=4)
    wires = Wires(shape=topology, ranks=8, gigabytes_per_s=50.0, latency_ns=500.0)
    run = Run(
        kind=CollectiveKind(kind.name.lower()),
        size_bytes=1 << 20,
        dimensions=(Dimension(wires=wires, method=Method.RING),),
        endpoint_ns=10,
        splits=4,
    )
    assert set(finishing_ns(prefix, settings)) == {round(run.simulated_s() * 1e9)}


def test_the_regression_that_it_ships_comes_out(tmp_path):
    """117 780 cycles (ASTRA-sim, tests/rt_template)."""
    prefix = write(tmp_path, *([coll()] for _ in range(8)))
    settings = dataclasses.replace(SWITCH, topology=Shape.RING, splits=4, memory_bytes_per_ns=50.0)
    assert finishing_ns(prefix, settings) == (117_780,) * 8


def test_a_late_rank_delays_the_others_one_after_another(tmp_path):
    """A ring is no barrier. Cycles of ranks 0 to 3 as ASTRA-sim (518bd513) itself gives them."""
    late = [work(0, 50), dataclasses.replace(coll(kind=CommType.ALL_GATHER), data_deps=(0,))]
    prompt = [coll(kind=CommType.ALL_GATHER)]
    prefix = write(tmp_path, late, prompt, prompt, prompt)
    assert finishing_ns(prefix, SWITCH) == (61_633, 70_571, 91_102, 111_633)


def test_one_transfer_at_a_time_waits_and_two_groups_in_two_orders_wait_for_ever(tmp_path):
    """ASTRA-sim holds one collective or send of a rank: 45 082 cycles; where orders differ no rank ends."""
    both = [coll(group="1", number=1), coll(group="2", number=2)]
    (tmp_path / "t.comm_groups.json").write_text('{"1": [0, 1], "2": [1, 0]}')
    prefix = write(tmp_path, both, both)
    beside = dataclasses.replace(SWITCH, one_at_a_time=False)
    assert finishing_ns(prefix, SWITCH) == (45_082, 45_082)
    assert finishing_ns(prefix, beside) == (22_541, 22_541)
    swapped = [coll(group="2", number=1), coll(group="1", number=2)]
    prefix = write(tmp_path, both, swapped)
    assert finishing_ns(prefix, beside)[0] > 0
    with pytest.raises(WorkloadError, match="rank 0 waits for ever at node 1"):
        finishing_ns(prefix, SWITCH)


def test_receives_wait_beside_other_transfers(tmp_path):
    """1000 bytes over two links of 500 ns at 53.687 bytes a nanosecond: 1018 ns after the sender."""
    first = [work(0, 7), dataclasses.replace(end(NodeType.COMM_SEND, 1), data_deps=(0,))]
    second = [end(NodeType.COMM_RECV, 0), coll(kind=CommType.BROADCAST, number=2)]
    assert finishing_ns(write(tmp_path, first, second), SWITCH) == (8_018, 8_018)


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        (coll(kind=CommType.BARRIER), "comm_coll of this kind, which it does not run"),
        (Node(id=1, name="m", type=NodeType.MEM_LOAD), "mem_load of this kind"),
        (end(NodeType.COMM_SEND, 1, size=0), "is of 0 bytes"),
        (coll(group="7"), "of group '7', which does not hold this rank"),
    ],
)
def test_what_it_does_not_run_is_one_sentence(tmp_path, node, sentence):
    with pytest.raises(WorkloadError, match="rank 0: byte") as caught:
        finishing_ns(write(tmp_path, [node], [node]), SWITCH)
    assert sentence in str(caught.value)


@pytest.mark.slow
def test_two_of_its_rules_explain_what_sets_it_apart_from_shared_wires():
    """With groups side by side and sums that take no time its rings, whose messages never meet, take what our
    replay takes on wires that are shared: within 1 % where an all-to-all does not go round a ring, and where
    chunks that take turns do not add latency (one split)."""
    found = traces_record()
    assert {one["trace"] for one in found} == {path.name.split(".")[0] for path in TRACES.glob("*.0.et.gz")}
    for one in found:
        assert one["simulated_s"] >= one["groups_beside_each_other_s"] >= one["and_sums_at_once_s"]
        if one["splits"] == 1 and "ep" not in one["trace"]:
            assert one["and_sums_at_once_s"] == pytest.approx(one["shared_wires_s"], rel=1e-2)
    around = {one["trace"]: one["and_sums_at_once_s"] / one["shared_wires_s"] for one in found}
    assert around["ep8"] > 1.05
    assert max(one["simulated_s"] / one["groups_beside_each_other_s"] for one in found) > 1.3
    text, columns = traces_text(found), ("simulated_s", "shared_wires_s")
    assert all(f"{one[name] * 1e3:.2f}" in text for one in found for name in columns)


def test_shipped_traces_are_whole():
    for path in TRACES.glob("*.0.et.gz"):
        name = path.name.split(".")[0]
        assert len(rank_files(TRACES / name)) in {4, 8}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("t,Ring,aware,ring,1,1,50,500,10,9", "messages never meet"),
        ("t,Torus,unaware,ring,1,1,50,500,10,9", "on 'Torus'"),
        ("t,Ring,unaware,ring,4,2,50,500,10,9", "overlap"),
        ("t,Ring,unaware,ring,4,1,50,,10,9", "no lat_ns"),
        ("lost,Ring,unaware,ring,4,1,50,500,10,9", "no files PREFIX"),
    ],
)
def test_a_row_that_cannot_be_repeated_says_why(tmp_path, line, reason):
    write(tmp_path, [coll()], [coll()])
    path = tmp_path / "rows.csv"
    path.write_text(HEAD + line + "\n", encoding="utf-8")
    (one,) = validate("network", data=path).outcomes
    assert reason in one.skipped
    path.write_text(HEAD + line.replace("50,", "-1,") + "\n", encoding="utf-8")
    if "lost" in line:
        with pytest.raises(ParameterError, match="bw_GBps"):
            validate("network", data=path)


def test_memory_without_limit_sums_at_once():
    assert dataclasses.replace(SWITCH, memory_bytes_per_ns=math.inf).endpoint.summed_ns(1 << 30) == 0
