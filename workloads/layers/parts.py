"""Forward steps of the parts of a transformer on one rank, with the routing of tokens to experts.

A step is an operator, a `Boundary` of a tensor-parallel region, an `Exchange` or a `Gather`;
`workloads.layers.transformer` makes operators and collectives of both passes from steps. Element-wise steps
may be split as an eager framework runs them, into a kernel with its own traffic for each operation.

Products may leave out blocks of their weights, or two of every four elements (sparse tensor cores: Mishra et
al., arXiv:2104.08378).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from simulator.amounts import Matrices
from simulator.layout import Axis
from simulator.operators import (
    Collective,
    CollectiveKind,
    Elementwise,
    Held,
    MatMul,
    Phase,
    Role,
    Skew,
    Spread,
    geometric_loads,
    spread_places,
)
from workloads.models.architecture import FLOPS, Activation, Norm, Positions, TransformerConfig
from workloads.plan.parts import WEIGHT_BLOCK, Attention, ContextExchange, ExpertExchange, Formats
from workloads.plan.plan import Share

COUNT_BYTES = 8
"""Bytes of a count of tokens that ranks exchange (64-bit)."""
_DIGITS = 6
"""Decimals to which counts of tokens are rounded before they are rounded up; a choice."""


def capacity(config: TransformerConfig, share: Share) -> int:
    """Return the tokens of one rank for which each expert has room; 0 if there is no limit.

    Notes
    -----
    C = ceil(k T / E x capacity factor) for T tokens that visit k of E experts (GShard, arXiv:2006.16668,
    section 2.2, with k = 2; Switch, arXiv:2101.03961, equation 3, with k = 1).
    """
    if not share.experts.capacity_factor or config.experts == 1:
        return 0
    return _up(
        share.routed_tokens * config.experts_per_token / config.experts * share.experts.capacity_factor
    )


def visits(config: TransformerConfig, share: Share) -> float:
    """Return the mean copies of a token that a rank has room for, sends and works on.

    Notes
    -----
    With a capacity, the places of all experts over the tokens, filled or not. Without one, the visits of the
    busiest rank, for which the others wait: as all ranks of a class are alike, the others then work as much,
    so that their energy is an upper bound; the traffic between ranks is exact (`exchange_skew`). For an even
    router without a capacity it is a whole number, k.
    """
    places = capacity(config, share)
    if places:
        return places * config.experts / share.routed_tokens
    if share.experts.expert_imbalance == 1.0 or config.experts == 1:
        return config.experts_per_token
    return config.experts_per_token * rank_imbalance(config, share)


def expert_rows(config: TransformerConfig, share: Share) -> int:
    """Return the tokens that each of a rank's experts works on in one microbatch.

    Notes
    -----
    Exact sizes (FastMoE, arXiv:2103.13262) give the mean over the busiest rank's experts, whose loads differ
    if the router is not even; a capacity gives the same to all, padded.
    """
    places = capacity(config, share)
    if places:
        return places * share.axes.ep
    if share.experts.expert_imbalance == 1.0:
        return -(-share.routed_tokens * config.experts_per_token * share.axes.ep // config.experts)
    return _up(share.routed_tokens * visits(config, share) * share.axes.ep / config.experts)


def _up(count: float) -> int:
    """Return a count rounded up; one within a rounding error of a whole number is that number."""
    return math.ceil(round(count, _DIGITS))


def rank_loads(config: TransformerConfig, share: Share) -> tuple[float, ...]:
    """Return the loads of expert-parallel ranks over their mean, shape [ep].

    Notes
    -----
    Experts are dealt to ranks in turn, as in `rank_imbalance`; busy ranks stand far apart in their group.
    """
    loads = geometric_loads(config.experts, share.experts.expert_imbalance)
    rank_load = [0.0] * share.axes.ep
    for turn, place in enumerate(spread_places(share.axes.ep).tolist()):
        rank_load[place] = math.fsum(loads[turn :: share.axes.ep]) * share.axes.ep / config.experts
    return tuple(rank_load)


def exchange_skew(config: TransformerConfig, share: Share) -> Skew | None:
    """Return the unevenness of the exchange of tokens with experts; None if every rank gets the same.

    Notes
    -----
    With a capacity every rank sends each expert its places, filled or not.
    """
    if share.axes.ep == 1 or capacity(config, share):
        return None
    skew = Skew(
        loads=rank_loads(config, share),
        affinity=share.experts.expert_affinity,
        patterns=share.experts.expert_patterns,
    )
    return (
        None if skew.even or share.experts.expert_imbalance == share.experts.expert_affinity == 1.0 else skew
    )


def rank_imbalance(config: TransformerConfig, share: Share) -> float:
    """Return the load of the busiest expert-parallel rank over the mean.

    Notes
    -----
    Experts are dealt to ranks in turn from the busiest to the idlest: a balanced placement, which every
    system tries for, though loads are not known when experts are placed.
    """
    loads = geometric_loads(config.experts, share.experts.expert_imbalance)
    return math.fsum(loads[:: share.axes.ep]) * share.axes.ep / config.experts


def dropped_share(config: TransformerConfig, share: Share) -> float:
    """Return the share of visits that are dropped because their expert is full.

    Notes
    -----
    Every expert drops its load above its capacity (arXiv:2006.16668, section 2.2, "expert capacity"), which
    is rounded up. All ranks are taken to have the same loads.
    """
    places = capacity(config, share)
    if not places:
        return 0.0
    mean = share.routed_tokens * config.experts_per_token / config.experts
    room = places / mean
    loads = geometric_loads(config.experts, share.experts.expert_imbalance)
    return math.fsum(max(0.0, load - room) for load in loads) / config.experts


ROUNDING = 1e-9
"""Share of a block that may be left over by rounding."""


def kept_inner(formats: Formats, inner: int) -> int:
    """Return the inner elements of a product that meet a kept block of its weight, in whole blocks.

    Notes
    -----
    Every block column of the weight keeps the same share of its blocks, so that C = A B has as many
    operations as with a dense weight of so many rows, and both gradients follow: dA sums over the kept
    columns, dB is worked out in kept blocks only. A photonic core leaves out whole loads of a block too.
    """
    if formats.weight_density == 1.0:
        return inner
    blocks = inner / WEIGHT_BLOCK * formats.weight_density
    return min(inner, math.ceil(blocks - ROUNDING) * WEIGHT_BLOCK)


NORMS = frozenset(
    {
        Role.ATTENTION_NORM,
        Role.MLP_NORM,
        Role.BLOCK_NORM,
        Role.HEAD_NORM,
        Role.EMBEDDING_NORM,
        Role.RETRIEVAL_NORM,
    }
)
"""Norms of the residual stream."""


def separate(step: Elementwise, config: TransformerConfig, single: float) -> tuple[Elementwise, ...]:
    """Return the kernels of a step where nothing is fused.

    Parameters
    ----------
    step : Elementwise
        A forward step whose operations share one kernel.
    config : TransformerConfig
        The model.
    single : float
        Bytes of an element in single precision over those of one that is kept.

    Notes
    -----
    Every kernel reads and writes its tensors whole. *Scores*: scale, mask and softmax. *A gate*: the
    activation, then the product. *A GELU*: the bias, then the function. *A rotary position*, in
    single precision: the cast, the product of complex numbers, the cast back. *A root-mean-square norm*, in
    single precision too: the cast, the squares, their mean, the product with its root, the cast back and the
    product with the scale; layer norms have a kernel of their own in every framework. *A sum with dropout*:
    the mask, then the sum. The operations are shared evenly, and so is the work of the backward pass, which
    mirrors each kernel. The host issues the first as an operator and the others as further kernels of it.

    References
    ----------
    Korthikanti et al., arXiv:2205.05198, section 4.1 (what each operation keeps, one by one). Llama's code,
    model.py (RMSNorm and apply_rotary_emb, in single precision), which torchtitan and transformers follow.
    """
    read, written = step.read_bytes, step.written_bytes
    match step.role:
        case Role.ATTENTION_SOFTMAX if read:
            traffic = [(read, written)] * 3
        case Role.MLP_ACTIVATION if config.gated:
            traffic = [(written, written), (read, written)]
        case Role.MLP_ACTIVATION:
            traffic = [(read, written)] * 2
        case Role.ATTENTION_ROTARY:
            wide = single * read
            traffic = [(read, wide), (wide, wide), (wide, written)]
        case Role.ATTENTION_RESIDUAL | Role.MLP_RESIDUAL if config.dropout:
            stream = read / 2
            traffic = [(stream, written), (read, stream)]
        case role if role in NORMS and config.norm is Norm.RMS:
            wide = single * read
            traffic = [
                *((read, wide), (wide, wide), (wide, 0.0)),
                *((wide, wide), (wide, written), (written, written)),
            ]
        case _:
            return (step,)
    flops = step.flops / len(traffic)
    first, *others = (
        replace(step, flops=flops, read_bytes=read_each, written_bytes=written_each)
        for read_each, written_each in traffic
    )
    return (first, *(replace(kernel, issued=0, kernels=step.issued + step.kernels) for kernel in others))


BIAS_PASSES = 7
"""Elements of two bytes that a weighted bias reads for each result, and that it writes: the result, and three
numbers in single precision of two such elements each."""
BIAS_KERNELS = 2
"""Kernels of a weighted bias for each expert, forward: the product with the weight, and the sum."""
CLAMPS = 2
"""Clamps of a gated part, one for each branch."""
SOFTMAX_FLOPS = 5
"""Operations of a softmax per element: maximum, subtract, exponential, sum, divide."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Boundary:
    """Edge of a tensor-parallel region: the stream is gathered when it enters and summed when it leaves."""

    name: str
    """Name of the collective."""
    elements: int
    """Elements of the whole stream."""
    enters: bool
    """Whether the region begins here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """An all-to-all: tokens sent to the ranks of their experts, or heads to the ranks that work on them."""

    name: str
    """Name of the collective."""
    elements: int
    """Elements that a rank sends."""
    axis: Axis = Axis.EXPERT
    """Axis of parallelism."""
    two_level: bool = False
    """Whether it goes within nodes and between them in turn."""
    spread: Spread | None = None
    """Nodes that copies of a token go to, if it is sent to each node once."""
    skew: Skew | None = None
    """Unevenness, if not every rank gets the same."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gather:
    """Keys and values collected over the context-parallel ranks; their gradients are summed and scattered."""

    name: str
    """Name of the collective."""
    elements: int
    """Elements of a rank's shard."""


