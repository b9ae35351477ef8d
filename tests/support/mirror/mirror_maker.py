"""MirrorMaker 2 between two brokers, in a process of its own."""

import struct
import subprocess
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaException, TopicPartition

from support.broker.broker import START_SECONDS, Broker, BrokerFailedError
from support.broker.kafka_tools import mirror_maker

SOURCE, TARGET = "east", "west"
"""The aliases of the clusters."""


class MirrorMaker:
    """Replicates topics from one broker to another, inside `with`.

    Offset syncs, which are at the target, and checkpoints are written every second. `settings` are
    properties of MirrorMaker 2 by name.
    """

    def __init__(
        self, folder: Path, source: Broker, target: Broker, topics: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self._target, self._log = target, folder / "mirror-maker.log"
        self._properties = folder / "mirror-maker.properties"
        flow = f"{SOURCE}->{TARGET}"
        properties = {
            "clusters": f"{SOURCE},{TARGET}",
            f"{SOURCE}.bootstrap.servers": source.bootstrap,
            f"{TARGET}.bootstrap.servers": target.bootstrap,
            f"{flow}.enabled": "true",
            f"{flow}.topics": topics,
            f"{flow}.offset-syncs.topic.location": "target",
            "replication.factor": "1",
            **{f"{name}.topic.replication.factor": "1" for name in ("checkpoints", "heartbeats", "offset-syncs")},
            **{f"{name}.storage.replication.factor": "1" for name in ("offset", "status", "config")},
            **{f"{name}.interval.seconds": "1" for name in ("emit.checkpoints", "refresh.groups", "refresh.topics")},
            f"{TARGET}.offset.flush.interval.ms": "1000",
            **(settings or {}),
        }
        self._properties.write_text("".join(f"{name} = {value}\n" for name, value in properties.items()))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                mirror_maker(str(self._properties)), stdout=log, stderr=subprocess.STDOUT, cwd=self._log.parent
            )
        return self

    def kill(self) -> None:
        """End the process at once, as a crash does; nothing to do if it is not running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def await_syncs(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Wait until the offset syncs, which are at the target, contain the last record of each partition."""
        syncs = TopicPartition(f"mm2-offset-syncs.{SOURCE}.internal", 0, 0)
        newest: dict[tuple[str, int], int] = {}
        with closing(Consumer({"bootstrap.servers": self._target.bootstrap, "group.id": "unused"})) as consumer:
            consumer.assign([syncs])
            deadline = time.monotonic() + START_SECONDS
            while any(newest.get(partition, -1) < end - 1 for partition, end in ends.items()):
                if time.monotonic() >= deadline:
                    raise BrokerFailedError(f"the newest offset syncs are {newest}")
                if (message := consumer.poll(0.1)) is not None and not message.error():
                    key, value = message.key() or b"", message.value() or b""
                    (number,) = struct.unpack(">i", key[-4:])
                    newest[key[2:-4].decode(), number] = struct.unpack(">q", value[:8])[0]

    def await_end(self, topic: str, partition: int, end: int) -> None:
        """Wait until a partition at the target has a log end offset."""
        assert self._process is not None
        consumer = Consumer({"bootstrap.servers": self._target.bootstrap, "group.id": "unused"})
        deadline, reached = time.monotonic() + START_SECONDS, -1
        try:
            while time.monotonic() < deadline:
                if self._process.poll() is not None:
                    break
                if topic in consumer.list_topics(timeout=60).topics:
                    with suppress(KafkaException):  # the leader of a new partition is not known at once
                        _, reached = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)
                    if reached >= end:
                        return
                time.sleep(0.1)  # the interval between polls
        finally:
            consumer.close()
        log = "\n".join(self._log.read_text(errors="replace").splitlines()[-60:])
        raise BrokerFailedError(f"{topic}-{partition} ends at {reached}, not at {end}\n{log}")
