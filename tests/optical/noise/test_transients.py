"""Receivers in time: operands, filters and white noise step by step, against the link budgets."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.signal import lfilter

from optical.cores import default_crossbar, default_homodyne
from optical.devices import PulsedLaser, Sampler, device_table
from optical.noise.receiver import Symbols, reading_of
from simulator.errors import ParameterError
from simulator.parameter_tree import replace_at
from simulator.units import ELEMENTARY_CHARGE_C

STEPS = 64
"""Steps of a symbol."""
WITHIN_DB = 1.0
"""What the budgets must meet; the simulated ratios themselves are uncertain by 0.2 to 0.3 dB."""
SAMPLER = device_table().build(Sampler, "sampler")
PULSED = device_table().build(PulsedLaser, "carved_laser")
BRIGHT = 1e4
"""Light over the present light, by which nothing but interference is left."""


def quiet(core):
    """A core without what is no matter of time: dark light of modulators, and pairs that reject badly."""
    core = replace_at(core, "modulator.extinction_ratio_db", 300.0)
    pair = "receiver" if core.name == "homodyne" else "detector"
    return replace_at(core, f"{pair}.cmrr_db", 300.0)


def crossbar(rate_hz, light=1.0, **changes):
    core = dataclasses.replace(quiet(default_crossbar()), symbol_rate_hz=rate_hz, **changes)
    return dataclasses.replace(core, laser_power_w=light * core.laser_power_w)


def homodyne(rate_hz, light=1.0, **changes):
    core = dataclasses.replace(quiet(default_homodyne()), symbol_rate_hz=rate_hz, **changes)
    core = replace_at(core, "receiver.capacitance_f", 1e-9) if light > 1.0 else core
    return dataclasses.replace(core, laser_power_w=light * core.laser_power_w)


def low_pass(values, pole_hz, rate_hz):
    kept = math.exp(-2.0 * math.pi * pole_hz / (rate_hz * STEPS))
    return lfilter([1.0 - kept], [1.0, -kept], values, axis=-1)


def held(rng, products, symbols):
    """Operands spread evenly, and the same held for a symbol each."""
    values = rng.uniform(-1.0, 1.0, (products, symbols))
    return values, np.repeat(values, STEPS, axis=1)


def white(rng, density_a2_per_hz, rate_hz, like):
    """White noise of a one-sided density, on the grid."""
    return rng.normal(size=like.shape) * np.sqrt(density_a2_per_hz * rate_hz * STEPS / 2.0)


def pulses(rng, laser, place, rate_hz, symbols):
    """Field of the source: Gaussian pulses that come early or late by its jitter, or always on."""
    if not isinstance(laser, PulsedLaser):
        return np.ones(symbols * STEPS)
    late = rng.normal(size=symbols) * laser.jitter_s * rate_hz
    away = np.tile(np.arange(STEPS) / STEPS, symbols) - place - np.repeat(late, STEPS)
    away = (away + 0.5) % 1.0 - 0.5
    field = np.exp(-2.0 * math.log(2.0) * (away / laser.duty) ** 2)
    return field / math.sqrt(np.mean(field**2))


def ratio(read, ideal):
    """Signal over everything else, as powers, after the best gain."""
    gain = np.sum(read * ideal) / np.sum(ideal**2)
    return gain**2 * np.mean(ideal**2) / np.mean((read - gain * ideal) ** 2)


def best_ratio(core, current, ideal, symbols, readout):
    """The best over all times at which each symbol is read."""
    weights = readout.weights(core.symbol_rate_hz, STEPS) if readout else np.full(STEPS, 1.0 / STEPS)
    seen = lfilter(weights, [1.0], current)
    found = []
    for late in range(STEPS // 2, 3 * STEPS):
        each = np.append(seen[late::STEPS], np.zeros(4))[: ideal.size]
        whole = slice(4 * symbols, (ideal.size // symbols - 4) * symbols)
        sums = (values[whole].reshape(-1, symbols).sum(axis=1) for values in (each, ideal))
        found.append(ratio(*sums))
    return max(found)


def simulated_crossbar(core, samples):
    rng, rate_hz, link = np.random.default_rng(11), core.symbol_rate_hz, core.link
    symbols, products = samples * core.temporal_accumulation, core.wavelengths * core.summed
    (a, a_t), (b, b_t) = (held(rng, products, symbols) for _ in range(2))
    for pole_hz in (core.modulator.bandwidth_hz, core.router.baseband_hz):
        a_t, b_t = (low_pass(values, pole_hz, rate_hz) for values in (a_t, b_t))
    light_a = link.receiver.responsivity_a_per_w * link.received_w
    lines = a_t * b_t
    current = 2.0 * light_a * lines.sum(axis=0)
    current += (
        2.0
        * light_a
        * (white(rng, 10 ** (core.laser.rin_db_per_hz / 10), rate_hz, lines) * lines).sum(axis=0)
    )
    shone_a = light_a * (a_t**2 + b_t**2).sum(axis=0) + 2 * core.summed * core.detector.dark_current_a
    current += white(rng, 2.0 * ELEMENTARY_CHARGE_C * shone_a, rate_hz, current)
    current = low_pass(current, core.detector.bandwidth_hz, rate_hz)
    current += white(rng, link.receiver.noise_a_per_sqrt_hz**2, rate_hz, current)
    for pole_hz in (core.tia.bandwidth_hz, *core.readout.poles_hz(rate_hz)):
        current = low_pass(current, pole_hz, rate_hz)
    return best_ratio(core, current, (a * b).sum(axis=0), core.temporal_accumulation, core.readout)


def simulated_homodyne(core, samples):
    """The pulse is put where a short run without noise says that it is best."""
    places = np.arange(0.3, 1.0, 0.05)
    best = max(places, key=lambda place: _homodyne(core, 8, place, noisy=False))
    return _homodyne(core, samples, best, noisy=True)


def _homodyne(core, samples, place, *, noisy):
    rng, rate_hz, link = np.random.default_rng(12), core.symbol_rate_hz, core.link
    symbols = (samples + 8) * core.integration_symbols
    (a, a_t), (b, b_t) = (held(rng, 1, symbols) for _ in range(2))
    field = pulses(rng, core.laser, place, rate_hz, symbols)
    a_t, b_t = (low_pass(v, core.modulator.bandwidth_hz, rate_hz)[0] * field for v in (a_t, b_t))
    light_a = link.receiver.responsivity_a_per_w * link.received_w
    current = 2.0 * light_a * a_t * b_t
    ideal = (a * b)[0]
    if noisy:
        rin = white(rng, 10 ** (core.laser.rin_db_per_hz / 10), rate_hz, current)
        shone_a = light_a * (a_t**2 + b_t**2) + 2 * core.receiver.dark_current_a
        shot = white(rng, 2.0 * ELEMENTARY_CHARGE_C * shone_a, rate_hz, current)
        current = current * (1.0 + rin) + shot
        emptied_c = rng.normal(size=symbols // core.integration_symbols) * core.receiver.reset_charge_c
        share = np.repeat(emptied_c, core.integration_symbols * STEPS) * rate_hz / core.integration_symbols
        current = current + share
    return best_ratio(core, current, ideal, core.integration_symbols, core.readout)


@pytest.mark.parametrize("rate_hz", [5e9, 10e9])
@pytest.mark.parametrize("readout", [None, SAMPLER], ids=["integrated", "sampled"])
@pytest.mark.parametrize("light", [1.0, BRIGHT], ids=["lit", "bright"])
def test_crossbar_in_time_has_the_ratio_of_its_budget(rate_hz, readout, light):
    core = crossbar(rate_hz, light, **({} if readout is None else {"readout": readout}))
    measured, link = simulated_crossbar(core, 700), dataclasses.replace(core.link, mixing=0.0)
    assert 10 * math.log10(link.typical_snr / measured) == pytest.approx(0.0, abs=WITHIN_DB)


@pytest.mark.parametrize("rate_hz", [10e9, 20e9])
@pytest.mark.parametrize("laser", [PULSED, None], ids=["pulsed", "steady"])
@pytest.mark.parametrize("light", [1.0, BRIGHT], ids=["lit", "bright"])
def test_homodyne_core_in_time_has_the_ratio_of_its_budget(rate_hz, laser, light):
    few = {"integration_symbols": 64}
    core = homodyne(rate_hz, light, **few, **({} if laser is None else {"laser": laser}))
    measured, link = simulated_homodyne(core, 600), dataclasses.replace(core.link, mixing=0.0)
    assert 10 * math.log10(link.typical_snr / measured) == pytest.approx(0.0, abs=WITHIN_DB)


INTEGRATOR = default_crossbar().readout
OPEN = None


def symbols(readout, **changes):
    """Symbols at 1 GHz through one pole of 3 GHz."""
    values = {"rate_hz": 1e9, "symbols": 1, "operands": 2, "modulator_hz": (3e9,), "readout": readout}
    return Symbols(**values | changes)


def test_integrator_of_many_symbols_keeps_half_a_time_constant_of_each_edge():
    """x = 2 pi B/f: a gain of 1 - 1/x and two cross terms of 1/(2 x), whatever the timing."""
    x = 2 * math.pi * 3
    read = reading_of(symbols(OPEN, symbols=4096))
    assert read.gain == pytest.approx(1 - 1 / x, rel=2e-3)
    assert read.interference == pytest.approx(2 * (1 / (2 * x)) ** 2 / (1 - 1 / x) ** 2, rel=0.03)


def test_integrator_lets_in_half_the_symbol_rate():
    read = reading_of(symbols(OPEN, symbols=7))
    assert read.bandwidth_hz == pytest.approx(0.5e9, rel=1e-9)
    assert read.light_bandwidth_hz == pytest.approx(0.5e9, rel=1e-9)


def test_gate_lets_in_noise_as_it_keeps_edges_out():
    half = reading_of(symbols(dataclasses.replace(INTEGRATOR, window=0.5, edge_s=0.0, jitter_s=0.0)))
    assert half.bandwidth_hz == pytest.approx(1e9, rel=1e-9)
    assert half.interference < 0.01 * reading_of(symbols(OPEN)).interference


def test_sampler_lets_in_noise_of_its_pole_and_keeps_what_is_left_of_a_symbol():
    """(pi/2) B of a pole B, and e^-x of the symbol before, of a held operand's partner."""
    readout = dataclasses.replace(SAMPLER, bandwidth_ratio=0.7, jitter_s=0.0)
    read = reading_of(symbols(readout, operands=1, modulator_hz=()))
    left = math.exp(-2 * math.pi * 0.7)
    assert read.bandwidth_hz == pytest.approx(math.pi / 2 * 0.7e9, rel=2e-3)
    assert read.gain == pytest.approx(1 - left, rel=1e-3)
    assert read.interference == pytest.approx((left * (1 - left)) ** 2 / (1 - left) ** 2, rel=0.03)


