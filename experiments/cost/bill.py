"""Bill of materials of a system or a fabric: counts, watts and dollars, with ranges that its tables give."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import shorten
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.hardware import Replaced, changes
from experiments.study import Block, Progress, Result, Row, Study, option
from heliograph.figures import PALETTE, REFERENCE, label, legend_below_or_above, new_figure
from heliograph.parameters import CHOICE, SET, Parameter, parameters_of
from heliograph.report import ReportRow, ReportTable, format_si, prefix_of
from heliograph.systems import System, build_system
from heliograph.systems.fabrics import CIRCUITS, FABRICS
from heliograph.systems.names import DEFAULT_ACCELERATORS, DEFAULT_CORE
from simulator.errors import HeliographError, ParameterError
from simulator.parameter_tree import replace_at
from simulator.tables import Status
from simulator.topology.scale_up import BillItem, CablePlant, bill_power_w, bill_price_usd, load_cables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACCELERATOR = "accelerator"
"""Line of the accelerators, of a system's bill."""
SERVER = "server"
"""Line of what carries them."""
TRUST = (*Status, CHOICE, SET)
"""Status of numbers, from the most trusted down."""
PRICES = ("_usd", "_usd_per_m", "_usd_per_m2")
"""Endings of the names of prices."""
NUDGE = 1.01
"""Factor by which a number without a range is moved, to see which lines it stands behind; dimensionless."""

Parts = Mapping[str, BillItem]


@dataclass(frozen=True, kw_only=True)
class Priced:
    """A fabric with its cables, and the accelerators where it is a whole system."""

    system: System
    """System whose fabric is billed."""
    cables: CablePlant
    """Fibres and panels."""
    whole: bool
    """Whether the accelerators are on the bill."""

    def parts(self) -> dict[str, BillItem]:
        """Return the bill: item -> count, power and price of each."""
        fabric = self.system.fabric.bill()
        found = dict(fabric) | self.cables.bill(fabric)
        if not self.whole:
            return found
        one = BillItem(
            count=self.system.accelerators,
            w_each=self.system.accelerator_peak_w(),
            usd_each=self.system.accelerator_usd(),
        )
        host, servers = self.system.host, self.system.servers
        each_w = host.static_w + sum(host.around(one.w_each + host.static_w).values())
        server = BillItem(
            count=servers, w_each=each_w * self.system.accelerators / servers, usd_each=host.chassis.price_usd
        )
        return {ACCELERATOR: one, SERVER: server} | found

    @property
    def root(self) -> object:
        """Tree that `simulator.parameter_tree` walks: the system, or of a fabric's bill its fabric."""
        return self.system if self.whole else self.system.fabric


@dataclass(frozen=True, kw_only=True)
class Span:
    """A value with the range that the tables' ranges give it."""

    value: float
    """The value."""
    low: float
    """Low end."""
    high: float
    """High end."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One item with its ranges and what they rest on."""

    item: str
    """Name."""
    count: int
    """Count."""
    power_w: Span
    """Power of all of them."""
    price_usd: Span
    """Price of all of them."""
    behind: tuple[Parameter, ...]
    """Numbers that move the line."""
    untold: tuple[str, ...] = ()
    """Quantities, ``power_w`` or ``price_usd``, of which nobody gave a number; they count as zero."""

    def status(self, endings: tuple[str, ...]) -> str:
        """Return the least trusted status behind the line of numbers with such names, or nothing."""
        found = {one.status for one in self.behind if one.path.endswith(endings)}
        return max(found, key=TRUST.index, default="")


@dataclass(frozen=True, kw_only=True)
class Bill:
    """A bill of materials."""

    name: str
    """Name of the system or fabric."""
    accelerators: int
    """Accelerators that share it."""
    lines: tuple[Line, ...]
    """Items, the most expensive first."""
    refused: tuple[str, ...]
    """Ends of ranges at which the fabric cannot be built, in words."""
    light: str = ""
    """What the laser of photonic accelerators is sized for, and their dies; nothing without."""

    def total(self, what: str) -> Span:
        """Return the sum over the lines of ``power_w`` or ``price_usd``; all ends at once."""
        spans: list[Span] = [getattr(line, what) for line in self.lines]
        return Span(
            value=math.fsum(one.value for one in spans),
            low=math.fsum(one.low for one in spans),
            high=math.fsum(one.high for one in spans),
        )

    def record(self) -> dict[str, Any]:
        """Return the bill as plain data."""
        return {
            "name": self.name,
            "accelerators": self.accelerators,
            "power_w": dataclasses.asdict(self.total("power_w")),
            "price_usd": dataclasses.asdict(self.total("price_usd")),
            "lines": [dataclasses.asdict(line) for line in self.lines],
            "refused": self.refused,
        }


