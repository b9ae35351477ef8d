"""`offsetlake serve`: its settings, and the start of the serving process."""

import ast
import json
import re
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from offsetlake.coordinator.settings import BROKER_NAMES
from offsetlake.lake.definitions import LAKE_VERSION
from offsetlake.serve.settings import Settings, with_secrets
from support.command_line import Run
from support.serve.http_client import ask
from support.serve.wire_client import OFFSET_COMMIT, OFFSET_FETCH, WireClient

UNKNOWN_TOPIC_OR_PARTITION = 3
BROKER_DEFAULTS = {
    "group.min.session.timeout.ms": "6000",
    "group.max.session.timeout.ms": "1800000",
    "group.initial.rebalance.delay.ms": "3000",
    "group.max.size": "2147483647",
    "group.consumer.session.timeout.ms": "45000",
    "group.consumer.heartbeat.interval.ms": "5000",
    "group.consumer.max.size": "2147483647",
    "group.consumer.assignors": "uniform,range",
    "group.consumer.regex.refresh.interval.ms": "600000",
    "group.share.session.timeout.ms": "45000",
    "group.share.heartbeat.interval.ms": "5000",
    "group.share.max.size": "200",
    "group.share.delivery.count.limit": "5",
    "group.share.partition.max.record.locks": "2000",
    "group.share.record.lock.duration.ms": "30000",
    "group.share.max.share.sessions": "2000",
    "share.auto.offset.reset": "latest",
    "share.isolation.level": "read_uncommitted",
}
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
        ("--log log --console read", "The console is at the HTTP listener: set http"),
        ("--log log --console changes --http 0.0.0.0:1 --open-to-anyone", "loopback address or with credentials"),
        ("--log log --console on --http 127.0.0.1:0", "'on'"),
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
        (
            "--log log --cluster broker-1:none --node-id 7",
            "Invalid bootstrap.servers 'broker-1:none': expected HOST:PORT",
        ),
        ("--log log --cluster broker-1", "Specify the node id of this process in the cluster, or a listener for share"),
        (
            "--log log --share 127.0.0.1:9094",
            "Specify the cluster of the node id, or of the listener for share consumers",
        ),
        ("--log log --cluster broker-1 --topics t:1", "Specify either topics, or a cluster, which has its own topics"),
        (
            "--log log --cluster broker-1 --node-id 7 --metadata-max-age 10ms",
            "Invalid metadata_max_age '10ms': expected 1s to 1h.",
        ),
        (
            "--log log --cluster broker-1 --node-id 7 --metadata-max-age soon",
            "metadata_max_age: Invalid duration 'soon'",
        ),
    ],
)
def test_invalid_setting_is_an_error_and_creates_nothing(run: Run, tmp_path: Path, arguments: str, says: str) -> None:
    code, out, err = run("serve", *arguments.split())
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert says in err
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("command", ["adopt", "return"])
@pytest.mark.parametrize("serve", ["", 'cluster = "127.0.0.1:1"\nshare = "127.0.0.1:9094"'])
def test_log_of_a_cluster_needs_a_node_id_and_creates_nothing(
    run: Run, tmp_path: Path, command: str, serve: str
) -> None:
    configuration = settings_file(tmp_path, serve)
    code, out, err = run(command, "--execute", "--config", configuration)
    assert (code, out) == (2, "")
    assert err == "error: Specify the cluster and the node id of this process in it: --cluster, --node-id.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["settings.toml"]


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


@pytest.mark.parametrize(
    ("arguments", "console"),
    [
        ("--http 127.0.0.1:9093", False),
        ("--http 127.0.0.1:9093 --console changes", True),
        ("--http 127.0.0.1:9093 --console off", None),
        ("--http 0.0.0.0:9093 --open-to-anyone", None),
        ("", None),
    ],
)
def test_the_console_is_at_http_unless_others_reach_it_without_credentials(
    run: Run, tmp_path: Path, arguments: str, console: bool | None
) -> None:
    file = settings_file(tmp_path)
    code, out, _ = run("serve", "--config", file, *arguments.split(), "--check")
    shown = dict(re.split(r" {2,}", line, maxsplit=1) for line in out.splitlines() if "  " in line.rstrip())
    assert code == 0
    expected = (
        None
        if console is None
        else {
            "allows_changes": console,
            "options": {
                "lake": None,
                "log": None,
                "kafka_config": None,
                "config": file,
                "fleet": None,
                "cluster": None,
            },
        }
    )
    assert (ast.literal_eval(shown["console"]) if "console" in shown else None) == expected


