"""Comparison of systems by time, energy, cost and accuracy of training one model, each at its best plan.

`compare` is the function of a program, `compare_request` that of the command ``heliograph compare``. Both
search the best plan of every system (`search_all`), optionally train a small GPT through each system's
arithmetic, and return a `Comparison`, which `write` puts into a directory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heliograph._version import __version__
from heliograph.accuracy.small_gpt import EXACT, Accuracy, steps_to_loss, system_arithmetic, train_all
from heliograph.comparison.plan_estimates import Objective, Prices
from heliograph.comparison.plan_search import (
    QUICK,
    THOROUGH,
    USUAL,
    BestPlan,
    Candidate,
    Effort,
    best_plan,
    check_limits,
    refined_plan,
    with_siblings,
)
from heliograph.comparison.ranges import Ranges, check_kinds, contests, ranges_of
from heliograph.parameters import status_counts, tables
from heliograph.processes import OnProgress, of_part, run_all, unheard
from heliograph.records import (
    CONFIG,
    SUMMARY,
    TrainingCache,
    check_same_run,
    configuration,
    csv_text,
    fingerprint,
    new_run_directory,
    part_rows,
    reserve_directory,
    row_of,
    unlock,
    whole,
    write_atomically,
    write_json,
    write_summary,
    write_trace,
)
from heliograph.report import Tabular, format_si
from heliograph.simulation import StepResult, run_at_target, step_graph, system_of
from heliograph.systems.fabrics import default_fabric
from heliograph.systems.names import (
    DEFAULT_ACCELERATORS,
    DEFAULT_CORE,
    DEFAULT_GPU,
    SYSTEMS,
    Options,
    choice_of,
    left,
    rivals,
)
from heliograph.systems.system import System, build_system, fitting
from heliograph.workload import ModelLike, PlanLike, check_format_used, plan_for, ranks_of, shared_plan
from heliograph.workload import model as model_of
from heliograph.workload import plan as plan_of
from simulator.engine.compiled.step import StepRuns
from simulator.errors import BudgetError, HeliographError, LinkError, ParameterError, member_named
from simulator.parameter_tree import parse_assignment
from workloads.models.architecture import TransformerConfig
from workloads.plan.plan import Plan, plan_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Request:
    """Options of a comparison, as on the command line; None where an option was not given."""

    model: str = "llama-3.1-405b"
    """Shipped model, or path of a Hugging Face ``config.json``."""
    accelerators: int | None = None
    """Accelerators in every system; None for those of the plan, of the files, or 1,024."""
    systems: tuple[str, ...] | None = None
    """Systems by name, or paths of TOML files; None for `heliograph.systems.names.rivals`."""
    without: tuple[str, ...] = ()
    """Systems that are left out, by name or by a word of it."""
    plan: str = ""
    """Plan of all systems, such as ``tp=8,pp=16,...``; empty to search the best of each."""
    gpu: str | None = None
    """The GPU, and the one that photonic accelerators replace."""
    basis: str | None = None
    """Sizing of photonic accelerators: power, area or count."""
    core: str | None = None
    """Core of photonic accelerators that name no other."""
    fabric: str | None = None
    """Fabric of packet systems that name no other."""
    assignments: tuple[str, ...] = ()
    """Single parameters to change, ``path=value``."""
    objective: Objective = Objective.TIME
    """Quantity that the best plans minimise."""
    power_limits: bool = False
    """Whether lower power limits of the accelerators are tried with the best plans."""
    quick: bool = False
    """Whether few plans of each system are tried; with `accuracy`, training is shorter, with fewer seeds."""
    thorough: bool = False
    """Whether more plans of each system are tried, which takes minutes."""
    seed: int = 0
    """First seed of the training; the others follow it."""
    accuracy: bool = False
    """Whether the small GPT is trained."""
    ranges: bool = False
    """Whether the sensitivity of the verdicts to the ranges of input numbers is computed."""

    def __post_init__(self) -> None:
        if self.quick and self.thorough:
            msg = "quick tries few plans and thorough more than usual; leave one of them out"
            raise ParameterError(msg)
        if self.power_limits:
            check_limits(self.objective)

    @property
    def effort(self) -> Effort:
        """Size of each system's search."""
        return THOROUGH if self.thorough else QUICK if self.quick and not self.accuracy else USUAL

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the systems that are compared."""
        return left(rivals(self.gpu) if self.systems is None else self.systems, self.without)


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(Tabular):
    """Results of one model and batch on several systems, each with its best plan or all with one plan."""

    request: Request
    """Options of the comparison."""
    config: TransformerConfig
    """The model."""
    plan: Plan
    """Plan of all systems; where each has its own, the one that gives all their batch and sequence length."""
    best: Mapping[str, BestPlan] = field(default_factory=dict)
    """Best plan of each system, by its name; empty if none were searched."""
    results: tuple[StepResult, ...]
    """Step of each system that ran."""
    accuracies: dict[str, Accuracy]
    """Training of the small GPT by label of the arithmetic; empty if not asked for."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Reason of each system that cannot be built or cannot run the model, by its name."""
    ranges: Ranges | None = None
    """Sensitivity of the verdicts to the ranges of input numbers, if it was asked for."""

    @property
    def fixed(self) -> bool:
        """Whether all systems ran one given plan."""
        return bool(self.request.plan)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each system, with the columns of `heliograph.records.COLUMNS`.

        Systems that did not run stand last, with the reason as their ``error``.
        """
        same = {
            name: self.results[0].record()[name] for name in ("schema", "version", "model", "accelerators")
        }
        same |= {"seed": self.request.seed if self.request.accuracy else None}
        same |= {"plan": plan_text(self.plan) if self.fixed else ""}
        failed = [same | {"system": name, "error": reason} for name, reason in self.refused.items()]
        return [row_of(record) for record in [*self.records(), *failed]]

    def parts(self) -> list[dict[str, Any]]:
        """Return a row for each system, quantity and part, with `heliograph.records.PART_COLUMNS`."""
        return [row for record in self.records() for row in part_rows(record)]

    def plot(self) -> Figure:
        """Return a figure of the parts of step time and energy, a bar for each system."""
        from heliograph.figures import step_figure  # noqa: PLC0415 - matplotlib takes its time

        return step_figure(self.records())

    def over_ranges(self, progress: OnProgress = unheard) -> Comparison:
        """Return the comparison with its sensitivity added (`heliograph.comparison.ranges.ranges_of`)."""
        return replace(self, ranges=ranges_of(self.results, progress=progress))

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return the summary that is printed: a title, then a line per system."""
        least = self.request.objective
        own = "each at its own best plan" if least is Objective.TIME else f"each at its plan of least {least}"
        plan = plan_text(self.plan) if self.fixed else own
        lines = [(f"{self.config.name} on {len(self.results)} systems", plan)]
        for one in self.results:
            time, energy = format_si(one.step_time_s, "s"), format_si(one.energy_per_token_j, "J/token")
            cost = f"{one.usd_per_million_tokens:.3g} USD a million tokens"
            lines.append((one.system.name, f"{time}, {energy}, {cost}, {one.snr_db:.1f} dB"))
        return [*lines, *self.refused.items()]

    def records(self) -> list[dict[str, Any]]:
        """Return the record of each system's step, with its accuracy where the small GPT was trained."""
        found = []
        for result in self.results:
            record = result.record() | {"inputs_by_status": status_counts(result.system)}
            record["seed"] = self.request.seed if self.request.accuracy else None
            label = system_arithmetic(result.system).label
            if label in self.accuracies:
                steps = steps_to_loss(self.accuracies[label])
                record |= self.accuracies[label].record() | steps.record()
                if steps.resolved:
                    record |= {
                        "time_to_loss_s": result.run_steps * record["step_time_s"] * steps.mean,
                        "energy_to_loss_j": result.run_steps * record["energy_j"] * steps.mean,
                    }
            found.append(record)
        return found

    def summary(self) -> dict[str, Any]:
        """Return the content of ``summary.json``."""
        exact = self.accuracies.get(EXACT)
        return {
            "model": self.config.name,
            "parameters": self.config.parameters,
            "accelerators": self.results[0].system.accelerators,
            "replaced_gpu": self.request.gpu or DEFAULT_GPU,
            "basis": self.request.basis or "power",
            "core": self.request.core or DEFAULT_CORE,
            "fabric": self.request.fabric or default_fabric(self.request.gpu or DEFAULT_GPU),
            "settings": list(self.request.assignments),
            "version": __version__,
            "plan": plan_text(self.plan) if self.fixed else "",
            "objective": str(self.request.objective),
            "best_plans": {name: one.record() for name, one in self.best.items()},
            "tokens_per_step": self.plan.batch.global_batch * self.plan.batch.sequence_length,
            "seed": self.request.seed,
            "systems": self.records(),
            "refused": dict(self.refused),
            "exact_arithmetic": exact.record() if exact else None,
            **({"ranges": self.ranges.record()} if self.ranges else {}),
        }

    def curves(self) -> list[dict[str, Any]]:
        """Return the loss curves, exact arithmetic marked as the reference."""
        return [
            {
                "label": one.label,
                "steps": list(one.steps),
                "losses": [list(curve) for curve in one.losses],
                "reference": one.label == EXACT,
            }
            for one in self.accuracies.values()
        ]


