"""Statistics of the operands of a product, its SNR, and moments of operands that are scaled and rounded.

One currency of precision for all machines: the executed signal-to-noise ratio (`signal_to_noise_db`) of
products of stated operands (`OperandKind`). Without torch, so that everything analytic can ask for it.

Shape suffixes: M rows of A, K summed, N columns of B.

Every machine does this to its operands, converters and number formats alike: a vector's largest magnitude
becomes full scale, what is smaller is rounded to the codes below. How large the largest of K random
elements is, and what rounding then costs, is worked out here from the distribution (`OperandLaw`), in a
millisecond and without drawing.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist
from typing import Annotated, Any, Protocol

import numpy as np

from simulator.amounts import Reals
from simulator.errors import Bounds, Checked, ParameterError, Positive, check_positive
from simulator.units import db_from_ratio

OUTLIER_SHARE = 0.001
"""Share of the channels that are larger in `OperandKind.OUTLIERS`, dimensionless; a choice. Dettmers et al.,
"LLM.int8()", arXiv:2208.07339, section 4: about 0.1 % of all feature dimensions from 6.7 billion
parameters on."""
OUTLIER_SIZE = 20.0
"""Times that they are larger, dimensionless; a choice. The same: up to 20 times the other dimensions."""
GRADIENT_SPREAD = 1.0
"""Standard deviation of the logarithm of single elements' scales in `OperandKind.GRADIENTS`,
dimensionless; assumed. With the Gaussian's own 1.11, that of ln|x| is 1.5. Chmiel et al., "Neural
gradients are near-lognormal", arXiv:2006.08173: the shape is measured there; the width differs by layer
and is our choice."""

_CHANNELS, _ROWS, _HALVINGS = 1024, 96, 12
"""Channels and rows that are drawn to see what the loudest hold, and halvings of an interval; choices."""
_DRAWS_OF_ONE = 16
"""Draws of which the middle one, in order, stands for all; a choice."""
_DEVIATIONS = np.linspace(-6.0, 6.0, 193)
"""Logarithms of scales, in standard deviations, at which an error that follows an element's scale is told."""


class OperandKind(StrEnum):
    """Named statistics of the operands of a product."""

    UNIFORM = "uniform"
    """Both spread evenly over a range around zero."""
    GAUSSIAN = "gaussian"
    """Both Gaussian."""
    OUTLIERS = "outliers"
    """Gaussian, 0.1 % of A's channels along the sum (at least one) 20 times larger: activations of large
    models."""
    GRADIENTS = "gradients"
    """A near lognormal over decades of magnitude, as gradients are; B Gaussian."""
    CAPTURED = "captured"
    """Those of a trained transformer, product by product, layer by layer."""


class Element(StrEnum):
    """Shape of the distribution of single elements, their scales apart."""

    UNIFORM = "uniform"
    GAUSSIAN = "gaussian"

    @property
    def mean_square(self) -> float:
        """Mean square of z, of even elements between -1 and 1 or of Gaussian ones of variance 1."""
        return 1.0 if self is Element.GAUSSIAN else 1.0 / 3.0

    def below(self, x: float) -> float:
        """Return the probability that |z| is no larger."""
        return math.erf(x / math.sqrt(2.0)) if self is Element.GAUSSIAN else min(x, 1.0)


Spread = Annotated[float, Bounds(high=5.0)]
"""Standard deviation of the logarithm of scales."""


