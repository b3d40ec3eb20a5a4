"""The best plan of one system: all ranked in closed form, the best run by the engine."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from types import MappingProxyType
from typing import Any

import numpy as np

from heliograph.comparison.plan_estimates import Objective, Prices, bound_of, feasible, price_best
from heliograph.report import format_si
from heliograph.simulation import (
    CircuitMode,
    StepResult,
    lit_for_all,
    modes,
    run_at_target,
    run_step,
    step_graph,
)
from heliograph.systems.system import System
from heliograph.tables import tokens_price
from simulator.engine.compiled.step import StepRuns
from simulator.errors import HeliographError, ParameterError, WorkloadError
from simulator.fabric import PortTiming
from simulator.results import StepBound
from workloads.models.architecture import TransformerConfig
from workloads.pipeline.schedule import SCHEDULES
from workloads.pipeline.schedules import GPIPE
from workloads.plan.parts import Recompute
from workloads.plan.plan import Plan, plan_text, plan_words
from workloads.plan.rules import check, idle, quantised
from workloads.search.costs import PlanPricer
from workloads.search.plans import CHOSEN, COLUMNS, PLACEMENTS, RECOMPUTES, PlanArrays, column_of, grid
from workloads.step.memory import check_fits
from workloads.step.step import task_count

NEAR_SHARE = 0.01
"""Estimates that differ by less than this share are alike: of these the plan with the fewest passes is run
first; below the estimate's own error, a choice."""
SAME_SHARE = 1e-9
"""Share below which estimates are the same."""
FEW_TASKS, MOST_RUN = 8_192, 24
"""Tasks in all that the engine runs, and plans at most, beyond those that are asked for."""
DOUBT = 0.03
"""Share by which a plan may be estimated longer than what the engine has reached and still be run; a choice.
Of 205 best plans of their kinds (four models on four systems) eleven took less than their estimate by more:
the one that was estimated quickest of all, and ten with zero=3, the nearest of them 7 % behind the best."""
POWER_LIMIT = "gpu.chip.tdp_w"
"""Path of an accelerator's power limit."""
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
    config: TransformerConfig
    """The model."""
    row: PlanArrays
    """The plan as the one row of a grid."""
    modes: tuple[CircuitMode, ...] = ()
    """Ways in which circuits may follow the step that are worth a run; none where they do not move."""
    mode: CircuitMode | None = None
    """The one of them that the engine found best."""
    result: StepResult | None = None
    """The engine's run."""
    refusal: str = ""
    """Why the engine could not run it, if it could not."""
    power_limit_w: float | None = None
    """Power limit of an accelerator that was found best; None where none was sought."""

    @cached_property
    def bound(self) -> StepBound:
        """Lower bound of the step."""
        return bound_of(self.system, PlanPricer(self.config, self.system.node()), self.row)

    @property
    def words(self) -> str:
        """The plan in few letters, with the power limit that was found best."""
        limit = "" if self.power_limit_w is None else f" at {self.power_limit_w:g} W"
        return plan_words(self.plan) + limit

    def value(self, objective: Objective) -> float:
        """Return time in s, energy in J or cost in USD, as the engine has it."""
        return self.estimate[objective] if self.result is None else value_of(self.result, objective)

    def record(self) -> dict[str, Any]:
        """Return the candidate as plain data, SI throughout."""
        return {
            "topology": self.topology,
            "plan": plan_text(self.plan),
            "placement": self.placement,
            "estimate": {one.column: value for one, value in self.estimate.items()},
            "engine": {one.column: self.value(one) for one in Objective} if self.result else None,
            "circuit_policy": self.result.circuits_told if self.result else "",
            "circuits": str(self.mode or "none"),
            "schedule": str(self.plan.schedule.kind),
            "power_limit_w": self.power_limit_w,
            "refusal": self.refusal,
            "bound_s": self.bound.step_time_s,
            "bound_by": self.bound.what,
            "over_bound": self.value(Objective.TIME) / self.bound.step_time_s,
        }


