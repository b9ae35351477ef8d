"""Ranges of groups, by which the work on a large log partition is divided."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.state_files import StateFile


@dataclass(frozen=True, slots=True)
class GroupRange:
    """The groups from `first` up to, but not including, `before`; None means that this side is unbounded."""

    first: str | None = None
    before: str | None = None

    @property
    def condition(self) -> pc.Expression:
        """The condition that rows of these groups satisfy."""
        condition = pc.scalar(True)
        if self.first is not None:
            condition &= pc.field("group_id") >= self.first
        if self.before is not None:
            condition &= pc.field("group_id") < self.before
        return condition

    def contains(self, group_id: str) -> bool:
        """Return whether a group is one of them."""
        return (self.first is None or group_id >= self.first) and (self.before is None or group_id < self.before)

    def rows(self, rows: pa.Table) -> pa.Table:
        """Return the rows of these groups, in their order."""
        if self == EVERY_GROUP:
            return rows
        groups = pa.table({"group_id": rows["group_id"].cast(pa.string()), "row": pa.array(range(rows.num_rows))})
        return rows.take(groups.filter(self.condition)["row"])

    def files(self, state_files: Sequence[StateFile]) -> list[StateFile]:
        """Return those state files of one log partition that can contain these groups."""
        firsts = [file.first_group for file in state_files]
        start = 0 if self.first is None else max(bisect_right(firsts, self.first) - 1, 0)
        end = len(firsts) if self.before is None else bisect_left(firsts, self.before)
        return [*state_files[start:end]]

    def shared_files(self, state_files: Sequence[StateFile]) -> list[StateFile]:
        """Return those state files that can contain these groups and others."""
        chosen = {file.path for file in self.files(state_files)}
        neighbours = zip_longest(state_files, state_files[1:])
        return [file for file, after in neighbours if file.path in chosen and self._shares(file, after)]

    def _shares(self, file: StateFile, after: StateFile | None) -> bool:
        begins_before = self.first is not None and file.first_group < self.first
        return begins_before or (self.before is not None and (after is None or after.first_group > self.before))


EVERY_GROUP = GroupRange()


def ranges(bounds: Sequence[str]) -> list[GroupRange]:
    """Return the ranges that ascending bounds divide all groups into."""
    return [GroupRange(first, before) for first, before in zip([None, *bounds], [*bounds, None], strict=True)]
