"""Fixtures of all tests. What starts a JVM starts it when a test asks, once a run."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from broker.broker import Broker
from command_line import Run
from offsetlake import cli
from offsetlake.session import build_session

settings.register_profile("offsetlake", deadline=None)  # no timed assertion, not even Hypothesis's own
settings.load_profile("offsetlake")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One live Kafka broker for the whole run: use group and topic names of your own, and never stop it."""
    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for the whole run, as the command line builds it."""
    session = build_session("offsetlake tests", {"spark.master": "local[2]"})
    yield session
    session.stop()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Run]:
    """Runs a command in this process, in an empty folder: its exit code, standard output and standard error."""
    for name in [name for name in os.environ if name.startswith("OFFSETLAKE_") and name != "OFFSETLAKE_JARS"]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    handler = signal.getsignal(signal.SIGINT)

    def running(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            cli.main(arguments)
        assert isinstance(left.value.code, int)
        return left.value.code, *capsys.readouterr()

    yield running
    signal.signal(signal.SIGINT, handler)
