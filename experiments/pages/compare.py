"""Page of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from experiments.compare import Compared, passed_limits
from experiments.pages import asked, end
from experiments.study import Study
from heliograph.catalogue import show
from heliograph.figures import folded_parts, parts_of
from heliograph.parameters import Parameter
from heliograph.report import format_si
from heliograph.report_page.drawings import Bar, Line, bars, colours_of, lines
from heliograph.report_page.page import Cell, Drawing, Formula, Number, Page, Section, Sheet, sheet_of
from heliograph.report_page.provenance import numbers, step_formulas
from heliograph.simulation import wear_warnings
from heliograph.tables import best_of, binding, precision_notes

DECIDING = MappingProxyType(
    {
        "step_time_s": "step time",
        "energy_per_token_j": "energy",
        "usd_per_million_tokens": "cost, 10\u2076 tokens",
        "mean_power_w": "mean power",
        "capital_usd": "price",
        "snr_db": "signal over noise",
        "model_flop_utilisation": "FLOP utilisation",
        "memory_bytes": "memory",
    }
)
"""Columns of the first table, with their heads."""
TRAINED = "trained"
"""Key of what the numbers of the small GPT unfold to."""
EACH = MappingProxyType(
    {
        "accelerator_peak_w": "full load",
        "accelerator_area_m2": "die area",
        "accelerator_usd": "price",
        "peak_flop_per_s": "peak",
        "photonic_cores": "cores",
        "laser_line_w": "laser or line",
        "effective_bits": "effective bits",
        "sram_bytes": "buffer",
        "fabric_static_w": "fabric idle",
        "tokens_per_s": "tokens/s, system",
    }
)
"""Columns on each accelerator and the fabric, with their heads."""


def page(name: str, study: Study, found: Compared, document: Mapping[str, Any]) -> Page:
    """Return the page of a comparison."""
    comparison = found.comparison
    records = comparison.records()
    parameters: dict[str, Sequence[Parameter]] = {}
    formulas: dict[str, Formula] = {}
    for one, record in zip(comparison.results, records, strict=True):
        parameters[one.system.name] = show(one.system).parameters
        formulas |= step_formulas(record, parameters[one.system.name])
    if comparison.accuracies:
        formulas[TRAINED] = Formula(
            label="loss of a small GPT",
            text="mean over seeds of its last validation loss; differences are to exact arithmetic",
            status="executed",
            source="heliograph/accuracy/small_gpt.py; every product goes through the system's arithmetic",
        )
    size = records[0]["accelerators"]
    answers = [
        best_of(records),
        *(f"{name} did not run: {reason}." for name, reason in comparison.refused.items()),
        *precision_notes(records),
        *(one.replace("\n", " ") for one in passed_limits(comparison)),
        *wear_warnings(records),
        "Prices are assumed. Every underlined number unfolds to its formula, inputs, status and source.",
    ]
    sections = [
        Section(title="The numbers that decide", blocks=[deciding(records)]),
        Section(title="Where time and energy go", blocks=[pictures(records), *part_sheets(records)]),
        Section(title="Each against each", blocks=[fronts(records)]),
        Section(title="The accelerators", blocks=[columns(records, EACH, "What each is made of")]),
        *accuracy(comparison.curves(), records),
        Section(
            title="Every number that it is made of",
            blocks=[
                "Path, value in SI units, published range, status and source; paths are what --set takes.",
                sheet_of(parameters, "Parameters of all systems"),
            ],
        ),
        end(document),
    ]
    return Page(
        title=f"{comparison.config.name} on {size:,} accelerators: {len(records)} systems compared",
        asked=[
            *asked(name, study, document),
            *([] if document.get("plan") else [("plan", _own_plans(records))]),
        ],
        answers=answers,
        sections=sections,
        formulas=formulas,
    )


def _own_plans(records: Sequence[Mapping[str, Any]]) -> str:
    """Return in words that each system ran its own plan, with the plan where all ran the same."""
    plans = dict.fromkeys(str(record["plan"]) for record in records)
    return "each system's own best" + (f": {next(iter(plans))}" if len(plans) == 1 else "")


def columns(records: Sequence[Mapping[str, Any]], shown: Mapping[str, str], title: str) -> Sheet:
    """Return a table of some columns with their heads, a row for each system."""
    rows: list[Sequence[Cell]] = [
        [
            str(record["system"]),
            *(numbers(column, record[column], f"{record['system']}/{column}") for column in shown),
        ]
        for record in records
    ]
    return Sheet(title=title, heads=("system", *shown.values()), rows=rows)


def deciding(records: Sequence[Mapping[str, Any]]) -> Sheet:
    """Return the table of the numbers that decide, with what most of the time goes to and the plan."""
    plain = columns(records, DECIDING, "A row for each system; click a head to sort")
    plans = len({record["plan"] for record in records}) > 1
    rows = [
        [*row, binding(record), *([str(record["plan"])] if plans else [])]
        for row, record in zip(plain.rows, records, strict=True)
    ]
    heads = (*plain.heads, "most time", *(["plan"] if plans else []))
    return Sheet(title=plain.title, heads=heads, rows=rows)


_QUANTITIES = (
    ("Step time by what it goes to", "time_by_category_s", "s"),
    ("Energy per token by what takes it", "energy_by_component_j_per_token", "J"),
)


def pictures(records: Sequence[Mapping[str, Any]]) -> list[Drawing]:
    """Return the bars of time and energy."""
    found = []
    for title, key, unit in _QUANTITIES:
        parts = parts_of(records, key)
        kept = folded_parts(parts) if unit == "J" else parts
        colours = colours_of(list(kept))
        stacked = [
            Bar(label=str(record["system"]), parts={part: float(each[at]) for part, each in kept.items()})
            for at, record in enumerate(records)
        ]
        svg = bars(title, stacked, colours, unit=unit)
        found.append(Drawing(title=title, svg=svg, legend=list(colours.items())))
    return found


def part_sheets(records: Sequence[Mapping[str, Any]]) -> list[Sheet]:
    """Return the tables behind the bars, a row for each part and a column for each system."""
    sheets = []
    for (title, key, unit), column in zip(_QUANTITIES, ("step_time_s", "energy_per_token_j"), strict=True):
        parts = dict.fromkeys(part for record in records for part in record[key])
        rows: list[Sequence[Cell]] = [
            [
                part,
                *(
                    Number(
                        text=format_si(record[key].get(part, 0.0), unit),
                        value=record[key].get(part, 0.0),
                        key=f"{record['system']}/{column}/{part}",
                    )
                    for record in records
                ),
            ]
            for part in parts
        ]
        heads = ("part", *(str(record["system"]) for record in records))
        sheets.append(Sheet(title=title, heads=heads, rows=rows, folded=True))
    return sheets


def fronts(records: Sequence[Mapping[str, Any]]) -> list[Drawing]:
    """Return energy and cost over time, a dot for each system."""
    found = []
    for title, column, y in (
        ("Energy over time: lower left is better", "energy_per_token_j", ("energy per token", "J")),
        (
            "Cost over time: lower left is better",
            "usd_per_million_tokens",
            ("cost of 10\u2076 tokens", "USD"),
        ),
    ):
        drawn = [
            Line(label=str(one["system"]), points=[(one["step_time_s"], one[column])], joined=False)
            for one in records
        ]
        svg = lines(title, drawn, x=("step time", "s"), y=y)
        legend = [(line.label, f"var(--c{at % 12})") for at, line in enumerate(drawn)]
        found.append(Drawing(title=title, svg=svg, legend=legend))
    return found


def accuracy(curves: Sequence[Mapping[str, Any]], records: Sequence[Mapping[str, Any]]) -> list[Section]:
    """Return the loss curves where a small GPT was trained."""
    if not curves:
        return []
    drawn = []
    for one in curves:
        seeds = one["losses"]
        mean = [sum(losses) / len(losses) for losses in zip(*seeds, strict=True)]
        drawn.append(Line(label=str(one["label"]), points=list(zip(one["steps"], mean, strict=True))))
    svg = lines("Validation loss", drawn, x=("training step", ""), y=("validation loss, nats per byte", ""))
    legend = [(line.label, f"var(--c{at % 12})") for at, line in enumerate(drawn)]
    names = ("validation_loss", "loss_difference", "loss_difference_standard_error", "steps_to_loss_relative")
    rows: list[Sequence[Cell]] = [
        [str(one["system"]), *(numbers(key, one.get(key), TRAINED) for key in names)] for one in records
    ]
    heads = ("system", "loss, nats a byte", "minus exact", "standard error", "steps to loss, relative")
    return [
        Section(
            title="Accuracy of a small GPT",
            blocks=[
                Drawing(title="Validation loss, mean of the seeds", svg=svg, legend=legend),
                Sheet(title="Loss after training", heads=heads, rows=rows),
            ],
        )
    ]
