"""Laws of executed noise on every road of a product: integer codes, halves, floats; even or odd; batches.

Noise is taken against the product of the rounded operands, so that nothing but the noise is left.
Significance 1e-6 (5 standard errors) for each statistic, with fixed keys.
"""

import dataclasses
import math

import pytest
import torch

from optical.cores import CORES, load_core
from optical.execution import AnalogSpec, ProductSpecs, Rounding, Scale
from optical.execution.matmul import noisy_matmul
from optical.execution.numerics import AnalogNumerics
from optical.execution.spec import Residues, Shot, largest_code
from simulator.operators import Phase

LENGTH = 36
SHAPES = {"even": (1, 192, LENGTH, 160), "odd": (1, 192, LENGTH, 161), "batch": (6, 60, LENGTH, 80)}
"""Even numbers of columns are finished in compiled passes where those are there, odd ones in torch."""


def operands(batch, m, k, n, seed=0):
    """Operands whose rows, columns and elements differ in energy."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(batch, m, k, generator=generator) ** (1 + 2 * torch.arange(m).view(1, m, 1).remainder(2))
    b = torch.randn(batch, k, n, generator=generator) ** (1 + 2 * torch.arange(n).remainder(2))
    return a, b


def rounded(x, bits, dim):
    """Operand in full scales on its converter's grid, in double precision, and its full scale."""
    scale = x.abs().amax(dim, keepdim=True)
    if math.isinf(bits):
        return x.double() / scale.double(), scale.double()
    levels = largest_code(bits)
    return (x * (levels / scale)).round().double() / levels, scale.double()


def standardised(term, bits, shape, variance=1e-3):
    """Noise over its law's deviation, and the law, for one term alone."""
    a, b = operands(*shape)
    spec = dataclasses.replace(AnalogSpec.ideal(), analog_length=LENGTH, dac_bits=bits, **{term: variance})
    found = AnalogNumerics(spec).matmul(a, b, 1).double()
    (x, x_scale), (y, y_scale) = rounded(a, bits, -1), rounded(b, bits, -2)
    energy = x.square().sum(-1, keepdim=True) + y.square().sum(-2, keepdim=True)
    law = {
        "thermal_variance": torch.ones_like(energy),
        "shot_variance": energy,
        "encoding_variance": energy,
        "rin_variance": x.square() @ y.square(),
    }[term]
    return (found / (x_scale * y_scale) - x @ y) / (variance * law).sqrt(), law


def assert_uncorrelated(one, other):
    bound = 5 / math.sqrt(one.numel())
    assert abs((one * other).mean()) < bound
    assert abs(((one.square() - 1) * (other.square() - 1)).mean() / 2) < 2 * bound


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bits", [8, 12, math.inf])
@pytest.mark.parametrize("term", ["thermal_variance", "shot_variance", "rin_variance", "encoding_variance"])
def test_every_term_keeps_its_law_on_every_road(term, bits, shape):
    """Mean, variance (where the law is small and where it is large), kurtosis, tails, and neighbours."""
    z, law = standardised(term, bits, SHAPES[shape])
    count, fourth = z.numel(), math.sqrt(96 / z.numel())
    assert abs(z.mean()) < 5 / math.sqrt(count)
    assert abs(z.var() - 1) < 5 * math.sqrt(2 / count) + 1e-3  # sums of squares in single precision
    assert abs((z**4).mean() - 3) < 5 * fourth
    beyond = 2 * torch.special.ndtr(torch.tensor(-3.0, dtype=torch.float64)).item()
    assert abs((z.abs() > 3).double().mean() - beyond) < 5 * math.sqrt(beyond / count)
    assert z.abs().max() < 4.4
    if law.numel() == count:
        order = law.flatten().argsort()
        for part in z.flatten()[order].chunk(8):
            assert abs(part.square().mean() - 1) < 5 * math.sqrt(2 / part.numel()) + 1e-3
    for one, other in ((z[..., 1:], z[..., :-1]), (z[..., 2:], z[..., :-2]), (z[:, 1:], z[:, :-1])):
        assert_uncorrelated(one, other)
    if z.shape[0] > 1:
        assert_uncorrelated(z[1:], z[:-1])


