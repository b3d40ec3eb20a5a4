"""Attention of Hugging Face models, where it is not one whose products can be seen."""

from __future__ import annotations

import sys
from typing import Any

from torch import nn

ATTENTION = "heliograph"
"""Name under which the attention is registered with transformers."""
_IN_SIGHT = ("eager", "sdpa", ATTENTION)
"""Implementations made of functions of torch."""


def register_attention() -> None:
    """Register attention whose two products a core can run, with `transformers`, as ``heliograph``.

    A model takes it by ``attn_implementation="heliograph"``; without a conversion it computes what ``sdpa``
    does, with the same masks.
    """
    from transformers import AttentionInterface, AttentionMaskInterface  # noqa: PLC0415 - optional
    from transformers.integrations.sdpa_attention import sdpa_attention_forward  # noqa: PLC0415 - optional
    from transformers.masking_utils import sdpa_mask  # noqa: PLC0415 - optional

    AttentionInterface.register(ATTENTION, sdpa_attention_forward)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)


def open_attention(model: nn.Module) -> str | None:
    """Let a model with a fused attention (flash, flex) take one with products; return which it had.

    Parameters
    ----------
    model : torch.nn.Module
        Any model; those that are not of `transformers` are left alone.
    """
    had: str | None = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if had is None or had in _IN_SIGHT or not _is_pretrained(model):
        return None
    register_attention()
    changed: Any = model
    changed.set_attn_implementation(ATTENTION)
    return had


def restore_attention(model: nn.Module, had: str | None) -> None:
    """Give a model back the attention that `open_attention` took from it."""
    if had is not None:
        changed: Any = model
        changed.set_attn_implementation(had)


def _is_pretrained(model: nn.Module) -> bool:
    """Return whether a model is one of `transformers`, which is then imported already."""
    library = sys.modules.get("transformers")
    return library is not None and isinstance(model, library.PreTrainedModel)
