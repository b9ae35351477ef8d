"""Writes the lake of `console.py`: one year with 100,000 groups, 10 M offsets and 20 M commits, without a log.

The history is written as 12 ingests would have written it, with the columns `repeats` and `routine`, then `compact` and
`expire` run. The year ends now, because retention depends on the clock.

| what | number |
|---|---|
| groups `TEAM.SERVICE-NUMBER` | 100,000, each with 5 topics of 20 partitions; 60 % have a member, the others became empty in the last 6 days |
| of these, busy groups | 900 (every 111th), each with 10 partitions that were committed 1,000 times, 0.2 % of the commits lower offsets, and 50 rebalances |
| `clickstream` | one partition with 1 M commits |
| `retired` | 60 offsets, empty for 9 days: planned tombstones |
| `gone-NUMBER` | 200 groups whose 50 offsets were tombstoned |
| audit events | of 1 % of the commits of busy groups, by 50 principals and 2,000 client ids |
| runs | an ingest, a compaction, an evaluation and an emit a day |
| log end offsets | 20,000 partitions, recorded at each ingest with records |
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from common.console_year import (
    COMMIT,
    DAY_MS,
    DAYS,
    EVERY_BUSY,
    LOG_PARTITIONS,
    PARTITIONS,
    RECORD,
    TOPICS,
    Events,
    Ints,
    Year,
)
from offsetlake.lake import runs
from offsetlake.lake.definitions import HISTORY
from offsetlake.lake.files import FileChanges, TableFile, commit, table_schema
from offsetlake.lake.lake import Lake
from offsetlake.lake.location.folder import Folder
from offsetlake.log.positions import OFFSETS_TOPIC
from offsetlake.pipeline.compact.job import compact
from offsetlake.pipeline.expire.job import expire
from offsetlake.pipeline.maintain.history_steps import compute_steps
from offsetlake.rules.policy import RetentionPolicy

BLOCK, MONTHS = 10, 12


def year_lake(path: Path, groups: int = 100_000) -> Lake:
    """Write the lake; `groups` scales everything but the numbers for a group."""
    Folder.make_durable = lambda *_: None  # type: ignore[method-assign]
    lake, year = Lake.create(path), Year(groups)
    changes: dict[str, list[list[FileChanges]]] = {
        table: [[] for _ in range(MONTHS)] for table in ("offset_commits", "group_records", "audit_events")
    }
    counts = [dict.fromkeys(HISTORY, 0) for _ in range(MONTHS)]
    positions: Ints = np.zeros((MONTHS + 1, LOG_PARTITIONS), np.int64)
    for first in range(0, LOG_PARTITIONS, BLOCK):
        _write_block(lake, year, range(first, first + BLOCK), positions, changes, counts)
    for month in range(MONTHS):
        for table, by_month in changes.items():
            commit(lake, table, by_month[month], "ingest", _ingest_run(month))
    _write_log_ends(lake, year)
    _write_runs(lake, year, positions, counts)
    compute_steps(lake, DAYS * 4, print)
    compact(lambda: None, lake, print)
    expire(lambda: None, lake, RetentionPolicy(7 * DAY_MS), year.end, print)  # type: ignore[arg-type,return-value]
    return lake


def _ingest_run(month: int) -> int:
    """Return the number of the ingest that read a month: the first of the four runs of the day after it."""
    return (DAYS * (month + 1) // MONTHS - 1) * 4 + 1


def _write_block(
    lake: Lake,
    year: Year,
    block: range,
    positions: Ints,
    changes: dict[str, list[list[FileChanges]]],
    counts: list[dict[str, int]],
) -> None:
    """Write the records of some log partitions, a file a month and table."""
    columns = [(partition, year.events(partition)) for partition in block]
    bounds = [year.start + DAYS * DAY_MS * month // MONTHS for month in range(MONTHS)] + [2**62]
    for month in range(MONTHS):
        files = {table: TableFile(lake, table) for table in changes}
        for partition, events in columns:
            start, end = np.searchsorted(events.time, bounds[month : month + 2])
            positions[month + 1, partition] = end
            rows = np.zeros(len(events.time), bool)
            rows[start:end] = True
            for table, part in _tables(year, partition, events.take(rows), int(start), _ingest_run(month)):
                files[table].write(part)
                counts[month][table] += part.num_rows
        for table, file in files.items():
            changes[table][month].append(FileChanges(added=file.close()))


def _tables(year: Year, partition: int, events: Events, start: int, run: int) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of the history tables."""
    log_offset = np.arange(start, start + len(events.time))
    shared = {"log_offset": log_offset, "log_timestamp": events.time, "group": events.group}
    is_record = events.kind == RECORD
    chosen = {name: column[~is_record] for name, column in shared.items()}
    commits = events.take(~is_record)
    is_commit = commits.kind == COMMIT
    keys = (commits.group * (TOPICS + 1) + commits.topic) * 100 + commits.partition
    newest = np.zeros(len(keys), bool)
    newest[len(keys) - 1 - np.unique(keys[::-1], return_index=True)[1]] = True
    yield (
        "offset_commits",
        _filled(
            "offset_commits",
            run,
            partition,
            **_places(year, chosen),
            kind=_dictionary(commits.kind, ["commit", "tombstone"]),
            topic=_dictionary(commits.topic, year.topics),
            partition=commits.partition,
            committed_offset=pa.array(commits.value, mask=~is_commit),
            metadata=_dictionary(np.zeros(len(keys), np.int64), [""], ~is_commit),
            commit_timestamp=pa.array(commits.time, mask=~is_commit),
            record_type=np.ones(len(keys), np.int32),
            value_version=pa.array(np.full(len(keys), 3), mask=~is_commit),
            superseded=~newest,
        ),
    )
    yield "group_records", _group_records(year, partition, {n: c[is_record] for n, c in shared.items()}, events, run)
    sampled = (commits.group % EVERY_BUSY == 0) & is_commit & (year.random.random(len(keys)) < 0.01)
    yield "audit_events", _audit_events(year, partition, {n: c[sampled] for n, c in chosen.items()}, run)


