"""How products come out of electronics: exactly, or in bfloat16 as a matrix engine delivers them.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class ExactNumerics:
    """Products as torch computes them in the operands' own precision; the reference of every comparison."""

    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product, shape [B, M, N].

        Parameters
        ----------
        a_BMK, b_BKN : torch.Tensor
            Operands, shapes [B, M, K] and [B, K, N].
        key : int
            Not used: nothing is random.
        """
        del key
        return torch.bmm(a_BMK, b_BKN)


@dataclass(frozen=True)
class BfloatNumerics:
    """Products of a bfloat16 matrix engine: operands and result rounded to bfloat16, sums kept in float32.

    Notes
    -----
    Rounding is to nearest even. A product of two bfloat16 numbers is exact in float32, so that the float32
    product of the rounded operands is what an engine with float32 accumulators computes, up to the order of
    its sums. That order is the library's; on real engines it differs by a few float32 units.

    References
    ----------
    NVIDIA H100 Tensor Core GPU Architecture, whitepaper V1.04, section "H100 Tensor Core architecture": BF16
    input, FP32 accumulation.
    """

    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product, shape [B, M, N], in the type of A; every value is a bfloat16 one.

        Parameters
        ----------
        a_BMK, b_BKN : torch.Tensor
            Operands, shapes [B, M, K] and [B, K, N].
        key : int
            Not used: rounding is to nearest.
        """
        del key
        a = a_BMK.to(torch.bfloat16).to(torch.float32)
        b = b_BKN.to(torch.bfloat16).to(torch.float32)
        return torch.bmm(a, b).to(torch.bfloat16).to(a_BMK.dtype)


@dataclass(frozen=True)
class Float8Numerics:
    """Products of an 8-bit engine: operands in E4M3 with one scale per tensor, result rounded to bfloat16.

    Notes
    -----
    The scale puts the largest element at 448, the largest number of the format, as it stands in the tensor at
    hand: recipes that take it from earlier steps are a little worse. Sums are kept in float32.

    References
    ----------
    Micikevicius et al., "FP8 formats for deep learning", arXiv:2209.05433 (2022), table 1.
    """

    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product, shape [B, M, N], in the type of A; every value is a bfloat16 one.

        Parameters
        ----------
        a_BMK, b_BKN : torch.Tensor
            Operands, shapes [B, M, K] and [B, K, N].
        key : int
            Not used: rounding is to nearest.
        """
        del key
        (a, a_scale), (b, b_scale) = _float8(a_BMK), _float8(b_BKN)
        return torch.bmm(a, b).mul_(a_scale * b_scale).to(torch.bfloat16).to(a_BMK.dtype)


LARGEST_E4M3 = 448.0
"""Largest number of the format (Micikevicius et al. 2022, table 1)."""


def _float8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a tensor rounded to E4M3 in units of its scale, and the scale."""
    scale = (x.abs().amax() / LARGEST_E4M3).clamp_(min=torch.finfo(torch.float32).tiny)
    return (x / scale).to(torch.float8_e4m3fn).to(torch.float32), scale
