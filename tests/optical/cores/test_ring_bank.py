import dataclasses
import math

import numpy as np
import pytest

from optical.cores import default_ring_bank
from optical.devices import full_load_w, static_w
from optical.devices.programmable import least_drop, weight_crosstalk
from simulator.errors import LinkError, ParameterError
from simulator.operators import Held, Phase
from simulator.parameter_tree import replace_at
from tests.builders import product

CORE = default_ring_bank()


def simulated_weights(channels, spacing, draws, rng):
    """Weights as set, and the middle one as it comes out of the fields of all rings between their two buses.

    From the far end: a ring drops d, passes 1 - d, and what comes back on the other bus meets it again.
    """
    least = least_drop(spacing)
    wanted = rng.uniform(-1, 1, (draws, channels))
    drops = least + (1 - least) * (wanted + 1) / 2
    detunings = 0.5 * np.sqrt(1 / drops - 1)
    middle = (channels - 1) // 2
    dropped = 1 / (1 + 2j * ((np.arange(channels) - middle) * spacing + detunings))
    phases = np.exp(2j * math.pi * rng.uniform(size=channels))
    back = np.zeros(draws, complex)
    for ring in reversed(range(channels)):
        own, come = dropped[:, ring], phases[ring] * back
        back = own + (1 - own) ** 2 * come / (1 - own * come)
    return wanted, 2 * (np.abs(back) ** 2 - least) / (1 - least) - 1, middle


def unexplained(error, *terms):
    """Return what the best sum of some terms leaves of an error."""
    known = np.concatenate([np.ones((len(error), 1)), *terms], axis=1)
    return error - known @ np.linalg.lstsq(known, error, rcond=None)[0]


@pytest.mark.parametrize(("channels", "spacing"), [(8, 4.0), (16, CORE.channel_spacing), (16, 8.0)])
def test_crosstalk_is_that_of_fields_in_simulated_rings(channels, spacing):
    """All rings at once at random phases, corrected by a line in every weight and a curve of the own.

    The law adds up pairs and takes out any curve of the own weight, degree 7 most of it; phases spread what
    one bank has by its size, hence a fifth.
    """
    rng, found = np.random.default_rng(2), []
    for _ in range(150):
        wanted, weights, middle = simulated_weights(channels, spacing, 1_000, rng)
        error, own = weights - wanted[:, middle], wanted[:, middle, None]
        curved = unexplained(error, wanted, own ** np.arange(2, 8))
        found.append((error.var(), unexplained(error, wanted).var(), curved.var()))
    raw, straight, left = np.mean(found, axis=0)
    law = weight_crosstalk(channels, spacing)
    assert raw == pytest.approx(law.corrected + law.left, rel=0.2)
    assert left == pytest.approx(law.left, rel=0.2)
    assert straight > 5 * law.left  # what lines alone would leave


def test_counted_photoelectrons_have_the_stated_shot_noise():
    """Both symbols and both detectors of a full-scale product: the variance of the record, exactly there."""
    quiet = dataclasses.replace(
        CORE.link,
        launch_w=CORE.link.launch_w * 1e-3,
        receiver=dataclasses.replace(
            CORE.link.receiver,
            noise_a_per_sqrt_hz=0.0,
            dark_current_a=0.0,
            rin_db_per_hz=-300.0,
            leakage=0.0,
            gain=1.0,
            interference=0.0,
        ),
        weight_swing=1.0,
        length=1,
    )
    rng, draws, weight = np.random.default_rng(5), 200_000, -1.0
    mean = quiet.product_current_a / (2 * quiet.receiver.light_bandwidth_hz) / 1.602176634e-19
    counts = rng.poisson(mean * (1 + weight) / 2, draws) - rng.poisson(mean * (1 - weight) / 2, draws)
    products = counts / mean
    stated = quiet.thermal_variance + 2 * quiet.shot_variance
    assert products.mean() == pytest.approx(weight, abs=5 * math.sqrt(stated / draws))
    assert products.var() == pytest.approx(stated, rel=5 * math.sqrt(2 / draws))


