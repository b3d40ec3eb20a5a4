"""ASTRA-sim's analytical backends, repeated to the nanosecond: clock, networks, ranks, collectives.

The simulator counts whole nanoseconds, and gigabytes of 2^30 bytes in the network only; chunks wait in a
queue per dimension, and ranks pass messages.
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
    """Collective algorithm of a dimension's ranks."""

    RING = "ring"
    DIRECT = "direct"
    HALVING_DOUBLING = "halvingDoubling"
    DOUBLE_TREE = "doubleBinaryTree"


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One collective of one chunk along one dimension."""

    kind: CollectiveKind
    """What is done."""
    method: Method
    """How."""
    ranks: int
    """Ranks along the dimension."""
    dimension: int
    """Which dimension."""
    size_bytes: int
    """What a rank holds before; of an all-gather what it contributes."""
    backwards: bool = False
    """Whether the ring turns the other way."""
    window: int = 0
    """Messages of a direct exchange in flight; 0 for all."""
    tree: int = 0
    """Which of two trees."""

    @property
    def left_bytes(self) -> int:
        """What a rank holds after it."""
        if self.method is Method.DOUBLE_TREE:
            return self.size_bytes
        if self.kind is CollectiveKind.ALL_GATHER:
            return self.size_bytes * self.ranks
        if self.kind is CollectiveKind.REDUCE_SCATTER:
            return self.size_bytes // self.ranks
        return self.size_bytes


@dataclass(frozen=True)
class Message:
    """A message that waits for its turn."""

    to: int
    """Places ahead of the sender's own of who receives it."""
    origin: int
    """The same of who sends what is received in its stead."""
    size_bytes: int
    """Size."""


class Exchanging(Protocol):
    """Port of a rank as far as algorithms ask that pass a message for each that comes."""

    def pass_memory(self, size_bytes: int, *, summed: bool) -> None:
        """Move a message over the memory bus, then call `Algorithm.moved`."""

    def exchange(self, message: Message) -> None:
        """Send a message and receive one, then call `Algorithm.received`."""

    def finish(self) -> None:
        """End the phase."""


class Port(Exchanging, Protocol):
    """Port of a rank: all that an algorithm asks of it."""

    def send(self, offset: int, size_bytes: int) -> None:
        """Send a message."""

    def receive(self, offset: int, size_bytes: int) -> None:
        """Wait for a message, then call `Algorithm.received`."""


class Algorithm(Protocol):
    """Part of one rank in one phase of a collective."""

    def start(self) -> None:
        """Begin."""

    def moved(self) -> None:
        """Go on after a message went over the memory bus."""

    def received(self) -> None:
        """Go on after a message came."""


class _Exchange:
    """Messages one after another, each of which lets the next go; subclasses say to whom and how many.

    A round is `width` messages that nobody waited for and `later` that followed what was received; of an
    all-reduce what is received is summed in the first round of two, of a reduce-scatter always.
    """

    def __init__(self, phase: Phase, port: Exchanging, *, messages: int, width: int, later: int) -> None:
        self._phase = phase
        self._port = port
        self._left = messages
        self._width = width
        self._later = later
        self._credit = 0
        self._round = 0
        self._first_left = self._later_left = 0
        self._waiting: deque[Message] = deque()
        self._received = 0

    def start(self) -> None:
        for _ in range(self._width):
            self._prepare()

    def received(self) -> None:
        self._received += 1
        self._prepare()

    def moved(self) -> None:
        self._credit += 1
        self._try_send()
        self._try_finish()

    def _message(self) -> Message:
        raise NotImplementedError

    def _advance(self) -> None:
        """Turn to the next partner."""

    def _prepare(self) -> None:
        if not self._first_left and not self._later_left:
            self._first_left, self._later_left = self._width, self._later
            self._round += 1
        summed = False
        if self._first_left:
            self._first_left -= 1
        else:
            self._later_left -= 1
            kind = self._phase.kind
            summed = kind is CollectiveKind.REDUCE_SCATTER or (
                kind is CollectiveKind.ALL_REDUCE and self._round % 2 == 1
            )
        message = self._message()
        self._waiting.append(message)
        self._port.pass_memory(message.size_bytes, summed=summed)
        self._advance()

    def _try_send(self) -> None:
        if self._waiting and self._left and self._credit:
            message = self._waiting.popleft()
            self._left -= 1
            self._credit -= 1
            self._port.exchange(message)

    def _try_finish(self) -> None:
        if not self._left and self._credit == self._width:
            self._port.finish()


class Ring(_Exchange):
    """Each rank passes to the next; an all-to-all passes every part around one way."""

    def __init__(self, phase: Phase, port: Exchanging) -> None:
        others = phase.ranks - 1
        messages = {
            CollectiveKind.ALL_REDUCE: 2 * others,
            CollectiveKind.ALL_TO_ALL: others * phase.ranks // 2,
        }.get(phase.kind, others)
        super().__init__(phase, port, messages=messages, width=1, later=others)
        step = -1 if phase.backwards else 1
        self._only = Message(step, -step, _part_bytes(phase))

    def _message(self) -> Message:
        return self._only


