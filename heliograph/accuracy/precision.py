"""Precision that a system delivers to a model's products, for photonic cores and number formats alike.

Precision is the executed signal-to-noise ratio on stated operands (`simulator.operands.statistics`). Over
many products the noise-to-signal ratio is averaged, weighted by multiply-accumulates. `delivered` computes it
for a system, `sized_core` sizes a laser for a target.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from electronic.formats import FORMATS, NumberFormat, format_named
from heliograph.systems.names import DEFAULT_OPERANDS
from heliograph.systems.system import LightShares
from optical.cores.core import Core
from optical.cores.sizing import Product, core_precision, with_laser_for
from optical.execution.precision import predicted
from simulator.errors import ParameterError
from simulator.operands.captured import load_laws
from simulator.operands.statistics import (
    OperandKind,
    Operands,
    Precision,
    average,
    operands_of,
    product_rounding,
)
from simulator.operators import SCORES, VALUES, MatMul, Operator, Overlapped, Phase, Role, StepGraph
from simulator.operators import Sequence as Run

if TYPE_CHECKING:
    from heliograph.systems.system import System

PLAIN_OPERANDS = OperandKind.GAUSSIAN
"""Default operands of a product outside any model; a choice."""
LENGTHS = (256, 4096, 16384)
"""Lengths of the sum in `precision_table`; a choice."""
ROWS = 128
"""Rows and columns of the products in `precision_table`; a choice."""
STORED = "rounding of stored operands"
"""Cause of noise: a plan stores operands of products in light in one byte."""
KEPT = "rounding of kept operands"
"""Cause of noise: activations are kept in fp8 from the forward to the backward pass."""
SHOWN_FORMATS = ("bf16", "fp8", "int8")
"""Number formats in `precision_table`; a choice."""


@dataclass(frozen=True, kw_only=True)
class ModelProduct:
    """All products of a step with the same name, phase and shape."""

    name: str
    """Name shown in tables."""
    role: Role
    """Role in a transformer."""
    phase: Phase
    """Forward, or one of the gradients."""
    rows: int
    """Rows of A, M."""
    length: int
    """Length of the sum, K."""
    columns: int
    """Columns of B, N."""
    element_bytes: float
    """Bytes of an operand's element as the plan stores it."""
    macs: float
    """Multiply-accumulates of all of them together."""

    def on(self, kind: OperandKind) -> tuple[Product, ...]:
        """Return the product with each of the statistics that a kind of operands has for it.

        The multiply-accumulates, as weights, are divided evenly among them.
        """
        statistics = statistics_of(kind, self.role, self.phase)
        return tuple(
            Product(
                operands=operands,
                rows=self.rows,
                length=self.length,
                columns=self.columns,
                phase=self.phase,
                weight=self.macs / len(statistics),
            )
            for operands in statistics
        )


_CAPTURED: Mapping[Role, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(
            (Role.ATTENTION_QKV, Role.RETRIEVAL_QKV, Role.STATE_INPUT), ("qkv", "query", "key", "value")
        ),
        **dict.fromkeys((Role.ATTENTION_QUERIES, Role.RETRIEVAL_QUERIES), ("query", "qkv")),
        **dict.fromkeys((Role.ATTENTION_KEYS_VALUES, Role.RETRIEVAL_KEYS_VALUES), ("key", "value", "qkv")),
        Role.ATTENTION_LATENTS: ("qkv",),
        **dict.fromkeys(SCORES, ("scores",)),
        **dict.fromkeys(VALUES, ("values",)),
        **dict.fromkeys((Role.ATTENTION_OUTPUT, Role.RETRIEVAL_OUTPUT, Role.STATE_OUTPUT), ("projection",)),
        **dict.fromkeys((Role.MLP_GATE_UP, Role.MLP_UP, Role.MLP_ROUTER, Role.RETRIEVAL_UP), ("up",)),
        **dict.fromkeys((Role.MLP_DOWN, Role.RETRIEVAL_DOWN), ("down",)),
        **dict.fromkeys((Role.HEAD_JOIN, Role.HEAD_LOGITS), ("head",)),
    }
)
"""Captured products whose statistics stand for a product of a model, by its role."""
_LINEAR = ("qkv", "query", "key", "value", "projection", "up", "down")
"""Captured products whose statistics stand for a linear layer of any other role."""
_TWO_ACTIVATIONS = SCORES | VALUES
"""Products of two activations: both gradients are gradients of an input, but were captured as two phases."""


