"""Answers what the offsets of a group were at an instant, from the history in the lake.

A process of its own, as `offsetlake.serve.storage.child_process` has it: `python -m offsetlake.serve.http.as_of`.

| request field | is |
|---------------|----|
| lake          | folder |
| group, topic  | names; topic null: all |
| as_of         | ms |

| answer field  | is |
|---------------|----|
| offsets       | rows of COLUMNS by key, or null: nothing is known of that instant |
| begins, ends  | when the first and the newest record in history were appended, ms; null where no record says |
"""

import os
from pathlib import Path
from typing import Any

from offsetlake.lake.foreign.guard import open_verified
from offsetlake.queries.as_of import offsets_as_of
from offsetlake.queries.questions import first_instant
from offsetlake.serve.storage.child_process import BEHIND_ANSWERS, answer_one

COLUMNS = ("topic", "partition", "committed_offset", "leader_epoch", "metadata", "topic_id")


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Do what a request asks; gives the answer."""
    os.nice(BEHIND_ANSWERS)
    lake = open_verified(Path(request["lake"]))
    begins = first_instant(lake)
    ends = lake.query("SELECT clock_timestamp FROM log_clock", "log_clock")["clock_timestamp"][0].as_py()
    if begins is None or request["as_of"] < begins:
        return {"offsets": None, "begins": begins, "ends": ends}
    found = offsets_as_of(lake, request["as_of"], request["group"], request["topic"])
    return {"offsets": found.select(COLUMNS).to_pylist(), "begins": begins, "ends": ends}


if __name__ == "__main__":
    answer_one(answer)
