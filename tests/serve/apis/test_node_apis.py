"""Requests that tools send to each node, about this process as a node, without a cluster."""

import asyncio
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from offsetlake.auth.acl import ADMIN, COMMIT, READ, Access, Grant
from offsetlake.node.configs import ConfigsInCluster
from offsetlake.node.requests import NodeResponse
from offsetlake.serve.apis.api_versions import api_versions
from offsetlake.serve.apis.log_dirs import LogDirs
from offsetlake.serve.apis.partition_requests import PartitionRequests
from offsetlake.serve.net.client import Client, RequestContext
from offsetlake.serve.net.security import Security
from offsetlake.serve.protocol import api_keys as apis
from offsetlake.serve.protocol.encoding import Lazy, encoded
from offsetlake.serve.protocol.schemas import read, response_schema
from offsetlake.serve.protocol.wire import read_header
from offsetlake.serve.steps import complete
from support.oracle.log_reader import read_log
from support.serve.commands import CONSUMER
from support.serve.in_process import HOST, PORT, InProcess
from support.serve.kio_requests import request
from support.serve.transaction_driver import Transacting

LOG, HANGING = "__consumer_offsets", 39  # a log partition with an open transaction
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
NODE = "0"


def resource(kind: int, name: str, *keys: str) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}


def configs(served: InProcess, *resources: dict[str, Any], version: int = 4, **fields: Any) -> list[dict[str, Any]]:
    values = {"resources": resources, "include_synonyms": False, "include_documentation": False} | fields
    found: list[dict[str, Any]] = served.ask(apis.DESCRIBE_CONFIGS, version, **values)["results"]
    return found


def values(result: dict[str, Any]) -> dict[str, str]:
    assert result["error_code"] == 0
    return {row["name"]: row["value"] for row in result["configs"]}


@pytest.mark.parametrize("version", apis.VERSIONS[apis.DESCRIBE_CONFIGS])
def test_node_describes_its_settings(shared: InProcess, version: int) -> None:
    (result,) = configs(shared, resource(BROKER, NODE), version=version, include_synonyms=True)
    found = values(result)
    assert {name: found[name] for name in ("node.id", "listeners", "advertised.listeners", "log.dirs")} == {
        "node.id": NODE,
        "listeners": f"PLAINTEXT://127.0.0.1:{PORT}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{PORT}",
        "log.dirs": str(shared.log.resolve()),
    }
    assert found["group.consumer.assignors"] == "uniform,range"
    assert found["transaction.max.timeout.ms"] == "900000"
    assert found["auto.create.topics.enable"] == "false"
    assert all(row["read_only"] and not row["is_sensitive"] for row in result["configs"])
    assert all([each["value"] for each in row["synonyms"]] == [row["value"]] for row in result["configs"])


def test_settings_are_selected_by_name(shared: InProcess) -> None:
    wanted = resource(BROKER, NODE, "node.id", "no.such.setting", "max.connections")
    assert values(configs(shared, wanted)[0]) == {"node.id": NODE, "max.connections": "10000"}


def test_other_resources_are_described_as_far_as_they_are_known(shared: InProcess) -> None:
    known = [(TOPIC, "orders"), (TOPIC, LOG), (BROKER, ""), (LOGGER, NODE), (METRICS, "any"), (GROUP, CONSUMER)]
    log_settings = {"max.message.bytes": "1048588", "segment.bytes": str(10 << 20)}
    found = [values(each) for each in configs(shared, *(resource(*each) for each in known))]
    assert found[:3] == [{}, log_settings, {}]
    assert ([*found[3]], found[4]) == (["root"], {})
    assert found[5]["consumer.session.timeout.ms"] == "45000"
    refused = [(BROKER, "7", 42), (TOPIC, "", 17), (TOPIC, "__transaction_state", 3), (99, NODE, 42)]
    results = configs(shared, *(resource(kind, name) for kind, name, _ in refused))
    assert [(row["resource_type"], row["resource_name"], row["error_code"]) for row in results] == refused


