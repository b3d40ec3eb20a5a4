"""Linear layers and products of tensors, as the products of matrices that a core runs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from heliograph.errors import WorkloadError
from optical.conversion.frames import Frame
from optical.conversion.policy import ProductKind


def is_weight(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a parameter or a view of one."""
    return isinstance(tensor, nn.Parameter) or isinstance(tensor._base, nn.Parameter)


def linear(
    frame: Frame, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Return a linear layer's output, shape [..., out]; the bias is added digitally.

    Notes
    -----
    Rows reach the core sample by sample, so that a part of the batch is whole row blocks.
    """
    if weight.dim() == 1:
        return linear(frame, input, weight.unsqueeze(0), bias).squeeze(-1)
    rows = input.unsqueeze(0) if input.dim() == 1 else input
    if frame.samples == 1:
        y = frame.multiply(ProductKind.LINEAR, rows, weight.mT, weight=True)
    else:
        by_sample = rows.reshape(-1, frame.samples, rows.shape[-1]).transpose(0, 1)
        y = frame.multiply(ProductKind.LINEAR, by_sample, weight.mT, weight=True)
        y = y.transpose(0, 1).contiguous().view(*rows.shape[:-1], -1)
    y = y.squeeze(0) if input.dim() == 1 else y
    return y if bias is None else y + bias.to(y.dtype)


def matmul(
    frame: Frame, input: torch.Tensor, other: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the product of two tensors, by the rules of `torch.matmul`."""
    if out is not None:
        msg = f"'{frame.site.name}': a product cannot be written to `out`; leave it out and use the result"
        raise WorkloadError(msg)
    if 0 in (input.dim(), other.dim()):
        shapes = f"{list(input.shape)} and {list(other.shape)}"
        msg = f"'{frame.site.name}': operands of a product must have a dimension; got shapes {shapes}"
        raise WorkloadError(msg)
    a = input.unsqueeze(0) if input.dim() == 1 else input
    b = other.unsqueeze(-1) if other.dim() == 1 else other
    turned = is_weight(a) and not is_weight(b) and a.dim() == 2
    if turned:
        a, b = b.mT, a.mT
    weight = is_weight(b)
    kind = ProductKind.LINEAR if weight else ProductKind.MATMUL
    if not weight and frame.attention:
        kind = frame.attention.pop(0)
    c = frame.multiply(kind, a, b, weight=weight)
    c = c.mT if turned else c
    c = c.squeeze(-1) if other.dim() == 1 else c
    return c.squeeze(-1 if other.dim() == 1 else -2) if input.dim() == 1 else c


def reversed_matmul(frame: Frame, other: torch.Tensor, input: torch.Tensor) -> torch.Tensor:
    """Return ``input @ other``."""
    return matmul(frame, input, other)


def matmul_add(
    frame: Frame,
    input: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return ``beta input + alpha (first @ second)``; all but the product is digital."""
    product = matmul(frame, first, second, out=out)
    product = product if alpha == 1 else alpha * product
    return product if beta == 0 else product + (beta * input).to(product.dtype)


def sum_matmul_add(
    frame: Frame,
    input: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> torch.Tensor:
    """Return `matmul_add` with the products of a batch summed."""
    product = alpha * matmul(frame, first, second).sum(0)
    return product if beta == 0 else product + (beta * input).to(product.dtype)


def matmul_add_in_place(
    frame: Frame,
    input: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> torch.Tensor:
    """Do `matmul_add` and keep the result in the input."""
    return input.copy_(matmul_add(frame, input, first, second, beta=beta, alpha=alpha))


def chain(frame: Frame, *matrices: torch.Tensor | Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the product of many matrices, from left to right."""
    parts = [one for part in matrices for one in ([part] if isinstance(part, torch.Tensor) else part)]
    product = parts[0]
    for part in parts[1:]:
        product = matmul(frame, product, part)
    return product


def grouped(
    frame: Frame,
    mat_a: torch.Tensor,
    mat_b: torch.Tensor,
    *,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return the rows of A, in groups that end at `offs`, each group by its own matrix of B, [G, K, N]."""
    if mat_a.dim() != 2 or mat_b.dim() != 3 or offs is None or bias is not None:
        shapes = f"{list(mat_a.shape)} and {list(mat_b.shape)}"
        rule = "grouped products take [M, K], [G, K, N] and offs, without bias"
        msg = f"'{frame.site.name}': {rule}; got {shapes}"
        raise WorkloadError(msg)
    counts = offs.diff(prepend=offs.new_zeros(1)).tolist()
    rest = mat_a.shape[0] - sum(counts)
    for count in (*counts, rest):  # compilers, which do not know these numbers, take this as a promise
        torch._check(count >= 0)
    weight = is_weight(mat_b)
    *groups, none = mat_a.split([*counts, rest])
    parts = [
        frame.multiply(ProductKind.EXPERTS, rows, mat_b[number], weight=weight)
        for number, rows in enumerate(groups)
    ]
    y = torch.cat([*parts, none.new_zeros((rest, mat_b.shape[-1]), dtype=parts[0].dtype)])
    return y if out_dtype is None else y.to(out_dtype)