def value_of(result: StepResult, objective: Objective) -> float:
    """Return time in s, energy in J or cost in USD of a step."""
    match objective:
        case Objective.TIME:
            return result.metrics.step_time_s
        case Objective.ENERGY:
            return result.metrics.energy_j
        case _:
            return sum(result.step_usd.values())


def told_value(value: float, objective: Objective) -> str:
    """Return time in s, energy in J or cost in USD of a step in words."""
    if objective is Objective.COST:
        return tokens_price(value)
    return format_si(value, "s" if objective is Objective.TIME else "J")


Run = Callable[[System, TransformerConfig, Plan, str], StepResult]


def _runs(system: System, config: TransformerConfig, plan: Plan, placement: str) -> StepRuns:
    plan = system.planned(plan)
    check(config, plan, accelerators=system.accelerators)
    check_fits(config, plan, system.node().memory.capacity_bytes)  # before a large step is built for nothing
    return _runs_of(config, plan, placement)


@lru_cache(maxsize=4)
def _runs_of(config: TransformerConfig, plan: Plan, placement: str) -> StepRuns:
    return StepRuns(step_graph(config, plan, placement), runs=SEARCHED)


def as_it_is(system: System, config: TransformerConfig, plan: Plan, placement: str) -> StepResult:
    """Return a step on a system whose light stays as bright as it is."""
    runs = _runs(system, config, plan, placement)
    return run_step(system, config, plan, placement=placement, runs=runs)


def at_target(system: System, config: TransformerConfig, plan: Plan, placement: str) -> StepResult:
    """Return a step whose light is as bright as the system's target of precision asks."""
    runs = _runs(system, config, plan, placement)
    return run_at_target(system, config, plan, placement=placement, runs=runs)


def run_candidate(
    one: Candidate, config: TransformerConfig, objective: Objective, say: Say, run: Run = as_it_is
) -> Candidate:
    """Return a candidate as the engine runs it, its circuits moving as is best."""
    ran: list[Candidate] = []
    refusal = ""
    for mode in one.modes or (None,):
        say(plan_text(one.plan) + (f", circuits {mode}" if mode else ""))
        try:
            system = moving(one.system, mode)
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

    Tried are all registered ones that flush and are not ranked. Plans that a rule or the memory forbids are
    left out, and of those that save memory, each with a longer bubble than the one before it (Qi et al.,
    arXiv:2405.15362), all after the first that fits, ranked (ZB-V) or not.
    """
    if one.result is None:
        return one
    if one.plan.axes.pp == 1:
        return _all_forward_first(one, config, objective, say, run)
    ran = [one]
    saved = False
    for schedule in SCHEDULES.values():
        tried = schedule not in CHOSEN["schedule"] and not schedule.flows
        if (schedule.saves_memory and saved) or not (tried or schedule.saves_memory):
            continue
        try:
            plan = one.system.planned(one.plan.with_(schedule=schedule, vpp=1))
            check(config, plan, accelerators=one.system.accelerators)
            check_fits(config, plan, one.system.node().memory.capacity_bytes)
            saved = saved or schedule.saves_memory
            if not tried:
                continue
            say(f"the same with {schedule}")
            ran.append(_replanned(one, config, plan, run))
        except HeliographError:
            continue
    return min(ran, key=lambda each: each.value(objective))


BUCKETS = (1, 2, 4, 8, 16, 32)
"""Pieces of a stage's gradients that are tried for the best plan; a choice."""
LIMITS = (90, 80, 70, 60, 50)
"""Per cent of an accelerator's power limit that are tried for the best plan; a choice. Far below, a voltage
no longer falls with the clock, as that of a GPU does here."""


def check_limits(objective: Objective) -> None:
    """Refuse a search of power limits for the least time, which none of them shortens."""
    if objective is Objective.TIME:
        msg = "lower power limits save no time; look for the least energy or cost, or leave them out"
        raise ParameterError(msg)


