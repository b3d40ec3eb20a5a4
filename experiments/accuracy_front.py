"""Loss against energy per token and step time: what light, bits, size and wavelengths of a core buy.

Each setting is priced and executed: on a clean model (noise at inference), and, at the present setting and at
the least and the most of each knob, in training on that hardware.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.accuracy import (
    BFLOAT16,
    FLOAT8,
    FLOAT8_ROWS,
    NOTHING,
    Accuracy,
    Arithmetic,
    train_all,
)
from experiments.accuracy_front_settings import Setting, outermost
from experiments.records import TrainingCache
from experiments.sensitivity import Effort, predict_and_execute
from experiments.sensitivity_records import Prediction
from experiments.step import plan_for, run_step
from experiments.systems import System, build_system
from experiments.training_modes import QUICK_STEPS
from workloads.architecture import TransformerConfig
from workloads.choices import Precision
from workloads.config import load_model
from workloads.parallelism import Parallelism

MARKS = (BFLOAT16, FLOAT8, FLOAT8_ROWS)
"""Formats of the GPU that stands beside."""
TRAINED_MODEL = "tiny"
"""Shape of the GPT that is trained on the hardware, of `experiments.accuracy.MODELS`."""
TRAINED_STEPS, QUICK_TRAINED_STEPS = 90, QUICK_STEPS
"""Updates of its training."""
FLOAT8_BITS = 4.0
"""Bits of the significand of E4M3, the leading one counted (Micikevicius et al. 2022, table 1)."""


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
    trained: float = math.nan
    """Final loss of a model trained on that hardware minus exact training, nats per byte, mean over seeds;
    not a number where none was trained."""
    trained_error: float = math.nan
    """Its standard error over seeds."""
    trained_resolved: bool = False
    """Whether that is told from chance."""

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
            "trained_difference_nats": self.trained,
            "trained_standard_error_nats": self.trained_error,
            "trained_resolved": self.trained_resolved,
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
    floor: float = math.nan
    """Largest difference that noise of nothing made to a trained model's loss, nats per byte."""


def accuracy_front(
    found: Sequence[Setting],
    *,
    workload: str,
    effort: Effort,
    cache: TrainingCache,
    trained_steps: int = 0,
    progress: Callable[[str, int, int], None] = lambda label, done, total: None,
) -> Front:
    """Price a step at every setting, execute a clean model through it, and train at the outermost ones.

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
    trained_steps : int
        Updates of each training on the hardware; none trains nothing.
    progress : callable
        Told what is done.
    """
    built = [(one, one.system) for one in found if one.system is not None]
    executed = predict_and_execute(
        (
            *(Arithmetic(label=one.label, analog=system.analog()) for one, system in built),
            *(Arithmetic(label=name) for name in MARKS),
        ),
        effort=dataclasses.replace(effort, core_pairs=2, ladder_db=(20.0,), error_classes=(), gains=False),
        cache=cache,
        progress=lambda done, total, label: progress(f"clean model, {label}", done, total),
    )
    trained: Mapping[str, Accuracy] = {}
    if trained_steps:
        trained = train_all(
            _trainable([one for one, _ in built]),
            seeds=effort.seeds,
            quick=trained_steps <= QUICK_STEPS,
            cache=cache,
            model=TRAINED_MODEL,
            steps=trained_steps,
            progress=lambda done, total, label: progress(f"training, {label}", done, total),
        )
    losses = _Losses(executed=executed, trained=trained)
    config, present = load_model(workload), built[0][1]
    memory_bytes = present.node().memory.capacity_bytes
    plan = plan_for(config, "", accelerators=present.accelerators, memory_bytes=memory_bytes)
    points = []
    for index, (one, system) in enumerate(built):
        points.append(losses.point(one, run_step(system, config, plan).record()))
        progress("steps", index + 1, len(built))
    gpu = build_system("gpu_packet", accelerators=present.accelerators, gpu=present.gpu.name)
    named = [Setting(knob=name, value=math.nan, raised=False, system=gpu) for name in MARKS]
    return Front(
        system=present.name,
        workload=config.name,
        points=tuple(points),
        marks=tuple(losses.point(one, _gpu_step(one.knob, gpu, config, plan)) for one in named),
        missing=tuple(f"{one.label}: {one.reason}" for one in found if one.system is None),
        floor=losses.floor,
    )


@dataclass(frozen=True, kw_only=True)
class _Losses:
    """What the models lost, by the label of a setting."""

    executed: Prediction
    trained: Mapping[str, Accuracy]

    @property
    def floor(self) -> float:
        """Largest difference that noise of nothing made; not a number without training."""
        return self.trained[NOTHING.label].largest_difference if self.trained else math.nan

    def point(self, one: Setting, step: Mapping[str, Any]) -> FrontPoint:
        """Return a setting with its step's price and its loss."""
        rise, error = _rise(self.executed, one.label)
        learned = self.trained.get(one.label)
        return FrontPoint(
            knob=one.knob,
            value=one.value,
            raised=one.raised,
            energy_j=step.get("energy_per_token_j", math.nan),
            time_s=step.get("step_time_s", math.nan),
            effective_bits=step.get("effective_bits", math.nan),
            rise=rise,
            error=error,
            trained=statistics.fmean(learned.differences) if learned else math.nan,
            trained_error=learned.difference_error if learned else math.nan,
            trained_resolved=learned.resolved(self.floor) if learned else False,
        )


def _trainable(found: Sequence[Setting]) -> list[Arithmetic]:
    """Return what is trained: noise of nothing, the GPUs, and the outermost settings."""
    return [
        NOTHING,
        *(Arithmetic(label=name) for name in MARKS),
        *(
            Arithmetic(label=one.label, analog=one.system.analog())
            for one in outermost(found)
            if one.system is not None
        ),
    ]


def _gpu_step(name: str, gpu: System, config: TransformerConfig, plan: Parallelism) -> dict[str, Any]:
    """Return a GPU's step in a format; none where its engine is not made for it."""
    if name == BFLOAT16:
        return run_step(gpu, config, plan).record()
    if gpu.gpu.chip.byte_flops_per_cycle <= gpu.gpu.chip.flops_per_cycle:
        return {}
    record = run_step(gpu, config, dataclasses.replace(plan, precision=Precision.FP8)).record()
    return record | {"effective_bits": FLOAT8_BITS}


def _rise(executed: Prediction, label: str) -> tuple[float, float]:
    one = next(execution for execution in executed.executions if execution.label == label)
    return statistics.fmean(one.even), one.even_error
