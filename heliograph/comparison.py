"""The main question: the same model and plan on several systems, in time, energy, cost and accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from heliograph.fabrics import DEFAULT_FABRIC
from heliograph.parameters import status_counts, tables
from heliograph.records import RunWriter, TrainingCache, configuration, fingerprint, new_run_directory
from heliograph.simulation import StepResult, plan_for, run_step
from heliograph.small_gpt import EXACT, Accuracy, steps_to_loss, system_arithmetic, train_all
from heliograph.systems import DEFAULT_CORE, SYSTEMS, System, build_system, has_parameter
from simulator.errors import ParameterError
from simulator.parameter_tree import parse_assignment
from workloads.models.architecture import TransformerConfig
from workloads.models.config import load_model
from workloads.plan.parallelism import plan_text
from workloads.plan.plan import Plan

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a user asks to compare."""

    model: str = "llama-3.1-405b"
    """Shipped model, or path of a Hugging Face ``config.json``."""
    accelerators: int = 1024
    """Accelerators in every system."""
    systems: tuple[str, ...] = tuple(SYSTEMS)
    """Systems by name, or paths of TOML files."""
    plan: str = ""
    """Plan such as ``tp=8,pp=16,...``; empty for the one the program names."""
    gpu: str = "h100"
    """The GPU, and the one that photonic accelerators replace."""
    basis: str = "power"
    """How photonic accelerators are sized: power, area or count."""
    core: str = DEFAULT_CORE
    """Core of photonic accelerators that name no other."""
    fabric: str = DEFAULT_FABRIC
    """Fabric of packet systems that name no other."""
    assignments: tuple[str, ...] = ()
    """Single parameters to change, ``path=value``."""
    quick: bool = False
    """Shorter training of the small GPT, fewer seeds."""
    seed: int = 0
    """First seed; the others follow."""
    accuracy: bool = True
    """Whether the small GPT is trained."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What came out."""

    request: Request
    """What was asked."""
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

    def records(self) -> list[dict[str, Any]]:
        """Return one plain record per system."""
        found = []
        for result in self.results:
            record = result.record() | {"inputs_by_status": status_counts(result.system)}
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
            "accelerators": self.request.accelerators,
            "replaced_gpu": self.request.gpu,
            "basis": self.request.basis,
            "core": self.request.core,
            "fabric": self.request.fabric,
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
    options: dict[str, Any] = {
        "accelerators": request.accelerators,
        "gpu": request.gpu,
        "basis": request.basis,
        "core": request.core,
        "fabric": request.fabric,
    }
    systems = []
    unused = set(request.assignments)
    for name in request.systems:
        plain = build_system(name, **options)
        fitting = [text for text in request.assignments if has_parameter(plain, parse_assignment(text)[0])]
        unused -= set(fitting)
        systems.append(build_system(name, **options, assignments=fitting))
    for text in sorted(unused):  # no system has it: build the last one with it to say why
        build_system(request.systems[-1], **options, assignments=(text,))
    names = [system.name for system in systems]
    if len(set(names)) != len(names):
        msg = f"systems {', '.join(names)}: every system may stand once; give TOML files a name of their own"
        raise ParameterError(msg)
    return systems


def choose_plan(request: Request, config: TransformerConfig, systems: Sequence[System]) -> Plan:
    """Return the plan of a request, or the default one for the smallest memory among the systems."""
    memory_bytes = min(system.node().memory.capacity_bytes for system in systems)
    return plan_for(config, request.plan, accelerators=request.accelerators, memory_bytes=memory_bytes)


def compare(
    request: Request,
    *,
    cache: TrainingCache,
    progress: Progress = lambda label, done, total: None,
    stepped: Callable[[Comparison], object] = lambda comparison: None,
) -> Comparison:
    """Return the comparison that a request asks for.

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
    config = load_model(request.model)
    systems = build_systems(request)
    plan = choose_plan(request, config, systems)
    results = []
    for index, system in enumerate(systems):
        progress(f"step on {system.name}", index, len(systems))
        results.append(run_step(system, config, plan))
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
    if request.accuracy:
        accuracies = train_all(
            {one.label: one for one in arithmetics.values()}.values(),
            seeds=range(request.seed, request.seed + (QUICK_SEEDS if request.quick else SEEDS)),
            quick=request.quick,
            cache=cache,
            progress=lambda done, total, label: progress(f"small GPT, {label}", done, total),
        )
        return replace(found, accuracies=accuracies)
    return found


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
    writer.write_table([_flat(record) for record in records])
    step_time_bars(records, directory / "step_time.png")
    energy_bars(records, directory / "energy.png")
    if comparison.accuracies:
        loss_curves(comparison.curves(), directory / "loss.png")
    writer.write_trace(_events(comparison.results))
    writer.write_summary(comparison.summary())
    return directory


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{part}": inner for part, inner in value.items()}
        elif not isinstance(value, list):
            flat[key] = value
    return flat


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
