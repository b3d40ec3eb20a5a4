"""Laws of captured operands, from which precision on the products of trained transformers is predicted.

Finding the law of an operand takes milliseconds, and there are hundreds: the table ``data/laws.csv`` holds
those of all products in ``data/operands.csv``. `heliograph accuracy capture --table` writes both.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simulator.operands.captured import CHANNEL_SHARES, LOUD, TABLE, CapturedProduct, OperandSpread, read_rows
from simulator.operands.scaled import scaled_moments
from simulator.operands.statistics import Element, OperandLaw, Operands
from simulator.operators import Phase

LAWS = TABLE.with_name("laws.csv")
"""The table that ships."""
_FLOOR = 1e-6
"""Least scale of a channel, relative."""
_SPREAD_STEP, _WIDEST = 0.05, 3.0
"""Step and end of the spreads of element scales among which a captured operand's is found; choices."""
MOST_OUTLIERS = 0.02
"""Largest share of channels that count as outliers of a captured operand; more are its spread. A choice."""


def captured_law(spread: OperandSpread, length: int) -> OperandLaw:
    """Return the law of a captured operand: outlier channels, and the spread of its elements.

    Parameters
    ----------
    spread : OperandSpread
        What was captured.
    length : int
        Elements of a row as captured.

    Notes
    -----
    Few channels (`MOST_OUTLIERS`) that are `LOUD` times the ninth decile are outliers, in the mean of
    their squares. The spread of elements, channels included, is the one with which a row's full scale over
    the rms is as captured (`OperandSpread.crest`), since precision hangs on full scale; evenly spread
    elements where even a Gaussian's is more. Of that spread as much is the channels' as makes the rms of
    theirs, outliers apart, over the median what was captured.
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
    low, high = 0, round(_WIDEST / _SPREAD_STEP)
    while low < high:
        middle = (low + high) // 2
        if _crest(dataclasses.replace(law, element_spread=middle * _SPREAD_STEP), length) < spread.crest:
            low = middle + 1
        else:
            high = middle
    even = dataclasses.replace(law, element=Element.UNIFORM)
    if low == 0 and spread.crest < math.sqrt(_crest(law, length) * _crest(even, length)):
        return even
    channels = min(channels, low * _SPREAD_STEP)
    single = math.sqrt((low * _SPREAD_STEP) ** 2 - channels**2)
    return dataclasses.replace(law, element_spread=single, channel_spread=channels)


def _crest(law: OperandLaw, length: int) -> float:
    """Return the full scale of rows over the rms of elements."""
    found = scaled_moments(law, length, None)
    return math.sqrt(found.scale_square / found.square)


def captured_statistics(found: CapturedProduct) -> Operands:
    """Return the statistics of a captured product's operands."""
    a, b = (captured_law(spread, found.k) for spread in (found.a, found.b))
    return Operands(a=a, b=b, coherence=found.meeting * found.coherence, meeting=found.meeting)


@dataclass(frozen=True, kw_only=True, slots=True)
class CapturedLaw:
    """Statistics of the operands of one product of a trained model."""

    model: str
    """Model that they are of."""
    layer: int
    """Number of the block, from 0."""
    product: str
    """Product of the block, as of `CapturedProduct`."""
    phase: Phase
    """Forward product, or one of the gradients."""
    k: int
    """Products of a sum, as captured."""
    m: int
    """Rows of A, as captured."""
    n: int
    """Columns of B, as captured."""
    operands: Operands
    """Statistics of both operands."""


_PLACE = ("model", "layer", "product", "phase", "k", "m", "n")
_OF_OPERAND = ("element", "element_spread", "channel_spread", "outlier_share", "outlier_size")
_OF_BOTH = ("coherence", "meeting")
COLUMNS = (*_PLACE, *_OF_BOTH, *(f"{which}_{name}" for which in ("a", "b") for name in _OF_OPERAND))
"""Columns of the table: dimensionless, as of `OperandLaw` and `Operands`."""
_DIGITS = 6
"""Significant digits of the table."""


def laws_text(products: Iterable[CapturedProduct]) -> str:
    """Return the laws of captured products as a table."""
    stream = io.StringIO()
    stream.write(
        "# Laws of the operands in operands.csv; simulator/operands/laws.py says how they are found\n"
    )
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_row(one) for one in products)
    return stream.getvalue()


def _row(one: CapturedProduct) -> dict[str, str]:
    """Return a row of the table."""
    found = captured_statistics(one)
    row = {name: str(getattr(one, name)) for name in _PLACE}
    row |= {name: f"{getattr(found, name):.{_DIGITS}g}" for name in _OF_BOTH}
    for which, law in (("a", found.a), ("b", found.b)):
        for name in _OF_OPERAND:
            value = getattr(law, name)
            row[f"{which}_{name}"] = str(value) if name == "element" else f"{value:.{_DIGITS}g}"
    return row


def read_laws(path: Path) -> tuple[CapturedLaw, ...]:
    """Return the laws of a table with the columns of `COLUMNS`, as `read_rows` does."""
    return read_rows(path, COLUMNS, _law)


def _law(row: Mapping[str, str]) -> CapturedLaw:
    a, b = (
        OperandLaw(
            element=Element(row[f"{which}_element"]),
            **{name: float(row[f"{which}_{name}"]) for name in _OF_OPERAND[1:]},
        )
        for which in ("a", "b")
    )
    return CapturedLaw(
        model=row["model"],
        product=row["product"],
        phase=Phase(row["phase"]),
        operands=Operands(a=a, b=b, coherence=float(row["coherence"])),
        **{name: int(row[name]) for name in ("layer", "k", "m", "n")},
    )


@functools.cache
def load_laws() -> tuple[CapturedLaw, ...]:
    """Return the laws of all captured products that ship."""
    return read_laws(LAWS)
