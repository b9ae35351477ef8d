"""Whether what was decided may still be done: a decision names the log offset it judged, and is refused if that moved.

| the newest record of the key now                        | a tombstone | a commit |
|---------------------------------------------------------|-------------|----------|
| is the commit judged, or none where none was judged     | go          | go       |
| is a tombstone, or there is none, where one was judged  | done        | refused  |
| is the very commit decided, behind the one judged       | refused     | done     |
| is another commit                                       | refused     | refused  |

"go" becomes refused while a transaction or a commit in parts holds an offset of the key, where the group has changed
since, or where the decision is stale. A tombstone is refused beside a commit of its key that goes. A group goes if all
of its offsets do or are gone, and is refused with the first of them that is, or that is to be committed.
"""

from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.rules.reduction import KEY
from offsetlake.util.row_codes import rows_in

GO, DONE, REFUSED = 0, 1, 2
HELD = "a transaction, or a commit in parts, holds an offset of it"
VALUE = ("committed_offset", "leader_epoch", "metadata")
_ASKED = (*KEY, "kind", "judged_offset", "stale", *VALUE, "commit_timestamp")
_NONE = -1


@dataclass(frozen=True, slots=True)
class Current:
    """What a log says now of some groups.

    | field   | is |
    |---------|----|
    | newest  | columns KEY, kind, log_offset, VALUE, commit_timestamp: the newest record of each key, tombstones too |
    | held    | columns KEY, log_offset: what transactions and commits in parts hold, or held until a moment ago |
    | groups  | the groups that there are |
    | changed | groups of which records came since the tables were made: log offset of the newest |
    """

    newest: pa.Table
    held: pa.Table
    groups: frozenset[str]
    changed: dict[str, int]


def conditions(decisions: pa.Table, current: Current) -> tuple[npt.NDArray[np.int64], dict[int, str]]:
    """Say of each decision whether it may go, is done already, or is refused; and of those refused why, by their row.

    Columns: KEY (topic and partition null: the group itself), kind (tombstone or commit), judged_offset (null: there
    was none), stale (why it may not go any more; null: it may), and of commits VALUE and commit_timestamp.
    """
    decisions = decisions.select(_ASKED)
    of_group = pc.is_null(decisions["topic"]).to_numpy()
    found = np.full(decisions.num_rows, GO)
    rows, groups = np.flatnonzero(~of_group), np.flatnonzero(of_group)
    offsets = decisions.take(rows)
    at = rows_in(offsets, current.newest, KEY)
    found[rows], why = _of_offsets(offsets, at, current)
    reasons = {int(rows[row]): reason for row, reason in why.items()}
    if len(groups):
        staying = _groups_with_offsets_that_stay(offsets, at, found[rows], current.newest)
        why = _of_groups(decisions.take(groups), staying, current)
        gone = [group_id not in current.groups for group_id in decisions["group_id"].take(groups).to_pylist()]
        found[groups] = np.where(gone, DONE, GO)
        found[groups[[*why]]] = REFUSED
        reasons |= {int(groups[row]): reason for row, reason in why.items()}
    return found, reasons


