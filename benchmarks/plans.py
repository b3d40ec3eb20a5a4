"""Step times and the best plan of Calculon beside ours, in one run, as errors and ratios.

Run ``python benchmarks/plans.py CHECKOUT [--model NAME] [--accelerators N] [--batch B]``. CHECKOUT is a clone
of Calculon (Isaev et al., SC 2023, doi:10.1145/3581784.3607102), run as its users run it, with its own
description of an A100, by the Python that runs this file; it needs psutil and pandas.

First both predict the published steps on A100 that both can describe (dense, ungated GPTs without fully
sharded parameters). Then both look for the best plan of a model, over the same choices: degrees,
interleaving, microbatch, recomputation, sharded optimizer, tensor traffic beside products; nothing offloaded.
Processor time on one core, of which Calculon takes half an hour for GPT-3 175B on 4,096; each one's
best plan is judged by the other, too.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from electronic.fabrics.packets import RailFabric
from experiments.validation.driver import REFERENCE
from experiments.validation.machines import system_of
from experiments.validation.rows import Record, read_records
from experiments.validation.training import NEEDS, forecast, measured_s, run_of
from heliograph.comparison.plan_estimates import Objective
from heliograph.comparison.search import Search, rank_and_run
from heliograph.report import ReportRow, ReportTable, print_report
from heliograph.simulation import run_step
from heliograph.systems import System
from simulator.errors import HeliographError
from simulator.units import to_si
from workloads.models.architecture import TransformerConfig, divisors
from workloads.models.config import load_model
from workloads.pipeline.schedules import ONE_FORWARD_ONE_BACKWARD
from workloads.plan.parts import Attention, Recompute
from workloads.plan.plan import Plan, plan_text
from workloads.search.plans import ESTIMATED_SCHEDULES, RECOMPUTES

RECOMPUTED = {Recompute.NONE: "none", Recompute.SELECTIVE: "attn_only", Recompute.FULL: "full"}
"""Calculon's words for kinds of recomputation."""
BEST = 20
"""Number of Calculon's best plans to read; the first that fits the memory here is taken."""
GB_PER_S = to_si("r_bytes_per_s", 1.0, "GB/s")
"""Calculon's unit of bandwidth."""
NO_ROOM = "more memory than there is"
"""Rule that plans break which keep all others (`heliograph.comparison.plan_estimates.feasible`)."""
ROOMY_GIB = 1e6
"""Memory of a card for runs that happened, hence fitted."""


@dataclass(frozen=True)
class Calculon:
    """A checkout of Calculon with a folder for the files that it reads and writes."""

    checkout: Path
    """Folder of Calculon's ``bin`` and ``systems``."""
    folder: Path
    """Folder for the files that it reads and writes."""

    def run(self, *arguments: object) -> tuple[str, float]:
        """Return the output of a command and its processor time, s."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        done = subprocess.run(
            [sys.executable, "bin/calculon", *map(str, arguments)],
            cwd=self.checkout,
            env={"PYTHONPATH": "."},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout + done.stderr, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    def written(self, name: str, content: dict[str, Any]) -> Path:
        """Return the file that holds plain data."""
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    def system(self, system: System, *, memory_gib: float | None = None) -> Path:
        """Return its A100 with the links of one of ours, and nothing to offload to."""
        described = json.loads((self.checkout / "systems" / "a100_80g.json").read_text(encoding="utf-8"))
        inner, outer = described["networks"]
        rails = system.fabric
        if not isinstance(rails, RailFabric):
            msg = f"Calculon knows rails alone, not {rails.name}"
            raise TypeError(msg)
        inner["bandwidth"] = rails.scale_up.bandwidth_bytes_per_s / GB_PER_S
        outer["bandwidth"] = rails.nic.bandwidth_bytes_per_s / GB_PER_S
        described["mem2"]["GiB"] = 0
        if memory_gib is not None:
            described["mem1"]["GiB"] = memory_gib
        return self.written("system", described)

    def model(self, config: TransformerConfig, sequence: int) -> Path:
        """Return a model as it describes one: blocks alone."""
        sizes = {
            "hidden": config.hidden,
            "feedforward": config.ffn_hidden,
            "seq_size": sequence,
            "attn_heads": config.heads,
            "attn_size": config.head_dim,
            "num_blocks": config.layers,
        }
        return self.written("model", sizes)

    def step_s(
        self, config: TransformerConfig, plan: Plan, system: Path, *, fused: bool = False
    ) -> float | None:
        """Return its step time of a plan; None where it refuses it.

        Its authors validate without fused activations; its search takes them for fused.
        """
        out = self.folder / "step.json"
        out.unlink(missing_ok=True)
        model = self.model(config, plan.batch.sequence_length)
        try:
            self.run("llm", model, self.written("execution", execution(plan, fused=fused)), system, out)
        except subprocess.CalledProcessError:
            return None
        return float(json.loads(out.read_text(encoding="utf-8"))["total_time"]) if out.exists() else None


def execution(plan: Plan, *, fused: bool) -> dict[str, Any]:
    """Return a plan in its words, with the choices of its authors' own validation where ours has none."""
    axes, again = plan.axes, RECOMPUTED[plan.recompute.kind]
    shared = axes.sequence_parallel and axes.tp > 1
    return {
        "num_procs": axes.ranks,
        "tensor_par": axes.tp,
        "pipeline_par": axes.pp,
        "data_par": axes.dp,
        "tensor_par_net": 0,
        "pipeline_par_net": 1,
        "data_par_net": 1,
        "batch_size": plan.batch.global_batch,
        "microbatch_size": plan.batch.micro_batch,
        "datatype": "float16",
        "fused_activation": fused,
        "attention_type": "multihead",
        "activation_recompute": again,
        "pipeline_interleaving": plan.schedule.vpp,
        "optimizer_sharding": plan.sharding.zero > 0 and axes.dp > 1,
        "tensor_par_comm_type": "rs_ag" if shared else "ar",
        "tensor_par_overlap": "ring" if plan.traffic.overlap_tensor and axes.tp > 1 else "none",
        "seq_par_ag_redo": shared and again != "full",
        "data_par_overlap": axes.dp > 1 and plan.traffic.grad_buckets > 1,
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "training": True,
    }


