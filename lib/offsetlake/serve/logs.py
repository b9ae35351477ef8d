"""What the serving process says: sentences for people, or one JSON object a line for machines."""

import json
import logging
import sys
from collections.abc import Mapping
from enum import StrEnum

from offsetlake.times import to_iso

LONGEST_NAME = 255  # characters of a name that a client made up


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
        return json.dumps(said, ensure_ascii=False, default=str)


def shown(name: str) -> str:
    """Give a name as lines have it: cut, as whoever connects can send one of 64 KB again and again."""
    return repr(name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…")


def log_to_stderr(style: str) -> None:
    """Write what is said to standard error, as a LogFormat has it."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(message)s")
    handler.setFormatter(JsonFormatter() if style == LogFormat.JSON else text)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
