"""What goes on beside the clients of a mixed load: a reader that follows the log, and jobs that read it and cut it."""

import struct
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Message, TopicPartition

from mixed_wire import Sums, Told
from offsetlake.lake.lake import Lake
from offsetlake.log.positions import OFFSETS_TOPIC
from offsetlake.pipeline.maintain.job import maintain
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Event

REPORT_SECONDS = 5.0
QUIET_SECONDS = 3.0  # without a record: all of the log is read
VACUUM_RETENTION_MS = 600_000  # longer than a reader of the tables lives
MOST_WRONG = 20


class Follower:
    """Reads what the log says committed, from its beginning on; each group's numbers must rise, so none comes twice."""

    def __init__(self, bootstrap: str, log_partitions: int) -> None:
        self.told, self.sums = Told("follower"), dict[int, Sums]()
        self._newest: dict[str, int] = {}
        settings = {"bootstrap.servers": bootstrap, "group.id": "follows", "enable.auto.commit": False}
        of_reads = {"isolation.level": "read_committed", "auto.offset.reset": "error"}
        self._consumer = Consumer(settings | of_reads)
        self._consumer.assign([TopicPartition(OFFSETS_TOPIC, partition, 0) for partition in range(log_partitions)])

    def read(self) -> bool:
        """Read on; gives whether there was anything."""
        messages = self._consumer.consume(2000, 0.2)
        for message in messages:
            if message.error():
                self.told.wrong.append(f"follower: {message.error()}")
            else:
                self._take(message)
        return bool(messages)

    def _take(self, message: Message) -> None:
        key, value = message.key(), message.value()
        self.told.asked["records of the log followed"] += 1
        assert isinstance(key, bytes)
        if value is None or struct.unpack_from(">h", key)[0] not in (0, 1):
            return
        (size,) = struct.unpack_from(">h", key, 2)
        group, (number,) = key[4 : 4 + size].decode(), struct.unpack_from(">q", value, 2)
        client = int(group.split("-")[1])
        if number <= self._newest.get(group, 0):
            self.told.wrong.append(f"follower: {number} of {group} behind {self._newest[group]}")
        self._newest[group] = number
        self.sums.setdefault(client, Sums()).add(number)

    def close(self) -> None:
        self._consumer.close()


def follow(bootstrap: str, log_partitions: int, done: "Event", tells: "Queue[Told]") -> None:
    """Follow the log until all is done and read; tells at last what each client has committed."""
    follower = Follower(bootstrap, log_partitions)
    reported = quiet_since = time.monotonic()
    try:
        while not done.is_set() or time.monotonic() - quiet_since < QUIET_SECONDS:
            if follower.read():
                quiet_since = time.monotonic()
            if time.monotonic() - reported >= REPORT_SECONDS:
                follower.told.wrong = follower.told.wrong[:MOST_WRONG]
                tells.put(follower.told)
                follower.told, reported = Told("follower"), time.monotonic()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        follower.told.wrong.append(f"follower ended: {error!r}")
    follower.told.sums = follower.sums
    tells.put(follower.told)
    follower.close()


def look_after(lake: str, log: str, tells: "Queue[Told]") -> None:
    """Read the log into the lake, compact it, and cut from the log what is not needed any more."""
    told = Told("jobs")
    try:
        of = Lake.open(Path(lake))
        cycle(InProcess(), of, Path(log))
        counts = maintain(of, Path(log), VACUUM_RETENTION_MS, lambda _: None).counts
        told.asked = Counter({"cycles of jobs": 1, "segments cut": counts["segments_deleted"]})
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        told.wrong.append(f"jobs: {error!r}")
    tells.put(told)
