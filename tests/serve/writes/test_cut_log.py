"""A log that was cut is served with the lake that has what is gone, and with no other."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.log.writer import appender as appender_module
from offsetlake.log.writer.appending import appending
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, upkeep
from support.serve.job_socket_requests import batch, key, value

pytestmark = pytest.mark.slow


def asked(lake: Path, log: Path, ends: dict[int, int] | None) -> dict[str, Any]:
    """What the process answers that makes a base."""
    with tempfile.TemporaryFile() as file:
        request = {"lake": str(lake), "log": str(log), "ends": ends, "log_partitions": 1, "log_format": "text"}
        made = subprocess.run(
            [sys.executable, "-m", "offsetlake.serve.storage.snapshot_build"],
            input=json.dumps(request | {"files": [file.fileno()]}),
            capture_output=True,
            text=True,
            pass_fds=[file.fileno()],
            check=True,
        )
        answer: dict[str, Any] = json.loads(made.stdout)
        assert answer.pop("file", file.fileno()) == file.fileno()
    return answer


def test_a_cut_log_wants_its_own_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender_module, "SEGMENT_BYTES", 1)  # each write begins a segment
    log, lake = tmp_path / "log", tmp_path / "lake"
    log.mkdir()
    with appending(log, "test") as appender:
        for offset in range(4):
            appender.append(0, [batch((key("g", 0), value(offset)))])
    cycle(InProcess(), Lake.create(lake), log)
    upkeep(Lake.open(lake), log)
    assert asked(lake, log, None) == {"ends": {"0": 4}}
    other = tmp_path / "other"
    for ends in (None, {0: 4}):
        refused = asked(other, log, ends)
        assert refused["exit_code"] == 4
        assert "begins at log offset 3, but the tables of the lake" in refused["error"]
        assert "`offsetlake run` note the gap" in refused["error"]
    shutil.rmtree(other)
    assert "no lake in" in asked(other, log, {0: 4})["error"], "one that is gone is not begun anew"
    assert not other.exists()
    cycle(InProcess(), Lake.create(other), log)
    assert asked(other, log, None) == {"ends": {"0": 4}}, "the gap is on record now"
