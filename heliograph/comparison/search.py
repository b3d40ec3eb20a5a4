"""Search for the best plan, placement and fabric of a model on one system (`heliograph search`).

All plans are ranked by estimate on every variant of the fabric, the best of each are run on the engine, and
the winner is refined and run again on the reference engine.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from heliograph.comparison.plan_estimates import Objective, Prices, feasible
from heliograph.comparison.plan_search import (
    NO_SAVING,
    SAVINGS,
    Candidate,
    check_limits,
    no_plan,
    ranked,
    refined,
    rescheduled,
    run_candidate,
    saving,
    searched,
    told_value,
)
from heliograph.processes import OnProgress, unheard
from heliograph.report import Tabular, format_si
from heliograph.simulation import lit_for_all, system_of
from heliograph.systems.system import System
from heliograph.workload import (
    ModelLike,
    check_format_used,
    keys_text,
    know_offered_schedules,
    plan_keys,
    shared_plan,
)
from heliograph.workload import model as model_of
from simulator.engine.simulation import Simulation
from simulator.errors import ParameterError, WorkloadError, member_named, nearest
from simulator.fabric import CircuitPolicy
from simulator.results import summarise
from workloads.models.architecture import TransformerConfig
from workloads.pipeline.schedule import Pipeline, Schedule
from workloads.pipeline.schedules import GPIPE, ONE_FORWARD_ONE_BACKWARD
from workloads.plan.plan import Plan, plan_text, plan_words
from workloads.search.costs import PlanPricer
from workloads.search.plans import CHOSEN, COLUMNS, PlanArrays, column_of, grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULT_TOP = 3
"""Plans that the engine runs on each topology by default."""
MOST_CHECKED, MOST_TURNED = 200_000, 20_000
"""Most tasks of a step with which the best plan is run again on the reference engine, about half a minute;
a choice. The first number is for fixed networks and standing circuits, the second for circuits that turn."""
LEAST_TOLD = 1e-3
"""Share by which a plan must be worse than the best to be compared with it as the next one; a choice."""


@dataclass(kw_only=True, repr=False)
class Search(Tabular):
    """Result of a search, filled while it runs, so that an interruption loses nothing finished."""

    model: str
    """Name of the model."""
    objective: Objective
    """Quantity that is minimised."""
    rejected: dict[str, int] = field(default_factory=dict)
    """Number of plans left out on each topology, by the first rule that they break."""
    ranked: int = 0
    """Number of plans that were estimated, over all topologies."""
    unplaced: dict[str, str] = field(default_factory=dict)
    """Reason of each topology that could not be built, by its name."""
    waiting: list[Candidate] = field(default_factory=list)
    """Candidates that the engine has yet to run."""
    found: list[Candidate] = field(default_factory=list)
    """Candidates that the engine has run or refused."""
    checked: float | None = None
    """Winner's step time on the reference engine over that of its result; None if that takes too long."""

    def keep(self, one: Candidate) -> None:
        """Add a candidate that was run; two may become the same with their best schedule, and count once."""
        if _identity(one) not in {_identity(other) for other in self.found}:
            self.found.append(one)

    @property
    def winner(self) -> Candidate:
        """Best candidate that was run; a `WorkloadError` if none ran."""
        ran = [one for one in self.found if one.result is not None]
        if not ran:
            refusals = [one.refusal for one in self.found]
            refusals += [f"{name}: {why}" for name, why in self.unplaced.items()]
            raise WorkloadError(no_plan(self.model, self.rejected, refusals))
        return min(ran, key=lambda one: one.value(self.objective))

    @property
    def ordered(self) -> list[Candidate]:
        """Candidates that were run, the best first, then those that the engine refused."""
        return sorted(self.found, key=lambda each: (each.result is None, each.value(self.objective)))

    def record(self) -> dict[str, Any]:
        """Return the search as plain data, SI; candidates not run yet stand under ``waiting``."""
        return {
            "model": self.model,
            "objective": str(self.objective),
            "ranked": self.ranked,
            "rejected": self.rejected,
            "not_tried": self.unplaced,
            "next_less_best_s": self.next_by_part(),
            "reference_over_found": self.checked,
            "found": [one.record() for one in self.ordered],
            "waiting": [one.record() for one in self.waiting],
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each candidate that was run or refused, the best first."""
        return [candidate_row(one) for one in self.ordered]

    def plot(self) -> Figure:
        """Return a figure of the parts of time and energy of the plans that were run, the best first."""
        from heliograph.figures import step_figure  # noqa: PLC0415 - matplotlib takes its time

        ran = [(plan_words(one.plan), one.result.record()) for one in self.ordered if one.result is not None]
        return step_figure([record | {"system": name} for name, record in ran])

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return the summary that is printed: the winner, then the other plans that were run."""
        winner = self.winner
        title = f"Best of {self.ranked:,} plans of {self.model}"
        lines = [
            (title, f"{value_text(winner, self.objective)} by {self.objective} on {winner.system.name}"),
            ("plan", plan_text(winner.plan)),
            *([("power limit", f"{winner.power_limit_w:g} W")] if winner.power_limit_w else []),
            ("placement", f"{winner.placement}, nearest first"),
            ("most time", binding(winner)),
            ("bound", f"{format_si(winner.bound.step_time_s, 's')}, {winner.bound.what}"),
        ]
        return lines + [
            (value_text(one, self.objective), one.words) for one in self.ordered[1:] if one.result
        ]

    def best_and_next(self) -> tuple[Candidate, Candidate] | None:
        """Return the best plan and the next that is worse by at least `LEAST_TOLD`; None if none was run."""
        ran = [one for one in self.ordered if one.result is not None]
        least = ran[0].value(self.objective) * (1.0 + LEAST_TOLD) if ran else 0.0
        worse = [one for one in ran if one.value(self.objective) > least]
        return (ran[0], worse[0]) if worse else None

    def next_by_part(self) -> dict[str, float]:
        """Return the step time of the next plan less that of the best, by part, in s, the largest first."""
        results = [
            one.result.time_by_category_s for one in self.best_and_next() or () if one.result is not None
        ]
        if not results:
            return {}
        best, second = results
        parts = {part: second.get(part, 0.0) - best.get(part, 0.0) for part in (*best, *second)}
        return dict(sorted(parts.items(), key=lambda one: -abs(one[1])))


def value_text(one: Candidate, objective: Objective) -> str:
    """Return time, energy or cost of a candidate's step as text with its unit."""
    return told_value(one.value(objective), objective)


def binding(one: Candidate) -> str:
    """Return the part that takes most of a plan's step, with its share."""
    if one.result is None:
        return "not run"
    parts = one.result.time_by_category_s
    most = max(parts, key=lambda part: parts[part])
    return f"{most}, {parts[most] / one.result.step_time_s:.0%} of the step"


def candidate_row(one: Candidate) -> dict[str, Any]:
    """Return a candidate as a flat row: estimated and simulated time, energy and cost, and its bound."""
    row = one.record()
    estimated, simulated = row.pop("estimate"), row.pop("engine") or {}
    row |= {f"estimated_{name}": value for name, value in estimated.items()}
    return row | {f"simulated_{one.column}": simulated.get(one.column) for one in Objective}


def topologies(system: System) -> dict[str, System]:
    """Return the system, as it is and with every variant of its fabric, by the topology's name.

    Notes
    -----
    Numbers of lanes and degrees change the fabric's cost and power, sides and twists of a torus do not. Which
    nodes circuits join is no variant: fabrics lay circuits out for the traffic of each plan (TotientPerms,
    matchings).
    """
    fabric = system.fabric
    variants = {f"{fabric.name}, {name}": variant for name, variant in fabric.variants().items()}
    return {fabric.name: system} | {
        name: dataclasses.replace(system, fabric=variant) for name, variant in variants.items()
    }


RANKED_STAGES = 4
"""Stages of the pipeline in which `ranked_as` looks up the activations that a schedule keeps; times the
schedule's `multiple`."""


def ranked_as(kind: Schedule) -> Schedule:
    """Return the schedule whose estimate stands for a schedule: itself, if it has one.

    Notes
    -----
    Other schedules are ranked as 1F1B, or, if one of their stages keeps activations of more microbatches than
    any of 1F1B's does, as GPipe, which has the same bubble. Plans that fit only because their own schedule
    keeps fewer are left out.
    """
    if kind in CHOSEN["schedule"]:
        return kind
    stages = RANKED_STAGES * kind.multiple
    least = max(2 * stages, kind.least_microbatches.of(stages))
    pipeline = Pipeline(schedule=kind, stages=stages, microbatches=-(-least // kind.multiple) * kind.multiple)
    layers = (1.0 / pipeline.chunks,) * pipeline.chunks
    most = max(pipeline.kept(stage, layers) for stage in range(stages))
    return ONE_FORWARD_ONE_BACKWARD if most <= stages else GPIPE


def pinned(text: str, base: Plan) -> dict[str, tuple[int, ...]]:
    """Return the plan columns that a text names, each with its single value, as choices of a grid.

    A schedule is replaced by the one that it is `ranked_as`.
    """
    named = plan_keys(text)
    pinned: dict[str, tuple[int, ...]] = {}
    kind = base.schedule.kind
    ranked = base.with_(schedule=ranked_as(kind))
    for name in COLUMNS:
        if name not in named:
            continue
        value = ranked.value(name)
        known = CHOSEN.get(name)
        if known is not None and value not in known:
            msg = f"plan: a search has no {name}={value}; {nearest(str(value), [str(one) for one in known])}"
            raise ParameterError(msg)
        pinned[name] = (column_of(ranked, name),)
    if "schedule" in pinned and kind.interleaved is None:
        pinned.setdefault("vpp", (1,))
    return pinned


def search(
    system: System | str,
    model: ModelLike,
    plan: str | Mapping[str, Any] = "",
    *,
    objective: Objective | str = Objective.TIME,
    top: int = DEFAULT_TOP,
    variants: bool = False,
    operators: bool = False,
    power_limits: bool = False,
    accelerators: int | None = None,
    progress: OnProgress = unheard,
) -> Search:
    """Return the search for the best plan of a model on a system.

    Parameters
    ----------
    system : System or str
        The hardware, or its name.
    model : str, pathlib.Path, mapping or TransformerConfig
        As `heliograph.model` takes it.
    plan : str or mapping
        Keys that all plans have: the batch (``"global_batch=1024"``), and any that is not to vary, such as
        ``"tp=8"`` or a schedule, which may come from a file or a package.
    objective : str
        Quantity to minimise: ``time`` (default), ``energy`` or ``cost``.
    top : int
        Plans that the engine runs; more where steps are small.
    variants : bool
        Whether variants of the fabric are tried: sides of a torus, lanes, circuits per node, switches.
    operators : bool
        Whether recomputation of norms and activation functions alone is tried.
    power_limits : bool
        Whether lower power limits of the accelerators are tried with the best plans, for the least energy or
        cost (`heliograph.comparison.plan_search.LIMITS`).
    accelerators : int
        Accelerators of a system that is given by its name; 1,024 by default.
    progress : callable
        Called with a label, the number of plans done, and the number in all.

    Raises
    ------
    HeliographError
        For unknown names, values that a search does not try, and where no plan fits.
    """
    objective = member_named(Objective, objective, "objective")
    if not isinstance(plan, str | Mapping):
        msg = f"plan must be text or a mapping of what all plans share, such as 'tp=8'; got {plan!r:.60}"
        raise ParameterError(msg)
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        msg = f"top must be a whole number of plans, 1 or more; got {top!r:.60}"
        raise ParameterError(msg)
    if power_limits:
        check_limits(objective)
    text = plan if isinstance(plan, str) else keys_text(plan)
    config = model_of(model)
    built = lit_for_all(system_of(system, None, accelerators), config)
    check_format_used(text, [built])
    base = shared_plan(config, built.accelerators, text)
    result = Search(model=config.name, objective=objective)
    systems = topologies(built) if variants else {built.fabric.name: built}
    rank_and_run(
        systems,
        config,
        base,
        found=result,
        choices=pinned(text, base),
        savings=SAVINGS if operators else (NO_SAVING,),
        top=top,
        power_limits=power_limits,
        fixed=plan_keys(text),
        progress=progress,
    )
    _ = result.winner  # an error where no plan runs
    return result


def rank_and_run(
    systems: Mapping[str, System],
    config: TransformerConfig,
    base: Plan,
    *,
    found: Search,
    choices: Mapping[str, tuple[int, ...]] | None = None,
    savings: Sequence[Mapping[str, bool]] = (NO_SAVING,),
    top: int = 3,
    power_limits: bool = False,
    fixed: Collection[str] = (),
    progress: OnProgress = unheard,
) -> None:
    """Rank all plans on all topologies, run the best of each on the engine, and refine the winner.

    Parameters
    ----------
    systems : mapping
        Systems by the name of their topology; they differ in their fabric only.
    config : TransformerConfig
        The model.
    base : Plan
        Plan that gives all plans their batch, sequence length, precision and other keys that are not tried.
    found : Search
        Search to which results are added one by one.
    choices : mapping, optional
        Values of plan columns to try, or a single one to fix it (`workloads.search.plans.grid`). With a
        schedule among them, plans run with that of `base`; without, they also run with schedules that have no
        estimate.
    savings : sequence of mapping
        Recomputation of single operators to try (`heliograph.comparison.plan_search.SAVINGS`).
    top : int
        Plans of each topology that the engine runs, and the best one with stages if none of them has any.
    power_limits : bool
        Whether all plans that ran are also tried at lower power limits.
    fixed : collection of str
        Keys of the plan that stay as they are. Without ``grad_buckets`` the winner is also run with other
        numbers of gradient pieces; without ``fp8_params`` plans in fp8 hold their weights in fp8 alone.
    progress : callable
        Called with a label, the number of plans done, and the number in all.
    """
    any_schedule = "schedule" not in (choices or {})
    if any_schedule:
        know_offered_schedules()
    _rank(
        systems,
        config,
        base,
        found=found,
        choices=choices or {},
        savings=savings,
        top=top,
        fixed=fixed,
        progress=progress,
    )
    total = len(found.waiting)
    while found.waiting:
        one, done = found.waiting[0], total - len(found.waiting)

        def say(doing: str, name: str = one.topology, done: int = done) -> None:
            progress(f"engine, {name}, {doing}", done, total)

        best = run_candidate(one, config, found.objective, say)
        found.keep(rescheduled(best, config, found.objective, say) if any_schedule else best)
        found.waiting.pop(0)
    # The second best is refined as well, since the report explains why it is worse.
    for one in found.ordered if power_limits else found.ordered[:2]:
        if one.result is None:
            continue
        better = refined(
            one,
            config,
            found.objective,
            lambda doing: progress(doing, total, total),
            pieces="grad_buckets" not in fixed,
            limits=power_limits,
        )
        found.found = [better if other is one else other for other in found.found]
    if any(one.result is not None for one in found.found):
        progress("the best one again, on the reference engine", total, total)
        found.checked = reference_ratio(found.winner)
    if total:
        progress("plans run", total, total)


def _rank(
    systems: Mapping[str, System],
    config: TransformerConfig,
    base: Plan,
    *,
    found: Search,
    choices: Mapping[str, tuple[int, ...]],
    savings: Sequence[Mapping[str, bool]],
    top: int,
    fixed: Collection[str],
    progress: OnProgress,
) -> None:
    """Add the best plans of each topology by estimate to the candidates that wait in `found`.

    Parameters are those of `rank_and_run`.
    """
    some = next(iter(systems.values()))
    schedule = base.schedule.kind
    stand_in = ranked_as(schedule)
    ranked_otherwise = "schedule" in choices and stand_in is not schedule
    shared = searched(some, base, fixed).with_(schedule=stand_in)
    grids: list[PlanArrays] = []
    for saving_base, tried in saving(shared, choices, savings).items():
        plans = grid(saving_base, some.accelerators, config.experts, tried)
        plans, rejected = feasible(
            config, plans, some.node().memory.capacity_bytes, schedule if ranked_otherwise else None
        )
        if not grids:
            found.rejected = rejected
        grids.append(plans)
    pricer, prices = PlanPricer(config, some.node()), Prices()
    count = sum(map(len, grids))
    for number, (name, system) in enumerate(systems.items()):
        progress(f"estimating {count:,} plans on {name}", number, len(systems))
        rankings = [
            ranked(name, system, pricer, plans, objective=found.objective, top=top, prices=prices)
            for plans in grids
        ]
        candidates = rankings[0] if len(rankings) == 1 else _merged(rankings, found.objective)
        if ranked_otherwise:
            candidates = [
                dataclasses.replace(one, plan=one.plan.with_(schedule=schedule)) for one in candidates
            ]
        found.waiting += candidates
        found.ranked += count


def _identity(one: Candidate) -> tuple[object, ...]:
    """Return the fields in which candidates with the same step agree."""
    return one.plan, one.placement, one.topology, one.mode


def _merged(rankings: Sequence[Sequence[Candidate]], objective: Objective) -> list[Candidate]:
    """Return the best of several rankings together, as many as the longest of them has."""
    every = sorted(itertools.chain(*rankings), key=lambda one: one.estimate[objective])
    return every[: max(map(len, rankings))]


def reference_ratio(one: Candidate) -> float | None:
    """Return a plan's step time on the reference engine (event by event, simpy) over that of its result.

    None if the plan was not run, or its step has too many tasks for the reference.
    """
    result = one.result
    if result is None:
        return None
    fixed_network = result.circuits in (None, CircuitPolicy.STATIC)
    if len(result.graph.tasks) > (MOST_CHECKED if fixed_network else MOST_TURNED):
        return None
    node, fabric = result.system.node(), result.system.fabric
    run = Simulation(result.graph, node, fabric).run()
    return summarise(run, result.graph, node, fabric).step_time_s / result.step_time_s
