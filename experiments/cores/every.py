"""All photonic cores beside each other, and GPUs: energy and time by size, reuse and precision.

Precision is the executed signal-to-noise ratio of products of `INPUTS` terms on stated operands, of
cores and of number formats alike.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from electronic.formats import format_named
from electronic.gpu import Gpu, gpu_names, load_gpu
from experiments.cores.one import INPUTS, PICOJOULE, photonic_unit
from experiments.hardware import Replaced
from experiments.study import Block, Progress, Result, Row, Study, option
from heliograph.accuracy.precision import PLAIN_OPERANDS, phase_of
from heliograph.figures import HATCHES, PALETTE, REFERENCE, label, new_figure, plain_ticks
from heliograph.report import ReportRow, ReportTable, prefix_of
from heliograph.systems import Basis, System, build_system
from heliograph.systems.names import every_core
from heliograph.systems.sanity_checks import light_limits
from optical.accelerator import PhotonicUnit
from optical.cores import CORES, AnalogCore, load_core, resized
from optical.cores.core import Core
from optical.cores.sizing import BRIGHTEST, LASER, Product, core_precision, most_precision, with_laser_for
from optical.devices.limits import Passed
from simulator.amounts import Reals
from simulator.errors import BudgetError, HeliographError, LinkError, ParameterError
from simulator.interfaces import Bound
from simulator.operands.statistics import OperandKind, operands_of
from simulator.operators import Elementwise, Held, MatMul, MatMuls, Phase
from simulator.parameter_tree import get_at, replace_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

WIDTH = 2**14
"""Rows of all blocks of a product together, so that every core has work; a choice."""


def blocks(uses: int) -> int:
    """Return the independent blocks of a product of so many rows and columns."""
    return max(1, round(WIDTH / uses))


def square_products(reuse: Sequence[int], element_bytes: int) -> MatMuls:
    """Return a product with a held weight for each reuse.

    Parameters
    ----------
    reuse : sequence of int
        Rows and columns of C, hence products that each element takes part in.
    element_bytes : int
        Bytes of a stored element.

    Notes
    -----
    Its sides being equal, no side can be loaded in place of the other to find more vectors that pass: the
    vectors that pass a loaded tile are the reuse.
    """
    return MatMuls(
        m=np.array(reuse, dtype=float),
        k=INPUTS,
        n=np.array(reuse, dtype=float),
        batch=np.array([blocks(uses) for uses in reuse], dtype=float),
        held=Held.B,
        element_bytes=element_bytes,
    )


def macs_of(products: MatMuls) -> Reals:
    """Return the multiply-accumulates of each product, shape (products,)."""
    sizes = (products.batch, products.m, products.k, products.n)
    macs: Reals = np.prod([np.asarray(size) for size in sizes], axis=0)
    return macs


def square_product(uses: int, element_bytes: int) -> MatMul:
    """Return the same product as one batched kernel of a GPU, whose operands all come from memory."""
    return MatMul(
        name="square product",
        phase=Phase.FORWARD,
        batch=blocks(uses),
        m=uses,
        k=INPUTS,
        n=uses,
        element_bytes=element_bytes,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class OperandFormat:
    """A width of floating-point operands."""

    name: str
    """Name in print."""
    format: str
    """Number format of that width (`electronic.formats.FORMATS`)."""
    element_bytes: int
    """Bytes of a stored element."""

    def snr_db(self, operands: OperandKind) -> float:
        """Return the executed signal-to-noise ratio of products in this format."""
        found = format_named(self.format).predicted(operands_of(operands), INPUTS, phase=phase_of(operands))
        return found.snr_db


FORMATS = (
    OperandFormat(name="8 bit", format="fp8", element_bytes=1),
    OperandFormat(name="16 bit", format="bf16", element_bytes=2),
    OperandFormat(name="32 bit", format="tf32", element_bytes=4),
)
"""Narrowest first; TF32 is stored in 32 bits."""


@cache
def layer_product(operands: OperandKind) -> Product:
    """Return the product on which precision is told."""
    return Product(operands=operands_of(operands), length=INPUTS, phase=phase_of(operands))


@dataclass(frozen=True, kw_only=True, eq=False)
class GpuPrice:
    """Energy and time of a GPU at each reuse, with one width of operands."""

    gpu: str
    """The GPU."""
    format: str
    """Width of the operands."""
    element_bytes: int
    """Bytes of one of them."""
    snr_db: float
    """Executed signal-to-noise ratio of products in them."""
    j_per_mac: Reals
    """Energy per multiply-accumulate at each reuse, idle power included."""
    s_per_mac: Reals
    """Time per multiply-accumulate at each reuse."""

    @property
    def name(self) -> str:
        """GPU and width."""
        return f"{self.gpu} {self.format}"


def storage_bytes(target_db: float, operands: OperandKind = PLAIN_OPERANDS) -> int:
    """Return the bytes of a stored element that keeps so much signal over noise, in the narrowest format.

    Parameters
    ----------
    target_db : float
        Decibels; more than any format delivers are stored in the widest.
    operands : OperandKind
        Statistics of the operands.
    """
    return next(
        (one.element_bytes for one in FORMATS if one.snr_db(operands) >= target_db), FORMATS[-1].element_bytes
    )


def gpu_prices(reuse: Sequence[int], operands: OperandKind = PLAIN_OPERANDS) -> tuple[GpuPrice, ...]:
    """Return every GPU of the table in every format that it has units for, narrow formats first."""
    return tuple(
        gpu_price(load_gpu(name), one, reuse, operands)
        for name in gpu_names()
        for one in FORMATS
        if one.element_bytes > 1 or _has_bytes(load_gpu(name))
    )


def _has_bytes(gpu: Gpu) -> bool:
    """Return whether 8-bit operands run faster than 16-bit ones, hence have units of their own."""
    return gpu.chip.byte_flops_per_cycle > gpu.chip.flops_per_cycle


def gpu_price(
    gpu: Gpu, width: OperandFormat, reuse: Sequence[int], operands: OperandKind = PLAIN_OPERANDS
) -> GpuPrice:
    """Return a GPU's energy and time per multiply-accumulate at each reuse, of the faster of two kernels.

    Notes
    -----
    Tiles of tensor cores are wasted on a few vectors; there a library streams the operands past the vector
    lanes, which reads much and writes little, so that the memory need not turn around.
    """
    found = [_faster(gpu, width, uses) for uses in reuse]
    return GpuPrice(
        gpu=gpu.name,
        format=width.name,
        element_bytes=width.element_bytes,
        snr_db=width.snr_db(operands),
        j_per_mac=np.array([energy for energy, _ in found]),
        s_per_mac=np.array([time for _, time in found]),
    )


def _faster(gpu: Gpu, operands: OperandFormat, uses: int) -> tuple[float, float]:
    """Return energy and time per multiply-accumulate."""
    product = square_product(uses, operands.element_bytes)
    streamed = Elementwise(
        name="streamed product",
        phase=Phase.FORWARD,
        flops=product.flops,
        read_bytes=product.batch * 2 * uses * INPUTS * operands.element_bytes,
        written_bytes=product.batch * uses**2 * operands.element_bytes,
    )
    reading = dataclasses.replace(gpu, memory=dataclasses.replace(gpu.memory, turnaround_efficiency=1.0))
    cost = min((gpu.cost(product), reading.cost(streamed)), key=lambda one: one.time_s)
    idle_w = gpu.static_w + gpu.memory.static_w
    energy_j = math.fsum(cost.energy_j.values()) + idle_w * cost.time_s
    return energy_j / product.macs, cost.time_s / product.macs


FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Sides of an array over those that the core has today; a choice."""
STEP_DB = 1.0
"""Step of the targets; a choice."""
MOST_DB = 120.0
"""Most signal over noise that can be asked for; no converter here comes near."""
MOST_REUSE = 2**24
"""Most vectors that can be asked for, which keeps counts of events exact."""


