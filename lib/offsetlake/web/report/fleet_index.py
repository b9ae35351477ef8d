"""Writes the index of the reports of many lakes: their key figures, what needs attention, and which lakes failed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from offsetlake.web.report.page import Link, Row, Section, page

_PAGES = "lakes"


@dataclass(frozen=True, slots=True)
class Summary:
    """What the index contains of one lake.

    Attributes:
        facts: The key figures of its report.
        problems: The rows of the section of its report on what needs attention.
        newest_cycle: The newest cycle: when it finished, or its outcome if it has not, and what failed in it.
    """

    facts: Mapping[str, str]
    problems: Sequence[Mapping[str, str | int | None]]
    newest_cycle: Mapping[str, str]


def page_of(name: str) -> str:
    """Return the path of the report of a lake, relative to the index."""
    return f"{_PAGES}/{name}.html"


def fleet_index(summaries: Mapping[str, Summary], failed: Mapping[str, str]) -> str:
    """Return the page that links to the reports.

    Args:
        summaries: The lakes with a report, by name.
        failed: Why other lakes have none, by name.

    """
    problems = [*_problems(summaries)]
    with_problems = sum(bool(summary.problems) for summary in summaries.values())
    facts = {
        "lakes": f"{len(summaries) + len(failed):,}",
        "lakes that failed": f"{len(failed):,}",
        "lakes that need attention": f"{with_problems:,}",
    }
    sections = [
        Section("Lakes that failed", "No report could be written of these.", _failed(failed)),
        Section("What needs attention", "Each command lists all results." if problems else "Nothing.", problems),
        Section("Lakes", "Each name links to the report of the lake.", [*_lakes(summaries)]),
    ]
    return page("Consumer offsets of all clusters", [], facts, sections[0 if failed else 1 :])


def _failed(failed: Mapping[str, str]) -> Sequence[Row]:
    return [{"cluster": name, "error": error} for name, error in failed.items()]


def _problems(summaries: Mapping[str, Summary]) -> Iterator[Row]:
    for name, summary in summaries.items():
        for problem in summary.problems:
            yield {"cluster": Link(name, page_of(name)), **problem}


def _lakes(summaries: Mapping[str, Summary]) -> Iterator[Row]:
    for name, summary in summaries.items():
        yield {
            "cluster": Link(name, page_of(name)),
            "problems": len(summary.problems),
            **summary.facts,
            **summary.newest_cycle,
        }