@dataclass(frozen=True, kw_only=True)
class OperandLaw(Checked):
    """Distribution of one operand: elements of zero mean times scales of elements, channels and rows.

    Notes
    -----
    An element is e^(t w) c_k r_i z: z of shape `element`, w Gaussian, ln c_k and ln r_i Gaussian; some
    channels are larger by a factor. All deviations are of natural logarithms, all fields dimensionless.
    Excess of kurtosis over the shape's own is e^(4 t^2).
    """

    element: Element = Element.GAUSSIAN
    """Shape of z."""
    element_spread: Spread = 0.0
    """Standard deviation of the logarithm of single elements' scales, t."""
    channel_spread: Spread = 0.0
    """Standard deviation of the logarithm of the scales of channels, places along the sum, outliers apart."""
    row_spread: Spread = 0.0
    """Standard deviation of the logarithm of the scales of rows (tokens, or outputs of a weight)."""
    outlier_share: Annotated[float, Bounds(high=0.5)] = 0.0
    """Share of channels that are larger, 0 to 0.5; at least one channel where it is not zero."""
    outlier_size: Positive = 1.0
    """How many times larger they are."""

    @property
    def spread(self) -> float:
        """Standard deviation of the logarithm of an element's scale, over elements and channels."""
        return math.hypot(self.element_spread, self.channel_spread)

    def without_rows(self) -> OperandLaw:
        """Return the law of single elements of a whole tensor, the spread of its rows part of their own."""
        spread = math.hypot(self.element_spread, self.row_spread)
        return replace(self, element_spread=spread, row_spread=0.0)

    def outliers(self, length: int) -> int:
        """Return how many of so many channels are larger."""
        return max(1, round(self.outlier_share * length)) if self.outlier_share > 0.0 else 0

    def sizes(self, length: int, outliers: int | None = None) -> tuple[tuple[float, int], ...]:
        """Return sizes of channels, and how many have each; by default as many outliers as a row has."""
        count = self.outliers(length) if outliers is None else outliers
        return tuple((size, n) for size, n in ((1.0, length - count), (self.outlier_size, count)) if n > 0)

    def mean_square(self, length: int) -> float:
        """Return the mean square of elements of rows of a length, all scales counted."""
        of_channels = math.fsum(n * size**2 for size, n in self.sizes(length)) / length
        return self.element.mean_square * of_channels * math.exp(2.0 * (self.spread**2 + self.row_spread**2))

    def scales(self, length: int) -> tuple[Reals, Reals]:
        """Return scales of elements, as logarithms to base 2, and the share of the power that is at each."""
        spread = math.hypot(self.spread, self.row_spread)
        sizes, counts = np.array(self.sizes(length)).T
        power = counts * sizes**2
        logs = spread * _DEVIATIONS + 2.0 * spread**2  # those of power, not of numbers
        shares = np.exp(-0.5 * _DEVIATIONS**2)
        found = np.log2(sizes)[:, None] + logs / math.log(2.0)
        return found.ravel(), np.outer(power / power.sum(), shares / shares.sum()).ravel()

    def draw(self, generator: np.random.Generator, rows: int, length: int) -> Reals:
        """Return an operand, shape [rows, length]."""
        x = self.elements(generator, rows, length)
        channels = np.exp(self.channel_spread * generator.standard_normal(length))
        channels[generator.permutation(length)[: self.outliers(length)]] *= self.outlier_size
        x *= channels
        x *= np.exp(self.row_spread * generator.standard_normal((rows, 1)))
        return x

    def vectors(self, generator: np.random.Generator, count: int, length: int, larger: int) -> Reals:
        """Return pieces of different rows, so many of their channels larger, shape [count, length].

        Notes
        -----
        The larger channels, on which most hangs, are spread over the quantiles of their distribution.
        """
        whole = replace(self, element_spread=self.spread, channel_spread=0.0)
        x = whole.elements(generator, count, length)
        for channel in range(larger):
            many = np.sort(whole.elements(generator, count * _DRAWS_OF_ONE, 1)[:, 0])
            x[:, channel] = self.outlier_size * generator.permutation(
                many[_DRAWS_OF_ONE // 2 :: _DRAWS_OF_ONE]
            )
        return x

    def elements(self, generator: np.random.Generator, rows: int, length: int) -> Reals:
        """Return elements without the scales of channels and rows, shape [rows, length]."""
        return self.spread_out(*self.shapes(generator, rows, length))

    def shapes(self, generator: np.random.Generator, rows: int, length: int) -> tuple[Reals, Reals | None]:
        """Return z and w of elements, w None where all scales are one; only the kind of the law matters."""
        shape = (rows, length)
        even = self.element is Element.UNIFORM
        x = generator.uniform(-1.0, 1.0, shape) if even else generator.standard_normal(shape)
        return x, generator.standard_normal(shape) if self.element_spread else None

    def spread_out(self, x: Reals, logs: Reals | None) -> Reals:
        """Return elements of shapes, scaled as the law has it."""
        return x if logs is None else x * np.exp(self.element_spread * logs)


@dataclass(frozen=True, kw_only=True)
class Operands:
    """Statistics of both operands of a product C = A B."""

    a: OperandLaw
    """Of A, whose channels are its columns."""
    b: OperandLaw
    """Of B, whose channels are its rows."""
    coherence: float = 1.0
    """Mean square of the product over that of independent operands of even channels, dimensionless: above 1
    where both follow a common pattern along the sum, or where the larger channels of both meet."""
    meeting: float = 1.0
    """The part of it that channels make, dimensionless: mean over channels of the mean squares of A times
    those of B, over the product of their means."""

    def __post_init__(self) -> None:
        check_positive(self, "coherence", "meeting")

    def draw(
        self, generator: np.random.Generator, rows: int, length: int, columns: int
    ) -> tuple[Reals, Reals]:
        """Return both operands, shapes [rows, length] and [length, columns].

        Parameters
        ----------
        generator : numpy.random.Generator
            Source of all randomness.
        rows, length, columns : int
            M, K and N, at least 1.

        Notes
        -----
        Coherence c: a share p of the power of each element, p^2 = (c - 1)/(K - 1), follows a pattern of
        signs along the sum that A and B have in common, times a Gaussian of the row (column).
        """
        if min(rows, length, columns) < 1:
            msg = f"operands need at least one row, product and column; got {rows}, {length} and {columns}"
            raise ParameterError(msg)
        if self.coherence < 1.0:
            msg = (
                f"operands with a coherence below 1 ({self.coherence:g}) can be predicted, not drawn; take 1"
            )
            raise ParameterError(msg)
        a, b = self.a.draw(generator, rows, length), self.b.draw(generator, columns, length)
        if self.coherence > 1.0 and length > 1:
            share = min(1.0, math.sqrt((self.coherence - 1.0) / (length - 1)))
            signs = generator.choice((-1.0, 1.0), length)
            a, b = (_patterned(x, signs, share, generator) for x in (a, b))
        return a, b.T


@dataclass(frozen=True, kw_only=True)
class Loudest:
    """Loss of a product without its loudest channels, those of the largest max|a_k| max|b_k|."""

    kept: float
    """Power of the product without them over that of all, 0 to 1."""
    meeting: float
    """Factor by which `Operands.meeting` of the channels that are left differs from that of all."""


@functools.lru_cache(maxsize=4096)
def without_loudest(operands: Operands, length: int, count: int) -> Loudest:
    """Return what is left of products without so many of their loudest channels.

    Parameters
    ----------
    operands : Operands
        Statistics of A and B; what common patterns add is taken to be spread like power.
    length, count : int
        Channels, and how many of them go.

    Notes
    -----
    Channels are drawn with the scales of their laws, ordered so that loud ones meet as often as is known, and
    rows of elements in them, among whose largest magnitudes the loudest channels are found: of elements over
    decades of magnitude the channel of the largest one also holds much of the power. What of a meeting their
    scales cannot make, those of even channels of B say, stays with the channels that are left, as it does in
    attention's values.
    """
    blocks, width = channel_blocks(length)
    taken = max(1, round(count * width / length))
    if count == 0 or taken >= width:
        return Loudest(kept=1.0 if count == 0 else 0.0, meeting=1.0)
    laws = (operands.a, operands.b)
    common, shapes = _shapes(blocks * width, *((law.element, law.element_spread > 0.0) for law in laws))
    loudness, squares = np.ones((blocks, width)), []
    for law, scale, one in zip(laws, channel_scales(operands, length, common), shapes, strict=True):
        elements = law.spread_out(*one).reshape(_ROWS, blocks, width)
        loudness *= scale * np.abs(elements).max(0)
        squares.append(scale**2 * np.mean(elements**2, 0))
    order = np.argsort(loudness, axis=1)[:, : width - taken]
    all_of_them, left = (
        (float(np.mean(a * b)), float(np.mean(a) * np.mean(b)))
        for a, b in (squares, [np.take_along_axis(one, order, 1) for one in squares])
    )
    return Loudest(
        kept=left[0] * (width - taken) / width / all_of_them[0],
        meeting=left[0] / left[1] * all_of_them[1] / all_of_them[0],
    )


@functools.lru_cache(maxsize=8)
def _shapes(
    channels: int, *kinds: tuple[Element, bool]
) -> tuple[Reals, tuple[tuple[Reals, Reals | None], ...]]:
    """Return what is drawn to see the loudest channels: Gaussians of channels, and shapes of elements."""
    generator = np.random.default_rng(_CHANNELS)
    common = generator.standard_normal((2, channels))
    laws = (OperandLaw(element=element, element_spread=float(spread)) for element, spread in kinds)
    return common, tuple(law.shapes(generator, _ROWS, channels) for law in laws)


def channel_blocks(length: int) -> tuple[int, int]:
    """Return how many times channels of a sum are drawn, and how many of them each time."""
    width = min(length, _CHANNELS)
    return math.ceil(_CHANNELS / width), width


@functools.lru_cache(maxsize=64)
def _gaussian_levels(count: int) -> Reals:
    """Return so many Gaussian numbers at even places of their distribution, ascending."""
    return np.array([NormalDist().inv_cdf((place + 0.5) / count) for place in range(count)])


def channel_scales(operands: Operands, length: int, gaussians: Reals) -> tuple[Reals, Reals]:
    """Return scales of channels of A and of B that meet as in the operands, each [blocks, width].

    Parameters
    ----------
    operands : Operands
        Statistics of A and B.
    length : int
        Channels.
    gaussians : numpy.ndarray
        Gaussian numbers by which channels are ordered, shape [2, blocks x width].
    """
    blocks, width = channel_blocks(length)
    levels = _gaussian_levels(blocks * width)
    sorted_a, sorted_b = (np.exp(law.channel_spread * levels) for law in (operands.a, operands.b))
    for law, scale in ((operands.a, sorted_a), (operands.b, sorted_b)):
        if law.outliers(length):
            larger = max(1, round(law.outliers(length) / length * scale.size))
            scale[-larger:] = law.outlier_size * math.sqrt(float(np.mean(scale[:-larger] ** 2)))
    a = correlated(sorted_a, gaussians, 1.0)
    wanted, low, high = operands.meeting * np.mean(a**2) * np.mean(sorted_b**2), -1.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        met = np.mean((a * correlated(sorted_b, gaussians, middle)) ** 2)
        low, high = (middle, high) if met < wanted else (low, middle)
    b = correlated(sorted_b, gaussians, 0.5 * (low + high))
    return a.reshape(blocks, width), b.reshape(blocks, width)


def correlated(values: Reals, gaussians: Reals, correlation: float) -> Reals:
    """Return ascending values in the order of Gaussian numbers with a correlation with the first row of two.

    Parameters
    ----------
    values : numpy.ndarray
        Values, ascending, shape [n].
    gaussians : numpy.ndarray
        Independent Gaussian numbers, shape [2, n].
    correlation : float
        From -1 to 1.
    """
    common, own = gaussians
    found = np.empty_like(values)
    found[np.argsort(correlation * common + math.sqrt(1.0 - correlation**2) * own)] = values
    return found


def _patterned(x: Reals, signs: Reals, share: float, generator: np.random.Generator) -> Reals:
    """Return rows of which a share of the power follows a pattern of signs, in the size of each channel."""
    size = np.sqrt(np.mean(x**2, axis=0))
    common = signs * size * generator.standard_normal((len(x), 1))
    return math.sqrt(1.0 - share) * x + math.sqrt(share) * common


def operands_of(kind: OperandKind) -> Operands:
    """Return the statistics of a kind's operands.

    Raises
    ------
    ParameterError
        For captured operands, which differ from product to product.
    """
    first = {
        OperandKind.UNIFORM: OperandLaw(element=Element.UNIFORM),
        OperandKind.GAUSSIAN: OperandLaw(),
        OperandKind.OUTLIERS: OperandLaw(outlier_share=OUTLIER_SHARE, outlier_size=OUTLIER_SIZE),
        OperandKind.GRADIENTS: OperandLaw(element_spread=GRADIENT_SPREAD),
    }
    if kind not in first:
        msg = "captured operands differ from product to product; name another kind"
        raise ParameterError(msg)
    plain = OperandLaw(element=first[kind].element)
    return Operands(a=first[kind], b=plain)


def signal_to_noise_db(exact: Any, delivered: Any) -> float:  # noqa: ANN401 - numpy or torch
    """Return the signal-to-noise ratio of a delivered product, best gain removed, in decibels.

    Parameters
    ----------
    exact, delivered : array_like
        The exact product and what a machine makes of it, of one shape; computed in double precision.

    Notes
    -----
    g = <y, r>/<r, r> is the gain that fits best; the signal is g r, the noise y - g r. Power is summed
    over all outputs before the ratio is taken. A product without noise has infinitely many decibels, one
    without signal (nothing of the exact product is left) minus infinitely many.

    Raises
    ------
    ParameterError
        If shapes differ, or the exact product is all zero.
    """
    r, y = (np.asarray(x, dtype=np.float64) for x in (exact, delivered))
    if r.shape != y.shape:
        msg = f"exact and delivered products must have one shape; got {r.shape} and {y.shape}"
        raise ParameterError(msg)
    power = float(np.sum(r * r))
    if not power > 0.0:
        msg = "the exact product is all zero, so nothing can be told of noise; take other operands"
        raise ParameterError(msg)
    gain = float(np.sum(y * r)) / power
    noise = float(np.sum((y - gain * r) ** 2))
    if noise == 0.0:
        return math.inf if gain != 0.0 else -math.inf
    return -math.inf if gain == 0.0 else 10.0 * math.log10(gain**2 * power / noise)


_POINTS = 1024
"""Points of a distribution on its logarithmic grid; a choice."""
_OCTAVES = 40.0
"""Octaves that the grid reaches below the largest magnitude; what is smaller counts as zero."""
_WIDEST = 8.0
"""Standard deviations of the logarithm of scales up to which a lognormal spread is summed; a choice."""
_LEVELS, _LEVELS_OF_STEP = 24, 3
"""Values of the largest magnitude over which is averaged, and least number between two jumps of full scale;
choices."""
_RARE = 1e-2
"""Fourth root of a chance below which jumps of full scale are not told apart; a choice."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)
_MOST_CODES = 700
"""Codes above which a grid is taken to be locally even, its steps known but not each cell's own density."""
_SCALE_SHARES = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99)
"""Shares of rows or channels at which they are divided into groups of one scale; the last four are apart."""
_ALIKE = 1.15
"""Ratio of scales below which groups are put together; a choice, as the shares are."""
_UNLIKELY = 1e-9
"""Chance of a block's number of larger channels below which it is left out."""
_TINY = 1e-300


