"""Who may do what to which groups, and what those are told who may not: as a broker tells a user without rights."""

import gc
import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from offsetlake.errors import BadRequest
from offsetlake.serve.auth import acl as rights_module
from offsetlake.serve.auth.acl import ADMIN, ANY_RIGHT, COMMIT, READ, Access, Acl, Grant
from offsetlake.serve.auth.principals import Client
from offsetlake.serve.protocol.api_keys import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_TOPIC_PARTITIONS,
    END_TXN,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    TXN_OFFSET_COMMIT,
)
from support.broker.broker import PASSWORDS, Broker
from support.serve.broker_comparison import commit, fetch
from support.serve.in_process import InProcess
from support.serve.secured import log_in
from support.serve.wire_client import WireClient, frame, read_answer, request
from support.serve.wire_client import plain as as_plain

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, DESCRIBE_GROUPS, LIST_GROUPS = 8, 9, 10, 15, 16
DELETE_GROUPS, OFFSET_DELETE, CONSUMER_GROUP_DESCRIBE = 42, 47, 69
DENIED, NOT_YOUR_TOPIC, NOT_YOUR_ID = 30, 29, 53
LOG = "__consumer_offsets"
FILE = """
[[rights]]
principal = "User:billing"
group = "billing-*"
rights = ["read", "commit"]

[[rights]]
principal = "User:billing"
group = "billing-old"
rights = ["admin"]

[[rights]]
principal = "*"
group = "open-[ab]"
rights = ["read"]

[[rights]]
principal = "User:auditor"
group = "*"
rights = ["read"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rights.toml"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    ("principal", "group", "rights"),
    [
        ("User:billing", "billing-1", READ | COMMIT),
        ("User:billing", "billing-old", READ | COMMIT | ADMIN),
        ("User:billing", "xbilling-1", 0),
        ("User:billing", "billing-é\n", READ | COMMIT),
        ("User:billing", "open-a", READ),
        ("User:billing", "open-c", 0),
        ("User:nobody", "billing-1", 0),
        ("User:nobody", "open-b", READ),
        ("User:ANONYMOUS", "open-b", READ),
        ("User:auditor", "whatever", READ),
        ("User:*", "billing-1", 0),
    ],
)
def test_what_the_file_gives_and_nothing_else(file: Path, principal: str, group: str, rights: int) -> None:
    access = Acl(file).access(principal)
    for _ in range(2):
        assert [bit for bit in (READ, COMMIT, ADMIN) if access.may(bit, group.encode())] == [
            bit for bit in (READ, COMMIT, ADMIN) if rights & bit
        ]
    assert access.sees(group.encode()) is bool(rights & READ)
    assert access.may_read_log() is (principal == "User:auditor")


def test_rights_change_for_those_who_are_connected(file: Path) -> None:
    rights = Acl(file)
    access = rights.access("User:billing")
    assert access is rights.access("User:billing")
    assert access.may(COMMIT, b"billing-1")
    file.write_text(FILE.replace('["read", "commit"]', '["read"]'))
    rights.read()
    assert not access.may(COMMIT, b"billing-1")
    file.write_text(FILE.replace('"User:auditor"', '"auditor"'))
    with pytest.raises(BadRequest, match="number 4: principal is 'auditor'"):
        rights.read()
    assert access.may(READ, b"billing-1")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[rights]", "cannot be read"),
        ("rights = 1", r"write \[\[rights\]\]"),
        ("[rights]", r"write \[\[rights\]\]"),
        ("[[right]]", "unknown right"),
        ("[[rights]]", "principal is None"),
        ('[[rights]]\nprincipal = "User:a"\ngroup = "*"\nrights = []', "rights is"),
        ('[[rights]]\nprincipal = "User:a"\ngroup = ""\nrights = ["read"]', "a pattern must be a string"),
        ('[[rights]]\nprincipal = "User:a"\ngroup = 7\nrights = [["read"]]', "a pattern must be a string.*rights is"),
    ],
)
def test_a_file_with_an_error_says_where(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    with pytest.raises(BadRequest, match=says):
        Acl(file)


def test_a_refusal_leaves_one_line(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    client.principal, client.address = "User:other", "192.0.2.7:4711"
    client.access = Access([Grant("User:other", "other", READ)])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert not client.may(COMMIT, b"billing\n2026")
        assert not client.may(ANY_RIGHT, b"billing")
        assert not client.may(READ, b"x" * 30_000)
    assert caplog.messages == [
        r"User:other from 192.0.2.7:4711 may not commit group 'billing\n2026'",
        "User:other from 192.0.2.7:4711 may not read or commit or admin group 'billing'",
        f"User:other from 192.0.2.7:4711 may not read group '{'x' * 255}…'",
    ]


def test_long_names_are_not_kept_in_mind() -> None:
    access = Access([Grant("User:other", "x*", READ)])
    for number in range(3):
        name = b"x" * 30_000 + bytes([number])
        assert access.may(READ, name)
        assert not access.may(COMMIT, name)
        assert access.is_first_refusal(COMMIT, name) is (number == 0)
    assert access.may(READ, b"x")
    assert (access._kept, len(access._refused)) == ({b"x": READ}, 1)


def test_who_comes_again_is_known_and_not_all_who_ever_came(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights_module, "HELD", 2)
    rights = Acl(file)
    assert rights.access("User:other").is_first_refusal(READ, b"billing")
    assert not rights.access("User:other").is_first_refusal(READ, b"billing")
    for principal in ("User:a", "User:b", "User:c"):
        rights.access(principal)
    gc.collect()
    assert {*rights._known} == {*rights._held} == {"User:b", "User:c"}


FOREIGN = "as-a-broker-foreign"
PRODUCER = {"transactional_id": FOREIGN, "producer_id": 1, "producer_epoch": 0}
_OFFSET = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
COMMITTED = {"group_id": FOREIGN, "topics": [{"name": "orders", "partitions": [_OFFSET]}]}
REQUESTS: list[tuple[int, range, dict[str, Any]]] = [
    (OFFSET_COMMIT, range(2, 10), commit(FOREIGN)),
    (OFFSET_FETCH, range(1, 10), fetch(FOREIGN)),
    (FIND_COORDINATOR, range(7), {"key": FOREIGN, "key_type": 0, "coordinator_keys": [FOREIGN, "foreign-2"]}),
    (DESCRIBE_GROUPS, range(7), {"groups": [FOREIGN], "include_authorized_operations": True}),
    (CONSUMER_GROUP_DESCRIBE, range(2), {"group_ids": [FOREIGN], "include_authorized_operations": True}),
    (LIST_GROUPS, range(6), {"states_filter": [], "types_filter": []}),
    (DELETE_GROUPS, range(3), {"groups_names": [FOREIGN]}),
    (OFFSET_DELETE, range(1), {"group_id": FOREIGN, "topics": []}),
    (FIND_COORDINATOR, range(1, 7), {"key": FOREIGN, "key_type": 1, "coordinator_keys": [FOREIGN]}),
    (INIT_PRODUCER_ID, range(6), {"transactional_id": FOREIGN, "transaction_timeout": timedelta(minutes=1)}),
    (
        ADD_PARTITIONS_TO_TXN,
        range(4),
        {
            **{f"v3_and_below_{name}": value for name, value in PRODUCER.items()},
            "v3_and_below_topics": [{"name": "orders", "partitions": [0]}],
            "transactions": [],
        },
    ),
    (ADD_OFFSETS_TO_TXN, range(5), PRODUCER | {"group_id": FOREIGN}),
    (END_TXN, range(6), PRODUCER | {"committed": True}),
    (TXN_OFFSET_COMMIT, range(6), PRODUCER | COMMITTED),
]


@pytest.fixture(scope="module")
def stranger(broker: Broker) -> Iterator[WireClient]:
    """Logged in to a broker as one who has no rights at all."""
    with WireClient(broker.sasl_bootstrap) as client:
        yield log_in(client, "stranger", PASSWORDS["stranger"])


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize(
    ("api", "version", "values"),
    [(api, version, values) for api, versions, values in REQUESTS for version in versions],
)
def test_who_has_no_rights_is_told_what_a_broker_tells(
    monkeypatch: pytest.MonkeyPatch,
    stranger: WireClient,
    shared: InProcess,
    api: int,
    version: int,
    values: dict[str, Any],
) -> None:
    monkeypatch.setattr(shared.client, "access", Access([]))
    made = request(api, version, values)
    theirs = stranger.ask(api, version, values)
    frame_of_it = frame(api, version, 1, made)[4:]
    _, ours = read_answer(api, version, bytes(4) + shared.answer(frame_of_it))
    assert _untold(as_plain(ours)) == _untold(theirs)


def _untold(answer: Any) -> Any:
    """Leave out the sentences some errors come with."""
    if isinstance(answer, list):
        return [_untold(each) for each in answer]
    if isinstance(answer, dict):
        return {name: _untold(each) for name, each in answer.items() if name != "error_message"}
    return answer


def test_who_has_rights_is_answered(served: InProcess) -> None:
    group = next(row["group_id"] for row in served.ask(LIST_GROUPS, 5)["groups"])
    for rights, read, admin in ((READ, 0, DENIED), (ADMIN, DENIED, 0), (COMMIT, DENIED, DENIED)):
        served.client.access = Access([Grant("*", group, rights)])
        listed = [row["group_id"] for row in served.ask(LIST_GROUPS, 5)["groups"]]
        assert listed == ([] if read else [group])
        asked = [{"group_id": name, "topics": None} for name in (group, "foreign")]
        found = served.ask(OFFSET_FETCH, 8, groups=asked, require_stable=False)["groups"]
        assert [each["error_code"] for each in found] == [read, DENIED]
        described = served.ask(DESCRIBE_GROUPS, 5, groups=[group, "foreign"])["groups"]
        assert [each["error_code"] for each in described] == [read, DENIED]
        found = served.ask(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group, "foreign"])["coordinators"]
        assert [each["error_code"] for each in found] == [0, DENIED]
        deleted = served.ask(OFFSET_DELETE, 0, group_id=group, topics=[])
        assert (deleted["error_code"] == DENIED) is bool(admin)


def test_a_transaction_takes_a_right_on_its_id_and_on_the_group(served: InProcess) -> None:
    def producer() -> dict[str, Any]:
        return served.ask(INIT_PRODUCER_ID, 4, transactional_id="mine-1", transaction_timeout=timedelta(minutes=1))

    served.client.access = Access([Grant("*", "mine-*", COMMIT)])
    begun = producer()
    assert begun["error_code"] == 0
    of = {"transactional_id": "mine-1", "producer_id": begun["producer_id"], "producer_epoch": begun["producer_epoch"]}
    assert served.ask(ADD_OFFSETS_TO_TXN, 3, **of, group_id="mine-g")["error_code"] == 0
    assert served.ask(ADD_OFFSETS_TO_TXN, 3, **of, group_id="foreign")["error_code"] == DENIED
    topics = [{"name": "t", "partitions": [_OFFSET]}]
    for group, code in (("mine-g", 0), ("foreign", DENIED)):
        answer = served.ask(TXN_OFFSET_COMMIT, 3, **of, group_id=group, topics=topics)
        assert answer["topics"][0]["partitions"][0]["error_code"] == code
    served.client.access = Access([Grant("*", "mine-g", COMMIT)])
    assert producer()["error_code"] == NOT_YOUR_ID
    assert served.ask(END_TXN, 3, **of, committed=True)["error_code"] == NOT_YOUR_ID
    served.client.access = Access([Grant("*", "mine-*", COMMIT)])
    assert served.ask(END_TXN, 3, **of, committed=True)["error_code"] == 0


def test_nothing_is_kept_of_groups_that_somebody_without_rights_names(served: InProcess) -> None:
    served.client.access = Access([])
    before = served.commits._place_once.cache_info()
    for version in range(6):
        answer = served.ask(TXN_OFFSET_COMMIT, version, **PRODUCER, **COMMITTED)
        assert answer["topics"][0]["partitions"][0]["error_code"] == NOT_YOUR_ID
    assert served.commits._place_once.cache_info() == before


@pytest.mark.parametrize(
    ("grants", "lists"),
    [
        ([], False),
        ([Grant("*", "*", COMMIT)], False),
        ([Grant("*", "**", READ)], False),
        ([Grant("*", "billing-*", READ | COMMIT | ADMIN)], False),
        ([Grant("*", "*", READ)], True),
        ([Grant("*", "*", ADMIN)], True),
    ],
)
def test_all_topics_are_listed_to_those_who_may_read_all_groups(
    served: InProcess, grants: list[Grant], lists: bool
) -> None:
    known = {name.decode() for name in served.topics.known()}
    assert {"orders", LOG} <= known
    served.client.access = Access(grants)
    for version, topics in ((0, []), (8, None), (12, None)):
        listed = served.ask(METADATA, version, topics=topics)
        assert len(listed["brokers"]) == 1
        assert {topic["name"] for topic in listed["topics"]} == (known if lists else set())
    asked = {"topics": [], "response_partition_limit": 2000, "cursor": None}
    listed = served.ask(DESCRIBE_TOPIC_PARTITIONS, 0, **asked)
    assert {topic["name"] for topic in listed["topics"]} == (known if lists else set())
    (named,) = served.ask(METADATA, 12, topics=[{"name": "orders", "topic_id": None}])["topics"]
    assert (named["error_code"], len(named["partitions"])) == (0, served.topics.partitions(b"orders"))


@pytest.mark.broker
@pytest.mark.slow
def test_a_broker_lists_no_topics_either(stranger: WireClient) -> None:
    asked = {"topics": None, "include_cluster_authorized_operations": False}
    assert stranger.ask(METADATA, 8, asked | {"include_topic_authorized_operations": False})["topics"] == []


def test_the_log_is_read_by_who_may_read_all_groups(served: InProcess) -> None:
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    request_of_it = {
        "max_wait": timedelta(0),
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "topics": [{"topic": LOG, "partitions": [wanted]}],
    }
    ends = {"topics": [{"name": LOG, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
    for rights, code in (
        ([Grant("*", "*", READ)], 0),
        ([Grant("*", "billing-*", READ | COMMIT | ADMIN)], NOT_YOUR_TOPIC),
    ):
        served.client.access = Access(rights)
        (fetched,) = served.ask(FETCH, 4, **request_of_it)["responses"]
        assert fetched["partitions"][0]["error_code"] == code
        (found,) = served.ask(LIST_OFFSETS, 1, **ends)["topics"]
        assert found["partitions"][0]["error_code"] == code
