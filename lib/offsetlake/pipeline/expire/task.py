"""Evaluates log partitions in a Spark task: reads state files, and writes decisions to `tombstones`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.files import FileChanges, TableFile, table_schema
from offsetlake.lake.history.history_files import ALL_RUNS, HistoryFile, partition_rows
from offsetlake.lake.lake import Lake
from offsetlake.lake.state_files import StateFile, list_state_files, read_state_files
from offsetlake.pipeline.emit.decisions import SELECTION, TOMBSTONE, replaced, standing
from offsetlake.pipeline.expire import idle_share_groups as shares
from offsetlake.pipeline.expire.comparison import compare, oldest_planned
from offsetlake.pipeline.expire.missing_records import with_missing, with_unknown_states
from offsetlake.pipeline.expire.rejections import Rejections
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.rules.reduction import KEY
from offsetlake.rules.retention import (
    CLOCKS,
    NEVER,
    RULES,
    Bools,
    Clock,
    Evaluations,
    GroupFacts,
    Ints,
    Rule,
    evaluate,
    groups_left_with_nothing,
)
from offsetlake.rules.unresolved import Unresolved
from offsetlake.util.row_codes import among

NOTHING_LEFT = "nothing_left"

_EVALUATED = ("offsets", "pending_offsets", "groups", "unresolved_records")

_OF_OFFSETS = (*KEY, "committed_offset", "commit_timestamp", "expire_timestamp", "log_partition", "log_offset")
_OF_PENDING = (*KEY, "log_offset")
_OF_GROUPS = (
    "group_id", "group_type", "state", "protocol_type", "state_timestamp", "subscription", "subscribed_topics",
    "log_partition", "log_offset", "log_timestamp",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What all tasks of an evaluation share: the state files that the plan pins, the policy, and the time in ms.

    `share_updates` are the `newest_updates`; without a policy for share groups there are none. `rejected` are the
    decisions that are not planned, with the columns of `decisions.TOMBSTONE`. `unresolved` is what is unknown in all
    log partitions, and `missing` the ends of what the log lacks of each: usually nothing.
    """

    lake: Lake
    state_files: dict[str, dict[int, list[StateFile]]]
    policy: RetentionPolicy
    now: int
    share_updates: pa.Table
    deleted_topics: tuple[str, ...]
    rejected: pa.Table
    unresolved: Unresolved
    missing: Mapping[int, int]

    @property
    def partitions(self) -> list[int]:
        """The log partitions with groups or offsets."""
        return sorted({partition for table in ("offsets", "groups") for partition in self.state_files[table]})


def evaluated_tables(lake: Lake, policy: RetentionPolicy) -> tuple[str, ...]:
    """Return the state tables that an evaluation reads; a lake of an older version lacks some."""
    tables = _EVALUATED if policy.share_idle_ms is None else (*_EVALUATED, shares.SHARE_PARTITIONS)
    return tuple(table for table in tables if table in lake.tables())


def start_evaluation(
    lake: Lake,
    versions: dict[str, int],
    policy: RetentionPolicy,
    now: int,
    deleted_topics: Sequence[str] = (),
    rejected: pa.Table | None = None,
) -> Evaluation:
    """Return an evaluation of the `evaluated_tables` at these Delta versions."""
    tables = evaluated_tables(lake, policy)
    files = {table: list_state_files(lake, table, versions.get(table, 0)) for table in tables}
    updates = shares.newest_updates(lake, files.pop(shares.SHARE_PARTITIONS, {}).values())
    rejected = SELECTION.empty_table() if rejected is None else rejected
    stored = read_state_files(lake, "unresolved_records", chain(*files.get("unresolved_records", {}).values()))
    unresolved, missing = with_missing(lake, stored)
    return Evaluation(lake, files, policy, now, updates, tuple(deleted_topics), rejected, unresolved, missing)


@dataclass(slots=True)
class EvaluatedFile:
    """The offsets of a state file (`_OF_OFFSETS`), their evaluations, and the retention of each in ms."""

    offsets: pa.Table
    evaluations: Evaluations
    retention: npt.NDArray[np.int64]


