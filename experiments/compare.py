"""The same model on several systems, each at its best, and the page of a comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import fill
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from experiments.hardware import Hardware, Workload
from experiments.study import Block, Progress, Result, Row, Study, option
from heliograph.accuracy.law import told_rises
from heliograph.catalogue import show
from heliograph.comparison.comparison import (
    Comparison,
    Request,
    build_systems,
    check_free,
    compare_request,
    reserve,
    write,
)
from heliograph.comparison.plan_estimates import Objective
from heliograph.comparison.plan_search import told_value, value_of
from heliograph.comparison.ranges import SHOWN, Ranges, Ratios, Verdict
from heliograph.figures import energy_families, parts_of
from heliograph.parameters import Parameter
from heliograph.records import new_run_directory
from heliograph.report import ReportRow, ReportTable, format_quantity, format_si
from heliograph.report_page.drawings import Bar, Drawing, Line, Span, bars, colours_of, lines, spans
from heliograph.report_page.page import (
    Cell,
    Formula,
    Number,
    Page,
    Section,
    Sheet,
    numbers,
    sheet_of,
    step_formulas,
)
from heliograph.simulation import wear_warnings
from heliograph.systems.sanity_checks import limits_told, worst_limits
from heliograph.tables import best_of, binding, comparison_rows, deciding_table, precision_notes
from heliograph.workload import model_named
from simulator.errors import ParameterError
from workloads.plan.plan import plan_text, plan_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Compared(Result):
    """Systems beside each other."""

    comparison: Comparison
    """Steps, and what training came to."""
    detail: bool = False
    """Whether the report tells where time and energy go."""

    def report(self) -> list[Block]:
        """Return the table of all systems."""
        comparison, records = self.comparison, self.comparison.records()
        title = f"{comparison.config.name} on {comparison.results[0].system.accelerators:,} accelerators"
        blocks: list[Block] = [deciding_table(title, records, comparison.refused)]
        blocks += [one for sentence in refusals(comparison.refused) for one in (sentence, "")]
        blocks += [fill(best_of(records), LINE), *precision_notes(records), *passed_limits(comparison)]
        noise = {one["system"]: one["snr_db"] for one in records}
        blocks += [
            fill(one, LINE) for one in told_rises(comparison.config.name, comparison.config.parameters, noise)
        ]
        if self.detail or comparison.accuracies:
            blocks.append("")
            blocks += [ReportTable("In detail", [one["system"] for one in records], comparison_rows(records))]
        blocks += [f"Warning: {line}" for line in wear_warnings(records)]
        return [
            *blocks,
            *plans_told(comparison),
            *(firmness_told(comparison.ranges) if comparison.ranges else ()),
            *(["Firmness: the systems that run are of one kind."] if self.unopposed else ()),
            *(
                [f"Changed: {'; '.join(comparison.request.assignments)}"]
                if comparison.request.assignments
                else ()
            ),
            "Prices are assumed: heliograph show SYSTEM lists every source.",
            *(() if self.detail else ("Where time and energy go: --detail, or table.csv.",)),
        ]

    @property
    def unopposed(self) -> bool:
        """Whether ranges were asked for, and what ran has nothing to stand against."""
        return self.comparison.request.ranges and self.comparison.ranges is None

    def record(self) -> dict[str, Any]:
        """Return the comparison as plain data, SI throughout."""
        return self.comparison.summary()

    def rows(self) -> list[Row]:
        """Return a row for each system."""
        return self.comparison.rows()

    def figure(self) -> Figure:
        """Return where time and energy go, a bar for each system."""
        return self.comparison.plot()

    def write(self, directory: Path, name: str, document: Mapping[str, Any]) -> list[Path]:
        """Write the files of the run; one of another configuration is never overwritten."""
        write(self.comparison, directory)
        return sorted(directory.iterdir())


def plans_told(comparison: Comparison) -> list[Block]:
    """Return the plan of all systems and what each would run best, or the best one that each ran."""
    if not comparison.fixed:
        ranked = sum(one.ranked for one in comparison.best.values())
        objective = comparison.request.objective
        title = (
            f"Plans: the best of {ranked:,}, each system's own; batch and sequences are the same"
            if objective is Objective.TIME
            else f"Plans: those of least {objective} of {ranked:,}, each system's own at the same batch"
        )
        rows = [ReportRow(name, (plan_words(one.winner.plan),)) for name, one in comparison.best.items()]
        return ["", ReportTable(title, ["plan"], rows, dense=True), *limits_of_plans(comparison)]
    told: list[Block] = [f"Plan of all: {plan_text(comparison.plan)}"]
    if not comparison.best:
        return told
    objective = comparison.request.objective
    ran = {one.system.name: value_of(one, objective) for one in comparison.results}
    rows = []
    for name, one in comparison.best.items():
        share = f", {one.value / ran[name] - 1.0:+.0%}" if name in ran else ""
        shown = f"{told_value(one.value, objective)}{share}: {plan_words(one.winner.plan)}"
        rows.append(ReportRow(name, (shown,)))
    best = "best plan" if objective is Objective.TIME else f"plan of least {objective}"
    title = f"At its own {best} each would take"
    return [*told, "", ReportTable(title, ["step"], rows, dense=True), *limits_of_plans(comparison)]


def limits_of_plans(comparison: Comparison) -> list[str]:
    """Return in short lines the power limits that were found best, if any were sought."""
    systems: dict[float, list[str]] = {}
    for name, one in comparison.best.items():
        if one.winner.power_limit_w is not None:
            systems.setdefault(one.winner.power_limit_w, []).append(name)
    told = "; ".join(f"{limit_w:g} W for {', '.join(names)}" for limit_w, names in systems.items())
    objective = comparison.request.objective
    return (
        [fill(f"Power limits of least {objective}, of the full one to half of it: {told}.", LINE)]
        if told
        else []
    )


def firmness_told(ranges: Ranges) -> list[Block]:
    """Return how firm the verdicts are and what could turn them, in short lines."""
    return [ranges_table(ranges), *(fill(line, LINE) for line in turning_told(ranges)), ""]


def ranges_table(ranges: Ranges) -> ReportTable:
    """Return how firm each verdict is over the ranges of the numbers."""

    def told(ratio: float) -> str:
        return "none" if math.isnan(ratio) else f"{ratio:.3g}"

    rows = []
    for one in ranges.verdicts:
        span, bounds = f"{one.least:.3g} to {one.most:.3g}", f"{told(one.favoured)} to {told(one.opposed)}"
        rows.append(ReportRow(f"{one.contest}, {one.objective}", (f"{one.present:.3g}", span, bounds)))
    title = f"Firmness: {len(ranges.swings)} numbers with a range, each at either end; plans as above"
    return ReportTable(title, ["ratio", "one number", "all of them"], rows)


def turning_told(ranges: Ranges) -> list[str]:
    """Return a sentence for each verdict on what turns it, and one on what does not run at an end."""
    names = ranges.names()
    lines = []
    for one in (each for each in ranges.verdicts if not each.even):
        name = f"{one.contest}, {one.objective}"
        turning = [names[number] for number in one.alone or one.together]
        if one.alone:
            lines.append(f"{name}: turned by one number of {', '.join(turning)}.")
        elif turning:
            strongest = f"the {len(turning)} strongest together do: {', '.join(turning)}"
            lines.append(f"{name}: no number turns it alone; {strongest}.")
        else:
            lines.append(f"{name}: nothing turns it.")
    failing = list(dict.fromkeys(names[number] for one in ranges.verdicts for number in one.fails))
    if failing:
        lines.append(f"At an end of {', '.join(failing)} one side does not run.")
    return lines


def passed_limits(comparison: Comparison) -> list[str]:
    """Return a sentence for each limit of light and size that a photonic system passes, in short lines."""
    units = [one.system.photonic for one in comparison.results if one.system.photonic is not None]
    return [fill(f"Beyond a limit: {passed}.", LINE) for passed in worst_limits(units)]


def refusals(reasons: Mapping[str, str]) -> list[str]:
    """Return sentences on systems that did not run, those with the same reason together, in short lines."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    return [fill(f"{', '.join(alike)}: {reason}.", LINE) for reason, alike in names.items()]


