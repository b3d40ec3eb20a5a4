"""Lightening-Transformer as its authors published it, so that our numbers can be told from theirs.

This is a compatibility mode: its constants are rows of ``parameters/published.csv``, its rules are restated
from the paper and its public simulator, and nothing of it feeds our own systems. What is wrong with the rules
is listed in `Correction` and can be switched, one by one.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from enum import StrEnum

from experiments.validation.peers.published import LighteningParts, published_table
from optical.devices import Photodetector, Tia, device_table
from optical.devices.limits import snr_from_bits
from simulator.checks import check_positive, check_range
from simulator.errors import ParameterError
from simulator.units import BITS_PER_BYTE, ELEMENTARY_CHARGE_C, ratio_from_db, to_si, watts_from_dbm

PUBLISHED_OTHER_BITS = 4
"""Bits of softmax, norms and activations, whatever the accelerator's."""
PUBLISHED_ACCESS_BLOCK = 2.0**30
"""Accesses per nanosecond of access time that the published buffer is given, per second, dimensionless."""
DEIT_PATCHES = 196
"""Patches of an image of 224 x 224; dimensionless."""
JOULES_TO_MILLIJOULES = 1000.0
"""The published attention multiplies by an energy in millijoules once too often; dimensionless."""
SECONDS_AS_MILLISECONDS = 0.001
"""By how much a time in seconds shrinks when it is added to milliseconds; dimensionless."""


class Correction(StrEnum):
    """Corrections of the published rules where they are wrong.

    Each was found by reading the public simulator beside its paper and by running it.
    """

    EVERY_WAVELENGTH = "sensitivity read per wavelength"
    """Another reading, not a fault: a detector's sensitivity is that of each wavelength, not of their sum."""
    LIGHT_FROM_SNR = "laser solved for its signal-to-noise ratio"
    """Light grows as 2^b from a fixed sensitivity, instead of with the shot and amplifier noise of b bits."""
    DAC_LAW = "DAC power as 2^b / (b + 1)"
    """The comment of the rule, and SimPhony, say b + 1; what runs says b."""
    EFFECTIVE_BITS = "ADC priced by effective bits"
    """An ADC of 6.49 effective bits counts as one of 8, and its energy as linear in bits."""
    ATTENTION_OPERANDS = "attention reads its operands"
    """The buffer's energy is multiplied in twice for attention, which leaves its reads out."""
    BUFFER_TIME = "linear layers wait for the buffer"
    """The time from global to local buffer is computed, then set to zero."""
    OTHERS_EVERY_BLOCK = "softmax, norms and activations in every block"
    """What is no product is counted for one block of the model."""
    OTHERS_BITS = "softmax, norms and activations at their bits"
    """What is no product always has 4 bits."""
    OTHERS_TIME = "seconds added as seconds"
    """The time of what is no product, in seconds, is added to milliseconds."""


def _parts() -> LighteningParts:
    return published_table().build(LighteningParts, "lightening_transformer")


FAULTS = tuple(one for one in Correction if one is not Correction.EVERY_WAVELENGTH)
"""What is wrong whatever the reading."""


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
    """What is put right; nothing is the published mode."""
    parts: LighteningParts = field(default_factory=_parts)
    """Constants."""

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
        As published, sensitivity x 2^bits. Put right, the least P with (R P)^2 = SNR (2 q R P + i_n^2) B
        and B half the rate, from our rows of detector and amplifier; intensity noise is left out.
        """
        if Correction.LIGHT_FROM_SNR not in self.corrections:
            return watts_from_dbm(self.parts.sensitivity_dbm) * 2.0**self.bits
        responsivity = device_table().build(Photodetector, "photodetector").responsivity_a_per_w
        noise = device_table().build(Tia, "tia").noise_a_per_sqrt_hz
        target = snr_from_bits(self.bits) * self.rate_hz / 2.0
        shot = ELEMENTARY_CHARGE_C * target
        return (shot + math.sqrt(shot**2 + target * noise**2)) / responsivity

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
    """Which layer."""
    m: int
    """Rows."""
    k: int
    """Depth."""
    n: int
    """Columns."""
    heads: int = 1
    """Products done side by side."""
    repeats: int = 1
    """How often the model does it."""
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
