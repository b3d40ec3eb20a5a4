"""Waste of failed nodes: hand-counted cases, the published order, and traces."""

import json
import math

import numpy as np
import pytest

from experiments.__main__ import main
from experiments.cost.goodput import placed_share
from experiments.cost.stranded import Cluster, Faults, random_faults, read_events, read_faults, wasted
from experiments.validation.driver import validate
from experiments.validation.network_failures import failure_statistics
from simulator.errors import ParameterError
from simulator.fabric import Splicing
from simulator.goodput import cubes, domains, load_hosts, ring, stranded_share
from simulator.topology.torus import CubeMachine


def works(count, *failed):
    found = np.ones(count, dtype=bool)
    found[list(failed)] = False
    return found


def test_places_are_counted_by_hand():
    assert domains(9, 4)(works(18)) == 16
    assert domains(9, 4)(works(18, 0, 9)) == 16
    assert domains(9, 4)(works(18, 0, 1)) == 12
    assert cubes(8, 4)(works(24, 0, 9)) == 16
    assert cubes(8, 4)(works(28, 0, 9)) == 20
    assert cubes(8, 3)(works(24, 0, 9)) == 12
    assert cubes(8, 16)(works(40, 0)) == 32
    assert cubes(8, 12)(works(40, 0)) == 24
    assert ring(1, 4)(works(12)) == 12
    assert ring(1, 4)(works(12, 0)) == 8
    assert ring(1, 2)(works(12, 3, 6)) == 2 + 8
    assert ring(2, 4)(works(12, 3, 7)) == 8
    assert ring(2, 5)(works(12, 3, 4)) == 10
    assert ring(2, 6)(works(12, 3, 4, 8)) == 6
    assert ring(1, 1)(works(6, *range(6))) == 0
    assert ring(2, 4)(works(12, 3, 4, 9, 10)) == 8  # runs of four each, one of them across the start


def test_no_placement_uses_more_than_works_and_longer_hops_never_waste_more():
    rng = np.random.default_rng(3)
    for share in (0.01, 0.1, 0.4):
        state = rng.random(144) >= share
        hops = [stranded_share(state, ring(one, 4)) for one in (1, 2, 3, 143)]
        assert hops == sorted(hops, reverse=True)
        assert hops[-1] * 144 == state.sum() % 4
        for placed in (domains(9, 4), cubes(8, 4), cubes(8, 16)):
            assert 0.0 <= stranded_share(state, placed) <= 1.0


def test_cubes_waste_as_the_goodput_rule_of_tpu_v4_says():
    """Jouppi et al.: E[k floor(H / k)] / 64 with hosts of four; here one cube of 16 hosts a slice of 4."""
    faults = random_faults(0.01, Cluster(nodes=64 * 16, node=4, seed=1))
    placed = cubes(16, 4 * 16)
    goodput = np.mean([placed(one) / one.size for one in faults.works])
    expected = CubeMachine().goodput(4, 0.99)
    assert goodput == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("group", [8, 16, 24, 32, 64, 128])
def test_waste_and_goodput_tell_the_same_of_cubes(group):
    """What is stranded and what jobs fill are all that works, within the standard error of the draws."""
    hosts = load_hosts("tpu-v4-hosts")
    faults = random_faults(1.0 - hosts.availability, Cluster(nodes=64 * 16, node=hosts.accelerators, seed=2))
    placed = cubes(64 // hosts.accelerators, group // hosts.accelerators)
    filled = np.array([one.mean() - stranded_share(one, placed) for one in faults.works])
    error = filled.std() / math.sqrt(filled.size)
    expected = placed_share(4096, group, hosts, Splicing.CUBE)
    assert filled.mean() == pytest.approx(expected, abs=4 * error)


def test_a_ring_wastes_a_tenth_of_domains_and_cubes():
    """Shou et al., SIGCOMM 2025: more than ten times less than NVL-72 and TPU v4 at a few faults in 100."""
    cluster = Cluster(nodes=360)
    found = wasted(random_faults(0.0234, cluster), cluster)
    assert 10 * found["ring, 2 hops"] < min(found["domains of 72"], found["cubes of 64"])
    assert found["ring, 3 hops"] <= found["ring, 2 hops"] < found["ring, 1 hop"]


def trace(path, *events):
    content = [{"event_time": when, "event_type": kind, "node_id": name} for when, kind, name in events]
    path.write_text(json.dumps(content))
    return path


def test_a_trace_is_weighed_by_time(tmp_path):
    path = trace(
        tmp_path / "t.json",
        (0.0, "fault_start", "a"),
        (1.0, "fault_start", "a"),
        (2.0, "fault_end", "a"),
        (3.0, "fault_end", "a"),
        (4.0, "fault_start", "b"),
    )
    faults = read_faults(path, Cluster(nodes=8))
    assert isinstance(faults, Faults)
    assert faults.failed == pytest.approx(0.75 / 8)
    assert faults.shares.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("events", "match"),
    [
        ([(0, "fault_start", "a"), (1, "fault", "a")], "event 1: 'event_type' must be fault_start or"),
        ([(n, "fault_start", str(n)) for n in range(9)], "names 9 nodes, .* try --nodes 9"),
        ([(1, "fault_start", str(n)) for n in range(3)], "all events have the time 1;"),
        ([(0, "fault_start", "a"), ("now", "fault_end", "a")], "event 1: 'event_time' must be a number"),
        ([(math.nan, "fault_start", "a")], "t.json:1: NaN is not a number"),
        ([], "holds no event"),
    ],
)
def test_a_bad_trace_is_one_sentence(tmp_path, events, match):
    with pytest.raises(ParameterError, match=match):
        read_faults(trace(tmp_path / "t.json", *events), Cluster(nodes=8))


