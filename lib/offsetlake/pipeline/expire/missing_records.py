"""Keeps what records could change that a log had, according to other files of its broker, but did not contain.

They count as a batch that cannot be decoded: offsets and groups that were written last before them are unknown, until
an ingest has read them.
"""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.files import table_schema
from offsetlake.lake.lake import Lake
from offsetlake.lake.runs import last_run
from offsetlake.log.positions import LOG_TOPICS, OFFSETS_TOPIC
from offsetlake.rules.groups.state import UNKNOWN
from offsetlake.rules.unresolved import Unresolved, newest


def with_missing(lake: Lake, stored: pa.Table) -> tuple[Unresolved, Mapping[int, int]]:
    """Return what is unknown, and by log partition of the offsets topic the log offset after its missing records.

    Args:
        lake: The lake, whose last ingest knows what is missing.
        stored: The rows of `unresolved_records`.
    """
    last = last_run(lake, "ingest")
    missing = [part for part in (last.missing or ()) if part.topic in LOG_TOPICS] if last else []
    if not missing:
        return Unresolved(stored.combine_chunks()), {}
    nothing = {"group_id": "", "topic": None, "topic_id": None, "partition": None, "producer_id": None}
    rows = [
        {"scope": "log_partition", "log_topic": part.topic, "log_partition": part.partition, "log_offset": part.end}
        | {"reason": "records are missing", **nothing}
        for part in missing
    ]
    found = newest([*stored.to_pylist(), *rows])
    ends: dict[int, int] = {}
    for part in missing:
        if part.topic == OFFSETS_TOPIC:
            ends[part.partition] = max(part.end, ends.get(part.partition, 0))
    return Unresolved(pa.Table.from_pylist(found, table_schema("unresolved_records")).combine_chunks()), ends


def with_unknown_states(groups: pa.Table, end: int | None) -> pa.Table:
    """Return rows of `groups` of a log partition, with the state Unknown if it may be older than missing records.

    Only a classic group writes its whole state with each record: the state of others is known from all records.
    `end` is the log offset after the missing records; None if none are missing.
    """
    if end is None:
        return groups
    is_known = pc.and_kleene(pc.equal(groups["group_type"], "classic"), pc.greater_equal(groups["log_offset"], end))
    state = pc.if_else(pc.fill_null(is_known, fill_value=False), groups["state"], pa.scalar(UNKNOWN, pa.string()))
    return groups.set_column(groups.column_names.index("state"), "state", state)
