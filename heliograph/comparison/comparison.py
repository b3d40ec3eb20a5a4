"""The main question: the same model on several systems, each at its best: time, energy, cost and accuracy."""

from __future__ import annotations

import os
import time
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
    MAX_EVENTS,
    RunWriter,
    TrainingCache,
    check_same_run,
    configuration,
    fingerprint,
    new_run_directory,
    part_rows,
    row_of,
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
from simulator.errors import BudgetError, HeliographError, LinkError, ParameterError
from simulator.parameter_tree import parse_assignment
from workloads.models.architecture import TransformerConfig
from workloads.plan.plan import Plan, plan_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Request:
    """Comparison as a command line asks for it; None where nobody chose."""

    model: str = "llama-3.1-405b"
    """Shipped model, or path of a Hugging Face ``config.json``."""
    accelerators: int | None = None
    """Accelerators in every system; None for those of the plan, of the files, or 1,024."""
    systems: tuple[str, ...] | None = None
    """Systems by name, or paths of TOML files; None for `heliograph.systems.names.rivals`."""
    without: tuple[str, ...] = ()
    """Systems that are left out, by name or by a word of it."""
    plan: str = ""
    """Plan such as ``tp=8,pp=16,...``; empty for the one the program names."""
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
    """What is least with each system's best plan."""
    power_limits: bool = False
    """Whether lower power limits of all accelerators are tried with their best plans, for that objective."""
    quick: bool = False
    """Few plans of each system; with `accuracy`, shorter training of the small GPT, fewer seeds."""
    thorough: bool = False
    """Whether more plans of each system are tried, which takes minutes."""
    seed: int = 0
    """First seed; the others follow."""
    accuracy: bool = False
    """Whether the small GPT is trained."""
    ranges: bool = False
    """Whether every number with a range is moved to its ends, to see what could turn the verdicts."""

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
        """Names of the systems, without those that are left out."""
        return left(rivals(self.gpu) if self.systems is None else self.systems, self.without)


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(Tabular):
    """Results of the same model and batch on several systems, each with its best plan or all with one."""

    request: Request
    """The request."""
    config: TransformerConfig
    """The model."""
    plan: Plan
    """The plan that every system ran; with plans of their own, what those share (batch, sequence length)."""
    best: Mapping[str, BestPlan] = field(default_factory=dict)
    """Best plan found for each system, by its name."""
    results: tuple[StepResult, ...]
    """One per system."""
    accuracies: dict[str, Accuracy]
    """By label of the arithmetic; empty if not asked for."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Reason of each system that cannot be built or cannot run the plan, by its name."""
    ranges: Ranges | None = None
    """Firmness of the verdicts over the ranges of numbers, if it was asked for."""

    @property
    def fixed(self) -> bool:
        """Whether all systems ran one plan that was asked for."""
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
        """Return a row for each system, quantity and part, `heliograph.records.PART_COLUMNS`."""
        return [row for record in self.records() for row in part_rows(record)]

    def plot(self) -> Figure:
        """Return a figure of where time and energy go, a bar for each system."""
        from heliograph.figures import step_figure  # noqa: PLC0415 - matplotlib takes its time

        return step_figure(self.records())

    def over_ranges(self, progress: OnProgress = unheard) -> Comparison:
        """Return the comparison with how firm its verdicts are (`heliograph.comparison.ranges.ranges_of`)."""
        return replace(self, ranges=ranges_of(self.results, progress=progress))

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return title and lines of the comparison as it is shown."""
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
        """Return one plain record per system."""
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
        """Return everything that goes into ``summary.json``."""
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
    """Systems of a request."""

    systems: tuple[System, ...]
    """Those that can be built, in their order."""
    refused: Mapping[str, str]
    """Reason of each that physics or its budget forbid, by its name."""


def build_systems(request: Request) -> Built:
    """Return the systems of a request; a change applies to every system that has the parameter.

    Raises
    ------
    ParameterError
        If a name repeats, or no system has a parameter that is to be changed.
    HeliographError
        If none of them can be built: the reason of the first.
    """
    names = request.names
    if not names:
        msg = f"no system to compare; name some of {', '.join(SYSTEMS)}"
        raise ParameterError(msg)
    usual = ranks_of(request.plan) or _own_accelerators(names) or DEFAULT_ACCELERATORS
    choices = {"gpu": request.gpu, "basis": request.basis, "core": request.core, "fabric": request.fabric}
    given = {name: value for name, value in choices.items() if value is not None}
    refused = [
        choice_of(name, Options(accelerators=request.accelerators, **given), usual).contradictions
        for name in names
    ]
    for option in given:  # a choice must be of use to one system
        if all(option in sentences for sentences in refused):
            raise ParameterError(refused[-1][option])
    systems: list[System] = []
    reasons: dict[str, HeliographError] = {}
    unused = set(request.assignments)
    for name, sentences in zip(names, refused, strict=True):
        options: dict[str, Any] = {one: value for one, value in given.items() if one not in sentences}
        options |= {"accelerators": request.accelerators, "usual_accelerators": usual}
        try:
            plain = _probe(name, options, request.assignments)
            taken = fitting(plain, request.assignments)
            unused -= set(taken)
            systems.append(build_system(name, **options, assignments=taken))
        except (BudgetError, LinkError) as error:
            reasons[name] = error
    for text in sorted(unused):  # no system has it: build the last one with it to say why
        build_system(names[-1], **options, assignments=(text,))
    if not systems:
        raise next(iter(reasons.values()))
    _check_names(systems)
    if ranks_of(request.plan) is None:
        _check_numbers(systems)
    return Built(systems=tuple(systems), refused={name: str(error) for name, error in reasons.items()})


def _check_numbers(systems: Sequence[System]) -> None:
    """Refuse systems of different numbers of accelerators, between which no plan is shared."""
    numbers = {one.name: one.accelerators for one in systems}
    if len(set(numbers.values())) > 1:
        told = ", ".join(f"{name} {number:,}" for name, number in numbers.items())
        msg = f"only systems of one number of accelerators are compared; got {told}"
        raise ParameterError(msg)


def _own_accelerators(systems: Iterable[System | str]) -> int | None:
    """Return how many accelerators systems or their files say, which names beside them then have too."""
    own = [
        one.accelerators if isinstance(one, System) else choice_of(one, Options(), 0).accelerators
        for one in systems
    ]
    return next((number for number in own if number), None)


def _probe(name: str, options: Mapping[str, Any], assignments: Sequence[str]) -> System:
    """Return a system before changes, but with nodes as large as asked for where the usual do not fill."""
    sizes = [text for text in assignments if parse_assignment(text)[0].endswith("scale_up.size")]
    try:
        return build_system(name, **options)
    except ParameterError:
        if not sizes:
            raise
        return build_system(name, **options, assignments=sizes)


def choose_plan(request: Request, config: TransformerConfig, systems: Sequence[System]) -> Plan:
    """Return the plan of a request, or what the best plans of all systems share."""
    accelerators = systems[0].accelerators
    if not request.plan and not _unsearched(request, config):
        return shared_plan(config, accelerators)
    memory_bytes = min(system.node().memory.capacity_bytes for system in systems)
    return plan_for(config, request.plan, accelerators=accelerators, memory_bytes=memory_bytes)


def _searchable(config: TransformerConfig) -> bool:
    """Return whether plans of a model can be searched: the estimate knows all of its parts."""
    return config.retrieval is None


def _unsearched(request: Request, config: TransformerConfig) -> bool:
    """Return whether all systems take one default plan, as none is named and none can be searched."""
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
    """Return the same model on several systems, each at its own best plan or all at one.

    Parameters
    ----------
    systems : sequence of System or str, optional
        Hardware, or names of it; a name has as many accelerators as the plan takes. Without it, those of
        `heliograph.systems.names.rivals`.
    model : str, pathlib.Path, mapping or TransformerConfig
        As `heliograph.model` takes it.
    plan : str, mapping or Plan
        As `heliograph.plan` takes it, for all systems; without it, each runs its own best one
        (`heliograph.comparison.plan_search.best_plan`), the batch being the same for all.
    accelerators : int
        Of systems that are told by their names, in place of the plan's or of 1,024.
    objective : str
        What is least with the best plan of a system: ``time``, ``energy`` or ``cost`` of a step.
    power_limits : bool
        Whether lower power limits of all accelerators are tried with the best plans, for the least energy or
        cost (`heliograph.comparison.plan_search.LIMITS`).
    search : bool
        Whether the best plan of each system is sought beside a plan that is named, too.
    accuracy : bool
        Whether a small GPT is trained through each system's arithmetic, which takes minutes.
    quick : bool
        Whether few plans of each system are tried, and with `accuracy` fewer steps and seeds trained.
    thorough : bool
        Whether more plans of each system are tried, which takes minutes.
    seed : int, optional
        First seed of the training that `accuracy` runs; 0 without it.
    cache : TrainingCache
        Finished training runs, ``results/.training`` where none is given.
    progress : callable
        Told a label, how much is done, and how much there is.

    Raises
    ------
    HeliographError
        For names that are not known, a plan that does not fit, a link that does not close, for both `quick`
        and `thorough`, and for a `seed` without `accuracy`.
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
        _check_numbers(built)
    check_format_used(plan, built)
    light = next((one for one in built if one.photonic), None)
    smallest = min(built, key=lambda one: one.node().memory.capacity_bytes)
    asked = plan_of(plan, model=config, system=smallest) if plan not in (None, "") else None
    alike = asked is not None or _unsearched(Request(), config)
    spread = asked or choose_plan(Request(), config, built)
    searched = _searchable(config) and (search or not alike)
    least = Objective.named(objective)
    _check_used(least, config, searched=searched)
    request = Request(
        model=config.name,
        accelerators=smallest.accelerators,
        systems=tuple(one.name for one in built),
        plan=plan_text(spread) if alike else "",
        gpu=built[0].gpu.name,
        basis=str(light.basis) if light else None,
        core=light.core_name if light else None,
        objective=least,
        power_limits=power_limits,
        quick=quick,
        thorough=thorough,
        seed=seed or 0,
        accuracy=accuracy,
    )
    kept = cache or TrainingCache(Path("results") / ".training")
    hardware = Built(systems=tuple(built), refused={})
    return _compared(request, hardware, config, spread, search=searched, cache=kept, progress=progress)


