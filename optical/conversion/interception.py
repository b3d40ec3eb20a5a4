"""Interception of every torch function that a converted layer calls; those with products go to the core.

A watch counts the products by where they were run, so that none escapes unseen.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from optical.conversion.frames import Frame, current_frame, current_product, running
from optical.conversion.policy import ProductKind
from optical.conversion.products import (
    MULTI_HEAD_ATTENTION,
    Cell,
    cell_function,
    chain,
    convolution,
    distances,
    einsum,
    grouped,
    inner,
    layer_function,
    linear,
    matmul,
    matmul_add,
    matmul_add_in_place,
    reversed_matmul,
    scaled_dot_product_attention,
    sum_matmul_add,
    tensordot,
    transposed_convolution,
    vecdot,
)
from simulator.errors import WorkloadError

CORE_NAMESPACE = "heliograph"
"""Namespace of the operators that a core runs."""
_PRODUCTS = (
    "mm bmm addmm baddbmm addmv mv dot vdot addbmm linear matmul bilinear "
    "_convolution lstm gru rnn _int_mm _grouped_mm _scaled_mm _scaled_grouped_mm "
    "_native_multi_head_attention _transformer_encoder_layer_fwd _trilinear _cudnn_rnn _euclidean_dist "
    "_addmm_activation linalg_matrix_exp hspmm sspaddmm sparse_sampled_addmm"
).split()
_BY_START = tuple(
    "_scaled_dot_product _thnn _flash_attention _efficient_attention mkldnn_ _sparse_addmm _sparse_mm "
    "_sparse_sparse_matmul _sparse_semi_structured _weight_int _dyn_quant_matmul _scaled_mm_v "
    "_scaled_grouped_mm_v conv linear_".split()
)


def operator_of(func: Callable[..., Any]) -> tuple[str, str]:
    """Return namespace and name of an operator that a dispatch mode is shown, without its overload."""
    space, _, name = str(func).partition(".")
    return space, name.partition(".")[0]


def is_product(operator: str) -> bool:
    """Return whether an operator of torch, without its namespace, multiplies matrices.

    Factorizations of matrices and solutions of equations are no products.
    """
    if "prepack" in operator or "unpack" in operator:
        return False
    return operator.removesuffix("_") in _PRODUCTS or operator.startswith(_BY_START)


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


@dataclass(frozen=True)
class _Replacement:
    """Replacement of a function of torch."""

    run: Callable[..., Any]
    """Takes the call of the layer, then what the function takes."""
    kinds: tuple[ProductKind, ...]
    """Products in it; where all are electronic, the function itself is run."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What the function calls its arguments, and what `run` does, where they differ."""


class Interception(TorchFunctionMode):
    """Runs the products of the innermost converted layer as its policy says."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        del types
        kwargs, frame = kwargs or {}, current_frame()
        if frame is not None and _picks_by_value(func, args):
            frame.ragged = frame.picks = True
        if frame is None or not (func in _REPLACED or func in _WITHOUT_ROAD or _is_called_by_name(func)):
            if func is Tensor.unflatten and torch.compiler.is_compiling():
                # Compilers know this method by its name, but cannot see through the function itself.
                return args[0].unflatten(*args[1:], **kwargs)
            return func(*args, **kwargs)
        if func not in _REPLACED:
            return _run_without_road(frame, func, args, kwargs)
        frame.begin()
        replacement = _REPLACED[func]
        if frame.is_electronic(*replacement.kinds):
            with running(f"{frame.site.name}:{replacement.kinds[-1]}", electronic=True):
                return func(*args, **kwargs)
        if func is functional.multi_head_attention_forward:
            return self._attend(frame, *args, **kwargs)
        kwargs = {replacement.names.get(name, name): value for name, value in kwargs.items()}
        return replacement.run(frame, *args, **kwargs)

    def _attend(self, frame: Frame, query: Tensor, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Run torch's attention, which has the batch in the second dimension, product by product."""
        frame.attention = [ProductKind.SCORES, ProductKind.VALUES]
        frame.samples = query.shape[1] if query.dim() > 2 else 1
        try:
            with self:
                return MULTI_HEAD_ATTENTION(query, *args, **kwargs)
        finally:
            frame.attention, frame.samples = [], 1


