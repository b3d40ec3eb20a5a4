"""Best plans: what is priced, what is run, and what a comparison tells of them."""

import dataclasses
import pickle

import numpy as np
import pytest

import heliograph as hg
from experiments.__main__ import main
from experiments.compare import Compare, Compared
from experiments.search import Findings
from heliograph.comparison.comparison import Request, build_systems
from heliograph.comparison.plan_estimates import (
    Objective,
    Prices,
    estimates,
    feasible,
    least_values,
    price_best,
)
from heliograph.comparison.plan_search import (
    SAVINGS,
    THOROUGH,
    USUAL,
    best_plan,
    in_mode,
    no_plan,
    with_siblings,
)
from heliograph.comparison.search import Search, rank_and_run
from heliograph.report import report_text
from heliograph.simulation import modes, run_at_target
from heliograph.systems import build_system
from heliograph.workload import shared_plan
from simulator.errors import HeliographError, ParameterError, WorkloadError
from simulator.fabric import CircuitPolicy
from workloads.models.config import load_model
from workloads.plan.plan import Plan, plan_text
from workloads.search.costs import PlanPricer
from workloads.search.plans import grid

CONFIG = dataclasses.replace(load_model("llama-3-8b"), layers=6)
MIXTURE = dataclasses.replace(load_model("mixtral-8x7b"), layers=4)
BASE = Plan.of(sequence_length=4096, global_batch=16)
SYSTEMS = ("gpu_packet", "gpu_ocs", "gpu_packet@torus", "photonic_packet")


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_what_is_not_priced_cannot_be_best(name):
    system = build_system(name, accelerators=16)
    plans, _ = feasible(CONFIG, grid(BASE, 16, 1), system.node().memory.capacity_bytes)
    pricer = PlanPricer(CONFIG, system.node())
    every, bare = estimates(system, pricer, plans).values, least_values(system, pricer, plans)
    for objective in Objective:
        assert (bare[objective] <= every[objective] * (1 + 1e-9)).all()
        priced = price_best(system, pricer, plans, objective)
        assert priced.found.values[objective].min() == every[objective].min()
        assert len(priced.plans) < len(plans)


@pytest.mark.slow
def test_remembered_prices_are_those_of_each_fabric():
    """Two GPUs differ in their links: what one fabric's collectives take is not told of the other's."""
    known = Prices()
    for gpu in ("h100", "b200", "h100"):
        system = build_system("gpu_packet", accelerators=16, gpu=gpu)
        plans, _ = feasible(CONFIG, grid(BASE, 16, 1, {"tp": (2,)}), system.node().memory.capacity_bytes)
        pricer = PlanPricer(CONFIG, system.node())
        alone = estimates(system, pricer, plans)
        again = estimates(system, pricer, plans, prices=known)
        assert (alone.mode_time_s == again.mode_time_s).all()


@pytest.mark.slow
@pytest.mark.parametrize(("switch_s", "tolerance"), [("50 us", 0.03), ("1.2 ms", 0.15)])
def test_circuits_that_turn_layer_by_layer_are_estimated_as_the_engine_runs_them(switch_s, tolerance):
    """Eight blocks, seven patterns; a slow turn is of fewer circuits than all, which the estimate assumes."""
    config = dataclasses.replace(MIXTURE, layers=8)
    system = hg.system("gpu_packet@regional_ocs", accelerators=64).with_(
        **{"fabric.switch.switch_s": switch_s, "host_operator_s": 0.0, "host_launch_s": 0.0}
    )  # launches would fill a part of the dark
    base = BASE.with_(global_batch=32, expert_affinity=3.0, expert_patterns=7)
    alone = {"tp": (8,), "pp": (1,), "cp": (1,), "ep": (8,), "zero": (1,), "micro_batch": (1,)}
    alone |= {"recompute": (0,), "schedule": (0,), "vpp": (1,), "overlap_tensor": (0,), "placement": (0,)}
    plans, _ = feasible(config, grid(base, 64, 8, alone), system.node().memory.capacity_bytes)
    found = estimates(system, PlanPricer(config, system.node()), plans)
    assert len(found.modes) == 5  # static, and the axis or the layer that asks, asked or ahead
    ran_s = []
    for mode, (time_s,) in zip(found.modes, found.mode_time_s, strict=True):
        turned = in_mode(system, mode)
        ran_s.append(run_at_target(turned, config, plans.plan(0)).step_time_s)
        assert time_s == pytest.approx(ran_s[-1], rel=tolerance)
    fastest = found.modes[int(np.argmin(ran_s))]
    assert (fastest.policy is CircuitPolicy.PER_LAYER) is (switch_s == "50 us")


