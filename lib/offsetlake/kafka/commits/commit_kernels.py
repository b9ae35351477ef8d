"""Compiled functions that locate the fields in the keys and values of offset commits."""

import numpy as np

from offsetlake.kafka.batches.kernels import int16_at, int32_at, int64_at, unsigned_varint
from offsetlake.kafka.compiled import compiled

# Why a record cannot be decoded; the messages are in decoding.py.
OK, BAD_KEY, BAD_VALUE, BAD_VERSION, BAD_LEGACY_VERSION, EMPTY_VALUE = 0, 1, 2, 3, 4, 5


@compiled(nogil=True, inline="always")
def string_layout(buffer, position, end):  # type: ignore[no-untyped-def]
    """Return the position and length of a non-compact string, and the position after it (-1 if malformed)."""
    if position < 0 or position + 2 > end:
        return np.int64(0), np.int64(0), np.int64(-1)
    length = int16_at(buffer, position)
    if length < 0 or position + 2 + length > end:
        return np.int64(0), np.int64(0), np.int64(-1)
    return np.int64(position + 2), length, np.int64(position + 2 + length)


@compiled(nogil=True, inline="always")
def commit_key(buffer, position, end, out):  # type: ignore[no-untyped-def]
    """Parse an OffsetCommitKey after its record type into out[0:5] (see `commit_layouts`); return a code."""
    out[0], out[1], position = string_layout(buffer, position, end)
    out[2], out[3], position = string_layout(buffer, position, end)
    if position < 0 or position + 4 > end:
        return BAD_KEY
    out[4] = int32_at(buffer, position)
    return OK


@compiled(cache=True, nogil=True)
def tagged_topic_id(buffer, position, end):  # type: ignore[no-untyped-def]
    """Return the position of the topic ID in the tagged fields of version 4; 0 if absent, -1 if malformed."""
    tags, position = unsigned_varint(buffer, position, end)
    topic_id_at = np.int64(0)
    if position < 0 or tags > np.uint64(end - position):  # each has two bytes or more
        return np.int64(-1)
    for _ in range(np.int64(tags)):
        tag, position = unsigned_varint(buffer, position, end)
        if position < 0:
            return np.int64(-1)
        size, position = unsigned_varint(buffer, position, end)
        if position < 0 or size > np.uint64(end - position):
            return np.int64(-1)
        if tag == np.uint64(0):
            if size != np.uint64(16):
                return np.int64(-1)
            topic_id_at = np.int64(position)
        position += np.int64(size)
    return topic_id_at


@compiled(cache=True, nogil=True)
def version_code(version, legacy):  # type: ignore[no-untyped-def]
    """Return OK, or why a value with this version cannot be decoded."""
    if version < 0 or version > 4:
        return BAD_VERSION
    return BAD_LEGACY_VERSION if legacy and version != 0 else OK


@compiled(nogil=True, inline="always")
def metadata_layout(buffer, position, end, version):  # type: ignore[no-untyped-def]
    """Return the position and length of the metadata, and the position after it (-1 if malformed).

    The metadata is a compact string from version 4.
    """
    if version < 4:
        return string_layout(buffer, position, end)
    size, position = unsigned_varint(buffer, position, end)
    if position < 0 or size < np.uint64(1) or size - np.uint64(1) > np.uint64(end - position):
        return np.int64(0), np.int64(0), np.int64(-1)
    length = np.int64(size - np.uint64(1))
    return np.int64(position), length, np.int64(position + length)


@compiled(nogil=True, inline="always")
def commit_value(buffer, position, end, legacy, out):  # type: ignore[no-untyped-def]
    """Parse an OffsetCommitValue into out[5:13] (see `commit_layouts`); return a code."""
    if end - position < 2:
        return EMPTY_VALUE if end == position else BAD_VALUE
    version = int16_at(buffer, position)
    out[5] = version
    code = version_code(version, legacy)
    if code != OK:
        return code
    position += 2
    if position + (12 if version >= 3 else 8) > end:
        return BAD_VALUE
    out[6] = int64_at(buffer, position)
    position += 8
    if version >= 3:
        out[7] = int32_at(buffer, position)
        position += 4
    out[8], out[9], position = metadata_layout(buffer, position, end, version)
    if position < 0 or position + (16 if version == 1 else 8) > end:
        return BAD_VALUE
    out[10] = int64_at(buffer, position)
    if version == 1:
        out[11] = int64_at(buffer, position + 8)
    if version == 4:
        out[12] = tagged_topic_id(buffer, position + 8, end)
    return OK if out[12] >= 0 else BAD_VALUE


@compiled(cache=True, nogil=True)
def commit_layouts(buffer, key_at, key_length, value_at, value_length, columns):  # type: ignore[no-untyped-def]
    """Locate the fields of records with keys of type 0 or 1, fill `columns`, shape (13, n), and return a code for each.

    The rows of `columns` are: position and length of the group ID; position and length of the topic; partition; value
    version; offset; leader epoch (-1 = unknown); position and length of the metadata; commit timestamp; expire
    timestamp (-1 = absent); position of the topic ID (0 = absent). A tombstone has version and offset -1.
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
