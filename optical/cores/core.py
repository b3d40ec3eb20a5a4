"""Seam between a photonic core, whatever its physics, and the accelerator that holds many of them.

Two kinds fit. A dynamic core sets both operands anew every symbol. A weight-stationary core loads one operand
of a product, tile by tile, and streams the other past it: nothing else can be multiplied while it loads. No
model of interest fits into the cores at once, so every product loads its own tiles, whatever stood there
before: forward loads W, the gradient of the input loads its transpose, the gradient of the weight and the
products of attention load one of two operands that both changed since.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from optical.devices import Events, Part
from optical.devices.limits import Light
from optical.devices.parts import energy_j
from optical.execution import AnalogSpec
from optical.execution.spec import loads_second
from optical.noise.chip import CalibrationCost
from simulator.operators import MatMul, Phase


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Time, energy and wear of one product on all cores together, static power apart."""

    light_s: float
    """Time during which operands stream through the cores."""
    programming_s: float = 0.0
    """Time during which cores are loaded and no light is used; zero for a dynamic core."""
    energy_j: Mapping[str, float]
    """Dynamic energy by part."""
    operand_bytes: float
    """Bytes between converters and buffer: streamed and loaded operands, partial sums that do not fit beside
    the converter."""
    writes: float = 0.0
    """Writes of the cells of the busiest core; zero for a dynamic core."""

    @property
    def time_s(self) -> float:
        """Time of the cores: loading and streaming take turns."""
        return self.light_s + self.programming_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Reload:
    """Time, energy and wear of loading all weights of one core anew; all zero for a dynamic core."""

    time_s: float = 0.0
    """Time until the core can be used."""
    energy_j: float = 0.0
    """Energy of the write itself; typical where it depends on the weights."""
    endurance_writes: float = math.inf
    """Writes that a cell survives; infinite where writing does not wear."""


@runtime_checkable
class Budget(Protocol):
    """The light of a core from source to sample; `optical.noise.link_budget.LightBudget` is the usual one."""

    @property
    def loss_db(self) -> float:
        """Loss of the path beyond the ideal division."""
        ...

    @property
    def received_w(self) -> float:
        """Power of a full-scale product at the detector."""
        ...

    @property
    def snr(self) -> float:
        """Power ratio of a full-scale sample to the receiver's noise in it."""
        ...

    @property
    def effective_bits(self) -> float:
        """Effective bits of the receiver alone, for a full-scale sample at the detector."""
        ...


