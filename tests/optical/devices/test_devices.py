import dataclasses
import functools
import math

import pytest

from optical.cores import CORES, default_crossbar, load_core
from optical.devices import (
    ChipElectronics,
    Converter,
    Crossing,
    Die,
    Laser,
    Modulator,
    PulsedLaser,
    Sram,
    Tia,
    WholeChip,
    device_table,
)
from optical.devices.named_parts import named_parts_table
from optical.devices.programmable import programmable_table
from simulator.errors import ParameterError
from simulator.parameter_tree import numeric_leaves, replace_at
from simulator.tables import Status

ADC = device_table().build(Converter, "adc")


def test_every_row_of_the_table_is_used_by_a_default():
    found = [*(load_core(name) for name in (*CORES, "crossbar+hybrid")), ChipElectronics()]
    built = {device_table().build(Sram, "sram").name, device_table().build(WholeChip, "photonic").name}
    built |= {device_table().build(Modulator, "mzm_quoted").name}  # in lanes that add gradients in light
    built |= {device_table().build(Crossing, "crossing").name}  # of models of circuits
    built |= {device_table().build(PulsedLaser, "carved_laser").name}  # by core.laser
    built |= {device_table().build(Die, name).name for name in ("photonic_die", "cmos_die")}
    while found:
        part = found.pop()
        built.add(getattr(part, "name", ""))
        fields = [getattr(part, field.name) for field in dataclasses.fields(part)]
        found += [value for value in fields if dataclasses.is_dataclass(value)]
    assert set(device_table().names) <= built


def test_every_device_number_is_a_row_of_the_table():
    core = default_crossbar()
    rows = {(row.name, row.parameter): row.value for row in (*device_table().rows, *named_parts_table().rows)}
    for path, value in numeric_leaves(core).items():
        owner, _, parameter = path.rpartition(".")
        if owner:
            part = functools.reduce(getattr, owner.split("."), core)
            assert rows[part.name, parameter] == value


def test_one_more_effective_bit_doubles_conversion_energy():
    finer = ADC.rescaled(ADC.enob_bits + 1)
    assert finer.conversion_j == pytest.approx(2 * ADC.conversion_j, rel=1e-12)
    assert finer.walden_j == pytest.approx(ADC.walden_j, rel=1e-12)


def test_adc_reaches_the_surveyed_figure_of_merit():
    # ISSCC 2022 10.1 in the ADC survey rev 20250609: 16.5 fJ per conversion step (three digits)
    assert ADC.walden_j == pytest.approx(16.5e-15, rel=0.01)


def test_converters_interleave_only_above_their_rate():
    assert ADC.interleaved(ADC.rate_hz) == 1
    assert ADC.interleaved(ADC.rate_hz * 1.01) == 2


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("laser.wall_plug_efficiency", 1.2, "wall_plug_efficiency must be above 0 and at most 1"),
        ("laser.wall_plug_efficiency", 0.0, "wall_plug_efficiency must be above 0"),
        ("comb.conversion_efficiency", -0.1, "conversion_efficiency"),
        ("modulator.insertion_loss_db", -1.0, "insertion_loss_db must be at least 0"),
        ("modulator.extinction_ratio_db", 0.0, "extinction_ratio_db"),
        ("detector.responsivity_a_per_w", 0.0, "responsivity_a_per_w"),
        ("detector.dark_current_a", -1e-9, "dark_current_a"),
        ("layout.node_fill", 1.5, "node_fill"),
        ("adc.enob_bits", 9.0, "enob_bits must be above 0 and at most 8"),
        ("branch.insertion_loss_db", -0.1, "'y_branch': insertion_loss_db"),
    ],
)
def test_impossible_device_is_refused_by_name(path, value, words):
    with pytest.raises(ParameterError, match=words):
        replace_at(default_crossbar(), path, value)


def test_wrong_device_class_is_refused_with_the_row():
    with pytest.raises(ParameterError, match=r"devices\.csv:\d+: Laser has no parameter"):
        device_table().build(Laser, "mzm_quoted")


def test_modulator_takes_its_numbers_in_si():
    modulator = device_table().build(Modulator, "mzm_quoted")
    assert modulator.symbol_energy_j == pytest.approx(450e-15)
    assert modulator.area_m2 == pytest.approx(260e-6 * 20e-6)


def test_every_row_of_a_device_has_a_range_about_its_value():
    """Else no study of doubt can reach it."""
    for row in device_table().rows:
        assert row.low is not None, row.where
        assert row.high is not None, row.where
        assert row.low <= row.value <= row.high, row.where
        assert row.low < row.high, row.where


def test_a_library_or_another_simulator_is_not_called_published():
    libraries = ("Lightening-Transformer", "SimPhony", "M3ICRO", "Albireo", "SCATTER", "IJERT")
    for table in (device_table(), named_parts_table(), programmable_table()):
        for row in table.rows:
            if row.source.startswith(libraries):
                assert row.status is not Status.PUBLISHED, row.where


def test_the_amplifier_is_one_circuit():
    """Noise, power and area of Atef and Zimmermann 2013; 24 uW at Q = 7.03 and 0.7 A/W over pi/2 x 8 GHz."""
    rms_a = 0.7 * 2 * 1e-3 * 10**-1.62 / (2 * 7.03)
    tia = device_table().build(Tia, "tia")
    assert tia.noise_a_per_sqrt_hz == pytest.approx(rms_a / math.sqrt(math.pi / 2 * 8e9), rel=0.02)
    assert tia.bandwidth_hz == 8e9
