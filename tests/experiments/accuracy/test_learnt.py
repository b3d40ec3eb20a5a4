import dataclasses
import math

import numpy as np
import pytest
import torch

from experiments.accuracy.prediction import LEARNT, Effort, learnt_bench
from experiments.accuracy.report import Predict
from experiments.accuracy.training import HEAD, JudgeLearnt, Variants, further, operands_by_layer, table_loss
from experiments.study import Progress
from heliograph.accuracy.small_gpt import EXACT as EXACTLY
from heliograph.accuracy.small_gpt import NOTHING, Arithmetic, train_all
from heliograph.records import TrainingCache
from heliograph.report import report_text
from heliograph.systems import build_system
from optical.execution import AnalogSpec, Mode
from optical.execution.numerics import AnalogNumerics
from optical.execution.spec import EXACT
from optical.noise.chip import CommonEncoding
from simulator.errors import ParameterError
from simulator.operators import Phase
from workloads.training import pretraining
from workloads.training.gpt import Corpus, Gpt, GptConfig, TrainingConfig, train_model
from workloads.training.probes import EXACT_PRODUCTS, sites

pytestmark = pytest.mark.usefixtures("one_thread")


def corpus(train, validation):
    train, validation = (np.frombuffer(text, dtype=np.uint8) for text in (train, validation))
    return Corpus(name="test", train=train, validation=validation, sha256="0" * 64)


def test_a_table_of_bytes_has_their_entropy():
    rng = np.random.default_rng(0)
    text = rng.choice([97, 98, 99, 100], size=40_000, p=[0.5, 0.25, 0.125, 0.125]).astype(np.uint8)
    found = table_loss(corpus(text[:30_000].tobytes(), text[30_000:].tobytes()), 1)
    assert found == pytest.approx(1.75 * math.log(2.0), rel=0.01)


def test_longer_tables_see_further_back():
    # after "aa" comes "b", after "ba" comes "a": a pair leaves one bit open after "a", a triple none
    text = b"aab" * 4000
    pairs, triples = (table_loss(corpus(text[:9000], text[9000:]), length) for length in (2, 3))
    assert pairs == pytest.approx(math.log(2.0) * 2 / 3, rel=0.01)
    assert triples < 0.01


def test_a_loud_channel_is_found():
    shape = GptConfig(layers=2, width=32, heads=2, context=32)
    model = Gpt(shape, EXACT_PRODUCTS, 0)
    text = bytes(range(256)) * 30
    with torch.no_grad():
        model.blocks[1].mlp_norm.weight[5] = 40.0
    found = {(one.layer, one.product): one for one in operands_by_layer(model, corpus(text, text))}
    assert set(found) == {
        *((i, name) for i in (0, 1) for name in ("qkv", "projection", "up", "down")),
        (2, "head"),
    }
    assert found[1, "up"].outliers == 1
    assert found[1, "up"].loudest > 20.0
    assert found[0, "up"].outliers == 0
    assert found[1, "up"].kurtosis > 4 * found[0, "up"].kurtosis
    assert found[1, "down"].channels == 128


@pytest.mark.parametrize("options", [{"steps": 10}, {"seed": 1}])
def test_options_of_a_training_want_one(options):
    with pytest.raises(ParameterError, match="--train"):
        JudgeLearnt(**options).run(Progress())


def test_a_training_says_where_its_weights_go():
    with pytest.raises(ParameterError, match="--weights FILE"):
        JudgeLearnt(train=True).run(Progress())


def test_the_learnt_model_takes_no_steps():
    with pytest.raises(ParameterError, match="ships with its weights"):
        Effort.asked(quick=True, model=LEARNT, steps=10)


def test_the_learnt_model_is_not_trained_through_a_core():
    with pytest.raises(ParameterError, match="ships with its weights"):
        Predict(model=LEARNT, mode=Mode.HARDWARE).run(Progress())


def test_errors_that_outputs_share_cost_a_learnt_model_more():
    """docs/noise.md has 1.8 times at 32 x 32 outputs and equal variance; two windows and one draw see 1.3."""
    bench = learnt_bench(windows=2)
    clean, every = bench.loss({}, 0), sites(bench.model.config)
    apart = dataclasses.replace(EXACT, encoding_variance=1e-3)
    shared = dataclasses.replace(apart, encoding=CommonEncoding(rows=32, columns=32, holds_weights=False))
    rises = [bench.loss(dict.fromkeys(every, AnalogNumerics(spec)), 0) - clean for spec in (apart, shared)]
    assert 0.05 < rises[0] < rises[1] / 1.3


def test_further_training_begins_at_the_weights_that_ship_and_wins_back_loss(tmp_path, monkeypatch):
    """A model of 0.02 million parameters in place of the one that ships: 1.5 s."""
    shape = GptConfig(layers=1, width=32, heads=2, context=32)
    text = corpus(b"to be, or not to be: " * 99, b"that is to be, or not to be: " * 9)
    learnt = train_model(
        TrainingConfig(steps=60, learning_rate=3e-3, eval_every=60), shape, EXACT_PRODUCTS, text
    ).model
    monkeypatch.setattr("workloads.training.gpt.python_source", lambda: text)
    pretraining.save_weights(tmp_path / "weights.npz", learnt, {})
    monkeypatch.setattr(pretraining, "WEIGHTS", tmp_path / "weights.npz")
    monkeypatch.setattr(pretraining, "LEARNT", shape)
    monkeypatch.setattr("heliograph.processes.os.cpu_count", lambda: 1)
    noisy = dataclasses.replace(AnalogSpec.ideal(), thermal_variance=0.3)
    core = Arithmetic(label="core", analog=dict.fromkeys(Phase, AnalogSpec.ideal()) | {Phase.FORWARD: noisy})
    cache = TrainingCache(tmp_path / "cache")
    found = train_all([NOTHING, core], seeds=(0,), quick=False, cache=cache, model=LEARNT, steps=20)
    assert found[EXACTLY].before == (0.0,)
    assert all(
        0.0 < after < before
        for after, before in zip(found["core"].differences, found["core"].before, strict=True)
    )
    text = report_text(Variants(system="x", accuracies=found).report())
    assert "before" in text
    assert "steps to loss" not in text


def test_what_ships_is_trained_further_through_a_core_and_its_rescues():
    bare, whole = (
        build_system("photonic_packet", core=core) for core in ("crossbar", "crossbar+hybrid+rotation+block")
    )
    found = {one.label: one for one in further(bare, bare.analog(), quick=False)}
    assert found["head digital"].exact_products == HEAD
    gradients = found.pop("gradients on the core, too")
    assert gradients.analog == bare.analog()
    assert all(one.analog[Phase.GRAD_INPUT] == AnalogSpec.ideal() for one in found.values())
    assert found["all three"].analog[Phase.FORWARD] == whole.analog()[Phase.FORWARD]
    labels = [one.label for one in further(whole, whole.analog(), quick=False)]
    assert labels == ["the core", "head digital", "gradients on the core, too"]
