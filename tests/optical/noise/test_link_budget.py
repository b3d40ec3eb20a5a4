import dataclasses
import math

import numpy as np
import pytest

from optical.cores import Product, core_precision, default_crossbar, with_laser_for
from optical.devices import Waveguide
from optical.devices.limits import bits_from_snr, bits_of_noise, noise_of_bits, snr_from_bits
from optical.devices.named_parts import named_parts
from optical.noise.link_budget import QUADRATURE_VARIANCE, check_closes
from simulator.errors import LinkError, ParameterError
from simulator.operands.statistics import OperandKind, operands_of
from simulator.parameter_tree import replace_at

Q = 1.602176634e-19
CORE = default_crossbar()
LINK = CORE.link


def with_values(core, **changes):
    for path, value in changes.items():
        core = replace_at(core, path.replace("__", "."), value)
    return core


def seen(link, **changes):
    """Return a budget whose receiver has other numbers."""
    return dataclasses.replace(link, receiver=dataclasses.replace(link.receiver, **changes))


DARK = Waveguide(name="without loss", loss_db_per_m=0.0)


def light_a(link):
    return link.receiver.responsivity_a_per_w * link.received_w


def closes(link):
    check_closes("core", link.noise_ratio, link.elements, link.split)


def test_path_of_lightening_transformer_loses_4_22_db():
    """LT (HPCA 2024), path loss of the 12 x 12 core: 4.22 dB and a division by 12 x 12 of each operand."""
    bare = with_values(
        dataclasses.replace(CORE, waveguide=DARK, feed=DARK, modulator=named_parts()["mzm_quoted"].build()),
        laser__coupling_loss_db=0.0,
        crossing__insertion_loss_db=0.0,
        broadcast=1,
    )
    ours = ("passed routers", "splitters to modulators")
    counted = (element.loss_db for element in bare.path if element.name not in ours)
    assert sum(counted) == pytest.approx(4.22, abs=1e-9)
    assert bare.link.split == 2 * 144


def test_parts_of_the_path_add_up():
    assert LINK.loss_db == pytest.approx(sum(element.loss_db for element in LINK.elements), rel=1e-12)
    assert LINK.received_w == pytest.approx(
        LINK.launch_w * 10 ** (-LINK.loss_db / 10) / LINK.split, rel=1e-12
    )


def test_passive_path_never_amplifies():
    all_nodes_w = 2 * CORE.rows * CORE.columns * LINK.received_w
    assert all_nodes_w < LINK.launch_w


def test_path_without_loss_delivers_all_the_light():
    perfect = dataclasses.replace(LINK, elements=())
    assert 2 * CORE.rows * CORE.columns * perfect.received_w == pytest.approx(LINK.launch_w, rel=1e-12)


def test_ideal_difference_current_is_twice_the_photocurrent():
    ideal = seen(LINK, leakage=0.0, gain=1.0, interference=0.0)
    assert ideal.product_current_a == pytest.approx(
        2 * LINK.receiver.responsivity_a_per_w * LINK.received_w, rel=1e-12
    )


def test_shot_noise_alone_follows_photon_counting():
    """Full-scale samples of n products: SNR = n 4 (RP)^2 / (2 q 2 R P B), that is n photoelectrons."""
    quiet = seen(
        LINK,
        noise_a_per_sqrt_hz=0.0,
        dark_current_a=0.0,
        rin_db_per_hz=-300.0,
        leakage=0.0,
        gain=1.0,
        interference=0.0,
    )
    quiet = dataclasses.replace(quiet, mixing=0.0)
    electrons = 2 * light_a(quiet) / (2 * quiet.receiver.light_bandwidth_hz) / Q
    assert quiet.snr == pytest.approx(quiet.analog_length * electrons, rel=1e-6)


def test_difference_current_simulated_with_fields_has_the_stated_shot_noise():
    """Poisson photoelectrons of both detectors of a pair, counted per symbol."""
    rng = np.random.default_rng(5)
    a, b, draws = 0.7, -0.4, 200_000
    quiet = seen(
        dataclasses.replace(LINK, launch_w=LINK.launch_w * 1e-3),
        noise_a_per_sqrt_hz=0.0,
        dark_current_a=0.0,
        rin_db_per_hz=-300.0,
        leakage=0.0,
        gain=1.0,
        interference=0.0,
    )
    quiet = dataclasses.replace(quiet, mixing=0.0)
    per_symbol = light_a(quiet) / (2 * quiet.receiver.light_bandwidth_hz) / Q
    plus = rng.poisson(per_symbol * (a + b) ** 2 / 2, draws)
    minus = rng.poisson(per_symbol * (a - b) ** 2 / 2, draws)
    products = (plus - minus) / (2 * per_symbol)
    variance = quiet.shot_variance * (a**2 + b**2)
    assert products.mean() == pytest.approx(a * b, abs=5 * math.sqrt(variance / draws))
    assert products.var() == pytest.approx(variance, rel=5 * math.sqrt(2 / draws))


