"""Lightening-Transformer as published, and the ring bank and mesh that its authors compare it with.

This is a compatibility mode: its constants are rows of ``parameters/published.csv``, its rules are restated
from the paper and its public simulator, and nothing of it feeds our own systems. What is wrong with the rules
is listed in `Correction`, of ring bank and mesh in `BaselineCorrection` too, and can be put right one by one.
Both baselines hold one operand and stream the other, a vector a symbol.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from experiments.validation.peers.chips import current_for, published_table
from experiments.validation.rows import Supplement
from heliograph.report import ReportRow, table_text
from optical.devices import Photodetector, Tia, device_table
from optical.devices.limits import noise_of_bits
from optical.devices.programmable import Heater, WeightRing, programmable_table
from simulator.errors import ParameterError, check_positive, check_range
from simulator.tables import Constants
from simulator.units import BITS_PER_BYTE, ratio_from_db, to_si, watts_from_dbm

PUBLISHED_OTHER_BITS = 4
"""Bits of softmax, norms and activations, whatever the accelerator's."""
PUBLISHED_ACCESS_BLOCK = 2.0**30
"""Accesses per nanosecond of access time that the published buffer is given, per second, dimensionless."""
DEIT_PATCHES = 196
"""Patches of an image of 224 x 224; dimensionless."""
JOULES_TO_MILLIJOULES = 1000.0
"""The published attention multiplies by an energy in millijoules once too often; dimensionless."""
SECONDS_AS_MILLISECONDS = 0.001
"""Factor of a time in seconds that is added as if it were in milliseconds; dimensionless."""


class Correction(StrEnum):
    """Corrections of the published rules where they are wrong.

    Each was found by reading the public simulator beside its paper and by running it.
    """

    EVERY_WAVELENGTH = "sensitivity read per wavelength"
    """Another reading, not a fault: a detector's sensitivity is that of each wavelength, not of their sum."""
    LIGHT_FROM_SNR = "laser solved for its signal-to-noise ratio"
    """Light grows as 2^b from a fixed sensitivity, instead of with the shot and amplifier noise of b bits."""
    DAC_LAW = "DAC power as 2^b / (b + 1)"
    """The comment of the rule, and SimPhony, have b + 1; the code has b."""
    EFFECTIVE_BITS = "ADC priced by effective bits"
    """An ADC of 6.49 effective bits counts as one of 8, and its energy as linear in bits."""
    ATTENTION_OPERANDS = "attention reads its operands"
    """The buffer's energy is multiplied in twice for attention, which leaves its reads out."""
    BUFFER_TIME = "linear layers wait for the buffer"
    """The time from global to local buffer is computed, then set to zero."""
    OTHERS_EVERY_BLOCK = "softmax, norms and activations in every block"
    """Operations other than products are counted for one block of the model only."""
    OTHERS_BITS = "softmax, norms and activations at their bits"
    """Operations other than products always have 4 bits."""
    OTHERS_TIME = "seconds added as seconds"
    """The time of operations other than products, in seconds, is added to milliseconds."""


FAULTS = tuple(one for one in Correction if one is not Correction.EVERY_WAVELENGTH)
"""Corrections of faults, which are wrong in every reading of the paper."""