def compare_request(
    request: Request,
    *,
    cache: TrainingCache,
    progress: OnProgress = unheard,
    stepped: Callable[[Comparison], object] = lambda comparison: None,
) -> Comparison:
    """Return the comparison that a command line asks for.

    Parameters
    ----------
    request : Request
        What is asked.
    cache : TrainingCache
        Finished training runs.
    progress : callable
        Told a label, how much is done, and how much there is.
    stepped : callable
        Handed the comparison before any step has run, and when all have, before the training; it may raise.

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
    if _unsearched(request, config):
        request = replace(request, plan=plan_text(plan))
    searched = _searchable(config)
    _check_used(request.objective, config, searched=searched)
    return _compared(
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


def _check_used(objective: Objective, config: TransformerConfig, *, searched: bool) -> None:
    """Raise an error if an objective is told, as it is beside power limits, and no plan is searched."""
    if searched or objective is Objective.TIME:
        return
    unknown = f"{config.name} looks texts up, which no search knows"
    why = "a plan is named" if _searchable(config) else unknown
    msg = f"objective '{objective}' is not used: {why}; leave it out"
    raise ParameterError(msg)


class _Clock:
    """Progress of steps, with the time left once one is done.

    Parameters
    ----------
    progress : callable
        Told a label, how much is done, and how much there is.
    total : int
        Steps and searches that there are.
    """

    def __init__(self, progress: OnProgress, total: int) -> None:
        self.done = 0
        self.beside = 0.0
        """What other processes have done by now of what they are at, in steps: half of it, on average."""
        self._progress = progress
        self._total = total
        self._began_s = time.monotonic()

    def __call__(self, label: str) -> None:
        """Tell what is being done."""
        if 0 < self.done < self._total:
            done = min(self.done + self.beside, float(self._total))
            left_s = (time.monotonic() - self._began_s) / done * (self._total - done)
            label += f", about {left_s:.0f} s left"
        self._progress(label, self.done, self._total)

    def about(self, name: str, doing: str) -> None:
        """Tell what is being done for a system."""
        self(f"{name}, {doing}")


@dataclass(frozen=True, kw_only=True)
class Searched:
    """Best plans of several systems."""

    best: Mapping[str, BestPlan]
    """By the system's name, in their order."""
    reasons: Mapping[str, HeliographError]
    """Why no plan of a system runs, by its name."""


