"""What quarantined records leave unknown in answers: the offsets, and a sentence about them."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import UndecodableRecord
from offsetlake.kafka.batches.reader import read_batches
from offsetlake.kafka.records.coordinator_records import decode_record
from offsetlake.lake.files import has_files
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import quoted
from offsetlake.queries.selection import log_partitions_like
from offsetlake.rules import policy
from offsetlake.rules.reduction import KEY
from offsetlake.rules.unresolved import Unresolved, sentence

TABLE = "unresolved_records"
_ROWS = f"SELECT * FROM {TABLE} ORDER BY log_offset DESC"  # noqa: S608
_NAMED = f'SELECT group_id, topic, "partition" FROM {TABLE} WHERE scope = {quoted("offset")}'  # noqa: S608

_UNRESOLVED = f"""
SELECT log_topic, log_timestamp, key_bytes, value_bytes FROM quarantine
WHERE NOT coalesce(is_control, false) AND EXISTS (
  SELECT 1 FROM {TABLE} AS unresolved WHERE unresolved.log_topic = quarantine.log_topic
  AND unresolved.log_partition = quarantine.log_partition AND unresolved.log_offset = quarantine.log_offset)
"""  # noqa: S608


def unresolved_rows(lake: Lake) -> pa.Table | None:
    """Return the rows of `unresolved_records`, the newest first; None if there are none, or an older lake."""
    if not has_files(lake, TABLE):
        return None
    rows = lake.query(_ROWS, TABLE)
    return rows if rows.num_rows else None


def unknown_offsets(lake: Lake) -> pa.Table | None:
    """Return the keys of the offsets that are unknown, as `Unresolved.offsets`: KEY; None if all are known."""
    rows = unresolved_rows(lake)
    if rows is None:
        return None
    before = (
        f'UNION ALL SELECT group_id, topic, "partition" FROM offsets WHERE log_partition = {number} '  # noqa: S608
        f"AND log_offset < {batch['log_offset']}"
        for number, batch in Unresolved(rows).batches.items()
    )
    keys = lake.query(" ".join([_NAMED, *before]), TABLE, "offsets").select(KEY)
    return keys if keys.num_rows else None


def what_is_unknown(lake: Lake, pattern: str | None = None) -> str:
    """Return a sentence about what quarantined records leave unknown of some groups; empty if it is nothing.

    It names the newest of the records; `pattern` is a shell pattern of the groups, None for all.
    """
    rows = unresolved_rows(lake)
    if rows is not None and pattern is not None:
        places = pa.array(log_partitions_like(lake, pattern), pa.int32())
        about = pa.array(policy.like(rows["group_id"], pattern))
        whole = pc.and_(pc.equal(rows["group_id"], ""), pc.is_in(rows["log_partition"], places))
        rows = rows.filter(pc.or_(about, whole))
    if rows is None or not rows.num_rows:
        return ""
    return sentence_about(rows) + _about_decodable(lake)


def _about_decodable(lake: Lake) -> str:
    """Return a sentence about unresolved records that this version decodes, after a blank; empty if there are none."""
    count = sum(map(_can_be_decoded, lake.query(_UNRESOLVED, TABLE, "quarantine").to_pylist()))
    if not count:
        return ""
    return (
        f" This version of offsetlake can decode {count:,} of these records, which an earlier version has put into "
        "quarantine. They are not decoded again in this lake: read the log into a new one, with `offsetlake run --lake "
        "DIR`."
    )


def _can_be_decoded(row: dict[str, Any]) -> bool:
    """Return whether this version decodes a row of `quarantine`: a record, or the bytes of a batch."""
    if row["key_bytes"] is None and row["log_timestamp"] is None:
        records, corrupt = read_batches(row["value_bytes"] or b"")
        return bool(len(records)) and not corrupt
    try:
        decode_record(row["log_topic"], row["key_bytes"], row["value_bytes"])
    except UndecodableRecord:
        return False
    return True


def sentence_about(rows: pa.Table) -> str:
    """Return a sentence about rows of `unresolved_records`, of which the first is named; empty if there are none."""
    if not rows.num_rows:
        return ""
    count = "1 record" if rows.num_rows == 1 else f"{rows.num_rows:,} records, the newest first"
    why = sentence(rows.slice(0, 1).to_pylist()[0])
    return f"Some offsets or groups are unknown, and nothing is decided about them: {why} ({count}: table {TABLE})."
