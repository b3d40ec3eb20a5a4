"""Pipeline schedules: what one must state, those known, and the pipeline that a plan makes of one.

Its time line holds for passes of given length and sends that take no time.
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
    """Way of a microbatch through the stages."""

    LINE = auto()
    """From the first stage to the last, once for every chunk of a stage."""
    FOLDED = auto()
    """There and back: a stage holds a chunk from the start and one from the end of the model."""
    BOTH_WAYS = auto()
    """From either end: every part of the model stands on two stages, which share its optimizer."""


class Updates(Enum):
    """Moment at which a stage applies its gradients."""

    AFTER_FLUSH = auto()
    """Once a step, when the pipeline is empty."""
    EACH_MICROBATCH = auto()
    """After every microbatch, while others are under way; each keeps the weights that it began with."""
    DOUBLE_BUFFERED = auto()
    """Once a step, while the next step's microbatches are under way with the version before."""


class InFlight(Enum):
    """Activation memory that is not given as a formula."""

    FROM_ORDER = auto()
    """The most that the order itself keeps when it is played."""


Builder = Callable[[int, int], Order]
"""From stages and microbatches to an order."""
Interleaved = Callable[[int, int, int], Order]
"""From stages, microbatches and chunks of a stage to an order."""


@dataclass(frozen=True)
class LeastMicrobatches:
    """Fewest microbatches of a step: so many for each stage, and so many more."""

    each: int = 0
    """For each stage."""
    more: int = 1
    """More, or fewer if below zero."""

    def of(self, stages: int) -> int:
        """Return the number, or that of each of an array."""
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
    """Order of the microbatches on the stages of a pipeline, with what follows from it.

    Notes
    -----
    `order` and `in_flight` have no default: a schedule whose activation memory nobody stated would be given
    that of another one. Register it (`register_schedule`) to use it by name.
    """

    order: Builder
    """Slots of every stage from stages and microbatches; of one chunk a stage, or two if `chain` has two."""
    in_flight: Callable[[Amount, Amount, Amount], Amount] | InFlight
    """Most microbatches whose activations a stage with one chunk keeps, from stages, microbatches and the
    stage; or `InFlight.FROM_ORDER`. Where several chunks stand on a stage, the order is always played."""
    chain: Chain = Chain.LINE
    """Way of a microbatch."""
    interleaved: Interleaved | None = None
    """Order for several chunks a stage (`vpp`), None if there is none."""
    least_microbatches: LeastMicrobatches = LeastMicrobatches()
    """Fewest microbatches of a step."""
    multiple: int = 1
    """What both stages and microbatches must be multiples of."""
    updates: Updates = Updates.AFTER_FLUSH
    """When gradients are applied."""
    woven: tuple[Pass, Pass] | None = (Pass.BACKWARD, Pass.FORWARD)
    """Neighbouring passes of a stage that overlapped expert exchanges weave into one; None if it has no two
    side by side without waiting."""
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
        """Whether every parameter stands on two stages, which share its optimizer."""
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
        """What stages and microbatches must be, in words for a message."""
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
        """Check that the schedule can have so many stages and microbatches."""
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
    schedule.check_sizes(stages, microbatches)
    if chunks == 1:
        return schedule.order(stages, microbatches)
    if schedule.interleaved is None:
        msg = f"schedule: {schedule} has one order for a stage, and none for {chunks} chunks; leave vpp out"
        raise WorkloadError(msg)
    return schedule.interleaved(stages, microbatches, chunks)


def most_kept(slots: tuple[Slot, ...], layers: tuple[float, ...]) -> float:
    """Return the most blocks whose activations a stage keeps at once, each microbatch counted."""
    held: Counter[int] = Counter()
    most = 0.0
    for slot in slots:
        if slot.direction is Pass.FORWARD:
            held[slot.chunk] += 1
        elif slot.direction in {Pass.BACKWARD, Pass.WEIGHT}:
            held[slot.chunk] -= 1
        most = max(most, sum(layers[chunk] * count for chunk, count in held.items()))
    return most


