"""The rules that a plan must keep for a model, each with the way out in its message.

The rules that a plan for a mixture of experts must keep, each with the way out in its message.

The rules of plans whose steps overlap, whose pipeline is folded, or whose gradients go to servers.

The rules that tensor-parallel ranks on a grid must keep, each with the way out in its message.

The rules that a plan must keep for a model that reads what it retrieves.

The rules of plans that share parameters, gradients or optimizer in groups, or place them elsewhere.
"""

from __future__ import annotations

from simulator.errors import WorkloadError
from workloads.layers.sparsity import check_sparsity
from workloads.models.architecture import Positions, TransformerConfig, divisors
from workloads.plan.choices import (
    ContextExchange,
    ExpertExchange,
    Place,
    Precision,
    Schedule,
    TensorGrid,
    WeightSparsity,
)
from workloads.plan.plan import Parallelism

LARGEST_FACTOR = 1e3
"""Capacity factors above this are refused as typing errors; a choice."""


def check_experts(config: TransformerConfig, plan: Parallelism) -> None:
    """Check what a plan says about experts.

    Raises
    ------
    WorkloadError
        Naming the first rule broken and what would keep it.
    """
    if not 0.0 <= plan.capacity_factor <= LARGEST_FACTOR:
        msg = (
            f"capacity_factor ({plan.capacity_factor:g}) must be 0 (no capacity) or at most "
            f"{LARGEST_FACTOR:g}; try 1.25"
        )
        raise WorkloadError(msg)
    most = config.experts / config.experts_per_token
    if not 1.0 <= plan.expert_imbalance <= most:
        msg = (
            f"expert_imbalance ({plan.expert_imbalance:g}) must be from 1 (even) to experts over experts per "
            f"token ({config.experts} / {config.experts_per_token}), for a token visits an expert once; "
            f"try {min(2.0, most):g}"
        )
        raise WorkloadError(msg)
    most = max(1.0, (plan.ep - 1) / 2)
    if not 1.0 <= plan.expert_affinity <= most:
        msg = (
            f"expert_affinity ({plan.expert_affinity:g}) must be from 1 (none) to half of the other expert "
            f"ranks ({most:g}); try {min(2.0, most):g}"
        )
        raise WorkloadError(msg)
    if plan.expert_affinity > 1.0 and plan.capacity_factor:
        msg = (
            f"expert_affinity ({plan.expert_affinity:g}) needs sizes that are not fixed by a capacity; "
            f"leave capacity_factor ({plan.capacity_factor:g}) out"
        )
        raise WorkloadError(msg)
    if config.experts == 1 and plan.capacity_factor:
        msg = (
            f"capacity_factor ({plan.capacity_factor:g}) needs experts, and {config.name} has none; "
            "leave it out"
        )
        raise WorkloadError(msg)
    if plan.expert_exchange is not ExpertExchange.DIRECT and plan.ep == 1:
        msg = f"expert_exchange={plan.expert_exchange} needs expert ranks; raise ep (1) or leave it out"
        raise WorkloadError(msg)
    if plan.whole_experts and (config.experts == 1 or plan.tp == 1 or not plan.sequence_parallel):
        msg = (
            "whole_experts=true needs experts, tensor ranks and sequence_parallel=true, so that each rank "
            f"has tokens of its own; raise tp ({plan.tp}) or leave it out"
        )
        raise WorkloadError(msg)
    if plan.exchange_counts and (plan.capacity_factor or plan.ep == 1):
        msg = (
            "exchange_counts=true needs expert ranks and sizes that are not fixed by a capacity; "
            f"raise ep ({plan.ep}) and leave capacity_factor ({plan.capacity_factor:g}) out"
        )
        raise WorkloadError(msg)
    _check_expert_overlap(plan)


