import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetlake.errors import UndecodableRecord
from offsetlake.kafka.records.codec import encode
from offsetlake.kafka.records.coordinator_records import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
    OffsetsRecordType,
    ShareStateRecordType,
    TransactionStateRecordType,
    decode_record,
    encode_key,
    to_json,
)
from offsetlake.kafka.records.schema import load_schema, load_schemas
from support.kafka.golden import (
    ASSIGNMENT_V3,
    COMMITTED_AT,
    FIXTURES,
    KEYS,
    SUBSCRIPTION_V0,
    VALUES,
    golden_keys,
    golden_values,
)

GROUP_KEY = bytes.fromhex("000200026731")
MEMBER = {
    "memberId": "m1",
    "groupInstanceId": "i1",
    "clientId": "c1",
    "clientHost": "/h",
    "rebalanceTimeout": 60_000,
    "sessionTimeout": 45_000,
    "subscription": SUBSCRIPTION_V0,
    "assignment": ASSIGNMENT_V3,
}

# A log a real 4.1.1 broker wrote, and random records of every type 4.1.1 knows; each as kafka-dump-log 4.1.1 reads it.
SEGMENTS = {
    **{log: FIXTURES / "dump-log" / f"{log.parent.name}.txt" for log in sorted(FIXTURES.glob("real-log/*/*.log"))},
    **{log: log.parent / "dump-log.txt" for log in sorted(FIXTURES.glob("every-record-type/*/*.log"))},
}


def group(protocol_type: str = "consumer", **change: Any) -> dict[str, Any]:
    value = VALUES["GroupMetadataValue v3 1 member"] | {"protocolType": protocol_type, "members": [MEMBER | change]}
    decoded = decode_record(
        OFFSETS_TOPIC, GROUP_KEY, b"\0\3" + encode(load_schema("GroupMetadataValue"), 3, value)
    ).value
    assert decoded is not None
    member = decoded["members"][0]
    assert member["memberId"] == "m1"
    return {name: content for name, content in member.items() if name.startswith(("subscription", "assignment"))}


def topic_of(name: str) -> str:
    return SHARE_STATE_TOPIC if name in ("ShareSnapshotKey", "ShareUpdateKey") else OFFSETS_TOPIC


def dumped(text: str) -> Iterator[tuple[int, str, str]]:
    """Log offset, key and payload of each record that is no transaction marker."""
    for line in text.split("\n"):
        if match := re.match(r"\| offset: (\d+) .*? headerKeys: \[\] key: ", line):
            rest = line[match.end() :]
            _, end = json.JSONDecoder().raw_decode(rest)
            assert rest[end:].startswith(" payload: ")
            yield int(match[1]), rest[:end], rest[end:].removeprefix(" payload: ")


def read(segment: Path) -> Iterator[tuple[int, str, str]]:
    """The same, of our reading; aiokafka walks the batches."""
    batches = MemoryRecords(segment.read_bytes())
    while batches.has_next():
        batch = batches.next_batch()
        if batch.is_control_batch:
            continue
        for record in batch:
            decoded = decode_record(segment.parent.name.rpartition("-")[0], record.key, record.value)
            payload = "<DELETE>"
            if decoded.value is not None:
                payload = f'{{"version":"{decoded.value_version}","data":{to_json(decoded.value)}}}'
            yield record.offset, f'{{"type":"{decoded.record_type}","data":{to_json(decoded.key)}}}', payload


@pytest.mark.parametrize("segment", SEGMENTS, ids=lambda segment: "/".join(segment.parts[-3:-1]))
def test_decoded_records_equal_kafka_dump_log_output(segment: Path) -> None:
    expected = list(dumped(SEGMENTS[segment].read_text(encoding="utf-8")))
    assert expected
    assert list(read(segment)) == expected


def test_dumps_contain_every_record_type_of_kafka_4_1() -> None:
    seen = {
        (segment.parent.name.rpartition("-")[0], json.loads(key)["type"])
        for segment, dump in SEGMENTS.items()
        for _, key, payload in dumped(dump.read_text(encoding="utf-8"))
        if payload != "<DELETE>"
    }
    early_access = OffsetsRecordType.SHARE_GROUP_PARTITION_METADATA
    assert seen == {(OFFSETS_TOPIC, str(int(of))) for of in OffsetsRecordType if of != early_access} | {
        (SHARE_STATE_TOPIC, str(int(of))) for of in ShareStateRecordType
    }


