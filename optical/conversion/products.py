"""Layers and functions of torch, rewritten as matrix products that a core can run.

Linear layers, attention, convolutions, recurrent cells, Einstein sums and contractions. Each function takes
the call of the layer (`Frame`), then the arguments of the torch function that it replaces, and hands its
products to `Frame.multiply`; everything else is digital.

Shape suffixes: B samples, H heads or width of a state, T queries or time steps, S keys, D width of a head, N
samples, C channels or width of an input, L positions of an output, G groups or gates, K elements of a patch,
R rows, O channels out. Dimensions before them are batches.
"""

from __future__ import annotations

import math
import string
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from optical.conversion.frames import Frame
from optical.conversion.policy import ProductKind
from simulator.errors import WorkloadError


def scaled_dot_product_attention(  # noqa: PLR0917 - as torch calls it
    frame: Frame,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Return attention as torch defines it: all scores first, then the mask, as a matrix engine computes it.

    Notes
    -----
    Scores are scaled after the product; in float16, whose largest number is 65504, queries before it. A query
    whose keys are all masked gives zeros.
    """
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    if _product_dtype(query) is torch.float16:
        query, scale = query * scale, 1.0
    scores_HTS = frame.multiply(ProductKind.SCORES, query, key.mT) * scale
    if is_causal:
        later_TS = torch.ones(scores_HTS.shape[-2:], dtype=torch.bool, device=query.device).triu(1)
        scores_HTS = scores_HTS.masked_fill(later_TS, -math.inf)
    empty = None
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        empty = ~attn_mask.any(-1, keepdim=True)
        scores_HTS = scores_HTS.masked_fill(~attn_mask & ~empty, -math.inf)
    elif attn_mask is not None:
        scores_HTS = scores_HTS + attn_mask.to(scores_HTS.dtype)
        empty = (scores_HTS == -math.inf).all(-1, keepdim=True)
        scores_HTS = scores_HTS.masked_fill(empty, 0.0)
    weights_HTS = scores_HTS.softmax(-1)
    if empty is not None:
        weights_HTS = weights_HTS.masked_fill(empty, 0.0)
    if dropout_p > 0.0:
        weights_HTS = functional.dropout(weights_HTS, dropout_p)
    return frame.multiply(ProductKind.VALUES, weights_HTS.to(value.dtype), value)


def _product_dtype(x: torch.Tensor) -> torch.dtype:
    """Return the type of a product of a tensor, autocast included."""
    device = x.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return x.dtype


def _check_padding(key_padding_mask: torch.Tensor, src_len: int, bsz: int) -> None:
    """Refuse a mask that does not fit, in place of torch's own check, which compilers cannot trace."""
    if tuple(key_padding_mask.shape) != (bsz, src_len):
        msg = f"key_padding_mask must have the shape {[bsz, src_len]}; got {list(key_padding_mask.shape)}"
        raise WorkloadError(msg)


def _open_multi_head_attention() -> types.FunctionType:
    """Return torch's multi-head attention with its inner functions open to interception.

    Torch's own function asks for an override of itself as a whole (`has_torch_function`). This one has the
    same code but answers that question with no, so that only the functions it calls are offered for override.
    """
    original: Any = functional.multi_head_attention_forward
    asks = "has_torch_function"
    if asks not in original.__code__.co_names or asks not in original.__globals__:
        msg = (
            f"torch {torch.__version__} hides the products of multi_head_attention_forward; exclude the layer"
        )
        raise WorkloadError(msg)
    names = {**original.__globals__, asks: lambda tensors: False, "_check_key_padding_mask": _check_padding}
    opened = types.FunctionType(
        original.__code__, names, original.__name__, original.__defaults__, original.__closure__
    )
    opened.__kwdefaults__ = original.__kwdefaults__
    return opened


MULTI_HEAD_ATTENTION = _open_multi_head_attention()
"""`torch.nn.functional.multi_head_attention_forward`, whose products can be overridden one by one."""


def convolution(  # noqa: PLR0917 - as torch calls it
    frame: Frame,
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> torch.Tensor:
    """Return a convolution over any number of dimensions as a product of patches; the bias is digital.

    Notes
    -----
    All output positions of all samples are rows of one product. With groups, each group is a matrix of a
    batched product; then a batch that is cut into parts has other row blocks than the whole.
    """
    dims = weight.dim() - 2
    x = input if input.dim() == dims + 2 else input.unsqueeze(0)
    strides, dilations = _per_dim(stride, dims), _per_dim(dilation, dims)
    x = functional.pad(x, _pads(padding, weight.shape[2:], dilations))
    for dim, (kernel, step, spread) in enumerate(zip(weight.shape[2:], strides, dilations, strict=True)):
        x = x.unfold(dim + 2, (kernel - 1) * spread + 1, step)[..., ::spread]
    places = x.shape[2 : 2 + dims]
    order = (0, *range(2, 2 + dims), 1, *range(2 + dims, 2 + 2 * dims))
    patch = weight.shape[1:].numel()
    x_NLGK = x.permute(order).reshape(x.shape[0], places.numel(), groups, patch)
    if groups == 1:
        y = frame.multiply(ProductKind.CONVOLUTION, x_NLGK.flatten(2), weight.flatten(1).mT, weight=True)
    else:
        w_GKO = weight.flatten(1).unflatten(0, (groups, -1)).mT
        x_GRK = x_NLGK.flatten(0, 1).transpose(0, 1)
        y_GRO = frame.multiply(ProductKind.CONVOLUTION, x_GRK, w_GKO, weight=True)
        y = y_GRO.transpose(0, 1).reshape(x.shape[0], places.numel(), weight.shape[0])
    y = y if bias is None else y + bias.to(y.dtype)
    y = y.mT.unflatten(2, places)
    return y if input.dim() == dims + 2 else y.squeeze(0)


def transposed_convolution(  # noqa: PLR0917 - as torch calls it
    frame: Frame,
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> torch.Tensor:
    """Return a transposed convolution over any number of dimensions.

    Notes
    -----
    Each position of the input gives a whole patch of the output: the product sums over the channels in, and
    its columns are the channels out times the elements of the kernel. Overlapping patches, and the bias, are
    added digitally, so that the core is spared the zeros that a stride would put between positions.
    """
    dims = weight.dim() - 2
    x = input if input.dim() == dims + 2 else input.unsqueeze(0)
    places, kernel = x.shape[2:], weight.shape[2:]
    x_NLC = x.flatten(2).mT
    if groups == 1:
        y_NLO = frame.multiply(ProductKind.CONVOLUTION, x_NLC, weight.flatten(1), weight=True)
    else:
        w_GKO = weight.flatten(1).unflatten(0, (groups, -1))
        x_GRK = x_NLC.flatten(0, 1).unflatten(1, (groups, -1)).transpose(0, 1)
        y_GRO = frame.multiply(ProductKind.CONVOLUTION, x_GRK, w_GKO, weight=True)
        y_NLO = y_GRO.transpose(0, 1).reshape(*x_NLC.shape[:2], groups * w_GKO.shape[2])
    y = y_NLO.mT.reshape(x.shape[0], groups * weight.shape[1], *kernel, *places)
    edges = zip(_per_dim(padding, dims), _per_dim(output_padding, dims), strict=True)
    by_dim = zip(_per_dim(stride, dims), _per_dim(dilation, dims), edges, strict=True)
    for dims_left, (step, spread, (cut, more)) in zip(range(dims, 0, -1), by_dim, strict=True):
        patches = y.movedim((2 + dims_left, 2), (-2, -1))
        y = functional.pad(_overlapped(patches, step, spread), (-cut, more - cut))
    y = y if bias is None else y + bias.to(y.dtype).view(-1, *[1] * dims)
    return y if input.dim() == dims + 2 else y.squeeze(0)


def _overlapped(patches: torch.Tensor, step: int, spread: int) -> torch.Tensor:
    """Return patches [..., positions, elements] laid along one dimension and added where they overlap."""
    places, elements = patches.shape[-2:]
    reach = (places - 1) * step + 1
    y = patches.new_zeros((*patches.shape[:-2], reach + (elements - 1) * spread))
    for number in range(elements):
        y[..., number * spread : number * spread + reach : step] += patches[..., number]
    return y


def _per_dim(value: int | Sequence[int], dims: int) -> tuple[int, ...]:
    """Return one number for each dimension."""
    if isinstance(value, int):
        return (value,) * dims
    return tuple(value) * (dims if len(value) == 1 else 1)


def _pads(padding: str | int | Sequence[int], kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Return the zeros before and after each dimension, the last one first, for `functional.pad`."""
    if padding == "valid":
        padding = 0
    if isinstance(padding, str):  # "same"
        totals = [spread * (size - 1) for size, spread in zip(kernel, dilation, strict=True)]
        pairs = [(total // 2, total - total // 2) for total in totals]
    else:
        pairs = [(pad, pad) for pad in _per_dim(padding, len(kernel))]
    return [pad for pair in reversed(pairs) for pad in pair]


_State = tuple[torch.Tensor, ...]
"""Hidden state, [B, H], and for an LSTM the state of its cell."""


class Cell(Enum):
    """Kind of recurrent cell."""

    LSTM = "lstm"
    GRU = "gru"
    TANH = "tanh"
    RELU = "relu"


@dataclass(frozen=True, kw_only=True)
class _Weights:
    """Parameters of one direction of one layer."""

    input_GC: torch.Tensor
    hidden_GH: torch.Tensor
    input_bias: torch.Tensor | None = None
    hidden_bias: torch.Tensor | None = None
    projection_PH: torch.Tensor | None = None

    def project(self, frame: Frame, x: torch.Tensor) -> torch.Tensor:
        """Return the input's contribution to the gates."""
        y = frame.multiply(ProductKind.LINEAR, x, self.input_GC.mT, weight=True)
        return y if self.input_bias is None else y + self.input_bias.to(y.dtype)

    def step(self, frame: Frame, cell: Cell, x_BG: torch.Tensor, state: _State) -> _State:
        """Return the state after one time step, from the input's contribution to the gates and the state."""
        h_BG = frame.multiply(ProductKind.RECURRENCE, state[0], self.hidden_GH.mT, weight=True)
        if self.hidden_bias is not None:
            h_BG = h_BG + self.hidden_bias.to(h_BG.dtype)
        if cell is Cell.GRU:
            (x_r, x_z, x_n), (h_r, h_z, h_n) = x_BG.chunk(3, 1), h_BG.chunk(3, 1)
            new, keep = torch.tanh(x_n + torch.sigmoid(x_r + h_r) * h_n), torch.sigmoid(x_z + h_z)
            return (new + keep * (state[0] - new),)
        if cell is not Cell.LSTM:
            return ((torch.tanh if cell is Cell.TANH else torch.relu)(x_BG + h_BG),)
        entry, forget, content, exit_ = (x_BG + h_BG).chunk(4, 1)
        memory = torch.sigmoid(forget) * state[1] + torch.sigmoid(entry) * torch.tanh(content)
        hidden = torch.sigmoid(exit_) * torch.tanh(memory)
        if self.projection_PH is not None:
            hidden = frame.multiply(ProductKind.RECURRENCE, hidden, self.projection_PH.mT, weight=True)
        return hidden, memory


def cell_function(cell: Cell) -> Callable[..., torch.Tensor | _State]:
    """Return a function that runs one time step, with the arguments of `torch.lstm_cell` and its like."""

    def run(  # noqa: PLR0917 - as torch calls it
        frame: Frame,
        input: torch.Tensor,
        hx: torch.Tensor | Sequence[torch.Tensor],
        w_ih: torch.Tensor,
        w_hh: torch.Tensor,
        b_ih: torch.Tensor | None = None,
        b_hh: torch.Tensor | None = None,
    ) -> torch.Tensor | _State:
        weights = _Weights(input_GC=w_ih, hidden_GH=w_hh, input_bias=b_ih, hidden_bias=b_hh)
        state = (hx,) if isinstance(hx, torch.Tensor) else tuple(hx)
        after = weights.step(frame, cell, weights.project(frame, input), state)
        return after if cell is Cell.LSTM else after[0]

    return run


def layer_function(cell: Cell) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Return a function that runs whole layers, with the arguments of `torch.lstm` and its like."""

    def run(frame: Frame, *arguments: Any) -> tuple[torch.Tensor, ...]:  # noqa: ANN401
        if isinstance(arguments[3], list | tuple):
            data, sizes, hx, flat, has_biases, layers, dropout, train, bidirectional = arguments
            counts, batch_first = sizes.tolist(), False
        else:
            data, hx, flat, has_biases, layers, dropout, train, bidirectional, batch_first = arguments
            counts = None
        stack = _Stack(
            frame=frame,
            cell=cell,
            weights=_unflatten(flat, has_biases, layers * (1 + bidirectional), hx, cell),
            directions=1 + bool(bidirectional),
            dropout=float(dropout) if train else 0.0,
        )
        state = (hx,) if isinstance(hx, torch.Tensor) else tuple(hx)
        if counts is None:
            y, after = stack.run(data if batch_first else data.transpose(0, 1), state)
            y = y if batch_first else y.transpose(0, 1)
        else:
            y, after = stack.run(data, state, counts)
        return (y, *after)

    return run


def _unflatten(
    flat: Sequence[torch.Tensor], has_biases: bool, count: int, hx: object, cell: Cell
) -> list[_Weights]:
    """Return the parameters of each direction of each layer, `count` of them, from torch's flat list."""
    size = len(flat) // count
    weights = []
    for start in range(0, len(flat), size):
        part = list(flat[start : start + size])
        biases = part[2:4] if has_biases else [None, None]
        projection = part[-1] if size > (4 if has_biases else 2) else None
        weights.append(
            _Weights(
                input_GC=part[0],
                hidden_GH=part[1],
                input_bias=biases[0],
                hidden_bias=biases[1],
                projection_PH=projection,
            )
        )
    return weights


@dataclass(frozen=True, kw_only=True)
class _Stack:
    """Layers of a recurrent network."""

    frame: Frame
    cell: Cell
    weights: list[_Weights]
    """Parameters, layer after layer, of each layer's directions."""
    directions: int
    """1, or 2 where layers also run backwards in time."""
    dropout: float
    """Share of a layer's outputs that the next layer does not read, 0 to 1."""

    def run(
        self, x: torch.Tensor, state: _State, counts: list[int] | None = None
    ) -> tuple[torch.Tensor, _State]:
        """Return the outputs and the last states.

        Parameters
        ----------
        x : torch.Tensor
            Sequences of equal length, [B, T, C]; or packed ones, longest first, all samples of a time step
            after each other. Outputs have the same layout.
        state : tuple of torch.Tensor
            Initial states, of each direction of each layer.
        counts : list of int, optional
            Samples of each time step of packed sequences.
        """
        finals: list[_State] = []
        for first in range(0, len(self.weights), self.directions):
            outputs = []
            for index in range(first, first + self.directions):
                gates = self.weights[index].project(self.frame, x)
                by_step = gates.unbind(1) if counts is None else gates.split(counts)
                steps, final = self._unroll(index, list(by_step), tuple(part[index] for part in state))
                outputs.append(torch.stack(steps, 1) if counts is None else torch.cat(steps))
                finals.append(final)
            x = self._between(torch.cat(outputs, -1), first)
        return x, tuple(torch.stack(part) for part in zip(*finals, strict=True))

    def _unroll(
        self, index: int, gates: list[torch.Tensor], state: _State
    ) -> tuple[list[torch.Tensor], _State]:
        """Return the hidden states of all steps of one direction, and the last state.

        Samples of packed sequences that have ended keep their state.
        """
        backward = self.directions == 2 and index % 2 == 1
        steps: list[torch.Tensor] = []
        for x_BG in reversed(gates) if backward else gates:
            live = x_BG.shape[0]
            after = self.weights[index].step(self.frame, self.cell, x_BG, tuple(x[:live] for x in state))
            steps.append(after[0])
            if live < state[0].shape[0]:
                after = tuple(torch.cat([new, old[live:]]) for new, old in zip(after, state, strict=True))
            state = after
        return (steps[::-1] if backward else steps), state

    def _between(self, x: torch.Tensor, first: int) -> torch.Tensor:
        """Return a layer's outputs as the next layer reads them, with dropout except after the last."""
        last = first + self.directions >= len(self.weights)
        return functional.dropout(x, self.dropout) if self.dropout > 0.0 and not last else x


def is_weight(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a parameter or a view of one."""
    return isinstance(tensor, nn.Parameter) or isinstance(tensor._base, nn.Parameter)


def linear(
    frame: Frame, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Return a linear layer's output, shape [..., out]; the bias is added digitally.

    Notes
    -----
    Rows enter the core ordered by sample, so that a part of the batch consists of whole row blocks.
    """
    if weight.dim() == 1:
        return linear(frame, input, weight.unsqueeze(0), bias).squeeze(-1)
    rows = input.unsqueeze(0) if input.dim() == 1 else input
    if frame.samples == 1:
        y = frame.multiply(ProductKind.LINEAR, rows, weight.mT, weight=True)
    else:
        by_sample = rows.reshape(-1, frame.samples, rows.shape[-1]).transpose(0, 1)
        y = frame.multiply(ProductKind.LINEAR, by_sample, weight.mT, weight=True)
        y = y.transpose(0, 1).contiguous().view(*rows.shape[:-1], -1)
    y = y.squeeze(0) if input.dim() == 1 else y
    return y if bias is None else y + bias.to(y.dtype)


def matmul(
    frame: Frame, input: torch.Tensor, other: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the product of two tensors, by the rules of `torch.matmul`."""
    if out is not None:
        msg = f"'{frame.site.name}': a product cannot be written to `out`; leave it out and use the result"
        raise WorkloadError(msg)
    if 0 in (input.dim(), other.dim()):
        shapes = f"{list(input.shape)} and {list(other.shape)}"
        msg = f"'{frame.site.name}': operands of a product must have a dimension; got shapes {shapes}"
        raise WorkloadError(msg)
    a = input.unsqueeze(0) if input.dim() == 1 else input
    b = other.unsqueeze(-1) if other.dim() == 1 else other
    transposed = is_weight(a) and not is_weight(b) and a.dim() == 2  # the weight is to be the second operand
    if transposed:
        a, b = b.mT, a.mT
    weight = is_weight(b)
    kind = ProductKind.LINEAR if weight else ProductKind.MATMUL
    if not weight and frame.attention:
        kind = frame.attention.pop(0)
    c = frame.multiply(kind, a, b, weight=weight)
    c = c.mT if transposed else c
    c = c.squeeze(-1) if other.dim() == 1 else c
    return c.squeeze(-1 if other.dim() == 1 else -2) if input.dim() == 1 else c


def vecdot(frame: Frame, x: torch.Tensor, y: torch.Tensor, *, dim: int = -1) -> torch.Tensor:
    """Return the sums of products of two tensors along a dimension, the first conjugated."""
    x, y = torch.broadcast_tensors(x.conj(), y)
    x, y = (vectors.movedim(dim, -1).unsqueeze(-1) for vectors in (x, y))
    return matmul(frame, x.mT, y).squeeze((-2, -1))


def reversed_matmul(frame: Frame, other: torch.Tensor, input: torch.Tensor) -> torch.Tensor:
    """Return ``input @ other``."""
    return matmul(frame, input, other)


def matmul_add(
    frame: Frame,
    input: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return ``beta input + alpha (first @ second)``; only the product is the core's."""
    product = matmul(frame, first, second, out=out)
    product = product if alpha == 1 else alpha * product
    return product if beta == 0 else product + (beta * input).to(product.dtype)


def sum_matmul_add(
    frame: Frame,
    input: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> torch.Tensor:
    """Return ``beta input + alpha sum(first @ second)``, the sum over the batch."""
    product = alpha * matmul(frame, first, second).sum(0)
    return product if beta == 0 else product + (beta * input).to(product.dtype)


def matmul_add_in_place(
    frame: Frame,
    input: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> torch.Tensor:
    """Write the result of `matmul_add` into `input`, and return it."""
    return input.copy_(matmul_add(frame, input, first, second, beta=beta, alpha=alpha))


def chain(frame: Frame, *matrices: torch.Tensor | Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the product of many matrices, from left to right."""
    factors: list[torch.Tensor] = []
    for argument in matrices:
        factors += [argument] if isinstance(argument, torch.Tensor) else argument
    product = factors[0]
    for factor in factors[1:]:
        product = matmul(frame, product, factor)
    return product


def grouped(
    frame: Frame,
    mat_a: torch.Tensor,
    mat_b: torch.Tensor,
    *,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return the products of groups of rows of A, which end at `offs`, each by its matrix of B, [G, K, N]."""
    if mat_a.dim() != 2 or mat_b.dim() != 3 or offs is None or bias is not None:
        shapes = f"{list(mat_a.shape)} and {list(mat_b.shape)}"
        rule = "grouped products take [M, K], [G, K, N] and offs, without bias"
        msg = f"'{frame.site.name}': {rule}; got {shapes}"
        raise WorkloadError(msg)
    counts = offs.diff(prepend=offs.new_zeros(1)).tolist()
    rest = mat_a.shape[0] - sum(counts)
    for count in (
        *counts,
        rest,
    ):  # tells compilers, which do not know the numbers, that they are not negative
        torch._check(count >= 0)
    weight = is_weight(mat_b)
    *groups, remainder = mat_a.split([*counts, rest])
    parts = [
        frame.multiply(ProductKind.EXPERTS, rows, mat_b[number], weight=weight)
        for number, rows in enumerate(groups)
    ]
    y = torch.cat([*parts, remainder.new_zeros((rest, mat_b.shape[-1]), dtype=parts[0].dtype)])
    return y if out_dtype is None else y.to(out_dtype)


_LETTERS = string.ascii_letters


def einsum(
    frame: Frame, *operands: str | torch.Tensor | Sequence[int] | Sequence[torch.Tensor]
) -> torch.Tensor:
    """Return an Einstein sum, by the rules of `torch.einsum`; more than two operands from left to right."""
    equation, tensors = _equation(operands)
    inputs, output = _without_ellipses(equation, [tensor.dim() for tensor in tensors])
    names, result = inputs[0], tensors[0]
    for number in range(1, len(tensors)):
        later = set(output).union(*inputs[number + 1 :])
        last = number == len(tensors) - 1
        kept = output if last else "".join(dict.fromkeys(c for c in names + inputs[number] if c in later))
        result = _pair(frame, (names, result), (inputs[number], tensors[number]), kept)
        names = kept
    return result if len(tensors) > 1 else torch.einsum(f"{names}->{output}", result)


def tensordot(
    frame: Frame,
    a: torch.Tensor,
    b: torch.Tensor,
    dims: int | Sequence[Sequence[int]] | Sequence[int] = 2,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the contraction of two tensors over dimensions, by the rules of `torch.tensordot`."""
    if out is not None or isinstance(dims, torch.Tensor):
        msg = f"'{frame.site.name}': tensordot takes dims as integers, and no `out`"
        raise WorkloadError(msg)
    if isinstance(dims, int):
        dims_a, dims_b = list(range(a.dim() - dims, a.dim())), list(range(dims))
    else:
        dims_a, dims_b = ([side] if isinstance(side, int) else list(side) for side in dims)
    names_a, names_b = list(_LETTERS[: a.dim()]), list(_LETTERS[a.dim() : a.dim() + b.dim()])
    for dim_a, dim_b in zip(dims_a, dims_b, strict=True):
        names_b[dim_b] = names_a[dim_a]
    shared = set(names_a) & set(names_b)
    kept = "".join(c for c in names_a + names_b if c not in shared)
    return _pair(frame, ("".join(names_a), a), ("".join(names_b), b), kept)


def inner(frame: Frame, input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the product over the last dimension of both."""
    if input.dim() == 0 or other.dim() == 0:
        return input * other
    return tensordot(frame, input, other, dims=[[input.dim() - 1], [other.dim() - 1]])


_DISTANCE_ROWS = 25
"""Most vectors on either side for which `torch.cdist`, left to choose, takes differences, not a product."""


def distances(
    frame: Frame,
    x1: torch.Tensor,
    x2: torch.Tensor,
    p: float = 2.0,
    compute_mode: str = "use_mm_for_euclid_dist_if_necessary",
) -> torch.Tensor:
    """Return the distances of all pairs of vectors, as `torch.cdist`, by a product where that takes one.

    Notes
    -----
    ``|x - y|^2 = |x|^2 + |y|^2 - 2 x y``: the core computes the last term. Where noise makes this negative,
    the distance is zero, and so is its gradient, as torch has it for equal vectors.
    """
    always, if_many = "use_mm_for_euclid_dist", "use_mm_for_euclid_dist_if_necessary"
    many = max(x1.shape[-2], x2.shape[-2]) > _DISTANCE_ROWS
    if p != 2.0 or not (compute_mode == always or (compute_mode == if_many and many)):
        return torch.cdist(x1, x2, p, compute_mode)
    square = -2.0 * matmul(frame, x1, x2.mT)
    square = x1.square().sum(-1, keepdim=True) + x2.square().sum(-1).unsqueeze(-2) + square
    equal = square <= 0.0
    return square.masked_fill(equal, 1.0).sqrt().masked_fill(equal, 0.0)


def _equation(operands: Sequence[object]) -> tuple[str, list[torch.Tensor]]:
    """Return the equation and the operands of an Einstein sum, given in either of torch's two forms."""
    if isinstance(operands[0], str):
        rest = (
            operands[1] if len(operands) == 2 and not isinstance(operands[1], torch.Tensor) else operands[1:]
        )
        return operands[0], list(rest)  # type: ignore[call-overload]
    tensors = list(operands[0 : len(operands) // 2 * 2 : 2])
    lists = [*operands[1::2], *(operands[-1:] if len(operands) % 2 else [])]
    texts = ["".join("..." if dim is Ellipsis else _LETTERS[dim] for dim in dims) for dims in lists]  # type: ignore[attr-defined]
    inputs = ",".join(texts[: len(tensors)])
    return (f"{inputs}->{texts[-1]}" if len(operands) % 2 else inputs), tensors  # type: ignore[return-value]


def _without_ellipses(equation: str, dims: list[int]) -> tuple[list[str], str]:
    """Return the letters of each operand, whose numbers of dimensions are given, and of the result."""
    left, arrow, output = equation.replace(" ", "").partition("->")
    inputs = left.split(",")
    free = [c for c in _LETTERS if c not in equation]
    lengths = [
        dim - len(text.replace("...", "")) if "..." in text else 0
        for text, dim in zip(inputs, dims, strict=True)
    ]
    widest = free[: max(lengths)]
    spelled = [
        text.replace("...", "".join(widest[len(widest) - length :]))
        for text, length in zip(inputs, lengths, strict=True)
    ]
    if not arrow:
        once = sorted(c for c in set(left) - set(".,") if left.count(c) == 1)
        output = "..." + "".join(once)
    return spelled, output.replace("...", "".join(widest))


def _pair(
    frame: Frame, a: tuple[str, torch.Tensor], b: tuple[str, torch.Tensor], output: str
) -> torch.Tensor:
    """Return the Einstein sum of two operands, each with its letters, as one (batched) product of matrices.

    Letters in both operands are the batch if they are in the output, else they are summed; letters in one
    operand are its rows, or columns.
    """
    if is_weight(a[1]) and not is_weight(b[1]):
        a, b = b, a
    weight = is_weight(b[1])
    names_a, x = _reduced(*a, keep=set(output) | set(b[0]))
    names_b, y = _reduced(*b, keep=set(output) | set(names_a))
    sizes = dict(zip(names_b, y.shape, strict=True))
    sizes |= {c: n for c, n in zip(names_a, x.shape, strict=True) if n > 1 or c not in sizes}
    both = [c for c in names_a if c in names_b]
    batch = [c for c in both if c in output]
    summed = [c for c in both if c not in output]
    rows, columns = ([c for c in names if c not in both] for names in (names_a, names_b))
    x = _ordered(x, names_a, [*batch, *rows, *summed], sizes)
    y = _ordered(y, names_b, [*batch, *summed, *columns], sizes)
    count = [math.prod([sizes[c] for c in group]) for group in (batch, rows, summed, columns)]
    x = x.reshape(*count[:1] * bool(batch), count[1], count[2])
    y = y.reshape(*count[:1] * bool(batch), count[2], count[3])
    z = frame.multiply(ProductKind.LINEAR if weight else ProductKind.MATMUL, x, y, weight=weight)
    names_z = [*batch, *rows, *columns]
    z = z.reshape([sizes[c] for c in names_z])
    return z.permute([names_z.index(c) for c in output])


def _reduced(names: str, tensor: torch.Tensor, *, keep: set[str]) -> tuple[str, torch.Tensor]:
    """Return an operand with diagonals of repeated letters taken, and summed over letters not to keep."""
    wanted = "".join(dict.fromkeys(c for c in names if c in keep))
    return wanted, tensor if wanted == names else torch.einsum(f"{names}->{wanted}", tensor)


def _ordered(tensor: torch.Tensor, names: str, wanted: list[str], sizes: dict[str, int]) -> torch.Tensor:
    """Return a tensor with its dimensions in the wanted order, and expanded to the sizes."""
    return tensor.permute([names.index(c) for c in wanted]).expand([sizes[c] for c in wanted])
