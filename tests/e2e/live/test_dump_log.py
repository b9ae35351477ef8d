"""History is what kafka-dump-log prints, record by record: position, time, producer, key, value, marker, tombstone."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, rows
from support.lakes import new_lake
from support.oracle.dump_log import DumpedRecord, parse_dump, run_dump_log
from support.oracle.random_logs import random_log

FIXTURES = Path(__file__).parents[2] / "fixtures"
OFFSETS, SHARE_STATE = "__consumer_offsets", "__share_group_state"
NO_TOPIC_ID = "A" * 22  # as Kafka prints 16 zero bytes

Row = dict[str, Any]
Tables = dict[str, list[Row]]


def history(log: Path, folder: Path) -> Tables:
    """The history tables after one cycle over a log, without what kafka-dump-log cannot know."""
    lake = new_lake(folder / "lake")
    cycle(InProcess(), lake, log)
    tables = ("transaction_markers", "group_records", "share_state_records", "quarantine")
    found = {table: rows(lake, table, "ingest_run") for table in tables}
    return found | {"offset_commits": rows(lake, "offset_commits", "ingest_run", "superseded", "repeats", "routine")}


def dumps(texts: Path) -> dict[str, list[DumpedRecord]]:
    """Stored dumps, one a log partition, by log topic."""
    by_topic: dict[str, list[DumpedRecord]] = {OFFSETS: [], SHARE_STATE: []}
    for path in texts.rglob("*.txt"):
        name = path.parent.name if path.name == "dump-log.txt" else path.stem
        by_topic[name.rpartition("-")[0]] += parse_dump(path.read_text(encoding="utf-8"))
    return by_topic


# --- what the tables have to hold of a dumped record ---


def expected_tables(dumped: dict[str, list[DumpedRecord]]) -> Tables:
    tables: Tables = {
        table: []
        for table in ("offset_commits", "transaction_markers", "group_records", "share_state_records", "quarantine")
    }
    for record in dumped[OFFSETS]:
        if record.marker:
            tables["transaction_markers"].append(marker_row(record))
        elif record.key is None:
            tables["quarantine"].append(position(record))
        elif record.key["type"] in ("0", "1"):
            tables["offset_commits"].append(commit_row(record))
        else:
            tables["group_records"].append(group_row(record))
    tables["share_state_records"] = [share_state_row(record) for record in dumped[SHARE_STATE]]
    return tables


def position(record: DumpedRecord) -> Row:
    return {
        "log_partition": record.log_partition,
        "log_offset": record.log_offset,
        "log_timestamp": unless(-1, record.log_timestamp),
    }


def marker_row(record: DumpedRecord) -> Row:
    assert record.marker is not None
    kind, coordinator_epoch = record.marker
    return position(record) | {
        "producer_id": record.producer_id,
        "producer_epoch": record.producer_epoch,
        "marker": kind,
        "coordinator_epoch": coordinator_epoch,
    }


def commit_row(record: DumpedRecord) -> Row:
    key, value, version = content(record)
    return position(record) | {
        "kind": "tombstone" if record.value_size == -1 else "commit",
        "group_id": key["group"],
        "topic": key["topic"],
        "partition": key["partition"],
        "committed_offset": value.get("offset"),
        "leader_epoch": unless(-1, value.get("leaderEpoch")),
        "metadata": value.get("metadata"),
        "commit_timestamp": value.get("commitTimestamp"),
        "expire_timestamp": unless(-1, value.get("expireTimestamp")),
        "topic_id": unless(NO_TOPIC_ID, value.get("topicId")),
        "record_type": record_type(record),
        "value_version": version,
        "producer_id": unless(-1, record.producer_id),
        "producer_epoch": None if record.producer_id == -1 else record.producer_epoch,
        "commit_id": None,
        "commit_size": None,
    }


def group_row(record: DumpedRecord) -> Row:
    key, value, version = content(record)
    return position(record) | {
        "kind": "tombstone" if record.value_size == -1 else "value",
        "record_type": record_type(record),
        "record_name": RECORD_NAMES[record_type(record)],
        "group_id": key["group"] if record_type(record) == 2 else key["groupId"],
        "member_id": key.get("memberId"),
        "key": as_kafka_prints(key),
        "value": None if record.payload is None else as_kafka_prints(with_unread_bytes_apart(value)),
        "value_version": version,
    }


def share_state_row(record: DumpedRecord) -> Row:
    key, value, version = content(record)
    kind = "tombstone" if record.value_size == -1 else {0: "snapshot", 1: "update"}[record_type(record)]
    batches = [
        {
            "first_offset": batch["firstOffset"],
            "last_offset": batch["lastOffset"],
            "delivery_state": batch["deliveryState"],
            "delivery_count": batch["deliveryCount"],
        }
        for batch in value.get("stateBatches", [])
    ]
    return position(record) | {
        "kind": kind,
        "group_id": key["groupId"],
        "topic_id": key["topicId"],
        "partition": key["partition"],
        "snapshot_epoch": value.get("snapshotEpoch"),
        "state_epoch": value.get("stateEpoch"),
        "leader_epoch": value.get("leaderEpoch"),
        "start_offset": value.get("startOffset"),
        "create_timestamp": value.get("createTimestamp"),
        "write_timestamp": value.get("writeTimestamp"),
        "delivery_complete_count": value.get("deliveryCompleteCount"),
        "state_batches": None if record.payload is None else batches,
        "value_version": version,
    }


def content(record: DumpedRecord) -> tuple[Row, Row, int | None]:
    """Key, value and the value's version; of a tombstone {} and None."""
    assert record.key is not None
    assert (record.payload is None) == (record.value_size == -1)
    if record.payload is None:
        return record.key["data"], {}, None
    return record.key["data"], record.payload["data"], int(record.payload["version"])


