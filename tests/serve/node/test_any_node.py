"""Failures of the nodes of a cluster, and what they mean together."""

import asyncio
from typing import Any, NoReturn

import pytest
from aiokafka.errors import UnsupportedSaslMechanismError

from offsetlake.errors import LogUnavailable
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.node import any_node
from offsetlake.node.any_node import AnyNode, VersionUnsupported
from offsetlake.serve.protocol.api_keys import METADATA

NODES = [("broker-1", 9092), ("broker-2", 9092)]


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        ([NotImplementedError("no version"), NotImplementedError("no version")], VersionUnsupported),
        ([NotImplementedError("no version"), ConnectionRefusedError("refused")], LogUnavailable),
        ([UnsupportedSaslMechanismError("no mechanism")] * 2, LogUnavailable),
        ([], LogUnavailable),
    ],
)
def test_versions_are_unsupported_only_if_every_node_says_so(
    failures: list[Exception], expected: type[LogUnavailable], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another failure can end, and then a node may support them."""
    remaining = iter(failures)

    async def fail(*_: Any) -> NoReturn:
        raise next(remaining)

    monkeypatch.setattr(any_node, "open_broker", fail)
    node = AnyNode(KafkaConnection.from_settings({"bootstrap.servers": "broker-1:9092"}))
    with pytest.raises(LogUnavailable) as refused:
        asyncio.run(node.send(NODES[: len(failures)], METADATA, range(1), {}))
    assert type(refused.value) is expected