def plan_of(found: dict[str, Any], base: Plan) -> Plan:
    """Return one of its executions as a plan of ours."""
    kinds = {word: kind for kind, word in RECOMPUTED.items()}
    return base.with_(
        tp=found["tensor_par"],
        pp=found["pipeline_par"],
        dp=found["data_par"],
        vpp=found["pipeline_interleaving"],
        micro_batch=found["microbatch_size"],
        global_batch=found["batch_size"],
        recompute=kinds[found["activation_recompute"]],
        zero=int(found["optimizer_sharding"]),
        sequence_parallel=found["tensor_par_comm_type"] == "rs_ag",
        overlap_tensor=found["tensor_par_overlap"] != "none" and found["tensor_par_comm_type"] == "rs_ag",
        grad_buckets=base.traffic.grad_buckets if found["data_par_overlap"] else 1,
    )


def described_by_both() -> Iterator[tuple[Record, System, TransformerConfig, Plan]]:
    """Yield the shipped steps on A100 that both can describe."""
    for record in read_records(REFERENCE / "training.csv", needs=NEEDS):
        if not record.text("system").startswith("A100-80GB"):
            continue
        try:
            system, config, plan = run_of(record)
        except HeliographError:
            continue
        if not config.gated and config.experts == 1 and plan.sharding.zero < 2 and plan.axes.tp <= 8:
            yield record, system, config, plan


def errors(calculon: Calculon) -> ReportTable:
    """Return the errors of both, by source."""
    found: dict[str, list[tuple[float, float]]] = {}
    refused = 0
    for record, system, config, plan in described_by_both():
        theirs = calculon.step_s(config, plan, calculon.system(system, memory_gib=ROOMY_GIB))
        if theirs is None:
            refused += 1
            continue
        measured = measured_s(record)
        ours = forecast(system, replace(config, name="model"), plan).step_time_s
        found.setdefault(record.text("source"), []).append((theirs / measured - 1.0, ours / measured - 1.0))
    found["all"] = [pair for pairs in found.values() for pair in pairs]
    rows = [ReportRow(name, (str(len(pairs)), *_columns(pairs)), "") for name, pairs in found.items()]
    heads = ["rows", "Calculon, mean", "worst", "bias", "ours, mean", "worst", "bias"]
    return ReportTable(f"Published steps on A100, errors; it refuses {refused} more", heads, rows)


def _columns(pairs: Iterable[tuple[float, float]]) -> tuple[str, ...]:
    both = np.array(list(pairs)).T
    return tuple(
        text
        for one in both
        for text in (f"{abs(one).mean():.1%}", f"{abs(one).max():.0%}", f"{one.mean():+.1%}")
    )


