"""The best plan of one system: all ranked in closed form, the best run by the engine."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heliograph.plan_estimates import Objective, Prices, bound_of, feasible, price_best
from heliograph.simulation import (
    CircuitMode,
    StepResult,
    lit,
    modes,
    run_at_target,
    run_step,
    step_graph,
)
from heliograph.systems import System
from simulator.errors import HeliographError, WorkloadError
from simulator.fabric import PortTiming
from simulator.results.metrics import StepBound
from workloads.models.architecture import TransformerConfig
from workloads.pipeline.schedule import SCHEDULES
from workloads.plan.parallelism import default_sequence_length, plan_text
from workloads.plan.plan import Plan
from workloads.search.costs import PlanPricer
from workloads.search.plans import PlanArrays, grid
from workloads.step.step import task_count

NEAR_SHARE = 0.01
"""Estimates that differ by less than this share are alike: of these the plan with the fewest passes is run
first; below the estimate's own error, a choice."""
FEW_TASKS, MOST_RUN = 8_192, 24
"""Tasks in all that the engine runs, and plans at most, beyond those that are asked for."""
DOUBT = 0.05
"""Share by which a plan may be estimated longer than what the engine has reached and still be run: about the
estimate's mean error, a choice."""
CLOSE_SHARE = 0.5
"""Ways of circuits whose estimate is longer than the best one's by more than this share are not run."""

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One plan on one fabric, as estimated and, if it was among the best, as the engine ran it."""

    system: System
    """The hardware."""
    topology: str
    """Fabric and its variant."""
    plan: Plan
    """The plan."""
    placement: str
    """Axes from the nearest ranks to the farthest."""
    estimate: Mapping[Objective, float]
    """Estimated step time in s, energy in J and cost in USD."""
    bound: StepBound
    """Lower bound of the step."""
    modes: tuple[CircuitMode, ...] = ()
    """Ways in which circuits may follow the step that are worth a run; none where they do not move."""
    mode: CircuitMode | None = None
    """The one of them that the engine found best."""
    result: StepResult | None = None
    """The engine's run."""
    refusal: str = ""
    """Why the engine could not run it, if it could not."""

    def value(self, objective: Objective) -> float:
        """Return time in s, energy in J or cost in USD, as the engine has it."""
        if self.result is None:
            return self.estimate[objective]
        match objective:
            case Objective.TIME:
                return self.result.metrics.step_time_s
            case Objective.ENERGY:
                return self.result.metrics.energy_j
            case _:
                return sum(self.result.step_usd.values())

    def record(self) -> dict[str, Any]:
        """Return the candidate as plain data, SI throughout."""
        return {
            "topology": self.topology,
            "plan": plan_text(self.plan),
            "placement": self.placement,
            "estimate": {str(one): value for one, value in self.estimate.items()},
            "engine": {str(one): self.value(one) for one in Objective} if self.result else None,
            "circuit_policy": self.result.circuits if self.result else "",
            "circuits": str(self.mode or "none"),
            "schedule": str(self.plan.schedule.kind),
            "refusal": self.refusal,
            "bound_s": self.bound.step_time_s,
            "bound_by": self.bound.what,
            "over_bound": self.value(Objective.TIME) / self.bound.step_time_s,
        }


Run = Callable[[System, TransformerConfig, Plan, str], StepResult]


def as_it_is(system: System, config: TransformerConfig, plan: Plan, placement: str) -> StepResult:
    """Return a step on a system whose light stays as bright as it is."""
    return run_step(system, config, plan, placement=placement)


def at_target(system: System, config: TransformerConfig, plan: Plan, placement: str) -> StepResult:
    """Return a step whose light is as bright as the system's target of precision asks."""
    return run_at_target(system, config, plan, placement=placement)


