"""`heliograph core`: energy, bits and sensitivities of every core, drawn and written down."""

import csv
import json
import math
import re

import pytest
from matplotlib.image import imread

from experiments.__main__ import main
from experiments.cli import BAD_INPUT
from experiments.core import (
    OTHER,
    PHASES,
    analog_core,
    answers,
    at_power,
    bench,
    bits_curve,
    layer_products,
    noise_ratio_of,
    parameter_rows,
    study,
    study_rows,
    summary_lines,
    tornado,
    training_j_per_mac,
)
from heliograph.style import DPI, WIDTH_IN
from optical.cores import CORES
from simulator.parameter_tree import get_at, replace_at

each_core = pytest.mark.parametrize("name", CORES)


def call(capsys, *arguments):
    code = main(("core", *arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def table(path):
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


@each_core
def test_stages_hold_all_energy_of_cost_and_static_power(name):
    built = bench(name)
    for energy, product in zip(built.energies(), layer_products(built.tokens), strict=True):
        cost = built.unit.cost(product)
        idle_w = built.unit.static_w + built.unit.memory.static_w
        whole_j = math.fsum(cost.energy_j.values()) + idle_w * cost.time_s
        stages = energy.j_per_mac_by_stage
        assert math.fsum(stages.values()) * product.macs == pytest.approx(whole_j, rel=1e-12)
        assert OTHER not in stages
        assert energy.phase is product.phase
        assert product.macs == layer_products(built.tokens)[0].macs


@each_core
def test_causes_of_noise_add_up_to_the_cores_own_bits(name):
    curve = bits_curve(bench(name).unit.core)
    inner = analog_core(bench(name).unit.core)
    assert curve.present_bits == pytest.approx(inner.effective_bits)
    for place, bits in enumerate(curve.bits):
        noise = math.fsum(10 ** (-(6.02 * limit[place] + 1.76) / 10) for limit in curve.limits.values())
        together = (-10 * math.log10(noise) - 1.76) / 6.02
        if bits is not None:
            assert bits == pytest.approx(together, rel=1e-9)
            assert all(bits <= limit[place] + 1e-9 for limit in curve.limits.values())
    assert sum(bits is not None for bits in curve.bits) > len(curve.bits) // 2


@each_core
def test_shot_noise_gives_half_a_bit_per_doubling_and_amplifier_noise_one(name):
    """SNR grows with the power where shot noise limits it, with its square where the amplifier does."""
    ratio = noise_ratio_of(bench(name).unit.core)
    twice = at_power(ratio, 2.0)
    assert twice.shot == pytest.approx(ratio.shot / 2)
    assert twice.dark == pytest.approx(ratio.dark / 4)
    core = analog_core(bench(name).unit.core)
    brighter = noise_ratio_of(replace_at(core, "laser_power_w", 1.01 * core.laser_power_w))
    assert brighter.shot == pytest.approx(at_power(ratio, 1.01).shot)
    assert brighter.dark == pytest.approx(at_power(ratio, 1.01).dark)


@each_core
def test_tornado_says_what_setting_a_parameter_says(name):
    built = bench(name)
    swings = tornado(built.unit, built.tokens)
    present = answers(built.unit, built.tokens)
    assert present.j_per_mac == pytest.approx(training_j_per_mac(built.energies()))
    for swing in swings:
        assert get_at(built.unit, swing.path) == swing.value
        assert swing.low <= swing.value <= swing.high
    laser = next(one for one in swings if one.path.endswith("laser.wall_plug_efficiency"))
    assert laser.at_low.j_per_mac > present.j_per_mac > laser.at_high.j_per_mac
    assert laser.at_low.effective_bits == present.effective_bits == laser.at_high.effective_bits
    assert {laser.at_low.time_s, laser.at_high.time_s} == {present.time_s}
    worse = next(one for one in swings if one.path.endswith("adc.enob_bits"))
    assert worse.at_low.effective_bits <= present.effective_bits <= worse.at_high.effective_bits


def test_more_tokens_spread_loading_over_more_work():
    few, many = (training_j_per_mac(bench("ring_bank", tokens=n).energies()) for n in (64, 8192))
    assert many < few


def test_command_writes_pictures_and_what_is_in_them(capsys, tmp_path):
    code, out, err = call(capsys, "homodyne", "--json", "--out", str(tmp_path))
    assert code == 0
    assert re.search(r"a die of 1\d\d\d mm²", err)
    record = json.loads(out)
    for what in ("energy", "bits", "tornado"):
        assert imread(tmp_path / f"core_{what}.png").shape[1] == WIDTH_IN * DPI
        assert (tmp_path / f"core_{what}.svg").read_text().lstrip().startswith("<?xml")
    assert len(record["files"]) == 10
    energy = table(tmp_path / "core_energy.csv")
    for phase in record["phases"]:
        drawn = sum(float(row["energy_j_per_mac"]) for row in energy if row["phase"] == phase["phase"])
        assert drawn == pytest.approx(phase["j_per_mac"])
    assert float(energy[-1]["energy_j_per_mac"]) == pytest.approx(record["gpu_j_per_mac"])
    bits = table(tmp_path / "core_bits.csv")
    assert bits[-1]["effective_bits"] == ""  # so much light overflows the capacitors
    assert len(table(tmp_path / "core_tornado.csv")) == len(record["tornado"])


def test_dimmer_laser_costs_less_and_reads_worse():
    built = [bench("crossbar", assignments=[f"laser_power_w={power}"]) for power in ("15 mW", "1 mW")]
    bright, dim = (answers(one.unit, one.tokens) for one in built)
    assert dim.j_per_mac < bright.j_per_mac
    assert dim.effective_bits < bright.effective_bits


@each_core
def test_table_names_every_stage_and_limit_with_a_value_for_each_phase(name):
    found = study(bench(name))
    labels = {row.label.strip() for row in study_rows(found)}
    assert {stage for one in found.energies for stage in one.j_per_mac_by_stage} <= labels
    assert {f"{cause} alone" for cause in found.curve.limits} <= labels
    assert all(len(row.values) == len(PHASES) for row in study_rows(found))
    assert len(summary_lines(found)) == 2


@each_core
def test_every_number_is_told_with_its_unit_range_and_status(name):
    found = study(bench(name))
    numbers = {row.label: row for row in parameter_rows(found)}
    assert len(numbers) == len(found.parameters) > 50
    row = next(row for path, row in numbers.items() if path.endswith("laser.wall_plug_efficiency"))
    pulsed = name == "homodyne"
    told = (("0.053", "0.01", "0.1"), "derived") if pulsed else (("0.2", "0.05", "0.3"), "quoted")
    assert (row.values, row.note) == told
    assert numbers["cores"].note == "choice"
    assert numbers["photonic_die.price_usd_per_m2"].values == (
        "34 USD/mm\u00b2",
        "0.5 USD/mm\u00b2",
        "60 USD/mm\u00b2",
    )
    for one in found.parameters:
        shown = numbers[one.path].values[0]
        dimensionless = one.unit == "1" or isinstance(one.value, str)
        assert dimensionless or " " in shown, (one.path, shown)
    assert json.loads(json.dumps(found.record()))["parameters"][0]["status"]


def test_an_amplified_core_tells_its_bits_at_every_power_as_it_stands():
    amplified = bench("crossbar", assignments=("core.amplifier=soa_typical", "laser_power_w=3 mW"))
    curve = bits_curve(amplified.unit.core)
    for place in (30, 50, 70):
        core = replace_at(amplified.unit.core, "laser_power_w", curve.power_w[place])
        assert curve.bits[place] == pytest.approx(core.effective_bits)
        noise = math.fsum(10 ** (-(6.02 * limit[place] + 1.76) / 10) for limit in curve.limits.values())
        assert curve.bits[place] == pytest.approx((-10 * math.log10(noise) - 1.76) / 6.02)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("crossbarr",), "did you mean 'crossbar'"),
        (("crossbar", "--tokens", "0"), "tokens (0) must be at least 1"),
        (("crossbar", "--set", "laser_power_w=1e-9"), "does not close"),
        (("crossbar", "--set", "nonsense=1"), "no parameter 'nonsense'"),
        (("crossbar", "--gpu", "abacus"), "abacus"),
    ],
)
def test_bad_input_is_one_sentence(capsys, tmp_path, arguments, word):
    code, out, err = call(capsys, *arguments, "--out", str(tmp_path / "new"))
    assert (code, out) == (BAD_INPUT, "")
    assert word in err
    assert err.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_directory_that_cannot_be_made_is_bad_input(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = call(capsys, "crossbar", "--out", str(tmp_path / "file" / "inside"))
    assert code == BAD_INPUT
    assert "--out" in err
