"""Counts what expires with any retention policy, from the number of stored offsets by group, topic and time.

An evaluation reads every offset, which takes seconds for tens of millions. Between two evaluations with the same tables
only the retention times differ, so the offsets of a group and topic whose clocks are in the same unit of time are
counted once, and a policy is applied to these counts. Its retention times must be multiples of the unit, and the time
of the evaluation too. The unit is an hour, or less if a configured retention time is not a number of hours.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import gcd

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.lake.foreign.guard import state_versions
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.expire.evaluation import Evaluation, evaluated_tables, open_partition, start_evaluation
from offsetlake.rules.policy import RetentionPolicy, like
from offsetlake.rules.retention import NEVER, Clock, groups_left_with_nothing
from offsetlake.util.times import to_duration

HOUR_MS = 3_600_000
_KEPT = np.iinfo(np.int64).max
"""The time of offsets that never expire while their group or an open transaction keeps them."""
_NO_RETENTION = RetentionPolicy(0)

_Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class OffsetAges:
    """The counted offsets: an element of each array for each group, topic, clock and time.

    | Field    | Description |
    |----------|-------------|
    | unit_ms  | The unit of time. |
    | groups   | The groups by name: group_id, group_type, state, and offsets, the number of stored ones |
    | goes     | Whether each group is deleted if all of its offsets expire |
    | topics   | The names of the topics |
    | group, topic | The row of `groups`, and the number of the topic |
    | time     | The first number of units since the epoch that is not before the clock; _KEPT |
    | explicit | Whether the clock is the time at which the offsets expire, whatever the policy says |
    | count    | The number of offsets |
    """

    unit_ms: int
    groups: pa.Table
    goes: npt.NDArray[np.bool_]
    topics: pa.StringArray
    group: _Int32
    topic: _Int32
    time: npt.NDArray[np.int64]
    explicit: npt.NDArray[np.bool_]
    count: _Int32

    def expired(self, policy: RetentionPolicy, now: int) -> npt.NDArray[np.int64]:
        """Return for each group the number of offsets that are expired at a time with a policy.

        Args:
            policy: The policy; that of share groups is not applied.
            now: In ms since the epoch, a multiple of the unit.

        Raises:
            BadRequest: A retention time of the policy is not a multiple of the unit.

        """
        retention = np.full(len(self.count), self._units(policy.default_ms), np.int64)
        names, topics = self.groups["group_id"], pa.chunked_array([self.topics])
        for override in reversed(policy.overrides):
            matches = like(names, override.group)[self.group] & like(topics, override.topic)[self.topic]
            retention[matches] = self._units(override.retention_ms)
        retention[self.explicit] = 0
        over = (self.time != _KEPT) & (self.time <= now // self.unit_ms - retention)
        counts = np.bincount(self.group[over], weights=self.count[over], minlength=self.groups.num_rows)
        return counts.astype(np.int64)

    def deleted(self, expired: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which groups are deleted after these numbers of their offsets have expired."""
        deleted: npt.NDArray[np.bool_] = self.goes & (expired == self.groups["offsets"].to_numpy())
        return deleted

    def _units(self, duration_ms: int) -> int:
        if duration_ms % self.unit_ms:
            given, unit = to_duration(duration_ms), to_duration(self.unit_ms)
            raise BadRequest(f"Invalid retention {given}: what-if needs a multiple of {unit}, such as 3d or 36h.")
        return duration_ms // self.unit_ms


def unit_of(policy: RetentionPolicy) -> int:
    """Return the largest unit in ms, at most an hour, of which the retention times of a policy are multiples."""
    return gcd(HOUR_MS, policy.default_ms, *(override.retention_ms for override in policy.overrides))


def offset_ages(lake: Lake, unit_ms: int) -> OffsetAges:
    """Count the stored offsets of a lake by units of time; raise TableChanged if another program changed a table."""
    evaluation = start_evaluation(lake, state_versions(lake, evaluated_tables(lake, _NO_RETENTION)), _NO_RETENTION, 0)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        parts = [*threads.map(partial(_of_partition, evaluation, unit_ms), evaluation.partitions)]
    groups = pa.concat_tables([_GROUPS.empty_table(), *(part for part, _ in parts)])
    counted = pa.concat_tables([_COUNTED.empty_table(), *(part for _, part in parts)])
    topic = counted["topic"].combine_chunks().dictionary_encode()
    order = pc.sort_indices(groups, [("group_id", "ascending")])
    rows = np.empty(groups.num_rows, np.int32)
    rows[order.to_numpy()] = np.arange(groups.num_rows, dtype=np.int32)
    starts = np.cumsum([0, *(part.num_rows for part, _ in parts)])[:-1]
    first = np.repeat(starts, [part.num_rows for _, part in parts])
    groups = groups.take(order)
    return OffsetAges(
        unit_ms,
        groups.drop_columns(["goes"]),
        groups["goes"].to_numpy(),
        topic.dictionary,
        rows[counted["group"].to_numpy() + first],
        topic.indices.to_numpy(),
        counted["time"].to_numpy(),
        counted["explicit"].to_numpy(),
        counted["count"].to_numpy(),
    )


_GROUPS = pa.schema(
    [
        ("group_id", pa.string()), ("group_type", pa.string()), ("state", pa.string()), ("offsets", pa.int64()),
        ("goes", pa.bool_()),
    ]
)  # fmt: skip
_BY = [("group", pa.int32()), ("topic", pa.string()), ("time", pa.int64()), ("explicit", pa.bool_())]
_COUNTED = pa.schema([*_BY, ("count", pa.int32())])


def _of_partition(evaluation: Evaluation, unit_ms: int, partition: int) -> tuple[pa.Table, pa.Table]:
    """Return the groups of a log partition (_GROUPS), and the counts of their offsets (_COUNTED)."""
    evaluated = open_partition(evaluation, partition)
    counts = [_COUNTED.empty_table()]
    groups = evaluated.groups.rows
    for state_file in evaluation.state_files["offsets"].get(partition, []):
        file = evaluated.evaluate(evaluation, state_file)
        results = file.evaluations
        times = np.where(results.expires_at == NEVER, _KEPT, -(-results.clock_ms // unit_ms))
        columns = {
            "group": results.group.astype(np.int32),
            "topic": file.offsets["topic"],
            "time": times,
            "explicit": results.clock == Clock.EXPIRE_TIMESTAMP,
        }
        known = pa.table(columns).filter(pa.array(results.group < groups.num_rows))
        of_file = known.group_by([name for name, _ in _BY]).aggregate([([], "count_all")])
        counts.append(of_file.rename_columns(_COUNTED.names).cast(_COUNTED))
    goes = groups_left_with_nothing(
        evaluated.groups, evaluated.stored, evaluated.stored, evaluated.pending, evaluation.unresolved
    )
    columns = {name: groups[name] for name in ("group_id", "group_type", "state")}
    of_groups = pa.table({**columns, "offsets": evaluated.stored, "goes": goes}).cast(_GROUPS)
    return of_groups, pa.concat_tables(counts)
