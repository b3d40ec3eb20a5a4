"""Step time by the spreading of packets over parallel links, beside optical circuits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.hardware import SYSTEM, Hardware
from experiments.options import option
from experiments.study import Block, Progress, Result, Row, Study
from heliograph.report import format_si, table_of
from heliograph.simulation import run_at_target
from heliograph.style import PALETTE, REFERENCE, name_rows, new_figure, styled
from heliograph.systems import System
from heliograph.systems.registry import model_named
from heliograph.workload import plan_on, ranks_of
from simulator.checks import check_range, check_whole
from simulator.errors import ParameterError
from simulator.topology.clos import Spreading
from workloads.plan.plan import plan_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUEUE_PAIRS = (1, 2, 4, 16)
"""Queue pairs of a flow: one, as Ethernet switches come (`PacketSwitch.shipped_queue_pairs`), four,
and those of Llama 3 (arXiv:2407.21783)."""
SEEDS = 5
"""Hashes that are drawn where nobody says how many."""
MOST_PAIRS, MOST_SEEDS = 1024, 1000
"""Most queue pairs of a flow, and most hashes, each of which takes a step."""
ACCELERATORS = 1024
"""Accelerators where neither plan nor option says."""
_ROW_IN, _REST_IN, _TITLE = 0.34, 1.4, 110


@dataclass(frozen=True, kw_only=True)
class SpreadStep:
    """Step times under one spreading, one of each hash."""

    spreading: Spreading | None
    """Spreading of the packets; None on optical circuits."""
    queue_pairs: int
    """Queue pairs of a flow; 0 where flows are not hashed."""
    steps_s: np.ndarray
    """Step time by each hash, shape [seeds]; one where nothing is drawn."""

    @property
    def name(self) -> str:
        """Words for it."""
        if self.spreading is None:
            return "optical circuits"
        if self.spreading is not Spreading.HASHED:
            return f"packets, {self.spreading}"
        return f"packets, hashed, {self.queue_pairs} queue pair{'s' if self.queue_pairs > 1 else ''}"

    @property
    def mean_s(self) -> float:
        """Mean over hashes."""
        return float(self.steps_s.mean())


@dataclass(frozen=True, kw_only=True)
class SpreadSteps(Result):
    """Step times of one plan under every spreading, and on circuits."""

    title: str
    """Model, accelerators and plan."""
    steps: tuple[SpreadStep, ...]
    """Spreadings, the ideal one first."""
    circuits: SpreadStep
    """On optical circuits."""

    @property
    def losses(self) -> tuple[float, float]:
        """Least and most time that circuits take over packets, by what is a real network; 0.01 is 1 %."""
        real = [step for step in self.steps if step.spreading is not Spreading.SPRAYED]
        every = self.circuits.mean_s / np.concatenate([step.steps_s for step in real]) - 1.0
        return float(every.min()), float(every.max())

    def rows(self) -> list[Row]:
        """Return a row for each spreading, circuits last."""
        ideal = self.steps[0].mean_s
        return [
            {
                "spreading": step.name,
                "queue_pairs": step.queue_pairs,
                "seeds": len(step.steps_s),
                "step_time_s": step.mean_s,
                "least_s": float(step.steps_s.min()),
                "most_s": float(step.steps_s.max()),
                "over_sprayed": step.mean_s / ideal - 1.0,
            }
            for step in (*self.steps, self.circuits)
        ]

    def record(self) -> dict[str, Any]:
        """Return everything as plain data."""
        least, most = self.losses
        return {"circuits_over_packets": {"least": least, "most": most}, "rows": self.rows()}

    def report(self) -> list[Block]:
        """Return the table, and the verdict as a range."""

        def ends(row: Row) -> str:
            return f"{format_si(row['least_s'], 's')} to {format_si(row['most_s'], 's')}"

        columns: dict[str, Callable[[Row], str]] = {
            "step time": lambda row: format_si(row["step_time_s"], "s"),
            "of all hashes": lambda row: ends(row) if row["seeds"] > 1 else "",
            "over sprayed": lambda row: f"{100 * row['over_sprayed']:+.2f} %",
        }
        table = table_of(
            self.title,
            self.rows(),
            lambda row: str(row["spreading"]),
            columns,
            note=lambda row: f"{row['seeds']} hashes" if row["seeds"] > 1 else "",
        )
        least, most = self.losses
        verdict = (
            f"Circuits take {100 * least:+.2f} to {100 * most:+.2f} % of time more than packets that are "
            "adaptive or hashed."
        )
        return [table, verdict]

    def figure(self) -> Figure:
        """Return the step times with the band of their hashes, and a line where circuits are."""
        with styled():
            figure = new_figure(_REST_IN + _ROW_IN * len(self.steps))
            axes = figure.subplots()
            for place, step in enumerate(self.steps):
                mean = step.mean_s
                below_s, above_s = mean - step.steps_s.min(), step.steps_s.max() - mean
                error = [[max(0.0, below_s)], [max(0.0, above_s)]]  # a mean of equals may round off them
                axes.barh(
                    place, mean, xerr=error, height=0.62, color=PALETTE[0], ecolor=PALETTE[5], capsize=2.5
                )
            axes.axvline(self.circuits.mean_s, color=REFERENCE, lw=1.2, label="optical circuits")
            name_rows(axes, [step.name for step in self.steps])
            axes.set_xlabel("Step time (s); whiskers: least and most of the hashes")
            figure.suptitle(fill(self.title.replace(",", ", "), _TITLE), fontsize=7.5, x=0.01, ha="left")
            axes.legend(loc="lower right")
            return figure


@dataclass(frozen=True, kw_only=True)
class BySpreading(Study):
    """Step time by the spreading of packets, beside optical circuits."""

    directory = "spreading"

    system: str = option("gpu_packet", SYSTEM)
    circuits: str = option("gpu_ocs", "the same accelerators on optical circuits")
    model: str = option("llama-3.1-405b", "model by name, or a config.json")
    plan: str = option("", "tp=8,pp=16,dp=8,micro_batch=1,global_batch=512,...")
    accelerators: int | None = option(None, f"how many; default the plan's, else {ACCELERATORS}", metavar="N")
    queue_pairs: tuple[int, ...] = option(QUEUE_PAIRS, "queue pairs of a hashed flow", commas=True)
    seeds: int = option(SEEDS, "hashes that are drawn for each", metavar="N")
    hardware: Hardware = field(default_factory=Hardware)

    def __post_init__(self) -> None:
        check_range(self, "seeds", low=1, high=MOST_SEEDS)
        for pairs in self.queue_pairs:
            if not 1 <= pairs <= MOST_PAIRS:
                msg = f"queue_pairs ({pairs}) must be whole numbers of 1 to {MOST_PAIRS}, such as 1,4,16"
                raise ParameterError(msg)
        check_whole(self, "seeds")

    def run(self, progress: Progress) -> SpreadSteps:
        """Return step times of every spreading, and on circuits."""
        config = model_named(self.model)
        usual = ranks_of(self.plan) or ACCELERATORS
        packets = self.hardware.system(self.system, accelerators=self.accelerators, usual_accelerators=usual)
        others = tuple(one for one in self.hardware.settings if not one.startswith("fabric."))
        beside = dataclasses.replace(self.hardware, settings=others, fabric=None)
        optical = beside.system(self.circuits, accelerators=packets.accelerators)
        plan = plan_on(packets, config, self.plan)
        kinds = [(Spreading.SPRAYED, 0), (Spreading.ADAPTIVE, 0)]
        kinds += [(Spreading.HASHED, pairs) for pairs in sorted(set(self.queue_pairs))]
        steps = []
        for done, (spreading, pairs) in enumerate(kinds):
            progress("spreadings", done, len(kinds) + 1)
            several = _spread(packets, spreading, pairs, self.seeds)
            times = [run_at_target(one, config, plan).step_time_s for one in several]
            steps.append(SpreadStep(spreading=spreading, queue_pairs=pairs, steps_s=np.array(times)))
        progress("spreadings", len(kinds), len(kinds) + 1)
        seconds = run_at_target(optical, config, plan).step_time_s
        return SpreadSteps(
            title=f"{config.name} on {packets.accelerators} accelerators, {plan_text(plan)}",
            steps=tuple(steps),
            circuits=SpreadStep(spreading=None, queue_pairs=0, steps_s=np.array([seconds])),
        )


def _spread(system: System, spreading: Spreading, pairs: int, seeds: int) -> list[System]:
    """Return a system under one spreading, one of each hash."""
    spread = system.with_({"fabric.spreading": str(spreading)})
    if spreading is not Spreading.HASHED:
        return [spread]
    return [
        spread.with_({"fabric.queue_pairs": pairs, "fabric.hash_seed": seed}) for seed in range(1, seeds + 1)
    ]
