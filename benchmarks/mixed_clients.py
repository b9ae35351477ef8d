"""Clients of a mixed load: each has groups of its own, knows what they must have, and looks at every answer.

A client asks one thing after the other, and nobody else touches its groups: so an answer is what the model says, or it
is wrong. Each offset it commits is a number it has not committed before, which is how a reader of the log knows it.
"""

import random
import time
import urllib.parse
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from mixed_wire import PATIENCE, TOPIC, Asking, Sums, Told, WrongAnswerError, expect, metadata, topics
from offsetlake.serve.apis import api_dispatcher as apis

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

GROUPS, PARTITIONS = 40, 40
BURST, AT_ONCE = 16, 3  # commits under way at once; partitions of a commit, at the most
REPORT_SECONDS = 5.0
MOST_WRONG = 20  # wrong answers after which a client gives up
UNSTABLE = 88
LEFT = "left by a producer that is lost"
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


class LoadClient(Asking):
    """One client: `step` asks one thing, chosen by chance."""

    def __init__(self, number: int, bootstrap: str, http: str) -> None:
        super().__init__(f"client {number}", bootstrap, http)
        self.committed = Sums()
        self._number, self._last = number, 0
        self._chosen = random.Random(number)
        self._model: dict[str, Offsets] = {f"load-{number}-{at}": {} for at in range(GROUPS)}
        self._deleted: set[str] = set()
        self._producers: dict[str, tuple[int, int]] = {}

    def begin(self) -> None:
        """Give every partition of every group an offset."""
        for group in self._model:
            self._commit((group, self._numbered(range(PARTITIONS))))

    def step(self) -> None:
        (name,) = self._chosen.choices([*WEIGHTS], [*WEIGHTS.values()])
        group = self._chosen.choice([*self._model])
        getattr(self, f"_{name}")(group)

    def end(self) -> None:
        """Look at all groups once more."""
        for group in self._model:
            self._fetch_all(group)
        self.close()

    def _commit(self, *commits: tuple[str, Offsets]) -> None:
        self.commit_all([*commits])
        for group, offsets in commits:
            self._stands(group, offsets)

    def _commit_one(self, group: str) -> None:
        offsets, begun = self._some_new(), time.perf_counter()
        self._commit((group, offsets))
        self.told.times.append(time.perf_counter() - begun)

    def _burst(self, _group: str) -> None:
        self._commit(*((self._chosen.choice([*self._model]), self._some_new()) for _ in range(BURST)))

    def _fetch(self, group: str) -> None:
        self._look(group, self._some())

    def _fetch_all(self, group: str) -> None:
        found = self._partitions(group, None)
        expect(f"all offsets of {group}", _offsets(found), self._model[group])

    def _look(self, group: str, wanted: Iterable[int], *, stable: bool = False) -> None:
        """Fetch partitions, `stable` until no transaction holds them: they are as the model says."""
        wanted, deadline = [*wanted], time.monotonic() + PATIENCE
        found = self._partitions(group, wanted, stable)
        while stable and any(of["error_code"] == UNSTABLE for of in found) and time.monotonic() < deadline:
            found = self._partitions(group, wanted, stable)
        expect(f"errors of {group}", {of["error_code"] for of in found}, {0})
        expect(f"offsets of {group}", _offsets(found), {at: self._model[group].get(at, -1) for at in wanted})
        for of in found:
            expect(f"metadata of {group}", of["metadata"], metadata(of["committed_offset"]))

    def _partitions(self, group: str, wanted: list[int] | None, stable: bool = False) -> list[dict[str, Any]]:
        asked = None if wanted is None else [{"name": TOPIC, "partition_indexes": wanted}]
        said = self.ask(apis.OFFSET_FETCH, 7, {"group_id": group, "topics": asked, "require_stable": stable})
        expect(f"error of {group}", said["error_code"], 0)
        return [of for topic in said["topics"] for of in topic["partitions"]]

    def _transaction(self, group: str) -> None:
        """Commit in a transaction, by the way of old clients or of new ones; it ends, or its producer is lost."""
        new, offsets = self._chosen.random() < 0.5, self._some_new()
        name = f"load-{self._number}-{'new' if new else 'old'}"
        if name not in self._producers:
            self._init(name)
        if not new:
            self.again(apis.ADD_OFFSETS_TO_TXN, 0, self._of(name) | {"group_id": group})
        self.again(apis.TXN_OFFSET_COMMIT, 5 if new else 3, self._of(name) | _of_nobody(group, offsets))
        self._deleted.discard(group)
        held = {of["error_code"] for of in self._partitions(group, [*offsets], stable=True)}
        expect(f"errors of what {group} has in a transaction", held, {UNSTABLE})
        self._look(group, offsets)
        (fate,) = self._chosen.choices(("committed", "aborted", LEFT), (70, 20, 10))
        if fate == LEFT:
            self.reconnect()
            self._init(name)
        else:
            said = self.again(apis.END_TXN, 5 if new else 1, self._of(name) | {"committed": fate == "committed"})
            if new:
                self._producers[name] = said["producer_id"], said["producer_epoch"]
        if fate == "committed":
            self._stands(group, offsets)
        self._look(group, offsets, stable=True)
        self.told.asked[f"transactions {fate}"] += 1

    def _init(self, name: str) -> None:
        asked = {"transactional_id": name, "transaction_timeout": timedelta(minutes=1)}
        said = self.again(apis.INIT_PRODUCER_ID, 4, asked)
        self._producers[name] = said["producer_id"], said["producer_epoch"]

    def _of(self, name: str) -> dict[str, Any]:
        producer, epoch = self._producers[name]
        return {"transactional_id": name, "producer_id": producer, "producer_epoch": epoch}

    def _describe(self, group: str) -> None:
        asked = {"groups": [group], "include_authorized_operations": False}
        (found,) = self.ask(apis.DESCRIBE_GROUPS, 5, asked)["groups"]
        if self._model[group]:
            expect(f"state of {group}", (found["error_code"], found["group_state"]), (0, "Empty"))
        elif group in self._deleted:
            expect(f"state of {group}, which is deleted", found["group_state"], "Dead")

    def _list_groups(self, _group: str) -> None:
        listed = {of["group_id"] for of in self.ask(apis.LIST_GROUPS, 4, {"states_filter": ()})["groups"]}
        expect("listed groups that are deleted", self._deleted & listed, set())
        missing = {group for group, offsets in self._model.items() if offsets and group not in listed}
        expect("groups that are not listed", missing, set())

    def _delete_offsets(self, group: str) -> None:
        gone = [at for at in self._some() if at in self._model[group]]
        if not gone:
            return
        asked = [{"name": TOPIC, "partitions": [{"partition_index": at} for at in gone]}]
        said = self.ask(apis.OFFSET_DELETE, 0, {"group_id": group, "topics": asked})
        codes = [of["error_code"] for topic in said["topics"] for of in topic["partitions"]]
        expect(f"deletions of {group}", (said["error_code"], codes), (0, [0] * len(gone)))
        for at in gone:
            del self._model[group][at]

    def _delete_group(self, group: str) -> None:
        (said,) = self.ask(apis.DELETE_GROUPS, 2, {"groups_names": [group]})["results"]
        if self._model[group]:
            expect(f"deletion of {group}", said["error_code"], 0)
        self._model[group].clear()
        self._deleted.add(group)

    def _commit_by_http(self, group: str) -> None:
        """Commit if it is as the model says; at times as it is not, and that must be refused."""
        right, offsets = self._chosen.random() < 0.8, self._some_new()
        exchanges = [
            {"topic": TOPIC, "partition": at, "offset": offset, "metadata": metadata(offset)}
            | {"expected": self._model[group].get(at) if right else self._last + 1}
            for at, offset in offsets.items()
        ]
        status, _ = self.by_http("POST", "/v1/commit", {"group": group, "offsets": exchanges})
        expect(f"conditional commit of {group}", status, 200 if right else 409)
        if right:
            self._stands(group, offsets)
        self.told.asked[f"HTTP commits {'taken' if right else 'refused'}"] += 1

    def _offsets_by_http(self, group: str) -> None:
        status, said = self.by_http("GET", f"/v1/offsets?{urllib.parse.urlencode({'group': group})}")
        if self._model[group] or status != 404:
            found = {of["partition"]: of["committed_offset"] for of in said.get("offsets", ())}
            expect(f"offsets of {group} by HTTP", (status, found), (200, self._model[group]))
        self.told.asked["HTTP offsets"] += 1

    def _reconnect(self, _group: str) -> None:
        self.reconnect()

    def _some(self) -> list[int]:
        return self._chosen.sample(range(PARTITIONS), self._chosen.randint(1, AT_ONCE))

    def _some_new(self) -> Offsets:
        return self._numbered(self._some())

    def _numbered(self, partitions: Iterable[int]) -> Offsets:
        numbered = {at: self._last + number for number, at in enumerate(partitions, 1)}
        self._last += len(numbered)
        return numbered

    def _stands(self, group: str, offsets: Offsets) -> None:
        self._model[group] |= offsets
        self._deleted.discard(group)
        for number in offsets.values():
            self.committed.add(number)


