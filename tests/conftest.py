"""Fixtures of all tests. What starts a JVM starts it when a test asks, once a run."""

import faulthandler
import gc
import logging
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

import offsetlake.cli.app  # noqa: F401 - before other modules of commands: the help has the order of the imports
from offsetlake.cli import main, progress
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.spark import build_session
from support.broker.broker import Broker
from support.broker.kafka_tools import NEWER
from support.broker.tools import await_all_loaded
from support.command_line import Run
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle
from support.lakes import new_lake
from support.object_store.server import S3Server, client_environment, s3_server
from support.spark_sql import DELTA

TESTS = Path(__file__).parent
SPARK, DAGS = "spark", "dags"
BROKERS = ("newest_broker", "broker")
LONGEST = (
    SPARK,
    "broker",
    DAGS,
    "newest_broker",
    "serve/node/test_client_suites.py",
    "e2e/jobs/test_killed.py",
    "e2e/deployment/test_object_store.py",
    "e2e/live/test_live_expiry.py",
    "e2e/deployment/test_cluster.py",
    "docs/test_documents.py",
    "e2e/live/test_live_by_hand.py",
    "cli/test_cli.py",
    "serve/groups/test_logs_between_servers.py",
    "serve/groups/test_beside_a_broker.py",
    "e2e/deployment/test_separate_hosts.py",
    "serve/node/test_front_transactions.py",
    "serve/node/test_front.py",
    "serve/node/test_real_clients.py",
    "console/test_browser.py",
    "console/changing/test_changes_in_browser.py",
    "console/changing/test_review_in_browser.py",
    "e2e/deployment/test_wheel.py",
    "e2e/jobs/test_maintain.py",
    "e2e/logs/test_random_logs.py",
    "e2e/live/test_live_between.py",
    "serve/test_clients.py",
    "serve/test_jobs_while_served.py",
    "serve/test_killed.py",
    "e2e/live/test_live_broker.py",
    "broker/test_rig.py",
    "e2e/jobs/test_expire.py",
    "e2e/live/test_our_log_in_a_broker.py",
)
"""Tests that take longest, by group: they begin first, so that no worker is left alone with them at the end."""

MAX_PHASE_SECONDS = 660
"""Longer than the `timeout` of pytest-timeout, which names the test and lets the others run."""

for variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):  # short lives: do not optimize for long
    os.environ[variable] = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

gc.set_threshold(50_000, 20, 20)  # with Python's own threshold of 700, it takes a twentieth of the time of tests

os.environ.pop("COLUMNS", None)  # set by pytest-xdist; without it, tables are not limited to a terminal's width
os.unsetenv("COLUMNS")  # set by readline, which pytest imports, in the environment of child processes only

# No timed assertion, not even Hypothesis's own.
settings.register_profile("offsetlake", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("offsetlake")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option by which tests/docs/test_documents.py brings the outputs in the documents up to date."""
    parser.addoption("--refresh-examples", action="store_true", help="write what examples print into the documents")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group tests by file, but by what takes long to make where they share it: Spark, Airflow's database, a broker.

    A group has one worker. Tests that take long do not wait for each other's broker.
    """
    groups = {item: _group(item) for item in items}
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))
        if item.path.parent.name == "e2e":
            item.add_marker(pytest.mark.slow)
    order = {group: at for at, group in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(groups[item], len(order)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Limit the set-up of a test."""
    return (yield from _limited(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Limit a test."""
    return (yield from _limited(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Limit the clean-up after a test."""
    return (yield from _limited(item))


def _limited(item: pytest.Item) -> Generator[None, object, object]:
    """Print what each thread does and end the worker, if a phase of a test takes over MAX_PHASE_SECONDS.

    pytest-timeout neither ends a test that waits in native code, nor limits the clean-up after a test that has failed.
    """
    stderr = item.config.stash[fault_handler_stderr_fd_key]  # the descriptor 2 is a file of pytest during a test
    faulthandler.dump_traceback_later(MAX_PHASE_SECONDS, exit=True, file=stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        assert not logging.root.manager.disable, "logging is disabled for all later tests"


def _group(item: pytest.Item) -> str:
    fixtures = getattr(item, "fixturenames", ())
    if hasattr(item, "callspec"):  # a fixture may be the parameter of another one
        fixtures = [*fixtures, *(value for value in item.callspec.params.values() if isinstance(value, str))]
    shared = [SPARK] if item.get_closest_marker("long") else [SPARK, *BROKERS]
    if found := [name for name in shared if name in fixtures]:
        return found[0]
    return DAGS if item.path.parent.name == "dags" else str(item.path.relative_to(TESTS))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One live Kafka broker for the whole run: use group and topic names of your own, and never stop it."""
    with Broker(tmp_path_factory.mktemp("broker")) as running:
        await_all_loaded(running.bootstrap)
        yield running


@pytest.fixture(scope="session")
def newer_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of a newer version of Kafka, shared like `broker`."""
    with Broker(tmp_path_factory.mktemp("newer-broker"), version=NEWER) as running:
        await_all_loaded(running.bootstrap)
        yield running


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for the whole run, as a job opens it, which also reads Delta tables."""
    small = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}
    session = build_session("offsetlake tests", DELTA | small)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake that has read the bundled log of a broker, made once a run: copy it to write to it."""
    made = new_lake(tmp_path_factory.mktemp("broker-lake") / "lake")
    cycle(InProcess(), made, TESTS / "fixtures" / "broker-log")
    return made


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Run]:
    """Runs a command in this process, in an empty folder: its exit code, standard output and standard error."""
    for name in [name for name in os.environ if name.startswith("OFFSETLAKE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(progress, "FIRST_LINE_SECONDS", 3600.0)  # what it prints must not depend on how fast it is
    handler = signal.getsignal(signal.SIGINT)

    def running(*arguments: str) -> tuple[int, str, str]:
        return main.run(arguments), *capsys.readouterr()

    yield running
    signal.signal(signal.SIGINT, handler)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real object store, whose credentials are in the environment."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as patched:
        for name, value in client_environment(server.endpoint).items():
            patched.setenv(name, value)
        yield server


@pytest.fixture
def bucket(s3: S3Server) -> str:
    """The name of a new bucket."""
    return s3.new_bucket()
