"""Runs a command for each lake of a fleet, and joins the answers in one with the column `cluster`."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, wraps
from importlib import import_module
from pathlib import Path
from typing import Concatenate, NamedTuple, ParamSpec

import pyarrow as pa

from offsetlake.api.reader import in_memory
from offsetlake.cli import output
from offsetlake.cli.commands.context import CommandContext
from offsetlake.cli.config import Entry
from offsetlake.cli.fleet.processes import ProcessOutcome, for_each
from offsetlake.cli.progress import Progress
from offsetlake.errors import BadRequest, FleetFailed
from offsetlake.lake.sql.answers import Answer
from offsetlake.queries.answer_notes import notes
from offsetlake.util.amounts import counted
from offsetlake.util.temporary_folders import temporary_folder

P = ParamSpec("P")
Function = Callable[Concatenate[CommandContext, P], None]

CLUSTER = "cluster"
"""The first column of answers for many lakes."""


def each_lake(*modules: str) -> Callable[[Function[P]], Function[P]]:
    """Return a decorator of a command that answers for each lake of a fleet, if there is one.

    Args:
        modules: Modules that the command imports when it runs: they are imported once for all lakes.

    """

    def decorate(function: Function[P]) -> Function[P]:
        @wraps(function)
        def answer(context: CommandContext, /, *args: P.args, **kwargs: P.kwargs) -> None:
            if context.lakes is None:
                function(context, *args, **kwargs)
                return
            with asked(context, lambda one: function(one, *args, **kwargs), modules) as outcomes:
                _write(context, outcomes)

        return answer

    return decorate


@contextmanager
def asked(
    context: CommandContext, function: Callable[["LakeContext"], None], modules: Sequence[str] = ()
) -> Iterator[list[ProcessOutcome]]:
    """Run a function for each selected lake; yield the outcomes in the order of the file, with what each has written.

    Args:
        context: The context of the command, which has a file of lakes.
        function: The function, which gets a context with one lake and a folder for files.
        modules: Modules that the function imports.

    """
    lakes = context.lakes or {}
    for module in modules:
        import_module(module)

    def work(name: str, folder: Path) -> None:
        shared = (context.options, context.limit, context.arguments, context.now)
        function(LakeContext(*shared, name=name, entry=lakes[name], folder=folder))

    with temporary_folder("offsetlake-fleet-") as folder:
        with Progress(quiet=True) as progress:
            progress.say(f"asking {counted(len(lakes), 'lake')}")
            outcomes = for_each([*lakes], work, folder, lambda done, total: progress.advance(done, total, "lakes"))
        yield outcomes


@dataclass(frozen=True, kw_only=True)
class LakeContext(CommandContext):
    """The context of a command for one lake of a fleet, in a process of its own.

    | Field  | Description |
    |--------|-------------|
    | name   | The name of the lake. |
    | entry  | Its settings. |
    | folder | The folder for files that the command leaves for the process that joins the answers. |
    """

    name: str
    entry: Entry
    folder: Path

    @cached_property
    def lakes(self) -> Mapping[str, Entry]:
        """The lake."""
        return {self.name: self.entry}

    @property
    def cluster(self) -> str:
        """The name of the lake."""
        return self.name

    def write(self, answer: Answer, shown: Mapping[str, int] | None = None, total: int | None = None) -> None:
        """Leave the rows that can be written, with the column CLUSTER, in the folder, and write the notes."""
        if CLUSTER in answer.column_names:
            raise BadRequest(f"The answer already has a column {CLUSTER}: choose another name for it.")
        rows = in_memory(answer.slice(0, output.max_rows(self.limit, self.format)))
        names = pa.DictionaryArray.from_arrays(pa.array([0] * rows.num_rows, pa.int32()), [self.name])
        rows = rows.add_column(0, CLUSTER, names)
        with pa.OSFile(str(self.folder / _ROWS), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_table(rows)
        columns = {"total": answer.num_rows if total is None else total, "shown": shown}
        (self.folder / _COLUMNS).write_text(json.dumps(columns), encoding="utf-8")
        for note in notes(answer):
            output.write_note(note)


_ROWS, _COLUMNS = "rows.arrow", "columns.json"


class _Answer(NamedTuple):
    """The answer of a lake: its rows that can be written, the number of all, and the columns of a table for people."""

    rows: pa.Table
    total: int
    shown: Mapping[str, int] | None

    @classmethod
    def read(cls, folder: Path) -> "_Answer":
        with pa.memory_map(str(folder / _ROWS)) as file:
            rows = pa.ipc.open_file(file).read_all()
        columns = json.loads((folder / _COLUMNS).read_text(encoding="utf-8"))
        return cls(rows, columns["total"], columns["shown"])


def _write(context: CommandContext, outcomes: Sequence[ProcessOutcome]) -> None:
    """Write the joined answers, and the notes of all lakes; raise FleetFailed if a lake failed."""
    answers = [_Answer.read(outcome.folder) for outcome in outcomes if (outcome.folder / _COLUMNS).exists()]
    if answers:
        limit = output.max_rows(context.limit, context.format)
        counts = [answer.rows.num_rows for answer in answers]
        parts = [answer.rows.slice(0, n) for answer, n in zip(answers, divided(counts, limit), strict=True)]
        shown = next((answer.shown for answer in answers if answer.shown), None)
        shown = None if shown is None else {CLUSTER: 1, **shown}
        output.write(_joined(parts), context.format, shown, total=sum(answer.total for answer in answers))
    check_outcomes(outcomes)


def _joined(parts: Sequence[pa.Table]) -> pa.Table:
    try:
        return pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowTypeError as error:
        raise BadRequest(f"The lakes answer with columns of different types: {error}.") from error


def divided(counts: Sequence[int], limit: int | None) -> list[int]:
    """Divide a number of rows evenly among lakes, of which each has a number of rows; None is unlimited."""
    shares = [*counts]
    left = sum(counts) if limit is None else limit
    for place, number in enumerate(sorted(range(len(counts)), key=counts.__getitem__)):
        shares[number] = min(counts[number], left // (len(counts) - place))
        left -= shares[number]
    return shares


def check_outcomes(outcomes: Sequence[ProcessOutcome]) -> None:
    """Write the notes of all lakes to standard error.

    Raises:
        BadRequest: All lakes lack what the command names.
        FleetFailed: A lake failed otherwise.

    """
    for outcome in outcomes:
        for note in outcome.notes:
            output.write_note(f"{outcome.name}: {note}")
    failures = {outcome.name: outcome.failure for outcome in outcomes if outcome.failure}
    failed = {name: failure for name, failure in failures.items() if not failure.is_unknown}
    if len(failures) == len(outcomes) and not failed:
        name, failure = next(iter(failures.items()))
        raise BadRequest(f"{name}: {failure.message}; no other selected lake has it either")
    if not failed:
        return
    exit_codes = {failure.exit_code for failure in failed.values()}
    exit_code = exit_codes.pop() if len(exit_codes) == 1 else 1
    if len(failed) == len(outcomes) and len({failure.message for failure in failed.values()}) == 1:
        raise FleetFailed(next(iter(failed.values())).message, exit_code)  # such as an invalid time
    errors = [f"{name}: {failure.message}" for name, failure in failed.items()]
    if len(errors) == 1:
        raise FleetFailed(errors[0], exit_code)
    for error in errors:
        output.write_note(f"error: {error}")
    raise FleetFailed(f"{len(errors)} of {counted(len(outcomes), 'lake')} failed: {', '.join(failed)}.", exit_code)
