"""The best plan that a search finds for each famous run, beside the plan that was run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.validation.famous import Run, famous_model, famous_system, run_of, seconds_of, shape_text
from experiments.validation.rows import Outcome, Record, SkipError, begun, skipped
from experiments.validation.training import constant_s, forecast
from heliograph.comparison.plan_estimates import Objective, estimates, feasible
from simulator.errors import HeliographError
from workloads.layers.transformer import model_flops
from workloads.pipeline.schedules import ONE_FORWARD_ONE_BACKWARD
from workloads.plan.parallelism import parse_plan
from workloads.plan.plan import KEYS, Plan
from workloads.search.costs import PlanPricer
from workloads.search.plans import divisors, grid

RUN_BY_ENGINE = 3
"""Plans, the best by estimate, that the engine runs; a choice."""
LARGEST_TENSOR = 16
"""Most tensor-parallel ranks that are tried, beside the published number; a choice."""
FASTER = 0.15
"""How much faster than the published plan the best one may be before what it uses is told; dimensionless."""
OLD_KERNELS = "causal_half=true"
"""What all plans of a run share whose plan was not published."""


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best plan found for a run."""

    plan: Plan
    """The plan."""
    step_time_s: float
    """Its step as the engine has it."""
    ranked: int
    """Plans that were estimated."""


def search_famous(
    records: Sequence[Record], *, progress: Callable[[str, int, int], None] | None = None
) -> tuple[Outcome, ...]:
    """Return the best plan of each famous run: its step, against that of the published plan.

    Parameters
    ----------
    records : sequence of Record
        Rows with the columns of the shipped table.
    progress : callable, optional
        Told a label, how many rows are done, and how many there are.

    Notes
    -----
    Of each outcome, what was measured is the published plan's step *as predicted*, so that the difference is
    the plan's and not the model's; where no plan was published it is the published step itself.
    """
    outcomes = []
    for number, record in enumerate(records, start=1):
        outcomes.append(_outcome(record))
        if progress is not None:
            progress("searches", number, len(records))
    return tuple(outcomes)


def _outcome(record: Record) -> Outcome:
    blank = begun(record)
    try:
        known = run_of(record) if record.text("plan") else None
        run = known or unpublished(record)
        config = dataclasses.replace(run.config, name="model")
        best = best_plan(run)
        reference = forecast(run.system, config, run.plan).step_time_s if known else seconds_of(record, run)
        if known and reference <= best.step_time_s:
            best = dataclasses.replace(best, plan=run.plan, step_time_s=reference)
    except HeliographError as error:
        return skipped(blank, record, error)
    return dataclasses.replace(
        blank,
        measured=reference,
        predicted=best.step_time_s,
        constant=constant_s(run.system.gpu, run.config, best.plan),
        assumed=tuple(record.assumed),
        beside={
            "plan": changes(Plan(), best.plan),
            "uses": changes(run.plan, best.plan) if known else "",
            "published_plan": bool(known),
            "ranked": best.ranked,
        },
    )


def unpublished(record: Record) -> Run:
    """Return a run whose plan nobody published: only what all plans share."""
    config = famous_model(record)
    plan = parse_plan(f"{OLD_KERNELS},{shape_text(record)}")
    system = famous_system(record)
    return Run(system=system, config=config, plan=plan, flops=model_flops(config, plan.share))


def best_plan(run: Run) -> Best:
    """Return the best plan for a run that uses what the run itself used, and no more.

    Raises
    ------
    SkipError
        If no plan fits.

    Notes
    -----
    Free are the degrees of tensor, pipeline and data parallelism, the microbatch, the chunks of a stage,
    the stage of ZeRO and full recomputation. All else is that of the published plan: kernels, formats,
    context and expert ranks, operators that are computed again. 1F1B stands for schedules without a closed
    form.
    """
    plan = run.plan
    base = plan.with_(schedule=ONE_FORWARD_ONE_BACKWARD, shard_group=0, recompute_share=1.0)
    free: dict[str, tuple[int, ...]] = {name: (value,) for name, value in _pinned(plan).items()}
    free |= _tried(run)
    arrays = grid(base, run.system.accelerators, run.config.experts, free)
    plans, _ = feasible(run.config, arrays, run.system.gpu.memory.capacity_bytes)
    if not len(plans):
        msg = "no plan of this kind fits its accelerators"
        raise SkipError(msg)
    config = dataclasses.replace(run.config, name="model")
    times = estimates(run.system, PlanPricer(run.config, run.system.node()), plans).values[Objective.TIME]
    order = np.argsort(times, kind="stable")[:RUN_BY_ENGINE]
    ran = [(plans.plan(int(row)), int(row)) for row in order if np.isfinite(times[row])]
    found = [(forecast(run.system, config, one).step_time_s, number) for number, (one, _) in enumerate(ran)]
    step_time_s, number = min(found)
    return Best(plan=ran[number][0], step_time_s=step_time_s, ranked=len(plans))


def _pinned(plan: Plan) -> Mapping[str, int]:
    """Return the columns that keep the published value."""
    return {"cp": plan.axes.cp, "ep": plan.axes.ep, "schedule": 0, "placement": 0}


def _tried(run: Run) -> Mapping[str, tuple[int, ...]]:
    """Return the values that are tried of the columns that are free."""
    plan, config = run.plan, run.config
    tensor = {one for one in divisors(config.heads) if one <= LARGEST_TENSOR} | {plan.axes.tp}
    again = (0,) if plan.recompute.by_operator else (0, 2)
    sharding = (1, 3) if plan.sharding.zero in {1, 3} else (plan.sharding.zero,)
    return {
        "tp": tuple(sorted(tensor)),
        "micro_batch": tuple(sorted({1, 2, 4, plan.batch.micro_batch})),
        "vpp": tuple(sorted({1, 2, 4, 8, plan.schedule.vpp})),
        "recompute": again,
        "zero": sharding,
    }


def changes(old: Plan, new: Plan) -> str:
    """Return the keys in which a plan differs from another, with its values."""
    shown = [f"{key}={new.value(key)}" for key in KEYS if new.value(key) != old.value(key)]
    return ", ".join(shown)


def search_text(outcomes: Sequence[Outcome]) -> str:
    """Return a line for each run: how much faster the best plan is, and what it has."""
    lines = ["\nBest plan found, against the published plan (both predicted):\n"]
    for one in outcomes:
        if one.predicted is None or one.measured is None:
            lines.append(f"  {one.id}: {one.skipped}\n")
            continue
        beside: Mapping[str, Any] = one.beside
        gain = one.measured / one.predicted - 1.0
        if not beside["published_plan"]:
            text = f"{gain:+.1%} against the published rate (no plan published); plan {beside['plan']}"
        elif not beside["uses"]:
            text = "the published plan is the best of those tried"
        else:
            text = f"{gain:+.1%} faster; it has {beside['uses']}"
            text += "" if gain <= FASTER else f" (more than {FASTER:.0%}: what they did not use)"
        lines.append(f"  {one.id}: {text}; {beside['ranked']:,} plans ranked\n")
    return "".join(lines)
