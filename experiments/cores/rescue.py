"""Parts and rescues of a core, ranked by the energy that each needs at equal precision.

Every named part that fits is put in a place of the core, the laser is sized until the products have the
signal over noise of a number format, and the accelerator that then fits under the GPU's power is priced. A
part is eligible if its drive and load are described (not only an energy per symbol quoted by others) and its
losses and crosstalk are published; the eligible part with the least energy is the choice. The size of an
array is ranked in the same way; a size is eligible if packaged sources have delivered the light that it
needs.

Every rescue is executed on the captured operands of a trained transformer at the lengths of a model's own
products; then its laser is sized until it delivers what a number format does on the same operands, and the
accelerator with that laser is priced. The ranking is by that energy alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from electronic.formats import format_named
from experiments.cores.one import MILLIWATT, PICOJOULE, Bench, bench, photonic_unit, training_j_per_mac
from experiments.hardware import Replaced, changes, decibels_in
from experiments.study import Block, Progress, Result, Row, Study, option
from heliograph.accuracy.precision import ModelProduct, captured_products, format_precision, products_of
from heliograph.figures import PALETTE, REFERENCE, new_figure
from heliograph.report import or_dash, table_of
from heliograph.simulation import step_graph
from heliograph.systems import build_system
from heliograph.systems.names import DEFAULT_CORE
from heliograph.systems.parts import fitting_parts
from heliograph.systems.sanity_checks import light_limits
from heliograph.workload import model_named, plan_for
from optical.accelerator import PhotonicUnit
from optical.cores import load_core
from optical.cores.core import Core
from optical.cores.rescues import JOINT
from optical.cores.sizing import LASER, Judge, Product, with_judged_laser, with_laser_for
from optical.devices.limits import SOURCE
from optical.devices.named_parts import named_parts
from optical.execution.precision import predicted
from simulator.errors import HeliographError, ParameterError
from simulator.operands.captured import CapturedProduct, captured
from simulator.operands.statistics import OperandKind, Precision, operands_of, signal_to_noise_db
from simulator.operators import STATES, VALUES, Phase, Role
from simulator.parameter_tree import get_at
from simulator.tables import Status
from simulator.units import db_from_ratio, ratio_from_db, to_si

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PART_LENGTH, PART_ROWS = 4096, 128
"""Length of the sums that lasers are sized for, and rows and columns of their product; choices."""
SIZE = "size"
"""Name of the place that stands for the size: rows and columns, in equal number."""
PLACES = ("modulator", "feed", "crossing", SIZE)
"""Places that are ranked by default, if the core has them."""
SIDES = ("16", "24", "32", "40", "48", "64", "96")
"""Numbers of rows and columns that are tried; a choice."""
FIGURE_IN = 4.0
"""Height of the figure, inches."""
SQUARE_MM = to_si("area_m2", 1.0, "mm^2")


@dataclass(frozen=True, kw_only=True)
class PartRow:
    """Result of one part in one place of a core."""

    place: str
    """Field of the core that holds the part."""
    part: str
    """Name of the part."""
    eligible: bool
    """Whether it is described, and its losses and crosstalk are published."""
    laser_w: float | None = None
    """Laser power of a line at the target; None if no power reaches the target."""
    j_per_mac: float | None = None
    """Energy of a multiply-accumulate at full load."""
    cores: int | None = None
    """Number of cores that fit under the power of the GPU."""
    area_m2: float | None = None
    """Die area of all cores."""
    why_not: str = ""
    """Reason why the part does not work or is not eligible; empty otherwise."""


def is_eligible(name: str) -> bool:
    """Return whether a part may be chosen: its drive is described, its losses and crosstalk published."""
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
    """Number format, or decibels, that the lasers are sized for."""
    target_db: float
    """Signal over noise of the target, dB."""
    operands: OperandKind
    """Operands of the products."""
    parts: tuple[PartRow, ...]
    """Parts by place, the least energy first."""

    def best(self, place: str) -> PartRow | None:
        """Return the eligible part with the least energy; None if no eligible part works."""
        working = [one for one in self.parts if one.place == place and one.eligible and one.j_per_mac]
        return min(working, key=lambda one: one.j_per_mac or math.inf, default=None)

    def report(self) -> list[Block]:
        """Return for each place a table, the choice, and the reasons against other parts."""
        blocks: list[Block] = []
        captured = self.operands is OperandKind.CAPTURED
        for place in dict.fromkeys(one.place for one in self.parts):
            here = [one for one in self.parts if one.place == place]
            title = (
                f"Parts for {place} of '{self.core}' at the {self.target_db:.1f} dB of {self.target} on "
                f"{self.operands} operands{'' if captured else f', sums of {PART_LENGTH:,}'}"
            )
            blocks.append(table_of(title, here, lambda one: one.part, _COLUMNS))
            best = self.best(place)
            blocks.append(f"Choice: {'none' if best is None else best.part}.")
            blocks += [f"{one.part}: {one.why_not}" for one in here if one.why_not]
        if taken := " ".join(f"--set {text}" for text in self.chosen_settings):
            blocks.append(f"\nTo take every choice: {taken}")
        return blocks

    @property
    def chosen_settings(self) -> tuple[str, ...]:
        """Changes of a system that make all choices; each was ranked with the other places unchanged."""
        found: list[str] = []
        for place in dict.fromkeys(one.place for one in self.parts):
            if (best := self.best(place)) is not None:
                found += _settings_of(place, best.part)
        return tuple(found)

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

    def figure(self) -> Figure | None:
        """Return the energy of each part that works as bars; None if no part works."""
        shown = [one for one in self.parts if one.j_per_mac is not None][::-1]
        if not shown:
            return None
        figure = new_figure(FIGURE_IN)
        axes = figure.add_subplot()
        axes.barh(
            [f"{one.place}: {one.part}" for one in shown],
            [(one.j_per_mac or 0.0) / PICOJOULE for one in shown],
            color=[PALETTE[0] if one.eligible else REFERENCE for one in shown],
        )
        axes.set_xlabel(f"energy at {self.target_db:.1f} dB, pJ/MAC (black: not eligible)")
        return figure


def _settings_of(place: str, part: str) -> tuple[str, ...]:
    """Return the changes of a system that put a part in a place, or give the core a size."""
    if place == SIZE:
        rows, _, columns = part.partition(" x ")
        return f"core.rows={rows}", f"core.columns={columns}"
    return (f"core.{place}={part}",)


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
        (),
        "places, separated by commas; size is that of the array; default those of the core of "
        f"{','.join(PLACES)}",
        metavar="NAMES",
        commas=True,
    )
    target: str = option("fp8", "signal over noise that lasers are sized for: a number format, or decibels")
    operands: OperandKind = option(OperandKind.CAPTURED, "operands of the products")
    replaced: Replaced = field(default_factory=Replaced)
    settings: tuple[str, ...] = changes()

    def run(self, progress: Progress) -> PartRanking:
        """Return the ranking."""
        products = captured_products()
        if self.operands is not OperandKind.CAPTURED:
            drawn = operands_of(self.operands)
            products = (Product(operands=drawn, length=PART_LENGTH, rows=PART_ROWS, columns=PART_ROWS),)
        wanted_db = self._target_db(products)
        unit = self._unit(())
        places = self.places or self._usual_places(unit)
        candidates = [(place, name) for place in places for name in self._names(unit, place)]
        rows = []
        for done, (place, name) in enumerate(candidates):
            progress(name, done, len(candidates))
            rows.append(self._sized(place, name, products, wanted_db))
        progress("ranked", len(candidates), len(candidates))
        order = {place: number for number, place in enumerate(places)}
        return PartRanking(
            core=self.core,
            target=self.target,
            target_db=wanted_db,
            operands=self.operands,
            parts=tuple(sorted(rows, key=lambda one: (order[one.place], one.j_per_mac or math.inf))),
        )

    def _target_db(self, products: Sequence[Product]) -> float:
        """Return the signal over noise of the target: decibels, or a number format on the products."""
        asked_db = decibels_in(self.target)
        if asked_db is not None:
            return asked_db
        return format_precision(format_named(self.target), products).snr_db

    def _usual_places(self, unit: PhotonicUnit) -> tuple[str, ...]:
        """Return the default places that the core has."""
        found = []
        for place in PLACES:
            with contextlib.suppress(ParameterError):
                found += [place] if self._names(unit, place) else []
        return tuple(found)

    def _names(self, unit: PhotonicUnit, place: str) -> Sequence[str]:
        """Return the names of the parts that fit a place, or the sizes to try."""
        if place == SIZE:
            get_at(unit.core, "rows"), get_at(unit.core, "columns")
            return SIDES
        names = fitting_parts(unit.core, place)
        if not names:
            msg = f"core '{self.core}' has no place '{place}' for named parts; heliograph show has its parts"
            raise ParameterError(msg)
        return names

    def _unit(self, assignments: Sequence[str]) -> PhotonicUnit:
        """Return an accelerator of the core with the changes of the user and further ones."""
        system = build_system(
            "photonic_packet",
            core=self.core,
            accelerators=1,
            assignments=(*self.settings, *assignments),
            **self.replaced.given(),
        )
        return photonic_unit(system)

    def _sized(self, place: str, name: str, products: Sequence[Product], wanted_db: float) -> PartRow:
        """Return the result of one part with the laser sized for the target."""
        part = f"{name} x {name}" if place == SIZE else name
        row = PartRow(place=place, part=part, eligible=place == SIZE or is_eligible(name))
        chosen = _settings_of(place, part)
        try:
            core = with_laser_for(self._unit(chosen).core, wanted_db, products)
            laser_w = float(get_at(core, "laser_power_w"))
            unit = self._unit((*chosen, f"laser_power_w={laser_w:.17e}"))
        except HeliographError as error:
            return dataclasses.replace(row, why_not=str(error))
        if place == SIZE:
            exceeded = [one for one in light_limits(unit) if one.limit == SOURCE]
            row = dataclasses.replace(row, eligible=not exceeded, why_not=" ".join(map(str, exceeded)))
        return dataclasses.replace(
            row,
            laser_w=laser_w,
            j_per_mac=unit.peak_power_w / unit.peak_macs_per_s,
            cores=unit.cores,
            area_m2=unit.area_m2,
        )


COMBINATIONS = (
    (),
    ("block",),
    ("rotation",),
    ("hybrid",),
    ("averaging",),
    ("slices",),
    ("rotation", "block"),
    ("hybrid", "block"),
    ("hybrid", "rotation"),
    ("hybrid", "rotation", "block"),
    ("averaging", "rotation", "block"),
)
"""Combinations of rescues that are tried, each with its innermost rescue first; a choice."""
SHORT_SUMS = "temporal_accumulation"
"""Field of a core for the symbols that a capacitor adds before a reading; 1 cuts its sums short."""
DRAWN_KINDS = (OperandKind.GAUSSIAN, OperandKind.OUTLIERS)
"""Kinds of drawn operands that are executed and predicted besides the captured ones."""
DRAWN_LENGTH = 4096
"""Length of the sums of drawn operands."""
USUAL_LAYER = 3
"""Default block whose captured operands are used; a choice."""
ROWS, MOST_LENGTH = 32, 2048
"""Rows, columns and the longest sums that are executed; sums beyond lose little more. Choices."""
SETTLED_LOG = 0.01
"""Tolerance of the natural logarithm of a laser power: 0.04 dB; a choice."""
NO_RESCUE = "none"
"""Name of a core without rescues in the ranking."""
_SEPARATE = ("query", "key", "value")
_CAPTURED_AS = {
    Role.ATTENTION_SCORES: ("scores",),
    Role.ATTENTION_VALUES: ("values",),
    Role.ATTENTION_QKV: _SEPARATE,
    Role.ATTENTION_OUTPUT: ("projection",),
    Role.MLP_DOWN: ("down",),
    Role.RETRIEVAL_SCORES: ("scores",),
    **dict.fromkeys((Role.STATE_KEYS, Role.STATE_SCORES), ("scores",)),
    **dict.fromkeys(STATES, ("values",)),
    Role.STATE_INPUT: _SEPARATE,
    Role.STATE_OUTPUT: ("projection",),
    Role.RETRIEVAL_VALUES: ("values",),
    Role.RETRIEVAL_QKV: _SEPARATE,
    Role.RETRIEVAL_OUTPUT: ("projection",),
    Role.RETRIEVAL_DOWN: ("down",),
}
"""Captured products that stand for a role; ``up`` stands for all others, such as routers."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Operands that stand for one product of a model, and their exact product."""

    kind: str
    """Name and phase of the product."""
    phase: Phase
    """Phase in which the core executes it."""
    weight: float
    """Share of the multiply-accumulates of the model."""
    a_MK: np.ndarray
    """First operand."""
    b_KN: np.ndarray
    """Second operand."""
    exact_MN: np.ndarray
    """Exact product of both."""


