"""Questions of the Python API about the history of a lake: offsets at a time, what happened to them, audits and SQL."""

import pyarrow as pa

from offsetlake.api.reader import Advance, LakeReader, Time, ignore, in_memory, to_instant
from offsetlake.lake.sql.answers import Answer
from offsetlake.lake.sql.select import select
from offsetlake.queries import log_clock, questions, selection
from offsetlake.queries.answer_notes import note_about_future, noted, notes_about_sql
from offsetlake.queries.audits import audit
from offsetlake.queries.exploring.commits import Filters
from offsetlake.queries.history.as_of import offsets_as_of
from offsetlake.queries.history.diff import diff
from offsetlake.queries.history.in_doubt import note_about_history
from offsetlake.queries.in_doubt import what_is_unknown


class HistoryQuestions(LakeReader):
    """Answers questions about the history of a lake."""

    def as_of(
        self,
        time: Time,
        group: str | None = None,
        topic: str | None = None,
        *,
        limit: int | None = None,
        advance: Advance = ignore,
    ) -> pa.Table:
        """Return the offsets as a broker would have served them at a time, with the columns and order of `offsets`.

        Args:
            time: The time.
            group: The name of a group; None for all.
            topic: The name of a topic; None for all.
            limit: The maximum number of rows; None is unlimited.
            advance: Is called with the number of records read, and of all records.

        Raises:
            BadRequest: The time is invalid, or before history begins.
            NotInLake: No offset of the group or topic was ever committed.
            NotRead: The log partition of the group was not read.
        """
        instant = to_instant(time)
        with self.question() as (lake, notes):
            rows = offsets_as_of(lake, instant, group, topic, limit, advance)
            selection.check_known_offsets(lake, rows, group, topic)
            return noted(rows, [*notes, note_about_future(lake, instant), what_is_unknown(lake, group)])

    def history(
        self,
        group: str,
        topic: str,
        partition: int,
        *,
        event: str | None = None,
        who: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """Return the commits and tombstones of one offset, newest first.

        | Column | Description |
        |---|---|
        | log_partition, log_offset, log_timestamp | where and when (ms) the record was appended |
        | event | commit, reset_back (lower than the offset in force), reset (another reset of the view `changes`), tombstone |
        | committed_offset | null in a tombstone |
        | previous_offset | the offset in force when the record was appended; null if there was none |
        | difference | committed_offset minus previous_offset |
        | leader_epoch, metadata, commit_timestamp, producer_id | as in the table `offset_commits`; the timestamp in ms |
        | outcome | of the transaction: committed, aborted or open; partial for a part of an incomplete commit; else null |
        | what, principal, client_id, address | who did it, as in the table `audit_events`; null if not recorded |

        Args:
            group: The name of the group.
            topic: The name of the topic.
            partition: The partition.
            event: Only these events.
            who: Only records whose principal or client id contains this text.
            since: Only records from this time on.
            until: Only records up to this time.
            limit: The maximum number of rows; None is unlimited.

        Raises:
            BadRequest: A time is invalid.
            NotInLake: The offset was never committed.
            NotRead: The log partition of the group was not read.
        """  # noqa: E501 - rows of a table
        period = (None if time is None else to_instant(time) for time in (since, until))
        filters = Filters(event or "", who or "", *period)
        with self.question() as (lake, notes):
            selection.check_committed(lake, group, topic, partition)
            rows = questions.history(lake, group, topic, partition, limit, choose=filters.chosen)
            lacking = note_about_history(lake, group, topic, partition, selection.log_partitions_of(lake, [group]))
            dropped = log_clock.what_was_dropped(lake, "history")
            return noted(rows, [*notes, lacking, dropped, what_is_unknown(lake, group)])

    def diff(
        self,
        start: Time,
        end: Time,
        group: str | None = None,
        topic: str | None = None,
        *,
        limit: int | None = None,
        advance: Advance = ignore,
    ) -> pa.Table:
        """Return the offsets that differ between two times, sorted by group, topic and partition.

        The columns are group_id, topic, partition, from_offset and to_offset (null if there was no offset at that
        time), and difference: to_offset minus from_offset, a decimal of 20 digits.

        Args:
            start: The first time.
            end: The second time.
            group: The name of a group; None for all.
            topic: The name of a topic; None for all.
            limit: The maximum number of rows; None is unlimited.
            advance: Is called with the number of records read, and of all records.

        Raises:
            BadRequest: A time is invalid or before history begins, or `end` is before `start`.
            NotInLake: No offset of the group or topic was ever committed.
            NotRead: The log partition of the group was not read.
        """
        instants = to_instant(start), to_instant(end)
        with self.question() as (lake, notes):
            rows = diff(lake, *instants, group, topic, limit, advance)
            return noted(rows, [*notes, note_about_future(lake, *instants), what_is_unknown(lake, group)])

    def audit(
        self,
        view: str,
        group: str | None = None,
        topic: str | None = None,
        *,
        since: Time | None = None,
        limit: int | None = None,
        advance: Advance = ignore,
    ) -> pa.Table:
        """Return the rows of an audit view, in its order: those that need attention first.

        docs/audits.md describes the views and their columns.

        Args:
            view: The name of the view, such as `changes`.
            group: The name of a group, or a shell pattern; None for all.
            topic: The name of a topic; None for all.
            since: Only rows from this time on.
            limit: The maximum number of rows; None is unlimited.
            advance: Is called with the number of records read, and of all records.

        Raises:
            BadRequest: There is no such view, it has no column for the group or topic, the time is invalid, or nothing
                was read yet.
            NotInLake: No such group or topic is in history.
            NotRead: The log partition of the group was not read.
        """
        return in_memory(self.scan_audit(view, group, topic, since=since, limit=limit, advance=advance))

    def scan_audit(
        self,
        view: str,
        group: str | None = None,
        topic: str | None = None,
        *,
        since: Time | None = None,
        limit: int | None = None,
        advance: Advance = ignore,
    ) -> Answer:
        """Return what `audit` does, but rows that are too many for memory in scratch files (`Answer.to_batches`)."""
        since_ms = None if since is None else to_instant(since)
        with self.question() as (lake, notes):
            rows = audit(lake, view, group, topic, since_ms, limit, advance)
            return noted(rows, [*notes, log_clock.what_was_dropped(lake, "history"), what_is_unknown(lake, group)])

    def sql(self, statement: str) -> pa.Table:
        """Return the rows of a SELECT statement over all tables and views of the lake, in DataFusion's dialect.

        Times are timestamps in UTC, also in the statement. A table that another program changed is read, with a note.

        Args:
            statement: One SELECT statement.

        Raises:
            BadRequest: The statement is invalid, or not a SELECT.
        """
        return in_memory(self.scan_sql(statement))

    def scan_sql(self, statement: str) -> Answer:
        """Return what `sql` does, but rows that are too many for memory in scratch files (`Answer.to_batches`)."""
        with self.question(may_be_changed=True) as (lake, notes):
            rows = select(lake, statement)
            return noted(rows, [*notes, *notes_about_sql(lake, statement)])
