"""InitializeShareGroupState, ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState, and …StateSummary.

Only brokers send these requests, which need the permission that a broker calls CLUSTER_ACTION. Like a broker, the
server returns one result for each share partition, that of the last request if a request names one twice. It returns no
result for a request without a group, without topics, or, except in InitializeShareGroupState, with a topic without
partitions.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any

from offsetlake.coordinator.share_state.requests import (
    SUCCESS,
    DeleteRequest,
    InitializeRequest,
    ReadRequest,
    ReadResult,
    SharePartitionKey,
    ShareStateResult,
    SummaryRequest,
    SummaryResult,
    WriteRequest,
)
from offsetlake.kafka.error_codes import CLUSTER_AUTHORIZATION_FAILED
from offsetlake.kafka.uuid import ZERO_UUID, uuid_text
from offsetlake.rules.share_state import UNKNOWN, StateBatch
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.net.handlers import Handlers, awaited
from offsetlake.serve.net.request_tasks import RequestTasks
from offsetlake.serve.protocol.api_keys import (
    DELETE_SHARE_GROUP_STATE,
    INITIALIZE_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE_SUMMARY,
    WRITE_SHARE_GROUP_STATE,
)
from offsetlake.serve.protocol.encoding import Values
from offsetlake.share.state.share_states import ShareStates

_DENIED = "Cluster authorization failed."
_REQUESTS_PER_STEP = 50
_SUCCEEDED = {field.name: getattr(SUCCESS, field.name) for field in fields(SUCCESS)}
_Results = dict[uuid.UUID | None, dict[int, Values]]


class ShareStateApis:
    """Answers the requests of brokers for the states of share partitions."""

    def __init__(self, states: ShareStates) -> None:
        self._states = states

    def handlers(self, tasks: RequestTasks) -> Handlers:
        """Return the handlers by API key."""
        return {
            INITIALIZE_SHARE_GROUP_STATE: awaited(tasks, self.initialize),
            READ_SHARE_GROUP_STATE: awaited(tasks, self.read),
            WRITE_SHARE_GROUP_STATE: awaited(tasks, self.write),
            DELETE_SHARE_GROUP_STATE: awaited(tasks, self.delete),
            READ_SHARE_GROUP_STATE_SUMMARY: awaited(tasks, self.summary),
        }

    async def initialize(self, request: Any, context: RequestContext) -> Values:
        """Answer InitializeShareGroupState."""

        def start(key: SharePartitionKey, part: Any) -> Awaitable[ShareStateResult]:
            return self._states.initialize(InitializeRequest(key, part.state_epoch, part.start_offset))

        return await _answer(request, context, start, ShareStateResult, allows_empty_topics=True)

    async def read(self, request: Any, context: RequestContext) -> Values:
        """Answer ReadShareGroupState."""

        def start(key: SharePartitionKey, part: Any) -> Awaitable[ShareStateResult]:
            return self._states.read(ReadRequest(key, part.leader_epoch))

        return await _answer(request, context, start, ReadResult)

    async def write(self, request: Any, context: RequestContext) -> Values:
        """Answer WriteShareGroupState."""

        def start(key: SharePartitionKey, part: Any) -> Awaitable[ShareStateResult]:
            batches = tuple(
                StateBatch(batch.first_offset, batch.last_offset, batch.delivery_count, batch.delivery_state)
                for batch in part.state_batches
            )
            complete = getattr(part, "delivery_complete_count", UNKNOWN)
            epochs = part.state_epoch, part.leader_epoch
            return self._states.write(WriteRequest(key, *epochs, part.start_offset, batches, complete))

        return await _answer(request, context, start, ShareStateResult)

    async def delete(self, request: Any, context: RequestContext) -> Values:
        """Answer DeleteShareGroupState."""

        def start(key: SharePartitionKey, _part: Any) -> Awaitable[ShareStateResult]:
            return self._states.delete(DeleteRequest(key))

        return await _answer(request, context, start, ShareStateResult)

    async def summary(self, request: Any, context: RequestContext) -> Values:
        """Answer ReadShareGroupStateSummary."""

        def start(key: SharePartitionKey, _part: Any) -> Awaitable[ShareStateResult]:
            return self._states.summary(SummaryRequest(key))

        return await _answer(request, context, start, SummaryResult)


async def _answer(
    request: Any,
    context: RequestContext,
    start: Callable[[SharePartitionKey, Any], Awaitable[ShareStateResult]],
    result_type: type[ShareStateResult],
    *,
    allows_empty_topics: bool = False,
) -> Values:
    """Start the requests for all share partitions in order, and answer when all of them are done."""
    if not context.client.access.may_act_as_broker():
        refused = _fields(result_type(CLUSTER_AUTHORIZATION_FAILED, _DENIED))
        return _values(
            [(topic.topic_id, part.partition, refused) for topic in request.topics for part in topic.partitions]
        )
    if not request.group_id or not (allows_empty_topics or all(topic.partitions for topic in request.topics)):
        return _values([])
    started = []
    for topic in request.topics:
        topic_id = uuid_text(topic.topic_id.bytes if topic.topic_id else ZERO_UUID)
        for part in topic.partitions:
            key = SharePartitionKey(request.group_id, topic_id, part.partition)
            started.append((topic.topic_id, part.partition, start(key, part)))
            if len(started) % _REQUESTS_PER_STEP == 0:
                await asyncio.sleep(0)
    return _values([(topic_id, part, _fields(await result)) for topic_id, part, result in started])


def _fields(result: ShareStateResult) -> dict[str, Any]:
    """Return the fields of a result with the names that they have in a response."""
    if result is SUCCESS:
        return _SUCCEEDED
    values = {field.name: getattr(result, field.name) for field in fields(result)}
    if isinstance(result, ReadResult):
        values["state_batches"] = [batch._asdict() for batch in values.pop("batches")]
    return values


def _values(results: list[tuple[uuid.UUID | None, int, dict[str, Any]]]) -> Values:
    """Return the response with results by topic id and partition; later ones replace earlier ones."""
    topics: _Results = {}
    for topic_id, partition, values in results:
        topics.setdefault(topic_id, {})[partition] = {"partition": partition, **values}
    return {"results": [{"topic_id": topic_id, "partitions": [*parts.values()]} for topic_id, parts in topics.items()]}
