"""Offsets at a timestamp over HTTP: from the lake, read by a child process, one request at a time."""

import asyncio
from typing import Any

from offsetlake.serve.storage.child_process import ChildFailed, run_child
from offsetlake.util.times import to_iso
from offsetlake.web.http.api.request_models import OffsetsQuery
from offsetlake.web.http.problems import Problem

MAX_HISTORY_SECONDS = 60.0
"""A request for offsets at a timestamp may take that long, including the wait for the requests before it."""


class OffsetHistory:
    """The committed offsets of former times."""

    def __init__(self, lake: str) -> None:
        self._lake, self._turn = lake, asyncio.Lock()

    async def offsets(self, query: OffsetsQuery, timestamp: int) -> dict[str, Any]:
        """Return the fields of `response_models.Offsets` at a timestamp in ms; raise a Problem if they are unknown."""
        lake = self._lake
        child_request = {"lake": lake, "group": query.group, "topic": query.topic, "as_of": timestamp}
        try:
            async with asyncio.timeout(MAX_HISTORY_SECONDS), self._turn:
                answer = await run_child("offsetlake.web.http.api.as_of", child_request)
        except ChildFailed as error:
            raise Problem("history-unavailable", str(error)) from error
        except TimeoutError as error:
            raise Problem(
                "history-unavailable",
                f"The query of the lake {lake} did not finish within {MAX_HISTORY_SECONDS:.0f} s. Run "
                "`offsetlake offsets --as-of`, which has no time limit.",
                {"retry-after": f"{MAX_HISTORY_SECONDS:.0f}"},
            ) from error
        if answer["offsets"] is None:
            begins = "is empty" if answer["begins"] is None else f"begins at {to_iso(answer['begins'])}"
            raise Problem(
                "before-history",
                f"The history in the lake {lake} {begins}, so the offsets at {to_iso(timestamp)} are unknown.",
            )
        if not answer["offsets"]:
            raise Problem("group-not-found", f"Group {query.group!r} had no such offsets at {to_iso(timestamp)}.")
        ends = None if answer["ends"] is None else to_iso(answer["ends"])
        fields = {"group": query.group, "as_of": to_iso(timestamp), "history_ends": ends}
        return fields | {"offsets": answer["offsets"]}
