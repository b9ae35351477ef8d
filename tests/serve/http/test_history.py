"""Commits, fetches, jobs and restarts in random order: each fetch returns the last acknowledged commit."""

import random
from pathlib import Path

import pytest

from offsetlake.log.address import LogAddress
from offsetlake.pipeline.emit.job import emit
from support.e2e.in_process import InProcess
from support.e2e.lakes import LATER, cycle, plan_expiry, upkeep
from support.lakes import new_lake
from support.serve.serving import Serving
from support.serve.wire_client import OFFSET_COMMIT, OFFSET_FETCH, WireClient

GROUPS, TOPICS, PARTITIONS = [f"g{number}" for number in range(6)], ["t", "u"], range(4)
STEPS = 30

Key = tuple[str, str, int]


class History:
    """A serving process, the jobs on its lake, and the last acknowledged offset of each key."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.chosen = folder, random.Random(seed)
        self.lake, self.log = new_lake(folder / "lake"), folder / "log"
        self.known: dict[Key, int] = {}
        self.done: list[str] = []
        self.serving = Serving(folder / "lake", self.log).__enter__()
        self._next = 1

    def commit(self) -> None:
        """Commit partitions of groups in several requests."""
        with WireClient(self.serving.bootstrap) as client:
            for _ in range(self.chosen.randint(1, 5)):
                group, topic = self.chosen.choice(GROUPS), self.chosen.choice(TOPICS)
                partitions = self.chosen.sample(PARTITIONS, self.chosen.randint(1, len(PARTITIONS)))
                values = {partition: self._next + index for index, partition in enumerate(partitions)}
                self._next += len(partitions)
                rows = [
                    {"partition_index": partition, "committed_offset": offset, "committed_metadata": str(offset)}
                    for partition, offset in values.items()
                ]
                topics = [{"name": topic, "partitions": rows}]
                member = {"group_id": group, "generation_id": -1, "generation_id_or_member_epoch": -1, "member_id": ""}
                answer = client.ask(OFFSET_COMMIT, 7, member | {"topics": topics})
                assert {row["error_code"] for row in answer["topics"][0]["partitions"]} == {0}
                self.known |= {(group, topic, partition): offset for partition, offset in values.items()}

    def compact(self) -> None:
        """Update the tables; the process refreshes its snapshot later."""
        cycle(InProcess(), self.lake, self.log)

    def expire(self) -> None:
        """Expire all offsets but those committed between the evaluation and emit."""
        self.compact()
        plan_expiry(InProcess(), self.lake, LATER)
        evaluated = dict(self.known)
        if self.chosen.random() < 0.7:
            self.commit()
        emit(self.lake, LogAddress(folder=self.log), lambda _: None)
        moved = {group for group, topic, partition in self.known if self._moved(evaluated, (group, topic, partition))}
        self.known = {key: offset for key, offset in self.known.items() if self._moved(evaluated, key)}
        assert moved == {group for group, _, _ in self.known}

    def _moved(self, evaluated: dict[Key, int], key: Key) -> bool:
        return evaluated.get(key) != self.known[key]

    def cut(self) -> None:
        """Delete the log segments that the lake covers, through the serving process."""
        if self.lake.count("runs", "job = 'compact'"):
            upkeep(self.lake, self.log)

    def restart(self) -> None:
        """Stop the process by a signal and start it again."""
        assert self.serving.stop() == 0
        self.serving = Serving(self.folder / "lake", self.log).__enter__()

    def crash(self) -> None:
        """Kill the process and start it again."""
        self.serving.kill()
        self.serving = Serving(self.folder / "lake", self.log).__enter__()

    def check(self) -> None:
        """Fetch all offsets and compare them."""
        with WireClient(self.serving.bootstrap) as client:
            for group in GROUPS:
                topics = [{"name": topic, "partition_indexes": [*PARTITIONS]} for topic in TOPICS]
                answer = client.ask(OFFSET_FETCH, 5, {"group_id": group, "topics": topics})
                offsets = {
                    (group, topic["name"], row["partition_index"]): row["committed_offset"]
                    for topic in answer["topics"]
                    for row in topic["partitions"]
                    if row["committed_offset"] >= 0
                }
                assert offsets == {key: offset for key, offset in self.known.items() if key[0] == group}, self.done


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_fetches_return_the_last_acknowledged_commits(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    steps = [history.commit, history.compact, history.expire, history.cut, history.restart, history.crash]
    try:
        for _ in range(STEPS):
            (step,) = history.chosen.choices(steps, [12, 4, 3, 2, 1, 1])
            history.done.append(step.__name__)
            step()
            history.check()
        assert {*history.done} >= {"commit", "compact", "expire", "cut"}
    finally:
        history.serving.stop()
