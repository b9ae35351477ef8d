"""Requests of every API and version, read and answered without sockets."""

import struct
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from offsetlake.kafka.records.writers import unsigned_varint
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.serve.apis import topic_answers
from offsetlake.serve.protocol import api_keys as apis
from offsetlake.serve.protocol import topics as topics_module
from offsetlake.serve.protocol import wire
from offsetlake.serve.protocol.topics import MAX_OFFSET, MAX_PARTITIONS, Topics
from support.serve.commands import ABSENT, CONSUMER, EMPTY, commit, delete_groups, delete_offsets, listed, stored
from support.serve.in_process import HOST, PORT, InProcess, Origin
from support.serve.kio_requests import CLIENT, CORRELATION, answered, request
from support.serve.mapped_snapshots import mapped_snapshot

ALL_VERSIONS = [
    (api, version)
    for api, versions in apis.VERSIONS.items()
    for version in versions
    if api not in (apis.OFFSET_COMMIT, apis.OFFSET_FETCH)
]
_PRODUCER = {"transactional_id": ABSENT, "producer_id": 1, "producer_epoch": 0}
_OLD_PRODUCER = {f"v3_and_below_{name}": value for name, value in _PRODUCER.items()}
_FETCHED = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
_PRODUCED = {"index": 0, "records": b"whatever"}
_MEMBER = {"group_id": ABSENT, "member_id": "nobody", "group_instance_id": None}
_SHARE_PARTITION = {
    "partition": 0,
    "state_epoch": 1,
    "leader_epoch": 1,
    "start_offset": 0,
    "delivery_complete_count": 0,
    "state_batches": [{"first_offset": 0, "last_offset": 9, "delivery_state": 2, "delivery_count": 1}],
}
_SHARE_STATE = {"group_id": ABSENT, "topics": [{"topic_id": uuid.UUID(int=5), "partitions": [_SHARE_PARTITION]}]}
VALUES: dict[int, dict[str, Any]] = {
    apis.PRODUCE: {
        "acks": -1,
        "topic_data": [{"name": "orders", "topic_id": uuid.UUID(int=5), "partition_data": [_PRODUCED]}],
    },
    apis.FETCH: {
        "max_wait": timedelta(milliseconds=500),
        "min_bytes": 1,
        "topics": [{"topic": "orders", "topic_id": uuid.UUID(int=5), "partitions": [_FETCHED]}],
        "forgotten_topics_data": [],
    },
    apis.LIST_OFFSETS: {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -1}]}]},
    apis.METADATA: {"topics": [{"name": "orders", "topic_id": None}]},
    apis.FIND_COORDINATOR: {"key": "g", "key_type": 0, "coordinator_keys": ["g"]},
    apis.JOIN_GROUP: _MEMBER
    | {
        "session_timeout": timedelta(minutes=5),
        "rebalance_timeout": timedelta(minutes=5),
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
        "reason": None,
    },
    apis.SYNC_GROUP: _MEMBER
    | {"generation_id": 1, "protocol_type": "consumer", "protocol_name": "range", "assignments": []},
    apis.HEARTBEAT: _MEMBER | {"generation_id": 1},
    apis.LEAVE_GROUP: _MEMBER | {"members": [_MEMBER | {"reason": None}]},
    apis.CONSUMER_GROUP_HEARTBEAT: _MEMBER
    | {
        "member_epoch": 1,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": timedelta(milliseconds=-1),
        "subscribed_topic_names": [],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
    },
    apis.DESCRIBE_GROUPS: {"groups": [EMPTY]},
    apis.DELETE_GROUPS: {"groups_names": [ABSENT]},
    apis.OFFSET_DELETE: {"group_id": ABSENT, "topics": []},
    apis.CONSUMER_GROUP_DESCRIBE: {"group_ids": [CONSUMER]},
    apis.DESCRIBE_TOPIC_PARTITIONS: {"topics": [{"name": "orders"}]},
    apis.SASL_HANDSHAKE: {"mechanism": "PLAIN"},
    apis.SASL_AUTHENTICATE: {"auth_bytes": b""},
    apis.INIT_PRODUCER_ID: {"transactional_id": None, "transaction_timeout": timedelta(minutes=1)},
    apis.ADD_PARTITIONS_TO_TXN: {
        **_OLD_PRODUCER,
        "v3_and_below_topics": [{"name": "orders", "partitions": [0]}],
        "transactions": [_PRODUCER | {"verify_only": False, "topics": [{"name": "orders", "partitions": [0]}]}],
    },
    apis.ADD_OFFSETS_TO_TXN: _PRODUCER | {"group_id": ABSENT},
    apis.END_TXN: _PRODUCER | {"committed": True},
    apis.TXN_OFFSET_COMMIT: _PRODUCER
    | {
        "group_id": ABSENT,
        "topics": [
            {"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]}
        ],
    },
    apis.SHARE_GROUP_HEARTBEAT: {
        "group_id": ABSENT,
        "member_id": "nobody",
        "member_epoch": 1,
        "rack_id": None,
        "subscribed_topic_names": None,
    },
    apis.SHARE_GROUP_DESCRIBE: {"group_ids": [ABSENT]},
    apis.DESCRIBE_SHARE_GROUP_OFFSETS: {"groups": [{"group_id": ABSENT, "topics": None}]},
    apis.ALTER_SHARE_GROUP_OFFSETS: {"group_id": ABSENT, "topics": []},
    apis.DELETE_SHARE_GROUP_OFFSETS: {"group_id": ABSENT, "topics": []},
    apis.DELETE_RECORDS: {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 1}]}]},
    apis.DESCRIBE_CONFIGS: {
        "resources": [{"resource_type": 4, "resource_name": "0", "configuration_keys": None}],
        "include_synonyms": True,
        "include_documentation": True,
    },
    apis.DESCRIBE_LOG_DIRS: {"topics": None},
    apis.DESCRIBE_PRODUCERS: {"topics": [{"name": "orders", "partition_indexes": [0]}]},
    apis.DESCRIBE_TRANSACTIONS: {"transactional_ids": [ABSENT]},
    apis.LIST_TRANSACTIONS: {
        "state_filters": [],
        "producer_id_filters": [],
        "duration_filter": -1,
        "transactional_id_pattern": None,
    },
    **dict.fromkeys(range(apis.INITIALIZE_SHARE_GROUP_STATE, apis.READ_SHARE_GROUP_STATE_SUMMARY + 1), _SHARE_STATE),
}
REFUSED = {
    apis.JOIN_GROUP: 25,
    apis.SYNC_GROUP: 25,
    apis.HEARTBEAT: 25,
    apis.CONSUMER_GROUP_HEARTBEAT: 69,
    apis.OFFSET_DELETE: 69,
    apis.SHARE_GROUP_HEARTBEAT: 69,
    apis.DELETE_SHARE_GROUP_OFFSETS: 69,
    apis.ADD_OFFSETS_TO_TXN: 49,
    apis.END_TXN: 49,
    apis.ADD_PARTITIONS_TO_TXN: 31,
    apis.SASL_HANDSHAKE: 34,
    apis.SASL_AUTHENTICATE: 34,
}
BROKER = {"node_id": 0, "host": HOST, "port": PORT}
LOADING = 14
LOG = "__consumer_offsets"


