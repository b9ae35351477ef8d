"""Plans of `reset`, `restore` and `undelete`: rows of `alterations`, made from the tables as they are."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.log.cluster.admin import ClusterAdmin
from offsetlake.pipeline.changes import targets
from offsetlake.pipeline.changes.alterations import OFFSET, Strategy, plan_alterations
from offsetlake.pipeline.changes.selection import GroupSelection, groups_at, groups_named, place_of_new_group
from offsetlake.queries.as_of import offsets_as_of
from offsetlake.queries.deleted import deleted_offsets, done_by, groups_in_history
from offsetlake.rules.reduction import KEY
from offsetlake.util.row_codes import rows_in
from offsetlake.util.times import to_iso


def undo(lake: Lake, run_id: int, now: int) -> pa.Table:
    """Set back what a run of emit has done, wherever it still stands as that run left it."""
    done = done_by(lake, run_id)
    wanted, expected = targets.before_run(done)
    columns = [(rows["group_id"].to_pylist(), rows["log_partition"].to_pylist()) for rows in done.values()]
    places = {name: at for names, ats in columns for name, at in zip(names, ats, strict=True)}
    return plan_alterations(groups_at(lake, places), wanted, Strategy("undo", f"run {run_id}"), now, expected)


def as_of(lake: Lake, pattern: str, instant_ms: int, topic: str | None, now: int) -> pa.Table:
    """Set the offsets that groups had at an instant; those they did not have then stay as they are."""
    places = groups_in_history(lake, pattern)
    then = pa.concat_tables([targets.as_they_were(offsets_as_of(lake, instant_ms, name, topic)) for name in places])
    groups = groups_at(lake, places)
    stored = groups.rows("offsets", OFFSET)
    if topic is not None:
        stored = stored.filter(pc.equal(stored["topic"], topic))
    since = stored.filter(pa.array(rows_in(stored, then, KEY) < 0))
    wanted = pa.concat_tables([then, targets.as_they_are(since, "it had no offset then, and keeps this one")])
    return plan_alterations(groups, wanted, Strategy("as_of", to_iso(instant_ms)), now)


def undelete(lake: Lake, pattern: str, topic: str | None, now: int) -> pa.Table:
    """Set the offsets that groups had and that were deleted or expired."""
    places = groups_in_history(lake, pattern)
    wanted = targets.as_they_were(deleted_offsets(lake, [*places], topic))
    return plan_alterations(groups_at(lake, places), wanted, Strategy("undelete"), now)


@dataclass(frozen=True, slots=True)
class Reset:
    """What is asked of `reset`.

    | field    | is |
    |----------|----|
    | group_id | the group; None: the file names the groups |
    | strategy | its name in `alterations`: to_earliest, to_offset, from_file, ... |
    | compute  | one of `lifecycle.strategies`; None of from_file and from_group |
    | scope    | topics and partitions; see `offset_targets.Scope` |
    | at_ms    | of to_datetime and by_duration: the instant, ms since the epoch |
    | source   | of from_file the file, of from_group the group |
    | only_if  | only offsets that are this now |
    """

    group_id: str | None
    strategy: str
    compute: targets.Compute | None
    scope: targets.Scope
    at_ms: int | None = None
    source: str = ""
    only_if: int | None = None

    @property
    def evidence(self) -> str | None:
        """What the new offsets rest on."""
        return self.source or (None if self.at_ms is None else to_iso(self.at_ms))


def reset(lake: Lake, asked: Reset, admin: ClusterAdmin | None, now: int) -> pa.Table:
    """Plan a reset; rows that would change nothing are in it too. `admin`: the cluster that knows where logs end."""
    ends = targets.LogEndLookup(admin, asked.at_ms)
    live = admin is not None
    if asked.strategy == "from_file":
        rows = targets.from_file(asked.source, asked.group_id)
        groups = _groups(lake, {*rows["group_id"].to_pylist()}, live=live)
        wanted = targets.given(rows, ends)
    elif asked.group_id is None:
        raise BadRequest("name the group to reset")
    elif asked.compute is None:
        groups = _groups(lake, {asked.group_id, asked.source}, live=live)
        wanted = targets.from_group(groups, asked.source, asked.group_id)
    else:
        groups = groups_named(lake, asked.group_id)
        if asked.group_id not in groups.found:
            raise BadRequest(f"reset takes one group by its name; {asked.group_id!r} is a pattern")
        wanted = targets.by_strategy(groups, asked.group_id, asked.scope, asked.compute, ends)
    expected = None
    if asked.only_if is not None:
        expected = pa.array([asked.only_if] * wanted.num_rows, pa.int64())
    return plan_alterations(groups, wanted, Strategy(asked.strategy, asked.evidence), now, expected)


def _groups(lake: Lake, names: set[str], *, live: bool) -> GroupSelection:
    """Take groups by name, those that are not there yet too."""
    known = _all_places(lake)
    places = {
        name: known[name] if name in known else place_of_new_group(lake, name, live=live) for name in sorted(names)
    }
    return groups_at(lake, places)


def _all_places(lake: Lake) -> dict[str, int]:
    """Give the log partition of every group that ever committed."""
    rows = lake.query("SELECT DISTINCT group_id, log_partition FROM offset_commits", "offset_commits").to_pylist()
    return {row["group_id"]: row["log_partition"] for row in rows}
