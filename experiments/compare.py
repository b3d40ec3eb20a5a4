"""One step of a system; and the main question, the same model on several systems, each at its best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from experiments.hardware import SYSTEM, Hardware, Workload, one_step
from experiments.options import option
from experiments.study import Block, Progress, Result, Row, Study
from heliograph.accuracy.law import told_rises
from heliograph.comparison.comparison import (
    Comparison,
    Request,
    build_systems,
    check_free,
    compare_request,
    reserve,
    write,
)
from heliograph.parameters import status_counts
from heliograph.records import canonical_json, new_run_directory, write_atomically
from heliograph.report import ReportRow, ReportTable, format_si
from heliograph.simulation import StepResult, wear_warnings
from heliograph.systems.registry import model_named
from heliograph.systems.sanity_checks import limits_told, worst_limits
from heliograph.tables import best_of, comparison_rows, deciding_table, precision_notes
from simulator.errors import ParameterError
from workloads.plan.plan import plan_text, plan_words
from workloads.traces.chakra import export_step

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class SteppedOnce(Result):
    """One step, and what was written of it."""

    result: StepResult
    """The step."""
    chakra: str
    """Sentence on the Chakra traces that were written; empty if none."""

    def report(self) -> list[Block]:
        """Return the table of the step."""
        record, plan = self.record(), plan_text(self.result.plan)
        title = f"{self.result.model} on {self.result.system.accelerators} accelerators, {plan}"
        blocks: list[Block] = [
            ReportTable(title, [record["system"]], comparison_rows([record], rest_note="see --json"))
        ]
        blocks += [f"\nWarning: {line}" for line in wear_warnings([record])]
        return blocks + ([f"\n{self.chakra}"] if self.chakra else [])

    def record(self) -> dict[str, Any]:
        """Return the step as plain data, SI throughout."""
        more = {"model": self.result.model, "plan": plan_text(self.result.plan)}
        return self.result.record() | {"inputs_by_status": status_counts(self.result.system)} | more

    def rows(self) -> list[Row]:
        """Return the row of the system."""
        return self.result.rows()

    def tables(self) -> dict[str, list[Row]]:
        """Return the row of the system, and a row for each part of each quantity."""
        return {"": self.rows(), "parts": self.result.parts()}

    def figure(self) -> Figure:
        """Return where time and energy go."""
        return self.result.plot()


@dataclass(frozen=True, kw_only=True)
class Step(Study):
    """One training step of a model on a system."""

    system: str = option("gpu_packet", SYSTEM)
    workload: Workload = field(default_factory=Workload)
    accelerators: int | None = option(None, "accelerators; default: what the plan uses", metavar="N")
    trace: Path | None = option(None, "write the time line for Perfetto", metavar="FILE", written=True)
    chakra: Path | None = option(None, "write the step as PREFIX.<rank>.et", metavar="PREFIX")
    hardware: Hardware = field(default_factory=Hardware)

    def run(self, progress: Progress) -> SteppedOnce:
        """Return the step."""
        result = one_step(self.system, self.workload, self.hardware, accelerators=self.accelerators)
        if self.trace:
            events = {"traceEvents": result.trace.perfetto_events()}
            write_atomically(self.trace, canonical_json(events))
        return SteppedOnce(result=result, chakra=write_chakra(result, self.chakra) if self.chakra else "")


def write_chakra(result: StepResult, prefix: Path) -> str:
    """Write a step as Chakra traces and return the sentence that says where."""
    written = export_step(
        result.graph, result.system.node(), prefix, name=f"{result.model} on {result.system.name}"
    )
    return f"Wrote {written[0]} to {written[-2].name}, and {written[-1].name}."


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
            *(
                [f"Changed: {'; '.join(comparison.request.assignments)}"]
                if comparison.request.assignments
                else ()
            ),
            "Prices are assumed: heliograph show SYSTEM lists every source.",
            *(() if self.detail else ("Where time and energy go: --detail, or table.csv.",)),
        ]

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
        title = f"Plans: the best of {ranked:,}, each system's own; batch and sequences are the same"
        rows = [ReportRow(name, (plan_words(one.winner.plan),)) for name, one in comparison.best.items()]
        return ["", ReportTable(title, ["plan"], rows, dense=True)]
    told: list[Block] = [f"Plan of all: {plan_text(comparison.plan)}"]
    steps = {one.system.name: one.step_time_s for one in comparison.results}
    rows = []
    for name, one in comparison.best.items():
        share = f", {one.step_time_s / steps[name] - 1.0:+.0%}" if name in steps else ""
        shown = f"{format_si(one.step_time_s, 's')}{share}: {plan_words(one.winner.plan)}"
        rows.append(ReportRow(name, (shown,)))
    return [*told, "", ReportTable("At its own best plan each would take", ["step"], rows, dense=True)]


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
    quick: bool = option(
        False, "try few plans of each system; with --accuracy, train for fewer steps and seeds"
    )
    thorough: bool = option(False, "try more plans of each system (minutes)")
    seed: int | None = option(None, "first seed of its training; default 0")

    def __post_init__(self) -> None:
        if self.seed is not None and not self.accuracy:
            msg = "--seed is of the training that --accuracy runs; add that, or leave --seed out"
            raise ParameterError(msg)
        if self.quick and self.thorough:
            msg = "--quick tries few plans and --thorough more than usual; leave one of them out"
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
            quick=self.quick,
            thorough=self.thorough,
            seed=self.seed or 0,
            accuracy=self.accuracy,
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
