"""Tables of circuits that turn during a step: lanes, what needs them, and what is still to come over them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from simulator.collectives.flow_groups import FlowGroup
from simulator.engine.compiled.memory import BITS, Memories
from simulator.engine.compiled.programs import NotCoveredError, Programs, StepNetwork, StepStructure
from simulator.engine.lookahead import Later, compute_orders, followers
from simulator.fabric import Loads
from simulator.operators import Collective


@dataclass(frozen=True, kw_only=True, eq=False)
class Need:
    """Lanes that a group of flows needs."""

    pairs: np.ndarray
    """Endpoint that sends and endpoint that it has to reach, each pair once, shape [P, 2]."""
    usage: np.ndarray
    """Flows over each, shape [P]."""
    senders: np.ndarray
    """Endpoints that send, each once, shape [S]."""
    target: np.ndarray
    """Where their lanes turn to, -1 for none, shape [S, lanes]."""


NOBODY = Need(
    pairs=np.empty((0, 2), dtype=np.int64),
    usage=np.empty(0),
    senders=np.empty(0, dtype=np.int64),
    target=np.empty((0, 1), dtype=np.int64),
)
"""Need of flows inside nodes."""


def need_of(group: FlowGroup, network: StepNetwork) -> Need:
    """Return the lanes that a group needs.

    Raises
    ------
    NotCoveredError
        If flows of no weight need some.
    """
    claim = network.claim(group) if network.needs_lanes(group) else None
    if claim is None:
        return NOBODY
    ends = np.stack([claim.carriers, claim.landings], axis=1)
    pairs, place = np.unique(ends, axis=0, return_inverse=True)
    usage = np.bincount(place.ravel(), weights=claim.weights)
    if (claim.weights <= 0.0).any():
        msg = "flows without bytes need circuits"
        raise NotCoveredError(msg)
    senders = np.unique(claim.carriers)
    return Need(pairs=pairs, usage=usage, senders=senders, target=claim.target[senders])


def fixed_loads(group: FlowGroup, network: StepNetwork, first: int) -> Loads:
    """Return what a group asks of links from a number on, which no circuit turns away."""
    found = network.loads(group)
    fixed = found.links >= first
    return Loads(links=found.links[fixed], usage=found.usage[fixed], latency_s=found.latency_s)


def cells(needs: Sequence[Need], endpoints: int) -> tuple[np.ndarray, list[list[int]]]:
    """Return a cell for each endpoint, and those of each group's senders.

    Endpoints that send for the same groups share one. The draw is of no matter: a cell that two such sets
    fell into would be looked at more often.
    """
    random = np.random.default_rng(0)
    signature = np.zeros(endpoints, dtype=np.uint64)
    for need, draw in zip(needs, random.integers(1, 2**63, len(needs)).astype(np.uint64), strict=True):
        signature[need.senders] += draw
    _, cell_of = np.unique(signature, return_inverse=True)
    return cell_of, [np.unique(cell_of[need.senders]).tolist() for need in needs]


def widths(peers: np.ndarray) -> np.ndarray:
    """Return the lanes that each lane stands for as a link, shape [E, lanes]."""
    same = (peers[:, :, None] == peers[:, None, :]) & (peers >= 0)[:, :, None]
    first = ~np.tril(same, -1).any(axis=2)
    return np.where(first, same.sum(axis=2), 0)


def origins(peers: np.ndarray) -> np.ndarray:
    """Return the endpoint whose light each lane receives, -1 for none, shape [E, lanes]."""
    found = np.full_like(peers, -1)
    rows, lanes = np.nonzero(peers >= 0)
    found[peers[rows, lanes], lanes] = rows
    return found


def words(bits: int, count: int) -> list[int]:
    """Return flags cut into words for a number of flags."""
    low = (1 << BITS) - 1
    return [bits >> place & low for place in range(0, count, BITS)]


MOST_FLAGS = 4_096
"""Tasks whose followers are found in one pass over the step, which bounds memory; a choice."""


class Coming:
    """Communication of each class of a step, what it moves, and what of it waits for which task.

    Parameters
    ----------
    structure : StepStructure
        The step.
    programs : Programs
        Its programs.
    network : StepNetwork
        The fabric with the prices of its collectives.
    """

    TABLES = (
        "task_class work bit row_behind behind first_word undone masks mask ahead flows first_part part "
        "first_begun begun first_sent sent first_asked asked next_asked"
    )
    """Tables that `lay` adds."""

    def __init__(self, structure: StepStructure, programs: Programs, network: StepNetwork) -> None:
        works, self.work_of = structure.works, structure.work_of
        self.classes = structure.graph.layout.classes
        self.task_class = [works[number].rank_class for number in self.work_of]
        plans = [
            network.plan(work.operator, work.rank_class) if isinstance(work.operator, Collective) else None
            for work in works
        ]
        self.flows = [plan is not None and len(plan.parts) > 0 for plan in plans]
        self.parts = [
            [programs.groups[one] for one, _, _ in (plan.parts if plan else ()) if network.needs_lanes(one)]
            for plan in plans
        ]
        self.begun: list[list[int]] = [[] for _ in range(self.classes)]
        self.sent: list[list[int]] = [[] for _ in range(self.classes)]
        for number, work in enumerate(works):
            if isinstance(work.operator, Collective):
                self.begun[work.rank_class].append(number)
                if work.operator.shift:
                    self.sent[work.rank_class + work.operator.shift].append(number)
        tasks = structure.graph.tasks
        self.asked: list[list[int]] = [[] for _ in range(self.classes)]
        for place in sorted(range(len(tasks)), key=lambda place: tasks[place].id):
            if plans[self.work_of[place]] is not None:
                self.asked[self.task_class[place]].append(place)
        self.bit = [-1] * len(tasks)
        for mine in self.asked:
            for bit, place in enumerate(mine):
                self.bit[place] = bit
        asks = [one.waits or plan is not None for one, plan in zip(programs.of_work, plans, strict=True)]
        self.row_behind = [-1] * len(tasks)
        self.behind: list[int] = []
        self._find(structure, [asks[number] for number in self.work_of])

    def _find(self, structure: StepStructure, asks: list[bool]) -> None:
        """Find what waits for each task that may ask for circuits."""
        tasks = structure.graph.tasks
        followers_of = followers(structure.graph, compute_orders(structure.graph))
        asking: list[list[int]] = [[] for _ in range(self.classes)]
        for place, may_ask in enumerate(asks):
            if may_ask:
                asking[self.task_class[place]].append(place)
        for some in self._batches():
            every = [tasks[place].id for one in some for place in self.asked[one]]
            later = Later(followers_of, reversed(every))
            first = 0
            for one in some:
                count = len(self.asked[one])
                for place in asking[one]:
                    flags = later(tasks[place].id) >> first & (1 << count) - 1
                    if self.bit[place] >= 0:
                        flags |= 1 << self.bit[place]
                    self.row_behind[place] = len(self.behind)
                    self.behind += words(flags, count)
                first += count

    def _batches(self) -> Iterable[list[int]]:
        """Go through the classes, as many at once as have few tasks that communicate."""
        batch: list[int] = []
        for one in range(self.classes):
            if batch and sum(len(self.asked[other]) for other in (*batch, one)) > MOST_FLAGS:
                yield batch
                batch = []
            batch.append(one)
        yield batch

    def masks(self) -> list[list[int]]:
        """Return flags of the tasks of each work among the communication of its class, in words."""
        flags = [0] * len(self.parts)
        for mine in self.asked:
            for bit, place in enumerate(mine):
                flags[self.work_of[place]] |= 1 << bit
        ahead = [len(self.asked[one]) for one in range(self.classes)]
        count = [0] * len(flags)
        for one, mine in enumerate(self.begun):
            for number in mine:
                count[number] = ahead[one]
        return [words(one, many) for one, many in zip(flags, count, strict=True)]

    def lay(self, memories: Memories) -> None:
        """Add the tables."""
        memories.whole("task_class", self.task_class)
        memories.whole("work", self.work_of)
        memories.whole("bit", self.bit)
        memories.whole("row_behind", self.row_behind)
        memories.whole("behind", self.behind)
        undone = [words((1 << len(mine)) - 1, len(mine)) for mine in self.asked]
        memories.rows("undone", undone, first="first_word")
        memories.rows("mask", self.masks(), first="masks")
        ahead = [0] * len(self.parts)
        for mine in self.asked:
            for place in mine:
                ahead[self.work_of[place]] += 1
        memories.whole("ahead", ahead)
        memories.whole("flows", (int(one) for one in self.flows))
        memories.rows("part", self.parts)
        memories.rows("begun", self.begun)
        memories.rows("sent", self.sent)
        memories.rows("asked", self.asked)
        memories.whole("next_asked", itertools.accumulate((len(one) for one in self.asked[:-1]), initial=0))


MOST_CHANGES = 128
"""Changes of circuits that the loop keeps before it hands them out; in plain Python so many take about as
long as loading what is compiled; a choice."""


def lay_lanes(memories: Memories, needs: Sequence[Need], network: StepNetwork) -> None:
    """Add lanes, and what each group needs of them."""
    fabric = network.fabric
    peers = fabric.lane_peers(network.network.circuits) if network.turns else np.empty((0, 0), dtype=np.int64)
    endpoints, lanes = peers.shape
    memories.rows("need", [need.pairs[:, 0].tolist() for need in needs])
    memories.whole("landing", itertools.chain.from_iterable(need.pairs[:, 1].tolist() for need in needs))
    memories.rows("sender", [need.senders.tolist() for need in needs])
    memories.whole("target", itertools.chain.from_iterable(need.target.ravel().tolist() for need in needs))
    cell_of, of_group = cells(needs, endpoints)
    memories.rows("cell", of_group)
    memories.whole("cell_of", cell_of.tolist())
    memories.wholes("moved_last", int(cell_of.max(initial=-1)) + 1)
    memories.wholes("checked", len(needs), -1)
    memories.wholes("located promised kept", len(needs))
    memories.wholes("lacking row_stamp touched", endpoints)
    memories.whole("peer", peers.ravel().tolist())
    memories.whole("origin", origins(peers).ravel().tolist())
    memories.whole("width", widths(peers).ravel().tolist())
    memories.wholes("before width_then dark next_dark change_group change_ports", peers.size)
    memories.wholes("link_stamp moving_links", peers.size)
    memories.wholes("version stamp touches moves keeping waiting changes", 1)
    memories.reals("change_s", peers.size)
    memories.reals("lane_rate", 1, fabric.traits.lane_bytes_per_s or 0.0)
    most = max((need.senders.size for need in needs), default=0) * lanes
    memories.real("turn_s", (fabric.lane_turn_s(ports) for ports in range(most + 1)))
    memories.at |= {"turns": int(network.turns), "lanes": lanes, "prefetches": int(fabric.traits.prefetches)}
    room = MOST_CHANGES if network.turns else 1
    memories.wholes("changed_group changed_ports", room)
    memories.reals("turned_s lit_s", room)
    memories.at["most_changes"] = room
