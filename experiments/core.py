"""One photonic core under the lens: where a product's energy goes, in each phase of training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from experiments.systems import build_system
from heliograph.errors import ParameterError, nearest
from heliograph.operators import Held, MatMul, Phase
from heliograph.units import to_si
from optical.cores import CORES

if TYPE_CHECKING:
    from electronic.gpu import Gpu
    from optical.accelerator import PhotonicUnit

TOKENS = 8192
"""Tokens of the product that is priced, hence how often a weight is used; a choice."""
INPUTS = 4096
"""Inputs of its layer: the hidden width of Llama 3 8B; a choice."""
OUTPUTS = 14336
"""Outputs of its layer: the feed-forward width of Llama 3 8B; a choice."""
PHASES = (Phase.FORWARD, Phase.GRAD_INPUT, Phase.GRAD_WEIGHT)
"""The three products of a layer."""
PICOJOULE = to_si("energy_j", 1.0, "pJ")
"""Unit in which energy per multiply-accumulate is shown."""

STAGES = MappingProxyType(
    {
        "laser": ("laser", "amplifier"),
        "modulator and DAC": ("modulator", "dac"),
        "detector and amplifier": ("photodetector", "tia", "integrator"),
        "ADC and adder": ("adc", "adder"),
        "static hold": ("ring tuning", "phase hold"),
        "loading": ("reload", "programming", "decomposition"),
        "number format": ("number format",),
        "buffer": ("sram", "sram leakage"),
        "memory": ("hbm", "hbm static"),
    }
)
"""Way of a product through the accelerator, and the parts of its energy that belong to each stage."""
OTHER = "other"
"""Stage of a part that stands in none of `STAGES`."""


@dataclass(frozen=True, kw_only=True)
class PhaseEnergy:
    """Energy and time of one product."""

    phase: Phase
    """Which of a layer's three products."""
    time_s: float
    """How long the accelerator takes."""
    macs: int
    """Multiply-accumulates."""
    j_per_mac_by_part: dict[str, float]
    """Energy per multiply-accumulate by part, what is drawn all the time included."""

    @property
    def j_per_mac(self) -> float:
        """Energy per multiply-accumulate."""
        return math.fsum(self.j_per_mac_by_part.values())

    @property
    def j_per_mac_by_stage(self) -> dict[str, float]:
        """Energy per multiply-accumulate by stage, in the order of `STAGES`, stages without any left out."""
        found = dict.fromkeys((*STAGES, OTHER), 0.0)
        for part, energy_j in self.j_per_mac_by_part.items():
            found[stage_of(part)] += energy_j
        return {stage: energy_j for stage, energy_j in found.items() if energy_j}


def stage_of(part: str) -> str:
    """Return the stage that a part of the energy belongs to."""
    return next((stage for stage, parts in STAGES.items() if part in parts), OTHER)


def layer_products(tokens: int = TOKENS, inputs: int = INPUTS, outputs: int = OUTPUTS) -> tuple[MatMul, ...]:
    """Return the three products of a linear layer in the order of `PHASES`.

    Parameters
    ----------
    tokens : int
        Vectors that pass the layer together.
    inputs, outputs : int
        Size of its weight.
    """
    if tokens < 1:
        msg = f"tokens ({tokens}) must be at least 1"
        raise ParameterError(msg)
    shapes = ((tokens, inputs, outputs), (tokens, outputs, inputs), (inputs, tokens, outputs))
    return tuple(
        MatMul(
            name="linear",
            layer="block",
            phase=phase,
            batch=1,
            m=m,
            k=k,
            n=n,
            held=Held.NONE if phase is Phase.GRAD_WEIGHT else Held.B,
        )
        for phase, (m, k, n) in zip(PHASES, shapes, strict=True)
    )


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A photonic accelerator of one kind of core, and the GPU beside it."""

    name: str
    """The core."""
    unit: PhotonicUnit
    """The accelerator's matrix unit, as many cores as the power of the GPU allows."""
    gpu: Gpu
    """The GPU that it replaces."""
    tokens: int
    """Tokens of the products."""

    def energies(self) -> tuple[PhaseEnergy, ...]:
        """Return energy and time of the three products."""
        return tuple(phase_energy(self.unit, product) for product in layer_products(self.tokens))

    def gpu_j_per_mac(self) -> float:
        """Return the GPU's energy per multiply-accumulate over the same three products."""
        products = layer_products(self.tokens)
        costs = [self.gpu.cost(product) for product in products]
        spent = math.fsum(math.fsum(cost.energy_j.values()) for cost in costs)
        waited = self.gpu.static_w * math.fsum(cost.time_s for cost in costs)
        return (spent + waited) / sum(product.macs for product in products)


def bench(
    name: str,
    *,
    assignments: Sequence[str] = (),
    gpu: str = "h100",
    basis: str = "power",
    tokens: int = TOKENS,
) -> Bench:
    """Return the accelerator of a core, as `heliograph step` would build it.

    Parameters
    ----------
    name : str
        Core by name (`optical.cores.CORES`).
    assignments : sequence of str
        ``path=value``, as `build_system` takes them.
    gpu, basis : str
        What is replaced, and how the accelerator is sized.
    tokens : int
        Tokens of the products.

    Raises
    ------
    HeliographError
        For unknown names or paths, values out of range, and links that do not close.
    """
    if name not in CORES:
        msg = f"no core '{name}'; {nearest(name, CORES, noun='core')}"
        raise ParameterError(msg)
    layer_products(tokens)
    system = build_system(
        "photonic_packet", core=name, accelerators=1, gpu=gpu, basis=basis, assignments=assignments
    )
    if system.photonic is None:
        msg = f"system '{system.name}' has no photonic unit"
        raise ParameterError(msg)
    return Bench(name=name, unit=system.photonic, gpu=system.gpu, tokens=tokens)


def phase_energy(unit: PhotonicUnit, product: MatMul) -> PhaseEnergy:
    """Return energy and time of one product on an accelerator that does nothing else meanwhile.

    Parameters
    ----------
    unit : PhotonicUnit
        The matrix unit; what it and its memory draw all the time is charged for the product's time.
    product : MatMul
        The product.
    """
    cost = unit.cost(product)
    parts = dict(cost.energy_j)
    idle_w = unit.static_parts_w() | {"hbm static": unit.memory.static_w}
    for part, power_w in idle_w.items():
        parts[part] = parts.get(part, 0.0) + power_w * cost.time_s
    return PhaseEnergy(
        phase=product.phase,
        time_s=cost.time_s,
        macs=product.macs,
        j_per_mac_by_part={part: energy_j / product.macs for part, energy_j in parts.items()},
    )


def training_j_per_mac(energies: Sequence[PhaseEnergy]) -> float:
    """Return the energy per multiply-accumulate of the products together."""
    return math.fsum(one.j_per_mac * one.macs for one in energies) / sum(one.macs for one in energies)
