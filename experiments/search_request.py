"""From the options of a search to its systems, its base plan and what it may choose."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

from experiments.fabrics import CIRCUITS, check_fabric
from experiments.search_estimates import Objective
from experiments.search_topologies import topologies
from experiments.step import TOKENS_PER_ACCELERATOR
from experiments.systems import SYSTEMS, System, build_system
from heliograph.errors import HeliographError, ParameterError, nearest
from workloads.architecture import TransformerConfig
from workloads.config import load_model
from workloads.parallelism import default_sequence_length, parse_plan
from workloads.plan import Parallelism
from workloads.plan_arrays import COLUMNS, RECOMPUTES, SCHEDULES


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What a search is run on."""

    systems: Mapping[str, System]
    """Systems by topology."""
    unplaced: Mapping[str, str]
    """Fabrics that cannot be made, and why."""
    config: TransformerConfig
    """The model."""
    base: Parallelism
    """What all plans share."""
    choices: Mapping[str, tuple[int, ...]]
    """Columns that the plan pins."""


def objective_of(text: str) -> Objective:
    """Return the objective of a name.

    Raises
    ------
    ParameterError
        If there is none of that name.
    """
    if text not in set(Objective):
        msg = f"no objective '{text}'; {nearest(text, set(Objective), noun='objective')}"
        raise ParameterError(msg)
    return Objective(text)


def prepared(arguments: argparse.Namespace) -> Prepared:
    """Return what the command line asks to search.

    Raises
    ------
    ParameterError
        If a system, fabric or number is wrong.
    WorkloadError
        If the model or the plan cannot be read.
    """
    if arguments.top < 1:
        msg = f"--top must be at least 1; got {arguments.top}"
        raise ParameterError(msg)
    config = load_model(arguments.model)
    sequence = default_sequence_length(config)
    batch = max(1, arguments.accelerators * TOKENS_PER_ACCELERATOR // sequence)
    base = parse_plan(arguments.plan, base=Parallelism(sequence_length=sequence, global_batch=batch))
    systems: dict[str, System] = {}
    unplaced: dict[str, str] = {}
    wanted = [name.strip() for name in arguments.fabrics.split(",") if name.strip()]
    for fabric in wanted or [""]:
        try:
            built = _built(arguments, fabric)
            systems |= topologies(built) if arguments.variants else {fabric or built.fabric.name: built}
        except HeliographError as error:
            if len(wanted) < 2:
                raise
            unplaced[fabric] = str(error)
    return Prepared(
        systems=systems, unplaced=unplaced, config=config, base=base, choices=_pinned(arguments.plan, base)
    )


def _built(arguments: argparse.Namespace, fabric: str) -> System:
    name = arguments.system
    if fabric:
        check_fabric(fabric)
        base, colon, core = name.partition("@")[0].partition(":")
        if base in SYSTEMS:
            base = base.replace("packet", "ocs") if fabric == CIRCUITS else base.replace("ocs", "packet")
            name = base + colon + core
    return build_system(
        name,
        accelerators=arguments.accelerators,
        gpu=arguments.gpu,
        basis=arguments.basis,
        core=arguments.core,
        fabric=arguments.fabric if not fabric or fabric == CIRCUITS else fabric,
        assignments=arguments.set,
    )


def _pinned(text: str, base: Parallelism) -> dict[str, tuple[int, ...]]:
    """Return the columns that a plan's text names, each with its only value."""
    named = {part.partition("=")[0].strip() for part in text.split(",") if part.strip()}
    pinned: dict[str, tuple[int, ...]] = {}
    for name in COLUMNS:
        if name not in named:
            continue
        value = getattr(base, name)
        known = {"schedule": SCHEDULES, "recompute": RECOMPUTES}.get(name)
        if known is not None and value not in known:
            msg = f"plan: a search has no {name}={value}; {nearest(str(value), [str(one) for one in known])}"
            raise ParameterError(msg)
        pinned[name] = (known.index(value),) if known is not None else (int(value),)
    return pinned
