"""Pages of groups over all layers: each group once, in one order, whatever is folded between two pages."""

import asyncio
from collections.abc import Callable, Mapping
from zlib import crc32

import pytest

from offsetlake.serve.http import group_pages
from offsetlake.serve.http.group_pages import Kind
from offsetlake.serve.storage.store import VALUE, Store, key
from support.serve.mapped_snapshots import Key, mapped_snapshot

NO_OFFSETS: Mapping[Key, Mapping[str, object]] = {}
_VALUE = VALUE.pack(1, -1, bytes(16))


def page(
    store: Store, begin: int, most: int, wanted: Callable[[bytes, Kind], bool]
) -> tuple[list[tuple[bytes, Kind]], int | None]:
    return asyncio.run(group_pages.page(store, begin, most, wanted))


def committed(store: Store, *names: str) -> None:
    for name in names:
        store.commit(name.encode(), {key(b"t", 0): _VALUE}, 0)


def names(store: Store, most: int, between: list[str] | None = None) -> list[str]:
    """Read all pages; the groups `between` are committed one by one between them."""
    found: list[str] = []
    begin: int | None = 0
    while True:
        groups, begin = page(store, begin, most, lambda _name, _kind: True)
        assert len(groups) <= most
        found += [name.decode() for name, _ in groups]
        if begin is None:
            return found
        if between:
            committed(store, between.pop())


def three_layers() -> tuple[Store, set[str]]:
    store = Store()
    store.load(mapped_snapshot({(f"base-{number}", "t", 0): {} for number in range(20)}))
    committed(store, "frozen-1", "frozen-2", "base-3")
    store.freeze()
    committed(store, "fresh-1", "fresh-2", "base-4", "frozen-1", "")
    store.delete_group(b"base-5", 0)
    store.delete_group(b"frozen-2", 0)
    there = {f"base-{number}" for number in range(20)} - {"base-5"} | {"frozen-1", "fresh-1", "fresh-2", ""}
    return store, there


@pytest.mark.parametrize("most", [1, 2, 7, 1000])
@pytest.mark.parametrize("looked_at", [1, 3, 5000])
def test_each_group_is_on_one_page(monkeypatch: pytest.MonkeyPatch, most: int, looked_at: int) -> None:
    monkeypatch.setattr(group_pages, "LOOKED_AT", looked_at)
    store, there = three_layers()
    found = names(store, most)
    assert sorted(found) == sorted(there)
    assert found == names(store, 1000)


def test_what_comes_between_pages_hides_and_doubles_nothing() -> None:
    store, there = three_layers()
    come = [f"come-{number}" for number in range(9)] + ["base-7"]
    found = names(store, 2, list(come))
    assert there <= set(found) <= there | set(come)
    assert len(found) == len(set(found))


def test_a_page_has_what_was_wanted_and_goes_on_behind_what_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_pages, "LOOKED_AT", 4)
    store, there = three_layers()
    looked = 0
    begin: int | None = 0
    while begin is not None:
        groups, begin = page(store, begin, 10, lambda _name, _kind: False)
        assert groups == []
        looked += 1
    assert looked == -(-(len(there) + 2) // 4)  # the two that are deleted are looked at too
    empty = Store()
    empty.load(mapped_snapshot(NO_OFFSETS))
    assert page(empty, 0, 10, lambda _name, _kind: True) == ([], None)


@pytest.mark.parametrize("looked_at", [1, 5000])
def test_groups_of_one_hash_are_on_one_page(monkeypatch: pytest.MonkeyPatch, looked_at: int) -> None:
    monkeypatch.setattr(group_pages, "LOOKED_AT", looked_at)
    store = Store()
    store.load(mapped_snapshot({("plumless", "t", 0): {}, ("first", "t", 0): {}, ("last", "t", 0): {}}))
    committed(store, "buckeroo")
    found, begin = page(store, crc32(b"plumless"), 1, lambda _name, _kind: True)
    assert [name for name, _ in found] == [b"buckeroo", b"plumless"]
    behind = any(crc32(name) > crc32(b"plumless") for name in (b"first", b"last"))
    assert (begin is not None) == behind


def test_where_a_page_ends_tells_little_of_what_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    store, there = three_layers()
    monkeypatch.setattr(group_pages, "LOOKED_AT", 1)
    begin: int | None = 0
    ends = []
    while begin is not None:
        _, begin = page(store, begin, 1, lambda _name, _kind: False)
        ends.append(begin)
    assert len(ends) > len(there)
    assert not {crc32(name.encode()) for name in there} & {*ends}


@pytest.mark.parametrize("turns", range(6))
def test_others_are_answered_while_a_page_is_made_and_it_is_of_one_moment(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    monkeypatch.setattr(group_pages, "AT_ONCE", 4)
    store, there = three_layers()
    store.thaw()
    everything = mapped_snapshot({(name, "t", 0): {} for name in there})

    async def with_a_fold_in_between() -> list[tuple[bytes, Kind]]:
        made = asyncio.create_task(group_pages.page(store, 0, 1000, lambda _name, _kind: True))
        for _ in range(1 + turns):
            await asyncio.sleep(0)
        assert not made.done()
        committed(store, "base-1")
        store.freeze()
        store.fold(everything).clear()
        found, _ = await made
        return found

    assert sorted(name.decode() for name, _ in asyncio.run(with_a_fold_in_between())) == sorted(there)
