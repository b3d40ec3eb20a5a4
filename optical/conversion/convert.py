"""Conversion of a torch model to run its products on a core, and back, with its parameters untouched.

Each module's class is replaced by one derived from it, whose `forward` opens a call (`frames.entered`) in
which torch functions are intercepted (`interception.Interception`). Beside it: attention of Hugging Face
models, the key as an input of exported programs (`KeyedModel`), and a converter for training frameworks
(`StepwiseConverter`).
"""

from __future__ import annotations

import copy
import dataclasses
import fnmatch
import functools
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeVar

import torch
from torch import nn

from optical.conversion.frames import Conversion, NoiseKey, Site, TensorKey, current_frame, entered, opened
from optical.conversion.interception import Interception, follow_checkpoints, show_to_compilers
from optical.conversion.policy import (
    Hardware,
    Policy,
    ProductKind,
    fits,
    specs_of,
)
from optical.execution import ProductSpecs
from simulator.errors import WorkloadError

ATTENTION = "heliograph"
"""Name under which the attention is registered with transformers."""
_IN_SIGHT = ("eager", "sdpa", ATTENTION)
"""Implementations of attention that call torch functions which can be intercepted."""


def register_attention() -> None:
    """Register an attention with `transformers`, as ``heliograph``, whose two products a core can run.

    A model takes it by ``attn_implementation="heliograph"``. In a model that is not converted it computes the
    same as ``sdpa``, with the same masks.
    """
    from transformers import AttentionInterface, AttentionMaskInterface  # noqa: PLC0415 - optional
    from transformers.integrations.sdpa_attention import sdpa_attention_forward  # noqa: PLC0415 - optional
    from transformers.masking_utils import sdpa_mask  # noqa: PLC0415 - optional

    AttentionInterface.register(ATTENTION, sdpa_attention_forward)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)


def open_attention(model: nn.Module) -> str | None:
    """Replace a model's fused attention (flash, flex) by one with separate products; return its name.

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


_Model = TypeVar("_Model", bound=nn.Module)
Filter = Callable[[nn.Module, str], bool]
"""Function of a module and its name: whether the module's own products go to the core."""
_SITE, _ORIGINAL = "heliograph_site", "heliograph_original"
_WITHOUT_PRODUCTS = {
    f"torch.nn.modules.{name}"
    for name in (
        "batchnorm channelshuffle distance dropout flatten fold instancenorm loss normalization "
        "padding pixelshuffle pooling sparse upsampling"
    ).split()
}
"""Files of torch whose modules have no products, and keep their classes."""
_CONVERTED: dict[type[nn.Module], type[nn.Module]] = {}
"""Derived classes, by the original ones."""


