"""Captured operands: statistics of a trained transformer's own products, and operands drawn to have them.

An operand is taken apart as ``x[m, k] = row[m] channel[k] value[m, k]``: a scale of each row (a token, an
output), one of each channel along the sum, and what is left, of mean square one. Quantiles of the three are
kept, with two numbers of the pair: how far the loud channels of A meet those of B, and how far the product
exceeds that of operands that know nothing of each other. Operands drawn from them have the signal-to-noise
of the real ones through a core within about 1 dB with scales per row or block; a scale per tensor hangs on
the single largest element, which statistics do not keep.

The law of an operand, from which precision is predicted, takes milliseconds to find, and there are hundreds:
``data/laws.csv`` holds those of all products in ``data/operands.csv``. `heliograph accuracy capture --table`
writes both.

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
"""The table that ships; `heliograph accuracy capture` makes it."""
CHANNEL_SHARES = (0.0, 0.1, 0.5, 0.9, 0.98, 0.995, 1.0)
"""Shares of the channels whose rms is at most the quantile kept; the last ones hold the outliers."""
ROW_SHARES = (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)
"""The same of rows."""
VALUE_SHARES = (0.5, 0.9, 0.99, 0.999, 0.9999)
"""Shares of the magnitudes of values."""
LOUD = 3.0
"""Channel rms over the median one from which a channel is loud: an outlier channel. A choice."""
_FLOOR = 1e-6
"""Least rms of a row or a channel, relative to the matrix: those that are nothing count as this."""
_MOST_COHERENT = 0.8
"""Largest share of an operand in the directions that both have in common."""
_DIRECTIONS = 16
"""Most such directions; a single one makes a product of two Gaussians, which converters clip."""
_HALVINGS = 18
"""Halvings of an interval in which a number is looked for."""
_REPEATS = 3
"""Times that operands are related anew, since bending their magnitudes to a crest changes their product."""
_POWERS = (0.5, 2.0)
"""Powers of magnitudes among which that of a right crest is."""
_POWER_ERROR = 1e-6
"""How closely it is found."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OperandSpread:
    """Spread of one operand's magnitudes, relative to its rms, dimensionless."""

    channel: tuple[float, ...]
    """Quantiles of the channels' rms at `CHANNEL_SHARES`."""
    row: tuple[float, ...]
    """Quantiles of the rows' rms at `ROW_SHARES`, channel scales taken off."""
    value: tuple[float, ...]
    """Quantiles of the magnitude of values at `VALUE_SHARES`, both scales taken off; a Gaussian's are 0.67,
    1.64, 2.58, 3.29 and 3.89."""
    loud: tuple[float, ...]
    """The same in the loud channels, those of more than `LOUD` times the median rms, rows' scales left on."""
    crest: float
    """Root mean square of the rows' largest magnitudes: the full scale of a row, over the operand's rms."""

    @property
    def outlier_size(self) -> float:
        """Loudest channel over the median one."""
        return self.channel[-1] / max(self.channel[2], _FLOOR)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProductPlace:
    """Product of a trained model of which something was captured."""

    model: str
    """Model that it is of."""
    layer: int
    """Number of the block, from 0."""
    product: str
    """Product of the block: query, key, value, qkv, scores, values, projection, up, down or head."""
    phase: Phase
    """Forward product, gradient of the first operand, or of the second (also where that is no weight)."""
    k: int
    """Products of a sum, as captured."""
    m: int
    """Rows of A, as captured."""
    n: int
    """Columns of B, as captured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CapturedProduct(ProductPlace):
    """Operands of one product of a trained model, in statistics."""

    a: OperandSpread
    """First operand."""
    b: OperandSpread
    """Second operand."""
    meeting: float
    """Sum over channels of the mean squares of A times those of B, over that of level channels."""
    coherence: float
    """Mean square of the product over that of independent operands with the same channels."""

    @property
    def kind(self) -> str:
        """Product and phase, by which like ones of all layers are put together."""
        return f"{self.product} {self.phase}"

    def draw(self, m: int, n: int, rng: np.random.Generator, *, k: int | None = None) -> tuple[Reals, Reals]:
        """Return operands with these statistics, A of shape [M, K] and B of shape [K, N], of rms one.

        Parameters
        ----------
        m, n : int
            Rows of A and columns of B.
        rng : numpy.random.Generator
            Source of all draws.
        k : int, optional
            Products of a sum, if not as many as captured; shares of loud channels stay.
        """
        k = self.k if k is None else k
        channels_a, channels_b = _paired_channels(self, k, rng)
        values = _values(self.a, m, channels_a, rng), _values(self.b, n, channels_b, rng)
        wanted = target = self.meeting * self.coherence
        for _ in range(_REPEATS):
            related = _related(*values, channels_a * channels_b, target / self.meeting, rng)
            a_MK = _with_crest(related[0] * channels_a, self.a.crest)
            b_NK = _with_crest(related[1] * channels_b, self.b.crest)
            found = float(np.mean(np.square(a_MK @ b_NK.T)))
            found /= k * float(np.mean(np.square(a_MK)) * np.mean(np.square(b_NK)))
            target *= wanted / found
        return a_MK / _rms(a_MK), (b_NK / _rms(b_NK)).T


def _rms(x: Reals) -> float:
    return math.sqrt(float(np.mean(np.square(x))))


def _scales(
    table: tuple[float, ...], shares: tuple[float, ...], count: int, rng: np.random.Generator
) -> Reals:
    """Return so many scales in a random order, of mean square one; the loudest is always among them."""
    at = np.linspace(0.0, 1.0, count) if count > 1 else np.array([0.5])
    found = rng.permutation(np.exp(np.interp(at, shares, np.log(np.maximum(table, _FLOOR)))))
    return found / _rms(found)


def _paired_channels(one: CapturedProduct, k: int, rng: np.random.Generator) -> tuple[Reals, Reals]:
    """Return channel scales of A and of B, ordered so that they meet as they do in the model."""
    a = np.sort(_scales(one.a.channel, CHANNEL_SHARES, k, rng))
    b = np.sort(_scales(one.b.channel, CHANNEL_SHARES, k, rng))
    gaussians = rng.standard_normal((2, k))
    first, low, high = correlated(a, gaussians, 1.0), -1.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        met = float(np.mean(np.square(first * correlated(b, gaussians, middle))))
        low, high = (middle, high) if met < one.meeting else (low, middle)
    return first, correlated(b, gaussians, high)


def _loud(channels: Reals) -> NDArray[np.bool_]:
    """Return which channels are outliers."""
    return channels > LOUD * np.median(channels)


def _values(spread: OperandSpread, rows: int, channels: Reals, rng: np.random.Generator) -> Reals:
    """Return values times their rows' scales, of either sign and mean square one, [rows, K]."""
    normal = rng.standard_normal((rows, channels.size))
    found, loud = _shaped(normal, spread.value), _loud(channels)
    found *= _scales(spread.row, ROW_SHARES, rows, rng)[:, None]
    if loud.any():
        found[:, loud] = _shaped(normal[:, loud], spread.loud)
    return found


