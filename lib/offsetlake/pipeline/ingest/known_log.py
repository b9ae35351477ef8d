"""Checks that a log still contains what a lake has read of it.

The log is compared on every run, in folders and over live clusters: its cluster ID, and of each log partition the end
of what was read (`offsetlake.log.tails`).
"""

import shlex
from collections.abc import Mapping
from typing import NamedTuple

from offsetlake.errors import LakeUnusable, LogMismatch
from offsetlake.lake import runs
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.positions import LogExtent, LogPartition, OffsetRange
from offsetlake.log.tails import Tail, TailQuery


class LastRead(NamedTuple):
    """The position up to which a log partition was read, and the last batch before, where it is known."""

    topic: str
    partition: int
    position: int
    tail_checksum: int | None = None
    leader_epoch: int | None = None

    @property
    def log_partition(self) -> LogPartition:
        """The log partition."""
        return LogPartition(self.topic, self.partition)

    @property
    def query(self) -> TailQuery:
        """The query of the tail of the log before the position."""
        return TailQuery(self.log_partition, self.position, self.leader_epoch)


LastReads = Mapping[LogPartition, LastRead]


def last_reads(ingested: runs.Run) -> dict[LogPartition, LastRead]:
    """Return what an ingest recorded about the ends of what was read, by log partition."""
    epochs = {(row.topic, row.partition): row.leader_epoch for row in ingested.leader_epochs or ()}
    positions = (LastRead(*row, epochs.get((row.topic, row.partition))) for row in ingested.positions or ())
    return {last_read.log_partition: last_read for last_read in positions}


def ends_of(log: LogAddress, extent: LogExtent, known: LastReads) -> dict[LogPartition, LastRead]:
    """Return the end of each log partition as `LastRead`, to be compared when it has been read.

    Where nothing is new, it is what is known: the last batch may have been compacted since.
    """
    changed = [
        TailQuery(where, held.end)
        for where, held in extent.ranges.items()
        if held.start < held.end and not _is_known_up_to(held.end, known.get(where))
    ]
    ends = {where: LastRead(*where, held.end) for where, held in extent.ranges.items()}
    for query, tail in zip(changed, log.read_tails(changed), strict=True):
        where = query.log_partition
        ends[where] = ends[where]._replace(tail_checksum=tail.checksum, leader_epoch=tail.leader_epoch)
    unchanged = {
        where: known[where] for where, held in extent.ranges.items() if _is_known_up_to(held.end, known.get(where))
    }
    return {**known, **ends, **unchanged}


def _is_known_up_to(end: int, last_read: LastRead | None) -> bool:
    """Return whether a log partition that ends at an offset was read up to it, and its last batch is known."""
    if last_read is None or last_read.position != end:
        return False
    return last_read.tail_checksum is not None or last_read.leader_epoch is not None


def check_same_log(lake: Lake, log: LogAddress, extent: LogExtent) -> None:
    """Raise LogMismatch if the lake was read from another log, LakeUnusable if it has read none."""
    last = runs.last_run(lake, "ingest")
    if last is None:
        raise LakeUnusable(f"The lake {lake.location} has not read a log yet: run `offsetlake run`.")
    same_log(lake, log, extent, last)


def same_log(lake: Lake, log: LogAddress, extent: LogExtent, last: runs.Run) -> None:
    """Raise LogMismatch if the lake was read from another log; `last` is the last run of an ingest.

    A log that can be neither confirmed nor rejected passes: the tail of a partition may have been compacted or deleted.
    """
    advice = f"a lake contains one log: select another lake with --lake, or the right log (last: {last.log})"
    if extent.identity and last.log_identity and extent.identity != last.log_identity:
        raise LogMismatch(
            f"{log} is the log of cluster {extent.identity}, but {lake.location} contains that of {last.log_identity}; "
            f"{advice}."
        )
    refuse_changed(lake, log, extent, last_reads(last), advice)


