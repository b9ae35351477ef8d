"""Random requests to share coordinators, the same to each, and their answers in an order that does not vary."""

import random
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from support.serve.kio_requests import answered, connected, exchange, request

FIND_COORDINATOR, INITIALIZE, READ, WRITE, DELETE, SUMMARY = 10, 83, 84, 85, 86, 87
SHARE_KEY = 2
VERSIONS = {INITIALIZE: 0, READ: 0, WRITE: 1, DELETE: 0, SUMMARY: 1}
NOT_READY = {14, 15, 16}
READY_SECONDS = 300
NO_TOPIC = uuid.UUID(int=7)
GROUPS = ("walk", "walk é 😀", " ")
PARTITIONS = 2
"""The number of partitions of the topic."""

_WEIGHTS = {INITIALIZE: 2, READ: 4, WRITE: 12, DELETE: 1, SUMMARY: 2}
_MAX_OFFSET = 40


class Request(NamedTuple):
    """A request of one API and version."""

    api: int
    version: int
    values: dict[str, Any]


def walk(seed: int, topic: uuid.UUID, length: int) -> Iterator[Request]:
    """Yield random requests, most of them valid."""
    rng = random.Random(seed)
    for _ in range(length):
        (api,) = rng.choices([*_WEIGHTS], [*_WEIGHTS.values()])
        version = rng.randint(0, VERSIONS[api])
        yield Request(api, version, {"group_id": rng.choice(GROUPS), "topics": _topics(rng, topic)})


def invalid(topic: uuid.UUID) -> Iterator[Request]:
    """Yield requests without a group, without topics, with topics without partitions, and with repeated ones."""
    part = _partition(random.Random(0), 0)
    repeated = [{"topic_id": topic, "partitions": [part, part | {"start_offset": 30}]}] * 2
    for api, newest in VERSIONS.items():
        for topics in (
            [],
            [{"topic_id": topic, "partitions": []}],
            repeated,
            [{"topic_id": None, "partitions": [part]}],
        ):
            yield Request(api, newest, {"group_id": "walk", "topics": topics})
        yield Request(api, newest, {"group_id": "", "topics": [{"topic_id": topic, "partitions": [part]}]})
        yield Request(api, newest, {"group_id": "g" * 32_000, "topics": [{"topic_id": topic, "partitions": [part]}]})


def states(topic: uuid.UUID, leader_epoch: int) -> Iterator[Request]:
    """Yield requests for all of the state; the second half of them sets the leader epoch."""
    for api in (SUMMARY, READ):
        for group in GROUPS:
            parts = [
                _partition(random.Random(0), number) | {"leader_epoch": leader_epoch} for number in range(PARTITIONS)
            ]
            yield Request(api, VERSIONS[api], {"group_id": group, "topics": [{"topic_id": topic, "partitions": parts}]})


def coordinators(topic_text: str) -> Iterator[Request]:
    """Yield FindCoordinator requests for share partitions, most of them with invalid keys."""
    keys = [
        f"g:{topic_text}:0", f" g :{topic_text}:-1", f"é:{topic_text}==:+7", f"g:{topic_text}:0::", "", ":", "g", "::",
        f"g:h:{topic_text}:0", f":{topic_text}:0", f" :{topic_text}:0", f"g:{topic_text}:", f"g:{topic_text}:1.5",
        f"g:{topic_text}:{2**31}", f"g:{topic_text}:-{2**31}", f"g:{topic_text[1:]}:0", f"g:{topic_text}A:0",
        f"g:{topic_text[1:]}+:0", f"g:{topic_text}:0x1", f"g:{topic_text}: 1",
    ]  # fmt: skip
    yield Request(FIND_COORDINATOR, 6, {"key_type": SHARE_KEY, "coordinator_keys": keys})
    yield Request(FIND_COORDINATOR, 5, {"key_type": SHARE_KEY, "coordinator_keys": keys[:1]})


def answers(bootstrap: str, requests: Iterable[Request]) -> list[Any]:
    """Send requests one after the other, and return the answers."""
    with closing(connected(bootstrap)) as connection:
        return [
            _sorted(answered(api, version, exchange(connection, request(api, version, values))))
            for api, version, values in requests
        ]


def await_ready(bootstrap: str, topic: uuid.UUID, topic_text: str) -> None:
    """Wait until the coordinator has loaded the states that `states` requests; a broker first creates its topic."""
    keys = [f"{group}:{topic_text}:{number}" for group in GROUPS if group.strip() for number in range(PARTITIONS)]
    find = Request(FIND_COORDINATOR, 6, {"key_type": SHARE_KEY, "coordinator_keys": keys})
    summaries = [each for each in states(topic, -1) if each.api == SUMMARY]
    deadline = time.monotonic() + READY_SECONDS
    while not NOT_READY.isdisjoint(_errors(answers(bootstrap, [find, *summaries]))):
        assert time.monotonic() < deadline, f"{bootstrap} has not loaded the states of share partitions"
        time.sleep(0.1)


def _topics(rng: random.Random, topic: uuid.UUID) -> list[dict[str, Any]]:
    numbers = [number for number in range(PARTITIONS) if rng.random() < 0.6] or [0]
    if rng.random() < 0.1:
        numbers = [rng.choice((-1, -(2**31), PARTITIONS, 2**31 - 1))]
    topic_id = topic if rng.random() < 0.95 else NO_TOPIC
    return [{"topic_id": topic_id, "partitions": [_partition(rng, number) for number in numbers]}]


def _partition(rng: random.Random, number: int) -> dict[str, Any]:
    """Return the fields that the requests of all APIs have for a partition."""
    return {
        "partition": number,
        "state_epoch": rng.choice((-1, 0, 1, 1, 2, 3)),
        "leader_epoch": rng.choice((-1, 0, 1, 2, 3, 4)),
        "start_offset": rng.choice((-1, -1, -1, rng.randrange(_MAX_OFFSET))),
        "delivery_complete_count": rng.choice((-1, rng.randrange(10))),
        "state_batches": [_batch(rng) for _ in range(rng.randrange(5))],
    }


def _batch(rng: random.Random) -> dict[str, Any]:
    first = rng.randrange(_MAX_OFFSET)
    return {
        "first_offset": first,
        "last_offset": first + rng.randrange(8),
        "delivery_state": rng.choice((0, 0, 2, 4)),
        "delivery_count": rng.randint(1, 3),
    }


def _sorted(answer: dict[str, Any]) -> Any:
    """Return an answer with its results in order: those of a broker have the order of a hash table."""
    if "results" not in answer:
        return answer
    topics = [
        topic | {"partitions": sorted(topic["partitions"], key=lambda part: part["partition"])}
        for topic in answer["results"]
    ]
    return sorted(topics, key=lambda topic: topic["topic_id"] or b"")


def _errors(found: Sequence[Any]) -> set[int]:
    coordinators, *summaries = found
    return {each["error_code"] for each in coordinators["coordinators"]} | {
        part["error_code"] for topics in summaries for topic in topics for part in topic["partitions"]
    }