@dataclass(frozen=True, kw_only=True, eq=False)
class Magnitudes:
    """Distribution of the magnitude of elements on a grid, shape [points] each."""

    log_x: Reals
    """Logarithm of the magnitude, evenly spaced."""
    log_density: Reals
    """Logarithm of the probability density."""
    log_below: Reals
    """Logarithm of the probability of being no larger."""
    square_below: Reals
    """Mean of x^2 where x is no larger, zero elsewhere."""

    @property
    def mean_square(self) -> float:
        """Mean square of elements."""
        return float(self.square_below[-1])

    def scaled(self, factor: float) -> Magnitudes:
        """Return the distribution of elements that are larger by a factor."""
        shift = math.log(factor)
        return Magnitudes(
            log_x=self.log_x + shift,
            log_density=self.log_density - shift,
            log_below=self.log_below,
            square_below=self.square_below * factor**2,
        )

    def density(self, x: Reals) -> Reals:
        """Return the probability density."""
        log_x = np.log(np.maximum(x, _TINY))
        found: Reals = np.exp(np.interp(log_x, self.log_x, self.log_density, right=-np.inf))
        return found

    def log_cdf(self, x: Reals) -> Reals:
        """Return the logarithm of the probability of being no larger."""
        log_x = np.log(np.maximum(x, _TINY))
        below = self.log_below[0] + np.minimum(0.0, log_x - self.log_x[0])
        found: Reals = np.where(log_x < self.log_x[0], below, np.interp(log_x, self.log_x, self.log_below))
        return found

    def mean_square_below(self, x: Reals) -> Reals:
        """Return the mean of squares of elements no larger, zero for the others."""
        found: Reals = np.interp(np.log(np.maximum(x, _TINY)), self.log_x, self.square_below, left=0.0)
        return found


