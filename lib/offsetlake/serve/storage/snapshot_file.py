"""Lays a snapshot out as the file that `offsetlake.serve.storage.mapped_snapshot` maps."""

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
"""The columns of `offsets` that are served."""

_KIND = ("group_type", "state", "protocol_type", "protocol")
_OF_MEMBERS = ("generation", "epoch", "assignment_epoch", "leader", "subscription", "subscribed_topics")
_HELD = ("group_id", "topic", "partition", "producer_id", "log_partition", "log_offset")
_CODES = {"uint8": "B", "uint16": "H", "uint32": "I", "int8": "b", "int16": "h", "int32": "i", "int64": "q"}
_ALIGNMENT = 8

Arrays = dict[str, npt.NDArray[Any]]
Encoded = tuple[npt.NDArray[np.int32], list[str]]
"""A text column as numbers, and the texts they stand for."""


def lay_out(snapshot: Snapshot, ends: pa.Table) -> list[bytes | memoryview]:
    """Return the bytes of the file, in parts, of a snapshot and the ends of the topics it has offsets of.

    The offsets of the snapshot have OFFSET_COLUMNS; `ends` are rows of `log_ends`, one for each partition.
    """
    offsets, groups = snapshot.tables["offsets"], snapshot.tables["groups"]
    names = pc.unique(pa.concat_arrays([*_in_order(offsets["group_id"]), *groups["group_id"].cast(pa.string()).chunks]))
    topics = _different(offsets["topic"])
    topics = topics.take(pc.array_sort_indices(topics))
    of_topics, of_ids = _numbers(offsets["topic"], topics), _encoded(offsets["topic_id"])
    arrays: Arrays = {**_of_groups(names), **_of_entries(offsets, names, of_topics, of_ids)}
    kinds, arrays["kinds"] = _kinds(groups, names)
    arrays |= _texts("details", _details(snapshot, names)) | _texts("topic_names", map(str.encode, topics.to_pylist()))
    header: dict[str, Any] = {"kinds": kinds, "pending": _pending(snapshot)}
    header |= {"version": snapshot.version, "position": [*snapshot.ends.items()], "made": now_ms()}
    header |= {"topics": _topics(offsets, topics, of_topics, of_ids), "ends": _ends(ends, topics), "arrays": {}}
    at = 0
    for name, values in arrays.items():
        header["arrays"][name] = at, at + values.nbytes, _CODES[values.dtype.name]
        at += values.nbytes + -values.nbytes % _ALIGNMENT
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    parts: list[bytes | memoryview] = [HEADER.pack(len(text)) + text]
    for values in arrays.values():
        if len(values):
            parts.append(np.ascontiguousarray(values).data.cast("B"))
        parts.append(bytes(-values.nbytes % _ALIGNMENT))
    return parts


def _topics(
    offsets: pa.Table, topics: pa.Array, of_topics: npt.NDArray[np.int32], of_ids: Encoded
) -> dict[str, tuple[int, str]]:
    """Give by topic the highest partition that offsets are stored of, and the newest id that commits gave; or none."""
    ids, texts = of_ids
    columns = {
        "topic": pa.array(of_topics),
        "id": pa.array(ids),
        "partition": offsets["partition"],
        "timestamp": offsets["commit_timestamp"],
    }
    found = pa.table(columns).group_by(["topic", "id"]).aggregate([("partition", "max"), ("timestamp", "max")])
    known: dict[int, tuple[int, str]] = {}
    for row in found.sort_by("timestamp_max").to_pylist():
        last, id_ = known.get(row["topic"], (-1, ""))
        known[row["topic"]] = max(last, row["partition_max"]), texts[row["id"]] or id_
    return {topics[number].as_py(): (last, _id_bytes(id_).hex()) for number, (last, id_) in known.items()}


def _ends(ends: pa.Table, topics: pa.Array) -> list[list[Any]]:
    """Give topic, partition, start and end of each partition of these topics."""
    rows = ends.filter(pc.is_in(ends["topic"], topics)).select(["topic", "partition", "start_offset", "end_offset"])
    return [[*row.values()] for row in rows.to_pylist()]


def _dictionaries(column: pa.ChunkedArray) -> list[pa.DictionaryArray]:
    """Give the chunks of a text column as dictionaries, texts that are missing as empty ones."""
    filled = []
    for chunk in column.chunks:
        of = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        if of.indices.null_count:
            texts = pa.concat_arrays([of.dictionary, pa.array([""], of.dictionary.type)])
            of = pa.DictionaryArray.from_arrays(pc.fill_null(of.indices, len(of.dictionary)), texts)
        filled.append(of)
    return filled


def _in_order(column: pa.ChunkedArray) -> list[pa.Array]:
    """Give the texts of a column by their first appearance; some again where they appear again."""
    found = [pa.array([], pa.string())]
    for chunk in _dictionaries(column):
        numbers = chunk.indices.to_numpy()
        begins = np.ones(len(numbers), np.bool_)
        begins[1:] = numbers[1:] != numbers[:-1]
        found.append(chunk.dictionary.take(pa.array(numbers[begins])))
    return found


def _different(column: pa.ChunkedArray) -> pa.Array:
    """Give each text a column has, or could have, once; a missing one is empty."""
    return pc.unique(pa.concat_arrays([pa.array([], pa.string()), *(of.dictionary for of in _dictionaries(column))]))


def _numbers(column: pa.ChunkedArray, values: pa.Array) -> npt.NDArray[np.int32]:
    """Give for each row the number of its text among some different ones, that has all of them."""
    chunks = _dictionaries(column)
    texts = pa.concat_arrays([pa.array([], pa.string()), *(of.dictionary for of in chunks)])
    numbers = pc.index_in(texts, values).to_numpy(zero_copy_only=False)
    parts, at = [np.empty(0, np.int32)], 0
    for of in chunks:
        here = numbers[at : at + len(of.dictionary)]
        parts.append(here[of.indices.to_numpy()])
        at += len(here)
    return np.concatenate(parts)


