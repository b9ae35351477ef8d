"""The answers that pages show: queries of the command line, cached by the versions of their tables."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from glob import escape
from itertools import chain
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.console.access import VISITOR, Visitor
from offsetlake.console.answer_cache import AnswerCache
from offsetlake.console.answer_cache import Key as CacheKey
from offsetlake.console.background import (
    Compressed,
    computed,
    lag_for_people,
    lag_of_group,
    listed_groups,
    listed_groups_at,
    with_lag,
)
from offsetlake.console.page_lake import PageLake
from offsetlake.console.state import PAGE_ROWS, PageState
from offsetlake.errors import NotInLake, OffsetlakeError
from offsetlake.lake.data_files import FILE_ERRORS
from offsetlake.lake.definitions import LAKE_VERSION
from offsetlake.lake.files import active_files, has_files
from offsetlake.lake.history.history_files import ALL_RUNS, history_files
from offsetlake.lake.lake import Lake
from offsetlake.lake.location.locate import LakeLocation
from offsetlake.pipeline.changes.reset import as_of
from offsetlake.queries import questions
from offsetlake.queries.exploring.before_change import start_of_change
from offsetlake.queries.exploring.changes import Changes, classified
from offsetlake.queries.exploring.commits import Filters, commits_page, matching
from offsetlake.queries.exploring.group_state import Row, expiry, group_at, group_now
from offsetlake.queries.exploring.keys import Key
from offsetlake.queries.exploring.names import KINDS, Names, committed_to, events_by, members_by_client, memberships
from offsetlake.queries.exploring.packed import PackedInts, packed
from offsetlake.queries.exploring.selected_groups import selected
from offsetlake.queries.exploring.series import Series, notable_changes, recorded_ends, series
from offsetlake.queries.exploring.step import Step, step
from offsetlake.queries.exploring.steps import key_steps, steps_of_few
from offsetlake.queries.exploring.timeline import Timeline, Timelines
from offsetlake.queries.history.as_of import offsets_as_of
from offsetlake.queries.history.before import LogPosition, instant_before, parse_position
from offsetlake.queries.history.diff import diff, diff_by_group
from offsetlake.queries.in_doubt import TABLE, what_is_unknown
from offsetlake.queries.unread import unread
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.util.times import now_ms

MAX_NOTABLE = 20
MAX_FOUND = 8
MAX_LISTED = 500
_NO_LAGS = pa.table({"group_id": pa.array([], pa.string())})
_SORTED_BY = {"lag": "most", "status": "place"}
"""The columns of `with_lag` by which groups are sorted."""

_DECIDING = ("offset_commits", "transaction_markers", "alterations", "tombstones")
_MAX_SHARED_RECORDS = 1 << 18  # of a group; their changes take about 5 MB

T = TypeVar("T")


class ListedGroups(NamedTuple):
    """One page of groups.

    | Field       | Description |
    |-------------|-------------|
    | rows        | The groups of the page. |
    | total       | The number of groups on all pages. |
    | by_state    | The number of groups in each state, whatever state is selected; empty with two instants. |
    | has_lags    | Whether the lags are computed. |
    | lag_problem | Why they cannot be computed. |
    """

    rows: pa.Table
    total: int
    by_state: Mapping[str, int]
    has_lags: bool
    lag_problem: str


class BeforeChange(NamedTuple):
    """The offsets of a topic from before a change.

    | Field    | Description |
    |----------|-------------|
    | position | The first record of the change. |
    | instant  | The instant just before it, ms since the epoch; None if the offsets at no instant are the same. |
    | rows     | The plan that restores them, as `pipeline.changes.reset.as_of`. |
    """

    position: LogPosition
    instant: int | None
    rows: pa.Table


class Answers:
    """Queries over one lake. Methods block, and may be called by several threads."""

    def __init__(self, location: LakeLocation) -> None:
        self._location, self._lake = location, PageLake(location)
        self.cache = AnswerCache()
        self._timelines, self._names, self._reading = Timelines(), Names(), threading.Lock()
        self._unread = -1, list[str]()

    def groups(self, state: PageState, visitor: Visitor) -> ListedGroups | None:
        """Return one page of `listed_groups` that a visitor sees; None if the answer is still being computed.

        With two instants, the groups that differ between them, with the columns of `diff_by_group`. The newest state
        has the columns of `with_lag`, if log end offsets are recorded, as soon as the lags are computed; until then,
        groups that are to be sorted by lag are in the order of their names.
        """
        lake, at_ms, span = self.open(), state.at_ms, state.span_ms
        lags, problem = (_NO_LAGS, "") if at_ms is not None else self._lags_of_page(self.lags)
        self._prepare(lake)
        if span is not None:
            rows = self._later(self._until(lake, "diff", *span), diff_by_group, *span)
        elif at_ms is not None:
            rows = self._later(self._until(lake, "groups", at_ms), listed_groups_at, at_ms)
        else:
            key = ("groups", *lake.versions("groups", "offsets").values())
            rows = self.cache.soon(key, lambda: listed_groups(lake))
        if rows is None:
            return None
        pattern, by_state = self.pattern(state, visitor), dict[str, int]()
        if span is not None:
            found = selected(rows, pattern, visitor.visible)
        else:
            sort = "" if state.sort == "group_id" else state.sort  # the groups are in this order
            if (column := sort.removeprefix("-")) in _SORTED_BY:
                sort = sort.replace(column, _SORTED_BY[column]) if lags is not None and lags.num_rows else ""
                rows = with_lag(rows, lags) if sort else rows
            found = selected(rows, pattern, visitor.visible, sort)
            states = rows["state"].cast(pa.string()).take(found)
            by_state = {row["values"]: row["counts"] for row in pc.value_counts(states).to_pylist()}
            found = found.filter(pc.equal(states, state.state)) if state.state else found
        rows = rows.take(found.slice((state.page - 1) * PAGE_ROWS, PAGE_ROWS))
        if lags is not None and lags.num_rows and "lag" not in rows.column_names:
            rows = with_lag(rows, lags)
        return ListedGroups(rows, len(found), by_state, lags is not None, problem)

    def pattern(self, state: PageState, visitor: Visitor) -> str | None:
        """Return the shell pattern for the groups of a page, by the rules of the command line (`name_or_pattern`).

        A group that the visitor does not see is treated as one that does not exist.
        """
        lake, pattern = self.open(), state.pattern
        if pattern != state.q or not visitor.sees(pattern):  # a part of names, none, or a pattern
            return pattern
        versions = lake.versions("groups", "offsets", "offset_commits", "group_records").values()
        found: str | None = self.cache.get(
            ("pattern", pattern, *versions), lambda: questions.name_or_pattern(lake, pattern)
        )
        return found

    @staticmethod
    def _lags_of_page(read: Callable[[], pa.Table | None]) -> tuple[pa.Table | None, str]:
        """Return lags for a page that is shown without them if they cannot be computed, and why they cannot."""
        try:
            return read(), ""
        except NotInLake:  # nothing is committed or assigned
            return _NO_LAGS, ""
        except OffsetlakeError as error:
            return _NO_LAGS, str(error)

    def lags(self) -> pa.Table | None:
        """Return the rows of `lag_for_people`, none without recorded log ends; None while they are computed."""
        if not active_files(self.open(), "log_ends"):
            return _NO_LAGS
        return self.later("lag", ("log_ends", "runs"), lag_for_people)

    def group_lag(self, state: PageState, visitor: Visitor) -> tuple[pa.Table | None, str]:
        """Return the rows of `lag_of_group`, None while they are computed; and why they cannot be computed."""
        lake = self.open()
        self._check_visible(lake, state, visitor)
        if not active_files(lake, "log_ends"):
            return _NO_LAGS, ""
        key = ("lag of", state.group, *lake.versions("log_ends", "runs").values())
        return self._lags_of_page(lambda: self._later(key, lag_of_group, state.group))

    def _prepare(self, lake: Lake) -> None:
        """Begin to read what the first page of a group needs: the log partitions of all groups."""
        versions = lake.versions("offset_commits", "group_records").values()
        self.cache.start(("places", *versions), lambda: questions.log_partitions_of(lake, []))

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

    def timeline(self) -> tuple[Timeline | None, bool]:
        """Return the timeline of the log, None if no record has a timestamp; and whether it is computed already."""
        lake = self.open()
        versions = lake.versions("offset_commits", "group_records", "alterations", "runs").values()

        def timeline() -> tuple[Timeline | None, bool]:
            with self._reading:
                return self._timelines.timeline(lake), True

        found: tuple[Timeline | None, bool] | None = self.cache.soon(("timeline", *versions), timeline)
        return found or (None, False)

    def commits(self, state: PageState, visitor: Visitor) -> tuple[pa.Table, bool]:
        """Return one page of the commits of a partition, as `commits_page`, and whether there is a next page.

        Raises BadRequest if no offset of the partition was ever committed, or if the visitor may not read the group.
        """
        key, filters = Key(state.group, state.topic, state.partition), Filters(state.event, state.who, *state.period_ms)
        every: pa.Table | None = None
        if filters.are_of_rows and visitor.sees(state.group):
            newest = self.open()
            versions = newest.versions("audit_events", *_DECIDING).values()
            every = self.cache.get(("matching", key, filters, *versions), lambda: matching(newest, key, filters))

        def query(lake: Lake) -> tuple[pa.Table, bool]:
            self._check_visible(lake, state, visitor)
            rows, more = commits_page(lake, key, state.before, filters, PAGE_ROWS, every)
            if not rows.num_rows:
                questions.check_committed(lake, state.group, state.topic, state.partition)
            return rows, more

        return self._kept("commits", state, visitor, query)

    def has_views(self) -> bool:
        """Check whether the tables have the columns of the views; those of an older lake lack some."""
        return self.open().version() == LAKE_VERSION

    def notable(self, state: PageState, visitor: Visitor) -> tuple[pa.Table, int]:
        """Return the newest changes that are not plain commits, and their number, of a group that the visitor sees."""
        changes = self._group_changes(state, visitor)
        return self._kept(
            "notable", state, visitor,
            lambda lake: notable_changes(lake, state.group, *state.period_ms, MAX_NOTABLE, changes),
        )  # fmt: skip

    def members(self, state: PageState, visitor: Visitor) -> tuple[Row | None, Sequence[Row]]:
        """Return a group that the visitor sees, and its members; between two instants at the later one."""
        until_ms = state.span_ms[1] if state.span_ms else state.at_ms
        return self._kept(
            "members", state, visitor,
            lambda lake: group_now(lake, state.group) if until_ms is None else group_at(lake, state.group, until_ms),
        )  # fmt: skip

    def is_share_group(self, group_id: str) -> bool:
        """Check whether a group is a share group in the newest state."""
        lake = self.open()
        group: Row | None = self.cache.run(lambda: group_now(lake, group_id)[0])
        return group is not None and group["group_type"] == "share"

    def expiry(self, offsets: pa.Table, group: Row | None, policy: RetentionPolicy) -> pa.Table:
        """Return when offsets of a group, and of its row `group`, expire with a policy, by the newest state."""
        return self.rows(lambda lake: expiry(lake, offsets, group, policy))

    def series(self, state: PageState, visitor: Visitor) -> Series:
        """Return what the chart of a partition shows; raises BadRequest as `commits`."""
        changes, (topic, partition) = self._changes(state, visitor), (state.topic, state.partition)
        newest = self.open()
        key = ("ends", topic, partition, *newest.versions().values())
        ends = self.cache.get(key, lambda: recorded_ends(newest, topic, partition))

        def query(lake: Lake) -> Series:
            own = changes.of(topic, partition)
            found = series(lake, state.group, topic, partition, *state.period_ms, own, ends)
            if not found.steps.num_rows:
                questions.check_committed(lake, state.group, topic, partition)
            return found

        return self._kept("series", state, visitor, query)

    def step(self, state: PageState, visitor: Visitor) -> Step:
        """Return what is known about the record `record`; raises BadRequest if it is not one of the partition."""
        position = parse_position(state.record)
        changes, offset = self._changes(state, visitor), (state.topic, state.partition)
        return self._kept(
            "step", state, visitor, lambda lake: step(lake, state.group, *offset, *position, changes.of(*offset))
        )

    def before_change(self, state: PageState, visitor: Visitor, found: Step) -> BeforeChange:
        """Return the plan that restores the offsets of the topic from before a step that took effect."""
        of_group = self._group_changes(state, visitor)

        def query(lake: Lake) -> BeforeChange:
            start = start_of_change(lake, found.record, of_group)
            appended = None if found.change is None else found.change["effective_timestamp"]
            instant = None if appended is None else instant_before(lake, start, state.group, appended)
            place, scope = {state.group: start.log_partition}, {state.topic: None}
            return BeforeChange(start, instant, as_of(lake, place, start, scope, now_ms()))

        return self._kept("before change", state, visitor, query)

    def _changes(self, state: PageState, visitor: Visitor) -> Changes[PackedInts]:
        """Return the changes of a partition, or of the whole group, which its charts and explanations share."""
        of_group = self._group_changes(state, visitor)
        if of_group is not None:
            return of_group
        lake, key = self.open(), Key(state.group, state.topic, state.partition)
        found: Changes[PackedInts] = self.cache.get(
            ("changes", key, *_versions(lake)), lambda: packed(classified(lake, key, key_steps(lake, key)))
        )
        return found

    def _group_changes(self, state: PageState, visitor: Visitor) -> Changes[PackedInts] | None:
        """Return the changes of a group, which its page and those of its partitions share; None if they are many."""
        lake, key = self.open(), Key(state.group)
        self._check_visible(lake, state, visitor)

        def changes() -> Changes[PackedInts] | None:
            steps = steps_of_few(lake, key, _MAX_SHARED_RECORDS)
            return None if steps is None else packed(classified(lake, key, steps))

        found: Changes[PackedInts] | None = self.cache.get(("changes", key, *_versions(lake)), changes)
        return found

    def search(self, text: str, visitor: Visitor) -> list[tuple[str, str]]:
        """Return kinds and names that contain a text; only groups for visitors that do not see all groups."""
        if not text:
            return []
        lake = self.open()
        versions = lake.versions("offset_commits", "group_records", "audit_events", "group_members").values()

        def updated() -> Names:
            with self._reading:
                self._names.update(lake)
                return self._names

        names: Names = self.cache.get(("names", *versions), updated)
        kinds = KINDS if visitor.access.sees_all() else ("group",)
        return [(kind, name) for kind in kinds for name in names.find(kind, text, MAX_FOUND, visitor.sees)]

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
        lake = self.open()
        key = ("members by client", *lake.versions("group_members").values())
        every = self.cache.get(key, lambda: members_by_client(lake))
        members = self.cache.run(lambda: memberships(lake, client_id, MAX_LISTED, every))
        return visitor.visible(events), visitor.visible(members)

    @staticmethod
    def _check_visible(lake: Lake, state: PageState, visitor: Visitor) -> None:
        """Raise the error of a group that has never committed if the visitor may not read the group."""
        if not visitor.sees(state.group):
            raise questions.never_committed(lake, state.group, state.topic, state.partition)

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
        return self._later((what, *self.open().versions(*tables).values()), compute)

    def _later(self, key: CacheKey, compute: Callable[..., T], *arguments: object) -> T | None:
        found: Compressed[T] | None = self.cache.later(key, lambda: computed(self._location, compute, *arguments))
        return None if found is None else found.answer()

    def notes(self, group_id: str) -> list[str]:
        """Return sentences about what the lake does not know, for a page about a group or, if it is empty, about all.

        They name what was not read, and what quarantined records leave unknown, as far as the visitor may see it. There
        are none if the lake cannot be read: the page shows the error itself, where it depends on the lake.
        """
        try:
            lake = self.open()
            version = lake.versions("runs")["runs"]
            if self._unread[0] != version:
                self._unread = version, unread(lake).notes()
            unknown = self._what_is_unknown(lake, group_id)
        except (OffsetlakeError, *FILE_ERRORS):
            return []
        return [*self._unread[1], *([unknown] if unknown else [])]

    def _what_is_unknown(self, lake: Lake, group_id: str) -> str:
        visitor = VISITOR.get()
        is_visible = visitor is not None and (visitor.sees(group_id) if group_id else visitor.access.sees_all())
        if not is_visible or not has_files(lake, TABLE):
            return ""
        key = ("unknown", group_id, *lake.versions(TABLE, "groups", "offset_commits", "group_records").values())
        note: str = self.cache.get(key, lambda: what_is_unknown(lake, escape(group_id) if group_id else None))
        return note

    def open(self) -> Lake:
        """Return the lake as it was when the page began; raise TableChanged if another program changed a table."""
        return self._lake.open()

    @staticmethod
    def _until(lake: Lake, what: str, *instants: int) -> CacheKey:
        """Return a key that changes only if a file is added or removed that can have records until the last instant."""
        tables = ("offset_commits", "transaction_markers", "group_records")
        files = (history_files(lake, table, 0, ALL_RUNS, max(instants)) for table in tables)
        return (what, instants, frozenset(chain(*files)))

    def _kept(self, what: str, state: PageState, visitor: Visitor, query: Callable[[Lake], T]) -> T:
        """Return an answer about a group that fits on a page; it is kept until a table changes.

        `query` is called, and refuses, if the visitor does not see the group.
        """
        lake = self.open()
        if not visitor.sees(state.group):
            return self.cache.run(lambda: query(lake))
        found: T = self.cache.get((what, state, *lake.versions().values()), lambda: query(lake))
        return found


def _versions(lake: Lake) -> Iterable[int]:
    """Return the versions of the tables that determine the changes of offsets."""
    return lake.versions("group_records", *_DECIDING).values()
