"""The report as a whole: what is asked in which order, and the head of the page."""

from collections.abc import Callable, Iterator

import pyarrow as pa

from offsetlake.lake.lake import Lake
from offsetlake.lake.log_ends import newest_asked
from offsetlake.lake.upkeep import sizes
from offsetlake.queries.audits import has_history
from offsetlake.report import attention, behind, commits, numbers, state
from offsetlake.report.page import Section, page
from offsetlake.report.scope import Scope, scope
from offsetlake.report.words import instant, size, unit_of
from offsetlake.rules.policy import RetentionPolicy

Say = Callable[[str], None]


def report(lake: Lake, policy: RetentionPolicy, pattern: str | None, since_ms: int | None, say: Say) -> str:
    """Write what there is to know of a lake as one page of HTML that needs nothing else.

    Of the groups like `pattern`; pictures over time begin at `since_ms`, ms since the epoch, or a week before the
    newest record. The same lake gives the same page. Raises BadRequest where history has no such group, LakeUnusable
    where an older program made the lake.
    """
    say("looking for the newest record")
    of = scope(lake, pattern, since_ms)
    tables = sizes(lake)
    sections = [*_of_groups(of, policy, say), *_of_lake(of, say), state.tables(of, tables)]
    return page(f"Consumer offsets: {lake.path.name}", [*_says(of)], _facts(of, tables), sections)


def _facts(of: Scope, tables: pa.Table) -> dict[str, str]:
    """Count what there is of the groups of the report; what is of no group, only if it is of all."""
    waiting = [row["decisions"] for row in numbers.decisions(of).to_pylist() if row["outcome"] == "planned"]
    facts = {
        "groups": numbers.counted(of, "groups"),
        "offsets": numbers.counted(of, "offsets"),
        "commits and tombstones read": numbers.counted(of, "offset_commits"),
        "open transactions": numbers.transactions(of).num_rows,
        "tombstones planned": sum(waiting),
    }
    counted = {name: f"{number:,}" for name, number in facts.items()}
    if of.pattern is not None:
        return counted
    total = sum(tables["bytes"].to_pylist())
    undecodable = f"{numbers.counted(of, 'quarantine'):,}"
    return counted | {"undecodable records": undecodable, "on disk": size(total, unit_of(total))}


def _says(of: Scope) -> Iterator[str]:
    if not has_history(of.lake):
        yield f"The lake {of.lake.path} holds no history yet. To read the log: {of.read_log}."
        return
    yield (
        f"The lake {of.lake.path}, as it was read up to the newest record, of {instant(of.until_ms)}. "
        f"What is over time begins {instant(of.from_ms)}; all times are UTC."
    )
    if of.pattern is not None:
        yield f"Only of groups like {of.pattern}, except for quarantine, runs, tables and what is read so far."


def _of_groups(of: Scope, policy: RetentionPolicy, say: Say) -> Iterator[Section]:
    say("counting commits over time")
    busiest = numbers.busiest(of)
    steps = numbers.over_time(of, busiest)
    lags = None
    if newest_asked(of.lake) is not None:
        say("judging who is behind")
        lags = behind.lags(of)
    say("looking for what needs attention")
    yield attention.attention(of, busiest, lags)
    yield commits.commit_rate(of, busiest.groups, steps)
    yield commits.progress(of, busiest.groups, steps) if lags is None else behind.lag(of, lags)
    say("judging what goes when")
    yield behind.expiry(of, policy)
    say("looking for commits that say nothing new")
    yield commits.worst_committers(of, busiest)


def _of_lake(of: Scope, say: Say) -> Iterator[Section]:
    say("counting what the log grew by")
    yield state.growth(of)
    say("looking at decisions, quarantine and runs")
    yield state.decisions(of)
    yield state.quarantine(of)
    yield state.newest_runs(of)
    yield state.positions(of)
