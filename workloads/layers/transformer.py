"""Operators and collectives of one rank in a block, the embedding and the head, forward and backward.

Every part of the model is written once, as forward steps (`workloads.layers.parts`); the backward pass
mirrors them. `model_flops` counts the operations of a step by the conventions of published utilisations.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from simulator.amounts import Matrices
from simulator.layout import Axis
from simulator.operators import (
    CHUNKED,
    SCORES,
    VALUES,
    Collective,
    CollectiveKind,
    Elementwise,
    Held,
    MatMul,
    Overlapped,
    Phase,
    Role,
    total_flops,
)
from workloads.layers.parts import Boundary, Exchange, Gather, Parts, Step
from workloads.layers.recurrence import recurrent, repeated
from workloads.layers.retrieval import RetrievalParts
from workloads.models.architecture import TransformerConfig
from workloads.plan.parts import (
    Attention,
    ContextExchange,
    Formats,
    GradientSum,
    Graphs,
    Kept,
    Precision,
    Recompute,
)
from workloads.plan.plan import Plan, Share

Item = tuple[MatMul | Elementwise | Collective | Overlapped, int]
"""An operator with its number of repeats."""

CORE_ATTENTION = frozenset(((SCORES | VALUES) - CHUNKED) | {Role.ATTENTION_SOFTMAX, Role.RETRIEVAL_SOFTMAX})
"""Steps that selective recomputation repeats (arXiv:2205.05198, section 5)."""
NORMED = frozenset({Role.ATTENTION_NORM, Role.MLP_NORM, Role.BLOCK_NORM, Role.ATTENTION_LATENT_NORMS})
"""Norms of a block whose outputs may be recomputed."""
ACTIVATED = frozenset({Role.MLP_CLAMP, Role.MLP_CLAMPED, Role.MLP_ACTIVATION})
"""Steps of a feed-forward part between its products."""
BACKWARD_KERNELS = 3
"""Backward kernels for each forward one of a weighted bias: two products and two sums for the gradients of
bias and weight, and two casts, for a product and a sum (Megatron-LM, core/transformer/moe/experts.py)."""
PROJECTIONS = frozenset({Role.ATTENTION_QUERIES, Role.ATTENTION_KEYS_VALUES, Role.ATTENTION_ROTARY})
"""Steps of latent attention from latents to heads."""
ROUTED = frozenset({Role.MLP_ROUTER, Role.MLP_GATES})
"""Steps of the router that a captured graph replays. Launching the graph takes the place of launching the
norm before it."""
ATTENDED = (
    CORE_ATTENTION
    | PROJECTIONS
    | {
        *(role for role in Role if role.startswith("state.")),
        Role.ATTENTION_QKV,
        Role.ATTENTION_LATENTS,
        Role.ATTENTION_LATENT_NORMS,
        Role.ATTENTION_QK_NORMS,
        Role.ATTENTION_GATE,
        Role.ATTENTION_DROPOUT,
        Role.ATTENTION_OUTPUT,
        Role.ATTENTION_POST_NORM,
        Role.ATTENTION_RESIDUAL,
    }
)
"""Steps of attention, or of the recurrence in its place, that a captured graph replays."""
GRAPHED = {Graphs.NONE: frozenset[Role](), Graphs.ROUTER: ROUTED, Graphs.ATTENTION: ROUTED | ATTENDED}
"""Roles of the operators that the host replays."""
CONSTANT_INPUT = frozenset({Role.ATTENTION_POSITIONS, Role.RETRIEVAL_POSITIONS})
"""Products of a weight with encodings of positions, which have no gradient."""
FP8_BYTES = 1
"""Bytes of an element in fp8."""
CAST_FLOPS = 2
"""Operations of a cast per element: the largest value and the scale."""
PASSES_THROUGH = frozenset(
    {
        Role.ATTENTION_ROTARY,
        Role.ATTENTION_RESIDUAL,
        Role.MLP_RESIDUAL,
        Role.MLP_DISPATCH,
        Role.MLP_SORT,
        Role.MLP_CLAMPED,
        Role.BLOCK_RESIDUAL,
        Role.RETRIEVAL_RESIDUAL,
    }
)
"""Element-wise steps whose backward pass needs the gradient only, not the input."""


@dataclass(frozen=True, kw_only=True)
class _Lowering:
    """Derivation of a pass's operators and collectives from forward steps."""

    share: Share
    """Rank's share of a microbatch."""

    def collective(
        self, name: str, phase: Phase, kind: CollectiveKind, axis: Axis, elements: float
    ) -> Collective:
        """Return a collective with a payload of `elements` per rank."""
        return Collective(
            name=name,
            phase=phase,
            kind=kind,
            axis=axis,
            size={
                Axis.EXPERT: self.share.axes.ep,
                Axis.CONTEXT: self.share.axes.cp,
                Axis.TENSOR: self.share.axes.tp,
            }[axis],
            payload_bytes=float(elements * self.share.precision.element_bytes),
        )

    def boundary(self, step: Boundary, phase: Phase) -> tuple[Item, ...]:
        """Return the collective at a boundary; a gather forward is a sum backward, and the reverse."""
        gathers = step.enters is (phase is Phase.FORWARD)
        whole = not self.share.axes.sequence_parallel
        if whole and gathers:
            return ()
        kind = CollectiveKind.ALL_REDUCE if whole else CollectiveKind.REDUCE_SCATTER
        elements: float = step.elements
        if gathers:
            kind, elements = CollectiveKind.ALL_GATHER, elements / self.share.axes.tp
        return ((self.collective(step.name, phase, kind, Axis.TENSOR, elements), 1),)

    def forward(self, steps: tuple[Step, ...]) -> tuple[Item, ...]:
        """Return the operators of steps run forward."""
        items: list[Item] = []
        before = Role.OTHER
        for step in steps:
            match step:
                case Boundary():
                    items.extend(self.boundary(step, Phase.FORWARD))
                case Exchange():
                    items.append((self._exchange(step, Phase.FORWARD), 1))
                case Gather():
                    items.append((self._gathered(step, Phase.FORWARD), 1))
                case MatMul():
                    items.extend((*self._input_cast(step, before), (step, 1)))
                case Elementwise():
                    items.extend(((step, 1), *self._kept_cast(step)))
                    before = step.role
                case _:
                    items.append((step, 1))
        return tuple(items)

    def backward(self, steps: tuple[Step, ...]) -> tuple[Item, ...]:
        """Return the operators of steps run backward, last step first."""
        items: list[Item] = []
        for step in reversed(steps):
            match step:
                case MatMul():
                    items.extend(self._gradient_cast(step))
                    constant = step.role in CONSTANT_INPUT
                    products = gradients(step, self.share.precision)[constant:]
                    items.extend((product, 1) for product in products)
                    items.extend(self._sum(products[-1]))
                case Gather():
                    items.extend(self._gather_backward(step))
                case Elementwise(role=Role.HEAD_LOSS) if self.share.recompute.fused_loss:
                    pass  # its gradient was written forward
                case Elementwise(role=Role.HEAD_LOGGED_LOSS):
                    pass  # nothing follows from what is only logged
                case Elementwise():
                    items.append((_mirrored(step), 1))
                case Boundary():
                    items.extend(self.boundary(step, Phase.GRAD_INPUT))
                case Exchange():
                    items.append((self._exchange(step, Phase.GRAD_INPUT), 1))
        return tuple(items)

    def _exchange(self, step: Exchange, phase: Phase) -> Collective:
        """Return the all-to-all of an exchange; the backward pass sends in the opposite direction."""
        sent = self.collective(step.name, phase, CollectiveKind.ALL_TO_ALL, step.axis, step.elements)
        if step.skew is not None:
            skew = step.skew.turned() if phase is Phase.GRAD_INPUT else step.skew
            sent = replace(sent, skew=skew)
        return replace(sent, two_level=True, spread=step.spread) if step.two_level else sent

    def _gathered(self, step: Gather, phase: Phase) -> Collective:
        return self.collective(step.name, phase, CollectiveKind.ALL_GATHER, Axis.CONTEXT, step.elements)

    def _gather_backward(self, step: Gather) -> tuple[Item, ...]:
        """Return a second gather of keys and values, if they are not recomputed, and the sum of gradients."""
        whole = step.elements * self.share.axes.cp
        summed = self.collective(
            step.name, Phase.GRAD_INPUT, CollectiveKind.REDUCE_SCATTER, Axis.CONTEXT, whole
        )
        if self.share.recompute.kind is Recompute.FULL:
            return ((summed, 1),)
        return ((self._gathered(step, Phase.GRAD_INPUT), 1), (summed, 1))

    def _sum(self, product: MatMul) -> tuple[Item, ...]:
        """Return the addition of a weight's gradient to the sum of microbatches, where it is not fused."""
        formats = self.share.precision
        if product.phase is not Phase.GRAD_WEIGHT or formats.gradient_sum is GradientSum.FUSED:
            return ()
        elements = product.batch * product.m * product.n
        casts = formats.gradient_sum is GradientSum.CAST and formats.grad_bytes > formats.element_bytes
        added = formats.gradient_sum is not GradientSum.COPIED
        kernel = Elementwise(
            name=f"{product.name}.sum",
            phase=Phase.GRAD_WEIGHT,
            flops=float(elements),
            read_bytes=float((formats.element_bytes + (added + casts) * formats.grad_bytes) * elements),
            written_bytes=float((1 + casts) * formats.grad_bytes * elements),
            issued=0,
            kernels=(1 + casts) * product.batch,
        )
        return ((kernel, 1),)

    def _kept_cast(self, step: Elementwise) -> tuple[Item, ...]:
        """Return the cast of an activation's input to fp8, in which it is kept; it is cast as it is read."""
        if self.share.precision.kept_activations is not Kept.FP8 or step.role is not Role.MLP_ACTIVATION:
            return ()
        elements = step.read_bytes / self.share.precision.element_bytes
        cast = replace(
            step,
            name=str(Role.MLP_KEPT_CAST),
            role=Role.MLP_KEPT_CAST,
            flops=CAST_FLOPS * elements,
            read_bytes=0.0,
            written_bytes=elements * FP8_BYTES,
        )
        return ((cast, 1),)

    def _input_cast(self, product: MatMul, before: Role) -> tuple[Item, ...]:
        """Return the cast of a product's input; none after a norm, which casts as it writes.

        A norm's result as it is and transposed takes no more bytes than in 16 bits (Transformer Engine's
        LayerNormLinear). Results of activations, attention and the dispatch of tokens are cast by the
        product's own call (Megatron-LM: TERowParallelLinear, TEGroupedLinear), and so are gradients of
        outputs.
        """
        if before in NORMED and not self._searches:
            return ()
        return self._cast(product, product.batch * product.m * product.k, Phase.FORWARD)

    def _gradient_cast(self, product: MatMul) -> tuple[Item, ...]:
        """Return the cast of the gradient of a product's output."""
        return self._cast(product, product.batch * product.m * product.n, Phase.GRAD_INPUT)

    def _cast(self, product: MatMul, elements: int, phase: Phase) -> tuple[Item, ...]:
        """Return the cast of an operand and its transpose, with the search for its largest value.

        fp8 scales by the largest value of steps before and casts in one pass. nvfp4 needs the largest value
        of this tensor, which a kernel of its own finds before the one that casts reads it again, and rotates
        the operands of weight gradients on the way (Transformer Engine's NVFP4 recipe; arXiv:2509.25149).
        """
        stored = self.share.precision.element_bytes
        if product.held is not Held.B or product.element_bytes >= stored:
            return ()
        passes = 2 if self._searches else 1
        cast = Elementwise(
            name=f"{product.name}.cast",
            casts=product.role,
            phase=phase,
            flops=float(CAST_FLOPS * elements),
            read_bytes=float(passes * stored * elements),
            written_bytes=float(2 * product.element_bytes * elements),
            issued=passes,
        )
        return ((cast, 1),)

    @property
    def _searches(self) -> bool:
        """Whether a cast first needs the largest value of the tensor, so that none casts as it writes."""
        return self.share.precision.kind is Precision.NVFP4


