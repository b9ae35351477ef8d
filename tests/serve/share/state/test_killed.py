"""After SIGKILL, acknowledged writes of share partitions are in the state, and the tables agree with it."""

import contextlib
import threading
import time
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, rows
from support.groups.comparison import write_topic_ids
from support.lakes import new_lake
from support.serve.kio_requests import answered, connected, exchange, request
from support.serve.serving import Serving
from support.share_state.walks import INITIALIZE, NOT_READY, READ, WRITE, Request, answers

pytestmark = [pytest.mark.long, pytest.mark.slow]

TOPIC, TOPIC_ID = "killed", uuid.UUID(int=5)
GROUPS = [f"killed-{number}" for number in range(4)]
UPDATES_PER_SNAPSHOT, ACKNOWLEDGED = 20, 2
ROUNDS, SECONDS = 3, 300


class Writer(threading.Thread):
    """Acknowledges every second record of a share partition, one per request, until the connection is closed."""

    def __init__(self, bootstrap: str, group: str, first: int) -> None:
        super().__init__()
        self._address, self.group = bootstrap, group
        self.sent = self.acknowledged = first

    def run(self) -> None:
        with contextlib.suppress(EOFError, ConnectionError), closing(connected(self._address)) as connection:
            while True:
                batch = {"first_offset": 2 * self.sent, "last_offset": 2 * self.sent}
                batch |= {"delivery_state": ACKNOWLEDGED, "delivery_count": 1}
                part = {"state_epoch": 1, "leader_epoch": 0, "start_offset": 0, "state_batches": [batch]}
                self.sent += 1
                sent = request(WRITE, 1, values(self.group, part | {"delivery_complete_count": self.sent}))
                (topic,) = answered(WRITE, 1, exchange(connection, sent))["results"]
                assert topic["partitions"][0]["error_code"] == 0
                self.acknowledged = self.sent


def values(group: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"group_id": group, "topics": [{"topic_id": TOPIC_ID, "partitions": [{"partition": 0} | fields]}]}


def loaded(bootstrap: str) -> dict[str, list[int]]:
    """Return the acknowledged records of each group, once the states are loaded."""
    reads = [Request(READ, 0, values(group, {"leader_epoch": 0})) for group in GROUPS]
    deadline = time.monotonic() + SECONDS
    while True:
        parts = [topic["partitions"][0] for (topic,) in answers(bootstrap, reads)]
        if NOT_READY.isdisjoint(part["error_code"] for part in parts):
            assert not any(part["error_code"] for part in parts)
            return {
                group: [offset for batch in part["state_batches"] for offset in span(batch)]
                for group, part in zip(GROUPS, parts, strict=True)
            }
        assert time.monotonic() < deadline
        time.sleep(0.05)  # the interval between polls


def span(batch: dict[str, Any]) -> range:
    return range(batch["first_offset"], batch["last_offset"] + 1)


def test_acknowledged_writes_survive_kills_and_are_in_the_tables(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write_topic_ids(log, {TOPIC: TOPIC_ID})
    settings = {"topics": {TOPIC: 1}, "coordinator": {"share_updates_per_snapshot": UPDATES_PER_SNAPSHOT}}
    known = dict.fromkeys(GROUPS, 0)
    with Serving(tmp_path / "served", log, **settings) as server:
        for group in GROUPS:
            initialize = Request(INITIALIZE, 0, values(group, {"state_epoch": 1, "start_offset": 0}))
            while answers(server.bootstrap, [initialize])[0][0]["partitions"][0]["error_code"] in NOT_READY:
                time.sleep(0.05)  # the interval between polls
        server.kill()
    for _ in range(ROUNDS):
        with Serving(tmp_path / "served", log, **settings) as server:
            loaded(server.bootstrap)
            writers = [Writer(server.bootstrap, group, known[group]) for group in GROUPS]
            for writer in writers:
                writer.start()
            while any(writer.is_alive() and writer.acknowledged < known[writer.group] + 5 for writer in writers):
                time.sleep(0.05)  # the interval between polls
            server.kill()
            for writer in writers:
                writer.join()
        with Serving(tmp_path / "served", log, **settings) as server:
            found = loaded(server.bootstrap)
        for writer, (group, offsets) in zip(writers, found.items(), strict=True):
            assert offsets == [2 * number for number in range(len(offsets))]
            assert writer.acknowledged <= len(offsets) <= writer.sent, group
            assert len(offsets) > known[group]
            known[group] = len(offsets)
    lake = new_lake(tmp_path / "lake")
    cycle(InProcess(), lake, log)
    stored = rows(lake, "share_partitions")
    assert {row["group_id"]: row["acknowledged_records"] for row in stored} == known
    assert {row["group_id"]: row["delivery_complete_count"] for row in stored} == known
