"""Table `log_ends`, read: which ingest asked last, and what it was told."""

import pyarrow as pa

from offsetlake.lake.lake import Lake


def newest_asked(lake: Lake, until: int | None = None) -> int | None:
    """Give the newest ingest run that recorded ends, by the instant `until` (ms) if one is given; None: none did."""
    when = "true" if until is None else f"asked_timestamp <= {until}"
    found = lake.query(f"SELECT max(ingest_run) AS run FROM log_ends WHERE {when}", "log_ends")  # noqa: S608
    run: int | None = found["run"][0].as_py()
    return run


def ends_asked_by(lake: Lake, run_id: int) -> pa.Table:
    """Rows of `log_ends` that an ingest recorded: one a partition."""
    return lake.query(f"SELECT * FROM log_ends WHERE ingest_run = {run_id}", "log_ends")  # noqa: S608


def newest_ends(lake: Lake) -> pa.Table:
    """Rows of `log_ends` that the newest ingest that asked recorded; none where none did."""
    return lake.query("SELECT * FROM log_ends WHERE ingest_run = (SELECT max(ingest_run) FROM log_ends)", "log_ends")


def ends_until(lake: Lake, run_id: int) -> pa.Table:
    """Rows of `log_ends` that an ingest and those before it recorded, without start_offset: there are many."""
    columns = "ingest_run, topic, partition, end_offset, asked_timestamp"
    return lake.query(f"SELECT {columns} FROM log_ends WHERE ingest_run <= {run_id}", "log_ends")  # noqa: S608
