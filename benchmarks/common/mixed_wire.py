"""Requests and results of the clients of the mixed load, over one connection of Kafka's protocol each, and over HTTP."""

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
TIMEOUT_SECONDS = 15.0
CONCURRENT_TRANSACTIONS = 51
PADDING = "x" * 100


class WrongAnswerError(AssertionError):
    """A response that differs from the expected one."""


@dataclass
class Checksum:
    """Count, sum and sum of squares of numbers: they show, in any order, whether two processes saw the same numbers."""

    count: int = 0
    total: int = 0
    sum_of_squares: int = 0

    def add(self, number: int) -> None:
        self.count += 1
        self.total += number
        self.sum_of_squares += number * number


@dataclass
class Progress:
    """What a process has done since its last report; `checksums` are those of the clients, in the last report only."""

    process: str
    counts: Counter[str] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    wrong_answers: list[str] = field(default_factory=list)
    checksums: dict[int, Checksum] | None = None


class RequestClient:
    """Sends sequential requests, and counts them in `progress`."""

    def __init__(self, process: str, bootstrap: str, http: str) -> None:
        self.progress = Progress(process)
        self._bootstrap, self._http = bootstrap, urllib.parse.urlsplit(http)
        self._client = WireClient(bootstrap)

    def reconnect(self) -> None:
        self._client.socket.close()
        self._client = WireClient(self._bootstrap)
        self.progress.counts["reconnections"] += 1

    def close(self) -> None:
        self._client.socket.close()

    def send(self, api: int, version: int, values: Mapping[str, Any]) -> Any:
        name = kio.index.load_request_schema(api, version).__name__.removesuffix("Request")
        self.progress.counts[name] += 1
        return self._client.ask(api, version, values)

    def send_until_accepted(self, api: int, version: int, values: Mapping[str, Any]) -> Any:
        """Send a request until it no longer fails because of an unfinished transaction.

        Raises:
            WrongAnswerError: It failed with another error, or did not succeed in time.
        """
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while (errors := errors_of(response := self.send(api, version, values))) == {CONCURRENT_TRANSACTIONS}:
            if time.monotonic() > deadline:
                break
        expect(f"error codes of API {api}", errors, {0})
        return response

    def send_http(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = HTTPConnection(self._http.hostname or "", self._http.port, timeout=TIMEOUT_SECONDS)
        data = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, data, {} if data is None else {"content-type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def commit_all(self, commits: list[tuple[str, dict[int, int]]]) -> None:
        """Commit offsets of groups in pipelined requests: all are sent before the first response is read."""
        frames = [
            frame(OFFSET_COMMIT, COMMIT_VERSION, 1, request(OFFSET_COMMIT, COMMIT_VERSION, commit_values(*commit)))
            for commit in commits
        ]
        self._client.socket.sendall(b"".join(frames))
        for _ in commits:
            _, answer = read_answer(OFFSET_COMMIT, COMMIT_VERSION, self._client.receive())
            expect("error codes of a commit", errors_of(plain(answer)), {0})
        self.progress.counts["OffsetCommit"] += len(commits)


def commit_values(group: str, offsets: Mapping[int, int]) -> dict[str, Any]:
    member = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    return member | {"group_id": group, "topics": topics(offsets)}


def topics(offsets: Mapping[int, int]) -> list[dict[str, Any]]:
    rows = [
        {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": -1}
        | {"committed_metadata": metadata(offset)}
        for partition, offset in offsets.items()
    ]
    return [{"name": TOPIC, "partitions": rows}]


def metadata(number: int) -> str:
    return f"{number} {PADDING}" if number >= 0 else ""


def errors_of(response: Mapping[str, Any]) -> set[int]:
    """Return the error codes of a response and of its partitions."""
    partitions = [row["error_code"] for topic in response.get("topics", ()) for row in topic["partitions"]]
    return {*partitions} or {response["error_code"]}


def expect(description: str, actual: object, expected: object) -> None:
    """Raise WrongAnswerError if two values differ."""
    if actual != expected:
        raise WrongAnswerError(f"{description}: {actual} instead of {expected}")