def record_type(record: DumpedRecord) -> int:
    assert record.key is not None
    return int(record.key["type"])


def unless(nothing: Any, value: Any) -> Any:
    return None if value == nothing else value


def with_unread_bytes_apart(value: Row) -> Row:
    """The one place where history says more than the dump: of a classic consumer's subscription or assignment that
    cannot be read the dump prints the bytes in its place, history has null there and the bytes beside it.
    """
    if value.get("protocolType") != "consumer":
        return value
    members = []
    for member in value["members"]:
        unread = {name: data for name in ("subscription", "assignment") if isinstance(data := member[name], str)}
        members.append(member | dict.fromkeys(unread) | {f"{name}Bytes": data for name, data in unread.items()})
    return value | {"members": members}


def as_kafka_prints(data: Row) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def record_names() -> dict[int, str]:
    """Kafka's names of the record types, without `Key`."""
    lines = (FIXTURES / "golden-vectors-4.1.1.txt").read_text(encoding="utf-8").splitlines()
    keys = [line.split()[1:3] for line in lines if line.startswith("K type=")]
    of_offsets = [(int(number.removeprefix("type=")), name) for number, name in keys if "Snapshot" not in name]
    return {number: name.removesuffix("Key") for number, name in of_offsets if name != "ShareUpdateKey"}


RECORD_NAMES = record_names()


def in_order(table: list[Row]) -> list[Row]:
    return sorted(table, key=lambda row: (row["log_partition"], row["log_offset"]))


def assert_as_dumped(found: Tables, dumped: dict[str, list[DumpedRecord]]) -> None:
    for table, expected in expected_tables(dumped).items():
        kept = found[table]
        if table == "quarantine":
            kept = [{name: row[name] for name in ("log_partition", "log_offset", "log_timestamp")} for row in kept]
        assert in_order(kept) == in_order(expected), table


# --- the tests ---


def test_log_of_a_broker_is_decoded_as_by_kafka_dump_log(tmp_path: Path) -> None:
    log = FIXTURES / "real-log"
    stored = FIXTURES / "dump-log"
    assert {path.name for path in log.iterdir()} == {path.stem for path in stored.iterdir()}
    found = history(log, tmp_path)
    assert_as_dumped(found, dumps(stored))
    for table in ("offset_commits", "group_records", "share_state_records"):
        assert {"tombstone"} < {row["kind"] for row in found[table]}, table
    assert {row["marker"] for row in found["transaction_markers"]} == {"COMMIT", "ABORT"}
    assert not found["quarantine"]


def test_every_record_type_is_decoded_as_by_kafka_dump_log(tmp_path: Path) -> None:
    log = FIXTURES / "every-record-type"
    found = history(log, tmp_path)
    assert_as_dumped(found, dumps(log))
    types = {row["record_type"] for table in ("offset_commits", "group_records") for row in found[table]}
    assert types == set(RECORD_NAMES)
    assert {row["kind"] for row in found["share_state_records"]} >= {"snapshot", "update"}


@pytest.mark.broker
def test_random_log_is_decoded_as_by_kafka_dump_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    random_log(random.Random(11), 4_000, log_partitions=3, batches_per_segment=60).write(log)
    dumped = parse_dump(run_dump_log(sorted(log.glob("*/*.log"))))
    found = history(log, tmp_path)
    assert_as_dumped(found, {OFFSETS: dumped, SHARE_STATE: []})
    assert len(found["offset_commits"]) > 2_000
    assert found["quarantine"]
