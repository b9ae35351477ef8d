"""Reads the table `log_ends`: the log end offsets of partitions at an ingest, and all that were observed up to it.

The table contains changes. An ingest that reads log end offsets writes a row without a topic, and a row for each
partition whose offsets differ from those of its newest row; the offsets are null if the cluster no longer returned the
partition. A partition without a row of that ingest is unchanged. Some ingests write a complete record instead, which
has a row for every partition; `complete_run` is the newest complete record, so that the offsets at an ingest are found
in the rows since then, however long the table is.

Before lake version 7, every ingest wrote a complete record, with neither `complete_run` nor a row without a topic.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.files import active_files, table_schema
from offsetlake.lake.history.history_files import file_dataset
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import quoted
from offsetlake.util.row_codes import Ints, order_codes

PARTITION = ("topic", "partition")
_OBSERVED = ("ingest_run", *PARTITION, "end_offset", "asked_timestamp", "first_timestamp")
_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogEndRows:
    """Rows of `log_ends` from a complete record up to an ingest.

    | Field    | Description |
    |----------|-------------|
    | run      | the ingest |
    | first    | the run of the complete record; 0 if the rows are all up to the ingest |
    | asks     | the rows without a topic, in the order of their runs |
    | changes  | the rows of partitions, by partition and run |
    | complete | the runs of all complete records among the rows, in ascending order |
    """

    run: int
    first: int
    asks: pa.Table
    changes: pa.Table
    complete: Ints

    def latest(self) -> pa.Table:
        """Return the newest row of each partition; its offsets are null if the partition no longer existed."""
        return self.changes.filter(pa.array(_is_last(order_codes(self.changes, PARTITION))))

    def observed(self, columns: Sequence[str] = _OBSERVED, *, every: bool = False) -> pa.Table:
        """Return log end offsets as the ingests observed them, one row per ingest and partition.

        Of successive observations without a change only the first and the last, which determine every interpolation
        between them, unless `every` is set. The columns are some of the table `log_ends`, by default these:

        | Column | Type | Description |
        |---|---|---|
        | ingest_run | bigint | The ingest. |
        | topic, partition | string, int | The partition. |
        | end_offset | bigint | Its log end offset. |
        | asked_timestamp | bigint | When the cluster returned it, in ms since the epoch. |
        | first_timestamp | bigint | When the cluster first returned one; null before lake version 7. |
        """
        runs = self.changes["ingest_run"].to_numpy()
        ask_runs = self.asks["ingest_run"].to_numpy()
        first = np.searchsorted(ask_runs, runs, side="right")
        stop = np.searchsorted(ask_runs, self._valid_until(runs), side="left")
        known = pc.is_valid(self.changes["end_offset"])
        unchanged = np.where(known.to_numpy(), np.maximum(stop - first, 0), 0)
        if not every:
            first, unchanged = np.maximum(first, stop - 1), np.minimum(unchanged, 1)
        rows = np.repeat(np.arange(len(runs)), unchanged)
        asks = first[rows] + np.arange(len(rows)) - np.repeat(np.cumsum(unchanged) - unchanged, unchanged)
        repeated = self.changes.take(rows)
        for name in ("ingest_run", "asked_timestamp"):
            index = repeated.schema.get_field_index(name)
            values = self.asks[name].take(pa.array(asks, pa.int64()))
            repeated = repeated.set_column(index, repeated.schema.field(index), values)
        return pa.concat_tables([self.changes.filter(known).select(columns), repeated.select(columns)])

    def _valid_until(self, runs: Ints) -> Ints:
        """Return the run, exclusive, up to which each change is valid: a later row, or a complete record."""
        after = self.run + 1
        following = np.where(_is_last(order_codes(self.changes, PARTITION)), after, np.roll(runs, -1))
        next_complete = np.append(self.complete, after)[np.searchsorted(self.complete, runs, side="right")]
        until: Ints = np.minimum(following, next_complete)
        return until


def _is_last(codes: Ints) -> npt.NDArray[np.bool_]:
    """Return which elements are the last of a run of equal elements."""
    last = np.ones(len(codes), np.bool_)
    last[:-1] = codes[1:] != codes[:-1]
    return last


def newest_asked(lake: Lake, until: int = _MAX) -> int | None:
    """Return the newest ingest run that recorded log end offsets, by the instant `until` (ms) if given, or None."""
    return _newest(lake, "asked_timestamp", until)


def newest_asked_through(lake: Lake, run: int) -> int | None:
    """Return the newest ingest that recorded log end offsets, up to the ingest `run`, or None."""
    return _newest(lake, "ingest_run", run)


def _newest(lake: Lake, column: str, limit: int) -> int | None:
    """Return the newest ingest of the rows whose value of a column is at most the limit, from as few files as needed.

    No file is read if the largest value of each is within the limit. A file whose smallest value is within the limit
    has such a row, and this is of its first ingest or a later one.
    """
    files = active_files(lake, "log_ends")
    largest = [(file.get(f"max.{column}"), file.get("max.ingest_run")) for file in files]
    within = [run for value, run in largest if value is not None and run is not None and value <= limit]
    if len(within) == len(files):
        return max(within, default=None)
    bounds = ((file.get(f"min.{column}"), file.get("min.ingest_run") or 0) for file in files)
    first = max((run for smallest, run in bounds if smallest is not None and smallest <= limit), default=0)
    rows = _rows(lake, ["ingest_run"], first, where=pc.field(column) <= limit)
    run: int | None = pc.max(rows["ingest_run"]).as_py()
    return run


def rows_until(lake: Lake, run: int, through: int, topics: Collection[str] | None = None) -> LogEndRows:
    """Return the rows up to the ingest `through`, from the newest complete record that the ingest `run` built on.

    `run` 0 means all rows; `topics` limits the rows of partitions.
    """
    first = _complete_run(lake, run) if run else 0
    rows = _rows(lake, None, first, through) if topics is None else _rows_of_topics(lake, first, through, topics)
    is_ask = pc.is_null(rows["topic"])
    changes = rows.filter(pc.invert(is_ask))
    changes = changes.sort_by([(name, "ascending") for name in (*PARTITION, "ingest_run")])
    complete = pc.unique(pc.coalesce(rows["complete_run"], rows["ingest_run"])).to_numpy()
    return LogEndRows(through, first, rows.filter(is_ask).sort_by("ingest_run"), changes, np.sort(complete))


def ends_asked_by(lake: Lake, run: int) -> pa.Table:
    """Return the offsets that an ingest recorded or found unchanged: rows of `log_ends`, one per existing partition."""
    rows = rows_until(lake, run, run)
    latest = rows.latest()
    latest = latest.filter(pc.is_valid(latest["end_offset"]))
    if not rows.asks.num_rows:
        return latest
    asked = pa.scalar(rows.asks["asked_timestamp"][-1].as_py(), pa.int64())
    asked = pc.if_else(pc.equal(latest["ingest_run"], run), latest["asked_timestamp"], asked)
    return latest.set_column(latest.column_names.index("asked_timestamp"), "asked_timestamp", asked)


def newest_ends(lake: Lake) -> pa.Table:
    """Return the rows of `log_ends` with the newest offsets of each existing partition; empty if none are recorded."""
    return ends_asked_by(lake, newest_asked(lake) or 0)


def first_timestamps(lake: Lake) -> dict[tuple[str, int], int]:
    """Return when the log end offset of each partition was first recorded, by topic and partition; reads all rows."""
    rows = _rows(lake, [*PARTITION, "asked_timestamp"], where=pc.field("topic").is_valid())
    firsts = rows.group_by(PARTITION).aggregate([("asked_timestamp", "min")]).to_pylist()
    return {(row["topic"], row["partition"]): row["asked_timestamp_min"] for row in firsts}


def _rows_of_topics(lake: Lake, first: int, last: int, topics: Collection[str]) -> pa.Table:
    """Return the rows of some ingests without a topic, and those of some topics.

    The engine compares texts of most rows that it omits in a third of the time that a dataset of Arrow takes.
    """
    known, schema = lake.columns("log_ends"), table_schema("log_ends")
    columns = ", ".join(name if name in known else f"NULL AS {name}" for name in schema.names)
    named = ", ".join(map(quoted, sorted(topics))) or "NULL"
    where = f"ingest_run BETWEEN {first} AND {last} AND (topic IS NULL OR topic IN ({named}))"
    return lake.query(f"SELECT {columns} FROM log_ends WHERE {where}", "log_ends").cast(schema)  # noqa: S608


def _complete_run(lake: Lake, run: int) -> int:
    found = pc.max(_rows(lake, ["complete_run"], run, run)["complete_run"]).as_py()
    return run if found is None else int(found)


def _rows(
    lake: Lake,
    columns: list[str] | None,
    first: int = 0,
    last: int = _MAX,
    where: pc.Expression | None = None,
) -> pa.Table:
    """Return columns (None: all) of the rows of some ingests, from the files that can contain them.

    Columns that a lake lacks because it is not upgraded yet are null.
    """
    files = active_files(lake, "log_ends")
    paths = [
        file["path"]
        for file in files
        if (file.get("min.ingest_run") or 0) <= last and first <= (file.get("max.ingest_run") or _MAX)
    ]
    chosen = (pc.field("ingest_run") >= first) & (pc.field("ingest_run") <= last)
    return file_dataset(lake, "log_ends", paths).to_table(columns, filter=chosen if where is None else chosen & where)
