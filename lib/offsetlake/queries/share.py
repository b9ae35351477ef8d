"""The state of share partitions, now or at an instant, with the names of their topics and their lag."""

import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import NotInLake
from offsetlake.lake.files import table_schema
from offsetlake.lake.history.history_files import History
from offsetlake.lake.lake import Lake
from offsetlake.lake.log_ends import ends_asked_by, newest_asked
from offsetlake.lake.unread import check_share_state_read
from offsetlake.queries.history.as_of import check_known
from offsetlake.queries.history.reduction import Advance, appended_until, partitions_in_portions
from offsetlake.queries.selection import like, name_or_pattern
from offsetlake.rules.share_replay import SHARE_PARTITION, replay_share_partitions
from offsetlake.rules.share_state import DeliveryState, StateBatch
from offsetlake.util.columns import mapped, taken
from offsetlake.util.row_codes import rows_in

_HISTORY = "share_state_records"
_ROWS_AT_ONCE = 1 << 18
_TOPIC_LISTS = ("initializingTopics", "initializedTopics", "deletingTopics")
_TOPICS = "SELECT DISTINCT value FROM group_records WHERE record_type = 15 AND value IS NOT NULL"
_SORTED = [("group_id", "ascending"), ("topic", "ascending"), ("topic_id", "ascending"), ("partition", "ascending")]
DEFAULT_DELIVERY_LIMIT = 5
"""The default of Kafka's `group.share.delivery.count.limit`: a record that was delivered so often is archived."""
_SUMS = (
    "in_flight_records", "available_records", "acknowledged_records", "archived_records", "redelivered_records", "lag",
)  # fmt: skip
_BATCH_SCHEMA = pa.schema(
    [
        ("group_id", pa.string()), ("topic", pa.string()), ("topic_id", pa.string()), ("partition", pa.int32()),
        ("first_offset", pa.int64()), ("last_offset", pa.int64()), ("delivery_state", pa.string()),
        ("delivery_count", pa.int32()),
    ]
)  # fmt: skip


def share_partitions(
    lake: Lake,
    pattern: str | None = None,
    topic: str | None = None,
    partition: int | None = None,
    instant_ms: int | None = None,
    advance: Advance = lambda _done, _total: None,
) -> pa.Table:
    """Return the rows of `share_partitions`, sorted by key, with four more columns, now or at an instant.

    | Column         | Type   | Description |
    |----------------|--------|-------------|
    | topic          | string | The name of the topic; null if no record of a share group names it. |
    | log_end_offset | long   | The newest log end offset that was recorded, up to the instant; null if none was. |
    | lag            | long   | Records up to it that are not completed; null if the start is undecided or beyond it. |
    | archived_at_limit | long | Archived records that were delivered DEFAULT_DELIVERY_LIMIT times or more. |

    The log does not contain why a record was archived. One with fewer deliveries was rejected, or not to be delivered,
    such as one of an aborted transaction; one at the limit was delivered too often, or rejected when it was delivered
    last. The limit of a cluster with another `group.share.delivery.count.limit` is not in the log.

    Args:
        lake: The lake.
        pattern: A shell pattern of groups; None for all.
        topic: The name or the ID of a topic; None for all.
        partition: A partition; None for all.
        instant_ms: The instant, in ms since the epoch; None for now.
        advance: Called with the number of records read and the number of all records.

    Raises:
        NotInLake: There is no such share partition.
        NotRead: Its records may be among those that were not read.
        BadRequest: The instant is before history.
        LakeUnusable: An older program made the lake.
    """
    lake.check_up_to_date()
    if instant_ms is None:
        rows = lake.query("SELECT * FROM share_partitions", "share_partitions")
    else:
        check_known(lake, instant_ms)
        rows = pa.concat_tables([table_schema("share_partitions").empty_table(), *_as_of(lake, instant_ms, advance)])
    rows = _with_topics_and_lag(lake, like(rows, name_or_pattern(lake, pattern)), instant_ms)
    if topic is not None:
        rows = rows.filter(pc.or_kleene(pc.equal(rows["topic_id"], topic), pc.equal(rows["topic"], topic)))
    if partition is not None:
        rows = rows.filter(pc.equal(rows["partition"], partition))
    if not rows.num_rows and (pattern, topic, partition) != (None, None, None):
        check_share_state_read(lake, pattern)
        raise NotInLake(
            f"no share partition matches, as far as the lake {lake.location} has read its log: `offsetlake share` "
            "without options lists all"
        )
    return rows.sort_by(_SORTED)


