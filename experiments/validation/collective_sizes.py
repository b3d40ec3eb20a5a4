"""Errors of collectives by the size of the message, for each published series and over all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from experiments.validation.outcomes import HIGH_QUANTILE, Outcome
from heliograph.report import ReportRow, table_text

EDGES = (0, 2**15, 2**20, 2**24, 2**30, 2**63)
"""Bounds between ranges of size in bytes: where issue, hops, protocols, chunks and ports rule in turn."""
ALL, UNFITTED = "all", "all that nothing was fitted on"
"""Names of two sums."""
RANGES = ("below 32 KiB", "to 1 MiB", "to 16 MiB", "to 1 GiB", "from 1 GiB")
"""Names of the ranges."""
FITTED = frozenset(
    {
        "Azure AI benchmarking guide, ND A100 v4",
        "Azure AI benchmarking guide, ND H100 v5",
        "Bekman, ML Engineering, all-reduce on 8 H200",
    }
)
"""Sources of which every second row served to fit a constant; nothing was fitted on the others."""


@dataclass(frozen=True, kw_only=True)
class SizeErrors:
    """Errors of one series in one range of sizes; all are fractions."""

    series: str
    """Source, ``all``, or all sources that nothing was fitted on."""
    sizes: str
    """Range."""
    rows: int
    """How many."""
    median: float
    """Median of absolute relative errors."""
    p90: float
    """Value below which nine of ten lie, by linear interpolation."""
    bias: float
    """Mean of relative errors."""


def size_errors(outcomes: Iterable[Outcome]) -> tuple[SizeErrors, ...]:
    """Return the errors of each source by size, then those of all, and of all that nothing was fitted on."""
    found: dict[str, list[tuple[float, float]]] = {}
    for one in outcomes:
        if one.relative_error is None:
            continue
        pair = (float(one.beside["size_bytes"]), one.relative_error)
        for series in (one.source, ALL, *(() if one.source in FITTED else (UNFITTED,))):
            found.setdefault(series, []).append(pair)
    ordered = sorted(found, key=(UNFITTED, ALL).__contains__)
    return tuple(one for series in ordered for one in _by_size(series, found[series]))


def _by_size(series: str, pairs: Sequence[tuple[float, float]]) -> Iterable[SizeErrors]:
    for name, (least, most) in zip(RANGES, pairwise(EDGES), strict=True):
        errors = np.array([error for size, error in pairs if least <= size < most])
        if errors.size:
            yield SizeErrors(
                series=series,
                sizes=name,
                rows=errors.size,
                median=float(np.median(np.abs(errors))),
                p90=float(np.quantile(np.abs(errors), HIGH_QUANTILE)),
                bias=float(errors.mean()),
            )


def sizes_record(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return the errors by size as plain data."""
    return [asdict(one) for one in size_errors(outcomes)]


def sizes_text(outcomes: Iterable[Outcome]) -> str:
    """Return them as a table: a line for each source, median and ninth decile for each range."""
    cells: dict[str, dict[str, str]] = {}
    for one in size_errors(outcomes):
        cells.setdefault(one.series, {})[one.sizes] = f"{one.median:.0%} {one.p90:.0%}"
    rows = [
        ReportRow(label=series, values=tuple(row.get(name, "-") for name in RANGES))
        for series, row in cells.items()
    ]
    title = "By size of the message: median error and ninth decile"
    return table_text(title, RANGES, rows, width=130)
