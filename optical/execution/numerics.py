"""Execution of matrix products in torch, as a core with analog errors or a photon counter delivers them.

`AnalogNumerics` follows the errors that an `AnalogSpec` states. `CountingNumerics` counts photons with ideal
detectors; `HomodyneNumerics` sets the laser of a core for a number of photons per product.

Shape suffixes: B matrices, M rows of A and C, K summed, N columns of B and C; a sum is cut into T analog
samples of W products each.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeVar

import torch

from optical.execution.draws import Draws
from optical.execution.kernels import SMALLEST_SCALE
from optical.execution.operands import Operand, Order, Orders, divided, encode, multiply_transformed
from optical.execution.readout import Coded, by_sample, clipped_fraction, multiply, read, set_gain
from optical.execution.spec import AnalogSpec, Residues, Scale, draw_misread, loads_second
from simulator.errors import WorkloadError, check_positive
from simulator.keys import mix_key

_T = TypeVar("_T")

_MISREAD_TOGETHER = 2**20
"""Misread remainders, expected, of the samples that are computed together, so that their memory stays small;
a choice."""
_AUTOCASTING = ("cpu", "cuda")
"""Types of devices on which products are executed; each has an autocast of its own."""
_LONGEST_SUM = 512
"""Most terms of a floating-point sum: libraries split longer ones by the number of threads, which would round
differently."""


def executed(function: Callable[..., _T]) -> Callable[..., _T]:
    """Decorate a function to run without autograd and without autocast, in the types of its tensors."""

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> _T:  # noqa: ANN401
        with torch.no_grad():
            if not any(torch.is_autocast_enabled(kind) for kind in _AUTOCASTING):
                return function(*arguments, **options)
            with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
                return function(*arguments, **options)

    return run


class Loading(NamedTuple):
    """Setting of B on a core once, for all row blocks of A that meet it."""

    draws: Draws
    """Source of B's stochastic rounding and errors of loading."""
    second: bool
    """Whether a core that holds weights holds B, the second operand, rather than A."""


