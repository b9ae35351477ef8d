"""Keeps what records could change that a log had, according to other files of its broker, but did not contain.

They count as a batch that cannot be decoded: offsets and groups that were written last before them are unknown, until
an ingest has read them.
"""

from collections.abc import Mapping
from operator import attrgetter

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.kafka.records.concerns import EVERYTHING
from offsetlake.lake.files import table_schema
from offsetlake.lake.lake import Lake
from offsetlake.lake.unread import unread
from offsetlake.log.positions import OFFSETS_TOPIC
from offsetlake.rules.groups.state import UNKNOWN
from offsetlake.rules.unresolved import Unresolved, newest


def with_missing(lake: Lake, stored: pa.Table) -> tuple[Unresolved, Mapping[int, int]]:
    """Return what is unknown, and by log partition of the offsets topic the log offset after its missing records.

    Args:
        lake: The lake, whose last ingest knows what is missing.
        stored: The rows of `unresolved_records`.
    """
    ends = {(part.topic, part.partition): part.end for part in sorted(unread(lake).missing, key=attrgetter("end"))}
    if not ends:
        return Unresolved(stored.combine_chunks()), {}
    constant = EVERYTHING._asdict() | {"group_id": "", "producer_id": None, "reason": "records are missing"}
    rows = [
        constant | {"log_topic": topic, "log_partition": number, "log_offset": end}
        for (topic, number), end in ends.items()
    ]
    found = pa.Table.from_pylist(newest([*stored.to_pylist(), *rows]), table_schema("unresolved_records"))
    of_offsets = {number: end for (topic, number), end in ends.items() if topic == OFFSETS_TOPIC}
    return Unresolved(found.combine_chunks()), of_offsets


def with_unknown_states(groups: pa.Table, end: int | None) -> pa.Table:
    """Return rows of `groups` of a log partition, with the state Unknown if it may be older than missing records.

    Each record of a classic group contains its whole state. A record of another group changes a part of it, so that the
    state is known only if no record is missing. `end` is the log offset after the missing records; None if there are
    none.
    """
    if end is None:
        return groups
    is_known = pc.and_kleene(pc.equal(groups["group_type"], "classic"), pc.greater_equal(groups["log_offset"], end))
    state = pc.if_else(pc.fill_null(is_known, fill_value=False), groups["state"], pa.scalar(UNKNOWN, pa.string()))
    return groups.set_column(groups.column_names.index("state"), "state", state)
