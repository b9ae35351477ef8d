"""Writes the report: the order of its sections, and the head of the page."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from offsetlake.lake.lake import Lake
from offsetlake.lake.log_ends import newest_asked
from offsetlake.lake.unread import unread
from offsetlake.lake.upkeep import sizes
from offsetlake.queries.audits import has_history
from offsetlake.queries.in_doubt import what_is_unknown
from offsetlake.queries.log_clock import what_was_dropped
from offsetlake.rules.policy import RetentionPolicy
from offsetlake.web.report import attention, commits, lag_and_expiry, numbers, share_groups, state
from offsetlake.web.report.page import Row, Section, page
from offsetlake.web.report.scope import Scope, find_scope
from offsetlake.web.report.words import instant, size, unit_of

Announce = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a lake.

    Attributes:
        page: The self-contained HTML page.
        facts: The key figures at its beginning.
        problems: The rows of its section on what needs attention.
    """

    page: str
    facts: Mapping[str, str]
    problems: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Content:
    """What a report shows.

    Attributes:
        introduction: Sentences about the lake and the period.
        facts: The key figures.
        sections: The sections; the first one is about what needs attention.
    """

    introduction: Sequence[str]
    facts: Mapping[str, str]
    sections: Sequence[Section]


def report(
    lake: Lake, policy: RetentionPolicy, pattern: str | None, since_ms: int | None, announce: Announce
) -> Report:
    """Return the report of a lake, which depends only on the content of the lake.

    Args and errors are those of `content`.
    """
    shown = content(lake, policy, pattern, since_ms, announce)
    text = page(f"Consumer offsets: {lake.location.name}", shown.introduction, shown.facts, shown.sections)
    return Report(text, shown.facts, shown.sections[0].rows)


def content(
    lake: Lake, policy: RetentionPolicy, pattern: str | None, since_ms: int | None, announce: Announce
) -> Content:
    """Return the content of the report of a lake.

    Args:
        lake: The lake.
        policy: The retention that the expiry calendar is based on.
        pattern: A shell pattern of the groups; None for all groups.
        since_ms: The start of charts over time, in ms since the epoch; by default a week before the newest record.
        announce: Called with a description of each step before it starts.

    Raises:
        BadRequest: No group in the history matches the pattern.
        LakeUnusable: An older version of offsetlake created the lake.
    """

    def start(step: str) -> None:
        pa.default_memory_pool().release_unused()  # of the step before; queries in the next one have a memory limit
        announce(step)

    start("finding the newest record")
    scope = find_scope(lake, pattern, since_ms)
    table_sizes = sizes(lake)
    sections = [*_group_sections(scope, policy, start), *_lake_sections(scope, start)]
    sections.append(state.tables(scope, table_sizes))
    introduction, facts = [*_introduction(scope)], _facts(scope, table_sizes)
    start("drawing charts")
    return Content(introduction, facts, _drawn(sections))


def _drawn(sections: Iterable[Section]) -> list[Section]:
    """Return the sections with pictures instead of charts."""
    from offsetlake.web.report.pictures import draw  # noqa: PLC0415 - Matplotlib takes 36 MB, which no query has then

    return [replace(each, chart=None, picture=draw(each.chart)) if each.chart else each for each in sections]


def _facts(scope: Scope, table_sizes: pa.Table) -> dict[str, str]:
    """Return the key figures of the groups; those that belong to no group only if the report is about all groups."""
    planned = [row["decisions"] for row in numbers.decisions(scope).to_pylist() if row["outcome"] == "planned"]
    counts = {
        "groups": numbers.count_rows(scope, "groups"),
        "offsets": numbers.count_rows(scope, "offsets"),
        "commits and tombstones": numbers.count_rows(scope, "offset_commits"),
        "open transactions": numbers.transactions(scope).num_rows,
        "planned tombstones": sum(planned),
    }
    facts = {name: f"{number:,}" for name, number in counts.items()}
    if scope.pattern is not None:
        return facts
    total = sum(table_sizes["bytes"].to_pylist())
    quarantined = f"{numbers.count_rows(scope, 'quarantine'):,}"
    return facts | {"quarantined records": quarantined, "size on disk": size(total, unit_of(total))}


def _introduction(scope: Scope) -> Iterator[str]:
    if not has_history(scope.lake):
        yield f"The lake {scope.lake.location} has no history yet. To read the log: {scope.read_log}."
        return
    yield (
        f"The lake {scope.lake.location}, up to the newest record at {instant(scope.until_ms)}. "
        f"Charts over time start at {instant(scope.from_ms)}. All times are UTC."
    )
    if dropped := what_was_dropped(scope.lake, "history"):
        yield dropped
    yield from unread(scope.lake).notes()
    if unknown := what_is_unknown(scope.lake, scope.pattern):
        yield unknown
    if scope.pattern is not None:
        yield (
            f"Limited to groups that match {scope.pattern}, except for the sections on quarantine, runs, tables and "
            "log positions."
        )


def _group_sections(scope: Scope, policy: RetentionPolicy, announce: Announce) -> Iterator[Section]:
    announce("counting commits over time")
    busiest = numbers.busiest_groups(scope)
    steps = numbers.over_time(scope, busiest)
    lags = None
    if newest_asked(scope.lake) is not None:
        announce("computing lag")
        lags = lag_and_expiry.lags(scope)
    announce("checking for problems")
    yield attention.attention(scope, busiest, lags)
    yield commits.commit_rate(scope, busiest.groups, steps)
    yield commits.progress(scope, busiest.groups, steps) if lags is None else lag_and_expiry.lag(scope, lags)
    if numbers.count_rows(scope, "share_partitions"):
        announce("computing the state of share groups")
        yield share_groups.share_groups(scope)
    announce("evaluating retention")
    yield lag_and_expiry.expiry(scope, policy)
    announce("counting redundant commits")
    yield commits.worst_committers(scope, busiest)


def _lake_sections(scope: Scope, announce: Announce) -> Iterator[Section]:
    announce("computing the growth of the log")
    yield state.growth(scope)
    announce("reading decisions, quarantine and runs")
    yield state.decisions(scope)
    yield state.quarantine(scope)
    yield state.newest_runs(scope)
    yield state.positions(scope)