@dataclass(frozen=True, kw_only=True)
class Built:
    """Systems that were built for a comparison."""

    systems: tuple[System, ...]
    """Systems that can be built, in the order of their names."""
    refused: Mapping[str, str]
    """Reason of each whose link does not close or whose budget is too small, by its name."""


def build_systems(request: Request) -> Built:
    """Build the systems of a request.

    An option or a changed parameter applies to every system that has it; at least one system must.

    Raises
    ------
    ParameterError
        If a name repeats, or no system has an option or a parameter that is given.
    HeliographError
        If none can be built: the reason of the first.
    """
    names = request.names
    if not names:
        msg = f"no system to compare; name some of {', '.join(SYSTEMS)}"
        raise ParameterError(msg)
    usual = ranks_of(request.plan) or _own_accelerators(names) or DEFAULT_ACCELERATORS
    choices = {"gpu": request.gpu, "basis": request.basis, "core": request.core, "fabric": request.fabric}
    given = {option: value for option, value in choices.items() if value is not None}
    contradictions = [
        choice_of(name, Options(accelerators=request.accelerators, **given), usual).contradictions
        for name in names
    ]
    for option in given:
        if all(option in sentences for sentences in contradictions):
            raise ParameterError(contradictions[-1][option])
    systems: list[System] = []
    reasons: dict[str, HeliographError] = {}
    unused = set(request.assignments)
    for name, sentences in zip(names, contradictions, strict=True):
        options: dict[str, Any] = {
            option: value for option, value in given.items() if option not in sentences
        }
        options |= {"accelerators": request.accelerators, "usual_accelerators": usual}
        try:
            unchanged = _build_unchanged(name, options, request.assignments)
            applicable = fitting(unchanged, request.assignments)
            unused -= set(applicable)
            systems.append(build_system(name, **options, assignments=applicable))
        except (BudgetError, LinkError) as error:
            reasons[name] = error
    for text in sorted(unused):  # no system has the parameter; the last one raises the error that says so
        build_system(names[-1], **options, assignments=(text,))
    if not systems:
        raise next(iter(reasons.values()))
    _check_names(systems)
    if ranks_of(request.plan) is None:
        _check_sizes(systems)
    return Built(systems=tuple(systems), refused={name: str(error) for name, error in reasons.items()})


