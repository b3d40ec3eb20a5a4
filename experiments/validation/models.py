"""From a published row to the shape of its model; what the row leaves out is assumed and said."""

from __future__ import annotations

import re

from experiments.validation.cells import Record, SkipError
from experiments.validation.mixtures import mixture_of
from workloads.models.architecture import Norm, Positions, TransformerConfig

USUAL_VOCABULARY = 51200
"""Vocabulary where a row gives none: GPT-2's 50,257 tokens, padded (Megatron-LM's usual figure)."""
EXPERT_COLUMNS = ("experts", "num_experts", "n_experts")
"""Columns that may hold the number of experts of a block."""
VISIT_COLUMNS = ("experts_per_token", "top_k", "topk")
"""Columns that may hold how many experts a token visits."""
EXPERT_WIDTH_COLUMNS = ("expert_ffn_hidden", "moe_ffn_hidden", "ffn_hidden")
"""Columns that may hold the inner width of an expert."""
BILLION = 10**9
"""``params_B`` counts these."""

_MOE_NAMES = re.compile(
    r"mixtral|deepseek|grok|kimi|gpt[ _-]?oss|nemotron_3|_a\d+b\b|moe|switch|\d+x\d+b", re.I
)


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
    if _routed(record) and not any(record.text(name) for name in EXPERT_COLUMNS):
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


def _routed(record: Record) -> bool:
    return bool(_MOE_NAMES.search(record.text("model_name"))) or (record.whole("ep") or 1) > 1


def _gated(record: Record) -> bool:
    text = record.text("ffn_gated").lower()
    if text:
        return text in {"y", "yes", "true", "1"}
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

    Notes
    -----
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
