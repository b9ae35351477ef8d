"""The requests and replies of the classic group protocol.

Fields have the meaning and, where one is absent, the default of Kafka's messages. Absent text in a version of a request
is None if the field is nullable in a later version.
"""

from dataclasses import dataclass
from typing import NamedTuple

from offsetlake.kafka.error_codes import NONE

NO_MEMBER_ID = ""
"""The member ID in the request of a member that has none yet."""
NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A JoinGroup request.

    The rebalance timeout of version 0 is the session timeout. `client_host` is the address of the client as a broker
    stores it: "/192.0.2.1". `protocols` are the names and metadata of the supported protocols, in order of preference.
    """

    version: int
    client_id: str
    client_host: str
    member_id: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member in the reply to the leader."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinReply:
    """A JoinGroup response. Versions below 7 write a protocol name that is None as an empty string."""

    error: int
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = ""
    leader_id: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A SyncGroup request; `assignments` are pairs of a member ID and the assignment of the member."""

    version: int
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class SyncReply:
    """A SyncGroup response."""

    error: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class ClassicHeartbeatRequest(NamedTuple):
    """A Heartbeat request."""

    member_id: str
    instance_id: str | None
    generation: int


class ClassicHeartbeatReply(NamedTuple):
    """A Heartbeat response."""

    error: int


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """A member in a LeaveGroup request."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveRequest:
    """A LeaveGroup request; in versions below 3 with one member."""

    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True)
class LeftMember:
    """A member in a LeaveGroup response."""

    member_id: str
    instance_id: str | None
    error: int = NONE


@dataclass(frozen=True, slots=True)
class LeaveReply:
    """A LeaveGroup response; versions below 3 have the error of the only member instead."""

    error: int
    members: tuple[LeftMember, ...] = ()
