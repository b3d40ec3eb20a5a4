"""Choices of phase shifters and modulators: the cost of each, and the cores that refuse it."""

import dataclasses
import math

import numpy as np
import pytest

from optical.cores import default_crossbar, default_homodyne, default_mesh, default_pcm_crossbar
from optical.cores.mzi_mesh import RealMatrixError
from optical.cores.ring_bank import default_ring_bank
from optical.devices import Domain, area_m2, full_load_w, static_w
from optical.devices.named_parts import Role, named_parts, names_of
from optical.devices.programmable import (
    CapacitiveShifter,
    CarrierShifter,
)
from simulator.errors import LinkError
from simulator.parameter_tree import numeric_leaves, replace_at

SHIFTERS = names_of(Role.PHASE_SHIFTER)
MESH = default_mesh()
CARRIER = named_parts()["shifter_carrier_si"].build()
MEMS = named_parts()["shifter_mems_sin"].build()


def photonic_m2(core):
    return area_m2(core.parts(), Domain.PHOTONIC)


def drive_w(core):
    return full_load_w(core.parts(), core.full_load)


def with_shifter(name, ports):
    return dataclasses.replace(MESH, ports=ports, heater=named_parts()[name].build())


def answers(core):
    reload = core.reload
    numbers = (reload.time_s, reload.energy_j, core.link.loss_db, core.load_variance)
    return (
        *numbers,
        tuple(static_w(core.parts()).values()),
        tuple(photonic_m2(core).values()),
    )


@pytest.mark.parametrize("name", SHIFTERS)
def test_every_number_of_a_shifter_moves_an_answer(name):
    core = with_shifter(name, 4)
    for path, value in numeric_leaves(core).items():
        if path.startswith("heater."):
            other = 1.5 * value if value else 1e-3
            assert answers(replace_at(core, path, other)) != answers(core), path


def test_a_capacitor_holds_for_nothing_and_pays_for_each_change():
    """C dV^2 / 2 per step; uniform phases differ by sqrt(2/3) pi rms, so a random step takes C V_pi^2 / 3."""
    core, heated = with_shifter("shifter_mems_sin", 8), with_shifter("heater", 8)
    assert static_w(core.parts())["phase hold"] < 1e-5 * static_w(heated.parts())["phase hold"]
    assert MEMS.setting_j == pytest.approx(MEMS.capacitance_f * MEMS.half_wave_v**2 / 3)
    draws = np.random.default_rng(3).uniform(0, 2, (2, 100_000))
    volts = MEMS.half_wave_v * (draws[0] - draws[1])
    assert MEMS.setting_j == pytest.approx(np.mean(MEMS.capacitance_f * volts**2 / 2), rel=0.02)
    assert core.reload.energy_j - heated.reload.energy_j == pytest.approx(2 * 64 * MEMS.setting_j)
    assert core.reload.time_s < heated.reload.time_s


def test_heat_warms_neighbours_and_charge_does_not():
    spacing = MESH.heaters_apart_m
    assert MESH.heater.crosstalk_rad(spacing) > 0.0
    assert MEMS.crosstalk_rad(spacing) == CARRIER.crosstalk_rad(spacing) == 0.0


def test_carriers_absorb_as_soref_and_bennett_say():
    """IEEE JQE 23 (1987) 123: 1e18 electrons and holes per cm3 shift by pi for 1.6 dB."""

    def absorption_db(per_cm3):
        """Loss of the length that turns by pi: dn = -(8.8e-22 N + 8.5e-18 N^0.8), da = 14.5e-18 N per cm."""
        index = 8.8e-22 * per_cm3 + 8.5e-18 * per_cm3**0.8
        return 10.0 * math.log10(math.e) * 14.5e-18 * per_cm3 / 1e-2 * 1.55e-6 / (2.0 * index)

    dense, thin = (absorption_db(density) for density in (1e18, 3e17))
    assert CARRIER.absorption_db == pytest.approx(dense, rel=0.01)
    assert thin == pytest.approx(1.36, rel=0.01)


