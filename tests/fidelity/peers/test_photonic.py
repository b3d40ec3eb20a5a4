"""Published photonic accelerators: by their own rules, by their parts, and what parts leave out."""

import dataclasses
import math
from functools import cache
from itertools import pairwise

import pytest

from experiments.validation.driver import validate
from experiments.validation.peers.chips import (
    digit_accuracy,
    load_albireo,
    load_chip,
    mesh_accuracy,
    photons_of,
    published_table,
)
from experiments.validation.peers.lightening_transformer import (
    BANK_FAULTS,
    FAULTS,
    MESH_FAULTS,
    PUBLISHED,
    SHARED_FAULTS,
    TOGETHER,
    BaselineCorrection,
    BaselineMesh,
    BaselineRingBank,
    Correction,
    LighteningTransformer,
    baseline_effects,
    baseline_total_cost,
    baseline_workload_cost,
    effects,
    load_workload,
    products,
    total_cost,
    workload_cost,
)
from optical.devices import Photodetector, SummingWires, Tia, device_table
from optical.devices.limits import bits_from_snr, snr_from_bits
from simulator.errors import ParameterError
from simulator.units import ELEMENTARY_CHARGE_C

LIGHTENING = "Lightening-Transformer HPCA 2024"


@cache
def outcomes():
    return validate("photonic").outcomes


def numbers_of(name):
    return [row.parameter for row in published_table().of(name)]


def of(source):
    found = [one for one in outcomes() if one.source.startswith(source)]
    assert found
    return found


@pytest.mark.slow
def test_lightening_transformer_agrees_to_nine_digits():
    """Its public simulator at 7c3d4ad, run unmodified: area and power by part, energy and time of 24 runs;
    and 20 runs of its two baselines, the ring bank and the mesh."""
    rows = of(LIGHTENING)
    assert len(rows) == 297
    assert all(one.skipped is None for one in rows)
    assert max(abs(one.relative_error) for one in rows) < 1e-9


@pytest.mark.slow
def test_both_variants_both_bits_and_all_five_models_are_there():
    names = {one.id for one in of(LIGHTENING)}
    for variant in ("LT-B 4b", "LT-B 8b", "LT-L 4b", "LT-L 8b"):
        assert f"Lightening-Transformer {variant} {variant} area total" in names
        assert f"Lightening-Transformer {variant} {variant} power total" in names
    for model in ("deit-t_197", "deit-s_197", "deit-b_197", "bert-b_128", "bert-b_384", "bert-l_320"):
        for bits in (4, 8):
            for tiles in (4, 8):
                run = f"Lightening-Transformer {model}_{bits}bit dota_arch_opt_{tiles}t_2c"
                assert {f"{run} total energy", f"{run} total latency"} <= names


@pytest.mark.parametrize("bits", [4, 8])
def test_parts_add_up_and_more_tiles_are_faster(bits):
    small, large = LighteningTransformer(bits=bits), LighteningTransformer(bits=bits, tiles=8)
    workload = load_workload("deit-b")
    costs = workload_cost(small, workload)
    assert sum(one.energy_j for one in costs.values()) == pytest.approx(total_cost(small, workload).energy_j)
    assert total_cost(large, workload).time_s < total_cost(small, workload).time_s
    assert large.peak_macs_per_s == 2 * small.peak_macs_per_s


def test_no_run_is_faster_than_its_peak():
    for name in ("deit-t", "deit-b", "bert-l"):
        machine, workload = LighteningTransformer(), load_workload(name)
        macs = sum(one.macs for one in products(workload))
        assert total_cost(machine, workload).time_s > macs / machine.peak_macs_per_s


def test_each_correction_moves_its_own_number_only():
    """Faults of the public simulator, each by itself; waiting for the buffer is hidden behind light here."""
    shown = effects(LighteningTransformer(bits=4), load_workload("deit-b"))
    found = {one["correction"]: one for one in shown}
    laser = 0.77009 / 14.753
    assert found[Correction.EVERY_WAVELENGTH]["power"] == pytest.approx(11 * laser, rel=1e-3)
    assert found[Correction.DAC_LAW]["power"] == pytest.approx(-0.1 * 3.2143 / 14.753, rel=1e-3)
    assert found[Correction.ATTENTION_OPERANDS]["energy"] > 0.0
    assert found[Correction.ATTENTION_OPERANDS]["time"] == 0.0
    assert found[Correction.OTHERS_TIME]["time"] > 0.0
    assert found[Correction.OTHERS_TIME]["energy"] == 0.0
    assert found[Correction.OTHERS_EVERY_BLOCK]["energy"] > 0.0
    assert found[Correction.BUFFER_TIME]["time"] == 0.0
    assert found[TOGETHER]["energy"] != 0.0


