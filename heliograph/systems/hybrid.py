"""Hybrid accelerator: which products run in light, and which on the GPU's matrix units beside it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from simulator.checks import check_range
from simulator.interfaces import Cost, Numerics
from simulator.operators import SCORES, VALUES, Elementwise, MatMul, Phase, Role

if TYPE_CHECKING:
    from electronic.gpu import Gpu
    from optical.accelerator import PhotonicUnit


class Kind(StrEnum):
    """Kind of a model's product, by where it stands in a block."""

    QKV = "qkv"
    """Queries, keys and values, or what they are made from."""
    ATTENTION = "attention"
    """Scores and values: a fused kernel hands the one to the other on chip, so both run on one unit."""
    OUTPUT = "output"
    """Projection behind attention."""
    UP = "up"
    """Gate and up, and whatever else has no name of its own."""
    DOWN = "down"
    """Second product of the MLP."""
    HEAD = "head"
    """Logits."""


_KINDS = MappingProxyType(
    {
        Role.ATTENTION_QKV: Kind.QKV,
        Role.ATTENTION_QUERIES: Kind.QKV,
        Role.ATTENTION_KEYS_VALUES: Kind.QKV,
        Role.ATTENTION_LATENTS: Kind.QKV,
        Role.RETRIEVAL_QKV: Kind.QKV,
        Role.RETRIEVAL_QUERIES: Kind.QKV,
        Role.RETRIEVAL_KEYS_VALUES: Kind.QKV,
        **dict.fromkeys(SCORES | VALUES, Kind.ATTENTION),
        Role.ATTENTION_OUTPUT: Kind.OUTPUT,
        Role.RETRIEVAL_OUTPUT: Kind.OUTPUT,
        Role.MLP_DOWN: Kind.DOWN,
        Role.RETRIEVAL_DOWN: Kind.DOWN,
        Role.HEAD_JOIN: Kind.HEAD,
        Role.HEAD_LOGITS: Kind.HEAD,
    }
)


def kind_of(role: Role) -> Kind:
    """Return the kind of a product by its role in a step."""
    return _KINDS.get(role, Kind.UP)


@dataclass(frozen=True, kw_only=True)
class InputShares:
    """Share of layers whose products of two activations run in light, 0 to 1."""

    forward: float = 1.0
    """In the forward pass."""
    grad_input: float = 1.0
    """In the backward pass."""

    def __post_init__(self) -> None:
        check_range(self, *(one.name for one in dataclasses.fields(self)), low=0.0, high=1.0)


@dataclass(frozen=True, kw_only=True)
class PhaseShares(InputShares):
    """Share of layers whose products with a weight run in light, 0 to 1."""

    grad_weight: float = 1.0
    """Gradients of the weight."""


@dataclass(frozen=True, kw_only=True)
class LightShares:
    """Share of layers, by kind of product and phase, whose products run in light; the others' are electronic.

    Notes
    -----
    Layers of a step are alike, so that a share of them is all that time and energy depend on.
    """

    qkv: PhaseShares = field(default_factory=PhaseShares)
    """Queries, keys and values."""
    attention: InputShares = field(default_factory=InputShares)
    """Scores and values."""
    output: PhaseShares = field(default_factory=PhaseShares)
    """Projection behind attention."""
    up: PhaseShares = field(default_factory=PhaseShares)
    """Gate and up, and what is not told apart."""
    down: PhaseShares = field(default_factory=PhaseShares)
    """Second product of the MLP."""
    head: PhaseShares = field(default_factory=PhaseShares)
    """Logits; one layer, so that a share is one of its steps."""

    def of(self, role: Role, phase: Phase) -> float:
        """Return the share of a product of a step."""
        return float(getattr(getattr(self, kind_of(role)), str(phase)))

    @property
    def least(self) -> float:
        """The smallest share; 1 where nothing is electronic."""
        shares = (getattr(self, one.name) for one in dataclasses.fields(self))
        return min(getattr(share, one.name) for share in shares for one in dataclasses.fields(share))


@dataclass(frozen=True, kw_only=True)
class HybridUnit:
    """Matrix units of light and of electronics beside one memory, of which each product runs on one.

    Notes
    -----
    Either reads its operands from the memory that both share and writes its results there, so moving them
    between the two is in the price of each. Light is on while electronics work: its static power is that of
    the whole step, and what it draws is not left to the electronics under the power limit.
    """

    photonic: PhotonicUnit
    """Cores of light."""
    electronics: Gpu
    """GPU whose matrix units run the rest, its power limit less what light draws all the time."""
    light: LightShares
    """What runs in light."""

    @property
    def name(self) -> str:
        """Name shown in tables and traces."""
        return f"{self.photonic.name} + {self.electronics.name}"

    @property
    def static_w(self) -> float:
        """Power drawn all the time; idle power of the GPU stands on the photonic unit already."""
        return self.photonic.static_w

    def accepts(self, operator: MatMul | Elementwise) -> bool:
        """Return whether the operator is a product."""
        return self.photonic.accepts(operator)

    def cost(self, operator: MatMul | Elementwise) -> Cost:
        """Return time and dynamic energy of one product, the mean over layers.

        Raises
        ------
        WorkloadError
            If the operator is no product.
        """
        if not isinstance(operator, MatMul):
            return self.photonic.cost(operator)
        share = self.light.of(operator.role, operator.phase)
        if share in (0.0, 1.0):
            return (self.photonic if share else self.electronics).cost(operator)
        parts = ((share, self.photonic.cost(operator)), (1.0 - share, self.electronics.cost(operator)))
        energy: Counter[str] = Counter()
        for weight, cost in parts:
            energy.update({part: weight * joules for part, joules in cost.energy_j.items()})  # type: ignore[arg-type]
        return Cost(
            time_s=sum(weight * cost.time_s for weight, cost in parts),
            energy_j=MappingProxyType(dict(energy)),
            bound=max(parts, key=lambda part: part[0] * part[1].time_s)[1].bound,
            host_s=sum(weight * cost.host_s for weight, cost in parts),
        )

    def numerics(self, phase: Phase) -> Numerics:
        """Return how products come out that run in light."""
        return self.photonic.numerics(phase)
