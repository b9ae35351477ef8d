"""Questions to many lakes: the file that lists them, the joined answer, and what a lake that fails changes."""

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from offsetlake.cli.commands.each_lake import divided
from offsetlake.cli.fleet.lakes import read_lakes, selected
from offsetlake.cli.fleet.processes import Failure, for_each
from offsetlake.errors import BadRequest, NotInLake, Refused
from support.command_line import Run
from support.lakes import new_lake
from support.queries.lakes import small_lake

COMMAND = [sys.executable, "-m", "offsetlake.cli"]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a file of two lakes, and one of these and three that fail."""
    folder = tmp_path_factory.mktemp("fleet")
    for name, groups in {"east": ["billing", "mails"], "west": ["billing", "\x1b[31mred"], "foreign": ["x"]}.items():
        small_lake(folder / name, groups=[{"group_id": group} for group in groups])
    rows = DeltaTable(folder / "foreign" / "groups").to_pyarrow_table()
    write_deltalake(folder / "foreign" / "groups", rows, mode="append")
    shutil.copytree(folder / "east", folder / "corrupt")
    for file in (folder / "corrupt" / "groups" / "_delta_log").iterdir():
        file.write_text("{")
    write_lakes(folder / "two.toml", {"east": "east", "west": "west"})
    five = {name: name for name in ("missing", "east", "corrupt", "foreign", "west")}
    write_lakes(folder / "five.toml", five)
    return folder


def write_lakes(file: Path, places: dict[str, str]) -> Path:
    file.write_text("".join(f'[lakes.{json.dumps(name)}]\nlake = "{place}"\n' for name, place in places.items()))
    return file


def ask(folder: Path, *words: str, **environment: str) -> tuple[int, str, str]:
    """Run a command in a process of its own: fleets fork, which delta-rs does not support after its first use."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OFFSETLAKE_")}
    done = subprocess.run(
        [*COMMAND, *words], cwd=folder, env=clean | environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_lakes_that_fail_are_named_and_the_others_are_answered_for(fleet: Path) -> None:
    code, out, err = ask(fleet, "groups", "--fleet", "five.toml", "--format", "json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(row["cluster"], row["group_id"]) for row in rows] == [
        ("east", "billing"), ("east", "mails"), ("west", "\x1b[31mred"), ("west", "billing"),
    ]  # fmt: skip
    assert next(iter(rows[0])) == "cluster"
    one = json.loads(ask(fleet, "groups", "--lake", "east", "--format", "json")[1].splitlines()[0])
    assert [*rows[0]] == ["cluster", *one]
    errors = [line.split(": ")[1] for line in err.splitlines() if line.startswith("error: ")]
    assert errors == ["missing", "corrupt", "foreign", "3 of 5 lakes failed"]
    assert err.splitlines()[-1] == "error: 3 of 5 lakes failed: missing, corrupt, foreign."
    assert code == 1, "the exit codes 6 and 10 differ"


@pytest.mark.long
def test_one_lake_that_fails_determines_the_exit_code(fleet: Path) -> None:
    code, out, err = ask(fleet, "--fleet", "five.toml", "--cluster", "[ef]*", "groups", "--format", "csv")
    assert code == 10
    assert [row[:2] for row in csv.reader(io.StringIO(out))] == [
        ["cluster", "group_id"], ["east", "billing"], ["east", "mails"],
    ]  # fmt: skip
    [line] = err.splitlines()
    assert line.startswith("error: foreign: ")


@pytest.mark.long
def test_the_environment_selects_a_fleet_and_lake_overrides_it(fleet: Path) -> None:
    environment = {"OFFSETLAKE_FLEET": "two.toml", "OFFSETLAKE_CLUSTER": "we*", "OFFSETLAKE_LAKE": "missing"}
    code, out, _ = ask(fleet, "groups", **environment)
    assert (code, [line.split()[:2] for line in out.splitlines()]) == (
        0, [["cluster", "group_id"], ["west", "\\x1b[31mred"], ["west", "billing"]],
    )  # fmt: skip
    assert "cluster" not in ask(fleet, "groups", "--lake", "east", **environment)[1]


@pytest.mark.long
def test_a_group_of_some_lakes_is_no_error_and_one_of_none_is(fleet: Path) -> None:
    code, out, err = ask(fleet, "groups", "--fleet", "two.toml", "--group", "mails", "--format", "json")
    assert (code, [json.loads(line)["cluster"] for line in out.splitlines()], err) == (0, ["east"], "")
    code, out, err = ask(fleet, "history", "--fleet", "two.toml", "--group=n", "--topic=t", "--partition=0")
    assert (code, out) == (2, "")
    assert re.fullmatch(r"error: east: no offset of group n, .*; no other selected lake has it either\n", err)


@pytest.mark.long
def test_a_column_cluster_of_a_query_and_an_invalid_option_are_refused_once(fleet: Path) -> None:
    code, out, err = ask(fleet, "sql", "SELECT 1 AS cluster", "--fleet", "two.toml")
    assert (code, out) == (2, "")
    assert err == "error: The answer already has a column cluster: choose another name for it.\n"
    code, _, err = ask(fleet, "sql", "SELECT 1 AS n, [1] AS list", "--fleet", "two.toml", "--limit", "1")
    assert (code, err) == (0, "… and 1 more row: use --limit 0 to write all.\n")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "lists no lake"),
        ("lakes = 1", "lists no lake"),
        ('[lake.x]\nlake = "x"', "unknown lake"),
        ("[lakes.x]\nlake = 1", "lake 'x': expected a table"),
        ('[lakes.x]\nplace = "x"', "lake 'x': expected a table"),
        ('[lakes.x]\nlake = "x"\nformat = "csv"', "lake 'x': unknown format"),
        ('[lakes.x]\nlake = "x"\n[lakes.x]\nlake = "y"', "not valid TOML"),
        ('[lakes.x]\nlake = "x"\n[lakes.X]\nlake = "y"', "'x' and 'X' have names that differ only in case"),
        ('[lakes.x]\nlake = "x"\n[lakes.y]\nlake = "./y/../x/"', "'x' and 'y' have the same place"),
        ('[lakes.x]\nlake = "ftp://x/y"', "a lake is a folder"),
        *((f'[lakes.{json.dumps(name)}]\nlake = "x"', "invalid name") for name in (
            "", "../x", "a/b", "a b", ".x", "-x", "x" * 101, "é", "a\n", "\x1b[31m", "a,b", "*",
        )),
    ],
)  # fmt: skip
def test_an_invalid_file_of_lakes_is_refused(run: Run, tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "lakes.toml").write_text(text, encoding="utf-8")
    code, out, err = run("groups", "--fleet", "lakes.toml")
    assert (code, out) == (2, "")
    assert problem in err
    assert err.isprintable() or err[:-1].isprintable(), "a name cannot control the terminal"


