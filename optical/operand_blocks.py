"""Cuts outputs into blocks that stay in cache while they are finished."""

from __future__ import annotations

from collections.abc import Iterator

import torch

BLOCK_ELEMENTS = 2**17
"""Outputs that are finished together, so that their scratch memory stays in cache ..."""
_BLOCK_ROWS = 256
"""... unless that makes fewer rows than a matrix product needs to be quick."""
Block = tuple[slice, slice]
"""Batches and rows of some outputs."""


def blocks_of(shape: torch.Size) -> Iterator[Block]:
    """Yield slices of batches and rows that cover the outputs, sized to stay in cache."""
    batch, rows, columns = shape
    row_count = min(rows, max(_BLOCK_ROWS, BLOCK_ELEMENTS // columns))
    batch_count = max(1, BLOCK_ELEMENTS // (rows * columns))
    for batch_start in range(0, batch, batch_count):
        for row_start in range(0, rows, row_count):
            yield slice(batch_start, batch_start + batch_count), slice(row_start, row_start + row_count)


def part_of(x: torch.Tensor, block: tuple[slice, ...]) -> torch.Tensor:
    """Return the part of a tensor that belongs to a block; dimensions of size 1 broadcast."""
    return x[tuple(part if size > 1 else slice(None) for part, size in zip(block, x.shape, strict=False))]
