"""The best plan, placement and fabric for a model: all ranked in closed form, the best run by the engine."""

from __future__ import annotations

import dataclasses
import itertools
import time
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
from simulator.errors import ParameterError, WorkloadError, nearest
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
"""Plans of each topology that the engine runs where nobody says how many."""
MOST_CHECKED, MOST_TURNED = 200_000, 20_000
"""Tasks of a step up to which the best plan is run again on the reference, in half a minute: where nothing
turns, and where circuits may; a choice."""
LEAST_TOLD = 1e-3
"""Parts whose difference is below this share of the step are not told; a choice."""


@dataclass(kw_only=True, repr=False)
class Search(Tabular):
    """Findings of a search so far; they grow as it runs, so that an interruption loses nothing finished."""

    model: str
    """The model."""
    objective: Objective
    """Quantity that is least."""
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
    checked: float | None = None
    """The best plan's step on the reference engine over its step; None where that would take too long."""

    def keep(self, one: Candidate) -> None:
        """Put a plan that was run to the others; several may end with the same schedule as the same plan."""
        if _same(one) not in {_same(other) for other in self.found}:
            self.found.append(one)

    @property
    def winner(self) -> Candidate:
        """Best plan that was run."""
        ran = [one for one in self.found if one.result is not None]
        if not ran:
            refusals = [one.refusal for one in self.found]
            refusals += [f"{name}: {why}" for name, why in self.unplaced.items()]
            raise WorkloadError(no_plan(self.model, self.rejected, refusals))
        return min(ran, key=lambda one: one.value(self.objective))

    @property
    def ordered(self) -> list[Candidate]:
        """Plans that were run, the best first, and then those that the engine refused."""
        return sorted(self.found, key=lambda each: (each.result is None, each.value(self.objective)))

    def record(self) -> dict[str, Any]:
        """Return the search as plain data; what was not run yet stands under ``waiting``."""
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
        """Return a row for each plan that was run, the best first."""
        return [candidate_row(one) for one in self.ordered]

    def plot(self) -> Figure:
        """Return a figure of where time and energy of the plans go that were run, the best first."""
        from heliograph.figures import step_figure  # noqa: PLC0415 - matplotlib takes its time

        ran = [(plan_words(one.plan), one.result.record()) for one in self.ordered if one.result is not None]
        return step_figure([record | {"system": name} for name, record in ran])

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return title and lines of the search as it is shown."""
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
        """Return the best plan and the next one that is worse by `LEAST_TOLD` at least, if one was run."""
        ran = [one for one in self.ordered if one.result is not None]
        least = ran[0].value(self.objective) * (1.0 + LEAST_TOLD) if ran else 0.0
        worse = [one for one in ran if one.value(self.objective) > least]
        return (ran[0], worse[0]) if worse else None

    def next_by_part(self) -> dict[str, float]:
        """Return how much longer the next plan's step is in each part, in s, the greatest first."""
        results = [
            one.result.time_by_category_s for one in self.best_and_next() or () if one.result is not None
        ]
        if not results:
            return {}
        best, second = results
        parts = {part: second.get(part, 0.0) - best.get(part, 0.0) for part in (*best, *second)}
        return dict(sorted(parts.items(), key=lambda one: -abs(one[1])))


def value_text(one: Candidate, objective: Objective) -> str:
    """Return time, energy or cost of a candidate's step in words."""
    return told_value(one.value(objective), objective)


def binding(one: Candidate) -> str:
    """Return what most of a plan's step goes to, with its share."""
    if one.result is None:
        return "not run"
    parts = one.result.time_by_category_s
    most = max(parts, key=lambda part: parts[part])
    return f"{most}, {parts[most] / one.result.step_time_s:.0%} of the step"


def candidate_row(one: Candidate) -> dict[str, Any]:
    """Return a plan as a flat row: estimated and simulated time, energy and cost, and its bound."""
    row = one.record()
    estimated, simulated = row.pop("estimate"), row.pop("engine") or {}
    row |= {f"estimated_{name}": value for name, value in estimated.items()}
    return row | {f"simulated_{one.column}": simulated.get(one.column) for one in Objective}


def topologies(system: System) -> dict[str, System]:
    """Return a system with the variants of its fabric, by name.

    Parameters
    ----------
    system : System
        The system as it was asked for, which comes first.

    Notes
    -----
    Lanes and degrees change what a fabric costs and draws, sides and twists do not. Which nodes circuits join
    is no variant: fabrics lay them out for the traffic of each plan (TotientPerms, matchings).
    """
    fabric = system.fabric
    found = {fabric.name: system}
    for name, variant in fabric.variants().items():
        found[f"{fabric.name}, {name}"] = dataclasses.replace(system, fabric=variant)
    return found


RANKED_STAGES = 4
"""Stages with which `ranked_as` asks what a schedule keeps, times what their number must be a multiple of."""


