"""The compaction of some log partitions, as it runs in a Spark task: history and old state files in, new ones out.

Everything that bears on a group stands in one log partition, so each is compacted by itself.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.files import FileChanges, table_schema
from offsetlake.lake.foreign.guard import STATE
from offsetlake.lake.history_files import RecordSource
from offsetlake.lake.lake import Lake
from offsetlake.lake.state_files import StateFile, files_of_groups, read_state_files, rewrite
from offsetlake.queries.history_reduction import deciding_rows
from offsetlake.rules.group_replay import ReplayedGroups, replay_groups
from offsetlake.rules.reduction import KEY, PART, Latest, Reduction, merged

COMPACTED = STATE

_NEWEST_COMMIT = ["log_partition", "group_id", "log_offset"]


@dataclass(frozen=True, slots=True)
class Compaction:
    """What all tasks of one compaction share: new records, and the state files of the tables as the plan pins them.

    Only `tables` are written.
    """

    history: RecordSource
    state_files: dict[str, dict[int, list[StateFile]]]
    tables: Collection[str] = STATE

    @property
    def lake(self) -> Lake:
        """The lake compacted."""
        return self.history.lake


@dataclass(frozen=True, slots=True)
class Reduced:
    """What the new history of some log partitions comes to.

    | field     | is |
    |-----------|----|
    | reduction | its commits, decided and pending |
    | commits   | of each group the newest that counts or makes the group: group_id, log_partition, log_offset |
    | waiting   | what waited for a marker or for other parts before: rows of `offset_commits` |
    """

    reduction: Reduction
    commits: pa.Table | None
    waiting: pa.Table

    def waiting_parts(self) -> pa.Table:
        """Give the parts of commits among what waited."""
        return self.waiting.filter(pc.is_valid(self.waiting["commit_id"]))


def reduced(compaction: Compaction, partitions: Sequence[int]) -> Reduced:
    """Reduce the new history of some log partitions, and what waited for it."""
    history = compaction.history
    waiting = _pending_before(compaction, partitions)
    waiting_parts = waiting.filter(pc.is_valid(waiting["commit_id"]))
    # Only these parts and those that waited for the rest of their commit bear on the new parts. A complete commit has
    # all its parts in one run, or its first part in `waiting`: parts have successive log offsets, so when the first
    # ones were read no record followed them, and none had overwritten their keys.
    markers, new_parts = deciding_rows(history, partitions)
    parts = pa.concat_tables([new_parts, waiting_parts.select(PART)], promote_options="default")
    reduction = Reduction(markers, parts)
    commits = Latest(("group_id",))
    for batch in history.batches("offset_commits", partitions, ~pc.field("superseded")):
        reduction.add(batch)
        commits.add(_made_by(reduction.complete_only(batch)))
    reduction.add(waiting)
    # A commit makes its group when it counts, which parts may do now; one of an open transaction has made it before.
    commits.add(_made_by(reduction.complete_only(waiting_parts)))
    return Reduced(reduction, commits.result(), waiting)


def compact_partitions(compaction: Compaction, partitions: Sequence[int]) -> dict[str, list[FileChanges]]:
    """Compact some log partitions; gives by table what the commit that ends the job has to do."""
    exchanges: dict[str, list[FileChanges]] = {table: [] for table in COMPACTED}
    new = reduced(compaction, partitions)
    decided = new.reduction.decided()
    for partition in partitions:
        if decided is not None and "offsets" in compaction.tables:
            exchanges["offsets"].append(_offsets(compaction, partition, _of(decided, partition)))
        _groups(compaction, partition, new.commits, exchanges)
    if "pending_offsets" in compaction.tables and (new.waiting.num_rows or new.reduction.has_open()):
        _pending(compaction, partitions, still_pending(compaction, partitions, new), exchanges["pending_offsets"])
    return exchanges


def _made_by(records: pa.Table) -> pa.Table:
    return records.filter(pc.equal(records["kind"], "commit")).select(_NEWEST_COMMIT)


def _of(rows: pa.Table, partition: int) -> pa.Table:
    return rows.filter(pc.equal(rows["log_partition"], partition))


def _state_files(compaction: Compaction, table: str, partition: int) -> list[StateFile]:
    return compaction.state_files[table].get(partition, [])


def _pending_before(compaction: Compaction, partitions: Sequence[int]) -> pa.Table:
    """Give what waited for its marker or for other parts before, in the columns of `offset_commits`."""
    of = [
        state_file for partition in partitions for state_file in _state_files(compaction, "pending_offsets", partition)
    ]
    rows = read_state_files(compaction.lake, "pending_offsets", of)
    made = {
        "kind": pc.if_else(pc.is_null(rows["committed_offset"]), "tombstone", "commit"),
        "superseded": pa.repeat(pa.scalar(value=False), rows.num_rows),
        "ingest_run": pa.nulls(rows.num_rows, pa.int64()),
    }
    schema = table_schema("offset_commits")
    columns = [made[name] if name in made else rows[name] for name in schema.names]
    return pa.table(dict(zip(schema.names, columns, strict=True))).cast(_nullable(schema))


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([column.with_nullable(nullable=True) for column in schema])


def _offsets(compaction: Compaction, partition: int, decided: pa.Table) -> FileChanges:
    return rewrite(compaction.lake, "offsets", _state_files(compaction, "offsets", partition), decided, merged)


def replayed_groups(compaction: Compaction, partition: int, commits: pa.Table | None) -> ReplayedGroups:
    """Replay the groups of one log partition that new records or commits (as `Reduced.commits`) are of."""
    records = compaction.history.rows("group_records", [partition])
    if commits is None:
        commits = table_schema("offset_commits").empty_table().select(_NEWEST_COMMIT)
    commits = _of(commits, partition)
    named = {*pc.unique(records["group_id"]).to_pylist(), *commits["group_id"].to_pylist()}
    of = files_of_groups(_state_files(compaction, "groups", partition), named)
    before = read_state_files(compaction.lake, "groups", [file for files, _ in of for file in files])
    return replay_groups(records, commits, before.filter(pc.is_in(before["group_id"], pa.array(named, pa.string()))))


def _groups(
    compaction: Compaction, partition: int, commits: pa.Table | None, exchanges: dict[str, list[FileChanges]]
) -> None:
    """Bring the rows of `groups` and `group_members` of one log partition up to date."""
    tables = [table for table in ("groups", "group_members") if table in compaction.tables]
    replayed = replayed_groups(compaction, partition, commits) if tables else ReplayedGroups()
    if not replayed.group_ids:
        return
    rows = {"groups": replayed.groups, "group_members": replayed.members}
    for table in tables:
        schema = table_schema(table)
        changed = pa.table({"group_id": pa.array(replayed.group_ids, pa.string())})
        combine = partial(replaced_groups, pa.Table.from_pylist(rows[table], schema=schema))
        exchanges[table].append(
            rewrite(compaction.lake, table, _state_files(compaction, table, partition), changed, combine)
        )


def replaced_groups(new: pa.Table, old: pa.Table, changed: pa.Table) -> pa.Table:
    """Replace the rows of the groups changed by their new rows: none, one or several a group."""
    kept = old.filter(pc.invert(pc.is_in(old["group_id"], changed["group_id"])))
    return pa.concat_tables([kept, new.filter(pc.is_in(new["group_id"], changed["group_id"]))])


def still_pending(compaction: Compaction, partitions: Sequence[int], new: Reduced) -> pa.Table | None:
    """Give what is to be in `pending_offsets` of these log partitions; None for nothing."""
    columns = [*KEY, "log_partition", "log_offset"]
    tombstones = compaction.history.batches("offset_commits", partitions, pc.field("kind") == "tombstone", columns)
    waiting_parts = new.waiting_parts()
    waited = waiting_parts.filter(pc.equal(waiting_parts["kind"], "tombstone")).select(columns)
    return new.reduction.pending(chain(tombstones, [waited]))


def _pending(
    compaction: Compaction, partitions: Sequence[int], pending: pa.Table | None, exchanges: list[FileChanges]
) -> None:
    """Replace the rows of `pending_offsets` of these log partitions."""
    for partition in partitions:
        of = _state_files(compaction, "pending_offsets", partition)
        exchange = FileChanges(removed=[state_file.path for state_file in of])
        if pending is not None:
            exchange.added = rewrite(compaction.lake, "pending_offsets", [], _of(pending, partition), _only_new).added
        exchanges.append(exchange)


def _only_new(_old: pa.Table, new: pa.Table) -> pa.Table:
    return new
