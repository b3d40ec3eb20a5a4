"""Operands of an analog product: electronic transforms around the core, and codes of the converters.

Transforms (`OperandTransforms`): channels with far larger elements than the others may be multiplied
electronically; the rest may be rotated, which spreads large elements over the sum; operands may be cut into
slices of fewer bits; a product may be executed several times and averaged.

`encode` then scales an operand to its converter, rounds it to codes, and applies the errors of loading it and
the fixed gains of a chip.

Shape suffixes: B matrices, M rows of A and C, K summed, N columns of B and C; G blocks of B / G matrices,
each with draws of its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import NamedTuple

import torch

from optical.execution.draws import Draws, fixed_gains
from optical.execution.kernels import SMALLEST_SCALE, energy_of, full_scale, to_codes
from optical.execution.spec import AnalogSpec, OperandTransforms, Rounding, Scale, largest_code
from optical.noise.chip import ChipErrors
from simulator.keys import mix_key

_SIGNS = 20250611
"""Seed of a rotation's random signs: arbitrary, and the same for all products, as a rotation is wired
once."""
Multiply = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]
"""A core's product of operands [B, M, K] and [B, K, N]; the third argument numbers the executions of one
product, which draw differently."""


def multiply_transformed(
    a_BMK: torch.Tensor, b_BKN: torch.Tensor, transforms: OperandTransforms, multiply: Multiply
) -> torch.Tensor:
    """Return the product of transformed operands by a core, plus that of the electronic channels, [B, M, N].

    Notes
    -----
    Electronic channels are those of the largest ``max|a_k| max|b_k|`` over the rows that are given; where
    rows are sharded, each shard chooses its own.
    """
    division = divided(a_BMK, b_BKN, transforms)
    if division.a_BMK.shape[2] == 0:
        return division.electronic_BMN
    slices = _slices(division.a_BMK, division.b_BKN, transforms)
    pairs = [pair for pair in slices for _ in range(transforms.passes)]
    total = sum(multiply(a, b, number) for number, (a, b) in enumerate(pairs))
    return division.electronic_BMN + total / transforms.passes


class Division(NamedTuple):
    """Product divided between electronics and a core."""

    electronic_BMN: torch.Tensor
    """Product of the electronic channels; a zero without dimensions if there are none."""
    a_BMK: torch.Tensor
    """A as it enters the core."""
    b_BKN: torch.Tensor
    """B as it enters the core."""


def divided(a_BMK: torch.Tensor, b_BKN: torch.Tensor, transforms: OperandTransforms) -> Division:
    """Return the electronic product of the largest channels, and the operands that enter the core, rotated.

    Notes
    -----
    Without rotation the electronic channels are taken out of the operands in the core. With rotation they are
    set to zero there: the Hadamard matrices stay as wide as the sum allows, where 250 of 256 channels would
    fall into pieces of 128, 64, 32 and less.
    """
    length, width = a_BMK.shape[2], transforms.rotation_width
    count = min(length, math.ceil(transforms.electronic_share * length))
    electronic = a_BMK.new_zeros(())
    if count:
        loudness = a_BMK.abs().amax((0, 1)) * b_BKN.abs().amax((0, 2))
        order = loudness.argsort(descending=True, stable=True)
        loud, quiet = order[:count].sort().values, order[count:].sort().values
        electronic = torch.matmul(a_BMK[..., loud], b_BKN[:, loud])
        if width > 1 and count < length:
            a_BMK, b_BKN = a_BMK.index_fill(2, loud, 0.0), b_BKN.index_fill(1, loud, 0.0)
        else:
            a_BMK, b_BKN = a_BMK[..., quiet].contiguous(), b_BKN[:, quiet].contiguous()
    return Division(electronic, rotated(a_BMK, width), rotated(b_BKN.mT, width).mT)


def rotated(x: torch.Tensor, width: int) -> torch.Tensor:
    """Return rows times an orthogonal matrix, [..., K]: random signs, then Hadamard matrices along K.

    Parameters
    ----------
    x : torch.Tensor
        Rows, [..., K].
    width : int
        Width of the Hadamard matrices, a power of two; 1 for no rotation. The last channels, if K is no
        multiple of it, take narrower ones.
    """
    length = x.shape[-1]
    if width == 1 or length == 0:
        return x
    x = x * _signs(length).to(x)
    parts, start = [], 0
    while start < length:
        fits = min(width, 2 ** int(math.log2(length - start)))
        count = (length - start) // fits
        part = x[..., start : start + count * fits].unflatten(-1, (count, fits))
        parts.append(_hadamard(part).flatten(-2))
        start += count * fits
    return torch.cat(parts, -1)


@functools.lru_cache(maxsize=64)
def _signs(length: int) -> torch.Tensor:
    """Return a random sign for each channel, int64 [length]."""
    generator = torch.Generator("cpu").manual_seed(mix_key(_SIGNS, length) % 2**63)
    return torch.randint(0, 2, (length,), generator=generator, device="cpu") * 2 - 1


def _hadamard(x: torch.Tensor) -> torch.Tensor:
    """Return rows [..., n], n a power of two, times the orthonormal Hadamard matrix, by butterflies."""
    n, step = x.shape[-1], 1
    while step < n:
        pairs = x.unflatten(-1, (n // (2 * step), 2, step))
        first, second = pairs[..., 0, :], pairs[..., 1, :]
        x = torch.stack((first + second, first - second), -2).flatten(-3)
        step *= 2
    return x * n**-0.5


def _slices(
    a_BMK: torch.Tensor, b_BKN: torch.Tensor, transforms: OperandTransforms
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield every slice of A with every slice of B; their products add up to the product."""
    if transforms.slices == 1:
        yield a_BMK, b_BKN
        return
    b_slices = _sliced(b_BKN, -2, transforms)
    for a_slice in _sliced(a_BMK, -1, transforms):
        for b_slice in b_slices:
            yield a_slice, b_slice


