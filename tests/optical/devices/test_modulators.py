import dataclasses
import math

import numpy as np
import pytest

from optical.cores import default_crossbar
from optical.devices import (
    FROM_NULL,
    THROUGH_NULL,
    AbsorptionModulator,
    Modulator,
    RingModulator,
)
from optical.devices.modulators import load_j
from optical.devices.named_parts import Role, named_parts
from simulator.errors import ParameterError
from simulator.operators import Phase
from simulator.parameter_tree import find_place, put_part

DRIVER = named_parts()["driver_sige_2025"].build()
SILICON = named_parts()["mzm_si_pin_2014"].build()
CORE = dataclasses.replace(default_crossbar(), modulator=SILICON)
BITS = 10


def encoded(operands, modulator, driver, half_waves):
    """Operands after predistortion to an even grid of phases, full scale 1."""
    phase = 0.5 * math.pi * modulator.swung(driver, half_waves)
    if half_waves == THROUGH_NULL:
        codes = np.arcsin(operands * math.sin(phase)) / phase
        step = 2.0 / 2**BITS
        return np.sin(phase * step * np.round(codes / step)) / math.sin(phase)
    codes = np.arcsin(np.sqrt(operands) * math.sin(phase)) / phase
    step = 1.0 / 2**BITS
    return (np.sin(phase * step * np.round(codes / step)) / math.sin(phase)) ** 2


def error(operands, modulator, driver, half_waves):
    wrong = encoded(operands, modulator, driver, half_waves) - operands
    even = 1.0 / 3.0 if half_waves == THROUGH_NULL else 1.0 / 12.0
    return np.mean(wrong**2) / (even * 4.0**-BITS)


@pytest.mark.parametrize("swing_v", [20.0, 4.0, 1.0])
def test_an_even_grid_of_phases_errs_as_the_sine_is_steep(swing_v):
    """Drawn operands: small ones meet the bound, evenly spread ones at full swing pi^2 / 6, Gaussian 2.31."""
    driver, draw = dataclasses.replace(DRIVER, swing_v=swing_v), np.random.default_rng(1)
    small = 0.02 * draw.uniform(-1, 1, 200_000)
    bound = SILICON.grid_error(driver, THROUGH_NULL)
    assert error(small, SILICON, driver, THROUGH_NULL) == pytest.approx(bound, rel=0.05)
    if swing_v == 20.0:
        assert bound == pytest.approx(math.pi**2 / 4.0)
        even = error(draw.uniform(-1, 1, 200_000), SILICON, driver, THROUGH_NULL)
        assert even == pytest.approx(math.pi**2 / 6.0, rel=0.02)
        normal = np.clip(0.25 * draw.standard_normal(200_000), -1, 1)
        assert error(normal, SILICON, driver, THROUGH_NULL) == pytest.approx(2.31, rel=0.02)


@pytest.mark.parametrize("swing_v", [20.0, 1.0])
def test_powers_err_no_more_than_the_bound(swing_v):
    driver, draw = dataclasses.replace(DRIVER, swing_v=swing_v), np.random.default_rng(2)
    bound = SILICON.grid_error(driver, FROM_NULL)
    worst = max(
        error(np.clip(place + 0.02 * draw.uniform(-1, 1, 50_000), 0, 1), SILICON, driver, FROM_NULL)
        for place in np.linspace(0.05, 0.95, 10)
    )
    assert 0.9 * bound < worst < 1.02 * bound


def test_load_takes_what_steps_upwards_charge():
    """C V E[max(step, 0)] over drawn even values; a termination V^2 / 12 R."""
    values = 2.0 * np.random.default_rng(3).uniform(0, 1, 400_000)
    steps = np.diff(values)
    drawn = 1e-12 * 2.0 * np.mean(np.maximum(steps, 0.0))
    found = load_j(2.0, capacitance_f=1e-12, termination_ohm=None, symbol_rate_hz=5e9)
    assert found == pytest.approx(drawn, rel=0.01)
    ended = load_j(2.0, capacitance_f=None, termination_ohm=50.0, symbol_rate_hz=5e9)
    assert ended == pytest.approx(np.var(values) / 50.0 / 5e9, rel=0.01)


def test_both_signs_take_twice_the_swing_and_a_short_one_costs_light():
    ample = dataclasses.replace(DRIVER, swing_v=100.0)
    loads = [SILICON.symbol_j(ample, 5e9, waves) - ample.symbol_j(waves * 2.5) for waves in (1, 2)]
    assert loads[1] == pytest.approx(4.0 * loads[0])
    assert SILICON.drive_loss_db(ample, THROUGH_NULL) == 0.0
    short = dataclasses.replace(DRIVER, swing_v=2.5)  # half of 2 V_pi: half of the power
    assert SILICON.drive_loss_db(short, THROUGH_NULL) == pytest.approx(10 * math.log10(2.0))
    assert SILICON.drive_loss_db(short, FROM_NULL) == 0.0


