"""Products of sharded tensors: every process runs its part on a core of its own.

Shape suffixes: as in `optical.execution.matmul`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from simulator.errors import WorkloadError

_ROWS, _COLUMNS, _SUMMED = range(3)
"""Along which dimension of a product a core is another core; folded into the key with the offset."""


class LocalProduct(Protocol):
    """A product of local operands, of which the offsets in the global product are known."""

    def __call__(
        self, a: torch.Tensor, b: torch.Tensor, *, place: tuple[int, ...], first_row: int
    ) -> torch.Tensor:
        """Return the product of this process.

        Parameters
        ----------
        a, b : torch.Tensor
            Local operands.
        place : tuple of int
            What tells this core from those of other processes.
        first_row : int
            Global number of A's first row, or first matrix where B has several.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """Layout of operands, gradients and the result on one dimension of the mesh."""

    a: Placement
    b: Placement
    c: Placement
    grad_a: Placement
    grad_b: Placement


def sharded_matmul(a: torch.Tensor, b: torch.Tensor, product: LocalProduct) -> torch.Tensor:
    """Return the product as a distributed tensor.

    Parameters
    ----------
    a, b : torch.Tensor
        Operands, shapes [..., M, K] and [..., K, N] or [K, N], at least one of them distributed; a plain one
        counts as replicated.
    product : LocalProduct
        Runs the product of one process.

    Notes
    -----
    Rows of A keep the row blocks, hence the draws, of the product in one process. A shard of columns of B, or
    of the summed dimension, is held by another core: its offset is folded into the key, and partial sums of
    cores are added digitally. Where shards do not fit together, B is gathered first.

    Raises
    ------
    WorkloadError
        If the tensors lie on different meshes.
    """
    meshes = [x.device_mesh for x in (a, b) if isinstance(x, DTensor)]
    if meshes[0] != meshes[-1]:
        msg = f"operands lie on the meshes {meshes[0]} and {meshes[-1]}; distribute both on one"
        raise WorkloadError(msg)
    mesh = meshes[0]
    a, b = (_distributed(x, mesh) for x in (a, b))
    layouts = [_layout(one, other, a, b) for one, other in zip(a.placements, b.placements, strict=True)]
    a = a.redistribute(placements=[each.a for each in layouts])
    b = b.redistribute(placements=[each.b for each in layouts])
    first_row, place = _offsets(a, b)
    local = product(
        a.to_local(grad_placements=[each.grad_a for each in layouts]),
        b.to_local(grad_placements=[each.grad_b for each in layouts]),
        place=place,
        first_row=first_row,
    )
    shape = torch.Size((*a.shape[:-1], b.shape[-1]))
    stride = torch.empty(shape, device="meta").stride()
    placements = [each.c for each in layouts]
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=shape, stride=stride)


def _distributed(x: torch.Tensor, mesh: torch.distributed.DeviceMesh) -> DTensor:
    if isinstance(x, DTensor):
        return x
    return DTensor.from_local(x, mesh, [Replicate()] * mesh.ndim, run_check=False)


def _layout(a: Placement, b: Placement, a_tensor: DTensor, b_tensor: DTensor) -> _Layout:
    """Return how a product is run whose operands lie so on one dimension of the mesh."""
    summed_a, summed_b, columns = a_tensor.ndim - 1, b_tensor.ndim - 2, b_tensor.ndim - 1
    whole, summed = Replicate(), Partial()
    dim_a = a.dim % a_tensor.ndim if isinstance(a, Shard) else None
    dim_b = b.dim % b_tensor.ndim if isinstance(b, Shard) else None
    if dim_a == summed_a or (dim_a is None and dim_b == summed_b):
        sides = Shard(summed_a), Shard(summed_b)
        return _Layout(a=sides[0], b=sides[1], c=summed, grad_a=sides[0], grad_b=sides[1])
    if dim_a is None and dim_b == columns:
        return _Layout(
            a=whole, b=Shard(columns), c=Shard(a_tensor.ndim - 1), grad_a=summed, grad_b=Shard(columns)
        )
    batched = b_tensor.ndim > 2
    dim = dim_a if dim_a is not None else dim_b
    if dim is None:
        return _Layout(a=whole, b=whole, c=whole, grad_a=whole, grad_b=whole)
    if batched and dim < b_tensor.ndim - 2:
        each = Shard(dim)
        return _Layout(a=each, b=each, c=each, grad_a=each, grad_b=each)
    return _Layout(a=Shard(dim), b=whole, c=Shard(dim), grad_a=Shard(dim), grad_b=summed)


def _offsets(a: DTensor, b: DTensor) -> tuple[int, tuple[int, ...]]:
    """Return the global number of the first row, or matrix, and what else tells this core from others."""
    of_a, of_b = (
        compute_local_shape_and_global_offset(x.shape, x.device_mesh, x.placements)[1] for x in (a, b)
    )
    rows_end = a.ndim - 1 if b.ndim == 2 else a.ndim - 2
    first_row, place = 0, []
    for dim in range(a.ndim - 1):
        if dim < rows_end and math.prod(a.shape[:dim]) == 1:
            first_row += of_a[dim] * math.prod(a.shape[dim + 1 : rows_end])
        elif any(isinstance(each, Shard) and each.dim == dim for each in a.placements):
            place += [_ROWS, dim, of_a[dim]]
    for kind, tensor, dim, offset in (
        (_COLUMNS, b, b.ndim - 1, of_b[-1]),
        (_SUMMED, b, b.ndim - 2, of_b[-2]),
    ):
        if any(isinstance(each, Shard) and each.dim == dim for each in tensor.placements):
            place += [kind, offset]
    return first_row, tuple(place)