def run_candidate(
    one: Candidate, config: TransformerConfig, objective: Objective, say: Say, run: Run = as_it_is
) -> Candidate:
    """Return a candidate as the engine runs it, its circuits moving as is best."""
    ran: list[Candidate] = []
    refusal = ""
    for mode in one.modes or (None,):
        say(plan_text(one.plan) + (f", circuits {mode}" if mode else ""))
        try:
            system = _moving(one.system, mode)
            result = run(system, config, one.plan, one.placement)
        except HeliographError as error:
            refusal = str(error)
        else:
            ran.append(dataclasses.replace(one, system=system, mode=mode, result=result))
    if not ran:
        return dataclasses.replace(one, refusal=refusal)
    return min(ran, key=lambda each: each.value(objective))


def rescheduled(
    one: Candidate, config: TransformerConfig, objective: Objective, say: Say, run: Run = as_it_is
) -> Candidate:
    """Return a candidate with the schedule that the engine finds best, those without a closed form too.

    Tried are all registered ones that flush. Plans that a rule or the memory forbids (an odd pipeline
    folded, two copies that do not fit) are left out, and of those that save memory, each with a longer
    bubble than the one before it (Qi et al., arXiv:2405.15362), all but the first that runs.
    """
    if one.result is None or one.plan.axes.pp == 1:
        return one
    ran = [one]
    for schedule in SCHEDULES.values():
        if schedule.closed_form is not None or schedule.flows:
            continue
        if schedule.saves_memory and ran[-1].plan.schedule.kind.saves_memory:
            continue
        say(f"the same with {schedule}")
        try:
            plan = one.plan.with_(schedule=schedule, vpp=1)
            result = run(one.system, config, plan, one.placement)
        except HeliographError:
            continue
        ran.append(dataclasses.replace(one, plan=plan, result=result))
    return min(ran, key=lambda each: each.value(objective))


def _moving(system: System, mode: CircuitMode | None) -> System:
    """Return a system whose circuits move in a mode, if it has one."""
    if mode is None:
        return system
    fabric = system.fabric.with_policy(mode.policy, mode.turning)
    return dataclasses.replace(system, fabric=fabric, circuits=mode.policy)


def ranked(
    name: str,
    system: System,
    pricer: PlanPricer,
    plans: PlanArrays,
    *,
    objective: Objective,
    top: int,
    prices: Prices | None = None,
    ways: tuple[CircuitMode, ...] | None = None,
    turning_tasks: int | None = None,
    close: float = CLOSE_SHARE,
    by_kind: bool = False,
) -> list[Candidate]:
    """Return the best plans on one topology, in order.

    Parameters
    ----------
    name : str
        Of the topology.
    system : System
        The hardware.
    pricer : PlanPricer
        Prices of work on its accelerator.
    plans : PlanArrays
        Rows that break no rule.
    objective : Objective
        Quantity that is least.
    top : int
        Plans to return, and the best one with stages if none of them has any; more (`MOST_RUN`) where all
        of them together have few tasks.
    prices, ways, turning_tasks
        As `heliograph.plan_estimates.estimates` takes them.
    by_kind : bool
        Whether the plans returned are the best of each kind of pipeline (schedule, interleaved or not), whose
        estimates err alike.
    close : float
        Share by which a way of circuits may be estimated longer than the best one and still be run.
    """
    if not len(plans):
        return []
    priced = price_best(
        system, pricer, plans, objective, prices=prices, ways=ways, turning_tasks=turning_tasks
    )
    plans, found = priced.plans, priced.found
    least = found.values[objective]
    finite = np.isfinite(least)
    if not finite.any():
        return []
    passes = plans["pp"].astype(np.int64) * plans.microbatches * plans["vpp"]
    level = np.full(len(plans), np.iinfo(np.int64).max)
    level[finite] = np.floor(np.log(least[finite] / least[finite].min()) / NEAR_SHARE).astype(np.int64)
    ranks = np.lexsort((np.arange(len(plans)), least, passes, level))
    if by_kind:
        kind = plans["schedule"][ranks] * 2 + (plans["vpp"][ranks] > 1)
        _, first = np.unique(np.where(plans["pp"][ranks] > 1, kind, -1), return_index=True)
        first = first[np.argsort(least[ranks[first]], kind="stable")]
        ranks = np.concatenate([ranks[first], np.delete(ranks, first)])
    ranks = ranks[np.isfinite(least[ranks])]
    # Where steps are small the engine can run more of what the estimate's error leaves open.
    tasks = np.cumsum(task_count(pricer.config, plans.taken(ranks[:MOST_RUN]).whole, plans.base.steps_in_run))
    order = ranks[: max(top, 1, int((np.broadcast_to(tasks, min(len(ranks), MOST_RUN)) <= FEW_TASKS).sum()))]
    staged = ranks[plans["pp"][ranks] > 1][:1]  # other schedules may do more for it than the estimate knows
    order = np.concatenate([order, staged[~np.isin(staged, order)]])
    return [
        Candidate(
            system=system,
            topology=name,
            plan=plans.plan(int(row)),
            placement=plans.placement(int(row)),
            estimate={one: float(column[row]) for one, column in found.values.items()},
            bound=bound_of(system, pricer, plans.taken(np.array([row]))),
            modes=found.close(int(row), close),
        )
        for row in order
        if finite[row]
    ]


