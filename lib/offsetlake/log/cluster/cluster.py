"""A live Kafka cluster, asked on behalf of the log: connections, who leads what, and tries until the time is up."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import for_code
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.error_codes import TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from offsetlake.log.cluster.connection import CONNECT_FAILURES, KafkaConnection, likely_cause, open_broker
from offsetlake.log.positions import LogPartition, OffsetRange

RETRY_PAUSE = 0.1
CLOSE_SECONDS = 1.0

EARLIEST, LATEST = -2, -1  # ListOffsets' timestamps; read uncommitted, the latest is the high watermark
READ_UNCOMMITTED = 0
CONSUMER = -1  # the replica id of one that is no replica
METADATA_KEY, METADATA_WITHOUT_CREATION = 3, 4  # from version 4 on Metadata can ask that no topic be created

PASSING = {-1, 3, 5, 6, 7, 8, 9, 56, 72, 74, 75, 78}
"""Errors of a partition that end by themselves, mostly as its leader moves: fresh metadata, then another try."""

Address = tuple[str, int]
T = TypeVar("T")


class TryAgainError(Exception):
    """A failure that may pass; its message becomes LogUnavailable's if it does not within the request timeout.

    `pause` is how long to wait before the next try, in seconds, where the broker says so: the timeout waits too.
    """

    def __init__(self, message: str, pause: float = 0.0) -> None:
        super().__init__(message)
        self.pause = pause


class LoopThread:
    """An event loop in a thread of its own: it works while the caller computes, even one inside a loop of its own."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._left = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, name="offsetlake-kafka", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._left.set)
        self._thread.join()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin `work` in the loop; what is not done when the thread is left is cancelled."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _serve(self) -> None:
        with self._runner:
            self._runner.run(self._left.wait())


class Cluster:
    """Connections to the brokers of one cluster, opened as they are needed, and the leaders of partitions.

    Its methods raise LogUnavailable for what stays as it is, TryAgainError for what may pass.
    Raises BadRequest when made with certificate files that cannot be read here.
    """

    def __init__(self, connection: KafkaConnection) -> None:
        self._settings = connection
        self._context = connection.ssl_context()
        self._open: dict[Address, AIOKafkaConnection] = {}
        self._brokers: list[Address] = []
        self._leaders: dict[LogPartition, Address | None] = {}

    async def within_timeout(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Give what `attempt` gives, tried again while it may yet succeed and the request timeout allows."""
        reason = "no answer"
        try:
            async with asyncio.timeout(self._settings.request_timeout) as limit:
                while True:
                    try:
                        return await attempt()
                    except TryAgainError as failure:
                        reason, pause = str(failure), failure.pause
                    self._leaders = {}
                    limit.reschedule((limit.when() or 0.0) + pause)
                    await asyncio.sleep(RETRY_PAUSE + pause)
        except TimeoutError:
            given = f"request.timeout.ms = {self._settings.request_timeout_ms}"
            raise self.unavailable(f"{reason}; given up after {given}") from None

    async def partitions(self, topics: list[str]) -> tuple[str | None, list[LogPartition]]:
        """Give the cluster's id and all partitions of those of `topics` that exist, and learn their leaders."""
        answer = await self._metadata(topics)
        brokers = {node: (host, port) for node, host, port, _ in answer.brokers}
        self._brokers = list(brokers.values())
        self._leaders = {}
        for error, topic, _, partitions in answer.topics:
            if error == UNKNOWN_TOPIC_OR_PARTITION:
                continue
            self.check(error, topic, topic)
            for _, partition, leader, *_ in partitions:
                self._leaders[LogPartition(topic, partition)] = brokers.get(leader)
        return answer.cluster_id, list(self._leaders)

    async def leader(self, log_partition: LogPartition) -> Address:
        """Give the address of a partition's leader, asking for it where it is not known."""
        if log_partition not in self._leaders:
            await self.partitions([log_partition.topic])
        if log_partition not in self._leaders:
            raise self.unavailable(f"the cluster has no partition {log_partition}")
        address = self._leaders[log_partition]
        if address is None:
            raise TryAgainError(f"{log_partition} has no leader: its brokers are down or starting")
        return address

    async def ranges(self, leader: Address, led: list[LogPartition]) -> dict[LogPartition, OffsetRange]:
        """Ask the leader of the partitions `led` for their log start offsets and high watermarks."""
        earliest = await self._offsets(leader, led, EARLIEST)
        latest = await self._offsets(leader, led, LATEST)
        return {each: OffsetRange(earliest[each], latest[each]) for each in led}

    async def send(self, address: Address, request: Any, seconds: float | None = None) -> Any:
        """Send to one broker, connected before or now, and give its answer; `seconds` bounds both."""
        try:
            async with asyncio.timeout(seconds):
                broker = self._open.get(address)
                if broker is None or not broker.connected():
                    # Half the time at most: the other half is for another broker, or for the request.
                    half = self._settings.request_timeout / 2
                    broker = await open_broker(self._settings, address, self._context, half)
                    self._open[address] = broker
                return await broker.send(request)
        except CONNECT_FAILURES as failure:
            await _close(self._open.pop(address, None))
            given = "" if address in self._settings.addresses else " (an address the cluster gave for a broker)"
            cause = likely_cause(self._settings, failure)
            raise TryAgainError(f"{address[0]}:{address[1]}{given}: {cause}") from failure

    def check(self, error: int, topic: str, what: str | LogPartition) -> None:
        """Raise what an error code of a topic, or of a partition of it, stands for, if it is one."""
        if error == TOPIC_AUTHORIZATION_FAILED:
            who = f"user {self._settings.sasl_username}" if self._settings.uses_sasl else "this client"
            raise self.unavailable(
                f"{who} may not read topic {topic}: it needs an ACL for READ and DESCRIBE on the topic"
            )
        if error:
            answer = f"{what}: the broker answers error {error} ({for_code(error).__name__})"
            raise TryAgainError(answer) if error in PASSING else self.unavailable(answer)

    def unavailable(self, why: str) -> LogUnavailable:
        """Make the error that names the cluster as well."""
        return LogUnavailable(f"Kafka at {self._settings.bootstrap} by {self._settings.security_protocol}: {why}")

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(_close(broker) for broker in self._open.values()))

    async def _metadata(self, topics: list[str]) -> Any:
        """Ask any broker, known ones first. If none answers this is final, unless one has before."""
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
        asked = defaultdict(list)
        for topic, partition in led:
            asked[topic].append((partition, timestamp))
        answer = await self.send(leader, OffsetRequest(CONSUMER, READ_UNCOMMITTED, list(asked.items())))
        found = {}
        for topic, partitions in answer.topics:
            for partition, error, _, offset in partitions:
                self.check(error, topic, LogPartition(topic, partition))
                found[LogPartition(topic, partition)] = offset
        return found


class _TopicMetadata:
    """Metadata of topics, by a version of the request that can ask the broker to create none of them."""

    def __init__(self, topics: Iterable[str]) -> None:
        self._request = MetadataRequest(list(topics), allow_auto_topic_creation=False)

    def prepare(self, versions: dict[int, tuple[int, int]]) -> Any:
        if versions[METADATA_KEY][1] < METADATA_WITHOUT_CREATION:
            raise NotImplementedError("Kafka 0.11 or later is needed")
        return self._request.prepare(versions)


async def _close(broker: AIOKafkaConnection | None) -> None:
    if broker is not None and (closed := broker.close()) is not None:
        await asyncio.wait([closed], timeout=CLOSE_SECONDS)
