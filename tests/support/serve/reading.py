"""A consumer of librdkafka that reads in a thread while a test changes the cluster."""

import threading
from typing import Any

from confluent_kafka import Consumer

WAIT_SECONDS = 180


class Reading:
    """A subscribed consumer that reads in a thread until `stop`, and commits when there is nothing to read."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "session.timeout.ms": 300_000} | settings)
        self._consumer.subscribe([topic], on_assign=self._assigned)
        self._stopping, self._progress = threading.Event(), threading.Condition()
        self.values: list[int] = []
        self.assignments = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _assigned(self, *_: Any) -> None:
        self.assignments += 1

    def _run(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.2)
            if message is not None and not message.error():
                with self._progress:
                    self.values.append(int(message.value() or b""))
                    self._progress.notify_all()
            elif positions := [
                each for each in self._consumer.position(self._consumer.assignment()) if each.offset >= 0
            ]:
                self._consumer.commit(offsets=positions, asynchronous=True)  # again, in case that the last one failed

    def wait_for(self, count: int) -> None:
        """Wait until so many different values have been read."""
        with self._progress:
            assert self._progress.wait_for(lambda: len({*self.values}) >= count, WAIT_SECONDS), len({*self.values})

    def wait_for_records(self, count: int) -> None:
        """Wait until so many records have been read, some of them again."""
        with self._progress:
            assert self._progress.wait_for(lambda: len(self.values) >= count, WAIT_SECONDS), len(self.values)

    def stop(self) -> None:
        """Leave the group, for which it needs its coordinator; do nothing the second time."""
        if self._thread.is_alive():
            self._stopping.set()
            self._thread.join()
            self._consumer.close()
