"""ASTRA-sim's system layer: chunks wait in a queue per dimension, and ranks pass messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from experiments.validation.collective_simulator.algorithms import (
    Algorithm,
    Direct,
    HalvingDoubling,
    Message,
    Method,
    Phase,
    Ring,
)
from experiments.validation.collective_simulator.networks import Clock, Network
from experiments.validation.collective_simulator.trees import DoubleTree

MEMORY_PASSES = 3
"""Passes over memory of a reduction: two operands are read and one is written."""


@dataclass
class _Chunk:
    """A chunk on its way through its phases."""

    number: int
    phases: deque[Phase]
    phase: Phase | None = None
    algorithm: Algorithm | None = None


@dataclass(frozen=True)
class Endpoint:
    """What a rank adds to each message."""

    delay_ns: int
    """Delay of each pass over the memory bus."""
    memory_bytes_per_ns: float
    """Rate of its memory."""

    def summed_ns(self, size_bytes: int) -> int:
        """Return the time of a reduction."""
        return MEMORY_PASSES * int(size_bytes / self.memory_bytes_per_ns)


class Mail:
    """Matches what is sent with what is waited for: the n-th message of a kind with the n-th wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sent: dict[tuple[int, ...], int] = {}
        self._asked: dict[tuple[int, ...], int] = {}
        self._waits: dict[tuple[int, ...], Callable[[], None]] = {}
        self._here: set[tuple[int, ...]] = set()

    def posted(self, *key: int) -> Callable[[], None]:
        """Return what to call when a message that is now sent arrives."""
        self._sent[key] = self._sent.get(key, 0) + 1
        one = (*key, self._sent[key])

        def arrived() -> None:
            wait = self._waits.pop(one, None)
            if wait is None:
                self._here.add(one)
            else:
                wait()

        return arrived

    def wait(self, *key: int, received: Callable[[], None]) -> None:
        """Call when the next message of a kind is there, if it is already still in this nanosecond."""
        self._asked[key] = self._asked.get(key, 0) + 1
        one = (*key, self._asked[key])
        if one in self._here:
            self._here.remove(one)
            self._clock.after(0, received)
        else:
            self._waits[one] = received


@dataclass
class Rank:
    """One rank: its chunks, its queues and its memory bus."""

    number: int
    """Which."""
    sizes: Sequence[int]
    """Ranks along each dimension."""
    clock: Clock
    """Time."""
    network: Network
    """What carries messages."""
    endpoint: Endpoint
    """What it adds to each message."""
    at_once: int
    """Chunks of a dimension that are worked on at once."""
    mail: Mail | None = None
    """What matches messages; none if this rank stands for all."""
    finished_ns: int = 0
    """When its last chunk ended."""
    _queues: dict[int, list[_Chunk]] = field(default_factory=dict)
    _running: dict[int, int] = field(default_factory=dict)
    _later: dict[int, deque[Callable[[], None]]] = field(default_factory=dict)

    def add(self, number: int, phases: Sequence[Phase]) -> None:
        """Queue a chunk."""
        self.proceed(_Chunk(number, deque(phases)))

    def proceed(self, chunk: _Chunk) -> None:
        """Take a chunk from its queue to the next."""
        before = chunk.phase
        if before is not None:
            self._queues[before.dimension].remove(chunk)
        if chunk.phases:
            chunk.phase = chunk.phases.popleft()
            self._queues.setdefault(chunk.phase.dimension, []).append(chunk)
        else:
            chunk.phase = None
            self.finished_ns = self.clock.now_ns
        if before is not None:
            self._running[before.dimension] -= 1
            self._start_waiting(before.dimension)
        if chunk.phase is not None:
            self._start_waiting(chunk.phase.dimension)

    def _start_waiting(self, dimension: int) -> None:
        queue = self._queues[dimension]
        place = self._running.setdefault(dimension, 0)
        while place < len(queue) and self._running[dimension] < self.at_once:
            self._running[dimension] += 1
            self._start(queue[place])
            place += 1

    def _start(self, chunk: _Chunk) -> None:
        if chunk.phase is None:
            return
        chunk.algorithm = self._algorithm(chunk, chunk.phase)
        chunk.algorithm.start()

    def _algorithm(self, chunk: _Chunk, phase: Phase) -> Algorithm:
        port = _ChunkPort(self, chunk, phase)
        if phase.method is Method.RING:
            return Ring(phase, port)
        if phase.method is Method.DIRECT:
            return Direct(phase, port)
        stride = _stride(self.sizes, phase.dimension)
        index = self.number // stride % phase.ranks
        if phase.method is Method.HALVING_DOUBLING:
            return HalvingDoubling(phase, port, index=index)
        return DoubleTree(phase, port, index=index)

    def later(self, delay_ns: int, call: Callable[[], None]) -> None:
        """Do something later; what a rank does in one nanosecond it does together."""
        time_ns = self.clock.now_ns + delay_ns
        if time_ns not in self._later:
            self._later[time_ns] = deque()
            self.clock.after(delay_ns, self._call)
        self._later[time_ns].append(call)

    def _call(self) -> None:
        calls = self._later[self.clock.now_ns]
        while calls:
            calls.popleft()()
        del self._later[self.clock.now_ns]


def _stride(sizes: Sequence[int], dimension: int) -> int:
    stride = 1
    for size in sizes[:dimension]:
        stride *= size
    return stride


@dataclass(frozen=True)
class _ChunkPort:
    """What an algorithm sees of its rank."""

    rank: Rank
    chunk: _Chunk
    phase: Phase

    def pass_memory(self, size_bytes: int, *, summed: bool) -> None:
        rank, endpoint = self.rank, self.rank.endpoint
        if summed:
            summed_ns = endpoint.summed_ns(size_bytes)
            rank.later(endpoint.delay_ns, lambda: rank.later(summed_ns, self._moved))
        else:
            rank.later(endpoint.delay_ns, self._moved)

    def _moved(self) -> None:
        if self.chunk.algorithm is not None:
            self.chunk.algorithm.moved()

    def _received(self) -> None:
        if self.chunk.algorithm is not None:
            self.chunk.algorithm.received()

    def exchange(self, message: Message) -> None:
        if self.rank.mail is None:
            self._carry(message.to, message.size_bytes, self._received)
        else:
            self.send(message.to, message.size_bytes)
            self.receive(message.origin, message.size_bytes)

    def _carry(self, offset: int, size_bytes: int, arrived: Callable[[], None]) -> None:
        self.rank.network.send(self.rank.number, offset, self.phase.dimension, size_bytes, arrived)

    def send(self, offset: int, size_bytes: int) -> None:
        mail = self.rank.mail
        if mail is not None:
            to = (self.rank.number + offset) % self.phase.ranks
            arrived = mail.posted(self.chunk.number, self.rank.number, to, size_bytes)
            self._carry(offset, size_bytes, arrived)

    def receive(self, offset: int, size_bytes: int) -> None:
        mail = self.rank.mail
        if mail is not None:
            origin = (self.rank.number + offset) % self.phase.ranks
            mail.wait(self.chunk.number, origin, self.rank.number, size_bytes, received=self._received)

    def finish(self) -> None:
        self.rank.proceed(self.chunk)
