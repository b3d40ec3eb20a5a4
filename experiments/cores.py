"""`heliograph cores`: all photonic cores beside each other and the GPUs, by size, reuse and precision."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from experiments.cores_gpu import GpuPrice, gpu_prices, storage_bytes
from experiments.square_products import macs_of, square_products
from experiments.systems import Basis, System, build_system
from heliograph.amounts import Reals
from heliograph.errors import HeliographError, LinkError, ParameterError
from heliograph.interfaces import Bound
from heliograph.paths import get_at, replace_at
from optical.accelerator import PhotonicUnit
from optical.core import Core
from optical.cores import CORES, load_core, resized
from optical.lit import BRIGHTEST, LASER, lit_for_bits, most_bits

FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Sides of an array over those that the core has today; a choice."""
BITS_STEP = 0.25
"""Step of the target bits; a choice."""
MOST_BITS = 16.0
"""Most bits that can be asked for; no converter here comes near."""
MOST_REUSE = 2**24
"""Most vectors that can be asked for, which keeps counts of events exact."""


class Outcome(StrEnum):
    """What came of a core of some size that is to reach some bits."""

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
    """What came of it."""
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
class CoresStudy:
    """Everything that is told of all cores together."""

    gpu: str
    """GPU that the accelerators replace."""
    basis: Basis
    """How they are sized."""
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


def study(*, precision: str, reuse: str, gpu: str, basis: str) -> CoresStudy:
    """Return all cores over size, reuse and target bits.

    Parameters
    ----------
    precision, reuse : str
        ``LOW:HIGH`` of target bits, and of vectors per load.
    gpu, basis : str
        What accelerators replace, and how they are sized (`experiments.systems.Basis`).

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
    return CoresStudy(
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
