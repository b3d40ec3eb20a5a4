import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from simulator.errors import ParameterError, check_positive
from simulator.tables import COLUMNS, Status, read_table
from simulator.units import accepted_units

ROOT = Path(__file__).parents[2]
SHIPPED = sorted([*ROOT.glob("*/parameters/*.csv"), *ROOT.glob("experiments/**/parameters/*.csv")])
HEADER = ",".join(COLUMNS) + "\n"
GOOD = "laser,power_w,20,mW,10,30,published,someone 2024\nlaser,channels,8,1,,,assumed,ours\n"


@dataclass(frozen=True, kw_only=True)
class Laser:
    name: str
    power_w: float
    channels: int
    material: str = "InP"

    def __post_init__(self):
        check_positive(self, "power_w")


@pytest.fixture
def table(tmp_path):
    def write(body, header=HEADER):
        path = tmp_path / "devices.csv"
        path.write_text(header + body, encoding="utf-8")
        return path

    return write


def test_a_device_is_built_in_si(table):
    read = read_table(table("# a comment\n" + GOOD + "laser,material,GaAs,text,,,assumed,ours\n"))
    assert read.build(Laser, "laser") == Laser(name="laser", power_w=0.02, channels=8, material="GaAs")
    row = read.of("laser")[0]
    assert (row.low, row.high, row.status) == (0.01, 0.03, Status.PUBLISHED)
    assert row.where == "devices.csv:3"


def test_the_hash_follows_the_content(table):
    one = read_table(table(GOOD)).sha256
    assert read_table(table(GOOD)).sha256 == one
    assert read_table(table(GOOD.replace("20", "21"))).sha256 != one


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("laser,power_w,twenty,mW,,,assumed,s", "column 'value': 'twenty' is not a number"),
        ("laser,power_w,nan,mW,,,assumed,s", "column 'value': NaN"),
        ("laser,power_w,1,mW,low,,assumed,s", "column 'low': 'low' is not a number"),
        ("laser,power_w,1,mJ,,,assumed,s", "unit 'mJ' does not fit 'power_w'"),
        ("laser,power_w,1,,,,assumed,s", "unit '' does not fit 'power_w'"),
        ("laser,power_w,1,mW,,,guessed,s", "status 'guessed'"),
        ("laser,power_w,1,mW,,,assumed,", "column 'source' is empty"),
        ("laser,power_w,,mW,,,assumed,s", "column 'value' is empty"),
        (",power_w,1,mW,,,assumed,s", "column 'name' is empty"),
        ("laser,power_w,1,mW,,,assumed,a paper, with a comma", "9 cells where 8 are needed"),
        ("laser,channels,1,1,,,assumed,s", "stands already at devices.csv:3; keep one"),
    ],
)
def test_a_bad_row_is_refused_with_file_and_line(table, row, message):
    with pytest.raises(ParameterError) as caught:
        read_table(table(GOOD + row + "\n"))
    assert str(caught.value).startswith("devices.csv:4: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("body", "where", "message"),
    [
        (GOOD + "laser,powr_w,1,W,,,assumed,s\n", "devices.csv:4: ", "did you mean 'power_w'?"),
        ("laser,power_w,1,W,,,assumed,s\n", "devices.csv:2: ", "lacks the parameter 'channels'"),
        (GOOD.replace(",8,1,", ",8.5,1,"), "devices.csv:3: ", "must be whole; got 8.5"),
        (
            GOOD.replace("20,mW", "dim,text").replace("10,30", ","),
            "devices.csv:2: ",
            "must be a number; got 'dim'",
        ),
        (GOOD.replace(",20,", ",-20,"), "devices.csv: ", "power_w must be above 0; got -0.02"),
    ],
)
def test_a_device_that_cannot_be_built_is_refused_with_its_place(table, body, where, message):
    with pytest.raises(ParameterError) as caught:
        read_table(table(body)).build(Laser, "laser")
    assert str(caught.value).startswith(where)
    assert message in str(caught.value)


def test_an_unknown_device_is_met_with_the_nearest(table):
    with pytest.raises(ParameterError, match="has no device 'lasr'; did you mean 'laser'"):
        read_table(table(GOOD)).build(Laser, "lasr")


def test_a_wrong_header_and_an_empty_or_missing_file_are_refused(table, tmp_path):
    with pytest.raises(ParameterError, match=r"devices\.csv:1: the columns must be"):
        read_table(table(GOOD, header="name,value\n"))
    with pytest.raises(ParameterError, match=r"devices\.csv:1: the columns must be"):
        read_table(table("", header=""))
    with pytest.raises(ParameterError, match="has no rows"):
        read_table(table(""))
    with pytest.raises(ParameterError, match="no parameter table"):
        read_table(tmp_path / "none.csv")


def test_tables_are_shipped():
    assert {path.parts[-3] for path in SHIPPED} >= {"optical", "electronic"}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: "/".join(path.parts[-3::2]))
def test_every_shipped_number_has_unit_range_and_source(path):
    for row in read_table(path).rows:
        assert row.unit == "text" or row.unit in accepted_units(row.parameter), row.where
        assert len(row.source) > 3, f"{row.where}: source '{row.source}'"
        if isinstance(row.value, float):
            assert not math.isnan(row.value)
            assert row.low is None or row.low <= row.value, f"{row.where}: value below its range"
            assert row.high is None or row.value <= row.high, f"{row.where}: value above its range"