@dataclass(frozen=True, kw_only=True)
class LighteningTransformer:
    """An accelerator of tiles of cores, as published.

    References
    ----------
    H. Zhu et al., "Lightening-Transformer", HPCA 2024 (arXiv:2305.19533), and its public simulator
    (github.com/zhuhanqing/Lightening-Transformer at 7c3d4ad).
    """

    tiles: int = 4
    """Tiles; LT-B has 4, LT-L 8."""
    cores: int = 2
    """Cores per tile."""
    size: int = 12
    """Rows, columns and wavelengths of a core."""
    bits: int = 4
    """Bits of operands and results."""
    rate_hz: float = 5e9
    """Symbols per second."""
    optimised: bool = True
    """Whether tiles share modulators, cores share converters, and three symbols are summed before an ADC."""
    corrections: frozenset[Correction] = frozenset()
    """Corrections that are applied; the published mode has none."""
    parts: Constants = field(default_factory=lambda: published_table().constants("lightening_transformer"))
    """Constants of its device table; ``router`` is a ring that adds or drops a wavelength, ``local_buffer``
    a tile's and ``small_buffer`` a core's, ``node`` a dot-product node, ``operation`` one of no product."""

    def __post_init__(self) -> None:
        check_range(self, "tiles", "cores", "size", "bits", low=1)
        check_positive(self, "rate_hz")

    def corrected(self, *corrections: Correction) -> LighteningTransformer:
        """Return the same accelerator with only these rules put right."""
        return dataclasses.replace(self, corrections=frozenset(corrections))

    @property
    def accumulated_symbols(self) -> int:
        """Symbols that are summed before a conversion, at most."""
        return 3 if self.optimised else 1

    @property
    def peak_macs_per_s(self) -> float:
        """Multiply-accumulates per second."""
        return self.size**3 * self.tiles * self.cores * self.rate_hz

    @property
    def loss_db(self) -> float:
        """Insertion loss from the laser to a detector, without the ideal division of power."""
        p = self.parts
        fan_out = p.splitter_loss_db * math.ceil(math.log2(self.size))
        node = p.splitter_loss_db + p.shifter_loss_db + p.coupler_loss_db
        return p.modulator_loss_db + 2.0 * p.router_loss_db + fan_out + node

    @property
    def received_w(self) -> float:
        """Light that a detector is given.

        Notes
        -----
        As published, sensitivity x 2^bits. Put right, what leaves a sine of full scale so many effective bits
        beside shot and amplifier noise in half the rate (`current_for`), from our rows of detector and
        amplifier; intensity noise is left out.
        """
        if Correction.LIGHT_FROM_SNR not in self.corrections:
            return watts_from_dbm(self.parts.sensitivity_dbm) * 2.0**self.bits
        responsivity = device_table().build(Photodetector, "photodetector").responsivity_a_per_w
        noise = device_table().build(Tia, "tia").noise_a_per_sqrt_hz
        return current_for(noise_of_bits(self.bits), self.rate_hz / 2.0, noise) / responsivity

    @property
    def laser_w(self) -> float:
        """Electrical power of a core's laser."""
        lines = self.size if Correction.EVERY_WAVELENGTH in self.corrections else 1
        divided = self.received_w * ratio_from_db(self.loss_db) * self.size**2
        return divided * lines / self.parts.laser_efficiency

    @property
    def modulator_w(self) -> float:
        """Power of a modulator and its two rings."""
        return self.parts.modulator_symbol_j * self.rate_hz + 2.0 * self.parts.router_w

    @property
    def dac_w(self) -> float:
        """Power of a DAC at the bits and rate in use."""
        extra = 1.0 if Correction.DAC_LAW in self.corrections else 0.0
        p = self.parts
        ratio = 2.0 ** (self.bits - p.dac_bits) * (p.dac_bits + extra) / (self.bits + extra)
        return p.dac_w * ratio * self.rate_hz / p.dac_rate_hz

    @property
    def adc_w(self) -> float:
        """Power of an ADC at the bits and rate in use."""
        p = self.parts
        ratio = self.bits / p.adc_bits
        if Correction.EFFECTIVE_BITS in self.corrections:
            ratio = 2.0 ** (self.bits - p.adc_enob_bits)
        return p.adc_w * ratio * self.rate_hz / p.adc_rate_hz

    @property
    def adder_w(self) -> float:
        """Power of an adder."""
        return self.parts.adder_w / self.parts.adder_power_scaling

    @property
    def modulators(self) -> int:
        """Modulators, and DACs, of the accelerator."""
        shared = 1 if self.optimised else self.tiles
        return self.size**2 * self.cores * (self.tiles + shared)

    @property
    def nodes(self) -> int:
        """Dot-product nodes of the accelerator."""
        return self.size**2 * self.tiles * self.cores

    @property
    def readouts(self) -> int:
        """Amplifiers, and ADCs, of the accelerator."""
        return self.size**2 * self.tiles * (1 if self.optimised else self.cores)

    @property
    def small_buffers(self) -> int:
        """Buffers of cores, and of the outputs of tiles."""
        operands = self.cores if self.optimised else self.tiles * self.cores
        return self.tiles * (2 + self.cores) + operands

    def power_parts_w(self) -> dict[str, float]:
        """Return the power by part, with the published names."""
        p = self.parts
        buffers = p.global_buffer_w * self.tiles / p.global_buffer_tiles + p.local_buffer_w * (self.tiles + 1)
        return {
            "laser": self.laser_w * self.tiles * self.cores,
            "DAC": self.dac_w * self.modulators,
            "MZM": self.modulator_w * self.modulators,
            "ADC": self.adc_w * self.readouts,
            "TIA": p.tia_w * self.readouts,
            "Photodetector": 2.0 * p.detector_w * self.nodes,
            "adder": self.adder_w * self.size**2 * self.tiles,
            "mem": buffers + p.small_buffer_w * self.small_buffers,
        }

    def area_parts_m2(self) -> dict[str, float]:
        """Return the area by part, with the published names."""
        p, sources = self.parts, self.tiles + self.cores
        length = p.splitter_length_m + p.shifter_length_m + p.coupler_length_m + p.detector_width_m
        width = p.splitter_length_m + max(p.shifter_width_m, p.coupler_width_m, 2.0 * p.detector_length_m)
        node_m2 = (length + p.node_length_margin_m) * (width + p.node_width_margin_m)
        branch_m2 = p.splitter_length_m * p.splitter_width_m
        levels = math.ceil(math.log2(self.size) + 1)
        tree_m2 = branch_m2 * (1 + 2 * self.size * levels)
        rings = 4 * self.size**2 * self.tiles * self.cores
        buffers = p.global_buffer_area_m2 * self.tiles / p.global_buffer_tiles
        buffers += p.local_buffer_area_m2 * (self.tiles + 1)
        return {
            "laser": p.laser_area_m2 * sources,
            "micro_comb": p.comb_area_m2 * sources,
            "DAC": p.dac_area_m2 * self.modulators,
            "MZM": p.modulator_area_m2 * self.modulators + p.router_area_m2 * rings,
            "ADC": p.adc_area_m2 * self.readouts,
            "TIA": p.tia_area_m2 * self.readouts,
            "photonic_core": node_m2 * self.nodes + tree_m2 * self.tiles * self.cores,
            "adder": p.adder_area_m2 / p.adder_area_scaling * self.size**2 * self.tiles,
            "mem": buffers + p.small_buffer_area_m2 * self.small_buffers,
        }


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A transformer for inference."""

    name: str
    """Name as published."""
    depth: int
    """Blocks."""
    width: int
    """Elements of a token."""
    heads: int
    """Attention heads."""
    tokens: int
    """Tokens of a sequence."""
    classes: int
    """Outputs of the head."""
    patch: int
    """Side of an image patch, or 0 for text."""

    def __post_init__(self) -> None:
        check_range(self, "depth", "width", "heads", "tokens", "classes", low=1)
        check_range(self, "patch")


@dataclass(frozen=True, kw_only=True)
class Product:
    """A product of weights or heads with tokens: (m, k) x (k, n), done `repeats` times."""

    name: str
    """Name of the layer."""
    m: int
    """Rows."""
    k: int
    """Depth."""
    n: int
    """Columns."""
    heads: int = 1
    """Products in parallel, one for each head."""
    repeats: int = 1
    """Repetitions in the model."""
    weights: bool = True
    """Whether the first operand comes from memory."""

    @property
    def macs(self) -> int:
        """Multiply-accumulates in the model."""
        return self.repeats * self.heads * self.m * self.k * self.n


@dataclass(frozen=True, kw_only=True)
class LayerCost:
    """Energy and time."""

    energy_j: float
    """Energy."""
    time_s: float
    """Time."""

    def __add__(self, other: LayerCost) -> LayerCost:
        """Return the cost of both, one after the other."""
        return LayerCost(energy_j=self.energy_j + other.energy_j, time_s=self.time_s + other.time_s)


NOTHING = LayerCost(energy_j=0.0, time_s=0.0)
"""No cost."""


def load_workload(name: str, *, tokens: int | None = None) -> Workload:
    """Return a published workload.

    Parameters
    ----------
    name : str
        ``deit-t``, ``deit-s``, ``deit-b``, ``bert-b`` or ``bert-l``.
    tokens : int, optional
        Tokens of a sequence; as published by default.
    """
    found = published_table().build(Workload, name)
    if tokens is None:
        return found
    if found.patch and tokens != found.tokens:
        msg = f"'{name}' has {found.tokens} tokens, which its images give it; leave tokens out"
        raise ParameterError(msg)
    return dataclasses.replace(found, tokens=tokens)


def products(workload: Workload) -> tuple[Product, ...]:
    """Return the products of a model in order."""
    d, t, times = workload.width, workload.tokens, workload.depth
    head = d // workload.heads
    attention = Product(name="attn", m=t, k=head, n=t, heads=workload.heads, repeats=times, weights=False)
    found = [
        Product(name="qkv", m=3 * d, k=d, n=t, repeats=times),
        attention,
        dataclasses.replace(attention, k=t, n=head),
        Product(name="proj", m=d, k=d, n=t, repeats=times),
        Product(name="FFN1", m=4 * d, k=d, n=t, repeats=times),
        Product(name="FFN2", m=d, k=4 * d, n=t, repeats=times),
        Product(name="head", m=workload.classes, k=d, n=1),
    ]
    if workload.patch:
        found.insert(0, Product(name="embed", m=d, k=3 * workload.patch**2, n=DEIT_PATCHES))
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class _Tiles:
    """Tiling of a product over cores."""

    rows: int
    columns: int
    steps: int
    conversions: int
    sums: int

    @property
    def cycles(self) -> int:
        return self.rows * self.columns * self.steps


def _tiles(machine: LighteningTransformer, product: Product) -> _Tiles:
    steps = math.ceil(product.k / machine.size)
    summed = min(machine.accumulated_symbols, math.ceil(product.k / (machine.cores * machine.size)))
    samples = math.ceil(steps / summed)
    sums = math.ceil(samples / machine.cores)
    return _Tiles(
        rows=math.ceil(product.m / machine.size),
        columns=math.ceil(product.n / machine.size),
        steps=steps,
        conversions=product.m * product.n * (sums if machine.optimised else samples),
        sums=product.m * product.n * sums,
    )


def product_energy_j(machine: LighteningTransformer, product: Product) -> dict[str, float]:
    """Return the energy of one product, of all its heads, by part."""
    p, tiles = machine.parts, _tiles(machine, product)
    broadcast = machine.tiles if machine.optimised else 1
    first = product.m * product.k * tiles.columns
    second = tiles.rows * product.n * product.k / broadcast
    outputs = product.m * product.n
    symbols, per_symbol = first + second, machine.rate_hz
    samples = tiles.conversions
    element = machine.bits / BITS_PER_BYTE
    loads = max(machine.size * product.k * element / p.local_buffer_bytes, 1.0)
    loads = math.ceil(loads) if product.weights else loads
    results = outputs * (2.0 * loads - 1.0)
    operands = product.m * product.k + second
    reads = operands
    if not product.weights and Correction.ATTENTION_OPERANDS not in machine.corrections:
        # per two bytes, as the published constant is
        reads = operands * p.global_j_per_byte * 2.0 * JOULES_TO_MILLIJOULES
    weights = product.m * product.k if product.weights else 0
    parts = {
        "laser": machine.laser_w * tiles.cycles / per_symbol,
        "DAC": machine.dac_w * symbols / per_symbol,
        "MZM": machine.modulator_w * symbols / per_symbol,
        "Photodetector": 2.0 * p.detector_w * outputs * tiles.steps / per_symbol,
        "TIA": p.tia_w * samples / per_symbol,
        "ADC": machine.adc_w * samples / per_symbol,
        "adder": machine.adder_w * samples / per_symbol,
        "registers": element
        * (2.0 * p.register_j_per_byte * (symbols + tiles.sums) + p.network_j_per_byte * samples),
        "local buffers": element * p.local_j_per_byte * (symbols + operands + results),
        "global buffer": element * p.global_j_per_byte * (results + reads + weights),
        "memory": element * p.dram_j_per_byte * weights,
    }
    return {part: product.heads * energy for part, energy in parts.items()}


def product_time_s(machine: LighteningTransformer, product: Product) -> float:
    """Return the time of one product of all its heads: light, or transfers if they take longer."""
    p, tiles = machine.parts, _tiles(machine, product)
    cores = machine.tiles * machine.cores
    light_s = math.ceil(tiles.cycles * product.heads / cores) / machine.rate_hz
    chunks = math.ceil(product.m / (machine.tiles * machine.size)) * product.heads
    strip_bits = machine.size * product.k * machine.bits
    memory_bps = p.dram_bytes_per_s * BITS_PER_BYTE / machine.tiles
    buffer_bits = (machine.size * product.k * machine.tiles + product.k * product.n) * machine.bits
    memory = math.ceil(strip_bits / memory_bps * p.memory_clock_hz)
    buffer = math.ceil(buffer_bits / _buffer_bps(machine) * p.memory_clock_hz)
    waits = [0]
    if product.weights:
        waits.append(memory)
    if not product.weights or Correction.BUFFER_TIME in machine.corrections:
        waits.append(buffer)
    return max(light_s, chunks * max(waits) / p.memory_clock_hz)


def _buffer_bps(machine: LighteningTransformer) -> float:
    """Return the bandwidth of the global buffer; the published rule takes 2^30 for the giga of 1/ns."""
    p = machine.parts
    giga = PUBLISHED_ACCESS_BLOCK / to_si("rate_hz", 1.0, "GHz")
    return p.buffer_access_bytes * BITS_PER_BYTE * giga / p.buffer_access_s


def other_cost(machine: LighteningTransformer, workload: Workload) -> LayerCost:
    """Return the cost of softmax, norms, residuals and activations."""
    p, corrections = machine.parts, machine.corrections
    blocks = workload.depth if Correction.OTHERS_EVERY_BLOCK in corrections else 1
    bits = machine.bits if Correction.OTHERS_BITS in corrections else PUBLISHED_OTHER_BITS
    t, d = workload.tokens, workload.width
    softmax, residual = blocks * t * t * workload.heads, blocks * 2 * t * d
    norm, activation = blocks * t * (d + 1), blocks * 4 * t * d
    elements, element = softmax + residual + norm + activation, bits / BITS_PER_BYTE
    operations = activation * p.activation_operations + norm * p.norm_operations + residual
    energy_j = operations * p.operation_j + softmax * element * p.softmax_w / p.softmax_bytes_per_s
    energy_j += 2.0 * elements * element * p.global_j_per_byte
    time_s = elements * bits / _buffer_bps(machine)
    if Correction.OTHERS_TIME not in corrections:
        time_s *= SECONDS_AS_MILLISECONDS
    return LayerCost(energy_j=energy_j, time_s=time_s)


def workload_cost(machine: LighteningTransformer, workload: Workload) -> dict[str, LayerCost]:
    """Return energy and time of a model by layer, with the published names and ``others`` at the end."""
    found: dict[str, LayerCost] = {}
    for product in products(workload):
        cost = LayerCost(
            energy_j=product.repeats * math.fsum(product_energy_j(machine, product).values()),
            time_s=product.repeats * product_time_s(machine, product),
        )
        found[product.name] = found.get(product.name, NOTHING) + cost
    return found | {"others": other_cost(machine, workload)}


def total_cost(machine: LighteningTransformer, workload: Workload) -> LayerCost:
    """Return energy and time of a model."""
    return sum(workload_cost(machine, workload).values(), start=NOTHING)


SHARED_FAULTS = (
    Correction.LIGHT_FROM_SNR,
    Correction.DAC_LAW,
    Correction.EFFECTIVE_BITS,
    Correction.OTHERS_EVERY_BLOCK,
    Correction.OTHERS_BITS,
    Correction.OTHERS_TIME,
)
"""Faults that the baselines share with Lightening-Transformer."""
LAYER_BEFORE_ATTENTION = "qkv"
"""Layer whose cost is still at hand when the authors' script reaches attention."""