@functools.cache
def statistics_of(kind: OperandKind, role: Role, phase: Phase) -> tuple[Operands, ...]:
    """Return the statistics of a model's product: of a captured kind, those of each matching capture."""
    if kind is not OperandKind.CAPTURED:
        return (operands_of(kind),)
    wanted = _CAPTURED.get(role, _LINEAR)
    phases = {phase}
    if role in _TWO_ACTIVATIONS and phase is Phase.GRAD_INPUT:
        phases = {Phase.GRAD_INPUT, Phase.GRAD_WEIGHT}
    captured = tuple(law.operands for law in load_laws() if law.product in wanted and law.phase in phases)
    if not captured:
        msg = f"no operands of '{role}' in phase {phase} were captured; name another kind of operands"
        raise ParameterError(msg)
    return captured


def matmuls_of(operator: Operator) -> Iterator[tuple[MatMul, int]]:
    """Yield the products of an operator, each with the number of times it runs."""
    match operator:
        case MatMul():
            yield operator, 1
        case Overlapped():
            yield operator.product, operator.pieces
        case Run():
            for item, repeat in operator.items:
                for product, count in matmuls_of(item):
                    yield product, count * repeat
        case _:
            return


def products_of(graph: StepGraph) -> tuple[ModelProduct, ...]:
    """Return the products of a step, those of one name, phase and shape together, largest first."""
    return together(executions_of(graph))


def executions_of(graph: StepGraph) -> Iterator[tuple[MatMul, int]]:
    """Yield the products of a step, each with the number of times that one rank of each class runs it.

    Microbatches share operators; these are identified by `id`, since hashing them takes longer.
    """
    operators: dict[int, Operator] = {}
    times: Counter[int] = Counter()
    for task in graph.tasks:
        operator = task.operator
        key = id(operator.items) if isinstance(operator, Run) else id(operator)
        operators.setdefault(key, operator)
        times[key] += task.multiplicity
    for key, operator in operators.items():
        for product, count in matmuls_of(operator):
            yield product, count * times[key]


def model_products(products: Iterable[MatMul]) -> tuple[ModelProduct, ...]:
    """Return products as those of a model that runs each once."""
    return together((product, 1) for product in products)


def together(products: Iterable[tuple[MatMul, int]]) -> tuple[ModelProduct, ...]:
    """Return products, given with the number of runs, summed by name, phase and shape, largest first."""
    macs_of: dict[ModelProduct, float] = {}
    for product, count in products:
        kind = ModelProduct(
            name=product.name,
            role=product.role,
            phase=product.phase,
            rows=product.m,
            length=product.k,
            columns=product.n,
            element_bytes=product.element_bytes,
            macs=1.0,
        )
        macs_of[kind] = macs_of.get(kind, 0.0) + float(product.macs * count)
    summed = [dataclasses.replace(kind, macs=macs) for kind, macs in macs_of.items()]
    return tuple(sorted(summed, key=lambda product: -product.macs))


def told_kinds() -> tuple[OperandKind, ...]:
    """Return the kinds of operands that are the same for every product: all but captured ones."""
    return tuple(kind for kind in OperandKind if kind is not OperandKind.CAPTURED)


def phase_of(kind: OperandKind) -> Phase:
    """Return the phase in which operands of a kind occur: gradients in the backward pass."""
    return Phase.GRAD_INPUT if kind is OperandKind.GRADIENTS else Phase.FORWARD


@dataclass(frozen=True, kw_only=True)
class PrecisionRow:
    """Signal-to-noise ratios of a core and of number formats on one kind of operands and one length."""

    operands: OperandKind
    """Statistics of the operands."""
    length: int | None
    """Length of the sum; None for captured operands, where each product has its own."""
    core_db: float
    """Signal-to-noise ratio of the core."""
    formats_db: dict[str, float]
    """Signal-to-noise ratio of each number format, by its name."""


def precision_table(core: Core, lengths: Sequence[int] = LENGTHS) -> tuple[PrecisionRow, ...]:
    """Return the precision of a core and of number formats by operands and length.

    Raises
    ------
    LinkError
        If its link does not close.
    """
    rows = []
    for kind in told_kinds():
        operands, phase = operands_of(kind), phase_of(kind)
        spec = core.analog(phase)
        for length in lengths:
            formats = {
                name: FORMATS[name].predicted(operands, length, rows=ROWS, columns=ROWS, phase=phase).snr_db
                for name in SHOWN_FORMATS
            }
            core_db = predicted(spec, operands, length, rows=ROWS, columns=ROWS).snr_db
            rows.append(PrecisionRow(operands=kind, length=length, core_db=core_db, formats_db=formats))
    products = captured_products()
    formats = {name: format_precision(FORMATS[name], products).snr_db for name in SHOWN_FORMATS}
    core_db = core_precision(core, products).snr_db
    captured = PrecisionRow(operands=OperandKind.CAPTURED, length=None, core_db=core_db, formats_db=formats)
    return (*rows, captured)


