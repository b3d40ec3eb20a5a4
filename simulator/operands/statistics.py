"""Statistics of the operands of a product, its signal-to-noise ratio, and the noise of rounding them.

The precision of every machine is told as one number: the signal-to-noise ratio (`signal_to_noise_db`) of
products of stated operands (`OperandKind`).

Every machine, whether with converters or a number format, scales a vector so that its largest magnitude is
full scale, and rounds all elements to codes below it. `scaled_moments` computes the expected noise from the
distribution of the elements (`OperandLaw`), in a millisecond and without drawing: it averages over the
distribution of the largest of K elements, and over the codes.

Shape suffixes: M rows of A, K summed, N columns of B. Torch is not imported here.
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
"""Share of outlier channels in `OperandKind.OUTLIERS`; a choice. Dettmers et al., "LLM.int8()",
arXiv:2208.07339, section 4: about 0.1 % of all feature dimensions from 6.7 billion parameters on."""
OUTLIER_SIZE = 20.0
"""Scale of outlier channels relative to the others; a choice. Same source: up to 20 times the others."""
GRADIENT_SPREAD = 1.0
"""Standard deviation of the logarithm of single elements' scales in `OperandKind.GRADIENTS`,
dimensionless; assumed. With the Gaussian's own 1.11, that of ln|x| is 1.5. Chmiel et al., "Neural
gradients are near-lognormal", arXiv:2006.08173: the shape is measured there; the width differs by layer
and is our choice."""

_CHANNELS, _ROWS, _HALVINGS = 1024, 96, 12
"""Channels and rows drawn by `without_loudest`, and steps of a bisection; choices."""
_DRAWS_OF_ONE = 16
"""Draws per outlier element in `OperandLaw.vectors`, whose median stands for all; a choice."""
_DEVIATIONS = np.linspace(-6.0, 6.0, 193)
"""Grid of the logarithms of scales in `OperandLaw.scales`, in standard deviations."""


class OperandKind(StrEnum):
    """Named statistics of the operands of a product."""

    UNIFORM = "uniform"
    """Both uniform over a range around zero."""
    GAUSSIAN = "gaussian"
    """Both Gaussian."""
    OUTLIERS = "outliers"
    """Both Gaussian, but 0.1 % of A's channels (at least one) are 20 times larger, as in the activations of
    large models."""
    GRADIENTS = "gradients"
    """A near-lognormal over decades of magnitude, as gradients are; B Gaussian."""
    CAPTURED = "captured"
    """Those measured in a trained transformer, for each product and layer."""


class Element(StrEnum):
    """Shape of the distribution of single elements, before they are scaled."""

    UNIFORM = "uniform"
    GAUSSIAN = "gaussian"

    @property
    def mean_square(self) -> float:
        """Mean square of z, uniform between -1 and 1 or Gaussian of variance 1."""
        return 1.0 if self is Element.GAUSSIAN else 1.0 / 3.0

    def below(self, x: float) -> float:
        """Return the probability that |z| is at most x."""
        return math.erf(x / math.sqrt(2.0)) if self is Element.GAUSSIAN else min(x, 1.0)


Spread = Annotated[float, Bounds(high=5.0)]
"""Standard deviation of the logarithm of scales."""


@dataclass(frozen=True, kw_only=True)
class OperandLaw(Checked):
    """Distribution of one operand: elements of zero mean times scales of elements, channels and rows.

    Notes
    -----
    Element (i, k) is e^(t w) c_k r_i z: z of shape `element`, w Gaussian, ln c_k and ln r_i Gaussian. Outlier
    channels are larger by a further factor. A channel is a position k along the sum, a row a vector of the
    operand (a token, or an output of a weight). All fields are dimensionless, spreads are standard deviations
    of natural logarithms. The kurtosis is e^(4 t^2) times that of z.
    """

    element: Element = Element.GAUSSIAN
    """Shape of z."""
    element_spread: Spread = 0.0
    """Spread of single elements' scales, t."""
    channel_spread: Spread = 0.0
    """Spread of the channels' scales c_k, without the outliers' factor."""
    row_spread: Spread = 0.0
    """Spread of the rows' scales r_i."""
    outlier_share: Annotated[float, Bounds(high=0.5)] = 0.0
    """Share of outlier channels, 0 to 0.5; at least one channel where it is not zero."""
    outlier_size: Positive = 1.0
    """Factor by which outlier channels are larger."""

    @property
    def spread(self) -> float:
        """Spread of the scales of a row's elements, due to elements and channels together."""
        return math.hypot(self.element_spread, self.channel_spread)

    def without_rows(self) -> OperandLaw:
        """Return the law of a tensor's elements without regard to rows, whose spread goes to the elements."""
        spread = math.hypot(self.element_spread, self.row_spread)
        return replace(self, element_spread=spread, row_spread=0.0)

    def outliers(self, length: int) -> int:
        """Return the number of outlier channels among `length` channels."""
        return max(1, round(self.outlier_share * length)) if self.outlier_share > 0.0 else 0

    def sizes(self, length: int, outliers: int | None = None) -> tuple[tuple[float, int], ...]:
        """Return (factor, number) of normal and outlier channels; `outliers` defaults to those of a row."""
        count = self.outliers(length) if outliers is None else outliers
        return tuple((size, n) for size, n in ((1.0, length - count), (self.outlier_size, count)) if n > 0)

    def mean_square(self, length: int) -> float:
        """Return the mean square of the elements of rows of a length."""
        of_channels = math.fsum(n * size**2 for size, n in self.sizes(length)) / length
        return self.element.mean_square * of_channels * math.exp(2.0 * (self.spread**2 + self.row_spread**2))

    def scales(self, length: int) -> tuple[Reals, Reals]:
        """Return a grid of the scales of elements, as logarithms to base 2, and the power share at each."""
        spread = math.hypot(self.spread, self.row_spread)
        sizes, counts = np.array(self.sizes(length)).T
        power = counts * sizes**2
        logs = spread * _DEVIATIONS + 2.0 * spread**2  # weighted by power, a lognormal is shifted by 2 s^2
        shares = np.exp(-0.5 * _DEVIATIONS**2)
        scales = np.log2(sizes)[:, None] + logs / math.log(2.0)
        return scales.ravel(), np.outer(power / power.sum(), shares / shares.sum()).ravel()

    def draw(self, generator: np.random.Generator, rows: int, length: int) -> Reals:
        """Return an operand, shape [rows, length]."""
        x = self.elements(generator, rows, length)
        channels = np.exp(self.channel_spread * generator.standard_normal(length))
        channels[generator.permutation(length)[: self.outliers(length)]] *= self.outlier_size
        x *= channels
        x *= np.exp(self.row_spread * generator.standard_normal((rows, 1)))
        return x

    def vectors(self, generator: np.random.Generator, count: int, length: int, larger: int) -> Reals:
        """Draw vectors of different rows, each with `larger` outlier channels first, shape [count, length].

        Notes
        -----
        Outlier elements, which matter most, are not drawn freely but spread over the quantiles of their
        distribution (medians of sorted draws).
        """
        whole = replace(self, element_spread=self.spread, channel_spread=0.0)
        x = whole.elements(generator, count, length)
        for channel in range(larger):
            draws = np.sort(whole.elements(generator, count * _DRAWS_OF_ONE, 1)[:, 0])
            quantiles = draws[_DRAWS_OF_ONE // 2 :: _DRAWS_OF_ONE]
            x[:, channel] = self.outlier_size * generator.permutation(quantiles)
        return x

    def elements(self, generator: np.random.Generator, rows: int, length: int) -> Reals:
        """Draw elements without the scales of channels and rows, shape [rows, length]."""
        return self.scale_elements(*self.draw_shapes(generator, rows, length))

    def draw_shapes(
        self, generator: np.random.Generator, rows: int, length: int
    ) -> tuple[Reals, Reals | None]:
        """Draw z and w of elements, shape [rows, length]; w is None without a spread of elements.

        The draws depend on the law only by its `element` and by whether `element_spread` is zero.
        """
        shape = (rows, length)
        uniform = self.element is Element.UNIFORM
        z = generator.uniform(-1.0, 1.0, shape) if uniform else generator.standard_normal(shape)
        return z, generator.standard_normal(shape) if self.element_spread else None

    def scale_elements(self, z: Reals, w: Reals | None) -> Reals:
        """Return e^(t w) z."""
        return z if w is None else z * np.exp(self.element_spread * w)


@dataclass(frozen=True, kw_only=True)
class Operands:
    """Statistics of both operands of a product C = A B."""

    a: OperandLaw
    """Law of A, whose channels are its columns."""
    b: OperandLaw
    """Law of B, whose channels are its rows."""
    coherence: float = 1.0
    """Mean square of the product over that of independent operands with equal channels, dimensionless; above
    1 where both follow a common pattern along the sum, or where large channels of A meet large ones of B."""
    meeting: float = 1.0
    """Part of the coherence due to channels, dimensionless: mean over channels of (mean square of A's channel
    times that of B's), over the product of their means."""

    def __post_init__(self) -> None:
        check_positive(self, "coherence", "meeting")

    def draw(
        self, generator: np.random.Generator, rows: int, length: int, columns: int
    ) -> tuple[Reals, Reals]:
        """Draw both operands, shapes [rows, length] and [length, columns].

        Parameters
        ----------
        generator : numpy.random.Generator
            Source of all randomness.
        rows, length, columns : int
            M, K and N, at least 1.

        Notes
        -----
        For a coherence c, a share p of each element's power, p^2 = (c - 1)/(K - 1), is a pattern of signs
        along the sum common to A and B, times a Gaussian number of the row (column).
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
            a, b = (_add_pattern(x, signs, share, generator) for x in (a, b))
        return a, b.T


@dataclass(frozen=True, kw_only=True)
class Loudest:
    """Effect of taking the loudest channels, those of the largest max|a_k| max|b_k|, out of a product."""

    kept: float
    """Power of the product without them over that of the whole product, 0 to 1."""
    meeting: float
    """`Operands.meeting` of the remaining channels over that of all channels."""


@functools.lru_cache(maxsize=4096)
def without_loudest(operands: Operands, length: int, count: int) -> Loudest:
    """Return the effect of taking the `count` loudest of `length` channels out of a product.

    Parameters
    ----------
    operands : Operands
        Statistics of A and B. Power due to common patterns is taken to be spread over channels like the rest.
    length, count : int
        Channels of the product, and number of them that are taken out.

    Notes
    -----
    Monte Carlo with a fixed seed: scales of channels are drawn from the laws and ordered so that they have
    the operands' `meeting`, then elements in them; the loudest channels are those of the largest magnitudes.
    Elements over decades of magnitude make the channel of the largest one hold much of the power. A meeting
    that the channel scales cannot reach (with equal channels of B, say) is left to the remaining channels, as
    is true of attention's values.
    """
    blocks, width = channel_blocks(length)
    taken = max(1, round(count * width / length))
    if count == 0 or taken >= width:
        return Loudest(kept=1.0 if count == 0 else 0.0, meeting=1.0)
    laws = (operands.a, operands.b)
    kinds = ((law.element, law.element_spread > 0.0) for law in laws)
    gaussians, shapes = _loudest_draws(blocks * width, *kinds)
    loudness, squares = np.ones((blocks, width)), []
    for law, scale, shape in zip(laws, channel_scales(operands, length, gaussians), shapes, strict=True):
        elements = law.scale_elements(*shape).reshape(_ROWS, blocks, width)
        loudness *= scale * np.abs(elements).max(0)
        squares.append(scale**2 * np.mean(elements**2, 0))
    remaining = np.argsort(loudness, axis=1)[:, : width - taken]
    square_a, square_b = squares
    left_a, left_b = (np.take_along_axis(square, remaining, 1) for square in squares)
    power, left_power = float(np.mean(square_a * square_b)), float(np.mean(left_a * left_b))
    means = float(np.mean(square_a) * np.mean(square_b))
    left_means = float(np.mean(left_a) * np.mean(left_b))
    return Loudest(
        kept=left_power * (width - taken) / width / power,
        meeting=left_power / left_means * means / power,
    )


@functools.lru_cache(maxsize=8)
def _loudest_draws(
    channels: int, *kinds: tuple[Element, bool]
) -> tuple[Reals, tuple[tuple[Reals, Reals | None], ...]]:
    """Return the draws of `without_loudest`: Gaussians, [2, channels], and z and w of each operand.

    `kinds` has the shape of each operand's elements, and whether their scales are spread.
    """
    generator = np.random.default_rng(_CHANNELS)
    gaussians = generator.standard_normal((2, channels))
    laws = (OperandLaw(element=element, element_spread=float(spread)) for element, spread in kinds)
    return gaussians, tuple(law.draw_shapes(generator, _ROWS, channels) for law in laws)


def channel_blocks(length: int) -> tuple[int, int]:
    """Return the number of draws of a sum's channels, and the channels in each; short sums need several."""
    width = min(length, _CHANNELS)
    return math.ceil(_CHANNELS / width), width


@functools.lru_cache(maxsize=64)
def _gaussian_levels(count: int) -> Reals:
    """Return the quantiles of a Gaussian at `count` evenly spaced probabilities, ascending."""
    return np.array([NormalDist().inv_cdf((index + 0.5) / count) for index in range(count)])


def channel_scales(operands: Operands, length: int, gaussians: Reals) -> tuple[Reals, Reals]:
    """Return scales of the channels of A and of B with the operands' `meeting`, each [blocks, width].

    Parameters
    ----------
    operands : Operands
        Statistics of A and B.
    length : int
        Channels of the product.
    gaussians : numpy.ndarray
        Gaussian numbers that order the channels at random, shape [2, blocks x width].

    Notes
    -----
    Scales are quantiles of the laws. B's are ordered by Gaussians that correlate with those of A; the
    correlation is found by bisection.
    """
    blocks, width = channel_blocks(length)
    levels = _gaussian_levels(blocks * width)
    sorted_a, sorted_b = (np.exp(law.channel_spread * levels) for law in (operands.a, operands.b))
    for law, scale in ((operands.a, sorted_a), (operands.b, sorted_b)):
        if law.outliers(length):
            larger = max(1, round(law.outliers(length) / length * scale.size))
            scale[-larger:] = law.outlier_size * math.sqrt(float(np.mean(scale[:-larger] ** 2)))
    a = correlated(sorted_a, gaussians, 1.0)
    target, low, high = operands.meeting * np.mean(a**2) * np.mean(sorted_b**2), -1.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        reached = np.mean((a * correlated(sorted_b, gaussians, middle)) ** 2)
        low, high = (middle, high) if reached < target else (low, middle)
    b = correlated(sorted_b, gaussians, 0.5 * (low + high))
    return a.reshape(blocks, width), b.reshape(blocks, width)


def correlated(values: Reals, gaussians: Reals, correlation: float) -> Reals:
    """Return values reordered so that their ranks are those of Gaussians correlated with a given row.

    Parameters
    ----------
    values : numpy.ndarray
        Values, ascending, shape [n].
    gaussians : numpy.ndarray
        Independent Gaussian numbers, shape [2, n]; the first row is the given one.
    correlation : float
        Correlation with the first row, -1 to 1.
    """
    common, own = gaussians
    reordered = np.empty_like(values)
    reordered[np.argsort(correlation * common + math.sqrt(1.0 - correlation**2) * own)] = values
    return reordered


def _add_pattern(x: Reals, signs: Reals, share: float, generator: np.random.Generator) -> Reals:
    """Return rows, [rows, K], a share of whose power is replaced by a pattern of signs along the sum."""
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
    """Return the signal-to-noise ratio of a machine's product in decibels, a common gain not counted.

    Parameters
    ----------
    exact, delivered : array_like
        The exact product r and the machine's product y, of one shape; computed in double precision.

    Notes
    -----
    With the best-fitting gain g = <y, r>/<r, r>, the signal is g r and the noise y - g r. Power is summed
    over all outputs before the ratio is taken. The ratio is infinite without noise, minus infinite if g is 0.

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
"""Octaves from the largest magnitude of the grid down to its least; smaller elements count as zero."""
_WIDEST = 8.0
"""Standard deviations up to which a lognormal spread of scales is integrated; a choice."""
_LEVELS, _LEVELS_OF_STEP = 24, 3
"""Quadrature nodes over the largest magnitude, and the fewest between two jumps of full scale; choices."""
_RARE = 1e-2
"""Fourth root of the tail probability beyond which jumps of full scale are ignored; a choice."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)
_MOST_CODES = 700
"""Number of codes above which elements are taken as uniformly distributed between two neighbouring codes."""
_SCALE_SHARES = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99)
"""Cumulative shares at which rows or channels are cut into groups of one scale; a choice. The four largest
rows or channels are groups of their own."""
_ALIKE = 1.15
"""Ratio of scales below which two groups are merged; a choice."""
_UNLIKELY = 1e-9
"""Probability below which a number of outlier channels in a block is left out."""
_TINY = 1e-300


