"""All photonic cores and GPUs compared: energy and time by array size, reuse and precision.

Reuse is the number of products that each element of either operand takes part in. Precision is the executed
signal-to-noise ratio of sums of `INPUTS` products on operands of a stated kind, for cores and for number
formats alike. Every core is priced with its laser sized for a target precision: once as large as it is for
each target (the "map"), and once in several sizes for the precision that it has today.
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
from simulator.operators import Elementwise, Held, MatMul, Phase
from simulator.parameter_tree import get_at, replace_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

WIDTH = 2**14
"""Rows of all independent blocks of a product together, enough to keep every core busy; a choice."""


def blocks(uses: int) -> int:
    """Return the number of independent blocks of `uses` rows and columns that make up `WIDTH` rows."""
    return max(1, round(WIDTH / uses))


def square_product(uses: int, element_bytes: int, *, held: Held = Held.NONE) -> MatMul:
    """Return a batched product of which each element takes part in `uses` products.

    Notes
    -----
    On a GPU it is one kernel with all operands in memory; a photonic core holds the weight, operand `held`.
    Both sides of C are equal, so that exchanging the operands gives no loaded tile more vectors: the number
    of vectors that pass a loaded tile is the reuse.
    """
    return MatMul(
        name="square product",
        phase=Phase.FORWARD,
        batch=blocks(uses),
        m=uses,
        k=INPUTS,
        n=uses,
        held=held,
        element_bytes=element_bytes,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class OperandFormat:
    """Floating-point format of operands."""

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
    """Return the product whose precision is compared."""
    return Product(operands=operands_of(operands), length=INPUTS, phase=phase_of(operands))


@dataclass(frozen=True, kw_only=True, eq=False)
class GpuPrice:
    """Energy and time of a GPU at each reuse, in one format."""

    gpu: str
    """Name of the GPU."""
    format: str
    """Name of the format."""
    element_bytes: int
    """Bytes of an element."""
    snr_db: float
    """Executed signal-to-noise ratio of products in the format."""
    j_per_mac: Reals
    """Energy per multiply-accumulate, idle power included, shape [reuse]."""
    s_per_mac: Reals
    """Time per multiply-accumulate, shape [reuse]."""

    @property
    def name(self) -> str:
        """GPU and width."""
        return f"{self.gpu} {self.format}"


def storage_bytes(target_db: float, operands: OperandKind = PLAIN_OPERANDS) -> int:
    """Return the bytes of an element in the narrowest format that has at least a signal-to-noise ratio.

    Parameters
    ----------
    target_db : float
        Signal-to-noise ratio, dB; beyond that of any format, the widest is taken.
    operands : OperandKind
        Statistics of the operands.
    """
    return next(
        (one.element_bytes for one in FORMATS if one.snr_db(operands) >= target_db), FORMATS[-1].element_bytes
    )


def gpu_prices(reuse: Sequence[int], operands: OperandKind = PLAIN_OPERANDS) -> tuple[GpuPrice, ...]:
    """Return every GPU of the table in every format that it has units for, narrow formats first."""
    prices: list[GpuPrice] = []
    for gpu in map(load_gpu, gpu_names()):
        least_bytes = 1 if gpu.chip.byte_flops_per_cycle > gpu.chip.flops_per_cycle else 2
        formats = [width for width in FORMATS if width.element_bytes >= least_bytes]
        prices += [gpu_price(gpu, width, reuse, operands) for width in formats]
    return tuple(prices)


def gpu_price(
    gpu: Gpu, width: OperandFormat, reuse: Sequence[int], operands: OperandKind = PLAIN_OPERANDS
) -> GpuPrice:
    """Return a GPU's energy and time per multiply-accumulate at each reuse, of the faster of two kernels.

    Notes
    -----
    A few vectors waste most of a tensor core's tile. There a library streams the operands through the vector
    lanes instead. That kernel reads much and writes little, so that the memory bus need not turn around.
    """
    found = [_faster_kernel(gpu, width, uses) for uses in reuse]
    return GpuPrice(
        gpu=gpu.name,
        format=width.name,
        element_bytes=width.element_bytes,
        snr_db=width.snr_db(operands),
        j_per_mac=np.array([energy for energy, _ in found]),
        s_per_mac=np.array([time for _, time in found]),
    )


def _faster_kernel(gpu: Gpu, operands: OperandFormat, uses: int) -> tuple[float, float]:
    """Return energy and time per multiply-accumulate of the faster of both kernels."""
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
"""Sizes of an array that are tried, as its sides over those of today; a choice."""
STEP_DB = 1.0
"""Step of the targets; a choice."""
MOST_DB = 120.0
"""Highest signal over noise that can be requested; no converter comes near."""
MOST_REUSE = 2**24
"""Highest reuse that can be requested; counts of events stay exact up to it."""


class Outcome(StrEnum):
    """Outcome of sizing a core's laser for a target signal over noise."""

    WORKS = "works"
    """The core reaches the target, and an accelerator has room for it."""
    NO_ROOM = "no room"
    """The core reaches the target, but one cluster takes more than the power or area of the GPU."""
    NO_LIGHT = "no light"
    """No laser power reaches the target: converters, weight errors or the optical path limit it."""
    NOT_BUILT = "not built"
    """The core cannot be built in that size."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Variant:
    """A core in one size, with its laser sized for a target, in an accelerator."""

    core: str
    """Name of the core."""
    factor: float
    """Sides of the array over those of today, dimensionless."""
    sides: Mapping[str, int]
    """Counts of the array's elements along its sides, by parameter."""
    target_db: float
    """Executed signal-to-noise ratio that the laser is sized for."""
    outcome: Outcome
    """Whether it works."""
    reason: str = ""
    """Reason why it does not work; empty if it does."""
    laser_power_w: float = math.nan
    """Laser power for the target, of a line or a whole laser as the core counts it; NaN if there is none."""
    cores: int = 0
    """Number of cores of the accelerator."""
    j_per_mac: Reals
    """Energy per multiply-accumulate, static power included, shape [reuse]; NaN where it cannot work."""
    s_per_mac: Reals
    """Time per multiply-accumulate of the accelerator, shape [reuse]."""
    memory_bound: NDArray[np.bool_]
    """Whether the memory sets the time, shape [reuse]."""
    passed: tuple[Passed, ...] = ()
    """Physical limits of light and size that it exceeds; these are reported only."""

    @property
    def side(self) -> int:
        """First of `sides`, the abscissa of pictures; 1 for a core that has one size."""
        return next(iter(self.sides.values()), 1)


