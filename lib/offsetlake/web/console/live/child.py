"""The process that computes the content of a report or the results of checks, forked by `web.console.forked`.

A request has the fields `part` (`report` or `checks`), `lake` and `policy`. An answer has the fields of `content.Live`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any

from offsetlake.lake.foreign.guard import open_verified
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import limited_memory, use_little_memory
from offsetlake.pipeline.checks.expectations import MAX_CHECKED_ROWS, evidence, first_run, pinned, read_suites
from offsetlake.rules.policy import Override, RetentionPolicy
from offsetlake.web.console import forked


def answer(request: forked.Request, sending: Connection) -> None:
    """Answer a request, and end this process."""
    forked.answer(_compute, {**request, "announce": forked.announcing(sending)}, sending, limited_memory())


def _compute(part: str, lake: str, policy: Mapping[str, Any], announce: forked.Announce) -> dict[str, Any]:
    use_little_memory()
    return _PARTS[part](lake, policy, announce)


def _report(lake: str, policy: Mapping[str, Any], announce: forked.Announce) -> dict[str, Any]:
    from offsetlake.web.report.report import content  # noqa: PLC0415 - Jinja, which the other processes do not need

    overrides = tuple(Override(**override) for override in policy["overrides"])
    opened = open_verified(lake)
    shown = content(opened, RetentionPolicy(**{**policy, "overrides": overrides}), None, None, announce)
    return {
        "introduction": shown.introduction,
        "facts": shown.facts,
        "sections": [
            {**asdict(section), "picture": section.picture and section.picture.decode()} for section in shown.sections
        ],
    }


def _checks(lake: str, policy: Mapping[str, Any], announce: forked.Announce) -> dict[str, Any]:
    return {"checks": [*_results(open_verified(lake), announce)]}


def _results(lake: Lake, announce: forked.Announce) -> Iterator[dict[str, Any]]:
    """Yield the result of each expectation, as `offsetlake check` shows it, but without Great Expectations."""
    suites = read_suites(())
    pins = pinned(lake, suites, {})
    for suite in suites:
        announce(f"checking the expectations {suite.name}")
        violations = evidence(lake, suite, pins, first_run(lake, suite, pins), MAX_CHECKED_ROWS)
        for expectation, found in zip(suite.expectations, violations, strict=True):
            yield {
                "suite": suite.name,
                "expectation": expectation.description,
                "table": expectation.table,
                "success": not found.rows,
                "observed": str(found),
            }


_PARTS: Mapping[str, Callable[..., dict[str, Any]]] = {"report": _report, "checks": _checks}
