"""Offset commits, the bulk of a log, from record bytes to Arrow columns: no object a record, no object a field."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offsetlake.kafka.batches import kernels
from offsetlake.kafka.batches.kernels import Bytes, Ints
from offsetlake.kafka.batches.reader import Records
from offsetlake.kafka.batches.string_columns import strings
from offsetlake.kafka.commits import commit_kernels
from offsetlake.kafka.commits.commit_parts import CommitParts, commit_parts
from offsetlake.kafka.uuid import uuid_text

RECORD_TYPES = (0, 1)  # LegacyOffsetCommit, OffsetCommit

REASONS = {
    commit_kernels.BAD_KEY: "the offset commit key is cut off or holds a negative length",
    commit_kernels.BAD_VALUE: "the offset commit value is cut off or malformed",
    commit_kernels.BAD_VERSION: "offset commit value version {version} is unknown: versions 0 to 4 are known",
    commit_kernels.BAD_LEGACY_VERSION: "a key of type 0, of 0.8.2, goes with value version 0 only, not {version}",
    commit_kernels.EMPTY_VALUE: "the offset commit value is empty; a tombstone would be null",
}
NOT_UTF8 = "the group id, topic or metadata is not UTF-8"

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
    """Decode records of types 0 and 1 into columns; also say which rows are no offset commits, and why.

    | column           | type   | is |
    |------------------|--------|----|
    | log_offset       | int64  | |
    | log_timestamp    | int64  | ms; null where the batch has none |
    | kind             | string | `commit` or `tombstone`; a tombstone has null in every column of the value |
    | group_id, topic  | string | |
    | partition        | int32  | |
    | committed_offset | int64  | |
    | leader_epoch     | int32  | null = unknown (-1, or a version without it) |
    | metadata         | string | |
    | commit_timestamp | int64  | ms |
    | expire_timestamp | int64  | ms; null unless value version 1 sets one |
    | topic_id         | string | 22 characters, as Kafka prints it; null = absent |
    | record_type      | int32  | 0 (written by 0.8.2) or 1 |
    | value_version    | int32  | 0 to 4 |
    | producer_id      | int64  | null = not transactional |
    | producer_epoch   | int32  | null = not transactional |
    | commit_id        | int64  | of a part of a commit in parts (`commit_parts`); null = no part |
    | commit_size      | int32  | how many parts that commit has; null as commit_id |

    Returns the decoded rows and {row of `records`: reason} for the others. Source: Kafka's OffsetCommitKey and
    OffsetCommitValue, versions 0 to 4.
    """
    layout = np.empty((len(_ROWS), len(records)), np.int64)
    codes = commit_kernels.commit_layouts(
        records.buffer, records.key_at, records.key_length, records.value_at, records.value_length, layout
    )
    versions = layout[_ROWS.index("version")]
    bad = {int(row): REASONS[int(codes[row])].format(version=int(versions[row])) for row in np.flatnonzero(codes)}
    parts, malformed = commit_parts(records)
    bad = malformed | bad
    batch = _columns(records, layout, parts, _others(records, bad))
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        bad |= {row: NOT_UTF8 for row in range(len(records)) if row not in bad and not _is_utf8(records, layout, row)}
        batch = _columns(records, layout, parts, _others(records, bad))
        batch.validate(full=True)
    return batch, bad


def _others(records: Records, bad: dict[int, str]) -> npt.NDArray[np.bool_]:
    good = np.ones(len(records), np.bool_)
    good[list(bad)] = False
    return good


def _columns(records: Records, layout: Ints, parts: CommitParts, good: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    if not good.all():
        records, layout, parts = records.where(good), layout[:, good], parts.where(good)
    row = dict(zip(_ROWS, layout, strict=True))
    tombstone = records.value_length < 0
    plain = records.producer_id == -1

    def ints(values: Ints, absent: npt.NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
        return pa.array(values.astype(kind.to_pandas_dtype(), copy=False), kind, mask=absent)

    nothing = np.zeros(len(records), np.bool_)
    columns = [
        ints(records.log_offset, nothing, pa.int64()),
        ints(records.log_timestamp, records.log_timestamp == -1, pa.int64()),
        _kinds(tombstone),
        strings(records.buffer, row["group_at"], row["group_length"]),
        strings(records.buffer, row["topic_at"], row["topic_length"]),
        ints(row["partition"], nothing, pa.int32()),
        ints(row["offset"], tombstone, pa.int64()),
        ints(row["leader_epoch"], row["leader_epoch"] == -1, pa.int32()),
        strings(records.buffer, row["metadata_at"], row["metadata_length"], tombstone),
        ints(row["commit_timestamp"], tombstone, pa.int64()),
        ints(row["expire_timestamp"], row["expire_timestamp"] == -1, pa.int64()),
        _topic_ids(records.buffer, row["topic_id_at"]),
        ints(records.record_types(), nothing, pa.int32()),
        ints(row["version"], tombstone, pa.int32()),
        ints(records.producer_id, plain, pa.int64()),
        ints(records.producer_epoch, plain, pa.int32()),
        ints(parts.commit_id, ~parts.is_part, pa.int64()),
        ints(parts.commit_size, ~parts.is_part, pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _kinds(tombstone: npt.NDArray[np.bool_]) -> pa.StringArray:
    offsets = np.zeros(len(tombstone) + 1, np.int32)
    np.cumsum(np.where(tombstone, len("tombstone"), len("commit")), out=offsets[1:])
    words = np.frombuffer(b"committombstone", np.uint8)
    data = np.empty(offsets[-1], np.uint8)
    kernels.gather(words, np.where(tombstone, len("commit"), 0), offsets, data)
    return pa.StringArray.from_buffers(len(tombstone), pa.py_buffer(offsets), pa.py_buffer(data))


def _topic_ids(buffer: Bytes, positions: Ints) -> pa.StringArray:
    """Kafka prints a uuid as url-safe base64 without padding; records of one log name few topics."""
    present = np.flatnonzero(positions > 0)
    if not len(present):
        return pa.nulls(len(positions), pa.string())
    raw = np.ascontiguousarray(buffer[positions[present][:, None] + np.arange(16)]).view("V16").reshape(-1)
    distinct, which = np.unique(raw, return_inverse=True)
    texts = [None if not any(uuid) else uuid_text(uuid) for uuid in (item.tobytes() for item in distinct)]
    index = np.full(len(positions), len(texts), np.int64)
    index[present] = which
    return pa.array([*texts, None], pa.string()).take(pa.array(index))


def _is_utf8(records: Records, layout: Ints, row: int) -> bool:
    fields = dict(zip(_ROWS, layout[:, row].tolist(), strict=True))
    try:
        for name in ("group", "topic", "metadata"):
            at = fields[f"{name}_at"]
            records.buffer[at : at + fields[f"{name}_length"]].tobytes().decode()
    except UnicodeDecodeError:
        return False
    return True
