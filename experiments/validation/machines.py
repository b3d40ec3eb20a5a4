"""Hardware of a published row: accelerator, scale-up domain and network card."""

from __future__ import annotations

import dataclasses
import math
import re
from types import MappingProxyType
from typing import Any

from electronic.devices import SCALE_UP, host_of, load_packet_switch, load_scale_up, load_transceiver
from electronic.fabrics.packets import RailFabric
from electronic.fabrics.torus import TorusFabric
from electronic.gpu import Gpu, gpu_names, load_gpu
from experiments.validation.plans import said_by_recipes
from experiments.validation.rows import Record, SkipError
from heliograph.systems import System
from simulator.results.metrics import default_economics
from simulator.topology.clos import load_direct_link
from simulator.topology.scale_up import Nic, ScaleUp, load_nic
from simulator.topology.torus import cube_sides, even_sides
from simulator.units import to_si

USUAL_NETWORK_GB_PER_S = {
    **{"v100": 12.5, "a100": 25.0, "a800": 25.0, "b300": 100.0, "gb300": 100.0},
    **{"gaudi2": 37.5, "gaudi3": 75.0, "trainium1": 6.25, "trainium2": 25.0},
}
"""Bandwidth of the card of each accelerator in the vendor's reference systems, GB/s, where it is not 50 (DGX,
HGX, NVL72; three ports of a Gaudi; an instance's 800 and 3,200 Gb/s shared by 16 Trainium)."""
OTHER_NAMES = MappingProxyType(
    {
        **dict.fromkeys(("tpu7x", "v7x", "ironwood"), "tpu v7"),
        **dict.fromkeys(("trillium", "v6e"), "tpu v6e"),
        **dict.fromkeys(("trn1", "trn1n", "trainium"), "trainium1"),
        "trn2": "trainium2",
        "rtx4090": "rtx 4090",
    }
)
"""Words for accelerators of the table that are not their names."""
NETWORKS = (
    (25.0, "connectx-6", "switch-200g", "dr4-200g"),
    (50.0, "connectx-7", "switch-400g", "dr4-400g"),
    (100.0, "connectx-8", "switch-800g", "dr8-800g"),
)
"""Generations of network: greatest bandwidth in GB/s, card, switch, module."""
OMNI_PATH_SHARE = 0.2
"""Share of Omni-Path's line rate that NCCL reaches: 42 Gb/s of algorithm bandwidth at best in all-reduces of
4 nodes of 8 A100, hence 82 Gb/s on a bus of 400 (bigscience, experiments/bandwidth, Jean Zay)."""
TORUS_LINKS = MappingProxyType(
    {"tpu-v4": "ici-v4", "tpu-v5e": "ici-v5e", "tpu-v5p": "ici-v5p", "tpu-v6e": "ici-v6e", "tpu-v7": "ici-v7"}
)
"""Links of accelerators that stand on a torus and have no nodes."""
FLAT = ("tpu-v5e", "tpu-v6e")
"""Those of them whose torus has two axes (Google Cloud TPU documentation: four links a chip)."""
VARIANTS = frozenset({"pcie", "nvl"})
"""Words of a name that make another accelerator of it: refused rather than taken for the usual one."""

_TORUS = re.compile(r"torus (?:(\d+) ?x ?)?(\d+) ?x ?(\d+)")
_OMNI_PATH = re.compile(r"omni-?path|jean zay", re.I)
_POWER = re.compile(r"\b(\d{3,4})\s?W\b")
_CAPACITY = re.compile(r"\b(\d{2,3})\s?GB\b")
_MEMORY_RATE = re.compile(r"\b(\d(?:\.\d+)?)\s?TB/s")


def accelerator_name(text: str, known: tuple[str, ...] | None = None) -> str:
    """Return the accelerator of the table that a published name means.

    Parameters
    ----------
    text : str
        Such as ``A100-80GB SXM (Jean Zay)`` or ``TPU v4``.
    known : tuple of str, optional
        Names to choose from; those of the table by default.

    Raises
    ------
    SkipError
        If no name's words all stand in the text, or the text names a variant that the table lacks.
    """
    plain = re.sub(r"gaudi[ -]?(?=\d)", "gaudi", text.lower())
    words = set(re.split(r"[^a-z0-9]+", plain))
    words |= {part for word in words for part in OTHER_NAMES.get(word, "").split()}
    names = gpu_names() if known is None else known
    fitting = [name for name in names if set(name.split("-")) <= words]
    if not fitting:
        msg = f"accelerator '{text}' is not in the table ({', '.join(names)})"
        raise SkipError(msg)
    best = max(fitting, key=lambda name: len(name.split("-")))
    missing = (words & VARIANTS) - set(best.split("-"))
    if missing:
        msg = f"accelerator '{text}': the table has '{best}', but not its {missing.pop()} variant"
        raise SkipError(msg)
    return best


def accelerator_of(record: Record) -> Gpu:
    """Return the accelerator of a row, with the power limit and memory that its own text states.

    Raises
    ------
    SkipError
        If the table has none of that name.
    """
    text = record.text("system")
    if not text:
        msg = "no system is given"
        raise SkipError(msg)
    gpu = load_gpu(accelerator_name(text))
    power = _POWER.search(text)
    if power and float(power[1]) != gpu.chip.tdp_w:
        gpu = dataclasses.replace(gpu, chip=dataclasses.replace(gpu.chip, tdp_w=float(power[1])))
        record.assume(f"power limit {power[1]} W, as the row says")
    memory = gpu.memory
    rate = _MEMORY_RATE.search(text) or _MEMORY_RATE.search(record.text("notes"))
    if rate:
        bandwidth = to_si("bandwidth_bytes_per_s", float(rate[1]), "TB/s")
        memory = dataclasses.replace(memory, bandwidth_bytes_per_s=bandwidth)
        record.assume(f"memory at {rate[1]} TB/s, as the row says")
    capacity = _CAPACITY.search(text)
    if capacity:
        capacity_bytes = to_si("capacity_bytes", float(capacity[1]), "GB")
        if capacity_bytes != memory.capacity_bytes:
            memory = dataclasses.replace(memory, capacity_bytes=capacity_bytes)
            if not rate:
                record.assume(f"memory of {capacity[1]} GB as fast as that of '{gpu.name}'")
    if memory is not gpu.memory:
        gpu = dataclasses.replace(gpu, memory=memory)
    return with_its_software(record, gpu)


