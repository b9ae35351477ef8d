"""A group with members of both protocols in simulated time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from offsetlake.coordinator.classic.requests import (
    ClassicHeartbeatRequest,
    JoinRequest,
    LeaveReply,
    LeaveRequest,
    LeavingMember,
    SyncRequest,
)
from offsetlake.coordinator.migration import requests
from support.coordinator.consumer_groups import Host

SESSION_MS, REBALANCE_MS = 30_000, 20_000
NO_USER_DATA = b"\xff\xff\xff\xff"


def _text(text: str) -> bytes:
    return len(text).to_bytes(2) + text.encode()


def _partitions(topics: Mapping[str, Sequence[int]]) -> bytes:
    entries = (
        _text(topic) + len(numbers).to_bytes(4) + b"".join(number.to_bytes(4) for number in numbers)
        for topic, numbers in topics.items()
    )
    return len(topics).to_bytes(4) + b"".join(entries)


def subscription(*topics: str, owned: Mapping[str, Sequence[int]] | None = None) -> bytes:
    """Return a ConsumerProtocolSubscription of version 1."""
    names = len(topics).to_bytes(4) + b"".join(map(_text, topics))
    return b"\0\1" + names + NO_USER_DATA + _partitions(owned or {})


def assignment(topics: Mapping[str, Sequence[int]], user_data: bytes = NO_USER_DATA) -> bytes:
    """Return a ConsumerProtocolAssignment of version 1."""
    return b"\0\1" + _partitions(topics) + user_data


@dataclass
class MixedHost(Host):
    """A host whose members with the classic protocol send their requests by the methods of this class."""

    def join(
        self,
        member_id: str = "",
        instance_id: str | None = None,
        *,
        topics: Sequence[str] = ("t",),
        owned: Mapping[str, Sequence[int]] | None = None,
        protocols: Sequence[tuple[str, bytes]] = (),
        version: int = 9,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
    ) -> Any:
        """Send JoinGroup and return the reply, None if it waits."""
        offered = tuple(protocols) or (("range", subscription(*topics, owned=owned)),)
        times = session_ms, REBALANCE_MS
        request = JoinRequest(version, "client", "/h", member_id, instance_id, *times, protocol_type, offered)
        token, _ = self.request(requests.join, request)
        return self.replies.get(token)

    def enter(self, **options: Any) -> tuple[str, int]:
        """Join as a new dynamic member; return its ID and the token of the request that joins."""
        member_id = self.join(**options).member_id
        self.join(member_id, **options)
        return member_id, self.tokens

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        instance_id: str | None = None,
        protocol: str | None = "range",
        protocol_type: str | None = "consumer",
    ) -> Any:
        """Send SyncGroup and return the reply, None if it waits."""
        pairs = tuple((assignments or {}).items())
        token, _ = self.request(
            requests.sync, SyncRequest(5, member_id, instance_id, generation, protocol_type, protocol, pairs)
        )
        return self.replies.get(token)

    def beat(self, member_id: str, generation: int, instance_id: str | None = None) -> int:
        """Send Heartbeat and return the error code."""
        token, _ = self.request(requests.heartbeat, ClassicHeartbeatRequest(member_id, instance_id, generation))
        error: int = self.replies[token].error
        return error

    def leave(self, member_id: str, instance_id: str | None = None) -> LeaveReply:
        """Send LeaveGroup and return the reply."""
        token, _ = self.request(requests.leave, LeaveRequest((LeavingMember(member_id, instance_id),)))
        reply = self.replies[token]
        assert isinstance(reply, LeaveReply)
        return reply

    def classic_group(self, members: int = 1, instances: Sequence[str | None] = ()) -> list[str]:
        """Create a stable classic group of generation 1 and return the IDs; each member has one partition of "t"."""
        instances = instances or [None] * members
        tokens = []
        for instance in instances:
            if instance is None:
                tokens.append(self.enter()[1])
            else:
                self.join(instance_id=instance)
                tokens.append(self.tokens)
        self.advance(6_000)
        replies = [self.replies[token] for token in tokens]
        ids = [reply.member_id for reply in replies]
        leader_id = replies[0].leader_id
        assigned = {member_id: assignment({"t": [number]}) for number, member_id in enumerate(ids)}
        for member_id, instance in sorted(zip(ids, instances, strict=True), key=lambda pair: pair[0] == leader_id):
            self.sync(member_id, 1, assigned if member_id == leader_id else {}, instance)
        return ids

    def fail(self, api: Any, request: object) -> list[object]:
        """Send a request whose records cannot be appended; return the replies that are not sent."""
        step = self.step()
        api(step, self.group, request, -1)
        before, self.group = self.group, step.successor or self.group
        self._set(step.timers)
        undone = self.step()
        for undo in reversed(step.undo):
            undo(undone, 16)
        self.group = before
        self._set(undone.timers)
        return [reply for _, reply in step.replies]

    def _set(self, timers: Mapping[Any, int | None]) -> None:
        for timer, due_ms in timers.items():
            self.timers.pop(timer, None)
            if due_ms is not None:
                self.timers[timer] = due_ms