def _check_sizes(systems: Sequence[System]) -> None:
    """Refuse systems of different numbers of accelerators, as they cannot share a plan."""
    sizes = {one.name: one.accelerators for one in systems}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        msg = f"only systems of one number of accelerators are compared; got {listed}"
        raise ParameterError(msg)


def _own_accelerators(systems: Iterable[System | str]) -> int | None:
    """Return the number of accelerators of the first system or file that says one; None if none does."""
    sizes = [
        one.accelerators if isinstance(one, System) else choice_of(one, Options(), 0).accelerators
        for one in systems
    ]
    return next((size for size in sizes if size), None)


def _build_unchanged(name: str, options: Mapping[str, Any], assignments: Sequence[str]) -> System:
    """Build a system before its changes.

    If nodes of the default size do not divide its accelerators, a changed node size is applied already.
    """
    sizes = [text for text in assignments if parse_assignment(text)[0].endswith("scale_up.size")]
    try:
        return build_system(name, **options)
    except ParameterError:
        if not sizes:
            raise
        return build_system(name, **options, assignments=sizes)


def choose_plan(request: Request, config: TransformerConfig, systems: Sequence[System]) -> Plan:
    """Return the plan of a request; without one, the base of the plans that a search tries."""
    accelerators = systems[0].accelerators
    if not request.plan and not _takes_default_plan(request, config):
        return shared_plan(config, accelerators)
    memory_bytes = min(system.node().memory.capacity_bytes for system in systems)
    return plan_for(config, request.plan, accelerators=accelerators, memory_bytes=memory_bytes)


