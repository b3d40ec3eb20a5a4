"""Runs a converted model once and writes down every product that it meets."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from optical.conversion.convert import sites_of
from optical.conversion.frames import current_frame, current_product
from optical.conversion.noise_keys import noise_key
from optical.conversion.watch import CORE_NAMESPACE, is_product, operator_of

_ATTENTION = ("_scaled_dot_product", "_flash_attention", "_efficient_attention")
_MATRICES = {
    "mm": 0,
    "bmm": 0,
    "_int_mm": 0,
    "mv": 0,
    "dot": 0,
    "vdot": 0,
    "_grouped_mm": 0,
    "addmm": 1,
    "baddbmm": 1,
    "addmv": 1,
}
"""Place of the first factor among an operator's arguments; the second follows it."""


@dataclass(kw_only=True)
class ProductEntry:
    """Products of one kind in one layer that run in one place."""

    layer: str
    """Name of the module."""
    product: str
    """Kind, or the operator of torch."""
    on_core: bool
    """Whether the core runs them."""
    escaped: bool
    """Whether electronics runs them without being told to."""
    reason: str
    """What in the operands keeps them electronic; empty if nothing does."""
    dtype: str
    """Type of the operands."""
    count: int = 0
    """How many."""
    macs: int | None = 0
    """Multiply-accumulates, or None if unknown."""
    weights: set[str] = field(default_factory=set)
    """Names of the parameters that are multiplied."""


class _Log(TorchDispatchMode):
    def __init__(self, names: Mapping[int, str]) -> None:
        super().__init__()
        self.names = names
        self.entries: dict[tuple[object, ...], ProductEntry] = {}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        del types
        result = func(*args, **(kwargs or {}))
        space, name = operator_of(func)
        if space == CORE_NAMESPACE or is_product(name):
            self._note(name, space == CORE_NAMESPACE, args, result)
        return result

    def _note(self, name: str, on_core: bool, args: tuple[Any, ...], result: object) -> None:
        """Write one product down."""
        frame = current_frame()
        product, electronic = current_product()
        layer, _, kind = (product or ":").rpartition(":")
        escaped = not on_core and not electronic
        if escaped or not kind:
            layer, kind = frame.site.name if frame else "", name
        elif not on_core and name.startswith(_ATTENTION):
            kind = "attention"
        tensors = [one for one in _flat(args[:2] if on_core else args) if isinstance(one, torch.Tensor)]
        operands = [one for one in tensors if one.dim()]
        macs = 0 if any(one.numel() == 0 for one in operands) else _macs(name, on_core, args, result)
        dtype = str(operands[0].dtype if operands else None).removeprefix("torch.")
        reason = "" if on_core or escaped else _reason(name, operands)
        key = (layer, kind, on_core, escaped, reason, dtype)
        entry = self.entries.setdefault(
            key,
            ProductEntry(
                layer=layer, product=kind, on_core=on_core, escaped=escaped, reason=reason, dtype=dtype
            ),
        )
        entry.count += 1
        entry.macs = None if macs is None or entry.macs is None else entry.macs + macs
        places = {one.untyped_storage()._cdata for one in tensors if one.dim() > 1}
        entry.weights |= {self.names[place] for place in places if place in self.names}


def _flat(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _reason(name: str, operands: Sequence[torch.Tensor]) -> str:
    """Return what in its operands keeps a product from the core (`Frame.multiply`)."""
    if not operands or name not in _MATRICES:
        return ""
    if any(not one.is_floating_point() for one in operands):
        return "integers"
    if any(one.numel() == 0 for one in operands):
        return "empty"
    first = operands[-2] if len(operands) > 1 else operands[0]
    return "sums nothing" if first.shape[-1] == 1 else ""


def _macs(name: str, on_core: bool, args: tuple[Any, ...], result: object) -> int | None:
    """Return the multiply-accumulates of an operator, or None if they are not known."""
    if on_core or name in _MATRICES:
        first = 0 if on_core else _MATRICES[name]
        a, b = args[first : first + 2]
        return int(a.numel() * (b.shape[-1] if b.dim() > 1 else 1))
    if name in {"convolution", "_convolution"}:
        sums = args[1].numel() // args[1].shape[0]
        transposed = bool(args[6])
        spread = args[0] if transposed else result
        return spread.numel() * sums if isinstance(spread, torch.Tensor) else None
    if name.startswith(_ATTENTION):
        query, key, value = args[:3]
        return int(
            query.numel() * key.shape[-2] + math.prod(query.shape[:-1]) * value.shape[-2] * value.shape[-1]
        )
    if name == "mkldnn_rnn_layer":
        return int(math.prod(args[0].shape[:-1]) * (args[1].numel() + args[2].numel()))
    return None


def log_products(
    model: nn.Module, sample: torch.Tensor | Sequence[object] | Mapping[str, object]
) -> list[ProductEntry]:
    """Run a converted model once, in `eval()` and without gradients, and return its products.

    Parameters
    ----------
    model : torch.nn.Module
        A converted model.
    sample : torch.Tensor, sequence or mapping
        What it is given, in order or by name.
    """
    names = {p.untyped_storage()._cdata: name for name, p in model.named_parameters() if p.dim() > 1}
    log = _Log(names)
    given = [sample] if isinstance(sample, torch.Tensor) else sample
    with _undisturbed(model), torch.no_grad(), noise_key(0), log:
        if isinstance(given, Mapping):
            model(**given)
        else:
            model(*given)
    return list(log.entries.values())


@contextlib.contextmanager
def _undisturbed(model: nn.Module) -> Iterator[None]:
    """Let a model run without training, and leave it as it was."""
    modes = [(module, module.training) for module in model.modules()]
    calls = [(site, set(site.calls), dict(site.inputs)) for site in sites_of(model)]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
        for site, before, inputs in calls:
            site.calls, site.inputs = before, inputs
