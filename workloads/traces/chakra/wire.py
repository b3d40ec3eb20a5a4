"""Protocol Buffers' wire format: varints, tags, and the few shapes that a field can have.

References
----------
Protocol Buffers documentation, "Encoding" (protobuf.dev/programming-guides/encoding): base-128 varints, least
significant group first; tag = field number << 3 | wire type; negative numbers as 64-bit two's complement;
zigzag for sint; packed lists as one length-delimited record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from struct import Struct

from simulator.errors import WorkloadError

LONGEST_VARINT = 10
"""Bytes of the longest varint: 64 bits in groups of seven."""
_GROUP = 0x7F
_MORE = 0x80
_WORD = (1 << 64) - 1


class Wire(IntEnum):
    """How the value of a field is laid out."""

    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    FIXED32 = 5


class DamagedError(WorkloadError):
    """Bytes that are no message; `offset` says which."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(what)
        self.offset = offset


FIXED = {Wire.FIXED64: 8, Wire.FIXED32: 4}
"""Bytes of values of fixed length."""


def varint(value: int) -> bytes:
    """Return a number as a varint; negative ones as 64-bit two's complement."""
    if 0 <= value < _MORE:
        return bytes((value,))
    value &= _WORD
    groups = bytearray()
    while value > _GROUP:
        groups.append(value & _GROUP | _MORE)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Return the unsigned value of the varint at a position, and where it ends.

    Raises
    ------
    DamagedError
        If the bytes end first, or it is longer than 64 bits.
    """
    result = shift = 0
    start = position
    while position < end:
        byte = data[position]
        position += 1
        result |= (byte & _GROUP) << shift
        if byte < _MORE:
            return result & _WORD, position
        shift += 7
        if position - start == LONGEST_VARINT:
            raise DamagedError(start, "a varint is longer than ten bytes")
    raise DamagedError(start, "a varint is cut off")


def signed(value: int) -> int:
    """Return what an unsigned 64-bit number is in two's complement."""
    return value - (_WORD + 1) if value >> 63 else value


def zigzag(value: int) -> int:
    """Return the unsigned number that stands for a signed one: 0, -1, 1, -2 -> 0, 1, 2, 3."""
    return (value << 1) ^ (value >> 63)


def unzigzag(value: int) -> int:
    """Return the signed number that an unsigned one stands for."""
    return (value >> 1) ^ -(value & 1)


def tag(number: int, wire: Wire) -> bytes:
    """Return the tag of a field."""
    return varint(number << 3 | wire)


def record(number: int, content: bytes) -> bytes:
    """Return a length-delimited field: text, bytes, a message or a packed list."""
    return tag(number, Wire.BYTES) + varint(len(content)) + content


def packed(values: Iterable[int]) -> bytes:
    """Return numbers as varints one behind the other."""
    return b"".join(map(varint, values))


def unpacked(data: bytes, start: int, end: int) -> list[int]:
    """Return the unsigned numbers of a packed list of varints."""
    values = []
    position = start
    while position < end:
        value, position = read_varint(data, position, end)
        values.append(value)
    return values


def unpacked_fixed(data: bytes, start: int, end: int, form: Struct) -> list[float]:
    """Return the numbers of a packed list of fixed length.

    Raises
    ------
    DamagedError
        If the length is no whole number of them.
    """
    if (end - start) % form.size:
        raise DamagedError(
            start, f"a list of {end - start} bytes is no whole number of {form.size} bytes each"
        )
    return [value for (value,) in form.iter_unpack(data[start:end])]


def fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Go through the fields of a message: number, wire type, and two integers.

    Parameters
    ----------
    data : bytes
        Where the message stands.
    start, end : int
        Its first byte, and the one behind its last.

    Yields
    ------
    tuple of int
        Field number, wire type, and for a varint its unsigned value and 0, else begin and end of its bytes.

    Raises
    ------
    DamagedError
        If a field does not end within the message, or has a wire type that there is not.
    """
    position = start
    while position < end:
        at = position
        key = data[position]
        position += 1
        if key >= _MORE:
            key, position = read_varint(data, at, end)
        number, wire = key >> 3, key & 7
        if not number:
            raise DamagedError(at, "a field has number 0")
        if wire == Wire.VARINT:
            if position < end and data[position] < _MORE:
                value = data[position]
                position += 1
            else:
                value, position = read_varint(data, position, end)
            yield number, wire, value, 0
            continue
        if wire == Wire.BYTES:
            size, position = read_varint(data, position, end)
        elif wire in {Wire.FIXED64, Wire.FIXED32}:
            size = FIXED[Wire(wire)]
        else:
            raise DamagedError(at, f"field {number} has wire type {wire}, which is not known")
        if size > end - position:
            raise DamagedError(
                at, f"field {number} has {size} bytes, and its message ends after {end - position}"
            )
        yield number, wire, position, position + size
        position += size
