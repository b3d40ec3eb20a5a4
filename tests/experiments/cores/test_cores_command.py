"""`heliograph core compare`: all cores over size, reuse and target bits, and who wins."""

import dataclasses
import json
import math

import numpy as np
import pytest
from matplotlib.image import imread

from electronic.gpu import load_gpu
from experiments.__main__ import main
from experiments.cli import BAD_INPUT
from experiments.cores import every
from experiments.cores.every import (
    FACTORS,
    FORMATS,
    MEMORY,
    NOBODY,
    TIE,
    AllCores,
    Outcome,
    Quantity,
    best_size,
    blocks,
    colour_of,
    decibel_grid,
    gpu_price,
    hatch_of,
    heads,
    layer_product,
    present,
    present_db,
    reuse_grid,
    sizes_of,
    square_product,
    storage_bytes,
    study_rows,
    summary_lines,
    variant,
    winners,
)
from experiments.cores.one import bench
from experiments.study import Progress
from heliograph.figures import DPI, PALETTE, WIDTH_IN, label
from heliograph.systems import build_system
from heliograph.systems import names as systems
from optical.cores import CORES, core_precision, load_core, register_core, unregister_core
from simulator.errors import ParameterError, SuspectWarning
from simulator.operands.statistics import OperandKind
from simulator.operators import Held
from tests.builders import call, cores_that, csv_rows
from tests.conformance.lithium_niobate import LithiumNiobate

each_core = pytest.mark.parametrize("name", CORES)
DYNAMIC = cores_that(lambda core: not core.holds_weights)
STATIONARY = cores_that(lambda core: core.holds_weights)


@pytest.fixture(scope="module")
def found():
    return AllCores(precision="6:30").run(Progress())


def parts_per_mac(unit, reuse):
    products = [square_product(uses, 2, held=Held.B) for uses in reuse]
    costs = [unit.cost(product).energy_j for product in products]
    macs = np.array([product.macs for product in products])
    return {part: np.array([energy_j[part] for energy_j in costs]) / macs for part in costs[0]}


@each_core
def test_energy_never_rises_with_reuse(found, name):
    for one in sizes_of(found, name).values():
        if one.outcome in (Outcome.WORKS, Outcome.NO_ROOM):
            assert (np.diff(one.j_per_mac) < 1e-9 * one.j_per_mac[:-1]).all()
            assert (np.diff(one.s_per_mac) < 1e-9 * one.s_per_mac[:-1]).all()


@pytest.mark.parametrize("name", STATIONARY)
def test_loading_is_spread_over_the_vectors_that_pass(name):
    """A load costs the same however many vectors follow, so its share of each is 1/reuse."""
    reuse = (1024, 4096, 65536)
    parts = parts_per_mac(bench(name).unit, reuse)
    (loading,) = (part for part in ("reload", "programming") if part in parts)
    assert parts[loading] * np.array(reuse) == pytest.approx(parts[loading][0] * reuse[0], rel=1e-9)
    assert parts[loading][0] > 0.0


@pytest.mark.parametrize("name", DYNAMIC)
def test_converters_of_a_dynamic_core_do_not_know_reuse_once_its_array_is_full(name):
    """Every operand is sent anew for every block of the other side: reuse is that of the array."""
    sides = [load_core(name)] if name in ("crossbar", "homodyne") else [load_core(name).core]
    full = math.lcm(sides[0].rows * getattr(sides[0], "broadcast", 1), sides[0].columns)
    parts = parts_per_mac(bench(name, basis="count").unit, (full, 4 * full, 64 * full))
    for part in ("dac", "adc", "modulator", "adder"):
        assert parts[part] == pytest.approx(parts[part][0], rel=1e-9)
    few = parts_per_mac(bench(name, basis="count").unit, (1, full))
    assert few["dac"][0] > 2.0 * few["dac"][1]


@each_core
def test_energy_has_its_least_at_a_size_between(found, name):
    """Small arrays share converters among few products; in large ones loss in decibels grows with the side.

    Al-Qadasi et al., "Scaling up silicon photonic-based accelerators: challenges and opportunities", APL
    Photonics 7 (2022) 020902: losses set an upper, converters a lower end to the size.
    """
    energy = [one.j_per_mac[-1] for one in sizes_of(found, name).values() if one.laser_power_w > 0.0]
    least = int(np.argmin(energy))
    unlit = [one for one in sizes_of(found, name).values() if one.outcome is Outcome.NO_LIGHT]
    dim = name == "pcm_crossbar"  # couplers blind to colour lose 1/rows: there the smallest is the best
    assert least < len(energy) - (not unlit)  # else losses set the end
    assert least > 0 or dim