def server_with_topics(folder: Path, origin: Origin, **topics: int) -> InProcess:
    server = InProcess(folder, origin, {name.encode(): number for name, number in topics.items()})
    server.load()
    return server


@pytest.mark.parametrize(("api", "version"), ALL_VERSIONS)
def test_every_version_is_answered(shared: InProcess, api: int, version: int) -> None:
    answer = shared.ask(api, version, **VALUES.get(api, {}))
    if "error_code" in answer:
        is_old_leave = api == apis.LEAVE_GROUP and version < 3  # later versions have the error code of each member
        assert answer["error_code"] == (25 if is_old_leave else REFUSED.get(api, 0))
        if is_old_leave:
            return
    assert api in REFUSED or set(answer) - {"throttle_time", "error_code", "error_message"}, "it has other fields"


def test_api_versions_lists_the_supported_versions(loading: InProcess) -> None:
    for version in apis.VERSIONS[apis.API_VERSIONS]:
        ranges = loading.ask(apis.API_VERSIONS, version)["api_keys"]
        assert {row["api_key"]: range(row["min_version"], row["max_version"] + 1) for row in ranges} == apis.VERSIONS


def test_unsupported_version_of_api_versions_is_answered_in_version_0(loading: InProcess) -> None:
    frame = struct.pack(">hhih", apis.API_VERSIONS, 99, CORRELATION, len(CLIENT)) + CLIENT + b"\0whatever"
    answer = answered(apis.API_VERSIONS, 0, loading.answer(frame))
    only = {"api_key": apis.API_VERSIONS, "min_version": 0, "max_version": 4}
    assert answer == {"error_code": 35, "api_keys": [only]}


