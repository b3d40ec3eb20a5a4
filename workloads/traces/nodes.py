"""Nodes of Chakra traces as Protocol Buffers messages, and files of these, plain or gzip.

A file is a row of messages, each behind its length: metadata first, then nodes. Message types are built when
they are first needed, from the field numbers of the published schema; fields of the schema that are not used
here are passed over. An attribute of a node may hold the operators of a run, as text (`operators_text`).

References
----------
MLCommons Chakra, ``schema/protobuf/et_def.proto`` (version 1.0.0): the field numbers.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import typing
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Flag, IntEnum
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple, cast

from simulator.errors import HeliographError, ParameterError, WorkloadError
from simulator.operators import Elementwise, MatMul

EXTRA = "traces of Chakra need the package protobuf; install it with pip install 'heliograph[chakra]'"
"""Sentence of an error where the package is missing."""


class NodeType(IntEnum):
    """Type of a node; the schema's numbers."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


class CommType(IntEnum):
    """Type of a collective; the schema's numbers."""

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
    """Type of an attribute's value; its number is that of the schema's field, that of a list is one more."""

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
    """Value of an attribute with its type in the file."""

    form: Form
    """Type of the value, or of the elements of a list."""
    value: Scalar | tuple[Scalar, ...]
    """The value; a tuple for a list."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One node of one rank's trace."""

    id: int
    """Unique within the rank."""
    name: str
    """Name for people."""
    type: NodeType
    """Type."""
    ctrl_deps: tuple[int, ...] = ()
    """Nodes that must have finished before it, for the sake of order."""
    data_deps: tuple[int, ...] = ()
    """Nodes that must have finished before it, for their results."""
    start_us: int = 0
    """Recorded start, microseconds."""
    duration_us: int = 0
    """Recorded duration, microseconds; 0: not recorded."""
    inputs: tuple[str, str, str] = ("", "", "")
    """Values, shapes and types of the inputs as text."""
    outputs: tuple[str, str, str] = ("", "", "")
    """The same of the outputs."""
    attributes: Mapping[str, Attribute] = field(default_factory=lambda: MappingProxyType({}))
    """Further values, by name."""
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


def is_readable() -> bool:
    """Return whether traces can be read and written: whether the package protobuf is installed."""
    return find_spec("google") is not None and find_spec("google.protobuf") is not None


class Schema(NamedTuple):
    """Classes of the protobuf library."""

    node: Any
    """Message of a node."""
    metadata: Any
    """Message with which a file begins."""
    damaged: type[Exception]
    """Exception that parsing raises for bytes that are no message."""


@cache
def schema() -> Schema:
    """Return the classes of the schema's messages.

    Raises
    ------
    HeliographError
        If the package protobuf is not installed.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory  # noqa: PLC0415
    except ImportError:
        raise HeliographError(EXTRA) from None
    types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")

    def add(name: str, *members: tuple[str, int, int | str], many: Iterable[str] = ()) -> Any:  # noqa: ANN401
        """Add a message; its members are name, number, and type or name of a message; `many` are repeated."""
        added = file.message_type.add(name=name)
        for member, number, kind in members:
            label = types.LABEL_REPEATED if member in many else types.LABEL_OPTIONAL
            described = added.field.add(name=member, number=number, label=label)
            if isinstance(kind, str):
                described.type, described.type_name = types.TYPE_MESSAGE, f".{file.package}.{kind}"
            else:
                described.type = kind
        return added

    scalars = {form: getattr(types, f"TYPE_{form.name}") for form in Form}
    for form, kind in scalars.items():
        add(_list_of(form), ("values", 1, kind), many=("values",))
    values = [(_field_of(form), int(form), kind) for form, kind in scalars.items()]
    values += [(_list_of(form), form + 1, _list_of(form)) for form in Form]
    attribute = add("AttributeProto", ("name", 1, types.TYPE_STRING), *values)
    attribute.oneof_decl.add(name="value")
    for alternative in attribute.field[1:]:
        alternative.oneof_index = 0
    texts = [(name, number, types.TYPE_STRING) for number, name in enumerate(_INFO, start=1)]
    add("IOInfo", *texts)
    add("GlobalMetadata", ("version", 1, types.TYPE_STRING), ("attr", 2, "AttributeProto"), many=("attr",))
    numbers = {"id": 1, "type": 3, "ctrl_deps": 4, "data_deps": 5, "start_us": 6, "duration_us": 7}
    add(
        "Node",
        ("name", 2, types.TYPE_STRING),
        *((name, number, types.TYPE_UINT64) for name, number in numbers.items()),
        *((name, number, "IOInfo") for name, number in (("inputs", 8), ("outputs", 9))),
        ("attr", 10, "AttributeProto"),
        many=("ctrl_deps", "data_deps", "attr"),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    node, metadata = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{name}"))
        for name in ("Node", "GlobalMetadata")
    )
    return Schema(node, metadata, message.DecodeError)


def _field_of(form: Form) -> str:
    """Return the name of the field of an attribute's value of a type."""
    return f"{form.name.lower()}_val"


