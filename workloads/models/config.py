"""Reader of the config.json files of published models, strict and without the library that wrote them.

The file ``families.json`` beside it lists the supported families (``model_type``): the keys under which each
writes its sizes, and the properties that all of its models have.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from simulator.errors import ParameterError, SuspectWarning, WorkloadError, is_number, nearest
from simulator.files import is_present, json_line, read_json, read_text
from workloads.models.architecture import (
    PUBLISHED,
    Activation,
    Norm,
    Positions,
    Recurrence,
    Retrieval,
    State,
    TransformerConfig,
    divisors_phrase,
)


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Rule by which blocks of a family see a window of keys only, for files without ``layer_types``."""

    every: int = 1
    """Default of `TransformerConfig.window_every`."""
    every_keys: tuple[str, ...] = ()
    """Names in the file of `TransformerConfig.window_every`."""
    default: int | None = None
    """Tokens in a window where the file does not name it; None: all tokens are seen. Null in a file: no
    window."""
    switch: str = ""
    """Name in the file of a flag without which no block is windowed; empty if there is none."""
    key: str = "sliding_window"
    """Name in the file of the tokens in a window."""
    after: tuple[str, int] = ("", 0)
    """Name in the file, and default, of `TransformerConfig.window_after`. The library runs Qwen2 so, though
    its documents say that the first blocks have the window (huggingface/transformers, issue 35896)."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """Names under which a family's files have the fields of `TransformerConfig`, and values that it fixes.

    A tuple of texts has names in a file, of which any may be used; a single text is a name. A tuple of a text
    and a value has a name and the default; with an empty name the value is fixed. Other values are fixed, but
    `tied` and those called default, which hold where the file has none. The last name of `experts` is that of
    the experts that a token visits, those before it are of all experts. `demands` and `fixed` are names with
    the only value that is modelled. `mixed` families have blocks of several kinds (`_with_shapes`): those of
    `recurrence` have its fields, in the place of attention or `beside` it; `by_kind` gives fields that only
    blocks of a kind have. `defaults` are values of files that lack them. `names` gives the usual name of each
    of the family's own; `translated` gives the values of a file usual names.
    """

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
    experts: tuple[str, ...] = ()
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
    parallel: tuple[str, bool] = ("", False)
    two_norms: tuple[str, bool] = ("", False)
    latent: bool = False
    qk_norm: tuple[str, bool] = ("", False)
    post_norms: bool = False
    clamped: bool = False
    sinks: bool = False
    dense_first: str = ""
    shared: tuple[str, int] = ("", 0)
    shared_width: str = ""
    router_bias: bool = False
    windows: Windows | None = None
    activation: tuple[str, ...] = ("hidden_act",)
    retrieval: bool = False
    output_gates: tuple[str, bool] = ("", False)
    head_gates: bool = False
    mixed: bool = False
    dense_ffn: tuple[str, ...] = ("intermediate_size",)
    recurrence: tuple[tuple[str, Any], ...] = ()
    beside: bool = False
    by_kind: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fixed: tuple[tuple[str, Any], ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    translated: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict


_TABLE: Mapping[str, Any] = read_json(Path(__file__).parent / "families.json")
"""Families by ``model_type``, and other values of it by why they are not supported."""


def _nested(family: str, *groups: str) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Return a function that gives a family's file usual names, those in nested `groups` included."""
    names: Mapping[str, str] = _TABLE["families"][family]["names"]

    def flat(values: Mapping[str, Any]) -> Mapping[str, Any]:
        nested = [values[group] for group in groups if isinstance(values.get(group), Mapping)]
        known = {key: value for level in (*nested, values) for key, value in level.items()}
        return known | {usual: known[name] for name, usual in names.items() if name in known}

    return flat


