"""Encodes a snapshot as the file that `offsetlake.serve.storage.mapped_snapshot` maps."""

import json
from collections.abc import Iterable
from itertools import accumulate
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.kafka.uuid import ZERO_UUID, uuid_bytes
from offsetlake.pipeline.compact.snapshot import Snapshot
from offsetlake.serve.storage.mapped_snapshot import HEADER
from offsetlake.util.times import now_ms

OFFSET_COLUMNS = (
    "group_id",
    "topic",
    "partition",
    "committed_offset",
    "leader_epoch",
    "metadata",
    "topic_id",
    "commit_timestamp",
)
"""The columns of `offsets` that the file contains."""

_MEMBERSHIP_TYPES = ("classic", "consumer", "share")
"""The types of groups whose members this server coordinates."""

_KIND_COLUMNS = ("group_type", "state", "protocol_type", "protocol")
_DETAIL_COLUMNS = ("epoch", "assignment_epoch", "subscription", "subscribed_topics")
_MEMBER_COLUMNS = ("group_id", "member_id", "member_epoch")
_PENDING_COLUMNS = ("group_id", "topic", "partition", "producer_id", "log_partition", "log_offset")
_TYPE_CODES = {"uint8": "B", "uint16": "H", "uint32": "I", "int8": "b", "int16": "h", "int32": "i", "int64": "q"}
_ALIGNMENT = 8

Arrays = dict[str, npt.NDArray[Any]]
Encoded = tuple[npt.NDArray[np.int32], list[str]]
"""A dictionary-encoded text column: the index of each row, and the texts."""


def snapshot_parts(snapshot: Snapshot, ends: pa.Table) -> list[bytes | memoryview]:
    """Return the contents of the file in parts.

    Args:
        snapshot: The snapshot; its offsets have OFFSET_COLUMNS.
        ends: Rows of `log_ends`, one for each partition; only those of topics with offsets are used.
    """
    offsets, groups = snapshot.tables["offsets"], snapshot.tables["groups"]
    names = pc.unique(
        pa.concat_arrays([*_by_appearance(offsets["group_id"]), *groups["group_id"].cast(pa.string()).chunks])
    )
    topics = _distinct(offsets["topic"])
    topics = topics.take(pc.array_sort_indices(topics))
    topic, topic_ids = _indices(offsets["topic"], topics), _encoded(offsets["topic_id"])
    arrays: Arrays = {**_group_arrays(names), **_entry_arrays(offsets, names, topic, topic_ids)}
    kinds, arrays["kinds"] = _kinds(groups, names)
    arrays |= _texts("replay_states", _replay_states(groups, names))
    arrays |= _texts("details", _details(snapshot, names)) | _texts("topic_names", map(str.encode, topics.to_pylist()))
    header: dict[str, Any] = {"kinds": kinds, "pending": _pending(snapshot)}
    header |= {"version": snapshot.version, "position": [*snapshot.ends.items()], "created_ms": now_ms()}
    header |= {"topics": _topics(offsets, topics, topic, topic_ids), "ends": _ends(ends, topics), "arrays": {}}
    begin = 0
    for name, values in arrays.items():
        header["arrays"][name] = begin, begin + values.nbytes, _TYPE_CODES[values.dtype.name]
        begin += values.nbytes + -values.nbytes % _ALIGNMENT
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    parts: list[bytes | memoryview] = [HEADER.pack(len(text)) + text]
    for values in arrays.values():
        if len(values):
            parts.append(np.ascontiguousarray(values).data.cast("B"))
        parts.append(bytes(-values.nbytes % _ALIGNMENT))
    return parts


