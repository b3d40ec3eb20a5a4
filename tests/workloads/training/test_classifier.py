"""Digits that every machine has, and the classifier that reads them."""

import dataclasses
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch

from optical.execution.numerics import CountingNumerics, Signs
from simulator.errors import ParameterError, WorkloadError
from workloads.training.classifier import (
    ClassifierConfig,
    Distortion,
    accuracy,
    draw_digits,
    train_classifier,
)

CONFIG = ClassifierConfig(epochs=5)


@cache
def digits(stream, count):
    return draw_digits(count, generator=np.random.default_rng(stream))


@cache
def trained():
    return train_classifier(CONFIG, digits(0, 1500))


def counted(photons, signs=Signs.PAIR):
    products = [CountingNumerics(photons_per_mac=photons, signs=signs)] * 3
    return accuracy(trained(), digits(1, 500), products, key=1)


def test_same_seed_same_digits_and_every_digit_as_often():
    one, other = digits(0, 1500), draw_digits(1500, generator=np.random.default_rng(0))
    assert one.sha256 == other.sha256
    assert one.sha256 != digits(1, 500).sha256
    assert (np.bincount(one.labels) == 150).all()
    assert one.images.dtype == np.float32
    assert one.images.min() == 0.0
    assert one.images.max() == 1.0


def test_another_resolution_shows_the_same_digits():
    clean = Distortion(noise=0.0)
    coarse, fine = (
        draw_digits(50, generator=np.random.default_rng(2), side=side, distortion=clean) for side in (28, 56)
    )
    assert (coarse.labels == fine.labels).all()
    averaged = fine.images.reshape(50, 28, 2, 28, 2).mean(axis=(2, 4)).reshape(50, -1)
    different = np.abs(averaged - coarse.images).mean()  # edges are sampled, not averaged
    assert different < 0.15 * np.abs(averaged - coarse.images[::-1]).mean()


def test_without_distortion_a_face_draws_a_digit_one_way():
    still = Distortion(rotation_rad=0.0, shear=0.0, scale=0.0, shift=0.0, noise=0.0)
    found = draw_digits(2000, generator=np.random.default_rng(0), distortion=still)
    ways = len(np.unique(found.images[found.labels == 4], axis=0))
    assert 5 < ways <= 20


def test_bad_sizes_are_refused():
    with pytest.raises(WorkloadError, match="side"):
        draw_digits(1, generator=np.random.default_rng(0), side=2)
    with pytest.raises(ParameterError, match="noise"):
        Distortion(noise=-1.0)
    with pytest.raises(WorkloadError, match="hidden"):
        ClassifierConfig(hidden=())
    with pytest.raises(WorkloadError, match="one per layer"):
        accuracy(trained(), digits(1, 500), [None], key=0)


def test_training_repeats_and_reads_digits_it_has_not_seen():
    brief = ClassifierConfig(epochs=1)
    one, again, other = (
        train_classifier(config, digits(1, 500))
        for config in (brief, brief, dataclasses.replace(brief, seed=1))
    )
    assert all(torch.equal(a, b) for a, b in zip(one.weights_KM, again.weights_KM, strict=True))
    assert not torch.equal(one.weights_KM[0], other.weights_KM[0])
    assert trained().widths == (784, 100, 100, 10)
    assert accuracy(trained(), digits(1, 500), [None] * 3, key=0) > 0.9


@pytest.mark.parametrize("signs", Signs)
def test_more_photons_read_better_up_to_exact_arithmetic(signs):
    """Chance without light, the digital accuracy with much; 500 images, so 2.2 % sigma at one half."""
    exact = accuracy(trained(), digits(1, 500), [None] * 3, key=0)
    found = [counted(photons, signs) for photons in (1e-9, 0.3, 3.0, 30.0, 1e6)]
    assert found[0] == pytest.approx(0.1, abs=1e-6)
    assert all(more > less - 0.03 for less, more in pairwise(found))
    assert found[-2] > found[0] + 0.4
    assert found[-1] == pytest.approx(exact, abs=0.005)
