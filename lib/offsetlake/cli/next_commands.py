"""Suggests commands that have an answer in a lake."""

from collections.abc import Sequence
from typing import Any

import pyarrow.compute as pc

from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import quoted
from offsetlake.queries.run_changes import RunChanges
from offsetlake.util.command_lines import command_line
from offsetlake.util.times import to_iso


def next_commands(lake: Lake, changed: RunChanges | None, flags: Sequence[str]) -> list[str]:
    """Return three commands that have an answer in this lake; `flags` are the options that select the lake."""
    key = _example_key(lake, changed)
    if key is None:
        by_type = "SELECT record_name, count(*) AS records FROM group_records GROUP BY record_name"
        return [command_line("groups", *flags), command_line("sql", *flags, by_type), command_line("runs", *flags)]
    group, topic, timestamp = ("--group", key["group_id"]), ("--topic", key["topic"]), key["log_timestamp"]
    as_of = () if timestamp is None else ("--as-of", to_iso(timestamp))
    busiest = (
        "SELECT group_id, count(*) AS commits FROM offset_commits GROUP BY group_id ORDER BY commits DESC LIMIT 10"
    )
    return [
        command_line("history", *flags, *group, *topic, "--partition", str(key["partition"])),
        command_line("offsets", *flags, *group, *as_of),
        command_line("sql", *flags, busiest),
    ]


def _example_key(lake: Lake, changed: RunChanges | None) -> dict[str, Any] | None:
    """Return a key of `offsets`, preferably of the group with the most changes, or else one of history."""
    groups = []
    if changed is not None and changed.groups:
        groups = changed.most.filter(pc.greater(changed.most["offsets"], 0))["group_id"].to_pylist()
    of_group = f"WHERE group_id = {quoted(groups[0])} ORDER BY topic, partition" if groups else ""
    columns = "group_id, topic, partition, log_timestamp"
    in_state = f"SELECT {columns} FROM offsets {of_group} LIMIT 1"  # noqa: S608
    in_history = f"SELECT {columns} FROM offset_commits WHERE kind = 'commit' AND producer_id IS NULL LIMIT 1"  # noqa: S608
    keys = lake.query(in_state, "offsets").to_pylist() or lake.query(in_history, "offset_commits").to_pylist()
    return keys[0] if keys else None
