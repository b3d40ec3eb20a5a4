"""Transforms of a product's operands in electronics around a core: what leaves the exact product as it is.

Channels that are far louder than the others may be multiplied electronically; what is left may be rotated, so
that no element stands out; operands may be cut into slices of fewer bits; and a product may be executed
several times and averaged.

Shape suffixes: B matrices, M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

import torch

from optical.execution.operands import SMALLEST_SCALE, largest_code
from optical.execution.spec import OperandTransforms
from simulator.keys import mix_key

_SIGNS = 20250611
"""Key of the signs of a rotation, the same for all products, as a rotation is wired once; any number."""
Multiply = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]
"""A core's product of operands [B, M, K] and [B, K, N]; the last argument tells its executions apart."""


def multiply_transformed(
    a_BMK: torch.Tensor, b_BKN: torch.Tensor, transforms: OperandTransforms, multiply: Multiply
) -> torch.Tensor:
    """Return the product of a core around which operands are transformed, [B, M, N].

    Notes
    -----
    Outlier channels are those of the largest ``max|a_k| max|b_k|`` over all rows at hand, hence of a shard
    where rows are sharded.
    """
    electronic, a_BMK, b_BKN = _without_outliers(a_BMK, b_BKN, transforms.electronic_share)
    if a_BMK.shape[2] == 0:
        return electronic
    width = transforms.rotation_width
    a_BMK, b_BKN = rotated(a_BMK, width), rotated(b_BKN.mT, width).mT
    pairs = [pair for pair in _slices(a_BMK, b_BKN, transforms) for _ in range(transforms.passes)]
    total = sum(multiply(a, b, number) for number, (a, b) in enumerate(pairs))
    return electronic + total / transforms.passes


def _without_outliers(
    a_BMK: torch.Tensor, b_BKN: torch.Tensor, share: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the product of the loudest channels, [B, M, N], and both operands without them."""
    length = a_BMK.shape[2]
    count = min(length, math.ceil(share * length))
    if count == 0:
        return a_BMK.new_zeros(()), a_BMK, b_BKN
    loudness = a_BMK.abs().amax((0, 1)) * b_BKN.abs().amax((0, 2))
    order = loudness.argsort(descending=True, stable=True)
    loud, quiet = order[:count].sort().values, order[count:].sort().values
    product = torch.matmul(a_BMK[..., loud], b_BKN[:, loud])
    return product, a_BMK[..., quiet].contiguous(), b_BKN[:, quiet].contiguous()


def rotated(x: torch.Tensor, width: int) -> torch.Tensor:
    """Return rows turned by an orthogonal matrix, [..., K]: random signs, then Hadamard matrices along K.

    Parameters
    ----------
    x : torch.Tensor
        Rows, [..., K].
    width : int
        Largest Hadamard matrix, a power of two; 1 for none. What K leaves over takes smaller ones.
    """
    if width == 1:
        return x
    length = x.shape[-1]
    x = x * _signs(length).to(x)
    parts, start = [], 0
    while start < length:
        fits = min(width, 2 ** int(math.log2(length - start)))
        count = (length - start) // fits
        part = x[..., start : start + count * fits].unflatten(-1, (count, fits))
        parts.append(_hadamard(part).flatten(-2))
        start += count * fits
    return torch.cat(parts, -1)


@functools.lru_cache(maxsize=64)
def _signs(length: int) -> torch.Tensor:
    """Return one sign for each channel."""
    generator = torch.Generator("cpu").manual_seed(mix_key(_SIGNS, length) % 2**63)
    return torch.randint(0, 2, (length,), generator=generator, device="cpu") * 2 - 1


def _hadamard(x: torch.Tensor) -> torch.Tensor:
    """Return rows of a power of two times the Hadamard matrix, orthonormal: log2(n) rounds of butterflies."""
    n, step = x.shape[-1], 1
    while step < n:
        pairs = x.unflatten(-1, (n // (2 * step), 2, step))
        first, second = pairs[..., 0, :], pairs[..., 1, :]
        x = torch.stack((first + second, first - second), -2).flatten(-3)
        step *= 2
    return x * n**-0.5


def _slices(
    a_BMK: torch.Tensor, b_BKN: torch.Tensor, transforms: OperandTransforms
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield pairs of slices whose products add up to the product; whole operands where there is one."""
    if transforms.slices == 1:
        yield a_BMK, b_BKN
        return
    of_b = _sliced(b_BKN, -2, transforms)
    for a in _sliced(a_BMK, -1, transforms):
        for b in of_b:
            yield a, b


def _sliced(x: torch.Tensor, summed_dim: int, transforms: OperandTransforms) -> list[torch.Tensor]:
    """Return an operand as a sum of slices: each what is left, rounded to a grid; the last not rounded."""
    parts, left = [], x
    for _ in range(transforms.slices - 1):
        scale = left.abs().amax(summed_dim, keepdim=True).clamp_(min=SMALLEST_SCALE)
        step = scale / largest_code(transforms.slice_bits)
        parts.append((left / step).round() * step)
        left = left - parts[-1]
    return [*parts, left]
