"""Checks whether planned decisions may still be written: a decision is refused if its offset changed after the plan.

A decision contains the log offset of the commit that it was made for (`judged_offset`):

| newest record of the key in the log                        | tombstone | commit  |
|------------------------------------------------------------|-----------|---------|
| that commit; or no commit, if the decision was for none    | write     | write   |
| a tombstone or no record, if the decision was for a commit | done      | refused |
| a later commit with the values of the decision             | refused   | done    |
| any other commit                                           | refused   | refused |

"write" becomes "refused" if a quarantined record leaves the offset or the group unknown (`rules.unresolved`), if a
pending transaction or an incomplete commit has an offset for the key, if the group changed after the last compaction,
or if the decision is stale. A tombstone is also refused if another decision writes a commit of the same key. A group is
deleted if all of its offsets are deleted. Its deletion is refused if the deletion of
one of its offsets is refused, or if a decision commits an offset of the group.
"""

from dataclasses import dataclass
from enum import IntEnum
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.rules.reduction import KEY
from offsetlake.rules.unresolved import NOTHING_UNRESOLVED, Unresolved
from offsetlake.util.row_codes import rows_in


class Check(IntEnum):
    """The result of checking a decision."""

    WRITE = 0
    DONE = 1
    REFUSED = 2


KEY_PENDING = "a pending transaction or an incomplete commit has an offset for this key"
GROUP_PENDING = "a pending transaction or an incomplete commit has an offset of this group"
GROUP_HAS_OFFSETS = "the group has offsets that are not deleted"
COMMITTED_BY_ANOTHER = "another decision commits this offset"
SHARE = "share"
"""The type of share groups."""
SHARE_ONLY_THROUGH_CLUSTER = "it is a share group: only its cluster can change its state (--bootstrap)"
NO_OFFSET = "the offset no longer exists"

VALUE = ("committed_offset", "leader_epoch", "metadata")
_COLUMNS = (*KEY, "kind", "judged_offset", "stale", *VALUE, "commit_timestamp")
_NONE = -1


@dataclass(frozen=True, slots=True)
class CurrentState:
    """The present state of some groups, as the tables and the end of the log have it.

    Attributes:
        newest: The newest record of each key, including tombstones. Columns KEY, kind, log_offset, VALUE and
            commit_timestamp.
        pending: The commits of transactions and the parts of commits after the last compaction, and those that were
            pending then. Columns KEY and log_offset.
        groups: The groups that exist.
        changed: The groups with records after the last compaction, and the log offset of the newest.
        log_partition: The log partition of the groups.
        unresolved: What quarantined records leave unknown.
    """

    newest: pa.Table
    pending: pa.Table
    groups: frozenset[str]
    changed: dict[str, int]
    log_partition: int = 0
    unresolved: Unresolved = NOTHING_UNRESOLVED

    def unknown_groups(self, decisions: pa.Table, *, deleted: bool = False) -> dict[str, str]:
        """Return why groups of decisions are unknown, by name; `deleted` as of `Unresolved.group_reasons`."""
        if not self.unresolved.rows.num_rows:
            return {}
        names: list[str] = pc.unique(decisions["group_id"]).to_pylist()
        return self.unresolved.group_reasons(dict.fromkeys(names, self.log_partition), deleted=deleted)

    def unknown_offsets(self, decisions: pa.Table, log_offset: npt.NDArray[np.int64]) -> dict[int, str]:
        """Return by row why offsets are unknown; `log_offset` is that of the newest record of each, -1 for none."""
        if not self.unresolved.rows.num_rows:
            return {}
        keys = {name: decisions[name] for name in KEY} | {"log_offset": log_offset}
        offsets = pa.table(keys).append_column("log_partition", pa.array(np.full(len(log_offset), self.log_partition)))
        of_groups, names = self.unknown_groups(decisions), decisions["group_id"].to_pylist()
        reasons = {row: of_groups[name] for row, name in enumerate(names) if name in of_groups}
        return self.unresolved.offset_reasons(offsets) | reasons


