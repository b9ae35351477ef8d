"""Decompresses record batches with Kafka's codecs.

The output is limited, since a kilobyte of compressed data can expand to gigabytes.
"""

import struct
from collections.abc import Callable
from typing import Any

import cramjam
import numpy as np
import xxhash

from offsetlake.errors import CorruptBatch

MAX_DECOMPRESSED_BYTES = 128 << 20
"""The limit for one batch. Brokers accept compressed batches of at most 1 MiB unless `max.message.bytes` is larger."""

_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16
_BLOCK_SIZE = struct.Struct(">i")
_LZ4_DESCRIPTOR_AT, _LZ4_CONTENT_SIZE, _LZ4_DICTIONARY_ID = 4, 0x08, 0x01


def decompress(codec: int, data: bytes, *, magic: int = 2) -> bytes:
    """Return the decompressed records of a batch; `codec` is 1 (gzip) to 4 (zstd), `magic` that of the batch.

    Raises:
        CorruptBatch: The codec is unknown, or the data is malformed or decompresses to more than
            MAX_DECOMPRESSED_BYTES.
    """
    if codec not in _DECODERS:
        raise CorruptBatch(f"the batch has the unknown compression codec {codec}")
    name, decode = _DECODERS[codec]
    if magic == 0 and name == "lz4":
        decode = _decode_lz4_of_magic_0
    out = np.empty(MAX_DECOMPRESSED_BYTES, np.uint8)  # the operating system allocates only the pages that are written
    try:
        return out[: decode(data, out)].tobytes()
    except Exception as error:  # each codec raises its own types, which all mean the same here
        limit = f"at most {MAX_DECOMPRESSED_BYTES >> 20} MiB"
        raise CorruptBatch(f"the batch cannot be decompressed ({name}, to {limit}): {error}") from error


def _decode_lz4_of_magic_0(data: bytes, out: Any) -> int:
    """Decompress an LZ4 frame, and ignore the checksum of its header.

    The clients and brokers before 0.10 computed that checksum over the magic number of the frame, too (KAFKA-3160);
    Kafka ignores it in messages of magic 0 (`Lz4BlockInputStream`).
    """
    return int(cramjam.lz4.decompress_into(_with_header_checksum(data), out))


def _with_header_checksum(frame: bytes) -> bytes:
    """Return an LZ4 frame with the checksum of its header that the specification of LZ4 frames requires."""
    if len(frame) < _LZ4_DESCRIPTOR_AT + 2:
        raise ValueError("the header of the LZ4 frame is truncated")
    flags = frame[_LZ4_DESCRIPTOR_AT]
    size = 2 + 8 * bool(flags & _LZ4_CONTENT_SIZE) + 4 * bool(flags & _LZ4_DICTIONARY_ID)
    end = _LZ4_DESCRIPTOR_AT + size
    checksum = xxhash.xxh32_intdigest(frame[_LZ4_DESCRIPTOR_AT:end]) >> 8 & 0xFF
    return frame[:end] + bytes([checksum]) + frame[end + 1 :]


def _decode_snappy(data: bytes, out: Any) -> int:
    """Decompress a raw snappy block, or the blocks of the framing of xerial's snappy-java."""
    if not data.startswith(_XERIAL_MAGIC):
        return _decode_block(data, out)
    position, size = _XERIAL_HEADER_BYTES, 0
    while position < len(data):
        (block_size,) = _BLOCK_SIZE.unpack_from(data, position)
        position += _BLOCK_SIZE.size
        if not 0 < block_size <= len(data) - position:
            raise ValueError(f"a block states {block_size} bytes, but {len(data) - position} remain")
        size += _decode_block(data[position : position + block_size], out[size:])
        position += block_size
    return size


def _decode_block(data: bytes, out: Any) -> int:
    size = cramjam.snappy.decompress_raw_len(data)
    if size > len(out):
        raise ValueError(f"a block decompresses to {size} bytes")
    return int(cramjam.snappy.decompress_raw_into(data, out[:size]))


_DECODERS: dict[int, tuple[str, Callable[[bytes, Any], int]]] = {
    1: ("gzip", cramjam.gzip.decompress_into),
    2: ("snappy", _decode_snappy),
    3: ("lz4", cramjam.lz4.decompress_into),
    4: ("zstd", cramjam.zstd.decompress_into),
}
