"""Counts the products of a model by where they were run, so that none escapes a core unseen."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from optical.conversion.frames import current_frame, current_product

CORE_NAMESPACE = "heliograph"
"""Namespace of the operators that a core runs."""
_PRODUCTS = (
    "mm bmm addmm baddbmm addmv mv dot vdot addbmm linear matmul convolution convolution_backward "
    "_convolution _scaled_dot_product lstm gru rnn _thnn _int_mm _grouped_mm _scaled_mm "
    "_native_multi_head_attention "
    "_transformer_encoder_layer_fwd mkldnn_linear mkldnn_convolution mkldnn_rnn_layer _trilinear _cudnn_rnn "
    "_cdist_forward _flash_attention _efficient_attention _addmm_activation"
).split()
_BY_START = ("_scaled_dot_product", "_thnn", "_flash_attention", "_efficient_attention", "mkldnn_")


def operator_of(func: Callable[..., Any]) -> tuple[str, str]:
    """Return namespace and name of an operator that a dispatch mode is shown, without its overload."""
    space, _, name = str(func).partition(".")
    return space, name.partition(".")[0]


def is_product(operator: str) -> bool:
    """Return whether an operator of torch, without its namespace, multiplies matrices."""
    return operator in _PRODUCTS or operator.startswith(_BY_START)


@dataclass(kw_only=True)
class ProductCounts:
    """Products that were run, and how often."""

    analog: Counter[str] = field(default_factory=Counter)
    """Forward, on the core: by ``layer:kind``."""
    electronic: Counter[str] = field(default_factory=Counter)
    """Forward, electronic by policy, exclusion or because they sum nothing: by ``layer:kind``."""
    escaped: Counter[str] = field(default_factory=Counter)
    """Forward, neither: by ``layer:operator of torch``. Such a product is a fault."""
    analog_backward: int = 0
    """Backward, on the core."""
    digital_backward: Counter[str] = field(default_factory=Counter)
    """Backward, not on the core, by operator of torch: gradients of what is electronic."""


class _Watch(TorchDispatchMode):
    def __init__(self, counts: ProductCounts) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        del types
        space, name = operator_of(func)
        counts, backward = self.counts, torch._C._current_graph_task_id() != -1 and current_frame() is None
        product, electronic = current_product()
        if space == CORE_NAMESPACE:
            if backward:
                counts.analog_backward += 1
            else:
                counts.analog[product or name] += 1
        elif is_product(name):
            frame = current_frame()
            if backward:
                counts.digital_backward[name] += 1
            elif electronic:
                counts.electronic[product or name] += 1
            else:
                counts.escaped[f"{frame.site.name if frame else 'outside'}:{name}"] += 1
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def watch_products() -> Iterator[ProductCounts]:
    """Count the products that run, of converted models and of all else in this thread.

    A kernel from outside torch is one operator, whose products cannot be seen.
    """
    counts = ProductCounts()
    with _Watch(counts):
        yield counts
