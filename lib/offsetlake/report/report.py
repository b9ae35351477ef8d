"""The report as a whole: what is asked in which order, and the head of the page."""

from collections.abc import Callable, Iterator

from offsetlake.audit import questions
from offsetlake.audit.audits import has_history
from offsetlake.lake.lake import Lake
from offsetlake.lake.log_ends import newest_asked
from offsetlake.lake.upkeep import sizes
from offsetlake.lifecycle.policy import RetentionPolicy
from offsetlake.report import behind, commits, numbers, state
from offsetlake.report.page import Section, page
from offsetlake.report.scope import MOST_GROUPS, Scope, scope
from offsetlake.report.words import instant, size

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
    rows = {row["table"]: row["rows"] for row in tables.to_pylist()}
    sections = [*_of_groups(of, policy, say), *_of_lake(of, say), state.tables(tables)]
    waiting = [row["decisions"] for row in questions.outcomes(lake).to_pylist() if row["outcome"] == "planned"]
    facts = {
        "groups": rows["groups"],
        "offsets": rows["offsets"],
        "commits and tombstones read": rows["offset_commits"],
        "open transactions": questions.transactions(lake, of.until_ms).num_rows,
        "tombstones planned": sum(waiting),
        "undecodable records": rows["quarantine"],
    }
    counted = {name: f"{number:,}" for name, number in facts.items()}
    on_disk = size(sum(row["bytes"] for row in tables.to_pylist()))
    return page(f"Consumer offsets: {lake.path.name}", [*_says(of)], {**counted, "on disk": on_disk}, sections)


def _says(of: Scope) -> Iterator[str]:
    if not has_history(of.lake):
        yield f"The lake {of.lake.path} holds no history yet: offsetlake run reads the log."
        return
    yield (
        f"The lake {of.lake.path}, as it was read up to the newest record, of {instant(of.until_ms)}. "
        f"What is over time begins {instant(of.from_ms)}; all times are UTC."
    )
    if of.pattern is not None:
        yield f"Of groups like {of.pattern} alone, but for decisions, quarantine, runs and tables."


def _of_groups(of: Scope, policy: RetentionPolicy, say: Say) -> Iterator[Section]:
    say("counting commits over time")
    busiest = numbers.busiest(of)
    steps = numbers.over_time(of, busiest["group_id"].to_pylist()[:MOST_GROUPS])
    yield commits.commit_rate(of, busiest, steps)
    if newest_asked(of.lake) is None:
        yield commits.progress(of, busiest, steps)
    else:
        say("judging who is behind")
        yield behind.lag(of)
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
