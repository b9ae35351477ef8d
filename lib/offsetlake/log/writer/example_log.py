"""Writes the example log: a small log that offsetlake owns, for the examples of the documents.

| group          | history |
|----------------|---------|
| billing        | two consumers commit orders:0 in turns; User:carol sends the lower offsets from a tool |
| search         | commits one offset of orders:1 again and again; its offset of orders:2 is ten days old |
| old-billing    | has committed nothing for three days |
| nightly-report | committed once, and its offsets were then tombstoned |
"""

from collections.abc import Iterable
from pathlib import Path

from offsetlake.errors import BadRequest
from offsetlake.kafka.audit.headers import COMMIT, audit_headers
from offsetlake.kafka.batches.writer import NO_HEADERS, Record, record_batch
from offsetlake.kafka.commits.encoding import offset_commit_key, offset_commit_value
from offsetlake.kafka.placement import partition_for_group
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.log.writer.appending import appending
from offsetlake.util.times import to_ms

LOG_PARTITIONS = 50  # the default of `serve`
START_MS = to_ms("2026-01-31T14:00")
LATER = "2026-01-31T15:00"  # when the examples of the documents evaluate the retention of the log
DAY_S = 86_400
BY_CAROL = audit_headers(COMMIT, "User:carol", b"backfill", "10.0.0.8:51234")

Commit = tuple[int, str, str, int, int | None]
"""Seconds since START_MS, group, topic, partition, and the committed offset; None writes a tombstone."""

COMMITS: list[Commit] = [
    (-10 * DAY_S, "search", "orders", 2, 70),
    (-3 * DAY_S, "old-billing", "orders", 0, 77),
    (-3 * DAY_S, "old-billing", "orders", 1, 78),
    (-7200, "nightly-report", "orders", 0, 640),
    (-7200, "nightly-report", "orders", 1, 655),
    (-3600, "nightly-report", "orders", 0, None),
    (-3600, "nightly-report", "orders", 1, None),
    (-60, "billing", "orders-v1", 0, 310),
    *((second, "billing", "orders", 0, value) for second, value in ((0, 1000), (5, 1040))),
    *((second, "search", "orders", 1, 500) for second in (0, 5, 10, 15)),
    (6, "billing", "orders", 0, 960),
    (10, "billing", "orders", 0, 1080),
    (11, "billing", "orders", 0, 990),
    (15, "billing", "orders", 0, 1120),
    (20, "billing", "orders", 1, 900),
]
FROM_THE_TOOL = {("billing", 960), ("billing", 990)}


def record(timestamp_ms: int, topic: str, partition: int, group: str, offset: int | None) -> Record:
    """Return an offset commit, or the tombstone of one, as a key and a value."""
    key = offset_commit_key(group.encode(), topic.encode()) + partition.to_bytes(4, "big")
    return key, None if offset is None else offset_commit_value(offset, -1, b"", timestamp_ms, -1, ZERO_UUID)


def write(folder: Path, commits: Iterable[Commit]) -> None:
    """Append each commit to the log partition of its group, in a record batch of its own."""
    with appending(folder, "example") as log:
        for second, group, topic, partition, offset in commits:
            timestamp_ms = START_MS + second * 1000
            headers = BY_CAROL if (group, offset) in FROM_THE_TOOL else NO_HEADERS
            batch = record_batch(timestamp_ms, [record(timestamp_ms, topic, partition, group, offset)], headers)
            log.append(partition_for_group(group, LOG_PARTITIONS), [batch])
        log.sync()


def write_example(folder: Path) -> None:
    """Create a folder with the example log. Raises BadRequest if it exists or cannot be created."""
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise BadRequest(f"Cannot create the folder {folder}: {error.strerror}. Choose a new folder.") from error
    write(folder, COMMITS)
