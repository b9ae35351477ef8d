"""The core of a serving process: the log, the offsets, groups and transactions in it, and the wiring of its parts."""

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offsetlake.kafka.error_codes import ILLEGAL_SASL_STATE
from offsetlake.kafka.uuid import uuid_text
from offsetlake.log.disk.segments import Segment
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition
from offsetlake.log.writer.appender import Appender
from offsetlake.serve.apis.api_dispatcher import ApiDispatcher
from offsetlake.serve.apis.cluster_apis import ClusterApis
from offsetlake.serve.apis.group_apis import GroupApis
from offsetlake.serve.apis.group_list import group_list
from offsetlake.serve.apis.log_dirs import LogDirs
from offsetlake.serve.apis.log_reads import LogReads
from offsetlake.serve.apis.offset_fetch import OffsetFetch
from offsetlake.serve.apis.partition_requests import PartitionRequests
from offsetlake.serve.apis.stored_offset_fetch import StoredOffsetFetch
from offsetlake.serve.feature import Feature
from offsetlake.serve.groups.classic_apis import ClassicApis
from offsetlake.serve.groups.consumer_apis import ConsumerApis
from offsetlake.serve.groups.membership import Membership
from offsetlake.serve.groups.rewind_requests import RewindRequests
from offsetlake.serve.metrics.traffic import Traffic
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.net.frame_memory import Memory
from offsetlake.serve.net.handlers import Handlers, at_once
from offsetlake.serve.net.security import Security
from offsetlake.serve.net.turns import Turns
from offsetlake.serve.protocol.api_keys import (
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from offsetlake.serve.protocol.encoding import Values
from offsetlake.serve.protocol.topics import Topics
from offsetlake.serve.settings import Settings
from offsetlake.serve.storage.mapped_snapshot import MappedSnapshot
from offsetlake.serve.storage.offset_store import LOG_STORE, OffsetStore
from offsetlake.serve.storage.store import Store
from offsetlake.serve.transactions.coordinator import Transactions
from offsetlake.serve.transactions.descriptions import TransactionDescriptions
from offsetlake.serve.transactions.log import TransactionLog
from offsetlake.serve.writes.deletions import Deletions
from offsetlake.serve.writes.job_socket import JobSocket
from offsetlake.serve.writes.offset_commit import OffsetCommit
from offsetlake.serve.writes.quota import Quota
from offsetlake.serve.writes.rounds import Flush, Writes

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the core is told about its surroundings.

    | Field        | Description |
    |--------------|-------------|
    | topics       | The topics that exist |
    | versions     | The versions of the APIs that this process answers, by API key |
    | cluster_id   | Returns the id of the cluster, None before its first metadata; None: the log has an id of its own |
    | leader_epoch | Returns the leader epoch of a log partition, as a node of a cluster; None: this process is none |
    | offset_store | Makes the store of offsets that decides, of the served offsets and the queue of writes |
    """

    topics: Topics
    versions: Mapping[int, range]
    cluster_id: Callable[[], str | None] | None = None
    leader_epoch: Callable[[int], int] | None = None
    offset_store: Callable[[Store, Writes], OffsetStore] = lambda _store, _writes: LOG_STORE


class Core:
    """The parts of a serving process that every feature may use.

    | Field              | Description |
    |--------------------|-------------|
    | settings, security | The settings; authentication, authorization and the connections |
    | folder             | The folder of the log |
    | store, topics      | The committed offsets; the known topics |
    | offset_store       | The store of offsets that decides |
    | appender, writes, reads | Appending to the log, the queue of writes, and reads of the log |
    | turns              | The turns of the connections |
    | reading            | Locked while the files of the log are read: no segment may be deleted |
    | membership         | The groups whose members this process coordinates |
    | rewinds            | Sets offsets of these groups |
    | deletions          | Deletes groups and offsets |
    | commits, fetches, transactions, dispatcher | The handlers of requests |
    | cluster_apis       | Answers about the cluster and its topics |
    | log_partition      | Returns the log partition of a group |
    | log_ends           | The log end offsets when the log was loaded |
    | is_node            | Whether this process is a node of a cluster |
    | leader_epoch       | Returns the leader epoch of a log partition |
    | job_socket         | Answers jobs |
    | quota              | The quota of commits; None: unlimited |
    | traffic            | Counters of Kafka's protocol; None: without metrics |
    | features           | The features, in the order in which they start |
    """

    def __init__(
        self, settings: Settings, security: Security, loop: asyncio.AbstractEventLoop, surroundings: Surroundings
    ) -> None:
        self.settings, self.security, self.loop, self.topics = settings, security, loop, surroundings.topics
        self.folder, self.log_ends = Path(settings.log), dict[LogPartition, int]()
        self.is_node = surroundings.leader_epoch is not None
        self.leader_epoch = surroundings.leader_epoch or (lambda _: 0)
        self.reading, self.turns = asyncio.Lock(), Turns(loop, Memory())
        self.features: list[Feature] = []
        self._watched: list[asyncio.Task[None]] = []
        flush = Flush(settings.flush)
        self.appender = Appender(
            self.folder, self._log_end_offset, surroundings.leader_epoch, journaled=flush is Flush.ALWAYS
        )
        self.store, self.writes = Store(), Writes(self.appender, flush, loop)
        self.offset_store = surroundings.offset_store(self.store, self.writes)
        self.reads = LogReads(self.folder, self.topics, self.writes.watermarks, loop)
        self.quota = None if settings.commits_per_second is None else Quota(settings.commits_per_second)
        self.traffic = None if settings.http is None else Traffic()
        self.commits = OffsetCommit(
            self.store,
            self.topics,
            self.writes,
            settings.log_partitions,
            settings.commits_recorded,
            self.quota,
            self.offset_store,
        )
        self.fetches = self._fetches()
        self.log_partition = self.store.log_partition = self.commits.log_partition
        self._transaction_log = TransactionLog(self.folder)
        self.transactions = Transactions(self.store, self.writes, self._transaction_log, self.log_partition)
        self.membership = Membership(
            self.store, self.topics.descriptions, self.writes, self.log_partition, settings.coordinator, loop
        )
        self.topics.when_changed(self.membership.topic_changes.add)
        self.rewinds = RewindRequests(self.membership, self.store)
        self.deletions = Deletions(self.store, self.topics, self.writes, self.log_partition, self.offset_store)
        self.job_socket = JobSocket(
            settings, self.store, self.writes, self.appender, self.log_partition, self.reading, self.rewinds
        )
        log_id = uuid_text(uuid.uuid5(uuid.NAMESPACE_URL, self.folder.resolve().as_uri()).bytes)
        self.cluster_id = surroundings.cluster_id or (lambda: log_id)
        self.cluster_apis = ClusterApis(self.store, self.topics, self.reads, self.cluster_id)
        self.dispatcher = ApiDispatcher(self.topics, self.reads.tasks, surroundings.versions, Counter())
        for handlers in self._handlers():
            self.dispatcher.add(handlers)

    def _handlers(self) -> Iterator[Handlers]:
        """Yield the handlers of what every serving process answers in the same way."""
        store, membership = self.store, self.membership
        yield {SASL_HANDSHAKE: at_once(_already_authenticated), SASL_AUTHENTICATE: at_once(_already_authenticated)}
        yield {LIST_GROUPS: group_list(store, self.dispatcher.errors)}
        yield GroupApis(store, self.topics, membership).handlers()
        yield ClassicApis(membership).handlers()
        yield ConsumerApis(membership, membership.settings).handlers()
        yield self.deletions.handlers()
        yield self.reads.handlers()
        yield self.cluster_apis.handlers()
        yield PartitionRequests(self.topics, self.reads, self.leader_epoch).handlers()
        yield TransactionDescriptions(store, self.transactions, coordinates=not self.is_node).handlers()
        yield LogDirs(self.folder, cordoned=self.is_node).handlers(self.reads.tasks)

    def _fetches(self) -> OffsetFetch:
        if self.offset_store is LOG_STORE:
            return OffsetFetch(self.store, self.topics)
        return StoredOffsetFetch(self.store, self.topics, self.offset_store)

    def _log_end_offset(self, segment: Segment) -> int:
        topic, _, number = segment.path.parent.name.rpartition("-")
        return self.log_ends[LogPartition(topic, int(number))]

    def add(self, features: Iterable[Feature]) -> None:
        """Add features, whose handlers answer requests from now on."""
        for feature in features:
            self.features.append(feature)
            self.dispatcher.add(feature.handlers())

    def load(self, snapshot: MappedSnapshot, ends: Mapping[int, int]) -> None:
        """Load a snapshot that covers the log up to `ends`, and the transaction log, so that requests can be answered.

        The members of groups are loaded when they are needed, or by `Membership.load`.

        Raises:
            LogMismatch: A transactional id is in another log partition than its own; see also `Feature.load`.
            LogUnavailable: The transaction log, or a log of a feature, cannot be read.
        """
        for feature in self.features:
            feature.load(snapshot)
        transactions, transaction_log_ends = self._transaction_log.read()
        self.log_ends |= {LogPartition(OFFSETS_TOPIC, number): end for number, end in ends.items()}
        self.log_ends |= transaction_log_ends
        self.topics.learn(snapshot.known_topics)
        self.store.load(snapshot)
        self.transactions.load(transactions)
        self.writes.watermarks.load(ends)

    def watch(self, work: Coroutine[None, None, None]) -> None:
        """Start work that never ends; an unexpected error of it ends the process, as its results are needed."""

        def ended(task: "asyncio.Task[None]") -> None:
            if not task.cancelled() and not self.writes.fault.done():
                LOG.error("Work that must not end has failed", exc_info=task.exception())
                self.writes.fault.set_result(None)

        task = asyncio.create_task(work)
        task.add_done_callback(ended)
        self._watched.append(task)

    def end_watched(self) -> None:
        """Cancel the work that never ends."""
        for task in self._watched:
            task.cancel()

    def errors(self) -> Counter[tuple[int, int]]:
        """Return how often each error code was answered, by API key and error code."""
        hot = ((OFFSET_COMMIT, self.commits.errors), (OFFSET_FETCH, self.fetches.errors))
        return self.dispatcher.errors + Counter({(api, code): n for api, errors in hot for code, n in errors.items()})


def _already_authenticated(_request: Any, _context: RequestContext) -> Values:
    """Answer a SASL request after the authentication, or without SASL, as a broker does."""
    message = "SaslAuthenticate request received after successful authentication"
    return {"error_code": ILLEGAL_SASL_STATE, "error_message": message, "mechanisms": (), "auth_bytes": b""}
