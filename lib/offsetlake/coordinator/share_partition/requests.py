"""What the leader of a share partition is asked for and what it answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from offsetlake.coordinator.share_partition.steps import RANGES_PER_STEP, TYPES_PER_STEP, Steps
from offsetlake.kafka import error_codes
from offsetlake.rules.share_state import StateBatch

NO_PRODUCER_ID = -1


class AcquireMode(IntEnum):
    """How many records ShareFetch may acquire (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    """Whole batches, although these may be more records than the limit."""
    RECORD_LIMIT = 1
    """At most as many records as the limit, although this may be a part of a batch."""


class AcknowledgeType(IntEnum):
    """What a member does with a record that it acquired."""

    GAP = 0
    """There is no record at the offset; the offset is archived."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """The lock of the record starts anew (KIP-1222)."""


class FetchedBatch(NamedTuple):
    """The header of a record batch in the response of the partition's leader."""

    first_offset: int
    last_offset: int
    producer_id: int = NO_PRODUCER_ID
    is_transactional: bool = False
    is_abort_marker: bool = False


class FetchedAbortedTransaction(NamedTuple):
    """An aborted transaction in the response of the partition's leader."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class AcquireRequest:
    """A fetch of a member, with what the partition's leader returned for it.

    Attributes:
        member_id: The member.
        max_records: The most records to acquire; whole batches may have more in the mode BATCH_OPTIMIZED.
        batch_size: The number of records from which records are divided into several batches, at record batches.
        fetch_offset: The offset from which records were fetched.
        batches: The fetched record batches in the order of offsets.
        aborted: The aborted transactions among them, if the group reads committed records only.
        mode: The acquire mode.
    """

    member_id: str
    max_records: int
    batch_size: int
    fetch_offset: int
    batches: Sequence[FetchedBatch]
    aborted: Sequence[FetchedAbortedTransaction] = ()
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


class AcquiredRecords(NamedTuple):
    """Records that a member acquired; `delivery_count` includes this delivery."""

    first_offset: int
    last_offset: int
    delivery_count: int

    @property
    def records(self) -> int:
        """The number of offsets."""
        return self.last_offset - self.first_offset + 1


class AcknowledgementBatch(NamedTuple):
    """Acknowledgements of a range of offsets: one type for all of them, or a type for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


def are_valid(batches: Sequence[AcknowledgementBatch], allows_renew: bool) -> Steps[bool]:
    """Check acknowledgements without the state of the records (`KafkaApis.validateAcknowledgementBatches`)."""
    last_type = AcknowledgeType.RENEW if allows_renew else AcknowledgeType.REJECT
    previous_last = -1
    for number, batch in enumerate(batches, 1):
        records = batch.last_offset - batch.first_offset + 1
        if records <= 0 or batch.first_offset < previous_last or len(batch.types) not in {1, records}:
            return False
        for first in range(0, len(batch.types), TYPES_PER_STEP):
            types = batch.types[first : first + TYPES_PER_STEP]
            if not AcknowledgeType.GAP <= min(types) <= max(types) <= last_type:
                return False
            if len(types) == TYPES_PER_STEP:
                yield 0
        previous_last = batch.last_offset
        if number % RANGES_PER_STEP == 0:
            yield 0
    return True


@dataclass(frozen=True, slots=True)
class PersisterWrite:
    """A WriteShareGroupState request for the persister, whose outcome is reported to the share partition.

    Attributes:
        write_id: Identifies the write among those of the share partition.
        state_epoch: The state epoch that was read with the state.
        leader_epoch: The leader epoch of the share partition.
        start_offset: The start offset.
        delivery_complete_count: The number of records in flight that are acknowledged or archived.
        batches: The records whose state changes.
    """

    write_id: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The result of acknowledging or releasing records.

    Attributes:
        error_code: NONE, INVALID_REQUEST, or INVALID_RECORD_STATE; if it is not NONE, no record changed its state.
        write: What must be durable before the member gets its response; None if nothing.
    """

    error_code: int = error_codes.NONE
    write: PersisterWrite | None = None
