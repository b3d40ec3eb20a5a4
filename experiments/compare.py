"""The main question: the same model and plan on several systems, in time, energy, cost and accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from experiments.hardware import Hardware, Workload
from experiments.options import option
from experiments.study import Block, Progress, Result, Row, Study
from heliograph.comparison import Comparison, Request, build_systems, compare_request, reserve, write
from heliograph.records import new_run_directory
from heliograph.registry import model_named
from heliograph.report import ReportTable
from heliograph.sanity_checks import light_limits
from heliograph.simulation import wear_warnings
from heliograph.tables import best_of, comparison_rows, deciding_table, precision_notes
from simulator.errors import ParameterError
from workloads.plan.parallelism import plan_text

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
        blocks += [best_of(records), *precision_notes(records), *passed_limits(comparison)]
        if self.detail or comparison.accuracies:
            blocks.append("")
            blocks += [ReportTable("In detail", [one["system"] for one in records], comparison_rows(records))]
        blocks += [f"Warning: {line}" for line in wear_warnings(records)]
        return [
            *blocks,
            f"Plan: {plan_text(comparison.plan)}",
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


def passed_limits(comparison: Comparison) -> list[str]:
    """Return a sentence for each limit of light and size that a photonic system passes, in short lines."""
    units = [one.system.photonic for one in comparison.results if one.system.photonic is not None]
    said = dict.fromkeys(sentence for unit in units for sentence in light_limits(unit))
    return [fill(f"Beyond a limit: {sentence}.", LINE) for sentence in said]


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
    """The same model and plan on several systems."""

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
    quick: bool = option(False, "train it for fewer steps and seeds")
    seed: int | None = option(None, "first seed of its training; default 0")

    def __post_init__(self) -> None:
        for given, flag in ((self.quick, "--quick"), (self.seed is not None, "--seed")):
            if given and not self.accuracy:
                msg = f"{flag} is of the training that --accuracy runs; add that, or leave {flag} out"
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
        return Compared(
            comparison=compare_request(
                self.request(),
                cache=progress.training,
                progress=progress,
                stepped=lambda one: reserve(one, progress.directory),
            ),
            detail=self.detail,
        )