def _searchable(config: TransformerConfig) -> bool:
    """Return whether plans of a model can be searched; the estimate does not know retrieval."""
    return config.retrieval is None


def _takes_default_plan(request: Request, config: TransformerConfig) -> bool:
    """Return whether all systems run the default plan, as none is given and none can be searched."""
    return not request.plan and not _searchable(config)


def compare(
    systems: Sequence[System | str] | None = None,
    model: ModelLike = "llama-3.1-405b",
    plan: PlanLike | None = None,
    *,
    accelerators: int | None = None,
    objective: Objective | str = Objective.TIME,
    power_limits: bool = False,
    search: bool = False,
    accuracy: bool = False,
    quick: bool = False,
    thorough: bool = False,
    seed: int | None = None,
    cache: TrainingCache | None = None,
    progress: OnProgress = unheard,
) -> Comparison:
    """Compare systems on one model, each at its own best plan or all at one plan.

    Parameters
    ----------
    systems : sequence of System or str, optional
        Systems or their names; a named one has as many accelerators as the plan uses. By default those of
        `heliograph.systems.names.rivals`.
    model : str, pathlib.Path, mapping or TransformerConfig
        As `heliograph.model` takes it.
    plan : str, mapping or Plan
        Plan of all systems, as `heliograph.plan` takes it; without it, each runs its own best plan
        (`heliograph.comparison.plan_search.best_plan`), all with the same batch.
    accelerators : int
        Accelerators of named systems, in place of those of the plan or of 1,024.
    objective : str
        Quantity of a step that the best plans minimise: ``time``, ``energy`` or ``cost``.
    power_limits : bool
        Whether lower power limits of all accelerators are tried with the best plans, for the least energy or
        cost (`heliograph.comparison.plan_search.LIMITS`).
    search : bool
        Whether the best plan of each system is searched also where a plan is given.
    accuracy : bool
        Whether a small GPT is trained through each system's arithmetic, which takes minutes.
    quick : bool
        Whether few plans of each system are tried, and with `accuracy` fewer steps and seeds trained.
    thorough : bool
        Whether more plans of each system are tried, which takes minutes.
    seed : int, optional
        First seed of the training that `accuracy` runs; 0 by default.
    cache : TrainingCache
        Store of finished training runs; by default in ``results/.training``.
    progress : callable
        Called with a label, the number of steps done, and the number in all.

    Raises
    ------
    HeliographError
        For unknown names, a plan that does not fit, a link that does not close, both `quick` and `thorough`,
        and a `seed` without `accuracy`.
    """
    if seed is not None and not accuracy:
        msg = "seed is of the training that accuracy runs; add accuracy=True, or leave seed out"
        raise ParameterError(msg)
    systems = rivals() if systems is None else systems
    if isinstance(systems, str | System) or not isinstance(systems, Sequence) or not systems:
        msg = f'systems must be a list, such as ["gpu_packet", "photonic_packet"]; got {systems!r}'
        raise ParameterError(msg)
    config = model_of(model)
    beside = _own_accelerators(systems)
    built = [system_of(one, plan, accelerators, beside=beside) for one in systems]
    _check_names(built)
    if ranks_of(plan) is None:
        _check_sizes(built)
    check_format_used(plan, built)
    photonic = next((one for one in built if one.photonic), None)
    smallest = min(built, key=lambda one: one.node().memory.capacity_bytes)
    given = plan_of(plan, model=config, system=smallest) if plan not in (None, "") else None
    common = given or choose_plan(Request(), config, built)
    all_run_common = given is not None or _takes_default_plan(Request(), config)
    searched = _searchable(config) and (search or not all_run_common)
    minimised = member_named(Objective, objective, "objective")
    _check_objective_used(minimised, config, searched=searched)
    request = Request(
        model=config.name,
        accelerators=smallest.accelerators,
        systems=tuple(one.name for one in built),
        plan=plan_text(common) if all_run_common else "",
        gpu=built[0].gpu.name,
        basis=str(photonic.basis) if photonic else None,
        core=photonic.core_name if photonic else None,
        objective=minimised,
        power_limits=power_limits,
        quick=quick,
        thorough=thorough,
        seed=seed or 0,
        accuracy=accuracy,
    )
    cache = cache or TrainingCache(Path("results") / ".training")
    hardware = Built(systems=tuple(built), refused={})
    return _run_comparison(request, hardware, config, common, search=searched, cache=cache, progress=progress)