def photonic_system(name: str, *, gpu: str, basis: str) -> System:
    """Return the accelerator of a core as it is, even if the basis has no room for one cluster of it.

    Parameters
    ----------
    name : str
        The core (`optical.cores.CORES`).
    gpu, basis : str
        GPU that is replaced, and basis of the accelerator's size: power, area or count.
    """
    try:
        return build_system("photonic_packet", core=name, accelerators=1, gpu=gpu, basis=basis)
    except BudgetError:
        found = build_system("photonic_packet", core=name, accelerators=1, gpu=gpu, basis=str(Basis.COUNT))
        return dataclasses.replace(found, basis=Basis(basis))


def decibel_grid(text: str) -> tuple[float, ...]:
    """Return the targets of a text ``LOW:HIGH`` in decibels, `STEP_DB` apart."""
    low, high = _ends("precision", text)
    if not 0.0 < low <= high <= MOST_DB:
        msg = f"precision ({text}) must rise within 0 to {MOST_DB:g} dB; write 10:36"
        raise ParameterError(msg)
    steps = math.floor((high - low) / STEP_DB)
    return tuple(low + STEP_DB * step for step in range(steps + 1))


def reuse_grid(text: str) -> tuple[int, ...]:
    """Return the reuse of a text ``LOW:HIGH``, doubled from each to the next; HIGH is the last."""
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
    """Return both numbers of a text ``LOW:HIGH``."""
    try:
        low, high = (float(part) for part in text.split(":"))
    except ValueError as error:
        msg = f"{what} ('{text}') must be two numbers with a colon between them: LOW:HIGH"
        raise ParameterError(msg) from error
    return low, high


