"""Cores, fabrics, models and schedules from outside the package, registered by name.

A name is found in this order: what is registered already; ``FILE.py:ATTRIBUTE``; the entry points of
installed packages, in the groups ``heliograph.cores``, ``heliograph.fabrics``, ``heliograph.models`` and
``heliograph.schedules``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heliograph.plugins import from_outside, is_reference
from heliograph.systems.fabrics import register_fabric
from optical.cores import CORES, Core, load_core, register_core
from optical.cores.rescues import rescued, split_name
from simulator.errors import ParameterError
from workloads.models.architecture import TransformerConfig
from workloads.models.config import from_hugging_face, known_models, load_model, register_model
from workloads.pipeline.schedule import SCHEDULES, register_schedule

__all__ = [
    "core_named",
    "know_schedule",
    "model_named",
    "register_core",
    "register_fabric",
    "register_model",
    "register_schedule",
]


CORE_GROUP = "heliograph.cores"
"""Entry points whose objects `register_core` takes."""
MODEL_GROUP = "heliograph.models"
"""Entry points of models, of mappings such as a config.json holds, or of functions that return one."""
SCHEDULE_GROUP = "heliograph.schedules"
"""Entry points whose objects `register_schedule` takes."""


def core_named(name: str) -> Core:
    """Return a core by its name, from a file's class, or from an installed package, rescues around it.

    Raises
    ------
    ParameterError
        If there is none, or what there is does not answer `optical.cores.Core`.
    """
    within, rescues = split_name(name, CORES) if isinstance(name, str) else (name, ())
    if within not in CORES:
        found: Any = from_outside(CORE_GROUP, within)
        if found is not None:
            register_core(within, found)
    return rescued(load_core(within), rescues)


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
    made = found() if callable(found) else found
    if isinstance(made, Mapping):
        made = from_hugging_face(made, name=name)
    if not isinstance(made, TransformerConfig):
        msg = (
            f"'{name}' is no model: it must be a TransformerConfig, or a mapping such as a config.json holds"
        )
        raise ParameterError(msg)
    return made if is_reference(name) else register_model(name, made)


def know_schedule(name: str) -> None:
    """Register a schedule of a file or an installed package where no schedule has its name yet.

    Raises
    ------
    HeliographError
        If what is there is no `workloads.pipeline.schedule.Schedule`.
    """
    if name not in SCHEDULES:
        found: Any = from_outside(SCHEDULE_GROUP, name)
        if found is not None:
            register_schedule(name, found)