def gradients(product: MatMul, formats: Formats) -> tuple[MatMul, MatMul]:
    """Return the two backward products of C = A B.

    Parameters
    ----------
    product : MatMul
        The forward product.
    formats : Formats
        Stored forms. A weight's gradient is added to the sum of the step's microbatches, by the product that
        makes it or after it.

    Returns
    -------
    tuple of MatMul
        dA = dC B^T, which may hold B if the forward product does, and dB = A^T dC, which holds nothing and
        is dense. For a product of two activations (attention) both are of the phase ``grad_input``.
    """
    # A matrix that stays on chip in the forward pass does so in the backward pass, with its gradient.
    first_kept = product.on_chip.renamed(Matrices.C, Matrices.B, Matrices.A)
    second_kept = product.on_chip.renamed(Matrices.A, Matrices.C, Matrices.B)
    first = replace(product, phase=Phase.GRAD_INPUT, k=product.n, n=product.k, on_chip=first_kept)
    second = replace(
        product,
        phase=Phase.GRAD_INPUT,
        m=product.k,
        k=product.m,
        held=Held.NONE,
        on_chip=second_kept,
        sparse=False,
    )
    if product.held is Held.B:
        fused = formats.gradient_sum is GradientSum.FUSED
        moved = 2 * formats.grad_bytes if fused else formats.element_bytes
        second = replace(second, phase=Phase.GRAD_WEIGHT, result_bytes=float(moved))
    return first, second