class BaselineCorrection(StrEnum):
    """Corrections of the baselines' rules where they are wrong, or can be read otherwise.

    Each was found by reading the public simulator at 7c3d4ad and by running it.
    """

    LAST_LAYER_ONCE = "no layer counted twice in place of attention"
    """The mesh does no attention; the cost of the layer before it, qkv, is added once more in its place."""
    TWO_PHASES = "a converter and a word for each of two phases"
    """Area counts two DACs per interferometer; power, energy and the words that are moved count one."""
    HELD_PHASES = "heaters hold their phases"
    """The mesh's phases are held for nothing; heaters of our row take half a period each, on average."""
    MODULATORS_IN_AREA = "the total area has the input modulators"
    """The mesh's modulators are shown in the area of its photonic core and left out of the total."""
    RINGS_SET_ONCE = "linear layers set their rings once"
    """Setting a ring is charged for both passes of signed inputs, except in attention."""
    RINGS_SETTLE = "rings take the time of a heater to be set"
    """Another reading: rings of no settling time, though held by milliwatts; here our row's time."""
    ONE_PHOTODIODE = "one photodiode in energy, as in power"
    """Another reading: energy counts a balanced pair, power one of it."""


MESH_FAULTS = (
    BaselineCorrection.LAST_LAYER_ONCE,
    BaselineCorrection.TWO_PHASES,
    BaselineCorrection.HELD_PHASES,
    BaselineCorrection.MODULATORS_IN_AREA,
)
"""Corrections of faults of the mesh alone, which are wrong in every reading of the paper."""
BANK_FAULTS = (BaselineCorrection.RINGS_SET_ONCE,)
"""Corrections of faults of the ring bank alone, which are wrong in every reading of the paper."""
AnyCorrection = Correction | BaselineCorrection


