"""`heliograph network circuits --collective` and `--model`: moves hidden in a collective, between phases."""

import json

import pytest
from matplotlib.image import imread

from electronic.devices import load_scale_up
from experiments.cli import BAD_INPUT
from experiments.network.breakeven import study_phases
from experiments.network.circuits import bank_of, plan_collective
from heliograph.figures import DPI, WIDTH_IN
from heliograph.simulation import run_step
from heliograph.systems import build_system
from simulator.errors import ParameterError
from tests import builders
from workloads.models.config import load_model
from workloads.plan.plan import parse_plan

STEP = ("--model", "llama-3-8b", "--plan", "tp=8,pp=2,dp=2,global_batch=4,sequence_length=2048")


def call(capsys, *arguments):
    return builders.call(capsys, "network", "circuits", *arguments)


def planned(**changes):
    bank = {"planes": 2, "rate_bytes_per_s": 10e9, "reconfiguration_s": 50e-6}
    bank |= {name: changes.pop(name) for name in tuple(changes) if name in bank}
    given = {"collective": "all_to_all", "ranks": 4} | changes
    return plan_collective(bank=bank_of("rotor", **bank), **given)


def algorithm_of(study, name):
    return next(one for one in study.found if one.algorithm == name)


def test_overlap_never_loses_to_moving_together_and_gains_nothing_without_dark_time():
    """SWOT (arXiv:2510.19322): planes that move together between steps are one of the plans."""
    for kind in ("all_to_all", "all_reduce"):
        for one in planned(collective=kind).found:
            assert one.plan.bound_s <= one.plan.makespan_s <= one.together_s * (1 + 1e-9)
        for one in planned(collective=kind, reconfiguration_s=0.0).found:
            assert one.plan.makespan_s == pytest.approx(one.together_s)


def test_one_plane_hides_nothing():
    for one in planned(planes=1).found:
        assert one.plan.makespan_s == pytest.approx(one.together_s)


def test_a_ring_never_moves():
    """Every step of a ring asks for the same permutation: 2 (n - 1) steps of a block over both planes."""
    ring = algorithm_of(planned(collective="all_reduce"), "ring")
    assert ring.changes == 0
    assert ring.plan.makespan_s == pytest.approx(2 * 3 * 1e6 / 4 / (2 * 10e9))


@pytest.mark.parametrize(
    ("ranks", "most_s"), [(16, 436.1e-6), (24, 0.6735e-3), (32, 0.9107e-3), (64, 1.8606e-3)]
)
def test_a_direct_exchange_keeps_four_planes_busy_and_beats_bruck(ranks, most_s):
    """By hand: ceil((n - 1) / 4) blocks of 80 us and a move of 38.7 us between them on the fullest plane."""
    study = planned(
        ranks=ranks, size_bytes=ranks * 1e6, planes=4, reconfiguration_s=38.7e-6, rate_bytes_per_s=12.5e9
    )
    blocks = -(-(ranks - 1) // 4)
    assert most_s == pytest.approx(blocks * 80e-6 + (blocks - 1) * 38.7e-6, rel=1e-3)
    assert algorithm_of(study, "direct").plan.makespan_s <= most_s
    assert study.best.algorithm == "direct"


@pytest.mark.slow
def test_no_winner_is_named_over_what_was_left_out(capsys):
    options = ("--collective", "all_to_all", "--ranks", 512, "--planes", 8, "--rate", "10GB/s")
    code, out, _ = call(capsys, *options, "--reconfiguration", "50us")
    assert code == 0
    assert "Least of those planned: direct. Too long to plan, and maybe less: bruck (9 steps)." in out


def test_two_planes_take_turns_where_a_move_costs_more_than_a_step():
    """Direct exchange of 4 ranks: 3 blocks of 25 us; the first two steps stand, one plane moves beside."""
    direct = algorithm_of(planned(), "direct")
    assert direct.together_s == pytest.approx(3 * 12.5e-6 + 2 * 50e-6)
    assert direct.plan.is_optimal
    assert direct.plan.makespan_s < 0.8 * direct.together_s


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"collective": "broadcast"}, "no collective 'broadcast'"),
        ({"algorithm": "rings"}, "no algorithm 'rings' of all_to_all"),
        ({"ranks": 1}, "ranks \\(1\\) must be 2"),
        ({"size_bytes": 0.0}, "size_bytes"),
        ({"ranks": 512, "algorithm": "bruck", "planes": 8}, "too long to plan"),
    ],
)
def test_what_cannot_be_planned_says_why(changes, message):
    with pytest.raises(ParameterError, match=message):
        planned(**changes)


