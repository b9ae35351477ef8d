"""Oracles: Kafka's dump of a segment, and the responses of a live broker about its groups."""

import asyncio
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from support.broker.kafka_tools import dump_log_command
from support.broker.requests import ListGroups, OffsetFetch, ask, await_coordinator, connection
from support.oracle.encoders import group_log_partition

_DECODERS = {"__consumer_offsets": "--offsets-decoder", "__share_group_state": "--share-group-state-decoder"}

_FILE = re.compile(r"Dumping (?P<path>.+)")
_BATCH = re.compile(
    r"baseOffset: .* producerId: (?P<producer_id>-?\d+) producerEpoch: (?P<producer_epoch>-?\d+) .*"
    r"isTransactional: (?P<transactional>true|false) isControl: (?P<control>true|false) .*"
    r"isvalid: (?P<valid>true|false)"
)
_RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) (?:CreateTime|LogAppendTime): (?P<timestamp>-?\d+) keySize: -?\d+"
    r" valueSize: (?P<value_size>-?\d+) sequence: -?\d+ headerKeys: \[.*?\](?P<rest>.*)",
    re.DOTALL,
)
_MARKER = re.compile(r" endTxnMarker: (?P<marker>COMMIT|ABORT) coordinatorEpoch: (?P<epoch>-?\d+)")
_KEY, _PAYLOAD = " key: ", " payload: "


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedRecord:
    """One record as kafka-dump-log prints it. Its position in the log, its batch, its content."""

    log_topic: str
    log_partition: int
    offset: int
    timestamp: int
    producer_id: int
    producer_epoch: int
    is_transactional: bool
    is_control: bool
    is_valid: bool
    """Whether the checksum of the batch is correct."""
    marker: str | None
    """COMMIT or ABORT of a transaction marker."""
    tombstone: bool
    key: dict[str, Any] | None
    """{"type": number as text, "data": {...}}; absent of a marker and of a record that could not be decoded."""
    payload: dict[str, Any] | None
    """{"version": number as text, "data": {...}}; absent of a tombstone too."""
    undecoded: str | None
    """The text of the dump for a record that it cannot decode."""


def dump_log(path: Path) -> list[DumpedRecord]:
    """Return the records of one segment, or of all segments of the coordinators' topics in a data folder.

    The segment's folder names its topic and partition. Records come by topic, partition and offset.
    """
    segments = [path] if path.is_file() else sorted(path.glob("__*/*.log"))
    records: list[DumpedRecord] = []
    for topic, decoder in _DECODERS.items():
        named = [segment for segment in segments if _position(segment)[0] == topic and segment.stat().st_size]
        if named:
            records += _parsed(_dumped(named, decoder))
    return sorted(records, key=lambda record: (record.log_topic, record.log_partition, record.offset))


def broker_offsets(bootstrap: str) -> dict[tuple[str, str, int], tuple[int, int, str]]:
    """Return what a live broker answers to OffsetFetch of every group it lists.

    (group_id, topic, partition) to (committed_offset, leader_epoch, metadata); leader epoch -1 is unknown. Offsets
    of open transactions are not among them.
    """
    return asyncio.run(_fetch_offsets(bootstrap))


def broker_groups(bootstrap: str) -> dict[str, tuple[str, str, str]]:
    """Return every group of a live broker by ListGroups: group_id to (state, group_type, protocol_type)."""
    return asyncio.run(_list_groups(bootstrap))


def await_loaded(bootstrap: str, groups: Iterable[str]) -> None:
    """Wait until the log partitions of groups are loaded: ListGroups silently omits others."""
    asyncio.run(await_coordinator(bootstrap, groups))


def await_all_loaded(bootstrap: str, log_partitions: int = 50) -> None:
    """Wait until all log partitions of a broker are loaded, which a new broker creates first."""
    groups: dict[int, str] = {}
    for number in count():
        if len(groups) == log_partitions:
            break
        groups.setdefault(group_log_partition(str(number), log_partitions), str(number))
    await_loaded(bootstrap, groups.values())


async def _list_groups(bootstrap: str) -> dict[str, tuple[str, str, str]]:
    async with connection(bootstrap) as connected:
        response = await ask(connected, ListGroups())
    return {
        group_id: (state, group_type, protocol_type)
        for group_id, protocol_type, state, group_type, _tags in response.groups
    }


async def _fetch_offsets(bootstrap: str) -> dict[tuple[str, str, int], tuple[int, int, str]]:
    groups = await _list_groups(bootstrap)
    found = {}
    async with connection(bootstrap) as connected:
        for group_id in groups:
            response = await ask(connected, OffsetFetch(group_id))
            for topic, partitions in response.topics:
                for partition, offset, leader_epoch, metadata, error in partitions:
                    assert error == 0, f"{group_id} {topic} {partition}: error {error}"
                    found[group_id, topic, partition] = (offset, leader_epoch, metadata)
    return found


def _position(segment: Path) -> tuple[str, int]:
    topic, _, partition = segment.parent.name.rpartition("-")
    return topic, int(partition)


def _dumped(segments: Sequence[Path], decoder: str) -> Iterator[str]:
    files = ",".join(str(segment) for segment in segments)
    done = dump_log_command("--files", files, decoder)
    assert done.code == 0, done.err
    return iter(done.out.split("\n"))


def _parsed(lines: Iterable[str]) -> Iterator[DumpedRecord]:
    position = ("", -1)
    batch: dict[str, Any] = {}
    for line in lines:
        if found := _RECORD.match(line):
            yield _record(position, batch, found)
        elif found := _BATCH.match(line):
            batch = {
                "producer_id": int(found["producer_id"]),
                "producer_epoch": int(found["producer_epoch"]),
                "is_transactional": found["transactional"] == "true",
                "is_control": found["control"] == "true",
                "is_valid": found["valid"] == "true",
            }
        elif found := _FILE.match(line):
            position = _position(Path(found["path"]))


def _record(position: tuple[str, int], batch: dict[str, Any], found: re.Match[str]) -> DumpedRecord:
    rest = found["rest"]
    marker = _MARKER.match(rest)
    key, payload, undecoded = (None, None, None) if marker else _content(rest)
    return DumpedRecord(
        log_topic=position[0],
        log_partition=position[1],
        offset=int(found["offset"]),
        timestamp=int(found["timestamp"]),
        marker=marker["marker"] if marker else None,
        tombstone=int(found["value_size"]) < 0,
        key=key,
        payload=payload,
        undecoded=undecoded,
        **batch,
    )


def _content(rest: str) -> tuple[dict[str, Any] | None, dict[str, Any] | None, str | None]:
    """Return key, payload and, if there is no reading them as such, the text."""
    try:
        key, end = json.JSONDecoder().raw_decode(rest, len(_KEY))
        payload = rest[end + len(_PAYLOAD) :]
        return key, None if payload == "<DELETE>" else json.loads(payload), None
    except json.JSONDecodeError:
        return None, None, rest.strip()
