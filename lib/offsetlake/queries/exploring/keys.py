"""SQL over the history of one group, or of one of its offsets, which reads little else."""

from dataclasses import dataclass

from offsetlake.lake.history.group_places import in_log_partitions
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import quoted
from offsetlake.queries.selection import log_partitions_of

REBALANCES = ("GroupMetadata", "ConsumerGroupMetadata", "StreamsGroupMetadata", "ShareGroupMetadata")
"""The group records that are written for each new generation or epoch of a group."""


@dataclass(frozen=True, slots=True)
class Key:
    """A group, or its offset of one partition of a topic.

    | Field            | Description |
    |------------------|-------------|
    | group_id         | the group |
    | topic, partition | the partition of the offset; None for all offsets of the group |
    """

    group_id: str
    topic: str | None = None
    partition: int | None = None

    @property
    def condition(self) -> str:
        """The SQL condition on the rows of tables and views that have the columns of a key."""
        of_group = f"group_id = {quoted(self.group_id)}"
        if self.topic is None:
            return of_group
        return f"{of_group} AND topic = {quoted(self.topic)} AND partition = {self.partition}"

    def placed(self, lake: Lake) -> str:
        """Return the SQL condition on the log partitions of the group, without which all of them are read."""
        return in_log_partitions(log_partitions_of(lake, [self.group_id]))
