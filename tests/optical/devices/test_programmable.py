"""The table of programmable parts, and limits of their physics."""

import dataclasses
import math

import pytest

from optical.cores import default_mesh, default_pcm_crossbar
from optical.devices import device_table
from optical.devices.named_parts import named_parts_table
from optical.devices.programmable import programmable_table
from simulator.errors import ParameterError
from simulator.parameter_tree import numeric_leaves, replace_at

CORES = [default_mesh(), default_pcm_crossbar(), default_pcm_crossbar("pcm_gst")]


def test_every_row_is_used_and_every_range_holds_its_value():
    used = {getattr(core, field.name) for core in CORES for field in dataclasses.fields(core)}
    names = {part.name for part in used if dataclasses.is_dataclass(part)}
    assert set(programmable_table().names) <= names
    for row in programmable_table().rows:
        assert row.low is None or row.low <= row.value, row.where
        assert row.high is None or row.high >= row.value, row.where


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.name)
def test_every_device_number_is_a_row(core):
    rows = (*device_table().rows, *programmable_table().rows, *named_parts_table().rows)
    values = {(row.name, row.parameter): row.value for row in rows}
    for path, value in numeric_leaves(core).items():
        owner, _, parameter = path.rpartition(".")
        if owner:
            assert values[getattr(core, owner).name, parameter] == value


def test_heaters_far_apart_do_not_warm_each_other():
    """SCATTER's fit beyond 23 um: 0.2167 exp(-0.1275 d/um)."""
    heater = default_mesh().heater
    phases = 2 * math.pi / math.sqrt(12) * 2
    assert heater.crosstalk_rad(50e-6) == pytest.approx(0.2167 * math.exp(-0.1275 * 50) * phases, rel=2e-3)
    assert heater.crosstalk_rad(1e-3) == pytest.approx(0.0, abs=1e-12)


def test_a_cell_does_not_drift_before_time_has_passed():
    cell = default_pcm_crossbar().cell
    assert cell.drift(0.0) == 0.0
    assert 0.0 < cell.drift(1e-3) < cell.drift(1.0)


@pytest.mark.parametrize(
    ("core", "path", "value"),
    [
        (0, "heater.half_wave_w", -1.0),
        (0, "heater.settling_s", 0.0),
        (0, "heater.contact_coupling", 1.5),
        (0, "layout.cell_fill", 0.0),
        (0, "decomposer.rate_flop_per_s", 0.0),
        (0, "coupler.angle_error_rad", -0.1),
        (0, "oscillator_share", 1.0),
        (1, "cell.contrast_db", 0.0),
        (1, "cell.endurance_writes", 0.0),
        (1, "held_s", -1.0),
    ],
)
def test_numbers_out_of_range_are_refused(core, path, value):
    with pytest.raises(ParameterError, match=path.rpartition(".")[2]):
        replace_at(CORES[core], path, value)