LINE = 80
"""Letters of a line beneath the table."""


@dataclass(frozen=True, kw_only=True)
class Compare(Study):
    """The same model on several systems, each at its own best plan or all at one."""

    workload: Workload = field(default_factory=Workload)
    accelerators: int | None = option(None, "per system; default: what the plan uses, or 1024", metavar="N")
    systems: tuple[str, ...] | None = option(
        None,
        "systems by name, or TOML files, separated by commas; default: H100 in bf16 and fp8, B200 in fp8, "
        "and light in place of each",
        metavar="NAMES",
        commas=True,
    )
    without: tuple[str, ...] = option(
        (), "systems left out, by name or a word of it (b200, gpu_ocs)", metavar="NAMES", commas=True
    )
    detail: bool = option(False, "tell where time and energy of each system go")
    accuracy: bool = option(False, "train a small GPT through each system's arithmetic (minutes)")
    ranges: bool = option(False, "move every number to the ends of its range: could one turn the verdict?")
    objective: Objective = option(Objective.TIME, "what is least with each system's best plan")
    power_limits: bool = option(
        False, "also try lower power limits of all accelerators, for --objective energy or cost"
    )
    quick: bool = option(
        False, "try few plans of each system; with --accuracy, train for fewer steps and seeds"
    )
    thorough: bool = option(False, "try more plans of each system (minutes)")
    seed: int | None = option(None, "first seed of its training; default 0")

    def __post_init__(self) -> None:
        if self.seed is not None and not self.accuracy:
            msg = "--seed is of the training that --accuracy runs; add that, or leave --seed out"
            raise ParameterError(msg)

    hardware: Hardware = field(default_factory=Hardware)

    def request(self) -> Request:
        """Return what is asked."""
        return Request(
            model=self.workload.model,
            accelerators=self.accelerators,
            systems=self.systems,
            without=self.without,
            plan=self.workload.plan,
            **self.hardware.given(),
            assignments=self.hardware.assignments,
            objective=self.objective,
            power_limits=self.power_limits,
            quick=self.quick,
            thorough=self.thorough,
            seed=self.seed or 0,
            accuracy=self.accuracy,
            ranges=self.ranges,
        )

    def default_out(self) -> Path:
        """Return a new directory below ``results``."""
        name = model_named(self.workload.model).name
        accelerators = build_systems(self.request()).systems[0].accelerators
        return new_run_directory(Path("results"), f"{name}-{accelerators}")

    def run(self, progress: Progress) -> Compared:
        """Return the comparison; its directory is reserved when the steps have run, before the training."""
        with limits_told():
            comparison = compare_request(
                self.request(),
                cache=progress.training,
                progress=progress,
                stepped=lambda one: (reserve if one.results else check_free)(one, progress.directory),
            )
        return Compared(comparison=comparison, detail=self.detail)


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


