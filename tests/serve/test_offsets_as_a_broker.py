"""OffsetCommit and OffsetFetch, every version, field by field as a real broker answers the same requests."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker import workload
from broker.broker import Broker
from serve.serving import Serving
from serve.wire_client import METADATA, OFFSET_COMMIT, OFFSET_FETCH, WireClient

TOPICS = {"as-a-broker-1": 3, "as-a-broker-2": 2}
FIRST, SECOND = TOPICS
COMMIT_VERSIONS, FETCH_VERSIONS = range(2, 11), range(1, 11)
NEWEST = {"unstable.api.versions.enable": "true"}  # a 4.1 broker has no version 10 of either unless it is told to
LONGEST_METADATA = 4096

pytestmark = [pytest.mark.broker, pytest.mark.slow]


class Two:
    """The same request to a real broker and to the serving process."""

    def __init__(self, broker: WireClient, serving: WireClient) -> None:
        self.clients = broker, serving
        self._ids = [self._topic_ids(client) for client in self.clients]

    def _topic_ids(self, client: WireClient) -> dict[str, Any]:
        found = client.ask(
            METADATA,
            12,
            {
                "topics": [{"name": name, "topic_id": None} for name in TOPICS],
                "include_topic_authorized_operations": False,
            },
        )
        return {topic["name"]: topic["topic_id"] for topic in found["topics"]}

    def ask(self, api: int, version: int, values: dict[str, Any]) -> tuple[Any, Any]:
        """Give both answers; topic ids come as names, and in the order of their names."""
        first, second = (
            _with_names(client.ask(api, version, _with_ids(values, ids)), ids)
            for client, ids in zip(self.clients, self._ids, strict=True)
        )
        return first, second


def _with_ids(values: Any, ids: dict[str, Any]) -> Any:
    if isinstance(values, list):
        return [_with_ids(each, ids) for each in values]
    if isinstance(values, dict):
        made = {name: _with_ids(each, ids) for name, each in values.items()}
        return made | ({"topic_id": ids[made["name"]]} if made.get("name") in ids else {})
    return values


def _with_names(answer: Any, ids: dict[str, Any]) -> Any:
    if isinstance(answer, list):
        return sorted((_with_names(each, ids) for each in answer), key=str)
    if isinstance(answer, dict):
        names = {id_: name for name, id_ in ids.items()}
        return {
            name: names.get(each, each) if name == "topic_id" else _with_names(each, ids)
            for name, each in answer.items()
        }
    return answer


@contextmanager
def newest_broker(folder: Path) -> Iterator[Broker]:
    with Broker(folder, NEWEST) as running:
        for name, partitions in TOPICS.items():
            workload.create_topic(running.bootstrap, name, partitions)
        workload.member(
            running.bootstrap, "as-a-broker-loaded", {(FIRST, 0): 0}, "classic"
        ).close()  # it is loaded then
        yield running


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    folder, brokers = tmp_path_factory.mktemp("serving"), tmp_path_factory.mktemp("newest-broker")
    with (
        newest_broker(brokers) as broker,
        Serving(folder / "lake", folder / "log", topics=TOPICS) as serving,
        WireClient(broker.bootstrap) as first,
        WireClient(serving.bootstrap) as second,
    ):
        yield Two(first, second)


def committed(partition: int, offset: int, epoch: int, metadata: str | None) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": epoch,
        "committed_metadata": metadata,
    }


def commit(group: str | None, **of: Any) -> dict[str, Any]:
    """One request in the fields of all versions: what there is and what there is not, metadata as long as may be."""
    partitions = [
        committed(0, 42, 5, "of 0"),
        committed(2, 2**62, -1, None),
        committed(3, 1, 0, "no such partition"),
        committed(1, 0, 0, "é" * LONGEST_METADATA),
    ]
    others = [
        committed(0, 7, 0, "é" * (LONGEST_METADATA + 1)),
        committed(1, 8, 0, "😀" * (LONGEST_METADATA // 2)),
    ]
    topics = [{"name": FIRST, "partitions": partitions}, {"name": SECOND, "partitions": others}]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time_ms": -1,
        "topics": topics,
        **of,
    }


def fetch(*groups: str, topics: list[dict[str, Any]] | None = None, **of: Any) -> dict[str, Any]:
    """One request in the fields of all versions."""
    asked = [{"name": FIRST, "partition_indexes": [0, 1, 2, 3]}, {"name": SECOND, "partition_indexes": [1, 0]}]
    asked = asked if topics is None else topics
    return {
        "group_id": groups[0],
        "topics": asked,
        "groups": [{"group_id": name, "topics": asked} for name in groups],
    } | of


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_commits_and_what_is_fetched_of_them_in_every_version(two: Two, version: int) -> None:
    group = f"as-a-broker-{version}"
    first, second = two.ask(OFFSET_COMMIT, version, commit(group))
    assert second == first
    for fetched in FETCH_VERSIONS:
        first, second = two.ask(OFFSET_FETCH, fetched, fetch(group, require_stable=fetched % 2 == 0))
        assert second == first
        if fetched >= 2:
            everything = fetch(group) | {"topics": None, "groups": [{"group_id": group, "topics": None}]}
            first, second = two.ask(OFFSET_FETCH, fetched, everything)
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
def test_who_may_not_commit(two: Two, version: int, committer: dict[str, Any]) -> None:
    """To a group that is not there, and to one that only commits have made."""
    two.ask(OFFSET_COMMIT, 7, commit("as-a-broker-simple"))
    for group in ("as-a-broker-not-there", "as-a-broker-simple"):
        first, second = two.ask(OFFSET_COMMIT, version, commit(group, **committer))
        assert second == first


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_what_is_not_there(two: Two, version: int) -> None:
    asked = [fetch("as-a-broker-never"), fetch("as-a-broker-never", topics=[])]
    asked.append(
        fetch("as-a-broker-never") | {"topics": None, "groups": [{"group_id": "as-a-broker-never", "topics": None}]}
    )
    if version < 10:
        asked.append(
            fetch("as-a-broker-never", topics=[{"name": "no-such-topic", "partition_indexes": [0, 2**31 - 1]}])
        )
    for values in asked if version >= 2 else asked[:2]:
        first, second = two.ask(OFFSET_FETCH, version, values)
        assert second == first


@pytest.mark.parametrize("version", range(8, 11))
def test_several_groups_in_one_request(two: Two, version: int) -> None:
    two.ask(OFFSET_COMMIT, 7, commit("as-a-broker-several"))
    first, second = two.ask(OFFSET_FETCH, version, fetch("as-a-broker-several", "as-a-broker-never", ""))
    assert second == first


@pytest.mark.parametrize("version", range(9, 11))
def test_members_that_are_not_there(two: Two, version: int) -> None:
    two.ask(OFFSET_COMMIT, 7, commit("as-a-broker-members"))
    for group in ("as-a-broker-members", "as-a-broker-never"):
        for member in ({"member_id": "nobody", "member_epoch": 1}, {"member_id": None, "member_epoch": 1}):
            values = fetch(group)
            values["groups"] = [values["groups"][0] | member]
            first, second = two.ask(OFFSET_FETCH, version, values)
            assert second == first


def test_the_empty_group(two: Two) -> None:
    for version in (2, 7, 9):
        first, second = two.ask(OFFSET_COMMIT, version, commit(""))
        assert second == first
        first, second = two.ask(OFFSET_FETCH, version, fetch(""))
        assert second == first
