"""What is no offset commit, each record in its table, and in quarantine with its bytes."""

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetlake.kafka.batches.reader import CorruptRegion, read_batches
from offsetlake.kafka.chunk import decode_chunk
from offsetlake.kafka.records.coordinator_records import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from offsetlake.kafka.records.other_records import SCHEMA
from support.kafka.golden import KEYS, VALUES, golden_keys, golden_values, lines
from support.oracle.dump_log import parse_dump
from support.oracle.encoders import offset_key, offset_value
from support.oracle.log_writer import Batch, Record, batch_bytes, marker_batch

FIXTURES = Path(__file__).parents[2] / "fixtures"
TIME = 1_700_000_000_000
COMMIT = (offset_key("g", "t", 0), offset_value(3, 1, commit_timestamp=TIME))

Pair = tuple[bytes | None, bytes | None]


def decode(data: bytes, topic: str = OFFSETS_TOPIC) -> list[dict[str, Any]]:
    records, corrupt = read_batches(data)
    rows = decode_chunk(topic, records, corrupt).others
    assert rows.schema == SCHEMA
    rows.validate(full=True)
    found: list[dict[str, Any]] = rows.to_pylist()
    return found


def batch(*pairs: Pair, **fields: Any) -> bytes:
    records = tuple(Record(offset, TIME, key, value) for offset, (key, value) in enumerate(pairs))
    return batch_bytes(Batch(records=records, **fields))


def row(**fields: Any) -> dict[str, Any]:
    """A row with these fields, the others null."""
    return dict.fromkeys(SCHEMA.names) | fields


def quarantined(
    key: bytes | None, value: bytes | None, reason: str, log_offset: int = 0, *, control: bool = False
) -> dict[str, Any]:
    fields = {"log_offset": log_offset, "log_timestamp": TIME, "kind": "quarantine", "is_control": control}
    return row(**fields, reason=reason, key_bytes=key, value_bytes=value)


def unknown_marker(producer_id: int, producer_epoch: int) -> dict[str, Any]:
    producer = {"producer_id": producer_id, "producer_epoch": producer_epoch}
    return row(log_offset=0, log_timestamp=TIME, kind="transaction_markers", marker="UNKNOWN", **producer)


def test_golden_markers_are_decoded() -> None:
    golden = {name: bytes.fromhex(data) for name, data in (line.split() for line in lines("BATCH"))}
    marker = {"log_timestamp": TIME + 1, "kind": "transaction_markers", "coordinator_epoch": 9}
    marker |= {"producer_id": 4000, "producer_epoch": 6}
    assert decode(b"".join(golden.values())) == [
        row(log_offset=3, marker="COMMIT", **marker),
        row(log_offset=4, marker="ABORT", **marker),
    ]


def test_markers_between_commits_are_decoded() -> None:
    made = [
        batch(COMMIT, COMMIT, producer_id=7, producer_epoch=1, is_transactional=True),
        *(
            batch_bytes(
                marker_batch(
                    kind,  # type: ignore[arg-type]
                    offset=offset,
                    timestamp=TIME,
                    producer_id=2**63 - 1,
                    producer_epoch=32767,
                    coordinator_epoch=epoch,
                )
            )
            for offset, kind, epoch in [(2, "ABORT", -1), (3, "COMMIT", 2**31 - 1)]
        ),
    ]
    assert [
        (r["log_offset"], r["marker"], r["coordinator_epoch"], r["producer_id"]) for r in decode(b"".join(made))
    ] == [
        (2, "ABORT", -1, 2**63 - 1),
        (3, "COMMIT", 2**31 - 1, 2**63 - 1),
    ]


@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, SHARE_STATE_TOPIC])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, bytes(6)),
        (b"", bytes(6)),
        (b"\0\0\0", bytes(6)),
        (b"\0\0\0\1", None),
        (b"\0\0\0\0", b""),
        (b"\0\0\0\1", bytes(5)),
    ],
)
def test_truncated_control_record_is_quarantined(topic: str, key: bytes | None, value: bytes | None) -> None:
    found = decode(batch((key, value), is_control=True, producer_id=5, producer_epoch=2), topic)
    producer = {"producer_id": 5, "producer_epoch": 2}
    reason = "the control record is truncated"
    assert found == [quarantined(key, value, reason, control=True) | producer, unknown_marker(5, 2)]
    assert decode(batch((key, value), is_control=True), topic) == [quarantined(key, value, reason, control=True)]


