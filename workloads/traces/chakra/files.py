"""Chakra files: messages behind their lengths, plain or gzip, read and written one by one."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, cast

from simulator.errors import ParameterError, WorkloadError
from workloads.traces.chakra.nodes import (
    Node,
    decode_metadata,
    decode_node,
    encode_metadata,
    encode_node,
)

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
    HeliographError
        If the package protobuf is not installed.
    """
    at = 0
    try:
        with _opened(path) as stream:
            messages = _messages(stream)
            at, first = next(messages)
            decode_metadata(first)
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
