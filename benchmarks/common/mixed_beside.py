"""Processes that run in addition to the clients of the mixed load: a consumer of the log, and the jobs."""

import struct
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Message, TopicPartition

from common.mixed_wire import Checksum, Progress
from offsetlake.lake.lake import Lake
from offsetlake.lake.upkeep import VacuumRetention
from offsetlake.log.positions import OFFSETS_TOPIC
from offsetlake.pipeline.maintain.job import maintain
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Event

REPORT_SECONDS = 5.0
IDLE_SECONDS = 3.0  # without a record, after which the log is considered to be read completely
VACUUM_RETENTION = VacuumRetention(600_000, 600_000)  # longer than any reader of the tables runs
MAX_WRONG_ANSWERS = 20


class Follower:
    """Reads the committed offsets in the log from its beginning; those of a group must increase, so that none is repeated."""

    def __init__(self, bootstrap: str, log_partitions: int) -> None:
        self.progress, self.checksums = Progress("follower"), dict[int, Checksum]()
        self._newest: dict[str, int] = {}
        settings = {"bootstrap.servers": bootstrap, "group.id": "follower", "enable.auto.commit": False}
        reads = {"isolation.level": "read_committed", "auto.offset.reset": "error"}
        self._consumer = Consumer(settings | reads)
        self._consumer.assign([TopicPartition(OFFSETS_TOPIC, partition, 0) for partition in range(log_partitions)])

    def read(self) -> bool:
        """Read new records, and return whether there were any."""
        messages = self._consumer.consume(2000, 0.2)
        for message in messages:
            if message.error():
                self.progress.wrong_answers.append(f"follower: {message.error()}")
            else:
                self._process(message)
        return bool(messages)

    def _process(self, message: Message) -> None:
        key, value = message.key(), message.value()
        self.progress.counts["log records consumed"] += 1
        assert isinstance(key, bytes)
        if value is None or struct.unpack_from(">h", key)[0] not in (0, 1):
            return
        (size,) = struct.unpack_from(">h", key, 2)
        group, (number,) = key[4 : 4 + size].decode(), struct.unpack_from(">q", value, 2)
        client = int(group.split("-")[1])
        if number <= self._newest.get(group, 0):
            self.progress.wrong_answers.append(f"follower: offset {number} of {group} after {self._newest[group]}")
        self._newest[group] = number
        self.checksums.setdefault(client, Checksum()).add(number)

    def close(self) -> None:
        self._consumer.close()


def follow(bootstrap: str, log_partitions: int, done: "Event", reports: "Queue[Progress]") -> None:
    """Follow the log until the clients are done and all is read; the last report has the checksum of each client."""
    follower = Follower(bootstrap, log_partitions)
    reported = last_record = time.monotonic()
    try:
        while not done.is_set() or time.monotonic() - last_record < IDLE_SECONDS:
            if follower.read():
                last_record = time.monotonic()
            if time.monotonic() - reported >= REPORT_SECONDS:
                follower.progress.wrong_answers = follower.progress.wrong_answers[:MAX_WRONG_ANSWERS]
                reports.put(follower.progress)
                follower.progress, reported = Progress("follower"), time.monotonic()
    except Exception as error:  # noqa: BLE001 - every error is reported
        follower.progress.wrong_answers.append(f"follower ended: {error!r}")
    follower.progress.checksums = follower.checksums
    reports.put(follower.progress)
    follower.close()


def run_jobs(lake_path: str, log: str, reports: "Queue[Progress]") -> None:
    """Ingest the log, compact the lake, and delete log segments that are no longer needed."""
    progress = Progress("jobs")
    try:
        lake = Lake.open(Path(lake_path))
        cycle(InProcess(), lake, Path(log))
        counts = maintain(lake, Path(log), VACUUM_RETENTION, lambda _: None).counts
        progress.counts = Counter({"job cycles": 1, "segments deleted": counts["segments_deleted"]})
    except Exception as error:  # noqa: BLE001 - every error is reported
        progress.wrong_answers.append(f"jobs: {error!r}")
    reports.put(progress)
