import pytest

from experiments.validation.rows import Record, SkipError, check_provenance, read_records
from simulator.errors import ParameterError

NEEDS = (("id",), ("time_s", "rate"))


def write(tmp_path, text):
    path = tmp_path / "rows.csv"
    path.write_text(text, encoding="utf-8")
    return path


def record(**cells):
    return Record("rows.csv:2", cells)


def test_a_row_may_lack_trailing_cells_and_columns(tmp_path):
    rows = read_records(write(tmp_path, "id,time_s,layers\na,1\n# note\n\nb,2,3\n"), needs=NEEDS)
    assert [one.text("id") for one in rows] == ["a", "b"]
    assert rows[0].whole("layers") is None
    assert rows[1].whole("layers") == 3
    assert rows[0].text("no such column") == ""
    assert rows[1].where == "rows.csv:5"


def test_one_column_of_a_group_is_enough(tmp_path):
    assert read_records(write(tmp_path, "id,rate\na,1\n"), needs=NEEDS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,layers\na,1\n", "needs a column 'time_s' or 'rate'"),
        ("time_s\n1\n", "needs a column 'id'"),
        ("id,time_s\n", "no rows"),
        ("id,time_s\na,1,2\n", "3 cells where 2 fit"),
        ("id,time_s,time_s\na,1,2\n", "stands twice"),
        ("   \n", "is empty"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path, text, message):
    with pytest.raises(ParameterError, match=message):
        read_records(write(tmp_path, text), needs=NEEDS)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ParameterError, match=r"no file .*absent\.csv"):
        read_records(tmp_path / "absent.csv", needs=NEEDS)


@pytest.mark.parametrize("cell", ["nan", "inf", "-1", "NaN"])
def test_a_number_that_cannot_be_one_is_an_error_of_the_file(cell):
    with pytest.raises(ParameterError, match=r"rows\.csv:2: column 'x'"):
        record(x=cell).number("x")


def test_zero_is_refused_only_where_a_measurement_stands():
    assert record(x="0").number("x") == 0.0
    with pytest.raises(ParameterError, match="finite and positive"):
        record(x="0").number("x", strict=True)


def test_text_for_a_number_skips_the_row_and_in_a_measurement_refuses_the_file():
    with pytest.raises(SkipError, match="no number"):
        record(x="fast").number("x")
    with pytest.raises(ParameterError, match="no number"):
        record(x="fast").number("x", strict=True)


@pytest.mark.parametrize("cell", ["", "-", "n/a", "None", "unknown"])
def test_words_for_nothing_are_nothing(cell):
    assert record(x=cell).number("x") is None


def test_a_count_must_be_whole():
    assert record(x="8.0").whole("x") == 8
    with pytest.raises(SkipError, match="whole number"):
        record(x="8.5").whole("x")


def test_a_needed_count_that_is_absent_skips_the_row():
    with pytest.raises(SkipError, match="no hidden is given"):
        record().needed("hidden")


def test_an_assumption_is_noted_once():
    row = record()
    row.assume("vpp 1")
    row.assume("vpp 1")
    assert row.assumed == ["vpp 1"]


def test_recalled_rows_are_skipped_and_others_are_not():
    check_provenance(record(provenance="read"))
    check_provenance(record())
    with pytest.raises(SkipError, match="recalled"):
        check_provenance(record(provenance="Recalled"))
