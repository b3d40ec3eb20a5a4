"""Search for the best plan of one system: all plans are ranked by estimate, the most promising run.

`ranked` estimates a grid of plans in closed form and returns the best as `Candidate`s. `run_candidate` runs
one on the engine in each circuit mode that is worth it. `best_plan` does both within an `Effort`,
`with_siblings` tries plans that won on other systems, and `refined_plan` varies what the grid holds fixed.
"""

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
"""Estimates that differ by less than this share count as alike, and the plan with the fewest passes is run
first; a choice below the estimate's own error."""
SAME_SHARE = 1e-9
"""Share within which estimates of two placements are equal."""
FEW_TASKS, MOST_RUN = 8_192, 24
"""Tasks of all runs together, and number of plans, up to which more plans are run than were asked for."""
DOUBT = 0.03
"""Share by which a plan's estimate may exceed the best step so far and the plan still be run; a choice.
Of 205 best plans of their kinds (four models on four systems) eleven took less than their estimate by more
than this: the one with the least estimate of all, and ten with zero=3, the nearest 7 % behind the best."""
POWER_LIMIT = "gpu.chip.tdp_w"
"""Path of an accelerator's power limit."""
CLOSE_SHARE = 0.5
"""Share by which a circuit mode's estimate may exceed that of the best mode and the mode still be run."""

Say = Callable[[str], None]
"""Called with a short text on what is being done."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One plan on one fabric with its estimate and, once the engine has run it, its result."""

    system: System
    """The hardware."""
    topology: str
    """Name of the fabric, and of its variant."""
    plan: Plan
    """The plan."""
    placement: str
    """Order of the plan's axes, from the nearest ranks to the farthest."""
    estimate: Mapping[Objective, float]
    """Estimated step time in s, energy in J and cost in USD."""
    config: TransformerConfig
    """The model."""
    row: PlanArrays
    """The plan as the one row of a grid."""
    modes: tuple[CircuitMode, ...] = ()
    """Circuit modes that are worth a run; none where circuits do not move."""
    mode: CircuitMode | None = None
    """Circuit mode of the result."""
    result: StepResult | None = None
    """Step as the engine ran it."""
    refusal: str = ""
    """Error with which the engine refused it; empty if it did not."""
    power_limit_w: float | None = None
    """Best power limit of an accelerator; None where limits were not tried."""

    @cached_property
    def bound(self) -> StepBound:
        """Lower bound of the step."""
        return bound_of(self.system, PlanPricer(self.config, self.system.node()), self.row)

    @property
    def words(self) -> str:
        """The plan in a short form, with its power limit if limits were tried."""
        limit = "" if self.power_limit_w is None else f" at {self.power_limit_w:g} W"
        return plan_words(self.plan) + limit

    def value(self, objective: Objective) -> float:
        """Return time in s, energy in J or cost in USD of the run; of the estimate if it was not run."""
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
    """Return time in s, energy in J or cost in USD of a step as text with its unit."""
    if objective is Objective.COST:
        return tokens_price(value)
    return format_si(value, "s" if objective is Objective.TIME else "J")


Run = Callable[[System, TransformerConfig, Plan, str], StepResult]
"""Runs a plan of a model on a system in a placement: `as_it_is` or `at_target`."""


def _step_runs(system: System, config: TransformerConfig, plan: Plan, placement: str) -> StepRuns:
    """Return the compiled step of a plan; check the plan first, as building a large step takes time."""
    plan = system.planned(plan)
    check(config, plan, accelerators=system.accelerators)
    check_fits(config, plan, system.node().memory.capacity_bytes)
    return _built_step(config, plan, placement)


@lru_cache(maxsize=4)
def _built_step(config: TransformerConfig, plan: Plan, placement: str) -> StepRuns:
    return StepRuns(step_graph(config, plan, placement), runs=SEARCHED)


def as_it_is(system: System, config: TransformerConfig, plan: Plan, placement: str) -> StepResult:
    """Return a step on a system with its laser power unchanged."""
    runs = _step_runs(system, config, plan, placement)
    return run_step(system, config, plan, placement=placement, runs=runs)


