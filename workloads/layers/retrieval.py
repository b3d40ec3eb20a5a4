"""RETRO's encoder and cross-attention as forward steps on one rank (arXiv:2112.04426, section 2.4)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator.operators import Elementwise, Role
from workloads.layers.parts import Boundary, Parts, Step
from workloads.models.architecture import FLOPS, Activation, Retrieval, TransformerConfig
from workloads.plan.parts import Recompute
from workloads.plan.plan import Share


@dataclass(frozen=True, kw_only=True)
class AttentionSizes:
    """Sizes of an attention layer whose queries and keys may be of different tokens."""

    rows: int
    """Tokens with queries."""
    hidden: int
    """Width of their stream."""
    source_rows: int
    """Tokens with keys; they are cut over tensor ranks as those with queries."""
    source_hidden: int
    """Width of their stream."""
    heads: int
    """Heads."""
    head_dim: int
    """Width of a head."""
    sequences: int
    """Groups of queries, each of which attends to keys of its own."""
    keys: int
    """Keys that a query sees."""
    distances: int
    """Different relative positions of a query and a key."""

    @property
    def is_self_attention(self) -> bool:
        """Whether queries and keys are of the same tokens."""
        return (self.rows, self.hidden) == (self.source_rows, self.source_hidden)


class RetrievalParts:
    """Forward steps of the encoder and of one chunked cross-attention for one microbatch.

    Parameters
    ----------
    config, share : TransformerConfig, Share
        A model that retrieves, and a plan that `workloads.plan.rules.check` accepts.

    Notes
    -----
    Chunks are padded to as many as the sequence has, though the first sees no neighbours. Relative positions
    are a product of their encodings, which no gradient reaches, with a matrix of each attention's own, and
    one of queries with the result (Transformer-XL, arXiv:1901.02860, section 3.3); a fused kernel adds its
    scores on chip.
    """

    def __init__(self, config: TransformerConfig, share: Share, shape: Retrieval) -> None:
        self.config = config
        self.share = share
        self.shape = shape
        self.block = Parts(config=config, share=share)
        self.width = share.precision.element_bytes
        self.chunks = share.tokens // shape.chunk
        self.rows = self.chunks * shape.neighbours * shape.length

    def cross(self) -> tuple[Step, ...]:
        """Return one chunked cross-attention: tokens of a chunk read the neighbours of the one before."""
        shape, config = self.shape, self.config
        return self.attention(
            AttentionSizes(
                rows=self.share.tokens,
                hidden=config.hidden,
                source_rows=self.rows,
                source_hidden=shape.hidden,
                heads=config.heads,
                head_dim=config.head_dim,
                sequences=self.chunks,
                keys=shape.neighbours * shape.length,
                distances=shape.distances,
            )
        )

    def encoder(self) -> tuple[Step, ...]:
        """Return the encoder over all neighbours of the microbatch."""
        shape, steps = self.shape, list[Step]()
        stream = self.rows * shape.hidden // self.cut
        steps.append(self.block.elementwise(Role.RETRIEVAL_LOOKUP, flops=0, read=stream, written=stream))
        own = AttentionSizes(
            rows=self.rows,
            hidden=shape.hidden,
            source_rows=self.rows,
            source_hidden=shape.hidden,
            heads=shape.heads,
            head_dim=shape.head_dim,
            sequences=self.chunks * shape.neighbours,
            keys=shape.length,
            distances=2 * shape.length - 1,
        )
        chunk = replace(
            own,
            source_rows=self.share.tokens,
            source_hidden=self.config.hidden,
            keys=shape.chunk,
            distances=shape.distances,
        )
        for layer in range(shape.layers):
            steps += self.attention(own)
            if layer < shape.crossings:
                steps += self.attention(chunk)
            steps += self.feed_forward()
        return (*steps, self.norm(self.rows, shape.hidden))

    @property
    def cut(self) -> int:
        """Ranks over which a stream is cut."""
        return self.share.axes.stream_cut

    def attention(self, sizes: AttentionSizes) -> tuple[Step, ...]:
        """Return an attention layer: norm, projections, scores and values, output, residual."""
        width = sizes.heads * sizes.head_dim // self.share.axes.tp
        if sizes.is_self_attention:
            projections: tuple[Step, ...] = (
                self.block.weighted(Role.RETRIEVAL_QKV, m=sizes.rows, k=sizes.hidden, n=3 * width),
            )
        else:
            projections = (
                self.block.weighted(Role.RETRIEVAL_QUERIES, m=sizes.rows, k=sizes.hidden, n=width),
                *self.edge("source", sizes.source_rows * sizes.source_hidden, enters=True),
                self.block.weighted(
                    Role.RETRIEVAL_KEYS_VALUES, m=sizes.source_rows, k=sizes.source_hidden, n=2 * width
                ),
            )
        return (
            self.norm(sizes.rows, sizes.hidden),
            *self.edge("input", sizes.rows * sizes.hidden, enters=True),
            *projections,
            self.block.weighted(Role.RETRIEVAL_POSITIONS, m=sizes.distances, k=sizes.hidden, n=width),
            *self.scores(sizes),
            self.block.weighted(Role.RETRIEVAL_OUTPUT, m=sizes.rows, k=width, n=sizes.hidden),
            *self.edge("output", sizes.rows * sizes.hidden, enters=False),
            self.residual(sizes.rows, sizes.hidden),
        )

    def scores(self, sizes: AttentionSizes) -> tuple[Step, ...]:
        """Return both kinds of scores, their softmax and the values."""
        return self.block.attended(
            {Role.RETRIEVAL_SCORES: sizes.keys, Role.RETRIEVAL_POSITION_SCORES: sizes.distances},
            Role.RETRIEVAL_SOFTMAX,
            Role.RETRIEVAL_VALUES,
            batch=sizes.sequences * sizes.heads // self.share.axes.tp,
            rows=sizes.rows // sizes.sequences,
            head_dim=sizes.head_dim,
            keys=sizes.keys,
            value_dim=sizes.head_dim,
        )

    def feed_forward(self) -> tuple[Step, ...]:
        """Return the feed-forward half of a block of the encoder."""
        shape, inner = self.shape, self.shape.ffn_hidden // self.share.axes.tp
        count = self.rows * inner
        return (
            self.norm(self.rows, shape.hidden),
            *self.edge("mlp_input", self.rows * shape.hidden, enters=True),
            self.block.weighted(Role.RETRIEVAL_UP, m=self.rows, k=shape.hidden, n=inner),
            self.block.elementwise(
                Role.RETRIEVAL_ACTIVATION, flops=FLOPS[Activation.GELU] * count, read=count, written=count
            ),
            self.block.weighted(Role.RETRIEVAL_DOWN, m=self.rows, k=inner, n=shape.hidden),
            *self.edge("mlp_output", self.rows * shape.hidden, enters=False),
            self.residual(self.rows, shape.hidden),
        )

    def norm(self, rows: int, hidden: int) -> Elementwise:
        """Return a norm of a stream."""
        return self.block.norm(Role.RETRIEVAL_NORM, rows * hidden // self.cut)

    def residual(self, rows: int, hidden: int) -> Elementwise:
        """Return the sum of a branch and its stream."""
        count = rows * hidden // self.cut
        return self.block.elementwise(Role.RETRIEVAL_RESIDUAL, flops=count, read=2 * count, written=count)

    def edge(self, name: str, elements: int, *, enters: bool) -> tuple[Boundary, ...]:
        """Return the boundary of a tensor-parallel region; none with one rank."""
        if self.share.axes.tp == 1:
            return ()
        return (Boundary(name=f"retrieval.{name}", elements=elements, enters=enters),)


def cross_activation_bytes(config: TransformerConfig, share: Share, shape: Retrieval) -> float:
    """Return the activation memory of a cross-attention for a microbatch on one rank, in bytes."""
    parts = RetrievalParts(config, share, shape)
    width, operand = share.precision.element_bytes, share.precision.linear_bytes
    heads = config.query_width
    stream = share.tokens * config.hidden * (width + operand)
    inner = float(share.tokens * heads * (width + operand) + 2 * parts.rows * heads * width)
    inner += _score_bytes(parts, share.tokens * config.heads * shape.neighbours * shape.length)
    return stream / parts.cut + inner / share.axes.tp


def encoder_activation_bytes(config: TransformerConfig, share: Share, shape: Retrieval) -> float:
    """Return the activation memory of the encoder for a microbatch on one rank, with its result, in bytes."""
    parts = RetrievalParts(config, share, shape)
    width, operand = share.precision.element_bytes, share.precision.linear_bytes
    reads = 2 * shape.layers + shape.crossings
    stream = parts.rows * shape.hidden * (reads * (width + operand) + operand)
    own = float(parts.rows * (shape.width * (3 * width + operand) + shape.ffn_hidden * (width + operand)))
    crossing = float(parts.rows * shape.width * (width + operand) + 2 * share.tokens * shape.width * width)
    crossing += share.tokens * config.hidden * operand * share.axes.tp / parts.cut
    own += _score_bytes(parts, parts.rows * shape.heads * shape.length)
    crossing += _score_bytes(parts, parts.rows * shape.heads * shape.chunk)
    kept = shape.layers * own + shape.crossings * crossing
    return stream / parts.cut + kept / share.axes.tp


def _score_bytes(parts: RetrievalParts, scores: int) -> float:
    """Return the bytes of a number of scores, if they are kept."""
    kept = not parts.share.recompute.attention.on_chip and parts.share.recompute.kind is Recompute.NONE
    return float(scores * parts.width) if kept else 0.0
