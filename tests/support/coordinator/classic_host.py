"""A host of one classic group in simulated time."""

import base64
import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from offsetlake.coordinator.classic.answers import answer_all
from offsetlake.coordinator.classic.events import timer_due
from offsetlake.coordinator.classic.group import ClassicGroup
from offsetlake.coordinator.classic.heartbeat import heartbeat
from offsetlake.coordinator.classic.leave import leave
from offsetlake.coordinator.classic.loading import from_value
from offsetlake.coordinator.classic.rebalance.join import join
from offsetlake.coordinator.classic.rebalance.sync import sync
from offsetlake.coordinator.classic.requests import (
    ClassicHeartbeatReply,
    ClassicHeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveReply,
    LeaveRequest,
    LeavingMember,
    SyncReply,
    SyncRequest,
)
from offsetlake.coordinator.settings import CoordinatorSettings
from offsetlake.coordinator.steps import Record, Step, Timer
from offsetlake.kafka.error_codes import MEMBER_ID_REQUIRED, NOT_COORDINATOR
from offsetlake.kafka.records.codec import encode
from offsetlake.kafka.records.coordinator_records import OFFSETS_TOPIC, decode_record, encode_key
from offsetlake.kafka.records.schema import load_schema

START_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000


class NoTopics:
    def names(self) -> Iterator[str]:
        return iter(())

    def id_of(self, _name: str) -> str | None:
        return None

    def name_of(self, _topic_id: str) -> str | None:
        return None

    def partitions(self, _name: str) -> int:
        return 0

    def racks(self, _name: str) -> tuple[tuple[str, ...], ...]:
        return ()