def _sliced(x: torch.Tensor, summed_dim: int, transforms: OperandTransforms) -> list[torch.Tensor]:
    """Return slices that add up to an operand: remainders rounded to `slice_bits`, and the last remainder."""
    parts, left = [], x
    for _ in range(transforms.slices - 1):
        scale = left.abs().amax(summed_dim, keepdim=True).clamp_(min=SMALLEST_SCALE)
        step = scale / largest_code(transforms.slice_bits)
        parts.append((left / step).round() * step)
        left = left - parts[-1]
    return [*parts, left]


_DITHER_MARGIN = 2.0**-20
"""Share of full scale that stochastic rounding leaves free, so that dither never passes the last code."""
_LARGEST_INT8_CODE = 127
_LARGEST_HALVED_CODE = 2**13 - 1
"""Largest code of 14 bits, whose 7-bit halves are at most 64: their sum fits an int8 (`readout.multiply`)."""
_LONGEST_INT8_SUM = 2**16
"""Products of int8 codes up to which an int32 holds their sum, and twice it."""
_FIRST, _SECOND, _REPEATED = 0, 1, 3
"""Kinds of fixed errors of a chip, mixed into its seed: gains of the first operand's parts and of the
second's, errors of loading that repeat with the codes."""
_GOLDEN_RATIO = -7046029254386353131
"""2**64 over the golden ratio as a signed integer: an odd multiplier for hashing."""


class Order(Enum):
    """Order in which the elements of an operand take draws, whatever its layout in memory."""

    ROWS = auto()
    """Row after row."""
    COLUMNS = auto()
    """Column after column."""


Orders = tuple[Order | None, Order | None]
"""Orders of A and of B; None follows the layout in memory, which spares a copy."""


@dataclass(frozen=True, kw_only=True)
class Operand:
    """An operand on its converter's grid, as the parts of a chip set it."""

    codes: torch.Tensor
    """Values in steps of the grid, [B, M, K] or [B, K, N], of the type of `code_type`; not whole where errors
    of loading or gains of a chip apply."""
    step: float
    """Step of the grid, as a share of full scale."""
    scale: torch.Tensor
    """Full scale, in the operand's own unit, broadcastable to the codes."""
    energy: torch.Tensor
    """Sum of squared codes over K, floating point, [B, M, 1] or [B, 1, N]."""
    loaded: bool
    """Whether a core that holds weights holds this operand, past which the other one streams."""

    @property
    def mT(self) -> Operand:
        """The transposed operand, [B, K, M] of [B, M, K]."""
        return replace(self, codes=self.codes.mT, scale=self.scale.mT, energy=self.energy.mT)

    @property
    def floating(self) -> torch.Tensor:
        """The codes in floating point."""
        return self.codes.to(self.energy.dtype)

    @property
    def values(self) -> torch.Tensor:
        """Values of the codes, in the operand's own unit."""
        return self.codes * (self.step * self.scale)

    def recoded(self, codes: torch.Tensor, summed_dim: int) -> Operand:
        """Return an operand with other codes, or a part of these, on the same grid."""
        return replace(self, codes=codes, energy=energy_of(codes, summed_dim, self.energy.dtype))


