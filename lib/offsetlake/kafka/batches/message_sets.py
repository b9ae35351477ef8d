"""The message sets of magic 0 and 1, which brokers before 0.11 wrote and newer ones still load.

Read here: aiokafka's reader takes negative sizes as they come, and never ends on some.
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
    """A record of magic 0 or 1; `timestamp` in ms, -1 of magic 0, which has none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def read_message(data: bytes) -> list[Message]:
    """Read a whole message of true checksum: the one record it is, or all those compressed inside.

    Raises CorruptBatch where `data` is not just that.
    """
    attributes, wrapper = _message(data)
    codec = attributes & _CODEC_MASK
    if not codec:
        return [wrapper]
    if wrapper.value is None:
        raise CorruptBatch("the compressed message of an old format is null")
    inner = list(_messages(decompress(codec, wrapper.value), data[16]))
    if not inner:
        raise CorruptBatch("the compressed message of an old format holds none")
    # Magic 1 counts inside from 0, and the wrapper has the last offset; magic 0 has real offsets inside.
    shift = wrapper.offset - inner[-1].offset if data[16] else 0
    found = [
        message._replace(
            offset=message.offset + shift,
            timestamp=wrapper.timestamp if attributes & _APPEND_TIME else message.timestamp,
        )
        for message in inner
    ]
    offsets = [-1, *(message.offset for message in found)]
    if offsets != sorted(set(offsets)) or offsets[-1] > wrapper.offset:
        raise CorruptBatch("the offsets in a compressed message of an old format do not grow up to its own")
    return found


def _messages(data: bytes, magic: int) -> Iterator[Message]:
    at = 0
    while at < len(data):
        if len(data) - at < _HEADER.size:
            raise CorruptBatch("a message of an old format is cut off inside a compressed one")
        end = at + _SIZE_FROM + _HEADER.unpack_from(data, at)[1]
        if not at + _HEADER.size <= end <= len(data):
            raise CorruptBatch("a message of an old format is cut off inside a compressed one")
        attributes, message = _message(data[at:end])
        if attributes & _CODEC_MASK or data[at + 16] != magic:
            raise CorruptBatch("a compressed message of an old format holds one that is compressed or of another magic")
        yield message
        at = end


def _message(data: bytes) -> tuple[int, Message]:
    offset, _, _, magic, attributes = _HEADER.unpack_from(data)
    try:
        timestamp, at = (struct.unpack_from(">q", data, 18)[0], 26) if magic else (-1, 18)
        key, at = _bytes(data, at)
        value, at = _bytes(data, at)
    except struct.error:
        raise CorruptBatch("the message of an old format is too short for its fields") from None
    if at != len(data):
        raise CorruptBatch("key and value do not fill the message of an old format")
    return attributes, Message(offset, timestamp, key, value)


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    (size,) = struct.unpack_from(">i", data, at)
    if size < -1:
        raise CorruptBatch("the message of an old format has a negative size inside")
    end = at + 4 + max(size, 0)
    return (None if size < 0 else data[at + 4 : end]), end