class Host:
    """Runs the steps of a group as the serving process does, and checks that each request is answered only once."""

    def __init__(self, group_id: str = "g", **settings: Any) -> None:
        self.settings = CoordinatorSettings(**settings)
        self.group = ClassicGroup(group_id)
        self.now_ms = START_MS
        self.timers: dict[Timer, int] = {}
        self.records: list[Record] = []
        self.replies: dict[int, Any] = {}
        self.tokens = itertools.count()
        self.ids = itertools.count(1)
        self.write_error: int | None = None
        self.writes_later = False
        self.queue: list[Step] = []

    def step(self) -> Step:
        return Step(self.now_ms, self.settings, NoTopics(), self.new_id)

    def new_id(self) -> str:
        return base64.urlsafe_b64encode(next(self.ids).to_bytes(16)).decode().rstrip("=")

    def run(self, call: Callable[..., object], *arguments: object) -> Step:
        """Run a step; its replies are sent with those of queued steps, if there are any."""
        step = self.step()
        call(step, *arguments)
        self._set_timers(step)
        if step.records or self.queue:
            self.queue.append(step)
        else:
            self._deliver(step)
        if not self.writes_later:
            self.write()
        return step

    def write(self) -> None:
        """Write the records of all queued steps, or fail and undo these steps, the last one first."""
        steps, self.queue = self.queue, []
        if self.write_error is None:
            for step in steps:
                self.records += step.records
                self._deliver(step)
        else:
            self._fail(steps, self.write_error)
        if not self.group.exists:
            self.group = ClassicGroup(self.group.group_id)

    def _fail(self, steps: list[Step], error: int) -> None:
        undone = self.step()
        for step in reversed(steps):
            for undo in reversed(step.undo):
                undo(undone, error)
            self._deliver(step, error)
        assert not undone.records
        self._set_timers(undone)
        self._deliver(undone)

    def _deliver(self, step: Step, error: int | None = None) -> None:
        for token, reply in step.replies:
            assert token not in self.replies, "answered twice"
            self.replies[token] = reply if error is None else failed(reply, error)

    def _set_timers(self, step: Step) -> None:
        for timer, due_ms in step.timers.items():
            if due_ms is None:
                self.timers.pop(timer, None)
            else:
                self.timers[timer] = due_ms

    def send(self, api: Callable[..., object], request: object) -> int:
        token = next(self.tokens)
        self.run(api, self.group, request, token)
        return token

    def advance(self, ms: int) -> None:
        """Advance the time, and handle all timers that are due in their order."""
        end_ms = self.now_ms + ms
        queue = [(due_ms, timer.kind.value, timer) for timer, due_ms in self.timers.items() if due_ms <= end_ms]
        heapq.heapify(queue)
        while queue:
            due_ms, _, timer = heapq.heappop(queue)
            if self.timers.get(timer) != due_ms:
                continue
            self.now_ms = max(self.now_ms, due_ms)
            del self.timers[timer]
            for changed, at_ms in self.run(timer_due, self.group, timer).timers.items():
                if at_ms is not None and at_ms <= end_ms:
                    heapq.heappush(queue, (at_ms, changed.kind.value, changed))
        self.now_ms = end_ms

    def join(
        self,
        member_id: str = "",
        instance_id: str | None = None,
        *,
        version: int = 5,
        protocols: Iterable[tuple[str, bytes]] = (("range", b"m"),),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        reason: str | None = None,
    ) -> int:
        """Send JoinGroup and return the token."""
        request = JoinRequest(
            version,
            "client",
            "/192.0.2.1",
            member_id,
            instance_id,
            session_ms,
            rebalance_ms,
            protocol_type,
            tuple(protocols),
            reason,
        )
        return self.send(join, request)

    def join_dynamic(self, **options: Any) -> tuple[str, int]:
        """Join as a new dynamic member does: once for a member ID, and with it. Return the ID and the second token."""
        required = self.replies[self.join(**options)]
        assert required.error == MEMBER_ID_REQUIRED
        return required.member_id, self.join(required.member_id, **options)

    def joined(self, token: int) -> JoinReply:
        reply = self.replies[token]
        assert isinstance(reply, JoinReply)
        return reply

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
        version: int = 3,
    ) -> int:
        """Send SyncGroup and return the token."""
        pairs = tuple((assignments or {}).items())
        return self.send(sync, SyncRequest(version, member_id, instance_id, generation, protocol_type, protocol, pairs))

    def synced(self, token: int) -> SyncReply:
        reply = self.replies[token]
        assert isinstance(reply, SyncReply)
        return reply

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> int:
        """Send Heartbeat and return the error code."""
        error: int = self.replies[
            self.send(heartbeat, ClassicHeartbeatRequest(member_id, instance_id, generation))
        ].error
        return error

    def leave(self, *members: LeavingMember | str) -> LeaveReply:
        """Send LeaveGroup and return the reply."""
        leaving = tuple(LeavingMember(member) if isinstance(member, str) else member for member in members)
        reply = self.replies[self.send(leave, LeaveRequest(leaving))]
        assert isinstance(reply, LeaveReply)
        return reply

    def is_waiting(self, token: int) -> bool:
        return token not in self.replies

    def restart(self) -> None:
        """Stop without writing what is queued, and start again from the newest record."""
        self._fail(self.queue, NOT_COORDINATOR)
        self.queue = []
        self.run(answer_all, self.group, NOT_COORDINATOR)
        self.timers.clear()
        self.run(self._load)

    def _load(self, step: Step) -> None:
        self.group = loaded(step, self.group.group_id, self.records)

    def stable(self, members: int = 1, **options: Any) -> list[str]:
        """Create a Stable group of dynamic members, and return their IDs; the leader is the first."""
        tokens = dict(self.join_dynamic(**options) for _ in range(members))
        self.advance(DELAY_MS * min(members, 2))
        return self.assign(tokens.values())

    def assign(self, joins: Iterable[int]) -> list[str]:
        """Sync joined members, each with its own ID as its assignment, and return their IDs, the leader first."""
        replies = [self.joined(token) for token in joins]
        ids = [reply.member_id for reply in replies]
        leader_id = replies[0].leader_id
        generation = replies[0].generation
        tokens = [self.sync(name, generation) for name in ids if name != leader_id]
        tokens.append(self.sync(leader_id, generation, {name: name.encode() for name in ids}))
        assert all(self.synced(token).error == 0 for token in tokens)
        return [leader_id, *(name for name in ids if name != leader_id)]


def failed(reply: object, error: int) -> object:
    """Return the reply of a step whose records could not be written."""
    match reply:
        case JoinReply():
            return JoinReply(error, "")
        case SyncReply():
            return SyncReply(error)
        case LeaveReply():
            return LeaveReply(error)
        case _:
            return ClassicHeartbeatReply(error)


def loaded(step: Step, group_id: str, records: list[Record]) -> ClassicGroup:
    """Return the group of the newest record, decoded from the log."""
    if not records or records[-1].value is None:
        return ClassicGroup(group_id)
    key = encode_key(OFFSETS_TOPIC, records[-1].type, records[-1].key)
    value = b"\0\3" + encode(load_schema("GroupMetadataValue"), 3, records[-1].value)
    content = decode_record(OFFSETS_TOPIC, key, value).value
    assert content is not None
    return from_value(step, group_id, content)