def machine(accelerators: int) -> System:
    """Return the cluster that its description of an A100 is of: NVLink within 8, 25 GB/s a card between."""
    cells = {
        "system": "A100-80GB SXM",
        "n_accelerators": str(accelerators),
        "gpus_per_node": "8",
        "intra_node_bw": "300",
        "inter_node_bw_per_gpu": "25",
    }
    return system_of(Record("here", cells))


def best_plans(
    calculon: Calculon, config: TransformerConfig, accelerators: int, batch: int
) -> list[ReportTable]:
    """Return the best plans of both searches, their times, and the estimate of each for the other's plan."""
    system = machine(accelerators)
    described = calculon.system(system)
    base = Plan.of(
        sequence_length=config.max_sequence,
        global_batch=batch,
        attention=Attention.FULL,
        schedule=ONE_FORWARD_ONE_BACKWARD,
    )
    began_s = time.process_time()
    choices = {
        "cp": (1,),
        "zero": (0, 1),
        "recompute": tuple(range(len(RECOMPUTES))),
        "vpp": tuple(divisors(config.layers)),
        "micro_batch": tuple(divisors(batch)),
        "schedule": (ESTIMATED_SCHEDULES.index(ONE_FORWARD_ONE_BACKWARD),),
    }
    ours = Search(model=config.name, objective=Objective.TIME)
    rank_and_run({system.fabric.name: system}, config, base, found=ours, choices=choices)
    ours_s = time.process_time() - began_s
    asked = ours.ranked + ours.rejected[NO_ROOM]

    out = calculon.folder / "best.json"
    model = calculon.model(config, base.batch.sequence_length)
    options = ["-c", "1", "-m", "-t", str(BEST)]
    logged, theirs_s = calculon.run(
        "llm-optimal-execution", model, accelerators, batch, "float16", described, out, *options
    )
    tried = int(logged.partition("Total executions: ")[2].split()[0])
    best = list(json.loads(out.read_text(encoding="utf-8")).values())
    speed = [
        ReportRow("Calculon", (f"{tried:,}", f"{theirs_s:.1f} s", f"{tried / theirs_s:,.0f}"), ""),
        ReportRow("ours", (f"{asked:,}", f"{ours_s:.1f} s", f"{asked / ours_s:,.0f}"), "engine included"),
        ReportRow("ratio", ("", f"{theirs_s / ours_s:.0f}", f"{asked / ours_s * theirs_s / tried:.0f}"), ""),
    ]
    plan = ours.winner.plan
    judged = [_judged("ours", plan, system, config, calculon.step_s(config, plan, described, fused=True))]
    for rank, one in enumerate(best):
        plan = plan_of(one["execution"], base)
        row = _judged(f"Calculon's {rank + 1}.", plan, system, config, one["stats"]["total_time"])
        judged.append(row)
        if row.values[1] != "refused":
            break
    title = f"{config.name} on {accelerators:,} A100, batch {batch:,}"
    return [
        ReportTable(f"{title}: search", ["plans", "processor time", "plans a second"], speed),
        ReportTable(f"{title}: the best plans, judged", ["Calculon says", "our engine says"], judged),
    ]


def _judged(
    name: str, plan: Plan, system: System, config: TransformerConfig, theirs_s: float | None
) -> ReportRow:
    try:
        ours = f"{run_step(system, config, plan).metrics.step_time_s:.3f} s"
    except HeliographError:
        ours = "refused"
    theirs = "refused" if theirs_s is None else f"{theirs_s:.3f} s"
    return ReportRow(name, (theirs, ours), plan_text(plan))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Calculon beside ours: errors, plans a second, best plans.")
    parser.add_argument("checkout", type=Path, help="a clone of Calculon")
    parser.add_argument("--model", default="gpt3-175b", help="of the search; default gpt3-175b")
    parser.add_argument("--accelerators", type=int, default=4096, help="of the search; default 4096")
    parser.add_argument("--batch", type=int, default=1536, help="sequences a step; default 1536")
    parser.add_argument("--errors-only", action="store_true", help="leave the search out")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        calculon = Calculon(asked.checkout.resolve(), Path(folder))
        tables = [errors(calculon)]
        if not asked.errors_only:
            tables += best_plans(calculon, load_model(asked.model), asked.accelerators, asked.batch)
    print_report(tables)


if __name__ == "__main__":
    main()