def test_dark_level_of_a_modulator_cancels_between_the_symbols():
    """It costs swing and adds shot noise, and leaves no error in proportion to the light."""
    leaky = replace_at(CORE.link, "receiver.leakage", 0.1)
    clean = replace_at(CORE.link, "receiver.leakage", 0.0)
    assert leaky.product_current_a == pytest.approx(0.9 * clean.product_current_a, rel=1e-12)
    assert leaky.noise_ratio.bright["laser intensity noise"] == pytest.approx(
        clean.noise_ratio.bright["laser intensity noise"], rel=0.01
    )


def test_channels_end_where_finesse_does():
    """Tait et al., IEEE JSTQE 22 (2016) 5900214: 108 channels at a finesse of 368."""
    ring = CORE.ring
    sharp = dataclasses.replace(ring, quality_factor=ring.quality_factor * 368.0001 / ring.finesse)
    assert sharp.channels == 108
    assert CORE.wavelengths <= ring.channels
    with pytest.raises(
        ParameterError, match=r"wavelengths \(17\) must be at most 16, what a finesse of 57\.9"
    ):
        dataclasses.replace(CORE, wavelengths=17)


def test_tail_of_the_next_ring_matches_the_lorentzian():
    """Q = 1e4, 16 channels in 10 nm at 1550 nm: the next ring on resonance drops -18.2 dB."""
    spacing = (10.0 / 16) / (1550.0 / 1e4)
    assert 10 * math.log10(1 / (1 + (2 * spacing) ** 2)) == pytest.approx(-18.2, abs=0.05)
    assert least_drop(spacing) == pytest.approx(1 / (1 + spacing**2), rel=1e-12)


def test_every_part_of_crosstalk_shrinks_with_distance():
    laws = [dataclasses.asdict(weight_crosstalk(12, spacing)) for spacing in (4.0, 6.0, 10.0)]
    for part in ("corrected", "left"):
        assert laws[0][part] > laws[1][part] > laws[2][part] > 0.0


def test_single_ring_has_no_neighbours():
    law = weight_crosstalk(1, 5.0)
    assert law.corrected == law.left == 0.0


@pytest.mark.parametrize(
    ("path", "better"),
    [
        ("chip.averages", 100_000),
        ("layout.ring_spacing_m", 45e-6),
        ("ring.quality_factor", 20_000.0),
        ("ring.setting_bits", 12.0),
        ("tuning_dac.enob_bits", 10.0),
    ],
)
def test_better_rings_hold_more_bits(path, better):
    assert replace_at(CORE, path, better).weight_bits > CORE.weight_bits


def test_perfect_correction_leaves_what_is_not_linear():
    """With every coefficient known exactly, lock and driver remain, and what two weights do together."""
    known = replace_at(CORE, "chip.averages", 10**12).weight_errors()
    assert known["thermal crosstalk"] < 1e-12
    assert known["ring crosstalk"] == pytest.approx(CORE.crosstalk.left, rel=1e-6)


def test_correction_is_as_good_as_its_receiver_and_no_better():
    """Kay 1993, example 10.1: unmeasured couplings stay; measured ones by reading noise over readings."""
    raw = replace_at(CORE, "chip.mismatch", "raw").weight_errors()
    everything = CORE.crosstalk.corrected + CORE.crosstalk.left
    assert raw["ring crosstalk"] == pytest.approx(everything, rel=1e-12)
    left = [replace_at(CORE, "chip.averages", n).weight_errors() for n in (10**6, 4 * 10**6)]
    for cause, stays in (("ring crosstalk", CORE.crosstalk.left), ("thermal crosstalk", 0.0)):
        assert left[0][cause] - stays == pytest.approx(4.0 * (left[1][cause] - stays), rel=0.01)
    bright = dataclasses.replace(CORE, laser_power_w=4 * CORE.laser_power_w)
    assert bright.weight_errors()["ring crosstalk"] < CORE.weight_errors()["ring crosstalk"]


def test_calibration_moves_every_ring_and_reads_every_line():
    cost, n = CORE.calibration, CORE.wavelengths
    assert cost.time_s == pytest.approx(n * (10e-6 + n * CORE.chip.averages / 5e9), rel=1e-12)
    assert replace_at(CORE, "chip.mismatch", "raw").calibration.time_s == 0.0