@dataclass(frozen=True, kw_only=True)
class Baseline(ABC):
    """Ring bank or mesh: size, and the rules that both share."""

    attention: ClassVar[bool]
    """Whether products of two activations are done."""
    label: ClassVar[str]
    """Name shown in tables."""

    tiles: int
    """Tiles."""
    cores: int = 2
    """Cores per tile."""
    size: int = 12
    """Rows and columns of a core."""
    bits: int = 4
    """Bits of operands and results."""
    corrections: frozenset[AnyCorrection] = frozenset()
    """Corrections that are applied; the published mode has none."""
    parts: Constants = field(default_factory=lambda: published_table().constants("lightening_baselines"))
    """Constants of both baselines."""

    def __post_init__(self) -> None:
        check_range(self, "tiles", "cores", "size", "bits", low=1)

    @property
    def machine(self) -> LighteningTransformer:
        """Converters, detectors, buffers and memory, which are Lightening-Transformer's."""
        return LighteningTransformer(
            tiles=self.tiles,
            cores=self.cores,
            size=self.size,
            bits=self.bits,
            optimised=False,
            corrections=frozenset(one for one in self.corrections if isinstance(one, Correction)),
        )

    @property
    def laser_w(self) -> float:
        """Electrical power of a core's laser, divided over its inputs."""
        machine = self.machine
        light_w = machine.received_w * ratio_from_db(self.loss_db) * self.size
        return light_w / machine.parts.laser_efficiency

    @property
    def area_m2(self) -> float:
        """Area as totalled."""
        return math.fsum(self.area_parts_m2().values())

    @property
    @abstractmethod
    def loss_db(self) -> float:
        """Insertion loss from the laser to a detector, without the ideal division of power."""

    @property
    @abstractmethod
    def modulator_w(self) -> float:
        """Power of an input's modulator."""

    @abstractmethod
    def passes(self, product: Product, *, positive: bool) -> int:
        """Return the number of executions of a product, since light has no sign."""

    @abstractmethod
    def held_words(self, product: Product) -> float:
        """Return the values that are converted to hold an operand."""

    @abstractmethod
    def buffered_words(self, product: Product) -> float:
        """Return the values of weights that memory writes to the global buffer."""

    @abstractmethod
    def held_j(self, product: Product, *, passes: int, time_s: float) -> float:
        """Return the energy of setting and holding an operand of one head for a time."""

    @abstractmethod
    def loading_s(self, loads: int) -> float:
        """Return the time of a number of loads, one after the other."""

    @abstractmethod
    def area_parts_m2(self) -> dict[str, float]:
        """Return the area by part, with the published names."""