@dataclass(frozen=True)
class AnalogNumerics:
    """Executor of products with the errors of a photonic core, drawn from its `AnalogSpec`.

    Notes
    -----
    Operands are scaled to [-1, 1], per tensor (over all batches) or per row of A and column of B, and
    rounded to the symmetric codes ``-L .. L``, ``L = 2**(bits - 1) - 1``. A sum over K takes
    ``T = ceil(K / analog_length)`` analog samples, each with fresh Gaussian noise of the variance that
    `AnalogSpec` states; they are converted one by one and added digitally.

    The converter has the step ``D = 2 R / 2**adc_bits``, codes up to ``2**(adc_bits - 1) - 1`` on either
    side, and Gaussian noise before it that makes its total noise that of its effective bits,
    ``(2 R / 2**enob)**2 / 12``. The gain stage that sets its range R reads a probe: samples spread
    over all, at most 64 rows, 64 columns, 4 batches and 8 samples of a sum, hence all of a small product.

    With T = 1, or `exact_tiles`, every sample is executed. Otherwise the T samples collapse into one draw
    per output with the summed variance: rounding counts as ``D**2 / 12`` per sample, clipping with the mean
    square that the probe's best gain leaves, by which all noise grows; laser noise is spread over the outputs
    as ``sum(a^2) sum(b^2)``, with the probe's mean of ``sum((a b)^2)``; so it is in a single sample, where
    it makes less than 1 % of the variance. That clipping compresses and has heavy tails is lost, and a probe
    finds it only roughly: where `clipped_fraction` is not far below 1e-3, trust `exact_tiles`.

    No gradient passes: what a backward pass computes are products of their own.
    """

    spec: AnalogSpec
    """Specification of the products."""
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
            Seed of all noise and stochastic rounding, at least 0. Equal keys and operands give equal results,
            for any number of threads; without `orders` operands must also have the same layout in memory. A
            CPU and an accelerator draw differently.
        orders : Orders
            Order in which the elements of A, and of B, take their draws.

        Raises
        ------
        WorkloadError
            If the shapes do not make a batched product.
        """
        _check_shapes(a_BMK, b_BKN)
        if self.spec.is_exact:
            return torch.bmm(a_BMK, b_BKN)
        if self.spec.transforms is not None:
            plain = dataclasses.replace(self, spec=dataclasses.replace(self.spec, transforms=None))
            return multiply_transformed(
                a_BMK,
                b_BKN,
                self.spec.transforms,
                lambda a, b, number: plain.matmul(a, b, mix_key(key, number) if number else key, orders),
            )
        return self.matmul_blocks(a_BMK, b_BKN, Draws([key], a_BMK.device), orders)

    def matmul_blocks(
        self,
        a_BMK: torch.Tensor,
        b_BKN: torch.Tensor,
        draws: Draws,
        orders: Orders,
        *,
        single: bool = False,
        loading: Loading | None = None,
    ) -> torch.Tensor:
        """Return the products of blocks of matrices, each block with a converter range and draws of its own.

        Parameters
        ----------
        a_BMK, b_BKN : torch.Tensor
            Operands, shapes [B, M, K] and [B, K, N], or [1, K, N] for all.
        draws : Draws
            Source of the draws of each block; of a single block with residue numbers.
        orders : Orders
            Order in which the elements of A, and of B, take their draws.
        single : bool
            Whether a block is one matrix, which then is worth a product of its own in integers.
        loading : Loading or None
            Setting of B where further row blocks meet it; None for one of this product's own.
        """
        if loading is None:
            loading = Loading(draws, loads_second(a_BMK.shape[1], b_BKN.shape[2]))
        total: torch.Tensor | None = None
        in_blocks, width = self.spec.scale is Scale.BLOCK, self.spec.analog_length
        order_a, order_b = (Order.ROWS, Order.ROWS) if in_blocks else orders
        for at in self._coded_together(a_BMK, b_BKN) if in_blocks else [slice(None)]:
            a_part, b_part = a_BMK[..., at], b_BKN[:, at]
            if in_blocks:
                a_part, b_part = _samples_of_a(a_part, width), _samples_of_b(b_part, width)
            alone = single or a_part.shape[0] == 1
            a = encode(a_part, -1, self.spec, draws, loaded=not loading.second, order=order_a, single=alone)
            b = encode(
                b_part, -2, self.spec, loading.draws, loaded=loading.second, order=order_b, single=alone
            )
            for partial_sum in self._partial_sums(a, b, draws, a_BMK.shape[0]):
                total = partial_sum if total is None else total.add_(partial_sum)
        return typing.cast("torch.Tensor", total).to(a_BMK.dtype)

    def _coded_together(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> list[slice]:
        """Return slices of K whose operands are coded together under block scales.

        One sample each; of residue numbers several, up to `_MISREAD_TOGETHER` and `_LONGEST_SUM`.
        """
        width, residues, together = self.spec.analog_length, self.spec.residues, 1
        if residues is not None:
            outputs = a_BMK.shape[0] * a_BMK.shape[1] * b_BKN.shape[2]
            misread = max(1.0, outputs * math.fsum(residues.misreadings))
            together = max(1, int(min(_MISREAD_TOGETHER / misread, _LONGEST_SUM / width)))
        starts = range(0, a_BMK.shape[2], together * width)
        return [slice(start, start + together * width) for start in starts]

    def _partial_sums(self, a: Operand, b: Operand, draws: Draws, matrices: int) -> Iterator[torch.Tensor]:
        """Yield outputs that are added digitally: of all coded operands at once, or of each analog sample."""
        if self.spec.residues is not None:
            yield _read_residues(self.spec.residues, a, b, draws, matrices)
            return
        whole = Coded(spec=self.spec, a=a, b=b, blocks=draws.blocks)
        products, gain = [whole], None
        if self.exact_tiles and whole.samples > 1:
            products, gain = by_sample(whole), set_gain(whole, None)
        for coded in products:
            product = multiply(coded.a.codes, coded.b.codes)
            yield read(coded, product, gain, draws, exact=self.exact_tiles)

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
            Key of the `matmul` whose operands these are. With block scales, stochastic rounding and errors of
            loading follow the same law but are other draws than those of `matmul`.
        """
        _check_shapes(a_BMK, b_BKN)
        draws, spec, width = Draws([key], a_BMK.device), self.spec, a_BMK.shape[2]
        if spec.scale is Scale.BLOCK:
            width = spec.analog_length
        parts = zip(a_BMK.split(width, 2), b_BKN.split(width, 1), strict=True)
        pairs = [_set(a_part, b_part, spec, draws) for a_part, b_part in parts]
        firsts, seconds = zip(*((a.values, b.values) for a, b in pairs), strict=True)
        return torch.cat(firsts, 2).to(a_BMK.dtype), torch.cat(seconds, 1).to(b_BKN.dtype)

    @executed
    def entering(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return both operands as they enter the core: without the electronic channels, and rotated.

        Parameters
        ----------
        a_BMK, b_BKN : torch.Tensor
            Operands, shapes [B, M, K] and [B, K, N], of one floating-point type.
        """
        _check_shapes(a_BMK, b_BKN)
        transforms = self.spec.transforms
        if transforms is None:
            return a_BMK, b_BKN
        division = divided(a_BMK, b_BKN, transforms)
        return division.a_BMK, division.b_BKN

    @executed
    def full_scales(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the full scales of operands that enter the core, broadcastable to them.

        Parameters
        ----------
        a_BMK, b_BKN : torch.Tensor
            Operands as `entering` returns them. Where operands are cut into slices, scales of the first
            slice.
        """
        return _element_scales(a_BMK, self.spec), _element_scales(b_BKN.mT, self.spec).mT

    @executed
    def clipped_fraction(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> float:
        """Return the expected fraction of probed analog samples that the output converter clips, 0 to 1.

        Parameters
        ----------
        a_BMK, b_BKN : torch.Tensor
            Operands, shapes [B, M, K] and [B, K, N], of one floating-point type.
        """
        _check_shapes(a_BMK, b_BKN)
        if math.isinf(self.spec.adc_bits):
            return 0.0
        a, b = _set(a_BMK, b_BKN, self.spec, Draws([0], a_BMK.device))
        return clipped_fraction(Coded(spec=self.spec, a=a, b=b, blocks=1))


def _set(a_BMK: torch.Tensor, b_BKN: torch.Tensor, spec: AnalogSpec, draws: Draws) -> tuple[Operand, Operand]:
    """Return both operands coded, loaded and set on the chip."""
    second = loads_second(a_BMK.shape[1], b_BKN.shape[2])
    a = encode(a_BMK, -1, spec, draws, loaded=not second)
    return a, encode(b_BKN, -2, spec, draws, loaded=second)


def _samples_of_a(a_BMK: torch.Tensor, width: int) -> torch.Tensor:
    """Return A cut into analog samples of W products, [B T, M, W]; the last is padded with zeros."""
    a_BMK = torch.nn.functional.pad(a_BMK, (0, -a_BMK.shape[-1] % width))
    return a_BMK.unflatten(2, (-1, width)).transpose(1, 2).flatten(0, 1).contiguous()


def _samples_of_b(b_BKN: torch.Tensor, width: int) -> torch.Tensor:
    """Return B cut into analog samples of W products, [B T, W, N]; the last is padded with zeros."""
    b_BKN = torch.nn.functional.pad(b_BKN, (0, 0, 0, -b_BKN.shape[1] % width))
    return b_BKN.unflatten(1, (-1, width)).flatten(0, 1).contiguous()


def _read_residues(residues: Residues, a: Operand, b: Operand, draws: Draws, matrices: int) -> torch.Tensor:
    """Return the product of coded samples as residue numbers deliver it, [B, M, N].

    Operands are the samples of B matrices, [B T, M, W] and [B T, W, N]. A sample's sum is exact unless a
    remainder is misread, since `AnalogSpec` lets no sum leave the dynamic range. Hence one exact product of
    all samples is taken; only for misread samples is the integer formed, shifted by the weights of its wrong
    remainders (`Residues.weights`) and folded into the range, and the difference added to the output.
    """
    samples, rows, columns = a.codes.shape[0] // matrices, a.codes.shape[1], b.codes.shape[2]
    a_BMK = a.values.to(a.energy.dtype).unflatten(0, (-1, samples)).transpose(1, 2).flatten(2)
    b_BKN = b.values.to(b.energy.dtype).unflatten(0, (-1, samples)).flatten(1, 2)
    c_BMN = a_BMK.bmm(b_BKN)
    misread = draw_misread(residues, a.codes.shape[0] * rows * columns, draws.on_host())
    index, shift = (torch.from_numpy(x).to(c_BMN.device) for x in (misread.index, misread.shift))
    batch, row, column = index // (rows * columns), index // columns % rows, index % columns
    exact = (a.codes[batch, row].double() * b.codes[batch, :, column].double()).sum(-1)
    read_sum = exact + shift
    read_sum.sub_((read_sum / residues.product).round_(), alpha=residues.product)
    scale = a.scale[batch, row, 0].double() * b.scale[batch, 0, column].double()
    error = read_sum.sub_(exact).mul_(scale).mul_(a.step * b.step).to(c_BMN.dtype)
    output = (batch // samples * rows + row) * columns + column
    if c_BMN.device.type == "cpu":  # one thread adds along one dimension, hence always in the same order
        c_BMN.view(-1).index_add_(0, output, error)
    else:
        c_BMN.view(-1).index_put_((output,), error, accumulate=True)
    return c_BMN


def _element_scales(rows: torch.Tensor, spec: AnalogSpec) -> torch.Tensor:
    """Return full scales of rows [B, M, K]: of all, [1, 1, 1], of each row, [B, M, 1], or of each element."""
    size = rows.abs()
    if spec.scale is Scale.TENSOR:
        return size.amax().view(1, 1, 1)
    if spec.scale is Scale.ROW:
        return size.amax(2, keepdim=True)
    parts = [part.amax(2, keepdim=True).expand_as(part) for part in size.split(spec.analog_length, 2)]
    return torch.cat(parts, 2)


def _check_shapes(a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> None:
    """Refuse operands whose shapes or types do not make a batched product."""
    a, b = tuple(a_BMK.shape), tuple(b_BKN.shape)
    if len(a) != 3 or len(b) != 3 or a[0] != b[0] or a[2] != b[1] or 0 in a + b:
        msg = f"operands must have non-empty shapes [B, M, K] and [B, K, N]; got {list(a)} and {list(b)}"
        raise WorkloadError(msg)
    check_types(a_BMK, b_BKN)


def check_types(a: torch.Tensor, b: torch.Tensor) -> None:
    """Refuse operands unless both have the same floating-point type.

    Raises
    ------
    WorkloadError
        If their types differ, or are of integers or complex numbers.
    """
    if a.dtype != b.dtype or not a.is_floating_point():
        msg = f"operands must have one floating-point type; got {a.dtype} and {b.dtype}: convert with .to()"
        raise WorkloadError(msg)


class Signs(StrEnum):
    """Encoding of signed operands in light, which is never negative."""

    OFFSET = "offset"
    """Operands are shifted to zero and above; digital electronics subtracts the products with the shifts."""
    PAIR = "pair"
    """Positive and negative products go to a detector each; digital electronics takes the difference."""


@dataclass(frozen=True, kw_only=True)
class CountingNumerics:
    """Products of light intensities, whose photons ideal detectors count.

    Notes
    -----
    An input x >= 0 is a brightness and a weight w a transmission v in [0, 1]; a detector collects the light
    of a whole dot product and counts Poisson(g sum(x v)) photons. Signed operands follow `Signs`. As a pair,
    an input has two brightnesses, for its positive and its negative part, each with transmissions to both
    detectors. With offsets, inputs are shifted by the least input and weights by the least weight.

    The gain g is set so that the mean count of an output over the products of its sum is `photons_per_mac`:
    detected photons, averaged over data and weights, as Wang et al. count them. The relative noise of an
    output falls as one over the square root of its count, hence longer vectors need fewer photons per
    multiplication.

    References
    ----------
    T. Wang et al., "An optical neural network using less than 1 photon per multiplication", Nature
    Communications 13, 123 (2022).
    """

    photons_per_mac: float
    """Detected photons per multiplication, dimensionless."""
    signs: Signs = Signs.OFFSET
    """Encoding of signed operands."""

    def __post_init__(self) -> None:
        check_positive(self, "photons_per_mac")

    @torch.no_grad()
    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product as the detectors count it, shape [B, M, N]; `key` seeds the counts."""
        generator = torch.Generator(a_BMK.device).manual_seed(key)
        if self.signs is Signs.PAIR:
            rates = _pair(a_BMK, b_BKN)
            gain = self._gain(float(rates[0].mean() + rates[1].mean()), a_BMK.shape[-1])
            plus, minus = (torch.poisson(gain * rate, generator) for rate in rates)
            return (plus - minus) / gain
        least, dimmest = b_BKN.min(), a_BMK.min().clamp(max=0.0)
        bright_BMK = a_BMK - dimmest
        rate = torch.bmm(bright_BMK, b_BKN - least)
        gain = self._gain(float(rate.mean()), a_BMK.shape[-1])
        added = least * bright_BMK.sum(-1, keepdim=True) + dimmest * b_BKN.sum(-2, keepdim=True)
        return torch.poisson(gain * rate, generator) / gain + added

    def _gain(self, mean_rate: float, length: int) -> float:
        """Return photons per unit of ``sum(x v)``, whose mean over outputs is `mean_rate`."""
        return self.photons_per_mac * length / max(mean_rate, SMALLEST_SCALE)


class LitCore(Protocol):
    """A core whose laser power is set for each product."""

    def spec(self, mean_square: float) -> AnalogSpec:
        """Return the errors of a product whose operands have a mean square, in full scales squared."""
        ...


@dataclass(frozen=True, kw_only=True)
class HomodyneNumerics:
    """Products of a homodyne core whose laser is set, for each product, to a number of photons.

    Notes
    -----
    Photons are counted at the actual mean squares of the operands, each row of A and column of B at its own
    full scale. The core so lit has an `AnalogSpec`, which `AnalogNumerics` executes.
    """

    lit: LitCore
    """The core with its number of photons."""

    @torch.no_grad()
    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product as the core delivers it, shape [B, M, N].

        Raises
        ------
        LinkError
            If the core cannot work with that number of photons.
        """
        mean_square = 0.5 * (_mean_square(a_BMK, -1) + _mean_square(b_BKN, -2))
        spec = self.lit.spec(max(mean_square, math.sqrt(SMALLEST_SCALE)))
        return AnalogNumerics(spec).matmul(a_BMK, b_BKN, key)


def _pair(a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sums of positive products and of the magnitudes of negative ones, shapes [B, M, N]."""
    above_BKN, below_BKN = b_BKN.clamp(min=0.0), (-b_BKN).clamp(min=0.0)
    if not bool((a_BMK < 0.0).any()):
        return torch.bmm(a_BMK, above_BKN), torch.bmm(a_BMK, below_BKN)
    light_BMK = torch.cat((a_BMK.clamp(min=0.0), (-a_BMK).clamp(min=0.0)), -1)
    like_BKN, unlike_BKN = torch.cat((above_BKN, below_BKN), -2), torch.cat((below_BKN, above_BKN), -2)
    return torch.bmm(light_BMK, like_BKN), torch.bmm(light_BMK, unlike_BKN)


def _mean_square(x: torch.Tensor, summed_dim: int) -> float:
    """Return the mean square of an operand, each vector along `summed_dim` scaled to its full scale."""
    full = x.abs().amax(summed_dim, keepdim=True).clamp_(min=SMALLEST_SCALE)
    return float((x / full).square().mean())