def samples_of(products: Sequence[ModelProduct], source: str, *, layer: int, seed: int) -> tuple[Sample, ...]:
    """Return captured operands for the products of a model."""
    rng, whole = np.random.default_rng(seed), math.fsum(product.macs for product in products)
    found = []
    for product in products:
        statistics = _statistics(product, source, layer)
        for each in statistics:
            a, b = each.draw(ROWS, ROWS, rng, k=min(product.length, MOST_LENGTH))
            weight = product.macs / whole / len(statistics)
            kind = f"{product.name} {product.phase}"
            found.append(
                Sample(kind=kind, phase=product.phase, weight=weight, a_MK=a, b_KN=b, exact_MN=a @ b)
            )
    return tuple(found)


def _statistics(product: ModelProduct, source: str, layer: int) -> tuple[CapturedProduct, ...]:
    """Return the captured products that stand for a product of a model.

    A step counts the gradients of both operands of attention as gradients of an input. The gradient of the
    second operand is told by its shape: for values it sums over the rows of the forward product, for scores
    it is transposed.
    """
    names, known = _CAPTURED_AS.get(product.role, ("up",)), {each.product for each in captured(source)}
    phase = product.phase
    scores = names == _CAPTURED_AS[Role.ATTENTION_SCORES]
    second = product.rows < product.columns if scores else product.length > product.columns
    if (scores or product.role in VALUES) and phase is Phase.GRAD_INPUT and second:
        phase = Phase.GRAD_WEIGHT
    if names == _SEPARATE and not known.issuperset(names) and "qkv" in known:
        names = ("qkv",)
    return tuple(each for name in names for each in captured(source, name, phase) if each.layer == layer)


