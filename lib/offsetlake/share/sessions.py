"""Share sessions (KIP-932): what each member fetches, with an epoch that increments with every request.

The rules are those of `SharePartitionManager`, `ShareSessionCache` and `ShareSessionContext` of Kafka. No session is
evicted for another one: a member beyond the limit gets SHARE_SESSION_LIMIT_REACHED until a session is closed, or its
connection is lost or opens the session of another member. As in Kafka, a request with FINAL_EPOCH closes the session of
the member, whatever its epoch and its connection are.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from offsetlake.kafka.error_codes import (
    INVALID_REQUEST,
    INVALID_SHARE_SESSION_EPOCH,
    SHARE_SESSION_LIMIT_REACHED,
    SHARE_SESSION_NOT_FOUND,
)

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
"""The epochs of requests that open a session and that close it."""

_MAX_EPOCH = 2**31 - 1


class SessionKey(NamedTuple):
    """The group and the member id of a session."""

    group: str
    member: str


class IdPartition(NamedTuple):
    """A partition of the topic with an id of 16 bytes."""

    topic_id: bytes
    partition: int


class SessionRefused(Exception):
    """A request does not fit its session; `error_code` is the answer to it."""

    def __init__(self, error_code: int) -> None:
        super().__init__(f"the request does not fit its share session: error code {error_code}")
        self.error_code = error_code


class ShareSession:
    """A session; `epoch` is that of its next request."""

    def __init__(self, partitions: Iterable[IdPartition], connection: Hashable) -> None:
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.connection = connection
        self._awaited = dict.fromkeys(partitions, False)  # whether the next response must contain the partition

    @property
    def partitions(self) -> list[IdPartition]:
        """The partitions that are fetched; those that records were returned of most recently are at the end."""
        return [*self._awaited]

    def update(self, added: Iterable[IdPartition], forgotten: Iterable[IdPartition]) -> None:
        """Add partitions to those that are fetched, and remove others."""
        for partition in added:
            self._awaited.setdefault(partition, True)
        for partition in forgotten:
            self._awaited.pop(partition, None)

    def must_return(self, partition: IdPartition, *, has_records: bool, has_failed: bool) -> bool:
        """Check whether the response to a later request contains a partition, and record that it does.

        It contains each partition that has records or an error, and once those that were added or had an error before.
        """
        if partition not in self._awaited:
            return True
        returned = self._awaited[partition] or has_records or has_failed
        self._awaited[partition] = has_failed
        if has_records:
            self._awaited[partition] = self._awaited.pop(partition)
        return returned


class ClosedSession(NamedTuple):
    """A session that was closed because its connection was lost."""

    key: SessionKey
    partitions: list[IdPartition]


class ShareSessions:
    """The open sessions, up to a maximum number."""

    def __init__(self, max_sessions: int) -> None:
        self._max = max_sessions
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._members: Counter[str] = Counter()  # the number of sessions by group
        self._by_connection: dict[Hashable, SessionKey] = {}  # the last session that each connection has opened

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._sessions)

    def open(
        self, key: SessionKey, partitions: Iterable[IdPartition], connection: Hashable, *, acknowledges: bool
    ) -> None:
        """Open a session for a request with INITIAL_EPOCH, instead of the session that the member had.

        Raises:
            SessionRefused: The request acknowledges records, or there are too many sessions.
        """
        if acknowledges:
            raise SessionRefused(INVALID_REQUEST)
        self._remove(key)
        if len(self._sessions) >= self._max:
            raise SessionRefused(SHARE_SESSION_LIMIT_REACHED)
        self._sessions[key] = ShareSession(partitions, connection)
        self._members[key.group] += 1
        self._by_connection[connection] = key

    def advance(self, key: SessionKey, epoch: int) -> ShareSession:
        """Return the session of a request that is neither the first nor the last one, and increment its epoch.

        Raises:
            SessionRefused: There is no session, or its epoch is another one.
        """
        session = self.get(key)
        if session.epoch != epoch:
            raise SessionRefused(INVALID_SHARE_SESSION_EPOCH)
        session.epoch = next_epoch(epoch)
        return session

    def get(self, key: SessionKey) -> ShareSession:
        """Return a session.

        Raises:
            SessionRefused: There is none.
        """
        session = self._sessions.get(key)
        if session is None:
            raise SessionRefused(SHARE_SESSION_NOT_FOUND)
        return session

    def is_open(self, key: SessionKey, connection: Hashable) -> bool:
        """Check whether the session of a member is open, and of a connection."""
        session = self._sessions.get(key)
        return session is not None and session.connection == connection

    def has_group(self, group: str) -> bool:
        """Check whether a session of a group is open."""
        return group in self._members

    def key_of(self, connection: Hashable) -> SessionKey | None:
        """Return the key of the last session that a connection has opened, None if it has opened none."""
        return self._by_connection.get(connection)

    def close(self, key: SessionKey) -> list[IdPartition]:
        """Close a session, if it is open, and return its partitions."""
        session = self._remove(key)
        return [] if session is None else session.partitions

    def disconnect(self, connection: Hashable) -> tuple[ClosedSession | None, str | None]:
        """Close the session of a lost connection.

        Returns:
            The session that was open, and the group of the connection if no session of that group is open any longer.

        """
        key = self._by_connection.pop(connection, None)
        if key is None:
            return None, None
        session = self._sessions.get(key)
        closed = None
        if session is not None and session.connection == connection:
            closed = ClosedSession(key, self.close(key))
        return closed, None if self._members[key.group] else key.group

    def _remove(self, key: SessionKey) -> ShareSession | None:
        session = self._sessions.pop(key, None)
        if session is not None:
            self._members[key.group] -= 1
            if not self._members[key.group]:
                del self._members[key.group]
        return session


def next_epoch(epoch: int) -> int:
    """Return the epoch of the request after one with `epoch`, which is not FINAL_EPOCH."""
    return 1 if epoch == _MAX_EPOCH else epoch + 1
