"""ASTRA-sim's analytical backends, repeated to the nanosecond: clock, networks, ranks, collectives.

A collective is cut into chunks. Each chunk passes through phases, one collective along one dimension each,
and waits for its turn in a queue of every dimension on every rank (`Rank`). In a phase an `Algorithm` on each
rank decides which messages go when. It asks its port to pass a message over the memory bus, is told when that
is done (`moved`), sends, and is told when a message has come (`received`). A `Network` carries messages,
either as if each were alone (`Delays`) or in queues at every link (`Queues`). Everything happens in calls at
whole nanoseconds of one `Clock`.

Quirks that are repeated: times are cut to whole nanoseconds, and a gigabyte is 2^30 bytes in the network but
1e9 bytes in memory. Where all ranks do the same at the same time, one rank stands for all (`Run.alike`).

References
----------
ASTRA-sim at commit 518bd51, its analytical network at 599a047.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from functools import cache
from typing import Protocol

from simulator.operators import CollectiveKind


class Method(Enum):
    """Collective algorithm along a dimension, by its name in ASTRA-sim's files."""

    RING = "ring"
    DIRECT = "direct"
    HALVING_DOUBLING = "halvingDoubling"
    DOUBLE_TREE = "doubleBinaryTree"


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One collective of one chunk along one dimension."""

    kind: CollectiveKind
    """Collective."""
    method: Method
    """Algorithm."""
    ranks: int
    """Number of ranks along the dimension."""
    dimension: int
    """Number of the dimension."""
    size_bytes: int
    """Bytes that a rank holds before the phase; of an all-gather those that it contributes."""
    backwards: bool = False
    """Whether the ring is passed in the other direction."""
    window: int = 0
    """Most messages of a direct exchange in flight; 0 for no limit."""
    tree: int = 0
    """Number of the tree; even and odd ones are different."""

    @property
    def left_bytes(self) -> int:
        """Bytes that a rank holds after the phase."""
        if self.method is Method.DOUBLE_TREE:
            return self.size_bytes
        if self.kind is CollectiveKind.ALL_GATHER:
            return self.size_bytes * self.ranks
        if self.kind is CollectiveKind.REDUCE_SCATTER:
            return self.size_bytes // self.ranks
        return self.size_bytes


@dataclass(frozen=True)
class Message:
    """A message that is sent, paired with the one that is received at the same time."""

    to: int
    """Receiver, in places ahead of the rank."""
    origin: int
    """Sender of the message that is received, in places ahead of the rank."""
    size_bytes: int
    """Bytes of either message."""


class Exchanging(Protocol):
    """Port of a rank for algorithms that send and receive messages in pairs."""

    def pass_memory(self, size_bytes: int, *, summed: bool) -> None:
        """Move a message over the memory bus, sum it with own data if asked; then call `Algorithm.moved`."""

    def exchange(self, message: Message) -> None:
        """Send a message and wait for its counterpart; then call `Algorithm.received`."""

    def finish(self) -> None:
        """End the phase."""


class Port(Exchanging, Protocol):
    """Port of a rank for algorithms that send and receive separately, too."""

    def send(self, offset: int, size_bytes: int) -> None:
        """Send a message."""

    def receive(self, offset: int, size_bytes: int) -> None:
        """Wait for a message; then call `Algorithm.received`."""


class Algorithm(Protocol):
    """One rank's part in one phase of a collective."""

    def start(self) -> None:
        """Begin the phase."""

    def moved(self) -> None:
        """Continue after a message has passed the memory bus."""

    def received(self) -> None:
        """Continue after a message has been received."""