def delivered_db(core: Core, samples: Sequence[Sample]) -> dict[str, float]:
    """Return the executed signal over noise of a core, dB: ``all``, weighted by samples, and each phase."""
    import torch  # noqa: PLC0415 - only to execute

    from optical.execution.numerics import AnalogNumerics  # noqa: PLC0415 - torch

    specs = {phase: AnalogNumerics(core.analog(phase)) for phase in {sample.phase for sample in samples}}
    results = []
    for number, sample in enumerate(samples):
        a, b = (torch.from_numpy(x[None]).float() for x in (sample.a_MK, sample.b_KN))
        results.append(specs[sample.phase].matmul(a, b, number)[0].double().numpy())
    return _averages(samples, results)


def format_db(name: str, samples: Sequence[Sample]) -> dict[str, float]:
    """Return the signal over noise of a number format on the samples, as `delivered_db`."""
    found = format_named(name)
    return _averages(samples, [found.product(one.a_MK, one.b_KN, one.phase) for one in samples])


def _averages(samples: Sequence[Sample], results: Sequence[np.ndarray]) -> dict[str, float]:
    """Return the signal over noise of computed products of the samples, as `delivered_db`."""
    noise: dict[str, list[tuple[float, float]]] = {"all": []}
    for sample, result in zip(samples, results, strict=True):
        ratio = ratio_from_db(-signal_to_noise_db(sample.exact_MN, result))
        for group in ("all", str(sample.phase)):
            noise.setdefault(group, []).append((sample.weight, ratio))
    return {
        group: -db_from_ratio(
            math.fsum(weight * ratio for weight, ratio in each) / math.fsum(weight for weight, _ in each)
        )
        for group, each in noise.items()
    }


