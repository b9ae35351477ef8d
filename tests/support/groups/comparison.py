"""A broker and a serving process whose groups get the same requests: their answers, and the records in their logs.

Both have the same topics with the same IDs, so that assignments and hashes of topics are equal, too.
"""

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from support.broker.broker import Broker
from support.broker.requests import await_coordinator
from support.broker.tools import DumpedRecord, dump_log
from support.broker.workload import create_topic
from support.oracle.encoders import group_log_partition, offset_key, offset_value
from support.oracle.log_writer import Batch, Record, write_partition
from support.serve.kio_requests import ask
from support.serve.serving import Serving

METADATA, LEAVE_GROUP = 3, 13
LOG_PARTITIONS = 50
HOUR_MS = 3_600_000
GROUP_OF_IDS = "ids-of-topics"
"""A group with commits that contain the IDs of the topics."""

OFFSET_COMMIT, TARGET_ASSIGNMENT = "1", "7"
TIMES = {"currentStateTimestamp", "commitTimestamp", "timestamp"}
METADATA_VERSION = "version"  # with which a regular expression was evaluated


class Client(Protocol):
    """The members of a group of one server, as a scenario uses them."""

    group_id: str
    answers: list[Any]

    def at(self, bootstrap: str) -> "Client":
        """Return the same members as clients of another server."""

    def members(self) -> list[str]:
        """Return the names of the members that have an ID."""

    def beat(self, name: str, /) -> Any:
        """Send a heartbeat of a member."""

    def named(self, value: Any) -> Any:
        """Return a value with names instead of random ids, and sorted lists."""

    def close(self) -> None:
        """Close all connections."""


class Scenario(NamedTuple):
    """Requests of members of one group."""

    client: Callable[[str, str], Client]
    """Returns the members of a group, from the address of a server and the group id."""
    send: Callable[[Any], object]
    """Sends the requests."""

    def run(self, bootstrap: str, group_id: str) -> Client:
        """Send the requests to a server; when this returns, the records are written."""
        client = self.client(bootstrap, group_id)
        try:
            self.send(client)
        finally:
            client.close()
        nobody = {"member_id": "nobody", "group_instance_id": None, "reason": None}
        ask(bootstrap, LEAVE_GROUP, 5, group_id=group_id, members=[nobody])  # is answered after all writes before it
        return client


class Server(NamedTuple):
    """A server, and the folder of its log."""

    bootstrap: str
    log: Path


class Comparison:
    """Scenarios that run on several servers, once on each; their names are the group ids."""

    def __init__(self, servers: Iterable[Server], scenarios: Mapping[str, Scenario], folder: Path) -> None:
        """Run nothing yet; `folder` is an empty folder for copies of the records that scenarios cause."""
        self._servers, self._scenarios, self._folder = [*servers], scenarios, folder
        self._numbers = {name: number for number, name in enumerate(scenarios)}
        self._clients: dict[str, list[Client]] = {}
        self._records: list[dict[int, list[DumpedRecord]]] = []

    def answers(self, name: str) -> list[Any]:
        """Return what each server answered in a scenario."""
        return [client.answers for client in self._run(name)]

    def records(self, name: str) -> list[Any]:
        """Return the records that each server wrote in a scenario, as Kafka decodes them.

        The target assignments of one step are sorted by member: their order is that of a hash table.
        """
        clients = self._run(name)
        if not self._records:
            self._records = [_dumped(self._folder / str(number)) for number in range(len(self._servers))]
        return [
            _sorted([_plain(record, client) for record in records[self._numbers[name]] if _group_of(record) == name])
            for client, records in zip(clients, self._records, strict=True)
        ]

    def _run(self, name: str) -> list[Client]:
        if name not in self._clients:
            self._clients[name] = [self._run_on(server, name, number) for number, server in enumerate(self._servers)]
            self._records = []
        return self._clients[name]

    def _run_on(self, server: Server, name: str, number: int) -> Client:
        before = len(_log_bytes(server.log, name))
        client = self._scenarios[name].run(server.bootstrap, name)
        # kafka-dump-log reads the log partition from the name of the folder: here, it is the number of the scenario.
        folder = self._folder / str(number) / f"__consumer_offsets-{self._numbers[name]}"
        folder.mkdir(parents=True)
        (folder / f"{0:020}.log").write_bytes(_log_bytes(server.log, name)[before:])
        return client


