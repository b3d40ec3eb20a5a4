"""Operands of an analog product as codes on their converters' grids, and their exact products.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import torch

from optical.execution.code_products import (
    CodeProduct,
    Halves,
    multiply_codes,
    multiply_matrices,
    multiply_tiles,
)
from optical.execution.operand_blocks import Block, part_of, whole
from optical.execution.tiles import Rows

SMALLEST_SCALE = 1e-30
"""Full scale of an operand row that is all zero, so that nothing is divided by zero."""
_ALL = slice(None)
NEGLIGIBLE_LASER = 0.01
"""Share of laser noise in the variance of an output, below which its spread over outputs is not followed."""


@dataclass(frozen=True, kw_only=True)
class Operand:
    """An operand on its converter's grid."""

    codes: torch.Tensor
    """Values in steps of the grid, shape of the operand; int8, or int16 of halves, where that is exact and
    quicker, else float."""
    step: float
    """One step, in units of full scale."""
    scale: torch.Tensor
    """Full scale, broadcastable to the operand."""
    energy: torch.Tensor
    """Sum of squared codes over K, [B, M, 1] or [B, 1, N], float; zero where nothing depends on it."""
    halves: Halves | None = None
    """The codes in two parts, where those are multiplied instead."""
    tiles: torch.Tensor | None = None
    """The codes, or both their halves, as a CPU's matrix unit takes them (`optical.execution.tiles`)."""

    @property
    def mT(self) -> Operand:
        """The transposed operand, [B, K, M] of [B, M, K]."""
        halves = None if self.halves is None else self.halves.mT
        return Operand(
            codes=self.codes.mT,
            step=self.step,
            scale=self.scale.mT,
            energy=self.energy.mT,
            halves=halves,
        )

    @functools.cached_property
    def matrices(self) -> tuple[torch.Tensor, ...]:
        """Codes of a single matrix, [M, K] of [1, M, K], or their high and low halves, if they have such."""
        return tuple(
            codes[0] for codes in (self.halves[:2] if self.halves else (self.codes,)) if codes is not None
        )

    def at(self, block: Block) -> Operand:
        """Return some batches, and some rows of A."""
        return Operand(
            codes=part_of(self.codes, block),
            step=self.step,
            scale=part_of(self.scale, block),
            energy=part_of(self.energy, block),
            halves=None if self.halves is None else self.halves.rows(block),
        )

    def in_blocks(self, count: int, size: int) -> Operand:
        """Return so many blocks of so many rows of a single matrix, [count, size, K], without halves."""
        codes, scale, energy = (
            x[0, : count * size].unflatten(0, (count, size)) for x in (self.codes, self.scale, self.energy)
        )
        return Operand(codes=codes, step=self.step, scale=scale, energy=energy)

    def multiplies_integers(self, other: Operand) -> bool:
        """Return whether codes are multiplied as whole numbers of 8 bits, or as halves of such."""
        if self.halves is not None and other.halves is not None:
            return True
        return self.codes.dtype == other.codes.dtype == torch.int8

    def some(self, rows: slice) -> Rows:
        """Return rows of a single matrix as a matrix unit takes them."""
        return Rows(self.matrices, self.tiles, rows)

    @property
    def values(self) -> torch.Tensor:
        """What the codes stand for, in the operand's own unit."""
        return self.codes * (self.step * self.scale)


def cut(operand: Operand, codes: torch.Tensor, summed_dim: int) -> Operand:
    """Return a part of an operand, with the energy of that part."""
    energy = codes.to(operand.energy.dtype).square().sum(summed_dim, keepdim=True)
    return replace(operand, codes=codes, energy=energy, halves=None, tiles=None)


def largest_code(bits: float) -> int:
    """Return the largest code of a symmetric signed converter."""
    return max(1, math.floor(2.0 ** (bits - 1.0)) - 1)


def multiply(a: Operand, b: Operand, block: Block | None = None) -> CodeProduct:
    """Return the exact product of codes, or a block of it, in memory that the next product uses again."""
    if block is None:
        block = whole(a.codes.shape)
    if a.multiplies_integers(b):
        if b.tiles is not None:
            known = multiply_tiles(a.some(block[1]), b.tiles)
            if known is not None:
                return known
        if a.halves is not None and b.halves is not None:
            return multiply_matrices(a.halves.factors(block[1]), b.halves.factors(_ALL))
        return multiply_matrices((a.codes[0, block[1]],), (b.codes[0],))
    a_codes, b_codes = (x.codes.to(x.energy.dtype) for x in (a, b))
    return multiply_codes(part_of(a_codes, block), part_of(b_codes, block[:1]))
