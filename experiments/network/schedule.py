"""Command ``heliograph network schedule``: the time line of a pipeline schedule.

Passes have given lengths (`unit_timeline`), or are those of a step that the engine ran (`engine_timeline`).
A schedule without a flush between steps (PipeDream) runs for several steps, and the numbers of its steady
state follow those of the first to the last pass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from experiments.hardware import Hardware, Workload, one_step
from experiments.study import Block, Progress, Result, Row, Study, option, refuse_unused
from heliograph.figures import PALETTE, REFERENCE, WIDTH_IN, label, new_figure, swatches
from heliograph.report import ReportRow, ReportTable, format_si, prefix_of
from heliograph.simulation import StepResult
from heliograph.workload import know_schedule
from simulator.errors import HeliographError, nearest
from simulator.operators import Sequence as Work
from simulator.operators import Task
from simulator.results import Span, Stream, steady
from workloads.pipeline.schedule import SCHEDULE_ALIASES, SCHEDULES, Pass, PassTimes, Played, peak_kept, play
from workloads.pipeline.schedules import ONE_FORWARD_ONE_BACKWARD
from workloads.plan.plan import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

INTERLEAVED = "interleaved"
"""Name of 1F1B with several chunks a stage; in a plan it is vpp."""
MOST_BOXES = 20_000
"""Passes beyond which a picture is refused; a choice, no reader could tell them apart."""
LONGEST_PASS = 1e15
"""Longest pass of given length, so that sums of many stay exact enough."""
UPDATE = "update"
"""Kind of a box that is an optimizer's step."""
STEPS_PLAYED = 3
"""Steps that are played one after another to find the steady state of a schedule with a flush."""
STEPS_DRAWN = 2
"""Length of the time line of a run of several steps, in steps of the steady state."""


@dataclass(frozen=True, kw_only=True)
class Box:
    """One pass of a stage, or an optimizer's step."""

    stage: int
    """Pipeline stage, from 0."""
    kind: str
    """Pass, or ``"update"``."""
    microbatch: int
    """Microbatch, from 0; -1 for an update."""
    chunk: int
    """Chunk of the stage."""
    start: float
    """Start, in the time line's unit."""
    end: float
    """End."""


