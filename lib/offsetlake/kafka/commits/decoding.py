"""Decodes offset commits, which are most of a log, into Arrow columns without a Python object for each record."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offsetlake.kafka.batches.kernels import Bytes, Ints
from offsetlake.kafka.batches.reader import Records
from offsetlake.kafka.batches.string_columns import strings
from offsetlake.kafka.batches.words import gather
from offsetlake.kafka.commits import commit_kernels
from offsetlake.kafka.commits.commit_parts import CommitParts, commit_parts
from offsetlake.kafka.uuid import ZERO_UUID, uuid_text

RECORD_TYPES = (0, 1)  # LegacyOffsetCommit, OffsetCommit

REASONS = {
    commit_kernels.BAD_KEY: "the offset commit key is truncated or contains a negative length",
    commit_kernels.BAD_VALUE: "the offset commit value is truncated or malformed",
    commit_kernels.BAD_VERSION: "the offset commit value version {version} is unknown: expected 0 to 4",
    commit_kernels.BAD_LEGACY_VERSION: "the key has type 0, which requires value version 0, not {version}",
    commit_kernels.EMPTY_VALUE: "the offset commit value is empty; the value of a tombstone is null",
}
NOT_UTF8 = "the group ID, the topic or the metadata is not UTF-8"

SCHEMA = pa.schema(
    [
        ("log_offset", pa.int64()),
        ("log_timestamp", pa.int64()),
        ("kind", pa.string()),
        ("group_id", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("committed_offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("metadata", pa.string()),
        ("commit_timestamp", pa.int64()),
        ("expire_timestamp", pa.int64()),
        ("topic_id", pa.string()),
        ("record_type", pa.int32()),
        ("value_version", pa.int32()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("commit_id", pa.int64()),
        ("commit_size", pa.int32()),
    ]
)

_ROWS = (
    "group_at",
    "group_length",
    "topic_at",
    "topic_length",
    "partition",
    "version",
    "offset",
    "leader_epoch",
    "metadata_at",
    "metadata_length",
    "commit_timestamp",
    "expire_timestamp",
    "topic_id_at",
)


def decode_offset_commits(records: Records) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Decode records of types 0 and 1 (Kafka's OffsetCommitKey and OffsetCommitValue, versions 0 to 4).

    | Column           | Type   | Description |
    |------------------|--------|-------------|
    | log_offset       | int64  | |
    | log_timestamp    | int64  | Milliseconds since the epoch; null if the batch has none |
    | kind             | string | `commit` or `tombstone`; a tombstone has null in every column of the value |
    | group_id, topic  | string | |
    | partition        | int32  | |
    | committed_offset | int64  | |
    | leader_epoch     | int32  | null = unknown (-1, or a version without it) |
    | metadata         | string | |
    | commit_timestamp | int64  | Milliseconds since the epoch |
    | expire_timestamp | int64  | Milliseconds since the epoch; null unless a value with version 1 has one |
    | topic_id         | string | 22 characters (`offsetlake.kafka.uuid`); null = absent |
    | record_type      | int32  | 0 (written by Kafka 0.8.2) or 1 |
    | value_version    | int32  | 0 to 4 |
    | producer_id      | int64  | null = not transactional |
    | producer_epoch   | int32  | null = not transactional |
    | commit_id        | int64  | ID of the commit in parts (`commit_parts`); null = not a part |
    | commit_size      | int32  | Number of parts of that commit; null = not a part |

    Returns:
        The decoded rows, and {row of `records`: reason} for the undecodable ones.
    """
    layout = np.empty((len(_ROWS), len(records)), np.int64)
    codes = commit_kernels.commit_layouts(
        records.buffer, records.key_at, records.key_length, records.value_at, records.value_length, layout
    )
    versions = layout[_ROWS.index("version")]
    undecodable = {
        int(row): REASONS[int(codes[row])].format(version=int(versions[row])) for row in np.flatnonzero(codes)
    }
    parts, malformed = commit_parts(records)
    undecodable = malformed | undecodable
    batch = _columns(records, layout, parts, undecodable)
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        undecodable |= {
            row: NOT_UTF8
            for row in range(len(records))
            if row not in undecodable and not _is_utf8(records, layout, row)
        }
        batch = _columns(records, layout, parts, undecodable)
        batch.validate(full=True)
    return batch, undecodable


