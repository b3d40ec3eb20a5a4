"""Memory of a plan: bytes on one rank, on its host and on its disks, by kind.

`memory_by_kind` is that of a rank of one stage, `check_fits` refuses plans that do not fit, and
`default_plan` chooses among those that do the one with the least estimated time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from simulator.amounts import Amount, choose
from simulator.errors import WorkloadError
from simulator.node import Host
from simulator.operators import SCORES, VALUES, Phase, Role
from workloads.layers.parts import visits
from workloads.layers.recurrence import kept_bytes, states_bytes
from workloads.layers.retrieval import cross_activation_bytes, encoder_activation_bytes
from workloads.layers.transformer import FP8_BYTES
from workloads.models.architecture import TransformerConfig
from workloads.plan.parts import RECOMPUTED_OPERATORS, ContextExchange, Kept, Place, Precision, Recompute
from workloads.plan.plan import Plan, Share, default_sequence_length
from workloads.plan.rules import check, keeps_rules
from workloads.step.sharding import (
    INT4_BYTES,
    INT8_BYTES,
    MASTER_BYTES,
    RankParameters,
    StagePart,
    extra_weight_bytes,
    masters_alone,
    optimizer_bytes,
    optimizer_share,
    part_parameters,
    shared_share,
    stage_chunks,
    stage_parts,
    whole_stage,
)

MOST_ON_DEVICE = 3
"""Chunks with activations on the device where activations are kept on the host: that of the running pass,
that of the pass before (being stored), and that of the next backward pass (being fetched)."""
MASK_BYTES = 1
"""Bytes of one element of a dropout mask."""
LOGIT_BYTES = 4
"""Bytes of one logit inside the loss (fp32)."""
GIBIBYTE = 2**30
HEADS = frozenset({Role.HEAD_JOIN, Role.HEAD_LOGITS})
"""Products of the head, whose inputs are kept as they are stored."""
FROM_LATENTS = frozenset({Role.ATTENTION_QUERIES, Role.ATTENTION_KEYS_VALUES})
"""Products whose input is a latent."""
BEHIND_NORMS = frozenset({Role.ATTENTION_QKV, Role.ATTENTION_LATENTS, Role.MLP_ROUTER})
"""Products whose input is the output of a norm."""
BRANCHES = frozenset({Role.MLP_GATE_UP, Role.MLP_UP})
"""First products of a feed-forward part, which read it too where there are no routed experts."""

_REMEDIES = {
    "weights": "a larger tp or pp, or zero=3 with a larger dp",
    "gradients": "a larger tp or pp, grad_bytes=2, or zero=2 with a larger dp",
    "optimizer": "zero=1 with a larger dp, a larger tp or pp, or optimizer_place=host",
    "activations": "recompute=full (selective without flash), a smaller micro_batch, or a larger tp",
    "buffers": "a smaller micro_batch or a larger tp",
}


def layer_activation_bytes(config: TransformerConfig, share: Share) -> float:
    """Return the activation memory of one block for one microbatch on one rank, in bytes.

    Parameters
    ----------
    config, share : TransformerConfig, Share
        The model, and a rank's share under a plan that `workloads.plan.rules.check` accepts.

    Notes
    -----
    Activations are kept from the forward to the backward pass. Each stored tensor is counted once, so grouped
    queries, gates and experts are included. For a GPT block (f = 4h, dropout, two bytes) the sum is that of
    the reference: s b h (10 + 24/t + 5 a s / h t) without and s b h / t (34 + 5 a s / h) with sequence
    parallelism; s b h (10 + 24/t) with selective recomputation, or 34 s b h / t with both; 2 s b h with full
    recomputation (over t with sequence parallelism). A flash kernel drops the 5 a s / h as selective
    recomputation does; its log-sum-exp (4 a s b / t) is not counted.

    References
    ----------
    Korthikanti et al., arXiv:2205.05198, section 4 and table 2.
    """
    width = share.precision.element_bytes
    stream = share.tokens * config.hidden
    shared = share.tokens / -(-share.tokens // share.axes.stream_cut)
    if share.recompute.kind is Recompute.FULL:
        return width * stream / shared
    return _stream_bytes(config, share) / shared + _sharded_bytes(config, share) / share.axes.tp


def operand_bytes(share: Share) -> float:
    """Return the bytes in which an operand of a product with weights is kept."""
    return FP8_BYTES if share.precision.kept_activations is Kept.FP8 else share.precision.linear_bytes


def reads_one_byte(config: TransformerConfig, plan: Plan, role: Role, phase: Phase) -> bool:
    """Return whether a product reads an operand that was kept in one byte since the forward pass.

    Notes
    -----
    The gradient of a weight reads the product's input, unless a norm computes it again, or it is a latent,
    which is kept as products store it; routed experts read copies of the norm's output. Both gradients
    of core attention read queries, keys or values, unless they are projected again.
    """
    kept, recompute = plan.precision.kept_activations, plan.recompute
    if kept is not Kept.FP8 or recompute.kind is Recompute.FULL or phase is Phase.FORWARD:
        return False
    if role in SCORES | VALUES:
        return not recompute.recompute_projections
    behind = BEHIND_NORMS if config.experts > 1 else BEHIND_NORMS | BRANCHES
    again = recompute.recompute_norms and role in behind
    return phase is Phase.GRAD_WEIGHT and role not in HEADS | FROM_LATENTS and not again


def _stream_bytes(config: TransformerConfig, share: Share) -> float:
    """Return the bytes of a block's tensors that are as wide as the residual stream.

    Inputs of norms and products, dropout masks, routed tokens; of all tensor-parallel ranks together.
    """
    width = share.precision.element_bytes
    masks = 2 * MASK_BYTES if config.dropout else 0
    halves = (config.attends or config.recurrence is not None) + config.feeds
    # Latents before and after their norms.
    normed = 0 if share.recompute.recompute_norms else 1
    latents = (config.query_rank + config.kv_rank) * (width + normed * share.precision.linear_bytes)
    latents = latents if config.attends else 0
    latents += halves * width * config.hidden if config.post_norms else 0  # what norms after the halves read
    inputs = 1 if config.parallel else halves
    outputs = 1 if config.shares_norm else halves
    if config.experts == 1 or not config.feeds:
        kept = inputs * width + outputs * normed * operand_bytes(share) + masks
        return share.tokens * (config.hidden * kept + latents)
    # Norm inputs and outputs; per visit the copy that an expert reads and the one that is combined (2).
    combined = 0 if share.recompute.recompute_activation else width
    stored: float = inputs * width + normed * ((outputs - 1) * width + operand_bytes(share))
    routed = visits(config, share) * (combined + operand_bytes(share)) * config.in_latent.hidden
    latents += 2 * operand_bytes(share) * config.expert_latent
    return share.tokens * (config.hidden * (stored + masks) + routed + latents + config.experts * LOGIT_BYTES)


def _sharded_bytes(config: TransformerConfig, share: Share) -> float:
    """Return the bytes of a block's tensors that are cut by heads or by the inner width.

    Operands of attention, of the activation and of the down product; of all tensor-parallel ranks together.
    """
    recompute = share.recompute
    operand = operand_bytes(share)
    width = operand if share.precision.kept_activations is Kept.FP8 else share.precision.element_bytes
    total = kept_bytes(config, share)
    pairs = share.axes.columns * (share.axes.key_width(config) + share.axes.value_width(config))
    if config.output_gates:  # gates, and the result before them
        pairs += config.gate_width + config.context_width
    if config.qk_norm:  # queries and keys before their norms
        pairs += config.query_width + share.axes.columns * share.axes.key_width(config)
    attention = 0 if recompute.recompute_projections else width * (config.query_width + pairs)
    attention += 0 if recompute.recompute_attention else operand * config.context_width
    worked = visits(config, share) + config.shared_experts
    handed_on = 0 if recompute.recompute_activation else operand
    # A clamp keeps its input, and the activation behind it the clamped branches.
    copies = 2 if config.clamped and not recompute.recompute_activation else 1
    inner = (width * config.ffn_branches * copies + handed_on) * config.ffn_hidden * worked
    total += float(share.tokens * (attention * config.attends + inner * config.feeds))
    scores = recompute.kind is Recompute.NONE and not recompute.recompute_attention
    if not recompute.attention.on_chip and scores and config.attends:
        total += _score_bytes(config, share)
    return total


def _score_bytes(config: TransformerConfig, share: Share) -> float:
    """Return the bytes of a block's attention scores; without a window where only some blocks have one."""
    seen = share.recompute.attention_keys or share.batch.sequence_length
    if config.all_windowed:
        seen = min(seen, config.window)
    width = share.precision.element_bytes
    each = 2 * width + MASK_BYTES if config.dropout else width
    return each * config.heads * share.tokens * seen


