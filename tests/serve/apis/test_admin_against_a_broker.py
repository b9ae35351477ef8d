"""The serving process, with a copy of a broker's log, gives the responses of that broker about groups."""

import itertools
import shutil
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

import pytest

from offsetlake.kafka.error_codes import OFFSET_NOT_AVAILABLE
from offsetlake.kafka.records.consumer_protocol import decode_assignment, decode_subscription
from offsetlake.serve.protocol.api_keys import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    VERSIONS,
)
from support.broker import workload
from support.broker.broker import Broker
from support.serve.kio_requests import ask
from support.serve.serving import Serving

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TOPIC, OTHER = "admin-one", "admin-other"
TOPICS = {TOPIC: 4, OTHER: 2}
ALL = {(TOPIC, number): 10 + number for number in range(4)}
CLASSIC, CONSUMER, PATTERN = "admin-classic", "admin-848", "admin-848-pattern"
SIMPLE, LEFT, LEFT_848, CONNECT, ABSENT = "admin-simple", "admin-left", "admin-left-848", "admin-connect", "admin-none"
GROUPS = (CLASSIC, CONSUMER, PATTERN, SIMPLE, LEFT, LEFT_848, CONNECT, ABSENT, "")


class Both(NamedTuple):
    """The bootstrap addresses of a broker, and of the server with a copy of its log."""

    broker: str
    served: str

    def __call__(self, api: int, version: int, **values: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return ask(self.broker, api, version, **values), ask(self.served, api, version, **values)


@pytest.fixture(scope="module")
def both(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """A broker with groups of all kinds, whose members stay during the tests, and a server with a copy of its log."""
    bootstrap, folder = broker.bootstrap, tmp_path_factory.mktemp("as-a-broker")
    for topic, partitions in TOPICS.items():
        workload.create_topic(bootstrap, topic, partitions)
    workload.simple_commit(bootstrap, SIMPLE, ALL | {(OTHER, 1): 3}, leader_epoch=0)
    workload.aiokafka_member(bootstrap, LEFT, ALL, "left")
    workload.connect_member(bootstrap, CONNECT)
    workload.member(bootstrap, LEFT_848, ALL, "consumer").close()
    commit = {"group_id": "", "topics": [{"name": OTHER, "partitions": [_committed(0, 5)]}]}
    assert ask(bootstrap, OFFSET_COMMIT, 9, **commit)["topics"][0]["partitions"][0]["error_code"] == 0
    with (
        closing(workload.member(bootstrap, CLASSIC, ALL, "classic")) as classic,
        closing(workload.member(bootstrap, CONSUMER, ALL, "consumer")) as consumer,
        closing(workload.member(bootstrap, PATTERN, ALL, "consumer", "^admin-o.*")),
    ):
        for member in (classic, consumer):
            workload.commit(member, {(OTHER, 0): 6})
        for path in broker.data_dir.glob("__consumer_offsets-*"):
            shutil.copytree(path, folder / "log" / path.name, ignore=shutil.ignore_patterns("*.index", "*.timeindex"))
        with Serving(folder / "lake", folder / "log", topics=TOPICS) as served:
            yield Both(bootstrap, served.bootstrap)


def _committed(partition: int, offset: int) -> dict[str, Any]:
    return {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}


def _without(found: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in names}


@pytest.mark.parametrize("version", VERSIONS[LIST_GROUPS])
def test_list_groups_matches_the_broker(both: Both, version: int) -> None:
    filters: Iterable[dict[str, Any]] = [{}]
    if version >= 4:
        filters = [{"states_filter": states} for states in ([], ["Empty"], ["stable", "eMpty"], ["Nonsense"])]
    if version >= 5:
        types = ([], ["classic"], ["Consumer"], ["share", "consumer"], ["nonsense"])
        filters = [one | {"types_filter": other} for one, other in itertools.product(filters, types)]
    for values in filters:
        _assert_same_list(both, version, **values)


def _assert_same_list(both: Both, version: int = 5, **values: Any) -> None:
    theirs, ours = (
        sorted((row for row in answer["groups"] if row["group_id"] in GROUPS), key=str)
        for answer in both(LIST_GROUPS, version, **values)
    )
    assert ours == theirs, values


@pytest.mark.parametrize("version", VERSIONS[DESCRIBE_GROUPS])
def test_describe_groups_matches_the_broker(both: Both, version: int) -> None:
    theirs, ours = (
        [_readable(_without(group, "authorized_operations")) for group in answer["groups"]]
        for answer in both(DESCRIBE_GROUPS, version, groups=GROUPS)
    )
    assert sorted(ours, key=str) == sorted(theirs, key=str)
    assert sum(len(group["members"]) for group in ours) == 2


def _readable(group: dict[str, Any]) -> dict[str, Any]:
    """Decode subscriptions and assignments, as far as the tables contain them: topics and partitions."""
    for member in group["members"] if group["protocol_type"] == "consumer" else ():
        subscription, _ = decode_subscription(member["member_metadata"])
        member["member_metadata"] = subscription and subscription["topics"]
        assignment, _ = decode_assignment(member["member_assignment"])
        member["member_assignment"] = assignment and assignment["assignedPartitions"]
    return group


@pytest.mark.parametrize("version", VERSIONS[CONSUMER_GROUP_DESCRIBE])
def test_consumer_group_describe_matches_the_broker(both: Both, version: int) -> None:
    theirs, ours = (
        [_without(group, "authorized_operations") for group in answer["groups"]]
        for answer in both(CONSUMER_GROUP_DESCRIBE, version, group_ids=GROUPS)
    )
    for group in theirs + ours:
        assert len(group["members"]) == (group["group_id"] in (CONSUMER, PATTERN))
        if group["group_id"] == PATTERN:  # two topics are assigned, and no commit of these clients has their ids
            for member in group["members"]:
                del member["assignment"], member["target_assignment"]
    assert sorted(ours, key=str) == sorted(theirs, key=str)


@pytest.mark.parametrize("version", VERSIONS[FIND_COORDINATOR])
def test_find_coordinator_matches_the_broker(both: Both, version: int) -> None:
    keys = [0, 2] if version in range(1, 6) else [0]
    for key_type in keys:
        values = {"key": CLASSIC, "key_type": key_type, "coordinator_keys": [CLASSIC, ABSENT]}
        theirs, ours = both(FIND_COORDINATOR, version, **values)
        found = zip(theirs.get("coordinators", [theirs]), ours.get("coordinators", [ours]), strict=True)
        for their, our in found:
            assert our["error_code"] == their["error_code"]
            assert (our["node_id"] == -1) == (their["node_id"] == -1)
            if not our["error_code"]:
                assert f"{our['host']}:{our['port']}" == both.served


@pytest.mark.parametrize("version", VERSIONS[METADATA])
def test_metadata_matches_the_broker(both: Both, version: int) -> None:
    names = [{"name": name, "topic_id": None} for name in (TOPIC, OTHER, ABSENT)]
    theirs, ours = (
        [_bare(topic) for topic in answer["topics"]]
        for answer in both(METADATA, version, topics=names, allow_auto_topic_creation=False)
    )
    assert sorted(ours, key=str) == sorted(theirs, key=str)


def _bare(topic: dict[str, Any]) -> dict[str, Any]:
    topic["partitions"] = sorted((row["error_code"], row["partition_index"]) for row in topic["partitions"])
    return _without(topic, "topic_authorized_operations", "topic_id")  # the log does not contain the id


@pytest.mark.parametrize("version", VERSIONS[LIST_OFFSETS][:-1])  # the broker is a 4.1
def test_list_offsets_has_the_error_codes_of_the_broker(both: Both, version: int) -> None:
    asked = [{"partition_index": number, "timestamp": -1} for number in (0, 1, 2)]
    topics = [{"name": name, "partitions": asked} for name in (TOPIC, OTHER, ABSENT)]
    theirs, ours = (
        {
            (topic["name"], row["partition_index"]): row["error_code"]
            for topic in answer["topics"]
            for row in topic["partitions"]
        }
        for answer in both(LIST_OFFSETS, version, topics=topics)
    )
    unknown = {key: code or OFFSET_NOT_AVAILABLE for key, code in theirs.items()}
    assert ours == unknown, "the lake does not contain the ends of these topics"


DELETIONS = (
    (CLASSIC, [(TOPIC, 0), (OTHER, 0), (OTHER, 1), (OTHER, 2), (ABSENT, 0)]),
    (CONSUMER, [(TOPIC, 0), (OTHER, 0), (OTHER, 1)]),
    (PATTERN, [(TOPIC, 0), (OTHER, 0), (ABSENT, 0)]),
    (SIMPLE, [(TOPIC, 0), (TOPIC, 3), (OTHER, 0), (OTHER, 5)]),
    (LEFT, [(TOPIC, 1)]),
    (LEFT_848, [(TOPIC, 1)]),
    (CONNECT, [(TOPIC, 1)]),
    (ABSENT, [(TOPIC, 1), (ABSENT, 1)]),
    ("", [(OTHER, 0)]),
)


@pytest.mark.long
def test_deletions_match_the_broker(both: Both) -> None:
    """Offsets first, then groups: the deletions depend on their order."""
    for group, keys in DELETIONS:
        topics = [
            {"name": name, "partitions": [{"partition_index": number} for row, number in keys if row == name]}
            for name in dict.fromkeys(name for name, _ in keys)
        ]
        theirs, ours = both(OFFSET_DELETE, 0, group_id=group, topics=topics)
        assert (group, ours["error_code"], _errors(ours)) == (group, theirs["error_code"], _errors(theirs))
        _assert_same_offsets(both, group)
    for version, group in ((0, SIMPLE), (1, LEFT), (2, LEFT_848), (2, ""), (2, CLASSIC), (1, CONSUMER), (0, CONNECT)):
        for _ in range(2):
            theirs, ours = both(DELETE_GROUPS, version, groups_names=[group])
            assert ours == theirs
        _assert_same_offsets(both, group)
    theirs, ours = both(DELETE_GROUPS, 2, groups_names=[ABSENT, CLASSIC, PATTERN])
    assert sorted(ours["results"], key=str) == sorted(theirs["results"], key=str)
    _assert_same_list(both)


def _errors(answer: dict[str, Any]) -> dict[tuple[str, int], int]:
    return {
        (topic["name"], row["partition_index"]): row["error_code"]
        for topic in answer["topics"]
        for row in topic["partitions"]
    }


def _assert_same_offsets(both: Both, group: str) -> None:
    theirs, ours = (
        {
            (topic["name"], row["partition_index"]): (row["committed_offset"], row["committed_leader_epoch"])
            for topic in answer["topics"]
            for row in topic["partitions"]
        }
        for answer in both(OFFSET_FETCH, 7, group_id=group, topics=None, require_stable=False)
    )
    assert ours == theirs, group
