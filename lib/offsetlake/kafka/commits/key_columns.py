"""Encodes the keys of many offset commits from columns."""

import struct

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.kafka.records.coordinator_records import OffsetsRecordType
from offsetlake.kafka.records.writers import encoded_string

_RECORD_TYPE = struct.pack(">h", OffsetsRecordType.OFFSET_COMMIT)


def offset_keys(offsets: pa.Table) -> pa.Array:
    """Return the OffsetCommitKeys, record type 1, of offsets; null where the topic is null.

    Args:
        offsets: Columns `group_id` (string), `topic` (string) and `partition` (int32).

    Raises:
        ValueError: A group ID or a topic is too long.
    """
    partitions = pc.fill_null(offsets["partition"], 0).to_numpy().astype(">i4")
    numbers = pa.Array.from_buffers(pa.binary(4), len(partitions), [None, pa.py_buffer(partitions)])
    names = (_strings(offsets[name].combine_chunks()) for name in ("group_id", "topic"))
    return pc.binary_join_element_wise(pa.scalar(_RECORD_TYPE), *names, numbers.cast(pa.binary()), b"")


def _strings(texts: pa.Array) -> pa.Array:
    """Return `encoded_string` of each text, computed once for each distinct text."""
    distinct = texts.dictionary_encode()
    encoded = [encoded_string(text) for text in distinct.dictionary.to_pylist()]
    return pa.array(encoded, pa.binary()).take(distinct.indices)