def _check_expert_overlap(plan: Parallelism) -> None:
    if not plan.overlap_experts:
        return
    if plan.ep == 1:
        msg = "overlap_experts=true needs expert ranks; raise ep (1) or leave it out"
        raise WorkloadError(msg)
    chained = plan.pp > 1 and plan.vpp == 1 and plan.schedule is Schedule.ONE_FORWARD_ONE_BACKWARD
    if chained or plan.schedule in {Schedule.GPIPE, Schedule.ZERO_BUBBLE}:
        msg = (
            f"overlap_experts=true needs a forward and a backward pass side by side, which schedule="
            f"{plan.schedule} with pp={plan.pp} and vpp={plan.vpp} has not without waiting; try vpp=2, "
            "schedule=dualpipe or pp=1"
        )
        raise WorkloadError(msg)
    if plan.zero > 1 and plan.gradient_ranks > 1:
        msg = f"overlap_experts=true with zero={plan.zero} is not modelled; try zero=1"
        raise WorkloadError(msg)
    if plan.cp > 1 and plan.context_exchange is ContextExchange.RING:
        msg = "overlap_experts=true with a ring of keys is not modelled; try context_exchange=all_gather"
        raise WorkloadError(msg)


def check_flow(config: TransformerConfig, plan: Parallelism) -> None:
    """Check folded pipelines, pipelines without a flush, and parameter servers.

    Raises
    ------
    WorkloadError
        Naming the first rule broken and what would keep it.
    """
    if plan.schedule.folded:
        _check_folded(config, plan)
    if plan.schedule.flows:
        _check_flowing(plan)
    if plan.uses_servers:
        _check_servers(plan)
        return
    for name in ("servers", "delay", "asynchronous"):
        if getattr(plan, name):
            msg = (
                f"{name} ({getattr(plan, name)}) needs exchange=parameter_server; add it, or leave {name} out"
            )
            raise WorkloadError(msg)


def _check_folded(config: TransformerConfig, plan: Parallelism) -> None:
    if 2 * plan.pp > config.layers:
        msg = (
            f"pipeline ({plan.pp}) must be at most half of layers ({config.layers}) with "
            f"schedule={plan.schedule}, two chunks a stage; try {config.layers // 2} or fewer"
        )
        raise WorkloadError(msg)
    if plan.schedule is Schedule.ZB_V and plan.microbatches < 2 * plan.pp - 1:
        least = (2 * plan.pp - 1) * plan.dp * plan.micro_batch
        msg = (
            f"microbatches ({plan.microbatches}) must be at least twice the stages ({plan.pp}) less one with "
            f"schedule=zb_v; try a global_batch of {least} or more"
        )
        raise WorkloadError(msg)


def _check_flowing(plan: Parallelism) -> None:
    if plan.zero and plan.gradient_ranks > 1:
        msg = (
            f"zero ({plan.zero}) must be 0 with schedule={plan.schedule} and several data-parallel ranks: "
            "several versions of the weights stand on every rank, whole; add zero=0"
        )
        raise WorkloadError(msg)
    if plan.schedule is Schedule.PIPEDREAM_2BW and plan.microbatches < plan.pp:
        msg = (
            f"microbatches ({plan.microbatches}) must be at least the stages ({plan.pp}) with "
            f"schedule=pipedream_2bw, for two versions to suffice; try a global_batch of "
            f"{plan.pp * plan.dp * plan.micro_batch} or more"
        )
        raise WorkloadError(msg)


def _check_servers(plan: Parallelism) -> None:
    if plan.gradient_ranks == 1:
        msg = "exchange=parameter_server needs data-parallel ranks; raise dp, or leave exchange out"
        raise WorkloadError(msg)
    if plan.servers > plan.gradient_ranks:
        msg = (
            f"servers ({plan.servers}) must be at most the data-parallel ranks ({plan.gradient_ranks}), on "
            f"which they stand; try {plan.gradient_ranks} or fewer"
        )
        raise WorkloadError(msg)
    if plan.zero != 1:
        msg = (
            f"zero ({plan.zero}) must be 1 with exchange=parameter_server: the optimizer stands on the "
            "servers, weights and gradients on every rank; leave zero out"
        )
        raise WorkloadError(msg)
    if plan.ep > 1:
        msg = f"expert ({plan.ep}) must be 1 with exchange=parameter_server; leave ep or exchange out"
        raise WorkloadError(msg)
    if plan.two_copies or plan.schedule.flows:
        msg = (
            f"schedule={plan.schedule} cannot be combined with exchange=parameter_server; "
            f"try schedule={Schedule.ONE_FORWARD_ONE_BACKWARD}"
        )
        raise WorkloadError(msg)
    if plan.asynchronous and plan.delay:
        msg = f"delay ({plan.delay}) bounds what asynchronous leaves unbounded; keep one of the two"
        raise WorkloadError(msg)