def page(found: Compared) -> Page:
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
        *(one.replace("\n", " ") for one in limits_of_plans(comparison)),
        *wear_warnings(records),
        "Prices are assumed. Every underlined number unfolds to its formula, inputs, status and source.",
    ]
    sections = [
        Section(title="The numbers that decide", blocks=[deciding(records)]),
        Section(title="Where time and energy go", blocks=[pictures(records), *part_sheets(records)]),
        Section(title="Each against each", blocks=[fronts(records)]),
        *firmness(comparison.ranges),
        Section(title="The accelerators", blocks=[columns(records, EACH, "What each is made of")]),
        *accuracy(comparison.curves(), records),
        Section(
            title="Every number that it is made of",
            blocks=[
                "Path, value in SI units, published range, status and source; paths are what --set takes.",
                sheet_of(parameters, "Parameters of all systems"),
            ],
        ),
    ]
    return Page(
        title=f"{comparison.config.name} on {size:,} accelerators: {len(records)} systems compared",
        asked=[] if comparison.fixed else [("plan", _own_plans(records))],
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
        kept = energy_families(parts) if unit == "J" else parts
        colours = colours_of(list(kept))
        stacked = [
            Bar(label=str(record["system"]), parts={part: float(each[at]) for part, each in kept.items()})
            for at, record in enumerate(records)
        ]
        found.append(bars(title, stacked, colours, unit=unit))
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
        found.append(lines(title, drawn, x=("step time", "s"), y=y))
    return found


def firmness(ranges: Ranges | None) -> list[Section]:
    """Return how firm the verdicts are, where that was asked for: a table, sentences, and what moves them."""
    if ranges is None:
        return []
    names, table = ranges.names(), ranges_table(ranges)
    drawn = []
    for verdict in ranges.verdicts:
        shown = []
        for one in ranges.strongest(verdict, SHOWN):
            low_told, high_told = (format_quantity(end, one.number.unit) for end in one.number.ends)
            span = Span(
                label=names[one.number],
                low=_change(one.at_low, verdict),
                high=_change(one.at_high, verdict),
                low_told=low_told,
                high_told=high_told,
            )
            shown.append(span)
        if shown:
            title = f"{verdict.contest}, {verdict.objective}: each number at the ends of its range"
            drawn.append(spans(title, shown, unit="%"))
    rows = [(row.label, *row.values) for row in table.rows]
    sheet = Sheet(title=table.title, heads=("contest", *table.heads), rows=rows)
    return [Section(title="How firm the verdicts are", blocks=[sheet, *turning_told(ranges), *drawn])]


def _change(ratios: Ratios | None, verdict: Verdict) -> float | None:
    """Return the change of a ratio at an end of a number's range, per cent; None where it cannot run."""
    ratio = math.inf if ratios is None else ratios[verdict.contest, verdict.objective]
    return 100.0 * (ratio / verdict.present - 1.0) if 0.0 < ratio < math.inf else None


def accuracy(curves: Sequence[Mapping[str, Any]], records: Sequence[Mapping[str, Any]]) -> list[Section]:
    """Return the loss curves where a small GPT was trained."""
    if not curves:
        return []
    drawn = []
    for one in curves:
        seeds = one["losses"]
        mean = [sum(losses) / len(losses) for losses in zip(*seeds, strict=True)]
        drawn.append(Line(label=str(one["label"]), points=list(zip(one["steps"], mean, strict=True))))
    curve = lines("Validation loss", drawn, x=("training step", ""), y=("validation loss, nats per byte", ""))
    names = ("validation_loss", "loss_difference", "loss_difference_standard_error", "steps_to_loss_relative")
    rows: list[Sequence[Cell]] = [
        [str(one["system"]), *(numbers(key, one.get(key), TRAINED) for key in names)] for one in records
    ]
    heads = ("system", "loss, nats a byte", "minus exact", "standard error", "steps to loss, relative")
    return [
        Section(
            title="Accuracy of a small GPT",
            blocks=[
                replace(curve, title="Validation loss, mean of the seeds"),
                Sheet(title="Loss after training", heads=heads, rows=rows),
            ],
        )
    ]
