"""Keeps the codes of weights from call to call: between two steps of an optimizer they do not change."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import NamedTuple

import torch

from optical.execution import fused
from optical.execution.operands import Operand

_SAMPLED = 256
"""Elements that are compared with those that were coded, beside the version."""
_Key = tuple[object, ...]


class _Entry(NamedTuple):
    """Codes of one tensor, and by what they are known to be its codes still."""

    version: int
    """torch's count of the writes to the tensor."""
    sample: torch.Tensor | int
    """Some elements, or a hash of them, since writes through `.data` and those of sharded training are not
    counted."""
    codes: Operand
    """What was kept."""


class _Storage(NamedTuple):
    """What is kept for one piece of memory, as long as it lives."""

    reference: weakref.ref[torch.UntypedStorage]
    entries: dict[_Key, _Entry]


_STORAGES: dict[int, _Storage] = {}


def kept_codes(x: torch.Tensor, how: _Key, encode: Callable[[Operand | None], Operand]) -> Operand:
    """Return the codes of a tensor, anew if it was written to since.

    Parameters
    ----------
    x : torch.Tensor
        A weight or a view of one.
    how : tuple
        All that the codes depend on beside the tensor.
    encode : callable
        Codes the tensor, into the memory of codes that are of no use any more, if it is given any.

    Notes
    -----
    Only codes of 8 bits are kept, a quarter of a weight's memory for each way of coding it, and those of at
    most 14 bits, as much as that memory; in tiles they are there twice. A write that torch
    does not count, and that misses 256 elements spread evenly over the tensor, would go unseen.
    """
    if x.is_inference() or x.device.type == "meta":
        return encode(None)
    entries = _entries(x.untyped_storage())
    key = (x.storage_offset(), x.shape, x.stride(), x.dtype, *how)
    known, sample = entries.get(key), _sample(x)
    if known is not None and known.version == x._version and _agree(known.sample, sample):
        return known.codes
    codes = encode(None if known is None else known.codes)
    if codes.codes.dtype == torch.int8 or codes.halves is not None:
        entries[key] = _Entry(x._version, sample, codes)
    return codes


def _entries(storage: torch.UntypedStorage) -> dict[_Key, _Entry]:
    """Return what is kept for a piece of memory."""
    number = id(storage)
    known = _STORAGES.get(number)
    if known is None or known.reference() is not storage:
        reference = weakref.ref(storage, lambda _: _STORAGES.pop(number, None))
        known = _STORAGES[number] = _Storage(reference, {})
    return known.entries


def _sample(x: torch.Tensor) -> torch.Tensor | int:
    """Return some elements, spread over the last two dimensions by an odd stride, or a hash of such."""
    if fused.fuses(x) and (x.is_contiguous() or x.mT.is_contiguous()):
        return fused.digest(x)
    rows, columns = x.shape[-2:]
    return x.detach()[0, *_places(rows, columns, x.device)]


def _agree(known: torch.Tensor | int, sample: torch.Tensor | int) -> bool:
    if isinstance(known, torch.Tensor) and isinstance(sample, torch.Tensor):
        return torch.equal(known, sample)
    return isinstance(known, int) and isinstance(sample, int) and known == sample


@functools.lru_cache(maxsize=256)
def _places(rows: int, columns: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows and columns of the sampled elements."""
    count = rows * columns
    flat = torch.arange(min(_SAMPLED, count), device=device) * (max(1, count // _SAMPLED) | 1) % count
    return flat // columns, flat % columns
