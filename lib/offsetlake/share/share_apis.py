"""ShareFetch and ShareAcknowledge (KIP-932, KIP-1206, KIP-1222), with the checks and errors of Kafka's `KafkaApis`."""

import asyncio
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any

from offsetlake.auth.acl import COMMIT
from offsetlake.coordinator.share_partition.requests import AcquireMode
from offsetlake.kafka.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    INVALID_REQUEST,
    INVALID_SHARE_SESSION_EPOCH,
    NONE,
    SHARE_SESSION_LIMIT_REACHED,
    SHARE_SESSION_NOT_FOUND,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from offsetlake.serve.net.client import Client, RequestContext
from offsetlake.serve.protocol.encoding import Values
from offsetlake.share.group_settings import GroupSettings
from offsetlake.share.leases import PartitionLeases
from offsetlake.share.pace import WRITE_UNITS, Pace
from offsetlake.share.request_parts import Batches, acknowledgements, forgotten_partitions
from offsetlake.share.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    IdPartition,
    SessionKey,
    SessionRefused,
    ShareSession,
    ShareSessions,
)
from offsetlake.share.share_fetch import MAX_WAIT_SECONDS, FetchLimits, ShareFetch, partition_values

_RENEW_SINCE = 2  # version of both APIs with IsRenewAck
_MAX_MEMBER_ID = 36