def buffer_bytes(config: TransformerConfig, plan: Plan, stage: int) -> float:
    """Return the working space of a stage in bytes: memory that no pass keeps for another.

    Notes
    -----
    Counted: the gathered input of a tensor-parallel region, the two tensors in transit between stages, one
    block's activations while they are recomputed, what `gathered_bytes` and `context_bytes` count, the sum
    of a parameter server's share of the gradients, and on the stage of the head the logits with their fp32
    copy and the head's inputs. Not counted: the allocator's fragments and the communication library's own
    buffers.
    """
    whole = whole_stage(config, plan, stage)
    total = pass_bytes(config, plan) + parameter_bytes(config, plan, whole)
    return total + head_bytes(config, plan) if whole.head else total


def pass_bytes(config: TransformerConfig, plan: Plan) -> float:
    """Return the working space of passes through blocks, in bytes; the same on every stage."""
    stream = plan.precision.element_bytes * plan.share.tokens * config.hidden
    total = 0.0
    if plan.axes.side > 1:
        total += panel_bytes(config, plan.share)
    elif plan.axes.tp > 1 and plan.axes.sequence_parallel:
        total += stream
    shapes = config.shapes or (config,)
    total += context_bytes(config, plan.share) + max(states_bytes(shape, plan.share) for shape in shapes)
    if plan.axes.pp > 1:
        total += 2 * stream / plan.axes.stream_cut
    if plan.recompute.kind is not Recompute.NONE:
        total += max(_recomputed_bytes(shape, plan.share) for shape in shapes)
    elif plan.recompute.by_operator:
        bare = plan.share.with_(**dict.fromkeys(RECOMPUTED_OPERATORS, False))
        total += max(
            layer_activation_bytes(shape, bare) - layer_activation_bytes(shape, plan.share)
            for shape in shapes
        )
    return total


