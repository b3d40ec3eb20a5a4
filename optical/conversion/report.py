"""Report of a conversion: the products that a core runs, those that stay electronic, and why.

`describe` runs a model once under a dispatch mode (`_ProductLog`), or, without a sample, lists the products
that its layers' classes imply.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from optical.conversion.convert import conversion_of, sites_of
from optical.conversion.frames import Site, current_frame, current_product, noise_key
from optical.conversion.interception import CORE_NAMESPACE, is_product, operator_of
from optical.conversion.policy import ProductKind

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
"""Index of the first factor among an operator's arguments; the second follows it."""


class RunsOn(StrEnum):
    """Unit that runs a product."""

    CORE = "core"
    """The photonic core."""
    ELECTRONIC = "electronic"
    """The digital electronics around it."""
    ESCAPED = "ESCAPED"
    """Electronics, though the policy does not say so: a fault of the conversion."""


_Kind = tuple[str, str, RunsOn, str, str]
"""Layer, kind of product or operator of torch, unit that runs it, property of the operands that keeps it
electronic ("" if none has), and type of the operands."""


@dataclass(kw_only=True)
class _Tally:
    """Products of one kind in one forward pass."""

    count: int = 0
    """Number of products."""
    macs: int | None = 0
    """Multiply-accumulates, or None if unknown."""
    weights: set[str] = field(default_factory=set)
    """Names of the parameters that are multiplied."""


class _ProductLog(TorchDispatchMode):
    """Dispatch mode that records every product; `names` are those of parameters, by their storage."""

    def __init__(self, names: Mapping[int, str]) -> None:
        super().__init__()
        self.names = names
        self.tallies: dict[_Kind, _Tally] = {}

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
            self._record(name, space == CORE_NAMESPACE, args, result)
        return result

    def _record(self, name: str, on_core: bool, args: tuple[Any, ...], result: object) -> None:
        """Add one product to its tally."""
        frame = current_frame()
        product, electronic = current_product()
        layer, _, kind = (product or ":").rpartition(":")
        place = RunsOn.CORE if on_core else RunsOn.ELECTRONIC if electronic else RunsOn.ESCAPED
        if place is RunsOn.ESCAPED or not kind:
            layer, kind = frame.site.name if frame else "", name
        elif not on_core and name.startswith(_ATTENTION):
            kind = "attention"
        tensors = [value for value in _flat(args[:2] if on_core else args) if isinstance(value, torch.Tensor)]
        operands = [tensor for tensor in tensors if tensor.dim()]
        macs = 0 if any(x.numel() == 0 for x in operands) else _macs(name, on_core, args, result)
        dtype = str(operands[0].dtype if operands else None).removeprefix("torch.")
        reason = _operand_reason(name, operands) if place is RunsOn.ELECTRONIC else ""
        tally = self.tallies.setdefault((layer, kind, place, reason, dtype), _Tally())
        tally.count += 1
        tally.macs = None if macs is None or tally.macs is None else tally.macs + macs
        storages = {tensor.untyped_storage()._cdata for tensor in tensors if tensor.dim() > 1}
        tally.weights |= {self.names[storage] for storage in storages if storage in self.names}