def _columns(records: Records, layout: Ints, parts: CommitParts, undecodable: dict[int, str]) -> pa.RecordBatch:
    if undecodable:
        decodable = np.ones(len(records), np.bool_)
        decodable[list(undecodable)] = False
        records, layout, parts = records.where(decodable), layout[:, decodable], parts.where(decodable)
    row = dict(zip(_ROWS, layout, strict=True))
    tombstone = records.value_length < 0
    not_transactional = records.producer_id == -1

    def ints(values: Ints, absent: npt.NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
        return pa.array(values.astype(kind.to_pandas_dtype(), copy=False), kind, mask=absent)

    none_absent = np.zeros(len(records), np.bool_)
    columns = [
        ints(records.log_offset, none_absent, pa.int64()),
        ints(records.log_timestamp, records.log_timestamp == -1, pa.int64()),
        _kinds(tombstone),
        strings(records.buffer, row["group_at"], row["group_length"]),
        strings(records.buffer, row["topic_at"], row["topic_length"]),
        ints(row["partition"], none_absent, pa.int32()),
        ints(row["offset"], tombstone, pa.int64()),
        ints(row["leader_epoch"], row["leader_epoch"] == -1, pa.int32()),
        strings(records.buffer, row["metadata_at"], row["metadata_length"], tombstone),
        ints(row["commit_timestamp"], tombstone, pa.int64()),
        ints(row["expire_timestamp"], row["expire_timestamp"] == -1, pa.int64()),
        _topic_ids(records.buffer, row["topic_id_at"]),
        ints(records.record_types(), none_absent, pa.int32()),
        ints(row["version"], tombstone, pa.int32()),
        ints(records.producer_id, not_transactional, pa.int64()),
        ints(records.producer_epoch, not_transactional, pa.int32()),
        ints(parts.commit_id, ~parts.is_part, pa.int64()),
        ints(parts.commit_size, ~parts.is_part, pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _kinds(tombstone: npt.NDArray[np.bool_]) -> pa.StringArray:
    offsets = np.zeros(len(tombstone) + 1, np.int32)
    np.cumsum(np.where(tombstone, len("tombstone"), len("commit")), out=offsets[1:])
    words = np.frombuffer(b"committombstone", np.uint8)
    data = np.empty(offsets[-1], np.uint8)
    gather(words, np.where(tombstone, len("commit"), 0), offsets, data)
    return pa.StringArray.from_buffers(len(tombstone), pa.py_buffer(offsets), pa.py_buffer(data))


def _topic_ids(buffer: Bytes, positions: Ints) -> pa.StringArray:
    """Return the texts of topic IDs; each distinct ID is converted once."""
    present = np.flatnonzero(positions > 0)
    if not len(present):
        return pa.nulls(len(positions), pa.string())
    raw = np.ascontiguousarray(buffer[positions[present][:, None] + np.arange(16)]).view("V16").reshape(-1)
    distinct, inverse = np.unique(raw, return_inverse=True)
    topic_ids = [item.tobytes() for item in distinct]
    texts = [None if topic_id == ZERO_UUID else uuid_text(topic_id) for topic_id in topic_ids]
    index = np.full(len(positions), len(texts), np.int64)
    index[present] = inverse
    return pa.array([*texts, None], pa.string()).take(pa.array(index))


def _is_utf8(records: Records, layout: Ints, row: int) -> bool:
    fields = dict(zip(_ROWS, layout[:, row].tolist(), strict=True))
    try:
        for name in ("group", "topic", "metadata"):
            start = fields[f"{name}_at"]
            records.buffer[start : start + fields[f"{name}_length"]].tobytes().decode()
    except UnicodeDecodeError:
        return False
    return True
