"""Laws of executed noise: significance 1e-6 (5 standard errors) for each statistic, with fixed keys."""

import dataclasses
import itertools
import math
import warnings

import pytest
import torch

import optical.execution.readout
from optical.cores import load_core
from optical.execution import AnalogSpec, ProductSpecs, Scale
from optical.execution.draws import Draws
from optical.execution.matmul import noisy_matmul
from optical.execution.numerics import AnalogNumerics
from optical.noise.link_budget import OscillatorBudget
from simulator.errors import ClippingWarning, SuspectWarning
from simulator.operators import Phase
from simulator.parameter_tree import replace_at
from tests.builders import cores_that

CORES_WITH_NOISE = cores_that(lambda core: core.analog(Phase.FORWARD).residues is None)
THERMAL = dataclasses.replace(AnalogSpec.ideal(), analog_length=64, thermal_variance=1.0)


def spec(**changes):
    return dataclasses.replace(AnalogSpec.ideal(), **changes)


def gaussians(key, count=2**13):
    return Draws([key], torch.device("cpu")).gaussian(torch.Size((count,)), torch.float64)


def standard(noise):
    """Return noise with zero mean and unit variance, in a row."""
    flat = noise.detach().double().flatten()
    return (flat - flat.mean()) / flat.std()


@pytest.mark.parametrize("name", CORES_WITH_NOISE)
def test_measured_signal_over_noise_is_the_link_budgets(name):
    """Full-scale samples, all products +1, read by the receiver alone: n^2 over their variance.

    What one laser does to all inputs and the oscillator of a mesh adds up in its budget and averages in
    execution, which counts operands as uncorrelated (`OscillatorBudget`).
    """
    core = replace_at(load_core(name), "chip.laser_noise", "independent")
    receiver = dataclasses.replace(
        core.analog(Phase.FORWARD),
        dac_bits=math.inf,
        adc_bits=math.inf,
        adc_enob_bits=math.inf,
        encoding_variance=0.0,
        load_variance=0.0,
        chip=None,
    )
    n = receiver.analog_length
    samples = AnalogNumerics(receiver).matmul(torch.ones(1, 256, n), torch.ones(1, n, 256), 1).double()
    ratio = 1.0 / core.budget.snr
    if isinstance(core.budget, OscillatorBudget):
        ratio -= core.budget.rin_variance * (1.0 - 1.0 / n)
    assert samples.var().item() / n**2 == pytest.approx(ratio, rel=5 * math.sqrt(2 / 256**2))


def test_adjacent_keys_are_uncorrelated():
    """64 keys in a row: no pair's correlation, nor that of squares, stands out of its distribution."""
    draws = torch.stack([gaussians(key) for key in range(64)])
    for values in (draws, (draws.square() - 1) / math.sqrt(2)):
        correlation = values @ values.mT / values.shape[1]
        pairs = correlation[torch.triu(torch.ones(64, 64), 1) == 1] * math.sqrt(values.shape[1])
        assert pairs.abs().max() < 5.5  # of 2016 pairs
        assert abs(pairs.mean()) < 5 / math.sqrt(pairs.numel())
        assert pairs.square().mean() == pytest.approx(1, abs=5 * math.sqrt(2 / pairs.numel()))


@pytest.mark.parametrize("lag", [1, 2, 3, 7, 8, 64])
def test_draws_of_one_key_are_uncorrelated_at_every_lag(lag):
    x = gaussians(11, 2**18)
    count = x.numel() - lag
    assert abs((x[:-lag] * x[lag:]).mean()) < 5 / math.sqrt(count)
    squares = (x.square() - 1) / math.sqrt(2)
    assert abs((squares[:-lag] * squares[lag:]).mean()) < 5 / math.sqrt(count)


def test_gaussians_fill_equally_likely_cells():
    """Pearson's chi-square over 64 cells, within 5 standard deviations of its mean; moments to the sixth."""
    x = gaussians(12, 2**18)
    cells = (torch.special.ndtr(x) * 64).long().clamp(0, 63)
    expected = x.numel() / 64
    chi_square = ((torch.bincount(cells, minlength=64) - expected).square() / expected).sum().item()
    assert abs(chi_square - 63) < 5 * math.sqrt(2 * 63)
    for order, moment, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)):
        bound = 5 * math.sqrt(spread / x.numel()) + (0.15 if order == 6 else 0.0)  # none beyond 4.3 sigma
        assert abs((x**order).mean() - moment) < bound


