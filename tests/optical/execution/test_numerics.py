import dataclasses
import functools
import math

import pytest
import torch

import optical.execution.operands
from optical.execution import AnalogSpec, Rounding, Scale
from optical.execution.numerics import AnalogNumerics
from optical.execution.spec import PassiveTile, Shot
from optical.noise.chip import CommonEncoding
from simulator.errors import WorkloadError
from simulator.interfaces import Numerics

LENGTH = 36
REALISTIC = AnalogSpec(
    dac_bits=8,
    adc_bits=8,
    adc_enob_bits=6.5,
    adc_range_sigma=4.0,
    analog_length=LENGTH,
    thermal_variance=1e-3,
    shot_variance=1e-5,
    rin_variance=1e-6,
    encoding_variance=1e-6,
)


pytestmark = pytest.mark.usefixtures("one_thread")


def spec(**changes):
    return dataclasses.replace(AnalogSpec.ideal(), analog_length=LENGTH, **changes)


def operands(batch=1, m=256, k=LENGTH, n=256, seed=0):
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(batch, m, k, generator=generator) * torch.rand(batch, m, 1, generator=generator)
    return a, torch.randn(batch, k, n, generator=generator)


def scaled(a, b):
    a_scale, b_scale = a.abs().amax(-1, keepdim=True), b.abs().amax(-2, keepdim=True)
    return a / a_scale, b / b_scale, a_scale * b_scale


def noise(numerics, a, b, key=1):
    """Error in full-scale products."""
    return (numerics.matmul(a, b, key).double() - torch.bmm(a.double(), b.double())) / scaled(a, b)[2]


def law(term, a, b, samples):
    x, y, _ = scaled(a, b)
    energy = x.square().sum(-1, keepdim=True) + y.square().sum(-2, keepdim=True)
    terms = {
        "thermal_variance": torch.full((1,), float(samples)),
        "shot_variance": energy,
        "encoding_variance": energy,
        "rin_variance": torch.bmm(x.square(), y.square()),
    }
    return terms[term].double()


def assert_standard_normal(z, variance_tolerance=0.0):
    z, count = z.flatten(), z.numel()
    assert abs(z.mean()) < 5 / math.sqrt(count)
    assert abs(z.var() - 1) < 5 * math.sqrt(2 / count) + variance_tolerance
    assert abs((z**4).mean() / z.var() ** 2 - 3) < 5 * math.sqrt(24 / count) + variance_tolerance


TERMS = ("thermal_variance", "shot_variance", "rin_variance", "encoding_variance")


@pytest.mark.parametrize("term", TERMS)
def test_noise_of_one_sample_follows_the_law_output_by_output(term):
    a, b = operands()
    z = noise(AnalogNumerics(spec(**{term: 1e-3})), a, b) / (1e-3 * law(term, a, b, 1)).sqrt()
    assert_standard_normal(z, 0.005)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("term", TERMS)
def test_noise_of_several_samples_follows_the_law(term, exact):
    a, b = operands(k=4 * LENGTH + 7)
    z = noise(AnalogNumerics(spec(**{term: 1e-3}), exact), a, b) / (1e-3 * law(term, a, b, 5)).sqrt()
    assert_standard_normal(z, 0.05 if term == "rin_variance" else 0.005)


def test_laser_noise_keeps_its_mean_power_where_operands_are_coupled():
    a, b = operands(k=4 * LENGTH)
    loud = torch.where(torch.arange(4 * LENGTH) % 12 == 0, 8.0, 1.0)
    a, b = a * loud, b * loud[:, None]
    expected = law("rin_variance", a, b, 4).mean() * 1e-3
    for exact in (False, True):
        power = noise(AnalogNumerics(spec(rin_variance=1e-3), exact), a, b).square().mean()
        assert power.item() == pytest.approx(expected.item(), rel=0.06)


def test_shot_noise_grows_with_the_energy_of_the_operands():
    a, b = operands(m=2)
    b = b.sign()
    a[0, 0], a[0, 1] = torch.ones(LENGTH), torch.eye(LENGTH)[0]
    numerics = AnalogNumerics(spec(shot_variance=1e-3))
    power = torch.cat([noise(numerics, a, b, key) for key in range(40)], -1).square().mean(-1).squeeze()
    ratio = (power[0] / power[1]).item()
    assert ratio == pytest.approx(2 * LENGTH / (LENGTH + 1), rel=5 * 2 / math.sqrt(40 * 256))


