"""User-defined algorithms of a collective, in the XML of MSCCL, as messages that wait for each other.

An algorithm is first executed on symbols: every chunk is a sum of input chunks, by rank and number. In the
end each rank must hold the output of the collective, with every contribution once.

References
----------
Cowan et al., "MSCCLang: Microsoft Collective Communication Language", ASPLOS 2023. MSCCL, src/graph and
src/collectives/device (how steps read and write buffers).
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter, deque
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from simulator.errors import ParameterError, nearest
from simulator.files import read_text
from simulator.operators import CollectiveKind

KINDS = {
    "allreduce": CollectiveKind.ALL_REDUCE,
    "allgather": CollectiveKind.ALL_GATHER,
    "reduce_scatter": CollectiveKind.REDUCE_SCATTER,
    "reducescatter": CollectiveKind.REDUCE_SCATTER,
    "alltoall": CollectiveKind.ALL_TO_ALL,
}
"""Collectives by their name in a file."""
RECEIVING = frozenset({"r", "rcs", "rrs", "rrc", "rrcs"})
"""Types of steps that receive a message."""
SENDING = frozenset({"s", "rcs", "rrs", "rrcs"})
"""Types of steps that send a message."""
STEPS = RECEIVING | SENDING | {"re", "cpy", "nop"}
"""Types of steps. Letters stand for receive, reduce, copy and send, in this order: ``rrcs`` does all four.
``re`` reduces and ``cpy`` copies locally, ``nop`` only waits."""
BUFFERS = ("i", "o", "s")
"""Buffers: input, output, scratch."""
MOST_STEPS = 50_000
"""Most steps of a file."""

Chunk = Counter[tuple[int, int]]
"""Value of a chunk: how many times it contains each input chunk (rank, number)."""


@dataclass(frozen=True, kw_only=True)
class ChunkFlows:
    """Messages of an algorithm."""

    name: str
    """Name of the algorithm."""
    kind: CollectiveKind
    """Collective that it carries out."""
    ranks: int
    """Ranks that take part."""
    sources: np.ndarray
    """Rank that sends each, shape [F]."""
    destinations: np.ndarray
    """Rank that receives each, shape [F]."""
    shares: np.ndarray
    """Bytes of each message over the collective's, as nccl-tests counts them, shape [F]; dimensionless."""
    after: np.ndarray
    """Pairs of messages, the second of which waits for the first to arrive, shape [E, 2]."""


@dataclass(frozen=True, kw_only=True)
class _Step:
    """Step of a thread block."""

    what: str
    """Type, one of `STEPS`."""
    source: tuple[str, int]
    """Buffer and first chunk that it reads."""
    target: tuple[str, int]
    """Buffer and first chunk that it writes."""
    count: int
    """Chunks."""
    waits: tuple[int, int]
    """Thread block of the same rank (-1: none), and its step that must be over."""


@dataclass(kw_only=True)
class _Block:
    """Thread block, whose steps run one after the other."""

    rank: int
    number: int
    send: int
    """Rank to which it sends, or -1."""
    receive: int
    """Rank from which it receives, or -1."""
    channel: int
    steps: list[_Step]
    done: int = 0
    """Steps that are over."""
    behind: frozenset[int] = frozenset()
    """Messages that must have arrived before its next step."""
    history: list[frozenset[int]]
    """`behind` after each step that is over."""


def read_algorithm(path: Path) -> ChunkFlows:
    """Return the messages of a file, having checked that they carry out its collective.

    Raises
    ------
    ParameterError
        If the file is no algorithm, a step waits for ever, or a chunk is wrong in the end.
    """
    root = _read_root(path)
    kind = KINDS.get(root.get("coll", "").lower())
    if kind is None:
        asked = root.get("coll", "")
        _refuse(path, f"coll is '{asked}'; {nearest(asked, KINDS, noun='collective')}")
    ranks, chunks = (_whole_number(path, root, key, low=1) for key in ("ngpus", "nchunksperloop"))
    found = sorted(_whole_number(path, gpu, "id") for gpu in root.findall("gpu"))
    if found != list(range(ranks)):
        _refuse(path, f"ngpus is {ranks}, so gpus must be numbered 0 to {ranks - 1}, each once")
    blocks = {}
    for gpu in root.findall("gpu"):
        for one in gpu.findall("tb"):
            block = _read_block(path, _whole_number(path, gpu, "id"), one, ranks)
            if (block.rank, block.number) in blocks:
                _refuse(path, f"gpu {block.rank} has thread block {block.number} twice")
            blocks[block.rank, block.number] = block
    if sum(len(block.steps) for block in blocks.values()) > MOST_STEPS:
        _refuse(path, f"has more than {MOST_STEPS} steps")
    run = _Execution(
        path=path, kind=kind, ranks=ranks, chunks=chunks, inplace=root.get("inplace", "0") == "1"
    )
    run.execute(blocks)
    run.check()
    pairs = [(first, flow) for flow, behind in enumerate(run.behind) for first in sorted(behind)]
    return ChunkFlows(
        name=root.get("name") or path.stem,
        kind=kind,
        ranks=ranks,
        sources=np.array([one[0] for one in run.sent], dtype=np.int64),
        destinations=np.array([one[1] for one in run.sent], dtype=np.int64),
        shares=np.array([one[2] for one in run.sent], dtype=float) / chunks,
        after=np.array(pairs, dtype=np.int64).reshape(-1, 2),
    )


