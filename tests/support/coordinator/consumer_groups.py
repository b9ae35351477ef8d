"""A group in simulated time: its host, its topics and its clients."""

import base64
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from offsetlake.coordinator import groups
from offsetlake.coordinator.consumer import regexes, timers
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.requests import ConsumerHeartbeatRequest
from offsetlake.coordinator.epoch_groups.metadata_hash import MetadataHashes
from offsetlake.coordinator.epoch_groups.requests import HeartbeatResponse
from offsetlake.coordinator.migration import requests
from offsetlake.coordinator.settings import CoordinatorSettings
from offsetlake.coordinator.steps import Record, Step, Timer, TimerKind

GROUP = "orders"


def topic_id(number: int) -> str:
    """Return the ID of a topic: the number in 16 bytes."""
    return base64.urlsafe_b64encode(number.to_bytes(16))[:22].decode()


@dataclass
class Topics:
    """Topics that tests create; the ID of the n-th topic is n."""

    sizes: dict[str, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    rack_lists: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    latest: int = 0
    created: int = 0
    count: int = 0

    def create(self, name: str, partitions: int) -> str:
        self.count += 1
        self.sizes[name], self.ids[name] = partitions, topic_id(self.count)
        self.latest += 1
        self.created = self.latest
        return self.ids[name]

    def extend(self, name: str, partitions: int) -> None:
        self.sizes[name] = partitions
        self.latest += 1

    def delete(self, name: str) -> None:
        del self.sizes[name], self.ids[name]
        self.latest += 1

    def version(self) -> int:
        return self.latest

    def creation_version(self) -> int:
        return self.created

    def names(self) -> Iterable[str]:
        return sorted(self.sizes)

    def id_of(self, name: str) -> str | None:
        return self.ids.get(name)

    def name_of(self, wanted: str) -> str | None:
        return next((name for name, topic in self.ids.items() if topic == wanted), None)

    def partitions(self, name: str) -> int:
        return self.sizes.get(name, 0)

    def racks(self, name: str) -> Sequence[tuple[str, ...]]:
        return [tuple(self.rack_lists.get((name, number), ())) for number in range(self.partitions(name))]


@dataclass
class Host:
    """Runs the steps of one group: appends their records to a log, and keeps their timers and replies.

    The group begins as a consumer group, which a step may replace.
    """

    topics: Topics = field(default_factory=Topics)
    settings: CoordinatorSettings = field(default_factory=CoordinatorSettings)
    now_ms: int = 1_000_000
    log: list[Record] = field(default_factory=list)
    timers: dict[Timer, int] = field(default_factory=dict)
    group: Any = field(default_factory=lambda: ConsumerGroup(GROUP))
    hashes: MetadataHashes = field(default_factory=MetadataHashes)
    ids: int = 0
    next_id: str | None = None
    tokens: int = 0
    replies: dict[int, Any] = field(default_factory=dict)

    def step(self) -> Step:
        return Step(self.now_ms, self.settings, self.topics, self._new_id, self.hashes)

    def run(self, step: Step) -> list[Record]:
        """Append the records of a step, set its timers and keep its replies; return the records."""
        self.log += step.records
        self.group = step.successor or self.group
        for token, reply in step.replies:
            assert token not in self.replies, "answered twice"
            self.replies[token] = reply
        for timer, due_ms in step.timers.items():
            self.timers.pop(timer, None)
            if due_ms is not None:
                self.timers[timer] = due_ms
        return step.records

    def send(self, member_id: str, epoch: int, **fields: Any) -> tuple[HeartbeatResponse, list[Record]]:
        """Send a heartbeat; a join is complete unless the fields say otherwise."""
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 5_000, "owned": {}} | fields
            if "subscribed_regex" not in fields:
                fields = {"subscribed_topics": ()} | fields
        token, records = self.request(
            requests.consumer_heartbeat, ConsumerHeartbeatRequest(GROUP, member_id, epoch, **fields)
        )
        response = self.replies[token]
        assert isinstance(response, HeartbeatResponse)
        return response, records

    def request(self, api: Callable[..., None], request: object) -> tuple[int, list[Record]]:
        """Send a request of a member; return its token and the records."""
        self.tokens += 1
        step = self.step()
        api(step, self.group, request, self.tokens)
        return self.tokens, self.run(step)

    def advance(self, elapsed_ms: int) -> list[Record]:
        """Advance the time, and handle the timers that are due; return their records."""
        end_ms, records = self.now_ms + elapsed_ms, []
        while due := sorted(
            (at, timer.kind.name, timer.member_id) for timer, at in self.timers.items() if at <= end_ms
        ):
            at, kind, member_id = due[0]
            timer = Timer(TimerKind[kind], GROUP, member_id)
            self.now_ms = max(self.now_ms, at)
            del self.timers[timer]
            step = self.step()
            if timer.kind is TimerKind.REGEX:
                self.evaluate(step)
            else:
                groups.timer_due(step, self.group, timer)
            records += self.run(step)
        self.now_ms = end_ms
        return records

    def evaluate(self, step: Step) -> None:
        """Evaluate the regular expressions of the group if one is planned, and store the result in a step."""
        evaluation = self.group.regexes_to_evaluate
        if evaluation is not None:
            matched = dict(regexes.evaluate(evaluation, self.topics.names()))
            regexes.store(step, self.group, matched, self.topics.version())

    def change_topics(self) -> None:
        """Tell the group that topics were created, extended or deleted."""
        timers.metadata_changed(self.group)

    def due_in(self, kind: TimerKind, member_id: str = "") -> int | None:
        """Return when a timer is due, relative to now; None if it is not set."""
        at = self.timers.get(Timer(kind, GROUP, member_id))
        return None if at is None else at - self.now_ms

    def _new_id(self) -> str:
        self.ids += 1
        if self.next_id is not None:
            return self.next_id
        return topic_id(1_000 + self.ids)


def types(records: Iterable[Record]) -> list[int]:
    """Return the types of records, negative for tombstones."""
    return [int(record.type) if record.value is not None else -int(record.type) for record in records]