def ranked_as(kind: Schedule) -> Schedule:
    """Return the schedule in whose closed form plans of a schedule are ranked: its own, if it has one.

    Notes
    -----
    Others are ranked as 1F1B, or as GPipe, which has the same bubble, if a stage of theirs keeps the
    activations of more microbatches than any of 1F1B's. Plans that only their own lesser memory would fit
    are left out.
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
    """Return the columns that a plan's text names, each with its only value; a schedule as it is ranked."""
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
    """Return the best plan of a model on a system, of all that fit.

    Parameters
    ----------
    system : System or str
        The hardware, or its name.
    model : str, pathlib.Path, mapping or TransformerConfig
        As `heliograph.model` takes it.
    plan : str or mapping
        What all plans share: ``"global_batch=1024"``, and what is not to vary: ``"tp=8"``, or a schedule,
        which may be one of a file or a package.
    objective : str
        ``time`` (default), ``energy`` or ``cost``: what is least.
    top : int
        Plans that the engine runs; more where steps are small.
    variants : bool
        Whether sides of tori, lanes, circuits of nodes and switches vary, too.
    operators : bool
        Whether norms and activations that are computed again alone are tried, too.
    power_limits : bool
        Whether lower power limits of the accelerators are tried with the best plans, for the least energy or
        cost (`heliograph.comparison.plan_search.LIMITS`).
    accelerators : int
        Of a system that is told by its name; 1,024 without.
    progress : callable
        Told a label, how much is done, and how much there is.

    Raises
    ------
    HeliographError
        For names that are not known, values that a search does not try, and where no plan fits.
    """
    objective = Objective.named(objective)
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
    found = Search(model=config.name, objective=objective)
    systems = topologies(built) if variants else {built.fabric.name: built}
    rank_and_run(
        systems,
        config,
        base,
        found=found,
        choices=pinned(text, base),
        savings=SAVINGS if operators else (NO_SAVING,),
        top=top,
        power_limits=power_limits,
        fixed=plan_keys(text),
        progress=progress,
    )
    _ = found.winner  # an error where no plan runs
    return found


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
    """Rank all plans on all topologies, and run the best of each with the engine.

    Parameters
    ----------
    systems : mapping
        Systems by the name of their topology; all of one accelerator.
    config, base : TransformerConfig, Plan
        The model, and what all plans share (batch, sequence length, precision).
    found : Search
        Where results are put, one after the other.
    choices : mapping, optional
        Values of a plan's columns to try, or one to pin it (`workloads.search.plans.grid`). With a schedule
        among them, plans that were ranked run with that of `base`.
    savings : sequence of mapping
        Operators that are computed again alone, each tried (`heliograph.comparison.plan_search.SAVINGS`).
    top : int
        Plans of each topology that the engine runs, and the best one with stages if none of them has any.
    power_limits : bool
        Whether the best of all is also run at lower power limits.
    fixed : collection of str
        Keys of the plan that stay as they are. Without ``grad_buckets`` the best of all is also run with
        other numbers of pieces of gradients; without ``fp8_params`` plans in fp8 hold operands alone.
    progress : callable
        Told a label, how much is done, and how much there is.
    """
    some = next(iter(systems.values()))
    kinds: list[PlanArrays] = []
    schedule = base.schedule.kind
    free = "schedule" not in (choices or {})
    if free:
        know_offered_schedules()
    as_another = None if free or schedule is ranked_as(schedule) else schedule
    shared = searched(some, base, fixed)
    shared = shared.with_(schedule=ranked_as(schedule))
    for kind, tried in saving(shared, choices or {}, savings).items():
        plans = grid(kind, some.accelerators, config.experts, tried)
        plans, rejected = feasible(config, plans, some.node().memory.capacity_bytes, as_another)
        found.rejected = rejected if not kinds else found.rejected
        kinds.append(plans)
    pricer, prices = PlanPricer(config, some.node()), Prices()
    many = sum(map(len, kinds))
    for number, (name, system) in enumerate(systems.items()):
        progress(f"estimating {many:,} plans on {name}", number, len(systems))
        rankings = [
            ranked(name, system, pricer, plans, objective=found.objective, top=top, prices=prices)
            for plans in kinds
        ]
        found.waiting += rankings[0] if len(rankings) == 1 else _merged(rankings, found.objective)
        found.ranked += many
    if as_another is not None:
        found.waiting = [
            dataclasses.replace(one, plan=one.plan.with_(schedule=as_another)) for one in found.waiting
        ]
    many = len(found.waiting)
    began_s = time.monotonic()
    while found.waiting:
        one, done = found.waiting[0], many - len(found.waiting)

        def say(doing: str, name: str = one.topology, done: int = done) -> None:
            left_s = (time.monotonic() - began_s) / done * (many - done) if done else 0.0
            about = f", about {left_s:.0f} s left" if done else ""
            progress(f"engine, {name}, {doing}{about}", done, many)

        best = run_candidate(one, config, found.objective, say)
        found.keep(rescheduled(best, config, found.objective, say) if free else best)
        found.waiting.pop(0)
    ran = [one for one in found.found if one.result is not None]
    if ran:
        # The next one too, for it is told why it is worse; with power limits all, to stand side by side.
        for best in [one for one in found.ordered[: None if power_limits else 2] if one.result is not None]:
            better = refined(
                best,
                config,
                found.objective,
                lambda doing: progress(doing, many, many),
                pieces="grad_buckets" not in fixed,
                limits=power_limits,
            )
            found.found = [better if one is best else one for one in found.found]
        progress("the best one again, on the reference engine", many, many)
        found.checked = checked(found.winner)
    if many:
        progress("plans run", many, many)


def _same(one: Candidate) -> tuple[object, ...]:
    """Return what two candidates share that are the same step."""
    return one.plan, one.placement, one.topology, one.mode


def _merged(rankings: Sequence[Sequence[Candidate]], objective: Objective) -> list[Candidate]:
    """Return the first of several rankings together, as many as the longest of them has."""
    every = sorted(itertools.chain(*rankings), key=lambda one: one.estimate[objective])
    return every[: max(map(len, rankings))]


def checked(one: Candidate) -> float | None:
    """Return a plan's step on the reference engine, event by event on simpy, over that which was found."""
    result = one.result
    if result is None:
        return None
    stands = result.circuits in (None, CircuitPolicy.STATIC)
    if len(result.graph.tasks) > (MOST_CHECKED if stands else MOST_TURNED):
        return None
    again = Simulation(result.graph, result.system.node(), result.system.fabric).run()
    return summarise(again, result.graph, result.system.node(), result.system.fabric).step_time_s / (
        result.step_time_s
    )
