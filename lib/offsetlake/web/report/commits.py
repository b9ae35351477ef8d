"""The sections on commits: how many over time, the progress they made, and which were redundant."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.runs import log_ends_source
from offsetlake.util.amounts import counted, noun
from offsetlake.web.report import numbers
from offsetlake.web.report.charts import Bars, Lane, Lanes, Values
from offsetlake.web.report.page import Row, Section
from offsetlake.web.report.scope import MAX_GROUPS, Scope
from offsetlake.web.report.words import count, duration, instant, share, shortened

MAX_REDUNDANT_SHARE = 0.5
"""The share of redundant commits of a group above which the report gives advice."""

_NO_COMMITS = "There are no commits in this period."
_MAX_NAME_CHARACTERS = 60


def commit_rate(scope: Scope, busiest: pa.Table, steps: pa.Table) -> Section:
    """Return the section on the number of commits over time.

    Args:
        scope: The groups and the period.
        busiest: The groups, as in `numbers.BusiestGroups`.
        steps: The result of `numbers.over_time`.
    """
    title = "Commit rate"
    if not steps.num_rows:
        return Section(title, _NO_COMMITS)
    rows: list[Row] = []
    lanes, step = [], duration(scope.step_ms)
    for name, group_steps in _by_group(busiest, steps):
        timestamps, commits = _every_step(scope, group_steps, "commits")
        maximum, total = int(commits.max()), int(commits.sum())
        lanes.append(Lane(name, timestamps, commits, f"at most {count(maximum)} in {step}"))
        busiest_step = int(timestamps[commits.argmax()])
        rows.append({"group": name, "commits": total, "maximum": maximum, "at": instant(busiest_step)})
    return Section(
        title,
        f"Committed offsets per {step}, with a separate scale for each group. If the commits of a group end early, it "
        "stopped: check its consumers. A group with a high rate may commit too often: see the worst committers.",
        rows,
        Lanes(lanes, scope.from_ms, scope.until_ms, steps=True),
        busiest["groups"][0].as_py() - len(rows),
        scope.command("audit", "commit_rate"),
    )


def progress(scope: Scope, busiest: pa.Table, steps: pa.Table) -> Section:
    """Return the section on the progress of committed offsets, which replaces lag if log end offsets are unknown.

    The arguments are those of `commit_rate`.
    """
    title = "Progress"
    changes = scope.command("audit", "changes")
    cycle = scope.command("run", *log_ends_source(scope.lake), by_group=False)
    unknown = (
        "Lag is unknown, because the log end offsets of topics are not recorded. "
        f"A cycle on a live cluster, or on the log of a node while it is served, records them: {cycle}."
    )
    if not steps.num_rows:
        return Section(title, unknown)
    rows: list[Row] = []
    lanes = []
    for name, group_steps in _by_group(busiest, steps):
        timestamps, values = _every_step(scope, group_steps, "ahead")
        sums, decrease = np.cumsum(values), int(pc.sum(group_steps["back"]).as_py())
        lanes.append(Lane(name, timestamps, sums, f"{count(int(sums[-1]))} {noun(int(sums[-1]), 'record')}"))
        last_commit = instant(group_steps["newest"][-1].as_py())
        rows.append({"group": name, "progress": int(sums[-1]), "decreased by": decrease, "last commit": last_commit})
    return Section(
        title,
        f"{unknown} The chart shows by how many records the committed offsets of each group increased. A group whose "
        "line is flat at the end reads nothing or has nothing to read. A group whose line falls was reset, or "
        f"committed lower offsets: {changes}.",
        rows,
        Lanes(lanes, scope.from_ms, scope.until_ms, steps=False),
        busiest["groups"][0].as_py() - len(rows),
        scope.command("audit", "idle_groups"),
    )


def worst_committers(scope: Scope, busiest: numbers.BusiestGroups) -> Section:
    """Return the section on those of the busiest groups that have the most redundant commits."""
    title = "Worst committers"
    worst = numbers.worst_committers(scope, busiest).to_pylist()
    if not worst:
        return Section(title, _NO_COMMITS)
    rows = [
        {
            "group": row["group_id"],
            "commits": row["commits"],
            "redundant": row["redundant"],
            "share": share(row["redundant"], row["commits"]),
            "maximum per hour": row["busiest_hour_commits"],
        }
        for row in worst
    ]
    redundant = np.array([row["redundant"] for row in worst], float)
    needed = np.array([row["commits"] for row in worst], float) - redundant
    first = worst[0]
    if first["redundant"] > MAX_REDUNDANT_SHARE * first["commits"]:
        advice = (
            f"Of the {counted(first['commits'], 'commit')} of {shortened(first['group_id'], _MAX_NAME_CHARACTERS)}, "
            f"{rows[0]['share']} are redundant: let it commit less often, or only after it has read records."
        )
    else:
        advice = "No group has mostly redundant commits."
    return Section(
        title,
        "A redundant commit repeats the committed offset and makes the log longer. "
        f"{counted(len(busiest.names), 'group')} with the most commits "
        f"{noun(len(busiest.names), 'was', 'were')} checked. {advice}",
        rows,
        Bars(
            [row["group_id"] for row in worst],
            {"redundant": redundant, "needed": needed},
            [f"{count(row['redundant'])} of {count(row['commits'])}" for row in worst],
        ),
        busiest.groups["groups"][0].as_py() - len(rows),
        scope.command("audit", "commit_rate"),
    )


def _by_group(busiest: pa.Table, steps: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    for name in busiest["group_id"].slice(0, MAX_GROUPS).to_pylist():
        group_steps = steps.filter(pc.equal(steps["group_id"], name))
        if group_steps.num_rows:
            yield name, group_steps


def _every_step(
    scope: Scope, group_steps: pa.Table, column: str
) -> tuple["np.ndarray[tuple[int], np.dtype[np.int64]]", Values]:
    """Return the start of every step of the period, and the values of the column, 0 for steps without commits."""
    step = scope.step_ms
    starts = np.arange(scope.from_ms - scope.from_ms % step, scope.until_ms + step + 1, step, dtype=np.int64)
    values = np.zeros(len(starts))
    values[np.searchsorted(starts, group_steps["at"].to_numpy())] = group_steps[column].to_numpy()
    return starts, values