@dataclass(frozen=True, kw_only=True)
class BaselineRingBank(Baseline):
    """Banks of microrings, broadcast and weight, as in the public simulator.

    Notes
    -----
    Rings weigh from -1 to 1, inputs are positive: signed ones take two passes, those of softmax one.

    References
    ----------
    H. Zhu et al., "Lightening-Transformer", HPCA 2024 (arXiv:2305.19533), and its public simulator
    (github.com/zhuhanqing/Lightening-Transformer at 7c3d4ad), core ``mrrbank``.
    """

    attention: ClassVar[bool] = True
    """Both operands of attention are set and streamed."""
    label: ClassVar[str] = "ring bank"
    """Name shown in tables."""
    tiles: int = 7
    """Tiles."""
    size: int = 12
    """Rows and wavelengths of a core."""

    @property
    def loss_db(self) -> float:
        """Insertion loss from the laser to a detector, without the ideal division of power."""
        p = self.parts
        rings = 2.0 * (p.passed_ring_loss_db * (self.size - 1) + p.ring_loss_db)
        return rings + self.machine.parts.splitter_loss_db * math.ceil(math.log2(self.size))

    @property
    def modulator_w(self) -> float:
        """Power of a ring that modulates an input."""
        return self.parts.ring_w + self.parts.ring_symbol_j * self.machine.rate_hz

    def passes(self, product: Product, *, positive: bool) -> int:
        """Return the number of executions of a product, since light has no sign."""
        return 1 if positive else 2

    def held_words(self, product: Product) -> float:
        """Return the values that are converted to hold an operand."""
        return product.m * product.k

    def buffered_words(self, product: Product) -> float:
        """Return the values of weights that memory writes to the global buffer."""
        return product.m * product.k

    def held_j(self, product: Product, *, passes: int, time_s: float) -> float:
        """Return the energy of setting and holding an operand of one head for a time."""
        once = BaselineCorrection.RINGS_SET_ONCE in self.corrections or not product.weights
        settings = product.m * product.k * (1 if once else passes)
        held_s = product.m * product.k * product.n * passes / self.machine.rate_hz
        return settings * self.parts.ring_symbol_j + held_s * self.parts.ring_w

    def loading_s(self, loads: int) -> float:
        """Return the time of a number of loads, one after the other."""
        if BaselineCorrection.RINGS_SETTLE not in self.corrections:
            return 0.0
        return loads * device_table().build(WeightRing, "weight_ring").settling_s

    def area_parts_m2(self) -> dict[str, float]:
        """Return the area by part, with the published names."""
        p, own, machine = self.machine.parts, self.parts, self.machine
        pitch_m, cores = own.ring_side_m + own.ring_margin_m, self.tiles * self.cores
        bank_m = self.size * pitch_m + p.detector_width_m + own.ring_margin_m
        bank_m2 = max(own.ring_side_m, 2.0 * p.detector_length_m) * bank_m * self.size
        inputs_m2 = self.size * pitch_m * own.ring_side_m
        return _shared_area_m2(machine) | {
            "micro_comb": p.comb_area_m2 * self.tiles,
            "DAC": p.dac_area_m2 * (self.size**2 + self.size) * cores,
            "photonic_core": (bank_m2 + inputs_m2 + _splitters_m2(machine)) * cores,
        }


