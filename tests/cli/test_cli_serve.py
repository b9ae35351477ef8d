"""`offsetlake serve`: its settings, and the start of the serving process."""

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
        ("", "Specify the folder of the log to serve and write: --log DIR"),
        ("--log log --kafka nohost", "Invalid kafka 'nohost': expected HOST:PORT, such as 127.0.0.1:9092."),
        ("--log log --kafka 127.0.0.1:99999", "Invalid kafka '127.0.0.1:99999': expected HOST:PORT"),
        ("--log log --kafka 0.0.0.0:9092", "A listener on the non-loopback address 0.0.0.0 requires authentication"),
        ("--log log --kafka 0.0.0.0:9092 --open-to-anyone", "Clients cannot connect to the wildcard address 0.0.0.0"),
        ("--log log --advertised nohost", "Invalid advertised 'nohost': expected HOST:PORT"),
        ("--log log --tls-certificate server.pem", "tls_certificate and tls_key are required together"),
        ("--log log --tls-client-ca ca.pem", "tls_client_ca requires TLS"),
        ("--log log --credentials nowhere --acl nowhere", "Cannot read credentials file nowhere"),
        ("--log log --credentials nowhere --acl nowhere", "Cannot read ACL file nowhere"),
        ("--log log --http 9093", "Invalid http '9093': expected HOST:PORT"),
        ("--log log --http 0.0.0.0:9093", "An HTTP listener on the non-loopback address 0.0.0.0 requires credentials"),
        ("--log log --log-format xml", "'xml'"),
        ("--log log --topics orders", "Invalid topics 'orders': expected NAME:PARTITIONS"),
        ("--log log --topics orders:0", "Invalid topics 'orders:0': expected"),
        ("--log log --topics orders:1,orders:2", "Invalid topics: the topic orders is named twice"),
        ("--log log --flush never", "'never'"),
        ("--log log --log-partitions 99999", "Invalid log_partitions '99999': expected a number from 1 to 10000"),
        (
            "--log log --commits-recorded all",
            "Invalid commits_recorded 'all': expected a share of all commits from 0 (none) to 1 (all)",
        ),
        ("--log log --commits-recorded 1.01", "expected a share of all commits"),
        ("--log log --commits-recorded nan", "expected a share of all commits"),
    ],
)
def test_invalid_setting_is_an_error_and_creates_nothing(run: Run, tmp_path: Path, arguments: str, says: str) -> None:
    code, out, err = run("serve", *arguments.split())
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert says in err
    assert not [*tmp_path.iterdir()]


def settings_file(folder: Path, serve: str = "") -> str:
    (folder / "settings.toml").write_text(f'lake = "l"\nlog = "g"\n[serve]\n{serve}', encoding="utf-8")
    return "settings.toml"


def test_check_prints_the_settings_and_creates_nothing(run: Run, tmp_path: Path) -> None:
    file = settings_file(tmp_path, 'kafka = "[::1]:9192"\ntopics = "orders:2"\n')
    code, out, err = run("serve", "--config", file, "--flush", "os", "--check")
    assert (code, err) == (0, "")
    shown = dict(re.split(r" {2,}", line, maxsplit=1) for line in out.splitlines() if "  " in line.rstrip())
    assert shown["setting"] == "value"
    assert (shown["host"], shown["port"], shown["flush"], shown["lake"], shown["log"]) == (
        "::1",
        "9192",
        "os",
        "l",
        "g",
    )
    assert shown["topics"] == "{'orders': 2}"
    assert [path.name for path in tmp_path.iterdir()] == [file]