class Direct(_Exchange):
    """Each rank sends its parts to all others at once, or to so many at a time."""

    def __init__(self, phase: Phase, port: Port) -> None:
        others = phase.ranks - 1
        width = min(phase.window or others, others)
        messages = 2 * others if phase.kind is CollectiveKind.ALL_REDUCE else others
        super().__init__(phase, port, messages=messages, width=width, later=width)
        self._others = others
        self._step = -1 if phase.backwards else 1
        self._next = 0
        self._bytes = _part_bytes(phase)

    def _message(self) -> Message:
        offset = self._step * (self._next + 1)
        return Message(offset, -offset, self._bytes)

    def _advance(self) -> None:
        self._next = (self._next + 1) % self._others

    def moved(self) -> None:
        """Go on, but send no sum before all parts of it have come."""
        second = self._phase.kind is CollectiveKind.ALL_REDUCE and self._left <= self._others
        if not second:
            super().moved()
            return
        self._credit += 1
        if self._received < self._others:
            return
        for _ in range(self._width):
            self._try_send()
        self._try_finish()


class HalvingDoubling(_Exchange):
    """Pairs exchange at distances 1, 2, 4 and so on with halved parts, and back."""

    def __init__(self, phase: Phase, port: Port, *, index: int) -> None:
        levels = phase.ranks.bit_length() - 1
        twice = phase.kind is CollectiveKind.ALL_REDUCE
        super().__init__(phase, port, messages=levels * (2 if twice else 1), width=1, later=levels - 1)
        self._index = index
        self._growing = phase.kind is not CollectiveKind.ALL_GATHER
        self._distance = 1 if self._growing else phase.ranks // 2
        self._bytes = phase.size_bytes // 2 if self._growing else phase.size_bytes

    def _message(self) -> Message:
        ahead = not self._distance or (self._index // self._distance) % 2 == 0
        offset = self._distance if ahead else -self._distance
        return Message(offset, offset, self._bytes)

    def _advance(self) -> None:
        self._turn()
        if self._distance == self._phase.ranks and self._phase.kind is CollectiveKind.ALL_REDUCE:
            self._growing = False
            self._turn()

    def _turn(self) -> None:
        if self._growing:
            self._distance, self._bytes = self._distance * 2, self._bytes // 2
        else:
            self._distance, self._bytes = self._distance // 2, self._bytes * 2


def _part_bytes(phase: Phase) -> int:
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


NS_PER_S = 10**9
"""The simulator counts whole nanoseconds."""
BYTES_PER_GB = 2**30
"""Its gigabyte, of the network only."""

Call = Callable[[], None]


MEMORY_PASSES = 3
"""Passes over memory of a reduction: two operands are read and one is written."""
MEMORY_GB_PER_S = 1600.0
"""Rate at which a rank's memory reduces in its example systems; decimal gigabytes."""
BYTES_PER_GB_OF_MEMORY = 1e9
"""The simulator's gigabyte of memory."""


class Shape(StrEnum):
    """Topology of the ranks of a dimension."""

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


class Together:
    """Calls of one rank: what it does in one nanosecond it does together."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: dict[int, deque[Call]] = {}

    def after(self, delay_ns: int, call: Call) -> None:
        """Do something some nanoseconds from now."""
        time_ns = self._clock.now_ns + delay_ns
        if time_ns not in self._calls:
            self._calls[time_ns] = deque()
            self._clock.after(delay_ns, self._call)
        self._calls[time_ns].append(call)

    def _call(self) -> None:
        calls = self._calls[self._clock.now_ns]
        while calls:
            calls.popleft()()
        del self._calls[self._clock.now_ns]


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
    """Network that carries messages."""

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


@dataclass
class _Chunk:
    """A chunk on its way through its phases."""

    number: int
    phases: deque[Phase]
    phase: Phase | None = None
    algorithm: Algorithm | None = None


@dataclass(frozen=True)
class Endpoint:
    """Delays that a rank adds to each message."""

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
        self._waits: dict[tuple[int, ...], Call] = {}
        self._here: set[tuple[int, ...]] = set()

    def posted(self, *key: int) -> Call:
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

    def wait(self, *key: int, received: Call) -> None:
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

    def __post_init__(self) -> None:
        self.later = Together(self.clock).after

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
        index = self.number // math.prod(self.sizes[: phase.dimension]) % phase.ranks
        if phase.method is Method.HALVING_DOUBLING:
            return HalvingDoubling(phase, port, index=index)
        return DoubleTree(phase, port, index=index)


@dataclass(frozen=True)
class _ChunkPort:
    """Port of a rank that one chunk's algorithm sees."""

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
    """Ranks along one dimension, and what they do."""

    wires: Wires
    """Links."""
    method: Method
    """How messages are passed."""
    window: int = 0
    """Messages of a direct exchange in flight; 0 for all."""


def chunked(kind: CollectiveKind, size_bytes: int, splits: int, ranks: int) -> tuple[int, int]:
    """Return how many chunks a collective is cut into, none if it cannot be, and the bytes of each.

    Notes
    -----
    What splitting leaves over makes a further chunk, as large as the others; chunks have a byte for every
    rank at least, except of an all-gather.
    """
    chunk_bytes = size_bytes // splits
    if kind is not CollectiveKind.ALL_GATHER and chunk_bytes < ranks:
        return splits, ranks
    return math.ceil(size_bytes / chunk_bytes) if chunk_bytes else 0, chunk_bytes


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
        """Yield the phases of each chunk."""
        count, chunk_bytes = chunked(self.kind, self.size_bytes, self.splits, self.ranks)
        for number in range(count):
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
