"""The main question: the same model and plan on several systems, in time, energy, cost and accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.hardware import Hardware, Workload
from experiments.options import option
from experiments.study import Block, Progress, Result, Row, Study
from heliograph.comparison import Comparison, Request, build_systems, compare_request, reserve, write
from heliograph.records import new_run_directory
from heliograph.registry import model_named
from heliograph.report import ReportTable
from heliograph.simulation import wear_warnings
from heliograph.systems import SYSTEMS
from heliograph.tables import comparison_rows
from workloads.plan.parallelism import plan_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Compared(Result):
    """Systems beside each other."""

    comparison: Comparison
    """Steps, and what training came to."""

    def report(self) -> list[Block]:
        """Return the table of all systems."""
        comparison, records = self.comparison, self.comparison.records()
        title = f"{comparison.config.name} on {comparison.results[0].system.accelerators} accelerators"
        blocks: list[Block] = [
            ReportTable(title, [record["system"] for record in records], comparison_rows(records))
        ]
        blocks += [f"\nWarning: {line}" for line in wear_warnings(records)]
        return [
            *blocks,
            f"\nPlan: {plan_text(comparison.plan)}",
            "Prices are assumed: heliograph show SYSTEM lists every source.",
            "trace.json opens at ui.perfetto.dev.",
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


@dataclass(frozen=True, kw_only=True)
class Compare(Study):
    """The same model and plan on several systems."""

    workload: Workload = field(default_factory=Workload)
    accelerators: int | None = option(None, "per system; default: what the plan uses, or 1024", metavar="N")
    systems: tuple[str, ...] = option(
        tuple(SYSTEMS), "systems by name, or TOML files, separated by commas", metavar="NAMES", commas=True
    )
    quick: bool = option(False, "train the small GPT for fewer steps and seeds")
    accuracy: bool = option(True, "train the small GPT")
    seed: int = option(0, "first seed of the training runs")
    hardware: Hardware = field(default_factory=Hardware)

    def request(self) -> Request:
        """Return what is asked."""
        return Request(
            model=self.workload.model,
            accelerators=self.accelerators,
            systems=self.systems,
            plan=self.workload.plan,
            **self.hardware.given(),
            assignments=self.hardware.settings,
            quick=self.quick,
            seed=self.seed,
            accuracy=self.accuracy,
        )

    def default_out(self) -> Path:
        """Return a new directory below ``results``."""
        name = model_named(self.workload.model).name
        accelerators = build_systems(self.request())[0].accelerators
        return new_run_directory(Path("results"), f"{name}-{accelerators}")

    def run(self, progress: Progress) -> Compared:
        """Return the comparison; its directory is reserved when the steps have run, before the training."""
        return Compared(
            comparison=compare_request(
                self.request(),
                cache=progress.training,
                progress=progress,
                stepped=lambda one: reserve(one, progress.directory),
            )
        )