CAPTURED_LAYERS = 2
"""Layers of each captured model in `captured_products`; a choice."""


def captured_products() -> tuple[Product, ...]:
    """Return the products of the first `CAPTURED_LAYERS` of each captured model, in their own shapes."""
    return tuple(
        Product(
            operands=one.operands,
            rows=one.m,
            length=one.k,
            columns=one.n,
            phase=one.phase,
            weight=float(one.m * one.k * one.n),
        )
        for one in load_laws()
        if one.layer < CAPTURED_LAYERS
    )


@dataclass(frozen=True, kw_only=True)
class Delivered:
    """Precision that a machine delivers to the products of a model."""

    operands: OperandKind
    """Statistics of the operands."""
    parts: tuple[tuple[ModelProduct, Precision], ...]
    """Products, each with its precision."""

    @functools.cached_property
    def total(self) -> Precision:
        """Precision of all products together, weighted by multiply-accumulates."""
        return average((product.macs, precision) for product, precision in self.parts)

    @property
    def snr_db(self) -> float:
        """Signal-to-noise ratio of all products together."""
        return self.total.snr_db

    def rows(self) -> list[dict[str, str | float]]:
        """Return a row for each product, with its share of the work and the cause of most noise."""
        whole = sum(product.macs for product, _ in self.parts)
        return [
            {
                "product": product.name,
                "phase": str(product.phase),
                "rows": product.rows,
                "length": product.length,
                "columns": product.columns,
                "share": product.macs / whole,
                "snr_db": precision.snr_db,
                "worst": precision.worst,
            }
            for product, precision in self.parts
        ]


def delivered(
    system: System,
    products: Sequence[ModelProduct],
    kind: OperandKind = DEFAULT_OPERANDS,
    *,
    stored: NumberFormat | None = None,
    kept: Callable[[Role, Phase], bool] = lambda *_: False,
) -> Delivered:
    """Return the precision that a system delivers to the products of a model.

    Parameters
    ----------
    system : System
        The system. A GPU uses its format for products whose operands are stored in one byte, else bf16.
    products : sequence of ModelProduct
        As `products_of` returns them.
    kind : OperandKind
        Statistics of the operands.
    stored : NumberFormat, optional
        Format of the plan of a photonic system, bf16 by default: that of its electronic products, and that to
        which operands of products in light are rounded where the plan stores them in one byte.
    kept : callable, optional
        From a role and a phase to whether one operand was kept in fp8 since the forward pass.

    Raises
    ------
    LinkError
        If a core's link does not close.
    """
    in_light: Sequence[ModelProduct] = ()
    if system.photonic is None:
        form, others = FORMATS[system.multiplied_as], tuple(products)
    else:
        form = stored or FORMATS["bf16"]
        in_light, others = divided(products, system.light)
    light = of_core(system.photonic.core, in_light, kind).parts if system.photonic else ()
    parts = []
    for place, (product, precision) in enumerate((*light, *of_format(form, others, kind).parts)):
        more = {}
        if _in_format(form, product):
            if place < len(light):  # both operands are rounded as they are stored
                more[STORED] = _rounding(product, kind, form)
        elif kept(product.role, product.phase):  # the operand that is no gradient
            side = 1 if product.phase is Phase.GRAD_INPUT else 0
            more[KEPT] = _rounding(product, kind, FORMATS["fp8"], side)
        parts.append((product, Precision(noise={**precision.noise, **more})))
    return Delivered(operands=kind, parts=tuple(parts))


def _rounding(product: ModelProduct, kind: OperandKind, form: NumberFormat, side: int | None = None) -> float:
    """Return the noise-to-signal ratio of a product of which A (side 0), B (1) or both are rounded."""
    variants, noise = product.on(kind), []
    for one in variants:
        ratios = form.operand_rounding(
            one.operands, one.length, rows=one.rows, columns=one.columns, phase=one.phase
        )
        noise.append((product_rounding(*ratios) if side is None else ratios[side]) / one.operands.coherence)
    return math.fsum(noise) / len(variants)


