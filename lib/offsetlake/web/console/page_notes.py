"""Sentences on pages about what a lake does not know."""

from glob import escape

from offsetlake.errors import OffsetlakeError
from offsetlake.lake.data_files import FILE_ERRORS
from offsetlake.lake.files import has_files
from offsetlake.lake.lake import Lake
from offsetlake.lake.unread import unread
from offsetlake.queries.in_doubt import TABLE, what_is_unknown
from offsetlake.web.console.access import VISITOR
from offsetlake.web.console.kept_answers import KeptAnswers


class PageNotes:
    """The notes of the pages about one lake."""

    def __init__(self, answers: KeptAnswers) -> None:
        self._answers = answers
        self._unread = -1, list[str]()

    def about(self, group_id: str) -> list[str]:
        """Return sentences about what the lake does not know, for a page about a group or, if it is empty, about all.

        They name what was not read, and what quarantined records leave unknown, as far as the visitor may see it. There
        are none if the lake cannot be read: the page shows the error itself, where it depends on the lake.
        """
        try:
            lake = self._answers.open()
            version = lake.versions("runs")["runs"]
            if self._unread[0] != version:
                self._unread = version, unread(lake).notes()
            unknown = self._what_is_unknown(lake, group_id)
        except (OffsetlakeError, *FILE_ERRORS):
            return []
        return [*self._unread[1], *([unknown] if unknown else [])]

    def _what_is_unknown(self, lake: Lake, group_id: str) -> str:
        visitor = VISITOR.get()
        is_visible = visitor is not None and (visitor.sees(group_id) if group_id else visitor.access.sees_all())
        if not is_visible or not has_files(lake, TABLE):
            return ""
        key = ("unknown", group_id, *lake.versions(TABLE, "groups", "offset_commits", "group_records").values())
        note: str = self._answers.cache.get(key, lambda: what_is_unknown(lake, escape(group_id) if group_id else None))
        return note
