"""Chakra files: messages behind their lengths, plain or gzip, read and written one by one."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, cast

from simulator.errors import ParameterError, WorkloadError
from workloads.traces.chakra.nodes import (
    Attribute,
    Node,
    decode_metadata,
    decode_node,
    encode_metadata,
    encode_node,
)
from workloads.traces.chakra.wire import LONGEST_VARINT, DamagedError, read_varint, varint

VERSION = "0.0.4"
"""Version of the schema that is written."""
CHUNK_BYTES = 2**20
"""Bytes that are read at a time."""
LONGEST_MESSAGE = 2**28
"""Bytes beyond which a message's length is taken for damage."""
_GZIP = b"\x1f\x8b"


def read_trace(path: Path) -> Iterator[Node]:
    """Go through the nodes of one rank's file, in its order.

    Parameters
    ----------
    path : pathlib.Path
        File of Chakra messages, plain or gzip.

    Raises
    ------
    ParameterError
        If the file cannot be opened.
    WorkloadError
        If it is empty, truncated or damaged; names the byte, of the unpacked content for gzip.
    """
    base, inside = 0, False
    try:
        with _opened(path) as stream:
            begun = False
            for base, data, start, end in _messages(stream):
                inside = True  # offsets of errors count from the data's begin, not from the file's
                if begun:
                    yield decode_node(data, start, end, base + start)
                else:
                    decode_metadata(data, start, end)
                    begun = True
                inside = False
            _check_begun(begun)
    except DamagedError as error:
        offset = error.offset + (base if inside else 0)
        msg = f"{path.name}: byte {offset}: not a Chakra trace: {error}; write or copy it again"
        raise WorkloadError(msg) from None


def _check_begun(begun: bool) -> None:
    if not begun:
        raise DamagedError(0, "the file is empty")


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


def _messages(stream: IO[bytes]) -> Iterator[tuple[int, bytes, int, int]]:
    """Go through messages: byte of the stream at which some data begin, the data, begin and end in them."""
    base = position = 0
    data = stream.read(CHUNK_BYTES)
    while position < len(data):
        if len(data) - position < LONGEST_VARINT:
            base, position, data = base + position, 0, data[position:] + stream.read(CHUNK_BYTES)
        try:
            size, start = read_varint(data, position, len(data))
        except DamagedError as error:
            raise DamagedError(base + position, f"no length of a message: {error}") from None
        if size > LONGEST_MESSAGE:
            raise DamagedError(base + position, f"a message of {size} bytes begins")
        if start + size > len(data):
            data = data[position:] + stream.read(max(CHUNK_BYTES, start + size - len(data)))
            base, start, position = base + position, start - position, 0
        if start + size > len(data):
            left = len(data) - start
            raise DamagedError(
                base + start, f"a message of {size} bytes begins, and the file ends after {left}"
            )
        yield base, data, start, start + size
        position = start + size
        if position == len(data):
            base, position, data = base + position, 0, stream.read(CHUNK_BYTES)


def write_trace(
    path: Path,
    nodes: Iterable[Node],
    *,
    attributes: Mapping[str, Attribute] = MappingProxyType({}),
    version: str = VERSION,
) -> None:
    """Write one rank's file.

    Parameters
    ----------
    path : pathlib.Path
        Where; gzip if it ends in ``.gz``.
    nodes : iterable of Node
        What; each is encoded as it comes.
    attributes : mapping
        What the file says of itself.
    version : str
        Version of the schema.

    Raises
    ------
    ParameterError
        If it cannot be written.
    """
    write_messages(path, encode_metadata(version, attributes), map(encode_node, nodes))


def write_messages(path: Path, metadata: bytes, messages: Iterable[bytes]) -> None:
    """Write messages that are encoded already, each behind its length.

    Raises
    ------
    ParameterError
        If the file cannot be written.
    """
    try:
        with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as stream:
            stream.write(varint(len(metadata)) + metadata)
            for message in messages:
                stream.write(varint(len(message)) + message)
    except OSError as error:
        msg = f"{path}: cannot be written ({error.strerror or error}); name another place"
        raise ParameterError(msg) from None
