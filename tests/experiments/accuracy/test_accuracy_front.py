"""Loss against energy: knobs, the GPU's fp8, and what training tells from chance."""

import dataclasses
import json
import math

import pytest

from electronic.numerics import BfloatNumerics, Float8, Float8Numerics, Float8Scale
from experiments.__main__ import main
from experiments.accuracy import front as accuracy_front_settings
from experiments.accuracy.front import (
    KNOBS,
    OUTPUT_BITS,
    Front,
    FrontPoint,
    outermost,
    settings,
)
from experiments.accuracy.training import RESIDUES, fragile, in_residues, rescues, train_variants
from experiments.study import draw
from heliograph.accuracy.small_gpt import FLOAT8, FLOAT8_ROWS, Accuracy, Arithmetic, products_of
from heliograph.report import report_text
from heliograph.systems import build_system
from optical.execution import Scale
from simulator.errors import ParameterError
from simulator.operators import Phase
from tests.builders import csv_rows


def test_each_output_bit_doubles_the_converter_s_energy():
    """Walden (1999): power over 2^ENOB times rate is the part's own figure of merit."""
    found = settings("photonic_packet", accelerators=8, core="crossbar")
    present = found[0].system.photonic.core.adc
    bits = [one.system.photonic.core.adc for one in found if one.knob == OUTPUT_BITS]
    assert len(bits) == 5
    for one in bits:
        assert one.walden_j == pytest.approx(present.walden_j, rel=1e-4)
        assert one.conversion_j == pytest.approx(
            present.conversion_j * 2 ** (one.enob_bits - present.enob_bits)
        )


@pytest.mark.parametrize("core", ["block_float", "phase_residue", "mzi_mesh", "ring_bank"])
def test_other_cores_have_knobs_too(core):
    found = settings("photonic_packet", accelerators=8, core=core)
    built = {one.knob for one in found if one.system is not None}
    assert {"laser power", OUTPUT_BITS, "array size"} <= built
    kept = outermost(found)
    assert kept[0] is found[0]
    for knob in KNOBS:
        values = sorted(one.value for one in found if one.knob == knob)
        assert [one.value for one in kept if one.knob == knob] == values[:1] + values[1:][-1:]


def test_fp8_executes_what_an_fp8_plan_prices():
    """Products with weights in blocks, gradients in E5M2 (Micikevicius et al. 2022, section 3)."""
    for label, scale in ((FLOAT8, Float8Scale.TENSOR), (FLOAT8_ROWS, Float8Scale.ROW)):
        products = products_of(Arithmetic(label=label))
        assert products.forward == Float8Numerics(scale=scale)
        assert products.grad_input.a_format is Float8.E5M2
        assert products.grad_weight.b_format is Float8.E5M2
        assert set(products.exceptions) == {"scores", "values", "head"}
        assert all(one.forward == BfloatNumerics() for one in products.exceptions.values())


def point(knob, value, **changes):
    known = dict(
        knob=knob,
        value=value,
        raised=value > 1.0,
        energy_j=1.0 + abs(value),
        time_s=2.0,
        snr_db=30.0,
        rise=0.01,
        error=0.001,
    )
    return FrontPoint(**known | changes)


def front(**changes):
    points = [
        point("present", math.nan, energy_j=2.0, trained=0.03, trained_error=0.001, trained_resolved=True)
    ]
    points += [point("laser power", value, trained=0.001, trained_error=0.002) for value in (0.5, 2.0)]
    marks = [point("bf16", math.nan, energy_j=5.0), point("fp8", math.nan, energy_j=3.0)]
    marks.append(point("fp8 by rows", math.nan, energy_j=math.nan, time_s=math.nan))
    known = dict(system="s", workload="w", points=tuple(points), marks=tuple(marks), missing=(), floor=0.002)
    return Front(**known | changes)