def executing(samples: Sequence[Sample]) -> Judge:
    """Return a judge of lasers that executes the samples, with equal draws at every power."""

    def judge(core: Core) -> Precision:
        return Precision(noise={"execution": ratio_from_db(-delivered_db(core, samples)["all"])})

    return judge


@dataclass(frozen=True, kw_only=True)
class RescueRow:
    """Result of one combination of rescues on a core."""

    rescue: str
    """Names of the rescues, or ``none``."""
    core: str
    """Name of the core with its rescues, as systems take it."""
    settings: tuple[str, ...]
    """Changes of numbers of the core."""
    captured_db: float
    """Executed signal over noise on captured operands with the laser as shipped."""
    phases_db: dict[str, float]
    """Executed signal over noise by phase, dB, and of ``all``."""
    executed_db: dict[str, float]
    """Executed signal over noise by kind of drawn operands, dB."""
    predicted_db: dict[str, float]
    """Predicted signal over noise by kind of drawn operands, dB."""
    j_per_mac: float
    """Energy per multiply-accumulate of a layer with the laser as shipped."""
    s_per_mac: float
    """Time per multiply-accumulate of a layer with the laser as shipped."""
    target_power_w: float | None = None
    """Laser power of a line at the target; None if no power reaches the target."""
    target_j_per_mac: float | None = None
    """Energy per multiply-accumulate at that power; None if no accelerator fits."""
    target_s_per_mac: float | None = None
    """Time per multiply-accumulate at that power; None if no accelerator fits."""
    why_not: str = ""
    """Reason why there is no power or no accelerator; empty otherwise."""


