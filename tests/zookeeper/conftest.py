"""A ZooKeeper that tests share, each with a chroot of its own."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from offsetlake.log.writer.example_log import write_example
from offsetlake.pipeline import runner
from support.e2e.in_process import InProcess, NoSpark
from support.e2e.lakes import cycle
from support.lakes import new_lake
from support.zookeeper.ensemble import Ensemble, open_client


@pytest.fixture(scope="session")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with Ensemble(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture
def chroot(ensemble: Ensemble) -> str:
    """A chroot that exists."""
    path = f"/kafka-{uuid4().hex}"
    with closing(open_client(ensemble)) as client:
        client.create(path)
        client.stop()
    return path


@pytest.fixture
def client(ensemble: Ensemble, chroot: str) -> Iterator[KazooClient]:
    """A client of the chroot."""
    opened = open_client(ensemble, chroot)
    yield opened
    opened.stop()
    opened.close()


@pytest.fixture(scope="session")
def _example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example")
    write_example(folder / "log")
    cycle(InProcess(), new_lake(folder / "lake"), folder / "log")
    return folder


@pytest.fixture
def lake(_example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lake in the default folder, beside the log that it was read from: those of `offsetlake example`."""
    shutil.copytree(_example, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(runner, "LazySession", NoSpark)
    return tmp_path / "lake"