def test_a_slow_buffer_is_waited_for_once_it_is_put_right():
    slow = LighteningTransformer().parts.with_(buffer_access_s=1e-6)
    machine = LighteningTransformer(parts=slow)
    workload = load_workload("bert-b")
    put_right = total_cost(machine.corrected(Correction.BUFFER_TIME), workload)
    assert put_right.time_s > 2.0 * total_cost(machine, workload).time_s


def test_bits_of_what_is_no_product_matter_at_eight_bits_only():
    workload = load_workload("deit-t")
    for bits, moves in ((4, False), (8, True)):
        machine = LighteningTransformer(bits=bits)
        put_right = total_cost(machine.corrected(Correction.OTHERS_BITS), workload).energy_j
        assert (put_right > total_cost(machine, workload).energy_j) == moves


def test_light_for_eight_bits_costs_more_than_twice_that_for_seven():
    """Amplifier noise asks for a factor of 2 per bit, shot noise for 4; the published rule is always 2."""
    light = [
        LighteningTransformer(bits=bits, corrections=frozenset(FAULTS)).received_w for bits in range(4, 12)
    ]
    ratios = [more / less for less, more in pairwise(light)]
    assert all(2.0 < ratio < 4.0 for ratio in ratios)
    assert ratios == sorted(ratios)


@pytest.mark.parametrize("name", numbers_of("lightening_transformer"))
def test_no_constant_of_lightening_transformer_is_dead(name):
    """Area, power, energy or time must move, in the published mode or with everything put right."""
    parts = LighteningTransformer().parts
    moved = parts.with_(**{name: 300.0 * getattr(parts, name)})

    def figures(constants, corrections):
        machine = LighteningTransformer(parts=constants, corrections=frozenset(corrections))
        cost = total_cost(machine, load_workload("deit-t"))
        totals = (sum(machine.power_parts_w().values()), sum(machine.area_parts_m2().values()))
        return (*totals, cost.energy_j, cost.time_s)

    assert any(figures(parts, which) != figures(moved, which) for which in ((), FAULTS))


@pytest.mark.parametrize("name", numbers_of("albireo_conservative"))
def test_no_constant_of_albireo_is_dead(name):
    found = load_albireo("conservative")
    moved = found.scenario.with_(**{name: 2.0 * getattr(found.scenario, name)})
    other = dataclasses.replace(found, scenario=moved)
    assert (found.power_parts_w(), found.area_parts_m2()) != (other.power_parts_w(), other.area_parts_m2())


@pytest.mark.parametrize("bits", [4.0, 6.0, 8.0])
def test_a_chip_of_more_bits_takes_more(bits):
    chip = load_chip("pace")
    fewer, more = (
        dataclasses.replace(chip, effective_bits=b).explained_j_per_mac for b in (bits, bits + 1.0)
    )
    assert fewer < more


def test_images_have_their_tokens():
    with pytest.raises(ParameterError, match="leave tokens out"):
        load_workload("deit-t", tokens=64)


@pytest.mark.slow
def test_albireo_is_within_five_percent_or_half_its_last_digit():
    """Albireo ISCA 2021, Table III and figure 9; watts are printed to 0.01, which is half of some parts."""
    for one in of("Albireo"):
        half = 0.005 if one.unit == "W" else 0.0
        assert abs(one.predicted - one.measured) <= max(0.05 * one.measured, half), one.id


def test_albireo_has_1215_multipliers():
    """Albireo ISCA 2021: 9 groups of 3 units of 3 x 3 rows and 5 columns."""
    found = load_albireo("moderate")
    assert found.multipliers == 1215
    assert sum(found.power_parts_w().values()) == pytest.approx(
        found.energy_j_per_mac * found.multipliers * found.scenario.table_rate_hz
    )


def test_simphony_leaves_the_split_out():
    """SimPhony's log: 1.1772 mW per laser; the split of 144 nodes is read under another name than written."""
    (one,) = of("SimPhony")
    assert one.predicted == pytest.approx(one.measured, rel=1e-9)
    assert one.hint.startswith("144 times")


