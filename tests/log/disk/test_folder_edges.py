"""Folders that are no log, files that are none of it, and files that vanish."""

import shutil
from pathlib import Path

import pytest

from offsetlake.errors import LogUnavailable
from offsetlake.log.disk.folder import describe, fetch, slices
from offsetlake.log.disk.tails import read_tails
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition, OffsetRange
from offsetlake.log.tails import Tail, TailQuery
from support.log.made_folders import PARTITION, batch, read_all, rows_of, write
from support.oracle.log_writer import batch_bytes

REAL_LOG = Path(__file__).parents[2] / "fixtures" / "real-log"


# --- what is a log ---


def test_a_real_log() -> None:
    extent = describe(REAL_LOG)
    assert {str(where) for where in extent.ranges} == {path.name for path in REAL_LOG.iterdir()}
    assert list(extent.ranges) == sorted(extent.ranges)
    assert (extent.identity, extent.notes) == (None, [])


def test_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(
        LogUnavailable,
        match=f"^There is no folder {tmp_path}/none: --log expects a broker's data folder or a copy",
    ):
        describe(tmp_path / "none")
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(LogUnavailable, match=r"^There is no folder"):
        describe(tmp_path / "file")


@pytest.mark.parametrize(
    "inside",
    [
        [],
        ["orders-0", "__consumer_offsets", "__consumer_offsets-", "__consumer_offsets-x", "__consumer_offsets--1"],
        ["__consumer_offsets-0.0123456789abcdef0123456789abcdef-delete", "__consumer_offsets-0-future"],
        ["__consumer_offsets-00", "__consumer_offsets-٣", "x__consumer_offsets-0", "__transaction_state-0"],
    ],
)
def test_folder_without_log_is_reported(inside: list[str], tmp_path: Path) -> None:
    for name in inside:
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020d}.log").write_bytes(batch_bytes(batch(0)))
    with pytest.raises(
        LogUnavailable,
        match=f"^{tmp_path} does not contain a log: a log consists of folders such as __consumer_offsets-0/",
    ):
        describe(tmp_path)


def test_file_named_like_partition_is_not_a_log(tmp_path: Path) -> None:
    (tmp_path / str(PARTITION)).write_bytes(b"")
    with pytest.raises(LogUnavailable, match="does not contain a log"):
        describe(tmp_path)


def test_partition_folder_instead_of_log_is_reported(tmp_path: Path) -> None:
    write(tmp_path, [batch(0)])
    with pytest.raises(LogUnavailable, match="is one partition of a log; specify its parent folder"):
        describe(tmp_path / str(PARTITION))


def test_partition_without_segments_is_empty(tmp_path: Path) -> None:
    write(tmp_path, [batch(0)])
    (tmp_path / f"{OFFSETS_TOPIC}-1").mkdir()
    assert describe(tmp_path).ranges == {PARTITION: (0, 3)}
    assert slices(tmp_path, LogPartition(OFFSETS_TOPIC, 1), OffsetRange(0, 9)) == []


def test_other_files_in_partition_folder_are_ignored(tmp_path: Path) -> None:
    write(tmp_path, [batch(0)], [batch(3)])
    directory = tmp_path / str(PARTITION)
    names = [f"{base:020d}.{kind}" for base in (0, 3, 9) for kind in ("index", "timeindex", "txnindex", "snapshot")]
    names += [f"{9:020d}.log.{kind}" for kind in ("cleaned", "swap", "deleted")]
    names += [
        "leader-epoch-checkpoint",
        "partition.metadata",
        "9.log",
        f"{9:021d}.log",
        f"x{9:020d}.log",
        "٩" * 20 + ".log",
    ]
    for name in names:
        (directory / name).write_bytes(batch_bytes(batch(100)))
    for name in ("recovery-point-offset-checkpoint", ".lock", "cleaner-offset-checkpoint"):
        (tmp_path / name).write_bytes(b"0\n")
    assert describe(tmp_path).ranges == {PARTITION: (0, 6)}
    assert read_all(tmp_path) == (rows_of([batch(0), batch(3)]), [])
    assert read_tails(tmp_path, [TailQuery(PARTITION, 103)]) == [Tail(leader_epoch=0)]