@pytest.mark.slow
def test_what_chance_does_as_well_is_said(tmp_path):
    text = report_text(front().report())
    assert "+0.0300 \u00b1 0.0010" in text
    assert "+0.0010" not in text
    assert text.count("not resolved") == 2
    assert "no such engine" in text
    untrained = [dataclasses.replace(one, trained=math.nan) for one in front().points]
    for one in (front(), front(points=tuple(untrained), floor=math.nan)):
        for path in draw(one, tmp_path / "front"):
            assert path.stat().st_size > 10_000


def test_a_difference_needs_the_floor_and_student_s_t():
    """Three seeds, two-sided at 95 %: t = 4.30 standard errors."""

    def accuracy(*finals):
        return Accuracy(
            label="x", steps=(1,), losses=tuple((one,) for one in finals), reference=(1.0,) * len(finals)
        )

    assert accuracy(1.030, 1.031, 1.029).resolved(0.01)
    assert not accuracy(1.030, 1.031, 1.029).resolved(0.05)
    assert not accuracy(1.06, 1.00, 1.03).resolved(0.001)
    assert not accuracy(2.0).resolved(0.0)


def test_residue_cores_are_varied_where_they_can_be():
    residue = build_system("photonic_packet", core="residue")
    labels = {one.label for one in (*fragile(residue.analog()), *rescues(residue.analog()))}
    assert {"only head", "only grad weight", "head digital", "all rounded stochastically"} <= labels
    assert not labels & {"one scale per tensor", "block floating point"}
    assert in_residues(residue) is None
    with pytest.raises(ParameterError, match="no photonic core"):
        train_variants(build_system("gpu_packet"), seeds=range(2), quick=True, cache=None, model="tiny")


@pytest.mark.parametrize("core", ["crossbar", "block_float"])
def test_residue_numbers_are_those_of_the_system_s_own_parts(core):
    """Mirage (arXiv:2311.17323): a worse converter misreads more remainders."""
    plain = build_system("photonic_packet", core=core)
    path = "photonic.core.core" if core == "block_float" else "photonic.core"
    worse = build_system(
        "photonic_packet", core=core, assignments=(f"{path}.adc.enob_bits=4", f"{path}.adc.nominal_bits=5")
    )
    found = [in_residues(one).analog[Phase.FORWARD] for one in (plain, worse)]
    assert in_residues(plain).label == RESIDUES
    assert all(one.scale is Scale.BLOCK for one in found)
    assert found[1].residues.wrong_sample > 2.0 * found[0].residues.wrong_sample


@pytest.mark.slow
def test_the_command_writes_the_front(capsys, tmp_path, monkeypatch):
    fewer = {name: dataclasses.replace(knob, factors=knob.factors and (0.5,)) for name, knob in KNOBS.items()}
    monkeypatch.setattr(accuracy_front_settings, "KNOBS", fewer)
    monkeypatch.setattr(accuracy_front_settings, "BITS", (-2.0, 2.0))
    options = ("--quick", "--model", "tiny", "--steps", "2", "--seeds", "1", "--no-training", "--json")
    out = tmp_path / "front"
    sizes = ("--workload", "llama-3-8b", "--accelerators", "64")
    assert main(["accuracy", "front", *options, *sizes, "--out", str(out)]) == 0
    record = json.loads(capsys.readouterr().out)
    rows = {(row["knob"], row["value"]): row for row in csv_rows(out / "front.csv")}
    energy = {key: float(row["energy_j_per_token"]) for key, row in rows.items()}
    bits = sorted((float(value), joules) for (knob, value), joules in energy.items() if knob == OUTPUT_BITS)
    assert [joules for _, joules in bits] == sorted(joules for _, joules in bits)
    gpu = {one["knob"]: one for one in record["marks"]}
    assert gpu[FLOAT8]["energy_j"] < 0.85 * gpu["bf16"]["energy_j"]
    assert gpu[FLOAT8]["time_s"] < 0.85 * gpu["bf16"]["time_s"]
    assert gpu[FLOAT8]["rise"] > gpu["bf16"]["rise"]
