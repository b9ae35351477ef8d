"""What a broker's refusal to change the offsets of a group means, in words."""

from kafka import errors

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

NO_ANSWER = "the broker gave no answer for this partition"

OF_A_TOPIC = {NONE, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED}
"""What Metadata says of a topic for good: there, not there, no name for a topic, no right to see it."""
PASSING = {COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR}
"""Errors of a coordinator that starts, loads its groups, or has given them to another broker."""

_MEANINGS = {
    UNKNOWN_SERVER_ERROR: "the broker failed, and its own log says why",
    UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    MESSAGE_TOO_LARGE: "the offsets are larger than one record batch of the broker may be",
    OFFSET_METADATA_TOO_LARGE: "the metadata is longer than the broker's offset.metadata.max.bytes",
    COORDINATOR_LOAD_IN_PROGRESS: "the group's coordinator is still loading its groups",
    COORDINATOR_NOT_AVAILABLE: "the group's coordinator is not available",
    NOT_COORDINATOR: "the group has moved to another coordinator",
    ILLEGAL_GENERATION: "the group has active members, or is no group of consumers",
    INVALID_GROUP_ID: "the broker takes no such group id",
    UNKNOWN_MEMBER_ID: "the group has active members",
    REBALANCE_IN_PROGRESS: "the group has active members, and they rebalance",
    INVALID_COMMIT_OFFSET_SIZE: "the offsets are larger than one record batch of the broker may be",
    TOPIC_AUTHORIZATION_FAILED: "this user has no right to the topic; an ACL for READ on it is needed",
    GROUP_AUTHORIZATION_FAILED: "this user has no right to the group; an ACL for READ on it is needed, "
    "for DELETE to delete any of it",
    UNSUPPORTED_VERSION: "the group has active members of a newer protocol, or the broker is too old",
    NON_EMPTY_GROUP: "the group has active members",
    GROUP_ID_NOT_FOUND: "there is no such group",
    GROUP_SUBSCRIBED_TO_TOPIC: "an active member of the group is subscribed to the topic",
    STALE_MEMBER_EPOCH: "the group has active members",
}


def in_words(code: int) -> str | None:
    """Say what an error code means as `NAME (code): meaning`; None for 0, no error."""
    if code == NONE:
        return None
    kind = errors.kafka_errors.get(code)
    if kind is None:  # newer than the library
        return f"UNRECOGNIZED_ERROR ({code}): see the error codes of the Kafka protocol"
    name = "UNKNOWN_SERVER_ERROR" if code == UNKNOWN_SERVER_ERROR else kind.message
    return f"{name} ({code}): {_MEANINGS.get(code, kind.description)}"


def code_of(name: str) -> int:
    """Give the error code that kafka-python calls by the name of a class; -1 for one it does not know."""
    if name == "OK":
        return NONE
    return next((code for code, kind in errors.kafka_errors.items() if kind.__name__ == name), -1)
