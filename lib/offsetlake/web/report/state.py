"""The sections on the log and the tables: growth, decisions, quarantine, runs, log positions and sizes."""

import numpy as np
import pyarrow as pa

from offsetlake.lake import current_run, plans, runs
from offsetlake.web.report import numbers
from offsetlake.web.report.charts import Bars, StackedColumns
from offsetlake.web.report.page import Row, Section
from offsetlake.web.report.scope import MAX_GROUPS, Scope
from offsetlake.web.report.words import count, day, instant, size, unit_of

_KINDS = {"commits": "commits", "tombstones": "tombstones", "group_records": "group records"}


def growth(scope: Scope) -> Section:
    """Return the section on the growth of the log, and on the groups with the most records."""
    title, days = "Growth of the log", numbers.growth_by_day(scope)
    if not days.num_rows:
        return Section(title, "No records were appended in this period.")
    parts = {name: days[column].to_numpy().astype(float) for column, name in _KINDS.items()}
    groups = numbers.growth_by_group(scope, "records").to_pylist()
    rows = [
        {"group": row["group_id"], **{name: row[column] for column, name in _KINDS.items()}}
        for row in groups
    ]  # fmt: skip
    step = "day" if scope.days_per_step == 1 else f"{scope.days_per_step} days"
    delete_segments = scope.command("maintain", "--log", "DIR", by_group=False)
    return Section(
        title,
        f"Appended records per {step}. Groups that commit often make the log grow. "
        f"To delete old segments of a log in a folder: {delete_segments}.",
        rows,
        StackedColumns([day(start) for start in days["day"].to_pylist()], parts),
        groups[0]["groups"] - len(rows),
        scope.command("audit", "log_growth"),
    )


def decisions(scope: Scope) -> Section:
    """Return the section on planned tombstones and their outcomes."""
    title, counts = "Decisions", numbers.decisions(scope).to_pylist()
    if not counts:
        return Section(title, "No tombstone was ever planned.")
    outcomes = {row["outcome"] for row in counts}
    hints = []
    if "planned" in outcomes:
        hints.append(f"To write the planned tombstones: {scope.command('emit', by_group=False)}.")
    if "refused" in outcomes:
        hints.append(
            f"To list the refused ones with the reasons: {scope.command('tombstones', '--outcome', 'refused')}."
        )
    rows = [{"outcome": row["outcome"], "rule": row["rule"], "decisions": row["decisions"]} for row in counts]
    chart = Bars(
        [f"{row['outcome']}: {row['rule']}" for row in counts],
        {"decisions": np.array([row["decisions"] for row in counts], float)},
        [count(row["decisions"]) for row in counts],
    )
    text = " ".join(hints) or "No tombstones are planned."
    return Section(title, text, rows, chart, command=scope.command("tombstones"))


def quarantine(scope: Scope) -> Section:
    """Return the section on records that could not be decoded."""
    title, reasons = "Quarantine", numbers.quarantine_reasons(scope).to_pylist()
    if not reasons:
        return Section(title, "Every record that was read could be decoded, as far as history is kept.")
    rows = [
        {"reason": row["reason"], "records": row["records"], "newest": instant(row["newest_timestamp"])}
        for row in reasons
    ]
    return Section(
        title,
        "These records could not be decoded; their bytes are kept. A frequent reason indicates a faulty client, or a "
        "version of Kafka that is newer than this version of offsetlake.",
        rows,
        command=scope.command("sql", "SELECT * FROM quarantine", by_group=False),
    )


def newest_runs(scope: Scope) -> Section:
    """Return the section on the last run of each job, and its notes."""
    title, newest = "Runs", numbers.newest_runs(scope).to_pylist()
    if not newest:
        return Section(title, f"No job has run. To read the log: {scope.read_log}.")
    rows = [
        {
            "job": row["job"],
            "runs": row["runs"],
            "newest": instant(row["finished_at"]),
            "seconds": -((row["started_at"] - row["finished_at"]) // 1000),
            "notes": "; ".join(row["notes"]),
        }
        for row in newest
    ]
    unfinished = [job for job in current_run.JOBS if current_run.unfinished_plan(scope.lake, job, plans.Plan)]
    if not unfinished:
        return Section(title, "No job was interrupted.", rows)
    return Section(title, f"Interrupted or still running: {', '.join(unfinished)}. Run a job again to resume it.", rows)


def tables(scope: Scope, table_sizes: pa.Table) -> Section:
    """Return the section on the sizes of the tables, all in one unit; `table_sizes` is from `lake.upkeep.sizes`."""
    largest = sorted(table_sizes.to_pylist(), key=lambda row: (-row["bytes"], row["table"]))
    drawn = [row for row in largest[:MAX_GROUPS] if row["bytes"]]
    unit = unit_of(sum(row["bytes"] for row in largest))
    rows: list[Row] = [
        {"table": row["table"], "rows": row["rows"], "files": row["files"], "size": size(row["bytes"], unit)}
        for row in largest
    ]
    chart = None
    if drawn:
        chart = Bars(
            [row["table"] for row in drawn],
            {"bytes": np.array([row["bytes"] for row in drawn], float)},
            [size(row["bytes"], unit) for row in drawn],
        )
    compact = scope.command("maintain", by_group=False)
    return Section(
        "Tables",
        f"The size of the tables on disk, without old versions. To compact small files: {compact}.",
        rows,
        chart,
    )


def positions(scope: Scope) -> Section:
    """Return the section on the log offsets up to which the log partitions were read, without empty partitions."""
    title, newest = "Log positions", runs.last_run(scope.lake, "ingest")
    ends = sorted(position[:3] for position in (newest and newest.positions) or ())
    rows: list[Row] = [
        {"log topic": topic, "partition": partition, "read up to log offset": position}
        for topic, partition, position in ends
        if position
    ]
    if not rows:
        return Section(title, "No log partition was read.")
    empty = f" Empty log partitions: {len(ends) - len(rows):,}." if len(ends) > len(rows) else ""
    return Section(title, f"Log partitions read: {len(rows):,}.{empty}", rows)
