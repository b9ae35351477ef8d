"""Evaluates log partitions in a Spark task, and writes the decisions to `tombstones`."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.files import FileChanges, TableFile, table_schema
from offsetlake.lake.history.history_files import ALL_RUNS, HistoryFile, partition_rows
from offsetlake.pipeline.emit.decisions import TOMBSTONE, replaced, standing
from offsetlake.pipeline.expire import idle_share_groups as shares
from offsetlake.pipeline.expire.comparison import compare, oldest_planned
from offsetlake.pipeline.expire.evaluation import EvaluatedFile, EvaluatedPartition, Evaluation, open_partition
from offsetlake.rules.reduction import KEY
from offsetlake.rules.retention import (
    CLOCKS,
    NEVER,
    RULES,
    Bools,
    Clock,
    GroupFacts,
    Ints,
    Rule,
)
from offsetlake.util.row_codes import among

NOTHING_LEFT = "nothing_left"


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
