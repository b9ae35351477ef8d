"""Lets the share coordinator of this process initialize and delete the states of a group's share partitions.

As in a broker (`GroupCoordinatorService`), the group records what it requests before, and what was done after that.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from offsetlake.coordinator.epoch_groups.assignment import Assignment
from offsetlake.coordinator.groups import Group
from offsetlake.coordinator.share import offsets
from offsetlake.coordinator.share.group import ShareGroup
from offsetlake.coordinator.share.offsets import OffsetsReply
from offsetlake.coordinator.share.requests import Initialization
from offsetlake.coordinator.share_state.requests import (
    DeleteRequest,
    InitializeRequest,
    SharePartitionKey,
    ShareStateResult,
    SummaryRequest,
    SummaryResult,
)
from offsetlake.coordinator.steps import Step, Token
from offsetlake.kafka.error_codes import NONE, UNKNOWN_TOPIC_OR_PARTITION
from offsetlake.serve.groups.membership import Membership
from offsetlake.serve.storage.store import Store
from offsetlake.share.state.share_states import ShareStates
from offsetlake.util.log_lines import ClientLog, quoted

LOG = ClientLog(logging.getLogger(__name__))

Results = Mapping[tuple[str, int], ShareStateResult]
"""Results by topic ID and partition."""

Act = Callable[[Step, Group, Token], None]


class Initializer:
    """Runs requests for many share partitions of a group, each of which begins at once."""

    def __init__(
        self, membership: Membership, states: ShareStates, store: Store, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._membership, self._states, self._store, self._loop = membership, states, store, loop
        self._tasks: set[asyncio.Task[None]] = set()

    async def step(self, group_id: str, act: Act) -> tuple[object | None, int]:
        """Run a step of a group; return its reply, or None and an error code, when its records are durable."""
        done: asyncio.Future[tuple[object | None, int]] = self._loop.create_future()

        def reply(answer: object | None, error: int) -> None:
            if not done.done():  # it is cancelled if its connection was closed
                done.set_result((answer, error))

        self._membership.handle(group_id, ShareGroup, act, reply)
        return await done

    def start(self, group_id: str, initialization: Initialization) -> None:
        """Initialize share partitions that a member is to read, in the background."""
        self._start(self._initialize_subscribed(group_id, initialization))

    async def _initialize_subscribed(self, group_id: str, initialization: Initialization) -> None:
        results = await self.initialize(group_id, initialization)
        failed = next((result for result in results.values() if result.error_code), None)
        if failed is None:
            await self.initialized(group_id, _partitions(results))
            return
        LOG.warning(
            "The share partitions of group %s could not be initialized: error code %d (%s). A later heartbeat of a "
            "member tries it again",
            quoted(group_id),
            failed.error_code,
            failed.error_message,
        )
        await self._record(group_id, lambda step, group: offsets.not_initialized(step, group, _partitions(results)))

    async def initialize(self, group_id: str, initialization: Initialization) -> Results:
        """Initialize share partitions."""
        requests = {
            (topic_id, number): self._states.initialize(
                InitializeRequest(SharePartitionKey(group_id, topic_id, number), initialization.epoch, offset)
            )
            for topic_id, start_offsets in initialization.start_offsets.items()
            for number, offset in start_offsets.items()
        }
        return dict(zip(requests, await asyncio.gather(*requests.values()), strict=True))

    def start_initialized(self, group_id: str, results: Results) -> None:
        """Record that share partitions are initialized, in the background."""
        self._start(self.initialized(group_id, _partitions(results)))

    async def initialized(self, group_id: str, partitions: Assignment) -> None:
        """Record that share partitions are initialized."""
        await self._record(group_id, lambda step, group: offsets.initialized(step, group, partitions))

    async def delete(self, group_id: str, partitions: Assignment) -> Results:
        """Delete the states of share partitions."""
        requests = {
            (topic_id, number): self._states.delete(DeleteRequest(SharePartitionKey(group_id, topic_id, number)))
            for topic_id, numbers in partitions.items()
            for number in numbers
        }
        return dict(zip(requests, await asyncio.gather(*requests.values()), strict=True))

    async def deleted(self, group_id: str, topic_ids: list[str]) -> None:
        """Record that the states of topics are deleted."""
        await self._record(group_id, lambda step, group: offsets.deleted(step, group, topic_ids))

    async def remove_replaced_topics(self) -> None:
        """Remove topics that were created again, and their former states, until the task is cancelled."""
        while True:
            topic_ids = await self._states.remove_replaced()
            for name, kind in self._store.groups():
                if kind["group_type"] == "share":
                    await self._record(name.decode(), partial(offsets.topics_deleted, topic_ids=topic_ids))
                await asyncio.sleep(0)

    async def summaries(self, group_id: str, topic_id: str, partitions: list[int]) -> list[SummaryResult]:
        """Return the summaries of the states of share partitions."""
        keys = (SharePartitionKey(group_id, topic_id, number) for number in partitions)
        return await asyncio.gather(*(self._states.summary(SummaryRequest(key)) for key in keys))

    def delete_states(self, group: bytes, done: Callable[[int], None]) -> None:
        """Delete all states of a group without members, in the background; `done` is called with an error code."""
        self._start(self._delete_states(group.decode(), done))

    async def _delete_states(self, group_id: str, done: Callable[[int], None]) -> None:
        reply, error = await self.step(group_id, offsets.delete_all)
        if isinstance(reply, OffsetsReply):
            results = await self.delete(group_id, reply.deletion)
            # A group in the log of a broker can have topics that do not exist here: nothing reads their states.
            failed = (result.error_code for result in results.values())
            error = next((code for code in failed if code not in {NONE, UNKNOWN_TOPIC_OR_PARTITION}), NONE)
            error = error if reply.error is None else reply.error.error_code
        done(error)

    async def _record(self, group_id: str, act: Callable[[Step, Group], None]) -> None:
        """Run a step of a group, unless its tombstones are being written: no record may follow them."""
        if group_id.encode() in self._store.deleting:
            return

        def with_reply(step: Step, group: Group, token: Token) -> None:
            act(step, group)
            step.reply(token, None)

        await self.step(group_id, with_reply)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()  # raises an internal error, which the event loop logs


def _partitions(results: Results) -> Assignment:
    topics: dict[str, frozenset[int]] = {}
    for topic_id, number in results:
        topics[topic_id] = topics.get(topic_id, frozenset()) | {number}
    return topics
