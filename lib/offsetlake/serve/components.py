"""The components of a serving process and their wiring."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from offsetlake.kafka.uuid import uuid_text
from offsetlake.log.disk.segments import Segment
from offsetlake.log.positions import OFFSETS_TOPIC, SHARE_STATE_TOPIC, LogPartition
from offsetlake.log.writer.appender import Appender
from offsetlake.serve.apis.api_dispatcher import ApiDispatcher, Coordinators
from offsetlake.serve.apis.cluster_apis import ClusterApis
from offsetlake.serve.apis.log_dirs import LogDirs
from offsetlake.serve.apis.log_reads import LogReads
from offsetlake.serve.apis.node_apis import NodeApis
from offsetlake.serve.apis.node_configs import NodeConfigs
from offsetlake.serve.apis.offset_fetch import OffsetFetch
from offsetlake.serve.apis.partition_requests import PartitionRequests
from offsetlake.serve.apis.stored_offset_fetch import StoredOffsetFetch
from offsetlake.serve.front.forwarding import Forwarding
from offsetlake.serve.front.leadership import Leadership
from offsetlake.serve.front.metadata.cluster import Cluster
from offsetlake.serve.front.metadata.topics import ClusterTopics, LedTopics
from offsetlake.serve.front.node import cluster_of
from offsetlake.serve.groups.membership import Membership
from offsetlake.serve.groups.rewind_requests import RewindRequests
from offsetlake.serve.groups.share_partitions import SharePartitions
from offsetlake.serve.metrics.traffic import Traffic
from offsetlake.serve.net.security import Security
from offsetlake.serve.protocol.api_keys import OFFSET_COMMIT, OFFSET_FETCH
from offsetlake.serve.protocol.topics import Topics
from offsetlake.serve.settings import Settings
from offsetlake.serve.share.listener import ShareListener
from offsetlake.serve.share_state.log import ShareStateLog
from offsetlake.serve.share_state.placement import check_heads
from offsetlake.serve.share_state.share_states import ShareStates
from offsetlake.serve.storage.mapped_snapshot import MappedSnapshot
from offsetlake.serve.storage.offset_store import LOG_STORE
from offsetlake.serve.storage.store import Store
from offsetlake.serve.transactions.coordinator import Transactions
from offsetlake.serve.transactions.descriptions import TransactionDescriptions
from offsetlake.serve.transactions.log import TransactionLog
from offsetlake.serve.writes.deleted_topics import DeletedTopics
from offsetlake.serve.writes.deletions import Deletions
from offsetlake.serve.writes.offset_commit import OffsetCommit
from offsetlake.serve.writes.quota import Quota
from offsetlake.serve.writes.rounds import Flush, Writes

if TYPE_CHECKING:
    from offsetlake.serve.zookeeper.dual_commits import DualCommits
    from offsetlake.serve.zookeeper.zookeeper_store import ZooKeeperStore


class ServerComponents:
    """The components of a serving process.

    | Field              | Description |
    |--------------------|-------------|
    | settings, security | The settings; authentication, authorization and the connections |
    | store, topics      | The committed offsets; the known topics |
    | appender, writes, reads | Appending to the log, the queue of writes, and reads of the log |
    | membership         | The groups whose members this process coordinates |
    | rewinds            | Sets offsets of these groups |
    | share_states, share_partitions | The states of share partitions; those of the groups of this process |
    | deletions          | Deletes groups and offsets |
    | commits, fetches, transactions, dispatcher | The handlers of requests |
    | log_partition      | Returns the log partition of a group |
    | cluster            | The cluster; None: without one |
    | leadership, forwarding, deleted_topics | Of the cluster whose broker this process is; None: it is none |
    | share              | Handles the requests of share consumers of the cluster; None: without their listener |
    | dual_commits       | Writes commits to ZooKeeper, too; None: nothing does |
    | zookeeper_store    | The same if ZooKeeper is the store of offsets; None: the log is |
    | quota              | The quota of commits; None: unlimited |
    | traffic            | Counters of Kafka's protocol; None: without metrics |
    """

    def __init__(self, settings: Settings, security: Security, loop: asyncio.AbstractEventLoop) -> None:
        self.settings, self.security, folder = settings, security, Path(settings.log)
        self._log_end_offsets: dict[LogPartition, int] = {}  # when the log was loaded
        self.cluster = cluster = cluster_of(settings)
        joined = None if settings.node_id is None else cluster
        self.leadership = None if joined is None else Leadership(joined)
        self.forwarding = None if joined is None else Forwarding(joined, relays=not security.has_logins())
        leader_epoch = None if self.leadership is None else self.leadership.epoch
        flush = Flush(settings.flush)
        self.appender = Appender(folder, self._log_end_offset, leader_epoch, journaled=flush is Flush.ALWAYS)
        self.store, self.writes = Store(), Writes(self.appender, flush, loop)
        self.topics = _topics(settings, cluster)
        self.reads = LogReads(folder, self.topics, self.writes.watermarks, loop)
        self.quota = None if settings.commits_per_second is None else Quota(settings.commits_per_second)
        self.zookeeper_store: ZooKeeperStore | None = None
        self.dual_commits = self._dual_commits()
        self.commits = OffsetCommit(
            self.store,
            self.topics,
            self.writes,
            settings.log_partitions,
            settings.commits_recorded,
            self.quota,
            self.zookeeper_store or LOG_STORE,
        )
        self.fetches = self._fetches()
        self.log_partition = self.store.log_partition = self.commits.log_partition
        self._transaction_log = TransactionLog(folder)
        self.transactions = Transactions(self.store, self.writes, self._transaction_log, self.log_partition)
        self.membership = Membership(
            self.store, self.topics.descriptions, self.writes, self.log_partition, settings.coordinator, loop
        )
        self.rewinds = RewindRequests(self.membership, self.store)
        self.share_states = ShareStates(self.writes, self.topics, settings.coordinator, loop)
        self.share_partitions = SharePartitions(self.membership, self.share_states, self.store, loop)
        self.deletions = Deletions(
            self.store,
            self.topics,
            self.writes,
            self.log_partition,
            self.share_partitions.delete_states,
            self.zookeeper_store or LOG_STORE,
        )
        if cluster is not None:
            cluster.changed += [self.membership.topic_changes.add, self.share_states.topics_changed]
        deletions = None if joined is None else DeletedTopics(joined, self.store, self.writes, self.log_partition)
        self.deleted_topics = deletions
        self._log_uuid = uuid.uuid5(uuid.NAMESPACE_URL, folder.resolve().as_uri())
        cluster_apis = ClusterApis(self.store, self.topics, self.reads, self.cluster_id)
        self.dispatcher = ApiDispatcher(
            self.store,
            self.topics,
            self.writes,
            self.commits,
            Coordinators(self.transactions, self.membership, self.share_states, self.share_partitions, self.deletions),
            cluster_apis,
            self._node_apis(cluster_apis),
            self.forwarding,
        )
        self.share = self._share_listener(loop)
        self.traffic = None if settings.http is None else Traffic()

    def _node_apis(self, cluster_apis: ClusterApis) -> NodeApis:
        """Return the handlers of requests about this process as a node."""
        settings, leadership = self.settings, self.leadership
        return NodeApis(
            NodeConfigs(settings, self.security, self.topics, cluster_apis, self.forwarding),
            LogDirs(Path(settings.log), cordoned=leadership is not None),
            PartitionRequests(self.topics, self.reads, (lambda _: 0) if leadership is None else leadership.epoch),
            TransactionDescriptions(self.store, self.transactions, coordinates=leadership is None),
        )

    def _share_listener(self, loop: asyncio.AbstractEventLoop) -> ShareListener | None:
        if self.cluster is None or self.settings.share is None:
            return None
        led = ClusterApis(self.store, LedTopics(self.cluster), self.reads, self.cluster_id)
        settings = self.settings.coordinator
        listener = ShareListener(self.cluster, settings, self.share_states, led, self.dispatcher, loop)
        self.membership.share_settings = listener.group_settings.of
        return listener

    def _dual_commits(self) -> "DualCommits | None":
        """Return what writes commits to ZooKeeper, which may also be the store."""
        if self.settings.zookeeper is None:
            return None
        from offsetlake.serve.zookeeper import dual_commits, zookeeper_store  # noqa: PLC0415 - few servers need them

        settings, folder = self.settings.zookeeper, Path(self.settings.log)
        if self.settings.store == "log":
            return dual_commits.DualCommits(settings, folder, self.store, self.writes.watermarks)
        store = zookeeper_store.ZooKeeperStore(settings, folder, self.store, self.writes, self.settings.log_partitions)
        self.zookeeper_store = store
        return store

    def _fetches(self) -> OffsetFetch:
        if self.zookeeper_store is None:
            return OffsetFetch(self.store, self.topics)
        return StoredOffsetFetch(self.store, self.topics, self.zookeeper_store)

    def cluster_id(self) -> str | None:
        """Return the cluster id in answers: that of the cluster, None before its first metadata, or one of the log."""
        return uuid_text(self._log_uuid.bytes) if self.cluster is None else self.cluster.image.cluster_id

    def _log_end_offset(self, segment: Segment) -> int:
        topic, _, number = segment.path.parent.name.rpartition("-")
        return self._log_end_offsets[LogPartition(topic, int(number))]

    def load(self, snapshot: MappedSnapshot, ends: Mapping[int, int]) -> None:
        """Load a snapshot that covers the log up to `ends`, and the transaction log, so that requests can be answered.

        The members of groups are loaded when they are needed, or by `Membership.load`.

        Raises:
            LogMismatch: A transactional id or a share partition is in another log partition than its own.
            LogUnavailable: The transaction log or that of `__share_group_state` cannot be read.
        """
        check_heads(Path(self.settings.log))
        transactions, transaction_log_ends = self._transaction_log.read()
        self._log_end_offsets |= {LogPartition(OFFSETS_TOPIC, number): end for number, end in ends.items()}
        self._log_end_offsets |= transaction_log_ends
        self.topics.learn(snapshot.known_topics)
        if self.deleted_topics is not None:
            self.deleted_topics.load(snapshot)
        self.store.load(snapshot)
        self.share_states.not_read = snapshot.not_read.get(SHARE_STATE_TOPIC, frozenset())
        self.transactions.load(transactions)
        self.writes.watermarks.load(ends)

    async def load_share_states(self) -> None:
        """Load the states of share partitions, while the event loop handles requests.

        Raises:
            LogMismatch: A share partition is in another log partition than the one that belongs to it.
            LogUnavailable: The log of `__share_group_state` cannot be read.
        """
        log = ShareStateLog(Path(self.settings.log), self.settings.coordinator.share_updates_per_snapshot)
        await self.share_states.load(log)
        self._log_end_offsets |= log.ends

    def background_work(self) -> list[Coroutine[None, None, None]]:
        """Return the work that never ends, and begins when the log and the states of share partitions are loaded."""
        work = [self.share_states.snapshot_cold(), self.share_partitions.remove_replaced_topics()]
        return work if self.dual_commits is None else [*work, self.dual_commits.run()]

    def errors(self) -> Counter[tuple[int, int]]:
        """Return how often each error code was answered, by API key and error code."""
        hot = ((OFFSET_COMMIT, self.commits.errors), (OFFSET_FETCH, self.fetches.errors))
        return self.dispatcher.errors + Counter({(api, code): n for api, errors in hot for code, n in errors.items()})


def _topics(settings: Settings, cluster: Cluster | None) -> Topics:
    """Return the topics of the cluster, without one those of the settings."""
    if cluster is not None:
        return LedTopics(cluster) if settings.node_id is None else ClusterTopics(cluster)
    topics = None if settings.topics is None else {name.encode(): count for name, count in settings.topics.items()}
    return Topics(topics, settings.log_partitions)
