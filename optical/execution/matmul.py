"""`noisy_matmul`: a core's matrix product as a differentiable function of torch, with explicit keys.

A call passes three layers. `noisy_matmul` brings operands to shapes [B, M, K] and [B, K, N] and, for
distributed tensors, runs each process's shard. A `torch.autograd.Function` makes its gradients products of
the core too: the quick `_DirectProduct`, or one that compilers (`_CompiledProduct`) or function transforms
(`_TransformedProduct`) see through. `multiply_in_blocks` cuts the rows into row blocks, each with a key of
its own, and executes them by `AnalogNumerics`. A block's key depends on its place in the global batch, so
that any layout over processes that keeps whole blocks draws the same.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C; G row blocks executed together.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.autograd import forward_ad

from optical.execution.draws import Draws
from optical.execution.numerics import AnalogNumerics, Loading, check_types, executed
from optical.execution.operands import Order, Orders, multiply_transformed
from optical.execution.spec import AnalogSpec, ProductSpecs, loads_second, spec_from_json
from simulator.errors import WorkloadError
from simulator.keys import mix_key

if TYPE_CHECKING:  # slow to import, and imported already where somebody distributes tensors
    import torch.distributed.tensor
    from torch.distributed.tensor import DTensor, Placement

_KEY_MASK = 2**64 - 1
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_FIRST, _SECOND, _TANGENT_FIRST, _TANGENT_SECOND = 1, 2, 3, 4
"""Products that derive from C = A B: dA, dB, and the contributions of tangents of A and of B to that of C."""
_DERIVED = 5
"""Products that derive from product n have the numbers 5 n + 1 to 5 n + 4."""
_ORDERS: tuple[Orders, ...] = (
    (Order.ROWS, Order.COLUMNS),
    (Order.ROWS, Order.ROWS),
    (Order.COLUMNS, Order.ROWS),
)
"""Orders of the draws of A and B for products 0 (C), 1 (dA) and 2 (dB): as a layer's input, weight and
gradient usually lie in memory, which spares copies."""
_HIGHER_ORDERS: Orders = (Order.ROWS, Order.ROWS)
"""Orders of the draws for derivatives of higher order."""
_SUMS_ROWS, _EXACT_TILES = 1, 2
"""Bits of the operator's flags."""
_SHARED = -1
"""Number in a key in place of a row block's, for draws that all row blocks share."""
_OTHER_ROWS, _OTHER_COLUMNS, _OTHER_SUMMED = range(3)
"""Dimension of a product along which shards are on different cores; part of a core's key, with the offset."""
_MOST_AT_ONCE = 2**22
"""Outputs of row blocks that are held before they are added up, so that memory stays small; a choice."""