@dataclass(frozen=True, kw_only=True)
class Timeline(Result):
    """Time line of a schedule, with its lengths, bubbles and peaks of memory."""

    name: str
    """Name of the schedule, or schedule and model."""
    unit: str
    """Unit of time: ``"s"``, or empty for passes of given length, whose unit is the user's."""
    stages: int
    """Pipeline stages."""
    microbatches: int
    """Microbatches of a step."""
    chunks: int
    """Chunks of a stage."""
    boxes: tuple[Box, ...]
    """All passes within `length`."""
    length: float
    """Time from the first to the last pass of a step; `STEPS_DRAWN` steps if the run has several."""
    steps: int
    """Steps of the run; if there is one, numbers of the steady state are those of that step."""
    step_time: float
    """Time of a step in the steady state, in which no stage waits for another's update."""
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

    def report(self) -> list[Block]:
        """Return the table of lengths, bubbles and peaks."""
        return [ReportTable(f"Schedule {self.name}", [self.name], timeline_rows(self))]

    def rows(self) -> list[Row]:
        """Return a row for each pass."""
        return [dataclasses.asdict(box) for box in self.boxes]

    def figure(self) -> Figure:
        """Return a bar for each stage with a box for each pass, grey where the stage waits."""
        from matplotlib.patches import Rectangle  # noqa: PLC0415 - only to draw

        if not self.boxes:
            msg = f"nothing to draw: '{self.name}' has no pass"
            raise HeliographError(msg)
        symbol, factor = prefix_of(self.length) if self.unit else ("", 1.0)
        figure = new_figure(1.15 + max(0.24 * self.stages, 0.5))
        axes = figure.add_subplot()
        for stage in range(self.stages):
            axes.add_patch(Rectangle((0, stage - _ROW / 2), self.length / factor, _ROW, color=_IDLE, lw=0))
        _draw_boxes(axes, self, factor)
        _write_microbatches(axes, self, factor)
        axes.set_xlim(0.0, self.length / factor)
        axes.set_ylim(self.stages - 0.5, -0.5)
        axes.set_yticks(range(self.stages), [f"Stage {stage}" for stage in range(self.stages)])
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        unit = f"Time ({symbol}{self.unit})" if self.unit else "Time (units of a pass)"
        axes.set_xlabel(unit)
        bubble = f"bubble {100 * self.bubble_share:.1f} %"
        if self.steps > 1 and abs(self.bubble_share - self.steady_bubble_share) > 5e-4:
            bubble += f", {100 * self.steady_bubble_share:.1f} % in the steady state"
        peak = f"at most {max(self.peak_microbatches):g} microbatches kept"
        axes.set_title(f"{_title(self.name)}: {bubble}; {peak}", loc="left")
        handles = _legend(self)
        columns = len(handles) if len(handles) <= _LEGEND_COLUMNS else -(-len(handles) // 2)
        figure.legend(
            handles=handles, loc="outside lower center", ncols=columns, columnspacing=1.2, handlelength=1.4
        )
        return figure


def schedule_names() -> list[str]:
    """Return the names of schedules that can be drawn."""
    return [*SCHEDULES, INTERLEAVED]


def unit_timeline(name: str, *, stages: int, microbatches: int, chunks: int, times: PassTimes) -> Timeline:
    """Return the time line of a named schedule with passes of given length.

    Parameters
    ----------
    name : str
        One of `schedule_names`, or another name that papers have for one (`SCHEDULE_ALIASES`).
    stages, microbatches : int
        At least 1.
    chunks : int
        Chunks a stage, for ``"interleaved"``.
    times : PassTimes
        Length of passes.
    """
    name = SCHEDULE_ALIASES.get(name, name)
    _check(name, stages=stages, microbatches=microbatches, chunks=chunks, times=times)
    kind = ONE_FORWARD_ONE_BACKWARD if name == INTERLEAVED else SCHEDULES[name]
    plan = Plan.of(
        pp=stages, global_batch=microbatches, schedule=kind, vpp=chunks if name == INTERLEAVED else 1
    )
    _refuse_crowd(2 * stages * microbatches * plan.schedule.vpp)
    pipeline = plan.pipeline
    once = play(pipeline, times)
    repeated = once if kind.flows else play(pipeline, times, steps=STEPS_PLAYED)
    step_time = _step_time(repeated, microbatches)
    length = STEPS_DRAWN * step_time if kind.flows else max(one.end for one in once)
    boxes = _within(
        [
            Box(
                stage=one.stage,
                kind=str(one.slot.direction),
                microbatch=one.slot.microbatch,
                chunk=one.slot.chunk,
                start=one.start,
                end=one.end,
            )
            for one in once
        ],
        length,
    )
    busy = sum(box.end - box.start for box in boxes)
    work = microbatches * (times.forward + times.inputs + times.weights)
    return Timeline(
        name=name,
        unit="",
        stages=stages,
        microbatches=microbatches,
        chunks=pipeline.chunks,
        boxes=boxes,
        length=length,
        steps=plan.steps_in_run if kind.flows else STEPS_PLAYED,
        step_time=step_time,
        bubble_share=1.0 - busy / (length * stages),
        steady_bubble_share=max(0.0, 1.0 - work / step_time),
        peak_microbatches=peak_kept(pipeline),
        weight_versions=tuple(plan.weight_versions(stage) for stage in range(stages)),
    )


def _within(boxes: Sequence[Box], length: float) -> tuple[Box, ...]:
    """Return the boxes that begin before the end of the time line, cut off there."""
    return tuple(dataclasses.replace(box, end=min(box.end, length)) for box in boxes if box.start < length)


def _check(name: str, *, stages: int, microbatches: int, chunks: int, times: PassTimes) -> None:
    if name != INTERLEAVED:
        know_schedule(name)
    names = schedule_names()
    if name not in names:
        msg = f"unknown schedule '{name}' (a model needs --plan); {nearest(name, names, noun='schedule')}"
        raise HeliographError(msg)
    if name == INTERLEAVED and chunks < 2:
        msg = f"chunks ({chunks}) must be at least 2 to interleave; try 2"
        raise HeliographError(msg)
    for what, value in (("stages", stages), ("microbatches", microbatches)):
        if value < 1:
            msg = f"{what} ({value}) must be at least 1"
            raise HeliographError(msg)
    longest = max(times.forward, times.inputs, times.weights)
    if longest > LONGEST_PASS:
        msg = f"time of a pass ({longest:g}) must be at most {LONGEST_PASS:g}"
        raise HeliographError(msg)


def _refuse_crowd(boxes: int) -> None:
    """Refuse to draw more passes than a picture can show."""
    if boxes > MOST_BOXES:
        msg = f"{boxes} passes are too many to draw (at most {MOST_BOXES}); take fewer stages or microbatches"
        raise HeliographError(msg)


def _step_time(played: Sequence[Played], microbatches: int) -> float:
    """Return the time from one step's end to the next; of many steps the last is left out."""
    ends: dict[int, float] = {}
    for one in played:
        step = one.slot.microbatch // microbatches
        ends[step] = max(ends.get(step, 0.0), one.end)
    last = max(ends) if len(ends) <= STEPS_PLAYED else max(ends) - 1
    return ends[last] - ends[last - 1]


def engine_timeline(result: StepResult) -> Timeline:
    """Return the time line of a step as the engine ran it."""
    plan = result.plan
    stages = range(plan.axes.pp)
    pipeline = plan.pipeline
    tasks = {task.id: task for task in result.graph.tasks}
    every: list[Box] = []
    for stage in stages:
        every += _engine_boxes(result.trace.of(stage, Stream.COMPUTE), tasks)
    state = steady(result.trace, result.graph)
    length = max(box.end for box in every)
    if state.run_steps > 1:
        length = min(length, STEPS_DRAWN * state.step_time_s)
    boxes = _within(every, length)
    _refuse_crowd(len(boxes))
    busy = sum(box.end - box.start for box in boxes)
    steady_busy = sum(span.duration_s for stage in stages for span in state.trace.of(stage, Stream.COMPUTE))
    layers = tuple(1.0 for _ in range(pipeline.chunks))
    share = len(pipeline.chains[0]) / plan.axes.pp
    return Timeline(
        name=f"{plan.schedule.kind if plan.schedule.vpp == 1 else INTERLEAVED}, {result.model}",
        unit="s",
        stages=plan.axes.pp,
        microbatches=plan.microbatches,
        chunks=pipeline.chunks,
        boxes=boxes,
        length=length,
        steps=state.run_steps,
        step_time=state.step_time_s,
        bubble_share=1.0 - busy / (length * plan.axes.pp),
        steady_bubble_share=1.0 - steady_busy / (state.trace.makespan_s * plan.axes.pp),
        peak_microbatches=tuple(pipeline.kept(stage, layers) / share for stage in stages),
        weight_versions=tuple(plan.weight_versions(stage) for stage in stages),
    )


def _engine_boxes(spans: Sequence[Span], tasks: Mapping[int, Task]) -> list[Box]:
    """Return the boxes of a stage; spans of one pass that follow each other become one box."""
    boxes: list[Box] = []
    for span in spans:
        work = tasks[span.task].operator
        box = Box(
            stage=span.rank_class,
            kind=span.name if isinstance(work, Work) else UPDATE,
            microbatch=span.microbatch,
            chunk=work.chunk if isinstance(work, Work) else 0,
            start=span.start_s,
            end=span.end_s,
        )
        last = boxes[-1] if boxes else box
        if boxes and (last.kind, last.microbatch, last.chunk) == (box.kind, box.microbatch, box.chunk):
            boxes[-1] = dataclasses.replace(last, end=box.end)
        else:
            boxes.append(box)
    return boxes


def timeline_rows(timeline: Timeline) -> list[ReportRow]:
    """Return the lines of the table of a time line's numbers."""

    def time(value: float) -> str:
        return format_si(value, timeline.unit) if timeline.unit else f"{value:g}"

    def per_stage(values: Sequence[float]) -> str:
        low, high = min(values), max(values)
        return f"{high:g}" if low == high else f"{low:g} to {high:g}"

    note = "of the engine" if timeline.unit else "in the passes' unit"
    steady_state = [
        ReportRow("step, steady state", (time(timeline.step_time),), note),
        ReportRow("  bubble", (f"{100 * timeline.steady_bubble_share:.1f} %",), "of that"),
    ]
    return [
        ReportRow("stages", (str(timeline.stages),)),
        ReportRow("chunks a stage", (str(timeline.chunks),)),
        ReportRow("microbatches a step", (str(timeline.microbatches),)),
        ReportRow("first to last pass", (time(timeline.length),), note, section=True),
        ReportRow("  bubble", (f"{100 * timeline.bubble_share:.1f} %",), "of that"),
        *(steady_state if timeline.steps > 1 else ()),
        ReportRow(
            "activation peak, microbatches",
            (per_stage(timeline.peak_microbatches),),
            "by stage",
            section=True,
        ),
        ReportRow("versions of the weights", (per_stage(timeline.weight_versions),), "by stage"),
    ]


PASS_COLOURS = {
    str(Pass.FORWARD): PALETTE[0],
    str(Pass.BACKWARD): PALETTE[5],
    str(Pass.INPUT): PALETTE[1],
    str(Pass.WEIGHT): PALETTE[2],
    UPDATE: PALETTE[7],
}
"""Colour of each kind of pass in every picture."""
PASS_NAMES = {
    str(Pass.FORWARD): "Forward",
    str(Pass.BACKWARD): "Backward",
    str(Pass.INPUT): "Backward, inputs",
    str(Pass.WEIGHT): "Backward, weights",
    UPDATE: "Optimizer",
}
"""Names of kinds of passes in a legend."""

TITLES = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved": "Interleaved 1F1B",
    "zero_bubble": "ZB-H1",
    "zb_h2": "ZB-H2",
    "zb_v": "ZB-V",
    "v_half": "V-Half",
    "v_min": "V-Min",
    "dualpipe": "DualPipe",
    "pipedream": "PipeDream",
    "pipedream_2bw": "PipeDream-2BW",
}
"""Names of schedules in print."""

