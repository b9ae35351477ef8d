"""Pages of the commits of one offset, which cost the same however far from the newest commit they are."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.queries.exploring.keys import Key
from offsetlake.queries.questions import history, quoted

EVENTS = ("commit", "reset_back", "tombstone")
_FIRST_CONTEXT = 100


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
        """The SQL condition for the period, on columns of `offset_commits` and of `questions.history`."""
        bounds = [f"log_timestamp >= {self.since_ms}"] if self.since_ms is not None else []
        bounds += [f"log_timestamp <= {self.until_ms}"] if self.until_ms is not None else []
        return " AND ".join(bounds) or "true"

    @property
    def rows(self) -> str:
        """The SQL condition for event and author, on columns of `questions.history`."""
        conditions = [f"event = {quoted(self.event)}"] if self.event else []
        if self.who:
            part = quoted(self.who.lower())
            columns = ("principal", "client_id")
            conditions.append(f"({' OR '.join(f'strpos(lower({name}), {part}) > 0' for name in columns)})")
        return " AND ".join(conditions) or "true"


def parse_position(text: str) -> tuple[int, int]:
    """Return log partition and log offset of a position such as `9:1234`; raise BadRequest for other texts."""
    partition, colon, offset = text.partition(":")
    if not (colon and partition.isdecimal() and offset.isdecimal() and text.isascii()) or len(text) > 30:
        raise BadRequest(f"Invalid log position {text!r}: expected LOG_PARTITION:LOG_OFFSET, such as 9:1234.")
    return int(partition), int(offset)


def commits_page(lake: Lake, key: Key, before: str, filters: Filters, limit: int) -> tuple[pa.Table, bool]:
    """Return at most `limit` rows of `questions.history` in its order, and whether more follow.

    `before` is the log position of the last row of the preceding page; empty for the first page. Without a filter by
    event or author, only the records of the page and some before it are read; with one, all of the period.
    """
    conditions = [filters.period]
    if before:
        partition, offset = parse_position(before)
        conditions.append(f"(log_partition > {partition} OR (log_partition = {partition} AND log_offset < {offset}))")
    topic, number = key.topic or "", key.partition or 0
    where = " AND ".join(conditions)
    if filters.rows != "true":
        rows = history(lake, key.group_id, topic, number, limit + 1, rows=f"{where} AND {filters.rows}")
        return rows.slice(0, limit), rows.num_rows > limit
    positions = _positions(lake, key, where, limit + 1)
    shown = positions.slice(0, limit)
    parts = [
        _with_values_before(lake, key, partition, shown.filter(pc.equal(shown["log_partition"], partition)))
        for partition in pc.unique(shown["log_partition"]).to_pylist()
    ]
    rows = pa.concat_tables(parts) if parts else history(lake, key.group_id, topic, number, 0)
    return rows, positions.num_rows > limit


def _positions(lake: Lake, key: Key, where: str, limit: int) -> pa.Table:
    """Return log partition and log offset of records of a key, in the order of `questions.history`."""
    sql = f"SELECT log_partition, log_offset FROM offset_commits WHERE {key.condition} AND {where}"  # noqa: S608
    order = f"ORDER BY log_partition, log_offset DESC LIMIT {limit}"
    return key.engine(lake, [], ["offset_commits"]).query(f"{sql} {order}")


def _with_values_before(lake: Lake, key: Key, partition: int, shown: pa.Table) -> pa.Table:
    """Return the rows of `questions.history` for some records of a log partition.

    The value before a record is that of the highest log offset that had taken effect, so records before the first one
    whose preceding value is known do not matter. Open transactions and incomplete commits can precede that one.
    """
    last, first = shown["log_offset"][0].as_py(), shown["log_offset"][-1].as_py()
    context, is_complete = _FIRST_CONTEXT, False
    while True:
        earlier = f"log_partition = {partition} AND log_offset < {first}"
        positions = _positions(lake, key, earlier, context)["log_offset"]
        lowest, is_complete = (positions[-1].as_py(), len(positions) < context) if len(positions) else (first, True)
        span = f"log_partition = {partition} AND log_offset BETWEEN {lowest} AND {last}"
        wanted = f"log_partition = {partition} AND log_offset BETWEEN {first} AND {last}"
        rows = history(lake, key.group_id, key.topic or "", key.partition or 0, None, span, wanted)
        if is_complete or rows["previous_offset"][-1].is_valid:
            return rows.filter(pc.is_in(rows["log_offset"], shown["log_offset"].combine_chunks()))
        context *= 16
