"""Clock and networks of ASTRA-sim's analytical backends: whole nanoseconds, gigabytes of 2^30 bytes."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

NS_PER_S = 10**9
"""The simulator counts whole nanoseconds."""
BYTES_PER_GB = 2**30
"""Its gigabyte, of the network only."""

Call = Callable[[], None]


class Shape(Enum):
    """How the ranks of a dimension are wired."""

    RING = "Ring"
    SWITCH = "Switch"
    FULLY_CONNECTED = "FullyConnected"


class Clock:
    """Calls at whole nanoseconds, those of one nanosecond in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._calls: dict[int, deque[Call]] = {}
        self._times: list[int] = []

    def after(self, delay_ns: int, call: Call) -> None:
        """Do something some nanoseconds from now."""
        time_ns = self.now_ns + delay_ns
        if time_ns not in self._calls:
            self._calls[time_ns] = deque()
            heapq.heappush(self._times, time_ns)
        self._calls[time_ns].append(call)

    def run(self) -> None:
        """Call until nothing is left."""
        while self._times:
            self.now_ns = self._times[0]
            calls = self._calls[self.now_ns]
            while calls:
                calls.popleft()()
            heapq.heappop(self._times)
            del self._calls[self.now_ns]


@dataclass(frozen=True, kw_only=True)
class Wires:
    """Links of one dimension."""

    shape: Shape
    """How its ranks are wired."""
    ranks: int
    """Ranks along it."""
    gigabytes_per_s: float
    """Rate of a link as written, in the simulator's gigabytes."""
    latency_ns: float
    """Latency of a link as written."""

    @property
    def bytes_per_ns(self) -> float:
        """Rate of a link as the simulator takes it."""
        return self.gigabytes_per_s * BYTES_PER_GB / NS_PER_S

    def hops(self, offset: int) -> int:
        """Return the links to the rank that many places ahead."""
        if self.shape is Shape.SWITCH:
            return 2
        if self.shape is Shape.FULLY_CONNECTED:
            return 1
        ahead = offset % self.ranks
        return min(ahead, self.ranks - ahead)


class Network(Protocol):
    """What carries messages."""

    def send(self, source: int, offset: int, dimension: int, size_bytes: int, arrived: Call) -> None:
        """Carry a message to the rank `offset` places ahead along a dimension, and call when it is there."""


class Delays:
    """The congestion-unaware backend: a message meets no other."""

    def __init__(self, clock: Clock, dimensions: tuple[Wires, ...]) -> None:
        self._clock = clock
        self._dimensions = dimensions

    def send(self, source: int, offset: int, dimension: int, size_bytes: int, arrived: Call) -> None:
        """Carry a message in the latency of all links and the time of one."""
        del source
        wires = self._dimensions[dimension]
        link_ns = wires.hops(offset) * wires.latency_ns
        self._clock.after(int(link_ns + size_bytes / wires.bytes_per_ns), arrived)


class _Link:
    """A link that forwards whole messages one after another."""

    def __init__(self, clock: Clock, wires: Wires) -> None:
        self._clock = clock
        self._wires = wires
        self._waiting: deque[tuple[int, Call]] = deque()
        self._busy = False

    def send(self, size_bytes: int, arrived: Call) -> None:
        if self._busy:
            self._waiting.append((size_bytes, arrived))
        else:
            self._start(size_bytes, arrived)

    def _start(self, size_bytes: int, arrived: Call) -> None:
        self._busy = True
        serial_ns = size_bytes / self._wires.bytes_per_ns
        self._clock.after(int(self._wires.latency_ns + serial_ns), arrived)
        self._clock.after(int(serial_ns), self._free)

    def _free(self) -> None:
        self._busy = False
        if self._waiting:
            self._start(*self._waiting.popleft())


class Queues:
    """The congestion-aware backend: every link stores and forwards whole messages, first come first served.

    Parameters
    ----------
    clock : Clock
        Time.
    wires : Wires
        The only dimension: that backend knows no more.
    alike : bool
        Whether all ranks do the same at the same time, so that one stands for all and links of the same
        place relative to their rank are one.
    """

    def __init__(self, clock: Clock, wires: Wires, *, alike: bool) -> None:
        self._clock = clock
        self._wires = wires
        self._alike = alike
        self._links: dict[tuple[int, int], _Link] = {}

    def send(self, source: int, offset: int, dimension: int, size_bytes: int, arrived: Call) -> None:
        """Carry a message link by link, the shorter way around a ring and clockwise if both are as long."""
        del dimension
        self._hop(self._route(source, offset), size_bytes, arrived)

    def _hop(self, route: Iterator[tuple[int, int]], size_bytes: int, arrived: Call) -> None:
        place = next(route, None)
        if place is None:
            arrived()
            return
        if place not in self._links:
            self._links[place] = _Link(self._clock, self._wires)
        self._links[place].send(size_bytes, lambda: self._hop(route, size_bytes, arrived))

    def _route(self, source: int, offset: int) -> Iterator[tuple[int, int]]:
        """Return the links on the way: a rank and which of its links."""
        ranks = self._wires.ranks
        at = 0 if self._alike else source
        if self._wires.shape is Shape.FULLY_CONNECTED:
            yield at, offset % ranks
        elif self._wires.shape is Shape.SWITCH:
            yield at, 1
            yield (at if self._alike else (source + offset) % ranks), -1
        else:
            ahead = offset % ranks
            step = 1 if ahead <= ranks - ahead else -1
            for place in range(self._wires.hops(offset)):
                yield (at if self._alike else (source + step * place) % ranks), step
