"""Cores, fabrics, models and schedules from outside the package, registered by name.

A name is found in this order: what is registered already; ``FILE.py:ATTRIBUTE``; the entry points of
installed packages, in the groups ``heliograph.cores``, ``heliograph.fabrics``, ``heliograph.models`` and
``heliograph.schedules``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from heliograph.plugins import from_outside
from optical.cores import CORES, load_core
from optical.cores.core import Core
from workloads.models.architecture import TransformerConfig
from workloads.models.config import from_hugging_face, load_model, shipped_models

__all__ = [
    "core_named",
    "know_schedule",
    "model_named",
    "register_core",
    "register_fabric",
    "register_model",
    "register_schedule",
]


def register_fabric(name, build):
    from heliograph.fabrics import register_fabric as f
    f(name, build)


def register_core(name, core):
    from optical.cores.registry import register_core as f

    f(name, core)


def register_model(name, config):
    raise NotImplementedError


def register_schedule(name, schedule):
    from workloads.pipeline.schedule import register_schedule as f

    f(name, schedule)


SCHEDULES = {"1f1b", "gpipe", "interleaved"}

CORE_GROUP = "heliograph.cores"
"""Entry points whose objects `register_core` takes."""
MODEL_GROUP = "heliograph.models"
"""Entry points of models, of mappings such as a config.json holds, or of functions that return one."""
SCHEDULE_GROUP = "heliograph.schedules"
"""Entry points whose objects `register_schedule` takes."""


def core_named(name: str) -> Core:
    """Return a core by its name, from a file's class, or from an installed package.

    Raises
    ------
    ParameterError
        If there is none, or what there is does not answer `optical.cores.Core`.
    """
    if name not in CORES:
        found: Any = from_outside(CORE_GROUP, name)
        if found is not None:
            register_core(name, found)
    return load_core(name)


def model_named(name: str | Path) -> TransformerConfig:
    """Return a model by its name, by the path of its config.json, from a file's attribute or a package.

    Raises
    ------
    WorkloadError
        If there is none, or it cannot be read.
    ParameterError
        If a file's attribute or a package's object is no model.
    """
    if isinstance(name, str) and name not in shipped_models():
        found: Any = from_outside(MODEL_GROUP, name)
        if found is not None:
            made = found() if isinstance(found, Callable) else found
            register_model(name, from_hugging_face(made, name=name) if isinstance(made, Mapping) else made)
    return load_model(name)


def know_schedule(name: str) -> None:
    """Register a schedule of a file or an installed package where no schedule has its name yet.

    Raises
    ------
    HeliographError
        If what is there is no `workloads.pipeline.schedule.Schedule`.
    """
    if ".py:" in name:
        found: Any = from_outside(SCHEDULE_GROUP, name)
        if found is not None:
            register_schedule(name, found)
