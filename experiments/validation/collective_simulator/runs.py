"""A collective as ASTRA-sim's files describe it, run by that simulator's rules to the nanosecond."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from experiments.validation.collective_simulator.algorithms import Method, Phase
from experiments.validation.collective_simulator.networks import NS_PER_S, Clock, Delays, Queues, Shape, Wires
from experiments.validation.collective_simulator.ranks import Endpoint, Mail, Rank
from simulator.operators import CollectiveKind

MEMORY_GB_PER_S = 1600.0
"""Rate at which a rank's memory reduces in its example systems; decimal gigabytes."""
BYTES_PER_GB_OF_MEMORY = 1e9
"""The simulator's gigabyte of memory."""


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """Ranks along one dimension, and what they do."""

    wires: Wires
    """Links."""
    method: Method
    """How messages are passed."""
    window: int = 0
    """Messages of a direct exchange in flight; 0 for all."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One collective by one of that simulator's algorithms."""

    kind: CollectiveKind
    """What is done."""
    size_bytes: int
    """What a rank holds; of an all-gather what it contributes."""
    dimensions: tuple[Dimension, ...]
    """Dimensions, innermost first."""
    endpoint_ns: int
    """Delay at an end of each message."""
    splits: int = 1
    """Chunks that the collective is cut into."""
    at_once: int = 1
    """Chunks that a dimension works on at once."""
    queued: bool = False
    """Whether links are shared in queues (the congestion-aware backend)."""
    memory_gb_per_s: float = MEMORY_GB_PER_S
    """Rate at which a rank's memory reduces; decimal gigabytes."""

    @property
    def ranks(self) -> int:
        """Ranks of all dimensions."""
        return math.prod(one.wires.ranks for one in self.dimensions)

    def chunks(self) -> Iterator[tuple[Phase, ...]]:
        """Yield the phases of each chunk.

        Notes
        -----
        What splitting leaves over makes a further chunk, as large as the others; chunks have a byte for every
        rank at least, except of an all-gather.
        """
        size_bytes, chunk_bytes = self.size_bytes, self.size_bytes // self.splits
        if self.kind is not CollectiveKind.ALL_GATHER and chunk_bytes < self.ranks:
            chunk_bytes, size_bytes = self.ranks, self.splits * self.ranks
        for number in range(math.ceil(size_bytes / chunk_bytes)):
            yield tuple(self.phases(chunk_bytes, tree=number))

    def phases(self, chunk_bytes: int, *, tree: int = 0) -> Iterator[Phase]:
        """Yield one chunk's phases: an all-reduce scatters outwards, reduces there, and gathers back."""
        order = [index for index, one in enumerate(self.dimensions) if one.wires.ranks > 1]
        steps = [(self.kind, index, False) for index in order]
        if self.kind is CollectiveKind.ALL_GATHER:
            steps.reverse()
        elif self.kind is CollectiveKind.ALL_REDUCE:
            inner = order[:-1]
            steps = [(CollectiveKind.REDUCE_SCATTER, index, False) for index in inner]
            steps += [(CollectiveKind.ALL_REDUCE, index, False) for index in order[-1:]]
            steps += [(CollectiveKind.ALL_GATHER, index, True) for index in reversed(inner)]
        for kind, index, backwards in steps:
            one = self.dimensions[index]
            phase = Phase(
                kind=kind,
                method=one.method,
                ranks=one.wires.ranks,
                dimension=index,
                size_bytes=chunk_bytes,
                backwards=backwards,
                window=one.window,
                tree=tree,
            )
            yield phase
            chunk_bytes = phase.left_bytes

    @property
    def alike(self) -> bool:
        """Whether all ranks do the same at the same time, so that one of them tells the time.

        Rings and direct exchange look the same from every rank, halving and doubling where no two pairs share
        a link. Trees do not.
        """
        methods = {one.method for one in self.dimensions}
        if Method.DOUBLE_TREE in methods:
            return False
        on_ring = any(one.wires.shape is Shape.RING for one in self.dimensions)
        return not (self.queued and Method.HALVING_DOUBLING in methods and on_ring)

    def simulated_s(self) -> float:
        """Return the time by that simulator's rules, exact to its nanosecond.

        Notes
        -----
        The rules are those of ASTRA-sim 518bd51 and its analytical network 599a047: a gigabyte has 2^30
        bytes, times are cut to whole nanoseconds, an all-gather's size counts per rank, a rank's chunks of a
        dimension run one after another, and links of the congestion-aware backend forward whole messages.
        """
        return _simulated_ns(self) / NS_PER_S


@cache
def _simulated_ns(run: Run) -> int:
    clock = Clock()
    wires = tuple(one.wires for one in run.dimensions)
    network = Queues(clock, wires[0], alike=run.alike) if run.queued else Delays(clock, wires)
    memory_bytes_per_ns = run.memory_gb_per_s * BYTES_PER_GB_OF_MEMORY / NS_PER_S
    mail = None if run.alike else Mail(clock)
    ranks = [
        Rank(
            number=number,
            sizes=tuple(one.ranks for one in wires),
            clock=clock,
            network=network,
            endpoint=Endpoint(run.endpoint_ns, memory_bytes_per_ns),
            at_once=run.at_once,
            mail=mail,
        )
        for number in range(1 if run.alike else run.ranks)
    ]
    chunks = tuple(run.chunks())
    for rank in ranks:
        for number, phases in enumerate(chunks):
            rank.add(number, phases)
    clock.run()
    return max(rank.finished_ns for rank in ranks)
