"""Ten million offsets: how soon they are served, what they take, and what a newer snapshot costs the answers meanwhile.

The log has each offset once, 100 of each of 100,000 groups: as a broker's cleaner leaves it. The broker has started
with it once before, so that its indexes are there.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from frames import FETCH_VERSION, commit_frame, fetch_frame
from offsetlake.lake.lake import Lake
from support.broker import workload
from support.broker.broker import Broker
from support.broker.data_folder import put_back
from support.oracle.bulk import write_bulk_log
from support.oracle.encoders import group_log_partition
from support.serve.serving import Serving
from support.serve.wire_client import OFFSET_FETCH, WireClient, read_answer

TOPIC, PARTITIONS, LOG_PARTITIONS = "topic-0", 100, 50
PATIENCE = 300  # seconds
Row = tuple[str, str, str, str]
Offsets = Mapping[str, int]
"""Of some groups what they have committed of partition 7."""


def one_group_a_log_partition(lake: Lake) -> Offsets:
    rows = lake.query('SELECT group_id, committed_offset FROM offsets WHERE "partition" = 7 ORDER BY 1', "offsets")
    found = {group_log_partition(row["group_id"], LOG_PARTITIONS): row for row in rows.slice(0, 5000).to_pylist()}
    assert len(found) == LOG_PARTITIONS
    return {row["group_id"]: row["committed_offset"] for row in found.values()}


def until_right(bootstrap: str, expected: Offsets) -> tuple[float, float]:
    """Ask until the answers are right; gives the instants of the first right one and of the last."""
    wrong, first = dict(expected), 0.0
    deadline = time.perf_counter() + PATIENCE
    while wrong:
        assert time.perf_counter() < deadline, f"no right answer for {sorted(wrong)}"
        try:
            with WireClient(bootstrap) as client:
                for group in [*wrong]:
                    client.socket.sendall(fetch_frame(group, TOPIC, [7]))
                    _, answer = read_answer(OFFSET_FETCH, FETCH_VERSION, client.receive())
                    if not answer.error_code and answer.topics[0].partitions[0].committed_offset == wrong[group]:
                        del wrong[group]
                        first = first or time.perf_counter()
        except (OSError, EOFError):
            time.sleep(0.01)
    return first, time.perf_counter()


def resident(process: int) -> int:
    """Bytes a process has in memory, mapped files included."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) * 1024


def touch_all(bootstrap: str, groups: int) -> None:
    """Fetch every offset of every group, so that all that is served is in memory."""
    depth = 100
    with WireClient(bootstrap) as client:
        for start in range(0, groups, depth):
            wanted = range(start, min(start + depth, groups))
            client.socket.sendall(
                b"".join(fetch_frame(name(number, groups), TOPIC, range(PARTITIONS)) for number in wanted)
            )
            for _ in wanted:
                client.receive()


def name(number: int, groups: int) -> str:
    return f"group-{number:0{len(str(groups - 1))}d}"


class Asking(threading.Thread):
    """Asks one request after the other until it is stopped; `times` has begin and duration of each, in seconds."""

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

    def __enter__(self) -> "Asking":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self.join()


def percentile_99(durations: list[float]) -> float:
    return sorted(durations)[len(durations) * 99 // 100]


def cycle(lake: Path, log: Path) -> None:
    """Bring the lake up to the log, in processes of their own."""
    for job in (("ingest", "--log", str(log)), ("compact",)):
        command = [sys.executable, "-m", "offsetlake.cli", *job, "--lake", str(lake)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def brokers_load(folder: Path, log: Path, expected: Offsets) -> tuple[float, float]:
    """Seconds a broker takes from its start to the first right answer, and until all are right."""
    folder.mkdir()
    broker = Broker(folder, {"offsets.retention.minutes": str(2**31 - 1)})
    try:
        broker.start()
        workload.create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        workload.member(broker.bootstrap, "first", {(TOPIC, 0): 0}, "classic").close()  # waits for the coordinator
        broker.stop()
        put_back(log, broker.data_dir)
        broker.start()
        until_right(broker.bootstrap, expected)
        broker.stop()
        begun = time.perf_counter()
        broker.start()
        first, last = until_right(broker.bootstrap, expected)
    finally:
        broker.kill()
    return first - begun, last - begun


def takeover(serving: Serving, lake: Path, log: Path, groups: int) -> tuple[list[float], list[float]]:
    """Durations of answers while nothing happens, and while a newer snapshot is made and taken over."""
    with Asking(serving.bootstrap, name(groups // 2, groups)) as asking:
        time.sleep(1)  # warm
        quiet = time.perf_counter(), time.perf_counter() + 10
        time.sleep(10)
    with WireClient(serving.bootstrap) as client:
        for number in range(100):
            client.socket.sendall(commit_frame(name(number, groups), TOPIC, [3]))
            client.receive()
    cycle(lake, log)
    with Asking(serving.bootstrap, name(groups // 2, groups)) as busy:
        begun, deadline = time.perf_counter(), time.monotonic() + PATIENCE
        while not any("Refreshed the snapshot" in line for line in serving.said):
            assert time.monotonic() < deadline, serving.said
            time.sleep(0.05)
        time.sleep(0.2)
    return (
        [took for at, took in asking.times if quiet[0] <= at < quiet[1]],
        [took for at, took in busy.times if at >= begun + 0.1],
    )


def bench_loading(folder: Path, entries: int) -> Iterator[Row]:
    groups, log, lake = entries // PARTITIONS, folder / "log", folder / "lake"
    write_bulk_log(log, entries, groups=groups, topics=1, partitions=PARTITIONS, in_turn=True)
    cycle(lake, log)
    expected = one_group_a_log_partition(Lake.open(lake))
    their_first, theirs = brokers_load(folder / "broker", log, expected)
    begun = time.perf_counter()
    with Serving(lake, log) as serving:
        first, last = (at - begun for at in until_right(serving.bootstrap, expected))
        touch_all(serving.bootstrap, groups)
        memory = resident(serving.process.pid)
        quiet, busy = takeover(serving, lake, log, groups)
    what = f"{entries / 1e6:g} M offsets"
    yield (
        f"{what}: start to the first right answer",
        f"{first:.1f} s",
        f"{their_first:.1f} s",
        f"{first / their_first:.2f} of it",
    )
    yield f"{what}: start until all of it is answered", f"{last:.1f} s", f"{theirs:.1f} s", f"{last / theirs:.2f} of it"
    yield (
        f"{what}: resident once all was fetched",
        f"{memory / 2**20:.0f} MB",
        "",
        f"{memory / entries:.1f} bytes an offset",
    )

    quiet_99, busy_99 = percentile_99(quiet) * 1e6, percentile_99(busy) * 1e6
    yield (
        "`OffsetFetch` while a newer snapshot is taken over, 99 in 100",
        f"{busy_99:.0f} us",
        f"the same before: {quiet_99:.0f} us",
        f"{busy_99 / quiet_99:.2f} times",
    )
