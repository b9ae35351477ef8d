"""What retention would take: the evaluations of `expire` counted by group, for the present policy and another."""

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa

from offsetlake.lake.foreign.guard import state_versions
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.expire.task import JUDGED, Judgement, judgement, open_partition
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.rules.retention import NEVER

_HOUR = 3_600_000
HORIZONS: Mapping[str, int] = {
    "now": 0,
    "in_24_hours": 24 * _HOUR,
    "in_7_days": 7 * 24 * _HOUR,
    "in_30_days": 30 * 24 * _HOUR,
}
"""How far ahead is looked, in ms: what goes until then if nothing else happens."""


def what_if(
    lake: Lake,
    policy: RetentionPolicy,
    other: RetentionPolicy | None,
    now: int,
    horizons: Mapping[str, int] = HORIZONS,
) -> pa.Table:
    """Tell by group what goes and when, at the instant `now`, ms since the epoch; sorted by group.

    Offsets behind the tombstone of their group stay, and are in no row.

    | column     | is |
    |------------|----|
    | group_id, group_type, state | of the group |
    | offsets    | how many it has stored |
    | those of `horizons` | how many of them `policy` takes until then, counted together |
    | kept       | how many stay whatever their age: their group or an open transaction keeps them |
    | next_expiry_timestamp | when the next one goes, ms; null if none will |
    | group_goes | whether the group itself goes now |
    | other_now  | how many `other` would take now; null where none is given |
    """
    present = judgement(lake, state_versions(lake, JUDGED), policy, now)
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
    present: Judgement, changed: Judgement | None, partition: int, horizons: Mapping[str, int]
) -> pa.Table:
    judged = open_partition(present, partition)
    judged_too = None if changed is None else open_partition(changed, partition)
    groups = judged.groups.rows
    count = groups.num_rows
    goes = {name: np.zeros(count, np.int64) for name in horizons}
    kept, following = np.zeros(count, np.int64), np.full(count, NEVER, np.int64)
    for state_file in present.state_files["offsets"].get(partition, []):
        found = judged.judged(present, state_file).evaluations
        if changed and judged_too:
            judged_too.judged(changed, state_file)
        known = found.group < count
        group, expires_at = found.group[known], found.expires_at[known]
        for name, ahead in horizons.items():
            going = found.expires[known] if ahead == 0 else expires_at <= present.now + ahead
            goes[name] += np.bincount(group[going], minlength=count)
        kept += np.bincount(group[expires_at == NEVER], minlength=count)
        np.minimum.at(following, group, expires_at)
    columns = {
        "group_id": groups["group_id"],
        "group_type": groups["group_type"],
        "state": groups["state"],
        "offsets": judged.stored,
        **goes,
        "kept": kept,
        "next_expiry_timestamp": pa.array(following, mask=following == NEVER),
        "group_goes": judged.groups_that_go(),
        "other_now": pa.nulls(count) if judged_too is None else judged_too.expired,
    }
    return pa.table(columns).cast(_schema(horizons))