def test_what_works_on_one_lake_requires_a_selection(run: Run, tmp_path: Path) -> None:
    write_lakes(tmp_path / "lakes.toml", {"a": "x", "b": "y"})
    one = "error: The command works on one lake: select it with --cluster NAME, one of a, b.\n"
    for words in (["compact"], ["reset", "g", "--all-topics", "--shift-by=1"], ["snapshot", "x.csv"], ["serve"]):
        assert run("--fleet", "lakes.toml", *words) == (2, "", one)
    assert run("--fleet", "lakes.toml", "--cluster", "b", "snapshot", "x.csv")[2].startswith("error: no lake in y: ")
    assert run("--fleet", "lakes.toml", "--cluster", "c", "groups")[2] == (
        "error: No cluster matches 'c': the clusters are a, b.\n"
    )
    assert run("--fleet", "lakes.toml", "groups", "--lake", "x")[0] == 2
    assert run("groups", "--cluster", "a")[2] == "error: --cluster a requires --fleet FILE.\n"
    assert run("--fleet", "lakes.toml", "example", "log")[2] == (
        "error: offsetlake example uses no lake: leave --fleet out.\n"
    )
    assert run("groups", "--fleet", "lakes.toml", "--cluster", "[")[0] == 2


def test_errors_of_settings_name_the_lake(run: Run, tmp_path: Path) -> None:
    for settings, problem in {
        'kafka."no.such" = "x"': "lakes.toml, lake 'a', table kafka: unknown no.such",
        'retention.default = "soon"': "lakes.toml, lake 'a', retention: default: ",
        '[[lakes.a.retention.override]]\ngroup = "["\nretention = "1d"': "lake 'a', override 1 of retention: group: ",
    }.items():
        (tmp_path / "lakes.toml").write_text(f'[lakes.a]\nlake = "x"\n{settings}')
        code, _, err = run("--fleet", "lakes.toml", "compact")
        assert code == 2
        assert problem in err


def test_lakes_are_selected_by_a_pattern_in_the_order_of_the_file(tmp_path: Path) -> None:
    lakes = read_lakes(str(write_lakes(tmp_path / "x", {"prod-b": "1", "dev": "2", "prod-a": "3"})))
    assert [*selected(lakes, "prod-*")] == ["prod-b", "prod-a"]
    assert [*selected(lakes, None)] == ["prod-b", "dev", "prod-a"]
    with pytest.raises(BadRequest, match=r"the clusters are prod-b, dev, prod-a\."):
        selected(lakes, "Dev")


