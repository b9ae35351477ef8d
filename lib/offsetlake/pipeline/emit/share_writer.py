"""Emits decisions about share groups through the admin API of a live cluster, and reads the result back.

A broker refuses changes of share groups with members, and has no conditional write otherwise: start offsets are read
before the change and after it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from offsetlake.kafka.error_codes import GROUP_ID_NOT_FOUND
from offsetlake.log.cluster import refusals
from offsetlake.log.cluster.share_admin import UNDECIDED, ShareGroupAdmin
from offsetlake.pipeline.emit.results import Written

if TYPE_CHECKING:
    from offsetlake.log.cluster.admin import ClusterAdmin, Partition

CHANGED = "a share partition of the group changed: plan it again"

Row = dict[str, Any]


class ShareGroupWriter:
    """Sets and deletes start offsets of share partitions, and deletes share groups, group by group."""

    def __init__(self, groups: "ClusterAdmin", offsets: ShareGroupAdmin) -> None:
        self._groups, self._offsets = groups, offsets

    def write(self, group_id: str, rows: Sequence[Row], written: Written) -> None:
        """Make the writes of one group, and add those that are refused to `written`.

        A write whose result is already in place is not repeated: an interrupted run has made it.

        Args:
            group_id: The share group.
            rows: Rows of `decisions.as_writes` with the columns `index`, the row number in `written`, and `stale`.
            written: The results.

        Raises:
            LogUnavailable: The cluster does not answer.
        """
        now = self._offsets.start_offsets(group_id)
        of_partitions = [row for row in rows if row["topic"] is not None and not _is_done(row, now)]
        refused = {row["index"]: reason for row in of_partitions if (reason := row["stale"] or _moved(row, now))}
        written.refused |= refused
        left = [row for row in of_partitions if row["index"] not in refused]
        whole = next((row for row in rows if row["topic"] is None), None)
        if whole is None:
            answers = self._alter(group_id, left) | self._delete(group_id, left, now)
        else:
            refusal = whole["stale"] or (CHANGED if refused else self._delete_group(group_id))
            left.append(whole)
            answers = {row["index"]: refusal for row in left}
        now = self._offsets.start_offsets(group_id)
        for row in left:
            refusal = answers[row["index"]]
            if refusal is None and row["topic"] is not None and not _is_done(row, now):
                refusal = f"the start offset is {_text(_offset(row, now))} after the change: another client changed it"
            if refusal:
                written.refused[row["index"]] = refusal

    def _alter(self, group_id: str, rows: Sequence[Row]) -> dict[int, str | None]:
        commits = {_key(row): row for row in rows if row["kind"] == "commit"}
        if not commits:
            return {}
        answers = self._offsets.alter(group_id, {where: row["committed_offset"] for where, row in commits.items()})
        return {commits[where]["index"]: refusal for where, refusal in answers.items()}

    def _delete(self, group_id: str, rows: Sequence[Row], now: "dict[Partition, int]") -> dict[int, str | None]:
        """Delete the share partitions of topics, except of topics with a start offset that is not to be deleted.

        A request deletes all share partitions of a topic.
        """
        deleted = {_key(row): row for row in rows if row["kind"] == "tombstone"}
        changed = {where[0] for where, start in now.items() if where not in deleted and start != UNDECIDED}
        topics = {topic for topic, _ in deleted} - changed
        answers = dict.fromkeys(changed, CHANGED) | (self._offsets.delete(group_id, topics) if topics else {})
        return {row["index"]: answers[row["topic"]] for row in deleted.values()}

    def _delete_group(self, group_id: str) -> str | None:
        """Delete a group with its share partitions."""
        refusal = self._groups.delete_group(group_id)
        return None if refusal == refusals.explain(GROUP_ID_NOT_FOUND) else refusal


def _key(row: Row) -> "Partition":
    return row["topic"], row["partition"]


def _offset(row: Row, now: "dict[Partition, int]") -> int | None:
    """Return the start offset, UNDECIDED if there is none yet, or None if there is no such share partition."""
    return now.get(_key(row))


def _is_done(row: Row, now: "dict[Partition, int]") -> bool:
    wanted = None if row["kind"] == "tombstone" else row["committed_offset"]
    return _offset(row, now) == wanted


def _moved(row: Row, now: "dict[Partition, int]") -> str | None:
    start = _offset(row, now)
    known = None if start == UNDECIDED else start
    if known == row["expected_offset"]:
        return None
    return f"the start offset is {_text(start)} now, not {_text(row['expected_offset'])}"


def _text(offset: int | None) -> str:
    return "undecided" if offset in (None, UNDECIDED) else str(offset)
