"""Questions of the Python API about what jobs and people did: tombstones, alterations, audit events and runs."""

import pyarrow as pa

from offsetlake.api.reader import LakeReader, Time, to_instant
from offsetlake.queries import log_clock, questions, selection
from offsetlake.queries.answer_notes import noted
from offsetlake.queries.in_doubt import what_is_unknown
from offsetlake.queries.run_changes import list_runs


class ChangeQuestions(LakeReader):
    """Answers questions about what jobs and people did."""

    def tombstones(
        self,
        group: str | None = None,
        *,
        outcome: str | None = None,
        rule: str | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """Return the planned and written tombstones, each once with its newest outcome, sorted by group and offset.

        The columns are those of the table `tombstones`: run_id, outcome, group_id, topic and partition (null for the
        tombstone of a group), log_partition, judged_offset, committed_offset, rule, clock, clock_timestamp (ms),
        retention_ms, judged_timestamp (ms), group_type, state, reason and log_offset (null unless emitted).

        Args:
            group: The name of a group, or a shell pattern; None for all.
            outcome: Only tombstones with this outcome: planned, withdrawn, emitted, refused or gone.
            rule: Only tombstones that this retention rule planned.
            limit: The maximum number of rows; None is unlimited.

        Raises:
            NotInLake: No such group is in history.
            NotRead: The log partition of the group was not read.
        """
        with self.question() as (lake, notes):
            rows = questions.tombstones(lake, group, outcome, rule, limit)
            selection.check_known(lake, rows, group)
            return noted(rows, [*notes, what_is_unknown(lake, group)])

    def alterations(
        self, group: str | None = None, *, outcome: str | None = None, limit: int | None = None
    ) -> pa.Table:
        """Return the offsets that were reset, restored or repaired, the newest first.

        The columns are those of the table `alterations`: run_id, outcome, strategy, group_id, topic, partition,
        log_partition, judged_offset, previous_offset, previous_leader_epoch, previous_metadata, committed_offset (null
        if the offset was deleted), leader_epoch, metadata, commit_timestamp (ms), expire_timestamp (ms), topic_id,
        log_offset (null unless done), evidence, reason and group_type.

        Args:
            group: The name of a group, or a shell pattern; None for all.
            outcome: Only alterations with this outcome: planned, done or refused.
            limit: The maximum number of rows; None is unlimited.

        Raises:
            NotInLake: No such group is in history.
            NotRead: The log partition of the group was not read.
        """
        with self.question() as (lake, notes):
            rows = questions.alterations(lake, group, outcome, limit)
            return noted(selection.check_known(lake, rows, group), notes)

    def audit_events(
        self,
        group: str | None = None,
        *,
        principal: str | None = None,
        since: Time | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """Return who deleted or committed offsets through a server or a job, the newest first.

        The columns are those of the table `audit_events`: ingest_run, log_partition, log_offset, last_log_offset,
        log_timestamp (ms), group_id, what, principal, client_id and address.

        Args:
            group: The name of a group, or a shell pattern; None for all.
            principal: Only events of this principal, such as `User:alice`.
            since: Only events from this time on.
            limit: The maximum number of rows; None is unlimited.

        Raises:
            BadRequest: The time is invalid.
            NotInLake: No such group is in history.
            NotRead: The log partition of the group was not read.
        """
        since_ms = None if since is None else to_instant(since)
        with self.question() as (lake, notes):
            rows = questions.audit_events(lake, group, principal, since_ms, limit)
            selection.check_known(lake, rows, group)
            return noted(rows, [*notes, log_clock.what_was_dropped(lake, "audit_events")])

    def runs(self) -> pa.Table:
        """Return the runs of all jobs, newest first, also those that are unfinished.

        The columns are run_id, job, outcome (done, nothing new, or unfinished), started_at and finished_at (ms; null
        while unfinished), duration_ms, log, records_read (by an ingest; null for other jobs), rows_written (null if not
        recorded), through_run, counts (a map of numbers of rows by table) and notes (a list of texts).
        """
        with self.question() as (lake, notes):
            return noted(list_runs(lake), notes)