def test_power_of_whole_chips_is_about_that_of_their_parts():
    """PACE (Nature 640, 361) and Lightmatter (Nature 2025); nothing is fitted, and PACE takes less."""
    pace, lightmatter = load_chip("pace"), load_chip("lightmatter_2025")
    assert pace.macs_per_s * 2 == pytest.approx(8.19e12, rel=1e-3)
    assert lightmatter.macs_per_s * 2 == pytest.approx(65.5e12, rel=1e-3)
    assert pace.published_j_per_mac == pytest.approx(0.840e-12, rel=1e-3)
    shares = (pace.explained_share, lightmatter.explained_share)
    assert shares == pytest.approx((1.12, 0.75), abs=0.02)
    hints = [one.hint for one in outcomes() if "energy per MAC" in one.id and "P" in one.id[:2]]
    assert any(f"unexplained {1.0 - pace.explained_share:.0%}" in hint for hint in hints)


@pytest.mark.parametrize("name", ["pace", "lightmatter_2025"])
def test_light_and_adc_together_leave_a_chip_its_effective_bits(name):
    """A sine of full scale, which is all light on either detector of a pair, beside noise of both."""
    chip, table = load_chip(name), device_table()
    crowd = 1.0 + table.build(SummingWires, "summing_wires").pair_load * (chip.side - 1)
    current_a = chip.received_w * table.build(Photodetector, "photodetector").responsivity_a_per_w
    density = 2.0 * ELEMENTARY_CHARGE_C * current_a
    density += crowd * table.build(Tia, "tia").noise_a_per_sqrt_hz ** 2
    light = density * chip.rate_hz / 2.0 / (0.5 * current_a**2)
    adc = 1.0 / snr_from_bits(chip.effective_bits + 0.5)
    assert bits_from_snr(1.0 / (light + adc)) == pytest.approx(chip.effective_bits, abs=0.001)


@pytest.mark.parametrize(
    ("name", "published_w", "factor"),
    [("pace", 8.19 / 2.38 - 8.19 / 4.21, 1.05), ("lightmatter_2025", 1.6, 2.0)],
)
def test_light_of_built_chips_follows_from_detectors_on_one_amplifier(name, published_w, factor):
    """PACE: 2.38 and 4.21 TOPS/W with and without lasers. Lightmatter: 1.6 W optical, its bits assumed."""
    chip = load_chip(name)
    laser_w = chip.power_parts_w()["laser"]
    assert 1 / factor < laser_w / published_w < factor
    alone = dataclasses.replace(chip, side=1, cores=chip.side * chip.cores)  # an amplifier of its own each
    assert alone.received_w < 0.3 * chip.received_w


def test_lasers_left_out_take_their_regulators_along():
    chip = load_chip("pace")
    whole, bare = chip.power_parts_w(), chip.power_parts_w(lasers=False)
    assert bare["laser"] == 0.0
    assert bare["regulators"] < whole["regulators"]
    assert load_chip("lightmatter_2025").power_parts_w(lasers=False)["laser"] == 0.0


def test_a_mesh_of_four_ports_learns_rings_in_itself():
    """Pai et al., Science 380, 398: more than 94 % on the chip."""
    assert mesh_accuracy() > 0.94


def test_fewer_photons_read_fewer_digits():
    """Netcast, Science 378, 270: 98.8 % at 40 aJ, which is 312 photons, and 93 % below one photon."""
    exact, bright, dim = (digit_accuracy(photons) for photons in (math.inf, photons_of(40e-18), 1.0))
    assert photons_of(40e-18) == pytest.approx(312, rel=0.01)
    assert exact - bright < 0.02
    assert 0.5 < dim < bright - 0.1


def test_overhead_is_what_parts_leave_unexplained_of_built_chips():
    """The row's value is the geometric mean of both, its high end the worse one."""
    left = [1.0 / load_chip(name).explained_share for name in ("pace", "lightmatter_2025")]
    (row,) = (one for one in device_table().rows if (one.name, one.parameter) == ("photonic", "overhead"))
    assert row.value == pytest.approx(math.sqrt(math.prod(left)), rel=0.01)
    assert row.high == pytest.approx(max(left), rel=0.01)
    assert row.low == 1.0