def sides_by_core(name: str) -> tuple[str, ...]:
    """Return the parameters that count an array's sides; none for a core with rescues around it."""
    return CORES[name].sides if name in CORES else ()


def present_db(core: Core, product: Product) -> float:
    """Return the signal over noise of a core today, rounded down: the target of all its sizes."""
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
    """Return a core in one size, its laser sized for a target, priced at each reuse.

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
        Statistics of the operands on which precision is compared; they also set the format of storage.
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
    element_bytes = storage_bytes(target_db, operands)
    products = [square_product(uses, element_bytes, held=Held.B) for uses in reuse]
    costs = [unit.cost(product) for product in products]
    macs = np.array([float(product.macs) for product in products])
    time_s = np.array([cost.time_s for cost in costs])
    dynamic_j = np.array([sum(cost.energy_j.values()) for cost in costs])
    static_w = unit.static_w + unit.memory.static_w
    return dataclasses.replace(
        failed,
        outcome=Outcome.WORKS if fits else Outcome.NO_ROOM,
        reason="" if fits else f"one cluster takes more {system.basis} than {system.gpu.name} gives",
        laser_power_w=float(get_at(powered, LASER)),
        cores=unit.cores,
        j_per_mac=(dynamic_j + static_w * time_s) / macs,
        s_per_mac=time_s / macs,
        memory_bound=np.array([cost.bound is Bound.MEMORY for cost in costs]),
        passed=light_limits(unit),
    )


def _resized(core: Core, sides: Mapping[str, int]) -> Core:
    """Return a core in another size; one within a number format may need more light to be built at all."""
    try:
        return resized(core, sides)
    except LinkError:
        return resized(replace_at(core, LASER, BRIGHTEST * float(get_at(core, LASER))), sides)


def accelerator(system: System, core: Core) -> tuple[PhotonicUnit, bool]:
    """Return an accelerator of a core, and whether the system's basis has room for it.

    It has as many cores as fit the basis, and one cluster if none fits.

    Notes
    -----
    The buffer keeps its bytes per multiply-accumulate and second, so that only the array is compared. An
    accelerator that fits works within the power limit of the GPU, memory included, as the GPUs do.
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
"""Reuse of the curves over size, as far as the user asked for it; a choice."""
SETTLED_REUSE = 8192
"""Reuse of the lines of GPUs, or the nearest that was asked for: beyond it their energy does not change."""
PANELS = 3
"""Panels in a row of the figure over size."""
SHOWN_PJ = (0.2, 2e4)
"""Range of the energy axis; curves leave the frame beyond, and the CSV has all of them."""
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
"""GPUs in tables and figures, one of each generation; records have all of the table."""
DRAWN_BYTES = 2
"""Widest operands that are drawn."""
TIE = 0.05
"""Relative difference below which cores tie, since their number is whole; the first in the list then wins."""
NOBODY = -1
"""Number in `Winners.core` where no core reaches the target."""
MEMORY = -2
"""Number in `Winners.core` where the memory, which all cores have alike, sets the time of the fastest."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CoresResult(Result):
    """All cores over size, reuse and target precision, and GPUs."""

    gpu: str
    """GPU that the accelerators replace."""
    basis: Basis
    """Basis of the accelerators' size."""
    reuse: tuple[int, ...]
    """Reuse: vectors that pass a loaded tile."""
    operands: OperandKind
    """Statistics of the operands on which precision is compared."""
    targets_db: tuple[float, ...]
    """Targets of the map."""
    caps: Mapping[str, tuple[float, str]]
    """Highest signal over noise at any laser power, and the cause of most of the noise there, by core."""
    sizes: tuple[Variant, ...]
    """Every core in every size, its laser sized for its `present_db`."""
    maps: tuple[Variant, ...]
    """Every core as large as it is, its laser sized for each of `targets_db`; by core, then by target."""
    gpus: tuple[GpuPrice, ...]
    """Every GPU of the table in every width of operands that it has units for."""
    rivals: tuple[GpuPrice | None, ...]
    """For each target, the replaced GPU in its narrowest format that reaches it; None where none does."""

    @property
    def cores(self) -> tuple[str, ...]:
        """Names of the cores, in the order of tables and pictures."""
        return tuple(self.caps)

    def report(self) -> list[Block]:
        """Return the table of all cores, and sentences on the winners and on limits."""
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
    """Core with the least energy or time at each target and reuse; arrays of shape (targets, reuse)."""

    core: NDArray[np.int_]
    """Index in `CoresResult.cores`; `NOBODY` where none reaches the target, `MEMORY` where all tie."""
    least: Reals
    """Energy or time of that core per multiply-accumulate; NaN where none reaches the target."""
    gpu: Reals
    """Energy or time of the GPU in `CoresResult.rivals`; NaN where there is none."""

    @property
    def gpu_wins(self) -> NDArray[np.bool_]:
        """Whether the GPU takes less than every core that reaches the target."""
        wins: NDArray[np.bool_] = (self.core != NOBODY) & (self.gpu < self.least)
        return wins


