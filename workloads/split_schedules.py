"""Pipeline orders that split the backward pass, so that gradients of weights fill the bubble."""

from __future__ import annotations

from collections import Counter, deque

from heliograph.errors import WorkloadError
from workloads.schedules import Order, Pass, Slot, check_sizes


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
    check_sizes(stages, microbatches)
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


class _Both:
    """One stage's slots in both directions of DualPipe: `near` enters on the stage's side."""

    def __init__(self, near: int, each: int) -> None:
        self._chunk = {True: near, False: 1 - near}
        self._each = each
        self._count: Counter[tuple[bool, Pass]] = Counter()
        self._waiting: deque[Slot] = deque()
        self.slots: list[Slot] = []

    def _next(self, near: bool, direction: Pass) -> Slot:
        chunk = self._chunk[near]
        place = Pass.FORWARD if direction is Pass.FORWARD else Pass.BACKWARD
        slot = Slot(self._count[near, place] + chunk * self._each, direction, chunk)
        self._count[near, place] += 1
        return slot

    def forward(self, *, near: bool) -> None:
        self.slots.append(self._next(near, Pass.FORWARD))

    def backward(self, *, near: bool, split: bool = False) -> None:
        slot = self._next(near, Pass.INPUT if split else Pass.BACKWARD)
        self.slots.append(slot)
        if split:
            self._waiting.append(Slot(slot.microbatch, Pass.WEIGHT, slot.chunk))

    def weights(self) -> None:
        self.slots.append(self._waiting.popleft())


def dualpipe(stages: int, microbatches: int) -> Order:
    """Return DualPipe: half of the microbatches enter at either end of the pipeline.

    Parameters
    ----------
    stages, microbatches : int
        Both even, at least 2 microbatches per stage.

    Raises
    ------
    WorkloadError
        If they are not.

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
    check_sizes(stages, microbatches)
    if stages % 2 or microbatches % 2 or microbatches < 2 * stages:
        msg = (
            f"schedule: dualpipe needs even stages ({stages}) and even microbatches ({microbatches}), at "
            f"least two a stage; try {max(2, stages + stages % 2)} stages and {2 * (stages + stages % 2)} "
            "microbatches or more"
        )
        raise WorkloadError(msg)
    return tuple(_both_ways(stage, stages, microbatches) for stage in range(stages))


def _both_ways(stage: int, stages: int, microbatches: int) -> tuple[Slot, ...]:
    """Return one stage's slots, in the eight steps of the reference's figure."""
    each = microbatches // 2
    from_end = min(stage, stages - 1 - stage)
    inner = stages // 2 - 1 - from_end
    run = _Both(0 if stage < stages // 2 else 1, each)
    for _ in range(2 * inner):
        run.forward(near=True)
    for _ in range(from_end + 1):
        run.forward(near=True)
        run.forward(near=False)
    for _ in range(inner):
        run.backward(near=False, split=True)
        run.weights()
        run.forward(near=False)
    for _ in range(each - stages + from_end + 1):
        run.forward(near=True)
        run.backward(near=False)
        run.forward(near=False)
        run.backward(near=True)
    for _ in range(inner):
        run.backward(near=False)
        run.forward(near=False)
        run.backward(near=True)
    split = False
    for index in range(from_end + 1):
        split = split or (index == (from_end + 1) // 2 and from_end % 2 == 1)
        run.backward(near=False, split=split)
        split = split or (index == (from_end + 1) // 2 and from_end % 2 == 0)
        run.backward(near=True, split=split)
    for _ in range(inner):
        run.weights()
        run.backward(near=True, split=True)
    for _ in range(from_end + 1):
        run.weights()
    return tuple(run.slots)
