"""Instructions of Intel's Advanced Matrix Extensions for compiled functions, and whether a CPU has them.

A tile is 16 rows of 64 bytes, one of eight registers. The product of two tiles sums over 64 codes of int8:
the first holds a row of A in each row, the second four rows of B in each, interleaved, so that its column n
is the bytes 4 n to 4 n + 3.

References
----------
Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.
"""

from __future__ import annotations

import ctypes
import functools
import platform
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from optical.execution.fused_numbers import BYTES, ROWS

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
"""System call of Linux on x86-64, ARCH_REQ_XCOMP_PERM, and the part of a thread's state that tiles are."""
_BYTE, _NUMBER, _LONG = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_PAIR = ir.IntType(16)
_ROW = ir.VectorType(_NUMBER, ROWS)
Unknown = Any
"""What a type checker knows nothing of: values of the compiler's and of compiled functions."""


@functools.cache
def is_there() -> bool:
    """Return whether the CPU has the instructions and the system lets this process use them."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    features = str(cpu_target.target_context.codegen().magic_tuple()[2]).split(",")
    if not {"+amx-tile", "+amx-int8", "+avx512f", "+avx512bw"} <= set(features):
        return False
    call = ctypes.CDLL(None).syscall
    return int(call(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)) == 0


@functools.cache
def shapes() -> np.ndarray:
    """Return what `configure` is told: that all tiles are whole ones."""
    palette = np.zeros(64, np.uint8)
    palette[0] = 1
    palette[16:32].view(np.uint16)[:] = BYTES
    palette[48:56] = ROWS
    return palette


_Write = Callable[[Unknown, Sequence[Unknown]], None]


def _nothing(write: _Write) -> Unknown:
    """Return what generates code that returns nothing."""

    def generate(context: Unknown, builder: Unknown, signature: Unknown, arguments: Unknown) -> Unknown:
        del signature
        write(builder, arguments)
        return context.get_dummy_value()

    return generate


def _instruction(builder: Unknown, name: str, *arguments: Unknown) -> None:
    kind = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.{name}"), arguments)


def _numbered(*tiles: Unknown) -> list[Unknown] | None:
    """Return constants for tiles, or None while the compiler has not found that they are constant."""
    if not all(isinstance(tile, types.IntegerLiteral) for tile in tiles):
        return None
    return [ir.Constant(_BYTE, tile.literal_value) for tile in tiles]


def _bytes_at(builder: Unknown, address: Unknown) -> Unknown:
    return builder.inttoptr(address, _BYTE.as_pointer())


@intrinsic  # type: ignore[untyped-decorator]
def _configure(typing: Unknown, address: Unknown) -> Unknown:
    """Set up a thread's tiles (`shapes`)."""
    del typing
    write = _nothing(lambda builder, given: _instruction(builder, "ldtilecfg", _bytes_at(builder, given[0])))
    return types.void(address), write


@intrinsic  # type: ignore[untyped-decorator]
def _release(typing: Unknown) -> Unknown:
    """Give a thread's tiles up."""
    del typing
    return types.void(), _nothing(lambda builder, _: _instruction(builder, "tilerelease"))


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def _clear(typing: Unknown, tile: Unknown) -> Unknown:
    """Set a tile to zero."""
    del typing
    tiles = _numbered(tile)
    return tiles and (
        types.void(tile),
        _nothing(lambda builder, _: _instruction(builder, "tilezero", *tiles)),
    )


def _moved(name: str, tile: Unknown, address: Unknown, step: Unknown) -> Unknown:
    tiles = _numbered(tile)

    def write(builder: Unknown, given: Sequence[Unknown]) -> None:
        _instruction(builder, name, *(tiles or ()), _bytes_at(builder, given[1]), given[2])

    return tiles and (types.void(tile, address, step), _nothing(write))


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def _load(typing: Unknown, tile: Unknown, address: Unknown, step: Unknown) -> Unknown:
    """Read a tile whose rows lie a step apart, in bytes."""
    del typing
    return _moved("tileloadd64", tile, address, types.int64 if isinstance(step, types.Literal) else step)


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def _store(typing: Unknown, tile: Unknown, address: Unknown, step: Unknown) -> Unknown:
    """Write a tile, int32 [16, 16], whose rows lie a step apart, in bytes."""
    del typing
    return _moved("tilestored64", tile, address, types.int64 if isinstance(step, types.Literal) else step)


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def _multiply(typing: Unknown, out: Unknown, first: Unknown, second: Unknown) -> Unknown:
    """Add the product of two tiles of int8 to a tile of int32."""
    del typing
    tiles = _numbered(out, first, second)
    write = _nothing(lambda builder, _: _instruction(builder, "tdpbssd", *(tiles or ())))
    return tiles and (types.void(out, first, second), write)


