"""Hardware, model and plan of a published training run; values that its row lacks are assumed and noted."""

from __future__ import annotations

import csv
import dataclasses
import math
import re
from functools import cache
from types import MappingProxyType
from typing import Any

from electronic.devices import (
    REFERENCE_SYSTEMS,
    host_of,
    load_packet_switch,
    load_scale_up,
    load_transceiver,
)
from electronic.fabrics.packets import RailFabric
from electronic.fabrics.torus import TorusFabric
from electronic.gpu import Gpu, gpu_names, load_gpu
from experiments.validation.rows import REFERENCE, Record, SkipError, simplified
from heliograph.systems import System
from heliograph.workload import keys_text
from simulator.results import default_economics
from simulator.topology.clos import load_direct_link
from simulator.topology.scale_up import Nic, ScaleUp, load_nic
from simulator.topology.torus import cube_sides, even_sides
from simulator.units import to_si
from workloads.models.architecture import Norm, Positions, TransformerConfig
from workloads.models.config import load_model, shipped_models
from workloads.plan.parts import Attention, ExpertExchange, GradientSum, Precision, Recompute
from workloads.plan.plan import Plan, parse_plan
from workloads.step.memory import fullest_stage, memory_by_kind

USUAL_NETWORK_GB_PER_S = {
    **{"v100": 12.5, "a100": 25.0, "a800": 25.0, "b300": 100.0, "gb300": 100.0},
    **{"gaudi2": 37.5, "gaudi3": 75.0, "trainium1": 6.25, "trainium2": 25.0},
}
"""Bandwidth of an accelerator's network card in the vendor's reference system, GB/s; 50 for those left out.
Sources: DGX, HGX, NVL72; three ports of a Gaudi; an instance's 800 and 3,200 Gb/s shared by 16 Trainium."""
OTHER_NAMES = MappingProxyType(
    {
        **dict.fromkeys(("tpu7x", "v7x", "ironwood"), "tpu v7"),
        **dict.fromkeys(("trillium", "v6e"), "tpu v6e"),
        **dict.fromkeys(("trn1", "trn1n", "trainium"), "trainium1"),
        "trn2": "trainium2",
        "rtx4090": "rtx 4090",
    }
)
"""Names of the table by other names of the same accelerator."""
NETWORKS = (
    (25.0, "connectx-6", "switch-200g", "dr4-200g"),
    (50.0, "connectx-7", "switch-400g", "dr4-400g"),
    (100.0, "connectx-8", "switch-800g", "dr8-800g"),
)
"""Generations of network: greatest bandwidth in GB/s, card, switch, module."""
OMNI_PATH_SHARE = 0.2
"""Share of Omni-Path's line rate that NCCL reaches: 42 Gb/s of algorithm bandwidth at best in all-reduces of
4 nodes of 8 A100, hence 82 Gb/s on a bus of 400 (bigscience, experiments/bandwidth, Jean Zay)."""
VARIANTS = frozenset({"pcie", "nvl"})
"""Words of a name that denote a variant of an accelerator; a variant that the table lacks is refused."""

_TORUS = re.compile(r"torus (?:(\d+) ?x ?)?(\d+) ?x ?(\d+)")
_OMNI_PATH = re.compile(r"omni-?path|jean zay", re.I)
_POWER = re.compile(r"\b(\d{3,4})\s?W\b")
_CAPACITY = re.compile(r"\b(\d{2,3})\s?GB\b")
_MEMORY_RATE = re.compile(r"\b(\d(?:\.\d+)?)\s?TB/s")


def accelerator_name(text: str, known: tuple[str, ...] | None = None) -> str:
    """Return the accelerator of the table that a published name denotes.

    Parameters
    ----------
    text : str
        Such as ``A100-80GB SXM (Jean Zay)`` or ``TPU v4``.
    known : tuple of str, optional
        Names to choose from; those of the table by default.

    Raises
    ------
    SkipError
        If the table has no accelerator of that name, or not that variant.
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
    """Return an accelerator with the efficiencies of a row's software, as its recipes state them."""
    stated = recipe_values(record, "chip")
    if not stated:
        return gpu
    record.assume(f"{', '.join(f'{key} {value}' for key, value in stated.items())}, as its software has it")
    values: dict[str, Any] = {key: float(value) for key, value in stated.items()}
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
    if REFERENCE_SYSTEMS[gpu.name].torus_link:
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
    stated = _TORUS.search(f"torus {record.text('torus')}") or _TORUS.search(record.text("notes"))
    if stated:
        sides = tuple(int(side) for side in stated.groups("1"))
    else:
        sides = (1, *even_sides(ranks)) if REFERENCE_SYSTEMS[name].flat_torus else cube_sides(ranks)
    shape = " x ".join(str(side) for side in sides if side > 1)
    if not stated:
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
    link = load_direct_link(REFERENCE_SYSTEMS[name].torus_link)
    return TorusFabric(endpoints=ranks, x=sides[0], y=sides[1], link=link)


