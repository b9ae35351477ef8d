"""Names records whose timestamps are wrong, which the ages in all answers ignore."""

from collections.abc import Mapping

from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.select import select_at
from offsetlake.lake.sql.statements import statement
from offsetlake.util.amounts import counted
from offsetlake.util.times import MAX_CLOCK_DIFFERENCE_MS, MAX_TIMESTAMP_MS, MIN_RECORD_TIMESTAMP_MS, to_iso

_SHOWN_RECORDS = 3
_TABLES = ("runs", "offset_commits", "transaction_markers", "group_records", "share_state_records")


def wrong_timestamps(lake: Lake, versions: Mapping[str, int], since: int) -> str:
    """Return a sentence that names records with timestamps that no clock can have shown when they were read.

    Only records of ingest runs after `since` are read, in the tables at these Delta versions. The sentence is empty if
    there are none, or if some tables of history have no version here, because the suites do not check them.
    """
    if not versions.keys() >= {*_TABLES}:
        return ""
    pins = {table: versions[table] for table in _TABLES}
    read = f"job = 'ingest' AND finished_at >= {MIN_RECORD_TIMESTAMP_MS} AND run_id > {since}"
    sql = f"SELECT min(finished_at) AS finished_at FROM runs WHERE {read}"  # noqa: S608
    finished_at = select_at(lake, sql, {"runs": pins["runs"]})["finished_at"][0].as_py()
    least = MAX_TIMESTAMP_MS if finished_at is None else finished_at + MAX_CLOCK_DIFFERENCE_MS
    records = statement("impossible_timestamps", since=since, least=least)
    count = select_at(lake, f"SELECT count(*) AS n FROM ({records})", pins)["n"][0].as_py()  # noqa: S608
    if not count:
        return ""
    first = f"SELECT * FROM ({records}) ORDER BY log_topic, log_partition, log_offset LIMIT {_SHOWN_RECORDS}"  # noqa: S608
    shown = "; ".join(_place(row) for row in select_at(lake, first, pins).to_pylist())
    more = "; ..." if count > _SHOWN_RECORDS else ""
    return (
        f"{counted(count, 'record has a timestamp', 'records have timestamps')} that no clock can have shown when the "
        f"record was read, and that ages ignore: {shown}{more}"
    )


def _place(row: Mapping[str, object]) -> str:
    group = "" if row["group_id"] is None else f" of group {row['group_id']!r}"
    timestamp = to_iso(int(str(row["wrong_timestamp"])))
    return f"{row['log_topic']}-{row['log_partition']} at log offset {row['log_offset']}{group} ({timestamp})"
