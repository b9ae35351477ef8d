"""The evaluation of the retention rules for the offsets and groups of state files; it writes nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.lake import Lake
from offsetlake.lake.state_files import StateFile, list_state_files, read_state_files
from offsetlake.pipeline.emit.decisions import SELECTION
from offsetlake.pipeline.expire import idle_share_groups as shares
from offsetlake.pipeline.expire.missing_records import with_missing, with_unknown_states
from offsetlake.pipeline.expire.rejections import Rejections
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.rules.reduction import KEY
from offsetlake.rules.retention import Evaluations, GroupFacts, evaluate, groups_left_with_nothing
from offsetlake.rules.unresolved import Unresolved

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
