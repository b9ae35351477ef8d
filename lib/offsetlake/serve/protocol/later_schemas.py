"""Schemas of requests and responses of Kafka 4.4 that kio does not contain yet, in kio's form.

They are those of `ApiVersionsRequest.json`, `DeleteGroupsResponse.json`, `TxnOffsetCommitRequest.json` and
`TxnOffsetCommitResponse.json` of Kafka.
"""

import uuid
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kio.schema.api_versions.v4 import request as api_versions_request
from kio.schema.api_versions.v4 import response as api_versions_response
from kio.schema.delete_groups.v2 import request as delete_groups_request
from kio.schema.delete_groups.v2 import response as delete_groups_response
from kio.schema.txn_offset_commit.v5 import request as txn_offset_commit_request
from kio.schema.txn_offset_commit.v5 import response as txn_offset_commit_response
from kio.static.primitive import i16, i32

from offsetlake.serve.protocol.api_keys import API_VERSIONS, DELETE_GROUPS, TXN_OFFSET_COMMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest(api_versions_request.ApiVersionsRequest):
    """Version 5: the node that the client means to connect to (KIP-1242)."""

    __version__: ClassVar[i16] = i16(5)
    cluster_id: str | None = field(metadata={"kafka_type": "string"}, default=None)
    node_id: i32 = field(metadata={"kafka_type": "int32"}, default=i32(-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableGroupResult(delete_groups_response.DeletableGroupResult):
    """Version 3: with a message."""

    __version__: ClassVar[i16] = i16(3)
    error_message: str | None = field(metadata={"kafka_type": "string"}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsResponse(delete_groups_response.DeleteGroupsResponse):
    """Version 3."""

    __version__: ClassVar[i16] = i16(3)
    results: tuple[DeletableGroupResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequestTopic:
    """Version 6: a topic by its id."""

    __flexible__: ClassVar[bool] = True
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[txn_offset_commit_request.TxnOffsetCommitRequestPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequest(txn_offset_commit_request.TxnOffsetCommitRequest):
    """Version 6."""

    __version__: ClassVar[i16] = i16(6)
    topics: tuple[TxnOffsetCommitRequestTopic, ...]  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponseTopic:
    """Version 6: a topic by its id."""

    __flexible__: ClassVar[bool] = True
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[txn_offset_commit_response.TxnOffsetCommitResponsePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponse(txn_offset_commit_response.TxnOffsetCommitResponse):
    """Version 6."""

    __version__: ClassVar[i16] = i16(6)
    topics: tuple[TxnOffsetCommitResponseTopic, ...]  # type: ignore[assignment]


REQUESTS: dict[tuple[int, int], Any] = {
    (API_VERSIONS, 5): ApiVersionsRequest,
    (DELETE_GROUPS, 3): delete_groups_request.DeleteGroupsRequest,
    (TXN_OFFSET_COMMIT, 6): TxnOffsetCommitRequest,
}
"""The schema of a request by its API key and version."""

RESPONSES: dict[tuple[int, int], Any] = {
    (API_VERSIONS, 5): api_versions_response.ApiVersionsResponse,
    (DELETE_GROUPS, 3): DeleteGroupsResponse,
    (TXN_OFFSET_COMMIT, 6): TxnOffsetCommitResponse,
}
"""The schema of a response by its API key and version."""