@dataclass(frozen=True, kw_only=True)
class _Job:
    """Search of one system's plan, and later a look at the others' plans, for any process."""

    system: System
    config: TransformerConfig
    base: Plan
    objective: Objective
    effort: Effort
    limits: bool
    best: BestPlan | None = None
    winners: tuple[Candidate, ...] = ()


_PRICES = Prices()
"""Collectives that a process of searches has priced, for systems with the same fabric."""


def _search(
    job: _Job, prices: Prices = _PRICES, say: Callable[[str], None] = lambda _: None
) -> BestPlan | HeliographError:
    same: dict[str, Any] = {"effort": job.effort, "prices": prices, "say": say}
    try:
        if job.best is None:
            found = best_plan(job.system, job.config, job.base, objective=job.objective, **same)
        else:
            found = with_siblings(job.system, job.config, job.best, job.winners, **same)
            found = refined_plan(found, job.config, pieces=job.effort.pieces, limits=job.limits, say=say)
    except HeliographError as error:
        return error
    if found.winner.result is not None:
        # Kept with the step: worked out here, where its tasks are at hand, beside other systems' searches.
        _ = found.result.precision, found.result.core_lifetime_steps
    return found


def _search_all(jobs: tuple[_Job, ...]) -> list[BestPlan | HeliographError]:
    return [_search(one) for one in jobs]


