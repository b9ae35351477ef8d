"""Instants and durations as people write them: ms since the epoch or ISO 8601, UTC without a zone; 7d, 36h, PT1H."""

import re
import time
from datetime import UTC, datetime, timedelta

from offsetlake.errors import BadRequest

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_INSTANT = 253_402_300_799_999  # ms: the end of the year 9999
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_READ_UNITS = _UNITS | {"w": 604_800_000}
_DURATION = re.compile(rf"([0-9]{{1,12}})({'|'.join(_READ_UNITS)})")
_ISO_DURATION = re.compile(
    r"P(?=.*[0-9][DHMS]$)(?:([0-9]{1,12})D)?"
    r"(?:T(?=.)(?:([0-9]{1,12})H)?(?:([0-9]{1,12})M)?(?:([0-9]{1,12})(?:\.([0-9]{1,9}))?S)?)?",
    re.IGNORECASE,
)


def now_ms() -> int:
    """Wall clock in ms since the epoch."""
    return time.time_ns() // 1_000_000


def to_ms(text: str) -> int:
    """Read an instant as ms since the epoch, finer digits cut off; BadRequest where it is none."""
    if re.fullmatch(r"-?[0-9]{1,30}", text):
        if abs(ms := int(text)) > LAST_INSTANT:
            raise BadRequest(f"{text} ms is no instant: years 1 to 9999 are known")
        return ms
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadRequest(
            f"{text!r} is no instant: write ms since the epoch or ISO 8601, 2026-01-31T14:05 (UTC if it has no zone)"
        ) from error
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // timedelta(milliseconds=1)


def to_iso(ms: int) -> str:
    """Write ms since the epoch as `2026-01-31T14:05:00.123Z`; beyond the years 1 to 9999 as the number it is."""
    try:
        return (EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(ms)


def duration_ms(text: str) -> int:
    """Read a duration as ms: 7d, 36h, 90m, 60s, 500ms, 1w, or PT1H30M, P1DT2H, as Java's `Duration.parse` reads it.

    Raises BadRequest if it is none of these, or longer than all times.
    """
    ms = _plain_ms(text) if text[:1] not in ("P", "p") else _iso_ms(text)
    if ms is None:
        units = ", ".join(_READ_UNITS)
        raise BadRequest(f"{text!r} is no duration: write a whole number and {units}, such as 7d or 36h, or PT1H30M")
    if ms > LAST_INSTANT:
        raise BadRequest(f"{text} is no duration anyone waits for: at most {LAST_INSTANT // _UNITS['d']}d")
    return ms


def _plain_ms(text: str) -> int | None:
    match = _DURATION.fullmatch(text)
    return None if match is None else int(match[1]) * _READ_UNITS[match[2]]


def _iso_ms(text: str) -> int | None:
    """Read days, hours, minutes and seconds; finer than a ms is cut off."""
    match = _ISO_DURATION.fullmatch(text)
    if match is None:
        return None
    *whole, fraction = match.groups(default="0")
    counts = zip(whole, ("d", "h", "m", "s"), strict=True)
    return sum(int(number) * _UNITS[unit] for number, unit in counts) + int(fraction.ljust(3, "0")[:3])


def to_duration(ms: int) -> str:
    """Write ms as `duration_ms` reads it, in the largest unit that fits."""
    unit = next(unit for unit in reversed(_UNITS) if ms % _UNITS[unit] == 0) if ms else "s"
    return f"{ms // _UNITS[unit]}{unit}"


def about(ms: int) -> int:
    """Round a duration down to days, hours, minutes or seconds, two of them at the least."""
    unit = next((unit for unit in (86_400_000, 3_600_000, 60_000) if ms >= 2 * unit), 1000)
    return ms - ms % unit
