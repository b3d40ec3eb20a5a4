"""What `heliograph bill` shows and writes: one bill line by line, or all fabrics beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from experiments.bill import PRICES, Bill, Line, Span, shares
from experiments.plain import canonical_json, csv_text, make_directory, write_atomically
from experiments.report import ReportRow, format_si, prefix_of
from experiments.style import PALETTE, label, new_figure, save, styled

_FAMILIES = {
    "scale-up": "domain, copper links",
    "router port": "domain, copper links",
    "copper cable end": "domain, copper links",
    "copper link end": "domain, copper links",
    "nic": "cards",
    "circuit card": "cards",
    "optical switch": "optical switches",
    "turning": "optical switches",
    "packet switch": "packet switches",
    "transceiver": "modules, optical lanes",
    "optical lane": "modules, optical lanes",
    "reduction lane": "modules, optical lanes",
    "transceiver switch": "modules, optical lanes",
    "failed transceiver": "modules, optical lanes",
    "reduction unit": "adders in light",
    "wafer chip": "wafers",
    "wafer lane": "wafers",
    "fibre (m)": "fibres, panels",
    "patch panel place": "fibres, panels",
}
"""What lines of a bill are drawn as, so that a colour is one thing in the bars of all fabrics."""
COLUMNS = ("count", "each", "all", "range", "share", "per accelerator")
"""Heads of one bill, of power or of prices."""
COMPARED = ("W", "W range", "$", "$ range")
"""Heads of bills beside each other; all per accelerator."""
UNITS = MappingProxyType({"power_w": ("W", ("_w",)), "price_usd": ("USD", PRICES)})
"""Unit of each quantity, and what the names of the numbers behind it end in."""
THOUSANDS = 1e5
"""From here on a value is told in thousands or more."""
SHOWN_ENDS = 12
"""Ends of ranges out of reach that are named on the terminal."""
_LONGEST = 100


def line_rows(bill: Bill, what: str) -> list[ReportRow]:
    """Return the table of one bill: items, their sum, and what each accelerator takes of it.

    Parameters
    ----------
    bill : Bill
        The bill.
    what : str
        ``power_w`` or ``price_usd``.
    """
    unit, names = UNITS[what]
    share = shares(bill, what)
    rows = []
    for line in sorted(bill.lines, key=lambda one: -getattr(one, what).value):
        span: Span = getattr(line, what)
        each = span.value / line.count if line.count else 0.0
        cells = (f"{line.count:,}", format_si(each, unit), *_cells(span, unit), f"{share[line.item]:.1%}")
        per_accelerator = format_si(span.value / bill.accelerators, unit)
        rows.append(
            ReportRow(label=line.item, values=(*cells, per_accelerator), note=line.status(names) or "exact")
        )
    total = bill.total(what)
    one = _over(total, bill.accelerators)
    sums = ("", "", *_cells(total, unit), "100.0%", format_si(one.value, unit))
    rows.append(ReportRow(label="all", values=sums, section=True))
    rows.append(ReportRow(label="per accelerator", values=("", "", *_cells(one, unit), "", "")))
    return rows


def compared_rows(bills: Sequence[Bill]) -> list[ReportRow]:
    """Return a row for each bill: watts and dollars per accelerator with their ranges."""
    rows = []
    for bill in bills:
        power_w, price_usd = (_over(bill.total(what), bill.accelerators) for what in UNITS)
        cells = (*_cells(power_w, "W"), *_cells(price_usd, "USD"))
        rows.append(ReportRow(label=bill.name, values=cells, note=_greatest(bill)))
    return rows


def refused_lines(bills: Sequence[Bill]) -> list[str]:
    """Return a line for each end of a range at which a fabric cannot be built."""
    found = [f"{bill.name}: {one}"[:_LONGEST] for bill in bills for one in bill.refused]
    if not found:
        return []
    more = [f"  and {len(found) - SHOWN_ENDS} more; --json has all"] if len(found) > SHOWN_ENDS else []
    return ["Left out of the ranges:", *(f"  {one}" for one in found[:SHOWN_ENDS]), *more]


def records(bills: Sequence[Bill]) -> list[dict[str, Any]]:
    """Return all bills as plain data."""
    return [bill.record() for bill in bills]


def write(bills: Sequence[Bill], directory: Path) -> tuple[Path, ...]:
    """Write the bills as JSON and CSV, and their picture, to a directory; return the files.

    Raises
    ------
    HeliographError
        If it cannot be made or written.
    """
    make_directory(directory)
    data, table = directory / "bill.json", directory / "bill.csv"
    write_atomically(data, canonical_json(records(bills), indent=1) + "\n")
    write_atomically(table, csv_text([_csv_row(bill, line) for bill in bills for line in bill.lines]))
    return (data, table, *draw_bills(bills, directory / "bill"))


def draw_bills(bills: Sequence[Bill], path: Path) -> tuple[Path, Path]:
    """Draw watts and dollars per accelerator as stacked bars, the range of each sum as a bar of error.

    Parameters
    ----------
    bills : sequence of Bill
        One bar each, in this order from the top.
    path : pathlib.Path
        Where; written as PNG and SVG.
    """
    totals: dict[str, float] = {}
    for bill in bills:
        for line in bill.lines:
            largest = max(shares(bill, what)[line.item] for what in ("power_w", "price_usd"))
            if largest > 0.0:
                family = _family(line.item)
                totals[family] = max(totals.get(family, 0.0), largest)
    items = sorted(totals, key=lambda item: -totals[item])
    with styled():
        figure = new_figure(1.5 + 0.32 * len(bills))
        left, right = figure.subplots(1, 2, sharey=True)
        for axes, what, unit in ((left, "power_w", "W"), (right, "price_usd", "$")):
            _stack(axes, bills, items, what)
            axes.set_xlabel(f"{unit} per accelerator; line: range of the tables")
            axes.grid(visible=True, axis="x")
            axes.set_xlim(left=0.0)
        left.set_yticks(np.arange(len(bills)), [label(bill.name) for bill in bills])
        left.tick_params(axis="y", length=0)
        right.tick_params(axis="y", length=0)
        left.set_ylim(len(bills) - 0.5, -0.5)
        handles, names = left.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=min(4, len(names)))
        return save(figure, path)


def _stack(axes: Any, bills: Sequence[Bill], items: Sequence[str], what: str) -> None:  # noqa: ANN401 - Axes
    places = np.arange(len(bills))
    start = np.zeros(len(bills))
    for index, item in enumerate(items):
        values = np.array([_value(bill, item, what) for bill in bills])
        colour = PALETTE[index % len(PALETTE)]
        axes.barh(
            places, values, 0.62, left=start, color=colour, edgecolor="white", linewidth=0.4, label=item
        )
        start = start + values
    spans = [_over(bill.total(what), bill.accelerators) for bill in bills]
    less = [one.value - one.low for one in spans]
    more = [one.high - one.value for one in spans]
    axes.errorbar(start, places, xerr=(less, more), fmt="none", ecolor="black", elinewidth=0.9, capsize=2.5)


def _family(item: str) -> str:
    return _FAMILIES.get(item, item)


def _value(bill: Bill, item: str, what: str) -> float:
    found = [getattr(line, what).value for line in bill.lines if _family(line.item) == item]
    return sum(found) / bill.accelerators


def _csv_row(bill: Bill, line: Line) -> dict[str, object]:
    row: dict[str, object] = {"bill": bill.name, "item": line.item, "count": line.count}
    for what in ("power_w", "price_usd"):
        span: Span = getattr(line, what)
        row |= {what: span.value, f"{what}_low": span.low, f"{what}_high": span.high}
        row[f"{what}_share"] = shares(bill, what)[line.item]
        row[f"{what}_per_accelerator"] = span.value / bill.accelerators
    sources = dict.fromkeys(f"{one.path}: {one.status}, {one.source}" for one in line.behind)
    return row | {"sources": "; ".join(sources)}


def _greatest(bill: Bill) -> str:
    watts = max(bill.lines, key=lambda line: line.power_w.value)
    dollars = max(bill.lines, key=lambda line: line.price_usd.value)
    return f"most W {watts.item}, most $ {dollars.item}"


def _over(span: Span, count: int) -> Span:
    return Span(value=span.value / count, low=span.low / count, high=span.high / count)


def _cells(span: Span, unit: str) -> tuple[str, str]:
    """Return a value and its range; large sums of money in thousands or millions."""
    prefix, factor = prefix_of(span.high) if span.high >= THOUSANDS else ("", 1.0)
    ends = [format_si(one / factor).rstrip() for one in (span.value, span.low, span.high)]
    return f"{ends[0]} {prefix}{unit}", f"{ends[1]} to {ends[2]}"
