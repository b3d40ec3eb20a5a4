"""Training steps as a graph of tasks: pipeline stages, microbatches, gradient sums and updates."""

from __future__ import annotations

from heliograph.errors import WorkloadError
from heliograph.operators import StepGraph
from workloads.architecture import TransformerConfig
from workloads.expert_overlap import paired, run_pair
from workloads.flops import model_flops
from workloads.graph import Graph
from workloads.passes import Passes
from workloads.pipeline import Pipeline
from workloads.plan import Parallelism
from workloads.routing import dropped_share
from workloads.rules import check
from workloads.schedules import Order
from workloads.sharding import MOST_UNITS
from workloads.stage_run import StageRun
from workloads.unroll import FlowingRun, flowing_ends, unrolled

__all__ = ["build_step", "model_flops"]

MOST_TASKS = 4_000_000
"""Tasks beyond which a step graph is refused before memory runs out; a choice."""


def build_step(config: TransformerConfig, plan: Parallelism) -> StepGraph:
    """Return one training step of a model under a plan.

    Parameters
    ----------
    config : TransformerConfig
        The model.
    plan : Parallelism
        How it is cut.

    Returns
    -------
    StepGraph
        Class *c* is pipeline stage *c*. Every run of a microbatch through a chunk of a stage is a `Sequence`
        whose priority is its place in the schedule; sends between stages, gradient sums and parameter gathers
        are tasks of their own, so that they may overlap with compute. `model_flops` is that of `model_flops`.

    Raises
    ------
    WorkloadError
        If the plan does not fit the model, or the graph would be too large to hold.

    Notes
    -----
    With `Parallelism.zero` = 1 the parameters that the step before has updated are gathered while the first
    microbatch runs forward, and gradients are reduce-scattered while the last one runs backward, both in the
    parts of `workloads.sharding.stage_parts`; a part's sum waits for the part before (one communication
    stream). With 2 every microbatch reduces; with 3 it also gathers, one piece ahead of compute, forward and
    (unless `Parallelism.reshard` is false) backward. Plans with more than one step in a run
    (`Parallelism.steps_in_run`) give one graph that holds them all. Left out: the sum of a tied embedding's
    two copies between the first and the last stage, and the few bytes of the gradient norm and the loss.
    """
    check(config, plan)
    pieces = MOST_UNITS * 3 if plan.shards_parameters else 2
    pipeline = Pipeline(plan)
    pieces *= 8 * -(-config.layers // (plan.pp * plan.vpp)) if plan.overlap_experts else 1
    expected = plan.pp * plan.microbatches * plan.vpp * 2 * pieces * plan.steps_in_run
    if expected > MOST_TASKS:
        of_steps = f" x {plan.steps_in_run} steps" if plan.steps_in_run > 1 else ""
        msg = (
            f"plan: {plan.pp} stages x {plan.microbatches} microbatches{of_steps} make some "
            f"{expected} tasks, more than {MOST_TASKS}; use fewer stages, a larger micro_batch or a smaller "
            "global_batch"
        )
        raise WorkloadError(msg)
    passes = Passes(config, plan)
    graph = Graph()
    kind = FlowingRun if plan.schedule.flows else StageRun
    runs = [kind(config, pipeline, stage, passes, graph) for stage in range(plan.pp)]
    _interleave(runs, pipeline.order())
    for run in runs:
        run.exchange()
    for run in runs:
        run.update()
    step = StepGraph(
        tasks=tuple(graph.tasks),
        layout=plan.layout,
        tokens=plan.global_batch * plan.sequence_length,
        model_flops=model_flops(config, plan),
        dropped_share=dropped_share(config, plan),
        ends=flowing_ends(runs),
    )
    return step if plan.schedule.flows else unrolled(step, plan)


def _interleave(runs: list[StageRun], orders: Order) -> None:
    """Run every stage's slots, each as soon as what it waits for has been sent."""
    done = [0] * len(runs)
    moved = True
    while moved:
        moved = False
        for stage, run in enumerate(runs):
            order = orders[stage]
            while done[stage] < len(order) and run.ready(order[done[stage]]):
                slot = order[done[stage]]
                if not paired(run.plan, order, done[stage]):
                    run.run(slot)
                    done[stage] += 1
                elif run.ready(order[done[stage] + 1]):
                    run_pair(run, slot, order[done[stage] + 1])
                    done[stage] += 2
                else:
                    break
                moved = True
    if any(count < len(order) for count, order in zip(done, orders, strict=True)):
        msg = "schedule: stages wait for each other; a microbatch's passes stand in an impossible order"
        raise WorkloadError(msg)