def _mirrored(work: Elementwise) -> Elementwise:
    """Return the backward work of an element-wise step: twice its operations, on gradient and input."""
    kept = 0.0 if work.role in PASSES_THROUGH else work.read_bytes
    return Elementwise(
        name=work.name,
        role=work.role,
        casts=work.casts,
        phase=Phase.GRAD_INPUT,
        flops=2 * work.flops,
        read_bytes=work.written_bytes + kept,
        written_bytes=work.read_bytes,
        exponentials=2 * work.exponentials,
        issued=work.issued,
        kernels=(BACKWARD_KERNELS if work.role is Role.MLP_EXPERT_BIAS else 1) * work.kernels,
    )


def forward_layer(config: TransformerConfig, share: Share) -> tuple[Item, ...]:
    """Return the forward operators of one block on one rank for one microbatch.

    Parameters
    ----------
    config, share : TransformerConfig, Share
        A pair that `workloads.plan.rules.check` accepts.

    Notes
    -----
    Biases, dropout and masks are taken to be fused into their neighbours. Attention's products span all s x s
    pairs, or, with attention=flash, those that a causal mask lets through. Scores on chip are moved by
    neither the softmax nor its two products.
    """
    steps = block_steps(config, share)
    return _replayed(_Lowering(share=share).forward(steps), share)