def parameter_bytes(config: TransformerConfig, plan: Plan, whole: StagePart) -> float:
    """Return the working space of a stage's parameters and gradients in transit, in bytes."""
    total = gathered_bytes(config, plan, whole)
    if plan.traffic.uses_servers:
        total += plan.precision.grad_bytes * optimizer_share(plan, part_parameters(config, plan, whole))
    return total


def head_bytes(config: TransformerConfig, plan: Plan) -> float:
    """Return the working space of the head: logits, their fp32 copy unless the loss is fused, inputs."""
    width, share = plan.precision.element_bytes, plan.share
    logits = share.tokens * plan.axes.padded_vocabulary(config) / plan.axes.tp
    copy = 0 if plan.recompute.fused_loss else LOGIT_BYTES
    total = logits * (width + copy) * (1 + config.predicted_tokens)
    return total + 2 * width * share.tokens * config.hidden / plan.axes.stream_cut


def panel_bytes(config: TransformerConfig, share: Share) -> float:
    """Return the working space of a SUMMA step: the blocks of activations and weights that others send."""
    width = share.precision.element_bytes
    widest = max(config.hidden, config.ffn_branches * config.ffn_hidden)
    activations = share.tokens * widest / share.axes.tp
    weights = config.hidden * widest / share.axes.columns**2
    return width * (activations + weights)


