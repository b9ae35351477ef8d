"""Mapped snapshots with a few offsets."""

import tempfile
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from offsetlake.lake.files import table_schema
from offsetlake.pipeline.compact.snapshot import Snapshot
from offsetlake.serve.storage.mapped_snapshot import MappedSnapshot
from offsetlake.serve.storage.snapshot_file import snapshot_parts
from offsetlake.serve.storage.snapshot_offsets import OFFSET_COLUMNS, encode_offsets

Key = tuple[str, str, int]


def mapped_snapshot(
    offsets: Mapping[Key, Mapping[str, object]],
    groups: Iterable[Mapping[str, object]] = (),
    pending: Iterable[Key] = (),
    log_ends: Mapping[tuple[str, int], tuple[int, int]] | None = None,
    members: Iterable[Mapping[str, object]] = (),
    part_of: Callable[[Key], int] = lambda _: 0,
) -> MappedSnapshot:
    """Return a mapped snapshot.

    Args:
        offsets: Some columns of table `offsets`, by group, topic and partition.
        groups: Some columns of table `groups`; other groups are of type classic and Empty.
        pending: Group, topic and partition of pending offsets.
        log_ends: Start and end offset by topic and partition.
        members: Some columns of table `group_members`.
        part_of: Assigns offsets to parts that are encoded by themselves, as those of a log partition are.
    """
    defaults = {"committed_offset": 0, "leader_epoch": None, "metadata": "", "topic_id": None}
    defaults |= {"commit_timestamp": 0}
    rows: dict[int, list[dict[str, object]]] = {0: []}
    for key, columns in offsets.items():
        row = dict(zip(("group_id", "topic", "partition"), key, strict=True)) | defaults | columns
        rows.setdefault(part_of(key), []).append(row)
    schema = table_schema("offsets")
    group_rows = {group: {"group_id": group, "group_type": "classic", "state": "Empty"} for group, _, _ in offsets}
    group_rows |= {str(group["group_id"]): dict(group) for group in groups}
    group_defaults = {"subscription": "none", "subscribed_topics": [], "member_count": 0, "log_partition": 0}
    offsets_schema = pa.schema([schema.field(name) for name in OFFSET_COLUMNS])
    parts = [encode_offsets(pa.Table.from_pylist(of_part, offsets_schema)) for of_part in rows.values()]
    tables = {
        "unresolved_records": table_schema("unresolved_records").empty_table(),
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
        no_doubt = tables["unresolved_records"].select(["group_id", "topic", "partition", "scope"])
        snapshot = Snapshot(tables, {0: 0}, pa.repeat(False, tables["pending_offsets"].num_rows), 0, no_doubt)
        file.writelines(snapshot_parts(snapshot, parts, ends))
        file.flush()
        return MappedSnapshot(file.fileno())