ONE = {
    **{name: (1,) for name in ("tp", "pp", "cp", "ep", "zero", "micro_batch", "vpp")},
    **{name: (0,) for name in ("recompute", "schedule", "overlap_tensor", "placement")},
}
"""Columns of a grid of one plan, those of others apart."""


@pytest.mark.parametrize(
    ("name", "columns", "tolerances"),
    [
        # Experts and tensor ranks take circuits from each other, four times in each block and direction.
        ("gpu_ocs", {"tp": 16, "ep": 2}, (0.01, 0.01, 0.01)),
        # The circuits of context ranks carry the experts' exchanges: nothing turns for these.
        ("gpu_ocs", {"tp": 8, "cp": 2, "ep": 2}, (0.01, 0.11, 0.11)),
        # Sums of every microbatch wait for the last send, and hold units until then.
        ("gpu_ocs", {"tp": 8, "pp": 2, "zero": 2}, (0.01, 0.02, 0.01)),
        ("gpu_ocs", {"tp": 2, "cp": 2, "pp": 2, "zero": 2}, (0.02, 0.02, 0.02)),
        # Circuits of nodes are laid for all axes together, ranks moved or not.
        ("gpu_packet@direct_connect", {"tp": 4, "cp": 2, "ep": 4}, (0.01,)),
        ("gpu_packet@direct_connect", {"tp": 2, "cp": 4, "pp": 2, "ep": 2, "placement": 1}, (0.01,)),
    ],
)
def test_circuits_are_estimated_as_the_engine_lays_and_turns_them(name, columns, tolerances):
    """Static, per axis, and ahead; counted as before, most of these were 9 to 83 % off in one."""
    system = build_system(name, accelerators=32)
    choices = ONE | {column: (value,) for column, value in columns.items()}
    plans, _ = feasible(
        MIXTURE, grid(BASE.with_(global_batch=32), 32, 8, choices), system.node().memory.capacity_bytes
    )
    found = estimates(system, PlanPricer(MIXTURE, system.node()), plans)
    for mode, (time_s,), tolerance in zip(found.modes, found.mode_time_s, tolerances, strict=False):
        turned = in_mode(system, mode)
        result = run_at_target(turned, MIXTURE, plans.plan(0), placement=plans.placement(0))
        assert time_s == pytest.approx(result.step_time_s, rel=tolerance), str(mode)


def test_plans_whose_peers_outnumber_the_lanes_have_no_way_with_circuits_that_stay():
    """As the engine refuses them: experts of four nodes, and sends, on four lanes."""
    system = build_system("gpu_ocs", accelerators=64)
    choices = ONE | {"tp": (8,), "pp": (2,), "ep": (4,)}
    plans, _ = feasible(MIXTURE, grid(BASE, 64, 8, choices), system.node().memory.capacity_bytes)
    found = estimates(system, PlanPricer(MIXTURE, system.node()), plans)
    assert np.isinf(found.mode_time_s[0]).all()
    assert np.isfinite(found.mode_time_s[1:]).all()


@pytest.mark.slow
def test_plans_are_ranked_on_the_sides_of_a_torus_that_they_run_on():
    """Where nobody chose sides, 256 stand on 8 x 8 x 4, or on 8 x 4 x 8 round tensor groups of eight."""
    free = build_system("gpu_packet@torus", accelerators=256)
    few = {"tp": (1, 8), "cp": (1,), "pp": (1, 2), "micro_batch": (1,), "vpp": (1,), "zero": (1,)}
    base = BASE.with_(global_batch=256)
    plans, _ = feasible(CONFIG, grid(base, 256, 1, few), free.node().memory.capacity_bytes)
    pricer = PlanPricer(CONFIG, free.node())
    times_s = estimates(free, pricer, plans).values[Objective.TIME]
    shapes = (dataclasses.replace(free, fabric=dataclasses.replace(free.fabric, x=8, y=y)) for y in (8, 4))
    usual_s, round_s = (estimates(one, pricer, plans).values[Objective.TIME] for one in shapes)
    near = (plans["tp"] == 8) & (plans["placement"] == 0)
    assert (times_s[near] == np.minimum(usual_s, round_s)[near]).all()
    assert (round_s[near] < usual_s[near]).any()
    assert (times_s[plans["tp"] * plans["pp"] == 1] == usual_s[plans["tp"] * plans["pp"] == 1]).all()


