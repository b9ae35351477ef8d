"""OffsetCommit and OffsetFetch in every version: the responses equal those of a real broker, field by field."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.broker.broker import Broker
from support.broker.data_folder import copy_log
from support.serve.broker_comparison import FIRST, TOPICS, BrokerAndServer, commit, committed, fetch
from support.serve.groups_with_members import GROUPS, WITH_MEMBERS, Member, join
from support.serve.serving import Serving
from support.serve.wire_client import OFFSET_COMMIT, OFFSET_FETCH, WireClient

COMMIT_VERSIONS, FETCH_VERSIONS = range(2, 11), range(1, 11)
HOUR_MS = 3_600_000

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@contextmanager
def beside(broker: Broker, lake: Path, log: Path) -> Iterator[BrokerAndServer]:
    sessions = dict.fromkeys(("consumer_session_timeout_ms", "share_session_timeout_ms"), HOUR_MS)
    with (
        Serving(lake, log, topics=TOPICS, coordinator=sessions) as serving,
        WireClient(broker.bootstrap) as first,
        WireClient(serving.bootstrap) as second,
    ):
        yield BrokerAndServer(first, second)


@pytest.fixture(scope="module")
def pair(newest_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerAndServer]:
    folder = tmp_path_factory.mktemp("serving")
    with beside(newest_broker, folder / "lake", folder / "log") as both:
        yield both


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_commit_and_fetch_match_the_broker(pair: BrokerAndServer, version: int) -> None:
    group = f"as-a-broker-{version}"
    first, second = pair.ask(OFFSET_COMMIT, version, commit(group))
    assert second == first
    for fetched in FETCH_VERSIONS:
        first, second = pair.ask(OFFSET_FETCH, fetched, fetch(group, require_stable=fetched % 2 == 0))
        assert second == first
        if fetched >= 2:
            everything = fetch(group) | {"topics": None, "groups": [{"group_id": group, "topics": None}]}
            first, second = pair.ask(OFFSET_FETCH, fetched, everything)
            assert second == first


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
@pytest.mark.parametrize(
    "committer",
    [
        {"generation_id": 3, "generation_id_or_member_epoch": 3},
        {"generation_id": 3, "generation_id_or_member_epoch": 3, "member_id": "nobody"},
        {"member_id": "nobody"},
        {"group_instance_id": "nobody"},
    ],
)
def test_refused_commit_matches_the_broker(pair: BrokerAndServer, version: int, committer: dict[str, Any]) -> None:
    """To a group that does not exist, and to one that only commits created."""
    pair.ask(OFFSET_COMMIT, 7, commit("as-a-broker-simple"))
    for group in ("as-a-broker-not-there", "as-a-broker-simple"):
        first, second = pair.ask(OFFSET_COMMIT, version, commit(group, **committer))
        assert second == first


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_of_missing_groups_and_topics_matches_the_broker(pair: BrokerAndServer, version: int) -> None:
    asked = [fetch("as-a-broker-never"), fetch("as-a-broker-never", topics=[])]
    asked.append(
        fetch("as-a-broker-never") | {"topics": None, "groups": [{"group_id": "as-a-broker-never", "topics": None}]}
    )
    if version < 10:
        asked.append(
            fetch("as-a-broker-never", topics=[{"name": "no-such-topic", "partition_indexes": [0, 2**31 - 1]}])
        )
    for values in asked if version >= 2 else asked[:2]:
        first, second = pair.ask(OFFSET_FETCH, version, values)
        assert second == first


@pytest.mark.parametrize("version", range(8, 11))
def test_fetch_of_several_groups_matches_the_broker(pair: BrokerAndServer, version: int) -> None:
    pair.ask(OFFSET_COMMIT, 7, commit("as-a-broker-several"))
    first, second = pair.ask(OFFSET_FETCH, version, fetch("as-a-broker-several", "as-a-broker-never", ""))
    assert second == first


@pytest.mark.parametrize("version", range(9, 11))
def test_fetch_by_unknown_members_matches_the_broker(pair: BrokerAndServer, version: int) -> None:
    pair.ask(OFFSET_COMMIT, 7, commit("as-a-broker-members"))
    for group in ("as-a-broker-members", "as-a-broker-never"):
        for member in ({"member_id": "nobody", "member_epoch": 1}, {"member_id": None, "member_epoch": 1}):
            values = fetch(group)
            values["groups"] = [values["groups"][0] | member]
            first, second = pair.ask(OFFSET_FETCH, version, values)
            assert second == first


@pytest.mark.parametrize(("metadata_length", "error"), [(4000, 0), (4096, -1)])
def test_commit_above_the_size_of_a_batch_matches_the_broker(
    pair: BrokerAndServer, metadata_length: int, error: int
) -> None:
    """A batch of 256 records of 4 KiB is larger than max.message.bytes of the topic (1,048,588)."""
    partitions = [committed(0, number, -1, "m" * metadata_length) for number in range(256)]
    values = commit("as-a-broker-large", topics=[{"name": FIRST, "partitions": partitions}])
    first, second = pair.ask(OFFSET_COMMIT, 9, values)
    assert second == first
    assert {each["error_code"] for topic in first["topics"] for each in topic["partitions"]} == {error}


def test_commit_and_fetch_of_the_empty_group_match_the_broker(pair: BrokerAndServer) -> None:
    for version in (2, 7, 9):
        first, second = pair.ask(OFFSET_COMMIT, version, commit(""))
        assert second == first
        first, second = pair.ask(OFFSET_FETCH, version, fetch(""))
        assert second == first


@pytest.mark.long
def test_commit_and_fetch_of_groups_with_members_match_the_broker(newest_broker: Broker, tmp_path: Path) -> None:
    """Valid and invalid members of every kind of group; the server has a copy of the log of the broker."""
    with WireClient(newest_broker.bootstrap) as client:
        members = {group: join(client, kind, group) for group, kind in GROUPS.items()}
    copy_log(newest_broker.data_dir, tmp_path / "log")
    seen = set()
    with beside(newest_broker, tmp_path / "lake", tmp_path / "log") as both:
        for group, member in members.items():
            for epoch, name, instance in committers(member):
                for version in (2, 7, 9, 10):  # without instance ids, with them, with errors by name, with topic ids
                    committer = {"generation_id": epoch, "generation_id_or_member_epoch": epoch}
                    committer |= {"member_id": name, "group_instance_id": instance}
                    first, second = both.ask(OFFSET_COMMIT, version, commit(group, **committer))
                    assert second == first, (group, version, committer)
                    seen |= {each["error_code"] for topic in first["topics"] for each in topic["partitions"]}
                if instance is None:
                    for version in (9, 10):
                        values = fetch(group)
                        values["groups"] = [values["groups"][0] | {"member_id": name, "member_epoch": epoch}]
                        first, second = both.ask(OFFSET_FETCH, version, values)
                        assert second == first, (group, version, name, epoch)
    assert seen >= WITH_MEMBERS


def committers(member: Member) -> Iterator[tuple[int, str, str | None]]:
    """Return combinations of valid and invalid epochs, member ids and instance ids."""
    for epoch in (-1, member.epoch - 1, member.epoch, member.epoch + 1):
        for name in ("", member.id, "nobody"):
            for instance in (None, member.instance or "no-instance", "nobody"):
                yield epoch, name, instance
    yield -1, "", None  # again, after valid members