def test_row_blocks_calls_and_products_draw_apart():
    """Blocks of a batch, as ranks hold them, calls of two steps, and the three products of training."""
    a = torch.ones(2048, 64).requires_grad_()
    b = torch.ones(64, 64).requires_grad_()
    specs = ProductSpecs.same(THERMAL, row_block=256)
    noise = [block.detach() - 64 for block in noisy_matmul(a, b, specs, 1).split(256)]
    noise += [(noisy_matmul(a, b, specs, 2) - 64).detach()[:256]]
    noise += [noisy_matmul(a, b, specs, 1, first_block=8).detach()[:256] - 64]
    grads = torch.autograd.grad(noisy_matmul(a, b, specs, 1), (a, b), torch.ones(2048, 64))
    noise += [block - 64 for block in grads[0].split(256)]
    of_weight = grads[1] - 2048
    places = [slice(start, start + 64) for start in range(0, 256, 64)]
    z = torch.stack([standard(each) for each in noise])
    correlation = (z @ z.mT / z.shape[1]).fill_diagonal_(0.0)
    assert correlation.abs().max() < 5.5 / math.sqrt(z.shape[1])
    z = torch.stack([standard(of_weight), *(standard(each[place]) for each in noise for place in places)])
    assert (z[1:] @ z[0] / z.shape[1]).abs().max() < 5.5 / math.sqrt(z.shape[1])
    again = torch.autograd.grad(noisy_matmul(a, b, specs, 2), b, torch.ones(2048, 64))[0] - 2048
    assert abs((standard(of_weight) * standard(again)).mean()) < 5 / math.sqrt(z.shape[1])


def test_row_blocks_of_a_weights_gradient_add_their_variances():
    """Eight blocks of four samples each: the sum errs by 32 samples, not by the square of eight blocks."""
    a, b = torch.ones(2048, 64), torch.ones(64, 64, requires_grad=True)
    product = noisy_matmul(a, b, ProductSpecs.same(THERMAL, row_block=256), 1)
    noise = torch.autograd.grad(product, b, torch.ones(2048, 64))[0].double() - 2048
    assert noise.square().mean().item() == pytest.approx(32.0, rel=5 * math.sqrt(2 / noise.numel()))


def test_output_codes_are_as_likely_as_the_gaussian_says():
    """Chi-square over the codes of a converter that reads a constant with Gaussian noise of 1.5 steps."""
    length, bits = 4, 4
    step = 2.0 * length / 2**bits
    converter = spec(
        analog_length=length,
        adc_bits=bits,
        adc_enob_bits=bits,
        adc_range_sigma=math.inf,
        thermal_variance=(1.5 * step) ** 2,
    )
    a = torch.zeros(1, 512, length)
    a[..., 0] = 1.0
    c = AnalogNumerics(converter).matmul(a, torch.ones(1, length, 512), 3)
    codes = (c / step).round().long().flatten()
    middle = torch.arange(-6, 7, dtype=torch.float64)
    below = torch.special.ndtr((torch.cat([middle, middle[-1:] + 1]) - 0.5 - 1.0 / step) / 1.5)
    likely = torch.cat([below[:1], below.diff(), 1 - below[-1:]])
    counted = torch.bincount(codes + 7, minlength=15).double()
    expected = likely * codes.numel()
    enough = expected > 25
    chi_square = ((counted - expected).square() / expected)[enough].sum().item()
    cells = int(enough.sum())
    assert cells >= 12
    assert abs(chi_square - cells) < 5 * math.sqrt(2 * cells)


@pytest.mark.parametrize("mean", [0.5, 5.0, 500.0])
def test_counted_photons_are_poisson_numbers(mean):
    """Dispersion: (n - 1) s^2 / mean is chi-square; skewness 1/sqrt(mean), which bright light loses."""
    count = 2**16
    x = Draws([5], torch.device("cpu")).poisson(torch.full((count,), mean))
    assert torch.equal(x, x.round())
    assert x.mean().item() == pytest.approx(mean, abs=5 * math.sqrt(mean / count))
    dispersion = ((x - x.mean()).square().sum() / mean).item()
    kurtosis = 1 / mean
    assert abs(dispersion - (count - 1)) < 5 * math.sqrt((2 + kurtosis) * count)
    skewness = (((x - mean) / math.sqrt(mean)) ** 3).mean().item()
    sixth = 15 + 25 / mean + 1 / mean**2 * 31  # bounds the standardised sixth moment
    assert skewness == pytest.approx(1 / math.sqrt(mean), abs=5 * math.sqrt(sixth / count))


