"""Division of a model between a core and electronics: a frozen record with a JSON form."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from optical.cores import load_core
from optical.execution import AnalogSpec, Mode, ProductSpecs
from simulator.errors import ParameterError
from simulator.files import record_from_json, record_to_json
from simulator.operators import Phase


class ProductKind(StrEnum):
    """Role of a product in its layer."""

    LINEAR = "linear"
    """Activations by a weight, the projections of attention and recurrent layers' inputs included."""
    CONVOLUTION = "convolution"
    """Patches by a weight."""
    RECURRENCE = "recurrence"
    """A recurrent layer's state by a weight, once per time step."""
    EXPERTS = "experts"
    """Tokens by their expert's weight, where one operation runs all experts (`grouped_mm`)."""
    SCORES = "scores"
    """Queries by keys."""
    VALUES = "values"
    """Attention weights by values."""
    MATMUL = "matmul"
    """Any other product of two activations, also of attention that is written out with `matmul`."""


@dataclass(frozen=True, kw_only=True)
class ProductException:
    """Products with specifications of their own."""

    pattern: str
    """Pattern of names of products, as in `Policy.electronic`."""
    specs: ProductSpecs
    """Specifications of these products on the core."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Division of a model between a core and electronics.

    Notes
    -----
    A product is named by its layer and its kind, ``blocks.0.attention:scores``. A pattern has the wildcards
    of a shell, and fits if it fits the name or the layer alone; ``*`` also covers dots. The first exception
    that fits holds. Norms, softmax and look-ups hold no product and stay electronic in any case; so does
    what sums nothing (K = 1), such as the angles of rotary embeddings.
    """

    mode: Mode = Mode.HARDWARE
    """Passes in which errors enter: only those without training, forward ones, or all products."""
    electronic: tuple[str, ...] = ()
    """Patterns of products that are not run on the core, e.g. ``("lm_head", "*:scores")``."""
    exceptions: tuple[ProductException, ...] = ()
    """Products with specifications of their own."""

    def __post_init__(self) -> None:
        if self.mode not in tuple(Mode):
            msg = f"Policy: no mode '{self.mode}'; modes are {', '.join(Mode)}"
            raise ParameterError(msg)
        object.__setattr__(self, "mode", Mode(self.mode))
        for name in ("electronic", "exceptions"):
            value = getattr(self, name)
            if isinstance(value, str) or not isinstance(value, Iterable):
                msg = f"Policy: {name} takes several, as a tuple; got {value!r}: write ({value!r},)"
                raise ParameterError(msg)
            object.__setattr__(self, name, tuple(value))
        known = tuple(ProductKind)
        for pattern in self.patterns:
            kind = pattern.partition(":")[2]
            if ":" in pattern and not fnmatch.filter(known, kind):
                msg = f"Policy: no product is of the kind '{kind}' ({pattern}); kinds are {', '.join(known)}"
                raise ParameterError(msg)

    def specs(self, layer: str, kind: ProductKind, default: ProductSpecs) -> ProductSpecs | None:
        """Return the specifications of a kind of product of a layer, or None if it is electronic."""
        if any(fits(pattern, layer, kind) for pattern in self.electronic):
            return None
        own = (exception.specs for exception in self.exceptions if fits(exception.pattern, layer, kind))
        return next(own, default)

    @property
    def patterns(self) -> tuple[str, ...]:
        """All patterns, in the order in which they are tried."""
        return (*self.electronic, *(exception.pattern for exception in self.exceptions))

    def pattern(self, layer: str, kind: ProductKind) -> str | None:
        """Return the first pattern that fits a kind of product of a layer, or None."""
        return next((pattern for pattern in self.patterns if fits(pattern, layer, kind)), None)

    def to_json(self) -> str:
        """Return the canonical JSON text: keys sorted, infinities as text."""
        return record_to_json(self)

    @classmethod
    def from_json(cls, text: str) -> Policy:
        """Return what `to_json` wrote.

        Raises
        ------
        ParameterError
            If the text is no JSON, or a key is missing, unknown or of the wrong kind.
        """
        return record_from_json(cls, text)


class AnalogSource(Protocol):
    """A photonic core."""

    def analog(self, phase: Phase) -> AnalogSpec:
        """Return the errors of products of a phase."""
        ...


class PhotonicAccelerator(Protocol):
    """An accelerator of cores."""

    @property
    def core(self) -> AnalogSource:
        """One of its cores, which are all alike."""
        ...


class PhotonicSystem(Protocol):
    """A system of accelerators, photonic or not."""

    @property
    def photonic(self) -> PhotonicAccelerator | None:
        """Its photonic accelerator, or None."""
        ...

    @property
    def unlit(self) -> str | None:
        """Reason why its products cannot be executed yet, as while its laser is not sized; else None."""
        ...


Hardware = ProductSpecs | AnalogSource | PhotonicAccelerator | PhotonicSystem | str
"""Hardware that products can be run on; text is a core's name."""


def specs_of(system: Hardware) -> ProductSpecs:
    """Return the specifications of the products of a system, an accelerator or a core.

    Raises
    ------
    ParameterError
        If there is no photonic core in it, none of that name, or its laser is not sized yet.
    """
    if isinstance(system, ProductSpecs):
        return system
    if isinstance(system, str):
        system = load_core(system)
    if (reason := getattr(system, "unlit", None)) is not None:
        raise ParameterError(reason)
    unit = getattr(system, "photonic", system)
    if not callable(getattr(unit, "analog", None)):  # an accelerator, or a core of another number format
        unit = getattr(unit, "core", None)
    analog = getattr(unit, "analog", None)
    if not callable(analog):
        name = getattr(system, "name", type(system).__name__)
        msg = f"'{name}' has no photonic core to convert to; take a photonic system, a core or ProductSpecs"
        raise ParameterError(msg)
    return ProductSpecs.of(analog)


def fits(pattern: str, layer: str, kind: ProductKind) -> bool:
    """Return whether a pattern fits a kind of product of a layer."""
    return fnmatch.fnmatchcase(layer, pattern) or fnmatch.fnmatchcase(f"{layer}:{kind}", pattern)
