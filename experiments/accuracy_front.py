"""Loss against energy per token: what light, bits, size and wavelengths of a core buy."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from experiments.accuracy import BFLOAT16, FLOAT8, Arithmetic
from experiments.records import TrainingCache
from experiments.sensitivity import Effort, predict_and_execute
from experiments.sensitivity_records import Prediction
from experiments.step import plan_for, run_step
from experiments.systems import System, build_system
from heliograph.errors import LinkError, ParameterError
from heliograph.paths import get_at
from workloads.config import load_model

KNOBS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "laser power": ("photonic.core.laser_power_w",),
        "output bits": ("photonic.core.adc.nominal_bits", "photonic.core.adc.enob_bits"),
        "array size": ("photonic.core.rows", "photonic.core.columns"),
        "wavelengths": ("photonic.core.wavelengths",),
    }
)
"""What is turned, and the parameters that turn with it; those that a core lacks are left out."""
FACTORS: Mapping[str, Sequence[float]] = MappingProxyType(
    {
        "laser power": (0.05, 0.1, 0.25, 0.5, 2.0, 4.0),
        "array size": (0.5, 2.0, 3.0),
        "wavelengths": (0.5, 2.0, 4.0),
    }
)
"""Times the present value, by knob."""
BITS = (-3.0, -2.0, -1.0, 1.0, 2.0)
"""Bits more than at present."""
PRESENT = "present"
"""Knob of the system as it is."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of a system."""

    knob: str
    """What was turned."""
    value: float
    """Value of the first of its parameters, SI."""
    raised: bool
    """Whether that is above the present value."""
    system: System | None
    """The system, its link budget solved anew; None where it cannot be built."""
    reason: str = ""
    """Why not."""

    @property
    def label(self) -> str:
        """Name of the setting's arithmetic."""
        return f"{self.knob} {self.value:g}" if self.knob != PRESENT else PRESENT


@dataclass(frozen=True, kw_only=True)
class FrontPoint:
    """A setting with its price and its loss."""

    knob: str
    """What was turned."""
    value: float
    """To which value, SI; not a number for a GPU."""
    raised: bool
    """Whether that is above the present value."""
    energy_j: float
    """Energy per token of a training step; not a number where none is modelled."""
    time_s: float
    """Step time."""
    effective_bits: float
    """Of a full-scale sample."""
    rise: float
    """What noise costs a clean model at inference, nats per byte, mean over models."""
    error: float
    """Its standard error over draws."""

    def row(self) -> dict[str, Any]:
        """Return the point as a row of a table."""
        return {
            "knob": self.knob,
            "value": self.value,
            "energy_j_per_token": self.energy_j,
            "step_time_s": self.time_s,
            "effective_bits": self.effective_bits,
            "loss_rise_nats": self.rise,
            "standard_error_nats": self.error,
        }


@dataclass(frozen=True, kw_only=True)
class Front:
    """All points."""

    system: str
    """Name of the system."""
    workload: str
    """Model whose step is priced."""
    points: tuple[FrontPoint, ...]
    """Settings, the present one first."""
    marks: tuple[FrontPoint, ...]
    """GPUs."""
    missing: tuple[str, ...]
    """Settings that cannot be built, and why."""


def settings(name: str, **options: Any) -> list[Setting]:  # noqa: ANN401 - as `build_system` takes them
    """Return the system as it is, then each knob turned alone; every change goes the way of ``--set``."""
    given = tuple(options.pop("assignments", ()))
    present = build_system(name, **options, assignments=given)
    if present.photonic is None:
        msg = f"system '{name}' has no photonic core whose knobs could be turned; name photonic_packet"
        raise ParameterError(msg)
    found = [Setting(knob=PRESENT, value=math.nan, raised=False, system=present)]
    for knob, paths in KNOBS.items():
        owned = [(path, _value(present, path)) for path in paths]
        values = [(path, value) for path, value in owned if value is not None]
        if not values:
            continue
        for turned in _turned(knob, values):
            falls = turned[0][1] < values[0][1]  # effective bits must never exceed nominal ones
            order = reversed(turned) if falls else turned
            changes = tuple(f"{path}={value:.6g}" for path, value in order)
            one = Setting(knob=knob, value=turned[0][1], raised=not falls, system=None)
            try:
                system = build_system(name, **options, assignments=given + changes)
                system.analog()
            except (LinkError, ParameterError) as error:
                found.append(dataclasses.replace(one, reason=str(error)))
            else:
                found.append(dataclasses.replace(one, system=system))
    return found


def _value(system: System, path: str) -> float | None:
    try:
        value = get_at(system, path)
    except ParameterError:
        return None
    return float(value) if isinstance(value, int | float) else None


def _turned(knob: str, values: list[tuple[str, float]]) -> list[list[tuple[str, float]]]:
    if knob == "output bits":
        return [[(path, value + more) for path, value in values] for more in BITS]
    whole = knob != "laser power"
    return [
        [(path, float(round(value * factor)) if whole else value * factor) for path, value in values]
        for factor in FACTORS[knob]
    ]


def accuracy_front(
    found: Sequence[Setting],
    *,
    workload: str,
    effort: Effort,
    cache: TrainingCache,
    progress: Callable[[str, int, int], None] = lambda label, done, total: None,
) -> Front:
    """Price a step at every setting, and execute a clean model through it.

    Parameters
    ----------
    found : sequence of Setting
        The present system first.
    workload : str
        Model whose training step is priced, as `heliograph compare` takes it.
    effort : Effort
        How much of the small GPT is run.
    cache : TrainingCache
        Finished runs, which are not repeated.
    progress : callable
        Told what is done.
    """
    built = [(one, one.system) for one in found if one.system is not None]
    arithmetics = [Arithmetic(label=one.label, analog=system.analog()) for one, system in built]
    marks = [Arithmetic(label=BFLOAT16), Arithmetic(label=FLOAT8)]
    executed = predict_and_execute(
        (*arithmetics, *marks),
        effort=dataclasses.replace(effort, core_pairs=2, ladder_db=(20.0,), error_classes=()),
        cache=cache,
        progress=lambda done, total, label: progress(f"clean model, {label}", done, total),
    )
    config, present = load_model(workload), built[0][1]
    memory_bytes = present.node().memory.capacity_bytes
    plan = plan_for(config, "", accelerators=present.accelerators, memory_bytes=memory_bytes)

    def point(one: Setting, system: System | None) -> FrontPoint:
        step = run_step(system, config, plan).record() if system is not None else {}
        rise, error = _rise(executed, one.knob if math.isnan(one.value) else one.label)
        return FrontPoint(
            knob=one.knob,
            value=one.value,
            raised=one.raised,
            energy_j=step.get("energy_per_token_j", math.nan),
            time_s=step.get("step_time_s", math.nan),
            effective_bits=step.get("effective_bits", math.nan),
            rise=rise,
            error=error,
        )

    points = []
    for index, (one, system) in enumerate(built):
        points.append(point(one, system))
        progress("steps", index + 1, len(built))
    gpu = build_system("gpu_packet", accelerators=present.accelerators, gpu=present.gpu.name)
    return Front(
        system=present.name,
        workload=config.name,
        points=tuple(points),
        marks=tuple(
            point(Setting(knob=name, value=math.nan, raised=False, system=system), system)
            for name, system in ((BFLOAT16, gpu), (FLOAT8, None))
        ),
        missing=tuple(f"{one.label}: {one.reason}" for one in found if one.system is None),
    )


def _rise(executed: Prediction, label: str) -> tuple[float, float]:
    one = next(execution for execution in executed.executions if execution.label == label)
    return statistics.fmean(one.even), one.even_error