_ROW = 0.86
_IDLE = "#EEEEEE"
_LIGHTEST = 0.62
_POINTS_PER_INCH = 72.0
_FONT = 6.5
_LEAST_FONT = 3.4
_DIGIT_WIDTH = 0.62
_AXES_SHARE = 0.9
_LEGEND_COLUMNS = 6


def _title(name: str) -> str:
    """Return the name of a time line, ``schedule`` or ``schedule, model``, in print."""
    schedule, comma, model = name.partition(", ")
    return label(f"{TITLES.get(schedule, schedule)}{comma}{model}")


def _shade(kind: str, chunk: int, chunks: int) -> tuple[float, float, float]:
    """Return a pass's colour, mixed with white the more the later its chunk."""
    from matplotlib.colors import to_rgb  # noqa: PLC0415 - only to draw

    red, green, blue = to_rgb(PASS_COLOURS.get(kind, PALETTE[7]))
    white = _LIGHTEST * chunk / max(chunks - 1, 1)
    return tuple(one + (1.0 - one) * white for one in (red, green, blue))  # type: ignore[return-value]


def _draw_boxes(axes: Axes, timeline: Timeline, factor: float) -> None:
    from matplotlib.collections import PatchCollection  # noqa: PLC0415 - only to draw
    from matplotlib.patches import Rectangle  # noqa: PLC0415 - only to draw

    patches = [
        Rectangle((box.start / factor, box.stage - _ROW / 2), (box.end - box.start) / factor, _ROW)
        for box in timeline.boxes
    ]
    inches = WIDTH_IN * _AXES_SHARE / timeline.length
    narrow = min((box.end - box.start) * inches for box in timeline.boxes if box.kind != UPDATE)
    axes.add_collection(
        PatchCollection(
            patches,
            facecolors=[_shade(box.kind, box.chunk, timeline.chunks) for box in timeline.boxes],
            edgecolors="white",
            linewidths=min(0.5, narrow * _POINTS_PER_INCH / 8),
        )
    )