def bill_of(priced: Priced, name: str) -> Bill:
    """Return the bill with its ranges.

    Notes
    -----
    Each number of the tables that has a range is first set to its ends alone, to see what it moves. Then all
    are set at once to the ends that lower (raise) the total power, and likewise the total price: the ends of
    the lines' ranges are the bills of these four corners. An end at which nothing can be built is left out
    and named. A number that the user set has no range. Counts are those of the design in all corners, and a
    photonic accelerator keeps its number of cores.
    """
    base = priced.parts()
    effects, behind, refused = [], {item: list[Parameter]() for item in base}, list[str]()
    for of_cables, one in _numbers(priced):
        moved = set()
        for end in _moved(one):
            try:
                other = _with(priced, one.path, end, of_cables=of_cables).parts()
            except HeliographError as error:
                refused.append(f"{one.path} = {end:g}: {error}")
                continue
            moved |= {item for item in base if other.get(item) != base[item]}
            if _has_range(one):
                effects.append(
                    _Effect(of_cables=of_cables, path=one.path, end=end, change=_change(base, other))
                )
        for item in moved:
            behind[item].append(one)
    corners = {
        (place, sign): _corner(priced, effects, place, sign, refused) for place in (0, 1) for sign in (-1, 1)
    }
    lines = [
        Line(
            item=item,
            count=part.count,
            power_w=_span(0, item, base, corners),
            price_usd=_span(1, item, base, corners),
            behind=tuple(behind[item]),
            untold=tuple(what for what, each in EACH.items() if each in part.untold),
        )
        for item, part in base.items()
    ]
    return Bill(
        name=name,
        accelerators=priced.system.accelerators,
        lines=tuple(sorted(lines, key=lambda line: -line.price_usd.value)),
        refused=tuple(dict.fromkeys(refused)),
        light=_light(priced.system) if priced.whole else "",
    )