def compare_request(
    request: Request,
    *,
    cache: TrainingCache,
    progress: OnProgress = unheard,
    stepped: Callable[[Comparison], object] = lambda comparison: None,
) -> Comparison:
    """Run the comparison of a command line.

    Parameters
    ----------
    request : Request
        Its options.
    cache : TrainingCache
        Store of finished training runs.
    progress : callable
        Called with a label, the number of steps done, and the number in all.
    stepped : callable
        Called twice with the comparison: before any step has run, and after the steps, before the training.
        It may raise an error to stop.

    Raises
    ------
    HeliographError
        For anything wrong with the request: unknown names, a plan that does not fit, a link that does not
        close.
    """
    config = model_of(request.model)
    built = build_systems(request)
    if request.ranges:
        check_kinds(built.systems)
    check_format_used(request.plan, built.systems)
    plan = choose_plan(request, config, built.systems)
    if _takes_default_plan(request, config):
        request = replace(request, plan=plan_text(plan))
    searched = _searchable(config)
    _check_objective_used(request.objective, config, searched=searched)
    return _run_comparison(
        request,
        built,
        config,
        plan,
        search=searched,
        cache=cache,
        progress=progress,
        stepped=stepped,
        share=True,
    )


def _check_objective_used(objective: Objective, config: TransformerConfig, *, searched: bool) -> None:
    """Raise an error if an objective other than time is given and no plan is searched."""
    if searched or objective is Objective.TIME:
        return
    unknown = f"{config.name} looks texts up, which no search knows"
    why = "a plan is named" if _searchable(config) else unknown
    msg = f"objective '{objective}' is not used: {why}; leave it out"
    raise ParameterError(msg)


@dataclass(kw_only=True)
class _ProgressMeter:
    """Progress of steps and searches."""

    progress: OnProgress
    """Called with a label, the number of steps and searches done, and the number in all."""
    total: int
    """Number of steps and searches."""
    done: int = 0
    """Number of those that are done."""

    def show(self, label: str) -> None:
        """Show what is being done."""
        self.progress(label, self.done, self.total)

    def show_for(self, system: str, doing: str) -> None:
        """Show what is being done for a system."""
        self.show(f"{system}, {doing}")


@dataclass(frozen=True, kw_only=True)
class Searched:
    """Outcome of the plan searches of several systems."""

    best: Mapping[str, BestPlan]
    """Best plan of each system that has one, by its name and in the order of the systems."""
    reasons: Mapping[str, HeliographError]
    """Reason of each system on which no plan runs, by its name."""