@functools.lru_cache(maxsize=1024)
def magnitudes(element: Element, spread: float) -> Magnitudes:
    """Return the distribution of the magnitude of elements with a lognormal spread of scales.

    Notes
    -----
    Logarithms of scales are whole steps of the grid, so that every point sees the same values of the shape,
    the ends of an even one half way between two.
    """
    span, width, half = _OCTAVES * math.log(2.0), _WIDEST * spread, 0.5 if spread else 0.0
    reach = math.ceil(width * _POINTS / (span + 2.0 * width))
    step = span / (_POINTS - 1 - 2.0 * (reach + half))
    logs = step * np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * (logs / (spread or 1.0)) ** 2)
    weights /= weights.sum()
    top = math.log(9.0 if element is Element.GAUSSIAN else 1.0)
    log_u = top + step * (np.arange(1.0 - _POINTS, 1.0 + 2.0 * reach) + half)
    log_x = log_u[reach : reach + _POINTS]
    of_shape = _of_shape(element, np.exp(log_u))
    of_scales = (weights, weights * np.exp(-logs), weights * np.exp(2.0 * logs))
    below, density, square = (
        np.convolve(values, of_scale, "valid") for values, of_scale in zip(of_shape, of_scales, strict=True)
    )
    return Magnitudes(
        log_x=log_x,
        log_density=np.log(np.maximum(density, _TINY)),
        log_below=np.log(np.minimum(1.0, np.maximum(below, _TINY))),
        square_below=square,
    )


