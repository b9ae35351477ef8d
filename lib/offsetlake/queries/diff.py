"""Differences between the offsets at two instants."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.lake.files import table_schema
from offsetlake.lake.lake import Lake
from offsetlake.queries.as_of import check_known
from offsetlake.queries.questions import check_committed
from offsetlake.queries.replayed import first_rows, replayed
from offsetlake.rules.reduction import KEY
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
    if to_ms < from_ms:
        raise BadRequest(f"--to {to_iso(to_ms)} is before --from {to_iso(from_ms)}: swap them")
    for instant in (from_ms, to_ms):
        check_known(lake, instant)
    if group_id is not None or topic is not None:
        check_committed(lake, group_id, topic)
    wanted, columns = {"group_id": group_id, "topic": topic}, [*KEY, "committed_offset"]
    parts = [_compared(*both) for both in replayed(lake, [from_ms, to_ms], wanted, columns, advance)]
    none = table_schema("offsets").empty_table().select(columns)
    return first_rows([_compared(none, none), *parts], limit)


def _compared(before: pa.Table, after: pa.Table) -> pa.Table:
    """Return the offsets of some keys that differ between two instants, without an order."""
    old, new = (rows.rename_columns([*KEY, name]) for rows, name in ((before, "from_offset"), (after, "to_offset")))
    both = old.join(new, [*KEY], join_type="full outer")
    same = pc.fill_null(pc.equal(both["from_offset"], both["to_offset"]), fill_value=False)
    changed = both.filter(pc.invert(same))
    difference = pc.subtract(changed["to_offset"].cast(_EXACT), changed["from_offset"].cast(_EXACT))
    return changed.append_column("difference", difference)