def _list_of(form: Form) -> str:
    """Return the name of the message, and of the field, of a list of values of a type."""
    return f"{form.name.lower()}_list"


_INFO = ("values", "shapes", "types")
_NODE_TYPES = {int(one): one for one in NodeType}
_FIELDS = {_field_of(form): form for form in Form}
_LISTS = {_list_of(form): form for form in Form}


def encode_node(node: Node) -> bytes:
    """Return the bytes of a node without their length; fields of 0 are left out, as proto3 does."""
    message = schema().node(
        id=node.id,
        name=node.name,
        type=node.type,
        ctrl_deps=node.ctrl_deps,
        data_deps=node.data_deps,
        start_us=node.start_us,
        duration_us=node.duration_us,
    )
    for info, texts in ((message.inputs, node.inputs), (message.outputs, node.outputs)):
        for name, text in zip(_INFO, texts, strict=True):
            if text:
                setattr(info, name, text)
    _add_attributes(message, node.attributes)
    return message.SerializeToString()


def encode_metadata(version: str, attributes: Mapping[str, Attribute] = MappingProxyType({})) -> bytes:
    """Return the GlobalMetadata with which a file begins."""
    message = schema().metadata(version=version)
    _add_attributes(message, attributes)
    return message.SerializeToString()


def _add_attributes(message: Any, attributes: Mapping[str, Attribute]) -> None:  # noqa: ANN401
    """Write attributes into a message, also those with default values, whose presence means something."""
    for name, (form, value) in attributes.items():
        attribute = message.attr.add(name=name)
        if isinstance(value, tuple):
            getattr(attribute, _list_of(form)).SetInParent()
            getattr(attribute, _list_of(form)).values.extend(value)
        else:
            setattr(attribute, _field_of(form), value)


def _parsed(kind: Any, data: bytes) -> Any:  # noqa: ANN401 - a message
    """Return the message in some bytes; a `ValueError` if they are no message of this class."""
    try:
        return kind.FromString(data)
    except schema().damaged:
        msg = f"a message of {len(data)} bytes is none of the schema's"
        raise ValueError(msg) from None


def _attribute(message: Any) -> tuple[str, Attribute]:  # noqa: ANN401
    """Return name and value of an attribute; no bytes for one without a value."""
    field = message.WhichOneof("value")
    if field in _FIELDS:
        return message.name, Attribute(_FIELDS[field], getattr(message, field))
    if field in _LISTS:
        return message.name, Attribute(_LISTS[field], tuple(getattr(message, field).values))
    return message.name, Attribute(Form.BYTES, b"")


def decode_node(data: bytes, offset: int = 0) -> Node:
    """Return the node in some bytes; fields that the schema does not have are passed over.

    Raises
    ------
    ValueError
        If the bytes are no node.
    """
    message = _parsed(schema().node, data)
    if message.type not in _NODE_TYPES:
        msg = f"there is no node type {message.type}"
        raise ValueError(msg)
    return Node(
        id=message.id,
        name=message.name,
        type=_NODE_TYPES[message.type],
        ctrl_deps=tuple(message.ctrl_deps),
        data_deps=tuple(message.data_deps),
        start_us=message.start_us,
        duration_us=message.duration_us,
        inputs=_texts(message, "inputs"),
        outputs=_texts(message, "outputs"),
        attributes=dict(map(_attribute, message.attr)),
        offset=offset,
    )


def _texts(message: Any, name: str) -> tuple[str, str, str]:  # noqa: ANN401
    """Return values, shapes and types of a node's inputs or outputs."""
    if not message.HasField(name):
        return "", "", ""
    info = getattr(message, name)
    return info.values, info.shapes, info.types


VERSION = "0.0.4"
"""Version of the schema that is written."""
LONGEST_MESSAGE = 2**28
"""Bytes beyond which a message's length is taken for damage."""
LONGEST_VARINT = 10
"""Bytes of the longest length: 64 bits in groups of seven."""
_GROUP = 0x7F
"""Bits of a byte of a length."""
_MORE = 0x80
"""Bit of such a byte that says that another follows."""
_GZIP = b"\x1f\x8b"
"""First bytes of a gzip file."""


class DamagedError(WorkloadError):
    """Bytes that are no trace, at an `offset` of the unpacked content."""

    def __init__(self, offset: int, fault: str) -> None:
        super().__init__(fault)
        self.offset = offset


def read_trace(path: Path) -> Iterator[Node]:
    """Go through the nodes of one rank's file, in its order.

    Raises
    ------
    ParameterError
        If the file cannot be opened.
    WorkloadError
        If it is empty, truncated or damaged; names the byte, of the unpacked content for gzip.
    HeliographError
        If the package protobuf is not installed.
    """
    offset = 0
    try:
        with _opened(path) as stream:
            messages = _messages(stream)
            offset, first = next(messages)
            _parsed(schema().metadata, first)
            for offset, data in messages:
                yield decode_node(data, offset)
    except DamagedError as error:
        raise _damaged(path, error.offset, error) from None
    except ValueError as error:
        raise _damaged(path, offset, error) from None


