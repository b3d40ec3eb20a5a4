"""`heliograph core`: energy, bits and sensitivities of every core, drawn and written down."""

import functools
import itertools
import json
import math
import re

import pytest
from matplotlib.image import imread

from experiments.cli import BAD_INPUT
from experiments.cores.one import (
    OTHER,
    PHASES,
    bench,
    layer_precision,
    layer_products,
    light_tables,
    parameter_table,
    performance,
    precision_report,
    snr_curve,
    snr_over_power,
    study,
    study_rows,
    summary_lines,
    training_j_per_mac,
)
from heliograph.figures import DPI, WIDTH_IN
from optical.cores import CORES
from simulator.operands.statistics import OperandKind
from simulator.parameter_tree import get_at, replace_at
from tests import builders

each_core = pytest.mark.parametrize("name", CORES)


@functools.cache
def studied(name):
    """Study of a core as it stands, made once for all tests that only read it."""
    return study(bench(name))


def call(capsys, *arguments):
    return builders.call(capsys, "core", *arguments)


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


def together_db(curve, place):
    """Return what all causes of noise leave together at one power."""
    limits = [limit[place] for limit in curve.limits.values() if not math.isnan(limit[place])]
    return -10 * math.log10(math.fsum(10 ** (-limit / 10) for limit in limits))


@each_core
def test_causes_of_noise_add_up_to_the_precision_of_all(name):
    core = bench(name).unit.core
    curve = snr_curve(core, OperandKind.GAUSSIAN)
    assert curve.present.snr_db == layer_precision(core, OperandKind.GAUSSIAN).snr_db
    for place, ratio_db in enumerate(curve.snr_db):
        if ratio_db is not None:
            assert ratio_db == pytest.approx(together_db(curve, place), rel=1e-9)
    found = [ratio_db for ratio_db in curve.snr_db if ratio_db is not None]
    assert len(found) > len(curve.snr_db) // 4
    gains = [bright - dim for dim, bright in itertools.pairwise(found) if dim > 0.0]
    # More light is no worse, but of remainders that are nearly all misread, and of a mesh whose waveguides
    # absorb more of the signal's than of the oscillators' light when it is bright.
    assert min(gains) >= (-0.02 if name == "mzi_mesh" else 0.0)


@pytest.mark.slow
@each_core
def test_tornado_says_what_setting_a_parameter_says(name):
    found = studied(name)
    built, swings, present = found.bench, found.swings, found.present
    assert present.j_per_mac == pytest.approx(training_j_per_mac(built.energies()))
    for swing in swings:
        assert get_at(built.unit, swing.path) == swing.value
        assert swing.low <= swing.value <= swing.high
    laser = next(one for one in swings if one.path.endswith("laser.wall_plug_efficiency"))
    assert laser.at_low.j_per_mac > present.j_per_mac > laser.at_high.j_per_mac
    assert laser.at_low.snr_db == present.snr_db == laser.at_high.snr_db
    assert {laser.at_low.time_s, laser.at_high.time_s} == {present.time_s}
    worse = next(one for one in swings if one.path.endswith("adc.enob_bits"))
    assert worse.at_low.snr_db <= present.snr_db <= worse.at_high.snr_db


def test_more_tokens_spread_loading_over_more_work():
    few, many = (training_j_per_mac(bench("ring_bank", tokens=n).energies()) for n in (64, 8192))
    assert many < few


@pytest.mark.slow
def test_command_writes_pictures_and_what_is_in_them(capsys, tmp_path):
    page = tmp_path / "report.html"
    code, out, _ = call(capsys, "homodyne", "--json", "--out", str(tmp_path), "--report", str(page))
    assert code == 0
    record = json.loads(out)
    keys = re.findall(r'class="why"[^>]* data-key="([^"]*)"', page.read_text())
    assert {f"core/{one['phase']}/laser" for one in record["phases"]} | {"swing", "executed"} <= set(keys)
    for what in ("energy", "snr", "tornado"):
        assert imread(tmp_path / f"core_{what}.png").shape[1] == WIDTH_IN * DPI
        assert (tmp_path / f"core_{what}.svg").read_text().lstrip().startswith("<?xml")
    assert len(record["files"]) == 12
    energy = builders.csv_rows(tmp_path / "core_energy.csv")
    for phase in record["phases"]:
        drawn = sum(float(row["energy_j_per_mac"]) for row in energy if row["phase"] == phase["phase"])
        assert drawn == pytest.approx(phase["j_per_mac"])
    assert float(energy[-1]["energy_j_per_mac"]) == pytest.approx(record["gpu_j_per_mac"])
    brightest = builders.csv_rows(tmp_path / "core_snr.csv")[-1]
    assert brightest["snr_db"] == ""  # so much light overflows the capacitors
    assert {"shot_noise_db", "amplifier_dark_current_extinction_db"} <= set(brightest)
    rows = builders.csv_rows(tmp_path / "core_precision.csv")
    assert {row["operands"] for row in rows} >= {"uniform", "gaussian", "outliers", "gradients"}
    assert float(rows[0]["fp8_snr_db"]) == pytest.approx(28.9, abs=0.1)
    assert len(builders.csv_rows(tmp_path / "core_tornado.csv")) == len(record["tornado"])


