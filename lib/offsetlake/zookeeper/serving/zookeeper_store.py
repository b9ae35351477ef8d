"""ZooKeeper as the store of offsets: it decides, and the log follows it.

A commit is written to the log, and then to ZooKeeper, and acknowledged when it is in both. An offset is answered after
the znodes of its group were read: what others have changed there is written to the log first, so that it is in the
history, too. One task does all of this in its order, so that an offset that was read never replaces a newer commit.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NON_EMPTY_GROUP,
    NONE,
)
from offsetlake.kafka.placement import partition_for_group
from offsetlake.serve.settings import ZooKeeperSettings
from offsetlake.serve.steps import complete_in_turns
from offsetlake.serve.storage.offset_store import Answer
from offsetlake.serve.storage.store import Store, key
from offsetlake.serve.writes.rounds import Writes
from offsetlake.zookeeper.serving.dual_commits import COMPARISON_SECONDS, RETRY_SECONDS, DualCommits, move_keys
from offsetlake.zookeeper.serving.foreign_change import ForeignChange
from offsetlake.zookeeper.serving.frames import Row

Waiting = TypeVar("Waiting")
LOG = logging.getLogger(__name__)
MAX_GROUPS_PER_READ = 100


class ZooKeeperStore(DualCommits):
    """ZooKeeper as the store of offsets (`offsetlake.serve.storage.offset_store.OffsetStore`)."""

    spares_active = False

    def __init__(
        self, settings: ZooKeeperSettings, folder: Path, store: Store, writes: Writes, log_partitions: int
    ) -> None:
        super().__init__(settings, folder, store, writes.watermarks)
        self._writes, self._log_partitions = writes, log_partitions
        self._unread: list[bytes] = []
        self.error = COORDINATOR_LOAD_IN_PROGRESS
        self._puts: list[tuple[bytes, Answer]] = []
        self._gets: list[tuple[Sequence[bytes], Answer]] = []
        self._deletes: list[tuple[bytes, Answer]] = []

    def put(self, group: bytes, answer: Answer) -> None:
        """Answer when the offsets of a group that are durable in the log by now are in ZooKeeper."""
        if self.error:
            answer(self.error)
        else:
            self._puts.append((group, answer))
            self._changed.event.set()

    def get(self, groups: Sequence[bytes], answer: Answer) -> None:
        """Answer when the served offsets of groups are those in ZooKeeper."""
        if self.error:
            answer(self.error)
        else:
            self._gets.append((groups, answer))
            self._changed.event.set()

    def delete(self, group: bytes, answer: Answer) -> None:
        """Answer NON_EMPTY_GROUP if a group has active consumers in ZooKeeper."""
        if self.error:
            answer(self.error)
        else:
            self._deletes.append((group, answer))
            self._changed.event.set()

    async def run(self) -> None:
        """Load, and handle requests until the task is cancelled; all groups are read again now and then."""
        await self._load()
        self.error = NONE
        LOG.info("ZooKeeper is the store of committed offsets")
        next_reading = time.monotonic() + COMPARISON_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(0 if self._unread else RETRY_SECONDS):
                    await self._changed.event.wait()
            await self._handle()
            if time.monotonic() >= next_reading:
                next_reading = time.monotonic() + COMPARISON_SECONDS
                self._unread = await self._groups()
            with suppress(LogUnavailable):  # then no request changes anything any more
                await self._read(_taken(self._unread, MAX_GROUPS_PER_READ))

    async def _load(self) -> None:
        """Write what an earlier process did not, create what is missing, and take over what others have changed."""
        await self._find_earlier_changes()
        self._has_earlier_changes = False
        await self._write_changes()
        groups = await self._groups()
        while groups:
            await self._read(_taken(groups, MAX_GROUPS_PER_READ), creates_missing=True)
        await self._write_changes()

    async def _groups(self) -> list[bytes]:
        """Return all groups of ZooKeeper and of the log."""
        listed = await self._request({"list": True}, _no_rows)
        groups = dict.fromkeys(name.encode("utf-8", "surrogateescape") for name in listed["groups"])
        return [*(groups | dict.fromkeys(name for name, _ in self._store.groups()))]

    async def _handle(self) -> None:
        """Handle the requests that were added by now."""
        puts, gets, deletes = len(self._puts), len(self._gets), len(self._deletes)
        move_keys(self._refused, self._waiting)
        await self._write_changes()
        for group, answer in _taken(self._puts, puts):
            answer(COORDINATOR_NOT_AVAILABLE if group in self._refused else NONE)
        self._give_up_deletions()
        if deletes:
            await self._answer_deletes(deletes)
        groups = [*dict.fromkeys(name for names, _ in self._gets[:gets] for name in names)]
        error = NONE
        try:
            for begin in range(0, len(groups), MAX_GROUPS_PER_READ):
                await self._read(groups[begin : begin + MAX_GROUPS_PER_READ])
        except LogUnavailable:
            error = COORDINATOR_NOT_AVAILABLE
        for _, answer in _taken(self._gets, gets):
            answer(error)
        self.error = NONE

    async def _answer_deletes(self, number: int) -> None:
        names = [group.decode("utf-8", "surrogateescape") for group, _ in self._deletes[:number]]
        active = (await self._request({"active": names}, _no_rows))["active"]
        for (_, answer), name in zip(_taken(self._deletes, number), names, strict=False):
            answer(NON_EMPTY_GROUP if name in active else NONE)

    def _give_up_deletions(self) -> None:
        """Forget refused deletions of offsets, so that the next reading takes these offsets over from ZooKeeper."""
        for group, names in [*self._refused.items()]:
            kept = {name for name in names if self._store.find(group, name[:-4], int.from_bytes(name[-4:])) is not None}
            self._refused[group] = kept
            if not kept:
                del self._refused[group]

    def _unavailable(self, reason: str) -> None:
        """Answer all requests with an error; commits among them are in the log, and will be in ZooKeeper later."""
        super()._unavailable(reason)
        self.error = self.error or COORDINATOR_NOT_AVAILABLE
        answers = [answer for waiting in (self._puts, self._gets, self._deletes) for _, answer in waiting]
        for waiting in (self._puts, self._gets, self._deletes):
            waiting.clear()
        for answer in answers:
            answer(self.error)

    async def _read(self, groups: Sequence[bytes], *, creates_missing: bool = False) -> None:
        """Read the znodes of groups, and write to the log what others have changed since the last `_write_changes`.

        Args:
            groups: The names of groups.
            creates_missing: Whether a missing znode is created; otherwise, others have deleted it.

        Raises:
            LogUnavailable: The log cannot be written.
        """
        if not groups:
            return
        names = [group.decode("utf-8", "surrogateescape") for group in groups]
        answer = await self._request({"read": names}, _no_rows)
        found: dict[bytes, dict[bytes, int]] = {group: {} for group in groups}
        for group_id, topic, partition, offset in answer["rows"]:
            group = group_id.encode("utf-8", "surrogateescape")
            found[group][key(topic.encode("utf-8", "surrogateescape"), partition)] = offset
        for group, znodes in found.items():
            foreign = await self._foreign(group, znodes)
            if creates_missing:
                self._changed.add(group, [name for name, offset in foreign.items() if offset is None])
                foreign = {name: offset for name, offset in foreign.items() if offset is not None}
            if foreign:
                partition = partition_for_group(group.decode(errors="replace"), self._log_partitions)
                change = ForeignChange(partition, self._store, self._changed, group, foreign)
                self._writes.add(change, records=len(foreign))
                await change.done
                LOG.info(
                    "%(number)d offsets of the group %(group)s were changed in ZooKeeper by others",
                    {"number": len(foreign), "group": group.decode(errors="replace")},
                )

    async def _foreign(self, group: bytes, znodes: Mapping[bytes, int]) -> dict[bytes, int | None]:
        """Return the keys of a group whose offset in ZooKeeper is another one, with that, None for no znode."""
        offsets = self._store.group_offsets(group)
        partitions = await complete_in_turns(offsets.partitions())
        stored = {
            key(topic, partition): value
            for topic, numbers in partitions.items()
            for partition, value in zip(numbers, offsets.read(topic, numbers), strict=True)
        }
        foreign: dict[bytes, int | None] = {}
        refused = self._refused.get(group, set())
        for name in stored.keys() | znodes.keys():
            value, offset = stored.get(name), znodes.get(name)
            is_invalid = offset is not None and offset < 0
            if (None if value is None else value[0]) != offset and not is_invalid and name not in refused:
                foreign[name] = offset
        return {name: offset for name, offset in foreign.items() if not self._changed.contains(group, name)}


def _taken(waiting: list[Waiting], number: int) -> list[Waiting]:
    """Remove and return the first requests."""
    taken = waiting[:number]
    del waiting[:number]
    return taken


async def _no_rows() -> AsyncIterator[Sequence[Row]]:
    """Yield no rows."""
    empty: list[Sequence[Row]] = []
    for rows in empty:
        yield rows
