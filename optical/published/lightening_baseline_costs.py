"""What models cost on the baselines of Lightening-Transformer: energy by part and time, by their rules."""

from __future__ import annotations

import dataclasses
import math

from optical.published.lightening_baselines import Baseline, BaselineCorrection, loads_of
from optical.published.lightening_workloads import NOTHING, LayerCost, Product, Workload, other_cost, products
from simulator.units import BITS_PER_BYTE


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


LAYER_BEFORE_ATTENTION = "qkv"
"""Layer whose cost is still at hand when the authors' script reaches attention."""
