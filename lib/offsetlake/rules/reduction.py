"""Reduces history to the latest decided commit of each key: the one with the highest log offset.

A record is decided when no later record can change its effect: a plain commit or a tombstone immediately, a
transactional commit with the next marker of its producer, and a part of a commit in parts when the commit is complete.
The decided record of a key with the highest log offset is the one that a broker serves after it has loaded the same log
(`OffsetMetadataManager.replay` in Kafka), regardless of the order in which transactions ended. All records of a group
are in one log partition, so log partitions are reduced independently.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.util.row_codes import order_codes

KEY = ("group_id", "topic", "partition")
PART = ("log_partition", "log_offset", "commit_id", "commit_size")
COMMITTED, ABORTED, OPEN = "COMMIT", "ABORT", ""

_OFFSET_BITS = 44  # for log offsets below 2^44 and log partitions below 2^19
_BUFFERED_ROWS = 1 << 18  # rows to collect before reducing them: bounds memory together with the number of keys


def positions(records: pa.Table) -> pa.ChunkedArray:
    """Return one integer per record that sorts by log_partition and log_offset, the columns of `records`."""
    return pc.add(pc.shift_left(records["log_partition"].cast(pa.int64()), _OFFSET_BITS), records["log_offset"])


def latest(records: pa.Table, key: Iterable[str] = KEY) -> pa.Table:
    """Return the record with the highest log offset of each key, with the columns of `records`.

    `records` has the columns log_partition, log_offset, those of `key`, and any others. Two records of a key at the
    same position are the same record, and both are kept.
    """
    position, names = positions(records), list(key)
    keys = pa.table({name: _numbered(records[name]) for name in names}).append_column("position", position)
    newest = keys.group_by(names).aggregate([("position", "max")])["position_max"]
    return records if len(newest) == len(position) else records.filter(pc.is_in(position, value_set=newest))


def _numbered(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Replace texts by numbers, equal ones by equal numbers: they are grouped faster, and are not copied."""
    if not pa.types.is_string(column.type):
        return column
    return pa.chunked_array([chunk.indices for chunk in column.dictionary_encode().chunks], pa.int32())


def merged(offsets: pa.Table, decided: pa.Table) -> pa.Table:
    """Merge decided records into rows of the table `offsets`: the newer one wins, and a tombstone removes its key.

    Args:
        offsets: One row per key, sorted by KEY.
        decided: One record per key, with the columns of `offsets` and kind.

    Returns:
        The new rows of `offsets`: first the rows that are kept, in their order, then the added ones.
    """
    keys = offsets.select(KEY)
    codes = order_codes(pa.concat_tables([keys, decided.select(KEY).cast(keys.schema)]), KEY)
    stored, new = np.split(codes, [offsets.num_rows])
    row = np.searchsorted(stored, new)
    known = row < len(stored)
    known[known] = stored[row[known]] == new[known]
    newer = np.ones(len(new), np.bool_)
    newer[known] = positions(decided).to_numpy()[known] > positions(offsets).to_numpy()[row[known]]
    kept = np.ones(len(stored), np.bool_)
    kept[row[known & newer]] = False
    added = decided.filter(pc.and_(pc.equal(decided["kind"], "commit"), pa.array(newer)))
    return pa.concat_tables([offsets.filter(pa.array(kept)), added.select(offsets.column_names).cast(offsets.schema)])


def outcomes(commits: pa.Table, markers: pa.Table) -> npt.NDArray[np.str_]:
    """Return COMMITTED, ABORTED or OPEN for each commit: the outcome of its transaction.

    A transaction ends with the next marker of its producer in its log partition. Markers are matched by producer ID
    alone, because the epoch of a marker may be greater by one than that of the records (KIP-890).

    Args:
        commits: Columns log_partition, log_offset, producer_id.
        markers: The same columns, and marker: COMMIT, ABORT, or another text if the outcome is unknown.
    """
    kinds = np.append(markers["marker"].to_numpy(zero_copy_only=False).astype("<U7"), OPEN)
    kinds[~np.isin(kinds, [COMMITTED, ABORTED])] = OPEN
    return kinds[next_markers(commits, markers)]  # -1 is the index of the last element, OPEN


