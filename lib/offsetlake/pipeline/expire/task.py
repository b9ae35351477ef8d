"""The judgement of some log partitions, as it runs in a Spark task: state files in, decisions out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.files import FileChanges, TableFile, table_schema
from offsetlake.lake.history_files import HistoryFile, partition_rows
from offsetlake.lake.lake import Lake
from offsetlake.lake.state_files import StateFile, list_state_files, read_state_files
from offsetlake.pipeline.emit.decisions import BY_HAND, TOMBSTONE, replaced, standing
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.rules.reduction import KEY
from offsetlake.rules.retention import (
    CLOCKS,
    RULES,
    Bools,
    Clock,
    Evaluations,
    GroupFacts,
    Rule,
    evaluate,
    groups_left_with_nothing,
)
from offsetlake.util.row_codes import among, same_codes

JUDGED = ("offsets", "pending_offsets", "groups")
NOTHING_LEFT = "nothing_left"

_OF_OFFSETS = (*KEY, "committed_offset", "commit_timestamp", "expire_timestamp", "log_partition", "log_offset")
_OF_PENDING = (*KEY, "log_offset")
_OF_GROUPS = (
    "group_id", "group_type", "state", "protocol_type", "state_timestamp", "subscription", "subscribed_topics",
    "log_partition", "log_offset",
)  # fmt: skip
_EVIDENCE = ("rule", "retention_ms")


@dataclass(frozen=True, slots=True)
class Judgement:
    """What all tasks of one judgement share. `now` is ms since the epoch, `state_files` are those of the plan."""

    lake: Lake
    state_files: dict[str, dict[int, list[StateFile]]]
    policy: RetentionPolicy
    now: int
    deleted_topics: tuple[str, ...] = ()

    @property
    def partitions(self) -> list[int]:
        """Log partitions that have groups or offsets."""
        return sorted({partition for table in ("offsets", "groups") for partition in self.state_files[table]})


def judgement(
    lake: Lake, versions: dict[str, int], policy: RetentionPolicy, now: int, deleted_topics: Sequence[str] = ()
) -> Judgement:
    """Judge the tables JUDGED at these Delta versions."""
    of = {table: list_state_files(lake, table, versions[table]) for table in JUDGED}
    return Judgement(lake, of, policy, now, tuple(deleted_topics))


@dataclass(slots=True)
class JudgedFile:
    """Offsets of one state file, `_OF_OFFSETS`, their evaluations, and the retention in ms that held for each."""

    offsets: pa.Table
    evaluations: Evaluations
    retention: npt.NDArray[np.int64]


@dataclass(slots=True)
class JudgedPartition:
    """The groups of one log partition, and while its state files are read, what is counted of each group."""

    groups: GroupFacts
    pending: pa.Table
    stored: npt.NDArray[np.int64] = field(init=False)
    expired: npt.NDArray[np.int64] = field(init=False)
    newest: npt.NDArray[np.int64] = field(init=False)  # log offset of anything of the group, -1 = none

    def __post_init__(self) -> None:
        count = self.groups.rows.num_rows
        self.stored, self.expired = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.newest = pc.fill_null(self.groups.rows["log_offset"], -1).to_numpy().copy()

    def judged(self, of: Judgement, state_file: StateFile) -> JudgedFile:
        """Judge the offsets of one state file."""
        offsets = read_state_files(of.lake, "offsets", [state_file], _OF_OFFSETS)
        retention = of.policy.retention(offsets)
        found = evaluate(offsets, self.groups, self.pending, of.now, retention, of.deleted_topics)
        count = len(self.stored)
        self.stored += np.bincount(found.group, minlength=count + 1)[:count]
        self.expired += np.bincount(found.group[found.expires], minlength=count + 1)[:count]
        has_group = found.group < count
        np.maximum.at(self.newest, found.group[has_group], offsets["log_offset"].to_numpy()[has_group])
        return JudgedFile(offsets, found, retention)

    def groups_that_go(self) -> npt.NDArray[np.bool_]:
        """Tell of each group whether nothing is left of it, once all state files have been read."""
        return groups_left_with_nothing(self.groups, self.stored, self.expired, self.pending)


def open_partition(of: Judgement, partition: int) -> JudgedPartition:
    """Read the groups and pending offsets of one log partition."""

    def rows(table: str, columns: Sequence[str]) -> pa.Table:
        return read_state_files(of.lake, table, of.state_files[table].get(partition, []), columns)

    return JudgedPartition(GroupFacts(rows("groups", _OF_GROUPS)), rows("pending_offsets", _OF_PENDING))


def plan_tombstones(
    of: Judgement, run_id: int, decided: list[HistoryFile], partitions: Sequence[int]
) -> tuple[FileChanges, Counter[str]]:
    """Judge some log partitions; gives the file of decisions, and how often each rule decided.

    What the files `decided` of `tombstones` hold as planned, on the same evidence, or as emitted, is not planned again;
    what they hold as planned and no longer holds is withdrawn, or gone where there is no such offset or group any more.
    """
    file = TableFile(of.lake, "tombstones")
    counts: Counter[str] = Counter()
    for partition in partitions:
        judged = open_partition(of, partition)
        rows = partition_rows(of.lake, "tombstones", decided, [partition])
        before = standing(rows, TOMBSTONE, ("planned", "emitted"))
        there = _about_groups_there(before, judged.groups)
        going = [table_schema("tombstones").empty_table()]
        for state_file in of.state_files["offsets"].get(partition, []):
            found = judged.judged(of, state_file)
            rules, times = np.unique(found.evaluations.rule, return_counts=True)
            counts.update({RULES[rule]: int(count) for rule, count in zip(rules, times, strict=True)})
            going.append(_decisions(of, run_id, judged.groups, found))
            there |= among(before, found.offsets, KEY)
        going.append(_groups_gone(of, run_id, partition, judged))
        counts[NOTHING_LEFT] += going[-1].num_rows
        new, over = _compared(pa.concat_tables(going), before, there)
        file.write(new)
        counts["planned"] += new.num_rows
        for outcome, ended in over.items():
            file.write(replaced(ended, run_id=run_id, outcome=outcome, judged_timestamp=of.now))
            counts[outcome] += ended.num_rows
    return FileChanges(added=file.close()), counts


def _about_groups_there(decisions: pa.Table, groups: GroupFacts) -> Bools:
    """Tell which decisions are about a group itself, and about one that is there."""
    there = pc.is_in(decisions["group_id"], groups.rows["group_id"].combine_chunks())
    found: Bools = pc.and_(there, pc.is_null(decisions["topic"])).to_numpy()
    return found


def _compared(going: pa.Table, before: pa.Table, there: Bools) -> tuple[pa.Table, dict[str, pa.Table]]:
    """Give what of `going` is to be planned, and what of `before` was planned and stands no longer, by outcome.

    `there` tells of what each of `before` decided whether it is still there. What a person planned stays planned.
    """
    both = pa.concat_tables([going, before])
    planned = pc.equal(before["outcome"], "planned").to_numpy()
    by_hand = pc.equal(before["rule"], BY_HAND).to_numpy()
    mine, theirs = np.split(same_codes(both, TOMBSTONE), [going.num_rows])
    mine_exactly, theirs_exactly = np.split(same_codes(both, (*TOMBSTONE, *_EVIDENCE)), [going.num_rows])
    known = np.isin(mine, theirs[~planned | by_hand]) | np.isin(mine_exactly, theirs_exactly[planned])
    over = {"withdrawn": planned & there & ~by_hand & ~np.isin(theirs, mine), "gone": planned & ~there}
    return going.filter(pa.array(~known)), {outcome: before.filter(pa.array(rows)) for outcome, rows in over.items()}


def _decisions(of: Judgement, run_id: int, groups: GroupFacts, judged: JudgedFile) -> pa.Table:
    """Make the rows of `tombstones` for the offsets of a state file that go."""
    going = np.flatnonzero(judged.evaluations.expires)
    offsets, found = judged.offsets.take(going), judged.evaluations
    rule, clock, group = found.rule[going], found.clock[going], found.group[going]
    deleted = rule == Rule.TOPIC_DELETED
    by_policy = ~deleted & (clock != Clock.EXPIRE_TIMESTAMP)
    columns = {
        **{name: offsets[name] for name in (*KEY, "committed_offset", "log_partition")},
        "judged_offset": offsets["log_offset"],
        "rule": pa.array(np.array(RULES)[rule]),
        "clock": pa.array(np.array(CLOCKS)[clock], mask=deleted),
        "clock_timestamp": pa.array(found.clock_ms[going], mask=deleted),
        "retention_ms": pa.array(judged.retention[going], mask=~by_policy),
        **_of_group(groups, group),
    }
    return _rows(of, run_id, len(going), columns)


def _groups_gone(of: Judgement, run_id: int, partition: int, judged: JudgedPartition) -> pa.Table:
    going = np.flatnonzero(judged.groups_that_go())
    columns = {
        "group_id": judged.groups.rows["group_id"].take(going),
        "log_partition": pa.array(np.full(len(going), partition, np.int32)),
        "judged_offset": pa.array(judged.newest[going]),
        "rule": pa.array([NOTHING_LEFT] * len(going), pa.string()),
        **_of_group(judged.groups, going),
    }
    return _rows(of, run_id, len(going), columns)


def _of_group(groups: GroupFacts, group: npt.NDArray[np.int64]) -> dict[str, pa.ChunkedArray]:
    none = group == groups.rows.num_rows
    rows = pa.array(group, mask=none)
    return {name: groups.rows[name].take(rows) for name in ("group_type", "state")}


def _rows(of: Judgement, run_id: int, count: int, columns: dict[str, pa.Array]) -> pa.Table:
    constant = {
        "run_id": pa.repeat(pa.scalar(run_id, pa.int64()), count),
        "outcome": pa.repeat("planned", count),
        "judged_timestamp": pa.repeat(pa.scalar(of.now, pa.int64()), count),
    }
    made = constant | columns
    schema = table_schema("tombstones")
    nulls = {column.name: pa.nulls(count, column.type) for column in schema if column.name not in made}
    return pa.table({name: (made | nulls)[name] for name in schema.names}).cast(schema)
