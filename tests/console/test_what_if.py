"""The what-if page: the effect of a policy, its text, the command with the same answer, and what a visitor sees."""

import json
import shlex
import threading
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from offsetlake.rules.policy import RetentionPolicy
from offsetlake.web.console import answer_cache, forked
from support.console.served import Page, get, served
from support.queries.lakes import small_lake

HOUR_MS = 3_600_000
GROUPS = {"billing": 5, "idle": 30, "<b>tags</b>": 2, "fresh": 0}
"""The days since the commits of each group."""
OVERRIDE = '[retention]\ndefault = "3d"\n\n[[retention.override]]\ngroup = "bill*"\nretention = "10d"\n'


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    now = time.time_ns() // 1_000_000
    path = tmp_path_factory.mktemp("what-if") / "lake"
    offsets = [
        {"group_id": name, "topic": "t", "partition": partition, "committed_offset": 1, "log_offset": partition}
        | {"commit_timestamp": now - days * 24 * HOUR_MS - 2 * HOUR_MS}
        for name, days in GROUPS.items()
        for partition in range(3)
    ]
    small_lake(path, groups=[{"group_id": name} for name in GROUPS], offsets=offsets)
    return path


@pytest.fixture(scope="module")
def port(lake: Path) -> Iterator[int]:
    with served(lake, source=[f"--lake={lake}"]) as listening:
        yield listening


def what_if(port: int, policy: str | None = None, status: int = 200, **parameters: str) -> Page:
    given = parameters | ({} if policy is None else {"policy": policy})
    answer = get(port, f"/what-if?{urlencode(given)}")
    assert answer.status == status, answer.text
    return Page(answer.text)


def counts(shown: Page) -> Mapping[str, tuple[str, str, str]]:
    """Return what is expired as configured, with the policy of the page, and of the group itself, by group."""
    return {row[0]: (row[3], row[4], row[6]) for row in shown.rows}


def test_the_configured_policy_and_another_one_are_compared(port: int) -> None:
    assert counts(what_if(port)) == {"idle": ("3", "3", "deleted")}
    shorter = what_if(port, '[retention]\ndefault = "3d"')
    assert counts(shorter) == {"billing": ("0", "3", "deleted"), "idle": ("3", "3", "deleted")}
    assert "6 offsets of 2 groups would expire now, 3 with the configured policy" in " ".join(shorter.text.split())
    assert counts(what_if(port, OVERRIDE)) == {"idle": ("3", "3", "deleted")}
    assert counts(what_if(port, '[retention]\ndefault = "1d"', q="*tags*")) == {"<b>tags</b>": ("0", "3", "deleted")}
    never = what_if(port, '[retention]\ndefault = "1d"', q="fresh")
    assert not never.rows
    assert "No offset of these groups is expired" in never.text


@pytest.mark.parametrize("policy", [None, '[retention]\ndefault = "36h"', OVERRIDE])
def test_the_command_has_the_same_answer(
    port: int, run: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = what_if(port, policy)
    saved = get(port, f"/what-if/policy.toml?{urlencode({'policy': policy or '[retention]'})}")
    if policy == OVERRIDE:
        assert tomllib.loads(saved.text)["retention"]["override"] == [
            {"group": "bill*", "topic": "*", "retention": "10d"}
        ]
        assert saved.headers["content-disposition"] == 'attachment; filename="policy.toml"'
        Path("policy.toml").write_text(saved.text, encoding="utf-8")
    _program, *arguments = shlex.split(shown.command)
    code, out, err = run(*arguments, "--format", "json")  # type: ignore[operator]
    assert code == 0, err
    column = "now_with_36h" if policy and "36h" in policy else "now"
    rows = {row["group_id"]: row[column] for line in out.splitlines() if (row := json.loads(line))[column]}
    assert rows == {name: int(then) for name, (_, then, _) in counts(shown).items()}


def test_the_configured_policy_may_be_shorter_than_an_hour(lake: Path, run: object, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text('[retention]\ndefault = "30m"\n', encoding="utf-8")
    source = [f"--lake={lake}", "--log=/log", f"--config={settings}"]
    with served(lake, policy=RetentionPolicy(HOUR_MS // 2), source=source) as listening:
        for policy in (None, '[retention]\ndefault = "90m"'):
            shown = what_if(listening, policy)
            _program, *arguments = shlex.split(shown.command)
            assert f"--config={settings}" in arguments
            code, out, err = run(*arguments, "--format", "json")  # type: ignore[operator]
            assert code == 0, err
            rows = [json.loads(line) for line in out.splitlines()]
            expected = {row["group_id"]: (row["now"], row["now_with_90m"] if policy else row["now"]) for row in rows}
            assert {name: (int(now), int(then)) for name, (now, then, _) in counts(shown).items()} == expected
            assert expected["fresh"] == (3, 3)
        assert 'default = "30m"' in what_if(listening).text
        assert "what-if needs a multiple of 30m" in what_if(listening, '[retention]\ndefault = "20m"', 400).text


def test_a_page_does_not_wait_for_a_long_count(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()

    run = forked.run_in_background

    def slowly(target: forked.Target, request: forked.Request, too_large: str, *, is_awaited: bool) -> Any:
        may_end.wait()
        return run(target, request, too_large, is_awaited=is_awaited)

    monkeypatch.setattr(forked, "run_in_background", slowly)
    monkeypatch.setattr(answer_cache, "MAX_WAIT_SECONDS", 0.1)
    with served(lake) as listening:
        try:
            first = get(listening, "/what-if")
            assert "The offsets of the lake are being counted." in first.text
            assert (first.status, first.headers["retry-after"]) == (200, "1")
        finally:
            may_end.set()
        while "retry-after" in (answer := get(listening, "/what-if")).headers:
            assert answer.status == 200
        assert "idle" in answer.text


def test_an_invalid_policy_is_explained_and_kept_on_the_page(port: int) -> None:
    for policy, message in (
        ('[retention]\ndefault = "<3 days>"', "policy, line 2: default: Invalid duration"),
        ('[retention]\ndefault = "90m"', "what-if needs a multiple of 1h"),
        ("[serve]", "expected the table [retention]"),
    ):
        shown = what_if(port, policy, 400)
        assert message in shown.text
        assert policy in shown.text
        assert "<3 days>" not in get(port, f"/what-if?{urlencode({'policy': policy})}").text
    assert get(port, "/what-if/policy.toml?policy=x").status == 400
