"""Adoption that is killed and resumed, members that stay, and the loss of this process or of the cluster."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from signal import SIGKILL, SIGTERM

import pytest
from confluent_kafka import Producer

from offsetlake.lake.lake import Lake
from offsetlake.serve.protocol import api_keys as apis
from support.broker.workload import committed_transaction, create_topic, simple_commit
from support.serve.adopted import NODE, Adopted, committed, until
from support.serve.http_client import ask as http
from support.serve.kio_requests import ask
from support.serve.reading import Reading

pytestmark = pytest.mark.long  # brokers of their own, and sessions that end

TOPIC, PARTITIONS, SECONDS = "takeover", 3, 180


def produce(bootstrap: str, first: int, last: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, last):
        producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0


def offsets(bootstrap: str, group: str) -> int:
    return sum(committed(bootstrap, [group])[group].values())


def fetch_errors(bootstrap: str, groups: Sequence[str]) -> set[int]:
    """Return the error codes of groups, which are not available until their coordinator has loaded them."""
    wanted = [{"group_id": group, "topics": None, "member_id": None, "member_epoch": -1} for group in groups]
    return {int(group["error_code"]) for group in ask(bootstrap, apis.OFFSET_FETCH, 8, groups=wanted)["groups"]}


def coordinators(bootstrap: str, groups: Sequence[str]) -> set[int]:
    """Return the node ids of the coordinators of groups."""
    answer = ask(bootstrap, apis.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=groups)
    return {int(each["node_id"]) for each in answer["coordinators"]}


def test_members_stay_through_adoption_and_losses(tmp_path: Path) -> None:
    """One consumer reads on through the adoption, 20 s without this process, a SIGKILL and the loss of the cluster."""
    adopted = Adopted(tmp_path)
    with adopted.broker as broker:
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        produce(broker.bootstrap, 0, 30)
        reading = Reading(broker.bootstrap, "stays", TOPIC)
        try:
            reading.wait_for(30)
            until(lambda: offsets(broker.bootstrap, "stays"), 30)
            code, output = adopted.adopt("--execute")
            assert code == 0, output
            produce(broker.bootstrap, 30, 60)
            reading.wait_for(60)  # records are read although no process is the coordinator
            serving = adopted.serving()
            with serving:
                until(lambda: offsets(broker.bootstrap, "stays"), 60)
                assert reading.assignments == 1
            asyncio.run(asyncio.sleep(20))
            produce(broker.bootstrap, 60, 90)
            reading.wait_for(90)
            serving = adopted.serving()
            serving.__enter__()
            until(lambda: offsets(broker.bootstrap, "stays"), 90)
            serving.kill()
            produce(broker.bootstrap, 90, 120)
            reading.wait_for(120)
            serving = adopted.serving()
            with serving:
                until(lambda: offsets(broker.bootstrap, "stays"), 120)
                assert reading.assignments == 1
                broker.stop()
                serving.wait_for_line("the last metadata stays in force")
                state = http(serving.http, "GET", "/readyz")
                assert (state.status, state.body["cluster"]["available"]) == (200, False)
                partitions = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
                values = {"group_id": "direct", "topics": [{"name": TOPIC, "partitions": partitions}]}
                answer = ask(serving.bootstrap, apis.OFFSET_COMMIT, 8, **values)
                assert answer["topics"][0]["partitions"][0]["error_code"] == 0
                broker.start()
                serving.wait_for_line("is available again")
                until(lambda: offsets(broker.bootstrap, "direct"), 5)
                produce(broker.bootstrap, 120, 150)
                reading.wait_for(150)
                until(lambda: offsets(broker.bootstrap, "stays"), 150)
                assert reading.assignments == 1
                reading.stop()
        finally:
            reading.stop()
    assert sorted({*reading.values}) == [*range(150)]


def test_adoption_that_is_killed_is_resumed(tmp_path: Path) -> None:
    """Killed after different times, each run continues; at the end all committed offsets are those before."""
    adopted = Adopted(tmp_path)
    with adopted.broker as broker:
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        groups = [f"group-{number}" for number in range(30)]
        before = {group: {(TOPIC, number % 3): number} for number, group in enumerate(groups)}
        for group, each in before.items():
            simple_commit(broker.bootstrap, group, each)
        assert committed(broker.bootstrap, groups) == before
        for tenths in (15, 20, 22, 24, 26, 28, 30, 35):
            process = adopted.moving("adopt", "--execute")
            asyncio.run(asyncio.sleep(tenths / 10))
            process.kill()
            process.communicate()
        code, output = adopted.adopt("--execute")
        assert code == 0, output
        with adopted.serving() as serving:
            assert committed(broker.bootstrap, groups) == before
            until(lambda: coordinators(broker.bootstrap, groups), {NODE})
        assert not [line for line in serving.said if "Traceback" in line]


def test_partitions_are_given_back_although_the_return_is_killed(tmp_path: Path) -> None:
    """A member stays, brokers have all offsets, and the node can adopt the groups again with an empty folder."""
    adopted = Adopted(tmp_path)
    with adopted.broker as broker:
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        produce(broker.bootstrap, 0, 30)
        groups = [f"group-{number}" for number in range(9)]
        reading = Reading(broker.bootstrap, "stays", TOPIC)
        try:
            reading.wait_for(30)
            code, output = adopted.adopt("--execute")
            assert code == 0, output
            with adopted.serving() as serving:
                for number, group in enumerate(groups):
                    simple_commit(serving.bootstrap, group, {(TOPIC, number % 3): number})
                committed_transaction(broker.bootstrap, "returned", groups[0], {(TOPIC, 1): 77})
                before = committed(broker.bootstrap, groups)
                assert before[groups[0]][TOPIC, 1] == 77
                produce(broker.bootstrap, 30, 60)
                reading.wait_for(60)
                until(lambda: offsets(broker.bootstrap, "stays"), 60)
            code, output = adopted.move("return")
            assert (code, "Nothing was changed" in output) == (0, True), output
            for tenths, signal_ in ((15, SIGKILL), (20, SIGTERM), (25, SIGKILL), (30, SIGTERM)):
                process = adopted.moving("return", "--execute")
                asyncio.run(asyncio.sleep(tenths / 10))
                process.send_signal(signal_)
                output, _ = process.communicate()
                assert "no longer used" not in output or not adopted.is_owned()
            resumed = adopted.is_owned()
            if resumed:
                code, output = adopted.move("return", "--execute")
                assert code == 0, output
            until(lambda: coordinators(broker.bootstrap, groups), {1})
            until(lambda: fetch_errors(broker.bootstrap, groups), {0})  # the broker loads what it has copied
            assert committed(broker.bootstrap, groups) == before
            produce(broker.bootstrap, 60, 90)
            reading.wait_for(90)
            until(lambda: offsets(broker.bootstrap, "stays"), 90)
            assert reading.assignments == 1
            broker.restart()
            until(lambda: fetch_errors(broker.bootstrap, groups), {0})
            assert committed(broker.bootstrap, groups) == before
            adopted.log = tmp_path / "log-2"
            code, output = adopted.adopt("--execute")
            assert code == 0, output
            with adopted.serving():
                assert committed(broker.bootstrap, groups) == before
                reading.stop()
        finally:
            reading.stop()
    jobs = Lake.open(tmp_path / "lake").query("SELECT job FROM runs ORDER BY run_id", "runs")["job"].to_pylist()
    assert jobs == ["adopt", "return", "adopt"] or (not resumed and jobs == ["adopt", "adopt"])