SMALL = {"micro_batch": (1, 2), "recompute": (0,), "schedule": (0, 2), "vpp": (1, 2), "placement": (0,)}
SMALL |= {"overlap_tensor": (0,)}
CASES = [
    ("gpu_packet", "dense", SMALL | {"zero": (0, 1), "cp": (1,)}),
    ("gpu_packet", "dense", SMALL | {"zero": (3,), "cp": (1,), "vpp": (1,)}),
    ("gpu_packet", "mixture", SMALL | {"zero": (1,), "cp": (1,), "tp": (1, 2), "vpp": (1,)}),
    ("gpu_packet", "dense", SMALL | {"zero": (0,), "pp": (2, 4)}),
    (
        "gpu_packet@torus",
        "mixture",
        SMALL | {"zero": (1,), "cp": (1,), "tp": (1,), "pp": (1, 2), "vpp": (1,)},
    ),
    ("gpu_ocs", "mixture", SMALL | {"zero": (1,), "cp": (1,), "tp": (1,), "pp": (1, 2), "vpp": (1,)}),
    ("gpu_packet:b200:fp8", "dense", SMALL | {"zero": (0, 1), "cp": (1,), "vpp": (1,)}),
    ("photonic_packet", "dense", SMALL | {"zero": (0,), "cp": (1,), "vpp": (1,), "overlap_tensor": (0, 1)}),
    ("gpu_packet@torus", "dense", SMALL | {"zero": (1,), "cp": (1,), "vpp": (1,)}),
    ("gpu_ocs", "dense", SMALL | {"zero": (0,), "cp": (1,), "vpp": (1,), "micro_batch": (1,)}),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model", "choices"),
    [
        pytest.param(
            *case, id=f"{case[0]}-{case[1]}-{number}", marks=[] if number < 6 else [pytest.mark.slow]
        )
        for number, case in enumerate(CASES)
    ],
)
def test_best_plan_is_the_best_of_all_that_the_engine_can_run(name, model, choices):
    """Every plan of a small grid is run: the searched best is within 0.5 % of the best of them."""
    config = CONFIG if model == "dense" else MIXTURE
    system = build_system(name, accelerators=8)
    effort = dataclasses.replace(THOROUGH, choices=choices)
    found = best_plan(system, config, BASE, effort=effort)
    base = system.planned(BASE)
    plans, _ = feasible(config, grid(base, 8, config.experts, choices), system.node().memory.capacity_bytes)
    times_s = []
    for row in range(len(plans)):
        try:
            times_s.append(run_at_target(system, config, plans.plan(row)).step_time_s)
        except HeliographError:
            continue
    assert len(times_s) >= 6
    assert found.step_time_s <= min(times_s) * 1.005


@pytest.mark.slow
def test_best_plan_is_found_where_estimates_of_turning_circuits_fail():
    """Sends of ZeRO-3's stages wait for ports that never rest, which estimates do not follow (over 20 %)."""
    choices = {"micro_batch": (1,), "recompute": (0,), "schedule": (0, 1, 2), "vpp": (1,), "placement": (0,)}
    choices |= {"tp": (2, 4, 8), "cp": (1, 2), "pp": (1, 2, 4), "zero": (1, 3), "overlap_tensor": (0,)}
    config = dataclasses.replace(CONFIG, layers=8)
    system = build_system("gpu_ocs", accelerators=32)
    found = best_plan(system, config, BASE, effort=dataclasses.replace(THOROUGH, choices=choices))
    plans = grid(system.planned(BASE), 32, config.experts, choices)
    plans, _ = feasible(config, plans, system.node().memory.capacity_bytes)
    estimated_s = estimates(system, PlanPricer(config, system.node()), plans).mode_time_s
    ran_s, errors = [], []
    for row in range(len(plans)):
        for mode, times_s in zip(modes(system.fabric, system.circuits, plans.base), estimated_s, strict=True):
            turned = in_mode(system, mode)
            try:
                ran_s.append(run_at_target(turned, config, plans.plan(row)).step_time_s)
            except HeliographError:
                continue
            errors.append(times_s[row] / ran_s[-1] - 1.0)
    assert min(errors) < -0.2
    assert found.step_time_s <= min(ran_s) * 1.005


