"""Executes what is fixed for a chip, and the intensity noise that outputs share, in torch.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import torch

from optical.execution.analog import AnalogSpec, loads_second
from optical.execution.draws import Draws
from optical.execution.operands import Operand, cut
from optical.noise.chip import ChipErrors, CommonNoise
from simulator.keys import mix_key

_FIRST, _SECOND, _OUTPUT, _REPEATED, _NODE = range(5)
"""Kinds of draws of a chip, folded into its seed."""
_ODD = -7046029254386353131
"""An odd number of 64 bits with no pattern, the golden ratio's, as a signed integer."""


def with_chip(a: Operand, b: Operand, spec: AnalogSpec) -> tuple[Operand, Operand]:
    """Return both operands as the parts of a chip set them.

    Parameters
    ----------
    a, b : Operand
        Coded operands, [B, M, K] and [B, K, N].
    spec : AnalogSpec
        With or without a chip.
    """
    chip = spec.chip
    if chip is None or (chip.element_gain == 0.0 and chip.repeated_variance == 0.0):
        return a, b
    turned = chip.holds_weights and not loads_second(a.codes.shape[1], b.codes.shape[2])
    first, second = (b.mT, a.mT) if turned else (a, b)
    if chip.repeated_variance > 0.0:
        second = _with_repeated(second, chip)
    first = _with_gains(first, chip, _FIRST, chip.rows, chip.first_gain)
    second = _with_gains(second, chip, _SECOND, chip.columns, chip.second_gain)
    return (second.mT, first.mT) if turned else (first, second)


def output_gains(chip: ChipErrors | None, shape: torch.Size, like: torch.Tensor) -> torch.Tensor | None:
    """Return what the receivers multiply the outputs by, [1, M, N], or None where that is one."""
    if chip is None or chip.output_gain == 0.0:
        return None
    rows, columns = shape[1:]
    turned = chip.holds_weights and not loads_second(rows, columns)
    if turned:
        rows, columns = columns, rows
    grid = _grid(chip.seed, _OUTPUT, chip.rows, chip.columns, math.sqrt(chip.output_gain))
    gains = _tiled(grid, rows, columns).to(like)
    return (gains.mT if turned else gains).unsqueeze(0)


def imbalance(spec: AnalogSpec, a: Operand, b: Operand) -> torch.Tensor | None:
    """Return what couplers that do not divide evenly add, in code products [1 or B, M, N], or None.

    Notes
    -----
    (2 k - 1)(sum(a^2) - sum(b^2))/2 for a node, and the same line by line for wavelengths.
    """
    chip = spec.chip
    if chip is None or (chip.imbalance == 0.0 and chip.edge_imbalance == 0.0):
        return None
    sides = (a.energy * (0.5 * a.step / b.step), b.energy * (0.5 * b.step / a.step))
    rows, columns = a.codes.shape[1], b.codes.shape[2]
    grid = _grid(chip.seed, _NODE, chip.rows, chip.columns, math.sqrt(chip.imbalance)) - 1.0
    added = _tiled(grid, rows, columns).to(a.energy) * (sides[0] - sides[1])
    if chip.edge_imbalance == 0.0:
        return added
    line = torch.arange(a.codes.shape[2], device=a.codes.device) % chip.lines
    weight = (chip.edge_imbalance * (2.0 * line / max(1, chip.lines - 1) - 1.0)).to(a.energy)
    a2, b2 = (x.codes.to(a.energy.dtype).square() for x in (a, b))
    one = (a2 * weight).sum(-1, keepdim=True) * (0.5 * a.step / b.step)
    return added + one - (b2 * weight[:, None]).sum(-2, keepdim=True) * (0.5 * b.step / a.step)


def common_noise(spec: AnalogSpec, a: Operand, b: Operand, draws: Draws) -> torch.Tensor | None:
    """Return what shared intensity noise adds to the outputs, in code products [B, M, N], or None."""
    common = spec.common
    if common is None or common.variance == 0.0:
        return None
    turned = common.holds_weights and not loads_second(a.codes.shape[1], b.codes.shape[2])
    a_BMK, b_BKN = (x.codes.to(a.energy.dtype) for x in (a, b))
    if turned:
        return _shared(b_BKN.mT, a_BMK.mT, common, draws).mT
    return _shared(a_BMK, b_BKN, common, draws)