def test_draws_of_neighbouring_outputs_and_keys_are_uncorrelated():
    a, b = operands()
    numerics = AnalogNumerics(spec(thermal_variance=1e-3))
    first, second = (noise(numerics, a, b, key).flatten() / math.sqrt(1e-3) for key in (1, 2))
    bound = 5 / math.sqrt(first.numel())
    for one, other in ((first[::2], first[1::2]), (first[1:-1:2], first[2::2]), (first, second)):
        assert abs((one * other).mean()) < bound * math.sqrt(2)
        assert abs(((one**2 - 1) * (other**2 - 1)).mean()) < 2 * bound * math.sqrt(2) + 0.003


def test_ideal_spec_is_torch_bit_for_bit():
    for exact in (False, True):
        a, b = operands(batch=3, m=20, k=50, n=30)
        assert torch.equal(AnalogNumerics(AnalogSpec.ideal(), exact).matmul(a, b, 5), torch.bmm(a, b))


def test_many_bits_and_little_noise_approach_the_product():
    a, b = operands(k=100)
    errors = []
    for bits in (8, 12, 16):
        fine = spec(dac_bits=bits, adc_bits=bits + 2, adc_enob_bits=bits + 2, adc_range_sigma=8.0)
        errors.append(noise(AnalogNumerics(fine), a, b).std().item())
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
    assert errors[2] < 1e-3


@pytest.mark.parametrize(("rows", "length", "columns"), [(1, 24, 5), (6, 1, 24), (1, 12, 1), (7, 12, 1)])
@pytest.mark.parametrize("turned", [False, True])
def test_a_size_of_one_misleads_no_int8_product(monkeypatch, rows, length, columns, turned):
    """`torch._int_mm` of torch 2.13 reads wrong memory where a row keeps the strides of a column."""
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(1, rows, length, generator=generator)
    b = torch.randn(1, length, columns, generator=generator)
    if turned:
        a, b = a.mT.clone().mT, b.mT.clone().mT
    monkeypatch.setattr(optical.execution.operands, "has_quick_int8_products", lambda: True)
    fine = dataclasses.replace(AnalogSpec.ideal(), dac_bits=8.0, analog_length=64)
    found = AnalogNumerics(fine).matmul(a, b, 1)
    torch.testing.assert_close(found, a @ b, rtol=0.0, atol=0.03 * length)


def test_eight_bit_codes_in_int8_and_in_float_agree_bit_for_bit(monkeypatch):
    a, b = operands(m=300, k=200, n=500)
    found = []
    for quick in (True, False):
        monkeypatch.setattr(
            optical.execution.operands, "has_quick_int8_products", functools.partial(bool, quick)
        )
        found.append(AnalogNumerics(REALISTIC).matmul(a, b, 3))
    assert torch.equal(*found)


