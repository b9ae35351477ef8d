"""A member of a classic group."""

from collections.abc import Container, Iterable
from dataclasses import dataclass

from offsetlake.coordinator.steps import Token

EMPTY_ASSIGNMENT = b""

# As measured with tracemalloc: the objects, and their entries in the dicts of the group.
_MEMBER_OVERHEAD_BYTES = 700
_PROTOCOL_OVERHEAD_BYTES = 150


@dataclass(slots=True)
class ClassicMember:
    """A member and its requests that wait for a reply.

    Attributes:
        protocols: The metadata of each supported protocol by name, in order of preference. A name that a request
            contains several times has its first metadata, as where a broker looks it up.
        assignment: The assignment of the newest generation, empty if there is none.
        join_token: The JoinGroup request that waits.
        sync_token: The SyncGroup request that waits.
        is_new: Whether the member waits in its first join; only then does its session expire although it waits.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: dict[str, bytes]
    assignment: bytes = EMPTY_ASSIGNMENT
    join_token: Token | None = None
    sync_token: Token | None = None
    is_new: bool = False

    def is_expired_by_session(self) -> bool:
        """Return whether the member is removed when its session timer is due."""
        return self.is_new or (self.join_token is None and self.sync_token is None)

    def vote(self, candidates: Container[str]) -> str:
        """Return the preferred protocol among the candidates, of which one at least is supported."""
        return next(name for name in self.protocols if name in candidates)

    def supports_exactly(self, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Return whether protocols are those of the member, with the same metadata and in the same order."""
        return list(self.protocols.items()) == list(first_of_each(protocols).items())

    def size_bytes(self) -> int:
        """Return about how much memory the member occupies."""
        texts = (self.member_id, self.instance_id or "", self.client_id, self.client_host, *self.protocols)
        blobs = (self.assignment, *self.protocols.values())
        overhead = _MEMBER_OVERHEAD_BYTES + len(self.protocols) * _PROTOCOL_OVERHEAD_BYTES
        return overhead + sum(len(text.encode()) for text in texts) + sum(map(len, blobs))


def first_of_each(protocols: Iterable[tuple[str, bytes]]) -> dict[str, bytes]:
    """Return the first metadata of each protocol by name, in order."""
    metadata: dict[str, bytes] = {}
    for name, blob in protocols:
        metadata.setdefault(name, blob)
    return metadata
