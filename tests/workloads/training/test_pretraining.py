import dataclasses

import numpy as np
import pytest
import torch

from electronic.numerics import BfloatNumerics
from simulator.errors import ParameterError, WorkloadError
from workloads.training.gpt import Corpus, Gpt, GptConfig, Products, python_source
from workloads.training.pretraining import (
    CORPUS_BYTES,
    LEARNT,
    FastBfloat,
    Pretraining,
    held_out_loss,
    load_weights,
    pretrain,
    save_weights,
    training_record,
)
from workloads.training.probes import EXACT_PRODUCTS

pytestmark = pytest.mark.usefixtures("one_thread")

SHAPE = GptConfig(layers=2, width=32, heads=2, context=32, mlp_widths=(64, 96))
RECIPE = Pretraining(steps=30, batch=8, warmup_steps=4)


@pytest.fixture(scope="module")
def corpus():
    text = np.frombuffer(b"def twice(number):\n    return 2 * number\n\n\n" * 200, dtype=np.uint8)
    return Corpus(name="one function", train=text[:6000], validation=text[6000:], sha256="0" * 64)


def weights(model):
    return {name: weight.detach().clone() for name, weight in model.state_dict().items()}


@pytest.mark.slow
def test_pretraining_learns_what_repeats(corpus):
    first = held_out_loss(Gpt(SHAPE, EXACT_PRODUCTS, 0), corpus)
    model = pretrain(dataclasses.replace(RECIPE, steps=120), SHAPE, corpus)
    assert first > 5.0
    assert held_out_loss(model, corpus) < 0.5


@pytest.mark.slow
def test_a_pretraining_goes_on_where_it_was_stopped(corpus, tmp_path):
    class StopError(Exception):
        pass

    def stop(step, loss):
        if step == 17:
            raise StopError

    whole = weights(pretrain(RECIPE, SHAPE, corpus))
    path = tmp_path / "state"
    with pytest.raises(StopError):
        pretrain(RECIPE, SHAPE, corpus, checkpoint=path, every=5, on_step=stop)
    resumed = weights(pretrain(RECIPE, SHAPE, corpus, checkpoint=path, every=5))
    assert all(torch.equal(resumed[name], weight) for name, weight in whole.items())


def test_rates_rise_hold_and_fall():
    recipe = Pretraining(steps=100, warmup_steps=10, decay_share=0.5)
    assert [recipe.rate(step) for step in (5, 10, 50, 76, 100)] == pytest.approx([0.5, 1.0, 1.0, 0.5, 0.02])


def test_weights_come_back_in_half_precision(corpus, tmp_path):
    model = Gpt(SHAPE, EXACT_PRODUCTS, 3)
    path = tmp_path / "weights.npz"
    save_weights(path, model, training_record(RECIPE, corpus, 1.5))
    read, record = load_weights(EXACT_PRODUCTS, path)
    assert read.config == SHAPE
    assert record["held_out_nats_per_byte"] == 1.5
    for name, weight in model.state_dict().items():
        assert torch.equal(read.state_dict()[name], weight.half().float())


@pytest.mark.parametrize("content", [b"", b"no archive", None])
def test_a_file_without_weights_is_refused(content, tmp_path):
    path = tmp_path / "weights.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(WorkloadError, match="is no file of weights"):
        load_weights(EXACT_PRODUCTS, path)


def test_weights_that_hold_code_are_refused(tmp_path):
    path = tmp_path / "weights.npz"
    np.savez(path, record=np.array([{"shape": 1}], dtype=object))
    with pytest.raises(WorkloadError, match="is no file of weights"):
        load_weights(EXACT_PRODUCTS, path)


def test_the_processors_bfloat_is_that_of_a_matrix_engine():
    a, b = torch.randn(3, 8, 512), torch.randn(3, 512, 16)
    for left, right in ((a, b), (a[:1], b[:1])):
        fast, plain = (one.matmul(left, right, 0) for one in (FastBfloat(), BfloatNumerics()))
        # the order of sums may differ, and then the last rounding: one unit of bfloat16 of the larger ones
        assert (fast - plain).abs().max() <= 2.0**-8 * plain.abs().max()


@pytest.mark.parametrize("widths", [(64,), (64, 0), (64, 64, 64)])
def test_mlp_widths_are_one_for_each_layer(widths):
    with pytest.raises(WorkloadError, match="mlp_widths"):
        GptConfig(layers=2, mlp_widths=widths)


def test_a_share_beyond_one_is_refused():
    with pytest.raises(ParameterError, match="decay_share"):
        Pretraining(decay_share=1.5)


@pytest.mark.slow
def test_the_model_that_ships_has_learnt():
    model, record = load_weights(Products.same(FastBfloat()))
    assert model.config == LEARNT
    assert max(model.config.hidden) == 4096
    assert record["held_out_nats_per_byte"] < 1.3
    loss = held_out_loss(model, python_source(most_bytes=CORPUS_BYTES), windows=96)
    # a sample of 96 windows; other versions of Python have other files, and split them differently
    assert loss == pytest.approx(record["held_out_nats_per_byte"], abs=0.12)
    assert loss < 1.3
