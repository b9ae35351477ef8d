"""A disk that takes no more: commits are refused as a broker refuses them, and reads go on."""

import asyncio
import errno
import os
import resource
import shutil
import subprocess
from contextlib import ExitStack
from itertools import chain, repeat
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest

from offsetlake.errors import LogUnavailable
from offsetlake.log.writer.appender import SEGMENT_BYTES, LogInDoubt
from offsetlake.serve.net.security import Security
from offsetlake.serve.server import Server
from offsetlake.serve.settings import Settings
from offsetlake.serve.storage.mapped_snapshot import MappedSnapshot
from offsetlake.serve.storage.snapshot_build import build
from support.serve import commands
from support.serve.http_client import ask
from support.serve.in_process import BROKER_LOG, SECONDS, InProcess, Origin
from support.serve.kio_requests import answered, request
from support.serve.serving import Serving
from support.serve.wire_client import OFFSET_COMMIT, OFFSET_FETCH, WireClient

NOT_COORDINATOR = 16
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def committed(client: WireClient, group: str, offset: int) -> set[int]:
    """Commit two partitions; gives the error codes."""
    rows = [{"partition_index": of, "committed_offset": offset, "committed_metadata": "m" * 900} for of in range(2)]
    of = {"group_id": group, "generation_id": -1, "generation_id_or_member_epoch": -1, "member_id": ""}
    answer = client.ask(OFFSET_COMMIT, 7, of | {"topics": [{"name": "t", "partitions": rows}]})
    return {int(each["error_code"]) for each in answer["topics"][0]["partitions"]}


def fetched(client: WireClient, group: str) -> list[int]:
    answer = client.ask(OFFSET_FETCH, 5, {"group_id": group, "topics": [{"name": "t", "partition_indexes": [0, 1]}]})
    return [each["committed_offset"] for each in answer["topics"][0]["partitions"]]


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["always", "os"])
def test_a_full_disk_refuses_commits_and_nothing_else(tmp_path: Path, flush: str) -> None:
    with Serving(tmp_path / "lake", tmp_path / "log", flush=flush) as serving:
        with WireClient(serving.bootstrap) as client:
            assert committed(client, "g", 1) == {0}
            resource.prlimit(serving.process.pid, resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
            assert committed(client, "g", 2) == {NOT_COORDINATOR}
            assert fetched(client, "g") == [1, 1]
            resource.prlimit(serving.process.pid, resource.RLIMIT_FSIZE, UNLIMITED)
            assert committed(client, "g", 3) == {0}
            assert fetched(client, "g") == [3, 3]
        assert serving.stop() == 0
    with Serving(tmp_path / "lake", tmp_path / "log") as serving, WireClient(serving.bootstrap) as client:
        assert fetched(client, "g") == [3, 3]


FILLED = """
mount -t tmpfs -o size=256k none "$0" && cp -r "$1" "$0/log" && rm -f "$0/log/meta.properties" || exit
cat /dev/zero > "$0/full" 2> /dev/null
shift && exec "$@"
"""
may_mount = subprocess.run(["unshare", "-Urm", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not may_mount, reason="a disk is mounted in a namespace of its own")
def test_a_server_starts_on_a_full_disk_and_serves_reads(tmp_path: Path, origin: Origin) -> None:
    """The snapshot, which is mapped from a file on that disk else, is in memory."""
    disk = tmp_path / "disk"
    disk.mkdir()
    prefix = ["unshare", "-Urm", "sh", "-c", FILLED, str(disk), str(BROKER_LOG)]
    with Serving(tmp_path / "lake", disk / "log", prefix) as serving:
        assert any("has no room for the snapshot: its" in line for line in serving.said)
        with WireClient(serving.bootstrap) as client:
            codes = [committed(client, "g", offset) for offset in range(8)]
            assert codes[-1] == {NOT_COORDINATOR}, "once the last block of the segment is full"
            accepted = codes.count({0})
            assert fetched(client, "g") == [accepted - 1] * 2
            answer = client.ask(OFFSET_FETCH, 5, {"group_id": "billing", "topics": None})
        rows = {(of["name"].encode(), each["partition_index"]) for of in answer["topics"] for each in of["partitions"]}
        assert rows == {(topic, number) for topic, number, _ in origin.base.entries(origin.base.group(b"billing"))}
        assert serving.stop() == 0
    assert not [line for line in serving.said if "Traceback" in line]


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["always", "os"])
def test_a_log_that_is_removed_takes_no_more_commits(tmp_path: Path, flush: str) -> None:
    """They would be acknowledged and gone: the open files have no name any more."""
    log = tmp_path / "log"
    with Serving(tmp_path / "lake", log, flush=flush, http=["127.0.0.1", 0]) as serving:
        with WireClient(serving.bootstrap) as client:
            assert committed(client, "g", 1) == {0}
            assert ask(serving.http, "GET", "/readyz").status == 200
            shutil.rmtree(log)
            if flush != "always":
                serving.wait_for_line("all writes are refused until a restart, reads go on")
            assert committed(client, "g", 2) == {NOT_COORDINATOR}
            serving.wait_for_line("all writes are refused until a restart, reads go on")
            ready = ask(serving.http, "GET", "/readyz")
            assert (ready.status, str(log) in ready.body["detail"]) == (503, True)
            assert fetched(client, "g") == [1, 1]
        assert serving.stop() == 3
    assert not [line for line in serving.said if "Traceback" in line]


@pytest.mark.parametrize("room", [True, False])
def test_a_snapshot_takes_the_first_file_with_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, room: bool
) -> None:
    shutil.copytree(BROKER_LOG, tmp_path / "log")
    fallocate = os.posix_fallocate
    with ExitStack() as opened:
        first, second = (opened.enter_context(TemporaryFile()) for _ in range(2))

        def full(file: int, start: int, size: int) -> None:
            if not room or file == first.fileno():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            fallocate(file, start, size)

        monkeypatch.setattr(os, "posix_fallocate", full)
        asked: dict[str, Any] = {
            "lake": str(tmp_path / "lake"),
            "log": str(tmp_path / "log"),
            "ends": None,
            "log_partitions": 50,
        }
        asked["files"] = [first.fileno(), second.fileno()]
        if room:
            assert build(asked)["file"] == second.fileno()
            assert len(MappedSnapshot(second.fileno())) > 0
            assert os.fstat(first.fileno()).st_size == 0
        else:
            with pytest.raises(LogUnavailable, match=r"has no room on the disk of the log .* nor in memory") as raised:
                build(asked)
            assert raised.value.exit_code == 3


