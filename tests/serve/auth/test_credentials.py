"""The credentials file, and the commands that write it."""

import io
import json
import logging
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from offsetlake.auth.credentials import Credentials, problems
from offsetlake.cli.commands.serving.credentials import token
from offsetlake.errors import BadRequest
from offsetlake.serve.net.security import Security
from offsetlake.serve.settings import Settings
from offsetlake.util.atomic_files import temporary_of
from offsetlake.util.times import now_ms
from support.command_line import Run

PASSWORD = "correct horse é"  # noqa: S105 - used in tests only


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "credentials.json"


def add(run: Run, monkeypatch: pytest.MonkeyPatch, name: str, password: str) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{password}\n"))
    return run("credentials", "add", name)


def test_user_is_added_changed_and_removed(run: Run, monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    for password in (PASSWORD, "another"):
        assert add(run, monkeypatch, "billing", password) == (0, "", "")
        known = Credentials.read(file)
        assert known.password_matches("billing", password.encode())
        assert not known.password_matches("billing", b"a third")
        assert not known.password_matches("nobody", password.encode())
        assert password not in file.read_text()
    assert not known.password_matches("billing", PASSWORD.encode())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    code, listed, _ = run("credentials", "list")
    assert (code, "billing" in listed, "password" in listed) == (0, True, True)
    assert run("credentials", "remove", "billing")[0] == 0
    assert not Credentials.read(file).password_matches("billing", b"another")
    assert [*file.parent.iterdir()] == [file]


def test_token_is_printed_once_and_valid_until_it_expires(run: Run, file: Path) -> None:
    code, out, _ = run("credentials", "token", "grafana", "--expires", "1h")
    issued = out.strip()
    known = Credentials.read(file)
    assert (code, known.authenticate_token(issued)) == (0, "User:grafana")
    id_, _, secret = issued.partition(".")
    assert secret not in file.read_text()
    for wrong in ("", ".", id_, f"{id_}.", f"{id_}.{secret}x", f"x.{secret}", f"{id_}.é\udc80"):
        assert known.authenticate_token(wrong) is None
    data = json.loads(file.read_text())
    data["tokens"][id_]["expires"] = str(now_ms() - 1)
    file.write_text(json.dumps(data))
    assert Credentials.read(file).authenticate_token(issued) is None
    assert run("credentials", "remove", id_)[0] == 0
    assert Credentials.read(file).tokens == {}


@pytest.mark.parametrize(
    ("arguments", "typed", "says"),
    [
        ("add billing", "", "The password is empty"),
        ("add new\nline", "secret", "Invalid name"),
        ("token grafana --expires soon", "", "Invalid duration"),
        ("token grafana --expires 6m", "", "Invalid duration 6m: m can be minutes or months"),
        ("token grafana --expires 0s", "", "Invalid duration 0s"),
        ("list", "", "Cannot read credentials file"),
        ("remove nobody", "", "Cannot read credentials file"),
    ],
)
def test_invalid_command_fails_and_creates_no_file(
    run: Run, monkeypatch: pytest.MonkeyPatch, file: Path, arguments: str, typed: str, says: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    code, out, err = run("credentials", *arguments.split(" "))
    assert (code, out) == (2, "")
    assert says in err
    assert not file.exists()


def test_concurrent_commands_keep_all_tokens(file: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: token(f"name-{number}", "1h", file), range(24)))
    assert {row.name for row in Credentials.read(file).tokens.values()} == {f"name-{number}" for number in range(24)}


def test_command_on_a_symbolic_link_changes_its_target(
    run: Run, monkeypatch: pytest.MonkeyPatch, file: Path, tmp_path: Path
) -> None:
    """The server reads the target: if the command replaced the link by a file, removals would have no effect."""
    file.parent.mkdir(exist_ok=True)
    links = [tmp_path / "links" / name for name in ("one.json", "two.json")]
    links[0].parent.mkdir()
    links[0].symlink_to(file)
    links[1].symlink_to("one.json")
    for name in ("billing", "other"):
        monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
        assert run("credentials", "add", name, "--file", str(links[1]))[0] == 0
    assert [*Credentials.read(file).users] == ["billing", "other"]
    assert run("credentials", "remove", "billing", "--file", str(links[1]))[0] == 0
    assert [*Credentials.read(file).users] == ["other"]
    assert all(link.is_symlink() for link in links)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {*links[0].parent.iterdir()} == {*links}


def test_concurrent_commands_on_a_link_and_on_its_target_keep_all_tokens(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link" / "credentials.json"
    link.parent.mkdir()
    link.symlink_to(file)
    with ThreadPoolExecutor(8) as threads:
        [*threads.map(lambda number: token(f"n{number}", "1d", (file, link)[number % 2]), range(24))]
    assert len(Credentials.read(file).tokens) == 24


def test_leftover_temporary_file_does_not_weaken_permissions(file: Path) -> None:
    leftover = temporary_of(file)
    leftover.touch(0o666)
    leftover.chmod(0o666)
    Credentials().write(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    leftover.symlink_to(file.parent / "elsewhere")
    Credentials().write(file)
    assert [*file.parent.iterdir()] == [file]
    assert not file.is_symlink()


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_password_that_is_not_utf_8_is_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch, file: Path, errors: str
) -> None:
    typed = io.TextIOWrapper(io.BytesIO("gr\xfc\xdfe\n".encode("latin-1")), encoding="utf-8", errors=errors)
    monkeypatch.setattr("sys.stdin", typed)
    code, _, err = run("credentials", "add", "billing")
    assert (code, "The password is not valid UTF-8" in err) == (2, True)
    assert not file.exists()


def test_removal_of_an_unknown_name_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    add(run, monkeypatch, "billing", PASSWORD)
    before = file.read_bytes()
    code, _, err = run("credentials", "remove", "nobody")
    assert (code, "contains no user and no token 'nobody'" in err) == (2, True)
    assert file.read_bytes() == before


def test_file_that_other_users_can_read_is_refused(file: Path) -> None:
    Credentials().write(file)
    assert problems(file) == []
    file.chmod(0o604)
    assert problems(file) == [f"Credentials file {file} is accessible to other users: run chmod 600 {file}"]


def test_unreadable_file_is_read_when_it_becomes_readable(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    Credentials().write(file)
    security = Security(Settings("lake", "log", "127.0.0.1", 0, credentials=str(file)))
    newer = Credentials()
    newer.add_user("billing", PASSWORD)
    newer.write(file)
    file.chmod(0o644)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            security.reload()
        file.chmod(0o600)
        for _ in range(3):
            security.reload()
    assert security.credentials == newer
    (refused, reloaded) = caplog.messages
    assert refused.endswith(f"accessible to other users: run chmod 600 {file}; the previous contents remain in effect")
    assert reloaded == f"Reloaded {file}"


def test_forced_reload_reads_unchanged_files(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    Credentials().write(file)
    security = Security(Settings("lake", "log", "127.0.0.1", 0, credentials=str(file)))
    with caplog.at_level(logging.INFO):
        security.reload()
        security.reload(force=True)
    assert caplog.messages == [f"Reloaded {file}"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"users": {}, "tokens": {}, "decoy": "%"}',
        '{"users": {"a": {}}, "tokens": {}, "decoy": ""}',
        '{"users": {}, "tokens": {"a": {"principal": "a", "salt": "", "hash": "", "expires": "soon"}}, "decoy": ""}',
        '{"users": {}, "tokens": {"a": 1}, "decoy": ""}',
        "\x80",
    ],
)
def test_invalid_file_is_refused_with_one_error(file: Path, text: str) -> None:
    file.touch(0o600)
    file.write_text(text, encoding="latin-1")
    (problem,) = problems(file)
    assert f" credentials file {file}: " in problem
    with pytest.raises(BadRequest):
        Credentials.read(file)
