"""A pipeline schedule of your own: 1F1B with twice its warm-up, which waits for no transfer."""

import heliograph as hg
from simulator.amounts import smaller
from workloads.pipeline.schedule import Pass, Schedule, Slot


def order(stages, microbatches):
    """Return the passes of every stage in their order."""
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
    """Return the most microbatches whose activations a stage keeps; registering holds `order` to it."""
    return smaller(microbatches, 2 * (stages - 1 - stage) + 1)


hg.register_schedule("eager_1f1b", Schedule(name="eager 1F1B", order=order, in_flight=in_flight))
system = hg.system("gpu_packet", accelerators=16)
for name in ("1f1b", "eager_1f1b"):
    plan = f"tp=2,pp=4,dp=2,global_batch=16,sequence_length=2048,schedule={name}"
    result = hg.simulate(system, "llama-3-8b", plan)
    kept_gb = result.memory_bytes["activations"] / 1e9
    print(f"{name}: {result.step_time_s:.4f} s, {kept_gb:.2f} GB of activations")
