"""Commits, fetches, jobs and restarts in any order: every fetch gives the value that was acknowledged last."""

import random
from pathlib import Path

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.emit.job import emit
from support.e2e.in_process import InProcess
from support.e2e.lakes import LATER, cycle, judge, upkeep
from support.serve.serving import Serving
from support.serve.wire_client import OFFSET_COMMIT, OFFSET_FETCH, WireClient

GROUPS, TOPICS, PARTITIONS = [f"g{number}" for number in range(6)], ["t", "u"], range(4)
STEPS = 30

Key = tuple[str, str, int]


class History:
    """A serving process, the jobs beside it, and what was acknowledged last of every key."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.chosen = folder, random.Random(seed)
        self.lake, self.log = Lake.create(folder / "lake"), folder / "log"
        self.known: dict[Key, int] = {}
        self.done: list[str] = []
        self.serving = Serving(folder / "lake", self.log).__enter__()
        self._next = 1

    def commit(self) -> None:
        """Commit some partitions of a group, several requests in one go."""
        with WireClient(self.serving.bootstrap) as client:
            for _ in range(self.chosen.randint(1, 5)):
                group, topic = self.chosen.choice(GROUPS), self.chosen.choice(TOPICS)
                partitions = self.chosen.sample(PARTITIONS, self.chosen.randint(1, len(PARTITIONS)))
                values = {of: self._next + at for at, of in enumerate(partitions)}
                self._next += len(partitions)
                rows = [
                    {"partition_index": partition, "committed_offset": offset, "committed_metadata": str(offset)}
                    for partition, offset in values.items()
                ]
                topics = [{"name": topic, "partitions": rows}]
                of = {"group_id": group, "generation_id": -1, "generation_id_or_member_epoch": -1, "member_id": ""}
                answer = client.ask(OFFSET_COMMIT, 7, of | {"topics": topics})
                assert {each["error_code"] for each in answer["topics"][0]["partitions"]} == {0}
                self.known |= {(group, topic, partition): offset for partition, offset in values.items()}

    def compact(self) -> None:
        """Bring the tables up to date; the process takes them over in its own time."""
        cycle(InProcess(), self.lake, self.log)

    def expire(self) -> None:
        """Let everything go that retention lets, but what is committed between judging and emitting."""
        self.compact()
        judge(InProcess(), self.lake, LATER)
        judged = dict(self.known)
        if self.chosen.random() < 0.7:
            self.commit()
        emit(self.lake, LogAddress(folder=self.log), lambda _: None)
        moved = {group for group, topic, partition in self.known if self._moved(judged, (group, topic, partition))}
        self.known = {key: offset for key, offset in self.known.items() if self._moved(judged, key)}
        assert moved == {group for group, _, _ in self.known}

    def _moved(self, judged: dict[Key, int], key: Key) -> bool:
        return judged.get(key) != self.known[key]

    def cut(self) -> None:
        """Cut the log by what the lake holds, through the process that owns it."""
        if self.lake.count("runs", "job = 'compact'"):
            upkeep(self.lake, self.log)

    def restart(self) -> None:
        """Stop it as an operator does, and start it."""
        assert self.serving.stop() == 0
        self.serving = Serving(self.folder / "lake", self.log).__enter__()

    def crash(self) -> None:
        """Kill it, and start it."""
        self.serving.kill()
        self.serving = Serving(self.folder / "lake", self.log).__enter__()

    def check(self) -> None:
        """Fetch everything."""
        with WireClient(self.serving.bootstrap) as client:
            for group in GROUPS:
                topics = [{"name": topic, "partition_indexes": [*PARTITIONS]} for topic in TOPICS]
                answer = client.ask(OFFSET_FETCH, 5, {"group_id": group, "topics": topics})
                found = {
                    (group, topic["name"], of["partition_index"]): of["committed_offset"]
                    for topic in answer["topics"]
                    for of in topic["partitions"]
                    if of["committed_offset"] >= 0
                }
                assert found == {key: offset for key, offset in self.known.items() if key[0] == group}, self.done


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_every_fetch_gives_what_was_acknowledged_last(tmp_path: Path, seed: int) -> None:
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