def _shares(jobs: Sequence[_Job]) -> list[tuple[_Job, ...]]:
    """Return jobs for one process each: together those of one accelerator, whose work is priced once."""
    if len(jobs) <= (os.cpu_count() or 1):
        return [(one,) for one in jobs]
    alike: list[list[_Job]] = []
    for one in sorted(jobs, key=lambda job: not job.system.photonic):  # those that take longest first
        node = one.system.node()
        known = next((each for each in alike if each[0].system.node() == node), None)
        if known is None:
            alike.append([one])
        else:
            known.append(one)
    return [tuple(each) for each in alike]


SHARED_FROM = 256
"""Accelerators from which on searches are shared out over processes; smaller ones end before those start."""


def searches(
    systems: Sequence[System],
    config: TransformerConfig,
    base: Plan,
    *,
    objective: Objective,
    effort: Effort,
    limits: bool,
    share: bool,
    tell: _Clock,
) -> Searched:
    """Return the best plan of each system; each also tries those that are best on the others.

    Parameters
    ----------
    systems, config, base, objective, effort
        As `heliograph.comparison.plan_search.best_plan` takes them.
    limits : bool
        Whether lower power limits are tried with the best plans.
    share : bool
        Whether processes may be started: by a command, not by a script of which they would run a copy.
    tell : _Clock
        Progress.
    """
    same = partial(_Job, config=config, base=base, objective=objective, effort=effort, limits=limits)
    jobs = {one.name: same(system=one) for one in systems}
    share = share and len(jobs) > 1 and systems[0].accelerators >= SHARED_FROM
    prices = Prices()
    found: dict[str, BestPlan | HeliographError] = {}

    def keep(asked: tuple[_Job, ...], results: list[BestPlan | HeliographError]) -> None:
        for job, result in zip(asked, results, strict=True):
            found[job.system.name] = result
        if asked[-1].best is None:
            tell.done += len(asked)
            tell(f"best plan of {asked[-1].system.name}")

    own: dict[str, BestPlan] = {}

    def others() -> list[_Job]:
        own.update((name, one) for name, one in found.items() if isinstance(one, BestPlan))
        alone = not effort.siblings or len(own) < 2
        if alone and not (effort.pieces or limits):
            return []
        winners = tuple(plan for one in own.values() for plan in ([] if alone else one.handed_on(effort)))
        tell("the best plans again" if alone else "plans of the other systems")
        return [replace(jobs[name], best=one.alone(), winners=winners) for name, one in own.items()]

    if share:
        shares = _shares(list(jobs.values()))
        tell.beside = (min(os.cpu_count() or 1, len(shares)) - 1) * len(jobs) / len(shares) / 2.0
        run_all(shares, _search_all, keep, lambda: _shares(others()))
    else:
        for asked in (lambda: list(jobs.values()), others):
            for job in asked():
                tell.about(job.system.name, "estimating plans")
                keep((job,), [_search(job, prices, partial(tell.about, job.system.name))])
    for name, one in own.items():  # what did not change came back without its trace
        after = found[name]
        if isinstance(after, BestPlan) and after.winner.result is None:
            found[name] = replace(after, winner=replace(after.winner, result=one.winner.result))
        elif not isinstance(after, BestPlan):
            found[name] = one
    ordered = {name: found[name] for name in jobs if name in found}
    return Searched(
        best={name: one for name, one in ordered.items() if isinstance(one, BestPlan)},
        reasons={name: one for name, one in ordered.items() if not isinstance(one, BestPlan)},
    )