class Outcome(StrEnum):
    """Outcome of a core of some size that is to reach some signal over noise."""

    WORKS = "works"
    """It does, and an accelerator has room for it."""
    NO_ROOM = "no room"
    """It does, and one cluster of it takes more than the GPU's power or area."""
    NO_LIGHT = "no light"
    """No laser power reaches it: converters, wrong weights or the path set a cap."""
    NOT_BUILT = "not built"
    """The core cannot be built in that size."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Variant:
    """A core of some size, its laser sized for some signal over noise, in its accelerator."""

    core: str
    """The core."""
    factor: float
    """Sides of its array over those of today, dimensionless."""
    sides: Mapping[str, int]
    """Counts of its array, rounded."""
    target_db: float
    """Executed signal-to-noise ratio that its laser is sized for."""
    outcome: Outcome
    """Outcome."""
    reason: str = ""
    """Why it does not work, in a sentence."""
    laser_power_w: float = math.nan
    """Laser power that the target needs, as the core counts it; NaN where there is none."""
    cores: int = 0
    """Cores of the accelerator."""
    j_per_mac: Reals
    """Energy per multiply-accumulate at each reuse, static power included; NaN where it cannot work."""
    s_per_mac: Reals
    """Time per multiply-accumulate of the accelerator at each reuse."""
    memory_bound: NDArray[np.bool_]
    """Whether the memory sets the time at each reuse."""
    passed: tuple[Passed, ...] = ()
    """Limits of light and size that it passes; they bar nothing, and are told."""

    @property
    def side(self) -> int:
        """First of the counts that grow; 1 of a core that has one size."""
        return next(iter(self.sides.values()), 1)


def photonic_system(name: str, *, gpu: str, basis: str) -> System:
    """Return the accelerator of a core as it is, even where one cluster of it has no room.

    Parameters
    ----------
    name : str
        The core (`optical.cores.CORES`).
    gpu, basis : str
        As of `study`.
    """
    try:
        return build_system("photonic_packet", core=name, accelerators=1, gpu=gpu, basis=basis)
    except BudgetError:
        found = build_system("photonic_packet", core=name, accelerators=1, gpu=gpu, basis=str(Basis.COUNT))
        return dataclasses.replace(found, basis=Basis(basis))


def decibel_grid(text: str) -> tuple[float, ...]:
    """Return the targets of ``LOW:HIGH`` decibels, `STEP_DB` apart."""
    low, high = _ends("precision", text)
    if not 0.0 < low <= high <= MOST_DB:
        msg = f"precision ({text}) must rise within 0 to {MOST_DB:g} dB; write 10:36"
        raise ParameterError(msg)
    steps = math.floor((high - low) / STEP_DB)
    return tuple(low + STEP_DB * step for step in range(steps + 1))


def reuse_grid(text: str) -> tuple[int, ...]:
    """Return the vectors per load of ``LOW:HIGH``, twice as many from each to the next."""
    low, high = _ends("reuse", text)
    if not 1.0 <= low <= high <= MOST_REUSE or low != int(low) or high != int(high):
        msg = (
            f"reuse ({text}) must rise from a whole number to one, within 1 to {MOST_REUSE}; write 1:1048576"
        )
        raise ParameterError(msg)
    doublings = math.floor(math.log2(high / low))
    grid = [int(low) * 2**doubling for doubling in range(doublings + 1)]
    return tuple(grid if grid[-1] == high else [*grid, int(high)])


def _ends(what: str, text: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(":"))
    except ValueError as error:
        msg = f"{what} ('{text}') must be two numbers with a colon between them: LOW:HIGH"
        raise ParameterError(msg) from error
    return low, high


def sides_by_core(name: str) -> tuple[str, ...]:
    """Return the counts of a core's array that grow together; none of one that has rescues around it."""
    return CORES[name].sides if name in CORES else ()


