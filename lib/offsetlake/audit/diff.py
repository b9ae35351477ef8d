"""Offsets at two instants, side by side."""

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.audit.as_of import offsets_as_of
from offsetlake.audit.questions import check_committed
from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.lifecycle.reduction import KEY
from offsetlake.times import to_iso

_EXACT = pa.decimal128(20)  # holds the difference of any two offsets


def diff(
    lake: Lake,
    from_ms: int,
    to_ms: int,
    group_id: str | None = None,
    topic: str | None = None,
    limit: int | None = None,
) -> pa.Table:
    """Offsets that were not the same at two instants (ms since the epoch), of one group or topic where named; by key.

    | column      | is |
    |-------------|----|
    | group_id, topic, partition | the key |
    | from_offset | the offset in force at the first instant; null: none |
    | to_offset   | at the second; null: none |
    | difference  | to_offset less from_offset; null where one of them is |

    Raises BadRequest where the second instant is before the first, the first before history, or nobody ever committed
    for the group and topic.
    """
    if to_ms < from_ms:
        raise BadRequest(f"--to {to_iso(to_ms)} is before --from {to_iso(from_ms)}: exchange them")
    before, after = (offsets_as_of(lake, instant, group_id, topic) for instant in (from_ms, to_ms))
    if group_id is not None or topic is not None:
        check_committed(lake, group_id, topic)
    then, now = (
        rows.select([*KEY, "committed_offset"]).rename_columns([*KEY, name])
        for rows, name in ((before, "from_offset"), (after, "to_offset"))
    )
    both = then.join(now, [*KEY], join_type="full outer")
    same = pc.fill_null(pc.equal(both["from_offset"], both["to_offset"]), fill_value=False)
    changed = both.filter(pc.invert(same)).sort_by([(name, "ascending") for name in KEY])
    difference = pc.subtract(changed["to_offset"].cast(_EXACT), changed["from_offset"].cast(_EXACT))
    return changed.append_column("difference", difference).slice(0, limit)
