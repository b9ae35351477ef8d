"""Reads the log start and end offsets of the topics that groups read from a live cluster into `log_ends`.

These are the topics of stored offsets, those that members of groups are subscribed to, and those of the share
partitions of share groups.

They are read directly after the end of the log to ingest is determined. No log end offset is therefore older than the
commits that it is compared with, so that no committed offset is greater unless the topic lost records; and hardly
newer, which would increase every lag by what was written meanwhile. Only new topics are read after the ingest.
"""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.compute as pc
import pyarrow.dataset as ds

from offsetlake.errors import LogBusy, LogUnavailable
from offsetlake.kafka.records.coordinator_records import OffsetsRecordType
from offsetlake.lake.files import FileChanges, TableFile, commit, committed
from offsetlake.lake.history.history_files import file_dataset, history_files
from offsetlake.lake.lake import Lake
from offsetlake.lake.log_ends import first_timestamps, newest_asked, rows_until
from offsetlake.lake.state_files import share_topics, stored_topics, subscribed_topics, topics_of_share_record
from offsetlake.log.cluster.admin_client import cluster_admin
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.log.writer.served_log import served
from offsetlake.rules.groups import subscriptions
from offsetlake.util.times import now_ms

if TYPE_CHECKING:
    from offsetlake.log.cluster.admin import ClusterAdmin

JOB = "ingest"

MAX_ASKS = 300
"""Ingests without a complete record after which the next one writes it: a day of cycles of five minutes.

Together with MAX_CHANGES, it limits what has to be read to know the current offsets.
"""

MAX_CHANGES = 10_000
"""Rows since the last complete record, beyond one per partition, after which the next ingest writes one."""

MAX_GROUP_RECORDS = 20_000
"""Group records of an ingest that are searched for new topics, in about a second; the next ingest knows the others."""

_COLUMNS = ("topic", "partition", "start_offset", "end_offset", "asked_timestamp", "topic_id")
_COMPARED = ("start_offset", "end_offset", "topic_id")
_ASKED = _COLUMNS.index("asked_timestamp")
_BATCH_ROWS = 4096  # of group records, whose values contain all members
_MAX_LISTED = 5  # names in a note


class RequestedEnds(NamedTuple):
    """The answer of a cluster.

    | Field           | Description |
    |-----------------|-------------|
    | rows            | The values of `_COLUMNS` for each partition, as plain JSON; the topic ID may be omitted. |
    | notes           | Notes about log end offsets that are unknown. |
    | asked_timestamp | When the cluster answered, in ms since the epoch; None if it was not asked or knew nothing. |
    """

    rows: list[list[Any]]
    notes: list[str]
    asked_timestamp: int | None = None


Ask = Callable[[Collection[str]], RequestedEnds]
"""Returns the log end offsets of all partitions of some topics."""


def ask(connection: KafkaConnection, topics: Collection[str]) -> RequestedEnds:
    """Read the log end offsets of all partitions of some topics from a cluster. Errors become notes."""
    if not topics:
        return RequestedEnds([], [])
    try:
        with cluster_admin(connection) as admin:
            known = admin.topics(topics)
            wanted = [(name, number) for name, topic in known.items() for number in topic.partitions]
            timestamp, ends = now_ms(), admin.log_ends(wanted)
            notes = _unknown_topics(admin, set(topics) - known.keys())
    except LogUnavailable as failure:
        return RequestedEnds([], [f"cannot read the log end offsets of topics: {failure}"])
    leaderless = [f"{topic}-{number}" for topic, number in wanted if (topic, number) not in ends]
    not_recorded = [f"{topic}-{number}" for (topic, number), (start, _) in ends.items() if start < 0]
    rows = [
        [*where, *offsets, timestamp, known[where[0]].topic_id] for where, offsets in ends.items() if offsets[0] >= 0
    ]
    return RequestedEnds(
        rows,
        [
            *notes,
            *_note(leaderless, "the partition has no leader"),
            *_note(not_recorded, "the server does not know it"),
        ],
        timestamp if rows or not not_recorded else None,
    )


def ask_node(log: Path, topics: Collection[str]) -> RequestedEnds:
    """Read the log end offsets as `ask`, from the process that serves the log of a node of a cluster."""
    if not topics:
        return RequestedEnds([], [])
    try:
        with served(log) as node:
            timestamp, ends = now_ms(), None if node is None else node.topic_ends(topics)
    except (LogUnavailable, LogBusy) as failure:
        return RequestedEnds([], [f"cannot read the log end offsets of topics: {failure}"])
    if ends is None:
        return RequestedEnds([], ["cannot read the log end offsets of topics: `offsetlake serve` does not run"])
    rows: list[list[Any]] = []
    silent = []
    for topic, partitions in ends.items():
        for number, offsets in enumerate(partitions):
            if offsets is None:
                silent.append(f"{topic}-{number}")
            else:
                rows.append([topic, number, *offsets, timestamp])
    missing = _note(set(topics) - ends.keys(), "the metadata of the cluster does not contain the topic")
    return RequestedEnds(rows, [*missing, *_note(silent, "its leader did not return it")], timestamp)


def _unknown_topics(admin: "ClusterAdmin", topics: Collection[str]) -> list[str]:
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


def known_topics(lake: Lake) -> set[str]:
    """Return the topics whose log end offsets are recorded, as far as the tables of the lake name them."""
    return stored_topics(lake) | subscribed_topics(lake) | share_topics(lake)


