"""Operators, tasks and the graph of a training step.

Uneven all-to-alls carry a skew: the share of a rank's bytes for each peer, and the nodes that copies of a
token visit. Many products at once are shapes as arrays, so that a unit prices them all in one go.
"""

from __future__ import annotations

import math
from collections import abc
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Protocol, TypeVar

import numpy as np

from simulator.amounts import Amount, Matrices, Reals, elements_off_chip
from simulator.errors import WorkloadError
from simulator.layout import COPIES, RankLayout

GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
"""Golden section; multiples of it, modulo one, keep away from each other (Knuth, The Art of Computer
Programming, volume 3, section 6.4, theorem S). Dimensionless."""
MOST_PASSES = 1000
"""Passes over rows and columns after which they are balanced or not; dimensionless."""
_HALVINGS = 200
"""Halvings of the interval that holds the ratio of neighbouring loads: past double precision."""
BALANCED = 1e-9
"""Difference of a column from its sum, over the mean column, that is none; dimensionless."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Skew:
    """Unevenness of an all-to-all: some members get more than others, and each has favourites.

    Notes
    -----
    The matrix has row sums of one n-th each (everybody has as many tokens), column sums after `loads`, and
    within them prefers pairs after `affinity`: the matrix nearest to those preferences with these sums, found
    by scaling columns and rows in turn (Sinkhorn, Ann. Math. Statist. 35 (1964) 876).

    What member i sends to the member k places further on the ring of favourites falls geometrically with k,
    as loads of experts do. Favourites are spread over the group by the golden section, so that they are
    neither all near nor all far; what a member sends itself is no matter of preference. Of several patterns
    the k-th has its busy members, and everybody's first favourite, as many k-ths of all places further on.
    """

    loads: tuple[float, ...]
    """What each member gets over the mean, shape [n]; mean 1, dimensionless."""
    affinity: float = 1.0
    """What a member's first favourite gets from it over the mean of all others; 1 for none."""
    returns: bool = False
    """Whether what was sent comes back, so that the matrix is turned round."""
    pattern: int = 0
    """Which of `patterns` it is; dimensionless."""
    patterns: int = 1
    """Patterns that exchanges of different blocks go by in turn; 1 if all are alike. Dimensionless."""

    def __post_init__(self) -> None:
        n = len(self.loads)
        if not 0 <= self.pattern < self.patterns <= max(1, n - 1):
            msg = (
                f"{n} members have 1 to {max(1, n - 1)} patterns of exchange, numbered from 0; got number "
                f"{self.pattern} of {self.patterns}"
            )
            raise WorkloadError(msg)
        if not n or min(self.loads) < 0.0 or not math.isclose(math.fsum(self.loads), n, rel_tol=1e-6):
            msg = f"loads of a skew must not be negative, with a mean of 1; got {self.loads[:8]}"
            raise WorkloadError(msg)
        if not 1.0 <= self.affinity <= max(1.0, (n - 1) / 2):
            most = max(1.0, (n - 1) / 2)
            msg = (
                f"affinity ({self.affinity:g}) of {n} members must be from 1 (none) to half of the others "
                f"({most:g}); try {min(2.0, most):g}"
            )
            raise WorkloadError(msg)

    @property
    def even(self) -> bool:
        """Whether all pairs exchange the same."""
        return self.affinity == 1.0 and len(set(self.loads)) == 1

    def turned(self) -> Skew:
        """Return the way back."""
        return replace(self, returns=not self.returns)

    @property
    def every(self) -> tuple[Skew, ...]:
        """All patterns, each the same way."""
        return tuple(replace(self, pattern=one) for one in range(self.patterns))

    def matrix(self) -> np.ndarray:
        """Return what goes from member to member over the mean of all pairs, shape [n, n]."""
        found = _matrix(self.loads, self.affinity, self.pattern, self.patterns)
        return found.T if self.returns else found


def load_ratio(count: int, peak: float) -> float:
    """Return the ratio of neighbouring loads that fall geometrically from `peak` times their mean.

    Parameters
    ----------
    count : int
        Loads.
    peak : float
        The largest over the mean, from 1 to `count`.

    Notes
    -----
    A geometric fall is the one family with a single parameter that reaches from equal loads (ratio 1) to one
    that has everything (ratio 0). The root of peak = count (1 - r) / (1 - r^count), which falls with r, is
    found by halving.
    """
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _peak(count, middle) > peak:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _peak(count: int, ratio: float) -> float:
    return count / math.fsum(ratio**place for place in range(count))