@dataclass(frozen=True, kw_only=True)
class BaselineMesh(Baseline):
    """Meshes of interferometers that hold a matrix by its singular value decomposition, as simulated.

    Notes
    -----
    Products of two activations are left out: the authors' script does not map them.

    References
    ----------
    H. Zhu et al., "Lightening-Transformer", HPCA 2024 (arXiv:2305.19533), and its public simulator
    (github.com/zhuhanqing/Lightening-Transformer at 7c3d4ad), core ``mzi``.
    """

    attention: ClassVar[bool] = False
    """No attention."""
    label: ClassVar[str] = "mesh"
    """Name shown in tables."""
    tiles: int = 4
    """Tiles."""
    size: int = 12
    """Inputs and outputs of a core."""

    @property
    def rotations(self) -> int:
        """Interferometers of the two unitary meshes of a core."""
        return self.size * (self.size - 1)

    @property
    def settings(self) -> int:
        """Values that a load takes: of the interferometers, and of the attenuators between the meshes."""
        phases = 2 if BaselineCorrection.TWO_PHASES in self.corrections else 1
        return phases * self.rotations + self.size

    @property
    def loss_db(self) -> float:
        """Insertion loss from the laser to a detector, without the ideal division of power."""
        passed = 2 * self.size + 1
        return self.machine.parts.modulator_loss_db + passed * self.parts.interferometer_loss_db

    @property
    def modulator_w(self) -> float:
        """Power of the modulator of an input."""
        return self.machine.parts.modulator_symbol_j * self.machine.rate_hz

    def passes(self, product: Product, *, positive: bool) -> int:
        """Return one: fields have a sign."""
        return 1

    def held_words(self, product: Product) -> float:
        """Return the values that are converted to hold an operand."""
        return loads_of(self.size, product) * self.settings

    def buffered_words(self, product: Product) -> float:
        """Return the values of weights that memory writes to the global buffer."""
        if BaselineCorrection.TWO_PHASES in self.corrections:
            return self.held_words(product)
        return product.m * product.k

    def held_j(self, product: Product, *, passes: int, time_s: float) -> float:
        """Return the energy of setting and holding an operand of one head for a time."""
        loads = loads_of(self.size, product)
        attenuators_j = self.size * self.machine.parts.modulator_symbol_j
        set_j = loads * (self.rotations * self.parts.interferometer_symbol_j + attenuators_j)
        if BaselineCorrection.HELD_PHASES not in self.corrections:
            return set_j
        half_wave_w = programmable_table().build(Heater, "heater").half_wave_w
        heaters = 2.0 * (self.rotations + self.size) * self.tiles * self.cores
        return set_j + heaters * half_wave_w * time_s

    def loading_s(self, loads: int) -> float:
        """Return the time of a number of loads, one after the other."""
        return loads * self.parts.interferometer_settling_s

    @property
    def area_m2(self) -> float:
        """Area as totalled."""
        whole = math.fsum(self.area_parts_m2().values())
        if BaselineCorrection.MODULATORS_IN_AREA in self.corrections:
            return whole
        inputs = self.size * self.tiles * self.cores
        return whole - inputs * self.machine.parts.modulator_area_m2

    def area_parts_m2(self) -> dict[str, float]:
        """Return the area by part, with the published names."""
        p, machine, cores = self.machine.parts, self.machine, self.tiles * self.cores
        mesh_m2 = self.rotations * self.parts.interferometer_area_m2
        modulators_m2 = 2.0 * self.size * p.modulator_area_m2
        detectors_m2 = self.size * p.detector_length_m * p.detector_width_m
        converters = 2 * self.rotations + 2 * self.size
        return _shared_area_m2(machine) | {
            "DAC": p.dac_area_m2 * converters * cores,
            "photonic_core": (mesh_m2 + modulators_m2 + detectors_m2 + _splitters_m2(machine)) * cores,
        }


def loads_of(size: int, product: Product) -> int:
    """Return the number of arrays that an operand of one head fills."""
    return math.ceil(product.m / size) * math.ceil(product.k / size)


