"""Random offset logs: from Hypothesis (they shrink to small ones) or from a seeded `random.Random` (big ones).

Both run the same recipe (oracle.recipes); Hypothesis goes for its first, simplest options.
A log is a list of batch plans without offsets, so that leaving one out gives a valid log again.
"""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from hypothesis import strategies as st

from support.oracle.log_reader import ABORT, COMMIT, OFFSETS_TOPIC, LogRecord
from support.oracle.log_writer import Batch, Record, marker_batch, write_partition
from support.oracle.recipes import START_TIME, BatchPlan, Sizes, World, choose_batch


@dataclass(frozen=True)
class RandomLog:
    """A log: its world, and its batches over all log partitions ordered by time."""

    world: World
    plans: tuple[BatchPlan, ...]

    def batches(self) -> dict[int, list[Batch]]:
        """The batches of each log partition, with offsets and timestamps."""
        ends: dict[int, int] = {}
        batches: dict[int, list[Batch]] = {}
        clock = START_TIME
        for plan in self.plans:
            clock += plan.tick
            batch = _batch(plan, ends.get(plan.log_partition, 0), clock)
            ends[plan.log_partition] = batch.last + 1
            batches.setdefault(plan.log_partition, []).append(batch)
        return batches

    def records(self) -> list[LogRecord]:
        """The records that a reader must return, by log partition and log offset."""
        return [
            record
            for log_partition, batches in sorted(self.batches().items())
            for batch in batches
            for record in _read_back(batch, log_partition)
        ]

    def audit_events(self) -> list[tuple[int, int, int, str]]:
        """The audit events: log partition, first and last log offset, and headers of each batch that has them."""
        return [
            (log_partition, batch.first, batch.last, dict(batch.records[0].headers)[b"act.principal"].decode())
            for log_partition, batches in sorted(self.batches().items())
            for batch in batches
            if batch.magic == 2 and batch.records and batch.records[0].offset == batch.first
            if b"act.principal" in dict(batch.records[0].headers)
        ]

    def write(self, folder: Path) -> None:
        """Write the log as a broker's data folder."""
        for log_partition, batches in self.batches().items():
            plans = [plan for plan in self.plans if plan.log_partition == log_partition]
            starts = [batch.first for batch, plan in zip(batches, plans, strict=True) if plan.opens_segment]
            write_partition(folder, log_partition, batches, segment_starts=[0, *starts])


def worlds(commit_ids: tuple[int, ...] = ()) -> st.SearchStrategy[World]:
    """Few groups of any text over few log partitions; commits in parts with these ids."""
    return st.builds(
        World,
        groups=st.lists(st.text(max_size=6), min_size=1, max_size=4, unique=True).map(tuple),
        topics=st.lists(st.text(max_size=4), min_size=1, max_size=2, unique=True).map(tuple),
        partitions=st.integers(1, 3),
        log_partitions=st.sampled_from((1, 2, 3, 50)),
        commit_ids=st.just(commit_ids),
    )


@st.composite
def logs(draw: st.DrawFn, max_batches: int = 20, world: World | None = None) -> RandomLog:
    """Any log of up to `max_batches` batches, about `world` or any world."""
    of_world = draw(worlds()) if world is None else world
    plans = draw(st.lists(_batch_plans(of_world), max_size=max_batches))
    return RandomLog(of_world, tuple(plans))


@st.composite
def _batch_plans(draw: st.DrawFn, world: World) -> BatchPlan:
    return choose_batch(lambda end: draw(st.integers(0, end - 1)), world, Sizes(4, 8))


def random_log(
    rng: random.Random,
    records: int,
    *,
    groups: int = 20,
    topics: int = 3,
    partitions: int = 4,
    log_partitions: int = 50,
    records_per_batch: int = 6,
    batches_per_segment: int = 100,
    commit_ids: tuple[int, ...] = (),
) -> RandomLog:
    """A log of at least `records` records, the same for the same state of `rng`.

    `records_per_batch` is the most that a batch holds, `batches_per_segment` the mean.
    """
    world = World(
        groups=tuple(f"group-{number}" for number in range(groups)),
        topics=tuple(f"topic-{number}" for number in range(topics)),
        partitions=partitions,
        log_partitions=log_partitions,
        commit_ids=commit_ids,
    )
    sizes = Sizes(records_per_batch, batches_per_segment)
    plans = []
    count = 0
    while count < records:
        plan = choose_batch(rng.randrange, world, sizes)
        count += len(plan.records) + (plan.marker is not None)
        plans.append(plan)
    return RandomLog(world, tuple(plans))


def _batch(plan: BatchPlan, offset: int, clock: int) -> Batch:
    if plan.marker is not None:
        return marker_batch(
            plan.marker,
            offset=offset,
            timestamp=clock,
            producer_id=plan.producer_id,
            producer_epoch=plan.producer_epoch,
        )
    records = []
    last = offset - 1
    for planned in plan.records:
        last += planned.lost + 1
        headers = planned.headers if records else (*_act(offset), *planned.headers)
        records.append(Record(last, clock + planned.delay, planned.key, planned.value, headers))
    return Batch(
        records=tuple(records),
        base_offset=offset if plan.magic == 2 else None,
        last_offset=last + plan.lost_after,
        max_timestamp=None if records else clock,
        magic=plan.magic,
        codec=plan.codec,
        producer_id=plan.producer_id,
        producer_epoch=plan.producer_epoch,
        is_transactional=plan.is_transactional,
        append_timestamp=clock + 50 if plan.is_append_time else None,
        delete_horizon=clock + 86_400_000 if plan.has_delete_horizon else None,
    )


def _act(offset: int) -> tuple[tuple[bytes, bytes], ...]:
    """Return audit headers for every third batch."""
    if offset % 3:
        return ()
    return ((b"act.what", b"commit"), (b"act.principal", b"User:%d" % (offset % 7)), (b"act.client", b"random"))


def _read_back(batch: Batch, log_partition: int) -> list[LogRecord]:
    """Return the records that a reader must return for a batch."""
    control_type = None
    if batch.is_control:
        control_type = COMMIT if cast("bytes", batch.records[0].key).endswith(b"\x01") else ABORT
    records = []
    for record in batch.records:
        timestamp = record.timestamp if batch.append_timestamp is None else batch.append_timestamp
        records.append(
            LogRecord(
                OFFSETS_TOPIC,
                log_partition,
                record.offset,
                timestamp if batch.magic else -1,
                batch.producer_id,
                batch.producer_epoch,
                batch.is_control,
                control_type,
                record.key,
                record.value,
                record.headers if batch.magic == 2 else (),
            )
        )
    return records
