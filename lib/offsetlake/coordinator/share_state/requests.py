"""Requests for the state of one share partition, and their results (KIP-932).

A request of Kafka's protocol names many share partitions of a group, each of which is a request here.
"""

from dataclasses import dataclass
from typing import NamedTuple

from offsetlake.kafka.error_codes import NONE
from offsetlake.rules.share_state import UNKNOWN, StateBatch


class SharePartitionKey(NamedTuple):
    """A partition of a topic as a share group reads it; the topic ID is text (`offsetlake.kafka.uuid`)."""

    group_id: str
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class InitializeRequest:
    """InitializeShareGroupState; a start offset of UNKNOWN is not decided yet."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """ReadShareGroupState."""

    key: SharePartitionKey
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """WriteShareGroupState.

    An epoch of UNKNOWN is not compared, and a start offset of UNKNOWN does not change.
    """

    key: SharePartitionKey
    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...] = ()
    delivery_complete_count: int = UNKNOWN


@dataclass(frozen=True, slots=True)
class DeleteRequest:
    """DeleteShareGroupState."""

    key: SharePartitionKey


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """ReadShareGroupStateSummary; a coordinator of Kafka does not compare the leader epoch in it."""

    key: SharePartitionKey


@dataclass(frozen=True, slots=True)
class ShareStateResult:
    """The result of InitializeShareGroupState, WriteShareGroupState and DeleteShareGroupState."""

    error_code: int = NONE
    error_message: str | None = None


SUCCESS = ShareStateResult()
"""The result of a request that succeeded."""


@dataclass(frozen=True, slots=True)
class ReadResult(ShareStateResult):
    """The result of ReadShareGroupState."""

    state_epoch: int = 0
    start_offset: int = 0
    batches: tuple[StateBatch, ...] = ()


@dataclass(frozen=True, slots=True)
class SummaryResult(ShareStateResult):
    """The result of ReadShareGroupStateSummary."""

    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = UNKNOWN