def context_bytes(config: TransformerConfig, share: Share) -> float:
    """Return the working space of context parallelism.

    Notes
    -----
    Ring: keys and values of two blocks, the one in use and the one that arrives, and as much for their
    gradients. All-gather: keys and values of all ranks and their gradients. All-to-all: queries, keys and
    values as they are sent.
    """
    if share.axes.cp == 1:
        return 0.0
    each_bytes = share.tokens * share.precision.element_bytes
    pairs = (share.axes.key_width(config) + share.axes.value_width(config)) * each_bytes
    match share.axes.context_exchange:
        case ContextExchange.RING:
            return 4 * pairs
        case ContextExchange.ALL_GATHER:
            return 2 * share.axes.cp * pairs
        case _:
            return pairs + config.query_width / share.axes.tp * each_bytes


def _recomputed_bytes(config: TransformerConfig, share: Share) -> float:
    """Return the bytes that a block's recomputation fills again before its backward pass."""
    written = config.attends and not share.recompute.attention.on_chip
    scores = _score_bytes(config, share) / share.axes.tp if written else 0.0
    if share.recompute.kind is Recompute.SELECTIVE:
        return scores
    cut = share.axes.stream_cut
    return _stream_bytes(config, share) / cut + _sharded_bytes(config, share) / share.axes.tp + scores


def memory_by_kind(config: TransformerConfig, plan: Plan, stage: int) -> dict[str, float]:
    """Return the bytes that one rank of a stage needs.

    Parameters
    ----------
    config : TransformerConfig
        The model.
    plan : Plan
        How it is cut.
    stage : int
        Pipeline stage, from 0.

    Returns
    -------
    dict
        Bytes of ``weights``, ``gradients``, ``optimizer``, ``activations`` and ``buffers``. Activations are
        those of the stage's blocks for as many microbatches as the schedule keeps.

    Raises
    ------
    WorkloadError
        If the plan does not fit the model, or has no such stage.

    Notes
    -----
    bf16 with fp32 gradients takes 18 bytes a parameter: 2 + 4 + 12, the 12 shared over the data-parallel
    ranks with `Sharding.zero` = 1 (Megatron-LM, distributed optimizer). With zero = 2 the gradients are
    shared as well, with 3 the weights too (ZeRO, arXiv:1910.02054, figure 1 and table 1) or in the
    optimizer's copy alone (`Sharding.stored_shards`), each over the ranks of a `shard_group` if there is one.
    A secondary copy counts as weights. Bytes off the accelerator are in `host_bytes` only.
    """
    check(config, plan)
    if not 0 <= stage < plan.axes.pp:
        msg = f"stage {stage} does not exist; the plan has stages 0 to {plan.axes.pp - 1}"
        raise WorkloadError(msg)
    whole = whole_stage(config, plan, stage)
    held = part_parameters(config, plan, whole)
    chunks = stage_chunks(config, plan, stage)
    blocks = tuple(_equal_blocks(config, plan.share, chunk) for chunk in chunks)
    kept = plan.pipeline.kept(stage, blocks)
    if plan.precision.kept_activations is Kept.HOST:
        kept = min(kept, MOST_ON_DEVICE * max(blocks))
    states = state_bytes(plan, held, optimizer_bytes(config, plan.axes, plan.precision))
    return {
        "weights": float(states["weights"]) * plan.weight_versions(stage),
        "gradients": float(states["gradients"]),
        "optimizer": float(states["optimizer"]),
        "activations": kept * layer_activation_bytes(config, plan.share),
        "buffers": buffer_bytes(config, plan, stage),
    }


def chunk_activation_bytes(config: TransformerConfig, share: Share, chunk: StagePart) -> float:
    """Return the activation memory of a chunk's blocks for one microbatch on one rank, in bytes."""
    return _equal_blocks(config, share, chunk) * layer_activation_bytes(config, share)


