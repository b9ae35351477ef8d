"""The answers that pages show: queries of the command line, with those about all groups cached by table versions."""

import threading
from collections import OrderedDict
from collections.abc import Callable

import pyarrow as pa

from offsetlake.console.state import PAGE_ROWS, PageState
from offsetlake.lake.foreign.guard import refuse_changed
from offsetlake.lake.lake import Lake
from offsetlake.location.locate import LakeLocation
from offsetlake.queries import questions
from offsetlake.queries.as_of import groups_as_of, offsets_as_of

_MAX_CACHED = 8
_MAX_QUERIES_AT_ONCE = 2  # each may use the memory that the engine permits

_Key = tuple[object, ...]


class Answers:
    """Queries over one lake. Methods block, and may be called by several threads."""

    def __init__(self, location: LakeLocation) -> None:
        self._location = location
        self._cache: OrderedDict[_Key, pa.Table] = OrderedDict()
        self._cache_lock = threading.Lock()
        self._running = threading.BoundedSemaphore(_MAX_QUERIES_AT_ONCE)

    def groups(self, state: PageState) -> tuple[pa.Table, int]:
        """Return one page of groups, with the columns of `questions.groups`, and the number of groups on all pages."""
        lake = self._open()
        at_ms = state.at_ms
        tables = ("groups", "offsets") if at_ms is None else ("offset_commits", "transaction_markers", "group_records")
        key = ("groups", at_ms, *lake.versions(*tables).values())

        def query() -> pa.Table:
            return questions.groups(lake) if at_ms is None else groups_as_of(lake, at_ms)

        rows = questions.like(self._cached(key, query), state.pattern)
        if state.state:
            rows = rows.filter(pa.compute.equal(rows["state"], state.state))
        column = state.sort.removeprefix("-")
        order = [(column, "descending" if state.sort.startswith("-") else "ascending"), ("group_id", "ascending")]
        rows = rows.sort_by(order[: 1 if column == "group_id" else 2])
        return rows.slice((state.page - 1) * PAGE_ROWS, PAGE_ROWS), rows.num_rows

    def group(self, state: PageState) -> tuple[pa.Table, int]:
        """Return one page of a group's offsets, with the columns of `offsets`, and the number of them on all pages.

        Raises BadRequest if the group has never committed.
        """
        lake, at_ms = self._open(), state.at_ms
        with self._running:
            rows = questions.offsets(lake, state.group) if at_ms is None else offsets_as_of(lake, at_ms, state.group)
            if not rows.num_rows:
                questions.check_committed(lake, state.group)
        return rows.slice((state.page - 1) * PAGE_ROWS, PAGE_ROWS), rows.num_rows

    def commits(self, state: PageState) -> tuple[pa.Table, bool]:
        """Return one page of the commits of a partition, as `questions.history`, and whether there is a next page.

        Raises BadRequest if no offset of the partition was ever committed.
        """
        lake = self._open()
        with self._running:
            questions.check_committed(lake, state.group, state.topic, state.partition)
            skipped = (state.page - 1) * PAGE_ROWS
            rows = questions.history(lake, state.group, state.topic, state.partition, PAGE_ROWS + 1, skipped)
        return rows.slice(0, PAGE_ROWS), rows.num_rows > PAGE_ROWS

    def _open(self) -> Lake:
        lake = Lake.open(self._location)
        refuse_changed(lake)
        return lake

    def _cached(self, key: _Key, query: Callable[[], pa.Table]) -> pa.Table:
        with self._running:
            with self._cache_lock:
                if key in self._cache:
                    self._cache.move_to_end(key)
                    return self._cache[key]
            answer = query()
            with self._cache_lock:
                self._cache[key] = answer
                while len(self._cache) > _MAX_CACHED:
                    self._cache.popitem(last=False)
        return answer
