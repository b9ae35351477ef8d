"""Log lines of servers: sentences for people, or one JSON object per line for machines."""

import logging
import sys
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from offsetlake.util.escaping import to_json, visible
from offsetlake.util.times import to_iso

MAX_NAME_CHARACTERS = 255
"""Maximum length of a name from a client in a log line; clients can send names of 64 KiB."""

CLIENT_LINES, CLIENT_LINES_SECONDS = 20, 10.0
"""Maximum number of lines of one kind that clients can cause within this time."""


class LogFormat(StrEnum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


class JsonFormatter(logging.Formatter):
    """Formats an event as one JSON object.

    | Field    | Description |
    |----------|-------------|
    | time     | The time, as ISO 8601 in UTC. |
    | level    | INFO, WARNING or ERROR. |
    | logger   | The module that logs the event. |
    | message  | The sentence. |
    | template | The sentence with placeholders, the same for all events of a kind; only if the event has fields. |
    | trace    | The traceback of an error. |

    The fields of the event itself follow: the values of named placeholders such as `%(offsets)d`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of an event."""
        event: dict[str, object] = dict(record.args) if isinstance(record.args, Mapping) else {}
        event |= {"template": record.msg} if event else {}
        event |= {"time": to_iso(int(record.created * 1000)), "level": record.levelname, "logger": record.name}
        event["message"] = record.getMessage()
        if record.exc_info:
            event["trace"] = self.formatException(record.exc_info)
        return to_json(event, default=str)


class TextFormatter(logging.Formatter):
    """Formats an event as a sentence, and escapes control characters and line breaks that come from clients."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name that logging calls
        """Return the line of an event; a traceback follows it."""
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - as above
        """Return the lines of a traceback."""
        return "\n".join(map(visible, super().formatException(ei).split("\n")))


def quoted(name: str) -> str:
    """Return a name in quotes, truncated to MAX_NAME_CHARACTERS, for a log line."""
    return repr(name if len(name) <= MAX_NAME_CHARACTERS else f"{name[:MAX_NAME_CHARACTERS]}…")


def log_to_stderr(log_format: str) -> None:
    """Write log lines to standard error, in a LogFormat."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == LogFormat.JSON else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class ClientLog:
    """Writes lines that clients can cause, at most CLIENT_LINES of each kind (template) in CLIENT_LINES_SECONDS.

    The first line of a kind after that time is preceded by the number of lines that were suppressed.
    """

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger, self._clock = logger, clock
        self._kinds: dict[str, _Lines] = {}

    def info(self, template: str, *values: object) -> None:
        """Log a line at level INFO."""
        self._write(logging.INFO, template, *values)

    def warning(self, template: str, *values: object) -> None:
        """Log a line at level WARNING."""
        self._write(logging.WARNING, template, *values)

    def exception(self, template: str, *values: object) -> None:
        """Log a line at level ERROR, with the traceback of the exception that is being handled."""
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
                self._logger.warning(
                    "%d lines like the next one were suppressed, as more than %d occurred within %.0f s",
                    suppressed,
                    CLIENT_LINES,
                    seconds,
                )
        if lines.written < CLIENT_LINES:
            lines.written += 1
            return True
        lines.suppressed += 1
        return False


class _Lines:
    """Counts the lines of one kind in the interval that ends at `until`."""

    __slots__ = ("suppressed", "until", "written")

    def __init__(self) -> None:
        self.until, self.written, self.suppressed = 0.0, 0, 0
