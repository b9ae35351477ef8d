"""How fast the log is read by raw Fetch: from the serving process and from a broker with the same log, one connection.

`python benchmarks/fetching.py [COMMITS]`, `tests` on the path: MB/s of a first read, when headers are looked at, and of
a second one; and the time a commit takes while somebody follows all log partitions.
"""

import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from frames import commit_frame
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.log.cluster.topic import describe, fetch
from offsetlake.log.positions import OFFSETS_TOPIC
from support.broker import workload
from support.broker.broker import Broker
from support.broker.data_folder import put_back
from support.oracle.bulk import write_bulk_log
from support.serve.serving import Serving
from support.serve.wire_client import WireClient

COMMITS, AT_ONCE = 2_000_000, 1 << 20


def read_all(bootstrap: str) -> tuple[int, float]:
    """Read the whole log; gives bytes and seconds."""
    connection = KafkaConnection.from_settings({"bootstrap.servers": bootstrap})
    ranges = describe(connection, [OFFSETS_TOPIC]).ranges
    begun = time.perf_counter()
    size = sum(len(data) for _, data in fetch(connection, [*ranges.items()], AT_ONCE))
    return size, time.perf_counter() - begun


def follow(bootstrap: str, done: threading.Event) -> None:
    """Read on at the ends of all log partitions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "follows", "enable.auto.commit": False})
    consumer.assign([TopicPartition(OFFSETS_TOPIC, partition, OFFSET_END) for partition in range(50)])
    while not done.is_set():
        consumer.consume(1000, 0.1)
    consumer.close()


def commit_times(bootstrap: str, count: int = 3000) -> list[float]:
    """Commit one after the other; gives the seconds of each, in order of size."""
    times = []
    with WireClient(bootstrap) as client:
        for number in range(count):
            sent = commit_frame(f"bench-{number % 50}", "topic-0", [0])
            begun = time.perf_counter()
            client.socket.sendall(sent)
            client.receive()
            times.append(time.perf_counter() - begun)
    return sorted(times)


def measure(name: str, bootstrap: str) -> None:
    for which in ("first", "second"):
        size, took = read_all(bootstrap)
        print(f"{name}, {which} read: {size / 1e6:.0f} MB, {size / took / 1e6:.0f} MB/s")
    quiet, done = commit_times(bootstrap), threading.Event()
    follower = threading.Thread(target=follow, args=(bootstrap, done))
    follower.start()
    time.sleep(2)
    followed = commit_times(bootstrap)
    done.set()
    follower.join()
    for what, times in (("alone", quiet), ("while the log is followed", followed)):
        print(
            f"{name}, a commit {what}: p50 {median(times) * 1e6:.0f} us, p99 {times[-len(times) // 100] * 1e6:.0f} us"
        )


def main() -> None:
    commits = int(sys.argv[1]) if len(sys.argv) > 1 else COMMITS
    for records in (1, 175):
        print(f"{commits} commits, {records} a batch")
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            (folder / "broker").mkdir()
            write_bulk_log(folder / "log", commits, groups=1000, topics=1, partitions=100, records_per_batch=records)
            with Broker(folder / "broker") as broker:
                workload.create_topic(broker.bootstrap, "topic-0", 100)
                workload.simple_commit(broker.bootstrap, "makes-the-topic", {("topic-0", 0): 1})
                broker.stop()
                put_back(folder / "log", broker.data_dir)
                broker.start()
                measure("broker", broker.bootstrap)
            with Serving(folder / "lake", folder / "log") as serving:
                measure("offsetlake", serving.bootstrap)


if __name__ == "__main__":
    main()