def next_markers(commits: pa.Table, markers: pa.Table) -> npt.NDArray[np.int64]:
    """Return for each commit the row of the marker that ended its transaction, -1 for none; arguments of `outcomes`."""
    names = ("log_offset", "producer_id", "log_partition")
    offset, producer, partition = (
        np.concatenate([commits[name].to_numpy(), markers[name].to_numpy()]) for name in names
    )
    order = np.lexsort((offset, producer, partition))
    is_marker = order >= commits.num_rows
    count = len(order)
    next_marker = np.minimum.accumulate(np.where(is_marker, np.arange(count), count)[::-1])[::-1]
    ended = next_marker < count
    marker = order[np.where(ended, next_marker, 0)]
    ended &= (producer[marker] == producer[order]) & (partition[marker] == partition[order])
    rows = np.empty(count, np.int64)
    rows[order] = np.where(ended, marker - commits.num_rows, -1)
    return rows[: commits.num_rows]


def completions(parts: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the sorted positions of the parts of commits, and the position of the last part of the commit of each.

    The latter is -1 for the parts of incomplete commits, of which parts are missing in the log.

    The parts of a commit have successive log offsets. A run of successive parts with the same ID and size therefore
    contains complete commits of `size` parts each, and at its end possibly an incomplete one. The missing parts can
    only follow if the run ends at the end of the log.

    Args:
        parts: Columns log_partition, log_offset, commit_id, commit_size, in any order.
    """
    position = positions(parts).to_numpy()
    order = np.argsort(position, kind="stable")
    position = position[order]
    commit, size = parts["commit_id"].to_numpy()[order], parts["commit_size"].to_numpy()[order]
    starts_run = np.ones(len(position), np.bool_)
    starts_run[1:] = (position[1:] != position[:-1] + 1) | (commit[1:] != commit[:-1]) | (size[1:] != size[:-1])
    first = np.flatnonzero(starts_run)
    length = np.diff(np.append(first, len(position)))
    place = np.arange(len(position)) - np.repeat(first, length)
    last = place - place % size + size - 1
    is_complete = last < np.repeat(length, length)
    return position, np.where(is_complete, position + last - place, -1)


def incomplete(parts: pa.Table) -> pa.Array:
    """Return the sorted positions of the parts of incomplete commits; `parts` as in `completions`."""
    position, last = completions(parts)
    return pa.array(position[last < 0])


class Latest:
    """Reduces records to the newest of each key, batch by batch; memory grows with the keys, not with the records."""

    def __init__(self, key: Iterable[str] = KEY) -> None:
        self._key = tuple(key)
        self._batches: list[pa.Table] = []
        self._buffered = 0
        self._reduced = 0

    def add(self, records: pa.Table) -> None:
        """Add records, with the same columns in every call."""
        if records.num_rows:
            self._batches.append(records)
            self._buffered += records.num_rows
            if self._buffered > max(_BUFFERED_ROWS, 2 * self._reduced):
                self._batches = [self.result()]
                self._buffered = self._reduced = self._batches[0].num_rows

    def result(self) -> pa.Table | None:
        """Return the newest record of each key so far, or None if no record was added."""
        return latest(pa.concat_tables(self._batches, promote_options="default"), self._key) if self._batches else None


class Survivors:
    """Reduces a part of the records of a log partition to those that the reduction of all of its records needs.

    These are all parts of commits in parts, and of each key the newest record of each kind, producer and outcome:
    the decided and the pending commits, and the newest commit of each group, do not depend on any other record.

    Args:
        markers: All markers of the log partition, with the columns of `outcomes`.
    """

    def __init__(self, markers: pa.Table) -> None:
        self._markers = markers
        self._newest = Latest((*KEY, "kind", "producer_id", "outcome"))
        self._parts: list[pa.Table] = []

    def add(self, records: pa.Table) -> None:
        """Add rows of `offset_commits`."""
        is_part = pc.is_valid(records["commit_id"])
        self._parts.append(records.filter(is_part))
        others = records.filter(pc.invert(is_part))
        is_transactional = _is_transactional(others)
        plain, transactional = others.filter(pc.invert(is_transactional)), others.filter(is_transactional)
        self._newest.add(plain.append_column("outcome", pa.array([COMMITTED] * plain.num_rows, pa.string())))
        if transactional.num_rows:
            outcome = pa.array(outcomes(transactional, self._markers), pa.string())
            self._newest.add(transactional.append_column("outcome", outcome))

    def result(self) -> pa.Table | None:
        """Return the records, in any order, each once; None if there are none."""
        newest = self._newest.result()
        tables = [*self._parts, *([] if newest is None else [newest.drop_columns("outcome")])]
        records = pa.concat_tables(tables) if tables else None
        return records if records is not None and records.num_rows else None


class Reduction:
    """Reduces the history of a set of log partitions to decided and pending commits.

    All transaction markers and the positions of all parts of commits are needed before the first record: whether a part
    belongs to a complete commit cannot be determined from a subset of keys. Records are added in batches, in any order.

    Args:
        markers: All markers of the log partitions, with the columns of `outcomes`.
        parts: All parts of commits of the log partitions, with the columns of `incomplete`.
    """

    def __init__(self, markers: pa.Table, parts: pa.Table) -> None:
        self._markers = markers
        self._incomplete = incomplete(parts)
        self._decided = Latest()
        self._open = Latest((*KEY, "producer_id"))
        self._parts: list[pa.Table] = []

    def _is_incomplete(self, records: pa.Table) -> pa.ChunkedArray:
        return pc.is_in(positions(records), value_set=self._incomplete)

    def complete_only(self, records: pa.Table) -> pa.Table:
        """Remove the parts of incomplete commits. Columns: log_partition, log_offset, any others."""
        return records.filter(pc.invert(self._is_incomplete(records))) if len(self._incomplete) else records

    def all_decided(self, records: pa.Table) -> pa.Table:
        """Return those rows of `offset_commits` that are decided and committed, including tombstones."""
        records = self.complete_only(records)
        is_transactional = _is_transactional(records)
        transactional = records.filter(is_transactional)
        if not transactional.num_rows:
            return records
        committed = pc.equal(pa.array(outcomes(transactional, self._markers)), COMMITTED)
        return pa.concat_tables([records.filter(pc.invert(is_transactional)), transactional.filter(committed)])

    def add(self, records: pa.Table) -> None:
        """Add rows of `offset_commits`, or of `pending_offsets` with a column kind."""
        if len(self._incomplete):
            parts = records.filter(self._is_incomplete(records))
            if parts.num_rows:
                self._parts.append(parts)
                records = self.complete_only(records)
        is_transactional = _is_transactional(records)
        transactional = records.filter(is_transactional)
        self._decided.add(records.filter(pc.invert(is_transactional)) if transactional.num_rows else records)
        if transactional.num_rows:
            outcome = pa.array(outcomes(transactional, self._markers))
            self._decided.add(transactional.filter(pc.equal(outcome, COMMITTED)))
            self._open.add(transactional.filter(pc.equal(outcome, OPEN)))

    def decided(self) -> pa.Table | None:
        """Return the latest decided record of each key, including tombstones; None if there is none."""
        return self._decided.result()

    def has_open(self) -> bool:
        """Return whether a transaction is open or a commit in parts is incomplete."""
        return self._open.result() is not None or bool(self._parts)

    def pending(self, tombstones: Iterable[pa.Table]) -> pa.Table | None:
        """Return the commits that may still take effect or that have to be repaired; None if there are none.

        These are the newest open commit of each key and producer, unless a tombstone of the key follows it, and the
        parts of incomplete commits, unless a decided record of their key follows them.

        Args:
            tombstones: All tombstones, with the columns of KEY, log_partition and log_offset.
        """
        newest_tombstones = Latest()
        for batch in tombstones:
            newest_tombstones.add(self.complete_only(batch))
        parts = pa.concat_tables(self._parts, promote_options="default") if self._parts else None
        pending = [
            _not_followed(self._open.result(), newest_tombstones.result()),
            _not_followed(parts, self._decided.result()),
        ]
        tables = [rows for rows in pending if rows is not None and rows.num_rows]
        return pa.concat_tables(tables, promote_options="default") if tables else None


def _is_transactional(records: pa.Table) -> pa.ChunkedArray:
    return pc.and_(pc.equal(records["kind"], "commit"), pc.is_valid(records["producer_id"]))


def _not_followed(pending: pa.Table | None, decided: pa.Table | None) -> pa.Table | None:
    """Return the rows of `pending` that no row of `decided` with the same key follows in the log."""
    if pending is None or decided is None:
        return pending
    keys = decided.select(KEY).append_column("position", positions(decided))
    newest = keys.group_by(KEY).aggregate([("position", "max")])
    numbered = pending.select(list(KEY)).append_column("row", pa.array(np.arange(pending.num_rows)))
    joined = numbered.join(newest, list(KEY), join_type="left outer").sort_by("row")
    followed = pc.fill_null(pc.greater(joined["position_max"], positions(pending)), fill_value=False)
    return pending.filter(pc.invert(followed))