def lit_for_all(system: System, config: TransformerConfig) -> System:
    """Return a system whose laser is sized for a model's products on one rank, so that all plans share it."""
    alone = Plan.of(sequence_length=default_sequence_length(config), global_batch=1)
    return lit(system, step_graph(config, alone)) if system.photonic is not None else system


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Size of the search that every system of a comparison gets."""

    choices: Mapping[str, tuple[int, ...]]
    """Values of a plan's columns that are tried in place of `workloads.search.plans.CHOICES`."""
    top: int
    """Kinds of pipelines of which the engine runs the best plan, as long as one is estimated shorter than
    what it has reached."""
    most_tasks: int
    """Tasks of a step beyond which a plan is left out, unless all have more."""
    turning_tasks: int
    """Tasks of a step up to which circuits may turn in it."""


THOROUGH = Effort(
    choices={"placement": (0,), "micro_batch": (1, 2, 4), "schedule": (0, 2)},
    top=3,
    most_tasks=32_768,
    turning_tasks=4_096,
)
"""Search of a comparison that may take minutes. Ranks stand in the order in which a plan's text places
them, so that `heliograph step` runs the same; GPipe is left out, for 1F1B has its bubble and keeps less."""
USUAL = Effort(
    choices={
        "placement": (0,),
        "micro_batch": (1, 2, 4),
        "schedule": (0, 2),
        "vpp": (1, 2, 4),
        "zero": (0, 1, 3),
    },
    top=1,
    most_tasks=8_192,
    turning_tasks=1_024,
)
"""Search of a comparison, which takes a minute: fewer sizes of a plan, and one kind of pipeline is run."""
CLOSE_WAYS = 0.03
"""Ways of circuits that a comparison runs: those estimated at most this share longer than the best one."""


@dataclass(frozen=True, kw_only=True)
class BestPlan:
    """Best plan of a system, and how it was found."""

    winner: Candidate
    """Plan that the engine ran fastest."""
    step_time_s: float
    """Its step."""
    others: tuple[Candidate, ...]
    """Others that it ran, without their results."""
    others_s: tuple[float, ...]
    """Their steps; infinite where the engine refused one."""
    ranked: int
    """Plans that were ranked."""

    def alone(self) -> BestPlan:
        """Return the same without the trace and the tasks of its step."""
        return dataclasses.replace(self, winner=dataclasses.replace(self.winner, result=None))

    def record(self) -> dict[str, Any]:
        """Return it as plain data, SI throughout."""
        return {
            "plan": plan_text(self.winner.plan),
            "placement": self.winner.placement,
            "step_time_s": self.step_time_s,
            "estimated_step_time_s": self.winner.estimate[Objective.TIME],
            "bound_s": self.winner.bound.step_time_s,
            "plans_ranked": self.ranked,
            "others": [
                {"plan": plan_text(one.plan), "step_time_s": time_s}
                for one, time_s in zip(self.others, self.others_s, strict=True)
            ],
        }

    @property
    def result(self) -> StepResult:
        """Its step."""
        if self.winner.result is None:
            msg = "the best plan of a system was not run"
            raise WorkloadError(msg)
        return self.winner.result


