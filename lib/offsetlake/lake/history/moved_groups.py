"""Groups with records in several log partitions, because partitions were added to `__consumer_offsets`.

The partition of a group is `abs(hash) % count`. When partitions are added, the coordinator of the other partition
knows nothing of what was committed before (Kafka's `GroupCoordinatorService`): once the group has a record there, it is
the only one that counts.
"""

from collections.abc import Collection, Sequence
from itertools import combinations

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.kafka.placement import partition_for_group
from offsetlake.lake.history.group_places import every_place
from offsetlake.lake.lake import Lake
from offsetlake.lake.runs import last_run
from offsetlake.lake.sql.engine import quoted

PLACE = ("group_id", "log_partition")
"""The columns that say where a row is from."""

_TABLES = ("offset_commits", "group_records")
_SINCE = pa.schema([("group_id", pa.string()), ("current", pa.int32()), ("since", pa.int64())])
_SCHEMA = pa.schema([("group_id", pa.string()), ("log_partition", pa.int32()), ("current", pa.int32())])


def log_partition_count(lake: Lake, through_run: int | None = None) -> int | None:
    """Return the number of log partitions if partitions were added to the topic, as far as ingests show it."""
    last = last_run(lake, "ingest", through=through_run)
    return last.log_partitions if last and last.grown else None


def current_partition(group_id: str, log_partitions: Collection[int], count: int | None) -> int:
    """Return the one of the log partitions with records of a group that coordinates it; the last one if none does."""
    number = partition_for_group(group_id, count) if count else -1
    return number if number in log_partitions else max(log_partitions)


def former_places(places: pa.Table, count: int) -> pa.Table:
    """Return the places of groups in log partitions that do not coordinate them any more.

    Args:
        places: The distinct group_id and log_partition of records.
        count: The number of log partitions.

    Returns:
        group_id and log_partition of these places, and `current`, the log partition that counts.
    """
    numbers = places.group_by("group_id").aggregate([("log_partition", "count")])
    several = numbers.filter(pc.greater(numbers["log_partition_count"], 1))["group_id"]
    by_group: dict[str, list[int]] = {}
    for row in places.filter(pc.is_in(places["group_id"], several.combine_chunks())).to_pylist():
        by_group.setdefault(row["group_id"], []).append(row["log_partition"])
    rows = []
    for group_id, log_partitions in by_group.items():
        current = current_partition(group_id, log_partitions, count)
        former = (number for number in log_partitions if number != current)
        rows += [{"group_id": group_id, "log_partition": number, "current": current} for number in former]
    return pa.Table.from_pylist(rows, _SCHEMA)


def former_places_in_history(lake: Lake) -> pa.Table:
    """Return `former_places` of all groups in history; reads nothing unless partitions were added to the topic."""
    count = log_partition_count(lake)
    return _SCHEMA.empty_table() if count is None else former_places(every_place(lake), count)


def together(lake: Lake) -> set[frozenset[int]]:
    """Return the pairs of log partitions that both have records of a group: a key can be in both."""
    by_group: dict[str, set[int]] = {}
    for row in former_places_in_history(lake).to_pylist():
        by_group.setdefault(row["group_id"], {row["current"]}).add(row["log_partition"])
    several = {frozenset(numbers) for numbers in by_group.values()}
    return {frozenset(pair) for numbers in several for pair in combinations(numbers, 2)}


def apart(partitions: Sequence[int], pairs: Collection[frozenset[int]]) -> list[list[int]]:
    """Divide log partitions into the fewest parts, or nearly so, of which none contains one of the pairs."""
    parts: list[list[int]] = []
    for number in partitions:
        fits = (part for part in parts if not any(frozenset((number, other)) in pairs for other in part))
        if (part := next(fits, None)) is None:
            parts.append(part := [])
        part.append(number)
    return parts


def one_place_each(lake: Lake, places: pa.Table) -> dict[str, int]:
    """Return the log partition that coordinates each group, of those in group_id and log_partition of a table."""
    count, by_group = log_partition_count(lake), dict[str, set[int]]()
    for group_id, number in zip(*(places[name].to_pylist() for name in PLACE), strict=True):
        by_group.setdefault(group_id, set()).add(number)
    return {group_id: current_partition(group_id, numbers, count) for group_id, numbers in by_group.items()}


def moved_places(lake: Lake) -> pa.Table:
    """Return `former_places_in_history` with `since`, when the group had its first record in `current`, ms."""
    former = former_places_in_history(lake)
    if not former.num_rows:
        return former.append_column("since", pa.array([], pa.int64()))
    names = ", ".join(map(quoted, pc.unique(former["group_id"]).to_pylist()))
    every = " UNION ALL ".join(
        f"SELECT group_id, log_partition, log_timestamp FROM {table} WHERE group_id IN ({names})"  # noqa: S608
        for table in _TABLES
    )
    first = lake.query(
        f"SELECT group_id, log_partition AS current, min(log_timestamp) AS since FROM ({every}) GROUP BY 1, 2",  # noqa: S608
        *_TABLES,
    )
    return former.join(first.cast(_SINCE), ["group_id", "current"])


def in_force_at(rows: pa.Table, moved: pa.Table, instant_ms: int) -> pa.Table:
    """Return the rows, with the columns PLACE, without those in log partitions that did not count any more then."""
    if not moved.num_rows:
        return rows
    gone = moved.filter(pc.fill_null(pc.less_equal(moved["since"], instant_ms), fill_value=True))
    by_partition = {
        number: gone.filter(pc.equal(gone["log_partition"], number))["group_id"].combine_chunks()
        for number in pc.unique(gone["log_partition"]).to_pylist()
    }
    for number, groups in by_partition.items():
        is_gone = pc.and_(pc.equal(rows["log_partition"], number), pc.is_in(rows["group_id"].cast(pa.string()), groups))
        rows = rows.filter(pc.invert(is_gone))
    return rows