def _of_shape(element: Element, u: Reals) -> tuple[Reals, Reals, Reals]:
    """Return chance of being no larger, density and mean square below, of elements of scale 1."""
    below = np.array([element.below(one) for one in u.tolist()])
    if element is Element.UNIFORM:
        return below, (u <= 1.0).astype(float), below**3 / 3.0
    density = math.sqrt(2.0 / math.pi) * np.exp(-0.5 * u**2)
    series = u**3 * math.sqrt(2.0 / math.pi) * (1.0 / 3.0 - 0.1 * u**2)
    return below, density, np.where(u < 0.05, series, below - u * density)


@dataclass(frozen=True, kw_only=True, eq=False)
class Codes:
    """Magnitudes that a grid holds, zero first, in ascending order, the largest being full scale or less.

    Notes
    -----
    Compared by identity: a grid is made once and kept (`even_codes`).
    """

    values: Reals
    """Codes in units of full scale, shape [codes]."""
    stochastic: bool = False
    """Whether rounding is to either neighbour, more likely to the nearer, without bias."""

    @property
    def middles(self) -> Reals:
        """Magnitudes at which rounding goes to the next code, in units of full scale, shape [codes - 1]."""
        found: Reals = 0.5 * (self.values[1:] + self.values[:-1])
        return found


@functools.lru_cache(maxsize=64)
def even_codes(largest: int, *, stochastic: bool = False) -> Codes:
    """Return whole codes 0 to a largest one, at full scale."""
    return Codes(values=np.arange(largest + 1) / largest, stochastic=stochastic)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaled:
    """Moments of a vector that is scaled by its largest magnitude s and rounded, over all such vectors.

    Notes
    -----
    x is an element, q what it is rounded to, u = q/s in [-1, 1]; sums over a vector of n elements.
    """

    scale_square: float
    """Mean of s^2."""
    square: float
    """Mean of x^2 per element."""
    error_square: float
    """Mean of (q - x)^2 per element."""
    error_overlap: float
    """Mean of x (q - x) per element: below zero where rounding takes small elements away."""
    unit_square: float
    """Mean of u^2 per element, each vector counting alike."""
    unit_fourth: float
    """Mean of u^4 per element, each vector counting alike."""
    energy_square: float
    """Mean of s^2 (sum of u^2)^2, in squares of elements."""

    @property
    def coded_square(self) -> float:
        """Mean of q^2 per element."""
        return self.square + 2.0 * self.error_overlap + self.error_square

    @property
    def overlap(self) -> float:
        """Mean of x q per element."""
        return self.square + self.error_overlap

    @property
    def rounding(self) -> float:
        """Noise over signal of rounded elements, best gain removed; infinite where nothing is left."""
        if self.overlap <= 0.0:
            return math.inf
        return (self.error_square - self.error_overlap**2 / self.square) * self.square / self.overlap**2


class FullScaleRule(Hashable, Protocol):
    """Full scale that a vector with a largest magnitude is given: a power of two, or a code of a scale."""

    @property
    def jumps(self) -> Reals:
        """Largest magnitudes at which it, or the code of the largest element, jumps."""

    def __call__(self, largest: Reals) -> Reals:
        """Return full scales, shape as `largest`."""


