"""Pages of the commits of one offset, which cost the same however far from the newest commit they are."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.files import active_files
from offsetlake.lake.lake import Lake
from offsetlake.queries.exploring.keys import Key
from offsetlake.queries.history.before import parse_position
from offsetlake.queries.history.key_history import KeyHistory
from offsetlake.queries.questions import key_history

MAX_KEPT = 100_000
"""The number of rows, which take about 5 MB, that `matching` returns at most."""

_MAX_OFFSET = 2**44
_FIRST_CONTEXT = 20  # records before a page, among which is the one whose offset was in force before it
_FIRST_SPAN = 1 << 16  # log offsets that are searched for the records of a page at first
_GROWTH = 4


@dataclass(frozen=True, slots=True)
class Filters:
    """Which commits of an offset a page lists.

    | Field    | Description |
    |----------|-------------|
    | event    | one of EVENTS; empty for all |
    | who      | part of the principal or of the client id; empty for all |
    | since_ms, until_ms | the period in which the record was appended; None for no limit |
    """

    event: str = ""
    who: str = ""
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def period(self) -> str:
        """The SQL condition for the period, on columns of `offset_commits`; empty for all of history."""
        bounds = [f"log_timestamp >= {self.since_ms}"] if self.since_ms is not None else []
        bounds += [f"log_timestamp <= {self.until_ms}"] if self.until_ms is not None else []
        return " AND ".join(bounds)

    @property
    def are_of_rows(self) -> bool:
        """Whether they include other properties of the rows than the period."""
        return bool(self.event or self.who)

    def chosen(self, source: KeyHistory, rows: pa.Table) -> pa.Table:
        """Return those rows of `KeyHistory.described` that the filters choose."""
        if self.event:
            rows = rows.filter(pc.equal(rows["event"], self.event))
        if self.since_ms is not None:
            rows = rows.filter(pc.greater_equal(rows["log_timestamp"], self.since_ms))
        if self.until_ms is not None:
            rows = rows.filter(pc.less_equal(rows["log_timestamp"], self.until_ms))
        if self.who and rows.num_rows:
            authors = source.with_authors(rows.select(["log_partition", "log_offset"]))
            names = (pc.utf8_lower(authors[name]) for name in ("principal", "client_id"))
            rows = rows.filter(pc.or_kleene(*(pc.match_substring(name, self.who.lower()) for name in names)))
        return rows


def matching(lake: Lake, key: Key, filters: Filters) -> pa.Table | None:
    """Return what all pages of `commits_page` consist of, so that each is computed without reading their records.

    None if these are more than MAX_KEPT rows: then those of a page are among few records.
    """
    source = _source(lake, key)
    rows = filters.chosen(source, source.described(source.records())[0])
    return rows if rows.num_rows <= MAX_KEPT else None


def commits_page(
    lake: Lake, key: Key, before: str, filters: Filters, limit: int, every: pa.Table | None = None
) -> tuple[pa.Table, bool]:
    """Return at most `limit` rows of `questions.history` in its order, and whether more follow.

    The columns DETAILS are omitted. `before` is the log position of the last row of the preceding page; empty for the
    first page. `every` is what `matching` returned. If it is None, the records of the page and some before it are read;
    that is many records if few of them match.
    """
    source, after = _source(lake, key), parse_position(before) if before else None
    if every is None:
        rows = _next(source, after, filters, limit + 1)
    else:
        rows = every if after is None else every.filter(_are_after(source, every, *after))
    return source.completed(rows.slice(0, limit)), rows.num_rows > limit


def _source(lake: Lake, key: Key) -> KeyHistory:
    return key_history(lake, key.group_id, key.topic or "", key.partition or 0)


def _are_after(source: KeyHistory, rows: pa.Table, partition: int, offset: int) -> pa.ChunkedArray:
    is_earlier = pc.and_(pc.equal(rows["log_partition"], partition), pc.less(rows["log_offset"], offset))
    following = pa.array(source.partitions_after(partition), pa.int32())
    return pc.or_(pc.is_in(rows["log_partition"], following), is_earlier)


def _next(source: KeyHistory, after: tuple[int, int] | None, filters: Filters, limit: int) -> pa.Table:
    """Return the rows that follow a position: at least `limit`, or all."""
    parts, count = list[pa.Table](), 0
    for partition, first, last in _spans(source, after, filters):
        if count >= limit:
            break
        parts.append(_next_in_partition(source, partition, first, last, filters, limit - count))
        count += parts[-1].num_rows
    return pa.concat_tables(parts) if parts else source.described(source.records("false"))[0]


def _spans(source: KeyHistory, after: tuple[int, int] | None, filters: Filters) -> Iterator[tuple[int, int, int]]:
    """Yield log partitions, and the log offsets between which the rows that follow a position are there."""
    if filters.period:
        spans = source.spans(filters.period)
    else:
        spans = [(partition, 0, _last_offset(source.lake, partition)) for partition in source.partitions]
    following = source.partitions if after is None else source.partitions_after(after[0])
    for partition, first, last in spans:
        if partition in following:
            yield partition, first, last
        elif after is not None and partition == after[0]:
            yield partition, first, min(last, after[1] - 1)


def _last_offset(lake: Lake, partition: int) -> int:
    """Return a log offset after which a log partition has no records, by the statistics of files."""
    last = 0
    for file in active_files(lake, "offset_commits"):
        low, high = file.get("min.log_partition"), file.get("max.log_partition")
        if low is None or high is None or low <= partition <= high:
            of_file = file.get("max.log_offset")
            last = max(last, _MAX_OFFSET if of_file is None else of_file)
    return last


def _next_in_partition(
    source: KeyHistory, partition: int, first: int, last: int, filters: Filters, limit: int
) -> pa.Table:
    """Return the rows of a log partition up to a log offset: at least `limit`, or all of those from `first` on.

    Older and older records are read, until a record before the rows had taken effect. Open transactions and incomplete
    commits can precede that one.
    """
    records, below, span, size = [], last + 1, _FIRST_SPAN, limit + _FIRST_CONTEXT
    while True:
        lowest = max(below - span, 0)
        where = f"log_partition = {partition} AND log_offset >= {lowest} AND log_offset < {below}"
        records.append(source.records(where, newest=size))
        below = lowest if records[-1].num_rows < size else pc.min(records[-1]["log_offset"]).as_py()
        rows, certain = source.described(pa.concat_tables(records))
        if below > 0:
            is_done = below <= first and not pc.any(pc.greater_equal(rows["log_offset"][certain:], first)).as_py()
            rows = rows.slice(0, certain)
        chosen = filters.chosen(source, rows)
        if below == 0 or is_done or chosen.num_rows >= limit:
            return chosen
        span, size = span * _GROWTH, size * _GROWTH