@dataclass(frozen=True, kw_only=True)
class _Job:
    """Search of one system, picklable for any process, in one of its two rounds.

    In the first round the system's own best plan is searched. In the second, `best` is its outcome, which is
    compared with plans that won on other systems, and refined.
    """

    system: System
    config: TransformerConfig
    base: Plan
    objective: Objective
    effort: Effort
    limits: bool
    """Whether lower power limits are tried."""
    best: BestPlan | None = None
    """Outcome of the first round; None in the first round."""
    winners: tuple[Candidate, ...] = ()
    """Plans of all systems to try in the second round."""


_PRICES = Prices()
"""Prices of collectives that a worker process keeps, for systems with the same fabric."""


def _search(
    job: _Job, prices: Prices = _PRICES, say: Callable[[str], None] = lambda _: None
) -> BestPlan | HeliographError:
    """Run one job; return its best plan, or the error that says why there is none."""
    try:
        if job.best is None:
            best = best_plan(
                job.system,
                job.config,
                job.base,
                objective=job.objective,
                effort=job.effort,
                prices=prices,
                say=say,
            )
        else:
            best = with_siblings(
                job.system, job.config, job.best, job.winners, effort=job.effort, prices=prices, say=say
            )
            best = refined_plan(best, job.config, pieces=job.effort.pieces, limits=job.limits, say=say)
    except HeliographError as error:
        return error
    if best.winner.result is not None:
        # These cached properties are computed here, in parallel with the searches of other systems.
        _ = best.result.precision, best.result.core_lifetime_steps
    return best


def _search_group(jobs: tuple[_Job, ...]) -> list[BestPlan | HeliographError]:
    return [_search(job) for job in jobs]


def _grouped(jobs: Sequence[_Job]) -> list[tuple[_Job, ...]]:
    """Return the jobs in groups for one process each.

    If there are more jobs than processors, those of one accelerator are grouped, whose work is then priced
    once; photonic systems, which take longest, come first.
    """
    if len(jobs) <= (os.cpu_count() or 1):
        return [(job,) for job in jobs]
    groups: list[list[_Job]] = []
    for job in sorted(jobs, key=lambda job: not job.system.photonic):
        node = job.system.node()
        group = next((group for group in groups if group[0].system.node() == node), None)
        if group is None:
            groups.append([job])
        else:
            group.append(job)
    return [tuple(group) for group in groups]


SHARED_FROM = 256
"""Accelerators from which on searches run in several processes; smaller ones end before those start."""


def search_all(
    systems: Sequence[System],
    config: TransformerConfig,
    base: Plan,
    *,
    objective: Objective,
    effort: Effort,
    limits: bool,
    share: bool,
    meter: _ProgressMeter,
) -> Searched:
    """Return the best plan of each system, among its own and those that win on other systems.

    Parameters
    ----------
    systems, config, base, objective, effort
        As `heliograph.comparison.plan_search.best_plan` takes them.
    limits : bool
        Whether lower power limits are tried with the best plans.
    share : bool
        Whether processes may be started: by a command, not by a script of which they would run a copy.
    meter : _ProgressMeter
        Progress, which counts each system's own search as one.
    """
    new_job = partial(_Job, config=config, base=base, objective=objective, effort=effort, limits=limits)
    jobs = {system.name: new_job(system=system) for system in systems}
    share = share and len(jobs) > 1 and systems[0].accelerators >= SHARED_FROM
    outcomes: dict[str, BestPlan | HeliographError] = {}
    first_round: dict[str, BestPlan] = {}

    def keep(group: tuple[_Job, ...], results: list[BestPlan | HeliographError]) -> None:
        for job, result in zip(group, results, strict=True):
            outcomes[job.system.name] = result
        if group[-1].best is None:
            meter.done += len(group)
            meter.show(f"best plan of {group[-1].system.name}")

    def second_round() -> list[_Job]:
        first_round.update((name, one) for name, one in outcomes.items() if isinstance(one, BestPlan))
        exchange = effort.siblings > 0 and len(first_round) > 1
        if not (exchange or effort.pieces or limits):
            return []
        meter.show("plans of the other systems" if exchange else "the best plans again")
        winners: tuple[Candidate, ...] = ()
        if exchange:
            winners = tuple(plan for best in first_round.values() for plan in best.for_siblings(effort))
        return [
            replace(jobs[name], best=best.without_result(), winners=winners)
            for name, best in first_round.items()
        ]

    if share:
        run_all(_grouped(list(jobs.values())), _search_group, keep, lambda: _grouped(second_round()))
    else:
        prices = Prices()
        for jobs_of_round in (lambda: list(jobs.values()), second_round):
            for job in jobs_of_round():
                say = partial(meter.show_for, job.system.name)
                say("estimating plans")
                keep((job,), [_search(job, prices, say)])
    for name, first in first_round.items():
        second = outcomes[name]
        if not isinstance(second, BestPlan):
            outcomes[name] = first
        elif second.winner.result is None:  # nothing was better; the result was left behind in this process
            outcomes[name] = replace(second, winner=replace(second.winner, result=first.winner.result))
    ordered = {name: outcomes[name] for name in jobs if name in outcomes}
    return Searched(
        best={name: one for name, one in ordered.items() if isinstance(one, BestPlan)},
        reasons={name: one for name, one in ordered.items() if not isinstance(one, BestPlan)},
    )


