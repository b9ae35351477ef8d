"""Fixtures: services without sockets over the log of a broker, that all begin with one base."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve.in_process import BROKER_LOG, InProcess, Origin, built


@pytest.fixture(scope="session")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Origin:
    folder = tmp_path_factory.mktemp("origin")
    shutil.copytree(BROKER_LOG, folder / "log")
    return built(folder / "lake", folder / "log")


@pytest.fixture
def loading(tmp_path: Path, origin: Origin) -> Iterator[InProcess]:
    made = InProcess(tmp_path, origin)
    yield made
    made.close()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, origin: Origin) -> Iterator[InProcess]:
    """For tests that change nothing."""
    made = InProcess(tmp_path_factory.mktemp("shared"), origin)
    made.load()
    yield made
    made.close()


@pytest.fixture
def served(loading: InProcess) -> InProcess:
    loading.load()
    return loading
