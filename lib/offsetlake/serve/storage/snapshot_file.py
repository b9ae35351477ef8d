"""Encodes a snapshot as the file that `offsetlake.serve.storage.mapped_snapshot` maps."""

import json
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.unread import EVERYTHING_READ, Unread
from offsetlake.pipeline.compact.snapshot import Snapshot
from offsetlake.rules.groups.state import UNKNOWN
from offsetlake.rules.unresolved import Unresolved
from offsetlake.serve.storage.mapped_snapshot import HEADER
from offsetlake.serve.storage.snapshot_offsets import (
    Array,
    Arrays,
    EncodedOffsets,
    combine,
    id_bytes,
    narrow,
    texts,
)
from offsetlake.util.times import now_ms

_MEMBERSHIP_TYPES = ("classic", "consumer", "share")
"""The types of groups whose members this server coordinates."""

_KIND_COLUMNS = ("group_type", "state", "protocol_type", "protocol")
_DETAIL_COLUMNS = ("epoch", "assignment_epoch", "subscription", "subscribed_topics")
_MEMBER_COLUMNS = ("group_id", "member_id", "member_epoch")
_PENDING_COLUMNS = ("group_id", "topic", "partition", "producer_id", "log_partition", "log_offset")
_TYPE_CODES = {"uint8": "B", "uint16": "H", "uint32": "I", "int8": "b", "int16": "h", "int32": "i", "int64": "q"}
_ALIGNMENT = 8


def snapshot_parts(
    snapshot: Snapshot, parts: Sequence[EncodedOffsets], ends: pa.Table, not_read: Unread = EVERYTHING_READ
) -> list[bytes | memoryview]:
    """Return the contents of the file in parts.

    Args:
        snapshot: The snapshot, without offsets.
        parts: Its offsets, of one log partition at least.
        ends: Rows of `log_ends`, one for each partition; only those of topics with offsets are used.
        not_read: What the log lacks.
    """
    groups = snapshot.tables["groups"]
    offsets = combine(parts, groups["group_id"])
    names, topics, arrays = offsets.groups, offsets.topics, offsets.arrays | _group_arrays(offsets.groups)
    kinds, numbers = _kinds(groups, names)
    arrays["kinds"] = [narrow(numbers)]
    arrays |= texts("replay_states", _replay_states(groups, names))
    arrays |= texts("details", _details(snapshot, names)) | texts("topic_names", map(str.encode, topics.to_pylist()))
    header: dict[str, Any] = {"kinds": kinds, "pending": _pending(snapshot)}
    header |= {"version": snapshot.version, "position": [*snapshot.ends.items()], "created_ms": now_ms()}
    header |= {"unknown": _unknown(snapshot), "in_doubt": _in_doubt(snapshot), "partly_read": _partly_read(snapshot)}
    header |= _lacking(not_read)
    header |= {"topics": offsets.known_topics, "ends": _ends(ends, topics), "arrays": {}}
    begin, chunks = 0, []
    for name, values in arrays.items():
        size = sum(chunk.nbytes for chunk in values)
        header["arrays"][name] = begin, begin + size, _TYPE_CODES[values[0].dtype.name]
        padding = -size % _ALIGNMENT
        begin += size + padding
        chunks += [np.ascontiguousarray(chunk).data.cast("B") for chunk in values if len(chunk)]
        chunks.append(memoryview(bytes(padding)))
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return [HEADER.pack(len(text)) + text, *chunks]


def _ends(ends: pa.Table, topics: pa.Array) -> list[list[Any]]:
    """Return topic, partition, start offset and end offset of each partition of the given topics."""
    rows = ends.filter(pc.is_in(ends["topic"], topics)).select(["topic", "partition", "start_offset", "end_offset"])
    return [[*row.values()] for row in rows.to_pylist()]


def _group_arrays(names: pa.Array) -> Arrays:
    encoded = [name.encode() for name in names.to_pylist()]
    hashes = np.fromiter(map(crc32, encoded), np.uint32, len(encoded))
    order = np.argsort(hashes, kind="stable")
    return {"hashes": [hashes[order]], "hashed": [narrow(order)], **texts("group_names", encoded)}


def _kinds(groups: pa.Table, names: pa.Array) -> tuple[list[dict[str, Any]], Array]:
    """Return the distinct kinds of groups, and the index of each group's kind; one without a row is a simple group."""
    known = {("classic", "Empty", None, None): 0}
    indices = np.zeros(len(names), np.int64)
    numbers = pc.index_in(groups["group_id"], names).to_numpy()
    kinds = zip(*(groups[name].to_pylist() for name in _KIND_COLUMNS), strict=True)
    indices[numbers] = [known.setdefault(kind, len(known)) for kind in kinds]
    return [dict(zip(_KIND_COLUMNS, kind, strict=True)) for kind in known], indices


