"""One process writes to a log at a time, and none to a broker's own."""

import os
from pathlib import Path

import pytest

from offsetlake.errors import LogBusy, LogUnavailable
from offsetlake.log.writer.ownership import owned


def test_second_owner_gets_name_of_first(tmp_path: Path) -> None:
    with owned(tmp_path, "emit"):
        holder = rf"emit \(process {os.getpid()}\) writes to the log"
        with pytest.raises(LogBusy, match=holder) as refused, owned(tmp_path, "serve"):
            pass
        assert refused.value.exit_code == 7
    with owned(tmp_path, "serve"):
        pass


def test_the_lock_of_a_process_that_ended_is_free(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        with owned(tmp_path, "killed"):
            os._exit(0)
    os.waitpid(child, 0)
    with owned(tmp_path, "next"):
        pass


def test_broker_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    with pytest.raises(LogBusy, match="belongs to a broker"), owned(tmp_path, "emit"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["meta.properties"]


def test_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(LogUnavailable, match="No such file"), owned(tmp_path / "gone", "emit"):
        pass
