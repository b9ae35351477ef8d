"""What a serving process is made of."""

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
    """Parts of a serving process.

    | field           | is |
    |-----------------|----|
    | settings, security | what it runs with; who is let in, and all connections |
    | store, topics   | what is served |
    | appender, writes, reads | how the log is written and read |
    | commits, fetches, transactions, admin | what answers requests |
    | log_partition   | gives that of a group |
    | cluster_id      | as clients are told |
    | quota           | of commits; None: as many as come |
    | traffic         | counts requests of Kafka's protocol; None: nobody asks |
    """

    def __init__(self, settings: Settings, security: Security, loop: asyncio.AbstractEventLoop) -> None:
        folder, named = Path(settings.log), settings.topics
        self.settings, self.security = settings, security
        self._ends: dict[LogPartition, int] = {}  # of the log, when it was loaded
        self.appender = Appender(folder, self._end_of)
        self.store, self.writes = Store(), Writes(self.appender, Flush(settings.flush), loop)
        self.topics = Topics(
            None if named is None else {name.encode(): number for name, number in named.items()},
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
        id_ = uuid.uuid5(uuid.NAMESPACE_URL, folder.resolve().as_uri())
        self.cluster_id = uuid_text(id_.bytes)
        self.admin = ApiDispatcher(
            self.store,
            self.topics,
            self.writes,
            self.reads,
            self.commits,
            self.transactions,
            self.cluster_id,
        )
        self.traffic = None if settings.http is None else Traffic()

    def _end_of(self, segment: Segment) -> int:
        topic, _, number = segment.path.parent.name.rpartition("-")
        return self._ends[LogPartition(topic, int(number))]

    def load(self, base: MappedSnapshot, ends: Mapping[int, int]) -> None:
        """Begin with a base that has all that the log says up to its ends; raises LogMismatch, LogUnavailable."""
        standing, ends_of_transactions = self._transaction_log.read()
        self._ends |= {LogPartition(OFFSETS_TOPIC, number): end for number, end in ends.items()}
        self._ends |= ends_of_transactions
        self.topics.learn(base.known_topics)
        self.store.load(base)
        self.transactions.load(standing)
        self.writes.watermarks.load(ends)

    def errors(self) -> Counter[tuple[int, int]]:
        """Count the error codes that were answered, by API."""
        hot = ((OFFSET_COMMIT, self.commits.errors), (OFFSET_FETCH, self.fetches.errors))
        return self.admin.errors + Counter({(api, code): n for api, of in hot for code, n in of.items()})
