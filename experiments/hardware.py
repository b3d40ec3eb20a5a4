"""Options that choose a system, a model and its plan, in every study that has them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from experiments.study import option
from heliograph.simulation import StepResult, run_at_target
from heliograph.systems import System, build_system
from heliograph.systems.names import DEFAULT_CORE
from heliograph.systems.registry import model_named
from heliograph.workload import plan_on, ranks_of
from simulator.errors import ParameterError
from simulator.node import Penalties

DEFAULT_ACCELERATORS = 1024
"""Accelerators where neither the plan nor the user says how many."""
SYSTEM = "system by name, or a TOML file"
"""Text on a system's name."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Model and plan."""

    model: str = option("llama-3.1-405b", "model by name, or a config.json")
    plan: str = option("", "tp=8,pp=16,dp=8,micro_batch=1,global_batch=512,...")


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """The GPU, and how light that replaces it is sized."""

    gpu: str | None = option(None, "the GPU, or the one that light replaces; default h100")
    basis: str | None = option(None, "size photonic accelerators by power, area or count; default power")

    def given(self) -> dict[str, Any]:
        """Return what somebody gave, as `build_system` takes it."""
        return {
            name: value for name, value in (("gpu", self.gpu), ("basis", self.basis)) if value is not None
        }


def changes(text: str = "") -> Any:  # noqa: ANN401 - a field of any type
    """Return the field of ``--set``: changes of the hardware, each ``path=value``."""
    usual = (
        "change one number of the hardware (heliograph show SYSTEM lists the paths), or one part by its name "
        "(core.adc=NAME, heliograph list parts) or what a file says of it (core.crossing=FILE.s4p); may be "
        "repeated"
    )
    return option((), text or usual, flag="--set", metavar="PATH=VALUE")


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Hardware of a system that a study names."""

    core: str | None = option(
        None, f"core of photonic accelerators (heliograph list cores); default {DEFAULT_CORE}"
    )
    fabric: str | None = option(
        None,
        "fabric of packet systems (heliograph list fabrics), or graph:FILE (GraphML, or JSON node-link); "
        "default rails",
    )
    replaced: Replaced = field(default_factory=Replaced)
    penalties: Penalties | None = option(
        None, "accelerators that pay for host, company, the slowest of them and idle power; default both"
    )
    precision_target: str | None = option(
        None,
        "format whose signal-to-noise ratio light delivers (fp8, int8, ...), decibels, or none for the laser "
        "as it stands; default fp8",
        metavar="fp8|int8|DB|none",
    )
    settings: tuple[str, ...] = changes()

    @property
    def assignments(self) -> tuple[str, ...]:
        """Changes of the system: those of ``--set``, and penalties and target if somebody chose."""
        chosen = () if self.penalties is None else (f"penalties={self.penalties}",)
        return (*self.settings, *chosen, *_aimed(self.precision_target))

    def given(self) -> dict[str, Any]:
        """Return what somebody gave, as `build_system` takes it."""
        more = (("core", self.core), ("fabric", self.fabric))
        return self.replaced.given() | {name: value for name, value in more if value is not None}

    def system(
        self, name: str, *, accelerators: int | None = None, usual_accelerators: int = DEFAULT_ACCELERATORS
    ) -> System:
        """Return a named system of this hardware, of the usual number where neither option nor file says."""
        return build_system(
            name,
            accelerators=accelerators,
            usual_accelerators=usual_accelerators,
            **self.given(),
            assignments=self.assignments,
        )


def _aimed(target: str | None) -> tuple[str, ...]:
    """Return the change that a target of precision is: of its decibels if it is a number."""
    if target is None:
        return ()
    return (f"lighting.target={target}" if decibels_in(target) is None else f"lighting.target_db={target}",)


def decibels_in(target: str) -> float | None:
    """Return the decibels of a target of precision, ``24`` or ``24dB``; None of a format's name."""
    try:
        found_db = float(target.lower().removesuffix("db"))
    except ValueError:
        return None
    if not math.isfinite(found_db):
        msg = f"a target of signal over noise must be a finite number of decibels; got {target}"
        raise ParameterError(msg)
    return found_db


def one_step(system: str, workload: Workload, hardware: Hardware, *, accelerators: int | None) -> StepResult:
    """Return one step of a model on a system, with the plan that is asked for or the default one."""
    config = model_named(workload.model)
    usual = ranks_of(workload.plan) or DEFAULT_ACCELERATORS
    built = hardware.system(system, accelerators=accelerators, usual_accelerators=usual)
    return run_at_target(built, config, plan_on(built, config, workload.plan))
