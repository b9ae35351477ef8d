"""A full or failing disk: commits are refused as by a broker, and reads continue."""

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

from offsetlake.cli.serve_process import composed
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
    """Commit the offset of two partitions and return the error codes."""
    rows = [
        {"partition_index": index, "committed_offset": offset, "committed_metadata": "m" * 900} for index in range(2)
    ]
    fields = {"group_id": group, "generation_id": -1, "generation_id_or_member_epoch": -1, "member_id": ""}
    answer = client.ask(OFFSET_COMMIT, 7, fields | {"topics": [{"name": "t", "partitions": rows}]})
    return {int(partition["error_code"]) for partition in answer["topics"][0]["partitions"]}


def fetched(client: WireClient, group: str) -> list[int]:
    answer = client.ask(OFFSET_FETCH, 5, {"group_id": group, "topics": [{"name": "t", "partition_indexes": [0, 1]}]})
    return [partition["committed_offset"] for partition in answer["topics"][0]["partitions"]]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("flush", ["always", "os"])
def test_full_disk_refuses_commits_until_there_is_space(tmp_path: Path, flush: str) -> None:
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


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(not may_mount, reason="a disk is mounted in a namespace of its own")
def test_server_starts_on_a_full_disk_with_the_snapshot_in_memory(tmp_path: Path, origin: Origin) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    prefix = ["unshare", "-Urm", "sh", "-c", FILLED, str(disk), str(BROKER_LOG)]
    with Serving(tmp_path / "lake", disk / "log", prefix) as serving:
        assert any("has no space for the snapshot: its" in line for line in serving.said)
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


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("flush", ["always", "os"])
def test_commits_are_refused_after_the_log_was_removed(tmp_path: Path, flush: str) -> None:
    """They would be acknowledged and lost, as the open files have no name any more."""
    log = tmp_path / "log"
    with Serving(tmp_path / "lake", log, flush=flush, http=["127.0.0.1", 0]) as serving:
        with WireClient(serving.bootstrap) as client:
            assert committed(client, "g", 1) == {0}
            assert ask(serving.http, "GET", "/readyz").status == 200
            shutil.rmtree(log)
            if flush != "always":
                serving.wait_for_line("All writes are refused until a restart; reads continue.")
            assert committed(client, "g", 2) == {NOT_COORDINATOR}
            serving.wait_for_line("All writes are refused until a restart; reads continue.")
            ready = ask(serving.http, "GET", "/readyz")
            assert (ready.status, str(log) in ready.body["detail"]) == (503, True)
            assert fetched(client, "g") == [1, 1]
        assert serving.stop() == 3
    assert not [line for line in serving.said if "Traceback" in line]


@pytest.mark.parametrize("room", [True, False])
def test_snapshot_is_written_to_the_first_file_with_space(
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
        build_request: dict[str, Any] = {
            "lake": str(tmp_path / "lake"),
            "log": str(tmp_path / "log"),
            "ends": None,
            "log_partitions": 50,
        }
        build_request["files"] = [first.fileno(), second.fileno()]
        if room:
            assert build(build_request)["file"] == second.fileno()
            assert len(MappedSnapshot(second.fileno())) > 0
            assert os.fstat(first.fileno()).st_size == 0
        else:
            with pytest.raises(
                LogUnavailable, match=r"neither the disk of the log .* nor memory has enough free space"
            ) as raised:
                build(build_request)
            assert raised.value.exit_code == 3


@pytest.mark.parametrize("segment_bytes", [SEGMENT_BYTES, 1], ids=["at the end of a round", "before a new segment"])
def test_commits_are_refused_after_an_io_error_until_a_restart(
    served: InProcess, monkeypatch: pytest.MonkeyPatch, segment_bytes: int
) -> None:
    """After a failed fsync the contents of the disk are unknown, even if a second fsync succeeds."""
    monkeypatch.setattr("offsetlake.log.writer.appender.SEGMENT_BYTES", segment_bytes)
    before = commands.stored(served, "billing")
    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", _io_error)
        assert commands.commit(served, "billing", "orders", 0, 77) == NOT_COORDINATOR
    assert commands.commit(served, "billing", "orders", 0, 78) == NOT_COORDINATOR
    assert commands.delete_offsets(served, "billing", *before) == [NOT_COORDINATOR]
    assert commands.stored(served, "billing") == before


def test_io_error_fails_all_writes_of_its_round(served: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes to other log partitions before the error are not durable either."""
    monkeypatch.setattr("offsetlake.log.writer.appender.SEGMENT_BYTES", 1)
    partition_of = served.parts.log_partition
    new = next(name for name in map(str, range(1000)) if not served.appender.end(partition_of(name.encode())))
    groups = [new, "billing"]
    before = {group: commands.stored(served, group) for group in groups}
    rows = [{"partition_index": 0, "committed_offset": 77, "committed_metadata": ""}]
    topics = [{"name": "orders", "partitions": rows}]
    outcomes = chain([_io_error], repeat(os.fdatasync))

    def fail_once(file: int) -> None:
        next(outcomes)(file)

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", fail_once)
        answers = [served.start(request(OFFSET_COMMIT, 9, {"group_id": name, "topics": topics})) for name in groups]
        bodies = [answered(OFFSET_COMMIT, 9, served.wait(answer)) for answer in answers]
    assert [body["topics"][0]["partitions"][0]["error_code"] for body in bodies] == [NOT_COORDINATOR] * 2
    assert {group: commands.stored(served, group) for group in groups} == before


def test_server_with_a_broken_log_closes_its_connections_and_files(
    tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(BROKER_LOG, tmp_path / "log")
    settings = Settings(str(tmp_path / "lake"), str(tmp_path / "log"), "127.0.0.1", 0)

    async def close_broken_server() -> None:
        server = Server(composed(settings, Security(settings), asyncio.get_running_loop()))
        listening = await server.listen()
        components = server._core
        components.load(origin.base, origin.ends)
        reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
        rows = [{"partition_index": 0, "committed_offset": 77, "committed_metadata": ""}]
        frame = request(OFFSET_COMMIT, 7, {"group_id": "billing", "topics": [{"name": "orders", "partitions": rows}]})
        writer.write(len(frame).to_bytes(4) + frame)
        body = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        assert NOT_COORDINATOR.to_bytes(2) in body
        listening.close()
        with pytest.raises(LogInDoubt):
            await server.close()
        assert await reader.read() == b"", "the connection is closed"
        with pytest.raises(LogUnavailable, match="is closed"):
            components.appender.end(0)
        writer.close()

    monkeypatch.setattr(os, "fdatasync", _io_error)
    asyncio.run(asyncio.wait_for(close_broken_server(), SECONDS))


def _io_error(_file: int) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))
