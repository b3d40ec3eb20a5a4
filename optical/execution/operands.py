"""Operands of an analog product: transforms in electronics around a core, codes on converters.

Channels that are far louder than the others may be multiplied electronically; what is left may be rotated, so
that no element stands out; operands may be cut into slices of fewer bits; and a product may be executed
several times and averaged.

Shape suffixes: B matrices, M rows of A and C, K summed, N columns of B and C; G blocks of B / G
matrices, each with draws of its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto

import torch

from optical.execution.draws import Draws, fixed_gains
from optical.execution.kernels import SMALLEST_SCALE, energy_of, full_scale, to_codes
from optical.execution.spec import AnalogSpec, OperandTransforms, Rounding, Scale, largest_code
from optical.noise.chip import ChipErrors
from simulator.keys import mix_key

_SIGNS = 20250611
"""Key of the signs of a rotation, the same for all products, as a rotation is wired once; any number."""
Multiply = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]
"""A core's product of operands [B, M, K] and [B, K, N]; the last argument tells its executions apart."""


def multiply_transformed(
    a_BMK: torch.Tensor, b_BKN: torch.Tensor, transforms: OperandTransforms, multiply: Multiply
) -> torch.Tensor:
    """Return the product of a core around which operands are transformed, [B, M, N].

    Notes
    -----
    Outlier channels are those of the largest ``max|a_k| max|b_k|`` over all rows at hand, hence of a shard
    where rows are sharded.
    """
    electronic, a_BMK, b_BKN = in_core(a_BMK, b_BKN, transforms)
    if a_BMK.shape[2] == 0:
        return electronic
    pairs = [pair for pair in _slices(a_BMK, b_BKN, transforms) for _ in range(transforms.passes)]
    total = sum(multiply(a, b, number) for number, (a, b) in enumerate(pairs))
    return electronic + total / transforms.passes


