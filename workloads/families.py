"""The families of published models: which keys their config.json writes sizes under, and what each fixes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from workloads.architecture import Norm, Positions


@dataclass(frozen=True, kw_only=True)
class Family:
    """Which keys a model family writes its sizes under, and what it fixes; see `TransformerConfig`."""

    layers: tuple[str, ...] = ("num_hidden_layers",)
    hidden: tuple[str, ...] = ("hidden_size",)
    heads: tuple[str, ...] = ("num_attention_heads",)
    kv_heads: tuple[str, ...] = ()
    ffn: tuple[str, ...] = ("intermediate_size",)
    ffn_default: bool = False
    sequence: tuple[str, ...] = ("max_position_embeddings",)
    sequence_default: int | None = None
    experts: tuple[str, str] | None = None
    gated: bool = False
    norm: Norm = Norm.LAYER
    positions: Positions = Positions.ROTARY
    extra_positions: int = 0
    embedding_norm: bool = False
    qkv_bias: tuple[str, bool] = ("", True)
    output_bias: tuple[str, bool] = ("", True)
    mlp_bias: tuple[str, bool] = ("", True)
    tied: bool = False
    dropout: tuple[str, float] | None = None
    demands: tuple[tuple[str, bool], ...] = ()
    parallel: bool = False
    latent: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    sinks: bool = False
    router_bias: bool = False
    windows: bool = False
    retrieval: bool = False
    fixed: tuple[tuple[str, Any], ...] = ()


def gated_family(
    *, qkv: tuple[str, bool], output: tuple[str, bool], mlp: str = "", experts: tuple[str, str] | None = None
) -> Family:
    """Return a family of the kind of Llama: grouped queries, gated feed-forward parts, RMS norms."""
    return Family(
        kv_heads=("num_key_value_heads",),
        gated=True,
        norm=Norm.RMS,
        qkv_bias=qkv,
        output_bias=output,
        mlp_bias=(mlp, False),
        experts=experts,
    )


_GPT2 = Family(
    layers=("n_layer", "num_hidden_layers"),
    hidden=("n_embd", "hidden_size"),
    heads=("n_head", "num_attention_heads"),
    ffn=("n_inner",),
    ffn_default=True,
    sequence=("n_positions", "max_position_embeddings"),
    positions=Positions.LEARNED,
    tied=True,
    dropout=("resid_pdrop", 0.1),
)
_BLOOM = Family(
    layers=("n_layer", "num_hidden_layers"),
    hidden=("hidden_size", "n_embed"),
    heads=("n_head", "num_attention_heads"),
    ffn=(),
    ffn_default=True,
    sequence=("seq_length",),
    sequence_default=2048,
    positions=Positions.ALIBI,
    embedding_norm=True,
    tied=True,
    dropout=("hidden_dropout", 0.0),
)
_OPT = Family(
    ffn=("ffn_dim",),
    positions=Positions.LEARNED,
    extra_positions=2,
    qkv_bias=("enable_bias", True),
    output_bias=("enable_bias", True),
    mlp_bias=("enable_bias", True),
    tied=True,
    dropout=("dropout", 0.1),
    demands=(("do_layer_norm_before", True),),
)
_NEOX = Family(
    qkv_bias=("attention_bias", True),
    output_bias=("attention_bias", True),
    dropout=("hidden_dropout", 0.0),
)
_NO_BIAS = ("", False)
_PALM = Family(
    kv_heads=("num_key_value_heads",),
    gated=True,
    norm=Norm.SCALE,
    qkv_bias=_NO_BIAS,
    output_bias=_NO_BIAS,
    mlp_bias=_NO_BIAS,
    tied=True,
    parallel=True,
)
_RETRO = Family(
    norm=Norm.RMS,
    positions=Positions.RELATIVE,
    qkv_bias=_NO_BIAS,
    output_bias=_NO_BIAS,
    mlp_bias=_NO_BIAS,
    retrieval=True,
)
_DEEPSEEK_V3 = replace(
    gated_family(qkv=_NO_BIAS, output=_NO_BIAS, experts=("n_routed_experts", "num_experts_per_tok")),
    ffn=("moe_intermediate_size",),
    latent=True,
)
_QWEN3 = replace(gated_family(qkv=("attention_bias", False), output=("attention_bias", False)), qk_norm=True)
_QWEN3_MOE = replace(
    _QWEN3,
    ffn=("moe_intermediate_size",),
    experts=("num_experts", "num_experts_per_tok"),
    fixed=(("decoder_sparse_step", 1), ("mlp_only_layers", [])),
)
_GPT_OSS = replace(
    gated_family(
        qkv=("attention_bias", True),
        output=("attention_bias", True),
        experts=("num_local_experts", "num_experts_per_tok"),
    ),
    mlp_bias=("", True),
    sinks=True,
    router_bias=True,
    windows=True,
)
_GROK_1 = replace(
    gated_family(qkv=_NO_BIAS, output=_NO_BIAS, experts=("num_experts", "num_experts_per_tok")),
    post_norms=True,
    tied=True,
)
FAMILIES: Mapping[str, Family] = {
    "llama": gated_family(qkv=("attention_bias", False), output=("attention_bias", False), mlp="mlp_bias"),
    "mistral": gated_family(qkv=_NO_BIAS, output=_NO_BIAS),
    "mixtral": gated_family(
        qkv=_NO_BIAS, output=_NO_BIAS, experts=("num_local_experts", "num_experts_per_tok")
    ),
    "qwen2": gated_family(qkv=("", True), output=_NO_BIAS),
    "gpt2": _GPT2,
    "gpt_neox": _NEOX,
    "bloom": _BLOOM,
    "deepseek_v2": _DEEPSEEK_V3,
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3_MOE,
    "gpt_oss": _GPT_OSS,
    "grok-1": _GROK_1,
    "opt": _OPT,
    "palm": _PALM,
    "retro": _RETRO,
}
"""Supported ``model_type`` values."""
