"""Figures of a page in SVG: bars, lines and spans with tooltips, reached by mouse and keyboard."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from heliograph.figures import HATCHES, PALETTE, linear_width, looks_of, signed_ticks
from heliograph.report import format_si, plain_text, prefix_of, takes_prefix

_SHADES = (
    "",
    "60%, var(--paper)",
    "68%, var(--ink)",
    "32%, var(--paper)",
    "42%, var(--ink)",
    "82%, var(--paper)",
)
"""Shade of a colour in place of each hatching of `heliograph.figures.HATCHES`."""


def colours_of(names: Sequence[str]) -> dict[str, str]:
    """Return the CSS colour of every part."""
    colours = {}
    for name, (plain, hatch) in zip(names, looks_of(names), strict=True):
        colours[name] = f"var(--c{PALETTE.index(plain)})"
        if shade := _SHADES[HATCHES.index(hatch)]:
            colours[name] = f"color-mix(in srgb, {colours[name]} {shade})"
    return colours


WIDTH = 440.0
"""Width of a figure in SVG units; phones scale it to four fifths, larger screens slightly up."""
TEXT = 12.0
"""Height of letters in SVG units."""
_LEFT, _RIGHT = 8.0, 8.0
_ROW, _BAR = 40.0, 17.0
_PLOT_HEIGHT, _BELOW, _MARGIN_LEFT = 250.0, 46.0, 62.0
WIDE = 30.0
"""Least ratio of the largest to the smallest number for a logarithmic axis; dimensionless."""
COLOURS = 12
"""Number of colours ``--c0``, ``--c1`` ... in the style sheet; further parts repeat them."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar, stacked from parts."""

    label: str
    """Name above it."""
    parts: Mapping[str, float]
    """Length of each part, at least 0."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line through points."""

    label: str
    """Name in the legend."""
    points: Sequence[tuple[float, float]]
    """Points in the order in which they are joined."""
    joined: bool = True
    """Whether a line joins the points."""
    colour: str = ""
    """CSS colour; by default that of its place among the lines."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """Change of a result at the low and the high end of a number's range."""

    label: str
    """Name of the number, above the bar."""
    low: float | None
    """Change at the low end; None if the core does not work there."""
    high: float | None
    """Change at the high end; None if the core does not work there."""
    low_told: str = ""
    """Text of the low end for the tooltip."""
    high_told: str = ""
    """Text of the high end for the tooltip."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """One figure of a page."""

    title: str
    """Caption, also the description for screen readers."""
    svg: str
    """The picture."""
    legend: Sequence[tuple[str, str]] = ()
    """Name and colour of each part or line."""
    note: str = ""
    """Sentence beneath it."""


def colour(place: int) -> str:
    """Return the colour of a place in the order of a figure's parts."""
    return f"var(--c{place % COLOURS})"


def bars(title: str, stacked: Sequence[Bar], colours: Mapping[str, str], *, unit: str) -> Drawing:
    """Return bars stacked by part, each with its sum at its end.

    Parameters
    ----------
    title : str
        Caption, also the description for screen readers.
    stacked : sequence of Bar
        From the top.
    colours : mapping of str to str
        Colour of each part; parts are drawn in this order.
    unit : str
        SI unit of the lengths.
    """
    sums = [math.fsum(one.parts.values()) for one in stacked]
    longest = max([*sums, 0.0]) or 1.0
    scale = (WIDTH - _LEFT - _RIGHT - 92.0) / longest
    marks = []
    for row, (one, total) in enumerate(zip(stacked, sums, strict=True)):
        top = _ROW * row + TEXT + 4.0
        start = 0.0
        marks.append(_text(_LEFT, top - 4.0, one.label, "name"))
        for part, fill in colours.items():
            length = one.parts.get(part, 0.0)
            if length <= 0.0:
                continue
            share = f"{100.0 * length / total:.1f} %"
            tooltip = f"{one.label}, {part}: {format_si(length, unit)}, {share}"
            box = _rect(_LEFT + start * scale, top, max(length * scale, 0.4), _BAR, fill)
            marks.append(_mark(tooltip, box))
            start += length
        marks.append(_text(_LEFT + start * scale + 5.0, top + _BAR - 4.0, format_si(total, unit)))
    svg = _svg(title, _ROW * len(stacked) + 4.0, marks)
    return Drawing(title=title, svg=svg, legend=list(colours.items()))


