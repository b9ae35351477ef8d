"""The transaction log: `__transaction_state` in the folder of the log, in Kafka's record format.

The newest record of a transactional id is its state. The number of partitions is a broker's default, so that brokers
and this server can use the same folder, one after the other. When a partition has grown, all current states are written
again in one batch, and the segments before it are deleted.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from offsetlake.errors import LogMismatch, LogUnavailable
from offsetlake.kafka.batches.writer import Batch, record_batch
from offsetlake.kafka.placement import partition_for_group
from offsetlake.kafka.records.coordinator_records import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    decode_record,
    encode_transaction_state,
)
from offsetlake.log.disk.cutting import delete, plan_cut
from offsetlake.log.disk.segments import partition_folders, segments_of
from offsetlake.log.disk.whole_batches import whole_batches
from offsetlake.log.positions import TRANSACTION_LOG_PARTITIONS, LogPartition
from offsetlake.log.writer.appender import SEGMENT_BYTES
from offsetlake.log.writer.ownership import disk_errors
from offsetlake.serve.transactions.rules import ENDED, NO_ID, State, Transaction

LOG = logging.getLogger(__name__)
TRANSACTIONAL_ID_EXPIRATION_MS = 7 * 86_400_000
"""The default of a broker's transactional.id.expiration.ms."""


def partition_of(transactional_id: str) -> LogPartition:
    """Return the partition of a transactional id."""
    return LogPartition(TRANSACTIONS_TOPIC, partition_for_group(transactional_id, TRANSACTION_LOG_PARTITIONS))


def state_batch(transactions: Sequence[Transaction]) -> Batch:
    """Return a record batch of transactions."""
    return record_batch(
        max((transaction.updated for transaction in transactions), default=0),
        [encode_transaction_state(transaction.transactional_id, _value(transaction)) for transaction in transactions],
    )


class TransactionLog:
    """Reads the transaction log once, and tracks the size of its partitions."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes: dict[LogPartition, int] = {}  # in bytes, since the last cleanup
        self._cleaned_sizes: dict[LogPartition, int] = {}  # in bytes, of the current states at the last cleanup

    def read(self) -> tuple[dict[str, Transaction], dict[LogPartition, int]]:
        """Return the states by transactional id, and the log end offsets of the partitions.

        Raises:
            LogMismatch: A transactional id is in another partition than the one that belongs to it.
            LogUnavailable: A segment is corrupt, has a torn batch at its end or cannot be read.
        """
        states: dict[str, Transaction] = {}
        ends: dict[LogPartition, int] = {}
        for partition, path in partition_folders(self._folder, TRANSACTIONS_TOPIC).items():
            newest: dict[bytes, bytes | None] = {}
            ends[partition] = self._sizes[partition] = 0
            for segment in segments_of(path):
                with disk_errors(self._folder):
                    self._sizes[partition] += segment.path.stat().st_size
                ends[partition] = segment.base_offset
                for batch in whole_batches(segment.path):
                    ends[partition] = batch.next_offset
                    if not batch.is_control_batch:
                        newest |= {record.key: record.value for record in batch if record.key}
            states |= _states(partition, newest)
        return states, ends

    def grown(self, partition: LogPartition, batch: Batch) -> bool:
        """Account for a batch that was written; return whether the partition is due for a cleanup."""
        self._sizes[partition] = self._sizes.get(partition, 0) + len(batch.data)
        return self._sizes[partition] > SEGMENT_BYTES + 2 * self._cleaned_sizes.get(partition, 0)

    def clean(self, partition: LogPartition, batch: Batch) -> None:
        """Delete the segments before a durable batch with all current states."""
        self._sizes[partition] = self._cleaned_sizes[partition] = len(batch.data)
        try:
            last = segments_of(self._folder / str(partition))[-1]
            delete(plan_cut(self._folder, partition, last.base_offset))
        except LogUnavailable as error:
            LOG.warning("Cannot delete old segments of the transaction log: %s", error)


def is_expired(transaction: Transaction, now: int) -> bool:
    """Check whether a transactional id was unused for so long that it may be dropped."""
    return transaction.state in ENDED and transaction.updated + TRANSACTIONAL_ID_EXPIRATION_MS < now


def _states(partition: LogPartition, newest: Mapping[bytes, bytes | None]) -> dict[str, Transaction]:
    states = {}
    for key, value in newest.items():
        record = decode_record(TRANSACTIONS_TOPIC, key, value)
        name = record.key["transactionalId"]
        if partition_of(name) != partition:
            raise LogMismatch(
                f"Transactional id {name!r} is in {partition} but belongs in {partition_of(name)}, because the broker "
                "that wrote it had another transaction.state.log.num.partitions. If none of the broker's transactions "
                f"is open, delete the folders {TRANSACTIONS_TOPIC}-*."
            )
        if record.value is not None:
            states[name] = _transaction(name, record.value)
    return states


def _value(transaction: Transaction) -> Mapping[str, Any]:
    partitions = (
        [{"topic": OFFSETS_TOPIC, "partitionIds": sorted(transaction.partitions)}] if transaction.partitions else []
    )
    return {
        "producerId": transaction.producer_id,
        "previousProducerId": transaction.previous_producer_id,
        "nextProducerId": transaction.next_producer_id,
        "producerEpoch": transaction.epoch,
        "nextProducerEpoch": -1,
        "transactionTimeoutMs": transaction.timeout,
        "transactionStatus": transaction.state,
        "transactionPartitions": None if transaction.state is State.EMPTY else partitions,
        "transactionLastUpdateTimestampMs": transaction.updated,
        "transactionStartTimestampMs": transaction.started,
        "clientTransactionVersion": transaction.version,
    }


def _transaction(name: str, value: Mapping[str, Any]) -> Transaction:
    if value["transactionStatus"] not in [*State]:
        raise LogUnavailable(f"Transactional id {name!r} has the unknown state {value['transactionStatus']}.")
    topics = value["transactionPartitions"] or ()
    return Transaction(
        transactional_id=name,
        producer_id=value["producerId"],
        epoch=value["producerEpoch"],
        timeout=value["transactionTimeoutMs"],
        state=State(value["transactionStatus"]),
        partitions=frozenset(
            number for topic in topics if topic["topic"] == OFFSETS_TOPIC for number in topic["partitionIds"]
        ),
        started=value["transactionStartTimestampMs"],
        updated=value["transactionLastUpdateTimestampMs"],
        previous_producer_id=value.get("previousProducerId", NO_ID),
        next_producer_id=value.get("nextProducerId", NO_ID),
        version=value.get("clientTransactionVersion", 0),
    )