class _Exchange:
    """Algorithm in which every received message triggers the next one; subclasses choose partners and sizes.

    A message is first prepared: it passes the memory bus and waits. It is sent when it has passed. `width`
    messages are prepared at the start, and one more for each message received, so that `width` are always
    under way. The phase ends when all are sent and `width` more have passed the bus, which are the last
    received.

    Messages are prepared in rounds: `width` that carry the rank's own data, then `later` that forward what
    was received. What is forwarded is summed with own data in a reduce-scatter, and in the odd rounds of an
    all-reduce, which first reduces and scatters and then gathers.

    Parameters
    ----------
    phase : Phase
        The phase.
    port : Exchanging
        Port of the rank.
    messages : int
        Number of messages that the rank sends.
    width, later : int
        Messages of a round that carry own data, and that forward received data.
    """

    def __init__(self, phase: Phase, port: Exchanging, *, messages: int, width: int, later: int) -> None:
        self._phase = phase
        self._port = port
        self._unsent = messages
        self._width = width
        self._later = later
        self._passed = 0
        """Messages that have passed the bus and are not sent yet."""
        self._round = 0
        self._own_in_round = self._forwarded_in_round = 0
        """Messages of either kind that are still to be prepared in this round."""
        self._prepared: deque[Message] = deque()
        self._received = 0

    def start(self) -> None:
        for _ in range(self._width):
            self._prepare()

    def received(self) -> None:
        self._received += 1
        self._prepare()

    def moved(self) -> None:
        self._passed += 1
        self._try_send()
        self._try_finish()

    def _message(self) -> Message:
        """Return the message to the present partner."""
        raise NotImplementedError

    def _advance(self) -> None:
        """Turn to the next partner."""

    def _prepare(self) -> None:
        if not self._own_in_round and not self._forwarded_in_round:
            self._own_in_round, self._forwarded_in_round = self._width, self._later
            self._round += 1
        summed = False
        if self._own_in_round:
            self._own_in_round -= 1
        else:
            self._forwarded_in_round -= 1
            kind = self._phase.kind
            summed = kind is CollectiveKind.REDUCE_SCATTER or (
                kind is CollectiveKind.ALL_REDUCE and self._round % 2 == 1
            )
        message = self._message()
        self._prepared.append(message)
        self._port.pass_memory(message.size_bytes, summed=summed)
        self._advance()

    def _try_send(self) -> None:
        if self._prepared and self._unsent and self._passed:
            message = self._prepared.popleft()
            self._unsent -= 1
            self._passed -= 1
            self._port.exchange(message)

    def _try_finish(self) -> None:
        if not self._unsent and self._passed == self._width:
            self._port.finish()


class Ring(_Exchange):
    """Each rank passes to the next; an all-to-all passes every part around in one direction."""

    def __init__(self, phase: Phase, port: Exchanging) -> None:
        others = phase.ranks - 1
        messages = {
            CollectiveKind.ALL_REDUCE: 2 * others,
            CollectiveKind.ALL_TO_ALL: others * phase.ranks // 2,
        }.get(phase.kind, others)
        super().__init__(phase, port, messages=messages, width=1, later=others)
        step = -1 if phase.backwards else 1
        self._to_next = Message(step, -step, _part_bytes(phase))

    def _message(self) -> Message:
        return self._to_next


class Direct(_Exchange):
    """Each rank sends its parts to all others at once, or to `Phase.window` of them at a time."""

    def __init__(self, phase: Phase, port: Port) -> None:
        others = phase.ranks - 1
        width = min(phase.window or others, others)
        messages = 2 * others if phase.kind is CollectiveKind.ALL_REDUCE else others
        super().__init__(phase, port, messages=messages, width=width, later=width)
        self._others = others
        self._step = -1 if phase.backwards else 1
        self._partner = 0
        self._bytes = _part_bytes(phase)

    def _message(self) -> Message:
        offset = self._step * (self._partner + 1)
        return Message(offset, -offset, self._bytes)

    def _advance(self) -> None:
        self._partner = (self._partner + 1) % self._others

    def moved(self) -> None:
        """Continue; the second half of an all-reduce sends no sum before all of its parts are received."""
        second = self._phase.kind is CollectiveKind.ALL_REDUCE and self._unsent <= self._others
        if not second:
            super().moved()
            return
        self._passed += 1
        if self._received < self._others:
            return
        for _ in range(self._width):
            self._try_send()
        self._try_finish()