def _shaped(normal: Reals, quantiles: tuple[float, ...]) -> Reals:
    """Return Gaussian numbers bent to have quantiles of the magnitude at `VALUE_SHARES`, mean square one."""
    marks = np.array([0.0, *(NormalDist().inv_cdf(0.5 * (1.0 + share)) for share in VALUE_SHARES)])
    heights = np.concatenate(([0.0], np.maximum.accumulate(quantiles)))
    size = np.abs(normal)
    found = np.interp(size, marks, heights)
    slope = (heights[-1] - heights[-2]) / (marks[-1] - marks[-2])
    found = np.copysign(found + np.maximum(size - marks[-1], 0.0) * slope, normal)
    return found / max(_rms(found), _FLOOR)


def _crest(x: Reals) -> float:
    """Return the rms of the rows' largest magnitudes over that of all elements."""
    return _rms(np.abs(x).max(axis=1)) / max(_rms(x), np.finfo(float).tiny)


def _with_crest(x: Reals, crest: float) -> Reals:
    """Return an operand whose magnitudes are raised to the power, near one, that makes its crest right."""
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


def _related(
    a: Reals, b: Reals, weight: Reals, coherence: float, rng: np.random.Generator
) -> tuple[Reals, Reals]:
    """Return values whose product has a mean square of `coherence` times that of independent ones.

    Parameters
    ----------
    a, b : numpy.ndarray
        Values, [M, K] and [N, K], mean square one.
    weight : numpy.ndarray
        Product of both channel scales, [K].
    coherence : float
        What is wanted. Above one, both get a share in common directions; below, channels pair up in which
        A has what is alike and B what is opposite, so that their products cancel.
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
        found = [
            math.sqrt(1.0 - share) * x + math.sqrt(share) * rng.standard_normal((len(x), rank)) @ directions
            for x in (a, b)
        ]
        return found[0], found[1]
    order = np.argsort(weight)
    pairs = order[: k // 2 * 2].reshape(-1, 2)
    chosen = pairs[rng.random(len(pairs)) < 1.0 - coherence]
    a, b = a.copy(), b.copy()
    a[:, chosen[:, 1]], b[:, chosen[:, 1]] = a[:, chosen[:, 0]], -b[:, chosen[:, 0]]
    return a, b


def measure_product(
    a_BMK: NDArray[Any], b_BKN: NDArray[Any], *, model: str, layer: int, product: str, phase: Phase
) -> CapturedProduct:
    """Return the statistics of a product's operands; of several matrices the geometric mean.

    Parameters
    ----------
    a_BMK, b_BKN : numpy.ndarray
        Operands, shapes [B, M, K] and [B, K, N].
    model, product : str
        As of `CapturedProduct`.
    layer : int
        Number of the block.
    phase : Phase
        Phase of the product.

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
        singles.append(_measured(a, b.T))

    def mean(values: Iterable[Any]) -> Any:  # noqa: ANN401
        return np.exp(np.mean(np.log(np.maximum(np.array(list(values)), _FLOOR)), axis=0))

    def spread(which: int) -> OperandSpread:
        found: dict[str, Any] = {
            one.name: mean(getattr(x[which], one.name) for x in singles) for one in fields(OperandSpread)
        }
        crest = float(found.pop("crest"))
        return OperandSpread(**{name: tuple(x.tolist()) for name, x in found.items()}, crest=crest)

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


