"""Sections on the log and the tables: growth, decisions, what could not be read, runs, sizes."""

import numpy as np
import pyarrow as pa

from offsetlake.audit import questions
from offsetlake.lake import runs
from offsetlake.report import numbers, pictures
from offsetlake.report.page import Section
from offsetlake.report.scope import MOST_GROUPS, Scope
from offsetlake.report.words import count, day, instant, size

_KINDS = {"commits": "commits", "tombstones": "tombstones", "group_records": "about groups"}
_NEXT = {
    "planned": "offsetlake emit lets go what is planned.",
    "refused": "What was refused has its reason in offsetlake tombstones --outcome refused.",
}


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
    return Section(
        title,
        f"Records appended, {of} a column. Who commits a lot makes it grow; offsetlake maintain --log cuts a "
        "log of your own.",
        rows,
        pictures.columns([day(at) for at in days["day"].to_pylist()], parts),
        groups[0]["groups"] - len(rows),
        "offsetlake audit log_growth",
    )


def decisions(scope: Scope) -> Section:
    """Show what was decided to go and what came of it."""
    title, found = "Decisions", questions.outcomes(scope.lake).to_pylist()
    if not found:
        return Section(title, "Nothing was ever decided to go.")
    outcomes = {row["outcome"] for row in found}
    says = " ".join(advice for outcome, advice in _NEXT.items() if outcome in outcomes)
    rows = [{"outcome": row["outcome"], "rule": row["rule"], "decisions": row["decisions"]} for row in found]
    picture = pictures.bars(
        [f"{row['outcome']}: {row['rule']}" for row in found],
        {"decisions": np.array([row["decisions"] for row in found], float)},
        [count(row["decisions"]) for row in found],
    )
    return Section(title, says or "Nothing waits.", rows, picture, command="offsetlake tombstones")


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
        "These records could not be decoded and are kept with their bytes. A reason that goes on is a broken client, "
        "or a newer Kafka than this offsetlake knows.",
        rows,
        command="offsetlake sql 'SELECT * FROM quarantine'",
    )


def newest_runs(scope: Scope) -> Section:
    """Show when each job last ran, and what it noted."""
    title, found = "Runs", numbers.newest_runs(scope).to_pylist()
    if not found:
        return Section(title, "No job has run: offsetlake run reads the log.")
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
    cut_short = [job for job in runs.JOBS if runs.unfinished_plan(scope.lake, job)]
    says = (
        f"Cut short or still at work: {', '.join(cut_short)}; run it again, and it goes on."
        if cut_short
        else ("No job was cut short.")
    )
    return Section(title, says, rows)


def tables(found: pa.Table) -> Section:
    """Show how large the tables are; `found` is `lake.upkeep.sizes`."""
    largest = sorted(found.to_pylist(), key=lambda row: (-row["bytes"], row["table"]))
    drawn = largest[:MOST_GROUPS]
    return Section(
        "Tables",
        "What the tables take on disk, without old versions. Where there are many files of few rows, offsetlake "
        "maintain makes them few.",
        [{"table": of["table"], "rows": of["rows"], "files": of["files"], "size": size(of["bytes"])} for of in largest],
        pictures.bars(
            [of["table"] for of in drawn],
            {"bytes": np.array([of["bytes"] for of in drawn], float)},
            [size(of["bytes"]) for of in drawn],
        ),
    )


def positions(scope: Scope) -> Section:
    """Tell up to which log offset each log partition was read."""
    newest = runs.last_run(scope.lake, "ingest")
    places = sorted((at["topic"], at["partition"], at["position"]) for at in (newest or {}).get("positions") or ())
    of_topics = {
        topic: ", ".join(f"{partition} to {position:,}" for at, partition, position in places if at == topic)
        for topic in sorted({topic for topic, _, _ in places})
    }
    told = "; ".join(f"{topic}: {of_topic}" for topic, of_topic in of_topics.items())
    return Section("Read so far", f"Log partitions and the log offset each is read up to. {told or 'None yet'}.")
