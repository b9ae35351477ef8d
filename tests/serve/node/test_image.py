"""The image of a cluster contains what Metadata contains, and encodes it for every version, as kio reads both."""

import io
import struct
import uuid
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.serial import entity_writer

from offsetlake.kafka.uuid import ZERO_UUID, uuid_text
from offsetlake.node.metadata.changes import changed_topics
from offsetlake.node.metadata.image import ClusterImage
from offsetlake.node.metadata.image_reader import MAX_VERSION, MIN_VERSION, read_image
from offsetlake.serve.protocol.api_keys import DESCRIBE_TOPIC_PARTITIONS, METADATA, VERSIONS
from offsetlake.serve.protocol.encoding import Lazy, encoded
from offsetlake.serve.protocol.schemas import response_schema
from offsetlake.serve.protocol.topic_descriptions import DescribedTopics
from offsetlake.serve.protocol.topics import Topics
from offsetlake.serve.protocol.wire import Malformed
from offsetlake.serve.steps import complete
from support.serve.entities import filled
from support.serve.kio_requests import answered

Topic = dict[str, Any]


def topic(name: str, placements: Sequence[tuple[int, ...]], number: int = 0, **fields: Any) -> Topic:
    """A topic; the first replica of each partition is its leader."""
    partitions = [
        {
            "error_code": 0,
            "partition_index": index,
            "leader_id": replicas[0],
            "leader_epoch": index + 5,
            "replica_nodes": replicas,
            "isr_nodes": replicas[:1],
            "offline_replicas": replicas[1:],
        }
        for index, replicas in enumerate(placements)
    ]
    id_ = uuid.UUID(int=number or sum(name.encode()))
    return {"error_code": 0, "name": name, "topic_id": id_, "is_internal": False, "partitions": partitions} | fields


def body(topics: Sequence[Topic], racks: Mapping[int, str | None], version: int = MAX_VERSION) -> bytes:
    brokers = [
        {"node_id": node, "host": f"b{node}.example", "port": 9092, "rack": rack} for node, rack in racks.items()
    ]
    values = {"brokers": brokers, "cluster_id": "cluster", "controller_id": 2, "topics": topics}
    schema: Any = load_response_schema(METADATA, version)  # type: ignore[arg-type]
    out = io.BytesIO()
    entity_writer(schema)(out, filled(schema, values))
    return out.getvalue()


def image(topics: Sequence[Topic], racks: Mapping[int, str | None], version: int = MAX_VERSION) -> ClusterImage:
    return complete(read_image(body(topics, racks, version), version))


NO_RACKS: Mapping[int, str | None] = dict.fromkeys(range(1, 6))
SMALL = [topic("a", [(1, 2), (2, 3), (1, 2)]), topic("b", [(3,)], is_internal=True)]


@pytest.mark.parametrize("version", range(MIN_VERSION, MAX_VERSION + 1))
def test_image_contains_what_metadata_contains(version: int) -> None:
    read = image(SMALL, {1: "x", 2: None, 3: "y"}, version)
    assert (read.cluster_id, read.controller_id) == ("cluster", 2)
    assert [tuple(broker) for broker in read.brokers] == [
        (1, "b1.example", 9092, "x"), (2, "b2.example", 9092, None), (3, "b3.example", 9092, "y"),
    ]  # fmt: skip
    assert ([*read.known()], len(read)) == ([b"a", b"b"], 4)
    assert (read.partitions(b"a"), read.partitions(b"missing")) == (3, 0)
    assert [read.has_partition(b"a", number) for number in (-1, 0, 2, 3)] == [False, True, True, False]
    assert read.name_of(read.id_of(b"b")) == b"b"
    assert (read.name_of(ZERO_UUID), read.id_of(b"missing")) == (None, ZERO_UUID)
    assert (read.is_internal(b"a"), read.is_internal(b"b")) == (False, True)
    assert (read.racks(b"a"), read.racks(b"b"), read.racks(b"missing")) == ([("x",), ("y",), ("x",)], [("y",)], ())


def test_group_coordinator_sees_names_and_ids_as_text() -> None:
    topics = DescribedTopics(image(SMALL, NO_RACKS), changed_ms=5, created_ms=3)
    id_ = uuid_text(SMALL[0]["topic_id"].bytes)
    assert [*topics.names()] == ["a", "b"]
    assert (topics.id_of("a"), topics.name_of(id_), topics.partitions("a")) == (id_, "a", 3)
    assert (topics.id_of("c"), topics.name_of(uuid_text(bytes(16))), topics.partitions("c")) == (None, None, 0)
    assert topics.racks("a") == topics.racks("c") == ()
    assert (topics.version(), topics.creation_version()) == (5, 3)


