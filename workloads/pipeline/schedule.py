"""Pipeline schedules: the type and the registry of them, and the pipeline of a plan that runs one.

A schedule says in which order every stage runs its passes; it says no times. `play` gives those for passes of
given length and sends that take no time; with sends, gathers and sums the engine finds them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum, auto
from functools import cached_property, lru_cache
from itertools import pairwise, product
from types import MappingProxyType

from simulator.amounts import Amount
from simulator.errors import WorkloadError, check_choices, check_member, in_one_sentence, nearest
from simulator.step_estimate import Order as ClosedForm


class Pass(StrEnum):
    """Kind of run through a stage; a backward pass may be split into one of inputs and one of weights."""

    FORWARD = "forward"
    BACKWARD = "backward"
    INPUT = "backward of inputs"
    WEIGHT = "backward of weights"


@dataclass(frozen=True, slots=True)
class Slot:
    """One run of one microbatch through one chunk of a stage."""

    microbatch: int
    """Number of the microbatch."""
    direction: Pass
    """Forward or backward."""
    chunk: int = 0
    """Number of the stage's chunk."""


Order = tuple[tuple[Slot, ...], ...]
"""For every stage, its slots in order."""


class Chain(Enum):
    """Path of a microbatch through the stages."""

    LINE = auto()
    """From the first stage to the last, once for every chunk of a stage."""
    FOLDED = auto()
    """Down and up again: a stage holds a chunk from the start and one from the end of the model."""
    BOTH_WAYS = auto()
    """From either end: every part of the model is on two stages, which share its optimizer."""


class Updates(Enum):
    """Moment at which a stage applies its gradients."""

    AFTER_FLUSH = auto()
    """Once a step, when the pipeline is empty."""
    EACH_MICROBATCH = auto()
    """After every microbatch, while others are under way; each keeps the weights that it began with."""
    DOUBLE_BUFFERED = auto()
    """Once a step, while the next step's microbatches are under way with the version before."""


class InFlight(Enum):
    """Activation memory of a schedule without a formula for it."""

    FROM_ORDER = auto()
    """It is counted along the order (`most_kept`)."""


Builder = Callable[[int, int], Order]
"""Gives the order for a number of stages and of microbatches."""
Interleaved = Callable[[int, int, int], Order]
"""Gives the order for a number of stages, of microbatches, and of chunks of a stage."""