def test_better_half_of_both_receivers_is_no_receiver():
    """The noise of an integrator with the edges of a sampler: what the crossbar may not have."""
    path = {"rate_hz": 5e9, "symbols": 3, "operands": 2, "modulator_hz": (12.5e9,), "detector_hz": (20e9,)}
    for readout in (OPEN, INTEGRATOR, dataclasses.replace(SAMPLER, bandwidth_ratio=0.75), SAMPLER):
        read = reading_of(Symbols(**path, amplifier_hz=(7e9,), readout=readout))
        assert read.interference > 10**-3 or read.bandwidth_hz > 1.25 * 2.5e9


def test_late_clock_reads_on_the_edge():
    calm = dataclasses.replace(SAMPLER, jitter_s=0.0)
    late = dataclasses.replace(SAMPLER, jitter_s=20e-12)
    assert reading_of(symbols(late)).interference > reading_of(symbols(calm)).interference
    pulsed = {"symbols": 64, "readout": OPEN, "pulse": 0.3}
    assert (
        reading_of(symbols(**pulsed, jitter_s=20e-12)).interference
        > reading_of(symbols(**pulsed)).interference
    )


def test_longer_pulses_light_more_of_the_edges():
    lit = [reading_of(symbols(OPEN, symbols=64, pulse=duty)).interference for duty in (0.1, 0.3, 0.6)]
    assert sorted(lit) == lit
    assert lit[-1] < reading_of(symbols(OPEN, symbols=64)).interference


