"""How far the estimates of plans stand from the engine's steps, over plans drawn at random: docs/networks.md.

Run ``python benchmarks/estimates.py [--plans N] [--seed S] [TABLE ...]``. Each line draws so many plans that
fit, of every pipeline schedule and way of sharding as many (no schedules where there is one stage), estimates
them and runs them on the engine. Printed are the plans run, the mean, median and largest error of the
estimate, and the rank correlation of both (Spearman). Table ``turns`` has switches of several times.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum, auto

import numpy as np
from scipy.stats import spearmanr

from heliograph.comparison.plan_estimates import Estimates, estimates, feasible
from heliograph.comparison.plan_search import in_mode
from heliograph.report import ReportRow, ReportTable, format_si, print_report
from heliograph.simulation import lit_for_all, run_at_target
from heliograph.systems import build_system
from simulator.errors import HeliographError, RangeWarning
from simulator.fabric import CircuitPolicy, PortTiming
from workloads.models.architecture import TransformerConfig
from workloads.models.config import load_model
from workloads.plan.plan import Plan
from workloads.search.costs import PlanPricer
from workloads.search.plans import PlanArrays, grid

SEQUENCE_LENGTH = 4096
"""Tokens of a sequence."""
TURNS_S = (1e-5, 1e-3, 1e-2, 1e-1)
"""Times of a turn in the table of turns."""


class Way(StrEnum):
    """Behaviour of circuits during a step."""

    FASTEST = auto()
    """The behaviour that is estimated to be fastest."""
    STAY = auto()
    """Circuits stay."""
    TURN = auto()
    """Circuits turn to the axis that communicates."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """Plans of one model on one system."""

    system: str
    """Name of the system."""
    model: str
    """Name of the model."""
    layers: int
    """Blocks of the model that are kept."""
    way: Way = Way.FASTEST
    """Behaviour of circuits."""
    accelerators: int = 64
    """Accelerators."""
    sequences: int = 64
    """Sequences of a step."""
    moved: bool = False
    """Whether ranks stand in other orders than the usual one, too."""
    switch_s: float | None = None
    """Time of a turn; None for the system's own."""

    @property
    def name(self) -> str:
        """Title of the line."""
        way = "" if self.way is Way.FASTEST else f", circuits {self.way}"
        turn = "" if self.switch_s is None else f" in {format_si(self.switch_s, 's')}"
        return f"{self.model} on {self.system}{way}{turn}"


def _small(system: str, model: str, way: Way = Way.FASTEST) -> Line:
    return Line(system=system, model=model, layers=6, way=way, accelerators=16, sequences=32)


TABLES = {
    "small": (
        *(_small(name, "llama-3-8b") for name in ("gpu_packet", "gpu_ocs", "photonic_packet")),
        _small("gpu_packet@torus", "llama-3-8b"),
        *(_small(f"gpu_packet@{one}", "llama-3-8b", Way.STAY) for one in ("direct_connect", "hybrid")),
        *(_small(name, "mixtral-8x7b") for name in ("gpu_packet", "gpu_ocs")),
        _small("gpu_packet@direct_connect", "mixtral-8x7b", Way.STAY),
    ),
    "large": tuple(
        Line(system=system, model=model, layers=layers, way=way, moved=moved)
        for system, model, layers, way, moved in (
            ("gpu_packet", "llama-3-8b", 32, Way.FASTEST, False),
            ("gpu_ocs", "llama-3-8b", 32, Way.FASTEST, False),
            ("gpu_ocs", "llama-3-8b", 32, Way.STAY, False),
            ("gpu_packet@direct_connect", "llama-3-8b", 32, Way.STAY, True),
            ("gpu_packet", "mixtral-8x7b", 16, Way.FASTEST, False),
            ("gpu_ocs", "mixtral-8x7b", 16, Way.FASTEST, False),
            ("gpu_ocs", "mixtral-8x7b", 16, Way.STAY, False),
            ("gpu_ocs", "qwen3-30b-a3b", 16, Way.FASTEST, False),
            ("gpu_ocs", "qwen3-30b-a3b", 16, Way.STAY, False),
            ("gpu_ocs", "llama-3-70b", 32, Way.FASTEST, False),
            ("gpu_ocs", "llama-3-70b", 32, Way.STAY, False),
        )
    ),
    "turns": tuple(
        Line(
            system="gpu_ocs",
            model=model,
            layers=8,
            way=Way.TURN,
            sequences=32,
            moved=True,
            switch_s=switch_s,
        )
        for switch_s in TURNS_S
        for model in ("llama-3-8b", "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v2-lite")
    ),
}
"""Lines by table."""