def refined(
    one: Candidate,
    config: TransformerConfig,
    objective: Objective,
    say: Say,
    *,
    pieces: bool,
    limits: bool = False,
    value: float | None = None,
    gain: float = 0.0,
    run: Run = as_it_is,
) -> Candidate:
    """Return a candidate with the pieces of gradients and the power limit that are best.

    Parameters
    ----------
    one : Candidate
        A plan that was run.
    config, objective, say, run
        As `run_candidate` takes them.
    pieces : bool
        Whether its gradients may be summed in other numbers of pieces (`BUCKETS`). More hide more of the sums
        beside the backward pass, and each starts the library once more.
    limits : bool
        Whether its accelerators may have lower power limits (`LIMITS`). Light is sized for its limit anew.
    value : float, optional
        What it takes of the objective, if its result is not at hand.
    gain : float
        Share of the objective that other pieces must save.
    """
    best, least = one, one.value(objective) if value is None else value

    def in_pieces(numbers: Sequence[int]) -> Iterator[Candidate]:
        for number in numbers:
            say(f"the best one with grad_buckets={number}")
            yield _replanned(one, config, one.plan.with_(grad_buckets=number), run)

    if pieces and not any(idle(config, one.plan.with_(grad_buckets=1), ("grad_buckets",))):
        now = one.plan.traffic.grad_buckets
        found = _climbed(one, least, objective, in_pieces([each for each in BUCKETS if each > now]))
        if found is one:
            found = _climbed(one, least, objective, in_pieces([each for each in BUCKETS[::-1] if each < now]))
        if found is not one and found.value(objective) < least * (1.0 - gain):
            best, least = found, found.value(objective)
    if not limits:
        return best
    full_w = one.system.gpu.chip.tdp_w
    whole = dataclasses.replace(best, power_limit_w=full_w)

    def limited() -> Iterator[Candidate]:
        for percent in LIMITS:
            limit_w = full_w * percent / 100.0
            say(f"the best one at {limit_w:g} W")
            system = whole.system.with_({POWER_LIMIT: limit_w})
            result = run(system, config, whole.plan, whole.placement)
            yield dataclasses.replace(whole, system=system, result=result, power_limit_w=limit_w)

    return _climbed(whole, least, objective, limited())


def _climbed(best: Candidate, least: float, objective: Objective, tries: Iterable[Candidate]) -> Candidate:
    """Return the last of some candidates each of which takes less than the one before it."""
    with contextlib.suppress(HeliographError):  # one that does not run ends them
        for one in tries:
            if not one.value(objective) < least:
                break
            best, least = one, one.value(objective)
    return best


def _replanned(one: Candidate, config: TransformerConfig, plan: Plan, run: Run) -> Candidate:
    """Return a candidate with another plan as the engine runs it."""
    return dataclasses.replace(one, plan=plan, result=run(one.system, config, plan, one.placement))


def _all_forward_first(
    one: Candidate, config: TransformerConfig, objective: Objective, say: Say, run: Run
) -> Candidate:
    """Return a candidate without stages as it is, or with all forward passes first if that is better.

    Gathers and sums of every microbatch share a channel in a backward pass; forward passes in a row leave the
    sums more room. Schedules that split backward passes are never quicker on one stage.
    """
    if one.plan.sharding.zero < 2 or one.plan.microbatches == 1:
        return one
    say(f"the same with {GPIPE}")
    try:
        other = _replanned(one, config, one.plan.with_(schedule=GPIPE), run)
    except HeliographError:  # all microbatches' activations do not fit, most likely
        return one
    return min(one, other, key=lambda each: each.value(objective))


