"""Real consumers of all kinds, while the process and members are killed: `benchmarks/clients.py` in small."""

import sys
from pathlib import Path

import pytest

from support.clients.evidence import MovedBack, Wait, missing, moved_back, repeated, waits
from support.clients.fleet import CONSUMER, KINDS, Member
from support.clients.output import Batch, Output, batches
from support.clients.results import Plan
from support.clients.run import Run
from support.oracle.encoders import group_metadata_key, group_metadata_value, offset_key, offset_value
from support.oracle.log_writer import Batch as LogBatch
from support.oracle.log_writer import Record, marker_batch, write_partition

MEMBERS = (
    "aiokafka",
    "java-cooperative-static",
    "java-eager",
    "java-consumer-regex",
    "kafka-python",
    "librdkafka-consumer",
    "librdkafka-cooperative",
    "pipeline",
)


@pytest.mark.long
def test_every_record_is_read_and_every_result_is_produced_once(tmp_path: Path) -> None:
    plan = Plan(records=20_000, seconds=30, kills=4, kinds=MEMBERS, member_events=4, session_ms=10_000)
    results = Run(tmp_path, plan, print).run()
    assert results.wrong() == []
    assert len(results.outages) == plan.kills
    assert sum(results.ends.values()) == plan.records == len(results.results)
    assert {KINDS[name].group for name in MEMBERS} == set(results.groups)
    assert results.commits > 0
    assert results.tools["succeeded"] > 0


class EndedMember(Member):
    """A member whose process writes an event and ends."""

    def _command(self) -> list[str]:
        code = (
            "import pathlib, sys; pathlib.Path(sys.argv[1]).open('a').write(f'E\\t0\\t{sys.argv[2]}\\n'); sys.exit(1)"
        )
        event = (
            "failed UnreleasedInstanceIdException"
            if CONSUMER in self.kind.properties
            else "failed FencedInstanceIdException"
        )
        return [sys.executable, "-c", code, str(self.output), event]


@pytest.mark.parametrize(
    ("name", "coordinator_was_killed", "starts"),
    [
        ("java-cooperative-static", True, 2), ("java-cooperative-static", False, 1), ("java-cooperative", True, 1),
        ("java-consumer-static", False, 2),
    ],
)  # fmt: skip
def test_static_members_that_a_broker_refuses_for_good_are_started_again(
    tmp_path: Path, name: str, coordinator_was_killed: bool, starts: int
) -> None:
    member = EndedMember(tmp_path, "localhost:9092", KINDS[name], 0, 10_000)
    member.start()
    member.coordinator_was_killed = coordinator_was_killed
    assert member._process is not None
    member._process.wait()
    assert member.is_running == (starts == 2)
    assert (member.starts, len(member.failures)) == (starts, 2 - starts)
    member.kill()


def test_ranges_that_nobody_read_are_found(tmp_path: Path) -> None:
    output = Output(tmp_path / "output")
    output.records(0, [(0, 10), (1, 11)])
    output.event("assigned")
    output.records(0, [(1, 11), (2, 12)])
    output.records(0, [(4, 14)])
    with (tmp_path / "output").open("a") as file:
        file.write("CreateTime:15\tPartition:0\tOffset:5\tvalue\n")
    read = batches(tmp_path / "output")
    assert [(batch.first, batch.last, batch.first_ms) for batch in read] == [
        (0, 1, 10),
        (1, 2, 11),
        (4, 4, 14),
        (5, 5, 15),
    ]
    assert missing(read, {0: 7, 1: 1}) == [(0, 3, 4), (0, 6, 7), (1, 0, 1)]
    assert repeated([*read, Batch(None, 0, 3, 3, 0, 0)], {0: 6}) == 1
    with pytest.raises(ValueError, match="Offsets 1 to 3"):
        output.records(0, [(1, 0), (3, 0)])


def test_waits_are_those_of_records_that_were_not_read_before() -> None:
    read = [
        Batch(100, 0, 0, 4, 60, 90),
        Batch(150, 0, 0, 4, 60, 90),
        Batch(200, 0, 3, 6, 80, 120),
        Batch(None, 0, 7, 7, 0, 0),
    ]
    assert waits(read) == [Wait(40, 0, 0, 100), Wait(80, 0, 5, 200)]


def test_offsets_that_moved_back_are_found(tmp_path: Path) -> None:
    written: list[LogBatch] = []

    def write(key: bytes, value: bytes, producer_id: int = -1) -> None:
        record = Record(len(written), 0, key, value)
        written.append(LogBatch(records=(record,), producer_id=producer_id, is_transactional=producer_id >= 0))

    def commit(offset: int, producer_id: int = -1) -> None:
        write(offset_key("g", "t", 0), offset_value(3, offset, commit_timestamp=0), producer_id)

    def generation(number: int) -> None:
        value = group_metadata_value(3, protocol_type="consumer", generation=number, protocol="range", leader="a")
        write(group_metadata_key("g"), value)

    for number, offsets in ((1, (5, 7)), (1, (6,)), (2, (4, 8))):
        generation(number)
        for offset in offsets:
            commit(offset)
    for producer_id, kind in ((1, "ABORT"), (2, "COMMIT")):
        commit(3, producer_id)
        marker = {"offset": len(written), "timestamp": 0, "producer_id": producer_id, "producer_epoch": 0}
        written.append(marker_batch(kind, **marker))
    write_partition(tmp_path, 0, written)
    expected = [MovedBack("g", 0, 7, 6, True), MovedBack("g", 0, 6, 4, False), MovedBack("g", 0, 8, 3, True)]
    assert moved_back(tmp_path) == (6, expected)
