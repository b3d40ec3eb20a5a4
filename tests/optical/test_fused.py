"""Compiled passes do what torch does, from the same draws."""

import dataclasses
import math

import pytest
import torch

import optical.execution.fused
import optical.execution.fused_threads
from optical.cores import load_core
from optical.execution import AnalogSpec, ProductSpecs, Rounding, Scale
from optical.execution.draws import Draws
from optical.execution.matmul import noisy_matmul
from optical.execution.numerics import AnalogNumerics
from optical.execution.operand_blocks import Target
from simulator.operators import Phase

numba = pytest.importorskip("numba")

CONVERTERS = dataclasses.replace(
    AnalogSpec.ideal(),
    dac_bits=8,
    adc_bits=9,
    adc_enob_bits=8,
    adc_range_sigma=4.0,
    analog_length=400,
    thermal_variance=1e-3,
)
SPECS = {
    "one sample": CONVERTERS,
    "noise by rows and columns": dataclasses.replace(CONVERTERS, shot_variance=1e-4),
    "several samples": dataclasses.replace(
        CONVERTERS, analog_length=64, rin_variance=1e-4, shot_variance=1e-4, adc_range_sigma=8.0
    ),
    "laser noise alone": dataclasses.replace(
        CONVERTERS, analog_length=64, rin_variance=1e-3, adc_range_sigma=8.0
    ),
    "twelve bits": dataclasses.replace(CONVERTERS, dac_bits=12, adc_bits=12, adc_enob_bits=12),
    "no noise": dataclasses.replace(CONVERTERS, thermal_variance=0.0, adc_enob_bits=9),
    "no converter": dataclasses.replace(CONVERTERS, adc_bits=math.inf, adc_enob_bits=math.inf),
    "crossbar": load_core("crossbar").analog(Phase.GRAD_INPUT),
}


@pytest.fixture
def without(monkeypatch):
    """Return a function that runs another one as where numba is missing."""

    def run(function):
        with monkeypatch.context() as patch:
            patch.setattr(optical.execution.fused, "_kernels", lambda: None)
            return function()

    return run


@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize("scale", [Scale.ROW, Scale.TENSOR])
@pytest.mark.parametrize("shape", [(1, 300, 300, 96), (6, 40, 200, 48), (1, 7, 30, 5)], ids=str)
@pytest.mark.parametrize("name", SPECS)
def test_compiled_passes_agree_with_torch(name, shape, scale, rounding, without):
    """The same codes, sums and draws: what differs is the order of additions in sums of squares."""
    batch, m, k, n = shape
    generator = torch.Generator().manual_seed(3)
    a = torch.randn(batch, m, k, generator=generator)
    b = torch.randn(batch, n, k, generator=generator).mT
    numerics = AnalogNumerics(dataclasses.replace(SPECS[name], scale=scale, rounding=rounding))
    found, expected = numerics.matmul(a, b, 5), without(lambda: numerics.matmul(a, b, 5))
    worst = (found - expected).abs() / expected.square().mean().sqrt()
    assert float((worst > 1e-5).float().mean()) < 1e-3  # a code of the converter, here and there


def test_numbers_that_are_none_stay_so():
    """A diverged model must not look like one that trains."""
    a, b = torch.randn(1, 8, 40), torch.randn(1, 40, 8)
    a[0, 3, 4] = math.nan
    found = AnalogNumerics(CONVERTERS).matmul(a, b, 1)
    assert found[0, 3].isnan().all()
    assert found[0, :3].isfinite().all() or found.isnan().all()


def test_gradients_agree_with_torch(without):
    specs = ProductSpecs.same(SPECS["crossbar"], row_block=64)

    def gradients():
        generator = torch.Generator().manual_seed(4)
        x, weight = (torch.randn(96, 96, generator=generator).requires_grad_() for _ in range(2))
        noisy_matmul(x, weight, specs, 9).square().sum().backward()
        return x.grad, weight.grad

    for found, expected in zip(gradients(), without(gradients), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize("scale", [Scale.ROW, Scale.TENSOR])
@pytest.mark.parametrize("shape", [(1, 130, 90, 70), (3, 40, 70, 48)], ids=str)
@pytest.mark.parametrize("name", ["several samples", "twelve bits"])
def test_parts_in_threads_give_the_same_bits(name, shape, scale, rounding, monkeypatch):
    batch, m, k, n = shape
    generator = torch.Generator().manual_seed(3)
    a = torch.randn(batch, m, k, generator=generator)
    b = torch.randn(batch, k, n, generator=generator)
    numerics = AnalogNumerics(dataclasses.replace(SPECS[name], scale=scale, rounding=rounding))
    whole = numerics.matmul(a, b, 5)
    monkeypatch.setattr(optical.execution.fused_threads, "_FEWEST", 100)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(numerics.matmul(a, b, 5), whole)


def test_words_do_not_depend_on_how_many_are_taken_at_once(without):
    def words(*counts):
        draws = Draws(9, torch.device("cpu"))
        return [int(word) for count in counts for word in draws.words(count)]

    assert words(3, 1, 6, 5) == words(15) == without(lambda: words(7, 8))


@pytest.mark.parametrize("name", SPECS)
def test_a_product_goes_where_it_is_told(name):
    generator = torch.Generator().manual_seed(3)
    a, b = torch.randn(1, 30, 70, generator=generator), torch.randn(1, 70, 20, generator=generator)
    numerics = AnalogNumerics(SPECS[name])
    alone, known = numerics.matmul(a, b, 5), torch.randn(1, 30, 20, generator=generator)
    memory = known.clone()
    assert numerics.matmul(a, b, 5, target=Target(memory, adds=True)) is memory
    assert torch.equal(memory, known + alone)
    numerics.matmul(a, b, 5, target=Target(memory, adds=False))
    assert torch.equal(memory, alone)