@dataclass(frozen=True)
class LeastMicrobatches:
    """Fewest microbatches of a step: each x stages + more."""

    each: int = 0
    """Microbatches for each stage."""
    more: int = 1
    """Microbatches beside those; below zero fewer."""

    def of(self, stages: int) -> int:
        """Return the number for some stages, which may be an array."""
        return self.each * stages + self.more

    def phrase(self, stages: int) -> str:
        """Return the number in words for a message."""
        if not self.each:
            return str(self.more)
        times = {1: "", 2: "twice "}.get(self.each, f"{self.each} times ")
        rest = {0: "", -1: " less one"}.get(
            self.more, f" {'and' if self.more > 0 else 'less'} {abs(self.more)}"
        )
        return f"{times}the stages ({stages}){rest}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Schedule:
    """Order of the microbatches on the stages of a pipeline, and facts of it that others rely on.

    Notes
    -----
    `order` and `in_flight` have no default: the activation memory of one schedule is not that of another.
    Register a schedule (`register_schedule`) to use it by name.
    """

    order: Builder
    """Slots of every stage from stages and microbatches; of one chunk a stage, or two if `chain` has two."""
    in_flight: Callable[[Amount, Amount, Amount], Amount] | InFlight
    """Most microbatches whose activations a stage with one chunk keeps, from stages, microbatches and the
    stage; or `InFlight.FROM_ORDER`. Where several chunks stand on a stage, the order is always played."""
    chain: Chain = Chain.LINE
    """Path of a microbatch."""
    interleaved: Interleaved | None = None
    """Order for several chunks a stage (`vpp`), None if there is none."""
    least_microbatches: LeastMicrobatches = LeastMicrobatches()
    """Fewest microbatches of a step."""
    multiple: int = 1
    """Number of which both stages and microbatches must be multiples."""
    updates: Updates = Updates.AFTER_FLUSH
    """When gradients are applied."""
    woven: tuple[Pass, Pass] | None = (Pass.BACKWARD, Pass.FORWARD)
    """Kinds of two passes in a row on a stage of which each computes while the other exchanges tokens with
    experts (`Traffic.overlap_experts`); None if no two follow each other without waiting."""
    closed_form: ClosedForm | None = None
    """Form of its step time in `simulator.step_estimate`; without one, a search only runs it."""
    saves_memory: bool = False
    """Whether it gives up time for memory: a search runs it only where the one before it could not be."""
    name: str = field(default="", kw_only=True)
    """Name under which it is registered."""

    def __post_init__(self) -> None:
        check_choices(self)
        for one in self.woven or ():
            check_member("woven", one, Pass)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<Schedule {self.name or 'without a name'}>"

    def __reduce__(self) -> tuple[object, ...]:
        return schedule_named, (self.name,)

    @property
    def two_copies(self) -> bool:
        """Whether every parameter is on two stages, which share its optimizer."""
        return self.chain is Chain.BOTH_WAYS

    @property
    def folded(self) -> bool:
        """Whether a stage holds two chunks, the second counted from the end of the model."""
        return self.chain is Chain.FOLDED

    @cached_property
    def splits_backward(self) -> bool:
        """Whether gradients of weights are passes of their own."""
        stages = 2 * self.multiple
        microbatches = -(-max(stages, self.least_microbatches.of(stages)) // self.multiple) * self.multiple
        slots = self.order(stages, microbatches)
        return any(slot.direction is Pass.WEIGHT for stage in slots for slot in stage)

    @property
    def flows(self) -> bool:
        """Whether microbatches of the next step enter before the last ones of this step have left."""
        return self.updates is not Updates.AFTER_FLUSH

    @property
    def multiple_phrase(self) -> str:
        """The rule on the number of stages and microbatches, in words for a message."""
        return "even" if self.multiple == 2 else f"a multiple of {self.multiple}"

    def passes(self, stages: int, microbatches: int, chunks: int = 1) -> Order:
        """Return the slots of every stage, in order.

        Parameters
        ----------
        stages, microbatches : int
            At least 1 each, and what the schedule asks of them.
        chunks : int
            Chunks a stage; beyond 1 for schedules that interleave.

        Raises
        ------
        WorkloadError
            If the sizes are not those that the schedule can have.
        """
        return _passes(self, stages, microbatches, chunks)

    def check_sizes(self, stages: int, microbatches: int) -> None:
        """Raise an error for numbers of stages and microbatches that the schedule cannot have."""
        for name, value in (("stages", stages), ("microbatches", microbatches)):
            if value < 1:
                msg = f"schedule: {name} must be at least 1; got {value}"
                raise WorkloadError(msg)
            if value % self.multiple:
                near = -(-value // self.multiple) * self.multiple
                msg = f"schedule: {name} ({value}) must be {self.multiple_phrase} with {self}; try {near}"
                raise WorkloadError(msg)
        least = self.least_microbatches.of(stages)
        if microbatches < least:
            msg = (
                f"schedule: {self} needs at least {self.least_microbatches.phrase(stages)} microbatches; "
                f"got {microbatches}, try {least}"
            )
            raise WorkloadError(msg)


@lru_cache(maxsize=80)
def _passes(schedule: Schedule, stages: int, microbatches: int, chunks: int) -> Order:
    """Return the order of `Schedule.passes`, built once for its arguments."""
    schedule.check_sizes(stages, microbatches)
    if chunks == 1:
        return schedule.order(stages, microbatches)
    if schedule.interleaved is None:
        msg = f"schedule: {schedule} has one order for a stage, and none for {chunks} chunks; leave vpp out"
        raise WorkloadError(msg)
    return schedule.interleaved(stages, microbatches, chunks)


def most_kept(slots: tuple[Slot, ...], layers: tuple[float, ...]) -> float:
    """Return the peak of a stage's kept activations, in blocks summed over microbatches.

    Parameters
    ----------
    slots : tuple of Slot
        The stage's slots in order. A forward pass keeps the activations of a chunk for one microbatch, until
        its backward pass, or that of its weights, has run.
    layers : tuple of float
        Blocks of each chunk.
    """
    microbatches: Counter[int] = Counter()  # by chunk
    most = 0.0
    for slot in slots:
        if slot.direction is Pass.FORWARD:
            microbatches[slot.chunk] += 1
        elif slot.direction in {Pass.BACKWARD, Pass.WEIGHT}:
            microbatches[slot.chunk] -= 1
        most = max(most, sum(layers[chunk] * count for chunk, count in microbatches.items()))
    return most


_KNOWN: dict[str, Schedule] = {}
SCHEDULES: Mapping[str, Schedule] = MappingProxyType(_KNOWN)
"""Schedules by name, in the order in which they were registered."""
SCHEDULE_ALIASES: Mapping[str, str] = MappingProxyType({"zb_h1": "zero_bubble"})
"""Other names of schedules, from papers."""
RESERVED = frozenset({"interleaved", *SCHEDULE_ALIASES})
"""Names that no schedule can be registered under: aliases, and 1F1B with several chunks, a plan's vpp."""


def register_schedule(name: str, schedule: Schedule) -> Schedule:
    """Make a schedule known by name: to plans (``schedule=NAME``), to the drawing of schedules, to a search.

    Parameters
    ----------
    name : str
        A name that no schedule has yet, without spaces, commas and equal signs.
    schedule : Schedule
        Its order, its activation memory, and what else it asks for.

    Returns
    -------
    Schedule
        The same with its name.

    Raises
    ------
    WorkloadError
        If the name is taken or cannot stand in a plan, or at a few small sizes an order fails, leaves a pass
        out or runs it twice, or keeps other microbatches than stated.
    """
    if not isinstance(name, str) or not name or any(one.isspace() or one in ",=" for one in name):
        msg = f"schedule: a name is text without spaces, commas and equal signs; got {name!r}"
        raise WorkloadError(msg)
    if name in _KNOWN or name in RESERVED:
        msg = f"schedule: the name '{name}' is taken; choose another"
        raise WorkloadError(msg)
    if not isinstance(schedule, Schedule):
        msg = f"schedule: '{name}' must be a Schedule with order and in_flight; got {schedule!r}"
        raise WorkloadError(msg)
    known = replace(schedule, name=name)
    for stages in (1, 2, 4):
        _check_orders(known, stages * known.multiple)
    _KNOWN[name] = known
    return known


def _check_orders(schedule: Schedule, stages: int) -> None:
    """Check that the order for some stages runs every pass once and keeps as many microbatches as stated."""
    least = max(1, schedule.least_microbatches.of(stages)) + stages
    microbatches = -(-least // schedule.multiple) * schedule.multiple
    pipeline = Pipeline(schedule=schedule, stages=stages, microbatches=microbatches)
    what = f"schedule: '{schedule}' with pp={stages} and {microbatches} microbatches"
    with in_one_sentence(f"{what}: order fails", WorkloadError):
        order = tuple(tuple(slots) for slots in pipeline.order())
    if len(order) != stages or not all(isinstance(slot, Slot) for slots in order for slot in slots):
        msg = f"{what}: order must return a tuple of Slot for each stage; got {order!r:.80}"
        raise WorkloadError(msg)
    for stage, slots in enumerate(order):
        if not _runs_once(slots, pipeline):
            counts = Counter(slot.direction for slot in slots)
            msg = (
                f"{what}: stage {stage} must run every microbatch forward once, and backward once, whole or "
                f"in its two halves; its order has {', '.join(f'{n} {kind}' for kind, n in counts.items())}"
            )
            raise WorkloadError(msg)
        if (early := _too_early(slots)) is not None:
            msg = (
                f"{what}: stage {stage} runs {early.direction} of microbatch {early.microbatch} before "
                f"{_BEFORE[early.direction]} of it; put that pass first"
            )
            raise WorkloadError(msg)
        _check_stated(schedule, pipeline, stage, what)


_BEFORE = {Pass.BACKWARD: Pass.FORWARD, Pass.INPUT: Pass.FORWARD, Pass.WEIGHT: Pass.INPUT}
"""Pass of the same microbatch and chunk that each pass waits for on its stage."""


def _too_early(slots: Sequence[Slot]) -> Slot | None:
    """Return the first pass of a stage that stands before the one that it waits for, if any does."""
    done: set[tuple[int, int, Pass]] = set()
    for slot in slots:
        before = _BEFORE.get(slot.direction)
        if before is not None and (slot.microbatch, slot.chunk, before) not in done:
            return slot
        done.add((slot.microbatch, slot.chunk, slot.direction))
    return None


def _check_stated(schedule: Schedule, pipeline: Pipeline, stage: int, what: str) -> None:
    """Check that a formula states the most microbatches that an order of one chunk a stage keeps."""
    if isinstance(schedule.in_flight, InFlight) or schedule.chain is not Chain.LINE:
        return
    kept = most_kept(pipeline.order()[stage], (1.0,))
    with in_one_sentence(f"{what}: in_flight fails on stage {stage}", WorkloadError):
        stated = schedule.in_flight(pipeline.stages, pipeline.microbatches, stage)
    if stated != kept:
        msg = (
            f"{what}: in_flight states {stated} on stage {stage}, and the order keeps {kept:g} microbatches; "
            "state what it keeps, or InFlight.FROM_ORDER"
        )
        raise WorkloadError(msg)


def _runs_once(slots: tuple[Slot, ...], pipeline: Pipeline) -> bool:
    """Return whether a stage runs each of its microbatches once forward and once backward, whole or split."""
    done = {
        kind: {(slot.microbatch, slot.chunk) for slot in slots if slot.direction is kind} for kind in Pass
    }
    forward, whole, halves = done[Pass.FORWARD], done[Pass.BACKWARD], done[Pass.INPUT]
    possible = set(product(range(pipeline.microbatches), range(pipeline.chunks)))
    return (
        len(slots) == len(set(slots))
        and len(forward) == pipeline.microbatches * len(pipeline.chains[0]) // pipeline.stages
        and forward <= possible
        and halves == done[Pass.WEIGHT]
        and whole | halves == forward
        and not whole & halves
    )


def schedule_named(name: str) -> Schedule:
    """Return a schedule by name.

    Raises
    ------
    WorkloadError
        If there is none, with the nearest one.
    """
    if name not in _KNOWN:
        msg = f"no schedule '{name}'; {nearest(name, _KNOWN, noun='schedule')}"
        raise WorkloadError(msg)
    return _KNOWN[name]


def stage_layers(layers: int, pp: int) -> tuple[int, ...]:
    """Return the blocks of each pipeline stage.

    Parameters
    ----------
    layers : int
        Blocks of the model, at least `pp`.
    pp : int
        Stages.

    Returns
    -------
    tuple of int
        One number a stage. When they cannot be equal, the first and the last stage have fewer, for they also
        hold the embedding and the head; among the inner stages the later ones, which keep fewer microbatches,
        have more.

    Raises
    ------
    WorkloadError
        If there are more stages than blocks.

    References
    ----------
    The Llama 3 herd of models, arXiv:2407.21783, section 3.3.2 (one block fewer on the first and last stage).
    """
    if not 1 <= pp <= layers:
        msg = f"pipeline ({pp}) must be from 1 to layers ({layers}); try {layers} or fewer"
        raise WorkloadError(msg)
    least, extra = divmod(layers, pp)
    favoured = [*range(pp - 2, 0, -1), 0]
    more = set(favoured[:extra])
    return tuple(least + (stage in more) for stage in range(pp))


def balanced_layers(layers: int, pp: int) -> tuple[int, ...]:
    """Return the blocks of each stage where embedding and head count as a block each.

    Notes
    -----
    Blocks, embedding and head together are shared as `stage_layers` shares blocks. BLOOM's 70 blocks stand on
    12 stages as 5, 6, ... 6, 5 (bigscience, chronicles of 176B: embeddings as two more layers).
    """
    if pp == 1:
        return (layers,)
    first, *inner, last = stage_layers(layers + 2, pp)
    return (first - 1, *inner, last - 1)


def folded_layers(layers: int, stages: int) -> tuple[int, ...]:
    """Return the blocks of each stage of a folded pipeline, in both of its chunks together.

    Notes
    -----
    When they cannot be equal, the first stage, which holds embedding and head, has up to two fewer, as both
    ends of a line together have (`stage_layers`), but at least one for each chunk; then the stages after it
    have one fewer.
    """
    most = -(-layers // stages)
    missing = most * stages - layers
    first = max(0, min(2, missing, most - 2))
    return (most - first, *(most - (stage <= missing - first) for stage in range(1, stages)))


ChunkId = tuple[int, int]
"""A stage, and one of its chunks."""
SHOWN_MICROBATCHES = 4
"""Microbatches a stage of the order along which kept activations are counted: their peak comes before the
steady state repeats, hence a few microbatches show it."""


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Stages of a pipeline under a schedule."""

    schedule: Schedule
    """Order of the microbatches."""
    stages: int
    """Pipeline stages."""
    microbatches: int
    """Microbatches of a step."""
    vpp: int = 1
    """Chunks that each stage holds, where the schedule lets a plan choose."""
    steps: int = 1
    """Steps that one run holds."""
    weaves: bool = False
    """Whether exchanges of experts overlap with the passes of another microbatch (`Schedule.woven`)."""

    @property
    def chunks(self) -> int:
        """Chunks on each stage."""
        return self.vpp if self.schedule.chain is Chain.LINE else 2

    @cached_property
    def chains(self) -> tuple[tuple[ChunkId, ...], ...]:
        """Paths through the model, each from the embedding to the head."""
        stages = range(self.stages)
        match self.schedule.chain:
            case Chain.BOTH_WAYS:
                return tuple((stage, 0) for stage in stages), tuple((stage, 1) for stage in reversed(stages))
            case Chain.FOLDED:
                return ((*((stage, 0) for stage in stages), *((stage, 1) for stage in reversed(stages))),)
            case _:
                return (tuple((stage, chunk) for chunk in range(self.chunks) for stage in stages),)

    @cached_property
    def _next(self) -> dict[ChunkId, ChunkId]:
        return {chunk: following for chain in self.chains for chunk, following in pairwise(chain)}

    @cached_property
    def _previous(self) -> dict[ChunkId, ChunkId]:
        return {following: chunk for chunk, following in self._next.items()}

    def source(self, chunk: ChunkId, direction: Pass) -> ChunkId | None:
        """Return the chunk from which a pass through a chunk gets its input, None if it starts there."""
        return (self._previous if direction is Pass.FORWARD else self._next).get(chunk)

    def target(self, chunk: ChunkId, direction: Pass) -> ChunkId | None:
        """Return the chunk to which a pass through a chunk sends its output, None if it ends there."""
        if direction is Pass.WEIGHT:
            return None
        return (self._next if direction is Pass.FORWARD else self._previous).get(chunk)

    def order(self) -> Order:
        """Return the slots of every stage, in order."""
        count = self.microbatches * (self.steps if self.schedule.flows else 1)
        return self.schedule.passes(self.stages, count, self.vpp)

    def kept(self, stage: int, layers: tuple[float, ...]) -> float:
        """Return the peak of a stage's kept activations, in blocks summed over microbatches.

        Parameters
        ----------
        stage : int
            The stage.
        layers : tuple of float
            Blocks of each of its chunks.

        Notes
        -----
        Where passes overlap (`weaves`), a forward pass runs block i beside block L - 1 - i of the backward
        pass, which gives its activations up when both are done: one block more is kept than by the two in
        turn.
        """
        run = self.microbatches * (self.steps if self.schedule.flows else 1)
        if len(layers) == 1 and not isinstance(self.schedule.in_flight, InFlight):
            kept = int(self.schedule.in_flight(self.stages, run, stage))
            blocks = min(kept, run) * layers[0]
        else:
            shown = min(run, SHOWN_MICROBATCHES * self.stages)
            slots = self.schedule.passes(self.stages, shown, self.vpp)[stage]
            blocks = most_kept(slots, layers)
        if self.weaves and not self.schedule.two_copies:
            return min(blocks + 1.0, run * sum(layers))
        return blocks


_DURATION_PARTS = {
    Pass.FORWARD: ("forward",),
    Pass.BACKWARD: ("inputs", "weights"),
    Pass.INPUT: ("inputs",),
    Pass.WEIGHT: ("weights",),
}


@dataclass(frozen=True, kw_only=True)
class PassTimes:
    """Times of the passes of one microbatch through all that a stage holds, in any unit."""

    forward: float = 1.0
    """Forward pass."""
    inputs: float = 1.0
    """Backward pass of inputs."""
    weights: float = 1.0
    """Backward pass of weights."""

    def __post_init__(self) -> None:
        for name in ("forward", "inputs", "weights"):
            value = getattr(self, name)
            if not 0.0 < value < float("inf"):
                msg = f"time of a pass ({name}) must be above zero; got {value:g}"
                raise WorkloadError(msg)

    def of(self, direction: Pass) -> float:
        """Return the time of a pass; an undivided backward pass does both parts."""
        return float(sum(getattr(self, part) for part in _DURATION_PARTS[direction]))


@dataclass(frozen=True, slots=True)
class Played:
    """One pass with its start and end, in the unit of `PassTimes`."""

    stage: int
    """Pipeline stage."""
    slot: Slot
    """The pass; microbatches count on from step to step."""
    start: float
    """Time at which it starts."""
    end: float
    """Time at which it ends."""


def play(pipeline: Pipeline, times: PassTimes, *, steps: int = 1) -> tuple[Played, ...]:
    """Return the start and end of every pass, each as soon as its input is there and its stage is free.

    Parameters
    ----------
    pipeline : Pipeline
        Stages, schedule and way of the microbatches.
    times : PassTimes
        Length of the passes. A stage that holds several chunks of a microbatch's way shares it among them.
    steps : int
        Steps in a row, no stage waiting for another's update; a schedule without a flush holds as many as
        the pipeline says (`Pipeline.steps`).

    Raises
    ------
    WorkloadError
        If the schedule's order is impossible.
    """
    orders = _repeated(pipeline, steps)
    share = len(pipeline.chains[0]) / pipeline.stages
    ends: dict[tuple[int, Slot], float] = {}
    free = [0.0] * len(orders)
    done = [0] * len(orders)
    played: list[Played] = []
    before: list[int] = []
    while done != before:
        before = list(done)
        for stage, order in enumerate(orders):
            for slot in order[done[stage] :]:
                ready = _ready_time(pipeline, stage, slot, ends)
                if ready is None:
                    break
                start = max(free[stage], ready)
                free[stage] = ends[stage, slot] = start + times.of(slot.direction) / share
                played.append(Played(stage, slot, start, free[stage]))
                done[stage] += 1
    check_all_ran(done, orders)
    return tuple(played)


def check_all_ran(done: Sequence[int], orders: Order) -> None:
    """Raise an error unless every stage has run all slots of its order, of which it has run `done`."""
    if any(count < len(order) for count, order in zip(done, orders, strict=True)):
        msg = "schedule: stages wait for each other; a microbatch's passes stand in an impossible order"
        raise WorkloadError(msg)


def _repeated(pipeline: Pipeline, steps: int) -> Order:
    """Return the order of several steps in a row."""
    order = pipeline.order()
    if pipeline.schedule.flows:
        return order
    count = pipeline.microbatches
    return tuple(
        tuple(
            Slot(slot.microbatch + step * count, slot.direction, slot.chunk)
            for step in range(steps)
            for slot in slots
        )
        for slots in order
    )


def _ready_time(
    pipeline: Pipeline, stage: int, slot: Slot, ends: dict[tuple[int, Slot], float]
) -> float | None:
    """Return when the passes that a pass waits for have ended, None if one of them has not run yet.

    They are the passes before it of the same microbatch: on its own stage, and of the chunk that its input
    comes from, where a backward pass may be whole or that of the inputs.
    """
    microbatch = slot.microbatch
    if slot.direction is Pass.WEIGHT:
        return ends.get((stage, Slot(microbatch, Pass.INPUT, slot.chunk)))
    waits_for: list[float | None] = [0.0]
    if slot.direction is not Pass.FORWARD:
        waits_for.append(ends.get((stage, Slot(microbatch, Pass.FORWARD, slot.chunk))))
    source = pipeline.source((stage, slot.chunk), slot.direction)
    if source is not None:
        sender, chunk = source
        if slot.direction is Pass.FORWARD:
            waits_for.append(ends.get((sender, Slot(microbatch, Pass.FORWARD, chunk))))
        else:
            whole = ends.get((sender, Slot(microbatch, Pass.BACKWARD, chunk)))
            waits_for.append(ends.get((sender, Slot(microbatch, Pass.INPUT, chunk)), whole))
    known = [end for end in waits_for if end is not None]
    return max(known) if len(known) == len(waits_for) else None


def peak_kept(pipeline: Pipeline) -> tuple[float, ...]:
    """Return the peak of the microbatches whose activations each stage keeps; one of two chunks is a half."""
    layers, share = (1.0,) * pipeline.chunks, len(pipeline.chains[0]) / pipeline.stages
    return tuple(most_kept(slots, layers) / share for slots in pipeline.order())
