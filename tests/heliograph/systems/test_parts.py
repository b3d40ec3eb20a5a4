"""Named parts, put into any core by name: what they move, and what is said where they do not fit."""

import dataclasses
import json
import warnings

import pytest

from experiments.__main__ import main
from experiments.cli import BAD_INPUT
from experiments.cores.one import layer_products, phase_energy, training_j_per_mac
from heliograph.parameters import parameters_of
from heliograph.systems import build_system, sanity_checks
from heliograph.systems.parts import figures_of_merit, parts_listing, place_for, with_part
from optical.cores import CORES
from optical.devices.limits import sampling_floor_j, schreier_db
from optical.devices.named_parts import Role, fits, named_parts
from simulator.errors import HeliographError, ParameterError, SuspectWarning
from simulator.operators import Phase
from simulator.parameter_tree import places

SAME = {
    "adc_isscc2022_10_1": "adc",
    "comb_dark_pulse": "micro_comb",
    "driver_sige_2025": "",  # where none is named it stands there
    "tia_50nm_inverter": "tia",
}
"""Named parts whose numbers are those of a default part, and that part."""
each_core = pytest.mark.parametrize("core", CORES)


def system(core, *assignments):
    return build_system("photonic_packet", accelerators=8, core=core, assignments=assignments)


def answers(one):
    """Energy, time, price and accuracy."""
    energies = [phase_energy(one.photonic, product) for product in layer_products(2048)]
    return {
        "energy": training_j_per_mac(energies),
        "time": sum(energy.time_s for energy in energies),
        "price": one.accelerator_usd(),
        "accuracy": one.photonic.core.analog(Phase.FORWARD),
        "cores": one.photonic.cores,
    }


def slots(one):
    """Every place of a core that takes a named part, with those that fit."""
    for place in places(one):
        names = [name for name, part in named_parts().items() if fits(part, place.field, place.kinds)]
        if names:
            yield place, names


@each_core
def test_every_part_that_fits_moves_something_or_is_refused_in_a_sentence(core):
    base = system(core)
    present, tried, sentences = answers(base), 0, []
    for place, names in slots(base):
        for name in names:
            if place.part is not None and name in (place.part.name, "photodetector"):
                continue
            try:
                changed = with_part(base, place.path, name)
            except HeliographError as refused:
                sentences.append(str(refused))
                continue
            tried += 1
            if SAME.get(name) != getattr(place.part, "name", ""):
                assert answers(changed) != present, (place.path, name)
    assert tried >= 15
    assert all(text and "\n" not in text for text in sentences)


@each_core
def test_adc_dac_laser_and_modulator_move_energy_time_price_and_accuracy(core):
    """The four together, sized anew (in a mesh, heaters outweigh them): no answer stays where it was."""
    shifter = ("core.heater=shifter_thermal_ito",) if core == "mzi_mesh" else ()
    shares_light = core in ("crossbar", "block_float", "residue")  # and must fit one die
    modulator = "mzm_lightening_transformer" if shares_light else "mzm_simphony_2x2"
    inputs = ("core.dac=dac_16nm_12b", f"core.modulator={modulator}")
    if core == "phase_residue":  # switched digit by digit: segments have converters, and nothing is modulated
        inputs = ("core.segment_dac=dac_16nm_12b",)
    bare = "overhead=1"  # as many cores as parts alone leave room for
    one = system(
        core,
        bare,
        *shifter,
        *inputs,
        "core.adc=adc_isscc2025_24_7",
        "core.laser=laser_qd_comb_2024",
        "laser_power_w=20 mW",
    )
    before = system(core, bare, "laser_power_w=20 mW")
    same_light, changed = answers(before), answers(one)
    sized = () if one.photonic.cores == before.photonic.cores else ("time",)
    # Clusters of these are few and large.
    assert sized or core in ("pcm_crossbar", "crossbar", "block_float", "residue")
    for what in ("energy", *sized, "price", "accuracy"):
        assert changed[what] != same_light[what], what
    numbers = {one.path: one for one in parameters_of(one)}
    adc = next(row for path, row in numbers.items() if path.endswith("core.adc.power_w"))
    assert (adc.status, adc.value) == ("published", pytest.approx(0.0219))
    assert "ISSCC 2025 24.7" in adc.source


