"""A lake on a disk that takes no more, or nothing: it says so, loses nothing, and the next run completes."""

import os
import random
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from offsetlake.errors import LakeUnusable
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql import engine
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.compact.job import compact
from offsetlake.pipeline.ingest.job import ingest
from offsetlake.util import atomic_files
from offsetlake.util.atomic_files import replacing, temporary_of
from support.e2e.in_process import InProcess
from support.e2e.lakes import Rows, cycle, state
from support.oracle.random_logs import random_log

NOBODY = 65534
BYTES = (0, 150, 600, 1_200, 2_500, 4_000, 5_500, 7_000, 9_000)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log")
    random_log(random.Random(3), 300, groups=8, log_partitions=2).write(folder)
    return folder


@pytest.fixture(scope="module")
def expected(log: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    lake = Lake.create(tmp_path_factory.mktemp("expected") / "lake")
    cycle(InProcess(), lake, log)
    return state(lake)


def _create(folder: Path, _log: Path) -> None:
    Lake.create(folder)


def _ingest(folder: Path, log: Path) -> None:
    ingest(InProcess, Lake.create(folder), LogAddress(folder=log), lambda _: None)  # type: ignore[arg-type]


def _compact(folder: Path, _log: Path) -> None:
    compact(InProcess, Lake.create(folder), lambda _: None)  # type: ignore[arg-type]


JOBS = (_create, _ingest, _compact)


@contextmanager
def _no_file_above(size: int) -> Iterator[None]:
    """Have the kernel refuse to let files grow: a write stops short anywhere, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
def test_a_write_that_fails_loses_nothing(
    job: Callable[[Path, Path], None], log: Path, expected: dict[str, Rows], tmp_path: Path
) -> None:
    base = tmp_path / "base"
    for before in JOBS[: JOBS.index(job)]:
        before(base, log)
    base.mkdir(exist_ok=True)
    said = []
    for size in BYTES:
        folder = tmp_path / f"{size}"
        shutil.copytree(base, folder)
        try:
            with _no_file_above(size):
                job(folder, log)
        except LakeUnusable as error:
            said.append(str(error))
        lake = Lake.create(folder)
        cycle(InProcess(), lake, log)
        assert state(lake) == expected
    assert len(set(said)) > 1, "it is to fail in several places"
    assert all(text.startswith(f"the lake {tmp_path}") and text.endswith("File too large") for text in said)


@contextmanager
def _no_room_for(new: Path) -> Iterator[None]:
    """Have a file that is newly made be one on a disk that is full."""
    with pytest.MonkeyPatch.context() as patched:
        make = atomic_files._create
        patched.setattr(
            atomic_files,
            "_create",
            lambda file, mode: file.symlink_to("/dev/full") if file == new else make(file, mode),
        )
        yield


@pytest.mark.slow
def test_full_disk_is_reported(log: Path, expected: dict[str, Rows], tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    plan = lake.location.path / ".plan-ingest.json.tmp"
    said = f"no space left on the disk of {lake.location.path}: free some and run again"
    with _no_room_for(plan), pytest.raises(LakeUnusable, match=said):
        _ingest(lake.location.path, log)
    assert not plan.is_symlink(), "nothing half-done is left"
    cycle(InProcess(), lake, log)
    assert state(lake) == expected


def test_lake_creation_resumes_after_full_disk(tmp_path: Path) -> None:
    Lake.create(tmp_path / "lake")
    marker = temporary_of(tmp_path / "lake" / "offsetlake.json")
    (tmp_path / "lake" / "offsetlake.json").unlink()
    with _no_room_for(marker), pytest.raises(LakeUnusable, match="no space left on the disk"):
        Lake.create(tmp_path / "lake")
    marker.touch()  # all of the file there was room for
    assert Lake.create(tmp_path / "lake").count("offsets") == 0
    assert Lake.open(tmp_path / "lake").count("offsets") == 0


@contextmanager
def _as_nobody() -> Iterator[None]:
    """Root may write anywhere: be one who may not."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
            patched.setattr(engine, "scratch_folder", lambda: folder)  # that of the process belongs to root
            yield
    finally:
        os.seteuid(0)


def test_read_only_lake_is_read_and_not_written(log: Path, expected: dict[str, Rows]) -> None:
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        lake = Lake.create(Path(folder) / "lake")
        cycle(InProcess(), lake, log)
        shutil.copytree(log, Path(folder) / "log")
        forbidden = [lake.location.path, *lake.location.path.rglob("*")]
        for path in forbidden:
            path.chmod(0o555 if path.is_dir() else 0o444)
        with _as_nobody():
            assert state(Lake.open(lake.location.path)) == expected
            for job in (_ingest, _compact):
                with pytest.raises(
                    LakeUnusable, match=f"the lake {lake.location.path} cannot be written: Permission denied"
                ):
                    job(lake.location.path, Path(folder) / "log")
            with pytest.raises(LakeUnusable, match="inside cannot be written: Permission denied"):
                Lake.create(lake.location.path / "inside")
        for path in forbidden:
            path.chmod(0o755)
        assert state(lake) == expected


def test_file_instead_of_lake_is_reported(tmp_path: Path) -> None:
    (tmp_path / "lake").touch()
    with pytest.raises(LakeUnusable, match="lake"):
        Lake.create(tmp_path / "lake")
    with pytest.raises(LakeUnusable, match="lake"):
        Lake.open(tmp_path / "lake")


def test_error_outside_of_lake_is_not_reported_as_lake_error(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    with pytest.raises(ConnectionResetError), lake.lock("job"):
        raise ConnectionResetError


@pytest.mark.parametrize("there", [True, False])
def test_replacement_keeps_symbolic_link(tmp_path: Path, there: bool) -> None:
    file, link = tmp_path / "real" / "file", tmp_path / "link"
    file.parent.mkdir()
    if there:
        file.write_text("old")
    link.symlink_to("real/file")
    with replacing(link) as new:
        new.write_text("new")
    assert (file.read_text(), link.is_symlink(), [*tmp_path.iterdir()]) == ("new", True, [file.parent, link])


def test_special_file_is_not_replaced(tmp_path: Path) -> None:
    """Of /dev/null the superuser would make a file."""
    link, loop, pipe = tmp_path / "null", tmp_path / "loop", tmp_path / "pipe"
    link.symlink_to("/dev/null")
    loop.symlink_to("loop")
    os.mkfifo(pipe)
    for path, why in ((link, "not a regular file"), (pipe, "not a regular file"), (loop, "symbolic links")):
        with pytest.raises(OSError, match=why), replacing(path):
            pytest.fail("it is refused before anything is written")
