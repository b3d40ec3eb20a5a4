"""Bill of materials of a system or a fabric: counts, watts and dollars, with ranges that its tables give."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import shorten
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
from simulator.topology.scale_up import BillItem, CablePlant, load_cables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACCELERATOR = "accelerator"
"""Item of the accelerators in the bill of a system."""
SERVER = "server"
"""Item of the servers that carry them."""
TRUST = (*Status, CHOICE, SET)
"""Status of numbers, the most trusted first."""
NUDGE = 1.01
"""Factor by which a number without a range is moved, to see which lines depend on it; dimensionless."""

Parts = Mapping[str, BillItem]


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """Power or price: a quantity that is summed over the lines of a bill."""

    name: str
    """Field of a line that holds it, and its column in files."""
    each: str
    """Field of an item that holds it for one piece."""
    endings: tuple[str, ...]
    """Endings of the names of the table's numbers that hold it."""
    title: str
    """Word that a table's title begins with."""
    unit: str
    """Unit in tables."""
    axis_unit: str
    """Unit at the axis of a figure."""

    def of_item(self, item: BillItem) -> float:
        """Return the quantity of all pieces of an item."""
        return item.count * float(getattr(item, self.each))

    def of_parts(self, parts: Parts) -> float:
        """Return the quantity of a whole bill."""
        return math.fsum(self.of_item(item) for item in parts.values())

    def of_line(self, line: Line) -> Span:
        """Return the quantity of a line with its range."""
        span: Span = getattr(line, self.name)
        return span


POWER = Quantity(name="power_w", each="w_each", endings=("_w",), title="Power", unit="W", axis_unit="W")
"""Power, watt."""
PRICE = Quantity(
    name="price_usd",
    each="usd_each",
    endings=("_usd", "_usd_per_m", "_usd_per_m2"),
    title="Price",
    unit="USD",
    axis_unit="$",
)
"""Price, US dollar."""
QUANTITIES = (POWER, PRICE)
"""Quantities of a bill, in the order of its tables."""


@dataclass(frozen=True, kw_only=True)
class Priced:
    """A fabric with its cables, and with its accelerators if a whole system is billed."""

    system: System
    """System whose fabric is billed."""
    cables: CablePlant
    """Fibres and panels."""
    whole: bool
    """Whether the accelerators are on the bill."""

    def parts(self) -> dict[str, BillItem]:
        """Return the items of the bill by name."""
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
        """Tree of the numbers behind the bill: the system, or the fabric if only that is billed."""
        return self.system if self.whole else self.system.fabric


@dataclass(frozen=True, kw_only=True)
class Span:
    """A value and the range that follows from the ranges of the tables."""

    value: float
    """The value."""
    low: float
    """Low end."""
    high: float
    """High end."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One item of a bill with its ranges and the numbers that they follow from."""

    item: str
    """Name."""
    count: int
    """Count."""
    power_w: Span
    """Power of all pieces."""
    price_usd: Span
    """Price of all pieces."""
    behind: tuple[Parameter, ...]
    """Numbers that move the line."""
    untold: tuple[str, ...] = ()
    """Names of the quantities that no number was given for; they count as zero."""

    def status(self, quantity: Quantity) -> str:
        """Return the least trusted status of the numbers of a quantity behind the line; empty without any."""
        found = {one.status for one in self.behind if one.path.endswith(quantity.endings)}
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
    """Sentences on the ends of ranges at which the fabric cannot be built."""
    light: str = ""
    """Sentences on the laser and the dies of photonic accelerators; empty for other accelerators."""

    def total(self, quantity: Quantity) -> Span:
        """Return the sum of a quantity over the lines, with all lines at their low or high ends at once."""
        spans = [quantity.of_line(line) for line in self.lines]
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
            **{quantity.name: dataclasses.asdict(self.total(quantity)) for quantity in QUANTITIES},
            "lines": [dataclasses.asdict(line) for line in self.lines],
            "refused": self.refused,
        }