def _equal_blocks(config: TransformerConfig, share: Share, chunk: StagePart) -> float:
    """Return a chunk's activation memory in units of one plain block (`layer_activation_bytes`).

    Dense blocks among those with experts, blocks that are not recomputed among those that are, and
    cross-attention to neighbours with their encoder count as more or less than one.
    """
    if config.retrieval and (chunk.retrieving or chunk.encodes):
        return chunk.layers + _retrieval_bytes(config, share, chunk) / layer_activation_bytes(config, share)
    if chunk.kept:
        return chunk.layers - chunk.kept + chunk.kept * _kept_over_recomputed(config, share)
    if chunk.kinds:
        each_bytes = [layer_activation_bytes(shape, share) for shape in config.shapes]
        return math.fsum(each_bytes[kind] for kind in chunk.kinds) / layer_activation_bytes(config, share)
    if not chunk.dense:
        return chunk.layers
    each = layer_activation_bytes(config.dense, share) / layer_activation_bytes(config, share)
    return chunk.layers - chunk.dense + chunk.dense * each


def _kept_over_recomputed(config: TransformerConfig, share: Share) -> float:
    """Return the activation memory of a block that keeps all over that of one that is recomputed."""
    keeping = share.with_(recompute=Recompute.NONE, recompute_share=1.0)
    return layer_activation_bytes(config, keeping) / layer_activation_bytes(config, share)


def _retrieval_bytes(config: TransformerConfig, share: Share, chunk: StagePart) -> float:
    """Return the activation memory of a chunk's cross-attention to neighbours and their encoder, in bytes."""
    reads = config.retrieval
    if reads is None:
        return 0.0
    cut = share.axes.stream_cut
    neighbours = share.tokens * reads.tokens_per_token * reads.hidden * share.precision.element_bytes / cut
    if share.recompute.kind is Recompute.FULL:
        return neighbours
    kept = chunk.retrieving * cross_activation_bytes(config, share, reads)
    return kept + neighbours + chunk.encodes * encoder_activation_bytes(config, share, reads)


def state_bytes(plan: Plan, held: RankParameters, optimizer_each: Amount) -> dict[str, Amount]:
    """Return the bytes of ``weights``, ``gradients`` and ``optimizer`` on a rank's accelerator.

    Parameters
    ----------
    plan : Plan
        The plan, or one whose counts are arrays with a number for each of many plans.
    held : RankParameters
        Parameters of the rank before they are shared; numbers, or arrays that fit the plan's.
    optimizer_each : float or array
        Bytes of an optimizer's state per parameter.

    Notes
    -----
    Weights are those of one version. Where they are gathered for every pass, a rank has its share in the form
    that travels, or only the optimizer's copy of it. Gradients that go to the host at once take a buffer only
    (`gathered_bytes`). The copy of gradients in single precision that fp16 needs counts with the optimizer.
    """
    sharding, formats = plan.sharding, plan.precision
    whole = held.total * 1.0
    share = shared_share(sharding, plan.axes, held)
    share_bytes = choose(masters_alone(plan), 0.0, formats.weight_bytes) * share
    given_up = sharding.shards_parameters & sharding.reshard  # after every use
    weights = choose(given_up, 0.0, formats.held_bytes) * whole
    weights = weights + choose(sharding.shards_parameters, share_bytes, 0.0)
    if sharding.secondary_copy:
        weights = weights + held.total / sharding.local_group * formats.element_bytes
    weights = weights + (held.pruned * extra_weight_bytes(formats) if held.pruned else 0.0)
    count = choose(sharding.shards_gradients, 0.0 if sharding.updates_on_host else share, whole)
    as_masters = masters_alone(plan) & (formats.kind is not Precision.FP16)
    gradient_bytes = choose(as_masters, MASTER_BYTES, formats.grad_bytes)
    return {
        "weights": 0.0 if sharding.fetches_parameters else weights,
        "gradients": gradient_bytes * count * plan.traffic.gradient_copies,
        "optimizer": 0.0 if sharding.updates_on_host else optimizer_share(plan, held) * optimizer_each,
    }


