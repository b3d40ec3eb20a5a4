"""Executes an `AnalogSpec` in torch: what a photonic core makes of a matrix product.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from optical.execution.analog import AnalogSpec, Scale
from optical.execution.block_scales import multiply_blocks
from optical.execution.chip_numerics import with_chip
from optical.execution.draws import Draws
from optical.execution.encoding import Orders, encode_both
from optical.execution.fused import fuses
from optical.execution.fused_products import deliver
from optical.execution.operand_blocks import Target, whole
from optical.execution.operands import SMALLEST_SCALE, Operand, cut
from optical.execution.probes import probe
from optical.execution.readout import read, set_gain, variance_of, whole_product
from simulator.errors import WorkloadError


@dataclass(frozen=True)
class AnalogNumerics:
    """The products of a photonic core, drawn from its `AnalogSpec`.

    Notes
    -----
    Operands are scaled to [-1, 1], per tensor (over all batches) or per row of A and column of B, and
    rounded to the symmetric codes ``-L .. L``, ``L = 2**(bits - 1) - 1``. A sum over K takes
    ``T = ceil(K / analog_length)`` analog samples, each with fresh Gaussian noise of the variance that
    `AnalogSpec` states; they are converted one by one and added digitally.

    The converter has the step ``D = 2 R / 2**adc_bits``, codes up to ``2**(adc_bits - 1) - 1`` on either
    side, and Gaussian noise before it that makes its total noise that of its effective bits,
    ``(2 R / 2**enob)**2 / 12``. The gain stage that sets its range R reads a probe: a strided subset of the
    samples, at most 64 rows, 64 columns, 4 batches and 8 samples of a sum, hence all of a small product.

    With T = 1, or `exact_tiles`, every sample is executed. Otherwise the T samples collapse into one draw
    per output with the summed variance: rounding counts as ``D**2 / 12`` per sample, clipping with its mean
    square in the probe, and laser noise is spread over the outputs as ``sum(a^2) sum(b^2)``, with the probe's
    mean of ``sum((a b)^2)``; so it is in a single sample, where it makes less than 1 % of the variance. That
    clipping compresses and has heavy tails is lost, and a probe finds its mean square only roughly: where
    `clipped_fraction` is not far below 1e-3, trust `exact_tiles`.

    No gradient passes: what a backward pass computes are products of their own.
    """

    spec: AnalogSpec
    """What reaches the products."""
    exact_tiles: bool = False
    """Whether to execute every analog sample instead of one draw with the summed variance."""

    @torch.no_grad()
    def matmul(
        self,
        a_BMK: torch.Tensor,
        b_BKN: torch.Tensor,
        key: int,
        orders: Orders = (None, None),
        target: Target | None = None,
    ) -> torch.Tensor:
        """Return the product as the core delivers it, shape [B, M, N], in the type of A.

        Parameters
        ----------
        a_BMK, b_BKN : torch.Tensor
            Operands, shapes [B, M, K] and [B, K, N], of one floating-point type.
        key : int
            Source of all noise and stochastic rounding, at least 0. Same key and operands (layout in memory
            included, but for given orders), same result, for any number of threads; a CPU and an accelerator
            draw differently.
        orders : Orders
            Of the draws of A and of B.
        target : Target or None
            Where the product goes; fresh memory by default.

        Raises
        ------
        WorkloadError
            If the shapes do not make a batched product.
        """
        _check_shapes(a_BMK, b_BKN)
        draws = Draws(key, a_BMK.device)
        if is_exact(self.spec):
            product = torch.bmm(a_BMK, b_BKN)
        elif self.spec.scale is Scale.BLOCK:
            product = multiply_blocks(a_BMK, b_BKN, self.spec, draws)
        else:
            operands = encode_both(a_BMK, b_BKN, self.spec, draws, orders)
            return self.multiply(*operands, draws, target=target).to(a_BMK.dtype)
        return product.to(a_BMK.dtype) if target is None else target.put(product)

    def multiply(self, a: Operand, b: Operand, draws: Draws, *, target: Target | None = None) -> torch.Tensor:
        """Return the product of coded operands, shape [B, M, N], in single or double precision.

        Parameters
        ----------
        a, b : Operand
            Coded operands (`optical.execution.operands.encode`), not of a specification with block scales.
        draws : Draws
            Source of all noise.
        target : Target or None
            Where the product goes; fresh memory by default.
        """
        a, b = with_chip(a, b, self.spec)
        if self.exact_tiles and a.codes.shape[-1] > self.spec.analog_length:
            product = self._multiply_tiles(a, b, draws)
        else:
            known, exact = whole_product(self.spec, a, b), self.exact_tiles
            delivered = deliver(self.spec, a, b, draws, known=known, exact=exact, target=target)
            if delivered is not None:
                return delivered
            gain = set_gain(self.spec, a, b, known)
            product = read(self.spec, a, b, gain, draws, known=known, exact=exact)
        return product if target is None else target.put(product)

    def _multiply_tiles(self, a: Operand, b: Operand, draws: Draws) -> torch.Tensor:
        """Return the sum of analog samples that are executed one by one."""
        length = a.codes.shape[-1]
        gain, c_BMN = set_gain(self.spec, a, b), torch.zeros_like(a.energy[:1, :1])
        range_ = float(gain.range_) if fuses(a.energy) else None
        for start in range(0, length, self.spec.analog_length):
            tile = slice(start, start + self.spec.analog_length)
            a_tile, b_tile = cut(a, a.codes[..., tile], -1), cut(b, b.codes[..., tile, :], -2)
            part = (
                None
                if range_ is None
                else deliver(self.spec, a_tile, b_tile, draws, range_=range_, exact=True)
            )
            if part is None:
                part = read(self.spec, a_tile, b_tile, gain, draws, exact=True)
            c_BMN = c_BMN + part
        return c_BMN

    @torch.no_grad()
    def set_operands(
        self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return both operands as the core sets them: rounded, loaded, times the gains of a chip's parts.

        Parameters
        ----------
        a_BMK, b_BKN : torch.Tensor
            Operands, shapes [B, M, K] and [B, K, N], of one floating-point type.
        key : int
            As of `matmul`, whose operands they are. Where block scales meet stochastic rounding or errors of
            loading, they are as likely but drawn otherwise.
        """
        _check_shapes(a_BMK, b_BKN)
        draws = Draws(key, a_BMK.device)
        if self.spec.scale is not Scale.BLOCK:
            a, b = with_chip(*encode_both(a_BMK, b_BKN, self.spec, draws), self.spec)
            return a.values.to(a_BMK.dtype), b.values.to(b_BKN.dtype)
        each, width = replace(self.spec, scale=Scale.ROW, residues=None), self.spec.analog_length
        parts = []
        for a_tile, b_tile in zip(a_BMK.split(width, 2), b_BKN.split(width, 1), strict=True):
            a, b = with_chip(*encode_both(a_tile.contiguous(), b_tile.contiguous(), each, draws), each)
            parts.append((a.values.to(a_BMK.dtype), b.values.to(b_BKN.dtype)))
        firsts, seconds = zip(*parts, strict=True)
        return torch.cat(firsts, 2), torch.cat(seconds, 1)

    @torch.no_grad()
    def clipped_fraction(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> float:
        """Return the expected fraction of the probe's analog samples that the converter clips.

        Parameters
        ----------
        a_BMK, b_BKN : torch.Tensor
            Operands, shapes [B, M, K] and [B, K, N], of one floating-point type.
        """
        _check_shapes(a_BMK, b_BKN)
        if math.isinf(self.spec.adc_bits):
            return 0.0
        draws = Draws(0, a_BMK.device)
        a, b = with_chip(*encode_both(a_BMK, b_BKN, self.spec, draws), self.spec)
        gain = set_gain(self.spec, a, b)
        a = cut(a, probe(self.spec, a.codes).to(a.energy.dtype), -1)
        b = cut(b, probe(self.spec, b.codes.mT).mT.to(b.energy.dtype), -2)
        signal, variance = a.codes @ b.codes, variance_of(self.spec, a, b, 1, gain)
        spread = (math.sqrt(2.0) * variance.deviation(whole(signal.shape))).clamp_(min=SMALLEST_SCALE)
        margins = torch.stack((gain.range_ - signal, gain.range_ + signal)) / spread
        return float(torch.special.erfc(margins).mean())


def _check_shapes(a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> None:
    """Refuse what is no batched product."""
    a, b = tuple(a_BMK.shape), tuple(b_BKN.shape)
    if len(a) != 3 or len(b) != 3 or a[0] != b[0] or a[2] != b[1] or 0 in a + b:
        msg = f"operands must have non-empty shapes [B, M, K] and [B, K, N]; got {list(a)} and {list(b)}"
        raise WorkloadError(msg)
    check_types(a_BMK, b_BKN)


def check_types(a: torch.Tensor, b: torch.Tensor) -> None:
    """Refuse operands of other than one floating-point type.

    Raises
    ------
    WorkloadError
        If there are two types, or one of integers or complex numbers.
    """
    if a.dtype != b.dtype or not a.is_floating_point():
        msg = f"operands must have one floating-point type; got {a.dtype} and {b.dtype}: convert with .to()"
        raise WorkloadError(msg)


def is_exact(spec: AnalogSpec) -> bool:
    """Return whether the core does to a product nothing at all."""
    noise = spec.thermal_variance + spec.shot_variance + spec.rin_variance
    noise += spec.encoding_variance + spec.load_variance
    if spec.chip is not None and not spec.chip.is_empty:
        return False
    if spec.common is not None:
        noise += spec.common.variance
    return noise == 0.0 and spec.product_gain == 1.0 and math.isinf(min(spec.dac_bits, spec.adc_enob_bits))
