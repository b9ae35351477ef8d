"""Requests to set offsets of groups while their members run."""

import asyncio

from offsetlake.coordinator import groups
from offsetlake.coordinator.classic.group import ClassicGroup
from offsetlake.coordinator.groups import Group, OffsetGroup
from offsetlake.coordinator.rewind import Rewind
from offsetlake.coordinator.share.group import ShareGroup
from offsetlake.coordinator.steps import Step, Token
from offsetlake.serve.groups.membership import Membership
from offsetlake.serve.groups.rewinds import RequestedRewind
from offsetlake.serve.storage.store import Store
from offsetlake.serve.writes.conditional import GroupBatch
from offsetlake.serve.writes.job_socket import RewindResult

MAX_WRITE_SECONDS = 60.0
"""How long after its limit a rewind that has written nothing is ended."""

NO_GROUP = "the group was deleted, or has never had members"
NOT_REVOKED = "members have not given up the partitions in time"
STOPPING = "the server is stopping"


class RewindRequests:
    """Starts rewinds in the core (`offsetlake.coordinator.rewind`)."""

    def __init__(self, membership: Membership, store: Store) -> None:
        self._membership, self._store = membership, store
        self._stopped = False

    async def rewind(self, batch: GroupBatch) -> RewindResult:
        """Set the offsets in a batch."""
        if self._stopped:
            return RewindResult(-1, STOPPING)
        if self._group(batch.group) is None:
            return RewindResult(-1, NO_GROUP)
        offsets = batch.offset_records()
        requested = RequestedRewind(batch, asyncio.get_running_loop().create_future())

        def act(step: Step, group: Group, token: Token) -> None:
            self._membership.rewinds[token] = requested
            groups.start_rewind(step, group, Rewind(token, offsets))

        limit_ms = self.rewind_limit_ms(batch.group) or 0
        self._membership.handle(batch.group.decode(), ClassicGroup, act, requested.reply)
        await asyncio.wait((requested.done,), timeout=limit_ms / 1000 + MAX_WRITE_SECONDS)
        if not requested.done.done():  # static members that send heartbeats and do not join can delay it without end
            self._cancel(batch.group, NOT_REVOKED)
        return await requested.done

    def rewind_limit_ms(self, name: bytes) -> int | None:
        """Return how long a rewind of a group waits for members at most; None if the group has no members."""
        group = self._group(name)
        return (
            None
            if group is None or groups.is_empty(group)
            else groups.rewind_limit_ms(group, self._membership.settings)
        )

    def _group(self, name: bytes) -> OffsetGroup | None:
        """Return a group that has members or had some, None if there is no such group or it is about to be deleted.

        Share groups have no committed offsets.
        """
        kind = self._store.group(name)
        if kind is None or not groups.is_coordinated(kind["group_type"]) or name in self._store.deleting:
            return None
        group = self._membership.find(name)
        return None if isinstance(group, ShareGroup) else group

    def stop(self) -> None:
        """End all rewinds, because the server stops."""
        self._stopped = True
        for name in {requested.batch.group for requested in self._membership.rewinds.values()}:
            self._cancel(name, STOPPING)

    def _cancel(self, name: bytes, reason: str) -> None:
        """End the rewind of a group, unless its offsets are written."""

        def act(step: Step, group: Group, token: Token) -> None:
            groups.cancel_rewind(step, group, reason)
            step.reply(token, None)

        self._membership.handle(name.decode(), ClassicGroup, act, lambda _reply, _error: None)