class _Execution:
    """Execution of an algorithm on symbols.

    `memory` holds the value of each chunk by (rank, buffer, number), `sent` the messages so far (sender,
    receiver, chunks), and `behind` the messages that must have arrived before each.
    """

    def __init__(self, *, path: Path, kind: CollectiveKind, ranks: int, chunks: int, inplace: bool) -> None:
        spread = kind is not CollectiveKind.ALL_REDUCE
        if spread and chunks % ranks:
            _refuse(path, f"nchunksperloop ({chunks}) must be a multiple of ngpus ({ranks}) for {kind}")
        self.path, self.kind, self.ranks = path, kind, ranks
        self.inputs = chunks // ranks if kind is CollectiveKind.ALL_GATHER else chunks
        self.outputs = chunks // ranks if kind is CollectiveKind.REDUCE_SCATTER else chunks
        self.inplace = inplace
        self.memory: dict[tuple[int, str, int], Chunk] = {
            self._place(rank, "i", chunk): Counter({(rank, chunk): 1})
            for rank in range(ranks)
            for chunk in range(self.inputs)
        }
        self.sent: list[tuple[int, int, int]] = []
        self.behind: list[frozenset[int]] = []
        self._under_way: dict[tuple[int, int, int], deque[tuple[int, list[Chunk]]]] = {}

    def _place(self, rank: int, buffer: str, chunk: int) -> tuple[int, str, int]:
        """Return where a chunk lies: in place, input and output are the same memory."""
        if self.inplace and buffer == "o":
            if self.kind is CollectiveKind.REDUCE_SCATTER:
                return rank, "i", rank * self.outputs + chunk
            if self.kind is CollectiveKind.ALL_GATHER and chunk // self.inputs != rank:
                return rank, "o", chunk
            return rank, "i", chunk % self.inputs
        return rank, buffer, chunk

    def execute(self, blocks: dict[tuple[int, int], _Block]) -> None:
        """Run all steps, each as soon as the steps and the message for which it waits are there."""
        moved = True
        while moved:
            moved = False
            for block in blocks.values():
                while block.done < len(block.steps) and self._step(block, blocks):
                    moved = True
        for block in blocks.values():
            if block.done < len(block.steps):
                what = block.steps[block.done].what
                where = f"gpu {block.rank}, thread block {block.number}, step {block.done} ('{what}')"
                _refuse(self.path, f"{where} waits for ever; see its depid, deps and peer")
        left = next((key for key, queue in self._under_way.items() if queue), None)
        if left is not None:
            _refuse(self.path, f"gpu {left[1]} never receives what gpu {left[0]} sends on channel {left[2]}")

    def _step(self, block: _Block, blocks: dict[tuple[int, int], _Block]) -> bool:
        """Run a block's next step; return whether it could."""
        step = block.steps[block.done]
        behind = block.behind
        number, needed = step.waits
        if number >= 0:
            other = blocks.get((block.rank, number))
            if other is None or needed >= len(other.steps):
                what = f"waits for step {needed} of thread block {number}, which it lacks"
                _refuse(self.path, f"gpu {block.rank} {what}")
            if other.done <= needed:
                return False
            behind |= other.history[needed]
        taken: list[Chunk] = []
        if step.what in RECEIVING:
            queue = self._under_way.get((block.receive, block.rank, block.channel))
            if not queue:
                return False
            flow, taken = queue.popleft()
            behind |= {flow}
            if len(taken) != step.count:
                _refuse(self.path, f"gpu {block.rank} takes {step.count} chunks of a message of {len(taken)}")
        values = self._values(block.rank, step, taken)
        if step.what in SENDING:
            self.sent.append((block.rank, block.send, step.count))
            self.behind.append(behind)
            flow = len(self.sent) - 1
            self._under_way.setdefault((block.rank, block.send, block.channel), deque()).append(
                (flow, values)
            )
            behind = frozenset({flow})
        block.behind = behind
        block.history.append(behind)
        block.done += 1
        return True

    def _values(self, rank: int, step: _Step, taken: list[Chunk]) -> list[Chunk]:
        """Return the values of a step's chunks, having written them to its target if it writes."""
        if step.what == "nop":
            return []
        values = taken
        if step.what in {"s", "cpy"}:
            values = [self._read(rank, step.source, more) for more in range(step.count)]
        elif step.what in {"rrs", "rrc", "rrcs"}:
            values = [one + self._read(rank, step.source, more) for more, one in enumerate(taken)]
        elif step.what == "re":
            values = [
                self._read(rank, step.source, more) + self._read(rank, step.target, more)
                for more in range(step.count)
            ]
        if step.what not in {"s", "rrs"}:
            buffer, first = step.target
            for more, value in enumerate(values):
                self.memory[self._place(rank, buffer, first + more)] = value
        return values

    def _read(self, rank: int, where: tuple[str, int], more: int) -> Chunk:
        buffer, first = where
        value = self.memory.get(self._place(rank, buffer, first + more))
        if value is None:
            what = f"chunk {first + more} of buffer '{buffer}' before anything is there"
            _refuse(self.path, f"gpu {rank} reads {what}")
        return value

    def check(self) -> None:
        """Raise a ParameterError if an output chunk does not hold what the collective is to put there."""
        for rank in range(self.ranks):
            for chunk in range(self.outputs):
                found = self.memory.get(self._place(rank, "o", chunk))
                wanted = self._due(rank, chunk)
                if found is None and self.kind is CollectiveKind.ALL_REDUCE:
                    found = self.memory.get((rank, "i", chunk))  # in place without a word
                if found != wanted:
                    _refuse(
                        self.path,
                        f"is no {self.kind}: in the end chunk {chunk} of gpu {rank} holds "
                        f"{_in_words(found)}, not {_in_words(wanted)}",
                    )

    def _due(self, rank: int, chunk: int) -> Chunk:
        """Return the value that a chunk of the output must have in the end."""
        match self.kind:
            case CollectiveKind.ALL_REDUCE:
                return Counter({(one, chunk): 1 for one in range(self.ranks)})
            case CollectiveKind.ALL_GATHER:
                return Counter({divmod(chunk, self.inputs): 1})
            case CollectiveKind.REDUCE_SCATTER:
                return Counter({(one, rank * self.outputs + chunk): 1 for one in range(self.ranks)})
            case _:
                peer, place = divmod(chunk, self.outputs // self.ranks)
                return Counter({(peer, rank * (self.outputs // self.ranks) + place): 1})


def _in_words(chunk: Chunk | None) -> str:
    if not chunk:
        return "nothing"
    parts = [f"{times} x {one} of {rank}" for (rank, one), times in sorted(chunk.items())]
    return " + ".join(parts[:4]) + (" + ..." if len(parts) > 4 else "")


def _read_root(path: Path) -> ET.Element:
    """Return the root element of a file."""
    text = read_text(path)
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        _refuse(path, "declares a document type; an algorithm needs none")
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        _refuse(path, f"no XML: {error}")
    if root.tag != "algo":
        _refuse(path, f"begins with <{root.tag}>; an algorithm begins with <algo>")
    return root


def _read_block(path: Path, rank: int, element: ET.Element, ranks: int) -> _Block:
    """Return a thread block of a rank with its steps, each checked."""
    send, receive = (_whole_number(path, element, key, low=-1) for key in ("send", "recv"))
    number = _whole_number(path, element, "id")
    if max(send, receive) >= ranks:
        _refuse(path, f"gpu {rank}, thread block {number} names gpu {max(send, receive)} of {ranks}")
    steps = []
    for place, one in enumerate(element.findall("step")):
        where = f"gpu {rank}, thread block {number}, step {place}"
        what = one.get("type", "")
        if what not in STEPS:
            _refuse(path, f"{where} has type '{what}'; {nearest(what, sorted(STEPS), noun='type')}")
        if (what in SENDING and send < 0) or (what in RECEIVING and receive < 0):
            _refuse(path, f"{where} ('{what}') has no peer; give its thread block send or recv")
        buffers = [one.get(key, "") for key in ("srcbuf", "dstbuf")]
        if what != "nop" and not set(buffers) <= set(BUFFERS):
            _refuse(path, f"{where} names buffers '{buffers[0]}' and '{buffers[1]}'; they are i, o and s")
        steps.append(
            _Step(
                what=what,
                source=(buffers[0], _whole_number(path, one, "srcoff", low=-1)),
                target=(buffers[1], _whole_number(path, one, "dstoff", low=-1)),
                count=_whole_number(path, one, "cnt", low=0 if what == "nop" else 1),
                waits=(_whole_number(path, one, "depid", low=-1), _whole_number(path, one, "deps", low=-1)),
            )
        )
    channel = _whole_number(path, element, "chan")
    return _Block(
        rank=rank, number=number, send=send, receive=receive, channel=channel, steps=steps, history=[]
    )


def _whole_number(path: Path, element: ET.Element, key: str, *, low: int = 0) -> int:
    text = element.get(key, "")
    if not text.lstrip("-").isdecimal() or len(text) > 9 or int(text) < low:
        _refuse(path, f"<{element.tag}> has {key} '{text[:40]}'; it must be a whole number of at least {low}")
    return int(text)


def _refuse(path: Path, what: str) -> NoReturn:
    msg = f"{path.name}: {what}"
    raise ParameterError(msg)