@pytest.mark.parametrize("control_type", [2, 3, 6, -1, 32767])
def test_control_records_of_other_types_are_ignored(control_type: int) -> None:
    assert decode(batch((struct.pack(">hh", 0, control_type), b"anything"), is_control=True)) == []


@pytest.mark.parametrize("control_type", [7, -1, 32767])
def test_unknown_control_record_of_a_producer_is_a_marker_with_an_unknown_result(control_type: int) -> None:
    key = struct.pack(">hh", 0, control_type)
    found = decode(batch((key, b"v"), is_control=True, producer_id=5, producer_epoch=2))
    reason = f"the control record type {control_type} is unknown"
    producer = {"producer_id": 5, "producer_epoch": 2}
    assert found == [quarantined(key, b"v", reason, control=True) | producer, unknown_marker(5, 2)]
    known = batch((struct.pack(">hh", 0, 4), b"v"), is_control=True, producer_id=5, producer_epoch=2)
    assert decode(known) == [], "a record of metadata logs"


def test_control_record_is_not_an_offset_commit() -> None:
    assert decode(batch((b"\0\1\0\1" + COMMIT[0][4:], COMMIT[1]), is_control=True))[0]["kind"] == "transaction_markers"


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, b"x", "the key is null"),
        (None, None, "the key is null"),
        (b"", b"x", "the key is too short for a record type: 0 bytes"),
        (b"\0", None, "the key is too short for a record type: 1 bytes"),
        (b"\x03\xe7\0\1g", b"\0\0\1", f"the record type 999 is unknown in {OFFSETS_TOPIC}"),
        (b"\xff\xff\0\1g", None, f"the record type -1 is unknown in {OFFSETS_TOPIC}"),
        (COMMIT[0][:-1], COMMIT[1], "the offset commit key is truncated or contains a negative length"),
        (COMMIT[0], COMMIT[1][:-1], "the offset commit value is truncated or malformed"),
        (COMMIT[0], b"", "the offset commit value is empty; the value of a tombstone is null"),
        (COMMIT[0][:4] + b"\xff" + COMMIT[0][5:], None, "the group ID, the topic or the metadata is not UTF-8"),
    ],
)
def test_quarantined_record_keeps_bytes(key: bytes | None, value: bytes | None, reason: str) -> None:
    assert decode(batch((key, value))) == [quarantined(key, value, reason)]
    around = batch(COMMIT, (key, value), COMMIT, (COMMIT[0], None))
    assert decode(around) == [quarantined(key, value, reason, log_offset=1)]


def test_offset_key_in_share_group_state_is_not_a_commit() -> None:
    key = golden_keys()["ShareSnapshotKey"]
    (found,) = decode(batch((key, golden_values()["ShareSnapshotValue v0"])), SHARE_STATE_TOPIC)
    assert (found["kind"], found["record_type"], found["record_name"]) == ("share_state_records", 0, "ShareSnapshot")
    (wrong,) = decode(batch(COMMIT), SHARE_STATE_TOPIC)
    assert (wrong["kind"], wrong["key_bytes"], wrong["value_bytes"]) == ("quarantine", *COMMIT)


RECORDS = [name for name in VALUES if "v0" in name and f"{name.split()[0].removesuffix('Value')}Key" in KEYS]


@pytest.mark.parametrize("name", [name for name in RECORDS if "OffsetCommit" not in name])
def test_golden_group_and_share_records_are_decoded(name: str) -> None:
    record = name.split(maxsplit=1)[0].removesuffix("Value")
    topic = SHARE_STATE_TOPIC if record in ("ShareSnapshot", "ShareUpdate") else OFFSETS_TOPIC
    key = golden_keys()[f"{record}Key"]
    found, tombstone = decode(batch((key, golden_values()[name]), (key, None)), topic)
    expected = {"record_name": record, "record_type": int.from_bytes(key[:2]), "value_version": 0}
    expected |= {"kind": "share_state_records" if topic == SHARE_STATE_TOPIC else "group_records"}
    assert found.items() >= expected.items()
    assert json.loads(found["key"]) == json.loads(tombstone["key"]) == KEYS[f"{record}Key"]
    assert json.loads(found["value"]).keys() >= VALUES[name].keys() - {"classicMemberMetadata"}
    assert (tombstone["value"], tombstone["value_version"], tombstone["reason"]) == (None, None, None)