def _splitters_m2(machine: LighteningTransformer) -> float:
    p, size = machine.parts, machine.size
    return p.splitter_length_m * math.ceil(math.log2(size) + 1) * p.splitter_width_m * size


def _shared_area_m2(machine: LighteningTransformer) -> dict[str, float]:
    p, cores = machine.parts, machine.tiles * machine.cores
    buffers = p.global_buffer_area_m2 * machine.tiles / p.global_buffer_tiles
    buffers += 2.0 * p.local_buffer_area_m2 * machine.tiles
    return {
        "laser": p.laser_area_m2 * machine.tiles,
        "ADC": p.adc_area_m2 * machine.size * cores,
        "TIA": p.tia_area_m2 * machine.size * cores,
        "adder": p.adder_area_m2 / p.adder_area_scaling * machine.size**2 * machine.tiles,
        "mem": buffers + 2.0 * p.small_buffer_area_m2 * (machine.tiles + cores),
    }


def baseline_energy_j(core: Baseline, product: Product, passes: int) -> dict[str, float]:
    """Return the energy of one product, of all its heads, by part; the first operand is held."""
    machine = core.machine
    p, rate_hz, size = machine.parts, machine.rate_hz, machine.size
    rows, steps = math.ceil(product.m / size), math.ceil(product.k / size)
    streamed = rows * product.n * product.k
    held, sent = core.held_words(product), streamed * passes
    results = product.m * product.n
    sums = results * steps / machine.cores * passes
    samples = results * steps * passes
    diodes = 1.0 if BaselineCorrection.ONE_PHOTODIODE in core.corrections else 2.0
    spilled = size * product.n * machine.bits / BITS_PER_BYTE > p.local_buffer_bytes
    local_results = 2.0 * sums - results if spilled else sums
    global_results = 2.0 * sums - results if spilled else results
    weights = core.buffered_words(product) if product.weights else 0.0
    element, one_head = machine.bits / BITS_PER_BYTE, dataclasses.replace(product, heads=1)
    parts = {
        "laser": core.laser_w * rows * steps * product.n * passes / rate_hz,
        "DAC": machine.dac_w * (held + sent) / rate_hz,
        "input modulators": core.modulator_w * sent / rate_hz,
        "held operand": core.held_j(product, passes=passes, time_s=baseline_time_s(core, one_head, passes)),
        "Photodetector": diodes * p.detector_w * samples / rate_hz,
        "TIA": p.tia_w * samples / rate_hz,
        "ADC": machine.adc_w * samples / rate_hz,
        "adder": machine.adder_w * samples / rate_hz,
        "registers": element
        * (2.0 * p.register_j_per_byte * (held + sent + sums) + p.network_j_per_byte * samples),
        "local buffers": element * p.local_j_per_byte * (2.0 * (held + sent) + local_results),
        "global buffer": element * p.global_j_per_byte * (held + sent + global_results + weights),
        "memory": element * p.dram_j_per_byte * (held if product.weights else 0.0),
    }
    return {part: product.heads * energy for part, energy in parts.items()}


def baseline_time_s(core: Baseline, product: Product, passes: int) -> float:
    """Return the time of one product of all its heads; memory is taken to keep up."""
    machine = core.machine
    cores, loads = machine.tiles * machine.cores, loads_of(machine.size, product) * product.heads
    light_s = math.ceil(loads * product.n / cores) * passes / machine.rate_hz
    return light_s + core.loading_s(math.ceil(loads / cores))


def baseline_workload_cost(core: Baseline, workload: Workload) -> dict[str, LayerCost]:
    """Return energy and time of a model by layer, with the published names and ``others`` at the end.

    Notes
    -----
    Scores times values is done with the values held, since softmax's output is positive.
    """
    found: dict[str, LayerCost] = {}
    for product in products(workload):
        positive = product.name in found and not product.weights
        if not product.weights and not core.attention:
            continue
        done = dataclasses.replace(product, m=product.n, n=product.m) if positive else product
        passes = core.passes(done, positive=positive)
        cost = LayerCost(
            energy_j=done.repeats * math.fsum(baseline_energy_j(core, done, passes).values()),
            time_s=done.repeats * baseline_time_s(core, done, passes),
        )
        found[product.name] = found.get(product.name, NOTHING) + cost
    return found | {"others": other_cost(core.machine, workload)}


def baseline_total_cost(core: Baseline, workload: Workload) -> LayerCost:
    """Return energy and time of a model; a mesh has the layer before attention in its place, once more."""
    costs = baseline_workload_cost(core, workload)
    total = sum(costs.values(), start=NOTHING)
    if core.attention or BaselineCorrection.LAST_LAYER_ONCE in core.corrections:
        return total
    return total + costs[LAYER_BEFORE_ATTENTION]


WORKLOAD = "deit-b"
"""Workload whose energy and time are shown."""
BITS = (4, 8)
"""Bits at which they are shown."""
TOGETHER = "all faults together"
"""Label of the last line."""


BASELINE_WORKLOAD = "deit-t"
"""Workload whose energy and time are shown."""
PUBLISHED = "as published"
"""Label of the first line."""
_BANK_ROWS = (*BANK_FAULTS, BaselineCorrection.RINGS_SETTLE, BaselineCorrection.ONE_PHOTODIODE)
_MESH_ROWS = (*MESH_FAULTS, BaselineCorrection.ONE_PHOTODIODE)
_MILLI = 1e3
"""Milliunits per unit."""
_MM2_PER_M2 = 1e6
"""Square millimetres per square metre."""