def test_a_detector_becomes_the_pair_of_an_integrating_receiver():
    one = system("homodyne", "core.detector=detector_imec_ge")
    receiver, before = one.photonic.core.receiver, system("homodyne").photonic.core.receiver
    assert receiver.responsivity_a_per_w == pytest.approx(1.133)
    assert receiver.area_m2 == pytest.approx(2 * 40e-12)
    assert (receiver.capacitance_f, receiver.bias_v) == (before.capacitance_f, before.bias_v)


def test_numbers_and_parts_are_set_in_their_order():
    with pytest.raises(ParameterError, match=r"would undo adc.power_w=1 mW; set the part first"):
        system("crossbar", "adc.power_w=1 mW", "core.adc=adc_survey_7b")
    first = system("crossbar", "core.adc=adc_survey_7b", "adc.power_w=1 mW")
    assert first.photonic.core.adc.power_w == pytest.approx(1e-3)
    assert first.photonic.core.adc.enob_bits == 7.0


def test_an_amplifier_is_put_in_and_taken_out():
    with_one = system("crossbar", "core.amplifier=soa_typical", "laser_power_w=1 mW")
    assert with_one.photonic.core.amplifier.gain_db == 15.0
    stronger = system("crossbar", "core.amplifier=soa_typical", "amplifier.gain_db=20", "laser_power_w=1 mW")
    assert stronger.photonic.core.link.received_w > with_one.photonic.core.link.received_w
    assert with_part(with_one, "core.amplifier", "none").photonic.core.amplifier is None
    with pytest.raises(ParameterError, match="choose one of laser"):
        with_part(with_one, "core.laser", "none")


def test_a_wrapped_core_takes_parts_by_the_same_path():
    found = system("block_float", "core.adc=adc_survey_7b").photonic.core.core.adc
    assert found == named_parts()["adc_survey_7b"].build()


def test_a_file_says_the_same_as_the_command_line(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        'base = "photonic_packet"\ncore = "mzi_mesh"\n[photonic.core]\ntia = "tia_180nm_2017"\n'
        '[photonic.core.heater]\ndrift_rad = 0.002\npart = "shifter_thermal_ito"\n'
    )
    sets = ("core.heater=shifter_thermal_ito", "core.tia=tia_180nm_2017", "heater.drift_rad=0.002")
    from_file = build_system(str(file), accelerators=8)
    assert dataclasses.replace(from_file, name="photonic_packet") == system("mzi_mesh", *sets)
    file.write_text('base = "photonic_packet"\n[photonic.core]\nadc = "adc_of_dreams"\n')
    with pytest.raises(ParameterError, match=r"core\.adc: no part 'adc_of_dreams'; choose one of adc, adc_i"):
        build_system(str(file), accelerators=8)


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("core.adc=adc_of_dreams", "no part 'adc_of_dreams'; choose one of adc, adc_isscc2022_10_1"),
        ("core.adc=laser_dfb", "does not take the laser 'laser_dfb'"),
        ("core.dac=adc_survey_8b", "does not take the adc 'adc_survey_8b'; choose one of dac, dac_16nm_12b"),
        ("core.modulator=mrm_lightening_transformer", "choose one of mzm_quoted, mzm_simphony_2x2"),
        ("core.nothing=tia", "no part 'core.nothing' to replace by 'tia'; write one of photonic.core.amp"),
        ("core.adc=5", "it holds several; write one of photonic.core.adc.nominal_bits"),
    ],
)
def test_what_does_not_fit_is_one_sentence_with_the_choices(capsys, tmp_path, assignment, words):
    code = main(["core", "crossbar", "--set", assignment, "--out", str(tmp_path / "no")])
    captured = capsys.readouterr()
    assert (code, captured.out) == (BAD_INPUT, "")
    assert words in captured.err
    assert captured.err.count("\n") == 1


def test_a_system_without_light_has_no_place_for_a_part():
    with pytest.raises(ParameterError, match=r"no part 'core\.adc' to replace"):
        build_system("gpu_packet", accelerators=8, assignments=("core.adc=adc_survey_8b",))
    assert place_for(build_system("gpu_packet", accelerators=8), "core.adc") is None


