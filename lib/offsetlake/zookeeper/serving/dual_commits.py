"""Commits to ZooKeeper what was committed to the log: dual commits, for the time of a migration.

The log decides. A commit is acknowledged when it is in the log, and ZooKeeper follows: the keys of changed offsets are
collected, each once, and their offsets are read from the store when they are sent. So memory is bounded by the number
of keys, however long ZooKeeper is unavailable, and a znode is never set to an older offset.

A comparison creates missing znodes, but only reports offsets that differ, because others have set them. The next commit
or tombstone of the key in the log writes the znode again.
"""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from fnmatch import translate
from itertools import islice
from pathlib import Path

from offsetlake.errors import OffsetlakeError
from offsetlake.serve.settings import ZooKeeperSettings
from offsetlake.serve.steps import complete_in_turns
from offsetlake.serve.storage.changed_keys import ChangedKeys, Keys
from offsetlake.serve.storage.child_process import run_child
from offsetlake.serve.storage.store import Store, key
from offsetlake.serve.writes.watermarks import Watermarks
from offsetlake.zookeeper.serving.child_process import MAX_ROWS_PER_FRAME, ZooKeeperChild
from offsetlake.zookeeper.serving.frames import Message, Row
from offsetlake.zookeeper.serving.position import load_position, save_position
from offsetlake.zookeeper.serving.progress import ZooKeeperProgress

LOG = logging.getLogger(__name__)
PASS_INTERVAL_SECONDS = 0.1
"""The commits of that time are sent together; of commits of the same key, only the last one is."""

RETRY_SECONDS = 5.0
RESPONSE_SECONDS = 10.0
"""After that time without a response, ZooKeeper counts as unavailable."""

STOP_SECONDS = 5.0
COMPARISON_SECONDS = 600.0
POSITION_SECONDS = 2.0
MAX_ROWS = 5_000
"""Offsets in one request."""


