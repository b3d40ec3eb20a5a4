"""The rules of plans that share parameters, gradients or optimizer in groups, or place them elsewhere."""

from __future__ import annotations

from heliograph.errors import WorkloadError
from workloads.architecture import divisors
from workloads.choices import Place, Precision
from workloads.plan import Parallelism


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
