"""The child process that finds the offsets that have records in a part of the log.

It is a module for `offsetlake.serve.storage.child_process`.

| Request field | Description |
|---------------|-------------|
| log           | The folder of the log |
| ranges        | By log partition, the first log offset to read and the one to stop before |

| Answer field  | Description |
|---------------|-------------|
| keys          | [group, topic, partition] of each offset with a record there, its tombstone for example |
| incomplete    | The log partitions whose segments with the first log offsets were deleted |
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiokafka.record.memory_records import MemoryRecords

from offsetlake.kafka.records.coordinator_records import OffsetsRecordType
from offsetlake.log.disk.folder import fetch, slices
from offsetlake.log.disk.segments import segments_of
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition, OffsetRange

_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")

Key = tuple[str, str, int]
"""Group, topic and partition."""


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request."""
    folder, keys, incomplete = Path(request["log"]), dict[Key, None](), []
    for number, (start, end) in request["ranges"].items():
        partition = LogPartition(OFFSETS_TOPIC, int(number))
        segments = segments_of(folder / str(partition)) if (folder / str(partition)).exists() else []
        if segments and segments[0].base_offset > start:
            incomplete.append(int(number))
        for part in slices(folder, partition, OffsetRange(start, end)):
            for data in fetch(part):
                if isinstance(data, bytes):  # otherwise a corrupt region, which is no offset
                    keys |= dict.fromkeys(_keys(data, part.offsets))
    return {"keys": [*keys], "incomplete": incomplete}


def _keys(data: bytes, offsets: OffsetRange) -> Iterator[Key]:
    batches = MemoryRecords(data)
    while (batch := batches.next_batch()) is not None:
        for record in batch:
            if offsets.start <= record.offset < offsets.end and (key := key_of(record.key or b"")) is not None:
                yield key


def key_of(key: bytes) -> Key | None:
    """Return group, topic and partition of the key of a record; None if it is not that of an offset."""
    try:
        (kind,) = _INT16.unpack_from(key)
        if kind not in {OffsetsRecordType.LEGACY_OFFSET_COMMIT, OffsetsRecordType.OFFSET_COMMIT}:
            return None
        group, position = _string(key, _INT16.size)
        topic, position = _string(key, position)
        return group, topic, *_INT32.unpack_from(key, position)
    except struct.error:
        return None


def _string(data: bytes, position: int) -> tuple[str, int]:
    (length,) = _INT16.unpack_from(data, position)
    end = position + _INT16.size + length
    return data[position + _INT16.size : end].decode("utf-8", "surrogateescape"), end
