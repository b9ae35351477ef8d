"""How a command by which a person changes offsets goes: a plan first; `--execute` acts, and reads back."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake import config
from offsetlake.errors import Refused
from offsetlake.lake.lake import Lake
from offsetlake.lifecycle.offsets_csv import write_offsets
from offsetlake.lifecycle.reduction import KEY
from offsetlake.log.address import LogAddress
from offsetlake.output import Progress, tell, write, write_exact

if TYPE_CHECKING:
    from offsetlake.log.admin import Admin

# As in `commands/questions.py`.
OF_TOMBSTONES = {
    "group_id": 1, "topic": 1, "partition": 1, "committed_offset": 2, "group_type": 4, "state": 3, "outcome": 1,
    "reason": 2,
}  # fmt: skip
OF_ALTERATIONS = {
    "group_id": 1, "topic": 1, "partition": 1, "previous_offset": 1, "committed_offset": 1, "difference": 3,
    "outcome": 1, "reason": 2,
}  # fmt: skip
_IN_ORDER = [(name, "ascending") for name in KEY]  # null, the group itself, comes last


@dataclass(frozen=True, slots=True)
class Hand:
    """One command at work: the lake, its log, and where to say what is going on."""

    settings: config.Config
    lake: Lake
    log: LogAddress
    say: Callable[[str], None]

    @property
    def live(self) -> bool:
        """Whether the log is a live cluster's."""
        return self.log.connection is not None

    @contextmanager
    def admin(self) -> "Iterator[Admin | None]":
        """Reach the cluster's admin API, where the log is a live cluster's."""
        if self.log.connection is None:
            yield None
        else:
            from offsetlake.log.admin import Admin  # noqa: PLC0415 - only a live cluster needs it

            with Admin(self.log.connection) as admin:
                yield admin

    def act(
        self, job: str, table: str, make: Callable[[], pa.Table], shown: Mapping[str, int], *, execute: bool
    ) -> None:
        """Bring the tables up to date, plan, show the plan; with `execute` do it first, and show what came of it.

        Raises Refused where something asked for was not, or cannot be, done.
        """
        from offsetlake import cycle  # noqa: PLC0415 - imports Spark, which `--help` need not
        from offsetlake.pipeline import by_hand  # noqa: PLC0415

        cycle.catch_up(self.lake, self.log, self.say)
        if execute:
            rows, done = by_hand.execute(self.lake, self.log, job, table, make, self.say)
            cycle.catch_up(self.lake, self.log, self.say)
        else:
            rows = by_hand.with_outcome(make()).sort_by(_IN_ORDER)
        refused = by_hand.count_of(rows, "refused")
        left = rows.num_rows - refused
        noted = "note" in rows.column_names and pc.any(pc.is_valid(rows["note"])).as_py()
        write(_with_difference(rows), self.settings.format, {**shown, "note": 2} if noted else shown)
        if not rows.num_rows:
            tell("nothing is to be changed")
        elif left and execute:
            tell(f"{left:,} done; to undo them: offsetlake restore --run {done['run_id']}")
        elif left:
            but = f", {refused:,} cannot be done" if refused else ""
            tell(f"{left:,} planned{but}, nothing is done yet: add --execute to do it")
        if refused and (execute or not left):
            raise Refused(f"{refused:,} of {rows.num_rows:,} {'refused' if execute else 'cannot be done'}: see reason")

    def export(self, make: Callable[[], pa.Table], *, with_group: bool) -> None:
        """Print the offsets of a plan as kafka-consumer-groups exports them."""
        from offsetlake import cycle  # noqa: PLC0415 - as in `act`

        cycle.catch_up(self.lake, self.log, self.say)
        rows = make()
        rows = rows.rename_columns(["new_offset" if n == "committed_offset" else n for n in rows.column_names])
        write_exact(write_offsets(rows, with_group=with_group).decode())


def _with_difference(rows: pa.Table) -> pa.Table:
    if "previous_offset" not in rows.column_names:
        return rows
    both = (rows[name].cast(pa.decimal128(20)) for name in ("committed_offset", "previous_offset"))
    return rows.append_column("difference", pc.subtract(*both))


@contextmanager
def hand(
    lake: str | None,
    log: str | None,
    bootstrap: str | None,
    kafka_config: str | None,
    config_file: str | None,
    format_: str | None,
) -> Iterator[Hand]:
    """Open the lake and the log that the options name."""
    options = {"lake": lake, "log": log, "bootstrap": bootstrap, "kafka_config": kafka_config, "config": config_file}
    settings = config.load(options | {"format": format_}, os.environ)
    address = settings.address()
    Lake.open(settings.lake)
    with Progress() as progress:
        yield Hand(settings, Lake.create(settings.lake), address, progress.say)


Plan = Callable[[Hand], pa.Table]
"""Makes a plan for the lake at hand."""