def _details(snapshot: Snapshot, names: pa.Array) -> list[bytes]:
    """Return `GroupDetails` of each group as JSON, empty for classic groups."""
    details = [b""] * len(names)
    groups = snapshot.tables["groups"]
    groups = groups.filter(pc.not_equal(groups["group_type"].cast(pa.string()), "classic"))
    if groups.num_rows:
        members = _members(snapshot)
        numbers = pc.index_in(groups["group_id"], names).to_pylist()
        rows = groups.select(["group_id", *_DETAIL_COLUMNS]).to_pylist()
        for number, group in zip(numbers, rows, strict=True):
            details[number] = json.dumps(group | {"members": members.get(group["group_id"], [])}).encode()
    return details


def _members(snapshot: Snapshot) -> dict[str, list[dict[str, Any]]]:
    """Return by group the members that are not in `replay_state`: those of streams groups."""
    rows = snapshot.tables["group_members"].select(_MEMBER_COLUMNS)
    groups = snapshot.tables["groups"]
    coordinated = groups.filter(pc.is_in(groups["group_type"], pa.array(_MEMBERSHIP_TYPES)))["group_id"]
    members: dict[str, list[dict[str, Any]]] = {}
    for member in rows.filter(pc.invert(pc.is_in(rows["group_id"], coordinated.combine_chunks()))).to_pylist():
        members.setdefault(member["group_id"], []).append(member)
    return members


def _replay_states(groups: pa.Table, names: pa.Array) -> list[bytes]:
    """Return `replay_state` of each classic, consumer and share group.

    It is empty for groups that have only commits, and for classic groups whose state is unknown: their members join
    again, and their record then has the whole state.
    """
    states = [b""] * len(names)
    has_members = pc.is_in(groups["group_type"], pa.array(_MEMBERSHIP_TYPES))
    is_known = pc.or_(pc.not_equal(groups["state"], UNKNOWN), pc.not_equal(groups["group_type"], "classic"))
    rows = groups.filter(pc.and_(pc.and_(has_members, is_known), pc.is_valid(groups["replay_state"])))
    numbers = pc.index_in(rows["group_id"], names).to_pylist()
    for number, state in zip(numbers, rows["replay_state"].to_pylist(), strict=True):
        states[number] = state.encode()
    return states


def _lacking(not_read: Unread) -> dict[str, Any]:
    """Return the fields of the header about what the log lacks, as `MappedSnapshot` describes them."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(not_read.partitions):
        topics.setdefault(topic, []).append(number)
    ranges: dict[str, list[str]] = {}
    for part in not_read.missing:
        ranges.setdefault(f"{part.topic}-{part.partition}", []).append(f"{part.start} to {part.end - 1}")
    return {"not_read": topics, "missing": {where: ", ".join(texts) for where, texts in ranges.items()}}


def _unknown(snapshot: Snapshot) -> list[str]:
    """Return the groups that quarantined records leave unknown, or of which they leave an offset unknown."""
    groups = snapshot.tables["groups"]
    of_states = groups.filter(pc.equal(groups["state"], UNKNOWN))["group_id"]
    return sorted({*snapshot.in_doubt["group_id"].to_pylist(), *of_states.to_pylist()})


def _in_doubt(snapshot: Snapshot) -> dict[str, list[tuple[str, int]]]:
    """Return topic and partition of the offsets that quarantined records leave unknown, by group."""
    found: dict[str, list[tuple[str, int]]] = {}
    for row in snapshot.in_doubt.to_pylist():
        found.setdefault(row["group_id"], []).append((row["topic"], row["partition"]))
    return found


def _partly_read(snapshot: Snapshot) -> list[str]:
    """Return the groups of which a batch that cannot be read may have offsets that no other record has.

    They existed before the batch: their state is unknown because of it, or an offset of them is. A group of which there
    is no earlier record is taken as new, as nearly all are.
    """
    rows, groups, in_doubt = snapshot.tables["unresolved_records"], snapshot.tables["groups"], snapshot.in_doubt
    in_batches = pc.is_in(groups["log_partition"], pa.array([*Unresolved(rows).batches], pa.int32()))
    unknown = groups.filter(pc.and_(in_batches, pc.equal(groups["state"], UNKNOWN)))["group_id"]
    before = in_doubt.filter(pc.equal(in_doubt["scope"], "log_partition"))["group_id"]
    return sorted({*unknown.to_pylist(), *before.to_pylist()})


def _pending(snapshot: Snapshot) -> list[list[Any]]:
    """Return the offsets of open transactions as `MappedSnapshot` reads them."""
    pending = snapshot.tables["pending_offsets"].append_column("overtaken", snapshot.overtaken)
    rows = pending.filter(pc.is_valid(pending["producer_id"])).to_pylist()
    return [[*(row[name] for name in _PENDING_COLUMNS), None if row["overtaken"] else _value(row)] for row in rows]


def _value(row: dict[str, Any]) -> list[Any]:
    epoch = -1 if row["leader_epoch"] is None else row["leader_epoch"]
    return [row["committed_offset"], epoch, row["metadata"] or "", id_bytes(row["topic_id"] or "").hex()]
