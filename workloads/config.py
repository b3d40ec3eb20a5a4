"""Reads the config.json files that published models come with, strictly and without their library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from heliograph.errors import WorkloadError, nearest
from workloads.architecture import Positions, TransformerConfig, divisors
from workloads.families import FAMILIES, Family
from workloads.retrieval import Retrieval

__all__ = ["FAMILIES", "TransformerConfig", "from_hugging_face", "load_model", "shipped_models"]

MODELS = Path(__file__).parent / "models"
"""Folder of the shipped models."""
LARGEST_FILE_BYTES = 2**20
"""A config.json above this is refused before it is parsed; a choice, some thousand times the usual size."""


class _Reader:
    """Typed look-ups in one config.json, with the file and the key in every complaint."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = values
        self.where = where

    def fail(self, key: str, rule: str) -> NoReturn:
        msg = f"{self.where}:{key} {rule}; got {self.values.get(key)!r}"
        raise WorkloadError(msg)

    def whole(self, keys: tuple[str, ...], default: int | None = None) -> int:
        present = [key for key in keys if self.values.get(key) is not None]
        if not present:
            if default is not None:
                return default
            if keys[0] in self.values:
                self.fail(keys[0], "must be a whole number of at least 1")
            hint = nearest(keys[0], (str(key) for key in self.values), noun="key")
            msg = f"{self.where} lacks '{keys[0]}'; {hint}"
            raise WorkloadError(msg)
        for key in present:
            value = self.values[key]
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                self.fail(key, "must be a whole number of at least 1")
            if value != self.values[present[0]]:
                self.fail(key, f"must equal '{present[0]}' ({self.values[present[0]]}); keep one of the two")
        return int(self.values[present[0]])

    def count(self, key: str) -> int:
        """Return a whole number that may be zero, or absent for zero."""
        value = self.values.get(key)
        return 0 if value == 0 and not isinstance(value, bool) else self.whole((key,), 0)

    def flag(self, key: str, default: bool) -> bool:
        value = self.values.get(key)
        if value is None or not key:
            return default
        if not isinstance(value, bool):
            self.fail(key, "must be true or false")
        return bool(value)

    def share(self, key: str, default: float) -> float:
        value = self.values.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            self.fail(key, "must be a number from 0 to below 1")
        return float(value)


def from_hugging_face(source: Path | str | Mapping[str, Any], *, name: str = "") -> TransformerConfig:
    """Return the shape of a model from its config.json.

    Parameters
    ----------
    source : path or mapping
        The file, or its contents.
    name : str
        Name to show; by default the file's, or that of its folder for a plain ``config.json``.

    Raises
    ------
    WorkloadError
        For a file that cannot be read, a family that is not known, or a value that is missing, of the wrong
        type or does not fit the others; the message says file and key.
    """
    if isinstance(source, Mapping):
        values, where = source, "config"
    else:
        path = Path(source)
        values, where = _read_json(path), path.name
        name = name or (path.resolve().parent.name if path.stem == "config" else path.stem)
    reader = _Reader(values, where)
    kind = values.get("model_type")
    if not isinstance(kind, str):
        msg = f"{where}:model_type must be text, one of {', '.join(sorted(FAMILIES))}; got {kind!r}"
        raise WorkloadError(msg)
    if kind not in FAMILIES:
        msg = f"{where}:model_type '{kind}' is not supported; supported: {', '.join(sorted(FAMILIES))}"
        raise WorkloadError(msg)
    return _build(reader, FAMILIES[kind], name or kind)


