import dataclasses
import math

import numpy as np
import pytest

from electronic.numerics import BfloatNumerics
from optical.execution import AnalogSpec, Rounding
from optical.execution.numerics import AnalogNumerics
from simulator.errors import ParameterError, WorkloadError
from workloads.training.gpt import (
    Corpus,
    GptConfig,
    Products,
    TrainingConfig,
    TrainingCurve,
    python_source,
    train_model,
)
from workloads.training.probes import EXACT_PRODUCTS

SMALL = GptConfig(layers=1, width=32, heads=2, context=16)
SHORT = TrainingConfig(
    steps=12, batch=8, learning_rate=5e-3, warmup_steps=2, validation_windows=12, eval_every=5
)
NOISY = AnalogSpec(
    dac_bits=8,
    adc_bits=8,
    adc_enob_bits=6.5,
    adc_range_sigma=4.0,
    analog_length=16,
    thermal_variance=1e-3,
    shot_variance=1e-5,
    rin_variance=1e-6,
    encoding_variance=0.0,
    rounding=Rounding.STOCHASTIC,
)
EXACT, ANALOG = EXACT_PRODUCTS, Products.same(AnalogNumerics(NOISY))


pytestmark = pytest.mark.usefixtures("one_thread")


def train(*recipe, **options):
    return train_model(*recipe, **options).curve


@pytest.fixture(scope="module")
def corpus():
    return python_source(most_bytes=2**20)


def curve(steps, losses):
    return TrainingCurve(
        steps=(1,),
        training_loss=(5.0,),
        validation_steps=steps,
        validation_loss=losses,
        tokens_per_step=1,
        corpus_sha256="",
        seconds=0.0,
    )


@pytest.mark.parametrize("products", [EXACT, Products.same(BfloatNumerics()), ANALOG])
def test_training_lowers_the_loss_in_a_few_steps(products, corpus):
    result = train(dataclasses.replace(SHORT, steps=25), SMALL, products, corpus)
    assert result.training_loss[0] == pytest.approx(math.log(256), abs=0.1)
    assert np.mean(result.training_loss[-5:]) < result.training_loss[0] - 1.0
    assert result.validation_loss[-1] < math.log(256) - 1.0


@pytest.mark.parametrize("products", [EXACT, ANALOG])
def test_same_seed_gives_the_same_curve_bit_for_bit(products, corpus):
    first, second = (train(SHORT, SMALL, products, corpus) for _ in range(2))
    assert first == second
    assert first != train(dataclasses.replace(SHORT, seed=1), SMALL, products, corpus)


def test_runs_with_other_numerics_are_paired(corpus):
    exact = train(SHORT, SMALL, EXACT, corpus)
    assert train(SHORT, SMALL, Products.same(AnalogNumerics(AnalogSpec.ideal())), corpus) == exact
    noisy = train(SHORT, SMALL, ANALOG, corpus)
    assert noisy != exact
    assert noisy.training_loss[0] == pytest.approx(exact.training_loss[0], abs=0.01)
    assert noisy.validation_loss[-1] == pytest.approx(exact.validation_loss[-1], abs=0.3)


def test_curve_tells_when_it_was_validated_and_on_what(corpus):
    result = train(SHORT, SMALL, EXACT, corpus)
    assert result.steps == tuple(range(1, 13))
    assert result.validation_steps == (5, 10, 12)
    assert len(result.validation_loss) == 3
    assert result.tokens_per_step == 8 * 16
    assert result.corpus_sha256 == corpus.sha256
    assert result.seconds > 0


def test_validation_does_not_disturb_training(corpus):
    often = train(dataclasses.replace(SHORT, eval_every=1), SMALL, ANALOG, corpus)
    seldom = train(dataclasses.replace(SHORT, eval_every=12), SMALL, ANALOG, corpus)
    assert often.training_loss == seldom.training_loss
    assert often.validation_loss[-1] == seldom.validation_loss[-1]


def test_each_step_is_reported(corpus):
    seen = []
    result = train(SHORT, SMALL, EXACT, corpus, on_step=lambda step, loss: seen.append((step, loss)))
    assert seen == list(zip(result.steps, result.training_loss, strict=True))


def test_learning_rate_rises_and_then_stays(corpus):
    constant = dataclasses.replace(SHORT, warmup_steps=0, steps=3)
    slow = dataclasses.replace(SHORT, warmup_steps=1000, steps=3)
    moved = [train(config, SMALL, EXACT, corpus).training_loss for config in (constant, slow)]
    assert moved[0][0] == moved[1][0]
    assert moved[0][2] < moved[1][2] - 0.2


def test_more_noise_ends_at_a_higher_loss(corpus):
    losses = []
    for variance in (1e-4, 1.0):
        loud = dataclasses.replace(NOISY, thermal_variance=variance)
        losses.append(train(SHORT, SMALL, Products.same(AnalogNumerics(loud)), corpus).validation_loss[-1])
    assert losses[1] > losses[0] + 0.3


def test_seconds_are_not_compared():
    one = curve((1,), (2.0,))
    assert dataclasses.replace(one, seconds=9.0) == one


def test_quick_run_is_shorter():
    assert TrainingConfig.quick(seed=4).steps < TrainingConfig().steps / 3
    assert TrainingConfig.quick(seed=4).seed == 4


def test_what_cannot_be_trained_is_refused(corpus):
    for name, value in (("steps", 0), ("batch", 0), ("learning_rate", 0.0), ("eval_every", 0), ("seed", -1)):
        with pytest.raises(ParameterError, match=name):
            dataclasses.replace(SHORT, **{name: value})
    text = np.zeros(10, dtype=np.uint8)
    with pytest.raises(WorkloadError, match="a window needs more than"):
        train(SHORT, SMALL, EXACT, Corpus(name="", train=text, validation=text, sha256=""))
    with pytest.raises(WorkloadError, match=r"vocabulary \(64\)"):
        train(SHORT, dataclasses.replace(SMALL, vocabulary=64), EXACT, corpus)
