"""Forward steps and activation memory of a part of a block that carries a state along the sequence.

State spaces (Mamba-1, Mamba-2), delta rules (gated delta net, Kimi), lightning attention, short convolutions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator.amounts import Matrices
from simulator.operators import Elementwise, MatMul, Role
from workloads.layers.parts import NORM_FLOPS, Parts, Step
from workloads.models.architecture import FLOPS, Activation, Norm, Recurrence, State, TransformerConfig
from workloads.plan.plan import Share

REPEATED = frozenset(
    {
        Role.STATE_CONVOLUTION,
        Role.STATE_SCORES,
        Role.STATE_CORRECTED,
        Role.STATE_RECALL,
        Role.STATE_UPDATE,
        Role.STATE_SCAN,
        Role.STATE_SELECTION,
    }
)
"""Steps that the published kernels run again in their backward pass rather than keep what they put out: the
convolution, scores and states of chunks (mamba_ssm, ops/triton/ssd_combined.py; flash-linear-attention,
ops/gated_delta_rule/chunk.py, whose convolution is a kernel of its own and is not run again)."""
DECAY_FLOPS = 3
"""Operations of a decay for each pair of tokens: difference, exponential, product."""
SCAN_FLOPS = 2
"""Operations to hand a state on: decay and sum."""
SELECTION_FLOPS = 9
"""Operations of a Mamba-1's scan for each element of the state and token: 3 of the decay (product,
exponential, product with the state), 4 of the input (its products with step size and key, sum), 2 of the
read."""
SINGLE_BYTES = 4
"""Bytes of an element of a state (fp32)."""


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    """Sizes of a recurrence on one rank for one microbatch."""

    heads: int
    """Heads."""
    key_heads: int
    """Key heads."""
    tokens: int
    """Tokens."""
    chunk: int
    """Tokens of a chunk."""
    chunks: int
    """Chunks of all sequences."""

    @staticmethod
    def of(shape: Recurrence, share: Share) -> _Sizes:
        """Return the sizes of a recurrence under a share."""
        heads, key_heads = share.axes.state_heads(shape)
        length = share.batch.sequence_length
        chunk = min(shape.chunk, length)
        return _Sizes(
            heads=heads,
            key_heads=key_heads,
            tokens=share.tokens,
            chunk=chunk,
            chunks=share.batch.micro_batch * -(-length // chunk),
        )


def repeated(steps: tuple[Step, ...]) -> frozenset[Role]:
    """Return the roles of a block's steps that its kernels run again in their backward pass."""
    roles = {step.role for step in steps if isinstance(step, Elementwise)}
    convolves = roles & {Role.STATE_DECAY, Role.STATE_SELECTION} and Role.STATE_SOLVE not in roles
    return REPEATED if convolves else REPEATED - {Role.STATE_CONVOLUTION}


def recurrent(parts: Parts) -> tuple[Step, ...]:
    """Return the steps of a block's recurrence between the edges of its region; none without one.

    Notes
    -----
    A product with the stream, a short convolution, the state, a gate with its norm, and a product back. Both
    have weights; what chunks multiply are activations on both sides, as in attention, and so are their
    gradients. All pairs of a chunk are multiplied, those that the mask hides too; the last chunk is padded.
    Left out: that the chunks of one sequence and head wait for each other's states.
    """
    shape = parts.config.recurrence
    if shape is None:
        return ()
    sizes = _Sizes.of(shape, parts.share)
    columns = shape.parts(sizes.heads, sizes.key_heads)
    tokens, values = sizes.tokens, sizes.heads * shape.head_dim
    convolved = tokens * shape.convolved(sizes.heads, sizes.key_heads)
    taps = 2 * shape.convolution + FLOPS[Activation.SILU]
    convolution = parts.elementwise(
        Role.STATE_CONVOLUTION, flops=taps * convolved, read=convolved, written=convolved
    )
    gated = (
        0 if shape.kind is State.CONVOLUTION else FLOPS[Activation.SILU] + NORM_FLOPS[Norm.RMS] * shape.norm
    )
    gates = tokens * values
    return (
        parts.weighted(Role.STATE_INPUT, m=tokens, k=parts.config.hidden, n=sum(columns.values())),
        *_latents(parts, shape, sizes),
        *((convolution,) if convolved else ()),
        *_selection(parts, shape, sizes),
        *(_chunked(parts, shape, sizes) if shape.kind.multiplies else ()),
        parts.elementwise(Role.STATE_GATE, flops=(gated + 2) * gates, read=2 * gates, written=gates),
        parts.weighted(Role.STATE_OUTPUT, m=tokens, k=values, n=parts.config.hidden),
    )


def _latents(parts: Parts, shape: Recurrence, sizes: _Sizes) -> tuple[Step, ...]:
    """Return the products from the latents of Kimi's decays and gates, which every rank has whole."""
    if shape.kind is not State.CHANNEL_DELTA or not shape.rank:
        return ()
    columns = shape.latent_columns(sizes.heads, sizes.key_heads)
    return (parts.weighted(Role.STATE_LATENTS, m=sizes.tokens, k=shape.rank, n=columns),)


