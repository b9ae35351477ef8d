"""The answers that pages show: queries of the command line, cached by the versions of their tables."""

import threading
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

from offsetlake.lake.definitions import LAKE_VERSION
from offsetlake.lake.lake import Lake
from offsetlake.lake.location.locate import LakeLocation
from offsetlake.pipeline.changes.reset import as_of
from offsetlake.queries import selection
from offsetlake.queries.exploring.before_change import start_of_change
from offsetlake.queries.exploring.changes import Changes, classified
from offsetlake.queries.exploring.commits import Filters, commits_page, matching
from offsetlake.queries.exploring.keys import Key
from offsetlake.queries.exploring.packed import PackedInts, packed
from offsetlake.queries.exploring.series import Series, notable_changes, recorded_ends, series
from offsetlake.queries.exploring.step import OffsetStep, step
from offsetlake.queries.exploring.steps import key_steps, steps_of_few
from offsetlake.queries.exploring.timeline import Timeline, Timelines
from offsetlake.queries.history.before import LogPosition, instant_before, parse_position
from offsetlake.util.times import now_ms
from offsetlake.web.console.access import Visitor
from offsetlake.web.console.group_answers import GroupAnswers
from offsetlake.web.console.state import PAGE_ROWS, PageState

MAX_NOTABLE = 20
_DECIDING = ("offset_commits", "transaction_markers", "alterations", "tombstones")
_MAX_SHARED_RECORDS = 1 << 18  # of a group; their changes take about 5 MB


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


class PageAnswers(GroupAnswers):
    """Answers about groups, and about the commits and changes of one group."""

    def __init__(self, location: LakeLocation) -> None:
        super().__init__(location)
        self._timelines, self._reading = Timelines(), threading.Lock()

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
            self.check_visible(lake, state, visitor)
            rows, more = commits_page(lake, key, state.before, filters, PAGE_ROWS, every)
            if not rows.num_rows:
                selection.check_committed(lake, state.group, state.topic, state.partition)
            return rows, more

        return self.kept("commits", state, visitor, query)

    def has_views(self) -> bool:
        """Check whether the tables have the columns of the views; those of an older lake lack some."""
        return self.open().version() == LAKE_VERSION

    def notable(self, state: PageState, visitor: Visitor) -> tuple[pa.Table, int]:
        """Return the newest changes that are not plain commits, and their number, of a group that the visitor sees."""
        changes = self._group_changes(state, visitor)
        return self.kept(
            "notable", state, visitor,
            lambda lake: notable_changes(lake, state.group, *state.period_ms, MAX_NOTABLE, changes),
        )  # fmt: skip

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
                selection.check_committed(lake, state.group, topic, partition)
            return found

        return self.kept("series", state, visitor, query)

    def step(self, state: PageState, visitor: Visitor) -> OffsetStep:
        """Return what is known about the record `record`; raises BadRequest if it is not one of the partition."""
        position = parse_position(state.record)
        changes, offset = self._changes(state, visitor), (state.topic, state.partition)
        return self.kept(
            "step", state, visitor, lambda lake: step(lake, state.group, *offset, *position, changes.of(*offset))
        )

    def before_change(self, state: PageState, visitor: Visitor, found: OffsetStep) -> BeforeChange:
        """Return the plan that restores the offsets of the topic from before a step that took effect."""
        of_group = self._group_changes(state, visitor)

        def query(lake: Lake) -> BeforeChange:
            start = start_of_change(lake, found.record, of_group)
            appended = None if found.change is None else found.change["effective_timestamp"]
            instant = None if appended is None else instant_before(lake, start, state.group, appended)
            place, scope = {state.group: start.log_partition}, {state.topic: None}
            return BeforeChange(start, instant, as_of(lake, place, start, scope, now_ms()))

        return self.kept("before change", state, visitor, query)

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
        self.check_visible(lake, state, visitor)

        def changes() -> Changes[PackedInts] | None:
            steps = steps_of_few(lake, key, _MAX_SHARED_RECORDS)
            return None if steps is None else packed(classified(lake, key, steps))

        found: Changes[PackedInts] | None = self.cache.get(("changes", key, *_versions(lake)), changes)
        return found


def _versions(lake: Lake) -> Iterable[int]:
    """Return the versions of the tables that determine the changes of offsets."""
    return lake.versions("group_records", *_DECIDING).values()