QUIET = {
    "thermal_variance": 0.0,
    "shot_variance": 0.0,
    "rin_variance": 0.0,
    "encoding_variance": 0.0,
    "load_variance": 0.0,
    "adc_range_sigma": math.inf,
    "rounding": Rounding.NEAREST,
    "residues": None,
    "tile": None,
    "chip": None,
    "common": None,
}


@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.GRAD_WEIGHT])
@pytest.mark.parametrize("name", CORES)
def test_a_quiet_core_is_the_quantised_reference_bit_for_bit(name, phase):
    """Its own converters, scales, length of a sample and gain; written anew here, sample by sample."""
    spec = dataclasses.replace(load_core(name).analog(phase), **QUIET)
    spec = dataclasses.replace(spec, adc_enob_bits=spec.adc_bits)
    n = spec.analog_length
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(shape, generator=generator) for shape in ((21, 2 * n), (2 * n, 30)))
    executed = AnalogNumerics(spec, exact_tiles=True).matmul(a[None], b[None], 1)[0]
    levels = 2 ** (int(spec.dac_bits) - 1) - 1
    gain = (1 / levels) ** 2 * spec.product_gain
    total = torch.zeros(21, 30)
    for tile in (slice(n), slice(n, 2 * n)):
        a_tile, b_tile = a[:, tile], b[tile]
        a_all, b_all = (a_tile, b_tile) if spec.scale is Scale.BLOCK else (a, b)
        a_scale, b_scale = a_all.abs().amax(1, keepdim=True), b_all.abs().amax(0, keepdim=True)
        a_codes, b_codes = (a_tile * (levels / a_scale)).round(), (b_tile * (levels / b_scale)).round()
        read = (a_codes.double() @ b_codes.double()).float()
        unit = a_scale * gain
        if math.isfinite(spec.adc_bits):
            step, most = (
                torch.tensor(n / gain) * 2.0 ** (1 - spec.adc_bits),
                2 ** (int(spec.adc_bits) - 1) - 1,
            )
            read, unit = (read * (1.0 / step)).round().clamp(-most, most), unit * step
        total = total + read * unit * b_scale
    assert torch.equal(executed, total)


@pytest.mark.parametrize("scale", [Scale.ROW, Scale.TENSOR])
@pytest.mark.parametrize("bits", [4, 10])
@pytest.mark.parametrize("second", [False, True])
def test_stochastic_rounding_is_unbiased_point_by_point(second, bits, scale):
    """Bernoulli between two codes: mean x and variance f (1 - f), f the part above the lower code."""
    keys, size = 300, 24
    x = 2 * torch.rand(size, size, generator=torch.Generator().manual_seed(3)) - 1
    x.fill_diagonal_(1.0)
    eye = torch.eye(size)
    spec = dataclasses.replace(
        AnalogSpec.ideal(), dac_bits=bits, analog_length=size, rounding=Rounding.STOCHASTIC, scale=scale
    )
    pair = (eye, x) if second else (x, eye)
    codes = largest_code(bits) * x.double()
    part = codes - codes.floor()
    drawn = torch.stack(
        [AnalogNumerics(spec).matmul(pair[0][None], pair[1][None], key)[0].double() for key in range(keys)]
    )
    error = drawn.mul(largest_code(bits)) - codes
    assert (error.abs() > 1.01).double().mean() < 2e-3  # the other operand's 1 is rounded too, now and then
    spread = (part * (1 - part)).clamp(min=1e-2)
    assert (error.mean(0) / (spread / keys).sqrt()).abs().max() < 6  # binomial, rare codes skewed
    assert error.square().mean().item() == pytest.approx((part * (1 - part)).mean().item(), rel=0.02)
    apart = [error[1:] * error[:-1], error[..., 1:] * error[..., :-1], error[:, 1:] * error[:, :-1]]
    for product in apart:
        assert abs(product.mean()) < 5 * (1 / 6) / math.sqrt(product.numel())