def scaled_moments(
    law: OperandLaw,
    length: int,
    codes: Codes | None,
    *,
    outliers: int | None = None,
    rows: int = 1,
    full_scale: FullScaleRule | None = None,
) -> Scaled:
    """Return the moments of vectors of so many elements of an operand, or of as many rows of them together.

    Parameters
    ----------
    law : OperandLaw
        Distribution of the elements; its row scales, which the vector's scale takes out, do not enter.
    length : int
        Elements that share one scale.
    codes : Codes or None
        Grid; None for exact operands.
    outliers : int or None
        Larger channels among them; by default as many as a whole row of that length has.
    rows : int
        Rows that share one scale, and the scales of channels.
    full_scale : FullScaleRule or None
        Full scale of largest magnitudes; by default they themselves. What is larger is held at full scale.

    Notes
    -----
    With n_j elements of distribution F_j, the largest of all is no larger than s with the probability
    prod F_j(s)^n_j. Given that it is s, one element is s, of kind j as likely as n_j f_j(s)/F_j(s) is to
    the sum, and all others are as before but no larger than s. The average over s is a quadrature in its
    quantiles, in pieces between the jumps of full scale.
    """
    if rows > 1:
        return _moments(law.element, law.element_spread, _groups(law, length, rows), codes, full_scale)
    return _moments(law.element, law.spread, law.sizes(length, outliers), codes, full_scale)


@functools.lru_cache(maxsize=1024)
def _groups(law: OperandLaw, length: int, rows: int) -> tuple[tuple[float, int], ...]:
    """Return scales of a tensor's elements, those of their rows and channels together, with their numbers."""
    count = law.outliers(length)
    channels = list(_levels(law.channel_spread, length - count))
    if count:
        channels.append((math.exp(law.channel_spread**2) * law.outlier_size, count))
    pairs = itertools.product(_levels(law.row_spread, rows), channels)
    found: list[tuple[float, int]] = []
    for size, n in sorted((one * other, n * m) for (one, n), (other, m) in pairs):
        if found and size < _ALIKE * found[-1][0]:
            last, many = found[-1]
            found[-1] = math.sqrt((last**2 * many + size**2 * n) / (many + n)), n + many
        else:
            found.append((size, n))
    return tuple(found)


def _levels(spread: float, count: int) -> Iterator[tuple[float, int]]:
    """Yield groups of so many lognormal scales, each at its root mean square, denser towards the largest."""
    if spread == 0.0 or count == 0:
        yield from [(1.0, count)] * (count > 0)
        return
    edges = sorted(
        {0, count} | {round(count * share) for share in _SCALE_SHARES} | set(range(count - 4, count))
    )
    for low, high in itertools.pairwise(edge for edge in edges if edge >= 0):
        places = (NormalDist().inv_cdf((at + 0.5) / count) for at in range(low, high))
        square = math.fsum(math.exp(2.0 * spread * place) for place in places) / (high - low)
        yield math.sqrt(square), high - low


@dataclass(frozen=True, kw_only=True, eq=False)
class _Vectors:
    """Vectors by their largest magnitude, exact: sums over a vector, shape [levels] each."""

    kinds: tuple[Magnitudes, ...]
    """Distributions of its elements."""
    free: tuple[Reals, ...]
    """By kind, elements besides the largest over the chance of one to be no larger."""
    largest: Reals
    """The largest magnitude s."""
    weights: Reals
    """Its probability."""
    square: Reals
    """Sum of x^2."""
    fourth: Reals
    """Sum of x^4."""


@functools.lru_cache(maxsize=4096)
def _vectors(
    element: Element, spread: float, counts: tuple[tuple[float, int], ...], full_scale: FullScaleRule | None
) -> _Vectors:
    """Return vectors by their largest magnitude, whatever they are rounded to."""
    base = magnitudes(element, spread)
    kinds = [(base.scaled(size), float(n)) for size, n in counts]
    s, weights = _largest(kinds, np.zeros(0) if full_scale is None else full_scale.jumps)
    below = [np.exp(kind.log_cdf(s)) for kind, _ in kinds]
    hazards = np.array([n * np.exp(np.log(kind.density(s) + _TINY) - kind.log_cdf(s)) for kind, n in kinds])
    share = hazards / hazards.sum(0)
    free = tuple((n - one) / low for (_, n), one, low in zip(kinds, share, below, strict=True))
    square, fourth = np.zeros_like(s), np.zeros_like(s)
    for (kind, _), others in zip(kinds, free, strict=True):
        square += others * kind.mean_square_below(s)
        fourth += others * _fourth_below(kind, s)
    return _Vectors(
        kinds=tuple(kind for kind, _ in kinds),
        free=free,
        largest=s,
        weights=weights,
        square=square + s**2,
        fourth=fourth + s**4,
    )


@functools.lru_cache(maxsize=4096)
def _moments(
    element: Element,
    spread: float,
    counts: tuple[tuple[float, int], ...],
    codes: Codes | None,
    full_scale: FullScaleRule | None,
) -> Scaled:
    """Return the moments of vectors of elements, so many of each scale; as `scaled_moments`."""
    found = _vectors(element, spread, counts, full_scale)
    length, s, square = sum(n for _, n in counts), found.largest, found.square
    scale = s if full_scale is None else full_scale(s)
    error, overlap = np.zeros_like(s), np.zeros_like(s)
    if codes is not None:
        for kind, others in zip(found.kinds, found.free, strict=True):
            rounded = _rounded(kind, s, scale, codes)
            error += others * rounded[0]
            overlap += others * rounded[1]
        of_largest = _errors_of(s, scale, codes)
        error += of_largest[0]
        overlap += of_largest[1]
    coded = square + 2.0 * overlap + error
    unit = np.where(scale > 0.0, scale, np.inf)  # a scale that rounds to zero leaves no codes

    def mean(x: Reals) -> float:
        return float(np.sum(found.weights * x))

    return Scaled(
        scale_square=mean(scale**2),
        square=mean(square) / length,
        error_square=mean(error) / length,
        error_overlap=mean(overlap) / length,
        unit_square=mean(coded / unit**2) / length,
        unit_fourth=mean(found.fourth / unit**4) / length,
        energy_square=mean(coded**2 / unit**2),
    )


