"""A live broker: ends are recorded as it tells them, and lag is what kafka-consumer-groups says."""

import json
from pathlib import Path

import pytest

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
