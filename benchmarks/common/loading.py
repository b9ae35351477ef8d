"""Start with ten million offsets: time until they are served, memory, and fetch latency during a snapshot refresh.

The log contains each offset once, as after compaction by a broker: 100 offsets of each of 100,000 groups. The broker
has been started with the log once before, so that its index files exist.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from common.frames import FETCH_VERSION, commit_frame, fetch_frame
from offsetlake.lake.lake import Lake
from support.broker import workload
from support.broker.broker import Broker
from support.broker.data_folder import put_back
from support.broker.kafka_tools import NEWER
from support.oracle.bulk import write_bulk_log
from support.oracle.encoders import group_log_partition
from support.serve.serving import Serving
from support.serve.wire_client import OFFSET_FETCH, WireClient, read_answer

TOPIC, PARTITIONS, LOG_PARTITIONS = "topic-0", 100, 50
TIMEOUT_SECONDS = 300
Row = tuple[str, str, str, str]
Offsets = Mapping[str, int]
"""The committed offsets of partition 7 by group."""


def one_group_per_log_partition(lake: Lake) -> Offsets:
    rows = lake.query('SELECT group_id, committed_offset FROM offsets WHERE "partition" = 7 ORDER BY 1', "offsets")
    groups = {group_log_partition(row["group_id"], LOG_PARTITIONS): row for row in rows.slice(0, 5000).to_pylist()}
    assert len(groups) == LOG_PARTITIONS
    return {row["group_id"]: row["committed_offset"] for row in groups.values()}


def await_expected(bootstrap: str, expected: Offsets) -> tuple[float, float]:
    """Fetch until all responses are as expected, and return the times of the first and of the last such response."""
    remaining, first = dict(expected), 0.0
    deadline = time.perf_counter() + TIMEOUT_SECONDS
    while remaining:
        assert time.perf_counter() < deadline, f"no correct response for {sorted(remaining)}"
        try:
            with WireClient(bootstrap) as client:
                for group in [*remaining]:
                    client.socket.sendall(fetch_frame(group, TOPIC, [7]))
                    _, answer = read_answer(OFFSET_FETCH, FETCH_VERSION, client.receive())
                    if not answer.error_code and answer.topics[0].partitions[0].committed_offset == remaining[group]:
                        del remaining[group]
                        first = first or time.perf_counter()
        except (OSError, EOFError):
            time.sleep(0.01)
    return first, time.perf_counter()


def resident(process: int) -> int:
    """Return the resident memory of a process in bytes, including mapped files."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) * 1024


def touch_all(bootstrap: str, groups: int) -> None:
    """Fetch every offset of every group, so that the whole snapshot is in memory."""
    batch_size = 100
    with WireClient(bootstrap) as client:
        for start in range(0, groups, batch_size):
            numbers = range(start, min(start + batch_size, groups))
            client.socket.sendall(
                b"".join(fetch_frame(name(number, groups), TOPIC, range(PARTITIONS)) for number in numbers)
            )
            for _ in numbers:
                client.receive()


def name(number: int, groups: int) -> str:
    return f"group-{number:0{len(str(groups - 1))}d}"


class FetchLoop(threading.Thread):
    """Sends sequential fetches until it is stopped; `times` contains the start and duration of each in seconds."""

    def __init__(self, bootstrap: str, group: str) -> None:
        super().__init__()
        self.times: list[tuple[float, float]] = []
        self._address, self._data, self._stopped = bootstrap, fetch_frame(group, TOPIC, [7]), False

    def run(self) -> None:
        with WireClient(self._address) as client:
            while not self._stopped:
                start = time.perf_counter()
                client.socket.sendall(self._data)
                client.receive()
                self.times.append((start, time.perf_counter() - start))

    def __enter__(self) -> "FetchLoop":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self.join()