@dataclass(frozen=True, kw_only=True, eq=False)
class Magnitudes:
    """Distribution of the magnitude |x| of elements on a logarithmic grid, shape [points] each."""

    log_x: Reals
    """Logarithm of the magnitude, evenly spaced."""
    log_density: Reals
    """Logarithm of the probability density of |x|."""
    log_below: Reals
    """Logarithm of the cumulative probability."""
    square_below: Reals
    """Partial second moment: the mean of x^2 with larger elements counted as zero."""

    @property
    def mean_square(self) -> float:
        """Mean square of the elements."""
        return float(self.square_below[-1])

    def scaled(self, factor: float) -> Magnitudes:
        """Return the distribution of the elements times a factor."""
        shift = math.log(factor)
        return Magnitudes(
            log_x=self.log_x + shift,
            log_density=self.log_density - shift,
            log_below=self.log_below,
            square_below=self.square_below * factor**2,
        )

    def density(self, x: Reals) -> Reals:
        """Return the probability density at magnitudes."""
        log_x = np.log(np.maximum(x, _TINY))
        found: Reals = np.exp(np.interp(log_x, self.log_x, self.log_density, right=-np.inf))
        return found

    def log_cdf(self, x: Reals) -> Reals:
        """Return the logarithm of the cumulative probability at magnitudes."""
        log_x = np.log(np.maximum(x, _TINY))
        below = self.log_below[0] + np.minimum(0.0, log_x - self.log_x[0])
        found: Reals = np.where(log_x < self.log_x[0], below, np.interp(log_x, self.log_x, self.log_below))
        return found

    def mean_square_below(self, x: Reals) -> Reals:
        """Return the partial second moment up to magnitudes."""
        found: Reals = np.interp(np.log(np.maximum(x, _TINY)), self.log_x, self.square_below, left=0.0)
        return found


