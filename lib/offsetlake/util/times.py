"""Parses and formats timestamps (milliseconds since the epoch, ISO 8601, 14:05, 2h ago) and durations (7d, 36h, PT1H).

A timestamp without a time zone is in UTC. Text that can be read in two ways, such as seconds since the epoch, which
would be a time in January 1970, is refused; the message contains what to write instead.
"""

import re
import time
from datetime import UTC, datetime, timedelta

from offsetlake.errors import BadRequest

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_TIMESTAMP_MS = 253_402_300_799_999  # the end of the year 9999
MIN_RECORD_TIMESTAMP_MS = 1_000_000_000_000  # 2001-09-09, the first with 13 digits, and before Kafka existed
MAX_CLOCK_DIFFERENCE_MS = 3_600_000
"""How much later than now the timestamp of a record may be: the broker's `log.message.timestamp.after.max.ms`."""
_MIN_TIMESTAMP_MS = -62_135_596_800_000  # the beginning of the year 1
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PARSED_UNITS = _UNITS | {"w": 604_800_000}
_DURATION = re.compile(rf"([0-9]{{1,15}})({'|'.join(_PARSED_UNITS)})")
_ISO_DURATION = re.compile(
    r"P(?=.*[0-9][DHMS]$)(?:([0-9]{1,12})D)?"
    r"(?:T(?=.)(?:([0-9]{1,12})H)?(?:([0-9]{1,12})M)?(?:([0-9]{1,12})(?:\.([0-9]{1,9}))?S)?)?",
    re.IGNORECASE,
)

_NUMBER = re.compile(r"-?[0-9]{1,30}")
_RELATIVE = re.compile(r"(?:now ?)?- ?(?P<before>[0-9Pp]\S*)|(?P<ago>[0-9Pp]\S*) ago")
_ZONE = r"(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)?"
_CLOCK = re.compile(rf"[0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}}(?:[.,][0-9]+)?)?{_ZONE}", re.IGNORECASE)
_ISO = re.compile(
    r"(?:[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{8}|[0-9]{4}-W[0-9]{2}(?:-[0-9])?|[0-9]{4}W[0-9]{2}[0-9]?)"
    r"(?:[T ](?P<hour>[0-9]{2})(?::?[0-9]{2}(?::?(?P<second>[0-9]{2})(?:[.,][0-9]+)?)?)?" + _ZONE + ")?",
    re.IGNORECASE,
)
_DIGITS_OF_DATES = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
_MAX_DIGITS_AT_EPOCH = 7  # less than three hours from the epoch: logs of tests have such timestamps
_YEARS = range(2001, 2100)