def _group_records(year: Year, partition: int, shared: dict[str, Ints], events: Events, run: int) -> pa.Table:
    values = [year.values[number] for number in events.value[events.kind == RECORD].tolist()]
    return _filled(
        "group_records",
        run,
        partition,
        **_places(year, shared),
        kind=["tombstone" if value is None else "value" for value in values],
        record_type=[2] * len(values),
        record_name=["GROUP_METADATA"] * len(values),
        key=[json.dumps({"group": year.names[group]}) for group in shared["group"].tolist()],
        value=values,
        value_version=[None if value is None else 3 for value in values],
    )


def _audit_events(year: Year, partition: int, shared: dict[str, Ints], run: int) -> pa.Table:
    group = shared["group"]
    return _filled(
        "audit_events",
        run,
        partition,
        **_places(year, shared),
        last_log_offset=shared["log_offset"],
        what=["commit"] * len(group),
        principal=[f"User:svc-{number % 50}" for number in group.tolist()],
        client_id=[f"client-{number % 2000}" for number in group.tolist()],
        address=[f"10.0.{number % 250}.7:40001" for number in group.tolist()],
    )


def _places(year: Year, shared: dict[str, Ints]) -> dict[str, object]:
    return {
        "log_offset": shared["log_offset"],
        "log_timestamp": shared["log_timestamp"],
        "group_id": _dictionary(shared["group"], year.names),
    }


def _dictionary(codes: Ints, names: list[str], mask: NDArray[np.bool_] | None = None) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32), mask=mask), pa.array(names))


def _filled(table: str, run: int, log_partition: int, **columns: object) -> pa.Table:
    """Return rows of a history table; columns that are not given are null."""
    schema = table_schema(table)
    count = len(columns["log_offset"])  # type: ignore[arg-type]
    given = {
        "ingest_run": pa.repeat(pa.scalar(run, pa.int64()), count),
        "log_partition": pa.repeat(pa.scalar(log_partition, pa.int32()), count),
        **columns,
    }
    arrays = []
    for field in schema:
        column = given.get(field.name)
        if column is None:
            arrays.append(pa.nulls(count, field.type))
        elif isinstance(column, pa.DictionaryArray) and field.name in ("kind", "group_id", "topic", "metadata"):
            is_text = table == "group_records"
            arrays.append(column.dictionary_decode() if is_text else column)
        else:
            arrays.append(pa.array(column).cast(field.type))
    return pa.table(arrays, names=schema.names)


def _write_log_ends(lake: Lake, year: Year) -> None:
    schema = table_schema("log_ends")
    for month in range(MONTHS):
        run = _ingest_run(month)
        asked = year.start + DAYS * DAY_MS * (month + 1) // MONTHS - 30_000
        shared = {"ingest_run": run, "asked_timestamp": asked, "complete_run": run}
        rows = [dict.fromkeys(schema.names) | shared]
        for topic in year.topics:
            for partition in range(PARTITIONS if topic != "clicks" else 1):
                end = (50_000_000 if topic == "clicks" else 1_020_000) * (month + 1) // MONTHS
                rows.append(
                    {
                        **shared, "topic": topic, "partition": partition, "start_offset": 0, "end_offset": end,
                        "first_timestamp": asked if month == 0 else year.start,
                    }
                )  # fmt: skip
        file = TableFile(lake, "log_ends")
        file.write_rows(rows)
        commit(lake, "log_ends", [FileChanges(added=file.close())], "ingest", run)


def _write_runs(lake: Lake, year: Year, positions: Ints, counts: list[dict[str, int]]) -> None:
    """Write the runs of each day: those of an ingest with records, and others without."""
    months = {_ingest_run(month): month for month in range(MONTHS)}
    rows, read = [], positions[0]
    for number in range(DAYS * 4):
        run_id, job = number + 1, ("ingest", "compact", "expire", "emit")[number % 4]
        started = year.start + (number // 4 + 1) * DAY_MS - 20_000 + number % 4 * 4_000
        month = months.get(run_id)
        before, read = read, read if month is None else positions[month + 1]
        ranges = [
            runs.LogRange(OFFSETS_TOPIC, partition, int(before[partition]), int(read[partition]))
            for partition in range(LOG_PARTITIONS)
            if before[partition] < read[partition]
        ]
        at = [runs.IngestPosition(OFFSETS_TOPIC, partition, int(end), None) for partition, end in enumerate(read)]
        is_ingest = job == "ingest"
        run = runs.Run(
            run_id=run_id, job=job, outcome="done" if month is not None else "nothing new", started_at=started,
            finished_at=started + 3_000, counts={} if month is None else counts[month],
            ranges=tuple(ranges) if is_ingest else None, positions=tuple(at) if is_ingest else None,
            gaps=() if is_ingest else None, log="kafka" if is_ingest else None,
        )  # fmt: skip
        rows.append(run.to_row() | ({"counts": [("share_partitions", 0)]} if job == "compact" else {}))
    file = TableFile(lake, "runs")
    file.write_rows(rows)
    commit(lake, "runs", [FileChanges(added=file.close())], "ingest", DAYS * 4)
