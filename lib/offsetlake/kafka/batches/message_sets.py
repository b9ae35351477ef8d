"""Reads the message sets of magic 0 and 1, which brokers before 0.11 wrote and newer brokers still load.

aiokafka's reader is not used because it accepts negative sizes, on some of which it loops forever.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from offsetlake.errors import CorruptBatch
from offsetlake.kafka.batches.compression import decompress

_HEADER = struct.Struct(">qiIbb")  # offset, size of what follows, CRC-32, magic, attributes
_SIZE_FROM = 12
_CODEC_MASK, _APPEND_TIME = 0x07, 0x08


class Message(NamedTuple):
    """A record of magic 0 or 1; `timestamp` is in milliseconds since the epoch, -1 with magic 0."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def read_message(data: bytes) -> list[Message]:
    """Return the records of a whole message with a correct checksum: one, or those that it contains compressed.

    Raises:
        CorruptBatch: The message is malformed.
    """
    attributes, wrapper = _message(data)
    codec = attributes & _CODEC_MASK
    if not codec:
        return [wrapper]
    if wrapper.value is None:
        raise CorruptBatch("the value of a compressed message (magic 0 or 1) is null")
    inner = list(_messages(decompress(codec, wrapper.value, magic=data[16]), data[16]))
    if not inner:
        raise CorruptBatch("a compressed message (magic 0 or 1) contains no messages")
    # With magic 1, inner offsets begin at 0 and the wrapper has the last offset; with magic 0, they are absolute.
    shift = wrapper.offset - inner[-1].offset if data[16] else 0
    messages = [
        message._replace(
            offset=message.offset + shift,
            timestamp=wrapper.timestamp if attributes & _APPEND_TIME else message.timestamp,
        )
        for message in inner
    ]
    offsets = [-1, *(message.offset for message in messages)]
    if offsets != sorted(set(offsets)) or offsets[-1] > wrapper.offset:
        raise CorruptBatch("the offsets in a compressed message (magic 0 or 1) do not increase up to its own")
    return messages


def _messages(data: bytes, magic: int) -> Iterator[Message]:
    position = 0
    while position < len(data):
        if len(data) - position < _HEADER.size:
            raise CorruptBatch("a message inside a compressed message (magic 0 or 1) is truncated")
        end = position + _SIZE_FROM + _HEADER.unpack_from(data, position)[1]
        if not position + _HEADER.size <= end <= len(data):
            raise CorruptBatch("a message inside a compressed message (magic 0 or 1) is truncated")
        attributes, message = _message(data[position:end])
        if attributes & _CODEC_MASK or data[position + 16] != magic:
            raise CorruptBatch(
                "a message inside a compressed message (magic 0 or 1) is compressed itself or has another magic"
            )
        yield message
        position = end


def _message(data: bytes) -> tuple[int, Message]:
    offset, _, _, magic, attributes = _HEADER.unpack_from(data)
    try:
        timestamp, position = (struct.unpack_from(">q", data, 18)[0], 26) if magic else (-1, 18)
        key, position = _bytes(data, position)
        value, position = _bytes(data, position)
    except struct.error:
        raise CorruptBatch("the message (magic 0 or 1) is too short for its fields") from None
    if position != len(data):
        raise CorruptBatch("the key and the value do not end where the message (magic 0 or 1) ends")
    return attributes, Message(offset, timestamp, key, value)


def _bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    (size,) = struct.unpack_from(">i", data, position)
    if size < -1:
        raise CorruptBatch("the key or the value of a message (magic 0 or 1) has a negative size")
    end = position + 4 + max(size, 0)
    return (None if size < 0 else data[position + 4 : end]), end
