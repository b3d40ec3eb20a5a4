"""How the three products of training come out of a core: a frozen record with a JSON form, without torch."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from types import NoneType, UnionType
from typing import Any, TypeVar

from optical.execution.analog import AnalogSpec
from simulator.checks import check_range
from simulator.errors import ParameterError
from simulator.operators import Phase

_T = TypeVar("_T")


class Mode(StrEnum):
    """Where a core's errors enter training."""

    INFERENCE = "inference"
    """Only where no gradient is wanted: the model is trained digitally and run on the core."""
    AWARE = "aware"
    """In every forward product; the backward pass is digital: noise-aware training."""
    HARDWARE = "hardware"
    """In all three products: training on the core."""


@dataclass(frozen=True, kw_only=True)
class ProductSpecs:
    """What a core makes of a product and of its two gradient products.

    Notes
    -----
    Rows are executed in blocks of `row_block`, each with a gain, a scale and draws of its own, which hang on
    the block's place in the global batch. Any layout that gives whole blocks to processes so draws the same.
    """

    forward: AnalogSpec
    """C = A B."""
    grad_input: AnalogSpec
    """dA = dC B^T; and dB = A^T dC where B is an activation."""
    grad_weight: AnalogSpec
    """dB = A^T dC where B is a weight; the partial sums of row blocks are added digitally."""
    row_block: int = 256
    """Rows, over all matrices of a batch, that a core is given at a time, 1 or more."""
    exact_tiles: bool = False
    """Whether every analog sample of a sum is executed, rather than one draw with their summed variance."""
    texts: tuple[str, str, str] = field(init=False, repr=False, compare=False)
    """The three specifications as JSON, which is how compiled graphs carry them."""

    def __post_init__(self) -> None:
        check_range(self, "row_block", low=1)
        specs = (self.forward, self.grad_input, self.grad_weight)
        object.__setattr__(self, "texts", tuple(spec_to_json(spec) for spec in specs))

    @classmethod
    def ideal(cls) -> ProductSpecs:
        """Return the limit of infinite bits and power: exact products."""
        return cls.same(AnalogSpec.ideal())

    @classmethod
    def same(cls, spec: AnalogSpec, *, row_block: int = 256, exact_tiles: bool = False) -> ProductSpecs:
        """Return one specification for all three products."""
        return cls(
            forward=spec, grad_input=spec, grad_weight=spec, row_block=row_block, exact_tiles=exact_tiles
        )

    @classmethod
    def of(cls, analog: Callable[[Phase], AnalogSpec], *, row_block: int = 256) -> ProductSpecs:
        """Return what a core (`Core.analog`) makes of each phase.

        Parameters
        ----------
        analog : callable
            Specification of a phase.
        row_block : int
            Rows that the core is given at a time.
        """
        return cls(
            forward=analog(Phase.FORWARD),
            grad_input=analog(Phase.GRAD_INPUT),
            grad_weight=analog(Phase.GRAD_WEIGHT),
            row_block=row_block,
        )

    def within(self, mode: Mode, *, training: bool) -> ProductSpecs:
        """Return what acts in a mode, while a model trains or while it is only run.

        Parameters
        ----------
        mode : Mode
            Where errors enter.
        training : bool
            Whether the model is in training mode.
        """
        if mode is Mode.HARDWARE:
            return self
        exact = AnalogSpec.ideal()
        forward = exact if mode is Mode.INFERENCE and training else self.forward
        return dataclasses.replace(self, forward=forward, grad_input=exact, grad_weight=exact)

    def to_json(self) -> str:
        """Return the canonical JSON text: keys sorted, infinities as text."""
        return record_to_json(self)

    @classmethod
    def from_json(cls, text: str) -> ProductSpecs:
        """Return what `to_json` wrote.

        Raises
        ------
        ParameterError
            If the text is no JSON, or a key is missing, unknown or of the wrong kind.
        """
        return record_from_json(cls, text)


def spec_to_json(spec: AnalogSpec) -> str:
    """Return the canonical JSON text of one specification."""
    return record_to_json(spec)


@functools.lru_cache(maxsize=1024)
def spec_from_json(text: str) -> AnalogSpec:
    """Return the specification that `spec_to_json` wrote; equal texts give the same object.

    Raises
    ------
    ParameterError
        If the text is no JSON, or a key is missing, unknown or of the wrong kind.
    """
    return record_from_json(AnalogSpec, text)


@functools.lru_cache(maxsize=1024)
def record_to_json(value: object) -> str:
    """Return the canonical JSON text of a frozen record of records, numbers, choices and texts."""
    return json.dumps(_plain(value), sort_keys=True, allow_nan=False)


def _plain(value: object) -> object:
    """Return a frozen record as plain data; infinite numbers as text, since JSON has none."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value) if item.init
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0.0 else "-inf"
    return value


def record_from_json(kind: type[_T], text: str) -> _T:
    """Return the record of a kind that `record_to_json` wrote.

    Raises
    ------
    ParameterError
        If the text is no JSON, or a key is missing, unknown or of the wrong kind.
    """
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        msg = (
            f"{kind.__name__}: line {error.lineno}, column {error.colno}: {error.msg}; write it with to_json"
        )
        raise ParameterError(msg) from None
    return typing.cast("_T", _read(kind, content, kind.__name__))


def _read(kind: Any, content: Any, where: str) -> object:  # noqa: ANN401
    """Return plain data as a value of a kind that a field is declared with."""
    if isinstance(kind, UnionType):
        if content is None:
            return None
        (kind,) = (choice for choice in typing.get_args(kind) if choice is not NoneType)
    if dataclasses.is_dataclass(kind):
        return _record(typing.cast("type", kind), content, where)
    if typing.get_origin(kind) is tuple:
        if not isinstance(content, list):
            msg = f"{where} cannot be {content!r}; it takes a list"
            raise ParameterError(msg)
        return tuple(_read(typing.get_args(kind)[0], item, where) for item in content)
    try:
        value = kind(content)
    except (TypeError, ValueError):
        value = None
    plain = (int, float) if kind is float else (kind,)
    infinite = kind is float and content in ("inf", "-inf")
    strange = type(content) not in plain and not infinite
    if value is None or (kind in (int, bool, float, str) and strange):
        msg = f"{where} cannot be {content!r}; it takes a {kind.__name__}"
        raise ParameterError(msg)
    return value


def _record(kind: type, content: Any, where: str) -> object:  # noqa: ANN401
    fields = {item.name: item for item in dataclasses.fields(kind) if item.init}
    if not isinstance(content, Mapping):
        msg = f"{where} must hold {', '.join(fields)}; got {content!r}"
        raise ParameterError(msg)
    unknown = [key for key in content if key not in fields]
    missing = [
        name
        for name, item in fields.items()
        if name not in content
        and item.default is dataclasses.MISSING
        and item.default_factory is dataclasses.MISSING
    ]
    if unknown or missing:
        wrong = f"has no field '{unknown[0]}'" if unknown else f"lacks '{missing[0]}'"
        msg = f"{where} {wrong}; its fields are {', '.join(fields)}"
        raise ParameterError(msg)
    hints = typing.get_type_hints(kind)
    return kind(**{key: _read(hints[key], value, f"{where}.{key}") for key, value in content.items()})
