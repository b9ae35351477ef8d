"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets."""

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from offsetlake.auth.acl import ADMIN, COMMIT, READ
from offsetlake.coordinator.share import offsets
from offsetlake.coordinator.share.group import ShareGroup
from offsetlake.coordinator.share.offsets import NO_PARTITION, OffsetsReply
from offsetlake.coordinator.share_state.requests import SummaryResult
from offsetlake.kafka.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_AUTHORIZATION_FAILED,
    INVALID_GROUP_ID,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from offsetlake.kafka.uuid import uuid_bytes
from offsetlake.rules.share_state import UNKNOWN
from offsetlake.serve.groups.membership import Membership
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.net.handlers import Handlers, awaited
from offsetlake.serve.net.request_tasks import RequestTasks
from offsetlake.serve.protocol.api_keys import (
    ALTER_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
)
from offsetlake.serve.protocol.encoding import Values
from offsetlake.serve.protocol.topics import Topics
from offsetlake.serve.storage.store import Store
from offsetlake.share.initializer import Initializer, Results

_MESSAGES = {
    COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and hence can't process requests.",
    GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    INVALID_GROUP_ID: "The configured groupId is invalid.",
    TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
}

_TOPIC_DENIED = {
    "error_code": TOPIC_AUTHORIZATION_FAILED,
    "error_message": _MESSAGES[TOPIC_AUTHORIZATION_FAILED],
}


class ShareOffsetApis:
    """Answers requests about the start offsets of share groups."""

    def __init__(self, store: Store, topics: Topics, membership: Membership, partitions: Initializer) -> None:
        self._store, self._topics, self._membership, self._partitions = store, topics, membership, partitions

    def handlers(self, tasks: RequestTasks) -> Handlers:
        """Return the handlers by API key."""
        return {
            DESCRIBE_SHARE_GROUP_OFFSETS: awaited(tasks, self.describe),
            ALTER_SHARE_GROUP_OFFSETS: awaited(tasks, self.alter),
            DELETE_SHARE_GROUP_OFFSETS: awaited(tasks, self.delete),
        }

    async def describe(self, request: Any, context: RequestContext) -> Values:
        """Answer DescribeShareGroupOffsets; a group that does not exist has no offsets."""
        return {"groups": [await self._describe(group, context) for group in request.groups]}

    async def _describe(self, group: Any, context: RequestContext) -> Values:
        described: dict[str, Any] = {"group_id": group.group_id, "topics": [], "error_code": NONE}
        name = group.group_id.encode()
        error = NONE if context.may(READ, name) else GROUP_AUTHORIZATION_FAILED
        error = error or self._store.unavailable(name)
        if error:
            return described | {"error_code": error}
        topics = self._topics.descriptions()
        found, missing, denied = [], [], []
        requested: list[tuple[str, list[int]]]
        if group.topics is None:
            share_group = self._membership.find(name)
            initialized = share_group.topics.initialized if isinstance(share_group, ShareGroup) else {}
            named = ((topics.name_of(topic_id), sorted(topic.partitions)) for topic_id, topic in initialized.items())
            requested = [(topic, numbers) for topic, numbers in named if topic is not None]
        else:
            requested = [(topic.topic_name, [*topic.partitions]) for topic in group.topics]
        for topic_name, numbers in requested:
            if not context.client.may_read_topic(topic_name.encode()):
                if group.topics is not None:
                    denied.append(_topic(topic_name, None, [_partition(number) | _TOPIC_DENIED for number in numbers]))
                continue
            topic_id = topics.id_of(topic_name)
            if topic_id is None:
                missing.append(_topic(topic_name, None, [_partition(number) for number in numbers]))
                continue
            results = await self._partitions.summaries(group.group_id, topic_id, numbers)
            partitions = [
                self._described(topic_name, number, result) for number, result in zip(numbers, results, strict=True)
            ]
            found.append(_topic(topic_name, topic_id, partitions))
        return described | {"topics": found + missing + denied}

    def _described(self, topic: str, number: int, result: SummaryResult) -> Values:
        """Return a partition with its lag, which is -1 if the log end offset is unknown."""
        if result.error_code:  # there is no state
            return _partition(number)
        described = _partition(number) | {"start_offset": result.start_offset, "leader_epoch": result.leader_epoch}
        ends = self._store.log_ends(topic.encode(), number)
        if ends is None or UNKNOWN in {result.start_offset, result.delivery_complete_count}:
            return described
        return described | {"lag": max(ends[1] - result.start_offset - result.delivery_complete_count, UNKNOWN)}

    async def alter(self, request: Any, context: RequestContext) -> Values:
        """Answer AlterShareGroupOffsets."""
        error = self._refusal(request.group_id, context, COMMIT)
        if error:
            return _failed(error, _MESSAGES.get(error))
        requested: dict[str, dict[int, int]] = {}
        for topic in request.topics:
            if not context.client.may_read_topic(topic.topic_name.encode()):
                continue
            numbers = requested.setdefault(topic.topic_name, {})
            numbers.update((partition.partition_index, partition.start_offset) for partition in topic.partitions)
        reply, error = await self._partitions.step(
            request.group_id, lambda step, group, token: offsets.alter(step, group, requested, token)
        )
        if not isinstance(reply, OffsetsReply):
            return _failed(error, None)
        if reply.error is not None:
            return _failed(reply.error.error_code, str(reply.error))
        results: Results = {}
        if reply.initialization is not None:
            results = await self._partitions.initialize(request.group_id, reply.initialization)
            if not any(result.error_code for result in results.values()):
                self._partitions.start_initialized(request.group_id, results)
        return _failed(NONE, None) | {"responses": [_altered(topic, reply, results) for topic in request.topics]}

    async def delete(self, request: Any, context: RequestContext) -> Values:
        """Answer DeleteShareGroupOffsets."""
        error = self._refusal(request.group_id, context, ADMIN)
        if error:
            return _failed(error, _MESSAGES.get(error))
        requested = [topic.topic_name for topic in request.topics]
        names = [name for name in requested if context.client.may_read_topic(name.encode())]
        reply, error = await self._partitions.step(
            request.group_id, lambda step, group, token: offsets.delete(step, group, names, token)
        )
        if not isinstance(reply, OffsetsReply):
            return _failed(error, None)
        if reply.error is not None:
            return _failed(reply.error.error_code, str(reply.error))
        responses: list[Values] = [
            {"topic_name": name, "topic_id": None, **topic_error._asdict()} for name, topic_error in reply.topic_errors
        ]
        results = await self._partitions.delete(request.group_id, reply.deletion)
        errors = {topic_id: _first_error(topic_id, results) for topic_id in reply.deletion}
        deleted = [topic_id for topic_id, found in errors.items() if found is None]
        if deleted:
            await self._partitions.deleted(request.group_id, deleted)
        for name, topic_id in reply.topic_ids.items():
            code, message = errors[topic_id] or (NONE, None)
            entry = {"topic_name": name, "topic_id": _uuid(topic_id), "error_code": code, "error_message": message}
            responses.insert(0, entry) if not code else responses.append(entry)
        allowed = {*names}
        denied = [name for name in requested if name not in allowed]
        refused = [{"topic_name": name, "topic_id": None, **_TOPIC_DENIED} for name in denied]
        return _failed(NONE, None) | {"responses": refused + responses}

    def _refusal(self, group_id: str, context: RequestContext, permission: int) -> int:
        """Return the error code of a request that is refused before its group is looked at, else NONE."""
        name = group_id.encode()
        if not context.may(permission, name):
            return GROUP_AUTHORIZATION_FAILED
        if not name:
            return INVALID_GROUP_ID
        return COORDINATOR_LOAD_IN_PROGRESS if name in self._store.deleting else self._store.unavailable(name)


