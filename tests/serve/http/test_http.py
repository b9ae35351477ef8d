"""HTTP of a running server, over the log of a real broker: what it answers, and that the log says the same."""

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

LOST = 30  # ms: when group `past` of the history lost its offset, until 40
ODD = ["a/b", "..", "", "grüße 世界", "x y+z", "%2F", "\0", "q?a=b&c#d", "g" * 32767]


@pytest.fixture
def served(over_http: Serving) -> Serving:
    return over_http


def committed(served: Serving, group: str, *exchanges: dict[str, Any]) -> int:
    return ask(served.http, "POST", "/v1/commit", {"group": group, "offsets": exchanges}).status


def standing(served: Serving, group: str, **query: str) -> dict[tuple[str, int], int]:
    answer = ask(served.http, "GET", "/v1/offsets", group=group, **query)
    assert answer.status == 200, answer
    return {(of["topic"], of["partition"]): of["committed_offset"] for of in answer.body["offsets"]}


def log_folder(served: Serving) -> Path:
    return Path(served._settings["log"])


def in_the_log(served: Serving, group: str) -> dict[tuple[str, int], int]:
    """What the log says of a group, by the oracle's own reading and rules."""
    found = replay(read_log(log_folder(served))).committed
    return {(topic, number): of.committed_offset for (name, topic, number), of in found.items() if name == group}


def test_it_is_well(served: Serving) -> None:
    assert ask(served.http, "GET", "/livez").body == {"status": "live"}
    assert ask(served.http, "GET", "/readyz").body == {"status": "ready"}


def test_offsets_are_those_of_the_log(served: Serving) -> None:
    assert standing(served, EMPTY) == in_the_log(served, EMPTY) != {}
    assert standing(served, EMPTY, topic="orders").keys() == {
        of for of in in_the_log(served, EMPTY) if of[0] == "orders"
    }
    assert standing(served, EMPTY, topic="elsewhere") == {}
    assert problem(ask(served.http, "GET", "/v1/offsets", group="nobody")) == "group-not-found"


def test_all_groups_are_on_pages_once(served: Serving) -> None:
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
    by_kafka = {of["group_id"]: (of["group_type"], of["group_state"]) for of in groups}
    assert {of["group"]: (of["type"], of["state"]) for of in listed} == by_kafka
    assert len(listed) == len(by_kafka)
    consumers = ask(served.http, "GET", "/v1/groups", type="CONSUMER", state="stable", limit=1000).body
    assert {of["group"] for of in consumers["groups"]} == {
        name for name, kind in by_kafka.items() if kind == ("consumer", "Stable")
    }


@pytest.mark.parametrize("group", ODD)
def test_names_are_what_they_are(served: Serving, group: str) -> None:
    assert committed(served, group, exchange(None, 7, "t/ü", 3, metadata="ä", leader_epoch=2)) == 200
    answer = ask(served.http, "GET", "/v1/offsets", group=group).body
    assert answer["group"] == group
    assert answer["offsets"] == [
        {"topic": "t/ü", "partition": 3, "committed_offset": 7, "leader_epoch": 2, "metadata": "ä", "topic_id": None}
    ]
    assert ask(served.http, "DELETE", "/v1/offsets", group=group, topic="t/ü", partition=3).status == 204
    assert standing(served, group) == {}
    assert ask(served.http, "DELETE", "/v1/groups", group=group).status == 204
    assert problem(ask(served.http, "DELETE", "/v1/groups", group=group)) == "group-not-found"
    assert in_the_log(served, group) == {}


def test_json_holds_no_controls(served: Serving) -> None:
    group = "\x1b[31m\x9b1m\u202e\u2066"
    assert committed(served, group, exchange(None, 7, group, metadata=group)) == 200
    for path in (f"/v1/offsets?group={quote(group)}", "/v1/groups?limit=1000"):
        with urlopen(f"{served.http}{path}") as answer:  # noqa: S310 - our own server
            raw = answer.read().decode()
        assert re.findall("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", raw) == []
        found = json.loads(raw)
        assert group in [found.get("group"), *(of["group"] for of in found.get("groups", ()))]
    assert ask(served.http, "DELETE", "/v1/groups", group=group).status == 204


def test_a_number_is_that_number_however_it_is_written(served: Serving) -> None:
    body = b'{"group": "written", "offsets": [{"topic": "t", "partition": 1.0, "expected": null, "offset": 5e2}]}'
    assert ask(served.http, "POST", "/v1/commit", body).status == 200
    assert standing(served, "written") == {("t", 1): 500}


