"""The rules of plans whose steps overlap, whose pipeline is folded, or whose gradients go to servers."""

from __future__ import annotations

from heliograph.errors import WorkloadError
from workloads.architecture import TransformerConfig
from workloads.choices import Schedule
from workloads.plan import Parallelism


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
