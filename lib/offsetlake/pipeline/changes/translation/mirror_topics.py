"""Finds the topics that MirrorMaker 2 writes, and reads offset syncs and checkpoints from them."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from offsetlake.errors import BadRequest
from offsetlake.kafka.batches.reader import read_batches
from offsetlake.kafka.mirror import CHECKPOINT_PAIR_AT, SYNC_PAIR_AT, read_pairs
from offsetlake.log.cluster import topic as topics
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.rules.translation import Bounds, PairSearch
from offsetlake.util.row_codes import Ints

_SEPARATOR = r"(?P<separator>[._-]+)"
_SYNCS = re.compile(rf"mm2-offset-syncs{_SEPARATOR}(?P<alias>.+)(?P=separator)internal")
_CHECKPOINTS = re.compile(rf"(?P<alias>.+?){_SEPARATOR}checkpoints(?P=separator)internal")
_HEARTBEATS = re.compile(rf"(?P<alias>.+?){_SEPARATOR}heartbeats")

SyncsLocation = Literal["source", "target"]
"""The cluster with the offset syncs: MirrorMaker 2's setting `offset-syncs.topic.location`."""


class MirrorTopics(NamedTuple):
    """Where offset syncs and checkpoints are: a cluster and the names of its topics, which may be none."""

    connection: KafkaConnection
    topics: Sequence[str]


def offset_syncs(
    source: KafkaConnection | None, target: KafkaConnection, location: SyncsLocation, alias: str | None
) -> MirrorTopics | None:
    """Return the topic with the offset syncs of a replication; None if the source has it and is not available.

    The topic at the target has the same name as that of a replication in the other direction with the default
    location, so it is used without an alias only if the source has no offset syncs.

    Args:
        source: The source; None if it is not available.
        target: The target.
        location: The cluster with the topic.
        alias: The alias in the name of the topic: that of the other cluster; None for any.

    Raises:
        BadRequest: There are several such topics, or replication in the other direction may have written the topic.
    """
    if location == "source":
        return None if source is None else _of_cluster(source, alias)
    found = _of_cluster(target, alias)
    if found.topics and source is not None and alias is None and [*_aliases(source)]:
        raise BadRequest(
            f"The source {source.bootstrap} has offset syncs, too, so replication in the other direction may have "
            f"written {found.topics[0]} at {target.bootstrap}: omit --syncs-at target, or, if this replication has "
            "offset-syncs.topic.location=target and the other one does not write to this topic, specify --alias "
            f"{_aliases(target)[found.topics[0]]}."
        )
    return found


def _of_cluster(connection: KafkaConnection, alias: str | None) -> MirrorTopics:
    aliases = _aliases(connection)
    found = sorted(name for name in aliases if alias in (None, aliases[name]))
    if len(found) > 1:
        raise BadRequest(
            f"The cluster {connection.bootstrap} has the offset syncs of several replications: {', '.join(found)}. "
            f"Specify one of them with --alias: {', '.join(sorted({aliases[name] for name in found}))}."
        )
    return MirrorTopics(connection, found)


def _aliases(connection: KafkaConnection) -> dict[str, str]:
    """Return the aliases in the names of topics with offset syncs, by the name of the topic."""
    return {name: match["alias"] for name in topics.names(connection) if (match := _SYNCS.fullmatch(name))}


def checkpoints(connection: KafkaConnection, names: Collection[str]) -> MirrorTopics:
    """Return the topics with checkpoints among all topics of the target."""
    return MirrorTopics(connection, sorted(name for name in names if _CHECKPOINTS.fullmatch(name)))


def replicas(names: Collection[str], wanted: Collection[str]) -> dict[str, str]:
    """Return the topic at the target by the topic at the source; those without exactly one replica are omitted.

    By MirrorMaker 2's DefaultReplicationPolicy, the name of a replica begins with the alias of the source, which the
    names of checkpoints and heartbeats contain, too. By IdentityReplicationPolicy, a replica has the same name.

    Args:
        names: All topics of the target.
        wanted: Topics of the source.
    """
    existing = {*names}
    prefixes = {
        match["alias"] + match["separator"]
        for name in names
        for pattern in (_CHECKPOINTS, _HEARTBEATS, _SYNCS)
        if (match := pattern.fullmatch(name))
    }
    found = {}
    for topic in wanted:
        prefixed = [prefix + topic for prefix in prefixes if prefix + topic in existing]
        if len(prefixed) == 1:
            found[topic] = prefixed[0]
        elif not prefixed and topic in existing:
            found[topic] = topic
    return found


def search_syncs(evidence: MirrorTopics, keys: Sequence[bytes], offsets: Ints, ends: Ints) -> Bounds:
    """Return the bounds of offsets by all offset syncs; `keys` has the `mirror.sync_key` of each offset."""
    return _search(evidence, keys, offsets, ends, SYNC_PAIR_AT)


def search_checkpoints(evidence: MirrorTopics, keys: Sequence[bytes], offsets: Ints, ends: Ints) -> Bounds:
    """Return the bounds of offsets by all checkpoints; `keys` has the `mirror.checkpoint_key` of each offset."""
    return _search(evidence, keys, offsets, ends, CHECKPOINT_PAIR_AT)


def _search(evidence: MirrorTopics, keys: Sequence[bytes], offsets: Ints, ends: Ints, pair_at: int) -> Bounds:
    numbers: Mapping[bytes, int] = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    search = PairSearch(np.array([numbers[key] for key in keys], np.int64), offsets)
    distinct = pa.array([*numbers], pa.binary())
    ranges = [*topics.describe(evidence.connection, evidence.topics).ranges.items()] if evidence.topics else []
    for _, data in topics.fetch(evidence.connection, ranges):
        search.add(*read_pairs(read_batches(data)[0], distinct, pair_at))
    return search.result(ends)