def _run_comparison(
    request: Request,
    built: Built,
    config: TransformerConfig,
    plan: Plan,
    *,
    search: bool,
    cache: TrainingCache,
    progress: OnProgress,
    stepped: Callable[[Comparison], object] = lambda comparison: None,
    share: bool = False,
) -> Comparison:
    """Run a comparison: steps at a common plan, searches of best plans, ranges and training, as requested.

    `plan` is the common plan where the request names one, else the base of the searched plans; `stepped` is
    that of `compare_request`, `share` that of `search_all`.
    """
    empty = Comparison(request=request, config=config, plan=plan, best={}, results=(), accuracies={})
    stepped(empty)
    total = len(built.systems) * (bool(request.plan) + search)
    meter = _ProgressMeter(progress=progress, total=total)
    results: dict[str, StepResult] = {}
    reasons: dict[str, HeliographError] = {}
    if request.plan:
        results, reasons = _run_common_plan(built.systems, config, plan, meter)
        if not results:  # a search would have nothing to be compared with
            raise next(iter(reasons.values()))
    searched = search_all(
        built.systems if search else (),
        config,
        plan,
        objective=request.objective,
        effort=request.effort,
        limits=request.power_limits,
        share=share,
        meter=meter,
    )
    if not request.plan:
        results = {name: best.result for name, best in searched.best.items()}
        reasons = dict(searched.reasons)
    meter.show("steps")
    if not results:
        raise next(iter(reasons.values()))
    comparison = replace(
        empty,
        best={name: best.without_result() for name, best in searched.best.items()},
        results=tuple(results.values()),
        refused={**built.refused, **{name: str(error) for name, error in reasons.items()}},
    )
    stepped(comparison)
    if request.ranges and contests([one.system for one in comparison.results]):
        ranges = ranges_of(comparison.results, share=share, progress=progress)
        comparison = replace(comparison, ranges=ranges)
    if not request.accuracy:
        return comparison
    arithmetics = [system_arithmetic(result.system) for result in results.values()]
    accuracies = train_all(
        {one.label: one for one in arithmetics}.values(),
        seeds=range(request.seed, request.seed + (QUICK_SEEDS if request.quick else SEEDS)),
        quick=request.quick,
        cache=cache,
        progress=of_part(progress, "small GPT"),
    )
    return replace(comparison, accuracies=accuracies)


def _run_common_plan(
    systems: Sequence[System], config: TransformerConfig, plan: Plan, meter: _ProgressMeter
) -> tuple[dict[str, StepResult], dict[str, HeliographError]]:
    """Return the steps of systems at one plan, and the reasons of those that cannot run it, by name."""
    results: dict[str, StepResult] = {}
    reasons: dict[str, HeliographError] = {}
    runs: dict[Plan, StepRuns] = {}
    for index, system in enumerate(systems):
        own = system.planned(plan)
        meter.show(f"step on {system.name}")
        try:
            if own not in runs:
                runs[own] = StepRuns(step_graph(config, own), runs=len(systems) - index)
            results[system.name] = run_at_target(system, config, own, runs=runs[own])
        except HeliographError as error:
            reasons[system.name] = error
        meter.done += 1
    return results, reasons


