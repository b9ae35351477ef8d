"""The process that computes the content of a report or the results of checks, forked as those of queries are.

A request is JSON with the fields `part` (`report` or `checks`), `lake`, `policy`, `max_seconds` and `folder`, the one
for what queries spill. An answer has the fields of `content.Live`; or `error`, a sentence.
"""

import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any

from offsetlake.checks.expectations import MAX_CHECKED_ROWS, evidence, first_run, pinned, read_suites
from offsetlake.errors import NotEnoughMemory, OffsetlakeError
from offsetlake.lake.foreign.guard import open_verified
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import limited_memory
from offsetlake.rules.policy import Override, RetentionPolicy


def answer(request: str, sending: Connection) -> None:
    """Answer a request, and end this process; its exit code is that of NotEnoughMemory if it needs too much."""
    fields = json.loads(request)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the console, which ends this process
    signal.alarm(fields.pop("max_seconds"))  # ends this process also if the console was killed
    tempfile.tempdir = fields.pop("folder")
    with limited_memory():
        try:
            found = _PARTS[fields.pop("part")](**fields)
        except NotEnoughMemory as error:
            os._exit(error.exit_code)
        except OffsetlakeError as error:
            found = {"error": str(error)}
        sending.send_bytes(json.dumps(found).encode())
    os._exit(0)  # without waiting for the threads of the engine


def _report(lake: str, policy: Mapping[str, Any]) -> dict[str, Any]:
    from offsetlake.report.report import content  # noqa: PLC0415 - Matplotlib, which the console itself does not need

    overrides = tuple(Override(**override) for override in policy["overrides"])
    opened = open_verified(lake)
    shown = content(opened, RetentionPolicy(**{**policy, "overrides": overrides}), None, None, lambda _: None)
    return {
        "introduction": shown.introduction,
        "facts": shown.facts,
        "sections": [
            {**asdict(section), "picture": section.picture and section.picture.decode()} for section in shown.sections
        ],
    }


def _checks(lake: str, policy: Mapping[str, Any]) -> dict[str, Any]:
    return {"checks": [*_results(open_verified(lake))]}


def _results(lake: Lake) -> Iterator[dict[str, Any]]:
    """Yield the result of each expectation, as `offsetlake check` shows it, but without Great Expectations."""
    suites = read_suites(())
    pins = pinned(lake, suites, {})
    for suite in suites:
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
