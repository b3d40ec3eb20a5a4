"""The time line of a pipeline schedule: with passes of given length, or as the engine ran a step."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.report import ReportRow, format_si
from experiments.step import StepResult
from heliograph.errors import HeliographError, nearest
from heliograph.steady import steady
from heliograph.trace import Span, Stream
from workloads.choices import Schedule
from workloads.pipeline import Pipeline
from workloads.plan import Parallelism
from workloads.schedules import Pass
from workloads.timeline import PassTimes, Played, peak_kept, play
from workloads.versions import weight_versions

INTERLEAVED = "interleaved"
"""Name of 1F1B with several chunks a stage; in a plan it is vpp."""
MOST_BOXES = 20_000
"""Passes beyond which a picture is refused; a choice, no reader could tell them apart."""
UPDATE = "update"
"""Kind of a box that is an optimizer's step."""
STEPS_SHOWN = 3
"""Steps in a row by which the steady state of a flushed schedule is found."""


@dataclass(frozen=True, kw_only=True)
class Box:
    """One pass in the picture."""

    stage: int
    """Pipeline stage, from 0."""
    kind: str
    """Pass, or ``"update"``."""
    microbatch: int
    """Which microbatch, from 0; -1 for an update."""
    chunk: int
    """Which of the stage's chunks."""
    start: float
    """When it starts, in the time line's unit."""
    end: float
    """When it ends."""


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """A schedule's time line with what it shows in numbers."""

    name: str
    """What is drawn."""
    unit: str
    """Unit of time: ``"s"``, or empty for a stage's passes in units of their own."""
    stages: int
    """Pipeline stages."""
    microbatches: int
    """Microbatches of a step."""
    chunks: int
    """Chunks of a stage."""
    boxes: tuple[Box, ...]
    """All passes."""
    length: float
    """Time from the first to the last; without a flush, two steps' worth."""
    step_time: float
    """Time of a step in the steady state, no stage waiting for another's update."""
    bubble_share: float
    """Share of all stages' time from the first to the last pass in which a stage runs nothing."""
    steady_bubble_share: float
    """The same of a step in the steady state."""
    peak_microbatches: tuple[float, ...]
    """Most microbatches whose activations each stage keeps at once."""
    weight_versions: tuple[int, ...]
    """Versions of its weights that each stage keeps."""

    def record(self) -> dict[str, Any]:
        """Return the time line as plain data."""
        return dataclasses.asdict(self)


def schedule_names() -> list[str]:
    """Return the names of schedules that can be drawn."""
    return [*(str(kind) for kind in Schedule), INTERLEAVED]


def unit_timeline(
    name: str, *, stages: int, microbatches: int, chunks: int, times: PassTimes
) -> Timeline:
    """Return the time line of a named schedule with passes of given length.

    Parameters
    ----------
    name : str
        One of `schedule_names`.
    stages, microbatches : int
        At least 1.
    chunks : int
        Chunks a stage, for ``"interleaved"``.
    times : PassTimes
        Length of passes.

    Raises
    ------
    HeliographError
        For an unknown name, or sizes that the schedule cannot have.
    """
    names = schedule_names()
    if name not in names:
        msg = f"unknown schedule '{name}' (a model needs --plan); {nearest(name, names, noun='schedule')}"
        raise HeliographError(msg)
    if name == INTERLEAVED and chunks < 2:
        msg = f"chunks ({chunks}) must be at least 2 to interleave; try 2"
        raise HeliographError(msg)
    kind = Schedule.ONE_FORWARD_ONE_BACKWARD if name == INTERLEAVED else Schedule(name)
    for what, value in (("stages", stages), ("microbatches", microbatches)):
        if value < 1:
            msg = f"{what} ({value}) must be at least 1"
            raise HeliographError(msg)
    plan = Parallelism(
        pp=stages,
        global_batch=microbatches,
        schedule=kind,
        vpp=chunks if name == INTERLEAVED else 1,
    )
    _refuse_crowd(2 * stages * microbatches * plan.vpp)
    pipeline = Pipeline(plan)
    once = play(pipeline, times)
    late = once if kind.flows else play(pipeline, times, steps=STEPS_SHOWN)
    share = len(pipeline.chains[0]) / stages
    step_time = _step_time(late, microbatches)
    length = 2 * step_time if kind.flows else max(one.end for one in once)
    shown = [dataclasses.replace(one, end=min(one.end, length)) for one in once if one.start < length]
    busy = sum(one.end - one.start for one in shown)
    work = microbatches * (times.forward + times.inputs + times.weights)
    return Timeline(
        name=name,
        unit="",
        stages=stages,
        microbatches=microbatches,
        chunks=pipeline.chunks,
        boxes=tuple(
            Box(
                stage=one.stage,
                kind=str(one.slot.direction),
                microbatch=one.slot.microbatch,
                chunk=one.slot.chunk,
                start=one.start,
                end=one.end,
            )
            for one in shown
        ),
        length=length,
        step_time=step_time,
        bubble_share=1.0 - busy / (length * stages),
        steady_bubble_share=max(0.0, 1.0 - work / step_time),
        peak_microbatches=peak_kept(once, stages, share),
        weight_versions=tuple(weight_versions(plan, stage) for stage in range(stages)),
    )


