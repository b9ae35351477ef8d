"""Sections on commits: how many over time, how far they went, and which were for nothing."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.report import numbers, pictures
from offsetlake.report.page import Row, Section
from offsetlake.report.scope import MOST_GROUPS, Scope
from offsetlake.report.words import count, duration, instant, share, shortened

OFTEN = 0.5
"""Of a group's commits: more that say nothing new are worth a word."""


def commit_rate(scope: Scope, busiest: pa.Table, steps: pa.Table) -> Section:
    """Show how many offsets groups committed, by `numbers.busiest` and `numbers.over_time`."""
    title = "Commit rate"
    if not steps.num_rows:
        return Section(title, "Nothing was committed in this time.")
    rows: list[Row] = []
    lanes, step = [], duration(scope.step_ms)
    for name, of_group in _by_group(busiest, steps):
        at, values = _every_step(scope, of_group, "commits")
        most, total = int(values.max()), int(values.sum())
        lanes.append(pictures.Lane(name, at, values, f"at most {count(most)} in {step}"))
        then = int(at[values.argmax()])
        rows.append({"group": name, "commits": total, "most": most, "when": instant(then)})
    return Section(
        title,
        f"Offsets committed every {step}, each group on a scale of its own. A lane that ends early is a group that "
        "stopped: look at its consumers. A wall is one that commits too often: see the worst committers.",
        rows,
        pictures.lanes(lanes, scope.from_ms, scope.until_ms, steps=True),
        busiest["groups"][0].as_py() - len(rows),
        scope.command("audit", "commit_rate"),
    )


def progress(scope: Scope, busiest: pa.Table, steps: pa.Table) -> Section:
    """Show how far offsets went ahead, where nobody knows how far they could."""
    title = "Progress"
    changes = scope.command("audit", "changes")
    cycle = scope.command("run", "--bootstrap", "HOST:PORT", by_group=False)
    unknown = (
        f"Where topics end is not on record, so lag is not known; a cycle over a live cluster records it: {cycle}."
    )
    if not steps.num_rows:
        return Section(title, unknown)
    rows: list[Row] = []
    lanes = []
    for name, of_group in _by_group(busiest, steps):
        at, values = _every_step(scope, of_group, "ahead")
        sums, back = np.cumsum(values), int(pc.sum(of_group["back"]).as_py())
        lanes.append(pictures.Lane(name, at, sums, f"{count(int(sums[-1]))} records"))
        last = instant(of_group["newest"][-1].as_py())
        rows.append({"group": name, "records ahead": int(sums[-1]), "went back by": back, "last commit": last})
    return Section(
        title,
        f"{unknown} What is drawn is how many records the offsets of each group went ahead. A flat end is a group that "
        f"reads nothing, or has nothing to read; a fall is one that was reset or went back: {changes}.",
        rows,
        pictures.lanes(lanes, scope.from_ms, scope.until_ms, steps=False),
        busiest["groups"][0].as_py() - len(rows),
        scope.command("audit", "idle_groups"),
    )


def worst_committers(scope: Scope, busiest: numbers.Busiest) -> Section:
    """Show who of the busiest commits most for nothing."""
    title, groups = "Worst committers", busiest.names
    worst = numbers.worst_committers(scope, busiest).to_pylist()
    if not worst:
        return Section(title, "Nothing was committed in this time.")
    rows = [
        {
            "group": row["group_id"],
            "commits": row["commits"],
            "redundant": row["redundant"],
            "of these": share(row["redundant"], row["commits"]),
            "most in an hour": row["busiest_hour_commits"],
        }
        for row in worst
    ]
    redundant = np.array([row["redundant"] for row in worst], float)
    needed = np.array([row["commits"] for row in worst], float) - redundant
    first = worst[0]
    if first["redundant"] > OFTEN * first["commits"]:
        says = (
            f"{shortened(first['group_id'], 60)} said nothing new in {rows[0]['of these']} of its {first['commits']:,} "
            "commits: have it commit less often, or only when it has read something."
        )
    else:
        says = "No group commits mostly for nothing."
    return Section(
        title,
        f"A redundant commit says what stood already, and makes the log longer. Looked at are the {len(groups):,} "
        f"groups that commit most. {says}",
        rows,
        pictures.bars(
            [row["group_id"] for row in worst],
            {"redundant": redundant, "needed": needed},
            [f"{count(row['redundant'])} of {count(row['commits'])}" for row in worst],
        ),
        busiest.groups["groups"][0].as_py() - len(rows),
        scope.command("audit", "commit_rate"),
    )


def _by_group(busiest: pa.Table, steps: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    for name in busiest["group_id"].slice(0, MOST_GROUPS).to_pylist():
        of_group = steps.filter(pc.equal(steps["group_id"], name))
        if of_group.num_rows:
            yield name, of_group


def _every_step(
    scope: Scope, of_group: pa.Table, column: str
) -> tuple["np.ndarray[tuple[int], np.dtype[np.int64]]", pictures.Values]:
    """Give all steps of the period, those without a commit too, and the column's values in them."""
    step = scope.step_ms
    at = np.arange(scope.from_ms - scope.from_ms % step, scope.until_ms + step + 1, step, dtype=np.int64)
    values = np.zeros(len(at))
    values[np.searchsorted(at, of_group["at"].to_numpy())] = of_group[column].to_numpy()
    return at, values