@pytest.mark.parametrize(
    ("core", "energy_mj", "latency_ms"), [(BaselineRingBank(), 1.538, 0.2443), (BaselineMesh(), 2.815, 12.34)]
)
def test_baselines_print_what_their_simulator_prints(core, energy_mj, latency_ms):
    """The simulator at 7c3d4ad, scripts of its comparison: DeiT-T, 4 bits, to the printed digit."""
    cost = baseline_total_cost(core, load_workload("deit-t"))
    assert cost.energy_j * 1e3 == pytest.approx(energy_mj, rel=5e-4)
    assert cost.time_s * 1e3 == pytest.approx(latency_ms, rel=5e-4)


def test_the_mesh_does_no_attention_and_is_charged_a_layer_twice():
    """Sum of the parts that the same run prints: 2.265 mJ and 9.99 ms; its total says 2.815 and 12.34."""
    workload = load_workload("deit-t")
    mesh = BaselineMesh(corrections=frozenset([BaselineCorrection.LAST_LAYER_ONCE]))
    costs, cost = baseline_workload_cost(mesh, workload), baseline_total_cost(mesh, workload)
    assert "attn" not in costs
    assert "attn" in baseline_workload_cost(BaselineRingBank(), workload)
    assert cost.energy_j * 1e3 == pytest.approx(2.265, rel=5e-4)
    assert cost.time_s * 1e3 == pytest.approx(9.99, rel=5e-4)
    assert cost.time_s == pytest.approx(sum(one.time_s for one in costs.values()))


@pytest.mark.parametrize(
    ("core", "corrections"),
    [(BaselineRingBank, BANK_FAULTS), (BaselineMesh, MESH_FAULTS)],
    ids=["ring bank", "mesh"],
)
def test_every_correction_of_a_baseline_moves_a_number(core, corrections):
    workload = load_workload("deit-t")
    readings = (BaselineCorrection.ONE_PHOTODIODE,)
    readings += (BaselineCorrection.RINGS_SETTLE,) if core is BaselineRingBank else ()

    def figures(*right):
        machine = core(bits=5, corrections=frozenset(right))
        cost = baseline_total_cost(machine, workload)
        return machine.area_m2, cost.energy_j, cost.time_s

    for one in (*corrections, *readings, *SHARED_FAULTS):
        assert figures(one) != figures(), one


def test_holding_the_phases_outweighs_everything_else_of_the_mesh():
    """2 x 144 heaters in each of 8 cores at half a period each, for 12.34 ms: 46 W, 569 mJ beside 2.8 mJ."""
    found = {one["correction"]: one for one in baseline_effects(BaselineMesh(), load_workload("deit-t"))}
    held = found[BaselineCorrection.HELD_PHASES]["energy_j"] - found[PUBLISHED]["energy_j"]
    heaters = 2 * 144 * 8
    assert held == pytest.approx(heaters * 20e-3 * found[PUBLISHED]["time_s"], rel=1e-6)


@pytest.mark.parametrize("name", numbers_of("lightening_baselines"))
def test_no_constant_of_a_baseline_is_dead(name):
    parts = BaselineMesh().parts
    moved = parts.with_(**{name: 3.0 * getattr(parts, name)})

    def figures(constants):
        cores = (BaselineRingBank(parts=constants), BaselineMesh(parts=constants))
        costs = [baseline_total_cost(core, load_workload("deit-t")) for core in cores]
        return [(core.area_m2, cost) for core, cost in zip(cores, costs, strict=True)]

    assert figures(parts) != figures(moved)


HEADER = "system,metric,value,unit,config\n"


def of_rows(tmp_path, *rows):
    path = tmp_path / "chips.csv"
    path.write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return validate("photonic", data=path).outcomes


