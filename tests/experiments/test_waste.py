"""Waste of failed nodes: hand-counted cases, the published order, and traces."""

import json

import numpy as np
import pytest

from experiments.__main__ import main
from experiments.waste import Cluster, Faults, random_faults, read_faults, wasted
from heliograph.cubes import CubeMachine
from heliograph.errors import ParameterError
from heliograph.fragments import cubes, domains, ring, waste


def works(count, *failed):
    found = np.ones(count, dtype=bool)
    found[list(failed)] = False
    return found


def test_places_are_counted_by_hand():
    assert domains(9, 4)(works(18)) == 16
    assert domains(9, 4)(works(18, 0, 9)) == 16
    assert domains(9, 4)(works(18, 0, 1)) == 12
    assert cubes(8, 4)(works(24, 0, 9)) == 8
    assert cubes(8, 16)(works(40, 0)) == 32
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
        hops = [waste(state, ring(one, 4)) for one in (1, 2, 3, 143)]
        assert hops == sorted(hops, reverse=True)
        assert hops[-1] * 144 == state.sum() % 4
        for placed in (domains(9, 4), cubes(8, 4), cubes(8, 16)):
            assert 0.0 <= waste(state, placed) <= 1.0


def test_cubes_waste_as_the_goodput_rule_of_tpu_v4_says():
    """Jouppi et al.: E[k floor(H / k)] / 64 with hosts of four; here one cube of 16 hosts a slice of 4."""
    faults = random_faults(0.01, Cluster(nodes=64 * 16, node=4, seed=1))
    placed = cubes(16, 4 * 16)
    goodput = np.mean([placed(one) / one.size for one in faults.works])
    expected = CubeMachine().goodput(4, 0.99)
    assert goodput == pytest.approx(expected, abs=0.03)


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
        ([(0, "fault_start", "a"), (1, "fault", "a")], "event type 'fault' is not"),
        ([(0, "fault_start", str(n)) for n in range(9)], "names 9 nodes"),
    ],
)
def test_a_bad_trace_is_one_sentence(tmp_path, events, match):
    with pytest.raises(ParameterError, match=match):
        read_faults(trace(tmp_path / "t.json", *events), Cluster(nodes=8))


def test_the_command_prints_and_refuses(capsys, tmp_path):
    assert main(["waste", "--failed", "0.02", "--nodes", "360", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["wasted"]["ring, 2 hops"] > 0
    assert main(["waste", "--nodes", "72"]) == 0
    assert "domains of 72" in capsys.readouterr().out
    assert main(["waste", "--node", "5"]) == 2
    assert "must divide groups" in capsys.readouterr().err
    (tmp_path / "t.json").write_text("{}")
    assert main(["waste", "--data", str(tmp_path / "t.json")]) == 2
    assert "names 0 nodes" in capsys.readouterr().err
