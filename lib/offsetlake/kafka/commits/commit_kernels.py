"""The loop over every offset commit, compiled: where the fields of its key and value stand."""

import numpy as np
from numba import njit

from offsetlake.kafka.batches.kernels import int16_at, int32_at, int64_at, unsigned_varint

# Why a record is no offset commit; the texts are in offset_commits.py.
OK, BAD_KEY, BAD_VALUE, BAD_VERSION, BAD_LEGACY_VERSION, EMPTY_VALUE = 0, 1, 2, 3, 4, 5


@njit(cache=True, nogil=True)
def string_layout(buffer, at, end):  # type: ignore[no-untyped-def]
    """Read a classic string: its position and length, and the byte behind it (-1 where malformed)."""
    if at < 0 or at + 2 > end:
        return np.int64(0), np.int64(0), np.int64(-1)
    length = int16_at(buffer, at)
    if length < 0 or at + 2 + length > end:
        return np.int64(0), np.int64(0), np.int64(-1)
    return np.int64(at + 2), length, np.int64(at + 2 + length)


@njit(cache=True, nogil=True)
def commit_key(buffer, at, end, out):  # type: ignore[no-untyped-def]
    """OffsetCommitKey behind its record type, into out[0:5]: group, topic (position, length each), partition."""
    out[0], out[1], at = string_layout(buffer, at, end)
    out[2], out[3], at = string_layout(buffer, at, end)
    if at < 0 or at + 4 > end:
        return BAD_KEY
    out[4] = int32_at(buffer, at)
    return OK


@njit(cache=True, nogil=True)
def tagged_topic_id(buffer, at, end):  # type: ignore[no-untyped-def]
    """Position of the topic id among the tagged fields of value version 4, 0 where it has none, -1 if malformed."""
    tags, at = unsigned_varint(buffer, at, end)
    topic_id = np.int64(0)
    if at < 0 or tags > np.uint64(end - at):  # each takes two bytes or more
        return np.int64(-1)
    for _ in range(np.int64(tags)):
        tag, at = unsigned_varint(buffer, at, end)
        if at < 0:
            return np.int64(-1)
        size, at = unsigned_varint(buffer, at, end)
        if at < 0 or size > np.uint64(end - at):
            return np.int64(-1)
        if tag == np.uint64(0):
            if size != np.uint64(16):
                return np.int64(-1)
            topic_id = np.int64(at)
        at += np.int64(size)
    return topic_id


@njit(cache=True, nogil=True)
def version_fault(version, legacy):  # type: ignore[no-untyped-def]
    """Why a value of this version cannot be read, or OK."""
    if version < 0 or version > 4:
        return BAD_VERSION
    return BAD_LEGACY_VERSION if legacy and version != 0 else OK


@njit(cache=True, nogil=True)
def metadata_layout(buffer, at, end, version):  # type: ignore[no-untyped-def]
    """Position and length of the metadata, compact from version 4, and the byte behind it (-1 where malformed)."""
    if version < 4:
        return string_layout(buffer, at, end)
    size, at = unsigned_varint(buffer, at, end)
    if at < 0 or size < np.uint64(1) or size - np.uint64(1) > np.uint64(end - at):
        return np.int64(0), np.int64(0), np.int64(-1)
    length = np.int64(size - np.uint64(1))
    return np.int64(at), length, np.int64(at + length)


@njit(cache=True, nogil=True)
def commit_value(buffer, at, end, legacy, out):  # type: ignore[no-untyped-def]
    """OffsetCommitValue, into out[5:13]: version, offset, epoch, metadata position and length, times, topic id."""
    if end - at < 2:
        return EMPTY_VALUE if end == at else BAD_VALUE
    version = int16_at(buffer, at)
    out[5] = version
    fault = version_fault(version, legacy)
    if fault != OK:
        return fault
    at += 2
    if at + (12 if version >= 3 else 8) > end:
        return BAD_VALUE
    out[6] = int64_at(buffer, at)
    at += 8
    if version >= 3:
        out[7] = int32_at(buffer, at)
        at += 4
    out[8], out[9], at = metadata_layout(buffer, at, end, version)
    if at < 0 or at + (16 if version == 1 else 8) > end:
        return BAD_VALUE
    out[10] = int64_at(buffer, at)
    if version == 1:
        out[11] = int64_at(buffer, at + 8)
    if version == 4:
        out[12] = tagged_topic_id(buffer, at + 8, end)
    return OK if out[12] >= 0 else BAD_VALUE


@njit(cache=True, nogil=True)
def commit_layouts(buffer, key_at, key_length, value_at, value_length, columns):  # type: ignore[no-untyped-def]
    """Lay out many OffsetCommit records (keys of type 0 and 1) into `columns` (13, n); returns a code for each.

    Rows: group position, length; topic position, length; partition; value version; offset; leader epoch (-1 where
    unknown); metadata position, length; commit time; expire time (-1 where absent); topic id position (0 = none).
    A tombstone leaves version and offset at -1.
    """
    codes = np.empty(len(key_at), np.int64)
    out = np.empty(13, np.int64)
    for row in range(len(key_at)):
        out[:] = -1
        out[8] = out[9] = out[12] = 0
        code = commit_key(buffer, key_at[row] + 2, key_at[row] + key_length[row], out)
        if code == OK and value_length[row] >= 0:
            legacy = buffer[key_at[row] + 1] == 0
            code = commit_value(buffer, value_at[row], value_at[row] + value_length[row], legacy, out)
        codes[row] = code
        for i in range(13):
            columns[i, row] = out[i]
    return codes
