"""A schedule and a model from outside the package: through plans, memory, steps, drawings and the search."""

import dataclasses

import pytest

from experiments.network.schedule import schedule_names, unit_timeline
from heliograph.comparison.plan_estimates import Objective
from heliograph.comparison.search import Search, rank_and_run
from heliograph.simulation import run_step
from heliograph.systems import build_system
from simulator.errors import WorkloadError
from tests.workloads.pipeline.eager import EAGER
from workloads.models import config as models
from workloads.models.config import load_model, register_model
from workloads.pipeline import schedule as registry
from workloads.pipeline.schedule import PassTimes, register_schedule
from workloads.plan.plan import Plan, parse_plan
from workloads.plan.rules import check
from workloads.step.memory import layer_activation_bytes, memory_by_kind
from workloads.step.step import build_step

CONFIG = dataclasses.replace(load_model("llama-3-8b"), layers=8)
SHAPE = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 1024,
}


@pytest.fixture
def eager():
    """Register eager 1F1B, and forget it afterwards."""
    yield register_schedule("eager_1f1b", EAGER)
    registry._KNOWN.pop("eager_1f1b")


@pytest.fixture
def tiny():
    """Register a small model, and forget it afterwards."""
    yield register_model("tiny", SHAPE)
    models._REGISTERED.pop("tiny")


def test_a_plan_names_a_schedule_from_outside(eager):
    plan = parse_plan("tp=2,pp=4,dp=2,global_batch=32,schedule=eager_1f1b")
    assert plan.schedule.kind is eager
    check(CONFIG, plan, accelerators=16)
    with pytest.raises(WorkloadError, match=r"vpp \(2\) needs schedule=1f1b, not eager_1f1b"):
        plan.with_(vpp=2)


def test_its_memory_is_its_own(eager):
    """Twice the warm-up keeps 2 (p - 1 - i) + 1 microbatches on stage i, not 1F1B's p - i."""
    plan = Plan.of(pp=4, global_batch=16, schedule=eager)
    each = layer_activation_bytes(CONFIG, plan.share) * CONFIG.layers / 4
    kept = [memory_by_kind(CONFIG, plan, stage)["activations"] / each for stage in range(4)]
    assert kept == [7, 5, 3, 1]


def test_a_step_runs_with_it(eager):
    plan = Plan.of(pp=4, dp=2, global_batch=16, sequence_length=512)
    system = build_system("gpu_packet", accelerators=8)
    plain, early = (run_step(system, CONFIG, one) for one in (plan, plan.with_(schedule=eager)))
    assert early.metrics.step_time_s <= plain.metrics.step_time_s
    assert early.memory_bytes["activations"] > plain.memory_bytes["activations"]
    done = build_step(CONFIG, plan.with_(schedule=eager))
    assert done.model_flops == build_step(CONFIG, plan).model_flops


def test_it_draws_itself(eager):
    assert "eager_1f1b" in schedule_names()
    drawn = unit_timeline("eager_1f1b", stages=4, microbatches=10, chunks=1, times=PassTimes())
    assert drawn.peak_microbatches == (7, 5, 3, 1)


@pytest.mark.slow
def test_the_search_tries_it(eager):
    said = []
    found = Search(model=CONFIG.name, objective=Objective.TIME)
    base = Plan.of(sequence_length=2048, global_batch=16)
    choices = {"pp": (4,), "tp": (1,), "zero": (0,), "micro_batch": (1,), "vpp": (1,), "placement": (0,)}
    system = build_system("gpu_packet", accelerators=8)
    rank_and_run(
        {"own": system},
        CONFIG,
        base,
        found=found,
        choices=choices,
        top=1,
        progress=lambda label, *_: said.append(label),
    )
    assert any("with eager_1f1b" in label for label in said)


def test_a_registered_model_runs_by_name(tiny):
    assert load_model("tiny") is tiny
    assert tiny.name == "tiny"
    result = run_step(
        build_system("gpu_packet", accelerators=4),
        load_model("tiny"),
        parse_plan("tp=2,dp=2,global_batch=4,sequence=256"),
    )
    assert result.model == "tiny"
    with pytest.raises(WorkloadError, match="the name 'tiny' is taken; choose another"):
        register_model("tiny", CONFIG)


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("gpt2", CONFIG, "the name 'gpt2' is taken; choose another"),
        ("a/b", CONFIG, "no spaces or slashes and does not end in .json; got 'a/b'"),
        ("mine.json", CONFIG, "does not end in .json"),
        ("mine", {"model_type": "lama"}, "'lama' is not supported"),
        ("mine", "no/such.json", "no/such.json"),
    ],
)
def test_a_model_that_cannot_be_is_refused(name, config, message):
    with pytest.raises(WorkloadError, match=message):
        register_model(name, config)
    assert "mine" not in models.known_models()
