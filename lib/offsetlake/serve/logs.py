"""What the serving process says: sentences for people, or one JSON object a line for machines."""

import logging
import sys
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from offsetlake.util.escaping import to_json, visible
from offsetlake.util.times import to_iso

LONGEST_NAME = 255  # characters of a name that a client made up
CLIENT_LINES, CLIENT_LINES_SECONDS = 20, 10.0  # lines of one kind that clients may cause, in so many seconds


class LogFormat(StrEnum):
    """How a line looks."""

    TEXT = "text"
    JSON = "json"


class JsonFormatter(logging.Formatter):
    """Writes an event as one JSON object.

    | field    | is |
    |----------|----|
    | time     | ISO 8601, UTC |
    | level    | INFO, WARNING, ERROR |
    | logger   | the module that says it |
    | message  | the sentence |
    | template | the same without what differs from one such event to the next, where it has fields of its own |
    | trace    | where an error was raised |

    Beside them the event's own fields: what the sentence is made of, where it names them as in `%(offsets)d`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Write an event."""
        said: dict[str, object] = dict(record.args) if isinstance(record.args, Mapping) else {}
        said |= {"template": record.msg} if said else {}
        said |= {"time": to_iso(int(record.created * 1000)), "level": record.levelname, "logger": record.name}
        said["message"] = record.getMessage()
        if record.exc_info:
            said["trace"] = self.formatException(record.exc_info)
        return to_json(said, default=str)


class TextFormatter(logging.Formatter):
    """Writes an event as a sentence, without characters from clients that control a terminal or break the line."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name that logging calls
        """Return the line of an event; a trace comes after it."""
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - as above
        """Return the lines of a trace."""
        return "\n".join(map(visible, super().formatException(ei).split("\n")))


def quoted(name: str) -> str:
    """Give a name as lines have it: cut, as whoever connects can send one of 64 KB again and again."""
    return repr(name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…")


def log_to_stderr(style: str) -> None:
    """Write what is said to standard error, as a LogFormat has it."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == LogFormat.JSON else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class ClientLog:
    """Writes the lines that clients can cause, of each kind (template) no more than a client may cause in a time.

    The first line of that kind after the time says how many were suppressed.
    """

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger, self._clock = logger, clock
        self._kinds: dict[str, _Lines] = {}

    def info(self, template: str, *values: object) -> None:
        """Write a line of level INFO."""
        self._write(logging.INFO, template, *values)

    def warning(self, template: str, *values: object) -> None:
        """Write a line of level WARNING."""
        self._write(logging.WARNING, template, *values)

    def exception(self, template: str, *values: object) -> None:
        """Write a line of level ERROR, with the trace of the exception that is being handled."""
        self._write(logging.ERROR, template, *values, trace=True)

    def _write(self, level: int, template: str, *values: object, trace: bool = False) -> None:
        if self.allows(template):
            self._logger.log(level, template, *values, exc_info=trace)

    def allows(self, template: str) -> bool:
        """Count a line of a kind; return whether it may be written."""
        lines = self._kinds.setdefault(template, _Lines())
        now = self._clock()
        if now >= lines.until:
            suppressed, seconds = lines.suppressed, CLIENT_LINES_SECONDS
            lines.until, lines.written, lines.suppressed = now + seconds, 0, 0
            if suppressed:
                said = "%d lines were suppressed that were like the next one, more than %d within %.0f s"
                self._logger.warning(said, suppressed, CLIENT_LINES, seconds)
        if lines.written < CLIENT_LINES:
            lines.written += 1
            return True
        lines.suppressed += 1
        return False


class _Lines:
    """Lines of one kind, since the beginning of a time that ends at `until`."""

    __slots__ = ("suppressed", "until", "written")

    def __init__(self) -> None:
        self.until, self.written, self.suppressed = 0.0, 0, 0
