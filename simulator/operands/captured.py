"""Statistics of the operands of a trained transformer's own products, and operands drawn from them.

An operand is factored as ``x[m, k] = row[m] channel[k] value[m, k]``: a scale of each row (a token, or an
output), a scale of each channel along the sum, and a value of mean square one. Quantiles of the three are
kept, and two numbers of the pair: `meeting`, how far large channels of A coincide with those of B, and
`coherence`, the power of the product over that of independent operands. Through a core, drawn operands have
the signal-to-noise ratio of the real ones within about 1 dB with a scale per row or block. With a scale per
tensor the ratio depends on the single largest element, which the statistics do not keep.

Precision is predicted from an `OperandLaw`, which takes milliseconds to fit to these statistics. As there are
hundreds of products, the table ``data/laws.csv`` holds the laws of all products in ``data/operands.csv``;
`heliograph accuracy capture --table` writes both.

Shape suffixes: B matrices, M rows of A, K summed, N columns of B.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import NormalDist
from typing import Any, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from simulator.amounts import Reals
from simulator.errors import ParameterError, nearest
from simulator.operands.statistics import Element, OperandLaw, Operands, correlated, scaled_moments
from simulator.operators import Phase

_T = TypeVar("_T")
TABLE = Path(__file__).parent / "data" / "operands.csv"
"""Table of captured products that ships; `heliograph accuracy capture` makes it."""
CHANNEL_SHARES = (0.0, 0.1, 0.5, 0.9, 0.98, 0.995, 1.0)
"""Cumulative shares at which quantiles of the channels' rms are kept; the last ones are outliers."""
ROW_SHARES = (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)
"""Cumulative shares at which quantiles of the rows' rms are kept."""
VALUE_SHARES = (0.5, 0.9, 0.99, 0.999, 0.9999)
"""Cumulative shares at which quantiles of the values' magnitudes are kept."""
LOUD = 3.0
"""Rms of a channel over the median rms above which it is loud, an outlier channel; a choice."""
_FLOOR = 1e-6
"""Least rms of a row or a channel, relative to that of the matrix; smaller ones are raised to it."""
_MOST_COHERENT = 0.8
"""Largest share of an operand's power in the directions common to A and B; a choice."""
_DIRECTIONS = 16
"""Most common directions; with a single one, outputs are products of two Gaussians, which converters clip."""
_HALVINGS = 18
"""Steps of a bisection."""
_REPEATS = 3
"""Iterations of `CapturedProduct.draw`; giving operands their crest changes the power of their product."""
_POWERS = (0.5, 2.0)
"""Bounds of the power to which magnitudes are raised in `_with_crest`."""
_POWER_ERROR = 1e-6
"""Tolerance of that power."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OperandSpread:
    """Quantiles of one operand's scales and values, dimensionless."""

    channel: tuple[float, ...]
    """Quantiles of the channels' rms at `CHANNEL_SHARES`, over their root mean square."""
    row: tuple[float, ...]
    """Quantiles of the rows' rms at `ROW_SHARES` after division by the channel scales, over their root mean
    square."""
    value: tuple[float, ...]
    """Quantiles of the values' magnitudes at `VALUE_SHARES`, loud channels left out; those of a Gaussian are
    0.67, 1.64, 2.58, 3.29 and 3.89."""
    loud: tuple[float, ...]
    """Such quantiles in the loud channels, with the rows' scales left in."""
    crest: float
    """Root mean square of the rows' largest magnitudes (the full scale of a row) over the operand's rms."""

    @property
    def outlier_size(self) -> float:
        """Loudest channel over the median one."""
        return self.channel[-1] / max(self.channel[2], _FLOOR)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProductPlace:
    """Place of a captured product in a trained model, with its sizes."""

    model: str
    """Name of the model."""
    layer: int
    """Number of the block, from 0."""
    product: str
    """Product of the block: query, key, value, qkv, scores, values, projection, up, down or head."""
    phase: Phase
    """Forward product, or gradient of the first or of the second operand (also if that is no weight)."""
    k: int
    """Length of the sum."""
    m: int
    """Rows of A."""
    n: int
    """Columns of B."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CapturedProduct(ProductPlace):
    """Captured statistics of the operands of one product."""

    a: OperandSpread
    """First operand, A."""
    b: OperandSpread
    """Second operand, B."""
    meeting: float
    """Mean over channels of the mean square of A's times that of B's, over the product of both means."""
    coherence: float
    """Mean square of the product over that of independent operands with the same channel scales."""

    @property
    def kind(self) -> str:
        """Product and phase, by which those of all layers are grouped."""
        return f"{self.product} {self.phase}"

    def draw(self, m: int, n: int, rng: np.random.Generator, *, k: int | None = None) -> tuple[Reals, Reals]:
        """Draw operands with these statistics, A of shape [M, K] and B of shape [K, N], both of rms one.

        Parameters
        ----------
        m, n : int
            Rows of A and columns of B.
        rng : numpy.random.Generator
            Source of all draws.
        k : int, optional
            Length of the sum, by default as captured; the share of loud channels stays.

        Notes
        -----
        Channels are drawn and paired by `meeting`, then values, which are made to cohere and raised to a
        power that gives each operand its crest. Since the last step changes the power of the product, both
        are repeated with a corrected target.
        """
        k = self.k if k is None else k
        channels_a, channels_b = _paired_channels(self, k, rng)
        values = _draw_values(self.a, m, channels_a, rng), _draw_values(self.b, n, channels_b, rng)
        wanted = target = self.meeting * self.coherence
        for _ in range(_REPEATS):
            coherent = _with_coherence(*values, channels_a * channels_b, target / self.meeting, rng)
            a_MK = _with_crest(coherent[0] * channels_a, self.a.crest)
            b_NK = _with_crest(coherent[1] * channels_b, self.b.crest)
            reached = float(np.mean(np.square(a_MK @ b_NK.T)))
            reached /= k * float(np.mean(np.square(a_MK)) * np.mean(np.square(b_NK)))
            target *= wanted / reached
        return a_MK / _rms(a_MK), (b_NK / _rms(b_NK)).T


def _rms(x: Reals) -> float:
    return math.sqrt(float(np.mean(np.square(x))))


def _scales(
    quantiles: tuple[float, ...], shares: tuple[float, ...], count: int, rng: np.random.Generator
) -> Reals:
    """Return `count` scales with given quantiles in random order, of mean square one, extremes included."""
    probabilities = np.linspace(0.0, 1.0, count) if count > 1 else np.array([0.5])
    scales = np.exp(np.interp(probabilities, shares, np.log(np.maximum(quantiles, _FLOOR))))
    scales = rng.permutation(scales)
    return scales / _rms(scales)


def _paired_channels(one: CapturedProduct, k: int, rng: np.random.Generator) -> tuple[Reals, Reals]:
    """Return channel scales of A and of B, shape [K] each, ordered to have the captured `meeting`."""
    a = np.sort(_scales(one.a.channel, CHANNEL_SHARES, k, rng))
    b = np.sort(_scales(one.b.channel, CHANNEL_SHARES, k, rng))
    gaussians = rng.standard_normal((2, k))
    first, low, high = correlated(a, gaussians, 1.0), -1.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        reached = float(np.mean(np.square(first * correlated(b, gaussians, middle))))
        low, high = (middle, high) if reached < one.meeting else (low, middle)
    return first, correlated(b, gaussians, high)


def _loud(channels: Reals) -> NDArray[np.bool_]:
    """Return which channels are outliers, by their scales."""
    return channels > LOUD * np.median(channels)


def _draw_values(spread: OperandSpread, rows: int, channels: Reals, rng: np.random.Generator) -> Reals:
    """Draw values times row scales, of random sign and mean square one, shape [rows, K]."""
    normal = rng.standard_normal((rows, channels.size))
    values, loud = _with_quantiles(normal, spread.value), _loud(channels)
    values *= _scales(spread.row, ROW_SHARES, rows, rng)[:, None]
    if loud.any():
        values[:, loud] = _with_quantiles(normal[:, loud], spread.loud)
    return values


def _with_quantiles(normal: Reals, quantiles: tuple[float, ...]) -> Reals:
    """Return Gaussian numbers whose magnitudes are mapped to given quantiles at `VALUE_SHARES`, of rms one.

    The map is piecewise linear, and goes on with its last slope.
    """
    gaussian = np.array([0.0, *(NormalDist().inv_cdf(0.5 * (1.0 + share)) for share in VALUE_SHARES)])
    wanted = np.concatenate(([0.0], np.maximum.accumulate(quantiles)))
    size = np.abs(normal)
    mapped = np.interp(size, gaussian, wanted)
    slope = (wanted[-1] - wanted[-2]) / (gaussian[-1] - gaussian[-2])
    mapped = np.copysign(mapped + np.maximum(size - gaussian[-1], 0.0) * slope, normal)
    return mapped / max(_rms(mapped), _FLOOR)


def _crest(x: Reals) -> float:
    """Return the rms of the rows' largest magnitudes over that of all elements."""
    return _rms(np.abs(x).max(axis=1)) / max(_rms(x), np.finfo(float).tiny)


