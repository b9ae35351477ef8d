"""The expected content of the golden vectors, written by hand. The bytes were made by Kafka 4.1.1's own classes.

Inputs: group g1, topic tp, partition 7, member m1, topic id 01020304-0506-0708-090a-0b0c0d0e0f10, offset 42, leader
epoch 5, metadata "md", commit time 1700000000000, expiry 1700000600000.
"""

from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parents[2] / "fixtures"

TOPIC_ID = "AQIDBAUGBwgJCgsMDQ4PEA"
COMMITTED_AT = 1_700_000_000_000

_TA_0_1 = [{"topic": "ta", "partitions": [0, 1]}]
_ID_0_1 = [{"topicId": TOPIC_ID, "partitions": [0, 1]}]

SUBSCRIPTION_V0 = bytes.fromhex("0000000000020002746100027462ffffffff")
ASSIGNMENT_V3 = bytes.fromhex("00030000000100027461000000020000000000000001ffffffff")

_COMMIT_KEY = {"group": "g1", "topic": "tp", "partition": 7}
_GROUP_KEY = {"groupId": "g1"}
_MEMBER_KEY = {"groupId": "g1", "memberId": "m1"}
_SHARE_KEY = {"groupId": "g1", "topicId": TOPIC_ID, "partition": 7}

KEYS: dict[str, dict[str, Any]] = {
    "LegacyOffsetCommitKey": _COMMIT_KEY,
    "OffsetCommitKey": _COMMIT_KEY,
    "GroupMetadataKey": {"group": "g1"},
    "ConsumerGroupMetadataKey": _GROUP_KEY,
    "ConsumerGroupPartitionMetadataKey": _GROUP_KEY,
    "ConsumerGroupMemberMetadataKey": _MEMBER_KEY,
    "ConsumerGroupTargetAssignmentMetadataKey": _GROUP_KEY,
    "ConsumerGroupTargetAssignmentMemberKey": _MEMBER_KEY,
    "ConsumerGroupCurrentMemberAssignmentKey": _MEMBER_KEY,
    "ShareGroupMemberMetadataKey": _MEMBER_KEY,
    "ShareGroupMetadataKey": _GROUP_KEY,
    "ShareGroupTargetAssignmentMetadataKey": _GROUP_KEY,
    "ShareGroupTargetAssignmentMemberKey": _MEMBER_KEY,
    "ShareGroupCurrentMemberAssignmentKey": _MEMBER_KEY,
    "ShareGroupStatePartitionMetadataKey": _GROUP_KEY,
    "ConsumerGroupRegularExpressionKey": {"groupId": "g1", "regularExpression": "a.*"},
    "StreamsGroupMetadataKey": _GROUP_KEY,
    "StreamsGroupMemberMetadataKey": _MEMBER_KEY,
    "StreamsGroupTargetAssignmentMetadataKey": _GROUP_KEY,
    "StreamsGroupTargetAssignmentMemberKey": _MEMBER_KEY,
    "StreamsGroupCurrentMemberAssignmentKey": _MEMBER_KEY,
    "StreamsGroupTopologyKey": _GROUP_KEY,
    "ShareSnapshotKey": _SHARE_KEY,
    "ShareUpdateKey": _SHARE_KEY,
}

_MEMBER_V0 = {
    "memberId": "m1",
    "clientId": "c1",
    "clientHost": "/h",
    "sessionTimeout": 45_000,
    "subscription": SUBSCRIPTION_V0,
    "assignment": ASSIGNMENT_V3,
}
_MEMBER_V1 = _MEMBER_V0 | {"rebalanceTimeout": 60_000}
_MEMBER_V3 = _MEMBER_V1 | {"groupInstanceId": "i1"}
_GROUP_V0 = {"protocolType": "consumer", "generation": 3, "protocol": "range", "leader": "m1", "members": [_MEMBER_V0]}
_GROUP_V1 = _GROUP_V0 | {"members": [_MEMBER_V1]}
_GROUP_V2 = _GROUP_V1 | {"currentStateTimestamp": COMMITTED_AT}
_GROUP_V3 = _GROUP_V2 | {"members": [_MEMBER_V3]}
_EMPTY_GROUP = {
    "protocolType": "",
    "generation": 0,
    "protocol": None,
    "leader": None,
    "currentStateTimestamp": COMMITTED_AT,
    "members": [],
}

_COMMIT_V0 = {"offset": 42, "metadata": "md", "commitTimestamp": COMMITTED_AT}
_COMMIT_V3 = _COMMIT_V0 | {"leaderEpoch": 5}
_SUBSCRIPTION_V1 = {"topics": ["ta", "tb"], "userData": b"\x09\x08", "ownedPartitions": _TA_0_1}
_ASSIGNMENT = {"assignedPartitions": _TA_0_1, "userData": None}
_CONSUMER_MEMBER = {
    "instanceId": None,
    "rackId": "r1",
    "clientId": "c1",
    "clientHost": "/h",
    "subscribedTopicNames": ["ta", "tb"],
    "subscribedTopicRegex": None,
    "rebalanceTimeoutMs": 60_000,
    "serverAssignor": "uniform",
}
_CLASSIC_MEMBER = {
    "sessionTimeoutMs": 45_000,
    "supportedProtocols": [{"name": "range", "metadata": SUBSCRIPTION_V0}],
}

