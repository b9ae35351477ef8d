"""The door of a log: what is said to the process that owns it, by those who want to write to it while it does.

A Unix socket in the folder of the log. One request is under way on a connection at a time. Requests and answers are an
int32, the size of what follows, and that: a byte and fields. Numbers are big-endian, texts are UTF-8 to the end.

| request | byte | fields | answered with |
|---------|------|--------|---------------|
| HELLO   | 0 | int16 VERSION | text: the principal of who comes in, as the owner knows it |
| END     | 1 | int32 log partition | int64 end: all below it is served, and for good as far as the owner's flush has it |
| APPEND  | 2 | int32 log partition; int64 log offset it was looked up to, which END has told; then of each record batch int32 size, its bytes | of each batch int64 log offset of its first record, or -1 |
| SYNC    | 3 | nothing | nothing, once all that was appended is on the disk |
| CUT     | 4 | int32 log partition; int64 log offset needed; text: the lake that needs no more | int32 segments deleted; int64 their bytes |

A batch holds records of one group, and may tell who does it (`kafka/audit_headers.py`): who came in, nobody else. It is
appended only if nothing of that group came into the log at or behind the log offset it was looked up to: -1 says that
something did. END is asked on the same connection before: from then on the owner keeps in mind which groups are written
to.

| answer      | byte | fields |
|-------------|------|--------|
| DONE        | 0 | as above |
| BUSY        | 1 | text for a person: not now; the log is still being loaded |
| UNAVAILABLE | 2 | text for a person: it cannot be done |

What is no request ends the connection.
"""  # noqa: E501 - a table

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

SOCKET = "offsetlake.sock"
VERSION = 2
MAX_FRAME = 1 << 30  # one batch may be all of a group
WRITTEN_SINCE = -1
SIZE, LOG_OFFSET = struct.Struct(">i"), struct.Struct(">q")
HELLO_FIELDS, END_FIELDS, APPEND_FIELDS = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">iq")
CUT_FIELDS, CUT_ANSWER = struct.Struct(">iq"), struct.Struct(">iq")


class Ask(IntEnum):
    """What is asked."""

    HELLO = 0
    END = 1
    APPEND = 2
    SYNC = 3
    CUT = 4


class Status(IntEnum):
    """How it is answered."""

    DONE = 0
    BUSY = 1
    UNAVAILABLE = 2


def frame(kind: Ask | Status, *fields: bytes | bytearray) -> bytes:
    """Lay a request or an answer out."""
    return b"".join((SIZE.pack(1 + sum(map(len, fields))), bytes((kind,)), *fields))


@contextmanager
def address_of(folder: Path) -> Iterator[str]:
    """Give an address of the socket in a folder: addresses have 107 bytes at most, and the folder's name may have more.

    OSError where there is no such folder.
    """
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{SOCKET}"
    finally:
        os.close(handle)