def _light(system: System) -> str:
    """Return with which laser photonic accelerators are billed, and their dies; nothing without light."""
    power_w = system.laser_power_w
    if power_w is None or system.photonic is None:
        return ""
    dies = f"Dies, stacked in pairs: {system.photonic.cut},\n{system.photonic.other_cuts}."
    if system.lighting is None or system.lighting.wanted is None:
        return f"Light: as it stands, {format_si(power_w, 'W')} a laser or line.\n{dies}"
    return (
        f"Light: as shipped, {format_si(power_w, 'W')} a laser or line. A step sizes it for the\n"
        f"precision of {system.lighting} ('heliograph step' tells how bright), and cores with it.\n{dies}"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Effect:
    """Effect of one end of a range on the totals."""

    of_cables: bool
    """Whether the number is one of the cables, not of the fabric or system."""
    path: str
    """Its place there."""
    end: float
    """End of its range."""
    change: tuple[float, float]
    """Change of total power and of total price."""


def _numbers(priced: Priced) -> Iterator[tuple[bool, Parameter]]:
    for of_cables, tree in ((False, priced.root), (True, priced.cables)):
        for one in parameters_of(tree):
            named = one.path.endswith(("_w", *PRICES))
            if not isinstance(one.value, str) and (_has_range(one) or named):
                yield of_cables, one


def _has_range(one: Parameter) -> bool:
    return one.status != SET and bool(one.ends)


def _moved(one: Parameter) -> tuple[float, ...]:
    """Return what a number is set to: the ends of its range, or a nudge of one without."""
    if not _has_range(one):
        return (float(one.value) * NUDGE,)
    return tuple(end for end in one.ends if end != one.value)


def _with(priced: Priced, path: str, value: float, *, of_cables: bool) -> Priced:
    if of_cables:
        return dataclasses.replace(priced, cables=replace_at(priced.cables, path, value))
    if priced.whole:
        return dataclasses.replace(priced, system=replace_at(priced.system, path, value))
    fabric = replace_at(priced.system.fabric, path, value)
    return dataclasses.replace(priced, system=dataclasses.replace(priced.system, fabric=fabric))


def _change(before: Parts, after: Parts) -> tuple[float, float]:
    return bill_power_w(after) - bill_power_w(before), bill_price_usd(after) - bill_price_usd(before)


def _corner(priced: Priced, effects: Sequence[_Effect], place: int, sign: int, refused: list[str]) -> Parts:
    """Return the bill where every number stands at the end that moves a total most in a direction."""
    ranked = sorted(effects, key=lambda one: -sign * one.change[place])
    taken: set[tuple[bool, str]] = set()
    current, parts = priced, priced.parts()
    for one in ranked:
        if sign * one.change[place] <= 0.0 or (one.of_cables, one.path) in taken:
            continue
        taken.add((one.of_cables, one.path))
        try:
            nearer = _with(current, one.path, one.end, of_cables=one.of_cables)
            parts = nearer.parts()
        except HeliographError as error:
            refused.append(f"{one.path} = {one.end:g}, with the others at their ends: {error}")
            continue
        current = nearer
    return parts


def _span(place: int, item: str, base: Parts, corners: Mapping[tuple[int, int], Parts]) -> Span:
    def total(parts: Parts) -> float:
        part = parts[item]
        return part.count * (part.usd_each if place else part.w_each)

    ends = (total(corners[place, -1]), total(base), total(corners[place, 1]))
    return Span(value=ends[1], low=min(ends), high=max(ends))


def shares(bill: Bill, what: str) -> Mapping[str, float]:
    """Return each line's share of the total ``power_w`` or ``price_usd``; dimensionless."""
    total = bill.total(what).value
    return {line.item: getattr(line, what).value / total if total else 0.0 for line in bill.lines}


_FAMILIES = {
    "scale-up": "domain, copper links",
    "router port": "domain, copper links",
    "copper cable end": "domain, copper links",
    "copper link end": "domain, copper links",
    "nic": "cards",
    "circuit card": "cards",
    "optical switch": "optical switches",
    "turning": "optical switches",
    "packet switch": "packet switches",
    "transceiver": "modules, optical lanes",
    "optical lane": "modules, optical lanes",
    "reduction lane": "modules, optical lanes",
    "transceiver switch": "modules, optical lanes",
    "failed transceiver": "modules, optical lanes",
    "reduction unit": "adders in light",
    "wafer chip": "wafers",
    "wafer lane": "wafers",
    "fibre (m)": "fibres, panels",
    "patch panel place": "fibres, panels",
}
"""Families of lines of a bill, so that a colour is one thing in the bars of all fabrics."""
COLOURS = dict(zip((*dict.fromkeys(_FAMILIES.values()), "accelerator", "server"), PALETTE, strict=True))
"""Colour of each family and of what is no fabric's, the same in every picture."""
COLUMNS = ("count", "each", "all", "range", "share", "per accelerator")
"""Heads of one bill, of power or of prices."""
COMPARED = ("W", "W range", "$", "$ range")
"""Heads of bills beside each other; all per accelerator."""
UNITS = MappingProxyType({"power_w": ("W", ("_w",)), "price_usd": ("USD", PRICES)})
"""Unit of each quantity, and what the names of the numbers behind it end in."""
EACH = MappingProxyType({"power_w": "w_each", "price_usd": "usd_each"})
"""Number of an item from which each quantity follows."""
THOUSANDS = 1e5
"""From here on a value is told in thousands or more."""
SHOWN_ENDS = 12
"""Ends of ranges out of reach that are named on the terminal."""
_LONGEST = 100
TITLES = MappingProxyType({"power_w": "Power", "price_usd": "Price"})
"""Titles of the two tables of one bill."""


def line_rows(bill: Bill, what: str) -> list[ReportRow]:
    """Return the table of one bill: items, their sum, and what each accelerator takes of it.

    Parameters
    ----------
    bill : Bill
        The bill.
    what : str
        ``power_w`` or ``price_usd``.
    """
    unit, names = UNITS[what]
    share = shares(bill, what)
    rows = []
    for line in sorted(bill.lines, key=lambda one: -getattr(one, what).value):
        span: Span = getattr(line, what)
        each = span.value / line.count if line.count else 0.0
        cells = (f"{line.count:,}", format_si(each, unit), *_cells(span, unit), f"{share[line.item]:.1%}")
        per_accelerator = format_si(span.value / bill.accelerators, unit)
        source = "not given, counts as 0" if what in line.untold else line.status(names) or "exact"
        rows.append(ReportRow(line.item, (*cells, per_accelerator), source))
    total = bill.total(what)
    one = _over(total, bill.accelerators)
    sums = ("", "", *_cells(total, unit), "100.0%", format_si(one.value, unit))
    rows.append(ReportRow("all", sums, section=True))
    rows.append(ReportRow("per accelerator", ("", "", *_cells(one, unit), "", "")))
    return rows


def compared_rows(bills: Sequence[Bill]) -> list[ReportRow]:
    """Return a row for each bill: watts and dollars per accelerator with their ranges."""
    rows = []
    for bill in bills:
        totals = ((_over(bill.total(what), bill.accelerators), unit) for what, (unit, _) in UNITS.items())
        cells = tuple(cell for total, unit in totals for cell in _cells(total, unit))
        rows.append(ReportRow(bill.name, cells, _greatest(bill)))
    return rows


def refused_lines(bills: Sequence[Bill]) -> list[str]:
    """Return a line for each end of a range at which a fabric cannot be built."""
    found = [
        shorten(f"{bill.name}: {one}", _LONGEST, placeholder=" ...") for bill in bills for one in bill.refused
    ]
    if not found:
        return []
    more = [f"  and {len(found) - SHOWN_ENDS} more; --json has all"] if len(found) > SHOWN_ENDS else []
    return ["Left out of the ranges:", *(f"  {one}" for one in found[:SHOWN_ENDS]), *more]


_MOST_TICKS = 4
"""Steps of an axis, so that the longest numbers stand apart."""


def draw_bills(bills: Sequence[Bill]) -> Figure:
    """Draw watts and dollars per accelerator as stacked bars, the range of each sum as a bar of error."""
    totals: dict[str, float] = {}
    for bill in bills:
        for line in bill.lines:
            largest = max(shares(bill, what)[line.item] for what in ("power_w", "price_usd"))
            if largest > 0.0:
                family = _family(line.item)
                totals[family] = max(totals.get(family, 0.0), largest)
    items = sorted(totals, key=lambda item: -totals[item])
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - takes its time

    figure = new_figure(1.5 + 0.32 * len(bills))
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, what, unit in ((left, "power_w", "W"), (right, "price_usd", "$")):
        _stack(axes, bills, items, what)
        axes.set_xlabel(f"{unit} per accelerator; line: range of the tables")
        axes.grid(visible=True, axis="x")
        axes.set_xlim(left=0.0)
        axes.xaxis.set_major_locator(MaxNLocator(_MOST_TICKS))
        axes.xaxis.set_major_formatter("{x:,.0f}")
    left.set_yticks(np.arange(len(bills)), [label(bill.name) for bill in bills])
    left.tick_params(axis="y", length=0)
    right.tick_params(axis="y", length=0)
    left.set_ylim(len(bills) - 0.5, -0.5)
    handles, names = left.get_legend_handles_labels()
    legend_below_or_above(figure, handles, names, above=True, most=4)
    return figure


def _stack(axes: Any, bills: Sequence[Bill], items: Sequence[str], what: str) -> None:  # noqa: ANN401 - Axes
    places = np.arange(len(bills))
    start = np.zeros(len(bills))
    for item in items:
        values = np.array([_value(bill, item, what) for bill in bills])
        colour = COLOURS.get(item, REFERENCE)
        axes.barh(
            places, values, 0.62, left=start, color=colour, edgecolor="white", linewidth=0.4, label=item
        )
        start = start + values
    spans = [_over(bill.total(what), bill.accelerators) for bill in bills]
    less = [one.value - one.low for one in spans]
    more = [one.high - one.value for one in spans]
    axes.errorbar(start, places, xerr=(less, more), fmt="none", ecolor="black", elinewidth=0.9, capsize=2.5)


def _family(item: str) -> str:
    return _FAMILIES.get(item, item)


def _value(bill: Bill, item: str, what: str) -> float:
    found = [getattr(line, what).value for line in bill.lines if _family(line.item) == item]
    return sum(found) / bill.accelerators


def _row(bill: Bill, line: Line) -> Row:
    row: Row = {"bill": bill.name, "item": line.item, "count": line.count}
    for what in ("power_w", "price_usd"):
        span: Span = getattr(line, what)
        row |= {what: span.value, f"{what}_low": span.low, f"{what}_high": span.high}
        row[f"{what}_share"] = shares(bill, what)[line.item]
        row[f"{what}_per_accelerator"] = span.value / bill.accelerators
    sources = dict.fromkeys(f"{one.path}: {one.status}, {one.source}" for one in line.behind)
    return row | {"sources": "; ".join(sources)}


def _greatest(bill: Bill) -> str:
    watts = max(bill.lines, key=lambda line: line.power_w.value)
    dollars = max(bill.lines, key=lambda line: line.price_usd.value)
    return f"most W {watts.item}, most $ {dollars.item}"


def _over(span: Span, count: int) -> Span:
    return Span(value=span.value / count, low=span.low / count, high=span.high / count)


def _cells(span: Span, unit: str) -> tuple[str, str]:
    """Return a value and its range; large sums of money in thousands or millions."""
    prefix, factor = prefix_of(span.high) if span.high >= THOUSANDS else ("", 1.0)
    ends = [format_si(one / factor).rstrip() for one in (span.value, span.low, span.high)]
    return f"{ends[0]} {prefix}{unit}", f"{ends[1]} to {ends[2]} {prefix}{unit}"


BASE = "gpu_packet"
"""System whose fabric is exchanged for the one that is billed."""
MOVING = "gpu_ocs"
"""The same for rails of optical circuits, so that their paths are those of the named systems."""


@dataclass(frozen=True, kw_only=True)
class Bills(Result):
    """One bill line by line, or those of all fabrics beside each other."""

    bills: tuple[Bill, ...]
    """At least one."""

    def report(self) -> list[Block]:
        """Return the tables of one bill, or a line for each of several; what could not be built below."""
        first = self.bills[0]
        if len(self.bills) == 1:
            title = f"{first.name}, {first.accelerators} accelerators"
            blocks: list[Block] = [
                ReportTable(f"{TITLES[what]} of {title}", COLUMNS, line_rows(first, what)) for what in UNITS
            ]
        else:
            title = f"Fabrics of {first.accelerators} accelerators, each accelerator's part"
            blocks = [ReportTable(title, COMPARED, compared_rows(self.bills))]
        light = list(dict.fromkeys(one.light for one in self.bills if one.light))
        return [*blocks, *light, *refused_lines(self.bills)]

    def record(self) -> dict[str, Any]:
        """Return all bills as plain data."""
        return {"bills": [bill.record() for bill in self.bills]}

    def rows(self) -> list[Row]:
        """Return a row for each line of each bill."""
        return [_row(bill, line) for bill in self.bills for line in bill.lines]

    def figure(self) -> Figure:
        """Return watts and dollars per accelerator as bars."""
        return draw_bills(self.bills)


@dataclass(frozen=True, kw_only=True)
class BillOf(Study):
    """Bill of materials of a system, of one fabric, or of all fabrics beside each other."""

    system: str | None = option(
        None, "a whole system; default: fabrics only", metavar="SYSTEM", positional=True
    )
    fabric: str | None = option(
        None,
        "fabric (heliograph list fabrics), or graph:FILE; default: every fabric, or the system's own",
        metavar="NAME",
    )
    accelerators: int | None = option(
        None, f"how many; default the system file's, else {DEFAULT_ACCELERATORS}", metavar="N"
    )
    core: str | None = option(None, f"core of photonic accelerators; default {DEFAULT_CORE}")
    cables: str = option("panels", "cable plant: panels or robotic", metavar="KIND")
    replaced: Replaced = field(default_factory=Replaced)
    settings: tuple[str, ...] = changes()

    def run(self, progress: Progress) -> Bills:
        """Return the bills that are asked for.

        Raises
        ------
        HeliographError
            If something is unknown, or what is asked for alone cannot be built. Of all fabrics, one that
            cannot be built is an error only if a change or the number of accelerators fits none of them.
        """
        if self.system is not None or self.fabric is not None:
            return Bills(bills=(self._bill(self.fabric),))
        found, errors = [], []
        for name in FABRICS:
            try:
                found.append(self._bill(name))
            except HeliographError as error:
                errors.append(f"{name}: {error}")
        if not found:
            msg = f"no fabric can be billed; {errors[0]}"
            raise ParameterError(msg)
        return Bills(bills=tuple(found))

    def _bill(self, fabric: str | None) -> Bill:
        own = MOVING if fabric == CIRCUITS else BASE
        alone = own == MOVING and self.system is None
        system = build_system(
            own if self.system is None else self.system,
            accelerators=self.accelerators,
            **self.replaced.given(),
            core=self.core,
            fabric=None if alone else fabric,
            assignments=self.settings,
        )
        priced = Priced(system=system, cables=load_cables(self.cables), whole=self.system is not None)
        return bill_of(priced, self.system or str(fabric))
