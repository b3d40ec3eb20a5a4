"""Executes an `AnalogSpec` in torch: what a photonic core makes of a matrix product.

Shape suffixes: B matrices, M rows of A and C, K summed, N columns of B and C; T samples of a sum, of W
products each.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from optical.execution.draws import Draws
from optical.execution.operands import Operand, Orders, encode, set_on_chip
from optical.execution.products import multiply
from optical.execution.readout import clipped_fraction, read, set_gain
from optical.execution.residues import Residues, draw_misread
from optical.execution.spec import AnalogSpec, Scale, loads_second
from simulator.errors import WorkloadError

_T = TypeVar("_T")

_MISREAD_TOGETHER = 2**20
"""Misread remainders, about, of samples that are computed together; so that their memory stays small."""
_AUTOCASTING = ("cpu", "cuda")
"""Devices that products are executed on, with an autocast each."""
_LONGEST_SUM = 512
"""Terms of a product of blocks; libraries cut longer sums by the number of threads, and round otherwise."""


def executed(function: Callable[..., _T]) -> Callable[..., _T]:
    """Return a function that computes without gradients and in the types of its tensors, autocast or not."""

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> _T:  # noqa: ANN401
        with torch.no_grad():
            if not any(torch.is_autocast_enabled(kind) for kind in _AUTOCASTING):
                return function(*arguments, **options)
            with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
                return function(*arguments, **options)

    return run


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

    @executed
    def matmul(
        self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int, orders: Orders = (None, None)
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

        Raises
        ------
        WorkloadError
            If the shapes do not make a batched product.
        """
        _check_shapes(a_BMK, b_BKN)
        return self.matmul_blocks(a_BMK, b_BKN, Draws([key], a_BMK.device), orders)

    def matmul_blocks(
        self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, draws: Draws, orders: Orders, *, single: bool = False
    ) -> torch.Tensor:
        """Return the products of several blocks of matrices, each with a gain, scales and draws of its own.

        Parameters
        ----------
        a_BMK, b_BKN : torch.Tensor
            Operands, shapes [B, M, K] and [B, K, N].
        draws : Draws
            Of each block; there is one with block scales.
        orders : Orders
            Of the draws of A and of B.
        single : bool
            Whether a block is one matrix, large enough to be multiplied by itself.
        """
        if is_exact(self.spec):
            return torch.bmm(a_BMK, b_BKN)
        second = bool(loads_second(a_BMK.shape[1], b_BKN.shape[2]))
        if self.spec.scale is Scale.BLOCK:
            scaled = SharedBlocks.of(b_BKN, self.spec, None, loaded=second)
            return self.multiply_scaled_blocks(a_BMK, scaled, draws).to(a_BMK.dtype)
        kind = single or a_BMK.shape[0] == 1
        a = encode(a_BMK, -1, self.spec, draws, loaded=not second, order=orders[0], single=kind)
        b = encode(b_BKN, -2, self.spec, draws, loaded=second, order=orders[1], single=kind)
        return self.multiply(a, b, draws).to(a_BMK.dtype)

    def multiply(self, a: Operand, b: Operand, draws: Draws) -> torch.Tensor:
        """Return the product of coded operands, shape [B, M, N], in single or double precision.

        Parameters
        ----------
        a, b : Operand
            Coded operands (`optical.execution.operands.encode`), [B, M, K] and [B, K, N], or [1, K, N] for
            all; not of a specification with block scales.
        draws : Draws
            Of each block of matrices.
        """
        length, width = a.codes.shape[2], self.spec.analog_length
        second = bool(loads_second(a.codes.shape[1], b.codes.shape[2]))
        a, b = set_on_chip(a, b, self.spec.chip, draws.blocks, second=second)
        if not self.exact_tiles or length <= width:
            product = multiply(a.codes, b.codes)
            gain = set_gain(self.spec, a, b, draws.blocks, product)
            return read(self.spec, (a, b), product, gain, draws, second=second, exact=self.exact_tiles)
        gain = set_gain(self.spec, a, b, draws.blocks, None)
        total = a.energy.new_zeros(())
        for start in range(0, length, width):
            tile = slice(start, start + width)
            tiles = a.recoded(a.codes[..., tile], -1), b.recoded(b.codes[:, tile], -2)
            product = multiply(tiles[0].codes, tiles[1].codes)
            total = total + read(self.spec, tiles, product, gain, draws, second=second, exact=True)
        return total

    def multiply_scaled_blocks(self, a_BMK: torch.Tensor, b: SharedBlocks, draws: Draws) -> torch.Tensor:
        """Return the product of block floating-point operands, one block and one scale per analog sample.

        Parameters
        ----------
        a_BMK : torch.Tensor
            Operand, shape [B, M, K].
        b : SharedBlocks
            The other, perhaps for other rows of A too.
        draws : Draws
            Source of all noise, of a single block.

        Returns
        -------
        torch.Tensor
            [B, M, N], in single or double precision.
        """
        each, width, residues = _spec_of_samples(self.spec), self.spec.analog_length, self.spec.residues
        dtype = a_BMK.dtype if a_BMK.dtype == torch.float64 else torch.float32
        c_BMN = a_BMK.new_zeros((*a_BMK.shape[:2], b.columns), dtype=dtype)
        count = 1
        if residues is not None:
            wrong = max(1.0, c_BMN.numel() * math.fsum(residues.misreadings))
            count = max(1, int(min(_MISREAD_TOGETHER / wrong, _LONGEST_SUM / width)))
        for start in range(0, a_BMK.shape[-1], count * width):
            part = _rows_of_samples(a_BMK[..., start : start + count * width], width)
            a = encode(part, -1, each, draws, loaded=not b.loaded)
            operands = (a, b.part(start // width, count, each, draws))
            if residues is None:
                c_BMN.add_(AnalogNumerics(each).multiply(*operands, draws))
            else:
                second = bool(loads_second(a.codes.shape[1], b.columns))
                _add_residues(c_BMN, residues, set_on_chip(*operands, each.chip, 1, second=second), draws)
        return c_BMN

    @executed
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
        draws, spec, width = Draws([key], a_BMK.device), self.spec, a_BMK.shape[2]
        if spec.scale is Scale.BLOCK:
            spec, width = _spec_of_samples(spec), spec.analog_length
        parts = zip(a_BMK.split(width, 2), b_BKN.split(width, 1), strict=True)
        pairs = [_set(a_part, b_part, spec, draws) for a_part, b_part in parts]
        firsts, seconds = zip(*((a.values, b.values) for a, b in pairs), strict=True)
        return torch.cat(firsts, 2).to(a_BMK.dtype), torch.cat(seconds, 1).to(b_BKN.dtype)

    @executed
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
        return clipped_fraction(self.spec, *_set(a_BMK, b_BKN, self.spec, Draws([0], a_BMK.device)))


def _set(a_BMK: torch.Tensor, b_BKN: torch.Tensor, spec: AnalogSpec, draws: Draws) -> tuple[Operand, Operand]:
    """Return both operands as they are coded, loaded and set on a chip."""
    second = bool(loads_second(a_BMK.shape[1], b_BKN.shape[2]))
    a = encode(a_BMK, -1, spec, draws, loaded=not second)
    b = encode(b_BKN, -2, spec, draws, loaded=second)
    return set_on_chip(a, b, spec.chip, draws.blocks, second=second)


@dataclass(frozen=True, kw_only=True)
class SharedBlocks:
    """B with scales of its own in each sample, as it is loaded, or streamed, once for blocks of rows."""

    b_BKN: torch.Tensor
    """What is coded."""
    width: int
    """Products of a sample."""
    loaded: bool
    """Whether B is what stays in the core, rather than A."""
    coded: tuple[Operand, ...] | None
    """One sample each, [B, W, N]; of residue numbers one for all samples, [B T, W, N]. None where they are
    coded as they are needed, from the draws of the one block that does."""

    @classmethod
    def of(cls, b_BKN: torch.Tensor, spec: AnalogSpec, draws: Draws | None, *, loaded: bool) -> SharedBlocks:
        """Return B, coded already if there are draws for that.

        Parameters
        ----------
        b_BKN : torch.Tensor
            Operand, shape [B, K, N].
        spec : AnalogSpec
            With block scales.
        draws : Draws or None
            For stochastic rounding and errors of loading, shared by all blocks of rows.
        loaded : bool
            Whether it stays in the core, with the error of loading it.
        """
        coded, width = None, spec.analog_length
        if draws is not None:
            each = _spec_of_samples(spec)
            parts = [b_BKN] if spec.residues is not None else b_BKN.split(width, dim=1)
            coded = tuple(
                encode(_columns_of_samples(part, width), -2, each, draws, loaded=loaded) for part in parts
            )
        return cls(b_BKN=b_BKN, width=width, loaded=loaded, coded=coded)

    @property
    def columns(self) -> int:
        """N."""
        return self.b_BKN.shape[2]

    def part(self, first: int, count: int, spec: AnalogSpec, draws: Draws) -> Operand:
        """Return some samples, [B count, W, N].

        Parameters
        ----------
        first, count : int
            Samples.
        spec : AnalogSpec
            Of a sample.
        draws : Draws
            Of the block of rows.
        """
        if self.coded is None:
            part = self.b_BKN[:, first * self.width : (first + count) * self.width]
            return encode(_columns_of_samples(part, self.width), -2, spec, draws, loaded=self.loaded)
        if len(self.coded) > 1:
            return self.coded[first]
        whole, samples = self.coded[0], slice(first, first + count)
        codes, scale, energy = (
            x.unflatten(0, (self.b_BKN.shape[0], -1))[:, samples].flatten(0, 1)
            for x in (whole.codes, whole.scale, whole.energy)
        )
        return replace(whole, codes=codes, scale=scale, energy=energy)


def _spec_of_samples(spec: AnalogSpec) -> AnalogSpec:
    """Return what is made of one sample of block floating point."""
    return replace(spec, scale=Scale.ROW, residues=None)


def _rows_of_samples(a_BMK: torch.Tensor, width: int) -> torch.Tensor:
    """Return the samples of A, [B T, M, W]; a short one is filled up with zeros."""
    a_BMK = torch.nn.functional.pad(a_BMK, (0, -a_BMK.shape[-1] % width))
    return a_BMK.unflatten(2, (-1, width)).transpose(1, 2).flatten(0, 1).contiguous()


def _columns_of_samples(b_BKN: torch.Tensor, width: int) -> torch.Tensor:
    """Return the samples of B, [B T, W, N]; a short one is filled up with zeros."""
    b_BKN = torch.nn.functional.pad(b_BKN, (0, 0, 0, -b_BKN.shape[1] % width))
    return b_BKN.unflatten(1, (-1, width)).flatten(0, 1).contiguous()


def _add_residues(
    c_BMN: torch.Tensor, residues: Residues, operands: tuple[Operand, Operand], draws: Draws
) -> None:
    """Add the product of samples [B T, M, W] and [B T, W, N] through remainders.

    A sample's sum is exact where no remainder is misread, hence so is one product of all samples together, as
    `AnalogSpec` lets no sum leave the dynamic range. Only for misread ones is the integer formed, shifted by
    what its wrong remainders weigh (`Residues.weights`) and folded into the range.
    """
    a, b = operands
    samples, (rows, columns) = a.codes.shape[0] // c_BMN.shape[0], c_BMN.shape[1:]
    a_BMK = a.values.to(c_BMN.dtype).unflatten(0, (-1, samples)).transpose(1, 2).flatten(2)
    b_BKN = b.values.to(c_BMN.dtype).unflatten(0, (-1, samples)).flatten(1, 2)
    c_BMN.baddbmm_(a_BMK, b_BKN)
    misread = draw_misread(residues, a.codes.shape[0] * rows * columns, draws.on_host())
    index, shift = (torch.from_numpy(x).to(c_BMN.device) for x in (misread.index, misread.shift))
    batch, row, column = index // (rows * columns), index // columns % rows, index % columns
    exact = (a.codes[batch, row].double() * b.codes[batch, :, column].double()).sum(-1)
    found = exact + shift
    found.sub_((found / residues.product).round_(), alpha=residues.product)
    scale = a.scale[batch, row, 0].double() * b.scale[batch, 0, column].double()
    error = found.sub_(exact).mul_(scale).mul_(a.step * b.step).to(c_BMN.dtype)
    where = (batch // samples * rows + row) * columns + column
    if c_BMN.device.type == "cpu":  # one thread adds along one dimension, hence always in the same order
        c_BMN.view(-1).index_add_(0, where, error)
    else:
        c_BMN.view(-1).index_put_((where,), error, accumulate=True)


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