def _scale_up(record: Record, gpu_name: str, ranks: int) -> ScaleUp:
    """Return the scale-up domain of a row's nodes, cut to a size that divides the ranks."""
    domain = load_scale_up(REFERENCE_SYSTEMS[gpu_name].scale_up)
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
    """Return the rate of an accelerator's network card; the usual one is noted if traffic crosses nodes."""
    given = record.number("inter_node_bw_per_gpu")
    if given:
        return given
    usual = USUAL_NETWORK_GB_PER_S.get(gpu_name.split("-", maxsplit=1)[0], NETWORKS[1][0])
    if crosses:
        record.assume(f"network card of {usual:g} GB/s")
    return usual


_REDUCED = re.compile(r"-(\d+)L$")
_ONCE = re.compile(r"once per node|deepep|hybridep", re.I)
_OVERLAPPED = re.compile(r"expert exchange\w* overlapped", re.I)
_ASYNC = re.compile(r"async[ -]?tp\b", re.I)
_BRACKETS = re.compile(r"\s*\(([^)]*)\)")
_PREDICTS_MORE = re.compile(r"w/ ?mtp|with mtp", re.I)


USUAL_VOCABULARY = 51200
"""Vocabulary where a row gives none: GPT-2's 50,257 tokens, padded (Megatron-LM's usual figure)."""
EXPERT_COLUMNS = ("experts", "num_experts", "n_experts")
"""Columns that may hold the number of experts of a block."""
VISIT_COLUMNS = ("experts_per_token", "top_k", "topk")
"""Columns that may hold the number of experts that a token visits."""
EXPERT_WIDTH_COLUMNS = ("expert_ffn_hidden", "moe_ffn_hidden", "ffn_hidden")
"""Columns that may hold the inner width of an expert."""
BILLION = 10**9
"""``params_B`` counts these."""
_MOE_NAMES = re.compile(
    r"mixtral|deepseek|grok|kimi|gpt[ _-]?oss|nemotron_3|_a\d+b\b|moe|switch|\d+x\d+b", re.I
)
RECIPES = REFERENCE / "recipes.csv"
"""Table of the sources' training recipes, with settings that their rows do not state."""
RECIPE_KEYS = ("source", "model_name", "system", "precision")
"""Columns of a row that a recipe is matched with."""
YES = frozenset({"y", "yes", "true", "1"})
"""Cells that say yes, in lower case."""
USUAL_NODE = 8
"""Accelerators of a node where a row shards within nodes and gives no number."""
FLASH_SINCE = 2023
"""First year in which a training run is taken to use a fused attention kernel and sequence parallelism
(FlashAttention and Korthikanti et al. are of 2022)."""
SQUEEZE = 1.5
"""Ratio of the memory that we count to that of the accelerator above which a run is taken to have recomputed.
Real runs need less than we count: some keep gradients and optimizer states in two bytes, or fp8 copies only
once. Runs that state that they recompute nothing reach 1.3."""
HYBRID_GROUP = 128
"""Ranks that share parameters where a row says "FSDP+DP", as the MaxText rows of DGX Cloud v25.03 state."""
HOST_MEMORY_BYTES = MappingProxyType(
    {"gb200": to_si("capacity_bytes", 240.0, "GB"), "gb300": to_si("capacity_bytes", 240.0, "GB")}
)
"""Memory of the host that an accelerator reaches over a coherent link and may offload activations to (NVIDIA
GB200 NVL72 datasheet: 17 TB of LPDDR5X for 72)."""
UNKNOWN_PRECISIONS = ("mxfp4", "int4", "tf32")
"""Precisions of published runs that plans do not have."""
NARROW_FIRST = (Precision.NVFP4, Precision.INT8, Precision.MXFP8, Precision.FP8)
"""Formats of operands, which a row may name beside that of all else."""
_ARXIV = re.compile(r"\b(\d{2})(0[1-9]|1[0-2])\.\d{4,5}\b")
_YEAR = re.compile(r"\b(20[12]\d)\b")
_OLD_CODE = re.compile(r"megatron-deepspeed|jean zay|bloom", re.I)
_OLD_DIES = re.compile(r"\b(v100|a100|a800)", re.I)