def moving(system: System, mode: CircuitMode | None) -> System:
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
    top: int | None = None,
    prices: Prices | None = None,
    ways: tuple[CircuitMode, ...] | None = None,
    close: float = CLOSE_SHARE,
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
    top : int, optional
        Plans to return, and the best one with stages if none of them has any; more (`MOST_RUN`) where all
        of them together have few tasks. Without it the `EACH_KIND` best of each kind of pipeline (schedule,
        interleaved or not, sharded parameters or not), whose estimates err alike.
    prices, ways
        As `heliograph.comparison.plan_estimates.estimates` takes them.
    close : float
        Share by which a way of circuits may be estimated longer than the best one and still be run.
    """
    if not len(plans):
        return []
    prices = prices or Prices()
    priced = price_best(system, pricer, plans, objective, prices=prices, ways=ways)
    plans, found = priced.plans, priced.found
    least = found.values[objective]
    if not np.isfinite(least).any():
        return []
    passes = plans["pp"].astype(np.int64) * plans.microbatches * plans["vpp"]
    if top is None:
        order = _best_by_kind(plans, least, passes)
    else:
        order = _first(pricer.config, plans, least, passes, top)
    return [
        Candidate(
            system=system,
            topology=name,
            plan=plans.plan(int(row)),
            placement=plans.placement(int(row)),
            estimate={one: float(column[row]) for one, column in found.values.items()},
            config=pricer.config,
            row=plans.taken(np.array([row])),
            modes=found.close(int(row), close),
        )
        for row in order[np.isfinite(least[order])]
    ]


def _first(
    config: TransformerConfig, plans: PlanArrays, least: np.ndarray, passes: np.ndarray, top: int
) -> np.ndarray:
    """Return the first rows by value, near ones by fewer passes, and more of them where steps are small.

    Of a plan in placements that take as long the first one stands for all.
    """
    finite = np.isfinite(least)
    level = np.full(len(plans), np.iinfo(np.int64).max)
    level[finite] = np.floor(np.log(least[finite] / least[finite].min()) / NEAR_SHARE).astype(np.int64)
    ranks = np.lexsort((np.arange(len(plans)), least, passes, level))[: int(finite.sum())]
    ahead = ranks[: len(PLACEMENTS) * max(top, MOST_RUN)]
    same = [plans[name][ahead] for name in COLUMNS if name != "placement"]
    same.append(np.round(np.log(least[ahead]) / SAME_SHARE))
    ahead = ahead[np.sort(np.unique(np.column_stack(same), axis=0, return_index=True)[1])]
    # Where steps are small the engine can run more of what the estimate's error leaves open.
    first = plans.taken(ahead[:MOST_RUN])
    tasks = np.cumsum(task_count(config, first.array_plan, plans.base.steps_in_run))
    few = int((np.broadcast_to(tasks, len(first)) <= FEW_TASKS).sum())
    order = ahead[: max(top, 1, few)]
    staged = ranks[plans["pp"][ranks] > 1][:1]  # other schedules may do more for it than the estimate knows
    return np.concatenate([order, staged[~np.isin(staged, order)]])


def _best_by_kind(plans: PlanArrays, least: np.ndarray, passes: np.ndarray) -> np.ndarray:
    """Return the best rows of each kind of pipeline, of those that are alike the one with fewest passes."""
    staged = plans["pp"] > 1
    kind = np.where(staged, 1 + plans["schedule"] * 2 + (plans["vpp"] > 1), 0) * 2 + (plans["zero"] > 1)
    order: list[int] = []
    for one in np.unique(kind):
        rows = np.flatnonzero((kind == one) & np.isfinite(least))
        if not len(rows):
            continue
        level = np.floor(np.log(least[rows] / least[rows].min()) / ALIKE).astype(np.int64)
        rows = rows[np.lexsort((least[rows], passes[rows], level))]
        _, first = np.unique(np.sort(level), return_index=True)
        order += rows[first[:EACH_KIND]].tolist()
    return np.array(sorted(order, key=lambda row: least[row]), dtype=int)


NO_SAVING: Mapping[str, bool] = MappingProxyType({})
"""Recomputation as the plan has it."""
SAVINGS: tuple[Mapping[str, bool], ...] = (
    NO_SAVING,
    MappingProxyType({"recompute_activation": True}),
    MappingProxyType({"recompute_activation": True, "recompute_norms": True}),
)
"""Operators that are computed again alone, as Llama 3 and DeepSeek-V3 did; numbers stay exact."""


def saving(
    base: Plan, choices: Mapping[str, tuple[int, ...]], savings: Sequence[Mapping[str, bool]]
) -> dict[Plan, Mapping[str, tuple[int, ...]]]:
    """Return what plans share under each saving, with the columns that are tried: none recomputes whole."""
    alone = {"recompute": (RECOMPUTES.index(Recompute.NONE),)}
    return {base.with_(**one): {**choices, **(alone if one else {})} for one in savings}


def searched(system: System, base: Plan, fixed: Collection[str] = ()) -> Plan:
    """Return what plans of a system share when the best is sought: in fp8, weights held in no other form.

    That takes less memory and traffic, and products have the same operands. Where ``fp8_params`` is among the
    keys that are fixed, it stays as it is.
    """
    plan = system.planned(base)
    held = "fp8_params" not in fixed and plan.precision.takes_fp8_params and not quantised(plan)
    return plan.with_(fp8_params=True) if held else plan


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Size of the search that every system of a comparison gets."""

    choices: Mapping[str, tuple[int, ...]] = field(hash=False)
    """Values of a plan's columns that are tried in place of `workloads.search.plans.CHOICES`."""
    runs: int
    """Plans that the engine runs at most, as long as one promises to be faster than what it has reached."""
    most_tasks: int
    """Tasks of a step beyond which a plan is left out, unless all have more."""
    long_tasks: int
    """Tasks of a step beyond which a plan is run only if it promises to be the fastest, estimates trusted."""
    siblings: int = 2
    """Best plans of other systems that are run on a system, too."""
    savings: tuple[Mapping[str, bool], ...] = field(default=(NO_SAVING,), hash=False)
    """Operators that are computed again alone, each tried."""
    pieces: bool = True
    """Whether gradients of the best plan are summed in other numbers of pieces, too."""


