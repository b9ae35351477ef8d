"""Partitions that a topic has, but a folder does not contain, are known by their numbers, names and groups."""

from collections.abc import Collection
from pathlib import Path

import pytest

from offsetlake.errors import LogMismatch
from offsetlake.log.address import LogAddress
from offsetlake.log.disk.absent_partitions import partition_count
from offsetlake.log.disk.folder import describe
from offsetlake.log.positions import OFFSETS_TOPIC, SHARE_STATE_TOPIC, LogPartition
from offsetlake.pipeline.ingest.missing_log import Partitions, partitions_of_log
from support.log.made_folders import batch, write
from support.oracle.encoders import group_log_partition, offset_key, offset_value
from support.oracle.log_writer import Batch, Record

T = 1_700_000_000_000


def write_groups(folder: Path, partitions: int, groups: Collection[str], numbers: Collection[int]) -> None:
    """Write commits of those groups whose partition, of so many, is one of the numbers; the other folders are empty."""
    for number in numbers:
        names = [name for name in groups if group_log_partition(name, partitions) == number]
        records = [
            Record(at, T, offset_key(name, "t", 0), offset_value(1, 7, commit_timestamp=T))
            for at, name in enumerate(names)
        ]
        batches = [Batch(records=tuple(records))] if records else []
        write(folder, (0, batches), partition=LogPartition(OFFSETS_TOPIC, number))


def counted(folder: Path, named: int) -> int:
    extent = describe(folder)
    groups = LogAddress(folder=folder).first_groups(extent)
    return partition_count(groups, {where.partition for where in extent.ranges}, named)


def absent(folder: Path) -> list[str]:
    return [str(partition) for partition in describe(folder).absent]


def test_all_partitions_are_present(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path, [batch(0)], partition=LogPartition(OFFSETS_TOPIC, number))
    assert absent(tmp_path) == []


def test_numbers_below_the_highest_are_absent(tmp_path: Path) -> None:
    write(tmp_path, [batch(0)], partition=LogPartition(OFFSETS_TOPIC, 3))
    write(tmp_path, [batch(0)], partition=LogPartition(OFFSETS_TOPIC, 1))
    write(tmp_path, [batch(0)], partition=LogPartition(SHARE_STATE_TOPIC, 1))
    names = [f"{OFFSETS_TOPIC}-0", f"{OFFSETS_TOPIC}-2", f"{SHARE_STATE_TOPIC}-0"]
    assert absent(tmp_path) == names


@pytest.mark.parametrize("suffix", ["-delete", "-future", "-stray"])
def test_a_replica_that_a_broker_would_not_read_is_absent(suffix: str, tmp_path: Path) -> None:
    write(tmp_path, [batch(0)])
    (tmp_path / f"{OFFSETS_TOPIC}-1.{'0a' * 16}{suffix}").mkdir()
    assert absent(tmp_path) == [f"{OFFSETS_TOPIC}-1"]
    write(tmp_path, [batch(0)], partition=LogPartition(OFFSETS_TOPIC, 1))
    assert absent(tmp_path) == []


def test_a_link_to_a_disk_that_is_not_mounted_is_absent(tmp_path: Path) -> None:
    write(tmp_path, [batch(0)])
    (tmp_path / f"{OFFSETS_TOPIC}-1").symlink_to(tmp_path / "not-mounted")
    (tmp_path / f"{OFFSETS_TOPIC}-2").write_bytes(b"a file in place of the folder")
    assert absent(tmp_path) == [f"{OFFSETS_TOPIC}-1", f"{OFFSETS_TOPIC}-2"]


def test_a_link_to_a_folder_is_read(tmp_path: Path) -> None:
    write(tmp_path / "other", [batch(0)], partition=LogPartition(OFFSETS_TOPIC, 1))
    write(tmp_path / "log", [batch(0)])
    (tmp_path / "log" / f"{OFFSETS_TOPIC}-1").symlink_to(tmp_path / "other" / f"{OFFSETS_TOPIC}-1")
    assert absent(tmp_path / "log") == []
    assert len(describe(tmp_path / "log").ranges) == 2


@pytest.mark.parametrize(
    "name", ["replication-offset-checkpoint", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"]
)
def test_partitions_in_a_checkpoint_are_absent(name: str, tmp_path: Path) -> None:
    write(tmp_path, [batch(0)])
    (tmp_path / name).write_text(f"0\n3\n{OFFSETS_TOPIC} 0 2\n{OFFSETS_TOPIC} 1 5\norders 2 9\n")
    assert absent(tmp_path) == [f"{OFFSETS_TOPIC}-1"]


def test_a_torn_checkpoint_is_read_as_far_as_it_is_understood(tmp_path: Path) -> None:
    write(tmp_path, [batch(0)])
    (tmp_path / "replication-offset-checkpoint").write_bytes(f"0\n3\n{OFFSETS_TOPIC} 1 5\n{OFFSETS_TOPIC} x".encode())
    assert absent(tmp_path) == [f"{OFFSETS_TOPIC}-1"]


GROUPS = [f"group-{number}" for number in range(80)]


@pytest.mark.parametrize(
    ("partitions", "present", "expected"),
    [
        (50, range(50), 50),
        (50, range(25), 50),
        (50, range(40), 50),
        (50, [9], 50),
        (50, [1, 3, 48], 50),
        (12, range(12), 12),
        (12, range(6), 12),
        (12, [0, 5], 12),
        (25, range(25), 25),
        (100, range(50), 100),
        (100, range(0, 100, 2), 100),
        (1, range(1), 1),
    ],
)
def test_groups_show_the_number_of_partitions(
    partitions: int, present: Collection[int], expected: int, tmp_path: Path
) -> None:
    write_groups(tmp_path, partitions, GROUPS, present)
    assert counted(tmp_path, max(present) + 1) == expected


@pytest.mark.parametrize("groups", [GROUPS[:0], GROUPS[:1], GROUPS[:3]])
def test_few_groups_do_not_contradict_a_log_without_holes(groups: list[str], tmp_path: Path) -> None:
    write_groups(tmp_path, 25, groups, range(25))
    assert counted(tmp_path, 25) == 25


def test_partitions_that_were_added_are_not_taken_for_absent_ones(tmp_path: Path) -> None:
    write_groups(tmp_path, 50, GROUPS, range(50))
    write_groups(tmp_path, 60, [f"new-{number}" for number in range(80)], range(50, 60))
    assert counted(tmp_path, 60) == 60


def test_partitions_of_two_topics_are_refused(tmp_path: Path) -> None:
    for number, topic_id in enumerate(["AAAAAAAAQACAAAAAAAAAAA", "AAAAAAAAQACAAAAAAAAAAA", "BAAAAAAAQACAAAAAAAAAAA"]):
        write(tmp_path, [batch(0)], partition=LogPartition(OFFSETS_TOPIC, number))
        metadata = tmp_path / f"{OFFSETS_TOPIC}-{number}" / "partition.metadata"
        metadata.write_text(f"version: 0\ntopic_id: {topic_id}")
        if number < 2:
            describe(tmp_path)
    with pytest.raises(LogMismatch, match=r"are partitions of different topics of the same name.*BAAAAAAA"):
        describe(tmp_path)


def test_folders_without_segments_are_not_absent(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{OFFSETS_TOPIC}-{number}").mkdir()
    write_groups(tmp_path, 50, GROUPS, [3])
    log = LogAddress(folder=tmp_path)
    assert partitions_of_log(log, log.describe(), None) == Partitions(50, grown=False, absent=[])
