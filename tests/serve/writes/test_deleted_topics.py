"""Offsets of deleted topics: deleted once the controller confirms it, and kept in every other case."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.node import deleted_topics
from offsetlake.node.metadata.image import ClusterImage, TopicColumns
from offsetlake.serve.storage.memtable import VALUE
from offsetlake.serve.storage.store import key
from support.serve.in_process import SECONDS, InProcess

FIRST, SECOND, OTHER = (bytes(15) + bytes([number]) for number in (1, 2, 3))


class Deleting:
    """Deletes offsets of the groups of a server, for a cluster and a controller that a test describes.

    `deleted` are the topic ids that the controller does not know, `unavailable` is how often it does not answer. The
    names that it knows are `named`, and `denied` are those that it does not let this process check.
    """

    def __init__(self, server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = server
        self.cluster: Any = SimpleNamespace(image=image(t=FIRST, other=OTHER), changed=[], node=7)
        self.deleted, self.unavailable, self.requests = set[bytes](), 0, list[set[bytes]]()
        self.named, self.denied, self.asking = set[bytes](), set[bytes](), lambda: None
        monkeypatch.setattr(deleted_topics, "deleted_topics", self._ask)
        monkeypatch.setattr(deleted_topics, "unused_names", self._ask_for_names)
        monkeypatch.setattr(deleted_topics, "controllers_of", lambda _: SimpleNamespace(close=lambda: None))
        monkeypatch.setattr(deleted_topics, "RETRY_SECONDS", 0)
        parts = server.parts
        self._topics = deleted_topics.DeletedTopics(self.cluster, parts.store, parts.writes, parts.log_partition)
        self._task = server.loop.create_task(self._topics.run(lambda: 5))

    async def _ask(self, _controllers: object, node: int, epoch: int, ids: list[bytes]) -> set[bytes]:
        assert (node, epoch) == (7, 5)
        if self.unavailable:
            self.unavailable -= 1
            raise LogUnavailable("No controller answers")
        self.requests.append({*ids})
        return self.deleted & {*ids}

    async def _ask_for_names(
        self, _controllers: object, names: dict[bytes, int]
    ) -> tuple[set[bytes], dict[bytes, int]]:
        self.asking()
        return {*names} - self.named - self.denied, dict.fromkeys({*names} & self.denied, 29)

    def load(self, **ids: set[bytes]) -> None:
        """Compare the topic ids of stored offsets with the metadata, as at the start."""
        snapshot: Any = SimpleNamespace(topic_ids=lambda: {name.encode(): stored for name, stored in ids.items()})
        self._topics.load(snapshot)

    def commit(self, group: str, offset: int, *, topic: str = "t", topic_id: bytes = ZERO_UUID) -> None:
        """Commit an offset of partition 0."""
        self.server.store.commit(group.encode(), {key(topic.encode(), 0): VALUE.pack(offset, -1, topic_id)}, 1)

    def describe(self, **ids: bytes) -> None:
        """Replace the metadata."""
        before, self.cluster.image = self.cluster.image, image(**ids)
        names = frozenset(name.decode() for name in {*before.known(), *self.cluster.image.known()})
        for callback in self.cluster.changed:
            callback(names)

    def asked(self, count: int) -> None:
        """Wait until the controller was asked so often, and the work on its answers is done."""

        async def wait() -> None:
            while len(self.requests) < count or self._topics._missing or self._topics._unused:
                assert not self._task.done(), self._task.result()
                await asyncio.sleep(0.001)  # the interval between polls

        self.server.loop.run_until_complete(asyncio.wait_for(wait(), SECONDS))

    def offsets(self, group: str) -> dict[bytes, int]:
        return {name[:-4]: VALUE.unpack_from(value)[0] for name, value in
                self.server.store.offsets(group.encode()).items()}  # fmt: skip

    def close(self) -> None:
        self._task.cancel()


def image(**ids: bytes) -> ClusterImage:
    columns = TopicColumns()
    for name, topic_id in ids.items():
        columns.add_partition(0, 1, 0, b"\1\1\1")
        columns.add(name.encode(), topic_id, internal=False)
    return ClusterImage("cluster", 1, (), columns)


@pytest.fixture
def deleting(served: InProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deleting]:
    deleting = Deleting(served, monkeypatch)
    yield deleting
    deleting.close()


def test_offsets_are_deleted_when_the_controller_confirms_it(deleting: Deleting) -> None:
    deleting.commit("g", 5)
    deleting.commit("g", 6, topic="other")
    deleting.unavailable, deleting.deleted = 3, {FIRST}
    deleting.describe(other=OTHER)
    deleting.asked(1)
    assert deleting.requests == [{FIRST}]
    assert deleting.offsets("g") == {b"other": 6}
    appended = deleting.server.parts.log_partition(b"g")
    assert deleting.server.writes.watermarks.get(appended) == deleting.server.appender.end(appended)


def test_topic_that_a_broker_does_not_describe_is_not_deleted(deleting: Deleting) -> None:
    deleting.commit("g", 5)
    deleting.named = {b"t"}
    for number in (1, 2):
        deleting.describe(other=OTHER)
        deleting.asked(number)
        deleting.describe(other=OTHER, t=FIRST)
    assert deleting.offsets("g") == {b"t": 5}


def test_offset_without_a_topic_id_is_kept_if_the_controller_does_not_confirm_the_name(
    deleting: Deleting, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that lags does not describe the topic that was created again, or CREATE is denied."""
    deleting.commit("by-name", 5)
    deleting.commit("by-name", 6, topic="other")
    deleting.commit("by-id", 5, topic_id=FIRST)
    deleting.deleted, deleting.named, deleting.denied = {FIRST}, {b"t"}, {b"other"}
    deleting.describe()
    deleting.asked(1)
    assert deleting.offsets("by-name") == {b"t": 5, b"other": 6}
    assert deleting.offsets("by-id") == {}
    assert "failed (error codes 29; topics: other). It needs CREATE on the cluster" in caplog.text