USUAL = Effort(
    choices={"placement": (0,), "micro_batch": (1, 2, 4), "schedule": (0, 2, 3, 4, 5), "zero": (0, 1, 3)},
    runs=5,
    most_tasks=150_000,
    long_tasks=40_000,
)
"""Search of a comparison, which takes a minute or two. Ranks stand in the order in which a plan's text places
them, so that `heliograph step` runs the same; GPipe is left out, for 1F1B has its bubble and keeps less."""
THOROUGH = Effort(
    choices={**USUAL.choices, "micro_batch": (1, 2, 4, 8), "zero": (0, 1, 2, 3)},
    runs=16,
    most_tasks=262_144,
    long_tasks=262_144,
    siblings=8,
    savings=SAVINGS,
)
"""Search that may take ten minutes; whatever the usual one finds is run in it, too."""
QUICK = Effort(
    choices={
        **USUAL.choices,
        "micro_batch": (1, 2),
        "vpp": (1, 2, 4),
        "recompute": (0,),
        "cp": (1, 2, 4),
    },
    runs=1,
    most_tasks=8_192,
    long_tasks=8_192,
    siblings=0,
    pieces=False,
)
"""First look: one run a system, no long step, no recomputation."""
CLOSE_WAYS = 0.03
"""Ways of circuits that a comparison runs: those estimated at most this share longer than the best one."""
GAIN = 0.005
"""Share by which a plan must promise to be faster than what the engine has reached, if the engine has run one
of its kind already or would take long; a choice, and thus the gap that a search leaves knowingly."""
EACH_KIND = 12
"""Plans of a kind of pipeline that may be run; they differ by more than `ALIKE`."""
ALIKE = 0.002
"""Plans of a kind whose estimates differ by less than this share are alike: that of fewest tasks is run."""
SEARCHED = 16
"""Steps of one size that a search runs, as far as is known before: many enough to compile the event loop."""


