"""The rules that tensor-parallel ranks on a grid must keep, each with the way out in its message."""

from __future__ import annotations

from heliograph.errors import WorkloadError
from workloads.architecture import TransformerConfig, divisors
from workloads.choices import TensorGrid
from workloads.plan import Parallelism


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