def steady_db(core: Core, product: Product) -> float:
    """Return the decibels that all sizes of a core are sized for: what it delivers today, rounded down."""
    return float(math.floor(core_precision(core, (product,)).snr_db))


def variant(
    system: System,
    name: str,
    *,
    target_db: float,
    reuse: Sequence[int],
    operands: OperandKind,
    factor: float = 1.0,
) -> Variant:
    """Return a core in another size and with other light, priced at each reuse.

    Parameters
    ----------
    system : System
        Photonic system of the core as it is.
    name : str
        The core (`optical.cores.CORES`).
    target_db : float
        Executed signal-to-noise ratio that its laser is sized for.
    reuse : sequence of int
        Vectors that pass a loaded tile.
    operands : OperandKind
        Statistics of the operands on which it is told, and for which the format of storage suffices.
    factor : float
        Sides of its array over those of today; rounded to whole numbers, at least 1.
    """
    present, product = load_core(name), layer_product(operands)
    sides = {path: max(1, round(factor * get_at(present, path))) for path in sides_by_core(name)}
    nothing = np.full(len(reuse), math.nan)
    failed = Variant(
        core=name,
        factor=factor,
        sides=sides,
        target_db=target_db,
        outcome=Outcome.NO_LIGHT,
        j_per_mac=nothing,
        s_per_mac=nothing,
        memory_bound=np.zeros(len(reuse), dtype=bool),
    )
    try:
        core = _resized(present, sides)
    except HeliographError as error:
        return dataclasses.replace(failed, outcome=Outcome.NOT_BUILT, reason=str(error))
    try:
        powered = with_laser_for(core, target_db, (product,))
        unit, fits = accelerator(system, powered)
    except LinkError as error:
        return dataclasses.replace(failed, reason=str(error))
    products = square_products(reuse, storage_bytes(target_db, operands))
    costs = unit.costs(products)
    macs = macs_of(products)
    static_w = unit.static_w + unit.memory.static_w
    spent = np.sum([np.asarray(part) for part in costs.energy_j.values()], axis=0)
    return dataclasses.replace(
        failed,
        outcome=Outcome.WORKS if fits else Outcome.NO_ROOM,
        reason="" if fits else f"one cluster takes more {system.basis} than {system.gpu.name} gives",
        laser_power_w=float(get_at(powered, LASER)),
        cores=unit.cores,
        j_per_mac=(spent + static_w * np.asarray(costs.time_s)) / macs,
        s_per_mac=np.asarray(costs.time_s) / macs,
        memory_bound=np.asarray(costs.bound) == str(Bound.MEMORY),
        passed=light_limits(unit),
    )


def _resized(core: Core, sides: Mapping[str, int]) -> Core:
    """Return a core in another size; a number format's needs light to be built at all."""
    try:
        return resized(core, sides)
    except LinkError:
        return resized(replace_at(core, LASER, BRIGHTEST * float(get_at(core, LASER))), sides)


def accelerator(system: System, core: Core) -> tuple[PhotonicUnit, bool]:
    """Return as many cores as a system's basis allows, at least one cluster, and whether that has room.

    Notes
    -----
    The buffer keeps its bytes per multiply-accumulate and second, so that the array alone is compared. Those
    that have room work within the power limit of the GPU, memory included, as the GPUs beside them do.
    """
    present = photonic_unit(system)
    grown = core.cluster * core.peak_macs_per_s / present.peak_macs_per_s
    one = dataclasses.replace(present, core=core, cores=core.cluster, sram_bytes=present.sram_bytes * grown)
    try:
        sized = dataclasses.replace(system, photonic=one).sized()
        limit_w = sized.left_to_work_w
    except LinkError:
        raise
    except ParameterError:
        return one, False
    return dataclasses.replace(photonic_unit(sized), limit_w=limit_w), True


CURVES = (64, 512, 4096, 32768, 1048576)
"""Reuse whose curves are drawn over size, where they were asked for; a choice."""
SETTLED_REUSE = 8192
"""Reuse at which GPUs are drawn as lines: theirs no longer matters; or the nearest that was asked for."""
PANELS = 3
"""Panels in a row."""
SHOWN_PJ = (0.2, 2e4)
"""Energies that are drawn; curves leave the frame beyond, and the CSV has them."""
MARKERS = "osD^vPX"
"""Marks of the cores, in their order."""

_GREYS = ("#9A9A9A", "#555555", "#000000", "#2F4F6F")
_DASHES: Any = {"8 bit": (0, (4, 2)), "16 bit": "-"}
_REUSE_COLOURS = tuple(PALETTE[place] for place in (4, 0, 2, 1, 5))
_MARK = 3.5
_RING: Any = {
    "marker": "o",
    "markersize": 6.5,
    "markerfacecolor": "none",
    "markeredgecolor": REFERENCE,
    "markeredgewidth": 0.8,
    "zorder": 3.0,
}
_FAILURES = {Outcome.NO_LIGHT: "x", Outcome.NOT_BUILT: "+"}
_FAILED = {Outcome.NO_LIGHT: "no light reaches the precision", Outcome.NOT_BUILT: "cannot be built"}


