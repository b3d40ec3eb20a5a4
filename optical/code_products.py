"""Exact products of codes: in int8 arithmetic where it is quicker, and of two halves where 8 bits do not do.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

import torch

from optical.fused import fuses, join, split
from optical.operand_blocks import Block, part_of
from optical.scratch import scratch

_LARGEST_INT8_CODE = 127
_RADIX = 128
"""One step of a code's upper half, in steps of the code."""
_LARGEST_HALVED_CODE = 2**13 - 1
"""Codes of at most 14 bits have halves of at most 64."""
_LONGEST_INT8_SUM = 2**16
"""Products of int8 codes whose sum, of twice as many, an int32 is sure to hold."""


class Arithmetic(Enum):
    """In what codes are multiplied."""

    INT8 = auto()
    """Codes of 8 bits, sums of 32."""
    HALVES = auto()
    """Two codes of 8 bits for each."""
    FLOATING = auto()
    """The operand's own type."""


def arithmetic_for(x: torch.Tensor, summed_dim: int, levels: int | None) -> Arithmetic:
    """Return the quickest arithmetic that gives products of an operand's codes exactly."""
    usual = x.device.type == "cpu" and x.dtype == torch.float32 and x.shape[0] == 1
    if (
        levels is None
        or not usual
        or x.shape[summed_dim] > _LONGEST_INT8_SUM
        or not has_exact_int8_products()
    ):
        return Arithmetic.FLOATING
    if levels <= _LARGEST_INT8_CODE:
        return Arithmetic.INT8
    return Arithmetic.HALVES if levels <= _LARGEST_HALVED_CODE else Arithmetic.FLOATING


class Halves(NamedTuple):
    """Codes as ``128 high + low``, in int8."""

    high: torch.Tensor
    """Upper halves."""
    low: torch.Tensor
    """Lower halves."""
    both: torch.Tensor
    """Sums of the two, at most 127: a product of these spares the two crossed ones (Karatsuba, 1962)."""

    def put(self, codes: torch.Tensor, block: Block) -> None:
        """Divide a block of whole codes, given as floating point."""
        if fuses(codes) and codes.is_contiguous():
            split(codes, *(part_of(half, block) for half in (self.high, self.low, self.both)))
            return
        high = scratch("high", codes.shape, codes.dtype, codes.device)
        torch.mul(codes, 1.0 / _RADIX, out=high).round_()
        part_of(self.high, block).copy_(high)
        low = torch.sub(codes, high, alpha=_RADIX)
        part_of(self.low, block).copy_(low)
        part_of(self.both, block).copy_(high.add_(low))

    def rows(self, block: tuple[slice, ...]) -> Halves:
        """Return the halves of some batches and rows of A."""
        return Halves(*(part_of(half, block) for half in (self.high, self.low, self.both)))

    @property
    def mT(self) -> Halves:
        """Halves of the transposed operand."""
        return Halves(self.high.mT, self.low.mT, self.both.mT)


@dataclass(frozen=True)
class CodeProduct:
    """The product of codes, in memory that the next product uses again."""

    sums: tuple[torch.Tensor, ...]
    """All of it, [B, M, N]; or of halves: high by high, low by low, sum by sum."""

    def add_to(self, x: torch.Tensor, block: Block) -> torch.Tensor:
        """Return the sum of some outputs and what is given, which may be overwritten."""
        return x.add_(self.value(block, x.dtype) if len(self.sums) > 1 else part_of(self.sums[0], block))

    def value(self, block: Block, dtype: torch.dtype) -> torch.Tensor:
        """Return some outputs as floating point that may be overwritten."""
        first, *others = (part_of(part, block) for part in self.sums)
        if first.dtype == dtype:
            return first
        value = scratch("value", first.shape, dtype, first.device)
        if not others:
            return value.copy_(first)
        if fuses(value) and first.is_contiguous():
            join((first, *others), value)
            return value
        low, both = others
        value.copy_(first).mul_(_RADIX).add_(both.sub_(first).sub_(low))
        return value.mul_(_RADIX).add_(low)


def multiply_codes(a: torch.Tensor, b: torch.Tensor, halves: tuple[Halves, Halves] | None) -> CodeProduct:
    """Return the exact product of codes.

    Parameters
    ----------
    a, b : torch.Tensor
        Codes, [B, M, K] and [B, K, N], int8 or of one floating type.
    halves : tuple of Halves or None
        Of both, where they are to be multiplied.
    """
    if halves is not None:
        pairs = enumerate(zip(*halves, strict=True))
        return CodeProduct(tuple(_multiply_int8(*pair, f"product {place}") for place, pair in pairs))
    if a.dtype == b.dtype == torch.int8:
        return CodeProduct((_multiply_int8(a, b, "product"),))
    shape = torch.Size((*a.shape[:2], b.shape[2]))
    return CodeProduct((torch.bmm(a, b, out=scratch("product", shape, a.dtype, a.device)),))


def _multiply_int8(a: torch.Tensor, b: torch.Tensor, use: str) -> torch.Tensor:
    """Return an exact product of one matrix with another, [1, M, N], int32."""
    out = scratch(use, torch.Size((1, a.shape[1], b.shape[2])), torch.int32, a.device)
    torch._int_mm(_in_order(a[0]), _in_order(b[0]), out=out[0])
    return out


def _in_order(codes: torch.Tensor) -> torch.Tensor:
    """Return a matrix without the strides that mislead `torch._int_mm` on a CPU where a size is 1.

    A row that was a column keeps its stride of 1 in both dimensions, and counts as contiguous; torch 2.13
    then reads wrong memory. A copy has the strides that its shape says.
    """
    return codes.clone(memory_format=torch.contiguous_format) if 1 in codes.shape else codes


@functools.cache
def has_exact_int8_products() -> bool:
    """Return whether int8 products are there and do not saturate, as they may on a CPU without VNNI."""
    codes = torch.full((64, 64), _LARGEST_INT8_CODE, dtype=torch.int8)
    try:
        product = torch._int_mm(codes, codes)
    except (AttributeError, RuntimeError):
        return False
    return bool((product == 64 * _LARGEST_INT8_CODE**2).all())
