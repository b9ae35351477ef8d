"""MirrorMaker 2's offset syncs and checkpoints as columns.

The formats are those of `org.apache.kafka.connect.mirror.OffsetSync` and `Checkpoint`: structures of Kafka's protocol
types, in which a string is its length as int16 and its UTF-8 bytes.
"""

import struct
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.kafka.batches.kernels import Ints
from offsetlake.kafka.batches.reader import Records
from offsetlake.kafka.batches.string_columns import strings

_PARTITION = struct.Struct(">i")
_LENGTH = struct.Struct(">h")
_PAIR_BYTES = 16
SYNC_PAIR_AT, CHECKPOINT_PAIR_AT = 0, 2
"""Position of the upstream and the downstream offset in a value; that of a checkpoint begins with a version."""


class Pairs(NamedTuple):
    """Upstream and downstream offsets of the records with one of some keys, in log order; `keys` numbers the keys."""

    keys: Ints
    upstream: Ints
    downstream: Ints


def sync_key(topic: str, partition: int) -> bytes:
    """Return the key of the offset syncs of a partition, with the name of its topic at the source."""
    return _string(topic) + _PARTITION.pack(partition)


def checkpoint_key(group_id: str, topic: str, partition: int) -> bytes:
    """Return the key of the checkpoints of a group and partition, with the name of its topic at the target."""
    return _string(group_id) + sync_key(topic, partition)


def read_pairs(records: Records, keys: pa.BinaryArray, pair_at: int) -> Pairs:
    """Return the pairs of records whose key is in `keys`; records without a valid pair are omitted.

    Args:
        records: Records of a topic with offset syncs or checkpoints.
        keys: Distinct keys.
        pair_at: SYNC_PAIR_AT or CHECKPOINT_PAIR_AT.
    """
    records = records.where(
        ~records.control & (records.key_length > 0) & (records.value_length >= pair_at + _PAIR_BYTES)
    )
    found = pc.index_in(strings(records.buffer, records.key_at, records.key_length).cast(pa.binary()), value_set=keys)
    numbers = found.fill_null(-1).to_numpy().astype(np.int64)
    chosen = numbers >= 0
    positions = records.value_at[chosen] + pair_at
    data = records.buffer[positions[:, None] + np.arange(_PAIR_BYTES)]
    upstream, downstream = np.ascontiguousarray(data).view(">i8").astype(np.int64).reshape(-1, 2).T
    valid = (upstream >= 0) & (downstream >= 0)
    return Pairs(numbers[chosen][valid], upstream[valid], downstream[valid])


def _string(text: str) -> bytes:
    data = text.encode()
    return _LENGTH.pack(len(data)) + data
