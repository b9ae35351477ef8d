"""Encodes the offsets of a snapshot: those of each log partition by themselves, so that few rows are in memory at once.

`encode_offsets` turns the rows of a log partition into columns of narrow types, a tenth of their size, and `combine`
those of all log partitions into the arrays of the file that `offsetlake.serve.storage.mapped_snapshot` describes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.kafka.uuid import ZERO_UUID, uuid_bytes

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
"""The columns of `offsets` that are encoded."""

_TEXTS = ("group_id", "topic", "metadata", "topic_id")

Array = npt.NDArray[Any]
Arrays = dict[str, list[Array]]
"""Arrays of the file by name, each in parts of the same type."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Offsets in the order of their groups, topics and partitions; a run has those of one group in one topic.

    | Field          | Description |
    |----------------|-------------|
    | groups, topics | The numbers of the group and of the topic of each run |
    | starts         | The first offset of each run |
    | columns        | The arrays `partitions`, `offsets`, `epochs`, `metadata` and `topic_ids` |
    """

    groups: Array
    topics: Array
    starts: Array
    columns: dict[str, Array]

    def __len__(self) -> int:
        """Return the number of offsets."""
        return len(self.columns["partitions"])

    def of_offsets(self, numbers: Array) -> Array:
        """Return for each offset the number of its run."""
        return np.repeat(numbers, np.diff(np.append(self.starts, len(self))))


@dataclass(frozen=True, slots=True)
class EncodedOffsets:
    """The offsets of a log partition. The numbers in `runs` and `topic_ids` are indices of `texts`.

    `texts` are the distinct texts of each column; `topic_ids` has a row for each topic and topic id, with the highest
    partition and the time of the newest commit.
    """

    texts: dict[str, pa.Array]
    runs: Runs
    topic_ids: pa.Table


@dataclass(frozen=True, slots=True)
class CombinedOffsets:
    """All offsets of a snapshot.

    | Field          | Description |
    |----------------|-------------|
    | groups, topics | The names of the groups, also of those without offsets, and of the topics, by number |
    | arrays         | The arrays of runs and entries, and their texts |
    | known_topics   | By topic, the highest partition, the newest topic id, and the others |
    """

    groups: pa.Array
    topics: pa.Array
    arrays: Arrays
    known_topics: dict[str, tuple[int, str, list[str]]]


def encode_offsets(rows: pa.Table) -> EncodedOffsets:
    """Encode the offsets of a log partition: rows of OFFSET_COLUMNS, one for each key."""
    topics = _distinct(rows["topic"])
    distinct = {
        "group_id": pc.unique(pa.concat_arrays(_by_appearance(rows["group_id"]))),
        "topic": topics.take(pc.array_sort_indices(topics)),
        **{name: _distinct(rows[name]) for name in _TEXTS[2:]},
    }
    group, topic, metadata, topic_id = (_indices(rows[name], distinct[name]) for name in _TEXTS)
    columns = {
        "partitions": rows["partition"].to_numpy(),
        "offsets": rows["committed_offset"].to_numpy(),
        "epochs": pc.fill_null(rows["leader_epoch"], -1).to_numpy(),
        "metadata": metadata,
        "topic_ids": topic_id,
    }
    ids = {"topic": pa.array(topic), "id": pa.array(topic_id), "partition": rows["partition"]}
    topic_ids = _newest(pa.table(ids | {"timestamp": rows["commit_timestamp"]}))
    return EncodedOffsets(distinct, _runs(group, topic, columns), topic_ids)


def combine(parts: Sequence[EncodedOffsets], group_ids: pa.ChunkedArray) -> CombinedOffsets:
    """Combine the offsets of all log partitions, of at least one; `group_ids` can name groups without offsets."""
    names, groups = _united(parts, "group_id", group_ids.cast(pa.string()).chunks)
    topics, topic_numbers = _united(parts, "topic")
    order = pc.array_sort_indices(topics)
    topics, ranks = topics.take(order), narrow(np.argsort(order))
    topic_numbers = [ranks[numbers] for numbers in topic_numbers]
    metadata, metadata_numbers = _united(parts, "metadata")
    ids, id_numbers = _united(parts, "topic_id")
    numbers = zip(groups, topic_numbers, metadata_numbers, id_numbers, strict=True)
    runs = [_renumbered(part.runs, *of_part) for part, of_part in zip(parts, numbers, strict=True)]
    if not np.array_equal(np.concatenate(groups), np.arange(sum(map(len, groups)))):  # a group is in several parts
        runs = [_merged(runs)]
    newest = _newest(pa.concat_tables(map(_renumbered_ids, parts, topic_numbers, id_numbers)))
    arrays = {**_run_arrays(runs, len(names)), **texts("metadata_texts", map(str.encode, metadata.to_pylist()))}
    arrays |= {name: _of_one_type([part.columns[name] for part in runs]) for name in runs[0].columns}
    arrays["topic_id_bytes"] = [np.frombuffer(b"".join(map(id_bytes, ids.to_pylist())), np.uint8)]
    return CombinedOffsets(names, topics, arrays, _known_topics(newest, topics.to_pylist(), ids.to_pylist()))


def texts(name: str, values: Iterable[bytes]) -> Arrays:
    """Return the arrays of texts with a name: their bytes, and the end of each."""
    encoded = list(values)
    ends = np.fromiter(accumulate(map(len, encoded)), np.int64, len(encoded))
    return {name: [np.frombuffer(b"".join(encoded), np.uint8)], f"{name}_ends": [narrow(ends)]}


def narrow(values: Array) -> Array:
    """Return integers in the narrowest type that can represent all of them."""
    return _of_one_type([values])[0]


def id_bytes(text: str) -> bytes:
    """Return the bytes of a topic id, zeros for an empty text."""
    return uuid_bytes(text) if text else ZERO_UUID


def _of_one_type(parts: Sequence[Array]) -> list[Array]:
    """Return parts of an array in the narrowest type that can represent all of their integers."""
    low = min((int(part.min()) for part in parts if len(part)), default=0)
    high = max((int(part.max()) for part in parts if len(part)), default=0)
    names = ("uint8", "uint16", "uint32", "int64") if low >= 0 else ("int8", "int16", "int32", "int64")
    name = next(name for name in names if np.iinfo(name).min <= low and high <= np.iinfo(name).max)
    return [part.astype(name, copy=False) for part in parts]


def _runs(group: Array, topic: Array, columns: dict[str, Array]) -> Runs:
    """Sort offsets by group, topic and partition, unless they are sorted, and divide them into runs."""
    if not _are_sorted(group, topic, columns["partitions"]):
        order = np.lexsort((columns["partitions"], topic, group))
        group, topic = group[order], topic[order]
        columns = {name: values[order] for name, values in columns.items()}
    is_first = np.ones(len(group), np.bool_)
    is_first[1:] = (group[1:] != group[:-1]) | (topic[1:] != topic[:-1])
    starts = np.flatnonzero(is_first)
    return Runs(group[starts], topic[starts], starts, {name: narrow(values) for name, values in columns.items()})


def _are_sorted(*columns: Array) -> bool:
    """Check whether rows are sorted by the given columns; those of a lake without a log tail are."""
    is_tie = np.ones(max(len(columns[0]) - 1, 0), np.bool_)
    for values in columns:
        if np.any(is_tie & (values[1:] < values[:-1])):
            return False
        is_tie &= values[1:] == values[:-1]
    return True


def _renumbered(runs: Runs, groups: Array, topics: Array, metadata: Array, topic_ids: Array) -> Runs:
    columns = runs.columns
    columns = columns | {"metadata": metadata[columns["metadata"]], "topic_ids": topic_ids[columns["topic_ids"]]}
    return Runs(groups[runs.groups], topics[runs.topics], runs.starts, columns)


def _renumbered_ids(part: EncodedOffsets, topics: Array, topic_ids: Array) -> pa.Table:
    topic, id_, *others = part.topic_ids.columns
    numbers = (topics[topic.to_numpy()], topic_ids[id_.to_numpy()])
    columns = [*(pa.array(values.astype(np.int64)) for values in numbers), *others]
    return pa.table(dict(zip(part.topic_ids.column_names, columns, strict=True)))


def _merged(parts: Sequence[Runs]) -> Runs:
    """Merge parts that have groups in common: another number of log partitions was used before."""
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    group = np.concatenate([part.of_offsets(part.groups) for part in parts])
    topic = np.concatenate([part.of_offsets(part.topics) for part in parts])
    return _runs(group, topic, columns)


def _run_arrays(parts: Sequence[Runs], groups: int) -> Arrays:
    firsts = [*accumulate(map(len, parts), initial=0)]
    of_runs = np.concatenate([part.groups for part in parts])
    starts = [part.starts + first for part, first in zip(parts, firsts, strict=False)]
    return {
        "runs": [narrow(np.searchsorted(of_runs, np.arange(groups + 1)))],
        "run_topics": [narrow(np.concatenate([part.topics for part in parts]))],
        "run_starts": [narrow(np.concatenate([*starts, firsts[-1:]]))],
    }


def _newest(topic_ids: pa.Table) -> pa.Table:
    """Return a row for each topic and topic id: their numbers, the highest partition and the newest timestamp."""
    newest = topic_ids.group_by(["topic", "id"], use_threads=False)
    return newest.aggregate([("partition", "max"), ("timestamp", "max")]).rename_columns(topic_ids.column_names)


def _known_topics(newest: pa.Table, topics: list[str], ids: list[str]) -> dict[str, tuple[int, str, list[str]]]:
    """Return, by topic, the highest partition with an offset, the topic id of the newest commit that had one, others.

    The id is zeros if no offset has one; otherwise zeros are among the others if there is an offset without one.
    """
    known: dict[int, tuple[int, str, list[str]]] = {}
    for row in newest.sort_by("timestamp").to_pylist():
        last, id_, all_ids = known.get(row["topic"], (-1, "", []))
        text = ids[row["id"]]
        known[row["topic"]] = max(last, row["partition"]), text or id_, [*all_ids, text]
    return {
        topics[number]: (last, id_bytes(id_).hex(), [id_bytes(each).hex() for each in others if each != id_])
        for number, (last, id_, others) in known.items()
    }


def _united(
    parts: Sequence[EncodedOffsets], name: str, others: Sequence[pa.Array] = ()
) -> tuple[pa.Array, list[Array]]:
    """Return the distinct texts of a column of all parts, and those in `others`, and the numbers of those of a part."""
    of_parts = [part.texts[name] for part in parts]
    together = pa.concat_arrays(of_parts)
    distinct = pc.unique(pa.concat_arrays([together, *others]))
    ends = [*accumulate(map(len, of_parts))]
    return distinct, np.split(_index_in(together, distinct), ends[:-1])


def _index_in(values: pa.Array, distinct: pa.Array) -> Array:
    """Return the index of each value in `distinct`, which contains all of them."""
    return narrow(pc.index_in(values, distinct).to_numpy(zero_copy_only=False))


def _dictionaries(column: pa.ChunkedArray) -> list[pa.DictionaryArray]:
    """Return the chunks of a text column as dictionary arrays; a null becomes an empty text."""
    encoded_chunks = []
    for chunk in column.chunks:
        encoded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        if encoded.indices.null_count:
            values = pa.concat_arrays([encoded.dictionary, pa.array([""], encoded.dictionary.type)])
            encoded = pa.DictionaryArray.from_arrays(pc.fill_null(encoded.indices, len(encoded.dictionary)), values)
        encoded_chunks.append(encoded)
    return encoded_chunks


def _by_appearance(column: pa.ChunkedArray) -> list[pa.Array]:
    """Return the texts of a column in the order of their first rows; texts may be repeated."""
    appearances = [pa.array([], pa.string())]
    for chunk in _dictionaries(column):
        indices = chunk.indices.to_numpy()
        is_new = np.ones(len(indices), np.bool_)
        is_new[1:] = indices[1:] != indices[:-1]
        appearances.append(chunk.dictionary.take(pa.array(indices[is_new])))
    return appearances


def _distinct(column: pa.ChunkedArray) -> pa.Array:
    """Return the distinct texts of a column's dictionaries, which may be more than the rows have."""
    dictionaries = (chunk.dictionary for chunk in _dictionaries(column))
    return pc.unique(pa.concat_arrays([pa.array([], pa.string()), *dictionaries]))


def _indices(column: pa.ChunkedArray, values: pa.Array) -> Array:
    """Return for each row the index of its text in `values`, which contain all texts of the column."""
    chunks = _dictionaries(column)
    indices = _index_in(pa.concat_arrays([pa.array([], pa.string()), *(chunk.dictionary for chunk in chunks)]), values)
    parts, begin = [indices[:0]], 0
    for chunk in chunks:
        chunk_indices = indices[begin : begin + len(chunk.dictionary)]
        parts.append(chunk_indices[chunk.indices.to_numpy()])
        begin += len(chunk_indices)
    return np.concatenate(parts)