_KNOWN: dict[str, Schedule] = {}
SCHEDULES: Mapping[str, Schedule] = MappingProxyType(_KNOWN)
"""Schedules by name, in the order in which they were registered."""
SCHEDULE_ALIASES: Mapping[str, str] = MappingProxyType({"zb_h1": "zero_bubble"})
"""Names that papers give schedules of other names."""
RESERVED = frozenset({"interleaved", *SCHEDULE_ALIASES})
"""Names that mean something else: 1F1B with several chunks a stage is a plan's vpp."""


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
    """Check that an order of so many stages runs every pass once and keeps what the schedule states."""
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
    """Return whether a stage runs each of its microbatches there and back once."""
    done = {one: {(slot.microbatch, slot.chunk) for slot in slots if slot.direction is one} for one in Pass}
    forward, whole, halves = done[Pass.FORWARD], done[Pass.BACKWARD], done[Pass.INPUT]
    there = set(product(range(pipeline.microbatches), range(pipeline.chunks)))
    return (
        len(slots) == len(set(slots))
        and len(forward) == pipeline.microbatches * len(pipeline.chains[0]) // pipeline.stages
        and forward <= there
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
    """Return how many blocks each pipeline stage holds.

    Parameters
    ----------
    layers : int
        Blocks of the model, at least `pp`.
    pp : int
        Stages.

    Returns
    -------
    tuple of int
        One count a stage. When they cannot be equal, the first and the last stage have fewer, for they also
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
    """Return how many blocks each stage holds if embedding and head count as a block each.

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
    """Return how many blocks each stage of a folded pipeline holds, in both of its chunks together.

    Notes
    -----
    When they cannot be equal, the first stage, which holds embedding and head, has up to two fewer, as both
    ends of a line together have (`stage_layers`), but one for each chunk; then the stages after it have one
    fewer.
    """
    most = -(-layers // stages)
    short = most * stages - layers
    first = max(0, min(2, short, most - 2))
    return (most - first, *(most - (stage <= short - first) for stage in range(1, stages)))


ChunkId = tuple[int, int]
"""A stage, and one of its chunks."""
SHOWN_MICROBATCHES = 4
"""Microbatches a stage with which an order is played to find what it keeps: the peak stands before the steady
state repeats, hence a few microbatches show it."""


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
    """Whether a forward and a backward pass run woven into one."""

    @property
    def chunks(self) -> int:
        """Chunks on each stage."""
        return self.vpp if self.schedule.chain is Chain.LINE else 2

    @cached_property
    def chains(self) -> tuple[tuple[ChunkId, ...], ...]:
        """Ways through the model, each from the embedding to the head."""
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
        return {place: following for chain in self.chains for place, following in pairwise(chain)}

    @cached_property
    def _previous(self) -> dict[ChunkId, ChunkId]:
        return {following: place for place, following in self._next.items()}

    def source(self, place: ChunkId, direction: Pass) -> ChunkId | None:
        """Return where the input of a pass comes from, None if it starts there."""
        return (self._previous if direction is Pass.FORWARD else self._next).get(place)

    def target(self, place: ChunkId, direction: Pass) -> ChunkId | None:
        """Return where the output of a pass goes, None if it ends there."""
        if direction is Pass.WEIGHT:
            return None
        return (self._next if direction is Pass.FORWARD else self._previous).get(place)

    def order(self) -> Order:
        """Return the slots of every stage, in order."""
        count = self.microbatches * (self.steps if self.schedule.flows else 1)
        return self.schedule.passes(self.stages, count, self.vpp)

    def kept(self, stage: int, layers: tuple[float, ...]) -> float:
        """Return how many blocks' activations a stage keeps at most, each microbatch counted.

        Notes
        -----
        A forward pass woven into a backward pass runs block i beside the other's block L - 1 - i, which is
        given up when both are done: one block is kept beyond what the two passes would keep in turn.
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
    """One pass with its time."""

    stage: int
    """Pipeline stage."""
    slot: Slot
    """What runs; microbatches count on from step to step."""
    start: float
    """When it starts."""
    end: float
    """When it ends."""


def play(pipeline: Pipeline, times: PassTimes, *, steps: int = 1) -> tuple[Played, ...]:
    """Return when every pass runs, each as soon as its input is there and its stage is free.

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
    ended: dict[tuple[int, Slot], float] = {}
    free = [0.0] * len(orders)
    place = [0] * len(orders)
    found: list[Played] = []
    moved = True
    while moved:
        moved = False
        for stage, order in enumerate(orders):
            while place[stage] < len(order):
                slot = order[place[stage]]
                needs = _needs(pipeline, stage, slot, ended)
                if needs is None:
                    break
                start = max(free[stage], needs)
                free[stage] = start + times.of(slot.direction) / share
                ended[stage, slot] = free[stage]
                found.append(Played(stage, slot, start, free[stage]))
                place[stage] += 1
                moved = True
    check_all_ran(place, orders)
    return tuple(found)


def check_all_ran(places: Sequence[int], orders: Order) -> None:
    """Raise an error unless every stage got to the end of its order."""
    if any(place < len(order) for place, order in zip(places, orders, strict=True)):
        msg = "schedule: stages wait for each other; a microbatch's passes stand in an impossible order"
        raise WorkloadError(msg)


def _repeated(pipeline: Pipeline, steps: int) -> Order:
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


def _needs(pipeline: Pipeline, stage: int, slot: Slot, ended: dict[tuple[int, Slot], float]) -> float | None:
    """Return when what a pass needs is there, None if it has not been run yet."""
    found = [0.0]
    place = (stage, slot.chunk)
    if slot.direction is Pass.WEIGHT:
        own = (stage, Slot(slot.microbatch, Pass.INPUT, slot.chunk))
        return ended.get(own)
    if slot.direction is not Pass.FORWARD:
        own = (stage, Slot(slot.microbatch, Pass.FORWARD, slot.chunk))
        if own not in ended:
            return None
        found.append(ended[own])
    source = pipeline.source(place, slot.direction)
    if source is not None:
        kinds = (Pass.FORWARD,) if slot.direction is Pass.FORWARD else (Pass.BACKWARD, Pass.INPUT)
        arrivals = [
            ended[source[0], sent]
            for kind in kinds
            if (source[0], sent := Slot(slot.microbatch, kind, source[1])) in ended
        ]
        if not arrivals:
            return None
        found += arrivals
    return max(found)


def peak_kept(pipeline: Pipeline) -> tuple[float, ...]:
    """Return the most microbatches whose activations each stage keeps at once, chunks by their share."""
    each, share = (1.0,) * pipeline.chunks, len(pipeline.chains[0]) / pipeline.stages
    return tuple(most_kept(slots, each) / share for slots in pipeline.order())