def _damaged(path: Path, offset: int, fault: Exception) -> WorkloadError:
    """Return the error of a file that is no trace."""
    return WorkloadError(f"{path.name}: byte {offset}: not a Chakra trace: {fault}; write or copy it again")


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, plain or gzip, with its errors as those of a trace."""
    try:
        with path.open("rb") as raw:
            zipped = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            try:
                yield cast(IO[bytes], gzip.open(raw)) if zipped else raw
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                msg = f"{path.name}: byte {raw.tell()}: gzip data are damaged ({error}); copy the file again"
                raise WorkloadError(msg) from None
    except IsADirectoryError:
        msg = f"{path}: is a directory; name a file in it"
        raise ParameterError(msg) from None
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror or error})"
        raise ParameterError(msg) from None


def _messages(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield messages with the byte of the stream at which each begins; a `DamagedError` if there is none."""
    begin = 0
    while (length := _length(stream, begin)) is not None:
        size, length_bytes = length
        if size > LONGEST_MESSAGE:
            raise DamagedError(begin, f"a message of {size} bytes begins")
        begin += length_bytes
        data = stream.read(size)
        if len(data) < size:
            fault = f"a message of {size} bytes begins, and the file ends after {len(data)}"
            raise DamagedError(begin, fault)
        yield begin, data
        begin += size
    if not begin:
        raise DamagedError(0, "the file is empty")


def _length(stream: IO[bytes], begin: int) -> tuple[int, int] | None:
    """Return the length at the position of a stream, and the bytes that it takes; None at the end."""
    size = taken = 0
    while byte := stream.read(1):
        size |= (byte[0] & _GROUP) << 7 * taken
        taken += 1
        if byte[0] < _MORE:
            return size, taken
        if taken == LONGEST_VARINT:
            raise DamagedError(begin, f"no length of a message: it is longer than {LONGEST_VARINT} bytes")
    if taken:
        raise DamagedError(begin, "no length of a message: it is cut off")
    return None


def _prefixed(message: bytes) -> bytes:
    """Return a message behind its length."""
    size, length = len(message), bytearray()
    while size >= _MORE:
        length.append(size & _GROUP | _MORE)
        size >>= 7
    return bytes((*length, size)) + message


def write_trace(path: Path, nodes: Iterable[Node]) -> None:
    """Write one rank's file.

    Parameters
    ----------
    path : pathlib.Path
        The file; gzip if it ends in ``.gz``.
    nodes : iterable of Node
        Its nodes; each is encoded as it comes.

    Raises
    ------
    ParameterError
        If it cannot be written.
    HeliographError
        If the package protobuf is not installed.
    """
    write_messages(path, encode_metadata(VERSION, {}), map(encode_node, nodes))


def write_messages(path: Path, metadata: bytes, messages: Iterable[bytes]) -> None:
    """Write encoded messages, each behind its length.

    Raises
    ------
    ParameterError
        If the file cannot be written.
    """
    try:
        with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as stream:
            for message in chain((metadata,), messages):
                stream.write(_prefixed(message))
    except OSError as error:
        msg = f"{path}: cannot be written ({error.strerror or error}); name another place"
        raise ParameterError(msg) from None


Run = tuple[tuple[MatMul | Elementwise, int], ...]
"""Operators one after the other, each with its number of repeats."""
OPERATOR_KINDS: dict[str, type[MatMul | Elementwise]] = {"product": MatMul, "other": Elementwise}
"""Operators of a unit, by their word in a text."""
OPERATOR_FIELDS: dict[type, dict[str, Any]] = {
    kind: typing.get_type_hints(kind) for kind in OPERATOR_KINDS.values()
}
"""Type of each field of those operators."""
_KIND_WORDS = {kind: word for word, kind in OPERATOR_KINDS.items()}


def operators_text(run: Run) -> str:
    """Return a run as JSON: for each operator its repeats, its word, and its fields without defaults."""
    return json.dumps(
        [[times, _KIND_WORDS[type(operator)], _set_fields(operator)] for operator, times in run],
        separators=(",", ":"),
    )


def _set_fields(operator: MatMul | Elementwise) -> dict[str, Any]:
    """Return the fields of an operator that differ from their defaults, as plain values."""
    values = {}
    for item in dataclasses.fields(operator):
        value = getattr(operator, item.name)
        if value != item.default:
            values[item.name] = value.value if isinstance(value, Flag) else value
    return values


def read_operators(text: str) -> Run:
    """Return the run that `operators_text` has written.

    Raises
    ------
    ValueError
        If the text is none of its.
    """
    try:
        return tuple(
            _operator(int(times), OPERATOR_KINDS[word], fields.items())
            for times, word, fields in json.loads(text)
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        msg = f"its operators cannot be read ({type(error).__name__}: {error})"
        raise ValueError(msg) from None


def _operator(
    times: int, kind: type[MatMul | Elementwise], fields: Iterable[tuple[str, Any]]
) -> tuple[MatMul | Elementwise, int]:
    """Return an operator with its repeats from plain values of its fields."""
    kinds = OPERATOR_FIELDS[kind]
    return kind(**{name: kinds[name](value) for name, value in fields}), times
