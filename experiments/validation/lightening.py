"""Lightening-Transformer and its own baselines as published, number by number."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType

from experiments.validation.cells import Record, SkipError
from experiments.validation.photonic_claims import Claim
from optical.published.lightening_baseline_costs import baseline_total_cost, baseline_workload_cost
from optical.published.lightening_baselines import BaselineMesh, BaselineRingBank
from optical.published.lightening_transformer import LighteningTransformer
from optical.published.lightening_workloads import (
    LayerCost,
    load_workload,
    products,
    total_cost,
    workload_cost,
)

TILES = MappingProxyType({"B": 4, "L": 8})
"""Variant of Lightening-Transformer -> tiles."""
OWN_RULES = "Lightening-Transformer's own constants and rules"
"""What is assumed of every number here."""
BASELINES: Mapping[str, type[BaselineRingBank] | type[BaselineMesh]] = MappingProxyType(
    {"mrr": BaselineRingBank, "mzi": BaselineMesh}
)
"""How a baseline's name begins -> what it is."""
OPERATIONS_PER_MAC = 2
"""A multiplication and an addition."""


def part_of(parts: Mapping[str, float], name: str, system: str) -> float:
    """Return a part by its name, whatever its case, or the total.

    Raises
    ------
    SkipError
        If there is no such part.
    """
    if name == "total":
        return math.fsum(parts.values())
    lowered = {key.lower(): value for key, value in parts.items()}
    if name.lower() not in lowered:
        msg = f"'{system}' has no part '{name}'; it has {', '.join(parts)}"
        raise SkipError(msg)
    return lowered[name.lower()]


def lightening_parts(record: Record, claim: Claim, found: re.Match[str]) -> tuple[float, str]:
    """Return an area or a power of LT-B or LT-L by its own rules."""
    machine = LighteningTransformer(tiles=TILES[found[1].upper()], bits=int(found[2]))
    record.assume(OWN_RULES)
    kind, _, part = claim.metric.partition(" ")
    if kind == "area":
        return part_of(machine.area_parts_m2(), part, record.text("system")), claim.metric
    if kind == "power":
        return part_of(machine.power_parts_w(), part, record.text("system")), claim.metric
    msg = f"metric '{claim.metric}' is neither area nor power"
    raise SkipError(msg)


def _layer(costs: Mapping[str, LayerCost], metric: str, workload: str) -> float:
    layer, _sep, kind = metric.rpartition(" ")
    if layer not in costs:
        msg = f"'{layer}' is no layer of '{workload}' there; it has {', '.join(costs)}"
        raise SkipError(msg)
    return costs[layer].energy_j if kind == "energy" else costs[layer].time_s


def lightening_run(record: Record, claim: Claim, _: re.Match[str]) -> tuple[float, str]:
    """Return energy or time of a transformer, or of one kind of its layers, by LT's own rules.

    Notes
    -----
    The configuration reads ``deit-t_197_4bit dota_arch_opt_4t_2c``: model, tokens, bits, tiles, cores.
    Without ``arch_opt`` (``dota_crossbar``) converters and modulators are not shared; ``mrrbank_broadcast``
    and ``mzi_broadcast`` are the baselines.
    """
    text = f"{claim.config} {record.text('system')}"
    model = re.search(r"((?:deit|bert)-[tsbl])_(\d+)_(\d+)bit", text)
    chip = re.search(r"(dota_arch_opt|dota_crossbar|mrrbank_broadcast|mzi_broadcast)_(\d+)t_(\d+)c", text)
    if not model or not chip or not claim.metric.endswith((" energy", " latency")):
        return lightening_derived(record, claim)
    workload = load_workload(model[1], tokens=int(model[2]))
    tiles, cores, bits = int(chip[2]), int(chip[3]), int(model[3])
    record.assume(OWN_RULES)
    if chip[1].startswith("dota"):
        optimised = chip[1] == "dota_arch_opt"
        machine = LighteningTransformer(tiles=tiles, cores=cores, bits=bits, optimised=optimised)
        costs = workload_cost(machine, workload) | {"total": total_cost(machine, workload)}
    else:
        core = BASELINES[chip[1][:3]](tiles=tiles, cores=cores, bits=bits)
        costs = baseline_workload_cost(core, workload) | {"total": baseline_total_cost(core, workload)}
    return _layer(costs, claim.metric, workload.name), claim.metric


def lightening_derived(record: Record, claim: Claim) -> tuple[float, str]:
    """Return what a reader computes from the simulator's output: peak, efficiency, energy per MAC, README."""
    variant = re.search(r"LT-([BL])", claim.config)
    if not variant:
        msg = "a number of Lightening-Transformer that its simulator does not print"
        raise SkipError(msg)
    bits = re.search(r"(\d)b\b", claim.config)
    machine = LighteningTransformer(tiles=TILES[variant[1]], bits=int(bits[1]) if bits else 4)
    operations_per_s = OPERATIONS_PER_MAC * machine.peak_macs_per_s
    record.assume(OWN_RULES)
    if claim.metric == "peak":
        return operations_per_s, claim.metric
    if claim.metric == "TOPS/W":
        return operations_per_s / math.fsum(machine.power_parts_w().values()), claim.metric
    if claim.metric == "README area total":
        hint = "its README has twice the TIA area that its code adds up"
        return math.fsum(machine.area_parts_m2().values()), hint
    model = re.fullmatch(r"energy per MAC (DeiT-[TSB])", claim.metric)
    if not model:
        msg = "a number of Lightening-Transformer that its simulator does not print"
        raise SkipError(msg)
    workload = load_workload(model[1].lower())
    macs = sum(one.macs for one in products(workload))
    return total_cost(machine, workload).energy_j / macs, claim.metric


def baseline_area(record: Record, claim: Claim, found: re.Match[str]) -> tuple[float, str]:
    """Return an area of a baseline by its own rules."""
    core = BASELINES[found[1].lower()](bits=int(found[2]))
    kind, _, part = claim.metric.partition(" ")
    if kind != "area":
        msg = "of the baselines the simulator prints no power, only areas, energies and times"
        raise SkipError(msg)
    record.assume(OWN_RULES)
    if part == "total":
        return core.area_m2, claim.metric
    return part_of(core.area_parts_m2(), part, record.text("system")), claim.metric
