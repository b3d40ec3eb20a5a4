"""From a published row to its plan; what the row leaves out is assumed and said."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from experiments.validation.cells import Record, SkipError
from heliograph.errors import HeliographError
from workloads.parallelism import Attention, Parallelism, Precision, Recompute, Schedule

FLASH_SINCE = 2023
"""First year in which a training run is taken to use a fused attention kernel (FlashAttention is of 2022)."""

_FIELDS = frozenset(item.name for item in dataclasses.fields(Parallelism))
_ARXIV = re.compile(r"\b(\d{2})(0[1-9]|1[0-2])\.\d{4,5}\b")
_YEAR = re.compile(r"\b(20[12]\d)\b")
_OLD_CODE = re.compile(r"megatron-deepspeed|jean zay|bloom", re.I)
_OLD_DIES = re.compile(r"\b(v100|a100|a800)", re.I)


def plan_of(record: Record, ranks: int) -> Parallelism:
    """Return the plan of a row.

    Parameters
    ----------
    record : Record
        The row.
    ranks : int
        Accelerators of the row.

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
        micro_batch = 1
        record.assume("micro_batch 1")
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
        "recompute": _recompute(record),
        "zero": _zero(record),
        "grad_bytes": _grad_bytes(record),
        "precision": precision,
        "attention": attention,
    }
    values |= _interleaving(record, pp) | _causality(attention)
    return Parallelism(**_supported(values))


def _supported(values: dict[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(values) - _FIELDS)
    if unknown:
        msg = f"plans have no '{unknown[0]}' yet"
        raise SkipError(msg)
    return values


def _degree(record: Record, axis: str) -> int:
    value = record.whole(axis)
    if value is None:
        if axis in {"tp", "pp"}:
            msg = f"no {axis} is given"
            raise SkipError(msg)
        record.assume(f"{axis} 1")
        return 1
    return value


def _data_ranks(record: Record, ranks: int, model_ranks: int) -> int:
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
    given = record.needed("global_batch_sequences")
    if given % slots:
        rounded = max(1, round(given / slots)) * slots
        record.assume(f"global batch {rounded} instead of {given}, a multiple of dp x micro_batch ({slots})")
        return rounded
    return given


def _sequence_parallel(record: Record, tp: int) -> bool:
    text = record.text("sequence_parallel").lower()
    if text:
        return text in {"y", "yes", "true", "1"} and tp > 1
    if tp > 1:
        record.assume("sequence parallel, as tp > 1")
    return tp > 1


def _recompute(record: Record) -> Recompute:
    text = record.text("recompute").lower()
    if not text:
        record.assume("no recomputation")
        return Recompute.NONE
    for kind in Recompute:
        if text.startswith(str(kind.value)):
            return kind
    msg = f"recompute '{text}' is not modelled"
    raise SkipError(msg)


def _zero(record: Record) -> int:
    text = record.text("zero_or_fsdp").lower()
    if not text:
        record.assume("zero 1 (distributed optimizer)")
        return 1
    bracketed = re.search(r"\((\d)\)", text)
    if bracketed:
        stage = int(bracketed[1])
    elif text.startswith("fsdp"):
        stage = 3
        record.assume(f"'{text}' is zero 3 over all data-parallel ranks")
    elif text[0].isdigit():
        stage = int(float(text.split()[0]))
    else:
        msg = f"zero_or_fsdp '{text}' is not understood"
        raise SkipError(msg)
    if stage > 1 and not _accepts(zero=stage):
        msg = f"zero {stage} (sharded gradients or parameters) is not modelled yet"
        raise SkipError(msg)
    return stage


def _accepts(**values: object) -> bool:
    """Return whether a plan of otherwise default values can hold some."""
    try:
        Parallelism(**values)  # type: ignore[arg-type]
    except HeliographError:
        return False
    return True


def _grad_bytes(record: Record) -> int:
    """Return the bytes of a gradient: fp16 runs sum in fp16, all others in fp32.

    Notes
    -----
    Megatron-LM's distributed optimizer documents fp16 parameters with fp16 gradients and bf16 parameters with
    fp32 gradients; Composer's FSDP reduces in the low precision under ``PURE``.
    """
    pure = "mixed_precision pure" in record.text("notes").lower()
    return 2 if pure or "fp16" in record.text("precision").lower() else 4


def _precision(record: Record) -> Precision:
    text = record.text("precision").lower()
    known = {str(member.value): member for member in Precision}
    if not text:
        record.assume("bf16")
        return Precision.BF16
    wanted = next((kind for kind in ("nvfp4", "fp8", "bf16", "fp16", "fp32", "tf32") if kind in text), text)
    if wanted in known:
        return known[wanted]
    if wanted == "fp16":
        return Precision.BF16  # the same bytes and the same rate
    msg = f"precision '{text}' is not modelled yet"
    raise SkipError(msg)


def _interleaving(record: Record, pp: int) -> dict[str, Any]:
    chunks = record.whole("vpp")
    if chunks is None and pp > 1:
        record.assume("vpp 1 (stages not interleaved)")
    if chunks is None or chunks == 1 or pp == 1:
        return {}
    if "vpp" not in _FIELDS:
        msg = f"vpp {chunks} (interleaved stages) is not modelled yet"
        raise SkipError(msg)
    found: dict[str, Any] = {"vpp": chunks}
    interleaved = next((kind for kind in Schedule if "interleaved" in kind.value), None)
    return found | ({"schedule": interleaved} if interleaved else {})


def attention_of(record: Record) -> Attention:
    """Return whether a row's attention ran in a fused kernel.

    Notes
    -----
    The row's own words first; else the code it ran (Megatron-DeepSpeed writes the scores), the year of the
    source, and the accelerator: what came after the A100 has had fused kernels from its start.
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
    arxiv = _ARXIV.search(words)
    if arxiv:
        return 2000 + int(arxiv[1])
    years = _YEAR.findall(words)
    return max(int(year) for year in years) if years else None


def _causality(attention: Attention) -> dict[str, Any]:
    """Return that a fused kernel skips the masked half, under whichever name plans have for it."""
    flag = attention is Attention.FLASH
    return {"causal_half" if "causal_half" in _FIELDS else "causal": flag}
