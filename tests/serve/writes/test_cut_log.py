"""A log with deleted segments is served only with the lake that covers them."""

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
from support.serve.serving import Serving

pytestmark = pytest.mark.slow
CHILD = "offsetlake.serve.storage.child_main"


def build_answer(lake: Path, log: Path, ends: dict[int, int] | None) -> dict[str, Any]:
    """Return the answer of the child process that builds a snapshot."""
    with tempfile.TemporaryFile() as file:
        request = {"lake": str(lake), "log": str(log), "ends": ends, "log_partitions": 1, "log_format": "text"}
        child = subprocess.run(
            [sys.executable, "-m", CHILD, "offsetlake.serve.storage.snapshot_build"],
            input=json.dumps(request | {"files": [file.fileno()]}),
            capture_output=True,
            text=True,
            pass_fds=[file.fileno()],
            check=True,
        )
        answer: dict[str, Any] = json.loads(child.stdout)
        assert answer.pop("file", file.fileno()) == file.fileno()
    return answer


@pytest.mark.long
def test_log_with_deleted_segments_requires_the_lake_that_covers_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender_module, "SEGMENT_BYTES", 1)  # each write begins a new segment
    log, lake = tmp_path / "log", tmp_path / "lake"
    log.mkdir()
    with appending(log, "test") as appender:
        for offset in range(4):
            appender.append(0, [batch((key("g", 0), value(offset)))])
    cycle(InProcess(), Lake.create(lake), log)
    upkeep(Lake.open(lake), log)
    assert build_answer(lake, log, None) == {"ends": {"0": 4}}
    other = tmp_path / "other"
    for ends in (None, {0: 4}):
        refused = build_answer(other, log, ends)
        assert refused["exit_code"] == 4
        assert "begins at log offset 3, but the lake" in refused["error"]
        assert "run `offsetlake run` to record the gap" in refused["error"]
    shutil.rmtree(other)
    assert "no lake in" in build_answer(other, log, {0: 4})["error"], "a lake that was removed is not created again"
    assert not other.exists()
    cycle(InProcess(), Lake.create(other), log)
    assert build_answer(other, log, None) == {"ends": {"0": 4}}, "the gap is recorded now"


@pytest.mark.long
def test_server_deletes_only_segments_of_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Share-partition state is read up to a higher log offset than the offsets of the same log partition."""
    monkeypatch.setattr(appender_module, "SEGMENT_BYTES", 1)
    log, lake = tmp_path / "log", tmp_path / "lake"
    log.mkdir()
    fixture = Path(__file__).parents[2] / "fixtures" / "broker-log" / "__share_group_state-6"
    (snapshot, *_) = sorted(fixture.glob("*.log"))
    content = snapshot.read_bytes()
    size = 12 + int.from_bytes(content[8:12])
    (log / "__share_group_state-6").mkdir()
    for offset in range(6):  # the same snapshot; the base offset of a batch is not in its checksum
        batch_bytes = offset.to_bytes(8) + content[8:size]
        (log / "__share_group_state-6" / f"{offset:020}.log").write_bytes(batch_bytes)
    with appending(log, "test") as appender:
        for offset in range(2):
            appender.append(0, [batch((key("g", 0), value(offset)))])
    cycle(InProcess(), Lake.create(lake), log)
    with appending(log, "test") as appender:
        for offset in range(3):
            appender.append(0, [batch((key("g", 0), value(offset)))])
    with Serving(lake, log, log_partitions=1):
        assert upkeep(Lake.open(lake), log).counts["segments_deleted"] == 2
    assert segments(log) == {"__consumer_offsets-0": [2, 3, 4], "__share_group_state-6": [0, 1, 2, 3, 4, 5]}
    assert upkeep(Lake.open(lake), log).counts["segments_deleted"] == 5
    assert segments(log) == {"__consumer_offsets-0": [2, 3, 4], "__share_group_state-6": [5]}


def segments(log: Path) -> dict[str, list[int]]:
    return {path.name: sorted(int(each.stem) for each in path.glob("*.log")) for path in log.glob("__*-[06]")}
