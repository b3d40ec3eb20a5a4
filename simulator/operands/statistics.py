"""Statistics of the operands of a product, from which they are drawn, and what a product is worth: its SNR.

One currency of precision for all machines: the executed signal-to-noise ratio (`signal_to_noise_db`) of
products of stated operands (`OperandKind`). Without torch, so that everything analytic can ask for it.

Shape suffixes: M rows of A, K summed, N columns of B.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import scipy

from simulator.amounts import Reals
from simulator.checks import check_positive, check_range
from simulator.errors import ParameterError

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


@dataclass(frozen=True, kw_only=True)
class OperandLaw:
    """Distribution of one operand: elements of zero mean times scales of elements, channels and rows.

    Notes
    -----
    An element is e^(t w) c_k r_i z: z of shape `element`, w Gaussian, ln c_k and ln r_i Gaussian; some
    channels are larger by a factor. All deviations are of natural logarithms, all fields dimensionless.
    Excess of kurtosis over the shape's own is e^(4 t^2).
    """

    element: Element = Element.GAUSSIAN
    """Shape of z."""
    element_spread: float = 0.0
    """Standard deviation of the logarithm of single elements' scales, t."""
    channel_spread: float = 0.0
    """Standard deviation of the logarithm of the scales of channels, places along the sum, outliers apart."""
    row_spread: float = 0.0
    """Standard deviation of the logarithm of the scales of rows (tokens, or outputs of a weight)."""
    outlier_share: float = 0.0
    """Share of channels that are larger, 0 to 0.5; at least one channel where it is not zero."""
    outlier_size: float = 1.0
    """How many times larger they are."""

    def __post_init__(self) -> None:
        check_range(self, "element_spread", "channel_spread", "row_spread", high=5.0)
        check_range(self, "outlier_share", high=0.5)
        check_positive(self, "outlier_size")

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
        if self.element is Element.UNIFORM:
            x = generator.uniform(-1.0, 1.0, (rows, length))
        else:
            x = generator.standard_normal((rows, length))
        if self.element_spread:
            x *= np.exp(self.element_spread * generator.standard_normal((rows, length)))
        return x


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
    """What a product loses with its loudest channels, those of the largest max|a_k| max|b_k|."""

    kept: float
    """Power of the product without them over that of all, 0 to 1."""
    meeting: float
    """`Operands.meeting` of the channels that are left."""


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
    decades of magnitude the channel of the largest one also holds much of the power.
    """
    width = min(length, _CHANNELS)
    blocks, taken = math.ceil(_CHANNELS / width), max(1, round(count * width / length))
    if count == 0 or taken >= width:
        return Loudest(kept=1.0, meeting=operands.meeting) if count == 0 else Loudest(kept=0.0, meeting=1.0)
    generator = np.random.default_rng(_CHANNELS)
    loudness, squares = np.ones((blocks, width)), []
    for law, scale in zip((operands.a, operands.b), channel_scales(operands, length, generator), strict=True):
        elements = law.elements(generator, _ROWS, blocks * width).reshape(_ROWS, blocks, width)
        loudness *= scale * np.abs(elements).max(0)
        squares.append(scale**2 * np.mean(elements**2, 0))
    order = np.argsort(loudness, axis=1)[:, : width - taken]
    power, (a, b) = squares[0] * squares[1], (np.take_along_axis(one, order, 1) for one in squares)
    left = float(np.mean(a * b))
    return Loudest(
        kept=left * (width - taken) / width / float(np.mean(power)),
        meeting=left / float(np.mean(a) * np.mean(b)),
    )


def channel_scales(operands: Operands, length: int, generator: np.random.Generator) -> tuple[Reals, Reals]:
    """Return scales of channels of A and of B that meet as in the operands, each [blocks, width]."""
    width = min(length, _CHANNELS)
    blocks = math.ceil(_CHANNELS / width)
    levels = scipy.special.ndtri((np.arange(blocks * width) + 0.5) / (blocks * width))
    sorted_a, sorted_b = (np.exp(law.channel_spread * levels) for law in (operands.a, operands.b))
    for law, scale in ((operands.a, sorted_a), (operands.b, sorted_b)):
        if law.outliers(length):
            larger = max(1, round(law.outliers(length) / length * scale.size))
            scale[-larger:] = law.outlier_size * math.sqrt(float(np.mean(scale[:-larger] ** 2)))
    common, own = generator.standard_normal((2, blocks * width))
    a = sorted_a[np.argsort(np.argsort(common))]

    def ordered(correlation: float) -> Reals:
        mixed = correlation * common + math.sqrt(1.0 - correlation**2) * own
        return sorted_b[np.argsort(np.argsort(mixed))]

    wanted, low, high = operands.meeting * np.mean(a**2) * np.mean(sorted_b**2), -1.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.mean((a * ordered(middle)) ** 2) < wanted else (low, middle)
    return a.reshape(blocks, width), ordered(0.5 * (low + high)).reshape(blocks, width)


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
    gaussian = OperandLaw()
    if kind is OperandKind.UNIFORM:
        uniform = OperandLaw(element=Element.UNIFORM)
        return Operands(a=uniform, b=uniform)
    if kind is OperandKind.GAUSSIAN:
        return Operands(a=gaussian, b=gaussian)
    if kind is OperandKind.OUTLIERS:
        larger = OperandLaw(outlier_share=OUTLIER_SHARE, outlier_size=OUTLIER_SIZE)
        return Operands(a=larger, b=gaussian)
    if kind is OperandKind.GRADIENTS:
        return Operands(a=OperandLaw(element_spread=GRADIENT_SPREAD), b=gaussian)
    msg = "captured operands differ from product to product; name another kind"
    raise ParameterError(msg)


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