def check_grid(config: TransformerConfig, plan: Parallelism) -> None:
    """Check that a plan's tensor-parallel ranks form its squares, and that the model can be cut over them.

    Raises
    ------
    WorkloadError
        Naming the first rule broken and what would keep it.
    """
    depth, grid = plan.tensor_depth, plan.tensor_grid
    if grid is not TensorGrid.SQUARES and depth > 1:
        msg = f"tensor_depth ({depth}) must be 1 with tensor_grid={grid}; set tensor_grid=2.5d"
        raise WorkloadError(msg)
    if grid is TensorGrid.LINE:
        return
    if grid is TensorGrid.SQUARES and depth == 1:
        msg = "tensor_grid=2.5d needs a tensor_depth of 2 or more; raise it or set tensor_grid=2d"
        raise WorkloadError(msg)
    side = plan.columns
    if side < 2 or side * side * depth != plan.tp:
        near = ", ".join(str(one * one * depth) for one in (2, 3, 4, 8))
        msg = f"tensor ({plan.tp}) must be q x q x {depth} with q of 2 or more for {grid}; try {near}"
        raise WorkloadError(msg)
    _check_company(config, plan)
    if plan.micro_batch % plan.rows:
        msg = (
            f"micro_batch ({plan.micro_batch}) must be a multiple of the {plan.rows} rows of ranks that "
            f"share its sequences on a {grid} grid; try {plan.rows}"
        )
        raise WorkloadError(msg)
    for what, whole in (("hidden", config.hidden), ("kv_heads", config.kv_heads)):
        if whole % side:
            msg = f"columns ({side}) must divide {what} ({whole}) on a {grid} grid; try {divisors(whole)}"
            raise WorkloadError(msg)


def _check_company(config: TransformerConfig, plan: Parallelism) -> None:
    grid = plan.tensor_grid
    if not plan.sequence_parallel:
        msg = f"tensor_grid={grid} cuts the residual stream anyway; leave sequence_parallel true"
        raise WorkloadError(msg)
    if plan.overlap_tensor:
        msg = f"overlap_tensor is for a line of tensor ranks; leave it out or set tensor_grid=1d, not {grid}"
        raise WorkloadError(msg)
    if plan.cp > 1:
        msg = f"context ({plan.cp}) must be 1 with tensor_grid={grid}; use tensor_depth or data instead"
        raise WorkloadError(msg)
    if config.experts > 1 or config.kv_rank:
        msg = f"{config.name} has experts or latent attention; tensor_grid must be 1d, not {grid}"
        raise WorkloadError(msg)


def check_retrieval(config: TransformerConfig, plan: Parallelism) -> None:
    """Check that a plan can cut relative positions, the encoder of neighbours and attention to them.

    Raises
    ------
    WorkloadError
        Naming the first rule broken and what would keep it.
    """
    if config.positions is Positions.RELATIVE and (plan.cp > 1 or plan.side > 1):
        msg = f"{config.name} has relative positions; use tensor_grid=1d and cp=1, with more tp or data"
        raise WorkloadError(msg)
    reads = config.retrieval
    if reads is None:
        return
    if plan.weight_sparsity is not WeightSparsity.NONE or plan.weight_density != 1.0:
        msg = f"{config.name}: sparse weights with retrieval are not modelled; leave them dense"
        raise WorkloadError(msg)
    if plan.sequence_length % reads.chunk:
        msg = f"sequence_length ({plan.sequence_length}) must be whole chunks of {reads.chunk} tokens"
        raise WorkloadError(msg)
    for what, whole in (("encoder heads", reads.heads), ("encoder ffn_hidden", reads.ffn_hidden)):
        if whole % plan.tp:
            msg = f"tensor ({plan.tp}) must divide {what} ({whole}); try {divisors(whole)}"
            raise WorkloadError(msg)


