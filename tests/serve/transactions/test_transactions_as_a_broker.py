"""Scripts of transactions with all versions of all requests: a real broker and the server give the same answers."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from offsetlake.serve.protocol.api_keys import (
    ADD_OFFSETS_TO_TXN,
    API_VERSIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
    VERSIONS,
)
from support.broker import workload
from support.broker.broker import Broker
from support.serve.kio_requests import ask
from support.serve.serving import Serving
from support.serve.transaction_comparison import PARTITIONS, TOPIC, Side

pytestmark = [pytest.mark.broker, pytest.mark.slow]

OLD, NEW = 3, 5  # versions of TxnOffsetCommit: the group's partition is added before the commit, or by it
TIMED_OUT = "transactions-timed-out"
TIMED_OUT_IDS = [f"{TIMED_OUT}-{number}" for number in range(4)]

Script = Callable[[Side], Iterator[Any]]


@pytest.fixture(scope="module")
def sides(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    folder = tmp_path_factory.mktemp("transactions")
    workload.create_topic(broker.bootstrap, TOPIC, PARTITIONS)
    with Serving(folder / "lake", folder / "log", topics={TOPIC: PARTITIONS}) as serving:
        both = Side(broker.bootstrap), Side(serving.bootstrap)
        for side in both:  # a broker checks for timeouts every ten seconds
            begin_transactions_that_time_out(side)
        yield both


def begin_transactions_that_time_out(side: Side) -> None:
    side.plain(TIMED_OUT, 5)
    for name in TIMED_OUT_IDS:
        side.init(name, timeout=0.05)
        side.commit(name, TIMED_OUT, 6, NEW)


def commits_and_aborts(side: Side) -> Iterator[Any]:
    for version in VERSIONS[TXN_OFFSET_COMMIT]:
        name = group = f"transactions-{version}"
        init = min(version, VERSIONS[INIT_PRODUCER_ID][-1])
        yield side.init(name, init)
        for offset, commits in ((10, True), (11, False), (12, True)):
            if version < NEW:
                yield side.add(name, group, min(version, VERSIONS[ADD_OFFSETS_TO_TXN][-1]))
            yield side.commit(name, group, offset, version, (0, 2))
            yield side.fetched(group), side.fetched(group, stable=True)
            yield side.end(name, version, commits=commits)
            yield side.settled(group)


def unknown_producers(side: Side) -> Iterator[Any]:
    group = "transactions-nobody"
    for version in VERSIONS[ADD_OFFSETS_TO_TXN]:
        yield side.add("transactions-unknown", group, version), side.add("", group, version)
    for version in VERSIONS[END_TXN]:
        yield side.end("transactions-unknown", version, commits=True), side.end("", version, commits=False)
    side.init("transactions-known")
    side.init("transactions-known")
    for version in VERSIONS[ADD_OFFSETS_TO_TXN]:
        yield side.add("transactions-known", group, version, producer_id=1 << 50)
        yield side.add("transactions-known", group, version, like="transactions-known", older=1)
        yield side.add("transactions-known", group, version, like="transactions-known", older=-1)
    for version in VERSIONS[END_TXN]:
        yield side.end("transactions-known", version, commits=True, producer_id=1 << 50)
        yield side.end("transactions-known", version, commits=True, like="transactions-known", older=2)
        yield side.end("transactions-known", version, commits=True)
    for version in VERSIONS[TXN_OFFSET_COMMIT]:
        yield side.commit("transactions-unknown", group, 5, version)
        yield side.commit("transactions-known", group, 5, version, producer_id=1 << 50)
        yield side.commit("transactions-known", group, 5, version, like="transactions-known", older=1)
        if version < NEW:
            yield side.commit("transactions-known", group, 5, version)
    yield side.fetched(group, stable=True)


def producer_initialization(side: Side) -> Iterator[Any]:
    name = group = "transactions-begins"
    for version in VERSIONS[INIT_PRODUCER_ID]:
        yield side.init(name, version), side.init("", version)
        yield side.init(name, version, timeout=0), side.init(name, version, timeout=901)
        yield side.init(None, version)[1:]
    yield side.init(name, 4, like=name), side.init(name, 4, like=name, older=1), side.init(name, 4, like=name, older=3)
    yield side.init(name, 3, like=name, older=3), side.init(name, 4, producer_id=1 << 50, producer_epoch=3)
    yield side.init(name, 4, producer_id=5), side.init(name, 4, producer_epoch=5)
    for version in (0, 5):  # an open transaction of the producer before is aborted, its epochs raised
        side.plain(group, version)
        side.commit(name, group, 99, NEW)
        yield side.init(name, version)
        yield side.settled(group)


def retried_ends(side: Side) -> Iterator[Any]:
    name = group = "transactions-again"
    side.init(name)
    for first in (True, False):
        side.add(name, group)
        side.commit(name, group, 1, OLD)
        yield side.end(name, 1, commits=first)
        side.settled(group)
        yield side.end(name, 1, commits=first), side.end(name, 1, commits=not first)
    for first in (True, False):
        side.commit(name, group, 2, NEW)
        yield side.end(name, 5, commits=first)
        side.settled(group)
        yield side.end(name, 5, commits=first, like=name, older=1)
        yield side.end(name, 5, commits=not first, like=name, older=1)
        yield side.end(name, 5, commits=True), side.end(name, 5, commits=False)
    yield side.init(name), side.end(name, 5, commits=False), side.end(name, 4, commits=True)


def writes_during_a_transaction(side: Side) -> Iterator[Any]:
    one, other, group = "transactions-one", "transactions-other", "transactions-between"
    side.init(one), side.init(other)
    side.plain(group, 1, (0, 1, 2, 3))
    yield side.commit(one, group, 10, NEW, (0, 1, 2, 3)), side.commit(other, group, 20, NEW, (1, 2))
    yield side.plain(group, 30, (2,)), side.delete_offset(group, 3)
    yield side.fetched(group), side.fetched(group, stable=True)
    yield side.end(other, 5, commits=True)
    yield side.end(one, 5, commits=True)
    yield side.settled(group)
    yield side.commit(one, group, 40, NEW, (0, 1)), side.delete_group(group)
    yield side.fetched(group, stable=True), side.end(one, 5, commits=True), side.settled(group)
    yield side.commit(one, "transactions-made", 1, NEW), side.end(one, 5, commits=False)
    yield side.settled("transactions-made"), side.delete_group("transactions-made")


def invalid_commits(side: Side) -> Iterator[Any]:
    name, group = "transactions-wrong", "transactions-wrong"
    side.init(name)
    missing = {"name": "transactions-no-topic", "partitions": [{"partition_index": 0, "committed_offset": 1}]}
    missing["partitions"][0]["committed_metadata"] = ""
    for version in VERSIONS[TXN_OFFSET_COMMIT]:
        side.add(name, group), side.add(name, "")
        yield (
            side.commit(name, group, 1, version, (0, PARTITIONS)),
            side.commit(name, group, 1, version, topics=[missing]),
        )
        yield side.commit(name, group, 1, version, metadata="é" * 4097), side.commit(name, "", 1, version)
        if version >= OLD:
            yield side.commit(name, "transactions-none", 1, version, generation_id=1) if version == NEW else None
            yield side.commit(name, group, 1, version, generation_id=1, member_id="m")
            yield side.commit(name, group, 1, version, group_instance_id="i")
        yield side.end(name, min(version, 4), commits=True)
        yield side.settled(group)


def old_producer_is_fenced(side: Side) -> Iterator[Any]:
    name = group = "transactions-fenced"
    side.init(name, 0)
    side.add(name, group, 0)
    yield side.commit(name, group, 1, 0)
    old = dict(zip(("producer_id", "producer_epoch"), side.producers[name], strict=True))
    yield side.init(name, 4)
    for version in (0, 3, 4, 5):
        yield side.commit(name, group, 2, version, **old)
    yield side.add(name, group, 0, **old), side.add(name, group, 3, **old)
    yield side.end(name, 0, commits=True, **old), side.end(name, 3, commits=True, **old)
    yield side.end(name, 5, commits=True, **old), side.settled(group)


SCRIPTS = (
    commits_and_aborts,
    unknown_producers,
    producer_initialization,
    retried_ends,
    writes_during_a_transaction,
    invalid_commits,
    old_producer_is_fenced,
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_server_and_broker_give_the_same_answers(sides: tuple[Side, Side], script: Script) -> None:
    theirs, ours = ([*script(side)] for side in sides)
    for number, (their, our) in enumerate(zip(theirs, ours, strict=True)):
        assert our == their, f"answer {number}"


def timed_out_transactions(side: Side) -> Iterator[Any]:
    yield side.settled(TIMED_OUT)
    ended, ended_old, committed, begun = TIMED_OUT_IDS
    yield side.end(ended, 5, commits=True), side.end(ended, 5, commits=False), side.init(ended)
    yield side.end(ended_old, 4, commits=True), side.end(ended_old, 4, commits=False), side.init(ended_old)
    yield side.commit(committed, TIMED_OUT, 7, NEW), side.add(committed, TIMED_OUT), side.init(committed)
    yield side.init(begun, 4, like=begun), side.init(begun, 4)


def test_timed_out_transaction_is_aborted(sides: tuple[Side, Side]) -> None:
    theirs, ours = ([*timed_out_transactions(side)] for side in sides)
    assert ours == theirs
    assert ours[0][0] == (5, "", 0)


@pytest.mark.parametrize("version", VERSIONS[API_VERSIONS][3:])
def test_api_versions_announces_transaction_version(sides: tuple[Side, Side], version: int) -> None:
    software = {"client_software_name": "a", "client_software_version": "1"}
    answers = [ask(side.bootstrap, API_VERSIONS, version, **software) for side in sides]
    theirs, ours = (
        [
            [feature for feature in answer[which] if feature["name"] == "transaction.version"]
            for which in ("supported_features", "finalized_features")
        ]
        for answer in answers
    )
    assert ours == theirs
    assert answers[1]["finalized_features_epoch"] >= 0


@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS[FIND_COORDINATOR][1:])
def test_find_coordinator_returns_the_transaction_coordinator(sides: tuple[Side, Side], version: int) -> None:
    answers = [
        ask(side.bootstrap, FIND_COORDINATOR, version, key="a", key_type=1, coordinator_keys=["a"]) for side in sides
    ]
    for side, answer in zip(sides, answers, strict=True):
        (coordinator,) = answer.get("coordinators", [answer])
        assert (coordinator["error_code"], f"{coordinator['host']}:{coordinator['port']}") == (0, side.bootstrap)