def test_every_part_is_listed_with_its_figures_and_a_source(capsys):
    assert main(["list", "parts", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["names"]
    assert listed == parts_listing()
    assert set(listed) == set(named_parts())
    assert {text.partition(":")[0] for text in listed.values()} == {str(role) for role in Role}
    assert all("(" in text and text.endswith(")") for text in listed.values())
    text = listed["adc_isscc2022_10_1"]
    assert "Walden 16.5 fJ/step, Schreier 156.1 dB" in text
    assert "ISSCC 2022 10.1" in text


@pytest.mark.parametrize("name", [name for name, part in named_parts().items() if part.role is Role.ADC])
def test_no_adc_beats_thermal_noise_and_its_figures_are_those_of_its_row(name):
    """Murmann 2015: a conversion takes 8 k T SNR at least; Walden 1999 and Schreier 2005 for the figures."""
    part = named_parts()[name]
    adc = part.build()
    assert adc.conversion_j > 100 * sampling_floor_j(adc.enob_bits)
    text = figures_of_merit(part)
    assert f"Schreier {schreier_db(adc.power_w, adc.rate_hz, adc.enob_bits):.1f} dB" in text
    walden = 1e15 * adc.power_w / (2.0**adc.enob_bits * adc.rate_hz)
    assert f"Walden {walden:.3g} fJ" in text or f"Walden {walden:.1f} fJ" in text


def test_every_range_of_a_named_part_holds_its_value():
    for part in named_parts().values():
        part.build()
        for row in part.table.of(part.name):
            assert row.low is None or row.low <= row.value, row.where
            assert row.high is None or row.high >= row.value, row.where


def test_a_row_that_beats_thermal_noise_is_refused():
    part = named_parts()["adc_survey_9b"]
    rows = tuple(
        dataclasses.replace(row, value=1e-6) if (row.name, row.parameter) == (part.name, "power_w") else row
        for row in part.table.rows
    )
    impossible = dataclasses.replace(part, table=dataclasses.replace(part.table, rows=rows))
    with pytest.raises(ParameterError, match=r"'adc_survey_9b' takes 1e-16 J per conversion, less than"):
        impossible.build()


@each_core
@pytest.mark.parametrize("parts", [(), ("core.adc=adc_survey_7b", "core.laser=laser_qd_comb_2024")])
def test_every_core_is_judged_by_its_own_bits_and_energy(monkeypatch, core, parts):
    """Whatever the core and its parts: warned of on one side of the bound, and not on the other."""
    one = system(core, *parts)
    energy_j = one.photonic.peak_power_w / one.photonic.peak_macs_per_s
    found: list[float] = []
    monkeypatch.setattr(sanity_checks, "least_j_per_mac", lambda snr_db: found.append(snr_db) or 0.0)
    assert sanity_checks.chip_warning("it", one.photonic) is None
    for share, warned in ((1.1, True), (0.9, False)):
        monkeypatch.setattr(sanity_checks, "least_j_per_mac", lambda _, share=share: share * energy_j)
        assert (sanity_checks.chip_warning("it", one.photonic) is not None) == warned
    assert 0.0 < found[0] < 40.0


@pytest.mark.parametrize("core", ["crossbar", "homodyne", "block_float"])
def test_named_parts_that_are_too_good_together_are_warned_of(core):
    """PACE, Nature 640, 361 (2025): a whole chip takes 0.84 pJ/MAC at 7.61 effective bits."""
    parts = ("core.adc=adc_survey_9b", "core.dac=dac_16nm_12b", "core.modulator=mzm_quoted")
    parts += ("modulator.bandwidth_hz=50 GHz", "core.laser=laser_qd_locked_2022")
    free = ("adc.power_w=0", "core.dac.power_w=0", "modulator.symbol_energy_j=0")
    free += ("laser.wall_plug_efficiency=1", "sram.bank_static_w=0")
    free += ("lighting.target=none",)
    free += ("electronics.bias.power_w=0", "overhead=1")
    lit = ("detector.bias_v=0", "tia.power_w=0", "comb.conversion_efficiency=1")
    free += ("receiver.bias_v=0",) if core == "homodyne" else lit
    with pytest.warns(SuspectWarning, match=r"needs 0\.\d\d pJ/MAC at an executed signal over noise"):
        system(core, *parts, *free)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SuspectWarning)
        system(core, *parts, "overhead=1")