@each_core
def test_light_for_the_same_precision_grows_with_size_ever_faster(found, name):
    drawn = [one for one in sizes_of(found, name).values() if one.laser_power_w > 0.0]
    power = np.log([one.laser_power_w for one in drawn])
    assert (np.diff(power) > 0.0).all()
    if (
        name == "phase_residue"
    ):  # a longer row needs other moduli: only rows are added, each with its own light
        assert np.diff(power) == pytest.approx(np.diff(np.log([one.factor for one in drawn])), abs=0.05)
    elif len(power) > 2:
        assert power[-1] - power[-2] > 1.1 * (power[1] - power[0])


@each_core
def test_more_precision_never_costs_less_and_no_core_exceeds_its_cap(found, name):
    lit = [one for one in found.maps if one.core == name]
    cap = found.caps[name][0]
    assert [one.outcome is Outcome.NO_LIGHT for one in lit] == [one.target_db >= cap for one in lit]
    works = [one for one in lit if one.outcome is Outcome.WORKS]
    energy, fewer = (
        np.diff(values) for values in ([w.j_per_mac[16] for w in works], [w.cores for w in works])
    )
    assert (energy[fewer == 0] > 0.0).all()
    # Where a core falls out, those left have more of the power limit each, and wait less with their light on.
    assert (energy > -0.005 * works[0].j_per_mac[16]).all()
    assert (fewer <= 0).all()
    assert all(one.reason and np.isnan(one.j_per_mac).all() for one in lit if one.outcome is Outcome.NO_LIGHT)


@each_core
def test_a_core_as_it_is_costs_what_its_accelerator_says(name):
    system = build_system("photonic_packet", core=name, accelerators=1, basis="count")
    unit = bench(name, basis="count").unit
    target_db = core_precision(unit.core, (layer_product(OperandKind.GAUSSIAN),)).snr_db
    again = variant(system, name, target_db=target_db, reuse=(64, 8192), operands=OperandKind.GAUSSIAN)
    assert again.outcome is Outcome.WORKS
    assert again.cores == unit.cores
    for place, uses in enumerate((64, 8192)):
        operator = square_product(uses, storage_bytes(target_db), held=Held.B)
        cost = unit.cost(operator)
        whole_j = math.fsum(cost.energy_j.values()) + (unit.static_w + unit.memory.static_w) * cost.time_s
        assert again.j_per_mac[place] == pytest.approx(whole_j / operator.macs, rel=1e-3)
        assert again.s_per_mac[place] == pytest.approx(cost.time_s / operator.macs, rel=1e-9)


def test_sizes_without_light_or_room_are_told(found):
    mesh = sizes_of(found, "mzi_mesh")
    assert tuple(mesh) == FACTORS
    assert mesh[16.0].outcome is Outcome.NO_LIGHT
    assert "does not close" in mesh[16.0].reason
    assert "kept from more by" in sizes_of(found, "homodyne")[16.0].reason
    assert mesh[4.0].outcome is Outcome.NO_LIGHT
    assert "are the most" in mesh[4.0].reason
    crowded = [one for one in found.sizes if one.outcome is Outcome.NO_ROOM]
    assert crowded
    assert all("takes more power than h100 gives" in one.reason for one in crowded)
    assert sizes_of(found, "pcm_crossbar")[0.125].outcome is Outcome.NOT_BUILT
    for name in CORES:
        assert present(found, name).outcome in (Outcome.WORKS, Outcome.NO_ROOM)
        best = best_size(found, name, -1)
        works = any(one.outcome is Outcome.WORKS for one in sizes_of(found, name).values())
        assert (best is not None) == works


def test_winner_takes_least_of_those_with_room(found):
    won = winners(found, Quantity.ENERGY)
    for row, target in enumerate(found.targets_db):
        lit = [one for one in found.maps if one.target_db == target and one.outcome is Outcome.WORKS]
        if not lit:
            assert (won.core[row] == NOBODY).all()
            assert np.isnan(won.least[row]).all()
            continue
        least = np.min([one.j_per_mac for one in lit], axis=0)
        assert won.least[row] == pytest.approx(least)
        for place, core in enumerate(won.core[row]):
            (own,) = (one for one in lit if one.core == list(CORES)[core])
            assert own.j_per_mac[place] <= (1.0 + TIE) * least[place]
    crowded = tuple(dataclasses.replace(one, outcome=Outcome.NO_ROOM) for one in found.maps)
    assert (winners(dataclasses.replace(found, maps=crowded), Quantity.ENERGY).core == NOBODY).all()