def mixture_of(record: Record, *, dropout: bool) -> TransformerConfig:
    """Return the model of a row of a mixture of experts that gives no experts.

    Parameters
    ----------
    record : Record
        The row. Its model's name must be that of a shipped one, apart from case, punctuation, text in
        brackets and a trailing size; width and blocks must agree too, if the row has them. ``-4L`` at the end
        of the name stands for the model with four blocks.
    dropout : bool
        Whether training dropped activations.

    Raises
    ------
    SkipError
        If no model of that name ships, or a size differs.
    """
    name = record.text("model_name")
    bare = _BRACKETS.sub("", name)
    reduced = _REDUCED.search(bare)
    wanted = simplified(_REDUCED.sub("", bare))
    size = f"{record.number('params_B') or 0:g}b"
    shipped = next(
        (one for one in shipped_models() if wanted in {simplified(one), simplified(one) + size}),
        None,
    )
    if shipped is None:
        msg = "a mixture of experts; the row does not give the experts, and no model of its name ships"
        raise SkipError(msg)
    model = load_model(shipped)
    record.assume(f"what the row lacks is as in the shipped model '{shipped}'")
    if model.predicted_tokens and not any(_PREDICTS_MORE.search(word) for word in _BRACKETS.findall(name)):
        model = dataclasses.replace(model, predicted_tokens=0)
        record.assume("no multi-token prediction")
    if reduced:
        model = _shortened(record, model, int(reduced[1]))
    for column, expected in (("hidden", model.hidden), ("layers", model.layers), ("heads", model.heads)):
        if record.whole(column) not in {None, expected}:
            msg = (
                f"{column} ({record.text(column)}) is not that of the shipped model '{shipped}' ({expected})"
            )
            raise SkipError(msg)
    return dataclasses.replace(model, dropout=dropout)


def drops_tokens(record: Record) -> bool:
    """Return whether a row's name says that tokens were dropped to equal loads."""
    return any("tokendrop" in word.lower() for word in _BRACKETS.findall(record.text("model_name")))


def exchange_of(record: Record, ep: int) -> dict[str, Any]:
    """Return the fields of a plan on the expert exchange that a row's notes state.

    Notes
    -----
    The notes, or a recipe, may name a dispatcher that sends a token to a node once (DeepEP, HybridEP), and
    may state that the expert exchange was overlapped. Otherwise every rank sends to every other, and waits.
    """
    notes = record.text("notes")
    if ep == 1:
        return {}
    values: dict[str, Any] = {}
    if _ONCE.search(notes):
        values["expert_exchange"] = ExpertExchange.ONCE_PER_NODE
    if _OVERLAPPED.search(notes):
        values["overlap_experts"] = True
    return values


def _shortened(record: Record, model: TransformerConfig, layers: int) -> TransformerConfig:
    """Return a model with fewer blocks; those without experts keep their share, at least one block."""
    dense = max(1, round(layers * model.dense_layers / model.layers)) if model.dense_layers else 0
    if dense:
        record.assume(
            f"{dense} of the {layers} blocks has no experts" if dense == 1 else f"{dense} dense blocks"
        )
    return dataclasses.replace(model, layers=layers, dense_layers=dense)