def _topics(
    offsets: pa.Table, topics: pa.Array, topic: npt.NDArray[np.int32], topic_ids: Encoded
) -> dict[str, tuple[int, str, list[str]]]:
    """Return, by topic, the highest partition with an offset, the topic id of the newest commit that had one, others.

    The id is zeros if no offset has one; otherwise zeros are among the others if there is an offset without one.
    """
    ids, texts = topic_ids
    columns = {
        "topic": pa.array(topic),
        "id": pa.array(ids),
        "partition": offsets["partition"],
        "timestamp": offsets["commit_timestamp"],
    }
    newest = pa.table(columns).group_by(["topic", "id"]).aggregate([("partition", "max"), ("timestamp", "max")])
    known: dict[int, tuple[int, str, list[str]]] = {}
    for row in newest.sort_by("timestamp_max").to_pylist():
        last, id_, all_ids = known.get(row["topic"], (-1, "", []))
        text = texts[row["id"]]
        known[row["topic"]] = max(last, row["partition_max"]), text or id_, [*all_ids, text]
    return {
        topics[number].as_py(): (last, _id_bytes(id_).hex(), [_id_bytes(each).hex() for each in ids if each != id_])
        for number, (last, id_, ids) in known.items()
    }


def _ends(ends: pa.Table, topics: pa.Array) -> list[list[Any]]:
    """Return topic, partition, start offset and end offset of each partition of the given topics."""
    rows = ends.filter(pc.is_in(ends["topic"], topics)).select(["topic", "partition", "start_offset", "end_offset"])
    return [[*row.values()] for row in rows.to_pylist()]


def _dictionaries(column: pa.ChunkedArray) -> list[pa.DictionaryArray]:
    """Return the chunks of a text column as dictionary arrays; a null becomes an empty text."""
    encoded_chunks = []
    for chunk in column.chunks:
        encoded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        if encoded.indices.null_count:
            texts = pa.concat_arrays([encoded.dictionary, pa.array([""], encoded.dictionary.type)])
            encoded = pa.DictionaryArray.from_arrays(pc.fill_null(encoded.indices, len(encoded.dictionary)), texts)
        encoded_chunks.append(encoded)
    return encoded_chunks


def _by_appearance(column: pa.ChunkedArray) -> list[pa.Array]:
    """Return the texts of a column in the order of their first rows; texts may be repeated."""
    texts = [pa.array([], pa.string())]
    for chunk in _dictionaries(column):
        indices = chunk.indices.to_numpy()
        is_new = np.ones(len(indices), np.bool_)
        is_new[1:] = indices[1:] != indices[:-1]
        texts.append(chunk.dictionary.take(pa.array(indices[is_new])))
    return texts


def _distinct(column: pa.ChunkedArray) -> pa.Array:
    """Return the distinct texts of a column's dictionaries, which may be more than the rows have."""
    dictionaries = (chunk.dictionary for chunk in _dictionaries(column))
    return pc.unique(pa.concat_arrays([pa.array([], pa.string()), *dictionaries]))


def _indices(column: pa.ChunkedArray, values: pa.Array) -> npt.NDArray[np.int32]:
    """Return for each row the index of its text in `values`, which contain all texts of the column."""
    chunks = _dictionaries(column)
    texts = pa.concat_arrays([pa.array([], pa.string()), *(chunk.dictionary for chunk in chunks)])
    indices = pc.index_in(texts, values).to_numpy(zero_copy_only=False)
    parts, begin = [np.empty(0, np.int32)], 0
    for chunk in chunks:
        chunk_indices = indices[begin : begin + len(chunk.dictionary)]
        parts.append(chunk_indices[chunk.indices.to_numpy()])
        begin += len(chunk_indices)
    return np.concatenate(parts)


def _encoded(column: pa.ChunkedArray) -> Encoded:
    """Return a text column as indices and distinct texts."""
    values = _distinct(column)
    return _indices(column, values), values.to_pylist()


def _group_arrays(names: pa.Array) -> Arrays:
    encoded = [name.encode() for name in names.to_pylist()]
    hashes = np.fromiter(map(crc32, encoded), np.uint32, len(encoded))
    order = np.argsort(hashes, kind="stable")
    return {"hashes": hashes[order], "hashed": _narrow(order), **_texts("group_names", encoded)}