def refuse_changed(lake: Lake, log: LogAddress, extent: LogExtent, known: LastReads, advice: str) -> None:
    """Raise LogMismatch, with advice, if the log lost records before a known position, or others were written there."""
    for where, last_read in sorted(known.items()):
        held = extent.ranges.get(where)
        if held is None and last_read.position:
            raise LogMismatch(f"{log} has no {where}, which {lake.location} has read; {advice}.")
        if held and held.end < last_read.position:
            raise LogMismatch(
                f"{where} of {log} ends at offset {held.end}, but {lake.location} has read up to {last_read.position}: "
                f"it is another log, an older copy, or it lost records; {advice}. "
                f"If it lost records, read it into a new lake: {_into_new_lake(lake, log)}."
            )
    _refuse_rewritten(lake, log, extent, known)


def _refuse_rewritten(lake: Lake, log: LogAddress, extent: LogExtent, known: LastReads) -> None:
    compared = [
        last_read
        for last_read in sorted(known.values())
        if (held := extent.ranges.get(last_read.log_partition)) and _is_compared(log, held, last_read.position)
    ]
    tails = log.read_tails([last_read.query for last_read in compared])
    differences = [
        difference
        for last_read, tail in zip(compared, tails, strict=True)
        if (difference := _difference(last_read, tail)) is not None
    ]
    if differences:
        raise LogMismatch(_rewritten(lake, log, extent, differences))


def _is_compared(log: LogAddress, held: OffsetRange, position: int) -> bool:
    """Return whether evidence of what was read can be left; of a live log, the batch before the position is fetched."""
    return held.start + (log.connection is not None) <= position <= held.end


def _difference(last_read: LastRead, tail: Tail) -> str | None:
    """Return how the log before a position differs from what was read of it; None if no difference is known."""
    where, position, checksum = last_read.log_partition, last_read.position, last_read.tail_checksum
    if tail.spanning is not None:
        first, last = tail.spanning.start, tail.spanning.end - 1
        return (
            f"a batch of {where} contains the log offsets {first} to {last}, "
            f"but a batch that was read ended before log offset {position}"
        )
    if checksum is not None and tail.checksum not in {None, checksum}:
        return (
            f"the batch of {where} before log offset {position} is not the one that was read: "
            f"its checksum is {tail.checksum:08x}, and was {checksum:08x}"
        )
    if last_read.leader_epoch is not None and (difference := _other_epoch(last_read.leader_epoch, position, tail)):
        return (
            f"{where} was read up to log offset {position} in leader epoch {last_read.leader_epoch}, but {difference}"
        )
    return None


def _other_epoch(epoch: int, position: int, tail: Tail) -> str | None:
    """Return how leader epochs show that the log before a position is not the one that was read in `epoch`."""
    if tail.leader_epoch is not None and tail.leader_epoch > epoch:
        return f"the last batch before that is of leader epoch {tail.leader_epoch}"
    if tail.checksum is not None:
        return None
    if tail.next_epoch is not None and tail.next_epoch < epoch:
        return f"the batch after that is of leader epoch {tail.next_epoch}"
    if tail.epoch_end is not None and tail.epoch_end < position:
        ends = f"that leader epoch ends at log offset {tail.epoch_end}" if tail.epoch_end else "it has only lower ones"
        return f"in the log {ends} now"
    return None


def _rewritten(lake: Lake, log: LogAddress, extent: LogExtent, differences: list[str]) -> str:
    """Return the message about a log that was written again, and what to do."""
    more = f"; {len(differences) - 1} more log partitions differ" if len(differences) > 1 else ""
    written_here = log.folder is not None and extent.identity is None
    backup = ", or if offsetlake wrote the log, use the lake of the same backup" if written_here else ""
    return (
        f"{log} was written again before the position up to which {lake.location} has read it: {differences[0]}{more}. "
        "The log lost its last records and others were written in their place, as after an unclean leader election, on "
        "a restored disk, or if a topic is deleted and created again; or it is another log: a lake contains one log. "
        "The lake keeps the records that were lost, and nothing was read. Read the log into a new lake: "
        f"{_into_new_lake(lake, log)}{backup}."
    )


def _into_new_lake(lake: Lake, log: LogAddress) -> str:
    option = f"--bootstrap {log.connection.bootstrap}" if log.connection else f"--log {shlex.quote(log.location)}"
    command = f"`offsetlake run --lake {shlex.quote(f'{lake.location}-new')} {option}`"
    is_secured = log.connection is not None and (log.connection.uses_ssl or log.connection.uses_sasl)
    return f"{command} with the same --kafka-config" if is_secured else command
