"""What a forward step of a part may be besides an operator: edges of regions, exchanges and gathers."""

from __future__ import annotations

from dataclasses import dataclass

from heliograph.operators import Collective, Elementwise, MatMul
from heliograph.skew import Skew
from heliograph.spread import Spread

SOFTMAX_FLOPS = 5
"""Operations of a softmax per element: maximum, subtract, exponential, sum, divide."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Boundary:
    """Edge of a tensor-parallel region: the stream is gathered when it enters and summed when it leaves."""

    name: str
    """What crosses."""
    elements: int
    """Elements of the whole stream."""
    enters: bool
    """Whether the region begins here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """An all-to-all: tokens sent to the ranks of their experts, or heads to the ranks that work on them."""

    name: str
    """What is sent."""
    elements: int
    """Elements that a rank sends."""
    axis: str = "ep"
    """Axis of parallelism."""
    two_level: bool = False
    """Whether it goes within nodes and between them in turn."""
    spread: Spread | None = None
    """Where copies of a token go, if it is sent to each node once."""
    skew: Skew | None = None
    """What goes to whom, if not the same to everybody."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gather:
    """Keys and values collected over the context-parallel ranks; their gradients are summed and scattered."""

    name: str
    """What is collected."""
    elements: int
    """Elements of a rank's shard."""


Step = MatMul | Elementwise | Collective | Boundary | Exchange | Gather
"""A forward step; a collective stands for one that has no backward."""
