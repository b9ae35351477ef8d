import asyncio
import gc
import weakref

import pytest

from offsetlake.serve.garbage import without_collections


class Node:
    """An object that refers to itself, which only a collection can free."""

    def __init__(self) -> None:
        self.itself = self


def test_what_is_loaded_is_never_collected() -> None:
    loaded: list[weakref.ref[Node]] = []

    async def load() -> None:
        assert not gc.isenabled()
        loaded.append(weakref.ref(Node()))

    try:
        asyncio.run(without_collections(load()))
        assert gc.isenabled()
        later = weakref.ref(Node())
        gc.collect()
        assert loaded[0]() is not None, "it was not examined"
        assert later() is None
    finally:
        gc.unfreeze()


def test_collections_continue_after_a_failure() -> None:
    async def load() -> None:
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        asyncio.run(without_collections(load()))
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