def test_lock_alone_gives_its_own_bits():
    isolated = dataclasses.replace(CORE, wavelengths=1)
    isolated = replace_at(isolated, "tuning_dac.nominal_bits", 40.0)
    isolated = replace_at(isolated, "tuning_dac.enob_bits", 30.0)
    assert isolated.weight_bits == pytest.approx(CORE.ring.setting_bits, rel=1e-9)


def test_sharper_rings_smear_symbols():
    """A ring passes half its linewidth at baseband: finesse is paid with bandwidth."""
    sharp = replace_at(CORE, "ring.quality_factor", 40_000.0)
    assert sharp.link.receiver.interference > CORE.link.receiver.interference
    assert sharp.link.receiver.gain < CORE.link.receiver.gain


def test_path_of_the_bank_is_the_published_one():
    """LT (HPCA 2024), weight bank: n - 1 passed rings of 0.1 dB, one of 0.95 dB, splitters of 0.1 dB."""
    losses = {element.name: element.loss_db for element in CORE.path}
    bank = losses["15 x passed ring"] + losses["weight ring"] + losses["5 x y_branch"]
    assert bank == pytest.approx(15 * 0.1 + 0.95 + 5 * 0.1, rel=1e-12)


def test_every_load_waits_for_the_heaters():
    work = CORE.work(product(m=512, k=160, n=64), 4)
    assert work.writes == math.ceil(160 / 16) * math.ceil(64 / 32) / 4
    assert work.programming_s == pytest.approx(work.writes * CORE.ring.settling_s, rel=1e-12)
    assert work.light_s == pytest.approx(work.writes * 512 * 2 / CORE.symbol_rate_hz, rel=1e-12)


def test_the_three_products_of_training_load_what_they_need():
    """Forward and grad_input load W and its transpose, grad_weight the activations."""
    tokens, wide, narrow = 4096, 2048, 512
    forward = CORE.work(product(tokens, narrow, wide, held=Held.B), 8)
    grad_input = CORE.work(product(tokens, wide, narrow, Held.B, Phase.GRAD_INPUT), 8)
    grad_weight = CORE.work(product(narrow, tokens, wide, phase=Phase.GRAD_WEIGHT), 8)
    weight_load = wide * narrow * CORE.tuning_dac.conversion_j
    assert forward.energy_j["reload"] == pytest.approx(weight_load, rel=1e-12)
    assert grad_input.energy_j["reload"] == pytest.approx(weight_load, rel=1e-12)
    loaded = narrow * tokens * CORE.tuning_dac.conversion_j
    assert grad_weight.energy_j["reload"] == pytest.approx(loaded, rel=1e-12)
    assert grad_weight.programming_s > forward.programming_s


def test_converters_are_reused_as_often_as_the_array_allows():
    """A DAC serves all banks, in two symbols; an ADC all wavelengths; a heater all vectors."""
    operator = product(m=512, k=160, n=64)
    energy = CORE.work(operator, 1).energy_j
    assert energy["dac"] == pytest.approx(2 * operator.macs / 32 * CORE.dac.conversion_j, rel=1e-12)
    assert energy["adc"] == pytest.approx(operator.macs / 16 * CORE.adc.conversion_j, rel=1e-12)
    assert energy["reload"] == pytest.approx(operator.macs / 512 * CORE.tuning_dac.conversion_j, rel=1e-12)


def test_heaters_draw_power_all_the_time():
    parts = static_w(CORE.parts())
    assert parts["ring tuning"] > CORE.rings * CORE.ring.tuning_w
    assert "ring tuning" not in full_load_w(CORE.parts(), CORE.full_load)


def test_noise_ratio_is_that_of_the_budget():
    assert 1 / CORE.budget.noise_ratio.total == pytest.approx(CORE.budget.snr, rel=1e-12)


def test_no_light_is_refused():
    with pytest.raises(LinkError, match="does not close"):
        dataclasses.replace(CORE, laser_power_w=1e-9).budget  # noqa: B018 - the property checks
