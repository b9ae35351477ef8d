"""Where topics end is recorded by each ingest once, whatever kills it, and asked of the topics that offsets are of."""

import random
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.lake.runs import FinishedRun
from offsetlake.log.address import LogAddress
from offsetlake.log.cluster.admin import Topic
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.pipeline.ingest import job as ingest
from offsetlake.pipeline.ingest import log_ends
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, rows
from support.lakes import new_lake
from support.oracle.random_logs import RandomLog, random_log

Ends = dict[tuple[int, str], int]


class Cluster:
    """In the place of one: tells each question apart by its number, which is the end of every topic asked for in it."""

    def __init__(self) -> None:
        self.asked: list[set[str]] = []

    def ask(self, topics: Collection[str]) -> log_ends.RequestedEnds:
        self.asked.append(set(topics))
        number = len(self.asked)
        return log_ends.RequestedEnds(
            [[topic, 0, 0, number, 1000 * number] for topic in sorted(topics)], [f"answer {number}"]
        )


@pytest.fixture
def whole() -> RandomLog:
    return random_log(random.Random(5), 400, groups=5, topics=40, log_partitions=2, batches_per_segment=30)


def read(lake: Lake, log: Path, cluster: Cluster) -> FinishedRun:
    return ingest.ingest(InProcess, lake, LogAddress(folder=log), lambda _: None, cluster.ask)  # type: ignore[arg-type]


def recorded(lake: Lake) -> Ends:
    found = [row for row in rows(lake, "log_ends") if row["end_offset"] is not None]
    assert all(row["asked_timestamp"] == 1000 * row["end_offset"] for row in found)
    ends = {(row["ingest_run"], row["topic"]): row["end_offset"] for row in found}
    assert len(ends) == len(found)
    return ends


def topics_in(lake: Lake, table: str, where: str = "true") -> set[str]:
    return {row["topic"] for row in lake.query(f"SELECT topic FROM {table} WHERE {where}", table).to_pylist()}


def test_log_ends_of_new_topics_are_read_after_the_ingest(tmp_path: Path, whole: RandomLog) -> None:
    lake, log, cluster = new_lake(tmp_path / "lake"), tmp_path / "log", Cluster()
    RandomLog(whole.world, whole.plans[:20]).write(log)
    first = read(lake, log, cluster)
    cycle(InProcess(), lake, log)  # compacts; an ingest without a cluster asks nobody
    stored = topics_in(lake, "offsets")
    whole.write(log)
    second = read(lake, log, cluster)
    met = topics_in(lake, "offset_commits", f"ingest_run = {second.run_id} AND kind = 'commit'") - stored
    committed = topics_in(lake, "offset_commits", f"ingest_run = {first.run_id} AND kind = 'commit'")
    assert cluster.asked == [set(), committed, stored, met]
    assert stored
    assert met
    assert (first.notes, second.notes) == (("answer 1", "answer 2"), ("answer 3", "answer 4"))
    of_first = {(first.run_id, topic): 2 for topic in committed}
    of_second = {(second.run_id, topic): 3 for topic in stored} | {(second.run_id, topic): 4 for topic in met}
    assert recorded(lake) == of_first | of_second
    third = read(lake, log, cluster)
    assert third.outcome == "nothing new"
    assert set(recorded(lake)) - set(of_first | of_second) == {(third.run_id, topic) for topic in stored}


@pytest.mark.parametrize("killed", ["read_history", "record", "_finish"])
def test_resumed_run_keeps_the_first_log_ends(
    tmp_path: Path, whole: RandomLog, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    lake, log, cluster = new_lake(tmp_path / "lake"), tmp_path / "log", Cluster()
    RandomLog(whole.world, whole.plans[:20]).write(log)
    cycle(InProcess(), lake, log)
    stored = topics_in(lake, "offsets")
    whole.write(log)
    with monkeypatch.context() as patch:
        patch.setattr(log_ends if killed == "record" else ingest, killed, _cut_short)
        with pytest.raises(InterruptedError):
            read(lake, log, cluster)
    run = read(lake, log, cluster)
    told = {topic: end for (of, topic), end in recorded(lake).items() if of == run.run_id}
    assert {topic: told[topic] for topic in stored} == dict.fromkeys(stored, 1), "as planned, not as asked again"
    assert {told[topic] for topic in told.keys() - stored} == {3 if killed == "record" else 2}
    assert run.notes[:2] == ("answer 1", "finished after an interruption")


def test_plan_of_an_older_version_has_no_log_ends(
    tmp_path: Path, whole: RandomLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, log = new_lake(tmp_path / "lake"), tmp_path / "log"
    whole.write(log)
    with monkeypatch.context() as patch:
        patch.setattr(ingest, "_finish", _cut_short)
        with pytest.raises(InterruptedError):
            cycle(InProcess(), lake, log)
    plan = lake.files.read("plan-ingest.json") or {}
    del plan["log_ends"]
    lake.files.write("plan-ingest.json", plan)
    assert cycle(InProcess(), lake, log)[0].outcome == "done"


class Leaderless:
    """In the place of an Admin, of a cluster where a partition has no leader."""

    def __enter__(self) -> "Leaderless":
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def topics(self, _names: Collection[str]) -> dict[str, Topic]:
        return {"t": Topic("id", [0, 1, 2])}

    def log_ends(self, asked: Collection[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        return {where: (0, 5) for where in asked if where != ("t", 1)}


def test_partition_without_leader_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_ends, "cluster_admin", lambda _connection: Leaderless())
    asked = log_ends.ask(KafkaConnection(bootstrap="127.0.0.1:1"), ["t"])
    assert [[*row[:4], row[5]] for row in asked.rows] == [["t", 0, 0, 5, "id"], ["t", 2, 0, 5, "id"]]
    assert asked.notes == ["the log end offset of t-1 is unknown: the partition has no leader"]


def _cut_short(*_arguments: Any) -> None:
    raise InterruptedError
