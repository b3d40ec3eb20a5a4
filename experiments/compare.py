"""Command ``heliograph compare``: the same model on several systems, and the HTML page of a comparison."""

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
    """One step of the same model on several systems."""

    comparison: Comparison
    """Steps of all systems, and losses of a small GPT if it was trained through their arithmetic."""
    detail: bool = False
    """Whether the report has a table of where time and energy go."""

    def report(self) -> list[Block]:
        """Return the table of all systems, sentences on precision and limits, plans, and the firmness."""
        comparison, records = self.comparison, self.comparison.records()
        config, assignments = comparison.config, comparison.request.assignments
        title = f"{config.name} on {comparison.results[0].system.accelerators:,} accelerators"
        blocks: list[Block] = [deciding_table(title, records, comparison.refused)]
        for sentence in refusals(comparison.refused):
            blocks += [sentence, ""]
        blocks += [fill(best_of(records), LINE), *precision_notes(records), *exceeded_limits(comparison)]
        snr_db = {record["system"]: record["snr_db"] for record in records}
        blocks += [fill(rise, LINE) for rise in told_rises(config.name, config.parameters, snr_db)]
        if self.detail or comparison.accuracies:
            names = [record["system"] for record in records]
            blocks += ["", ReportTable("In detail", names, comparison_rows(records))]
        blocks += [f"Warning: {line}" for line in wear_warnings(records)]
        blocks += plan_blocks(comparison)
        if comparison.ranges:
            blocks += firmness_blocks(comparison.ranges)
        if self.unopposed:
            blocks.append("Firmness: the systems that run are of one kind.")
        if assignments:
            blocks.append(f"Changed: {'; '.join(assignments)}")
        blocks.append("Prices are assumed: heliograph show SYSTEM lists every source.")
        if not self.detail:
            blocks.append("Where time and energy go: --detail, or table.csv.")
        return blocks

    @property
    def unopposed(self) -> bool:
        """Whether ranges were requested, but the systems that ran make no contest (`comparison.ranges`)."""
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


def plan_blocks(comparison: Comparison) -> list[Block]:
    """Return a table of each system's best plan; if all ran one given plan, that plan comes first."""
    if not comparison.fixed:
        ranked = sum(one.ranked for one in comparison.best.values())
        objective = comparison.request.objective
        title = (
            f"Plans: the best of {ranked:,}, each system's own; batch and sequences are the same"
            if objective is Objective.TIME
            else f"Plans: those of least {objective} of {ranked:,}, each system's own at the same batch"
        )
        rows = [ReportRow(name, (plan_words(best.winner.plan),)) for name, best in comparison.best.items()]
        return ["", ReportTable(title, ["plan"], rows, dense=True), *power_limits(comparison)]
    given = f"Plan of all: {plan_text(comparison.plan)}"
    if not comparison.best:
        return [given]
    objective = comparison.request.objective
    at_given = {result.system.name: value_of(result, objective) for result in comparison.results}
    rows = []
    for name, best in comparison.best.items():
        change = f", {best.value / at_given[name] - 1.0:+.0%}" if name in at_given else ""
        text = f"{told_value(best.value, objective)}{change}: {plan_words(best.winner.plan)}"
        rows.append(ReportRow(name, (text,)))
    kind = "best plan" if objective is Objective.TIME else f"plan of least {objective}"
    title = f"At its own {kind} each would take"
    return [given, "", ReportTable(title, ["step"], rows, dense=True), *power_limits(comparison)]


def power_limits(comparison: Comparison) -> list[str]:
    """Return the power limits of the best plans as a sentence of short lines; empty if none were searched."""
    systems: dict[float, list[str]] = {}
    for name, best in comparison.best.items():
        if best.winner.power_limit_w is not None:
            systems.setdefault(best.winner.power_limit_w, []).append(name)
    if not systems:
        return []
    limits = "; ".join(f"{limit_w:g} W for {', '.join(names)}" for limit_w, names in systems.items())
    objective = comparison.request.objective
    return [fill(f"Power limits of least {objective}, of the full one to half of it: {limits}.", LINE)]


def firmness_blocks(ranges: Ranges) -> list[Block]:
    """Return the table of firmness, and sentences in short lines on the numbers that turn a verdict."""
    return [ranges_table(ranges), *(fill(line, LINE) for line in turning_sentences(ranges)), ""]