def test_settings_of_the_node_are_described_to_clients_that_may_read_all_groups(served: InProcess) -> None:
    wanted = resource(BROKER, NODE), resource(GROUP, "billing-1"), resource(GROUP, "other")
    for pattern, permission, errors in (
        ("*", READ, [0, 0, 0]),
        ("*", ADMIN, [0, 30, 30]),
        ("billing-*", READ, [31, 0, 30]),
    ):
        served.client.access = Access([Grant("*", pattern, permission)])
        assert [row["error_code"] for row in configs(served, *wanted)] == errors
        directories = served.ask(apis.DESCRIBE_LOG_DIRS, 4, topics=None)
        assert (directories["error_code"], bool(directories["results"])) == (errors[0], not errors[0])


@pytest.mark.parametrize("version", apis.VERSIONS[apis.DESCRIBE_LOG_DIRS])
def test_log_folder_with_the_sizes_of_its_partitions(shared: InProcess, version: int) -> None:
    (result,) = shared.ask(apis.DESCRIBE_LOG_DIRS, version, topics=None)["results"]
    assert (result["error_code"], result["log_dir"]) == (0, str(shared.log.resolve()))
    found = {
        (topic["name"], row["partition_index"]): row["partition_size"]
        for topic in result["topics"]
        for row in topic["partitions"]
    }
    folders = [path for path in shared.log.iterdir() if path.is_dir() and not path.name.endswith(".bak")]
    names = {path: path.name.rpartition("-") for path in folders}
    sizes = {path: sum(file.stat().st_size for file in path.glob("*.log")) for path in folders}
    assert found == {(names[path][0], int(names[path][2])): sizes[path] for path in folders}
    assert max(found.values()) > 0
    if version >= 4:
        usage = os.statvfs(shared.log)
        assert result["total_bytes"] == usage.f_blocks * usage.f_frsize
        assert 0 < result["usable_bytes"] <= result["total_bytes"]


def test_log_folder_with_requested_partitions(shared: InProcess) -> None:
    topics = [{"topic": LOG, "partitions": [3, 1, 99]}, {"topic": "orders", "partitions": [0]}]
    (result,) = shared.ask(apis.DESCRIBE_LOG_DIRS, 4, topics=topics)["results"]
    (topic,) = result["topics"]
    assert (topic["name"], [row["partition_index"] for row in topic["partitions"]]) == (LOG, [1, 3])


def test_log_folder_that_cannot_be_read_is_named(served: InProcess) -> None:
    described = LogDirs(Path("/no/such"), cordoned=False).describe(
        SimpleNamespace(topics=None), RequestContext(4, served.client, None)
    )
    answer: Any = asyncio.run(described)
    (result,) = answer["results"]
    assert (result["error_code"], result["log_dir"], result["topics"]) == (56, "/no/such", [])


@pytest.fixture
def transacting(tmp_path: Path) -> Iterator[Transacting]:
    driver = Transacting(tmp_path)
    yield driver
    driver.service.close()


def test_transactions_are_listed_and_described(transacting: Transacting) -> None:
    served = transacting.service
    for name in ("open-1", "open-2", "ended"):
        assert transacting.init(name) == 0
        assert transacting.commit(name, "g", {0: 1}, new=True) == 0
    assert transacting.end("ended", commits=True, new=True) == 0

    def listed(version: int = 2, **filters: Any) -> dict[str, str]:
        none = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1, "transactional_id_pattern": None}
        answer = served.ask(apis.LIST_TRANSACTIONS, version, **none | filters)
        assert answer["error_code"] == 0
        for row in answer["transaction_states"]:
            assert row["producer_id"] == transacting.producers[row["transactional_id"]][0]
        return {row["transactional_id"]: row["transaction_state"] for row in answer["transaction_states"]}

    every = {"open-1": "Ongoing", "open-2": "Ongoing", "ended": "CompleteCommit"}
    opened = {"open-1": "Ongoing", "open-2": "Ongoing"}
    assert [listed(version) for version in apis.VERSIONS[apis.LIST_TRANSACTIONS]] == [every] * 3
    assert listed(state_filters=["Ongoing", "Empty"]) == opened
    assert listed(producer_id_filters=[transacting.producers["open-2"][0]]) == {"open-2": "Ongoing"}
    assert listed(transactional_id_pattern="open-.") == opened
    assert listed(transactional_id_pattern="open") == {}, "the whole name matches"
    assert listed(duration_filter=10**9, state_filters=["Ongoing"]) == {}
    answer = served.ask(
        apis.LIST_TRANSACTIONS, 1, state_filters=["Ongoing", "x"], producer_id_filters=[], duration_filter=0
    )
    assert answer["unknown_state_filters"] == ["x"]
    filters = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1, "transactional_id_pattern": "("}
    assert served.ask(apis.LIST_TRANSACTIONS, 2, **filters)["error_code"] == 128

    names = ["open-1", "ended", "none", ""]
    described = served.ask(apis.DESCRIBE_TRANSACTIONS, 0, transactional_ids=names)["transaction_states"]
    assert [row["error_code"] for row in described] == [0, 0, 105, 42]
    first = described[0]
    assert (first["transaction_state"], first["transaction_timeout"]) == ("Ongoing", 60_000)
    assert (first["producer_id"], first["producer_epoch"]) == transacting.producers["open-1"]
    (partition,) = {record.log_partition for record in read_log(served.log) if record.producer_id >= 0}
    assert first["topics"] == [{"topic": LOG, "partitions": [partition]}]

    served.client.access = Access([Grant("*", "open-1", COMMIT)])
    assert listed() == {"open-1": "Ongoing"}
    described = served.ask(apis.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["open-1", "open-2"])["transaction_states"]
    assert [row["error_code"] for row in described] == [0, 53]