def test_check_prints_the_settings_in_the_selected_format(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFSETLAKE_FORMAT", "json")
    code, out, _ = run("serve", "--config", settings_file(tmp_path), "--http", "127.0.0.1:9093", "--check")
    shown = {row["setting"]: row["value"] for row in map(json.loads, out.splitlines())}
    assert (code, shown["http"], shown["log_partitions"], shown["acl"]) == (0, "127.0.0.1:9093", "50", None)
    groups = {f"groups.{name}" for name in BROKER_NAMES.values()}
    assert {*shown} == {field.name for field in fields(Settings)} - {"coordinator"} | groups


def test_check_prints_the_settings_of_groups(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFSETLAKE_FORMAT", "json")
    lines = "[serve.groups]\ngroup.max.size = 7\ngroup.consumer.assignors = 'range, uniform'\n"
    lines += "share.auto.offset.reset = 'by_duration:P1DT2H'\n"
    code, out, _ = run("serve", "--config", settings_file(tmp_path, lines), "--check")
    shown = {row["setting"]: row["value"] for row in map(json.loads, out.splitlines())}
    groups = {name.removeprefix("groups."): shown[name] for name in shown if name.startswith("groups.")}
    changed = {"group.max.size": "7", "group.consumer.assignors": "range,uniform"}
    assert (code, groups) == (0, BROKER_DEFAULTS | changed | {"share.auto.offset.reset": "by_duration:P1DT2H"})


def test_check_prints_the_settings_of_zookeeper(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFSETLAKE_FORMAT", "json")
    (tmp_path / "own").write_text("digest.user=u\ndigest.password=hidden\n")
    lines = "[serve.zookeeper]\naddress = 'zookeeper://z:1/kafka'\ngroups = 'a,b-*'\nconfig = 'own'\n"
    code, out, _ = run("serve", "--config", settings_file(tmp_path, lines), "--check")
    shown = {row["setting"]: row["value"] for row in map(json.loads, out.splitlines())}
    expected = "{'address': 'zookeeper://z:1/kafka', 'groups': 'a,b-*', 'config': 'own'}"
    assert (code, shown["zookeeper"], "hidden" in out) == (0, expected, False)


def test_passwords_for_the_cluster_are_neither_printed_nor_arguments_of_a_process(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "client.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=u\nsasl.password=hidden\n"
    )
    monkeypatch.setenv("OFFSETLAKE_FORMAT", "json")
    started: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr("os.execve", lambda _, *arguments: started.append(arguments))
    options = (
        "serve",
        "--log",
        "g",
        "--cluster",
        "b:1",
        "--node-id",
        "7",
        "--kafka-config",
        "client.properties",
        "--metadata-max-age",
    )
    code, out, err = run(*options, "7s", "--check")
    shown = {row["setting"]: row["value"] for row in map(json.loads, out.splitlines())}
    assert (code, err, shown["metadata_max_age_ms"]) == (0, "", "7000")
    assert shown["cluster"] == str(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
        | {"bootstrap.servers": "b:1"}
    )
    run(*options, "7s")
    [(arguments, environment)] = started
    assert not [argument for argument in arguments if "hidden" in argument]
    settings = with_secrets(Settings.from_json(arguments[-1]), environment)
    assert settings.cluster is not None
    assert settings.cluster["sasl.password"] == "hidden"
    assert not [value for value in environment.values() if value == "hidden"]


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
        (
            (
                "[serve.groups]\ngroup.max.size = 0\ngroup.consumer.assignors = 'range,sticky'\n"
                "group.consumer.regex.refresh.interval.ms = 9999\ngroup.initial.rebalance.delay.ms = -1\n"
            ),
            [
                "Invalid groups.group.max.size '0': expected a number from 1 to 2147483647",
                "Invalid groups.group.consumer.assignors 'range,sticky': expected one or more of uniform, range",
                "Invalid groups.group.consumer.regex.refresh.interval.ms '9999': expected a number from 10000",
                "Invalid groups.group.initial.rebalance.delay.ms '-1': expected a number from 0",
            ],
        ),
        (
            (
                "[serve.groups]\ngroup.min.session.timeout.ms = 7\ngroup.max.session.timeout.ms = 6\n"
                "group.consumer.heartbeat.interval.ms = 45000\n"
            ),
            [
                "groups.group.min.session.timeout.ms is greater than groups.group.max.session.timeout.ms",
                "groups.group.consumer.heartbeat.interval.ms is not less than groups.group.consumer.session.timeout.ms",
            ],
        ),
        *(
            (f"[serve.groups]\nshare.auto.offset.reset = '{reset}'\n", [f"{reset!r}: expected latest, earliest or"])
            for reset in (
                "none",
                "by_duration",
                "by_duration:",
                "by_duration:36h",
                "by_duration:PT",
                "by_duration:-PT1H",
            )
        ),
        ("[serve.groups]\ngroup.size = 3\n", ["table serve: unknown groups.group.size. Known: kafka"]),
        ("[serve.zookeeper]\ngroups = 'billing-['", ["Invalid zookeeper.groups: the pattern 'billing-['"]),
        ("[serve.zookeeper]\ngroups = 'billing-*'", ["Specify the address of ZooKeeper: zookeeper.address."]),
        ("store = 'table'", ["Invalid store 'table': expected one of log, zookeeper."]),
        (
            "store = 'zookeeper'\ncluster = 'b:1'\nnode_id = 7\n[serve.zookeeper]\ngroups = 'a'",
            ["Specify the address of ZooKeeper", "selects groups only with store", "With a cluster"],
        ),
        ("[serve.zookeeper]\naddress = 'zk'", ["Invalid address of ZooKeeper, 'zk'"]),
        ("[serve.zookeeper]\naddress = 'zookeeper://z:1'\nconfig = 'none'", ["Cannot read none"]),
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
        assert process.wait(240) == 0
    assert (tmp_path / "l" / "offsets").is_dir()
    assert (tmp_path / "g" / "__consumer_offsets-49").is_dir()
