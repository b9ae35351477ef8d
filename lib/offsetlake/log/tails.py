"""The end of what was read of a log partition: evidence whether a log still contains it.

A log partition can lose its last records and be written again: after an unclean leader election, on a restored disk, or
if its topic is deleted and created again. As in KIP-320, leader epochs show that, even if the last batch was compacted.
"""

from dataclasses import dataclass
from typing import NamedTuple

import google_crc32c
import numpy as np

from offsetlake.kafka.batches import kernels
from offsetlake.kafka.batches.framing import headers
from offsetlake.kafka.batches.kernels import Bytes, Ints
from offsetlake.log.positions import LogPartition, OffsetRange

_DELETE_HORIZON = 0x40  # attribute bit
_LEGACY_ATTRIBUTES_AT = 17  # with magic 0 and 1
_CODEC = 0x07  # attribute bits


class TailQuery(NamedTuple):
    """Asks for the tail of a log partition before `offset`; `leader_epoch` is that of the last batch before, if known.

    The log contains the offset before `offset`, or did before compaction.
    """

    log_partition: LogPartition
    offset: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Tail:
    """The batches of a log partition around an offset.

    Attributes:
        checksum: The CRC-32C of the batch that ends before the offset, which identifies the log. The leader epoch is
            excluded. None if the batch no longer exists, or if its bytes may have changed: it was compacted, or
            contains compressed messages of magic 0 or 1.
        leader_epoch: The leader epoch of the last batch before the offset; None if it has none.
        next_epoch: The leader epoch of the first batch after the offset; None if it has none.
        spanning: The offsets of a batch that begins before the offset and ends after it; None if there is none.
        epoch_end: The offset at which the leader epoch of the query ends, 0 if the log has only lower leader epochs,
            None if it is unknown or has not ended; determined only without a checksum.
    """

    checksum: int | None = None
    leader_epoch: int | None = None
    next_epoch: int | None = None
    spanning: OffsetRange | None = None
    epoch_end: int | None = None


def tail_of(buffer: Bytes, positions: Ints, offset: int) -> Tail:
    """Return the tail before `offset` according to the batches at some positions, in log order."""
    firsts, lasts = kernels.spans(buffer, positions)
    before, after = np.flatnonzero(lasts < offset), np.flatnonzero(firsts >= offset)
    across = np.flatnonzero((firsts < offset) & (lasts >= offset))
    ends_before = len(before) and lasts[before[-1]] == offset - 1
    return Tail(
        checksum=_checksum(buffer, positions[before[-1]]) if ends_before else None,
        leader_epoch=leader_epoch(buffer, positions[before[-1:]]),
        next_epoch=leader_epoch(buffer, positions[after[:1]]),
        spanning=OffsetRange(int(firsts[across[0]]), int(lasts[across[0]]) + 1) if len(across) else None,
    )


def leader_epoch(buffer: Bytes, positions: Ints) -> int | None:
    """Return the leader epoch of the batch at the first of some positions; None if there is none, or it has none."""
    if not len(positions):
        return None
    (header,) = headers(buffer, positions[:1])
    epoch = int(header["partition_leader_epoch"])
    return epoch if header["magic"] == 2 and epoch >= 0 else None


def _checksum(buffer: Bytes, position: int) -> int | None:
    (header,) = headers(buffer, np.array([position]))
    if header["magic"] < 2:  # a message that is not compressed is kept as it is or removed
        changes = bool(buffer[position + _LEGACY_ATTRIBUTES_AT] & _CODEC)
    else:
        is_compacted = header["record_count"] <= header["last_offset_delta"]
        changes = bool(is_compacted or header["attributes"] & _DELETE_HORIZON)
    if changes:
        return None
    stop = position + int(kernels.batch_size(buffer, position))
    return int(google_crc32c.value(buffer[position + kernels.MAGIC_AT : stop].tobytes()))
