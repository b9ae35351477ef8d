"""A member of a share group over a plain socket, with requests by kio's schemas."""

import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from aiokafka.record.memory_records import MemoryRecords

from support.serve.kio_requests import SECONDS, answered, ask, connected, exchange, request

SHARE_FETCH, SHARE_ACKNOWLEDGE, METADATA, INITIALIZE = 78, 79, 3, 83
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4

Batches = Sequence[tuple[int, int, int]]
"""Acknowledgements: first offset, last offset, type."""


def topic_id(bootstrap: str, topic: str) -> uuid.UUID:
    """Return the id of a topic, when the server knows it."""
    deadline = time.monotonic() + SECONDS
    wanted = [{"name": topic, "topic_id": None}]
    while time.monotonic() < deadline:
        [found] = ask(bootstrap, METADATA, 12, topics=wanted, allow_auto_topic_creation=False)["topics"]
        if found["error_code"] == 0:
            return uuid.UUID(bytes=found["topic_id"])
        time.sleep(0.1)  # the interval between polls
    raise AssertionError(f"unknown topic {topic}")


def initialize(bootstrap: str, group: str, topic: uuid.UUID, partitions: int, start: int = -1) -> None:
    """Initialize share partitions, as the coordinator of the group does."""
    each = [{"partition": number, "state_epoch": 1, "start_offset": start} for number in range(partitions)]
    values = ask(bootstrap, INITIALIZE, 0, group_id=group, topics=[{"topic_id": topic, "partitions": each}])
    assert {part["error_code"] for result in values["results"] for part in result["partitions"]} == {0}


class ShareMember:
    """A member with one share session over partitions of a topic."""

    def __init__(self, bootstrap: str, group: str, topic: uuid.UUID, partitions: int = 1, version: int = 2) -> None:
        self._topic, self._partitions, self._version = topic, partitions, version
        self._names = {"group_id": group, "member_id": str(uuid.uuid4())}
        self._socket = connected(bootstrap)
        self.epoch = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._socket.close()

    def fetch(self, acknowledged: Mapping[int, Batches] | None = None, **values: Any) -> dict[str, Any]:
        """Send ShareFetch; return the whole response."""
        given = acknowledged or {}
        numbers = {*range(self._partitions)} if self.epoch == 0 else {*given}
        parts = [
            {"partition_index": number, "acknowledgement_batches": _batches(given.get(number, ()))}
            for number in sorted(numbers)
        ]
        defaults = {
            "max_wait": timedelta(minutes=1), "min_bytes": 1, "max_bytes": 50 << 20, "max_records": 500,
            "batch_size": 500, "forgotten_topics_data": [], "share_acquire_mode": 0, "is_renew_ack": False,
            "topics": [{"topic_id": self._topic, "partitions": parts}] if parts else [],
        }  # fmt: skip
        return self._send(SHARE_FETCH, defaults | values)

    def acknowledge(self, acknowledged: Mapping[int, Batches], **values: Any) -> dict[str, Any]:
        """Send ShareAcknowledge; return the whole response."""
        parts = [
            {"partition_index": number, "acknowledgement_batches": _batches(batches)}
            for number, batches in acknowledged.items()
        ]
        topics = [{"topic_id": self._topic, "partitions": parts}] if parts else []
        return self._send(SHARE_ACKNOWLEDGE, {"topics": topics, "is_renew_ack": False} | values)

    def _send(self, api: int, values: dict[str, Any]) -> dict[str, Any]:
        body = request(api, self._version, self._names | {"share_session_epoch": self.epoch} | values)
        found = answered(api, self._version, exchange(self._socket, body))
        if found["error_code"] == 0:
            self.epoch += 1
        return found


def partitions_of(response: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """Return the partitions in a response by number."""
    return {part["partition_index"]: part for topic in response["responses"] for part in topic["partitions"]}


def acquired(response: Mapping[str, Any]) -> dict[int, list[tuple[int, int, int]]]:
    """Return what was acquired by partition: first offset, last offset, delivery count."""
    found: dict[int, list[tuple[int, int, int]]] = {}
    for number, part in partitions_of(response).items():
        for each in part["acquired_records"]:
            records = each["first_offset"], each["last_offset"], each["delivery_count"]
            found.setdefault(number, []).append(records)
    return found


def values_in(response: Mapping[str, Any], partition: int = 0) -> dict[int, bytes]:
    """Return the values of all records in the returned batches by offset."""
    found: dict[int, bytes] = {}
    records = MemoryRecords(partitions_of(response)[partition]["records"])
    while records.has_next():
        batch = records.next_batch()
        assert batch is not None
        assert batch.validate_crc()
        found |= {record.offset: record.value for record in batch}
    return found


def _batches(batches: Batches) -> list[dict[str, Any]]:
    return [{"first_offset": first, "last_offset": last, "acknowledge_types": [kind]} for first, last, kind in batches]