def gathered_bytes(config: TransformerConfig, plan: Plan, whole: StagePart) -> float:
    """Return the working space of gathered parameters and of gradients that wait to be summed, in bytes.

    Notes
    -----
    None where a rank keeps its gradients whole. Otherwise the gradients of two blocks (those of one are
    computed while those of the other are summed or sent to the host). If parameters are gathered, fetched or
    cast for every pass, also the parameters of two blocks in all forms that products use (one in use, one
    ahead); embedding and head stay gathered throughout, as the outermost unit of FSDP. Quantised traffic
    takes as much room again as arrives (for gradients, as arrives and leaves).
    """
    sharding, formats, several = plan.sharding, plan.precision, plan.axes.gradient_ranks > 1
    gradients_wait = sharding.shards_gradients and (several or sharding.updates_on_host)
    given_up = sharding.shards_parameters and sharding.reshard
    gathered = given_up and (several or sharding.fetches_parameters or masters_alone(plan))
    each = formats.grad_bytes * gradients_wait + formats.held_bytes * gathered
    each += INT8_BYTES * plan.traffic.quantised_weights + 2 * INT4_BYTES * plan.traffic.quantised_gradients
    largest = sorted({*whole.kinds}, key=lambda kind: config.shapes[kind].layer_parameters)[-1:]
    two = min(2, whole.layers)
    dense = max(0, two - (whole.layers - whole.dense))  # where there are not two with experts
    part = replace(whole, layers=two, dense=dense, kinds=tuple(largest) * two)
    return float(part_parameters(config, plan, part).total * each)


@lru_cache(maxsize=256)
def fullest_stage(config: TransformerConfig, plan: Plan) -> int:
    """Return the stage that needs most memory, the earliest of equals."""
    needs = [sum(memory_by_kind(config, plan, stage).values()) for stage in range(plan.axes.pp)]
    return needs.index(max(needs))


def check_fits(config: TransformerConfig, plan: Plan, capacity_bytes: float) -> None:
    """Check that every stage of a plan fits an accelerator's memory.

    Raises
    ------
    WorkloadError
        Naming the fullest stage, what it needs, how much that is too much, its largest kind and what to try.
    """
    stage = fullest_stage(config, plan)
    kinds = memory_by_kind(config, plan, stage)
    needed = sum(kinds.values())
    if needed <= capacity_bytes:
        return
    largest = max(kinds, key=lambda kind: kinds[kind])
    formats = plan.precision
    leaner = largest == "weights" and formats.takes_fp8_params and not formats.fp8_params
    remedy = f"fp8_params=true, {_REMEDIES[largest]}" if leaner else _REMEDIES[largest]
    msg = (
        f"{config.name} does not fit: stage {stage} needs {needed / GIBIBYTE:.1f} GiB of the "
        f"{capacity_bytes / GIBIBYTE:.1f} GiB there are, "
        f"{(needed - capacity_bytes) / GIBIBYTE:.1f} GiB too much; "
        f"most are {largest} ({kinds[largest] / GIBIBYTE:.1f} GiB); try {remedy}"
    )
    raise WorkloadError(msg)


STAGED_PARTS = 2
"""Parts of states on disk that are in the host's memory at once: one in use, one being read or written."""


