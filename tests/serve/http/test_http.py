"""HTTP of a running server over the log of a real broker: its answers, compared with the log."""

import json
import re
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from support.oracle.log_reader import read_log
from support.oracle.replay import replay
from support.serve import wire_client
from support.serve.commands import CONSUMER, EMPTY, OPEN, SHARE
from support.serve.http_client import ask, exchange, problem
from support.serve.in_process import BROKER_LOG
from support.serve.serving import Serving

pytestmark = pytest.mark.slow

WITHOUT_OFFSETS = 30  # ms: group `past` has no offset from then until 40
UNUSUAL_NAMES = ["a/b", "..", "", "grüße 世界", "x y+z", "%2F", "\0", "q?a=b&c#d", "g" * 32767]


@pytest.fixture
def served(over_http: Serving) -> Serving:
    return over_http


def committed(served: Serving, group: str, *exchanges: dict[str, Any]) -> int:
    return ask(served.http, "POST", "/v1/commit", {"group": group, "offsets": exchanges}).status


def served_offsets(served: Serving, group: str, **query: str) -> dict[tuple[str, int], int]:
    answer = ask(served.http, "GET", "/v1/offsets", group=group, **query)
    assert answer.status == 200, answer
    return {(row["topic"], row["partition"]): row["committed_offset"] for row in answer.body["offsets"]}


def log_folder(served: Serving) -> Path:
    return Path(served._settings["log"])


def offsets_in_the_log(served: Serving, group: str) -> dict[tuple[str, int], int]:
    """Return the offsets of a group in the log, by the oracle's own reader and rules."""
    committed = replay(read_log(log_folder(served))).committed
    return {
        (topic, number): offset.committed_offset for (name, topic, number), offset in committed.items() if name == group
    }


def test_running_server_is_live_and_ready(served: Serving) -> None:
    assert ask(served.http, "GET", "/livez").body == {"status": "live"}
    assert ask(served.http, "GET", "/readyz").body == {"status": "ready"}


def test_offsets_equal_those_in_the_log(served: Serving) -> None:
    assert served_offsets(served, EMPTY) == offsets_in_the_log(served, EMPTY) != {}
    assert served_offsets(served, EMPTY, topic="orders").keys() == {
        key for key in offsets_in_the_log(served, EMPTY) if key[0] == "orders"
    }
    assert served_offsets(served, EMPTY, topic="elsewhere") == {}
    assert problem(ask(served.http, "GET", "/v1/offsets", group="nobody")) == "group-not-found"


def test_pages_contain_each_group_once(served: Serving) -> None:
    listed: list[dict[str, str]] = []
    query: dict[str, Any] = {"limit": 7}
    while True:
        answer = ask(served.http, "GET", "/v1/groups", **query).body
        assert len(answer["groups"]) <= 7
        listed += answer["groups"]
        if answer["next"] is None:
            break
        query["after"] = answer["next"]
    with wire_client.WireClient(served.bootstrap) as client:
        groups = client.ask(16, 5, {"states_filter": (), "types_filter": ()})["groups"]
    by_kafka = {group["group_id"]: (group["group_type"], group["group_state"]) for group in groups}
    assert {group["group"]: (group["type"], group["state"]) for group in listed} == by_kafka
    assert len(listed) == len(by_kafka)
    consumers = ask(served.http, "GET", "/v1/groups", type="CONSUMER", state="stable", limit=1000).body
    assert {group["group"] for group in consumers["groups"]} == {
        name for name, kind in by_kafka.items() if kind == ("consumer", "Stable")
    }


@pytest.mark.parametrize("group", UNUSUAL_NAMES)
def test_unusual_group_names_are_supported(served: Serving, group: str) -> None:
    assert committed(served, group, exchange(None, 7, "t/ü", 3, metadata="ä", leader_epoch=2)) == 200
    answer = ask(served.http, "GET", "/v1/offsets", group=group).body
    assert answer["group"] == group
    assert answer["offsets"] == [
        {"topic": "t/ü", "partition": 3, "committed_offset": 7, "leader_epoch": 2, "metadata": "ä", "topic_id": None}
    ]
    assert ask(served.http, "DELETE", "/v1/offsets", group=group, topic="t/ü", partition=3).status == 204
    assert served_offsets(served, group) == {}
    assert ask(served.http, "DELETE", "/v1/groups", group=group).status == 204
    assert problem(ask(served.http, "DELETE", "/v1/groups", group=group)) == "group-not-found"
    assert offsets_in_the_log(served, group) == {}


def test_control_characters_are_escaped_in_json(served: Serving) -> None:
    group = "\x1b[31m\x9b1m\u202e\u2066"
    assert committed(served, group, exchange(None, 7, group, metadata=group)) == 200
    for path in (f"/v1/offsets?group={quote(group)}", "/v1/groups?limit=1000"):
        with urlopen(f"{served.http}{path}") as answer:  # noqa: S310 - the test's own server
            raw = answer.read().decode()
        assert re.findall("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", raw) == []
        body = json.loads(raw)
        assert group in [body.get("group"), *(row["group"] for row in body.get("groups", ()))]
    assert ask(served.http, "DELETE", "/v1/groups", group=group).status == 204


