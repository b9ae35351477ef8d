"""Share sessions: the cases of Kafka's SharePartitionManagerTest and ShareSessionCacheTest."""

import pytest

from offsetlake.kafka.error_codes import (
    INVALID_REQUEST,
    INVALID_SHARE_SESSION_EPOCH,
    SHARE_SESSION_LIMIT_REACHED,
    SHARE_SESSION_NOT_FOUND,
)
from offsetlake.share.sessions import (
    IdPartition,
    SessionKey,
    SessionRefused,
    ShareSession,
    ShareSessions,
    next_epoch,
)

FIRST, SECOND, THIRD = (IdPartition(bytes(16), number) for number in range(3))
MEMBER, OTHER = SessionKey("g", "member"), SessionKey("g", "other")


def opened(maximum: int = 2, key: SessionKey = MEMBER, connection: str = "connection") -> ShareSessions:
    sessions = ShareSessions(maximum)
    sessions.open(key, [FIRST, SECOND], connection, acknowledges=False)
    return sessions


def refused(error: int) -> "pytest.RaisesExc[SessionRefused]":
    return pytest.raises(SessionRefused, match=f"error code {error}$")


def test_epochs_of_successive_requests() -> None:
    sessions = opened()
    for epoch in (1, 2, 3):
        assert sessions.advance(MEMBER, epoch).partitions == [FIRST, SECOND]
    with refused(INVALID_SHARE_SESSION_EPOCH):
        sessions.advance(MEMBER, 3)
    with refused(INVALID_SHARE_SESSION_EPOCH):
        sessions.advance(MEMBER, 5)
    sessions.advance(MEMBER, 4)  # an epoch that was refused does not count
    assert next_epoch(2**31 - 1) == 1


def test_a_request_without_a_session_is_refused() -> None:
    sessions = opened()
    with refused(SHARE_SESSION_NOT_FOUND):
        sessions.advance(OTHER, 1)
    with refused(SHARE_SESSION_NOT_FOUND):
        sessions.get(OTHER)
    assert sessions.close(OTHER) == []
    assert sessions.close(MEMBER) == [FIRST, SECOND]
    with refused(SHARE_SESSION_NOT_FOUND):
        sessions.advance(MEMBER, 1)


def test_a_first_request_replaces_the_session_and_must_not_acknowledge() -> None:
    sessions = opened(maximum=1)
    sessions.advance(MEMBER, 1)
    with refused(INVALID_REQUEST):
        sessions.open(MEMBER, [THIRD], "connection", acknowledges=True)
    sessions.open(MEMBER, [THIRD], "connection", acknowledges=False)
    assert sessions.advance(MEMBER, 1).partitions == [THIRD]
    assert len(sessions) == 1


def test_no_session_is_evicted_for_another() -> None:
    sessions = opened(maximum=1)
    with refused(SHARE_SESSION_LIMIT_REACHED):
        sessions.open(OTHER, [FIRST], "second", acknowledges=False)
    sessions.disconnect("connection")
    sessions.open(OTHER, [FIRST], "second", acknowledges=False)
    assert len(sessions) == 1


def test_a_lost_connection_closes_its_session() -> None:
    sessions = opened()
    sessions.open(OTHER, [FIRST], "second", acknowledges=False)
    closed, empty_group = sessions.disconnect("connection")
    assert closed is not None
    assert (closed.key, closed.partitions, empty_group) == (MEMBER, [FIRST, SECOND], None)
    assert sessions.disconnect("connection") == (None, None)
    assert sessions.disconnect("second")[1] == "g"


def test_a_session_that_moved_to_another_connection_survives_the_loss_of_the_first_one() -> None:
    sessions = opened()
    sessions.open(MEMBER, [FIRST], "second", acknowledges=False)
    assert sessions.disconnect("connection") == (None, None)
    assert sessions.is_open(MEMBER, "second")
    assert not sessions.is_open(MEMBER, "connection")


def test_the_group_is_empty_when_the_connection_of_a_closed_session_is_lost() -> None:
    sessions = opened()
    sessions.close(MEMBER)
    assert sessions.disconnect("connection") == (None, "g")


def test_a_response_contains_what_has_records_errors_or_is_new() -> None:
    session = ShareSession([FIRST, SECOND], "connection")
    assert not session.must_return(FIRST, has_records=False, has_failed=False)
    assert session.must_return(FIRST, has_records=True, has_failed=False)
    assert session.partitions == [SECOND, FIRST]
    assert session.must_return(SECOND, has_records=False, has_failed=True)
    assert session.must_return(SECOND, has_records=False, has_failed=False)  # the error is over
    assert not session.must_return(SECOND, has_records=False, has_failed=False)
    session.update([THIRD, FIRST], [SECOND])
    assert session.partitions == [FIRST, THIRD]
    assert session.must_return(THIRD, has_records=False, has_failed=False)
    assert not session.must_return(THIRD, has_records=False, has_failed=False)
