"""ShareFetch and ShareAcknowledge (KIP-932, KIP-1206, KIP-1222), with the checks and errors of Kafka's `KafkaApis`."""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from offsetlake.coordinator.share_partition.requests import AcknowledgementBatch, AcquireMode
from offsetlake.kafka.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    INVALID_REQUEST,
    INVALID_SHARE_SESSION_EPOCH,
    NONE,
    SHARE_SESSION_LIMIT_REACHED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.serve.auth.acl import COMMIT
from offsetlake.serve.auth.principals import Client, RequestContext
from offsetlake.serve.protocol.encoding import Values
from offsetlake.serve.share.group_partitions import GroupPartitions
from offsetlake.serve.share.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    IdPartition,
    SessionKey,
    SessionRefused,
    ShareSession,
    ShareSessions,
)
from offsetlake.serve.share.share_fetch import MAX_WAIT_SECONDS, FetchLimits, ShareFetch, partition_values

_RENEW_SINCE = 2  # version of both APIs with IsRenewAck
_MAX_MEMBER_ID = 36
_Batches = dict[IdPartition, Sequence[AcknowledgementBatch]]


class ShareApis:
    """Answers ShareFetch and ShareAcknowledge; `lock_ms` is the lock duration in ms that members get."""

    def __init__(self, sessions: ShareSessions, partitions: GroupPartitions, fetches: ShareFetch, lock_ms: int) -> None:
        self._sessions, self._partitions, self._fetches = sessions, partitions, fetches
        self._lock_ms = timedelta(milliseconds=lock_ms)

    async def fetch(self, request: Any, context: RequestContext) -> Values:
        """Answer ShareFetch."""
        error, message = _request_error(request, context)
        if not error and _is_renewal(request, context):
            error, message = _renewal_error(request)
        if error:
            return self._failed(error, message)
        key = SessionKey(request.group_id, request.member_id)
        batches = _acknowledgements(request)
        try:
            session, partitions = self._session(key, request, batches, context)
        except SessionRefused as refused:
            if refused.error_code == SHARE_SESSION_LIMIT_REACHED:
                await asyncio.sleep(min(max(0.0, request.max_wait.total_seconds()), MAX_WAIT_SECONDS))
            return self._failed(refused.error_code)
        acknowledged = self._acknowledge(key, batches, _is_renewal(request, context))
        found: dict[IdPartition, Values] = {}
        if not _is_renewal(request, context):
            limits = FetchLimits.of(request)
            found = await self._fetches.fetch(
                key, partitions, limits, lambda: self._sessions.is_open(key, context.client)
            )
        errors = {partition: await result for partition, result in acknowledged.items()}
        if session is not None:
            found = _returned(session, found)
        if request.share_session_epoch == FINAL_EPOCH:
            self._partitions.release(key.group, key.member, self._sessions.close(key))
        return self._response(_with_acknowledgements(found, errors))

    async def acknowledge(self, request: Any, context: RequestContext) -> Values:
        """Answer ShareAcknowledge."""
        error, message = _request_error(request, context)
        if error:
            return self._failed(error, message)
        key, epoch = SessionKey(request.group_id, request.member_id), request.share_session_epoch
        if epoch == INITIAL_EPOCH:  # only ShareFetch opens a session
            return self._failed(INVALID_SHARE_SESSION_EPOCH)
        try:
            if epoch == FINAL_EPOCH:
                self._sessions.get(key)
            else:
                self._sessions.advance(key, epoch)
        except SessionRefused as refused:
            return self._failed(refused.error_code)
        acknowledged = self._acknowledge(key, _acknowledgements(request), _is_renewal(request, context))
        errors = {partition: await result for partition, result in acknowledged.items()}
        if epoch == FINAL_EPOCH:
            self._partitions.release(key.group, key.member, self._sessions.close(key))
        return self._response(
            {
                partition: {
                    "partition_index": partition.partition,
                    "error_code": error,
                    "current_leader": {"leader_id": 0, "leader_epoch": 0},
                }
                for partition, error in errors.items()
            }
        )

    def disconnect(self, client: Client) -> None:
        """Close the session of a client whose connection is lost, and release its records."""
        closed, empty_group = self._sessions.disconnect(client)
        if closed is not None:
            self._partitions.release(*closed.key, closed.partitions)
        if empty_group is not None:
            self._partitions.close_group(empty_group)

    def _session(
        self, key: SessionKey, request: Any, batches: _Batches, context: RequestContext
    ) -> tuple[ShareSession | None, list[IdPartition]]:
        """Return the session of a request that is not the first one, and the partitions to fetch.

        Raises:
            SessionRefused: The request does not fit its session.
        """
        epoch, named = request.share_session_epoch, _partitions(request.topics)
        if epoch == FINAL_EPOCH:
            self._sessions.get(key)
            return None, []
        if epoch == INITIAL_EPOCH:
            if self._sessions.key_of(context.client) not in {None, key}:  # else nothing would close the former session
                self.disconnect(context.client)
            self._sessions.open(key, named, context.client, acknowledges=any(batches.values()))
            return None, [*dict.fromkeys(named)]
        session = self._sessions.advance(key, epoch)
        forgotten = [
            IdPartition(_id(topic), number) for topic in request.forgotten_topics_data for number in topic.partitions
        ]
        session.update(named, forgotten)
        partitions = session.partitions
        first = epoch % len(partitions) if partitions else 0  # as PartitionRotateStrategy of Kafka
        return session, partitions[first:] + partitions[:first]

    def _acknowledge(
        self, key: SessionKey, batches: _Batches, allows_renew: bool
    ) -> dict[IdPartition, "asyncio.Future[int]"]:
        """Acknowledge records; the result of a partition is an error code, when its change is durable.

        A result may be awaited by a request that is cancelled, which must not cancel the change.
        """
        results: dict[IdPartition, asyncio.Future[int]] = {}
        for partition, each in batches.items():
            if each:
                error = self._partitions.error_of(partition)
                found = self._partitions.find(key.group, partition)
                if error or found is None:
                    results[partition] = asyncio.get_running_loop().create_future()
                    results[partition].set_result(error or UNKNOWN_TOPIC_OR_PARTITION)
                else:
                    result = found.acknowledge(key.member, each, allows_renew=allows_renew)
                    results[partition] = asyncio.shield(result)
        return results

    def _failed(self, error: int, message: str | None = None) -> Values:
        return {
            "error_code": error,
            "error_message": message,
            "acquisition_lock_timeout": timedelta(0),
            "responses": [],
            "node_endpoints": [],
        }

    def _response(self, partitions: Mapping[IdPartition, Values]) -> Values:
        topics: dict[bytes, list[Values]] = {}
        for partition, values in partitions.items():
            topics.setdefault(partition.topic_id, []).append(values)
        responses = [{"topic_id": uuid.UUID(bytes=id_), "partitions": each} for id_, each in topics.items()]
        return {
            "error_code": NONE,
            "acquisition_lock_timeout": self._lock_ms,
            "responses": responses,
            "node_endpoints": [],
        }