def with_its_software(record: Record, gpu: Gpu) -> Gpu:
    """Return an accelerator with the kernels and the host's part of a row's software, as its recipes say."""
    said = said_by_recipes(record, "chip")
    if not said:
        return gpu
    record.assume(f"{', '.join(f'{key} {value}' for key, value in said.items())}, as its software has it")
    values: dict[str, Any] = {key: float(value) for key, value in said.items()}
    return dataclasses.replace(gpu, chip=dataclasses.replace(gpu.chip, **values))


def system_of(record: Record) -> System:
    """Return the cluster of a row.

    Raises
    ------
    SkipError
        If accelerator or count are not given or not known.
    ParameterError
        If the sizes do not fit each other.
    """
    gpu = accelerator_of(record)
    ranks = record.needed("n_accelerators")
    host = host_of(gpu.name, ranks)
    if gpu.name in TORUS_LINKS:
        fabric = torus_of(record, gpu.name, ranks)
        return System(name="published", gpu=gpu, fabric=fabric, economics=default_economics(), host=host)
    scale_up = _scale_up(record, gpu.name, ranks)
    card_gb_per_s = _card_gb_per_s(record, gpu.name, crosses=ranks > scale_up.size)
    _, card, switch, module = next((one for one in NETWORKS if card_gb_per_s <= one[0]), NETWORKS[-1])
    rate = to_si("bandwidth_bytes_per_s", card_gb_per_s, "GB/s")
    if _OMNI_PATH.search(record.text("system")) or _OMNI_PATH.search(record.text("notes")):
        record.assume(f"Omni-Path at {OMNI_PATH_SHARE:g} of its line rate, as NCCL was measured on it")
        rate *= OMNI_PATH_SHARE
    nic: Nic = dataclasses.replace(load_nic(card), bandwidth_bytes_per_s=rate)
    rails = RailFabric(
        endpoints=ranks,
        scale_up=scale_up,
        nic=nic,
        switch=load_packet_switch(switch),
        transceiver=load_transceiver(module),
    )
    return System(name="published", gpu=gpu, fabric=rails, economics=default_economics(), host=host)


def torus_of(record: Record, name: str, ranks: int) -> TorusFabric:
    """Return the torus of a row: the sides that its column ``torus`` or its notes give, else the most even.

    Raises
    ------
    SkipError
        If the sides do not make the accelerators.
    """
    said = _TORUS.search(f"torus {record.text('torus')}") or _TORUS.search(record.text("notes"))
    if said:
        sides = tuple(int(side) for side in said.groups("1"))
    else:
        sides = (1, *even_sides(ranks)) if name in FLAT else cube_sides(ranks)
    shape = " x ".join(str(side) for side in sides if side > 1)
    if not said:
        record.assume(f"a torus of {shape}")
    if math.prod(sides) != ranks:
        msg = f"a torus of {shape} has not {ranks} accelerators"
        raise SkipError(msg)
    tp = record.whole("tp")
    if (
        tp is not None and tp > 1 and tp != sides[2] and tp in sides[:2]
    ):  # neighbours in number stand along the last side
        sides = (*sides[: sides.index(tp)], *sides[sides.index(tp) + 1 :], tp)
        record.assume(f"tensor-parallel ranks along a side of {tp}")
    link = load_direct_link(TORUS_LINKS[name])
    return TorusFabric(endpoints=ranks, x=sides[0], y=sides[1], link=link)


def _scale_up(record: Record, gpu_name: str, ranks: int) -> ScaleUp:
    base = next((name for name in (gpu_name, gpu_name.split("-", maxsplit=1)[0]) if name in SCALE_UP), None)
    if base is None:
        record.assume("NVLink 4 inside a node")
    domain = load_scale_up(SCALE_UP[base] if base else "nvlink4")
    rate = record.number("intra_node_bw")
    if rate is None:
        record.assume(f"{domain.name} inside a node")
    else:
        bandwidth = to_si("bandwidth_bytes_per_s", rate, "GB/s")
        domain = dataclasses.replace(domain, bandwidth_bytes_per_s=bandwidth)
    size = record.whole("gpus_per_node")
    if size is None:
        size = domain.size
        record.assume(f"{size} accelerators in a node")
    if ranks <= size:
        return dataclasses.replace(domain, size=ranks)
    fitting = max(part for part in range(1, size + 1) if ranks % part == 0)
    if fitting != size:
        record.assume(f"domains of {fitting} accelerators, as {ranks} do not fill domains of {size}")
    return dataclasses.replace(domain, size=fitting)


def _card_gb_per_s(record: Record, gpu_name: str, *, crosses: bool) -> float:
    given = record.number("inter_node_bw_per_gpu")
    if given:
        return given
    usual = USUAL_NETWORK_GB_PER_S.get(gpu_name.split("-", maxsplit=1)[0], NETWORKS[1][0])
    if crosses:
        record.assume(f"network card of {usual:g} GB/s")
    return usual
