"""Precision that a system delivers to a model's products, photonic cores and number formats by one law.

The one currency is the executed signal-to-noise ratio on stated operands (`simulator.operands.statistics`);
over many products noise over signal is averaged with multiply-accumulates as weights. A laser is sized for
it, too.
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
"""Operands of a product that is no model's, where nobody names others; a choice."""
LENGTHS = (256, 4096, 16384)
"""Lengths of a sum at which a core's precision is told; a choice."""
ROWS = 128
"""Rows and columns of such a product; a choice."""
STORED = "rounding of stored operands"
KEPT = "rounding of kept operands"
"""Causes of noise."""
SHOWN_FORMATS = ("bf16", "fp8", "int8")
"""Number formats beside it; a choice."""


@dataclass(frozen=True, kw_only=True)
class ModelProduct:
    """All products of a step that are alike: of one name, phase and shape."""

    name: str
    """What it is, for people."""
    role: Role
    """What it is in a transformer."""
    phase: Phase
    """Forward, or one of the gradients."""
    rows: int
    """M."""
    length: int
    """K."""
    columns: int
    """N."""
    element_bytes: float
    """Bytes of an operand's element as the plan stores it."""
    macs: float
    """Multiply-accumulates of all of them."""

    def on(self, kind: OperandKind) -> tuple[Product, ...]:
        """Return the product with operands of a kind, as many as there are statistics of it."""
        found = statistics_of(kind, self.role, self.phase)
        return tuple(
            Product(
                operands=one,
                rows=self.rows,
                length=self.length,
                columns=self.columns,
                phase=self.phase,
                weight=self.macs / len(found),
            )
            for one in found
        )


_CAPTURED: Mapping[Role, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys((Role.ATTENTION_QKV, Role.RETRIEVAL_QKV), ("qkv", "query", "key", "value")),
        **dict.fromkeys((Role.ATTENTION_QUERIES, Role.RETRIEVAL_QUERIES), ("query", "qkv")),
        **dict.fromkeys((Role.ATTENTION_KEYS_VALUES, Role.RETRIEVAL_KEYS_VALUES), ("key", "value", "qkv")),
        Role.ATTENTION_LATENTS: ("qkv",),
        **dict.fromkeys(SCORES, ("scores",)),
        **dict.fromkeys(VALUES, ("values",)),
        **dict.fromkeys((Role.ATTENTION_OUTPUT, Role.RETRIEVAL_OUTPUT), ("projection",)),
        **dict.fromkeys((Role.MLP_GATE_UP, Role.MLP_UP, Role.MLP_ROUTER, Role.RETRIEVAL_UP), ("up",)),
        **dict.fromkeys((Role.MLP_DOWN, Role.RETRIEVAL_DOWN), ("down",)),
        **dict.fromkeys((Role.HEAD_JOIN, Role.HEAD_LOGITS), ("head",)),
    }
)
"""Captured products that a product of a model is like."""
_LINEAR = ("qkv", "query", "key", "value", "projection", "up", "down")
"""Captured products of which a layer without a name of its own may be any."""
_BOTH_CHANGE = SCORES | VALUES
"""Products of two activations: both gradients are those of an input, captured as the two phases."""


@functools.cache
def statistics_of(kind: OperandKind, role: Role, phase: Phase) -> tuple[Operands, ...]:
    """Return the statistics of the operands of a model's product, captured ones of each layer."""
    if kind is not OperandKind.CAPTURED:
        return (operands_of(kind),)
    wanted = _CAPTURED.get(role, _LINEAR)
    phases = {phase}
    if role in _BOTH_CHANGE and phase is Phase.GRAD_INPUT:
        phases = {Phase.GRAD_INPUT, Phase.GRAD_WEIGHT}
    found = tuple(one.operands for one in load_laws() if one.product in wanted and one.phase in phases)
    if not found:
        msg = f"no operands of '{role}' in phase {phase} were captured; name another kind of operands"
        raise ParameterError(msg)
    return found


def matmuls_of(operator: Operator) -> Iterator[tuple[MatMul, int]]:
    """Yield the products of an operator, each with how often it is run."""
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
    """Return the products of a step, alike ones together, largest first."""
    return together(executions_of(graph))


