"""Bill of materials of a system or a fabric: counts, watts and dollars, with ranges that its tables give."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.catalogue import CHOICE, SET, Parameter, parameters_of
from experiments.systems import System
from heliograph.cable_plant import CablePlant
from heliograph.errors import HeliographError
from heliograph.paths import replace_at
from heliograph.scale_up import BillItem, bill_power_w, bill_price_usd

ACCELERATOR = "accelerator"
"""Line of the accelerators, of a system's bill."""
TRUST = ("measured", "published", "derived", "recalled", "assumed", CHOICE, SET)
"""Status of numbers, from the most trusted down."""
PRICES = ("_usd", "_usd_per_m", "_usd_per_m2")
"""What the names of prices end in."""
NUDGE = 1.01
"""Factor by which a number without a range is moved, to see which lines it stands behind; dimensionless."""

Parts = Mapping[str, BillItem]


@dataclass(frozen=True, kw_only=True)
class Priced:
    """What is billed: a fabric with its cables, and the accelerators where it is a whole system."""

    system: System
    """System whose fabric is billed."""
    cables: CablePlant
    """Fibres and panels."""
    whole: bool
    """Whether the accelerators are on the bill."""

    def parts(self) -> dict[str, BillItem]:
        """Return the bill: item -> count, power and price of each."""
        fabric = getattr(self.system.fabric, "bill")()  # noqa: B009 - no part of what the engine must know
        found = dict(fabric) | self.cables.bill(fabric)
        if not self.whole:
            return found
        one = BillItem(
            count=self.system.accelerators,
            w_each=self.system.accelerator_peak_w(),
            usd_each=self.system.accelerator_usd(),
        )
        return {ACCELERATOR: one} | found

    @property
    def root(self) -> object:
        """What `heliograph.paths` walks: the system, or of a fabric's bill its fabric."""
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
    """What it is."""
    count: int
    """How many."""
    power_w: Span
    """Power of all of them."""
    price_usd: Span
    """Price of all of them."""
    behind: tuple[Parameter, ...]
    """Numbers that move the line."""

    def status(self, endings: tuple[str, ...]) -> str:
        """Return the least trusted status behind the line of numbers with such names, or nothing."""
        found = {one.status for one in self.behind if one.path.endswith(endings)}
        return max(found, key=TRUST.index, default="")


@dataclass(frozen=True, kw_only=True)
class Bill:
    """A bill of materials."""

    name: str
    """What is billed."""
    accelerators: int
    """How many accelerators share it."""
    lines: tuple[Line, ...]
    """Items, the most expensive first."""
    refused: tuple[str, ...]
    """Ends of ranges at which the fabric cannot be built, in words."""

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
            "lines": [
                {
                    "item": line.item,
                    "count": line.count,
                    "power_w": dataclasses.asdict(line.power_w),
                    "price_usd": dataclasses.asdict(line.price_usd),
                    "behind": [dataclasses.asdict(one) for one in line.behind],
                }
                for line in self.lines
            ],
            "refused": list(self.refused),
        }


def bill_of(priced: Priced, name: str) -> Bill:
    """Return the bill with its ranges.

    Parameters
    ----------
    priced : Priced
        What is billed.
    name : str
        What it is called.

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
    for where, one in _numbers(priced):
        moved = set()
        for end in _ends(one):
            try:
                other = _with(priced, where, one.path, end).parts()
            except HeliographError as error:
                refused.append(f"{one.path} = {end:g}: {error}")
                continue
            moved |= {item for item in base if other.get(item) != base[item]}
            if _has_range(one):
                effects.append(_Effect(where=where, path=one.path, end=end, change=_change(base, other)))
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
        )
        for item, part in base.items()
    ]
    return Bill(
        name=name,
        accelerators=priced.system.accelerators,
        lines=tuple(sorted(lines, key=lambda line: -line.price_usd.value)),
        refused=tuple(dict.fromkeys(refused)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Effect:
    """What one end of a range does to the totals."""

    where: str
    """Tree of the number."""
    path: str
    """Its place there."""
    end: float
    """End of its range."""
    change: tuple[float, float]
    """Change of total power and of total price."""


def _numbers(priced: Priced) -> Iterator[tuple[str, Parameter]]:
    for where, tree in (("root", priced.root), ("cables", priced.cables)):
        for one in parameters_of(tree):
            named = one.path.endswith(("_w", *PRICES))
            if not isinstance(one.value, str) and (_has_range(one) or named):
                yield where, one


def _has_range(one: Parameter) -> bool:
    return one.status != SET and (one.low is not None or one.high is not None)


def _ends(one: Parameter) -> tuple[float, ...]:
    if not _has_range(one):
        return (float(one.value) * NUDGE,)
    return tuple(end for end in (one.low, one.high) if end is not None and end != one.value)


def _with(priced: Priced, where: str, path: str, value: float) -> Priced:
    if where == "cables":
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
    taken: set[tuple[str, str]] = set()
    current, parts = priced, priced.parts()
    for one in ranked:
        if sign * one.change[place] <= 0.0 or (one.where, one.path) in taken:
            continue
        taken.add((one.where, one.path))
        try:
            nearer = _with(current, one.where, one.path, one.end)
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