@dataclass(frozen=True, kw_only=True)
class BestPlan:
    """Best plan of a system, and how it was found."""

    winner: Candidate
    """Plan that the engine ran with the least of the objective."""
    objective: Objective
    """What is least with it."""
    value: float
    """Of its step: time in s, energy in J or cost in USD."""
    step_time_s: float
    """Its step."""
    others: tuple[Candidate, ...]
    """Others that it ran, without their results."""
    others_values: tuple[float, ...]
    """Of their steps; infinite where the engine refused one."""
    ranked: int
    """Plans that were ranked."""

    def handed_on(self, effort: Effort) -> tuple[Candidate, ...]:
        """Return the plans that other systems try, too: those near the best, with `THOROUGH` all that ran."""
        most = math.inf if effort == THOROUGH else self.value * (1.0 + DOUBT)
        near = (one for one, value in zip(self.others, self.others_values, strict=True) if value <= most)
        return tuple(dataclasses.replace(one, result=None) for one in (self.winner, *near))

    def alone(self) -> BestPlan:
        """Return the same without the trace and the tasks of its step."""
        return dataclasses.replace(self, winner=dataclasses.replace(self.winner, result=None))

    def record(self) -> dict[str, Any]:
        """Return it as plain data, SI throughout."""
        return {
            "plan": plan_text(self.winner.plan),
            "placement": self.winner.placement,
            "power_limit_w": self.winner.power_limit_w,
            "objective": str(self.objective),
            "step_time_s": self.step_time_s,
            "estimated_step_time_s": self.winner.estimate[Objective.TIME],
            "bound_s": self.winner.bound.step_time_s,
            "plans_ranked": self.ranked,
            "others": [
                {"plan": plan_text(one.plan), self.objective.column: value}
                for one, value in zip(self.others, self.others_values, strict=True)
            ],
        }

    @property
    def result(self) -> StepResult:
        """Its step."""
        if self.winner.result is None:
            msg = "the best plan of a system was not run"
            raise WorkloadError(msg)
        return self.winner.result


@dataclass(frozen=True, kw_only=True)
class _Ranking:
    """Plans of a system in closed form."""

    candidates: list[Candidate]
    """The best of each kind of pipeline."""
    ranked: int
    """Plans that were ranked."""
    rejected: Mapping[str, int]
    """Plans left out, by the first reason."""


@lru_cache(maxsize=4)
def _tried(
    config: TransformerConfig, base: Plan, accelerators: int, capacity_bytes: float, effort: Effort
) -> tuple[PlanArrays, Mapping[str, int]]:
    """Return the plans that an effort ranks on accelerators of some memory, and how many are left out."""
    every = grid(base, accelerators, config.experts, effort.choices)
    plans, rejected = feasible(config, every, capacity_bytes)
    if len(plans):
        tasks = np.broadcast_to(task_count(config, plans.array_plan, base.steps_in_run), len(plans))
        plans = plans.taken(tasks <= max(effort.most_tasks, int(tasks.min())))
    return plans, rejected


def _ranking(
    system: System,
    config: TransformerConfig,
    base: Plan,
    effort: Effort,
    *,
    prices: Prices,
    objective: Objective,
    fixed: Collection[str],
) -> _Ranking:
    capacity_bytes = system.node().memory.capacity_bytes
    shared = searched(system, base, fixed)
    plans, rejected = _tried(config, shared, system.accelerators, capacity_bytes, effort)
    lighted = lit_for_all(system, config)
    candidates = _best_of_each_kind(lighted, config, plans, prices=prices, objective=objective)
    return _Ranking(candidates=candidates, ranked=len(plans), rejected=rejected)


def _best_of_each_kind(
    system: System, config: TransformerConfig, plans: PlanArrays, *, prices: Prices, objective: Objective
) -> list[Candidate]:
    """Return the best plans of each kind on a lit system, circuits turned only when they are asked for."""
    every = modes(system.fabric, system.circuits, plans.base)
    return ranked(
        system.fabric.name,
        system,
        prices.pricer(config, system.node()),
        plans,
        objective=objective,
        prices=prices,
        ways=tuple(one for one in every if one.turning is PortTiming.ON_REQUEST),
        close=CLOSE_WAYS,
    )