@dataclass(slots=True)
class EvaluatedPartition:
    """The groups of one log partition, with counts that each evaluated state file adds to."""

    groups: GroupFacts
    pending: pa.Table
    rejections: Rejections
    stored: npt.NDArray[np.int64] = field(init=False)
    expired: npt.NDArray[np.int64] = field(init=False)
    newest: npt.NDArray[np.int64] = field(init=False)  # the highest log offset of the group and its offsets; -1 if none

    def __post_init__(self) -> None:
        count = self.groups.rows.num_rows
        self.stored, self.expired = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.newest = pc.fill_null(self.groups.rows["log_offset"], -1).to_numpy().copy()

    def evaluate(self, evaluation: Evaluation, state_file: StateFile) -> EvaluatedFile:
        """Evaluate the offsets of one state file."""
        offsets = read_state_files(evaluation.lake, "offsets", [state_file], _OF_OFFSETS)
        retention = evaluation.policy.retention(offsets)
        result = evaluate(
            offsets,
            self.groups,
            self.pending,
            evaluation.now,
            retention,
            evaluation.deleted_topics,
            evaluation.unresolved,
        )
        decisions = offsets.select(KEY).append_column("judged_offset", offsets["log_offset"])
        expiring = np.flatnonzero(result.expires)
        result.expires[expiring[self.rejections.matches(decisions.take(expiring))]] = False
        count = len(self.stored)
        self.stored += np.bincount(result.group, minlength=count + 1)[:count]
        self.expired += np.bincount(result.group[result.expires], minlength=count + 1)[:count]
        has_group = result.group < count
        np.maximum.at(self.newest, result.group[has_group], offsets["log_offset"].to_numpy()[has_group])
        return EvaluatedFile(offsets, result, retention)

    def deleted_groups(self, evaluation: Evaluation) -> npt.NDArray[np.bool_]:
        """Return for each group whether it is deleted, after all state files were evaluated."""
        return groups_left_with_nothing(self.groups, self.stored, self.expired, self.pending, evaluation.unresolved)

    def idle_share_groups(self, evaluation: Evaluation) -> shares.IdleShareGroups:
        """Return when share groups expire, after all state files were evaluated."""
        idle_ms = evaluation.policy.share_idle_ms
        return shares.idle_share_groups(
            self.groups, evaluation.share_updates, self.stored, self.pending, idle_ms, evaluation.unresolved
        )


def open_partition(evaluation: Evaluation, partition: int) -> EvaluatedPartition:
    """Read the groups and pending offsets of one log partition."""

    def rows(table: str, columns: Sequence[str]) -> pa.Table:
        return read_state_files(evaluation.lake, table, evaluation.state_files[table].get(partition, []), columns)

    facts = GroupFacts(with_unknown_states(rows("groups", _OF_GROUPS), evaluation.missing.get(partition)))
    return EvaluatedPartition(facts, rows("pending_offsets", _OF_PENDING), Rejections(evaluation.rejected))


class Decided(NamedTuple):
    """The decisions of earlier runs: the files that may contain them, and the oldest run that matters."""

    files: list[HistoryFile]
    from_run: int


@dataclass(frozen=True, slots=True)
class Planned:
    """The result of a task.

    | Field          | Description |
    |----------------|-------------|
    | changes        | The file of decisions. |
    | counts         | The number of offsets and of decisions by kind. |
    | oldest_planned | The oldest run with a tombstone that is still planned; ALL_RUNS if there is none. |
    | next_change    | The first instant at which the rule of an offset or group changes if only time passes. |
    | newest_commit  | The newest timestamp of a commit, in ms since the epoch; 0 if there is none. |
    | rejected       | The rejections that have kept an offset or a group. |
    """

    changes: FileChanges
    counts: Counter[str]
    oldest_planned: int
    next_change: int
    newest_commit: int
    rejected: pa.Table


def plan_tombstones(evaluation: Evaluation, run_id: int, decided: Decided, partitions: Sequence[int]) -> Planned:
    """Evaluate some log partitions, and write the decisions to a file.

    Tombstones that `decided` contains as planned on the same evidence, or as emitted, are not planned again. Planned
    tombstones that do not apply any more are withdrawn, or gone if the offset or group does not exist.
    """
    file = TableFile(evaluation.lake, "tombstones")
    counts: Counter[str] = Counter()
    oldest, next_change, newest_commit = ALL_RUNS, NEVER, 0
    rejected = [evaluation.rejected.slice(0, 0)]
    is_recent = pc.field("run_id") >= decided.from_run
    for partition in partitions:
        groups = open_partition(evaluation, partition)
        rows = partition_rows(evaluation.lake, "tombstones", decided.files, [partition], is_recent)
        previous = standing(rows, TOMBSTONE, ("planned", "emitted")).cast(table_schema("tombstones"))
        exists = _about_existing_groups(previous, groups.groups)
        expiring = [table_schema("tombstones").empty_table()]
        for state_file in evaluation.state_files["offsets"].get(partition, []):
            evaluated = groups.evaluate(evaluation, state_file)
            rules, times = np.unique(evaluated.evaluations.rule, return_counts=True)
            counts.update({RULES[rule]: int(count) for rule, count in zip(rules, times, strict=True)})
            expiring.append(_offset_decisions(evaluation, run_id, groups.groups, evaluated))
            exists |= among(previous, evaluated.offsets, KEY)
            next_change = min(next_change, evaluated.evaluations.next_change)
            newest_commit = max(newest_commit, pc.max(evaluated.offsets["commit_timestamp"]).as_py() or 0)
        idle = groups.idle_share_groups(evaluation)
        expiring.append(_group_decisions(evaluation, run_id, groups, NOTHING_LEFT, groups.deleted_groups(evaluation)))
        counts[NOTHING_LEFT] += expiring[-1].num_rows
        if evaluation.policy.share_idle_ms is not None:
            expired = idle.expired(evaluation.now)
            expiring.append(_group_decisions(evaluation, run_id, groups, shares.SHARE_IDLE, expired, idle.since))
            counts[shares.SHARE_IDLE] += expiring[-1].num_rows
        next_change = min(next_change, idle.next_change(evaluation.now))
        rejected += groups.rejections.found
        new, ended = compare(pa.concat_tables(expiring), previous, exists)
        file.write(new)
        counts["planned"] += new.num_rows
        oldest = min(oldest, oldest_planned(new, previous, ended))
        for outcome, decisions in ended.items():
            file.write(replaced(decisions, run_id=run_id, outcome=outcome, judged_timestamp=evaluation.now))
            counts[outcome] += decisions.num_rows
    changes = FileChanges(added=file.close())
    return Planned(changes, counts, oldest, next_change, newest_commit, pa.concat_tables(rejected))


