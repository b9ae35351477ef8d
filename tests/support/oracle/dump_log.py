"""Parses the output of `kafka-dump-log --offsets-decoder`, which is Kafka's own reading of a segment."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from support.broker.kafka_tools import dump_log_command

_FILE = re.compile(r"Dumping .*-(\d+)/\d{20}\.log")
_BATCH = re.compile(r"(?:baseOffset|offset): .* isvalid: (\w+)")
_PRODUCER = re.compile(r"producerId: (-?\d+) producerEpoch: (-?\d+)")
_RECORD = re.compile(
    r"\| offset: (\d+) \w+: (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) "
    r"(?:sequence: \S+ headerKeys: \S+ |isValid: (\w+) crc: \d+\} ?)"
)
_MARKER = re.compile(r"endTxnMarker: (COMMIT|ABORT) coordinatorEpoch: (-?\d+)")
_JSON = json.JSONDecoder()


class DumpedRecord(NamedTuple):
    """A record as kafka-dump-log prints it; `key` and `payload` are JSON, or None."""

    log_partition: int
    log_offset: int
    log_timestamp: int
    producer_id: int
    producer_epoch: int
    key_size: int
    value_size: int
    marker: tuple[str, int] | None  # kind, coordinator epoch
    key: dict[str, Any] | None
    payload: dict[str, Any] | None


def run_dump_log(segments: Sequence[Path]) -> str:
    """Return the output of kafka-dump-log for segments."""
    done = dump_log_command("--offsets-decoder", "--files", ",".join(str(segment) for segment in segments))
    assert done.code == 0, done.err
    return done.out


def parse_dump(text: str) -> list[DumpedRecord]:
    """Return the records in the order of the dump.

    Raises:
        ValueError: A batch is invalid or a line is unknown.
    """
    records = []
    log_partition, producer = -1, (-1, -1)
    for line in text.split("\n"):  # not splitlines: metadata may hold the rarer line ends
        if match := _FILE.match(line):
            log_partition = int(match[1])
        elif match := _BATCH.match(line):
            if match[1] != "true":
                raise ValueError(f"not valid: {line}")
            found = _PRODUCER.search(line)
            producer = (int(found[1]), int(found[2])) if found else (-1, -1)
        elif match := _RECORD.match(line):
            if match[5] == "false":
                raise ValueError(f"not valid: {line}")
            offset, timestamp, key_size, value_size = map(int, match.groups()[:4])
            position = (log_partition, offset, timestamp, *producer, key_size, value_size)
            records.append(DumpedRecord(*position, *_content(line[match.end() :])))
        elif line and not line.startswith("Log starting offset"):
            raise ValueError(f"not understood: {line}")
    return records


def _content(text: str) -> tuple[tuple[str, int] | None, dict[str, Any] | None, dict[str, Any] | None]:
    if match := _MARKER.match(text):
        return (match[1], int(match[2])), None, None
    text = text.removeprefix("key: ")
    if text.startswith("Unknown record type"):
        return None, None, None
    key, end = _JSON.raw_decode(text)
    payload = text[end:].removeprefix(" payload: ")
    return None, key, None if payload == "<DELETE>" else json.loads(payload)