def read_topics(lake: Lake, run_id: int) -> set[str]:
    """Return the topics of the commits, of subscriptions, and of the share partitions that an ingest read."""
    of_run = pc.field("ingest_run") == run_id
    commits = _files_of_run(lake, "offset_commits", run_id).to_batches(
        ["topic"], filter=of_run & (pc.field("kind") == "commit")
    )
    topics = {topic for rows in commits for topic in pc.unique(rows[0]).to_pylist()}
    named = of_run & pc.field("record_type").isin([*_TOPICS]) & pc.field("value").is_valid()
    batches = _files_of_run(lake, "group_records", run_id).to_batches(
        columns=["record_type", "value"], filter=named, batch_size=_BATCH_ROWS, batch_readahead=1, fragment_readahead=1
    )
    records = (record for batch in batches for record in zip(*batch.to_pydict().values(), strict=True))
    for record_type, value in islice(records, MAX_GROUP_RECORDS):
        topics.update(_TOPICS[record_type](json.loads(value)))
    return topics


_TOPICS: dict[int, Callable[[Any], Collection[str]]] = {
    OffsetsRecordType.GROUP_METADATA: lambda value: subscriptions.of_classic_group(value).topics,
    OffsetsRecordType.CONSUMER_GROUP_MEMBER_METADATA: lambda value: value["subscribedTopicNames"],
    OffsetsRecordType.CONSUMER_GROUP_REGULAR_EXPRESSION: lambda value: value["topics"],
    OffsetsRecordType.STREAMS_GROUP_TOPOLOGY: lambda value: subscriptions.of_topology(value).topics,
    OffsetsRecordType.SHARE_GROUP_STATE_PARTITION_METADATA: topics_of_share_record,
}
"""Returns the topics that a value names, by its record type."""


def _files_of_run(lake: Lake, table: str, run_id: int) -> ds.Dataset:
    paths = [file.path for file in history_files(lake, table, run_id, run_id)]
    return file_dataset(lake, table, paths, dictionaries=table == "offset_commits")


def record(lake: Lake, run_id: int, answers: Collection[Sequence[Any]], asked_timestamp: int | None = None) -> None:
    """Write what changed in the log end offsets; a resumed run does not replace those that were committed.

    Args:
        lake: The lake.
        run_id: The ingest.
        answers: The values of `_COLUMNS` for each partition that the cluster returned.
        asked_timestamp: When the cluster was asked for the topics of stored offsets, in ms since the epoch; None if it
            was not, or did not answer. Answers with another timestamp are written even if nothing changed.

    """
    asked = min((row[_ASKED] for row in answers), default=None) if asked_timestamp is None else asked_timestamp
    if asked is None or committed(lake, "log_ends", JOB, run_id):
        return
    former = _read_former(lake)
    if not answers and not former.partitions:
        return
    shared = {"ingest_run": run_id, "complete_run": run_id if former.is_due else former.complete_run}
    file = TableFile(lake, "log_ends")
    file.write_rows([{"asked_timestamp": asked, **row, **shared} for row in ({}, *_changes(former, asked, answers))])
    commit(lake, "log_ends", [FileChanges(file.close())], JOB, run_id)


@dataclass(frozen=True, slots=True)
class _Former:
    """The contents of `log_ends` before an ingest.

    | Field        | Description |
    |--------------|-------------|
    | partitions   | The newest row of each partition by topic and partition; null offsets if it no longer existed. |
    | complete_run | The newest run that recorded every partition. |
    | is_due       | Whether the next ingest writes a complete record. |
    """

    partitions: dict[tuple[str, int], dict[str, Any]]
    complete_run: int
    is_due: bool


def _read_former(lake: Lake) -> _Former:
    run = newest_asked(lake)
    if run is None:
        return _Former({}, 0, is_due=True)
    rows = rows_until(lake, run, run)
    partitions = {(row["topic"], row["partition"]): row for row in rows.latest().to_pylist()}
    if not rows.asks.num_rows:  # recorded before lake version 7
        gone = {"ingest_run": 0, **dict.fromkeys(_COMPARED)}
        for key, first in first_timestamps(lake).items():
            partitions[key] = {**partitions.get(key, gone), "first_timestamp": first}
        return _Former(partitions, rows.first, is_due=True)
    is_due = rows.asks.num_rows >= MAX_ASKS or rows.changes.num_rows >= 2 * len(partitions) + MAX_CHANGES
    return _Former(partitions, rows.first, is_due)


def _changes(former: _Former, asked: int, answers: Collection[Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield the rows of the partitions that changed or no longer exist, or of all for a complete record.

    A complete record also repeats the partitions that disappeared since the one before, in case that they return; a
    partition that returns later is recorded as a new one.
    """
    missing = dict(former.partitions)
    for answer in answers:
        row = {"topic_id": None, **dict(zip(_COLUMNS, answer, strict=False))}  # plans of older versions have no ID
        previous = missing.pop((row["topic"], row["partition"]), None)
        same = previous is not None and all(previous[name] == row[name] for name in _COMPARED)
        if former.is_due or not same or row["asked_timestamp"] != asked:
            yield row | {"first_timestamp": previous["first_timestamp"] if previous else row["asked_timestamp"]}
    for (topic, partition), previous in missing.items():
        existed = previous["end_offset"] is not None
        if existed or (former.is_due and previous["ingest_run"] != former.complete_run):
            yield {"topic": topic, "partition": partition, "first_timestamp": previous["first_timestamp"]}