def share_batches(rows: pa.Table) -> pa.Table:
    """Return one row for each batch of some rows of `share_partitions`.

    | Column                            | Type   | Description |
    |-----------------------------------|--------|-------------|
    | group_id, topic, topic_id, partition |     | The share partition. |
    | first_offset, last_offset         | long   | The records of the batch. |
    | delivery_state                    | string | available, acknowledged, archived, or a number that Kafka 4.2 does not use. |
    | delivery_count                    | int    | How often they were delivered. |
    """  # noqa: E501 - a row of a table
    names = {int(state): state.name.lower() for state in DeliveryState}
    batches = [
        {**row, **batch, "delivery_state": names.get(batch["delivery_state"], str(batch["delivery_state"]))}
        for row in rows.select(["topic", *SHARE_PARTITION, "state_batches"]).to_pylist()
        for batch in row["state_batches"]
    ]
    return pa.Table.from_pylist(batches, schema=_BATCH_SCHEMA)


def share_groups(rows: pa.Table) -> pa.Table:
    """Return the sums of some rows of `share_partitions` by group, the most records in flight first.

    | Column     | Type   | Description |
    |------------|--------|-------------|
    | group_id   | string | The share group. |
    | partitions | long   | The number of its share partitions. |
    | in_flight_records, available_records, acknowledged_records, archived_records, redelivered_records, lag | long | \
    The sums of known values; null if there is none. |
    """
    summed = rows.group_by("group_id").aggregate(
        [("partition", "count"), *((name, "sum", pc.ScalarAggregateOptions(min_count=1)) for name in _SUMS)]
    )
    names = {"partition_count": "partitions", **{f"{name}_sum": name for name in _SUMS}}
    summed = summed.rename_columns([names.get(name, name) for name in summed.column_names])
    return summed.sort_by([("in_flight_records", "descending"), ("group_id", "ascending")])


def topic_names(lake: Lake) -> dict[str, str]:
    """Return the names of the topics of share groups by topic ID, as the records of these groups name them."""
    values = map(json.loads, lake.query(_TOPICS, "group_records")["value"].to_pylist())
    topics = (topic for value in values for name in _TOPIC_LISTS for topic in value.get(name, ()))
    return {topic["topicId"]: topic["topicName"] for topic in topics}


def _as_of(lake: Lake, instant_ms: int, advance: Advance) -> Iterator[pa.Table]:
    history, none = History.open(lake, [_HISTORY], until_ms=instant_ms), table_schema("share_partitions").empty_table()
    for partitions in partitions_in_portions(history, _ROWS_AT_ONCE, advance):
        records = history.rows(_HISTORY, partitions, appended_until(instant_ms))
        if records.num_rows:
            yield replay_share_partitions(records, none)


def _with_topics_and_lag(lake: Lake, rows: pa.Table, instant_ms: int | None) -> pa.Table:
    topics = mapped(rows["topic_id"], topic_names(lake))
    run = newest_asked(lake) if instant_ms is None else newest_asked(lake, instant_ms)
    recorded = ends_asked_by(lake, run or 0)
    keys = pa.table({"topic": pc.fill_null(topics, ""), "partition": rows["partition"]})
    ends = taken(recorded["end_offset"], rows_in(keys, recorded, keys.column_names))
    for name, column in {"topic": topics, "log_end_offset": ends, "lag": _lag(rows, ends)}.items():
        rows = rows.append_column(name, column)
    rows = rows.append_column("archived_at_limit", _archived_at_limit(rows["state_batches"]))
    first = ["group_id", "topic", *rows.column_names]
    return rows.select([*dict.fromkeys(first)])


def _archived_at_limit(batches: pa.ChunkedArray) -> pa.Array:
    """Return the number of records in archived batches with at least DEFAULT_DELIVERY_LIMIT deliveries, by row."""
    flat, parents = pc.list_flatten(batches), pc.list_parent_indices(batches).to_numpy()
    fields = {name: pc.struct_field(flat, name).to_numpy() for name in StateBatch._fields}
    counts = np.zeros(len(batches), np.int64)
    chosen = fields["delivery_state"] == DeliveryState.ARCHIVED
    chosen &= fields["delivery_count"] >= DEFAULT_DELIVERY_LIMIT
    np.add.at(counts, parents[chosen], (fields["last_offset"] - fields["first_offset"] + 1)[chosen])
    return pa.array(counts)


def _lag(rows: pa.Table, ends: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the lag as Kafka 4.2 does; before, records did not contain the number of completed records.

    It is null if the completed records are beyond the log end, because the topic lost records or was created again.
    """
    names = ("delivery_complete_count", "acknowledged_records", "archived_records")
    counted, acknowledged, archived = (rows[name].cast(pa.int64()) for name in names)
    completed = pc.coalesce(counted, pc.add(acknowledged, archived))
    lag = pc.subtract(pc.subtract(ends, rows["start_offset"]), completed)
    return pc.if_else(pc.less(lag, 0), None, lag)
