"""Plans of `translate`: the offsets of groups of one cluster at another one, as rows of `alterations`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.kafka.mirror import checkpoint_key, sync_key
from offsetlake.lake.lake import Lake
from offsetlake.log.cluster import topic as topics
from offsetlake.log.cluster.admin_client import cluster_admin
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.pipeline.changes import targets
from offsetlake.pipeline.changes.alterations import OFFSET, Strategy, plan_alterations
from offsetlake.pipeline.changes.group_selection import groups_like, groups_named
from offsetlake.pipeline.changes.translation import mirror_topics
from offsetlake.pipeline.changes.translation.record_search import Wanted, search_records
from offsetlake.queries.history.as_of import offsets_as_of
from offsetlake.queries.history.deleted import groups_in_history
from offsetlake.queries.history.in_doubt import unknown_then
from offsetlake.rules.reduction import KEY
from offsetlake.rules.translation import NONE, Bounds, Translated, by_checkpoints, by_syncs
from offsetlake.util.columns import by_row
from offsetlake.util.row_codes import Ints

_OF_OFFSETS = (*KEY, "committed_offset", "metadata")
_NO_REPLICA = "the target has no replica of the topic, or several"
_NO_PARTITION = "the target does not have the partition"
_USED = "the group is or was used at the target"
_NO_EVIDENCE = "no offset sync or checkpoint before this offset is known"


@dataclass(frozen=True, slots=True)
class Translation:
    """What a translation uses.

    | Field  | Description |
    |--------|-------------|
    | offsets | Offsets of groups at the source, from `source_offsets`. |
    | source  | The source; None if it is not available. |
    | target  | The target. |
    | syncs   | The topic with offset syncs; None if the cluster that has it is not available. |
    | standby | Whether groups that ever had members at the target are refused, even if they have none now. |
    | at_most_once | Whether groups skip records, rather than read them twice, where an offset is not exact. |
    """

    offsets: pa.Table
    source: KafkaConnection | None
    target: KafkaConnection
    syncs: mirror_topics.MirrorTopics | None
    standby: bool = False
    at_most_once: bool = False


def source_offsets(lake: Lake, pattern: str, as_of_ms: int | None = None) -> pa.Table:
    """Return the offsets of groups of the source, now or at a time (ms since the epoch).

    Columns: those of the key, committed_offset, metadata, and unknown: why a newer offset of the key may
    exist. Raises BadRequest if no group that matches the pattern has
    an offset.
    """
    unknown: dict[int, str] = {}
    if as_of_ms is None:
        groups = groups_like(lake, pattern)
        rows = groups.rows("offsets", OFFSET)
        unknown = groups.unknown_offsets(rows)
    else:
        names = pa.array([*groups_in_history(lake, pattern)], pa.string())
        rows = offsets_as_of(lake, as_of_ms, names[0].as_py() if len(names) == 1 else None)
        rows = rows.filter(pc.is_in(rows["group_id"].cast(pa.string()), value_set=names))
        unknown = unknown_then(lake, rows, as_of_ms)
    if not rows.num_rows:
        raise BadRequest(f"No group like {pattern!r} has an offset in the lake {lake.location}.")
    return rows.select(_OF_OFFSETS).append_column("unknown", by_row(unknown, rows.num_rows))


def plan_translation(lake: Lake, request: Translation, now: int) -> pa.Table:
    """Plan the offsets of groups at the target; rows of `alterations` and further columns.

    The topics are those of the target.

    | Column        | Type   | Description |
    |---------------|--------|-------------|
    | source_topic  | string | Topic at the source |
    | source_offset | int64  | Committed offset at the source |
    | verdict       | string | exact; safe: records are read again; ahead: records are skipped; unknown: refused |
    | read_twice    | int64  | Maximum number of records that are read again; null if the verdict is unknown |
    | skipped       | int64  | Maximum number of records that are skipped; null if the verdict is unknown |

    Args:
        lake: The lake of the target.
        request: What to translate.
        now: The commit timestamp in ms since the epoch.

    Raises:
        LogUnavailable: The target, or the cluster with the offset syncs, cannot be read.

    """
    source = request.offsets
    names = topics.names(request.target)
    replicas = mirror_topics.replicas(names, {*source["topic"].to_pylist()})
    replicated = pa.array([replicas.get(name) for name in source["topic"].to_pylist()], pa.string())
    starts, ends = _log_ends(request.target, replicated.to_pylist(), source["partition"].to_pylist())
    reason = pc.coalesce(
        source["unknown"],
        pc.if_else(pc.is_null(replicated), _NO_REPLICA, pc.if_else(pa.array(ends == NONE), _NO_PARTITION, None)),
    )
    found, evidence, repeated = _by_replicator(request, names, replicated, starts, ends)
    if request.source is not None:
        found = _by_records(request.source, request, replicated, found, evidence, np.where(repeated, ends, NONE))
    known = found.offset != NONE
    new, read_twice = (found.latest, found.latest * 0) if request.at_most_once else (found.offset, found.read_twice)
    offset = pa.array(new, mask=~known)
    wanted = {
        "group_id": source["group_id"],
        "topic": pc.coalesce(replicated, source["topic"].combine_chunks()),
        "partition": source["partition"],
        "committed_offset": offset,
        "requested_offset": offset,
        "metadata": source["metadata"],
        "reason": pc.coalesce(reason, pc.if_else(pa.array(known), None, _NO_EVIDENCE)),
    }
    groups = groups_named(lake, {*source["group_id"].to_pylist()}, live=True)
    if request.standby:
        used = pa.array(
            [name for name, group in groups.found.items() if group.get("protocol_type") is not None], pa.string()
        )
        is_used = pc.is_in(source["group_id"].cast(pa.string()), value_set=used)
        wanted["reason"] = pc.coalesce(wanted["reason"], pc.if_else(is_used, _USED, None).cast(pa.string()))
    plan = plan_alterations(groups, targets.wanted_rows(wanted, source.num_rows), Strategy("translate"), now)
    inexact = "ahead" if request.at_most_once else "safe"
    verdict = np.where(known, np.where(found.exact, "exact", inexact), "unknown")
    columns = {
        "source_topic": source["topic"],
        "source_offset": source["committed_offset"],
        "verdict": pa.array(verdict, pa.string()),
        "read_twice": pa.array(read_twice, mask=~known),
        "skipped": pa.array(new - found.offset, mask=~known),
    }
    places = zip(
        *(source[name].to_pylist() for name in ("topic", "partition", "committed_offset")), evidence, strict=True
    )
    texts = [text and f"{name}-{number} at {at}: {text}" for name, number, at, text in places]
    plan = plan.set_column(plan.column_names.index("evidence"), "evidence", pa.array(texts, pa.string()))
    for name, column in columns.items():
        plan = plan.append_column(name, column)
    return plan


def _log_ends(target: KafkaConnection, names: Sequence[str | None], partitions: Sequence[int]) -> tuple[Ints, Ints]:
    """Return the log start and end offsets of partitions of the target; NONE if they do not exist."""
    keys = [(name or "", partition) for name, partition in zip(names, partitions, strict=True)]
    with cluster_admin(target) as admin:
        known = admin.log_ends(key for key in keys if key[0])
    starts, ends = np.array([known.get(key, (NONE, NONE)) for key in keys], np.int64).T
    return starts, ends


def _by_replicator(
    request: Translation, names: Sequence[str], replicated: pa.StringArray, starts: Ints, ends: Ints
) -> tuple[Translated, list[str | None], npt.NDArray[np.bool_]]:
    """Return the offsets at the target by offset syncs and checkpoints, the evidence, and `Bounds.repeated`, of each.

    A checkpoint is used where it is closer than the offset syncs, because some of these were removed by compaction.
    """
    offsets = request.offsets["committed_offset"].to_numpy()
    rows = [*zip(*(request.offsets[name].to_pylist() for name in KEY), replicated.to_pylist(), strict=True)]
    checkpoints = mirror_topics.search_checkpoints(
        mirror_topics.checkpoints(request.target, names),
        [checkpoint_key(group, replica or "", partition) for group, _, partition, replica in rows],
        offsets,
        ends,
    )
    found = by_checkpoints(checkpoints, starts, ends)
    if request.syncs is None:
        return found, [*_evidence("checkpoint", checkpoints, found.offset != NONE)], np.zeros_like(found.exact)
    syncs = mirror_topics.search_syncs(
        request.syncs, [sync_key(topic, partition) for _, topic, partition, _ in rows], offsets, ends
    )
    of_syncs = by_syncs(offsets, syncs, starts, ends)
    closer = of_syncs.offset >= found.offset
    better = Translated(*(np.where(closer, *pair) for pair in zip(of_syncs, found, strict=True)))
    texts = zip(
        _evidence("offset sync", syncs, closer & (better.offset != NONE)),
        _evidence("checkpoint", checkpoints, ~closer),
        strict=True,
    )
    return better, [sync or checkpoint for sync, checkpoint in texts], syncs.repeated


def _by_records(
    source: KafkaConnection,
    request: Translation,
    replicated: pa.StringArray,
    found: Translated,
    evidence: list[str | None],
    limits: Ints,
) -> Translated:
    """Return the offsets with those that are not exact replaced by those that the records at both clusters determine.

    `evidence` is updated. `limits` are the log end offsets at the target where records may follow that were written
    again, otherwise NONE.
    """
    topics_of, partitions = request.offsets["topic"].to_pylist(), request.offsets["partition"].to_pylist()
    offsets, names = request.offsets["committed_offset"].to_pylist(), replicated.to_pylist()
    rows = [row for row in np.flatnonzero(~found.exact).tolist() if names[row] is not None]
    wanted = [
        Wanted(
            (topics_of[row], partitions[row]),
            offsets[row],
            (names[row], partitions[row]),
            None if found.offset[row] == NONE else max(int(found.offset[row]) - 1, 0),
        )
        for row in rows
    ]
    offset, exact = found.offset.copy(), found.exact.copy()
    read_twice, latest = found.read_twice.copy(), found.latest.copy()
    for number, (position, text) in search_records(source, request.target, wanted).items():
        row = rows[number]
        offset[row], exact[row] = position, limits[row] == NONE
        read_twice[row] = max(int(limits[row]) - position, 0)
        latest[row] = max(int(limits[row]), position)
        evidence[row] = text
    return Translated(offset, exact, read_twice, latest)


def _evidence(kind: str, bounds: Bounds, used: npt.NDArray[np.bool_]) -> Iterator[str | None]:
    for up, down, is_used in zip(bounds.upstream.tolist(), bounds.downstream.tolist(), used.tolist(), strict=True):
        yield f"{kind} {up} = {down}" if is_used else None
