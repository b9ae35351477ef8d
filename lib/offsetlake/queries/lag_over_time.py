"""The lag of a group over time: at each ingest that recorded log end offsets."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.lake.log_ends import PARTITION, newest_asked, newest_asked_through, rows_until
from offsetlake.queries.history.decided import decided_until
from offsetlake.queries.questions import log_partitions_of
from offsetlake.util.row_codes import in_order, last_at_most, rows_in


def lag_over_time(lake: Lake, group_id: str) -> pa.Table:
    """Return the lag of a group at each ingest that recorded log end offsets of its partitions, the oldest first.

    | column          | description |
    |-----------------|-------------|
    | ingest_run      | the run that recorded the log end offsets: runs.run_id |
    | asked_timestamp | when the run read them from the cluster, ms since the epoch; the later time if it read twice |
    | lag             | lag of the group in records, summed over these partitions, by the commits read so far |
    | partitions      | number of these partitions |

    Raises BadRequest if no log end offsets are recorded, or if the group had committed nothing by then.
    """
    run = newest_asked(lake)
    is_group = pc.field("group_id") == group_id
    records = [] if run is None else [*decided_until(lake, run, is_group, within=log_partitions_of(lake, [group_id]))]
    if run is None or not any(part.num_rows for part in records):
        raise BadRequest(f"the lag of group {group_id!r} is not known: `offsetlake lag --group` shows the reason")
    rows = pa.concat_tables(records)
    rows = in_order(rows, (*PARTITION, "log_offset"))
    keys = rows.group_by([*PARTITION], use_threads=False).aggregate([])
    topics = pc.unique(keys["topic"]).to_pylist()
    first = newest_asked_through(lake, pc.min(rows["ingest_run"]).as_py())
    ends = rows_until(lake, first or 0, run, topics).observed(every=True)
    numbers, asked = rows_in(rows, keys, PARTITION), rows_in(ends, keys, PARTITION)
    newest = last_at_most(numbers, rows["ingest_run"].to_numpy(), asked, ends["ingest_run"].to_numpy())
    had = (newest >= 0) & pc.equal(rows["kind"], "commit").to_numpy()[newest]
    committed = rows["committed_offset"].take(pa.array(newest[had])).to_numpy()
    known = ends.filter(pa.array(had)).select(["ingest_run", "asked_timestamp"])
    lag = np.maximum(ends["end_offset"].to_numpy()[had] - committed, 0)
    wanted = [("asked_timestamp", "max"), ("lag", "sum"), ("lag", "count")]
    lags = known.append_column("lag", pa.array(lag)).group_by("ingest_run").aggregate(wanted)
    return lags.rename_columns(["ingest_run", "asked_timestamp", "lag", "partitions"]).sort_by("ingest_run")
