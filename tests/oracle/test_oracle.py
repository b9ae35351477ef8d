"""Who checks the oracle: Kafka's own reading, Kafka's own bytes and aiokafka's reader."""

import ast
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import pytest

from support.oracle import bulk, dump_log, encoders, log_reader, log_writer, random_logs, replay
from support.oracle.log_reader import LogRecord
from support.oracle.log_writer import Batch, Record

FIXTURES = Path(__file__).parents[1] / "fixtures"
ORACLE = Path(__file__).parents[1] / "support" / "oracle"
REAL_LOG = FIXTURES / "real-log"
GOLDEN = [line.split() for line in (FIXTURES / "golden-vectors-4.1.1.txt").read_text(encoding="utf-8").splitlines()]
UUID_1 = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
TIME = 1_700_000_000_000


def golden(*start: str) -> bytes:
    """The bytes at the end of the one golden line that starts with these words."""
    (found,) = [line for line in GOLDEN if tuple(line[: len(start)]) == start and len(line) == len(start) + 1]
    return bytes.fromhex(found[-1])


def test_oracle_does_not_import_the_code_it_checks() -> None:
    paths = [*ORACLE.glob("*.py")]
    assert paths
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in names if name.startswith("offsetlake")], path


# --- against Kafka's own reading ---


def as_dumped(record: LogRecord) -> dump_log.DumpedRecord:
    """What kafka-dump-log prints for a record, but for the JSON of group records."""
    marker = key = payload = None
    entry = None if record.is_control else replay.decode_offset_record(record)
    if record.is_control:
        kind = {log_reader.COMMIT: "COMMIT", log_reader.ABORT: "ABORT"}[record.control_type or 0]
        marker = (kind, int.from_bytes((record.value or b"")[2:], "big"))
    elif entry is not None:
        group_id, topic, partition = entry.key
        key = {"type": str(entry.key_type), "data": {"group": group_id, "topic": topic, "partition": partition}}
        payload = _payload(entry)
    return dump_log.DumpedRecord(
        log_partition=record.log_partition,
        log_offset=record.log_offset,
        log_timestamp=record.log_timestamp,
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        key_size=-1 if record.key is None else len(record.key),
        value_size=-1 if record.value is None else len(record.value),
        marker=marker,
        key=key,
        payload=payload,
    )


def _payload(entry: replay.OffsetRecord) -> dict[str, Any] | None:
    commit, version = entry.commit, entry.value_version
    if commit is None or version is None:
        return None
    data: dict[str, Any] = {"offset": commit.committed_offset, "metadata": commit.metadata}
    data["commitTimestamp"] = commit.commit_timestamp
    if version == 1:
        data["expireTimestamp"] = -1 if commit.expire_timestamp is None else commit.expire_timestamp
    if version >= 3:
        data["leaderEpoch"] = -1 if commit.leader_epoch is None else commit.leader_epoch
    if commit.topic_id is not None:
        data["topicId"] = commit.topic_id
    return {"version": str(version), "data": data}


def assert_same_as_dumped(records: Iterable[LogRecord], dump: str) -> None:
    """Records are as Kafka reads them: all of position, sizes and markers, the content of offset records."""
    dumped = [
        entry if entry.key is None or entry.key["type"] in ("0", "1") else entry._replace(key=None, payload=None)
        for entry in dump_log.parse_dump(dump)
    ]
    by_position = sorted(dumped, key=lambda entry: (entry.log_partition, entry.log_offset))
    assert [as_dumped(record) for record in records] == by_position


def test_log_of_a_broker_is_read_as_by_kafka() -> None:
    records = log_reader.read_log(REAL_LOG)
    assert len(records) > 100
    dumps = sorted((FIXTURES / "dump-log").glob("__consumer_offsets-*.txt"))
    assert_same_as_dumped(records, "\n".join(path.read_text(encoding="utf-8") for path in dumps))


@pytest.mark.broker
def test_kafka_reads_generated_logs_unchanged(tmp_path: Path) -> None:
    log = random_logs.random_log(random.Random(4), 3000, log_partitions=3, batches_per_segment=60)
    log.write(tmp_path / "random")
    bulk.write_bulk_log(tmp_path / "v3", 1000, groups=9, topics=3, partitions=7, log_partitions=2, value_version=3)
    bulk.write_bulk_log(tmp_path / "v4", 1000, groups=9, topics=3, partitions=7, log_partitions=2)
    for folder in ("random", "v3", "v4"):
        dump = dump_log.run_dump_log(sorted((tmp_path / folder).glob("*/*.log")))
        assert_same_as_dumped(log_reader.read_log(tmp_path / folder), dump)
    assert log_reader.read_log(tmp_path / "random") == log.records()


# --- against Kafka's own bytes ---


