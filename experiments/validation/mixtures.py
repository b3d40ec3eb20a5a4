"""From a published row of a mixture of experts to the shipped model of its name."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from experiments.validation.cells import Record, SkipError
from workloads.models.architecture import TransformerConfig
from workloads.models.config import load_model, shipped_models
from workloads.plan.choices import ExpertExchange

_REDUCED = re.compile(r"-(\d+)L$")
_ONCE = re.compile(r"once per node|deepep|hybridep", re.I)
_OVERLAPPED = re.compile(r"expert exchange\w* overlapped", re.I)
_BRACKETS = re.compile(r"\s*\(([^)]*)\)")
_PREDICTS_MORE = re.compile(r"w/ ?mtp|with mtp", re.I)


def mixture_of(record: Record, *, dropout: bool) -> TransformerConfig:
    """Return the model of a row of a mixture of experts that gives no experts.

    Parameters
    ----------
    record : Record
        The row. Its model's name must be that of a shipped one but for case, punctuation, what stands in
        brackets and a trailing size; so must width and blocks, if the row has them. ``-4L`` at the end of the
        name means the model with four blocks.
    dropout : bool
        Whether training dropped activations.

    Raises
    ------
    SkipError
        If no model of that name ships, or a size differs.
    """
    name = record.text("model_name")
    if any(_PREDICTS_MORE.search(word) for word in _BRACKETS.findall(name)):
        msg = "a mixture of experts trained with multi-token prediction, which is not modelled"
        raise SkipError(msg)
    bare = _BRACKETS.sub("", name)
    reduced = _REDUCED.search(bare)
    wanted = _plain(_REDUCED.sub("", bare))
    size = f"{record.number('params_B') or 0:g}b"
    shipped = next(
        (one for one in shipped_models() if wanted in {_plain(one), _plain(one) + size}),
        None,
    )
    if shipped is None:
        msg = "a mixture of experts; the row does not give the experts, and no model of its name ships"
        raise SkipError(msg)
    model = load_model(shipped)
    record.assume(f"what the row lacks is as in the shipped model '{shipped}'")
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
    """Return how tokens reach their experts, as far as the row's notes say.

    Notes
    -----
    The notes may name a dispatcher that sends a token to a node once (DeepEP, HybridEP) and may say that the
    expert exchange was overlapped; else every rank sends to every other, and waits.
    """
    notes = record.text("notes")
    if ep == 1:
        return {}
    values: dict[str, Any] = {}
    if _ONCE.search(notes):
        values["expert_exchange"] = ExpertExchange.ONCE_PER_NODE
    else:
        record.assume("tokens sent to every expert's rank")
    if _OVERLAPPED.search(notes):
        values["overlap_experts"] = True
    else:
        record.assume("expert exchanges not overlapped")
    return values


def _shortened(record: Record, model: TransformerConfig, layers: int) -> TransformerConfig:
    """Return a model with fewer blocks, of which those without experts keep their share, at least one."""
    dense = max(1, round(layers * model.dense_layers / model.layers)) if model.dense_layers else 0
    if dense:
        record.assume(
            f"{dense} of the {layers} blocks has no experts" if dense == 1 else f"{dense} dense blocks"
        )
    return dataclasses.replace(model, layers=layers, dense_layers=dense)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