class _Trials:
    """Plans of a system as the engine runs them, those that promise most first.

    Parameters
    ----------
    config : TransformerConfig
        The model.
    effort : Effort
        How much is tried.
    say : callable
        Told what is done.
    objective : Objective
        What is to be least.
    before : BestPlan, optional
        The best that was run before.

    The estimate of plans of a kind (schedule, interleaved or not, sharded parameters or not) errs alike, so
    that what one of them took more or less than estimated is expected of the others.
    """

    def __init__(
        self,
        config: TransformerConfig,
        effort: Effort,
        say: Say,
        *,
        objective: Objective,
        before: BestPlan | None = None,
    ) -> None:
        self.found: list[Candidate] = []
        self._effort = effort
        self._config = config
        self._say = say
        self._objective = objective
        self._errors: dict[tuple[object, ...], float] = {}
        self._before, self._tasks = math.inf, 0
        if before is not None:
            self._before, self._tasks = before.value, FEW_TASKS
            ran = zip((before.winner, *before.others), (before.value, *before.others_values), strict=True)
            self._errors = {
                _kind(one): value / one.estimate[objective] for one, value in ran if value < math.inf
            }

    @property
    def least(self) -> float:
        """Least value of the objective so far."""
        return min((self._before, *(one.value(self._objective) for one in self.found if one.result)))

    def run(self, one: Candidate) -> None:
        """Run a plan."""
        found = run_candidate(one, self._config, self._objective, self._say, at_target)
        if found.result:
            self._errors[_kind(one)] = found.value(self._objective) / one.estimate[self._objective]
        if one.plan.axes.pp == 1:
            found = rescheduled(found, self._config, self._objective, self._say, at_target)
        self.found.append(found)

    def run_best(self, candidates: Sequence[Candidate], runs: int) -> None:
        """Run at most so many plans, as long as one promises less than the least so far."""
        waiting = list(candidates)
        tasks = self._tasks
        while waiting and (runs > 0 or tasks < FEW_TASKS):
            one = min(waiting, key=self._promise)
            waiting.remove(one)
            # Where steps are small the engine can run more of what the estimate's error leaves open.
            known = tasks >= FEW_TASKS and _kind(one) in self._errors
            known = known or task_count(self._config, one.plan, 1) > self._effort.long_tasks
            if self._promise(one) >= self.least * (1.0 - GAIN if known else 1.0 + DOUBT):
                continue
            self.run(one)
            runs -= 1
            result = self.found[-1].result
            tasks += len(result.graph.tasks) if result else 0

    def _promise(self, one: Candidate) -> float:
        return one.estimate[self._objective] * self._errors.get(_kind(one), 1.0)


def _kind(one: Candidate) -> tuple[object, ...]:
    """Return what plans share whose estimates err alike."""
    plan = one.plan
    policies = tuple(mode.policy for mode in one.modes)
    return plan.axes.pp > 1, plan.schedule.kind, plan.schedule.vpp > 1, plan.sharding.zero > 1, policies


def best_plan(
    system: System,
    config: TransformerConfig,
    base: Plan,
    *,
    objective: Objective = Objective.TIME,
    effort: Effort = USUAL,
    prices: Prices | None = None,
    fixed: Collection[str] = (),
    say: Say = lambda _: None,
) -> BestPlan:
    """Return the plan with which a system is fastest, or takes least energy or money, as the engine has it.

    Parameters
    ----------
    system : System
        The hardware.
    config, base : TransformerConfig, Plan
        The model, and what all plans share (batch, sequence length, precision).
    objective : Objective
        What is to be least.
    effort : Effort
        What is tried; whatever `USUAL` finds is run with `THOROUGH`, too.
    prices : Prices, optional
        Collectives that were priced before, for systems with the same fabric.
    fixed : collection of str
        Keys of `base` that stay as they are.
    say : callable
        Told what is done.

    Raises
    ------
    WorkloadError
        If no plan runs, with what leaves none.
    ParameterError
        If nobody gave the power or the prices of which the least is sought.
    """
    objective.check_told(system.fabric)
    say("estimating plans")
    trials = _Trials(config, effort, say, objective=objective)
    rank = partial(_ranking, system, config, prices=prices or Prices(), objective=objective, fixed=fixed)
    if effort == THOROUGH:
        trials.run_best(rank(base, USUAL).candidates, USUAL.runs)
    rankings = [
        rank(shared, dataclasses.replace(effort, choices=choices))
        for shared, choices in saving(base, effort.choices, effort.savings).items()
    ]
    done = {(one.plan, one.placement) for one in trials.found}
    every = (one for ranking in rankings for one in ranking.candidates)
    trials.run_best([one for one in every if (one.plan, one.placement) not in done], effort.runs)
    if not trials.found or math.isinf(trials.least):
        what = f"{config.name} on {system.accelerators:,} accelerators"
        refusals = [one.refusal for one in trials.found]
        raise WorkloadError(no_plan(what, rankings[0].rejected, refusals))
    return _best_of(trials.found, sum(one.ranked for one in rankings), objective)