def noisy_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    specs: ProductSpecs,
    key: int | torch.Tensor,
    *,
    weight: bool = True,
    place: tuple[int, ...] = (),
    first_block: int = 0,
    part_blocks: int = 0,
) -> torch.Tensor:
    """Return the product as a core delivers it; gradients are products of the core too.

    Parameters
    ----------
    a, b : torch.Tensor
        Operands, shapes [..., M, K] and [..., K, N] or [K, N], of one floating-point type (under autocast
        both are taken in its type). One matrix B means that all rows of A are one product. Distributed
        tensors (`DTensor`) give one: every process runs its shard on a core of its own, rows with the draws
        that they have in one process.
    specs : ProductSpecs
        Errors of the product and of its two gradient products. Gradients ignore rounding and clipping
        (straight through).
    key : int or torch.Tensor
        Seed of all draws, forward and backward: an integer, or a tensor of one int64 on the CPU, whose value
        a compiled graph does not freeze. Fold in the seed and the step, never a rank. A second int64, if any,
        is the number of the equal part of the global batch that these rows are.
    weight : bool
        Whether B is a weight, so that its gradient is the product of the phase `grad_weight`.
    place : tuple of int
        Numbers that tell this product from others of the same key: its layer, its number in the layer.
    first_block : int
        Number of the first row block of A in the global batch, or in its part.
    part_blocks : int
        Row blocks in a part of the global batch, where the key gives the part.

    Returns
    -------
    torch.Tensor
        Shape [..., M, N].

    Raises
    ------
    WorkloadError
        If the shapes do not make a product, the key is no whole number, or shards of rows cut a row block.
    """
    if not (key.dtype is torch.int64 if isinstance(key, torch.Tensor) else isinstance(key, int | np.integer)):
        msg = f"noisy_matmul: key must be a whole number, or a tensor of int64; got {key!r:.60}"
        raise WorkloadError(msg)
    if type(a) not in _PLAIN or type(b) not in _PLAIN:
        multiply = functools.partial(
            noisy_matmul, specs=specs, key=key, weight=weight, part_blocks=part_blocks
        )
        if _is_distributed(a) or _is_distributed(b):
            return _sharded(a, b, multiply, place=place, first_block=first_block, row_block=specs.row_block)
    if torch.amp.is_autocast_available(a.device.type) and torch.is_autocast_enabled(a.device.type):
        dtype = torch.get_autocast_dtype(a.device.type)
        a, b = a.to(dtype), b.to(dtype)
    a_BMK, b_BKN, shape = _batched(a, b)
    batch, rows, _ = a_BMK.shape
    block = specs.row_block if batch == 1 else max(1, specs.row_block // max(rows, 1))
    plain = _is_plain(a, b)
    call = _Call(
        texts=specs.texts,
        weight=weight,
        number=0,
        sums_rows=False,
        place=(*place, first_block),
        block=block,
        part_blocks=part_blocks,
        flags=_EXACT_TILES * specs.exact_tiles,
    )
    key = key if isinstance(key, torch.Tensor) else int(key) & _KEY_MASK
    if plain and (isinstance(key, int) or type(key) is torch.Tensor):
        numbers = (key,) if isinstance(key, int) else tuple(key.reshape(-1).tolist())
        return _DirectProduct.apply(a_BMK, b_BKN, numbers, call).view(shape)
    if isinstance(key, int):
        key = torch.tensor(key - 2**64 if key >= 2**63 else key, dtype=torch.int64)
    product = _CompiledProduct if torch.compiler.is_compiling() else _TransformedProduct
    return product.apply(a_BMK, b_BKN, key, call).view(shape)


def _is_plain(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether only reverse-mode autograd is on: no compiler, function transform or dispatch mode."""
    return (
        type(a) in _PLAIN
        and type(b) in _PLAIN
        and a.device.type != "meta"
        and not torch.compiler.is_compiling()
        and torch._C._functorch.peek_interpreter_stack() is None
        and torch._C._len_torch_dispatch_stack() == 0
        and forward_ad._current_level < 0
    )


def _is_distributed(x: torch.Tensor) -> bool:
    return "torch.distributed.tensor" in sys.modules and isinstance(x, torch.distributed.tensor.DTensor)


def _sharded(
    a: torch.Tensor,
    b: torch.Tensor,
    multiply: Callable[..., torch.Tensor],
    *,
    place: tuple[int, ...],
    first_block: int,
    row_block: int,
) -> DTensor:
    """Return the product of distributed tensors; every process runs its shard on a core of its own.

    Notes
    -----
    Rows of A keep the row blocks, hence the draws, of the product in one process. A shard of columns of B, or
    of the summed dimension, is held by another core: its offset is folded into the key, and partial sums of
    cores are added digitally. Where shards do not fit together, B is gathered first. A plain operand counts
    as replicated.
    """
    meshes = [x.device_mesh for x in (a, b) if isinstance(x, torch.distributed.tensor.DTensor)]
    if meshes[0] != meshes[-1]:
        msg = f"operands lie on the meshes {meshes[0]} and {meshes[-1]}; distribute both on one"
        raise WorkloadError(msg)
    a, b = (_on_mesh(x, meshes[0]) for x in (a, b))
    placements = zip(a.placements, b.placements, strict=True)
    layouts = [_layout(placement_a, placement_b, a, b) for placement_a, placement_b in placements]
    a = a.redistribute(placements=[layout.a for layout in layouts])
    b = b.redistribute(placements=[layout.b for layout in layouts])
    local_a = a.to_local(grad_placements=[layout.grad_a for layout in layouts])
    local_b = b.to_local(grad_placements=[layout.grad_b for layout in layouts])
    first_row, core = _offsets(a, b)
    block, unit = row_block, "rows"
    if b.dim() > 2:
        block, unit = max(1, block // max(local_a.shape[-2], 1)), "matrices"
    if first_row % block:
        msg = (
            f"row_block ({block} {unit}) must divide the shards of a product, of which one begins at "
            f"{first_row}; choose a smaller one"
        )
        raise WorkloadError(msg)
    local = multiply(local_a, local_b, place=(*place, *core), first_block=first_block + first_row // block)
    shape = torch.Size((*a.shape[:-1], b.shape[-1]))
    return torch.distributed.tensor.DTensor.from_local(
        local,
        meshes[0],
        [layout.c for layout in layouts],
        run_check=False,
        shape=shape,
        stride=torch.empty(shape, device="meta").stride(),
    )


def _on_mesh(x: torch.Tensor, mesh: torch.distributed.DeviceMesh) -> DTensor:
    """Return a tensor as distributed over a mesh, replicated if it is a plain one."""
    if isinstance(x, torch.distributed.tensor.DTensor):
        return x
    whole = [torch.distributed.tensor.Replicate()] * mesh.ndim
    return torch.distributed.tensor.DTensor.from_local(x, mesh, whole, run_check=False)


class _Layout(NamedTuple):
    """Placements of operands, result and gradients along one dimension of the device mesh."""

    a: Placement
    b: Placement
    c: Placement
    grad_a: Placement
    grad_b: Placement


def _layout(a: Placement, b: Placement, a_tensor: DTensor, b_tensor: DTensor) -> _Layout:
    """Return the placements of A and B for a product, and those of its result and gradients.

    The summed dimension sharded on both sides gives partial sums; columns of B sharded give sharded columns
    of C; rows, or matrices of a batch, sharded give the same of C. Where A and B disagree, A's sharding
    stands.
    """
    placed = torch.distributed.tensor
    summed_a, summed_b, columns = a_tensor.ndim - 1, b_tensor.ndim - 2, b_tensor.ndim - 1
    whole, summed = placed.Replicate(), placed.Partial()
    dim_a = a.dim % a_tensor.ndim if isinstance(a, placed.Shard) else None
    dim_b = b.dim % b_tensor.ndim if isinstance(b, placed.Shard) else None
    if dim_a == summed_a or (dim_a is None and dim_b == summed_b):
        sides = placed.Shard(summed_a), placed.Shard(summed_b)
        return _Layout(*sides, summed, *sides)
    if dim_a is None and dim_b == columns:
        return _Layout(
            whole, placed.Shard(columns), placed.Shard(a_tensor.ndim - 1), summed, placed.Shard(columns)
        )
    dim = dim_a if dim_a is not None else dim_b
    if dim is None:
        return _Layout(whole, whole, whole, whole, whole)
    each = placed.Shard(dim)
    if b_tensor.ndim > 2 and dim < b_tensor.ndim - 2:
        return _Layout(each, each, each, each, each)
    return _Layout(each, whole, each, each, summed)


def _offsets(a: DTensor, b: DTensor) -> tuple[int, tuple[int, ...]]:
    """Return the global number of a shard's first row, or matrix, and numbers that identify its core.

    The numbers are the dimension along which cores differ (`_OTHER_ROWS` and so on) and the shard's offset in
    it; none for shards of the first dimension of rows, which are row blocks of one product.
    """
    of_a, of_b = (
        torch.distributed.tensor._utils.compute_local_shape_and_global_offset(
            x.shape, x.device_mesh, x.placements
        )[1]
        for x in (a, b)
    )
    rows_end = a.ndim - 1 if b.ndim == 2 else a.ndim - 2
    first_row, core = 0, []
    for dim in range(a.ndim - 1):
        if dim < rows_end and math.prod(a.shape[:dim]) == 1:
            first_row += of_a[dim] * math.prod(a.shape[dim + 1 : rows_end])
        elif _is_cut(a, dim):
            core += [_OTHER_ROWS, dim, of_a[dim]]
    for kind, dim in ((_OTHER_COLUMNS, b.ndim - 1), (_OTHER_SUMMED, b.ndim - 2)):
        if _is_cut(b, dim):
            core += [kind, of_b[dim]]
    return first_row, tuple(core)


def _is_cut(x: DTensor, dim: int) -> bool:
    """Return whether a dimension is sharded."""
    sharded = [place.dim for place in x.placements if isinstance(place, torch.distributed.tensor.Shard)]
    return dim in sharded


def _batched(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, tuple[int, ...]]:
    """Return operands of shapes [B, M, K] and [B, K, N], and the shape of the result."""
    if a.dim() < 2 or b.dim() < 2 or a.shape[-1] != b.shape[-2]:
        msg = (
            f"operands must have shapes [..., M, K] and [..., K, N]; got {list(a.shape)} and {list(b.shape)}"
        )
        raise WorkloadError(msg)
    check_types(a, b)
    if b.dim() == 2:
        rows = math.prod(a.shape[:-1])
        return a.reshape(1, rows, a.shape[-1]), b.unsqueeze(0), (*a.shape[:-1], b.shape[-1])
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a_BMK = a.expand(*batch, *a.shape[-2:]).reshape(math.prod(batch), *a.shape[-2:])
    b_BKN = b.expand(*batch, *b.shape[-2:]).reshape(math.prod(batch), *b.shape[-2:])
    return a_BMK, b_BKN, (*batch, a.shape[-2], b.shape[-1])


class _Call(NamedTuple):
    """Settings of one execution of a product: plain values, which compilers take as constants."""

    texts: tuple[str, str, str]
    """Specifications of this product, of grad_input and of grad_weight, as JSON."""
    weight: bool
    """Whether B is a weight."""
    number: int
    """Number of the product, part of its key: 0 is C, 1 dA, 2 dB, others derivatives of higher order."""
    sums_rows: bool
    """Whether the product is A^T B, summed over rows, as the gradient of a weight is."""
    place: tuple[int, ...]
    """Numbers that tell the product from others of its key; the last is the first row block's number."""
    block: int
    """Rows of a row block; matrices, where the batch has several."""
    part_blocks: int
    """Row blocks of each part of the global batch, where the key gives the part."""
    flags: int
    """Flags that the product and its gradients share (`_EXACT_TILES`)."""


class _DirectProduct(torch.autograd.Function):
    """A product and its two gradient products, each with its own specification and draws, run in Python.

    A compiler needs `_CompiledProduct`, a function transform `_TransformedProduct`; both take several times
    as long to start.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        a_BMK: torch.Tensor,
        b_BKN: torch.Tensor,
        key: tuple[int, ...],
        call: _Call,
    ) -> torch.Tensor:
        ctx.key, ctx.call = key, call
        ctx.save_for_backward(a_BMK, b_BKN)
        return _multiply(_run, a_BMK, b_BKN, key, call)

    @staticmethod
    def backward(ctx: Any, grad_BMN: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # noqa: ANN401
        run = _DirectProduct.apply if torch.is_grad_enabled() else functools.partial(_multiply, _run)
        return *_gradients(ctx, grad_BMN, ctx.saved_tensors, ctx.key, run), None, None


class _CompiledProduct(torch.autograd.Function):
    """The same through a torch operator, `heliograph::analog_matmul`, which is one node to compilers."""

    @staticmethod
    def forward(a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: torch.Tensor, call: _Call) -> torch.Tensor:
        return _multiply(torch.ops.heliograph.analog_matmul, a_BMK, b_BKN, key, call)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:  # noqa: ANN401
        del output
        a_BMK, b_BKN, key, ctx.call = inputs
        ctx.save_for_backward(a_BMK, b_BKN, key.clone())

    @staticmethod
    def backward(ctx: Any, grad_BMN: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # noqa: ANN401
        *operands, key = ctx.saved_tensors
        run = functools.partial(_multiply, torch.ops.heliograph.analog_matmul)
        return *_gradients(ctx, grad_BMN, operands, key, run), None, None


class _TransformedProduct(_CompiledProduct):
    """The same with higher derivatives, tangents (`jvp`) and `vmap`, some of which compilers refuse."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:  # noqa: ANN401
        _CompiledProduct.setup_context(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:3])

    @staticmethod
    def backward(ctx: Any, grad_BMN: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # noqa: ANN401
        if not torch.is_grad_enabled():
            return _CompiledProduct.backward(ctx, grad_BMN)
        *operands, key = ctx.saved_tensors
        return *_gradients(ctx, grad_BMN, operands, key, _TransformedProduct.apply), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor | None) -> torch.Tensor | None:  # noqa: ANN401
        """Return the tangent of the product, dA B + A dB: two further products by its own specification."""
        (a_BMK, b_BKN, key), call, total = ctx.saved_tensors, ctx.call, None
        for number, tangent in zip((_TANGENT_FIRST, _TANGENT_SECOND), tangents[:2], strict=True):
            if tangent is not None:
                pair = (tangent, b_BKN) if number == _TANGENT_FIRST else (a_BMK, tangent)
                summand = _TransformedProduct.apply(*pair, key, _derived_call(call, number))
                total = summand if total is None else total + summand
        return total

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[torch.Tensor, int]:  # noqa: ANN401
        """Run the samples of a mapped dimension as further matrices of the batch, each with its own draws."""
        operands = []
        for operand, dim in zip(inputs[:2], in_dims[:2], strict=True):
            spread = operand.unsqueeze(0) if dim is None else operand.movedim(dim, 0)
            operands.append(spread.expand(info.batch_size, *spread.shape[1:]).flatten(0, 1))
        key, call = inputs[2:]
        if operands[0].shape[0] == info.batch_size > 1:
            call = call._replace(block=max(1, call.block // max(operands[0].shape[1], 1)))
        c_BMN = _TransformedProduct.apply(*operands, key, call)
        return c_BMN.unflatten(0, (info.batch_size, -1)), 0


def _multiply(
    run: Callable[..., torch.Tensor],
    a: torch.Tensor,
    b: torch.Tensor,
    key: Any,  # noqa: ANN401
    call: _Call,
) -> torch.Tensor:
    """Return the product A B, or A^T B where `call` sums over rows; `run` executes it."""
    flags = call.flags | _SUMS_ROWS * call.sums_rows
    layout = [call.block, flags, call.number, *call.place, call.part_blocks]
    return run(a.mT if call.sums_rows else a, b, key, call.texts[0], layout)


def _derived_call(call: _Call, number: int) -> _Call:
    """Return the settings of a product that derives from another: a gradient, or a summand of a tangent.

    A gradient takes the specification of `grad_weight` where it sums over the rows of a weight's input, else
    that of `grad_input`; so do gradients of gradients.
    """
    sums_rows, texts = call.sums_rows, call.texts
    if number in (_FIRST, _SECOND):
        sums_rows = number == _SECOND and not sums_rows
        texts = (texts[2 if sums_rows and call.weight else 1], *texts[1:])
    return call._replace(texts=texts, number=_DERIVED * call.number + number, sums_rows=sums_rows)


def _gradients(
    ctx: Any,  # noqa: ANN401
    grad_BMN: torch.Tensor,
    operands: tuple[torch.Tensor, ...],
    key: Any,  # noqa: ANN401
    run: Callable[..., torch.Tensor],
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return the gradients of A and of B, None where not needed.

    They are dC B^T and A^T dC for C = A B, and B dC^T and A dC for C = A^T B, which sums over rows.
    """
    (a_BMK, b_BKN), call, grad_a, grad_b = operands, ctx.call, None, None
    if ctx.needs_input_grad[0]:
        pair = (b_BKN, grad_BMN.mT) if call.sums_rows else (grad_BMN, b_BKN.mT)
        grad_a = run(*pair, key, _derived_call(call, _FIRST))
    if ctx.needs_input_grad[1]:
        grad_b = run(a_BMK, grad_BMN, key, _derived_call(call, _SECOND))
    return grad_a, grad_b


def _execute(
    a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: torch.Tensor, spec: str, layout: list[int]
) -> torch.Tensor:
    """Return one product of a core, [B, M, N]: the operator that compilers see, without a gradient.

    Parameters
    ----------
    a_BMK, b_BKN : torch.Tensor
        Operands, shapes [B, M, K] and [B, K, N].
    key : torch.Tensor
        One int64 on the CPU, or two, the second the number of the part of the global batch.
    spec : str
        `AnalogSpec` as JSON (`simulator.files.record_to_json`).
    layout : list of int
        Fields of `_Call`: `block`, the flags `_SUMS_ROWS` and `_EXACT_TILES`, `number`, all of `place` (first
        row block last), `part_blocks`.
    """
    return _run(a_BMK, b_BKN, tuple(key.reshape(-1).tolist()), spec, layout)


def _run(
    a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: tuple[int, ...], spec: str, layout: list[int]
) -> torch.Tensor:
    block, flags, *place, first, part_blocks = layout
    value, *part = key
    if 0 in (*a_BMK.shape, b_BKN.shape[2]):
        return a_BMK.new_zeros((*a_BMK.shape[:2], b_BKN.shape[2]))
    return multiply_in_blocks(
        a_BMK,
        b_BKN,
        spec_from_json(spec),
        RowBlocks(
            key=value & _KEY_MASK,
            place=tuple(place),
            first=first + sum(part) * part_blocks,
            size=block,
            sums_rows=bool(flags & _SUMS_ROWS),
            exact_tiles=bool(flags & _EXACT_TILES),
            orders=_ORDERS[place[0]] if place[0] < len(_ORDERS) else _HIGHER_ORDERS,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class RowBlocks:
    """Row blocks of a product, each executed with a converter range and draws of its own, and their keys."""

    key: int
    """Seed of all draws of the call."""
    place: tuple[int, ...]
    """Numbers that tell the product from others of the key."""
    first: int
    """Number of the first block in the global batch."""
    size: int
    """Rows of a block; matrices, where the batch has several."""
    sums_rows: bool
    """Whether the product sums over the rows, so that the results of blocks are added."""
    exact_tiles: bool = False
    """Whether every analog sample of a sum is executed."""
    orders: Orders = (None, None)
    """Orders in which the elements of A and of B take their draws."""

    def key_of(self, number: int) -> int:
        """Return the key of the draws of a block, by its number in the global batch."""
        return mix_key(self.key, *self.place, number)

    def groups(self, count: int, most: int) -> Iterator[tuple[list[int], slice]]:
        """Yield the keys and the rows of blocks to execute together: up to `most`, all of the same length.

        `count` is the number of rows; a short last block comes alone.
        """
        whole, start = count // self.size, 0
        while start < count:
            number = start // self.size
            blocks = min(most, whole - number) if number < whole else 1
            stop = min(start + blocks * self.size, count)
            yield [self.key_of(self.first + number + place) for place in range(blocks)], slice(start, stop)
            start = stop


@executed
def multiply_in_blocks(
    a_BMK: torch.Tensor, b_BKN: torch.Tensor, spec: AnalogSpec, blocks: RowBlocks
) -> torch.Tensor:
    """Return the product of a core, executed row block by row block, shape [B, M, N].

    Notes
    -----
    B is set on the core once for all row blocks: its stochastic rounding and errors of loading are drawn with
    a key that has no block's number. Where the product sums over rows, partial sums of blocks are added
    digitally.
    """
    numerics, (batch, rows, length) = AnalogNumerics(spec, blocks.exact_tiles), a_BMK.shape
    if spec.is_exact:
        return torch.bmm(a_BMK, b_BKN)
    if spec.transforms is not None:
        plain = replace(spec, transforms=None)
        return multiply_transformed(
            a_BMK,
            b_BKN,
            spec.transforms,
            lambda a, b, number: multiply_in_blocks(
                a, b, plain, replace(blocks, place=(*blocks.place, number)) if number else blocks
            ),
        )
    together = 1 if spec.residues is not None else rows * length * batch
    if batch > 1:
        parts = [
            numerics.matmul_blocks(a_BMK[at], b_BKN[at], Draws(keys, a_BMK.device), blocks.orders)
            for keys, at in blocks.groups(batch, together)
        ]
        return torch.cat(parts)
    if blocks.sums_rows:
        together = min(together, max(1, _MOST_AT_ONCE // (rows * b_BKN.shape[2])))
        return _sum_of_blocks(a_BMK, b_BKN, numerics, blocks, together)
    second, parts = loads_second(min(blocks.size, rows), b_BKN.shape[2]), []
    for keys, at in blocks.groups(rows, together):
        draws, a_GMK = Draws(keys, a_BMK.device), a_BMK[:, at].reshape(len(keys), -1, length)
        loading = Loading(Draws([blocks.key_of(_SHARED)], b_BKN.device), second)
        c_GMN = numerics.matmul_blocks(a_GMK, b_BKN, draws, blocks.orders, single=True, loading=loading)
        parts.append(c_GMN.flatten(0, 1))
    return (torch.cat(parts) if len(parts) > 1 else parts[0])[None]


def _sum_of_blocks(
    a_BMK: torch.Tensor, b_BKN: torch.Tensor, numerics: AnalogNumerics, blocks: RowBlocks, together: int
) -> torch.Tensor:
    """Return the sum of the blocks' products, [1, M, N], added in the order of the blocks."""
    total = None
    for keys, at in blocks.groups(a_BMK.shape[2], together):
        a_GKM = a_BMK[0].mT[at].unflatten(0, (len(keys), -1))
        b_GKN = b_BKN[0, at].unflatten(0, (len(keys), -1))
        draws = Draws(keys, a_BMK.device)
        for part in numerics.matmul_blocks(a_GKM.mT, b_GKN, draws, blocks.orders, single=True):
            total = part if total is None else total.add_(part)
    return a_BMK.new_zeros((1, a_BMK.shape[1], b_BKN.shape[2])) if total is None else total[None]


def _shape_only(
    a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: torch.Tensor, spec: str, layout: list[int]
) -> torch.Tensor:
    """Return an uninitialised result of the right shape, for tracing and the meta device."""
    del key, spec, layout
    return a_BMK.new_empty((*a_BMK.shape[:2], b_BKN.shape[2]))


# No autograd kernel is registered, as torch.func cannot see through one: `_CompiledProduct` differentiates.
_LIBRARY = torch.library.Library("heliograph", "FRAGMENT")
_LIBRARY.define("analog_matmul(Tensor a, Tensor b, Tensor key, str spec, SymInt[] layout) -> Tensor")
_LIBRARY.impl("analog_matmul", _execute, "CompositeExplicitAutograd")
torch.library.register_fake("heliograph::analog_matmul", _shape_only, lib=_LIBRARY)