def largest_quantiles(law: OperandLaw, length: int, outliers: int, shares: Reals) -> Reals:
    """Return quantiles of the largest magnitude of a vector at shares, 0 to 1, of all such vectors.

    Parameters
    ----------
    law : OperandLaw
        Distribution of the elements, row scales apart.
    length, outliers : int
        Elements of a vector, and larger channels among them.
    shares : numpy.ndarray
        Shares of the vectors.
    """
    base = magnitudes(law.element, law.spread)
    counts = ((base, length - outliers), (base.scaled(law.outlier_size), outliers))
    kinds = [(kind, float(n)) for kind, n in counts if n > 0]
    if not kinds:
        return np.zeros_like(shares)
    log_s, log_below = _log_below(kinds)
    found: Reals = np.exp(np.interp(np.log(np.maximum(shares, _TINY)), log_below, log_s))
    return found


def _log_below(kinds: list[tuple[Magnitudes, float]]) -> tuple[Reals, Reals]:
    """Return logarithms of magnitudes, and of the probability that the largest of all is no larger."""
    low = min(float(kind.log_x[0]) for kind, _ in kinds)
    high = max(float(kind.log_x[-1]) for kind, _ in kinds)
    log_s = np.linspace(low, high, 4 * _POINTS)
    return log_s, np.sum([n * kind.log_cdf(np.exp(log_s)) for kind, n in kinds], axis=0)


_quadrature = functools.cache(np.polynomial.legendre.leggauss)
"""Nodes and weights of Gauss and Legendre."""


def _largest(kinds: list[tuple[Magnitudes, float]], jumps: Reals) -> tuple[Reals, Reals]:
    """Return values of the largest magnitude and their probabilities, denser towards its tail."""
    log_s, log_below = _log_below(kinds)
    log_above = np.log(np.maximum(-np.expm1(np.minimum(log_below, 0.0)), _TINY))
    ends = np.exp(0.25 * np.interp(np.log(jumps), log_s, log_above))
    ends = np.unique([0.0, *ends[(ends > _RARE) & (ends < 1.0 - _RARE**2)], 1.0])
    nodes, weights = _quadrature(max(_LEVELS_OF_STEP, math.ceil(_LEVELS / (len(ends) - 1))))
    width = 0.5 * np.diff(ends)[:, None]
    v, w = (ends[:-1, None] + width * (nodes + 1.0)).ravel(), (width * weights).ravel()
    missing, chance = v**4, 4.0 * v**3 * w  # probability of a larger one, and its share
    places = np.interp(-np.log(missing), -log_above, log_s)
    return np.exp(places), chance / chance.sum()


def _rounded(kind: Magnitudes, s: Reals, scale: Reals, codes: Codes) -> tuple[Reals, Reals]:
    """Return means of (q - x)^2 and x (q - x) over elements no larger than s, zero for the others."""
    if len(codes.values) > _MOST_CODES:
        return _locally_even(kind, s, scale, codes), s * 0.0
    values = scale[:, None] * codes.values
    if codes.stochastic:
        edges = values
    else:
        middle = 0.5 * (values[:, 1:] + values[:, :-1])
        edges = np.concatenate((0.0 * s[:, None], middle), axis=1)
    edges = np.minimum(np.concatenate((edges, np.maximum(s, values[:, -1])[:, None]), axis=1), s[:, None])
    low, high = edges[:, :-1], edges[:, 1:]
    x = 0.5 * (low + high)[..., None] + 0.5 * (high - low)[..., None] * _NODES
    mass = 0.5 * (high - low)[..., None] * _WEIGHTS * kind.density(x)
    if codes.stochastic:
        above = np.concatenate((values[:, 1:], values[:, -1:]), axis=1)
        error = (x - values[..., None]) * (above[..., None] - x)
        error[:, -1] = (values[:, -1:] - x[:, -1]) ** 2
        overlap = np.zeros_like(x)
        overlap[:, -1] = x[:, -1] * (values[:, -1:] - x[:, -1])
        first = _first_cell(kind, high[:, 0], values[:, 1])
        return first + np.sum((mass * error)[:, 1:], (1, 2)), np.sum(mass * overlap, (1, 2))
    off = values[..., None] - x
    zeroed = kind.mean_square_below(high[:, 0])
    error_sum = zeroed + np.sum((mass * off**2)[:, 1:], (1, 2))
    return error_sum, np.sum((mass * off * x)[:, 1:], (1, 2)) - zeroed


