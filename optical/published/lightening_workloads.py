"""What a transformer costs on Lightening-Transformer by its published rules, and by those put right."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from optical.published.lightening_transformer import Correction, LighteningTransformer
from optical.published.parts import published_table
from simulator.checks import check_range
from simulator.errors import ParameterError
from simulator.units import BITS_PER_BYTE, to_si

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

    Raises
    ------
    ParameterError
        If there is none of this name.
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
    """How a product falls into cores."""

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
