"""Throughput of Fetch over one connection, from the serving process and from a broker with the same log.

`python benchmarks/fetching.py [COMMITS]`, with `lib` and `tests` on PYTHONPATH, prints the MB/s of a first read, during
which the server reads the headers of the record batches, and of a second one; then the latency of commits with and
without a consumer that follows all log partitions.
"""

import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from common.frames import commit_frame
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.log.cluster.topic import describe, fetch
from offsetlake.log.positions import OFFSETS_TOPIC
from support.broker import workload
from support.broker.broker import Broker
from support.broker.data_folder import put_back
from support.oracle.bulk import write_bulk_log
from support.serve.serving import Serving
from support.serve.wire_client import WireClient

DEFAULT_COMMITS = 2_000_000
MAX_FETCH_BYTES = 1 << 20


def read_all(bootstrap: str) -> tuple[int, float]:
    """Read the whole log, and return its bytes and the seconds."""
    connection = KafkaConnection.from_settings({"bootstrap.servers": bootstrap})
    ranges = describe(connection, [OFFSETS_TOPIC]).ranges
    start = time.perf_counter()
    size = sum(len(data) for _, data in fetch(connection, [*ranges.items()], MAX_FETCH_BYTES))
    return size, time.perf_counter() - start


def follow(bootstrap: str, done: threading.Event) -> None:
    """Consume new records of all log partitions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "follower", "enable.auto.commit": False})
    consumer.assign([TopicPartition(OFFSETS_TOPIC, partition, OFFSET_END) for partition in range(50)])
    while not done.is_set():
        consumer.consume(1000, 0.1)
    consumer.close()


def commit_times(bootstrap: str, count: int = 3000) -> list[float]:
    """Commit one offset at a time, and return the sorted latencies in seconds."""
    times = []
    with WireClient(bootstrap) as client:
        for number in range(count):
            request = commit_frame(f"bench-{number % 50}", "topic-0", [0])
            start = time.perf_counter()
            client.socket.sendall(request)
            client.receive()
            times.append(time.perf_counter() - start)
    return sorted(times)


def measure(name: str, bootstrap: str) -> None:
    for ordinal in ("first", "second"):
        size, seconds = read_all(bootstrap)
        print(f"{name}, {ordinal} read: {size / 1e6:.0f} MB, {size / seconds / 1e6:.0f} MB/s")
    undisturbed, done = commit_times(bootstrap), threading.Event()
    follower = threading.Thread(target=follow, args=(bootstrap, done))
    follower.start()
    time.sleep(2)
    followed = commit_times(bootstrap)
    done.set()
    follower.join()
    for condition, times in (("without a follower", undisturbed), ("with a follower", followed)):
        print(
            f"{name}, commit {condition}: p50 {median(times) * 1e6:.0f} us, p99 {times[-len(times) // 100] * 1e6:.0f} us"
        )


def main() -> None:
    commits = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_COMMITS
    for records in (1, 175):
        print(f"{commits} commits, {records} per record batch")
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            (folder / "broker").mkdir()
            write_bulk_log(folder / "log", commits, groups=1000, topics=1, partitions=100, records_per_batch=records)
            with Broker(folder / "broker") as broker:
                workload.create_topic(broker.bootstrap, "topic-0", 100)
                workload.simple_commit(broker.bootstrap, "creates-the-topic", {("topic-0", 0): 1})
                broker.stop()
                put_back(folder / "log", broker.data_dir)
                broker.start()
                measure("broker", broker.bootstrap)
            with Serving(folder / "lake", folder / "log") as serving:
                measure("offsetlake", serving.bootstrap)


if __name__ == "__main__":
    main()