GENERATIONS = ("a100", "h100", "b200")
"""GPUs that are drawn, one of each generation; all of the table are written down."""
DRAWN_BYTES = 2
"""Widest operands that are drawn."""
TIE = 0.05
"""Cores that differ by less are alike, as their number is a whole one: the one listed first is shown."""
NOBODY = -1
"""Winner where no core reaches the target."""
MEMORY = -2
"""Winner where the memory, which all share, sets the time of the fastest."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CoresResult(Result):
    """Everything that is told of all cores together."""

    gpu: str
    """GPU that the accelerators replace."""
    basis: Basis
    """Basis of their size."""
    reuse: tuple[int, ...]
    """Products that each element of either operand takes part in: vectors that pass a loaded tile."""
    operands: OperandKind
    """Statistics of the operands on which precision is told."""
    targets_db: tuple[float, ...]
    """Targets of the map."""
    caps: Mapping[str, tuple[float, str]]
    """Decibels that no light exceeds and what sets them mostly, by core as it is."""
    sizes: tuple[Variant, ...]
    """Every core in every size, its laser sized for its `steady_db`."""
    maps: tuple[Variant, ...]
    """Every core as large as it is, its laser sized for each of `targets_db`; by core, then by target."""
    gpus: tuple[GpuPrice, ...]
    """Every GPU of the table in every width of operands that it has units for."""
    rivals: tuple[GpuPrice | None, ...]
    """For each target the GPU with the narrowest operands that reach it; None where none do."""

    @property
    def cores(self) -> tuple[str, ...]:
        """Names of the cores, in the order of tables and pictures."""
        return tuple(self.caps)

    def report(self) -> list[Block]:
        """Return the table of all cores, and what it does not hold."""
        title = "Photonic cores and GPUs, energy per multiply-accumulate"
        return [ReportTable(title, heads(self), study_rows(self)), *summary_lines(self)]

    def record(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "gpu": self.gpu,
            "basis": str(self.basis),
            "operands": str(self.operands),
            "caps": {name: {"snr_db": most, "set_by": cause} for name, (most, cause) in self.caps.items()},
            "size": _points(self.sizes, self.reuse),
            "map": self.rows(),
            "gpus": _gpu_points(self),
        }

    def rows(self) -> list[Row]:
        """Return a row for each core, target and reuse."""
        return _points(self.maps, self.reuse)

    def tables(self) -> dict[str, list[Row]]:
        """Return every point of the pictures."""
        sizes = _points(self.sizes, self.reuse)
        return {"map": self.rows(), "size": sizes, "gpus": _gpu_points(self)}

    def figures(self) -> dict[str, Figure]:
        """Return energy over size and over reuse, and which core wins where."""
        return {"size": energy_by_size(self), "reuse": energy_by_reuse(self), "map": winner_maps(self)}


@dataclass(frozen=True, kw_only=True, eq=False)
class Winners:
    """Cores that take least, over targets and reuse; arrays of shape (targets, reuse)."""

    core: NDArray[np.int_]
    """Place in `CoresResult.cores`; `NOBODY` where none reaches the target, `MEMORY` where all are alike."""
    least: Reals
    """Its energy or time per multiply-accumulate; NaN where none wins."""
    gpu: Reals
    """The same of the GPU with the narrowest operands that reach the target; NaN where none do."""

    @property
    def gpu_wins(self) -> NDArray[np.bool_]:
        """Whether the GPU takes less than every core that reaches the target."""
        wins: NDArray[np.bool_] = (self.core != NOBODY) & (self.gpu < self.least)
        return wins


class Quantity(StrEnum):
    """Quantity of which the core that takes least is sought, by its field."""

    ENERGY = "j_per_mac"
    TIME = "s_per_mac"
    """Time of accelerators of one power, or area, by the basis."""


def winners(found: CoresResult, quantity: Quantity) -> Winners:
    """Return who takes least of a quantity.

    Parameters
    ----------
    found : CoresResult
        What was found.
    quantity : Quantity
        The quantity.

    Notes
    -----
    An accelerator of which not even one cluster has room wins nothing.
    """
    shape = (len(found.cores), len(found.targets_db), len(found.reuse))
    fits = np.array([one.outcome is Outcome.WORKS for one in found.maps]).reshape(*shape[:2], 1)
    taken = np.array([getattr(one, quantity) for one in found.maps]).reshape(shape)
    taken = np.where(fits, taken, np.inf)
    best = taken.min(axis=0)
    first = np.argmax(taken <= (1.0 + TIE) * best, axis=0)
    memory = np.array([one.memory_bound for one in found.maps]).reshape(shape)
    waits = np.take_along_axis(memory, first[None], axis=0)[0] & (quantity is Quantity.TIME)
    nothing = np.full(shape[2], np.nan)
    return Winners(
        core=np.where(np.isfinite(best), np.where(waits, MEMORY, first), NOBODY),
        least=np.where(np.isfinite(best), best, np.nan),
        gpu=np.array([nothing if one is None else getattr(one, quantity) for one in found.rivals]),
    )


def present(found: CoresResult, name: str) -> Variant:
    """Return a core in the size that it has."""
    return sizes_of(found, name)[1.0]


def sizes_of(found: CoresResult, name: str) -> dict[float, Variant]:
    """Return a core in all sizes, by its sides over those of today."""
    return {one.factor: one for one in found.sizes if one.core == name}


def best_size(found: CoresResult, name: str, place: int) -> Variant | None:
    """Return the size of a core with the least energy at a place of the reuse, of those with room."""
    fitting = [one for one in sizes_of(found, name).values() if one.outcome is Outcome.WORKS]
    return min(fitting, key=lambda one: float(one.j_per_mac[place]), default=None)


def shown_gpus(found: CoresResult) -> list[GpuPrice]:
    """Return one GPU of each generation, and the one that is replaced, in the widths for training."""
    names = dict.fromkeys((*GENERATIONS, found.gpu))
    return [
        price
        for name in names
        for price in found.gpus
        if price.gpu == name and price.element_bytes <= DRAWN_BYTES
    ]


def colour_of(found: CoresResult, core: str) -> str:
    """Return the colour that a core has in every picture; beyond the palette they begin anew."""
    return PALETTE[found.cores.index(core) % len(PALETTE)]


def hatch_of(found: CoresResult, core: str) -> str:
    """Return what tells the areas of cores of one colour apart, nothing for the first."""
    turn = found.cores.index(core) // len(PALETTE)
    return _MORE[(turn - 1) % len(_MORE)] if turn else ""


def energy_by_size(found: CoresResult) -> Figure:
    """Draw the energy per multiply-accumulate of every core over the size of its array.

    Notes
    -----
    Hollow marks: one cluster takes more than the GPU's power, or area. Crosses on top: no light reaches the
    precision in that size; plus signs: it cannot be built.
    """
    from matplotlib.lines import Line2D  # noqa: PLC0415 - only to draw

    places = [place for place, uses in enumerate(found.reuse) if uses in CURVES]
    places = places or [len(found.reuse) - 1]
    rows = -(-(len(found.cores) + 1) // PANELS)
    figure = new_figure(1.0 + 2.0 * rows)
    panels = list(np.ravel(figure.subplots(rows, PANELS, sharey=True)))
    for axes, name in zip(panels, found.cores, strict=False):
        for colour, place in zip(_REUSE_COLOURS, places, strict=False):
            _size_curve(axes, found, name, place, colour)
        _gpu_lines(axes, found)
        _size_axes(axes, list(sizes_of(found, name).values()))
    for axes in panels[len(found.cores) :]:
        axes.set_axis_off()
    figure.supylabel("Energy per multiply-accumulate (pJ)", fontsize=9.0)
    figure.suptitle(
        f"Laser of every size solved for the signal over noise above it, {found.operands} operands",
        fontsize=9.0,
    )
    curves = [
        Line2D([], [], color=colour, marker="o", markersize=_MARK, label=f"{uses:,} vectors a load")
        for colour, uses in zip(_REUSE_COLOURS, (found.reuse[place] for place in places), strict=False)
    ]
    handles = [*curves, *_marks(found), *_gpu_handles(found)]
    figure.legend(handles=handles, loc="outside right center", fontsize=7.5)
    return figure


def _size_curve(axes: Axes, found: CoresResult, name: str, place: int, colour: str) -> None:
    """Draw a core's energy at one reuse: what has room joined by a line, what has not by dots."""
    drawn = [one for one in sizes_of(found, name).values() if one.laser_power_w > 0.0]
    sides = np.array([one.side for one in drawn])
    energy = np.array([one.j_per_mac[place] for one in drawn]) / PICOJOULE
    fits = np.array([one.outcome is Outcome.WORKS for one in drawn], dtype=bool)
    axes.plot(sides, energy, ":", color=colour, linewidth=1.0)
    axes.plot(sides, np.where(fits, energy, np.nan), color=colour, linewidth=1.2)
    axes.plot(sides[fits], energy[fits], "o", color=colour, markersize=_MARK)
    axes.plot(sides[~fits], energy[~fits], "o", color=colour, markerfacecolor="white", markersize=_MARK)
    now = present(found, name)
    if now.laser_power_w > 0.0:
        axes.plot(now.side, now.j_per_mac[place] / PICOJOULE, **_RING)


