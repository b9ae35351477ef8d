"""Emits decisions through the admin API of a live cluster: reads offsets, changes them, and reads them back.

Kafka has no conditional write. Commits that arrive between the read and the change are found in the log
afterwards, and reported.
"""

import shlex
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
from offsetlake.pipeline.emit.share_writer import ShareGroupWriter
from offsetlake.rules.conditions import GROUP_HAS_OFFSETS, SHARE
from offsetlake.util.command_lines import with_options

_NOT_FOUND = refusals.explain(GROUP_ID_NOT_FOUND)  # the group was deleted with its last offset

Row = dict[str, Any]


class ClusterWriter:
    """Deletes offsets and groups, and commits offsets, through a cluster, group by group."""

    writes_share_groups = True

    def __init__(self, admin: ClusterAdmin, share_groups: ShareGroupWriter, log: LogAddress) -> None:
        self._admin, self._share_groups, self._log = admin, share_groups, log
        self._read_to: dict[int, int] = {}
        self.notes: list[str] = []

    def end(self, partition: int) -> int:
        """Return the high watermark of a log partition; later records were written after conditions were checked."""
        self._read_to[partition] = self._high_watermark(partition)
        return self._read_to[partition]

    def write(self, partition: int, writes: pa.Table) -> Written:
        """Make the writes, and return the answer of the cluster and the log offset of each."""
        written = Written(np.full(writes.num_rows, -1))
        if not writes.num_rows:
            return written
        rows = [row | {"index": index} for index, row in enumerate(writes.to_pylist())]
        for (group_id, is_share), of_group in groupby(rows, key=_group):
            write = self._share_groups.write if is_share else self._of_group
            try:
                write(group_id, [*of_group], written)
            except LogUnavailable as error:
                written.refused |= {row["index"]: str(error) for row in rows if row["group_id"] == group_id}
        self._find_in_log(partition, rows, written)
        return written

    def sync(self) -> None:
        """Do nothing: the cluster answers after writes are durable."""

    def _high_watermark(self, partition: int) -> int:
        return self._log.describe().ranges[LogPartition(OFFSETS_TOPIC, partition)].end

    def _of_group(self, group_id: str, rows: list[Row], written: Written) -> None:
        committed = self._admin.committed(group_id)
        offsets = [row for row in rows if row["topic"] is not None]
        moved = {row["index"]: reason for row in offsets if (reason := _moved(row, committed.get(_key(row))))}
        hidden = self._admin.hidden({row["topic"] for row in offsets if row["index"] in moved})
        no_permission = str(refusals.explain(TOPIC_AUTHORIZATION_FAILED))
        written.refused |= moved | {row["index"]: no_permission for row in offsets if row["topic"] in hidden}
        allowed = [row for row in offsets if row["index"] not in written.refused]
        deleted = [_key(row) for row in allowed if row["kind"] == "tombstone"]
        commits = {_key(row): _commit(row) for row in allowed if row["kind"] == "commit"}
        answers = self._admin.delete_offsets(group_id, deleted) if deleted else {}
        answers |= self._admin.commit(group_id, commits) if commits else {}
        committed = self._admin.committed(group_id)
        for row in allowed:
            refusal = answers[_key(row)] or _not_done(row, committed.get(_key(row)))
            if refusal:
                written.refused[row["index"]] = refusal
        stays = bool(committed) or any(row["index"] in written.refused for row in offsets)
        for row in rows:
            if row["topic"] is None:
                refusal = GROUP_HAS_OFFSETS if stays else self._admin.delete_group(group_id)
                if refusal and refusal != _NOT_FOUND:
                    written.refused[row["index"]] = refusal

    def _find_in_log(self, partition: int, rows: list[Row], written: Written) -> None:
        """Find the log offsets of the writes, and commits of others that they deleted or overwrote."""
        groups = pa.array(sorted({row["group_id"] for row in rows}), pa.string())
        unread = OffsetRange(self._read_to[partition], self._high_watermark(partition))
        tail = read_tail(self._log, partition, unread, groups)
        records_by_group: dict[str, dict[Partition, list[Row]]] = {}
        for record in pa.concat_tables([tail.commits, tail.waiting]).sort_by("log_offset").to_pylist():
            records_by_group.setdefault(record["group_id"], {}).setdefault(_key(record), []).append(record)
        planned = {(row["group_id"], *_key(row)) for row in rows}
        for row in rows:
            if row["index"] in written.refused:
                continue
            of_group = records_by_group.get(row["group_id"], {})
            if row["topic"] is None:
                written.log_offset[row["index"]] = tail.removed.get(row["group_id"], -1)
                others = {key: kept for key, kept in of_group.items() if (row["group_id"], *key) not in planned}
                notes = [f"{key[0]}-{key[1]}: {lost}" for key, kept in others.items() if (lost := _deleted(kept))]
            else:
                records = of_group.get(_key(row), [])
                own = next((index for index, record in enumerate(records) if _is_own(row, record)), None)
                if own is None:
                    continue
                written.log_offset[row["index"]] = records[own]["log_offset"]
                lost = _deleted(records) if row["kind"] == "tombstone" else _overwritten(row, records[:own])
                notes = [lost] if lost else []
            if notes:
                written.notes[row["index"]] = "; ".join(notes)


