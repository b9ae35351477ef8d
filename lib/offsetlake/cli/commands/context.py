"""What every command runs with: its shared options, and the settings, lake and log that they select."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from offsetlake.cli import config, output
from offsetlake.errors import TableChanged
from offsetlake.lake.foreign.guard import refuse_changed
from offsetlake.lake.history_cuts import Scope
from offsetlake.lake.lake import Lake
from offsetlake.lake.runs import last_run
from offsetlake.log.address import CLUSTER_SCHEME, LogAddress
from offsetlake.queries.questions import what_was_dropped


@dataclass(frozen=True)
class CommandContext:
    """The shared options of one command, and what they select.

    | Field     | Description |
    |-----------|-------------|
    | options   | Value of each shared option of the command by its name, except `limit`; None if it was omitted. |
    | limit     | Maximum number of rows to write: 0 is unlimited, None the default of the output format. |
    | arguments | All arguments of the command line, beginning with the name of the command. |
    """

    options: Mapping[str, str | None]
    limit: int | None = None
    arguments: Sequence[str] = ()

    @cached_property
    def settings(self) -> config.Config:
        """The settings from the defaults, the settings file, the environment and the options."""
        return config.load(self.options, os.environ)

    @cached_property
    def log(self) -> LogAddress:
        """The log that the settings name or, if they name none, the log that the lake was last read from.

        Raises BadRequest if neither names a log.
        """
        settings = self.settings
        if settings.log is None and settings.bootstrap is None and Lake(settings.lake).version():
            ingest = last_run(Lake.open(settings.lake), "ingest")
            location = ingest.log if ingest else None
            if location and location.startswith(CLUSTER_SCHEME):
                settings = replace(settings, bootstrap=location.removeprefix(CLUSTER_SCHEME))
            else:
                settings = replace(settings, log=location)
        return settings.address()

    def open_lake(self, *, warn_only: bool = False) -> Lake:
        """Open the lake for a query.

        Args:
            warn_only: Print a warning, instead of raising TableChanged, if another program changed a table.

        """
        lake = Lake.open(self.settings.lake)
        try:
            refuse_changed(lake)
        except TableChanged as error:
            if not warn_only:
                raise
            output.write_note(f"warning: {error}")
        return lake

    def note_dropped(self, lake: Lake, scope: Scope = "history") -> None:
        """Write a note to standard error if `maintain` has dropped rows that the answer would have had."""
        if note := what_was_dropped(lake, scope):
            output.write_note(note)

    @property
    def max_rows(self) -> int | None:
        """The maximum number of rows to query; None if all are needed to count those that are not written."""
        return self.limit or None

    def write(self, answer: pa.Table, shown: Mapping[str, int] | None = None, total: int | None = None) -> None:
        """Write an answer in the selected format, up to the limit (`offsetlake.cli.output.write`)."""
        output.write(answer, self.settings.format, shown, self.limit, total=total)

    def flags(self, *names: str) -> list[str]:
        """Return the named options as they were given, for a command that uses the same lake or log."""
        given = ((f"--{name.replace('_', '-')}", self.options.get(name)) for name in names)
        return [word for flag, value in given if value for word in (flag, value)]