def percentile_99(durations: list[float]) -> float:
    return sorted(durations)[len(durations) * 99 // 100]


def cycle(lake: Path, log: Path) -> None:
    """Ingest the log and compact the lake in separate processes."""
    for job in (("ingest", "--log", str(log)), ("compact",)):
        command = [sys.executable, "-m", "offsetlake.cli", *job, "--lake", str(lake)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def load_in_broker(folder: Path, log: Path, expected: Offsets) -> tuple[float, float]:
    """Return the seconds from the start of a broker until the first correct response, and until all are correct."""
    folder.mkdir()
    broker = Broker(folder, {"offsets.retention.minutes": str(2**31 - 1)}, NEWER)
    try:
        broker.start()
        workload.create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        workload.member(broker.bootstrap, "first", {(TOPIC, 0): 0}, "classic").close()  # waits for the coordinator
        broker.stop()
        put_back(log, broker.data_dir)
        broker.start()
        await_expected(broker.bootstrap, expected)
        broker.stop()
        start = time.perf_counter()
        broker.start()
        first, last = await_expected(broker.bootstrap, expected)
    finally:
        broker.kill()
    return first - start, last - start


def measure_refresh(serving: Serving, lake: Path, log: Path, groups: int) -> tuple[list[float], list[float]]:
    """Return the latencies of fetches without other load, and during a snapshot refresh, in seconds."""
    with FetchLoop(serving.bootstrap, name(groups // 2, groups)) as undisturbed:
        time.sleep(1)  # warm
        interval = time.perf_counter(), time.perf_counter() + 10
        time.sleep(10)
    with WireClient(serving.bootstrap) as client:
        for number in range(100):
            client.socket.sendall(commit_frame(name(number, groups), TOPIC, [3]))
            client.receive()
    cycle(lake, log)
    with FetchLoop(serving.bootstrap, name(groups // 2, groups)) as concurrent:
        refresh_start, deadline = time.perf_counter(), time.monotonic() + TIMEOUT_SECONDS
        while not any("Refreshed the snapshot" in line for line in serving.said):
            assert time.monotonic() < deadline, serving.said
            time.sleep(0.05)
        time.sleep(0.2)
    return (
        [seconds for start, seconds in undisturbed.times if interval[0] <= start < interval[1]],
        [seconds for start, seconds in concurrent.times if start >= refresh_start + 0.1],
    )


def bench_loading(folder: Path, entries: int) -> Iterator[Row]:
    groups, log, lake = entries // PARTITIONS, folder / "log", folder / "lake"
    write_bulk_log(log, entries, groups=groups, topics=1, partitions=PARTITIONS, in_turn=True)
    cycle(lake, log)
    expected = one_group_per_log_partition(Lake.open(lake))
    broker_first, broker_last = load_in_broker(folder / "broker", log, expected)
    start = time.perf_counter()
    with Serving(lake, log) as serving:
        first, last = (end - start for end in await_expected(serving.bootstrap, expected))
        touch_all(serving.bootstrap, groups)
        memory = resident(serving.process.pid)
        undisturbed, concurrent = measure_refresh(serving, lake, log, groups)
    description = f"{entries / 1e6:g} M offsets"
    yield (
        f"{description}: start until the first correct response",
        f"{first:.1f} s",
        f"{broker_first:.1f} s",
        f"{first / broker_first:.2f}",
    )
    yield (
        f"{description}: start until all offsets were fetched",
        f"{last:.1f} s",
        f"{broker_last:.1f} s",
        f"{last / broker_last:.2f}",
    )
    yield (
        f"{description}: resident memory after all were fetched",
        f"{memory / 2**20:.0f} MB",
        "",
        f"{memory / entries:.1f} bytes per offset",
    )

    undisturbed_99, concurrent_99 = percentile_99(undisturbed) * 1e6, percentile_99(concurrent) * 1e6
    yield (
        "`OffsetFetch` during a snapshot refresh, 99th percentile",
        f"{concurrent_99:.0f} us",
        f"the same before the refresh: {undisturbed_99:.0f} us",
        f"{concurrent_99 / undisturbed_99:.2f}",
    )
