"""Questions of the Python API about the newest state of a lake: offsets, groups, lag, transactions, share groups."""

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.api.reader import Advance, LakeReader, Time, ignore, to_instant
from offsetlake.queries import questions, selection
from offsetlake.queries.answer_notes import note_about_future, noted, notes_about_lag
from offsetlake.queries.history.as_of import groups_as_of
from offsetlake.queries.in_doubt import what_is_unknown
from offsetlake.queries.lag import lag_of_groups, lag_of_partitions, recorded_before
from offsetlake.queries.share import share_batches, share_partitions


class StateQuestions(LakeReader):
    """Answers questions about the newest state of a lake."""

    def offsets(self, group: str | None = None, topic: str | None = None, *, limit: int | None = None) -> pa.Table:
        """Return the latest committed offsets: rows of the table `offsets`, sorted by group, topic and partition.

        The columns are group_id, topic, partition, committed_offset, leader_epoch, metadata, commit_timestamp (ms),
        expire_timestamp (ms; null if retention decides), topic_id, record_type, value_version, producer_id,
        producer_epoch, log_partition, log_offset and log_timestamp (ms).

        Args:
            group: The name of a group; None for all.
            topic: The name of a topic; None for all.
            limit: The maximum number of rows; None is unlimited.

        Raises:
            NotInLake: No offset of the group or topic was ever committed.
            NotRead: The log partition of the group was not read.
        """
        with self.question() as (lake, notes):
            rows = questions.offsets(lake, group, topic, limit)
            selection.check_known_offsets(lake, rows, group, topic)
            return noted(rows, [*notes, what_is_unknown(lake, group)])

    def count_offsets(self, group: str | None = None, topic: str | None = None) -> int:
        """Return the number of rows of `offsets` without a limit."""
        with self.question() as (lake, _):
            return questions.count_offsets(lake, group, topic)

    def groups(
        self,
        group: str | None = None,
        *,
        state: str | None = None,
        group_type: str | None = None,
        as_of: Time | None = None,
        advance: Advance = ignore,
    ) -> pa.Table:
        """Return the groups, sorted by name: rows of the table `groups`, and the number of their offsets.

        The columns are group_id, group_type, state, protocol_type, protocol, leader, generation, epoch,
        assignment_epoch, state_timestamp (ms), subscription, subscribed_topics, member_count, log_partition,
        log_offset, log_timestamp (ms) and offsets.

        Args:
            group: The name of a group, or a shell pattern such as `bulk-*`; None for all.
            state: Only groups in this state, such as `Empty`.
            group_type: Only groups of this type: classic, consumer, share or streams.
            as_of: The groups as they were at a time; None for the newest state.
            advance: Is called with the number of records read, and of all records, if `as_of` is given.

        Raises:
            BadRequest: No group can be in the state; or the time is invalid, or before history begins.
            NotInLake: No such group is in history.
            NotRead: The log partition of the group was not read.
        """
        instant = None if as_of is None else to_instant(as_of)
        with self.question() as (lake, notes):
            if instant is None:
                rows = questions.groups(lake, group, state, group_type)
            else:
                rows = groups_as_of(lake, instant, group, state, group_type, advance=advance)
                notes.append(note_about_future(lake, instant))
            selection.check_known(lake, rows, group)
            return noted(rows, [*notes, what_is_unknown(lake, group)])

    def lag(
        self,
        group: str | None = None,
        topic: str | None = None,
        *,
        status: str | None = None,
        partitions: bool = False,
        now: Time | None = None,
    ) -> pa.Table:
        """Return the lag of each group, in records and in ms, and the status of its consumers, the worst first.

        The columns for groups are group_id, status, why (the reason of the status UNKNOWN), lag (records), lag_ms (null
        if it is longer than log end offsets are recorded), lag_at_least_ms, partitions, not_ok, topic and partition
        (the worst one), lag_at_most, lag_unknown, no_commit, deleted_before_read and asked_timestamp (ms: when the log
        end offsets were read).

        The columns for partitions are group_id, topic, partition, status, why, committed_offset, end_offset, lag,
        lag_ms, lag_at_least_ms, commit_timestamp (ms), commits, asked_timestamp (ms), start_offset, lag_at_most,
        deleted_before_read, member_id, client_id and client_host.

        Args:
            group: The name of a group, or a shell pattern; None for all.
            topic: The name of a topic; None for all.
            status: Only groups, or partitions, with this status: OK, WARN, STOP, STALL, REWIND, UNKNOWN, NO_COMMIT,
                DELETED_BEFORE_READ or BEYOND_END (`offsetlake lag --help`).
            partitions: Return a row for each partition instead of each group.
            now: Evaluate at this time, by what was read until then; None for when log end offsets were last read.

        Raises:
            BadRequest: The lake has no log end offsets of topics, or none up to `now`: only cycles over a live cluster,
                or a node, record them.
            NotInLake: No such group or topic has an offset or a reader.
            NotRead: The log partition of the group was not read.
        """
        instant = None if now is None else to_instant(now)
        with self.question() as (lake, notes):
            rows = lag_of_partitions(lake, group, topic, instant, owners=partitions)
            stale = recorded_before(lake) if instant is None else None
            notes += [stale or "", *notes_about_lag(rows)]
            rows = rows if partitions else lag_of_groups(rows)
            if status is not None:
                rows = rows.filter(pc.equal(rows["status"], status))
            return noted(rows, [*notes, what_is_unknown(lake, group)])

    def transactions(self, *, open_longer_ms: int = 0, now: Time = "now") -> pa.Table:
        """Return the open transactions, the oldest first, and what each blocks.

        The columns are producer_id, producer_epoch, log_partition, first_log_offset and first_timestamp (ms) of the
        first record that waits, age_ms (null if that timestamp is wrong), offsets (the number of offsets that wait)
        and groups (a list).

        Args:
            open_longer_ms: Only transactions that are at least so old, in ms.
            now: Evaluate at this time.

        Raises:
            BadRequest: The time is invalid.
        """
        instant = to_instant(now)
        with self.question() as (lake, notes):
            rows = questions.transactions(lake, instant, open_longer_ms)
            return noted(rows, [*notes, what_is_unknown(lake)])

    def share(
        self,
        group: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        *,
        batches: bool = False,
        as_of: Time | None = None,
        advance: Advance = ignore,
    ) -> pa.Table:
        """Return the share partitions of share groups, sorted by group, topic ID and partition.

        The columns are those of the table `share_partitions` without state_batches, and topic (the name, null if no
        record has it), log_end_offset, lag (records that are not completed) and archived_at_limit (archived records
        that were delivered five times or more). With `batches`, each row is a range of records in flight: group_id,
        topic, topic_id, partition, first_offset, last_offset, delivery_state and delivery_count.

        Args:
            group: The name of a group, or a shell pattern; None for all.
            topic: The name or the ID of a topic; None for all.
            partition: A partition; None for all.
            batches: Return the ranges of records in flight.
            as_of: The share partitions as they were at a time; None for the newest state.
            advance: Is called with the number of records read, and of all records, if `as_of` is given.

        Raises:
            BadRequest: The time is invalid, or before history begins.
            NotInLake: There is no such share partition.
            NotRead: Its records may be among those that were not read.
        """
        instant = None if as_of is None else to_instant(as_of)
        with self.question() as (lake, notes):
            rows = share_partitions(lake, group, topic, partition, instant, advance)
            return noted(share_batches(rows) if batches else rows.drop_columns(["state_batches"]), notes)
