"""What the recipe behind a source says and its rows leave out, once for the source, with its citation."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

from experiments.validation.cells import Record

RECIPES = Path(__file__).parent / "reference" / "recipes.csv"
"""Begin of a source's name, and what its recipe says."""
YES = frozenset({"y", "yes", "true", "1"})
"""Cells that say yes, in lower case."""


@cache
def recipes() -> tuple[dict[str, str], ...]:
    """Return the table of recipes: ``source``, ``overlap_tensor`` and ``citation`` of each."""
    with RECIPES.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def overlaps_tensor(record: Record, tp: int, *, sequence_parallel: bool) -> bool:
    """Return whether a row's tensor-parallel traffic travels beside its products.

    Parameters
    ----------
    record : Record
        The row; its column ``tp_comm_overlap`` counts first, then the recipe of its source.
    tp : int
        Tensor-parallel ranks of the row.
    sequence_parallel : bool
        Whether there are gathers and scatters to cut into shards.
    """
    if tp == 1 or not sequence_parallel:
        return False
    given = record.text("tp_comm_overlap").lower()
    if given:
        return given in YES
    source = record.text("source")
    for recipe in recipes():
        # A release's number must end where the row's does: v25.02 is not v25.02.01.
        if (source + " ").startswith(recipe["source"] + " "):
            record.assume("tensor-parallel traffic overlapped, as the source's recipe has it")
            return recipe["overlap_tensor"] in YES
    return False
