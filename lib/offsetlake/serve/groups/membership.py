"""Runs the core of the group coordinator over the log: its steps, records, replies and timers.

The core changes the state of a group at once, as a broker does, and the records of its steps are appended in the order
of the steps. A reply is sent when the records of its step and of all earlier steps of its group are durable. If records
cannot be written, the state of the group becomes that before them, and the replies of these steps are errors.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count

from offsetlake.auth.acl import COMMIT
from offsetlake.coordinator import groups
from offsetlake.coordinator.classic.group import ClassicGroup
from offsetlake.coordinator.epoch_groups.metadata_hash import MetadataHashes
from offsetlake.coordinator.groups import Group
from offsetlake.coordinator.rewind import PROTOCOL_CHANGED
from offsetlake.coordinator.settings import CoordinatorSettings
from offsetlake.coordinator.share.group import ShareGroup
from offsetlake.coordinator.steps import Step, Timer, TimerKind, Token
from offsetlake.coordinator.topics import TopicDescriptions
from offsetlake.kafka.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_AUTHORIZATION_FAILED,
    INVALID_GROUP_ID,
    NONE,
    UNKNOWN_SERVER_ERROR,
)
from offsetlake.kafka.uuid import uuid_text
from offsetlake.serve.groups.group_writes import GroupWrite, encoded_batch
from offsetlake.serve.groups.live_group import LiveGroup, LoadingGroups, QueuedStep, is_live_kind
from offsetlake.serve.groups.regex_evaluation import RegexEvaluations
from offsetlake.serve.groups.rewinds import RequestedRewind, ended_by, headers_of, size_of
from offsetlake.serve.groups.timers import Timers
from offsetlake.serve.groups.topic_changes import TopicChanges
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.protocol.request_limits import MAX_COMMIT_BATCH_BYTES
from offsetlake.serve.storage.store import Store
from offsetlake.serve.writes.rounds import Writes
from offsetlake.util.times import now_ms

MAX_SIZE_BYTES = 512 << 20
"""Maximum approximate size of the state of all groups with members, above which no member can join."""

_SCANNED_GROUPS = 100
"""The groups of the snapshot that are read in one step if they have no members."""

Reply = Callable[[object | None, int], None]
"""Sends the reply of the core to a client, or if that is None, the error code."""


class Membership:
    """The groups whose members this process coordinates: `Store.live` by name, as UTF-8 bytes."""

    def __init__(
        self,
        store: Store,
        topics: Callable[[], TopicDescriptions],
        writes: Writes,
        log_partition: Callable[[bytes], int],
        settings: CoordinatorSettings,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._store, self._topics, self._writes, self._log_partition = store, topics, writes, log_partition
        self._groups: dict[bytes, LiveGroup] = {}
        self._live: Mapping[bytes, LiveGroup] = LoadingGroups(self._groups, self._load_group)
        store.live, store.group_deleted, store.refreshed = self._live, self._deleted, self.unload
        store.member_committed = self._committed
        self._waiting: dict[Token, Reply] = {}
        self.rewinds: dict[Token, RequestedRewind] = {}
        self.settings, self._tokens, self._hashes = settings, count(), MetadataHashes()
        self.share_settings: Callable[[str], CoordinatorSettings] = lambda _: settings
        """Returns the settings of a share group."""

        # Times are those of a clock that is not set: a change of the system's time must not end all sessions.
        self._started_ms = now_ms() - time.monotonic_ns() // 1_000_000
        self._timers = Timers(loop, self._now_ms, self._due)
        self.topic_changes = TopicChanges(self._groups, loop)
        self._regex_evaluations = RegexEvaluations(loop, topics, self._run_step)
        self.size_bytes = 0
        """The approximate memory of all live groups."""

    def _now_ms(self) -> int:
        return self._started_ms + time.monotonic_ns() // 1_000_000

    async def load(self) -> None:
        """Take over the groups of the snapshot that have members, one at a time between the requests of clients.

        A group that a request needs earlier is loaded then.
        """
        snapshot = self._store.snapshot
        for number in snapshot.groups:
            has_members = is_live_kind(snapshot.kind(number))
            if has_members:
                self._find(snapshot.name(number))
            if has_members or number % _SCANNED_GROUPS == 0:
                await asyncio.sleep(0)
        self._live = self._store.live = self._groups

    def _load_group(self, name: bytes) -> LiveGroup | None:
        """Return a live group, or one that has members in the snapshot and is live from now on."""
        snapshot = self._store.snapshot
        number = snapshot.group(name)
        return self._find(name) if number >= 0 and is_live_kind(snapshot.kind(number)) else self._groups.get(name)

    def unload(self) -> None:
        """Forget the empty groups that the snapshot contains as they are."""
        position = self._store.snapshot.position
        for live in [*self._groups.values()]:
            is_covered = live.last_offset < position.get(self._log_partition(live.name), 0)
            if is_covered and not live.queued and groups.is_empty(live.group):
                self._remove(live)

    def find(self, name: bytes) -> Group | None:
        """Return a group of the core; None if it does not exist, or has only commits."""
        live = self._find(name)
        return None if live is None else live.group

    def live(self, name: bytes) -> Group | None:
        """Return a group that has members or had some since the start of this process; None for any other."""
        live = self._live.get(name)
        return None if live is None else live.group

    def _find(self, name: bytes) -> LiveGroup | None:
        live = self._groups.get(name)
        if live is None:
            state = self._store.replay_state(name)
            if state is None:
                return None
            step = self._step(None)
            live = self._add(name, groups.loaded(step, name.decode(), state))
            self._finish(live, step)
        return live

    def _add(self, name: bytes, group: Group) -> LiveGroup:
        live = self._groups[name] = LiveGroup(name, group)
        self.size_bytes += live.size_bytes
        return live

    def refusal(self, group_id: str, context: RequestContext) -> int:
        """Return the error code of a request of a member before its group is looked at, else NONE."""
        name = group_id.encode()
        if not context.may(COMMIT, name):
            return GROUP_AUTHORIZATION_FAILED
        if not name:
            return INVALID_GROUP_ID
        return COORDINATOR_LOAD_IN_PROGRESS if name in self._store.deleting else self._store.unavailable(name)

    def is_full(self) -> bool:
        """Return whether no more members are accepted, because the groups use MAX_SIZE_BYTES."""
        return self.size_bytes >= MAX_SIZE_BYTES

    def handle(
        self,
        group_id: str,
        group_type: Callable[[str], Group],
        act: Callable[[Step, Group, Token], None],
        reply: Reply,
    ) -> None:
        """Handle a request for a group, which is created if it does not exist.

        Args:
            group_id: The group.
            group_type: The type of a new group.
            act: Handles the request in a step.
            reply: Sends the reply, in this or a later step.
        """
        name = group_id.encode()
        live = self._find(name)
        if live is None:
            has_commits = self._store.group(name) is not None
            # A group that has only commits is a classic one; a consumer group replaces it, and a share group cannot.
            group = ClassicGroup(group_id) if has_commits and group_type is ShareGroup else group_type(group_id)
            group.exists = has_commits and isinstance(group, ClassicGroup)
            live = self._add(name, group)
        step, token = self._step(live.group), next(self._tokens)
        self._waiting[token] = reply
        act(step, live.group, token)
        self._finish(live, step)

    def _step(self, group: Group | None) -> Step:
        settings = self.share_settings(group.group_id) if isinstance(group, ShareGroup) else self.settings
        return Step(self._now_ms(), settings, self._topics(), _new_id, self._hashes)

    def _due(self, timer: Timer) -> None:
        live = self._groups.get(timer.group_id.encode())
        if live is not None and timer.kind is TimerKind.REGEX:
            self._regex_evaluations.start(live)
        elif live is not None:
            self._run_step(live, lambda step: groups.timer_due(step, live.group, timer))

    def _run_step(self, live: LiveGroup, act: Callable[[Step], None]) -> None:
        """Run a step of a group that no request causes, unless the group was deleted."""
        if self._groups.get(live.name) is live:
            step = self._step(live.group)
            act(step)
            self._finish(live, step)

    def _committed(self, name: bytes, member_id: bytes) -> None:
        live = self._groups.get(name)
        if live is not None:
            self._run_step(live, lambda step: groups.committed(step, live.group, member_id.decode(errors="replace")))

    def _finish(self, live: LiveGroup, step: Step) -> None:
        """Set the timers of a step, replace the group if the step did, and queue its records and its replies."""
        if step.successor is not None:
            groups.end_rewind(step, live.group, PROTOCOL_CHANGED)
            _replace(live, step)
        if live.group.rewind is not None:
            groups.settle_rewind(step, live.group)
        offsets = ended_by(step, self.rewinds) if self.rewinds else None
        self._timers.change(step.timers)
        if step.records or isinstance(live.group, ClassicGroup):  # only records change a consumer group
            self.size_bytes += live.update()
        if step.records:
            self._write(live, step, offsets)
        elif live.queued:
            live.queued[-1].replies.extend(step.replies)
        else:
            self._send(step.replies)
        if not live.queued and not live.group.exists:
            self._remove(live)

    def _write(self, live: LiveGroup, step: Step, offsets: RequestedRewind | None) -> None:
        """Queue the records of a step, or undo it if no record can contain what clients sent."""
        try:
            batch = encoded_batch(step.records, step.now_ms, headers_of(offsets))
        except ValueError:  # a text is too long
            batch = None
        if batch is None or len(batch.data) > MAX_COMMIT_BATCH_BYTES + size_of(offsets):
            self._revert(live, [QueuedStep(None, step.replies, step.undo)], UNKNOWN_SERVER_ERROR)
            return
        write = GroupWrite(self._log_partition(live.name), batch, partial(self._written, live))
        live.queued.append(QueuedStep(write, step.replies, step.undo, offsets))
        self._writes.add(write)

    def _written(self, live: LiveGroup, error: int, first: int, last: int) -> None:
        """Handle that the first queued step of a group is durable, or could not be written."""
        if error:
            failed = [*live.queued]
            live.queued.clear()
            self._revert(live, failed, error)
            return
        done = live.queued.pop(0)
        if done.offsets is not None:
            done.offsets.serve(self._store, first)
        self._store.newest.note(live.name, last)
        live.last_offset = last
        self._send(done.replies)
        if not live.queued and not live.group.exists:
            self._remove(live)

    def _revert(self, live: LiveGroup, failed: list[QueuedStep], error: int) -> None:
        """Undo the newest steps of a group, the last one first, because each builds on those before it."""
        step = self._step(live.group)
        for queued in reversed(failed):
            if queued.write is not None:
                queued.write.cancelled = True
            for undo in reversed(queued.undo):
                undo(step, error)
        for token, _ in (reply for queued in failed for reply in queued.replies):
            self._waiting.pop(token)(None, error)
        self.size_bytes += live.update()
        self._finish(live, step)

    def _deleted(self, name: bytes) -> None:
        """Forget a group without members that was deleted."""
        live = self._groups.get(name)
        if live is not None:
            self._remove(live)

    def _remove(self, live: LiveGroup) -> None:
        if self._groups.get(live.name) is live:
            del self._groups[live.name]
            self.size_bytes -= live.size_bytes

    def _send(self, replies: list[tuple[Token, object]]) -> None:
        for token, reply in replies:
            self._waiting.pop(token)(reply, NONE)


def _new_id() -> str:
    return uuid_text(uuid.uuid4().bytes)


def _replace(live: LiveGroup, step: Step) -> None:
    """Replace a group by one of another type, until the step is undone."""
    before, live.group = live.group, step.successor

    def undo(_step: Step, _error: int) -> None:
        live.group = before

    step.undo.insert(0, undo)