def _measured(a: Reals, b: Reals) -> tuple[OperandSpread, OperandSpread, float, float]:
    """Return the spreads of A, [M, K], and of B, [N, K], their meeting and their coherence."""
    squares = [np.mean(np.square(x), axis=0) for x in (a, b)]
    levels = [x / x.mean() for x in squares]
    independent = float(np.sum(squares[0] * squares[1]))
    meeting = float(np.mean(levels[0] * levels[1]))
    coherence = float(np.mean(np.square(a @ b.T))) / independent
    return _spread(a), _spread(b), meeting, coherence


def _spread(x: Reals) -> OperandSpread:
    """Return the quantiles of an operand's scales and values, [rows, K]."""
    channel = _floored(np.sqrt(np.mean(np.square(x), axis=0)))
    level, loud = x / channel, _loud(channel)
    row = _floored(np.sqrt(np.mean(np.square(level[:, ~loud]), axis=1)))
    value = np.abs(level[:, ~loud] / row[:, None])
    spoken = np.abs(level[:, loud]) if loud.any() else value
    return OperandSpread(
        channel=tuple(np.quantile(channel / _rms(channel), CHANNEL_SHARES).tolist()),
        row=tuple(np.quantile(row / _rms(row), ROW_SHARES).tolist()),
        value=_magnitudes(value, np.square(row)),
        loud=_magnitudes(spoken, np.ones(len(x))),
        crest=_crest(x),
    )


def _magnitudes(x: Reals, weights: Reals) -> tuple[float, ...]:
    """Return quantiles over the rms, each row counted by its power, as products and their noise count it."""
    flat, counts = x.ravel(), np.repeat(weights, x.shape[1])
    order = np.argsort(flat)
    shares = np.cumsum(counts[order])
    at = np.searchsorted(shares, np.asarray(VALUE_SHARES) * shares[-1]).clip(0, flat.size - 1)
    rms = math.sqrt(float(np.sum(counts * np.square(flat)) / shares[-1]))
    return tuple((flat[order[at]] / rms).tolist())


