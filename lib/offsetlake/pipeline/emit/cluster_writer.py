"""Decisions done by a live cluster, through its admin API: read again, asked for, read back.

Kafka has no conditional write. What came in between reading and acting is looked for in the log, and told.
"""

from collections.abc import Mapping
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.error_codes import GROUP_ID_NOT_FOUND, TOPIC_AUTHORIZATION_FAILED
from offsetlake.log.address import LogAddress
from offsetlake.log.cluster import refusals
from offsetlake.log.cluster.admin import ClusterAdmin, OffsetToCommit, Partition
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition, OffsetRange
from offsetlake.pipeline.emit.live_state import read_tail
from offsetlake.pipeline.emit.results import Written
from offsetlake.rules.conditions import GROUP_HAS_OFFSETS

_NOT_FOUND = refusals.in_words(GROUP_ID_NOT_FOUND)  # it went with its last offset, as it was meant to

Row = dict[str, Any]


class ClusterWriter:
    """Has a cluster delete offsets and groups, and set offsets, group by group."""

    def __init__(self, admin: ClusterAdmin, log: LogAddress) -> None:
        self._admin, self._log = admin, log
        self._looked_at: dict[int, int] = {}
        self.notes: list[str] = []

    def end(self, partition: int) -> int:
        """Give the high watermark of a log partition; what comes behind it came in between looking and acting."""
        self._looked_at[partition] = self._high_watermark(partition)
        return self._looked_at[partition]

    def write(self, partition: int, writes: pa.Table) -> Written:
        """Do writes, and say of each what the cluster answered, and where it stands in the log."""
        written = Written(np.full(writes.num_rows, -1))
        if not writes.num_rows:
            return written
        rows = [row | {"at": at} for at, row in enumerate(writes.to_pylist())]
        for group_id, of_group in groupby(rows, key=lambda row: row["group_id"]):
            try:
                self._of_group(group_id, [*of_group], written)
            except LogUnavailable as error:
                written.refused |= {row["at"]: str(error) for row in rows if row["group_id"] == group_id}
        self._find_in_log(partition, rows, written)
        return written

    def sync(self) -> None:
        """Nothing is left to do: the cluster answered when it was done."""

    def _high_watermark(self, partition: int) -> int:
        return self._log.describe().ranges[LogPartition(OFFSETS_TOPIC, partition)].end

    def _of_group(self, group_id: str, rows: list[Row], written: Written) -> None:
        standing = self._admin.committed(group_id)
        offsets = [row for row in rows if row["topic"] is not None]
        moved = {row["at"]: reason for row in offsets if (reason := _moved(row, standing.get(_key(row))))}
        hidden = self._admin.hidden({row["topic"] for row in offsets if row["at"] in moved})
        no_right = str(refusals.in_words(TOPIC_AUTHORIZATION_FAILED))
        written.refused |= moved | {row["at"]: no_right for row in offsets if row["topic"] in hidden}
        going = [row for row in offsets if row["at"] not in written.refused]
        deleted = [_key(row) for row in going if row["kind"] == "tombstone"]
        commits = {_key(row): _commit(row) for row in going if row["kind"] == "commit"}
        answers = self._admin.delete_offsets(group_id, deleted) if deleted else {}
        answers |= self._admin.commit(group_id, commits) if commits else {}
        now = self._admin.committed(group_id)
        for row in going:
            refusal = answers[_key(row)] or _not_done(row, now.get(_key(row)))
            if refusal:
                written.refused[row["at"]] = refusal
        stays = bool(now) or any(row["at"] in written.refused for row in offsets)
        for row in rows:
            if row["topic"] is None:
                refusal = GROUP_HAS_OFFSETS if stays else self._admin.delete_group(group_id)
                if refusal and refusal != _NOT_FOUND:
                    written.refused[row["at"]] = refusal

    def _find_in_log(self, partition: int, rows: list[Row], written: Written) -> None:
        """Find where the writes stand, and commits that came between the look at the log and what took them."""
        groups = pa.array(sorted({row["group_id"] for row in rows}), pa.string())
        stretch = OffsetRange(self._looked_at[partition], self._high_watermark(partition))
        tail = read_tail(self._log, partition, stretch, groups)
        found: dict[str, dict[Partition, list[Row]]] = {}
        for record in pa.concat_tables([tail.commits, tail.waiting]).sort_by("log_offset").to_pylist():
            found.setdefault(record["group_id"], {}).setdefault(_key(record), []).append(record)
        planned = {(row["group_id"], *_key(row)) for row in rows}
        for row in rows:
            if row["at"] in written.refused:
                continue
            of_group = found.get(row["group_id"], {})
            if row["topic"] is None:
                written.log_offset[row["at"]] = tail.removed.get(row["group_id"], -1)
                others = {key: each for key, each in of_group.items() if (row["group_id"], *key) not in planned}
                told = [f"{key[0]}-{key[1]}: {lost}" for key, each in others.items() if (lost := _went(each))]
            else:
                records = of_group.get(_key(row), [])
                own = next((at for at, record in enumerate(records) if _is_own(row, record)), None)
                if own is None:
                    continue
                written.log_offset[row["at"]] = records[own]["log_offset"]
                lost = _went(records) if row["kind"] == "tombstone" else _overwritten(row, records[:own])
                told = [lost] if lost else []
            if told:
                written.told[row["at"]] = "; ".join(told)


def _key(row: Mapping[str, Any]) -> Partition:
    return row["topic"], row["partition"]


def _commit(row: Row) -> OffsetToCommit:
    epoch = -1 if row["leader_epoch"] is None else row["leader_epoch"]
    return OffsetToCommit(row["committed_offset"], epoch, row["metadata"] or "")


def _moved(row: Row, standing: OffsetToCommit | None) -> str | None:
    now = None if standing is None else standing.offset
    if now == row["expected_offset"]:
        return None
    return f"the group has {'no offset' if now is None else now} there now, not {row['expected_offset']}"


def _not_done(row: Row, standing: OffsetToCommit | None) -> str | None:
    """Compare with what is read back."""
    wanted = None if row["kind"] == "tombstone" else row["committed_offset"]
    now = None if standing is None else standing.offset
    if now == wanted:
        return None
    return f"read back, the group has {'no offset' if now is None else now} there: another has committed since"


def _is_own(row: Row, record: Row) -> bool:
    if row["kind"] != record["kind"] or record["producer_id"] is not None:
        return False
    return bool(row["kind"] == "tombstone" or row["committed_offset"] == record["committed_offset"])


def _went(records: list[Row]) -> str | None:
    """Tell of the last commit of a key that a tombstone took."""
    for before, after in reversed([*pairwise(records)]):
        if before["kind"] == "commit" and after["kind"] == "tombstone":
            return f"{_came_between(before)}, and went with it: `offsetlake undelete` brings it back"
    return None


def _overwritten(row: Row, before: list[Row]) -> str | None:
    """Tell of the last commit of a key that a commit of ours took the place of."""
    if not before or before[-1]["kind"] != "commit":
        return None
    lost = before[-1]
    where = f"{row['topic']}:{row['partition']} --to-offset {lost['committed_offset']}"
    return f"{_came_between(lost)}, and was overwritten: `offsetlake reset {row['group_id']} --topic {where}` sets it"


def _came_between(record: Row) -> str:
    whose = "a commit" if record["producer_id"] is None else "a transaction's commit"
    return f"{whose} of {record['committed_offset']} at log offset {record['log_offset']} came in between"
