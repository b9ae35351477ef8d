"""Instants as people write them: ms since the epoch, or ISO 8601; without a zone they are UTC."""

from datetime import UTC, datetime, timedelta

from offsetlake.errors import BadRequest

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_ms(text: str) -> int:
    """Read an instant as ms since the epoch, finer digits cut off; BadRequest where it is none."""
    try:
        return int(text)
    except ValueError:
        pass
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