def at_target(system: System, config: TransformerConfig, plan: Plan, placement: str) -> StepResult:
    """Return a step on a system with the laser power that its precision target needs for this plan."""
    runs = _step_runs(system, config, plan, placement)
    return run_at_target(system, config, plan, placement=placement, runs=runs)


def run_candidate(
    one: Candidate, config: TransformerConfig, objective: Objective, say: Say, run: Run = as_it_is
) -> Candidate:
    """Run a candidate in each of its circuit modes, and return it with the best result or the refusal."""
    ran: list[Candidate] = []
    refusal = ""
    for mode in one.modes or (None,):
        say(plan_text(one.plan) + (f", circuits {mode}" if mode else ""))
        try:
            system = in_mode(one.system, mode)
            result = run(system, config, one.plan, one.placement)
        except HeliographError as error:
            refusal = str(error)
        else:
            ran.append(dataclasses.replace(one, system=system, mode=mode, result=result))
    if not ran:
        return dataclasses.replace(one, refusal=refusal)
    return min(ran, key=lambda candidate: candidate.value(objective))


def rescheduled(
    one: Candidate, config: TransformerConfig, objective: Objective, say: Say, run: Run = as_it_is
) -> Candidate:
    """Run a candidate also with the pipeline schedules that have no estimate; return the best.

    These are all registered schedules that flush after every step and are not in the grid of ranked plans;
    those that break a rule or do not fit the memory are skipped. Schedules that save memory are registered in
    the order of their bubbles (Qi et al., arXiv:2405.15362): all after the first that fits are skipped, also
    where that one (ZB-V) was ranked.
    """
    if one.result is None:
        return one
    if one.plan.axes.pp == 1:
        return _all_forward_first(one, config, objective, say, run)
    ran = [one]
    memory_saved = False
    for schedule in SCHEDULES.values():
        excluded = schedule in CHOSEN["schedule"] or schedule.flows
        if memory_saved if schedule.saves_memory else excluded:
            continue
        try:
            plan = one.system.planned(one.plan.with_(schedule=schedule, vpp=1))
            check(config, plan, accelerators=one.system.accelerators)
            check_fits(config, plan, one.system.node().memory.capacity_bytes)
            memory_saved = memory_saved or schedule.saves_memory
            if not excluded:
                say(f"the same with {schedule}")
                ran.append(_replanned(one, config, plan, run))
        except HeliographError:
            continue
    return min(ran, key=lambda candidate: candidate.value(objective))


BUCKETS = (1, 2, 4, 8, 16, 32)
"""Numbers of pieces of a stage's gradients (``grad_buckets``) that are tried for the best plan; a choice."""
LIMITS = (90, 80, 70, 60, 50)
"""Power limits of an accelerator, in per cent of its own, that are tried for the best plan; a choice. Far
below them a GPU's voltage no longer falls with its clock, as it does in this model."""


