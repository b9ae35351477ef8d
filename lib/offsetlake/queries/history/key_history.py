"""The records of one offset: what each changed, whether it took effect, and who wrote it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake import runs
from offsetlake.lake.files import table_schema
from offsetlake.lake.history.group_places import in_log_partitions
from offsetlake.lake.lake import Lake
from offsetlake.queries.history.resets import REPAIR, Flags, are_resets, in_empty_periods
from offsetlake.rules.reduction import COMMITTED, PART, completions, next_markers, positions
from offsetlake.util.columns import taken

DETAILS = ("leader_epoch", "metadata", "commit_timestamp")
"""The columns of `questions.history` that nothing else depends on."""

_COLUMNS = (
    "log_partition", "log_offset", "log_timestamp", "event", "committed_offset", "previous_offset", *DETAILS,
    "producer_id", "outcome",
)  # fmt: skip
_AUTHOR = ("what", "principal", "client_id", "address")
EVENTS = ("commit", "reset", "reset_back", "tombstone")
"""What a record does: `reset_back` is a commit lower than the offset in force, `reset` another one that is a reset."""

_COMMIT, _RESET, _RESET_BACK, _TOMBSTONE = range(len(EVENTS))
_OUTCOMES = pa.array(["committed", "aborted", "open", "partial"])
_PLAIN, _COMMITTED, _ABORTED, _OPEN, _PARTIAL = range(-1, 4)
_NEVER = -1
_MAX_NAMED = 100

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class KeyHistory:
    """Reads the records of an offset, and what decides them.

    | Field      | Description |
    |------------|-------------|
    | group, key | SQL conditions for its group and for the offset |
    | partitions | the log partitions of the group, the one that coordinates it first |
    """

    lake: Lake
    group: str
    key: str
    partitions: Sequence[int]

    def records(self, where: str = "true", details: Sequence[str] = (), newest: int | None = None) -> pa.Table:
        """Return records of the offset that satisfy an SQL condition, with what `described` needs and some DETAILS.

        With `newest`, only so many records, those with the highest log offsets.
        """
        known = self.lake.columns("offset_commits")  # an older lake lacks the columns of commits in parts
        parts = [name if name in known else f"CAST(NULL AS BIGINT) AS {name}" for name in PART[2:]]
        names = (*PART[:2], "log_timestamp", "committed_offset", *details, "producer_id", *parts)
        order = "" if newest is None else f"ORDER BY log_offset DESC LIMIT {newest}"
        return self.lake.query(
            f"SELECT {', '.join(names)}, kind = 'tombstone' AS is_tombstone FROM offset_commits "  # noqa: S608
            f"WHERE {self._placed} AND {self.key} AND ({where}) {order}",
            "offset_commits",
        )

    def spans(self, where: str) -> list[tuple[int, int, int]]:
        """Return the first and the last log offset of the records that satisfy an SQL condition, by log partition.

        The log partitions are in the order of `partitions`.
        """
        found = self.lake.query(
            "SELECT log_partition, min(log_offset), max(log_offset) FROM offset_commits "  # noqa: S608
            f"WHERE {self._placed} AND {self.key} AND {where} GROUP BY log_partition",
            "offset_commits",
        )
        spans = zip(*(column.to_pylist() for column in found.columns), strict=True)
        return sorted(spans, key=lambda span: self.partitions.index(span[0]))

    def partitions_after(self, partition: int) -> Sequence[int]:
        """Return the log partitions whose rows follow those of one; none if the group has no records there."""
        known = partition in self.partitions
        return self.partitions[self.partitions.index(partition) + 1 :] if known else []

    def described(self, records: pa.Table, *, with_resets: bool = True) -> tuple[pa.Table, int]:
        """Return the rows of `questions.history` about some records, without difference and author; and a number.

        The event `reset` requires the records of the group; without `with_resets`, it is `commit`.

        The previous_offset is by these records. The number is that of the rows for which it is certain: those after a
        record that had taken effect, which are the first ones in their log partition.
        """
        records = records.take(pa.array(np.argsort(positions(records).to_numpy(), kind="stable")))
        position, is_tombstone = positions(records).to_numpy(), records["is_tombstone"].to_numpy()
        outcome, applied = self._decided(records, position, is_tombstone)
        partition = records["log_partition"].to_numpy()
        previous = _in_force(position, applied, partition)
        value = records["committed_offset"]
        previous_value = taken(value, previous)
        is_lower = pc.fill_null(pc.less(value, previous_value), fill_value=False).to_numpy() & (outcome <= _COMMITTED)
        was_deleted = (previous >= 0) & previous_value.is_null().to_numpy()
        is_reset = self._are_resets(records, was_deleted) if with_resets else np.zeros(len(position), np.bool_)
        events = [is_tombstone, is_lower, (applied != _NEVER) & is_reset]
        columns = dict(zip(records.column_names, records.columns, strict=True)) | {
            "event": _named(
                np.select(events, [_TOMBSTONE, _RESET_BACK, _RESET], _COMMIT).astype(np.int8), pa.array(EVENTS)
            ),
            "outcome": _named(outcome, _OUTCOMES),
            "previous_offset": previous_value,
        }
        rows = pa.table({name: columns[name] for name in _COLUMNS if name in columns})
        rank = pc.index_in(pa.array(partition), pa.array(self.partitions, pa.int32())).to_numpy()
        newest_first = np.lexsort((-position, rank))
        return rows.take(pa.array(newest_first)), int((previous >= 0).sum())

    def completed(self, rows: pa.Table) -> pa.Table:
        """Return rows of `described` with all columns of `questions.history`."""
        value, previous = (rows[name].cast(pa.decimal128(20)) for name in ("committed_offset", "previous_offset"))
        after = rows.column_names.index("previous_offset") + 1
        rows = rows.add_column(after, "difference", pc.subtract(value, previous))
        schema = [
            field.with_type(pa.string()) if field.name in ("event", "outcome") else field for field in rows.schema
        ]
        return self.with_authors(rows.cast(pa.schema(schema)))

    def with_authors(self, rows: pa.Table) -> pa.Table:
        """Append who wrote each record, by the nearest audit event at or before it, if that covers the record.

        A record without one that a run of offsetlake wrote, as through a live cluster, has the principal that requested
        the run.
        """
        events = self._audit_events(rows)
        events = events.take(pa.array(np.argsort(positions(events).to_numpy(), kind="stable")))
        position = positions(rows).to_numpy()
        index = np.searchsorted(positions(events).to_numpy(), position, side="right") - 1
        last = positions(events.select(["log_partition", "last_log_offset"]).rename_columns(PART[:2])).to_numpy()
        event = np.where((index >= 0) & (np.append(last, [_NEVER])[index] >= position), index, -1)
        for name in _AUTHOR:
            rows = rows.append_column(name, taken(events[name], event))
        found = self._requesters(rows.filter(pa.array(event < 0)))
        if not found:
            return rows
        places = zip(rows["log_partition"].to_pylist(), rows["log_offset"].to_pylist(), strict=True)
        requesters = pa.array([found.get(place) for place in places], pa.string())
        principals = pc.coalesce(rows["principal"].cast(pa.string()), requesters)
        return rows.set_column(rows.column_names.index("principal"), "principal", principals)

    def _requesters(self, rows: pa.Table) -> dict[tuple[int, int], str | None]:
        """Return by log partition and log offset who requested the runs of offsetlake that wrote some of these rows."""
        if not rows.num_rows or "audit_events" not in self.lake.tables():
            return {}
        bounds = pc.min_max(rows["log_offset"]).as_py()
        where = f"{self._placed} AND {self.group} AND log_offset BETWEEN {bounds['min']} AND {bounds['max']}"
        written = self.lake.query(
            f"SELECT log_partition, log_offset, run_id FROM alterations WHERE {where} "  # noqa: S608
            f"UNION ALL SELECT log_partition, log_offset, run_id FROM tombstones WHERE {where}",
            "alterations",
            "tombstones",
        ).to_pylist()
        requesters = runs.requesters(self.lake, {row["run_id"] for row in written}) if written else {}
        return {(row["log_partition"], row["log_offset"]): requesters.get(row["run_id"]) for row in written}

    def _decided(self, records: pa.Table, position: Ints, is_tombstone: npt.NDArray[np.bool_]) -> tuple[Codes, Ints]:
        """Return the outcome of each record, and the position at which it took effect: _NEVER if it did not."""
        outcome, applied = np.full(len(position), _PLAIN, np.int8), position.copy()
        in_transaction = records["producer_id"].is_valid().to_numpy()
        if in_transaction.any():
            commits = records.filter(pa.array(in_transaction))
            markers = self._markers(commits)
            row = next_markers(commits, markers)
            is_committed = np.append(pc.equal(markers["marker"], COMMITTED).to_numpy(), [False])[row]
            marked = np.append(positions(markers).to_numpy(), [_NEVER])[row]
            outcome[in_transaction] = np.where(row < 0, _OPEN, np.where(is_committed, _COMMITTED, _ABORTED))
            at_once = is_tombstone[in_transaction]
            applied[in_transaction] = np.where(
                at_once, position[in_transaction], np.where(is_committed, marked, _NEVER)
            )
        is_part = records["commit_id"].is_valid().to_numpy()
        if is_part.any():
            place, last = completions(self._parts(records.filter(pa.array(is_part))))
            applied[is_part] = last[np.searchsorted(place, position[is_part])]
            outcome[is_part & (applied == _NEVER)] = _PARTIAL
        return outcome, applied

    def _are_resets(self, commits: pa.Table, was_deleted: Flags) -> Flags:
        """Return which commits are resets; `was_deleted` is whether a tombstone was in force before each."""
        if not commits.num_rows:
            return np.zeros(0, np.bool_)
        where = f"{self._placed} AND {self.group}"
        sql = f"SELECT log_partition, log_offset, strategy FROM alterations WHERE {where} AND outcome = 'done'"  # noqa: S608
        written = self.lake.query(sql, "alterations")
        place = positions(commits).to_numpy()
        by_us, by_repair = (
            np.isin(place, positions(written.filter(is_chosen)).to_numpy())
            for is_chosen in (pc.field("strategy") != REPAIR, pc.field("strategy") == REPAIR)
        )
        log_partition, log_offset = (commits[name].to_numpy() for name in PART[:2])
        is_empty = in_empty_periods(self.lake, where, log_partition, log_offset)
        return are_resets(
            by_us, was_deleted, ~(by_us | by_repair), commits["producer_id"].is_valid().to_numpy(), is_empty
        )

    def _markers(self, commits: pa.Table) -> pa.Table:
        """Return the markers that can decide some commits."""
        first = pc.min(commits["log_offset"]).as_py()
        return self.lake.query(
            "SELECT log_partition, log_offset, producer_id, marker FROM transaction_markers "  # noqa: S608
            f"WHERE {self._placed} AND log_offset > {first} AND {_is_among(commits, 'producer_id')}",
            "transaction_markers",
        )

    def _parts(self, records: pa.Table) -> pa.Table:
        """Return all parts of the commits of which some records are parts; they can be of any offset."""
        where = f"{self._placed} AND {_is_among(records, 'commit_id')}"
        return self.lake.query(f"SELECT {', '.join(PART)} FROM offset_commits WHERE {where}", "offset_commits")  # noqa: S608

    def _audit_events(self, rows: pa.Table) -> pa.Table:
        """Return the audit events of the group that can cover some rows."""
        names = ["log_partition", "log_offset", "last_log_offset", *_AUTHOR]
        if not rows.num_rows or "audit_events" not in self.lake.tables():
            return table_schema("audit_events").empty_table().select(names)
        bounds = pc.min_max(rows["log_offset"]).as_py()
        return self.lake.query(
            f"SELECT {', '.join(names)} FROM audit_events WHERE {self._placed} AND {self.group} "  # noqa: S608
            f"AND log_offset <= {bounds['max']} AND last_log_offset >= {bounds['min']}",
            "audit_events",
        )

    @property
    def _placed(self) -> str:
        return in_log_partitions(self.partitions)


def _in_force(position: Ints, applied: Ints, partition: Ints) -> Ints:
    """Return the index of the record that was in force before each record was appended, -1 if none was.

    This is the one with the highest log offset among the records that had taken effect. Records are sorted by position.
    """
    effective = np.flatnonzero(applied != _NEVER)
    order = effective[np.argsort(applied[effective], kind="stable")]
    newest = np.append(np.maximum.accumulate(order), [-1])
    previous = newest[np.searchsorted(applied[order], position, side="left") - 1]
    return np.where(np.append(partition, [-1])[previous] == partition, previous, -1)


def _named(codes: Codes, names: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), names)


def _is_among(records: pa.Table, column: str) -> str:
    """Return an SQL condition for the integers in a column of some records, true for all values if they are many."""
    values = pc.unique(records[column]).to_pylist()
    return f"{column} IN ({', '.join(map(str, values))})" if len(values) <= _MAX_NAMED else "true"
