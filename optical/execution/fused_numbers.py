"""What compiled functions and those that call them agree on."""

from __future__ import annotations

HEAD = 6
"""Numbers that stand first in the block of a job: address of a counter for each thread, 64 bytes apart;
length of what is divided, and of a part; threads; parts first offered to each; address of what tells a
thread's number, or 0."""
FLOAT32, INT8, INT16 = 0, 1, 2
"""Kinds of codes."""
ROWS, BYTES = 16, 64
"""Of a tile, and of a row of it."""
TILE = ROWS * BYTES
"""Bytes of a tile."""
FEWEST_ROWS = 2 * ROWS
"""Rows of A that are multiplied at a time: of a product in tiles, or a block of one, that has as many."""