def test_check_prints_the_settings_in_the_selected_format(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFSETLAKE_FORMAT", "json")
    code, out, _ = run("serve", "--config", settings_file(tmp_path), "--http", "127.0.0.1:9093", "--check")
    shown = {row["setting"]: row["value"] for row in map(json.loads, out.splitlines())}
    assert (code, shown["http"], shown["log_partitions"], shown["acl"]) == (0, "127.0.0.1:9093", "50", None)
    assert {*shown} == {field.name for field in fields(Settings)}


@pytest.mark.parametrize(
    ("serve", "problems"),
    [
        (
            'flush = "never"\nlog_partitions = 0\nhttp = "9093"\n',
            ["Invalid flush 'never'", "Invalid log_partitions '0'", "Invalid http '9093'"],
        ),
        (
            'kafka = "0.0.0.0:9092"\ncredentials = "nowhere"\nacl = "neither"\ntls_key = "key"\n',
            [
                "wildcard address 0.0.0.0",
                "credentials file nowhere",
                "ACL file neither",
                "tls_certificate and tls_key are required together",
            ],
        ),
    ],
)
def test_check_reports_all_problems_at_once(run: Run, tmp_path: Path, serve: str, problems: list[str]) -> None:
    code, out, err = run("serve", "--config", settings_file(tmp_path, serve), "--check")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert [problem for problem in problems if problem not in err] == []


@pytest.mark.parametrize(
    ("version", "code", "says"),
    [
        (LAKE_VERSION + 1, 6, f"is at version {LAKE_VERSION + 1}, written by a newer offsetlake"),
        (LAKE_VERSION, 0, ""),
        (LAKE_VERSION - 1, 0, ""),  # serving upgrades it
    ],
)
def test_check_fails_for_a_lake_of_a_newer_version(
    run: Run, tmp_path: Path, version: int, code: int, says: str
) -> None:
    (tmp_path / "l").mkdir()
    (tmp_path / "l" / "offsetlake.json").write_text(json.dumps({"version": version}), encoding="utf-8")
    exit_code, _, err = run("serve", "--config", settings_file(tmp_path), "--check")
    assert exit_code == code
    assert says in err


def test_check_refuses_foreign_folders(run: Run, tmp_path: Path) -> None:
    for folder in ("l", "g"):
        (tmp_path / folder).mkdir()
    file = settings_file(tmp_path)
    assert run("serve", "--config", file, "--check")[0] == 0  # empty folders may become a lake and a log
    (tmp_path / "g" / "meta.properties").touch()
    code, _, err = run("serve", "--config", file, "--check")
    assert code == 7
    assert "belongs to a broker" in err
    (tmp_path / "l" / "photos").mkdir()
    code, _, err = run("serve", "--config", file, "--check")
    assert code == 6
    assert "is not empty and does not contain an offsetlake lake" in err


@pytest.mark.long
@pytest.mark.slow
def test_broker_folder_is_not_served(tmp_path: Path) -> None:
    served = subprocess.run(
        [sys.executable, "-m", "offsetlake.cli", "serve", "--log", str(FIXTURES / "broker-log"), "--lake", "lake"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (served.returncode, served.stdout) == (7, "")
    assert "belongs to a broker" in served.stderr


@pytest.mark.slow
def test_serve_runs_with_a_settings_file_until_sigterm(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(
        'lake = "l"\nlog = "g"\n[serve]\nkafka = "127.0.0.1:0"\nhttp = "127.0.0.1:0"\ntopics = "orders:2"\n'
    )
    command = [sys.executable, "-m", "offsetlake.cli", "serve", "--config", "settings.toml"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = url = ""
        for line in process.stderr:
            if match := re.search(r"Listening on (\S+)$", line.rstrip()):
                address = match[1]
            if match := re.search(r"Serving HTTP on (\S+)$", line.rstrip()):
                url = match[1]
            if "Serving 0 offsets in 0 groups" in line:
                break
        with WireClient(address) as client:
            rows = [
                {"partition_index": partition, "committed_offset": 42, "committed_metadata": ""}
                for partition in range(3)
            ]
            header = {"group_id": "g", "generation_id": -1, "generation_id_or_member_epoch": -1, "member_id": ""}
            answer = client.ask(OFFSET_COMMIT, 5, header | {"topics": [{"name": "orders", "partitions": rows}]})
            errors = [int(each["error_code"]) for each in answer["topics"][0]["partitions"]]
            assert errors == [0, 0, UNKNOWN_TOPIC_OR_PARTITION]
            request = {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0, 1, 2]}]}
            fetched = client.ask(OFFSET_FETCH, 5, request)["topics"][0]["partitions"]
            assert [each["committed_offset"] for each in fetched] == [42, 42, -1]
        http_offsets = ask(url, "GET", "/v1/offsets", group="g").body["offsets"]
        assert [each["committed_offset"] for each in http_offsets] == [42, 42]
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        assert process.wait(30) == 0
    assert (tmp_path / "l" / "offsets").is_dir()
    assert (tmp_path / "g" / "__consumer_offsets-49").is_dir()
