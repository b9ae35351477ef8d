"""The answers that pages about groups show: lists of groups, one group, and what names a group, topic or client."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import NotInLake, OffsetlakeError
from offsetlake.lake.files import active_files
from offsetlake.lake.lake import Lake
from offsetlake.lake.location.locate import LakeLocation
from offsetlake.queries import questions, selection
from offsetlake.queries.exploring.group_state import Row, expiry, group_at, group_now
from offsetlake.queries.exploring.names import KINDS, Names, committed_to, events_by, members_by_client, memberships
from offsetlake.queries.exploring.selected_groups import selected
from offsetlake.queries.history.as_of import offsets_as_of
from offsetlake.queries.history.diff import diff, diff_by_group
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.web.console.access import Visitor
from offsetlake.web.console.background import (
    lag_for_people,
    lag_of_group,
    listed_groups,
    listed_groups_at,
    with_lag,
)
from offsetlake.web.console.kept_answers import KeptAnswers
from offsetlake.web.console.state import PAGE_ROWS, PageState

MAX_FOUND = 8
MAX_LISTED = 500
_NO_LAGS = pa.table({"group_id": pa.array([], pa.string())})
_SORTED_BY = {"lag": "most", "status": "place"}
"""The columns of `with_lag` by which groups are sorted."""


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


class GroupAnswers(KeptAnswers):
    """Answers about groups."""

    def __init__(self, location: LakeLocation) -> None:
        super().__init__(location)
        self._names, self._updating = Names(), threading.Lock()

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
            rows = self.later_by(self.until(lake, "diff", *span), diff_by_group, *span)
        elif at_ms is not None:
            rows = self.later_by(self.until(lake, "groups", at_ms), listed_groups_at, at_ms)
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
        self.check_visible(lake, state, visitor)
        if not active_files(lake, "log_ends"):
            return _NO_LAGS, ""
        key = ("lag of", state.group, *lake.versions("log_ends", "runs").values())
        return self._lags_of_page(lambda: self.later_by(key, lag_of_group, state.group))

    def _prepare(self, lake: Lake) -> None:
        """Begin to read what the first page of a group needs: the log partitions of all groups."""
        versions = lake.versions("offset_commits", "group_records").values()
        self.cache.start(("places", *versions), lambda: selection.log_partitions_of(lake, []))

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
                raise selection.never_committed(lake, state.group)
            if not rows.num_rows:
                selection.check_committed(lake, state.group)
            shown = range((state.page - 1) * PAGE_ROWS, min(state.page * PAGE_ROWS, rows.num_rows))
            return rows.take(pa.array(shown, pa.int64())), rows.num_rows

        return self.kept("group", state, visitor, query)

    def members(self, state: PageState, visitor: Visitor) -> tuple[Row | None, Sequence[Row]]:
        """Return a group that the visitor sees, and its members; between two instants at the later one."""
        until_ms = state.span_ms[1] if state.span_ms else state.at_ms
        return self.kept(
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

    def search(self, text: str, visitor: Visitor) -> list[tuple[str, str]]:
        """Return kinds and names that contain a text; only groups for visitors that do not see all groups."""
        if not text:
            return []
        lake = self.open()
        versions = lake.versions("offset_commits", "group_records", "audit_events", "group_members").values()

        def updated() -> Names:
            with self._updating:
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
