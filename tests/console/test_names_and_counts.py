"""Lists of the console select the groups that commands select, and show how many there are of each state."""

import re
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from support.console.served import Page, get, served
from support.queries.lakes import commit, end, small_lake, tombstone

NAMES = ("svc[1]", "svc1", "svc2", "zz*b", "zzxb")
MISSING = "gone[1]"  # a group without offsets
SELECTED = {
    "svc[1]": ["svc[1]"], "svc[12]": ["svc1", "svc2"], "svc[[]1]": ["svc[1]"], "zz*b": ["zz*b"],
    "zz*": ["zz*b", "zzxb"], "gone[1]": [],
}  # fmt: skip
STATES = ("Stable", "Empty", "Empty", "Empty", "Empty", "Empty")
KEY = {"topic": "t", "partition": 0}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    every = (*NAMES, "gone1")
    commits = [commit(n, 5, group_id=name, log_timestamp=1_000) for n, name in enumerate(every)]
    deleted = [commit(20, 5, group_id=MISSING), tombstone(21, group_id=MISSING)]
    states = zip(every, STATES, strict=True)
    lake = small_lake(
        tmp_path_factory.mktemp("console") / "lake",
        offset_commits=[*commits, *deleted],
        offsets=[{**KEY, "group_id": name, "committed_offset": 5, "log_offset": n} for n, name in enumerate(every)],
        groups=[{"group_id": name, "state": state, "member_count": int(state == "Stable")} for name, state in states],
        share_partitions=[{"group_id": name, "partition": 0, "log_offset": n} for n, name in enumerate(every)],
        tombstones=[
            {
                **KEY, "run_id": 2, "group_id": name, "rule": "commit_age", "outcome": "planned", "judged_offset": n,
                "clock": "commit_timestamp", "clock_timestamp": 0, "retention_ms": 1,
            }
            for n, name in enumerate(every)
        ],
        log_ends=[end(1, 9)],
        runs=[
            {"run_id": 1, "job": "ingest", "started_at": 0, "finished_at": 1},
            {"run_id": 2, "job": "expire", "started_at": 2, "finished_at": 3},
        ],
    )  # fmt: skip
    with served(lake.location.path) as listening:
        yield listening


def page(port: int, path: str, **query: str) -> Page:
    answer = get(port, f"{path}?{urlencode(query)}")
    while "being computed" in answer.text:
        answer = get(port, f"{path}?{urlencode(query)}")
    assert answer.status == 200, answer.text
    return Page(answer.text)


@pytest.mark.parametrize("path", ["/", "/share", "/lag", "/committers", "/what-if", "/review"])
@pytest.mark.parametrize("text", SELECTED)
def test_lists_select_what_commands_select(port: int, path: str, text: str) -> None:
    shown = page(port, path, q=text)
    places = 1 if path == "/review" and any("Select" in cell for row in shown.rows for cell in row) else 0
    of_history = [MISSING] if (path, text) == ("/committers", MISSING) else []
    assert sorted({row[places] for row in shown.rows}) == SELECTED[text] + of_history


def test_states_have_the_number_of_groups(port: int) -> None:
    def counts(**query: str) -> dict[str, str]:
        text = get(port, f"/?{urlencode(query)}").text
        return dict(re.findall(r">([A-Za-z ]+)</a> <span class=\"count\">([0-9,]+)</span>", text))

    every = counts()
    assert (every["All states"], every["Stable"], every["Empty"], every["Dead"]) == ("6", "1", "5", "0")
    assert counts(state="Stable") == every
    assert counts(q="svc[12]")["Empty"] == "2"


def test_lists_of_the_review_have_their_number_of_rows(port: int) -> None:
    def counts() -> list[tuple[str, str]]:
        text = get(port, "/review?show=incomplete").text
        return re.findall(r">([A-Za-z ]+)</a> <span class=\"count\">([0-9,]+)</span>", text)

    expected = [("Planned tombstones", "6"), ("Rejected", "0"), ("Incomplete commits", "0"), ("Kept", "0")]
    while len(counts()) < len(expected):  # lists are omitted while they are still being read
        pass
    assert counts() == expected
