import io
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.report import (
    WIDTH,
    ReportRow,
    ReportTable,
    format_si,
    plain_text,
    prefix_of,
    print_report,
    table_text,
)

SYSTEMS = ("gpu_packet", "gpu_ocs", "photonic_packet", "photonic_ocs")


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.0123, "s", "12.3 ms"),
        (1.0, "s", "1.00 s"),
        (0.0, "J", "0 J"),
        (-2.5e-7, "J", "-250 nJ"),
        (999.96, "W", "1.00 kW"),
        (9.996e-4, "s", "1.00 ms"),
        (3.35e12, "B/s", "3.35 TB/s"),
        (0.92, "J/token", "920 mJ/token"),
        (4.2e-6, "s", "4.20 \u00b5s"),
        (183456.7, "tokens/s", "183,457 tokens/s"),
        (42.25, "%", "42.2 %"),
        (0.0005, "", "0.000500"),
        (1.5e-7, "", "1.50e-07"),
        (7e300, "W", "7.00e+282 EW"),
        (1.234e14, "tokens/s", "123,400,000,000,000 tokens/s"),
        (math.nan, "s", "\u2013"),
        (-math.inf, "s", "-inf s"),
        (1e30, "J", "1,000,000,000,000 EJ"),
    ],
)
def test_numbers_are_shown_with_three_digits_and_a_prefix(value, unit, shown):
    assert format_si(value, unit) == shown


@given(st.floats(min_value=1e-15, max_value=1e20))
def test_a_prefixed_number_lies_between_one_and_a_thousand(value):
    _, factor = prefix_of(value)
    assert 1.0 <= float(f"{value / factor:.3g}") < 1e3


def rows(note="published"):
    return [
        ReportRow("Step time", ("22.8 s", "22.3 s", "23.3 s", "22.5 s"), note),
        ReportRow("  exposed communication", ("1.00 s",) * 4, "derived", section=True),
    ]


def test_the_table_fits_its_width_and_loses_nothing():
    text = table_text("Llama-3.1 405B", SYSTEMS, rows("a long note about where it comes from " * 3))
    assert max(len(line) for line in text.splitlines()) <= WIDTH
    for word in (*SYSTEMS, "22.8 s", "exposed communication", "derived", "Llama-3.1 405B"):
        assert word in text


def test_a_line_stands_in_the_blocks_in_which_it_has_values():
    told = {"both": ("1 s", "2 s"), "first": ("3 s", ""), "heading": ("", "")}
    lines = [ReportRow(label, values) for label, values in told.items()]
    text = table_text("t", ["a" * 30, "b" * 30], lines, width=50)
    first, second = text.split("b" * 30)
    assert [label for label in told if label in first] == ["both", "first", "heading"]
    assert [label for label in told if label in second] == ["both", "heading"]


def test_a_narrow_table_breaks_neither_title_nor_names():
    title = (
        "llama-3-8b on 64 accelerators, tp=2,pp=1,dp=32,micro_batch=1,global_batch=32,sequence_length=8192"
    )
    one = [ReportRow("step time", ("1 s",))]
    assert title in table_text(title, ("photonic_packet",), one).splitlines()
    heads = [f"photonic_packet:{core}@dragonfly_plus" for core in ("pcm_crossbar", "mzi_mesh", "homodyne")]
    text = table_text("t", heads, [ReportRow("step time", ("1 s",) * 3)])
    for words in (["photonic_packet"] * 3, [":pcm_crossbar", ":mzi_mesh", ":homodyne"]):
        assert words in [line.split() for line in text.splitlines()]
    assert heads[0] in table_text("t", heads[:1], one)


def test_long_names_and_heads_are_broken_where_a_table_is_narrow():
    band = "77.3 J (70.8 to 87.2) at 4.24 mW, 19 dB"
    name, plan = "photonic_packet:ring_bank+hybrid+rotation+block", "tp=8,pp=4,dp=8,micro_batch=1,zero=1"
    lines = [
        ReportRow(name, (band, "never"), "not resolved"),
        ReportRow("  laser intensity, other symbols, crosstalk alone", ("1 s", ""), "derived"),
    ]
    text = table_text("t", (plan, "effective parameters"), lines, width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "4.24 mW" in text  # a number stays with its unit
    for word in (
        *name.split(":"),
        *"laser intensity, other symbols, crosstalk alone".split(),
        *plan.split(","),
    ):
        assert word in text


def test_a_pipe_gets_no_escapes(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    stream = io.StringIO()
    print_report([ReportTable("title", SYSTEMS, rows())], stream=stream)
    assert "\x1b" not in stream.getvalue()
    assert stream.getvalue() == table_text("title", SYSTEMS, rows())


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_colours():
    stream = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm-256color")
        patch.delenv("NO_COLOR", raising=False)
        print_report([ReportTable("title", SYSTEMS, rows())], stream=stream)
    assert "\x1b[" in stream.getvalue()


def test_a_line_of_a_list_goes_on_beneath_its_text(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    print_report(
        ["rotor    " + "packets " * 8, "Text of " + "several words " * 4, "x" * 38 + "  0.2 V"], stream=stream
    )
    assert stream.getvalue().split("\n") == [
        "rotor    packets packets packets packets",
        "         packets packets packets packets",
        "Text of several words several words",
        "several words several words",
        "x" * 38,
        " " * 20 + "0.2 V",
        "",
    ]


def test_a_stream_without_these_letters_gets_question_marks():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    print_report([ReportTable("title", SYSTEMS, rows())], stream=stream)
    stream.flush()
    assert b"Step time" in raw.getvalue()


@pytest.mark.parametrize(
    "name", ["[bold]x[/bold]", "[/nothing]", "\x1b[31mred\x1b[0m", "\x1b]0;t\x07x", "a\nb\rc"]
)
def test_markup_and_escapes_in_names_are_shown_as_text(name):
    text = table_text(name, (name,), [ReportRow(name, (name,), name)])
    assert "\x1b" not in text
    assert plain_text(name) in text


def test_a_row_of_another_length_is_a_mistake_of_the_program():
    with pytest.raises(ValueError, match="2 values for 4 systems"):
        table_text("t", SYSTEMS, [ReportRow("x", ("1", "2"))])
