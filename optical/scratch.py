"""Memory that is used again: to fetch fresh pages takes longer than the arithmetic that is done in them."""

from __future__ import annotations

import threading

import torch

_LARGEST = 2**24
"""Bytes beyond which memory is fetched anew rather than kept."""


class _Kept(threading.local):
    """What a thread keeps, by use and type."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[str, torch.dtype], torch.Tensor] = {}


_KEPT = _Kept()


def scratch(use: str, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return uninitialised memory that belongs to a use until the same thread asks for that use again.

    Parameters
    ----------
    use : str
        Tells what is needed at one time apart.
    shape : torch.Size
        Shape of the result.
    dtype, device
        Kind and place. Only the CPU's memory is kept; accelerators have allocators that do so.
    """
    count = shape.numel()
    if device.type != "cpu" or count * dtype.itemsize > _LARGEST:
        return torch.empty(shape, dtype=dtype, device=device)
    known = _KEPT.buffers.get((use, dtype))
    if known is None or known.numel() < count:
        with torch.inference_mode(mode=False):
            known = torch.empty(count, dtype=dtype)
        _KEPT.buffers[use, dtype] = known
    return known[:count].view(shape)
