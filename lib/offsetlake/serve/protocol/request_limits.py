"""Limits of requests by API: what a larger request could ask for, no client of Kafka needs.

| limit        | unit  | is checked |
|--------------|-------|------------|
| max_bytes    | bytes | when the size and the API key of a frame have arrived, before the rest of it is read |
| max_elements | count of the elements of all arrays and of all tagged fields | before the elements are read |

A larger request ends its connection, as a broker ends one above its `socket.request.max.bytes`. An Admin client asks
for 100,000 groups in one request, a consumer for all of its partitions.
"""

from typing import NamedTuple

from offsetlake.serve.protocol.wire import Malformed

_KIB, _MIB = 1 << 10, 1 << 20


class RequestLimit(NamedTuple):
    """How large a request of one API may be."""

    max_bytes: int
    max_elements: int


_NO_ARRAYS = RequestLimit(128 * _KIB, 1_000)
_PARTITIONS = RequestLimit(8 * _MIB, 200_000)
_GROUPS = RequestLimit(16 * _MIB, 200_000)
_COMMIT = RequestLimit(4 * _MIB, 50_000)

REQUEST_LIMITS = {
    0: RequestLimit(2 * _MIB, 10_000),  # Produce: max.request.size of a producer is 1 MiB; all of it is refused
    1: _PARTITIONS,  # Fetch
    2: _PARTITIONS,  # ListOffsets
    3: _PARTITIONS,  # Metadata
    8: _COMMIT,  # OffsetCommit: one record batch, of 1 MiB at the most on a broker
    9: _GROUPS,  # OffsetFetch
    10: _GROUPS,  # FindCoordinator
    15: _GROUPS,  # DescribeGroups
    16: _NO_ARRAYS,  # ListGroups: filters by state and by type
    17: _NO_ARRAYS,  # SaslHandshake
    18: _NO_ARRAYS,  # ApiVersions
    22: _NO_ARRAYS,  # InitProducerId
    24: _COMMIT,  # AddPartitionsToTxn: all of it is refused
    25: _NO_ARRAYS,  # AddOffsetsToTxn
    26: _NO_ARRAYS,  # EndTxn
    28: _COMMIT,  # TxnOffsetCommit
    36: _NO_ARRAYS,  # SaslAuthenticate
    42: _GROUPS,  # DeleteGroups
    47: _PARTITIONS,  # OffsetDelete
    60: _NO_ARRAYS,  # DescribeCluster
    69: _GROUPS,  # ConsumerGroupDescribe
    75: _PARTITIONS,  # DescribeTopicPartitions
}
"""By API key; requests of other APIs are refused."""

MAX_COMMIT_BATCH_BYTES = 1_048_588
"""Of the record batch of one OffsetCommit or TxnOffsetCommit: `max.message.bytes` of a broker, which fails larger ones
with UNKNOWN_SERVER_ERROR (-1)."""

API_KEY_BYTES = 2
MIN_LIMIT_BYTES = min(limit.max_bytes for limit in REQUEST_LIMITS.values())
"""A frame of this size needs no further check."""

_MAX_LIMIT_BYTES = max(limit.max_bytes for limit in REQUEST_LIMITS.values())


def check_frame_size(size: int, api_key: bytes | bytearray) -> None:
    """Raise Malformed if a frame of `size` bytes is larger than its API allows.

    `api_key` has the bytes of the API key that have arrived; until it is complete, the largest limit of all APIs holds.
    """
    api, max_bytes = int.from_bytes(api_key, "big", signed=True), _MAX_LIMIT_BYTES
    if len(api_key) == API_KEY_BYTES:
        max_bytes = REQUEST_LIMITS[api].max_bytes if api in REQUEST_LIMITS else MIN_LIMIT_BYTES
    if not 0 <= size <= max_bytes:
        raise Malformed(f"a request of {size} bytes, of API {api}, where {max_bytes} are allowed")
