"""Explains the errors with which a broker refuses to change the offsets of a group."""

from offsetlake.kafka.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    GROUP_AUTHORIZATION_FAILED,
    GROUP_ID_NOT_FOUND,
    GROUP_SUBSCRIBED_TO_TOPIC,
    ILLEGAL_GENERATION,
    INVALID_COMMIT_OFFSET_SIZE,
    INVALID_GROUP_ID,
    INVALID_TOPIC_EXCEPTION,
    MESSAGE_TOO_LARGE,
    NON_EMPTY_GROUP,
    NONE,
    NOT_COORDINATOR,
    OFFSET_METADATA_TOO_LARGE,
    REBALANCE_IN_PROGRESS,
    STALE_MEMBER_EPOCH,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_VERSION,
)

NO_ANSWER = "the broker returned no result for this partition"

PERMANENT_TOPIC_ERRORS = {NONE, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED}
"""Error codes of a topic in Metadata that are final."""
COORDINATOR_UNAVAILABLE = {COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR}
"""Temporary errors of a coordinator that is starting, is loading its groups, or has moved to another broker."""

_MEANINGS = {
    UNKNOWN_SERVER_ERROR: "the broker failed; see its log",
    UNKNOWN_TOPIC_OR_PARTITION: "the topic or partition does not exist",
    MESSAGE_TOO_LARGE: "the offsets exceed the maximum size of a record batch of the broker",
    OFFSET_METADATA_TOO_LARGE: "the metadata is longer than the broker's offset.metadata.max.bytes",
    COORDINATOR_LOAD_IN_PROGRESS: "the group's coordinator is still loading its groups",
    COORDINATOR_NOT_AVAILABLE: "the group's coordinator is not available",
    NOT_COORDINATOR: "the group has moved to another coordinator",
    ILLEGAL_GENERATION: "the group has active members, or is not a consumer group",
    INVALID_GROUP_ID: "the broker does not accept the group ID",
    UNKNOWN_MEMBER_ID: "the group has active members",
    REBALANCE_IN_PROGRESS: "the group has active members and is rebalancing",
    INVALID_COMMIT_OFFSET_SIZE: "the offsets exceed the maximum size of a record batch of the broker",
    TOPIC_AUTHORIZATION_FAILED: "this user is not authorized for the topic; an ACL for READ is required",
    GROUP_AUTHORIZATION_FAILED: "this user is not authorized for the group; an ACL for READ is required, "
    "or for DELETE to delete offsets or the group",
    UNSUPPORTED_VERSION: "the group has active members of a newer protocol, or the broker is too old",
    NON_EMPTY_GROUP: "the group has active members",
    GROUP_ID_NOT_FOUND: "the group does not exist",
    GROUP_SUBSCRIBED_TO_TOPIC: "an active member of the group is subscribed to the topic",
    STALE_MEMBER_EPOCH: "the group has active members",
}


def explain(code: int) -> str | None:
    """Return an error code as `NAME (code): meaning`; None for NONE (0)."""
    from kafka import errors  # noqa: PLC0415 - kafka-python takes 10 MB and 0.1 s

    if code == NONE:
        return None
    kind = errors.kafka_errors.get(code)
    if kind is None:  # a code that the library does not know
        return f"UNRECOGNIZED_ERROR ({code}): see the error codes of the Kafka protocol"
    name = "UNKNOWN_SERVER_ERROR" if code == UNKNOWN_SERVER_ERROR else kind.message
    return f"{name} ({code}): {_MEANINGS.get(code, kind.description)}"


def code_of(name: str) -> int:
    """Return the error code for the name of a class of kafka-python; -1 if it is unknown."""
    from kafka import errors  # noqa: PLC0415 - as above

    if name == "OK":
        return NONE
    return next((code for code, kind in errors.kafka_errors.items() if kind.__name__ == name), -1)
