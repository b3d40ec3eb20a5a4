"""Operators, tasks and the graph of a training step, which the workload hands to the engine.

`StepGraph` holds `Task`s, each an `Operator` on a class of identical ranks: a product (`MatMul`), work
without one (`Elementwise`), a `Collective`, a product with a collective beside it (`Overlapped`), a
`Sequence` of these, a `Transfer` or `HostWork`. An uneven all-to-all has a `Skew` (bytes per pair of members)
or a `Spread` (nodes that copies of a token visit).
"""

from __future__ import annotations

import math
from collections import abc
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Protocol, TypeVar

import numpy as np

from simulator.amounts import Matrices
from simulator.errors import WorkloadError
from simulator.layout import COPIES, RankLayout

GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
"""Golden section, whose multiples modulo one are evenly spread (Knuth, The Art of Computer Programming,
volume 3, section 6.4, theorem S)."""
MOST_PASSES = 1000
"""Most iterations of the scaling of rows and columns in `_skew_matrix`."""
_HALVINGS = 200
"""Steps of the bisection in `geometric_loads`; past double precision."""
BALANCED = 1e-9
"""Tolerance of the column sums, over the mean column."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Skew:
    """Traffic matrix of an uneven all-to-all among n members, such as the dispatch of tokens to experts.

    Notes
    -----
    All members send the same amount (rows). Received amounts are in proportion to `loads` (columns). Within
    these sums, each member prefers some members to others by `affinity`: the matrix is the one nearest to
    these preferences, found by scaling columns and rows in turn (Sinkhorn, Ann. Math. Statist. 35 (1964)
    876).

    A member's preferences fall geometrically over the other members, in an order that the golden section
    spreads over the group, so that favourites are neither all near nor all far. Blocks of a model may have
    different matrices, `patterns` in number: in pattern k, the busy members and everybody's first favourite
    are shifted by k/`patterns` of the group.
    """

    loads: tuple[float, ...]
    """Received amount of each member over the mean, shape [n]; mean 1, dimensionless."""
    affinity: float = 1.0
    """Preference for the first favourite over the mean preference; 1 for none. Dimensionless."""
    returns: bool = False
    """Whether the exchange returns what another one sent, with the transposed matrix."""
    pattern: int = 0
    """Number of the pattern, from 0."""
    patterns: int = 1
    """Number of patterns, which the blocks of a model use in turn; 1 if all blocks are alike."""

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
        """Whether all pairs exchange equally much."""
        return self.affinity == 1.0 and len(set(self.loads)) == 1

    def turned(self) -> Skew:
        """Return the skew of the exchange in the opposite direction."""
        return replace(self, returns=not self.returns)

    @property
    def every(self) -> tuple[Skew, ...]:
        """Skews of all patterns, in the same direction."""
        return tuple(replace(self, pattern=pattern) for pattern in range(self.patterns))

    def matrix(self) -> np.ndarray:
        """Return the traffic from each member (row) to each (column) over the mean of all pairs, [n, n]."""
        traffic = _skew_matrix(self.loads, self.affinity, self.pattern, self.patterns)
        return traffic.T if self.returns else traffic


def geometric_loads(count: int, peak: float) -> tuple[float, ...]:
    """Return `count` loads of mean 1 that fall geometrically from `peak`, 1 to `count`.

    Notes
    -----
    With a single parameter, geometric loads reach from equal ones (ratio 1) to a single one that has all
    (ratio 0). The root r of peak = count (1 - r) / (1 - r^count) is found by bisection.
    """

    def first(ratio: float) -> float:
        """Return the first of `count` loads of mean 1 that fall by a ratio."""
        return count / math.fsum(ratio**power for power in range(count))

    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if first(middle) > peak else (low, middle)
    ratio = (low + high) / 2
    return tuple(first(ratio) * ratio**power for power in range(count))


@lru_cache(maxsize=64)
def _skew_matrix(loads: tuple[float, ...], affinity: float, pattern: int, patterns: int) -> np.ndarray:
    """Return the traffic matrix of a `Skew`, shape [n, n]; rows sum to n, columns to n times their load."""
    n = len(loads)
    column_sums = np.roll(loads, pattern * n // patterns) * (n * n / math.fsum(loads))
    preference = np.ones(n)  # by the receiver's position behind the sender, modulo n
    if affinity > 1.0:
        favourites = np.roll(spread_places(n)[1:], -(pattern * (n - 1) // patterns))
        preference[favourites] = geometric_loads(n - 1, affinity)
    members = np.arange(n)
    traffic = preference[(members - members[:, None]) % n] * column_sums
    for _ in range(MOST_PASSES):
        sums = traffic.sum(axis=0)
        traffic = traffic * np.divide(column_sums, sums, out=np.ones(n), where=sums > 0.0)
        traffic = traffic * (n / traffic.sum(axis=1, keepdims=True))
        if np.abs(traffic.sum(axis=0) - column_sums).max() <= BALANCED * n:
            break
    traffic.flags.writeable = False
    return traffic


def spread_places(count: int) -> np.ndarray:
    """Return a permutation of 0 to `count` - 1 whose neighbours lie far apart, 0 first; shape [count].

    Notes
    -----
    Multiples, modulo the count, of the coprime number that is nearest to its golden section.
    """
    golden = GOLDEN * count
    coprime = (number for number in range(1, count + 1) if math.gcd(number, count) == 1)
    step = min(coprime, key=lambda number: abs(number - golden))
    return (step * np.arange(count)) % count


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Choice of experts for the copies of one token; the members of a group hold the experts evenly."""

    targets: int
    """Targets (experts) over the whole group."""
    copies: int
    """Different targets that a token goes to."""
    sets: int = 1
    """Sets of neighbouring targets, of which a token chooses some first."""
    chosen_sets: int = 1
    """Number of sets that it chooses."""

    def __post_init__(self) -> None:
        reached = self.targets // self.sets * self.chosen_sets if self.sets > 0 else 0
        if self.targets % max(self.sets, 1) or not 1 <= self.copies <= reached:
            msg = (
                f"a token's {self.copies} copies must fit the {self.chosen_sets} chosen of {self.sets} sets, "
                f"which must divide the {self.targets} targets"
            )
            raise WorkloadError(msg)

    def nodes_visited(self, nodes: int) -> float:
        """Return the mean number of nodes, of `nodes` in all, that a token goes to.

        Notes
        -----
        All choices of sets, and of targets within them, are equally likely. A node whose t targets lie in a
        sets is missed with probability sum_i P(i) C(r - i t/a, k) / C(r, k), where P(i) is the hypergeometric
        probability that i of its sets are chosen, r the number of targets in the chosen sets and k the number
        of copies. With sets as nodes this is the node-limited routing of DeepSeek-V3 (arXiv:2412.19437,
        section 2.1.2).
        """
        set_size = self.targets // self.sets
        reachable = set_size * self.chosen_sets
        node_targets = self.targets // nodes
        node_sets = max(1, node_targets // set_size)
        choices = math.comb(self.sets, self.chosen_sets)
        missed = 0.0
        for chosen in range(min(node_sets, self.chosen_sets) + 1):
            others = math.comb(self.sets - node_sets, self.chosen_sets - chosen)
            probability = math.comb(node_sets, chosen) * others / choices
            elsewhere = reachable - chosen * (node_targets // node_sets)
            missed += probability * math.comb(elsewhere, self.copies) / math.comb(reachable, self.copies)
        return nodes * (1.0 - missed)


class Phase(StrEnum):
    """Part of a training step that an operator belongs to."""

    FORWARD = "forward"
    GRAD_INPUT = "grad_input"
    GRAD_WEIGHT = "grad_weight"
    UPDATE = "update"


class Held(StrEnum):
    """Operand of a product that may stay in a core while the other operand streams past."""

    NONE = "none"
    A = "a"
    B = "b"


class Role(StrEnum):
    """Role of an operator in a transformer, by which it is fused, cast, cut, recomputed or measured.

    The text of a role is for tables and traces only.
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
    ATTENTION_GATE = "attention.gate"
    ATTENTION_OUTPUT = "attention.output"
    ATTENTION_POST_NORM = "attention.post_norm"
    ATTENTION_RESIDUAL = "attention.residual"
    STATE_INPUT = "state.input"
    STATE_LATENTS = "state.latents"
    STATE_CONVOLUTION = "state.convolution"
    STATE_SELECTED = "state.selected"
    STATE_SELECTION = "state.selection"
    STATE_KEYS = "state.keys"
    STATE_SOLVE = "state.solve"
    STATE_CORRECTED = "state.corrected"
    STATE_SCORES = "state.scores"
    STATE_DECAY = "state.decay"
    STATE_UPDATE = "state.update"
    STATE_SCAN = "state.scan"
    STATE_RECALL = "state.recall"
    STATE_READ = "state.read"
    STATE_VALUES = "state.values"
    STATE_GATE = "state.gate"
    STATE_OUTPUT = "state.output"
    MLP_NORM = "mlp.norm"
    MLP_ROUTER = "mlp.router"
    MLP_GATES = "mlp.gates"
    MLP_LATENT = "mlp.latent"
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
    HEAD_LOGGED_LOSS = "head.logged_loss"
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
        Role.STATE_KEYS,
        Role.STATE_SCORES,
    }
)
"""Products of queries with keys, of keys with keys, and with encodings of positions."""
STATES = frozenset(
    {Role.STATE_CORRECTED, Role.STATE_UPDATE, Role.STATE_RECALL, Role.STATE_READ, Role.STATE_VALUES}
)
"""Products of two activations in a recurrence, but for those that make scores."""
CHUNKED = STATES | {Role.STATE_KEYS, Role.STATE_SCORES}
"""All products of two activations in a recurrence, whose kernels are not those of attention."""
VALUES = frozenset({Role.ATTENTION_VALUES, Role.RETRIEVAL_VALUES}) | STATES
"""Products of attention's weights with values, and those of states."""


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
    """Direction of a transfer between an accelerator's memory, its host's memory, and the host's storage."""

    TO_HOST = "to_host"
    FROM_HOST = "from_host"
    TO_STORAGE = "to_storage"
    FROM_STORAGE = "from_storage"


@dataclass(frozen=True, kw_only=True, slots=True)
class MatMul:
    """A batched matrix product C[batch, m, n] = A[batch, m, k] B[batch, k, n] on one rank."""

    name: str
    """Name shown in tables and traces."""
    phase: Phase
    """Forward product, or one of the two backward products."""
    batch: int
    """Number of independent products."""
    m: int
    """Rows of A and C."""
    k: int
    """Columns of A, rows of B."""
    n: int
    """Columns of B and C."""
    held: Held = Held.NONE
    """Operand that is a weight and so may stay in the core; none for attention and weight gradients."""
    element_bytes: float = 2
    """Bytes of one stored element of A, B and C, including its share of a block's scale."""
    result_bytes: float = 0.0
    """Bytes moved per element of C, or 0 for `element_bytes`. More where C is added to a sum in memory, which
    is read and written in single precision, or where results are wider than operands."""
    on_chip: Matrices = Matrices.NONE
    """Matrices that never leave the chip, such as the scores of a fused attention kernel."""
    sparse: bool = False
    """Whether two of four neighbours in B are zero and not stored (2:4 sparsity)."""
    role: Role = Role.OTHER
    """Role in a transformer."""
    replayed: bool = False
    """Whether it is part of a graph that the host launches as a whole, so that issuing it takes no time."""

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
        """Bytes read (A and B) and written (C) if each matrix off the chip is touched once."""
        a, b, c = self.elements_off_chip
        return self.batch * ((a + b) * self.element_bytes + c * self.moved_per_result)

    @property
    def moved_per_result(self) -> float:
        """Bytes that an element of C moves."""
        return self.result_bytes or self.element_bytes

    @property
    def elements_off_chip(self) -> tuple[int, int, int]:
        """Elements of A, B and C of one product of the batch that cross the memory's interface.

        Of a sparse B half is stored, each element with an index of two bits.
        """
        a, b, c = self.m * self.k, self.k * self.n, self.m * self.n
        if self.sparse:
            bits = int(8 * self.element_bytes)
            b = -(-b * (bits + 2) // (2 * bits))
        return (
            0 if Matrices.A in self.on_chip else a,
            0 if Matrices.B in self.on_chip else b,
            0 if Matrices.C in self.on_chip else c,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Elementwise:
    """Work without a product: norms, softmax, activations, embedding look-up, optimizer."""

    name: str
    """Name shown in tables and traces."""
    phase: Phase
    """Part of the step."""
    flops: float
    """Arithmetic operations."""
    read_bytes: float
    """Bytes read from memory."""
    written_bytes: float
    """Bytes written to memory."""
    issued: int = 1
    """Number of framework operators that it stands for, each issued by the host."""
    kernels: int = 0
    """Number of kernels beyond one for each of these operators."""
    role: Role = Role.OTHER
    """Role in a transformer."""
    casts: Role = Role.OTHER
    """Role of the product whose operand it converts to that product's format; OTHER if it is no cast."""
    exponentials: float = 0.0
    """Exponentials among the operations of a kernel that also multiplies, for which a GPU has few units."""
    replayed: bool = False
    """Whether it is part of a graph that the host launches as a whole, so that issuing it takes no time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
    """Communication of every rank of a class with its group along one axis of parallelism."""

    name: str
    """Name shown in tables and traces."""
    phase: Phase
    """Part of the step."""
    kind: CollectiveKind
    """Kind of collective."""
    axis: str
    """Axis of parallelism whose groups take part, as in `RankLayout.groups`, or ``pp``."""
    size: int
    """Ranks in a group (2 for a send)."""
    payload_bytes: float
    """Bytes per rank before it: a rank's shard for an all-gather, the message of a send, else the vector."""
    shift: int = 0
    """Of a send, the position of the receiver along the axis relative to the sender."""
    two_level: bool = False
    """Of an all-to-all over several nodes, whether it runs between nodes and within nodes in turn."""
    spread: Spread | None = None
    """Of a two-level all-to-all that sends a token to each node once, the targets of its copies."""
    skew: Skew | None = None
    """Traffic matrix of an all-to-all; None if all pairs exchange equally much."""
    algorithm: str = ""
    """Algorithm to be used (a value of `Algorithm`); empty for the fastest."""
    servers: int = 0
    """Of a push or a pull, the number of the group's ranks that hold a share of the vector."""
    role: Role = Role.OTHER
    """Role in a transformer."""

    def __post_init__(self) -> None:
        if type(self.kind) is not CollectiveKind:
            msg = (
                f"collective '{self.name}' cannot be {self.kind!r}; its kind is a CollectiveKind: "
                f"{', '.join(CollectiveKind)}"
            )
            raise WorkloadError(msg)

    @property
    def terms(self) -> tuple[object, ...]:
        """Fields that its duration depends on, other than the payload and the class."""
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
    """Product in pieces, with a collective that runs beside some of them.

    Notes
    -----
    A ring of n ranks passes on n - 1 shards, each while the shard before is multiplied. With p pieces of g
    seconds, a of which run alone, and a collective of C seconds the whole takes a g + max((p - a) g, C). With
    p = a = 1 nothing overlaps; with a = 0 the collective is independent of the product.
    """

    product: MatMul
    """One piece of the product."""
    pieces: int
    """Number of pieces."""
    alone: int
    """Pieces beside which the collective cannot run: data are not computed yet, or must be complete."""
    collective: Collective
    """The collective as a whole."""

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
        """Pieces beside which the collective runs."""
        return self.pieces - self.alone


@dataclass(frozen=True, kw_only=True, slots=True)
class Sequence:
    """Operators that a rank runs one after the other, such as a pass through a chunk."""

    name: str
    """Name shown in traces, e.g. ``"forward"``."""
    phase: Phase
    """Part of the step."""
    items: tuple[tuple[MatMul | Elementwise | Collective | Overlapped, int], ...]
    """Operators in order, each with its number of repetitions (identical layers)."""
    microbatch: int = 0
    """Number of the microbatch."""
    chunk: int = 0
    """Number of the chunk of its stage."""
    ring: tuple[Collective, ...] = ()
    """Ring exchanges of context ranks that run before each layer, so that circuits turn to them between
    layers; before the first layer they are tasks of their own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Transfer:
    """Transfer between accelerator, host and the host's storage, beside compute."""

    name: str
    """Data that move, e.g. ``"gradients"``."""
    phase: Phase
    """Part of the step."""
    lane: Lane
    """Direction; transfers of a class in one direction run one after the other."""
    moved_bytes: float
    """Bytes of one rank."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostWork:
    """Work of the host's processors for one rank, beside the accelerator's compute."""

    name: str
    """Name shown in tables and traces, e.g. ``"adam"``."""
    phase: Phase
    """Part of the step."""
    flops: float
    """Arithmetic operations."""
    read_bytes: float
    """Bytes read from the host's memory."""
    written_bytes: float
    """Bytes written to the host's memory."""


def takes_units(operator: Operator) -> bool:
    """Return whether an operator that runs beside compute takes compute units (SMs) from it.

    Notes
    -----
    Gathers of parameters and sums of gradients do: the communication library's kernels run on SMs. Sends,
    pushes and pulls need hardly any; expert exchanges that overlap with work have kernels of their own.
    """
    return (
        isinstance(operator, Collective)
        and operator.axis in COPIES
        and operator.kind not in {CollectiveKind.PUSH, CollectiveKind.PULL}
    )


Operator = MatMul | Elementwise | Collective | Overlapped | Sequence | Transfer | HostWork
BESIDE = Collective | Transfer | HostWork
"""Operators that run beside a class's compute stream rather than on it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """Node of a step graph: an operator on one class of identical ranks."""

    id: int
    """Id, unique within the graph."""
    rank_class: int
    """Class of identical ranks that runs it; the sending class of a send."""
    operator: Operator
    """Operator to run."""
    after: tuple[int, ...] = ()
    """Ids of the tasks that must have finished before it."""
    multiplicity: int = 1
    """Number of times that the operator runs, back to back."""
    priority: int = 0
    """Order on the class's compute stream, lower first; ties go by id."""
    beside: bool = False
    """Whether it runs beside the compute stream as soon as it can, one such task at a time: work of a
    parameter server on the same ranks."""


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
    """Ranks of every class and their groups; class *c* is pipeline stage *c*."""
    tokens: int
    """Tokens that the step trains on."""
    model_flops: float = 0.0
    """Floating-point operations of the model itself (no recomputation), for utilisation."""
    dropped_share: float = 0.0
    """Share of token copies that are dropped because the expert is full, 0 to 1."""
    ends: tuple[tuple[int, ...], ...] = ()
    """For a graph of several steps, the ids of the tasks that end each step, in order; else empty. `tokens`
    and `model_flops` are always of one step."""
    period: int = 1
    """Number of steps after which a graph of several steps repeats itself."""

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
    """Task of a step graph or of a recorded graph."""

    @property
    def id(self) -> int:
        """Id, unique within the graph."""
        ...

    @property
    def after(self) -> tuple[int, ...]:
        """Ids of the tasks that it waits for."""
        ...


TaskT = TypeVar("TaskT", bound=Waits)


def topological_order(tasks: abc.Sequence[TaskT], name: str = "step graph") -> list[TaskT]:
    """Return tasks in an order in which each follows those it waits for; `name` is for the message.

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
    for task in order:  # the list grows while it is walked, by tasks that wait for nothing any more
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
    """Return the collectives within an operator, each with the number of times it runs."""
    match operator:
        case Sequence():
            return [
                (collective, count * repeat)
                for item, repeat in operator.items
                for collective, count in communications(item)
            ]
        case Overlapped():
            return [(operator.collective, 1)]
        case Collective():
            return [(operator, 1)]
        case _:
            return []