Step = MatMul | Elementwise | Collective | Boundary | Exchange | Gather
"""A forward step; a collective stands for one that has no backward."""


ROUTING_OPERATORS = 10
"""Operators of a router after its product: softmax, top-k, normalised weights, two scatters into maps of
weights and choices, and five of the auxiliary loss (Megatron-LM, core/transformer/moe: router, helpers)."""
DISPATCH_OPERATORS = 6
"""Operators before tokens are sent: counts by expert and by rank, their copy to the host, the order of the
tokens, tokens and weights in that order (Megatron-LM, core/transformer/moe/token_dispatcher.py)."""
COMBINE_OPERATORS = 4
"""Operators after tokens are back: weights, the empty sum, the addition to it, its shape (same file)."""


def expert_mlp(parts: Parts) -> tuple[Step, ...]:
    """Return the feed-forward half of a block with experts.

    Notes
    -----
    The router scores every token, tokens are copied into the order of their experts and exchanged, experts
    work, and what they return is exchanged back and summed with the router's weights. With a capacity every
    expert's places are sent and worked on, filled or not (GShard, arXiv:2006.16668, algorithm 1).
    """
    return (
        parts.norm(Role.MLP_NORM),
        *routed_experts(parts),
        *parts.norm_after(Role.MLP_POST_NORM),
        parts.residual(Role.MLP_RESIDUAL),
    )


