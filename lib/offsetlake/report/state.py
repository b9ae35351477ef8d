"""Sections on the log and the tables: growth, decisions, what could not be read, runs, sizes."""

import numpy as np
import pyarrow as pa

from offsetlake.lake import runs
from offsetlake.report import numbers, pictures
from offsetlake.report.page import Row, Section
from offsetlake.report.scope import MOST_GROUPS, Scope
from offsetlake.report.words import count, day, instant, size, unit_of

_KINDS = {"commits": "commits", "tombstones": "tombstones", "group_records": "about groups"}


def growth(scope: Scope) -> Section:
    """Show how the log grew, and by whom."""
    title, days = "Growth of the log", numbers.growth_by_day(scope)
    if not days.num_rows:
        return Section(title, "No record was appended in this time.")
    parts = {name: days[column].to_numpy().astype(float) for column, name in _KINDS.items()}
    groups = numbers.growth_by_group(scope, "records").to_pylist()
    rows = [
        {"group": row["group_id"], **{name: row[column] for column, name in _KINDS.items()}}
        for row in groups
    ]  # fmt: skip
    of = "a day" if scope.days_a_step == 1 else f"{scope.days_a_step} days"
    cut = scope.command("maintain", "--log", "DIR", by_group=False)
    return Section(
        title,
        f"Records appended, {of} a column. Who commits a lot makes it grow; to cut a log of your own: {cut}.",
        rows,
        pictures.columns([day(at) for at in days["day"].to_pylist()], parts),
        groups[0]["groups"] - len(rows),
        scope.command("audit", "log_growth"),
    )


def decisions(scope: Scope) -> Section:
    """Show what was decided to go and what came of it."""
    title, found = "Decisions", numbers.decisions(scope).to_pylist()
    if not found:
        return Section(title, "Nothing was ever decided to go.")
    outcomes = {row["outcome"] for row in found}
    says = []
    if "planned" in outcomes:
        says.append(f"To write the planned tombstones: {scope.command('emit', by_group=False)}.")
    if "refused" in outcomes:
        says.append(f"Why some were refused: {scope.command('tombstones', '--outcome', 'refused')}.")
    rows = [{"outcome": row["outcome"], "rule": row["rule"], "decisions": row["decisions"]} for row in found]
    picture = pictures.bars(
        [f"{row['outcome']}: {row['rule']}" for row in found],
        {"decisions": np.array([row["decisions"] for row in found], float)},
        [count(row["decisions"]) for row in found],
    )
    return Section(title, " ".join(says) or "Nothing waits.", rows, picture, command=scope.command("tombstones"))


def quarantine(scope: Scope) -> Section:
    """Show why records could not be decoded."""
    title, found = "Quarantine", numbers.undecodable(scope).to_pylist()
    if not found:
        return Section(title, "Every record could be decoded.")
    rows = [
        {"reason": row["reason"], "records": row["records"], "newest": instant(row["newest_timestamp"])}
        for row in found
    ]
    return Section(
        title,
        "These records could not be decoded and are kept with their bytes. A reason that recurs means a broken client, "
        "or a version of Kafka newer than offsetlake.",
        rows,
        command=scope.command("sql", "SELECT * FROM quarantine", by_group=False),
    )


def newest_runs(scope: Scope) -> Section:
    """Show when each job last ran, and what it noted."""
    title, found = "Runs", numbers.newest_runs(scope).to_pylist()
    if not found:
        return Section(title, f"No job has run. To read the log: {scope.read_log}.")
    rows = [
        {
            "job": row["job"],
            "runs": row["runs"],
            "newest": instant(row["finished_at"]),
            "seconds": -((row["started_at"] - row["finished_at"]) // 1000),
            "notes": "; ".join(row["notes"]),
        }
        for row in found
    ]
    cut_short = [job for job in runs.JOBS if runs.unfinished_plan(scope.lake, job, runs.Plan)]
    says = (
        f"Cut short or still at work: {', '.join(cut_short)}; run it again, and it goes on."
        if cut_short
        else ("No job was cut short.")
    )
    return Section(title, says, rows)


def tables(scope: Scope, found: pa.Table) -> Section:
    """Show how large the tables are, all in one unit; `found` is `lake.upkeep.sizes`."""
    largest = sorted(found.to_pylist(), key=lambda row: (-row["bytes"], row["table"]))
    drawn = [of for of in largest[:MOST_GROUPS] if of["bytes"]]
    unit = unit_of(sum(of["bytes"] for of in largest))
    rows: list[Row] = [
        {"table": of["table"], "rows": of["rows"], "files": of["files"], "size": size(of["bytes"], unit)}
        for of in largest
    ]
    picture = None
    if drawn:
        picture = pictures.bars(
            [of["table"] for of in drawn],
            {"bytes": np.array([of["bytes"] for of in drawn], float)},
            [size(of["bytes"], unit) for of in drawn],
        )
    fewer = scope.command("maintain", by_group=False)
    return Section(
        "Tables",
        f"What the tables take on disk, without old versions. To merge many files of few rows: {fewer}.",
        rows,
        picture,
    )


def positions(scope: Scope) -> Section:
    """Show up to which log offset each log partition was read; those of which nothing was read are left out."""
    title, newest = "Read so far", runs.last_run(scope.lake, "ingest")
    places = sorted(position[:3] for position in (newest and newest.positions) or ())
    rows: list[Row] = [
        {"log topic": topic, "partition": partition, "read up to log offset": position}
        for topic, partition, position in places
        if position
    ]
    empty = f" {len(places) - len(rows):,} more are empty." if len(places) > len(rows) else ""
    return Section(title, f"{len(rows):,} log partitions were read.{empty}" if rows else "None yet.", rows)