def _floored(scale: Reals) -> Reals:
    return np.maximum(scale, _FLOOR * max(_rms(scale), np.finfo(float).tiny))


_PLACE = tuple(one.name for one in fields(ProductPlace))
_PAIR = (*_PLACE, "meeting", "coherence")
COLUMNS = (*_PAIR, *(f"{which}_{one.name}" for which in ("a", "b") for one in fields(OperandSpread)))
"""Columns of the table; quantiles stand in one cell, separated by blanks."""
_DIGITS = 4
"""Significant digits of the table."""


def captured_row(one: CapturedProduct) -> dict[str, str]:
    """Return a row of the table."""
    row = {name: str(getattr(one, name)) for name in _PLACE}
    row |= {name: f"{getattr(one, name):.{_DIGITS}g}" for name in ("meeting", "coherence")}
    for which, spread in (("a", one.a), ("b", one.b)):
        for part in fields(OperandSpread):
            value = getattr(spread, part.name)
            numbers = value if isinstance(value, tuple) else (value,)
            row[f"{which}_{part.name}"] = " ".join(f"{number:.{_DIGITS}g}" for number in numbers)
    return row


def read_rows(path: Path, columns: Iterable[str], make: Callable[[Mapping[str, str]], _T]) -> tuple[_T, ...]:
    """Return what a table of captures holds, a row each.

    Parameters
    ----------
    path : pathlib.Path
        CSV; lines that start with ``#`` are skipped.
    columns : iterable of str
        Columns that it must have.
    make : callable
        Makes one of a row, or raises `ValueError` or `TypeError`.

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
    found = []
    for row, (at, _) in zip(reader, numbered[1:], strict=True):
        try:
            found.append(make(row))
        except (ValueError, TypeError) as error:
            msg = f"{path.name}:{at}: {error}; make the table anew with 'heliograph accuracy capture'"
            raise ParameterError(msg) from None
    return tuple(found)


def read_captured(path: Path) -> tuple[CapturedProduct, ...]:
    """Return the products of a table with the columns of `COLUMNS`, as `read_rows` does."""
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
    """Return of which product a row is."""
    numbers = {name: int(row[name]) for name in ("layer", "k", "m", "n")}
    return {"model": row["model"], "product": row["product"], "phase": Phase(row["phase"]), **numbers}


def _operand(row: Mapping[str, str], which: str) -> OperandSpread:
    """Return an operand of a row, its quantiles checked."""

    def numbers(name: str, count: int) -> tuple[float, ...]:
        found = tuple(float(cell) for cell in row[f"{which}_{name}"].split())
        if len(found) != count or not all(0.0 <= number < math.inf for number in found):
            msg = f"{which}_{name} must be {count} finite numbers from 0; got '{row[f'{which}_{name}']}'"
            raise ValueError(msg)
        return found

    return OperandSpread(
        channel=numbers("channel", len(CHANNEL_SHARES)),
        row=numbers("row", len(ROW_SHARES)),
        value=numbers("value", len(VALUE_SHARES)),
        loud=numbers("loud", len(VALUE_SHARES)),
        crest=numbers("crest", 1)[0],
    )


@functools.cache
def load_captured() -> tuple[CapturedProduct, ...]:
    """Return all captured products of the table that ships."""
    return read_captured(TABLE)


def captured(model: str = "", product: str = "", phase: Phase | None = None) -> tuple[CapturedProduct, ...]:
    """Return the captured products that are asked for, of all layers.

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
"""The table that ships."""
_SPREAD_STEP, _WIDEST = 0.01, 3.0
"""Step and end of the spreads of element scales among which a captured operand's is found; choices."""
MOST_OUTLIERS = 0.02
"""Largest share of channels that count as outliers of a captured operand; more are its spread. A choice."""


