"""Sends requests to the brokers of a live Kafka cluster: connections, partition leaders and retries."""

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from aiokafka.conn import AIOKafkaConnection
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.error_codes import (
    BROKER_NOT_AVAILABLE,
    FENCED_LEADER_EPOCH,
    KAFKA_STORAGE_ERROR,
    LEADER_NOT_AVAILABLE,
    LISTENER_NOT_FOUND,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_NOT_AVAILABLE,
    REPLICA_NOT_AVAILABLE,
    REQUEST_TIMED_OUT,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from offsetlake.log.cluster.connection import CONNECT_FAILURES, KafkaConnection, likely_cause, open_broker
from offsetlake.log.cluster.refusals import explain
from offsetlake.log.positions import LogPartition, OffsetRange

RETRY_PAUSE = 0.1
CLOSE_SECONDS = 1.0

EARLIEST, LATEST = -2, -1  # timestamps of ListOffsets; with READ_UNCOMMITTED, LATEST is the high watermark
READ_UNCOMMITTED = 0
CONSUMER = -1  # the replica ID of a client
_GROUP = 0  # a key type of FindCoordinator
METADATA_KEY, METADATA_WITHOUT_CREATION = 3, 4  # version 4 can disable the creation of topics

RETRIABLE = {
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
    LEADER_NOT_AVAILABLE,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    BROKER_NOT_AVAILABLE,
    REPLICA_NOT_AVAILABLE,
    KAFKA_STORAGE_ERROR,
    LISTENER_NOT_FOUND,
    FENCED_LEADER_EPOCH,
    UNKNOWN_LEADER_EPOCH,
    OFFSET_NOT_AVAILABLE,
}
"""Temporary errors of a partition, most of them during a change of its leader: retried with new metadata."""

Address = tuple[str, int]
T = TypeVar("T")


class TryAgainError(Exception):
    """A temporary failure, which becomes LogUnavailable after the request timeout.

    `pause` is how long to wait before the next attempt, in seconds, if the broker requests a pause; the timeout is
    extended by it.
    """

    def __init__(self, message: str, pause: float = 0.0) -> None:
        super().__init__(message)
        self.pause = pause


class LoopThread:
    """An event loop in its own thread, so that it runs while the caller computes or is in an event loop itself."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, name="offsetlake-kafka", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work` in the loop; it is cancelled if it is not done when the context ends."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _serve(self) -> None:
        with self._runner:
            self._runner.run(self._stop.wait())


class BrokerConnections:
    """Connections to the brokers of a cluster, opened on demand, and the leaders of its partitions.

    The methods raise LogUnavailable for permanent failures and TryAgainError for temporary ones.

    Raises:
        BadRequest: A certificate file cannot be read.
    """

    def __init__(self, connection: KafkaConnection) -> None:
        self._settings = connection
        self._context = connection.ssl_context()
        self._open: dict[Address, AIOKafkaConnection] = {}
        self._brokers: list[Address] = []
        self._leaders: dict[LogPartition, Address | None] = {}

    async def within_timeout(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `attempt`, retried after temporary failures until the request timeout."""
        reason = "no answer"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.request_timeout) as limit:
                while True:
                    try:
                        return await attempt()
                    except TryAgainError as failure:
                        reason, pause = str(failure), failure.pause
                    if limit.expired():  # `wait_for` of Python 3.11 ignores a timeout if its result has just arrived
                        break
                    self._leaders = {}
                    limit.reschedule((limit.when() or 0.0) + pause)
                    await asyncio.sleep(RETRY_PAUSE + pause)
        setting = f"request.timeout.ms = {self._settings.request_timeout_ms}"
        raise self.unavailable(f"{reason}; gave up after {setting}")

    async def partitions(self, topics: list[str]) -> tuple[str | None, list[LogPartition]]:
        """Return the cluster ID and all partitions of the existing `topics`, and update their leaders."""
        response = await self._metadata(topics)
        brokers = {node: (host, port) for node, host, port, _ in response.brokers}
        self._brokers = list(brokers.values())
        self._leaders = {}
        for error, topic, _, partitions in response.topics:
            if error == UNKNOWN_TOPIC_OR_PARTITION:
                continue
            self.check(error, topic, topic)
            for _, partition, leader, *_ in partitions:
                self._leaders[LogPartition(topic, partition)] = brokers.get(leader)
        return response.cluster_id, list(self._leaders)

    async def topics(self) -> list[str]:
        """Return the names of all topics that are visible to this user."""
        return [name for error, name, *_ in (await self._metadata(None)).topics if not error]

    async def coordinator(self, group_id: str) -> Address:
        """Return the address of the coordinator of a group."""
        await self.partitions([])
        for address in self._brokers:
            response = await self.send(address, FindCoordinatorRequest(group_id, _GROUP))
            if response.error_code:
                raise TryAgainError(str(explain(response.error_code)))
            return response.host, response.port
        raise TryAgainError("the cluster has no brokers")

    async def leader(self, log_partition: LogPartition) -> Address:
        """Return the address of the leader of a partition; request metadata if it is unknown."""
        if log_partition not in self._leaders:
            await self.partitions([log_partition.topic])
        if log_partition not in self._leaders:
            raise self.unavailable(f"the cluster has no partition {log_partition}")
        address = self._leaders[log_partition]
        if address is None:
            raise TryAgainError(f"{log_partition} has no leader because its brokers are down or starting")
        return address

    async def ranges(self, leader: Address, led: list[LogPartition]) -> dict[LogPartition, OffsetRange]:
        """Return log start offset and high watermark of partitions with the same leader."""
        earliest = await self._offsets(leader, led, EARLIEST)
        latest = await self._offsets(leader, led, LATEST)
        return {log_partition: OffsetRange(earliest[log_partition], latest[log_partition]) for log_partition in led}

    async def send(self, address: Address, request: Any, seconds: float | None = None) -> Any:
        """Send a request to a broker and return its response; `seconds` limits connecting and sending."""
        try:
            async with asyncio.timeout(seconds):
                broker = self._open.get(address)
                if broker is None or not broker.connected():
                    # The other half of the time is for another broker, or for the request.
                    half = self._settings.request_timeout / 2
                    broker = await open_broker(self._settings, address, self._context, half)
                    self._open[address] = broker
                return await broker.send(request)
        except CONNECT_FAILURES as failure:
            await _close(self._open.pop(address, None))
            origin = "" if address in self._settings.addresses else " (an advertised listener of the cluster)"
            cause = likely_cause(self._settings, failure)
            raise TryAgainError(f"{address[0]}:{address[1]}{origin}: {cause}") from failure

    def check(self, error: int, topic: str, subject: str | LogPartition) -> None:
        """Raise the error for an error code of a topic or of one of its partitions (`subject`), unless it is NONE."""
        if error == TOPIC_AUTHORIZATION_FAILED:
            principal = f"user {self._settings.sasl_username}" if self._settings.uses_sasl else "this client"
            raise self.unavailable(
                f"{principal} is not authorized to read topic {topic}: an ACL for READ and DESCRIBE is required"
            )
        if error:
            message = f"{subject}: the broker returned {str(explain(error)).removesuffix('.')}"
            raise TryAgainError(message) if error in RETRIABLE else self.unavailable(message)

    def unavailable(self, reason: str) -> LogUnavailable:
        """Return an error that names the cluster and the reason."""
        return LogUnavailable(f"Kafka at {self._settings.bootstrap} by {self._settings.security_protocol}: {reason}")

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(_close(broker) for broker in self._open.values()))

    async def _metadata(self, topics: list[str] | None) -> Any:
        """Return the metadata of topics, None for all, from any broker, known ones first.

        If no broker answers, the failure is permanent unless one answered earlier.
        """
        failures = []
        addresses = dict.fromkeys([*self._brokers, *self._settings.addresses])
        share = self._settings.request_timeout / (len(addresses) + 1)
        for address in addresses:
            try:
                return await self.send(address, _TopicMetadata(topics), share)
            except TryAgainError as failure:
                failures.append(str(failure))
        if self._brokers:
            raise TryAgainError("; ".join(failures))
        raise self.unavailable("; ".join(failures))

    async def _offsets(self, leader: Address, led: list[LogPartition], timestamp: int) -> dict[LogPartition, int]:
        requested = defaultdict(list)
        for topic, partition in led:
            requested[topic].append((partition, timestamp))
        response = await self.send(leader, OffsetRequest(CONSUMER, READ_UNCOMMITTED, list(requested.items())))
        offsets = {}
        for topic, partitions in response.topics:
            for partition, error, _, offset in partitions:
                self.check(error, topic, LogPartition(topic, partition))
                offsets[LogPartition(topic, partition)] = offset
        return offsets


class _TopicMetadata:
    """A Metadata request in a version that can disable the creation of topics."""

    def __init__(self, topics: list[str] | None) -> None:
        self._request = MetadataRequest(topics, allow_auto_topic_creation=False)

    def prepare(self, versions: dict[int, tuple[int, int]]) -> Any:
        if versions[METADATA_KEY][1] < METADATA_WITHOUT_CREATION:
            raise NotImplementedError("Kafka 0.11 or later is required")
        return self._request.prepare(versions)


async def _close(broker: AIOKafkaConnection | None) -> None:
    if broker is not None and (closed := broker.close()) is not None:
        await asyncio.wait([closed], timeout=CLOSE_SECONDS)