def test_symbols_that_pile_up_are_refused():
    with pytest.raises(ParameterError, match="lower symbol_rate_hz or take faster parts"):
        symbols(OPEN, modulator_hz=(2e7,))


def through_routers(rng, router, values, spacing_hz):
    """Fields of lines dropped, modulated and added to one bus in turn, each in phase with its own."""
    draws, lines = values.shape
    distance = (np.arange(lines) - np.arange(lines)[:, None]) * spacing_hz
    best = 10 ** (-router.insertion_loss_db / 20)
    dropped = best / (1.0 + 2j * distance / router.linewidth_hz)
    way = np.exp(2j * math.pi * rng.uniform(size=(lines, lines)))
    fields, left = np.zeros((draws, lines), complex), np.ones(lines, complex)
    for ring in range(lines):
        arm = dropped[ring] * left * way[ring] * values[:, ring, None]
        fields = (1.0 - dropped[ring]) * fields + dropped[ring] * arm
        left = (1.0 - dropped[ring]) * left
    own = (values * fields).sum(axis=0) / (values**2).sum(axis=0)
    return fields / own


@pytest.mark.parametrize("spacing_hz", [100e9, 50e9])
def test_crosstalk_of_multiplexers_is_that_of_fields_through_their_rings(spacing_hz):
    """The rings' losses divide their tails a little, too: the law is for weak tails, hence the tolerance."""
    router = default_crossbar().router
    rng, lines, errors = np.random.default_rng(13), 12, []
    for _ in range(60):
        a, b = rng.uniform(-1.0, 1.0, (2, 500, lines))
        seen = [through_routers(rng, router, values, spacing_hz) for values in (a, b)]
        wanted, read = a * b, (seen[0] * seen[1].conj()).real
        gain = (read * wanted).sum(axis=0) / (wanted**2).sum(axis=0)
        errors.append(((read / gain - wanted) ** 2).mean() / (wanted**2).mean())
    assert np.mean(errors) == pytest.approx(router.mixing(lines, spacing_hz, one_bus=True), rel=0.25)


