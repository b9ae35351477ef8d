"""`repair`: commits that were written in part, and torn ends of the log.

A commit whose parts are not all there never counts (`lifecycle.reduction.incomplete`), but its parts are the newest
records of their keys: cleaning by key would keep them and take the values that count. So what counts is written once
more, at the end of the log; where nothing does, a tombstone.
"""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.writer.appending import truncate_torn
from offsetlake.log.writer.ownership import owned
from offsetlake.log.writer.served_log import served
from offsetlake.pipeline.changes.alterations import OFFSET, VALUES
from offsetlake.pipeline.changes.execute import execute, rows_of
from offsetlake.pipeline.changes.selection import groups_at
from offsetlake.rules.reduction import KEY, latest
from offsetlake.util.row_codes import rows_in

JOB = "repair"

_PARTS = """
SELECT group_id, topic, "partition", log_partition, log_offset, commit_id, commit_size FROM pending_offsets
WHERE commit_id IS NOT NULL ORDER BY log_partition, log_offset
"""


def cut_torn_ends(folder: Path) -> list[str]:
    """Cut the log's torn ends off, as whoever writes to it does first; says what was cut."""
    with served(folder) as door:
        if door is not None:
            return []
        with owned(folder, JOB):
            cut = truncate_torn(folder)
    return [
        f"{where}: the last {size} bytes were no whole batch; they are cut off, and kept in a .torn file beside it"
        for where, size in sorted(cut.items())
    ]


def repair(lake: Lake, log: LogAddress, now: int, say: Callable[[str], None], notes: list[str]) -> pa.Table:
    """Write the values that count behind the parts of commits that never will; gives what came of each offset.

    The columns of `alterations`; `evidence` tells which commit, and how much of it is there. The tables must be up to
    date. Raises what `emit` raises.
    """
    return execute(lake, log, JOB, "alterations", lambda: plan_repair(lake, now), say, notes)[0]


def plan_repair(lake: Lake, now: int) -> pa.Table:
    """Plan to write again what counts of every offset that a commit in part stands before; rows of `alterations`."""
    parts = lake.query(_PARTS, "pending_offsets")
    evidence = pa.array(_told(parts), pa.string())
    exposed = latest(parts.append_column("evidence", evidence))
    places = dict(zip(exposed["group_id"].to_pylist(), exposed["log_partition"].to_pylist(), strict=True))
    if not places:
        return rows_of("alterations", {"run_id": 0, "outcome": "planned", "strategy": JOB, "commit_timestamp": 0}, 0)
    stored = groups_at(lake, places).rows("offsets", OFFSET)
    at = rows_in(exposed, stored, KEY)
    found = {name: stored[name].take(pa.array(at, mask=at < 0)) for name in (*VALUES, "commit_timestamp", "log_offset")}
    columns = {
        **{name: exposed[name] for name in (*KEY, "log_partition", "evidence")},
        **{name: found[name] for name in VALUES},
        "run_id": 0,
        "outcome": "planned",
        "strategy": JOB,
        "judged_offset": found["log_offset"],
        "previous_offset": found["committed_offset"],
        "previous_leader_epoch": found["leader_epoch"],
        "previous_metadata": found["metadata"],
        "commit_timestamp": pc.fill_null(found["commit_timestamp"], now),
    }
    return rows_of("alterations", columns, exposed.num_rows)


def _told(parts: pa.Table) -> list[str]:
    """Say of each part which commit it is of, and what is left of it; its parts stand at successive log offsets."""
    rows = parts.to_pylist()
    runs: list[list[int]] = []
    for at, row in enumerate(rows):
        before = rows[at - 1] if at else None
        follows = before is not None and all(
            row[name] == before[name] + (name == "log_offset") for name in ("log_partition", "log_offset", "commit_id")
        )
        if follows:
            runs[-1].append(at)
        else:
            runs.append([at])
    told = [""] * len(rows)
    for run in runs:
        first, last = rows[run[0]], rows[run[-1]]
        for at in run:
            told[at] = (
                f"commit {first['commit_id']} of {first['commit_size']} parts is not complete: "
                f"{len(run)} of them at log offsets {first['log_offset']} to {last['log_offset']}"
            )
    return told
