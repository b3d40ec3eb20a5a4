"""Nodes of a Chakra trace and their attributes, to and from bytes.

References
----------
MLCommons Chakra, ``schema/protobuf/et_def.proto`` (version 1.0.0): the field numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from workloads.traces.chakra.wire import (
    DamagedError,
    Wire,
    fields,
    packed,
    record,
    signed,
    tag,
    unpacked,
    unpacked_fixed,
    unzigzag,
    varint,
    zigzag,
)


class NodeType(IntEnum):
    """What a node is; the schema's numbers."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


class CommType(IntEnum):
    """What a collective does; the schema's numbers."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


class Form(IntEnum):
    """Which of the alternatives an attribute's value is: its field number; a list of them has one more."""

    DOUBLE = 3
    FLOAT = 5
    INT32 = 7
    INT64 = 9
    UINT32 = 11
    UINT64 = 13
    SINT32 = 15
    SINT64 = 17
    FIXED32 = 19
    FIXED64 = 21
    SFIXED32 = 23
    SFIXED64 = 25
    BOOL = 27
    STRING = 29
    BYTES = 31


Scalar = bool | int | float | str | bytes
"""One value."""


class Attribute(NamedTuple):
    """A value with the form in which it is written."""

    form: Form
    """Its form, or that of the elements of a list."""
    value: Scalar | tuple[Scalar, ...]
    """The value, or a tuple for a list."""


_SIGNED = {Form.INT32, Form.INT64}
_ZIGZAG = {Form.SINT32, Form.SINT64}
_TEXT = {Form.STRING, Form.BYTES}
_FIXED = {
    Form.DOUBLE: struct.Struct("<d"),
    Form.FLOAT: struct.Struct("<f"),
    Form.FIXED32: struct.Struct("<I"),
    Form.FIXED64: struct.Struct("<Q"),
    Form.SFIXED32: struct.Struct("<i"),
    Form.SFIXED64: struct.Struct("<q"),
}
_FORMS = {form + of_list: (form, bool(of_list)) for form in Form for of_list in (0, 1)}
_NODE_TYPES = {int(one): one for one in NodeType}


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One node of one rank's trace."""

    id: int
    """Unique within the rank."""
    name: str
    """What it is."""
    type: NodeType
    """What kind of thing it is."""
    ctrl_deps: tuple[int, ...] = ()
    """Nodes that must have finished, for the sake of order."""
    data_deps: tuple[int, ...] = ()
    """Nodes that must have finished, for the sake of data."""
    start_us: int = 0
    """Recorded start, microseconds."""
    duration_us: int = 0
    """Recorded duration, microseconds; 0: not recorded."""
    inputs: tuple[str, str, str] = ("", "", "")
    """Values, shapes and types of the inputs as text."""
    outputs: tuple[str, str, str] = ("", "", "")
    """The same of the outputs."""
    attributes: Mapping[str, Attribute] = field(default_factory=lambda: MappingProxyType({}))
    """What else is known, by name."""
    offset: int = field(default=0, compare=False)
    """Byte of the file at which it begins, for errors."""

    def get(self, name: str, default: Scalar = 0) -> Scalar:
        """Return the value of an attribute that is no list, or a default."""
        found = self.attributes.get(name)
        return default if found is None or isinstance(found.value, tuple) else found.value

    def whole(self, name: str, default: int = 0) -> int:
        """Return an attribute as a whole number, or a default."""
        value = self.get(name, default)
        return default if isinstance(value, str | bytes) else int(value)


def _value_bytes(form: Form, value: Scalar) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if form in _FIXED:
        return _FIXED[form].pack(value)
    return varint(zigzag(int(value)) if form in _ZIGZAG else int(value))


def _wire(form: Form) -> Wire:
    if form in _FIXED:
        return Wire.FIXED64 if _FIXED[form].size == 8 else Wire.FIXED32
    return Wire.BYTES if form in _TEXT else Wire.VARINT


def encode_attribute(name: str, attribute: Attribute) -> bytes:
    """Return an AttributeProto; a default value is written too, for its presence means something."""
    form, value = attribute
    head = record(1, name.encode())
    if isinstance(value, tuple):
        if form in _TEXT:
            return head + record(form + 1, b"".join(record(1, _value_bytes(form, one)) for one in value))
        content = b"".join(_value_bytes(form, one) for one in value)
        return head + record(form + 1, record(1, content) if content else b"")
    content = _value_bytes(form, value)
    size = varint(len(content)) if form in _TEXT else b""
    return head + tag(form, _wire(form)) + size + content


def encode_node(node: Node) -> bytes:
    """Return the bytes of a node without their length; what is 0 or empty is left out, as proto3 does."""
    parts = [
        tag(number, Wire.VARINT) + varint(value)
        for number, value in ((1, node.id), (3, node.type), (6, node.start_us), (7, node.duration_us))
        if value
    ]
    if node.name:
        parts.insert(1 if node.id else 0, record(2, node.name.encode()))
    at = sum(bool(one) for one in (node.id, node.name, node.type))
    deps = [
        record(number, packed(values))
        for number, values in ((4, node.ctrl_deps), (5, node.data_deps))
        if values
    ]
    parts[at:at] = deps
    for number, info in ((8, node.inputs), (9, node.outputs)):
        if any(info):
            content = b"".join(record(index + 1, text.encode()) for index, text in enumerate(info) if text)
            parts.append(record(number, content))
    parts += [record(10, encode_attribute(name, one)) for name, one in node.attributes.items()]
    return b"".join(parts)