def test_a_commit_holds_if_all_is_as_expected_or_none_of_it(served: Serving) -> None:
    assert committed(served, "c", exchange(None, 1), exchange(None, 2, "u", 5)) == 200
    refused = ask(
        served.http,
        "POST",
        "/v1/commit",
        {"group": "c", "offsets": [exchange(1, 10), exchange(3, 11, "u", 5), exchange(4, 12, "new", 1)]},
    )
    assert (refused.status, problem(refused)) == (409, "changed-since")
    assert refused.body["standing"] == [
        {"topic": "u", "partition": 5, "committed_offset": 2},
        {"topic": "new", "partition": 1, "committed_offset": None},
    ]
    assert standing(served, "c") == {("t", 0): 1, ("u", 5): 2} == in_the_log(served, "c")
    assert committed(served, "c", exchange(1, 10), exchange(2, 0, "u", 5)) == 200
    assert standing(served, "c") == {("t", 0): 10, ("u", 5): 0} == in_the_log(served, "c")


def test_of_many_who_commit_at_once_one_wins(served: Serving) -> None:
    """Each round all expect the same and want something of their own: one gets it, the others are told what it is."""
    clients, rounds = 8, 6
    before: int | None = None
    for number in range(rounds):
        answers: dict[int, Any] = {}
        begin = threading.Barrier(clients)

        def race(wanted: int, expected: int | None = before, begin: Any = begin, answers: Any = answers) -> None:
            begin.wait()
            answers[wanted] = ask(
                served.http, "POST", "/v1/commit", {"group": "raced", "offsets": [exchange(expected, wanted)]}
            )

        racers = [threading.Thread(target=race, args=(100 * number + client,)) for client in range(clients)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        (winner,) = [wanted for wanted, answer in answers.items() if answer.status == 200]
        told = [answer.body["standing"][0]["committed_offset"] for answer in answers.values() if answer.status == 409]
        assert told == [winner] * (clients - 1)
        before = winner
    records = [of for of in replay(read_log(log_folder(served))).history if of.key == ("raced", "t", 0)]
    assert len(records) == rounds
    assert in_the_log(served, "raced") == {("t", 0): before} == standing(served, "raced")


@pytest.mark.parametrize(
    ("method", "path", "asked", "status", "name"),
    [
        ("POST", "/v1/commit", {"group": CONSUMER, "offsets": [exchange(1, 2)]}, 409, "group-in-use"),
        ("POST", "/v1/commit", {"group": SHARE, "offsets": [exchange(None, 2)]}, 404, "group-not-found"),
        ("POST", "/v1/commit", {"group": "g", "offsets": []}, 422, "makes-no-sense"),
        ("POST", "/v1/commit", {"group": "g", "offsets": [exchange(None, 2)] * 2}, 422, "makes-no-sense"),
        ("POST", "/v1/commit", {"group": "g", "offsets": [exchange(None, -1)]}, 422, "makes-no-sense"),
        ("POST", "/v1/commit", {"group": "g", "offsets": [exchange(None, 2**63 - 1)]}, 422, "makes-no-sense"),
        ("POST", "/v1/commit", {"group": "g", "offsets": [exchange(None, 1, "")]}, 422, "makes-no-sense"),
        ("POST", "/v1/commit", {"group": "g", "offsets": [exchange(None, 1, partition=2**31)]}, 422, "makes-no-sense"),
        (
            "POST",
            "/v1/commit",
            {"group": "g", "offsets": [exchange(None, 1, metadata="ü" * 4097)]},
            422,
            "makes-no-sense",
        ),
        ("POST", "/v1/commit", {"group": "é" * 16384, "offsets": [exchange(None, 1)]}, 422, "makes-no-sense"),
        ("POST", "/v1/commit", {"group": "\ud800", "offsets": [exchange(None, 1)]}, 422, "makes-no-sense"),
        ("POST", "/v1/commit", {"group": "g", "offsets": [exchange(None, 1, exptected=1)]}, 422, "makes-no-sense"),
        ("POST", "/v1/commit", {"group": 5, "offsets": [exchange(None, 1)]}, 422, "makes-no-sense"),
        ("POST", "/v1/commit", [], 422, "makes-no-sense"),
        ("POST", "/v1/commit", b"", 422, "makes-no-sense"),
        ("POST", "/v1/commit", b"{", 400, "no-json"),
        ("POST", "/v1/commit", b"\xff\xfe{}", 400, "no-json"),
        ("POST", "/v1/commit", b"[" * 100_000, 400, "no-json"),
        ("POST", "/v1/commit", b" " * (1 << 20) + b"{}", 413, "too-large"),
        ("POST", "/v1/commit", b'{"group":"g","offsets":' + b"[" * 3000 + b"]" * 3000 + b"}", 400, "no-json"),
        ("POST", "/v1/commit", b'{"group":"g","offsets":[' + b"9" * 5000 + b"]}", 400, "no-json"),
        ("POST", "/v1/commit", b'{"group":"g","offsets":[1e999,NaN,-Infinity]}', 422, "makes-no-sense"),
        ("POST", "/v1/commit", {"group": "g", "offsets": [{}] * 200_000}, 422, "makes-no-sense"),
        ("POST", "/v1/commit", {f"field-{number}": 1 for number in range(30_000)}, 422, "makes-no-sense"),
        ("DELETE", f"/v1/offsets?group={CONSUMER}&topic=orders&partition=0", None, 409, "group-in-use"),
        ("DELETE", "/v1/offsets?group=nobody&topic=orders&partition=0", None, 404, "group-not-found"),
        ("DELETE", f"/v1/offsets?group={EMPTY}&topic=orders&partition=-1", None, 422, "makes-no-sense"),
        ("DELETE", f"/v1/offsets?group={EMPTY}&topic=orders", None, 422, "makes-no-sense"),
        ("DELETE", f"/v1/groups?group={CONSUMER}", None, 409, "group-in-use"),
        ("DELETE", f"/v1/groups?group={SHARE}", None, 409, "share-group"),
        ("DELETE", "/v1/groups", None, 422, "makes-no-sense"),
        ("GET", f"/v1/offsets?group={EMPTY}&asof=1", None, 422, "makes-no-sense"),
        ("GET", f"/v1/offsets?group={EMPTY}&as_of=yesterday", None, 422, "makes-no-sense"),
        ("GET", f"/v1/offsets?group={EMPTY}&as_of=99999999999999999", None, 422, "makes-no-sense"),
        ("GET", f"/v1/offsets?group={EMPTY}&as_of={'9' * 5000}", None, 422, "makes-no-sense"),
        ("GET", "/v1/offsets?group=%ff%fe", None, 404, "group-not-found"),
        ("GET", "/v1/groups?limit=0", None, 422, "makes-no-sense"),
        ("GET", "/v2/groups", None, 404, "not-found"),
        ("GET", "/livez/", None, 404, "not-found"),
        ("PUT", "/v1/commit", {}, 405, "method-not-allowed"),
    ],
)
def test_what_makes_no_sense_or_may_not_be_is_refused(
    served: Serving, method: str, path: str, asked: Any, status: int, name: str
) -> None:
    answer = ask(served.http, method, path, asked)
    assert (answer.status, problem(answer)) == (status, name)
    assert ask(served.http, "GET", "/readyz").status == 200


def test_an_open_transaction_keeps_its_offsets(served: Serving) -> None:
    pending = {key[:3] for key in replay(read_log(log_folder(served))).pending if key[0] == OPEN}
    ((_, topic, partition),) = pending
    answer = ask(served.http, "POST", "/v1/commit", {"group": OPEN, "offsets": [exchange(None, 1, topic, partition)]})
    assert problem(answer) == "transaction-open"


def test_offsets_as_of_a_time_are_those_of_the_lake(served: Serving) -> None:
    was = ask(served.http, "GET", "/v1/offsets", group="past", as_of="1970-01-01T00:00:00.020")
    assert was.body == {
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
    assert standing(served, "past", as_of="1769868300000", topic="u") == {("u", 0): 5}
    assert problem(ask(served.http, "GET", "/v1/offsets", group="past", as_of=LOST)) == "group-not-found"
    before = ask(served.http, "GET", "/v1/offsets", group="past", as_of=9)
    assert (before.status, problem(before)) == (404, "before-history")
    assert "begins at 1970-01-01T00:00:00.010Z" in before.body["detail"]


def test_the_snapshot_tells_where_it_stands(served: Serving) -> None:
    assert committed(served, "snapshots", exchange(None, 1)) == 200
    found = ask(served.http, "GET", "/v1/snapshot").body
    ends: dict[int, int] = {}
    for record in read_log(log_folder(served)):
        ends[record.log_partition] = record.log_offset + 1
    assert {of["log_partition"]: of["log_end"] for of in found["position"] if of["log_end"]} == ends
    loaded: dict[int, int] = {}
    for record in read_log(BROKER_LOG):
        loaded[record.log_partition] = record.log_offset + 1
    assert {of["log_partition"]: of["snapshot_end"] for of in found["position"] if of["snapshot_end"]} == loaded
