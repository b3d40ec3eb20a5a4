"""The search: its estimate held to the engine, its winner to the bound and to published plans."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from experiments import validation
from experiments.__main__ import main
from experiments.breakeven import Line
from experiments.link_loads import link_loads
from experiments.search import Search, feasible, search
from experiments.search_estimates import Objective, estimates
from experiments.search_topologies import topologies
from experiments.step import run_step
from experiments.systems import build_system
from experiments.validation.cells import read_records
from experiments.validation.training import NEEDS, run_of
from heliograph.errors import HeliographError
from workloads.config import load_model
from workloads.parallelism import parse_plan
from workloads.plan import Parallelism
from workloads.plan_arrays import grid
from workloads.plan_costs import PlanPricer

CONFIG = dataclasses.replace(load_model("llama-3-8b"), layers=6)
BASE = Parallelism(sequence_length=4096, global_batch=16)
PLANS = 12
ROWS = read_records(Path(validation.__file__).parent / "reference" / "training.csv", needs=NEEDS)


@pytest.mark.parametrize(
    ("name", "mean", "rank"),
    [("gpu_packet", 0.08, 0.8), ("gpu_ocs", 0.1, 0.8), ("photonic_packet", 0.08, 0.8)],
)
def test_estimate_ranks_plans_as_the_engine_does(name: str, mean: float, rank: float) -> None:
    """Mean error and rank correlation over a random sample of all plans that fit.

    Of 60 plans the mean error is 5, 4 and 3 %, the rank correlation 0.93, 0.97 and 0.98; the bounds leave
    room for a sample of twelve with near ties. The estimate is too short (up to 37 %) where a ring of keys
    crosses nodes, and where parameters gathered for every microbatch share a card with it: it gives each
    collective the network to itself.
    """
    system = build_system(name, accelerators=16)
    plans, _ = feasible(CONFIG, grid(BASE, 16, 1), system.node().memory.capacity_bytes)
    rows = np.random.default_rng(3).choice(len(plans), PLANS, replace=False)
    plans = plans.taken(rows)
    times_s = estimates(system, PlanPricer(CONFIG, system.node()), plans).values[Objective.TIME]
    found, ran = [], []
    for row in range(len(plans)):
        try:
            result = run_step(system, CONFIG, plans.plan(row), placement=plans.placement(row))
        except HeliographError:
            continue
        found.append(times_s[row])
        ran.append(result.metrics.step_time_s)
    assert len(ran) >= PLANS - 3
    assert np.abs(np.array(found) / ran - 1.0).mean() < mean
    assert spearmanr(found, ran).statistic > rank


@pytest.mark.parametrize("name", ["korthikanti-001", "korthikanti-002", "korthikanti-003"])
def test_winner_is_no_slower_than_a_published_plan(name: str) -> None:
    """Korthikanti et al., arXiv:2205.05198, table 5: Megatron 22B on 8 A100, GPT-3 175B on 64."""
    (record,) = (one for one in ROWS if one.text("id") == name)
    system, config, plan = run_of(record)
    published_s = run_step(system, config, plan).metrics.step_time_s
    found = Search(model=config.name, objective=Objective.TIME)
    choices = {"placement": (0,), "micro_batch": (1, 2, 4), "zero": (0, 1), "tp": (4, 8), "cp": (1,)}
    search({"own": system}, config, plan, found=found, choices=choices, top=1)
    assert found.winner.value(Objective.TIME) <= published_s * (1 + 1e-9)
    assert found.winner.bound.step_time_s <= found.winner.value(Objective.TIME)


def test_search_counts_every_plan_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Ranked, refused and too large add up to the grid."""
    system = build_system("gpu_packet", accelerators=16)
    plans = grid(BASE, 16, 1)
    kept, counts = feasible(CONFIG, plans, system.node().memory.capacity_bytes)
    assert len(kept) + sum(counts.values()) == len(plans)
    assert main(["search", "--model", "llama-3-8b", "--accelerators", "16", "--objective", "speed"]) == 2
    assert "objective" in capsys.readouterr().err


def test_a_pinned_degree_is_kept() -> None:
    """What a plan names, a search leaves alone; variants of a fabric keep its endpoints."""
    plans = grid(BASE, 16, 1, {"tp": (2,), "zero": (1,)})
    assert set(plans["tp"]) == {2}
    assert set(plans["zero"]) == {1}
    for one in topologies(build_system("gpu_ocs", accelerators=16)).values():
        assert one.accelerators == 16


def test_links_carry_what_the_trace_counts() -> None:
    """Bytes between nodes and within them are those on the wire; no link carries more than it can."""
    system = build_system("gpu_packet", accelerators=16)
    plan = parse_plan("tp=8,pp=2,global_batch=4,sequence_length=4096")
    result = run_step(system, CONFIG, plan)
    loads = link_loads(result, bins=50)
    assert loads.sent_bytes.sum() == pytest.approx(sum(result.metrics.network_bytes.values()), rel=0.1)
    assert loads.used.max() <= 1.0 + 1e-9


def test_break_even_lies_where_lines_cross() -> None:
    """Between points the line is straight."""
    delay_s = np.array([1e-6, 1e-3, 1e-1])
    line = Line(name="x", moving_s=np.array([1.0, 1.1, 3.0]), static_s=1.05, packet_s=0.5)
    assert line.breakeven_s(delay_s, 1.05) == pytest.approx(1e-6 + 0.5 * (1e-3 - 1e-6))
    assert np.isnan(line.breakeven_s(delay_s, 0.5))
    assert np.isinf(line.breakeven_s(delay_s, 4.0))