def test_amplifier_noise_is_its_density_over_its_bandwidth():
    """21 pA/sqrt(Hz), as power 1.6 times with a second pair on the amplifier, in the receiver's bandwidth."""
    dark = seen(LINK, dark_current_a=0.0).receiver
    assert dark.thermal_current_a2 == pytest.approx(21e-12**2 * 1.6 * dark.bandwidth_hz, rel=1e-9)


def test_products_of_other_symbols_are_an_error():
    slow = seen(LINK, interference=0.01, gain=0.9)
    assert slow.rin_variance == pytest.approx(LINK.receiver.rin_ratio + 0.01 + LINK.mixing, rel=1e-12)
    assert slow.product_current_a / 0.9 == pytest.approx(
        LINK.product_current_a / LINK.receiver.gain, rel=1e-12
    )


def test_quadrature_variance_is_that_of_even_operands():
    rng = np.random.default_rng(6)
    a, b = rng.uniform(-1, 1, (2, 400_000))
    residue = np.sqrt((1 - a**2) * (1 - b**2))
    assert residue.var() == pytest.approx(QUADRATURE_VARIANCE, rel=0.01)


@pytest.mark.parametrize("part", ["thermal", "shot"])
def test_four_times_the_light_lowers_thermal_sixteenfold_and_shot_fourfold(part):
    clean = seen(LINK, leakage=0.0, cmrr_db=math.inf)
    bright = dataclasses.replace(clean, launch_w=4 * clean.launch_w)
    factor = {"thermal": 16, "shot": 4}[part]
    name = f"{part}_variance"
    assert getattr(clean, name) == pytest.approx(factor * getattr(bright, name), rel=1e-9)


def test_shot_noise_goes_by_the_current_that_light_makes():
    bright = dataclasses.replace(LINK, launch_w=2 * LINK.launch_w)
    keen = seen(LINK, responsivity_a_per_w=1.7 * LINK.receiver.responsivity_a_per_w)
    for link, times in ((bright, 2.0), (keen, 1.7)):
        assert link.shot_current_a2 == pytest.approx(times * LINK.shot_current_a2, rel=1e-12)


def test_full_operands_leave_the_intensity_noise_of_half_the_sum_of_both_currents():
    """Two full operands make (1 + 1)^2 / 2 photocurrents of one in a detector and none in the other."""
    half_a = ((1 + 1) ** 2 / 2 + (1 - 1) ** 2 / 2) * light_a(LINK) / 2
    common_a2 = half_a**2 * LINK.receiver.rin_ratio
    left_a2 = common_a2 * 10 ** (-LINK.receiver.cmrr_db / 10)
    assert (1 + 1) * LINK.common_mode_current_a2 == pytest.approx(left_a2, rel=1e-12)


def test_intensity_noise_does_not_depend_on_power():
    bright = dataclasses.replace(LINK, launch_w=10 * LINK.launch_w)
    assert bright.rin_variance == LINK.rin_variance


@pytest.mark.parametrize(
    ("path", "factor"),
    [
        ("laser.coupling_loss_db", 1.5),
        ("router.insertion_loss_db", 1.5),
        ("router.pass_loss_db", 2.0),
        ("router.linewidth_hz", 2.0),
        ("chip.grid.spacing_m", 0.5),
        ("tia.bandwidth_hz", 0.4),
        ("readout.window", 1.6),
        ("modulator.insertion_loss_db", 1.5),
        ("waveguide.loss_db_per_m", 1.5),
        ("crossing.insertion_loss_db", 5.0),
        ("tia.noise_a_per_sqrt_hz", 1.5),
        ("detector.dark_current_a", 100.0),
        ("symbol_rate_hz", 2.0),
        ("laser.rin_db_per_hz", 0.9),
        ("modulator.extinction_ratio_db", 0.5),
        ("modulator.bandwidth_hz", 0.1),
        ("detector.bandwidth_hz", 0.1),
        ("detector.cmrr_db", 0.2),
        ("layout.feed_length_m", 2.0),
    ],
)
def test_worse_part_lowers_effective_bits(path, factor):
    owner = CORE
    for name in path.split("."):
        owner = getattr(owner, name)
    worse = replace_at(CORE, path, owner * factor)
    assert worse.link.effective_bits < LINK.effective_bits


