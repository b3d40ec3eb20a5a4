import json
from collections import Counter

import pytest

from experiments.__main__ import main
from experiments.validation.driver import family, validate

HEADER = "system,metric,value,unit,config,source,provenance,where\n"


def rows_of(tmp_path, *lines):
    path = tmp_path / "photonic.csv"
    path.write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")
    return validate("photonic", data=path).outcomes


def test_a_row_of_three_scenarios_is_three_rows(tmp_path):
    found = rows_of(
        tmp_path, 'Albireo,power MRR,7.52/0.94/0.38,W,"conservative/moderate/aggressive, 5 GHz",s,read,'
    )
    assert [one.measured for one in found] == [7.52, 0.94, 0.38]
    assert all(abs(one.relative_error) < 0.02 for one in found)
    assert "conservative, 5 GHz" in found[0].id


def test_a_row_of_two_quantities_is_two_rows(tmp_path):
    head = "LT baselines dota_crossbar_4t_2c,total energy / latency,"
    line = head + "9.7948 / 0.26528,mJ / ms,deit-b_197_4bit,s,read,"
    energy, time = rows_of(tmp_path, line)
    assert (energy.unit, time.unit) == ("J", "s")
    assert energy.predicted == pytest.approx(9.794769567e-3, rel=1e-9)
    assert time.predicted == pytest.approx(0.26528e-3, rel=1e-4)


def test_another_tool_s_prediction_is_no_claim(tmp_path):
    line = "Albireo,energy per MAC,1042.84 model / 1018.93 reference,fJ/MAC,moderate,s,read,"
    (one,) = rows_of(tmp_path, line)
    assert one.measured == pytest.approx(1018.93e-15)


def test_energy_with_and_without_lasers_are_two_claims(tmp_path):
    lit, dark = rows_of(tmp_path, "PACE,energy per MAC,0.840 incl lasers / 0.475 excl,pJ/MAC,,s,read,")
    assert lit.predicted > dark.predicted
    assert "laser" not in dark.hint


def test_an_energy_behind_an_efficiency_is_read(tmp_path):
    (one,) = rows_of(tmp_path, "Lightmatter 2025,efficiency,0.823 TOPS/W = 2.43 pJ/MAC,,,s,read,")
    assert one.measured == pytest.approx(2.43e-12)
    assert "unexplained 25%" in one.hint


def test_a_bank_of_more_rings_has_fewer_bits(tmp_path):
    one, many = rows_of(
        tmp_path, *(f"Ring weights 2024,effective bits,9.3,bit,{n} rings,s,read," for n in (1, 16))
    )
    assert one.predicted == pytest.approx(9.3, abs=0.7)  # 0.6 bit short: docs/validation_photonics.md
    assert many.predicted < one.predicted - 2.0


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("Abacus,power total,1,W,,s,read,", "system 'Abacus' is not modelled"),
        ("Albireo,power MRR,1,W,,s,read,", "no scenario"),
        ("Albireo,power sail,1,W,moderate,s,read,", "no part 'sail'"),
        ("Albireo,power MRR,about one,W,moderate,s,read,", "no single number"),
        ("Albireo,rings,1215,1,moderate,s,read,", "neither area, power, energy, time nor operations"),
        ("Albireo,power MRR,1,W,moderate,s,recalled,", "nobody has looked"),
        (
            "Lightening-Transformer,total energy,1,mJ,deit-t_64_4bit dota_arch_opt_4t_2c,s,read,",
            "leave tokens",
        ),
        ("Lightening-Transformer,sail energy,1,mJ,deit-t_197_4bit dota_arch_opt_4t_2c,s,read,", "no layer"),
    ],
)
def test_what_cannot_be_predicted_is_skipped_with_its_reason(tmp_path, line, reason):
    (one,) = rows_of(tmp_path, line)
    assert one.predicted is None
    assert reason in one.skipped


@pytest.mark.parametrize(
    ("value", "unit"), [("nan", "W"), ("-1", "W"), ("0", "W"), ("1.2.3", "W"), ("1", "mile")]
)
def test_a_number_or_unit_that_cannot_be_one_is_an_error_of_the_file(capsys, tmp_path, value, unit):
    path = tmp_path / "photonic.csv"
    path.write_text(HEADER + f"Albireo,power MRR,{value},{unit},moderate,s,read,\n", encoding="utf-8")
    assert main(["validate", "photonic", "--data", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "photonic.csv:2" in captured.err


@pytest.mark.slow
def test_the_table_that_ships_is_read_and_what_is_put_right_stands_below(capsys, tmp_path):
    assert main(["validate", "photonic", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "put right, rule by rule" in text
    assert "all faults together" in text
    found = json.loads((tmp_path / "validate-photonic.json").read_text(encoding="utf-8"))
    assert set(found) >= {"rows", "by_source", "overall"}
    assert found["overall"]["n"] >= 200
    effects = json.loads((tmp_path / "validate-photonic-corrections.json").read_text(encoding="utf-8"))
    assert {one["bits"] for one in effects} == {4, 8}
    assert all(set(one) == {"correction", "bits", "power", "energy", "time"} for one in effects)
    baselines = json.loads((tmp_path / "validate-photonic-baselines.json").read_text(encoding="utf-8"))
    assert {one["system"] for one in baselines} == {"ring bank", "mesh"}


@pytest.mark.slow
def test_the_picture_has_every_row_at_its_source_and_unit():
    found = validate("photonic")
    figure = found.figure()
    (axes,) = figure.axes
    drawn = [
        line for line in axes.lines if len(line.get_xdata()) and line.get_marker() not in ("None", None, "")
    ]
    units = {
        "1" if line.get_label() == "ratio" else line.get_label(): len(line.get_xdata()) for line in drawn
    }
    assert units == dict(Counter(one.unit for one in found.predicted))
    sources = Counter(family(one.source) for one in found.predicted)
    assert len(axes.get_yticks()) == len(sources)
    assert f"({max(sources.values())})" in axes.get_yticklabels()[0].get_text()
    assert f"{len(found.predicted)} rows" in figure.get_suptitle()