def bill_of(priced: Priced, name: str) -> Bill:
    """Return the bill with its ranges.

    Notes
    -----
    Each number of the tables that has a range is first set to its ends alone, to see which lines depend on
    it. Then all numbers are set at once to the ends that lower (raise) the total power, and likewise the
    total price: the ends of the lines' ranges are the bills of these four corners. An end at which nothing
    can be built is left out and named. A number that the user set has no range. Counts are those of the
    design in all corners, and a photonic accelerator keeps its number of cores.
    """
    base = priced.parts()
    effects, refused = list[_Effect](), list[str]()
    behind = {item: list[Parameter]() for item in base}
    for number in _numbers(priced):
        found = _effects(priced, number, base, refused)
        if number.has_range:
            effects += found
        for item in set[str]().union(*(one.moved for one in found)):
            behind[item].append(number.parameter)
    corners = {
        quantity: tuple(_corner(priced, effects, quantity, sign, refused) for sign in (-1, 1))
        for quantity in QUANTITIES
    }
    lines = [
        Line(
            item=item,
            count=part.count,
            power_w=_span(POWER, item, base, corners[POWER]),
            price_usd=_span(PRICE, item, base, corners[PRICE]),
            behind=tuple(behind[item]),
            untold=tuple(quantity.name for quantity in QUANTITIES if quantity.each in part.untold),
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
    """Return sentences on the laser that photonic accelerators are billed with, and on their dies."""
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
class _Number:
    """A number of the tables that a bill may depend on."""

    of_cables: bool
    """Whether it belongs to the cables; else to the fabric or system."""
    parameter: Parameter
    """Path, value and range of the number."""

    @property
    def has_range(self) -> bool:
        """Whether its table gives a range and the user did not set it."""
        return _has_range(self.parameter)

    def trial_values(self) -> tuple[float, ...]:
        """Return the values to try: the ends of the range, or without a range one nudged value."""
        one = self.parameter
        if not self.has_range:
            return (float(one.value) * NUDGE,)
        return tuple(end for end in one.ends if end != one.value)

    def set_in(self, priced: Priced, value: float) -> Priced:
        """Return the system or fabric with this number at another value."""
        path = self.parameter.path
        if self.of_cables:
            return dataclasses.replace(priced, cables=replace_at(priced.cables, path, value))
        if priced.whole:
            return dataclasses.replace(priced, system=replace_at(priced.system, path, value))
        fabric = replace_at(priced.system.fabric, path, value)
        return dataclasses.replace(priced, system=dataclasses.replace(priced.system, fabric=fabric))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Effect:
    """Effect of one number at another value."""

    number: _Number
    """The number."""
    value: float
    """Other value of the number."""
    moved: frozenset[str]
    """Items that change."""
    change: Mapping[Quantity, float]
    """Change of the total of each quantity."""


def _numbers(priced: Priced) -> Iterator[_Number]:
    endings = tuple(ending for quantity in QUANTITIES for ending in quantity.endings)
    for of_cables, tree in ((False, priced.root), (True, priced.cables)):
        for parameter in parameters_of(tree):
            behind = _has_range(parameter) or parameter.path.endswith(endings)
            if behind and not isinstance(parameter.value, str):
                yield _Number(of_cables=of_cables, parameter=parameter)


def _has_range(parameter: Parameter) -> bool:
    return parameter.status != SET and bool(parameter.ends)


def _effects(priced: Priced, number: _Number, base: Parts, refused: list[str]) -> list[_Effect]:
    """Return the effect of each trial value of a number; ``refused`` gets the values that cannot be built."""
    found = []
    for value in number.trial_values():
        try:
            parts = number.set_in(priced, value).parts()
        except HeliographError as error:
            refused.append(f"{number.parameter.path} = {value:g}: {error}")
            continue
        moved = frozenset(item for item in base if parts.get(item) != base[item])
        change = {quantity: quantity.of_parts(parts) - quantity.of_parts(base) for quantity in QUANTITIES}
        found.append(_Effect(number=number, value=value, moved=moved, change=change))
    return found


def _corner(
    priced: Priced, effects: Sequence[_Effect], quantity: Quantity, sign: int, refused: list[str]
) -> Parts:
    """Return the bill with every number at the end that most raises (lowers, for ``sign`` -1) a total.

    The numbers are set one after another, that of the largest effect first; an end at which nothing can be
    built beside those already set is added to ``refused``.
    """
    ranked = sorted(effects, key=lambda effect: -sign * effect.change[quantity])
    done = set[tuple[bool, str]]()
    current, parts = priced, priced.parts()
    for effect in ranked:
        path = effect.number.parameter.path
        if sign * effect.change[quantity] <= 0.0 or (effect.number.of_cables, path) in done:
            continue
        done.add((effect.number.of_cables, path))
        try:
            trial = effect.number.set_in(current, effect.value)
            parts = trial.parts()
        except HeliographError as error:
            refused.append(f"{path} = {effect.value:g}, with the others at their ends: {error}")
            continue
        current = trial
    return parts


def _span(quantity: Quantity, item: str, base: Parts, corners: tuple[Parts, ...]) -> Span:
    """Return a quantity of an item, with the range that its corners give it."""
    value = quantity.of_item(base[item])
    ends = (value, *(quantity.of_item(parts[item]) for parts in corners))
    return Span(value=value, low=min(ends), high=max(ends))


def shares(bill: Bill, quantity: Quantity) -> Mapping[str, float]:
    """Return each line's share of the total of a quantity; dimensionless."""
    total = bill.total(quantity).value
    return {line.item: quantity.of_line(line).value / total if total else 0.0 for line in bill.lines}


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
"""Family of each item, so that a colour means the same in the bars of all fabrics."""
COLOURS = dict(zip((*dict.fromkeys(_FAMILIES.values()), "accelerator", "server"), PALETTE, strict=True))
"""Colour of each family, of accelerators and of servers, the same in every figure."""
COLUMNS = ("count", "each", "all", "range", "share", "per accelerator")
"""Columns of one bill, of power or of prices."""
COMPARED = ("W", "W range", "$", "$ range")
"""Columns of bills side by side; all per accelerator."""
THOUSANDS = 1e5
"""Value from which on tables show thousands or millions."""
SHOWN_ENDS = 12
"""Most refused ends of ranges that are named on the terminal."""
_LONGEST = 100


def line_rows(bill: Bill, quantity: Quantity) -> list[ReportRow]:
    """Return the table of a quantity: a row for each item, their sum, and the sum per accelerator."""
    unit = quantity.unit
    share = shares(bill, quantity)
    rows = []
    for line in sorted(bill.lines, key=lambda one: -quantity.of_line(one).value):
        span = quantity.of_line(line)
        each = span.value / line.count if line.count else 0.0
        cells = (f"{line.count:,}", format_si(each, unit), *_cells(span, unit), f"{share[line.item]:.1%}")
        per_accelerator = format_si(span.value / bill.accelerators, unit)
        missing = quantity.name in line.untold
        source = "not given, counts as 0" if missing else line.status(quantity) or "exact"
        rows.append(ReportRow(line.item, (*cells, per_accelerator), source))
    total = bill.total(quantity)
    one = _divided(total, bill.accelerators)
    sums = ("", "", *_cells(total, unit), "100.0%", format_si(one.value, unit))
    rows.append(ReportRow("all", sums, section=True))
    rows.append(ReportRow("per accelerator", ("", "", *_cells(one, unit), "", "")))
    return rows


def compared_rows(bills: Sequence[Bill]) -> list[ReportRow]:
    """Return a row for each bill: watts and dollars per accelerator with their ranges."""
    rows = []
    for bill in bills:
        cells = list[str]()
        for quantity in QUANTITIES:
            cells += _cells(_divided(bill.total(quantity), bill.accelerators), quantity.unit)
        watts, dollars = (
            max(bill.lines, key=lambda line: quantity.of_line(line).value).item for quantity in QUANTITIES
        )
        rows.append(ReportRow(bill.name, tuple(cells), f"most W {watts}, most $ {dollars}"))
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
"""Most steps of an axis, so that long numbers do not touch."""


def draw_bills(bills: Sequence[Bill]) -> Figure:
    """Draw watts and dollars per accelerator as stacked bars, the range of each sum as a bar of error."""
    totals: dict[str, float] = {}
    for bill in bills:
        for line in bill.lines:
            largest = max(shares(bill, quantity)[line.item] for quantity in QUANTITIES)
            if largest > 0.0:
                family = _family(line.item)
                totals[family] = max(totals.get(family, 0.0), largest)
    items = sorted(totals, key=lambda item: -totals[item])
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - takes its time

    figure = new_figure(1.5 + 0.32 * len(bills))
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, quantity in zip((left, right), QUANTITIES, strict=True):
        _stack(axes, bills, items, quantity)
        axes.set_xlabel(f"{quantity.axis_unit} per accelerator; line: range of the tables")
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


def _stack(axes: Any, bills: Sequence[Bill], items: Sequence[str], quantity: Quantity) -> None:  # noqa: ANN401 - Axes
    places = np.arange(len(bills))
    start = np.zeros(len(bills))
    for item in items:
        values = np.array([_family_value(bill, item, quantity) for bill in bills])
        colour = COLOURS.get(item, REFERENCE)
        axes.barh(
            places, values, 0.62, left=start, color=colour, edgecolor="white", linewidth=0.4, label=item
        )
        start = start + values
    spans = [_divided(bill.total(quantity), bill.accelerators) for bill in bills]
    less = [one.value - one.low for one in spans]
    more = [one.high - one.value for one in spans]
    axes.errorbar(start, places, xerr=(less, more), fmt="none", ecolor="black", elinewidth=0.9, capsize=2.5)


def _family(item: str) -> str:
    return _FAMILIES.get(item, item)


def _family_value(bill: Bill, family: str, quantity: Quantity) -> float:
    """Return a quantity of a family of items, per accelerator."""
    found = [quantity.of_line(line).value for line in bill.lines if _family(line.item) == family]
    return sum(found) / bill.accelerators


def _row(bill: Bill, line: Line) -> Row:
    row: Row = {"bill": bill.name, "item": line.item, "count": line.count}
    for quantity in QUANTITIES:
        span, name = quantity.of_line(line), quantity.name
        row |= {name: span.value, f"{name}_low": span.low, f"{name}_high": span.high}
        row[f"{name}_share"] = shares(bill, quantity)[line.item]
        row[f"{name}_per_accelerator"] = span.value / bill.accelerators
    sources = dict.fromkeys(f"{one.path}: {one.status}, {one.source}" for one in line.behind)
    return row | {"sources": "; ".join(sources)}


def _divided(span: Span, count: int) -> Span:
    return Span(value=span.value / count, low=span.low / count, high=span.high / count)


def _cells(span: Span, unit: str) -> tuple[str, str]:
    """Return a value and its range; large sums of money in thousands or millions."""
    prefix, factor = prefix_of(span.high) if span.high >= THOUSANDS else ("", 1.0)
    ends = [format_si(one / factor).rstrip() for one in (span.value, span.low, span.high)]
    return f"{ends[0]} {prefix}{unit}", f"{ends[1]} to {ends[2]} {prefix}{unit}"


BASE = "gpu_packet"
"""System whose fabric is replaced by the one that is billed."""
MOVING = "gpu_ocs"
"""System that takes that part for rails of optical circuits, so that parameters keep their paths."""


@dataclass(frozen=True, kw_only=True)
class Bills(Result):
    """One bill line by line, or the bills of all fabrics side by side."""

    bills: tuple[Bill, ...]
    """At least one."""

    def report(self) -> list[Block]:
        """Return the tables of one bill, or a row for each of several; ends that cannot be built follow."""
        first = self.bills[0]
        if len(self.bills) == 1:
            title = f"{first.name}, {first.accelerators} accelerators"
            blocks: list[Block] = [
                ReportTable(f"{quantity.title} of {title}", COLUMNS, line_rows(first, quantity))
                for quantity in QUANTITIES
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
        """Return the requested bills.

        Raises
        ------
        HeliographError
            If a name is unknown, or the one requested system or fabric cannot be built. When all fabrics are
            billed, fabrics that cannot be built are left out, unless that leaves none.
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