def test_integers_are_accepted_in_any_json_notation(served: Serving) -> None:
    body = b'{"group": "written", "offsets": [{"topic": "t", "partition": 1.0, "expected": null, "offset": 5e2}]}'
    assert ask(served.http, "POST", "/v1/commit", body).status == 200
    assert served_offsets(served, "written") == {("t", 1): 500}


def test_commit_is_written_only_if_all_offsets_are_the_expected_ones(served: Serving) -> None:
    assert committed(served, "c", exchange(None, 1), exchange(None, 2, "u", 5)) == 200
    refused = ask(
        served.http,
        "POST",
        "/v1/commit",
        {"group": "c", "offsets": [exchange(1, 10), exchange(3, 11, "u", 5), exchange(4, 12, "new", 1)]},
    )
    assert (refused.status, problem(refused)) == (409, "offsets-changed")
    assert refused.body["current_offsets"] == [
        {"topic": "u", "partition": 5, "committed_offset": 2},
        {"topic": "new", "partition": 1, "committed_offset": None},
    ]
    assert served_offsets(served, "c") == {("t", 0): 1, ("u", 5): 2} == offsets_in_the_log(served, "c")
    assert committed(served, "c", exchange(1, 10), exchange(2, 0, "u", 5)) == 200
    assert served_offsets(served, "c") == {("t", 0): 10, ("u", 5): 0} == offsets_in_the_log(served, "c")


def test_one_of_several_concurrent_commits_succeeds(served: Serving) -> None:
    """In each round all clients expect the same offset: one commit succeeds, the others get the offset of that one."""
    clients, rounds = 8, 6
    before: int | None = None
    for number in range(rounds):
        answers: dict[int, Any] = {}
        begin = threading.Barrier(clients)

        def race(offset: int, expected: int | None = before, begin: Any = begin, answers: Any = answers) -> None:
            begin.wait()
            answers[offset] = ask(
                served.http, "POST", "/v1/commit", {"group": "raced", "offsets": [exchange(expected, offset)]}
            )

        racers = [threading.Thread(target=race, args=(100 * number + client,)) for client in range(clients)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        (winner,) = [offset for offset, answer in answers.items() if answer.status == 200]
        differing = [
            answer.body["current_offsets"][0]["committed_offset"] for answer in answers.values() if answer.status == 409
        ]
        assert differing == [winner] * (clients - 1)
        before = winner
    records = [entry for entry in replay(read_log(log_folder(served))).history if entry.key == ("raced", "t", 0)]
    assert len(records) == rounds
    assert offsets_in_the_log(served, "raced") == {("t", 0): before} == served_offsets(served, "raced")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "name"),
    [
        ("POST", "/v1/commit", {"group": CONSUMER, "offsets": [exchange(1, 2)]}, 409, "group-in-use"),
        ("POST", "/v1/commit", {"group": SHARE, "offsets": [exchange(None, 2)]}, 404, "group-not-found"),
        ("POST", "/v1/commit", {"group": "g", "offsets": []}, 422, "invalid-request"),
        ("POST", "/v1/commit", {"group": "g", "offsets": [exchange(None, 2)] * 2}, 422, "invalid-request"),
        ("POST", "/v1/commit", {"group": "g", "offsets": [exchange(None, -1)]}, 422, "invalid-request"),
        ("POST", "/v1/commit", {"group": "g", "offsets": [exchange(None, 2**63 - 1)]}, 422, "invalid-request"),
        ("POST", "/v1/commit", {"group": "g", "offsets": [exchange(None, 1, "")]}, 422, "invalid-request"),
        ("POST", "/v1/commit", {"group": "g", "offsets": [exchange(None, 1, partition=2**31)]}, 422, "invalid-request"),
        (
            "POST",
            "/v1/commit",
            {"group": "g", "offsets": [exchange(None, 1, metadata="ü" * 4097)]},
            422,
            "invalid-request",
        ),
        ("POST", "/v1/commit", {"group": "é" * 16384, "offsets": [exchange(None, 1)]}, 422, "invalid-request"),
        ("POST", "/v1/commit", {"group": "\ud800", "offsets": [exchange(None, 1)]}, 422, "invalid-request"),
        ("POST", "/v1/commit", {"group": "g", "offsets": [exchange(None, 1, exptected=1)]}, 422, "invalid-request"),
        ("POST", "/v1/commit", {"group": 5, "offsets": [exchange(None, 1)]}, 422, "invalid-request"),
        ("POST", "/v1/commit", [], 422, "invalid-request"),
        ("POST", "/v1/commit", b"", 422, "invalid-request"),
        ("POST", "/v1/commit", b"{", 400, "invalid-json"),
        ("POST", "/v1/commit", b"\xff\xfe{}", 400, "invalid-json"),
        ("POST", "/v1/commit", b"[" * 100_000, 400, "invalid-json"),
        ("POST", "/v1/commit", b" " * (1 << 20) + b"{}", 413, "too-large"),
        ("POST", "/v1/commit", b'{"group":"g","offsets":' + b"[" * 3000 + b"]" * 3000 + b"}", 400, "invalid-json"),
        ("POST", "/v1/commit", b'{"group":"g","offsets":[' + b"9" * 5000 + b"]}", 400, "invalid-json"),
        ("POST", "/v1/commit", b'{"group":"g","offsets":[1e999,NaN,-Infinity]}', 422, "invalid-request"),
        ("POST", "/v1/commit", {"group": "g", "offsets": [{}] * 200_000}, 422, "invalid-request"),
        ("POST", "/v1/commit", {f"field-{number}": 1 for number in range(30_000)}, 422, "invalid-request"),
        ("DELETE", f"/v1/offsets?group={CONSUMER}&topic=orders&partition=0", None, 409, "group-in-use"),
        ("DELETE", "/v1/offsets?group=nobody&topic=orders&partition=0", None, 404, "group-not-found"),
        ("DELETE", f"/v1/offsets?group={EMPTY}&topic=orders&partition=-1", None, 422, "invalid-request"),
        ("DELETE", f"/v1/offsets?group={EMPTY}&topic=orders", None, 422, "invalid-request"),
        ("DELETE", f"/v1/groups?group={CONSUMER}", None, 409, "group-in-use"),
        ("DELETE", "/v1/groups", None, 422, "invalid-request"),
        ("GET", f"/v1/offsets?group={EMPTY}&asof=1", None, 422, "invalid-request"),
        ("GET", f"/v1/offsets?group={EMPTY}&as_of=yesterday", None, 422, "invalid-request"),
        ("GET", f"/v1/offsets?group={EMPTY}&as_of=99999999999999999", None, 422, "invalid-request"),
        ("GET", f"/v1/offsets?group={EMPTY}&as_of={'9' * 5000}", None, 422, "invalid-request"),
        ("GET", "/v1/offsets?group=%ff%fe", None, 404, "group-not-found"),
        ("GET", "/v1/groups?limit=0", None, 422, "invalid-request"),
        ("GET", "/v2/groups", None, 404, "not-found"),
        ("GET", "/livez/", None, 404, "not-found"),
        ("PUT", "/v1/commit", {}, 405, "method-not-allowed"),
    ],
)
def test_invalid_request_is_refused_with_a_problem(
    served: Serving, method: str, path: str, body: Any, status: int, name: str
) -> None:
    answer = ask(served.http, method, path, body)
    assert (answer.status, problem(answer)) == (status, name)
    assert ask(served.http, "GET", "/readyz").status == 200


