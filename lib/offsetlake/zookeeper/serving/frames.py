"""The frames between the serving process and its child process for ZooKeeper: a length, and JSON."""

import json
import struct
from typing import Any

LENGTH = struct.Struct(">I")

Row = tuple[str, str, int, int | None]
"""Group, topic, partition and committed offset, None for none."""

Message = dict[str, Any]
"""A message by its fields.

| Field of a request | Description |
|--------------------|-------------|
| rows               | Offsets, as Row; those of a group follow each other |
| more               | True: the next request continues this one, which has no answer of its own |
| overwrite          | True: znodes with another offset are changed; False: they are reported |
| spares_active      | Whether groups with active consumers are refused; deletions of their offsets always are |
| read               | In place of the others: the groups whose offsets are requested |
| active             | In place of the others: the groups whose active consumers are requested |
| list               | In place of the others: requests the names of all groups |

| Field of an answer | Description |
|--------------------|-------------|
| written, unchanged | The number of znodes that were written or deleted; of those that were not |
| different          | [number of the row, offset of the znode or null] of each znode that has another offset |
| refused            | [number of the row, reason] of each row that was refused: send it again later |
| rows               | To `read`: the offsets, as Row; -1 for a znode that contains none |
| groups             | To `list`: the names |
| active             | To `active`: a text for each group that has active consumers |
| error              | In place of all others: why ZooKeeper cannot be used |
"""


def frame(message: Message) -> bytes:
    """Return a message as a frame."""
    content = json.dumps(message).encode()
    return LENGTH.pack(len(content)) + content