def _failed(error: int, message: str | None) -> dict[str, Any]:
    return {"error_code": error, "error_message": message, "responses": []}


def _topic(name: str, topic_id: str | None, partitions: Sequence[Values]) -> Values:
    return {"topic_name": name, "topic_id": None if topic_id is None else _uuid(topic_id), "partitions": partitions}


def _partition(number: int) -> dict[str, Any]:
    """Return a partition without a start offset."""
    return {
        "partition_index": number,
        "start_offset": UNKNOWN,
        "leader_epoch": 0,
        "lag": -1,
        "error_code": NONE,
        "error_message": None,
    }


def _altered(topic: Any, reply: OffsetsReply, results: Results) -> Values:
    topic_id = reply.topic_ids.get(topic.topic_name)
    partitions = []
    for partition in topic.partitions:
        number = partition.partition_index
        code, message = NONE, None
        if topic.topic_name not in reply.unknown:
            code, message = TOPIC_AUTHORIZATION_FAILED, _MESSAGES[TOPIC_AUTHORIZATION_FAILED]
        elif number in reply.unknown[topic.topic_name]:
            code, message = UNKNOWN_TOPIC_OR_PARTITION, NO_PARTITION
        elif (result := results.get((topic_id or "", number))) is not None:
            code, message = result.error_code, result.error_message
        partitions.append({"partition_index": number, "error_code": code, "error_message": message})
    return _topic(topic.topic_name, topic_id, partitions)


def _first_error(topic_id: str, results: Results) -> tuple[int, str | None] | None:
    found: Iterable[tuple[int, str | None]] = (
        (result.error_code, result.error_message)
        for (result_topic, _), result in results.items()
        if result_topic == topic_id and result.error_code
    )
    return next(iter(found), None)


def _uuid(topic_id: str) -> uuid.UUID:
    return uuid.UUID(bytes=uuid_bytes(topic_id))