def test_the_gpu_wins_where_it_takes_less(found):
    reached = winners(found, Quantity.ENERGY).core != NOBODY
    for factor, wins in ((1e-6, reached), (1e6, np.zeros_like(reached))):
        rivals = tuple(dataclasses.replace(one, j_per_mac=factor * one.j_per_mac) for one in found.rivals)
        assert (winners(dataclasses.replace(found, rivals=rivals), Quantity.ENERGY).gpu_wins == wins).all()


def test_memory_sets_the_time_where_little_is_reused(found):
    won = winners(found, Quantity.TIME).core
    row = found.targets_db.index(20.0)
    assert won[row, 4] == MEMORY
    assert won[row, -1] in range(len(CORES))
    assert MEMORY not in winners(found, Quantity.ENERGY).core


def test_gpus_are_priced_by_their_own_model_at_each_width():
    wide, half, narrow = (gpu_price(load_gpu("h100"), one, (1, 8192)) for one in reversed(FORMATS))
    assert narrow.j_per_mac[1] < half.j_per_mac[1] < wide.j_per_mac[1]
    gpu, product = load_gpu("h100"), square_product(8192, 2)
    cost = gpu.cost(product)
    whole_j = math.fsum(cost.energy_j.values()) + (gpu.static_w + gpu.memory.static_w) * cost.time_s
    assert half.j_per_mac[1] == pytest.approx(whole_j / product.macs)
    one = square_product(1, 2)
    assert half.s_per_mac[0] < gpu.cost(one).time_s / one.macs  # vectors pass the vector lanes
    least_s = gpu.memory.time_s(2 * 2)  # two operands of two bytes for a product
    assert half.s_per_mac[0] > least_s


def test_narrow_operands_have_a_price_only_where_units_for_them_exist(found):
    names = {price.name for price in found.gpus}
    assert {"h100 8 bit", "b200 8 bit", "a100 16 bit"} <= names
    assert "a100 8 bit" not in names
    rival = dict(zip(found.targets_db, found.rivals, strict=True))
    assert rival[28.0].name == "h100 8 bit"
    assert rival[29.0].name == "h100 16 bit"
    assert storage_bytes(51.0, OperandKind.UNIFORM) < storage_bytes(51.0)  # bf16 has 51.5 and 50.8 dB
    assert [storage_bytes(target) for target in (10.0, 28.0, 29.0, 50.0, 60.0, 90.0)] == [1, 1, 2, 2, 4, 4]
    delivered = [one.snr_db(OperandKind.GAUSSIAN) for one in FORMATS]
    assert delivered == pytest.approx([28.5, 50.8, 70.6], abs=0.3)


def test_products_have_the_reuse_that_is_asked_for():
    for uses in (1, 64, 2**20):
        product = square_product(uses, 2)
        assert product.macs == product.batch * uses**2 * product.k
        assert product.batch == blocks(uses)
    assert blocks(2**20) == 1


def test_table_has_a_line_for_each_core_and_generation(found):
    rows = study_rows(found)
    assert [row.label for row in rows[: len(CORES)]] == list(CORES)
    assert {"a100 16 bit", "h100 8 bit", "b200 16 bit"} <= {row.label for row in rows}
    assert all(len(row.values) == len(heads(found)) for row in rows)
    lines = summary_lines(found)
    assert "executed signal over noise" in lines[0]
    assert any("reaches the target (up to" in line for line in lines)
    assert present_db(load_core("residue"), layer_product(OperandKind.GAUSSIAN)) == 19.0


