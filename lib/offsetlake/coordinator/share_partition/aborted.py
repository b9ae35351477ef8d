"""Records of aborted transactions, which a share group that reads committed records does not deliver."""

from collections.abc import Iterable, Sequence

from offsetlake.coordinator.share_partition.requests import (
    NO_PRODUCER_ID,
    AcquiredRecords,
    FetchedAbortedTransaction,
    FetchedBatch,
)


def aborted_batches(
    batches: Iterable[FetchedBatch], aborted: Sequence[FetchedAbortedTransaction]
) -> list[FetchedBatch]:
    """Return the batches that belong to one of the aborted transactions."""
    if not aborted:
        return []
    pending = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    producer_ids: set[int] = set()
    found: list[FetchedBatch] = []
    for batch in batches:
        if batch.producer_id == NO_PRODUCER_ID:
            continue
        while pending and pending[-1].first_offset <= batch.last_offset:
            producer_ids.add(pending.pop().producer_id)
        if batch.is_abort_marker:
            producer_ids.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in producer_ids:
            found.append(batch)
    return found


def without(acquired: list[AcquiredRecords], batches: Iterable[FetchedBatch]) -> list[AcquiredRecords]:
    """Return the acquired records that are not in any of the batches."""
    for batch in batches:
        remaining: list[AcquiredRecords] = []
        for records in acquired:
            if batch.last_offset < records.first_offset or records.last_offset < batch.first_offset:
                remaining.append(records)
                continue
            if records.first_offset < batch.first_offset:
                remaining.append(records._replace(last_offset=batch.first_offset - 1))
            if batch.last_offset < records.last_offset:
                remaining.append(records._replace(first_offset=batch.last_offset + 1))
        acquired = remaining
    return acquired
