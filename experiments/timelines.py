"""The picture of a pipeline schedule: a row for each stage, a box for each pass, grey where it waits."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch, Rectangle

from experiments.report import prefix_of
from experiments.schedule import UPDATE, Box, Timeline
from experiments.style import PALETTE, REFERENCE, WIDTH_IN, label, new_figure, save, styled
from heliograph.errors import HeliographError
from workloads.schedules import Pass

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
"""What a kind of pass is called in a legend."""

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
"""What schedules are called in print."""

_ROW = 0.86
_IDLE = "#EEEEEE"
_LIGHTEST = 0.62
_POINTS_PER_INCH = 72.0
_FONT = 6.5
_LEAST_FONT = 3.4
_DIGIT_WIDTH = 0.62
_AXES_SHARE = 0.9
_LEGEND_COLUMNS = 6


def draw_timeline(timeline: Timeline, path: Path) -> tuple[Path, Path]:
    """Draw a time line as PNG and SVG.

    Parameters
    ----------
    timeline : Timeline
        What to draw. Microbatches are numbered from 1 where a number fits; the lighter a box, the later its
        chunk stands in the model's order on its stage.
    path : pathlib.Path
        Where; written with the suffixes ``.png`` and ``.svg``.

    Raises
    ------
    HeliographError
        If there is nothing to draw, or the file cannot be written.
    """
    if not timeline.boxes:
        msg = f"nothing to draw: '{timeline.name}' has no pass"
        raise HeliographError(msg)
    symbol, factor = prefix_of(timeline.length) if timeline.unit else ("", 1.0)
    with styled():
        figure = new_figure(1.15 + max(0.24 * timeline.stages, 0.5))
        axes = figure.add_subplot()
        for stage in range(timeline.stages):
            axes.add_patch(
                Rectangle((0, stage - _ROW / 2), timeline.length / factor, _ROW, color=_IDLE, lw=0)
            )
        _draw_boxes(axes, timeline, factor)
        _number(axes, timeline, factor)
        axes.set_xlim(0.0, timeline.length / factor)
        axes.set_ylim(timeline.stages - 0.5, -0.5)
        axes.set_yticks(range(timeline.stages), [f"Stage {stage}" for stage in range(timeline.stages)])
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        unit = f"Time ({symbol}{timeline.unit})" if timeline.unit else "Time (units of a pass)"
        axes.set_xlabel(unit)
        bubble = f"bubble {100 * timeline.bubble_share:.1f} %"
        if timeline.steps > 1 and abs(timeline.bubble_share - timeline.steady_bubble_share) > 5e-4:
            bubble += f", {100 * timeline.steady_bubble_share:.1f} % in the steady state"
        peak = f"at most {max(timeline.peak_microbatches):g} microbatches kept"
        axes.set_title(f"{_title(timeline.name)}: {bubble}; {peak}", loc="left")
        handles = _legend(timeline)
        columns = len(handles) if len(handles) <= _LEGEND_COLUMNS else -(-len(handles) // 2)
        figure.legend(
            handles=handles, loc="outside lower center", ncols=columns, columnspacing=1.2, handlelength=1.4
        )
        return save(figure, path)


def _title(name: str) -> str:
    schedule, comma, model = name.partition(", ")
    return label(f"{TITLES.get(schedule, schedule)}{comma}{model}")


def _shade(kind: str, chunk: int, chunks: int) -> tuple[float, float, float]:
    """Return a pass's colour, mixed with white the more the later its chunk."""
    red, green, blue = to_rgb(PASS_COLOURS.get(kind, PALETTE[7]))
    white = _LIGHTEST * chunk / max(chunks - 1, 1)
    return tuple(one + (1.0 - one) * white for one in (red, green, blue))  # type: ignore[return-value]


def _draw_boxes(axes: Axes, timeline: Timeline, factor: float) -> None:
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


def _number(axes: Axes, timeline: Timeline, factor: float) -> None:
    """Write each microbatch's number into its boxes; of each kind of pass into all of usual width or none."""
    points = WIDTH_IN * _AXES_SHARE * _POINTS_PER_INCH / timeline.length
    digits = len(str(1 + max(box.microbatch for box in timeline.boxes)))
    for kind in sorted({box.kind for box in timeline.boxes} - {UPDATE}):
        boxes = [box for box in timeline.boxes if box.kind == kind]
        usual = median(box.end - box.start for box in boxes)
        size = min(_FONT, 0.9 * points * usual / (_DIGIT_WIDTH * digits))
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
    handles = [Patch(color=PASS_COLOURS[kind], label=PASS_NAMES[kind]) for kind in kinds]
    if timeline.chunks > 1:
        light = _shade(str(Pass.FORWARD), timeline.chunks - 1, timeline.chunks)
        handles.append(Patch(color=light, label="Lighter: later chunk"))
    return [*handles, Patch(color=_IDLE, label="Idle")]
