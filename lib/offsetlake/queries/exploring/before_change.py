"""From before which record the offsets of a group are restored to undo one of its changes."""

import numpy as np

from offsetlake.lake.lake import Lake
from offsetlake.queries.exploring.changes import KINDS, Changes
from offsetlake.queries.exploring.step import Row
from offsetlake.queries.exploring.steps import IntegerColumn
from offsetlake.queries.history.before import LogPosition

_COMMIT = KINDS.index("commit")
_MAX_TOGETHER = 1 << 14  # a request with more offsets is several batches


def start_of_change(lake: Lake, record: Row, of_group: Changes[IntegerColumn] | None) -> LogPosition:
    """Return the position of the first record of the change that a record belongs to, or of what decided it.

    A request that sets several offsets writes a record for each, one after the other and with one timestamp. Ordinary
    commits beside these are not part of the change. A commit of a transaction takes effect with its marker.

    Args:
        lake: The lake.
        record: The record, a row of `questions.history` that took effect.
        of_group: The changes of the group; None if they are not known, so that the record is the first one.
    """
    partition, offset = record["log_partition"], record["log_offset"]
    if record["producer_id"] is not None and record["event"] != "tombstone":
        marker = lake.query(
            "SELECT min(log_offset) AS log_offset FROM transaction_markers "  # noqa: S608
            f"WHERE log_partition = {partition} AND producer_id = {record['producer_id']} AND log_offset > {offset}",
            "transaction_markers",
        )
        return LogPosition(partition, marker["log_offset"][0].as_py())
    index = None if of_group is None else of_group.steps.index(partition, offset)
    if of_group is None or index is None:
        return LogPosition(partition, offset)
    rows = slice(max(0, index + 1 - _MAX_TOGETHER), index + 1)
    steps = of_group.steps.at(np.arange(rows.start, rows.stop))
    kinds, seen = of_group.kinds[rows], set[int]()
    for row in reversed(range(len(kinds))):
        is_together = (
            steps.log_partition[row] == partition
            and steps.log_offset[row] == offset - len(seen)
            and steps.time[row] == steps.time[-1]
            and kinds[row] != _COMMIT
            and not steps.is_transactional[row]
            and steps.number[row] not in seen
        )
        if not is_together:
            break
        seen.add(int(steps.number[row]))
    return LogPosition(partition, offset + 1 - max(len(seen), 1))