def host_bytes(config: TransformerConfig, plan: Plan, stage: int) -> dict[Place, dict[str, float]]:
    """Return the bytes that one rank of a stage keeps off its accelerator.

    Parameters
    ----------
    config, plan : TransformerConfig, Plan
        A pair that `workloads.plan.rules.check` accepts.
    stage : int
        Pipeline stage, from 0.

    Returns
    -------
    dict
        Bytes by kind, for the host's memory and for its disks.

    Notes
    -----
    Gradients wait on the host for the update; a delayed update reads those of the last step while those of
    this step arrive. Of states on disk the two largest parts are in memory.
    """
    memory: dict[str, float] = {}
    disk: dict[str, float] = {}
    if plan.precision.kept_activations is Kept.HOST:
        chunks = stage_chunks(config, plan, stage)
        blocks = tuple(_equal_blocks(config, plan.share, chunk) for chunk in chunks)
        memory["activations"] = plan.pipeline.kept(stage, blocks) * layer_activation_bytes(config, plan.share)
    if not plan.sharding.updates_on_host:
        return {Place.HOST: memory, Place.NVME: disk}
    whole = part_parameters(config, plan, whole_stage(config, plan, stage))
    kept = shared_share(plan.sharding, plan.axes, whole)
    parts = [
        shared_share(plan.sharding, plan.axes, part_parameters(config, plan, part))
        for part in stage_parts(config, plan, stage)
    ]
    staged = math.fsum(sorted(parts)[-STAGED_PARTS:])
    memory["gradients"] = kept * plan.precision.grad_bytes * (2 if plan.sharding.delayed_update else 1)
    for kind, place, each in (
        ("optimizer", plan.sharding.optimizer_place, optimizer_bytes(config, plan.axes, plan.precision)),
        ("weights", plan.sharding.parameter_place, plan.precision.weight_bytes),
    ):
        if place is Place.NVME:
            disk[kind] = kept * each
            memory[f"{kind} in use"] = staged * each
        elif place is Place.HOST:
            memory[kind] = kept * each
    return {Place.HOST: memory, Place.NVME: disk}


def check_host_fits(config: TransformerConfig, plan: Plan, host: Host | None) -> None:
    """Check that the bytes that a plan keeps off the accelerators of a host fit its memory and disks.

    Raises
    ------
    WorkloadError
        If there is no host, or naming what is full, by how much, and what to try.
    """
    if host is None:
        key = "optimizer_place" if plan.sharding.updates_on_host else "kept_activations"
        msg = f"{key}={plan.value(key)} needs a host, and none is described"
        raise WorkloadError(msg)
    rooms = {
        Place.HOST: ("memory", host.ddr.capacity_bytes, "a larger dp, or optimizer_place=nvme"),
        Place.NVME: ("disks", host.storage.capacity_bytes, "a larger dp, or fewer accelerators a host"),
    }
    stages = [host_bytes(config, plan, stage) for stage in range(plan.axes.pp)]
    for place, (name, room, remedy) in rooms.items():
        needed = host.accelerators * max(math.fsum(kinds[place].values()) for kinds in stages)
        if needed > room:
            msg = (
                f"{config.name} does not fit the host's {name}: {host.accelerators} ranks need "
                f"{needed / GIBIBYTE:.1f} GiB of the {room / GIBIBYTE:.1f} GiB of '{host.name}'; "
                f"try {remedy}"
            )
            raise WorkloadError(msg)


LARGEST_TENSOR = 8
"""Most tensor-parallel or expert ranks of a default plan, and most ranks that share parameters: as many as a
usual node has; a choice."""
GATHERED_TIME = 1.1
"""Time of a step that gathers its parameters in a node, over one that holds them; a choice."""
MOST_MICROBATCH_TOKENS = 8192
"""Tokens beyond which a microbatch is not made larger; a choice, products are long enough by then."""
MEMORY_SHARE = 0.94
"""Share of the memory that a default plan fills; a choice, the rest is for libraries and fragments."""
RECOMPUTED_PASSES = {Recompute.NONE: 3, Recompute.FULL: 4}
"""Forward-sized passes of a step: one forward, two backward, one more if all is recomputed."""


