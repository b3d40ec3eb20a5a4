"""Each noise term by mean, variance, tails and correlations over outputs, calls, keys, products and ranks.

The laws are those of the table in docs/noise.md (`noise_terms.py` beside this file). Every statistic is
bounded by 5 of its own standard errors over independent samples, a significance of 1e-6, with fixed keys.
"""

import dataclasses
import math

import pytest
import torch

from optical.execution import AnalogSpec, ProductSpecs
from optical.execution.matmul import noisy_matmul
from optical.execution.numerics import AnalogNumerics
from tests.optical.execution.noise_terms import COLUMNS, LENGTH, PER_CHIP, PER_LOAD, PER_USE, ROWS, alone

IDEAL = dataclasses.replace(AnalogSpec.ideal(), analog_length=LENGTH)
DRAWN = PER_USE | PER_LOAD
SAMPLES, CHIPS = 1000, 150


def samples_of(term):
    """Standardised errors of all outputs, one product a row, [samples, outputs]."""
    a, b = term.operands()
    a, b = (x.expand(SAMPLES // 2, *x.shape).contiguous() for x in (a, b))
    errors = torch.cat([AnalogNumerics(term.spec).matmul(a, b, key) - a @ b for key in (1, 2)])
    return (errors.flatten(1) - term.mean) / math.sqrt(term.variance)


def chips_of(term):
    """The same, one chip a row."""
    (a, b), errors = term.operands(), []
    for seed in range(CHIPS):
        spec = dataclasses.replace(term.spec, chip=dataclasses.replace(term.spec.chip, seed=seed))
        errors.append(AnalogNumerics(spec).matmul(a[None], b[None], 1)[0] - a @ b)
    return torch.stack(errors).flatten(1) / math.sqrt(term.variance)


def assert_mean(values, stated):
    """Independent values average to what is stated, within 5 standard errors of their own."""
    error = values.std().item() / math.sqrt(values.numel())
    assert values.mean().item() == pytest.approx(stated, abs=5 * error + 1e-9)


def assert_law(z, stated, skewness, excess):
    """Mean, variance, skewness and kurtosis; every pair of outputs, one by one and by classes of pairs."""
    assert_mean(z.mean(1), 0.0)
    assert_mean(z.square().mean(1), 1.0)
    assert_mean((z**3 - 3 * z).mean(1), skewness)
    assert_mean((z**4 - 6 * z**2 + 3).mean(1), excess)
    found = z.mT @ z / z.shape[0]
    spread = (1.0 + stated.square() * (1.0 + abs(excess))).div(z.shape[0]).sqrt()
    assert ((found - stated) / spread).abs().max() < 6.5  # of 7260 pairs
    apart = ~torch.eye(stated.shape[0], dtype=torch.bool)
    for value in stated[apart].unique().tolist():
        pairs = ((stated == value) & apart).double()
        assert_mean((z @ pairs * z).sum(1) / pairs.sum(), value)


@pytest.mark.parametrize("name", DRAWN | PER_CHIP)
def test_moments_and_correlations_of_outputs_are_those_of_the_law(name):
    term = (DRAWN | PER_CHIP)[name]
    z = chips_of(term) if name in PER_CHIP else samples_of(term)
    assert_law(z, term.correlation(ROWS, COLUMNS), term.skewness, term.excess)


def spread_evenly(seed, *shape):
    """Operands within the converter's codes, to stand beside one of full scale."""
    return 1.96 * torch.rand(shape, generator=torch.Generator().manual_seed(seed)).double() - 0.98


def test_rounding_of_an_operand_to_nearest_is_even_over_a_step():
    """Variance step^2/12, excess kurtosis -6/5, no correlation with neighbours nor with the code.

    Widrow, Kollar, "Quantization Noise", Cambridge 2008, chapter 4: exact for operands spread evenly.
    """
    bits, x = 6, spread_evenly(1, SAMPLES, ROWS, COLUMNS + 1)
    step = 1.0 / (2 ** (bits - 1) - 1)
    x[..., -1] = 1.0
    spec = dataclasses.replace(IDEAL, dac_bits=bits)
    eye = torch.eye(COLUMNS + 1).double().expand(SAMPLES, -1, -1).contiguous()
    read = [AnalogNumerics(spec).matmul(x, eye, key)[..., :-1].flatten(1) for key in (1, 2)]
    assert torch.equal(*read)
    z = (read[0] - x[..., :-1].flatten(1)) / (step / math.sqrt(12.0))
    assert_law(z, alone(ROWS, COLUMNS), 0.0, -1.2)
    assert_mean((z * read[0]).mean(1), 0.0)


@pytest.mark.parametrize(("length", "exact", "excess"), [(1, False, -1.2), (2, True, -0.6), (2, False, 0.0)])
def test_rounding_of_an_output_is_even_over_a_step_of_each_sample(length, exact, excess):
    """One sample or two; collapsed into one draw they keep the variance and have a Gaussian's tails."""
    bits = 8
    a, b = (spread_evenly(2, SAMPLES, m, n) for m, n in ((ROWS, length * LENGTH), (length * LENGTH, COLUMNS)))
    a[..., 0], b[:, 0] = 1.0, 1.0
    step = 2.0 * LENGTH / 2**bits
    spec = dataclasses.replace(IDEAL, adc_bits=bits, adc_enob_bits=bits)
    found = AnalogNumerics(spec, exact_tiles=exact).matmul(a, b, 1)
    z = (found - a @ b).flatten(1) / (step * math.sqrt(length / 12.0))
    assert_law(z, alone(ROWS, COLUMNS), 0.0, excess)


@pytest.mark.parametrize("name", [name for name in DRAWN if not DRAWN[name].excess])
def test_tails_are_as_heavy_as_the_laws(name):
    """Share of errors beyond 2 and beyond 3 deviations."""
    z = samples_of(DRAWN[name])
    for far in (2.0, 3.0):
        assert_mean((z.abs() > far).double().mean(1), math.erfc(far / math.sqrt(2.0)))


BLOCK, BLOCKS = 96, 2
"""Rows of a block, many enough that the same draws twice would be seen where rows or lines share them."""


def errors_of(term, key=1, **options):
    """Standardised errors of a product of several row blocks."""
    a, b = term.operands(BLOCK * BLOCKS, LENGTH)
    out = noisy_matmul(a, b, ProductSpecs.same(term.spec, row_block=BLOCK), key, **options)
    return (out - a @ b - term.mean) / math.sqrt(term.variance)


def shares_of(correlation):
    """How far means over correlated outputs scatter: of errors, and of their squares."""
    return [correlation.pow(order).norm().item() for order in (1, 2)]


def assert_apart(one, other, shares):
    """Two sets of errors are uncorrelated, and so are their squares; outputs of each share draws."""
    count = one.numel()
    for order, share in enumerate(shares, 1):
        x, y = (z if order == 1 else z.square() - z.square().mean() for z in (one, other))
        each = math.sqrt((x.square().mean() * y.square().mean()).item())
        bound = 5 * each * share / count
        assert abs((x * y).mean().item()) < bound


@pytest.mark.parametrize("name", DRAWN)
def test_keys_layers_calls_and_parts_of_a_batch_draw_apart(name):
    term = DRAWN[name]
    base = errors_of(term)
    blocks = shares_of(term.correlation(BLOCK, LENGTH))
    across = 1.0 if name in PER_LOAD else 0.0
    for other in (errors_of(term, key=2), errors_of(term, place=(1,)), errors_of(term, place=(0, 1))):
        for one, two in zip(base.split(BLOCK), other.split(BLOCK), strict=True):
            assert_apart(one, two, blocks)
    elsewhere = errors_of(term, first_block=BLOCKS)
    parts = [*base.split(BLOCK), *elsewhere.split(BLOCK)]
    for number, part in enumerate(parts[1:], 1):
        if across:
            assert torch.equal(part, parts[0])
        else:
            assert_apart(parts[number - 1], part, blocks)


@pytest.mark.parametrize("name", DRAWN)
def test_the_three_products_of_training_draw_apart(name):
    """Square products of like operands, so that the same draws would give alike errors."""
    term, found = DRAWN[name], []
    a, b = (x.requires_grad_() for x in term.operands(LENGTH, LENGTH))
    grad, specs = (a * b).detach(), ProductSpecs.same(term.spec, row_block=LENGTH)
    exact = [a @ b, grad @ b.mT, a.mT @ grad]
    for key in range(1, 9):
        out = noisy_matmul(a, b, specs, key)
        products = (out, *torch.autograd.grad(out, (a, b), grad))
        found.append([(one - other).detach() for one, other in zip(products, exact, strict=True)])
    forward, grad_input, grad_weight = (torch.stack(errors) for errors in zip(*found, strict=True))
    shares = [share * math.sqrt(8) for share in shares_of(term.correlation(LENGTH, LENGTH))]
    for one, other in ((forward, grad_input), (forward, grad_weight), (grad_input, grad_weight)):
        assert one.std() > 0.0 < other.std()
        assert_apart(one - one.mean(), other - other.mean(), shares)


@pytest.mark.parametrize("name", DRAWN | PER_CHIP)
def test_ranks_that_hold_whole_row_blocks_draw_what_one_process_draws(name):
    """Rows of a product, matrices of a batch, and gradients, whoever holds them; only B's is summed."""
    term = (DRAWN | PER_CHIP)[name]
    specs, rows = ProductSpecs.same(term.spec, row_block=ROWS), 4 * ROWS
    a, b = term.operands(rows, COLUMNS)
    grad = torch.linspace(-1.0, 1.0, rows * COLUMNS).double().view(rows, COLUMNS)

    def run(a, grad, first):
        a, weight = a.clone().requires_grad_(), b.clone().requires_grad_()
        out = noisy_matmul(a, weight, specs, 5, first_block=first)
        return out.detach(), *torch.autograd.grad(out, (a, weight), grad)

    whole = run(a, grad, 0)
    ranks = [
        run(a[half], grad[half], first) for half, first in ((slice(2 * ROWS), 0), (slice(2 * ROWS, None), 2))
    ]
    for number in (0, 1):
        assert torch.equal(whole[number], torch.cat([rank[number] for rank in ranks]))
    torch.testing.assert_close(whole[2], ranks[0][2] + ranks[1][2], rtol=1e-5, atol=1e-5)
    exact = a @ b
    assert not torch.allclose(whole[0], exact, rtol=0.0, atol=1e-4)