@dataclass(frozen=True, kw_only=True)
class Ranking(Result):
    """Rescues of a core, the least energy at the target first."""

    core: str
    """The core."""
    model: str
    """Model whose products set lengths and weights."""
    source: str
    """Model whose captured operands are used."""
    target: str
    """Number format, or decibels, that the lasers are sized for."""
    target_db: float
    """Signal over noise of the target, dB."""
    rescues: tuple[RescueRow, ...]
    """Combinations, ranked."""

    @property
    def best(self) -> RescueRow:
        """The combination of least energy at the target; if none reaches it, of most signal over noise."""
        return self.rescues[0]

    def report(self) -> list[Block]:
        """Return the table of the ranking, and the reasons of combinations without a result."""
        bare = next(one for one in self.rescues if one.rescue == NO_RESCUE)
        columns: dict[str, Callable[[RescueRow], str]] = {
            "captured dB": lambda one: f"{one.captured_db:.1f}",
            "outliers dB": lambda one: f"{one.executed_db['outliers']:.1f}",
            "Gauss dB": lambda one: f"{one.executed_db['gaussian']:.1f}",
            "energy": lambda one: f"{one.j_per_mac / bare.j_per_mac:.2f}",
            "mW/line": lambda one: or_dash(one.target_power_w, "{:.3g}", MILLIWATT),
            "pJ/MAC": lambda one: or_dash(one.target_j_per_mac, "{:.2f}", PICOJOULE),
            "time": lambda one: or_dash(one.target_s_per_mac, "{:.2f}", bare.s_per_mac),
        }
        title = (
            f"Rescues of '{self.core}': {self.model}'s products on captured operands of {self.source}\n"
            f"dB and energy (over the bare core) as shipped; then at the {self.target_db:.1f} dB of "
            f"{self.target}, least energy first"
        )
        cannot = [f"{one.rescue}: {one.why_not}" for one in self.rescues if one.why_not]
        return [table_of(title, self.rescues, lambda one: one.rescue, columns), *cannot]

    def record(self) -> dict[str, Any]:
        """Return everything as plain data, SI throughout."""
        return {
            "core": self.core,
            "operands_of": self.source,
            "target": self.target,
            "target_db": self.target_db,
            "best": self.best.core,
            "rescues": [dataclasses.asdict(one) for one in self.rescues],
        }

    def rows(self) -> list[Row]:
        """Return a row for each rescue."""
        rows = []
        for one in self.rescues:
            row: Row = {
                name: value
                for name, value in dataclasses.asdict(one).items()
                if name not in ("settings", "phases_db", "executed_db", "predicted_db")
            }
            row |= {f"captured_{name}_db": value for name, value in one.phases_db.items() if name != "all"}
            row |= {f"executed_{name}_db": value for name, value in one.executed_db.items()}
            row |= {f"predicted_{name}_db": value for name, value in one.predicted_db.items()}
            rows.append(row)
        return rows

    def figure(self) -> Figure:
        """Return executed precision of each rescue, its energy beside it."""
        shown = self.rescues[::-1]
        figure = new_figure(FIGURE_IN)
        axes = figure.add_subplot()
        axes.barh([one.rescue for one in shown], [one.captured_db for one in shown], color=PALETTE[0])
        for place, one in enumerate(shown):
            text = f"{one.j_per_mac / PICOJOULE:.2g} pJ/MAC"
            axes.text(max(0.0, one.captured_db) + 0.3, place, text, va="center")
        axes.axvline(self.target_db, color=REFERENCE, linestyle="--", label=self.target)
        axes.set_xlim(0.0, 1.2 * self.target_db)
        axes.set_xlabel("executed signal over noise on captured operands, laser as shipped (dB)")
        axes.legend(loc="lower right")
        return figure


