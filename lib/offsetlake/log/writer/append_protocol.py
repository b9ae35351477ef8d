"""The append protocol: how jobs write to a log through the job socket of the process that owns it.

The job socket is a Unix socket in the folder of the log. A connection processes one request at a time. Requests and
responses consist of an int32, the size of the rest, a byte, and fields. Numbers are big-endian; a text is UTF-8 and
extends to the end.

| Request | Byte | Fields | Fields of the response |
|---------|------|--------|------------------------|
| HELLO   | 0 | int16: VERSION | text: the principal of the job, determined by the owner |
| END     | 1 | int32: log partition | int64: log end offset; all records before it are served, and as durable as the owner's `flush` guarantees |
| APPEND  | 2 | int32: log partition; int64: log end offset that END returned; for each record batch int32: size, and its bytes | for each batch int64: log offset of its first record, or -1 |
| SYNC    | 3 | none | none, once everything that was appended is on disk |
| CUT     | 4 | int32: log partition; int64: lowest log offset that is needed; text: the lake | int32: number of deleted segments; int64: their size in bytes |
| REWIND  | 5 | int32: log partition; the bytes of one record batch with offsets | int64: log offset of the first record, or -1; text: why the offsets were not set |
| REWIND_LIMIT | 6 | text: the group | int64: milliseconds; -1 if the group has no members |
| TOPIC_ENDS | 7 | text: topics, as a JSON array | text: a JSON object with a list of [log start offset, log end offset] by partition for each topic that the cluster of a node has; null for a partition whose leader did not return them |

A batch contains records of one group, and may have audit headers (`kafka/audit/headers.py`) with the principal of the
job. It is appended only if no record of the group was written at or after the log end offset in the request; otherwise
the response contains -1. END must be sent first on the same connection: from then on, the owner tracks which groups are
written to.

| Response    | Byte | Fields |
|-------------|------|--------|
| DONE        | 0 | As above |
| BUSY        | 1 | text: message for the operator; the log is still being loaded |
| UNAVAILABLE | 2 | text: message for the operator; the request failed |

REWIND sets offsets of a group while its members run (`offsetlake.coordinator.rewind`). Its response may take as long as
REWIND_LIMIT returns, and then the disk needs. The batch does not depend on what was written to the group since.

An invalid request closes the connection.
"""  # noqa: E501 - a table

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

SOCKET = "offsetlake.sock"
VERSION = 3
MAX_FRAME_BYTES = 1 << 30  # one batch may contain all offsets of a group
WRITTEN_SINCE = -1
SIZE, LOG_OFFSET = struct.Struct(">i"), struct.Struct(">q")
HELLO_FIELDS, END_FIELDS, APPEND_FIELDS = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">iq")
CUT_FIELDS, CUT_ANSWER = struct.Struct(">iq"), struct.Struct(">iq")


class JobRequest(IntEnum):
    """The type of a request."""

    HELLO = 0
    END = 1
    APPEND = 2
    SYNC = 3
    CUT = 4
    REWIND = 5
    REWIND_LIMIT = 6
    TOPIC_ENDS = 7


class JobStatus(IntEnum):
    """The status of a response."""

    DONE = 0
    BUSY = 1
    UNAVAILABLE = 2


def frame(kind: JobRequest | JobStatus, *fields: bytes | bytearray) -> bytes:
    """Return the bytes of a request or a response."""
    return b"".join((SIZE.pack(1 + sum(map(len, fields))), bytes((kind,)), *fields))


@contextmanager
def address_of(folder: Path) -> Iterator[str]:
    """Yield an address of the job socket in a folder that does not exceed the 107 bytes of Unix socket addresses.

    Raises:
        OSError: The folder does not exist.
    """
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{SOCKET}"
    finally:
        os.close(handle)