def test_the_command_prints_and_refuses(capsys, tmp_path):
    assert main(["cost", "waste", "--failed", "0.02", "--nodes", "360", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["wasted"]["ring, 2 hops"] > 0
    assert main(["cost", "waste", "--nodes", "72"]) == 0
    assert "domains of 72" in capsys.readouterr().out
    assert main(["cost", "waste", "--node", "5"]) == 2
    assert "must divide groups" in capsys.readouterr().err
    for text, said in (
        ("{}", "t.json: holds a dict where a list of events is needed"),
        ('[{"event_time": 1,\n', "t.json:2: not JSON: the file ends too early"),
        ("[3]", "t.json: event 0: lacks 'event_time'"),
    ):
        (tmp_path / "t.json").write_text(text)
        assert main(["cost", "waste", "--data", str(tmp_path / "t.json")]) == 2
        assert said in capsys.readouterr().err


def test_statistics_of_a_trace_are_counted_by_hand(tmp_path):
    """Two servers, ten days: one down from 1 to 4 by two faults, the other from 6 to 7 and from 9 on."""
    path = trace(
        tmp_path / "t.json",
        (0.0, "fault_start", "a"),
        (0.0, "fault_end", "a"),
        (1.0, "fault_start", "a"),
        (2.0, "fault_start", "a"),
        (3.0, "fault_end", "a"),
        (4.0, "fault_end", "a"),
        (6.0, "fault_start", "b"),
        (7.0, "fault_end", "b"),
        (9.0, "fault_start", "b"),
        (10.0, "fault_end", "c"),
    )
    found = failure_statistics(read_events(path, 4), 4)
    assert found.availability == pytest.approx(1.0 - (3.0 + 1.0 + 1.0) / 40.0)
    assert found.mtbf_s == pytest.approx(40.0 / 5 * 86400)
    np.testing.assert_allclose(np.sort(found.repairs_s) / 86400, [0.0, 1.0, 2.0, 2.0])


def test_a_trace_drawn_from_the_table_agrees_with_it_and_another_does_not(tmp_path, capsys):
    """Exponential failures and repairs give the fleet's own statistics, and the waste of independence."""
    hosts = load_hosts("infinite-hbd")
    rng, day_s, days = np.random.default_rng(1), 86400.0, 800.0
    events = []
    for node in range(400):
        now = 0.0
        while now < days:
            start = now + rng.exponential((hosts.mtbf_s - hosts.mttr_s) / day_s)
            now = start + rng.exponential(hosts.mttr_s / day_s)
            if now < days:
                events += [(start, "fault_start", str(node)), (now, "fault_end", str(node))]
    rows = {
        one.id.removeprefix("drawn.json "): one
        for one in validate("network", data=trace(tmp_path / "drawn.json", *events)).outcomes
    }
    faults = len(events) / 2
    for name, errors in (("server unavailability", 4), ("MTBF of a server", 3), ("MTTR median", 4)):
        assert abs(rows[name].relative_error) < errors / np.sqrt(faults)
    assert abs(rows["wasted, domains of 72"].relative_error) < 0.1
    slow = [(10.0 * when, kind, name) for when, kind, name in events[:200]]
    found = failure_statistics(read_events(trace(tmp_path / "slow.json", *slow), 400), 400)
    fast = failure_statistics(read_events(trace(tmp_path / "fast.json", *events[:200]), 400), 400)
    assert found.mtbf_s == pytest.approx(10.0 * fast.mtbf_s)
    assert found.availability == pytest.approx(fast.availability)
    (tmp_path / "t.json").write_text("[]")
    assert main(["validate", "network", "--data", str(tmp_path / "t.json")]) == 2
    assert "t.json: holds no event" in capsys.readouterr().err