def check_sharding(plan: Parallelism) -> None:
    """Check that the ways in which a plan shares and places states of the model go together.

    Raises
    ------
    WorkloadError
        Naming the first rule broken and what would keep it.
    """
    if plan.shard_group:
        _check_shard_group(plan)
    _check_quantised(plan)
    _check_local_group(plan)
    _check_places(plan)


def _ranks_phrase(plan: Parallelism) -> str:
    return "data" if plan.cp == 1 else "data x context"


def _check_shard_group(plan: Parallelism) -> None:
    size, ranks = plan.shard_group, plan.gradient_ranks
    if ranks % size:
        msg = f"shard_group ({size}) must divide {_ranks_phrase(plan)} ({ranks}); try {divisors(ranks)}"
        raise WorkloadError(msg)
    if plan.zero == 0 or size == 1:
        msg = (
            f"shard_group ({size}) needs something to share among two or more: zero is {plan.zero}; "
            "try zero=3, or leave shard_group out"
        )
        raise WorkloadError(msg)
    _refuse_experts(plan, "shard_group")
    if plan.two_copies:
        msg = "shard_group needs one copy of every parameter a pipeline; try another schedule than dualpipe"
        raise WorkloadError(msg)


def _check_quantised(plan: Parallelism) -> None:
    chosen = [
        key for key in ("quantised_weights", "secondary_copy", "quantised_gradients") if getattr(plan, key)
    ]
    if not chosen:
        return
    key = chosen[0]
    if plan.zero != 3 or not plan.gathers_every_microbatch or not plan.reshard:
        msg = (
            f"{key} needs parameters that are shared and gathered for every pass (ZeRO++ stands on stage 3); "
            f"got zero={plan.zero}, reshard={str(plan.reshard).lower()}; try zero=3,reshard=true"
        )
        raise WorkloadError(msg)
    if plan.gradient_ranks == 1:
        msg = f"{key} needs several data-parallel ranks; raise dp or leave {key} out"
        raise WorkloadError(msg)
    if plan.fetches_parameters or plan.updates_on_host:
        msg = f"{key} needs parameters and optimizer on the device; leave {key} or the other places out"
        raise WorkloadError(msg)
    if plan.shard_group:
        msg = f"{key} needs parameters shared over all ranks, not in shard_group; leave one out"
        raise WorkloadError(msg)
    _refuse_experts(plan, key)


def _check_local_group(plan: Parallelism) -> None:
    size, ranks = plan.local_group, plan.gradient_ranks
    if plan.secondary_copy and size < 2:
        msg = "secondary_copy needs a node to stay within; try local_group=8 for eight ranks in a node"
        raise WorkloadError(msg)
    if not size:
        return
    if not (plan.secondary_copy or plan.quantised_gradients):
        msg = f"local_group ({size}) needs secondary_copy or quantised_gradients, which use it; add one"
        raise WorkloadError(msg)
    if ranks % size or size in {1, ranks}:
        msg = (
            f"local_group ({size}) must divide {_ranks_phrase(plan)} ({ranks}) into several groups of two or "
            f"more; try {divisors(ranks)}"
        )
        raise WorkloadError(msg)


def _check_places(plan: Parallelism) -> None:
    if plan.fetches_parameters and not (plan.zero == 3 and plan.reshard):
        msg = (
            f"parameter_place={plan.parameter_place} needs parameters that are given up after every pass; "
            "try zero=3,reshard=true"
        )
        raise WorkloadError(msg)
    if plan.fetches_parameters and not plan.updates_on_host:
        msg = (
            f"parameter_place={plan.parameter_place} needs the optimizer off the device too; "
            "try optimizer_place=host"
        )
        raise WorkloadError(msg)
    if plan.parameter_place is Place.NVME and plan.optimizer_place is not Place.NVME:
        msg = "parameter_place=nvme needs the larger optimizer on disk as well; try optimizer_place=nvme"
        raise WorkloadError(msg)
    if plan.delayed_update and not plan.updates_on_host:
        msg = "delayed_update needs a host that runs the optimizer; try optimizer_place=host"
        raise WorkloadError(msg)
    if plan.delayed_update and plan.fetches_parameters:
        msg = (
            "delayed_update needs parameters on the device: on the host they would change under the passes; "
            "try parameter_place=device"
        )
        raise WorkloadError(msg)
    if plan.updates_on_host:
        _check_update_on_host(plan)