def ranges_table(ranges: Ranges) -> ReportTable:
    """Return the ratio of each verdict: as it is, with one number at its ends, and with all at once."""

    def shown(ratio: float) -> str:
        return "none" if math.isnan(ratio) else f"{ratio:.3g}"

    rows = []
    for verdict in ranges.verdicts:
        cells = (
            f"{verdict.present:.3g}",
            f"{verdict.least:.3g} to {verdict.most:.3g}",
            f"{shown(verdict.favoured)} to {shown(verdict.opposed)}",
        )
        rows.append(ReportRow(f"{verdict.contest}, {verdict.objective}", cells))
    title = f"Firmness: {len(ranges.swings)} numbers with a range, each at either end; plans as above"
    return ReportTable(title, ["ratio", "one number", "all of them"], rows)


def turning_sentences(ranges: Ranges) -> list[str]:
    """Return a sentence for each verdict on the numbers that turn it, and one on ends that cannot run."""
    names = ranges.names()
    lines = []
    for verdict in (each for each in ranges.verdicts if not each.even):
        name = f"{verdict.contest}, {verdict.objective}"
        turning = [names[number] for number in verdict.alone or verdict.together]
        if verdict.alone:
            lines.append(f"{name}: turned by one number of {', '.join(turning)}.")
        elif turning:
            strongest = f"the {len(turning)} strongest together do: {', '.join(turning)}"
            lines.append(f"{name}: no number turns it alone; {strongest}.")
        else:
            lines.append(f"{name}: nothing turns it.")
    failing = dict.fromkeys(names[number] for verdict in ranges.verdicts for number in verdict.fails)
    if failing:
        lines.append(f"At an end of {', '.join(failing)} one side does not run.")
    return lines


def exceeded_limits(comparison: Comparison) -> list[str]:
    """Return a sentence for each limit of light and size that a photonic system exceeds, in short lines."""
    systems = [result.system for result in comparison.results]
    units = [system.photonic for system in systems if system.photonic is not None]
    return [fill(f"Beyond a limit: {limit}.", LINE) for limit in worst_limits(units)]