def _compared(
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
    """Return all steps, and what training comes to where it is asked for."""
    asked = Comparison(request=request, config=config, plan=plan, best={}, results=(), accuracies={})
    stepped(asked)
    tell = _Clock(progress, len(built.systems) * (bool(request.plan) + search))
    results: dict[str, StepResult] = {}
    reasons: dict[str, HeliographError] = {}
    runs: dict[Plan, StepRuns] = {}
    for index, system in enumerate(built.systems if request.plan else ()):
        own = system.planned(plan)
        tell(f"step on {system.name}")
        try:
            if own not in runs:
                runs[own] = StepRuns(step_graph(config, own), runs=len(built.systems) - index)
            results[system.name] = run_at_target(system, config, own, runs=runs[own])
        except HeliographError as error:
            reasons[system.name] = error
        tell.done += 1
    if request.plan and not results:  # before a search that could not be set beside anything
        raise next(iter(reasons.values()))
    systems = built.systems if search else ()
    searched = searches(
        systems,
        config,
        plan,
        objective=request.objective,
        effort=request.effort,
        limits=request.power_limits,
        share=share,
        tell=tell,
    )
    best = searched.best
    if not request.plan:
        results = {name: one.result for name, one in best.items()}
        reasons = dict(searched.reasons)
    tell("steps")
    if not results:
        raise next(iter(reasons.values()))
    found = replace(
        asked,
        best={name: one.alone() for name, one in best.items()},
        results=tuple(results.values()),
        refused={**built.refused, **{name: str(error) for name, error in reasons.items()}},
    )
    stepped(found)
    if request.ranges and contests([one.system for one in found.results]):
        found = replace(found, ranges=ranges_of(found.results, share=share, progress=progress))
    if not request.accuracy:
        return found
    arithmetics = [system_arithmetic(result.system) for result in results.values()]
    accuracies = train_all(
        {one.label: one for one in arithmetics}.values(),
        seeds=range(request.seed, request.seed + (QUICK_SEEDS if request.quick else SEEDS)),
        quick=request.quick,
        cache=cache,
        progress=of_part(progress, "small GPT"),
    )
    return replace(found, accuracies=accuracies)


def _check_names(systems: Sequence[System]) -> None:
    """Raise an error if a name stands twice."""
    names = [system.name for system in systems]
    if len(set(names)) != len(names):
        msg = f"systems {', '.join(names)}: every system may stand once; give TOML files a name of their own"
        raise ParameterError(msg)


SEEDS = 3
"""Seeds of the small GPT's training."""
QUICK_SEEDS = 2
"""The same with ``--quick``."""


def _configuration(comparison: Comparison) -> dict[str, Any]:
    """Return everything that is needed to run a comparison again; what was trained is no part of it."""
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


def reserve(comparison: Comparison, out: Path | None) -> RunWriter:
    """Make the directory of a run, before its training takes minutes for nothing.

    Parameters
    ----------
    comparison : Comparison
        With or without what was trained.
    out : pathlib.Path or None
        Its directory, or None for a new one below ``results``.

    Raises
    ------
    HeliographError
        If it cannot be made, or holds another run.
    """
    root, name = Path("results"), f"{comparison.config.name}-{comparison.request.accelerators}"
    return RunWriter(out or new_run_directory(root, name), fingerprint(_configuration(comparison)))


def check_free(comparison: Comparison, out: Path | None) -> None:
    """Raise an error if a directory holds a run of something else, before a search takes minutes.

    Parameters
    ----------
    comparison : Comparison
        As it is asked for, without results.
    out : pathlib.Path or None
        The directory, if one is named.

    Raises
    ------
    HeliographError
        If it does.
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
    from heliograph.figures import (  # noqa: PLC0415 - matplotlib takes its time
        energy_bars,
        loss_curves,
        save,
        step_time_bars,
    )

    run = reserve(comparison, out)
    records = comparison.records()
    with run.whole() as writer:
        writer.write_config(_configuration(comparison))
        writer.write_table("systems.csv", comparison.rows())
        writer.write_table("table.csv", comparison.parts())
        if comparison.ranges:
            writer.write_table("ranges.csv", comparison.ranges.rows())
            save(comparison.ranges.plot(), writer.directory / "ranges.png")
        step_time_bars(records, writer.directory / "step_time.png")
        energy_bars(records, writer.directory / "energy.png")
        if comparison.accuracies:
            loss_curves(comparison.curves(), writer.directory / "loss.png")
        writer.write_trace(_events(comparison.results))
        writer.write_summary(comparison.summary())
    return run.directory


def _events(results: Sequence[StepResult]) -> list[dict[str, Any]]:
    """Return the traces of all systems as one: each system's stages are processes of their own."""
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


PROCESSES_PER_SYSTEM = 10_000
"""Process numbers that a system's stages take in the common trace."""
