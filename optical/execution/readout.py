"""Readout of a product of codes: the range of the output converter, noise, clipping and rounding.

`read` turns the exact product of codes into outputs, in these steps:

1. `set_gain` sets the converter's range from a probe of the samples, and measures there how much clipping and
   laser noise do.
2. `law_of` states the variance of an output as ``c + a e_i + b e_j + ab e_i e_j`` (`AnalogSpec.noise_law`),
   where ``e_i`` is the energy, the sum of squared codes, of its row of A and ``e_j`` that of its column of B.
3. Errors that no such law states are made as matrices: laser noise that differs from output to output
   (`_without_followed_laser`), errors that outputs share (`_SHARED_TERMS`, `_common_encoding`), gains of the
   outputs (`_output_gains`). Noise below `_NEGLIGIBLE` of the variance stays in the law, which is quicker.
4. `kernels.read` draws the noise, adds everything, and converts.

`multiply` finds the exact product, in int8 arithmetic where that is exact and quicker, of two halves beyond 8
bits.

Shape suffixes: B matrices, M rows of A and C, K summed, N columns of B and C; G blocks of S = B / G matrices,
each with a converter range and draws of its own. Primed letters count what a probe takes: S' matrices of a
block, T' samples of a sum, M' rows, N' columns and K' products of a sample.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from optical.execution.draws import Draws, fixed_gains
from optical.execution.kernels import (
    NO_SHARED_ERRORS,
    SMALLEST_SCALE,
    Law,
    Lines,
    SharedErrors,
    of_matrices,
    variance_of,
)
from optical.execution.kernels import read as read_codes
from optical.execution.operands import Operand, tile_norms
from optical.execution.spec import AnalogSpec, NoiseLaw, Shot, largest_code
from optical.noise.chip import CommonNoise
from simulator.errors import ClippingWarning

_PROBE_ROWS, _PROBE_BATCHES, _PROBE_SAMPLES = 64, 4, 8
"""Most rows, columns, matrices and samples of a sum that a gain stage reads of each block."""
_NEGLIGIBLE = 0.01
"""Share of the outputs' variance up to which laser noise, or errors of converters, is drawn for each output
on its own from the law, not as it spreads over the outputs; a choice."""
_RADIX_BITS = 7
_RADIX = 2**_RADIX_BITS
"""One step of a code's upper half, in steps of the code."""
_ROWS_AT_ONCE, _OUTPUTS_AT_ONCE = 512, 2**19
"""Least rows whose products of halves are computed together, so that the packing of B does not matter, and
outputs up to which more rows are added, as these stay in a cache. Choices."""
_OUTPUT, _NODE = 2, 4
"""Kinds of draws of a chip, folded into its seed."""
_TOLERATED_CLIPPING = 0.1
"""Largest share of clipping in the variance without a warning: beyond, errors are far from Gaussian; a
choice."""
_RIDGE = 1e-6
"""Share of the largest diagonal element that is added to a covariance before its Cholesky factor is found, as
columns may be equal."""
_WIDER = 1.5
"""Times its range that the warning of clipping proposes; a Gaussian beyond 6 rms is one in a billion."""

Amounts = Any
"""One number for each block, [G]: a numpy array on a CPU, a tensor on an accelerator (same arithmetic)."""
Probes = tuple[torch.Tensor, torch.Tensor]
"""Codes of probed samples: rows of A, [G, S', T', M', K'], and columns of B, [G, S', T', N', K']."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Setting of the output converter for each block, from a probe of its samples; float64 [G]."""

    range_: Amounts
    """Half of the converter's range, in code products; the largest sum if there is no converter."""
    coupling: Amounts
    """Mean of ``sum((a b)^2)`` over that of ``sum(a^2) sum(b^2)``, dimensionless; zero without laser
    noise."""
    signal_gain: Amounts
    """Gain of the signal that remains with clipping, at most 1; 1 where clipping is executed or absent."""
    clipping: Amounts
    """Mean square error of a sample by clipping beside that gain, in code products squared."""