def geometric_loads(count: int, peak: float) -> tuple[float, ...]:
    """Return loads over their mean that fall geometrically from `peak`; they add up to `count`."""
    ratio = load_ratio(count, peak)
    return tuple(_peak(count, ratio) * ratio**place for place in range(count))


@lru_cache(maxsize=64)
def _matrix(loads: tuple[float, ...], affinity: float, pattern: int, patterns: int) -> np.ndarray:
    """Return what a skew gives every pair over the mean, shape [n, n]."""
    n = len(loads)
    columns = np.roll(loads, pattern * n // patterns) * (n * n / math.fsum(loads))
    wanted = np.ones(n)
    if affinity > 1.0:
        favourites = np.roll(spread_places(n)[1:], -(pattern * (n - 1) // patterns))
        wanted[favourites] = geometric_loads(n - 1, affinity)
    every = np.arange(n)
    found = wanted[(every - every[:, None]) % n] * columns
    for _ in range(MOST_PASSES):
        sums = found.sum(axis=0)
        found = found * np.divide(columns, sums, out=np.ones(n), where=sums > 0.0)
        found = found * (n / found.sum(axis=1, keepdims=True))
        if np.abs(found.sum(axis=0) - columns).max() <= BALANCED * n:
            break
    found.flags.writeable = False
    return found


def spread_places(count: int) -> np.ndarray:
    """Return so many places in an order in which neighbours stand far apart, 0 first; shape [count].

    Notes
    -----
    Multiples, modulo the count, of the whole number without a common factor that is nearest to its golden
    section: a permutation.
    """
    middle = GOLDEN * count
    coprime = (one for one in range(1, count + 1) if math.gcd(one, count) == 1)
    step = min(coprime, key=lambda one: abs(one - middle))
    return (step * np.arange(count)) % count


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Targets of the copies of one token: some of many, which a group's members share evenly."""

    targets: int
    """Targets (experts) over the whole group."""
    copies: int
    """Targets that a token goes to."""
    sets: int = 1
    """Sets of neighbouring targets among which a token chooses first."""
    chosen_sets: int = 1
    """Sets that it may go to."""

    def __post_init__(self) -> None:
        reached = self.targets // self.sets * self.chosen_sets if self.sets > 0 else 0
        if self.targets % max(self.sets, 1) or not 1 <= self.copies <= reached:
            msg = (
                f"a token's {self.copies} copies must fit the {self.chosen_sets} chosen of {self.sets} sets, "
                f"which must divide the {self.targets} targets"
            )
            raise WorkloadError(msg)

    def nodes_visited(self, nodes: int) -> float:
        """Return how many of so many nodes a token goes to on average.

        Notes
        -----
        Every choice of sets, and of targets within them, is taken to be as likely. A node with t targets in a
        sets is missed with probability sum_i P(i of its sets chosen) C(reached - i t/a, k) / C(reached, k),
        P hypergeometric. With sets as nodes this is the node-limited routing of DeepSeek-V3
        (arXiv:2412.19437, section 2.1.2).
        """
        size = self.targets // self.sets
        reached = size * self.chosen_sets
        here = self.targets // nodes
        own = max(1, here // size)
        ways = math.comb(self.sets, self.chosen_sets)
        missed = 0.0
        for met in range(min(own, self.chosen_sets) + 1):
            chance = math.comb(own, met) * math.comb(self.sets - own, self.chosen_sets - met) / ways
            left = reached - met * (here // own)
            missed += chance * math.comb(left, self.copies) / math.comb(reached, self.copies)
        return nodes * (1.0 - missed)


class Phase(StrEnum):
    """Part of a training step that an operator belongs to."""

    FORWARD = "forward"
    GRAD_INPUT = "grad_input"
    GRAD_WEIGHT = "grad_weight"
    UPDATE = "update"


class Held(StrEnum):
    """Operand of a product that may stay in a core while the other streams past."""

    NONE = "none"
    A = "a"
    B = "b"


class Role(StrEnum):
    """Role of an operator in a transformer, by which it is fused, cast, cut, computed again or measured.

    A value is the name that tables and traces show; nothing is chosen by that name.
    """

    OTHER = "other"
    ATTENTION_NORM = "attention.norm"
    ATTENTION_QKV = "attention.qkv"
    ATTENTION_LATENTS = "attention.latents"
    ATTENTION_LATENT_NORMS = "attention.latent_norms"
    ATTENTION_QUERIES = "attention.queries"
    ATTENTION_KEYS_VALUES = "attention.keys_values"
    ATTENTION_POSITIONS = "attention.positions"
    ATTENTION_QK_NORMS = "attention.qk_norms"
    ATTENTION_ROTARY = "attention.rotary"
    ATTENTION_SCORES = "attention.scores"
    ATTENTION_POSITION_SCORES = "attention.position_scores"
    ATTENTION_SOFTMAX = "attention.softmax"
    ATTENTION_DROPOUT = "attention.dropout"
    ATTENTION_VALUES = "attention.values"
    ATTENTION_OUTPUT = "attention.output"
    ATTENTION_POST_NORM = "attention.post_norm"
    ATTENTION_RESIDUAL = "attention.residual"
    MLP_NORM = "mlp.norm"
    MLP_ROUTER = "mlp.router"
    MLP_GATES = "mlp.gates"
    MLP_DISPATCH = "mlp.dispatch"
    MLP_SORT = "mlp.sort"
    MLP_GATE_UP = "mlp.gate_up"
    MLP_UP = "mlp.up"
    MLP_CLAMP = "mlp.clamp"
    MLP_CLAMPED = "mlp.clamped"
    MLP_ACTIVATION = "mlp.activation"
    MLP_KEPT_CAST = "mlp.kept_cast"
    MLP_DOWN = "mlp.down"
    MLP_EXPERT_BIAS = "mlp.expert_bias"
    MLP_COMBINE = "mlp.combine"
    MLP_POST_NORM = "mlp.post_norm"
    MLP_RESIDUAL = "mlp.residual"
    BLOCK_NORM = "block.norm"
    BLOCK_RESIDUAL = "block.residual"
    EMBEDDING_LOOKUP = "embedding.lookup"
    EMBEDDING_POSITIONS = "embedding.positions"
    EMBEDDING_NORM = "embedding.norm"
    HEAD_NORM = "head.norm"
    HEAD_JOIN = "head.join"
    HEAD_LOGITS = "head.logits"
    HEAD_LOSS = "head.loss"
    RETRIEVAL_LOOKUP = "retrieval.lookup"
    RETRIEVAL_NORM = "retrieval.norm"
    RETRIEVAL_QKV = "retrieval.qkv"
    RETRIEVAL_QUERIES = "retrieval.queries"
    RETRIEVAL_KEYS_VALUES = "retrieval.keys_values"
    RETRIEVAL_POSITIONS = "retrieval.positions"
    RETRIEVAL_SCORES = "retrieval.scores"
    RETRIEVAL_POSITION_SCORES = "retrieval.position_scores"
    RETRIEVAL_SOFTMAX = "retrieval.softmax"
    RETRIEVAL_VALUES = "retrieval.values"
    RETRIEVAL_OUTPUT = "retrieval.output"
    RETRIEVAL_UP = "retrieval.up"
    RETRIEVAL_ACTIVATION = "retrieval.activation"
    RETRIEVAL_DOWN = "retrieval.down"
    RETRIEVAL_RESIDUAL = "retrieval.residual"


SCORES = frozenset(
    {
        Role.ATTENTION_SCORES,
        Role.ATTENTION_POSITION_SCORES,
        Role.RETRIEVAL_SCORES,
        Role.RETRIEVAL_POSITION_SCORES,
    }
)
"""Products of queries with keys, and with encodings of positions."""
VALUES = frozenset({Role.ATTENTION_VALUES, Role.RETRIEVAL_VALUES})
"""Products of attention's weights with values."""


class CollectiveKind(StrEnum):
    """Kind of a collective of a group of ranks."""

    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    SEND = "send"
    PUSH = "push"
    PULL = "pull"


class Lane(StrEnum):
    """Ways between an accelerator's memory, that of its host, and the host's storage."""

    TO_HOST = "to_host"
    FROM_HOST = "from_host"
    TO_STORAGE = "to_storage"
    FROM_STORAGE = "from_storage"


@dataclass(frozen=True, kw_only=True, slots=True)
class MatMul:
    """A batched matrix product C[batch, m, n] = A[batch, m, k] B[batch, k, n] on one rank."""

    name: str
    """What the product is, for people."""
    phase: Phase
    """Forward, or one of the two backward products."""
    batch: int
    """Number of independent products."""
    m: int
    """Rows of A and C."""
    k: int
    """Columns of A, rows of B."""
    n: int
    """Columns of B and C."""
    held: Held = Held.NONE
    """Operand that is a weight, hence may stay in the core; none for attention and weight gradients."""
    element_bytes: float = 2
    """Bytes of one stored element of A, B and C, with its share of a block's scale where it has one."""
    result_bytes: float = 0.0
    """Bytes that an element of C moves, where they are others (0: as many): sums in single precision are read
    and written, and narrow operands make wide results."""
    on_chip: Matrices = Matrices.NONE
    """What never leaves the chip: the score matrix of a fused attention kernel."""
    sparse: bool = False
    """Whether of four neighbours in B two are zero and not stored, so that a unit that can may skip them."""
    role: Role = Role.OTHER
    """What it is in a transformer."""
    replayed: bool = False
    """Whether it is part of a graph that the host launches whole, so that it need not issue it."""

    def __post_init__(self) -> None:
        if not isinstance(self.on_chip, Matrices):
            msg = f"MatMul '{self.name}': on_chip must be Matrices; got {self.on_chip!r}"
            raise WorkloadError(msg)
        for name in ("batch", "m", "k", "n"):
            if getattr(self, name) < 1:
                msg = f"MatMul '{self.name}': {name} must be at least 1; got {getattr(self, name)}"
                raise WorkloadError(msg)
        if not self.element_bytes > 0:
            msg = f"MatMul '{self.name}': element_bytes must be above 0; got {self.element_bytes}"
            raise WorkloadError(msg)

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return self.batch * self.m * self.k * self.n

    @property
    def flops(self) -> int:
        """Floating-point operations, two per multiply-accumulate, those with zeros of a sparse B counted."""
        return 2 * self.macs

    @property
    def operand_bytes(self) -> float:
        """Bytes read (A and B) and written (C) when each that leaves the chip is touched once."""
        a, b, c = self.elements_off_chip
        return self.batch * ((a + b) * self.element_bytes + c * self.moved_per_result)

    @property
    def moved_per_result(self) -> float:
        """Bytes that an element of C moves."""
        return self.result_bytes or self.element_bytes

    @property
    def elements_off_chip(self) -> tuple[int, int, int]:
        """Elements of A, B and C of one product that cross the memory's interface."""
        return elements_off_chip(
            (self.m * self.k, self.k * self.n, self.m * self.n),
            element_bytes=self.element_bytes,
            on_chip=self.on_chip,
            sparse=self.sparse,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Elementwise:
    """Work without a product: norms, softmax, activations, embedding look-up, optimizer."""

    name: str
    """What is done, for people."""
    phase: Phase
    """Part of the step."""
    flops: float
    """Arithmetic operations."""
    read_bytes: float
    """Bytes read from memory."""
    written_bytes: float
    """Bytes written to memory."""
    issued: int = 1
    """Operators of a framework that it stands for, which the host issues one by one."""
    kernels: int = 0
    """Kernels that they take in all beyond one each."""
    role: Role = Role.OTHER
    """What it is in a transformer."""
    casts: Role = Role.OTHER
    """Product whose operand it writes in that product's format, if it is such a cast."""
    replayed: bool = False
    """Whether it is part of a graph that the host launches whole, so that it need not issue it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
    """A communication of every rank of a class with its group along one axis of parallelism."""

    name: str
    """What is communicated, for people."""
    phase: Phase
    """Part of the step."""
    kind: CollectiveKind
    """What is done."""
    axis: str
    """Axis of parallelism whose groups take part, as `RankLayout.groups` knows them, or ``pp``."""
    size: int
    """Ranks in a group (2 for a send)."""
    payload_bytes: float
    """Bytes per rank before it: its shard for an all-gather, a send's message, else the whole vector."""
    shift: int = 0
    """For a send: how many places along the axis the receiver stands from the sender."""
    two_level: bool = False
    """For an all-to-all over several nodes: whether it goes within nodes and between them in turn."""
    spread: Spread | None = None
    """With two levels: where copies of a token go, if it is sent to each node once."""
    skew: Skew | None = None
    """For an all-to-all: what goes to whom, if not the same to everybody."""
    algorithm: str = ""
    """How it must be carried out (a value of `Algorithm`); empty for the fastest."""
    servers: int = 0
    """For a push or a pull: how many of the group's ranks hold a share of the vector."""
    role: Role = Role.OTHER
    """What it is in a transformer."""

    def __post_init__(self) -> None:
        if type(self.kind) is not CollectiveKind:
            msg = (
                f"collective '{self.name}' cannot be {self.kind!r}; its kind is a CollectiveKind: "
                f"{', '.join(CollectiveKind)}"
            )
            raise WorkloadError(msg)

    @property
    def terms(self) -> tuple[object, ...]:
        """All that its price goes by, its payload and its class apart."""
        return (
            self.kind,
            self.axis,
            self.size,
            self.shift,
            self.two_level,
            self.spread,
            self.skew,
            self.algorithm,
            self.servers,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlapped:
    """A product cut into pieces, with a collective that travels beside all of them but some.

    Notes
    -----
    A ring of n ranks passes n - 1 shards on, each while the shard before is multiplied: with p pieces of g
    seconds, of which a run alone, and a collective of C seconds the whole takes a g + max((p - a) g, C). With
    p = a = 1 nothing overlaps; with a = 0 the collective has nothing to do with the product.
    """

    product: MatMul
    """One piece of the product."""
    pieces: int
    """How many there are."""
    alone: int
    """Pieces during which nothing can travel: the first has yet to be made, or the last to arrive."""
    collective: Collective
    """All that travels."""

    def __post_init__(self) -> None:
        if not 0 <= self.alone <= self.pieces or self.pieces < 1:
            msg = (
                f"Overlapped '{self.product.name}': alone ({self.alone}) must be from 0 to pieces "
                f"({self.pieces}), which must be at least 1"
            )
            raise WorkloadError(msg)

    @property
    def name(self) -> str:
        """Name of the product."""
        return self.product.name

    @property
    def phase(self) -> Phase:
        """Part of the step."""
        return self.product.phase

    @property
    def beside(self) -> int:
        """Pieces beside which the collective travels."""
        return self.pieces - self.alone


@dataclass(frozen=True, kw_only=True, slots=True)
class Sequence:
    """Operators that a rank runs back to back, each run waiting for the one before."""

    name: str
    """What the run is, e.g. ``"forward"``."""
    phase: Phase
    """Part of the step."""
    items: tuple[tuple[MatMul | Elementwise | Collective | Overlapped, int], ...]
    """Operators in order, each with how often it is repeated (identical layers)."""
    microbatch: int = 0
    """Which microbatch it works on."""
    chunk: int = 0
    """Which chunk of its stage it runs through."""
    ring: tuple[Collective, ...] = ()
    """Traffic of context ranks before each of its identical layers, which other tasks carry before the first:
    circuits turn to it between layers, too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Transfer:
    """Bytes of one rank that move between accelerator, host and the host's storage, beside compute."""

    name: str
    """What is moved, e.g. ``"gradients"``."""
    phase: Phase
    """Part of the step."""
    lane: Lane
    """Which way; transfers of a class on one lane follow each other."""
    moved_bytes: float
    """Bytes of one rank."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostWork:
    """Work of one rank that the processors of its host do, beside the accelerator's."""

    name: str
    """What is done, e.g. ``"adam"``."""
    phase: Phase
    """Part of the step."""
    flops: float
    """Arithmetic operations."""
    read_bytes: float
    """Bytes read from the host's memory."""
    written_bytes: float
    """Bytes written to the host's memory."""


def takes_units(operator: Operator) -> bool:
    """Return whether an operator, beside its class's compute, takes units from it.

    Notes
    -----
    Gathers of parameters and sums of gradients are kernels of the library. Sends and what parameter servers
    push and pull hardly add up anything; expert exchanges that run beside work have kernels of their own.
    """
    return (
        isinstance(operator, Collective)
        and operator.axis in COPIES
        and operator.kind not in {CollectiveKind.PUSH, CollectiveKind.PULL}
    )


Operator = MatMul | Elementwise | Collective | Overlapped | Sequence | Transfer | HostWork
BESIDE = Collective | Transfer | HostWork
"""Operators that run beside a class's compute, not in its order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One operator on one class of identical ranks, after other tasks."""

    id: int
    """Unique within the graph."""
    rank_class: int
    """Class of identical ranks that runs it (its sender, for a send)."""
    operator: Operator
    """What is run."""
    after: tuple[int, ...] = ()
    """Ids of the tasks that must have finished."""
    multiplicity: int = 1
    """How often the operator is run back to back."""
    priority: int = 0
    """Order on the class's compute stream; lower first. Ties go by id."""
    beside: bool = False
    """Whether it runs beside the compute stream as soon as it can, one such task at a time: the work of a
    server that lives on the same ranks."""


@dataclass(frozen=True, kw_only=True)
class StepGraph:
    """One training step, or several in a row, as tasks on classes of identical ranks.

    Raises
    ------
    WorkloadError
        If ids repeat, a dependency is missing, a class does not exist, or the graph has a cycle.
    """

    tasks: tuple[Task, ...]
    """All tasks."""
    layout: RankLayout
    """Which ranks form which groups; class *c* is pipeline stage *c*."""
    tokens: int
    """Tokens that the step trains on."""
    model_flops: float = 0.0
    """Floating-point operations of the model itself (no recomputation), for utilisation."""
    dropped_share: float = 0.0
    """Share of the tokens' visits to experts that are left out because the expert is full, 0 to 1."""
    ends: tuple[tuple[int, ...], ...] = ()
    """Where the graph holds several steps: the tasks that end each, in order. `tokens` and `model_flops` are
    those of one step all the same."""
    period: int = 1
    """Steps after which such a run repeats itself."""

    def __post_init__(self) -> None:
        known = {task.id for task in self.tasks}
        if len(known) != len(self.tasks):
            msg = "step graph: task ids repeat; give every task its own id"
            raise WorkloadError(msg)
        earlier: set[int] = set()
        classes, in_order = self.layout.classes, True
        for task in self.tasks:
            if not earlier.issuperset(task.after):
                in_order = False
                missing = [other for other in task.after if other not in known]
                if missing:
                    msg = f"step graph: task {task.id} waits for task {missing[0]}, which does not exist"
                    raise WorkloadError(msg)
            if not 0 <= task.rank_class < classes:
                msg = f"step graph: task {task.id} is on class {task.rank_class} of {classes}"
                raise WorkloadError(msg)
            earlier.add(task.id)
        for end in (end for ends in self.ends for end in ends):
            if end not in known:
                msg = f"step graph: a step ends with task {end}, which does not exist"
                raise WorkloadError(msg)
        if not in_order:
            topological_order(self.tasks)

    @property
    def ranks(self) -> int:
        """Accelerators that take part."""
        return self.layout.ranks


class Waits(Protocol):
    """A task, of a step or of a recorded graph."""

    @property
    def id(self) -> int:
        """Its number."""
        ...

    @property
    def after(self) -> tuple[int, ...]:
        """Numbers of the tasks that it waits for."""
        ...


TaskT = TypeVar("TaskT", bound=Waits)


def topological_order(tasks: abc.Sequence[TaskT], name: str = "step graph") -> list[TaskT]:
    """Return the tasks of a named graph so that each stands after those it waits for.

    Raises
    ------
    WorkloadError
        If the dependencies form a cycle.
    """
    waiting = {task.id: len(task.after) for task in tasks}
    followers: dict[int, list[TaskT]] = {task.id: [] for task in tasks}
    for task in tasks:
        for other in task.after:
            followers[other].append(task)
    order = [task for task in tasks if not task.after]
    for task in order:  # which grows by those that nothing holds back any more
        for follower in followers[task.id]:
            waiting[follower.id] -= 1
            if waiting[follower.id] == 0:
                order.append(follower)
    if len(order) != len(tasks):
        stuck = sorted(identifier for identifier, count in waiting.items() if count > 0)
        msg = f"{name}: tasks {stuck[:5]} wait for each other in a cycle"
        raise WorkloadError(msg)
    return order


def total_flops(operator: Operator) -> float:
    """Return the floating-point operations of an operator, communication counting none."""
    match operator:
        case MatMul():
            return float(operator.flops)
        case Elementwise():
            return operator.flops
        case Overlapped():
            return float(operator.product.flops * operator.pieces)
        case Sequence():
            return math.fsum(total_flops(item) * repeat for item, repeat in operator.items)
        case _:
            return 0.0


def communications(operator: Operator) -> list[tuple[Collective, int]]:
    """Return the collectives of an operator and how often each is run."""
    match operator:
        case Sequence():
            return [
                (found, count * repeat)
                for one, repeat in operator.items
                for found, count in communications(one)
            ]
        case Overlapped():
            return [(operator.collective, 1)]
        case Collective():
            return [(operator, 1)]
        case _:
            return []


@dataclass(frozen=True, kw_only=True, eq=False)
class MatMuls:
    """Batched matrix products of one phase and storage, C[batch, m, n] = A[batch, m, k] B[batch, k, n] each.

    Notes
    -----
    Sizes are whole numbers, kept as floats: counts of events stay exact up to 2^53, and do not wrap around
    beyond.
    """

    m: Amount
    """Rows of A and C; whole numbers of at least 1, shape (products,) or one for all, as for all four."""
    k: Amount
    """Columns of A, rows of B."""
    n: Amount
    """Columns of B and C."""
    batch: Amount = 1
    """Number of independent products in each."""
    phase: Phase = Phase.FORWARD
    """Forward, or one of the two backward products."""
    held: Held = Held.NONE
    """Operand that is a weight."""
    element_bytes: float = 2
    """Bytes of one stored element of A, B and C, with its share of a block's scale where it has one."""
    result_bytes: float = 0.0
    """Bytes that an element of C moves, where they are others (0: as many): sums in single precision are read
    and written, and narrow operands make wide results."""
    on_chip: Matrices = Matrices.NONE
    """What never leaves the chip."""
    sparse: bool = False
    """Whether of four neighbours in B two are zero and not stored."""

    def __post_init__(self) -> None:
        names = ("m", "k", "n", "batch")
        sizes = [np.atleast_1d(np.asarray(getattr(self, name), dtype=float)) for name in names]
        count = max(size.size for size in sizes)
        for name, size in zip(names, sizes, strict=True):
            if size.ndim > 1 or size.size not in (1, count) or not size.size:
                msg = f"MatMuls: {name} must be one number, or {count} in a row; got shape {size.shape}"
                raise WorkloadError(msg)
            wrong = size[~(size >= 1.0) | (size != np.floor(size)) | np.isinf(size)]
            if wrong.size:
                msg = f"MatMuls: {name} must be whole and at least 1; got {wrong[0]:g}"
                raise WorkloadError(msg)
            whole = np.broadcast_to(size, (count,)).copy()
            whole.flags.writeable = False
            object.__setattr__(self, name, whole)
        self.one(0)  # what all share is checked where it is defined

    @property
    def moved_per_result(self) -> float:
        """Bytes that an element of C moves."""
        return self.result_bytes or self.element_bytes

    @property
    def elements_off_chip(self) -> tuple[Reals, Reals, Reals]:
        """Elements of A, B and C that cross the memory's interface, shape (products,) each."""
        m, k, n = (np.asarray(size) for size in (self.m, self.k, self.n))
        return elements_off_chip(
            (m * k, k * n, m * n),
            element_bytes=self.element_bytes,
            on_chip=self.on_chip,
            sparse=self.sparse,
        )

    def __len__(self) -> int:
        return np.size(self.m)

    def one(self, index: int) -> MatMul:
        """Return one of the products."""
        m, k, n, batch = (int(np.asarray(size)[index]) for size in (self.m, self.k, self.n, self.batch))
        return MatMul(
            name=f"product {index}",
            phase=self.phase,
            batch=batch,
            m=m,
            k=k,
            n=n,
            held=self.held,
            element_bytes=self.element_bytes,
            result_bytes=self.result_bytes,
            on_chip=self.on_chip,
            sparse=self.sparse,
        )


Products = MatMul | MatMuls
"""One product, or many."""
