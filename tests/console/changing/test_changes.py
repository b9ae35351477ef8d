"""Changes of offsets in the console, on a log that offsetlake owns: the plan, its execution, and the undo."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.commands.serving.console import console_of
from offsetlake.errors import LogUnavailable
from offsetlake.lake.lake import Lake
from offsetlake.lake.location.locate import locate
from offsetlake.log.address import LogAddress
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.log.writer.example_log import write
from offsetlake.pipeline import runner
from offsetlake.queries import questions
from offsetlake.web.console.changing import workbench
from offsetlake.web.console.changing.workbench import Stage, Workbench, await_changes
from support.command_line import Run
from support.console.changes import commit, copied, example, form_token, result, submit
from support.console.served import Page, gate, get, post, running, served
from support.console.visitors import acl_file, tokens_of
from support.report.report_rows import TAGS

pytestmark = pytest.mark.slow

ENTRIES = (("*", "*", ["read"]), ("User:carol", "billing", ["admin"]))
RESTORE = {"kind": "restore", "group": "billing", "at": "2026-01-31T14:00:05"}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    example(folder)
    return folder


@pytest.fixture
def bench(original: Path, tmp_path: Path) -> Workbench:
    return copied(original, tmp_path)


@pytest.fixture
def port(bench: Workbench, tmp_path: Path) -> Iterator[int]:
    source = [f"--lake={tmp_path / 'lake'}"]
    with served(tmp_path / "lake", gate(allows_changes=True), bench=bench, source=source) as listening:
        yield listening


def offsets(folder: Path, group: str = "billing") -> dict[str, int]:
    rows = questions.offsets(Lake.open(folder / "lake"), group).to_pylist()
    return {f"{row['topic']}:{row['partition']}": row["committed_offset"] for row in rows}


NOW = {"orders-v1:0": 310, "orders:0": 1120, "orders:1": 900}


def test_a_plan_that_changes_nothing_and_a_failure_are_explained(port: int) -> None:
    token = form_token(port)
    _, empty = submit(port, "/change", token, {"kind": "undelete", "group": "billing"})
    assert "The plan is empty: the group has no offset that it could change." in Page(empty.text).text
    assert "0 of 0 rows" not in Page(empty.text).text
    _, failed = submit(port, "/change", token, RESTORE | {"group": "nobody"})
    assert re.search(
        r"No group like 'nobody' has ever committed, as far as the lake \S+ has read\.", Page(failed.text).text
    )


def test_commands_contain_absolute_paths(bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "settings.toml").touch()
    monkeypatch.chdir(tmp_path)
    context = CommandContext({"lake": "lake", "log": "log", "config": "settings.toml"})
    with running(console_of(context, gate(allows_changes=True))) as port:
        _, plan = submit(port, "/change", form_token(port), RESTORE)
        commands = [plan.text, *(get(port, path).text for path in ("/", "/what-if"))]
    changing, *asking = [shlex.split(Page(text).command) for text in commands]
    paths = [f"--{name}={tmp_path / file}" for name, file in (("lake", "lake"), ("log", "log"))]
    assert {*paths, f"--config={tmp_path / 'settings.toml'}"} <= {*changing}
    assert [paths[0] in words for words in asking] == [True, True]


def test_a_restore_shows_its_plan_is_executed_once_and_is_undone(port: int, tmp_path: Path, run: object) -> None:
    token = form_token(port)
    address, plan = submit(port, "/change", token, RESTORE)
    shown = Page(plan.text)
    assert "nothing is changed yet" in shown.text
    assert ["billing", "orders:0", "1,120", "1,040", "-80", "planned", ""] in shown.rows
    assert offsets(tmp_path) == NOW
    _, command, *arguments = shlex.split(shown.command)
    code, out, _ = run(command, "--format", "json", *arguments)  # type: ignore[operator]
    assert code == 0
    assert out.count("\n") == len(shown.rows)

    _, done = submit(port, f"{address}/execute", token, {})
    assert "The change was made" in done.text
    assert Page(done.text).command.endswith("--execute -- billing")
    assert offsets(tmp_path) == NOW | {"orders:0": 1040}
    runs_before = Lake.open(tmp_path / "lake").count("runs", "true")
    again, _ = submit(port, f"{address}/execute", token, {})
    assert again == address
    assert Lake.open(tmp_path / "lake").count("runs", "true") == runs_before
    recorded = Lake.open(tmp_path / "lake").query("SELECT job, notes FROM runs", "runs").to_pylist()
    requested = [run["job"] for run in recorded if any(note.startswith("requested by ") for note in run["notes"])]
    assert sorted(requested) == ["emit", "restore"]  # by the user of this process

    run_id = next(attributes["value"] for tag, attributes in Page(done.text).tags if attributes.get("name") == "run")
    address, _ = submit(port, "/change", token, {"kind": "undo", "run": run_id})
    submit(port, f"{address}/execute", token, {})
    assert offsets(tmp_path) == NOW


@pytest.mark.long
@pytest.mark.usefixtures("bench")
def test_a_change_is_completed_before_the_console_ends(tmp_path: Path) -> None:
    options = ["--lake", str(tmp_path / "lake"), "--log", str(tmp_path / "log"), "--http", "127.0.0.1:0"]
    command = [sys.executable, "-m", "offsetlake.cli", "console", "--allow-changes", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        port = int(process.stderr.readline().rpartition(":")[0].rpartition(":")[2].partition("/")[0])
        token = form_token(port)
        address = post(port, "/change", {"form_token": token, **RESTORE}).headers["location"]
        result(port, address)
        assert post(port, f"{address}/execute", {"form_token": token}).status == 303
        process.terminate()
        assert process.wait() == 0
    assert offsets(tmp_path) == NOW | {"orders:0": 1040}


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        (
            {"kind": "reset", "strategy": "shift_by", "value": "-100"},
            {"orders:0": 1020, "orders:1": 800, "orders-v1:0": 210},
        ),
        (
            {"kind": "reset", "strategy": "to_offset", "value": "7", "topic": "orders", "partitions": "0, 1"},
            {"orders:0": 7, "orders:1": 7},
        ),
        ({"kind": "cleanup", "topic": "orders-v1"}, {"orders-v1:0": None}),
    ],
)  # fmt: skip
def test_each_form_makes_the_change_of_its_command(
    port: int, tmp_path: Path, fields: dict[str, object], changed: dict[str, int | None]
) -> None:
    token = form_token(port)
    address, _ = submit(port, "/change", token, {"group": "billing", **fields})
    _, done = submit(port, f"{address}/execute", token, {})
    assert "The change was made" in done.text, done.text
    assert offsets(tmp_path) == {name: value for name, value in (NOW | changed).items() if value is not None}


def newest_step(port: int) -> Page:
    """Return the page of the newest commit of billing in orders:0, which moved the offset from 990 to 1120."""
    partition = Page(get(port, "/partition?group=billing&topic=orders&partition=0").text)
    return Page(get(port, next(target for target in partition.links.values() if target.startswith("/step?"))).text)


def entered(port: int, address: str) -> dict[str, object]:
    """Return what the fields of the form of a restore contain."""
    fields = {a["name"]: a.get("value") for _, a in Page(get(port, address).text).tags if a.get("name")}
    return {str(name): fields[name] for name in ("kind", "group", "topic", "partitions", "at", "before")}


@pytest.mark.parametrize("link", ["Return to these offsets", "Return this partition to its offset"])
def test_the_page_of_a_step_leads_to_the_offsets_before_it(port: int, tmp_path: Path, link: str) -> None:
    commit(tmp_path, "billing", "orders", 1, 950)
    step = newest_step(port)
    address, _ = submit(port, "/change", form_token(port), entered(port, step.links[link]))
    submit(port, f"{address}/execute", form_token(port), {})
    # Partition 1 had its first offset only after this step.
    assert offsets(tmp_path) == NOW | {"orders:0": 990, "orders:1": 950}


def accident(folder: Path, second: float = 3700) -> None:
    """Commit in three partitions, and then, without members, set back the offset of the first one."""
    commits = [(3600, 0, 1200), (3601, 1, 70), (3602, 1, 1005), (second, 2, 40), (second, 1, 1010), (second, 0, 5)]
    write(folder / "log", [(at, "billing", "orders", partition, offset) for at, partition, offset in commits])
    runner.catch_up(Lake.create(folder / "lake"), LogAddress(folder / "log"), lambda _: None)


def step_of(port: int, partition: int, offset: int) -> Page:
    """Return the page of the commit of an offset."""
    rows = Page(get(port, f"/partition?group=billing&topic=orders&partition={partition}").text)
    (record,) = [row[0] for row in rows.rows if row[2] == f"{offset:,}"]
    return Page(get(port, rows.links[record]).text)


@pytest.mark.parametrize("second", [3700, 3602])
def test_commits_of_other_partitions_before_an_accident_are_kept(port: int, tmp_path: Path, second: int) -> None:
    """Those of the same millisecond, too; the plan on the page, of the form and of the commands is the same."""
    accident(tmp_path, second)
    page = step_of(port, 0, 5)
    before = NOW | {"orders:0": 5, "orders:1": 1010, "orders:2": 40}
    assert offsets(tmp_path) == before
    plan = [row for row in page.rows if len(row) == 6]
    assert plan == [
        ["orders:0", "5", "1,200", "+1,195", "planned", ""],
        ["orders:1", "1,010", "1,010", "0", "unchanged", ""],
        ["orders:2", "40", "40", "0", "unchanged", ""],
    ]
    address, _ = submit(port, "/change", form_token(port), entered(port, page.links["Return to these offsets"]))
    submit(port, f"{address}/execute", form_token(port), {})
    assert offsets(tmp_path) == before | {"orders:0": 1200}


@pytest.mark.parametrize("second", [3700, 3602])
def test_the_commands_of_a_step_restore_what_its_plan_shows(port: int, tmp_path: Path, run: Run, second: int) -> None:
    accident(tmp_path, second)
    page = step_of(port, 0, 5)
    commands = [str(a["data-copy"]) for _, a in page.tags if a.get("data-copy", "").startswith("offsetlake restore ")]
    assert len(commands) == 2
    for command in commands:
        code, out, err = run(*shlex.split(f"{command} --format json --log {tmp_path / 'log'}")[1:])
        assert code == 0, err
        rows = {
            row["partition"]: (row["outcome"], row["committed_offset"]) for row in map(json.loads, out.splitlines())
        }
        assert rows[0] == ("planned", 1200)
        assert {outcome for partition, (outcome, _) in rows.items() if partition} <= {"unchanged"}
    assert len(rows) == 3


def test_a_change_of_several_offsets_is_undone_as_one(port: int, tmp_path: Path) -> None:
    """A tool sets all partitions in one request, in one millisecond."""
    write(tmp_path / "log", [(3600, "billing", "orders", partition, 3) for partition in (0, 1)])
    runner.catch_up(Lake.create(tmp_path / "lake"), LogAddress(tmp_path / "log"), lambda _: None)
    plan = [row[:3] for row in step_of(port, 1, 3).rows if len(row) == 6]
    assert plan == [["orders:1", "3", "900"], ["orders:0", "3", "1,120"]]


def test_deleted_offsets_are_restored(port: int, tmp_path: Path) -> None:
    token = form_token(port)
    address, _ = submit(port, "/change", token, {"kind": "undelete", "group": "nightly-report"})
    submit(port, f"{address}/execute", token, {})
    assert offsets(tmp_path, "nightly-report") == {"orders:0": 640, "orders:1": 655}


def test_a_plan_that_is_out_of_date_is_shown_again_and_not_executed(port: int, tmp_path: Path) -> None:
    token = form_token(port)
    address, _ = submit(port, "/change", token, RESTORE)
    commit(tmp_path, "billing", "orders", 0, 1130)
    _, second = submit(port, f"{address}/execute", token, {})
    shown = Page(second.text)
    assert "The offsets changed after the plan was made" in shown.text
    assert ["billing", "orders:0", "1,130", "1,040", "-90", "planned", ""] in shown.rows
    assert offsets(tmp_path)["orders:0"] == 1130
    submit(port, f"{address}/execute", token, {})
    assert offsets(tmp_path)["orders:0"] == 1040


def test_only_one_change_is_under_way_at_a_time(port: int, bench: Workbench) -> None:
    token = form_token(port)
    address, _ = submit(port, "/change", token, RESTORE)
    work = bench.find(address.rpartition("/")[2], "User:ANONYMOUS")
    assert work is not None
    work.stage = Stage.EXECUTING
    answer = post(port, "/change", {"form_token": token, **RESTORE})
    assert (answer.status, "wait until it has ended" in answer.text) == (400, True)
    assert 'role="status"' in get(port, address).text
    work.stage = Stage.PLANNED


def test_a_log_that_cannot_be_written_is_shown_before_a_form_is_filled_in(port: int, tmp_path: Path) -> None:
    form = "/change?group=billing"
    assert "No change can be made now" not in get(port, form).text
    (tmp_path / "log").rename(tmp_path / "elsewhere")
    assert f"No change can be made now: There is no folder {tmp_path / 'log'}" in Page(get(port, form).text).text
    (tmp_path / "log").mkdir()
    assert "does not contain a log" in Page(get(port, form).text).text
    (tmp_path / "log").rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / "log")
    (tmp_path / "log" / "meta.properties").touch()
    assert "only the broker may write to it" in Page(get(port, form).text).text
    (tmp_path / "log" / "meta.properties").unlink()
    assert "No change can be made now" not in get(port, form).text


def test_a_console_that_starts_without_its_log_says_so(original: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"lake": str(original / "lake"), "log": "/missing"}
    console_of(CommandContext(options), gate(allows_changes=True))
    assert "warning: no change can be made now: There is no folder /missing" in capsys.readouterr().err
    console_of(CommandContext({"lake": options["lake"]}), gate(allows_changes=True))
    console_of(CommandContext(options), gate())
    assert capsys.readouterr().err == ""


def test_an_unreachable_cluster_is_shown_before_a_form_is_filled_in(original: Path) -> None:
    cluster = LogAddress(connection=KafkaConnection(bootstrap="127.0.0.1:1"))
    bench = Workbench(locate(str(original / "lake")), cluster)
    with served(original / "lake", gate(allows_changes=True), bench=bench) as port:
        assert "No change can be made now: Kafka at 127.0.0.1:1" in Page(get(port, "/change?group=billing").text).text


def test_a_slow_check_of_the_log_does_not_delay_pages(
    original: Path, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    def check(_log: LogAddress) -> None:
        ended.wait(300)
        raise LogUnavailable("No broker responds.")

    with monkeypatch.context() as patch:
        patch.setattr(workbench, "check_writable", check)
        patch.setattr(workbench, "MAX_CHECK_SECONDS", 0.01)
        with served(original / "lake", gate(allows_changes=True), bench=bench) as port:
            assert "No change can be made now" not in get(port, "/change?group=billing").text
            ended.set()
            patch.setattr(workbench, "MAX_CHECK_SECONDS", 300)
            assert (
                "No change can be made now: No broker responds." in Page(get(port, "/change?group=billing").text).text
            )


def test_an_error_of_the_log_is_shown(port: int, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "log")
    _, answer = submit(port, "/change", form_token(port), RESTORE)
    assert "The change was not made" in answer.text
    assert "log" in Page(answer.text).text


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "explode", "group": "billing"}, "Invalid kind of change 'explode'"),
        ({"kind": "restore", "group": "billing", "at": "soon"}, "Invalid timestamp 'soon'"),
        ({"kind": "reset", "group": "billing", "strategy": "up"}, "Invalid strategy 'up'"),
        ({"kind": "reset", "group": "billing", "strategy": "to_offset", "value": "-1"}, "Invalid value '-1'"),
        ({"kind": "reset", "group": "billing", "strategy": "to_offset", "value": "9" * 30}, "Invalid value"),
        ({"kind": "reset", "group": "billing", "strategy": "to_latest"}, "only a cluster knows"),
        ({"kind": "reset", "group": "g", "strategy": "shift_by", "value": "1", "partitions": "0"}, "need a topic"),
        (
            {"kind": "reset", "group": "g", "strategy": "shift_by", "value": "1", "topic": "t", "partitions": "x"},
            "Invalid partitions 'x'",
        ),
        ({"kind": "undo", "run": "x"}, "Invalid run 'x'"),
        ({"kind": "restore", "at": "2026-01-31"}, "Specify a group"),
    ],
)  # fmt: skip
def test_invalid_forms_are_explained(port: int, fields: dict[str, object], message: str) -> None:
    answer = post(port, "/change", {"form_token": form_token(port), **fields})
    assert answer.status == 400
    assert message in Page(answer.text).text


@pytest.mark.parametrize(
    "entries",
    [
        {"kind": "restore", "at": "soon", "topic": "orders"},
        {"kind": "reset", "strategy": "to_offset", "value": "x", "topic": "orders", "partitions": "0,1"},
        {"kind": "reset", "strategy": "shift_by", "value": "1", "topic": "", "partitions": "0,1"},
    ],
)
def test_an_invalid_form_keeps_its_entries(port: int, entries: dict[str, object]) -> None:
    answer = Page(post(port, "/change", {"form_token": form_token(port), "group": "billing", **entries}).text)
    fields = [attributes for tag, attributes in answer.tags if tag == "input" and attributes.get("name")]
    kept = {attributes["name"]: attributes["value"] for attributes in fields if attributes.get("type") != "radio"}
    kept |= {attributes["name"]: attributes["value"] for attributes in fields if "checked" in attributes}
    assert {name: kept[name] for name in entries} == entries


@pytest.mark.parametrize("group", ["*", "billing*", "[b]illing", "missing"])
def test_a_form_changes_one_group_and_no_pattern(port: int, group: str) -> None:
    _, answer = submit(port, "/change", form_token(port), RESTORE | {"group": group})
    assert "The change was not made" in answer.text


@pytest.mark.parametrize("name", [TAGS, "{{ 7 * 7 }}", '"onfocus="alert(1)', "\x1b[31mred"])
def test_names_of_hostile_clients_stay_text_in_forms_and_plans(port: int, tmp_path: Path, name: str) -> None:
    commit(tmp_path, name, name, 0, 5)
    token = form_token(port)
    fields = {"kind": "reset", "group": name, "strategy": "to_offset", "value": "3", "topic": name}
    address, plan = submit(port, "/change", token, fields)
    _, done = submit(port, f"{address}/execute", token, {})
    missing = post(port, "/change", {"form_token": token, "kind": name, "group": name})
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)
    for answer in (get(port, "/change?" + urlencode({"group": name, "kind": "reset"})), plan, done, missing):
        page = Page(answer.text)
        assert answer is missing or shown in page.text  # which quotes the name as Python does
        scripts = {attributes.get("src") for tag, attributes in page.tags if tag == "script"}
        assert scripts <= {"/static/console.js", "/static/changes.js"}
        assert not [key for _, attributes in page.tags for key in attributes if key.startswith("on")]
        assert {attributes.get("action") for tag, attributes in page.tags if tag == "form"} <= {
            "/", "/change", f"{address}/execute", "/sign-out"
        }  # fmt: skip
    assert "The change was made" in done.text


@pytest.mark.parametrize("token", ["", "x", "é"])
def test_a_form_without_the_secret_of_the_session_is_refused(port: int, token: str) -> None:
    assert post(port, "/change", {"form_token": token, **RESTORE}).status == 403
    assert post(port, "/change/x/execute", {"form_token": token}).status == 403


@pytest.mark.parametrize(
    "headers", [{"origin": "https://evil.example"}, {"origin": ""}, {"sec_fetch_site": "cross-site"}]
)
def test_changes_of_other_sites_are_refused(port: int, headers: dict[str, str]) -> None:
    assert post(port, "/change", {"form_token": form_token(port), **RESTORE}, **headers).status == 403


def test_without_the_option_nothing_can_be_changed(original: Path) -> None:
    with served(original / "lake") as port:
        assert "Reset offsets" not in get(port, "/group?group=billing").text
        for answer in (
            get(port, "/change?group=billing"), get(port, "/change/x"),
            post(port, "/change", RESTORE), post(port, "/change/x/execute", {}),
        ):  # fmt: skip
            assert answer.status == 403
            assert "--allow-changes" in answer.text


def test_a_change_needs_the_permission_on_its_group(bench: Workbench, tmp_path: Path) -> None:
    tokens, acl = tokens_of(tmp_path, "carol", "dave"), acl_file(tmp_path, *ENTRIES)
    visitors = gate(allows_changes=True, credentials=str(tmp_path / "credentials.json"), acl=acl)
    with served(tmp_path / "lake", visitors, bench=bench) as port:
        cookies = {
            name: post(port, "/sign-in", {"token": token}).headers["set-cookie"].split(";")[0]
            for name, token in tokens.items()
        }
        secret = form_token(port, Cookie=cookies["carol"])
        assert "Reset offsets" in get(port, "/group?group=billing", Cookie=cookies["carol"]).text
        assert "Reset offsets" not in get(port, "/group?group=search", Cookie=cookies["carol"]).text
        assert "Reset offsets" not in get(port, "/group?group=billing", Cookie=cookies["dave"]).text
        assert get(port, "/change?group=billing", Cookie=cookies["dave"]).status == 403
        session = visitors.sessions.find(cookies["dave"].partition("=")[2])
        assert session is not None
        for name, group, token in (
            ("carol", "search", secret), ("carol", "missing", secret), ("dave", "billing", session.form_token),
            ("dave", "billing", secret), ("carol", "billing", session.form_token),
        ):  # fmt: skip
            fields = {"form_token": token, **RESTORE, "group": group}
            assert post(port, "/change", fields, cookie=cookies[name]).status == 403
        address, _ = submit(port, "/change", secret, RESTORE, cookie=cookies["carol"])
        assert get(port, address, Cookie=cookies["dave"]).status == 404
        other = {"form_token": session.form_token}
        assert post(port, f"{address}/execute", other, cookie=cookies["dave"]).status == 404
        assert get(port, address).status == 303
        _, done = submit(port, f"{address}/execute", secret, {}, cookie=cookies["carol"])
        assert "The change was made" in done.text
    lake = Lake.open(tmp_path / "lake")
    newest = lake.query("SELECT notes FROM runs WHERE job = 'restore'", "runs").to_pylist()
    assert newest == [{"notes": ["requested by User:carol"]}]
    written = lake.query(
        "SELECT principal, client_id FROM audit_events ORDER BY log_timestamp DESC LIMIT 1", "audit_events"
    )
    assert written["client_id"].to_pylist() == ["offsetlake restore for User:carol"]


def test_an_undo_is_limited_to_the_groups_of_the_visitor(bench: Workbench, tmp_path: Path) -> None:
    with served(tmp_path / "lake", gate(allows_changes=True), bench=bench) as port:
        token = form_token(port)
        address, _ = submit(port, "/change", token, RESTORE)
        _, done = submit(port, f"{address}/execute", token, {})
    run_id = next(attributes["value"] for _, attributes in Page(done.text).tags if attributes.get("name") == "run")
    visitors = gate(allows_changes=True, acl=acl_file(tmp_path, ("*", "search", ["read", "admin"])))
    with served(tmp_path / "lake", visitors, bench=bench) as port:
        _, answer = submit(port, "/change", visitors._form_token, {"kind": "undo", "run": run_id})
        assert "no offset of a group that you may change" in answer.text
        assert "billing" not in answer.text
    await_changes()
