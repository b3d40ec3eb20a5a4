"""All photonic cores beside each other, and GPUs: energy and time by size, reuse and precision."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from electronic.gpu import Gpu, gpu_names, load_gpu
from experiments.core import INPUTS
from heliograph.systems import Basis, System, build_system
from optical.accelerator import PhotonicUnit
from optical.cores import CORES, load_core, resized
from optical.cores.core import Core
from optical.cores.sizing import BRIGHTEST, LASER, lit_for_bits, most_bits
from simulator.amounts import Reals
from simulator.errors import HeliographError, LinkError, ParameterError
from simulator.interfaces import Bound
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
        layer="",
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
    significand_bits: float
    """Bits of the significand, the hidden one included."""
    element_bytes: int
    """Bytes of a stored element."""


FORMATS = (
    OperandFormat(name="8 bit", significand_bits=4.0, element_bytes=1),
    OperandFormat(name="16 bit", significand_bits=8.0, element_bytes=2),
    OperandFormat(name="32 bit", significand_bits=11.0, element_bytes=4),
)
"""E4M3 (Micikevicius et al., arXiv:2209.05433, table 1), bfloat16, and TF32, which is stored in 32 bits."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GpuPrice:
    """Energy and time of a GPU at each reuse, with one width of operands."""

    gpu: str
    """The GPU."""
    format: str
    """Width of the operands."""
    significand_bits: float
    """Bits of their significand."""
    j_per_mac: Reals
    """Energy per multiply-accumulate at each reuse, idle power included."""
    s_per_mac: Reals
    """Time per multiply-accumulate at each reuse."""

    @property
    def name(self) -> str:
        """GPU and width."""
        return f"{self.gpu} {self.format}"


def storage_bytes(bits: float) -> int:
    """Return the bytes of a stored element that holds so many bits: those of the narrowest format.

    Parameters
    ----------
    bits : float
        Effective bits; more than any significand are stored in the widest.
    """
    return next(
        (one.element_bytes for one in FORMATS if one.significand_bits >= bits), FORMATS[-1].element_bytes
    )


def gpu_prices(reuse: Sequence[int]) -> tuple[GpuPrice, ...]:
    """Return every GPU of the table in every format that it has units for, narrow formats first.

    Parameters
    ----------
    reuse : sequence of int
        Products that each element takes part in.
    """
    return tuple(
        gpu_price(load_gpu(name), one, reuse)
        for name in gpu_names()
        for one in FORMATS
        if one.element_bytes > 1 or _has_bytes(load_gpu(name))
    )


def _has_bytes(gpu: Gpu) -> bool:
    """Return whether 8-bit operands run faster than 16-bit ones, hence have units of their own."""
    return gpu.chip.byte_flops_per_cycle > gpu.chip.flops_per_cycle


def gpu_price(gpu: Gpu, operands: OperandFormat, reuse: Sequence[int]) -> GpuPrice:
    """Return a GPU's energy and time per multiply-accumulate at each reuse, of the faster of two kernels.

    Notes
    -----
    Tiles of tensor cores are wasted on a few vectors; there a library streams the operands past the vector
    lanes, which reads much and writes little, so that the memory need not turn around.
    """
    found = [_faster(gpu, operands, uses) for uses in reuse]
    return GpuPrice(
        gpu=gpu.name,
        format=operands.name,
        significand_bits=operands.significand_bits,
        j_per_mac=np.array([energy for energy, _ in found]),
        s_per_mac=np.array([time for _, time in found]),
    )