def test_transactions_are_not_listed_while_they_are_loaded(loading: InProcess) -> None:
    filters = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
    assert loading.ask(apis.LIST_TRANSACTIONS, 1, **filters)["error_code"] == 14
    (state,) = loading.ask(apis.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["t"])["transaction_states"]
    assert state["error_code"] == 14


def test_producers_with_open_transactions_are_described(shared: InProcess) -> None:
    records = [record for record in read_log(shared.log) if record.log_partition == HANGING]
    ended = [record.log_offset for record in records if record.is_control]
    topics = [{"name": LOG, "partition_indexes": [HANGING, 999]}, {"name": "orders", "partition_indexes": [0, -1]}]
    topics.append({"name": "a b", "partition_indexes": [0]})
    log, orders, invalid = shared.ask(apis.DESCRIBE_PRODUCERS, 0, topics=topics)["topics"]
    answers = (*log["partitions"], *orders["partitions"], *invalid["partitions"])
    assert [row["error_code"] for row in answers] == [0, 3, 0, 3, 17]
    assert ended
    (producer,) = log["partitions"][0]["active_producers"]
    batch = [record for record in records if record.producer_id == producer["producer_id"]]
    assert producer["current_txn_start_offset"] in {record.log_offset for record in batch}
    assert producer["last_timestamp"] == batch[-1].log_timestamp
    assert producer["current_txn_start_offset"] > max(
        (record.log_offset for record in batch if record.is_control), default=-1
    )


def test_no_records_are_deleted_on_request(shared: InProcess) -> None:
    partitions = [{"partition_index": number, "offset": 1} for number in (0, 10**6)]
    topics = [{"name": name, "partitions": partitions} for name in (LOG, "orders", "__transaction_state")]
    for version in apis.VERSIONS[apis.DELETE_RECORDS]:
        answer = shared.ask(apis.DELETE_RECORDS, version, topics=topics)["topics"]
        found = [[row["error_code"] for row in topic["partitions"]] for topic in answer]
        assert found == [[17, 3], [29, 3], [3, 3]]


def test_end_of_a_leader_epoch(shared: InProcess) -> None:
    """Only a node of a cluster answers it, in whose current epoch the log may have no batch yet."""
    records = [record for record in read_log(shared.log) if record.log_partition == HANGING]
    requests = PartitionRequests(shared.topics, shared.parts.reads, lambda _: 9)
    asked = [(-1, 0), (9, 0), (9, 9), (9, 10), (8, 0), (10, 0)]
    partitions = [
        [SimpleNamespace(partition=HANGING, current_leader_epoch=current, leader_epoch=epoch)]
        for current, epoch in asked
    ]
    asked_all = SimpleNamespace(topics=[SimpleNamespace(topic=LOG, partitions=each) for each in partitions])
    context = RequestContext(4, Client(), None)
    answer: Any = shared.loop.run_until_complete(requests.end_of_epoch(asked_all, context))
    end = records[-1].log_offset + 1
    found = [next(iter(topic["partitions"].elements)) for topic in answer["topics"]]
    assert [(row["error_code"], row.get("leader_epoch"), row.get("end_offset")) for row in found] == [
        (0, 0, end), (0, 0, end), (0, 9, end), (0, -1, -1), (74, None, None), (75, None, None),
    ]  # fmt: skip


