"""Interception of every torch function that a converted layer calls; those with products go to the core.

`_REPLACED` maps functions of torch to their replacements, made of matrix products (`products`). Functions in
`_NOT_REPLACEABLE` have products that no replacement covers, and are refused in layers that use the core.
`watch_products` counts the products by the unit that ran them, so that none escapes unseen.
`show_to_compilers` and `follow_checkpoints` extend interception to compiled graphs and to functions that
torch's checkpoints recompute.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode

from optical.conversion.frames import Frame, current_frame, current_product, resumed, running
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
"""Operators of torch that multiply matrices, by name."""
_BY_START = tuple(
    "_scaled_dot_product _thnn _flash_attention _efficient_attention mkldnn_ _sparse_addmm _sparse_mm "
    "_sparse_sparse_matmul _sparse_semi_structured _weight_int _dyn_quant_matmul _scaled_mm_v "
    "_scaled_grouped_mm_v conv linear_".split()
)
"""Beginnings of the names of further ones."""


def operator_of(func: Callable[..., Any]) -> tuple[str, str]:
    """Return namespace and name of an operator, as a dispatch mode gets it, without its overload."""
    space, _, name = str(func).partition(".")
    return space, name.partition(".")[0]


def is_product(operator: str) -> bool:
    """Return whether an operator of torch, by its name without namespace, multiplies matrices.

    Factorizations of matrices and solutions of equations do not count.
    """
    if "prepack" in operator or "unpack" in operator:
        return False
    return operator.removesuffix("_") in _PRODUCTS or operator.startswith(_BY_START)


@dataclass(kw_only=True)
class ProductCounts:
    """Numbers of products that were run, by the unit that ran them."""

    analog: Counter[str] = field(default_factory=Counter)
    """Forward products on the core, by ``layer:kind``."""
    electronic: Counter[str] = field(default_factory=Counter)
    """Forward products that are electronic by policy, by exclusion or for K = 1, by ``layer:kind``."""
    escaped: Counter[str] = field(default_factory=Counter)
    """Forward products that are neither, a fault of the conversion, by ``layer:operator of torch``."""
    analog_backward: int = 0
    """Backward products on the core."""
    digital_backward: Counter[str] = field(default_factory=Counter)
    """Backward products off the core, gradients of electronic ones, by operator of torch."""


class _Watch(TorchDispatchMode):
    """Dispatch mode that counts the products among all operators of torch."""

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
    """Count all products that run in this thread, of converted models and others.

    Products inside a kernel from outside torch cannot be seen.
    """
    counts = ProductCounts()
    with _Watch(counts):
        yield counts


@dataclass(frozen=True)
class _Replacement:
    """Replacement of a function of torch."""

    run: Callable[..., Any]
    """Function of the layer's call (`Frame`), followed by the arguments of the torch function."""
    kinds: tuple[ProductKind, ...]
    """Kinds of its products; if all are electronic, the torch function itself is run."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Keyword names of the torch function, and those of `run`, where they differ."""


class Interception(TorchFunctionMode):
    """Function mode that runs the products of the innermost converted layer as its policy says."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        del types
        kwargs, frame = kwargs or {}, current_frame()
        if frame is not None and _selects_by_value(func, args):
            frame.ragged = frame.picks = True
        if frame is None or not (func in _REPLACED or func in _NOT_REPLACEABLE or _is_product_operator(func)):
            if func is Tensor.unflatten and torch.compiler.is_compiling():
                # Compilers can trace this method called by name, but not the function itself.
                return args[0].unflatten(*args[1:], **kwargs)
            return func(*args, **kwargs)
        if func not in _REPLACED:
            return _run_if_electronic(frame, func, args, kwargs)
        frame.begin_operation()
        replacement = _REPLACED[func]
        if frame.is_electronic(*replacement.kinds):
            with running(f"{frame.site.name}:{replacement.kinds[-1]}", electronic=True):
                return func(*args, **kwargs)
        if func is functional.multi_head_attention_forward:
            return self._attend(frame, *args, **kwargs)
        kwargs = {replacement.names.get(name, name): value for name, value in kwargs.items()}
        return replacement.run(frame, *args, **kwargs)

    def _attend(self, frame: Frame, query: Tensor, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Run torch's multi-head attention, whose second dimension is the batch, product by product."""
        frame.attention = [ProductKind.SCORES, ProductKind.VALUES]
        frame.samples = query.shape[1] if query.dim() > 2 else 1
        try:
            with self:
                return MULTI_HEAD_ATTENTION(query, *args, **kwargs)
        finally:
            frame.attention, frame.samples = [], 1


def _is_product_operator(func: Callable[..., Any]) -> bool:
    """Return whether a function is itself an operator with products, as quantised layers call it."""
    return isinstance(func, OpOverload | OpOverloadPacket) and is_product(operator_of(func)[1])