def _row(builder: Unknown, address: Unknown, step: Unknown, number: int, kind: Unknown) -> Unknown:
    place = builder.add(address, builder.mul(step, ir.Constant(_LONG, number)))
    row = builder.load(builder.inttoptr(place, kind.as_pointer()))
    row.align = 1
    return row


def _write_tile(builder: Unknown, rows: Sequence[Unknown], address: Unknown) -> None:
    for number, row in enumerate(rows):
        place = builder.add(address, ir.Constant(_LONG, number * BYTES))
        written = builder.store(row, builder.inttoptr(place, _ROW.as_pointer()))
        written.align = 1


def _shuffled(builder: Unknown, two: Sequence[Unknown], places: Sequence[int]) -> Unknown:
    mask = ir.Constant(ir.VectorType(_NUMBER, len(places)), list(places))
    return builder.shuffle_vector(*two, mask)


def _transposed(builder: Unknown, rows: Sequence[Unknown]) -> list[Unknown]:
    """Return the columns of 16 rows of 16 numbers: ever larger blocks off the diagonal change places."""
    rows, width = list(rows), 1
    while width < ROWS:
        upper = [place if not place & width else ROWS + place - width for place in range(ROWS)]
        lower = [place + width if not place & width else ROWS + place for place in range(ROWS)]
        for number in range(ROWS):
            if not number & width:
                pair = rows[number], rows[number + width]
                rows[number] = _shuffled(builder, pair, upper)
                rows[number + width] = _shuffled(builder, pair, lower)
        width *= 2
    return rows


def _interleaved(builder: Unknown, address: Unknown, step: Unknown, number: int) -> Unknown:
    """Return 16 codes of each of four rows, by fours."""
    kind, pairs = ir.VectorType(_BYTE, ROWS), ir.VectorType(_PAIR, ROWS)
    rows = [_row(builder, address, step, 4 * number + one, kind) for one in range(4)]
    order = [place // 2 + ROWS * (place % 2) for place in range(2 * ROWS)]
    halves = tuple(builder.bitcast(_shuffled(builder, two, order), pairs) for two in (rows[:2], rows[2:]))
    return builder.bitcast(_shuffled(builder, halves, order), _ROW)


@intrinsic  # type: ignore[untyped-decorator]
def _turn(typing: Unknown, source: Unknown, step: Unknown, out: Unknown) -> Unknown:
    """Write a tile of B from its transpose: 16 columns of B, of 64 codes each, a step apart."""
    del typing

    def write(builder: Unknown, given: Sequence[Unknown]) -> None:
        rows = [_row(builder, given[0], given[1], number, _ROW) for number in range(ROWS)]
        _write_tile(builder, _transposed(builder, rows), given[2])

    return types.void(source, step, out), _nothing(write)


def _tile_of(builder: Unknown, given: Sequence[Unknown], *, turned: bool) -> None:
    """Write a tile of 64 rows of 16 codes, interleaved, or its transpose."""
    rows = [_interleaved(builder, given[0], given[1], number) for number in range(ROWS)]
    _write_tile(builder, _transposed(builder, rows) if turned else rows, given[2])


@intrinsic  # type: ignore[untyped-decorator]
def _interleave(typing: Unknown, source: Unknown, step: Unknown, out: Unknown) -> Unknown:
    """Write a tile of B: 64 rows of B, of 16 codes each, a step apart."""
    del typing
    return types.void(source, step, out), _nothing(functools.partial(_tile_of, turned=False))


@intrinsic  # type: ignore[untyped-decorator]
def _gather(typing: Unknown, source: Unknown, step: Unknown, out: Unknown) -> Unknown:
    """Write a tile of A from its transpose: 64 columns of A, of 16 codes each, a step apart."""
    del typing
    return types.void(source, step, out), _nothing(functools.partial(_tile_of, turned=True))


configure: Unknown = _configure
release: Unknown = _release
clear: Unknown = _clear
load: Unknown = _load
store: Unknown = _store
multiply: Unknown = _multiply
turn: Unknown = _turn
interleave: Unknown = _interleave
gather: Unknown = _gather