def check_limits(objective: Objective) -> None:
    """Refuse a search of power limits for the least time, as no lower limit shortens a step."""
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
    """Return a candidate with the best number of gradient pieces and the best power limit.

    Parameters
    ----------
    one : Candidate
        A plan that was run.
    config, objective, say, run
        As `run_candidate` takes them.
    pieces : bool
        Whether other numbers of gradient pieces (`BUCKETS`) are tried. More pieces hide more of the sums
        behind the backward pass, but each starts the communication library once more.
    limits : bool
        Whether lower power limits of its accelerators (`LIMITS`) are tried. Photonic accelerators are sized
        anew for each.
    value : float, optional
        Objective of the candidate, where it comes without its result.
    gain : float
        Share of the objective that another number of pieces must save.
    """
    best, least = one, one.value(objective) if value is None else value
    if pieces and not any(idle(config, one.plan.with_(grad_buckets=1), ("grad_buckets",))):

        def run_pieces(numbers: Sequence[int]) -> Iterator[Candidate]:
            for number in numbers:
                say(f"the best one with grad_buckets={number}")
                yield _replanned(one, config, one.plan.with_(grad_buckets=number), run)

        present = one.plan.traffic.grad_buckets
        more = [number for number in BUCKETS if number > present]
        fewer = [number for number in reversed(BUCKETS) if number < present]
        better = _descend(one, least, objective, run_pieces(more))
        if better is one:
            better = _descend(one, least, objective, run_pieces(fewer))
        if better is not one and better.value(objective) < least * (1.0 - gain):
            best, least = better, better.value(objective)
    if not limits:
        return best
    full_w = one.system.gpu.chip.tdp_w
    unlimited = dataclasses.replace(best, power_limit_w=full_w)

    def run_limits() -> Iterator[Candidate]:
        for percent in LIMITS:
            limit_w = full_w * percent / 100.0
            say(f"the best one at {limit_w:g} W")
            system = unlimited.system.with_({POWER_LIMIT: limit_w})
            result = run(system, config, unlimited.plan, unlimited.placement)
            yield dataclasses.replace(unlimited, system=system, result=result, power_limit_w=limit_w)

    return _descend(unlimited, least, objective, run_limits())


def _descend(start: Candidate, least: float, objective: Objective, runs: Iterable[Candidate]) -> Candidate:
    """Return the last of a series of runs before the objective stops falling, or a run is refused.

    `least` is the objective of `start`, which is returned if already the first run is not better.
    """
    best = start
    with contextlib.suppress(HeliographError):
        for candidate in runs:
            if not candidate.value(objective) < least:
                break
            best, least = candidate, candidate.value(objective)
    return best


def _replanned(one: Candidate, config: TransformerConfig, plan: Plan, run: Run) -> Candidate:
    """Run another plan in place of a candidate's."""
    return dataclasses.replace(one, plan=plan, result=run(one.system, config, plan, one.placement))


def _all_forward_first(
    one: Candidate, config: TransformerConfig, objective: Objective, say: Say, run: Run
) -> Candidate:
    """Run a candidate of one stage also with all forward passes first (GPipe); return the better.

    With sharded gradients, gathers and sums of every microbatch share a channel during a backward pass;
    forward passes in a row leave the sums more room. Schedules that split backward passes are never quicker
    on one stage.
    """
    if one.plan.sharding.zero < 2 or one.plan.microbatches == 1:
        return one
    say(f"the same with {GPIPE}")
    try:
        other = _replanned(one, config, one.plan.with_(schedule=GPIPE), run)
    except HeliographError:  # most likely the activations of all microbatches do not fit
        return one
    return min(one, other, key=lambda candidate: candidate.value(objective))


def in_mode(system: System, mode: CircuitMode | None) -> System:
    """Return a system whose circuits follow a mode; the system itself if there is none."""
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
    """Return the plans of least estimate on one topology as candidates, the best first.

    Parameters
    ----------
    name : str
        Name of the topology.
    system : System
        The hardware.
    pricer : PlanPricer
        Prices of work on its accelerator.
    plans : PlanArrays
        Plans that break no rule.
    objective : Objective
        Quantity to minimise.
    top : int, optional
        Number of plans, to which the best one with pipeline stages is added if none has any. More are
        returned, up to `MOST_RUN`, where all together have few tasks. By default the `EACH_KIND` best of each
        kind of pipeline (schedule, interleaved or not, sharded parameters or not) are returned, as estimates
        of one kind err alike.
    prices, ways
        As `heliograph.comparison.plan_estimates.estimates` takes them.
    close : float
        Share by which a circuit mode's estimate may exceed that of the best mode and the mode still be run.
    """
    if not len(plans):
        return []
    prices = prices or Prices()
    priced = price_best(system, pricer, plans, objective, prices=prices, ways=ways)
    plans, estimated = priced.plans, priced.found
    values = estimated.values[objective]
    if not np.isfinite(values).any():
        return []
    passes = plans["pp"].astype(np.int64) * plans.microbatches * plans["vpp"]
    if top is None:
        order = _best_by_kind(plans, values, passes)
    else:
        order = _best_overall(pricer.config, plans, values, passes, top)
    return [
        Candidate(
            system=system,
            topology=name,
            plan=plans.plan(int(row)),
            placement=plans.placement(int(row)),
            estimate={one: float(column[row]) for one, column in estimated.values.items()},
            config=pricer.config,
            row=plans.taken(np.array([row])),
            modes=estimated.close(int(row), close),
        )
        for row in order[np.isfinite(values[order])]
    ]