def test_loss_that_follows_the_phase_spreads_amplitudes_of_the_mesh():
    """Even phases in [0, 2 pi): the spread of the field by drawing (test_mesh_errors.py has the law)."""
    size, variation = 16, 0.05
    shifter = dataclasses.replace(MEMS, loss_variation_db=variation, drift_rad=0.0)
    phases = np.random.default_rng(8).uniform(0, 2 * math.pi, 20_000)
    field = 10.0 ** (-np.array([shifter.loss_db(phase) for phase in phases]) / 20.0)
    assert shifter.amplitude_spread == pytest.approx(np.std(field) / np.mean(field), rel=0.01)
    quiet, fading = (
        dataclasses.replace(
            MESH, ports=size, heater=dataclasses.replace(shifter, loss_variation_db=value)
        ).relative_matrix_error
        ** 2
        for value in (0.0, variation)
    )
    law = RealMatrixError(ports=size, phase_rad=0.0, coupler_rad=0.0, amplitude=shifter.amplitude_spread)
    assert fading - quiet == pytest.approx(law.amplitudes**2, rel=1e-9)


def test_a_mesh_of_carrier_shifters_is_too_dark_but_for_a_few_ports():
    """65 interferometers with two shifters of 1.8 dB each: no laser makes up for it."""
    with pytest.raises(LinkError, match="65 x interferometer"):
        _ = with_shifter("shifter_carrier_si", 32).budget
    assert with_shifter("shifter_carrier_si", 4).effective_bits < with_shifter("heater", 4).effective_bits


@pytest.mark.parametrize("core", [default_crossbar(), default_homodyne()], ids=lambda core: core.name)
@pytest.mark.parametrize("name", SHIFTERS)
def test_a_node_may_hold_its_quarter_turn_by_any_shifter(core, name):
    part = named_parts()[name].build()
    other = dataclasses.replace(core, phase_shifter=part)
    nodes = core.rows * core.columns
    held = static_w(other.parts())["phase hold"]
    assert held == pytest.approx(nodes * part.hold_w(math.pi / 2))
    if not isinstance(part, CapacitiveShifter):
        assert held == pytest.approx(nodes * part.half_wave_w / 2)
    assert static_w(core.parts())["phase hold"] == 0.0
    wider_m2 = (part.area_m2 - core.phase_shifter.area_m2) / core.layout.node_fill
    assert other.node_area_m2 - core.node_area_m2 == pytest.approx(wider_m2, abs=1e-18)
    extra = part.absorption_db / 2 if isinstance(part, CarrierShifter) else 0.0
    extra += part.loss_variation_db / 2 if isinstance(part, CapacitiveShifter) else 0.0
    lost = {element.name: element.loss_db for element in other.path}[name]
    assert lost == pytest.approx(part.insertion_loss_db + extra)


@pytest.mark.parametrize("core", [default_ring_bank(), default_pcm_crossbar()], ids=lambda core: core.name)
def test_a_ring_modulator_takes_little_drive_and_is_held_on_its_line(core):
    part = named_parts()["mrm_lightening_transformer"].build()
    other = dataclasses.replace(core, modulator=part)
    core = dataclasses.replace(core, modulator=named_parts()["mzm_quoted"].build())
    lines = core.modulators
    extra_w = static_w(other.parts())["ring tuning"] - static_w(core.parts())["ring tuning"]
    assert extra_w == pytest.approx(lines * part.tuning_w)
    drive = drive_w(other)["modulator"] / drive_w(core)["modulator"]
    assert drive == pytest.approx(42 / 450)
    assert photonic_m2(other)["modulator"] < photonic_m2(core)["modulator"]
    for path, value in numeric_leaves(other).items():
        if path.startswith("modulator."):
            changed = replace_at(other, path, 1.5 * value)
            assert (answers_of(changed)) != answers_of(other), path


def answers_of(core):
    return (
        static_w(core.parts()),
        drive_w(core),
        photonic_m2(core),
        core.link.snr,
    )
