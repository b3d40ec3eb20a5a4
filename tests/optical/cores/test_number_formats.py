import dataclasses
import math

import pytest
import torch

from optical.cores import default_block_float, default_crossbar, default_homodyne, default_residue
from optical.cores.number_formats import BlockFloatCore, Remainder, in_residues
from optical.devices import Domain, area_m2, static_w
from optical.execution import AnalogSpec, Scale
from optical.execution.numerics import AnalogNumerics
from optical.execution.spec import Residues, misreading, symmetric_residues
from simulator.errors import ParameterError
from simulator.operators import MatMul, Phase

PRODUCT = MatMul(name="product", phase=Phase.FORWARD, batch=1, m=96, k=96, n=96)
MODULI = (3, 4, 5, 7)


def spec_of(sigmas, moduli=MODULI, length=4, bits=4.0):
    residues = Residues(moduli=moduli, sigmas=sigmas)
    return dataclasses.replace(
        AnalogSpec.ideal(), dac_bits=bits, analog_length=length, scale=Scale.BLOCK, residues=residues
    )


def whole_numbers(rows, length, largest, seed=1):
    """Operands that a mantissa holds exactly, in every block of four."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.randint(-largest, largest + 1, (1, rows, length), generator=generator).double()
    b = torch.randint(-largest, largest + 1, (1, length, rows), generator=generator).double()
    a[..., ::4], b[:, ::4] = largest, largest
    return a, b


def reconstructed(remainders, moduli):
    """The one integer in the symmetric range with these remainders, by trying all."""
    whole = math.prod(moduli)
    matches = [
        y
        for y in range(-((whole - 1) // 2), whole // 2 + 1)
        if all(y % m == r % m for m, r in zip(moduli, remainders, strict=True))
    ]
    assert len(matches) == 1
    return matches[0]


def test_remainders_tell_all_integers_apart():
    """Chinese remainder theorem, by trying every integer of the dynamic range."""
    for y in (-200, -7, 0, 1, 196, 209):
        assert reconstructed([y % m for m in MODULI], MODULI) == y


@pytest.mark.parametrize("place", range(4))
def test_misread_remainder_moves_the_result_by_its_weight(place):
    residues = Residues(moduli=MODULI, sigmas=(0.0,) * 4)
    for y in (-150, 0, 33):
        remainders = [y % m for m in MODULI]
        remainders[place] += 1
        moved = (reconstructed(remainders, MODULI) - y - residues.weights[place]) % residues.product
        assert moved == 0


def test_sums_are_exact_without_noise():
    a, b = whole_numbers(24, 40, 7)
    assert torch.equal(AnalogNumerics(spec_of((0.0,) * 4)).matmul(a, b, key=1).round(), a @ b)


def test_sums_are_exact_for_batches_and_a_short_last_block():
    pairs = [whole_numbers(20, 42, 7, seed) for seed in (1, 2, 3)]
    a, b = (torch.cat(operands) for operands in zip(*pairs, strict=True))
    assert torch.equal(AnalogNumerics(spec_of((0.0,) * 4)).matmul(a, b, key=1).round(), a @ b)


def test_sums_are_exact_while_noise_stays_below_half_a_step():
    """Mirage (arXiv:2311.17323): a remainder is read without error while noise stays below half a step.

    At 0.08 steps rms one in two billion exceeds that.
    """
    a, b = whole_numbers(48, 20, 7)
    assert torch.equal(AnalogNumerics(spec_of((0.08,) * 4)).matmul(a, b, key=2).round(), a @ b)
    assert not torch.equal(AnalogNumerics(spec_of((0.2,) * 4)).matmul(a, b, key=2).round(), a @ b)


def test_samples_are_wrong_as_often_as_stated():
    """Gaussian noise beyond half a step, erfc(1 / (2 sqrt 2 sigma)), in any remainder; 5 standard errors."""
    spec = spec_of((0.15, 0.2, 0.25, 0.3))
    a, b = whole_numbers(200, 4, 7)
    wrong = (AnalogNumerics(spec).matmul(a, b, key=3).round() != a @ b).double().mean()
    expected = spec.residues.wrong_sample
    assert float(wrong) == pytest.approx(expected, abs=5 * math.sqrt(expected / 200**2))


def test_rare_misreadings_happen_as_often_as_stated():
    """Beyond 4.3 sigma, the Gaussian tail erfc(1 / (2 sqrt 2 sigma)) still misreads; 5 standard errors."""
    spec = spec_of((0.0, 0.0, 0.0, 0.115))
    a, b = whole_numbers(2000, 4, 7)
    a[..., 0], b[:, 0] = 7.0, 7.0
    error = AnalogNumerics(spec).matmul(a, b, key=2) - a @ b
    wrong, expected = int((error.abs() > 0.5).sum()), error.numel() * spec.residues.wrong_sample
    assert 40.0 < expected < 80.0
    assert wrong == pytest.approx(expected, abs=5.0 * math.sqrt(expected))
    assert 0.2 < float((error > 0.5).sum()) / wrong < 0.8


def test_wrong_samples_err_as_much_as_stated():
    """Sums of at most 61 to one side, which no misread remainder takes across the end of the range."""
    spec = spec_of((0.0, 0.2, 0.0, 0.0))
    a, b = whole_numbers(300, 4, 2)
    a[..., 0], b[:, 0] = 7.0, 7.0
    error = AnalogNumerics(spec).matmul(a, b, key=4) - a @ b
    count = error.numel() * spec.residues.misreadings[1]
    assert float(error.square().mean()) == pytest.approx(
        spec.residues.error_variance, rel=5 / math.sqrt(count)
    )


def test_a_record_whose_sums_leave_the_dynamic_range_is_refused():
    with pytest.raises(ParameterError, match=r"420 integers apart; sums of up to 245 to either side"):
        spec_of((0.1,) * 4, length=5)


def test_residues_do_not_depend_on_the_number_of_threads():
    a, b = whole_numbers(32, 4096, 7)
    a, b = a.float() * 0.3, b.float() * 0.7
    before, found = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(AnalogNumerics(spec_of((0.25,) * 4)).matmul(a, b, key=7))
    torch.set_num_threads(before)
    assert torch.equal(*found)


def test_misreading_is_the_gaussian_tail():
    assert misreading(0.0) == 0.0
    assert misreading(0.5) == pytest.approx(0.3173, abs=1e-4)
    assert list(symmetric_residues(5)) == [-2, -1, 0, 1, 2]
    assert list(symmetric_residues(4)) == [-1, 0, 1, 2]


def test_moduli_of_mirage_hold_its_sums():
    """arXiv:2311.17323: moduli 31, 32, 33 for groups of 16 products of 4-bit mantissas with a sign."""
    assert Residues(moduli=(31, 32, 33), sigmas=(0.0,) * 3).product > 2 * 16 * 15**2


def test_sums_beyond_the_dynamic_range_are_refused():
    core = default_residue().core
    with pytest.raises(
        ParameterError, match=r"reach 900 to either side, and the moduli \(3, 4, 5, 7\) tell 420"
    ):
        in_residues(core, "residue", moduli=MODULI, mantissa_bits=5)


def test_moduli_with_a_common_factor_are_refused():
    with pytest.raises(ParameterError, match=r"pairwise coprime.*\(4, 6\)"):
        Residues(moduli=(4, 6), sigmas=(0.0, 0.0))


def test_each_modulus_costs_a_run_of_the_core():
    core = default_residue()
    inner, outer = core.core.work(PRODUCT, 8), core.work(PRODUCT, 8)
    assert outer.light_s == inner.light_s
    for part, energy_j in inner.energy_j.items():
        assert outer.energy_j[part] == pytest.approx(4 * energy_j, rel=1e-12)
    assert sum(static_w(core.parts()).values()) == pytest.approx(
        4 * sum(static_w(core.core.parts()).values())
    )
    assert sum(area_m2(core.parts(), Domain.PHOTONIC).values()) == pytest.approx(
        4 * sum(area_m2(core.core.parts(), Domain.PHOTONIC).values())
    )


def test_fewer_copies_take_more_passes_at_the_same_energy():
    core = default_residue()
    serial = dataclasses.replace(core, parallel=2)
    assert serial.passes == 2
    assert serial.work(PRODUCT, 8).light_s == 2 * core.work(PRODUCT, 8).light_s
    assert serial.work(PRODUCT, 8).energy_j == core.work(PRODUCT, 8).energy_j
    assert 2 * sum(static_w(serial.parts()).values()) == pytest.approx(sum(static_w(core.parts()).values()))


def test_reading_whole_sums_takes_a_better_converter():
    core = default_residue()
    whole = dataclasses.replace(core, remainder=Remainder.DIGITAL)
    assert whole.residues.wrong_sample > 100 * core.residues.wrong_sample
    assert whole.effective_bits < core.effective_bits


def test_default_residue_core_errs_less_than_once_in_two_thousand():
    core = default_residue()
    assert core.residues.wrong_sample < 1 / 2000
    dim = dataclasses.replace(core, core=dataclasses.replace(core.core, laser_power_w=15e-3))
    assert dim.residues.wrong_sample > 0.05


def test_effective_bits_without_misreading_are_those_of_the_mantissas():
    """A sine of full scale n q^2 over the rounding of both mantissas, n q^2 / 6."""
    core = default_residue()
    core = dataclasses.replace(core, core=dataclasses.replace(core.core, laser_power_w=3.0))
    perfect = 10 * math.log10(6 * 4 * 7**2 / 2)
    assert core.effective_bits == pytest.approx((perfect - 1.76) / 6.02, rel=1e-3)


def test_block_float_equals_the_plain_core_in_one_block():
    core = default_block_float()
    a, b = whole_numbers(40, 72, 7)
    plain = AnalogNumerics(core.core.analog(Phase.FORWARD)).matmul(a, b, key=5)
    assert torch.equal(AnalogNumerics(core.analog(Phase.FORWARD)).matmul(a, b, key=5), plain)


def test_blocks_keep_small_values_beside_an_outlier():
    """ABFP (arXiv:2205.06287): one scale per vector of a tile, so an outlier spoils its own tile alone."""
    core = default_block_float()
    generator = torch.Generator().manual_seed(8)
    a, b = (torch.randn(1, 32, 720, generator=generator), torch.randn(1, 720, 32, generator=generator))
    a[..., 0], b[:, 0] = 1000.0, 0.0
    exact = a @ b
    errors = [
        float((AnalogNumerics(spec).matmul(a, b, key=6) - exact).square().mean())
        for spec in (core.core.analog(Phase.FORWARD), core.analog(Phase.FORWARD))
    ]
    assert errors[1] < 0.2 * errors[0]


@pytest.mark.parametrize("inner", [default_crossbar(), default_homodyne()], ids=["crossbar", "homodyne"])
def test_any_core_takes_blocks_and_pays_for_their_scales(inner):
    core = BlockFloatCore(core=inner, name="wrapped")
    plain, blocks = inner.work(PRODUCT, 8), core.work(PRODUCT, 8)
    samples = 96 * 96 * math.ceil(96 / inner.analog_length)
    expected = samples * core.logic.sample_j + 2 * 96 * 96 * core.logic.element_j
    assert blocks.energy_j["number format"] == pytest.approx(expected, rel=1e-12)
    assert blocks.operand_bytes == pytest.approx(
        plain.operand_bytes * (1 + 2 / inner.analog_length), rel=1e-12
    )
    assert blocks.light_s == plain.light_s
    assert core.effective_bits == inner.effective_bits
