"""ASTRA-sim's double binary tree: odd chunks up and down one tree, even chunks another."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.validation.collective_simulator.algorithms import Phase, Port


@dataclass(frozen=True)
class Node:
    """Neighbours of a rank in a tree; of a leaf no children, of the root no parent."""

    parent: int | None
    """Rank above."""
    children: tuple[int, ...]
    """Ranks below, left first."""


def node_of(rank: int, ranks: int, *, tree: int) -> Node:
    """Return a rank's neighbours in an in-order binary tree below a root of one child.

    Parameters
    ----------
    rank, ranks : int
        Which of how many, a power of two.
    tree : int
        Of even trees the last rank is the root, of odd ones the first.
    """
    root, first = (ranks - 1, 0) if tree % 2 == 0 else (0, 1)
    top = first + ranks // 2 - 1
    if rank == root:
        return Node(None, (top,) if ranks > 1 else ())
    at, reach, parent = top, ranks // 4, root
    while at != rank:
        parent, at, reach = at, at + (reach if rank > at else -reach), reach // 2
    return Node(parent, (at - reach, at + reach) if reach else ())


class DoubleTree:
    """Whole chunks are summed on the way up, and copied on the way down."""

    def __init__(self, phase: Phase, port: Port, *, index: int) -> None:
        self._port = port
        self._bytes = phase.size_bytes
        node = node_of(index, phase.ranks, tree=phase.tree)
        self._up = None if node.parent is None else node.parent - index
        self._down = tuple(child - index for child in node.children)
        self._missing = len(self._down)
        self._unsummed = len(self._down)
        self._falls = False

    def start(self) -> None:
        """Wait for the children, or begin at a leaf."""
        for child in self._down:
            self._port.receive(child, self._bytes)
        if not self._down:
            self._port.pass_memory(self._bytes, summed=False)

    def received(self) -> None:
        """Sum what came from below, or take what came from above."""
        if self._missing:
            self._missing -= 1
            self._port.pass_memory(self._bytes, summed=True)
        else:
            self._falls = True
            self._port.pass_memory(self._bytes, summed=bool(self._down))

    def moved(self) -> None:
        """Pass the sum up, or the result down."""
        if self._unsummed > 1:
            self._unsummed -= 1
        elif self._up is None or self._falls:
            for child in self._down:
                self._port.send(child, self._bytes)
            self._port.finish()
        else:
            self._port.send(self._up, self._bytes)
            self._port.receive(self._up, self._bytes)