def _selection(parts: Parts, shape: Recurrence, sizes: _Sizes) -> tuple[Step, ...]:
    """Return what a Mamba-1 does: step sizes, keys and queries from its values, then a scan without products.

    Tensor ranks sum their parts of the first, for every rank's channels need all of it.
    """
    if shape.kind is not State.SELECTIVE:
        return ()
    tokens, width = sizes.tokens, shape.selected
    scanned = tokens * sizes.heads
    return (
        parts.weighted(Role.STATE_SELECTED, m=tokens, k=sizes.heads, n=width),
        *parts.boundary("state.selected", enters=False, width=width),
        *parts.boundary("state.selection", enters=True, width=width),
        parts.weighted(Role.STATE_LATENTS, m=tokens, k=shape.rank, n=sizes.heads),
        parts.elementwise(
            Role.STATE_SELECTION,
            flops=SELECTION_FLOPS * scanned * shape.key_dim,
            read=2 * scanned + tokens * 2 * shape.key_dim,
            written=scanned,
        ),
    )


def _chunked(parts: Parts, shape: Recurrence, sizes: _Sizes) -> tuple[Step, ...]:
    """Return the products of chunks, and what stands between them.

    Notes
    -----
    With chunks of Q tokens, keys of N and values of P elements a head (arXiv:2405.21060, section 6 and
    listing 1): scores C B^T (Q Q N, once for the heads that share keys), the decayed scores with the values
    (Q Q P), the state that a chunk adds, B^T X (Q N P), the states handed on, and what queries read of them
    (Q N P). The delta rule first solves for what its keys do not recall yet: K K^T (Q Q N), the inverse of a
    triangle (Q^3/3 multiply-adds, no product), its products with keys and values (Q Q (N + P)), and takes
    off what keys read of the state (Q N P): arXiv:2406.06484, section 3.2; arXiv:2412.06464, section 3.3.
    """
    q, n, p = sizes.chunk, shape.key_dim, shape.head_dim
    corrects = shape.kind.corrects
    # Heads that share keys are one product; the delta rule scales and corrects keys for each head.
    groups = sizes.heads if corrects else sizes.key_heads
    batch, wide = sizes.chunks * groups, sizes.heads // groups * p
    each, pairs = sizes.chunks * sizes.heads, q * q
    states = each * n * p
    kept, passed = (Matrices.C, 0) if corrects else (Matrices.NONE, states)

    def written(product: MatMul) -> MatMul:
        """Return a product whose result is written in single precision, but for the delta rule."""
        return product if corrects else replace(product, result_bytes=float(SINGLE_BYTES))

    solve = (
        parts.product(Role.STATE_KEYS, batch=each, m=q, k=n, n=q, on_chip=Matrices.NONE),
        parts.elementwise(
            Role.STATE_SOLVE,
            flops=(2 * q / 3 + DECAY_FLOPS) * pairs * each,
            read=pairs * each,
            written=pairs * each,
        ),
        parts.product(Role.STATE_CORRECTED, batch=each, m=q, k=q, n=n + p, on_chip=Matrices.NONE),
        parts.product(Role.STATE_RECALL, batch=each, m=q, k=n, n=p, on_chip=Matrices.NONE),
    )
    return (
        *(solve if corrects else ()),
        written(parts.product(Role.STATE_SCORES, batch=batch, m=q, k=n, n=q, on_chip=kept)),
        replace(
            parts.elementwise(
                Role.STATE_DECAY,
                flops=DECAY_FLOPS * pairs * each,
                read=0 if corrects else pairs * batch * SINGLE_BYTES / parts.width,
                written=0,
            ),
            exponentials=float(each * q * (n if shape.kind is State.CHANNEL_DELTA else q)),
        ),
        written(parts.product(Role.STATE_UPDATE, batch=batch, m=n, k=q, n=wide, on_chip=Matrices.NONE)),
        # The delta rule hands states on within the kernel that makes them.
        parts.elementwise(
            Role.STATE_SCAN,
            flops=SCAN_FLOPS * states,
            read=passed * SINGLE_BYTES / parts.width,
            written=passed,
        ),
        parts.product(Role.STATE_READ, batch=batch, m=q, k=n, n=wide, on_chip=Matrices.C),
        parts.product(Role.STATE_VALUES, batch=each, m=q, k=q, n=p, on_chip=Matrices.A),
    )


def kept_bytes(config: TransformerConfig, share: Share) -> float:
    """Return the activation memory of a block's recurrence, of all tensor-parallel ranks together, in bytes.

    Notes
    -----
    Kept are what the product with the stream puts out, the result before its gate and the input of the
    product back; the delta rule also keeps queries, keys and values of every head as it reads them, and the
    inverse of each chunk, a Mamba-1 its step sizes, keys and queries. Other convolved values, scores and
    states are worked out again (`repeated`), whatever the plan recomputes.
    """
    shape = config.recurrence
    if shape is None:
        return 0.0
    width, operand = share.precision.element_bytes, share.precision.linear_bytes
    ranks = share.axes.columns
    heads, key_heads = (ranks * count for count in share.axes.state_heads(shape))
    values = heads * shape.head_dim
    kept = sum(shape.parts(heads, key_heads).values()) + values
    if shape.kind.corrects:
        kept += heads * (2 * shape.key_dim + min(shape.chunk, share.batch.sequence_length)) + values
    kept += shape.latent_columns(heads, key_heads) + ranks * shape.selected
    return share.tokens * float(kept * width + values * operand)


def states_bytes(config: TransformerConfig, share: Share) -> float:
    """Return the states at the ends of a microbatch's chunks on one rank, in single precision, in bytes."""
    shape = config.recurrence
    if shape is None or not shape.kind.multiplies:
        return 0.0
    return float(SINGLE_BYTES * _Sizes.of(shape, share).chunks * shape.state) / share.axes.columns
