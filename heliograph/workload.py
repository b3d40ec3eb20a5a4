"""Models and plans as a person names them: text, files, dictionaries or the objects themselves."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from heliograph.systems.system import System
from simulator.errors import (
    HeliographError,
    IncompleteWarning,
    ParameterError,
    SuspectWarning,
    WorkloadError,
    plain_number,
    told,
)
from simulator.plugins import from_outside, is_reference, offered
from workloads.models.architecture import TransformerConfig
from workloads.models.config import from_hugging_face, known_models, load_model, register_model
from workloads.pipeline.schedule import SCHEDULES, register_schedule
from workloads.plan.plan import ALIASES, Plan, default_sequence_length, parse_plan
from workloads.plan.rules import check, idle
from workloads.step.memory import check_fits, default_plan

TOKENS_PER_ACCELERATOR = 4096
"""Tokens of a step per accelerator by default: 4 M on 1,024, 16 M on 4,096."""

MODEL_GROUP = "heliograph.models"
"""Group of entry points of models: configurations, mappings with their keys, or functions that return one."""
SCHEDULE_GROUP = "heliograph.schedules"
"""Group of entry points whose objects `register_schedule` takes."""

ModelLike = TransformerConfig | str | Path | Mapping[str, Any]
"""A model, its name, the path of its config.json, or the content of one."""
PlanLike = Plan | str | Mapping[str, Any]
"""A plan, its text, or its keys and values."""


def model(source: ModelLike) -> TransformerConfig:
    """Return a model by name, from a config.json or from the content of one.

    Parameters
    ----------
    source : str, pathlib.Path, mapping or TransformerConfig
        ``"llama-3-8b"`` (``heliograph list models``), the path of a Hugging Face ``config.json``, a mapping
        with the same keys, or a model, which is returned as it is.

    Raises
    ------
    WorkloadError
        If there is no such model, or it cannot be read.
    ParameterError
        If the source is of another type.
    """
    return _config(source)


def _config(source: ModelLike) -> TransformerConfig:
    match source:
        case TransformerConfig():
            return source
        case Mapping():
            return from_hugging_face({key: plain_number(value) for key, value in source.items()})
        case str() | Path():
            return model_named(source)
    msg = f"a model is a name, the path of a config.json or a mapping such as it holds; got {told(source)}"
    raise ParameterError(msg)


def model_named(name: str | Path) -> TransformerConfig:
    """Return a model by its name, by the path of its config.json, from a file's attribute or a package.

    Raises
    ------
    WorkloadError
        If there is none, or it cannot be read.
    ParameterError
        If a file's attribute or a package's object is no model.
    """
    if isinstance(name, Path) or name in known_models():
        return load_model(name)
    found: Any = from_outside(MODEL_GROUP, name)
    if found is None:
        return load_model(name)
    made = found() if callable(found) and not _needs_arguments(found) else found
    if isinstance(made, Mapping):
        made = from_hugging_face(made, name=name)
    if not isinstance(made, TransformerConfig):
        msg = (
            f"'{name}' is no model: it must be a TransformerConfig, a mapping such as a config.json holds, "
            "or a function without arguments that returns one of them"
        )
        raise ParameterError(msg)
    return made if is_reference(name) else register_model(name, made)


def _needs_arguments(function: Callable[..., object]) -> bool:
    """Return whether a function cannot be called without arguments."""
    try:
        inspect.signature(function).bind()
    except TypeError:
        return True
    except ValueError:  # some of those written in C do not say
        return False
    return False


def plan(
    source: PlanLike | None = None,
    *,
    model: ModelLike,
    system: System | None = None,
    accelerators: int | None = None,
) -> Plan:
    """Return a plan, checked against the model and, where there is one, the system.

    Parameters
    ----------
    source : str, mapping or Plan
        ``"tp=8,dp=8,global_batch=64"``, or a mapping of the same keys; other keys have their defaults, the
        sequence length that of the model. By default the plan of `workloads.step.memory.default_plan` for the
        system.
    model : str, pathlib.Path, mapping or TransformerConfig
        As `model` takes it.
    system : System
        Hardware, whose accelerators the plan must use, and whose memory it must fit.
    accelerators : int
        Accelerators that the plan must use, if there is no system.

    Raises
    ------
    WorkloadError
        If the plan cannot be read, or does not fit.
    ParameterError
        If something is of another type, or there is neither a source nor a system.
    """
    config = _config(model)
    if system is not None and not isinstance(system, System):
        msg = f"system must be what heliograph.system returns; got {told(system)}"
        raise ParameterError(msg)
    if system is not None and accelerators not in (None, system.accelerators):
        msg = f"accelerators ({accelerators}) is not used: the system has {system.accelerators}; leave it out"
        raise ParameterError(msg)
    if source is None or source == "":
        if system is None:
            msg = "a plan needs text such as 'tp=8,dp=8,global_batch=64', or a system to be chosen for"
            raise ParameterError(msg)
        return plan_on(system, config)
    found = _read(source, config)
    check(config, found, accelerators=accelerators if system is None else system.accelerators)
    if system is not None:
        check_fits(config, found, system.node().memory.capacity_bytes)
    return found


def _read(source: PlanLike, config: TransformerConfig) -> Plan:
    if isinstance(source, Plan):
        return source
    found = _parsed(source, Plan.of(sequence_length=default_sequence_length(config)))
    for sentence in idle(config, found, plan_keys(source)):
        warnings.warn(sentence, SuspectWarning, stacklevel=4)
    return found


def _parsed(source: str | Mapping[str, Any], base: Plan | None = None) -> Plan:
    """Return the plan of a text or its keys; a schedule of a file or a package is registered first."""
    if isinstance(source, Mapping):
        source = keys_text(source)
    if not isinstance(source, str):
        msg = f"a plan is text such as 'tp=8,dp=8', a mapping or a plan; got {told(source)}"
        raise ParameterError(msg)
    if schedule := plan_keys(source).get("schedule"):
        know_schedule(schedule)
    return parse_plan(source, base=base)


def know_schedule(name: str) -> None:
    """Register the schedule of a file or an installed package under its name, unless that is registered.

    Raises
    ------
    HeliographError
        If it is no `workloads.pipeline.schedule.Schedule`.
    """
    if name not in SCHEDULES:
        schedule: Any = from_outside(SCHEDULE_GROUP, name)
        if schedule is not None:
            register_schedule(name, schedule)


def know_offered_schedules() -> None:
    """Register the schedules of all installed packages; warn of each that fails."""
    for name in offered(SCHEDULE_GROUP):
        try:
            know_schedule(name)
        except HeliographError as error:
            warnings.warn(f"schedule '{name}' is not tried: {error}", IncompleteWarning, stacklevel=2)


def plan_on(system: System, config: TransformerConfig, text: str = "") -> Plan:
    """Return the plan that a text names, or the default one of a system; see `plan_for`."""
    check_format_used(text, [system])
    memory_bytes = system.node().memory.capacity_bytes
    return plan_for(config, text, accelerators=system.accelerators, memory_bytes=memory_bytes)


def check_format_used(plan: PlanLike | None, systems: Sequence[System]) -> None:
    """Refuse a plan's format of products if every system has another format of its own.

    Raises
    ------
    ParameterError
        Its message names the first system and its format.
    """
    named = plan_keys(plan).get("precision")
    own = [system.precision for system in systems]
    if named is None or None in own or named in map(str, own):
        return
    msg = (
        f"plan: precision={named} is not used: the products of '{systems[0].name}' run in {own[0]}; leave "
        "one of the two out"
    )
    raise ParameterError(msg)


def plan_keys(plan: PlanLike | None) -> dict[str, str]:
    """Return the keys and values in a plan's text or mapping, aliases resolved; none of a `Plan`."""
    if isinstance(plan, Mapping):
        return {ALIASES.get(str(key), str(key)): str(value) for key, value in plan.items()}
    if not isinstance(plan, str):
        return {}
    pairs = (pair.partition("=") for pair in plan.split(",") if pair.strip())
    return {ALIASES.get(key.strip(), key.strip()): value.strip() for key, _, value in pairs}


