"""Exact products of codes: in int8 arithmetic where it is quicker, and of two halves where 8 bits do not do.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

import torch

from optical.execution import tiles
from optical.execution.operand_blocks import Block, part_of, whole
from optical.execution.probes import probe_outputs
from optical.execution.scratch import remembered, scratch

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
    return arithmetic_of_sums(x.shape[summed_dim], levels) if usual else Arithmetic.FLOATING


def arithmetic_of_sums(length: int, levels: int | None) -> Arithmetic:
    """Return the same for single matrices in float32 on a CPU, by the length of their sums."""
    if levels is None or length > _LONGEST_INT8_SUM or not has_exact_int8_products():
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
    both: torch.Tensor | None
    """Sums of the two, at most 127: a product of these spares the two crossed ones (Karatsuba, 1962). None
    where a matrix unit makes those at once."""

    def put(self, codes: torch.Tensor, block: Block) -> None:
        """Divide a block of whole codes, given as floating point."""
        high = scratch("high", codes.shape, codes.dtype, codes.device)
        torch.mul(codes, 1.0 / _RADIX, out=high).round_()
        part_of(self.high, block).copy_(high)
        low = torch.sub(codes, high, alpha=_RADIX)
        part_of(self.low, block).copy_(low)
        if self.both is not None:
            part_of(self.both, block).copy_(high.add_(low))

    def rows(self, block: tuple[slice, ...]) -> Halves:
        """Return the halves of some batches and rows of A."""
        both = None if self.both is None else part_of(self.both, block)
        return Halves(part_of(self.high, block), part_of(self.low, block), both)

    @property
    def mT(self) -> Halves:
        """Halves of the transposed operand."""
        return Halves(self.high.mT, self.low.mT, None if self.both is None else self.both.mT)

    def factors(self, rows: slice) -> tuple[torch.Tensor, ...]:
        """Return what is multiplied of a single matrix, [M, K] of [1, M, K]: halves and their sums."""
        high, low = self.high[0, rows], self.low[0, rows]
        return high, low, high + low if self.both is None else self.both[0, rows]


@dataclass(frozen=True)
class CodeProduct:
    """The product of codes, in memory that the next product uses again."""

    sums: tuple[torch.Tensor, ...]
    """All of it, [B, M, N]; or of halves: high by high, low by low, sum by sum."""

    def probed(self, dtype: torch.dtype) -> torch.Tensor:
        """Return the outputs that a gain stage reads, as floating point, [B', M', N']."""
        parts = tuple(probe_outputs(part) for part in self.sums)
        if len(parts) == 1:
            return parts[0].to(dtype)
        return CodeProduct(tuple(part.clone() for part in parts)).value(whole(parts[0].shape), dtype)

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
        low, both = others
        value.copy_(first).mul_(_RADIX).add_(both.sub_(first).sub_(low))
        return value.mul_(_RADIX).add_(low)


def multiply_codes(a: torch.Tensor, b: torch.Tensor) -> CodeProduct:
    """Return the product of floating-point codes, [B, M, K] and [B, K, N], exact as far as their type is."""
    shape = torch.Size((*a.shape[:2], b.shape[2]))
    return CodeProduct((torch.bmm(a, b, out=scratch("product", shape, a.dtype, a.device)),))


def multiply_matrices(a: tuple[torch.Tensor, ...], b: tuple[torch.Tensor, ...]) -> CodeProduct:
    """Return the exact product of single matrices of int8 codes, [M, K] and [K, N], or of their halves."""
    rows, columns = a[0].shape[0], b[0].shape[1]
    room = remembered(("product", len(a), rows, columns), lambda: _product_room(len(a), rows, columns))
    for first, second, out in zip(a, b, room.matrices, strict=True):
        torch._int_mm(_in_order(first), _in_order(second), out=out)
    return room.product


def multiply_tiles(a: tiles.Rows, b_tiles: torch.Tensor) -> CodeProduct | None:
    """Return the exact product of rows of A by all of B in tiles, or None where they do not fit."""
    product = tiles.plan(a, b_tiles)
    if product is None:
        return None
    rows, columns = a.rows.stop - a.rows.start, b_tiles.shape[1] * b_tiles.shape[3]
    whole_numbers = len(a.codes) == 1
    room = remembered(
        ("tiled", whole_numbers, rows, columns), lambda: _tiled_room(whole_numbers, rows, columns)
    )
    tiles.multiply(product, room.matrices[0])
    return room.product


def _tiled_room(whole_numbers: bool, rows: int, columns: int) -> _ProductRoom:
    if whole_numbers:
        return _product_room(1, rows, columns)
    product = scratch("product", torch.Size((1, rows, columns)), torch.float32, torch.device("cpu"))
    return _ProductRoom(CodeProduct((product,)), (product[0],))


class _ProductRoom(NamedTuple):
    """Memory for a product."""

    product: CodeProduct
    matrices: tuple[torch.Tensor, ...]


def _product_room(count: int, rows: int, columns: int) -> _ProductRoom:
    shape = torch.Size((1, rows, columns))
    sums = tuple(
        scratch(f"product {place}", shape, torch.int32, torch.device("cpu")) for place in range(count)
    )
    return _ProductRoom(CodeProduct(sums), tuple(out[0] for out in sums))


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
