"""Rare cases of a product: all samples clipped, dither at the last code, draws that must be apart."""

import dataclasses
import importlib
import math

import pytest
import torch

from optical.execution import AnalogSpec, ProductSpecs, Rounding, Scale, kernels
from optical.execution.draws import Draws
from optical.execution.matmul import noisy_matmul
from optical.execution.numerics import AnalogNumerics
from optical.execution.operands import encode

noisy_matmul_module = importlib.import_module("optical.execution.matmul")

EIGHT_BITS = dataclasses.replace(
    AnalogSpec.ideal(), dac_bits=8.0, analog_length=64, rounding=Rounding.STOCHASTIC, scale=Scale.TENSOR
)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_clipping_at_either_end_of_the_range_is_counted_once(sign):
    """All samples are alike, so their rms is each of them, and a range of 0.9 rms clips every one."""
    spec = dataclasses.replace(
        AnalogSpec.ideal(), adc_bits=8.0, adc_enob_bits=8.0, adc_range_sigma=0.9, analog_length=64
    )
    a, b = torch.ones(1, 8, 64), torch.full((1, 64, 8), sign)
    assert AnalogNumerics(spec).clipped_fraction(a, b) == pytest.approx(1.0)


@pytest.mark.parametrize("compiled", [False, True])
def test_no_dither_reaches_beyond_the_last_code(compiled, monkeypatch):
    """One dither in 65536 is half a step, which would round the last code, -127, to -128."""
    if not compiled:
        monkeypatch.setattr(kernels, "available", lambda x: False)
    x = torch.full((1, 2**10, 2**10), -1.0)
    codes = encode(x, -1, EIGHT_BITS, Draws([5], x.device), loaded=False).codes
    assert codes.min() == -127


def test_poisson_numbers_of_two_detectors_are_drawn_apart():
    """Alike, their difference would have no shot noise: 100 000 pairs are correlated by less than 5 sigma."""
    draws, mean = Draws([3], torch.device("cpu")), torch.full((100_000,), 50.0)
    pair = torch.stack((draws.poisson(mean), draws.poisson(mean)))
    assert abs(float(torch.corrcoef(pair)[0, 1])) < 5.0 / math.sqrt(mean.numel())


def test_a_mapped_product_draws_what_a_batch_of_matrices_draws():
    """Row blocks hold whole matrices in both: here two of five."""
    spec = dataclasses.replace(AnalogSpec.ideal(), thermal_variance=1.0, analog_length=64)
    specs = ProductSpecs.same(spec, row_block=8)
    a, b = torch.randn(5, 4, 16), torch.randn(5, 16, 3)
    mapped = torch.func.vmap(lambda a, b: noisy_matmul(a, b, specs, 7, weight=False))(a, b)
    assert torch.equal(mapped, noisy_matmul(a, b, specs, 7, weight=False))
    assert not torch.equal(mapped, noisy_matmul(a, b, ProductSpecs.same(spec), 7, weight=False))


def test_derivatives_of_every_order_draw_apart():
    """A gradient of a gradient would repeat the noise of another product of the same key."""
    first = noisy_matmul_module._Call(
        texts=ProductSpecs.ideal().texts, weight=True, number=0, sums_rows=False, place=(0,), block=8,
        part_blocks=0, flags=0,
    )  # fmt: skip
    calls = order = [first]
    for _ in range(3):
        order = [noisy_matmul_module._derived_call(call, number) for call in order for number in (1, 2, 3, 4)]
        calls = calls + order
    assert len({call.number for call in calls}) == len(calls) == 1 + 4 + 16 + 64


@pytest.mark.parametrize("scale", [Scale.ROW, Scale.TENSOR])
def test_a_single_row_that_was_a_column_has_an_energy(scale):
    """Blocks of one row of a transposed operand lie in memory as a column does."""
    spec = dataclasses.replace(AnalogSpec.ideal(), dac_bits=8, shot_variance=1e-9, scale=scale)
    x, weight = torch.randn(96, 5).mT, torch.randn(96, 32)
    found = noisy_matmul(x, weight, ProductSpecs.same(spec, row_block=1), 3)
    assert (found - x @ weight).abs().max() < 0.05 * (x @ weight).abs().max()
