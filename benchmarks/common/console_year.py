"""The names and the records of the year that `console_lake.py` writes."""

import json
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from support.oracle.encoders import group_log_partition

LOG_PARTITIONS = 50
DAY_MS = 86_400_000
DAYS = 365
TOPICS, GROUP_TOPICS, PARTITIONS = 1_000, 5, 20
EVERY_BUSY, BUSY_PARTITIONS, BUSY_COMMITS, REBALANCES = 111, 10, 1_000, 50
GONE, GONE_OFFSETS, RETIRED_OFFSETS = 200, 50, 60
TEAMS = ("billing", "orders", "search", "payments", "inventory", "shipping", "fraud", "catalog", "mail", "ads")
SERVICES = ("indexer", "worker", "sync", "export", "enricher", "notifier", "audit", "loader", "cache", "rollup")
COMMIT, TOMBSTONE, RECORD = 0, 1, 2

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Events:
    """Records in columns; `value` is the committed offset or, of a group record, the number of its value."""

    time: Ints
    kind: Ints
    group: Ints
    topic: Ints
    partition: Ints
    value: Ints

    @classmethod
    def joined(cls, parts: list["Events"]) -> "Events":
        """Return the records of some parts in the order of time."""
        columns = [np.concatenate([getattr(part, name) for part in parts]) for name in cls.__annotations__]
        order = np.argsort(columns[0], kind="stable")
        return cls(*(column[order] for column in columns))

    def take(self, rows: NDArray[np.bool_]) -> "Events":
        """Return some records."""
        return Events(*(getattr(self, name)[rows] for name in self.__annotations__))


