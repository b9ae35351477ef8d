"""Updates the table `unresolved_records` of some log partitions: what quarantined records leave unknown.

The rule is that of `offsetlake.rules.unresolved`. A log partition without such rows and new quarantined records, which
is nearly every one, costs nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.kafka.records.coordinator_records import OFFSETS_TOPIC
from offsetlake.kafka.records.other_records import UNKNOWN_MARKER
from offsetlake.lake.files import table_schema
from offsetlake.lake.history.history_files import RecordSource
from offsetlake.pipeline.compact.group_ranges import EVERY_GROUP, GroupRange
from offsetlake.rules.groups.replay import NOTHING_UNREAD, QuarantinedRecords, ReplayedGroups
from offsetlake.rules.unresolved import Row, concerned, newest, not_superseded, unknown_markers

TABLE = "unresolved_records"


@dataclass(frozen=True, slots=True)
class Quarantined:
    """What was unknown before in some log partitions, and what new quarantined records concern.

    | Field  | Description |
    |--------|-------------|
    | stored | rows of `unresolved_records` as the last compaction left them |
    | new    | rows of `unresolved.concerned`, and those of new markers that cannot be read |
    """

    stored: list[Row] = field(default_factory=list)
    new: list[Row] = field(default_factory=list)

    @classmethod
    def read(cls, history: RecordSource, partitions: Sequence[int], stored: pa.Table) -> "Quarantined":
        """Read the new quarantined records of some log partitions; `stored` are their rows of the table."""
        new = concerned(history.rows("quarantine", partitions))
        if new or stored.num_rows or history.rows("quarantine", partitions, pc.field("is_control")).num_rows:
            is_unknown = pc.field("marker") == UNKNOWN_MARKER
            new += unknown_markers(history.rows("transaction_markers", partitions, is_unknown))
        return cls(stored.to_pylist(), new)

    def markers(self) -> pa.Table:
        """Return the earlier markers that cannot be read, with the columns that `reduction.outcomes` needs."""
        columns = ("log_partition", "log_offset", "producer_id")
        rows = [row for row in self.stored if row["scope"] == "transaction"]
        schema = pa.schema([table_schema("transaction_markers").field(name) for name in (*columns, "marker")])
        return pa.Table.from_pylist(
            [{name: row[name] for name in columns} | {"marker": UNKNOWN_MARKER} for row in rows], schema
        )

    def unread(self, partition: int) -> QuarantinedRecords:
        """Return the new records that concern groups of one log partition."""
        if not (self.stored or self.new):
            return NOTHING_UNREAD
        earlier = [
            row
            for row in self.stored
            if (row["scope"], row["log_topic"], row["log_partition"]) == ("log_partition", OFFSETS_TOPIC, partition)
        ]
        return QuarantinedRecords.of([row for row in self.new if row["log_partition"] == partition], *earlier)

    def left(
        self,
        replayed: ReplayedGroups,
        partition: int,
        decided: pa.Table | None,
        share_records: pa.Table,
        pending: pa.Table | None,
        groups: GroupRange = EVERY_GROUP,
    ) -> pa.Table:
        """Return the new rows of `unresolved_records` of one log partition.

        Args:
            replayed: The replayed groups of the log partition.
            partition: The log partition.
            decided: The newest effective record of each key among the new records; None if there is none.
            share_records: The new rows of `share_state_records` of the log partition.
            pending: The new rows of `pending_offsets`; None if there are none.
            groups: The groups that are compacted; rows of other groups are omitted.
        """
        again = {*replayed.group_ids}
        kept = [
            row
            for row in (*self.stored, *self.new)
            if row["log_partition"] == partition
            and (row["scope"], row["log_topic"]) != ("group", OFFSETS_TOPIC)
            and (row["scope"] != "transaction" or groups != EVERY_GROUP or _ends_pending(row, pending))
        ]
        of_groups = [row for row in self.stored if row["log_partition"] == partition and row["scope"] == "group"]
        kept += [row for row in of_groups if row["log_topic"] == OFFSETS_TOPIC and row["group_id"] not in again]
        kept += [
            {"scope": "group", "log_topic": OFFSETS_TOPIC, "log_partition": partition} | row for row in replayed.unread
        ]
        rows = not_superseded(newest(kept), decided, share_records)
        return groups.rows(pa.Table.from_pylist(rows, table_schema(TABLE)))


def _ends_pending(row: Row, pending: pa.Table | None) -> bool:
    """Return whether offsets of the producer were pending at a marker that cannot be read."""
    if pending is None:
        return False
    of_producer = pc.fill_null(pc.equal(pending["producer_id"], row["producer_id"]), fill_value=False)
    before = pc.less(pending["log_offset"], row["log_offset"])
    in_partition = pc.equal(pending["log_partition"], row["log_partition"])
    return bool(pc.any(pc.and_(pc.and_(of_producer, before), in_partition)).as_py())