def _faster(gpu: Gpu, operands: OperandFormat, uses: int) -> tuple[float, float]:
    """Return energy and time per multiply-accumulate."""
    product = square_product(uses, operands.element_bytes)
    streamed = Elementwise(
        name="streamed product",
        layer="",
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
BITS_STEP = 0.25
"""Step of the target bits; a choice."""
MOST_BITS = 16.0
"""Most bits that can be asked for; no converter here comes near."""
MOST_REUSE = 2**24
"""Most vectors that can be asked for, which keeps counts of events exact."""


class Outcome(StrEnum):
    """Outcome of a core of some size that is to reach some bits."""

    WORKS = "works"
    """It does, and an accelerator has room for it."""
    NO_ROOM = "no room"
    """It does, and one cluster of it takes more than the GPU's power or area."""
    NO_LIGHT = "no light"
    """No laser power reaches the bits: converters, wrong weights or the path set a cap."""
    NOT_BUILT = "not built"
    """The core cannot be built in that size."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Variant:
    """A core of some size, lit for some bits, in its accelerator."""

    core: str
    """The core."""
    factor: float
    """Sides of its array over those of today, dimensionless."""
    sides: Mapping[str, int]
    """Counts of its array, rounded."""
    bits: float
    """Effective bits of a full-scale sample that it is lit for."""
    outcome: Outcome
    """Outcome."""
    reason: str = ""
    """Why it does not work, in a sentence."""
    laser_power_w: float = math.nan
    """Laser power that the bits need, as the core counts it; NaN where there is none."""
    cores: int = 0
    """Cores of the accelerator."""
    j_per_mac: Reals
    """Energy per multiply-accumulate at each reuse, static power included; NaN where it cannot work."""
    s_per_mac: Reals
    """Time per multiply-accumulate of the accelerator at each reuse."""
    memory_bound: NDArray[np.bool_]
    """Whether the memory sets the time at each reuse."""

    @property
    def side(self) -> int:
        """First of the counts that grow."""
        return next(iter(self.sides.values()))


@dataclass(frozen=True, kw_only=True, eq=False)
class CoresResult:
    """Everything that is told of all cores together."""

    gpu: str
    """GPU that the accelerators replace."""
    basis: Basis
    """Basis of their size."""
    reuse: tuple[int, ...]
    """Products that each element of either operand takes part in: vectors that pass a loaded tile."""
    bits: tuple[float, ...]
    """Target bits of the map."""
    caps: Mapping[str, tuple[float, str]]
    """Bits that no light exceeds and what sets them mostly, by core as it is."""
    sizes: tuple[Variant, ...]
    """Every core in every size, lit for its `steady_bits`."""
    maps: tuple[Variant, ...]
    """Every core as large as it is, lit for each of `bits`; by core, then by bits."""
    gpus: tuple[GpuPrice, ...]
    """Every GPU of the table in every width of operands that it has units for."""
    rivals: tuple[GpuPrice | None, ...]
    """For each of `bits` the GPU with the narrowest operands that hold them; None where none do."""


def study(*, precision: str, reuse: str, gpu: str = "h100", basis: str = "power") -> CoresResult:
    """Return all cores over size, reuse and target bits.

    Parameters
    ----------
    precision, reuse : str
        ``LOW:HIGH`` of target bits, and of vectors per load.
    gpu, basis : str
        What accelerators replace, and how they are sized (`heliograph.systems.Basis`).

    Raises
    ------
    HeliographError
        For ranges that make no sense and unknown names.
    """
    targets, uses = bits_grid(precision), reuse_grid(reuse)
    systems = {
        name: build_system("photonic_packet", core=name, accelerators=1, gpu=gpu, basis=basis)
        for name in CORES
    }
    sizes = [
        variant(system, name, bits=steady_bits(load_core(name)), reuse=uses, factor=factor)
        for name, system in systems.items()
        for factor in FACTORS
    ]
    maps = [
        variant(system, name, bits=bits, reuse=uses) for name, system in systems.items() for bits in targets
    ]
    gpus = gpu_prices(uses)
    own = [price for price in gpus if price.gpu == gpu]
    return CoresResult(
        gpu=gpu,
        basis=Basis(basis),
        reuse=uses,
        bits=targets,
        caps={name: most_bits(load_core(name)) for name in CORES},
        sizes=tuple(sizes),
        maps=tuple(maps),
        gpus=gpus,
        rivals=tuple(
            next((price for price in own if price.significand_bits >= bits), None) for bits in targets
        ),
    )


def bits_grid(text: str) -> tuple[float, ...]:
    """Return the target bits of ``LOW:HIGH``, `BITS_STEP` apart.

    Raises
    ------
    ParameterError
        If it is no such range, or leaves 0 to `MOST_BITS`.
    """
    low, high = _ends("precision", text)
    if not 0.0 < low <= high <= MOST_BITS:
        msg = f"precision ({text}) must rise within 0 to {MOST_BITS:g} bits; write 3:10"
        raise ParameterError(msg)
    steps = math.floor((high - low) / BITS_STEP)
    return tuple(low + BITS_STEP * step for step in range(steps + 1))


def reuse_grid(text: str) -> tuple[int, ...]:
    """Return the vectors per load of ``LOW:HIGH``, twice as many from each to the next.

    Raises
    ------
    ParameterError
        If it is no such range of whole numbers, or leaves 1 to `MOST_REUSE`.
    """
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


def steady_bits(core: Core) -> float:
    """Return the bits that all sizes of a core are lit for: what it has today, down to half a bit."""
    return math.floor(2.0 * core.effective_bits) / 2.0


def variant(system: System, name: str, *, bits: float, reuse: Sequence[int], factor: float = 1.0) -> Variant:
    """Return a core in another size and with other light, priced at each reuse.

    Parameters
    ----------
    system : System
        Photonic system of the core as it is.
    name : str
        The core (`optical.cores.CORES`).
    bits : float
        Effective bits of a full-scale sample that it is lit for.
    reuse : sequence of int
        Vectors that pass a loaded tile.
    factor : float
        Sides of its array over those of today; rounded to whole numbers, at least 1.
    """
    present = load_core(name)
    sides = {path: max(1, round(factor * get_at(present, path))) for path in CORES[name].sides}
    nothing = np.full(len(reuse), math.nan)
    failed = Variant(
        core=name,
        factor=factor,
        sides=sides,
        bits=bits,
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
        lit = lit_for_bits(core, bits)
        unit, fits = accelerator(system, lit)
    except LinkError as error:
        return dataclasses.replace(failed, reason=str(error))
    products = square_products(reuse, storage_bytes(bits))
    costs = unit.costs(products)
    macs = macs_of(products)
    static_w = unit.static_w + unit.memory.static_w
    spent = np.sum([np.asarray(part) for part in costs.energy_j.values()], axis=0)
    return dataclasses.replace(
        failed,
        outcome=Outcome.WORKS if fits else Outcome.NO_ROOM,
        reason="" if fits else f"one cluster takes more {system.basis} than {system.gpu.name} gives",
        laser_power_w=float(get_at(lit, LASER)),
        cores=unit.cores,
        j_per_mac=(spent + static_w * np.asarray(costs.time_s)) / macs,
        s_per_mac=np.asarray(costs.time_s) / macs,
        memory_bound=np.asarray(costs.bound) == str(Bound.MEMORY),
    )


def _resized(core: Core, sides: Mapping[str, int]) -> Core:
    """Return a core in another size; a number format's needs light to be built at all."""
    try:
        return resized(core, sides)
    except LinkError:
        return resized(replace_at(core, LASER, BRIGHTEST * float(get_at(core, LASER))), sides)


def accelerator(system: System, core: Core) -> tuple[PhotonicUnit, bool]:
    """Return as many cores as a system's basis allows, at least one cluster, and whether that has room.

    Parameters
    ----------
    system : System
        Photonic system, sized for the core as it is.
    core : Core
        The core in another size or light.

    Raises
    ------
    LinkError
        If its light does not reach the detectors.

    Notes
    -----
    The buffer keeps its bytes per multiply-accumulate and second, so that the array alone is compared.
    """
    present = system.photonic
    if present is None:
        msg = f"system '{system.name}' has no photonic unit"
        raise ParameterError(msg)
    grown = core.cluster * core.peak_macs_per_s / present.peak_macs_per_s
    one = dataclasses.replace(present, core=core, cores=core.cluster, sram_bytes=present.sram_bytes * grown)
    try:
        sized = dataclasses.replace(system, photonic=one).sized().photonic
    except LinkError:
        raise
    except ParameterError:
        return one, False
    return (one, False) if sized is None else (sized, True)


GENERATIONS = ("a100", "h100", "b200")
"""GPUs that are drawn, one of each generation; all of the table are written down."""
DRAWN_BITS = 8.0
"""Widest significand that is drawn."""
TIE = 0.05
"""Cores that differ by less are alike, as their number is a whole one: the one listed first is shown."""
NOBODY = -1
"""Winner where no core reaches the bits."""
MEMORY = len(CORES)
"""Winner where the memory, which all share, sets the time of the fastest."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Winners:
    """Cores that take least, over bits and reuse; arrays of shape (bits, reuse)."""

    core: NDArray[np.int_]
    """Place of the core in `CORES`; `NOBODY` where none reaches the bits, `MEMORY` where all are alike."""
    least: Reals
    """Its energy or time per multiply-accumulate; NaN where none wins."""
    gpu: Reals
    """The same of the GPU with the narrowest operands that hold the bits; NaN where none do."""

    @property
    def gpu_wins(self) -> NDArray[np.bool_]:
        """Whether the GPU takes less than every core that reaches the bits."""
        wins: NDArray[np.bool_] = (self.core != NOBODY) & (self.gpu < self.least)
        return wins


def winners(found: CoresResult, quantity: str) -> Winners:
    """Return who takes least of a quantity.

    Parameters
    ----------
    found : CoresResult
        What was found.
    quantity : str
        ``j_per_mac`` or ``s_per_mac``; time is that of accelerators of one power, or area, by the basis.

    Notes
    -----
    An accelerator of which not even one cluster has room wins nothing.
    """
    shape = (len(CORES), len(found.bits), len(found.reuse))
    fits = np.array([one.outcome is Outcome.WORKS for one in found.maps]).reshape(*shape[:2], 1)
    taken = np.array([getattr(one, quantity) for one in found.maps]).reshape(shape)
    taken = np.where(fits, taken, np.inf)
    best = taken.min(axis=0)
    first = np.argmax(taken <= (1.0 + TIE) * best, axis=0)
    memory = np.array([one.memory_bound for one in found.maps]).reshape(shape)
    waits = np.take_along_axis(memory, first[None], axis=0)[0] & (quantity == "s_per_mac")
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
        if price.gpu == name and price.significand_bits <= DRAWN_BITS
    ]
