"""The shape of a transformer, from which every operator and byte of a training step follows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from heliograph.errors import WorkloadError

LARGEST_SIZE = 10**12
"""Sizes above this are refused as typing errors; a choice."""


class Norm(StrEnum):
    """How a layer normalises its input."""

    LAYER = "layer"
    RMS = "rms"


class Positions(StrEnum):
    """How a model knows where a token stands."""

    LEARNED = "learned"
    ROTARY = "rotary"
    ALIBI = "alibi"


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """A decoder-only transformer: identical blocks between an embedding and a head.

    Raises
    ------
    WorkloadError
        If a size is not a positive whole number or the sizes do not fit each other.

    Notes
    -----
    Sizes are counts and dimensionless. Sliding windows and parallel residuals change no size here and are
    not modelled.
    """

    name: str
    """Name shown in tables and messages."""
    layers: int
    """Blocks."""
    hidden: int
    """Width of the residual stream."""
    heads: int
    """Query heads."""
    kv_heads: int
    """Key and value heads; equal to `heads` without grouped queries."""
    head_dim: int
    """Width of a head."""
    ffn_hidden: int
    """Inner width of the feed-forward part (of one expert, if there are experts)."""
    vocabulary: int
    """Tokens in the vocabulary, not padded."""
    max_sequence: int
    """Longest sequence the model is made for."""
    gated: bool = False
    """Whether the feed-forward part multiplies two branches (SwiGLU)."""
    tied_embeddings: bool = False
    """Whether head and embedding are one matrix."""
    experts: int = 1
    """Experts per block; 1 is a dense model without a router."""
    experts_per_token: int = 1
    """Experts that each token visits."""
    norm: Norm = Norm.LAYER
    """Kind of norm."""
    positions: Positions = Positions.ROTARY
    """Kind of position information."""
    position_rows: int = 0
    """Rows of a learned position table; 0 if positions are not learned."""
    embedding_norm: bool = False
    """Whether a norm follows the embedding (BLOOM)."""
    qkv_bias: bool = False
    """Whether query, key and value products add a bias."""
    output_bias: bool = False
    """Whether attention's output product adds a bias."""
    mlp_bias: bool = False
    """Whether the feed-forward products add a bias."""
    dropout: bool = False
    """Whether training drops activations, hence keeps masks."""

    def __post_init__(self) -> None:
        for size in _SIZES:
            value = getattr(self, size)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_SIZE:
                msg = f"{self.name}: {size} must be a whole number from 1 to {LARGEST_SIZE}; got {value!r}"
                raise WorkloadError(msg)
        if self.heads % self.kv_heads:
            msg = (
                f"{self.name}: kv_heads ({self.kv_heads}) must divide heads ({self.heads}); "
                f"try {divisors(self.heads)}"
            )
            raise WorkloadError(msg)
        if self.experts_per_token > self.experts:
            msg = (
                f"{self.name}: experts_per_token ({self.experts_per_token}) must be at most experts "
                f"({self.experts}); try {self.experts}"
            )
            raise WorkloadError(msg)

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm: a scale, and for layer norm a shift."""
        return self.hidden * (2 if self.norm is Norm.LAYER else 1)

    @property
    def query_width(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all key heads together (and of all value heads)."""
        return self.kv_heads * self.head_dim

    @property
    def ffn_branches(self) -> int:
        """Matrices from the hidden to the inner width: two if gated."""
        return 2 if self.gated else 1

    @property
    def attention_matrices(self) -> int:
        """Elements of one block's attention weights, without biases."""
        return 2 * self.hidden * (self.query_width + self.kv_width)

    @property
    def expert_matrices(self) -> int:
        """Elements of one expert's (or the dense feed-forward part's) weights, without biases."""
        return (self.ffn_branches + 1) * self.hidden * self.ffn_hidden

    @property
    def router_parameters(self) -> int:
        """Elements of one block's router; none in a dense model."""
        return self.hidden * self.experts if self.experts > 1 else 0

    @property
    def layer_parameters(self) -> int:
        """Parameters of one block, all experts counted."""
        attention_bias = (
            self.query_width + 2 * self.kv_width
        ) * self.qkv_bias + self.hidden * self.output_bias
        expert_bias = (self.ffn_branches * self.ffn_hidden + self.hidden) * self.mlp_bias
        experts = self.experts * (self.expert_matrices + expert_bias) + self.router_parameters
        return self.attention_matrices + attention_bias + experts + 2 * self.norm_parameters

    @property
    def embedding_parameters(self) -> int:
        """Parameters before the first block."""
        rows = self.vocabulary + self.position_rows
        return rows * self.hidden + (self.norm_parameters if self.embedding_norm else 0)

    @property
    def head_parameters(self) -> int:
        """Parameters after the last block that the embedding does not already count."""
        return self.norm_parameters + (0 if self.tied_embeddings else self.vocabulary * self.hidden)

    @property
    def parameters(self) -> int:
        """All parameters, exactly as published models count them."""
        return self.embedding_parameters + self.layers * self.layer_parameters + self.head_parameters

    @property
    def active_parameters(self) -> int:
        """Parameters that one token visits: idle experts left out."""
        idle = self.experts - self.experts_per_token
        expert_bias = (self.ffn_branches * self.ffn_hidden + self.hidden) * self.mlp_bias
        return self.parameters - self.layers * idle * (self.expert_matrices + expert_bias)


_SIZES = (
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "head_dim",
    "ffn_hidden",
    "vocabulary",
    "max_sequence",
    "experts",
    "experts_per_token",
)


def divisors(whole: int, *, most: int = 64) -> str:
    """Return the divisors of a number as a phrase for a message: ``1, 2 or 4``.

    Parameters
    ----------
    whole : int
        The number, at least 1.
    most : int
        Largest divisor worth naming.
    """
    found = [str(part) for part in range(1, min(whole, most) + 1) if whole % part == 0]
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} or {found[-1]}"