def _request_error(request: Any, context: RequestContext) -> tuple[int, str | None]:
    if not context.may(COMMIT, (request.group_id or "").encode()):
        return GROUP_AUTHORIZATION_FAILED, None
    if not request.group_id or not 0 < len(request.member_id or "") <= _MAX_MEMBER_ID:
        return INVALID_REQUEST, "Invalid group id or member id in the request."
    if getattr(request, "share_acquire_mode", AcquireMode.BATCH_OPTIMIZED) not in [*AcquireMode]:
        return INVALID_REQUEST, "Invalid share acquire mode in the request."
    return NONE, None


def _is_renewal(request: Any, context: RequestContext) -> bool:
    return context.version >= _RENEW_SINCE and request.is_renew_ack


def _renewal_error(request: Any) -> tuple[int, str | None]:
    """Return the error of a request that renews locks and fetches; the locks could expire before its response."""
    if request.max_bytes or request.min_bytes or request.max_records or request.max_wait:
        return INVALID_REQUEST, "maxBytes, minBytes, maxRecords and maxWaitMs must be 0 if isRenewAck is true."
    return NONE, None


def _id(topic: Any) -> bytes:
    return topic.topic_id.bytes if topic.topic_id else ZERO_UUID


def _partitions(topics: Sequence[Any]) -> list[IdPartition]:
    return [IdPartition(_id(topic), each.partition_index) for topic in topics for each in topic.partitions]


def _acknowledgements(request: Any) -> _Batches:
    return {
        IdPartition(_id(topic), each.partition_index): [
            AcknowledgementBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types)
            for batch in each.acknowledgement_batches
        ]
        for topic in request.topics
        for each in topic.partitions
    }


def _returned(session: ShareSession, found: dict[IdPartition, Values]) -> dict[IdPartition, Values]:
    """Return the partitions that the response to a later request of a session contains."""
    return {
        partition: values
        for partition, values in found.items()
        if session.must_return(
            partition, has_records=bool(values["acquired_records"]), has_failed=bool(values["error_code"])
        )
    }


def _with_acknowledgements(
    found: dict[IdPartition, Values], errors: Mapping[IdPartition, int]
) -> dict[IdPartition, Values]:
    """Add the results of piggybacked acknowledgements."""
    for partition, error in errors.items():
        values = found.get(partition) or partition_values(partition, NONE)
        found[partition] = {**values, "acknowledge_error_code": error}
    return found
