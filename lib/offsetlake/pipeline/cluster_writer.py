"""Decisions done by a live cluster, through its admin API: read again, asked for, read back.

Kafka has no conditional write. What came in between reading and acting is looked for in the log, and told.
"""

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from offsetlake.errors import LogUnavailable
from offsetlake.log.address import LogAddress
from offsetlake.log.admin import Admin, Commit, Partition
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition, OffsetRange
from offsetlake.pipeline.current import read_tail
from offsetlake.pipeline.written import Written

_NOT_FOUND = "(69)"  # a group that goes with its last offset is gone as it was meant to be

Row = dict[str, Any]


class ClusterWriter:
    """Has a cluster delete offsets and groups, and set offsets, group by group."""

    def __init__(self, admin: Admin, log: LogAddress) -> None:
        self._admin, self._log = admin, log
        self.notes: list[str] = []

    def end(self, partition: int) -> int:
        """Give the high watermark of a log partition."""
        return self._log.describe().ranges[LogPartition(OFFSETS_TOPIC, partition)].end

    def write(self, partition: int, writes: pa.Table) -> Written:
        """Do writes, and say of each what the cluster answered, and where it stands in the log."""
        written = Written(np.full(writes.num_rows, -1))
        if not writes.num_rows:
            return written
        start = self.end(partition)
        rows = [row | {"at": at} for at, row in enumerate(writes.to_pylist())]
        for group_id, of_group in groupby(rows, key=lambda row: row["group_id"]):
            try:
                self._of_group(group_id, [*of_group], written)
            except LogUnavailable as error:
                written.refused |= {row["at"]: str(error) for row in rows if row["group_id"] == group_id}
        self._find_in_log(partition, start, rows, written)
        return written

    def sync(self) -> None:
        """Nothing is left to do: the cluster answered when it was done."""

    def _of_group(self, group_id: str, rows: list[Row], written: Written) -> None:
        standing = self._admin.committed(group_id)
        offsets = [row for row in rows if row["topic"] is not None]
        moved = {row["at"]: reason for row in offsets if (reason := _moved(row, standing.get(_key(row))))}
        written.refused |= moved
        going = [row for row in offsets if row["at"] not in moved]
        deleted = [_key(row) for row in going if row["kind"] == "tombstone"]
        commits = {_key(row): _commit(row) for row in going if row["kind"] == "commit"}
        answers = self._admin.delete_offsets(group_id, deleted) if deleted else {}
        answers |= self._admin.commit(group_id, commits) if commits else {}
        now = self._admin.committed(group_id)
        for row in going:
            refusal = answers[_key(row)] or _not_done(row, now.get(_key(row)))
            if refusal:
                written.refused[row["at"]] = refusal
        for row in rows:
            if row["topic"] is None:
                self._delete_group(group_id, row["at"], [each["at"] for each in offsets], written)

    def _delete_group(self, group_id: str, at: int, offsets: list[int], written: Written) -> None:
        if any(each in written.refused for each in offsets):
            written.refused[at] = "it has offsets that stay"
            return
        refusal = self._admin.delete_group(group_id)
        if refusal and _NOT_FOUND not in refusal:
            written.refused[at] = refusal

    def _find_in_log(self, partition: int, start: int, rows: list[Row], written: Written) -> None:
        """Find where the writes stand, and commits that came between the last look and the tombstone they went with."""
        groups = pa.array(sorted({row["group_id"] for row in rows}), pa.string())
        tail = read_tail(self._log, partition, OffsetRange(start, self.end(partition)), groups)
        found: dict[tuple[Any, ...], list[Row]] = {}
        for record in tail.commits.sort_by("log_offset").to_pylist():
            found.setdefault((record["group_id"], record["topic"], record["partition"]), []).append(record)
        for row in rows:
            records = found.get((row["group_id"], *_key(row)), [])
            own = next((record for record in records if _is_own(row, record)), None)
            if own is None or row["at"] in written.refused:
                continue
            written.log_offset[row["at"]] = own["log_offset"]
            between = [record for record in records if record["log_offset"] < own["log_offset"]]
            if between and between[-1]["kind"] == "commit":
                lost = between[-1]
                written.told[row["at"]] = (
                    f"a commit of {lost['committed_offset']} at log offset {lost['log_offset']} came in between, "
                    "and went with it: `offsetlake undelete` brings it back"
                )


def _key(row: Mapping[str, Any]) -> Partition:
    return row["topic"], row["partition"]


def _commit(row: Row) -> Commit:
    epoch = -1 if row["leader_epoch"] is None else row["leader_epoch"]
    return Commit(row["committed_offset"], epoch, row["metadata"] or "")


def _moved(row: Row, standing: Commit | None) -> str | None:
    now = None if standing is None else standing.offset
    if now == row["expected_offset"]:
        return None
    return f"the group has {'no offset' if now is None else now} there now, not {row['expected_offset']}"


def _not_done(row: Row, standing: Commit | None) -> str | None:
    """Compare with what is read back."""
    wanted = None if row["kind"] == "tombstone" else row["committed_offset"]
    now = None if standing is None else standing.offset
    if now == wanted:
        return None
    return f"read back, the group has {'no offset' if now is None else now} there: another has committed since"


def _is_own(row: Row, record: Row) -> bool:
    if row["kind"] != record["kind"]:
        return False
    return bool(row["kind"] == "tombstone" or row["committed_offset"] == record["committed_offset"])