def _levels(values: np.ndarray, share: float) -> np.ndarray:
    """Return values in whole steps of a share above the least one; those on one level count as alike."""
    return np.floor(np.log(values / values.min()) / share).astype(np.int64)


def _best_overall(
    config: TransformerConfig, plans: PlanArrays, values: np.ndarray, passes: np.ndarray, top: int
) -> np.ndarray:
    """Return the rows of least value; of values that are alike (`NEAR_SHARE`) those of fewest passes first.

    Of placements in which a plan has the same value only the first is kept. Where steps are small, more than
    `top` rows are returned, since the engine can then settle what the estimate's error leaves open.
    """
    finite = np.isfinite(values)
    level = np.full(len(plans), np.iinfo(np.int64).max)
    level[finite] = _levels(values[finite], NEAR_SHARE)
    in_order = np.lexsort((np.arange(len(plans)), values, passes, level))[: int(finite.sum())]
    first = in_order[: len(PLACEMENTS) * max(top, MOST_RUN)]
    same = [plans[name][first] for name in COLUMNS if name != "placement"]
    same.append(np.round(np.log(values[first]) / SAME_SHARE))
    first = first[np.sort(np.unique(np.column_stack(same), axis=0, return_index=True)[1])]
    runnable = plans.taken(first[:MOST_RUN])
    tasks = np.cumsum(task_count(config, runnable.array_plan, plans.base.steps_in_run))
    few = int((np.broadcast_to(tasks, len(runnable)) <= FEW_TASKS).sum())
    best = first[: max(top, 1, few)]
    # Schedules that are not ranked may do more for a plan with stages than its estimate says.
    staged = in_order[plans["pp"][in_order] > 1][:1]
    return np.concatenate([best, staged[~np.isin(staged, best)]])


def _best_by_kind(plans: PlanArrays, values: np.ndarray, passes: np.ndarray) -> np.ndarray:
    """Return the `EACH_KIND` best rows of each kind of pipeline, by value.

    Of those that are alike (`ALIKE`) only the one of fewest passes is kept.
    """
    staged = plans["pp"] > 1
    kinds = np.where(staged, 1 + plans["schedule"] * 2 + (plans["vpp"] > 1), 0) * 2 + (plans["zero"] > 1)
    best: list[int] = []
    for kind in np.unique(kinds):
        rows = np.flatnonzero((kinds == kind) & np.isfinite(values))
        if not len(rows):
            continue
        level = _levels(values[rows], ALIKE)
        rows = rows[np.lexsort((values[rows], passes[rows], level))]
        _, first = np.unique(np.sort(level), return_index=True)
        best += rows[first[:EACH_KIND]].tolist()
    return np.array(sorted(best, key=lambda row: values[row]), dtype=int)


NO_SAVING: Mapping[str, bool] = MappingProxyType({})
"""No change: activations are recomputed as the plan says."""
SAVINGS: tuple[Mapping[str, bool], ...] = (
    NO_SAVING,
    MappingProxyType({"recompute_activation": True}),
    MappingProxyType({"recompute_activation": True, "recompute_norms": True}),
)
"""Plan keys that recompute single cheap operators, as Llama 3 and DeepSeek-V3 did; results stay exact."""


