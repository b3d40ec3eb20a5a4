"""Nodes of a Chakra trace, to and from Protocol Buffers' messages, and files of these, plain or gzip.

The messages' types are built when they are first needed, from the field numbers of the published schema; what
that has and we do not use is passed over. An attribute of a node may hold the operators of a run, as text.

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
    """Alternative that an attribute's value is, as its field number; a list of them has one more."""

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


def is_readable() -> bool:
    """Return whether traces can be read and written: whether the package protobuf is installed."""
    return find_spec("google") is not None and find_spec("google.protobuf") is not None


class Schema(NamedTuple):
    """Classes of messages."""

    node: Any
    """A node of a trace."""
    metadata: Any
    """What a file begins with."""
    damaged: type[Exception]
    """What parsing raises for bytes that are no message."""


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
    of = descriptor_pb2.FieldDescriptorProto
    forms = {form: getattr(of, f"TYPE_{form.name}") for form in Form}
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")

    def add(name: str, *members: tuple[str, int, int | str], many: Iterable[str] = ()) -> Any:  # noqa: ANN401
        added = file.message_type.add(name=name)
        for member, number, kind in members:
            label = of.LABEL_REPEATED if member in many else of.LABEL_OPTIONAL
            one = added.field.add(name=member, number=number, label=label)
            if isinstance(kind, str):
                one.type, one.type_name = of.TYPE_MESSAGE, f".{file.package}.{kind}"
            else:
                one.type = kind
        return added

    for form, kind in forms.items():
        add(_list_of(form), ("values", 1, kind), many=("values",))
    values = [(_field_of(form), int(form), kind) for form, kind in forms.items()]
    values += [(_list_of(form), form + 1, _list_of(form)) for form in Form]
    attribute = add("AttributeProto", ("name", 1, of.TYPE_STRING), *values)
    attribute.oneof_decl.add(name="value")
    for one in attribute.field[1:]:
        one.oneof_index = 0
    texts = [(name, number, of.TYPE_STRING) for number, name in enumerate(_INFO, start=1)]
    add("IOInfo", *texts)
    add("GlobalMetadata", ("version", 1, of.TYPE_STRING), ("attr", 2, "AttributeProto"), many=("attr",))
    numbers = {"id": 1, "type": 3, "ctrl_deps": 4, "data_deps": 5, "start_us": 6, "duration_us": 7}
    add(
        "Node",
        ("name", 2, of.TYPE_STRING),
        *((name, number, of.TYPE_UINT64) for name, number in numbers.items()),
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
    return f"{form.name.lower()}_val"


def _list_of(form: Form) -> str:
    return f"{form.name.lower()}_list"


_INFO = ("values", "shapes", "types")
_NODE_TYPES = {int(one): one for one in NodeType}
_FIELDS = {_field_of(form): form for form in Form}
_LISTS = {_list_of(form): form for form in Form}


def encode_node(node: Node) -> bytes:
    """Return the bytes of a node without their length; what is 0 or empty is left out, as proto3 does."""
    told = schema().node(
        id=node.id,
        name=node.name,
        type=node.type,
        ctrl_deps=node.ctrl_deps,
        data_deps=node.data_deps,
        start_us=node.start_us,
        duration_us=node.duration_us,
    )
    for info, texts in ((told.inputs, node.inputs), (told.outputs, node.outputs)):
        for name, text in zip(_INFO, texts, strict=True):
            if text:
                setattr(info, name, text)
    _tell(told, node.attributes)
    return told.SerializeToString()


def encode_metadata(version: str, attributes: Mapping[str, Attribute] = MappingProxyType({})) -> bytes:
    """Return the GlobalMetadata with which a file begins."""
    told = schema().metadata(version=version)
    _tell(told, attributes)
    return told.SerializeToString()


def _tell(told: Any, attributes: Mapping[str, Attribute]) -> None:  # noqa: ANN401 - a message
    """Write attributes into a message; a default value is written too, for its presence means something."""
    for name, (form, value) in attributes.items():
        one = told.attr.add(name=name)
        if isinstance(value, tuple):
            getattr(one, _list_of(form)).SetInParent()
            getattr(one, _list_of(form)).values.extend(value)
        else:
            setattr(one, _field_of(form), value)


def _parsed(kind: Any, data: bytes) -> Any:  # noqa: ANN401 - a message
    """Return the message that some bytes hold; a `ValueError` if they are none of this kind."""
    try:
        return kind.FromString(data)
    except schema().damaged:
        msg = f"a message of {len(data)} bytes is none of the schema's"
        raise ValueError(msg) from None


def _attribute(told: Any) -> tuple[str, Attribute]:  # noqa: ANN401 - a message
    which = told.WhichOneof("value")
    if which in _FIELDS:
        return told.name, Attribute(_FIELDS[which], getattr(told, which))
    if which in _LISTS:
        return told.name, Attribute(_LISTS[which], tuple(getattr(told, which).values))
    return told.name, Attribute(Form.BYTES, b"")


def decode_node(data: bytes, offset: int = 0) -> Node:
    """Return the node that some bytes hold; fields that the schema does not have are passed over.

    Raises
    ------
    ValueError
        If the bytes are no node.
    """
    told = _parsed(schema().node, data)
    if told.type not in _NODE_TYPES:
        msg = f"there is no node type {told.type}"
        raise ValueError(msg)
    return Node(
        id=told.id,
        name=told.name,
        type=_NODE_TYPES[told.type],
        ctrl_deps=tuple(told.ctrl_deps),
        data_deps=tuple(told.data_deps),
        start_us=told.start_us,
        duration_us=told.duration_us,
        inputs=_texts(told, "inputs"),
        outputs=_texts(told, "outputs"),
        attributes=dict(map(_attribute, told.attr)),
        offset=offset,
    )


def _texts(told: Any, name: str) -> tuple[str, str, str]:  # noqa: ANN401 - a message
    if not told.HasField(name):
        return "", "", ""
    info = getattr(told, name)
    return info.values, info.shapes, info.types


VERSION = "0.0.4"
"""Version of the schema that is written."""
LONGEST_MESSAGE = 2**28
"""Bytes beyond which a message's length is taken for damage."""
LONGEST_VARINT = 10
"""Bytes of the longest length: 64 bits in groups of seven."""
_GROUP = 0x7F
_MORE = 0x80
_GZIP = b"\x1f\x8b"


class DamagedError(WorkloadError):
    """Bytes that are no trace; `offset` says which, of the unpacked content."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(what)
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
    at = 0
    try:
        with _opened(path) as stream:
            messages = _messages(stream)
            at, first = next(messages)
            _parsed(schema().metadata, first)
            for at, data in messages:
                yield decode_node(data, at)
    except DamagedError as error:
        raise _damaged(path, error.offset, error) from None
    except ValueError as error:
        raise _damaged(path, at, error) from None


def _damaged(path: Path, offset: int, what: Exception) -> WorkloadError:
    return WorkloadError(f"{path.name}: byte {offset}: not a Chakra trace: {what}; write or copy it again")


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
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
    """Go through messages, each with the byte of the stream at which it begins; there is one at least."""
    begin = 0
    while (length := _length(stream, begin)) is not None:
        size, taken = length
        if size > LONGEST_MESSAGE:
            raise DamagedError(begin, f"a message of {size} bytes begins")
        begin += taken
        data = stream.read(size)
        if len(data) < size:
            what = f"a message of {size} bytes begins, and the file ends after {len(data)}"
            raise DamagedError(begin, what)
        yield begin, data
        begin += size
    if not begin:
        raise DamagedError(0, "the file is empty")


def _length(stream: IO[bytes], begin: int) -> tuple[int, int] | None:
    """Return the length that stands next in a stream, and its own bytes; None at the end."""
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
        Where; gzip if it ends in ``.gz``.
    nodes : iterable of Node
        What; each is encoded as it comes.

    Raises
    ------
    ParameterError
        If it cannot be written.
    HeliographError
        If the package protobuf is not installed.
    """
    write_messages(path, encode_metadata(VERSION, {}), map(encode_node, nodes))


def write_messages(path: Path, metadata: bytes, messages: Iterable[bytes]) -> None:
    """Write messages that are encoded already, each behind its length.

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
"""Operators one after the other, and how often each."""
OPERATOR_KINDS: dict[str, type[MatMul | Elementwise]] = {"product": MatMul, "other": Elementwise}
"""Operators that a unit runs, by the word that a text has for them."""
OPERATOR_FIELDS: dict[type, dict[str, Any]] = {
    kind: typing.get_type_hints(kind) for kind in OPERATOR_KINDS.values()
}
"""Type of each field of each."""
_KIND_WORDS = {kind: word for word, kind in OPERATOR_KINDS.items()}


def operators_text(run: Run) -> str:
    """Return a run as JSON: of each operator how often, its kind, and its fields that differ from usual."""
    return json.dumps(
        [[times, _KIND_WORDS[type(one)], _unusual(one)] for one, times in run], separators=(",", ":")
    )


def _unusual(one: MatMul | Elementwise) -> dict[str, Any]:
    values = {item.name: (getattr(one, item.name), item.default) for item in dataclasses.fields(one)}
    return {
        name: value.value if isinstance(value, Flag) else value
        for name, (value, usual) in values.items()
        if value != usual
    }


def read_operators(text: str) -> Run:
    """Return the run of a text.

    Raises
    ------
    ValueError
        If the text is none of `operators_text`.
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
    kinds = OPERATOR_FIELDS[kind]
    return kind(**{name: kinds[name](value) for name, value in fields}), times