VALUES: dict[str, dict[str, Any]] = {
    "LegacyOffsetCommitValue v0": _COMMIT_V0,
    "OffsetCommitValue v0": _COMMIT_V0,
    "OffsetCommitValue v1": _COMMIT_V0 | {"expireTimestamp": 1_700_000_600_000},
    "OffsetCommitValue v2": _COMMIT_V0,
    "OffsetCommitValue v3": _COMMIT_V3,
    "OffsetCommitValue v4": _COMMIT_V3 | {"topicId": TOPIC_ID},
    "OffsetCommitValue v4 noTopicId,emptyMeta": _COMMIT_V3 | {"leaderEpoch": -1, "metadata": ""},
    "ConsumerProtocolSubscription v0": {"topics": ["ta", "tb"], "userData": None},
    "ConsumerProtocolSubscription v1": _SUBSCRIPTION_V1,
    "ConsumerProtocolSubscription v2": _SUBSCRIPTION_V1 | {"generationId": 3},
    "ConsumerProtocolSubscription v3": _SUBSCRIPTION_V1 | {"generationId": 3, "rackId": "r1"},
    "ConsumerProtocolAssignment v0": _ASSIGNMENT,
    "ConsumerProtocolAssignment v1": _ASSIGNMENT,
    "ConsumerProtocolAssignment v2": _ASSIGNMENT,
    "ConsumerProtocolAssignment v3": _ASSIGNMENT,
    "GroupMetadataValue v0 1 member": _GROUP_V0,
    "GroupMetadataValue v1 1 member": _GROUP_V1,
    "GroupMetadataValue v2 1 member": _GROUP_V2,
    "GroupMetadataValue v3 1 member": _GROUP_V3,
    "GroupMetadataValue v4 1 member": _GROUP_V3,
    "GroupMetadataValue v3 empty": _EMPTY_GROUP,
    "GroupMetadataValue v4 empty flexible": _EMPTY_GROUP | {"protocolType": "consumer", "generation": 4},
    "ConsumerGroupMetadataValue v0 hash0": {"epoch": 10},
    "ConsumerGroupMetadataValue v0 hash": {"epoch": 10, "metadataHash": 0x1122334455667788},
    "ConsumerGroupPartitionMetadataValue v0": {
        "topics": [
            {
                "topicId": TOPIC_ID,
                "topicName": "tp",
                "numPartitions": 3,
                "partitionMetadata": [{"partition": 0, "racks": ["r1"]}],
            }
        ]
    },
    "ConsumerGroupMemberMetadataValue v0": _CONSUMER_MEMBER,
    "ConsumerGroupMemberMetadataValue v0 classic": {
        "instanceId": None,
        "rackId": None,
        "clientId": "c1",
        "clientHost": "/h",
        "subscribedTopicNames": [],
        "subscribedTopicRegex": "a.*",
        "rebalanceTimeoutMs": 60_000,
        "serverAssignor": None,
        "classicMemberMetadata": _CLASSIC_MEMBER,
    },
    "ConsumerGroupTargetAssignmentMetadataValue v0": {"assignmentEpoch": 10},
    "ConsumerGroupTargetAssignmentMemberValue v0": {"topicPartitions": _ID_0_1},
    "ConsumerGroupCurrentMemberAssignmentValue v0": {
        "memberEpoch": 10,
        "previousMemberEpoch": 9,
        "state": 1,
        "assignedPartitions": _ID_0_1,
        "partitionsPendingRevocation": [],
    },
    "ConsumerGroupRegularExpressionValue v0": {"topics": ["ta"], "version": 123, "timestamp": COMMITTED_AT},
    "ShareGroupMetadataValue v0": {"epoch": 2, "metadataHash": 5},
    "ShareGroupMemberMetadataValue v0": {
        "rackId": None,
        "clientId": "c1",
        "clientHost": "/h",
        "subscribedTopicNames": ["ta"],
    },
    "ShareGroupStatePartitionMetadataValue v0": {
        "initializingTopics": [],
        "initializedTopics": [{"topicId": TOPIC_ID, "topicName": "tp", "partitions": [0, 1]}],
        "deletingTopics": [],
    },
    "ShareSnapshotValue v0": {
        "snapshotEpoch": 1,
        "stateEpoch": 2,
        "leaderEpoch": 3,
        "startOffset": 100,
        "createTimestamp": COMMITTED_AT,
        "writeTimestamp": COMMITTED_AT,
        "stateBatches": [{"firstOffset": 100, "lastOffset": 109, "deliveryState": 2, "deliveryCount": 1}],
    },
    "ShareUpdateValue v0": {
        "snapshotEpoch": 1,
        "leaderEpoch": 3,
        "startOffset": -1,
        "stateBatches": [{"firstOffset": 110, "lastOffset": 114, "deliveryState": 4, "deliveryCount": 5}],
    },
}


def lines(kind: str) -> list[str]:
    """Return the lines of one kind, such as `K`, `V` or `HASH`, without the kind."""
    text = (FIXTURES / "golden-vectors-4.1.1.txt").read_text(encoding="utf-8")
    return [line.removeprefix(f"{kind} ") for line in text.split("\n") if line.startswith(f"{kind} ")]


def golden_keys() -> dict[str, bytes]:
    """Return the key of each record by the name of its message."""
    return {line.split()[1]: bytes.fromhex(line.split()[2]) for line in lines("K")}


def golden_values() -> dict[str, bytes]:
    """Return values and member blobs by message, version and variant."""
    return {line.rpartition(" ")[0].strip(): bytes.fromhex(line.rpartition(" ")[2]) for line in lines("V")}
