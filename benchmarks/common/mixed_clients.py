"""Clients of the mixed load: each has its own groups and a model of their offsets, and checks every response.

A client sends sequential requests, and no other client uses its groups, so a response that differs from the model is
wrong. Each committed offset is a number that the client has not committed before, so that the consumer of the log can
detect lost and repeated records.
"""

import random
import time
import urllib.parse
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from common.mixed_wire import (
    TIMEOUT_SECONDS,
    TOPIC,
    Checksum,
    Progress,
    RequestClient,
    WrongAnswerError,
    expect,
    metadata,
    topics,
)
from offsetlake.serve.apis import api_dispatcher as apis

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

GROUPS, PARTITIONS = 40, 40
PIPELINED_COMMITS, MAX_PARTITIONS_PER_COMMIT = 16, 3
REPORT_SECONDS = 5.0
MAX_WRONG_ANSWERS = 20  # after which a client stops
UNSTABLE_OFFSET_COMMIT = 88
ABANDONED = "abandoned by their producer"
WEIGHTS = {
    "commit_one": 300,
    "burst": 30,
    "fetch": 300,
    "fetch_all": 20,
    "transaction": 15,
    "describe": 10,
    "list_groups": 2,
    "delete_offsets": 10,
    "delete_group": 5,
    "commit_by_http": 15,
    "offsets_by_http": 10,
    "reconnect": 3,
}
Offsets = dict[int, int]


class LoadClient(RequestClient):
    """One client; `step` sends a random request."""

    def __init__(self, number: int, bootstrap: str, http: str) -> None:
        super().__init__(f"client {number}", bootstrap, http)
        self.committed = Checksum()
        self._number, self._last = number, 0
        self._random = random.Random(number)
        self._model: dict[str, Offsets] = {f"load-{number}-{index}": {} for index in range(GROUPS)}
        self._deleted: set[str] = set()
        self._producers: dict[str, tuple[int, int]] = {}

    def begin(self) -> None:
        """Commit an offset of every partition for every group."""
        for group in self._model:
            self._commit((group, self._numbered(range(PARTITIONS))))

    def step(self) -> None:
        (name,) = self._random.choices([*WEIGHTS], [*WEIGHTS.values()])
        group = self._random.choice([*self._model])
        getattr(self, f"_{name}")(group)

    def end(self) -> None:
        """Check the offsets of all groups once more."""
        for group in self._model:
            self._fetch_all(group)
        self.close()

    def _commit(self, *commits: tuple[str, Offsets]) -> None:
        self.commit_all([*commits])
        for group, offsets in commits:
            self._set_committed(group, offsets)

    def _commit_one(self, group: str) -> None:
        offsets, start = self._some_new(), time.perf_counter()
        self._commit((group, offsets))
        self.progress.latencies.append(time.perf_counter() - start)

    def _burst(self, _group: str) -> None:
        self._commit(*((self._random.choice([*self._model]), self._some_new()) for _ in range(PIPELINED_COMMITS)))

    def _fetch(self, group: str) -> None:
        self._check(group, self._some())

    def _fetch_all(self, group: str) -> None:
        rows = self._fetched(group, None)
        expect(f"all offsets of {group}", _offsets(rows), self._model[group])

    def _check(self, group: str, partitions: Iterable[int], *, stable: bool = False) -> None:
        """Fetch partitions and compare them with the model; `stable` waits until no transaction has offsets of them."""
        requested, deadline = [*partitions], time.monotonic() + TIMEOUT_SECONDS
        rows = self._fetched(group, requested, stable)
        while (
            stable and any(row["error_code"] == UNSTABLE_OFFSET_COMMIT for row in rows) and time.monotonic() < deadline
        ):
            rows = self._fetched(group, requested, stable)
        expect(f"error codes of {group}", {row["error_code"] for row in rows}, {0})
        expect(
            f"offsets of {group}",
            _offsets(rows),
            {partition: self._model[group].get(partition, -1) for partition in requested},
        )
        for row in rows:
            expect(f"metadata of {group}", row["metadata"], metadata(row["committed_offset"]))

    def _fetched(self, group: str, partitions: list[int] | None, stable: bool = False) -> list[dict[str, Any]]:
        requested = None if partitions is None else [{"name": TOPIC, "partition_indexes": partitions}]
        values = {"group_id": group, "topics": requested, "require_stable": stable}
        response = self.send(apis.OFFSET_FETCH, 7, values)
        expect(f"error code of {group}", response["error_code"], 0)
        return [row for topic in response["topics"] for row in topic["partitions"]]

    def _transaction(self, group: str) -> None:
        """Commit in a transaction, with the protocol of old or new clients, and end it or abandon its producer."""
        new, offsets = self._random.random() < 0.5, self._some_new()
        name = f"load-{self._number}-{'new' if new else 'old'}"
        if name not in self._producers:
            self._init(name)
        if not new:
            self.send_until_accepted(apis.ADD_OFFSETS_TO_TXN, 0, self._producer(name) | {"group_id": group})
        self.send_until_accepted(
            apis.TXN_OFFSET_COMMIT, 5 if new else 3, self._producer(name) | _without_member(group, offsets)
        )
        self._deleted.discard(group)
        codes = {row["error_code"] for row in self._fetched(group, [*offsets], stable=True)}
        expect(f"error codes of {group} during a transaction", codes, {UNSTABLE_OFFSET_COMMIT})
        self._check(group, offsets)
        (outcome,) = self._random.choices(("committed", "aborted", ABANDONED), (70, 20, 10))
        if outcome == ABANDONED:
            self.reconnect()
            self._init(name)
        else:
            response = self.send_until_accepted(
                apis.END_TXN, 5 if new else 1, self._producer(name) | {"committed": outcome == "committed"}
            )
            if new:
                self._producers[name] = response["producer_id"], response["producer_epoch"]
        if outcome == "committed":
            self._set_committed(group, offsets)
        self._check(group, offsets, stable=True)
        self.progress.counts[f"transactions {outcome}"] += 1

    def _init(self, name: str) -> None:
        values = {"transactional_id": name, "transaction_timeout": timedelta(minutes=1)}
        response = self.send_until_accepted(apis.INIT_PRODUCER_ID, 4, values)
        self._producers[name] = response["producer_id"], response["producer_epoch"]

    def _producer(self, name: str) -> dict[str, Any]:
        producer, epoch = self._producers[name]
        return {"transactional_id": name, "producer_id": producer, "producer_epoch": epoch}

    def _describe(self, group: str) -> None:
        values = {"groups": [group], "include_authorized_operations": False}
        (described,) = self.send(apis.DESCRIBE_GROUPS, 5, values)["groups"]
        if self._model[group]:
            expect(f"state of {group}", (described["error_code"], described["group_state"]), (0, "Empty"))
        elif group in self._deleted:
            expect(f"state of the deleted group {group}", described["group_state"], "Dead")

    def _list_groups(self, _group: str) -> None:
        listed = {row["group_id"] for row in self.send(apis.LIST_GROUPS, 4, {"states_filter": ()})["groups"]}
        expect("deleted groups in the list", self._deleted & listed, set())
        missing = {group for group, offsets in self._model.items() if offsets and group not in listed}
        expect("groups missing in the list", missing, set())

    def _delete_offsets(self, group: str) -> None:
        partitions = [partition for partition in self._some() if partition in self._model[group]]
        if not partitions:
            return
        rows = [{"partition_index": partition} for partition in partitions]
        values = {"group_id": group, "topics": [{"name": TOPIC, "partitions": rows}]}
        response = self.send(apis.OFFSET_DELETE, 0, values)
        codes = [row["error_code"] for topic in response["topics"] for row in topic["partitions"]]
        expect(f"deletion of offsets of {group}", (response["error_code"], codes), (0, [0] * len(partitions)))
        for partition in partitions:
            del self._model[group][partition]

    def _delete_group(self, group: str) -> None:
        (result,) = self.send(apis.DELETE_GROUPS, 2, {"groups_names": [group]})["results"]
        if self._model[group]:
            expect(f"deletion of {group}", result["error_code"], 0)
        self._model[group].clear()
        self._deleted.add(group)

    def _commit_by_http(self, group: str) -> None:
        """Compare and commit; some requests expect wrong offsets and must be refused."""
        matches, offsets = self._random.random() < 0.8, self._some_new()
        changes = [
            {"topic": TOPIC, "partition": partition, "offset": offset, "metadata": metadata(offset)}
            | {"expected": self._model[group].get(partition) if matches else self._last + 1}
            for partition, offset in offsets.items()
        ]
        status, _ = self.send_http("POST", "/v1/commit", {"group": group, "offsets": changes})
        expect(f"conditional commit of {group}", status, 200 if matches else 409)
        if matches:
            self._set_committed(group, offsets)
        self.progress.counts[f"HTTP commits {'accepted' if matches else 'refused'}"] += 1

    def _offsets_by_http(self, group: str) -> None:
        status, response = self.send_http("GET", f"/v1/offsets?{urllib.parse.urlencode({'group': group})}")
        if self._model[group] or status != 404:
            offsets = {row["partition"]: row["committed_offset"] for row in response.get("offsets", ())}
            expect(f"offsets of {group} over HTTP", (status, offsets), (200, self._model[group]))
        self.progress.counts["HTTP offsets"] += 1

    def _reconnect(self, _group: str) -> None:
        self.reconnect()

    def _some(self) -> list[int]:
        return self._random.sample(range(PARTITIONS), self._random.randint(1, MAX_PARTITIONS_PER_COMMIT))

    def _some_new(self) -> Offsets:
        return self._numbered(self._some())

    def _numbered(self, partitions: Iterable[int]) -> Offsets:
        numbered = {partition: self._last + number for number, partition in enumerate(partitions, 1)}
        self._last += len(numbered)
        return numbered

    def _set_committed(self, group: str, offsets: Offsets) -> None:
        self._model[group] |= offsets
        self._deleted.discard(group)
        for number in offsets.values():
            self.committed.add(number)


