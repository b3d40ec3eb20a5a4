"""What is fixed per chip, shared in a symbol, or counted in photons: size, correlation and limits."""

import dataclasses
import math

import pytest
import torch

from optical.cores import CORES, load_core
from optical.cores.analog import default_chip
from optical.execution import AnalogSpec, Scale
from optical.execution.draws import Draws
from optical.execution.numerics import AnalogNumerics
from optical.execution.operands import Order
from optical.execution.precision import predicted
from optical.execution.spec import Shot, spec_from_json
from optical.noise.chip import ChipErrors, CommonEncoding, CommonNoise, Mismatch, posterior_variance
from simulator.files import record_to_json
from simulator.operands.statistics import OperandKind, operands_of
from simulator.operators import Phase
from simulator.parameter_tree import replace_at

ROWS, COLUMNS, LENGTH = 12, 10, 8
IDEAL = dataclasses.replace(AnalogSpec.ideal(), analog_length=16)


def on_chip(*, seed=1, holds_weights=False, **errors):
    array = {"rows": ROWS, "columns": COLUMNS, "length": LENGTH, "holds_weights": holds_weights}
    return dataclasses.replace(IDEAL, chip=ChipErrors(seed=seed, **array, **errors))


def sharing(*, rows=ROWS, columns=COLUMNS, length=1, holds_weights=False, variance=1e-4):
    array = {"rows": rows, "columns": columns, "length": length, "holds_weights": holds_weights}
    return dataclasses.replace(IDEAL, common=CommonNoise(variance=variance, **array))


def full_scale(rows, columns, seed, batch=1):
    x = 2 * torch.rand(batch, rows, columns, generator=torch.Generator().manual_seed(seed)).double() - 1
    x[..., 0], x[:, 0] = 1.0, -1.0
    return x


def error(spec, a, b, key=1, **options):
    return AnalogNumerics(spec, **options).matmul(a, b, key) - a @ b