def effects(machine: LighteningTransformer, workload: Workload) -> list[dict[str, Any]]:
    """Return the relative change of power, energy and time by each correction, and by those of all faults.

    Notes
    -----
    Reading the sensitivity per wavelength is another reading, not a fault; it is no part of the last line.
    """
    sets: dict[str, Sequence[Correction]] = {one.value: (one,) for one in Correction}
    before = _figures(machine.corrected(), workload)
    found = []
    for label, corrections in (sets | {TOGETHER: FAULTS}).items():
        after = _figures(machine.corrected(*corrections), workload)
        changes = {name: after[name] / before[name] - 1.0 for name in before}
        found.append({"correction": label, "bits": machine.bits, **changes})
    return found


def _figures(machine: LighteningTransformer, workload: Workload) -> dict[str, float]:
    """Return the power of an accelerator, and energy and time of a workload."""
    cost = total_cost(machine, workload)
    power_w = math.fsum(machine.power_parts_w().values())
    return {"power": power_w, "energy": cost.energy_j, "time": cost.time_s}


def shown_effects() -> list[dict[str, Any]]:
    """Return the effects on LT-B at 4 and at 8 bits."""
    workload = load_workload(WORKLOAD)
    return [one for bits in BITS for one in effects(LighteningTransformer(bits=bits), workload)]


def corrections_text(shown: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of effects as text."""
    columns = [f"{what} {bits}b" for bits in BITS for what in ("power", "energy", "latency")]
    title = f"Lightening-Transformer LT-B put right, rule by rule (change of power, and of {WORKLOAD})"
    return _table(title, columns, shown, _changes)


def _changes(at_bits: Sequence[Mapping[str, Any]]) -> list[str]:
    changes = (one[name] for one in at_bits for name in ("power", "energy", "time"))
    return ["0" if change == 0.0 else f"{change:+.2%}" for change in changes]


def baseline_effects(core: BaselineRingBank | BaselineMesh, workload: Workload) -> list[dict[str, Any]]:
    """Return area and costs of a baseline: as published, with each correction, and with all faults corrected.

    Notes
    -----
    Other readings, `BaselineCorrection.RINGS_SETTLE` and `ONE_PHOTODIODE`, are not part of the last row.
    """
    own, faults = (_MESH_ROWS, MESH_FAULTS) if isinstance(core, BaselineMesh) else (_BANK_ROWS, BANK_FAULTS)
    alone: dict[str, Sequence[AnyCorrection]] = {one.value: (one,) for one in (*own, *SHARED_FAULTS)}
    sets = {PUBLISHED: (), **alone, TOGETHER: (*faults, *SHARED_FAULTS)}
    found = []
    for label, corrections in sets.items():
        right = dataclasses.replace(core, corrections=frozenset(corrections))
        takes = {"area_m2": right.area_m2, **vars(baseline_total_cost(right, workload))}
        found.append({"system": core.label, "correction": label, "bits": core.bits, **takes})
    return found


def shown_baseline_effects() -> list[dict[str, Any]]:
    """Return the effects on both baselines at 4 and at 8 bits."""
    workload = load_workload(BASELINE_WORKLOAD)
    cores = [kind(bits=bits) for kind in (BaselineRingBank, BaselineMesh) for bits in BITS]
    return [one for core in cores for one in baseline_effects(core, workload)]


def baselines_text(shown: Sequence[Mapping[str, Any]]) -> str:
    """Return the tables of effects as text, one for each baseline."""
    columns = ["area", *(f"{what} {bits}b" for bits in BITS for what in ("energy", "latency"))]
    return "\n".join(
        _table(
            f"Its baseline, the {system}, put right, rule by rule ({BASELINE_WORKLOAD})",
            columns,
            [one for one in shown if one["system"] == system],
            _taken,
        )
        for system in dict.fromkeys(one["system"] for one in shown)
    )


def _taken(at_bits: Sequence[Mapping[str, Any]]) -> list[str]:
    cells = [f"{at_bits[0]['area_m2'] * _MM2_PER_M2:.2f} mm2"]
    for effect in at_bits:
        cells += [f"{effect['energy_j'] * _MILLI:.4g} mJ", f"{effect['time_s'] * _MILLI:.4g} ms"]
    return cells


def _table(
    title: str,
    columns: Sequence[str],
    shown: Sequence[Mapping[str, Any]],
    cells: Callable[[Sequence[Mapping[str, Any]]], list[str]],
) -> str:
    """Return effects as a table: a line for each correction, with its cells at all bits."""
    lines: dict[str, list[Mapping[str, Any]]] = {}
    for effect in shown:
        lines.setdefault(effect["correction"], []).append(effect)
    rows = [
        ReportRow(label, tuple(cells(at_bits)), section=label == TOGETHER) for label, at_bits in lines.items()
    ]
    return table_text(title, columns, rows, dense=True)


SUPPLEMENTS = (
    Supplement(name="corrections", find=lambda _: shown_effects(), text=corrections_text),
    Supplement(name="baselines", find=lambda _: shown_baseline_effects(), text=baselines_text),
)
"""Tables of the effect of each correction, below the report of published accelerators."""
