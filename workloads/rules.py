"""The rules that a plan must keep for a model, each with the way out in its message."""

from __future__ import annotations

from heliograph.errors import WorkloadError
from workloads.architecture import TransformerConfig, divisors
from workloads.choices import ContextExchange, Schedule
from workloads.expert_rules import check_experts
from workloads.flow_rules import check_flow
from workloads.grid_rules import check_grid
from workloads.plan import Parallelism
from workloads.retrieval_rules import check_retrieval
from workloads.sharding_rules import check_sharding
from workloads.sparsity import check_sparsity


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