class HalvingDoubling(_Exchange):
    """Pairs exchange at distances 1, 2, 4 and so on, halving the part each time; to gather, the other way."""

    def __init__(self, phase: Phase, port: Port, *, index: int) -> None:
        levels = phase.ranks.bit_length() - 1
        twice = phase.kind is CollectiveKind.ALL_REDUCE
        super().__init__(phase, port, messages=levels * (2 if twice else 1), width=1, later=levels - 1)
        self._index = index
        """Place of the rank along the dimension."""
        self._growing = phase.kind is not CollectiveKind.ALL_GATHER
        self._distance = 1 if self._growing else phase.ranks // 2
        self._bytes = phase.size_bytes // 2 if self._growing else phase.size_bytes

    def _message(self) -> Message:
        ahead = not self._distance or (self._index // self._distance) % 2 == 0
        offset = self._distance if ahead else -self._distance
        return Message(offset, offset, self._bytes)

    def _advance(self) -> None:
        self._next_distance()
        if self._distance == self._phase.ranks and self._phase.kind is CollectiveKind.ALL_REDUCE:
            self._growing = False
            self._next_distance()

    def _next_distance(self) -> None:
        if self._growing:
            self._distance, self._bytes = self._distance * 2, self._bytes // 2
        else:
            self._distance, self._bytes = self._distance // 2, self._bytes * 2


def _part_bytes(phase: Phase) -> int:
    """Return the bytes of one rank's part."""
    return phase.size_bytes if phase.kind is CollectiveKind.ALL_GATHER else phase.size_bytes // phase.ranks


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
        Number of the rank, and of all ranks, a power of two.
    tree : int
        Number of the tree: the root of even ones is the last rank, that of odd ones the first.
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
    """All-reduce of whole chunks over a binary tree: they are summed upwards and the result copied downwards.

    `received` is called first for each child, then once for the parent; `moved` follows each of them.
    """

    def __init__(self, phase: Phase, port: Port, *, index: int) -> None:
        self._port = port
        self._bytes = phase.size_bytes
        node = node_of(index, phase.ranks, tree=phase.tree)
        self._up = None if node.parent is None else node.parent - index
        """Parent, in places ahead of the rank; None at the root."""
        self._down = tuple(child - index for child in node.children)
        """Children, in places ahead of the rank."""
        self._unreceived = len(self._down)
        """Children whose message has not come."""
        self._unsummed = len(self._down)
        """Children whose message is not summed."""
        self._has_result = False
        """Whether the parent has sent the result."""

    def start(self) -> None:
        """Wait for the children, or begin at a leaf."""
        for child in self._down:
            self._port.receive(child, self._bytes)
        if not self._down:
            self._port.pass_memory(self._bytes, summed=False)

    def received(self) -> None:
        """Sum a child's message, or take the parent's result."""
        if self._unreceived:
            self._unreceived -= 1
            self._port.pass_memory(self._bytes, summed=True)
        else:
            self._has_result = True
            self._port.pass_memory(self._bytes, summed=bool(self._down))

    def moved(self) -> None:
        """Send the sum to the parent, or the result to the children."""
        if self._unsummed > 1:
            self._unsummed -= 1
        elif self._up is None or self._has_result:
            for child in self._down:
                self._port.send(child, self._bytes)
            self._port.finish()
        else:
            self._port.send(self._up, self._bytes)
            self._port.receive(self._up, self._bytes)


NS_PER_S = 10**9
"""Nanoseconds of a second; the simulator counts whole ones."""
BYTES_PER_GB = 2**30
"""Bytes of its gigabyte in the network."""

Call = Callable[[], None]


MEMORY_PASSES = 3
"""Passes over memory of a reduction: two operands are read and one is written."""
MEMORY_GB_PER_S = 1600.0
"""Rate at which a rank's memory reduces in its example systems; decimal gigabytes."""
BYTES_PER_GB_OF_MEMORY = 1e9
"""Bytes of its gigabyte in memory."""


class Shape(StrEnum):
    """Topology of the ranks of a dimension."""

    RING = "Ring"
    SWITCH = "Switch"
    FULLY_CONNECTED = "FullyConnected"


class Clock:
    """Calendar of calls at whole nanoseconds; calls of one nanosecond run in the order of scheduling."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._calls: dict[int, deque[Call]] = {}
        self._times: list[int] = []

    def after(self, delay_ns: int, call: Call) -> None:
        """Schedule a call some nanoseconds from now."""
        time_ns = self.now_ns + delay_ns
        if time_ns not in self._calls:
            self._calls[time_ns] = deque()
            heapq.heappush(self._times, time_ns)
        self._calls[time_ns].append(call)

    def run(self) -> None:
        """Run until no call is left."""
        while self._times:
            self.now_ns = self._times[0]
            calls = self._calls[self.now_ns]
            while calls:
                calls.popleft()()
            heapq.heappop(self._times)
            del self._calls[self.now_ns]


class RankClock:
    """Calendar of one rank: its calls of one nanosecond run one after another, before those of other ranks.

    The first call that a rank schedules for a nanosecond sets its place among the ranks in that nanosecond.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: dict[int, deque[Call]] = {}

    def after(self, delay_ns: int, call: Call) -> None:
        """Schedule a call some nanoseconds from now."""
        time_ns = self._clock.now_ns + delay_ns
        if time_ns not in self._calls:
            self._calls[time_ns] = deque()
            self._clock.after(delay_ns, self._run)
        self._calls[time_ns].append(call)

    def _run(self) -> None:
        calls = self._calls[self._clock.now_ns]
        while calls:
            calls.popleft()()
        del self._calls[self._clock.now_ns]


@dataclass(frozen=True, kw_only=True)
class Wires:
    """Links of one dimension."""

    shape: Shape
    """Topology of its ranks."""
    ranks: int
    """Number of ranks along it."""
    gigabytes_per_s: float
    """Rate of a link, in the simulator's gigabytes of 2^30 bytes."""
    latency_ns: float
    """Latency of a link."""

    @property
    def bytes_per_ns(self) -> float:
        """Rate of a link in bytes per nanosecond."""
        return self.gigabytes_per_s * BYTES_PER_GB / NS_PER_S

    def hops(self, offset: int) -> int:
        """Return the number of links to the rank `offset` places ahead."""
        if self.shape is Shape.SWITCH:
            return 2
        if self.shape is Shape.FULLY_CONNECTED:
            return 1
        ahead = offset % self.ranks
        return min(ahead, self.ranks - ahead)


class Network(Protocol):
    """Carrier of messages."""

    def send(self, source: int, offset: int, dimension: int, size_bytes: int, arrived: Call) -> None:
        """Carry a message to the rank `offset` places ahead along a dimension, and call when it is there."""


class Delays:
    """Congestion-unaware backend: every message travels as if it were alone."""

    def __init__(self, clock: Clock, dimensions: tuple[Wires, ...]) -> None:
        self._clock = clock
        self._dimensions = dimensions

    def send(self, source: int, offset: int, dimension: int, size_bytes: int, arrived: Call) -> None:
        """Carry a message in the latency of all links and the transmission time of one."""
        del source
        wires = self._dimensions[dimension]
        link_ns = wires.hops(offset) * wires.latency_ns
        self._clock.after(int(link_ns + size_bytes / wires.bytes_per_ns), arrived)


class _Link:
    """Link that forwards whole messages one after another, first come first served."""

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
    """Congestion-aware backend: every link stores and forwards whole messages, first come first served.

    Parameters
    ----------
    clock : Clock
        Time.
    wires : Wires
        Links of the only dimension that this backend has.
    alike : bool
        Whether all ranks do the same at the same time: then one rank stands for all, and one link for all
        links of the same place relative to their rank.
    """

    def __init__(self, clock: Clock, wires: Wires, *, alike: bool) -> None:
        self._clock = clock
        self._wires = wires
        self._alike = alike
        self._links: dict[tuple[int, int], _Link] = {}

    def send(self, source: int, offset: int, dimension: int, size_bytes: int, arrived: Call) -> None:
        """Carry a message link by link, the shorter way around a ring, forwards if both are as long."""
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
        """Yield the links of the route, each as a rank and the number of one of its links."""
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


@dataclass
class _Chunk:
    """A chunk with its present phase and those that follow."""

    number: int
    phases: deque[Phase]
    phase: Phase | None = None
    algorithm: Algorithm | None = None


@dataclass(frozen=True)
class Endpoint:
    """Delays that a rank adds to every message."""

    delay_ns: int
    """Delay of a pass over the memory bus."""
    memory_bytes_per_ns: float
    """Rate of its memory."""

    def summed_ns(self, size_bytes: int) -> int:
        """Return the time of summing a message."""
        return MEMORY_PASSES * int(size_bytes / self.memory_bytes_per_ns)


class Mail:
    """Matching of sends with receives: the n-th send with a key belongs to the n-th receive with that key.

    A key is a tuple of numbers, such as tag, sender, receiver and bytes.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sends: dict[tuple[int, ...], int] = {}
        """Number of sends so far, by key."""
        self._receives: dict[tuple[int, ...], int] = {}
        """Number of receives so far, by key."""
        self._waiting: dict[tuple[int, ...], Call] = {}
        """Receives whose message has not arrived, by key and number."""
        self._arrived: set[tuple[int, ...]] = set()
        """Messages that have arrived and are not received yet, by key and number."""

    def posted(self, *key: int) -> Call:
        """Register a send; return the function to call when its message arrives."""
        self._sends[key] = self._sends.get(key, 0) + 1
        message = (*key, self._sends[key])

        def arrive() -> None:
            received = self._waiting.pop(message, None)
            if received is None:
                self._arrived.add(message)
            else:
                received()

        return arrive

    def wait(self, *key: int, received: Call) -> None:
        """Register a receive; `received` is called when its message arrives, or now if it has arrived."""
        self._receives[key] = self._receives.get(key, 0) + 1
        message = (*key, self._receives[key])
        if message in self._arrived:
            self._arrived.remove(message)
            self._clock.after(0, received)
        else:
            self._waiting[message] = received


@dataclass
class Rank:
    """One rank with a queue of chunks for each dimension.

    Every queue holds the chunks whose present phase is along its dimension, in order of arrival; the first
    `at_once` of them are worked on.
    """

    number: int
    """Number of the rank."""
    sizes: Sequence[int]
    """Number of ranks along each dimension."""
    clock: Clock
    """Clock of all ranks."""
    network: Network
    """Network of all ranks."""
    endpoint: Endpoint
    """Delays that the rank adds to each message."""
    at_once: int
    """Most chunks of a dimension in progress."""
    mail: Mail | None = None
    """Matching of messages; None if this rank represents all."""
    finished_ns: int = 0
    """Time at which the last chunk ended."""
    _queues: dict[int, list[_Chunk]] = field(default_factory=dict)
    _running: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.later = RankClock(self.clock).after

    def add(self, number: int, phases: Sequence[Phase]) -> None:
        """Add a chunk."""
        self.proceed(_Chunk(number, deque(phases)))

    def proceed(self, chunk: _Chunk) -> None:
        """Move a chunk from the queue of its phase to that of the next."""
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
        """Start chunks of a queue while fewer than `at_once` are in progress."""
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
        index = self.number // math.prod(self.sizes[: phase.dimension]) % phase.ranks
        if phase.method is Method.HALVING_DOUBLING:
            return HalvingDoubling(phase, port, index=index)
        return DoubleTree(phase, port, index=index)


@dataclass(frozen=True)
class _ChunkPort:
    """Port of a rank for the algorithm of one chunk."""

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

    def _carry(self, offset: int, size_bytes: int, arrived: Call) -> None:
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


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """Links along one dimension, and the algorithm there."""

    wires: Wires
    """Links."""
    method: Method
    """Algorithm."""
    window: int = 0
    """Most messages of a direct exchange in flight; 0 for no limit."""


def chunked(kind: CollectiveKind, size_bytes: int, splits: int, ranks: int) -> tuple[int, int]:
    """Return the number of chunks of a collective, zero if it cannot be cut, and the bytes of each.

    Notes
    -----
    A remainder makes a further chunk as large as the others. Chunks have at least a byte for every rank,
    except in an all-gather.
    """
    chunk_bytes = size_bytes // splits
    if kind is not CollectiveKind.ALL_GATHER and chunk_bytes < ranks:
        return splits, ranks
    return math.ceil(size_bytes / chunk_bytes) if chunk_bytes else 0, chunk_bytes


@dataclass(frozen=True, kw_only=True)
class Run:
    """One collective as ASTRA-sim simulates it."""

    kind: CollectiveKind
    """Collective."""
    size_bytes: int
    """Bytes that a rank holds; of an all-gather those that it contributes."""
    dimensions: tuple[Dimension, ...]
    """Dimensions, innermost first."""
    endpoint_ns: int
    """Delay of a pass over the memory bus of a rank."""
    splits: int = 1
    """Number of chunks that the collective is cut into."""
    at_once: int = 1
    """Most chunks of a dimension in progress."""
    queued: bool = False
    """Whether links are shared in queues: the congestion-aware backend."""
    memory_gb_per_s: float = MEMORY_GB_PER_S
    """Rate at which a rank's memory sums; decimal gigabytes."""

    @property
    def ranks(self) -> int:
        """Number of ranks of all dimensions."""
        return math.prod(one.wires.ranks for one in self.dimensions)

    def chunks(self) -> Iterator[tuple[Phase, ...]]:
        """Yield the phases of each chunk."""
        count, chunk_bytes = chunked(self.kind, self.size_bytes, self.splits, self.ranks)
        for number in range(count):
            yield tuple(self.phases(chunk_bytes, tree=number))

    def phases(self, chunk_bytes: int, *, tree: int = 0) -> Iterator[Phase]:
        """Yield the phases of one chunk.

        An all-reduce reduces and scatters along each dimension outwards, all-reduces along the last, and
        gathers back inwards.
        """
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
        """Whether all ranks do the same at the same time, so that simulating one of them is enough.

        Rings and direct exchanges look the same from every rank; so do halving and doubling where no two
        pairs share a link. Trees do not.
        """
        methods = {one.method for one in self.dimensions}
        if Method.DOUBLE_TREE in methods:
            return False
        on_ring = any(one.wires.shape is Shape.RING for one in self.dimensions)
        return not (self.queued and Method.HALVING_DOUBLING in methods and on_ring)

    def simulated_s(self) -> float:
        """Return the time by ASTRA-sim's rules, equal to its own to the nanosecond."""
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
