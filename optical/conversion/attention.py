"""Attention as two products of activations, and its projections.

Shape suffixes: H heads, T queries, S keys, D width of a head; dimensions before them are batches.
"""

from __future__ import annotations

import math
import types
from typing import Any

import torch
from torch.nn import functional

from heliograph.errors import WorkloadError
from optical.conversion.frames import Frame
from optical.conversion.policy import ProductKind


def scaled_dot_product_attention(  # noqa: PLR0917 - as torch calls it
    frame: Frame,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Return attention by the rules of torch: full scores first, then the mask, as a matrix engine would.

    Notes
    -----
    In half precision, which ends at 65504, queries are scaled before the product, scores after it elsewhere.
    A query that a mask hides from all keys gives zeros.
    """
    if enable_gqa:
        key, value = (one.repeat_interleave(query.shape[-3] // one.shape[-3], -3) for one in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    if _executed_in(query) is torch.float16:
        query, scale = query * scale, 1.0
    scores_HTS = frame.multiply(ProductKind.SCORES, query, key.mT) * scale
    if is_causal:
        later_TS = torch.ones(scores_HTS.shape[-2:], dtype=torch.bool, device=query.device).triu(1)
        scores_HTS = scores_HTS.masked_fill(later_TS, -math.inf)
    empty = None
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        empty = ~attn_mask.any(-1, keepdim=True)
        scores_HTS = scores_HTS.masked_fill(~attn_mask & ~empty, -math.inf)
    elif attn_mask is not None:
        scores_HTS = scores_HTS + attn_mask.to(scores_HTS.dtype)
        empty = (scores_HTS == -math.inf).all(-1, keepdim=True)
        scores_HTS = scores_HTS.masked_fill(empty, 0.0)
    weights_HTS = scores_HTS.softmax(-1)
    if empty is not None:
        weights_HTS = weights_HTS.masked_fill(empty, 0.0)
    if dropout_p > 0.0:
        weights_HTS = functional.dropout(weights_HTS, dropout_p)
    return frame.multiply(ProductKind.VALUES, weights_HTS.to(value.dtype), value)


def _executed_in(x: torch.Tensor) -> torch.dtype:
    """Return the type in which a product of a tensor is delivered, autocast included."""
    kind = x.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return x.dtype


def _check_padding(key_padding_mask: torch.Tensor, src_len: int, bsz: int) -> None:
    """Refuse a mask that does not fit; torch's own function hides its message from compilers."""
    if tuple(key_padding_mask.shape) != (bsz, src_len):
        msg = f"key_padding_mask must have the shape {[bsz, src_len]}; got {list(key_padding_mask.shape)}"
        raise WorkloadError(msg)


def _open_multi_head_attention() -> types.FunctionType:
    """Return torch's function with the products inside it in sight.

    As it stands, it hands itself over as a whole to whoever overrides functions. This one has the same code
    but does not ask for overriding at its own level, while the functions that it calls do.

    Raises
    ------
    WorkloadError
        If this version of torch does not ask in the way that is known here.
    """
    whole: Any = functional.multi_head_attention_forward
    asks = "has_torch_function"
    if asks not in whole.__code__.co_names or asks not in whole.__globals__:
        msg = (
            f"torch {torch.__version__} hides the products of multi_head_attention_forward; exclude the layer"
        )
        raise WorkloadError(msg)
    names = {**whole.__globals__, asks: lambda tensors: False, "_check_key_padding_mask": _check_padding}
    opened = types.FunctionType(whole.__code__, names, whole.__name__, whole.__defaults__, whole.__closure__)
    opened.__kwdefaults__ = whole.__kwdefaults__
    return opened


MULTI_HEAD_ATTENTION = _open_multi_head_attention()
"""`torch.nn.functional.multi_head_attention_forward`, whose products can be overridden one by one."""