def saving(
    base: Plan, choices: Mapping[str, tuple[int, ...]], savings: Sequence[Mapping[str, bool]]
) -> dict[Plan, Mapping[str, tuple[int, ...]]]:
    """Return the base plan under each saving, with the column values to try with it.

    With a saving, whole blocks are not recomputed.
    """
    no_blocks = {"recompute": (RECOMPUTES.index(Recompute.NONE),)}
    return {base.with_(**keys): {**choices, **(no_blocks if keys else {})} for keys in savings}


def searched(system: System, base: Plan, fixed: Collection[str] = ()) -> Plan:
    """Return the base of all plans that a search tries; in fp8, weights are held in fp8 alone.

    That takes less memory and traffic, and products have the same operands. Where ``fp8_params`` is among the
    fixed keys, it stays as it is.
    """
    plan = system.planned(base)
    fp8_alone = "fp8_params" not in fixed and plan.precision.takes_fp8_params and not quantised(plan)
    return plan.with_(fp8_params=True) if fp8_alone else plan


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Size of the search that every system of a comparison gets."""

    choices: Mapping[str, tuple[int, ...]] = field(hash=False)
    """Values of plan columns to try, in place of `workloads.search.plans.CHOICES`."""
    runs: int
    """Most plans that the engine runs; fewer if no other promises to be faster than the best so far."""
    most_tasks: int
    """Tasks of a step beyond which a plan is left out, unless every plan has more."""
    long_tasks: int
    """Tasks of a step beyond which a plan is run only if it promises to gain, without `DOUBT`."""
    siblings: int = 2
    """Most plans run on a system because they won on another."""
    savings: tuple[Mapping[str, bool], ...] = field(default=(NO_SAVING,), hash=False)
    """Savings to try, of `SAVINGS`."""
    pieces: bool = True
    """Whether other numbers of gradient pieces are tried for the best plan."""


USUAL = Effort(
    choices={"placement": (0,), "micro_batch": (1, 2, 4), "schedule": (0, 2, 3, 4, 5), "zero": (0, 1, 3)},
    runs=5,
    most_tasks=150_000,
    long_tasks=40_000,
)
"""Default search, which takes a minute or two. Only the placement of a plan's text is tried, so that
`heliograph step` runs the same; GPipe is left out, since 1F1B has its bubble and keeps fewer activations."""
THOROUGH = Effort(
    choices={**USUAL.choices, "micro_batch": (1, 2, 4, 8), "zero": (0, 1, 2, 3)},
    runs=16,
    most_tasks=262_144,
    long_tasks=262_144,
    siblings=8,
    savings=SAVINGS,
)
"""Search that may take ten minutes; it also runs whatever the default one finds."""
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
"""First look: one run per system, no long step, no recomputation."""
CLOSE_WAYS = 0.03
"""`CLOSE_SHARE` of a comparison."""
GAIN = 0.005
"""Share that a plan must promise to save on the best step so far, if the engine has run one of its kind
already or would take long; a choice. It is the gap to the optimum that a search leaves knowingly."""
EACH_KIND = 12
"""Plans of a kind of pipeline that may be run; they differ by more than `ALIKE`."""
ALIKE = 0.002
"""Share within which estimates of a kind are alike and only the plan of fewest passes is kept; a choice."""
SEARCHED = 16
"""Runs of a step that a search expects, for `StepRuns`: enough for the event loop to be compiled."""


@dataclass(frozen=True, kw_only=True)
class BestPlan:
    """Best plan of a system, with the other plans that were run."""

    winner: Candidate
    """Plan of the least objective that the engine ran."""
    objective: Objective
    """Quantity that was minimised."""
    value: float
    """Objective of its step: time in s, energy in J or cost in USD."""
    step_time_s: float
    """Time of its step."""
    others: tuple[Candidate, ...]
    """Other plans that the engine ran or refused, without their results."""
    others_values: tuple[float, ...]
    """Objective of each of them; infinite where the engine refused it."""
    ranked: int
    """Number of plans that were ranked by estimate."""

    def for_siblings(self, effort: Effort) -> tuple[Candidate, ...]:
        """Return the plans that other systems try: those within `DOUBT` of the best, with `THOROUGH` all."""
        most = math.inf if effort == THOROUGH else self.value * (1.0 + DOUBT)
        near = (one for one, value in zip(self.others, self.others_values, strict=True) if value <= most)
        return tuple(dataclasses.replace(one, result=None) for one in (self.winner, *near))

    def without_result(self) -> BestPlan:
        """Return a copy without the winner's trace and tasks, which are large."""
        return dataclasses.replace(self, winner=dataclasses.replace(self.winner, result=None))

    def record(self) -> dict[str, Any]:
        """Return the search's outcome as plain data, SI throughout."""
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
        """Step of the winner."""
        if self.winner.result is None:
            msg = "the best plan of a system was not run"
            raise WorkloadError(msg)
        return self.winner.result


