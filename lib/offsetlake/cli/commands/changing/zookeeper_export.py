"""The work of `offsetlake export`, which needs the client library of ZooKeeper."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from kazoo.client import KazooClient

from offsetlake.cli.commands.changing.plans import show_outcomes
from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.output import write_note
from offsetlake.cli.progress import Progress
from offsetlake.errors import BadRequest
from offsetlake.lake.foreign.guard import open_verified
from offsetlake.pipeline.changes.export_offsets import committed_offsets
from offsetlake.pipeline.runner import up_to_date_copy
from offsetlake.util.amounts import counted
from offsetlake.util.properties import read_properties
from offsetlake.zookeeper import writing
from offsetlake.zookeeper.address import SETTINGS, ZooKeeperAddress
from offsetlake.zookeeper.client import connected
from offsetlake.zookeeper.offset_values import offset_in
from offsetlake.zookeeper.undo_files import load_undo, refuse_changed, save_undo
from offsetlake.zookeeper.writing import OffsetChange

# The columns of a plan for people by their headings, each with its importance (`offsetlake.cli.tables.Column`).
_SHOWN = {
    "group_id": 1, "topic": 1, "partition": 1, "current_offset": 1, "new_offset": 1, "outcome": 1, "reason": 1,
}  # fmt: skip
_COLUMNS = pa.schema(
    [
        ("group_id", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("path", pa.string()),
        ("previous_offset", pa.int64()),
        ("committed_offset", pa.int64()),
        ("outcome", pa.string()),
        ("reason", pa.string()),
    ]
)


def export_offsets(
    context: CommandContext,
    target: str,
    pattern: str | None,
    zookeeper_config: str | None,
    undo: str | None,
    *,
    execute: bool,
) -> None:
    """Show the plan of `offsetlake export`, with the arguments and options of the command, and execute it if asked."""
    if undo is not None and pattern is not None:
        raise BadRequest("--undo restores all offsets in the file: omit PATTERN.")
    settings = {} if zookeeper_config is None else read_properties(zookeeper_config, SETTINGS)
    address = ZooKeeperAddress.parse(target, settings)
    undo_words = ["export", target, *(["--zookeeper-config", zookeeper_config] if zookeeper_config else []), "--undo"]
    saved: Path | None = None
    with Progress() as progress:
        found = load_undo(Path(undo)) if undo is not None else None
        changes = found.changes if found else _of_lake(context, pattern or "*", progress)
        with connected(address) as client:
            progress.say(f"reading offsets from {address}")
            writing.compare(client, changes)
            if found:
                refuse_changed(found)
            _note_requests(changes)
            if execute:
                saved = _execute(client, changes, progress)
        undo_words.append(str(saved))
        show_outcomes(context, _rows(changes), _SHOWN, undo_words, f"ZooKeeper at {address}", execute=execute)


def _of_lake(context: CommandContext, pattern: str, progress: Progress) -> list[OffsetChange]:
    """Return the offsets that groups have at the end of the log."""
    lake = open_verified(context.settings.lake)
    context.note_unread(lake)
    with up_to_date_copy(lake, context.log, progress.say) as copy:
        rows = committed_offsets(copy, pattern)
    columns = (rows[name].to_pylist() for name in ("group_id", "topic", "partition", "committed_offset", "reason"))
    return [
        OffsetChange(group, topic, partition, str(offset).encode(), reason)
        for group, topic, partition, offset, reason in zip(*columns, strict=True)
    ]


def _note_requests(changes: list[OffsetChange]) -> None:
    """Show which groups are too large for one request."""
    counts: dict[str, int] = {}
    for request in writing.requests(changes):
        counts[request[0].group_id] = counts.get(request[0].group_id, 0) + 1
    for name, count in counts.items():
        if count > 1:
            write_note(f"Group {name} takes {counted(count, 'request')}; each is atomic, but not all together.")


def _execute(client: KazooClient, changes: list[OffsetChange], progress: Progress) -> Path | None:
    """Save what is replaced, and write the planned changes; return the file, None if nothing is planned."""
    if all(change.outcome != "planned" for change in changes):
        return None
    file = Path(f"export-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"[:-3] + "Z.jsonl")
    save_undo(changes, file)
    write_note(f"What is replaced is saved in {file}.")
    writing.write(client, changes, lambda count: progress.say(f"writing offsets: {count:,}"))
    return file


def _rows(changes: list[OffsetChange]) -> pa.Table:
    rows = [
        (
            change.group_id,
            change.topic,
            change.partition,
            change.path,
            *(None if content is None else offset_in(content)[0] for content in (change.previous, change.content)),
            change.outcome,
            change.reason,
        )
        for change in changes
    ]
    columns = zip(*rows, strict=True) if rows else [()] * len(_COLUMNS)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _COLUMNS, strict=True)]
    return pa.table(arrays, schema=_COLUMNS)
