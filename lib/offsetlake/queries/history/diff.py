"""Differences between the offsets at two instants."""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.lake.files import table_schema
from offsetlake.lake.lake import Lake
from offsetlake.queries.history.as_of import check_known
from offsetlake.queries.history.replayed import first_rows, replayed
from offsetlake.queries.selection import check_committed
from offsetlake.rules.reduction import KEY
from offsetlake.util.row_codes import rows_in
from offsetlake.util.times import to_iso

_EXACT = pa.decimal128(20)  # wide enough for the difference of any two offsets


def diff(
    lake: Lake,
    from_ms: int,
    to_ms: int,
    group_id: str | None = None,
    topic: str | None = None,
    limit: int | None = None,
    advance: Callable[[int, int], None] = lambda _done, _total: None,
) -> pa.Table:
    """Return the offsets that differ between two instants (ms since the epoch), of a group or topic if named; by key.

    | column      | description |
    |-------------|-------------|
    | group_id, topic, partition | the key |
    | from_offset | the offset in force at the first instant; null if there was none |
    | to_offset   | the offset in force at the second instant; null if there was none |
    | difference  | to_offset minus from_offset; null if one of them is null |

    `advance` is called with the number of records read and the number of all records. Raises BadRequest if the second
    instant is before the first, if the first is before history, or if no offset of the group and topic was ever
    committed.
    """
    _check(lake, from_ms, to_ms, group_id, topic)
    wanted, columns = {"group_id": group_id, "topic": topic}, [*KEY, "committed_offset"]
    parts = map(_compared, replayed(lake, [from_ms, to_ms], wanted, columns, advance))
    none = table_schema("offsets").empty_table().select(columns)
    return first_rows([_compared([none, none]), *parts], limit)


def diff_by_group(lake: Lake, from_ms: int, to_ms: int, topic: str | None = None) -> pa.Table:
    """Return how many offsets of each group, of a topic if named, differ between two instants; those set back first.

    | column     | description |
    |------------|-------------|
    | group_id   | a group of which an offset differs |
    | changed    | number of offsets that differ |
    | set_back   | number of offsets that are lower at the second instant |
    | added      | number of offsets that exist only at the second instant |
    | removed    | number of offsets that exist only at the first instant |
    | difference | sum of to_offset minus from_offset, of offsets that exist at both; null if none does |

    Memory is bounded by the keys of some log partitions, and the number of groups. Raises BadRequest as `diff`.
    """
    _check(lake, from_ms, to_ms, None, None)
    columns = [*KEY, "committed_offset"]
    wanted = {} if topic is None else {"topic": topic}
    none = table_schema("offsets").empty_table().select(columns)
    portions = replayed(lake, [from_ms, to_ms], wanted, columns, _ignore)
    changed = map(_compared, portions)  # keeps no portion while it reads the next
    parts = [_counted(_compared([none, none])), *map(_counted, changed)]
    names = parts[0].column_names[1:]
    counted = pa.concat_tables(parts).group_by("group_id").aggregate([(name, "sum") for name in names])
    rows = counted.select(["group_id", *(f"{name}_sum" for name in names)]).rename_columns(["group_id", *names])
    return rows.sort_by([("set_back", "descending"), ("removed", "descending"), ("group_id", "ascending")])


def _ignore(_done: int, _total: int) -> None:
    pass


def _counted(rows: pa.Table) -> pa.Table:
    """Return the numbers of `diff_by_group` for the rows of `diff`."""
    columns = {
        "changed": pc.is_valid(rows["partition"]),
        "set_back": pc.fill_null(pc.less(rows["difference"], pa.scalar(0, _EXACT)), fill_value=False),
        "added": pc.is_null(rows["from_offset"]),
        "removed": pc.is_null(rows["to_offset"]),
    }
    counts = {name: column.cast(pa.int64()) for name, column in columns.items()}
    table = pa.table({"group_id": rows["group_id"], **counts, "difference": rows["difference"]})
    totals = table.group_by("group_id").aggregate([(name, "sum") for name in table.column_names[1:]])
    return totals.rename_columns([name.removesuffix("_sum") for name in totals.column_names])


def _check(lake: Lake, from_ms: int, to_ms: int, group_id: str | None, topic: str | None) -> None:
    if to_ms < from_ms:
        raise BadRequest(f"--to {to_iso(to_ms)} is before --from {to_iso(from_ms)}: swap them")
    for instant in (from_ms, to_ms):
        check_known(lake, instant)
    if group_id is not None or topic is not None:
        check_committed(lake, group_id, topic)


def _compared(offsets: Sequence[pa.Table]) -> pa.Table:
    """Return the offsets of some keys that differ between two instants, without an order."""
    before, after = offsets
    rows = rows_in(after, before, KEY)
    from_offset = before["committed_offset"].take(pa.array(rows, mask=rows < 0))
    differs = pc.fill_null(pc.not_equal(from_offset, after["committed_offset"]), fill_value=True)
    is_removed = np.ones(before.num_rows, np.bool_)
    is_removed[rows[rows >= 0]] = False
    present = after.rename_columns([*KEY, "to_offset"]).append_column("from_offset", from_offset).filter(differs)
    removed = before.rename_columns([*KEY, "from_offset"]).filter(pa.array(is_removed))
    changed = pa.concat_tables([present, removed], promote_options="default")
    difference = pc.subtract(changed["to_offset"].cast(_EXACT), changed["from_offset"].cast(_EXACT))
    return changed.select([*KEY, "from_offset", "to_offset"]).append_column("difference", difference)