def _replayed(items: tuple[Item, ...], share: Share) -> tuple[Item, ...]:
    """Return operators, those that the host replays marked as such."""
    roles = GRAPHED[share.recompute.graphs]
    if not roles:
        return items
    return tuple(
        (replace(one, replayed=True), count)
        if isinstance(one, MatMul | Elementwise) and _role(one) in roles
        else (one, count)
        for one, count in items
    )


def backward_layer(config: TransformerConfig, share: Share) -> tuple[Item, ...]:
    """Return the operators of one block's backward pass, its recomputation first.

    Notes
    -----
    Full recomputation repeats the whole forward block with its traffic; selective repeats core attention. A
    flash kernel repeats the scores by itself (arXiv:2205.14135, algorithm 4), hence selective adds nothing to
    it. Operators that the plan names run once more, each from kept activations. The third gather of sequence
    parallelism (the input of each weight gradient) is left out, for Megatron-LM hides it behind the input
    gradient.
    """
    return _replayed(backward_steps(block_steps(config, share), share), share)


def block_steps(config: TransformerConfig, share: Share) -> tuple[Step, ...]:
    """Return the forward steps of one block."""
    parts = Parts(config=config, share=share)
    return parts.block((*(parts.heads() if config.attends else ()), *recurrent(parts)))


