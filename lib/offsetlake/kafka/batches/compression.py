"""Kafka's compression codecs, by libraries, into a buffer of bounded size: a kilobyte can stand for gigabytes."""

import struct
from collections.abc import Callable
from typing import Any

import cramjam
import numpy as np

from offsetlake.errors import CorruptBatch

MAX_DECOMPRESSED_BYTES = 128 << 20
"""Of one batch. A broker takes batches of 1 MiB, compressed, unless `max.message.bytes` says otherwise."""

_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16
_BLOCK_SIZE = struct.Struct(">i")


def decompress(codec: int, data: bytes) -> bytes:
    """Decompress the records of a batch.

    Raise CorruptBatch if no codec, 1 to 4, can have written them, or if they have more than MAX_DECOMPRESSED_BYTES.
    """
    if codec not in _DECODERS:
        raise CorruptBatch(f"the batch names compression codec {codec}, which Kafka does not have")
    name, decode = _DECODERS[codec]
    out = np.empty(MAX_DECOMPRESSED_BYTES, np.uint8)  # the system gives memory only to what is written
    try:
        return out[: decode(data, out)].tobytes()
    except Exception as error:  # each codec has its own errors, and all mean the same here
        most = f"at most {MAX_DECOMPRESSED_BYTES >> 20} MiB"
        raise CorruptBatch(f"the batch cannot be decompressed ({name}, to {most}: {error})") from error


def _decode_snappy(data: bytes, out: Any) -> int:
    """Decompress plain snappy, or the blocks of xerial's framing, which Java writes."""
    if not data.startswith(_XERIAL_MAGIC):
        return _decode_block(data, out)
    at, size = _XERIAL_HEADER_BYTES, 0
    while at < len(data):
        (block_size,) = _BLOCK_SIZE.unpack_from(data, at)
        at += _BLOCK_SIZE.size
        if not 0 < block_size <= len(data) - at:
            raise ValueError(f"a block of {block_size} bytes, where {len(data) - at} are left")
        size += _decode_block(data[at : at + block_size], out[size:])
        at += block_size
    return size


def _decode_block(data: bytes, out: Any) -> int:
    stated = cramjam.snappy.decompress_raw_len(data)
    if stated > len(out):
        raise ValueError(f"a block that states {stated} bytes")
    return int(cramjam.snappy.decompress_raw_into(data, out[:stated]))


_DECODERS: dict[int, tuple[str, Callable[[bytes, Any], int]]] = {
    1: ("gzip", cramjam.gzip.decompress_into),
    2: ("snappy", _decode_snappy),
    3: ("lz4", cramjam.lz4.decompress_into),
    4: ("zstd", cramjam.zstd.decompress_into),
}
