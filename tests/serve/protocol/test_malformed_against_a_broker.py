"""Malformed requests get the error codes of a real broker, or close the connection as there.

In an ordinary request of each API and version, one length, string or tag at a time is invalid.
"""

import dataclasses
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader
from kio.static.primitive import i16

from offsetlake.serve.protocol.api_keys import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    DELETE_RECORDS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FETCH,
    INIT_PRODUCER_ID,
    INITIALIZE_SHARE_GROUP_STATE,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    READ_SHARE_GROUP_STATE_SUMMARY,
    TXN_OFFSET_COMMIT,
    VERSIONS,
    WRITE_SHARE_GROUP_STATE,
)
from support.broker.broker import Broker
from support.serve.broker_comparison import TOPICS
from support.serve.kio_requests import connected
from support.serve.malformed_requests import Layout
from support.serve.serving import Serving
from support.serve.valid_requests import plain_entity

pytestmark = [pytest.mark.broker, pytest.mark.slow]

SHARE_OFFSETS = range(DESCRIBE_SHARE_GROUP_OFFSETS, DELETE_SHARE_GROUP_OFFSETS + 1)
SHARE_STATE = range(INITIALIZE_SHARE_GROUP_STATE, READ_SHARE_GROUP_STATE_SUMMARY + 1)
OTHER_CODES: dict[int | tuple[int, int, str], str] = {
    PRODUCE: "refused with TOPIC_AUTHORIZATION_FAILED",
    FETCH: "refused with TOPIC_AUTHORIZATION_FAILED for topics other than the log",
    LIST_OFFSETS: "OFFSET_NOT_AVAILABLE for topics other than the log",
    DELETE_RECORDS: "refused with TOPIC_AUTHORIZATION_FAILED for topics other than the log",
    ADD_PARTITIONS_TO_TXN: "refused with TOPIC_AUTHORIZATION_FAILED or CLUSTER_AUTHORIZATION_FAILED",
    INIT_PRODUCER_ID: "the broker has no transaction log yet: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR",
    ADD_OFFSETS_TO_TXN: "as for InitProducerId",
    END_TXN: "as for InitProducerId",
    TXN_OFFSET_COMMIT: "as for InitProducerId",
    DESCRIBE_TRANSACTIONS: "as for InitProducerId",
    DESCRIBE_TOPIC_PARTITIONS: "the broker fails on the empty name: UNKNOWN_SERVER_ERROR",
    **dict.fromkeys(SHARE_OFFSETS, "share groups of a 4.1 have no offsets that can be described or changed"),
    **dict.fromkeys(SHARE_STATE, "the broker has no log of share partitions yet: NOT_COORDINATOR"),
} | {
    (METADATA, version, f".topics[].name {what}"): "without name and id, the broker fails: UNKNOWN_SERVER_ERROR"
    for version in (12, 13)
    for what in ("null", "-2")
}
"""APIs and requests whose error codes are not compared, with the reason; whether the connection is closed is."""

NOT_COMPARED = {
    (PRODUCE, ".topic_data[].partition_data[].records null"): "the broker fails and never answers",
    (PRODUCE, ".topic_data[].partition_data[].records -2"): "the broker fails and never answers",
}
"""Requests that are not sent, with the reason."""

MISSING = dict.fromkeys(
    [
        (LIST_OFFSETS, 11),
        (WRITE_SHARE_GROUP_STATE, 1),
        (READ_SHARE_GROUP_STATE_SUMMARY, 1),
        (DESCRIBE_SHARE_GROUP_OFFSETS, 1),
    ],
    "the broker is a 4.1",
)

SOFTWARE = ("a", "A-1.2", "a-", "-a", ".a", "a b", "a_b", "é", "a\0", "1", "a" * 300, "a\n", "", "a..b")
CLOSED = "closed"


class Peer:
    """Sends requests to a server, over one connection until it is closed."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._connection: socket.socket | None = None

    def outcome(self, api: int, version: int, data: bytes) -> list[int] | str:
        """Send a request without its size; return the error codes of the response in order, or CLOSED."""
        connection = self._connection = self._connection or connected(self._bootstrap)
        try:
            connection.sendall(struct.pack(">i", len(data)) + data)
            response = _received(connection, *struct.unpack(">i", _received(connection, 4)))
        except (EOFError, ConnectionError):
            self.close()
            return CLOSED
        schema: Any = load_response_schema(i16(api), i16(version))
        begin = 5 if schema.__header_schema__.__version__ == 1 else 4
        entity, size = entity_reader(schema)(response, begin)
        assert begin + size == len(response)
        return sorted(_codes(entity))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _codes(value: Any) -> Iterator[int]:
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            field_value = getattr(value, field.name)
            is_code = field.metadata.get("kafka_type") == "error_code"
            yield from [int(field_value)] if is_code else _codes(field_value)
    elif isinstance(value, tuple):
        for element in value:
            yield from _codes(element)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("malformed")
    with Serving(folder / "lake", folder / "log", topics=TOPICS) as running:
        yield running
    assert running.process.returncode == 0
    assert not [line for line in running.said if "Traceback" in line or "internal error" in line]


@pytest.fixture(scope="module")
def peers(newest_broker: Broker, serving: Serving) -> Iterator[tuple[Peer, Peer]]:
    both = Peer(newest_broker.bootstrap), Peer(serving.bootstrap)
    yield both
    for peer in both:
        peer.close()


@pytest.mark.parametrize("api", VERSIONS)
def test_malformed_request_has_the_outcome_of_a_broker(peers: tuple[Peer, Peer], api: int) -> None:
    differing, closed = {}, 0
    for version in VERSIONS[api]:
        layout = Layout(api, version, plain_entity(api, version))
        for what, data in layout.mutations():
            if (api, what) not in NOT_COMPARED and (api, version) not in MISSING:
                expected, outcome = (peer.outcome(api, version, data) for peer in peers)
                closed += outcome == CLOSED
                if api in OTHER_CODES or (api, version, what) in OTHER_CODES:
                    expected, outcome = ("answered" if each != CLOSED else each for each in (expected, outcome))
                if outcome != expected:
                    differing[version, what] = f"broker: {expected}, serving process: {outcome}"
    assert not differing
    assert closed


@pytest.mark.parametrize("version", range(3, 5))
def test_invalid_client_software_is_refused_as_by_a_broker(peers: tuple[Peer, Peer], version: int) -> None:
    """INVALID_REQUEST (42), as in KIP-511."""
    schema = type(plain_entity(API_VERSIONS, version))
    seen = set()
    for name in SOFTWARE:
        for software in ((name, "1"), ("a", name)):
            entity = schema(client_software_name=software[0], client_software_version=software[1])
            data = bytes(Layout(API_VERSIONS, version, entity).data)
            expected, outcome = (peer.outcome(API_VERSIONS, version, data) for peer in peers)
            assert outcome == expected, software
            seen.add(str(outcome))
    assert seen == {"[0]", "[42]"}


@pytest.mark.parametrize("length", [-1, -2, -(2**15)])
def test_request_without_client_id_is_answered(peers: tuple[Peer, Peer], length: int) -> None:
    data = struct.pack(">hhih", API_VERSIONS, 0, 1, length)
    assert [peer.outcome(API_VERSIONS, 0, data) for peer in peers] == [[0], [0]]
