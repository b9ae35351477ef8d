"""Limits of requests by API, above what Kafka clients need.

| Limit        | Unit  | Checked |
|--------------|-------|---------|
| max_bytes    | bytes | When the size and the API key of a frame have arrived, before the rest of it is read. |
| max_elements | elements of all arrays, and tagged fields | Before the elements are read. |

A larger request closes its connection, as on a broker a request above `socket.request.max.bytes` does. An Admin client
describes up to 100,000 groups in one request, and a consumer names all of its partitions.
"""

from typing import NamedTuple

from offsetlake.serve.protocol.api_keys import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    ALTER_SHARE_GROUP_OFFSETS,
    API_VERSIONS,
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_STATE,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    FORWARDED,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    INITIALIZE_SHARE_GROUP_STATE,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    READ_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE_SUMMARY,
    RELAYED,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_GROUP_DESCRIBE,
    SHARE_GROUP_HEARTBEAT,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
    WRITE_SHARE_GROUP_STATE,
    WRITE_TXN_MARKERS,
)
from offsetlake.serve.protocol.wire import Malformed

_KIB, _MIB = 1 << 10, 1 << 20


class RequestLimit(NamedTuple):
    """The limits of requests of one API."""

    max_bytes: int
    max_elements: int


_NO_ARRAYS = RequestLimit(128 * _KIB, 1_000)
_PARTITIONS = RequestLimit(8 * _MIB, 200_000)
_GROUPS = RequestLimit(16 * _MIB, 200_000)
_COMMIT = RequestLimit(4 * _MIB, 50_000)

REQUEST_LIMITS = {
    PRODUCE: RequestLimit(2 * _MIB, 10_000),  # all are refused; max.request.size of a producer is 1 MiB
    FETCH: _PARTITIONS,
    LIST_OFFSETS: _PARTITIONS,
    METADATA: _PARTITIONS,
    OFFSET_COMMIT: _COMMIT,  # written as one record batch, of at most 1 MiB on a broker
    OFFSET_FETCH: _GROUPS,
    FIND_COORDINATOR: _GROUPS,
    JOIN_GROUP: RequestLimit(4 * _MIB, 1_000),  # the protocols of a member
    SYNC_GROUP: _COMMIT,  # written as one record
    HEARTBEAT: _NO_ARRAYS,
    LEAVE_GROUP: RequestLimit(4 * _MIB, 20_000),
    DESCRIBE_GROUPS: _GROUPS,
    LIST_GROUPS: _NO_ARRAYS,  # its arrays are the filters by state and by type
    SASL_HANDSHAKE: _NO_ARRAYS,
    API_VERSIONS: _NO_ARRAYS,
    INIT_PRODUCER_ID: _NO_ARRAYS,
    ADD_PARTITIONS_TO_TXN: _COMMIT,  # all are refused
    ADD_OFFSETS_TO_TXN: _NO_ARRAYS,
    END_TXN: _NO_ARRAYS,
    TXN_OFFSET_COMMIT: _COMMIT,
    SASL_AUTHENTICATE: _NO_ARRAYS,
    DELETE_GROUPS: _GROUPS,
    OFFSET_DELETE: _PARTITIONS,
    DESCRIBE_CLUSTER: _NO_ARRAYS,
    CONSUMER_GROUP_HEARTBEAT: RequestLimit(4 * _MIB, 50_000),  # topics of a subscription, and owned partitions
    CONSUMER_GROUP_DESCRIBE: _GROUPS,
    DESCRIBE_TOPIC_PARTITIONS: _PARTITIONS,
    WRITE_TXN_MARKERS: _PARTITIONS,
    DELETE_RECORDS: _PARTITIONS,  # all are refused
    OFFSET_FOR_LEADER_EPOCH: _PARTITIONS,
    DESCRIBE_CONFIGS: _PARTITIONS,
    DESCRIBE_LOG_DIRS: _PARTITIONS,
    DESCRIBE_PRODUCERS: _PARTITIONS,
    DESCRIBE_TRANSACTIONS: _GROUPS,
    LIST_TRANSACTIONS: _NO_ARRAYS,  # its arrays are filters
    **dict.fromkeys(FORWARDED | RELAYED, RequestLimit(8 * _MIB, 0)),  # not decoded here
    SHARE_FETCH: _PARTITIONS,  # with acknowledgements of at most the records in flight
    SHARE_ACKNOWLEDGE: _PARTITIONS,
    SHARE_GROUP_HEARTBEAT: RequestLimit(4 * _MIB, 50_000),  # topics of a subscription
    SHARE_GROUP_DESCRIBE: _GROUPS,
    DESCRIBE_SHARE_GROUP_OFFSETS: _GROUPS,
    ALTER_SHARE_GROUP_OFFSETS: _COMMIT,
    DELETE_SHARE_GROUP_OFFSETS: _COMMIT,
    INITIALIZE_SHARE_GROUP_STATE: _COMMIT,
    READ_SHARE_GROUP_STATE: _COMMIT,
    WRITE_SHARE_GROUP_STATE: _COMMIT,  # each share partition is written as one record
    DELETE_SHARE_GROUP_STATE: _COMMIT,
    READ_SHARE_GROUP_STATE_SUMMARY: _COMMIT,
}
"""The limits by API key; requests of other APIs are refused."""

MAX_COMMIT_BATCH_BYTES = 1_048_588
"""Maximum size of the record batch of one OffsetCommit or TxnOffsetCommit: the default of `max.message.bytes` of a
broker, which answers larger ones with UNKNOWN_SERVER_ERROR (-1)."""

API_KEY_BYTES = 2
MIN_LIMIT_BYTES = min(limit.max_bytes for limit in REQUEST_LIMITS.values())
"""The smallest limit of all APIs: a frame up to this size needs no further check."""

_MAX_LIMIT_BYTES = max(limit.max_bytes for limit in REQUEST_LIMITS.values())


def check_frame_size(size: int, api_key: bytes | bytearray) -> None:
    """Raise Malformed if a frame of `size` bytes is larger than its API allows.

    `api_key` contains the bytes of the API key that have arrived; until it is complete, the largest limit applies.
    """
    api, max_bytes = int.from_bytes(api_key, "big", signed=True), _MAX_LIMIT_BYTES
    if len(api_key) == API_KEY_BYTES:
        max_bytes = REQUEST_LIMITS[api].max_bytes if api in REQUEST_LIMITS else MIN_LIMIT_BYTES
    if not 0 <= size <= max_bytes:
        raise Malformed(f"a request of API {api} has {size} bytes; the limit is {max_bytes}")
