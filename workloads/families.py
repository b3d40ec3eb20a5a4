"""The families of published models: which keys their config.json writes sizes under, and what each fixes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from workloads.architecture import Norm, Positions


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Which blocks of a family see a window of keys only, where ``layer_types`` does not say it."""

    every: int = 1
    """Of so many neighbouring blocks all but the last; 1 means every block."""
    every_keys: tuple[str, ...] = ()
    """Keys of a model that has another number."""
    default: int | None = None
    """Keys in a window where the file says nothing (null there means none); none: all keys are seen then."""
    switch: str = ""
    """Key without which, or with false, no block is windowed."""
    after: tuple[str, int] = ("", 0)
    """Key of how many first blocks see all keys, and how many without it; so the library runs Qwen2, whose
    documents say that these have the window (huggingface/transformers, issue 35896)."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """Which keys a model family writes its sizes under, and what it fixes; see `TransformerConfig`."""

    layers: tuple[str, ...] = ("num_hidden_layers",)
    hidden: tuple[str, ...] = ("hidden_size",)
    heads: tuple[str, ...] = ("num_attention_heads",)
    kv_heads: tuple[str, ...] = ()
    kv_heads_default: int | None = None
    head_dim_default: int | None = None
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
    windows: Windows | None = None
    activation: tuple[str, ...] = ("hidden_act",)
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
    activation=("activation_function",),
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
    activation=("activation_function",),
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
_LAST = Windows(switch="use_sliding_window", default=4096, after=("max_window_layers", 28))
_PHI_3 = replace(gated_family(qkv=_NO_BIAS, output=_NO_BIAS), windows=Windows())
_QWEN3 = replace(
    gated_family(qkv=("attention_bias", False), output=("attention_bias", False)), qk_norm=True, windows=_LAST
)
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
    windows=Windows(every=2, default=128),
)
_GROK_1 = replace(
    gated_family(qkv=_NO_BIAS, output=_NO_BIAS, experts=("num_experts", "num_experts_per_tok")),
    post_norms=True,
    tied=True,
)
_GEMMA = replace(
    gated_family(qkv=("attention_bias", False), output=("attention_bias", False)),
    activation=("hidden_activation", "hidden_act"),
    tied=True,
    head_dim_default=256,
)
_GEMMA_2 = replace(_GEMMA, post_norms=True, windows=Windows(every=2, default=4096))
_GEMMA_3 = replace(
    _GEMMA_2,
    qk_norm=True,
    windows=Windows(every=6, every_keys=("sliding_window_pattern", "_sliding_window_pattern"), default=4096),
)
_FALCON = Family(
    layers=("num_hidden_layers", "n_layer"),
    heads=("num_attention_heads", "n_head"),
    kv_heads_default=1,
    ffn=("ffn_hidden_size",),
    ffn_default=True,
    sequence_default=2048,
    activation=("activation",),
    qkv_bias=("bias", False),
    output_bias=("bias", False),
    mlp_bias=("bias", False),
    tied=True,
    parallel=True,
    dropout=("hidden_dropout", 0.0),
    demands=(
        ("multi_query", True),
        ("parallel_attn", True),
        ("new_decoder_architecture", False),
        ("alibi", False),
    ),
)
FAMILIES: Mapping[str, Family] = {
    "llama": gated_family(qkv=("attention_bias", False), output=("attention_bias", False), mlp="mlp_bias"),
    "mistral": replace(_PHI_3, windows=Windows(default=4096)),
    "mixtral": replace(_PHI_3, experts=("num_local_experts", "num_experts_per_tok")),
    "phi3": _PHI_3,
    "gemma": _GEMMA,
    "gemma2": _GEMMA_2,
    "gemma3_text": _GEMMA_3,
    "falcon": _FALCON,
    "qwen2": replace(gated_family(qkv=("", True), output=_NO_BIAS), windows=_LAST),
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
NOT_DECODERS: Mapping[str, str] = {
    **dict.fromkeys(
        ("albert", "bert", "deberta-v2", "distilbert", "electra", "roberta", "xlm-roberta"), "encoder"
    ),
    **dict.fromkeys(("bart", "marian", "mt5", "pegasus", "t5", "whisper"), "encoder and decoder"),
    **dict.fromkeys(("mamba", "mamba2", "rwkv"), "recurrence"),
}
"""Other ``model_type`` values that are often met, and what they are made of."""