def _in_format(form: NumberFormat, product: ModelProduct) -> bool:
    """Return whether a product's operands are stored in a format, if it is a narrow one."""
    return form.narrow and product.element_bytes < 2


def divided(
    products: Iterable[ModelProduct], light: LightShares | None
) -> tuple[tuple[ModelProduct, ...], tuple[ModelProduct, ...]]:
    """Return the products in light and the electronic ones, each with its part of the multiply-accumulates.

    Parameters
    ----------
    products : iterable of ModelProduct
        As `products_of` returns them.
    light : LightShares or None
        Share of each kind that runs in light; None if all do.
    """
    if light is None:
        return tuple(products), ()
    shares = [(one, light.of(one.role, one.phase)) for one in products]
    return (
        tuple(dataclasses.replace(one, macs=one.macs * share) for one, share in shares if share > 0.0),
        tuple(
            dataclasses.replace(one, macs=one.macs * (1.0 - share)) for one, share in shares if share < 1.0
        ),
    )


def of_core(core: Core, products: Sequence[ModelProduct], kind: OperandKind = DEFAULT_OPERANDS) -> Delivered:
    """Return the precision that a photonic core delivers to the products of a model."""
    parts = tuple((product, core_precision(core, product.on(kind))) for product in products)
    return Delivered(operands=kind, parts=parts)


def format_precision(form: NumberFormat, products: Iterable[Product]) -> Precision:
    """Return the precision that a number format delivers to products, averaged by their weights."""
    return average(
        (
            one.weight,
            form.predicted(one.operands, one.length, rows=one.rows, columns=one.columns, phase=one.phase),
        )
        for one in products
    )


def of_format(
    number_format: NumberFormat,
    products: Sequence[ModelProduct],
    kind: OperandKind = DEFAULT_OPERANDS,
    *,
    everywhere: bool = False,
) -> Delivered:
    """Return the precision that a number format delivers to the products of a model.

    Parameters
    ----------
    number_format : NumberFormat
        The format.
    products : sequence of ModelProduct
        As `products_of` returns them.
    kind : OperandKind
        Statistics of the operands.
    everywhere : bool
        Whether the format also holds for products that a plan keeps in bf16 (attention and head in fp8).
    """
    parts = []
    for product in products:
        kept = number_format.narrow and product.element_bytes >= 2 and not everywhere
        form = FORMATS["bf16"] if kept else number_format
        parts.append((product, format_precision(form, product.on(kind))))
    return Delivered(operands=kind, parts=tuple(parts))


def target_db(
    target: str | float, products: Sequence[ModelProduct], kind: OperandKind = DEFAULT_OPERANDS
) -> float:
    """Return the signal-to-noise ratio of a precision target in dB.

    Parameters
    ----------
    target : str or float
        A format of `electronic.formats.FORMATS` such as ``"fp8"``, whose ratio in all of the products is the
        target; or decibels, with or without the unit.
    products : sequence of ModelProduct
        As `products_of` returns them.
    kind : OperandKind
        Statistics of the operands.

    Raises
    ------
    ParameterError
        If it is neither.
    """
    if not isinstance(target, str):
        return float(target)
    text = target.strip()
    try:
        return float(text.lower().removesuffix("db"))
    except ValueError:
        pass
    return of_format(format_named(text), products, kind, everywhere=True).snr_db


def sized_core(
    core: Core, target: str | float, products: Sequence[ModelProduct], kind: OperandKind = DEFAULT_OPERANDS
) -> Core:
    """Return a core with the least laser power that reaches a precision target over a model's products.

    Parameters
    ----------
    core : Core
        Any core.
    target : str or float
        As `target_db` takes it.
    products : sequence of ModelProduct
        As `products_of` returns them.
    kind : OperandKind
        Statistics of the operands.

    Raises
    ------
    LinkError
        If no laser power reaches it.
    """
    return _sized(typing.cast("Hashable", core), target, tuple(products), kind)


@functools.lru_cache(maxsize=32)
def _sized(
    hashed: Hashable, target: str | float, products: tuple[ModelProduct, ...], kind: OperandKind
) -> Core:
    """Return a sized core, cached for systems that differ in their fabric only."""
    core = typing.cast("Core", hashed)
    each = [one for product in products for one in product.on(kind)]
    return with_laser_for(core, target_db(target, products, kind), each)
