"""Fixtures: servers without sockets over the log of a broker, which share a mapped snapshot, and a process."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from offsetlake.util import log_lines
from support.broker import workload
from support.broker.broker import Broker
from support.broker.tools import await_all_loaded
from support.queries.lakes import commit, small_lake, tombstone
from support.serve.broker_comparison import FIRST, TOPICS
from support.serve.in_process import BROKER_LOG, InProcess, Origin, built
from support.serve.serving import Serving


@pytest.fixture(scope="session")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Origin:
    folder = tmp_path_factory.mktemp("origin")
    shutil.copytree(BROKER_LOG, folder / "log")
    return built(folder / "lake", folder / "log")


@pytest.fixture
def loading(tmp_path: Path, origin: Origin) -> Iterator[InProcess]:
    server = InProcess(tmp_path, origin)
    yield server
    server.close()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Iterator[InProcess]:
    """A server for tests that change nothing."""
    server = InProcess(tmp_path_factory.mktemp("shared"), origin)
    server.load()
    yield server
    server.close()


@pytest.fixture
def served(loading: InProcess) -> InProcess:
    loading.load()
    return loading


@pytest.fixture(scope="session")
def over_http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A process for tests that use separate groups. Its history contains the group `past`."""
    folder = tmp_path_factory.mktemp("http")
    shutil.copytree(BROKER_LOG, folder / "log", ignore=shutil.ignore_patterns("meta.properties"))
    past = [commit(10, 1), commit(20, 2, leader_epoch=3, metadata="m"), tombstone(30), commit(40, 4)]
    past.append(commit(41, 5, topic="u"))
    small_lake(folder / "lake", offset_commits=[row | {"group_id": "past"} for row in past])
    with Serving(folder / "lake", folder / "log", http=["127.0.0.1", 0]) as serving:
        yield serving


@pytest.fixture(scope="session")
def newest_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that also accepts version 10 of OffsetCommit and OffsetFetch, with loaded offsets."""
    settings = {"unstable.api.versions.enable": "true"}
    for kind in ("consumer", "share"):  # members that send no heartbeat stay
        settings |= {f"group.{kind}.{limit}session.timeout.ms": "3600000" for limit in ("", "max.")}
    with Broker(tmp_path_factory.mktemp("newest-broker"), settings) as running:
        await_all_loaded(running.bootstrap)
        for name, partitions in TOPICS.items():
            workload.create_topic(running.bootstrap, name, partitions)
        workload.member(running.bootstrap, "as-a-broker-loaded", {(FIRST, 0): 0}, "classic").close()
        yield running


@pytest.fixture(autouse=True)
def _all_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the limit of log lines, so that tests see all lines whatever earlier tests logged."""
    monkeypatch.setattr(log_lines, "CLIENT_LINES", 10**9)