# Pre-emphasis: what docs/noise.md says of the drive and of operands that arrive apart
def emphasised_db(poles_hz, late_steps=0, taps=(0.0, 0.0), rate_hz=1e10, symbols=64):
    """Signal over other symbols of sums on an integrator, operands sent as x_k - tap x_(k-1)."""
    rng = np.random.default_rng(5)
    values, fields = [], []
    for tap in taps:
        value = rng.uniform(-1.0, 1.0, symbols * 1024)
        sent = np.repeat(value - tap * np.roll(value, 1), STEPS)
        for pole_hz in poles_hz:
            sent = low_pass(sent, pole_hz, rate_hz)
        values.append(value)
        fields.append(sent)
    ideal = values[0] * values[1]
    current = fields[0] * np.roll(fields[1], late_steps)
    found = []
    for late in range(0, STEPS // 2, 2):
        read = np.roll(current, -late).reshape(-1, STEPS).mean(axis=1)
        found.append(ratio(*(one.reshape(-1, symbols).sum(axis=1) for one in (read, ideal))))
    return 10.0 * math.log10(max(found))


def test_other_symbols_behind_a_slower_drive_are_those_of_the_receiver():
    poles_hz = (100e9, 40e9)
    reading = reading_of(Symbols(rate_hz=1e10, symbols=64, operands=2, modulator_hz=poles_hz))
    assert emphasised_db(poles_hz) == pytest.approx(-10.0 * math.log10(reading.interference), abs=WITHIN_DB)


@pytest.mark.parametrize(
    ("poles_hz", "taps", "without_db", "with_db"),
    [
        ((100e9,), (0.003, 0.018), 34.2, 57.0),
        ((100e9, 40e9), (0.016, 0.031), 28.5, 52.0),
        ((100e9, 40e9, 14e9), (0.063, 0.080), 19.3, 39.8),
    ],
)
def test_one_tap_for_each_operand_takes_out_what_drive_and_delay_leave(poles_hz, taps, without_db, with_db):
    apart = 1  # step of a symbol, 1.6 ps
    assert emphasised_db(poles_hz, apart) == pytest.approx(without_db, abs=WITHIN_DB)
    assert emphasised_db(poles_hz, apart, taps) == pytest.approx(with_db, abs=WITHIN_DB)
    wrong = tuple(1.1 * tap for tap in taps)
    assert emphasised_db(poles_hz, apart, wrong) > with_db - 6.0