def captured_law(spread: OperandSpread, length: int, rows: int) -> OperandLaw:
    """Return the law of a captured operand: outlier channels, and the spread of its elements.

    Parameters
    ----------
    spread : OperandSpread
        What was captured.
    length, rows : int
        Elements of a row, and rows, as captured.

    Notes
    -----
    Few channels (`MOST_OUTLIERS`) that are `LOUD` times the ninth decile are outliers, in the mean of
    their squares. The spread of elements, channels included, is the one with which a row's full scale over
    the rms is as captured (`OperandSpread.crest`), since precision hangs on full scale: of Gaussian elements,
    or of evenly spread ones where even a Gaussian's is more. Of that spread as much is the channels' as makes
    the rms of theirs, outliers apart, over the median what was captured. Rows are spread as their loudest one
    says, on which the full scale of a whole tensor hangs.
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
    """Return the lognormal spread with which the loudest of so many rows is so loud, over the rms of all.

    Notes
    -----
    e^(s z) over the rms e^(s^2), z the quantile of the largest of the rows: at most e^(z^2 / 4).
    """
    place = NormalDist().inv_cdf(1.0 - 0.5 / max(rows, 2))
    root = place**2 - 4.0 * math.log(max(loudest, 1.0))
    return 0.5 * (place - math.sqrt(max(root, 0.0)))


def _spread_for(law: OperandLaw, length: int, crest: float) -> float:
    """Return the spread of element scales, in whole steps, with which a law's crest comes nearest."""

    def at(step: int) -> float:
        return _law_crest(dataclasses.replace(law, element_spread=step * _SPREAD_STEP), length)

    low, high = 0, round(_WIDEST / _SPREAD_STEP)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if at(middle) < crest else (low, middle)
    below = max(0, low - 1)
    return (below if crest**2 < at(below) * at(low) else low) * _SPREAD_STEP


def _law_crest(law: OperandLaw, length: int) -> float:
    """Return the full scale of rows over the rms of elements."""
    found = scaled_moments(law, length, None)
    return math.sqrt(found.scale_square / found.square)


def captured_statistics(found: CapturedProduct) -> Operands:
    """Return the statistics of a captured product's operands."""
    a, b = (captured_law(spread, found.k, n) for spread, n in ((found.a, found.m), (found.b, found.n)))
    return Operands(a=a, b=b, coherence=found.meeting * found.coherence, meeting=found.meeting)


@dataclass(frozen=True, kw_only=True, slots=True)
class CapturedLaw(ProductPlace):
    """Statistics of the operands of one product of a trained model."""

    operands: Operands
    """Statistics of both operands."""


_OF_OPERAND = tuple(one.name for one in fields(OperandLaw))
_OF_BOTH = ("coherence", "meeting")
LAW_COLUMNS = (*_PLACE, *_OF_BOTH, *(f"{which}_{name}" for which in ("a", "b") for name in _OF_OPERAND))
"""Columns of the table: dimensionless, as of `OperandLaw` and `Operands`."""
_LAW_DIGITS = 6
"""Significant digits of the table."""


def laws_text(products: Iterable[CapturedProduct]) -> str:
    """Return the laws of captured products as a table."""
    stream = io.StringIO()
    stream.write(
        "# Laws of the operands in operands.csv; simulator/operands/captured.py says how they are found\n"
    )
    writer = csv.DictWriter(stream, LAW_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_row(one) for one in products)
    return stream.getvalue()


def _row(one: CapturedProduct) -> dict[str, str]:
    """Return a row of the table."""
    found = captured_statistics(one)
    row = {name: str(getattr(one, name)) for name in _PLACE}
    row |= {name: f"{getattr(found, name):.{_LAW_DIGITS}g}" for name in _OF_BOTH}
    for which, law in (("a", found.a), ("b", found.b)):
        for name in _OF_OPERAND:
            value = getattr(law, name)
            row[f"{which}_{name}"] = str(value) if name == "element" else f"{value:.{_LAW_DIGITS}g}"
    return row


def read_laws(path: Path) -> tuple[CapturedLaw, ...]:
    """Return the laws of a table with the columns of `LAW_COLUMNS`, as `read_rows` does."""
    return read_rows(path, LAW_COLUMNS, _law)


def _law(row: Mapping[str, str]) -> CapturedLaw:
    """Return the laws of a row."""
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
    """Return the laws of all captured products that ship."""
    return read_laws(LAWS)
