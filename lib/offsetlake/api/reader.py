"""How the Python API reads a lake for a question, and what questions accept as a time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import pyarrow as pa

from offsetlake.errors import BadRequest, OffsetlakeError, TableChanged
from offsetlake.lake.data_files import naming_damage
from offsetlake.lake.foreign.guard import refuse_changed
from offsetlake.lake.lake import Lake
from offsetlake.lake.location.locate import LakeLocation
from offsetlake.lake.sql.answers import MAX_ROWS_IN_MEMORY, Answer
from offsetlake.lake.unread import unread
from offsetlake.util.times import EPOCH, to_ms

Time = str | int | datetime
"""A time: a text as on the command line (ISO 8601 in UTC, `2h ago`), ms since the epoch, or a datetime with a zone."""

Advance = Callable[[int, int], None]
"""Is called after each part of a long answer with the number of records read, and the number of all records."""


class LakeReader:
    """Opens the newest state of a lake for each question."""

    def __init__(self, location: LakeLocation) -> None:
        self._location = location

    def __repr__(self) -> str:
        return f"offsetlake.open({str(self._location)!r})"

    @contextmanager
    def question(self, *, may_be_changed: bool = False) -> Iterator[tuple[Lake, list[str]]]:
        """Yield the lake, and the notes that every answer has; errors in the block get these notes.

        Args:
            may_be_changed: Whether a table that another program changed is a note instead of the error TableChanged.
        """
        with naming_damage():
            lake, notes = Lake.open(self._location), list[str]()
            try:
                refuse_changed(lake)
            except TableChanged as error:
                if not may_be_changed:
                    raise
                notes.append(f"warning: {error}")
            notes += unread(lake).notes()
            try:
                yield lake, notes
            except OffsetlakeError as error:
                for note in filter(None, notes):
                    error.add_note(note)
                raise


def ignore(_done: int, _total: int) -> None:
    """Do not show the progress of an answer."""


def to_instant(time: Time) -> int:
    """Return a time in ms since the epoch; raise BadRequest if it is invalid, or a datetime without a time zone."""
    if isinstance(time, str):
        return to_ms(time)
    if isinstance(time, int):
        return time
    if time.tzinfo is None:
        raise BadRequest(f"Invalid time {time}: a datetime requires a time zone, such as datetime.UTC.")
    return (time - EPOCH) // timedelta(milliseconds=1)


def in_memory(answer: Answer) -> pa.Table:
    """Return all rows of an answer, with its notes, as a table in memory."""
    if isinstance(answer, pa.Table):
        return answer
    batches = [*answer.to_batches(MAX_ROWS_IN_MEMORY)]
    rows = pa.Table.from_batches(batches, batches[0].schema if batches else answer.schema)
    return rows.replace_schema_metadata(answer.schema.metadata)