def _is_called_by_name(func: Callable[..., Any]) -> bool:
    """Return whether a function is an operator with products, as those of quantised layers are called."""
    return isinstance(func, OpOverload | OpOverloadPacket) and is_product(operator_of(func)[1])


def _picks_by_value(func: Callable[..., Any], args: Sequence[Any]) -> bool:
    """Return whether the shape of what a function gives, or of what is made with it, may hang on values.

    Parameters
    ----------
    func : callable
        A function of torch, as a `TorchFunctionMode` meets it.
    args : sequence
        What it is given by place.

    Experts find their tokens so: by `nonzero`, ``where`` of one tensor, a mask, or by counts that Python
    reads. An index of integers has rows of its own shape, and is no such function.
    """
    if func in _WHERE:
        return len(args) == 1
    if func is Tensor.__getitem__:
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        return any(_is_mask(one) or _is_cut_by_value(one) for one in index)
    return func in _BY_VALUE


def _is_mask(one: object) -> bool:
    return isinstance(one, Tensor) and one.dtype in (torch.bool, torch.uint8)


def _is_cut_by_value(one: object) -> bool:
    return isinstance(one, slice) and (isinstance(one.start, Tensor) or isinstance(one.stop, Tensor))


def _run_without_road(
    frame: Frame, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:  # noqa: ANN401
    """Run a function whose products cannot go to a core, if the layer is electronic."""
    if frame.is_electronic(*ProductKind):
        with running(f"{frame.site.name}:{func.__name__}", electronic=True):
            return func(*args, **kwargs)
    msg = (
        f"'{frame.site.name}' calls {func.__name__}, whose products cannot be run on a core; "
        f"exclude the layer or name it in Policy.electronic"
    )
    raise WorkloadError(msg)


def _table() -> dict[Callable[..., Any], _Replacement]:
    """Return what is replaced by what."""
    kind = ProductKind
    dense = (kind.LINEAR, kind.MATMUL)
    added = _Replacement(matmul_add, dense, _ADDED_NAMES)
    added_in_place = _Replacement(matmul_add_in_place, dense, _ADDED_NAMES)
    added_sum = _Replacement(sum_matmul_add, dense, _ADDED_NAMES)
    plain = _Replacement(matmul, dense, _PLAIN_NAMES)
    chained = _Replacement(chain, dense)
    table: dict[Callable[..., Any], _Replacement] = {
        functional.linear: _Replacement(linear, (kind.LINEAR,)),
        Tensor.__rmatmul__: _Replacement(reversed_matmul, dense),
        torch.addbmm: added_sum,
        Tensor.addbmm: added_sum,
        torch.einsum: _Replacement(einsum, dense),
        torch.tensordot: _Replacement(tensordot, dense),
        torch.inner: _Replacement(inner, dense),
        Tensor.inner: _Replacement(inner, dense),
        torch.cdist: _Replacement(distances, dense),
        torch.chain_matmul: chained,
        torch.linalg.multi_dot: chained,
        functional.scaled_dot_product_attention: _Replacement(
            scaled_dot_product_attention, (kind.SCORES, kind.VALUES)
        ),
        functional.multi_head_attention_forward: _Replacement(
            MULTI_HEAD_ATTENTION, (kind.LINEAR, kind.SCORES, kind.VALUES)
        ),
    }
    for func in (Tensor.__matmul__, torch.linalg.matmul):
        table[func] = plain
    for func in (torch.vdot, Tensor.vdot, torch.linalg.vecdot):
        table[func] = _Replacement(vecdot, dense, {"input": "x", "other": "y"})
    for name in ("matmul", "bmm", "mm", "mv", "dot"):
        table |= {getattr(torch, name): plain, getattr(Tensor, name): plain}
    for name in ("addmm", "addmv", "baddbmm"):
        table |= {getattr(torch, name): added, getattr(Tensor, name): added}
        table[getattr(Tensor, f"{name}_")] = added_in_place
    for name in ("conv1d", "conv2d", "conv3d"):
        table[getattr(torch, name)] = _Replacement(convolution, (kind.CONVOLUTION,))
        turned = name.replace("conv", "conv_transpose")
        table[getattr(torch, turned)] = _Replacement(transposed_convolution, (kind.CONVOLUTION,))
    for cell, name in (
        (Cell.LSTM, "lstm"),
        (Cell.GRU, "gru"),
        (Cell.TANH, "rnn_tanh"),
        (Cell.RELU, "rnn_relu"),
    ):
        kinds = (kind.LINEAR, kind.RECURRENCE)
        table[getattr(torch, name)] = _Replacement(layer_function(cell), kinds)
        table[getattr(torch, f"{name}_cell")] = _Replacement(cell_function(cell), kinds)
    for place, name in ((torch, "_grouped_mm"), (functional, "grouped_mm")):
        if hasattr(place, name):
            table[getattr(place, name)] = _Replacement(grouped, (kind.EXPERTS,))
    for func, replacement in list(table.items()):  # exported programs call operators by their own names
        operator = getattr(torch.ops.aten, func.__name__, None)
        if operator is not None and func not in {torch.cdist, torch.tensordot}:  # which take others there
            table[operator] = replacement
            table |= {getattr(operator, overload): replacement for overload in operator.overloads()}
    return table


def show_to_compilers() -> None:
    """Let a compiler hand over private functions too, as torch itself does when it is not compiled.

    Compilers ask only about functions that torch lists as overridable. Without this, grouped products would
    stay in a compiled graph as they are.
    """
    from torch._dynamo.variables.torch import get_overridable_functions  # noqa: PLC0415 - slow to import

    get_overridable_functions().update(_REPLACED)
    get_overridable_functions().update(_WITHOUT_ROAD)


_PLAIN_NAMES = {"mat2": "other", "vec": "other", "tensor": "other"}
_ADDED_NAMES = dict.fromkeys(("mat1", "batch1", "mat"), "first") | dict.fromkeys(
    ("mat2", "batch2", "vec"), "second"
)
_REPLACED = _table()
_OF_MATRICES = ("matrix_power", "matrix_exp", "cov", "corrcoef")
_OF_SPARSE = ("smm", "hspmm", "sspaddmm")
_WITHOUT_ROAD = {
    getattr(place, name)
    for place, names in (
        (
            torch,
            (
                "conv_tbc",
                "convolution",
                "_convolution",
                "_scaled_mm",
                "_addmm_activation",
                "_int_mm",
                "_weight_int8pack_mm",
                "_weight_int4pack_mm",
                "_weight_int4pack_mm_for_cpu",
                "_dyn_quant_matmul_4bit",
                "bilinear",
                *_OF_MATRICES,
                *_OF_SPARSE,
            ),
        ),
        (torch.linalg, ("matrix_power", "matrix_exp")),
        (torch.sparse, ("mm", "addmm", "sampled_addmm")),
        (functional, ("bilinear", "scaled_mm", "scaled_grouped_mm", "linear_cross_entropy")),
        (Tensor, ("addbmm_", *_OF_MATRICES, *_OF_SPARSE)),
        (
            torch.ops.higher_order,
            ("flex_attention", "cond", "scan", "associative_scan", "while_loop", "map_impl"),
        ),
    )
    for name in names
    if hasattr(place, name)
}
"""Functions with products that nothing here turns into products of matrices, or that nobody sees into."""
_WHERE = {torch.where, Tensor.where}
_BY_VALUE = {
    getattr(place, name)
    for place, names in (
        (torch, ("nonzero", "argwhere", "masked_select", "unique", "unique_consecutive")),
        (Tensor, ("nonzero", "argwhere", "masked_select", "unique", "unique_consecutive")),
        (Tensor, ("tolist", "item", "numpy", "__int__", "__index__")),
    )
    for name in names
}