@pytest.mark.parametrize(
    ("api", "version"),
    [
        (apis.PRODUCE, 2),
        (4, 0),
        (apis.METADATA, 14),
        (apis.METADATA, -1),
        (apis.LIST_OFFSETS, 0),
        (apis.OFFSET_COMMIT, 1),
        (999, 0),
    ],
)
def test_unsupported_api_or_version_is_malformed(shared: InProcess, api: int, version: int) -> None:
    frame = struct.pack(">hhih", api, version, CORRELATION, -1)
    with pytest.raises(wire.Malformed, match=f"unsupported API {api}, version {version}"):
        shared.answer(frame)


@pytest.mark.parametrize(("api", "version"), ALL_VERSIONS)
def test_truncated_request_is_malformed(shared: InProcess, api: int, version: int) -> None:
    whole = request(api, version, VALUES.get(api, {}))
    start = len(request(apis.LIST_GROUPS, 0, {}))
    for stop in range(start, len(whole)):
        with pytest.raises((wire.Malformed, IndexError)):
            shared.answer(whole[:stop])


_LONGEST = "x" * (2**15 - 1)
_ROWS = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]


@pytest.mark.parametrize(
    ("api", "version", "values"),
    [
        (apis.TXN_OFFSET_COMMIT, 5, _PRODUCER | {"group_id": "g", "topics": [{"name": _LONGEST, "partitions": _ROWS}]}),
        (apis.TXN_OFFSET_COMMIT, 5, _PRODUCER | {"group_id": _LONGEST, "topics": []}),
        (apis.INIT_PRODUCER_ID, 4, VALUES[apis.INIT_PRODUCER_ID] | {"transactional_id": _LONGEST}),
        (apis.DELETE_GROUPS, 2, {"groups_names": ["g", _LONGEST]}),
        (apis.OFFSET_COMMIT, 9, {"group_id": _LONGEST, "topics": []}),
        (apis.OFFSET_COMMIT, 9, {"group_id": "g", "topics": [{"name": _LONGEST, "partitions": _ROWS}]}),
        (apis.OFFSET_FETCH, 7, {"group_id": _LONGEST, "topics": [], "require_stable": False}),
    ],
)
def test_too_long_string_is_malformed(served: InProcess, api: int, version: int, values: dict[str, Any]) -> None:
    """A compact length can state it, but no record can contain it: a broker closes the connection too."""
    frame = request(api, version, values)
    served.answer(frame)
    size, longer = 2**15, 2**15 + 1  # a compact length is the number of bytes plus one
    frame = frame.replace(unsigned_varint(size) + _LONGEST.encode(), unsigned_varint(longer) + f"{_LONGEST}x".encode())
    with pytest.raises(wire.Malformed, match=f"a string has {size} bytes"):
        served.answer(frame)
    assert commit(served, "g", "orders", 0, 1) == 0


def test_trailing_bytes_of_a_request_are_ignored(served: InProcess) -> None:
    frame = request(apis.METADATA, 13, {"topics": None}) + b"\0\0\0"
    assert answered(apis.METADATA, 13, served.answer(frame))["brokers"]