def executions_of(graph: StepGraph) -> Iterator[tuple[MatMul, int]]:
    """Yield the products of a step, each with how often one rank of each class runs it."""
    # Microbatches share their runs of operators, which are told apart by identity: hashing takes longer.
    runs: dict[int, Operator] = {}
    times: Counter[int] = Counter()
    for task in graph.tasks:
        operator = task.operator
        which = id(operator.items) if isinstance(operator, Run) else id(operator)
        runs.setdefault(which, operator)
        times[which] += task.multiplicity
    for which, operator in runs.items():
        for product, count in matmuls_of(operator):
            yield product, count * times[which]


def model_products(products: Iterable[MatMul]) -> tuple[ModelProduct, ...]:
    """Return single products in the same form, alike ones together."""
    return together((product, 1) for product in products)


def together(products: Iterable[tuple[MatMul, int]]) -> tuple[ModelProduct, ...]:
    """Return products, each with how often it is run, alike ones together, largest first."""
    found: dict[ModelProduct, float] = {}
    for product, count in products:
        one = ModelProduct(
            name=product.name,
            role=product.role,
            phase=product.phase,
            rows=product.m,
            length=product.k,
            columns=product.n,
            element_bytes=product.element_bytes,
            macs=1.0,
        )
        found[one] = found.get(one, 0.0) + float(product.macs * count)
    alike = [dataclasses.replace(one, macs=macs) for one, macs in found.items()]
    return tuple(sorted(alike, key=lambda one: -one.macs))


def told_kinds() -> tuple[OperandKind, ...]:
    """Return the kinds of operands that are told without a product's name: all but captured ones."""
    return tuple(kind for kind in OperandKind if kind is not OperandKind.CAPTURED)


def phase_of(kind: OperandKind) -> Phase:
    """Return the phase of a product with operands of a kind: gradients belong to the backward pass."""
    return Phase.GRAD_INPUT if kind is OperandKind.GRADIENTS else Phase.FORWARD


@dataclass(frozen=True, kw_only=True)
class PrecisionRow:
    """Signal-to-noise ratio of a core on one kind of operands and one length, beside number formats."""

    operands: OperandKind
    """Statistics of the operands."""
    length: int | None
    """K; None for captured operands, each product in its own length."""
    core_db: float
    """Of the core."""
    formats_db: dict[str, float]
    """Of each number format, by its name."""


def precision_table(core: Core, lengths: Sequence[int] = LENGTHS) -> tuple[PrecisionRow, ...]:
    """Return the precision of a core by operands and length, beside that of number formats.

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
            found = predicted(spec, operands, length, rows=ROWS, columns=ROWS).snr_db
            rows.append(PrecisionRow(operands=kind, length=length, core_db=found, formats_db=formats))
    return (*rows, _captured_row(core))


def _captured_row(core: Core) -> PrecisionRow:
    """Return the precision on all captured products together, multiply-accumulates as weights."""
    products = captured_products()
    formats = {name: format_precision(FORMATS[name], products).snr_db for name in SHOWN_FORMATS}
    found = core_precision(core, products).snr_db
    return PrecisionRow(operands=OperandKind.CAPTURED, length=None, core_db=found, formats_db=formats)


CAPTURED_LAYERS = 2
"""Layers of each captured model that are told together; a choice."""


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
    """Each kind of product, and its precision."""

    @functools.cached_property
    def total(self) -> Precision:
        """Of all products together, noise over signal averaged with multiply-accumulates as weights."""
        return average((product.macs, precision) for product, precision in self.parts)

    @property
    def snr_db(self) -> float:
        """Signal-to-noise ratio of all products together."""
        return self.total.snr_db

    def rows(self) -> list[dict[str, str | float]]:
        """Return a row for each kind of product, with its share of the work and what takes most."""
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
        Photonic, or a GPU: its format, of products whose operands are stored in one byte; of others bf16.
    products : sequence of ModelProduct
        As `products_of` returns them.
    kind : OperandKind
        Statistics of the operands.
    stored : NumberFormat, optional
        Format of a plan, which products beside light have as those of a GPU do, and to which operands of
        those in light are rounded where the plan stores them in one byte; bf16 without.
    kept : callable, optional
        Says of a role and a phase whether one operand has been kept in fp8 since the forward pass.

    Raises
    ------
    LinkError
        If a core's link does not close.
    """
    if system.photonic is None:
        form = FORMATS[system.multiplied_as]
        found = of_format(form, products, kind).parts
        return Delivered(operands=kind, parts=tuple(_from_kept(one, kind, form, kept) for one in found))
    form = stored or FORMATS["bf16"]
    lit, others = divided(products, system.light)
    light = tuple(_from_stored(one, kind, form) for one in of_core(system.photonic.core, lit, kind).parts)
    electronic = of_format(form, others, kind).parts
    return Delivered(
        operands=kind, parts=tuple(_from_kept(one, kind, form, kept) for one in (*light, *electronic))
    )


