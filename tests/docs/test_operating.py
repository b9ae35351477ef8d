"""docs/operating.md, conf/prometheus/alerts.yml and the unit of systemd say of the program what it is."""

import re
import shutil
import subprocess
import sys
import tomllib
from configparser import RawConfigParser
from itertools import takewhile
from pathlib import Path

import pytest
import yaml

from offsetlake.auth import acl, login_attempts
from offsetlake.cli.config import SERVE
from offsetlake.log.positions import TRANSACTION_LOG_PARTITIONS
from offsetlake.serve.apis import log_reads
from offsetlake.serve.net import connection, descriptors, login
from offsetlake.serve.protocol import topics
from offsetlake.serve.settings import Settings
from offsetlake.serve.storage import prepared_responses
from offsetlake.serve.writes import commit_templates, quota
from offsetlake.util import token_buckets
from support.command_line import Run
from support.documents import check_command
from support.serve.secured import secured

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
DEFAULTS = (ROOT / "conf" / "offsetlake.toml").read_text(encoding="utf-8")
UNIT = ROOT / "conf" / "systemd" / "offsetlake.service"
INNER = ("groups", "zookeeper")
"""The tables in the table [serve]."""
SETTINGS, ACL = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


class _Unit(RawConfigParser):
    def optionxform(self, optionstr: str) -> str:
        return optionstr


def unit() -> RawConfigParser:
    read = _Unit(delimiters=("=",), comment_prefixes=("#",), interpolation=None)
    read.read(UNIT, encoding="utf-8")
    return read


def named(settings: str) -> set[str]:
    """Settings of the table [serve] and its tables, those in comments too."""
    inner = {f"{table}.{name}" for table in INNER for name in _of_table(settings, f"serve.{table}")}
    return _of_table(settings, "serve") | inner


def _of_table(settings: str, table: str) -> set[str]:
    _, _, lines = settings.partition(f"[{table}]")
    found = takewhile(lambda line: not line.removeprefix("# ").startswith("["), lines.splitlines())
    return {match[1] for line in found if (match := re.match(r"(?:# )?([\w.]+) = ", line))}


def test_the_page_tells_of_every_alarm_what_it_means() -> None:
    alerts = yaml.safe_load((ROOT / "conf" / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))
    alarms = [rule["alert"] for group in alerts["groups"] for rule in group["rules"]]
    assert re.findall(r"^### (\w+)$", PAGE, re.MULTILINE) == alarms


def test_every_metric_is_named() -> None:
    modules = ("web/http/prometheus", "web/http/server", "node/metrics", "zookeeper/serving/metrics")
    sources = [ROOT / "lib" / "offsetlake" / f"{module}.py" for module in modules]
    code = "".join(path.read_text(encoding="utf-8") for path in sources)
    known = {*re.findall(r'"(offsetlake_\w+)"', code)}
    told = {*re.findall(r"`(offsetlake_\w+)\b(?!\*)`", PAGE)}
    assert told - known == set()
    assert {name for name in known - told if not name.startswith("offsetlake_snapshot_")} == set()


def test_every_setting_is_named() -> None:
    assert named(SETTINGS) == named(DEFAULTS) == {*SERVE}


def test_what_is_commented_out_is_a_setting_too() -> None:
    in_table = {name for name in SERVE if name.split(".")[0] not in INNER}
    assert {*tomllib.loads(SETTINGS.replace("\n# ", "\n"))["serve"]} == in_table | {*INNER}


def test_the_settings_of_the_page_are_accepted(run: Run, tmp_path: Path) -> None:
    secured(tmp_path)
    (tmp_path / "acl.toml").write_text(ACL, encoding="utf-8")
    settings = re.sub(r"/(etc|var/lib)/offsetlake", str(tmp_path), SETTINGS)
    (tmp_path / "offsetlake.toml").write_text(settings, encoding="utf-8")
    code, out, err = run("serve", "--config", "offsetlake.toml", "--check")
    assert (code, err) == (0, "")
    assert re.search(r"^advertised +offsets\.example:9092$", out, re.MULTILINE)
    assert not (tmp_path / "log").exists()


def test_the_unit_starts_what_there_is() -> None:
    service = unit()["Service"]
    for key in ("ExecStart", "ExecStartPre"):
        check_command(service[key].removeprefix("/opt/offsetlake/bin/"))
    assert service["ExecStartPre"] == f"{service['ExecStart']} --check"
    assert service["ExecStart"] in f"/opt/offsetlake/bin/{PAGE[PAGE.index('offsetlake serve --config') :]}"


def test_the_unit_keeps_compiled_code_where_it_may_write() -> None:
    service = unit()["Service"]
    assert service["Environment"] == f"NUMBA_CACHE_DIR=/var/cache/{service['CacheDirectory']}"
    assert service["ProtectSystem"] == "strict"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_finds_no_fault_with_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text(encoding="utf-8").replace("/opt/offsetlake/bin/offsetlake", sys.executable)
    (tmp_path / UNIT.name).write_text(text, encoding="utf-8")
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / UNIT.name)]
    verified = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")


DEFAULT = Settings("lake", "log", "127.0.0.1", 9092)
LIMITS = [
    ("connections, of", f"{DEFAULT.max_connections:,}"),
    ("connections of one", f"{DEFAULT.max_connections_per_address:,}"),
    ("file descriptors", f"`log_partitions` + {descriptors.RESERVED + TRANSACTION_LOG_PARTITIONS} "),
    ("passwords", f"{login_attempts.MAX_WAITING_OF_ADDRESS} of one address, {login_attempts.MAX_WAITING} in all"),
    ("failed logins", f"of a /{login_attempts._IPV6_PREFIX_BITS} network"),
    ("failed logins", f"{login_attempts.MAX_FAILURES} at once"),
    (
        "time to log in",
        f"{login.MAX_LOGIN_SECONDS:.0f} s, {login.MAX_REQUESTS} requests, {login.MAX_FRAME_BYTES >> 10} KiB",
    ),
    ("requests of one connection", f"{connection.MAX_UNANSWERED:,}, and {connection.MAX_UNANSWERED_BYTES >> 20} MiB"),
    ("commits of one group", f"and {quota.BURST_SECONDS} s of them at once"),
    ("bytes read from a connection", f"{connection.MAX_MUTED_BYTES >> 10} KiB"),
    ("partitions of a topic", f"{topics.MAX_PARTITIONS:,}"),
    ("bytes in one response of Fetch", f"{log_reads.MAX_FETCH_BYTES >> 20} MiB"),
    ("memory for names", f"{token_buckets.MAX_NAME_BYTES} bytes of a name"),
    ("memory for names", f"{token_buckets.MAX_BUCKETS:,} groups with a quota"),
    ("memory for names", f"{acl.MAX_CACHED_GROUPS:,} groups of each principal"),
    ("memory for names", f"{topics.MAX_REMEMBERED_TOPICS:,} topics"),
    ("memory for parsed", f"{commit_templates.MAX_BYTES >> 20} MiB for commits"),
    ("memory for parsed", f"{prepared_responses.MAX_BYTES >> 20} MiB for OffsetFetch"),
    ("memory for parsed", f"requests of up to {prepared_responses.MAX_REQUEST_BYTES >> 10} KiB"),
]


@pytest.mark.parametrize(("bounded", "limit"), LIMITS, ids=[f"{of}: {limit}" for of, limit in LIMITS])
def test_limits_are_told_as_they_are(bounded: str, limit: str) -> None:
    (row,) = re.findall(rf"^\| {bounded}.*$", PAGE, re.MULTILINE)
    assert limit in row