def routed_experts(parts: Parts) -> tuple[Step, ...]:
    """Return the experts of a block from the router to the sum of what they return."""
    config, share = parts.config, parts.share
    narrow = replace(parts, config=config.in_latent)
    routed = narrow.stream * visits(config, share)
    scored = parts.stream_tokens * config.experts
    sizes = (config.hidden, narrow.config.hidden)
    down, up = (
        (parts.weighted(Role.MLP_LATENT, m=parts.stream_tokens, k=k, n=n),) if config.expert_latent else ()
        for k, n in (sizes, sizes[::-1])
    )
    return (
        parts.weighted(Role.MLP_ROUTER, m=parts.stream_tokens, k=config.hidden, n=config.experts),
        replace(
            parts.elementwise(Role.MLP_GATES, flops=SOFTMAX_FLOPS * scored, read=scored, written=scored),
            issued=ROUTING_OPERATORS,
        ),
        *down,
        replace(
            parts.elementwise(Role.MLP_DISPATCH, flops=0, read=routed, written=routed),
            issued=DISPATCH_OPERATORS,
        ),
        *counts(parts),
        *exchange(narrow, "mlp.dispatch"),
        *sorting(narrow),
        *region(narrow, "mlp.input", enters=True),
        *narrow.feed_forward(
            rows=expert_rows(config, share),
            batch=config.experts // share.axes.ep,
            whole=share.axes.whole_experts,
        ),
        *expert_biases(narrow),
        *region(narrow, "mlp.output", enters=False),
        *sorting(narrow),
        *exchange(narrow, "mlp.combine", returns=True),
        *shared_experts(parts),
        replace(
            parts.elementwise(Role.MLP_COMBINE, flops=2 * routed, read=routed, written=narrow.stream),
            issued=COMBINE_OPERATORS,
        ),
        *up,
    )


