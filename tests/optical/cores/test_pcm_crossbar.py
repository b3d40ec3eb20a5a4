"""Limits of the phase-change crossbar's light, of its cells and of their writes."""

import dataclasses
import math

import numpy as np
import pytest

from optical.cores import default_pcm_crossbar
from optical.cores.pcm_crossbar import SignedInput
from optical.devices import Waveguide, static_w
from optical.devices.named_parts import named_parts
from optical.devices.programmable import PcmCell, programmable_table
from simulator.errors import LinkError, ParameterError
from simulator.operators import Held, Phase
from simulator.parameter_tree import replace_at
from tests.builders import product

DARK = Waveguide(name="without loss", loss_db_per_m=0.0)
CORE = default_pcm_crossbar()
OFFSET = dataclasses.replace(CORE, signed_input=SignedInput.OFFSET)


def test_light_is_shared_by_the_columns_and_joined_without_knowing_wavelengths():
    """Feldmann 2021: even splitting over 2 M columns and even joining of N rows leave 1/(2 M N)."""
    lossless = dataclasses.replace(
        CORE, waveguide=DARK, feed=DARK, modulator=named_parts()["mzm_quoted"].build()
    )
    for path in ("laser.coupling_loss_db", "router.insertion_loss_db", "modulator.insertion_loss_db"):
        lossless = replace_at(lossless, path, 0.0)
    lossless = replace_at(lossless, "router.pass_loss_db", 0.0)
    for path in ("branch.insertion_loss_db", "crossing.insertion_loss_db", "cell.insertion_loss_db"):
        lossless = replace_at(lossless, path, 0.0)
    tails_db = lossless.router.passing_loss_db(lossless.modulators, lossless.line_spacing_hz)
    received = lossless.budget.received_w * 10 ** (tails_db / 10)
    assert received == pytest.approx(CORE.laser_power_w / (2 * 16 * 16), rel=1e-12)
    assert 2 * CORE.columns * CORE.rows * received <= CORE.modulators * CORE.laser_power_w
    assert CORE.budget.received_w < received


@pytest.mark.parametrize("core", [CORE, OFFSET], ids=["passes", "offset"])
def test_shot_noise_is_that_of_the_currents_of_all_cells(core):
    """Shot noise 2 q I B of both detectors of a pair: stated is at least that, at most a third more."""
    link, generator = core.link, np.random.default_rng(3)
    quiet = replace_at(replace_at(link, "receiver.noise_a_per_sqrt_hz", 0.0), "receiver.dark_current_a", 0.0)
    quiet = replace_at(quiet, "receiver.rin_db_per_hz", -300.0)
    a, w = generator.uniform(-1, 1, (2, 4000, core.rows))
    leak = link.receiver.leakage
    sent = [(1 + a) / 2] if quiet.offset else [np.maximum(a, 0), np.maximum(-a, 0)]
    swing_a = link.receiver.responsivity_a_per_w * link.received_w * (1 - link.contrast)
    through = np.abs(w) + 2 * link.contrast / (1 - link.contrast)
    current_a = sum(((power + leak) * through).sum(1) * swing_a for power in sent)
    found = (
        np.mean(2 * 1.602176634e-19 * current_a * link.receiver.light_bandwidth_hz)
        / link.product_current_a**2
    )
    stated = quiet.thermal_variance + np.mean((a**2 + w**2).sum(1)) * quiet.shot_variance
    assert 0.99 * found < stated < 1.34 * found


def test_differential_cells_give_every_sign():
    """(T+ - T-) / (T_max - T_min) is the weight for all four signs, in both ways of sending an input."""
    clear, contrast = 1.0, CORE.link.contrast
    swing = clear * (1 - contrast)
    for a in (-0.7, 0.4):
        for w in (-0.9, 0.2):
            pair = contrast + (1 - contrast) * max(w, 0) - contrast - (1 - contrast) * max(-w, 0)
            passes = max(a, 0) * pair - max(-a, 0) * pair
            offset = 2 * ((1 + a) / 2 * pair) - pair
            assert passes / swing == pytest.approx(a * w)
            assert offset / swing == pytest.approx(a * w)


def test_an_offset_is_quicker_and_coarser():
    operator = product(4096, 64, 64, Held.B)
    assert OFFSET.work(operator, 1).light_s == pytest.approx(CORE.work(operator, 1).light_s / 2, rel=1e-12)
    assert OFFSET.peak_macs_per_s == 2 * CORE.peak_macs_per_s
    one, other = OFFSET.analog(Phase.FORWARD), CORE.analog(Phase.FORWARD)
    assert one.thermal_variance > other.thermal_variance
    assert (one.dac_bits, one.adc_range_sigma) == (other.dac_bits - 1, 2 * other.adc_range_sigma)