def encode(
    x: torch.Tensor,
    summed_dim: int,
    spec: AnalogSpec,
    draws: Draws,
    *,
    loaded: bool,
    order: Order | None = None,
    single: bool | None = None,
) -> Operand:
    """Return an operand scaled to its converter, rounded to the converter's grid and set on the chip.

    Parameters
    ----------
    x : torch.Tensor
        A, [B, M, K], or B, [B, K, N].
    summed_dim : int
        -1 for A, -2 for B.
    spec : AnalogSpec
        Bits, scale and rounding of the converter, and the chip. With block scales `x` must be cut into
        samples, whose rows have a scale each.
    draws : Draws
        Source of stochastic rounding and of errors of loading. A scale of a whole tensor is one for each of
        its blocks.
    loaded : bool
        Whether a core that holds weights holds this operand, with the error of loading it.
    order : Order or None
        Order in which elements take draws; None follows the layout in memory, which spares a copy.
    single : bool or None
        Whether each matrix has a product of its own, for which integer codes are quicker than one batched
        product in floating point; None if it is the only one.
    """
    dithers = math.isfinite(spec.dac_bits) and spec.rounding is Rounding.STOCHASTIC
    error = math.sqrt(spec.load_variance) if loaded else 0.0
    x = x.detach() if x.dtype in (torch.float32, torch.float64) else x.detach().to(torch.float32)
    if order is None or not (dithers or error > 0.0):
        order = Order.ROWS if x.is_contiguous() else Order.COLUMNS
    transposed, dim = order is Order.COLUMNS, summed_dim
    if transposed:
        x, dim = x.mT, -3 - dim
    x = x.contiguous()
    levels = largest_code(spec.dac_bits) if math.isfinite(spec.dac_bits) else None
    reach = (levels or 1.0) * (1.0 - _DITHER_MARGIN if dithers else 1.0)
    blocks = draws.blocks if spec.scale is Scale.TENSOR else None
    if levels is None:
        scale = full_scale(x, dim, blocks)
        codes = x * (scale.new_full((), reach) / scale)
        energy = energy_of(codes, dim, x.dtype)
    else:
        single = x.shape[0] == 1 if single is None else single
        dtype = code_type(x, x.shape[dim], levels if single and spec.load_variance == 0.0 else None)
        dithered = draws if dithers else None
        codes, energy, scale = to_codes(x, reach, dim, dtype=dtype, draws=dithered, blocks=blocks)
    if error > 0.0:
        drawn = draws.gaussian(x.shape, x.dtype)
        drawn = drawn if spec.tile is None else drawn.mul_(tile_rms(codes, dim, spec)).div_(reach)
        codes = codes.add(drawn, alpha=reach * error)
        energy = energy_of(codes, dim, x.dtype)
    operand = Operand(codes=codes, step=1.0 / reach, scale=scale, energy=energy, loaded=loaded)
    operand = operand.mT if transposed else operand
    return operand if spec.chip is None else _on_chip(operand, summed_dim, spec, spec.chip, draws.blocks)


def _on_chip(x: Operand, summed_dim: int, spec: AnalogSpec, chip: ChipErrors, blocks: int) -> Operand:
    """Return an operand with a chip's fixed gains, and its errors that repeat with the codes, applied.

    The chip's first operand is the streamed one and the second the loaded one if the core holds weights; else
    they are A and B.
    """
    if chip.element_gain == 0.0 and chip.repeated_variance == 0.0:
        return x
    is_second = x.loaded if chip.holds_weights else summed_dim == -2
    if is_second:
        kind, lines, variance = _SECOND, chip.columns, chip.second_gain
        if chip.repeated_variance > 0.0:
            x = _with_repeated(x, summed_dim, spec, chip, min(blocks, x.codes.shape[0]))
    else:
        kind, lines, variance = _FIRST, chip.rows, chip.first_gain
    if variance == 0.0:
        return x
    size = x.codes.shape[1:] if summed_dim == -1 else x.codes.mT.shape[1:]
    gains = fixed_gains(chip.seed, kind, (lines, chip.length), variance, shape=size).to(x.energy)
    return x.recoded(x.floating * (gains if summed_dim == -1 else gains.mT), summed_dim)


