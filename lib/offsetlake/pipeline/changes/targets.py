"""The offsets that `reset`, `restore` and `undelete` set: tables for `plan_alterations`."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.pipeline.changes.alterations import OFFSET, VALUES
from offsetlake.pipeline.changes.group_selection import GroupSelection
from offsetlake.rules import strategies
from offsetlake.rules.offsets_csv import SCHEMA, read_offsets
from offsetlake.rules.reduction import KEY
from offsetlake.util.columns import by_row, taken
from offsetlake.util.row_codes import rows_in

if TYPE_CHECKING:
    from offsetlake.log.cluster.admin import ClusterAdmin

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
        ("reason", pa.string()),
        ("note", pa.string()),
    ]
)

_TOPIC = re.compile(r"(?P<topic>[^:]+)(:(?P<partitions>[0-9]{1,9}(,[0-9]{1,9})*))?")
_NAME_OF_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")  # org.apache.kafka.common.internals.Topic
_LOST = "the previous commit is older than history"

Scope = Mapping[str, Collection[int] | None]
"""Partitions by topic, None for all of the topic; an empty scope is every topic that the group has offsets of."""

Compute = Callable[[pa.Table], pa.Table]
"""A function of `rules.strategies`."""


@dataclass(frozen=True, slots=True)
class LogEndLookup:
    """Looks up log start offsets, log end offsets and offsets at a time, if a cluster is available."""

    admin: "ClusterAdmin | None"
    timestamp: int | None = None

    def add_to(self, rows: pa.Table) -> pa.Table:
        """Add the columns earliest, latest and at_time, null if unknown, to rows of topic and partition."""
        if self.admin is None:
            for name in ("earliest", "latest", "at_time"):
                rows = rows.append_column(name, pa.nulls(rows.num_rows, pa.int64()))
            return rows
        partitions = list(zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True))
        found = self.admin.log_ends(partitions)
        known = {partition: ends for partition, ends in found.items() if ends[0] >= 0}  # others are not known there
        at_time = {} if self.timestamp is None else self.admin.offsets_at(known, self.timestamp)
        ends = [known.get(partition, (None, None)) for partition in partitions]
        columns = {
            "earliest": [first for first, _ in ends],
            "latest": [last for _, last in ends],
            "at_time": [at_time.get(partition) for partition in partitions],
        }
        for name, values in columns.items():
            rows = rows.append_column(name, pa.array(values, pa.int64()))
        return rows


def committed_offsets(groups: GroupSelection, group_id: str) -> pa.Table:
    """Return the key and the committed offset of each offset of a group."""
    stored = groups.rows("offsets", OFFSET)
    return stored.filter(pc.equal(stored["group_id"], group_id)).select([*KEY, "committed_offset"])


def parse_scope(texts: Iterable[str]) -> dict[str, list[int] | None]:
    """Return the scope of texts such as `orders` and `orders:0,1`; raise BadRequest for other texts."""
    scope: dict[str, list[int] | None] = {}
    for text in texts:
        match = _TOPIC.fullmatch(text)
        if match is None or match["topic"] in scope:
            raise BadRequest(f"Invalid --topic {text!r}: expected TOPIC or TOPIC:0,1,2, and each topic once.")
        scope[match["topic"]] = (
            [int(number) for number in match["partitions"].split(",")] if match["partitions"] else None
        )
    return scope


def in_scope(rows: pa.Table, scope: Scope) -> pa.Table:
    """Return the rows about topics and partitions of a scope, by their columns `topic` and `partition`."""
    if not scope:
        return rows
    chosen = pa.scalar(value=False)
    for topic, partitions in scope.items():
        is_chosen = pc.equal(rows["topic"], topic)
        if partitions is not None:
            numbers = pa.array([*partitions], rows["partition"].type)
            is_chosen = pc.and_(is_chosen, pc.is_in(rows["partition"], value_set=numbers))
        chosen = pc.or_(chosen, is_chosen)
    return rows.filter(chosen)


def by_strategy(now: pa.Table, group_id: str, scope: Scope, compute: Compute, ends: LogEndLookup) -> pa.Table:
    """Return new offsets of one group by a strategy; `now` has its offsets, as `committed_offsets`.

    Raises:
        BadRequest: A topic or partition of the scope is unknown, or the group has no offsets.
    """
    computed = compute(ends.add_to(_in_scope(now, group_id, scope, ends.admin)))
    unknown = pc.is_null(computed["new_offset"])
    return _wanted(
        computed.append_column("reason", pc.if_else(unknown, computed["note"], None).cast(pa.string())),
        committed_offset=computed["new_offset"],
        note=pc.if_else(unknown, None, computed["note"]).cast(pa.string()),
    )


def _in_scope(now: pa.Table, group_id: str, scope: Scope, admin: "ClusterAdmin | None") -> pa.Table:
    """Return the partitions of the scope with their present offsets."""
    if not scope and not now.num_rows:
        raise BadRequest(f"Group {group_id!r} has no offsets: specify topics with --topic.")
    if not scope:
        return now.sort_by([("topic", "ascending"), ("partition", "ascending")])
    existing = admin.partitions(scope.keys()) if admin else {}
    keys: list[tuple[str, int]] = []
    for topic, partitions in scope.items():
        stored = now.filter(pc.equal(now["topic"], topic))["partition"].to_pylist()
        known = {*existing.get(topic, ()), *stored}
        wanted = sorted(known) if partitions is None else sorted(set(partitions))
        missing = [number for number in wanted if admin and number not in known]
        if not wanted or missing:
            what = f"topic {topic!r}" if not wanted or not known else f"partition {missing[0]} of topic {topic!r}"
            raise BadRequest(f"Unknown {what}: {'the cluster' if admin else 'the lake'} does not contain it.")
        keys += [(topic, number) for number in wanted]
    columns = {
        "group_id": pa.array([group_id] * len(keys), pa.string()),
        "topic": pa.array([topic for topic, _ in keys], pa.string()),
        "partition": pa.array([partition for _, partition in keys], pa.int32()),
    }
    rows = pa.table(columns)
    return rows.append_column("committed_offset", taken(now["committed_offset"], rows_in(rows, now, KEY)))


def from_file(file: str, group_id: str | None) -> pa.Table:
    """Read the CSV of kafka-consumer-groups as `offsets_csv.SCHEMA`; raise BadRequest that lists every invalid line."""
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise BadRequest(f"Cannot read {file}: {error.strerror}.") from error
    return read_offsets(content, group_id, file)


def from_rows(rows: pa.Table, ends: LogEndLookup) -> pa.Table:
    """Return given offsets, limited to the log start and end offsets if they are known.

    Args:
        rows: The columns of `offsets_csv.SCHEMA`, and optionally `reason`, with which a row is refused.
        ends: The log start and end offsets.
    """
    reason = rows["reason"] if "reason" in rows.column_names else pa.nulls(rows.num_rows, pa.string())
    keys = rows.select(SCHEMA.names).append_column("reason", pc.coalesce(reason, _impossible(rows)))
    keys = keys.append_column("committed_offset", pa.nulls(rows.num_rows, pa.int64()))
    computed = strategies.to_offset(ends.add_to(keys.drop_columns(["new_offset"])), rows["new_offset"])
    return _wanted(computed, committed_offset=computed["new_offset"])


def _impossible(rows: pa.Table) -> pa.Array:
    """Return a text for each row that no cluster can have as a committed offset of a consumer."""
    columns = zip(*(rows[name].to_pylist() for name in ("group_id", "topic", "new_offset")), strict=True)
    return pa.array([_why_impossible(*row) for row in columns], pa.string())


def _why_impossible(group_id: str, topic: str, offset: int | None) -> str | None:
    if offset is not None and offset < 0:
        return f"the offset {offset} is negative: no record has it"
    if not group_id:
        return "the name of the group is empty"
    if not _NAME_OF_TOPIC.fullmatch(topic) or topic in {".", ".."}:
        return "no topic can have this name: Kafka allows up to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'"
    return None


def from_group(groups: GroupSelection, source: str, group_id: str) -> pa.Table:
    """Return the offsets of another group; those that a quarantined record leaves unknown are refused."""
    rows = groups.rows("offsets", OFFSET)
    rows = rows.filter(pc.equal(rows["group_id"], source))
    if not rows.num_rows:
        raise BadRequest(f"Group {source!r} has no offsets to copy.")
    reason = by_row(groups.unknown_offsets(rows), rows.num_rows)
    return _wanted(rows, group_id=pa.array([group_id] * rows.num_rows, pa.string()), reason=reason)


def from_history(rows: pa.Table, unknown: Mapping[int, str]) -> pa.Table:
    """Return offsets from rows of history with the columns of `offsets`; `unknown` has a reason for refused rows."""
    return _wanted(rows.select([*KEY, *VALUES]), reason=by_row(unknown, rows.num_rows))


def unchanged(rows: pa.Table, note: str) -> pa.Table:
    """Return rows of `offsets` without a requested change."""
    none = pa.nulls(rows.num_rows, pa.int64())
    return _wanted(rows, requested_offset=none, note=pa.repeat(pa.scalar(note), rows.num_rows))


def before_run(done: dict[str, pa.Table]) -> tuple[pa.Table, pa.Array]:
    """Return the offsets before a run (`history.deleted.done_by`), and the value that each must have now (or null)."""
    parts, expected = [], []
    for table, rows in done.items():
        lost = pc.and_(pc.is_valid(rows["committed_offset"]), pc.is_null(rows["went_offset"]))
        reason = pc.if_else(lost, _LOST, pa.scalar(None, pa.string()))
        parts.append(_wanted(rows.select([*KEY, *VALUES]).append_column("reason", reason)))
        now = rows["set_offset"] if table == "alterations" else pa.nulls(rows.num_rows, pa.int64())
        expected += now.to_pylist()
    return pa.concat_tables(parts), pa.array(expected, pa.int64())


def _wanted(rows: pa.Table, **columns: pa.Array | pa.ChunkedArray) -> pa.Table:
    return wanted_rows({name: rows[name] for name in rows.column_names} | columns, rows.num_rows)


def wanted_rows(columns: Mapping[str, pa.Array | pa.ChunkedArray], count: int) -> pa.Table:
    """Return rows of WANTED from some of its columns; requested_offset defaults to committed_offset."""
    values = {"requested_offset": columns["committed_offset"], **columns}
    arrays = [values.get(field.name, pa.nulls(count, field.type)).cast(field.type) for field in WANTED]
    return pa.table(arrays, schema=WANTED)