def expert_biases(parts: Parts) -> tuple[Step, ...]:
    """Return the sum of experts' results and their weighted biases, which is no part of a product.

    Notes
    -----
    A result's bias is weighted by the router's probability of its token, in single precision: written and
    read once as a product, once as the sum, once where the experts' sums are joined and once in their cast
    (Megatron-LM, megatron/core/transformer/moe/experts.py, _apply_bias). Biases before the activation are
    the products' own.
    """
    config, share = parts.config, parts.share
    if not config.mlp_bias or config.experts == 1:
        return ()
    results = config.experts // share.axes.ep * expert_rows(config, share) * config.hidden
    moved = BIAS_PASSES * results
    added = parts.elementwise(Role.MLP_EXPERT_BIAS, flops=2 * results, read=moved, written=moved)
    return (replace(added, kernels=BIAS_KERNELS * config.experts // share.axes.ep),)


def region(parts: Parts, name: str, *, enters: bool) -> tuple[Step, ...]:
    """Return the boundary of the region in which experts are cut over tensor ranks, if they are."""
    if parts.share.axes.whole_experts:
        return ()
    return parts.boundary(name, enters=enters, copies=visits(parts.config, parts.share))


def sorting(parts: Parts) -> tuple[Step, ...]:
    """Return the copy that sorts arrived tokens by expert, or back; none where a rank has one expert.

    Notes
    -----
    Tokens arrive by sending rank, and within that by expert (Megatron-LM's all-to-all
    dispatcher sorts chunks; DeepSpeed-MoE, arXiv:2201.05596, section 5.1, transforms the layout).
    """
    if parts.share.axes.ep in {1, parts.config.experts}:
        return ()
    moved = exchanged(parts)
    return (parts.elementwise(Role.MLP_SORT, flops=0, read=moved, written=moved),)


def exchange(parts: Parts, name: str, *, returns: bool = False) -> tuple[Step, ...]:
    """Return the exchange that dispatches tokens to a block's experts or, with `returns`, combines results.

    None with one rank.
    """
    share, config = parts.share, parts.config
    if share.axes.ep == 1:
        return ()
    spread = Spread(
        targets=config.experts,
        copies=config.experts_per_token,
        sets=config.routing_groups,
        chosen_sets=config.chosen_groups,
    )
    skew = exchange_skew(config, share)
    step = Exchange(
        name=name,
        elements=exchanged(parts) if skew is None else sent(parts),
        two_level=share.experts.expert_exchange is not ExpertExchange.DIRECT,
        spread=spread if share.experts.expert_exchange is ExpertExchange.ONCE_PER_NODE else None,
        skew=skew.turned() if skew is not None and returns else skew,
    )
    return (step,)


def sent(parts: Parts) -> int:
    """Return the elements that every rank sends to the experts of a block where no visit is dropped."""
    return parts.stream * parts.config.experts_per_token


def exchanged(parts: Parts) -> int:
    """Return the elements that a rank receives for the experts of a block, its own included."""
    return int(parts.stream * visits(parts.config, parts.share))


def counts(parts: Parts) -> tuple[Step, ...]:
    """Return the exchange of counts of tokens for each expert, if the plan has it.

    Notes
    -----
    It comes before an exchange of exact sizes, since a rank does not know the sizes that others send
    (FastMoE, arXiv:2103.13262). It has no backward pass: the sizes are known by then.
    """
    share = parts.share
    if not share.experts.exchange_counts or share.axes.ep == 1:
        return ()
    exchanged_counts = Collective(
        name="mlp.counts",
        phase=Phase.FORWARD,
        kind=CollectiveKind.ALL_TO_ALL,
        axis=Axis.EXPERT,
        size=share.axes.ep,
        payload_bytes=float(parts.config.experts * COUNT_BYTES),
    )
    return (exchanged_counts,)


def shared_experts(parts: Parts) -> tuple[Step, ...]:
    """Return the work of experts that every token visits, on the rank that has the token."""
    if not parts.config.shared_experts:
        return ()
    return (
        *parts.boundary("mlp.shared_input", enters=True),
        *parts.feed_forward(rows=parts.share.tokens, widths=parts.config.shared_experts),
        *parts.boundary("mlp.shared_output", enters=False),
    )


NORM_FLOPS = {Norm.LAYER: 7, Norm.SCALE: 6, Norm.RMS: 4}
"""Operations of a norm per element: each sum, square, scale and shift counts one."""
GATE_FLOPS = 4
"""Operations of a sigmoid per element: sign, exponential, sum, quotient."""
ROTARY_FLOPS = 3
"""Operations of a rotary position per element: two products and a sum."""
QUERIES_AND_KEYS = 2
"""Operators of a step that queries and keys take apart: rotation and norm of each (Megatron-LM,
core/transformer/attention.py)."""
LOSS_REDUCTIONS = 3
"""Numbers of each token that tensor ranks reduce for the loss: maximum, sum and the target's logit."""
NOT_LOW_PRECISION = frozenset({Role.MLP_ROUTER, Role.HEAD_JOIN, Role.HEAD_LOGITS})
"""Products that stay in the stored precision when all others are in fp8."""
LOSS_BYTES = 4
"""Bytes of a number that tensor ranks reduce for the loss (fp32)."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Forward steps of one part of the model on one rank for one microbatch."""

    config: TransformerConfig
    """The model."""
    share: Share
    """Rank's share of a microbatch."""

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return self.share.precision.element_bytes

    @property
    def stream_tokens(self) -> int:
        """Tokens of the residual stream on the rank with most: uneven ones differ by one."""
        return -(-self.share.tokens // self.share.axes.stream_cut)

    @property
    def stream(self) -> int:
        """Elements of the residual stream on this rank."""
        return self.stream_tokens * self.config.hidden

    def weighted(self, role: Role, *, m: int, k: int, n: int, batch: int = 1) -> MatMul:
        """Return the product of activations with a weight, in a block in the plan's linear precision."""
        low = role not in NOT_LOW_PRECISION
        return MatMul(
            name=str(role),
            role=role,
            phase=Phase.FORWARD,
            batch=batch,
            m=m,
            k=kept_inner(self.share.precision, k) if low else k,
            n=n,
            held=Held.B,
            element_bytes=self.share.precision.linear_bytes if low else self.width,
            result_bytes=self.width if low and self.share.precision.kind.is_cast else 0.0,
            sparse=low and self.share.precision.pruned,
        )

    def product(self, role: Role, *, batch: int, m: int, k: int, n: int, on_chip: Matrices) -> MatMul:
        """Return a product of two activations."""
        return MatMul(
            name=str(role),
            role=role,
            phase=Phase.FORWARD,
            batch=batch,
            m=m,
            k=k,
            n=n,
            element_bytes=self.width,
            on_chip=on_chip,
        )

    def elementwise(self, role: Role, *, flops: float, read: float, written: float) -> Elementwise:
        """Return element-wise work that reads and writes numbers of elements."""
        return Elementwise(
            name=str(role),
            role=role,
            phase=Phase.FORWARD,
            flops=float(flops),
            read_bytes=float(read * self.width),
            written_bytes=float(written * self.width),
        )

    def norm(self, role: Role, elements: int | None = None) -> Elementwise:
        """Return a norm of a number of elements; by default of the residual stream."""
        count = self.stream if elements is None else elements
        return self.elementwise(role, flops=NORM_FLOPS[self.config.norm] * count, read=count, written=count)

    def residual(self, role: Role) -> Elementwise:
        """Return the sum of a branch and the residual stream, with dropout and its mask if it has them."""
        mask = self.stream / self.width if self.config.dropout else 0.0
        written = self.stream + mask
        return self.elementwise(role, flops=self.stream, read=2 * self.stream, written=written)

    def boundary(
        self, name: str, *, enters: bool, copies: float = 1, width: int | None = None
    ) -> tuple[Boundary, ...]:
        """Return the boundary of a tensor-parallel region; none with one rank."""
        if self.share.axes.tp == 1:
            return ()
        elements = int(self.share.tokens * (width or self.config.hidden) * copies)
        return (Boundary(name=name, elements=elements, enters=enters),)

    def attention(self, mixed: tuple[Step, ...]) -> tuple[Step, ...]:
        """Return the half of a block that mixes tokens by some steps between the edges of its region."""
        latent = self.config.kv_rank and self.config.attends
        return (
            self.norm(Role.ATTENTION_NORM),
            *(self.latents() if latent else self.boundary("attention.input", enters=True)),
            *mixed,
            *self.boundary("attention.output", enters=False),
            *self.norm_after(Role.ATTENTION_POST_NORM),
            self.residual(Role.ATTENTION_RESIDUAL),
        )

    def norm_after(self, role: Role) -> tuple[Step, ...]:
        """Return the norm after a half of a block, if the model has one (Grok-1)."""
        return (self.norm(role),) if self.config.post_norms else ()

    def heads(self) -> tuple[Step, ...]:
        """Return attention from the input of its tensor-parallel region to the product that leaves it.

        With ring attention only the rank's own keys.
        """
        config, share = self.config, self.share
        query_width = config.query_width // share.axes.tp
        gates = config.gate_width // share.axes.tp
        if config.kv_rank:
            products, rotated = self.from_latents()
        else:
            width = query_width + share.axes.made_width(config) + gates
            products = (self.weighted(Role.ATTENTION_QKV, m=share.tokens, k=config.hidden, n=width),)
            if config.positions is Positions.RELATIVE:
                length = share.batch.sequence_length
                position = self.weighted(Role.ATTENTION_POSITIONS, m=length, k=config.hidden, n=query_width)
                products = (*products, position)
            rotated = share.tokens * (query_width + share.axes.key_width(config))
        rotary = replace(
            self.elementwise(
                Role.ATTENTION_ROTARY, flops=ROTARY_FLOPS * rotated, read=rotated, written=rotated
            ),
            issued=QUERIES_AND_KEYS,
        )
        before, after = self.context()
        normed = share.tokens * (query_width + share.axes.key_width(config)) if config.qk_norm else 0
        norms = replace(self.norm(Role.ATTENTION_QK_NORMS, normed), issued=QUERIES_AND_KEYS)
        return (
            *products,
            *((norms,) if normed else ()),
            *((rotary,) if config.positions is Positions.ROTARY else ()),
            *before,
            *self.core_attention(),
            *after,
            *self.output_gate(share.tokens * gates),
            self.weighted(
                Role.ATTENTION_OUTPUT,
                m=share.tokens,
                k=config.context_width // share.axes.tp,
                n=config.hidden,
            ),
        )

    def output_gate(self, gates: int) -> tuple[Step, ...]:
        """Return the product of attention's result with the sigmoids of some gates; none without gates."""
        if not gates:
            return ()
        results = self.share.tokens * self.config.context_width // self.share.axes.tp
        work = GATE_FLOPS * gates + results
        return (self.elementwise(Role.ATTENTION_GATE, flops=work, read=results + gates, written=results),)

    def latents(self) -> tuple[Step, ...]:
        """Return the products from the stream to the latents of queries, keys and values, and their norms."""
        config = self.config
        normed = self.stream_tokens * (config.query_rank + config.kv_rank)
        return (
            self.weighted(
                Role.ATTENTION_LATENTS, m=self.stream_tokens, k=config.hidden, n=config.latent_width
            ),
            self.norm(Role.ATTENTION_LATENT_NORMS, normed),
            *self.boundary(
                "attention.input",
                enters=True,
                width=config.latent_width + (0 if config.query_rank else config.hidden),
            ),
        )

    def from_latents(self) -> tuple[tuple[Step, ...], int]:
        """Return the products from latents to heads, and the number of elements that carry positions."""
        config, share = self.config, self.share
        heads = config.heads // share.axes.tp
        pairs = heads * (config.head_dim - config.rope_dim + config.value_dim)
        products = (
            self.weighted(
                Role.ATTENTION_QUERIES,
                m=share.tokens,
                k=config.query_rank or config.hidden,
                n=heads * config.head_dim,
            ),
            self.weighted(Role.ATTENTION_KEYS_VALUES, m=share.tokens, k=config.kv_rank, n=pairs),
        )
        return products, share.tokens * (heads + 1) * config.rope_dim

    def context(self) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        """Return the exchanges of context ranks before and after core attention; none with a ring."""
        config, share = self.config, self.share
        queries = share.tokens * config.query_width // share.axes.tp
        pairs = share.tokens * (share.axes.key_width(config) + share.axes.value_width(config))
        results = share.tokens * config.context_width // share.axes.tp
        exchange = share.axes.context_exchange
        if self.share.axes.cp == 1 or exchange is ContextExchange.RING:
            return (), ()
        if exchange is ContextExchange.ALL_GATHER:
            return (Gather(name="attention.keys", elements=pairs),), ()
        return (
            (Exchange(name="attention.heads", elements=queries + pairs, axis=Axis.CONTEXT),),
            (Exchange(name="attention.tokens", elements=results, axis=Axis.CONTEXT),),
        )

    def core_attention(self) -> tuple[Step, ...]:
        """Return scores, softmax, dropout and values; with ring attention those over one block of keys."""
        config, share = self.config, self.share
        by_heads = share.axes.context_exchange is ContextExchange.ALL_TO_ALL
        ring = share.axes.context_exchange is ContextExchange.RING
        heads = config.heads // share.axes.tp // (share.axes.cp if by_heads else 1)
        rows = share.batch.sequence_length // (1 if by_heads else share.axes.cp)
        keys = share.batch.sequence_length // (share.axes.cp if ring else 1)
        keys = self.seen(keys)
        batch = share.batch.micro_batch * heads
        scores = batch * rows * keys
        drops = config.dropout and not share.recompute.attention.on_chip
        mask = scores / self.width  # a byte per score; a fused kernel draws it again instead
        dropped = self.elementwise(Role.ATTENTION_DROPOUT, flops=scores, read=scores, written=scores + mask)
        relative = config.positions is Positions.RELATIVE
        *scored, valued = self.attended(
            {Role.ATTENTION_SCORES: keys} | ({Role.ATTENTION_POSITION_SCORES: keys} if relative else {}),
            Role.ATTENTION_SOFTMAX,
            Role.ATTENTION_VALUES,
            batch=batch,
            rows=rows,
            head_dim=config.head_dim,
            keys=keys,
            value_dim=config.value_dim or config.head_dim,
        )
        return (*scored, *((dropped,) if drops else ()), valued)

    def attended(
        self,
        scores: Mapping[Role, int],
        softmax: Role,
        values: Role,
        *,
        batch: int,
        rows: int,
        head_dim: int,
        keys: int,
        value_dim: int,
    ) -> tuple[Step, ...]:
        """Return products that make scores, their softmax and the product with the values.

        `scores` has the columns of each product that makes scores. A fused kernel keeps scores, of `rows`
        queries and `keys` keys a head, on chip.
        """
        count = batch * rows * keys
        flash = self.share.recompute.attention.on_chip
        moved = 0 if flash else count
        written, read = (Matrices.C, Matrices.A) if flash else (Matrices.NONE, Matrices.NONE)
        return (
            *(
                self.product(role, batch=batch, m=rows, k=head_dim, n=columns, on_chip=written)
                for role, columns in scores.items()
            ),
            self.elementwise(softmax, flops=SOFTMAX_FLOPS * count, read=moved, written=moved),
            self.product(values, batch=batch, m=rows, k=keys, n=value_dim, on_chip=read),
        )

    def seen(self, keys: int) -> int:
        """Return the keys among `keys` that a query's products span, the mean rounded to a whole number.

        Notes
        -----
        Under the causal mask (s+1)/2 if the kernel skips masked scores, as ranks hold early and late queries.
        With a window of w keys at most w, and w - w (w-1) / 2s if the shorter spans of the first queries are
        skipped too. With block-sparse attention `Recomputation.attention_keys`.
        """
        if self.share.recompute.attention_keys:
            return self.share.recompute.attention_keys
        window = min(self.config.window, keys) if self.config.all_windowed else keys
        if self.share.recompute.attention is not Attention.FLASH:
            return window
        if window == keys:
            return (keys + 1) // 2
        return window - window * (window - 1) // (2 * keys)

    def feed_forward(
        self, *, rows: int, batch: int = 1, widths: int = 1, whole: bool = False
    ) -> tuple[Step, ...]:
        """Return the products and the activation of `batch` feed-forward parts of `rows` tokens each.

        `widths` such parts that all see the same tokens stand side by side as one; `whole` ones are not cut
        over the tensor-parallel ranks.
        """
        inner = self.config.ffn_hidden * widths // (1 if whole else self.share.axes.tp)
        branches = self.config.ffn_branches
        count = batch * rows * inner
        gated = self.config.gated
        per_element = FLOPS[self.config.activation or (Activation.SILU if gated else Activation.GELU)] + gated
        hidden = self.config.hidden
        up = Role.MLP_GATE_UP if gated else Role.MLP_UP
        return (
            self.weighted(up, batch=batch, m=rows, k=hidden, n=branches * inner),
            *self.clamps(branches * count),
            self.elementwise(
                Role.MLP_ACTIVATION, flops=per_element * count, read=branches * count, written=count
            ),
            self.weighted(Role.MLP_DOWN, batch=batch, m=rows, k=inner, n=hidden),
        )

    def clamps(self, elements: int) -> tuple[Step, ...]:
        """Return the clamps of a gated part's branches and the copy that joins these again, if it has any.

        Notes
        -----
        The activation's kernel takes both branches as one tensor and clamps nothing itself (Megatron-LM,
        core/fusions/fused_bias_geglu.py, weighted_bias_quick_geglu_impl).
        """
        if not self.config.clamped:
            return ()
        clamp = self.elementwise(Role.MLP_CLAMP, flops=2 * elements, read=elements, written=elements)
        join = self.elementwise(Role.MLP_CLAMPED, flops=0, read=elements, written=elements)
        return replace(clamp, issued=CLAMPS), join

    def mlp(self) -> tuple[Step, ...]:
        """Return the feed-forward half of a dense block."""
        return (
            self.norm(Role.MLP_NORM),
            *self.boundary("mlp.input", enters=True),
            *self.feed_forward(rows=self.share.tokens),
            *self.boundary("mlp.output", enters=False),
            *self.norm_after(Role.MLP_POST_NORM),
            self.residual(Role.MLP_RESIDUAL),
        )

    def side_by_side(self, mixed: tuple[Step, ...]) -> tuple[Step, ...]:
        """Return a block whose halves share their sum and mostly norm and input.

        PaLM has one norm (arXiv:2204.02311, section 2), GPT-NeoX two, which it joins in one sum nevertheless
        (arXiv:2204.06745, section 2.1).
        """
        first: tuple[Step, ...] = (self.norm(Role.BLOCK_NORM), *self.boundary("block.input", enters=True))
        second: tuple[Step, ...] = ()
        if self.config.two_norms:
            first = (self.norm(Role.ATTENTION_NORM), *self.boundary("attention.input", enters=True))
            second = (self.norm(Role.MLP_NORM), *self.boundary("mlp.input", enters=True))
        edge = self.boundary("block.output", enters=False)
        feeding = (*self.feed_forward(rows=self.share.tokens), *edge)
        if self.config.experts > 1:  # each token's sums come back to the rank that has it
            feeding = (*edge, *routed_experts(self))
        return (
            *first,
            *mixed,
            *second,
            *feeding,
            self.elementwise(
                Role.BLOCK_RESIDUAL, flops=2 * self.stream, read=3 * self.stream, written=self.stream
            ),
        )

    def block(self, mixed: tuple[Step, ...]) -> tuple[Step, ...]:
        """Return a whole block, of which some steps mix tokens: attention, a recurrence, both or nothing."""
        if self.config.parallel:
            return self.kernels(self.side_by_side(mixed))
        halves = self.attention(mixed) if mixed else ()
        if self.config.feeds:
            halves = (*halves, *(self.mlp() if self.config.experts == 1 else expert_mlp(self)))
        return self.kernels(halves)

    def kernels(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """Return steps as the plan has them: fused, or split into one kernel for each operation."""
        if self.share.recompute.fused:
            return steps
        single = LOSS_BYTES / self.width
        return tuple(
            kernel
            for step in steps
            for kernel in (separate(step, self.config, single) if isinstance(step, Elementwise) else (step,))
        )

    def embedding(self) -> tuple[Step, ...]:
        """Return the look-up of tokens, with learned positions and the norm after it if there are any."""
        count = self.share.tokens * self.config.hidden
        learned = self.config.positions is Positions.LEARNED
        look_up = self.elementwise(Role.EMBEDDING_LOOKUP, flops=0, read=count, written=count)
        add = self.elementwise(
            Role.EMBEDDING_POSITIONS, flops=self.stream, read=2 * self.stream, written=self.stream
        )
        return (
            look_up,
            *self.boundary("embedding.output", enters=False),
            *((add,) if learned else ()),
            *((self.norm(Role.EMBEDDING_NORM),) if self.config.embedding_norm else ()),
        )

    def loss(self, logits: int, role: Role = Role.HEAD_LOSS) -> Elementwise:
        """Return the cross entropy of the logits in single precision: cast, read twice, written once.

        Fused, it reads them twice as they are and writes their gradient, which no backward pass computes. One
        that is only logged is never fused.
        """
        fused = self.share.recompute.fused_loss and role is Role.HEAD_LOSS
        return Elementwise(
            name=str(role),
            role=role,
            phase=Phase.FORWARD,
            flops=float(SOFTMAX_FLOPS * logits),
            read_bytes=float((2 * self.width if fused else self.width + 2 * LOSS_BYTES) * logits),
            written_bytes=float((self.width if fused else 2 * LOSS_BYTES) * logits),
        )

    def joining(self) -> tuple[Step, ...]:
        """Return the steps of a module that predicts a further token before its block.

        The next token is looked up again; both streams are normed and joined by one product
        (arXiv:2412.19437, section 2.2).
        """
        hidden = self.config.hidden
        columns = -(-hidden // self.share.axes.tp)
        return (
            *self.embedding(),
            *(self.norm(Role.HEAD_NORM),) * 2,
            *self.boundary("head.join_input", enters=True, copies=2),
            self.weighted(Role.HEAD_JOIN, m=self.share.tokens, k=2 * hidden, n=columns),
            *self.boundary("head.join_output", enters=False),
        )

    def head(self) -> tuple[Step, ...]:
        """Return the last norm, the product with the vocabulary and the loss."""
        share, tokens = self.share, self.share.tokens
        columns = share.axes.padded_vocabulary(self.config) // share.axes.tp
        logits = tokens * columns
        reduction = Collective(
            name=str(Role.HEAD_LOSS),
            role=Role.HEAD_LOSS,
            phase=Phase.FORWARD,
            kind=CollectiveKind.ALL_REDUCE,
            axis=Axis.TENSOR,
            size=share.axes.tp,
            payload_bytes=float(tokens * LOSS_BYTES),
        )
        return (
            self.norm(Role.HEAD_NORM),
            *self.boundary("head.input", enters=True),
            self.weighted(Role.HEAD_LOGITS, m=tokens, k=self.config.hidden, n=columns),
            self.loss(logits),
            *(self.loss(logits, Role.HEAD_LOGGED_LOSS),) * share.recompute.logged_losses,
            *((reduction,) * LOSS_REDUCTIONS if share.axes.tp > 1 else ()),
        )
