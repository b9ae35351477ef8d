"""Loads the states of share partitions from `__share_group_state` in the folder of the log.

The log may begin with any record: what precedes the newest snapshot of each share partition may have been deleted.
"""

import logging
from pathlib import Path

from offsetlake.coordinator.share_state.stored_state import StoredState, replayed
from offsetlake.errors import UndecodableRecord
from offsetlake.log.disk.segments import Segment, segments_of
from offsetlake.log.disk.whole_batches import whole_batches
from offsetlake.log.positions import SHARE_STATE_PARTITIONS, SHARE_STATE_TOPIC, LogPartition
from offsetlake.serve.steps import Steps
from offsetlake.share.state.packed import packed, unpacked_partition
from offsetlake.share.state.placement import check_keys, share_state_folders
from offsetlake.share.state.records import decoded

LOG = logging.getLogger(__name__)
States = dict[bytes, bytes]
"""The packed states of one log partition by packed key."""

_RECORDS_PER_STEP = 100


class ShareStateLog:
    """Reads the log once; `states` are those by number of the log partition, `ends` the log end offsets."""

    def __init__(self, folder: Path, updates_per_snapshot: int) -> None:
        self._folder, self._updates_per_snapshot = folder, updates_per_snapshot
        self.states: list[States] = [{} for _ in range(SHARE_STATE_PARTITIONS)]
        self.ends: dict[LogPartition, int] = {}
        self._undecodable = 0

    def read(self) -> Steps[None]:
        """Read all records in steps.

        Raises:
            LogMismatch: A share partition is in another log partition than the one that belongs to it.
            LogUnavailable: A segment is corrupt, has a torn batch at its end or cannot be read.
        """
        for partition, path in share_state_folders(self._folder).items():
            self.ends[partition] = 0
            states: dict[bytes, StoredState] = {}  # packed at the end, because a state can have many records
            for segment in segments_of(path):
                self.ends[partition] = segment.base_offset
                yield from self._read(partition, segment, states)
            for count, (name, stored) in enumerate(states.items()):
                self.states[partition.partition][name] = packed(stored)
                if count % _RECORDS_PER_STEP == 0:
                    yield 0
            check_keys(partition, path, self.states[partition.partition])
        if self._undecodable:
            LOG.warning(
                "%d records of %s cannot be decoded and were skipped; `offsetlake ingest` stores them in `quarantine`",
                self._undecodable,
                SHARE_STATE_TOPIC,
            )

    def _read(self, partition: LogPartition, segment: Segment, states: dict[bytes, StoredState]) -> Steps[None]:
        count = 0
        for batch in whole_batches(segment.path):
            self.ends[partition] = batch.next_offset
            for record in () if batch.is_control_batch else batch:
                self._replay(states, record.key or b"", record.value)
                count += 1
                if count % _RECORDS_PER_STEP == 0:
                    yield 0

    def _replay(self, states: dict[bytes, StoredState], key: bytes, value: bytes | None) -> None:
        name = key[2:]
        try:
            record = decoded(key, value)
        except UndecodableRecord:
            self._undecodable += 1
            return
        if name not in states and unpacked_partition(name) is None:
            self._undecodable += 1
            return
        stored = replayed(states.get(name), record, self._updates_per_snapshot)
        if stored is None:
            states.pop(name, None)
        else:
            states[name] = stored