def _first_cell(kind: Magnitudes, end: Reals, step: Reals) -> Reals:
    """Return the mean of x (step - x) up to an end, by trapezes on the grid of the distribution."""
    x, density = np.exp(kind.log_x), np.exp(kind.log_density)
    inside = x[None, :] <= end[:, None]
    value = density * x * (step[:, None] - x) * inside
    found: Reals = np.sum(value * x, 1) * (kind.log_x[1] - kind.log_x[0])
    return found


def _locally_even(kind: Magnitudes, s: Reals, scale: Reals, codes: Codes) -> Reals:
    """Return the mean of (q - x)^2 on a grid so fine that elements lie evenly between two codes."""
    x = np.exp(kind.log_x)
    step = np.diff(codes.values)
    scales, which = np.unique(scale, return_inverse=True)  # one alone where full scale is constant
    u = np.minimum(x[None, :] / scales[:, None], 1.0)
    at = np.clip(np.searchsorted(codes.values, u.ravel()) - 1, 0, len(step) - 1).reshape(u.shape)
    per = 6.0 if codes.stochastic else 12.0
    error = (step[at] * scales[:, None]) ** 2 / per * np.exp(kind.log_density) * x
    found: Reals = np.sum(error[which] * (x <= s[:, None]), 1) * (kind.log_x[1] - kind.log_x[0])
    return found


def _fourth_below(kind: Magnitudes, s: Reals) -> Reals:
    x = np.exp(kind.log_x)
    running = np.cumsum(np.exp(kind.log_density + 5.0 * kind.log_x)) * (kind.log_x[1] - kind.log_x[0])
    found: Reals = np.interp(np.log(s), kind.log_x, running)
    return np.minimum(found, x[-1] ** 4)


def _errors_of(s: Reals, scale: Reals, codes: Codes) -> tuple[Reals, Reals]:
    """Return (q - x)^2 and x (q - x) of the largest elements themselves."""
    values = codes.values
    u = np.minimum(s / np.maximum(scale, _TINY), values[-1])
    at = np.clip(np.searchsorted(values, u), 1, len(values) - 1)
    low, high = values[at - 1], values[at]
    nearest = np.where(u - low < high - u, low, high)
    off = nearest * scale - s
    return off**2, off * s


def blocks_of(law: OperandLaw, length: int, width: int) -> list[tuple[float, int, int]]:
    """Return the blocks of a row of an operand: how many there are, how wide, with how many larger channels.

    Parameters
    ----------
    law : OperandLaw
        Says how many channels of a row are larger; where they stand is random.
    length, width : int
        Elements of a row and of a block; the last one may be shorter.
    """
    count, found = law.outliers(length), []
    whole, rest = divmod(length, width)
    for wide, blocks in ((width, whole), (rest, min(rest, 1))):
        if not blocks:
            continue
        for larger in range(max(0, wide - length + count), min(count, wide) + 1):
            chance = _hypergeometric(larger, length, count, wide) if count else 1.0
            if chance > _UNLIKELY:
                found.append((blocks * chance, wide, larger))
    return found


def _hypergeometric(larger: int, length: int, count: int, width: int) -> float:
    """Return how likely so many of `count` marked elements of `length` are among `width` of them."""

    def ways(of: int, some: int) -> float:
        return math.lgamma(of + 1) - math.lgamma(some + 1) - math.lgamma(of - some + 1)

    chance = ways(count, larger) + ways(length - count, width - larger) - ways(length, width)
    return math.exp(chance)


def mean_of(parts: Iterable[tuple[float, Scaled]]) -> Scaled:
    """Return the moments of vectors of several kinds together, each with a weight."""
    found = list(parts)
    whole = math.fsum(weight for weight, _ in found)
    fields = (one.name for one in dataclasses.fields(Scaled))
    return Scaled(
        **{name: math.fsum(weight * getattr(part, name) for weight, part in found) / whole for name in fields}
    )


def product_rounding(of_a: float, of_b: float) -> float:
    """Return noise over signal of products of independent operands, each rounded, best gain removed."""
    return of_a + of_b + of_a * of_b


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Signal-to-noise ratio of a product, by what takes it."""

    noise: Mapping[str, float]
    """Noise over signal by cause, ratios of powers with the best gain removed; no cause that adds nothing."""

    @property
    def total(self) -> float:
        """Noise over signal."""
        return math.fsum(self.noise.values())

    @property
    def snr_db(self) -> float:
        """Signal-to-noise ratio in decibels; infinite where nothing is lost."""
        total = self.total
        if total == 0.0:
            return math.inf
        return -math.inf if math.isinf(total) else -db_from_ratio(total)

    @property
    def worst(self) -> str:
        """Cause that takes most."""
        return max(self.noise, key=lambda cause: self.noise[cause], default="nothing")


def average(parts: Iterable[tuple[float, Precision]]) -> Precision:
    """Return the precision of many products together: noise over signal, averaged with weights.

    Raises
    ------
    ParameterError
        If no weight is above zero.
    """
    found = [(weight, part) for weight, part in parts if weight > 0.0]
    if not found:
        msg = "an average precision needs at least one product with a weight above 0"
        raise ParameterError(msg)
    whole, noise = math.fsum(weight for weight, _ in found), dict[str, float]()
    for weight, part in found:
        for cause, ratio in part.noise.items():
            noise[cause] = noise.get(cause, 0.0) + weight / whole * ratio
    return Precision(noise=noise)
