"""Sparse draws of misread remainders against the dense law: Gaussian noise, rounded to whole steps."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import chi2

from optical.execution.spec import Residues, draw_misread

MODULI = (3, 4, 5, 7)
COUNT = 400_000
CONFIDENCE = 1e-4
"""Chance that a right law fails a test of chi-squares."""


def drawn(sigmas, seed=5, count=COUNT):
    residues = Residues(moduli=MODULI, sigmas=sigmas)
    return residues, draw_misread(residues, count, np.random.default_rng(seed))


def chances_of_steps(sigma, furthest=4):
    """How often noise of so many steps rms rounds to each whole number: the Gaussian's mass around it."""
    if sigma == 0.0:
        return {0: 1.0}
    return {
        step: float(ndtr((step + 0.5) / sigma) - ndtr((step - 0.5) / sigma))
        for step in range(-furthest, furthest + 1)
    }


def assert_frequencies(counts, expected):
    """Pearson's chi-square over outcomes that are expected five times or more, the rest together."""
    often = [key for key, value in expected.items() if value >= 5.0]
    rest = sum(counts.values()) - sum(counts.get(key, 0) for key in often)
    rare = sum(expected.values()) - sum(expected[key] for key in often)
    square = sum((counts.get(key, 0) - expected[key]) ** 2 / expected[key] for key in often)
    square += (rest - rare) ** 2 / rare if rare >= 1.0 else 0.0
    assert square < chi2.isf(CONFIDENCE, len(often))


@pytest.mark.parametrize("sigmas", [(0.0, 0.16, 0.0, 0.0), (0.2, 0.25, 0.3, 0.35), (0.6, 0.0, 0.5, 0.9)])
def test_shifts_are_as_frequent_as_rounded_gaussian_noise_of_every_remainder_makes_them(sigmas):
    """Chinese remainder theorem: errors add up by weight; joint chances are products of each remainder's."""
    residues, found = drawn(sigmas)
    expected = {}
    for steps in itertools.product(*(chances_of_steps(sigma).items() for sigma in sigmas)):
        if any(step for step, _ in steps):
            shift = sum(step * weight for (step, _), weight in zip(steps, residues.weights, strict=True))
            expected[shift] = expected.get(shift, 0.0) + COUNT * math.prod(chance for _, chance in steps)
    values, counts = np.unique(found.shift, return_counts=True)
    assert_frequencies(dict(zip(values.tolist(), counts.tolist(), strict=True)), expected)
    assert found.index.size == pytest.approx(
        COUNT * residues.wrong_sample, abs=5 * math.sqrt(COUNT * residues.wrong_sample)
    )


def test_misread_places_are_each_once_spread_evenly_and_independent():
    """Gaps between independent places are geometric; with one chance for all, every part holds as many."""
    residues, found = drawn((0.0, 0.0, 0.2, 0.0))
    chance = residues.wrong_sample
    assert np.all(np.diff(found.index) > 0)
    assert 0 <= found.index[0] < found.index[-1] < COUNT
    parts = np.bincount(found.index * 40 // COUNT, minlength=40)
    assert_frequencies(dict(enumerate(parts)), dict.fromkeys(range(40), found.index.size / 40))
    values, counts = np.unique(np.diff(found.index), return_counts=True)
    gaps = {gap: (found.index.size - 1) * chance * (1 - chance) ** (gap - 1) for gap in range(1, 2000)}
    assert_frequencies(dict(zip(values.tolist(), counts.tolist(), strict=True)), gaps)


def test_remainders_are_misread_independently_of_each_other():
    """Both wrong as often as the product of their chances; five standard errors."""
    residues, found = drawn((0.3, 0.0, 0.0, 0.3))
    first, _, _, last = residues.weights
    alone = {step * weight for weight in (first, last) for step in range(-4, 5)}
    both = sum(shift not in alone for shift in found.shift.tolist())
    expected = COUNT * residues.misreadings[0] * residues.misreadings[3]
    assert both == pytest.approx(expected, abs=5 * math.sqrt(expected))


def test_no_noise_misreads_nothing_and_much_noise_nearly_all():
    assert drawn((0.0,) * 4)[1].index.size == 0
    assert drawn((1e-3,) * 4)[1].index.size == 0
    residues, found = drawn((50.0,) * 4, count=1000)
    assert residues.wrong_sample > 1.0 - 1e-6
    assert found.index.tolist() == list(range(1000))


def test_rare_misreads_of_many_samples_cost_no_more_than_they_are():
    """Ten billion samples at one in a million: a dense draw would need 80 GB."""
    residues, found = drawn((0.0, 0.1022, 0.0, 0.0), count=10**10)
    expected = 1e10 * residues.wrong_sample
    assert 5_000 < expected < 20_000
    assert found.index.size == pytest.approx(expected, abs=5 * math.sqrt(expected))
    assert found.index[-1] < 10**10