def test_a_symbol_in_silicon_takes_six_picojoules():
    """C V^2 / 6 of 1 pF at 4 V, and 2 pJ/bit in four levels of the driver: 2.67 + 4.00 pJ."""
    core = CORE
    energy_j = core.modulator.symbol_j(core.driver, core.symbol_rate_hz, core.half_waves)
    assert energy_j == pytest.approx(6.667e-12, rel=1e-3)
    assert core.modulator_loss_db == pytest.approx(4.4 + 0.436, abs=0.002)
    assert SILICON.half_wave_v * (SILICON.insertion_loss_db - 0.6) == pytest.approx(9.5)


def test_what_a_symbol_loses_in_precision_reaches_execution():
    core = CORE
    perfect = dataclasses.replace(core, modulator=named_parts()["mzm_lightening_transformer"].build())
    assert core.encoding > perfect.encoding == pytest.approx(core.dac.error_at(core.symbol_rate_hz))
    spec = core.analog(Phase.FORWARD)
    assert spec.encoding_variance + 4.0**-spec.dac_bits / 3.0 == pytest.approx(core.encoding)


def test_a_converter_distorts_more_at_a_higher_rate():
    dac = named_parts()["dac_lightening_transformer"].build()
    errors = [dac.error_at(rate) for rate in (1e9, 5e9, 14e9)]
    assert errors == sorted(errors)
    assert errors[2] == pytest.approx(4**-dac.enob_bits / 3 + 0.5 * 10 ** (-dac.sfdr_db / 10) / 3)
    with pytest.raises(ParameterError, match="belong together"):
        dataclasses.replace(dac, sfdr_hz=None)


@pytest.mark.parametrize("kind", [RingModulator, AbsorptionModulator])
def test_the_curve_of_a_power_modulator_costs_precision(kind):
    """Drawn by a fine grid of voltages: ring T = x^2 / (1 + x^2), absorber T = exp(-g v)."""
    part = kind(
        name="it",
        insertion_loss_db=3,
        extinction_ratio_db=10.0,
        bandwidth_hz=3e10,
        tuning_w=0.0,
        area_m2=1e-10,
        swing_v=2.0,
        capacitance_f=1e-14,
    )
    voltage = np.linspace(0, 1, 200_001)
    if kind is RingModulator:
        ends = [math.sqrt(t / (1 - t)) for t in (0.09, 0.9)]
        x = ends[0] + voltage * (ends[1] - ends[0])
        power = x**2 / (1 + x**2)
    else:
        power = np.exp(-math.log(10.0) * voltage)
    slope = np.gradient(power, voltage) / (power.max() - power.min())
    expected = np.trapezoid(np.abs(slope) ** 3, voltage)  # even in power: weight by |dT|
    assert part.grid_error(DRIVER, FROM_NULL) == pytest.approx(expected, rel=1e-3)
    weak = dataclasses.replace(DRIVER, swing_v=1.0)
    with pytest.raises(ParameterError, match="swings 1 V, and modulator 'it' needs 2 V"):
        part.drive_loss_db(weak, FROM_NULL)


def test_a_modulator_states_its_drive_or_its_energy():
    with pytest.raises(ParameterError, match="neither half_wave_v nor symbol_energy_j"):
        dataclasses.replace(SILICON, half_wave_v=None)


def test_every_technology_stands_in_a_core():
    names = [name for name, part in named_parts().items() if part.role is Role.MODULATOR]
    words = ("tfln", "bto", "plasmonic", "si_750um", "eam", "mrm")
    assert all(any(word in name for name in names) for word in words)
    for name in names:
        part = named_parts()[name].build()
        if isinstance(part, Modulator):
            core = dataclasses.replace(default_crossbar(), modulator=part)
            assert core.link.received_w > 0.0


def test_a_driver_is_refused_where_nothing_would_be_driven():
    quoted = named_parts()["mzm_quoted"].build()
    whole = dataclasses.replace(default_crossbar(), modulator=quoted)
    assert whole.driver is None
    assert CORE.driver == DRIVER
    other = dataclasses.replace(DRIVER, swing_v=6.0)
    with pytest.raises(ParameterError, match="states the energy of its symbols whole"):
        dataclasses.replace(whole, driver=other)
    for part, core in ((DRIVER, whole), (None, CORE)):
        with pytest.raises(ParameterError, match="beside its other parts there is"):
            put_part(core, find_place(core, "driver"), part)
    strong = dataclasses.replace(CORE, driver=dataclasses.replace(DRIVER, swing_v=6.0))
    assert strong.modulator_loss_db < CORE.modulator_loss_db
