"""A scratch copy is a consistent state of a lake, and writes to it do not reach the lake."""

from pathlib import Path

import pytest

from offsetlake.errors import BadRequest
from offsetlake.lake.definitions import LAKE_VERSION
from offsetlake.lake.lake import Lake
from offsetlake.lake.location import linked_copy
from offsetlake.lake.scratch import scratch
from support.queries.lakes import commit, small_lake

Files = dict[Path, tuple[bytes, int]]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return small_lake(tmp_path / "lake", offset_commits=[commit(1, 5)])


def files(folder: Path) -> Files:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def test_writes_to_the_copy_do_not_reach_the_lake(lake: Lake, tmp_path: Path) -> None:
    lake.files.write("plan-ingest.json", {"run_id": 2})
    before = files(lake.location.path)
    with lake.lock("a job"), scratch(lake) as copy:
        small_lake(copy.location.path, offset_commits=[commit(2, 6)])
        assert copy.files.read("plan-ingest.json") == {"run_id": 2}
        copy.files.write("plan-ingest.json", {"run_id": 3})
        copy.files.remove("plan-ingest.json")
        with copy.lock("another job"):
            assert (copy.count("offset_commits"), lake.count("offset_commits")) == (2, 1)
    lock = lake.location.path / "lock"
    assert {path: of for path, of in files(lake.location.path).items() if path != lock} == {
        path: of for path, of in before.items() if path != lock
    }
    assert not copy.location.path.exists()


def test_older_lake_is_upgraded_only_in_the_copy(lake: Lake) -> None:
    (lake.location.path / "offsetlake.json").write_text('{"version": 1}')
    before = files(lake.location.path)
    with scratch(lake) as copy:
        assert copy.files.read("offsetlake.json") == {"version": LAKE_VERSION}
    assert files(lake.location.path) == before


def test_copy_is_a_consistent_state(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job commits to a table that is linked already, and takes its plan away."""
    lake.files.write("plan-ingest.json", {"run_id": 2})
    taken, state = 0, linked_copy._state

    def committing(of: Path) -> object:
        nonlocal taken
        taken += 1
        if taken == 2:
            small_lake(lake.location.path, offset_commits=[commit(2, 6)])
        if taken == 4:
            lake.files.remove("plan-ingest.json")
        return state(of)

    monkeypatch.setattr(linked_copy, "_state", committing)
    with scratch(lake) as copy:
        assert taken == 6
        assert copy.count("offset_commits") == 2
        assert copy.files.read("plan-ingest.json") is None


def test_errors_name_the_lake_instead_of_the_copy(lake: Lake) -> None:
    with pytest.raises(BadRequest) as raised, scratch(lake) as copy:
        raise BadRequest(f"there is no group in {copy.location.path}")
    assert str(raised.value) == f"there is no group in {lake.location.path}"
