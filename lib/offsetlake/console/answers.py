"""The answers that pages show: queries of the command line, with those about all groups cached by table versions."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, TypeVar

import pyarrow as pa

from offsetlake.console.access import Visitor
from offsetlake.console.state import PAGE_ROWS, PageState
from offsetlake.lake.definitions import LAKE_VERSION
from offsetlake.lake.foreign.guard import refuse_changed
from offsetlake.lake.history_files import ALL_RUNS, history_files
from offsetlake.lake.lake import Lake
from offsetlake.location.locate import LakeLocation
from offsetlake.queries import questions
from offsetlake.queries.as_of import groups_as_of, offsets_as_of
from offsetlake.queries.diff import diff, diff_by_group
from offsetlake.queries.exploring.commits import Filters, commits_page, parse_position
from offsetlake.queries.exploring.group_state import Row, expiry, group_at, group_now
from offsetlake.queries.exploring.keys import Key
from offsetlake.queries.exploring.names import KINDS, Names, committed_to, events_by, memberships
from offsetlake.queries.exploring.series import Series, notable_changes, series
from offsetlake.queries.exploring.step import Step, step
from offsetlake.queries.exploring.timeline import Timeline, Timelines
from offsetlake.rules.policy import RetentionPolicy

MAX_NOTABLE = 20
MAX_FOUND = 8
MAX_LISTED = 500
_MAX_CACHED = 8
_MAX_SMALL = 200  # answers of at most some hundred rows
_MAX_QUERIES_AT_ONCE = 2  # each may use the memory that the engine permits

_Key = tuple[object, ...]
T = TypeVar("T")


class Answers:
    """Queries over one lake. Methods block, and may be called by several threads."""

    def __init__(self, location: LakeLocation) -> None:
        self._location = location
        self._cache: OrderedDict[_Key, pa.Table] = OrderedDict()
        self._small: OrderedDict[_Key, Any] = OrderedDict()
        self._cache_lock = threading.Lock()
        self._timelines, self._timeline_lock = Timelines(), threading.Lock()
        self._timeline: Timeline | None = None
        self._timeline_versions: tuple[int, ...] = ()
        self._names, self._names_lock = Names(), threading.Lock()
        self._names_versions: tuple[int, ...] = ()
        self._running = threading.BoundedSemaphore(_MAX_QUERIES_AT_ONCE)

    def groups(self, state: PageState, visitor: Visitor) -> tuple[pa.Table, int]:
        """Return one page of the groups that a visitor sees, as `questions.groups`, and the number on all pages.

        With two instants, the groups that differ between them, with the columns of `diff_by_group`.
        """
        lake, at_ms, span = self.open(), state.at_ms, state.span_ms
        if span is not None:
            rows = self._cached(self._until(lake, "diff", *span), lambda: diff_by_group(lake, *span))
            rows = visitor.visible(questions.like(rows, state.pattern))
            return rows.slice((state.page - 1) * PAGE_ROWS, PAGE_ROWS), rows.num_rows
        if at_ms is None:
            key = ("groups", *lake.versions("groups", "offsets").values())
            rows = self._cached(key, lambda: questions.groups(lake))
        else:
            rows = self._cached(self._until(lake, "groups", at_ms), lambda: groups_as_of(lake, at_ms))
        rows = visitor.visible(questions.like(rows, state.pattern))
        if state.state:
            rows = rows.filter(pa.compute.equal(rows["state"], state.state))
        column = state.sort.removeprefix("-")
        order = [(column, "descending" if state.sort.startswith("-") else "ascending"), ("group_id", "ascending")]
        rows = rows.sort_by(order[: 1 if column == "group_id" else 2])
        return rows.slice((state.page - 1) * PAGE_ROWS, PAGE_ROWS), rows.num_rows

    def group(self, state: PageState, visitor: Visitor) -> tuple[pa.Table, int]:
        """Return one page of a group's offsets, with the columns of `offsets`, and the number of them on all pages.

        With two instants, the offsets that differ between them, with the columns of `diff`. Raises BadRequest if the
        group has never committed, or if the visitor may not read it.
        """
        at_ms, span = state.at_ms, state.span_ms

        def query(lake: Lake) -> tuple[pa.Table, int]:
            if span is not None:
                rows = diff(lake, *span, state.group)
            elif at_ms is not None:
                rows = offsets_as_of(lake, at_ms, state.group)
            else:
                rows = questions.offsets(lake, state.group)
            if not visitor.sees(state.group):
                raise questions.never_committed(lake, state.group)
            if not rows.num_rows:
                questions.check_committed(lake, state.group)
            shown = range((state.page - 1) * PAGE_ROWS, min(state.page * PAGE_ROWS, rows.num_rows))
            return rows.take(pa.array(shown, pa.int64())), rows.num_rows

        return self._kept("group", state, visitor, query)

    def timeline(self) -> Timeline | None:
        """Return the timeline of the log; None if no record has a timestamp."""
        lake = self.open()
        versions = (*lake.versions("offset_commits", "group_records", "alterations", "runs").values(),)
        with self._timeline_lock:
            if versions != self._timeline_versions:
                self._timeline, self._timeline_versions = self._timelines.timeline(lake), versions
            return self._timeline

    def commits(self, state: PageState, visitor: Visitor) -> tuple[pa.Table, bool]:
        """Return one page of the commits of a partition, as `questions.history`, and whether there is a next page.

        Raises BadRequest if no offset of the partition was ever committed, or if the visitor may not read the group.
        """
        key, filters = Key(state.group, state.topic, state.partition), Filters(state.event, state.who, *state.period_ms)

        def query(lake: Lake) -> tuple[pa.Table, bool]:
            self._check_visible(lake, state, visitor)
            rows, more = commits_page(lake, key, state.before, filters, PAGE_ROWS)
            if not rows.num_rows:
                questions.check_committed(lake, state.group, state.topic, state.partition)
            return rows, more

        return self._kept("commits", state, visitor, query)

    def has_views(self) -> bool:
        """Check whether the tables have the columns of the views; those of an older lake lack some."""
        return self.open().version() == LAKE_VERSION

    def notable(self, state: PageState, visitor: Visitor) -> tuple[pa.Table, int]:
        """Return the newest changes that are not plain commits, and their number, of a group that the visitor sees."""
        return self._kept(
            "notable", state, visitor, lambda lake: notable_changes(lake, state.group, *state.period_ms, MAX_NOTABLE)
        )

    def members(self, state: PageState, visitor: Visitor) -> tuple[Row | None, Sequence[Row]]:
        """Return a group that the visitor sees, and its members; between two instants at the later one."""
        until_ms = state.span_ms[1] if state.span_ms else state.at_ms
        return self._kept(
            "members", state, visitor,
            lambda lake: group_now(lake, state.group) if until_ms is None else group_at(lake, state.group, until_ms),
        )  # fmt: skip

    def expiry(self, state: PageState, visitor: Visitor, policy: RetentionPolicy) -> pa.Table:
        """Return when the offsets of a group that the visitor sees expire with a policy, by the newest state."""
        return self._kept("expiry", state, visitor, lambda lake: expiry(lake, state.group, policy))

    def series(self, state: PageState, visitor: Visitor) -> Series:
        """Return what the chart of a partition shows; raises BadRequest as `commits`."""

        def query(lake: Lake) -> Series:
            self._check_visible(lake, state, visitor)
            found = series(lake, state.group, state.topic, state.partition, *state.period_ms)
            if not found.steps.num_rows:
                questions.check_committed(lake, state.group, state.topic, state.partition)
            return found

        return self._kept("series", state, visitor, query)

    def step(self, state: PageState, visitor: Visitor) -> Step:
        """Return what is known about the record `record`; raises BadRequest if it is not one of the partition."""
        position = parse_position(state.record)

        def query(lake: Lake) -> Step:
            self._check_visible(lake, state, visitor)
            return step(lake, state.group, state.topic, state.partition, *position)

        return self._kept("step", state, visitor, query)

    def search(self, text: str, visitor: Visitor) -> list[tuple[str, str]]:
        """Return kinds and names that contain a text; only groups for visitors that do not see all groups."""
        if not text:
            return []
        lake = self.open()
        versions = (*lake.versions("offset_commits", "group_records", "audit_events", "group_members").values(),)
        with self._names_lock:
            if versions != self._names_versions:
                self._names.update(lake)
                self._names_versions = versions
            kinds = KINDS if visitor.access.sees_all() else ("group",)
            return [(kind, name) for kind in kinds for name in self._names.find(kind, text, MAX_FOUND, visitor.sees)]

    def topic(self, state: PageState, visitor: Visitor) -> pa.Table:
        """Return the groups that the visitor sees and that have offsets of a topic.

        With two instants, the groups whose offsets of it differ, with the columns of `diff_by_group`.
        """
        span = state.span_ms
        if span is not None:
            return visitor.visible(self.rows(lambda lake: diff_by_group(lake, *span, state.topic)))
        return visitor.visible(self.rows(lambda lake: committed_to(lake, state.topic, MAX_LISTED, state.at_ms)))

    def client(self, state: PageState, principal: str, client_id: str, visitor: Visitor) -> tuple[pa.Table, pa.Table]:
        """Return the audit events of a principal or client id, and its memberships, of groups that the visitor sees.

        The events are those up to the instant, or between the two; the memberships are the newest ones.
        """
        events = self.rows(lambda lake: events_by(lake, principal, client_id, MAX_LISTED, *state.period_ms))
        members = self.rows(lambda lake: memberships(lake, client_id, MAX_LISTED))
        return visitor.visible(events), visitor.visible(members)

    @staticmethod
    def _check_visible(lake: Lake, state: PageState, visitor: Visitor) -> None:
        """Raise the error of a group that has never committed if the visitor may not read the group."""
        if not visitor.sees(state.group):
            raise questions.never_committed(lake, state.group, state.topic, state.partition)

    def rows(self, query: Callable[[Lake], pa.Table]) -> pa.Table:
        """Return the answer of a query, which waits for its turn; the caller omits what a visitor must not see."""
        lake = self.open()
        with self._running:
            return query(lake)

    def open(self) -> Lake:
        """Return the lake; raise TableChanged if another program changed a table."""
        lake = Lake.open(self._location)
        refuse_changed(lake)
        return lake

    @staticmethod
    def _until(lake: Lake, what: str, *instants: int) -> _Key:
        """Return a key that changes only if a file is added or removed that can have records until the last instant."""
        tables = ("offset_commits", "transaction_markers", "group_records")
        files = (history_files(lake, table, 0, ALL_RUNS, max(instants)) for table in tables)
        return (what, instants, frozenset(chain(*files)))

    def _cached(self, key: _Key, query: Callable[[], pa.Table]) -> pa.Table:
        """Return the answer to a query, of which there is one for each key."""
        answer = self._of_cache(key)
        if answer is None:
            with self._running:
                answer = self._of_cache(key)  # another request may have had the same query meanwhile
                if answer is None:
                    answer = query()
                    with self._cache_lock:
                        self._cache[key] = answer
                        while len(self._cache) > _MAX_CACHED:
                            self._cache.popitem(last=False)
        return answer

    def _kept(self, what: str, state: PageState, visitor: Visitor, query: Callable[[Lake], T]) -> T:
        """Return an answer about a group that fits on a page; it is kept until a table changes.

        `query` is called, and refuses, if the visitor does not see the group.
        """
        lake = self.open()
        key = (what, state, *lake.versions().values())
        with self._cache_lock:
            if key in self._small and visitor.sees(state.group):
                self._small.move_to_end(key)
                found: T = self._small[key]
                return found
        with self._running:
            answer = query(lake)
        with self._cache_lock:
            self._small[key] = answer
            while len(self._small) > _MAX_SMALL:
                self._small.popitem(last=False)
        return answer

    def _of_cache(self, key: _Key) -> pa.Table | None:
        with self._cache_lock:
            if key in self._cache:
                self._cache.move_to_end(key)
            return self._cache.get(key)
