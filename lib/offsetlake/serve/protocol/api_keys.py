"""The keys of the APIs that the serving process supports, and the supported versions of each."""

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 0, 1, 2, 3, 8, 9, 10
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, CONSUMER_GROUP_HEARTBEAT = 11, 12, 13, 14, 68
DESCRIBE_GROUPS, LIST_GROUPS, API_VERSIONS, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 18, 42, 47
INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT = 22, 24, 25, 26, 28
WRITE_TXN_MARKERS = 27
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
INITIALIZE_SHARE_GROUP_STATE, READ_SHARE_GROUP_STATE, WRITE_SHARE_GROUP_STATE = 83, 84, 85
DELETE_SHARE_GROUP_STATE, READ_SHARE_GROUP_STATE_SUMMARY = 86, 87
SHARE_GROUP_HEARTBEAT, SHARE_GROUP_DESCRIBE = 76, 77
DESCRIBE_SHARE_GROUP_OFFSETS, ALTER_SHARE_GROUP_OFFSETS, DELETE_SHARE_GROUP_OFFSETS = 90, 91, 92
DESCRIBE_CLUSTER, CONSUMER_GROUP_DESCRIBE, DESCRIBE_TOPIC_PARTITIONS = 60, 69, 75
SHARE_FETCH, SHARE_ACKNOWLEDGE = 78, 79
DELETE_RECORDS, OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS, DESCRIBE_LOG_DIRS = 21, 23, 32, 35
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66

VERSIONS = {
    PRODUCE: range(3, 14),
    FETCH: range(4, 19),
    LIST_OFFSETS: range(1, 12),
    METADATA: range(14),
    OFFSET_COMMIT: range(2, 11),
    OFFSET_FETCH: range(1, 11),
    FIND_COORDINATOR: range(7),
    JOIN_GROUP: range(10),
    HEARTBEAT: range(5),
    LEAVE_GROUP: range(6),
    SYNC_GROUP: range(6),
    DESCRIBE_GROUPS: range(7),
    LIST_GROUPS: range(6),
    SASL_HANDSHAKE: range(2),
    API_VERSIONS: range(5),
    INIT_PRODUCER_ID: range(6),
    ADD_PARTITIONS_TO_TXN: range(6),
    ADD_OFFSETS_TO_TXN: range(5),
    END_TXN: range(6),
    TXN_OFFSET_COMMIT: range(6),
    SASL_AUTHENTICATE: range(3),
    DELETE_GROUPS: range(3),
    OFFSET_DELETE: range(1),
    DESCRIBE_CLUSTER: range(3),
    CONSUMER_GROUP_HEARTBEAT: range(2),
    CONSUMER_GROUP_DESCRIBE: range(2),
    DESCRIBE_TOPIC_PARTITIONS: range(1),
    SHARE_GROUP_HEARTBEAT: range(1, 2),
    SHARE_GROUP_DESCRIBE: range(1, 2),
    INITIALIZE_SHARE_GROUP_STATE: range(1),
    READ_SHARE_GROUP_STATE: range(1),
    WRITE_SHARE_GROUP_STATE: range(2),
    DELETE_SHARE_GROUP_STATE: range(1),
    READ_SHARE_GROUP_STATE_SUMMARY: range(2),
    DESCRIBE_SHARE_GROUP_OFFSETS: range(2),
    ALTER_SHARE_GROUP_OFFSETS: range(1),
    DELETE_SHARE_GROUP_OFFSETS: range(1),
    DELETE_RECORDS: range(3),
    DESCRIBE_CONFIGS: range(1, 5),
    DESCRIBE_LOG_DIRS: range(1, 5),
    DESCRIBE_PRODUCERS: range(1),
    DESCRIBE_TRANSACTIONS: range(1),
    LIST_TRANSACTIONS: range(3),
}
"""The supported versions by API key: those of a Kafka 4.2 broker. Newer clients use the newest ones of these."""

FORWARDED = {19, 20, 30, 31, 33, 37, 38, 39, 40, 43, 44, 45, 46, 49, 51, 55, 57, 64, 80, 81, 94}
"""The APIs that brokers forward to the controller (`ApiKeys.forwardable`), from CreateTopics (19) to
UnregisterController (94)."""

RELAYED = {29, 41, 48, 50, 71, 74}
"""APIs that any broker answers and that change nothing: DescribeAcls, DescribeDelegationToken, DescribeClientQuotas,
DescribeUserScramCredentials, GetTelemetrySubscriptions and ListConfigResources."""

_SHARE_STATE = {
    *range(SHARE_GROUP_HEARTBEAT, SHARE_GROUP_DESCRIBE + 1),
    *range(INITIALIZE_SHARE_GROUP_STATE, READ_SHARE_GROUP_STATE_SUMMARY + 1),
    *range(DESCRIBE_SHARE_GROUP_OFFSETS, DELETE_SHARE_GROUP_OFFSETS + 1),
}

BROKER_VERSIONS = {api: versions for api, versions in VERSIONS.items() if api not in _SHARE_STATE} | {
    API_VERSIONS: range(6),
    TXN_OFFSET_COMMIT: range(7),
    DELETE_GROUPS: range(4),
    DESCRIBE_LOG_DIRS: range(1, 6),
    OFFSET_FOR_LEADER_EPOCH: range(2, 5),
    WRITE_TXN_MARKERS: range(1, 3),
}
"""The supported versions of a process that is a broker of a cluster: those of Kafka 4.0 to 4.4.

The other brokers coordinate share partitions.
"""


def version_range(api: int, versions: range) -> dict[str, int]:
    """Return the supported versions of an API, as in ApiVersions."""
    return {"api_key": api, "min_version": versions.start, "max_version": versions.stop - 1}