def test_group_requests_fail_while_the_log_is_loaded(loading: InProcess) -> None:
    assert loading.ask(apis.LIST_GROUPS, 5)["error_code"] == LOADING
    for version in (0, 6):
        assert loading.ask(apis.DESCRIBE_GROUPS, version, groups=["g"])["groups"][0]["error_code"] == LOADING
    described = loading.ask(apis.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g", ""])["groups"]
    assert [group["error_code"] for group in described] == [LOADING, 24]
    assert delete_groups(loading, "g", "h") == {"g": LOADING, "h": LOADING}
    assert delete_offsets(loading, "g", ("t", 0)) == [LOADING]
    assert delete_offsets(loading, "", ("t", 0)) == [24]
    assert loading.ask(apis.METADATA, 13, topics=None)["brokers"] == [BROKER | {"rack": None}]
    assert loading.ask(apis.FIND_COORDINATOR, 6, **VALUES[apis.FIND_COORDINATOR])["coordinators"][0]["port"] == PORT
    loading.load()
    assert loading.ask(apis.LIST_GROUPS, 5)["error_code"] == 0


def test_describe_cluster_returns_this_broker(served: InProcess) -> None:
    answer = served.ask(apis.DESCRIBE_CLUSTER, 2, include_cluster_authorized_operations=True)
    assert (answer["cluster_id"], answer["controller_id"]) == (served.parts.cluster_id(), 0)
    assert answer["brokers"] == [{"broker_id": 0, "host": HOST, "port": PORT, "rack": None, "is_fenced": False}]
    assert answer["cluster_authorized_operations"] == 1 << 8
    errors = [served.ask(apis.DESCRIBE_CLUSTER, 2, endpoint_type=kind)["error_code"] for kind in (1, 2, 3)]
    assert errors == [0, 114, 115]


@pytest.mark.parametrize("version", apis.VERSIONS[apis.FIND_COORDINATOR])
@pytest.mark.parametrize(("key_type", "since", "error"), [(0, 0, 0), (1, 1, 0), (2, 6, 0), (3, 1, 42)])
def test_groups_transactions_and_share_partitions_have_this_coordinator(
    shared: InProcess, version: int, key_type: int, since: int, error: int
) -> None:
    keys = [f"{group}:0UpezRseR2unUk_C-KbOfg:0" for group in "gh"]
    answer = shared.ask(apis.FIND_COORDINATOR, version, key="g", key_type=key_type, coordinator_keys=keys)
    expected = error if version >= since else 0 if version == 0 else 42
    for found in answer.get("coordinators", [answer]):
        assert found["error_code"] == expected
        assert (found["node_id"], found["host"], found["port"]) == ((-1, "", -1) if expected else (0, HOST, PORT))
    assert [row["key"] for row in answer.get("coordinators", ())] == (keys if version >= 4 else [])


def test_any_topic_exists_with_the_partitions_of_its_offsets(served: InProcess) -> None:
    topics = {topic["name"]: topic for topic in served.ask(apis.METADATA, 13, topics=None)["topics"]}
    highest = {name: number for group in listed(served) for name, number in sorted(stored(served, group))}
    assert highest
    assert all(len(topics[name]["partitions"]) > number for name, number in highest.items())
    assert all(topic["error_code"] == 0 and topic["topic_id"] for topic in topics.values())
    names = [{"name": name, "topic_id": None} for name in ("new", "a/b", "..", "")]
    new, *invalid = served.ask(apis.METADATA, 13, topics=names)["topics"]
    assert [partition["partition_index"] for partition in new["partitions"]] == [0]
    assert [topic["error_code"] for topic in invalid] == [17, 17, 17]
    assert commit(served, "g", "new", 6, 1) == 0
    (new,) = served.ask(apis.METADATA, 13, topics=names[:1])["topics"]
    assert [partition["partition_index"] for partition in new["partitions"]] == [*range(7)]
    by_id = [{"name": None, "topic_id": uuid.UUID(bytes=id_)} for id_ in (new["topic_id"], b"?" * 16)]
    assert served.ask(apis.METADATA, 13, topics=[*by_id, {"name": None, "topic_id": None}])["topics"] == [
        new,
        {**new, "error_code": 100, "name": None, "topic_id": b"?" * 16, "partitions": []},
        {**new, "error_code": 100, "name": None, "topic_id": None, "partitions": []},
    ]


def test_only_configured_topics_exist(tmp_path: Path, origin: Origin) -> None:
    served = server_with_topics(tmp_path, origin, here=2, orders=1)
    assert [topic["name"] for topic in served.ask(apis.METADATA, 0, topics=[])["topics"]] == [LOG, "here", "orders"]
    assert served.ask(apis.METADATA, 1, topics=[])["topics"] == []
    names = [{"name": name, "topic_id": None} for name in ("here", "payments", "orders")]
    topics = served.ask(apis.METADATA, 9, topics=names, include_topic_authorized_operations=True)["topics"]
    assert [(topic["error_code"], len(topic["partitions"])) for topic in topics] == [(0, 2), (3, 0), (0, 1)]
    assert topics[0]["topic_authorized_operations"] == 1 << 3 | 1 << 8
    assert [commit(served, "g", "here", number, 1) for number in (1, 2)] == [0, 3]
    assert delete_offsets(served, "g", ("here", 1), ("here", 2), ("payments", 0), ("here", 0)) == [0, 3, 3, 0]
    served.close()


def test_topics_are_described_in_pages(tmp_path: Path, origin: Origin) -> None:
    served = server_with_topics(tmp_path, origin, a=3, b=5, c=2)
    pages: list[list[tuple[str, int]]] = []
    cursor = None
    while not pages or cursor is not None:
        answer = served.ask(apis.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[], response_partition_limit=3, cursor=cursor)
        cursor = answer["next_cursor"]
        pages.append(
            [(topic["name"], row["partition_index"]) for topic in answer["topics"] for row in topic["partitions"]]
        )
    assert [len(page) for page in pages] == [3] * 20
    assert [each for page in pages for each in page] == [
        (name, number) for name, count in ((LOG, 50), ("a", 3), ("b", 5), ("c", 2)) for number in range(count)
    ]
    topics = [{"name": "c"}, {"name": "nowhere"}]
    answer = served.ask(apis.DESCRIBE_TOPIC_PARTITIONS, 0, topics=topics, cursor=None)
    assert [(topic["name"], topic["error_code"]) for topic in answer["topics"]] == [("c", 0), ("nowhere", 3)]
    served.close()


def test_partition_above_the_limit_does_not_exist(served: InProcess) -> None:
    """One commit could name any partition, and all below it would be described."""
    assert [commit(served, "g", "x", number, 1) for number in (2**31 - 1, MAX_PARTITIONS)] == [3, 3]
    names = [{"name": "x", "topic_id": None}]
    assert len(served.ask(apis.METADATA, 13, topics=names)["topics"][0]["partitions"]) == 1
    assert commit(served, "g", "x", 1000, 1) == 0
    assert len(served.ask(apis.METADATA, 13, topics=names)["topics"][0]["partitions"]) == 1001
    configured = Topics({b"x": 2 * MAX_PARTITIONS}, 50)
    assert configured.has_partition(b"x", 2 * MAX_PARTITIONS - 1), "the limit does not apply to configured topics"


def test_partition_of_the_log_above_the_limit_is_not_described(served: InProcess) -> None:
    served.topics.learn({b"x": (2**31 - 1, ZERO_UUID)})
    assert served.topics.partitions(b"x") == MAX_PARTITIONS
    cursor = {"topic_name": "x", "partition_index": MAX_PARTITIONS - 1}
    answer = served.ask(apis.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": "x"}], cursor=cursor)
    assert [row["partition_index"] for row in answer["topics"][0]["partitions"]] == [MAX_PARTITIONS - 1]
    assert answer["next_cursor"] is None


def test_metadata_limits_the_partitions_of_a_response(served: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small topics, the log, and a topic that is requested alone are described completely."""
    monkeypatch.setattr(topic_answers, "MAX_DESCRIBED_PARTITIONS", 1000)
    names = [f"many-{number}" for number in range(20)]
    served.topics.learn({name.encode(): (999, ZERO_UUID) for name in names})
    everything = served.ask(apis.METADATA, 13, topics=None)["topics"]
    partitions = {topic["name"]: len(topic["partitions"]) for topic in everything}
    share = 1000 // len(partitions)
    assert {partitions[name] for name in names} == {share}
    assert partitions[LOG] == 50 > share
    few = {name: number for name, number in partitions.items() if name not in (*names, LOG)}
    assert few == {name: min(served.topics.partitions(name.encode()), share) for name in few}
    repeated = [{"name": names[0], "topic_id": None}] * 3
    (topic,) = served.ask(apis.METADATA, 13, topics=repeated)["topics"]
    assert [partition["partition_index"] for partition in topic["partitions"]] == [*range(1000)]


@pytest.mark.parametrize("version", apis.VERSIONS[apis.LIST_OFFSETS])
def test_unknown_log_end_offset_is_not_available(served: InProcess, version: int) -> None:
    partitions = [{"partition_index": 0, "timestamp": time} for time in (-1, -2, -3, 1_700_000_000_000)]
    topics = [{"name": "orders", "partitions": [*partitions, {"partition_index": -1, "timestamp": -1}]}]
    (topic,) = served.ask(apis.LIST_OFFSETS, version, topics=topics)["topics"]
    found = [(row["error_code"], row["offset"], row["timestamp"]) for row in topic["partitions"]]
    assert found == [(78, -1, -1), (0, -1, -1), (0, -1, -1), (43, -1, -1), (3, -1, -1)]
    assert commit(served, "g", "orders", 0, MAX_OFFSET) == 1
    assert commit(served, "g", "orders", 0, MAX_OFFSET - 1) == 0


def test_range_of_a_reset_by_a_tool_is_not_limited(served: InProcess) -> None:
    """Kafka's tool requests the start and then the end of the partitions that it resets, and nothing in between."""

    def offset(timestamp: int, *partitions: int, client: bytes = b"adminclient-1") -> tuple[int, int]:
        rows = [{"partition_index": number, "timestamp": timestamp} for number in partitions]
        frame = request(apis.LIST_OFFSETS, 7, {"topics": [{"name": "orders", "partitions": rows}]})
        length = struct.pack(">h", len(CLIENT)) + CLIENT
        answer = served.answer(frame.replace(length, struct.pack(">h", len(client)) + client, 1))
        row = answered(apis.LIST_OFFSETS, 7, answer)["topics"][0]["partitions"][0]
        return row["error_code"], row["offset"]

    start, end, unknown = (0, -1), (0, MAX_OFFSET), (78, -1)
    assert [offset(-2, 0, 1), offset(-1, 1, 0), offset(-1, 1, 0)] == [start, end, unknown]
    assert [offset(-2, 0, 1), offset(-1, 1)] == [start, unknown]
    assert [offset(-2, 0, client=b"kgo"), offset(-1, 0, client=b"kgo")] == [start, unknown]
    assert [offset(-2, 0, client=b"kgo"), offset(-1, 0)] == [start, unknown]
    assert [offset(-1, 0), offset(-1, 0)] == [unknown, unknown]


def test_partitions_with_unknown_ends_are_described_without_a_leader(served: InProcess) -> None:
    """Kafka's tools show `-` as their end and their lag; consumers learn of them from Metadata, with the leader."""
    ends = {("ends", 1): (3, 90), ("ends", 2): (3, 90)}
    served.store.finish_refresh(mapped_snapshot({("g", "ends", number): {} for number in range(4)}, log_ends=ends))
    served.topics.learn({b"ends": (3, ZERO_UUID)})
    answer = served.ask(apis.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": "ends"}, {"name": LOG}], cursor=None)
    log, ends_ = answer["topics"]
    described = [(row["partition_index"], row["leader_id"], row["isr_nodes"]) for row in ends_["partitions"]]
    assert described == [(0, -1, []), (1, 0, [0]), (2, 0, [0]), (3, -1, [])]
    assert {row["leader_id"] for row in log["partitions"]} == {0}
    (topic,) = served.ask(apis.METADATA, 13, topics=[{"name": "ends", "topic_id": None}])["topics"]
    assert [row["leader_id"] for row in topic["partitions"]] == [0] * 4


@pytest.mark.parametrize("version", apis.VERSIONS[apis.LIST_OFFSETS])
def test_known_log_start_and_end_offsets_are_returned(served: InProcess, version: int) -> None:
    ends = {("orders", 0): (3, 90), ("orders", 1): (0, 0), ("unused", 0): (0, 5)}
    served.store.finish_refresh(mapped_snapshot({("g", "orders", 0): {}}, log_ends=ends))
    times = (-1, -2, -3, 1_700_000_000_000)
    partitions = [{"partition_index": number, "timestamp": time} for number in range(3) for time in times]
    topics = [{"name": name, "partitions": partitions} for name in ("orders", "unused")]
    found = [
        [(row["error_code"], row["offset"]) for row in topic["partitions"]]
        for topic in served.ask(apis.LIST_OFFSETS, version, topics=topics)["topics"]
    ]
    unknown = [(78, -1), (0, -1), (0, -1), (43, -1)]
    assert found == [
        [(0, 90), (0, 3), (0, -1), (43, -1), (0, 0), (0, 0), (0, -1), (43, -1), *unknown],
        unknown * 3,  # no group has an offset of it
    ]


@pytest.mark.parametrize("version", apis.VERSIONS[apis.FETCH])
def test_fetch_of_another_topic_is_refused(shared: InProcess, version: int) -> None:
    (topic,) = shared.ask(apis.FETCH, version, **VALUES[apis.FETCH])["responses"]
    assert topic.get("topic", "orders") == "orders"
    assert topic.get("topic_id", uuid.UUID(int=5).bytes) == uuid.UUID(int=5).bytes
    ((partition, error),) = [(row["partition_index"], row["error_code"]) for row in topic["partitions"]]
    assert (partition, error) == (0, 29)


@pytest.mark.parametrize("version", apis.VERSIONS[apis.PRODUCE])
def test_produce_is_refused(shared: InProcess, version: int) -> None:
    (topic,) = shared.ask(apis.PRODUCE, version, **VALUES[apis.PRODUCE])["responses"]
    assert topic.get("name", "orders") == "orders"
    assert topic.get("topic_id", uuid.UUID(int=5).bytes) == uuid.UUID(int=5).bytes
    (partition,) = topic["partition_responses"]
    assert (partition["index"], partition["error_code"], partition["base_offset"]) == (0, 29, -1)
    with pytest.raises(wire.Malformed, match="acks=0"):
        shared.ask(apis.PRODUCE, version, **VALUES[apis.PRODUCE] | {"acks": 0})


def test_zero_id_is_not_a_topic_id() -> None:
    topics = Topics(None, 50)
    topics.learn({b"t": (0, ZERO_UUID)})
    assert topics.id_of(b"t") != ZERO_UUID
    assert topics.name_of(ZERO_UUID) is None


def test_topics_without_offsets_are_forgotten_above_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_module, "MAX_REMEMBERED_TOPICS", 2)
    topics = Topics(None, 50)
    committed = topics.id_of(b"committed")
    topics.grow(b"committed", 0)
    first, second, third = (topics.id_of(name) for name in (b"first", b"second", b"third"))
    known = [topics.name_of(id_) for id_ in (committed, first, second, third)]
    assert known == [b"committed", None, b"second", b"third"]
    assert topics.id_of(b"first") == first, "the id does not change"


def test_topic_with_the_empty_name_does_not_exist(served: InProcess) -> None:
    """As on a broker: UNKNOWN_TOPIC_OR_PARTITION (3), and INVALID_TOPIC_EXCEPTION (17) in Metadata."""
    partition = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    topics = [{"name": name, "partitions": [partition | {"timestamp": -1}]} for name in ("", "t")]
    committed = served.ask(apis.OFFSET_COMMIT, 7, group_id="empty", generation_id=-1, topics=topics)
    deleted = served.ask(apis.OFFSET_DELETE, 0, group_id="empty", topics=topics)
    ends = served.ask(apis.LIST_OFFSETS, 5, topics=topics)
    for answer, error in ((committed, 0), (deleted, 0), (ends, 78)):
        assert [topic["partitions"][0]["error_code"] for topic in answer["topics"]] == [3, error]
    names = [{"name": "", "topic_id": None}]
    [topic] = served.ask(apis.METADATA, 9, topics=names, allow_auto_topic_creation=False)["topics"]
    assert topic["error_code"] == 17
