"""Folders whose broker ended while the log cleaner replaced segments are read as a broker reads them when it starts."""

import shutil
from pathlib import Path

import pytest

from offsetlake.log.disk.cutting import delete, plan_cut
from offsetlake.log.disk.folder import describe
from offsetlake.log.disk.segments import segments_of
from offsetlake.log.writer.recovery import recover
from support.broker.broker import Broker
from support.broker.workload import create_topic
from support.log.made_folders import PARTITION, batch, read_all
from support.oracle.log_writer import batch_bytes

Shape = dict[str, tuple[int, ...]]
"""The files of a partition, without the zeros of their names, with the log offsets in them."""

_LAST: Shape = {"20.log": (20,)}
CASES: dict[str, tuple[Shape, list[int]]] = {
    "sources deleted": (
        {**_LAST, "0.log.swap": (0, 12), "0.log.deleted": (0, 1), "10.log.deleted": (10, 12)},
        [0, 12, 20],
    ),
    "sources not yet deleted": ({**_LAST, "0.log.swap": (0, 12), "0.log": (0, 1), "10.log": (10, 12)}, [0, 12, 20]),
    "end of the last source removed": (
        {**_LAST, "0.log.swap": (0, 9), "0.log": (0, 9), "10.log": (10, 12)},
        [0, 9, 10, 12, 20],
    ),
    "one file of a split renamed": ({**_LAST, "0.log": (0, 1), "2.log.swap": (2, 3)}, [0, 1, 2, 3, 20]),
    "unfinished split": (
        {**_LAST, "0.log": (0, 1, 2, 3), "0.log.cleaned": (0, 1), "2.log.swap": (2, 3)},
        [0, 1, 2, 3, 20],
    ),
    "unfinished cleaning": ({**_LAST, "0.log": (0, 1), "0.log.cleaned": (1,)}, [0, 1, 20]),
    "nothing is left of the sources": ({**_LAST, "0.log.swap": (), "0.log": (0, 1)}, [20]),
    "only the indexes not renamed": (
        {**_LAST, "0.log": (0, 12), "0.index.swap": (), "0.timeindex.swap": ()},
        [0, 12, 20],
    ),
    "only the swap file": ({"0.log.swap": (0, 12)}, [0, 12]),
}


def make(partition: Path, shape: Shape) -> None:
    partition.mkdir(exist_ok=True)
    for name, offsets in shape.items():
        base, _, rest = name.partition(".")
        data = b"".join(batch_bytes(batch(offset, 1)) for offset in offsets)
        (partition / f"{int(base):020}.{rest}").write_bytes(data)


def logs(partition: Path) -> list[str]:
    return sorted(path.name for path in partition.glob("*.log"))


@pytest.mark.parametrize("name", CASES)
def test_a_folder_is_read_as_after_the_start_of_a_broker(name: str, tmp_path: Path) -> None:
    shape, offsets = CASES[name]
    make(tmp_path / str(PARTITION), shape)
    before = [*read_all(tmp_path)[0]]
    assert [offset for offset, _, _ in before] == offsets
    is_swapped = any(each.endswith(".log.swap") for each in shape) and name != "unfinished split"
    assert bool(describe(tmp_path).notes) == is_swapped
    recover(tmp_path)
    assert [*read_all(tmp_path)[0]] == before
    assert describe(tmp_path).notes == []
    assert not any(segment.path.suffix == ".swap" for segment in segments_of(tmp_path / str(PARTITION)))


def test_the_note_names_the_files(tmp_path: Path) -> None:
    make(tmp_path / str(PARTITION), CASES["sources not yet deleted"][0])
    note = (
        f"{PARTITION}: {0:020}.log.swap is read instead of {0:020}.log, {10:020}.log, as a broker does when it starts: "
        "the folder was copied, or its broker ended, while the log cleaner replaced segments"
    )
    assert describe(tmp_path).notes == [note]


def test_no_record_is_deleted(tmp_path: Path) -> None:
    partition = tmp_path / str(PARTITION)
    make(partition, CASES["sources not yet deleted"][0])
    content = sorted(path.read_bytes() for path in partition.iterdir())
    recover(tmp_path)
    assert sorted(path.read_bytes() for path in partition.iterdir()) == content


@pytest.mark.parametrize("renames", range(4))
def test_an_interrupted_recovery_is_completed(renames: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / str(PARTITION), CASES["sources not yet deleted"][0])
    expected = [*read_all(tmp_path)[0]]
    rename, done = Path.rename, 0

    def limited(path: Path, target: Path | str) -> Path:
        nonlocal done
        if done == renames:
            raise KeyboardInterrupt
        done += 1
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", limited)
    if renames < 3:
        with pytest.raises(KeyboardInterrupt):
            recover(tmp_path)
    monkeypatch.undo()
    assert [*read_all(tmp_path)[0]] == expected
    recover(tmp_path)
    assert [*read_all(tmp_path)[0]] == expected
    assert logs(tmp_path / str(PARTITION)) == [f"{0:020}.log", f"{20:020}.log"]


def test_what_a_swap_replaced_does_not_return_when_the_log_is_cut(tmp_path: Path) -> None:
    partition = tmp_path / str(PARTITION)
    make(partition, CASES["sources not yet deleted"][0])
    recover(tmp_path)
    delete(plan_cut(tmp_path, PARTITION, 20))
    assert [segment.base_offset for segment in segments_of(partition)] == [20]


@pytest.mark.broker
@pytest.mark.long
def test_a_broker_reads_the_same(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    topic, copies = "swapped", tmp_path / "copies"
    with Broker(tmp_path / "broker") as broker:
        create_topic(broker.bootstrap, topic, len(CASES))
        broker.stop()
        for number, (shape, _) in enumerate(CASES.values()):
            partition = broker.data_dir / f"{topic}-{number}"
            for path in partition.glob("0*"):
                path.unlink()
            make(partition, shape)
        shutil.copytree(broker.data_dir, copies)
        broker.start()
        broker.stop()
    for number, name in enumerate(CASES):
        partition = f"{topic}-{number}"
        found = {path.name: path.read_bytes() for path in (broker.data_dir / partition).glob("*.log")}
        ours = {f"{each.base_offset:020}.log": each.path.read_bytes() for each in segments_of(copies / partition)}
        assert ours == {each: data for each, data in found.items() if data or each in ours}, name