def forward_steps(steps: tuple[Step, ...], share: Share) -> tuple[Item, ...]:
    """Return the forward operators of some steps of a block."""
    return _Lowering(share=share).forward(steps)


def backward_steps(steps: tuple[Step, ...], share: Share) -> tuple[Item, ...]:
    """Return the operators of the backward pass of some steps of a block, their recomputation first."""
    lowering = _Lowering(share=share)
    again = repeated(steps)
    if share.recompute.attention.on_chip:
        again |= CORE_ATTENTION & SCORES
    elif share.recompute.kind is Recompute.SELECTIVE:
        again |= CORE_ATTENTION
    recomputed = tuple(step for step in steps if _role(step) in again)
    if share.recompute.kind is Recompute.FULL:
        recomputed = (*steps, *recomputed)
    named = recomputed_operators(share)
    by_name = tuple(step for step in steps if _role(step) in named)
    return (*lowering.forward((*by_name, *recomputed)), *lowering.backward(steps))


def _role(step: Step) -> Role:
    """Return the role of a step; for the cast of an operand that of the product."""
    if isinstance(step, Elementwise) and step.casts is not Role.OTHER:
        return step.casts
    return step.role if isinstance(step, MatMul | Elementwise) else Role.OTHER


def recomputed_operators(share: Share) -> frozenset[Role]:
    """Return the roles of the operators that a plan names for recomputation."""
    recompute = share.recompute
    return frozenset().union(
        NORMED if recompute.recompute_norms else (),
        PROJECTIONS if recompute.recompute_projections else (),
        ACTIVATED if recompute.recompute_activation else (),
        CORE_ATTENTION if recompute.recompute_attention else (),
    )


def ring_layer(
    config: TransformerConfig, share: Share, items: tuple[Item, ...], *, forward: bool
) -> tuple[tuple[Item, ...], tuple[Collective, ...]]:
    """Return the attention of a block to other ranks' keys on a ring, and the collectives that bring them.

    Parameters
    ----------
    config, share : TransformerConfig, Share
        Model and share.
    items : tuple
        The block's operators, as `forward_layer` or `backward_layer` gives them: those of one block of keys.
    forward : bool
        Whether they are those of the forward pass.

    Returns
    -------
    tuple
        Core attention on the other cp - 1 blocks of keys, and the collectives that run beside it; both empty
        without a ring.

    Notes
    -----
    A ring that hands keys and values on cp - 1 times is an all-gather, and one that returns their gradients a
    reduce-scatter (Ring Attention, arXiv:2310.01889, section 3). The backward pass does both.
    """
    if share.axes.cp == 1 or share.axes.context_exchange is not ContextExchange.RING:
        return (), ()
    attention = tuple(
        (one, count * (share.axes.cp - 1))
        for one, count in items
        if isinstance(one, MatMul | Elementwise) and one.role in CORE_ATTENTION
    )
    lowering = _Lowering(share=share)
    pairs = share.tokens * (share.axes.key_width(config) + share.axes.value_width(config))
    phase = Phase.FORWARD if forward else Phase.GRAD_INPUT
    keys = lowering.collective("attention.keys", phase, CollectiveKind.ALL_GATHER, Axis.CONTEXT, pairs)
    if forward:
        return attention, (keys,)
    sums = lowering.collective(
        "attention.keys", phase, CollectiveKind.REDUCE_SCATTER, Axis.CONTEXT, pairs * share.axes.cp
    )
    return attention, (*((keys,) if share.recompute.kind is Recompute.FULL else ()), keys, sums)


def forward_embedding(config: TransformerConfig, share: Share) -> tuple[Item, ...]:
    """Return the operators of the embedding."""
    steps = Parts(config=config, share=share).embedding()
    return _Lowering(share=share).forward(steps)


def backward_embedding(config: TransformerConfig, share: Share) -> tuple[Item, ...]:
    """Return the operators that gather the embedding's gradient."""
    steps = Parts(config=config, share=share).embedding()
    return _Lowering(share=share).backward(steps)


