"""How far groups at a standby cluster are behind those of the source, by translations in the lake of the standby."""

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.statements import statement
from offsetlake.lake.unread import check_read
from offsetlake.queries.selection import like, name_or_pattern
from offsetlake.rules.reduction import KEY
from offsetlake.util.columns import taken
from offsetlake.util.row_codes import rows_in

_SOURCE = r"^(?P<topic>.+)-(?P<partition>[0-9]+) at (?P<offset>[0-9]+): "
"""The beginning of the evidence of a translation: the partition and the offset at the source."""
_NOT_AT_ALL = 2**63 - 1


def standby_lag(source: Lake, standby: Lake, pattern: str | None = None) -> pa.Table:
    """Return how far each offset of the source is ahead of its newest translation, the furthest first.

    Offsets at the standby that were changed since they were translated count as not translated. An offset of the source
    that was moved back since is before its translation: `not_translated` is negative, and a group that continues at the
    standby skips records. These rows come after those without a translation.

    | column               | description |
    |----------------------|-------------|
    | group_id, topic, partition | the key at the source |
    | committed_offset     | committed offset at the source, as far as its lake has read |
    | commit_timestamp     | its time, ms |
    | translated_offset    | the offset at the source that the offset at the standby corresponds to; null if none |
    | not_translated       | committed_offset minus translated_offset: records processed since |
    | standby_topic        | the topic at the standby |
    | standby_offset       | the committed offset at the standby |
    | translated_timestamp | when it was translated, ms |

    Raises BadRequest if no group that matches the pattern has an offset at the source.
    """
    columns = [*KEY, "committed_offset", "commit_timestamp"]
    offsets = source.query(
        'SELECT group_id, topic, "partition", committed_offset, commit_timestamp FROM offsets', "offsets"
    ).select(columns)
    offsets = like(offsets, name_or_pattern(source, pattern))
    if not offsets.num_rows:
        check_read(source, pattern)
        raise BadRequest(f"No group like {pattern or '*'!r} has an offset in the lake {source.location}.")
    done = standby.query(statement("translations"), "alterations", "offsets")
    parts = pc.extract_regex(done["evidence"], _SOURCE)
    done = done.rename_columns(["group_id", "standby_topic", "evidence", "standby_offset", "translated_timestamp"])
    for name, kind in (("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())):
        done = done.append_column(name, pc.struct_field(parts, name).cast(kind))
    rows = rows_in(offsets, done, KEY)
    translated = taken(done["offset"], rows)
    columns_of_standby = {
        "translated_offset": translated,
        "not_translated": pc.subtract(offsets["committed_offset"], translated),
        **{name: taken(done[name], rows) for name in ("standby_topic", "standby_offset", "translated_timestamp")},
    }
    for name, column in columns_of_standby.items():
        offsets = offsets.append_column(name, column)
    distance = offsets["not_translated"]
    rank = pc.fill_null(pc.if_else(pc.less(distance, 0), _NOT_AT_ALL - 1, distance), _NOT_AT_ALL)
    furthest = offsets.append_column("order", rank)
    order = [("order", "descending"), *((name, "ascending") for name in KEY)]
    return offsets.take(pc.sort_indices(furthest, order))
