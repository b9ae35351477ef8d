"""Fixtures of all tests. What starts a JVM starts it when a test asks, once a run."""

from collections.abc import Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from broker.broker import Broker
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
