"""How a training run is cut over accelerators: the plan's text form, and the names that plans need."""

from __future__ import annotations

import dataclasses
import typing

from simulator.errors import WorkloadError, nearest
from workloads.models.architecture import TransformerConfig
from workloads.pipeline.stages import stage_layers
from workloads.plan.choices import (
    Attention,
    ContextExchange,
    Exchange,
    Optimizer,
    Place,
    Precision,
    Recompute,
    Schedule,
    phrase,
)
from workloads.plan.plan import KINDS, Parallelism
from workloads.plan.rules import check

__all__ = [
    "Attention",
    "ContextExchange",
    "Exchange",
    "Optimizer",
    "Parallelism",
    "Place",
    "Precision",
    "Recompute",
    "Schedule",
    "check",
    "default_sequence_length",
    "parse_plan",
    "stage_layers",
]

DEFAULT_LONGEST_SEQUENCE = 8192
"""Sequence length beyond which no run goes unless it is asked to; a choice."""

_ALIASES = {
    "tensor": "tp",
    "pipeline": "pp",
    "data": "dp",
    "context": "cp",
    "expert": "ep",
    "sequence": "sequence_length",
}


def default_sequence_length(config: TransformerConfig) -> int:
    """Return the sequence length of a run that names none: the model's longest, at most 8192 tokens."""
    return min(config.max_sequence, DEFAULT_LONGEST_SEQUENCE)


def parse_plan(text: str, *, base: Parallelism | None = None) -> Parallelism:
    """Return a plan from text such as ``tp=8,pp=8,dp=16,micro_batch=1,global_batch=512``.

    Parameters
    ----------
    text : str
        ``key=value`` pairs with commas between them; keys are the fields of `Parallelism`.
    base : Parallelism, optional
        Plan whose values hold where the text is silent.

    Raises
    ------
    WorkloadError
        For an unknown key (with the nearest known one), a repeated key, a value that does not fit its key, or
        what is no text.
    """
    if not isinstance(text, str):
        msg = f"a plan must be text such as tp=8,dp=8; got {text!r:.60}"
        raise WorkloadError(msg)
    values: dict[str, object] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, separator, written = (piece.strip() for piece in part.partition("="))
        if not separator or not written:
            msg = f"plan: '{part}' must read key=value, such as tp=8"
            raise WorkloadError(msg)
        key = _ALIASES.get(key, key)
        if key not in KINDS:
            msg = f"plan: unknown key '{key}'; {nearest(key, KINDS, noun='key')}"
            raise WorkloadError(msg)
        if key in values:
            msg = f"plan: '{key}' stands twice; keep one"
            raise WorkloadError(msg)
        values[key] = _parse_value(key, written)
    return dataclasses.replace(base or Parallelism(), **typing.cast("dict[str, typing.Any]", values))


def _parse_value(key: str, written: str) -> object:
    kind = KINDS[key]
    if kind is int:
        if not (written.isascii() and written.lstrip("+-").isdigit() and len(written) < 20):
            msg = f"plan: {key} must be a whole number; got '{written}'"
            raise WorkloadError(msg)
        return int(written)
    if kind is bool:
        if written.lower() not in {"true", "false"}:
            msg = f"plan: {key} must be true or false; got '{written}'"
            raise WorkloadError(msg)
        return written.lower() == "true"
    try:
        return kind(written)
    except ValueError:
        msg = f"plan: {key} must be {phrase(kind)}; got '{written}'"
        raise WorkloadError(msg) from None