@contextmanager
def beside(
    broker: Broker, folder: Path, topics: Mapping[str, int], scenarios: Mapping[str, Scenario]
) -> Iterator[Comparison]:
    """Create topics in a broker, and yield scenarios to run on it and on a serving process with the same topics."""
    prepare(broker.bootstrap, topics, scenarios)
    log = folder / "log"
    write_topic_ids(log, topic_ids(broker.bootstrap, topics))
    with serving(folder / "lake", log, topics) as server:
        servers = Server(broker.bootstrap, broker.data_dir), Server(server.bootstrap, log)
        yield Comparison(servers, scenarios, folder / "records")


def prepare(bootstrap: str, topics: Mapping[str, int], groups: Iterable[str]) -> None:
    """Create topics in a broker, and wait until it has loaded the log partitions of groups."""
    for name, partitions in topics.items():
        create_topic(bootstrap, name, partitions)
    asyncio.run(await_coordinator(bootstrap, groups))


def serving(lake: Path, log: Path, topics: Mapping[str, int]) -> Serving:
    """Return a serving process that coordinates like the brokers of the tests, and whose sessions do not end."""
    coordinator = {"initial_rebalance_delay_ms": 0, "share_heartbeat_interval_ms": 500}
    sessions = {"consumer_session_timeout_ms": HOUR_MS, "share_session_timeout_ms": HOUR_MS}
    return Serving(lake, log, topics=dict(topics), coordinator=coordinator | sessions)


def topic_ids(bootstrap: str, topics: Mapping[str, int]) -> dict[str, uuid.UUID]:
    """Return the IDs of topics by name."""
    named = [{"name": name, "topic_id": None} for name in topics]
    answer = ask(bootstrap, METADATA, 12, topics=named)
    return {topic["name"]: uuid.UUID(bytes=topic["topic_id"]) for topic in answer["topics"]}


def write_topic_ids(log: Path, ids: Mapping[str, uuid.UUID]) -> None:
    """Write a log with all log partitions of groups, and commits that contain the IDs of topics."""
    for number in range(LOG_PARTITIONS):
        (log / f"__consumer_offsets-{number}").mkdir(parents=True, exist_ok=True)
    records = [
        Record(number, 1, offset_key(GROUP_OF_IDS, name, 0), offset_value(4, 0, commit_timestamp=1, topic_id=id_))
        for number, (name, id_) in enumerate(ids.items())
    ]
    write_partition(log, group_log_partition(GROUP_OF_IDS, LOG_PARTITIONS), [Batch(records=tuple(records))])


def _log_bytes(log: Path, group_id: str) -> bytes:
    partition = log / f"__consumer_offsets-{group_log_partition(group_id, LOG_PARTITIONS)}"
    return b"".join(segment.read_bytes() for segment in sorted(partition.glob("*.log")))


def _dumped(folder: Path) -> dict[int, list[DumpedRecord]]:
    found: dict[int, list[DumpedRecord]] = defaultdict(list)
    for record in dump_log(folder):
        found[record.log_partition].append(record)
    return found


def _group_of(record: DumpedRecord) -> str:
    assert record.key is not None, record
    data = record.key["data"]
    return str(data["group"] if "group" in data else data["groupId"])


def _plain(record: DumpedRecord, client: Client) -> Any:
    """Return type, key and value of a record, with names instead of random ids, and without times."""
    assert record.key is not None
    if record.payload is None:
        return client.named({"key": record.key, "value": None})
    # A broker writes version 4 of offset commits, and the server version 3, which older brokers load, too.
    version = None if record.key["type"] == OFFSET_COMMIT else record.payload["version"]
    return client.named({"key": record.key, "value": {"version": version, "data": _timeless(record.payload["data"])}})


def _sorted(records: list[Any]) -> list[Any]:
    ordered: list[Any] = []
    for record_type, run in groupby(records, lambda record: record["key"]["type"]):
        found = [*run]
        ordered += sorted(found, key=_member_of) if record_type == TARGET_ASSIGNMENT else found
    return ordered


def _member_of(record: Any) -> str:
    return str(record["key"]["data"]["memberId"])


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        fields = {name: each for name, each in value.items() if name != METADATA_VERSION}
        return {name: each > 0 if name in TIMES else _timeless(each) for name, each in fields.items()}
    return [*map(_timeless, value)] if isinstance(value, list) else value