def _offsets(found: list[dict[str, Any]]) -> Offsets:
    return {of["partition_index"]: of["committed_offset"] for of in found}


def _of_nobody(group: str, offsets: Offsets) -> dict[str, Any]:
    return {"group_id": group, "generation_id": -1, "member_id": "", "topics": topics(offsets)}


def run(number: int, bootstrap: str, http: str, seconds: float, tells: "Queue[Told]") -> None:
    """Be a client for so many seconds; tells what it did every REPORT_SECONDS, and at last what it has committed."""
    end = time.monotonic() + seconds
    client = LoadClient(number, bootstrap, http)
    wrong, reported = 0, time.monotonic()
    try:
        client.begin()
        while time.monotonic() < end and wrong < MOST_WRONG:
            try:
                client.step()
            except WrongAnswerError as error:
                client.told.wrong.append(f"{time.strftime('%H:%M:%S')} {client.told.who}: {error}")
                wrong += 1
                client.reconnect()  # answers may be left over
            if time.monotonic() - reported >= REPORT_SECONDS:
                tells.put(client.told)
                client.told, reported = Told(client.told.who), time.monotonic()
        client.end()
    except (WrongAnswerError, OSError, EOFError) as error:
        client.told.wrong.append(f"{client.told.who} ended: {error!r}")
    client.told.sums = {number: client.committed}
    tells.put(client.told)