def _build(reader: _Reader, family: Family, name: str) -> TransformerConfig:
    for key, needed in family.demands:
        if reader.flag(key, needed) is not needed:
            reader.fail(key, f"must be {str(needed).lower()}; other block orders are not modelled")
    for key, only in family.fixed:
        if reader.values.get(key, only) != only:
            reader.fail(key, f"must be {only!r}: blocks without experts among the others are not modelled")
    hidden = reader.whole(family.hidden)
    heads = reader.whole(family.heads)
    if reader.values.get("head_dim") is None and hidden % heads:
        key = next(key for key in family.heads if reader.values.get(key) is not None)
        reader.fail(key, f"must divide {family.hidden[0]} ({hidden}); try {divisors(hidden)}")
    if reader.whole(("word_embed_proj_dim",), hidden) != hidden:
        reader.fail(
            "word_embed_proj_dim", f"must equal the hidden size ({hidden}): projections are not modelled"
        )
    kv_heads = reader.whole(family.kv_heads, heads)
    if heads % kv_heads:
        reader.fail(family.kv_heads[0], f"must divide the heads ({heads}); try {divisors(heads)}")
    sequence = reader.whole(family.sequence, family.sequence_default)
    experts = reader.whole((family.experts[0],)) if family.experts else 1
    chosen = reader.whole((family.experts[1],)) if family.experts else 1
    if family.experts and chosen > experts:
        reader.fail(family.experts[1], f"must be at most {family.experts[0]} ({experts})")
    learned = family.positions is Positions.LEARNED
    config = TransformerConfig(
        name=name,
        layers=reader.whole(family.layers),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=reader.whole(("head_dim",), hidden // heads or 1),
        ffn_hidden=reader.whole(family.ffn, 4 * hidden if family.ffn_default else None),
        vocabulary=reader.whole(("vocab_size",)),
        max_sequence=sequence,
        gated=family.gated,
        tied_embeddings=reader.flag("tie_word_embeddings", family.tied),
        experts=experts,
        experts_per_token=chosen,
        norm=family.norm,
        positions=family.positions,
        position_rows=sequence + family.extra_positions if learned else 0,
        embedding_norm=family.embedding_norm,
        qkv_bias=reader.flag(*family.qkv_bias),
        output_bias=reader.flag(*family.output_bias),
        mlp_bias=reader.flag(*family.mlp_bias),
        dropout=family.dropout is not None and reader.share(*family.dropout) > 0,
        parallel=family.parallel,
        qk_norm=family.qk_norm,
        post_norms=family.post_norms,
        sinks=family.sinks,
        routing_bias=family.router_bias,
    )
    if family.windows:
        return _with_windows(reader, config)
    if family.retrieval:
        return _with_retrieval(reader, config)
    return _with_latents(reader, config) if family.latent else config


def _with_retrieval(reader: _Reader, config: TransformerConfig) -> TransformerConfig:
    """Return a model that attends to encoded neighbours (RETRO); keys of our own, for none are published."""
    retrieval = Retrieval(
        first=reader.whole(("retrieval_first_layer",)),
        every=reader.whole(("retrieval_every",)),
        chunk=reader.whole(("chunk_length",)),
        neighbours=reader.whole(("num_neighbors",)),
        length=reader.whole(("neighbor_length",)),
        layers=reader.whole(("encoder_layers",)),
        crossings=reader.whole(("encoder_cross_layers",)),
        hidden=reader.whole(("encoder_hidden_size",)),
        heads=reader.whole(("encoder_num_heads",)),
        head_dim=reader.whole(("encoder_head_dim",)),
        ffn_hidden=reader.whole(("encoder_intermediate_size",)),
    )
    return replace(config, retrieval=retrieval)


def _with_latents(reader: _Reader, config: TransformerConfig) -> TransformerConfig:
    """Return a model with DeepSeek-V3's latent attention, dense first blocks and shared experts.

    The blocks of its multi-token prediction are not counted, as in its published 671 billion parameters.
    """
    positions = reader.whole(("qk_rope_head_dim",))
    return replace(
        config,
        head_dim=reader.whole(("qk_nope_head_dim",)) + positions,
        kv_rank=reader.whole(("kv_lora_rank",)),
        query_rank=reader.whole(("q_lora_rank",)),
        rope_dim=positions,
        value_dim=reader.whole(("v_head_dim",)),
        dense_layers=reader.count("first_k_dense_replace"),
        dense_ffn_hidden=reader.whole(("intermediate_size",)),
        shared_experts=reader.count("n_shared_experts"),
        routing_bias=reader.values.get("topk_method") == "noaux_tc",
        routing_groups=reader.count("n_group") or 1,
        chosen_groups=reader.count("topk_group") or 1,
    )


def _with_windows(reader: _Reader, config: TransformerConfig) -> TransformerConfig:
    """Return a model whose blocks see a window of keys and all of them by turns (GPT-OSS).

    The first block of each pair has the window, as ``layer_types`` says or, without it, the family does.
    """
    kinds = ["sliding_attention", "full_attention"]
    expected = [kinds[layer % 2] for layer in range(config.layers)]
    if reader.values.get("layer_types", expected) != expected:
        reader.fail("layer_types", f"must alternate {kinds[0]} and {kinds[1]}; other orders are not modelled")
    return replace(config, window=reader.whole(("sliding_window",)), window_every=2)


def shipped_models() -> tuple[str, ...]:
    """Return the names of the models that come with the package."""
    return tuple(sorted(path.stem for path in MODELS.glob("*.json")))


def load_model(name_or_path: str | Path) -> TransformerConfig:
    """Return a shipped model by name, or any model by the path of its config.json.

    Parameters
    ----------
    name_or_path : str or pathlib.Path
        E.g. ``"llama-3-8b"`` or ``"models/mine/config.json"``. Text with a slash, or that ends in ``.json``,
        is a path.

    Raises
    ------
    WorkloadError
        If the name is unknown (with the nearest known one) or the file cannot be used.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or "\\" in text or text.endswith(".json"):
        return from_hugging_face(Path(text))
    if text not in shipped_models():
        hint = nearest(text, shipped_models(), noun="model")
        msg = f"no model '{text}'; {hint} (or give the path of a config.json)"
        raise WorkloadError(msg)
    return from_hugging_face(MODELS / f"{text}.json")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            msg = f"the key '{key}' stands twice; keep one"
            raise WorkloadError(msg)
        found[key] = value
    return found


def _no_constant(text: str) -> NoReturn:
    msg = f"{text} is not a number that a config may hold; write a finite one"
    raise WorkloadError(msg)


def _read_json(path: Path) -> Mapping[str, Any]:
    if path.is_dir():
        msg = f"{path} is a folder; give the config.json in it: {path / 'config.json'}"
        raise WorkloadError(msg)
    if not path.is_file():
        msg = f"no file {path}; check the path"
        raise WorkloadError(msg)
    if path.stat().st_size > LARGEST_FILE_BYTES:
        msg = (
            f"{path.name} has more than the {LARGEST_FILE_BYTES} bytes that a config may have; check the path"
        )
        raise WorkloadError(msg)
    try:
        data = path.read_bytes()
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        raise WorkloadError(msg) from error
    if not data.strip():
        msg = f"{path.name} is empty; it must hold a model's config.json"
        raise WorkloadError(msg)
    try:
        values = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except WorkloadError as error:
        msg = f"{path.name}: {error}"
        raise WorkloadError(msg) from None
    except UnicodeDecodeError:
        msg = f"{path.name} is not UTF-8 text; save it as UTF-8"
        raise WorkloadError(msg) from None
    except json.JSONDecodeError as error:
        msg = (
            f"{path.name}:{error.lineno}: not valid JSON ({error.msg}, column {error.colno}); is it cut off?"
        )
        raise WorkloadError(msg) from None
    except RecursionError:
        msg = f"{path.name} is nested too deeply for a config.json"
        raise WorkloadError(msg) from None
    except ValueError as error:
        msg = f"{path.name}: {error}"
        raise WorkloadError(msg) from None
    if not isinstance(values, dict):
        msg = f"{path.name} must hold one JSON object; got a {type(values).__name__}"
        raise WorkloadError(msg)
    return values
