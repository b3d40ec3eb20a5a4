"""Memory that is used again: to fetch fresh pages takes longer than the arithmetic that is done in them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TypeVar, cast

import torch

T = TypeVar("T")

_LARGEST = 2**24
"""Bytes beyond which memory is fetched anew rather than kept."""

_MOST_MADE = 4096
"""Things that are remembered before all of them are forgotten."""


class _Kept(threading.local):
    """What a thread keeps, by use and type."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[str, torch.dtype], torch.Tensor] = {}
        self.made: dict[Hashable, object] = {}
        self.passed_on = False


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
        _KEPT.passed_on = True
        return torch.empty(shape, dtype=dtype, device=device)
    known = _KEPT.buffers.get((use, dtype))
    if known is None or known.numel() < count:
        with torch.inference_mode(mode=False):
            known = torch.empty(count, dtype=dtype)
        _KEPT.buffers[use, dtype] = known
        _KEPT.made.clear()
    return known[:count].view(shape)


def remembered(what: Hashable, make: Callable[[], T]) -> T:
    """Return what was made of this thread's scratch memory, made anew when a part of that has moved.

    What is made of memory too large to be kept is not remembered either.

    Parameters
    ----------
    what : hashable
        Tells apart what is remembered, shapes included.
    make : callable
        Makes it.
    """
    if what in _KEPT.made:
        return cast("T", _KEPT.made[what])
    _KEPT.passed_on = False
    with torch.inference_mode(mode=False):
        made = make()
    if _KEPT.passed_on:
        return made
    if len(_KEPT.made) >= _MOST_MADE:
        _KEPT.made.clear()
    _KEPT.made[what] = made
    return made