def convert(
    model: _Model,
    system: Hardware,
    *,
    include: Collection[str] | None = None,
    exclude: Collection[str] | None = None,
    filter: Filter | None = None,
    policy: Policy | None = None,
    model_key: NoiseKey | None = None,
    inplace: bool = False,
) -> _Model:
    """Return a model whose products, forward and backward, are executed as a core would.

    Parameters
    ----------
    model : torch.nn.Module
        Any model; its parameters, their names and its `state_dict` stay as they are.
    system : ProductSpecs, core, accelerator, system, or the name of a core
        Hardware that runs the products; names are those of `load_core`, ``FILE.py:CLASS`` among them.
    include, exclude : collection of str, optional
        Patterns of module names, with the wildcards of a shell; a pattern covers the modules that fit it and
        all modules in them. Without `include` all modules are included; `exclude` takes precedence.
    filter : callable, optional
        Function of a module and its name: whether its own products, not those of modules in it, are included.
    policy : Policy, optional
        Products that are electronic, products with specifications of their own, and the mode in which errors
        act.
    model_key : NoiseKey, optional
        Key of draws where no `noise_key` is open; `set_model_key` changes it.
    inplace : bool
        Whether to convert the model itself instead of a copy.

    Returns
    -------
    torch.nn.Module
        The converted model; its modules have classes derived from their own.

    Raises
    ------
    WorkloadError
        If the model is converted already, a pattern (of the policy, too) fits no module, a module cannot be
        converted, or model or policy are none.
    ParameterError
        If the system has no photonic core.

    Notes
    -----
    A draw is keyed by (seed, step, layer, call, operation, product, row block). The layer's number is its
    place in `model.named_modules()`, included or not. Calls are counted where the layer around calls a layer
    several times in one pass. Operations are the torch functions with products in that call, electronic ones
    included, so that leaving a product out changes no other draw.

    Layers and functions that torch's checkpoints recompute run on the core with the draws of their first run.

    `torch.compile` makes one graph of a converted model where it makes one of the model; the key is among its
    inputs, so that a new step or part needs no other compilation. `torch.export`, strict or not, takes it as
    an input too (`KeyedModel`); of the model itself it keeps the key as a constant, and cannot if it is
    strict, since torch leaves a tensor without values in the program. Around checkpointed layers torch makes
    no whole graph (``fullgraph=True``), since calls are counted outside them; with graph breaks draws are
    right. ``skip_fwd_side_effects_in_bwd_under_checkpoint``, which would drop the counts of repeated calls,
    is refused.
    """
    for name, patterns in (("include", include), ("exclude", exclude)):
        if isinstance(patterns, str):
            msg = f"{name} takes several patterns; got {patterns!r}: write [{patterns!r}]"
            raise WorkloadError(msg)
        if patterns is not None and not (isinstance(patterns, Collection) and _all_text(patterns)):
            msg = f"{name} takes a list of patterns such as ['layers.*']; got {patterns!r:.60}"
            raise WorkloadError(msg)
    if model_key is not None and not isinstance(model_key, NoiseKey):
        msg = f"convert: model_key must be a NoiseKey; got {model_key!r:.60}"
        raise WorkloadError(msg)
    policy = Policy() if policy is None else policy
    for name, value, kind in (("model", model, nn.Module), ("policy", policy, Policy)):
        if not isinstance(value, kind):
            msg = f"convert: {name} must be a {kind.__name__}; got {value!r:.60}"
            raise WorkloadError(msg)
    _check_model(model, [*(include or ()), *(exclude or ())], policy)
    conversion = Conversion(specs=specs_of(system), policy=policy, key=model_key)
    if not inplace:
        model = _copied(model)
    conversion.attention = open_attention(model)
    show_to_compilers()
    follow_checkpoints()
    for number, (name, module) in enumerate(model.named_modules()):
        included = _belongs(name, include, default=True) and not _belongs(name, exclude, default=False)
        included = included and (filter is None or filter(module, name))
        if name and type(module).__module__ in _WITHOUT_PRODUCTS:
            continue
        site = Site(conversion=conversion, name=name, number=number, included=included)
        object.__setattr__(module, _SITE, site)
        module.__class__ = _converted_class(type(module))
    return model


def to_digital(model: _Model, *, inplace: bool = False) -> _Model:
    """Return a converted model with its original classes, and so with its original arithmetic.

    Parameters
    ----------
    model : torch.nn.Module
        A converted model.
    inplace : bool
        Whether to turn the model itself back instead of a copy.

    Raises
    ------
    WorkloadError
        If it is not converted, or was sharded since.
    """
    conversion_of(model)
    if not inplace:
        model = _copied(model)
    converted = [module for module in model.modules() if _SITE in module.__dict__]
    classes = [_original_class(type(module)) for module in converted]
    restore_attention(model, conversion_of(model).attention)
    for module, original in zip(converted, classes, strict=True):
        module.__class__ = original
        del module.__dict__[_SITE]
    return model


def _copied(model: _Model) -> _Model:
    """Return a deep copy of a model."""
    try:
        return copy.deepcopy(model)
    except RuntimeError as error:  # weights that a module computes, as in pruning, are no leaves of a graph
        msg = f"{type(model).__name__} cannot be copied ({str(error).partition('.')[0]}); take inplace=True"
        raise WorkloadError(msg) from error


