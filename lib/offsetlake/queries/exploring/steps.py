"""The steps of one offset as arrays, by the rules of the view `commit_steps`: millions of commits in little memory."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.history_files import History
from offsetlake.lake.lake import Lake
from offsetlake.queries.exploring.keys import Key
from offsetlake.queries.history_reduction import COMMIT_TABLES, deciding_rows
from offsetlake.queries.questions import log_partitions_of
from offsetlake.rules.reduction import COMMITTED, PART, next_markers, positions
from offsetlake.util.row_codes import Ints

NONE = -(2**63)
"""The value of a deleted or unknown offset, and of an unknown time."""

_COLUMNS = ["log_partition", "log_offset", "log_timestamp", "kind", "committed_offset", "producer_id", *PART[2:]]
_MIN_AHEAD = 3

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of an offset in the order of the log; NONE stands for null. They take 50 bytes each.

    | Field           | Description |
    |-----------------|-------------|
    | log_partition, log_offset | where the record is |
    | time            | effective_timestamp, in ms since the epoch |
    | new, old        | the offset in force afterwards and before |
    | old_log_offset  | log offset of the preceding step |
    | is_transactional | whether it is a commit of a transaction |
    | skips_ahead     | whether the increase is larger than all others together, of which there are at least two |
    """

    log_partition: Ints
    log_offset: Ints
    time: Ints
    new: Ints
    old: Ints
    old_log_offset: Ints
    is_transactional: Flags
    skips_ahead: Flags

    def index(self, log_partition: int, log_offset: int) -> int | None:
        """Return the index of the step of a record; None if the record never took effect."""
        found = np.flatnonzero((self.log_partition == log_partition) & (self.log_offset == log_offset))
        return int(found[0]) if len(found) else None

    def take(self, indexes: Ints) -> pa.Table:
        """Return some steps: effective_timestamp, old_offset, new_offset, log_partition, log_offset."""
        columns = {"effective_timestamp": self.time, "old_offset": self.old, "new_offset": self.new}
        chosen = {name: column[indexes] for name, column in columns.items()}
        places = {"log_partition": self.log_partition[indexes], "log_offset": self.log_offset[indexes]}
        return pa.table({name: pa.array(rows, mask=rows == NONE) for name, rows in chosen.items()} | places)


def key_steps(lake: Lake, key: Key) -> Steps:
    """Return the steps of an offset; `key` has a topic and a partition."""
    # The engine needs a tenth of the memory of a dataset of Arrow, and a third of the time, to filter by key.
    sql = f"SELECT {', '.join(_COLUMNS)} FROM offset_commits WHERE {key.condition}"  # noqa: S608
    placed = [*_placed(lake, key, key.engine(lake, [], ["offset_commits"]).stream(sql))]
    names = ("log_partition", "log_offset", "effective", "time", "value", "is_transactional")
    partition, offset, effective, time, new, is_transactional = (
        np.concatenate([np.empty(0, np.int64), *(part.pop(name) for part in placed)]) for name in names
    )
    order = np.lexsort((-offset, effective))
    order = order[np.maximum.accumulate(offset[order]) == offset[order]]
    partition, offset, time, new = (column[order] for column in (partition, offset, time, new))
    old, old_offset = (np.concatenate([[NONE], column])[:-1] for column in (new, offset))
    is_ahead = (new > old) & (old != NONE)
    ahead = np.where(is_ahead, new.astype(float) - old.astype(float), 0.0)
    skips = is_ahead & (ahead > ahead.sum() - ahead) & (is_ahead.sum() >= _MIN_AHEAD)
    steps = (partition, offset, time, new, old, old_offset, is_transactional[order].astype(bool), skips)
    if not np.any(np.diff(partition)):
        return Steps(*steps)
    in_log = np.lexsort((offset, partition))
    return Steps(*(column[in_log] for column in steps))


def _placed(lake: Lake, key: Key, records: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Yield the records that took effect, batch by batch, and when."""
    markers, parts = None, None
    for record_batch in records:
        batch = pa.Table.from_batches([record_batch])
        columns = {
            "log_partition": batch["log_partition"].to_numpy().astype(np.int64),
            "log_offset": batch["log_offset"].to_numpy(),
            "time": _filled(batch["log_timestamp"]),
            "value": _filled(batch["committed_offset"]),
        }
        effective = columns["log_offset"].copy()
        is_commit = pc.equal(batch["kind"], "commit").to_numpy()
        is_transactional = batch["producer_id"].is_valid().to_numpy() & is_commit
        is_part = batch["commit_id"].is_valid().to_numpy() & ~batch["producer_id"].is_valid().to_numpy()
        if markers is None and (is_transactional.any() or is_part.any()):
            history, partitions = History.open(lake, COMMIT_TABLES), log_partitions_of(lake, [key.group_id])
            markers, parts = deciding_rows(history, partitions, None, [*PART, "log_timestamp"])
        if is_transactional.any():
            at, time = _markers(batch.filter(pa.array(is_transactional)), markers)
            effective[is_transactional] = at
            columns["time"][is_transactional] = np.maximum(columns["time"][is_transactional], time)
        if is_part.any():
            effective[is_part], columns["time"][is_part] = _completions(batch.filter(pa.array(is_part)), parts)
        decided = effective != NONE
        columns |= {"effective": effective, "is_transactional": is_transactional.astype(np.int64)}
        yield {name: column[decided] for name, column in columns.items()}


def _markers(commits: pa.Table, markers: pa.Table) -> tuple[Ints, Ints]:
    """Return log offset and time of the marker that committed each commit; the log offset is NONE without one."""
    rows = next_markers(commits, markers)
    is_committed = pc.equal(markers["marker"], COMMITTED).to_numpy()
    ended = (rows >= 0) & np.append(is_committed, [False])[rows]
    offset, time = (np.append(_filled(markers[name]), [NONE])[rows] for name in ("log_offset", "log_timestamp"))
    return np.where(ended, offset, NONE), time


def _completions(records: pa.Table, parts: pa.Table) -> tuple[Ints, Ints]:
    """Return log offset and time at which the commits in parts of some records were complete; NONE if they are not.

    The parts of a commit have successive log offsets; a run of them contains complete commits, and at its end possibly
    an incomplete one.
    """
    position = positions(parts).to_numpy()
    order = np.argsort(position, kind="stable")
    position, time = position[order], _filled(parts["log_timestamp"])[order]
    offset, commit, size = (parts[name].to_numpy()[order] for name in PART[1:])
    starts = np.ones(len(position), np.bool_)
    starts[1:] = (position[1:] != position[:-1] + 1) | (commit[1:] != commit[:-1]) | (size[1:] != size[:-1])
    first = np.maximum.accumulate(np.where(starts, np.arange(len(starts)), 0))
    begin = np.arange(len(starts)) - (np.arange(len(starts)) - first) % size
    end = begin + size - 1
    run_end = np.append(np.flatnonzero(starts)[1:], len(starts))[np.cumsum(starts) - 1]
    latest = np.maximum.reduceat(time, np.unique(begin))[np.unique(begin, return_inverse=True)[1]]
    is_complete = end < run_end
    at = np.where(is_complete, offset + (end - np.arange(len(starts))), NONE)
    rows = np.searchsorted(position, positions(records).to_numpy())
    return at[rows], latest[rows]


def _filled(column: pa.ChunkedArray) -> Ints:
    return column.cast(pa.int64()).fill_null(NONE).to_numpy().copy()  # type: ignore[no-any-return]
