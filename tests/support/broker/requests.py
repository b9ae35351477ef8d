"""Requests that Kafka's Python clients lack, defined with aiokafka, and a connection to send them."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.types import (
    Array,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
)

ANSWER_SECONDS = 120

_TEXT = String("utf-8")
_COMPACT_TEXT = CompactString("utf-8")
_GROUP = 0  # what a coordinator is of
_NOT_READY = {14, 15, 16}  # loading, not available, not the coordinator (yet)


class BrokerRefusedError(RuntimeError):
    """The broker answered with an error code."""


class ListGroupsResponse_v5(Response):  # noqa: N801
    API_KEY = 16
    API_VERSION = 5
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "groups",
            CompactArray(
                ("group_id", _COMPACT_TEXT),
                ("protocol_type", _COMPACT_TEXT),
                ("state", _COMPACT_TEXT),
                ("group_type", _COMPACT_TEXT),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class ListGroupsRequest_v5(RequestStruct):  # noqa: N801
    API_KEY = 16
    API_VERSION = 5
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = ListGroupsResponse_v5
    SCHEMA = Schema(
        ("states", CompactArray(_COMPACT_TEXT)), ("types", CompactArray(_COMPACT_TEXT)), ("tags", TaggedFields)
    )


class ListGroups(Request[ListGroupsRequest_v5]):
    """All groups of every type, with their states."""

    API_KEY = 16

    def build(self, request_struct_class: type[ListGroupsRequest_v5]) -> ListGroupsRequest_v5:
        return request_struct_class([], [], {})


class OffsetFetchResponse_v5(Response):  # noqa: N801
    API_KEY = 9
    API_VERSION = 5
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            Array(
                ("topic", _TEXT),
                (
                    "partitions",
                    Array(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", _TEXT),
                        ("error_code", Int16),
                    ),
                ),
            ),
        ),
        ("error_code", Int16),
    )


class OffsetFetchRequest_v5(RequestStruct):  # noqa: N801
    API_KEY = 9
    API_VERSION = 5
    RESPONSE_TYPE = OffsetFetchResponse_v5
    SCHEMA = Schema(("group_id", _TEXT), ("topics", Array(("topic", _TEXT), ("partitions", Array(Int32)))))


class OffsetFetch(Request[OffsetFetchRequest_v5]):
    """All committed offsets of a group; version 5 is the first with the leader epoch."""

    API_KEY = 9

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id

    def build(self, request_struct_class: type[OffsetFetchRequest_v5]) -> OffsetFetchRequest_v5:
        return request_struct_class(self._group_id, None)


class OffsetDeleteResponse_v0(Response):  # noqa: N801
    API_KEY = 47
    API_VERSION = 0
    SCHEMA = Schema(
        ("error_code", Int16),
        ("throttle_time_ms", Int32),
        (
            "topics",
            Array(("topic", _TEXT), ("partitions", Array(("partition", Int32), ("error_code", Int16)))),
        ),
    )


class OffsetDeleteRequest_v0(RequestStruct):  # noqa: N801
    API_KEY = 47
    API_VERSION = 0
    RESPONSE_TYPE = OffsetDeleteResponse_v0
    SCHEMA = Schema(("group_id", _TEXT), ("topics", Array(("topic", _TEXT), ("partitions", Array(Int32)))))


class OffsetDelete(Request[OffsetDeleteRequest_v0]):
    """Deletion of a group's offsets of some partitions of one topic."""

    API_KEY = 47

    def __init__(self, group_id: str, topic: str, partitions: list[int]) -> None:
        self._group_id, self._topic, self._partitions = group_id, topic, partitions

    def build(self, request_struct_class: type[OffsetDeleteRequest_v0]) -> OffsetDeleteRequest_v0:
        return request_struct_class(self._group_id, [(self._topic, self._partitions)])


class DescribeTransactionsResponse_v0(Response):  # noqa: N801
    API_KEY = 65
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "transactions",
            CompactArray(
                ("error_code", Int16),
                ("transactional_id", _COMPACT_TEXT),
                ("state", _COMPACT_TEXT),
                ("timeout_ms", Int32),
                ("start_time", Int64),
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                (
                    "topics",
                    CompactArray(("topic", _COMPACT_TEXT), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class DescribeTransactionsRequest_v0(RequestStruct):  # noqa: N801
    API_KEY = 65
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = DescribeTransactionsResponse_v0
    SCHEMA = Schema(("transactional_ids", CompactArray(_COMPACT_TEXT)), ("tags", TaggedFields))


class DescribeTransactions(Request[DescribeTransactionsRequest_v0]):
    """The state of one transactional id's last transaction."""

    API_KEY = 65

    def __init__(self, transactional_id: str) -> None:
        self._transactional_id = transactional_id

    def build(self, request_struct_class: type[DescribeTransactionsRequest_v0]) -> DescribeTransactionsRequest_v0:
        return request_struct_class([self._transactional_id], {})


@contextlib.asynccontextmanager
async def connection(bootstrap: str) -> AsyncIterator[AIOKafkaConnection]:
    """Yield a plain connection to the one broker, which coordinates every group."""
    host, port = bootstrap.rsplit(":", 1)
    connected = await create_conn(host, int(port))
    try:
        yield connected
    finally:
        await connected.close()


async def ask(connected: AIOKafkaConnection, request: Request[Any]) -> Any:
    """Send until the coordinator is ready and return the response; refuse one with an error code of its own."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        response = await connected.send(request)
        if response.error_code in _NOT_READY and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        elif response.error_code:
            raise BrokerRefusedError(f"{type(request).__name__}: error {response.error_code}")
        else:
            return response


async def await_coordinator(bootstrap: str, groups: Iterable[str]) -> None:
    """Wait until groups have their coordinator, which a new broker makes when first asked, and it has loaded them."""
    async with connection(bootstrap) as connected:
        for group_id in groups:
            await ask(connected, FindCoordinatorRequest(group_id, _GROUP))
            await ask(connected, OffsetFetch(group_id))
