"""Group records as brokers write them: constructors of values, records and logs."""

from collections.abc import Iterable
from typing import Any

from offsetlake.rules.groups.records import GroupRecord, replay
from offsetlake.rules.groups.state import GroupState

Value = dict[str, Any]
GROUP, TOPIC_ID = "orders", "0UpezRseR2unUk_C-KbOfg"
PARTITION = 7


def record(record_type: int, value: Value | None, part: str | None = None, offset: int = 0) -> GroupRecord:
    """Return a record of group `orders`; `part` is the member ID, or the regular expression of type 16."""
    if record_type in {1, 2}:
        key = {"group": GROUP}
    elif part is None:
        key = {"groupId": GROUP}
    else:
        key = {"groupId": GROUP, "regularExpression" if record_type == 16 else "memberId": part}
    return GroupRecord(PARTITION, offset, 1_000 + offset, record_type, key, value)


def numbered(records: Iterable[GroupRecord]) -> list[GroupRecord]:
    """Return the records with the log offsets 0, 1, 2, …"""
    return [
        each_record._replace(log_offset=log_offset, log_timestamp=1_000 + log_offset)
        for log_offset, each_record in enumerate(records)
    ]


def replayed(records: Iterable[GroupRecord], state: GroupState | None = None) -> GroupState | None:
    for next_record in records:
        state = replay(state, next_record)
    return state


def classic(protocol_type: str = "consumer", generation: int = 1, **more: Any) -> Value:
    members = more.get("members", [])
    empty = {"protocol": "range" if members else None, "leader": members[0]["memberId"] if members else None}
    return {
        "protocolType": protocol_type,
        "generation": generation,
        **empty,
        "currentStateTimestamp": 500,
        "members": members,
        **more,
    }


def classic_member(member_id: str, subscription: Any, assignment: Any = None, **more: Any) -> Value:
    """Return a member of a value of type 2; a list of topics is converted to a subscription."""
    if isinstance(subscription, list):
        subscription = {"version": 1, "topics": subscription, "userData": None, "ownedPartitions": []}
    return {
        "memberId": member_id,
        "groupInstanceId": None,
        "clientId": "app",
        "clientHost": "/127.0.0.1",
        "rebalanceTimeout": 300_000,
        "sessionTimeout": 45_000,
        "subscription": subscription,
        "assignment": assignment,
        **more,
    }


def consumer_member(*topics: str, **more: Any) -> Value:
    return {
        "instanceId": None,
        "rackId": None,
        "clientId": "app",
        "clientHost": "/127.0.0.1",
        "subscribedTopicNames": list(topics),
        "subscribedTopicRegex": "",
        "rebalanceTimeoutMs": 300_000,
        "serverAssignor": None,
        **more,
    }


def share_member(*topics: str) -> Value:
    return {"rackId": None, "clientId": "app", "clientHost": "/127.0.0.1", "subscribedTopicNames": list(topics)}


def streams_member(**more: Any) -> Value:
    return {
        "instanceId": None,
        "rackId": None,
        "clientId": "app",
        "clientHost": "/127.0.0.1",
        "rebalanceTimeoutMs": 300_000,
        "topologyEpoch": 0,
        "processId": "process-1",
        "userEndpoint": None,
        "clientTags": [],
        **more,
    }


def partitions(*numbers: int) -> list[Value]:
    return [{"topicId": TOPIC_ID, "partitions": list(numbers)}] if numbers else []


def current(epoch: int, *numbers: int, state: int = 0, previous: int | None = None) -> Value:
    previous = epoch - 1 if previous is None else previous
    assigned = {"assignedPartitions": partitions(*numbers), "partitionsPendingRevocation": []}
    return {"memberEpoch": epoch, "previousMemberEpoch": previous, "state": state, **assigned}


def target(*numbers: int) -> Value:
    return {"topicPartitions": partitions(*numbers)}


def tasks(*numbers: int) -> Value:
    active = [{"subtopologyId": "0", "partitions": list(numbers)}] if numbers else []
    return {"activeTasks": active, "standbyTasks": [], "warmupTasks": []}


def streams_current(epoch: int, *numbers: int, state: int = 1) -> Value:
    pending: Value = {f"{kind}TasksPendingRevocation": [] for kind in ("active", "standby", "warmup")}
    return {"memberEpoch": epoch, "previousMemberEpoch": epoch - 1, "state": state, **tasks(*numbers), **pending}


def topology(sources: list[str], repartition: Iterable[str] = (), patterns: Iterable[str] = ()) -> Value:
    internal = [{"name": name, "partitions": 0, "replicationFactor": 0, "topicConfigs": []} for name in repartition]
    changelog = [{"name": "app-store-changelog", "partitions": 0, "replicationFactor": 0, "topicConfigs": []}]
    subtopology = {
        "subtopologyId": "0",
        "sourceTopics": sources,
        "sourceTopicRegex": list(patterns),
        "stateChangelogTopics": changelog,
        "repartitionSinkTopics": [],
        "repartitionSourceTopics": internal,
        "copartitionGroups": [],
    }
    return {"epoch": 0, "subtopologies": [subtopology]}