@pytest.mark.slow
def test_a_cause_of_noise_has_one_colour_in_the_pictures_of_all_cores():
    drawn = {}
    for name in ("homodyne", "ring_bank", "mzi_mesh"):
        (axes,) = snr_over_power(snr_curve(bench(name).unit.core, OperandKind.CAPTURED)).axes
        for line in axes.get_lines():
            drawn.setdefault(line.get_label(), set()).add((line.get_color(), line.get_linestyle()))
    causes = [looks for name, looks in drawn.items() if not name.startswith("_")]
    assert all(len(looks) == 1 for looks in causes)
    assert len({look for looks in causes for look in looks}) == len(causes)


@pytest.mark.slow
def test_dimmer_laser_costs_less_and_reads_worse():
    built = [bench("crossbar", assignments=[f"laser_power_w={power}"]) for power in ("15 mW", "1 mW")]
    bright, dim = (performance(one.unit, one.tokens) for one in built)
    assert dim.j_per_mac < bright.j_per_mac
    assert dim.snr_db < bright.snr_db - 3.0


@pytest.mark.slow
@each_core
def test_table_names_every_stage_and_limit_with_a_value_for_each_phase(name):
    found = studied(name)
    labels = {row.label.strip() for row in study_rows(found)}
    assert {stage for one in found.energies for stage in one.j_per_mac_by_stage} <= labels
    assert {f"{cause} alone" for cause in found.curve.present.noise} <= labels
    assert all(len(row.values) == 4 for row in precision_report(found).rows)
    assert all(len(row.values) == len(PHASES) for row in study_rows(found))
    whole, dies, moved = summary_lines(found)  # cores, cuts of the chip, the number that moves most
    assert whole
    assert dies.startswith("Dies")
    assert "moves the energy most" in moved


@pytest.mark.slow
@each_core
def test_every_number_is_told_with_its_unit_range_and_status(name):
    found = studied(name)
    numbers = {row.label: row for row in parameter_table(found).rows}
    assert len(numbers) == len(found.parameters) > 50
    row = next(row for path, row in numbers.items() if path.endswith("laser.wall_plug_efficiency"))
    assert (row.values, row.note) == (("0.2", "0.05", "0.3"), "quoted")
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


def test_an_amplified_core_tells_its_precision_at_every_power_as_it_stands():
    amplified = bench("crossbar", assignments=("core.amplifier=soa_typical", "laser_power_w=3 mW"))
    curve = snr_curve(amplified.unit.core, OperandKind.GAUSSIAN)
    for place in (20, 25, 30):
        core = replace_at(amplified.unit.core, "laser_power_w", curve.power_w[place])
        found = layer_precision(core, OperandKind.GAUSSIAN).snr_db
        assert curve.snr_db[place] == pytest.approx(found)
        assert found == pytest.approx(together_db(curve, place))


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


@pytest.mark.slow
def test_every_loss_of_the_light_is_told_by_name():
    (table,) = light_tables(studied("crossbar"))
    rows = {row.label: row.values[0] for row in table.rows}
    assert {"coupling", "2 x ring_router", "passed routers", "mzm_tfln_5mm", "broadcast route"} <= set(rows)
    link = bench("crossbar").unit.core.link
    told_db = sum(float(rows[one.name].removesuffix(" dB")) for one in link.elements)
    assert told_db == pytest.approx(link.loss_db, abs=0.05)
    assert rows["noise bandwidth of the amplifier"].endswith("GHz")
    assert float(rows["other symbols, over the product"].removesuffix(" dB")) < 0.0
