"""What an optimizer keeps of each parameter, and what its step takes."""

from __future__ import annotations

from heliograph.operators import Elementwise, Phase
from workloads.choices import Precision
from workloads.plan import Parallelism
from workloads.sharding import RankParameters, optimizer_bytes, optimizer_share

ADAM_FLOPS = 12
"""Operations of Adam per parameter: two moments, their corrections, the root, the step and the decay."""


def update_work(plan: Parallelism, held: RankParameters) -> Elementwise:
    """Return the optimizer's step over a rank's share of the parameters that it holds."""
    count = optimizer_share(plan, held)
    state = optimizer_bytes(plan)
    stored = plan.precision.element_bytes
    # fp32 weights are their own master: they are read as weights rather than as optimizer state.
    read = state + plan.grad_bytes + (stored if plan.precision is Precision.FP32 else 0)
    return Elementwise(
        name="adam",
        layer="optimizer",
        phase=Phase.UPDATE,
        flops=ADAM_FLOPS * count,
        read_bytes=read * count,
        written_bytes=(state + stored) * count,
    )
