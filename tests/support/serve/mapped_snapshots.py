"""Mapped snapshots with a few offsets."""

import tempfile
from collections.abc import Iterable, Mapping

import pyarrow as pa

from offsetlake.lake.files import table_schema
from offsetlake.pipeline.compact.snapshot import Snapshot
from offsetlake.serve.storage.mapped_snapshot import MappedSnapshot
from offsetlake.serve.storage.snapshot_file import OFFSET_COLUMNS, snapshot_parts

Key = tuple[str, str, int]


def mapped_snapshot(
    offsets: Mapping[Key, Mapping[str, object]],
    groups: Iterable[Mapping[str, object]] = (),
    pending: Iterable[Key] = (),
    log_ends: Mapping[tuple[str, int], tuple[int, int]] | None = None,
    members: Iterable[Mapping[str, object]] = (),
) -> MappedSnapshot:
    """Return a mapped snapshot.

    Args:
        offsets: Some columns of table `offsets`, by group, topic and partition.
        groups: Some columns of table `groups`; other groups are of type classic and Empty.
        pending: Group, topic and partition of pending offsets.
        log_ends: Start and end offset by topic and partition.
        members: Some columns of table `group_members`.

    """
    defaults = {"committed_offset": 0, "leader_epoch": None, "metadata": "", "topic_id": None}
    defaults |= {"commit_timestamp": 0}
    rows = [
        {"group_id": group, "topic": topic, "partition": partition, **defaults, **columns}
        for (group, topic, partition), columns in offsets.items()
    ]
    schema = table_schema("offsets")
    group_rows = {group: {"group_id": group, "group_type": "classic", "state": "Empty"} for group, _, _ in offsets}
    group_rows |= {str(group["group_id"]): dict(group) for group in groups}
    group_defaults = {"subscription": "none", "subscribed_topics": [], "member_count": 0, "log_partition": 0}
    tables = {
        "offsets": pa.Table.from_pylist(rows, pa.schema([schema.field(name) for name in OFFSET_COLUMNS])),
        "groups": pa.Table.from_pylist([group_defaults | row for row in group_rows.values()], table_schema("groups")),
        "group_members": pa.Table.from_pylist([dict(member) for member in members], table_schema("group_members")),
        "pending_offsets": pa.Table.from_pylist(
            [
                {"group_id": group, "topic": topic, "partition": partition, "producer_id": 1, "record_type": 1}
                | {"log_partition": 0, "log_offset": 0, "committed_offset": 7}
                for group, topic, partition in pending
            ],
            table_schema("pending_offsets"),
        ),
    }
    run = {"ingest_run": 1, "asked_timestamp": 0}
    ends = pa.Table.from_pylist(
        [
            {"topic": topic, "partition": partition, "start_offset": start, "end_offset": end} | run
            for (topic, partition), (start, end) in (log_ends or {}).items()
        ],
        table_schema("log_ends"),
    )
    with tempfile.TemporaryFile() as file:
        snapshot = Snapshot(tables, {0: 0}, pa.repeat(False, tables["pending_offsets"].num_rows), 0)
        file.writelines(snapshot_parts(snapshot, ends))
        file.flush()
        return MappedSnapshot(file.fileno())
