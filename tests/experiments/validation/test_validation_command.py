import json
from pathlib import Path

import pytest

from experiments.study import document
from experiments.validation.driver import Validate, Validation, family, validate
from experiments.validation.rows import Outcome
from simulator.errors import HeliographError
from tests import builders

HEADER = "id,source,system,n_accelerators,hidden,iteration_time_s\n"


def run(capsys, *arguments):
    return builders.call(capsys, "validate", *arguments)


def data(tmp_path, text):
    path = tmp_path / "rows.csv"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_json_is_one_object_with_the_promised_keys(capsys):
    code, out, _ = run(capsys, "memory", "--json")
    assert code == 0
    found = json.loads(out)
    assert set(found) >= {"rows", "by_source", "overall"}
    assert found["command"] == "validate"
    assert found["overall"]["n"] == sum(one["n"] for one in found["by_source"].values())
    assert found["overall"]["n"] + sum(bool(row["skipped"]) for row in found["rows"]) == len(found["rows"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no file"),
        ("", "is empty"),
        ("a,b\n1,2\n", "needs a column"),
        (HEADER, "no rows"),
        (HEADER + "a,s,A100,8,1024,nan\n", "finite and positive"),
        (HEADER + "a,s,A100,8,1024,-1\n", "finite and positive"),
        (HEADER + "a,s,A100,8,1024,quick\n", "no number"),
        (HEADER + "a,s,A100,-8,1024,1\n", "finite and positive"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(capsys, tmp_path, text, message):
    path = str(tmp_path / "rows.csv") if text is None else data(tmp_path, text)
    code, out, err = run(capsys, "training", "--data", path)
    assert code == 2
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_an_unknown_kind_is_refused(capsys):
    code, _, err = run(capsys, "kernel")
    assert code == 2
    assert "did you mean 'kernels'" in err


def test_attention_of_three_chips_and_short_products_are_met_as_told(capsys):
    """cuDNN's own benchmark and OpenXLA's products: even rows were fitted, odd ones are as near."""
    code, out, _ = run(capsys, "kernels", "--json")
    assert code == 0
    rows = json.loads(out)["rows"]
    errors = [abs(row["relative_error"]) for row in rows if row["source"].startswith("cuDNN")]
    assert len(errors) == 183
    assert sum(errors[::2]) / len(errors[::2]) < 0.07
    assert sum(errors[1::2]) / len(errors[1::2]) < 0.07
    errors = [abs(row["relative_error"]) for row in rows if row["source"].startswith("OpenXLA")]
    assert len(errors) == 63
    assert sum(errors[::2]) / len(errors[::2]) < 0.105
    assert sum(errors[1::2]) / len(errors[1::2]) < 0.105


def test_skipped_rows_are_counted_with_their_reason(capsys, tmp_path):
    path = data(tmp_path, HEADER + "a,s,Abacus 3000,8,1024,1\nb,s,Abacus 3000,8,1024,1\n")
    code, out, _ = run(capsys, "training", "--data", path)
    assert code == 0
    assert "Skipped 2 rows" in out
    assert "accelerator 'Abacus 3000' is not in the table" in out


def test_a_user_s_kernels_and_collectives_are_predicted(tmp_path):
    kernels = data(tmp_path, "gpu,op,m,n,k,time_ms\nA100,matmul,4096,4096,4096,0.6\nMystery,matmul,1,1,1,1\n")
    first, second = validate("kernels", data=Path(kernels)).outcomes
    assert first.predicted > 0.0
    assert first.constant == pytest.approx(2 * 4096**3 / (312e12 * 0.5), rel=2e-3)
    assert second.skipped
    text = "gpu,n_gpus_one_node,bytes,busbw_GBps_oop\nA100,8,1073741824,229\n"
    (one,) = validate("collectives", data=Path(data(tmp_path, text))).outcomes
    assert one.measured == pytest.approx(2 * 7 / 8 * 2**30 / 229e9)
    assert one.constant == pytest.approx(2 * 7 / 8 * 2**30 / 150e9)
    assert one.predicted == pytest.approx(one.measured, rel=0.1)


def outcomes(count):
    return tuple(
        Outcome(
            id=f"row-{index}",
            source=f"source {index % 14}",
            unit="s",
            measured=1.0 + index,
            predicted=1.3 + index,
            hint="products 60%",
        )
        for index in range(count)
    )


def test_the_report_names_rows_that_miss_and_where_their_time_goes():
    (text,) = Validation(kind="training", outcomes=outcomes(3)).report()
    assert "Rows that miss by more than 20% (1)" in text
    assert "row-0  +30%  products 60%" in text


def write(found, directory):
    study = Validate(kind=found.kind)
    return found.write(directory, study.record_name("validate"), document("validate", study, found))


def test_files_are_written_where_asked(tmp_path):
    written = write(Validation(kind="training", outcomes=outcomes(30)), tmp_path)
    assert [path.name for path in written] == [
        "validate-training.json",
        "validate-training.csv",
        "validate-training.png",
        "validate-training.svg",
    ]
    assert all(path.stat().st_size > 1000 for path in written)


def test_nothing_predicted_is_nothing_drawn(tmp_path):
    blank = Outcome(id="a", source="s", unit="s", measured=1.0, skipped="no heads")
    empty = Validation(kind="training", outcomes=(blank,))
    assert empty.figure() is None
    assert [path.suffix for path in write(empty, tmp_path)] == [".json", ".csv"]


def test_tables_of_one_publication_are_one_family():
    assert family("NVIDIA DGX Cloud benchmarking v25.02 (LLAMA3_8B bf16)") == "NVIDIA DGX Cloud benchmarking"
    assert family("") == "no source"


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_directory_that_cannot_be_made_is_told_before_anything_runs(capsys, tmp_path, monkeypatch, form):
    monkeypatch.setattr("experiments.validation.driver.validate", lambda *_, **__: pytest.fail("ran"))
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    code, out, err = run(capsys, "memory", "--out", str(blocked / "inside"), *form)
    assert (code, out) == (2, "")
    assert "cannot make" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_files_that_cannot_be_written_take_nothing_away(capsys, tmp_path, monkeypatch, form):
    def full(*_):
        msg = "the disk is full"
        raise HeliographError(msg)

    monkeypatch.setattr("experiments.validation.driver.Validation.write", full)
    code, out, err = run(capsys, "memory", "--out", str(tmp_path), *form)
    assert code == 2
    assert "the disk is full" in err
    assert err.count("\n") == 1
    assert ("overall" in json.loads(out)) if form else ("Korthikanti" in out)