def _check_update_on_host(plan: Parallelism) -> None:
    place = f"optimizer_place={plan.optimizer_place}"
    if plan.zero == 0:
        msg = f"{place} needs an optimizer that ranks share, not zero=0; try zero=2"
        raise WorkloadError(msg)
    if plan.two_copies:
        msg = f"{place} needs one copy of every parameter a pipeline; try another schedule than dualpipe"
        raise WorkloadError(msg)
    if plan.shard_group:
        msg = f"{place} needs gradients that one group sums; leave shard_group out"
        raise WorkloadError(msg)
    if plan.precision is Precision.FP8:
        msg = f"{place} needs parameters that come up as they are used, not fp8; try precision=bf16"
        raise WorkloadError(msg)


def _refuse_experts(plan: Parallelism, key: str) -> None:
    if plan.ep > 1:
        msg = (
            f"{key} needs expert=1, not {plan.ep}: experts are shared over other ranks than the rest; "
            f"leave {key} or ep out"
        )
        raise WorkloadError(msg)


def check(config: TransformerConfig, plan: Parallelism, *, accelerators: int | None = None) -> None:
    """Check that a plan can cut a model, and takes the accelerators there are.

    Parameters
    ----------
    config : TransformerConfig
        The model.
    plan : Parallelism
        The plan.
    accelerators : int, optional
        Accelerators that the plan must take, neither more nor fewer.

    Raises
    ------
    WorkloadError
        Naming the first rule broken and what would keep it.
    """
    check_grid(config, plan)
    _must_divide("context", plan.cp, "sequence_length", plan.sequence_length)
    if plan.cp > 1 and plan.context_exchange is ContextExchange.ALL_TO_ALL:
        for what, whole in (("heads", config.heads), ("kv_heads", config.kv_heads)):
            _must_divide("tensor x context", plan.tp * plan.cp, what, whole)
    if plan.cp > 1 and 0 < config.window < plan.sequence_length:
        msg = (
            f"context ({plan.cp}) must be 1: {config.name}'s windows are not cut over ranks; raise tp instead"
        )
        raise WorkloadError(msg)
    for what, whole in (
        ("heads", config.heads),
        ("ffn_hidden", config.ffn_hidden),
        ("dense_ffn_hidden", config.dense_ffn_hidden),
    ):
        _must_divide("tensor" if plan.side == 1 else "columns", plan.columns, what, whole)
    if plan.columns % config.kv_heads:
        _must_divide("tensor", plan.columns, "kv_heads", config.kv_heads)
    if plan.sequence_parallel:
        shared = "micro_batch x sequence_length" + (" / context" if plan.cp > 1 else "")
        _must_divide("tensor", plan.tp, shared, plan.tokens)
    if plan.pp > config.layers:
        msg = f"pipeline ({plan.pp}) must be at most layers ({config.layers}); try {config.layers} or fewer"
        raise WorkloadError(msg)
    if plan.ep > 1 and config.experts == 1:
        msg = f"expert ({plan.ep}) must be 1: {config.name} has no experts"
        raise WorkloadError(msg)
    _must_divide("expert", plan.ep, "experts", config.experts)
    axes = "data" if plan.cp == 1 else "data x context"
    if plan.whole_experts:
        _must_divide("expert", plan.ep, f"tensor x {axes}", plan.tp * plan.dp * plan.cp)
    else:
        _must_divide("expert", plan.ep, axes, plan.dp * plan.cp)
    check_experts(config, plan)
    _check_batch(config, plan)
    _check_chunks(config, plan)
    _check_dualpipe(plan)
    check_sharding(plan)
    _check_overlap(plan)
    check_flow(config, plan)
    check_retrieval(config, plan)
    check_sparsity(config, plan)
    if accelerators is not None and plan.ranks != accelerators:
        msg = (
            f"the plan takes tp x pp x dp x cp = {plan.tp} x {plan.pp} x {plan.dp} x {plan.cp} = "
            f"{plan.ranks} accelerators, but there are {accelerators}; {_data_hint(plan, accelerators)}"
        )
        raise WorkloadError(msg)