class Year:
    """The names, the clock and the records of the year."""

    def __init__(self, groups: int, seed: int = 7) -> None:
        self.end = int(time.time()) * 1000
        self.start = self.end - DAYS * DAY_MS
        self.random = np.random.default_rng(seed)
        self.count = groups
        names = [f"{TEAMS[n % 10]}.{SERVICES[n // 10 % 10]}-{n:06d}" for n in range(groups)]
        self.names = [*names, "clickstream", "retired", *(f"gone-{n:03d}" for n in range(GONE))]
        self.clickstream, self.retired, self.gone = groups, groups + 1, range(groups + 2, groups + 2 + GONE)
        self.topics = [*(f"{TEAMS[n % 10]}-events-{n:04d}" for n in range(TOPICS)), "clicks"]
        self.values: list[str | None] = []
        placed = [group_log_partition(name, LOG_PARTITIONS) for name in self.names]
        self.placement: Ints = np.array(placed, np.int64)

    def events(self, log_partition: int) -> Events:
        """Return the records of a log partition in their order."""
        groups = np.flatnonzero(self.placement == log_partition)
        ordinary = groups[groups < self.count]
        parts = [self._first_commits(ordinary), self._busy_commits(ordinary[ordinary % EVERY_BUSY == 0])]
        for group in groups.tolist():
            parts += [self._special(group), self._group_records(group)]
        return Events.joined(parts)

    def _first_commits(self, groups: Ints) -> Events:
        requests = np.repeat(groups, GROUP_TOPICS)
        number = np.tile(np.arange(GROUP_TOPICS), len(groups))
        times = self.random.integers(self.start, self.end - 30 * DAY_MS, len(requests))
        times[requests % EVERY_BUSY == 0] = self.start + requests[requests % EVERY_BUSY == 0] % 1000
        group, topic = (np.repeat(column, PARTITIONS) for column in (requests, (requests * 7 + number) % TOPICS))
        partition = np.tile(np.arange(PARTITIONS), len(requests))
        value = self.random.integers(0, np.where(group % EVERY_BUSY == 0, 10_000, 1_000_000))
        return Events(np.repeat(times, PARTITIONS), np.full_like(group, COMMIT), group, topic, partition, value)

    def _busy_commits(self, groups: Ints) -> Events:
        shape = (len(groups), BUSY_COMMITS, BUSY_PARTITIONS)
        steps = np.linspace(self.start + DAY_MS, self.end - 60_000, BUSY_COMMITS).astype(np.int64)
        times = steps[None, :, None] + (groups % 50_000)[:, None, None] + np.zeros(shape, np.int64)
        moves = self.random.integers(0, 2_000, shape)
        moves[self.random.random(shape) < 0.002] = -5_000
        values = np.maximum(np.cumsum(moves, axis=1) + 10_000, 0)
        group = groups[:, None, None] + np.zeros(shape, np.int64)
        partition = np.arange(BUSY_PARTITIONS)[None, None, :] + np.zeros(shape, np.int64)
        flat = [column.ravel() for column in (times, group, group * 7 % TOPICS, partition, values)]
        return Events(flat[0], np.full(len(flat[0]), COMMIT), *flat[1:])

    def _special(self, group: int) -> Events:
        if group == self.clickstream:
            times = np.linspace(self.start, self.end - 1000, 10 * self.count).astype(np.int64)
            values = np.cumsum(self.random.integers(0, 100, len(times)))
            return self._of(group, times, COMMIT, TOPICS, 0, values)
        if group == self.retired:
            times = np.full(RETIRED_OFFSETS, self.end - 10 * DAY_MS)
            return self._of(group, times, COMMIT, 3, np.arange(RETIRED_OFFSETS), np.arange(RETIRED_OFFSETS))
        if group in self.gone:
            at, number = self.end - int(self.random.integers(20, 300)) * DAY_MS, np.arange(GONE_OFFSETS)
            commits = self._of(group, np.full(GONE_OFFSETS, at), COMMIT, 5, number, number)
            tombstones = self._of(group, np.full(GONE_OFFSETS, at + 7 * DAY_MS), TOMBSTONE, 5, number, number)
            return Events.joined([commits, tombstones])
        return self._of(group, np.zeros(0, np.int64), COMMIT, 0, 0, np.zeros(0, np.int64))

    def _of(self, group: int, times: Ints, kind: int, topic: int, partition: Ints | int, value: Ints) -> Events:
        rows = np.zeros(len(times), np.int64)
        return Events(times, rows + kind, rows + group, rows + topic, rows + partition, value)

    def _group_records(self, group: int) -> Events:
        times: list[int] = []
        first = len(self.values)
        if group < self.count and group % EVERY_BUSY == 0:
            for number in range(REBALANCES):
                times.append(self.start + DAY_MS + number * 7 * DAY_MS + group % 1000 * 60_000)
                self.values.append(self._metadata(group, number, times[-1], members=number % 10 != 9))
        times.append(self.end - self._since_last_record(group))
        if group in self.gone:
            self.values.append(None)
        else:
            is_empty = group == self.retired or (group % 10 >= 6 and group % EVERY_BUSY != 0)
            self.values.append(self._metadata(group, REBALANCES, times[-1], members=not is_empty))
        numbers = np.arange(first, len(self.values))
        return self._of(group, np.array(times, np.int64), RECORD, 0, 0, numbers)

    def _since_last_record(self, group: int) -> int:
        if group == self.retired:
            return 9 * DAY_MS
        return 10 * DAY_MS if group in self.gone else int(self.random.integers(3_600_000, 6 * DAY_MS))

    def _metadata(self, group: int, generation: int, at: int, *, members: bool) -> str:
        topics = [self.topics[(group * 7 + number) % TOPICS] for number in range(GROUP_TOPICS)]
        if group == self.clickstream:
            topics = ["clicks"]
        member_id = f"{self.names[group]}-{generation}"
        subscription = {"version": 1, "topics": topics, "userData": None, "ownedPartitions": []}
        member = {
            "memberId": member_id, "groupInstanceId": None, "clientId": f"client-{group % 2000}",
            "clientHost": f"/10.0.{group % 250}.{generation}", "rebalanceTimeout": 300_000, "sessionTimeout": 45_000,
            "subscription": subscription, "assignment": None,
        }  # fmt: skip
        return json.dumps(
            {
                "protocolType": "consumer", "generation": generation, "protocol": "range" if members else None,
                "leader": member_id if members else None, "currentStateTimestamp": at,
                "members": [member] if members else [],
            }
        )  # fmt: skip