def _with_repeated(x: Operand, summed_dim: int, spec: AnalogSpec, chip: ChipErrors, blocks: int) -> Operand:
    """Return a loaded operand with errors of loading that repeat whenever this chip loads the same codes.

    The errors of each block of matrices are drawn from a key made of the chip's seed and the codes.
    """
    codes_BKN = x.codes if summed_dim == -2 else x.codes.mT
    keys = [mix_key(chip.seed, _REPEATED, _hash_of(part)) for part in codes_BKN.chunk(blocks)]
    error = Draws(keys, torch.device("cpu")).gaussian(codes_BKN.shape, x.energy.dtype).to(x.energy.device)
    error = error if summed_dim == -2 else error.mT
    if spec.tile is not None:
        error = error * tile_rms(x.floating, summed_dim, spec) * x.step
    return x.recoded(x.floating + error * (math.sqrt(chip.repeated_variance) / x.step), summed_dim)


def tile_rms(codes: torch.Tensor, summed_dim: int, spec: AnalogSpec) -> torch.Tensor:
    """Return for each element of a loaded operand the rms of the tile it is in, [B, K, N] or [B, M, K]."""
    outputs = codes.shape[1] if spec.tile is None else spec.tile.outputs
    high, wide = (spec.analog_length, outputs) if summed_dim == -2 else (outputs, spec.analog_length)
    squares = torch.nn.functional.avg_pool2d(codes.square(), (high, wide), ceil_mode=True)
    rms = squares.sqrt_().repeat_interleave(high, 1).repeat_interleave(wide, 2)
    return rms[:, : codes.shape[1], : codes.shape[2]]


def tile_norms(codes_BKN: torch.Tensor, inputs: int, outputs: int) -> torch.Tensor:
    """Return the squared largest singular value of the tile that serves each sample and column, [B, T, N].

    Tiles have `inputs` rows of K, T of them, and `outputs` columns. NaN and infinity count as zero, as the
    solver of eigenvalues refuses them.
    """
    _, length, columns = codes_BKN.shape
    padded = torch.nn.functional.pad(codes_BKN, (0, -columns % outputs, 0, -length % inputs))
    tiles = padded.nan_to_num(0.0, 0.0, 0.0).unflatten(2, (-1, outputs)).unflatten(1, (-1, inputs))
    tiles = tiles.transpose(2, 3)
    squares = torch.linalg.eigvalsh(tiles.mT @ tiles)[..., -1]
    return squares.repeat_interleave(outputs, 2)[..., :columns]


def _hash_of(codes: torch.Tensor) -> int:
    """Return a 64-bit hash of codes, by values and positions; integer sums do not depend on their order."""
    words = codes.to(torch.float32).reshape(-1).view(torch.int32).to(torch.int64)
    places = torch.arange(1, words.numel() + 1, device=words.device) * _GOLDEN_RATIO
    mixed = (words + places) * (places ^ (places >> 29) | 1)
    return int((mixed ^ (mixed >> 32)).sum())


def code_type(x: torch.Tensor, length: int, levels: int | None) -> torch.dtype:
    """Return the type of codes whose product is quickest, and at least as exact as in float32.

    Parameters
    ----------
    x : torch.Tensor
        Operand.
    length : int
        Products of a sum.
    levels : int or None
        Largest code; None where codes are not whole, or matrices are multiplied in one batched product.

    Returns
    -------
    torch.dtype
        int8; int16, whose product is made of int8 halves; or the operand's own.
    """
    may_be_integer = x.device.type == "cpu" and x.dtype == torch.float32
    if not may_be_integer or levels is None or length > _LONGEST_INT8_SUM or levels > _LARGEST_HALVED_CODE:
        return x.dtype
    if not has_quick_int8_products():
        return x.dtype
    return torch.int8 if levels <= _LARGEST_INT8_CODE else torch.int16


@functools.cache
def has_quick_int8_products() -> bool:
    """Return whether this CPU multiplies int8 matrices faster than float32 ones, without saturating.

    Without AVX-512 torch has a plain loop for them, 40 to 100 times as slow as float32; without VNNI they
    may saturate.
    """
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    codes = torch.full((64, 64), _LARGEST_INT8_CODE, dtype=torch.int8)
    try:
        product = torch._int_mm(codes, codes)
    except (AttributeError, RuntimeError):
        return False
    return bool((product == 64 * _LARGEST_INT8_CODE**2).all())
