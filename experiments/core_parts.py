"""Parts of a core ranked by energy at equal precision: the rule by which its default parts are chosen.

Every named part that fits is put in a place of the core, the laser is sized until the products have the
signal over noise of a number format, and the accelerator that then fits under the GPU's power is priced.
Eligible is what is described (a drive and a load in place of one energy of a symbol quoted by others) and
whose losses and crosstalk are published; the eligible part with the least energy is the choice. The size of
an array is ranked in the same way; eligible is one whose light a packaged source has had.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from electronic.formats import format_named
from experiments.core import MILLIWATT, PICOJOULE, photonic_unit
from experiments.hardware import Replaced, changes, decibels_in
from experiments.options import option
from experiments.study import Block, Progress, Result, Row, Study
from heliograph.report import or_dash, table_of
from heliograph.style import PALETTE, REFERENCE, new_figure, styled
from heliograph.systems import build_system
from heliograph.systems.names import DEFAULT_CORE, DEFAULT_PARTS
from heliograph.systems.parts import fitting_parts
from heliograph.systems.sanity_checks import light_limits
from optical.accelerator import PhotonicUnit
from optical.cores.sizing import Product, with_laser_for
from optical.devices.limits import SOURCE
from optical.devices.named_parts import named_parts
from simulator.errors import HeliographError, ParameterError
from simulator.operands.statistics import OperandKind, operands_of
from simulator.operators import Phase
from simulator.parameter_tree import get_at
from simulator.tables import Status
from simulator.units import to_si

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTH, ROWS = 4096, 128
"""Length of the sums that lasers are sized for, and rows and columns of their product; choices."""
SIZE = "size"
"""Place that is no part: rows and columns of a core that has as many of both."""
SIDES = ("16", "24", "32", "40", "48", "64", "96")
"""Rows and columns that are tried; a choice."""
FIGURE_IN = 4.0
"""Height of the figure, inches."""
SQUARE_MM = to_si("area_m2", 1.0, "mm^2")


@dataclass(frozen=True, kw_only=True)
class PartRow:
    """One part in the place that is asked for."""

    place: str
    """Field of the core."""
    part: str
    """Its name."""
    eligible: bool
    """Whether it is described, and its losses and crosstalk are published."""
    laser_w: float | None = None
    """Light of a line that the target needs; None if none reaches it."""
    j_per_mac: float | None = None
    """Energy of a multiply-accumulate at full load."""
    cores: int | None = None
    """Cores that fit."""
    area_m2: float | None = None
    """Die area of all of them."""
    why_not: str = ""
    """Reason why it does not serve."""


def is_eligible(name: str) -> bool:
    """Return whether a part may be chosen: described, with losses and crosstalk that were published of it."""
    part = named_parts()[name]
    losses = [
        row.status for row in part.table.of(name) if row.parameter.endswith(("loss_db", "crosstalk_db"))
    ]
    return all(one is Status.PUBLISHED for one in losses) and getattr(part.build(), "driven", True)


@dataclass(frozen=True, kw_only=True)
class PartRanking(Result):
    """Parts of a core by energy at equal precision."""

    core: str
    """The core."""
    target: str
    """What the lasers are sized for."""
    target_db: float
    """The same in decibels."""
    operands: OperandKind
    """Operands on which."""
    parts: tuple[PartRow, ...]
    """By place, those of least energy first."""

    def best(self, place: str) -> PartRow | None:
        """Return the eligible part with the least energy, if one serves."""
        served = [one for one in self.parts if one.place == place and one.eligible and one.j_per_mac]
        return min(served, key=lambda one: one.j_per_mac or math.inf, default=None)

    def report(self) -> list[Block]:
        """Return a table for each place, what is chosen, and why others do not serve."""
        blocks: list[Block] = []
        for place in dict.fromkeys(one.place for one in self.parts):
            here = [one for one in self.parts if one.place == place]
            title = (
                f"Parts for {place} of '{self.core}' at the {self.target_db:.1f} dB of {self.target} on "
                f"{self.operands} operands, sums of {LENGTH:,}"
            )
            blocks.append(table_of(title, here, lambda one: one.part, _COLUMNS))
            best = self.best(place)
            blocks.append(f"Choice: {'none' if best is None else best.part}.")
            blocks += [f"{one.part}: {one.why_not}" for one in here if one.why_not]
        return blocks

    def record(self) -> dict[str, Any]:
        """Return everything as plain data, SI throughout."""
        places = dict.fromkeys(one.place for one in self.parts)
        chosen = {place: best.part for place in places if (best := self.best(place)) is not None}
        return {
            "core": self.core,
            "target": self.target,
            "target_db": self.target_db,
            "operands": str(self.operands),
            "chosen": chosen,
            "parts": self.rows(),
        }

    def rows(self) -> list[Row]:
        """Return a row for each part."""
        return [dataclasses.asdict(one) for one in self.parts]

    def figure(self) -> Figure:
        """Return the energy of each part that serves."""
        shown = [one for one in self.parts if one.j_per_mac is not None][::-1]
        with styled():
            figure = new_figure(FIGURE_IN)
            axes = figure.add_subplot()
            axes.barh(
                [f"{one.place}: {one.part}" for one in shown],
                [(one.j_per_mac or 0.0) / PICOJOULE for one in shown],
                color=[PALETTE[0] if one.eligible else REFERENCE for one in shown],
            )
            axes.set_xlabel(f"energy at the precision of {self.target}, pJ/MAC (grey: not eligible)")
            return figure


_COLUMNS: dict[str, Callable[[PartRow], str]] = {
    "eligible": lambda one: "yes" if one.eligible else "no",
    "mW/line": lambda one: or_dash(one.laser_w, "{:.3g}", MILLIWATT),
    "pJ/MAC": lambda one: or_dash(one.j_per_mac, "{:.2f}", PICOJOULE),
    "cores": lambda one: or_dash(one.cores, "{:.0f}"),
    "mm2": lambda one: or_dash(one.area_m2, "{:.0f}", SQUARE_MM),
}


@dataclass(frozen=True, kw_only=True)
class RankParts(Study):
    """Ranking of the parts that may stand in a place of a core, by energy at equal precision."""

    directory = "parts_{core}"

    core: str = option(DEFAULT_CORE, "core by name (heliograph list cores)", positional=True)
    places: tuple[str, ...] = option(
        ("modulator", "feed", "crossing", SIZE),
        "places of the core, separated by commas; size is that of its array",
        metavar="NAMES",
        commas=True,
    )
    target: str = option("fp8", "signal over noise that lasers are sized for: a number format, or decibels")
    operands: OperandKind = option(OperandKind.GAUSSIAN, "operands of the products")
    replaced: Replaced = field(default_factory=Replaced)
    settings: tuple[str, ...] = changes()

    def run(self, progress: Progress) -> PartRanking:
        """Return the ranking."""
        product = Product(operands=operands_of(self.operands), length=LENGTH, rows=ROWS, columns=ROWS)
        wanted_db = self._target_db(product)
        unit = self._unit(())
        tried = [(place, name) for place in self.places for name in self._names(unit, place)]
        rows = []
        for done, (place, name) in enumerate(tried):
            progress(name, done, len(tried))
            rows.append(self._row(place, name, product, wanted_db))
        progress("ranked", len(tried), len(tried))
        order = {place: number for number, place in enumerate(self.places)}
        return PartRanking(
            core=self.core,
            target=self.target,
            target_db=wanted_db,
            operands=self.operands,
            parts=tuple(sorted(rows, key=lambda one: (order[one.place], one.j_per_mac or math.inf))),
        )

    def _target_db(self, product: Product) -> float:
        asked_db = decibels_in(self.target)
        if asked_db is not None:
            return asked_db
        form = format_named(self.target)
        return form.predicted(product.operands, LENGTH, rows=ROWS, columns=ROWS, phase=Phase.FORWARD).snr_db

    def _names(self, unit: PhotonicUnit, place: str) -> Sequence[str]:
        """Return the parts that fit a place."""
        if place == SIZE:
            get_at(unit.core, "rows"), get_at(unit.core, "columns")
            return SIDES
        names = fitting_parts(unit.core, place)
        if not names:
            msg = f"core '{self.core}' has no place '{place}' for named parts; heliograph show has its parts"
            raise ParameterError(msg)
        return names

    def _unit(self, assignments: Sequence[str]) -> PhotonicUnit:
        """Return the accelerator of the core with parts in their places, the default core with its own."""
        usual = DEFAULT_PARTS if self.core == DEFAULT_CORE else {}
        told = {one.partition("=")[0].rpartition(".")[2] for one in (*self.settings, *assignments)}
        parts = (f"core.{path}={part}" for path, part in usual.items() if path not in told)
        every = (*parts, *self.settings, *assignments)
        given = self.replaced.given()
        return photonic_unit(
            build_system("photonic_packet", core=self.core, accelerators=1, assignments=every, **given)
        )

    def _row(self, place: str, name: str, product: Product, wanted_db: float) -> PartRow:
        """Return what one part needs at the target."""
        if place == SIZE:
            row = PartRow(place=place, part=f"{name} x {name}", eligible=True)
            chosen: tuple[str, ...] = (f"core.rows={name}", f"core.columns={name}")
        else:
            row = PartRow(place=place, part=name, eligible=is_eligible(name))
            chosen = (f"core.{place}={name}",)
        try:
            core = with_laser_for(self._unit(chosen).core, wanted_db, (product,))
            laser_w = float(get_at(core, "laser_power_w"))
            unit = self._unit((*chosen, f"laser_power_w={laser_w!r}"))
        except HeliographError as error:
            return dataclasses.replace(row, why_not=str(error))
        if place == SIZE:
            passed = [one for one in light_limits(unit) if one.limit == SOURCE]
            row = dataclasses.replace(row, eligible=not passed, why_not=" ".join(map(str, passed)))
        return dataclasses.replace(
            row,
            laser_w=laser_w,
            j_per_mac=unit.peak_power_w / unit.peak_macs_per_s,
            cores=unit.cores,
            area_m2=unit.area_m2,
        )
