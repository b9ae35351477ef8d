"""The request for the ends of leader epochs, which aiokafka lacks, defined with it.

Schema: `OffsetForLeaderEpochRequest` and its response, versions 2 and 3 of Kafka 2.1 and later (KIP-320).
"""

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int16, Int32, Int64, Schema, String

_TEXT = String("utf-8")
_CONSUMER = -1  # the replica ID of a client
_ANY_LEADER_EPOCH = -1


class EpochEndsResponseV2(Response):
    """OffsetForLeaderEpochResponse, version 2."""

    API_KEY = 23
    API_VERSION = 2
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            Array(
                ("topic", _TEXT),
                (
                    "partitions",
                    Array(("error_code", Int16), ("partition", Int32), ("leader_epoch", Int32), ("end_offset", Int64)),
                ),
            ),
        ),
    )


class EpochEndsResponseV3(Response):
    """OffsetForLeaderEpochResponse, version 3."""

    API_KEY = 23
    API_VERSION = 3
    SCHEMA = EpochEndsResponseV2.SCHEMA


_TOPICS = (
    "topics",
    Array(
        ("topic", _TEXT),
        ("partitions", Array(("partition", Int32), ("current_leader_epoch", Int32), ("leader_epoch", Int32))),
    ),
)


class EpochEndsRequestV2(RequestStruct):
    """OffsetForLeaderEpochRequest, version 2."""

    API_KEY = 23
    API_VERSION = 2
    RESPONSE_TYPE = EpochEndsResponseV2
    SCHEMA = Schema(_TOPICS)


class EpochEndsRequestV3(RequestStruct):
    """OffsetForLeaderEpochRequest, version 3, which states that a client asks."""

    API_KEY = 23
    API_VERSION = 3
    RESPONSE_TYPE = EpochEndsResponseV3
    SCHEMA = Schema(("replica_id", Int32), _TOPICS)


class UnsupportedError(Exception):
    """The broker is older than Kafka 2.1, or does not support the request."""


class EpochEnds(Request[EpochEndsRequestV2 | EpochEndsRequestV3]):
    """Asks a leader for the ends of leader epochs, by topic and partition."""

    API_KEY = 23

    def __init__(self, epochs: list[tuple[str, list[tuple[int, int]]]]) -> None:
        self._topics = [
            (topic, [(partition, _ANY_LEADER_EPOCH, epoch) for partition, epoch in partitions])
            for topic, partitions in epochs
        ]

    def prepare(self, versions: dict[int, tuple[int, int]]) -> EpochEndsRequestV2 | EpochEndsRequestV3:
        """Return the request in the newest version that the broker supports; raise UnsupportedError if it has none."""
        oldest, newest = versions.get(self.API_KEY, (0, -1))
        if newest < EpochEndsRequestV2.API_VERSION or oldest > EpochEndsRequestV3.API_VERSION:
            raise UnsupportedError
        request: EpochEndsRequestV2 | EpochEndsRequestV3 = super().prepare(versions)
        return request

    def build(
        self, request_struct_class: type[EpochEndsRequestV2 | EpochEndsRequestV3]
    ) -> EpochEndsRequestV2 | EpochEndsRequestV3:
        """Return the request."""
        has_replica = request_struct_class.API_VERSION >= EpochEndsRequestV3.API_VERSION
        return request_struct_class(*([_CONSUMER] if has_replica else []), self._topics)
