"""Offset commits encoded by hand, and the expected rows."""

import base64
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from offsetlake.kafka.batches.reader import Records, read_batches
from offsetlake.kafka.commits.decoding import SCHEMA, decode_offset_commits
from support.oracle.encoders import compact_string, offset_key, offset_value, string, unsigned_varint
from support.oracle.log_writer import Batch, Record, batch_bytes

TIME = 1_700_000_000_000
Pair = tuple[bytes, bytes | None]

KEY = offset_key("g", "t", 0)
VALUE = offset_value(4, 7, commit_timestamp=TIME)


def records_of(pairs: Sequence[Pair], **batch: Any) -> Records:
    if not pairs:
        return read_batches(b"")[0]
    records = tuple(Record(offset, TIME + offset, key, value) for offset, (key, value) in enumerate(pairs))
    laid_out, corrupt = read_batches(batch_bytes(Batch(records=records, **batch)))
    assert not corrupt
    return laid_out


def decode(pairs: Sequence[Pair], **batch: Any) -> tuple[list[dict[str, Any]], dict[int, str]]:
    rows, bad = decode_offset_commits(records_of(pairs, **batch))
    assert rows.schema == SCHEMA
    rows.validate(full=True)
    return rows.to_pylist(), bad


def decode_one(key: bytes, value: bytes | None, **batch: Any) -> dict[str, Any]:
    (row,), bad = decode([(key, value)], **batch)
    assert not bad
    return row


class Commit(NamedTuple):
    """The random fields of a commit."""

    version: int
    group_id: str
    topic: str
    partition: int
    committed_offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: bytes | None
    tags_before: tuple[tuple[int, bytes], ...]  # in no valid message: tag 0 is the first; but a reader may meet it
    tags_behind: tuple[tuple[int, bytes], ...]
    legacy: bool
    trailing: bytes


def ints(bits: int) -> st.SearchStrategy[int]:
    most = 2 ** (bits - 1)
    return st.one_of(st.sampled_from([-1, 0, most - 1, -most]), st.integers(-most, most - 1))


TAGS = st.lists(st.tuples(st.integers(1, 2**32), st.binary(max_size=200)), max_size=2).map(tuple)
COMMITS = st.builds(
    Commit,
    version=st.integers(0, 4),
    group_id=st.text(max_size=8),
    topic=st.text(max_size=8),
    partition=ints(32),
    committed_offset=ints(64),
    leader_epoch=ints(32),
    metadata=st.text(max_size=8) | st.just("m" * 127) | st.just("é" * 9000),
    commit_timestamp=ints(64),
    expire_timestamp=ints(64),
    topic_id=st.none() | st.just(bytes(16)) | st.binary(min_size=16, max_size=16),
    tags_before=TAGS,
    tags_behind=TAGS,
    legacy=st.booleans(),
    trailing=st.binary(max_size=20),
)


def encode(commit: Commit) -> Pair:
    """Return the value in Kafka's format, without fields that the version lacks."""
    c = commit._replace(version=0) if commit.legacy else commit
    key = struct.pack(">h", 0 if c.legacy else 1)
    key += string(c.group_id) + string(c.topic) + struct.pack(">i", c.partition)
    value = struct.pack(">hq", c.version, c.committed_offset)
    value += struct.pack(">i", c.leader_epoch) if c.version >= 3 else b""
    value += (compact_string if c.version == 4 else string)(c.metadata)
    value += struct.pack(">q", c.commit_timestamp)
    value += struct.pack(">q", c.expire_timestamp) if c.version == 1 else b""
    if c.version == 4:
        tags = [*c.tags_before, *([] if c.topic_id is None else [(0, c.topic_id)]), *c.tags_behind]
        value += unsigned_varint(len(tags))
        value += b"".join(unsigned_varint(tag) + unsigned_varint(len(data)) + data for tag, data in tags)
    return key + c.trailing, value + c.trailing


def row_of(commit: Commit, log_offset: int) -> dict[str, Any]:
    version = 0 if commit.legacy else commit.version
    topic_id = commit.topic_id if version == 4 and commit.topic_id != bytes(16) else None
    return {
        "log_offset": log_offset,
        "log_timestamp": TIME + log_offset,
        "kind": "commit",
        "group_id": commit.group_id,
        "topic": commit.topic,
        "partition": commit.partition,
        "committed_offset": commit.committed_offset,
        "leader_epoch": commit.leader_epoch if version >= 3 and commit.leader_epoch != -1 else None,
        "metadata": commit.metadata,
        "commit_timestamp": commit.commit_timestamp,
        "expire_timestamp": commit.expire_timestamp if version == 1 and commit.expire_timestamp != -1 else None,
        "topic_id": base64.urlsafe_b64encode(topic_id).decode().rstrip("=") if topic_id else None,
        "record_type": 0 if commit.legacy else 1,
        "value_version": version,
        "producer_id": None,
        "producer_epoch": None,
        "commit_id": None,
        "commit_size": None,
    }


TOMBSTONE = {
    "kind": "tombstone",
    "committed_offset": None,
    "leader_epoch": None,
    "metadata": None,
    "commit_timestamp": None,
    "expire_timestamp": None,
    "topic_id": None,
    "value_version": None,
}