def keys_text(keys: Mapping[str, Any]) -> str:
    """Return the keys of a plan with their values as text, as ``--plan`` takes it."""
    return ",".join(f"{key}={value}" for key, value in keys.items())


def plan_for(config: TransformerConfig, text: str, *, accelerators: int, memory_bytes: float) -> Plan:
    """Return the plan of a text, or the default plan.

    Parameters
    ----------
    config : TransformerConfig
        The model.
    text : str
        ``tp=8,pp=16,...``; other keys have the defaults of `Plan`, the sequence length that of the model. If
        empty, the plan of `workloads.step.memory.default_plan` is returned.
    accelerators : int
        Number of accelerators of the default plan.
    memory_bytes : float
        Memory of each of them.
    """
    if text:
        return _read(text, config)
    sequence_length = default_sequence_length(config)
    return default_plan(
        config,
        accelerators=accelerators,
        memory_bytes=memory_bytes,
        global_batch=_usual_batch(accelerators, sequence_length),
    )


def _usual_batch(accelerators: int, sequence_length: int) -> int:
    """Return the default global batch: about `TOKENS_PER_ACCELERATOR` each, as sequences shared evenly.

    If there is less than a sequence per accelerator, the batch divides the number of accelerators, so that
    equally many share each sequence.
    """
    whole, rest = divmod(accelerators * TOKENS_PER_ACCELERATOR, sequence_length)
    if whole >= accelerators:
        return whole - whole % accelerators
    least = max(1, whole + (rest > 0))
    return next(count for count in range(least, accelerators + 1) if accelerators % count == 0)


def shared_plan(config: TransformerConfig, accelerators: int, text: str = "") -> Plan:
    """Return the plan with the keys that all plans of a search share: those of a text, else the defaults."""
    base = Plan.of(sequence_length=default_sequence_length(config))
    plan = _parsed(text, base) if text else base
    if "global_batch" in plan_keys(text):
        return plan
    return plan.with_(global_batch=_usual_batch(accelerators, plan.batch.sequence_length))


def ranks_of(source: PlanLike | None) -> int | None:
    """Return the number of accelerators of a plan; None if there is no plan, or it cannot be read."""
    if source is None or source == "":
        return None
    try:
        return (source if isinstance(source, Plan) else _parsed(source)).axes.ranks
    except WorkloadError:
        return None
