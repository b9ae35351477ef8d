"""Escapes text that clients chose: names and metadata must not control a terminal, break a line or fail to encode.

A character is escaped where `str.isprintable` is false: controls (C0, DEL, C1), bidirectional overrides and other
format characters, separators other than the space, surrogates, and unassigned code points.
"""

import codecs
import json
from collections.abc import Callable
from functools import cache
from typing import Any, TextIO

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how spreadsheets recognize a formula (OWASP, "CSV Injection")


def visible(text: str) -> str:
    r"""Return the text with each unprintable character as a Python escape: ESC becomes `\x1b`. For messages."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def unambiguous(text: str, encoding: str) -> str:
    r"""Return the text as in `visible`, with backslashes doubled and characters that the encoding lacks escaped.

    Different texts never have the same result: ESC is `\x1b`, the four characters `\x1b` are `\\x1b`.
    """
    return encodable(visible(text.replace("\\", "\\\\")), encoding)


def encodable(text: str, encoding: str) -> str:
    """Return the text with each character that the encoding lacks as a Python escape."""
    return text if is_unicode(encoding) else text.encode(encoding, "backslashreplace").decode(encoding)


def to_json(value: object, encoding: str = "utf-8", default: Callable[[Any], str] | None = None) -> str:
    r"""Return a value as JSON with unprintable characters as `\uXXXX`, and those that the encoding lacks as well.

    `default` converts values that JSON does not support, as in `json.dumps`.
    """
    return visible_json(json.dumps(value, ensure_ascii=not is_unicode(encoding), default=default))


def visible_json(text: str) -> str:
    r"""Return a line of JSON with unprintable characters, which must be in strings, as `\uXXXX`."""
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def csv_text(text: str, encoding: str, *, to_terminal: bool) -> str:
    """Return a text cell of a CSV.

    In a file or a pipe it is exact, so that programs read back what was committed; only an encoding that is not Unicode
    forces escapes, as in `unambiguous`. On a terminal it is escaped, and an apostrophe precedes what a spreadsheet
    would run as a formula after copy and paste.
    """
    if to_terminal:
        return ("'" if text.startswith(_FORMULA) else "") + unambiguous(text, encoding)
    return text if is_unicode(encoding) else encodable(text.replace("\\", "\\\\"), encoding)


def encoding_of(out: TextIO) -> str:
    """Return the encoding of a stream; one without an encoding, such as `io.StringIO`, takes every character."""
    return getattr(out, "encoding", None) or "utf-8"


def ellipsis(encoding: str) -> str:
    """Return the mark of truncated text: one character, or three dots if the encoding lacks it."""
    return "…" if is_unicode(encoding) else "..."


@cache
def is_unicode(encoding: str) -> bool:
    """Return whether the encoding has every character."""
    return codecs.lookup(encoding).name.startswith("utf")
