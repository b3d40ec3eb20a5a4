"""Rescues as cores: names, prices that conserve, and what each adds."""

import math

import pytest

import heliograph
from heliograph.systems import build_system
from optical.cores import load_core
from optical.cores.rescues import RESCUES, split_name
from simulator.errors import ParameterError
from simulator.operators import MatMul, Phase

PRODUCT = MatMul(name="p", phase=Phase.FORWARD, batch=1, m=1024, k=4096, n=2048)


@pytest.mark.parametrize("within", ["crossbar", "ring_bank"])
@pytest.mark.parametrize("name", RESCUES)
def test_energy_is_the_cores_own_repeated_and_the_electronics_of_the_rescue(within, name):
    bare, core = load_core(within), load_core(f"{within}+{name}")
    before, after = (one.work(PRODUCT, 8 * bare.cluster) for one in (bare, core))
    repeats = getattr(core, "repeats", 1)
    added = set(after.energy_j) - set(before.energy_j)
    assert added <= {"number format", "operand transform", "outlier channels"}
    for part, energy in before.energy_j.items():
        same = part in ("reload", "programming") and name != "averaging"
        assert energy * repeats == pytest.approx(after.energy_j[part]), (part, same)
    assert after.light_s == pytest.approx(repeats * before.light_s)
    assert core.peak_macs_per_s == pytest.approx(bare.peak_macs_per_s / repeats)
    assert math.fsum(after.energy_j.values()) >= math.fsum(before.energy_j.values())


def test_a_rotation_takes_a_logarithm_of_additions_for_each_element():
    core = load_core("crossbar+rotation")
    energy = core.work(PRODUCT, 8).energy_j["operand transform"]
    elements = 4096 * (1024 + 2048)
    assert energy == pytest.approx(elements * math.log2(core.width) * core.butterfly.energy_j)


def test_electronic_channels_cost_their_share_of_the_products():
    core = load_core("crossbar+hybrid")
    energy = core.work(PRODUCT, 8).energy_j["outlier channels"]
    elements = 4096 * (1024 + 2048)
    wanted = core.share * PRODUCT.macs * core.logic.sample_j + elements * core.logic.element_j
    assert energy == pytest.approx(wanted)


def test_a_system_takes_a_rescued_core_by_name():
    system = build_system("photonic_ocs", core="crossbar+rotation+block", accelerators=8)
    assert system.photonic.core.name == "crossbar+rotation+block"
    assert system.photonic.core.core.width == 1024


def test_names_are_split_and_wrong_ones_refused():
    assert split_name("my+file.py:Core+rotation+block", {}) == ("my+file.py:Core", ("rotation", "block"))
    assert load_core("homodyne+hybrid").core.name == "homodyne"
    with pytest.raises(ParameterError, match="no rescue 'rotatoin'; did you mean 'rotation'"):
        load_core("crossbar+rotatoin")
    with pytest.raises(ParameterError, match="stands twice"):
        load_core("crossbar+block+block")
    with pytest.raises(ParameterError, match="power of two"):
        build_system(
            "photonic_ocs", core="crossbar+rotation", accelerators=8, assignments=["core.width=1000"]
        )


def test_at_most_half_of_the_channels_stay_electronic():
    system = build_system("photonic_packet", accelerators=8)
    half = system.with_({"core.core.share": 0.5})
    assert math.isfinite(heliograph.simulate(half, "gpt2", "dp=8,global_batch=8").snr_db)
    with pytest.raises(ParameterError, match=r"share must be above 0 and at most 0\.5"):
        system.with_({"core.core.share": 0.99})


def test_no_phase_is_wrong_by_more_than_half_a_turn():
    with pytest.raises(ParameterError, match="phase_error_rad must be at least 0 and at most 3"):
        build_system("photonic_packet", accelerators=8).with_(phase_error_rad=34.9)