def test_commit_to_a_partition_with_a_pending_offset_is_refused(served: Serving) -> None:
    pending = {key[:3] for key in replay(read_log(log_folder(served))).pending if key[0] == OPEN}
    ((_, topic, partition),) = pending
    answer = ask(served.http, "POST", "/v1/commit", {"group": OPEN, "offsets": [exchange(None, 1, topic, partition)]})
    assert problem(answer) == "transaction-open"


def test_offsets_at_a_timestamp_come_from_the_lake(served: Serving) -> None:
    answer = ask(served.http, "GET", "/v1/offsets", group="past", as_of="1970-01-01T00:00:00.020")
    assert answer.body == {
        "group": "past",
        "as_of": "1970-01-01T00:00:00.020Z",
        "history_ends": "1970-01-01T00:00:00.041Z",
        "offsets": [
            {
                "topic": "t",
                "partition": 0,
                "committed_offset": 2,
                "leader_epoch": 3,
                "metadata": "m",
                "topic_id": None,
            }
        ],
    }
    assert served_offsets(served, "past", as_of="1769868300000", topic="u") == {("u", 0): 5}
    assert problem(ask(served.http, "GET", "/v1/offsets", group="past", as_of=WITHOUT_OFFSETS)) == "group-not-found"
    before = ask(served.http, "GET", "/v1/offsets", group="past", as_of=9)
    assert (before.status, problem(before)) == (404, "before-history")
    assert "begins at 1970-01-01T00:00:00.010Z" in before.body["detail"]


def test_snapshot_endpoint_returns_the_ends_of_snapshot_and_log(served: Serving) -> None:
    assert committed(served, "snapshots", exchange(None, 1)) == 200
    snapshot = ask(served.http, "GET", "/v1/snapshot").body
    ends: dict[int, int] = {}
    for record in read_log(log_folder(served)):
        ends[record.log_partition] = record.log_offset + 1
    assert {row["log_partition"]: row["log_end"] for row in snapshot["position"] if row["log_end"]} == ends
    loaded: dict[int, int] = {}
    for record in read_log(BROKER_LOG):
        loaded[record.log_partition] = record.log_offset + 1
    assert {row["log_partition"]: row["snapshot_end"] for row in snapshot["position"] if row["snapshot_end"]} == loaded
