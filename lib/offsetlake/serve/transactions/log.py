"""`__transaction_state` in the folder of the log: what stands of each transactional id, in Kafka's own records.

One record an id, the newest counts. Its partitions are those a broker has by default, so that a broker may take the
folder over as this server takes over one of a broker. What is superseded goes as the log grows: all that stands is
written again into one batch, and the segments before it are deleted.
"""

import logging
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aiokafka.record.memory_records import MemoryRecords

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
from offsetlake.log.disk.segments import segments_of
from offsetlake.log.positions import TRANSACTION_LOG_PARTITIONS, LogPartition
from offsetlake.log.writer.appender import SEGMENT_BYTES
from offsetlake.log.writer.ownership import disk_errors
from offsetlake.serve.transactions.rules import ENDED, NO_ID, State, Transaction

LOG = logging.getLogger(__name__)
_SIZE = struct.Struct(">8xi")  # of a batch, behind its base offset: what follows
EXPIRES = 7 * 86_400_000  # ms without a transaction: transactional.id.expiration.ms of a broker


def partition_of(transactional_id: str) -> LogPartition:
    """Give the partition that holds a transactional id."""
    return LogPartition(TRANSACTIONS_TOPIC, partition_for_group(transactional_id, TRANSACTION_LOG_PARTITIONS))


def state_batch(standing: Sequence[Transaction]) -> Batch:
    """Lay out records of what stands."""
    return record_batch(
        max((of.updated for of in standing), default=0),
        [encode_transaction_state(of.transactional_id, _value(of)) for of in standing],
    )


class TransactionLog:
    """Reads the log once, and remembers how large its partitions have become."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes: dict[LogPartition, int] = {}  # bytes since all that stands was written
        self._least: dict[LogPartition, int] = {}  # bytes of what stood then

    def read(self) -> tuple[dict[str, Transaction], dict[LogPartition, int]]:
        """Give what stands, and the ends of the partitions there are; nothing torn may be at them.

        Raises LogMismatch where an id is in another partition than it belongs in, LogUnavailable for what is no such
        log.
        """
        standing: dict[str, Transaction] = {}
        ends: dict[LogPartition, int] = {}
        for path in sorted(self._folder.glob(f"{TRANSACTIONS_TOPIC}-*")):
            partition = LogPartition(TRANSACTIONS_TOPIC, int(path.name.rpartition("-")[2]))
            newest: dict[bytes, bytes | None] = {}
            ends[partition] = self._sizes[partition] = 0
            for segment in segments_of(path):
                with disk_errors(self._folder):
                    data = segment.path.read_bytes()
                self._sizes[partition] += len(data)
                ends[partition] = max(segment.base_offset, _read(data, newest, segment.path))
            standing |= _standing(partition, newest)
        return standing, ends

    def grown(self, partition: LogPartition, batch: Batch) -> bool:
        """Take in that a batch was written; tells whether it is time to write all that stands."""
        self._sizes[partition] = self._sizes.get(partition, 0) + len(batch.data)
        return self._sizes[partition] > SEGMENT_BYTES + 2 * self._least.get(partition, 0)

    def clean(self, partition: LogPartition, batch: Batch) -> None:
        """Take in that all that stands was written, in a batch now on disk: segments before it go."""
        self._sizes[partition] = self._least[partition] = len(batch.data)
        try:
            last = segments_of(self._folder / str(partition))[-1]
            delete(plan_cut(self._folder, partition, last.base_offset))
        except LogUnavailable as error:
            LOG.warning("%s", error)


def expired(of: Transaction, now: int) -> bool:
    """Tell whether nobody has used a transactional id for so long that it may be forgotten."""
    return of.state in ENDED and of.updated + EXPIRES < now


def _read(data: bytes, newest: dict[bytes, bytes | None], path: Path) -> int:
    """Take in the newest record of each key of a segment; gives the log offset behind its last batch."""
    end, batches, true = 0, MemoryRecords(data), _is_whole(data)
    while true and (batch := batches.next_batch()) is not None:
        true = batch.validate_crc()
        if true:
            end = batch.next_offset
            newest |= {} if batch.is_control_batch else {record.key: record.value for record in batch if record.key}
    if not true:
        raise LogUnavailable(f"{path} is damaged: put a copy in its place that is not")
    return end


def _is_whole(data: bytes) -> bool:
    """Tell whether there is one batch behind the other, by their sizes."""
    at = 0
    while at <= len(data) - _SIZE.size:
        (size,) = _SIZE.unpack_from(data, at)
        if size < 0:
            return False
        at += _SIZE.size + size
    return at == len(data)


def _standing(partition: LogPartition, newest: Mapping[bytes, bytes | None]) -> dict[str, Transaction]:
    found = {}
    for key, value in newest.items():
        record = decode_record(TRANSACTIONS_TOPIC, key, value)
        name = record.key["transactionalId"]
        if partition_of(name) != partition:
            raise LogMismatch(
                f"transactional id {name!r} is in {partition}, but belongs in {partition_of(name)}: the broker that "
                f"wrote it had another transaction.state.log.num.partitions. Where none of its transactions is open, "
                f"delete the folders {TRANSACTIONS_TOPIC}-*"
            )
        if record.value is not None:
            found[name] = _transaction(name, record.value)
    return found


def _value(of: Transaction) -> Mapping[str, Any]:
    partitions = [{"topic": OFFSETS_TOPIC, "partitionIds": sorted(of.partitions)}] if of.partitions else []
    return {
        "producerId": of.producer_id,
        "previousProducerId": of.previous_producer_id,
        "nextProducerId": of.next_producer_id,
        "producerEpoch": of.epoch,
        "nextProducerEpoch": -1,
        "transactionTimeoutMs": of.timeout,
        "transactionStatus": of.state,
        "transactionPartitions": None if of.state is State.EMPTY else partitions,
        "transactionLastUpdateTimestampMs": of.updated,
        "transactionStartTimestampMs": of.started,
        "clientTransactionVersion": of.version,
    }


def _transaction(name: str, value: Mapping[str, Any]) -> Transaction:
    if value["transactionStatus"] not in [*State]:
        raise LogUnavailable(f"transactional id {name!r} has state {value['transactionStatus']}, of which nobody knows")
    topics = value["transactionPartitions"] or ()
    return Transaction(
        transactional_id=name,
        producer_id=value["producerId"],
        epoch=value["producerEpoch"],
        timeout=value["transactionTimeoutMs"],
        state=State(value["transactionStatus"]),
        partitions=frozenset(of for topic in topics if topic["topic"] == OFFSETS_TOPIC for of in topic["partitionIds"]),
        started=value["transactionStartTimestampMs"],
        updated=value["transactionLastUpdateTimestampMs"],
        previous_producer_id=value.get("previousProducerId", NO_ID),
        next_producer_id=value.get("nextProducerId", NO_ID),
        version=value.get("clientTransactionVersion", 0),
    )