def check_decisions(decisions: pa.Table, current: CurrentState) -> tuple[npt.NDArray[np.int64], dict[int, str]]:
    """Check which decisions may be written.

    Args:
        decisions: One row per decision:

            | Column               | Type             | Description |
            |----------------------|------------------|-------------|
            | KEY                  | strings, integer | topic and partition are null if the group itself is deleted |
            | kind                 | string           | tombstone or commit |
            | judged_offset        | integer          | log offset of the commit it was made for; null: there was none |
            | stale                | string           | why the decision is out of date; null if it is not |
            | VALUE                | several          | of commits: the values to commit |
            | commit_timestamp     | integer          | of commits, in ms since the epoch |

        current: The present state of the groups of the decisions.

    Returns:
        The `Check` of each decision, and the reasons of those that are refused, by row.
    """
    decisions = decisions.select(_COLUMNS)
    is_group = pc.is_null(decisions["topic"]).to_numpy()
    checks = np.full(decisions.num_rows, Check.WRITE, np.int64)
    offset_rows, group_rows = np.flatnonzero(~is_group), np.flatnonzero(is_group)
    offsets = decisions.take(offset_rows)
    newest_row = rows_in(offsets, current.newest, KEY)
    checks[offset_rows], refusals = _check_offsets(offsets, newest_row, current)
    reasons = {int(offset_rows[row]): reason for row, reason in refusals.items()}
    if len(group_rows):
        remaining = _groups_with_offsets(offsets, newest_row, checks[offset_rows], current.newest)
        refusals = _refused_groups(decisions.take(group_rows), remaining, current)
        gone = [group_id not in current.groups for group_id in decisions["group_id"].take(group_rows).to_pylist()]
        checks[group_rows] = np.where(gone, Check.DONE, Check.WRITE)
        checks[group_rows[[*refusals]]] = Check.REFUSED
        reasons |= {int(group_rows[row]): reason for row, reason in refusals.items()}
    return checks, reasons


def check_share_decisions(decisions: pa.Table, current: CurrentState) -> tuple[npt.NDArray[np.int64], dict[int, str]]:
    """Check which decisions about share groups may be tried: their cluster has the present start offsets.

    A group that does not exist needs no tombstones. Tombstones that retention planned are refused if the group changed
    after the last compaction: a member may have read from it.

    Args:
        decisions: One row per decision, with the columns group_id, kind and by_hand.
        current: The present state of the groups.

    Returns:
        As `check_decisions`.
    """
    checks, reasons = np.full(decisions.num_rows, Check.WRITE, np.int64), {}
    unknown = current.unknown_groups(decisions, deleted=True)
    for row, decision in enumerate(decisions.select(["group_id", "kind", "by_hand"]).to_pylist()):
        group_id = decision["group_id"]
        if group_id in unknown:
            checks[row], reasons[row] = Check.REFUSED, unknown[group_id]
        elif decision["kind"] == "tombstone" and group_id not in current.groups:
            checks[row] = Check.DONE
        elif not decision["by_hand"] and group_id in current.changed:
            checks[row], reasons[row] = Check.REFUSED, _group_changed(current, group_id)
    return checks, reasons


