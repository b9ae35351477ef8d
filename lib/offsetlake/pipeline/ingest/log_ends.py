"""Reads the log start and end offsets of the topics that groups commit to from a live cluster into `log_ends`.

They are read directly after the end of the log to ingest is determined. No log end offset is therefore older than the
commits that it is compared with, so that no lag is negative unless the topic lost records; and hardly newer, which
would increase every lag by what was written meanwhile. Only topics without stored offsets are read after the ingest.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import Any, NamedTuple

from offsetlake.errors import LogUnavailable
from offsetlake.lake.files import FileChanges, TableFile, commit
from offsetlake.lake.lake import Lake
from offsetlake.log.cluster.admin import ClusterAdmin
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.util.times import now_ms

JOB = "ingest"

_COLUMNS = ("topic", "partition", "start_offset", "end_offset", "asked_timestamp")
_MAX_LISTED = 5  # names in a note


class RequestedEnds(NamedTuple):
    """Rows of `log_ends` as plain JSON without their run, and notes about log end offsets that are unknown."""

    rows: list[list[Any]]
    notes: list[str]


Ask = Callable[[Collection[str]], RequestedEnds]
"""Returns the log end offsets of all partitions of some topics."""


def ask(connection: KafkaConnection, topics: Collection[str]) -> RequestedEnds:
    """Read the log end offsets of all partitions of some topics from a cluster. Errors become notes."""
    if not topics:
        return RequestedEnds([], [])
    try:
        with ClusterAdmin(connection) as admin:
            known = admin.partitions(topics)
            wanted = [(topic, number) for topic, numbers in known.items() for number in numbers]
            timestamp, ends = now_ms(), admin.log_ends(wanted)
            notes = _unknown_topics(admin, set(topics) - known.keys())
    except LogUnavailable as failure:
        return RequestedEnds([], [f"cannot read the log end offsets of topics: {failure}"])
    leaderless = [f"{topic}-{number}" for topic, number in wanted if (topic, number) not in ends]
    not_recorded = [f"{topic}-{number}" for (topic, number), (start, _) in ends.items() if start < 0]
    rows = [[*where, *offsets, timestamp] for where, offsets in ends.items() if offsets[0] >= 0]
    return RequestedEnds(
        rows,
        [
            *notes,
            *_note(leaderless, "the partition has no leader"),
            *_note(not_recorded, "the server does not know it"),
        ],
    )


def _unknown_topics(admin: ClusterAdmin, topics: Collection[str]) -> list[str]:
    if not topics:
        return []
    missing, hidden = admin.missing(topics), admin.hidden(topics)
    return [
        *_note(missing, "the topic was deleted"),
        *_note(hidden, "this principal has no permission; it needs an ACL for DESCRIBE on the topic"),
        *_note(set(topics) - missing - hidden, "the brokers did not return it"),
    ]


def _note(names: Collection[str], reason: str) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - _MAX_LISTED:,} more" if len(names) > _MAX_LISTED else ""
    return [f"the log end offset of {', '.join(islice(sorted(names), _MAX_LISTED))}{more} is unknown: {reason}"]


def stored_topics(lake: Lake) -> set[str]:
    """Return the topics of stored offsets."""
    return set(lake.query("SELECT DISTINCT topic FROM offsets", "offsets")["topic"].to_pylist())


def read_topics(lake: Lake, run_id: int) -> set[str]:
    """Return the topics of the commits that an ingest read."""
    sql = f"SELECT DISTINCT topic FROM offset_commits WHERE ingest_run = {run_id} AND kind = 'commit'"  # noqa: S608
    return set(lake.query(sql, "offset_commits")["topic"].to_pylist())


def record(lake: Lake, run_id: int, rows: Collection[Sequence[Any]]) -> None:
    """Write the log end offsets of an ingest; a resumed run does not replace those that were committed."""
    file = TableFile(lake, "log_ends")
    file.write_rows([{**dict(zip(_COLUMNS, row, strict=True)), "ingest_run": run_id} for row in rows])
    commit(lake, "log_ends", [FileChanges(file.close())], JOB, run_id)
