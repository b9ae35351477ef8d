"""The versions of APIs that a node of a cluster accepts, beside those that brokers of each Kafka version support."""

import pytest

from offsetlake.node.registration import KNOWN_FEATURES
from offsetlake.serve.protocol.api_keys import BROKER_VERSIONS, FORWARDED, PRODUCE, RELAYED
from support.broker.api_versions import recorded
from support.broker.kafka_tools import IN_FRONT_OF

NOT_SERVED = {
    **dict.fromkeys((76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92), "share groups; `adopt` refuses if there are any"),
    **dict.fromkeys((88, 89, 93), "streams groups; `adopt` refuses if there are any"),
    34: "AlterReplicaLogDirs; this node has one folder",
}
"""The APIs that a node does not serve and does not state in ApiVersions: no client sends them to it."""

REFUSED_BY_BROKERS = {0, 1, 2}
"""Versions of Produce that brokers state for old versions of librdkafka, and refuse (KIP-896)."""


@pytest.mark.parametrize("version", IN_FRONT_OF)
def test_a_node_accepts_what_brokers_accept(version: str) -> None:
    """Brokers send some requests in their newest version, whatever ApiVersions of the node states."""
    missing = {}
    for key, (first, last) in recorded(version)["broker"].items():
        api = int(key)
        stated = {*range(first, last + 1)} - (REFUSED_BY_BROKERS if api == PRODUCE else set())
        if api not in FORWARDED | RELAYED | NOT_SERVED.keys() and (
            versions := stated - {*BROKER_VERSIONS.get(api, ())}
        ):
            missing[api] = versions
    assert missing == {}


@pytest.mark.parametrize("version", IN_FRONT_OF)
def test_forwarded_requests_are_known_to_controllers(version: str) -> None:
    versions = recorded(version)
    assert FORWARDED - {int(key) for key in versions["controller"]} == (set() if "94" in versions["broker"] else {94})
    assert {*map(str, RELAYED)} - versions["broker"].keys() <= {"71"}  # telemetry, if a broker has a receiver of it


@pytest.mark.parametrize("version", IN_FRONT_OF)
def test_features_of_clusters_are_known(version: str) -> None:
    assert recorded(version)["features"].keys() <= KNOWN_FEATURES