@pytest.mark.parametrize(("name", "raw"), golden_keys().items())
def test_golden_keys_are_decoded_and_encoded(name: str, raw: bytes) -> None:
    record = decode_record(topic_of(name), raw, None)
    assert (record.name, record.key) == (name.removesuffix("Key"), KEYS[name])
    assert (record.value_version, record.value) == (None, None)
    assert record.record_type == int.from_bytes(raw[:2])
    assert encode_key(topic_of(name), record.record_type, record.key) == raw


@pytest.mark.parametrize(
    "title", [title for title in VALUES if not title.startswith(("ConsumerProtocol", "GroupMeta"))]
)
def test_golden_values(title: str) -> None:
    name, version = title.split()[:2]
    key = f"{name.removesuffix('Value')}Key"
    record = decode_record(topic_of(key), golden_keys()[key], golden_values()[title])
    assert (record.value_version, record.value) == (int(version[1:]), VALUES[title])


@pytest.mark.parametrize("version", range(5))
def test_golden_group_metadata_is_decoded(version: int) -> None:
    raw = golden_values()[f"GroupMetadataValue v{version} 1 member"]
    value = decode_record(OFFSETS_TOPIC, GROUP_KEY, raw).value
    assert value is not None
    member = value["members"][0]
    assert member["subscription"] == VALUES["ConsumerProtocolSubscription v0"]
    assert member["assignment"] == VALUES["ConsumerProtocolAssignment v3"]
    assert member.get("groupInstanceId") == ("i1" if version >= 3 else None)
    assert member.get("rebalanceTimeout") == (60_000 if version >= 1 else None)
    assert value.get("currentStateTimestamp") == (COMMITTED_AT if version >= 2 else None)


def test_record_types_match_schemas() -> None:
    there = {(schema.topic, schema.record_type, schema.name) for schema in load_schemas() if schema.topic}
    named = {
        (topic, int(of), "".join(word.title() for word in of.name.split("_")) + part)
        for topic, types in (
            (OFFSETS_TOPIC, OffsetsRecordType),
            (SHARE_STATE_TOPIC, ShareStateRecordType),
            (TRANSACTIONS_TOPIC, TransactionStateRecordType),
        )
        for of in types
        for part in ("Key", "Value")
    }
    assert there == named


@pytest.mark.parametrize(
    ("topic", "key", "value", "message"),
    [
        (OFFSETS_TOPIC, None, None, "the key is null"),
        (OFFSETS_TOPIC, "", None, "the key is too short for a record type: 0 bytes"),
        (OFFSETS_TOPIC, "00", None, "the key is too short for a record type: 1 bytes"),
        (OFFSETS_TOPIC, "0018 0000", None, "the record type 24 is unknown in __consumer_offsets"),
        (OFFSETS_TOPIC, "0012 0000", None, "the record type 18 is unknown in __consumer_offsets"),
        (OFFSETS_TOPIC, "ffff 0000", None, "the record type -1 is unknown in __consumer_offsets"),
        (SHARE_STATE_TOPIC, "0002 0000", None, "the record type 2 is unknown in __share_group_state"),
        (OFFSETS_TOPIC, "0001 0002 67", None, "OffsetCommitKey.group at byte 2 is truncated"),
        (OFFSETS_TOPIC, "0002 0002 6731", "", "the GroupMetadataValue is empty; the value of a tombstone is null"),
        (OFFSETS_TOPIC, "0002 0002 6731", "00", "the GroupMetadataValue is too short for a version: 1 byte"),
        (OFFSETS_TOPIC, "0002 0002 6731", "0005", "GroupMetadataValue version 5 is unknown: expected 0 to 4"),
        (OFFSETS_TOPIC, "0002 0002 6731", "ffff", "GroupMetadataValue version -1 is unknown: expected 0 to 4"),
        (OFFSETS_TOPIC, "0000 0000 0000 00000000", "0001", "LegacyOffsetCommitValue version 1 is unknown: expected 0"),
        (OFFSETS_TOPIC, "0003 0002 6731", "0000 000000", "ConsumerGroupMetadataValue.epoch at byte 2 is truncated"),
    ],
)
def test_undecodable_record_states_reason(topic: str, key: str | None, value: str | None, message: str) -> None:
    with pytest.raises(UndecodableRecord) as caught:
        decode_record(topic, *(None if part is None else bytes.fromhex(part) for part in (key, value)))
    assert str(caught.value) == message