def test_a_collective_prints_draws_and_writes(tmp_path, capsys):
    options = ("--collective", "all_to_all", "--ranks", "4", "--size", "1MB")
    code, out, _ = call(capsys, *options, "--out", tmp_path)
    assert code == 0
    assert "bruck" in out
    assert "Least: " in out
    assert imread(tmp_path / "circuits.png").shape[1] == WIDTH_IN * DPI
    quick = json.loads((tmp_path / "circuits.json").read_text(encoding="utf-8"))["algorithms"]
    _, out, _ = call(capsys, *options, "--out", tmp_path / "slow", "--switch", "palomar-mems", "--json")
    for one, other in zip(quick, json.loads(out)["algorithms"], strict=True):
        assert one["makespan_s"] < other["makespan_s"]


def test_phases_of_a_step_move_until_dark_time_is_longer_than_what_it_saves(tmp_path, capsys):
    """Opus (arXiv:2507.08119): a move costs what idle time does not hide; with enough, circuits rest."""
    code, out, _ = call(capsys, *STEP, "--out", tmp_path, "--json")
    record = json.loads(out)
    assert code == 0
    assert sorted(record["lane_plan"]["axes"]) == ["dp", "pp"]
    plans = sorted(record["by_switch"].values(), key=lambda one: one["reconfiguration_s"])
    times = [one["time_s"] for one in plans]
    assert times == sorted(times)
    assert times[0] == pytest.approx(plans[0]["bound_s"], rel=1e-6)
    assert times[-1] == pytest.approx(plans[-1]["static_s"])
    assert plans[0]["moves"] > plans[-1]["moves"] == 0
    assert times[0] < times[-1]
    assert imread(tmp_path / "circuits.png").shape[1] == WIDTH_IN * DPI


def test_the_bytes_of_the_phases_are_those_that_the_step_sends(tmp_path, capsys):
    """A stage of two sends 2 microbatches of 2048 x 4096 values of 2 bytes over 8 cards, on the wire."""
    record = json.loads(call(capsys, *STEP, "--out", tmp_path, "--json")[1])
    sent = sum(one["bytes_per_pair"] for one in record["phases"] if one["axis"] == "pp")
    shares = [one.network_efficiency for one in load_scale_up("nvlink4").protocols]
    assert any(sent * share == pytest.approx(2 * 2048 * 4096 * 2 / 8, rel=1e-6) for share in shares)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--collective", "all_reduce", "--policy", "solstice"), "--policy (solstice) is not used"),
        ((*STEP, "--switch", "rotor"), "--set fabric.switch=NAME"),
        ((*STEP, "--system", "gpu_packet"), "take gpu_ocs"),
        (("--model", "gpt2", "--plan", "tp=4,dp=2,global_batch=2"), "nothing leaves a node"),
    ],
)
def test_options_of_another_use_and_systems_without_circuits_are_refused(capsys, options, message):
    code, out, err = call(capsys, *options)
    assert (code, out) == (BAD_INPUT, "")
    assert message in err
    assert err.count("\n") == 1


def test_exchanges_in_turns_are_dark_as_long_as_on_the_engine(monkeypatch):
    """Two turns for each of the experts' all-to-alls of three peers on two lanes; here nothing hides them.

    The plan of phases knows turns alone, so that nodes pass nothing on here, and one time for all of them.
    """
    monkeypatch.setattr("simulator.collectives.ways.forwarded_rounds", lambda *_, **__: ())
    system = build_system(
        "gpu_ocs",
        accelerators=32,
        assignments=["fabric.lanes=2", "fabric.policy=per-axis", "fabric.switch.switch_tail=1"],
    )
    plan = parse_plan("tp=8,dp=4,ep=4,global_batch=4,sequence_length=2048")
    result = run_step(system, load_model("mixtral-8x7b"), plan)
    study = study_phases(result)
    record = result.record()
    assert {one.peers for one in study.phases if one.axis == "ep"} == {3}
    assert sum(study.plan.turns) > 100
    dark_s = sum(study.plan.turning_s) + sum(study.plan.exposed_s)
    assert dark_s == pytest.approx(record["exposed_dark_s"], rel=0.02)