def set_model_key(model: nn.Module, key: NoiseKey | None) -> None:
    """Give a converted model the key that it draws from where no `noise_key` is open."""
    conversion_of(model).key = key


def planned_specs(model: nn.Module) -> dict[str, dict[ProductKind, ProductSpecs | None]]:
    """Return the specifications of each kind of product in each layer of a converted model, mode aside.

    Returns
    -------
    dict
        Specifications by layer, then by kind; None for kinds that stay electronic. All kinds are listed:
        which of them a layer has is known only when it runs (`watch_products`).
    """
    conversion = conversion_of(model)
    return {
        site.name: {
            kind: conversion.policy.specs(site.name, kind, conversion.specs) if site.included else None
            for kind in ProductKind
        }
        for site in sites_of(model)
    }


def sites_of(model: nn.Module) -> Iterator[Site]:
    """Yield the records of all converted layers of a model."""
    for module in model.modules():
        if _SITE in module.__dict__:
            yield module.__dict__[_SITE]


def conversion_of(model: nn.Module) -> Conversion:
    """Return the state that the layers of a converted model share; the model may be inside a wrapper."""
    site = next(sites_of(model), None)
    if site is None:
        msg = f"{type(model).__name__} is not converted; convert(model, system) first"
        raise WorkloadError(msg)
    return site.conversion


def _check_model(model: nn.Module, patterns: list[str], policy: Policy) -> None:
    """Refuse patterns that fit no module, and modules that cannot be converted."""
    names = [name for name, _ in model.named_modules()]
    unused = [pattern for pattern in patterns if not fnmatch.filter(names, pattern)]
    unused += [
        pattern
        for pattern in policy.patterns
        if not any(fits(pattern, name, kind) for name in names for kind in ProductKind)
    ]
    if unused:
        shown = ", ".join(name for name in names[:12] if name)
        msg = f"no module fits '{unused[0]}'; the model has {shown}{', ...' if len(names) > 12 else ''}"
        raise WorkloadError(msg)
    for name, module in model.named_modules():
        if _SITE in module.__dict__:
            msg = f"module '{name}' is converted already; take to_digital(model) first"
            raise WorkloadError(msg)
        # A module without weights may have a forward of its own: its products run in the layer around it.
        replaced = "forward" in module.__dict__ and (not name or next(module.parameters(), None) is not None)
        if replaced or isinstance(module, torch.jit.ScriptModule):
            msg = f"module '{name}' runs a forward that is not its class's; convert before wrapping it"
            raise WorkloadError(msg)


def _all_text(patterns: Iterable[object]) -> bool:
    return all(isinstance(pattern, str) for pattern in patterns)


def _belongs(name: str, patterns: Iterable[str] | None, *, default: bool) -> bool:
    """Return whether a module, or one around it, fits a pattern; `default` without patterns."""
    if patterns is None:
        return default
    parts = name.split(".")
    names = [".".join(parts[: count + 1]) for count in range(len(parts))]
    return any(fnmatch.fnmatchcase(each, pattern) for each in names for pattern in patterns)


def _converted_class(original: type[nn.Module]) -> type[nn.Module]:
    """Return the class, always the same, that is derived from a module's and runs its products on a core."""
    if original not in _CONVERTED:
        _CONVERTED[original] = _derive(original)
    return _CONVERTED[original]


def _derive(original: type[nn.Module]) -> type[nn.Module]:
    """Return a class of the same name whose `forward` opens a call and intercepts torch functions."""

    @functools.wraps(original.forward)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        outermost = current_frame() is None
        with entered(self.__dict__[_SITE], training=self.training, tensors=tensors):
            if not outermost:
                return original.forward(self, *args, **kwargs)
            with Interception():
                return original.forward(self, *args, **kwargs)

    members = {
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "__doc__": original.__doc__,
        "__reduce_ex__": _reduce,
        "forward": forward,
        _ORIGINAL: original,
    }
    return type(original.__name__, (original,), members)