class Quantity(StrEnum):
    """Quantity that is minimised, by its field in `Variant` and `GpuPrice`."""

    ENERGY = "j_per_mac"
    TIME = "s_per_mac"
    """Time of accelerators of one power, or area, by the basis."""


def winners(found: CoresResult, quantity: Quantity) -> Winners:
    """Return the core with the least energy or time at each target and reuse.

    Parameters
    ----------
    found : CoresResult
        All cores.
    quantity : Quantity
        Energy or time.

    Notes
    -----
    A core of which not even one cluster fits an accelerator cannot win.
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
    """Return a core in its present size."""
    return sizes_of(found, name)[1.0]


def sizes_of(found: CoresResult, name: str) -> dict[float, Variant]:
    """Return a core in all sizes, by the factor of its sides."""
    return {one.factor: one for one in found.sizes if one.core == name}


def best_size(found: CoresResult, name: str, place: int) -> Variant | None:
    """Return the size of a core with the least energy at one reuse, of those with room; None if none has.

    Parameters
    ----------
    found, name : CoresResult, str
        All cores, and the name of one.
    place : int
        Index in `CoresResult.reuse`.
    """
    fitting = [one for one in sizes_of(found, name).values() if one.outcome is Outcome.WORKS]
    return min(fitting, key=lambda one: float(one.j_per_mac[place]), default=None)


def shown_gpus(found: CoresResult) -> list[GpuPrice]:
    """Return the GPUs in tables and figures: one of each generation and the replaced one, up to 16 bits."""
    names = dict.fromkeys((*GENERATIONS, found.gpu))
    return [
        price
        for name in names
        for price in found.gpus
        if price.gpu == name and price.element_bytes <= DRAWN_BYTES
    ]


def colour_of(found: CoresResult, core: str) -> str:
    """Return the colour of a core in every figure; beyond the palette colours repeat."""
    return PALETTE[found.cores.index(core) % len(PALETTE)]


def hatch_of(found: CoresResult, core: str) -> str:
    """Return the hatch that tells cores of the same colour apart; empty for the first of a colour."""
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
    """Draw a core's energy over size at one reuse: sizes with room joined by a line, others by dots."""
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
    """Return the legend of the marks in a panel."""
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