def _about_existing_groups(decisions: pa.Table, groups: GroupFacts) -> Bools:
    """Return which decisions are about a group itself that still exists."""
    exists = pc.is_in(decisions["group_id"], groups.rows["group_id"].combine_chunks())
    result: Bools = pc.and_(exists, pc.is_null(decisions["topic"])).to_numpy()
    return result


def _offset_decisions(evaluation: Evaluation, run_id: int, groups: GroupFacts, evaluated: EvaluatedFile) -> pa.Table:
    """Return rows of `tombstones` for the expired offsets of a state file."""
    expired = np.flatnonzero(evaluated.evaluations.expires)
    offsets, results = evaluated.offsets.take(expired), evaluated.evaluations
    rule, clock, group = results.rule[expired], results.clock[expired], results.group[expired]
    deleted = rule == Rule.TOPIC_DELETED
    by_policy = ~deleted & (clock != Clock.EXPIRE_TIMESTAMP)
    columns = {
        **{name: offsets[name] for name in (*KEY, "committed_offset", "log_partition")},
        "judged_offset": offsets["log_offset"],
        "rule": pa.array(np.array(RULES)[rule]),
        "clock": pa.array(np.array(CLOCKS)[clock], mask=deleted),
        "clock_timestamp": pa.array(results.clock_ms[expired], mask=deleted),
        "retention_ms": pa.array(evaluated.retention[expired], mask=~by_policy),
        **_of_group(groups, group),
    }
    return _rows(evaluation, run_id, len(expired), columns)


def _group_decisions(
    evaluation: Evaluation,
    run_id: int,
    groups: EvaluatedPartition,
    rule: str,
    deleted: Bools,
    since: Ints | None = None,
) -> pa.Table:
    """Return rows of `tombstones` for groups; `since` is the value of their clock, None if age did not matter."""
    rows, chosen = groups.groups.rows, np.flatnonzero(deleted)
    columns = {
        **{name: rows[name].take(chosen) for name in ("group_id", "log_partition")},
        "judged_offset": pa.array(groups.newest[chosen]),
        "rule": pa.repeat(rule, len(chosen)),
        **_of_group(groups.groups, chosen),
    }
    if since is not None:
        idle_ms = pa.scalar(evaluation.policy.share_idle_ms, pa.int64())
        columns |= {"clock": pa.repeat(shares.ACTIVITY, len(chosen)), "clock_timestamp": pa.array(since[chosen])}
        columns |= {"retention_ms": pa.repeat(idle_ms, len(chosen))}
    decisions = _rows(evaluation, run_id, len(chosen), columns)
    return decisions.filter(pa.array(~groups.rejections.matches(decisions)))


def _of_group(groups: GroupFacts, group: npt.NDArray[np.int64]) -> dict[str, pa.ChunkedArray]:
    none = group == groups.rows.num_rows
    rows = pa.array(group, mask=none)
    return {name: groups.rows[name].take(rows) for name in ("group_type", "state")}


def _rows(evaluation: Evaluation, run_id: int, count: int, columns: dict[str, pa.Array]) -> pa.Table:
    constant = {
        "run_id": pa.repeat(pa.scalar(run_id, pa.int64()), count),
        "outcome": pa.repeat("planned", count),
        "judged_timestamp": pa.repeat(pa.scalar(evaluation.now, pa.int64()), count),
    }
    values = constant | columns
    schema = table_schema("tombstones")
    nulls = {column.name: pa.nulls(count, column.type) for column in schema if column.name not in values}
    return pa.table({name: (values | nulls)[name] for name in schema.names}).cast(schema)
