"""The response bodies of the HTTP API."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field


class Health(BaseModel):
    """The state of the serving process."""

    status: str


class ClusterState(BaseModel):
    """Whether the metadata of the cluster could be read the last time, and its age."""

    available: bool
    metadata_age_seconds: float


class Readiness(Health):
    """The state of the serving process, and of the cluster whose broker it is."""

    cluster: ClusterState | None = None
    log_partitions_not_read: dict[str, list[int]] | None = None
    """By log topic, the log partitions that the folder of the log lacks."""
    log_offsets_missing: dict[str, str] | None = None
    """By log partition, the log offsets of records that the folder of the log lacks."""


class CommitResult(BaseModel):
    """The log partition of the group and the log offset of the first record that was written."""

    log_partition: int
    log_offset: int


class StoredOffset(BaseModel):
    """A committed offset; a leader epoch or topic id that the commit did not have is null."""

    topic: str
    partition: int
    committed_offset: int
    leader_epoch: int | None
    metadata: str
    topic_id: str | None


class Offsets(BaseModel):
    """Offsets of a group by topic and partition.

    `as_of` and `history_ends` are null for the current offsets. Those at a timestamp come from the lake, which contains
    nothing written after `history_ends`.
    """

    group: str
    as_of: str | None = None
    history_ends: str | None = None
    offsets: Sequence[StoredOffset]


class PartitionOffset(BaseModel):
    """The committed offset of a partition, null if there is none."""

    topic: str
    partition: int
    committed_offset: int | None


class Group(BaseModel):
    """A group."""

    group: str
    type: str
    state: str
    protocol_type: str | None


class GroupsPage(BaseModel):
    """A page of groups, which may have fewer groups than `limit`, or none, and rarely a few more.

    The next page is the one with `next` as its parameter `after`; `next` reveals no group name.
    """

    groups: Sequence[Group]
    next: str | None


class SnapshotPosition(BaseModel):
    """The ends of the snapshot and of the log in a log partition."""

    log_partition: int
    snapshot_end: int
    log_end: int


class SnapshotDescription(BaseModel):
    """The mapped snapshot below the memtables."""

    version: Annotated[int, Field(description="Version of the Delta table `offsets`")]
    made_at: str
    offsets: int
    groups: int
    position: Sequence[SnapshotPosition]