@pytest.mark.parametrize("scale", [Scale.ROW, Scale.TENSOR])
@pytest.mark.parametrize("shape", [(40, 90, 30), (256, 200, 300)])
def test_noise_off_is_the_quantised_reference_bit_for_bit(shape, scale):
    """Codes rounded, summed as integers, read on the converter's grid; written anew here, in plain torch."""
    m, k, n = shape
    generator = torch.Generator().manual_seed(1)
    a, b = torch.randn(m, k, generator=generator), torch.randn(k, n, generator=generator)
    converters = spec(
        dac_bits=8, adc_bits=10, adc_enob_bits=10, adc_range_sigma=math.inf, analog_length=k, scale=scale
    )
    executed = AnalogNumerics(converters).matmul(a[None], b[None], 1)[0]
    by_row = scale is Scale.ROW
    a_scale = a.abs().amax(1, keepdim=True) if by_row else a.abs().amax()
    b_scale = b.abs().amax(0, keepdim=True) if by_row else b.abs().amax()
    a_codes, b_codes = (a * (127.0 / a_scale)).round(), (b * (127.0 / b_scale)).round()
    total = (a_codes.double() @ b_codes.double()).float()
    step = torch.tensor(k / (1 / 127) ** 2) * 2.0**-9
    read = (total * (1.0 / step)).round().clamp(-511, 511)
    unit = a_scale * (1 / 127) ** 2 * step
    assert torch.equal(executed, read * unit * b_scale if by_row else read * (unit * b_scale))
    assert torch.equal(executed, noisy_matmul(a, b, ProductSpecs.same(converters, row_block=m), 1))


def test_bits_to_infinity_reach_the_float_product():
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(1, 50, 50, generator=generator, dtype=torch.float64) for _ in range(2))
    errors = [
        (AnalogNumerics(spec(dac_bits=bits, analog_length=50)).matmul(a, b, 1) - a @ b).abs().max().item()
        for bits in (10, 20, 30, 40)
    ]
    assert all(fine < coarse / 500 for coarse, fine in itertools.pairwise(errors))
    assert errors[-1] < 1e-10


CLIPPED = spec(dac_bits=8, adc_bits=8, adc_enob_bits=8, adc_range_sigma=3.0, analog_length=36)


def long_operands():
    generator = torch.Generator().manual_seed(2)
    return torch.randn(1, 128, 288, generator=generator), torch.randn(1, 288, 128, generator=generator)


def test_a_collapsed_sum_that_clips_is_doubted_once():
    optical.execution.readout.clipping_watch.cache_clear()  # other tests may have run the same specification
    a, b = long_operands()
    with pytest.warns(SuspectWarning, match="or execute them with exact_tiles"):
        AnalogNumerics(CLIPPED).matmul(a, b, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SuspectWarning)
        for key in range(1, 5):
            AnalogNumerics(CLIPPED).matmul(a, b, key)


def test_what_does_not_clip_or_collapse_is_not_doubted():
    a, b = long_operands()
    with warnings.catch_warnings():
        warnings.simplefilter("error", SuspectWarning)
        AnalogNumerics(dataclasses.replace(CLIPPED, adc_range_sigma=7.0)).matmul(a, b, 1)
        AnalogNumerics(dataclasses.replace(CLIPPED, adc_range_sigma=2.9), exact_tiles=True).matmul(a, b, 1)
        AnalogNumerics(dataclasses.replace(CLIPPED, adc_range_sigma=2.8)).matmul(a[..., :36], b[:, :36], 1)


@pytest.mark.parametrize(("range_sigma", "doubted"), [(3.6, True), (4.4, False)])
def test_the_doubt_begins_at_a_tenth_of_the_error(range_sigma, doubted):
    """Gaussian samples: excess 2 ((1 + r^2) Q(r) - r phi(r)) beside the step's (2 r / 2^bits)^2 / 12."""
    tail = math.erfc(range_sigma / math.sqrt(2)) / 2
    density = math.exp(-(range_sigma**2) / 2) / math.sqrt(2 * math.pi)
    excess = 2 * ((1 + range_sigma**2) * tail - range_sigma * density)
    share = excess / (excess + (2 * range_sigma / 2**8) ** 2 / 12)
    assert (share > 0.1) == doubted
    assert 0.004 < share < 0.4
    a, b = (x.sign() for x in long_operands())
    converter = dataclasses.replace(CLIPPED, dac_bits=math.inf, adc_range_sigma=range_sigma)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", SuspectWarning)
        AnalogNumerics(converter).matmul(a, b, 0)
    assert [one.category for one in said] == [ClippingWarning] * doubted
