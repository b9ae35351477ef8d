"""Queries over one lake, whose answers are kept by the versions of their tables."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeVar

import pyarrow as pa

from offsetlake.lake.history.history_files import ALL_RUNS, history_files
from offsetlake.lake.lake import Lake
from offsetlake.lake.location.locate import LakeLocation
from offsetlake.queries import selection
from offsetlake.web.console.access import Visitor
from offsetlake.web.console.answer_cache import AnswerCache
from offsetlake.web.console.answer_cache import Key as CacheKey
from offsetlake.web.console.background import Compressed, computed
from offsetlake.web.console.page_lake import PageLake
from offsetlake.web.console.state import PageState

T = TypeVar("T")


class KeptAnswers:
    """Runs queries and keeps their answers. Methods block, and may be called by several threads."""

    def __init__(self, location: LakeLocation) -> None:
        self._location, self._lake = location, PageLake(location)
        self.cache = AnswerCache()

    def open(self) -> Lake:
        """Return the lake as it was when the page began; raise TableChanged if another program changed a table."""
        return self._lake.open()

    def rows(self, query: Callable[[Lake], pa.Table]) -> pa.Table:
        """Return the answer of a query, which waits for its turn; the caller omits what a visitor must not see."""
        lake = self.open()
        return self.cache.run(lambda: query(lake))

    def soon(self, what: str, compute: Callable[[Lake], T]) -> T | None:
        """Return a small answer about the whole lake, kept until a table changes; None if it takes a while."""
        lake = self.open()
        found: T | None = self.cache.soon((what, *lake.versions().values()), lambda: compute(lake))
        return found

    def later(self, what: str, tables: Sequence[str], compute: Callable[[Lake], T]) -> T | None:
        """Return an answer about the whole lake, computed again when one of its tables has changed.

        None if it is still being computed. Raises what the function of a module raises.
        """
        return self.later_by((what, *self.open().versions(*tables).values()), compute)

    def later_by(self, key: CacheKey, compute: Callable[..., T], *arguments: object) -> T | None:
        """Return an answer as `later` does, of a function with these arguments, by the key of what it depends on."""
        found: Compressed[T] | None = self.cache.later(key, lambda: computed(self._location, compute, *arguments))
        return None if found is None else found.answer()

    def kept(self, what: str, state: PageState, visitor: Visitor, query: Callable[[Lake], T]) -> T:
        """Return an answer about a group that fits on a page; it is kept until a table changes.

        `query` is called, and refuses, if the visitor does not see the group.
        """
        lake = self.open()
        if not visitor.sees(state.group):
            return self.cache.run(lambda: query(lake))
        found: T = self.cache.get((what, state, *lake.versions().values()), lambda: query(lake))
        return found

    @staticmethod
    def until(lake: Lake, what: str, *instants: int) -> CacheKey:
        """Return a key that changes only if a file is added or removed that can have records until the last instant."""
        tables = ("offset_commits", "transaction_markers", "group_records")
        files = (history_files(lake, table, 0, ALL_RUNS, max(instants)) for table in tables)
        return (what, instants, frozenset(chain(*files)))

    @staticmethod
    def check_visible(lake: Lake, state: PageState, visitor: Visitor) -> None:
        """Raise the error of a group that has never committed if the visitor may not read the group."""
        if not visitor.sees(state.group):
            raise selection.never_committed(lake, state.group, state.topic, state.partition)

    def pattern(self, state: PageState, visitor: Visitor) -> str | None:
        """Return the shell pattern for the groups of a page, by the rules of the command line (`name_or_pattern`).

        A group that the visitor does not see is treated as one that does not exist.
        """
        lake, pattern = self.open(), state.pattern
        if pattern != state.q or not visitor.sees(pattern):  # a part of names, none, or a pattern
            return pattern
        versions = lake.versions("groups", "offsets", "offset_commits", "group_records").values()
        found: str | None = self.cache.get(
            ("pattern", pattern, *versions), lambda: selection.name_or_pattern(lake, pattern)
        )
        return found
