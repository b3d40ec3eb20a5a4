"""Sharding: parameters and optimizer states of one rank, and the parts in which a stage's parameters travel.

A stage consists of chunks, each a run of neighbouring blocks; a chunk is cut into parts whose parameters are
gathered, and whose gradients are summed, together. All of these are a `StagePart`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

from simulator.amounts import Amount, Flag, ceiling, choose, larger, smaller
from simulator.operators import Elementwise, Phase
from workloads.models.architecture import TransformerConfig
from workloads.pipeline.schedule import Schedule
from workloads.plan.parts import Axes, Formats, Optimizer, Precision, Sharding, trait
from workloads.plan.plan import Plan, Share

MOST_UNITS = 10
"""Most pieces into which a chunk is cut when every microbatch gathers its parameters; a choice."""
QUANTISED_BLOCK = 4096
"""Values that share one scale in quantised traffic (ZeRO++, arXiv:2306.10209), as in DeepSpeed's kernels
(4,000 to 8,000 to a group); a choice."""
SCALE_BYTES = 4
"""One fp32 scale."""
INT8_BYTES = 1 + SCALE_BYTES / QUANTISED_BLOCK
"""A value in int8 with its share of the scale."""
INT4_BYTES = 0.5 + SCALE_BYTES / QUANTISED_BLOCK
"""A value in int4 with its share of the scale."""
QUANTISE_FLOPS = 3
"""Operations per value: magnitude and largest, scale, round."""
DEQUANTISE_FLOPS = 1
"""Operations per value: the product with the scale."""
METADATA_BYTES = 0.125
"""Positions of the kept elements, per element of the dense matrix: two bits for each of two in four."""
FORMS = 2
"""Compressed forms of a pruned weight: one for the forward pass, one transposed for the input's gradient."""


def kept_elements(formats: Formats, elements: int) -> int:
    """Return the elements that a rank stores of a matrix of `elements`."""
    return elements if formats.weight_density == 1.0 else round(elements * formats.weight_density)


def compressed_bytes(formats: Formats) -> float:
    """Return the bytes of both compressed forms of a pruned weight, per element of the dense one.

    Notes
    -----
    Half of the elements and two bits for each (Mishra et al., arXiv:2104.08378, section 2.1). As both passes
    need their own form, bf16 weights take 2.25 bytes an element against 2 dense: pruning saves no memory
    while a model is trained.
    """
    return FORMS * (formats.linear_bytes / 2 + METADATA_BYTES)