def common_encoding(spec: AnalogSpec, a: Operand, b: Operand, draws: Draws) -> torch.Tensor | None:
    """Return what errors of the operands' converters add to outputs that share them, [B, M, N], or None.

    Notes
    -----
    (A + E) B with an E of its own for each block of columns, and the same for rows of B; in code products.
    """
    shared = spec.encoding
    if shared is None or spec.encoding_variance <= shared.own_variance:
        return None
    turned = shared.holds_weights and not loads_second(a.codes.shape[1], b.codes.shape[2])
    first, second = (b.mT, a.mT) if turned else (a, b)
    deviation = math.sqrt(spec.encoding_variance - shared.own_variance) / spec.product_gain
    errs = _erring(second, shared.columns, deviation / first.step, draws, first.codes.shape[1])
    errs += _erring(first.mT, shared.rows, deviation / second.step, draws, second.codes.shape[2]).mT
    return errs.mT if turned else errs


def _erring(y: Operand, width: int, deviation: float, draws: Draws, rows: int) -> torch.Tensor:
    """Return E Y, [B, rows, N], E drawn anew for each block of columns of Y, [B, K, N]."""
    y_BKN = y.codes.to(y.energy.dtype)
    shape = torch.Size((y_BKN.shape[0], rows, y_BKN.shape[1]))
    parts = [draws.gaussian(shape, y_BKN.dtype).bmm(columns) for columns in y_BKN.split(width, dim=2)]
    return torch.cat(parts, dim=2).mul_(deviation)


def _shared(a_BMK: torch.Tensor, b_BKN: torch.Tensor, common: CommonNoise, draws: Draws) -> torch.Tensor:
    """Return A diag(r) B, one block of columns after the other."""
    batch, rows, length = a_BMK.shape
    blocks = -(-rows // common.rows)
    padded = torch.nn.functional.pad(a_BMK, (0, 0, 0, blocks * common.rows - rows))
    in_blocks = padded.unflatten(1, (blocks, common.rows))
    shape, deviation = torch.Size((batch, blocks, -(-length // common.length))), math.sqrt(common.variance)
    parts = []
    for columns in b_BKN.split(common.columns, dim=2):
        draw = draws.gaussian(shape, a_BMK.dtype).mul_(deviation)
        each = draw.repeat_interleave(common.length, 2)[..., :length] if common.length > 1 else draw
        parts.append(torch.bmm((in_blocks * each.unsqueeze(2)).flatten(1, 2), columns))
    return torch.cat(parts, dim=2)[:, :rows]


def _with_gains(x: Operand, chip: ChipErrors, kind: int, width: int, variance: float) -> Operand:
    """Return an operand times the gains of its positions; [B, M, K] for the first, else [B, K, N]."""
    if variance == 0.0:
        return replace(x, codes=x.codes.to(x.energy.dtype), halves=None)
    summed_dim = -1 if kind == _FIRST else -2
    grid = _grid(chip.seed, kind, width, chip.length, math.sqrt(variance))
    gains = _tiled(grid if kind == _FIRST else grid.mT, x.codes.shape[1], x.codes.shape[2]).to(x.energy)
    return cut(x, x.codes.to(x.energy.dtype) * gains, summed_dim)


def _with_repeated(x: Operand, chip: ChipErrors) -> Operand:
    """Return a loaded operand with the error that this chip gives just these codes."""
    draws = Draws(mix_key(chip.seed, _REPEATED, _content(x.codes)), torch.device("cpu"))
    error = draws.gaussian(x.codes.shape, x.energy.dtype).to(x.energy.device)
    codes = x.codes.to(x.energy.dtype) + error * (math.sqrt(chip.repeated_variance) / x.step)
    return cut(x, codes, -2)


def _content(codes: torch.Tensor) -> int:
    """Return a number that belongs to these codes, in any layout, whatever the threads."""
    words = codes.to(torch.float32).reshape(-1).view(torch.int32).to(torch.int64)
    places = torch.arange(1, words.numel() + 1, device=words.device) * _ODD
    mixed = (words + places) * (places ^ (places >> 29) | 1)
    return int((mixed ^ (mixed >> 32)).sum())


@functools.lru_cache(maxsize=64)
def _grid(seed: int, kind: int, rows: int, columns: int, deviation: float) -> torch.Tensor:
    """Return 1 + deviation times the draws of a chip, [rows, columns]; drawn on the CPU for every device."""
    draws = Draws(mix_key(seed, kind), torch.device("cpu"))
    return draws.gaussian(torch.Size((rows, columns)), torch.float32).mul(deviation).add_(1.0)


def _tiled(grid: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Return a grid repeated over a matrix, [rows, columns]."""
    height, width = grid.shape
    return grid.repeat(-(-rows // height), -(-columns // width))[:rows, :columns]