@pytest.fixture(scope="module")
def compared():
    small = [build_system(one, accelerators=8) for one in ("gpu_packet", "gpu_packet:fp8", "photonic_packet")]
    return hg.compare(small, "gpt2")


@pytest.mark.slow
def test_each_system_runs_its_own_best_plan(compared):
    assert [one.system.name for one in compared.results] == list(compared.best)
    assert not compared.fixed
    batches = {(one.plan.batch.global_batch, one.plan.batch.sequence_length) for one in compared.results}
    assert len(batches) == 1
    for result, row in zip(compared.results, compared.rows(), strict=True):
        best = compared.best[result.system.name]
        assert row["plan"] == plan_text(result.plan) == plan_text(best.winner.plan)
        assert result.step_time_s == best.step_time_s
        assert all(best.step_time_s <= other_s for other_s in best.others_values)
        again = hg.simulate(build_system(result.system.name, accelerators=8), "gpt2", row["plan"])
        assert again.step_time_s == pytest.approx(result.step_time_s, rel=1e-12)


@pytest.mark.slow
def test_gpt2_is_no_slower_than_with_the_plan_of_a_step(compared):
    """The search's best of 29.3 ms where a step's default plan took 25.6 was a known miss."""
    usual = hg.simulate(build_system("gpu_packet", accelerators=8), "gpt2")
    assert compared.results[0].step_time_s <= usual.step_time_s


@pytest.mark.slow
def test_plans_stand_beneath_the_table_within_80_columns(compared):
    text = report_text(Compared(comparison=compared).report(), width=80)
    assert "each system's own" in text
    assert all(len(line.rstrip()) <= 80 for line in text.splitlines())


def test_plans_of_least_energy_take_no_more_of_it_than_the_fastest():
    pair = ["gpu_packet", "photonic_packet"]
    fast, spare = (hg.compare(pair, "gpt2", accelerators=64, objective=one) for one in ("time", "energy"))
    for quick, lean in zip(fast.results, spare.results, strict=True):
        best = spare.best[lean.system.name]
        assert best.value == lean.energy_j == min((best.value, *best.others_values))
        assert lean.energy_j <= quick.energy_j
        assert quick.step_time_s <= lean.step_time_s
    text = report_text(Compared(comparison=spare).report(), width=80)
    assert "those of least energy" in text
    with pytest.raises(ParameterError, match="no objective 'pwoer'"):
        hg.compare(pair, "gpt2", objective="pwoer")


def test_lower_power_limits_are_tried_for_whoever_asks_and_told():
    """Each is what the same plan takes with that limit set; light, sized for it anew, gains nothing."""
    pair = ["gpu_packet", "photonic_packet"]
    same = {"model": "llama-3-8b", "accelerators": 16, "objective": "energy", "quick": True}
    whole, lower = (hg.compare(pair, power_limits=one, **same) for one in (False, True))
    limits = [one.best[name].winner.power_limit_w for one in (whole, lower) for name in pair]
    assert limits[:2] == [None, None]
    assert 350.0 <= limits[2] < 700.0 == limits[3]
    gpu, light = (
        result.energy_j / before.energy_j for result, before in zip(lower.results, whole.results, strict=True)
    )
    assert gpu < 0.9
    assert light == 1.0
    best = lower.best["gpu_packet"]
    assert best.value == lower.results[0].energy_j < min(best.others_values)
    limited = hg.system("gpu_packet", accelerators=16, tdp_w=limits[2])
    again = hg.simulate(limited, "llama-3-8b", best.winner.plan)
    assert again.energy_j == pytest.approx(best.value, rel=1e-12)
    assert lower.rows()[0]["settings"] == f"gpu.chip.tdp_w={limits[2]}"
    text = report_text(Compared(comparison=lower).report(), width=80)
    assert f"{limits[2]:g} W for gpu_packet; 700 W for photonic_packet." in " ".join(text.split())
    assert all(len(line.rstrip()) <= 80 for line in text.splitlines())