class ShareApis:
    """Answers ShareFetch and ShareAcknowledge.

    A request may name 200,000 partitions, so it is handled in steps. Between these a connection may be lost, which
    closes its session: what its member has not acknowledged until then is released.
    """

    def __init__(
        self, sessions: ShareSessions, partitions: PartitionLeases, fetches: ShareFetch, settings: GroupSettings
    ) -> None:
        self._sessions, self._partitions, self._fetches, self._settings = sessions, partitions, fetches, settings
        self._connected: set[Client] = set()  # those with a ShareFetch that has not opened or found its session yet
        self._releases: dict[SessionKey, asyncio.Task[None]] = {}
        self._is_closed = False

    def fetch(self, request: Any, context: RequestContext) -> Coroutine[Any, Any, Values]:
        """Answer ShareFetch; the connection may be lost before the result is awaited."""
        self._connected.add(context.client)
        return self._fetch(request, context)

    async def _fetch(self, request: Any, context: RequestContext) -> Values:
        error, message = _request_error(request, context)
        if not error and _is_renewal(request, context):
            error, message = _renewal_error(request)
        if error:
            self._connected.discard(context.client)
            return self._failed(error, message)
        key = SessionKey(request.group_id, request.member_id)
        batches, forgotten = await acknowledgements(request), await forgotten_partitions(request)
        while key in self._releases:  # else it would release what the new session acquires
            await self._releases[key]
        if context.client not in self._connected:
            return self._failed(SHARE_SESSION_NOT_FOUND)
        self._connected.discard(context.client)
        try:
            session, partitions = self._session(key, request.share_session_epoch, batches, forgotten, context.client)
        except SessionRefused as refused:
            if refused.error_code == SHARE_SESSION_LIMIT_REACHED:
                await asyncio.sleep(min(max(0.0, request.max_wait.total_seconds()), MAX_WAIT_SECONDS))
            return self._failed(refused.error_code)
        acknowledged = await self._acknowledge(key, batches, context, _is_renewal(request, context))
        found: dict[IdPartition, Values] = {}
        if not _is_renewal(request, context):
            limits = FetchLimits.of(request)
            readable, found = await self._fetches.readable(partitions, context.client)
            found |= await self._fetches.fetch(
                key, readable, limits, lambda: self._sessions.is_open(key, context.client)
            )
        errors = await _results(acknowledged)
        if session is not None:
            found = await _returned(session, found)
        if request.share_session_epoch == FINAL_EPOCH:
            await self._release(key, self._sessions.close(key))
        await _add_acknowledgements(found, errors)
        return await self._response(key.group, found)

    async def acknowledge(self, request: Any, context: RequestContext) -> Values:
        """Answer ShareAcknowledge."""
        error, message = _request_error(request, context)
        if error:
            return self._failed(error, message)
        key, epoch = SessionKey(request.group_id, request.member_id), request.share_session_epoch
        if epoch == INITIAL_EPOCH:  # only ShareFetch opens a session
            return self._failed(INVALID_SHARE_SESSION_EPOCH)
        batches = await acknowledgements(request)
        try:
            if epoch == FINAL_EPOCH:
                self._sessions.get(key)
            else:
                self._sessions.advance(key, epoch)
        except SessionRefused as refused:
            return self._failed(refused.error_code)
        errors = await _results(await self._acknowledge(key, batches, context, _is_renewal(request, context)))
        if epoch == FINAL_EPOCH:
            await self._release(key, self._sessions.close(key))
        values: dict[IdPartition, Values] = {}
        pace = Pace()
        for partition, code in errors.items():
            values[partition] = {
                "partition_index": partition.partition,
                "error_code": code,
                "current_leader": {"leader_id": 0, "leader_epoch": 0},
            }
            await pace.spend()
        return await self._response(key.group, values)

    def disconnect(self, client: Client) -> None:
        """Close the session of a client whose connection is lost, and release its records."""
        self._connected.discard(client)
        if self._is_closed:
            return
        closed, empty_group = self._sessions.disconnect(client)
        if closed is not None:
            self._release(closed.key, closed.partitions, empty_group)
        elif empty_group is not None:
            self._release(SessionKey(empty_group, ""), (), empty_group)

    async def close(self) -> None:
        """Stop releasing records: a process that reads the state again has no acquired ones."""
        self._is_closed = True
        releases = [*self._releases.values()]
        for release in releases:
            release.cancel()
        await asyncio.gather(*releases, return_exceptions=True)

    def _release(
        self, key: SessionKey, partitions: Sequence[IdPartition], empty_group: str | None = None
    ) -> "asyncio.Future[None]":
        """Release the records of a member whose session is closed; close its group if it stays without sessions.

        The result may be awaited by a request that is cancelled, which must not cancel the release.
        """

        async def release() -> None:
            await self._partitions.release(key.group, key.member, partitions)
            if empty_group is not None and not self._sessions.has_group(empty_group):
                await self._partitions.close_group(empty_group)

        def ended(task: "asyncio.Task[None]") -> None:
            if self._releases.get(key) is task:
                del self._releases[key]

        task = self._releases[key] = asyncio.create_task(release())
        task.add_done_callback(ended)
        return asyncio.shield(task)

    def _session(
        self, key: SessionKey, epoch: int, batches: Batches, forgotten: Sequence[IdPartition], client: Client
    ) -> tuple[ShareSession | None, list[IdPartition]]:
        """Return the session of a request that is not the first one, and the partitions to fetch.

        Raises:
            SessionRefused: The request does not fit its session.
        """
        if epoch == FINAL_EPOCH:
            self._sessions.get(key)
            return None, []
        if epoch == INITIAL_EPOCH:
            if self._sessions.key_of(client) not in {None, key}:  # else nothing would close the former session
                self.disconnect(client)
            self._sessions.open(key, batches, client, acknowledges=any(batches.values()))
            return None, [*batches]
        session = self._sessions.advance(key, epoch)
        session.update(batches, forgotten)
        partitions = session.partitions
        first = epoch % len(partitions) if partitions else 0  # as PartitionRotateStrategy of Kafka
        return session, partitions[first:] + partitions[:first]

    async def _acknowledge(
        self, key: SessionKey, batches: Batches, context: RequestContext, allows_renew: bool
    ) -> dict[IdPartition, "asyncio.Future[int]"]:
        """Acknowledge records; the result of a partition is an error code, when its change is durable.

        A result may be awaited by a request that is cancelled, which must not cancel the change.
        """
        results: dict[IdPartition, asyncio.Future[int]] = {}
        pace = Pace()
        for partition, each in batches.items():
            if each:
                error = self._partitions.error_of(partition)
                if self._partitions.is_denied(partition, context.client):
                    error = TOPIC_AUTHORIZATION_FAILED
                found = self._partitions.find(key.group, partition)
                if error or found is None:
                    results[partition] = asyncio.get_running_loop().create_future()
                    results[partition].set_result(error or UNKNOWN_TOPIC_OR_PARTITION)
                else:
                    result = await found.acknowledge(key.member, each, allows_renew=allows_renew)
                    results[partition] = asyncio.shield(result)
                    await pace.spend(WRITE_UNITS)
            await pace.spend()
        return results

    def _failed(self, error: int, message: str | None = None) -> Values:
        return {
            "error_code": error,
            "error_message": message,
            "acquisition_lock_timeout": timedelta(0),
            "responses": [],
            "node_endpoints": [],
        }

    async def _response(self, group: str, partitions: Mapping[IdPartition, Values]) -> Values:
        topics: dict[bytes, list[Values]] = {}
        pace = Pace()
        for partition, values in partitions.items():
            topics.setdefault(partition.topic_id, []).append(values)
            await pace.spend()
        lock_ms = self._settings.of(group).share_record_lock_duration_ms
        responses = [{"topic_id": uuid.UUID(bytes=id_), "partitions": each} for id_, each in topics.items()]
        return {
            "error_code": NONE,
            "acquisition_lock_timeout": timedelta(milliseconds=lock_ms),
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


async def _results(acknowledged: Mapping[IdPartition, "asyncio.Future[int]"]) -> dict[IdPartition, int]:
    """Wait until all changes are durable, and return their error codes."""
    errors: dict[IdPartition, int] = {}
    pace = Pace()
    for partition, result in acknowledged.items():
        errors[partition] = await result
        await pace.spend()
    return errors


async def _returned(session: ShareSession, found: dict[IdPartition, Values]) -> dict[IdPartition, Values]:
    """Return the partitions that the response to a later request of a session contains."""
    returned: dict[IdPartition, Values] = {}
    pace = Pace()
    for partition, values in found.items():
        records, failed = bool(values["acquired_records"]), bool(values["error_code"])
        if session.must_return(partition, has_records=records, has_failed=failed):
            returned[partition] = values
        await pace.spend()
    return returned


async def _add_acknowledgements(found: dict[IdPartition, Values], errors: Mapping[IdPartition, int]) -> None:
    """Add the results of piggybacked acknowledgements."""
    pace = Pace()
    for partition, error in errors.items():
        values = found.get(partition) or partition_values(partition, NONE)
        found[partition] = {**values, "acknowledge_error_code": error}
        await pace.spend()
