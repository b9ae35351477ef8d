"""How clients of a mixed load ask, and what they tell: requests of Kafka's protocol and of HTTP over one connection each."""

import json
import time
import urllib.parse
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any

import kio.index

from support.serve.wire_client import OFFSET_COMMIT, WireClient, frame, plain, read_answer, request

TOPIC = "mixed"
COMMIT_VERSION = 9
PATIENCE = 15.0  # seconds
CONCURRENT = 51
PADDING = "x" * 100


class WrongAnswerError(AssertionError):
    """What was answered is not what must be."""


@dataclass
class Sums:
    """Of numbers as many as come, whatever their order: equal sums are equal numbers, each as often."""

    count: int = 0
    total: int = 0
    squares: int = 0

    def add(self, number: int) -> None:
        self.count += 1
        self.total += number
        self.squares += number * number


@dataclass
class Told:
    """What a process of the load tells of the last seconds; `sums` by client, at its end."""

    who: str
    asked: Counter[str] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    sums: dict[int, Sums] | None = None


class Asking:
    """Asks one thing after the other; `told` counts what."""

    def __init__(self, who: str, bootstrap: str, http: str) -> None:
        self.told = Told(who)
        self._bootstrap, self._http = bootstrap, urllib.parse.urlsplit(http)
        self._client = WireClient(bootstrap)

    def reconnect(self) -> None:
        self._client.socket.close()
        self._client = WireClient(self._bootstrap)
        self.told.asked["reconnections"] += 1

    def close(self) -> None:
        self._client.socket.close()

    def ask(self, api: int, version: int, values: Mapping[str, Any]) -> Any:
        name = kio.index.load_request_schema(api, version).__name__.removesuffix("Request")
        self.told.asked[name] += 1
        return self._client.ask(api, version, values)

    def again(self, api: int, version: int, values: Mapping[str, Any]) -> Any:
        """Ask until no transaction of before is in the way; WrongAnswerError where it is refused for something else."""
        deadline = time.monotonic() + PATIENCE
        while (errors := errors_of(said := self.ask(api, version, values))) == {CONCURRENT}:
            if time.monotonic() > deadline:
                break
        expect(f"errors of api {api}", errors, {0})
        return said

    def by_http(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = HTTPConnection(self._http.hostname or "", self._http.port, timeout=PATIENCE)
        data = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, data, {} if data is None else {"content-type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def commit_all(self, commits: list[tuple[str, dict[int, int]]]) -> None:
        """Commit offsets of groups, all of it sent before any of it is answered."""
        frames = [
            frame(OFFSET_COMMIT, COMMIT_VERSION, 1, request(OFFSET_COMMIT, COMMIT_VERSION, committing(*each)))
            for each in commits
        ]
        self._client.socket.sendall(b"".join(frames))
        for _ in commits:
            _, answer = read_answer(OFFSET_COMMIT, COMMIT_VERSION, self._client.receive())
            expect("errors of a commit", errors_of(plain(answer)), {0})
        self.told.asked["OffsetCommit"] += len(commits)


def committing(group: str, offsets: Mapping[int, int]) -> dict[str, Any]:
    of = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    return of | {"group_id": group, "topics": topics(offsets)}


def topics(offsets: Mapping[int, int]) -> list[dict[str, Any]]:
    rows = [
        {"partition_index": at, "committed_offset": offset, "committed_leader_epoch": -1}
        | {"committed_metadata": metadata(offset)}
        for at, offset in offsets.items()
    ]
    return [{"name": TOPIC, "partitions": rows}]


def metadata(number: int) -> str:
    return f"{number} {PADDING}" if number >= 0 else ""


def errors_of(said: Mapping[str, Any]) -> set[int]:
    """Give the error codes of an answer and of its partitions."""
    partitions = [of["error_code"] for topic in said.get("topics", ()) for of in topic["partitions"]]
    return {*partitions} or {said["error_code"]}


def expect(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise WrongAnswerError(f"{what}: {found} instead of {expected}")