def model_of(record: Record, *, pp: int, dropout: bool) -> TransformerConfig:
    """Return the model of a row.

    Parameters
    ----------
    record : Record
        The row.
    pp : int
        Pipeline stages, by which a missing count of layers is rounded.
    dropout : bool
        Whether training dropped activations.

    Raises
    ------
    SkipError
        If the width or the kind of the experts is not given.
    WorkloadError
        If the sizes do not fit each other.
    """
    routed = _MOE_NAMES.search(record.text("model_name")) or (record.whole("ep") or 1) > 1
    if routed and not any(record.text(name) for name in EXPERT_COLUMNS):
        return mixture_of(record, dropout=dropout)
    hidden = record.needed("hidden")
    gated = _gated(record)
    experts, visits = _experts(record)
    heads = _heads(record, hidden)
    kv_heads = record.whole("kv_heads")
    if kv_heads is None:
        kv_heads = heads
        record.assume(f"kv_heads = heads = {heads}")
    ffn_hidden = _ffn_hidden(record, hidden, experts=experts, gated=gated)
    vocabulary = record.whole("vocab")
    if vocabulary is None:
        vocabulary = USUAL_VOCABULARY
        record.assume(f"vocabulary {vocabulary}")
    head_dim = record.whole("head_dim") or max(1, hidden // heads)
    sequence = record.needed("seq_len")
    block = 4 * hidden * hidden + (3 if gated else 2) * hidden * ffn_hidden
    layers = record.whole("layers") or _usual_layers(
        record, block=block, embedding=vocabulary * hidden, pp=pp
    )
    return TransformerConfig(
        name=record.text("model_name") or "model",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn_hidden=ffn_hidden,
        vocabulary=vocabulary,
        max_sequence=sequence,
        gated=gated,
        tied_embeddings=not gated,
        experts=experts,
        experts_per_token=visits,
        norm=Norm.RMS if gated else Norm.LAYER,
        positions=Positions.ROTARY if gated else Positions.LEARNED,
        position_rows=0 if gated else sequence,
        qkv_bias=not gated,
        output_bias=not gated,
        mlp_bias=not gated,
        dropout=dropout,
    )


def _gated(record: Record) -> bool:
    text = record.text("ffn_gated").lower()
    if text:
        return text in YES
    gated = not record.text("model_name").lower().startswith(("gpt", "megatron", "mt-nlg", "bloom", "opt"))
    record.assume(f"feed-forward part {'gated' if gated else 'not gated'}")
    return gated


def _experts(record: Record) -> tuple[int, int]:
    """Return experts per block and experts per token."""
    experts = next((found for name in EXPERT_COLUMNS if (found := record.whole(name))), None)
    visits = next((found for name in VISIT_COLUMNS if (found := record.whole(name))), None)
    experts = experts or 1
    if visits is None:
        visits = min(experts, 2)
        if experts > 1:
            record.assume(f"{visits} experts per token")
    return experts, visits


def _ffn_hidden(record: Record, hidden: int, *, experts: int, gated: bool) -> int:
    columns = EXPERT_WIDTH_COLUMNS if experts > 1 else ("ffn_hidden",)
    found = next((width for name in columns if (width := record.whole(name))), None)
    if found is not None:
        return found
    if gated:
        msg = "no ffn_hidden is given, and a gated feed-forward part has no usual width"
        raise SkipError(msg)
    record.assume(f"ffn_hidden = 4 x hidden = {4 * hidden}")
    return 4 * hidden


def _heads(record: Record, hidden: int) -> int:
    """Return the number of heads.

    It is never guessed: how a head's width sits on the tiles of a matrix unit moves published steps by up to
    42 % (BLOOM's search, hidden 13824 with 64 or 128 heads).
    """
    width = record.whole("head_dim")
    heads = record.whole("heads") or (hidden // width if width else None)
    if heads is None:
        msg = "no heads are given, and their width alone moves a step by tens of percent"
        raise SkipError(msg)
    return heads


def _usual_layers(record: Record, *, block: int, embedding: int, pp: int) -> int:
    """Return the layers that make the published number of parameters, a multiple of the stages."""
    billions = record.number("params_B")
    if billions is None:
        msg = "neither layers nor params_B is given"
        raise SkipError(msg)
    exact = (billions * BILLION - embedding) / block
    layers = max(1, round(exact / pp)) * pp
    record.assume(f"{layers} layers, from {billions:g} billion parameters and {pp} stages")
    return layers


@cache
def recipes() -> tuple[dict[str, str], ...]:
    """Return the table of recipes, the general ones of a source first.

    The columns `RECIPE_KEYS` are regular expressions that a row's cells must begin with, empty for any. The
    columns ``plan``, ``chip`` and ``selective`` (of a plan that recomputes selectively) hold pairs
    ``key=value``, and ``citation`` their source.
    """
    with RECIPES.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def recipe_values(record: Record, column: str) -> dict[str, str]:
    """Return the pairs ``key=value`` of a row's recipes in one column; later, more special recipes win.

    Notes
    -----
    An expression must match up to a space or the end of the cell: ``v25.1`` does not match ``v25.11``.
    """
    pairs: dict[str, str] = {}
    for recipe in recipes():
        stated = (key for key in RECIPE_KEYS if recipe[key])
        if all(re.match(rf"(?:{recipe[key]})(?!\S)", record.text(key), re.I) for key in stated):
            pairs |= dict(pair.split("=") for pair in recipe[column].split())
    return pairs


def with_recipe(record: Record, plan: Plan) -> Plan:
    """Return a plan completed by the recipe of a row's source.

    Parameters
    ----------
    record : Record
        The row; its column ``tp_comm_overlap``, or "async TP" in its notes, comes before the recipe.
    plan : Plan
        Plan with the fields that the row itself states.
    """
    stated = recipe_values(record, "plan")
    given = record.text("tp_comm_overlap").lower() or ("y" if _ASYNC.search(record.text("notes")) else "")
    if given:
        stated["overlap_tensor"] = str(given in YES).lower()
    if plan.axes.tp == 1 or not plan.axes.sequence_parallel:  # no gathers and scatters to cut into shards
        stated.pop("overlap_tensor", None)
    if not plan.sharding.shards_parameters:
        stated.pop("stored_shards", None)
    if not plan.sharding.shards_gradients:
        stated = {key: value for key, value in stated.items() if value != GradientSum.COPIED}
    if plan.axes.ep == 1:
        stated = {key: value for key, value in stated.items() if "expert" not in key}
    else:
        if (plan.axes.pp > 1 and plan.schedule.vpp == 1) or plan.sharding.zero > 1:  # nothing to run beside
            stated.pop("overlap_experts", None)
        if (
            plan.experts.expert_exchange is not ExpertExchange.ONCE_PER_NODE
            and "expert_exchange" not in stated
        ):
            record.assume("tokens sent to every expert's rank")
        if not plan.traffic.overlap_experts and stated.get("overlap_experts") != "true":
            record.assume("expert exchanges not overlapped")
    text = keys_text(stated)
    if text:
        record.assume(f"{text}, as the source's recipe has it")
    return parse_plan(text, base=plan)


def plan_of(record: Record, ranks: int) -> Plan:
    """Return the plan of a row.

    Raises
    ------
    SkipError
        If the row's plan is incomplete, or needs something that plans cannot say.
    WorkloadError
        If the plan contradicts itself.
    """
    tp, pp, cp, ep = (_degree(record, axis) for axis in ("tp", "pp", "cp", "ep"))
    dp = _data_ranks(record, ranks, tp * pp * cp)
    attention = attention_of(record)
    precision = _precision(record)
    micro_batch = record.whole("micro_batch")
    if micro_batch is None:
        micro_batch = _usual_micro_batch(record, pp=pp, dp=dp)
    values: dict[str, Any] = {
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "cp": cp,
        "ep": ep,
        "micro_batch": micro_batch,
        "global_batch": _global_batch(record, dp * micro_batch),
        "sequence_length": record.needed("seq_len"),
        "sequence_parallel": _sequence_parallel(record, tp),
        **_recompute(record),
        "grad_bytes": _grad_bytes(record),
        "precision": precision,
        "attention": attention,
    }
    if drops_tokens(record):
        values["capacity_factor"] = 1.0
        record.assume("capacity factor 1, padded (tokens dropped)")
    values |= exchange_of(record, ep)
    if ep > 1 and tp > 1 and dp * cp % ep:
        values["whole_experts"] = True
        record.assume(f"experts whole on tensor ranks, as ep {ep} does not divide dp x cp")
    values |= _sharding(record, dp * cp) | _interleaving(record, pp)
    if re.search(r"\beager\b", record.text("notes"), re.I):
        values["fused"] = False
        record.assume("a kernel for each element-wise operation, as the row says eager")
    if attention is Attention.FULL:
        values["grad_buckets"] = 1
        values["overlap_sends"] = False
        values["prefetch"] = False
        values["gradient_sum"] = GradientSum.ADDED
        record.assume("gradients summed after the last backward pass, as the code of that time did")
    return with_recipe(record, Plan.of(**values))


def _usual_micro_batch(record: Record, *, pp: int, dp: int) -> int:
    """Return the micro-batch of a row without one: the whole batch at once where a program runs it so.

    A program compiled as a whole for TPUs takes the batch of a step in one piece unless it has a pipeline
    (MaxText: ``per_device_batch_size``, with ``gradient_accumulation_steps`` 1).
    """
    if pp == 1 and re.search(r"\btpu\b", record.text("system"), re.I):
        whole = max(1, record.needed("global_batch_sequences") // dp)
        record.assume(f"micro_batch {whole}, the whole batch at once")
        return whole
    record.assume("micro_batch 1")
    return 1


def with_ends_counted(record: Record, plan: Plan, layers: int) -> Plan:
    """Return a plan whose stages count embedding and head as a block each, where the blocks alone do not fit.

    Notes
    -----
    The plan changes only if the number of blocks does not divide into the stages and with two more it does.
    So did the codes that ran BLOOM's 70 blocks on 12 stages and Llama 3.1's 126 on 8 stages of 8 chunks.
    """
    slots = plan.axes.pp * plan.schedule.vpp
    if plan.axes.pp == 1 or layers % slots == 0 or (layers + 2) % slots:
        return plan
    record.assume("embedding and head count as a block each when blocks are shared over stages")
    return plan.with_(embedding_as_layers=True)


def with_room(record: Record, config: TransformerConfig, plan: Plan, capacity_bytes: float) -> Plan:
    """Return a plan with the least recomputation that fits the memory, where a row does not state it.

    Parameters
    ----------
    record : Record
        The row.
    config, plan : TransformerConfig, Plan
        Model and plan, without recomputation if the row is silent.
    capacity_bytes : float
        Memory of one accelerator.
    """
    if "recompute" in recipe_values(record, "plan"):
        return plan
    if record.text("recompute") or record.cells.get("recompute", "").strip().lower() == "none":
        return plan
    kinds = [Recompute.NONE, Recompute.FULL]
    if plan.recompute.attention is Attention.FULL:
        kinds.insert(1, Recompute.SELECTIVE)
    for kind in kinds:
        tried = plan.with_(recompute=kind)
        stage = fullest_stage(config, tried)
        if sum(memory_by_kind(config, tried, stage).values()) <= SQUEEZE * capacity_bytes:
            break
    stated = "no recomputation" if kind is Recompute.NONE else f"{kind} recomputation, for less does not fit"
    record.assume(stated)
    return tried


def _degree(record: Record, axis: str) -> int:
    """Return the ranks of an axis; of context and experts 1 is assumed where the row has none."""
    value = record.whole(axis)
    if value is None:
        if axis in {"tp", "pp"}:
            msg = f"no {axis} is given"
            raise SkipError(msg)
        record.assume(f"{axis} 1")
        return 1
    return value


def _data_ranks(record: Record, ranks: int, model_ranks: int) -> int:
    """Return the data-parallel ranks: all ranks over those of a model's copy (`model_ranks`)."""
    if ranks % model_ranks:
        msg = f"tp x pp x cp = {model_ranks} does not divide {ranks} accelerators"
        raise SkipError(msg)
    dp = ranks // model_ranks
    given = record.whole("dp")
    if given is None:
        record.assume(f"dp {dp}")
    elif given != dp:
        record.assume(f"dp {dp}, for tp x pp x cp x dp must be {ranks} (the row says {given})")
    return dp


def _global_batch(record: Record, slots: int) -> int:
    """Return the sequences of a batch, rounded to a multiple of those that are run at once (`slots`)."""
    given = record.needed("global_batch_sequences")
    if given % slots:
        rounded = max(1, round(given / slots)) * slots
        record.assume(f"global batch {rounded} instead of {given}, a multiple of dp x micro_batch ({slots})")
        return rounded
    return given


def _sequence_parallel(record: Record, tp: int) -> bool:
    """Return whether tensor-parallel ranks share the sequence between products; assumed from 2023 on."""
    text = record.text("sequence_parallel").lower()
    if text:
        return text in YES and tp > 1
    if tp == 1:
        return False
    words = f"{record.text('source')} {record.text('notes')}"
    year = _year(words)
    if _OLD_CODE.search(words) or (year is not None and year < FLASH_SINCE):
        record.assume("not sequence parallel, as its code is older")
        return False
    record.assume("sequence parallel, as tp > 1")
    return True


def _recompute(record: Record) -> dict[str, Any]:
    """Return the plan's values on recomputation."""
    text = record.text("recompute").lower()
    if not text:
        return {"recompute": Recompute.NONE}  # or as much as the memory needs: `with_room`
    share = recipe_values(record, "selective").get("recompute_share")
    if share and text.startswith(str(Recompute.SELECTIVE)):
        record.assume(f"{share} of the blocks recomputed, for as much of the products by the source's recipe")
        return {"recompute": Recompute.FULL, "recompute_share": float(share)}
    for kind in Recompute:
        if text.startswith(str(kind.value)):
            return {"recompute": kind}
    msg = f"recompute '{text}' is not modelled"
    raise SkipError(msg)


def _sharding(record: Record, ranks: int) -> dict[str, Any]:
    """Return the stage of ZeRO and whether parameters are given up between the passes.

    FSDP's "shard grad op" keeps the parameters from the forward to the backward pass, but not from step to
    step: stage 3 that does not reshard (PyTorch, `ShardingStrategy.SHARD_GRAD_OP`).
    """
    text = record.text("zero_or_fsdp").lower()
    if not text:
        record.assume("zero 1 (distributed optimizer)")
        return {"zero": 1}
    if "grad_op" in text:
        return {"zero": 3, "reshard": False}
    if "fsdp+dp" in text and ranks > HYBRID_GROUP and ranks % HYBRID_GROUP == 0:
        record.assume(f"parameters shared by groups of {HYBRID_GROUP}, copies across")
        return {"zero": 3, "shard_group": HYBRID_GROUP}
    if text.startswith("hsdp"):
        group = record.whole("gpus_per_node") or USUAL_NODE
        record.assume(f"parameters shared by groups of {group}, copies across")
        return {"zero": 3, "shard_group": min(group, ranks)}
    stage = re.search(r"\((\d)\)", text) or re.match(r"(\d)(?:\.0)?(?!\d)", text)
    if stage:
        return {"zero": int(stage[1])}
    if text.startswith("fsdp"):
        record.assume(f"'{text}' is zero 3 over all data-parallel ranks")
        return {"zero": 3}
    msg = f"zero_or_fsdp '{text}' is not understood"
    raise SkipError(msg)


def _grad_bytes(record: Record) -> int:
    """Return the bytes of a gradient: fp16 runs sum in fp16, all others in fp32.

    Megatron-LM's distributed optimizer documents fp16 parameters with fp16 gradients and bf16 parameters with
    fp32 gradients; Composer's FSDP reduces in the low precision under ``PURE``.
    """
    pure = "mixed_precision pure" in record.text("notes").lower()
    return 2 if pure or "fp16" in record.text("precision").lower() else 4


def _precision(record: Record) -> Precision:
    text = re.sub(r"^fp8-mx\b", str(Precision.MXFP8), record.text("precision").lower())
    if not text:
        record.assume("bf16")
        return Precision.BF16
    known = [kind for kind in (*UNKNOWN_PRECISIONS, *NARROW_FIRST, *Precision) if str(kind) in text]
    if not known or not isinstance(known[0], Precision):
        msg = f"precision '{text}' is not modelled"
        raise SkipError(msg)
    return known[0]


def _interleaving(record: Record, pp: int) -> dict[str, Any]:
    chunks = record.whole("vpp")
    if chunks is None and pp > 1:
        record.assume("vpp 1 (stages not interleaved)")
    return {"vpp": chunks} if chunks and pp > 1 else {}


def attention_of(record: Record) -> Attention:
    """Return the kind of a row's attention: fused kernel, or scores written to memory.

    Notes
    -----
    The row's notes come first; then the code (Megatron-DeepSpeed writes the scores), the year of the source,
    and the accelerator: those after the A100 have had fused kernels from the beginning.
    """
    notes, source = record.text("notes"), record.text("source")
    if re.search(r"no flash", notes, re.I):
        return Attention.FULL
    if re.search(r"flash", notes, re.I):
        return Attention.FLASH
    words = f"{source} {notes}"
    if _OLD_CODE.search(words) or _OLD_CODE.search(record.text("system")):
        attention, why = Attention.FULL, "as its code wrote the scores to memory"
    elif year := _year(words):
        attention = Attention.FLASH if year >= FLASH_SINCE else Attention.FULL
        why = f"as the source is of {year}"
    else:
        old = bool(_OLD_DIES.search(record.text("system")))
        attention = Attention.FULL if old else Attention.FLASH
        why = "by the age of the accelerator"
    record.assume(f"attention {attention.value}, {why}")
    return attention


def _year(words: str) -> int | None:
    """Return the year of an arXiv number, else the latest year named; None if there is neither."""
    arxiv = _ARXIV.search(words)
    if arxiv:
        return 2000 + int(arxiv[1])
    years = _YEAR.findall(words)
    return max(int(year) for year in years) if years else None