def _size_axes(axes: Axes, variants: Sequence[Variant]) -> None:
    """Name the axes of a core's panel; sizes that do not work are marked at its top."""
    from matplotlib.ticker import NullLocator  # noqa: PLC0415 - only to draw

    for outcome, mark in _FAILURES.items():
        dead = [one.side for one in variants if one.outcome is outcome]
        axes.plot(dead, [0.95] * len(dead), mark, color=PALETTE[5], transform=axes.get_xaxis_transform())
    sides = [one.side for one in variants]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylim(*SHOWN_PJ)
    axes.set_xlim(sides[0] / 1.3, sides[-1] * 1.3)
    axes.set_xticks(sides[::2], [str(side) for side in sides[::2]])
    axes.xaxis.set_minor_locator(NullLocator())
    plain_ticks(axes.yaxis, "{:,.12g}".format)
    axes.set_xlabel(" = ".join(variants[0].sides), labelpad=1.0)
    axes.set_title(f"{label(variants[0].core)}, {variants[0].target_db:g} dB", loc="left", fontsize=8.5)
    axes.grid(visible=True)


def _marks(found: CoresResult) -> list[Line2D]:
    """Return what the marks of a panel mean."""
    from matplotlib.lines import Line2D  # noqa: PLC0415 - only to draw

    return [
        Line2D([], [], linestyle="none", label="today's size", **_RING),
        Line2D(
            [],
            [],
            color=REFERENCE,
            marker="o",
            markersize=_MARK,
            markerfacecolor="white",
            linestyle=":",
            label=f"beyond the {found.basis} of {found.gpu}",
        ),
        *(
            Line2D([], [], color=PALETTE[5], marker=mark, linestyle="none", label=_FAILED[outcome])
            for outcome, mark in _FAILURES.items()
        ),
    ]