def _entry_arrays(offsets: pa.Table, names: pa.Array, topic: npt.NDArray[np.int32], topic_ids: Encoded) -> Arrays:
    """Return the columns of the offsets, sorted by group, topic and partition, and the runs."""
    group, partition = _indices(offsets["group_id"], names), offsets["partition"].to_numpy()
    metadata, texts = _encoded(offsets["metadata"])
    ids, id_texts = topic_ids
    columns = {
        "partitions": partition,
        "offsets": offsets["committed_offset"].to_numpy(),
        "epochs": pc.fill_null(offsets["leader_epoch"], -1).to_numpy(),
        "metadata": metadata,
        "topic_ids": ids,
    }
    if not _are_sorted(group, topic, partition):
        order = np.lexsort((partition, topic, group))
        group, topic = group[order], topic[order]
        columns = {name: values[order] for name, values in columns.items()}
    is_first = np.ones(len(group), np.bool_)
    is_first[1:] = (group[1:] != group[:-1]) | (topic[1:] != topic[:-1])
    starts = np.flatnonzero(is_first)
    return {
        **{name: _narrow(values) for name, values in columns.items()},
        "runs": _narrow(np.searchsorted(group[starts], np.arange(len(names) + 1))),
        "run_topics": _narrow(topic[starts]),
        "run_starts": _narrow(np.append(starts, len(group))),
        **_texts("metadata_texts", (text.encode() for text in texts)),
        "topic_id_bytes": np.frombuffer(b"".join(map(_id_bytes, id_texts)), np.uint8),
    }


def _are_sorted(*columns: npt.NDArray[Any]) -> bool:
    """Check whether rows are sorted by the given columns; those of a lake without a log tail are."""
    is_tie = np.ones(max(len(columns[0]) - 1, 0), np.bool_)
    for values in columns:
        if np.any(is_tie & (values[1:] < values[:-1])):
            return False
        is_tie &= values[1:] == values[:-1]
    return True


def _id_bytes(text: str) -> bytes:
    return uuid_bytes(text) if text else ZERO_UUID


def _kinds(groups: pa.Table, names: pa.Array) -> tuple[list[dict[str, Any]], npt.NDArray[Any]]:
    """Return the distinct kinds of groups, and the index of each group's kind; one without a row is a simple group."""
    rows = [dict.fromkeys(_KIND_COLUMNS) | {"group_type": "classic", "state": "Empty"}]
    known = {tuple(rows[0].values()): 0}
    indices = np.zeros(len(names), np.int64)
    numbers = pc.index_in(groups["group_id"], names).to_numpy()
    for group, kind in zip(numbers.tolist(), groups.select(_KIND_COLUMNS).to_pylist(), strict=True):
        index = indices[group] = known.setdefault(tuple(kind.values()), len(known))
        if index == len(rows):
            rows.append(kind)
    return rows, _narrow(indices)


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
    """Return `replay_state` of each classic, consumer and share group, empty for groups that have only commits."""
    states = [b""] * len(names)
    has_members = pc.is_in(groups["group_type"], pa.array(_MEMBERSHIP_TYPES))
    rows = groups.filter(pc.and_(has_members, pc.is_valid(groups["replay_state"])))
    numbers = pc.index_in(rows["group_id"], names).to_pylist()
    for number, state in zip(numbers, rows["replay_state"].to_pylist(), strict=True):
        states[number] = state.encode()
    return states


def _pending(snapshot: Snapshot) -> list[list[Any]]:
    """Return the offsets of open transactions as `MappedSnapshot` reads them."""
    pending = snapshot.tables["pending_offsets"].append_column("overtaken", snapshot.overtaken)
    rows = pending.filter(pc.is_valid(pending["producer_id"])).to_pylist()
    return [[*(row[name] for name in _PENDING_COLUMNS), None if row["overtaken"] else _value(row)] for row in rows]


def _value(row: dict[str, Any]) -> list[Any]:
    epoch = -1 if row["leader_epoch"] is None else row["leader_epoch"]
    return [row["committed_offset"], epoch, row["metadata"] or "", _id_bytes(row["topic_id"] or "").hex()]


def _texts(name: str, texts: Iterable[bytes]) -> Arrays:
    encoded = list(texts)
    ends = np.fromiter(accumulate(map(len, encoded)), np.int64, len(encoded))
    return {name: np.frombuffer(b"".join(encoded), np.uint8), f"{name}_ends": _narrow(ends)}


def _narrow(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return integers in the narrowest type that can represent all of them."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    names = ("uint8", "uint16", "uint32", "int64") if low >= 0 else ("int8", "int16", "int32", "int64")
    return values.astype(next(name for name in names if np.iinfo(name).min <= low and high <= np.iinfo(name).max))
