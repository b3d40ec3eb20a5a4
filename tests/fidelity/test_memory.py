"""Published memory: closed forms to the last printed digit, and what was allocated."""

from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest

import experiments.validation
from experiments.validation.driver import validate
from experiments.validation.rows import read_records
from experiments.validation.training import MEMORY_NEEDS
from simulator.units import to_si

TABLE = Path(experiments.validation.__file__).parent / "reference" / "memory.csv"
RECORDS = {one.text("id"): one for one in read_records(TABLE, needs=MEMORY_NEEDS)}
CLOSED = [name for name, one in RECORDS.items() if one.text("quantity") != "peak allocated"]


@cache
def outcomes():
    return {one.id: one for one in validate("memory").outcomes}


@pytest.mark.parametrize("name", CLOSED)
def test_a_closed_form_agrees_to_the_last_printed_digit(name):
    """Figures 1 and 7 of arXiv:2205.05198 and figure 1 of ZeRO (arXiv:1910.02054)."""
    record, found = RECORDS[name], outcomes()[name]
    unit = to_si("share" if found.unit == "1" else "x_bytes", 1.0, record.text("unit"))
    printed = Decimal(record.text("measured"))
    digits = -printed.as_tuple().exponent
    assert abs(found.predicted / unit - float(printed)) <= 0.5001 * 10.0**-digits


def test_there_are_all_twelve_of_figure_1_and_all_four_of_figure_7():
    assert sum("Figure 1" in RECORDS[name].text("source") and "Korth" in RECORDS[name].text("source")
               for name in CLOSED) == 12  # fmt: skip
    assert sum("Figure 7" in RECORDS[name].text("source") for name in CLOSED) == 4


def test_what_is_allocated_is_held():
    """SimuMax v1.2, memory allocated on B200; what is missing is workspaces and the framework's own."""
    rows = [one for one in outcomes().values() if one.id.startswith("mem-simumax")]
    errors = [abs(one.relative_error) for one in rows if one.relative_error is not None]
    assert len(errors) >= 13
    assert sum(errors) / len(errors) <= 0.06