def test_offset_without_a_topic_id_is_kept_if_the_name_is_used_again(deleting: Deleting) -> None:
    """The topic is created again after the answer of the controller, and a broker that lags does not describe it."""

    def create_again() -> None:
        deleting.asking = lambda: None
        deleting.describe(t=SECOND, other=OTHER)
        deleting.commit("g", 5)
        deleting.describe(other=OTHER)
        deleting.named = {b"t"}

    deleting.asking, deleting.deleted = create_again, {FIRST}
    deleting.describe(other=OTHER)
    deleting.asked(2)
    assert deleting.offsets("g") == {b"t": 5}


def test_topic_that_is_deleted_while_the_offsets_of_others_are_is_noticed(deleting: Deleting) -> None:
    """A broker that lags did not describe it before, and the controller knew its id."""

    def describe_and_delete() -> None:
        deleting.asking = lambda: None
        deleting.describe(t=FIRST, other=OTHER)
        deleting.deleted = {FIRST}
        deleting.describe(other=OTHER)

    deleting.commit("g", 5, topic_id=FIRST)
    deleting.asking = describe_and_delete
    deleting.describe(other=OTHER)
    deleting.asked(2)
    assert deleting.requests == [{FIRST}, {FIRST}]
    assert deleting.offsets("g") == {}


def test_topics_that_were_deleted_before_the_start_are_noticed(deleting: Deleting) -> None:
    deleting.commit("g", 1, topic_id=SECOND)
    deleting.commit("g", 2, topic="other")
    deleting.commit("g", 3, topic="gone")
    deleting.commit("g", 4, topic="hidden")
    deleting.deleted, deleting.named = {SECOND}, {b"hidden"}
    deleting.load(t={SECOND, FIRST}, other={ZERO_UUID}, gone={ZERO_UUID}, hidden={ZERO_UUID})
    deleting.asked(1)
    assert deleting.requests == [{SECOND}]
    assert deleting.offsets("g") == {b"other": 2, b"hidden": 4}


def test_offsets_of_the_topic_that_was_created_again_are_kept(deleting: Deleting) -> None:
    """Also those that were committed before the change was noticed, or before a start with outdated metadata."""
    deleting.commit("by-name", 5)
    deleting.commit("by-id", 5, topic_id=SECOND)
    deleting.commit("by-former-id", 5, topic_id=FIRST)
    deleting.deleted, deleting.unavailable = {FIRST}, 10
    deleting.describe(t=SECOND, other=OTHER)
    deleting.commit("active", 1)
    deleting.asked(1)
    assert deleting.offsets("by-name") == {b"t": 5}
    assert deleting.offsets("by-id") == {b"t": 5}
    assert deleting.offsets("by-former-id") == {}
    assert deleting.offsets("active") == {b"t": 1}
    deleting.commit("by-former-id", 2)
    for topic_id in (FIRST, SECOND):  # a broker that lags describes the deleted topic again
        deleting.describe(t=topic_id, other=OTHER)
    deleting.asked(2)
    assert deleting.offsets("by-former-id") == {b"t": 2}
