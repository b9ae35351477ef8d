"""ACLs: the permissions that a file grants, and the responses to clients without them, which are those of a broker."""

import gc
import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from offsetlake.auth import acl as acl_module
from offsetlake.auth.acl import ADMIN, ANY_PERMISSION, COMMIT, READ, Access, Acl, Grant
from offsetlake.errors import BadRequest
from offsetlake.serve.net.client import Client
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
DENIED, TOPIC_DENIED, TRANSACTIONAL_ID_DENIED = 30, 29, 53
LOG = "__consumer_offsets"
FILE = """
[[acl]]
principal = "User:billing"
group = "billing-*"
permissions = ["read", "commit"]

[[acl]]
principal = "User:billing"
group = "billing-old"
permissions = ["admin"]

[[acl]]
principal = "*"
group = "open-[ab]"
permissions = ["read"]

[[acl]]
principal = "User:auditor"
group = "*"
permissions = ["read"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "acl.toml"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    ("principal", "group", "permissions"),
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
def test_principal_has_exactly_the_permissions_of_the_file(
    file: Path, principal: str, group: str, permissions: int
) -> None:
    access = Acl(file).access(principal)
    for _ in range(2):
        assert [bit for bit in (READ, COMMIT, ADMIN) if access.may(bit, group.encode())] == [
            bit for bit in (READ, COMMIT, ADMIN) if permissions & bit
        ]
    assert access.sees(group.encode()) is bool(permissions & READ)
    assert access.may_read_log() is (principal == "User:auditor")


def test_permissions_on_topics_are_separate_from_those_on_groups(file: Path) -> None:
    acl = Acl(file)
    access = acl.access("User:auditor")
    assert not access.may_read_topic(b"orders-1")
    file.write_text(FILE + '[[acl]]\nprincipal = "User:auditor"\ntopic = "orders-?"\npermissions = ["read"]\n')
    acl.read()
    assert access.may_read_topic(b"orders-1")
    assert not access.may_read_topic(b"orders-10")
    assert not acl.access("User:nobody").may_read_topic(b"orders-1")
    assert not acl.access("User:billing").may(READ, b"orders-1")


def test_changed_file_changes_permissions_of_connected_clients(file: Path) -> None:
    acl = Acl(file)
    access = acl.access("User:billing")
    assert access is acl.access("User:billing")
    assert access.may(COMMIT, b"billing-1")
    file.write_text(FILE.replace('["read", "commit"]', '["read"]'))
    acl.read()
    assert not access.may(COMMIT, b"billing-1")
    file.write_text(FILE.replace('"User:auditor"', '"auditor"'))
    with pytest.raises(BadRequest, match="entry 4: invalid principal 'auditor'"):
        acl.read()
    assert access.may(READ, b"billing-1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[acl]", "Cannot read ACL file"),
        ("acl = 1", r"write one \[\[acl\]\]"),
        ("[acl]", r"write one \[\[acl\]\]"),
        ("[[rights]]", "unknown key 'rights'"),
        ("[[acl]]", "invalid principal None"),
        ('[[acl]]\nprincipal = "User:a"\ngroup = "*"\npermissions = []', "invalid permissions"),
        ('[[acl]]\nprincipal = "User:a"\ngroup = ""\npermissions = ["read"]', "entry 1: group: "),
        ('[[acl]]\nprincipal = "User:a"\ngroup = 7\npermissions = [["read"]]', "entry 1: group: .*invalid permissions"),
        ('[[acl]]\nprincipal = "*"\ntopic = ""\npermissions = ["read"]', "entry 1: topic: "),
        (
            '[[acl]]\nprincipal = "*"\ntopic = "t"\npermissions = ["commit"]',
            "unknown permission 'commit'; expected read",
        ),
        ('[[acl]]\nprincipal = "*"\ntopic = "t"\ngroup = "g"\npermissions = ["read"]', "both a group and a topic"),
    ],
)
def test_invalid_file_is_refused_with_the_place_of_the_error(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(BadRequest, match=message):
        Acl(file)


def test_repeated_refusal_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    client.principal, client.address = "User:other", "192.0.2.7:4711"
    client.access = Access([Grant("User:other", "other", READ)])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert not client.may(COMMIT, b"billing\n2026")
        assert not client.may(ANY_PERMISSION, b"billing")
        assert not client.may(READ, b"x" * 30_000)
    denied = "User:other from 192.0.2.7:4711 was denied access to group "
    assert caplog.messages == [
        denied + r"'billing\n2026': it needs permission commit",
        denied + "'billing': it needs permission read or commit or admin",
        denied + f"'{'x' * 255}…': it needs permission read",
    ]


def test_long_group_names_are_not_cached() -> None:
    access = Access([Grant("User:other", "x*", READ)])
    for number in range(3):
        name = b"x" * 30_000 + bytes([number])
        assert access.may(READ, name)
        assert not access.may(COMMIT, name)
        assert access.is_first_refusal(COMMIT, name) is (number == 0)
    assert access.may(READ, b"x")
    assert (access._cached, len(access._denied)) == ({b"x": READ}, 1)


def test_only_recent_principals_are_cached(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_module, "MAX_CACHED_PRINCIPALS", 2)
    acl = Acl(file)
    assert acl.access("User:other").is_first_refusal(READ, b"billing")
    assert not acl.access("User:other").is_first_refusal(READ, b"billing")
    for principal in ("User:a", "User:b", "User:c"):
        acl.access(principal)
    gc.collect()
    assert {*acl._known} == {*acl._recent} == {"User:b", "User:c"}


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
    """A client that is logged in to a broker as a user without permissions."""
    with WireClient(broker.sasl_bootstrap) as client:
        yield log_in(client, "stranger", PASSWORDS["stranger"])


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize(
    ("api", "version", "values"),
    [(api, version, values) for api, versions, values in REQUESTS for version in versions],
)
def test_client_without_permissions_gets_the_response_of_a_broker(
    monkeypatch: pytest.MonkeyPatch,
    stranger: WireClient,
    shared: InProcess,
    api: int,
    version: int,
    values: dict[str, Any],
) -> None:
    monkeypatch.setattr(shared.client, "access", Access([]))
    request_frame = frame(api, version, 1, request(api, version, values))[4:]
    expected = stranger.ask(api, version, values)
    _, answer = read_answer(api, version, bytes(4) + shared.answer(request_frame))
    assert _without_messages(as_plain(answer)) == _without_messages(expected)


def _without_messages(answer: Any) -> Any:
    """Return an answer without its error messages."""
    if isinstance(answer, list):
        return [_without_messages(element) for element in answer]
    if isinstance(answer, dict):
        return {name: _without_messages(value) for name, value in answer.items() if name != "error_message"}
    return answer


def test_client_with_permissions_is_answered(served: InProcess) -> None:
    group = next(row["group_id"] for row in served.ask(LIST_GROUPS, 5)["groups"])
    for permission, read, admin in ((READ, 0, DENIED), (ADMIN, DENIED, 0), (COMMIT, DENIED, DENIED)):
        served.client.access = Access([Grant("*", group, permission)])
        listed = [row["group_id"] for row in served.ask(LIST_GROUPS, 5)["groups"]]
        assert listed == ([] if read else [group])
        groups = [{"group_id": name, "topics": None} for name in (group, "foreign")]
        fetched = served.ask(OFFSET_FETCH, 8, groups=groups, require_stable=False)["groups"]
        assert [result["error_code"] for result in fetched] == [read, DENIED]
        described = served.ask(DESCRIBE_GROUPS, 5, groups=[group, "foreign"])["groups"]
        assert [result["error_code"] for result in described] == [read, DENIED]
        coordinators = served.ask(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group, "foreign"])["coordinators"]
        assert [result["error_code"] for result in coordinators] == [0, DENIED]
        deleted = served.ask(OFFSET_DELETE, 0, group_id=group, topics=[])
        assert (deleted["error_code"] == DENIED) is bool(admin)


def test_transaction_needs_permission_on_its_id_and_on_the_group(served: InProcess) -> None:
    def producer() -> dict[str, Any]:
        return served.ask(INIT_PRODUCER_ID, 4, transactional_id="mine-1", transaction_timeout=timedelta(minutes=1))

    served.client.access = Access([Grant("*", "mine-*", COMMIT)])
    begun = producer()
    assert begun["error_code"] == 0
    fields = {name: begun[name] for name in ("producer_id", "producer_epoch")} | {"transactional_id": "mine-1"}
    assert served.ask(ADD_OFFSETS_TO_TXN, 3, **fields, group_id="mine-g")["error_code"] == 0
    assert served.ask(ADD_OFFSETS_TO_TXN, 3, **fields, group_id="foreign")["error_code"] == DENIED
    topics = [{"name": "t", "partitions": [_OFFSET]}]
    for group, code in (("mine-g", 0), ("foreign", DENIED)):
        answer = served.ask(TXN_OFFSET_COMMIT, 3, **fields, group_id=group, topics=topics)
        assert answer["topics"][0]["partitions"][0]["error_code"] == code
    served.client.access = Access([Grant("*", "mine-g", COMMIT)])
    assert producer()["error_code"] == TRANSACTIONAL_ID_DENIED
    assert served.ask(END_TXN, 3, **fields, committed=True)["error_code"] == TRANSACTIONAL_ID_DENIED
    served.client.access = Access([Grant("*", "mine-*", COMMIT)])
    assert served.ask(END_TXN, 3, **fields, committed=True)["error_code"] == 0


def test_refused_transactional_commit_does_not_cache_its_group(served: InProcess) -> None:
    served.client.access = Access([])
    before = served.commits._cached_log_partition.cache_info()
    for version in range(6):
        answer = served.ask(TXN_OFFSET_COMMIT, version, **PRODUCER, **COMMITTED)
        assert answer["topics"][0]["partitions"][0]["error_code"] == TRANSACTIONAL_ID_DENIED
    assert served.commits._cached_log_partition.cache_info() == before


@pytest.mark.parametrize(
    ("grants", "permitted"),
    [
        ([], False),
        ([Grant("*", "*", COMMIT)], False),
        ([Grant("*", "**", READ)], False),
        ([Grant("*", "billing-*", READ | COMMIT | ADMIN)], False),
        ([Grant("*", "*", READ)], True),
        ([Grant("*", "*", ADMIN)], True),
    ],
)
def test_topics_are_listed_only_for_clients_that_may_read_all_groups(
    served: InProcess, grants: list[Grant], permitted: bool
) -> None:
    known = {name.decode() for name in served.topics.known()}
    assert {"orders", LOG} <= known
    served.client.access = Access(grants)
    for version, topics in ((0, []), (8, None), (12, None)):
        listed = served.ask(METADATA, version, topics=topics)
        assert len(listed["brokers"]) == 1
        assert {topic["name"] for topic in listed["topics"]} == (known if permitted else set())
    values = {"topics": [], "response_partition_limit": 2000, "cursor": None}
    listed = served.ask(DESCRIBE_TOPIC_PARTITIONS, 0, **values)
    assert {topic["name"] for topic in listed["topics"]} == (known if permitted else set())
    (named,) = served.ask(METADATA, 12, topics=[{"name": "orders", "topic_id": None}])["topics"]
    assert (named["error_code"], len(named["partitions"])) == (0, served.topics.partitions(b"orders"))


@pytest.mark.broker
@pytest.mark.slow
def test_broker_lists_no_topics_for_client_without_permissions(stranger: WireClient) -> None:
    values = {"topics": None, "include_cluster_authorized_operations": False}
    assert stranger.ask(METADATA, 8, values | {"include_topic_authorized_operations": False})["topics"] == []


def test_log_is_read_only_by_clients_that_may_read_all_groups(served: InProcess) -> None:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    fetch_values = {
        "max_wait": timedelta(0),
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "topics": [{"topic": LOG, "partitions": [partition]}],
    }
    ends = {"topics": [{"name": LOG, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
    for grants, code in (
        ([Grant("*", "*", READ)], 0),
        ([Grant("*", "billing-*", READ | COMMIT | ADMIN)], TOPIC_DENIED),
    ):
        served.client.access = Access(grants)
        (fetched,) = served.ask(FETCH, 4, **fetch_values)["responses"]
        assert fetched["partitions"][0]["error_code"] == code
        (listed,) = served.ask(LIST_OFFSETS, 1, **ends)["topics"]
        assert listed["partitions"][0]["error_code"] == code
