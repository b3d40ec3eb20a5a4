"""The rules that a plan must keep for a model that reads what it retrieves."""

from __future__ import annotations

from heliograph.errors import WorkloadError
from workloads.architecture import Positions, TransformerConfig, divisors
from workloads.choices import WeightSparsity
from workloads.plan import Parallelism


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
