"""Pages of groups over all layers: each group once, in one order, whatever happens between two pages."""

import asyncio
from collections.abc import Callable, Mapping
from zlib import crc32

import pytest

from offsetlake.serve.storage.group_details import GroupKind
from offsetlake.serve.storage.memtable import VALUE
from offsetlake.serve.storage.store import Store, key
from offsetlake.web.http.api import group_pages
from support.serve.mapped_snapshots import Key, mapped_snapshot

NO_OFFSETS: Mapping[Key, Mapping[str, object]] = {}
_VALUE = VALUE.pack(1, -1, bytes(16))


def page(
    store: Store, min_hash: int, limit: int, matches: Callable[[bytes, GroupKind], bool]
) -> tuple[list[tuple[bytes, GroupKind]], int | None]:
    return asyncio.run(group_pages.page(store, min_hash, limit, matches))


def committed(store: Store, *names: str) -> None:
    for name in names:
        store.commit(name.encode(), {key(b"t", 0): _VALUE}, 0)


def names(store: Store, limit: int, between: list[str] | None = None) -> list[str]:
    """Return the groups of all pages; the groups `between` are committed one by one between the pages."""
    listed: list[str] = []
    begin: int | None = 0
    while True:
        groups, begin = page(store, begin, limit, lambda _name, _kind: True)
        assert len(groups) <= limit
        listed += [name.decode() for name, _ in groups]
        if begin is None:
            return listed
        if between:
            committed(store, between.pop())


def three_layers() -> tuple[Store, set[str]]:
    store = Store()
    store.load(mapped_snapshot({(f"old-{number}", "t", 0): {} for number in range(20)}))
    committed(store, "older-1", "older-2", "old-3")
    store.begin_refresh()
    committed(store, "new-1", "new-2", "old-4", "older-1", "")
    store.delete_group(b"old-5", 0)
    store.delete_group(b"older-2", 0)
    groups = {f"old-{number}" for number in range(20)} - {"old-5"} | {"older-1", "new-1", "new-2", ""}
    return store, groups


@pytest.mark.parametrize("limit", [1, 2, 7, 1000])
@pytest.mark.parametrize("examined", [1, 3, 5000])
def test_each_group_is_on_exactly_one_page(monkeypatch: pytest.MonkeyPatch, limit: int, examined: int) -> None:
    monkeypatch.setattr(group_pages, "MAX_EXAMINED_GROUPS", examined)
    store, groups = three_layers()
    found = names(store, limit)
    assert sorted(found) == sorted(groups)
    assert found == names(store, 1000)


def test_groups_created_between_pages_neither_hide_nor_duplicate_others() -> None:
    store, groups = three_layers()
    created = [f"created-{number}" for number in range(9)] + ["old-7"]
    found = names(store, 2, list(created))
    assert groups <= set(found) <= groups | set(created)
    assert len(found) == len(set(found))


def test_page_without_matches_ends_after_the_examined_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_pages, "MAX_EXAMINED_GROUPS", 4)
    store, existing = three_layers()
    pages = 0
    begin: int | None = 0
    while begin is not None:
        groups, begin = page(store, begin, 10, lambda _name, _kind: False)
        assert groups == []
        pages += 1
    assert pages == -(-(len(existing) + 2) // 4)  # the two deleted groups are examined, too
    empty = Store()
    empty.load(mapped_snapshot(NO_OFFSETS))
    assert page(empty, 0, 10, lambda _name, _kind: True) == ([], None)


@pytest.mark.parametrize("examined", [1, 5000])
def test_groups_with_the_same_hash_are_on_one_page(monkeypatch: pytest.MonkeyPatch, examined: int) -> None:
    monkeypatch.setattr(group_pages, "MAX_EXAMINED_GROUPS", examined)
    store = Store()
    store.load(mapped_snapshot({("plumless", "t", 0): {}, ("first", "t", 0): {}, ("last", "t", 0): {}}))
    committed(store, "buckeroo")
    found, begin = page(store, crc32(b"plumless"), 1, lambda _name, _kind: True)
    assert [name for name, _ in found] == [b"buckeroo", b"plumless"]
    has_more = any(crc32(name) > crc32(b"plumless") for name in (b"first", b"last"))
    assert (begin is not None) == has_more


def test_end_of_a_page_is_not_the_hash_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    store, groups = three_layers()
    monkeypatch.setattr(group_pages, "MAX_EXAMINED_GROUPS", 1)
    begin: int | None = 0
    ends = []
    while begin is not None:
        _, begin = page(store, begin, 1, lambda _name, _kind: False)
        ends.append(begin)
    assert len(ends) > len(groups)
    assert not {crc32(name.encode()) for name in groups} & {*ends}


@pytest.mark.parametrize("turns", range(6))
def test_page_interrupted_by_a_refresh_is_consistent(monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
    monkeypatch.setattr(group_pages, "STEP_GROUPS", 4)
    store, groups = three_layers()
    store.merge_back()
    snapshot = mapped_snapshot({(name, "t", 0): {} for name in groups})

    async def page_with_a_refresh() -> list[tuple[bytes, GroupKind]]:
        task = asyncio.create_task(group_pages.page(store, 0, 1000, lambda _name, _kind: True))
        for _ in range(1 + turns):
            await asyncio.sleep(0)
        assert not task.done()
        committed(store, "old-1")
        store.begin_refresh()
        store.finish_refresh(snapshot).clear()
        found, _ = await task
        return found

    assert sorted(name.decode() for name, _ in asyncio.run(page_with_a_refresh())) == sorted(groups)
