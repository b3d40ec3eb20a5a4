"""What the links of a fabric lead from and to, in words, so that a picture can name its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from heliograph.failed_parts import Wired
from heliograph.failures import Ported
from heliograph.interfaces import Fabric
from heliograph.wiring import Wiring

CARD, NODE = 0, -1
"""Levels of accelerators and of the switches inside nodes; other switches count from 1."""
LEVELS = ("edge switches", "inner switches", "core switches")
"""Switches by the links from them to the nearest accelerator: leaves, spines and cores of a Clos network."""


@runtime_checkable
class Lights(Protocol):
    """A fabric whose links have ends that circuits decide."""

    def wired(self, circuits: Any) -> Wiring:  # noqa: ANN401 - each fabric has circuits of its own
        """Return all links with their present ends."""
        ...


def link_kinds(fabric: Fabric) -> np.ndarray:
    """Return a name for the kind of each link, shape [L]: ``circuits``, ``between accelerators`` ...

    Parameters
    ----------
    fabric : Fabric
        The fabric, before any circuit has moved.

    Notes
    -----
    Levels are those of a search in breadth from the accelerators. A switch that only the accelerators of one
    node share is that node's. Links from accelerator to accelerator or node to node are ``circuits``, lit
    or not, where they begin and end on ports (`heliograph.failures.Ported`).
    """
    initial = fabric.initial(())
    count = fabric.graph(initial).capacity_bytes_per_s.size
    wiring = fabric.wiring if isinstance(fabric, Wired) else None
    if wiring is None and isinstance(fabric, Lights):
        wiring = fabric.wired(initial)
    if wiring is None or wiring.links != count:
        return np.full(count, "links", dtype=object)
    levels = _levels(wiring, fabric.endpoints, fabric.node_size)
    moving = isinstance(fabric, Ported)
    ends = zip(levels[wiring.tails].tolist(), levels[wiring.heads].tolist(), strict=True)
    return np.array([_name(tail, head, moving=moving) for tail, head in ends], dtype=object)


def _levels(wiring: Wiring, endpoints: int, size: int) -> np.ndarray:
    """Return the level of each vertex, shape [V]."""
    levels = np.full(wiring.vertices, len(LEVELS), dtype=np.int64)
    levels[:endpoints] = CARD
    ends = np.concatenate([wiring.tails, wiring.heads]), np.concatenate([wiring.heads, wiring.tails])
    for level in range(len(LEVELS)):
        near = ends[1][(levels[ends[0]] == level) & (levels[ends[1]] > level)]
        levels[near] = level + 1
    for vertex in range(endpoints, min(wiring.vertices, endpoints + -(-endpoints // size)) * (size > 1)):
        cards = ends[1][(ends[0] == vertex) & (ends[1] < endpoints)]
        if cards.size and (cards // size == vertex - endpoints).all():
            levels[vertex] = NODE
    return levels


def _name(tail: int, head: int, *, moving: bool) -> str:
    """Return what a link between two levels is called."""
    if tail == head and tail in (CARD, NODE):
        between = "accelerators" if tail == CARD else "nodes"
        return "circuits" if moving else f"between {between}"
    if tail == head:
        return f"between {LEVELS[tail - 1]}"
    return f"{_plural(tail)} to {_plural(head)}"


def _plural(level: int) -> str:
    return {CARD: "accelerators", NODE: "node switches"}.get(level) or LEVELS[level - 1]


def rows_by_kind(kinds: Sequence[str], most: int) -> list[np.ndarray]:
    """Return which links share a row of a picture: of one kind only, in the order in which kinds appear.

    Parameters
    ----------
    kinds : sequence of str
        Kind of each link that is shown, in the order of their numbers, shape [n].
    most : int
        Rows there may be, if kinds are fewer; each kind has one at least.
    """
    names = np.array(kinds, dtype=object)
    rows: list[np.ndarray] = []
    for kind in dict.fromkeys(kinds):
        mine = np.flatnonzero(names == kind)
        share = max(1, int(most * mine.size / names.size))
        rows += np.array_split(mine, min(share, mine.size))
    return rows