def encode_metadata(version: str, attributes: Mapping[str, Attribute] = MappingProxyType({})) -> bytes:
    """Return the GlobalMetadata with which a file begins."""
    parts = [record(1, version.encode())] if version else []
    return b"".join(parts + [record(2, encode_attribute(name, one)) for name, one in attributes.items()])


def decode_metadata(data: bytes, start: int, end: int) -> dict[str, Attribute]:
    """Return the attributes of a GlobalMetadata, its version among them as text under ``version``.

    Raises
    ------
    DamagedError
        If the bytes are no such message.
    """
    found: dict[str, Attribute] = {}
    for number, wire, first, last in fields(data, start, end):
        if number == 1 and wire == Wire.BYTES:
            found["version"] = Attribute(Form.STRING, _text(data, first, last))
        elif number == 2 and wire == Wire.BYTES:
            name, attribute = _attribute(data, first, last)
            found.setdefault(name, attribute)
    return found


def _text(data: bytes, start: int, end: int) -> str:
    try:
        return data[start:end].decode()
    except UnicodeDecodeError:
        raise DamagedError(start, "a text is not UTF-8") from None


def _number(form: Form, value: int) -> Scalar:
    if form is Form.BOOL:
        return bool(value)
    if form in _SIGNED:
        return signed(value)
    return unzigzag(value) if form in _ZIGZAG else value


def _values(form: Form, data: bytes, start: int, end: int) -> tuple[Scalar, ...]:
    """Return the elements of a list, packed or one by one."""
    found: list[Scalar] = []
    for number, wire, first, last in fields(data, start, end):
        if number != 1:
            continue
        if form in _TEXT and wire == Wire.BYTES:
            found.append(_text(data, first, last) if form is Form.STRING else data[first:last])
        elif wire == Wire.VARINT:
            found.append(_number(form, first))
        elif form in _FIXED:
            found += unpacked_fixed(data, first, last, _FIXED[form])
        else:
            found += [_number(form, value) for value in unpacked(data, first, last)]
    return tuple(found)


def _attribute(data: bytes, start: int, end: int) -> tuple[str, Attribute]:
    try:
        return decode_attribute(data[start:end])
    except DamagedError as error:
        raise DamagedError(start + error.offset, str(error)) from None


@lru_cache(maxsize=2**16)
def decode_attribute(data: bytes) -> tuple[str, Attribute]:
    """Return the name and the value of an AttributeProto; most of a trace's are the same few.

    Raises
    ------
    DamagedError
        If the bytes are no such message.
    """
    start, end = 0, len(data)
    name = ""
    found = Attribute(Form.BYTES, b"")
    for number, wire, first, last in fields(data, start, end):
        if number == 1:
            name = _text(data, first, last)
            continue
        known = _FORMS.get(number)
        if known is None:
            continue
        form, of_list = known
        expected = Wire.BYTES if of_list else _wire(form)
        if wire != expected:
            raise DamagedError(
                start, f"attribute '{name}' has wire type {wire} where {form.name} has {expected}"
            )
        if of_list:
            found = Attribute(form, _values(form, data, first, last))
        elif wire == Wire.VARINT:
            found = Attribute(form, _number(form, first))
        elif form in _TEXT:
            found = Attribute(form, _text(data, first, last) if form is Form.STRING else data[first:last])
        else:
            found = Attribute(form, _FIXED[form].unpack_from(data, first)[0])
    return name, found


def _ids(data: bytes, wire: int, first: int, last: int) -> Sequence[int]:
    return (first,) if wire == Wire.VARINT else unpacked(data, first, last)


def _info(data: bytes, start: int, end: int) -> tuple[str, str, str]:
    found = ["", "", ""]
    for number, wire, first, last in fields(data, start, end):
        if 1 <= number <= len(found) and wire == Wire.BYTES:
            found[number - 1] = _text(data, first, last)
    return found[0], found[1], found[2]


_EXPECTED = {1: 0, 2: 2, 3: 0, 6: 0, 7: 0, 8: 2, 9: 2, 10: 2}
_NUMBERS = {1: 0, 6: 1, 7: 2}


def decode_node(data: bytes, start: int, end: int, offset: int = 0) -> Node:
    """Return the node that some bytes hold; fields that the schema does not have are passed over.

    Parameters
    ----------
    data : bytes
        Where it stands.
    start, end : int
        Its first byte, and the one behind its last.
    offset : int
        Byte of the file at which it begins.

    Raises
    ------
    DamagedError
        If the bytes are no node.
    """
    numbers = [0, 0, 0]
    name = ""
    kind = NodeType.INVALID
    ctrl: list[int] = []
    deps: list[int] = []
    info = {8: ("", "", ""), 9: ("", "", "")}
    attributes: dict[str, Attribute] = {}
    for number, wire, first, last in fields(data, start, end):
        if _EXPECTED.get(number, wire) != wire:
            raise DamagedError(start, f"field {number} of a node has wire type {wire}")
        if number == 10:
            key, attribute = _attribute(data, first, last)
            attributes[key] = attribute
        elif number in _NUMBERS:
            numbers[_NUMBERS[number]] = first
        elif number == 2:
            name = _text(data, first, last)
        elif number == 3:
            if first not in _NODE_TYPES:
                raise DamagedError(start, f"there is no node type {first}")
            kind = _NODE_TYPES[first]
        elif number in {4, 5}:
            (ctrl if number == 4 else deps).extend(_ids(data, wire, first, last))
        elif number in info:
            info[number] = _info(data, first, last)
    return Node(
        id=numbers[0],
        name=name,
        type=kind,
        ctrl_deps=tuple(ctrl),
        data_deps=tuple(deps),
        start_us=numbers[1],
        duration_us=numbers[2],
        inputs=info[8],
        outputs=info[9],
        attributes=attributes,
        offset=offset,
    )
