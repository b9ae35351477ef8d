"""Where the topics that groups commit to begin and end: asked of a live cluster each cycle, and kept in `log_ends`.

It is asked right behind the ends of the log that is about to be read. So no end is older than the commits it is held
against, and no lag is below zero, unless the topic itself lost records; and hardly newer: asked behind the read, every
lag would be too large by what was written to the topic meanwhile. Only topics of which the lake has no offset yet are
asked for behind it.
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
_NAMED = 5  # names in a note


class RequestedEnds(NamedTuple):
    """What a cluster said: rows of `log_ends`, as plain JSON without their run; and notes on what it did not say."""

    rows: list[list[Any]]
    notes: list[str]


Ask = Callable[[Collection[str]], RequestedEnds]
"""Asks for the ends of all partitions of some topics."""


def ask(connection: KafkaConnection, topics: Collection[str]) -> RequestedEnds:
    """Ask a cluster for the ends of all partitions of some topics. What it does not tell is noted; raises nothing."""
    if not topics:
        return RequestedEnds([], [])
    try:
        with ClusterAdmin(connection) as admin:
            known = admin.partitions(topics)
            wanted = [(topic, number) for topic, numbers in known.items() for number in numbers]
            asked, ends = now_ms(), admin.log_ends(wanted)
            notes = _unknown_topics(admin, set(topics) - known.keys())
    except LogUnavailable as failure:
        return RequestedEnds([], [f"where topics end is not known this time: {failure}"])
    leaderless = [f"{topic}-{number}" for topic, number in wanted if (topic, number) not in ends]
    rows = [[*where, *offsets, asked] for where, offsets in ends.items()]
    return RequestedEnds(rows, [*notes, *_note(leaderless, "the partition has no leader")])


def _unknown_topics(admin: ClusterAdmin, topics: Collection[str]) -> list[str]:
    if not topics:
        return []
    missing, hidden = admin.missing(topics), admin.hidden(topics)
    return [
        *_note(missing, "there is no such topic any more"),
        *_note(hidden, "this user has no right to see the topic; an ACL for DESCRIBE on it is needed"),
        *_note(set(topics) - missing - hidden, "the brokers do not tell"),
    ]


def _note(names: Collection[str], why: str) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return [f"the end of {', '.join(islice(sorted(names), _NAMED))}{more} is not known: {why}"]


def stored_topics(lake: Lake) -> set[str]:
    """Give the topics of the offsets that the last compaction left."""
    return set(lake.query("SELECT DISTINCT topic FROM offsets", "offsets")["topic"].to_pylist())


def read_topics(lake: Lake, run_id: int) -> set[str]:
    """Give the topics of the commits that an ingest has read."""
    sql = f"SELECT DISTINCT topic FROM offset_commits WHERE ingest_run = {run_id} AND kind = 'commit'"  # noqa: S608
    return set(lake.query(sql, "offset_commits")["topic"].to_pylist())


def record(lake: Lake, run_id: int, rows: Collection[Sequence[Any]]) -> None:
    """Write what an ingest was told, once: done again, the first answers stay."""
    file = TableFile(lake, "log_ends")
    file.write_rows([{**dict(zip(_COLUMNS, row, strict=True)), "ingest_run": run_id} for row in rows])
    commit(lake, "log_ends", [FileChanges(file.close())], JOB, run_id)
