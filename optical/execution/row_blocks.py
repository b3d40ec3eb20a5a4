"""Executes a product row block by row block: each has a gain and draws of its own, all share the codes of B.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from optical.execution.analog import AnalogSpec, Rounding, Scale, loads_second
from optical.execution.block_scales import SharedBlocks, multiply_blocks
from optical.execution.draws import Blocks, Draws
from optical.execution.encoding import Orders, encode, encode_blocks
from optical.execution.fused_batches import deliver_blocks, deliver_rows
from optical.execution.numerics import AnalogNumerics, is_exact
from optical.execution.operand_blocks import Target, part_of
from optical.execution.operands import Operand
from optical.execution.weight_codes import kept_codes
from simulator.keys import mix_key

_ALL = slice(0, 2**62)
_MOST_AT_ONCE = 2**20
"""Elements of an operand that are coded at once, whose codes stay in cache from block to block."""
_SHARED = -1
"""Stands in a key where the number of a row block would, for draws that all of them share."""


@dataclass(frozen=True, kw_only=True)
class RowBlocks:
    """How a product is cut, and where its draws come from."""

    key: int
    """Source of all draws."""
    place: tuple[int, ...]
    """What tells the product from others of the key."""
    first: int
    """Number of the first block in the global batch."""
    size: int
    """Rows of a block; matrices, where the batch has several."""
    sums_rows: bool
    """Whether the rows are summed over, so that results of blocks are added."""
    keeps_codes: bool
    """Whether codes of B may be kept for later calls."""
    exact_tiles: bool = False
    """Whether every analog sample of a sum is executed."""
    orders: Orders = (None, None)
    """Orders of the draws of A and of B."""

    def parts(self, count: int) -> Iterator[tuple[int, slice]]:
        """Yield the key and the place of each block."""
        for number, start in enumerate(range(0, count, self.size)):
            yield self.key_of(self.first + number), slice(start, min(start + self.size, count))

    def key_of(self, number: int) -> int:
        """Return the key of a block's draws."""
        return mix_key(self.key, *self.place, number)


def multiply_in_blocks(
    a_BMK: torch.Tensor, b_BKN: torch.Tensor, spec: AnalogSpec, blocks: RowBlocks
) -> torch.Tensor:
    """Return the product, shape [B, M, N].

    Parameters
    ----------
    a_BMK, b_BKN : torch.Tensor
        Operands, shapes [B, M, K] and [B, K, N].
    spec : AnalogSpec
        What the core makes of a product.
    blocks : RowBlocks
        How it is cut.

    Notes
    -----
    B is loaded, or streamed, once for all row blocks: its stochastic rounding and its errors of loading are
    drawn from a key without the block's number. Per-block partial sums of a gradient are added digitally.
    """
    numerics, (batch, rows, length) = AnalogNumerics(spec, blocks.exact_tiles), a_BMK.shape
    if is_exact(spec):
        return numerics.matmul(a_BMK, b_BKN, 0)
    if batch > 1:
        if blocks.size >= batch:
            return numerics.matmul(a_BMK, b_BKN, blocks.key_of(blocks.first), blocks.orders)
        return _multiply_matrices(a_BMK, b_BKN, numerics, blocks)
    if blocks.sums_rows:
        total = None
        for key, part in blocks.parts(length):
            target = None if total is None else Target(total, adds=True)
            a_part, b_part = part_of(a_BMK, (_ALL, _ALL, part)), part_of(b_BKN, (_ALL, part))
            total = numerics.matmul(a_part, b_part, key, blocks.orders, target)
        return a_BMK.new_zeros((1, rows, b_BKN.shape[2])) if total is None else total
    second = bool(loads_second(min(blocks.size, rows), b_BKN.shape[2]))
    c_BMN = a_BMK.new_empty((1, rows, b_BKN.shape[2]))
    if spec.scale is Scale.BLOCK:
        shared = SharedBlocks.of(b_BKN, spec, Draws(blocks.key_of(_SHARED), b_BKN.device), loaded=second)
        for key, part in blocks.parts(rows):
            draws = Draws(key, a_BMK.device)
            c_BMN[:, part] = multiply_blocks(a_BMK[:, part], b_BKN, spec, draws, shared)
        return c_BMN
    b = _coded(b_BKN, spec, blocks, loaded=second)
    all_a = _coded_alike(a_BMK, -1, spec, "first") if rows > blocks.size else None
    parts = list(blocks.parts(rows))
    done = 0 if blocks.exact_tiles else _deliver_rows(a_BMK, all_a, b, spec, (blocks, c_BMN))
    for key, part in parts[done:]:
        draws = Draws(key, a_BMK.device)
        if all_a is None:
            rows_a = part_of(a_BMK, (_ALL, part))
            a = encode(rows_a, -1, spec, draws, loaded=not second, use="first", order=blocks.orders[0])
        else:
            a = all_a.at((_ALL, part))
        numerics.multiply(a, b, draws, target=Target(part_of(c_BMN, (_ALL, part)), adds=False))
    return c_BMN