def test_group_coordinator_sees_configured_topics_of_this_process() -> None:
    named, of_any_name = Topics({b"t": 2}, 50), Topics(None, 50)
    for topics in (named, of_any_name):
        seen = topics.descriptions()
        assert (seen.partitions("__consumer_offsets"), seen.racks("t")) == (50, ())
    seen = named.descriptions()
    id_ = seen.id_of("t")
    assert id_ is not None
    assert (seen.name_of(id_), sorted(seen.names()), seen.partitions("t")) == ("t", ["__consumer_offsets", "t"], 2)
    assert (seen.id_of("u"), seen.partitions("u")) == (None, 0)
    of_any_name.grow(b"t", 3)
    assert of_any_name.descriptions().partitions("t") == 0


@pytest.mark.parametrize("api", [METADATA, DESCRIBE_TOPIC_PARTITIONS])
def test_partitions_are_encoded_for_every_version(api: int) -> None:
    """1,500 partitions are more than are encoded together."""
    random = Random(7)
    placements = [tuple(random.sample(range(1, 6), 3)) for _ in range(1500)]
    big = topic("big", placements)
    read = image([*SMALL, big], NO_RACKS)
    for version in VERSIONS[api]:
        schema, tags = response_schema(api, version)
        topics = [{"name": "big", "partitions": read.encoded_partitions(b"big", range(1500), api, version)}]
        values = {"brokers": [], "topics": Lazy(1, topics), "controller_id": 1, "cluster_id": "c"}
        answer = answered(api, version, tags + encoded(schema, values))["topics"][0]["partitions"]
        expected = {"eligible_leader_replicas": [], "last_known_elr": []}
        assert len(answer) == 1500
        for partition, source in zip(answer, big["partitions"], strict=True):
            plain = {name: [*value] if isinstance(value, tuple) else value for name, value in source.items()}
            assert partition == {name: (plain | expected)[name] for name in partition}


def test_topics_with_an_error_are_omitted() -> None:
    failed = topic("failed", [], error_code=29)
    assert [*image([*SMALL, failed], NO_RACKS).known()] == [b"a", b"b"]


def test_malformed_responses_are_refused() -> None:
    gap = topic("gap", [(1,), (2,)])
    del gap["partitions"][0]
    with pytest.raises(Malformed, match="gap does not contain partition 0"):
        image([gap], NO_RACKS)
    whole = body(SMALL, NO_RACKS)
    for end in range(len(whole)):
        with pytest.raises((Malformed, IndexError, struct.error)):
            complete(read_image(whole[:end], MAX_VERSION))


@pytest.mark.parametrize(
    ("topics", "racks", "changed"),
    [
        (SMALL, NO_RACKS, set()),
        ([*SMALL, topic("c", [(1,)])], NO_RACKS, {"c"}),
        (SMALL[:1], NO_RACKS, {"b"}),
        ([topic("a", [(1, 2)] * 4), SMALL[1]], NO_RACKS, {"a"}),
        ([SMALL[0], topic("b", [(3,)], number=99)], NO_RACKS, {"b"}),
        ([topic("a", [(5, 4), (2, 3), (1, 2)]), SMALL[1]], NO_RACKS, set()),
        (SMALL, NO_RACKS | {3: "x"}, {"a", "b"}),
    ],
    ids=["nothing", "created", "deleted", "grown", "created again", "replicas without racks", "racks"],
)
def test_changes_of_topics(topics: list[Topic], racks: dict[int, str | None], changed: set[str]) -> None:
    assert complete(changed_topics(image(SMALL, NO_RACKS), image(topics, racks))) == changed


def test_moved_replicas_change_racks() -> None:
    racks = {1: "x", 2: "y", 3: "x"}
    before, after = image(SMALL, racks), image([topic("a", [(3, 2), (1, 3), (1, 2)]), SMALL[1]], racks)
    assert complete(changed_topics(before, after)) == {"a"}
    same = image([topic("a", [(3, 2), (3, 2), (1, 2)]), SMALL[1]], racks)
    assert complete(changed_topics(before, same)) == set()