@pytest.mark.parametrize("capability", ["AVX2", "DEFAULT"])
def test_int8_is_left_where_torch_has_a_plain_loop_for_it(monkeypatch, capability):
    """Below AVX-512, and on ARM, a product of int8 takes some 70 times as long as one of float32."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert not optical.execution.operands.has_quick_int8_products.__wrapped__()
    optical.execution.operands.has_quick_int8_products.cache_clear()
    x = torch.zeros(4, 4)
    assert optical.execution.operands.code_type(x, 4, 127) is torch.float32
    optical.execution.operands.has_quick_int8_products.cache_clear()


@pytest.mark.parametrize("rin_variance", [0.0, 1e-2])
def test_a_short_sum_is_executed_sample_by_sample(rin_variance):
    a, b = operands(batch=3, m=30, k=LENGTH - 5, n=20)
    short = dataclasses.replace(REALISTIC, rin_variance=rin_variance)
    assert torch.equal(
        AnalogNumerics(short).matmul(a, b, 9), AnalogNumerics(short, exact_tiles=True).matmul(a, b, 9)
    )


def test_laser_noise_that_is_next_to_nothing_is_spread_evenly():
    """Less than 1 % of the variance, hence less than 0.5 % of the noise, depends on the output."""
    a, b = operands(batch=3, m=30, k=LENGTH - 5, n=20)
    dim = dataclasses.replace(REALISTIC, adc_bits=math.inf, adc_enob_bits=math.inf)
    followed, quiet = (
        AnalogNumerics(dataclasses.replace(dim, rin_variance=rin), exact_tiles=True).matmul(a, b, 9)
        for rin in (dim.rin_variance, 0.0)
    )
    spread = AnalogNumerics(dim).matmul(a, b, 9)
    exact = AnalogNumerics(
        dataclasses.replace(AnalogSpec.ideal(), dac_bits=8, analog_length=LENGTH, scale=dim.scale)
    ).matmul(a, b, 9)
    noise = (followed - exact).square().mean().sqrt()
    assert 0.0 < (spread - followed).square().mean().sqrt() < 0.005 * noise
    assert (spread - followed).square().mean() < (quiet - followed).square().mean()


@pytest.mark.parametrize("scale", list(Scale))
@pytest.mark.parametrize("shape", [(1, 256, 8 * LENGTH, 256), (8, 96, 3 * LENGTH + 5, 64)])
def test_collapsed_draw_has_mean_and_variance_of_the_samples(shape, scale):
    a, b = operands(*shape)
    rare = dataclasses.replace(REALISTIC, adc_range_sigma=8.0, scale=scale)
    numerics = AnalogNumerics(rare)
    assert numerics.clipped_fraction(a, b) < 1e-6
    collapsed, executed = noise(numerics, a, b), noise(AnalogNumerics(rare, exact_tiles=True), a, b, 2)
    if scale is Scale.TENSOR:
        collapsed, executed = (errors * scaled(a, b)[2] for errors in (collapsed, executed))
    bound = 5 / math.sqrt(collapsed.numel())
    assert abs(collapsed.mean() - executed.mean()) < 2 * bound * executed.std()
    assert (collapsed.std() / executed.std()).item() == pytest.approx(1, abs=2 * bound + 0.01)


def excess_kurtosis(x):
    x = x - x.mean()
    return ((x**4).mean() / x.square().mean() ** 2 - 3).item()


def test_clipping_shows_in_fraction_variance_and_tails():
    a, b = operands(k=8 * LENGTH)
    a = a / a.abs().amax(-1, keepdim=True)
    quiet = spec(dac_bits=8, adc_bits=8, adc_enob_bits=8, adc_range_sigma=3.0)
    collapsed, executed = noise(AnalogNumerics(quiet), a, b), noise(AnalogNumerics(quiet, True), a, b)
    assert AnalogNumerics(quiet).clipped_fraction(a, b) > 1e-3
    unclipped = spec(dac_bits=8, adc_bits=math.inf, adc_enob_bits=8, adc_range_sigma=3.0)
    without = noise(AnalogNumerics(unclipped), a, b)
    assert executed.std() > 1.2 * without.std()
    assert collapsed.std() > 1.2 * without.std()
    assert (collapsed.std() / executed.std()).item() == pytest.approx(1, abs=0.35)
    assert excess_kurtosis(executed) > 5
    assert abs(excess_kurtosis(collapsed)) < 0.5
    wide = dataclasses.replace(quiet, adc_range_sigma=7.0)
    assert AnalogNumerics(wide).clipped_fraction(a, b) < 1e-6
    assert abs(excess_kurtosis(noise(AnalogNumerics(wide, True), a, b))) < 0.5


def test_clipped_fraction_is_that_of_gaussian_samples():
    a, b = torch.randn(1, 32, 400, generator=torch.Generator().manual_seed(1)).sign(), None
    b = torch.randn(1, 400, 32, generator=torch.Generator().manual_seed(2)).sign()
    narrow = dataclasses.replace(spec(adc_bits=10, adc_enob_bits=10, adc_range_sigma=1.5), analog_length=400)
    measured = AnalogNumerics(narrow).clipped_fraction(a, b)
    assert measured == pytest.approx(math.erfc(1.5 / math.sqrt(2)), abs=5 * math.sqrt(0.13 * 0.87 / 1024))


@pytest.mark.parametrize("windows", [4, 6, 12])
def test_the_range_is_that_of_all_heads(windows):
    """Four of them, the first with samples of one product: alone it would set a sixth of the range."""
    a, b = (x.sign() for x in operands(batch=4 * windows, m=32, n=32))
    a[::4, :, 1:] = 0.0
    found = AnalogNumerics(spec(adc_bits=16, adc_enob_bits=16, adc_range_sigma=4.0)).matmul(a, b, 0)
    assert (found - a @ b).square().mean() < 1e-3 * (a @ b).square().mean()


@pytest.mark.parametrize("enob", [5.0, 6.5, 8.0])
def test_total_converter_noise_is_that_of_the_effective_bits(enob):
    a, b = operands(batch=4, m=32, n=32)
    sampled = spec(adc_bits=8, adc_enob_bits=enob, adc_range_sigma=6.0)
    x, y, _ = scaled(a, b)
    range_ = min(6.0 * torch.bmm(x, y).square().mean().sqrt().item(), LENGTH)
    errors = torch.stack([noise(AnalogNumerics(sampled), a, b, key) for key in range(15)])
    expected = (2 * range_ / 2**enob) ** 2 / 12
    assert errors.var().item() == pytest.approx(expected, rel=5 * math.sqrt(2 / 4096) + 0.01)


def test_converted_samples_lie_on_codes_within_the_range():
    a, b = operands(batch=2, m=32, n=32)
    x, y, scale = scaled(a, b)
    converter = spec(adc_bits=4, adc_enob_bits=4, adc_range_sigma=2.0)
    codes = AnalogNumerics(converter).matmul(a, b, 0) / scale
    codes = codes / (2.0 * torch.bmm(x, y).square().mean().sqrt() * 2 ** (1 - 4))
    assert torch.allclose(codes, codes.round(), atol=1e-3)
    assert codes.abs().max().round() == 7


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_range_never_exceeds_what_full_scale_operands_give(dtype):
    """By compiled passes, which take single precision, and by torch."""
    a, b = torch.ones(1, 4, LENGTH, dtype=dtype), torch.ones(1, LENGTH, 4, dtype=dtype)
    for sigma in (4.0, math.inf):
        wide = spec(adc_bits=10, adc_enob_bits=10, adc_range_sigma=sigma)
        step = 2 * LENGTH / 2**10
        assert AnalogNumerics(wide).matmul(a, b, 0).max().item() == pytest.approx(LENGTH - step)


def test_stochastic_rounding_is_unbiased_and_nearest_is_not():
    generator = torch.Generator().manual_seed(3)
    a, b = torch.rand(1, 64, 64, generator=generator) * 2 - 1, torch.eye(64).unsqueeze(0)
    a[..., 0] = 1.0
    step, keys = 1 / 7, 600
    stochastic = AnalogNumerics(spec(dac_bits=4, rounding=Rounding.STOCHASTIC))
    mean = sum(stochastic.matmul(a, b, key) for key in range(keys)) / keys
    assert (mean - a).abs().max() < 5.5 * 0.5 * step / math.sqrt(keys)
    nearest = AnalogNumerics(spec(dac_bits=4))
    assert torch.equal(nearest.matmul(a, b, 1), nearest.matmul(a, b, 2))
    assert (nearest.matmul(a, b, 1) - a).abs().max() > 0.45 * step


def test_operands_on_the_grid_are_kept_by_either_rounding():
    a = (torch.arange(-7.0, 8.0) / 7).repeat(1, 15, 1)
    for rounding in Rounding:
        product = AnalogNumerics(spec(dac_bits=4, rounding=rounding)).matmul(a, torch.eye(15)[None], 4)
        assert torch.allclose(product, a, atol=1e-6)


def test_row_scales_resolve_what_a_tensor_scale_drowns():
    a, b = operands(k=LENGTH)
    a = a * torch.logspace(0, -4, 256).view(1, 256, 1)
    exact = torch.bmm(a, b)
    errors = {}
    for scale in Scale:
        c = AnalogNumerics(spec(dac_bits=8, scale=scale)).matmul(a, b, 0)
        errors[scale] = ((c - exact)[0, -1].norm() / exact[0, -1].norm()).item()
    assert errors[Scale.ROW] < 0.05
    assert errors[Scale.TENSOR] > 0.9


def test_product_gain_scales_the_mean():
    a, b = operands(k=100)
    weak = AnalogNumerics(spec(product_gain=0.9)).matmul(a, b, 0)
    assert torch.allclose(weak, 0.9 * torch.bmm(a, b), atol=1e-4)


CHANGES = {
    "dac_bits": 6,
    "adc_bits": 7,
    "adc_enob_bits": 5.0,
    "adc_range_sigma": 3.0,
    "analog_length": 12,
    "thermal_variance": 2e-3,
    "shot_variance": 2e-5,
    "rin_variance": 1e-4,
    "encoding_variance": 1e-4,
    "load_variance": 1e-4,
    "product_gain": 0.98,
    "scale": Scale.TENSOR,
    "rounding": Rounding.STOCHASTIC,
    "shot": Shot.COUNTED,
    "tile": PassiveTile(outputs=8, norm_variance=1e-3),
    "encoding": CommonEncoding(rows=3, columns=5, holds_weights=False),
}


def test_every_field_of_the_spec_is_tried():
    """Others have tests of their own: test_number_formats.py, test_chip.py, test_transforms.py."""
    names = {field.name for field in dataclasses.fields(AnalogSpec)}
    assert set(CHANGES) | {"residues", "chip", "common", "transforms"} == names


@pytest.mark.parametrize("name", sorted(set(CHANGES) - {"adc_bits"}))
def test_no_field_is_a_dead_knob(name):
    a, b = operands(m=40, k=90, n=30)
    changed = dataclasses.replace(REALISTIC, **{name: CHANGES[name]})
    assert not torch.equal(AnalogNumerics(changed).matmul(a, b, 1), AnalogNumerics(REALISTIC).matmul(a, b, 1))


def test_nominal_bits_show_in_executed_samples_only():
    a, b = operands(m=40, k=90, n=30)
    changed = dataclasses.replace(REALISTIC, adc_bits=7)
    executed = [AnalogNumerics(s, True).matmul(a, b, 1) for s in (changed, REALISTIC)]
    collapsed = [AnalogNumerics(s).matmul(a, b, 1) for s in (changed, REALISTIC)]
    assert not torch.equal(*executed)
    assert torch.equal(*collapsed)


def test_same_key_gives_the_same_bits_on_any_number_of_threads():
    stochastic = dataclasses.replace(REALISTIC, rounding=Rounding.STOCHASTIC)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            for shape in ((1, 300, 400, 500), (8, 64, 300, 64)):
                results.append(AnalogNumerics(stochastic).matmul(*operands(*shape), 2**63 + 5))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(result, results[0]) for result in results[::2])
    assert all(torch.equal(result, results[1]) for result in results[1::2])
    assert not torch.equal(AnalogNumerics(stochastic).matmul(*operands(8, 64, 300, 64), 6), results[1])


def test_transposed_operands_give_the_same_product():
    a, b = operands(m=50, k=90, n=30)
    turned = AnalogNumerics(REALISTIC).matmul(a.mT.contiguous().mT, b.mT.contiguous().mT, 1)
    assert torch.equal(turned, AnalogNumerics(REALISTIC).matmul(a, b, 1))


def test_global_generator_is_left_alone():
    before = torch.random.get_rng_state()
    AnalogNumerics(REALISTIC).matmul(*operands(), 1)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_result_has_the_type_of_the_operands(dtype):
    a, b = (x.to(dtype) for x in operands(k=100))
    c = AnalogNumerics(REALISTIC).matmul(a, b, 1)
    assert c.dtype == dtype
    assert (c - torch.bmm(a, b)).double().norm() < 0.2 * torch.bmm(a, b).double().norm()


def test_zero_operands_give_zero_and_not_a_number_stays():
    a, b = operands(m=4, k=100, n=5)
    assert AnalogNumerics(REALISTIC).matmul(a * 0, b, 1).abs().max() < 1e-20
    a[0, 1, 3] = math.nan
    c = AnalogNumerics(REALISTIC).matmul(a, b, 1)
    assert c[0, 1].isnan().all()
    assert c[0, 0].isfinite().all() or c[0, 0].isnan().all()


def test_it_is_a_numerics_and_refuses_what_is_no_product():
    numerics = AnalogNumerics(REALISTIC)
    assert isinstance(numerics, Numerics)
    for shapes in (((4, 5), (5, 6)), ((1, 4, 5), (1, 6, 5)), ((2, 4, 5), (1, 5, 6)), ((1, 0, 5), (1, 5, 6))):
        with pytest.raises(WorkloadError, match=r"\[B, M, K\]"):
            numerics.matmul(torch.ones(shapes[0]), torch.ones(shapes[1]), 0)
