"""Eager 1F1B: a schedule from outside the package, for tests of what a registered schedule can do."""

from simulator.amounts import smaller
from workloads.pipeline.schedule import Pass, Schedule, Slot


def order(stages, microbatches):
    """Return 1F1B with twice its warm-up, so that a stage need not wait for what is being sent."""
    found = []
    for stage in range(stages):
        ahead = min(2 * (stages - 1 - stage), microbatches)
        slots = [Slot(microbatch, Pass.FORWARD) for microbatch in range(ahead)]
        for index in range(microbatches):
            if ahead + index < microbatches:
                slots.append(Slot(ahead + index, Pass.FORWARD))
            slots.append(Slot(index, Pass.BACKWARD))
        found.append(tuple(slots))
    return tuple(found)


def in_flight(stages, microbatches, stage):
    return smaller(microbatches, 2 * (stages - 1 - stage) + 1)


EAGER = Schedule(order=order, in_flight=in_flight, name="eager 1f1b, not registered")
