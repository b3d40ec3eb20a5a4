"""Pipeline schedules that come with the project: orders of passes of at least one microbatch on one stage."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from simulator.amounts import smaller
from simulator.errors import WorkloadError
from simulator.step_estimate import Order as ClosedForm
from workloads.pipeline.schedule import (
    Chain,
    InFlight,
    LeastMicrobatches,
    Order,
    Pass,
    Schedule,
    Slot,
    Updates,
    register_schedule,
)


def gpipe(stages: int, microbatches: int) -> Order:
    """Return GPipe's order: all forward passes, then all backward passes.

    References
    ----------
    Huang et al., GPipe, arXiv:1811.06965, figure 2c.
    """
    forward = [Slot(microbatch, Pass.FORWARD) for microbatch in range(microbatches)]
    backward = [Slot(microbatch, Pass.BACKWARD) for microbatch in range(microbatches)]
    return ((*forward, *backward),) * stages


def one_forward_one_backward(stages: int, microbatches: int) -> Order:
    """Return 1F1B: forward and backward passes alternate as soon as possible, to keep few activations.

    Notes
    -----
    Stage *i* of *p* runs p - 1 - i forward passes first, then pairs of one forward and one backward pass,
    then the backward passes that are left; it never keeps more than p - i microbatches. With equal times the
    bubble is (p - 1) / m of the ideal time, as for GPipe.

    References
    ----------
    Narayanan et al., arXiv:2104.04473, section 2.2.1 and figure 4 (PipeDream-Flush).
    """
    order: list[tuple[Slot, ...]] = []
    for stage in range(stages):
        ahead = min(stages - 1 - stage, microbatches)
        slots = [Slot(microbatch, Pass.FORWARD) for microbatch in range(ahead)]
        for pair in range(microbatches - ahead):
            slots.append(Slot(ahead + pair, Pass.FORWARD))
            slots.append(Slot(pair, Pass.BACKWARD))
        slots.extend(Slot(left, Pass.BACKWARD) for left in range(microbatches - ahead, microbatches))
        order.append(tuple(slots))
    return tuple(order)


def interleaved_groups(stages: int, microbatches: int) -> tuple[range, ...]:
    """Return the groups of microbatches that go through one chunk after the other.

    Notes
    -----
    As many as there are whole groups of p, none smaller than p unless there are fewer microbatches at all,
    the larger ones first: a smaller group behind others would wait for passes that wait for it.
    """
    count = max(1, microbatches // stages)
    least, more = divmod(microbatches, count)
    ends = [group * least + min(group, more) for group in range(count + 1)]
    return tuple(range(start, end) for start, end in pairwise(ends))


def interleaved(stages: int, microbatches: int, chunks: int) -> Order:
    """Return 1F1B on stages that hold several chunks of blocks each.

    Parameters
    ----------
    stages, microbatches, chunks : int
        At least 1 each.

    Notes
    -----
    Chunk *c* of stage *i* is part c p + i of the model. Microbatches go in groups of p, or of p and a few
    more where p does not divide them (`interleaved_groups`), each group through one chunk after the other.
    Stage *i* runs 2 (p - 1 - i) + (v - 1) n passes ahead, n being the first group's microbatches. With equal
    times the bubble is (p - 1) / (v m) of the ideal time, and groups of p keep (p - 1) / (p v) more on the
    first stage than without interleaving. Fewer microbatches than stages wait in every chunk for the first
    one to come round (any number is allowed in Llama 3's runs, section 3.3.2).

    References
    ----------
    Narayanan et al., arXiv:2104.04473, section 2.2.2; Korthikanti et al., arXiv:2205.05198, section 4.2.3;
    The Llama 3 herd of models, arXiv:2407.21783, section 3.3.2.
    """
    if chunks == 1:
        return one_forward_one_backward(stages, microbatches)
    groups = interleaved_groups(stages, microbatches)
    forward = [
        Slot(microbatch, Pass.FORWARD, chunk)
        for group in groups
        for chunk in range(chunks)
        for microbatch in group
    ]
    backward = [Slot(slot.microbatch, Pass.BACKWARD, chunks - 1 - slot.chunk) for slot in forward]
    order = []
    for stage in range(stages):
        ahead = min(2 * (stages - 1 - stage) + (chunks - 1) * len(groups[0]), len(forward))
        slots = forward[:ahead]
        for pair in range(len(forward) - ahead):
            slots += [forward[ahead + pair], backward[pair]]
        order.append((*slots, *backward[len(forward) - ahead :]))
    return tuple(order)


def zero_bubble(stages: int, microbatches: int, *, depth: int = 1) -> Order:
    """Return ZB-H1 or ZB-H2: 1F1B whose gradients of weights wait until a stage would idle.

    Parameters
    ----------
    stages, microbatches : int
        At least 1 each.
    depth : int
        1 for ZB-H1, 2 for ZB-H2: how many microbatches run ahead per stage that lies behind.

    Notes
    -----
    With depth *k*, stage *i* of *p* runs k (p - 1 - i) forward passes ahead and the gradients of weights k i
    microbatches after those of inputs, so that every stage keeps at most k (p - 1) + 1 microbatches. For
    ZB-H1 that is p, as on the first stage of 1F1B, and the bubble is (p - 1) (F + B - W) instead of (p - 1)
    (F + B + W), where B and W are the two halves of the backward pass: a third with equal times. For ZB-H2 it
    is (p - 1) (F + B - 2 W), none with equal times, at 2 p - 1: then every stage is busy from its first to
    its last pass, and the next step follows at once if no stage waits for another's update.

    References
    ----------
    Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241, sections 3.1 and 3.2 and table 2.
    """
    order = []
    for stage in range(stages):
        ahead = min(depth * (stages - 1 - stage), microbatches)
        slots = [Slot(microbatch, Pass.FORWARD) for microbatch in range(ahead)]
        waiting: deque[int] = deque()
        for index in range(microbatches):
            if ahead + index < microbatches:
                slots.append(Slot(ahead + index, Pass.FORWARD))
            slots.append(Slot(index, Pass.INPUT))
            waiting.append(index)
            if len(waiting) > depth * stage or ahead + index >= microbatches:
                slots.append(Slot(waiting.popleft(), Pass.WEIGHT))
        slots += [Slot(left, Pass.WEIGHT) for left in waiting]
        order.append(tuple(slots))
    return tuple(order)


class _DualPipeStage:
    """Slots of one DualPipe stage as they are added.

    Half of the microbatches enter at the `near` end of the pipeline, on the stage's side, half at the other.
    """

    def __init__(self, near_chunk: int, half: int) -> None:
        self._chunk = {True: near_chunk, False: 1 - near_chunk}
        self._half = half
        self._count: Counter[tuple[bool, Pass]] = Counter()
        self._waiting: deque[Slot] = deque()
        self.slots: list[Slot] = []

    def _next(self, near: bool, direction: Pass) -> Slot:
        """Return the pass of the next microbatch from one end."""
        chunk = self._chunk[near]
        counted = near, Pass.FORWARD if direction is Pass.FORWARD else Pass.BACKWARD
        slot = Slot(self._count[counted] + chunk * self._half, direction, chunk)
        self._count[counted] += 1
        return slot

    def forward(self, *, near: bool) -> None:
        """Add a forward pass."""
        self.slots.append(self._next(near, Pass.FORWARD))

    def backward(self, *, near: bool, split: bool = False) -> None:
        """Add a backward pass, or its part of the inputs alone; that of the weights then waits."""
        slot = self._next(near, Pass.INPUT if split else Pass.BACKWARD)
        self.slots.append(slot)
        if split:
            self._waiting.append(Slot(slot.microbatch, Pass.WEIGHT, slot.chunk))

    def weights(self) -> None:
        """Add the backward pass of weights that waits longest."""
        self.slots.append(self._waiting.popleft())


def dualpipe(stages: int, microbatches: int) -> Order:
    """Return DualPipe: half of the microbatches enter at either end of the pipeline.

    Parameters
    ----------
    stages, microbatches : int
        Both even, at least 2 microbatches per stage.

    Notes
    -----
    Chunk 0 of stage *i* is part *i* of the model, chunk 1 part p - 1 - i: parameters stand twice, and p + 1
    microbatches are kept. With B the part of inputs and W that of weights the bubble is (p/2 - 1) (F + B - W)
    as long as B does not exceed F. The reference runs a forward and a backward pass as one, F&B, whose
    traffic hides behind the other's work, for a bubble of (p/2 - 1) (F&B + (B + W) - 3W); here they stand one
    after the other, so that traffic inside them stays visible, and the next stage need not wait for both.

    References
    ----------
    DeepSeek-V3, arXiv:2412.19437, section 3.2.1, figure 5 and table 2.
    """
    return tuple(_dualpipe_stage(stage, stages, microbatches) for stage in range(stages))


def _dualpipe_stage(stage: int, stages: int, microbatches: int) -> tuple[Slot, ...]:
    """Return the slots of one stage, in the eight steps of the reference's figure 5, a loop each.

    Fill from the near end; fill from both; drain the far end while it still fills; alternate in the steady
    state; then drain: the far end's last forward passes, backward passes of which the later half are split,
    and those of weights that are left.
    """
    half = microbatches // 2
    from_end = min(stage, stages - 1 - stage)
    inner = stages // 2 - 1 - from_end
    run = _DualPipeStage(0 if stage < stages // 2 else 1, half)
    for _ in range(2 * inner):
        run.forward(near=True)
    for _ in range(from_end + 1):
        run.forward(near=True)
        run.forward(near=False)
    for _ in range(inner):
        run.backward(near=False, split=True)
        run.weights()
        run.forward(near=False)
    for _ in range(half - stages + from_end + 1):
        run.forward(near=True)
        run.backward(near=False)
        run.forward(near=False)
        run.backward(near=True)
    for _ in range(inner):
        run.backward(near=False)
        run.forward(near=False)
        run.backward(near=True)
    for index in range(2 * (from_end + 1)):
        run.backward(near=index % 2 == 1, split=index > from_end)
    for _ in range(inner):
        run.weights()
        run.backward(near=True, split=True)
    for _ in range(from_end + 1):
        run.weights()
    return tuple(run.slots)


PERIOD = 6
"""Passes that a stage runs for one microbatch: forward, inputs and weights, of two chunks."""


@dataclass(frozen=True, slots=True)
class _BuildingBlock:
    """Start times of the four dependent passes of one microbatch down and up a V; repeated every `PERIOD`.

    Times are in passes, which all take one.
    """

    steps: tuple[int, int, int, int]
    """Time from stage to stage: down and up the V forward, down and up again backward."""
    turns: tuple[int, int, int]
    """Extra wait at the three turns, so that no two passes of a stage start at one time of the period."""

    def starts(self, stages: int, stage: int) -> dict[tuple[Pass, int], int]:
        """Return the start of each pass of a stage, by kind and chunk."""
        down, up, back_down, back_up = self.steps
        last = stages - 1
        up_start = down * last + 1 + self.turns[0]
        back_down_start = up_start + up * last + 1 + self.turns[1]
        back_up_start = back_down_start + back_down * last + 1 + self.turns[2]
        return {
            (Pass.FORWARD, 0): down * stage,
            (Pass.FORWARD, 1): up_start + up * (last - stage),
            (Pass.INPUT, 1): back_down_start + back_down * stage,
            (Pass.INPUT, 0): back_up_start + back_up * (last - stage),
        }


def v_min(stages: int, microbatches: int) -> Order:
    """Return V-Min: a third of the activations of 1F1B.

    Notes
    -----
    Every stage keeps at most ceil((p + 2) / 3) microbatches. With equal times of all passes the bubble is
    below 2/3 of that of 1F1B, 2 (p - 1) of a stage's forward pass.

    References
    ----------
    Qi et al., Pipeline Parallelism with Controllable Memory, arXiv:2405.15362, section 3 and table 1.
    """
    block = _BuildingBlock((1, 1, 1, 1), (1, 0, 3) if stages % 3 == 0 else (0, 0, 0))
    return _greedy_order(block, stages, microbatches, most=2 * -(-(stages + 2) // 3))


def v_half(stages: int, microbatches: int) -> Order:
    """Return V-Half: half of the activations of 1F1B.

    Notes
    -----
    Every stage keeps at most floor(p / 2) + 1 microbatches. With equal times of all passes the bubble is
    below half of that of 1F1B, 1.5 (p - 1) of a stage's forward pass.

    References
    ----------
    Qi et al., Pipeline Parallelism with Controllable Memory, arXiv:2405.15362, section 3 and table 1.
    """
    block = _BuildingBlock((1, 2, 1, 2), (0, 0, 0) if stages % 2 else (2, 0, 3))
    return _greedy_order(block, stages, microbatches, most=2 * (stages // 2 + 1))


def _greedy_order(block: _BuildingBlock, stages: int, microbatches: int, *, most: int) -> Order:
    """Return the order of a building block for each microbatch, with passes of weights in its gaps.

    Time runs in passes of equal length. At each time every stage runs the next pass of the building blocks if
    its input is there and it then keeps no more than `most` chunks' activations, otherwise a pass of weights
    if one waits.
    """
    run = _GreedyRun(block, stages, microbatches, most)
    left = PERIOD * stages * microbatches
    while left:
        chosen = [(stage, slot) for stage in range(stages) if (slot := run.choice(stage)) is not None]
        if not chosen:
            msg = f"schedule: {stages} stages cannot go on with {most} chunks kept"
            raise WorkloadError(msg)
        for stage, slot in chosen:
            run.take(stage, slot)
        left -= len(chosen)
    return tuple(tuple(slots) for slots in run.slots)


class _GreedyRun:
    """State of `_greedy_order`: the passes that every stage has run, and those that it has to run."""

    def __init__(self, block: _BuildingBlock, stages: int, microbatches: int, most: int) -> None:
        self.slots: list[list[Slot]] = [[] for _ in range(stages)]
        self._last = stages - 1
        self._most = most
        self._done: set[tuple[int, Slot]] = set()
        self._kept: Counter[int] = Counter()
        self._weights: list[deque[Slot]] = [deque() for _ in range(stages)]
        self._block_passes = [
            deque(
                Slot(microbatch, direction, chunk)
                for _, direction, chunk, microbatch in sorted(
                    (start + PERIOD * microbatch, direction, chunk, microbatch)
                    for (direction, chunk), start in block.starts(stages, stage).items()
                    for microbatch in range(microbatches)
                )
            )
            for stage in range(stages)
        ]

    def choice(self, stage: int) -> Slot | None:
        """Return the pass that a stage runs next, None if it must wait."""
        passes, weights = self._block_passes[stage], self._weights[stage]
        if passes and self._ready(stage, passes[0]):
            return passes[0]
        return weights[0] if weights else None

    def _ready(self, stage: int, slot: Slot) -> bool:
        """Return whether a pass has its input, and room for the activations that it keeps."""
        forward = slot.direction is Pass.FORWARD
        if forward and self._kept[stage] >= self._most:
            return False
        source = self._source(stage, slot)
        return source is None or source in self._done

    def _source(self, stage: int, slot: Slot) -> tuple[int, Slot] | None:
        """Return the pass that a pass takes its input from; None for the start of the model.

        Passes go down the V forward through chunk 0 and backward through chunk 1, and up it otherwise. At its
        ends they go on through the other chunk, or from forward to backward, on the same stage.
        """
        down = (slot.direction is Pass.FORWARD) == (slot.chunk == 0)
        neighbour = stage - 1 if down else stage + 1
        if 0 <= neighbour <= self._last:
            return neighbour, slot
        if slot.direction is Pass.FORWARD:
            return None if slot.chunk == 0 else (stage, Slot(slot.microbatch, Pass.FORWARD, 0))
        before = (Pass.FORWARD, 1) if slot.chunk == 1 else (Pass.INPUT, 1)
        return stage, Slot(slot.microbatch, *before)

    def take(self, stage: int, slot: Slot) -> None:
        """Run a slot."""
        self._done.add((stage, slot))
        self.slots[stage].append(slot)
        if slot.direction is Pass.WEIGHT:
            self._weights[stage].popleft()
            self._kept[stage] -= 1
            return
        self._block_passes[stage].popleft()
        if slot.direction is Pass.FORWARD:
            self._kept[stage] += 1
        else:
            self._weights[stage].append(Slot(slot.microbatch, Pass.WEIGHT, slot.chunk))


def zb_v(stages: int, microbatches: int) -> Order:
    """Return ZB-V: no bubble with as much memory as 1F1B.

    Parameters
    ----------
    stages, microbatches : int
        At least 1 stage, and 2 p - 1 microbatches.

    Notes
    -----
    Every stage keeps at most p microbatches, half of each in either chunk. With equal times of all passes a
    stage is busy from its first to its last pass; what is sent between stages doubles, as for any two chunks.

    References
    ----------
    Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241, section 6 and figure 6.
    """
    return tuple(_folded_stage(stage, stages, microbatches) for stage in range(stages))


def _folded_stage(stage: int, stages: int, microbatches: int) -> tuple[Slot, ...]:
    """Return one stage's slots of ZB-V: fill the V, turn, alternate, drain."""
    count: Counter[tuple[Pass, int]] = Counter()
    slots: list[Slot] = []

    def run(direction: Pass, chunk: int) -> None:
        slots.append(Slot(count[direction, chunk], direction, chunk))
        count[direction, chunk] += 1

    def back(chunk: int) -> None:
        run(Pass.INPUT, chunk)
        run(Pass.WEIGHT, chunk)

    behind = stages - stage
    for _ in range(2 * behind - 1):  # fill
        run(Pass.FORWARD, 0)
    for _ in range(stage):
        run(Pass.FORWARD, 1)
        run(Pass.FORWARD, 0)
    for _ in range(behind):  # turn
        run(Pass.FORWARD, 1)
        back(1)
    while count[Pass.FORWARD, 1] < microbatches:
        if count[Pass.FORWARD, 0] < microbatches:
            run(Pass.FORWARD, 0)
        back(0)
        run(Pass.FORWARD, 1)
        back(1)
    for _ in range(stage):  # drain
        run(Pass.INPUT, 0)
        run(Pass.INPUT, 1)
    for _ in range(behind):
        back(0)
    for chunk in (1, 0):
        while count[Pass.WEIGHT, chunk] < microbatches:
            run(Pass.WEIGHT, chunk)
    return tuple(slots)


ONE_FORWARD_ONE_BACKWARD = register_schedule(
    "1f1b",
    Schedule(
        order=one_forward_one_backward,
        interleaved=interleaved,
        in_flight=lambda stages, microbatches, stage: smaller(microbatches, stages - stage),
        closed_form=ClosedForm.ALTERNATING,
    ),
)
"""PipeDream with a flush (arXiv:2006.09503, arXiv:2104.04473), one version of the weights."""
GPIPE = register_schedule(
    "gpipe",
    Schedule(
        order=gpipe,
        in_flight=lambda stages, microbatches, stage: microbatches,
        woven=None,
        closed_form=ClosedForm.FORWARD_FIRST,
    ),
)
"""All forward passes first (arXiv:1811.06965)."""
ZERO_BUBBLE = register_schedule(
    "zero_bubble",
    Schedule(
        order=zero_bubble,
        in_flight=lambda stages, microbatches, stage: smaller(microbatches, stages),
        woven=None,
        closed_form=ClosedForm.SPLIT_BACKWARD,
    ),
)
"""ZB-H1 (arXiv:2401.10241)."""
DUALPIPE = register_schedule(
    "dualpipe",
    Schedule(
        order=dualpipe,
        in_flight=InFlight.FROM_ORDER,
        chain=Chain.BOTH_WAYS,
        least_microbatches=LeastMicrobatches(2, 0),
        multiple=2,
        woven=(Pass.FORWARD, Pass.BACKWARD),
        closed_form=ClosedForm.BOTH_WAYS,
    ),
)
"""That of DeepSeek-V3 (arXiv:2412.19437), with every parameter on two stages."""
ZB_H2 = register_schedule(
    "zb_h2",
    Schedule(
        order=partial(zero_bubble, depth=2),
        in_flight=lambda stages, microbatches, stage: smaller(microbatches, 2 * stages - 1),
        closed_form=ClosedForm.SPLIT_AHEAD,
    ),
)
"""ZB-H2 (arXiv:2401.10241), of twice the memory."""
ZB_V = register_schedule(
    "zb_v",
    Schedule(
        order=zb_v,
        in_flight=InFlight.FROM_ORDER,
        chain=Chain.FOLDED,
        least_microbatches=LeastMicrobatches(2, -1),
        closed_form=ClosedForm.FOLDED,
        saves_memory=True,
    ),
)
"""ZB-V (arXiv:2401.10241, section 6): the pipeline folded into a V."""
V_HALF = register_schedule(
    "v_half",
    Schedule(order=v_half, in_flight=InFlight.FROM_ORDER, chain=Chain.FOLDED, saves_memory=True),
)
"""V-Half (arXiv:2405.15362)."""
V_MIN = register_schedule(
    "v_min", Schedule(order=v_min, in_flight=InFlight.FROM_ORDER, chain=Chain.FOLDED, saves_memory=True)
)
"""V-Min (arXiv:2405.15362)."""
PIPEDREAM = register_schedule(
    "pipedream",
    Schedule(
        order=one_forward_one_backward,
        in_flight=lambda stages, microbatches, stage: stages - stage,
        updates=Updates.EACH_MICROBATCH,
    ),
)
"""PipeDream (arXiv:1806.03377), which never empties the pipeline and keeps versions of the weights."""
PIPEDREAM_2BW = register_schedule(
    "pipedream_2bw",
    Schedule(
        order=one_forward_one_backward,
        in_flight=lambda stages, microbatches, stage: stages - stage,
        least_microbatches=LeastMicrobatches(1, 0),
        updates=Updates.DOUBLE_BUFFERED,
    ),
)
"""PipeDream with double-buffered weights (arXiv:2006.09503)."""