def extra_weight_bytes(formats: Formats) -> float:
    """Return the bytes of a pruned weight minus those of a dense one, per element; negative if it saves."""
    dense = FORMS if formats.kind.is_cast else 1
    return compressed_bytes(formats) - dense * formats.linear_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class RankParameters:
    """Parameters on one rank, by the axis over which their gradients are summed."""

    dense: int = 0
    """Parameters that all data-parallel ranks hold."""
    expert: int = 0
    """Parameters that only every `ep`-th data-parallel rank holds."""
    pruned: int = 0
    """Parameters, of both kinds, in matrices pruned 2 of 4."""

    @property
    def total(self) -> int:
        """Dense and expert parameters."""
        return self.dense + self.expert

    def __add__(self, other: RankParameters) -> RankParameters:
        return RankParameters(
            dense=self.dense + other.dense,
            expert=self.expert + other.expert,
            pruned=self.pruned + other.pruned,
        )

    def __mul__(self, times: int) -> RankParameters:
        return RankParameters(
            dense=self.dense * times, expert=self.expert * times, pruned=self.pruned * times
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class StagePart:
    """A run of neighbouring blocks of a stage, with the embedding before or the head behind them."""

    layers: int
    """Blocks."""
    embedding: bool = False
    """Whether the embedding belongs to it."""
    head: bool = False
    """Whether the head belongs to it."""
    dense: int = 0
    """Blocks without experts in a model with experts; the first ones."""
    windowed: int = 0
    """Blocks that see a window of keys only."""
    retrieving: int = 0
    """Blocks that attend to retrieved neighbours."""
    encodes: bool = False
    """Whether the encoder of neighbours runs in it: before the first block that attends to them."""
    hands_on: bool = False
    """Whether encoded neighbours leave it with the residual stream, for later blocks attend to them."""
    pattern: int = 0
    """Number of the first block's pattern of exchanges with experts (`ExpertRouting.expert_patterns`)."""
    kept: int = 0
    """Blocks that keep their activations where others are recomputed in whole."""
    kinds: tuple[int, ...] = ()
    """Of each block its place in `TransformerConfig.shapes`, where blocks differ so."""


def layer_parameters(config: TransformerConfig, axes: Axes, formats: Formats) -> RankParameters:
    """Return the parameters of one block on one rank.

    Notes
    -----
    Megatron-LM's cut (arXiv:1909.08053, section 3): query, key, value and up products by columns with their
    biases, output and down products by rows with the bias on every rank; norms and router on every rank. Of
    latent attention the products from the stream to the latents stand on every rank.
    """
    if axes.side > 1:
        return _square_parameters(config, axes, formats)
    query, made = config.query_width // axes.tp, axes.made_width(config)
    inner = config.ffn_hidden // axes.tp
    columns = query + made + (config.context_width + config.gate_width) // axes.tp
    attention = config.hidden * columns + config.position_matrix // axes.tp
    if config.kv_rank:
        attention = config.hidden * (config.latent_width + config.context_width // axes.tp)
        attention += config.latent_matrices // axes.tp
    attention, biases = attention * config.attends, config.attention_bias(query, made)
    if config.recurrence:
        heads = axes.state_heads(config.recurrence)
        attention += config.recurrence.matrices(config.hidden, *heads)
        biases += config.recurrence.vectors(config.hidden, *heads)
    attention = kept_elements(formats, attention)
    if not config.feeds:
        pruned = formats.pruned * attention
        return RankParameters(dense=attention + biases + config.block_norms, pruned=pruned)
    matrices = kept_elements(formats, config.expert_matrices // axes.tp)
    expert = matrices + (config.ffn_branches * inner + config.hidden) * config.mlp_bias
    dense = attention + biases + config.block_norms + config.router_parameters
    common = config.shared_experts * kept_elements(formats, config.shared_matrices // axes.tp)
    common += kept_elements(formats, 2 * config.hidden * config.expert_latent)  # on every rank
    dense += common + config.shared_experts * (expert - matrices)
    prunes = formats.pruned
    pruned = prunes * (attention + common)
    if config.experts == 1:
        return RankParameters(dense=dense + expert, pruned=pruned + prunes * matrices)
    if axes.whole_experts:
        matrices = kept_elements(formats, config.expert_matrices)
        expert = matrices + config.expert_biases
    held = config.experts // axes.ep
    return RankParameters(dense=dense, expert=expert * held, pruned=pruned + prunes * matrices * held)


def _square_parameters(config: TransformerConfig, axes: Axes, formats: Formats) -> RankParameters:
    """Return a block's parameters on one rank of a square.

    A rank holds 1/q^2 of every matrix (arXiv:2104.05343, section 3.2); vectors, which norms and biases are,
    lie along the columns, and on every row.
    """
    matrices = config.attention_matrices + config.expert_matrices
    vectors = config.layer_parameters - matrices
    cut = matrices // axes.columns**2
    pruned = cut if formats.pruned else 0
    return RankParameters(dense=cut + vectors // axes.columns, pruned=pruned)


def embedding_parameters(config: TransformerConfig, axes: Axes) -> RankParameters:
    """Return the parameters of the embedding on one rank of the first stage."""
    rows = axes.padded_vocabulary(config) // axes.columns + config.position_rows
    norm = config.norm_parameters if config.embedding_norm else 0
    return RankParameters(dense=(rows * config.hidden + norm) // axes.side)


def head_parameters(config: TransformerConfig, axes: Axes, schedule: Schedule) -> RankParameters:
    """Return the parameters of the head on one rank of the stage that holds it.

    Notes
    -----
    A tied head is the embedding itself on a single stage, or where the pipeline ends on its first stage, and
    a copy of it when stages lie between.
    """
    with_embedding = axes.pp == 1 or schedule.folded  # on the same stage
    vocabulary = axes.padded_vocabulary(config) // axes.columns
    columns = 0 if config.tied_embeddings and with_embedding else vocabulary
    if config.predicted_tokens and not (with_embedding or schedule.two_copies or config.tied_embeddings):
        columns += vocabulary  # a copy of the embedding
    joining = config.predicted_tokens * _shared_out(config.joining_parameters, axes.tp)
    return RankParameters(dense=(columns * config.hidden + config.norm_parameters) // axes.side + joining)


def part_parameters(config: TransformerConfig, plan: Plan, part: StagePart) -> RankParameters:
    """Return the parameters of a part of a stage on one rank."""
    held = layer_parameters(config, plan.axes, plan.precision) * (part.layers - part.dense - len(part.kinds))
    for kind, count in Counter(part.kinds).items():
        held += layer_parameters(config.shapes[kind], plan.axes, plan.precision) * count
    if part.dense:
        held += layer_parameters(config.dense, plan.axes, plan.precision) * part.dense
    if part.embedding:
        held += embedding_parameters(config, plan.axes)
    if part.head:
        held += head_parameters(config, plan.axes, plan.schedule.kind)
    if part.retrieving:
        held += RankParameters(dense=_shared_out(config.cross_parameters, plan.axes.tp)) * part.retrieving
    if part.encodes:
        held += RankParameters(dense=_shared_out(config.encoder_parameters, plan.axes.tp))
    return held


def _shared_out(parameters: int, tp: int) -> int:
    """Return a rank's part of parameters that are all but a few cut over the tensor-parallel ranks."""
    return -(-parameters // tp)


def whole_stage(config: TransformerConfig, plan: Plan, stage: int) -> StagePart:
    """Return a pipeline stage as one part."""
    chunks = stage_chunks(config, plan, stage)
    return StagePart(
        layers=sum(chunk.layers for chunk in chunks),
        embedding=any(chunk.embedding for chunk in chunks),
        head=any(chunk.head for chunk in chunks),
        dense=sum(chunk.dense for chunk in chunks),
        windowed=sum(chunk.windowed for chunk in chunks),
        retrieving=sum(chunk.retrieving for chunk in chunks),
        encodes=any(chunk.encodes for chunk in chunks),
        hands_on=any(chunk.hands_on for chunk in chunks),
        kept=sum(chunk.kept for chunk in chunks),
        kinds=tuple(kind for chunk in chunks for kind in chunk.kinds),
    )


def kept_whole(plan: Plan | Share, layers: int) -> int:
    """Return the blocks of a chunk of `layers` that keep their activations where others are recomputed."""
    recompute = plan.recompute
    return layers - recompute.whole_blocks(layers) if recompute.recompute_share < 1.0 else 0


def all_blocks(config: TransformerConfig, plan: Plan | Share) -> StagePart:
    """Return all blocks of a model as one part, without embedding and head."""
    return StagePart(
        layers=config.layers,
        dense=config.dense_layers,
        windowed=config.windowed_among(0, config.layers),
        kept=kept_whole(plan, config.layers),
        kinds=config.order,
    )


def stage_layers(config: TransformerConfig, plan: Plan) -> list[int]:
    """Return the number of blocks on every stage, all its chunks together."""
    blocks = [0] * plan.axes.pp
    for chain in plan.pipeline.chains:
        layers = plan.schedule.blocks(config.layers, len(chain), config.predicted_tokens)
        for (stage, _), count in zip(chain, layers, strict=True):
            blocks[stage] += count
    return blocks


def stage_chunks(config: TransformerConfig, plan: Plan, stage: int) -> tuple[StagePart, ...]:
    """Return the chunks of a pipeline stage."""
    chunks: dict[int, StagePart] = {}
    for chain in plan.pipeline.chains:
        layers = plan.schedule.blocks(config.layers, len(chain), config.predicted_tokens)
        for position, (holder, chunk) in enumerate(chain):
            if holder == stage:
                chunks[chunk] = _chunk(config, plan, layers, position)
    return tuple(chunks[chunk] for chunk in sorted(chunks))


def _chunk(config: TransformerConfig, plan: Plan, layers: Sequence[int], position: int) -> StagePart:
    """Return the chunk at a position of a chain whose chunks have `layers` blocks each."""
    start, count = sum(layers[:position]), layers[position]
    reads = config.retrieval
    later = reads.among(start + count, config.layers - start - count) if reads else 0
    return StagePart(
        layers=count,
        embedding=position == 0,
        head=position == len(layers) - 1,
        dense=min(count, max(0, config.dense_layers - start)),
        windowed=config.windowed_among(start, count),
        retrieving=reads.among(start, count) if reads else 0,
        encodes=reads is not None and reads.begins_in(start, count),
        hands_on=reads is not None and later > 0 and start + count >= reads.first,
        pattern=start % plan.experts.expert_patterns,
        kept=kept_whole(plan, count),
        kinds=config.kinds_among(start, count),
    )


def stage_parts(config: TransformerConfig, plan: Plan, stage: int) -> tuple[StagePart, ...]:
    """Return a stage cut into the parts in which its parameters travel (`chunk_parts`), chunk after chunk."""
    chunks = stage_chunks(config, plan, stage)
    return tuple(part for chunk in chunks for part in chunk_parts(plan, chunk))


def pieces_of(plan: Plan, layers: Amount, chunks: Amount) -> Amount:
    """Return the number of pieces in which a chunk's gradients and parameters travel.

    Parameters
    ----------
    plan : Plan
        The plan, or one of arrays.
    layers : int or array
        Blocks of the chunk.
    chunks : int or array
        Chunks of its stage, which share `Traffic.grad_buckets`.
    """
    once = smaller(ceiling(plan.traffic.grad_buckets / chunks), layers)
    return larger(1, choose(plan.sharding.shards_parameters, smaller(layers, MOST_UNITS), once))


def chunk_parts(plan: Plan, chunk: StagePart) -> tuple[StagePart, ...]:
    """Return the parts in which a chunk's gradients and parameters travel, in forward order.

    Notes
    -----
    Parameters gathered for every microbatch are cut finer than those gathered once: the first and the last
    block are parts of their own, for nothing hides the first gather and the last sum.
    """
    count = int(pieces_of(plan, chunk.layers, plan.pipeline.chunks))
    if plan.sharding.shards_parameters and count > 2:
        sizes = [1, *_even(chunk.layers - 2, count - 2), 1]
    else:
        sizes = _even(chunk.layers, count)
    dense = [min(size, max(0, chunk.dense - sum(sizes[:index]))) for index, size in enumerate(sizes)]
    sparse = [size - without for size, without in zip(sizes, dense, strict=True)]
    return tuple(
        StagePart(
            layers=size,
            embedding=chunk.embedding and index == 0,
            head=chunk.head and index == len(sizes) - 1,
            dense=dense[index],
            windowed=_part_of(chunk.windowed, sparse, index),
            retrieving=_part_of(chunk.retrieving, sizes, index),
            encodes=chunk.encodes and index == 0,
            hands_on=chunk.hands_on and index == len(sizes) - 1,
            pattern=(chunk.pattern + sum(sizes[:index])) % plan.experts.expert_patterns,
            kept=_part_of(chunk.kept, sizes, index),
            kinds=chunk.kinds[sum(sizes[:index]) : sum(sizes[: index + 1])],
        )
        for index, size in enumerate(sizes)
    )


def _part_of(count: int, sizes: list[int], index: int) -> int:
    """Return the blocks of a kind in one part, where `count` of them stand evenly in all parts together."""
    if not count:
        return 0
    to_end, to_start = (-(-count * sum(sizes[:end]) // sum(sizes)) for end in (index + 1, index))
    return to_end - to_start


def _even(whole: int, count: int) -> list[int]:
    """Return a whole number in `count` parts that differ by 1 at most, the larger ones first."""
    least, extra = divmod(whole, count)
    return [least + (index < extra) for index in range(count)]


def optimizer_share(plan: Plan, held: RankParameters) -> float:
    """Return the parameters whose optimizer state one rank keeps, not rounded."""
    if plan.traffic.uses_servers:
        return held.total / plan.traffic.server_count(plan.axes)
    count = choose(plan.sharding.zero > 0, shared_share(plan.sharding, plan.axes, held), held.total * 1.0)
    return count / trait(plan.schedule.kind, lambda kind: 2 if kind.two_copies else 1)


def shared_share(sharding: Sharding, axes: Axes, held: RankParameters) -> float:
    """Return a rank's share of parameters that are cut over the data-parallel ranks (not rounded)."""
    ranks = sharding.ranks(axes)
    if axes.whole_experts:
        return held.dense / ranks + held.expert / axes.expert_replicas
    return held.dense / ranks + held.expert * axes.ep / ranks


MASTER_BYTES = 4
"""The fp32 copy of a parameter that is stored in fewer bits."""
MAIN_GRADIENT_BYTES = 4
"""The fp32 copy of a gradient that fp16 training makes once the loss scale is divided out."""
VALUE_BYTES = 4
"""One fp32 value of an optimizer's state."""
OPTIMIZER_BLOCK = 2048
"""Values that share one fp32 constant in 8-bit optimizers (arXiv:2110.02861, section 2.1)."""
UPDATE_FLOPS = MappingProxyType(
    {
        Optimizer.ADAM: 12,
        Optimizer.ADAM_8BIT: 20,
        Optimizer.ADAFACTOR: 10,
        Optimizer.MOMENTUM: 6,
        Optimizer.SGD: 4,
    }
)
"""Operations per parameter. Adam: two moments, their corrections, the root, the step and the decay; in 8 bits
four more per moment to unpack and pack; Adafactor: the square, two sums, the root, the clip, the step."""
MOMENTS = MappingProxyType({Optimizer.ADAM: 2, Optimizer.MOMENTUM: 1, Optimizer.SGD: 0})
"""Moments of a parameter that are kept whole."""


def moment_bytes(config: TransformerConfig, axes: Axes, formats: Formats) -> float:
    """Return the bytes of an optimizer's moments per parameter, without copies of weights or gradients.

    Notes
    -----
    Adafactor without momentum keeps 4 (r + c) / (r c) bytes a parameter of an r x c matrix; the mean over a
    block's matrices on one rank stands for all parameters. Vectors (norms, biases) are not factored.
    """
    if formats.optimizer in MOMENTS:
        return float(MOMENTS[formats.optimizer] * formats.moment_bytes)
    if formats.optimizer is Optimizer.ADAM_8BIT:
        return 2 * (1 + VALUE_BYTES / OPTIMIZER_BLOCK)
    hidden, tp = config.hidden // axes.side, axes.columns
    query, kv, inner = config.query_width // tp, axes.key_width(config), config.ffn_hidden // tp
    experts = config.experts // axes.ep
    shapes = [(hidden, query, 2), (hidden, kv, 2), (hidden, inner, (config.ffn_branches + 1) * experts)]
    kept = sum(VALUE_BYTES * (rows + columns) * count for rows, columns, count in shapes)
    return kept / sum(rows * columns * count for rows, columns, count in shapes)


def optimizer_bytes(config: TransformerConfig, axes: Axes, formats: Formats) -> float:
    """Return an optimizer's state per parameter: moments, and the fp32 copies that the precision needs.

    Notes
    -----
    With Adam, weights and gradients included: 18 bytes for bf16 with fp32 gradients, 20 for fp16 with fp16
    gradients, 16 for fp32; of these 12, 16 and 8 can be shared (Megatron-LM, distributed optimizer), and 16
    for bf16 with two-byte gradients and no fp32 copy of them (ZeRO, arXiv:1910.02054).
    """
    copies = MASTER_BYTES if formats.keeps_master else 0
    if formats.kind is Precision.FP16 and formats.grad_bytes < MAIN_GRADIENT_BYTES:
        copies += MAIN_GRADIENT_BYTES
    return moment_bytes(config, axes, formats) + copies


def masters_alone(plan: Plan) -> Flag:
    """Return whether a rank stores its share of the parameters as the optimizer's fp32 copy alone."""
    may_be = plan.precision.keeps_master and not plan.sharding.updates_on_host
    return plan.sharding.shards_parameters & (may_be and not plan.sharding.stored_shards)


def update_work(config: TransformerConfig, plan: Plan, held: RankParameters) -> Elementwise:
    """Return the optimizer's step over a rank's share of the parameters that it holds.

    Notes
    -----
    Operands in fewer bits add the casts of all weights that the rank holds, once a step, or their transposes
    alone where no other form is held (`Formats.fp8_params`), and pruning their compression.
    """
    count = optimizer_share(plan, held)
    state = optimizer_bytes(config, plan.axes, plan.precision)
    stored = plan.precision.weight_bytes
    # Weights that are their own master are read as weights rather than as optimizer state.
    read = (state + plan.precision.grad_bytes + (0 if plan.precision.keeps_master else stored)) * count
    written = (state + stored) * count
    if plan.precision.kind.is_cast:
        read += stored * (held.total - held.pruned)
        cast_bytes = plan.precision.held_bytes - stored
        written += cast_bytes * (held.total - held.pruned)
    if held.pruned:
        read += stored * held.pruned
        written += compressed_bytes(plan.precision) * held.pruned
    return Elementwise(
        name=plan.precision.optimizer.value,
        phase=Phase.UPDATE,
        flops=UPDATE_FLOPS[plan.precision.optimizer] * count,
        read_bytes=read,
        written_bytes=written,
    )
