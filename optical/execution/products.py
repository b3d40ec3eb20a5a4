"""Exact products of codes: in int8 arithmetic where that is exact and quicker, of two halves beyond 8 bits.

Shape suffixes: B matrices, M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import functools

import torch

_LARGEST_INT8_CODE = 127
_RADIX_BITS = 7
_RADIX = 2**_RADIX_BITS
"""One step of a code's upper half, in steps of the code."""
_LARGEST_HALVED_CODE = 2**13 - 1
"""Codes of at most 14 bits have halves of at most 64, whose sum an int8 holds."""
_LONGEST_INT8_SUM = 2**16
"""Products of int8 codes whose sum, of twice as many, an int32 is sure to hold."""


def code_type(x: torch.Tensor, length: int, levels: int | None) -> torch.dtype:
    """Return the type of codes that makes their product quickest, and exact as far as float32 is.

    Parameters
    ----------
    x : torch.Tensor
        Operand.
    length : int
        Products of a sum.
    levels : int or None
        Largest code; None where codes are not whole, or products of many small matrices.

    Returns
    -------
    torch.dtype
        int8, int16 for a product of halves, or the operand's own.
    """
    usual = x.device.type == "cpu" and x.dtype == torch.float32
    if not usual or levels is None or length > _LONGEST_INT8_SUM or levels > _LARGEST_HALVED_CODE:
        return x.dtype
    if not has_exact_int8_products():
        return x.dtype
    return torch.int8 if levels <= _LARGEST_INT8_CODE else torch.int16


def multiply(a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> torch.Tensor:
    """Return the product of codes, [B, M, N]: int32 of int8 codes, else floating point.

    Parameters
    ----------
    a_BMK : torch.Tensor
        Codes of A, [B, M, K].
    b_BKN : torch.Tensor
        Codes of B, [B, K, N], or [1, K, N] for all.
    """
    if a_BMK.dtype == b_BKN.dtype == torch.int8:
        return _int8_product(a_BMK, b_BKN)
    if a_BMK.dtype == b_BKN.dtype == torch.int16:
        return _halved_product(a_BMK, b_BKN)
    dtype = torch.promote_types(torch.promote_types(a_BMK.dtype, b_BKN.dtype), torch.float32)
    a_BMK, b_BKN = a_BMK.to(dtype), b_BKN.to(dtype)
    if b_BKN.shape[0] == 1:
        return (a_BMK.flatten(0, 1) @ b_BKN[0]).unflatten(0, a_BMK.shape[:2])
    return a_BMK.bmm(b_BKN)


def _int8_product(a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> torch.Tensor:
    """Return the product of int8 codes, int32; matrices by one B are rows of one."""
    batch, rows, _ = a_BMK.shape
    if b_BKN.shape[0] == 1:
        return torch._int_mm(_dense(a_BMK.flatten(0, 1)), _dense(b_BKN[0])).unflatten(0, (batch, rows))
    out = torch.empty((batch, rows, b_BKN.shape[2]), dtype=torch.int32)
    for a, b, c in zip(a_BMK, b_BKN, out, strict=True):
        torch._int_mm(_dense(a), _dense(b), out=c)
    return out


def _halved_product(a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> torch.Tensor:
    """Return the product of int16 codes, float32, by three products of halves.

    With ``a = R a1 + a0`` and ``b = R b1 + b0`` it is ``R^2 a1 b1 + R (a1 b0 + a0 b1) + a0 b0``, and the
    crossed terms are ``(a1 + a0)(b1 + b0) - a1 b1 - a0 b0``: one product in place of two (Karatsuba, 1962).
    """
    (a_high, a_low), (b_high, b_low) = _halves(a_BMK), _halves(b_BKN)
    high, low = _int8_product(a_high, b_high), _int8_product(a_low, b_low)
    crossed = _int8_product(a_high + a_low, b_high + b_low).sub_(high).sub_(low)
    product = high.float().mul_(_RADIX).add_(crossed).mul_(_RADIX)
    return product.add_(low)


def _halves(codes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return high and low of ``_RADIX high + low``, int8, low from -64 to 63."""
    high = (codes + _RADIX // 2).bitwise_right_shift_(_RADIX_BITS).to(torch.int8)
    return high, codes.to(torch.int8).sub_(high << _RADIX_BITS)  # modulo 256, of which a half has less


def _dense(codes: torch.Tensor) -> torch.Tensor:
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