@pytest.mark.parametrize("text", ["", "g1", "my-group", "polygenelubricants", "группа", "😀", "gé"])
def test_java_hash_and_log_partition_equal_kafkas(text: str) -> None:
    (numbers,) = [line[-2:] for line in GOLDEN if line[0] == "HASH" and line[1:-2] == ([text] if text else [])]
    assert encoders.java_hash(text) == int(numbers[0])
    assert f"p50={encoders.group_log_partition(text, 50)}" == numbers[1]


def test_keys_and_offset_values_equal_kafkas_bytes() -> None:
    assert encoders.offset_key("g1", "tp", 7, legacy=True) == golden("K", "type=0", "LegacyOffsetCommitKey")
    assert encoders.offset_key("g1", "tp", 7) == golden("K", "type=1", "OffsetCommitKey")
    assert encoders.group_metadata_key("g1") == golden("K", "type=2", "GroupMetadataKey")
    for version in range(5):
        made = encoders.offset_value(
            version,
            42,
            leader_epoch=5,
            metadata="md",
            commit_timestamp=TIME,
            expire_timestamp=TIME + 600_000,
            topic_id=UUID_1,
        )
        assert made == golden("V", "OffsetCommitValue", f"v{version}")
    made = encoders.offset_value(4, 42, commit_timestamp=TIME)
    assert made == golden("V", "OffsetCommitValue", "v4", "noTopicId,emptyMeta")


@pytest.mark.parametrize("version", range(5))
def test_group_metadata_values_equal_kafkas_bytes(version: int) -> None:
    subscription = golden("V", "ConsumerProtocolSubscription", "v0")
    assignment = golden("V", "ConsumerProtocolAssignment", "v3")
    member = encoders.Member("m1", "i1", "c1", "/h", 60_000, 45_000, subscription, assignment)
    made = encoders.group_metadata_value(
        version,
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m1",
        state_timestamp=TIME,
        members=(member,),
    )
    assert made == golden("V", "GroupMetadataValue", f"v{version}", "1", "member")


def test_batches_equal_kafkas_bytes() -> None:
    commit = encoders.offset_value(4, 42, leader_epoch=5, metadata="md", commit_timestamp=TIME, topic_id=UUID_1)
    records = (
        Record(0, TIME, encoders.offset_key("g1", "tp", 7), commit),
        Record(1, TIME, encoders.offset_key("g1", "tp", 8), None),
    )
    plain = Batch(records=records, partition_leader_epoch=-1)
    assert log_writer.batch_bytes(plain) == golden("BATCH", "plain")

    value = encoders.offset_value(4, 50, leader_epoch=5, commit_timestamp=TIME)
    transactional = Batch(
        records=(Record(2, TIME, encoders.offset_key("g1", "tp", 7), value),),
        producer_id=4000,
        producer_epoch=6,
        is_transactional=True,
        partition_leader_epoch=-1,
    )
    assert log_writer.batch_bytes(transactional) == golden("BATCH", "txn")


@pytest.mark.parametrize(("kind", "offset"), [("COMMIT", 3), ("ABORT", 4)])
def test_markers_equal_kafkas_bytes(kind: Literal["COMMIT", "ABORT"], offset: int) -> None:
    expected = golden("BATCH", kind.lower())
    made = log_writer.marker_batch(
        kind, offset=offset, timestamp=TIME + 1, producer_id=4000, producer_epoch=6, coordinator_epoch=9
    )
    made_bytes = log_writer.batch_bytes(made)
    assert made_bytes[:12] + made_bytes[16:] == expected[:12] + expected[16:]  # the leader epoch stands between


# --- bulk ---


@pytest.mark.parametrize("value_version", [3, 4])
def test_bulk_log_contains_the_reported_records(tmp_path: Path, value_version: Literal[3, 4]) -> None:
    made = bulk.write_bulk_log(
        tmp_path,
        4_321,
        groups=120,
        topics=3,
        partitions=5,
        log_partitions=7,
        segment_bytes=20_000,
        value_version=value_version,
        seed=3,
    )
    records = log_reader.read_log(tmp_path)
    state = replay.replay(records)
    assert made.commits == len(records) == len(state.history) == 4_321
    assert made.keys == len(state.committed)
    segments = list(tmp_path.glob("*/*.log"))
    assert made.segments == len(segments) > 7
    assert made.size == sum(path.stat().st_size for path in segments)
    for entry in state.history:
        assert entry.record.log_partition == encoders.group_log_partition(entry.key[0], 7)
        assert entry.value_version == value_version
    by_commit = sorted(state.history, key=lambda entry: entry.commit.committed_offset if entry.commit else -1)
    assert [entry.key[2] for entry in by_commit] == [number % 5 for number in range(4_321)]
    for log_partition in range(7):
        offsets = [record.log_offset for record in records if record.log_partition == log_partition]
        assert offsets == list(range(len(offsets)))