def _write_microbatches(axes: Axes, timeline: Timeline, factor: float) -> None:
    """Write the number of the microbatch into each box that has room for it.

    The letters of a kind of pass fit its median width; a kind for which they would be too small has none.
    """
    points = WIDTH_IN * _AXES_SHARE * _POINTS_PER_INCH / timeline.length
    digits = len(str(1 + max(box.microbatch for box in timeline.boxes)))
    for kind in sorted({box.kind for box in timeline.boxes} - {UPDATE}):
        boxes = [box for box in timeline.boxes if box.kind == kind]
        width = median(box.end - box.start for box in boxes)
        size = min(_FONT, 0.9 * points * width / (_DIGIT_WIDTH * digits))
        if size < _LEAST_FONT:
            continue
        for box in boxes:
            text = str(box.microbatch + 1)
            if (box.end - box.start) * points < _DIGIT_WIDTH * size * len(text):
                continue
            centre = ((box.start + box.end) / 2 / factor, box.stage)
            ink = _ink(box, timeline)
            axes.text(*centre, text, fontsize=size, ha="center", va="center_baseline", color=ink)


def _ink(box: Box, timeline: Timeline) -> str:
    """Return black or white, whichever stands out against a box."""
    red, green, blue = _shade(box.kind, box.chunk, timeline.chunks)
    return REFERENCE if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def _legend(timeline: Timeline) -> list[Patch]:
    kinds = [kind for kind in PASS_COLOURS if any(box.kind == kind for box in timeline.boxes)]
    colours: dict[str, Any] = {PASS_NAMES[kind]: PASS_COLOURS[kind] for kind in kinds}
    if timeline.chunks > 1:
        colours["Lighter: later chunk"] = _shade(str(Pass.FORWARD), timeline.chunks - 1, timeline.chunks)
    return swatches(colours | {"Idle": _IDLE})


