"""Log lines of servers: JSON for machines, escaped text for people, and limits for clients."""

import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from offsetlake.serve.settings import Settings
from offsetlake.util import log_lines
from offsetlake.util.log_lines import CLIENT_LINES, CLIENT_LINES_SECONDS, ClientLog, JsonFormatter, TextFormatter

HOSTILE = "\x1b[31m\x9b1m\u202e\n\x07"


def test_json_line_contains_the_fields_of_the_event() -> None:
    record = logging.LogRecord(
        "a.b", logging.WARNING, "", 1, "took %(offsets)d from\n%(name)r", ({"offsets": 5, "name": "ü"},), None
    )
    record.created = 1.5
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:01.500Z",
        "level": "WARNING",
        "logger": "a.b",
        "message": "took 5 from\n'ü'",
        "template": "took %(offsets)d from\n%(name)r",
        "offsets": 5,
        "name": "ü",
    }


def test_json_line_of_an_error_contains_its_traceback() -> None:
    try:
        int("why")
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "", 1, "it %s", ("broke",), sys.exc_info())
    event = json.loads(JsonFormatter().format(record))
    assert event["message"] == "it broke"
    assert event["trace"].endswith("invalid literal for int() with base 10: 'why'")


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_control_characters_are_escaped(formatter: logging.Formatter) -> None:
    try:
        int(HOSTILE)
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "", 1, "group %s", (HOSTILE,), sys.exc_info())
    written = formatter.format(record)
    assert re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", written) == []
    if isinstance(formatter, JsonFormatter):
        assert json.loads(written)["message"] == f"group {HOSTILE}"
    else:
        assert written.split("\n")[0].endswith("group \\x1b[31m\\x9b1m\\u202e\\n\\x07")


def test_lines_that_clients_cause_are_limited_for_each_kind(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_lines, "CLIENT_LINES", CLIENT_LINES)
    caplog.set_level(logging.INFO)
    now = 5.0
    log = ClientLog(logging.getLogger("of.clients"), lambda: now)
    for number in range(50_000):
        log.warning("%s may not read group %d", "User:a", number)
    log.info("%(address)s sent garbage", {"address": "10.0.0.1:5"})
    assert len(caplog.messages) == CLIENT_LINES + 1, "one kind does not suppress another"
    assert caplog.messages[-1] == "10.0.0.1:5 sent garbage"
    now += CLIENT_LINES_SECONDS
    log.warning("%s may not read group %d", "User:a", 7)
    suppressed, last = caplog.messages[-2:]
    assert suppressed.startswith(f"{50_000 - CLIENT_LINES} lines like the next one were suppressed")
    assert last == "User:a may not read group 7"


@pytest.mark.slow
def test_server_writes_one_json_object_per_line(tmp_path: Path) -> None:
    settings = Settings(str(tmp_path / "lake"), str(tmp_path / "log"), "127.0.0.1", 0, log_format="json")
    command = [sys.executable, "-m", "offsetlake.cli.serve_process", settings.to_json()]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        _descriptors, listening = (json.loads(process.stderr.readline()) for _ in range(2))
        process.terminate()
        rest = [json.loads(line) for line in process.stderr]
    assert (listening["host"], listening["logger"]) == ("127.0.0.1", "offsetlake.serve.server")
    assert listening["port"] > 0
    assert listening["message"] == f"Listening on 127.0.0.1:{listening['port']}"
    assert process.returncode == 0, rest