KEY_STARTS = st.sampled_from([None, b"", *golden_keys().values()])
VALUE_STARTS = st.sampled_from([b"", *(bytes([0, version]) for version in range(6)), *golden_values().values()])


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from([OFFSETS_TOPIC, SHARE_STATE_TOPIC]),
    st.binary(max_size=30) | KEY_STARTS,
    st.none() | st.builds(bytes.__add__, VALUE_STARTS, st.binary(max_size=60)),
)
def test_arbitrary_record_raises_only_undecodable_record(topic: str, key: bytes | None, value: bytes | None) -> None:
    try:
        record = decode_record(topic, key, value)
    except UndecodableRecord:
        return
    assert (record.value is None) == (value is None)
    assert json.loads(to_json(record.key)) is not None
    assert value is None or json.loads(to_json(record.value or {})) is not None


@pytest.mark.parametrize("title", ["GroupMetadataValue v3 1 member", "GroupMetadataValue v4 1 member"])
def test_truncated_group_metadata_is_undecodable(title: str) -> None:
    raw = golden_values()[title]
    for end in range(len(raw)):
        with pytest.raises(UndecodableRecord, match=r"GroupMetadataValue"):
            decode_record(OFFSETS_TOPIC, GROUP_KEY, raw[:end])


def test_bytes_after_message_are_ignored() -> None:
    raw = golden_values()["OffsetCommitValue v3"] + b"more"
    key = golden_keys()["OffsetCommitKey"] + b"more"
    assert decode_record(OFFSETS_TOPIC, key, raw).value == VALUES["OffsetCommitValue v3"]


@pytest.mark.parametrize("version", range(4))
def test_subscription_with_known_version_is_decoded_completely(version: int) -> None:
    title = f"ConsumerProtocolSubscription v{version}"
    assert group(subscription=golden_values()[title])["subscription"] == VALUES[title]


def test_subscription_with_newer_version_yields_topics_and_bytes() -> None:
    later = b"\x00\x07" + SUBSCRIPTION_V0[2:] + b"later fields"
    blobs = group(subscription=later)
    assert blobs["subscription"] == {"topics": ["ta", "tb"], "userData": None}
    assert blobs["subscriptionBytes"] == "AAcAAAACAAJ0YQACdGL/////bGF0ZXIgZmllbGRz"


def test_subscription_with_malformed_later_fields_yields_topics() -> None:
    blobs = group(subscription=golden_values()["ConsumerProtocolSubscription v3"][:-1])
    assert blobs["subscription"] == {"topics": ["ta", "tb"], "userData": b"\x09\x08"}
    assert "subscriptionBytes" in blobs


@pytest.mark.parametrize("blob", [b"", b"\x00", b"\xff\xff" + SUBSCRIPTION_V0[2:], SUBSCRIPTION_V0[:-1], b"\0\0\xff"])
def test_malformed_subscription_is_null_and_keeps_bytes(blob: bytes) -> None:
    blobs = group(subscription=blob, assignment=b"")
    assert blobs["subscription"] is None
    assert blobs["assignment"] is None
    assert blobs["assignmentBytes"] == ""
    assert blobs["subscriptionBytes"] == json.loads(to_json({"blob": blob}))["blob"]


def test_assignment_with_newer_version_is_decoded_as_version_3() -> None:
    blobs = group(assignment=b"\x00\x09" + ASSIGNMENT_V3[2:])
    assert blobs["assignment"] == VALUES["ConsumerProtocolAssignment v3"]
    assert "assignmentBytes" in blobs


def test_blobs_of_other_protocol_types_are_base64_text() -> None:
    assert group("connect", subscription=b"\x00\x01\xff", assignment=b"") == {"subscription": "AAH/", "assignment": ""}


def test_json_is_compact_with_bytes_as_base64() -> None:
    assert to_json({"metadata": 'é"\n', "userData": b"\xff\xfe", "none": None}) == (
        '{"metadata":"é\\"\\n","userData":"//4=","none":null}'
    )
