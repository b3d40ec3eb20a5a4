"""Tells of a converted model which products a core runs, which stay electronic, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from optical.conversion.convert import conversion_of, sites_of
from optical.conversion.frames import Site
from optical.conversion.policy import ProductKind
from optical.conversion.product_log import ProductEntry, log_products
from optical.conversion.report import ConversionReport, Place, ReportRow

_BY_WEIGHTS = (ProductKind.LINEAR, ProductKind.CONVOLUTION, ProductKind.RECURRENCE, ProductKind.EXPERTS)
"""Products with a parameter."""


def describe(
    model: nn.Module, sample: torch.Tensor | Sequence[object] | Mapping[str, object] | None = None
) -> ConversionReport:
    """Return which products of a converted model the core runs, which stay electronic, and why.

    Parameters
    ----------
    model : torch.nn.Module
        A converted model.
    sample : torch.Tensor, sequence or mapping, optional
        What the model is given, in order or by name: it is run once, in `eval()` and without gradients, and
        every product that is met is told. On the ``meta`` device, model and sample alike, this needs neither
        memory nor time. Without a sample the layers are told whose products can be known from their class.

    Raises
    ------
    WorkloadError
        If the model is not converted.

    Notes
    -----
    A product of M by K with K by N elements has M K N multiply-accumulates; the backward pass of a layer has
    twice as many. What attention masks is computed and counted.
    """
    conversion = conversion_of(model)
    classes = {name: type(module).__name__ for name, module in model.named_modules()}
    if sample is None:
        rows = _planned(model, classes)
    else:
        rows = [_measured(entry, model, classes) for entry in log_products(model, sample)]
    return ConversionReport(
        model=type(model).__name__,
        mode=str(conversion.policy.mode),
        rows=tuple(_each_weight_once(model, rows)),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        measured=sample is not None,
    )


def _measured(
    entry: ProductEntry, model: nn.Module, classes: Mapping[str, str]
) -> tuple[ReportRow, set[str]]:
    """Return a row without its weights, and the names of those."""
    place = Place.CORE if entry.on_core else Place.ESCAPED if entry.escaped else Place.ELECTRONIC
    site = next((one for one in sites_of(model) if one.name == entry.layer), None)
    names = set(entry.weights)
    if not names and entry.product in _BY_WEIGHTS:  # a copy was multiplied, as under autocast
        prefix = f"{entry.layer}." if entry.layer else ""
        own = model.get_submodule(entry.layer).named_parameters(recurse=False)
        names = {f"{prefix}{name}" for name, parameter in own if parameter.dim() > 1}
    row = ReportRow(
        layer=entry.layer,
        module=classes.get(entry.layer, "outside the model"),
        product=entry.product,
        place=place,
        reason=_reason(site, entry.product, place) or entry.reason,
        products=entry.count,
        weights=0,
        macs=entry.macs,
        dtype=entry.dtype,
    )
    return row, names


def _planned(model: nn.Module, classes: Mapping[str, str]) -> list[tuple[ReportRow, set[str]]]:
    """Return the rows that classes alone tell."""
    found: list[tuple[ReportRow, set[str]]] = []
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
            found.append((row, set() if number else set(matrices)))
    return found


def _kinds(module: nn.Module) -> tuple[ProductKind, ...]:
    """Return the products of one of torch's own layers, or nothing of others."""
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


def _planned_place(site: Site, kind: ProductKind | None) -> Place:
    kinds = tuple(ProductKind) if kind is None else (kind,)
    runs = any(site.specs(one, training=False) is not None for one in kinds)
    return Place.CORE if runs else Place.ELECTRONIC


def _reason(site: Site | None, product: str, place: Place) -> str:
    """Return why a product is not on the core, or is an exception there, as far as the policy says."""
    if site is None or place is Place.ESCAPED:
        return ""
    if not site.included:
        return "excluded"
    kinds = (ProductKind(product),) if product in tuple(ProductKind) else tuple(ProductKind)
    policy = site.conversion.policy
    pattern = next((one for kind in kinds if (one := policy.pattern(site.name, kind))), None)
    if pattern is None or (place is Place.CORE) is (pattern in policy.electronic):
        return ""
    return f"policy: {pattern}" if place is Place.ELECTRONIC else f"exception: {pattern}"


def _each_weight_once(model: nn.Module, rows: Sequence[tuple[ReportRow, set[str]]]) -> list[ReportRow]:
    """Return the rows with the sizes of their weights; a shared weight counts where it is first used."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    seen: set[int] = set()
    found = []
    for row, names in rows:
        mine = {id(parameters[name]): parameters[name].numel() for name in names}
        found.append(dataclasses.replace(row, weights=sum(n for key, n in mine.items() if key not in seen)))
        seen |= set(mine)
    return found
