"""The state of a share partition as its coordinator keeps it: changed only by the replay of records."""

from typing import NamedTuple

from offsetlake.rules.share_state import SharePartitionState, ShareSnapshot, ShareUpdate, replay

Record = ShareSnapshot | ShareUpdate | None
"""A record of `__share_group_state`; None is a tombstone."""

NO_UPDATES = -1
"""The number of updates before the first one: a coordinator of Kafka 4.2.0 counts the first update as 0."""


class StoredState(NamedTuple):
    """The state of a share partition, and how many updates were counted since the last snapshot that reset the number.

    A snapshot resets the number to 0 if a snapshot was due, and does not change it otherwise.
    """

    state: SharePartitionState
    updates: int


def replayed(stored: StoredState | None, record: Record, updates_per_snapshot: int) -> StoredState | None:
    """Return the state after its next record."""
    state = replay(None if stored is None else stored.state, record)
    if state is None:
        return None
    updates = NO_UPDATES if stored is None else stored.updates
    if isinstance(record, ShareUpdate):
        updates += 1
    elif updates >= updates_per_snapshot:
        updates = 0
    return StoredState(state, updates)