@pytest.mark.slow
def test_command_writes_pictures_and_every_point_in_them(capsys, tmp_path):
    arguments = ("--precision", "16:20", "--reuse", "64:256", "--gpu", "b200", "--basis", "area")
    code = main(("core", "compare", *arguments, "--json", "--out", str(tmp_path)))
    captured = capsys.readouterr()
    assert code == 0
    assert all("passes a limit" in line for line in captured.err.splitlines())
    record = json.loads(captured.out)
    for what in ("size", "reuse", "map"):
        assert imread(tmp_path / f"cores_{what}.png").shape[1] == WIDTH_IN * DPI
        assert (tmp_path / f"cores_{what}.svg").read_text().lstrip().startswith("<?xml")
    assert len(record["files"]) == 10
    assert record["basis"] == "area"
    size, chart = csv_rows(tmp_path / "cores_size.csv"), csv_rows(tmp_path / "cores_map.csv")
    assert len(size) == len(record["size"]) == len(CORES) * len(FACTORS) * 3
    assert len(chart) == len(record["map"]) == len(CORES) * 5 * 3
    for row, told in zip(chart, record["map"], strict=True):
        if row["outcome"] == Outcome.NO_LIGHT:
            assert row["energy_j_per_mac"] == ""
            assert row["reason"]
        else:
            assert float(row["energy_j_per_mac"]) == told["energy_j_per_mac"]
    assert {row["gpu"] for row in csv_rows(tmp_path / "cores_gpus.csv")} >= {"a100", "h100", "b200"}


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--precision", "10:3"), "precision (10:3) must rise"),
        (("--precision", "3"), "LOW:HIGH"),
        (("--precision", "nan:9"), "precision (nan:9)"),
        (("--reuse", "0:10"), "reuse (0:10) must rise"),
        (("--reuse", "1.5:10"), "whole number"),
        (("--gpu", "abacus"), "abacus"),
        (("--basis", "weight"), "no basis 'weight'"),
    ],
)
def test_bad_input_is_one_sentence(capsys, tmp_path, arguments, word):
    code = main(("core", "compare", *arguments, "--out", str(tmp_path / "new")))
    captured = capsys.readouterr()
    assert (code, captured.out) == (BAD_INPUT, "")
    assert word in captured.err
    assert captured.err.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_grids_keep_their_ends():
    assert decibel_grid("10:14") == (10.0, 11.0, 12.0, 13.0, 14.0)
    assert decibel_grid("15.5:15.9") == (15.5,)
    assert reuse_grid("1:8") == (1, 2, 4, 8)
    assert reuse_grid("3:20") == (3, 6, 12, 20)
    with pytest.raises(ParameterError):
        reuse_grid("1:99999999")


@pytest.fixture
def outside():
    names = [f"outside_{number}" for number in range(len(PALETTE) + 1 - len(CORES))]
    for name in names:
        register_core(name, LithiumNiobate)
    yield names
    for name in names:
        unregister_core(name)


def test_more_cores_than_colours_are_drawn_with_hatches(found, outside):
    alike = {
        what: tuple(
            dataclasses.replace(one, core=name)
            for name in outside
            for one in getattr(found, what)
            if one.core == "homodyne"
        )
        for what in ("sizes", "maps")
    }
    last = outside[-1]
    more = dataclasses.replace(
        found,
        caps=dict(found.caps) | dict.fromkeys(outside, (30.0, "dac")),
        sizes=found.sizes + alike["sizes"],
        maps=found.maps
        + tuple(
            dataclasses.replace(one, j_per_mac=one.j_per_mac / 10) if one.core == last else one
            for one in alike["maps"]
        ),
    )
    assert more.cores == (*CORES,)
    assert [row.label for row in study_rows(more)][: len(CORES)] == list(CORES)
    assert colour_of(more, last) == colour_of(more, more.cores[0])
    assert hatch_of(more, last)
    assert not hatch_of(more, more.cores[0])
    figures = more.figures()
    legend = [text.get_text() for text in figures["map"].legends[0].get_texts()]
    assert label(last) in legend
    assert f"{last} " in " ".join(summary_lines(more))


def test_cores_of_installed_packages_and_files_are_compared(capsys, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(every, "every_core", lambda: asked.append("all") or ("homodyne",))
    words = ("core", "compare", "--precision", "16:16", "--reuse", "4096:4096", "--json", "--out")
    _, out, _ = call(capsys, *words, tmp_path / "all")
    assert (asked, list(json.loads(out)["caps"])) == (["all"], ["homodyne"])
    path = tmp_path / "mine.py"
    module = "from tests.conformance.lithium_niobate import LithiumNiobate\n"
    path.write_text(f"{module}class Mine(LithiumNiobate):\n    sides = ()\n")
    names = f"homodyne,{path}:Mine,homodyne+block"
    try:
        _, out, _ = call(capsys, *words, tmp_path / "some", "--cores", names)
    finally:
        unregister_core(f"{path}:Mine")
    assert set(json.loads(out)["caps"]) == set(names.split(","))


def test_a_core_that_cannot_be_loaded_is_told(monkeypatch):
    monkeypatch.setattr(systems, "bring_in", lambda group, load: {"bad": "cannot be loaded: no module"})
    with pytest.warns(SuspectWarning, match="core 'bad' is left out: it cannot be loaded: no module"):
        assert systems.every_core() == tuple(CORES)