def _refuse_crowd(boxes: int) -> None:
    if boxes > MOST_BOXES:
        msg = f"{boxes} passes are too many for a picture; take fewer stages or microbatches ({MOST_BOXES} passes)"
        raise HeliographError(msg)


def _step_time(played: Sequence[Played], microbatches: int) -> float:
    """Return the time between the ends of the last two steps but one, or of the last two if there are three."""
    ends: dict[int, float] = {}
    for one in played:
        step = one.slot.microbatch // microbatches
        ends[step] = max(ends.get(step, 0.0), one.end)
    last = max(ends) if len(ends) <= STEPS_SHOWN else max(ends) - 1
    return ends[last] - ends[last - 1]


def engine_timeline(result: StepResult) -> Timeline:
    """Return the time line of a step as the engine ran it.

    Parameters
    ----------
    result : StepResult
        A run.

    Raises
    ------
    HeliographError
        If it holds too many passes to be drawn.
    """
    plan = result.plan
    stages = range(plan.pp)
    pipeline = Pipeline(plan)
    boxes: list[Box] = []
    for stage in stages:
        boxes += _engine_boxes(result.trace.of(stage, Stream.COMPUTE), stage, plan, pipeline.chunks)
    _refuse_crowd(len(boxes))
    late = steady(result.trace, result.graph)
    length = max(box.end for box in boxes)
    busy = sum(box.end - box.start for box in boxes)
    working = sum(
        span.duration_s for stage in stages for span in late.trace.of(stage, Stream.COMPUTE)
    )
    layers = tuple(1.0 for _ in range(pipeline.chunks))
    share = len(pipeline.chains[0]) / plan.pp
    return Timeline(
        name=f"{plan.schedule if plan.vpp == 1 else INTERLEAVED}, {result.model}",
        unit="s",
        stages=plan.pp,
        microbatches=plan.microbatches,
        chunks=pipeline.chunks,
        boxes=tuple(boxes),
        length=length,
        step_time=late.step_time_s,
        bubble_share=1.0 - busy / (length * plan.pp),
        steady_bubble_share=1.0 - working / (late.trace.makespan_s * plan.pp),
        peak_microbatches=tuple(pipeline.kept(stage, layers) / share for stage in stages),
        weight_versions=tuple(weight_versions(plan, stage) for stage in stages),
    )


def _engine_boxes(spans: Sequence[Span], stage: int, plan: Parallelism, chunks: int) -> list[Box]:
    """Return a stage's passes; pieces of one pass that follow each other become one."""
    boxes: list[Box] = []
    seen: Counter[tuple[str, int]] = Counter()
    per_step = plan.microbatches
    for span in spans:
        is_pass = span.microbatch >= 0
        kind = span.name if is_pass else UPDATE
        last = boxes[-1] if boxes else None
        if is_pass and last and (last.kind, last.microbatch) == (kind, span.microbatch) and chunks == 1:
            boxes[-1] = dataclasses.replace(last, end=span.end_s)
            continue
        chunk = 0
        if is_pass and chunks > 1:
            turn = seen[kind, span.microbatch] % chunks
            chunk = turn if kind == Pass.FORWARD else chunks - 1 - turn
            if plan.two_copies:
                chunk = int(span.microbatch % per_step >= per_step // 2)
            seen[kind, span.microbatch] += 1
        boxes.append(
            Box(
                stage=stage,
                kind=kind,
                microbatch=span.microbatch,
                chunk=chunk,
                start=span.start_s,
                end=span.end_s,
            )
        )
    return boxes


def timeline_rows(timeline: Timeline) -> list[ReportRow]:
    """Return what a time line shows as lines of a table."""

    def time(value: float) -> str:
        return format_si(value, timeline.unit) if timeline.unit else f"{value:g}"

    def per_stage(values: Sequence[float]) -> str:
        low, high = min(values), max(values)
        return f"{high:g}" if low == high else f"{low:g} to {high:g}"

    note = "of the engine" if timeline.unit else "in the passes' unit"
    return [
        ReportRow(label="stages", values=(str(timeline.stages),)),
        ReportRow(label="chunks a stage", values=(str(timeline.chunks),)),
        ReportRow(label="microbatches a step", values=(str(timeline.microbatches),)),
        ReportRow(label="first to last pass", values=(time(timeline.length),), note=note, section=True),
        ReportRow(label="  bubble", values=(f"{100 * timeline.bubble_share:.1f} %",), note="of that"),
        ReportRow(label="step, steady state", values=(time(timeline.step_time),), note=note),
        ReportRow(label="  bubble", values=(f"{100 * timeline.steady_bubble_share:.1f} %",), note="of that"),
        ReportRow(
            label="activation peak, microbatches",
            values=(per_stage(timeline.peak_microbatches),),
            note="by stage",
            section=True,
        ),
        ReportRow(
            label="versions of the weights", values=(per_stage(timeline.weight_versions),), note="by stage"
        ),
    ]
