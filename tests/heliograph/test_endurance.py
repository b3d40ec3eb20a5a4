"""How long cells that wear live through training, and what the user is told of it."""

import math

import pytest

from experiments.__main__ import main
from heliograph.simulation import lifetime_steps, run_step, run_steps, wear_warnings
from heliograph.systems import build_system
from heliograph.workload import plan_for
from optical.cores import CORES
from simulator.layout import RankLayout
from simulator.operators import Held, MatMul, Phase, Sequence, StepGraph, Task
from workloads.models.config import load_model

MODEL = load_model("llama-3-8b")
PLAN = "tp=8,pp=2,dp=2,global_batch=16,sequence_length=2048"


def system(core, *assignments):
    return build_system("photonic_packet", accelerators=32, core=core, assignments=assignments)


def product(m=64, k=64, n=64):
    return MatMul(name="product", phase=Phase.FORWARD, batch=1, m=m, k=k, n=n, held=Held.B)


def graph(*operators, multiplicity=1, ends=()):
    tasks = tuple(
        Task(id=index, rank_class=0, operator=operator, multiplicity=multiplicity)
        for index, operator in enumerate(operators)
    )
    return StepGraph(tasks=tasks, layout=RankLayout(tp=1, pp=1, dp=1), tokens=1, ends=ends)


@pytest.fixture(scope="module")
def worn():
    one = system("pcm_crossbar")
    return run_step(one, MODEL, plan_for(MODEL, PLAN, accelerators=32, memory_bytes=math.inf))


def test_life_is_endurance_over_the_writes_of_a_step():
    """64 x 64 on arrays of 16 x 16 and one core: 16 writes a product."""
    unit = system("pcm_crossbar", "photonic.cores=1").photonic
    assert lifetime_steps(unit, graph(product())) == pytest.approx(500_000 / 16, rel=1e-12)
    run = Sequence(name="forward", phase=Phase.FORWARD, items=((product(), 3),))
    assert lifetime_steps(unit, graph(run, product(), multiplicity=2)) == pytest.approx(
        500_000 / (16 * 8), rel=1e-12
    )
    two_steps = graph(product(), product(), ends=((0,), (1,)))
    assert lifetime_steps(unit, two_steps) == pytest.approx(500_000 / 16, rel=1e-12)


@pytest.mark.parametrize("core", ["crossbar", "mzi_mesh"])
def test_cores_that_do_not_wear_live_for_ever(core):
    assert lifetime_steps(system(core).photonic, graph(product())) == math.inf
    assert lifetime_steps(None, graph(product())) == math.inf


def test_a_run_is_twenty_tokens_per_parameter():
    """Hoffmann et al. 2022."""
    assert run_steps(MODEL, 20.0) == MODEL.parameters


@pytest.mark.slow
def test_training_a_language_model_wears_cells_out_and_the_user_is_told(worn):
    record = worn.record()
    assert record["core"] == "pcm_crossbar"
    assert 0.0 < record["core_lifetime_steps"] < record["run_steps"]
    assert "worn out after" in wear_warnings([record])[0]
    assert wear_warnings([record | {"core_lifetime_steps": None}]) == []
    assert wear_warnings([record | {"core_lifetime_steps": 2 * record["run_steps"]}]) == []


def test_loading_binds_the_step_of_a_core_that_holds_weights(worn):
    dynamic = run_step(
        system("crossbar"), MODEL, plan_for(MODEL, PLAN, accelerators=32, memory_bytes=math.inf)
    )
    assert worn.metrics.step_time_s > 10 * dynamic.metrics.step_time_s
    assert worn.metrics.energy_by_component_j["programming"] > 0.0
    times = worn.metrics.time_by_category_s
    assert times["products, loading-bound"] > 0.8 * worn.metrics.step_time_s
    assert sum(times.values()) == pytest.approx(worn.metrics.step_time_s)
    assert "products, loading-bound" not in dynamic.metrics.time_by_category_s
    assert "programming" not in dynamic.metrics.energy_by_component_j


@pytest.mark.slow
def test_the_command_line_takes_a_core_and_warns_of_wear(capsys):
    arguments = ["step", "--system", "photonic_packet", "--model", "llama-3-8b", "--plan", PLAN]
    arguments += ["--precision-target", "none"]
    assert main([*arguments, "--core", "pcm_crossbar"]) == 0
    worn_out = capsys.readouterr().out
    assert main(arguments) == 0
    plain = capsys.readouterr().out
    assert "Warning: photonic_packet: the cells of its cores are worn out" in worn_out
    assert "cores worn out after" in worn_out
    assert "Warning" not in plain
    assert "worn out" not in plain
    assert main(["list", "cores"]) == 0
    assert set(CORES) == {line.split()[0] for line in capsys.readouterr().out.splitlines()}
