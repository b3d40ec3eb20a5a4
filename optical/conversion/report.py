"""What a conversion does to a model, as a record and as a table of text."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

_NUMBER = re.compile(r"(?:^|(?<=\.))\d+(?=\.|$)")
_HEADS = ("layer", "module", "product", "runs on", "why", "products", "weights", "MACs", "dtype")
_TO_THE_RIGHT = {"products", "weights", "MACs"}
_UNKNOWN = "?"


class Place(StrEnum):
    """What runs a product."""

    CORE = "core"
    """The photonic core."""
    ELECTRONIC = "electronic"
    """The digital electronics around it."""
    ESCAPED = "ESCAPED"
    """Electronics, without being told to: a fault of the conversion."""


@dataclass(frozen=True, kw_only=True)
class ReportRow:
    """Products of one kind in one layer."""

    layer: str
    """Name of the module."""
    module: str
    """Its class."""
    product: str
    """What the product does there (`ProductKind`), or the operator of torch."""
    place: Place
    """What runs it."""
    reason: str
    """Why it does not run as the core's specification says; empty if it does."""
    products: int | None
    """Products in one forward pass, or None where no model was run."""
    weights: int
    """Parameters that are multiplied; each is counted once, in the row that uses it first."""
    macs: int | None
    """Multiply-accumulates of one forward pass, or None where unknown."""
    dtype: str
    """Type of the operands."""


@dataclass(frozen=True, kw_only=True)
class ConversionReport:
    """What a conversion does to a model; `str` of it is a table."""

    model: str
    """Class of the model."""
    mode: str
    """Where errors enter."""
    rows: tuple[ReportRow, ...]
    """Layers in the order in which they first run, or stand in the model."""
    parameters: int
    """All parameters, those of look-ups, norms and biases, too."""
    measured: bool
    """Whether the model was run."""

    def weights(self, place: Place) -> int:
        """Return the parameters whose products run at a place."""
        return sum(row.weights for row in self.rows if row.place is place)

    def macs(self, place: Place) -> int:
        """Return the multiply-accumulates of one forward pass at a place, as far as they are known."""
        return sum(row.macs or 0 for row in self.rows if row.place is place)

    def __str__(self) -> str:
        """Return the table; layers that differ in a number alone share a line, with the number as ``*``."""
        lines = [self._title(), "", *_table([_HEADS, *map(_cells, _merged(self.rows))]), ""]
        lines += self._totals()
        return "\n".join(lines)

    def _title(self) -> str:
        how = "one forward pass" if self.measured else "not run: products inside layers may differ"
        return f"{self.model}, mode {self.mode}; {how}"

    def _totals(self) -> list[str]:
        products = self.weights(Place.CORE), sum(row.weights for row in self.rows)
        lines = [
            f"parameters: {self.parameters:,}; multiplied on the core {products[0]:,}, "
            f"electronically {products[1] - products[0]:,}, "
            f"in no product (look-ups, norms, biases) {self.parameters - products[1]:,}"
        ]
        if self.measured:
            core, electronic, escaped = map(self.macs, Place)
            whole = core + electronic + escaped
            share = f" ({100 * core / whole:.2f} % on the core)" if whole else ""
            lines.append(f"multiply-accumulates: {whole:,}{share}")
            unknown = sorted({row.product for row in self.rows if row.macs is None})
            lines += [f"not counted: {', '.join(unknown)}"] if unknown else []
        return lines


def _merged(rows: Sequence[ReportRow]) -> list[ReportRow]:
    """Return the rows with those added up whose layers differ in a number alone."""
    groups: dict[tuple[str, ...], list[ReportRow]] = {}
    for row in rows:
        key = (_NUMBER.sub("*", row.layer), row.module, row.product, row.place, row.reason, row.dtype)
        groups.setdefault(key, []).append(row)
    return [_sum(key[0], group) for key, group in groups.items()]


def _sum(layer: str, rows: Sequence[ReportRow]) -> ReportRow:
    """Return one row for several, under a common name."""
    first = rows[0]
    counts = [row.products for row in rows if row.products is not None]
    macs = [row.macs for row in rows if row.macs is not None]
    return dataclasses.replace(
        first,
        layer=layer if len(rows) > 1 else first.layer,
        products=sum(counts) if counts else None,
        weights=sum(row.weights for row in rows),
        macs=sum(macs) if len(macs) == len(rows) else None,
    )


def _cells(row: ReportRow) -> tuple[str, ...]:
    counts = ["" if n is None else f"{n:,}" for n in (row.products, row.weights or None)]
    macs = f"{row.macs:,}" if row.macs is not None else _UNKNOWN if row.products is not None else ""
    return (
        row.layer or "(the model)",
        row.module,
        row.product,
        row.place,
        row.reason,
        *counts,
        macs,
        row.dtype,
    )


def _table(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of even columns, numbers to the right; a column with nothing in it is left out."""
    columns = [column for column in zip(*lines, strict=True) if any(column[1:])]
    padded = []
    for head, *cells in columns:
        width = max(map(len, (head, *cells)))
        right = head in _TO_THE_RIGHT
        padded.append([cell.rjust(width) if right else cell.ljust(width) for cell in (head, *cells)])
    return ["  ".join(cells).rstrip() for cells in zip(*padded, strict=True)]
