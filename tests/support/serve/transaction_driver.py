"""Transactions against a server without sockets, which can be restarted over the same log."""

import struct
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

from offsetlake.log.writer.ownership import owned
from offsetlake.serve.protocol.api_keys import (
    ADD_OFFSETS_TO_TXN,
    DELETE_GROUPS,
    END_TXN,
    INIT_PRODUCER_ID,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    TXN_OFFSET_COMMIT,
)
from offsetlake.serve.server import create_log
from offsetlake.serve.storage.memtable import VALUE
from offsetlake.serve.storage.store import Store
from support.oracle.log_reader import read_log
from support.oracle.replay import replay
from support.serve.in_process import LOG_PARTITIONS, InProcess, built

TOPIC = "t"
Offsets = dict[tuple[str, str, int], tuple[int, str]]
Held = set[tuple[str, str, int]]


class Transacting:
    """Sends the requests of producers, by their transactional ids, as old or new clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        create_log(folder / "log", LOG_PARTITIONS)
        self.producers: dict[str, tuple[int, int]] = {}
        self.service: InProcess
        self.begin()

    def begin(self) -> None:
        self.service = InProcess(self.folder, built(self.folder / "lake", self.folder / "log"))
        self.service.load()
        self.settle()

    def restart(self) -> None:
        self.service.close()
        self.begin()

    def settle(self) -> None:
        """Complete all requests, and the writes that follow from them."""
        for _ in range(4):
            self.service.loop.run_until_complete(self.service.writes.drain())

    def init(self, name: str) -> int:
        values = {"transactional_id": name, "transaction_timeout": timedelta(minutes=1)}
        answer = self.service.ask(INIT_PRODUCER_ID, 4, **values)
        if not answer["error_code"]:
            self.producers[name] = answer["producer_id"], answer["producer_epoch"]
        return int(answer["error_code"])

    def commit(self, name: str, group: str, offsets: dict[int, int], *, new: bool) -> int:
        if not new:
            error: int = self.service.ask(ADD_OFFSETS_TO_TXN, 0, group_id=group, **self._of(name))["error_code"]
            assert not error
        values = {"group_id": group, "topics": _topics(offsets), **self._of(name)}
        return _error(self.service.ask(TXN_OFFSET_COMMIT, 5 if new else 3, **values))

    def end(self, name: str, *, commits: bool, new: bool) -> int:
        answer = self.service.ask(END_TXN, 5 if new else 1, committed=commits, **self._of(name))
        if new and not answer["error_code"]:
            self.producers[name] = answer["producer_id"], answer["producer_epoch"]
        return int(answer["error_code"])

    def plain(self, group: str, offsets: dict[int, int]) -> int:
        values = {"group_id": group, "generation_id_or_member_epoch": -1, "topics": _topics(offsets)}
        return _error(self.service.ask(OFFSET_COMMIT, 7, **values))

    def delete_offset(self, group: str, partition: int) -> None:
        topics = [{"name": TOPIC, "partitions": [{"partition_index": partition}]}]
        self.service.ask(OFFSET_DELETE, 0, group_id=group, topics=topics)

    def delete_group(self, group: str) -> None:
        self.service.ask(DELETE_GROUPS, 2, groups_names=[group])

    def fold(self) -> None:
        """Refresh the mapped snapshot from the whole log."""
        self.service.loop.run_until_complete(self.service.writes.drain(self.service.store.begin_refresh))
        with self.owned():
            ends = {partition: self.service.appender.end(partition) for partition in range(LOG_PARTITIONS)}
            self.service.store.finish_refresh(built(self.folder / "lake", self.folder / "log", ends).base)

    def owned(self) -> AbstractContextManager[None]:
        """Own the log, as a server does, so that a reader does not repair it."""
        return owned(self.folder / "log", "test")

    def served(self) -> tuple[Offsets, Held]:
        return of_store(self.service.store)

    def said_by_the_log(self) -> tuple[Offsets, Held]:
        """Replay the log, as another coordinator would."""
        state = replay(read_log(self.folder / "log"))
        offsets = {key: (row.committed_offset, row.metadata) for key, row in state.committed.items()}
        return offsets, {key[:3] for key in state.pending}

    def _of(self, name: str) -> dict[str, Any]:
        id_, epoch = self.producers[name]
        return {"transactional_id": name, "producer_id": id_, "producer_epoch": epoch}


def of_store(store: Store) -> tuple[Offsets, Held]:
    offsets, held = {}, set()
    for group, _ in store.groups():
        for name, value in store.offsets(group).items():
            key = group.decode(), name[:-4].decode(), struct.unpack(">i", name[-4:])[0]
            offsets[key] = VALUE.unpack_from(value)[0], value[VALUE.size :].decode()
        held |= {(group.decode(), topic.decode(), partition) for topic, partition in store.unstable(group)}
    return offsets, held


def _topics(offsets: dict[int, int]) -> list[dict[str, Any]]:
    rows = [
        {"partition_index": at, "committed_offset": offset, "committed_metadata": str(offset)}
        for at, offset in offsets.items()
    ]
    return [{"name": TOPIC, "partitions": rows}]


def _error(answer: dict[str, Any]) -> int:
    return max(row["error_code"] for topic in answer["topics"] for row in topic["partitions"])
