"""How a command by which a person changes offsets goes: a plan first; `--execute` acts, and reads back."""

import os
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.cli import config
from offsetlake.cli.commands.options import log_of
from offsetlake.cli.output import Progress, tell, write, write_exact
from offsetlake.errors import Refused
from offsetlake.lake.foreign.guard import open_verified
from offsetlake.lake.lake import Lake
from offsetlake.lake.scratch import scratch
from offsetlake.log.address import LogAddress
from offsetlake.log.cluster.admin import ClusterAdmin
from offsetlake.pipeline import runner
from offsetlake.pipeline.changes import execute as changes
from offsetlake.rules.offsets_csv import write_offsets
from offsetlake.rules.reduction import KEY

# As in `cli/commands/questions.py`, by the headings of a plan.
OF_TOMBSTONES = {
    "group_id": 1, "topic": 1, "partition": 1, "current_offset": 2, "group_type": 4, "state": 3, "outcome": 1,
    "reason": 1,
}  # fmt: skip
OF_ALTERATIONS = {
    "group_id": 1, "topic": 1, "partition": 1, "current_offset": 1, "requested_offset": 2, "new_offset": 1,
    "difference": 3, "outcome": 1, "reason": 1,
}  # fmt: skip

Plan = Callable[[Lake], pa.Table]
"""Makes a plan from a lake that is up to date with its log."""

_PLACES = ("lake", "log", "bootstrap", "kafka_config", "config")
_IN_ORDER = [(name, "ascending") for name in KEY]  # null, the group itself, comes last


@dataclass(frozen=True, slots=True)
class CommandContext:
    """One command at work: the lake, its log, where to say what is going on, and what the command was given."""

    settings: config.Config
    lake: Lake
    log: LogAddress
    say: Callable[[str], None]
    options: Mapping[str, str | None]
    given: Sequence[str]

    def command(self, *words: str, of: Collection[str] = _PLACES) -> str:
        """Return a command with the options that name the lake and the log as they were given, as a person types it."""
        named = ((f"--{name.replace('_', '-')}", value) for name, value in self.options.items() if value and name in of)
        return shlex.join(["offsetlake", *words, *(word for pair in named for word in pair)])

    @property
    def live(self) -> bool:
        """Whether the log is a live cluster's."""
        return self.log.connection is not None

    @contextmanager
    def admin(self) -> "Iterator[ClusterAdmin | None]":
        """Reach the cluster's admin API, where the log is a live cluster's."""
        if self.log.connection is None:
            yield None
        else:
            with ClusterAdmin(self.log.connection) as admin:
                yield admin

    def act(self, job: str, table: str, make: Plan, shown: Mapping[str, int], *, execute: bool) -> None:
        """Plan and show the plan; with `execute` do it first, and show what came of it.

        A plan is made from tables that are up to date with the log: the lake's own with `execute`, else a copy's, so
        that nothing is written to the lake. Raises Refused where something asked for was not, or cannot be, done.
        """
        if execute:
            lake = Lake.create(self.lake.path)
            runner.catch_up(lake, self.log, self.say)
            rows, done = changes.execute(lake, self.log, job, table, lambda: make(lake), self.say)
            runner.catch_up(lake, self.log, self.say)
        else:
            with self.planning() as lake:
                rows = changes.with_outcome(make(lake)).sort_by(_IN_ORDER)
        refused = changes.count_of(rows, "refused")
        changed = rows.num_rows - refused - changes.count_of(rows, "unchanged")
        answer = _for_people(rows)
        write(_with_headings(answer) if self.settings.format == "table" else answer, self.settings.format, shown)
        if not changed and not refused:
            tell("nothing is to be changed")
        elif changed and execute:
            tell(f"{changed:,} done. To undo them: {self.command('restore', '--run', str(done.run_id))}")
        elif changed:
            but = f", {refused:,} cannot be done" if refused else ""
            again = shlex.join(["offsetlake", *self.given, "--execute"])
            tell(f"{changed:,} planned{but}, nothing is done yet. To do it: {again}")
        if refused and (execute or not changed):
            raise Refused(f"{refused:,} of {rows.num_rows:,} {'refused' if execute else 'cannot be done'}: see reason")

    @contextmanager
    def planning(self) -> Iterator[Lake]:
        """Yield a copy of the lake that is up to date with the log; the lake itself is only read."""
        with scratch(self.lake) as lake:
            runner.catch_up(lake, self.log, self.say)
            yield lake

    def export(self, make: Plan, *, with_group: bool) -> None:
        """Print the offsets of a plan as kafka-consumer-groups exports them."""
        with self.planning() as lake:
            rows = make(lake)
        rows = rows.rename_columns(["new_offset" if n == "committed_offset" else n for n in rows.column_names])
        write_exact(write_offsets(rows, with_group=with_group).decode())


def _for_people(rows: pa.Table) -> pa.Table:
    """Add the difference of the offsets, and what there is to know of a row to its reason."""
    if "note" not in rows.column_names:
        return rows
    both = (rows[name].cast(pa.decimal128(20)) for name in ("committed_offset", "previous_offset"))
    reason = pc.coalesce(rows["reason"], rows["note"])
    rows = rows.set_column(rows.column_names.index("reason"), "reason", reason).drop_columns(["note"])
    return rows.append_column("difference", pc.subtract(*both))


def _with_headings(rows: pa.Table) -> pa.Table:
    """Call the offsets of a plan what they are to a person: the tables name them by what they are once it is done."""
    current = "previous_offset" if "previous_offset" in rows.column_names else "committed_offset"
    headings = {"committed_offset": "new_offset", current: "current_offset"}
    return rows.rename_columns([headings.get(name, name) for name in rows.column_names])


@contextmanager
def hand(
    lake: str | None,
    log: str | None,
    bootstrap: str | None,
    kafka_config: str | None,
    config_file: str | None,
    format_: str | None,
    given: Sequence[str] = (),
) -> Iterator[CommandContext]:
    """Open the lake and the log that the options name; `given` are all arguments of the command."""
    options = {"lake": lake, "log": log, "bootstrap": bootstrap, "kafka_config": kafka_config, "config": config_file}
    settings = config.load(options | {"format": format_}, os.environ)
    address = log_of(settings)
    opened = open_verified(settings.lake)
    with Progress() as progress:
        yield CommandContext(settings, opened, address, progress.say, options, given)
