"""Replicas are found by the names of MirrorMaker 2's topics."""

import pytest

from offsetlake.pipeline.changes.translation.mirror_topics import replicas

INTERNAL = ["east.checkpoints.internal", "east.heartbeats", "__consumer_offsets"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([*INTERNAL, "east.orders", "orders"], "east.orders"),
        ([*INTERNAL, "orders"], "orders"),
        ([*INTERNAL, "north.orders"], None),
        (["east.checkpoints.internal", "east_heartbeats", "east_orders"], "east_orders"),
        (["a-b.heartbeats", "a-b.orders"], "a-b.orders"),
        (["mm2-offset-syncs.east.internal", "east.orders"], "east.orders"),
        (["orders"], "orders"),
        (["east.orders", "south.orders", "orders", "east.heartbeats", "south.heartbeats"], None),
        ([], None),
    ],
)
def test_replica_of_a_topic(names: list[str], expected: str | None) -> None:
    assert replicas(names, ["orders"]) == ({} if expected is None else {"orders": expected})