@dataclass(frozen=True, kw_only=True)
class Combination:
    """Rescues that are tried together on a core."""

    rescues: tuple[str, ...] = ()
    """Names of the rescues, the innermost first."""
    settings: tuple[str, ...] = ()
    """Changes of numbers of the core."""


@dataclass(frozen=True, kw_only=True)
class RankRescues(Study):
    """Ranking of combinations of rescues by the energy of a core at equal precision."""

    directory = "rescue_{core}"

    core: str = option("crossbar", "core by name (heliograph list cores)")
    model: str = option("llama-3-8b", "model whose products set lengths and weights")
    source: str = option("minilm-l6", "model whose captured operands are used: minilm-l6 or small-gpt")
    layer: int | None = option(None, "its block, from 0; default: 3, or the last of fewer", metavar="N")
    target: str = option("fp8", "signal over noise that lasers are sized for: a number format, or decibels")
    seed: int = option(0, "seed of the operands")
    quick: bool = option(False, "try the single rescues and the best known combination only")

    def run(self, progress: Progress) -> Ranking:
        """Return the ranking."""
        if self.seed < 0:
            msg = f"seed must be at least 0; got {self.seed}"
            raise ParameterError(msg)
        layer = self._chosen_layer()
        requested_db = decibels_in(self.target)
        if requested_db is None:
            format_named(self.target)
        bare, config = load_core(self.core), model_named(self.model)
        plan = plan_for(config, "", accelerators=1024, memory_bytes=to_si("memory_bytes", 80.0, "GB"))
        products = [one for one in products_of(step_graph(config, plan)) if one.role is not Role.HEAD_LOGITS]
        samples = samples_of(products, self.source, layer=layer, seed=self.seed)
        wanted_db = format_db(self.target, samples)["all"] if requested_db is None else requested_db
        combinations = self._combinations(bare)
        rows = []
        for done, one in enumerate(combinations):
            progress(JOINT.join(one.rescues) or "bare", done, len(combinations))
            rows.append(self._executed(one, samples, wanted_db))
        progress("ranked", len(combinations), len(combinations))
        return Ranking(
            core=self.core,
            model=self.model,
            source=self.source,
            target=self.target,
            target_db=wanted_db,
            rescues=tuple(sorted(rows, key=_order)),
        )

    def _chosen_layer(self) -> int:
        """Return the block whose captured operands are used."""
        blocks = 1 + max(one.layer for one in captured(self.source))
        layer = min(USUAL_LAYER, blocks - 1) if self.layer is None else self.layer
        if not 0 <= layer < blocks:
            msg = f"layer must be from 0 to {blocks - 1}, the blocks of {self.source}; got {layer}"
            raise ParameterError(msg)
        return layer

    def _combinations(self, bare: Core) -> list[Combination]:
        """Return the combinations of rescues to try on a core."""
        best_known = Combination(rescues=("rotation", "block"))
        found = [Combination(rescues=names) for names in COMBINATIONS]
        if self.quick:
            return [one for one in found if len(one.rescues) <= 1 or one == best_known]
        if hasattr(bare, SHORT_SUMS):
            found.append(dataclasses.replace(best_known, settings=(f"core.{SHORT_SUMS}=1",)))
        return found

    def _executed(self, combination: Combination, samples: Sequence[Sample], wanted_db: float) -> RescueRow:
        """Return precision, energy and time of one combination, as shipped and at the target."""
        name, settings = JOINT.join((self.core, *combination.rescues)), combination.settings
        built = bench(name, assignments=settings)
        core = built.unit.core
        energy, time = _per_mac(built)
        found = delivered_db(core, samples)
        row = RescueRow(
            rescue=" + ".join((*combination.rescues, *(("short sums",) if settings else ()))) or NO_RESCUE,
            core=name,
            settings=settings,
            captured_db=found["all"],
            phases_db=found,
            executed_db={str(kind): _executed_on(core, kind, self.seed) for kind in DRAWN_KINDS},
            predicted_db={
                str(kind): predicted(core.analog(Phase.FORWARD), operands_of(kind), DRAWN_LENGTH).snr_db
                for kind in DRAWN_KINDS
            },
            j_per_mac=energy,
            s_per_mac=time,
        )
        try:
            lit = with_judged_laser(core, wanted_db, executing(samples), settled_log=SETTLED_LOG)
            power_w = float(get_at(lit, LASER))
            row = dataclasses.replace(row, target_power_w=power_w)
            energy, time = _per_mac(bench(name, assignments=(*settings, f"core.{LASER}={power_w!r}")))
        except HeliographError as error:
            return dataclasses.replace(row, why_not=str(error))
        return dataclasses.replace(row, target_j_per_mac=energy, target_s_per_mac=time)


def _order(row: RescueRow) -> tuple[float, float]:
    """Return the key of the ranking: energy at the target, then signal over noise, the most first."""
    return row.target_j_per_mac or math.inf, -row.captured_db


def _per_mac(built: Bench) -> tuple[float, float]:
    """Return energy and time per multiply-accumulate of the three products of a layer."""
    energies = built.energies()
    macs = sum(one.macs for one in energies)
    return training_j_per_mac(energies), math.fsum(one.time_s for one in energies) / macs


def _executed_on(core: Core, kind: OperandKind, seed: int) -> float:
    """Return the executed signal over noise on a kind of drawn operands, dB."""
    a, b = operands_of(kind).draw(np.random.default_rng(seed), ROWS, DRAWN_LENGTH, ROWS)
    one = Sample(kind=str(kind), phase=Phase.FORWARD, weight=1.0, a_MK=a, b_KN=b, exact_MN=a @ b)
    return delivered_db(core, (one,))["all"]