def test_derived_figures_of_lightening_transformer_are_taken_apart(tmp_path):
    """Peak, efficiency and energy per MAC as a reader of the simulator's output computes them."""
    found = of_rows(
        tmp_path,
        "Lightening-Transformer,peak / TOPS/W,138.24 / 9.37 (4b) / 2.71 (8b),TOPS / TOPS/W,LT-B",
        "Lightening-Transformer,energy per MAC DeiT-T/S/B,0.3065 / 0.3089 / 0.3096 (4b); 0.9615 / 0.9682 / "
        "0.9669 (8b),pJ/MAC,LT-B",
        "Lightening-Transformer,README area total,60.329395,mm^2,LT-B 4b",
    )
    assert len(found) == 3 + 6 + 1
    assert all(abs(one.relative_error) < 2e-3 for one in found)
    assert found[-1].relative_error == pytest.approx(-0.0288 / 60.329395, rel=1e-5)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("LT,power total,abc,W,", "chips.csv:2: column 'value' is 'abc', which is no number"),
        ("LT,power total,nan,W,", "chips.csv:2: column 'value' is nan; it must be finite and positive"),
        ("LT,power total,-1,W,", "chips.csv:2: column 'value' is -1; it must be finite and positive"),
        ("LT,area total,3,furlong,", "chips.csv:2: column 'unit' is 'furlong', which is no unit of area"),
        (
            "Albireo,power MRR,3,mm^2,moderate",
            "chips.csv:2: column 'unit' is 'mm^2', which is no unit of power",
        ),
    ],
)
def test_bad_numbers_and_units_are_named_by_their_place(tmp_path, row, message):
    with pytest.raises(ParameterError) as error:
        of_rows(tmp_path, row)
    assert str(error.value).startswith(message)


def test_unknown_systems_and_what_no_parts_can_give_say_why(tmp_path):
    found = of_rows(
        tmp_path,
        "Acme 3,power total,12,W,",
        "Taichi,efficiency,160,TOPS/W,on chip",
        "Mirage,training speed,23.8 x faster,,vs systolic arrays",
        "Shen 2017,vowel accuracy measured / simulated,76.7 / 91.7,%,4x4",
    )
    assert [one.predicted for one in found] == [None] * 4
    reasons = ("system 'Acme 3' is not modelled", "no list of its parts", "a ratio to another", "an accuracy")
    assert all(one.skipped.startswith(reason) for one, reason in zip(found, reasons, strict=True))


def test_every_skipped_row_is_named_below_its_reason(tmp_path):
    path = tmp_path / "chips.csv"
    path.write_text(HEADER + "".join(f"Acme {index},power total,12,W,\n" for index in range(20)))
    (shown,) = validate("photonic", data=path).report()
    assert all(f"Acme {index} power total" in shown for index in range(20))


def test_numbers_of_built_chips_are_predicted_or_known_to_be_missed():
    """Within 30 %, half a bit or 6 points from parts, nothing fitted; peaks do not count."""
    names = ("PACE", "Lightmatter", "Homodyne TPU", "TeMPO", "Lightning", "Netcast", "Pai")
    names += ("Universal linear optics", "QuiX", "Homodyne multiplier", "Laser-written")
    built = [one for one in outcomes() if one.id.startswith(names) and one.predicted is not None]
    built = [one for one in built if not one.id.endswith("peak")]
    allowed = {"bit": 0.5, "1": 0.06}
    near = [
        one for one in built if abs(one.predicted - one.measured) < allowed.get(one.unit, 0.3 * one.measured)
    ]
    missed = sorted(one.id for one in built if one not in near)
    known = (
        "Homodyne TPU 256 x 256, 20 GBd node area",
        "Lightmatter 2025 65.5 TOPS (ABFP16) optical power",
        "Homodyne TPU 256 x 100, 20 GBd efficiency",
        "Netcast 2022 below 1 photon a multiplication accuracy",
        "Homodyne TPU 8 x 8, 120 GBd effective bits",
        "Lightning 2023 products of 8 bits, 4.055 GHz effective bits",
        "QuiX 2023 20 modes, Haar effective bits",
        "Laser-written mesh 2024 6 modes, Haar, 1550 nm effective bits",
        "Laser-written mesh 2024 6 modes, Haar, 785 nm effective bits",
    )
    assert set(missed) <= set(known), missed
    assert len({one.id.split()[0] for one in near}) >= 8
    bits = {one.id: one.predicted - one.measured for one in built if one.unit == "bit"}
    assert bits["Homodyne TPU 256 x 100, 20 GBd effective bits"] == pytest.approx(0.45, abs=0.1)
    assert bits["Homodyne TPU 8 x 8, 120 GBd effective bits"] == pytest.approx(-0.6, abs=0.1)  # our ADC
    assert bits["Homodyne multiplier 2026 1 x 1, 128 GBd effective bits"] == pytest.approx(0.34, abs=0.1)
    assert bits["Lightning 2023 products of 8 bits, 4.055 GHz effective bits"] > 0.5  # no drift
