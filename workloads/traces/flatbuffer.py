"""FlatBuffers read with nothing but the wire format: tables, their fields, vectors.

A table begins with the distance back to its vtable, which lists for each field how far from the table's start
it stands (0: the default). References are distances forward. All numbers are little-endian.

References
----------
FlatBuffers, "Internals" (google.github.io/flatbuffers): offsets, tables and vtables, vectors.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NoReturn

from simulator.errors import WorkloadError

OFFSET = struct.Struct("<I")
"""A forward reference, or the length of a vector."""
_VTABLE = struct.Struct("<i")
_SMALL = struct.Struct("<H")


@dataclass(frozen=True)
class Buffer:
    """Bytes of one file, every read of which is within it or a sentence that says where it is not."""

    data: bytes
    """All of it."""
    where: str
    """Name of the file, for errors."""

    def root(self) -> Table:
        """Return the table that the file is about."""
        return Table(self, self.follow(0))

    def number(self, form: struct.Struct, position: int) -> Any:  # noqa: ANN401 - what the form says
        """Return the number of a form at a position."""
        if position < 0 or position + form.size > len(self.data):
            self.damaged(position, f"a reference points to it, and the file has {len(self.data)} bytes")
        return form.unpack_from(self.data, position)[0]

    def follow(self, position: int) -> int:
        """Return where the reference at a position points."""
        return position + int(self.number(OFFSET, position))

    def damaged(self, position: int, what: str) -> NoReturn:
        """Raise the error about a byte of the file.

        Raises
        ------
        WorkloadError
            Always.
        """
        msg = f"{self.where}: byte {position}: not a task graph: {what}; copy the file again"
        raise WorkloadError(msg)


@dataclass(frozen=True)
class Table:
    """One table of a buffer."""

    buffer: Buffer
    """Where it stands."""
    start: int
    """Its first byte."""

    def field(self, index: int) -> int:
        """Return the position of a field, or 0 if the table leaves it out."""
        buffer = self.buffer
        vtable = self.start - int(buffer.number(_VTABLE, self.start))
        size = int(buffer.number(_SMALL, vtable))
        entry = 2 * (index + 2)
        if entry + _SMALL.size > size:
            return 0
        offset = int(buffer.number(_SMALL, vtable + entry))
        return self.start + offset if offset else 0

    def value(self, index: int, form: str, default: float = 0) -> Any:  # noqa: ANN401 - what the form says
        """Return a scalar field.

        Parameters
        ----------
        index : int
            Place of the field in the schema, from 0.
        form : str
            Its form as `struct` writes it (``I``, ``Q``, ``h``, ``f``).
        default : float
            What a table that leaves it out means.
        """
        position = self.field(index)
        return self.buffer.number(struct.Struct("<" + form), position) if position else default

    def numbers(self, index: int, form: str) -> tuple[Any, ...]:
        """Return a field that is a vector of scalars."""
        start, count = self._vector(index, struct.calcsize("<" + form))
        return struct.unpack_from(f"<{count}{form}", self.buffer.data, start) if count else ()

    def tables(self, index: int) -> list[Table]:
        """Return a field that is a vector of tables."""
        start, count = self._vector(index, OFFSET.size)
        places = range(start, start + count * OFFSET.size, OFFSET.size)
        return [Table(self.buffer, self.buffer.follow(place)) for place in places]

    def _vector(self, index: int, each: int) -> tuple[int, int]:
        position = self.field(index)
        if not position:
            return 0, 0
        start = self.buffer.follow(position)
        count = int(self.buffer.number(OFFSET, start))
        first = start + OFFSET.size
        if first + count * each > len(self.buffer.data):
            left = len(self.buffer.data) - first
            self.buffer.damaged(
                start, f"a vector of {count} elements of {each} bytes begins, {left} are left"
            )
        return first, count