LOGS = sorted(FIXTURES.glob("real-log/*/*.log"))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.parent.name)
def test_real_log_equals_kafka_dump_log_output(path: Path) -> None:
    topic = path.parent.name.rpartition("-")[0]
    dumped = parse_dump((FIXTURES / "dump-log" / f"{path.parent.name}.txt").read_text(encoding="utf-8"))
    markers = {d.log_offset: d.marker for d in dumped if d.marker}
    others = {
        d.log_offset: (int(d.key["type"]), json.dumps(d.key["data"], sort_keys=True), d.payload is None)
        for d in dumped
        if d.key and (topic == SHARE_STATE_TOPIC or d.key["type"] not in ("0", "1"))
    }
    found = decode(path.read_bytes(), topic)
    assert {r["log_offset"]: (r["marker"], r["coordinator_epoch"]) for r in found if r["marker"]} == markers
    assert {
        r["log_offset"]: (r["record_type"], json.dumps(json.loads(r["key"]), sort_keys=True), r["value"] is None)
        for r in found
        if not r["marker"]
    } == others


def test_corrupt_regions_are_quarantined_with_their_bytes() -> None:
    regions = [CorruptRegion(5, b"abc", "why"), CorruptRegion(9, b"", "why not")]
    expected = [
        row(log_offset=5, kind="quarantine", reason="why", value_bytes=b"abc", is_control=False),
        row(log_offset=9, kind="quarantine", reason="why not", value_bytes=b"", is_control=False),
    ]
    assert decode_chunk(OFFSETS_TOPIC, read_batches(b"")[0], regions).others.to_pylist() == expected
    records, _ = read_batches(batch(COMMIT, (None, b"x")))
    assert decode_chunk(OFFSETS_TOPIC, records, regions).others.to_pylist() == [
        *expected,
        quarantined(None, b"x", "the key is null", log_offset=1),
    ]


def test_commit_in_share_group_state_is_not_an_offset_commit() -> None:
    """A topic id of 16 bytes can be the length and the bytes of a topic name."""
    records, corrupt = read_batches(batch((offset_key("g", "fourteen-bytes", 0), COMMIT[1])))
    assert decode_chunk(OFFSETS_TOPIC, records, corrupt).commits.num_rows == 1
    chunk = decode_chunk(SHARE_STATE_TOPIC, records, corrupt)
    assert (chunk.commits.num_rows, chunk.others.num_rows, chunk.audit_events.num_rows) == (0, 1, 0)


RECORD_KEYS = st.one_of(
    st.none(),
    st.binary(max_size=20),
    st.tuples(st.integers(0, 25), st.binary(max_size=30)).map(lambda made: struct.pack(">h", made[0]) + made[1]),
    st.sampled_from(sorted(golden_keys().values())),
)
RECORD_VALUES = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.tuples(st.integers(0, 4), st.binary(max_size=60)).map(lambda made: struct.pack(">h", made[0]) + made[1]),
    st.sampled_from(sorted(golden_values().values())),
)


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(
    pairs=st.lists(st.tuples(RECORD_KEYS, RECORD_VALUES), min_size=1, max_size=6),
    topic=st.sampled_from([OFFSETS_TOPIC, SHARE_STATE_TOPIC]),
    control=st.booleans(),
)
def test_every_record_is_decoded_or_quarantined(pairs: Sequence[Pair], topic: str, control: bool) -> None:
    data = batch(*pairs, is_control=control)
    found = {r["log_offset"]: r for r in decode(data, topic)}
    kinds = {"quarantine", "transaction_markers"} if control else {"quarantine", "group_records", "share_state_records"}
    assert {r["kind"] for r in found.values()} <= kinds
    for at, (key, value) in enumerate(pairs):
        if at in found and found[at]["kind"] == "quarantine":
            assert (found[at]["key_bytes"], found[at]["value_bytes"]) == (key, value)
            assert found[at]["reason"]
        elif at in found:
            assert found[at]["key_bytes"] is found[at]["value_bytes"] is found[at]["reason"] is None
        else:
            # A good offset commit, or a control record that is no marker.
            assert key is not None
            assert int.from_bytes(key[2:4], signed=True) not in (0, 1) if control else key[:2] in (b"\0\0", b"\0\1")