@pytest.mark.parametrize(("scale", "length"), [(Scale.ROW, 64), (Scale.BLOCK, 16), (Scale.BLOCK, 64)])
def test_an_element_that_is_loaded_errs_alike_in_all_row_blocks(scale, length):
    """One load for all blocks of a batch; another key, another load."""
    spec = dataclasses.replace(AnalogSpec.ideal(), load_variance=1e-3, scale=scale, analog_length=length)
    specs = ProductSpecs.same(spec, row_block=64)
    a, b = torch.eye(64).repeat(3, 1), operands(1, 1, 64, 24)[1][0]
    blocks = noisy_matmul(a, b, specs, 1).split(64)
    assert torch.equal(blocks[0], blocks[1])
    assert torch.equal(blocks[0], blocks[2])
    full = b.unflatten(0, (-1, length)).abs().amax(1).repeat_interleave(length, 0)
    errors = [(noisy_matmul(a, b, specs, key)[:64] - b) / full for key in (1, 2)]
    assert errors[0].square().mean().item() == pytest.approx(1e-3, rel=5 * math.sqrt(2 / b.numel()))
    assert abs((errors[0] * errors[1]).mean()) / 1e-3 < 5 / math.sqrt(b.numel())


def test_gradients_have_the_same_bits_on_any_number_of_threads():
    a, b = operands(1, 512, 384, 320)
    specs = ProductSpecs.of(load_core("crossbar").analog, row_block=256)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            leaves = [x[0].clone().requires_grad_() for x in (a, b)]
            out = noisy_matmul(*leaves, specs, 3)
            found.append([out.detach(), *torch.autograd.grad(out, leaves, torch.ones_like(out))])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def test_a_collapsed_sum_has_the_converter_noise_of_all_its_samples():
    """T (2 R / 2^enob)^2 / 12, R from all samples: none of this product is left out of its probe."""
    a, b = (x.sign() for x in operands(1, 64, 8 * LENGTH, 64))
    converter = dataclasses.replace(
        AnalogSpec.ideal(), analog_length=LENGTH, adc_bits=8, adc_enob_bits=5, adc_range_sigma=4.5
    )
    samples = torch.stack([x @ y for x, y in zip(a.split(LENGTH, 2), b.split(LENGTH, 1), strict=True)])
    range_ = 4.5 * samples.square().mean().sqrt().item()
    assert range_ < LENGTH
    noise = torch.cat([AnalogNumerics(converter).matmul(a, b, key).double() - a @ b for key in range(5)])
    stated = 8 * (2 * range_ / 2**5) ** 2 / 12
    assert noise.var().item() == pytest.approx(stated, rel=5 * math.sqrt(2 / noise.numel()))


def test_counts_of_two_keys_are_uncorrelated():
    counted = dataclasses.replace(
        AnalogSpec.ideal(), analog_length=LENGTH, shot_variance=0.02, shot=Shot.COUNTED
    )
    a, b = (
        x / x.abs().amax(dim, keepdim=True)
        for x, dim in zip(operands(1, 128, LENGTH, 64), (-1, -2), strict=True)
    )
    one, other = (AnalogNumerics(counted).matmul(a, b, key).double() - a @ b for key in (1, 2))
    deviation = (0.02 * (a.square().sum(-1, keepdim=True) + b.square().sum(-2, keepdim=True))).sqrt()
    assert_uncorrelated(one / deviation, other / deviation)
    assert_uncorrelated((one / deviation)[..., 1:], (one / deviation)[..., :-1])


@pytest.mark.parametrize(
    ("scale", "residues"),
    [
        (Scale.ROW, None),
        (Scale.BLOCK, None),
        (Scale.BLOCK, Residues(moduli=(31, 32, 33), sigmas=(0.0, 0.0, 0.0))),
    ],
)
def test_an_element_that_is_rounded_by_chance_is_so_for_all_row_blocks(scale, residues):
    """The last block is short."""
    spec = dataclasses.replace(
        AnalogSpec.ideal(),
        dac_bits=4,
        rounding=Rounding.STOCHASTIC,
        scale=scale,
        analog_length=16,
        residues=residues,
    )
    specs, b = ProductSpecs.same(spec, row_block=48), operands(1, 1, 48, 24)[1][0]
    drawn = noisy_matmul(torch.eye(48).repeat(3, 1)[:136], b, specs, 1)
    assert torch.equal(drawn[:48], drawn[48:96])
    assert torch.equal(drawn[:40], drawn[96:])
    assert not torch.equal(drawn[:48], noisy_matmul(torch.eye(48), b, specs, 2))
