"""The clock of the log: when history begins and ends, and which records have wrong timestamps."""

import pyarrow as pa

from offsetlake.lake.history.history_cuts import Scope, last_cut
from offsetlake.lake.history.history_files import TIMED_TABLES, smallest
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.statements import statement
from offsetlake.util.times import MAX_TIMESTAMP_MS, to_iso


def first_instant(lake: Lake) -> int | None:
    """Return from which instant on history is complete, in ms since the epoch; None if no record has a timestamp.

    This is the time of the oldest record or, if `maintain` has dropped history, of the newest dropped record. Times
    before the epoch do not count, unless all are.
    """
    cut = last_cut(lake, "history")
    if cut and cut.begins_timestamp is not None:
        return cut.begins_timestamp
    found = [smallest(lake, table, "log_timestamp") for table in TIMED_TABLES]
    first = min((timestamp for timestamp in found if timestamp is not None), default=None)
    if first is None or first >= 0:
        return first
    right = " UNION ALL ".join(f"SELECT log_timestamp FROM {table} WHERE log_timestamp >= 0" for table in TIMED_TABLES)  # noqa: S608
    rows = lake.query(f"SELECT min(log_timestamp) AS least FROM ({right})", *TIMED_TABLES)  # noqa: S608
    least: int | None = rows["least"][0].as_py()
    return first if least is None else least


def newest_instant(lake: Lake) -> int | None:
    """Return the clock of the log (the view `log_clock`) in ms since the epoch; None if no record has a timestamp."""
    newest: int | None = lake.query("SELECT clock_timestamp FROM log_clock", "log_clock")["clock_timestamp"][0].as_py()
    return newest


def wrong_clocks(lake: Lake) -> pa.Table:
    """Return the groups with records whose timestamps are wrong: after the clock of the log, or before the epoch.

    Columns: group_id, records (the number of these), least_timestamp and greatest_timestamp in ms since the epoch, and
    matches, the number of all such groups; the latest first.
    """
    tables = ("offset_commits", "group_records", "share_state_records")
    return lake.query(statement("wrong_clocks", clock=clock_of_log(lake)), *tables)


def clock_of_log(lake: Lake) -> int:
    """Return `newest_instant`, or the greatest timestamp if no record has one."""
    clock = newest_instant(lake)
    return MAX_TIMESTAMP_MS if clock is None else clock


def what_was_dropped(lake: Lake, scope: Scope) -> str:
    """Return a sentence about the history that `maintain` has dropped; empty if it has dropped none."""
    cut = last_cut(lake, scope)
    if cut is None:
        return ""
    begins = "" if cut.begins_timestamp is None else f" at {to_iso(cut.begins_timestamp)}"
    if scope == "audit_events":
        return f"Audit events begin{begins}: `offsetlake maintain` has dropped earlier ones ([audit_events] keep)."
    return (
        f"History begins{begins}: of the records before, `offsetlake maintain` has kept only those that decide the "
        "offsets and groups since ([history] keep)."
    )