def _with_crest(x: Reals, crest: float) -> Reals:
    """Return an operand with its magnitudes raised to the power (near one) that gives it a crest."""
    size = np.log(np.maximum(np.abs(x) / _rms(x), _FLOOR))
    peak, wanted = size.max(axis=1), 2.0 * math.log(crest)

    def excess(power: float) -> float:
        return math.log(np.mean(np.exp(2.0 * power * peak)) / np.mean(np.exp(2.0 * power * size))) - wanted

    low, high = _POWERS
    if excess(low) >= 0.0:
        power = low
    elif excess(high) <= 0.0:
        power = high
    else:
        power = scipy.optimize.brentq(excess, low, high, xtol=_POWER_ERROR)
    return np.copysign(np.exp(power * size), x)


def _with_coherence(
    a: Reals, b: Reals, weight: Reals, coherence: float, rng: np.random.Generator
) -> tuple[Reals, Reals]:
    """Return values changed so that their product has `coherence` times the power of independent ones.

    Parameters
    ----------
    a, b : numpy.ndarray
        Values of mean square one, shapes [M, K] and [N, K].
    weight : numpy.ndarray
        Product of both channel scales, shape [K].
    coherence : float
        Wanted ratio. Above one, a share of both operands' power is put into common random directions. Below
        one, pairs of channels are made equal in A and opposite in B, so that their products cancel.
    rng : numpy.random.Generator
        Source of draws.
    """
    k = weight.size
    power = float(np.sum(weight**2))
    if coherence >= 1.0:
        most = float(np.sum(weight)) ** 2 / power
        excess = (coherence - 1.0) / max(most - 1.0, _FLOOR)
        rank = int(np.clip(_MOST_COHERENT**2 / max(excess, _FLOOR), 1, _DIRECTIONS))
        share = min(_MOST_COHERENT, math.sqrt(excess * rank))
        directions = rng.choice((-1.0, 1.0), size=(rank, k)) / math.sqrt(rank)
        mixed_a, mixed_b = (
            math.sqrt(1.0 - share) * x + math.sqrt(share) * rng.standard_normal((len(x), rank)) @ directions
            for x in (a, b)
        )
        return mixed_a, mixed_b
    order = np.argsort(weight)
    pairs = order[: k // 2 * 2].reshape(-1, 2)
    chosen = pairs[rng.random(len(pairs)) < 1.0 - coherence]
    a, b = a.copy(), b.copy()
    a[:, chosen[:, 1]], b[:, chosen[:, 1]] = a[:, chosen[:, 0]], -b[:, chosen[:, 0]]
    return a, b


def measure_product(
    a_BMK: NDArray[Any], b_BKN: NDArray[Any], *, model: str, layer: int, product: str, phase: Phase
) -> CapturedProduct:
    """Return the statistics of a product's operands, as geometric means over a batch of matrices.

    Parameters
    ----------
    a_BMK, b_BKN : numpy.ndarray
        Operands, shapes [B, M, K] and [B, K, N].
    model, layer, product, phase : str, int, str, Phase
        Place of the product, as in `ProductPlace`.

    Raises
    ------
    ParameterError
        If an operand is zero throughout.
    """
    singles = []
    for a, b in zip(np.asarray(a_BMK, np.float64), np.asarray(b_BKN, np.float64), strict=True):
        if not a.any() or not b.any():
            msg = f"an operand of {model}, layer {layer}, {product} {phase} is zero throughout"
            raise ParameterError(msg)
        singles.append(_measure(a, b.T))

    def mean(values: Iterable[Any]) -> Any:  # noqa: ANN401
        return np.exp(np.mean(np.log(np.maximum(np.array(list(values)), _FLOOR)), axis=0))

    def spread(operand: int) -> OperandSpread:
        means: dict[str, Any] = {
            one.name: mean(getattr(x[operand], one.name) for x in singles) for one in fields(OperandSpread)
        }
        crest = float(means.pop("crest"))
        return OperandSpread(**{name: tuple(x.tolist()) for name, x in means.items()}, crest=crest)

    return CapturedProduct(
        model=model,
        layer=layer,
        product=product,
        phase=phase,
        k=int(np.shape(a_BMK)[2]),
        m=int(np.shape(a_BMK)[1]),
        n=int(np.shape(b_BKN)[2]),
        a=spread(0),
        b=spread(1),
        meeting=float(mean(x[2] for x in singles)),
        coherence=float(mean(x[3] for x in singles)),
    )


def _measure(a: Reals, b: Reals) -> tuple[OperandSpread, OperandSpread, float, float]:
    """Return the spreads of A, [M, K], and of B, [N, K], their meeting and their coherence."""
    squares = [np.mean(np.square(x), axis=0) for x in (a, b)]
    levels = [x / x.mean() for x in squares]
    independent = float(np.sum(squares[0] * squares[1]))
    meeting = float(np.mean(levels[0] * levels[1]))
    coherence = float(np.mean(np.square(a @ b.T))) / independent
    return _spread(a), _spread(b), meeting, coherence


def _spread(x: Reals) -> OperandSpread:
    """Return the quantiles of the scales and values of an operand of shape [rows, K]."""
    channel = _floored(np.sqrt(np.mean(np.square(x), axis=0)))
    level, loud = x / channel, _loud(channel)
    row = _floored(np.sqrt(np.mean(np.square(level[:, ~loud]), axis=1)))
    value = np.abs(level[:, ~loud] / row[:, None])
    loud_values = np.abs(level[:, loud]) if loud.any() else value
    return OperandSpread(
        channel=tuple(np.quantile(channel / _rms(channel), CHANNEL_SHARES).tolist()),
        row=tuple(np.quantile(row / _rms(row), ROW_SHARES).tolist()),
        value=_magnitudes(value, np.square(row)),
        loud=_magnitudes(loud_values, np.ones(len(x))),
        crest=_crest(x),
    )


def _magnitudes(x: Reals, weights: Reals) -> tuple[float, ...]:
    """Return quantiles of magnitudes at `VALUE_SHARES` over their rms, rows weighted by `weights`.

    The weights are the rows' powers, since products and their noise count rows so.
    """
    flat, counts = x.ravel(), np.repeat(weights, x.shape[1])
    order = np.argsort(flat)
    cumulative = np.cumsum(counts[order])
    index = np.searchsorted(cumulative, np.asarray(VALUE_SHARES) * cumulative[-1]).clip(0, flat.size - 1)
    rms = math.sqrt(float(np.sum(counts * np.square(flat)) / cumulative[-1]))
    return tuple((flat[order[index]] / rms).tolist())


def _floored(scale: Reals) -> Reals:
    return np.maximum(scale, _FLOOR * max(_rms(scale), np.finfo(float).tiny))


_PLACE = tuple(one.name for one in fields(ProductPlace))
_PAIR = (*_PLACE, "meeting", "coherence")
COLUMNS = (*_PAIR, *(f"{which}_{one.name}" for which in ("a", "b") for one in fields(OperandSpread)))
"""Columns of the table of captured products; the quantiles of a field share a cell, separated by blanks."""
_DIGITS = 4
"""Significant digits of its numbers."""


def captured_row(one: CapturedProduct) -> dict[str, str]:
    """Return the row of a product in the table of captured products."""
    row = {name: str(getattr(one, name)) for name in _PLACE}
    row |= {name: f"{getattr(one, name):.{_DIGITS}g}" for name in ("meeting", "coherence")}
    for which, spread in (("a", one.a), ("b", one.b)):
        for part in fields(OperandSpread):
            value = getattr(spread, part.name)
            numbers = value if isinstance(value, tuple) else (value,)
            row[f"{which}_{part.name}"] = " ".join(f"{number:.{_DIGITS}g}" for number in numbers)
    return row


def read_rows(path: Path, columns: Iterable[str], make: Callable[[Mapping[str, str]], _T]) -> tuple[_T, ...]:
    """Return the objects that the rows of a CSV table of captures describe.

    Parameters
    ----------
    path : pathlib.Path
        CSV file; lines that start with ``#`` are skipped.
    columns : iterable of str
        Columns that it must have.
    make : callable
        From a row to its object; raises `ValueError` or `TypeError` for a bad cell.

    Raises
    ------
    ParameterError
        If the file is missing, a column is, or a cell is no number of the right kind; with file and line.
    """
    if not path.is_file():
        msg = f"no table of captures at {path}; make one with 'heliograph accuracy capture --table'"
        raise ParameterError(msg)
    with path.open(newline="", encoding="utf-8") as stream:
        numbered = [(at, line) for at, line in enumerate(stream, 1) if not line.startswith("#")]
    reader = csv.DictReader(line for _, line in numbered)
    missing = [name for name in columns if name not in (reader.fieldnames or ())]
    if missing:
        msg = f"{path.name}: columns {', '.join(missing)} are missing; 'heliograph accuracy capture' makes it"
        raise ParameterError(msg)
    made = []
    for row, (line_number, _) in zip(reader, numbered[1:], strict=True):
        try:
            made.append(make(row))
        except (ValueError, TypeError) as error:
            msg = (
                f"{path.name}:{line_number}: {error}; make the table anew with 'heliograph accuracy capture'"
            )
            raise ParameterError(msg) from None
    return tuple(made)


def read_captured(path: Path) -> tuple[CapturedProduct, ...]:
    """Return the products of a table with the columns `COLUMNS`; raises as `read_rows`."""
    return read_rows(path, COLUMNS, _product)


def _product(row: Mapping[str, str]) -> CapturedProduct:
    return CapturedProduct(
        a=_operand(row, "a"),
        b=_operand(row, "b"),
        meeting=float(row["meeting"]),
        coherence=float(row["coherence"]),
        **_place(row),
    )


def _place(row: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of `ProductPlace` in a row."""
    numbers = {name: int(row[name]) for name in ("layer", "k", "m", "n")}
    return {"model": row["model"], "product": row["product"], "phase": Phase(row["phase"]), **numbers}


def _operand(row: Mapping[str, str], which: str) -> OperandSpread:
    """Return operand a or b of a row; raises `ValueError` for a cell with wrong numbers."""

    def numbers(name: str, count: int) -> tuple[float, ...]:
        cell = row[f"{which}_{name}"]
        read = tuple(float(word) for word in cell.split())
        if len(read) != count or not all(0.0 <= number < math.inf for number in read):
            msg = f"{which}_{name} must be {count} finite numbers from 0; got '{cell}'"
            raise ValueError(msg)
        return read

    return OperandSpread(
        channel=numbers("channel", len(CHANNEL_SHARES)),
        row=numbers("row", len(ROW_SHARES)),
        value=numbers("value", len(VALUE_SHARES)),
        loud=numbers("loud", len(VALUE_SHARES)),
        crest=numbers("crest", 1)[0],
    )


@functools.cache
def load_captured() -> tuple[CapturedProduct, ...]:
    """Return all products of the table that ships."""
    return read_captured(TABLE)


def captured(model: str = "", product: str = "", phase: Phase | None = None) -> tuple[CapturedProduct, ...]:
    """Return the products of the shipped table with a model, product and phase, each optional, of all layers.

    Raises
    ------
    ParameterError
        If there are none.
    """
    known = load_captured()
    for wanted, name in ((model, "model"), (product, "product")):
        names = tuple(dict.fromkeys(str(getattr(one, name)) for one in known))
        if wanted and wanted not in names:
            msg = f"no operands of a {name} '{wanted}' were captured; {nearest(wanted, names, noun=name)}"
            raise ParameterError(msg)
    found = tuple(
        one
        for one in known
        if (not model or one.model == model)
        and (not product or one.product == product)
        and (phase is None or one.phase is phase)
    )
    if not found:
        msg = f"no operands of {model} {product} {phase} were captured; leave one of them out"
        raise ParameterError(msg)
    return found


LAWS = TABLE.with_name("laws.csv")
"""Table of laws that ships."""
_SPREAD_STEP, _WIDEST = 0.01, 3.0
"""Step and end of the grid of spreads in `_spread_for`; choices."""
MOST_OUTLIERS = 0.02
"""Largest share of outlier channels; if more are loud, they are part of the spread. A choice."""


def captured_law(spread: OperandSpread, length: int, rows: int) -> OperandLaw:
    """Return the law fitted to a captured operand.

    Parameters
    ----------
    spread : OperandSpread
        Captured statistics.
    length, rows : int
        Elements of a row, and rows, as captured.

    Notes
    -----
    - Outliers are the channels above `LOUD` times the ninth decile, if they are at most `MOST_OUTLIERS` of
      all; their factor is the ratio of root mean squares.
    - The spread of elements and channels together is fitted to the crest, since full scale decides the
      precision. Elements are Gaussian, or uniform if even unspread Gaussian ones have a larger crest.
    - The channels' part of that spread is fitted to the ratio of rms and median of channels, outliers apart.
    - The spread of rows is fitted to the loudest row, which decides the full scale of a whole tensor.
    """
    channel = np.maximum(spread.channel, _FLOOR)
    sizes = np.exp(np.interp(np.linspace(0.0, 1.0, 2001), CHANNEL_SHARES, np.log(channel)))
    loud = sizes > LOUD * channel[CHANNEL_SHARES.index(0.9)]
    share = float(np.mean(loud))
    rms = math.sqrt(float(np.mean(sizes[~loud] ** 2)))
    channels = math.sqrt(max(0.0, math.log(rms / float(np.median(sizes)))))
    law = OperandLaw()
    if 0.0 < share <= MOST_OUTLIERS:
        loudest = math.sqrt(float(np.mean(sizes[loud] ** 2)))
        law = OperandLaw(outlier_share=share, outlier_size=loudest / rms)
    if spread.crest < _law_crest(law, length):
        law = dataclasses.replace(law, element=Element.UNIFORM)
    whole = _spread_for(law, length, spread.crest)
    channels = min(channels, whole)
    single = math.sqrt(whole**2 - channels**2)
    rows_spread = _row_spread(spread.row[-1], rows)
    return dataclasses.replace(law, element_spread=single, channel_spread=channels, row_spread=rows_spread)


def _row_spread(loudest: float, rows: int) -> float:
    """Return the spread of `rows` lognormal row scales whose largest is `loudest` times their rms.

    Notes
    -----
    The largest is e^(s z) over the rms e^(s^2), with z its expected quantile; it is at most e^(z^2 / 4).
    """
    z = NormalDist().inv_cdf(1.0 - 0.5 / max(rows, 2))
    root = z**2 - 4.0 * math.log(max(loudest, 1.0))
    return 0.5 * (z - math.sqrt(max(root, 0.0)))


def _spread_for(law: OperandLaw, length: int, crest: float) -> float:
    """Return the spread of elements, a multiple of `_SPREAD_STEP`, that brings a law nearest to a crest."""

    def crest_at(step: int) -> float:
        return _law_crest(dataclasses.replace(law, element_spread=step * _SPREAD_STEP), length)

    low, high = 0, round(_WIDEST / _SPREAD_STEP)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if crest_at(middle) < crest else (low, middle)
    below = max(0, low - 1)
    return (below if crest**2 < crest_at(below) * crest_at(low) else low) * _SPREAD_STEP


def _law_crest(law: OperandLaw, length: int) -> float:
    """Return the rms of the rows' largest magnitudes over the rms of the elements."""
    moments = scaled_moments(law, length, None)
    return math.sqrt(moments.scale_square / moments.square)


def captured_statistics(product: CapturedProduct) -> Operands:
    """Return the operands of a captured product as laws, with meeting and coherence."""
    a, b = captured_law(product.a, product.k, product.m), captured_law(product.b, product.k, product.n)
    coherence = product.meeting * product.coherence
    return Operands(a=a, b=b, coherence=coherence, meeting=product.meeting)


@dataclass(frozen=True, kw_only=True, slots=True)
class CapturedLaw(ProductPlace):
    """Operands of one product of a trained model, as laws."""

    operands: Operands
    """Laws of both operands, with meeting and coherence."""


_OF_OPERAND = tuple(one.name for one in fields(OperandLaw))
_OF_BOTH = ("coherence", "meeting")
LAW_COLUMNS = (*_PLACE, *_OF_BOTH, *(f"{which}_{name}" for which in ("a", "b") for name in _OF_OPERAND))
"""Columns of the table of laws, dimensionless: fields of `ProductPlace`, `Operands` and `OperandLaw`."""
_LAW_DIGITS = 6
"""Significant digits of its numbers."""


def laws_text(products: Iterable[CapturedProduct]) -> str:
    """Return the text of the table of laws of captured products."""
    stream = io.StringIO()
    stream.write(
        "# Laws of the operands in operands.csv; simulator/operands/captured.py says how they are found\n"
    )
    writer = csv.DictWriter(stream, LAW_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_law_row(one) for one in products)
    return stream.getvalue()


def _law_row(one: CapturedProduct) -> dict[str, str]:
    operands = captured_statistics(one)
    row = {name: str(getattr(one, name)) for name in _PLACE}
    row |= {name: f"{getattr(operands, name):.{_LAW_DIGITS}g}" for name in _OF_BOTH}
    for which, law in (("a", operands.a), ("b", operands.b)):
        for name in _OF_OPERAND:
            value = getattr(law, name)
            row[f"{which}_{name}"] = str(value) if name == "element" else f"{value:.{_LAW_DIGITS}g}"
    return row


def read_laws(path: Path) -> tuple[CapturedLaw, ...]:
    """Return the laws of a table with the columns `LAW_COLUMNS`; raises as `read_rows`."""
    return read_rows(path, LAW_COLUMNS, _law)


def _law(row: Mapping[str, str]) -> CapturedLaw:
    """Return the law that a row describes."""
    a, b = (
        OperandLaw(
            element=Element(row[f"{which}_element"]),
            **{name: float(row[f"{which}_{name}"]) for name in _OF_OPERAND[1:]},
        )
        for which in ("a", "b")
    )
    operands = Operands(a=a, b=b, **{name: float(row[name]) for name in _OF_BOTH})
    return CapturedLaw(operands=operands, **_place(row))


@functools.cache
def load_laws() -> tuple[CapturedLaw, ...]:
    """Return all laws of the table that ships."""
    return read_laws(LAWS)