def _flat(values: Sequence[Any]) -> Iterator[Any]:
    """Yield the values of nested lists and tuples."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _operand_reason(name: str, operands: Sequence[torch.Tensor]) -> str:
    """Return the property of its operands that keeps a product from the core (`Frame.multiply`), or ""."""
    if not operands or name not in _MATRICES:
        return ""
    if any(not x.is_floating_point() for x in operands):
        return "integers"
    if any(x.numel() == 0 for x in operands):
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
        per_element = args[1].numel() // args[1].shape[0]
        transposed = bool(args[6])
        elements = args[0] if transposed else result
        return elements.numel() * per_element if isinstance(elements, torch.Tensor) else None
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
) -> dict[_Kind, _Tally]:
    """Run a converted model once, in `eval()` and without gradients, and return its products by kind."""
    names = {p.untyped_storage()._cdata: name for name, p in model.named_parameters() if p.dim() > 1}
    log = _ProductLog(names)
    inputs = [sample] if isinstance(sample, torch.Tensor) else sample
    with _in_eval(model), torch.no_grad(), noise_key(0), log:
        if isinstance(inputs, Mapping):
            model(**inputs)
        else:
            model(*inputs)
    return log.tallies


@contextlib.contextmanager
def _in_eval(model: nn.Module) -> Iterator[None]:
    """Set a model to `eval()`, and restore its modes and remembered calls afterwards."""
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


_NUMBER = re.compile(r"(?:^|(?<=\.))\d+(?=\.|$)")
_HEADS = ("layer", "module", "product", "runs on", "why", "products", "weights", "MACs", "dtype")
_TO_THE_RIGHT = {"products", "weights", "MACs"}
_UNKNOWN = "?"


@dataclass(frozen=True, kw_only=True)
class ReportRow:
    """Products of one kind in one layer."""

    layer: str
    """Name of the module."""
    module: str
    """Class of the module."""
    product: str
    """Kind of the products (`ProductKind`), or the operator of torch."""
    place: RunsOn
    """Unit that runs them."""
    reason: str
    """Reason why they are electronic, or an exception on the core; empty if the core's specification
    holds."""
    products: int | None
    """Products in one forward pass, or None where no model was run."""
    weights: int
    """Parameters that are multiplied; each is counted once, in the row that uses it first."""
    macs: int | None
    """Multiply-accumulates of one forward pass, or None where unknown."""
    dtype: str
    """Type of the operands."""


@dataclass(frozen=True, kw_only=True)
class ConversionReport:
    """Products of a converted model, by the unit that runs them; `str` of it is a table."""

    model: str
    """Class of the model."""
    mode: str
    """Passes of training in which errors enter (`Mode`)."""
    rows: tuple[ReportRow, ...]
    """Rows in the order in which layers first run; without a run, in the order of the model."""
    parameters: int
    """All parameters, those of look-ups, norms and biases included."""
    measured: bool
    """Whether the model was run."""

    def weights(self, place: RunsOn) -> int:
        """Return the parameters whose products a unit runs."""
        return sum(row.weights for row in self.rows if row.place is place)

    def macs(self, place: RunsOn) -> int:
        """Return the multiply-accumulates of one forward pass on a unit, as far as they are known."""
        return sum(row.macs or 0 for row in self.rows if row.place is place)

    def __str__(self) -> str:
        """Return the table; layers that differ in a number alone share a line, with the number as ``*``."""
        lines = [self._title(), "", *_table([_HEADS, *map(_cells, _merged(self.rows))]), ""]
        lines += self._totals()
        return "\n".join(lines)

    def _title(self) -> str:
        how = "one forward pass" if self.measured else "not run: products inside layers may differ"
        return f"{self.model}, mode {self.mode}; {how}"

    def _totals(self) -> list[str]:
        on_core, multiplied = self.weights(RunsOn.CORE), sum(row.weights for row in self.rows)
        lines = [
            f"parameters: {self.parameters:,}; multiplied on the core {on_core:,}, "
            f"electronically {multiplied - on_core:,}, "
            f"in no product (look-ups, norms, biases) {self.parameters - multiplied:,}"
        ]
        if self.measured:
            core, electronic, escaped = map(self.macs, RunsOn)
            whole = core + electronic + escaped
            share = f" ({100 * core / whole:.2f} % on the core)" if whole else ""
            lines.append(f"multiply-accumulates: {whole:,}{share}")
            unknown = sorted({row.product for row in self.rows if row.macs is None})
            lines += [f"not counted: {', '.join(unknown)}"] if unknown else []
        return lines


def _merged(rows: Sequence[ReportRow]) -> list[ReportRow]:
    """Return the rows, those whose layers differ only in a number added up."""
    groups: dict[tuple[str, ...], list[ReportRow]] = {}
    for row in rows:
        key = (_NUMBER.sub("*", row.layer), row.module, row.product, row.place, row.reason, row.dtype)
        groups.setdefault(key, []).append(row)
    return [_sum(key[0], group) for key, group in groups.items()]


def _sum(layer: str, rows: Sequence[ReportRow]) -> ReportRow:
    """Return one row for several, under a common name."""
    first = rows[0]
    counts = [row.products for row in rows if row.products is not None]
    macs = [row.macs for row in rows if row.macs is not None]
    return dataclasses.replace(
        first,
        layer=layer if len(rows) > 1 else first.layer,
        products=sum(counts) if counts else None,
        weights=sum(row.weights for row in rows),
        macs=sum(macs) if len(macs) == len(rows) else None,
    )


def _cells(row: ReportRow) -> tuple[str, ...]:
    counts = ["" if n is None else f"{n:,}" for n in (row.products, row.weights or None)]
    macs = f"{row.macs:,}" if row.macs is not None else _UNKNOWN if row.products is not None else ""
    return (
        row.layer or "(the model)",
        row.module,
        row.product,
        row.place,
        row.reason,
        *counts,
        macs,
        row.dtype,
    )


def _table(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, numbers aligned to the right; empty columns are left out."""
    columns = [column for column in zip(*lines, strict=True) if any(column[1:])]
    padded = []
    for head, *cells in columns:
        width = max(map(len, (head, *cells)))
        right = head in _TO_THE_RIGHT
        padded.append([cell.rjust(width) if right else cell.ljust(width) for cell in (head, *cells)])
    return ["  ".join(cells).rstrip() for cells in zip(*padded, strict=True)]