def _check_offsets(
    decisions: pa.Table, newest_row: npt.NDArray[np.int64], current: CurrentState
) -> tuple[npt.NDArray[np.int64], dict[int, str]]:
    """Check decisions about offsets; `newest_row` is the row in `current.newest` of each key, -1 if it has none."""
    known = newest_row >= 0
    newest = current.newest.drop_columns([*KEY]).take(np.maximum(newest_row, 0)) if current.newest.num_rows else None
    is_tombstone = pc.equal(decisions["kind"], "tombstone").to_numpy()
    committed, same_value = np.zeros((2, len(newest_row)), np.bool_)
    log_offset = np.full(len(newest_row), _NONE)
    if newest is not None:
        committed = known & pc.equal(newest["kind"], "commit").to_numpy()
        log_offset = np.where(known, newest["log_offset"].to_numpy(), _NONE)
        same_value = committed & _same_value(decisions, newest) if not is_tombstone.all() else same_value
    evaluated = pc.fill_null(decisions["judged_offset"], _NONE).to_numpy()
    unchanged = np.where(evaluated == _NONE, ~committed, committed & (log_offset == evaluated))
    done = np.where(is_tombstone, ~committed & (evaluated != _NONE), same_value & (log_offset > evaluated))
    pending = rows_in(decisions, current.pending, KEY) >= 0
    changed = pc.is_in(decisions["group_id"].cast(pa.string()), pa.array([*current.changed], pa.string())).to_numpy()
    stale = pc.is_valid(decisions["stale"]).to_numpy()
    reasons = current.unknown_offsets(decisions, log_offset)
    unknown = np.isin(np.arange(len(stale)), [*reasons])
    done &= ~unknown
    may_write = unchanged & ~done & ~pending & ~changed & ~stale & ~unknown
    commits = decisions.filter(pa.array(may_write & ~is_tombstone))
    beside_commit = is_tombstone & (rows_in(decisions, commits, KEY) >= 0)
    checks = np.select([done, may_write & ~beside_commit], [Check.DONE, Check.WRITE], Check.REFUSED)
    for row in np.flatnonzero((checks == Check.REFUSED) & ~unknown).tolist():
        if not unchanged[row]:
            reasons[row] = _offset_changed(newest if known[row] else None, row, committed=bool(committed[row]))
        elif pending[row]:
            reasons[row] = KEY_PENDING
        elif changed[row]:
            reasons[row] = _group_changed(current, decisions["group_id"][row].as_py())
        else:
            reasons[row] = decisions["stale"][row].as_py() or COMMITTED_BY_ANOTHER
    return checks, reasons


def _same_value(decisions: pa.Table, newest: pa.Table) -> npt.NDArray[np.bool_]:
    """Return which decisions would commit the values of the newest commit, if that is not older than the decision."""
    equal = pc.less_equal(decisions["commit_timestamp"], newest["commit_timestamp"])
    for name in VALUE:
        missing = "" if name == "metadata" else _NONE
        decided, stored = (pc.fill_null(rows[name], missing) for rows in (decisions, newest))
        equal = pc.and_(equal, pc.equal(decided, stored))
    same: npt.NDArray[np.bool_] = pc.fill_null(equal, fill_value=False).to_numpy()
    return same


def _offset_changed(newest: pa.Table | None, row: int, *, committed: bool) -> str:
    if newest is None:
        return NO_OFFSET
    log_offset = newest["log_offset"][row].as_py()
    if not committed:
        return f"the offset was deleted by the tombstone at log offset {log_offset}"
    return f"the committed offset changed: {newest['committed_offset'][row].as_py()} at log offset {log_offset}"


def _group_changed(current: CurrentState, group_id: str) -> str:
    return (
        f"the group changed after the last compaction: its newest record is at log offset {current.changed[group_id]}"
    )


def _groups_with_offsets(
    offsets: pa.Table, newest_row: npt.NDArray[np.int64], checks: npt.NDArray[np.int64], newest: pa.Table
) -> set[str]:
    """Return the groups that have offsets after the decisions about offsets are written."""
    deleted = (checks != Check.REFUSED) & pc.equal(offsets["kind"], "tombstone").to_numpy()
    undecided = pc.equal(newest["kind"], "commit").to_numpy(zero_copy_only=False).copy()
    undecided[newest_row[deleted & (newest_row >= 0)]] = False
    remaining = offsets["group_id"].take(np.flatnonzero(~deleted)), newest["group_id"].take(np.flatnonzero(undecided))
    return {*chain(*(pc.unique(names).to_pylist() for names in remaining))}


def _refused_groups(decisions: pa.Table, remaining: set[str], current: CurrentState) -> dict[int, str]:
    """Return why deletions of groups are refused, by row; `remaining` is the result of `_groups_with_offsets`."""
    pending = {*pc.unique(current.pending["group_id"]).to_pylist()}
    unknown = current.unknown_groups(decisions, deleted=True)
    reasons = {}
    rows = zip(decisions["group_id"].to_pylist(), decisions["stale"].to_pylist(), strict=True)
    for row, (group_id, stale) in enumerate(rows):
        if group_id in unknown:
            reasons[row] = unknown[group_id]
        elif group_id in remaining:
            reasons[row] = GROUP_HAS_OFFSETS
        elif group_id in pending:
            reasons[row] = GROUP_PENDING
        elif group_id in current.changed:
            reasons[row] = _group_changed(current, group_id)
        elif stale and group_id in current.groups:
            reasons[row] = stale
    return reasons