def best_plan(
    system: System,
    config: TransformerConfig,
    base: Plan,
    *,
    effort: Effort = USUAL,
    prices: Prices | None = None,
    say: Say = lambda _: None,
) -> BestPlan:
    """Return the plan with which a system is fastest, as the engine has it.

    Parameters
    ----------
    system : System
        The hardware.
    config, base : TransformerConfig, Plan
        The model, and what all plans share (batch, sequence length, precision).
    effort : Effort
        What is tried.
    prices : Prices, optional
        Collectives that were priced before, for systems with the same fabric.
    say : callable
        Told what is done.

    Raises
    ------
    WorkloadError
        If no plan runs, with what leaves none.
    """
    lighted = lit_for_all(system, config)
    base = system.planned(base)
    every = grid(base, system.accelerators, config.experts, effort.choices)
    plans, rejected = feasible(config, every, system.node().memory.capacity_bytes)
    if len(plans):
        tasks = np.broadcast_to(task_count(config, plans.whole, base.steps_in_run), len(plans))
        plans = plans.taken(tasks <= max(effort.most_tasks, int(tasks.min())))
    say(f"estimating {len(plans):,} plans")
    on_request = tuple(
        one for one in modes(lighted.fabric, lighted.circuits) if one.turning is PortTiming.ON_REQUEST
    )
    candidates = ranked(
        lighted.fabric.name,
        lighted,
        PlanPricer(config, lighted.node()),
        plans,
        objective=Objective.TIME,
        top=effort.top,
        prices=prices,
        ways=on_request,
        turning_tasks=effort.turning_tasks,
        close=CLOSE_WAYS,
        by_kind=True,
    )
    found: list[Candidate] = []
    best_s = np.inf
    for one in candidates:
        if one.estimate[Objective.TIME] >= best_s * (1.0 + DOUBT):
            continue
        found.append(run_candidate(one, config, Objective.TIME, say, at_target))
        best_s = min(best_s, found[-1].value(Objective.TIME) if found[-1].result else np.inf)
    ran = [one for one in found if one.result is not None]
    if not ran:
        what = f"{config.name} on {system.accelerators:,} accelerators"
        raise WorkloadError(no_plan(what, rejected, [one.refusal for one in found]))
    winner = min(ran, key=lambda one: one.value(Objective.TIME))
    rest = [one for one in found if one is not winner]
    return BestPlan(
        winner=winner,
        step_time_s=winner.value(Objective.TIME),
        others=tuple(dataclasses.replace(one, result=None) for one in rest),
        others_s=tuple(one.value(Objective.TIME) if one.result else math.inf for one in rest),
        ranked=len(plans),
    )


def no_plan(model: str, rejected: Mapping[str, int], refusals: Sequence[str]) -> str:
    """Return a sentence on why no plan of a model runs: the reason that leaves none, and what others took.

    Parameters
    ----------
    model : str
        Name of the model, with the accelerators where they are known.
    rejected : mapping
        Plans left out, by the first reason, in the order in which reasons are asked.
    refusals : sequence of str
        What the engine said of those that were left.
    """
    told = [f"{count:,} {reason}" for reason, count in rejected.items() if count]
    said = list(dict.fromkeys(one for one in refusals if one))
    tries = "try more accelerators, another global_batch or another fabric"
    if said:
        return f"no plan of {model} runs: {'; '.join(said)}; {tries}"
    if not told:
        return f"no plan of {model} runs: the fabric carries none; {tries}"
    earlier = f", after {'; '.join(told[:-1])}" if told[1:] else ""
    return f"no plan of {model} runs: the last {told[-1]}{earlier}; {tries}"
