"""`repair`: repairs incomplete commits, and truncates torn ends of the log.

An incomplete commit never takes effect (`rules.reduction.incomplete`), but its parts are the newest records of their
keys: log compaction would keep them, and delete the effective values. Repair therefore writes the effective value of
each key again at the end of the log, or a tombstone if there is none.
"""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.writer.ownership import owned
from offsetlake.log.writer.recovery import recover
from offsetlake.log.writer.served_log import served
from offsetlake.pipeline.changes.alterations import OFFSET, VALUES
from offsetlake.pipeline.changes.execute import execute, rows_of
from offsetlake.pipeline.changes.group_selection import select_groups
from offsetlake.rules.reduction import KEY, latest
from offsetlake.util.amounts import counted, noun
from offsetlake.util.columns import by_row, taken
from offsetlake.util.row_codes import rows_in

JOB = "repair"

_PARTS = """
SELECT group_id, topic, "partition", log_partition, log_offset, commit_id, commit_size FROM pending_offsets
WHERE commit_id IS NOT NULL ORDER BY log_partition, log_offset
"""


def truncate_torn_ends(folder: Path) -> list[str]:
    """Truncate torn ends of the log, as every writer does when it opens the log, and return notes about them."""
    with served(folder) as job_socket:
        if job_socket is not None:
            return []
        with owned(folder, JOB):
            truncated = recover(folder)
    return [
        f"{where}: truncated the last {size} bytes, which were not a complete batch; a .torn file contains them"
        for where, size in sorted(truncated.items())
    ]


def repair(lake: Lake, log: LogAddress, now: int, say: Callable[[str], None], notes: list[str]) -> pa.Table:
    """Write the effective values after the parts of incomplete commits, and return the outcome of each offset.

    The rows have the columns of `alterations`; `evidence` describes the commit and its parts. The tables must be up to
    date. Raises what `emit` raises.
    """
    return execute(lake, log, JOB, "alterations", lambda: plan_repair(lake, now), say, notes)[0]


def plan_repair(lake: Lake, now: int) -> pa.Table:
    """Plan to write the effective value of each offset in an incomplete commit again; rows of `alterations`.

    Offsets that a quarantined record leaves unknown have a reason.
    """
    parts = lake.query(_PARTS, "pending_offsets")
    evidence = pa.array(_evidence(parts), pa.string())
    newest = latest(parts.append_column("evidence", evidence))
    places = dict(zip(newest["group_id"].to_pylist(), newest["log_partition"].to_pylist(), strict=True))
    if not places:
        return rows_of("alterations", {"run_id": 0, "outcome": "planned", "strategy": JOB, "commit_timestamp": 0}, 0)
    groups = select_groups(lake, places)
    stored = groups.rows("offsets", (*OFFSET, "topic_id"))
    rows = rows_in(newest, stored, KEY)
    effective = {name: taken(stored[name], rows) for name in (*VALUES, "topic_id", "commit_timestamp", "log_offset")}
    position = {"log_partition": newest["log_partition"], "log_offset": effective["log_offset"]}
    unknown = groups.unknown_offsets(pa.table({name: newest[name] for name in KEY} | position))
    columns = {
        **{name: newest[name] for name in (*KEY, "log_partition", "evidence")},
        **{name: effective[name] for name in (*VALUES, "topic_id")},
        "run_id": 0,
        "outcome": "planned",
        "strategy": JOB,
        "judged_offset": effective["log_offset"],
        "previous_offset": effective["committed_offset"],
        "previous_leader_epoch": effective["leader_epoch"],
        "previous_metadata": effective["metadata"],
        "commit_timestamp": pc.fill_null(effective["commit_timestamp"], now),
        "reason": by_row(unknown, newest.num_rows),
    }
    return rows_of("alterations", columns, newest.num_rows)


def _evidence(parts: pa.Table) -> list[str]:
    """Return a text for each part about its commit and the existing parts, which have successive log offsets."""
    rows = parts.to_pylist()
    runs: list[list[int]] = []
    for index, row in enumerate(rows):
        previous = rows[index - 1] if index else None
        follows = previous is not None and all(
            row[name] == previous[name] + (name == "log_offset")
            for name in ("log_partition", "log_offset", "commit_id")
        )
        if follows:
            runs[-1].append(index)
        else:
            runs.append([index])
    texts = [""] * len(rows)
    for run in runs:
        first, last = rows[run[0]], rows[run[-1]]
        for index in run:
            texts[index] = (
                f"commit {first['commit_id']} is incomplete: {len(run)} of "
                f"{counted(first['commit_size'], 'part')} {noun(len(run), 'exists', 'exist')}, "
                f"at log offsets {first['log_offset']} to {last['log_offset']}"
            )
    return texts