DEFAULT_SYSTEM = "gpu_packet"
"""Default system that runs a step whose time line is drawn."""


@dataclass(frozen=True, kw_only=True)
class PipelineSchedule(Study):
    """Time line of a pipeline schedule, or of a model's step."""

    directory = "schedule_{name}"

    name: str = option(
        ..., "schedule (1f1b, interleaved, zb_v, mine.py:ORDER, ...), or with --plan a model", positional=True
    )
    stages: int = option(4, "pipeline stages", metavar="P")
    microbatches: int = option(8, "microbatches of a step", metavar="M")
    chunks: int = option(2, "chunks a stage, if interleaved", metavar="V")
    forward: float = option(1.0, "time of a forward pass", metavar="T")
    inputs: float = option(1.0, "of the backward of inputs", metavar="T")
    weights: float = option(1.0, "of the backward of weights", metavar="T")
    plan: str = option("", "draw a model's step under it: schedule=zb_v,pp=4,...")
    system: str | None = option(None, f"what runs that step; default {DEFAULT_SYSTEM}")
    accelerators: int | None = option(None, "default: what the plan uses", metavar="N")
    hardware: Hardware = field(default_factory=Hardware)

    def run(self, progress: Progress) -> Timeline:
        """Return the time line."""
        if self.system or self.plan:
            drawn = "stages, microbatches and times are those of the plan's step"
            refuse_unused(self, ("stages", "microbatches", "chunks", "forward", "inputs", "weights"), drawn)
            workload = Workload(model=self.name, plan=self.plan)
            system = self.system or DEFAULT_SYSTEM
            return engine_timeline(one_step(system, workload, self.hardware, accelerators=self.accelerators))
        refuse_unused(self, ("accelerators", "hardware"), "passes of given length run on no system")
        if self.name != INTERLEAVED:
            refuse_unused(self, ("chunks",), f"a stage of '{self.name}' has the chunks of its schedule")
        return unit_timeline(
            self.name,
            stages=self.stages,
            microbatches=self.microbatches,
            chunks=self.chunks,
            times=PassTimes(forward=self.forward, inputs=self.inputs, weights=self.weights),
        )