def in_core(
    a_BMK: torch.Tensor, b_BKN: torch.Tensor, transforms: OperandTransforms
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the electronic product of the loudest channels, and both operands without them, rotated.

    Notes
    -----
    Where operands are rotated, loud channels are zero in light and not left out: Hadamard matrices are then
    as wide as the sum allows, where 250 of 256 channels would fall into pieces of 128, 64, 32 and less.
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
    return electronic, rotated(a_BMK, width), rotated(b_BKN.mT, width).mT


def rotated(x: torch.Tensor, width: int) -> torch.Tensor:
    """Return rows turned by an orthogonal matrix, [..., K]: random signs, then Hadamard matrices along K.

    Parameters
    ----------
    x : torch.Tensor
        Rows, [..., K].
    width : int
        Largest Hadamard matrix, a power of two; 1 for none. What K leaves over takes smaller ones.
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
    """Return one sign for each channel."""
    generator = torch.Generator("cpu").manual_seed(mix_key(_SIGNS, length) % 2**63)
    return torch.randint(0, 2, (length,), generator=generator, device="cpu") * 2 - 1


def _hadamard(x: torch.Tensor) -> torch.Tensor:
    """Return rows of a power of two times the Hadamard matrix, orthonormal: log2(n) rounds of butterflies."""
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
    """Yield pairs of slices whose products add up to the product; whole operands where there is one."""
    if transforms.slices == 1:
        yield a_BMK, b_BKN
        return
    of_b = _sliced(b_BKN, -2, transforms)
    for a in _sliced(a_BMK, -1, transforms):
        for b in of_b:
            yield a, b


def _sliced(x: torch.Tensor, summed_dim: int, transforms: OperandTransforms) -> list[torch.Tensor]:
    """Return an operand as a sum of slices: each what is left, rounded to a grid; the last not rounded."""
    parts, left = [], x
    for _ in range(transforms.slices - 1):
        scale = left.abs().amax(summed_dim, keepdim=True).clamp_(min=SMALLEST_SCALE)
        step = scale / largest_code(transforms.slice_bits)
        parts.append((left / step).round() * step)
        left = left - parts[-1]
    return [*parts, left]


_HAIR = 2.0**-20
"""How far stochastic rounding stops short of the last code, so that no dither reaches beyond it."""
_LARGEST_INT8_CODE = 127
_LARGEST_HALVED_CODE = 2**13 - 1
"""Codes of at most 14 bits have halves of at most 64, whose sum an int8 holds."""
_LONGEST_INT8_SUM = 2**16
"""Products of int8 codes whose sum, of twice as many, an int32 is sure to hold."""
_FIRST, _SECOND, _REPEATED = 0, 1, 3
"""Kinds of draws of a chip, folded into its seed."""
_ODD = -7046029254386353131
"""An odd number of 64 bits with no pattern, the golden ratio's, as a signed integer."""


class Order(Enum):
    """Order of an operand's draws."""

    ROWS = auto()
    """Along its rows, whatever its layout in memory."""
    COLUMNS = auto()
    """Down its columns."""


Orders = tuple[Order | None, Order | None]
"""Of A and of B; None where draws follow the memory, which spares a copy."""


@dataclass(frozen=True, kw_only=True)
class Operand:
    """An operand on its converter's grid, as the parts of a chip set it."""

    codes: torch.Tensor
    """Values in steps of the grid, [B, M, K] or [B, K, N]; of a type that `readout.multiply` takes."""
    step: float
    """One step, in units of full scale."""
    scale: torch.Tensor
    """Full scale, broadcastable to the operand."""
    energy: torch.Tensor
    """Sum of squared codes over K, floating point, [B, M, 1] or [B, 1, N]."""
    loaded: bool
    """Whether it stays in a core that holds weights, past which the other operand streams."""

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
        """What the codes stand for, in the operand's own unit."""
        return self.codes * (self.step * self.scale)

    def recoded(self, codes: torch.Tensor, summed_dim: int) -> Operand:
        """Return an operand of other codes on the same grid, or of some of them."""
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
        Bits, scale and rounding of the converter, and the chip. Block scales count as those of rows: what is
        given is a sample.
    draws : Draws
        For stochastic rounding and errors of loading; its blocks have scales of their own.
    loaded : bool
        Whether the operand stays in the core, with the error of loading it.
    order : Order or None
        Of draws; None where they follow the memory, which spares a copy.
    single : bool or None
        Whether each matrix is multiplied by itself, so that codes may be integers; by default if it is alone.
    """
    dithers = math.isfinite(spec.dac_bits) and spec.rounding is Rounding.STOCHASTIC
    error = math.sqrt(spec.load_variance) if loaded else 0.0
    x = x.detach() if x.dtype in (torch.float32, torch.float64) else x.detach().to(torch.float32)
    if order is None or not (dithers or error > 0.0):
        order = Order.ROWS if x.is_contiguous() else Order.COLUMNS
    turned, dim = order is Order.COLUMNS, summed_dim
    if turned:
        x, dim = x.mT, -3 - dim
    x = x.contiguous()
    levels = largest_code(spec.dac_bits) if math.isfinite(spec.dac_bits) else None
    reach = (levels or 1.0) * (1.0 - _HAIR if dithers else 1.0)
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
    operand = operand.mT if turned else operand
    return operand if spec.chip is None else _on_chip(operand, summed_dim, spec, spec.chip, draws.blocks)


def _on_chip(x: Operand, summed_dim: int, spec: AnalogSpec, chip: ChipErrors, blocks: int) -> Operand:
    """Return an operand with the gains of its positions, and with what this chip does to just these codes.

    A core that holds weights loads its second operand; any other takes B for it.
    """
    if chip.element_gain == 0.0 and chip.repeated_variance == 0.0:
        return x
    if x.loaded if chip.holds_weights else summed_dim == -2:
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
    """Return a loaded operand with the errors that this chip gives just these codes, block by block."""
    codes_BKN = x.codes if summed_dim == -2 else x.codes.mT
    keys = [mix_key(chip.seed, _REPEATED, _content(part)) for part in codes_BKN.chunk(blocks)]
    error = Draws(keys, torch.device("cpu")).gaussian(codes_BKN.shape, x.energy.dtype).to(x.energy.device)
    error = error if summed_dim == -2 else error.mT
    if spec.tile is not None:
        error = error * tile_rms(x.floating, summed_dim, spec) * x.step
    return x.recoded(x.floating + error * (math.sqrt(chip.repeated_variance) / x.step), summed_dim)


def tile_rms(codes: torch.Tensor, summed_dim: int, spec: AnalogSpec) -> torch.Tensor:
    """Return the rms of its tile for each element of a loaded operand, [B, K, N] or [B, M, K]."""
    outputs = codes.shape[1] if spec.tile is None else spec.tile.outputs
    high, wide = (spec.analog_length, outputs) if summed_dim == -2 else (outputs, spec.analog_length)
    squares = torch.nn.functional.avg_pool2d(codes.square(), (high, wide), ceil_mode=True)
    rms = squares.sqrt_().repeat_interleave(high, 1).repeat_interleave(wide, 2)
    return rms[:, : codes.shape[1], : codes.shape[2]]


def tile_norms(codes_BKN: torch.Tensor, inputs: int, outputs: int) -> torch.Tensor:
    """Return the square of the largest singular value of the tile of each sample and column, [B, T, N]."""
    _, length, columns = codes_BKN.shape
    padded = torch.nn.functional.pad(codes_BKN, (0, -columns % outputs, 0, -length % inputs))
    tiles = padded.nan_to_num(0.0, 0.0, 0.0).unflatten(2, (-1, outputs)).unflatten(1, (-1, inputs))
    tiles = tiles.transpose(2, 3)  # without numbers that are none, which no eigenvalue is found of
    squares = torch.linalg.eigvalsh(tiles.mT @ tiles)[..., -1]
    return squares.repeat_interleave(outputs, 2)[..., :columns]


def _content(codes: torch.Tensor) -> int:
    """Return a number that belongs to these codes, in any layout, whatever the threads."""
    words = codes.to(torch.float32).reshape(-1).view(torch.int32).to(torch.int64)
    places = torch.arange(1, words.numel() + 1, device=words.device) * _ODD
    mixed = (words + places) * (places ^ (places >> 29) | 1)
    return int((mixed ^ (mixed >> 32)).sum())


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
    if not has_quick_int8_products():
        return x.dtype
    return torch.int8 if levels <= _LARGEST_INT8_CODE else torch.int16


@functools.cache
def has_quick_int8_products() -> bool:
    """Return whether int8 products are quicker than float32's, and do not saturate.

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
