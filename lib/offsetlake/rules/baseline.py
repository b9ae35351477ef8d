"""Chooses the baseline of a history that is dropped: those of its records that decide what is read later.

The baseline of all records of a log partition up to an ingest run has these properties: reduced together with any
records after them, it gives the same offsets, pending offsets and groups as all records; and the baseline of a baseline
is the same. So history can be cut again and again, each time from the previous baseline and the records after it.
Instants before the newest dropped record cannot be answered from it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from heapq import merge
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.rules.groups.records import GroupRecord
from offsetlake.rules.groups.replay import (
    NOTHING_UNREAD,
    QuarantinedRecords,
    commit_record,
    group_record,
    in_log_order,
    replayed,
)
from offsetlake.rules.reduction import KEY, latest, next_markers, positions
from offsetlake.rules.share_replay import SHARE_PARTITION
from offsetlake.rules.unresolved import concerned, not_superseded
from offsetlake.util.row_codes import among, order_codes

Row = dict[str, Any]

_CREATING = ["group_id", "log_partition", "log_offset"]
_PLACE = ["log_topic", "log_partition", "log_offset"]


class GroupBaseline(NamedTuple):
    """The rows of `group_records` to keep, and the groups that exist without their newest commit."""

    records: pa.Table
    without_commit: list[str]


def kept_commits(decided: pa.Table, pending: pa.Table, newest_of_groups: pa.Table) -> pa.Table:
    """Return the rows of `offset_commits` to keep, in log order.

    These are the newest decided commit of each key, the pending commits, and the commits that create groups. If a key
    of the latter two was deleted, its tombstone is kept too, because it would exist again otherwise. Parts of complete
    commits become plain records: their commit has taken effect, and its other parts may be dropped.

    Args:
        decided: The newest decided record of each key, including tombstones.
        pending: The commits that may still take effect or have to be repaired.
        newest_of_groups: The newest commit, decided or not, of each group that needs one to exist.
    """
    decided, newest_of_groups = _without_parts(decided), _without_parts(newest_of_groups)
    undecided = pa.concat_tables([newest_of_groups, pending.cast(newest_of_groups.schema)])
    tombstones = decided.filter(pc.equal(decided["kind"], "tombstone"))
    tombstones = tombstones.filter(pa.array(among(tombstones, undecided, KEY)))
    committed = decided.filter(pc.equal(decided["kind"], "commit"))
    rows = _as_first(pa.concat_tables([committed, tombstones, undecided]))
    return rows.take(np.unique(positions(rows).to_numpy(), return_index=True)[1])


def kept_markers(commits: pa.Table, markers: pa.Table, recent_after: int) -> pa.Table:
    """Return the rows of `transaction_markers` to keep: those that end transactions of the kept commits.

    All markers of ingest runs after `recent_after` are kept, too.
    """
    transactional = commits.filter(pc.and_(pc.equal(commits["kind"], "commit"), pc.is_valid(commits["producer_id"])))
    kept = markers["ingest_run"].to_numpy() > recent_after
    ends = next_markers(transactional, markers)
    kept[ends[ends >= 0]] = True
    return markers.filter(pa.array(kept))


def kept_quarantine(quarantined: pa.Table, decided: pa.Table, share_records: pa.Table) -> pa.Table:
    """Return the rows of `quarantine` to keep: the newest of each key, and the newest batch, of each log partition.

    An older one concerns nothing that the newest does not. A row that a decoded record supersedes is omitted, because
    that record may be a tombstone, which is dropped.

    Args:
        quarantined: All rows of `quarantine`.
        decided: The newest decided record of each key.
        share_records: All rows of `share_state_records`.
    """
    if not len(quarantined):
        return quarantined
    quarantined = latest(quarantined, ("log_topic", "log_partition", "key_bytes", "is_control"))
    rows = concerned(quarantined)
    left = not_superseded(rows, decided, share_records)
    superseded = {_place(row) for row in rows} - {_place(row) for row in left}
    places = quarantined.select(_PLACE).to_pylist()
    return quarantined.filter(pa.array([_place(row) not in superseded for row in places], pa.bool_()))


def _place(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in _PLACE)


def kept_group_records(
    records: pa.Table, newest_of_groups: pa.Table, holding: Iterable[str], unread: Mapping[int, QuarantinedRecords] = {}
) -> GroupBaseline:
    """Return the rows of `group_records` to keep: the fewest that give the same state of each group.

    Args:
        records: All group records.
        newest_of_groups: The newest commit of each group, with the columns group_id, log_partition and log_offset.
        holding: The groups of which other commits are kept.
        unread: The quarantined records that concern groups, by log partition.
    """
    has_records = pc.is_in(newest_of_groups["group_id"], pc.unique(records["group_id"]))
    rows = newest_of_groups.filter(has_records).select(_CREATING).to_pylist()
    commits = {row["group_id"]: commit_record(row) for row in rows}
    holding = {*holding}
    kept: list[tuple[int, int]] = []
    # Any other commit also creates a group without records.
    others = newest_of_groups.filter(pc.invert(has_records))["group_id"]
    without_commit = [name for name in others.to_pylist() if name in holding]
    for group_id, group_rows in groupby(in_log_order(records), key=itemgetter("group_id")):
        of_group, commit = [*group_rows], commits.get(group_id)
        decoded = {row["log_offset"]: group_record(row) for row in of_group}
        quarantined = unread.get(of_group[0]["log_partition"], NOTHING_UNREAD)
        states = partial(_state, group_id, quarantined)
        if commit and group_id not in holding and states(decoded.values(), commit) == states(decoded.values(), None):
            without_commit.append(group_id)
            commit = None
        kept += [(row["log_partition"], row["log_offset"]) for row in _fewest(of_group, decoded, commit, states)]
    return GroupBaseline(_at(records, kept), without_commit)


def kept_share_state(records: pa.Table) -> pa.Table:
    """Return the rows of `share_state_records` that the rows of `share_partitions` can be computed from.

    These are those from the newest snapshot of each share partition on, and before it the record that determines
    `updated_timestamp`: the newest update, or the first record since the share partition was deleted last.
    """
    position, kind = positions(records).to_numpy(), records["kind"].to_numpy()
    share_partition = np.unique(order_codes(records, SHARE_PARTITION), return_inverse=True)[1]
    last, snapshot, update, tombstone = (np.full(records.num_rows, -1, np.int64) for _ in range(4))
    np.maximum.at(last, share_partition, position)
    for newest, name in ((snapshot, "snapshot"), (update, "update"), (tombstone, "tombstone")):
        np.maximum.at(newest, share_partition[kind == name], position[kind == name])
    since = position > tombstone[share_partition]
    first = np.full(records.num_rows, np.iinfo(np.int64).max)
    np.minimum.at(first, share_partition[since], position[since])
    updated = np.where(update > tombstone, update, first)
    kept = (position >= snapshot[share_partition]) | (position == updated[share_partition])
    return records.filter(pa.array(kept & (last != tombstone)[share_partition]))


def _without_parts(commits: pa.Table) -> pa.Table:
    """Return complete commits without the columns that make them parts of a commit."""
    for name in ("commit_id", "commit_size"):
        index = commits.schema.get_field_index(name)
        field = commits.schema.field(index)
        commits = commits.set_column(index, field, pa.nulls(commits.num_rows, field.type))
    return commits


def _as_first(commits: pa.Table) -> pa.Table:
    """Return commits as commits that are compared with no others, which may be dropped."""
    for name, nothing in {"repeats": None, "routine": False}.items():
        index = commits.schema.get_field_index(name)
        if index >= 0:
            field = commits.schema.field(index)
            column = pa.repeat(pa.scalar(nothing, field.type), commits.num_rows)
            commits = commits.set_column(index, field, column)
    return commits


def _fewest(
    rows: list[Row], decoded: dict[int, GroupRecord], commit: GroupRecord | None, state: Callable[..., Any]
) -> list[Row]:
    """Return the smallest candidate that gives the state of the group, with and without its newest commit."""
    wanted = [state(decoded.values(), each) for each in (None, commit)]
    return next(
        candidate
        for candidate in _candidates(rows)
        if [state((decoded[row["log_offset"]] for row in candidate), each) for each in (None, commit)] == wanted
    )


def _candidates(rows: list[Row]) -> Iterator[list[Row]]:
    """Yield subsets of the records of a group, from none to all, in log order."""
    yield []
    yield rows[-1:]
    by_key = {(row["record_type"], row["key"]): row for row in rows}
    newest = sorted(by_key.values(), key=itemgetter("log_offset"))
    yield [row for row in newest if row["value"] is not None or row is rows[-1]]
    yield newest
    yield rows


def _state(
    group_id: str, unread: QuarantinedRecords, records: Iterable[GroupRecord], commit: GroupRecord | None
) -> Any:
    ordered = merge(records, unread.records.get(group_id, ()), key=attrgetter("log_offset"))
    return replayed(None, ordered, commit, unread.batch)


def _at(records: pa.Table, places: list[tuple[int, int]]) -> pa.Table:
    """Return the rows at these log partitions and log offsets."""
    schema = pa.schema([records.schema.field(name) for name in ("log_partition", "log_offset")])
    partitions, offsets = zip(*places, strict=True) if places else ((), ())
    wanted = pa.table([pa.array(partitions, schema[0].type), pa.array(offsets, schema[1].type)], schema)
    return records.filter(pc.is_in(positions(records), positions(wanted)))