def test_power_limits_without_an_objective_they_serve_are_an_error(capsys):
    for command in ("compare", "search"):
        assert main([command, "--model", "gpt2", "--accelerators", "8", "--power-limits"]) == 2
        assert "lower power limits save no time" in capsys.readouterr().err
    with pytest.raises(ParameterError, match="objective 'energy' is not used: a plan is named"):
        hg.compare(["gpu_packet"], "gpt2", "dp=8,global_batch=8", objective="energy", power_limits=True)


@pytest.mark.slow
def test_a_comparison_sums_gradients_in_as_many_pieces_as_a_search_and_a_sweep():
    """Four pieces are 1.7 % slower here; light and GPUs get the same choice."""
    found = hg.compare(["gpu_packet", "photonic_packet"], "llama-3-8b", accelerators=64)
    pieces = [one.winner.plan.traffic.grad_buckets for one in found.best.values()]
    assert pieces == [16, 16]
    fours = hg.simulate("gpu_packet", "llama-3-8b", found.results[0].plan.with_(grad_buckets=4))
    assert found.results[0].step_time_s < 0.99 * fours.step_time_s
    plans = ["best,global_batch=32", "best,global_batch=32,grad_buckets=4"]
    free, named = hg.sweep("gpu_packet", {"plan": plans}, model="llama-3-8b", accelerators=64).rows()
    assert free["step_time_s"] == found.results[0].step_time_s
    assert named["step_time_s"] == fours.step_time_s


@pytest.mark.parametrize(
    ("model", "plan", "says"),
    [("gpt2", "dp=8,global_batch=32", "a plan is named"), ("retro-425m", None, "retro-425m looks texts up")],
)
def test_an_objective_without_a_search_is_an_error(model, plan, says):
    with pytest.raises(ParameterError, match=f"objective 'energy' is not used: {says}"):
        hg.compare(["gpu_packet"], model, plan, accelerators=8, objective="energy")


def test_models_whose_plans_are_not_searched_have_no_table_of_best_plans():
    found = hg.compare(["gpu_packet"], "retro-425m", accelerators=8)
    assert not found.best
    assert "each would take" not in report_text(Compared(comparison=found).report(), width=80)


def test_a_plan_for_all_is_told_with_what_each_would_do_best():
    found = hg.compare(["gpu_packet"], "gpt2", "dp=8,global_batch=32", search=True)
    assert found.fixed
    assert found.best["gpu_packet"].step_time_s <= found.results[0].step_time_s
    assert "At its own best plan" in report_text(Compared(comparison=found).report(), width=80)
    assert not hg.compare(["gpu_packet"], "gpt2", "dp=8,global_batch=32").best


def test_a_thorough_comparison_tries_more_plans():
    system = build_system("gpu_packet", accelerators=8)
    usual, more = (hg.compare([system], "gpt2", thorough=one).best["gpu_packet"] for one in (False, True))
    assert usual.ranked < more.ranked
    assert more.step_time_s <= usual.step_time_s
    assert Compare(thorough=True).request().thorough


@pytest.mark.slow
def test_operators_that_are_computed_again_alone_are_tried_where_asked():
    """Where memory binds, computing norms and activations again leaves room for a quicker pipeline."""
    config, system = load_model("llama-3-70b"), build_system("gpu_packet", accelerators=64)
    base = shared_plan(config, 64)
    whole, alone = (
        best_plan(system, config, base, effort=dataclasses.replace(USUAL, savings=one))
        for one in (USUAL.savings, SAVINGS)
    )
    assert alone.ranked > whole.ranked
    assert alone.step_time_s < 0.995 * whole.step_time_s
    assert alone.winner.plan.recompute.recompute_activation
    choices = {"tp": (4,), "pp": (4,), "placement": (0,), "micro_batch": (1,), "zero": (1,)}
    found = Search(model=config.name, objective=Objective.TIME)
    rank_and_run({"own": system}, config, base, found=found, choices=choices, savings=SAVINGS)
    assert found.winner.value(Objective.TIME) < 1.005 * alone.step_time_s
    assert "recompute activation" in report_text(Findings(search=found).report())


