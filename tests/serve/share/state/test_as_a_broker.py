"""The server coordinates the state of share partitions as a broker does, and each loads the log of the other."""

import uuid
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from offsetlake.kafka.uuid import uuid_text
from support.broker.broker import Broker
from support.broker.data_folder import copy_log, put_back
from support.broker.kafka_tools import NEWER
from support.broker.tools import dump_log
from support.broker.workload import create_topic
from support.groups.comparison import topic_ids, write_topic_ids
from support.serve.serving import Serving
from support.share_state.walks import PARTITIONS, Request, answers, await_ready, coordinators, invalid, states, walk

pytestmark = [pytest.mark.broker, pytest.mark.long]

TOPIC, STATE_TOPIC = "walked", "__share_group_state"
UPDATES_PER_SNAPSHOT = 4
LENGTH = 600
SNAPSHOT, UPDATE = "0", "1"
TIMES = {"createTimestamp", "writeTimestamp"}


def serving(lake: Path, log: Path) -> Serving:
    settings = {"share_updates_per_snapshot": UPDATES_PER_SNAPSHOT}
    return Serving(lake, log, topics={TOPIC: PARTITIONS}, coordinator=settings)


def same(servers: Iterable[str], requests: Iterable[Request]) -> list[Any]:
    """Send the same requests to both servers, and return the equal answers."""
    sent = [*requests]
    first, second = (answers(server, sent) for server in servers)
    for request, one, other in zip(sent, first, second, strict=True):
        assert one == other, request
    return first


def records(log: Path) -> dict[str, list[Any]]:
    """Return the records of each share partition in log order, as Kafka decodes them, without times."""
    found: dict[str, list[Any]] = defaultdict(list)
    for record in dump_log(log):
        assert record.key is not None, record
        data = record.payload and {name: each for name, each in record.payload["data"].items() if name not in TIMES}
        found[str(record.key["data"])].append((record.key["type"], data))
    return found


def test_the_same_requests_have_the_same_answers_and_records(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    log, copied = tmp_path / "log", tmp_path / "log-of-the-broker"
    overrides = {"share.coordinator.snapshot.update.records.per.snapshot": str(UPDATES_PER_SNAPSHOT)}
    with Broker(tmp_path / "broker", overrides, NEWER) as broker:
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        ids = topic_ids(broker.bootstrap, {TOPIC: PARTITIONS})
        write_topic_ids(log, ids)
        topic = ids[TOPIC]
        with serving(tmp_path / "lake", log) as server:
            both = ready(broker, server, topic)
            errors = {
                part["error_code"]
                for topics in same(both, [*walk(1, topic, LENGTH), *invalid(topic)])
                for each in topics
                for part in each["partitions"]
            }
            assert errors == {0, 3, 42, 74, 124}
            found = [answers(each, coordinators(uuid_text(topic.bytes))) for each in both]
            assert errors_by_key(found[1]) == errors_by_key(found[0])
            assert {*errors_by_key(found[0]).values()} == {0, 42}
            server.kill()
        broker.restart()
        with serving(tmp_path / "lake", log) as server:
            both = ready(broker, server, topic)
            same(both, states(topic, 5))
            same(both, walk(2, topic, LENGTH))
        broker.stop()
        copy_log(broker.data_dir, copied, STATE_TOPIC)
        dump = tmp_path / "dump"
        copy_log(log, dump, STATE_TOPIC)
        written = records(dump)
        assert {kind for rows in written.values() for kind, _ in rows} == {SNAPSHOT, UPDATE}
        assert written == records(copied)
        put_back(log, broker.data_dir, STATE_TOPIC)
        write_topic_ids(copied, ids)
        broker.start()
        with serving(tmp_path / "another-lake", copied) as server:
            both = ready(broker, server, topic)
            same(both, states(topic, 6))
            same(both, walk(3, topic, LENGTH))


def errors_by_key(found: list[Any]) -> dict[Any, int]:
    """Return the error codes in responses to FindCoordinator."""
    return {
        (number, each["key"]): each["error_code"]
        for number, response in enumerate(found)
        for each in response["coordinators"]
    }


def ready(broker: Broker, server: Serving, topic: uuid.UUID) -> tuple[str, str]:
    """Wait until both have loaded their states; return their addresses."""
    for bootstrap in (both := (broker.bootstrap, server.bootstrap)):
        await_ready(bootstrap, topic, uuid_text(topic.bytes))
    return both
