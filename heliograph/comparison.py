"""The main question: the same model and plan on several systems, in time, energy, cost and accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heliograph._version import __version__
from heliograph.fabrics import DEFAULT_FABRIC
from heliograph.parameters import status_counts, tables
from heliograph.records import (
    RunWriter,
    TrainingCache,
    configuration,
    fingerprint,
    new_run_directory,
    part_rows,
    row_of,
)
from heliograph.report import format_si
from heliograph.results import Tabular
from heliograph.simulation import StepResult, run_step, system_of
from heliograph.small_gpt import EXACT, Accuracy, steps_to_loss, system_arithmetic, train_all
from heliograph.system_names import (
    DEFAULT_ACCELERATORS,
    DEFAULT_CORE,
    DEFAULT_GPU,
    SYSTEMS,
    Options,
    choice_of,
)
from heliograph.systems import System, build_system, has_parameter
from heliograph.workload import ModelLike, PlanLike, plan_for, ranks_of
from heliograph.workload import model as model_of
from heliograph.workload import plan as plan_of
from simulator.errors import ParameterError
from simulator.parameter_tree import parse_assignment
from workloads.models.architecture import TransformerConfig
from workloads.plan.parallelism import plan_text
from workloads.plan.plan import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Progress = Callable[[str, int, int], None]
"""Told a label, how much is done, and how much there is."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Comparison as a command line asks for it; None where nobody chose."""

    model: str = "llama-3.1-405b"
    """Shipped model, or path of a Hugging Face ``config.json``."""
    accelerators: int | None = None
    """Accelerators in every system; None for those of the plan, of the files, or 1,024."""
    systems: tuple[str, ...] = tuple(SYSTEMS)
    """Systems by name, or paths of TOML files."""
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
    quick: bool = False
    """Shorter training of the small GPT, fewer seeds."""
    seed: int = 0
    """First seed; the others follow."""
    accuracy: bool = True
    """Whether the small GPT is trained."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(Tabular):
    """Results of the same model and plan on several systems."""

    request: Request
    """The request."""
    config: TransformerConfig
    """The model."""
    plan: Plan
    """The plan that every system ran."""
    results: tuple[StepResult, ...]
    """One per system."""
    accuracies: dict[str, Accuracy]
    """By label of the arithmetic; empty if not asked for."""
    labels: dict[str, str]
    """Label of each system's arithmetic."""

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each system, with the columns of `heliograph.records.COLUMNS`."""
        return [row_of(record) for record in self.records()]

    def parts(self) -> list[dict[str, Any]]:
        """Return a row for each system, quantity and part, `heliograph.records.PART_COLUMNS`."""
        return [row for record in self.records() for row in part_rows(record)]

    def plot(self) -> Figure:
        """Return a figure of where time and energy go, a bar for each system."""
        from heliograph.comparison_figures import step_figure  # noqa: PLC0415 - matplotlib takes its time

        return step_figure(self.records())

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return title and lines of the comparison as it is shown."""
        lines = [(f"{self.config.name} on {len(self.results)} systems", plan_text(self.plan))]
        for one in self.results:
            time, energy = format_si(one.step_time_s, "s"), format_si(one.energy_per_token_j, "J/token")
            cost = f"{one.usd_per_million_tokens:.3g} USD a million tokens"
            lines.append((one.system.name, f"{time}, {energy}, {cost}, {one.effective_bits:.2f} bits"))
        return lines

    def records(self) -> list[dict[str, Any]]:
        """Return one plain record per system."""
        found = []
        for result in self.results:
            record = result.record() | {"inputs_by_status": status_counts(result.system)}
            record["seed"] = self.request.seed if self.request.accuracy else None
            label = self.labels[result.system.name]
            if label in self.accuracies:
                steps = steps_to_loss(self.accuracies[label])
                record |= self.accuracies[label].record() | steps.record()
                record |= {
                    "time_to_loss_s": result.run_steps * record["step_time_s"] * steps.factor,
                    "energy_to_loss_j": result.run_steps * record["energy_j"] * steps.factor,
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
            "fabric": self.request.fabric or DEFAULT_FABRIC,
            "settings": list(self.request.assignments),
            "version": __version__,
            "plan": plan_text(self.plan),
            "tokens_per_step": self.plan.batch.global_batch * self.plan.batch.sequence_length,
            "seed": self.request.seed,
            "systems": self.records(),
            "exact_arithmetic": exact.record() if exact else None,
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


def build_systems(request: Request) -> list[System]:
    """Return the systems of a request; a change applies to every system that has the parameter.

    Raises
    ------
    ParameterError
        If a name repeats, or no system has a parameter that is to be changed.
    """
    if not request.systems:
        msg = f"no system to compare; name some of {', '.join(SYSTEMS)}"
        raise ParameterError(msg)
    usual = ranks_of(request.plan) or DEFAULT_ACCELERATORS
    choices = {"gpu": request.gpu, "basis": request.basis, "core": request.core, "fabric": request.fabric}
    given = {name: value for name, value in choices.items() if value is not None}
    refused = [
        choice_of(name, Options(accelerators=request.accelerators, **given), usual).contradictions
        for name in request.systems
    ]
    for option in given:  # a choice must be of use to one system
        if all(option in sentences for sentences in refused):
            raise ParameterError(refused[-1][option])
    systems: list[System] = []
    unused = set(request.assignments)
    for name, sentences in zip(request.systems, refused, strict=True):
        options: dict[str, Any] = {one: value for one, value in given.items() if one not in sentences}
        options |= {"accelerators": request.accelerators, "usual_accelerators": usual}
        plain = build_system(name, **options)
        fitting = [text for text in request.assignments if has_parameter(plain, parse_assignment(text)[0])]
        unused -= set(fitting)
        systems.append(build_system(name, **options, assignments=fitting))
    for text in sorted(unused):  # no system has it: build the last one with it to say why
        build_system(request.systems[-1], **options, assignments=(text,))
    _check_names(systems)
    return systems


def choose_plan(request: Request, config: TransformerConfig, systems: Sequence[System]) -> Plan:
    """Return the plan of a request, or the default one for the smallest memory among the systems."""
    memory_bytes = min(system.node().memory.capacity_bytes for system in systems)
    return plan_for(config, request.plan, accelerators=systems[0].accelerators, memory_bytes=memory_bytes)


def compare(
    systems: Sequence[System | str],
    model: ModelLike,
    plan: PlanLike | None = None,
    *,
    accuracy: bool = False,
    quick: bool = False,
    seed: int = 0,
    cache: TrainingCache | None = None,
    progress: Progress = lambda label, done, total: None,
) -> Comparison:
    """Return the same model and plan on several systems.

    Parameters
    ----------
    systems : sequence of System or str
        Hardware, or names of it; a name has as many accelerators as the plan takes.
    model : str, pathlib.Path, mapping or TransformerConfig
        As `heliograph.model` takes it.
    plan : str, mapping or Plan
        As `heliograph.plan` takes it; without it, the one chosen for the smallest memory among the systems.
    accuracy : bool
        Whether a small GPT is trained through each system's arithmetic, which takes minutes.
    quick : bool
        Whether it is trained for fewer steps and seeds.
    seed : int
        First seed of it.
    cache : TrainingCache
        Finished training runs, ``results/.training`` where none is given.
    progress : callable
        Told a label, how much is done, and how much there is.

    Raises
    ------
    HeliographError
        For names that are not known, a plan that does not fit, a link that does not close.
    """
    if isinstance(systems, str | System) or not isinstance(systems, Sequence) or not systems:
        msg = f'systems must be a list, such as ["gpu_packet", "photonic_packet"]; got {systems!r}'
        raise ParameterError(msg)
    config = model_of(model)
    built = [system_of(one, plan) for one in systems]
    _check_names(built)
    light = next((one for one in built if one.photonic), None)
    smallest = min(built, key=lambda one: one.node().memory.capacity_bytes)
    spread = plan_of(plan, model=config, system=smallest)
    request = Request(
        model=config.name,
        accelerators=smallest.accelerators,
        systems=tuple(one.name for one in built),
        plan=plan_text(spread),
        gpu=built[0].gpu.name,
        basis=str(light.basis) if light else None,
        core=light.core_name if light else None,
        quick=quick,
        seed=seed,
        accuracy=accuracy,
    )
    kept = cache or TrainingCache(Path("results") / ".training")
    return _compared(request, built, config, spread, cache=kept, progress=progress)


def compare_request(
    request: Request,
    *,
    cache: TrainingCache,
    progress: Progress = lambda label, done, total: None,
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
        Handed the comparison when all steps have run, before the training; it may raise.

    Raises
    ------
    HeliographError
        For anything wrong with the request: unknown names, a plan that does not fit, a link that does not
        close.
    """
    config = model_of(request.model)
    systems = build_systems(request)
    plan = choose_plan(request, config, systems)
    return _compared(request, systems, config, plan, cache=cache, progress=progress, stepped=stepped)


def _compared(
    request: Request,
    systems: Sequence[System],
    config: TransformerConfig,
    plan: Plan,
    *,
    cache: TrainingCache,
    progress: Progress,
    stepped: Callable[[Comparison], object] = lambda comparison: None,
) -> Comparison:
    """Return all steps, and what training comes to where it is asked for."""
    results: list[StepResult] = []
    graph = None
    for index, system in enumerate(systems):
        progress(f"step on {system.name}", index, len(systems))
        results.append(run_step(system, config, plan, graph=graph))
        graph = results[0].graph
    progress("steps", len(systems), len(systems))
    arithmetics = {system.name: system_arithmetic(system) for system in systems}
    found = Comparison(
        request=request,
        config=config,
        plan=plan,
        results=tuple(results),
        accuracies={},
        labels={name: one.label for name, one in arithmetics.items()},
    )
    stepped(found)
    if not request.accuracy:
        return found
    accuracies = train_all(
        {one.label: one for one in arithmetics.values()}.values(),
        seeds=range(request.seed, request.seed + (QUICK_SEEDS if request.quick else SEEDS)),
        quick=request.quick,
        cache=cache,
        progress=lambda done, total, label: progress(f"small GPT, {label}", done, total),
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


def write(comparison: Comparison, out: Path | None) -> Path:
    """Write the files of a run; return its directory.

    Raises
    ------
    HeliographError
        If they cannot be written, or the directory holds another run.
    """
    from heliograph.comparison_figures import (  # noqa: PLC0415 - matplotlib takes its time
        energy_bars,
        loss_curves,
        step_time_bars,
    )

    writer = reserve(comparison, out)
    directory = writer.directory
    records = comparison.records()
    writer.write_config(_configuration(comparison))
    writer.write_table("systems.csv", comparison.rows())
    writer.write_table("table.csv", comparison.parts())
    step_time_bars(records, directory / "step_time.png")
    energy_bars(records, directory / "energy.png")
    if comparison.accuracies:
        loss_curves(comparison.curves(), directory / "loss.png")
    writer.write_trace(_events(comparison.results))
    writer.write_summary(comparison.summary())
    return directory


def _events(results: Sequence[StepResult]) -> list[dict[str, Any]]:
    """Return the traces of all systems as one: each system's stages are processes of their own."""
    events = []
    for index, result in enumerate(results):
        offset = index * PROCESSES_PER_SYSTEM
        for event in result.trace.perfetto_events():
            moved = event | {"pid": event["pid"] + offset}
            if event["name"] == "process_name":
                moved["args"] = {"name": f"{result.system.name} {event['args']['name']}"}
            events.append(moved)
    return events


PROCESSES_PER_SYSTEM = 10_000
"""Process numbers that a system's stages take in the common trace."""