def refusals(reasons: Mapping[str, str]) -> list[str]:
    """Return a sentence in short lines for each reason why systems did not run, from the reason by system."""
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
        """Return the options as `compare_request` takes them."""
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
"""Heads of the columns of the page's first table, by column."""
TRAINED = "trained"
"""Key of the formula to which the numbers of the small GPT unfold."""
PER_ACCELERATOR = MappingProxyType(
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
"""Heads of the columns on each accelerator and the fabric, by column."""


def page(found: Compared) -> Page:
    """Return the page of a comparison."""
    comparison = found.comparison
    records = comparison.records()
    parameters: dict[str, Sequence[Parameter]] = {}
    formulas: dict[str, Formula] = {}
    for result, record in zip(comparison.results, records, strict=True):
        parameters[result.system.name] = show(result.system).parameters
        formulas |= step_formulas(record, parameters[result.system.name])
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
        *(lines.replace("\n", " ") for lines in exceeded_limits(comparison)),
        *(lines.replace("\n", " ") for lines in power_limits(comparison)),
        *wear_warnings(records),
        "Prices are assumed. Every underlined number unfolds to its formula, inputs, status and source.",
    ]
    sections = [
        Section(title="The numbers that decide", blocks=[deciding_sheet(records)]),
        Section(title="Where time and energy go", blocks=[stacked_bars(records), *part_sheets(records)]),
        Section(title="Each against each", blocks=[scatter_plots(records)]),
        *firmness_sections(comparison.ranges),
        Section(
            title="The accelerators",
            blocks=[system_sheet(records, PER_ACCELERATOR, "What each is made of")],
        ),
        *accuracy_sections(comparison.curves(), records),
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
    """Return in words that each system ran its own best plan; the plan follows if all have the same one."""
    plans = dict.fromkeys(str(record["plan"]) for record in records)
    return "each system's own best" + (f": {next(iter(plans))}" if len(plans) == 1 else "")


def system_sheet(records: Sequence[Mapping[str, Any]], shown: Mapping[str, str], title: str) -> Sheet:
    """Return a table with a row for each system, from the heads of its columns by column."""
    rows: list[Sequence[Cell]] = [
        [
            str(record["system"]),
            *(numbers(column, record[column], f"{record['system']}/{column}") for column in shown),
        ]
        for record in records
    ]
    return Sheet(title=title, heads=("system", *shown.values()), rows=rows)


def deciding_sheet(records: Sequence[Mapping[str, Any]]) -> Sheet:
    """Return the table of the numbers that decide, with the largest part of the time."""
    plain = system_sheet(records, DECIDING, "A row for each system; click a head to sort")
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


def stacked_bars(records: Sequence[Mapping[str, Any]]) -> list[Drawing]:
    """Return the drawings of time and energy by part, a bar for each system."""
    drawings = []
    for title, key, unit in _QUANTITIES:
        parts = parts_of(records, key)
        kept = energy_families(parts) if unit == "J" else parts
        colours = colours_of(list(kept))
        stacked = [
            Bar(label=str(record["system"]), parts={part: float(each[at]) for part, each in kept.items()})
            for at, record in enumerate(records)
        ]
        drawings.append(bars(title, stacked, colours, unit=unit))
    return drawings


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


def scatter_plots(records: Sequence[Mapping[str, Any]]) -> list[Drawing]:
    """Return the drawings of energy and cost over time, a dot for each system."""
    drawings = []
    for title, column, y in (
        ("Energy over time: lower left is better", "energy_per_token_j", ("energy per token", "J")),
        (
            "Cost over time: lower left is better",
            "usd_per_million_tokens",
            ("cost of 10\u2076 tokens", "USD"),
        ),
    ):
        dots = [
            Line(label=str(record["system"]), points=[(record["step_time_s"], record[column])], joined=False)
            for record in records
        ]
        drawings.append(lines(title, dots, x=("step time", "s"), y=y))
    return drawings


def firmness_sections(ranges: Ranges | None) -> list[Section]:
    """Return the section on firmness, a tornado chart for each verdict; none if ranges were not requested."""
    if ranges is None:
        return []
    names, table = ranges.names(), ranges_table(ranges)
    charts = []
    for verdict in ranges.verdicts:
        tornado = []
        for swing in ranges.strongest(verdict, SHOWN):
            low_told, high_told = (format_quantity(end, swing.number.unit) for end in swing.number.ends)
            span = Span(
                label=names[swing.number],
                low=_change(swing.at_low, verdict),
                high=_change(swing.at_high, verdict),
                low_told=low_told,
                high_told=high_told,
            )
            tornado.append(span)
        if tornado:
            title = f"{verdict.contest}, {verdict.objective}: each number at the ends of its range"
            charts.append(spans(title, tornado, unit="%"))
    rows = [(row.label, *row.values) for row in table.rows]
    sheet = Sheet(title=table.title, heads=("contest", *table.heads), rows=rows)
    return [Section(title="How firm the verdicts are", blocks=[sheet, *turning_sentences(ranges), *charts])]


def _change(ratios: Ratios | None, verdict: Verdict) -> float | None:
    """Return the change of a ratio at an end of a number's range, per cent; None where it cannot run."""
    ratio = math.inf if ratios is None else ratios[verdict.contest, verdict.objective]
    return 100.0 * (ratio / verdict.present - 1.0) if 0.0 < ratio < math.inf else None


def accuracy_sections(
    curves: Sequence[Mapping[str, Any]], records: Sequence[Mapping[str, Any]]
) -> list[Section]:
    """Return the section on the losses of the small GPT; none if it was not trained."""
    if not curves:
        return []
    means = []
    for trained in curves:
        mean = [sum(losses) / len(losses) for losses in zip(*trained["losses"], strict=True)]
        means.append(Line(label=str(trained["label"]), points=list(zip(trained["steps"], mean, strict=True))))
    curve = lines("Validation loss", means, x=("training step", ""), y=("validation loss, nats per byte", ""))
    names = ("validation_loss", "loss_difference", "loss_difference_standard_error", "steps_to_loss_relative")
    rows: list[Sequence[Cell]] = [
        [str(record["system"]), *(numbers(key, record.get(key), TRAINED) for key in names)]
        for record in records
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
