"""Predictions against published measurements: the bars that are held, and those that are missed, by name."""

import json
import math

import pytest

from experiments.__main__ import BAD_INPUT, main

STATISTICS = {"n", "mean_abs_error", "median", "p90", "max", "bias", "constant_mean_abs_error"}
HEADER = (
    "id,source,provenance,system,n_accelerators,gpus_per_node,model_name,layers,hidden,heads,ffn_hidden,ffn_gated,"
    "vocab,seq_len,global_batch_sequences,micro_batch,tp,pp,dp,vpp,recompute,sequence_parallel,zero_or_fsdp,"
    "precision,iteration_time_s,notes\n"
)
ROW_22B = (
    "k-1,Korthikanti et al. 2205.05198 Table 5,read,A100-80GB SXM,8,8,Megatron-22B,48,6144,64,24576,n,51200,"
    "2048,4,4,8,1,1,1,{recompute},{sequence},0,fp16,{seconds},no FlashAttention\n"
)


def validate(capsys, kind, *extra):
    code = main(["validate", kind, "--json", *extra])
    return code, capsys.readouterr()


@pytest.fixture
def two_rows(tmp_path):
    path = tmp_path / "rows.csv"
    rows = (("full", "n", 1.42), ("selective", "y", 1.10))
    path.write_text(
        HEADER
        + "".join(ROW_22B.format(recompute=r, sequence=s, seconds=t) for r, s, t in rows).replace(
            "k-1", "k-2", 1
        )
    )
    return path


def test_the_object_has_the_documented_shape_and_its_statistics_add_up(capsys, two_rows):
    code, captured = validate(capsys, "training", "--data", str(two_rows))
    found = json.loads(captured.out)
    assert code == 0
    assert set(found) == {"rows", "by_source", "overall"}
    keys = {"id", "source", "measured", "predicted", "unit", "relative_error", "assumed", "skipped"}
    assert all(set(row) >= keys for row in found["rows"])
    errors = [row["relative_error"] for row in found["rows"]]
    assert set(found["overall"]) == STATISTICS
    assert found["overall"]["n"] == 2
    assert found["overall"]["bias"] == pytest.approx(sum(errors) / 2)
    assert found["overall"]["mean_abs_error"] == pytest.approx(sum(map(abs, errors)) / 2)
    for row in found["rows"]:
        assert row["relative_error"] == pytest.approx(row["predicted"] / row["measured"] - 1)


def test_the_constant_beside_it_is_half_of_the_peak(capsys, two_rows):
    # 22B by hand: 96 B s L h^2 (1 + s/6h + V/16Lh) operations (2104.04473 eq. 3) over 8 x 156 TFLOP/s.
    layers, hidden, vocabulary, sequence, batch = 48, 6144, 51200, 2048, 4
    work = 96 * batch * sequence * layers * hidden**2
    work *= 1 + sequence / (6 * hidden) + vocabulary / (16 * layers * hidden)
    full_error = work / (8 * 0.5 * 312e12) / 1.42 - 1
    row = two_rows.read_text().splitlines()[1]
    two_rows.write_text(HEADER + row + "\n")
    found = json.loads(validate(capsys, "training", "--data", str(two_rows))[1].out)
    assert found["overall"]["constant_mean_abs_error"] == pytest.approx(abs(full_error), abs=0.02)


def test_22b_on_eight_gpus_is_within_six_percent_and_beats_the_constant(capsys, two_rows):
    found = json.loads(validate(capsys, "training", "--data", str(two_rows))[1].out)
    assert found["overall"]["max"] < 0.06
    assert found["overall"]["mean_abs_error"] < found["overall"]["constant_mean_abs_error"]


@pytest.mark.xfail(strict=True, reason="the bar is 3.5 %; 22B is predicted 4 % too slow and 3 % too fast")
def test_22b_on_eight_gpus_is_within_the_bar(capsys, two_rows):
    found = json.loads(validate(capsys, "training", "--data", str(two_rows))[1].out)
    assert found["overall"]["mean_abs_error"] < 0.035


def test_memory_equals_the_closed_forms_to_the_printed_digit(capsys):
    # Korthikanti et al. 2205.05198, figures 1 and 7.
    found = json.loads(validate(capsys, "memory")[1].out)
    figures = {name: one for name, one in found["by_source"].items() if "Korthikanti" in name}
    assert len(figures) == 2
    assert all(one["max"] < 1e-3 for one in figures.values())


def test_large_all_reduces_are_within_a_tenth_on_eight_gpus(capsys):
    # Azure's published nccl-tests tables; the bar is 9.7 % from 1 MiB up.
    rows = json.loads(validate(capsys, "collectives")[1].out)["rows"]
    for label in ("a100x8", "h100x8"):
        errors = [
            abs(row["relative_error"])
            for row in rows
            if label in row["id"] and row["skipped"] is None and int(row["id"].rsplit("-", 1)[1]) >= 2**20
        ]
        assert len(errors) >= 10
        assert math.exp(sum(math.log(max(error, 1e-6)) for error in errors) / len(errors)) < 0.097


def test_every_shipped_row_has_a_source_and_is_predicted_or_says_why_not(capsys):
    for kind in ("memory", "collectives"):
        rows = json.loads(validate(capsys, kind)[1].out)["rows"]
        assert all(row["source"] for row in rows)
        assert all((row["predicted"] is None) == (row["skipped"] is not None) for row in rows)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "no file"),
        ("", "empty"),
        ("a,b\n1,2\n", "column"),
    ],
)
def test_a_broken_table_gets_one_sentence(capsys, tmp_path, text, says):
    path = tmp_path / "rows.csv"
    if text is not None:
        path.write_text(text)
    code, captured = validate(capsys, "training", "--data", str(path))
    assert code == BAD_INPUT
    assert says in captured.err.lower()
    assert "Traceback" not in captured.err


def test_a_row_of_nonsense_is_refused_with_its_place(capsys, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(HEADER + ROW_22B.format(recompute="full", sequence="n", seconds="nan"))
    code, captured = validate(capsys, "training", "--data", str(path))
    assert code == BAD_INPUT
    assert "rows.csv:2: column 'iteration_time_s' is nan" in captured.err