def _group(row: Row) -> tuple[str, bool]:
    return row["group_id"], row["group_type"] == SHARE


def _key(row: Mapping[str, Any]) -> Partition:
    return row["topic"], row["partition"]


def _commit(row: Row) -> OffsetToCommit:
    epoch = -1 if row["leader_epoch"] is None else row["leader_epoch"]
    return OffsetToCommit(row["committed_offset"], epoch, row["metadata"] or "")


def _moved(row: Row, committed: OffsetToCommit | None) -> str | None:
    now = None if committed is None else committed.offset
    if now == row["expected_offset"]:
        return None
    return f"the committed offset is {'deleted' if now is None else now} now, not {row['expected_offset']}"


def _not_done(row: Row, committed: OffsetToCommit | None) -> str | None:
    """Compare with the offset that was read back."""
    wanted = None if row["kind"] == "tombstone" else row["committed_offset"]
    now = None if committed is None else committed.offset
    if now == wanted:
        return None
    return f"the committed offset is {'deleted' if now is None else now} after the change: another client changed it"


def _is_own(row: Row, record: Row) -> bool:
    if row["kind"] != record["kind"] or record["producer_id"] is not None:
        return False
    return bool(row["kind"] == "tombstone" or row["committed_offset"] == record["committed_offset"])


def _deleted(records: list[Row]) -> str | None:
    """Return a note about the last commit that a tombstone deleted, or None."""
    for previous, following in reversed([*pairwise(records)]):
        if previous["kind"] == "commit" and following["kind"] == "tombstone":
            return f"{_concurrent(previous)} and was deleted: `offsetlake undelete` restores it"
    return None


def _overwritten(row: Row, previous: list[Row]) -> str | None:
    """Return a note about the last commit that our commit overwrote, or None."""
    if not previous or previous[-1]["kind"] != "commit":
        return None
    lost = previous[-1]
    where, offset = f"{row['topic']}:{row['partition']}", str(lost["committed_offset"])
    group = row["group_id"]
    words = ["offsetlake", "reset", *(["--", group] if group.startswith("-") else [group])]
    command = shlex.join(with_options(words, "--topic", where, "--to-offset", offset))
    return f"{_concurrent(lost)} and was overwritten: `{command}` restores it"


def _concurrent(record: Row) -> str:
    kind = "a commit" if record["producer_id"] is None else "a transactional commit"
    return f"{kind} of {record['committed_offset']} at log offset {record['log_offset']} was made concurrently"
