"""Products of matrix engines in bfloat16, 8-bit and 4-bit formats, executed in torch for training.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

import torch

from electronic.formats import FORMATS, ElementFormat, element_format
from simulator.errors import check_choices


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
        """Return the product, shape [B, M, N], in the type of A; every value is a bfloat16 one."""
        del key
        a = a_BMK.to(torch.bfloat16).to(torch.float32)
        b = b_BKN.to(torch.bfloat16).to(torch.float32)
        return torch.bmm(a, b).to(torch.bfloat16).to(a_BMK.dtype)


class Float8(StrEnum):
    """An 8-bit floating-point format."""

    E4M3 = "e4m3"
    """Three bits of mantissa; for weights and activations."""
    E5M2 = "e5m2"
    """Two bits of mantissa and more range; for gradients."""


class Float8Scale(StrEnum):
    """Elements of an operand that share one scale."""

    TENSOR = "tensor"
    ROW = "row"
    """Each row of A and each column of B."""


INT8_LARGEST = 127.0
"""Largest 8-bit code of a range symmetric about zero."""
LARGEST: Mapping[Float8, float] = MappingProxyType({one: element_format(one.value).largest for one in Float8})
"""Largest number of each format (Micikevicius et al. 2022, table 1)."""


@dataclass(frozen=True, kw_only=True)
class Float8Numerics:
    """Products of an 8-bit engine: operands in 8 bits with scales of their own, result rounded to bfloat16.

    Notes
    -----
    A scale makes the largest of its elements the largest number of the format, by the present tensor; recipes
    that take it from earlier steps are slightly worse. Sums are in float32; tensor cores of Hopper keep about
    14 bits of them (DeepSeek-AI, section 3.3.2), which is not modelled.

    References
    ----------
    DeepSeek-AI, "DeepSeek-V3 technical report", arXiv:2412.19437 (2024).

    Micikevicius et al., "FP8 formats for deep learning", arXiv:2209.05433 (2022), table 1; section 3 has E4M3
    for weights and activations, and E5M2 for gradients.
    """

    a_format: Float8 = Float8.E4M3
    """Format of the first operand."""
    b_format: Float8 = Float8.E4M3
    """Format of the second operand."""
    scale: Float8Scale = Float8Scale.TENSOR
    """Elements that share a scale."""

    def __post_init__(self) -> None:
        check_choices(self)

    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product, shape [B, M, N], in the type of A; every value is a bfloat16 one."""
        del key
        (a, a_scale), (b, b_scale) = self._rounded(a_BMK, b_BKN)
        return torch.bmm(a, b).mul_(a_scale * b_scale).to(torch.bfloat16).to(a_BMK.dtype)

    def set_operands(
        self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return both operands as they are multiplied, rounded and scaled back."""
        del key
        (a, a_scale), (b, b_scale) = self._rounded(a_BMK, b_BKN)
        return a.mul_(a_scale).to(a_BMK.dtype), b.mul_(b_scale).to(b_BKN.dtype)

    def entering(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return both operands before they are rounded."""
        return a_BMK, b_BKN

    def full_scales(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the distance of neighbouring numbers at each element of A and B, by which errors scale."""
        (_, a_scale), (_, b_scale) = self._rounded(a_BMK, b_BKN)
        of_a, of_b = (element_format(form.value) for form in (self.a_format, self.b_format))
        return _steps(a_BMK / a_scale, of_a).mul_(a_scale), _steps(b_BKN / b_scale, of_b).mul_(b_scale)

    def _rounded(
        self, a_BMK: torch.Tensor, b_BKN: torch.Tensor
    ) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
        """Return both operands rounded, in units of their scale, each with its scale."""
        rows = self.scale is Float8Scale.ROW
        return _float8(a_BMK, self.a_format, 2 if rows else None), _float8(
            b_BKN, self.b_format, 1 if rows else None
        )


def _steps(x: torch.Tensor, form: ElementFormat) -> torch.Tensor:
    """Return the distance of neighbouring numbers of a format at each element."""
    exponent = (torch.frexp(x).exponent - 1).clamp_(min=int(2.0 - 2.0 ** (form.exponent_bits - 1.0)))
    return torch.exp2(exponent - form.mantissa_bits).to(x.dtype)


def _float8(x: torch.Tensor, form: Float8, summed_dim: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a tensor rounded to a format in units of its scale, and the scale.

    The scale is one per vector along `summed_dim`, or a single one if that is None.
    """
    x = x.to(torch.float32)
    size = x.abs()
    largest = size.amax() if summed_dim is None else size.amax(summed_dim, keepdim=True)
    scale = (largest / LARGEST[form]).clamp_(min=torch.finfo(torch.float32).tiny)
    kind = torch.float8_e4m3fn if form is Float8.E4M3 else torch.float8_e5m2
    return (x / scale).to(kind).to(torch.float32), scale


def float8_passes(
    scale: Float8Scale = Float8Scale.TENSOR,
) -> tuple[Float8Numerics, Float8Numerics, Float8Numerics]:
    """Return the numerics of fp8 training: forward, input gradient and weight gradient, gradients in E5M2."""
    return (
        Float8Numerics(scale=scale),
        Float8Numerics(a_format=Float8.E5M2, scale=scale),
        Float8Numerics(b_format=Float8.E5M2, scale=scale),
    )


@dataclass(frozen=True)
class Int8Numerics:
    """Products of an 8-bit integer engine, with a scale per row of A and column of B, and exact sums.

    References
    ----------
    Accurate Quantized Training (AQT, Google), which rounds both operands of all passes so.
    """

    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product, shape [B, M, N], in the type of A; every value is a bfloat16 one."""
        del key
        a, a_scale = _int8(a_BMK, summed_dim=2)
        b, b_scale = _int8(b_BKN, summed_dim=1)
        return torch.bmm(a, b).mul_(a_scale * b_scale).to(torch.bfloat16).to(a_BMK.dtype)


def _int8(x: torch.Tensor, summed_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a tensor's codes, -127 to 127, and the scale of each vector along the summed dimension."""
    x = x.to(torch.float32)
    scale = (x.abs().amax(summed_dim, keepdim=True) / INT8_LARGEST).clamp_(
        min=torch.finfo(torch.float32).tiny
    )
    return (x / scale).round_(), scale


@dataclass(frozen=True)
class Mxfp8Numerics:
    """Products in MXFP8: E4M3 elements in blocks of 32 along the sum, each with a power of two as its scale.

    Notes
    -----
    Scales are rounded up, so that no element is clipped; sums are float32.
    `electronic.formats` has the same format, executed in numpy and predicted.

    References
    ----------
    OCP Microscaling Formats (MX) Specification v1.0 (2023); E4M3 in all products as in Transformer Engine's
    MXFP8 recipe.
    """

    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product, shape [B, M, N], in the type of A; every value is a bfloat16 one."""
        del key
        a, b = _mxfp8(a_BMK), _mxfp8(b_BKN.mT)
        return torch.bmm(a, b.mT).to(torch.bfloat16).to(a_BMK.dtype)


def _mxfp8(x_BRK: torch.Tensor) -> torch.Tensor:
    """Return an operand rounded to mxfp8 with blocks along the last dimension, shape [B, R, K]."""
    length, block = x_BRK.shape[-1], FORMATS["mxfp8"].block
    x = torch.nn.functional.pad(x_BRK.to(torch.float32), (0, -length % block)).unflatten(-1, (-1, block))
    largest = x.abs().amax(-1, keepdim=True).clamp_(min=torch.finfo(torch.float32).tiny)
    scale = torch.exp2(torch.ceil(torch.log2(largest / LARGEST[Float8.E4M3])))
    rounded = (x / scale).to(torch.float8_e4m3fn).to(torch.float32) * scale
    return rounded.flatten(-2)[..., :length]


@dataclass(frozen=True, kw_only=True)
class Nvfp4Numerics:
    """Products in NVFP4: E2M1 elements in blocks of 16 along the sum, each with a scale in E4M3.

    Notes
    -----
    A float32 scale of the tensor makes the largest scale of a block 448. Operands are rounded to nearest,
    gradients (`stochastic`) stochastically. Weights may share a scale over squares of 16 by 16, so that
    forward and backward products use the same numbers. The rotation of operands of the weight gradient in
    published recipes (NVIDIA, arXiv:2509.25149) is not modelled. Results stay in float32; bfloat16 would add
    less than a thousandth of the noise. `electronic.formats` has the same formats, executed in numpy with
    results in bfloat16, and predicted.
    """

    stochastic: tuple[bool, bool] = (False, False)
    """Whether the first and the second operand are rounded stochastically."""
    square_weights: bool = False
    """Whether the second operand, then a weight, has scales per square of 16 by 16."""

    @torch.no_grad()
    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product, shape [B, M, N], in the type of A."""
        generator = torch.Generator(a_BMK.device).manual_seed(key % 2**63)
        a = _nvfp4(a_BMK, generator if self.stochastic[0] else None, 1)
        lines = _NVFP4_BLOCK if self.square_weights else 1
        b = _nvfp4(b_BKN.mT, generator if self.stochastic[1] else None, lines)
        return torch.bmm(a, b.mT).to(a_BMK.dtype)


def nvfp4_passes(*, square_weights: bool = False) -> tuple[Nvfp4Numerics, Nvfp4Numerics, Nvfp4Numerics]:
    """Return the numerics of nvfp4 training: forward, input gradient and weight gradient.

    Gradients are rounded stochastically.
    """
    return (
        Nvfp4Numerics(square_weights=square_weights),
        Nvfp4Numerics(stochastic=(True, False), square_weights=square_weights),
        Nvfp4Numerics(stochastic=(False, True)),
    )


_E2M1_LARGEST, _NVFP4_BLOCK = FORMATS["nvfp4"].element.largest, FORMATS["nvfp4"].block


def _nvfp4(x_BRK: torch.Tensor, dither: torch.Generator | None, lines: int) -> torch.Tensor:
    """Return an operand rounded to nvfp4, shape [B, R, K], stochastically with a `dither` generator.

    Blocks are 16 elements along the last dimension and `lines` rows high.
    """
    rows, length = x_BRK.shape[-2:]
    padded = torch.nn.functional.pad(x_BRK.to(torch.float32), (0, -length % _NVFP4_BLOCK, 0, -rows % lines))
    x = padded.unflatten(-1, (-1, _NVFP4_BLOCK)).unflatten(-3, (-1, lines))
    largest = x.abs().amax((-3, -1), keepdim=True)
    unit = (largest.amax() / (_E2M1_LARGEST * LARGEST[Float8.E4M3])).clamp_(
        min=torch.finfo(torch.float32).tiny
    )
    scale = (largest / _E2M1_LARGEST / unit).to(torch.float8_e4m3fn).to(torch.float32) * unit
    size = torch.where(scale > 0.0, x.abs() / scale, 0.0).clamp_(max=_E2M1_LARGEST)
    step = torch.where(size < 2.0, 0.5, torch.where(size < 4.0, 1.0, 2.0))
    codes = size / step
    if dither is None:
        codes = codes.round()
    else:
        codes = (codes + torch.rand(codes.shape, generator=dither, device=codes.device)).floor()
    rounded = (codes * step).clamp_(max=_E2M1_LARGEST).copysign(x) * scale
    return rounded.flatten(-2).flatten(-3, -2)[..., :rows, :length]