class DualCommits:
    """Writes the changed offsets of groups to ZooKeeper, in a task of its own; `progress` is how far it is."""

    spares_active = True
    """Whether the znodes of groups with active consumers in ZooKeeper are not written."""

    def __init__(self, settings: ZooKeeperSettings, folder: Path, store: Store, watermarks: Watermarks) -> None:
        self._folder, self._store, self._watermarks = folder, store, watermarks
        self._address = settings.address
        self._child = ZooKeeperChild(settings.address, settings.config)
        self._changed = store.changed = ChangedKeys(_matcher(settings.groups))
        self._waiting: Keys = {}
        self._refused: Keys = {}
        self._has_earlier_changes = True  # until these were collected, no position may be saved
        self._position: dict[int, int] = {}
        self._position_time = 0.0
        self.progress = ZooKeeperProgress(self._changed, self._waiting, self._refused)

    async def run(self) -> None:
        """Write changes and compare all offsets now and then, until the task is cancelled; the log is loaded."""
        await self._find_earlier_changes()
        self._has_earlier_changes = False
        next_comparison = time.monotonic()
        while True:
            await self._write_changes()
            if time.monotonic() >= next_comparison:
                await self._compare()
                next_comparison = time.monotonic() + COMPARISON_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS):
                    await self._changed.event.wait()
                await asyncio.sleep(PASS_INTERVAL_SECONDS)
                continue
            move_keys(self._refused, self._waiting)

    async def close(self) -> None:
        """Write the last changes, as far as ZooKeeper responds, and end the child process."""
        try:
            async with asyncio.timeout(STOP_SECONDS):
                if not self._has_earlier_changes:
                    self._position_time = 0.0
                    await self._write_changes()
        except TimeoutError:
            LOG.warning(
                "%(offsets)d changed offsets are not in ZooKeeper yet: the next start writes them",
                {"offsets": self.progress.waiting},
            )
        await self._child.close()

    async def _find_earlier_changes(self) -> None:
        """Find the changes in the log that an earlier process did not write to this ZooKeeper."""
        ends, position = self._ends(), load_position(self._folder, self._address)
        if position is None:  # the first start: what was deleted before does not matter
            await self._save(ends)
            return
        self._position = position
        ranges = {number: (position[number], end) for number, end in ends.items() if position.get(number, end) < end}
        if not ranges:
            return
        request = {"log": str(self._folder), "ranges": ranges}
        answer = await run_child("offsetlake.zookeeper.serving.log_scan", request)
        if answer["incomplete"]:
            LOG.warning(
                "The log partitions %(partitions)s do not contain all changes since ZooKeeper was last up to date: "
                "`offsetlake export` shows which offsets differ, and `offsetlake import` which znodes have no offset",
                {"partitions": ", ".join(map(str, answer["incomplete"]))},
            )
        for count, (group, topic, partition) in enumerate(answer["keys"]):
            name = group.encode("utf-8", "surrogateescape")
            self._changed.add(name, (key(topic.encode("utf-8", "surrogateescape"), partition),))
            if count % MAX_ROWS_PER_FRAME == 0:
                await asyncio.sleep(0)

    async def _write_changes(self) -> None:
        """Write all changes up to now."""
        is_due = time.monotonic() >= self._position_time + POSITION_SECONDS
        ends = self._ends() if is_due else self._position
        self.progress.taken(self._changed.since)
        move_keys(self._changed.take(), self._waiting)
        while self._waiting:
            part = _first(self._waiting, MAX_ROWS)
            rows, answer = await self._send(part, overwrite=True)
            self.progress.written += answer["written"]
            refused: Keys = {}
            for number, reason in answer["refused"]:
                group, name = _key_of(rows[number])
                refused.setdefault(group, set()).add(name)
                self.progress.refuse(group, reason)
            for group, keys in part.items():
                if group not in refused:
                    self.progress.note_written(group, keys)
                self._waiting[group] -= keys
                if not self._waiting[group]:
                    del self._waiting[group]
            move_keys(refused, self._refused)
        self.progress.all_written()
        if not self._refused and ends != self._position:
            await self._save(ends)

    async def _compare(self) -> None:
        """Compare all offsets of the store with ZooKeeper."""
        count, keys, size = 0, dict[bytes, set[bytes]](), 0
        self.progress.begin_comparison()
        for group, _ in self._store.groups():
            if not self._changed.follows(group):
                continue
            for names in _parts(await complete_in_turns(self._store.group_offsets(group).partitions())):
                keys.setdefault(group, set()).update(names)
                size += len(names)
                count += len(names)
                if size >= MAX_ROWS:
                    await self._compare_part(keys)
                    keys, size = {}, 0
            await asyncio.sleep(0)
        if keys:
            await self._compare_part(keys)
        self.progress.end_comparison(count)

    async def _compare_part(self, keys: Keys) -> None:
        await self._write_changes()
        rows, answer = await self._send(keys, overwrite=False)
        self.progress.written += answer["written"]
        refused = [(number, None) for number, _ in answer["refused"]]
        for number, offset in (*answer["different"], *refused):
            group, name = _key_of(rows[number])
            if not (self._changed.contains(group, name) or name in self._refused.get(group, ())):
                self.progress.differ(group, name, offset, rows[number][3])

    async def _send(self, keys: Keys, *, overwrite: bool) -> tuple[list[Row], Message]:
        """Send the offsets of keys until ZooKeeper responds; return the rows and the answer."""
        rows: list[Row] = []

        def rows_again() -> AsyncIterator[Sequence[Row]]:
            rows.clear()
            return self._rows(keys, rows)

        request = {"overwrite": overwrite, "spares_active": self.spares_active}
        return rows, await self._request(request, rows_again)

    async def _request(self, request: Message, rows: Callable[[], AsyncIterator[Sequence[Row]]]) -> Message:
        """Send a request until ZooKeeper responds; return the answer."""
        while True:
            asking = asyncio.create_task(self._child.ask(request, rows()))
            try:
                done, _ = await asyncio.wait({asking}, timeout=RESPONSE_SECONDS)
                if not done:
                    self._unavailable(f"ZooKeeper at {self._address} has not responded for a while.")
                answer = await asking
            except OffsetlakeError as error:
                self._unavailable(str(error))
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self.progress.available()
                return answer
            finally:
                asking.cancel()

    def _unavailable(self, reason: str) -> None:
        self.progress.unavailable(reason)

    async def _rows(self, keys: Keys, rows: list[Row]) -> AsyncIterator[Sequence[Row]]:
        """Yield the rows of keys in parts, and add them to `rows`; those of a group are of the same moment."""
        sent = len(rows)
        for group, names in keys.items():
            is_small = len(names) <= MAX_ROWS_PER_FRAME
            offsets = None if is_small else self._store.group_offsets(group)
            group_id = group.decode("utf-8", "surrogateescape")
            topics: dict[bytes, list[int]] = {}
            for name in names:
                topics.setdefault(name[:-4], []).append(int.from_bytes(name[-4:], signed=True))
            for topic, partitions in topics.items():
                topic_name = topic.decode("utf-8", "surrogateescape")
                for begin in range(0, len(partitions), MAX_ROWS_PER_FRAME):
                    part = partitions[begin : begin + MAX_ROWS_PER_FRAME]
                    stored = self._store.read(group, topic, part) if offsets is None else offsets.read(topic, part)
                    for partition, value in zip(part, stored, strict=True):
                        rows.append((group_id, topic_name, partition, None if value is None else value[0]))
                    if not is_small:
                        yield rows[sent:]
                        sent = len(rows)
            if len(rows) - sent >= MAX_ROWS_PER_FRAME:
                yield rows[sent:]
                sent = len(rows)
        yield rows[sent:]

    def _ends(self) -> dict[int, int]:
        """Return the log offset of each log partition below which all changes are in the store or were collected."""
        firsts = self._store.pending.firsts()
        return {number: min(end, firsts.get(number, end)) for number, end in self._watermarks.ends().items()}

    async def _save(self, ends: dict[int, int]) -> None:
        try:
            await asyncio.to_thread(save_position, self._folder, self._address, ends)
        except OSError as error:
            LOG.warning(
                "Cannot save in %(folder)s how far ZooKeeper is: %(reason)s",
                {"folder": self._folder, "reason": error.strerror},
            )
            return
        self._position, self._position_time = ends, time.monotonic()


def _matcher(patterns: str) -> Callable[[bytes], bool]:
    """Return a function that checks whether one of some shell patterns matches a group."""
    matches = re.compile("|".join(translate(pattern.strip()) for pattern in patterns.split(","))).match
    return lambda group: matches(group.decode("utf-8", "surrogateescape")) is not None


def move_keys(source: Keys, target: Keys) -> None:
    """Move all keys."""
    for group, keys in source.items():
        target.setdefault(group, set()).update(keys)
    source.clear()


def _first(keys: Keys, number: int) -> Keys:
    """Return the first keys."""
    found: Keys = {}
    for group, names in keys.items():
        found[group] = {*islice(names, number)}
        number -= len(found[group])
        if number <= 0:
            break
    return found


def _parts(partitions: dict[bytes, list[int]]) -> Iterator[list[bytes]]:
    """Yield the keys of the partitions of topics in parts."""
    for topic, numbers in partitions.items():
        for begin in range(0, len(numbers), MAX_ROWS):
            yield [key(topic, partition) for partition in numbers[begin : begin + MAX_ROWS]]


def _key_of(row: Row) -> tuple[bytes, bytes]:
    group, topic = (name.encode("utf-8", "surrogateescape") for name in row[:2])
    return group, key(topic, row[2])