def test_bits_and_ratio_are_inverse():
    assert bits_from_snr(snr_from_bits(7.3)) == pytest.approx(7.3, rel=1e-12)
    assert bits_of_noise(noise_of_bits(7.3)) == pytest.approx(7.3, rel=1e-12)
    for bits in (4, 8, 12):  # an ideal quantiser has its bits
        assert bits_of_noise(4.0**-bits / 3.0) == pytest.approx(bits, abs=0.01)
    assert bits_of_noise(0.0) == math.inf
    assert bits_from_snr(math.inf) == math.inf


def test_converters_only_take_bits_away():
    assert CORE.effective_bits < min(LINK.effective_bits, CORE.adc.enob_bits)
    lit = with_values(
        dataclasses.replace(CORE, waveguide=DARK, feed=DARK, modulator=named_parts()["mzm_quoted"].build()),
        laser_power_w=1e6,
        laser__rin_db_per_hz=-300.0,
        modulator__extinction_ratio_db=300.0,
        symbol_rate_hz=1e6,
        router__insertion_loss_db=0.0,
        crossing__crosstalk_db=300.0,
        readout__jitter_s=0.0,
    )
    fine = dataclasses.replace(lit, dac=dataclasses.replace(CORE.dac, nominal_bits=30.0, enob_bits=30.0))
    assert fine.effective_bits == pytest.approx(CORE.adc.enob_bits, abs=1e-3)


def test_typical_sample_is_weaker_than_full_scale():
    assert LINK.typical_snr < LINK.snr


PRODUCTS = (Product(operands=operands_of(OperandKind.GAUSSIAN), length=1024),)


@pytest.mark.parametrize("target_db", [-5.0, 10.0, 20.0, 26.0])
def test_solved_power_reaches_exactly_the_target(target_db):
    sized = with_laser_for(CORE, target_db, PRODUCTS)
    assert core_precision(sized, PRODUCTS).snr_db == pytest.approx(target_db, abs=1e-3)


def test_solving_ignores_the_present_power():
    dim = replace_at(CORE, "laser_power_w", CORE.laser_power_w / 100)
    powers_w = [with_laser_for(core, 20.0, PRODUCTS).laser_power_w for core in (dim, CORE)]
    assert powers_w[0] == pytest.approx(powers_w[1], rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"laser__rin_db_per_hz": -110.0}, "laser intensity, other symbols, crosstalk"),
        ({"modulator__extinction_ratio_db": 6.0}, "amplifier, dark current, extinction"),
        ({"modulator__bandwidth_hz": 1e9}, "laser intensity, other symbols, crosstalk"),
    ],
)
def test_unreachable_ratio_names_what_caps_it(changes, cause):
    with pytest.raises(
        LinkError, match=rf"cannot deliver 40\.0 dB .* are the most, kept from more by {cause}"
    ):
        with_laser_for(with_values(CORE, **changes), 40.0, PRODUCTS)


def test_nonsense_target_is_refused():
    with pytest.raises(ParameterError, match="must be a finite number of decibels"):
        with_laser_for(CORE, math.inf, PRODUCTS)


def test_link_that_does_not_close_names_the_worst_element():
    lossy = replace_at(CORE, "modulator.insertion_loss_db", 70.0)
    with pytest.raises(LinkError, match=r"'crossbar' does not close: .*'mzm_tfln_5mm' \(73\.68 dB\)"):
        _ = lossy.budget


def test_dark_laser_does_not_close_the_link():
    with pytest.raises(LinkError, match="raise the laser's power"):
        _ = replace_at(CORE, "laser_power_w", 1e-9).budget


def test_link_that_closes_is_the_budget():
    assert CORE.budget is CORE.link


def test_impossible_budget_is_refused():
    with pytest.raises(ParameterError, match="leakage must be at least 0 and below 1"):
        seen(LINK, leakage=1.0)


def test_symbols_of_a_sample_close_a_link_together():
    """A sum over n symbols has n times the current and sqrt(n) times the noise, so 400 symbols carry 20 times
    less light than one symbol would need; a sample that equals its noise is still the end."""
    quiet = with_values(CORE, laser__rin_db_per_hz=-300.0, temporal_accumulation=400)
    faint = dataclasses.replace(quiet.link, launch_w=quiet.laser_power_w / 2000)
    symbol_a = 2.0 * light_a(faint) * faint.wavelengths * faint.receiver.pairs
    assert symbol_a < math.sqrt(faint.receiver.thermal_current_a2)
    assert faint.snr_db > 3.0
    closes(faint)
    with pytest.raises(LinkError, match="misses the noise"):
        closes(dataclasses.replace(faint, symbols=1))
    darker = dataclasses.replace(faint, launch_w=faint.launch_w * 10 ** (-0.05 * (faint.snr_db + 1.0)))
    with pytest.raises(LinkError, match=r"by \d\.\d dB"):
        closes(darker)
