"""Convolutions as products of patches and kernels.

Shape suffixes: N samples, C channels, L places of the output, G groups, K elements of a patch, O channels
out.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from optical.conversion.frames import Frame
from optical.conversion.policy import ProductKind


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
    """Return a convolution over any number of dimensions; the bias is added digitally.

    Notes
    -----
    All places of all samples are rows of one product. With groups each is a matrix of a batch, which one core
    runs as a whole; then the row blocks of a batch cut into parts differ from those of the whole.
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
    Each place of the input gives one whole patch of the output: K are the channels in, and the columns are
    the channels out times the elements of a kernel. Where patches overlap they are added digitally, as is
    the bias, so that the core sees none of the zeros that a stride would put between places.
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
    ways = zip(_per_dim(stride, dims), _per_dim(dilation, dims), edges, strict=True)
    for left, (step, spread, (cut, more)) in zip(range(dims, 0, -1), ways, strict=True):
        patches = y.movedim((2 + left, 2), (-2, -1))
        y = functional.pad(_overlapped(patches, step, spread), (-cut, more - cut))
    y = y if bias is None else y + bias.to(y.dtype).view(-1, *[1] * dims)
    return y if input.dim() == dims + 2 else y.squeeze(0)


def _overlapped(patches: torch.Tensor, step: int, spread: int) -> torch.Tensor:
    """Return patches, [..., places, elements], added where they overlap, as one dimension."""
    places, elements = patches.shape[-2:]
    reach = (places - 1) * step + 1
    y = patches.new_zeros((*patches.shape[:-2], reach + (elements - 1) * spread))
    for number in range(elements):
        y[..., number * spread : number * spread + reach : step] += patches[..., number]
    return y


def _per_dim(value: int | Sequence[int], dims: int) -> tuple[int, ...]:
    if isinstance(value, int):
        return (value,) * dims
    return tuple(value) * (dims if len(value) == 1 else 1)


def _pads(padding: str | int | Sequence[int], kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Return zeros before and after each dimension, the last dimension first."""
    if padding == "valid":
        padding = 0
    if isinstance(padding, str):
        whole = [spread * (size - 1) for size, spread in zip(kernel, dilation, strict=True)]
        pairs = [(one // 2, one - one // 2) for one in whole]
    else:
        pairs = [(one, one) for one in _per_dim(padding, len(kernel))]
    return [one for pair in reversed(pairs) for one in pair]
