"""Text form of a plan: ``tp=8,pp=8,...``, read and written."""

from __future__ import annotations

from simulator.errors import WorkloadError, nearest
from workloads.models.architecture import TransformerConfig
from workloads.pipeline.schedule import SCHEDULES, Schedule
from workloads.plan.parts import kind_phrase
from workloads.plan.plan import KEYS, Plan, kind_of

DEFAULT_LONGEST_SEQUENCE = 8192
"""Sequence length beyond which no run goes unless it is asked to; a choice."""
SHAPE = ("tp", "pp", "dp", "micro_batch", "global_batch", "sequence_length")
"""Keys that a plan's text always has."""

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


def parse_plan(text: str, *, base: Plan | None = None) -> Plan:
    """Return a plan from text such as ``tp=8,pp=8,dp=16,micro_batch=1,global_batch=512``.

    Parameters
    ----------
    text : str
        ``key=value`` pairs with commas between them; keys are those of `workloads.plan.plan.KEYS`.
    base : Plan, optional
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
        if key not in KEYS:
            msg = f"plan: unknown key '{key}'; {nearest(key, KEYS, noun='key')}"
            raise WorkloadError(msg)
        if key in values:
            msg = f"plan: '{key}' stands twice; keep one"
            raise WorkloadError(msg)
        values[key] = _parse_value(key, written)
    return (base or Plan()).with_(**values)


def accelerators_of(text: str) -> int | None:
    """Return the accelerators that a plan's text takes, None for a text that names nothing.

    Raises
    ------
    WorkloadError
        As `parse_plan`.
    """
    return parse_plan(text).axes.ranks if text.strip(", ") else None


def plan_text(plan: Plan) -> str:
    """Return a plan as text that `parse_plan` reads back: its shape, and what differs from the defaults."""
    plain = Plan()
    shown = [key for key in KEYS if key in SHAPE or plan.value(key) != plain.value(key)]
    return ",".join(f"{key}={plan.value(key)}" for key in shown)


def _parse_value(key: str, written: str) -> object:
    kind = kind_of(key)
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
        return SCHEDULES[written] if kind is Schedule else kind(written)
    except (KeyError, ValueError):
        msg = f"plan: {key} must be {kind_phrase(kind)}; got '{written}'"
        raise WorkloadError(msg) from None
