"""ASTRA-sim's collective algorithms by message: rings, direct exchange, halving-doubling, double trees."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
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


class Port(Protocol):
    """Port of a rank: all that an algorithm asks of it."""

    def pass_memory(self, size_bytes: int, *, summed: bool) -> None:
        """Move a message over the memory bus, then call `Algorithm.moved`."""

    def exchange(self, message: Message) -> None:
        """Send a message and receive one, then call `Algorithm.received`."""

    def send(self, offset: int, size_bytes: int) -> None:
        """Send a message."""

    def receive(self, offset: int, size_bytes: int) -> None:
        """Wait for a message, then call `Algorithm.received`."""

    def finish(self) -> None:
        """End the phase."""


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

    def __init__(self, phase: Phase, port: Port, *, messages: int, width: int, later: int) -> None:
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

    def __init__(self, phase: Phase, port: Port) -> None:
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