@functools.lru_cache(maxsize=1024)
def magnitudes(element: Element, spread: float) -> Magnitudes:
    """Return the distribution of the magnitude of elements e^(t w) z with spread t.

    Notes
    -----
    On a logarithmic grid the product with a lognormal scale is a convolution. The logarithms of scales are
    multiples of the grid's step, so that every point uses the same samples of the shape; the end of a uniform
    shape lies half way between two of them.
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
    shape = _shape_moments(element, np.exp(log_u))
    kernels = (weights, weights * np.exp(-logs), weights * np.exp(2.0 * logs))
    below, density, square = (
        np.convolve(values, kernel, "valid") for values, kernel in zip(shape, kernels, strict=True)
    )
    return Magnitudes(
        log_x=log_x,
        log_density=np.log(np.maximum(density, _TINY)),
        log_below=np.log(np.minimum(1.0, np.maximum(below, _TINY))),
        square_below=square,
    )


def _shape_moments(element: Element, u: Reals) -> tuple[Reals, Reals, Reals]:
    """Return cumulative probability, density and partial second moment of |z| at magnitudes u."""
    below = np.array([element.below(magnitude) for magnitude in u.tolist()])
    if element is Element.UNIFORM:
        return below, (u <= 1.0).astype(float), below**3 / 3.0
    density = math.sqrt(2.0 / math.pi) * np.exp(-0.5 * u**2)
    series = u**3 * math.sqrt(2.0 / math.pi) * (1.0 / 3.0 - 0.1 * u**2)
    return below, density, np.where(u < 0.05, series, below - u * density)


@dataclass(frozen=True, kw_only=True, eq=False)
class Codes:
    """Magnitudes that a converter or number format can represent, ascending from zero.

    Notes
    -----
    Compared by identity: codes are made once and kept (`even_codes`).
    """

    values: Reals
    """Codes in units of full scale, at most 1, shape [codes]."""
    stochastic: bool = False
    """Whether rounding is stochastic, to either neighbour and without bias, rather than to the nearest."""

    @property
    def middles(self) -> Reals:
        """Midpoints of neighbouring codes, in units of full scale, shape [codes - 1]."""
        middles: Reals = 0.5 * (self.values[1:] + self.values[:-1])
        return middles


@functools.lru_cache(maxsize=64)
def even_codes(largest: int, *, stochastic: bool = False) -> Codes:
    """Return evenly spaced codes: the integers 0 to `largest`, which is full scale."""
    return Codes(values=np.arange(largest + 1) / largest, stochastic=stochastic)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaled:
    """Expected moments of vectors that are scaled by their full scale s and rounded.

    Notes
    -----
    x is an element, q its rounded value, u = q/s in [-1, 1]. Means are over elements and over vectors.
    """

    scale_square: float
    """Mean of s^2."""
    square: float
    """Mean of x^2 per element."""
    error_square: float
    """Mean of (q - x)^2 per element."""
    error_overlap: float
    """Mean of x (q - x) per element; negative where small elements are rounded to zero."""
    unit_square: float
    """Mean of u^2 per element, all vectors weighted equally."""
    unit_fourth: float
    """Mean of u^4 per element, all vectors weighted equally."""
    energy_square: float
    """Mean over vectors of s^2 (sum of u^2)^2, in squared units of elements."""

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
        """Noise-to-signal ratio of rounded elements, a common gain not counted; infinite if all vanish."""
        if self.overlap <= 0.0:
            return math.inf
        return (self.error_square - self.error_overlap**2 / self.square) * self.square / self.overlap**2


class FullScaleRule(Hashable, Protocol):
    """Rule that gives the full scale of a vector by its largest magnitude, such as the next power of two."""

    @property
    def jumps(self) -> Reals:
        """Largest magnitudes at which the full scale, or the code of the largest element, jumps."""

    def __call__(self, largest: Reals) -> Reals:
        """Return the full scale of each largest magnitude, in the same shape."""


def scaled_moments(
    law: OperandLaw,
    length: int,
    codes: Codes | None,
    *,
    outliers: int | None = None,
    rows: int = 1,
    full_scale: FullScaleRule | None = None,
) -> Scaled:
    """Return the expected moments of scaled and rounded vectors, or tensors of several rows, of an operand.

    Parameters
    ----------
    law : OperandLaw
        Distribution of the elements. For vectors the row scales cancel; for `rows` > 1 they count.
    length : int
        Elements of a vector.
    codes : Codes or None
        Codes that elements are rounded to; None for exact operands.
    outliers : int or None
        Outlier channels in the vector; by default those of a whole row of that length. Vectors only.
    rows : int
        Rows that share one full scale.
    full_scale : FullScaleRule or None
        Rule for the full scale; by default it is the largest magnitude. Larger elements are clipped to it.

    Notes
    -----
    Of n_j elements with distribution F_j the largest magnitude is at most s with the probability
    prod F_j(s)^n_j. Given that it is s, one element is s, of kind j with a probability in proportion to
    n_j f_j(s)/F_j(s), and all others follow their distribution cut off at s. The average over s is a
    quadrature over its quantiles, in sections between the jumps of full scale.
    """
    if rows > 1:
        return _moments(law.element, law.element_spread, _scale_groups(law, length, rows), codes, full_scale)
    return _moments(law.element, law.spread, law.sizes(length, outliers), codes, full_scale)


@functools.lru_cache(maxsize=1024)
def _scale_groups(law: OperandLaw, length: int, rows: int) -> tuple[tuple[float, int], ...]:
    """Return (scale, number of elements) of a tensor, by row and channel, with similar scales merged."""
    count = law.outliers(length)
    channels = list(_lognormal_groups(law.channel_spread, length - count))
    if count:
        channels.append((math.exp(law.channel_spread**2) * law.outlier_size, count))
    pairs = itertools.product(_lognormal_groups(law.row_spread, rows), channels)
    groups: list[tuple[float, int]] = []
    for size, n in sorted((row * channel, n * m) for (row, n), (channel, m) in pairs):
        if groups and size < _ALIKE * groups[-1][0]:
            last, number = groups[-1]
            groups[-1] = math.sqrt((last**2 * number + size**2 * n) / (number + n)), n + number
        else:
            groups.append((size, n))
    return tuple(groups)


def _lognormal_groups(spread: float, count: int) -> Iterator[tuple[float, int]]:
    """Yield `count` lognormal scales as (root mean square, number) of groups, finer towards the largest."""
    if spread == 0.0 or count == 0:
        yield from [(1.0, count)] * (count > 0)
        return
    edges = sorted(
        {0, count} | {round(count * share) for share in _SCALE_SHARES} | set(range(count - 4, count))
    )
    for low, high in itertools.pairwise(edge for edge in edges if edge >= 0):
        deviations = (NormalDist().inv_cdf((index + 0.5) / count) for index in range(low, high))
        square = math.fsum(math.exp(2.0 * spread * deviation) for deviation in deviations) / (high - low)
        yield math.sqrt(square), high - low


@dataclass(frozen=True, kw_only=True, eq=False)
class _Vectors:
    """Exact vectors by their largest magnitude s, at the L nodes of a quadrature over it; shape [L] each."""

    kinds: tuple[Magnitudes, ...]
    """Distributions of the elements, by scale."""
    free: tuple[Reals, ...]
    """For each kind, the expected number of elements besides the largest, over the probability F_j(s): the
    factor with which partial moments up to s count."""
    largest: Reals
    """The largest magnitude s."""
    weights: Reals
    """Probability of s."""
    square: Reals
    """Expected sum of x^2 over a vector."""
    fourth: Reals
    """Expected sum of x^4 over a vector."""


@functools.lru_cache(maxsize=4096)
def _vectors(
    element: Element, spread: float, counts: tuple[tuple[float, int], ...], full_scale: FullScaleRule | None
) -> _Vectors:
    """Return the vectors of `counts` elements of each scale, before rounding."""
    base = magnitudes(element, spread)
    kinds = [(base.scaled(size), float(n)) for size, n in counts]
    s, weights = _largest_quadrature(kinds, np.zeros(0) if full_scale is None else full_scale.jumps)
    below = [np.exp(kind.log_cdf(s)) for kind, _ in kinds]
    hazards = np.array([n * np.exp(np.log(kind.density(s) + _TINY) - kind.log_cdf(s)) for kind, n in kinds])
    share = hazards / hazards.sum(0)
    free = tuple((n - largest) / low for (_, n), largest, low in zip(kinds, share, below, strict=True))
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
    """Return the moments of vectors of `counts` elements of each scale, as `scaled_moments`."""
    vectors = _vectors(element, spread, counts, full_scale)
    length, s, square = sum(n for _, n in counts), vectors.largest, vectors.square
    scale = s if full_scale is None else full_scale(s)
    error, overlap = np.zeros_like(s), np.zeros_like(s)
    if codes is not None:
        for kind, others in zip(vectors.kinds, vectors.free, strict=True):
            error_below, overlap_below = _rounding_errors(kind, s, scale, codes)
            error += others * error_below
            overlap += others * overlap_below
        largest_error, largest_overlap = _largest_errors(s, scale, codes)
        error += largest_error
        overlap += largest_overlap
    coded = square + 2.0 * overlap + error
    unit = np.where(scale > 0.0, scale, np.inf)  # a scale that rounds to zero leaves no codes

    def mean(x: Reals) -> float:
        return float(np.sum(vectors.weights * x))

    return Scaled(
        scale_square=mean(scale**2),
        square=mean(square) / length,
        error_square=mean(error) / length,
        error_overlap=mean(overlap) / length,
        unit_square=mean(coded / unit**2) / length,
        unit_fourth=mean(vectors.fourth / unit**4) / length,
        energy_square=mean(coded**2 / unit**2),
    )


def largest_quantiles(law: OperandLaw, length: int, outliers: int, shares: Reals) -> Reals:
    """Return quantiles of the largest magnitude of vectors, in the shape of `shares`.

    Parameters
    ----------
    law : OperandLaw
        Distribution of the elements; row scales are not counted.
    length, outliers : int
        Elements of a vector, and outlier channels among them.
    shares : numpy.ndarray
        Cumulative probabilities of the quantiles, 0 to 1.
    """
    base = magnitudes(law.element, law.spread)
    counts = ((base, length - outliers), (base.scaled(law.outlier_size), outliers))
    kinds = [(kind, float(n)) for kind, n in counts if n > 0]
    if not kinds:
        return np.zeros_like(shares)
    log_s, log_below = _largest_log_cdf(kinds)
    quantiles: Reals = np.exp(np.interp(np.log(np.maximum(shares, _TINY)), log_below, log_s))
    return quantiles


def _largest_log_cdf(kinds: list[tuple[Magnitudes, float]]) -> tuple[Reals, Reals]:
    """Return a grid of log magnitudes, and the log cumulative probability of the largest of all elements."""
    low = min(float(kind.log_x[0]) for kind, _ in kinds)
    high = max(float(kind.log_x[-1]) for kind, _ in kinds)
    log_s = np.linspace(low, high, 4 * _POINTS)
    return log_s, np.sum([n * kind.log_cdf(np.exp(log_s)) for kind, n in kinds], axis=0)


_quadrature = functools.cache(np.polynomial.legendre.leggauss)
"""Nodes and weights of Gauss and Legendre."""


def _largest_quadrature(kinds: list[tuple[Magnitudes, float]], jumps: Reals) -> tuple[Reals, Reals]:
    """Return nodes and weights of a quadrature over the largest magnitude, denser towards its tail.

    The variable v is the fourth root of the tail probability; sections end at the jumps of full scale.
    """
    log_s, log_below = _largest_log_cdf(kinds)
    log_above = np.log(np.maximum(-np.expm1(np.minimum(log_below, 0.0)), _TINY))
    ends = np.exp(0.25 * np.interp(np.log(jumps), log_s, log_above))
    ends = np.unique([0.0, *ends[(ends > _RARE) & (ends < 1.0 - _RARE**2)], 1.0])
    nodes, weights = _quadrature(max(_LEVELS_OF_STEP, math.ceil(_LEVELS / (len(ends) - 1))))
    width = 0.5 * np.diff(ends)[:, None]
    v, w = (ends[:-1, None] + width * (nodes + 1.0)).ravel(), (width * weights).ravel()
    tail, probability = v**4, 4.0 * v**3 * w
    log_nodes = np.interp(-np.log(tail), -log_above, log_s)
    return np.exp(log_nodes), probability / probability.sum()


def _rounding_errors(kind: Magnitudes, s: Reals, scale: Reals, codes: Codes) -> tuple[Reals, Reals]:
    """Return the means of (q - x)^2 and of x (q - x), elements above s counted as zero, shape [L] each.

    The density is integrated over the cell of each code with three Gauss nodes.
    """
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
    """Return the mean error x (step - x) of stochastic rounding in the cell from 0 to `end`, shape [L]."""
    x, density = np.exp(kind.log_x), np.exp(kind.log_density)
    inside = x[None, :] <= end[:, None]
    value = density * x * (step[:, None] - x) * inside
    mean: Reals = np.sum(value * x, 1) * (kind.log_x[1] - kind.log_x[0])
    return mean


def _locally_even(kind: Magnitudes, s: Reals, scale: Reals, codes: Codes) -> Reals:
    """Return the mean of (q - x)^2, shape [L], where elements are uniform between neighbouring codes.

    It is step^2/12 for rounding to the nearest, step^2/6 for stochastic rounding.
    """
    x = np.exp(kind.log_x)
    step = np.diff(codes.values)
    scales, which = np.unique(scale, return_inverse=True)  # a single one where full scale is constant
    u = np.minimum(x[None, :] / scales[:, None], 1.0)
    code = np.clip(np.searchsorted(codes.values, u.ravel()) - 1, 0, len(step) - 1).reshape(u.shape)
    divisor = 6.0 if codes.stochastic else 12.0
    error = (step[code] * scales[:, None]) ** 2 / divisor * np.exp(kind.log_density) * x
    mean: Reals = np.sum(error[which] * (x <= s[:, None]), 1) * (kind.log_x[1] - kind.log_x[0])
    return mean


def _fourth_below(kind: Magnitudes, s: Reals) -> Reals:
    """Return the partial fourth moment up to s: the mean of x^4 with larger elements counted as zero."""
    x = np.exp(kind.log_x)
    running = np.cumsum(np.exp(kind.log_density + 5.0 * kind.log_x)) * (kind.log_x[1] - kind.log_x[0])
    below: Reals = np.interp(np.log(s), kind.log_x, running)
    return np.minimum(below, x[-1] ** 4)


def _largest_errors(s: Reals, scale: Reals, codes: Codes) -> tuple[Reals, Reals]:
    """Return (q - x)^2 and x (q - x) of elements of magnitude s, rounded to the nearest code."""
    values = codes.values
    u = np.minimum(s / np.maximum(scale, _TINY), values[-1])
    at = np.clip(np.searchsorted(values, u), 1, len(values) - 1)
    low, high = values[at - 1], values[at]
    nearest = np.where(u - low < high - u, low, high)
    off = nearest * scale - s
    return off**2, off * s


def blocks_of(law: OperandLaw, length: int, width: int) -> list[tuple[float, int, int]]:
    """Return the blocks of an operand's row as (expected number, width, outlier channels in each).

    Parameters
    ----------
    law : OperandLaw
        Law that says how many channels of a row are outliers; their positions are random.
    length, width : int
        Elements of a row and of a block; the last block may be shorter.
    """
    count, blocks = law.outliers(length), []
    whole, rest = divmod(length, width)
    for block_width, number in ((width, whole), (rest, min(rest, 1))):
        if not number:
            continue
        for larger in range(max(0, block_width - length + count), min(count, block_width) + 1):
            probability = _hypergeometric(larger, length, count, block_width) if count else 1.0
            if probability > _UNLIKELY:
                blocks.append((number * probability, block_width, larger))
    return blocks


def _hypergeometric(larger: int, length: int, count: int, width: int) -> float:
    """Return the probability that `width` of `length` elements have `larger` of the `count` marked ones."""

    def log_binomial(n: int, k: int) -> float:
        return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)

    return math.exp(
        log_binomial(count, larger)
        + log_binomial(length - count, width - larger)
        - log_binomial(length, width)
    )


def mean_of(parts: Iterable[tuple[float, Scaled]]) -> Scaled:
    """Return the weighted mean of moments, from pairs of weight and moments."""
    pairs = list(parts)
    total = math.fsum(weight for weight, _ in pairs)
    names = (one.name for one in dataclasses.fields(Scaled))
    return Scaled(
        **{name: math.fsum(weight * getattr(part, name) for weight, part in pairs) / total for name in names}
    )


def product_rounding(of_a: float, of_b: float) -> float:
    """Return the noise-to-signal ratio of a product of independent operands, from those of both operands."""
    return of_a + of_b + of_a * of_b


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Noise of a product relative to its signal, by cause."""

    noise: Mapping[str, float]
    """Noise-to-signal power ratio by cause, a common gain not counted; causes without noise are left out."""

    @property
    def total(self) -> float:
        """Noise-to-signal power ratio of all causes."""
        return math.fsum(self.noise.values())

    @property
    def snr_db(self) -> float:
        """Signal-to-noise ratio in decibels; infinite without noise."""
        total = self.total
        if total == 0.0:
            return math.inf
        return -math.inf if math.isinf(total) else -db_from_ratio(total)

    @property
    def worst(self) -> str:
        """Cause of the most noise."""
        return max(self.noise, key=lambda cause: self.noise[cause], default="nothing")


def average(parts: Iterable[tuple[float, Precision]]) -> Precision:
    """Return the precision of many products: their noise-to-signal ratios, averaged with weights.

    Raises
    ------
    ParameterError
        If no weight is above zero.
    """
    pairs = [(weight, part) for weight, part in parts if weight > 0.0]
    if not pairs:
        msg = "an average precision needs at least one product with a weight above 0"
        raise ParameterError(msg)
    total, noise = math.fsum(weight for weight, _ in pairs), dict[str, float]()
    for weight, part in pairs:
        for cause, ratio in part.noise.items():
            noise[cause] = noise.get(cause, 0.0) + weight / total * ratio
    return Precision(noise=noise)