_BY_WEIGHTS = (ProductKind.LINEAR, ProductKind.CONVOLUTION, ProductKind.RECURRENCE, ProductKind.EXPERTS)
"""Kinds of products by a parameter."""


def describe(
    model: nn.Module, sample: torch.Tensor | Sequence[object] | Mapping[str, object] | None = None
) -> ConversionReport:
    """Return a report of the products that the core runs, those that stay electronic, and why.

    Parameters
    ----------
    model : torch.nn.Module
        A converted model.
    sample : torch.Tensor, sequence or mapping, optional
        Inputs of the model, by position or by name: the model is run once, in `eval()` and without gradients,
        and all its products are reported. With model and sample on the ``meta`` device this needs neither
        memory nor time. Without a sample, the products of torch's own layers are reported, as known from
        their class.

    Raises
    ------
    WorkloadError
        If the model is not converted.

    Notes
    -----
    A product of M by K with K by N elements has M K N multiply-accumulates; the backward pass of a layer has
    twice as many. Scores that attention masks are computed and counted.
    """
    conversion = conversion_of(model)
    classes = {name: type(module).__name__ for name, module in model.named_modules()}
    if sample is None:
        rows = _planned(model, classes)
    else:
        rows = [_measured(*counted, model, classes) for counted in log_products(model, sample).items()]
    return ConversionReport(
        model=type(model).__name__,
        mode=str(conversion.policy.mode),
        rows=tuple(_each_weight_once(model, rows)),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        measured=sample is not None,
    )


def _measured(
    kind: _Kind, tally: _Tally, model: nn.Module, classes: Mapping[str, str]
) -> tuple[ReportRow, set[str]]:
    """Return the row of a kind of product, its weights not counted yet, and the names of these weights."""
    layer, product, place, reason, dtype = kind
    site = next((site for site in sites_of(model) if site.name == layer), None)
    names = set(tally.weights)
    if not names and product in _BY_WEIGHTS:  # a copy of the weight was multiplied, as under autocast
        prefix = f"{layer}." if layer else ""
        own = model.get_submodule(layer).named_parameters(recurse=False)
        names = {f"{prefix}{name}" for name, parameter in own if parameter.dim() > 1}
    row = ReportRow(
        layer=layer,
        module=classes.get(layer, "outside the model"),
        product=product,
        place=place,
        reason=_reason(site, product, place) or reason,
        products=tally.count,
        weights=0,
        macs=tally.macs,
        dtype=dtype,
    )
    return row, names