@pytest.mark.parametrize(
    ("counts", "limit", "shares"),
    [
        ([5, 5], None, [5, 5]),
        ([5, 5], 4, [2, 2]),
        ([1, 9], 6, [1, 5]),
        ([9, 0, 9], 7, [3, 0, 4]),
        ([2, 2, 2], 1, [0, 0, 1]),
        ([], 5, []),
        ([1, 2], 50, [1, 2]),
    ],
)
def test_a_limit_is_divided_evenly(counts: list[int], limit: int | None, shares: list[int]) -> None:
    assert divided(counts, limit) == shares


Work = Callable[[str, Path], None]


def outcomes_of(work: Work, folder: Path, *names: str) -> dict[str, Any]:
    finished: list[int] = []
    outcomes = for_each(names, work, folder, lambda done, total: finished.append(done))
    assert finished == [*range(1, len(names) + 1)]
    return {outcome.name: (outcome.failure, outcome.notes) for outcome in outcomes}


def test_a_process_that_is_killed_or_ends_itself_fails_alone(tmp_path: Path) -> None:
    def work(name: str, folder: Path) -> None:
        print(f"working on {name}")  # noqa: T201
        match name:
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "memory":
                os.write(2, b"error: the query needs more than 1 GB\n")
                os._exit(11)
            case "silent":
                os._exit(0)
            case "refused":
                raise Refused("no")
            case "unknown":
                raise NotInLake("none")
            case "defect":
                raise ValueError("odd")
        (folder / "answer").touch()

    names = ("a", "killed", "memory", "b", "silent", "refused", "unknown", "defect", "c")
    found = outcomes_of(work, tmp_path, *names)
    failures = {name: failure for name, (failure, _) in found.items()}
    assert failures == {
        "a": None,
        "killed": Failure("its process was ended by the signal SIGKILL, for example because memory is short", 1),
        "memory": Failure("the query needs more than 1 GB", 11),
        "b": None,
        "silent": Failure("its process ended with 0", 70),
        "refused": Failure("no", 8),
        "unknown": Failure("none", 2, is_unknown=True),
        "defect": Failure("a defect of the program: ValueError: odd", 70),
        "c": None,
    }
    assert {name: notes[0] for name, (_, notes) in found.items() if name != "defect"} == {
        name: f"working on {name}" for name in names if name != "defect"
    }
    assert found["defect"][1][-1] == "ValueError: odd"
    assert len([*tmp_path.glob("*/answer")]) == 3


def test_lakes_are_answered_for_at_the_same_time_but_not_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2})
    pipes = {name: tmp_path / f"pipe-{name}" for name in "abc"}
    for pipe in pipes.values():
        os.mkfifo(pipe)

    def work(name: str, _folder: Path) -> None:
        started = sorted(path.name for path in tmp_path.glob("[0-9]"))
        if name in "ab":  # waits for c, which can only run at the same time
            pipes[name].read_text()
        elif name == "c":
            for other in "ab":
                pipes[other].write_text("go on")
        else:
            assert len(started) == 4, "begins when one has ended"

    found = outcomes_of(work, tmp_path, *"abcd")
    assert {failure for failure, _ in found.values()} == {None}


def test_an_interruption_ends_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    pid, never = tmp_path / "pid", tmp_path / "never"
    os.mkfifo(pid)
    os.mkfifo(never)
    pids: list[int] = []

    def work(name: str, folder: Path) -> None:
        if name == "waiting":
            pid.write_text(str(os.getpid()))
            never.read_text()
        (folder / "pid").write_text(pid.read_text())

    def interrupt(_done: int, _total: int) -> None:
        pids.append(int((tmp_path / "1" / "pid").read_text()))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        for_each(["waiting", "b"], work, tmp_path, interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_an_interruption_during_a_fork_is_not_lost(tmp_path: Path) -> None:
    armed = [True]
    os.register_at_fork(after_in_parent=lambda: armed and armed.pop() and signal.raise_signal(signal.SIGINT))
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # that of a command also disables logging
    try:
        with pytest.raises(KeyboardInterrupt):
            for_each(["a"], lambda _name, _folder: None, tmp_path, lambda _done, _total: None)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert not armed


@pytest.mark.long
def test_a_fleet_has_lakes_in_folders_and_in_an_object_store(fleet: Path, bucket: str) -> None:
    new_lake(f"s3://{bucket}/lake")
    write_lakes(fleet / "both.toml", {"bucket": f"s3://{bucket}/lake", "none": f"s3://{bucket}/none", "east": "east"})
    code, out, err = ask(fleet, "sql", "SELECT count(*) AS n FROM groups", "--fleet", "both.toml", "--format", "json")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"cluster": "bucket", "n": 0}, {"cluster": "east", "n": 2},
    ]  # fmt: skip
    assert (code, err.splitlines()[-1].startswith("error: none: no lake in s3://")) == (6, True)
