"""The bytes of group records, beyond those that brokers of version 4.2 write, too."""

import pytest

from offsetlake.coordinator.steps import Record
from offsetlake.kafka.records.coordinator_records import OffsetsRecordType
from offsetlake.serve.groups.group_writes import encoded_batch

ID, ID_TEXT = bytes(range(16)), "AAECAwQFBgcICQoLDA0ODw"
KEY = {"groupId": "g", "memberId": "m"}


@pytest.mark.parametrize("name", ["assignedPartitions", "partitionsPendingRevocation"])
def test_unknown_assignment_epochs_are_written_as_null(name: str) -> None:
    """Kafka 4.3 logs an error about a current assignment without the tagged field 0 of its topics (KIP-1251)."""
    topics = {"assignedPartitions": [], "partitionsPendingRevocation": []}
    topics[name] = [{"topicId": ID_TEXT, "partitions": [7]}]
    value = {"memberEpoch": 2, "previousMemberEpoch": 1, "state": 0, **topics}
    data = encoded_batch([Record(OffsetsRecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, KEY, value)], 0).data
    topic = ID + bytes.fromhex("02 00000007") + bytes.fromhex("01 00 01 00")  # one tagged field, number 0, 1 byte: null
    written, empty = b"\2" + topic, b"\1"
    arrays = written + empty if name == "assignedPartitions" else empty + written
    assert bytes.fromhex("0000 00000002 00000001 00") + arrays + b"\0" in data
