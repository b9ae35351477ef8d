"""What a ClusterAdmin answers when coordinators move and brokers stop; against a real broker: test_admin.py."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import TopicPartition, errors

from offsetlake.log.cluster import admin, admin_session, refusals
from offsetlake.log.cluster.admin import ClusterAdmin, OffsetToCommit
from offsetlake.log.cluster.connection import KafkaConnection

NOT_THERE = "GROUP_ID_NOT_FOUND (69): the group does not exist"


class Clock:
    """A clock that advances only while something sleeps."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


class Scripted:
    """A client in the library's place that does, one call after the other, what the test has it do."""

    def __init__(self, script: Iterator[Callable[[], Any]]) -> None:
        self._script = script

    def _next(self, *_: Any) -> Any:
        return next(self._script)()

    alter_group_offsets = delete_group_offsets = delete_groups = describe_topics = _next

    def close(self) -> None:
        pass


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ClusterAdmin]:
    """Make an ClusterAdmin whose requests meet these answers, the last one for ever."""

    def make(*answers: Any) -> ClusterAdmin:
        def play(answer: Any) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        script = itertools.chain(
            ((lambda answer=answer: play(answer)) for answer in answers), itertools.repeat(lambda: play(answers[-1]))
        )
        clock = Clock()
        for module in (admin, admin_session):
            monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(admin_session, "KafkaAdminClient", lambda **_: Scripted(script))
        monkeypatch.setattr(admin_session.topic, "describe", lambda *_: None)
        return ClusterAdmin(KafkaConnection(bootstrap="127.0.0.1:1", request_timeout_ms=400))

    return make


def of(kind: type[Exception], *numbers: int) -> dict[Any, type[Exception]]:
    return {TopicPartition("t", number): kind for number in numbers}


def test_a_coordinator_that_is_not_ready_is_asked_again(scripted: Callable[..., ClusterAdmin]) -> None:
    moved, loading = of(errors.NotCoordinatorError, 0), errors.CoordinatorLoadInProgressError()
    with scripted(moved, loading, errors.KafkaConnectionError(), of(errors.NoError, 0)) as admin:
        assert admin.commit("g", {("t", 0): OffsetToCommit(1)}) == {("t", 0): None}
    with scripted({"g": "NotCoordinatorError"}, {"g": "GroupIdNotFoundError"}) as admin:
        assert admin.delete_group("g") == NOT_THERE


def test_unavailable_coordinator_is_an_error(scripted: Callable[..., ClusterAdmin]) -> None:
    with scripted(of(errors.NoError, 0) | of(errors.CoordinatorLoadInProgressError, 1)) as admin:
        answers = admin.delete_offsets("g", [("t", 0), ("t", 1)])
    said = "COORDINATOR_LOAD_IN_PROGRESS (14): the group's coordinator is still loading its groups; gave up after"
    assert answers["t", 0] is None
    assert answers["t", 1] == f"{said} request.timeout.ms = 400"


def test_lost_cluster_yields_result_for_each_partition(
    scripted: Callable[..., ClusterAdmin],
) -> None:
    wanted = {("t", number): OffsetToCommit(1, -1, "x" * 150_000) for number in range(3)}
    with scripted(of(errors.NoError, 0), errors.KafkaConnectionError("gone")) as admin:
        answers = admin.commit("g", wanted)
    assert answers["t", 0] is None
    assert "gone" in str(answers["t", 1])
    assert str(answers["t", 1]).endswith(
        "gave up after request.timeout.ms = 400; whether the request was executed is unknown"
    )
    assert str(answers["t", 2]) == "not sent: KafkaConnectionError: gone; gave up after request.timeout.ms = 400"
    with scripted(of(errors.NoError, 0)) as admin:
        unanswered = admin.delete_offsets("g", [("t", 0), ("t", 1)])
    assert unanswered == {("t", 0): None, ("t", 1): "the broker returned no result for this partition"}


def test_group_missing_in_retry_counts_as_deleted(scripted: Callable[..., ClusterAdmin]) -> None:
    with scripted(errors.KafkaConnectionError(), {"g": "GroupIdNotFoundError"}) as admin:
        assert admin.delete_group("g") is None
    with scripted(errors.KafkaConnectionError(), {"g": "CoordinatorNotAvailableError"}) as admin:
        assert "whether the request was executed is unknown" in str(admin.delete_group("g"))
    with scripted({"g": "CoordinatorNotAvailableError"}) as admin:
        assert "whether the request was executed is unknown" not in str(admin.delete_group("g"))
    with scripted(errors.RequestTimedOutError()) as admin:
        assert "whether the request was executed is unknown" in str(admin.delete_group("g"))


def test_a_topic_in_doubt_is_not_missing(scripted: Callable[..., ClusterAdmin]) -> None:
    doubtful = {"name": "t", "error_code": 5, "partitions": []}
    with scripted([doubtful, {**doubtful, "name": "u", "error_code": 3}], [doubtful]) as admin:
        assert admin.missing(["t", "u"]) == {"u"}
    with scripted([doubtful], [{**doubtful, "error_code": 3}]) as admin:
        assert admin.missing(["t"]) == {"t"}


def test_an_error_newer_than_the_library_keeps_its_number() -> None:
    assert refusals.explain(999) == "UNRECOGNIZED_ERROR (999): see the error codes of the Kafka protocol"
    assert refusals.explain(0) is None