def _head(config: TransformerConfig, share: Share) -> tuple[Step, ...]:
    """Return the steps of the head, and of modules that predict further tokens without their blocks."""
    parts = Parts(config=config, share=share)
    return (*parts.head(), *(*parts.joining(), *parts.head()) * config.predicted_tokens)


def forward_head(config: TransformerConfig, share: Share) -> tuple[Item, ...]:
    """Return the operators of the last norm, the logits and the loss, of every token that is predicted."""
    return _Lowering(share=share).forward(_head(config, share))


def backward_head(config: TransformerConfig, share: Share) -> tuple[Item, ...]:
    """Return the backward operators of the head."""
    return _Lowering(share=share).backward(_head(config, share))


def model_flops(config: TransformerConfig, share: Share, *, causal: bool = False) -> float:
    """Return the floating-point operations of a step of the model, independent of the plan.

    Parameters
    ----------
    config, share : TransformerConfig, Share
        The model, and a rank's share, of which only batch, sequence length and block sparsity matter.
    causal : bool
        Whether only the half of attention's pairs counts that the mask lets through. Some published
        utilisations count all pairs, others the half: 12 % apart for Llama 3 8B at 8192 tokens.

    Notes
    -----
    Products only, three times the forward pass (arXiv:2205.05198, appendix A; for a GPT
    72 B L s h^2 (1 + s/6h + V/12Lh)). Attention counts all s x s pairs, not the causal half, unless asked to;
    nothing that is recomputed and no padding of the vocabulary counts. Utilisations published with the causal
    half counted are lower for the same speed. Blocks of weights and of keys that do not exist count nothing;
    weights pruned 2 of 4 count as if they were dense.
    """
    bare = Plan.of(
        global_batch=share.batch.global_batch,
        sequence_length=share.batch.sequence_length,
        attention=Attention.FULL,
        vocabulary_multiple=1,
        weight_density=share.precision.weight_density,
        attention_keys=share.recompute.attention_keys,
    ).share
    windowed = config.windowed_among(0, config.layers)
    kinds = Counter(config.kinds_among(0, config.blocks))
    plain = config.blocks - config.dense_layers - windowed - kinds.total()
    blocks = plain * _product_flops(forward_layer(config.unbounded, bare), causal=causal)
    for kind, count in kinds.items():
        blocks += count * _product_flops(forward_layer(config.shapes[kind], bare), causal=causal)
    if windowed:
        blocks += windowed * _product_flops(forward_layer(config.windowed, bare), causal=causal)
    if config.dense_layers:
        dense = _product_flops(forward_layer(config.dense, bare), causal=causal)
        blocks += config.dense_layers * dense
    head = _product_flops(forward_head(config, bare), causal=causal)
    flops = 3.0 * share.batch.global_batch * (blocks + head)
    return flops + _retrieval_flops(config, share, bare) if config.retrieval else flops


def _retrieval_flops(config: TransformerConfig, share: Share, bare: Share) -> float:
    """Return the operations of a step's cross-attentions and encoder, less a correction of its blocks.

    Both passes are counted one by one, for encodings of relative positions have no gradient. In the blocks,
    whose products all count three times, that of the encodings is taken off once.
    """
    if config.retrieval is None:
        return 0.0
    parts = RetrievalParts(config, bare, config.retrieval)
    count = config.retrieval.among(0, config.layers)
    sequence_flops = sum(
        _product_flops((*forward_steps(steps, bare), *backward_steps(steps, bare)), causal=False) * times
        for steps, times in ((parts.cross(), count), (parts.encoder(), 1))
    )
    no_gradient = 2 * share.batch.sequence_length * config.position_matrix * config.layers
    return share.batch.global_batch * (sequence_flops - no_gradient)


def _product_flops(items: tuple[Item, ...], *, causal: bool) -> float:
    """Return the operations of the products of a run; of attention the unmasked half if `causal`."""
    halved = (
        {Role.ATTENTION_SCORES, Role.ATTENTION_POSITION_SCORES, Role.ATTENTION_VALUES} if causal else set()
    )
    return sum(
        total_flops(operator) * repeat / (2 if operator.role in halved else 1)
        for operator, repeat in items
        if isinstance(operator, MatMul)
    )
