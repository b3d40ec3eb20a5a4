"""Fibres that somebody has to buy and pull."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from heliograph.checks import check_range
from heliograph.tables import Table, read_table


@dataclass(frozen=True, kw_only=True)
class Fibre:
    """A fibre with connectors at both ends."""

    name: str = "fibre"
    """Name shown in tables."""
    price_usd: float
    """Price, laid."""

    def __post_init__(self) -> None:
        check_range(self, "price_usd")


@cache
def fibre_table() -> Table:
    """Return the table of fibres."""
    return read_table(Path(__file__).parent / "parameters" / "fibres.csv")


def load_fibre(name: str) -> Fibre:
    """Return a fibre from the table, e.g. ``"single-mode"``."""
    return fibre_table().build(Fibre, name)
