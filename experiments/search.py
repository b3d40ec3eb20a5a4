"""The best plan, placement and fabric for a model: all ranked in closed form, the best run by the engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from experiments.circuit_modes import CircuitFabric, CircuitMode, with_mode
from experiments.search_estimates import Objective, bound_of, estimates
from experiments.step import StepResult, plan_text, run_step
from experiments.systems import System
from heliograph.bounds import StepBound
from heliograph.errors import HeliographError, WorkloadError
from workloads.architecture import TransformerConfig
from workloads.choices import Schedule
from workloads.plan import Parallelism
from workloads.plan_arrays import PlanArrays, broken_rules, grid
from workloads.plan_costs import PlanPricer
from workloads.plan_memory import memory_bytes

NEAR_SHARE = 0.01
"""Estimates that differ by less than this share are alike: of these the plan with the fewest passes is run
first; below the estimate's own error, a choice."""
OTHER_SCHEDULES = (Schedule.DUALPIPE, Schedule.ZB_H2, Schedule.ZB_V, Schedule.V_HALF, Schedule.V_MIN)
"""Schedules without a closed form here: of the best plans with stages the engine runs those that fit."""
SPARING = (Schedule.ZB_V, Schedule.V_HALF, Schedule.V_MIN)
"""Those that give up time for memory, each with a longer bubble than the one before it (Qi et al.,
arXiv:2405.15362): one is run only where the one before it could not be."""
CLOSE_SHARE = 0.5
"""Ways of circuits whose estimate is longer than the best one's by more than this share are not run."""