def spans(title: str, swings: Sequence[Span], *, unit: str) -> Drawing:
    """Return bars to both sides of zero, on a scale that is linear near zero and logarithmic far from it.

    Notes
    -----
    The length of a bar is ``asinh(change / c)``, with c the median of the changes, so that small changes stay
    readable beside one of hundreds of per cent.
    """
    ends = [end for one in swings for end in (one.low, one.high) if end is not None]
    linear = linear_width(ends)
    least, most = min([*ends, 0.0]), max([*ends, 0.0])
    low, high = math.asinh(least / linear), math.asinh(most / linear)
    room = WIDTH - 2.0 * 40.0
    scale = room / max(high - low, 1e-12)

    def across(value: float) -> float:
        return 40.0 + (math.asinh(value / linear) - low) * scale

    height = (_ROW - 6.0) * len(swings) + 4.0
    marks = []
    for tick in signed_ticks(least, most, linear):
        marks.append(_rule(across(tick), 0.0, across(tick), height, "axis" if tick == 0.0 else "grid"))
        marks.append(_text(across(tick), height + TEXT + 2.0, f"{tick:+g}" if tick else "0", "tick middle"))
    marks.append(_text(WIDTH / 2.0, height + 2.0 * TEXT + 8.0, f"change ({unit})", "middle"))
    for row, one in enumerate(swings):
        top = (_ROW - 6.0) * row + TEXT + 2.0
        marks.append(_text(_LEFT, top - 2.0, one.label, "name"))
        for end, told, fill in (
            (one.low, one.low_told, "var(--low)"),
            (one.high, one.high_told, "var(--high)"),
        ):
            if end is None:
                tooltip = f"{one.label} at {told}: the core does not work"
                marks.append(_mark(tooltip, _text(across(0.0), top + 12.0, "\u00d7", "cross middle", fill)))
            elif end:
                tooltip = f"{one.label} at {told}: {end:+.3g} {unit}"
                left, right = sorted((across(0.0), across(end)))
                marks.append(_mark(tooltip, _rect(left, top + 1.0, max(right - left, 0.6), 14.0, fill)))
    legend = [("low end of its range", "var(--low)"), ("high end", "var(--high)")]
    return Drawing(title=title, svg=_svg(title, height + 2.0 * TEXT + 14.0, marks), legend=legend)


def lines(title: str, drawn: Sequence[Line], *, x: tuple[str, str], y: tuple[str, str]) -> Drawing:
    """Return lines through points over two axes, each logarithmic if its numbers span a wide range.

    Parameters
    ----------
    title : str
        Caption, also the description for screen readers.
    drawn : sequence of Line
        The lines.
    x, y : (str, str)
        Name and SI unit of the axes.
    """
    across = _Axis.of([point[0] for one in drawn for point in one.points], _MARGIN_LEFT, WIDTH - 16.0)
    up = _Axis.of([point[1] for one in drawn for point in one.points], _PLOT_HEIGHT, 12.0)
    marks = []
    for tick in across.ticks():
        at = across.place(tick)
        marks.append(_rule(at, 12.0, at, _PLOT_HEIGHT, "grid"))
        marks.append(_text(at, _PLOT_HEIGHT + TEXT + 4.0, across.told(tick, x[1]), "tick middle"))
    for tick in up.ticks():
        at = up.place(tick)
        marks.append(_rule(_MARGIN_LEFT, at, WIDTH - 16.0, at, "grid"))
        marks.append(_text(_MARGIN_LEFT - 5.0, at + 4.0, up.told(tick, y[1]), "tick end"))
    marks.append(
        _text((WIDTH + _MARGIN_LEFT) / 2, _PLOT_HEIGHT + 2.0 * TEXT + 12.0, _axis_name(across, x), "middle")
    )
    marks.append(_text(4.0, 4.0, _axis_name(up, y), "tick"))
    legend = [(one.label, one.colour or colour(place)) for place, one in enumerate(drawn)]
    for one, (_, paint) in zip(drawn, legend, strict=True):
        marks.append(_joined(one, across, up, paint))
        for point in one.points:
            if across.has(point[0]) and up.has(point[1]):
                tooltip = f"{one.label}: {_full(point[0], x)}, {_full(point[1], y)}".removeprefix(": ")
                dot = (
                    f'<circle cx="{across.place(point[0]):.1f}" cy="{up.place(point[1]):.1f}" r="4" '
                    f'fill="{paint}"/>'
                )
                marks.append(_mark(tooltip, dot))
    return Drawing(title=title, svg=_svg(title, _PLOT_HEIGHT + _BELOW, marks, top=12.0), legend=legend)


def _joined(one: Line, across: _Axis, up: _Axis, stroke: str) -> str:
    """Return the path through a line's points, with gaps at points that the axes cannot show."""
    if not one.joined:
        return ""
    pieces, pen = [], "M"
    for x, y in one.points:
        if across.has(x) and up.has(y):
            pieces.append(f"{pen}{across.place(x):.1f} {up.place(y):.1f}")
            pen = "L"
        else:
            pen = "M"
    return f'<path d="{" ".join(pieces)}" fill="none" stroke="{stroke}" stroke-width="2"/>' if pieces else ""