def _planned(model: nn.Module, classes: Mapping[str, str]) -> list[tuple[ReportRow, set[str]]]:
    """Return the rows that are known from the classes of layers, each with the names of its weights."""
    rows: list[tuple[ReportRow, set[str]]] = []
    inside: tuple[str, ...] = ()
    modules = dict(model.named_modules())
    for site in sites_of(model):
        module = modules[site.name]
        if site.name.startswith(inside):
            continue
        prefix = f"{site.name}." if site.name else ""
        deep = isinstance(module, nn.MultiheadAttention)
        inside = (*inside, prefix) if deep and prefix else inside
        matrices = {f"{prefix}{name}": p for name, p in module.named_parameters(recurse=deep) if p.dim() > 1}
        if not matrices or isinstance(module, nn.Embedding | nn.EmbeddingBag):
            continue
        dtype = str(next(iter(matrices.values())).dtype).removeprefix("torch.")
        kinds = _kinds(module)
        for number, kind in enumerate(kinds or (None,)):
            place = _planned_place(site, kind)
            row = ReportRow(
                layer=site.name,
                module=classes[site.name],
                product=str(kind or "known when run"),
                place=place,
                reason=_reason(site, str(kind), place),
                products=None,
                weights=0,
                macs=None,
                dtype=dtype,
            )
            rows.append((row, set() if number else set(matrices)))
    return rows


def _kinds(module: nn.Module) -> tuple[ProductKind, ...]:
    """Return the kinds of products of one of torch's own layers; none for other layers."""
    kind = ProductKind
    if isinstance(module, nn.MultiheadAttention):
        return kind.LINEAR, kind.SCORES, kind.VALUES
    if isinstance(module, nn.Linear):
        return (kind.LINEAR,)
    if isinstance(module, nn.modules.conv._ConvNd):
        return (kind.CONVOLUTION,)
    if isinstance(module, nn.RNNBase | nn.RNNCellBase):
        return kind.LINEAR, kind.RECURRENCE
    return ()


def _planned_place(site: Site, kind: ProductKind | None) -> RunsOn:
    """Return the unit that will run a kind of product of a layer; None for any kind."""
    kinds = tuple(ProductKind) if kind is None else (kind,)
    runs = any(site.specs(each, training=False) is not None for each in kinds)
    return RunsOn.CORE if runs else RunsOn.ELECTRONIC


def _reason(site: Site | None, product: str, place: RunsOn) -> str:
    """Return the policy's reason why a product is electronic, or an exception on the core; "" if none."""
    if site is None or place is RunsOn.ESCAPED:
        return ""
    if not site.included:
        return "excluded"
    kinds = (ProductKind(product),) if product in tuple(ProductKind) else tuple(ProductKind)
    policy = site.conversion.policy
    patterns = (policy.pattern(site.name, kind) for kind in kinds)
    pattern = next((pattern for pattern in patterns if pattern is not None), None)
    if pattern is None or (place is RunsOn.CORE) is (pattern in policy.electronic):
        return ""
    return f"policy: {pattern}" if place is RunsOn.ELECTRONIC else f"exception: {pattern}"


def _each_weight_once(model: nn.Module, rows: Sequence[tuple[ReportRow, set[str]]]) -> list[ReportRow]:
    """Return the rows with the sizes of their weights; a shared weight counts in the first row with it."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    seen: set[int] = set()
    counted = []
    for row, names in rows:
        sizes = {id(parameters[name]): parameters[name].numel() for name in names}
        weights = sum(size for key, size in sizes.items() if key not in seen)
        counted.append(dataclasses.replace(row, weights=weights))
        seen |= set(sizes)
    return counted
