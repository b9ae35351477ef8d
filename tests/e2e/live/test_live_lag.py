"""A live broker: ends are recorded as it tells them, and lag is what kafka-consumer-groups says."""

import json
import time
from collections import defaultdict
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from offsetlake.lake.lake import Lake
from offsetlake.log.cluster.admin import ClusterAdmin, OffsetToCommit
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.pipeline import runner
from offsetlake.pipeline.ingest import log_ends
from support.broker import workload
from support.broker.broker import PASSWORDS, Broker
from support.broker.kafka_tools import group_command
from support.command_line import Run
from support.e2e.in_process import NoSpark
from support.e2e.lakes import rows

pytestmark = [pytest.mark.broker, pytest.mark.slow]

GROUP, TOPIC, OTHER = "lag-live", "lag-orders", "lag-payments"

Lag = dict[tuple[str, int], tuple[int, int, int]]
"""Committed offset, end and lag by topic and partition."""


def commit(broker: Broker, offsets: dict[tuple[str, int], OffsetToCommit]) -> None:
    """Commit, and wait for it, also where it is the first commit that the cluster ever takes."""
    with ClusterAdmin(KafkaConnection(bootstrap=broker.bootstrap)) as admin:
        assert admin.commit(GROUP, offsets) == dict.fromkeys(offsets)


def described(bootstrap: str) -> Lag:
    done = group_command(bootstrap, "--describe", "--group", GROUP)
    assert done.code == 0, done
    lines = [line.split() for line in done.out.splitlines() if line.startswith(GROUP)]
    return {(topic, int(number)): (int(at), int(end), int(lag)) for _, topic, number, at, end, lag, *_ in lines}


def test_lag_equals_that_of_kafkas_tool(
    broker: Broker, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(runner, "LazySession", NoSpark)

    def ingested() -> int:
        code, _, err = run("ingest", "--bootstrap", broker.bootstrap, "--lake", "lake")
        assert code == 0, err
        return max(row["run_id"] for row in rows(Lake.open(tmp_path / "lake"), "runs"))

    for topic in (TOPIC, OTHER):
        workload.create_topic(broker.bootstrap, topic, 2)
        workload.produce(broker.bootstrap, topic, 10)
    commit(broker, {(TOPIC, 0): OffsetToCommit(4), (TOPIC, 1): OffsetToCommit(0)})
    first = ingested()
    workload.produce(broker.bootstrap, TOPIC, 5)
    commit(broker, {(TOPIC, 0): OffsetToCommit(15), (OTHER, 0): OffsetToCommit(3)})
    workload.produce(broker.bootstrap, TOPIC, 2)
    second = ingested()

    code, out, _ = run("lag", "--lake", "lake", "--group", GROUP, "--partitions", "--format", "json")
    assert code == 0
    found = [json.loads(line) for line in out.splitlines()]
    lag = {(of["topic"], of["partition"]): (of["committed_offset"], of["end_offset"], of["lag"]) for of in found}
    assert lag == described(broker.bootstrap)
    assert lag == {(TOPIC, 0): (15, 17, 2), (TOPIC, 1): (0, 0, 0), (OTHER, 0): (3, 10, 7)}
    ends = [
        (row["ingest_run"], row["topic"], row["partition"], row["start_offset"], row["end_offset"])
        for row in rows(Lake.open(tmp_path / "lake"), "log_ends")
        if row["topic"] in (TOPIC, OTHER)
    ]
    assert sorted(ends) == [
        *((first, TOPIC, 0, 0, 10), (first, TOPIC, 1, 0, 0)),
        (second, TOPIC, 0, 0, 17),  # the other partition did not change
        *((second, OTHER, 0, 0, 10), (second, OTHER, 1, 0, 0)),
    ]


def joined(broker: Broker, group_id: str, subscription: str, protocol: str, partitions: int) -> Consumer:
    """Subscribe to a topic, or a `^pattern`, and wait for partitions, without a commit; return the member, alive."""
    assigned: list[TopicPartition] = []
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": group_id, "enable.auto.commit": False,
        "group.protocol": protocol, "client.id": f"{group_id}-client",
    })  # fmt: skip
    consumer.subscribe([subscription], on_assign=lambda _, given: assigned.extend(given))
    deadline = time.monotonic() + 60
    while len(assigned) < partitions:
        assert time.monotonic() < deadline, f"{group_id} was not assigned {partitions} partitions"
        consumer.poll(0.1)
    return consumer


Described = dict[tuple[str, int], tuple[str, ...]]
"""CURRENT-OFFSET, LOG-END-OFFSET, LAG, CONSUMER-ID, HOST and CLIENT-ID by topic and partition."""


def described_with_owners(bootstrap: str, group_id: str) -> Described:
    done = group_command(bootstrap, "--describe", "--group", group_id)
    assert done.code == 0, done
    lines = [line.split() for line in done.out.splitlines() if line.startswith(f"{group_id} ")]
    return {(topic, int(number)): tuple(rest) for _, topic, number, *rest in lines}