def _selects_by_value(func: Callable[..., Any], args: Sequence[Any]) -> bool:
    """Return whether numbers of rows may depend on values of tensors after a torch function.

    Experts find their tokens so: by `nonzero`, ``where`` of one tensor, a mask, or by counts that Python
    reads. An index of integers does not count: its result has as many rows as the index.

    Parameters
    ----------
    func : callable
        Function of torch, as a `TorchFunctionMode` gets it.
    args : sequence
        Its positional arguments.
    """
    if func in _WHERE:
        return len(args) == 1
    if func is Tensor.__getitem__:
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        return any(_is_mask(part) or _is_slice_by_tensor(part) for part in index)
    return func in _BY_VALUE


def _is_mask(index: object) -> bool:
    return isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8)


def _is_slice_by_tensor(index: object) -> bool:
    return isinstance(index, slice) and (isinstance(index.start, Tensor) or isinstance(index.stop, Tensor))


def _run_if_electronic(
    frame: Frame, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:  # noqa: ANN401
    """Run a function whose products cannot go to a core; refuse it unless the layer is all electronic."""
    if frame.is_electronic(*ProductKind):
        with running(f"{frame.site.name}:{func.__name__}", electronic=True):
            return func(*args, **kwargs)
    msg = (
        f"'{frame.site.name}' calls {func.__name__}, whose products cannot be run on a core; "
        f"exclude the layer or name it in Policy.electronic"
    )
    raise WorkloadError(msg)


def _replacements() -> dict[Callable[..., Any], _Replacement]:
    """Return the replacement of each function of torch, of methods and operators too."""
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
        transposed = name.replace("conv", "conv_transpose")
        table[getattr(torch, transposed)] = _Replacement(transposed_convolution, (kind.CONVOLUTION,))
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
    """Add the functions to those that compilers offer to function modes, as eager torch does for all.

    Compilers offer only functions that torch lists as overridable. Without this, grouped products would stay
    in a compiled graph as they are.
    """
    from torch._dynamo.variables.torch import get_overridable_functions  # noqa: PLC0415 - slow to import

    get_overridable_functions().update(_REPLACED)
    get_overridable_functions().update(_NOT_REPLACEABLE)


@functools.cache
def follow_checkpoints() -> None:
    """Patch both kinds of torch's checkpoints so that they recompute in the call that checkpointed.

    A checkpointed function runs a second time in the backward pass, when the call of the layer around it has
    returned; its products must still reach the core, with the draws of the first run. A recomputed module
    opens a call of its own; a method or a function would have none.
    """
    non_reentrant: Any = checkpoint._CheckpointFrame
    reentrant: Any = checkpoint.CheckpointFunction
    init, forward = non_reentrant.__init__, reentrant.forward

    def init_in_call(self: object, recompute: Callable[..., Any], *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        init(self, _in_present_call(recompute), *args, **kwargs)

    def forward_in_call(ctx: Any, function: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401
        recompute = _in_present_call(function)
        outputs = forward(ctx, function, *args)
        ctx.run_function = recompute
        return outputs

    non_reentrant.__init__, reentrant.forward = init_in_call, staticmethod(forward_in_call)


def _in_present_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs in the present call of a converted layer, in its present state.

    Outside converted layers the function itself.
    """
    frame = current_frame()
    if frame is None:
        return function
    saved = frame.copy()

    def run_in_call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        outermost = current_frame() is None
        with resumed(saved), Interception() if outermost else contextlib.nullcontext():
            return function(*args, **kwargs)

    return run_in_call


_PLAIN_NAMES = {"mat2": "other", "vec": "other", "tensor": "other"}
_ADDED_NAMES = dict.fromkeys(("mat1", "batch1", "mat"), "first") | dict.fromkeys(
    ("mat2", "batch2", "vec"), "second"
)
_REPLACED = _replacements()
_OF_MATRICES = ("matrix_power", "matrix_exp", "cov", "corrcoef")
_OF_SPARSE = ("smm", "hspmm", "sspaddmm")
_NOT_REPLACEABLE = {
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
"""Functions with products that no replacement covers, or that run code which cannot be intercepted."""
_WHERE = {torch.where, Tensor.where}
"""Functions that select by values if they have one argument."""
_BY_VALUE = {
    getattr(place, name)
    for place, names in (
        (torch, ("nonzero", "argwhere", "masked_select", "unique", "unique_consecutive")),
        (Tensor, ("nonzero", "argwhere", "masked_select", "unique", "unique_consecutive")),
        (Tensor, ("tolist", "item", "numpy", "__int__", "__index__")),
    )
    for name in names
}
"""Functions that select by values, or hand values to Python, which may."""
