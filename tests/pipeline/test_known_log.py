"""Random logs that lose their last records and are written again, between the runs of an ingest."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from offsetlake.errors import LogMismatch
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.positions import LogExtent, LogPartition
from offsetlake.pipeline.ingest.known_log import LastRead, ends_of, refuse_changed
from support.lakes import new_lake
from support.log.made_folders import PARTITION
from support.oracle.log_writer import Batch, Record, write_partition

TIME = 1_700_000_000_000


@dataclass
class Log:
    """A log partition: all batches that were written and not lost, and what compaction left of each."""

    written: list[Batch] = field(default_factory=list)
    left: list[Batch | None] = field(default_factory=list)
    epoch: int = 0
    records: int = 0

    @property
    def end(self) -> int:
        return self.written[-1].last + 1 if self.written else 0

    def append(self, count: int) -> None:
        offsets = range(self.end, self.end + count)
        self.records += count  # the content of each record is unique
        contents = range(self.records - count, self.records)
        records = tuple(Record(at, TIME, b"k%d" % of, b"v%d" % of) for at, of in zip(offsets, contents, strict=True))
        self.written.append(Batch(records=records, partition_leader_epoch=self.epoch))
        self.left.append(self.written[-1])

    def lose(self, count: int) -> None:
        """Lose the last batches: the new leader did not have them, and has not compacted its active segment."""
        del self.written[len(self.written) - count :], self.left[len(self.left) - count :]
        self.left[-1] = self.written[-1]
        self.epoch += 1

    def compact(self, kept: Sequence[int]) -> None:
        """Remove records of all batches but the last, which is in the active segment; `kept` are bits of records."""
        for number, bits in zip(range(len(self.left) - 1), kept, strict=False):
            batch = self.left[number]
            records = () if batch is None else tuple(r for i, r in enumerate(batch.records) if bits >> i & 1)
            full = self.written[number]
            self.left[number] = (
                replace(full, records=records, base_offset=full.first, last_offset=full.last) if records else None
            )

    def write(self, folder: Path, segment_starts: Sequence[int]) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        first = self.written[0].first if self.written else 0
        starts = sorted({first, *(start for start in segment_starts if start < self.end)})
        write_partition(folder, 0, [each for each in self.left if each is not None], segment_starts=starts)
        epochs: dict[int, int] = {}
        for batch in self.written:
            epochs.setdefault(batch.partition_leader_epoch, batch.first)
        lines = ["0", str(len(epochs)), *(f"{epoch} {start}" for epoch, start in epochs.items())]
        (folder / str(PARTITION)).mkdir(parents=True, exist_ok=True)
        (folder / str(PARTITION) / "leader-epoch-checkpoint").write_text("\n".join(lines) + "\n")


@dataclass(frozen=True)
class Round:
    """What happens to a log before it is read: batches are lost, others are written, and some are compacted."""

    lost: int
    written: list[int]
    kept: list[int]
    segment_starts: list[int]


ROUNDS = st.builds(
    Round,
    lost=st.sampled_from((0, 0, 1, 2, 3)),
    written=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    kept=st.lists(st.sampled_from((0, 0, 1, 6, 7)), max_size=20),
    segment_starts=st.lists(st.integers(1, 20), max_size=2),
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return new_lake(tmp_path_factory.mktemp("lakes") / "lake")


@pytest.mark.slow
@given(rounds=st.lists(ROUNDS, min_size=2, max_size=5))
@example([Round(0, [1] * 5, [], []), Round(1, [1, 1], [0] * 6, [6])])  # the log starts at the position
@settings(max_examples=100)
def test_log_is_read_on_exactly_if_it_still_is_the_one_that_was_read(
    lake: Lake, tmp_path_factory: pytest.TempPathFactory, rounds: list[Round]
) -> None:
    folder, log = tmp_path_factory.mktemp("log") / "log", Log()
    log.append(1)
    known: dict[LogPartition, LastRead] = {}
    was_read: list[Batch] = []
    for each in rounds:
        if lost := min(each.lost, len(log.written) - 1):
            log.lose(lost)
        for count in each.written:
            log.append(count)
        log.compact(each.kept)
        log.write(folder, each.segment_starts)
        found = _read(lake, LogAddress(folder=folder), known)
        same = log.written[: len(was_read)] == was_read
        assert (found is not None) == same
        if found is None:
            return
        known, was_read = found, [*log.written]


def _read(lake: Lake, log: LogAddress, known: dict[LogPartition, LastRead]) -> dict[LogPartition, LastRead] | None:
    """Return what is known after a run that started with what is `known`; None if the log is refused."""
    extent: LogExtent = log.describe()
    ends = ends_of(log, extent, known)
    try:
        refuse_changed(lake, log, extent, known, "advice")
    except LogMismatch:
        return None
    return ends