def _check_names(systems: Sequence[System]) -> None:
    """Raise an error if a name stands twice."""
    names = [system.name for system in systems]
    if len(set(names)) != len(names):
        msg = f"systems {', '.join(names)}: every system may stand once; give TOML files a name of their own"
        raise ParameterError(msg)


SEEDS = 3
"""Number of seeds with which the small GPT is trained."""
QUICK_SEEDS = 2
"""Number of seeds with ``--quick``."""


def _configuration(comparison: Comparison) -> dict[str, Any]:
    """Return all that is needed to run a comparison again, the content of ``config.json``."""
    return configuration(
        {result.system.name: result.system for result in comparison.results},
        seed=comparison.request.seed,
        arguments={
            "request": comparison.request,
            "plan": comparison.plan.record(),
            "model": comparison.config,
        },
        tables=tables(),
    )


def reserve(comparison: Comparison, out: Path | None) -> Path:
    """Make and return the directory of a run; called before the training, so that an error comes before it.

    Parameters
    ----------
    comparison : Comparison
        The comparison with its steps.
    out : pathlib.Path or None
        The directory, or None for a new one below ``results``.

    Raises
    ------
    HeliographError
        If it cannot be made, or holds another run.
    """
    root, name = Path("results"), f"{comparison.config.name}-{comparison.request.accelerators}"
    directory = out or new_run_directory(root, name)
    reserve_directory(directory, fingerprint(_configuration(comparison)))
    return directory


def check_free(comparison: Comparison, out: Path | None) -> None:
    """Raise `HeliographError` if a directory holds another run; called before any search.

    Parameters
    ----------
    comparison : Comparison
        The comparison before its results.
    out : pathlib.Path or None
        The directory, if one is named.
    """
    if out is not None:
        check_same_run(out, _configuration(comparison))


def write(comparison: Comparison, out: Path | None) -> Path:
    """Write the files of a run; return its directory.

    Raises
    ------
    HeliographError
        If they cannot be written, or the directory holds another run.
    """
    from heliograph.figures import loss_curves, save, step_figure  # noqa: PLC0415 - matplotlib takes its time

    directory = reserve(comparison, out)
    records, configured = comparison.records(), _configuration(comparison)
    with whole(directory, SUMMARY) as aside:
        write_json(aside / CONFIG, configured)
        write_atomically(aside / "systems.csv", csv_text(comparison.rows()))
        write_atomically(aside / "table.csv", csv_text(comparison.parts()))
        if comparison.ranges:
            write_atomically(aside / "ranges.csv", csv_text(comparison.ranges.rows()))
            save(comparison.ranges.plot(), aside / "ranges.png")
        save(step_figure(records, energy=False), aside / "step_time.png")
        save(step_figure(records, time=False), aside / "energy.png")
        if comparison.accuracies:
            loss_curves(comparison.curves(), aside / "loss.png")
        write_trace(aside / "trace.json", _events(comparison.results))
        write_summary(aside, fingerprint(configured), comparison.summary())
    unlock(directory)
    return directory


def _events(results: Sequence[StepResult]) -> list[dict[str, Any]]:
    """Return the traces of all systems as one Perfetto trace, in which a stage of a system is a process."""
    events = []
    most = MAX_EVENTS // len(results)
    for index, result in enumerate(results):
        offset = index * PROCESSES_PER_SYSTEM
        for event in result.trace.perfetto_events(most):
            event["pid"] += offset
            if event["name"] == "process_name":
                event["args"] = {"name": f"{result.system.name} {event['args']['name']}"}
            events.append(event)
    return events


MAX_EVENTS = 200_000
"""Most events in the common trace; some 40 MB, which Perfetto still opens."""
PROCESSES_PER_SYSTEM = 10_000
"""Distance between the process numbers of two systems in the common trace."""
