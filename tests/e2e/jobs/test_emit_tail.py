"""What emit makes of the group records behind the compacted tables: a group changed, or removed, or neither."""

from pathlib import Path

import pyarrow as pa
import pytest

from offsetlake.kafka.records.coordinator_records import OFFSETS_TOPIC, OffsetsRecordType, encode_key
from offsetlake.kafka.records.group_tombstones import group_tombstone_keys
from offsetlake.log.address import LogAddress
from offsetlake.log.positions import OffsetRange
from offsetlake.pipeline.emit.live_state import read_tail
from support.oracle.encoders import group_metadata_key, group_metadata_value
from support.oracle.log_writer import Batch, Record, write_partition

T = 1_700_000_000_000
GROUP = "g"
ALIVE = (group_metadata_key(GROUP), group_metadata_value(3, protocol_type="", generation=0, protocol=None, leader=None))
REGEX_GONE = (
    encode_key(
        OFFSETS_TOPIC,
        OffsetsRecordType.CONSUMER_GROUP_REGULAR_EXPRESSION,
        {"groupId": GROUP, "regularExpression": "a.*"},
    ),
    None,
)
MEMBER_GONE = (
    encode_key(OFFSETS_TOPIC, OffsetsRecordType.CONSUMER_GROUP_MEMBER_METADATA, {"groupId": GROUP, "memberId": "m"}),
    None,
)
OTHER = (group_metadata_key("other"), None)
CLASSIC, CONSUMER, STREAMS = (
    [(key, None) for key in group_tombstone_keys(GROUP, kind)] for kind in ("classic", "consumer", "streams")
)


@pytest.mark.parametrize(
    ("records", "changed", "removed"),
    [
        pytest.param([OTHER], {}, set(), id="nothing of it"),
        pytest.param([ALIVE], {GROUP: 0}, set(), id="changed"),
        pytest.param([MEMBER_GONE], {GROUP: 0}, set(), id="a member has left"),
        pytest.param([ALIVE, REGEX_GONE], {GROUP: 1}, set(), id="a pattern is of no use any more"),
        pytest.param(CONSUMER[1:2], {GROUP: 0}, set(), id="a record of older brokers is taken away"),
        pytest.param(CLASSIC, {}, {GROUP}, id="removed, classic"),
        pytest.param(CONSUMER, {}, {GROUP}, id="removed, consumer"),
        pytest.param(STREAMS, {}, {GROUP}, id="removed, streams"),
        pytest.param([ALIVE, *CONSUMER], {}, {GROUP}, id="changed, then removed"),
        pytest.param([*STREAMS, OTHER, ALIVE], {GROUP: 4}, set(), id="removed, then there again"),
        pytest.param([*CLASSIC, MEMBER_GONE], {}, {GROUP}, id="what is left of it goes behind it"),
    ],
)
def test_tail_contains_changed_and_removed_groups(
    records: list[tuple[bytes, bytes | None]], changed: dict[str, int], removed: set[str], tmp_path: Path
) -> None:
    write_partition(tmp_path, 3, [Batch(records=tuple(Record(at, T, *record) for at, record in enumerate(records)))])
    wanted = pa.array([GROUP])
    tail = read_tail(LogAddress(folder=tmp_path), 3, OffsetRange(0, len(records)), wanted)
    assert (tail.changed, tail.removed.keys()) == (changed, removed)
