"""Reads the table `log_ends`: the newest ingest that recorded log end offsets, and what it recorded."""

import pyarrow as pa

from offsetlake.lake.lake import Lake


def newest_asked(lake: Lake, until: int | None = None) -> int | None:
    """Return the newest ingest run that recorded log end offsets, by the instant `until` (ms) if given, or None."""
    when = "true" if until is None else f"asked_timestamp <= {until}"
    newest = lake.query(f"SELECT max(ingest_run) AS run FROM log_ends WHERE {when}", "log_ends")  # noqa: S608
    run: int | None = newest["run"][0].as_py()
    return run


def ends_asked_by(lake: Lake, run_id: int) -> pa.Table:
    """Return the rows of `log_ends` that an ingest recorded, one per partition."""
    return lake.query(f"SELECT * FROM log_ends WHERE ingest_run = {run_id}", "log_ends")  # noqa: S608


def newest_ends(lake: Lake) -> pa.Table:
    """Return the rows of `log_ends` of the newest ingest that recorded any; empty if none did."""
    return lake.query("SELECT * FROM log_ends WHERE ingest_run = (SELECT max(ingest_run) FROM log_ends)", "log_ends")


def ends_until(lake: Lake, run_id: int) -> pa.Table:
    """Return the rows of `log_ends` of an ingest and those before it, without start_offset to save memory."""
    columns = "ingest_run, topic, partition, end_offset, asked_timestamp"
    return lake.query(f"SELECT {columns} FROM log_ends WHERE ingest_run <= {run_id}", "log_ends")  # noqa: S608