def _encoded(column: pa.ChunkedArray) -> Encoded:
    """Give numbers for a text column, and the texts they stand for."""
    values = _different(column)
    return _numbers(column, values), values.to_pylist()


def _of_groups(names: pa.Array) -> Arrays:
    encoded = [name.encode() for name in names.to_pylist()]
    hashes = np.fromiter(map(crc32, encoded), np.uint32, len(encoded))
    order = np.argsort(hashes, kind="stable")
    return {"hashes": hashes[order], "hashed": _narrow(order), **_texts("group_names", encoded)}


def _of_entries(offsets: pa.Table, names: pa.Array, topic: npt.NDArray[np.int32], of_ids: Encoded) -> Arrays:
    """Sort the offsets and make their columns, runs and the groups' first runs."""
    group, partition = _numbers(offsets["group_id"], names), offsets["partition"].to_numpy()
    metadata, texts = _encoded(offsets["metadata"])
    ids, id_texts = of_ids
    columns = {
        "partitions": partition,
        "offsets": offsets["committed_offset"].to_numpy(),
        "epochs": pc.fill_null(offsets["leader_epoch"], -1).to_numpy(),
        "metadata": metadata,
        "topic_ids": ids,
    }
    if not _in_their_order(group, topic, partition):
        order = np.lexsort((partition, topic, group))
        group, topic = group[order], topic[order]
        columns = {name: values[order] for name, values in columns.items()}
    begins = np.ones(len(group), np.bool_)
    begins[1:] = (group[1:] != group[:-1]) | (topic[1:] != topic[:-1])
    starts = np.flatnonzero(begins)
    return {
        **{name: _narrow(values) for name, values in columns.items()},
        "runs": _narrow(np.searchsorted(group[starts], np.arange(len(names) + 1))),
        "run_topics": _narrow(topic[starts]),
        "run_starts": _narrow(np.append(starts, len(group))),
        **_texts("metadata_texts", (text.encode() for text in texts)),
        "topic_id_bytes": np.frombuffer(b"".join(map(_id_bytes, id_texts)), np.uint8),
    }


def _in_their_order(*columns: npt.NDArray[Any]) -> bool:
    """Tell whether rows are sorted by some columns, as those of a log that nothing came to since are."""
    same = np.ones(max(len(columns[0]) - 1, 0), np.bool_)
    for values in columns:
        if np.any(same & (values[1:] < values[:-1])):
            return False
        same &= values[1:] == values[:-1]
    return True


def _id_bytes(text: str) -> bytes:
    return uuid_bytes(text) if text else ZERO_UUID


def _kinds(groups: pa.Table, names: pa.Array) -> tuple[list[dict[str, Any]], npt.NDArray[Any]]:
    """Give the kinds of groups there are, and which each group is; one that no row tells of is a simple group."""
    rows = [dict.fromkeys(_KIND) | {"group_type": "classic", "state": "Empty"}]
    known = {tuple(rows[0].values()): 0}
    numbers = np.zeros(len(names), np.int64)
    at = pc.index_in(groups["group_id"], names).to_numpy()
    for group, kind in zip(at.tolist(), groups.select(_KIND).to_pylist(), strict=True):
        number = numbers[group] = known.setdefault(tuple(kind.values()), len(known))
        if number == len(rows):
            rows.append(kind)
    return rows, _narrow(numbers)


def _details(snapshot: Snapshot, names: pa.Array) -> list[bytes]:
    details = [b""] * len(names)
    groups = snapshot.tables["groups"]
    described = pc.equal(groups["group_type"].cast(pa.string()), "consumer")
    groups = groups.filter(pc.or_(pc.greater(groups["member_count"], 0), described))
    if groups.num_rows:
        members: dict[str, list[dict[str, Any]]] = {}
        for member in snapshot.tables["group_members"].to_pylist():
            members.setdefault(member["group_id"], []).append(member)
        at = pc.index_in(groups["group_id"], names).to_pylist()
        of_groups = groups.select(["group_id", *_OF_MEMBERS]).to_pylist()
        for number, group in zip(at, of_groups, strict=True):
            details[number] = json.dumps(group | {"members": members.get(group["group_id"], [])}).encode()
    return details


def _pending(snapshot: Snapshot) -> list[list[Any]]:
    """Give the offsets of open transactions, as `Base` reads them."""
    pending = snapshot.tables["pending_offsets"].append_column("overtaken", snapshot.overtaken)
    rows = pending.filter(pc.is_valid(pending["producer_id"])).to_pylist()
    return [[*(row[name] for name in _HELD), None if row["overtaken"] else _value(row)] for row in rows]


def _value(row: dict[str, Any]) -> list[Any]:
    epoch = -1 if row["leader_epoch"] is None else row["leader_epoch"]
    return [row["committed_offset"], epoch, row["metadata"] or "", _id_bytes(row["topic_id"] or "").hex()]


def _texts(name: str, texts: Iterable[bytes]) -> Arrays:
    encoded = list(texts)
    ends = np.fromiter(accumulate(map(len, encoded)), np.int64, len(encoded))
    return {name: np.frombuffer(b"".join(encoded), np.uint8), f"{name}_ends": _narrow(ends)}


def _narrow(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Give whole numbers in the narrowest type that holds them all."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    names = ("uint8", "uint16", "uint32", "int64") if low >= 0 else ("int8", "int16", "int32", "int64")
    return values.astype(next(name for name in names if np.iinfo(name).min <= low and high <= np.iinfo(name).max))
