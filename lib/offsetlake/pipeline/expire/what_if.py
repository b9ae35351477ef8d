"""Counts by group what would expire and when, with the configured policy and another one."""

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa

from offsetlake.lake.foreign.guard import state_versions
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.expire.evaluation import Evaluation, evaluated_tables, open_partition, start_evaluation
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.rules.retention import NEVER

_HOUR = 3_600_000
HORIZONS: Mapping[str, int] = {
    "now": 0,
    "in_24_hours": 24 * _HOUR,
    "in_7_days": 7 * 24 * _HOUR,
    "in_30_days": 30 * 24 * _HOUR,
}
"""Times from now in ms until which expirations are counted, if nothing else changes."""


def what_if(
    lake: Lake,
    policy: RetentionPolicy,
    other: RetentionPolicy | None,
    now: int,
    horizons: Mapping[str, int] = HORIZONS,
) -> pa.Table:
    """Return what would expire by group at the time `now`, in ms since the epoch; sorted by group.

    Offsets of groups that do not exist do not expire, and are not counted.

    | Column | Type | Description |
    |---|---|---|
    | group_id, group_type, state | string | The group. |
    | offsets | bigint | The number of stored offsets. |
    | each of `horizons` | bigint | The number of offsets that expire until then. |
    | kept | bigint | The number of offsets that never expire while their group or an open transaction keeps them. |
    | next_expiry_timestamp | bigint | The time of the next expiry of an offset or of the share group in ms, or null. |
    | group_goes | boolean | Whether the group itself is deleted now. |
    | other_now | bigint | The number of offsets that expire now with `other`; null if it is None. |
    """
    present = start_evaluation(lake, state_versions(lake, evaluated_tables(lake, policy)), policy, now)
    changed = None if other is None else replace(present, policy=other)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        parts = threads.map(lambda partition: _of_partition(present, changed, partition, horizons), present.partitions)
        return pa.concat_tables([_schema(horizons).empty_table(), *parts]).sort_by("group_id")


def _schema(horizons: Iterable[str]) -> pa.Schema:
    return pa.schema(
        [
            ("group_id", pa.string()), ("group_type", pa.string()), ("state", pa.string()), ("offsets", pa.int64()),
            *((name, pa.int64()) for name in horizons),
            ("kept", pa.int64()), ("next_expiry_timestamp", pa.int64()), ("group_goes", pa.bool_()),
            ("other_now", pa.int64()),
        ]
    )  # fmt: skip


def _of_partition(
    present: Evaluation, changed: Evaluation | None, partition: int, horizons: Mapping[str, int]
) -> pa.Table:
    evaluated = open_partition(present, partition)
    evaluated_other = None if changed is None else open_partition(changed, partition)
    groups = evaluated.groups.rows
    count = groups.num_rows
    expiring = {name: np.zeros(count, np.int64) for name in horizons}
    kept, following = np.zeros(count, np.int64), np.full(count, NEVER, np.int64)
    for state_file in present.state_files["offsets"].get(partition, []):
        results = evaluated.evaluate(present, state_file).evaluations
        if changed and evaluated_other:
            evaluated_other.evaluate(changed, state_file)
        known = results.group < count
        group, expires_at = results.group[known], results.expires_at[known]
        for name, ahead in horizons.items():
            expired = results.expires[known] if ahead == 0 else expires_at <= present.now + ahead
            expiring[name] += np.bincount(group[expired], minlength=count)
        kept += np.bincount(group[expires_at == NEVER], minlength=count)
        np.minimum.at(following, group, expires_at)
    idle = evaluated.idle_share_groups(present)
    following = np.minimum(following, idle.expires_at)
    columns = {
        "group_id": groups["group_id"],
        "group_type": groups["group_type"],
        "state": groups["state"],
        "offsets": evaluated.stored,
        **expiring,
        "kept": kept,
        "next_expiry_timestamp": pa.array(following, mask=following == NEVER),
        "group_goes": evaluated.deleted_groups(present) | idle.expired(present.now),
        "other_now": pa.nulls(count) if evaluated_other is None else evaluated_other.expired,
    }
    return pa.table(columns).cast(_schema(horizons))