def default_plan(
    config: TransformerConfig,
    *,
    accelerators: int,
    memory_bytes: float,
    global_batch: int,
) -> Plan:
    """Return a plan that fits, deterministic for its arguments.

    Parameters
    ----------
    config : TransformerConfig
        The model.
    accelerators : int
        Accelerators that the plan takes, all of them.
    memory_bytes : float
        Memory of each.
    global_batch : int
        Sequences in a step, of `workloads.plan.plan.default_sequence_length` tokens.

    Returns
    -------
    Plan
        With flash attention and the optimizer shared (`zero` = 1; on at most 8 accelerators parameters,
        too). Among the plans with tp and ep of at most 8 that fill at most 94 % of the memory, the one with
        the least estimated time (1 + (p-1)/m) x (4/3 if all is recomputed) x (1.1 if parameters are shared)
        x (fullest stage's blocks p / L); then the smallest tp x pp, the smallest tp, the largest ep, the
        largest microbatch of at most 8192 tokens.

    Raises
    ------
    WorkloadError
        If no plan fits, saying what the nearest one needs.
    """
    if accelerators < 1 or not memory_bytes > 0:
        msg = f"a plan needs accelerators ({accelerators}) and memory ({memory_bytes} bytes) above zero"
        raise WorkloadError(msg)
    sequence = default_sequence_length(config)
    best: Plan | None = None
    lowest: tuple[float, ...] = (math.inf,)
    least = math.inf
    tried = 0
    for plan in _plans(config, accelerators, global_batch, sequence):
        tried += 1
        score = _score(config, plan)
        if score >= lowest:
            continue
        needed = sum(memory_by_kind(config, plan, fullest_stage(config, plan)).values())
        least = min(least, needed)
        if needed <= memory_bytes * MEMORY_SHARE:
            best, lowest = plan, score
    if best is None:
        raise _no_plan(config, accelerators, memory_bytes, global_batch, least if tried else None)
    return best


def _no_plan(
    config: TransformerConfig, accelerators: int, memory_bytes: float, global_batch: int, least: float | None
) -> WorkloadError:
    """Return the error where no plan fits; `least` is the memory of the leanest plan, None without one."""
    if least is None:
        msg = (
            f"no plan shares {config.name} and a global_batch of {global_batch} over {accelerators} "
            "accelerators; try a multiple of both, such as a power of two, or a larger global_batch"
        )
        return WorkloadError(msg)
    usable = memory_bytes * MEMORY_SHARE
    msg = (
        f"{config.name} does not fit {accelerators} accelerators: the leanest plan needs "
        f"{least / GIBIBYTE:.1f} GiB on each, of which {usable / GIBIBYTE:.1f} GiB may be filled; try more "
        "accelerators or a shorter sequence_length"
    )
    return WorkloadError(msg)


def _plans(config: TransformerConfig, accelerators: int, global_batch: int, sequence: int) -> Iterator[Plan]:
    """Yield the candidates for a default plan that keep all rules."""
    for tp, pp in itertools.product(range(1, LARGEST_TENSOR + 1), range(1, config.layers + 1)):
        dp, rest = divmod(accelerators, tp * pp)
        if rest or not dp or global_batch % dp:
            continue
        experts = [ep for ep in range(1, LARGEST_TENSOR + 1) if math.gcd(config.experts, dp) % ep == 0]
        zeros = (1, 3) if 1 < dp and accelerators <= LARGEST_TENSOR else (1,)
        for ep, recompute, zero, micro_batch in itertools.product(
            experts, RECOMPUTED_PASSES, zeros, (1, 2, 4, 8, 16, 32)
        ):
            if micro_batch > 1 and micro_batch * sequence > MOST_MICROBATCH_TOKENS:
                continue
            plan = Plan.of(
                tp=tp,
                pp=pp,
                dp=dp,
                ep=ep,
                micro_batch=micro_batch,
                global_batch=global_batch,
                sequence_length=sequence,
                recompute=recompute,
                zero=zero,
            )
            if keeps_rules(config, plan):
                yield plan


def _score(config: TransformerConfig, plan: Plan) -> tuple[float, int, int, int, int]:
    """Return a plan's relative time and its tie-breakers; the least is the best plan."""
    bubble = 1 + (plan.axes.pp - 1) / plan.microbatches
    uneven = -(-config.layers // plan.axes.pp) * plan.axes.pp / config.layers
    time = bubble * uneven * RECOMPUTED_PASSES[plan.recompute.kind] / RECOMPUTED_PASSES[Recompute.NONE]
    if plan.sharding.shards_parameters:
        time *= GATHERED_TIME
    axes = plan.axes
    return (round(time, 6), axes.tp * axes.pp, axes.tp, -axes.ep, -plan.batch.micro_batch)