def _nearest(found: CoresResult, uses: int) -> int:
    """Return the index in `CoresResult.reuse` of the reuse whose ratio to another is nearest to one."""
    return int(np.argmin(np.abs(np.log(np.array(found.reuse) / uses))))


def _gpu_style(found: CoresResult, name: str) -> str:
    names = list(dict.fromkeys(price.gpu for price in shown_gpus(found)))
    return _GREYS[names.index(name) % len(_GREYS)]


def _gpu_lines(axes: Axes, found: CoresResult) -> None:
    place = _nearest(found, SETTLED_REUSE)
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

    place = _nearest(found, SETTLED_REUSE)
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
    """Draw one map; return the names whose colours appear in it."""
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
    """Write into the blank above a map the reason why no core reaches it."""
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
    """Return the borders of cells around centres, shape [n + 1]; a single centre gets a cell of width one."""
    if centres.size == 1:
        return np.array([centres[0] - 0.5, centres[0] + 0.5])
    middle = 0.5 * (centres[1:] + centres[:-1])
    edges: Reals = np.concatenate(([2 * centres[0] - middle[0]], middle, [2 * centres[-1] - middle[-1]]))
    return edges


SHOWN_REUSE = (64, 4096, 65536)
"""Reuse in the table, or the nearest that was asked for; a choice."""


def shown_places(found: CoresResult) -> list[int]:
    """Return the indices of the reuse in the table."""
    return list(dict.fromkeys(_nearest(found, uses) for uses in SHOWN_REUSE))


def heads(found: CoresResult) -> list[str]:
    """Return the heads of the table's columns."""
    uses = [f"reuse {found.reuse[place]:,}" for place in shown_places(found)]
    return ["sized for", "most", "set by", *uses, "best size", "takes"]


def study_rows(found: CoresResult) -> list[ReportRow]:
    """Return the lines of the table: cores, then GPUs."""
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
    """Return the size of an array as text, ``64 x 64``."""
    return " x ".join(str(count) for count in one.sides.values()) or "as it is"


def _picojoules(energy_j: float) -> str:
    picojoules = energy_j / PICOJOULE
    if np.isnan(picojoules):
        return "\u2013"
    return f"{picojoules:,.0f} pJ" if picojoules >= THOUSAND else f"{picojoules:.3g} pJ"


THOUSAND = 1e3
"""Picojoules from which the table shows whole numbers."""


def summary_lines(found: CoresResult) -> list[str]:
    """Return sentences below the table: the legend, shares of the winners, and exceeded limits."""
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
    """Return a sentence for each core: the limits that points of its map exceed, and the largest excess."""
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
    """Return a row for every variant and reuse; one that does not work has its reason and no numbers."""
    rows: list[Row] = []
    for one in variants:
        common: Row = {
            "core": one.core,
            "size": sides_text(one),
            "factor": one.factor,
            "target_snr_db": one.target_db,
            "outcome": str(one.outcome),
            "laser_power_w": _or_none(one.laser_power_w),
            "cores": one.cores,
        }
        for place, uses in enumerate(reuse):
            rows.append(
                common
                | {
                    "reuse": uses,
                    "energy_j_per_mac": _or_none(one.j_per_mac[place]),
                    "time_s_per_mac": _or_none(one.s_per_mac[place]),
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


def _or_none(value: float) -> float | None:
    """Return a number, or None for NaN."""
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
            return variant(
                systems[name],
                name,
                target_db=target_db,
                reuse=uses,
                operands=self.operands,
                factor=factor,
            )

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
                sized(name, present_db(core, product), factor)
                for name, core in cores.items()
                for factor in (FACTORS if sides_by_core(name) else (1.0,))
            ),
            maps=tuple(sized(name, target) for name in cores for target in targets),
            gpus=gpus,
            rivals=tuple(next((one for one in own if one.snr_db >= target), None) for target in targets),
        )