def _offsets(rows: list[dict[str, Any]]) -> Offsets:
    return {row["partition_index"]: row["committed_offset"] for row in rows}


def _without_member(group: str, offsets: Offsets) -> dict[str, Any]:
    return {"group_id": group, "generation_id": -1, "member_id": "", "topics": topics(offsets)}


def run(number: int, bootstrap: str, http: str, seconds: float, reports: "Queue[Progress]") -> None:
    """Run a client for a number of seconds; it reports every REPORT_SECONDS, and its checksum at the end."""
    end = time.monotonic() + seconds
    client = LoadClient(number, bootstrap, http)
    wrong_answers, reported = 0, time.monotonic()
    try:
        client.begin()
        while time.monotonic() < end and wrong_answers < MAX_WRONG_ANSWERS:
            try:
                client.step()
            except WrongAnswerError as error:
                client.progress.wrong_answers.append(f"{time.strftime('%H:%M:%S')} {client.progress.process}: {error}")
                wrong_answers += 1
                client.reconnect()  # unread responses may remain
            if time.monotonic() - reported >= REPORT_SECONDS:
                reports.put(client.progress)
                client.progress, reported = Progress(client.progress.process), time.monotonic()
        client.end()
    except (WrongAnswerError, OSError, EOFError) as error:
        client.progress.wrong_answers.append(f"{client.progress.process} ended: {error!r}")
    client.progress.checksums = {number: client.committed}
    reports.put(client.progress)