@dataclass(frozen=True, kw_only=True)
class _Ranking:
    """Result of ranking the plans of a system by estimate."""

    candidates: list[Candidate]
    """Best plans of each kind of pipeline."""
    ranked: int
    """Number of plans that were ranked."""
    rejected: Mapping[str, int]
    """Numbers of plans left out, by the first reason."""


@lru_cache(maxsize=4)
def _feasible_grid(
    config: TransformerConfig, base: Plan, accelerators: int, capacity_bytes: float, effort: Effort
) -> tuple[PlanArrays, Mapping[str, int]]:
    """Return the plans of an effort that break no rule, fit the memory and have few enough tasks.

    The second value counts the plans that break a rule or do not fit, by reason.
    """
    every = grid(base, accelerators, config.experts, effort.choices)
    plans, rejected = feasible(config, every, capacity_bytes)
    if len(plans):
        tasks = np.broadcast_to(task_count(config, plans.array_plan, base.steps_in_run), len(plans))
        plans = plans.taken(tasks <= max(effort.most_tasks, int(tasks.min())))
    return plans, rejected


def _rank(
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
    plans, rejected = _feasible_grid(config, shared, system.accelerators, capacity_bytes, effort)
    candidates = _rank_on_request(
        lit_for_all(system, config), config, plans, prices=prices, objective=objective
    )
    return _Ranking(candidates=candidates, ranked=len(plans), rejected=rejected)


def _rank_on_request(
    system: System, config: TransformerConfig, plans: PlanArrays, *, prices: Prices, objective: Objective
) -> list[Candidate]:
    """Return the best plans of each kind, with circuits that turn on request only."""
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
    """Runs of a system's candidates on the engine, the most promising first.

    Estimates of one kind of plan (schedule, interleaved or not, sharded parameters or not, circuit policies)
    err alike. A plan's *promise* is therefore its estimate times what the last run of its kind took over its
    own estimate. A plan is run only if its promise is below the best value so far: by `GAIN` where its kind's
    error is known, else up to `DOUBT` above it.

    Parameters
    ----------
    config : TransformerConfig
        The model.
    effort : Effort
        Size of the search.
    say : callable
        Called with what is being done.
    objective : Objective
        Quantity to minimise.
    before : BestPlan, optional
        Outcome of an earlier search on the same system, whose runs count.
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
        self.ran: list[Candidate] = []
        """Candidates that were run or refused."""
        self._effort = effort
        self._config = config
        self._say = say
        self._objective = objective
        self._errors: dict[tuple[object, ...], float] = {}
        """Value over estimate of the last run of each kind."""
        self._value_before, self._tasks_before = math.inf, 0
        if before is not None:
            self._value_before, self._tasks_before = before.value, FEW_TASKS
            ran = zip((before.winner, *before.others), (before.value, *before.others_values), strict=True)
            self._errors = {
                _kind(one): value / one.estimate[objective] for one, value in ran if value < math.inf
            }

    @property
    def least(self) -> float:
        """Best value of the objective so far."""
        return min((self._value_before, *(one.value(self._objective) for one in self.ran if one.result)))

    def run(self, one: Candidate) -> Candidate:
        """Run a candidate and return it with its result or refusal."""
        ran = run_candidate(one, self._config, self._objective, self._say, at_target)
        if ran.result:
            self._errors[_kind(one)] = ran.value(self._objective) / one.estimate[self._objective]
        if one.plan.axes.pp == 1:
            ran = rescheduled(ran, self._config, self._objective, self._say, at_target)
        self.ran.append(ran)
        return ran

    def run_best(self, candidates: Sequence[Candidate], runs: int) -> None:
        """Run the most promising candidates, at most `runs`, but more while all have few tasks together."""
        waiting = list(candidates)
        tasks = self._tasks_before
        while waiting and (runs > 0 or tasks < FEW_TASKS):
            one = min(waiting, key=self._promise)
            waiting.remove(one)
            # Where steps are small the engine can settle what the estimate's error leaves open.
            known = tasks >= FEW_TASKS and _kind(one) in self._errors
            known = known or task_count(self._config, one.plan, 1) > self._effort.long_tasks
            if self._promise(one) >= self.least * (1.0 - GAIN if known else 1.0 + DOUBT):
                continue
            result = self.run(one).result
            runs -= 1
            tasks += len(result.graph.tasks) if result else 0

    def _promise(self, one: Candidate) -> float:
        return one.estimate[self._objective] * self._errors.get(_kind(one), 1.0)


def _kind(one: Candidate) -> tuple[object, ...]:
    """Return the traits that plans share whose estimates err alike."""
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
    """Return the plan of least step time, energy or cost on a system, as the engine runs it.

    Parameters
    ----------
    system : System
        The hardware.
    config : TransformerConfig
        The model.
    base : Plan
        Plan that gives all plans their batch, sequence length, precision and other keys that are not tried.
    objective : Objective
        Quantity to minimise.
    effort : Effort
        Size of the search; `THOROUGH` also runs whatever `USUAL` does.
    prices : Prices, optional
        Cache of priced collectives, to share among systems of one fabric.
    fixed : collection of str
        Keys of `base` that stay as they are.
    say : callable
        Called with what is being done.

    Raises
    ------
    WorkloadError
        If no plan runs; it says which rules leave none.
    ParameterError
        If the least energy or cost is sought and the fabric has no power or no prices.
    """
    objective.check_told(system.fabric)
    say("estimating plans")
    trials = _Trials(config, effort, say, objective=objective)
    rank = partial(_rank, system, config, prices=prices or Prices(), objective=objective, fixed=fixed)
    if effort == THOROUGH:
        trials.run_best(rank(base, USUAL).candidates, USUAL.runs)
    rankings = [
        rank(shared, dataclasses.replace(effort, choices=choices))
        for shared, choices in saving(base, effort.choices, effort.savings).items()
    ]
    done = {(one.plan, one.placement) for one in trials.ran}
    every = (one for ranking in rankings for one in ranking.candidates)
    trials.run_best([one for one in every if (one.plan, one.placement) not in done], effort.runs)
    if not trials.ran or math.isinf(trials.least):
        subject = f"{config.name} on {system.accelerators:,} accelerators"
        refusals = [one.refusal for one in trials.ran]
        raise WorkloadError(no_plan(subject, rankings[0].rejected, refusals))
    return _best_of(trials.ran, sum(one.ranked for one in rankings), objective)


def _best_of(ran: Sequence[Candidate], ranked: int, objective: Objective) -> BestPlan:
    """Return the best of candidates that were run or refused."""
    winner = min((one for one in ran if one.result is not None), key=lambda one: one.value(objective))
    rest = [one for one in ran if one is not winner]
    return BestPlan(
        winner=winner,
        objective=objective,
        value=winner.value(objective),
        step_time_s=winner.value(Objective.TIME),
        others=tuple(dataclasses.replace(one, result=None) for one in rest),
        others_values=_values(rest, objective),
        ranked=ranked,
    )


def _values(ran: Sequence[Candidate], objective: Objective) -> tuple[float, ...]:
    """Return the objective of each candidate's run; infinite where the engine refused it."""
    return tuple(one.value(objective) if one.result else math.inf for one in ran)


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
    """Run on a system the plans that are best on other systems; return the best of these and its own.

    Parameters
    ----------
    system, config, effort, prices, say
        As `best_plan` takes them.
    best : BestPlan
        The system's own best plan.
    winners : sequence of Candidate
        Best plans of systems with as many accelerators.

    Notes
    -----
    The best plan of another fabric or number format may be one that the estimate ranks wrongly here. Those
    are run that promise less than the best so far, as in `best_plan`.
    """
    tried = {_shape(one.plan) for one in (best.winner, *best.others)}
    shapes = {_shape(one.plan): one for one in winners if _shape(one.plan) not in tried}
    if not shapes or not effort.siblings:
        return best
    lit = lit_for_all(system, config)
    prices, base = prices or Prices(), system.planned(best.winner.plan)
    candidates: list[Candidate] = []
    for shape in shapes:
        plans = grid(base, system.accelerators, config.experts, {name: (value,) for name, value in shape})
        plans, _ = feasible(config, plans, system.node().memory.capacity_bytes)
        candidates += _rank_on_request(lit, config, plans, prices=prices, objective=best.objective)
    trials = _Trials(config, effort, say, objective=best.objective, before=best)
    trials.run_best(candidates, effort.siblings)
    values = _values(trials.ran, best.objective)
    if min(values, default=math.inf) >= best.value:
        more = tuple(dataclasses.replace(one, result=None) for one in trials.ran)
        return dataclasses.replace(
            best, others=(*best.others, *more), others_values=(*best.others_values, *values)
        )
    return _superseded(best, trials.ran)


def _superseded(best: BestPlan, ran: Sequence[Candidate]) -> BestPlan:
    """Return the best of new runs, with the former best and all its others among the others."""
    newer = _best_of(ran, best.ranked, best.objective)
    return dataclasses.replace(
        newer,
        others=(*newer.others, dataclasses.replace(best.winner, result=None), *best.others),
        others_values=(*newer.others_values, best.value, *best.others_values),
    )


def refined_plan(
    best: BestPlan,
    config: TransformerConfig,
    *,
    pieces: bool,
    limits: bool = False,
    say: Say = lambda _: None,
) -> BestPlan:
    """Return a best plan with the best number of gradient pieces and the best power limit.

    `pieces` and `limits` say which of them are tried, as in `refined`; another number of pieces must save
    `GAIN`.
    """
    better = refined(
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
    if better.result is best.winner.result:  # no other one is better
        return dataclasses.replace(best, winner=better)
    return _superseded(best, [better])


def _shape(plan: Plan) -> tuple[tuple[str, int], ...]:
    """Return the columns of a plan and their values, which select it in a grid of any system."""
    return (*((name, column_of(plan, name)) for name in COLUMNS if name != "placement"), ("placement", 0))


def no_plan(model: str, rejected: Mapping[str, int], refusals: Sequence[str]) -> str:
    """Return the message that no plan of a model runs, with the reasons.

    Parameters
    ----------
    model : str
        Name of the model, with the accelerators where they are known.
    rejected : mapping
        Numbers of plans left out by their first reason, in the order in which reasons were checked.
    refusals : sequence of str
        Errors of the engine for the plans that were left; they are named rather than the reasons.
    """
    reasons = [f"{count:,} ({reason})" for reason, count in rejected.items() if count]
    errors = list(dict.fromkeys(error for error in refusals if error))
    advice = "try more accelerators, another global_batch or another fabric"
    if errors:
        return f"no plan of {model} runs: {'; '.join(errors)}; {advice}"
    if not reasons:
        return f"no plan of {model} runs: the fabric carries none; {advice}"
    earlier = f"{', '.join(reasons[:-1])} and " if reasons[1:] else ""
    return f"no plan of {model} runs; ruled out are {earlier}the last {reasons[-1]}; {advice}"
