from pathlib import Path

import pytest

import heliograph as hg
from heliograph import records as result_rows
from heliograph.comparison.comparison import write
from heliograph.records import COLUMNS, IDENTITY, PART_COLUMNS
from tests.builders import csv_rows

PAGE = Path(__file__).parents[2] / "docs" / "records.md"
PLAN = "tp=8,dp=2,global_batch=16,sequence_length=2048"
MODEL = "llama-3-8b"


@pytest.fixture(scope="module")
def runs():
    changed = hg.system("photonic_ocs:crossbar", accelerators=16).with_(laser_power_w="20 mW")
    return hg.compare(["gpu_packet"], MODEL, PLAN), hg.compare(["gpu_packet@torus", changed], MODEL, PLAN)


@pytest.mark.slow
def test_the_columns_do_not_depend_on_the_run(runs):
    for run in runs:
        assert all(list(row) == list(COLUMNS) for row in run.rows())
        assert all(list(row) == list(PART_COLUMNS) for row in run.parts())


def test_every_row_says_what_it_is_of(runs):
    row = runs[1].rows()[1]
    assert {key: row[key] for key in IDENTITY} == {
        "schema": result_rows.SCHEMA,
        "version": hg.__version__,
        "seed": None,
        "model": MODEL,
        "plan": "tp=8,pp=1,dp=2,micro_batch=1,global_batch=16,sequence_length=2048",
        "system": "photonic_ocs:crossbar",
        "settings": "photonic.core.laser_power_w=20 mW",
        "accelerators": 16,
    }
    for part in runs[1].parts():
        assert part["model"] == MODEL


@pytest.mark.parametrize("quantity", ["step_time_s", "energy_per_token_j", "memory_bytes"])
def test_the_parts_of_a_quantity_add_up_to_its_column(runs, quantity):
    for run in runs:
        for row in run.rows():
            parts = [
                one["value"]
                for one in run.parts()
                if (one["system"], one["quantity"]) == (row["system"], quantity) and one["part"]
            ]
            assert sum(parts) == pytest.approx(row[quantity])


@pytest.mark.slow
def test_the_files_of_two_runs_fit_under_each_other(runs, tmp_path):
    tables = [write(run, tmp_path / str(index)) for index, run in enumerate(runs)]
    for name, columns in (("systems.csv", COLUMNS), ("table.csv", PART_COLUMNS)):
        for directory in tables:
            assert all(list(row) == list(columns) for row in csv_rows(directory / name))
    wide, row = csv_rows(tables[1] / "systems.csv"), runs[1].rows()[0]
    assert float(wide[0]["energy_per_token_j"]) == row["energy_per_token_j"]
    assert wide[0]["core"] == ""


def test_every_column_is_documented():
    text = PAGE.read_text()
    for column, meaning in {**COLUMNS, **PART_COLUMNS}.items():
        assert f"| `{column}` | {meaning} |" in text, column
    assert f"`schema` is {result_rows.SCHEMA}" in text
