"""A page opens the lake once, and shows it as it was then; the next page shows what has been committed since."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from offsetlake.lake.foreign.guard import VerifiedLake
from offsetlake.web.console.page_lake import OPENED, PageLake
from support.console.served import Page, get, served
from support.queries.lakes import commit, small_lake


@contextmanager
def page() -> Iterator[None]:
    token = OPENED.set({})
    yield
    OPENED.reset(token)


def test_answers_of_a_page_are_of_one_version(tmp_path: Path) -> None:
    lake = small_lake(tmp_path, offset_commits=[commit(1, 10)])
    opener = PageLake(lake.location)
    with page():
        first = opener.open()
        small_lake(tmp_path, offset_commits=[commit(2, 20)])
        assert opener.open() is first
        assert first.count("offset_commits") == 1
    with page():
        assert opener.open().count("offset_commits") == 2
    assert opener.open() is not opener.open()


def test_pages_open_the_lake_once_and_show_new_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_lake(tmp_path, offset_commits=[commit(1, 10)])
    opened: list[object] = []
    real = VerifiedLake.open
    monkeypatch.setattr(VerifiedLake, "open", lambda self: opened.append(self) or real(self))
    address = "/partition?group=g&topic=t&partition=0"
    with served(tmp_path) as port:
        assert len(Page(get(port, address).text).rows) == 1
        assert len(opened) == 1
        small_lake(tmp_path, offset_commits=[commit(2, 20)])
        assert len(Page(get(port, address).text).rows) == 2
        assert get(port, "/group?group=g").status == 200
        assert len(opened) == 3


def test_pages_share_engines_while_the_versions_are_the_same(tmp_path: Path) -> None:
    lake = small_lake(tmp_path, offset_commits=[commit(1, 10)])
    opener = PageLake(lake.location)
    first, second = opener.open(), opener.open()
    shared = first.engine(["offset_commits"], {})
    assert second.engine(["offset_commits"], {}) is shared
    own = first.engine(["offset_commits"], {}, {"offset_commits": "log_offset = 2"})
    assert own.query("SELECT log_offset FROM offset_commits").num_rows == 0
    small_lake(tmp_path, offset_commits=[commit(2, 20)])
    assert opener.open().query("SELECT log_offset FROM offset_commits", "offset_commits").num_rows == 2
    assert first.query("SELECT log_offset FROM offset_commits", "offset_commits").num_rows == 1
