"""Offsets as they were before a record of the log, by its position: records with equal timestamps are told apart."""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.lake.definitions import definition
from offsetlake.lake.files import table_schema
from offsetlake.lake.history.history_files import History, deciding_rows
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import quoted
from offsetlake.queries.history.as_of import check_known
from offsetlake.queries.history.reduction import COMMIT_TABLES, REDUCED_COLUMNS, commits_in_force
from offsetlake.rules.reduction import KEY, PART, Reduction

_MAX_OFFSET = 2**44
_MAX_PARTITION = 2**31 - 1


class LogPosition(NamedTuple):
    """The place of a record: its log partition, and its log offset there."""

    log_partition: int
    log_offset: int

    def __str__(self) -> str:
        """Return the position as `parse_position` reads it."""
        return f"{self.log_partition}:{self.log_offset}"


def parse_position(text: str) -> LogPosition:
    """Return a position such as `9:1234`; raise BadRequest for other texts."""
    partition, colon, offset = text.partition(":")
    if not (colon and partition.isdecimal() and offset.isdecimal() and text.isascii()) or len(text) > 30:
        raise BadRequest(f"Invalid log position {text!r}: expected LOG_PARTITION:LOG_OFFSET, such as 9:1234.")
    return LogPosition(min(int(partition), _MAX_PARTITION), min(int(offset), _MAX_OFFSET))


def offsets_before(lake: Lake, position: LogPosition, group_id: str, topic: str | None = None) -> pa.Table:
    """Return the rows of `offsets` of a group as they were before a record, in the order of their keys.

    These are the offsets that a broker would have served that had read the log partition up to the position, without
    the record there. `topic` limits the rows. Raises BadRequest for a position before history.
    """
    partition, before = position
    of_group = f"group_id = {quoted(group_id)} AND log_partition = {partition}"
    bounds = lake.query(
        f"SELECT max(CASE WHEN log_offset < {before} THEN ingest_run END) AS run, "  # noqa: S608
        f"min(CASE WHEN log_offset >= {before} THEN log_timestamp END) AS time FROM offset_commits WHERE {of_group}",
        "offset_commits",
    ).to_pylist()[0]
    if bounds["time"] is not None:
        check_known(lake, bounds["time"])
    earlier = pc.field("log_offset") < before
    markers, parts = deciding_rows(History.open(lake, COMMIT_TABLES), [partition], PART, earlier)
    reduction, columns = Reduction(markers, parts), definition("offsets").column_names
    # What an earlier run read was superseded before the position, too.
    where = f"{of_group} AND log_offset < {before} AND (NOT superseded OR ingest_run >= {bounds['run'] or 0})"
    where += "" if topic is None else f" AND topic = {quoted(topic)}"
    names = ", ".join(dict.fromkeys((*columns, *REDUCED_COLUMNS)))
    sql = f"SELECT {names} FROM offset_commits WHERE {where}"  # noqa: S608
    for batch in lake.engine(["offset_commits"], {}).stream(sql):
        reduction.add(pa.Table.from_batches([batch]))
    rows = commits_in_force(reduction).select(columns).cast(table_schema("offsets").empty_table().schema)
    return rows.sort_by([(name, "ascending") for name in KEY])


def instant_before(lake: Lake, position: LogPosition, group_id: str, appended_ms: int) -> int | None:
    """Return the instant just before a record that was appended at `appended_ms`, in ms since the epoch.

    None if the offsets of the group as of this instant are not certainly those from before the record: records of the
    group or markers before it are not older, or some after it are.
    """
    instant = appended_ms - 1
    every = (
        f"SELECT log_offset, log_timestamp FROM offset_commits "  # noqa: S608
        f"WHERE group_id = {quoted(group_id)} AND log_partition = {position.log_partition} UNION ALL "
        f"SELECT log_offset, log_timestamp FROM transaction_markers WHERE log_partition = {position.log_partition}"
    )
    differs = f"(log_offset < {position.log_offset}) <> (log_timestamp IS NULL OR log_timestamp <= {instant})"
    sql = f"SELECT 1 FROM ({every}) WHERE {differs} LIMIT 1"  # noqa: S608
    return None if lake.query(sql, "offset_commits", "transaction_markers").num_rows else instant