@pytest.mark.parametrize("segment_bytes", [SEGMENT_BYTES, 1], ids=["at the end of a round", "as a segment begins"])
def test_after_an_io_error_commits_are_refused_until_a_restart(
    served: InProcess, monkeypatch: pytest.MonkeyPatch, segment_bytes: int
) -> None:
    """Nobody knows what a disk has that failed once: that it says yes the next time tells nothing of the first."""
    monkeypatch.setattr("offsetlake.log.writer.appender.SEGMENT_BYTES", segment_bytes)
    before = commands.stored(served, "billing")
    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", _io_error)
        assert commands.commit(served, "billing", "orders", 0, 77) == NOT_COORDINATOR
    assert commands.commit(served, "billing", "orders", 0, 78) == NOT_COORDINATOR
    assert commands.delete_offsets(served, "billing", *before) == [NOT_COORDINATOR]
    assert commands.stored(served, "billing") == before


def test_an_io_error_fails_all_of_its_round(served: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """What went into other log partitions before was not brought to the disk either."""
    monkeypatch.setattr("offsetlake.log.writer.appender.SEGMENT_BYTES", 1)
    partition_of = served.parts.log_partition
    new = next(of for of in map(str, range(1000)) if not served.appender.end(partition_of(of.encode())))
    groups = [new, "billing"]
    before = {group: commands.stored(served, group) for group in groups}
    rows = [{"partition_index": 0, "committed_offset": 77, "committed_metadata": ""}]
    topics = [{"name": "orders", "partitions": rows}]
    outcomes = chain([_io_error], repeat(os.fdatasync))

    def fail_once(file: int) -> None:
        next(outcomes)(file)

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", fail_once)
        answers = [served.start(request(OFFSET_COMMIT, 9, {"group_id": of, "topics": topics})) for of in groups]
        told = [answered(OFFSET_COMMIT, 9, served.wait(answer)) for answer in answers]
    assert [of["topics"][0]["partitions"][0]["error_code"] for of in told] == [NOT_COORDINATOR] * 2
    assert {group: commands.stored(served, group) for group in groups} == before


def test_a_server_with_a_broken_log_closes_all_it_has(
    tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(BROKER_LOG, tmp_path / "log")
    settings = Settings(str(tmp_path / "lake"), str(tmp_path / "log"), "127.0.0.1", 0)

    async def end_it_broken() -> None:
        server = Server(settings, Security(settings), asyncio.get_running_loop())
        listening = await server.listen()
        parts = server._parts
        parts.load(origin.base, origin.ends)
        reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
        rows = [{"partition_index": 0, "committed_offset": 77, "committed_metadata": ""}]
        asked = request(OFFSET_COMMIT, 7, {"group_id": "billing", "topics": [{"name": "orders", "partitions": rows}]})
        writer.write(len(asked).to_bytes(4) + asked)
        said = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        assert NOT_COORDINATOR.to_bytes(2) in said
        listening.close()
        with pytest.raises(LogInDoubt):
            await server.close()
        assert await reader.read() == b"", "the connection is closed"
        with pytest.raises(LogUnavailable, match="is closed"):
            parts.appender.end(0)
        writer.close()

    monkeypatch.setattr(os, "fdatasync", _io_error)
    asyncio.run(asyncio.wait_for(end_it_broken(), SECONDS))


def _io_error(_file: int) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))
