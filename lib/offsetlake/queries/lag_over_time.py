"""The lag of a group over time: at each ingest that recorded log end offsets."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.lake.history.moved_groups import current_partition, log_partition_count
from offsetlake.lake.lake import Lake
from offsetlake.lake.log_ends import PARTITION, newest_asked, newest_asked_through, rows_until
from offsetlake.lake.sql.engine import quoted
from offsetlake.queries.history.decided import decided_until
from offsetlake.queries.history.reduction import group_records
from offsetlake.queries.selection import log_partitions_of
from offsetlake.rules.groups.replay import group_record, in_log_order, replayed
from offsetlake.rules.groups.state import GroupState
from offsetlake.util.row_codes import Ints, in_order, last_at_most, rows_in

_OBSERVED = ("ingest_run", *PARTITION, "start_offset", "end_offset", "asked_timestamp")
_SUBSCRIPTIONS = pa.schema([("topic", pa.string()), ("ingest_run", pa.int64()), ("subscribed", pa.bool_())])


def lag_over_time(lake: Lake, group_id: str) -> pa.Table:
    """Return the lag of a group at each ingest that recorded log end offsets of its partitions, the oldest first.

    Its partitions are those that it had an offset of, and those of the topics that its members were subscribed to.

    | column          | description |
    |-----------------|-------------|
    | ingest_run      | the run that recorded the log end offsets: runs.run_id |
    | asked_timestamp | when the run read them from the cluster, ms since the epoch; the later time if it read twice |
    | lag             | lag in records, summed over the partitions of which it is known; null if there is none |
    | partitions      | number of these partitions |
    | lag_at_most     | the same, and all records of the partitions whose lag depends on the consumers' reset policy |
    | lag_unknown     | number of these: no offset was committed, or one beyond the log end |
    | no_commit       | number of partitions without a committed offset |
    | deleted_before_read | number of offsets from committed offsets to log starts, whose records were deleted |

    Raises BadRequest if no log end offsets are recorded, or if the group had neither commits nor members by then.
    """
    run, within = newest_asked(lake), log_partitions_of(lake, [group_id])
    is_group = pc.field("group_id") == group_id
    records = [] if run is None else [*decided_until(lake, run, is_group, within=within)]
    coordinator = _coordinator(lake, group_id, within)
    subscriptions = _SUBSCRIPTIONS.empty_table()
    if run is not None:
        subscriptions = _subscriptions(lake, group_id, within, run, coordinator)
    if run is None or not (any(part.num_rows for part in records) or subscriptions.num_rows):
        raise BadRequest(f"the lag of group {group_id!r} is not known: `offsetlake lag --group` shows the reason")
    rows = in_order(_in_turn(pa.concat_tables(records), coordinator), (*PARTITION, "turn", "log_offset"))
    topics = {topic for table in (rows, subscriptions) for topic in pc.unique(table["topic"]).to_pylist()}
    runs = [pc.min(table["ingest_run"]).as_py() for table in (rows, subscriptions) if table.num_rows]
    ends = rows_until(lake, newest_asked_through(lake, min(runs)) or 0, run, topics).observed(_OBSERVED, every=True)
    return _summed(ends, _committed(rows, ends), _subscribed(subscriptions, ends))


def _coordinator(lake: Lake, group_id: str, within: Sequence[int]) -> tuple[int, int]:
    """Return which of its log partitions coordinates a group now, and the first ingest that read a record there.

    The ingest is 0 if the group has records in one log partition only.
    """
    if len(within) < 2:
        return max(within, default=-1), 0
    current = current_partition(group_id, within, log_partition_count(lake))
    where = f"group_id = {quoted(group_id)} AND log_partition = {current}"
    tables = ("offset_commits", "group_records")
    every = " UNION ALL ".join(f"SELECT ingest_run FROM {table} WHERE {where}" for table in tables)  # noqa: S608
    first = lake.query(f"SELECT min(ingest_run) AS ingest_run FROM ({every})", *tables)  # noqa: S608
    return current, first["ingest_run"][0].as_py()


def _in_turn(rows: pa.Table, coordinator: tuple[int, int]) -> pa.Table:
    """Return records with the column `turn`: those in former log partitions, then their ends, then the others.

    A former coordinator does not count from the ingest on that read the first record in the log partition of the
    present one: all of its offsets end there.
    """
    current, since = coordinator
    is_current = pc.equal(rows["log_partition"], current)
    former = rows.filter(pc.and_(pc.invert(is_current), pc.less(rows["ingest_run"], since)))
    ends = {"ingest_run": pa.scalar(since, pa.int64()), "committed_offset": pa.scalar(None, pa.int64())}
    ended = former
    for name, value in ends.items():
        ended = ended.set_column(ended.column_names.index(name), name, pa.repeat(value, ended.num_rows))
    parts = (former, ended.cast(rows.schema), rows.filter(is_current))
    return pa.concat_tables(
        part.append_column("turn", pa.repeat(turn, part.num_rows)) for turn, part in enumerate(parts)
    )


def _summed(ends: pa.Table, committed: Ints, subscribed: npt.NDArray[np.bool_]) -> pa.Table:
    """Return the sums by ingest of observed log end offsets, given the offset that was committed by then or -1."""
    has_none, end, start = committed < 0, ends["end_offset"].to_numpy(), ends["start_offset"].to_numpy()
    lag = end - np.maximum(committed, start)
    unknown = (lag < 0) | (has_none & (end > start))
    columns = {
        "ingest_run": ends["ingest_run"],
        "asked_timestamp": ends["asked_timestamp"],
        "lag": pa.array(lag, mask=unknown),
        "partitions": pa.array(np.ones(len(lag), np.int64)),
        "lag_at_most": pa.array(np.where(unknown, end - start, lag)),
        "lag_unknown": pa.array(unknown.astype(np.int64)),
        "no_commit": pa.array(has_none.astype(np.int64)),
        "deleted_before_read": pa.array(np.where(has_none, 0, np.maximum(start - committed, 0))),
    }
    of_group = pa.table(columns).filter(pa.array(~has_none | subscribed))
    sums = [(name, "max" if name == "asked_timestamp" else "sum") for name in [*columns][1:]]
    return of_group.group_by("ingest_run").aggregate(sums).rename_columns([*columns]).sort_by("ingest_run")


def _committed(rows: pa.Table, ends: pa.Table) -> Ints:
    """Return the offset of each observed partition that had been committed by the ingest; -1 if there was none."""
    keys = rows.group_by([*PARTITION], use_threads=False).aggregate([])
    newest = last_at_most(
        rows_in(rows, keys, PARTITION),
        rows["ingest_run"].to_numpy(),
        rows_in(ends, keys, PARTITION),
        ends["ingest_run"].to_numpy(),
    )
    offsets = rows["committed_offset"].take(pa.array(newest, mask=newest < 0))  # null in tombstones
    committed: Ints = pc.fill_null(offsets, -1).to_numpy()
    return committed


def _subscribed(subscriptions: pa.Table, ends: pa.Table) -> npt.NDArray[np.bool_]:
    """Return whether members were subscribed to the topic of each observed partition at the ingest."""
    changes = in_order(subscriptions, ("topic", "ingest_run"))
    keys = changes.group_by(["topic"], use_threads=False).aggregate([])
    newest = last_at_most(
        rows_in(changes, keys, ["topic"]),
        changes["ingest_run"].to_numpy(),
        rows_in(ends, keys, ["topic"]),
        ends["ingest_run"].to_numpy(),
    )
    was: npt.NDArray[np.bool_] = pc.fill_null(
        changes["subscribed"].take(pa.array(newest, mask=newest < 0)), fill_value=False
    ).to_numpy()
    return was


def _subscriptions(
    lake: Lake, group_id: str, within: Sequence[int], run: int, coordinator: tuple[int, int]
) -> pa.Table:
    """Return which topics the members of a group subscribed to or left at each ingest up to `run`, as a table.

    The columns are those of _SUBSCRIPTIONS.
    """
    condition = f"group_id = {quoted(group_id)} AND ingest_run <= {run}"
    records, (current, since) = group_records(lake, within, condition), coordinator
    is_current = pc.field("log_partition") == current
    parts = records.filter(~is_current & (pc.field("ingest_run") < since)), records.filter(is_current)
    return pa.Table.from_pylist([*_changes(parts)], _SUBSCRIPTIONS)


def _changes(parts: Iterable[pa.Table]) -> Iterator[dict[str, object]]:
    """Yield the changes by records in former log partitions, and by those in the present one, which does not know them.

    The columns are those of _SUBSCRIPTIONS.
    """
    subscribed = set[str]()
    for records in parts:
        state = None
        for ingest_run, read in groupby(in_log_order(records), key=itemgetter("ingest_run")):
            state = replayed(state, map(group_record, read), None)
            topics = _topics(state)
            for topic in topics ^ subscribed:
                yield {"topic": topic, "ingest_run": ingest_run, "subscribed": topic in topics}
            subscribed = topics


def _topics(state: GroupState | None) -> set[str]:
    """Return the topics that members of a group are subscribed to; none if it is a share group, which commits none."""
    if state is None or state.group_type == "share":
        return set()
    row = state.row()
    return {*row["subscribed_topics"]} if row["member_count"] else set()
