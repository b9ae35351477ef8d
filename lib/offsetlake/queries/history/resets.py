"""Which commits are resets, by the rules of the view `changes`: a tool or a run of offsetlake made them, no member."""

import numpy as np
import numpy.typing as npt

from offsetlake.lake.lake import Lake
from offsetlake.util.row_codes import Ints

REPAIR = "repair"
"""The strategy of `alterations` that restores former offsets, which is no reset."""

_END = 2**63 - 1
_MEMBERS = """
  SELECT log_partition, log_offset, record_name = 'GroupMetadata' AS is_classic,
    CASE record_name WHEN 'GroupMetadata' THEN 'classic' ELSE 'member ' || member_id END AS member,
    CASE record_name
      WHEN 'GroupMetadata'
      THEN NOT coalesce(value LIKE '%"members":[]%' AND value NOT LIKE '%"generation":0,%', FALSE)
      ELSE kind = 'value'
    END AS is_there
  FROM group_records
  WHERE {where} AND record_name IN ('GroupMetadata', 'ConsumerGroupMemberMetadata', 'StreamsGroupMemberMetadata')
  ORDER BY log_partition, log_offset"""

Flags = npt.NDArray[np.bool_]


def are_resets(by_us: Flags, was_deleted: Flags, by_nobody: Flags, is_transactional: Flags, is_empty: Flags) -> Flags:
    """Return which commits are resets: those of a run of offsetlake, and plain ones of a group without members.

    Args:
        by_us: Whether a run of offsetlake set the offset, other than by REPAIR.
        was_deleted: Whether a tombstone had deleted the offset.
        by_nobody: Whether no run wrote the commit.
        is_transactional: Whether it is a commit of a transaction.
        is_empty: Whether the group, which had had members, had none (`in_empty_periods`).
    """
    return (by_us & ~was_deleted) | (by_nobody & ~is_transactional & is_empty)


def in_empty_periods(lake: Lake, where: str, log_partition: Ints, log_offset: Ints) -> Flags:
    """Return for some places in the log whether a group that had had members had none there.

    `where` is the SQL condition on the group records of the group.
    """
    flags = np.zeros(len(log_offset), np.bool_)
    partitions, starts, ends = _empty_periods(lake, where)
    for partition in np.unique(partitions):
        of_partition = partitions == partition
        begun = np.searchsorted(starts[of_partition], log_offset) - 1
        is_inside = (begun >= 0) & (log_offset < ends[of_partition][begun])
        flags |= is_inside & (log_partition == partition)
    return flags


def _empty_periods(lake: Lake, where: str) -> tuple[Ints, Ints, Ints]:
    """Return log partition, first log offset and end of the periods without members, by the rules of `empty_periods`.

    The engine takes longer to plan this view than to read the records of a group.
    """
    records = lake.query(_MEMBERS.format(where=where), "group_records")
    partition, offset, is_there = (records[name].to_numpy() for name in ("log_partition", "log_offset", "is_there"))
    members_of_group = records["member"].combine_chunks().dictionary_encode("encode")
    member = members_of_group.indices.to_numpy() + partition.astype(np.int64) * len(members_of_group.dictionary)
    order = np.argsort(member, kind="stable")
    was_there = np.roll(is_there[order], 1) & (np.diff(member[order], prepend=-1) == 0)
    joined = np.zeros(len(order), np.int64)
    joined[order] = is_there[order].astype(np.int64) - was_there
    is_classic = records["is_classic"].to_numpy()
    starts = np.flatnonzero(np.diff(partition, prepend=-1))
    total = np.cumsum(np.where(is_classic, 0, joined))
    former = np.repeat(np.append([0], total)[starts], np.diff(starts, append=len(order)))  # of other log partitions
    is_empty = np.where(is_classic, is_there, total - former) == 0
    ends = np.append(offset[1:], [_END])[: len(offset)]
    ends[starts[1:] - 1] = _END
    return partition[is_empty], offset[is_empty], ends[is_empty]