Progress = Callable[[str, int, int], None]
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One plan on one fabric, as estimated and, if it was among the best, as the engine ran it."""

    system: System
    """The hardware."""
    topology: str
    """Fabric and its variant."""
    plan: Parallelism
    """The plan."""
    placement: str
    """Axes from the nearest ranks to the farthest."""
    estimate: Mapping[Objective, float]
    """Estimated step time in s, energy in J and cost in USD."""
    bound: StepBound
    """What the step cannot beat."""
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
            "schedule": str(self.plan.schedule),
            "refusal": self.refusal,
            "bound_s": self.bound.step_time_s,
            "bound_by": self.bound.what,
            "over_bound": self.value(Objective.TIME) / self.bound.step_time_s,
        }


@dataclass(kw_only=True)
class Search:
    """What a search has found so far; grows while it runs, so that an interruption loses nothing finished."""

    model: str
    """The model."""
    objective: Objective
    """What is least."""
    rejected: dict[str, int] = field(default_factory=dict)
    """Plans that break a rule, by the first rule broken, per topology."""
    ranked: int = 0
    """Plans that were estimated, on all topologies."""
    unplaced: dict[str, str] = field(default_factory=dict)
    """Topologies that could not be made, and why."""
    waiting: list[Candidate] = field(default_factory=list)
    """Best plans that the engine has yet to run."""
    found: list[Candidate] = field(default_factory=list)
    """Plans that the engine has run."""

    @property
    def winner(self) -> Candidate:
        """Best plan that was run.

        Raises
        ------
        WorkloadError
            If none could be.
        """
        ran = [one for one in self.found if one.result is not None]
        if not ran:
            reasons = "; ".join(f"{count} {reason}" for reason, count in self.rejected.items() if count)
            refusals = "; ".join(dict.fromkeys(one.refusal for one in self.found if one.refusal))
            refusals = refusals or "; ".join(f"{name}: {why}" for name, why in self.unplaced.items())
            why = "; ".join(filter(None, (reasons, refusals))) or "none was tried"
            msg = (
                f"no plan of {self.model} runs: {why}; try more accelerators, another global_batch or "
                "another fabric"
            )
            raise WorkloadError(msg)
        return min(ran, key=lambda one: one.value(self.objective))


def feasible(
    config: TransformerConfig, plans: PlanArrays, capacity_bytes: float
) -> tuple[PlanArrays, dict[str, int]]:
    """Return the plans that keep all rules and fit the memory, and how many others break which rule first."""
    counts: dict[str, int] = {}
    left = np.ones(len(plans), dtype=bool)
    for reason, broken in broken_rules(config, plans).items():
        counts[reason] = int((left & broken).sum())
        left &= ~broken
    kept = plans.taken(left)
    if len(kept):
        fits = memory_bytes(config, kept) <= capacity_bytes
        counts["more memory than there is"] = int((~fits).sum())
        kept = kept.taken(fits)
    return kept, counts


def search(
    systems: Mapping[str, System],
    config: TransformerConfig,
    base: Parallelism,
    *,
    found: Search,
    choices: Mapping[str, tuple[int, ...]] | None = None,
    top: int = 3,
    progress: Progress = lambda *_: None,
) -> None:
    """Rank all plans on all topologies, and run the best of each with the engine.

    Parameters
    ----------
    systems : mapping
        Systems by the name of their topology; all of one accelerator.
    config, base : TransformerConfig, Parallelism
        The model, and what all plans share (batch, sequence length, precision).
    found : Search
        Where results are put, one after the other.
    choices : mapping, optional
        Values of a plan's columns to try, or one to pin it (`workloads.plan_arrays.grid`).
    top : int
        Plans of each topology that the engine runs, and the best one with stages if none of them has any.
    progress : callable
        Told a label, how much is done, and how much there is.
    """
    some = next(iter(systems.values()))
    plans = grid(base, some.accelerators, config.experts, choices)
    plans, found.rejected = feasible(config, plans, some.node().memory.capacity_bytes)
    pricer = PlanPricer(config, some.node())
    for number, (name, system) in enumerate(systems.items()):
        progress(f"estimating {len(plans):,} plans on {name}", number, len(systems))
        if len(plans):
            found.waiting += _best(name, system, pricer, plans, objective=found.objective, top=top)
            found.ranked += len(plans)
    many = len(found.waiting)
    free = "schedule" not in (choices or {})
    while found.waiting:
        one, done = found.waiting[0], many - len(found.waiting)

        def say(doing: str, name: str = one.topology, done: int = done) -> None:
            progress(f"engine, {name}, {doing}", done, many)

        best = _run(one, config, found.objective, say)
        found.found.append(_rescheduled(best, config, found.objective, say) if free else best)
        found.waiting.pop(0)
    if many:
        progress("plans run", many, many)


def _run(one: Candidate, config: TransformerConfig, objective: Objective, say: Say) -> Candidate:
    """Return a candidate as the engine runs it, its circuits moving as is best."""
    ran: list[Candidate] = []
    refusal = ""
    for mode in one.modes or (None,):
        say(plan_text(one.plan) + (f", circuits {mode}" if mode else ""))
        try:
            system = _moving(one.system, mode)
            result = run_step(system, config, one.plan, placement=one.placement)
        except HeliographError as error:
            refusal = str(error)
        else:
            ran.append(dataclasses.replace(one, system=system, mode=mode, result=result))
    if not ran:
        return dataclasses.replace(one, refusal=refusal)
    return min(ran, key=lambda each: each.value(objective))


def _rescheduled(one: Candidate, config: TransformerConfig, objective: Objective, say: Say) -> Candidate:
    """Return a candidate with the schedule that the engine finds best, those without a closed form too.

    Plans that a rule or the memory forbids (an odd pipeline folded, two copies that do not fit) are left out,
    and of `SPARING` all but the first that runs.
    """
    if one.result is None or one.plan.pp == 1:
        return one
    ran = [one]
    for schedule in OTHER_SCHEDULES:
        if schedule in SPARING and ran[-1].plan.schedule in SPARING:
            continue
        plan = dataclasses.replace(one.plan, schedule=schedule, vpp=1)
        say(f"the same with {schedule}")
        try:
            result = run_step(one.system, config, plan, placement=one.placement)
        except HeliographError:
            continue
        ran.append(dataclasses.replace(one, plan=plan, result=result))
    return min(ran, key=lambda each: each.value(objective))


def _moving(system: System, mode: CircuitMode | None) -> System:
    """Return a system whose circuits move in a mode, if it has one."""
    if mode is None or not isinstance(system.fabric, CircuitFabric):
        return system
    return dataclasses.replace(system, fabric=with_mode(system.fabric, mode), circuits=mode.policy)


def _best(
    name: str, system: System, pricer: PlanPricer, plans: PlanArrays, *, objective: Objective, top: int
) -> list[Candidate]:
    """Return the best plans on one topology, in order."""
    found = estimates(system, pricer, plans)
    least = found.values[objective]
    finite = np.isfinite(least)
    if not finite.any():
        return []
    passes = plans["pp"].astype(np.int64) * plans.microbatches * plans["vpp"]
    level = np.full(len(plans), np.iinfo(np.int64).max)
    level[finite] = np.floor(np.log(least[finite] / least[finite].min()) / NEAR_SHARE).astype(np.int64)
    ranks = np.lexsort((np.arange(len(plans)), least, passes, level))
    order = ranks[: max(top, 1)]
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
            modes=found.close(int(row), CLOSE_SHARE),
        )
        for row in order
        if finite[row]
    ]
