"""What a broker's refusal to change the offsets of a group means, in words."""

from kafka import errors

NO_ANSWER = "the broker gave no answer for this partition"

UNKNOWN_SERVER_ERROR, UNKNOWN_TOPIC, TOPIC_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND = -1, 3, 29, 69
OF_A_TOPIC = {0, UNKNOWN_TOPIC, 17, TOPIC_AUTHORIZATION_FAILED}
"""What Metadata says of a topic for good: there, not there, no name for a topic, no right to see it."""
PASSING = {14, 15, 16}
"""Errors of a coordinator that starts, loads its groups, or has given them to another broker."""

_MEANINGS = {
    UNKNOWN_SERVER_ERROR: "the broker failed, and its own log says why",
    UNKNOWN_TOPIC: "there is no such topic or partition",
    10: "the offsets are larger than one record batch of the broker may be",
    12: "the metadata is longer than the broker's offset.metadata.max.bytes",
    14: "the group's coordinator is still loading its groups",
    15: "the group's coordinator is not available",
    16: "the group has moved to another coordinator",
    22: "the group has active members, or is no group of consumers",
    24: "the broker takes no such group id",
    25: "the group has active members",
    27: "the group has active members, and they rebalance",
    28: "the offsets are larger than one record batch of the broker may be",
    TOPIC_AUTHORIZATION_FAILED: "this user has no right to the topic; an ACL for READ on it is needed",
    30: "this user has no right to the group; an ACL for READ on it is needed, for DELETE to delete any of it",
    35: "the group has active members of a newer protocol, or the broker is too old",
    68: "the group has active members",
    GROUP_ID_NOT_FOUND: "there is no such group",
    86: "an active member of the group is subscribed to the topic",
    113: "the group has active members",
}


def in_words(code: int) -> str | None:
    """Say what an error code means as `NAME (code): meaning`; None for 0, no error."""
    if code == 0:
        return None
    kind = errors.kafka_errors.get(code)
    if kind is None:  # newer than the library
        return f"UNRECOGNIZED_ERROR ({code}): see the error codes of the Kafka protocol"
    name = "UNKNOWN_SERVER_ERROR" if code == UNKNOWN_SERVER_ERROR else kind.message
    return f"{name} ({code}): {_MEANINGS.get(code, kind.description)}"


def code_of(name: str) -> int:
    """Give the error code that kafka-python calls by the name of a class; -1 for one it does not know."""
    if name == "OK":
        return 0
    return next((code for code, kind in errors.kafka_errors.items() if kind.__name__ == name), -1)
