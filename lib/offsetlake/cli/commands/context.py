"""What every command runs with: its shared options, and the settings, lake and log that they select."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

from offsetlake.api.open_lake import OpenLake
from offsetlake.cli import config, output
from offsetlake.cli.fleet.lakes import read_lakes, selected
from offsetlake.errors import BadRequest
from offsetlake.lake.foreign.guard import open_verified
from offsetlake.lake.history.history_cuts import Scope
from offsetlake.lake.lake import Lake
from offsetlake.lake.runs import last_run
from offsetlake.lake.sql.answers import Answer
from offsetlake.lake.unread import unread
from offsetlake.log.address import CLUSTER_SCHEME, LogAddress
from offsetlake.queries.answer_notes import notes
from offsetlake.queries.in_doubt import what_is_unknown
from offsetlake.queries.log_clock import what_was_dropped
from offsetlake.util.times import is_plain, is_relative, now_ms, to_iso, to_ms

_TIMES = frozenset({"--as-of", "--to-datetime"})
"""The options of changes that take a timestamp."""


@dataclass(frozen=True)
class CommandContext:
    """The shared options of one command, and what they select.

    | Field     | Description |
    |-----------|-------------|
    | options   | Value of each shared option of the command by its name, except `limit`; None if it was omitted. |
    | limit     | Maximum number of rows to write: 0 is unlimited, None the default of the output format. |
    | arguments | All arguments of the command line, beginning with the name of the command. |
    | now       | The time that others, such as `2h ago`, are relative to, in ms since the epoch. |
    """

    options: Mapping[str, str | None]
    limit: int | None = None
    arguments: Sequence[str] = ()
    now: int = field(default_factory=now_ms)

    @cached_property
    def lakes(self) -> Mapping[str, config.Entry] | None:
        """The selected lakes of the file of lakes, by their names; None without such a file, or with `--lake`.

        Raises BadRequest if the file is invalid, or if no lake is selected.
        """
        file = self.options.get("fleet")
        if self.options.get("lake") is not None:
            if file is not None:
                raise BadRequest("--fleet and --lake are mutually exclusive.")
            return None
        file = file or os.environ.get(config.FLEET)
        pattern = self.options.get("cluster") or os.environ.get(config.CLUSTER) or None
        if not file:
            if pattern is not None:
                raise BadRequest(f"--cluster {pattern} requires --fleet FILE.")
            return None
        return selected(read_lakes(file), pattern)

    @cached_property
    def settings(self) -> config.Config:
        """The settings from the defaults, the settings file, the environment, the file of lakes, and the options.

        Raises BadRequest if several lakes are selected.
        """
        if self.lakes is None:
            return config.load(self.options, os.environ)
        if len(self.lakes) > 1:
            raise BadRequest(
                f"The command works on one lake: select it with --cluster NAME, one of {', '.join(self.lakes)}."
            )
        return config.load(self.options, os.environ, *self.lakes.values())

    @property
    def format(self) -> str:
        """The output format, which does not depend on the lake."""
        return config.load(self.options, os.environ).format

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

    @property
    def questions(self) -> OpenLake:
        """The lake, as the Python API opens it: `write` writes the notes of its answers."""
        return OpenLake(self.settings.lake)

    def open_lake(self) -> Lake:
        """Open the lake for a query, and write the notes about what it has not read."""
        lake = open_verified(self.settings.lake)
        self.note_unread(lake)
        return lake

    def note_unread(self, lake: Lake) -> None:
        """Write a note to standard error about log partitions and records that the lake has not read."""
        for note in unread(lake).notes():
            output.write_note(note)

    def note_dropped(self, lake: Lake, scope: Scope = "history") -> None:
        """Write a note to standard error if `maintain` has dropped rows that the answer would have had."""
        if note := what_was_dropped(lake, scope):
            output.write_note(note)

    def instant(self, option: str, text: str, *, of_plan: bool = False) -> int:
        """Return the timestamp that is the value of an option, in ms since the epoch.

        Write it in a note if the text does not show it by itself, or if it is that of a plan.
        """
        timestamp = to_ms(text, self.now)
        if of_plan or not is_plain(text, timestamp):
            output.write_note(f"{option} {text!r} is {to_iso(timestamp)} (UTC).")
        return timestamp

    @property
    def absolute_arguments(self) -> list[str]:
        """The arguments of the command line with absolute times, so that the command means the same later."""
        return [
            self._absolute(option, word) for option, word in zip(["", *self.arguments], self.arguments, strict=False)
        ]

    def _absolute(self, option: str, word: str) -> str:
        name, equals, value = word.partition("=")
        if option in _TIMES and is_relative(word):
            return to_iso(to_ms(word, self.now))
        return f"{name}={to_iso(to_ms(value, self.now))}" if equals and name in _TIMES and is_relative(value) else word

    def note_unknown(self, lake: Lake, pattern: str | None = None) -> None:
        """Write a note to standard error if quarantined records leave something unknown about groups of an answer."""
        if note := what_is_unknown(lake, pattern):
            output.write_note(note)

    def of_cluster(self, name: str) -> Self:
        """Return the context for one of the selected lakes."""
        return replace(self, options={**self.options, "cluster": name})

    @property
    def cluster(self) -> str | None:
        """The name of the lake if the command answers for each lake of a fleet."""
        return None

    @property
    def max_rows(self) -> int | None:
        """The maximum number of rows to query; None if all are needed to count those that are not written."""
        return self.limit or None

    def write(self, answer: Answer, shown: Mapping[str, int] | None = None, total: int | None = None) -> None:
        """Write an answer in the selected format, up to the limit (`offsetlake.cli.output.write`), and its notes."""
        output.write(answer, self.format, shown, self.limit, total=total)
        for note in notes(answer):
            output.write_note(note)

    def flags(self, *names: str) -> list[str]:
        """Return the named options as they were given, for a command that uses the same lake or log."""
        given = ((f"--{name.replace('_', '-')}", self.options.get(name)) for name in names)
        return [word for flag, value in given if value for word in (flag, value)]
