"""How many records were appended over the time of the log, with what else happened: for a slider of instants."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.files import active_files
from offsetlake.lake.history.history_files import file_batches, file_dataset
from offsetlake.lake.lake import Lake
from offsetlake.queries.exploring.keys import REBALANCES
from offsetlake.queries.exploring.steps import Flags
from offsetlake.queries.log_clock import first_instant, newest_instant
from offsetlake.util.row_codes import Ints
from offsetlake.util.times import MAX_CLOCK_DIFFERENCE_MS, now_ms

MAX_BINS = 256
KINDS = ("commits", "deletions", "rebalances", "resets", "jobs")
_COUNTED: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    "offset_commits": ("kind", {"commits": ("commit",), "deletions": ("tombstone",)}),
    "group_records": ("record_name", {"rebalances": REBALANCES}),
}
"""By history table, the column and its values that each kind of record has."""

_RESETS = (
    "SELECT runs.finished_at AS at FROM alterations JOIN runs ON runs.run_id = alterations.run_id "
    "WHERE alterations.outcome = 'done'"
)
_END = 2**63 - 1
_JOBS = "SELECT finished_at AS at FROM runs WHERE outcome = 'done'"


@dataclass(frozen=True, slots=True)
class Timeline:
    """Numbers by kind and by bin: bin i begins at `start_ms + i * step_ms`.

    | Kind       | Description |
    |------------|-------------|
    | commits    | commits of offsets |
    | deletions  | tombstones of offsets: expired or deleted |
    | rebalances | new generations or epochs of groups |
    | resets     | offsets set by offsetlake |
    | jobs       | finished runs of offsetlake that did something |

    The first and the last record are at `first_ms` and `last_ms`, in the first and the last bin. Records with wrong
    timestamps (`log_clock.wrong_clocks`) are omitted.
    """

    start_ms: int
    step_ms: int
    counts: Mapping[str, Ints]
    first_ms: int
    last_ms: int


@dataclass(slots=True)
class Timelines:
    """Computes the timeline of a lake again for each state of its tables, from what is new since the last one.

    The bins of each file are kept, because files do not change: at most MAX_BINS numbers by kind and file.
    """

    _step_ms: int = 0
    _bins: dict[tuple[str, str], dict[str, tuple[int, Ints]]] = field(default_factory=dict)

    def timeline(self, lake: Lake) -> Timeline | None:
        """Return the timeline; None if no record of history has a timestamp."""
        files = [(table, file) for table in _COUNTED for file in active_files(lake, table)]
        bounds = [both for table, file in files if (both := _bounds(lake, table, file)) is not None]
        if not bounds:
            return None
        first, last = _right(lake, min(low for low, _ in bounds), max(high for _, high in bounds))
        step = 1
        while last // step - first // step >= MAX_BINS:
            step *= 2
        if step != self._step_ms:
            self._step_ms, self._bins = step, {}
        kept = {}
        for table, file in files:
            key = (table, file["path"])
            kept[key] = self._bins[key] if key in self._bins else _count(lake, table, file["path"], step)
        self._bins = kept
        start = first // step
        counts = {kind: np.zeros(last // step - start + 1, np.int64) for kind in KINDS}
        for of_file in kept.values():
            for kind, (offset, numbers) in of_file.items():
                bins = np.arange(len(numbers)) + offset - start
                is_shown = (bins >= 0) & (bins < len(counts[kind]))
                counts[kind][bins[is_shown]] += numbers[is_shown]
        for kind, numbers in _of_jobs(lake, start, step, len(counts["commits"])):
            counts[kind] += numbers
        return Timeline(start * step, step, counts, first, last)


def _bounds(lake: Lake, table: str, file: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the smallest and largest timestamp in a file, from its statistics if it has any."""
    if file.get("min.log_timestamp") is not None:
        return file["min.log_timestamp"], file["max.log_timestamp"]
    if file["num_records"] is not None and file.get("null_count.log_timestamp") == file["num_records"]:
        return None
    found = pc.min_max(file_dataset(lake, table, [file["path"]]).to_table(["log_timestamp"])["log_timestamp"]).as_py()
    return None if found["min"] is None else (found["min"], found["max"])


def _right(lake: Lake, first: int, last: int) -> tuple[int, int]:
    """Return the first and the last timestamp of some without those that no clock can have shown, unless all are."""
    if first >= 0 and last <= now_ms() + MAX_CLOCK_DIFFERENCE_MS:
        return first, last
    since, clock = first_instant(lake), newest_instant(lake)
    return (first if since is None or since > last else max(first, since)), last if clock is None else min(last, clock)


def _count(lake: Lake, table: str, path: str, step: int) -> dict[str, tuple[int, Ints]]:
    """Return by kind the number of the first bin, and the numbers of records of a file in the bins from there on.

    Records before the epoch and in the future are omitted.
    """
    column, kinds = _COUNTED[table]
    future = now_ms() + MAX_CLOCK_DIFFERENCE_MS
    totals: dict[str, dict[int, int]] = {kind: {} for kind in kinds}
    for batch in file_batches(lake, table, path, ["log_timestamp", column]):
        times = batch["log_timestamp"]
        is_timed = pc.fill_null(pc.and_(pc.greater_equal(times, 0), pc.less_equal(times, future)), fill_value=False)
        bins = times.filter(is_timed).to_numpy() // step
        first = int(bins.min(initial=_END))
        bins -= first
        values = batch[column].filter(is_timed)
        for kind, counted in kinds.items():
            for number, count in enumerate(np.bincount(bins[_are_among(values, counted)]).tolist(), first):
                totals[kind][number] = totals[kind].get(number, 0) + count
    return {kind: _dense(numbers) for kind, numbers in totals.items() if numbers}


def _are_among(values: pa.Array, wanted: Sequence[str]) -> Flags:
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    is_wanted: Flags = np.isin(encoded.dictionary.to_numpy(zero_copy_only=False), wanted)
    flags: Flags = is_wanted[encoded.indices.to_numpy()]
    return flags


def _dense(numbers: Mapping[int, int]) -> tuple[int, Ints]:
    first = min(numbers)
    dense = np.zeros(max(numbers) - first + 1, np.int64)
    for number, count in numbers.items():
        dense[number - first] = count
    return first, dense


def _of_jobs(lake: Lake, start: int, step: int, bins: int) -> Iterator[tuple[str, Ints]]:
    """Yield the numbers by bin of what jobs did, as far as it was in the time of the log."""
    for kind, sql, tables in (("resets", _RESETS, ("alterations", "runs")), ("jobs", _JOBS, ("runs",))):
        places = lake.query(sql, *tables)["at"].drop_null().to_numpy() // step - start
        yield kind, np.bincount(places[(places >= 0) & (places < bins)], minlength=bins)