@pytest.mark.slow
def test_best_plans_of_others_are_tried_and_results_travel_between_processes():
    """Own plans are poor here (one run, pipelines only): a sibling's best plan is found and is the best."""
    systems = [build_system(one, accelerators=8) for one in ("gpu_packet", "gpu_packet:fp8")]
    poor = dataclasses.replace(USUAL, choices={**USUAL.choices, "pp": (4,)})
    own = best_plan(systems[1], CONFIG, BASE, effort=poor)
    other = best_plan(systems[0], CONFIG, BASE)
    both = with_siblings(systems[1], CONFIG, own.without_result(), [other.winner])
    assert both.step_time_s < own.step_time_s
    assert both.winner.plan.axes == other.winner.plan.axes
    assert with_siblings(systems[1], CONFIG, both, [other.winner]) is both
    again = pickle.loads(pickle.dumps(both))
    assert again.result.step_time_s == both.step_time_s
    assert again.result.record() == both.result.record()


def test_a_space_without_plans_says_which_constraint_leaves_none():
    system = build_system("gpu_packet", accelerators=2)
    with pytest.raises(WorkloadError, match=r"\(.*\) and the last [0-9,]+ \(more memory than there is\);"):
        best_plan(system, load_model("llama-3-70b"), BASE)
    assert "the fabric carries none" in no_plan("x", {}, [])


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"tp": (16,)}, "no plan with tp=16 takes tp x cp x pp x dp = 8 accelerators;"),
        ({"tp": (2,), "dp": (2,), "pp": (4,)}, "no plan with tp=2, pp=4, dp=2 takes"),
        ({"ep": (5,)}, "with ep=5 .* ep dividing 1 experts"),
    ],
)
def test_degrees_that_do_not_make_the_accelerators_are_named(choices, said):
    system = build_system("gpu_packet", accelerators=8)
    with pytest.raises(WorkloadError, match=said):
        best_plan(system, CONFIG, BASE, effort=dataclasses.replace(USUAL, choices=choices))


def test_a_plan_that_cannot_run_is_refused_before_any_search():
    told = []
    with pytest.raises(HeliographError, match="16 accelerators, but there are 8"):
        hg.compare(
            [build_system("gpu_packet", accelerators=8)],
            "llama-3-8b",
            "tp=16,dp=1,global_batch=8",
            search=True,
            progress=lambda label, done, total: told.append(label),
        )
    assert not any("estimating" in label for label in told)


def test_the_usual_batch_is_shared_evenly_by_any_number_of_accelerators():
    config = dataclasses.replace(CONFIG, max_sequence=777)
    for accelerators in (6, 7, 8, 12):
        batch = shared_plan(config, accelerators).batch
        assert batch.global_batch % accelerators == 0
        assert 0.8 < batch.tokens_per_step / (4096 * accelerators) <= 1.0


@pytest.mark.parametrize(
    ("accelerators", "sequence", "sequences"),
    [(7, 8192, 7), (3, 8192, 3), (8, 8192, 4), (24, 8192, 12), (1000, 6144, 1000), (1000, 131072, 40)],
)
def test_sequences_longer_than_an_accelerators_tokens_are_shared_evenly(accelerators, sequence, sequences):
    config = dataclasses.replace(CONFIG, max_sequence=sequence)
    plan = shared_plan(config, accelerators, f"sequence_length={sequence}")
    assert plan.batch.global_batch == sequences


def test_what_is_compared_has_one_number_of_accelerators(tmp_path):
    small, large = tmp_path / "small.toml", tmp_path / "large.toml"
    small.write_text('base = "gpu_packet"\naccelerators = 8\n')
    large.write_text('base = "gpu_ocs"\naccelerators = 16\n')
    one, other = (build_system(name, accelerators=n) for name, n in (("gpu_packet", 8), ("gpu_ocs", 16)))
    for systems in ((str(small), "gpu_ocs"), ("gpu_ocs", str(small))):
        built = build_systems(Request(systems=systems)).systems
        assert [each.accelerators for each in built] == [8, 8]
    found = hg.compare([one, "gpu_ocs"], "gpt2")
    assert [result.system.accelerators for result in found.results] == [8, 8]
    for systems in ([str(small), str(large)], [one, other], [one, str(large)]):
        with pytest.raises(ParameterError, match="only systems of one number of accelerators"):
            hg.compare(systems, "gpt2")
    with pytest.raises(ParameterError, match="only systems of one number"):
        build_systems(Request(systems=(str(small), str(large))))
