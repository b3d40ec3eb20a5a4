"""One training step on one system: where its time, energy and cost go."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.hardware import SYSTEM, Hardware, Workload, one_step
from experiments.options import option
from experiments.study import Block, Progress, Result, Row, Study
from heliograph.parameters import status_counts
from heliograph.records import canonical_json, write_atomically
from heliograph.report import ReportTable
from heliograph.simulation import StepResult, wear_warnings
from heliograph.tables import comparison_rows
from workloads.plan.plan import plan_text
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