def _check_dualpipe(plan: Parallelism) -> None:
    if not plan.two_copies:
        return
    if plan.pp % 2:
        msg = f"pipeline ({plan.pp}) must be even with schedule=dualpipe; try {plan.pp + 1}"
        raise WorkloadError(msg)
    if plan.microbatches % 2 or plan.microbatches < 2 * plan.pp:
        least = 2 * plan.pp * plan.dp * plan.micro_batch
        msg = (
            f"microbatches ({plan.microbatches}) must be even and at least twice the stages ({plan.pp}) with "
            f"schedule=dualpipe; try a global_batch of {least} or more"
        )
        raise WorkloadError(msg)


def _check_overlap(plan: Parallelism) -> None:
    if not plan.overlap_tensor:
        return
    if plan.tp == 1:
        msg = "overlap_tensor needs tensor ranks to talk to (tp is 1); raise tp or leave overlap_tensor out"
        raise WorkloadError(msg)
    if not plan.sequence_parallel:
        msg = "overlap_tensor cuts all-gathers and reduce-scatters into shards; set sequence_parallel=true"
        raise WorkloadError(msg)


def _check_chunks(config: TransformerConfig, plan: Parallelism) -> None:
    if plan.vpp == 1:
        return
    if plan.pp == 1:
        msg = f"vpp ({plan.vpp}) must be 1 without pipeline stages; raise pp or leave vpp out"
        raise WorkloadError(msg)
    if plan.schedule is not Schedule.ONE_FORWARD_ONE_BACKWARD:
        msg = f"vpp ({plan.vpp}) needs schedule={Schedule.ONE_FORWARD_ONE_BACKWARD}, not {plan.schedule}"
        raise WorkloadError(msg)
    if plan.pp * plan.vpp > config.layers:
        most = config.layers // plan.pp
        msg = (
            f"pipeline x vpp ({plan.pp} x {plan.vpp}) must be at most layers ({config.layers}); "
            f"try vpp of {most} or less"
        )
        raise WorkloadError(msg)
    if plan.microbatches % plan.pp:
        step = plan.pp * plan.dp * plan.micro_batch
        msg = (
            f"microbatches ({plan.microbatches}) must be a multiple of pipeline ({plan.pp}) with vpp; "
            f"try a global_batch that is a multiple of {step}"
        )
        raise WorkloadError(msg)


def _check_batch(config: TransformerConfig, plan: Parallelism) -> None:
    slots = plan.dp * plan.micro_batch
    if plan.global_batch % slots:
        down = plan.global_batch // slots * slots
        near = f"{down} or {down + slots}" if down else f"{slots}"
        msg = (
            f"global_batch ({plan.global_batch}) must be a multiple of data x micro_batch "
            f"({plan.dp} x {plan.micro_batch} = {slots}); try {near}"
        )
        raise WorkloadError(msg)
    if config.position_rows and plan.sequence_length > config.max_sequence:
        msg = (
            f"sequence_length ({plan.sequence_length}) must be at most {config.max_sequence}: "
            f"{config.name} has learned positions for no more"
        )
        raise WorkloadError(msg)


def _must_divide(what: str, part: int, name: str, whole: int) -> None:
    if whole % part:
        msg = f"{what} ({part}) must divide {name} ({whole}); try {divisors(whole)}"
        raise WorkloadError(msg)


def _data_hint(plan: Parallelism, accelerators: int) -> str:
    model = plan.tp * plan.pp * plan.cp
    if accelerators % model == 0 and accelerators >= model:
        return f"try dp={accelerators // model}"
    return f"no dp fits, for {model} does not divide {accelerators}; change tp or pp"
