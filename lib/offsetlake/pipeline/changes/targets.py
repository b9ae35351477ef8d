"""The offsets that `reset`, `restore` and `undelete` are to give to groups: tables fit for `plan_alterations`."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.log.cluster.admin import ClusterAdmin
from offsetlake.pipeline.changes.alterations import OFFSET, VALUES
from offsetlake.pipeline.changes.selection import GroupSelection
from offsetlake.rules import strategies
from offsetlake.rules.offsets_csv import read_offsets
from offsetlake.rules.reduction import KEY

WANTED = pa.schema(
    [
        ("group_id", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("committed_offset", pa.int64()),
        ("requested_offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("metadata", pa.string()),
        ("expire_timestamp", pa.int64()),
        ("topic_id", pa.string()),
        ("reason", pa.string()),
        ("note", pa.string()),
    ]
)

_LOST = "the commit before it is in no table: history does not go back so far"

Scope = Mapping[str, Collection[int] | None]
"""Partitions by topic, None: all of the topic; an empty scope: every topic the group has offsets of."""

Compute = Callable[[pa.Table], pa.Table]
"""One of `lifecycle.strategies`."""


@dataclass(frozen=True, slots=True)
class LogEndLookup:
    """Where logs begin and end, and stood at a time, as far as a cluster tells."""

    admin: ClusterAdmin | None
    at_ms: int | None = None

    def of(self, rows: pa.Table) -> pa.Table:
        """Add the columns earliest, latest and at_time to rows of topic and partition."""
        where = list(zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True))
        known = self.admin.log_ends(where) if self.admin else {}
        at_time = self.admin.offsets_at(where, self.at_ms) if self.admin and self.at_ms is not None else {}
        ends = [known.get(each, (None, None)) for each in where]
        columns = {
            "earliest": [first for first, _ in ends],
            "latest": [last for _, last in ends],
            "at_time": [at_time.get(each) for each in where],
        }
        for name, values in columns.items():
            rows = rows.append_column(name, pa.array(values, pa.int64()))
        return rows


def by_strategy(groups: GroupSelection, group_id: str, scope: Scope, compute: Compute, ends: LogEndLookup) -> pa.Table:
    """Give new offsets of one group by one of `lifecycle.strategies`; BadRequest for a topic nobody knows."""
    found = compute(ends.of(_in_scope(groups, group_id, scope, ends.admin)))
    unknown = pc.is_null(found["new_offset"])
    return _wanted(
        found.append_column("reason", pc.if_else(unknown, found["note"], None).cast(pa.string())),
        committed_offset=found["new_offset"],
        note=pc.if_else(unknown, None, found["note"]).cast(pa.string()),
    )


def _in_scope(groups: GroupSelection, group_id: str, scope: Scope, admin: ClusterAdmin | None) -> pa.Table:
    """Give the partitions meant, with the offset committed there now."""
    stored = groups.rows("offsets", OFFSET)
    stored = stored.filter(pc.equal(stored["group_id"], group_id))
    now = {(row["topic"], row["partition"]): row["committed_offset"] for row in stored.to_pylist()}
    there = admin.partitions(scope.keys()) if admin and scope else {}
    keys = sorted(now) if not scope else []
    for topic, partitions in scope.items():
        known = {*there.get(topic, ()), *(number for name, number in now if name == topic)}
        wanted = sorted(known) if partitions is None else sorted(set(partitions))
        missing = [number for number in wanted if admin and number not in known]
        if not wanted or missing:
            what = f"topic {topic!r}" if not wanted or not known else f"partition {missing[0]} of topic {topic!r}"
            raise BadRequest(f"there is no {what}, as far as {'the cluster' if admin else 'the lake'} knows")
        keys += [(topic, number) for number in wanted]
    if not keys:
        raise BadRequest(f"group {group_id!r} has no offsets: name topics with --topic")
    columns = {
        "group_id": pa.array([group_id] * len(keys), pa.string()),
        "topic": pa.array([topic for topic, _ in keys], pa.string()),
        "partition": pa.array([partition for _, partition in keys], pa.int32()),
        "committed_offset": pa.array([now.get(key) for key in keys], pa.int64()),
    }
    return pa.table(columns)


def from_file(file: str, group_id: str | None) -> pa.Table:
    """Read Kafka's own CSV; columns of `offsets_csv.SCHEMA`. BadRequest names every bad line."""
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise BadRequest(f"{file} cannot be read: {error.strerror}") from error
    return read_offsets(content, group_id, file)


def given(rows: pa.Table, ends: LogEndLookup) -> pa.Table:
    """Take offsets as a file gives them, kept within the logs where their ends are known."""
    asked = rows.append_column("committed_offset", pa.nulls(rows.num_rows, pa.int64()))
    found = strategies.to_offset(ends.of(asked.drop_columns(["new_offset"])), rows["new_offset"])
    return _wanted(found, committed_offset=found["new_offset"])


def from_group(groups: GroupSelection, source: str, group_id: str) -> pa.Table:
    """Take the offsets another group has."""
    rows = groups.rows("offsets", OFFSET)
    rows = rows.filter(pc.equal(rows["group_id"], source))
    if not rows.num_rows:
        raise BadRequest(f"group {source!r} has no offsets to take")
    return _wanted(rows, group_id=pa.array([group_id] * rows.num_rows, pa.string()))


def as_they_were(rows: pa.Table) -> pa.Table:
    """Take rows with the columns of `offsets`, as history has them."""
    return _wanted(rows.select([*KEY, *VALUES]))


def as_they_are(rows: pa.Table, note: str) -> pa.Table:
    """Take rows of `offsets` that are to stay as they are; nothing is requested of them."""
    none = pa.nulls(rows.num_rows, pa.int64())
    return _wanted(rows, requested_offset=none, note=pa.repeat(pa.scalar(note), rows.num_rows))


def before_run(done: dict[str, pa.Table]) -> tuple[pa.Table, pa.Array]:
    """Undo what `audit.deleted.done_by` tells of a run; also give what each offset must be now, null: not there."""
    parts, expected = [], []
    for table, rows in done.items():
        lost = pc.and_(pc.is_valid(rows["committed_offset"]), pc.is_null(rows["went_offset"]))
        reason = pc.if_else(lost, _LOST, pa.scalar(None, pa.string()))
        parts.append(_wanted(rows.select([*KEY, *VALUES]).append_column("reason", reason)))
        now = rows["set_offset"] if table == "alterations" else pa.nulls(rows.num_rows, pa.int64())
        expected += now.to_pylist()
    return pa.concat_tables(parts), pa.array(expected, pa.int64())


def _wanted(rows: pa.Table, **columns: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return rows of WANTED; the offset requested is the one committed, unless it says otherwise."""
    given = {name: rows[name] for name in rows.column_names} | columns
    given.setdefault("requested_offset", given["committed_offset"])
    made = {of.name: given.get(of.name, pa.nulls(rows.num_rows, of.type)).cast(of.type) for of in WANTED}
    return pa.table(made, schema=WANTED)