def now_ms() -> int:
    """Return the current time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def to_ms(text: str, now: int | None = None) -> int:
    """Return a timestamp in milliseconds since the epoch; more precise digits are truncated.

    | text | timestamp |
    |------|-----------|
    | `1795788300000` | milliseconds since the epoch: 13 digits, or at most 7 for a time around the epoch |
    | `2026-11-27`, `20261127T1405Z`, `2026-W48-5T14:05+01:00` | ISO 8601, a date at its beginning |
    | `14:05`, `14:05:30+01:00` | the last time that it was that time of day |
    | `now`, `2h ago`, `-2h`, `now-2h` | a duration before `now` |

    Args:
        text: The timestamp; in UTC without a time zone.
        now: The time that others are relative to, in milliseconds since the epoch; None for the system clock.

    Raises:
        BadRequest: The text is not a timestamp, or can be read in several ways.
    """
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return _of_number(text)
    now = now_ms() if now is None else now
    if text.lower() == "now":
        return now
    if relative := _RELATIVE.fullmatch(text):
        return _checked(text, now - _elapsed(text, relative["before"] or relative["ago"]))
    if _CLOCK.fullmatch(text):
        return _last_at(text, now)
    return _of_iso(text)


def is_relative(text: str) -> bool:
    """Check whether a valid timestamp means another instant later, such as `2h ago` and `14:05`."""
    text = text.strip()
    is_ago = _RELATIVE.fullmatch(text) is not None and not _NUMBER.fullmatch(text)
    return text.lower() == "now" or is_ago or _CLOCK.fullmatch(text) is not None


def is_plain(text: str, ms: int) -> bool:
    """Check whether a text shows which instant it is: as `to_iso` does, or in ms that only logs of tests have."""
    if len(text.strip().removeprefix("-")) <= _MAX_DIGITS_AT_EPOCH:
        return _NUMBER.fullmatch(text.strip()) is not None
    return to_iso(ms).startswith(text.strip().upper().replace(" ", "T").removesuffix("Z"))


def _of_number(text: str) -> int:
    """Return milliseconds since the epoch, or the beginning of a date with 8 digits."""
    digits, number = text.removeprefix("-"), int(text)
    if abs(number) > MAX_TIMESTAMP_MS:
        scaled = {16: number // 1000, 19: number // 1_000_000}.get(len(digits))
        unit = "microseconds" if len(digits) == 16 else "nanoseconds"
        meant = "" if scaled is None else f"; if it is in {unit}, write {scaled}, which is {to_iso(scaled)}"
        raise _invalid(text, f"expected milliseconds in the years 1 to 9999{meant}")
    if len(digits) == len(str(MIN_RECORD_TIMESTAMP_MS)) and number > 0:
        return number
    date = _date_of(digits) if digits == text else None
    if date is not None and len(digits) == 8:
        return _since_epoch(date)
    if len(digits) <= _MAX_DIGITS_AT_EPOCH and number not in _YEARS and not _is_month(text):
        return number
    as_ms = f"as milliseconds since the epoch, it is {to_iso(number)}"
    if date is not None:
        raise _invalid(text, f"{as_ms}; if it is a date and a time, write {digits[:8]}T{digits[8:]}")
    if len(digits) in (9, 10) and number > 0:
        raise _invalid(text, f"{as_ms}; if it is in seconds, write {number}000, which is {to_iso(number * 1000)}")
    if number in _YEARS or _is_month(text):
        raise _invalid(text, f"{as_ms}; if it is a year or a month, write a day, such as 2026-01-31")
    raise _invalid(text, f"{as_ms}; expected 13 digits of milliseconds, or ISO 8601, such as 2026-01-31T14:05")


def _is_month(text: str) -> bool:
    return len(text) == 6 and int(text[:4]) in _YEARS and 1 <= int(text[4:]) <= 12


def _date_of(digits: str) -> datetime | None:
    """Return the date, or the date and time, that digits without separators are, None if they are none."""
    try:
        return datetime.strptime(digits, _DIGITS_OF_DATES[len(digits)]).replace(tzinfo=UTC)
    except (KeyError, ValueError):
        return None


def _elapsed(text: str, duration: str) -> int:
    try:
        return duration_ms(duration)
    except BadRequest as error:
        raise _invalid(text, str(error).removesuffix(".")) from error


def _last_at(text: str, now: int) -> int:
    """Return the last instant up to `now` at a time of the day."""
    day_ms = _UNITS["d"]
    try:
        in_1970 = _of_iso(f"1970-01-01T{text}")
    except BadRequest as error:
        raise _invalid(text, "expected a time from 00:00 to 23:59:59.999") from error
    return now - (now - in_1970) % day_ms


def _of_iso(text: str) -> int:
    match = _ISO.fullmatch(text) if text.isascii() else None
    if match is None:
        digits = "" if text.isascii() or not any(map(str.isdigit, text)) else ", in the digits 0 to 9"
        raise _invalid(
            text,
            f"expected milliseconds since the epoch or ISO 8601{digits}, such as 2026-01-31T14:05 (UTC without a time "
            "zone), 14:05, 2h ago or now",
        )
    if match["hour"] == "24":
        raise _invalid(text, "hours are from 00 to 23: write 00:00 of the next day for the end of a day")
    if match["second"] == "60":
        raise _invalid(text, "timestamps have no leap seconds: write 59.999, or 00 of the next minute")
    try:
        moment = datetime.fromisoformat(text.upper().replace(",", "."))
    except ValueError as error:
        raise _invalid(text, f"{error}; expected ISO 8601, such as 2026-01-31T14:05") from error
    return _checked(text, _since_epoch(moment if moment.tzinfo else moment.replace(tzinfo=UTC)))


def _since_epoch(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def _checked(text: str, ms: int) -> int:
    if not _MIN_TIMESTAMP_MS <= ms <= MAX_TIMESTAMP_MS:
        raise _invalid(text, "expected a time in the years 1 to 9999 in UTC")
    return ms


def _invalid(text: str, problem: str) -> BadRequest:
    shown = text if _NUMBER.fullmatch(text) else repr(text)
    return BadRequest(f"Invalid timestamp {shown}: {problem}.")


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


def kept_ms(text: str, *, minutes: bool = False) -> int:
    """Return a duration for which something is kept, in ms, as `duration_ms`.

    What is probably a mistake has to be written as an ISO 8601 duration: PT0S, PT6M.

    Args:
        text: The duration.
        minutes: Whether it can be written in `m`, unless its number is one that people write for months.

    Raises:
        BadRequest: The text is not a duration, it is 0, or its unit can be minutes or months.
    """
    ms, match = duration_ms(text), _DURATION.fullmatch(text)
    if match is not None and not ms:
        raise BadRequest(
            f"Invalid duration {text}: nothing would be kept. Write how long, such as 7d, or PT0S if that is meant."
        )
    if match is not None and match[2] == "m" and (not minutes or _can_be_months(int(match[1]))):
        number = int(match[1])
        raise BadRequest(
            f"Invalid duration {text}: m can be minutes or months. Write PT{number}M for {number} minutes, or "
            f"{number * 30}d for {number} months."
        )
    return ms


def kept_text(ms: int) -> str:
    """Return a duration in ms in the format of `kept_ms` with `minutes`."""
    text = to_duration(ms) if ms else "PT0S"
    number = text.removesuffix("m")
    return f"PT{number}M" if number.isdecimal() and _can_be_months(int(number)) else text


def _can_be_months(number: int) -> bool:
    return number <= 12 or number in (18, 24)  # a year, one and a half, two


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