class Energies(NamedTuple):
    """Mean energies (sums of squared codes) over the outputs of each block, float64 [G]."""

    row: Amounts
    """Mean energy of a row of A."""
    column: Amounts
    """Mean energy of a column of B."""
    both: Amounts
    """Mean of the product of both."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Coded:
    """A product of two coded operands, and statistics of them that are found once."""

    spec: AnalogSpec
    """Specification of the product."""
    a: Operand
    """A on its converter's grid, as the chip sets it, [B, M, K]."""
    b: Operand
    """B on its converter's grid, as the chip sets it, [B, K, N], or [1, K, N] for all matrices."""
    blocks: int
    """Number of blocks, into which the matrices are divided evenly."""

    @functools.cached_property
    def unit(self) -> float:
        """One code product, in full-scale products; phase errors of the core included."""
        return self.a.step * self.b.step * self.spec.product_gain

    @functools.cached_property
    def row_unit(self) -> float:
        """Variance in code products squared that one squared code of A makes at a coefficient of 1."""
        return (self.a.step / self.unit) ** 2

    @functools.cached_property
    def column_unit(self) -> float:
        """Variance in code products squared that one squared code of B makes at a coefficient of 1."""
        return (self.b.step / self.unit) ** 2

    @property
    def length(self) -> int:
        """Products of a sum."""
        return self.a.codes.shape[2]

    @property
    def samples(self) -> int:
        """Analog samples of a sum."""
        return -(-self.length // self.spec.analog_length)

    @functools.cached_property
    def energies(self) -> Energies:
        """Mean energies of the outputs of each block."""
        row, column = (_amounts(x.energy.mean((1, 2), dtype=torch.float64)) for x in (self.a, self.b))
        return Energies(*(_of_blocks(x, min(self.blocks, len(x))) for x in (row, column, row * column)))

    @functools.cached_property
    def norms(self) -> Amounts:
        """Sum over a sum's samples of the squared largest singular value of the tile, in full scales squared.

        Mean over the outputs of each block, [G]; zero for a core that is not passive.
        """
        tile, length = self.spec.tile, self.spec.analog_length
        if tile is None:
            return 0.0
        loaded = self.a.mT if self.a.loaded else self.b
        norms = tile_norms(loaded.floating, length, tile.outputs).sum(1).mean(1, dtype=torch.float64)
        return _of_blocks(_amounts(norms), min(self.blocks, len(norms))) * loaded.step**2

    @functools.cached_property
    def probes(self) -> Probes:
        """Codes of the probed samples."""
        return _probe(self, self.a), _probe(self, self.b.mT)

    def mean_variance(self, law: Law) -> Amounts:
        """Return the mean variance of the outputs of each block by a law, [G], in code products squared."""
        row, column, both = self.energies
        return law.constant + law.by_row * row + law.by_column * column + law.by_both * both


def _of_blocks(x: Amounts, blocks: int) -> Amounts:
    """Return the mean over the matrices of each block, [G], of one number for each matrix, [B]."""
    return x if len(x) == blocks else x.reshape(blocks, -1).mean(1)


def _amounts(x: torch.Tensor) -> Amounts:
    """Return a tensor as a numpy array if it is on a CPU, where numpy is quicker on few numbers."""
    return x.numpy() if x.device.type == "cpu" else x


def set_gain(coded: Coded, product: torch.Tensor | None) -> Gain:
    """Return the setting of the output converter, from the signals and noise of a probe of samples.

    Half the range is `adc_range_sigma` times the rms of the samples, noise included, and at most the largest
    sum.

    Parameters
    ----------
    coded : Coded
        The product.
    product : torch.Tensor or None
        Exact product of codes, [B, M, N], if it is known: where a sum is one sample, the probe reads it.
    """
    spec, unit = coded.spec, coded.unit
    noise, zeros = spec.sample_noise, _amounts(coded.a.energy.new_zeros(coded.blocks, dtype=torch.float64))
    most, parts = spec.analog_length / unit, max(1.0, coded.length / spec.analog_length)
    sets_range = math.isfinite(spec.adc_enob_bits) and math.isfinite(spec.adc_range_sigma)
    cross = coupling = zeros
    if noise.by_product > 0.0:
        squares = (x.square().mean(-2) for x in coded.probes)
        cross = _amounts(torch.mul(*squares).sum(-1).double().mean((1, 2)))
        coupling = cross * parts / coded.energies.both.clip(SMALLEST_SCALE, None)
    if not sets_range:
        return Gain(range_=zeros + most, coupling=coupling, signal_gain=zeros + 1.0, clipping=zeros)
    samples = _samples(coded, product)
    power = (
        _amounts(samples.to(torch.float64, copy=True).square_().mean((1, 2, 3, 4))) + noise.constant / unit**2
    )
    if noise.by_each > 0.0:
        both = coded.row_unit * coded.energies.row + coded.column_unit * coded.energies.column
        power = power + noise.by_each / parts * both
    power = power + cross * (noise.by_product / spec.product_gain**2)
    power = power + spec.norm_variance * coded.norms / (parts * unit**2)
    range_ = (spec.adc_range_sigma * power**0.5).clip(SMALLEST_SCALE, most)
    signal_gain, clipping = zeros + 1.0, zeros
    if parts > 1.0 and math.isfinite(spec.adc_bits):
        signal_gain, clipping = _clipped(coded, samples, torch.as_tensor(range_, dtype=samples.dtype))
    return Gain(range_=range_, coupling=coupling, signal_gain=signal_gain, clipping=clipping)


def _clipped(coded: Coded, samples: torch.Tensor, range_: torch.Tensor) -> tuple[Amounts, Amounts]:
    """Return the gain that clipping leaves to a signal, and the mean square error beside it, both [G].

    Clipping takes ``d = sign(x) max(0, |x| - range)`` off a sample x. The best gain is ``1 - s``, with ``s =
    <d x> / <x^2>``, and ``<d^2> - s <d x>`` is left beside it; means are over the probed samples, weighted by
    the squares of their outputs' full scales. As samples of a sum are independent, one gain serves all of
    them.
    """
    edge = range_.view(-1, 1, 1, 1, 1)
    beyond, exact = samples.abs().sub_(edge).relu_(), samples.square().mean(2)
    once, square = beyond.mean(2), beyond.square_().mean(2)
    scales = (x.scale.expand(-1, x.codes.shape[1], -1) / x.scale.mean() for x in (coded.a, coded.b.mT))
    rows, columns = (_probed(coded, scale.square()) for scale in scales)
    weight = rows * columns.mT
    moments = (weight, exact * weight, torch.addcmul(square, once, edge[:, 0]) * weight, square * weight)
    whole, exact, along, square = (x.mean((1, 2, 3), dtype=torch.float64) for x in moments)
    share = along / exact.clamp_(min=SMALLEST_SCALE)
    return _amounts(1.0 - share), _amounts(
        (square - share * along).clamp_(min=0.0).div_(whole.clamp_(min=SMALLEST_SCALE))
    )


def _probed(coded: Coded, rows: torch.Tensor) -> torch.Tensor:
    """Return the probed rows of the probed matrices of each block, [G, S', M', ...]."""
    each = rows.unflatten(0, (min(coded.blocks, rows.shape[0]), -1))
    return _spread(_spread(each, 1, _PROBE_BATCHES), 2, _PROBE_ROWS)


def _probe(coded: Coded, x: Operand) -> torch.Tensor:
    """Return the codes of probed samples of an operand's rows, [G, S', T', M', K']; all are whole samples."""
    width = min(coded.length, coded.spec.analog_length)
    samples = coded.length // width
    codes = _probed(coded, x.codes)[..., : samples * width]
    codes = _spread(codes.unflatten(-1, (samples, width)), 3, _PROBE_SAMPLES)
    return codes.transpose(2, 3).to(x.energy.dtype)


def _samples(coded: Coded, product: torch.Tensor | None) -> torch.Tensor:
    """Return the exact values of the probed samples, [G, S', T', M', N'], in code products."""
    if product is None or coded.samples > 1:
        rows, columns = coded.probes
        return rows @ columns.mT
    outputs = product.unflatten(0, (coded.blocks, 1, -1)).transpose(1, 2)
    return _spread(_spread(_spread(outputs, 1, _PROBE_BATCHES), 3, _PROBE_ROWS), 4, _PROBE_ROWS)


def _spread(x: torch.Tensor, dim: int, most: int) -> torch.Tensor:
    """Return at most `most` entries along a dimension, spread evenly over it.

    The step is coprime to their number: one with a common divisor could meet the same head of attention, or
    the same position of a sequence, each time.
    """
    count = x.shape[dim]
    if count <= most:
        return x
    return x.index_select(dim, _places(count, most, x.device))


@functools.lru_cache(maxsize=256)
def _places(count: int, most: int, device: torch.device) -> torch.Tensor:
    """Return `most` places spread over 0 to ``count - 1``, shape [most]."""
    step = next(step for step in itertools.count(-(-count // most)) if math.gcd(step, count) == 1)
    return torch.arange(most, device=device).mul_(step).remainder_(count)


def law_of(coded: Coded, gain: Gain) -> Law:
    """Return the law of noise in units of code products, and the output converter's grid.

    Where clipping of several samples leaves a gain below 1, noise is divided by it: the result is scaled back
    to a gain of 1, which raises the noise.
    """
    spec, unit, samples = coded.spec, coded.unit, coded.samples
    law = spec.noise_law(
        samples,
        range_=gain.range_ * unit,
        coupling=gain.coupling,
        clipping=gain.clipping * unit**2,
        norms=coded.norms,
    )
    codes = largest_code(spec.adc_bits) if samples == 1 and math.isfinite(spec.adc_bits) else 0
    law, louder = _with_own_encoding(coded, law), gain.signal_gain**-2.0
    return Law(
        constant=law.constant / unit**2 * louder,
        by_row=law.by_row * coded.row_unit * louder,
        by_column=law.by_column * coded.column_unit * louder,
        by_both=law.by_both / spec.product_gain**2 * louder,
        step=gain.range_ * 2.0 ** (1.0 - spec.adc_bits),
        largest_code=codes,
        unit=unit,
    )


def _without_followed_laser(coded: Coded, law: Law, *, exact: bool) -> tuple[Law, torch.Tensor | None]:
    """Return the law without laser noise, and that noise's variance for every output, [B, M, N], or None.

    Laser noise of an output has the variance ``sum((a b)^2)``, which the law has only in the mean, as
    ``sum(a^2) sum(b^2)``. Its spread over the outputs is followed where a sum is one sample and the noise is
    more than `_NEGLIGIBLE` of the variance of the block, or with `exact`; else the law keeps it. On an
    accelerator it is always followed, since to look at the share would be to wait for the device.
    """
    laser, like = coded.spec.own_noise.by_product / coded.spec.product_gain**2, coded.a.energy
    if laser == 0.0 or coded.samples > 1:
        return law, None
    follows = law.constant == law.constant
    if not exact and like.device.type == "cpu":
        others = coded.mean_variance(law._replace(by_both=law.by_both * 0.0))
        follows = law.by_both * coded.energies.both > _NEGLIGIBLE * others
        if not follows.any():
            return law, None
    quick = like.device.type != "cpu" or torch.backends.cpu.get_cpu_capability() == "AVX512"
    dtype = torch.bfloat16 if quick else like.dtype
    a2, b2 = (x.floating.square().mul_(factor).to(dtype) for x, factor in ((coded.a, laser), (coded.b, 1.0)))
    each = torch.matmul(a2, b2).to(like.dtype) * of_matrices(follows, like)
    return law._replace(by_both=law.by_both * ~follows), each


class _ClippingWatch:
    """Number of collapsed products executed by a specification, and whether clipping was warned of."""

    def __init__(self) -> None:
        self.calls = 0
        self.warned = False


@functools.lru_cache(maxsize=1024)
def clipping_watch(spec: AnalogSpec) -> _ClippingWatch:
    """Return the watch of a specification, always the same object for equal ones."""
    del spec
    return _ClippingWatch()


def _warn_of_clipping(coded: Coded, gain: Gain, law: Law) -> None:
    """Warn, once for a specification, where clipping has a large share in the variance of a collapsed sum.

    Only the 1st, 2nd, 4th, 8th ... product of a specification is looked at, since the look waits for an
    accelerator to finish.
    """
    spec, samples = coded.spec, coded.samples
    if samples == 1:
        return
    watch = clipping_watch(spec)
    watch.calls += 1
    if watch.warned or watch.calls & (watch.calls - 1):
        return
    clipped = samples * gain.clipping * gain.signal_gain**-2.0
    share = float((clipped / coded.mean_variance(law).clip(1e-300, None)).mean())
    if share > _TOLERATED_CLIPPING:
        watch.warned = True
        sentence = (
            f"{share:.0%} of the error of a product is clipping by the output converter (range "
            f"{spec.adc_range_sigma:g} rms, {spec.adc_bits:g} bits), which one draw for {samples} samples "
            "does not follow; widen the range (a command: --set core.adc_range_sigma="
            f"{_WIDER * spec.adc_range_sigma:g}), or execute them with exact_tiles"
        )
        warnings.warn(ClippingWarning(sentence, share), stacklevel=2)


def by_sample(coded: Coded) -> list[Coded]:
    """Return the products of the analog samples of a sum, each on the full scales of the whole sum."""
    a, b, width = coded.a, coded.b, coded.spec.analog_length
    pairs = zip(a.codes.split(width, 2), b.codes.split(width, 1), strict=True)
    return [
        dataclasses.replace(coded, a=a.recoded(a_part, -1), b=b.recoded(b_part, -2))
        for a_part, b_part in pairs
    ]


def read(
    coded: Coded, product: torch.Tensor, gain: Gain | None, draws: Draws, *, exact: bool
) -> torch.Tensor:
    """Return the outputs of a product as the core delivers them, [B, M, N].

    A sum of one analog sample is executed: noise, conversion, clipping. Several samples are collapsed into
    one draw with their summed variance.

    Parameters
    ----------
    coded : Coded
        The product.
    product : torch.Tensor
        Exact product of codes, [B, M, N]; its memory may be overwritten.
    gain : Gain or None
        Setting of the output converter, if it was found from more than these operands; None to find it.
    draws : Draws
        Source of noise.
    exact : bool
        Whether to follow every error output by output, however small.
    """
    spec, a, b = coded.spec, coded.a, coded.b
    gain = set_gain(coded, product) if gain is None else gain
    law = law_of(coded, gain)
    _warn_of_clipping(coded, gain, law)
    law, laser = _without_followed_laser(coded, law, exact=exact)
    whole_law = None if exact else _with_small_common_noise(coded, law, gain)
    terms = _SHARED_TERMS if whole_law is None else _SHARED_TERMS[1:]
    law, shares = _with_small_encoding(coded, law if whole_law is None else whole_law, exact=exact)
    errors = [*(term(coded, draws) for term in terms), _common_encoding(coded, draws, shares)]
    added = tuple(error for error in errors if error is not None)
    gains, value = _output_gains(coded), product
    if spec.shot is Shot.COUNTED and spec.shot_variance > 0.0:
        value = _counted(coded, value.to(a.energy.dtype), draws)
    nothing = laser is None and gains is None and not added
    shared = NO_SHARED_ERRORS if nothing else SharedErrors(variance=laser, added=added, gain=gains)
    noise = draws if spec.is_noisy(coded.samples) else None
    return read_codes(value, (Lines(a.energy, a.scale), Lines(b.energy, b.scale)), law, shared, noise)


def _counted(coded: Coded, value: torch.Tensor, draws: Draws) -> torch.Tensor:
    """Return outputs, in code products, as the difference of two detectors' Poisson counts (`AnalogSpec`)."""
    a, b, unit, variance = coded.a, coded.b, coded.unit, coded.spec.shot_variance
    energy, swing = a.energy * a.step**2 + b.energy * b.step**2, value * (2.0 * unit)
    counts = [draws.poisson((energy + side * swing) / (8.0 * variance)) for side in (1.0, -1.0)]
    return (counts[0] - counts[1]).mul_(2.0 * variance / unit).to(value.dtype)


def _output_gains(coded: Coded) -> torch.Tensor | None:
    """Return the gains of the receivers of each output, [M, N], or None if all are 1."""
    chip, a, b = coded.spec.chip, coded.a, coded.b
    if chip is None or chip.output_gain == 0.0:
        return None
    turned, (rows, columns) = chip.holds_weights and a.loaded, (a.codes.shape[1], b.codes.shape[2])
    over, parts = (columns, rows) if turned else (rows, columns), (chip.rows, chip.columns)
    gains = fixed_gains(chip.seed, _OUTPUT, parts, chip.output_gain, shape=over).to(a.energy)
    return gains.mT if turned else gains


def _imbalance(coded: Coded, draws: Draws) -> torch.Tensor | None:
    """Return the errors of couplers that do not divide evenly, in code products [B, M, N], or None.

    A coupler with the splitting ratio k adds ``(2 k - 1) (sum(a^2) - sum(b^2)) / 2``: one k for each node of
    the chip, and besides one for each wavelength, from ``-edge_imbalance`` to ``edge_imbalance`` across the
    comb.
    """
    del draws
    chip, a, b = coded.spec.chip, coded.a, coded.b
    if chip is None or (chip.imbalance == 0.0 and chip.edge_imbalance == 0.0):
        return None
    of_a, of_b = 0.5 * a.step / b.step, 0.5 * b.step / a.step
    over, parts = (a.codes.shape[1], b.codes.shape[2]), (chip.rows, chip.columns)
    nodes = (fixed_gains(chip.seed, _NODE, parts, chip.imbalance, shape=over) - 1.0).to(a.energy)
    added = nodes * (a.energy * of_a - b.energy * of_b)
    if chip.edge_imbalance == 0.0:
        return added
    line = torch.arange(a.codes.shape[2], device=a.codes.device) % chip.lines
    weight = (chip.edge_imbalance * (2.0 * line / max(1, chip.lines - 1) - 1.0)).to(a.energy)
    by_a = (a.floating.square() * weight).sum(-1, keepdim=True) * of_a
    return added + by_a - (b.floating.square() * weight[:, None]).sum(-2, keepdim=True) * of_b


def _common_noise(coded: Coded, draws: Draws) -> torch.Tensor | None:
    """Return the intensity noise that outputs share, in code products [B, M, N], or None."""
    common, a, b = coded.spec.common, coded.a, coded.b
    if common is None or common.variance == 0.0:
        return None
    a_BMK, b_BKN = a.floating, b.floating.expand(a.codes.shape[0], -1, -1)
    if common.holds_weights and a.loaded:
        return _fluctuating(b_BKN.mT, a_BMK.mT, common, draws).mT
    return _fluctuating(a_BMK, b_BKN, common, draws)


def _fluctuating(a_BMK: torch.Tensor, b_BKN: torch.Tensor, common: CommonNoise, draws: Draws) -> torch.Tensor:
    """Return ``A diag(r) B``, [B, M, N], with r the relative intensity noise of each of the K products.

    Outputs of a block of `common.rows` rows and `common.columns` columns share r, and so do `common.length`
    products after each other; between such blocks r is drawn anew.
    """
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


def _with_small_common_noise(coded: Coded, law: Law, gain: Gain) -> Law | None:
    """Return the law with shared intensity noise taken in, or None where it is too large for that.

    It is taken in if it is at most `_NEGLIGIBLE` of the variance in every block.
    """
    common = coded.spec.common
    if common is None:
        return law
    added = gain.coupling * (common.variance / coded.spec.product_gain**2)
    share = added * coded.energies.both <= _NEGLIGIBLE * coded.mean_variance(law)
    return law._replace(by_both=law.by_both + added) if bool(share.all()) else None


def _shared_encoding(spec: AnalogSpec) -> float:
    """Return the variance of operand converters' errors that outputs share, in full scales squared."""
    shared = spec.encoding
    return 0.0 if shared is None else max(0.0, spec.encoding_variance - shared.own_variance)


def _with_own_encoding(coded: Coded, law: NoiseLaw) -> NoiseLaw:
    """Return the law with the errors of operand converters that are set anew for every output."""
    shared, variance = coded.spec.encoding, _shared_encoding(coded.spec)
    if shared is None or variance == 0.0:
        return law
    of_first, of_second = (variance * (lines == 1) for lines in (shared.columns, shared.rows))
    if shared.holds_weights and coded.a.loaded:
        of_first, of_second = of_second, of_first
    # the first operand's errors meet the second's energy
    return dataclasses.replace(law, by_row=law.by_row + of_second, by_column=law.by_column + of_first)


def _with_small_encoding(coded: Coded, law: Law, *, exact: bool) -> tuple[Law, Amounts]:
    """Return the law, and for each block whether errors of operand converters are drawn as shared, bool [G].

    Where they are at most `_NEGLIGIBLE` of a block's variance, the law takes them in. On an accelerator,
    which is not waited for, they are always drawn as shared.
    """
    shared, variance = coded.spec.encoding, _shared_encoding(coded.spec)
    shares = np.ones(coded.blocks, dtype=bool)
    if shared is None or variance == 0.0 or exact or coded.a.energy.device.type != "cpu":
        return law, shares
    of_row, of_column = (variance * (lines > 1) for lines in (shared.rows, shared.columns))
    if shared.holds_weights and coded.a.loaded:
        of_row, of_column = of_column, of_row
    by_row, by_column = of_row * coded.row_unit, of_column * coded.column_unit
    share = by_row * coded.energies.row + by_column * coded.energies.column
    shares = share > _NEGLIGIBLE * (coded.mean_variance(law) + share)
    own = law._replace(by_row=law.by_row + by_row * ~shares, by_column=law.by_column + by_column * ~shares)
    return own, shares


def _common_encoding(coded: Coded, draws: Draws, shares: Amounts) -> torch.Tensor | None:
    """Return the errors of operand converters that outputs share, in code products [B, M, N], or None.

    A setting of A serves a block of `shared.columns` outputs of its row, which thus get ``(A + E) B`` with
    the same E; likewise for B and blocks of `shared.rows` rows. A row of E B is Gaussian with the covariance
    B^T B of the block's columns and is drawn from that, so that there are as many draws as outputs however
    long the sum. Blocks of matrices that do not share (`shares`, bool [G]) skip their draws, so that the
    draws of one block never depend on another.
    """
    spec, a, b = coded.spec, coded.a, coded.b
    shared, variance = spec.encoding, _shared_encoding(spec)
    if shared is None or variance == 0.0 or shared.rows == shared.columns == 1:
        return None
    turned, matrices = shared.holds_weights and a.loaded, max(a.codes.shape[0], b.codes.shape[0])
    first, other = (b.mT, a.mT) if turned else (a, b)
    rows, length, columns = *first.codes.shape[1:], other.codes.shape[2]
    errs = a.energy.new_zeros((matrices, rows, columns)) if shares.any() else None
    deviation = math.sqrt(variance) / spec.product_gain
    sides = ((other.mT, shared.columns, first.step, False), (first, shared.rows, other.step, True))
    for lines, width, step, of_rows in sides:
        for at, each in _blocks(lines.codes.shape[1], width):
            rank, count = min(length, each), (at.stop - at.start) // each
            of_block = (matrices, count, rank, columns) if of_rows else (matrices, rows, count, rank)
            if errs is None:
                draws.skip(torch.Size(of_block))
                continue
            z, out = draws.gaussian(torch.Size(of_block), errs.dtype), errs
            if of_rows:
                z, out = z.movedim(3, 1), errs.mT
            _add_scaled(out[..., at], z, _factor(lines.floating[:, at], each), deviation / step)
    if errs is None:
        return None
    errs = errs if shares.all() else errs * of_matrices(shares, errs)
    return errs.mT if turned else errs


def _add_scaled(
    errs_BMN: torch.Tensor, z_BMJV: torch.Tensor, factor_BJVW: torch.Tensor, deviation: float
) -> None:
    """Add ``deviation * z F`` for each block of columns: standard Gaussians z times a Cholesky factor F.

    J blocks of W columns each, N = J W, of V Gaussians each; factors [1, J, V, W] serve all matrices.
    """
    out_BJMW = errs_BMN.unflatten(2, (-1, factor_BJVW.shape[3])).transpose(1, 2)
    z_BJMV = z_BMJV.transpose(1, 2)
    for place, (out, z) in enumerate(zip(out_BJMW, z_BJMV, strict=True)):
        out.baddbmm_(z, factor_BJVW[min(place, len(factor_BJVW) - 1)], alpha=deviation)


def _blocks(count: int, width: int) -> Iterator[tuple[slice, int]]:
    """Yield the slice of all whole blocks of `width` lines, then that of a short last one, with their widths.

    Nothing is yielded for a width of 1, as blocks of one line share nothing.
    """
    whole = count - count % width
    for at, each in ((slice(0, whole), width), (slice(whole, count), count - whole)):
        if width > 1 and at.start < at.stop:
            yield at, each


def _factor(x_BRK: torch.Tensor, width: int) -> torch.Tensor:
    """Return F with ``F^T F = X X^T`` for each block of `width` rows of X, [B, J, V, width].

    F is X^T itself, V = K, if that has no more rows than a Cholesky factor, V = width.
    """
    length = x_BRK.shape[2]
    x_BJWK = x_BRK.unflatten(1, (-1, width))
    if length <= width:
        return x_BJWK.mT
    x_JWK = x_BJWK.flatten(0, 1)  # a view of one matrix, whatever its order in memory
    square = x_JWK.bmm(x_JWK.mT).double()
    ridge = square.diagonal(dim1=1, dim2=2).amax(1).clamp_(min=SMALLEST_SCALE).mul_(_RIDGE)
    square.diagonal(dim1=1, dim2=2).add_(ridge[:, None])
    factor = torch.linalg.cholesky(square, upper=True).to(x_BRK.dtype)
    return factor.unflatten(0, (x_BRK.shape[0], -1))


_SHARED_TERMS: tuple[Callable[[Coded, Draws], torch.Tensor | None], ...] = (
    _common_noise,
    _imbalance,
)
"""Functions that return errors that outputs share, in code products, or None; in the order of their draws.
`read` leaves the first one out where the law of noise includes it (`_with_small_common_noise`), and adds the
errors of operand converters (`_common_encoding`)."""


def clipped_fraction(coded: Coded) -> float:
    """Return the expected fraction of probed samples that the converter clips, 0 to 1; for a single block."""
    gain, (rows, columns) = set_gain(coded, None), (x.flatten(0, 2) for x in coded.probes)
    a, b = coded.a.recoded(rows, -1), coded.b.recoded(columns.mT, -2)
    probed = dataclasses.replace(coded, a=a, b=b)
    law, laser = _without_followed_laser(probed, law_of(probed, gain), exact=True)
    signal, variance = a.codes @ b.codes, variance_of(law, a.energy, b.energy)
    variance = variance if laser is None else variance + laser
    spread = (math.sqrt(2.0) * variance.sqrt()).clamp_(min=SMALLEST_SCALE)
    range_ = of_matrices(gain.range_, a.energy)
    margins = torch.stack((range_ - signal, range_ + signal)) / spread
    return float(torch.special.erfc(margins).mean())


def multiply(a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> torch.Tensor:
    """Return the exact product of codes, [B, M, N]: int32 for int8 codes, else floating point.

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
    """Return the product of int8 codes, int32; if all matrices meet one B, as one product of their rows."""
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
    of_a, of_b = ((*halves, torch.add(*halves)) for halves in (_halves(a_BMK), _halves(b_BKN)))
    out = torch.empty((*a_BMK.shape[:2], b_BKN.shape[2]))
    rows = max(_ROWS_AT_ONCE, _OUTPUTS_AT_ONCE // (out.shape[0] * out.shape[2]))
    for *some, product in zip(*(x.split(rows, 1) for x in (*of_a, out)), strict=True):
        high, low, crossed = map(_int8_product, some, of_b)
        crossed.sub_(high).sub_(low)
        torch.mul(high, float(_RADIX), out=product)
        product.add_(crossed).mul_(_RADIX).add_(low)
    return out


def _halves(codes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return int16 codes as ``_RADIX high + low``, both int8, low from -64 to 63."""
    high = (codes + _RADIX // 2).bitwise_right_shift_(_RADIX_BITS).to(torch.int8)
    return high, codes.to(torch.int8).sub_(high << _RADIX_BITS)  # modulo 256, of which a half has less


def _dense(codes: torch.Tensor) -> torch.Tensor:
    """Return a matrix without the strides that mislead `torch._int_mm` on a CPU where a size is 1.

    A row that was a column keeps its stride of 1 in both dimensions, and counts as contiguous; torch 2.13
    then reads wrong memory. A copy has the strides that its shape says.
    """
    return codes.clone(memory_format=torch.contiguous_format) if 1 in codes.shape else codes
