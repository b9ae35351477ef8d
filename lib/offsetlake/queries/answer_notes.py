"""Notes on answers: sentences about what an answer lacks, or leaves in doubt, in the metadata of its Arrow schema."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.definitions import HISTORY
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.answers import Answer, KeptAnswer, SortedAnswer
from offsetlake.lake.sql.views import views
from offsetlake.queries.lag_rows import OFFSET_UNKNOWN
from offsetlake.queries.log_clock import newest_instant, what_was_dropped
from offsetlake.util.times import now_ms, to_iso

NOTES = b"offsetlake.notes"
"""The key of the notes in the metadata of a schema: a JSON list of sentences."""

_Answer = TypeVar("_Answer", pa.Table, KeptAnswer, SortedAnswer)


def notes(answer: Answer) -> list[str]:
    """Return the notes of an answer: sentences about what it lacks, or leaves in doubt; none if it is complete.

    Tables that are selected, filtered, sorted or extended from an answer keep its notes.
    """
    found: list[str] = json.loads((answer.schema.metadata or {}).get(NOTES, b"[]"))
    return found


def noted(answer: _Answer, sentences: Iterable[str]) -> _Answer:
    """Return an answer with notes, of which empty ones are omitted."""
    written = json.dumps([sentence for sentence in sentences if sentence], ensure_ascii=False)
    metadata = {NOTES: written} if written != "[]" else None
    if isinstance(answer, pa.Table):
        table: _Answer = answer.replace_schema_metadata(metadata)
        return table
    return replace(answer, schema=answer.schema.with_metadata(metadata))


def note_about_future(lake: Lake, *timestamps: int) -> str:
    """Return a sentence if an answer is about an instant, in ms since the epoch, that has not come yet."""
    latest = max(timestamps)
    newest = newest_instant(lake) if latest > now_ms() else None
    if newest is None:
        return ""
    return (
        f"{to_iso(latest)} is in the future: the newest record is of {to_iso(newest)}, and the answer is the state "
        "after it."
    )


def notes_about_sql(lake: Lake, statement: str) -> Iterator[str]:
    """Yield sentences about the history that `maintain` has dropped from tables that a statement names."""
    named = {*re.findall(r"\w+", statement)}
    if named & {*HISTORY, *views()}:
        yield what_was_dropped(lake, "history")
    if "audit_events" in named:
        yield what_was_dropped(lake, "audit_events")


def notes_about_lag(partitions: pa.Table) -> Iterator[str]:
    """Yield a sentence for each reason why the lag of rows of `lag_of_partitions` is unknown."""
    reasons = {
        "their committed offsets are unknown, because records cannot be decoded": pc.equal(
            partitions["why"], OFFSET_UNKNOWN
        ),
        "the last cycle did not read their log end offsets": pc.is_null(partitions["end_offset"]),
        "they have no committed offset": pc.equal(partitions["status"], "NO_COMMIT"),
        "their committed offsets are beyond the log end": pc.equal(partitions["status"], "BEYOND_END"),
    }
    unknown = pc.is_null(partitions["lag"])
    for reason, chosen in reasons.items():
        if count := pc.sum(pc.and_(unknown, pc.fill_null(chosen, fill_value=False))).as_py():
            yield f"The lag of {count:,} of {partitions.num_rows:,} partitions is unknown: {reason}."
        unknown = pc.and_not(unknown, pc.fill_null(chosen, fill_value=False))
