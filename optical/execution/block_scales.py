"""Executes products of block floating point, in which each analog sample has full scales of its own.

Shape suffixes: B batch, T samples of a sum, W products of a sample, M rows of A and C, K summed, N columns of
B and C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from optical.execution.analog import AnalogSpec, Scale, loads_second
from optical.execution.chip_numerics import with_chip
from optical.execution.draws import Draws
from optical.execution.encoding import encode
from optical.execution.fused_products import deliver
from optical.execution.operands import Operand
from optical.execution.readout import read, read_residues, set_gain
from optical.execution.residues import Residues

_MISREAD_TOGETHER = 2**20
"""Misread remainders, about, of samples that are computed together; so that their memory stays small."""
_LONGEST_SUM = 512
"""Terms of a product of blocks; libraries cut longer sums by the number of threads, and round otherwise."""


@dataclass(frozen=True, kw_only=True)
class SharedBlocks:
    """B as it is loaded, or streamed, once for several row blocks of A."""

    groups: tuple[Operand, ...]
    """One sample each, [B, W, N]; of residue numbers one for all samples, [B T, W, N]."""
    batch: int
    """Matrices."""
    loaded: bool
    """Whether B is what stays in the core, rather than each row block of A."""

    @classmethod
    def of(cls, b_BKN: torch.Tensor, spec: AnalogSpec, draws: Draws, *, loaded: bool) -> SharedBlocks:
        """Return the codes of B.

        Parameters
        ----------
        b_BKN : torch.Tensor
            Operand, shape [B, K, N].
        spec : AnalogSpec
            With block scales.
        draws : Draws
            For stochastic rounding and errors of loading.
        loaded : bool
            Whether it stays in the core, with the error of loading it.
        """
        each, parts = _spec_of_samples(spec), [b_BKN]
        if spec.residues is None:
            parts = list(b_BKN.split(spec.analog_length, dim=1))
        codes = (_second(part, spec.analog_length) for part in parts)
        groups = tuple(encode(part, -2, each, draws, loaded=loaded) for part in codes)
        return cls(groups=groups, batch=b_BKN.shape[0], loaded=loaded)

    def part(self, first: int, count: int) -> Operand:
        """Return some samples, [B count, W, N]."""
        if len(self.groups) > 1:
            return self.groups[first]
        whole, samples = self.groups[0], slice(first, first + count)
        codes, scale, energy = (
            x.unflatten(0, (self.batch, -1))[:, samples].flatten(0, 1)
            for x in (whole.codes, whole.scale, whole.energy)
        )
        return replace(whole, codes=codes, scale=scale, energy=energy)


def multiply_blocks(
    a_BMK: torch.Tensor,
    b_BKN: torch.Tensor,
    spec: AnalogSpec,
    draws: Draws,
    shared: SharedBlocks | None = None,
) -> torch.Tensor:
    """Return the product of block floating-point operands, one block and one scale per analog sample.

    Parameters
    ----------
    a_BMK, b_BKN : torch.Tensor
        Operands, shapes [B, M, K] and [B, K, N].
    spec : AnalogSpec
        With block scales.
    draws : Draws
        Source of all noise.
    shared : SharedBlocks or None
        B, if it is there already for other rows of A too.

    Returns
    -------
    torch.Tensor
        [B, M, N], in single or double precision.
    """
    each, width, residues = _spec_of_samples(spec), spec.analog_length, spec.residues
    dtype = a_BMK.dtype if a_BMK.dtype == torch.float64 else torch.float32
    c_BMN = a_BMK.new_zeros((*a_BMK.shape[:2], b_BKN.shape[2]), dtype=dtype)
    count = 1
    if residues is not None:
        wrong = max(1.0, c_BMN.numel() * math.fsum(residues.misreadings))
        count = max(1, int(min(_MISREAD_TOGETHER / wrong, _LONGEST_SUM / width)))
    second = bool(loads_second(a_BMK.shape[1], b_BKN.shape[2])) if shared is None else shared.loaded
    for start in range(0, a_BMK.shape[-1], count * width):
        part = slice(start, start + count * width)
        a = encode(_first(a_BMK[..., part], width), -1, each, draws, loaded=not second, use="first")
        if shared is None:
            b = encode(_second(b_BKN[:, part], width), -2, each, draws, loaded=second, use="second")
        else:
            b = shared.part(start // width, count)
        a, b = with_chip(a, b, each)
        if residues is None:
            sample = deliver(each, a, b, draws)
            c_BMN.add_(read(each, a, b, set_gain(each, a, b), draws) if sample is None else sample)
        else:
            _add_residues(c_BMN, residues, (a, b), draws)
    return c_BMN


def _spec_of_samples(spec: AnalogSpec) -> AnalogSpec:
    """Return what is made of one sample."""
    return replace(spec, scale=Scale.ROW, residues=None)


def _first(a_BMK: torch.Tensor, width: int) -> torch.Tensor:
    """Return the samples of A, [B T, M, W]; a short one is filled up with zeros."""
    a_BMK = torch.nn.functional.pad(a_BMK, (0, -a_BMK.shape[-1] % width))
    return a_BMK.unflatten(2, (-1, width)).transpose(1, 2).flatten(0, 1).contiguous()


def _second(b_BKN: torch.Tensor, width: int) -> torch.Tensor:
    """Return the samples of B, [B T, W, N]; a short one is filled up with zeros."""
    b_BKN = torch.nn.functional.pad(b_BKN, (0, 0, 0, -b_BKN.shape[1] % width))
    return b_BKN.unflatten(1, (-1, width)).flatten(0, 1).contiguous()


def _add_residues(
    c_BMN: torch.Tensor, residues: Residues, operands: tuple[Operand, Operand], draws: Draws
) -> None:
    """Add the product of blocks [B T, M, W] and [B T, W, N] through remainders.

    A block's sum is exact where no remainder is misread, hence so is one product of all blocks together.
    """
    a, b = operands
    samples = a.codes.shape[0] // c_BMN.shape[0]
    a_BMK = a.values.to(c_BMN.dtype).unflatten(0, (-1, samples)).transpose(1, 2).flatten(2)
    b_BKN = b.values.to(c_BMN.dtype).unflatten(0, (-1, samples)).flatten(1, 2)
    c_BMN.baddbmm_(a_BMK, b_BKN)
    wrong = read_residues(residues, a, b, draws)
    where = (wrong.batch // samples * c_BMN.shape[1] + wrong.row) * c_BMN.shape[2] + wrong.column
    if c_BMN.device.type == "cpu":  # one thread adds along one dimension, hence always in the same order
        c_BMN.view(-1).index_add_(0, where, wrong.error.to(c_BMN.dtype))
    else:
        c_BMN.view(-1).index_put_((where,), wrong.error.to(c_BMN.dtype), accumulate=True)
