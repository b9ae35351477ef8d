"""`offsetlake serve`: what it is given, and that it becomes the serving process."""

import json
import re
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from offsetlake.lake.definitions import LAKE_VERSION
from offsetlake.serve.settings import Settings
from support.command_line import Run
from support.serve.http_client import ask
from support.serve.wire_client import OFFSET_COMMIT, OFFSET_FETCH, WireClient

UNKNOWN_TOPIC_OR_PARTITION = 3
FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("", "name the folder of the log to serve and write: --log DIR"),
        ("--log log --kafka nohost", "--kafka wants HOST:PORT, such as 127.0.0.1:9092, not 'nohost'"),
        ("--log log --kafka 127.0.0.1:99999", "--kafka wants HOST:PORT"),
        ("--log log --kafka 0.0.0.0:9092", "only loopback addresses are served"),
        ("--log log --kafka 0.0.0.0:9092 --open-to-anyone", "nobody can connect to 0.0.0.0: say with advertised"),
        ("--log log --advertised nohost", "--advertised wants HOST:PORT"),
        ("--log log --tls-certificate server.pem", "tls_certificate and tls_key are required together"),
        ("--log log --tls-client-ca ca.pem", "tls_client_ca requires TLS"),
        ("--log log --credentials nowhere --rights nowhere", "credentials nowhere cannot be read"),
        ("--log log --credentials nowhere --rights nowhere", "rights nowhere cannot be read"),
        ("--log log --http 9093", "--http wants HOST:PORT, such as 127.0.0.1:9092, not '9093'"),
        ("--log log --http 0.0.0.0:9093", "An HTTP listener on the non-loopback address 0.0.0.0 requires credentials"),
        ("--log log --log-format xml", "'xml'"),
        ("--log log --topics orders", "'orders' is none"),
        ("--log log --topics orders:0", "'orders:0' is none"),
        ("--log log --topics orders:1,orders:2", "--topics names orders twice"),
        ("--log log --flush never", "'never'"),
        ("--log log --log-partitions 99999", "it is a number from 1 to 10000"),
        ("--log log --commits-recorded all", "'all': it is a share of all commits from 0 (none) to 1 (all)"),
        ("--log log --commits-recorded 1.01", "it is a share of all commits"),
        ("--log log --commits-recorded nan", "it is a share of all commits"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_made(
    run: Run, tmp_path: Path, arguments: str, says: str
) -> None:
    code, out, err = run("serve", *arguments.split())
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert says in err
    assert not [*tmp_path.iterdir()]


def settings_file(folder: Path, serve: str = "") -> str:
    (folder / "settings.toml").write_text(f'lake = "l"\nlog = "g"\n[serve]\n{serve}', encoding="utf-8")
    return "settings.toml"


def test_a_check_tells_the_settings_and_makes_nothing(run: Run, tmp_path: Path) -> None:
    file = settings_file(tmp_path, 'kafka = "[::1]:9192"\ntopics = "orders:2"\n')
    code, out, err = run("serve", "--config", file, "--flush", "os", "--check")
    assert (code, err) == (0, "")
    told = dict(re.split(r" {2,}", line, maxsplit=1) for line in out.splitlines() if "  " in line.rstrip())
    assert told["setting"] == "value"
    assert (told["host"], told["port"], told["flush"], told["lake"], told["log"]) == ("::1", "9192", "os", "l", "g")
    assert told["topics"] == "{'orders': 2}"
    assert [of.name for of in tmp_path.iterdir()] == [file]


def test_a_check_tells_them_as_the_format_has_it(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFSETLAKE_FORMAT", "json")
    code, out, _ = run("serve", "--config", settings_file(tmp_path), "--http", "127.0.0.1:9093", "--check")
    told = {of["setting"]: of["value"] for of in map(json.loads, out.splitlines())}
    assert (code, told["http"], told["log_partitions"], told["rights"]) == (0, "127.0.0.1:9093", "50", None)
    assert {*told} == {field.name for field in fields(Settings)}


@pytest.mark.parametrize(
    ("serve", "all_that_is_wrong"),
    [
        (
            'flush = "never"\nlog_partitions = 0\nhttp = "9093"\n',
            ["flush is 'never'", "log_partitions is '0'", "--http wants HOST:PORT"],
        ),
        (
            'kafka = "0.0.0.0:9092"\ncredentials = "nowhere"\nrights = "neither"\ntls_key = "key"\n',
            [
                "nobody can connect to 0.0.0.0",
                "credentials nowhere",
                "rights neither",
                "tls_certificate and tls_key go",
            ],
        ),
    ],
)
def test_all_that_is_wrong_is_named_at_once(run: Run, tmp_path: Path, serve: str, all_that_is_wrong: list[str]) -> None:
    code, out, err = run("serve", "--config", settings_file(tmp_path, serve), "--check")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert [what for what in all_that_is_wrong if what not in err] == []


@pytest.mark.parametrize(
    ("version", "code", "says"),
    [
        (LAKE_VERSION + 1, 6, f"is at version {LAKE_VERSION + 1}, written by a newer offsetlake"),
        (LAKE_VERSION, 0, ""),
        (LAKE_VERSION - 1, 0, ""),  # which serving brings up to date
    ],
)
def test_a_check_looks_at_the_lake(run: Run, tmp_path: Path, version: int, code: int, says: str) -> None:
    (tmp_path / "l").mkdir()
    (tmp_path / "l" / "offsetlake.json").write_text(json.dumps({"version": version}), encoding="utf-8")
    found, _, err = run("serve", "--config", settings_file(tmp_path), "--check")
    assert found == code
    assert says in err


def test_a_check_refuses_folders_of_others(run: Run, tmp_path: Path) -> None:
    for folder in ("l", "g"):
        (tmp_path / folder).mkdir()
    file = settings_file(tmp_path)
    assert run("serve", "--config", file, "--check")[0] == 0  # empty folders become a lake and a log
    (tmp_path / "g" / "meta.properties").touch()
    code, _, err = run("serve", "--config", file, "--check")
    assert code == 7
    assert "is a broker's own folder" in err
    (tmp_path / "l" / "photos").mkdir()
    code, _, err = run("serve", "--config", file, "--check")
    assert code == 6
    assert "is not empty and does not contain an offsetlake lake" in err


@pytest.mark.slow
def test_a_brokers_own_folder_is_not_served(tmp_path: Path) -> None:
    served = subprocess.run(
        [sys.executable, "-m", "offsetlake.cli", "serve", "--log", str(FIXTURES / "broker-log"), "--lake", "lake"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (served.returncode, served.stdout) == (7, "")
    assert "is a broker's own folder" in served.stderr


@pytest.mark.slow
def test_it_serves_with_the_settings_of_a_file_until_it_is_told_to_stop(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(
        'lake = "l"\nlog = "g"\n[serve]\nkafka = "127.0.0.1:0"\nhttp = "127.0.0.1:0"\ntopics = "orders:2"\n'
    )
    command = [sys.executable, "-m", "offsetlake.cli", "serve", "--config", "settings.toml"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = url = ""
        for line in process.stderr:
            if match := re.search(r"listening on (\S+)$", line.rstrip()):
                address = match[1]
            if match := re.search(r"answering HTTP on (\S+)$", line.rstrip()):
                url = match[1]
            if "serving 0 offsets in 0 groups" in line:
                break
        with WireClient(address) as client:
            rows = [{"partition_index": of, "committed_offset": 42, "committed_metadata": ""} for of in range(3)]
            of = {"group_id": "g", "generation_id": -1, "generation_id_or_member_epoch": -1, "member_id": ""}
            answer = client.ask(OFFSET_COMMIT, 5, of | {"topics": [{"name": "orders", "partitions": rows}]})
            errors = [int(each["error_code"]) for each in answer["topics"][0]["partitions"]]
            assert errors == [0, 0, UNKNOWN_TOPIC_OR_PARTITION]
            asked = {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0, 1, 2]}]}
            found = client.ask(OFFSET_FETCH, 5, asked)["topics"][0]["partitions"]
            assert [each["committed_offset"] for each in found] == [42, 42, -1]
        asked_by_http = ask(url, "GET", "/v1/offsets", group="g").body["offsets"]
        assert [each["committed_offset"] for each in asked_by_http] == [42, 42]
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        assert process.wait(30) == 0
    assert (tmp_path / "l" / "offsets").is_dir()
    assert (tmp_path / "g" / "__consumer_offsets-49").is_dir()