def test_holding_takes_no_power_and_writing_takes_energy():
    """128 x 128 cells over 10 dB at 1 nJ/dB: at most 164 uJ a load, a third of it on average."""
    gst = dataclasses.replace(
        default_pcm_crossbar("pcm_gst"), rows=128, columns=64, vectors=1, line_spacing_hz=30e9
    )
    assert gst.cells == 128 * 128
    assert gst.reload.energy_j == pytest.approx(164e-6 / 3, rel=0.01)
    assert "phase hold" not in static_w(CORE.parts())
    written = CORE.work(product(4096, 16, 16), 1).energy_j["programming"]
    assert written == pytest.approx(CORE.reload.energy_j, rel=1e-12)


def test_every_tile_is_written_in_every_phase():
    """Nothing stays: the transpose and the gradient's operands are written like the weights."""
    forward = CORE.work(product(4096, 64, 128, Held.B), 1)
    grad_input = CORE.work(product(4096, 128, 64, Held.B, Phase.GRAD_INPUT), 1)
    grad_weight = CORE.work(product(64, 4096, 128, phase=Phase.GRAD_WEIGHT), 1)
    assert forward.writes == grad_input.writes == 4 * 8
    assert grad_weight.writes == 256 * 4
    assert grad_weight.energy_j["programming"] == pytest.approx(
        32 * forward.energy_j["programming"], rel=1e-12
    )
    assert grad_weight.programming_s == pytest.approx(32 * forward.programming_s, rel=1e-12)


def test_partial_sums_of_the_tiles_along_a_sum_go_through_the_buffer():
    once, twice = (CORE.work(product(512, k, 16), 1).operand_bytes for k in (16, 32))
    streamed, loaded = 512 * 16 * 1.0, 2 * 16 * 16 * 5 / 8
    assert once == pytest.approx(streamed + loaded, rel=1e-12)
    assert twice - 2 * once == pytest.approx(512 * 16 * 8, rel=1e-12)


def test_drift_is_a_gain_and_a_spread_that_time_makes_worse():
    """Transmission (t/t0)^-nu: none at once, more after a longer hold; cells of one exponent stay alike."""
    fresh = dataclasses.replace(CORE, held_s=0.0)
    old = dataclasses.replace(CORE, held_s=1.0)
    assert fresh.analog(Phase.FORWARD).product_gain == 1.0
    assert old.analog(Phase.FORWARD).product_gain == pytest.approx(1e6**-0.002, rel=1e-5)
    assert old.drift_variance > CORE.drift_variance > fresh.drift_variance == 0.0
    assert old.analog(Phase.FORWARD).chip.second_gain == old.drift_variance
    alike = replace_at(old, "cell.drift_spread", 0.0)
    assert alike.analog(Phase.FORWARD).chip is None


def test_more_levels_leave_a_quarter_of_the_error_each():
    fine = replace_at(dataclasses.replace(CORE, held_s=0.0), "cell.level_bits", 12.0)
    finer = replace_at(fine, "cell.level_bits", 13.0)
    assert fine.load_variance == pytest.approx(4 * finer.load_variance, rel=1e-3)
    assert fine.effective_bits > CORE.effective_bits


def test_endurance_is_that_of_the_cell():
    gst = default_pcm_crossbar("pcm_gst")
    assert CORE.reload.endurance_writes == 100 * gst.reload.endurance_writes == 500_000
    assert gst.cell == programmable_table().build(PcmCell, "pcm_gst")


def test_too_large_an_array_does_not_close():
    dim = dataclasses.replace(CORE, laser_power_w=1e-5)
    with pytest.raises(LinkError, match="the link of 'pcm_crossbar' does not close"):
        dim.budget  # noqa: B018
    with pytest.raises(ParameterError, match="rows must be whole"):
        dataclasses.replace(CORE, rows=2.5)
    with pytest.raises(ParameterError, match="written_at_once"):
        dataclasses.replace(CORE, written_at_once=1000)


def test_more_light_leaves_only_what_it_cannot_lower():
    clear = dataclasses.replace(CORE, waveguide=DARK, feed=DARK)
    bright = dataclasses.replace(clear, laser_power_w=1e6)
    cap = math.fsum(bright.noise_ratio.bright.values())
    assert bright.noise_ratio.total == pytest.approx(cap, rel=1e-6)
    assert bright.noise_ratio.bright == pytest.approx(clear.noise_ratio.bright, rel=1e-12)
