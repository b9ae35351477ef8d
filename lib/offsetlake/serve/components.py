"""The components of a serving process and their wiring."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from offsetlake.kafka.uuid import uuid_text
from offsetlake.log.disk.segments import Segment
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition
from offsetlake.log.writer.appender import Appender
from offsetlake.serve.apis.api_dispatcher import ApiDispatcher
from offsetlake.serve.apis.log_reads import LogReads
from offsetlake.serve.apis.offset_fetch import OffsetFetch
from offsetlake.serve.metrics.traffic import Traffic
from offsetlake.serve.net.security import Security
from offsetlake.serve.protocol.api_keys import OFFSET_COMMIT, OFFSET_FETCH
from offsetlake.serve.protocol.topics import Topics
from offsetlake.serve.settings import Settings
from offsetlake.serve.storage.mapped_snapshot import MappedSnapshot
from offsetlake.serve.storage.store import Store
from offsetlake.serve.transactions.coordinator import Transactions
from offsetlake.serve.transactions.log import TransactionLog
from offsetlake.serve.writes.offset_commit import OffsetCommit
from offsetlake.serve.writes.quota import Quota
from offsetlake.serve.writes.rounds import Flush, Writes


class ServerComponents:
    """The components of a serving process.

    | Field              | Description |
    |--------------------|-------------|
    | settings, security | The settings; authentication, authorization and the connections |
    | store, topics      | The committed offsets; the known topics |
    | appender, writes, reads | Appending to the log, the queue of writes, and reads of the log |
    | commits, fetches, transactions, dispatcher | The handlers of requests |
    | log_partition      | Returns the log partition of a group |
    | cluster_id         | The cluster id in answers |
    | quota              | The quota of commits; None: unlimited |
    | traffic            | Counters of Kafka's protocol; None: without metrics |
    """

    def __init__(self, settings: Settings, security: Security, loop: asyncio.AbstractEventLoop) -> None:
        folder, topics = Path(settings.log), settings.topics
        self.settings, self.security = settings, security
        self._log_end_offsets: dict[LogPartition, int] = {}  # when the log was loaded
        self.appender = Appender(folder, self._log_end_offset)
        self.store, self.writes = Store(), Writes(self.appender, Flush(settings.flush), loop)
        self.topics = Topics(
            None if topics is None else {name.encode(): count for name, count in topics.items()},
            settings.log_partitions,
        )
        self.reads = LogReads(folder, self.topics, self.writes.watermarks, loop)
        self.quota = None if settings.commits_per_second is None else Quota(settings.commits_per_second)
        self.commits = OffsetCommit(
            self.store,
            self.topics,
            self.writes,
            settings.log_partitions,
            settings.commits_recorded,
            self.quota,
        )
        self.fetches = OffsetFetch(self.store, self.topics)
        self.log_partition = self.commits.log_partition
        self._transaction_log = TransactionLog(folder)
        self.transactions = Transactions(self.store, self.writes, self._transaction_log, self.log_partition)
        cluster_uuid = uuid.uuid5(uuid.NAMESPACE_URL, folder.resolve().as_uri())
        self.cluster_id = uuid_text(cluster_uuid.bytes)
        self.dispatcher = ApiDispatcher(
            self.store,
            self.topics,
            self.writes,
            self.reads,
            self.commits,
            self.transactions,
            self.cluster_id,
        )
        self.traffic = None if settings.http is None else Traffic()

    def _log_end_offset(self, segment: Segment) -> int:
        topic, _, number = segment.path.parent.name.rpartition("-")
        return self._log_end_offsets[LogPartition(topic, int(number))]

    def load(self, snapshot: MappedSnapshot, ends: Mapping[int, int]) -> None:
        """Load a snapshot that covers the log up to `ends`, and the transaction log.

        Raises:
            LogMismatch: A transactional id is in another partition than the one that belongs to it.
            LogUnavailable: The transaction log cannot be read.
        """
        transactions, transaction_log_ends = self._transaction_log.read()
        self._log_end_offsets |= {LogPartition(OFFSETS_TOPIC, number): end for number, end in ends.items()}
        self._log_end_offsets |= transaction_log_ends
        self.topics.learn(snapshot.known_topics)
        self.store.load(snapshot)
        self.transactions.load(transactions)
        self.writes.watermarks.load(ends)

    def errors(self) -> Counter[tuple[int, int]]:
        """Return how often each error code was answered, by API key and error code."""
        hot = ((OFFSET_COMMIT, self.commits.errors), (OFFSET_FETCH, self.fetches.errors))
        return self.dispatcher.errors + Counter({(api, code): n for api, errors in hot for code, n in errors.items()})
