"""Cuts operands and outputs into blocks that stay in cache while they are worked on."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import torch

CACHE_ELEMENTS = 2**16
"""Numbers that are finished together, so that they and their scratch memory stay in a core's cache."""
_CACHEFULS = 4
"""Of outputs, that a product makes at once."""
_PRODUCT_ROWS = 256
"""Rows that a matrix product needs to be quick, for each thread."""
Block = tuple[slice, slice]
"""Batches and rows of some outputs."""


def product_blocks(shape: torch.Size, device: torch.device) -> tuple[Block, ...]:
    """Return blocks of outputs that cover them: large enough for a quick product, but not for much memory."""
    return _product_blocks(shape, _cacheful(device), torch.get_num_threads())


@functools.lru_cache(maxsize=4096)
def _product_blocks(shape: torch.Size, count: int, threads: int) -> tuple[Block, ...]:
    batch, rows, columns = shape
    row_count = min(rows, max(_PRODUCT_ROWS * threads, _CACHEFULS * count // columns))
    return tuple(_blocks(batch, rows, max(1, count // (rows * columns)), row_count))


def cachefuls(shape: torch.Size, device: torch.device, *, streams: int = 1) -> Iterator[Block]:
    """Yield slices of batches and rows that cover a tensor of three dimensions, one cacheful each.

    Parameters
    ----------
    shape, device
        Of the tensor.
    streams : int
        How many times as many numbers as usual have room, since less scratch memory is used.
    """
    batch, rows, columns = shape
    count = streams * _cacheful(device)
    return _blocks(batch, rows, max(1, count // (rows * columns)), max(1, count // columns))


def _cacheful(device: torch.device) -> int:
    """Return how many numbers are worked on at a time; an accelerator is quickest with all of them."""
    return CACHE_ELEMENTS if device.type == "cpu" else 2**62


def _blocks(batch: int, rows: int, batch_count: int, row_count: int) -> Iterator[Block]:
    for batch_start in range(0, batch, batch_count):
        batches = slice(batch_start, min(batch_start + batch_count, batch))
        for row_start in range(0, rows, row_count):
            yield batches, slice(row_start, min(row_start + row_count, rows))


class Target(NamedTuple):
    """Where a product goes."""

    c_BMN: torch.Tensor
    """Memory for it."""
    adds: bool
    """Whether it is added to what is there."""

    def put(self, product_BMN: torch.Tensor) -> torch.Tensor:
        """Write, or add, a product that was made elsewhere; return the memory."""
        return self.c_BMN.add_(product_BMN) if self.adds else self.c_BMN.copy_(product_BMN)


def whole(shape: torch.Size) -> Block:
    """Return the block that is all of a tensor of three dimensions."""
    return slice(0, shape[0]), slice(0, shape[1])


def part_of(x: torch.Tensor, block: tuple[slice, ...]) -> torch.Tensor:
    """Return the part of a tensor that belongs to a block; dimensions of size 1 broadcast."""
    for dim, (part, size) in enumerate(zip(block, x.shape, strict=False)):
        if size > 1 and part.stop - part.start < size:
            x = x.narrow(dim, part.start, part.stop - part.start)
    return x
