"""The rules that a plan for a mixture of experts must keep, each with the way out in its message."""

from __future__ import annotations

from heliograph.errors import WorkloadError
from workloads.architecture import TransformerConfig
from workloads.choices import ContextExchange, ExpertExchange, Schedule
from workloads.plan import Parallelism

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
    _check_overlap(plan)


def _check_overlap(plan: Parallelism) -> None:
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