def _first_of_lists(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values of a file with lists of one value for each block, where all are equal, as values."""
    return {
        key: value[0]
        if isinstance(value, list) and value and all(one == value[0] for one in value)
        else value
        for key, value in values.items()
    }


def _falcon_keys(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values of a Falcon with its key heads: groups in the newer blocks, else one or all.

    The newer blocks have two norms unless the file says otherwise.
    """
    heads = values.get("num_attention_heads", values.get("n_head"))
    older = heads if values.get("multi_query") is False else 1
    new_blocks = values.get("new_decoder_architecture") is True
    return {
        **values,
        "num_key_value_heads": values.get("num_kv_heads", heads) if new_blocks else older,
        "two_norms": new_blocks and values.get("num_ln_in_parallel_attn") in (None, 2),
    }


def _mpt_keys(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values of an MPT under the usual names, with the inner width that its ratio gives."""
    flat = _nested("mpt", "attn_config")(values)
    width, ratio = flat.get("hidden_size"), flat.get("expansion_ratio", 4)
    whole = isinstance(width, int) and isinstance(ratio, int)
    return {**flat, "intermediate_size": width * ratio} if whole else flat


RECURRING, WINDOWED, CHUNKED, FULL = (
    "linear_attention",
    "sliding_attention",
    "chunked_attention",
    "full_attention",
)
"""Values of ``layer_types``; the chunks of keys of Llama 4 are taken as windows."""
DENSE, SPARSE, ALONE = "dense", "sparse", "none"
"""Values of ``mlp_layer_types``; the last is of blocks without a feed-forward part."""
HALVES = {"mlp": DENSE, "moe": SPARSE}
"""Values of ``layer_types`` of blocks that are a feed-forward part alone, with the kind of that."""
_USUAL = {
    **dict.fromkeys(("mamba", "mamba2", "linear", "conv", "hybrid", "M", 0), RECURRING),
    **dict.fromkeys(("attention", "*", 1), FULL),
    "-": "mlp",
    "E": "moe",
}
"""Usual names of kinds of blocks by those in older files."""


def _mixed_keys(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values of a file that lists the kinds of its blocks under the usual names.

    Widths that follow from others are added; sizes of experts that no block has are left out.
    """
    found = dict(values)
    nested = values.get("linear_attn_config")
    if isinstance(nested, Mapping):
        found |= {f"linear_{key}": value for key, value in nested.items()}
    lists = ("layer_types", "layers_block_type", "hybrid_override_pattern", "attn_type_list")
    listed = next((found[key] for key in lists if isinstance(found.get(key), list | str)), None)
    if listed:
        kinds = [_USUAL.get(kind, kind) if isinstance(kind, str | int) else kind for kind in listed]
        found["layer_types"] = kinds
        found.setdefault("num_hidden_layers", len(kinds))
        if "ssm_state_size" in found and "moe" not in kinds:  # Nemotron-H without experts
            found |= {
                "n_routed_experts": 1,
                "num_experts_per_tok": 1,
                "moe_shared_expert_intermediate_size": 0,
            }
            found["moe_intermediate_size"] = found.get("intermediate_size")
    if found.get("num_local_experts") == 0:
        found |= {"num_local_experts": 1, "num_experts_per_tok": 1, "shared_intermediate_size": 0}
        found["intermediate_size"] = values.get("shared_intermediate_size") or values.get("intermediate_size")
    if found.get("gating") == "per-head":
        found["gating"] = True
    return {**found, **_widths(found)}


def _widths(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return widths that a file leaves to be worked out, as far as it has what they follow from."""
    names = ("hidden_size", "mamba_expand", "expand", "mamba_d_ssm", "mamba_n_heads", "intermediate_size")
    known = (*names, "block_multiple_of")
    whole = {key: found[key] for key in known if isinstance(found.get(key), int) and found[key] > 0}
    hidden, inner = whole.get("hidden_size", 0), whole.get("intermediate_size", 0)
    width = hidden * whole.get("mamba_expand", whole.get("expand", 2))
    made = {"inner_width": width, "intermediate_size": inner or found.get("intermediate_size", width)}
    if found.get("mamba_dt_rank") == "auto":
        made["mamba_dt_rank"] = -(-hidden // 16)
    if found.get("mamba_d_head") == "auto" and whole.get("mamba_n_heads"):
        made["mamba_d_head"] = whole.get("mamba_d_ssm", width) // whole["mamba_n_heads"]
    if found.get("block_auto_adjust_ff_dim") and inner:
        multiple, factor = whole.get("block_multiple_of", 256), found.get("block_ffn_dim_multiplier", 1.0)
        adjusted = int((factor if is_number(factor) else 1.0) * int(2 * inner / 3))
        made["intermediate_size"] = -(-adjusted // multiple) * multiple
    return made if hidden else {}


_READERS: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
    "falcon": _falcon_keys,
    "mpt": _mpt_keys,
    "dbrx": _nested("dbrx", "attn_config", "ffn_config"),
    "lists": _first_of_lists,
    "mixed": _mixed_keys,
    "no query latent": lambda values: {"q_lora_rank": None, **values},
}
"""Functions that give the values of a file usual names, by their name in the table (`Family.translated`)."""


def _family(base: Family, entry: Mapping[str, Any]) -> Family:
    """Return a family like another but for the fields in its entry of the table."""
    kinds: dict[str, Callable[[Any], Any]] = {
        "norm": Norm,
        "positions": Positions,
        "demands": lambda value: tuple(value.items()),
        "fixed": lambda value: tuple(value.items()),
        "names": dict,
        "by_kind": dict,
        "defaults": dict,
        "recurrence": lambda value: tuple((key, _tupled(item)) for key, item in value.items()),
        "translated": _READERS.__getitem__,
        "windows": lambda value: Windows(**{key: _tupled(item) for key, item in value.items()}),
    }
    return replace(base, **{key: kinds.get(key, _tupled)(value) for key, value in entry.items()})


def _tupled(value: Any) -> Any:  # noqa: ANN401 - from JSON
    return tuple(value) if isinstance(value, list) else value


def _families(table: Mapping[str, Mapping[str, Any]]) -> dict[str, Family]:
    """Return the families of the table, in which each comes after the one that it is ``like``."""
    families: dict[str, Family] = {}
    for name, entry in table.items():
        own = {key: value for key, value in entry.items() if key != "like"}
        families[name] = _family(families.get(entry.get("like", ""), Family()), own)
    return {name: family for name, family in families.items() if not name.startswith("_")}


def _by_member(groups: Mapping[str, list[str]]) -> Mapping[str, str]:
    """Return the name of the group of each member."""
    return {member: name for name, members in groups.items() for member in members}


FAMILIES: Mapping[str, Family] = _families(_TABLE["families"])
"""Supported families by ``model_type``; entries of the table that begin with ``_`` are bases of others
only."""
NOT_DECODERS = _by_member(_TABLE["not_decoders"])
"""``model_type`` values of models that are no decoders, each with its kind."""
HYBRIDS = frozenset(_TABLE["hybrids"])
"""``model_type`` values of decoders with recurrent blocks that are not modelled."""
OTHER_BLOCKS = _by_member(_TABLE["other_blocks"])
"""``model_type`` values of decoders whose blocks differ from those of a supported one, each with how."""
FORMER = _by_member(_TABLE["former"])
"""Former ``model_type`` values of models, in files older than the library's own, each with the present
one."""
RECURRENT = ("mamba_", "ssm_", "linear_attn", "linear_key_head", "linear_num_key", "hybrid_override")
"""Beginnings of keys that only models with recurrent blocks have."""
SYNONYMS: Mapping[str, tuple[str, ...]] = {size: tuple(names) for size, names in _TABLE["synonyms"].items()}
"""Names that files have for each size; the first is the usual one."""
KEY_HEADS, HEAD_WIDTH, EXPERTS = (
    SYNONYMS[one] for one in ("number of key heads", "width of a head", "number of experts")
)
HEAD_DIM = ("head_dim", "attention_head_dim")
"""Names of the width of a head; the second is Nemotron-H's."""
LATENTS = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
"""Further keys that are read, and hence no misspelling of another."""

__all__ = [
    "FAMILIES",
    "TransformerConfig",
    "from_hugging_face",
    "known_models",
    "load_model",
    "register_model",
    "shipped_models",
]

MODELS = Path(__file__).parent / "configs"
"""Folder of the shipped models."""
_REGISTERED: dict[str, TransformerConfig] = {}
PREDICTED = ("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers")
"""Names of the number of further tokens that a model predicts."""
MLP_KINDS = "mlp_layer_types"
"""Key of the kind of each block's feed-forward part."""
LONGEST_SHOWN = 60
"""Characters of a wrong value that a message repeats."""


class _Reader:
    """Typed look-ups in one config.json; every error names the file, the line and the key."""

    def __init__(self, values: Mapping[str, Any], path: Path | None) -> None:
        self.values = values
        self.path = path
        self.where = path.name if path else "config"
        self.written: Mapping[str, str] = {}

    def translate(self, family: Family) -> None:
        """Give the values the usual names of a family; messages keep those of the file."""
        self.written = {usual: name for name, usual in family.names.items() if usual not in self.values}
        self.values = family.translated({**family.defaults, **self.values})

    def at(self, key: str) -> str:
        """Return file, line and key."""
        key = self.written.get(key, key)
        line = json_line(read_text(self.path), key) if self.path else 0
        return f"{self.where}:{line}:{key}" if line else f"{self.where}:{key}"

    def fail(self, key: str, rule: str) -> NoReturn:
        """Raise the error of a value that breaks a rule."""
        shown = repr(self.values.get(key))
        short = shown if len(shown) <= LONGEST_SHOWN else f"{shown[: LONGEST_SHOWN - 3]}..."
        msg = f"{self.at(key)} {rule}; got {short}"
        raise WorkloadError(msg)

    def first(self, keys: tuple[str, ...]) -> str:
        """Return the first of some keys that has a value; empty if none has."""
        return next((key for key in keys if self.values.get(key) is not None), "")

    def whole(self, keys: tuple[str, ...], default: int | None = None) -> int:
        """Return a positive whole number under any of some keys, or the default; an error without one."""
        present = [key for key in keys if self.values.get(key) is not None]
        if not present:
            if default is not None:
                return default
            if keys[0] in self.values:
                self.fail(keys[0], "must be a whole number of at least 1")
            name = self.written.get(keys[0], keys[0])
            msg = f"{self.where} lacks '{name}'; {self._way_out(keys[0])}"
            raise WorkloadError(msg)
        for key in present:
            value = self.values[key]
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                self.fail(key, "must be a whole number of at least 1")
            if value != self.values[present[0]]:
                self.fail(key, f"must equal '{present[0]}' ({self.values[present[0]]}); keep one of the two")
        return int(self.values[present[0]])

    def _way_out(self, missing: str) -> str:
        """Return the advice on a missing key: rename another of the same meaning, or add it."""
        meaning, names = next((entry for entry in SYNONYMS.items() if missing in entry[1]), ("", ()))
        same = next((name for name in names if name in self.values), None)
        if same:
            return f"rename '{same}' to it"
        read = {*LATENTS, *(name for group in SYNONYMS.values() for name in group)}
        near = difflib.get_close_matches(missing, {str(key) for key in self.values} - read, n=1, cutoff=0.75)
        if near:
            return f"did you mean '{near[0]}'?"
        return f"add the {meaning}" if meaning else "add it"

    def refuse_unread(self, names: tuple[str, ...], read: tuple[str, ...], value: int) -> None:
        """Raise an error for a size under a name that this family does not read, unless it is `value` anyway.

        Parameters
        ----------
        names : tuple of str
            Names of the size in all files.
        read : tuple of str
            Those that this family reads.
        value : int
            Size that is taken where the file has none of those.
        """
        if self.first(read):
            return
        for name in names:
            unread = self.values.get(name)
            if isinstance(unread, int) and not isinstance(unread, bool) and unread != value:
                instead = f"rename it '{read[0]}'" if read else f"its blocks have {value}"
                self.fail(name, f"is not read with model_type '{self.values['model_type']}': {instead}")

    def count(self, key: str, default: int = 0) -> int:
        """Return a whole number that may be zero, or the default where the key is absent or empty."""
        value = self.values.get(key)
        if not key:
            return default
        return 0 if value == 0 and not isinstance(value, bool) else self.whole((key,), default)

    def listed(self, key: str) -> list[int]:
        """Return a list of whole numbers, or an empty one where the key is absent."""
        value = self.values.get(key) or []
        if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
            self.fail(key, "must be a list of whole numbers")
        return list(value)

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false, or the default where the key is absent or empty."""
        value = self.values.get(key)
        if value is None or not key:
            return default
        if not isinstance(value, bool):
            self.fail(key, "must be true or false")
        return bool(value)

    def share(self, key: str, default: float) -> float:
        """Return a number from 0 to below 1, or the default where the key is absent."""
        value = self.values.get(key)
        if value is None:
            return default
        if not is_number(value) or not 0 <= value < 1:
            self.fail(key, "must be a number from 0 to below 1")
        return float(value)


def from_hugging_face(source: Path | str | Mapping[str, Any], *, name: str = "") -> TransformerConfig:
    """Read the shape of a model from its config.json.

    Parameters
    ----------
    source : path or mapping
        The file, or its contents.
    name : str
        Name to show; by default the file's, or that of its folder for a plain ``config.json``.

    Notes
    -----
    A tied head counts once, though files may store it twice (Falcon 7B: 6.92 billion parameters, 7.22 in its
    files). Not counted, as below 0.02 % of any published model: biases of the head, the gate of shared
    experts, norms of queries and keys beyond one head's. Llama 4's chunks of keys are taken as windows of as
    many. Modules that predict further tokens (`PREDICTED`) are trained along, but are not in
    `TransformerConfig.parameters`, as in the 671 billion of DeepSeek-V3. Keys without effect on the shape are
    ignored: published files have dozens of them (tokens, types of weights, versions), and new ones with every
    release. A warning names those that look like a misspelled key.

    Raises
    ------
    WorkloadError
        For a file that cannot be read, a family that is not known, or a value that is missing, of the wrong
        type or does not fit the others; the message says file and key.
    """
    if isinstance(source, Mapping):
        reader = _Reader(source, None)
    elif not isinstance(source, str | Path):
        msg = f"a model is the path of a config.json, or a mapping such as it holds; got {source!r:.60}"
        raise WorkloadError(msg)
    else:
        path = Path(source)
        reader = _Reader(_read(path), path)
        name = name or (path.resolve().parent.name if path.stem == "config" else path.stem)
    kind = reader.values.get("model_type")
    if not isinstance(kind, str):
        msg = f"{reader.at('model_type')} must name a family, e.g. {_likely(reader.values)}; got {kind!r:.60}"
        raise WorkloadError(msg)
    if kind not in FAMILIES:
        msg = f"{reader.at('model_type')} '{kind}' {_not_supported(kind, reader.values)}"
        raise WorkloadError(msg)
    family = FAMILIES[kind]
    in_file = reader.values
    reader.translate(family)
    config = _build(reader, family, name or kind)
    _warn_of_misspellings(in_file, reader)
    return config


SPELLED_ALIKE = 0.87
"""Likeness to a known key from which an unknown one counts as misspelled (`difflib`); a choice: none of the
keys of 109 published files does."""


def _warn_of_misspellings(in_file: Mapping[str, Any], reader: _Reader) -> None:
    """Warn of keys that no known file has and that are spelled like one that this file lacks."""
    known = _known_keys()
    for key in in_file:
        if key not in known:
            near = difflib.get_close_matches(str(key), known - {*in_file}, n=1, cutoff=SPELLED_ALIKE)
            if near:
                msg = f"{reader.at(key)} is not read; did you mean '{near[0]}'?"
                warnings.warn(msg, SuspectWarning, stacklevel=3)


@cache
def _known_keys() -> frozenset[str]:
    """Return the keys of the shipped models' files, and those that any family reads."""
    read = (name for family in FAMILIES.values() for name in _texts(family))
    shipped = (name for path in MODELS.glob("*.json") for name in read_json(path))
    return frozenset((*read, *shipped, *LATENTS, *PREDICTED, *_texts(tuple(SYNONYMS.values()))))


def _texts(value: object) -> Iterator[str]:
    """Yield the texts of a family, of its tuples and of the keys of its mappings."""
    match value:
        case str():
            yield value
        case Family():
            yield from _texts(tuple(getattr(value, item.name) for item in fields(value)))
        case tuple() | Mapping():
            for item in value:
                yield from _texts(item)


def _likely(values: Mapping[str, Any]) -> str:
    """Return the family that the architecture of a file without ``model_type`` points to, or examples."""
    named = values.get("architectures")
    text = str(named[0] if isinstance(named, list) and named else "").removesuffix("ForCausalLM").lower()
    return next((kind for kind in FAMILIES if kind.replace("_", "") == text), "llama or qwen3_moe")


def _not_supported(kind: str, values: Mapping[str, Any]) -> str:
    """Return the reason why a ``model_type`` is not supported, with a way out."""
    if kind in NOT_DECODERS:
        return f"is not a decoder ({NOT_DECODERS[kind]}); only decoders are modelled, e.g. gpt2 or llama"
    if kind in OTHER_BLOCKS:
        return f"{OTHER_BLOCKS[kind]}, which is not modelled; give its sizes as another model_type without"
    if kind in FORMER:
        return f"is called '{FORMER[kind]}' now; give a file with its keys and that model_type"
    if kind in HYBRIDS or any(str(key).startswith(RECURRENT) for key in values):
        return (
            "has blocks of a state space, a convolution or linear attention of a kind that is not modelled; "
            "those of nemotron_h, granitemoehybrid, qwen3_next, kimi_linear, minimax and lfm2 are"
        )
    text = values.get("text_config")
    inner = text.get("model_type") if isinstance(text, Mapping) else None
    if inner in FAMILIES:
        return f"reads more than text; save what stands under 'text_config' ({inner}) as a file and give that"
    return f"is not supported; {nearest(kind, FAMILIES, noun='model_type')}"


def _check_blocks(reader: _Reader, family: Family) -> None:
    """Raise an error for values of blocks that are not modelled."""
    for key, needed in family.demands:
        if reader.flag(key, needed) is not needed:
            reader.fail(key, f"must be {str(needed).lower()}; other blocks are not modelled")
    for key, only in family.fixed:
        if reader.values.get(key, only) != only:
            others = "other blocks" if family.mixed else "blocks without experts among the others"
            reader.fail(key, f"must be {only!r}: {others} are not modelled")


def _check_widths(reader: _Reader, family: Family, *, hidden: int, heads: int, kv_heads: int) -> None:
    """Raise an error for heads that do not divide the width, and for sizes that this family does not read."""
    given = reader.values.get("head_dim") is not None or family.head_dim_default or family.latent
    if not given and hidden % heads:
        width = reader.written.get(family.hidden[0], family.hidden[0])
        reader.fail(
            reader.first(family.heads), f"must divide {width} ({hidden}); try {divisors_phrase(hidden)}"
        )
    if reader.whole(("word_embed_proj_dim",), hidden) != hidden:
        reader.fail(
            "word_embed_proj_dim", f"must equal the hidden size ({hidden}): projections are not modelled"
        )
    if heads % kv_heads:
        reader.fail(family.kv_heads[0], f"must divide the heads ({heads}); try {divisors_phrase(heads)}")
    if not family.kv_heads_default:
        reader.refuse_unread(KEY_HEADS, family.kv_heads, kv_heads)
    if not family.experts:
        reader.refuse_unread(EXPERTS, (), 1)
    if not family.latent:
        reader.refuse_unread(HEAD_WIDTH, ("head_dim",), family.head_dim_default or hidden // heads or 1)
        reader.refuse_unread(LATENTS[:2], (), 0)


def _build(reader: _Reader, family: Family, name: str) -> TransformerConfig:
    """Return the shape of a model of a family."""
    _check_blocks(reader, family)
    hidden, heads = reader.whole(family.hidden), reader.whole(family.heads)
    kv_heads = reader.whole(family.kv_heads, family.kv_heads_default or heads)
    _check_widths(reader, family, hidden=hidden, heads=heads, kv_heads=kv_heads)
    sequence = reader.whole(family.sequence, family.sequence_default)
    experts = reader.whole(family.experts[:-1]) if family.experts else 1
    per_token = reader.whole(family.experts[-1:]) if family.experts else 1
    if family.experts and per_token > experts:
        reader.fail(family.experts[-1], f"must be at most {family.experts[0]} ({experts})")
    side_by_side = reader.flag(*family.parallel)
    head_dim = reader.whole(HEAD_DIM, family.head_dim_default or hidden // heads or 1)
    config = TransformerConfig(
        name=name,
        layers=reader.whole(family.layers),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn_hidden=reader.whole(family.ffn, 4 * hidden if family.ffn_default else None),
        vocabulary=reader.whole(("vocab_size",)),
        max_sequence=sequence,
        gated=family.gated,
        activation=_activation(reader, family),
        tied_embeddings=reader.flag("tie_word_embeddings", family.tied),
        experts=experts,
        experts_per_token=per_token,
        norm=family.norm,
        positions=family.positions,
        position_rows=sequence + family.extra_positions if family.positions is Positions.LEARNED else 0,
        embedding_norm=family.embedding_norm,
        qkv_bias=reader.flag(*family.qkv_bias),
        output_bias=reader.flag(*family.output_bias),
        mlp_bias=reader.flag(*family.mlp_bias),
        dropout=family.dropout is not None and reader.share(*family.dropout) > 0,
        parallel=side_by_side,
        two_norms=side_by_side and reader.flag(*family.two_norms),
        qk_norm=reader.flag(*family.qk_norm),
        post_norms=family.post_norms,
        output_gates=(1 if family.head_gates else head_dim) if reader.flag(*family.output_gates) else 0,
        value_dim=reader.count("v_head_dim") if family.mixed and not family.latent else 0,
        clamped=family.clamped,
        sinks=family.sinks,
        routing_bias=family.router_bias,
        predicted_tokens=reader.count(reader.first(PREDICTED)) if reader.flag("use_mtp", True) else 0,
    )
    if family.mixed:
        config = _with_latents(reader, config) if family.latent else config
        return _with_shapes(reader, _with_experts(reader, config, family), family)
    return _with_attention(reader, _with_experts(reader, config, family), family)


def _with_shapes(reader: _Reader, config: TransformerConfig, family: Family) -> TransformerConfig:
    """Return a model whose blocks are of several kinds, by attention or state and by feed-forward part."""
    kinds = reader.values.get("layer_types") or _by_rule(reader, config.layers)
    known = {RECURRING, WINDOWED, FULL, *HALVES} - (set() if family.recurrence else {RECURRING})
    if not isinstance(kinds, list) or any(kind not in known for kind in map(str, kinds)):
        reader.fail("layer_types", f"must list kinds of blocks of '{reader.values['model_type']}'")
    feeding = reader.values.get(MLP_KINDS) or _feeding(reader, kinds)
    if not isinstance(feeding, list) or any(kind not in {DENSE, SPARSE, ALONE} for kind in map(str, feeding)):
        reader.fail(MLP_KINDS, f"must list {DENSE} or {SPARSE} for each block")
    heads = reader.values.get("num_attention_heads_per_layer") or [config.heads] * config.layers
    if not isinstance(heads, list) or not len(kinds) == len(feeding) == len(heads) == config.layers:
        reader.fail("num_hidden_layers", "must be the length of every list of blocks")
    places = list(zip(kinds, feeding, heads, strict=True))
    distinct = list(dict.fromkeys(places))
    shapes = tuple(
        _shape(reader, replace(config, heads=own, predicted_tokens=0), family, kind, feeds)
        for kind, feeds, own in distinct
    )
    if len(shapes) == 1:
        return replace(shapes[0], predicted_tokens=config.predicted_tokens)
    if config.predicted_tokens and not any(shape.attends and shape.feeds for shape in shapes):
        shapes = (*shapes, replace(config, predicted_tokens=0))  # Nemotron 3: attention, then experts
    return replace(config, shapes=shapes, order=tuple(map(distinct.index, places)))


def _by_rule(reader: _Reader, layers: int) -> list[str]:
    """Return the kind of each block, where a file tells them by a period or by the places of some."""
    pattern = reader.listed("hybrid_layer_pattern")
    if pattern:
        return [WINDOWED if narrow else FULL for narrow in pattern]
    periods = {"sliding_window_pattern": WINDOWED, "global_attn_every_n_layers": WINDOWED}
    for key, others in (periods | {"full_attention_interval": RECURRING}).items():
        every = reader.count(key)
        if every:
            return [others if (place + 1) % every else FULL for place in range(layers)]
    attending = {*reader.listed("attn_layer_indices"), *reader.listed("full_attn_idxs")}
    attending |= {place - 1 for place in reader.listed("linear_full_attn_layers")}  # counted from 1
    every = reader.count("attn_layer_period")
    if every:
        attending = {*range(reader.count("attn_layer_offset"), layers, every)}
    return [FULL if place in attending else RECURRING for place in range(layers)]


def _feeding(reader: _Reader, kinds: list[str]) -> list[str]:
    """Return the kind of feed-forward part of each block, where a file does not list it."""
    if any(kind in HALVES for kind in kinds):
        return [HALVES.get(kind, ALONE) for kind in kinds]
    if isinstance(reader.values.get("moe_layer_freq"), list):
        return [SPARSE if routed else DENSE for routed in reader.listed("moe_layer_freq")]
    period, offset = reader.count("expert_layer_period") or 1, reader.count("expert_layer_offset")
    first = reader.count(reader.first(("first_k_dense_replace", "num_dense_layers")))
    return [SPARSE if place >= first and place % period == offset else DENSE for place in range(len(kinds))]


def _shape(
    reader: _Reader, shape: TransformerConfig, family: Family, kind: str, feeding: str
) -> TransformerConfig:
    """Return the model of one kind of block, from one with the sizes that all kinds share."""
    if feeding != SPARSE and shape.experts > 1:
        shape = shape.without_experts(reader.whole(family.dense_ffn))
    if kind == RECURRING:
        shape = replace(shape, recurrence=_recurrence(reader, shape, family), attends=family.beside)
    if kind == WINDOWED:
        rule = family.windows or Windows()
        shape = replace(shape, window=reader.whole((rule.key,), rule.default), window_every=1)
    own = {name: _value(reader, shape, spec) for name, spec in family.by_kind.get(kind, {}).items()}
    halves = {"attends": shape.attends and kind not in HALVES, "feeds": feeding != ALONE}
    return replace(shape, **halves | own)


def _recurrence(reader: _Reader, config: TransformerConfig, family: Family) -> Recurrence:
    """Return the recurrence of a family's blocks."""
    found = {name: _value(reader, config, spec) for name, spec in family.recurrence}
    try:
        return Recurrence(**found | {"kind": State(found["kind"])})
    except WorkloadError as error:
        msg = f"{reader.where}: {error}"
        raise WorkloadError(msg) from None


def _value(reader: _Reader, config: TransformerConfig, spec: Any) -> Any:  # noqa: ANN401 - from JSON
    """Return a value: names in a file, with a default behind them if there is one, or the value itself.

    A name with a dot before it is that of a field of the model.
    """
    if isinstance(spec, str) and spec.startswith("."):
        return getattr(config, spec[1:])
    if not isinstance(spec, tuple | list):
        return spec
    *names, last = spec
    if isinstance(last, str) and not last.startswith("."):
        return reader.whole((*names, last))
    default = _value(reader, config, last)
    if isinstance(default, bool):
        return reader.flag(reader.first(tuple(names)), default)
    return reader.whole(tuple(names), default)


def _with_attention(reader: _Reader, config: TransformerConfig, family: Family) -> TransformerConfig:
    """Return a model with the windows, retrieval or latent attention of its family."""
    config = _with_windows(reader, config, family.windows)
    if family.retrieval:
        return _with_retrieval(reader, config)
    return _with_latents(reader, config) if family.latent else config


def _with_retrieval(reader: _Reader, config: TransformerConfig) -> TransformerConfig:
    """Return a model that attends to encoded neighbours (RETRO); the keys are this project's own."""
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


def _with_experts(reader: _Reader, config: TransformerConfig, family: Family) -> TransformerConfig:
    """Return a mixture with its dense first blocks, shared experts and groups of experts."""
    shared = reader.count(*family.shared)
    if family.shared_width:
        shared, left = divmod(reader.count(family.shared_width), config.ffn_hidden)
        if left:
            reader.fail(family.shared_width, f"must be a multiple of an expert's width ({config.ffn_hidden})")
    dense = 0 if family.mixed else _dense_first(reader, family, config.layers)
    return replace(
        config,
        shared_experts=shared,
        expert_latent=reader.count("moe_latent_size") if family.mixed else 0,
        dense_layers=dense,
        dense_ffn_hidden=reader.whole(("intermediate_size",)) if dense else 0,
        routing_groups=(family.dense_first and reader.count("n_group")) or 1,
        chosen_groups=(family.dense_first and reader.count("topk_group")) or 1,
    )


def _dense_first(reader: _Reader, family: Family, layers: int) -> int:
    """Return how many first blocks have no experts, by a count of the file or its kinds of all blocks."""
    dense = reader.count(family.dense_first) if family.dense_first else 0
    kinds = reader.values.get(MLP_KINDS)
    if kinds is None or not family.experts:
        return dense
    first = kinds.index(SPARSE) if isinstance(kinds, list) and SPARSE in kinds else 0
    if kinds != [DENSE] * first + [SPARSE] * (layers - first):
        reader.fail(MLP_KINDS, f"must name {DENSE} for first blocks and {SPARSE} for the others of {layers}")
    if family.dense_first in reader.values and dense != first:
        reader.fail(family.dense_first, f"must equal the first '{DENSE}' blocks of '{MLP_KINDS}' ({first})")
    return first


def _with_latents(reader: _Reader, config: TransformerConfig) -> TransformerConfig:
    """Return a model with DeepSeek-V2's latent attention; without ``q_lora_rank`` queries have no latent."""
    positions = reader.whole(("qk_rope_head_dim",))
    return replace(
        config,
        head_dim=reader.whole(("qk_nope_head_dim",)) + positions,
        kv_rank=reader.whole(("kv_lora_rank",)),
        query_rank=0 if reader.values.get("q_lora_rank", 0) is None else reader.whole(("q_lora_rank",)),
        rope_dim=positions,
        value_dim=reader.whole(("v_head_dim",)),
        routing_bias=config.routing_bias or reader.values.get("topk_method") == "noaux_tc",
    )


def _activation(reader: _Reader, family: Family) -> Activation | None:
    """Return the feed-forward part's function, where the file names it."""
    key = reader.first(family.activation)
    if not key:
        return None
    name = reader.values[key]
    if not isinstance(name, str) or name not in PUBLISHED:
        reader.fail(key, f"must be one of {', '.join(PUBLISHED)}; other functions are not priced")
    return PUBLISHED[name]


def _with_windows(reader: _Reader, config: TransformerConfig, rule: Windows | None) -> TransformerConfig:
    """Return a model with its windowed blocks.

    They follow from ``layer_types``, or without it from the family's rule: every block (Mistral), all but one
    in a period (Gemma 2 and 3, GPT-OSS), those after the first ones (Qwen2).
    """
    listed = reader.values.get("layer_types")
    if rule is None:
        if reader.whole(("sliding_window",), config.max_sequence) < config.max_sequence:
            reader.fail("sliding_window", "must be absent: this model_type has no windows")
        if listed not in (None, [FULL] * config.layers):
            reader.fail("layer_types", "must be absent: this model_type has no windows")
        return config
    written = rule.key in reader.values
    window = reader.count(rule.key, 0 if written else rule.default or 0)
    if not window or (rule.switch and not reader.flag(rule.switch, False)):
        if listed not in (None, [FULL] * config.layers):
            reader.fail("layer_types", "must be absent where the model has no sliding_window")
        return config
    every = reader.whole(rule.every_keys, rule.every)
    after = min(reader.count(*rule.after), config.layers)
    if listed is not None:
        every, after = _listed_windows(reader, config.layers)
    if not every or after == config.layers:
        return config
    return replace(config, window=window, window_every=every, window_after=after)


def _listed_windows(reader: _Reader, layers: int) -> tuple[int, int]:
    """Return `TransformerConfig.window_every` and `window_after` from ``layer_types``.

    One block of each group sees all keys; where it is the first of its group, it counts as the last.
    """
    kinds = reader.values["layer_types"]
    known = {WINDOWED, CHUNKED, FULL}
    if not isinstance(kinds, list) or len(kinds) != layers or not set(map(str, kinds)) <= known:
        reader.fail("layer_types", f"must name {WINDOWED} or {FULL} for each of the {layers} blocks")
    windowed = [kind != FULL for kind in kinds]
    if not any(windowed):
        return 0, 0
    after = windowed.index(True)
    if all(windowed[after:]):
        return 1, after
    turned = windowed[::-1] if after == 1 and windowed[-1] else windowed
    every = turned.index(False) + 1
    if every == 1 or any(narrow == (place % every == every - 1) for place, narrow in enumerate(turned)):
        reader.fail("layer_types", f"must repeat {WINDOWED} and one {FULL}, or end with {WINDOWED} only")
    return every, 0


def shipped_models() -> tuple[str, ...]:
    """Return the names of the models that come with the package."""
    return tuple(sorted(path.stem for path in MODELS.glob("*.json")))


def known_models() -> tuple[str, ...]:
    """Return the names of the models that come with the package, and of registered ones."""
    return (*shipped_models(), *_REGISTERED)


def register_model(
    name: str, config: TransformerConfig | Mapping[str, Any] | Path | str
) -> TransformerConfig:
    """Make a model known by name.

    Parameters
    ----------
    name : str
        A name that no model has yet; neither a path nor with spaces.
    config : TransformerConfig, mapping, path or str
        The model's shape, or the contents or the path of its config.json.

    Returns
    -------
    TransformerConfig
        The model under its name.

    Raises
    ------
    WorkloadError
        If the name is taken or cannot be told from a path, or the configuration cannot be used.
    """
    if not isinstance(name, str) or not name or _is_path(name) or any(one.isspace() for one in name):
        msg = f"model: a name is text, has no spaces or slashes and does not end in .json; got {name!r}"
        raise WorkloadError(msg)
    if name in known_models():
        msg = f"model: the name '{name}' is taken; choose another"
        raise WorkloadError(msg)
    shape = config if isinstance(config, TransformerConfig) else from_hugging_face(config)
    known = _REGISTERED[name] = replace(shape, name=name)
    return known


def _is_path(text: str) -> bool:
    """Return whether text names a file rather than a model."""
    return "/" in text or "\\" in text or text.endswith(".json")


def load_model(name_or_path: str | Path) -> TransformerConfig:
    """Return a shipped or registered model by name, or any model by the path of its config.json.

    Parameters
    ----------
    name_or_path : str or pathlib.Path
        E.g. ``"llama-3-8b"`` or ``"models/mine/config.json"``. Text with a slash, or that ends in ``.json``,
        is a path; so is any other text that names no model, where there is such a file.

    Raises
    ------
    WorkloadError
        If the name is unknown (with the nearest known one) or the file cannot be used.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or _is_path(text):
        return from_hugging_face(Path(text))
    if text in _REGISTERED:
        return _REGISTERED[text]
    if text not in shipped_models():
        if is_present(Path(text)):
            return from_hugging_face(Path(text))
        hint = nearest(text, known_models(), noun="model")
        msg = f"no model '{text}'; {hint} (or give the path of a config.json)"
        raise WorkloadError(msg)
    return from_hugging_face(MODELS / f"{text}.json")


def _read(path: Path) -> Mapping[str, Any]:
    """Return the content of a config.json."""
    if path.is_dir():
        msg = f"{path} is a folder; give the config.json in it: {path / 'config.json'}"
        raise WorkloadError(msg)
    try:
        return read_json(path)
    except ParameterError as error:
        raise WorkloadError(str(error)) from None
