"""The requests about the offsets of share groups (KIP-932), which Kafka's Python clients lack, defined with aiokafka.

Schemas: `DescribeShareGroupOffsetsRequest`, `AlterShareGroupOffsetsRequest` and `DeleteShareGroupOffsetsRequest` of
Kafka 4.1, and their responses. A topic ID is two integers.
"""

from collections.abc import Collection, Mapping

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields

_TEXT = CompactString("utf-8")
_TAGS = ("tags", TaggedFields)
_ERROR = (("error_code", Int16), ("error_message", _TEXT))
_TOPIC = (("topic_name", _TEXT), ("topic_id_high", Int64), ("topic_id_low", Int64))


class DescribeResponse(Response):
    """DescribeShareGroupOffsetsResponse, version 0."""

    API_KEY = 90
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            CompactArray(
                ("group_id", _TEXT),
                (
                    "topics",
                    CompactArray(
                        *_TOPIC,
                        (
                            "partitions",
                            CompactArray(
                                ("partition", Int32), ("start_offset", Int64), ("leader_epoch", Int32), *_ERROR, _TAGS
                            ),
                        ),
                        _TAGS,
                    ),
                ),
                *_ERROR,
                _TAGS,
            ),
        ),
        _TAGS,
    )


class DescribeRequest(RequestStruct):
    """DescribeShareGroupOffsetsRequest, version 0."""

    API_KEY = 90
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = DescribeResponse
    SCHEMA = Schema(
        (
            "groups",
            CompactArray(
                ("group_id", _TEXT),
                ("topics", CompactArray(("topic_name", _TEXT), ("partitions", CompactArray(Int32)), _TAGS)),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class DescribeOffsets(Request[DescribeRequest]):
    """Requests the start offsets of all share partitions of a group."""

    API_KEY = 90

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id

    def build(self, request_struct_class: type[DescribeRequest]) -> DescribeRequest:
        """Return the request."""
        return request_struct_class([(self._group_id, None, {})], {})


class AlterResponse(Response):
    """AlterShareGroupOffsetsResponse, version 0."""

    API_KEY = 91
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        *_ERROR,
        ("topics", CompactArray(*_TOPIC, ("partitions", CompactArray(("partition", Int32), *_ERROR, _TAGS)), _TAGS)),
        _TAGS,
    )


class AlterRequest(RequestStruct):
    """AlterShareGroupOffsetsRequest, version 0."""

    API_KEY = 91
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = AlterResponse
    SCHEMA = Schema(
        ("group_id", _TEXT),
        (
            "topics",
            CompactArray(
                ("topic_name", _TEXT),
                ("partitions", CompactArray(("partition", Int32), ("start_offset", Int64), _TAGS)),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class AlterOffsets(Request[AlterRequest]):
    """Sets start offsets of share partitions, by topic and partition."""

    API_KEY = 91

    def __init__(self, group_id: str, offsets: Mapping[str, Mapping[int, int]]) -> None:
        self._group_id, self._offsets = group_id, offsets

    def build(self, request_struct_class: type[AlterRequest]) -> AlterRequest:
        """Return the request."""
        topics: list[tuple[object, ...]] = [
            (topic, [(partition, offset, {}) for partition, offset in partitions.items()], {})
            for topic, partitions in self._offsets.items()
        ]
        return request_struct_class(self._group_id, topics, {})


class DeleteResponse(Response):
    """DeleteShareGroupOffsetsResponse, version 0."""

    API_KEY = 92
    API_VERSION = 0
    SCHEMA = Schema(("throttle_time_ms", Int32), *_ERROR, ("topics", CompactArray(*_TOPIC, *_ERROR, _TAGS)), _TAGS)


class DeleteOffsetsRequest(RequestStruct):
    """DeleteShareGroupOffsetsRequest, version 0."""

    API_KEY = 92
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = DeleteResponse
    SCHEMA = Schema(("group_id", _TEXT), ("topics", CompactArray(("topic_name", _TEXT), _TAGS)), _TAGS)


class DeleteOffsets(Request[DeleteOffsetsRequest]):
    """Deletes the share partitions of topics."""

    API_KEY = 92

    def __init__(self, group_id: str, topics: Collection[str]) -> None:
        self._group_id, self._topics = group_id, topics

    def build(self, request_struct_class: type[DeleteOffsetsRequest]) -> DeleteOffsetsRequest:
        """Return the request."""
        return request_struct_class(self._group_id, [(topic, {}) for topic in self._topics], {})
