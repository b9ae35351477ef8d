"""Parses and formats timestamps (milliseconds since the epoch or ISO 8601) and durations (7d, 36h, PT1H)."""

import re
import time
from datetime import UTC, datetime, timedelta

from offsetlake.errors import BadRequest

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_TIMESTAMP_MS = 253_402_300_799_999  # the end of the year 9999
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PARSED_UNITS = _UNITS | {"w": 604_800_000}
_DURATION = re.compile(rf"([0-9]{{1,15}})({'|'.join(_PARSED_UNITS)})")
_ISO_DURATION = re.compile(
    r"P(?=.*[0-9][DHMS]$)(?:([0-9]{1,12})D)?"
    r"(?:T(?=.)(?:([0-9]{1,12})H)?(?:([0-9]{1,12})M)?(?:([0-9]{1,12})(?:\.([0-9]{1,9}))?S)?)?",
    re.IGNORECASE,
)


def now_ms() -> int:
    """Return the current time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def to_ms(text: str) -> int:
    """Return a timestamp in milliseconds since the epoch; more precise digits are truncated.

    A timestamp without a time zone is in UTC.

    Raises:
        BadRequest: The text is not a timestamp.
    """
    if re.fullmatch(r"-?[0-9]{1,30}", text):
        if abs(ms := int(text)) > MAX_TIMESTAMP_MS:
            raise BadRequest(f"Invalid timestamp {text}: expected milliseconds in the years 1 to 9999.")
        return ms
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadRequest(
            f"Invalid timestamp {text!r}: expected milliseconds since the epoch or ISO 8601, such as 2026-01-31T14:05 "
            "(UTC without a time zone)."
        ) from error
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // timedelta(milliseconds=1)


def to_iso(ms: int) -> str:
    """Return milliseconds since the epoch as `2026-01-31T14:05:00.123Z`; outside of the years 1 to 9999 as a number."""
    try:
        return (EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(ms)


def duration_ms(text: str) -> int:
    """Return a duration in ms: 7d, 36h, 90m, 60s, 500ms, 1w, or PT1H30M, P1DT2H like Java's `Duration.parse`.

    Raises:
        BadRequest: The text is not a duration, or it is too long.
    """
    ms = _plain_ms(text) if text[:1] not in ("P", "p") else _iso_ms(text)
    if ms is None:
        units = ", ".join(_PARSED_UNITS)
        raise BadRequest(
            f"Invalid duration {text!r}: expected a whole number and {units}, such as 7d or 36h, or PT1H30M."
        )
    if ms > MAX_TIMESTAMP_MS:
        raise BadRequest(f"Invalid duration {text}: expected at most {MAX_TIMESTAMP_MS // _UNITS['d']}d.")
    return ms


def _plain_ms(text: str) -> int | None:
    match = _DURATION.fullmatch(text)
    return None if match is None else int(match[1]) * _PARSED_UNITS[match[2]]


def _iso_ms(text: str) -> int | None:
    """Return an ISO 8601 duration of days, hours, minutes and seconds in ms; more precise digits are truncated."""
    match = _ISO_DURATION.fullmatch(text)
    if match is None:
        return None
    *whole, fraction = match.groups(default="0")
    counts = zip(whole, ("d", "h", "m", "s"), strict=True)
    return sum(int(number) * _UNITS[unit] for number, unit in counts) + int(fraction.ljust(3, "0")[:3])


def to_duration(ms: int) -> str:
    """Return milliseconds in the format of `duration_ms`, in the largest unit without a fraction."""
    unit = next(unit for unit in reversed(_UNITS) if ms % _UNITS[unit] == 0) if ms else "s"
    return f"{ms // _UNITS[unit]}{unit}"


def about(ms: int) -> int:
    """Return a duration in ms rounded down to the largest unit, up to days, of which it has at least two."""
    unit = next((unit for unit in (86_400_000, 3_600_000, 60_000) if ms >= 2 * unit), 1000)
    return ms - ms % unit