def unit_rows(rows, length):
    """Rows that pick one product each."""
    return torch.eye(length).double().repeat(-(-rows // length), 1)[:rows].unsqueeze(0)


def errors_of_b(spec, b, key=1, rows=None):
    """Relative error of each element of B, read one by one by as many rows as B has."""
    a = unit_rows(rows or max(b.shape[1:]), b.shape[1])
    return (error(spec, a, b, key) / (a @ b))[0, : b.shape[1]]


@pytest.mark.parametrize("term", ["first_gain", "second_gain", "output_gain", "repeated_variance"])
@pytest.mark.parametrize("holds_weights", [False, True])
def test_a_chip_errs_alike_at_every_load_and_no_other_chip_does(term, holds_weights):
    a, b = full_scale(40, 48, 1), full_scale(48, 30, 2)
    spec, other = (on_chip(seed=seed, holds_weights=holds_weights, **{term: 1e-4}) for seed in (1, 2))
    first, second = error(spec, a, b, key=3), error(spec, a, b, key=4)
    assert first.abs().max() > 1e-3
    assert torch.equal(first, second)
    elsewhere = error(other, a, b, key=3)
    correlation = (first * elsewhere).mean() / (first.square().mean() * elsewhere.square().mean()).sqrt()
    assert abs(correlation) < 0.35


@pytest.mark.parametrize("term", ["second_gain", "output_gain"])
def test_gains_belong_to_positions_whatever_is_loaded(term):
    spec = on_chip(**{term: 1e-4})
    gains = [errors_of_b(spec, full_scale(36, 40, seed)) for seed in (5, 6)]
    torch.testing.assert_close(*gains, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(
        gains[0][:, :COLUMNS], gains[0][:, COLUMNS : 2 * COLUMNS], rtol=1e-3, atol=1e-6
    )
    height = LENGTH if term == "second_gain" else ROWS
    torch.testing.assert_close(gains[0][:height], gains[0][height : 2 * height], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("term", ["first_gain", "second_gain", "output_gain"])
def test_gains_have_the_stated_variance_over_chips(term):
    """Mean 0 and variance within 5 standard errors over 40 chips."""
    b = full_scale(LENGTH, COLUMNS, 7)
    found = torch.stack([errors_of_b(on_chip(seed=s, **{term: 1e-4}), b, rows=LENGTH) for s in range(40)])
    independent = 40 * LENGTH * (1 if term == "first_gain" else COLUMNS)
    assert found.mean().item() == pytest.approx(0.0, abs=5e-2 / math.sqrt(independent))
    assert found.square().mean().item() == pytest.approx(1e-4, rel=5 * math.sqrt(2 / independent))


@pytest.mark.parametrize("term", ["first_gain", "second_gain", "output_gain", "repeated_variance"])
def test_a_turned_product_turns_the_chip(term):
    """C^T = B^T A^T: the operand with fewer loads is loaded, and meets the same cells."""
    a, b = full_scale(40, 48, 1), full_scale(48, 30, 2)
    spec = on_chip(holds_weights=True, **{term: 1e-4})
    turned = error(spec, b.mT.contiguous(), a.mT.contiguous())
    torch.testing.assert_close(turned.mT, error(spec, a, b), rtol=1e-3, atol=1e-5)


def test_repeated_errors_follow_the_loaded_operand():
    """Per chip and content: the same for the same weights and any vectors, independent for other weights."""
    spec = on_chip(holds_weights=True, repeated_variance=1e-4)
    eye, one, other = unit_rows(96, 48), full_scale(48, 40, 3), full_scale(48, 40, 4)
    first, again, third = (error(spec, eye, b, key) for b, key in ((one, 1), (one, 2), (other, 1)))
    assert torch.equal(first, again)
    one, third = first[0, :48], third[0, :48]
    count = one.numel()
    assert abs((one * third).mean() / 1e-4) < 5 / math.sqrt(count)
    assert one.square().mean().item() == pytest.approx(1e-4, rel=5 * math.sqrt(2 / count))
    swapped = error(spec, eye.flip(1).contiguous(), full_scale(48, 40, 3))
    torch.testing.assert_close(swapped.flip(1)[0, :48], first[0, -48:], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("scale", [Scale.ROW, Scale.TENSOR, Scale.BLOCK])
@pytest.mark.parametrize("exact_tiles", [False, True])
def test_how_a_sum_is_cut_moves_no_gain(scale, exact_tiles):
    a, b = full_scale(24, 64, 1, batch=2), full_scale(64, 20, 2, batch=2)
    spec = dataclasses.replace(on_chip(first_gain=1e-4, second_gain=1e-4, output_gain=1e-4), scale=scale)
    found = error(spec, a, b, exact_tiles=exact_tiles)
    plain = error(dataclasses.replace(spec, scale=Scale.ROW), a, b)
    torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-6)


def test_outputs_on_one_line_fluctuate_together_and_others_apart():
    """Operands of ones: every output of a block reads the same fluctuation, drawn anew for each use."""
    spec, n = sharing(), 32
    a, b = torch.ones(40, 2 * ROWS, n).double(), torch.ones(40, n, 2 * COLUMNS).double()
    found = error(spec, a, b, key=1)
    blocks = found.unflatten(1, (2, ROWS)).unflatten(3, (2, COLUMNS))
    torch.testing.assert_close(blocks, blocks[:, :, :1, :, :1].expand_as(blocks), rtol=1e-5, atol=1e-7)
    draws = blocks[:, :, 0, :, 0]
    assert draws.square().mean().item() == pytest.approx(n * 1e-4, rel=5 * math.sqrt(2 / draws.numel()))
    apart = (draws[:, 0] * draws[:, 1]).mean().item() / (n * 1e-4)
    assert abs(apart) < 5 / math.sqrt(draws[:, 0].numel())
    assert not torch.equal(error(spec, a, b, key=2), found)


@pytest.mark.parametrize("length", [1, 16])
def test_shared_noise_has_the_variance_of_the_light_it_moves(length):
    """Lines apart: sum((a b)^2); one laser for a sample: its square, sample by sample."""
    a, b = full_scale(60, 64, 1, batch=8), full_scale(64, 50, 2, batch=8)
    tiles = [a[..., s : s + length] @ b[:, s : s + length] for s in range(0, 64, length)]
    stated = 1e-4 * torch.stack(tiles).square().sum(0)
    standardised = error(sharing(length=length), a, b) / stated.sqrt()
    blocks = 8 * 5 * 5 * 64 // length
    assert standardised.square().mean().item() == pytest.approx(1.0, rel=8 * math.sqrt(2 / blocks))


def test_a_held_array_shares_a_line_among_its_outputs_only():
    spec = sharing(rows=1, holds_weights=True)
    a, b = torch.ones(1, 64, 32).double(), torch.ones(1, 32, COLUMNS).double()
    found = error(spec, a, b)[0]
    assert torch.allclose(found, found[:, :1].expand_as(found), rtol=1e-5, atol=1e-7)
    assert len(set(found[:, 0].tolist())) == 64
    turned = error(spec, b.mT.contiguous(), a.mT.contiguous())[0]
    assert torch.allclose(turned, turned[:1].expand_as(turned), rtol=1e-5, atol=1e-7)


def sharing_encoding(*, rows=ROWS, columns=COLUMNS, holds_weights=False, **changes):
    array = CommonEncoding(rows=rows, columns=columns, holds_weights=holds_weights)
    return dataclasses.replace(IDEAL, encoding=array, encoding_variance=1e-4, **changes)


@pytest.mark.parametrize("bits", [8, math.inf])
@pytest.mark.parametrize("exact_tiles", [False, True])
def test_errors_of_an_operands_converter_are_shared_by_its_outputs(bits, exact_tiles):
    """(A + E) B: correlation of two columns in one block as of those of B, none between blocks.

    B one at random signs, alike in columns 0 and 1, opposite in 0 and 2; 5 standard errors over rows. Errors
    of B itself, drawn anew for each row here, add as much variance and no correlation.
    """
    spec, n, rows = sharing_encoding(rows=1, dac_bits=bits), 48, 2000
    signs = 2.0 * torch.randint(0, 2, (1, n, 2 * COLUMNS), generator=torch.Generator().manual_seed(3)) - 1.0
    signs[..., 1], signs[..., 2], signs[..., COLUMNS] = signs[..., 0], -signs[..., 0], signs[..., 0]
    a = torch.ones(1, rows, n).double()
    found = error(spec, a, signs.double(), exact_tiles=exact_tiles)[0]
    assert found.mean().item() == pytest.approx(0.0, abs=5 * math.sqrt(2e-4 * n / rows))
    assert found.var().item() == pytest.approx(2e-4 * n, rel=5 * math.sqrt(2 / rows))
    kurtosis = (found**4).mean() / found.square().mean() ** 2
    assert kurtosis.item() == pytest.approx(3.0, abs=5 * math.sqrt(24 / rows))
    correlation = (found.mT @ found / rows / (2e-4 * n)).fill_diagonal_(0.0)
    alike = (signs[0].mT @ signs[0] / n / 2).fill_diagonal_(0.0)
    alike[:COLUMNS, COLUMNS:], alike[COLUMNS:, :COLUMNS] = 0.0, 0.0
    assert (correlation - alike).abs().max() < 5.5 / math.sqrt(rows)
    assert not torch.equal(error(spec, a, signs.double(), key=2)[0], found)


@pytest.mark.parametrize(("thermal", "shared"), [(0.14, 3.2e-3 / 0.2864), (0.2, 0.0)])
def test_errors_of_converters_that_are_next_to_nothing_are_each_output_s_own(thermal, shared):
    """Equal columns of B err together where A's converters make more than 1 % of the noise, else apart.

    They have 1e-4 of each of 32 products of ones, those of B as much, beside thermal noise of two samples.
    The variance of an output is the sum of all, shared or not.
    """
    spec = sharing_encoding(rows=1, thermal_variance=thermal)
    found = error(spec, torch.ones(1, 4000, 32).double(), torch.ones(1, 32, 60 * COLUMNS).double())[0]
    assert found.var().item() == pytest.approx(2 * thermal + 6.4e-3, rel=5 * math.sqrt(2 / found.numel()))
    blocks = found.unflatten(1, (-1, COLUMNS)) / found.std()
    pairs = COLUMNS * (COLUMNS - 1)
    together = (blocks.sum(-1).square() - blocks.square().sum(-1)).mean() / pairs
    assert together.item() == pytest.approx(shared, abs=5 * math.sqrt(2 / pairs / blocks[..., 0].numel()))


def test_what_a_block_shares_hangs_on_no_other_block():
    """Ones share errors of converters, 3 % of their noise; unit vectors, with less, do not."""
    numerics = AnalogNumerics(sharing_encoding(thermal_variance=0.1))
    ones, unit = torch.ones(1, 30, 32).double(), unit_rows(30, 32)
    a, keys, rows = torch.cat((ones, unit)), (5, 6), (Order.ROWS, Order.ROWS)

    def product(part, keys):
        return numerics.matmul_blocks(part, part.mT, Draws(keys, part.device), rows)

    together = product(a, keys)
    for place, one in enumerate((ones, unit)):
        assert torch.equal(together[place], product(one, keys[place : place + 1])[0])


def test_errors_of_the_second_converter_are_shared_by_rows():
    """Equal rows of A: B's errors, half of the variance, are alike in all rows of a block."""
    a = torch.ones(1, 2 * ROWS, 32).double()
    found = error(sharing_encoding(columns=1), a, torch.ones(1, 32, 3000).double())[0]
    correlation = found @ found.mT / 3000 / (2e-4 * 32)
    shared = 0.5 * torch.kron(torch.eye(2), torch.ones(ROWS, ROWS)).double()
    assert (correlation - shared.fill_diagonal_(1.0)).abs().max() < 5.5 * math.sqrt(2 / 3000)


def test_a_held_array_shares_the_streamed_operands_converter():
    spec, ones = sharing_encoding(rows=1, holds_weights=True), torch.ones(1, 32, COLUMNS).double()
    a = torch.ones(1, 4000, 32).double()
    for found in (error(spec, a, ones)[0], error(spec, ones.mT.contiguous(), a.mT.contiguous())[0].mT):
        correlation = found.mT @ found / 4000 / (2e-4 * 32)
        stated = torch.full((COLUMNS, COLUMNS), 0.5).double().fill_diagonal_(1.0)
        assert (correlation - stated).abs().max() < 5.5 * math.sqrt(2 / 4000)


@pytest.mark.parametrize("name", ["crossbar", "homodyne", "ring_bank", "pcm_crossbar", "mzi_mesh"])
def test_a_core_says_which_outputs_one_setting_serves(name):
    core = load_core(name)
    apart = replace_at(core, "chip.encoding_noise", "independent")
    one, other = core.analog(Phase.FORWARD), apart.analog(Phase.FORWARD)
    assert one.encoding == CommonEncoding(
        rows=1 if core.array.holds_weights else core.array.rows,
        columns=core.array.columns,
        holds_weights=core.array.holds_weights,
    )
    assert dataclasses.replace(one, encoding=None) == other


def test_what_is_no_error_of_a_converter_is_not_shared():
    """Equal columns of B: correlation of two outputs is the converter's share of their variance."""
    array = dict(rows=1, columns=COLUMNS, holds_weights=True)
    ones, a = torch.ones(1, 32, COLUMNS).double(), torch.ones(1, 4000, 32).double()
    for own, shared in ((0.0, 0.5), (6e-5, 0.2), (1e-4, 0.0)):
        spec = sharing_encoding(**array)
        spec = dataclasses.replace(spec, encoding=CommonEncoding(**array, own_variance=own))
        found = error(spec, a, ones)[0]
        correlation = found.mT @ found / 4000 / (2e-4 * 32)
        stated = torch.full((COLUMNS, COLUMNS), shared).double().fill_diagonal_(1.0)
        assert (correlation - stated).abs().max() < 5.5 * math.sqrt(2 / 4000)


@pytest.mark.parametrize("name", ["crossbar", "homodyne"])
def test_counting_photons_leaves_what_outputs_share(name):
    """The intensity noise that a pair fails to reject is each pair's own, under either law of shot noise."""
    core = load_core(name)
    smooth, counted = (
        core.analog(Phase.FORWARD),
        dataclasses.replace(core, shot=Shot.COUNTED).analog(Phase.FORWARD),
    )
    own = counted.encoding.own_variance
    assert 0.0 < own < counted.encoding_variance
    assert own == pytest.approx(smooth.shot_variance - counted.shot_variance, rel=1e-12)
    assert counted.encoding_variance - own == pytest.approx(smooth.encoding_variance, rel=1e-9)


def test_counted_photons_have_mean_and_variance_of_the_bright_limit():
    """The difference of two Poisson numbers, 4 sigma of mean and variance; whole steps of 2 v."""
    spec = dataclasses.replace(IDEAL, shot_variance=0.05, shot=Shot.COUNTED)
    a, b = full_scale(1, 16, 1), full_scale(16, 1, 2)
    many = AnalogNumerics(spec).matmul(a.expand(4000, -1, -1).contiguous(), b.expand(4000, -1, -1), 5)
    stated = 0.05 * float(a.square().sum() + b.square().sum())
    assert many.mean().item() == pytest.approx(float(a @ b), abs=4 * math.sqrt(stated / 4000))
    assert many.var().item() == pytest.approx(stated, rel=4 * math.sqrt(2 / 4000))
    steps = many / (2 * 0.05)
    torch.testing.assert_close(steps, steps.round(), rtol=0, atol=1e-4)


def test_counting_shows_where_photons_are_few():
    """Skellam: excess kurtosis 1/photons; none is seen where there are many."""
    a, b = full_scale(1, 16, 1), full_scale(16, 1, 2)
    photons = 2.0
    variance = float(a.square().sum() + b.square().sum()) / (4 * photons)
    spec = dataclasses.replace(IDEAL, shot_variance=variance, shot=Shot.COUNTED)
    many = AnalogNumerics(spec).matmul(a.expand(20000, -1, -1).contiguous(), b.expand(20000, -1, -1), 5)
    z = (many - many.mean()) / many.std()
    assert z.pow(4).mean().item() - 3.0 == pytest.approx(1 / photons, abs=6 * math.sqrt(24 / 20000) * 1.5)


@pytest.mark.parametrize("name", ["crossbar", "homodyne"])
def test_coherent_cores_can_count_their_photons(name):
    plain = load_core(name)
    core = dataclasses.replace(plain, shot=Shot.COUNTED)
    one, other = core.analog(Phase.FORWARD), plain.analog(Phase.FORWARD)
    both = [spec.shot_variance + spec.encoding_variance for spec in (one, other)]
    assert both[0] == pytest.approx(both[1], rel=1e-12)
    assert one.shot_variance < other.shot_variance
    a, b = full_scale(32, 100, 1).float(), full_scale(100, 32, 2).float()
    powers = [error(spec, a, b).square().mean().item() for spec in (one, other)]
    assert powers[0] == pytest.approx(powers[1], rel=5 * math.sqrt(4 / 1024))


def test_better_parts_and_more_readings_leave_less():
    """Kay 1993, example 10.1: from the spread itself down to the noise of the mean."""
    assert posterior_variance(4e-4, 1e-3, 0) == 4e-4
    assert posterior_variance(4e-4, 1e-3, 10**9) == pytest.approx(1e-12, rel=1e-5)
    assert posterior_variance(0.0, 1e-3, 5) == posterior_variance(4e-4, 0.0, 5) == 0.0
    ladder = [posterior_variance(4e-4, 1e-3, readings) for readings in (0, 1, 10, 100)]
    assert ladder == sorted(ladder, reverse=True)
    chip = dataclasses.replace(default_chip(), mismatch=Mismatch.CALIBRATED)
    assert posterior_variance(4e-4, 1e-3, chip.readings) < 4e-4
    assert default_chip().gain_variance(0.02, 1e-3) == 0.0


@pytest.mark.parametrize("name", ["crossbar", "homodyne", "ring_bank", "pcm_crossbar"])
def test_calibration_pays_in_bits_and_costs_time(name):
    alike = load_core(name)
    raw, known, better = (
        replace_at(replace_at(alike, "chip.mismatch", mismatch), "chip.averages", averages)
        for mismatch, averages in (("raw", 100), ("calibrated", 100), ("calibrated", 400))
    )
    assert raw.effective_bits < known.effective_bits < better.effective_bits
    assert raw.calibration.time_s == 0.0 < known.calibration.time_s < better.calibration.time_s
    assert known.calibration.energy_j > 0.0


def test_a_specification_is_plain_data():
    spec = dataclasses.replace(on_chip(first_gain=1e-4), common=sharing().common)
    assert spec_from_json(record_to_json(spec)) == spec


@pytest.mark.parametrize("name", ["crossbar", "homodyne"])
def test_uneven_couplers_leak_squares_of_both_operands(name):
    """(2 k - 1)(sum(a^2) - sum(b^2))/2 per node: nothing where both are equal, the same at every use."""
    spec = on_chip(imbalance=1e-3)
    a, b = full_scale(25, 32, 1)[:, 1:].contiguous(), full_scale(32, 21, 2)[..., 1:].contiguous()
    found = error(spec, a, b)
    uneven = 0.5 * (a.square().sum(-1, keepdim=True) - b.square().sum(-2, keepdim=True))
    leaks = (found / uneven)[0]
    torch.testing.assert_close(leaks[:ROWS], leaks[ROWS:], rtol=2e-3, atol=2e-4)
    torch.testing.assert_close(leaks[:, :COLUMNS], leaks[:, COLUMNS:], rtol=2e-3, atol=2e-4)
    distinct = leaks[:ROWS, :COLUMNS]
    assert distinct.square().mean().item() == pytest.approx(1e-3, rel=5 * math.sqrt(2 / distinct.numel()))
    ones = torch.ones(1, 12, 12).double()
    assert error(spec, ones, ones).abs().max() < 1e-9
    core = load_core(name)
    raw = replace_at(core, "chip.mismatch", "raw").analog(Phase.FORWARD).chip
    assert raw.imbalance == pytest.approx(4.0 * core.chip.coupler.angle_error_rad**2, rel=1e-12)
    known = replace_at(core, "chip.mismatch", "calibrated").analog(Phase.FORWARD).chip
    assert known.imbalance < raw.imbalance


def test_couplers_divide_the_outer_lines_unevenly():
    """Lightening-Transformer HPCA 2024: 2 k - 1 is 0.0089 at the edge of 12 lines, 0.0179 of 24.

    Within 6 %: there 24 lines reach just twice as far from the middle as 12, here 11.5 / 5.5 times.
    """
    core = load_core("crossbar")
    assert core.chip.grid.edge_imbalance(12) == pytest.approx(0.0089, abs=1e-4)
    assert core.chip.grid.edge_imbalance(24) == pytest.approx(0.0179, rel=0.06)
    assert core.chip.grid.edge_imbalance(1) == 0.0
    raw = replace_at(core, "chip.mismatch", "raw").analog(Phase.FORWARD).chip
    assert raw.edge_imbalance == core.chip.grid.edge_imbalance(12)
    a, b = full_scale(5, 24, 1), full_scale(24, 4, 2)
    spec = dataclasses.replace(on_chip(edge_imbalance=0.01), chip=None)
    chip = dataclasses.replace(on_chip(edge_imbalance=0.01).chip, lines=12)
    line = 0.01 * torch.linspace(-1.0, 1.0, 12).double().repeat(2)
    one, other = a.square() * line, b.square() * line[:, None]
    stated = 0.5 * (one.sum(-1, keepdim=True) - other.sum(-2, keepdim=True))
    found = error(dataclasses.replace(spec, chip=chip), a, b)
    torch.testing.assert_close(found, stated, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", [name for name, core in CORES.items() if "residue" not in name])
def test_shared_lines_make_next_to_nothing_of_a_core_s_noise(name):
    """docs/noise.md: below 0.3 %, so that their second product is spared."""
    spec, operands = load_core(name).analog(Phase.FORWARD), operands_of(OperandKind.GAUSSIAN)
    still = dataclasses.replace(spec, common=None)
    whole, rest = (predicted(one, operands, 4096).total for one in (spec, still))
    assert 0.0 < whole - rest < 0.003 * whole
    key, a = 3, torch.randn(1, 64, 128, generator=torch.Generator().manual_seed(0))
    done = [AnalogNumerics(spec, exact_tiles=one).matmul(a, a.mT, key) for one in (False, True)]
    assert not torch.equal(*done)


def test_shared_lines_that_are_next_to_nothing_are_each_output_s_own():
    """Equal columns of B fluctuate together where lines make more than 1 % of the noise, else apart."""
    ones, a = torch.ones(1, 32, COLUMNS).double(), torch.randn(1, 2000, 32).double()
    for thermal, expected in ((0.0, 1.0), (2.0, 0.0)):
        spec = dataclasses.replace(sharing(rows=1, variance=1e-3), thermal_variance=thermal)
        found = error(spec, a, ones)[0]
        together = torch.corrcoef(found.mT)[0, 1:]
        assert (together - expected).abs().max() < 5.5 * math.sqrt(2 / 2000)