def _from_stored(
    part: tuple[ModelProduct, Precision], kind: OperandKind, stored: NumberFormat
) -> tuple[ModelProduct, Precision]:
    """Return a product in light, with the rounding of operands that are stored in one byte."""
    return _rounded(part, kind, stored, STORED, product_rounding) if _in_format(stored, part[0]) else part


def _from_kept(
    part: tuple[ModelProduct, Precision],
    kind: OperandKind,
    form: NumberFormat,
    kept: Callable[[Role, Phase], bool],
) -> tuple[ModelProduct, Precision]:
    """Return a product with the rounding of the operand, no gradient, that was kept in one byte."""
    product, _ = part
    if _in_format(form, product) or not kept(product.role, product.phase):
        return part
    second = product.phase is Phase.GRAD_INPUT
    return _rounded(part, kind, FORMATS["fp8"], KEPT, lambda a, b: b if second else a)


def _rounded(
    part: tuple[ModelProduct, Precision],
    kind: OperandKind,
    form: NumberFormat,
    cause: str,
    taken: Callable[[float, float], float],
) -> tuple[ModelProduct, Precision]:
    """Return a product with one more cause of noise: what is taken of the rounding of A and B to a format."""
    product, found = part
    alike = product.on(kind)
    noise = math.fsum(
        taken(
            *form.operand_rounding(
                one.operands, one.length, rows=one.rows, columns=one.columns, phase=one.phase
            )
        )
        / one.operands.coherence
        for one in alike
    )
    return product, Precision(noise={**found.noise, cause: noise / len(alike)})


def _in_format(form: NumberFormat, product: ModelProduct) -> bool:
    """Return whether a product's operands are stored in a narrow format."""
    return form.narrow and product.element_bytes < 2


def divided(
    products: Iterable[ModelProduct], light: LightShares | None
) -> tuple[tuple[ModelProduct, ...], tuple[ModelProduct, ...]]:
    """Return the products that run in light and those that do not, each with its share of the work.

    Parameters
    ----------
    products : iterable of ModelProduct
        As `products_of` returns them.
    light : LightShares or None
        What runs in light; None for all.
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
    """Return the precision that a number format delivers to products together, by their weights."""
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
        Whether products that a plan keeps in bf16 (attention and head of an fp8 plan) are in the format, too.
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
    """Return the decibels of a target: a number, or what a number format delivers to the same products.

    Parameters
    ----------
    target : str or float
        ``"fp8"``, ``"int8"`` or another of `electronic.formats.FORMATS`, in all products; or decibels,
        with or without the unit.
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
    """Return a core whose laser is just bright enough for a target over the products of a model.

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
        If no light reaches it.
    """
    return _sized(typing.cast("Hashable", core), target, tuple(products), kind)


@functools.lru_cache(maxsize=32)
def _sized(
    hashed: Hashable, target: str | float, products: tuple[ModelProduct, ...], kind: OperandKind
) -> Core:
    """Return the core sized once for all systems that have it: fabrics do not change its products."""
    core = typing.cast("Core", hashed)
    each = [one for product in products for one in product.on(kind)]
    return with_laser_for(core, target_db(target, products, kind), each)