@runtime_checkable
class Core(Protocol):
    """Photonic core: a frozen description with time, energy and errors of its products."""

    @property
    def name(self) -> str:
        """Name shown in tables and messages."""
        ...

    @property
    def cluster(self) -> int:
        """Cores that share parts; an accelerator holds whole clusters."""
        ...

    @property
    def holds_weights(self) -> bool:
        """Whether one operand is loaded while the other streams."""
        ...

    @property
    def reload(self) -> Reload:
        """Time, energy and wear of loading one core."""
        ...

    @property
    def symbol_rate_hz(self) -> float:
        """Symbols per second."""
        ...

    @property
    def peak_macs_per_s(self) -> float:
        """Multiply-accumulates per second of one core, loaded and fully used."""
        ...

    @property
    def operand_bytes_per_symbol(self) -> float:
        """Bytes that one core fetches from the buffer in one symbol at full load."""
        ...

    @property
    def budget(self) -> Budget:
        """Budget of the light.

        Raises
        ------
        LinkError
            If the light does not reach the detectors.
        """
        ...

    @property
    def light(self) -> Light:
        """Light that limits are held against, whether or not the link closes."""
        ...

    @property
    def effective_bits(self) -> float:
        """Effective bits of a full-scale sample with its converters."""
        ...

    def analog(self, phase: Phase) -> AnalogSpec:
        """Return the errors of products of a phase, from the link budget and the converters alone."""
        ...

    @property
    def calibration(self) -> CalibrationCost:
        """Cost of calibrating the errors of the chip once; zero without calibration."""
        ...

    def work(self, operator: MatMul, cores: int) -> Work:
        """Return time, energy and wear of one product on cores in whole clusters."""
        ...

    def parts(self) -> tuple[Part, ...]:
        """Return the parts list of one core: static power, full-load power and areas follow from it."""
        ...

    @property
    def full_load(self) -> Events:
        """Events per second on one core with all parts at work."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class TiledLoads:
    """Schedule of one product on weight-stationary arrays: the operand that is loaded, and its loads."""

    second: bool
    """Whether B is loaded and A streams, or the reverse."""
    rounds: float
    """Loads of the busiest core, one after the other."""
    tiles: float
    """Loads of all cores together."""
    streamed: float
    """Vectors that pass each loaded tile."""
    loaded_values: float
    """Operand values that are loaded, padding of part-filled tiles not counted."""
    streamed_values: float
    """Operand values that are sent: each vector again for every tile across."""
    samples: float
    """Output values that are read: each output again for every tile along the sum."""
    partial_bytes: float
    """Bytes of partial sums that are read from the buffer and written back."""


def tiled_loads(operator: MatMul, *, inputs: int, outputs: int, cores: int) -> TiledLoads:
    """Return the loads of a product on arrays of inputs x outputs.

    Parameters
    ----------
    operator : MatMul
        The product.
    inputs, outputs : int
        Length of the vectors an array takes in and gives back.
    cores : int
        Arrays; tiles spread over them.

    Notes
    -----
    All vectors pass a tile before the next is loaded, so every output of it waits as a partial sum of
    `PARTIAL_SUM_BYTES` until the tiles along the sum have followed.
    """
    second = loads_second(operator.m, operator.n)
    vectors, wide = (operator.m, operator.n) if second else (operator.n, operator.m)
    along, across = math.ceil(operator.k / inputs), math.ceil(wide / outputs)
    tiles = operator.batch * along * across
    results = operator.batch * vectors * wide
    return TiledLoads(
        second=second,
        rounds=math.ceil(tiles / cores),
        tiles=tiles,
        streamed=vectors,
        loaded_values=operator.batch * operator.k * wide,
        streamed_values=operator.batch * vectors * operator.k * across,
        samples=results * along,
        partial_bytes=2.0 * PARTIAL_SUM_BYTES * results * (along - 1),
    )


def streaming_events(
    loads: TiledLoads,
    *,
    word_bytes: float,
    loaded_bytes: float,
    vectors: int = 1,
    passes: int = 1,
    readings: int = 1,
) -> Events:
    """Return the events of a product on arrays that hold one operand.

    Parameters
    ----------
    loads : TiledLoads
        Loads and streams of the product.
    word_bytes, loaded_bytes : float
        Bytes of a streamed and of a loaded value as they are converted.
    vectors : int
        Vectors that pass at once.
    passes : int
        Symbols that one value takes.
    readings : int
        Samples of one output of a vector.
    """
    return Events(
        cycles=loads.rounds * math.ceil(loads.streamed / vectors) * passes,
        symbols=passes * loads.streamed_values,
        samples=readings * loads.samples,
        values=loads.loaded_values,
        loads=loads.tiles,
        rounds=loads.rounds,
        operand_bytes=loads.streamed_values * word_bytes
        + loads.loaded_values * loaded_bytes
        + loads.partial_bytes,
    )


def work_of(events: Events, parts: Iterable[Part], *, symbol_rate_hz: float, reload_s: float) -> Work:
    """Return the work of a product whose events use the parts of a core.

    Parameters
    ----------
    events : Events
        Events of the product.
    parts : iterable of Part
        Parts list of one core; static parts add no work.
    symbol_rate_hz : float
        Symbols per second.
    reload_s : float
        Time of one load.
    """
    return Work(
        light_s=events.cycles / symbol_rate_hz,
        programming_s=events.rounds * reload_s + events.prepared_s,
        energy_j=energy_j(parts, events),
        operand_bytes=events.operand_bytes,
        writes=events.rounds,
    )


PARTIAL_SUM_BYTES = 4.0
"""Bytes of a partial sum in the buffer."""
NOTHING_RELOADED = Reload()
"""Reload of a core into which no operand is loaded: no time, energy or wear."""