def _reduce(self: nn.Module, protocol: int) -> tuple[Any, ...]:
    """Copy and pickle by the original class, as the derived one cannot be imported."""
    del protocol
    return _rebuild, (getattr(type(self), _ORIGINAL),), self.__getstate__()


def _rebuild(original: type[nn.Module]) -> nn.Module:
    """Return an uninitialised module of the class derived from `original`."""
    return nn.Module.__new__(_converted_class(original))


def _original_class(derived: type[nn.Module]) -> type[nn.Module]:
    """Return the class that a converted module had."""
    if _ORIGINAL not in derived.__dict__:
        msg = (
            f"{derived.__name__} was derived from a converted class; take to_digital before sharding a model"
        )
        raise WorkloadError(msg)
    return derived.__dict__[_ORIGINAL]


class KeyedModel(nn.Module):
    """Wrapper of a converted model whose first input is the key of its draws.

    Notes
    -----
    For `torch.export`, which keeps everything but inputs as constants, and for other programs that run a
    model without Python around it. ``torch.from_numpy(NoiseKey(seed=0, step=3).numbers)`` is such a key: the
    program draws the same as the model within ``noise_key(0, 3)``.
    """

    def __init__(self, model: nn.Module) -> None:
        """Wrap a model.

        Raises
        ------
        WorkloadError
            If it is not converted.
        """
        super().__init__()
        conversion_of(model)
        self.model = model

    def forward(self, key: torch.Tensor, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Run the model within a key.

        Parameters
        ----------
        key : torch.Tensor
            Value and part, int64, shape [2], on the CPU.
        *args, **kwargs
            Inputs of the model.
        """
        with opened(TensorKey(key)):
            return self.model(*args, **kwargs)


class StepwiseConverter:
    """Converter of models in place that advances their key after each step of the optimizer.

    Notes
    -----
    It answers torchtitan's `ModelConverter` protocol (``torchtitan/protocols/model_converter.py``):
    `convert`, `post_optimizer_hook`, `key_filter`, `state_dict_transform` and `format_adapter`. A
    configuration of torchtitan that builds it hands it the data-parallel rank as `part`, and the step at
    which a run resumes. Convert before sharding and compiling, as torchtitan does; a compiled model
    stays one graph, which follows the key without another compilation.

    Parameters
    ----------
    system : ProductSpecs, core, accelerator, system, or the name of a core
        Hardware that runs the products.
    seed : int
        Seed of all draws.
    step : int
        Step at which training starts or resumes.
    part : int
        Number of this process's part of the global batch (`NoiseKey.part`).
    alike : bool
        Whether a product has equally many rows in all processes (`NoiseKey.alike`).
    policy : Policy, optional
        Division of the products between core and electronics.
    exclude : iterable of str
        Patterns of modules that stay electronic.
    """

    def __init__(
        self,
        system: Hardware,
        *,
        seed: int,
        step: int = 0,
        part: int = 0,
        alike: bool = True,
        policy: Policy | None = None,
        exclude: Iterable[str] = (),
    ) -> None:
        self.system, self.policy, self.exclude = system, policy, tuple(exclude)
        self.key = NoiseKey(seed=seed, step=step, part=part, alike=alike)

    def convert(self, model: nn.Module) -> None:
        """Convert a model in place."""
        exclude = self.exclude or None
        convert(model, self.system, exclude=exclude, policy=self.policy, model_key=self.key, inplace=True)

    def post_optimizer_hook(self, model: nn.Module | list[nn.Module]) -> None:
        """Advance the key of the model, or of its pipeline stages, to the next step."""
        self.key = dataclasses.replace(self.key, step=self.key.step + 1)
        for part in model if isinstance(model, list) else [model]:
            set_model_key(part, self.key)

    def key_filter(self) -> Callable[[str], bool] | None:
        """Return None: the conversion adds no key to the state dict."""
        return None

    def state_dict_transform(self) -> Callable[[dict[str, Any], bool], dict[str, Any]] | None:
        """Return None: the state dict is saved as it is."""
        return None

    def format_adapter(self) -> type | None:
        """Return None: other formats of checkpoints need no adapter."""
        return None