def _best_of(found: Sequence[Candidate], ranked: int, objective: Objective) -> BestPlan:
    """Return the best of plans that were run or refused."""
    winner = min((one for one in found if one.result is not None), key=lambda one: one.value(objective))
    rest = [one for one in found if one is not winner]
    return BestPlan(
        winner=winner,
        objective=objective,
        value=winner.value(objective),
        step_time_s=winner.value(Objective.TIME),
        others=tuple(dataclasses.replace(one, result=None) for one in rest),
        others_values=_values(rest, objective),
        ranked=ranked,
    )


def _values(found: Sequence[Candidate], objective: Objective) -> tuple[float, ...]:
    """Return what plans took of an objective; infinite where the engine refused one."""
    return tuple(one.value(objective) if one.result else math.inf for one in found)


def with_siblings(
    system: System,
    config: TransformerConfig,
    best: BestPlan,
    winners: Sequence[Candidate],
    *,
    effort: Effort = USUAL,
    prices: Prices | None = None,
    say: Say = lambda _: None,
) -> BestPlan:
    """Return the best plan of a system among its own and those that are best on other systems.

    Parameters
    ----------
    system, config, effort, prices, say
        As `best_plan` takes them.
    best : BestPlan
        The system's own best plan.
    winners : sequence of Candidate
        Best plans of systems of as many accelerators.

    Notes
    -----
    Another fabric's or format's best plan may be one that the estimate ranks wrongly here. Run are those that
    promise less than what is reached, as among the system's own.
    """
    tried = {_shape(one.plan) for one in (best.winner, *best.others)}
    shapes = {_shape(one.plan): one for one in winners if _shape(one.plan) not in tried}
    if not shapes or not effort.siblings:
        return best
    lighted = lit_for_all(system, config)
    prices, base = prices or Prices(), system.planned(best.winner.plan)
    known: list[Candidate] = []
    for shape in shapes:
        plans = grid(base, system.accelerators, config.experts, {name: (value,) for name, value in shape})
        plans, _ = feasible(config, plans, system.node().memory.capacity_bytes)
        known += _best_of_each_kind(lighted, config, plans, prices=prices, objective=best.objective)
    trials = _Trials(config, effort, say, objective=best.objective, before=best)
    trials.run_best(known, effort.siblings)
    ran, values = trials.found, _values(trials.found, best.objective)
    if min(values, default=math.inf) >= best.value:
        more = tuple(dataclasses.replace(one, result=None) for one in ran)
        return dataclasses.replace(
            best, others=(*best.others, *more), others_values=(*best.others_values, *values)
        )
    return _before(best, ran)


def _before(best: BestPlan, ran: Sequence[Candidate]) -> BestPlan:
    """Return the best of plans that were run now, all that were run before among its others."""
    found = _best_of(ran, best.ranked, best.objective)
    return dataclasses.replace(
        found,
        others=(*found.others, dataclasses.replace(best.winner, result=None), *best.others),
        others_values=(*found.others_values, best.value, *best.others_values),
    )


def refined_plan(
    best: BestPlan,
    config: TransformerConfig,
    *,
    pieces: bool,
    limits: bool = False,
    say: Say = lambda _: None,
) -> BestPlan:
    """Return the best plan of a system with the pieces of gradients and the power limit that are best.

    `pieces` and `limits` are those of `refined`; other pieces must save `GAIN`.
    """
    found = refined(
        best.winner,
        config,
        best.objective,
        say,
        pieces=pieces,
        limits=limits,
        value=best.value,
        gain=GAIN,
        run=at_target,
    )
    if found.result is best.winner.result:  # nothing is better
        return dataclasses.replace(best, winner=found)
    return _before(best, [found])


def _shape(plan: Plan) -> tuple[tuple[str, int], ...]:
    """Return the columns of a plan, by which it is found again in a grid."""
    return (*((name, column_of(plan, name)) for name in COLUMNS if name != "placement"), ("placement", 0))


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
