"""The child process that reads the offsets of a group at a timestamp from the history in the lake.

`handle` reads the request and returns the answer (`offsetlake.serve.storage.child_process`).

| Request field | Description |
|---------------|-------------|
| lake          | Folder |
| group, topic  | Names; topic null: all topics |
| as_of         | ms since the epoch |

| Answer field  | Description |
|---------------|-------------|
| offsets       | Rows of COLUMNS by key, or null if the timestamp is before the history |
| begins, ends  | Append times of the first and of the newest record in the history, in ms; null if unknown |
"""

import os
from typing import Any

from offsetlake.lake.foreign.guard import open_verified
from offsetlake.queries.history.as_of import offsets_as_of
from offsetlake.queries.log_clock import first_instant
from offsetlake.util.processes import CHILD_NICENESS

COLUMNS = ("topic", "partition", "committed_offset", "leader_epoch", "metadata", "topic_id")


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Read the offsets that a request specifies, and return the answer."""
    os.nice(CHILD_NICENESS)
    lake = open_verified(request["lake"])
    begins = first_instant(lake)
    ends = lake.query("SELECT clock_timestamp FROM log_clock", "log_clock")["clock_timestamp"][0].as_py()
    if begins is None or request["as_of"] < begins:
        return {"offsets": None, "begins": begins, "ends": ends}
    offsets = offsets_as_of(lake, request["as_of"], request["group"], request["topic"])
    return {"offsets": offsets.select(COLUMNS).to_pylist(), "begins": begins, "ends": ends}