def _deliver_rows(
    a_BMK: torch.Tensor,
    all_a: Operand | None,
    b: Operand,
    spec: AnalogSpec,
    out: tuple[RowBlocks, torch.Tensor],
) -> int:
    """Write products of blocks of rows, coded already or not; return of how many, from the first."""
    (blocks, c_BMN), (_, rows, length) = out, a_BMK.shape
    count = rows // blocks.size
    if count < 2 or b.tiles is None:
        return 0
    drawn = Blocks(blocks.size, [blocks.key_of(blocks.first + number) for number in range(count)], 0)
    part = slice(0, count * blocks.size)
    a = None if all_a is None else all_a.in_blocks(count, blocks.size)
    if a is None:
        x, order = a_BMK[0, part].unflatten(0, (count, blocks.size)), blocks.orders[0]
        each = Blocks(1, drawn.keys, 0)
        a = encode_blocks(x, -1, spec, each, use="first", order=order, joined=True)
        drawn = drawn.after(length)
    return 0 if a is None else deliver_rows(spec, (a, b), drawn, c_BMN)


def _multiply_matrices(
    a_BMK: torch.Tensor, b_BKN: torch.Tensor, numerics: AnalogNumerics, blocks: RowBlocks
) -> torch.Tensor:
    """Return the product of several matrices, block by block of them."""
    batch, rows, _ = a_BMK.shape
    c_BMN, parts = a_BMK.new_empty((batch, rows, b_BKN.shape[2])), list(blocks.parts(batch))
    spec, keys = numerics.spec, [key for key, _ in parts]
    all_a = _coded_alike(a_BMK, -1, spec, "first")
    all_b = None if all_a is None else _coded_alike(b_BKN, -2, spec, "second")
    if all_a is None or all_b is None:
        done = 0 if numerics.exact_tiles else _deliver_drawn((a_BMK, b_BKN), spec, blocks, keys, c_BMN)
        for key, at in parts[done:]:
            c_BMN[at] = numerics.matmul(a_BMK[at], b_BKN[at], key, blocks.orders)
        return c_BMN
    done = 0
    if not numerics.exact_tiles:
        done = deliver_blocks(spec, (all_a, all_b), Blocks(blocks.size, keys, 0), c_BMN)
    for key, part in parts[done:]:
        a, b = all_a.at((part, _ALL)), all_b.at((part, _ALL))
        c_BMN[part] = numerics.multiply(a, b, Draws(key, a_BMK.device))
    return c_BMN


def _deliver_drawn(
    operands: tuple[torch.Tensor, torch.Tensor],
    spec: AnalogSpec,
    blocks: RowBlocks,
    keys: list[int],
    c_BMN: torch.Tensor,
) -> int:
    """Write products of blocks whose codes are drawn; return of how many, from the first."""
    a_BMK, b_BKN = operands
    (batch, rows, length), columns = a_BMK.shape, b_BKN.shape[2]
    at_once = _MOST_AT_ONCE // (blocks.size * length * max(rows, columns))
    done = 0
    while at_once > 0 and done < batch // blocks.size:
        count = min(at_once, batch // blocks.size - done)
        part = slice(done * blocks.size, (done + count) * blocks.size)
        drawn = Blocks(blocks.size, keys[done : done + count], 0)
        a = encode_blocks(a_BMK[part], -1, spec, drawn, use="first", order=blocks.orders[0])
        drawn = drawn.after(rows * length)
        b = encode_blocks(b_BKN[part], -2, spec, drawn, use="second", order=blocks.orders[1])
        if a is None or b is None:
            return done
        found = deliver_blocks(spec, (a, b), drawn.after(length * columns), c_BMN[part])
        done += found
        if found < count:
            return done
    return done


def _coded_alike(x: torch.Tensor, summed_dim: int, spec: AnalogSpec, use: str) -> Operand | None:
    """Return the codes of an operand for all blocks, or None where a block's codes are its own, or many."""
    drawn = spec.rounding is Rounding.STOCHASTIC or spec.load_variance > 0.0
    if drawn or spec.scale is not Scale.ROW or x.numel() > _MOST_AT_ONCE:
        return None
    return encode(x, summed_dim, spec, Draws(0, x.device), loaded=False, use=use)


def _coded(b_BKN: torch.Tensor, spec: AnalogSpec, blocks: RowBlocks, *, loaded: bool) -> Operand:
    """Return the codes of B, which all row blocks share."""

    def encode_anew(into: Operand | None, use: str = "") -> Operand:
        draws = Draws(blocks.key_of(_SHARED), b_BKN.device)
        return encode(b_BKN, -2, spec, draws, loaded=loaded, use=use, order=blocks.orders[1], into=into)

    drawn = spec.rounding is Rounding.STOCHASTIC or spec.load_variance > 0.0
    if drawn or not blocks.keeps_codes:
        return encode_anew(None, "second")
    return kept_codes(b_BKN, (spec.dac_bits, spec.scale, spec.needs_energy), encode_anew)