def _settled(found: CoresResult) -> int:
    return int(np.argmin(np.abs(np.log(np.array(found.reuse) / SETTLED_REUSE))))


def _gpu_style(found: CoresResult, name: str) -> str:
    names = list(dict.fromkeys(price.gpu for price in shown_gpus(found)))
    return _GREYS[names.index(name) % len(_GREYS)]


def _gpu_lines(axes: Axes, found: CoresResult) -> None:
    place = _settled(found)
    for price in shown_gpus(found):
        axes.axhline(
            price.j_per_mac[place] / PICOJOULE,
            color=_gpu_style(found, price.gpu),
            linestyle=_DASHES[price.format],
            linewidth=0.8,
            zorder=1.5,
        )


def _gpu_handles(found: CoresResult) -> list[Line2D]:
    from matplotlib.lines import Line2D  # noqa: PLC0415 - only to draw

    place = _settled(found)
    return [
        Line2D(
            [],
            [],
            color=_gpu_style(found, price.gpu),
            linestyle=_DASHES[price.format],
            linewidth=1.0,
            label=f"{price.name}: {price.j_per_mac[place] / PICOJOULE:.2f} pJ",
        )
        for price in shown_gpus(found)
    ]


def energy_by_reuse(found: CoresResult) -> Figure:
    """Draw the energy per multiply-accumulate over reuse, all cores in one picture."""
    figure = new_figure(4.4)
    axes = figure.add_subplot()
    for place, name in enumerate(found.cores):
        now = present(found, name)
        axes.plot(
            found.reuse,
            now.j_per_mac / PICOJOULE,
            "-" if isinstance(load_core(name), AnalogCore) else "--",
            color=colour_of(found, name),
            linewidth=1.6,
            marker=MARKERS[place % len(MARKERS)],
            markersize=3.5,
            label=f"{label(name)}, {now.target_db:g} dB",
        )
    _gpu_lines(axes, found)
    own = [price for price in shown_gpus(found) if price.gpu == found.gpu][-1]
    axes.plot(
        found.reuse,
        own.j_per_mac / PICOJOULE,
        ":",
        color=REFERENCE,
        linewidth=1.4,
        label=f"{own.name}, same products",
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(*SHOWN_PJ)
    axes.set_xlim(found.reuse[0] * 0.9, found.reuse[-1] * 1.1)
    for axis in (axes.xaxis, axes.yaxis):
        plain_ticks(axis, "{:,.12g}".format)
    axes.set_title(
        f"As large as today; signal over noise on {found.operands} operands", loc="left", fontsize=9.0
    )
    axes.set_xlabel("Vectors that pass a loaded tile")
    axes.set_ylabel("Energy per multiply-accumulate (pJ)")
    axes.grid(visible=True)
    handles, _ = axes.get_legend_handles_labels()
    figure.legend(handles=[*handles, *_gpu_handles(found)], loc="outside right upper", fontsize=7.5)
    return figure


_MEMORY = "#E3E3E3"
_SHARED = "memory sets the time"
_HATCH = "////"
_MORE = HATCHES[2:]
_LEAST_BLANK = 4.0
"""Decibels of blank above the map that have room for a sentence."""


def winner_maps(found: CoresResult) -> Figure:
    """Draw which core takes least energy, and least time, over target precision and reuse.

    Notes
    -----
    Time is per multiply-accumulate of accelerators of one power, or area. Where the memory sets the time of
    the fastest, all that share it are alike, and none is named.
    """
    from matplotlib.patches import Patch  # noqa: PLC0415 - only to draw

    figure = new_figure(4.3)
    panels = figure.subplots(1, 2, sharey=True)
    shown: set[str] = set()
    for axes, quantity, title in (
        (panels[0], Quantity.ENERGY, "Least energy per multiply-accumulate"),
        (panels[1], Quantity.TIME, f"Least time, accelerators of one {found.basis}"),
    ):
        won = winners(found, quantity)
        shown |= _map_panel(axes, found, won)
        axes.set_title(title, loc="left")
        _tell_blank(axes, found, won)
        axes.set_xlabel("Vectors that pass a loaded tile")
    panels[0].set_ylabel(f"Signal over noise (dB), {found.operands} operands")
    handles = [
        Patch(
            facecolor=colour_of(found, name),
            hatch=hatch_of(found, name),
            edgecolor=REFERENCE if hatch_of(found, name) else colour_of(found, name),
            label=label(name),
        )
        for name in found.cores
        if name in shown
    ]
    handles += [Patch(color=_MEMORY, label=_SHARED)] if _SHARED in shown else []
    handles += [
        Patch(
            facecolor="white",
            edgecolor=REFERENCE,
            hatch=_HATCH,
            linewidth=0.5,
            label=f"{found.gpu} takes less",
        ),
        Patch(facecolor="white", edgecolor=REFERENCE, linewidth=0.5, label="no core reaches it"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def _map_panel(axes: Axes, found: CoresResult, won: Winners) -> set[str]:
    """Draw one map; return whose colours are in it."""
    from matplotlib.colors import BoundaryNorm, ListedColormap  # noqa: PLC0415 - only to draw
    from matplotlib.ticker import FuncFormatter  # noqa: PLC0415 - only to draw

    names = [*found.cores, _SHARED]
    places = np.where(won.core == MEMORY, len(found.cores), won.core)
    across, up = _edges(np.log10(found.reuse)), _edges(np.array(found.targets_db))
    colours = ListedColormap([*(colour_of(found, name) for name in found.cores), _MEMORY])
    axes.pcolormesh(
        10.0**across,
        up,
        np.ma.masked_equal(places, NOBODY),
        cmap=colours,
        norm=BoundaryNorm(np.arange(len(names) + 1) - 0.5, len(names)),
        rasterized=True,
    )
    hatched = {_HATCH: won.gpu_wins}
    for place, name in enumerate(found.cores):
        if hatch := hatch_of(found, name):
            hatched[hatch] = (won.core == place) | hatched.get(hatch, False)
    for hatch, where in hatched.items():
        mesh = axes.pcolor(
            10.0**across,
            up,
            np.ma.masked_where(~where, np.ones_like(won.least)),
            facecolors="none",
            edgecolor=REFERENCE,
            linewidth=0.0,
            hatch=hatch,
        )
        mesh.set_facecolor("none")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(_short))
    axes.grid(visible=False)
    for one in FORMATS:
        delivered_db = one.snr_db(found.operands)
        if up[0] < delivered_db < up[-1]:
            axes.axhline(delivered_db, color=REFERENCE, linewidth=0.7, linestyle=":")
            axes.annotate(
                f"{found.gpu}: {one.name} below",
                (0.98, delivered_db),
                (0, -2),
                xycoords=axes.get_yaxis_transform(),
                textcoords="offset points",
                ha="right",
                va="top",
                fontsize=7.0,
            )
    return {names[place] for place in np.unique(places[places != NOBODY])}


def _tell_blank(axes: Axes, found: CoresResult, won: Winners) -> None:
    """Say in the blank above a map what keeps every core from it."""
    name = max(found.caps, key=lambda one: found.caps[one][0])
    most, cause = found.caps[name]
    blank = [target for target, row in zip(found.targets_db, won.core, strict=True) if (row == NOBODY).all()]
    if not blank or blank[-1] - blank[0] < _LEAST_BLANK:
        return
    text = f"no core reaches this:\n{most:.1f} dB are the most ({label(name)}: {cause})"
    if blank[0] < most:  # light reaches it
        text = f"no core of one {found.gpu}'s {found.basis} reaches this:\n{label(name)} does with more"
    top = (float(np.sqrt(found.reuse[0] * found.reuse[-1])), blank[-1])
    axes.annotate(text, top, (0, -4), textcoords="offset points", ha="center", va="top", fontsize=7.5)


def _short(count: float, _: int) -> str:
    """Return a count with a prefix: 10k."""
    prefix, factor = prefix_of(count)
    return f"{count / factor:g}{prefix}"


def _edges(centres: NDArray[np.float64]) -> Reals:
    """Return the borders of cells around centres; a single one gets a cell of one."""
    if centres.size == 1:
        return np.array([centres[0] - 0.5, centres[0] + 0.5])
    middle = 0.5 * (centres[1:] + centres[:-1])
    edges: Reals = np.concatenate(([2 * centres[0] - middle[0]], middle, [2 * centres[-1] - middle[-1]]))
    return edges


SHOWN_REUSE = (64, 4096, 65536)
"""Reuse that the table shows, or the nearest that was asked for; a choice."""


def shown_places(found: CoresResult) -> list[int]:
    """Return the places of the reuse that the table shows."""
    nearest = [int(np.argmin(np.abs(np.log(np.array(found.reuse) / uses)))) for uses in SHOWN_REUSE]
    return list(dict.fromkeys(nearest))


def heads(found: CoresResult) -> list[str]:
    """Return the heads of the table's columns."""
    uses = [f"reuse {found.reuse[place]:,}" for place in shown_places(found)]
    return ["sized for", "most", "set by", *uses, "best size", "takes"]


def study_rows(found: CoresResult) -> list[ReportRow]:
    """Return a study as lines of a table, cores first, then the GPUs."""
    places = shown_places(found)
    rows = []
    for name in found.cores:
        now, best = present(found, name), best_size(found, name, places[-1])
        cap, cause = found.caps[name]
        rows.append(
            ReportRow(
                name,
                (
                    f"{now.target_db:g} dB",
                    f"{cap:.1f} dB",
                    cause,
                    *(_picojoules(now.j_per_mac[place]) for place in places),
                    "none fits" if best is None else sides_text(best),
                    "" if best is None else _picojoules(best.j_per_mac[places[-1]]),
                ),
            )
        )
    for place, price in enumerate(shown_gpus(found)):
        rows.append(
            ReportRow(
                price.name,
                (
                    f"{price.snr_db:.1f} dB",
                    f"{price.snr_db:.1f} dB",
                    "format",
                    *(_picojoules(price.j_per_mac[one]) for one in places),
                    "",
                    "",
                ),
                section=place == 0,
            )
        )
    return rows


def sides_text(one: Variant) -> str:
    """Return the size of an array in words of few letters."""
    return " x ".join(str(count) for count in one.sides.values()) or "as it is"


def _picojoules(energy_j: float) -> str:
    picojoules = energy_j / PICOJOULE
    if np.isnan(picojoules):
        return "\u2013"
    return f"{picojoules:,.0f} pJ" if picojoules >= THOUSAND else f"{picojoules:.3g} pJ"


THOUSAND = 1e3
"""Picojoules from which the table tells whole ones."""


def summary_lines(found: CoresResult) -> list[str]:
    """Return what a table does not hold, in sentences."""
    lines = [
        "Energy per multiply-accumulate with buffer and memory, each core's laser sized for its precision: "
        f"executed signal over noise of sums of {INPUTS:,} products, {found.operands} operands; GPUs alike.",
        "Reuse: products that each element of either operand takes part in, hence vectors that pass a load.",
    ]
    for quantity, word in ((Quantity.ENERGY, "energy"), (Quantity.TIME, "time")):
        won = winners(found, quantity)
        reached = won.core != NOBODY
        if not reached.any():
            lines.append(f"No core reaches {found.targets_db[0]:g} dB.")
            break
        lit = reached & ~won.gpu_wins
        who = {**dict(enumerate(found.cores)), MEMORY: "memory sets it for all"}
        counts = {name: int(np.sum(lit & (won.core == place))) for place, name in who.items()}
        names = ", ".join(f"{name} {count / reached.sum():.0%}" for name, count in counts.items() if count)
        top = max(target for target, row in zip(found.targets_db, reached, strict=True) if row.any())
        lines.append(
            f"Least {word} where some core reaches the target (up to {top:g} dB): {names or 'no core'}; "
            f"{found.gpu} {won.gpu_wins.sum() / reached.sum():.0%}."
        )
    return lines + limit_lines(found)


def limit_lines(found: CoresResult) -> list[str]:
    """Return a sentence for each core on the limits that points of its map pass, and by how much at most."""
    lines = []
    for name in found.cores:
        works = [one for one in found.maps if one.core == name and one.outcome is Outcome.WORKS]
        most: dict[str, float] = {}
        for passed in (passed for one in works for passed in one.passed):
            most[passed.limit] = max(passed.excess, most.get(passed.limit, 0.0))
        if most:
            count = sum(bool(one.passed) for one in works)
            told = ", ".join(f"{limit} {excess:.3g} times" for limit, excess in most.items())
            lines.append(
                f"{name}: {count} of {len(works)} targets pass a limit ({told} at most; CSV: limits)."
            )
    return lines


def _points(variants: Iterable[Variant], reuse: Sequence[int]) -> list[Row]:
    """Return a row for every variant and reuse; what does not work, with its reason and no numbers."""
    rows: list[Row] = []
    for one in variants:
        common: Row = {
            "core": one.core,
            "size": sides_text(one),
            "factor": one.factor,
            "target_snr_db": one.target_db,
            "outcome": str(one.outcome),
            "laser_power_w": _told(one.laser_power_w),
            "cores": one.cores,
        }
        for place, uses in enumerate(reuse):
            rows.append(
                common
                | {
                    "reuse": uses,
                    "energy_j_per_mac": _told(one.j_per_mac[place]),
                    "time_s_per_mac": _told(one.s_per_mac[place]),
                    "memory_bound": bool(one.memory_bound[place]),
                    "reason": one.reason,
                    "limits": " ".join(f"{passed.limit}: {passed}." for passed in one.passed),
                }
            )
    return rows


def _gpu_points(found: CoresResult) -> list[Row]:
    return [
        {
            "gpu": price.gpu,
            "format": price.format,
            "snr_db": price.snr_db,
            "reuse": uses,
            "energy_j_per_mac": float(price.j_per_mac[place]),
            "time_s_per_mac": float(price.s_per_mac[place]),
        }
        for price in found.gpus
        for place, uses in enumerate(found.reuse)
    ]


def _told(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


@dataclass(frozen=True, kw_only=True)
class AllCores(Study):
    """All photonic cores by size, reuse and precision."""

    directory = "cores"

    precision: str = option("10:36", "signal over noise of the map, dB", metavar="LOW:HIGH")
    operands: OperandKind = option(PLAIN_OPERANDS, "statistics of the operands on which it is told")
    reuse: str = option("1:1048576", "vectors that pass a load", metavar="LOW:HIGH")
    cores: tuple[str, ...] = option(
        (),
        "cores by name, or FILE.py:CLASS, separated by commas; default all, those of installed packages too",
        metavar="NAMES",
        commas=True,
    )
    replaced: Replaced = field(default_factory=Replaced)

    def run(self, progress: Progress) -> CoresResult:
        """Return all cores over size, reuse and target precision."""
        given = {"gpu": "h100", "basis": "power"} | self.replaced.given()
        targets, uses = decibel_grid(self.precision), reuse_grid(self.reuse)
        product = layer_product(self.operands)
        cores = {name: load_core(name) for name in self.cores or every_core()}
        systems = {name: photonic_system(name, **given) for name in cores}

        def sized(name: str, target_db: float, factor: float = 1.0) -> Variant:
            told = (systems[name], name)
            return variant(*told, target_db=target_db, reuse=uses, operands=self.operands, factor=factor)

        caps = {name: most_precision(core, (product,))[0] for name, core in cores.items()}
        gpus = gpu_prices(uses, self.operands)
        own = [price for price in gpus if price.gpu == given["gpu"]]
        return CoresResult(
            gpu=given["gpu"],
            basis=Basis(given["basis"]),
            reuse=uses,
            operands=self.operands,
            targets_db=targets,
            caps={name: (best.snr_db, best.worst) for name, best in caps.items()},
            sizes=tuple(
                sized(name, steady_db(core, product), factor)
                for name, core in cores.items()
                for factor in (FACTORS if sides_by_core(name) else (1.0,))
            ),
            maps=tuple(sized(name, target) for name in cores for target in targets),
            gpus=gpus,
            rivals=tuple(next((one for one in own if one.snr_db >= target), None) for target in targets),
        )
