"""How functions are compiled by numba, and how they reach the memory of tensors.

Memory is given by address: to wrap a tensor as an array takes as long as a small product.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from optical.execution.fused_numbers import HEAD

Array = Any
Numbers = tuple[Any, ...]
LONG = 2**40
"""Length of memory whose end is not asked for."""
compiled = numba.njit(nogil=True, cache=True, fastmath={"reassoc", "nsz"})
_INSIDE: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""A function that only compiled ones call is compiled in half the time without what others would call."""
inside = numba.njit(nogil=True, cache=True, fastmath={"reassoc", "nsz"}, **_INSIDE)
compiled_in_order = numba.njit(nogil=True, cache=True, fastmath={"nsz"}, **_INSIDE)
"""Without a choice of its own a function would take that of its caller."""
inner = numba.njit(nogil=True, cache=True, **_INSIDE)
_callback = numba.cfunc(types.void(types.int64), cache=True)


def job(function: Callable[[int], None]) -> Callable[[], Any]:
    """Return what compiles a function once it is asked for, and returns it.

    It is one that threads run together (`optical.execution.fused_threads.Job`), told by memory at an address.
    """
    return functools.cache(lambda: _callback(function))


@intrinsic  # type: ignore[untyped-decorator]
def _address(typing: Any, address: Any) -> Any:  # noqa: ANN401
    """Return an address as a pointer."""
    del typing

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        del context, signature
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


@intrinsic  # type: ignore[untyped-decorator]
def _count_up(typing: Any, address: Any) -> Any:  # noqa: ANN401
    """Return the number at an address and add one to it, whatever other threads do at the time."""
    del typing

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        del context, signature
        number = ir.IntType(64)
        pointer = builder.inttoptr(arguments[0], number.as_pointer())
        return builder.atomic_rmw("add", pointer, ir.Constant(number, 1), "monotonic")

    return types.int64(address), generate


def _in_32_bits(result: Any, arguments: tuple[Any, ...], write: Callable[..., Any]) -> tuple[Any, Any]:  # noqa: ANN401
    """Return what an intrinsic does with numbers of 32 bits, which arithmetic of numba's makes 64 of.

    That would halve the numbers that an instruction works on.
    """

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:  # noqa: ANN401
        numbers = (
            context.cast(builder, *each) for each in zip(given, signature.args, arguments, strict=True)
        )
        return write(builder, *numbers)

    return result(*arguments), generate


@intrinsic  # type: ignore[untyped-decorator]
def _larger_magnitude(typing: Any, top: Any, bits: Any) -> Any:  # noqa: ANN401
    """Return the larger of two float32 without signs, given as int32 bits: what is no number is largest."""
    del typing, top, bits

    def write(builder: Any, known: Any, one: Any) -> Any:  # noqa: ANN401
        magnitude = builder.and_(one, ir.Constant(ir.IntType(32), 0x7FFFFFFF))
        return builder.select(builder.icmp_signed(">", known, magnitude), known, magnitude)

    return _in_32_bits(types.int32, (types.int32, types.int32), write)


@intrinsic  # type: ignore[untyped-decorator]
def _nearest(typing: Any, value: Any) -> Any:  # noqa: ANN401
    """Return the whole number nearest to a float32, even ones first, as int32; exact below 2**22.

    A large number is added, beside which a float32 has no place for fractions, and taken off its bits; for
    functions that are `compiled_in_order`, since another would add it to a part of a sum.
    """
    del typing, value
    large, bits = 1.5 * 2.0**23, 0x4B400000

    def write(builder: Any, number: Any) -> Any:  # noqa: ANN401
        whole = builder.bitcast(builder.fadd(number, ir.Constant(ir.FloatType(), large)), ir.IntType(32))
        return builder.sub(whole, ir.Constant(ir.IntType(32), bits))

    return _in_32_bits(types.int32, (types.float32,), write)


@intrinsic  # type: ignore[untyped-decorator]
def _plus(typing: Any, one: Any, other: Any) -> Any:  # noqa: ANN401
    """Return the sum of two int32, as such."""
    del typing, one, other
    return _in_32_bits(types.int32, (types.int32, types.int32), lambda builder, *both: builder.add(*both))


@intrinsic  # type: ignore[untyped-decorator]
def _remainder(typing: Any, code: Any, high: Any) -> Any:  # noqa: ANN401
    """Return ``code - 128 high`` of int32, as such."""
    del typing, code, high

    def write(builder: Any, whole: Any, upper: Any) -> Any:  # noqa: ANN401
        return builder.sub(whole, builder.shl(upper, ir.Constant(ir.IntType(32), 7)))

    return _in_32_bits(types.int32, (types.int32, types.int32), write)


@intrinsic  # type: ignore[untyped-decorator]
def _told(typing: Any, address: Any) -> Any:  # noqa: ANN401
    """Return what the function at an address does, which takes nothing and returns an int32."""
    del typing

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        del context, signature
        kind = ir.FunctionType(ir.IntType(32), [])
        number = builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [])
        return builder.sext(number, ir.IntType(64))

    return types.int64(address), generate


_pointer: Any = _address
"""The same, of which a type checker knows nothing."""
_ticket: Any = _count_up
_number: Any = _told
larger_magnitude: Any = _larger_magnitude
nearest: Any = _nearest
plus: Any = _plus
remainder: Any = _remainder


@inside
def next_part(block: int) -> tuple[int, int]:
    """Return the first and the last but one of a part of a job that no thread has taken; equal at the end.

    A thread takes its own parts first, which are the same parts of memory in one job after the other, and
    then what is left of others'.
    """
    counters, count, size, threads, each, who = numbers(block, HEAD)
    me = _number(who) if who != 0 else 0
    for further in range(threads):
        owner = (me + further) % threads
        start = (owner * each + _ticket(counters + 64 * owner)) * size
        if start < min(count, (owner + 1) * each * size):
            return start, min(start + size, count)
    return 0, 0


@inside
def numbers(address: int, count: int) -> Array:
    """Return int64 numbers at an address."""
    return numba.carray(_pointer(address), (count,), np.int64)


@inside
def doubles(address: int, count: int) -> Array:
    """Return float64 numbers at an address."""
    return numba.carray(_pointer(address), (count,), np.float64)


@inside
def floats(address: int, count: int) -> Array:
    """Return float32 numbers at an address."""
    return numba.carray(_pointer(address), (count,), np.float32)


@inside
def integers(address: int, count: int) -> Array:
    """Return int32 numbers at an address."""
    return numba.carray(_pointer(address), (count,), np.int32)


@inside
def short_integers(address: int, count: int) -> Array:
    """Return int16 numbers at an address."""
    return numba.carray(_pointer(address), (count,), np.int16)


@inside
def small_integers(address: int, count: int) -> Array:
    """Return int8 numbers at an address."""
    return numba.carray(_pointer(address), (count,), np.int8)
