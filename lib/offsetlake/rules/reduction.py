"""How history reduces to the latest decided commit of each key: a plain maximum of the log offset.

A record is decided when nothing can change what it means any more: a plain commit or a tombstone at once, a
transactional commit by its producer's next marker, a part of a commit in parts when the commit is complete. The decided
record of a key with the highest log offset is what a broker serves after it has read the same log (Kafka's
`OffsetMetadataManager.replay`), whatever the order in which transactions ended. All that bears on a group stands in one
log partition, so log partitions reduce side by side.
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

_PARTITION_BITS = 44  # room for log offsets below 2^44 and log partitions below 2^19
_ROWS_WAITING = 1 << 20  # rows kept before they are reduced: what bounds memory, with the number of keys


def positions(records: pa.Table) -> pa.ChunkedArray:
    """One number a record that orders the log partition it is in. Columns: log_partition, log_offset."""
    return pc.add(pc.shift_left(records["log_partition"].cast(pa.int64()), _PARTITION_BITS), records["log_offset"])


def latest(records: pa.Table, key: Iterable[str] = KEY) -> pa.Table:
    """Keep, of each key, the record with the highest log offset.

    Columns in: log_partition, log_offset, those of `key`, any others. Columns out: the same. Where two records of a key
    stand at the same position they are the same record, and both are kept.
    """
    at = positions(records)
    newest = records.select(list(key)).append_column("at", at).group_by(list(key)).aggregate([("at", "max")])["at_max"]
    return records if len(newest) == len(at) else records.filter(pc.is_in(at, value_set=newest))


def merged(offsets: pa.Table, decided: pa.Table) -> pa.Table:
    """Bring decided records into rows of `offsets`: the newer of the two stays, and a tombstone takes its key away.

    `offsets` has one row a key, in the order of KEY; `decided` one record a key, with all columns of `offsets`, and
    kind. Gives the rows of `offsets` to be: those that stay in their order, behind them the new ones.
    """
    keys = offsets.select(KEY)
    codes = order_codes(pa.concat_tables([keys, decided.select(KEY).cast(keys.schema)]), KEY)
    before, now = np.split(codes, [offsets.num_rows])
    at = np.searchsorted(before, now)
    known = at < len(before)
    known[known] = before[at[known]] == now[known]
    newer = np.ones(len(now), np.bool_)
    newer[known] = positions(decided).to_numpy()[known] > positions(offsets).to_numpy()[at[known]]
    stays = np.ones(len(before), np.bool_)
    stays[at[known & newer]] = False
    added = decided.filter(pc.and_(pc.equal(decided["kind"], "commit"), pa.array(newer)))
    return pa.concat_tables([offsets.filter(pa.array(stays)), added.select(offsets.column_names).cast(offsets.schema)])


def outcomes(commits: pa.Table, markers: pa.Table) -> npt.NDArray[np.str_]:
    """Say how the transaction of each commit ended: by the next marker of its producer in its log partition.

    Columns: log_partition, log_offset, producer_id; of markers also marker (COMMIT, ABORT). Gives COMMITTED, ABORTED or
    OPEN for each commit. Matched by producer id alone: a marker's epoch may be one above that of the data (KIP-890).
    """
    names = ("log_offset", "producer_id", "log_partition")
    offset, producer, partition = (
        np.concatenate([commits[name].to_numpy(), markers[name].to_numpy()]) for name in names
    )
    order = np.lexsort((offset, producer, partition))
    is_marker = order >= commits.num_rows
    nowhere = len(order)
    following = np.minimum.accumulate(np.where(is_marker, np.arange(nowhere), nowhere)[::-1])[::-1]
    ended = following < nowhere
    by = order[np.where(ended, following, 0)]
    ended &= (producer[by] == producer[order]) & (partition[by] == partition[order])
    kinds = np.concatenate([np.full(commits.num_rows, OPEN), markers["marker"].to_numpy(zero_copy_only=False)])
    found = np.empty(nowhere, dtype="<U6")
    found[order] = np.where(ended, kinds.astype("<U6")[by], OPEN)
    return found[: commits.num_rows]


def incomplete(parts: pa.Table) -> pa.Array:
    """Give the positions, sorted, of the parts whose commit is not complete: fewer stand there than it has.

    Columns: log_partition, log_offset, commit_id, commit_size; parts in any order. The parts of a commit stand at
    successive log offsets, so a run of successive parts of one id and size holds one commit behind the other, `size`
    parts each, and at its end what is missing parts. Only where such a run ends with the log can the rest still come.
    """
    at = positions(parts).to_numpy()
    order = np.argsort(at, kind="stable")
    at, commit, size = at[order], parts["commit_id"].to_numpy()[order], parts["commit_size"].to_numpy()[order]
    begins = np.ones(len(at), np.bool_)
    begins[1:] = (at[1:] != at[:-1] + 1) | (commit[1:] != commit[:-1]) | (size[1:] != size[:-1])
    first = np.flatnonzero(begins)
    length = np.diff(np.append(first, len(at)))
    whole_until = first + length - length % size[first]
    return pa.array(at[np.arange(len(at)) >= np.repeat(whole_until, length)])


class Latest:
    """Reduces records batch by batch; memory follows the number of keys, not of records."""

    def __init__(self, key: Iterable[str] = KEY) -> None:
        self._key = tuple(key)
        self._parts: list[pa.Table] = []
        self._waiting = 0
        self._reduced = 0

    def add(self, records: pa.Table) -> None:
        """Take in records; every call with the same columns."""
        if records.num_rows:
            self._parts.append(records)
            self._waiting += records.num_rows
            if self._waiting > max(_ROWS_WAITING, 2 * self._reduced):
                self._parts = [self.result()]
                self._waiting = self._reduced = self._parts[0].num_rows

    def result(self) -> pa.Table | None:
        """Give the newest record of each key so far, or None if none came."""
        return latest(pa.concat_tables(self._parts, promote_options="default"), self._key) if self._parts else None


class Reduction:
    """History in, decided and pending commits out, for any set of whole log partitions.

    Give all markers and the places of all parts first (as `incomplete` wants them: no part can be judged by what is
    left of its commit when keys are reduced or chosen), then the records, in batches and any order.
    """

    def __init__(self, markers: pa.Table, parts: pa.Table) -> None:
        self._markers = markers
        self._incomplete = incomplete(parts)
        self._decided = Latest()
        self._open = Latest((*KEY, "producer_id"))
        self._parts: list[pa.Table] = []

    def _is_left_out(self, records: pa.Table) -> pa.ChunkedArray:
        return pc.is_in(positions(records), value_set=self._incomplete)

    def counting(self, records: pa.Table) -> pa.Table:
        """Leave out the parts of commits that are not complete. Columns: log_partition, log_offset, any others."""
        return records.filter(pc.invert(self._is_left_out(records))) if len(self._incomplete) else records

    def all_decided(self, records: pa.Table) -> pa.Table:
        """Keep those of some rows of `offset_commits` that are decided and count, tombstones included."""
        records = self.counting(records)
        waits = _wait_for_a_marker(records)
        transactional = records.filter(waits)
        if not transactional.num_rows:
            return records
        committed = pc.equal(pa.array(outcomes(transactional, self._markers)), COMMITTED)
        return pa.concat_tables([records.filter(pc.invert(waits)), transactional.filter(committed)])

    def add(self, records: pa.Table) -> None:
        """Take in rows of `offset_commits`, or of `pending_offsets` with their `kind`."""
        if len(self._incomplete):
            parts = records.filter(self._is_left_out(records))
            if parts.num_rows:
                self._parts.append(parts)
                records = self.counting(records)
        waits = _wait_for_a_marker(records)
        transactional = records.filter(waits)
        self._decided.add(records.filter(pc.invert(waits)) if transactional.num_rows else records)
        if transactional.num_rows:
            ended = pa.array(outcomes(transactional, self._markers))
            self._decided.add(transactional.filter(pc.equal(ended, COMMITTED)))
            self._open.add(transactional.filter(pc.equal(ended, OPEN)))

    def decided(self) -> pa.Table | None:
        """Give the latest decided record of each key, tombstones included; None if there is none."""
        return self._decided.result()

    def has_open(self) -> bool:
        """Tell whether any transaction is open, or any commit in parts not complete."""
        return self._open.result() is not None or bool(self._parts)

    def pending(self, tombstones: Iterable[pa.Table]) -> pa.Table | None:
        """Give what does not count yet and still can, or has to be repaired; None if there is nothing.

        Of each key and producer the newest open commit that no tombstone of the key follows, and the parts of commits
        not complete that no decided record of their key follows. `tombstones`, all there are, have the columns of KEY,
        log_partition and log_offset.
        """
        removal = Latest()
        for batch in tombstones:
            removal.add(self.counting(batch))
        parts = pa.concat_tables(self._parts, promote_options="default") if self._parts else None
        left = [_not_followed(self._open.result(), removal.result()), _not_followed(parts, self._decided.result())]
        found = [rows for rows in left if rows is not None and rows.num_rows]
        return pa.concat_tables(found, promote_options="default") if found else None


def _wait_for_a_marker(records: pa.Table) -> pa.ChunkedArray:
    return pc.and_(pc.equal(records["kind"], "commit"), pc.is_valid(records["producer_id"]))


def _not_followed(waiting: pa.Table | None, by: pa.Table | None) -> pa.Table | None:
    """Keep the rows behind which no row of `by` of the same key stands."""
    if waiting is None or by is None:
        return waiting
    at = by.select(list(KEY)).append_column("at", positions(by))
    last = at.group_by(list(KEY)).aggregate([("at", "max")])
    numbered = waiting.select(list(KEY)).append_column("row", pa.array(np.arange(waiting.num_rows)))
    joined = numbered.join(last, list(KEY), join_type="left outer").sort_by("row")
    followed = pc.fill_null(pc.greater(joined["at_max"], positions(waiting)), fill_value=False)
    return waiting.filter(pc.invert(followed))