def _of_offsets(
    decisions: pa.Table, at: npt.NDArray[np.int64], current: Current
) -> tuple[npt.NDArray[np.int64], dict[int, str]]:
    """Decide of offsets; `at` tells which row of `current.newest` is the newest record of each, -1 for none."""
    known = at >= 0
    now = current.newest.drop_columns([*KEY]).take(np.maximum(at, 0)) if current.newest.num_rows else None
    is_tombstone = pc.equal(decisions["kind"], "tombstone").to_numpy()
    stands, log_offset, same = np.zeros(len(at), np.bool_), np.full(len(at), _NONE), np.zeros(len(at), np.bool_)
    if now is not None:
        stands = known & pc.equal(now["kind"], "commit").to_numpy()
        log_offset = np.where(known, now["log_offset"].to_numpy(), _NONE)
        same = stands & _same_value(decisions, now) if not is_tombstone.all() else same
    judged = pc.fill_null(decisions["judged_offset"], _NONE).to_numpy()
    unmoved = np.where(judged == _NONE, ~stands, stands & (log_offset == judged))
    done = np.where(is_tombstone, ~stands & (judged != _NONE), same & (log_offset > judged))
    held = rows_in(decisions, current.held, KEY) >= 0
    changed = pc.is_in(decisions["group_id"].cast(pa.string()), pa.array([*current.changed], pa.string())).to_numpy()
    stale = pc.is_valid(decisions["stale"]).to_numpy()
    goes = unmoved & ~done & ~held & ~changed & ~stale
    beside_commit = is_tombstone & (rows_in(decisions, decisions.filter(pa.array(goes & ~is_tombstone)), KEY) >= 0)
    found = np.select([done, goes & ~beside_commit], [DONE, GO], REFUSED)
    reasons = {}
    for row in np.flatnonzero(found == REFUSED).tolist():
        if not unmoved[row]:
            reasons[row] = _moved(now, row, stands=bool(stands[row]), known=bool(known[row]))
        elif held[row]:
            reasons[row] = HELD
        elif changed[row]:
            reasons[row] = _changed(current, decisions["group_id"][row].as_py())
        else:
            reasons[row] = decisions["stale"][row].as_py() or "it is to be committed, by another decision"
    return found, reasons


def _same_value(decisions: pa.Table, now: pa.Table) -> npt.NDArray[np.bool_]:
    """Tell which rows would commit just what stands, committed no earlier than was decided."""
    equal = pc.less_equal(decisions["commit_timestamp"], now["commit_timestamp"])
    for name in VALUE:
        missing = "" if name == "metadata" else _NONE
        mine, theirs = (pc.fill_null(rows[name], missing) for rows in (decisions, now))
        equal = pc.and_(equal, pc.equal(mine, theirs))
    same: npt.NDArray[np.bool_] = pc.fill_null(equal, fill_value=False).to_numpy()
    return same


def _moved(now: pa.Table | None, row: int, *, stands: bool, known: bool) -> str:
    if now is None or not known:
        return "it is gone: there is no commit of it any more"
    where = now["log_offset"][row].as_py()
    if not stands:
        return f"it is gone: a tombstone stands at log offset {where}"
    return f"it was committed again: {now['committed_offset'][row].as_py()} at log offset {where}"


def _changed(current: Current, group_id: str) -> str:
    return f"the group has changed since: its newest record is at log offset {current.changed[group_id]}"


def _groups_with_offsets_that_stay(
    offsets: pa.Table, at: npt.NDArray[np.int64], found: npt.NDArray[np.int64], newest: pa.Table
) -> set[str]:
    settled = (found != REFUSED) & pc.equal(offsets["kind"], "tombstone").to_numpy()
    undecided = pc.equal(newest["kind"], "commit").to_numpy(zero_copy_only=False).copy()
    undecided[at[settled & (at >= 0)]] = False
    staying = offsets["group_id"].take(np.flatnonzero(~settled)), newest["group_id"].take(np.flatnonzero(undecided))
    return {*chain(*(pc.unique(names).to_pylist() for names in staying))}


def _of_groups(decisions: pa.Table, staying: set[str], current: Current) -> dict[int, str]:
    """Say why groups themselves may not go, whose offsets are decided."""
    held = {*pc.unique(current.held["group_id"]).to_pylist()}
    reasons = {}
    named = zip(decisions["group_id"].to_pylist(), decisions["stale"].to_pylist(), strict=True)
    for row, (group_id, stale) in enumerate(named):
        if group_id in staying:
            reasons[row] = "it has offsets that stay"
        elif group_id in held:
            reasons[row] = HELD
        elif group_id in current.changed:
            reasons[row] = _changed(current, group_id)
        elif stale and group_id in current.groups:
            reasons[row] = stale
    return reasons