def drawn(plans: PlanArrays, count: int, seed: int) -> np.ndarray:
    """Return rows of plans, of every schedule and way of sharding as many, as far as there are any."""
    generator = np.random.default_rng(seed)
    staged = plans["pp"] > 1
    kinds = np.where(staged, 1 + plans["schedule"], 0) * 8 + plans["zero"]
    waiting = [generator.permutation(np.flatnonzero(kinds == one)) for one in np.unique(kinds)]
    generator.shuffle(waiting)
    found: list[int] = []
    while len(found) < count and any(len(one) for one in waiting):
        found += [int(one[0]) for one in waiting if len(one)]
        waiting = [one[1:] for one in waiting]
    return np.array(found[:count])


def chosen(found: Estimates, row: int, way: Way) -> int | None:
    """Return the place of the way in which circuits follow a plan's step; None if there is none."""
    times_s = found.mode_time_s[:, row].copy()
    for place, mode in enumerate(found.modes):
        stays = mode.policy is CircuitPolicy.STATIC
        turns = mode.policy is CircuitPolicy.PER_AXIS and mode.turning is PortTiming.ON_REQUEST
        if (way is Way.STAY and not stays) or (way is Way.TURN and not turns):
            times_s[place] = math.inf
    place = int(np.argmin(times_s))
    return place if math.isfinite(times_s[place]) else None


def pairs(line: Line, config: TransformerConfig, count: int, seed: int) -> Iterator[tuple[float, float]]:
    """Yield the estimated and the simulated step of each plan drawn, in s."""
    system = build_system(line.system, accelerators=line.accelerators)
    if line.switch_s is not None:
        with warnings.catch_warnings(action="ignore", category=RangeWarning):
            system = system.with_({"fabric.switch.switch_s": line.switch_s})
    system = lit_for_all(system, config)
    base = Plan.of(sequence_length=SEQUENCE_LENGTH, global_batch=line.sequences)
    placements = {} if line.moved else {"placement": (0,)}
    every = grid(system.planned(base), line.accelerators, config.experts, placements)
    plans, _ = feasible(config, every, system.node().memory.capacity_bytes)
    plans = plans.taken(drawn(plans, count, seed))
    found = estimates(system, PlanPricer(config, system.node()), plans)
    for row in range(len(plans)):
        place = chosen(found, row, line.way)
        if place is None:
            continue
        mode = found.modes[place] if found.modes else None
        try:
            ran = run_at_target(
                in_mode(system, mode), config, plans.plan(row), placement=plans.placement(row)
            )
        except HeliographError:  # more peers than lanes, or memory to the last byte
            continue
        yield float(found.mode_time_s[place, row]), ran.step_time_s


def row_of(line: Line, count: int, seed: int) -> ReportRow:
    """Return the line of a table."""
    config = dataclasses.replace(load_model(line.model), layers=line.layers)
    estimated_s, ran_s = np.array(list(pairs(line, config, count, seed))).T
    errors = np.abs(estimated_s / ran_s - 1.0)
    values = (
        str(len(errors)),
        f"{np.mean(errors):.1%}",
        f"{np.median(errors):.1%}",
        f"{np.max(errors):.0%}",
        f"{spearmanr(estimated_s, ran_s).statistic:.2f}",
    )
    return ReportRow(line.name, values)


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(TABLES)}; all by default")
    parser.add_argument("--plans", type=int, default=40, metavar="N", help="plans of a line; default 40")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the draw; default 0")
    given = parser.parse_args()
    unknown = sorted(set(given.tables) - set(TABLES))
    if unknown:
        parser.error(f"no table '{unknown[0]}'; choices: {', '.join(TABLES)}")
    for name in given.tables or TABLES:
        rows = [row_of(line, given.plans, given.seed) for line in TABLES[name]]
        heads = ["plans", "mean", "median", "worst", "ranks"]
        print_report([ReportTable(f"Errors of estimates beside the engine, {name}", heads, rows)])


if __name__ == "__main__":
    main()
