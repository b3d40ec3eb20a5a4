"""All photonic cores beside each other, and GPUs: energy and time by size, reuse and precision.

Precision is the executed signal-to-noise ratio of products of `INPUTS` terms on stated operands, of
cores and of number formats alike.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

import numpy as np
from numpy.typing import NDArray

from electronic.formats import format_named
from electronic.gpu import Gpu, gpu_names, load_gpu
from experiments.core import INPUTS, photonic_unit
from heliograph.accuracy.precision import PLAIN_OPERANDS, phase_of
from heliograph.systems import Basis, System, build_system
from heliograph.systems.sanity_checks import light_limits
from optical.accelerator import PhotonicUnit
from optical.cores import CORES, load_core, resized
from optical.cores.core import Core
from optical.cores.sizing import BRIGHTEST, LASER, Product, core_precision, with_laser_for
from optical.devices.limits import Passed
from simulator.amounts import Reals
from simulator.errors import BudgetError, HeliographError, LinkError, ParameterError
from simulator.interfaces import Bound
from simulator.operands.statistics import OperandKind, operands_of
from simulator.operators import Elementwise, Held, MatMul, MatMuls, Phase
from simulator.parameter_tree import get_at, replace_at

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
        """First of the counts that grow."""
        return next(iter(self.sides.values()))


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
    sides = {path: max(1, round(factor * get_at(present, path))) for path in CORES[name].sides}
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
    The buffer keeps its bytes per multiply-accumulate and second, so that the array alone is compared.
    """
    present = photonic_unit(system)
    grown = core.cluster * core.peak_macs_per_s / present.peak_macs_per_s
    one = dataclasses.replace(present, core=core, cores=core.cluster, sram_bytes=present.sram_bytes * grown)
    try:
        sized = dataclasses.replace(system, photonic=one).sized().photonic
    except LinkError:
        raise
    except ParameterError:
        return one, False
    return (one, False) if sized is None else (sized, True)
