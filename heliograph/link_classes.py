"""Links that are alike to all traffic, merged, so that a solve costs the same at any size.

Two links are alike when they have the same capacity and every bundle of flows loads them equally; they are
one constraint. A new bundle splits the classes it crosses, and nothing else has to be looked at again.
"""

from __future__ import annotations

import numpy as np


class LinkClasses:
    """Partition of the links of a graph, refined by every bundle that is added.

    Parameters
    ----------
    capacity : numpy.ndarray
        Capacity of each link, shape [L].
    """

    def __init__(self, capacity: np.ndarray) -> None:
        values, labels, counts = np.unique(capacity, return_inverse=True, return_counts=True)
        self._label = labels.astype(np.int64)
        self._count: list[int] = counts.tolist()
        self._capacity: list[float] = values.tolist()
        self._members: list[set[int]] = [set() for _ in values]
        self._usage: dict[int, dict[int, float]] = {}

    def __contains__(self, index: int) -> bool:
        return index in self._usage

    def add(self, index: int, links: np.ndarray, usage: np.ndarray) -> None:
        """Add a bundle.

        Parameters
        ----------
        index : int
            Name of the bundle.
        links : numpy.ndarray
            Distinct links that it crosses, shape [U].
        usage : numpy.ndarray
            Flows of the bundle on each, shape [U].
        """
        mine: dict[int, float] = {}
        self._usage[index] = mine
        if not links.size:
            return
        old = self._label[links]
        pairs = np.column_stack([old.astype(float), usage])
        kinds, which, counts = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
        which = which.ravel()
        for kind, ((label, load), count) in enumerate(zip(kinds.tolist(), counts.tolist(), strict=True)):
            target = int(label)
            if count < self._count[target]:
                target = self._split(target, count)
                self._label[links[which == kind]] = target
            mine[target] = load
            self._members[target].add(index)

    def _split(self, label: int, count: int) -> int:
        """Take `count` links out of a class into a new one, which all its bundles load as before."""
        new = len(self._count)
        self._count[label] -= count
        self._count.append(count)
        self._capacity.append(self._capacity[label])
        self._members.append(set(self._members[label]))
        for index in self._members[label]:
            self._usage[index][new] = self._usage[index][label]
        return new

    def constraints(self, indices: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return owner, class and usage of every incidence of some bundles, and the capacity of each class.

        Owners count from 0 in the order of `indices`; shapes [I], [I], [I] and [classes].
        """
        loads = [self._usage[index] for index in indices]
        owner = np.repeat(np.arange(len(indices)), [len(load) for load in loads])
        kind = np.array([label for load in loads for label in load], dtype=np.int64)
        usage = np.array([used for load in loads for used in load.values()])
        return owner, kind, usage, np.array(self._capacity)