@pytest.mark.parametrize(
    ("text", "identity"),
    [
        (
            b"#\n#Mon Jan 01 00:00:00 UTC 2024\nnode.id=1\nversion=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\n",
            "4L6g3nShT-eMCtK--X86sw",
        ),
        (b"cluster.id = abc \r\nbroker.id=0\r\n", "abc"),
        (b"cluster.ids=abc\n", None),
        (b"", None),
        (b"\xff\xfe\ncluster.id=abc=d", "abc=d"),
    ],
)
def test_cluster_id_is_read_from_meta_properties(text: bytes, identity: str | None, tmp_path: Path) -> None:
    write(tmp_path, [batch(0)])
    (tmp_path / "meta.properties").write_bytes(text)
    assert describe(tmp_path).identity == identity


# --- what cannot be read ---


def test_directory_named_like_segment_is_reported(tmp_path: Path) -> None:
    write(tmp_path, [batch(0)])
    (tmp_path / str(PARTITION) / f"{3:020d}.log").mkdir()
    with pytest.raises(LogUnavailable, match=r"00000000000000000003\.log cannot be read: Is a directory"):
        describe(tmp_path)


def test_dangling_symbolic_link_is_reported(tmp_path: Path) -> None:
    write(tmp_path, [batch(0)])
    (tmp_path / str(PARTITION) / f"{3:020d}.log").symlink_to(tmp_path / "gone")
    with pytest.raises(LogUnavailable, match=r"00000000000000000003\.log was deleted"):
        describe(tmp_path)


@pytest.mark.parametrize("name", [None, PARTITION, f"{PARTITION}/{0:020d}.log", "meta.properties"], ids=str)
def test_permission_error_is_reported(name: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, [batch(0)])
    (tmp_path / "meta.properties").write_bytes(b"")
    refused = tmp_path if name is None else tmp_path / str(name)
    for call in ("iterdir", "stat", "open"):
        real = getattr(Path, call)

        def refuse(path: Path, *args: object, real: object = real, call: str = call, **kwargs: object) -> object:
            if path == refused and (call != "stat" or path.suffix == ".log"):
                raise PermissionError(13, "Permission denied")
            return real(path, *args, **kwargs)  # type: ignore[operator]

        monkeypatch.setattr(Path, call, refuse)
    with pytest.raises(LogUnavailable, match=f"{refused} cannot be read: Permission denied"):
        describe(tmp_path)


def test_segment_deleted_before_fetch_is_reported(tmp_path: Path) -> None:
    first, second = write(tmp_path, [batch(0)], [batch(3)])
    cut = slices(tmp_path, PARTITION, OffsetRange(0, 6))
    first.unlink()
    with pytest.raises(
        LogUnavailable, match=f"^{first} was deleted while the log was read: a running broker deletes segments"
    ):
        list(fetch(cut[0]))
    assert list(fetch(cut[1])) == [second.read_bytes()]
    held = describe(tmp_path).ranges[PARTITION]
    assert held == (3, 6)
    shutil.rmtree(tmp_path / str(PARTITION))
    with pytest.raises(LogUnavailable, match="cannot be read: No such file"):
        slices(tmp_path, PARTITION, held)


@pytest.mark.parametrize("left", [0, 1, 100])
def test_segment_truncated_before_fetch_is_reported(left: int, tmp_path: Path) -> None:
    (path,) = write(tmp_path, [batch(0), batch(3)])
    (piece,) = slices(tmp_path, PARTITION, OffsetRange(0, 6))
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(LogUnavailable, match=f"was truncated from {size} to {left} bytes while it was read"):
        list(fetch(piece))