def as_kafkas_tool(row: dict[str, Any]) -> tuple[str, ...]:
    """Return a row of `lag --partitions` as kafka-consumer-groups prints it; its lag includes deleted records."""
    committed, end, lag = row["committed_offset"], row["end_offset"], row["lag"]
    if row["status"] == "BEYOND_END":
        assert lag is None
        lag = end - committed
    elif row["status"] == "NO_COMMIT":
        assert row["lag_at_most"] == end - row["start_offset"]
        lag = None
    else:
        lag += row["deleted_before_read"]
    owner = (row["member_id"], row["client_host"], row["client_id"])
    return tuple("-" if value is None else str(value) for value in (committed, end, lag, *owner))


SITUATIONS = {
    # group: (the statuses of its partitions, the lag of the group, lag_at_most, deleted_before_read)
    "lag-shrunk": (["BEYOND_END"], None, 10, 0),
    "lag-phantom": (["DELETED_BEFORE_READ"], 3, 3, 4),
    "lag-stuck": (["NO_COMMIT"] * 2, 0, 10, 0),
    "lag-stuck-848": (["NO_COMMIT"] * 2, 0, 10, 0),
    "lag-pattern-848": (["NO_COMMIT"] * 2, 0, 10, 0),
    "lag-partly": (["OK", "NO_COMMIT"], 0, 0, 0),
    "lag-mixed": (["OK", "NO_COMMIT", "NO_COMMIT"], 0, 10, 0),
}


def test_situations_have_the_rows_of_kafkas_tool(
    broker: Broker, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(runner, "LazySession", NoSpark)
    workload.create_topic(broker.bootstrap, "lag-once", 1)
    for topic, partitions in (("lag-several", 2), ("lag-deleted", 1)):
        workload.create_topic(broker.bootstrap, topic, partitions)
        workload.produce(broker.bootstrap, topic, 10)
    workload.produce(broker.bootstrap, "lag-once", 3)
    workload.admin_reset(broker.bootstrap, "lag-shrunk", {("lag-several", 0): 1000})
    workload.admin_reset(broker.bootstrap, "lag-phantom", {("lag-deleted", 0): 3})
    workload.admin_reset(broker.bootstrap, "lag-mixed", {("lag-once", 0): 3})
    before = TopicPartition("lag-deleted", 0, 7)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})  # its futures do not end without a reference to it
    admin.delete_records([before])[before].result()
    with ExitStack() as members:
        for group_id, subscription, protocol in (
            ("lag-stuck", "lag-several", "classic"),
            ("lag-stuck-848", "lag-several", "consumer"),
            ("lag-pattern-848", "^lag-sever.*", "consumer"),
            ("lag-mixed", "lag-several", "classic"),
        ):
            members.enter_context(closing(joined(broker, group_id, subscription, protocol, 2)))
        partly = workload.member(broker.bootstrap, "lag-partly", {("lag-several", 0): 10}, "consumer")
        members.enter_context(closing(partly))
        for arguments in (("ingest", "--bootstrap", broker.bootstrap), ("compact",)):
            code, _, err = run(*arguments, "--lake", "lake")
            assert code == 0, err
        expected = {name: described_with_owners(broker.bootstrap, name) for name in SITUATIONS}

    def answered(*options: str) -> list[dict[str, Any]]:
        _, out, _ = run("lag", "--lake", "lake", "--group", "lag-*", "--format", "json", *options)
        return [row for row in map(json.loads, out.splitlines()) if row["group_id"] in SITUATIONS]

    found: dict[str, Described] = defaultdict(dict)
    statuses: dict[str, list[str]] = defaultdict(list)
    for row in sorted(answered("--partitions"), key=lambda row: (row["topic"], row["partition"])):
        found[row["group_id"]][row["topic"], row["partition"]] = as_kafkas_tool(row)
        statuses[row["group_id"]].append(row["status"])
    assert found == expected
    names = ("lag", "lag_at_most", "deleted_before_read")
    groups = {row["group_id"]: tuple(row[name] for name in names) for row in answered()}
    assert {name: (statuses[name], *groups[name]) for name in SITUATIONS} == SITUATIONS


def test_unknown_log_end_offsets_are_noted(broker: Broker) -> None:
    workload.create_topic(broker.bootstrap, "lag-known", 1)
    workload.produce(broker.bootstrap, "lag-known", 3)
    topics = ["lag-known", *(f"lag-none-{number}" for number in range(7))]
    asked = log_ends.ask(KafkaConnection(bootstrap=broker.bootstrap), topics)
    assert [row[:4] for row in asked.rows] == [["lag-known", 0, 0, 3]]
    named = ", ".join(f"lag-none-{number}" for number in range(5))
    assert asked.notes == [f"the log end offset of {named} and 2 more is unknown: the topic was deleted"]
    reader = KafkaConnection(
        bootstrap=broker.sasl_bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="reader",
        sasl_password=PASSWORDS["reader"],
    )
    hidden = "this principal has no permission; it needs an ACL for DESCRIBE on the topic"
    assert log_ends.ask(reader, ["lag-known"])[:2] == ([], [f"the log end offset of lag-known is unknown: {hidden}"])
    nowhere = log_ends.ask(KafkaConnection(bootstrap="127.0.0.1:1"), ["lag-known"])
    assert nowhere.rows == []
    assert nowhere.notes[0].startswith("cannot read the log end offsets of topics: Kafka at 127.0.0.1:1")
    assert log_ends.ask(KafkaConnection(bootstrap="127.0.0.1:1"), []) == ([], [], None)