@dataclass(frozen=True, kw_only=True)
class _Axis:
    """One axis: range of values, and the coordinates of its ends."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool
    factor: tuple[str, float]

    @classmethod
    def of(cls, values: Sequence[float], start: float, end: float) -> _Axis:
        """Return the axis that shows all values between coordinates `start` and `end`."""
        finite = [one for one in values if math.isfinite(one)] or [0.0, 1.0]
        least, most = min(finite), max(finite)
        alike = most - least <= SAME * max(abs(least), abs(most))
        wide = least > 0.0 and not alike and (most >= WIDE * least or _by_equal_factors(finite))
        margin = (0.05 * abs(most) or 1.0) if alike else 0.06 * (most - least)
        ends = (least / 1.15, most * 1.15) if wide else (least - margin, most + margin)
        if not wide and least >= 0.0 and (ends[0] < 0.0 or least < 0.35 * most):
            ends = (0.0, ends[1])
        return cls(
            low=ends[0], high=ends[1], start=start, end=end, logarithmic=wide, factor=prefix_of(abs(most))
        )

    def has(self, value: float) -> bool:
        """Return whether a value can be shown."""
        return math.isfinite(value) and (value > 0.0 or not self.logarithmic)

    def place(self, value: float) -> float:
        """Return the coordinate of a value."""
        if self.logarithmic:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return round values along it."""
        if self.logarithmic:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            steps = (1.0, 2.0, 5.0) if last - first <= 2 else (1.0,)
            found = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        else:
            step = self._step
            first = math.ceil(self.low / step - 1e-9)
            found = [step * (first + at) for at in range(12)]
        return [one for one in found if self.low <= one <= self.high * (1.0 + 1e-12)]

    def told(self, value: float, unit: str) -> str:
        """Return the text of a tick; on a logarithmic axis each tick has a prefix of its own."""
        if self.logarithmic and takes_prefix(unit):
            prefix, factor = prefix_of(value)
            return f"{value / factor:.3g} {prefix}{unit}"
        largest = max(abs(self.low), abs(self.high))
        digits = (
            4
            if self.logarithmic
            else 2 + math.floor(math.log10(largest)) - math.floor(math.log10(self._step))
        )
        return f"{value / (self.factor[1] if takes_prefix(unit) else 1.0):.{max(4, digits)}g}"

    @property
    def _step(self) -> float:
        """Distance between the ticks of a linear axis."""
        rough = (self.high - self.low) / 5.0
        size = 10.0 ** math.floor(math.log10(rough))
        return next(size * one for one in (1.0, 2.0, 2.5, 5.0, 10.0) if size * one >= rough)


def _by_equal_factors(values: Sequence[float]) -> bool:
    """Return whether positive values form a geometric series, as those of a logarithmic range do."""
    ordered = sorted(set(values))
    factors = [second / first for first, second in itertools.pairwise(ordered)]
    return len(factors) >= FACTORS and max(factors) - min(factors) < 1e-6 * max(factors)


SAME = 1e-9
"""Relative difference below which values count as equal; a choice."""
FACTORS = 3
"""Least number of equal ratios for values to count as a logarithmic range; a choice."""


def _axis_name(axis: _Axis, name: tuple[str, str]) -> str:
    if not name[1]:
        return name[0]
    prefix = axis.factor[0] if takes_prefix(name[1]) and not axis.logarithmic else ""
    return f"{name[0]} ({prefix}{name[1]})"


def _full(value: float, name: tuple[str, str]) -> str:
    return f"{name[0]} {format_si(value, name[1])}"


def _svg(title: str, height: float, marks: Sequence[str], *, top: float = 0.0) -> str:
    """Return a picture as a group of marks, of which one at a time can have the keyboard focus."""
    return (
        f'<svg viewBox="0 {-top:g} {WIDTH:g} {height + top:.0f}" role="group" aria-label="{_escaped(title)}" '
        f'preserveAspectRatio="xMinYMin meet">{"".join(marks)}</svg>'
    )


def _mark(tooltip: str, shape: str) -> str:
    words = _escaped(tooltip)
    return f'<g class="mark" role="img" aria-label="{words}" data-tip="{words}">{shape}</g>'


def _rect(x: float, y: float, width: float, height: float, fill: str) -> str:
    return f'<rect x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{height:g}" fill="{_escaped(fill)}"/>'


def _rule(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _text(x: float, y: float, words: str, kind: str = "", fill: str = "") -> str:
    painted = f' style="fill:{fill}"' if fill else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}"{painted}>{_escaped(words)}</text>'


def _escaped(words: str) -> str:
    return escape(plain_text(words))