@pytest.mark.parametrize("version", range(3, 6))
def test_features_of_a_cluster_are_stated(version: int) -> None:
    """A supported feature with the minimum version 0 is not stated before version 4, as by a broker (KAFKA-17011)."""
    supported = [{"name": name, "min_version": first, "max_version": 9} for name, first in (("new", 0), ("old", 7))]
    finalized = [{"name": "old", "min_version_level": 8, "max_version_level": 8}]
    features = {
        "supported_features": supported,
        "finalized_features": finalized,
        "finalized_features_epoch": 55,
    }
    asked = SimpleNamespace(client_software_name="a", client_software_version="1")
    answer = api_versions(asked, RequestContext(version, Client(), None), {1: range(2, 4)}, features)
    assert answer == features | {
        "supported_features": supported[1 if version == 3 else 0 :],
        "api_keys": [{"api_key": 1, "min_version": 2, "max_version": 3}],
    }


class Relaying:
    """In the place of `Forwarding`: a broker that describes each resource with one setting."""

    def __init__(self, *, relays: bool) -> None:
        self.relays = relays
        self.requested: list[list[tuple[int, str]]] = []

    async def relay(self, api: int, version: int, values: Any) -> NodeResponse:
        self.requested.append([(row["resource_type"], row["resource_name"]) for row in values["resources"]])
        setting: dict[str, Any] = {"name": "broker", "value": "1", "synonyms": [], "documentation": None}
        setting |= {"read_only": False, "is_sensitive": False}
        results = [
            {"error_message": None, "resource_type": kind, "resource_name": name, "configs": [setting]}
            for kind, name in self.requested[-1]
        ]
        return NodeResponse(api, version, encoded(response_schema(api, version)[0], {"results": results}))


@pytest.mark.parametrize("relays", [True, False])
def test_node_of_a_cluster_relays_what_it_does_not_know(shared: InProcess, relays: bool) -> None:
    relaying: Any = Relaying(relays=relays)
    settings = dataclasses.replace(shared.parts.settings, node_id=5)
    topics: Any = SimpleNamespace(node=5)
    node = ConfigsInCluster(settings, Security(settings), topics, lambda: (HOST, PORT), relaying)

    def describe(*resources: tuple[int, str]) -> Any:
        asked = _request(4, [resource(*each) for each in resources])
        answer: Any = asyncio.run(node.describe_in_cluster(asked, RequestContext(4, Client(), None)))
        if isinstance(answer, bytes):
            return answer
        rows = answer["results"].elements if isinstance(answer["results"], Lazy) else answer["results"]
        return {row["resource_name"]: (row["error_code"], len(row["configs"])) for row in rows}

    own = describe((BROKER, "5"), (LOGGER, "5"))
    assert (own["5"][0], relaying.requested) == (0, [])
    mixed = describe((BROKER, "5"), (TOPIC, "orders"), (BROKER, "1"))
    everything = describe((TOPIC, "orders"), (BROKER, ""))
    if relays:
        assert (mixed["orders"], mixed["1"]) == ((0, 1), (0, 1))
        assert mixed["5"][1] > 10
        assert relaying.requested == [[(TOPIC, "orders"), (BROKER, "1")], [(TOPIC, "orders"), (BROKER, "")]]
        assert isinstance(everything, bytes)
    else:
        assert (everything, relaying.requested) == ({"orders": (35, 0), "": (35, 0)}, [])
        assert (mixed["orders"], mixed["5"][0]) == ((35, 0), 0)


def _request(version: int, resources: list[dict[str, Any]]) -> Any:
    fields = {"resources": resources, "include_synonyms": False, "include_documentation": False}
    frame = request(apis.DESCRIBE_CONFIGS, version, fields)
    return complete(read(frame, read_header(frame)))
