"""Timestamps and durations: what is read, what is refused, and what the message tells people to write instead."""

import pytest

from offsetlake.errors import BadRequest
from offsetlake.util.times import duration_ms, is_plain, is_relative, kept_ms, kept_text, to_iso, to_ms

NOW = to_ms("2026-11-26T13:00")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1795788300000", "2026-11-27T14:05:00.000Z"),
        ("1000000000000", "2001-09-09T01:46:40.000Z"),
        ("2500", "1970-01-01T00:00:02.500Z"),
        ("2026-11-27T14:05", "2026-11-27T14:05:00.000Z"),
        (" 2026-11-27 14:05 ", "2026-11-27T14:05:00.000Z"),
        ("2026-11-27t14:05:00,5z", "2026-11-27T14:05:00.500Z"),
        ("2026-11-27T14:05:00.123999+0530", "2026-11-27T08:35:00.123Z"),
        ("20261127", "2026-11-27T00:00:00.000Z"),
        ("20261127T1405Z", "2026-11-27T14:05:00.000Z"),
        ("20261127T140530-01:00", "2026-11-27T15:05:30.000Z"),
        ("2026-W48-4", "2026-11-26T00:00:00.000Z"),
        ("2026W484T14:05", "2026-11-26T14:05:00.000Z"),
        ("2026-W48", "2026-11-23T00:00:00.000Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
        ("now", "2026-11-26T13:00:00.000Z"),
        ("-2h", "2026-11-26T11:00:00.000Z"),
        ("2h ago", "2026-11-26T11:00:00.000Z"),
        ("now-PT1H30M", "2026-11-26T11:30:00.000Z"),
        ("1w ago", "2026-11-19T13:00:00.000Z"),
        ("12:05", "2026-11-26T12:05:00.000Z"),
        ("14:05", "2026-11-25T14:05:00.000Z"),  # it has not been 14:05 today
        ("14:05+02:00", "2026-11-26T12:05:00.000Z"),
        ("23:30:15.5-05:00", "2026-11-26T04:30:15.500Z"),
        ("13:00", "2026-11-26T13:00:00.000Z"),
    ],
)
def test_timestamp_is_read(text: str, expected: str) -> None:
    assert to_iso(to_ms(text, NOW)) == expected
    assert to_ms(expected) == to_ms(text, NOW)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1764252000", "if it is in seconds, write 1764252000000, which is 2025-11-27T14:00:00.000Z"),
        ("999999999", "if it is in seconds, write 999999999000"),
        ("1764252000000000", "if it is in microseconds, write 1764252000000"),
        ("1764252000000000000", "if it is in nanoseconds, write 1764252000000"),
        ("202611271405", "if it is a date and a time, write 20261127T1405"),
        ("20261127140530", "if it is a date and a time, write 20261127T140530"),
        ("20261327", "it is 1970-01-01T05:37:41.327Z; expected 13 digits of milliseconds"),
        ("2026", "if it is a year or a month"),
        ("202611", "if it is a year or a month"),
        ("-1795788300000", "it is 1913-02-04"),
        ("99999999999999", "it is 5138-11-16"),
        ("99999999999999999999", "expected milliseconds in the years 1 to 9999"),
        ("2026-11-27T24:00", "write 00:00 of the next day"),
        ("24:00", "expected a time from 00:00"),
        ("25:61", "expected a time from 00:00"),
        ("2026-12-31T23:59:60Z", "no leap seconds"),
        ("2026-02-30", "day is out of range"),
        ("\uff12026-11-27", "in the digits 0 to 9"),
        ("9999-12-31T23:59-01:00", "in the years 1 to 9999"),
        ("2026-11-27-05:00", "expected milliseconds since the epoch or ISO 8601"),  # a zone, or five o'clock
        ("2026-11-27+02:00", "expected milliseconds since the epoch or ISO 8601"),
        ("27.11.2026", "expected milliseconds since the epoch or ISO 8601"),
        ("1.76e12", "expected milliseconds since the epoch or ISO 8601"),
        ("-2x", "expected a whole number and ms, s, m"),
        ("1.5h ago", "expected a whole number and ms, s, m"),
        ("2 ago", "expected a whole number and ms, s, m"),
        ("99999999d ago", "expected at most"),
        ("", "expected milliseconds"),
        ("tomorrow", "14:05, 2h ago or now"),
    ],
)
def test_text_that_cannot_be_meant_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(BadRequest) as refused:
        to_ms(text, NOW)
    assert str(refused.value).startswith("Invalid timestamp ")
    assert reason in str(refused.value)


def test_time_of_day_is_never_in_the_future() -> None:
    for now in range(NOW, NOW + 86_400_000, 3_599_000):
        instant = to_ms("14:05", now)
        assert now - 86_400_000 < instant <= now
        assert to_iso(instant)[11:16] == "14:05"


def test_relative_times_are_known() -> None:
    assert all(map(is_relative, ["now", "-2h", "2h ago", "14:05", "14:05Z", "NOW"]))
    assert not any(map(is_relative, ["2026-11-27", "1795788300000", "20261127", "-5"]))


@pytest.mark.parametrize("text", ["2026-11-27T14:05", "2026-11-27 14:05Z", "2026-11-27", "2500"])
def test_text_that_shows_its_instant_is_plain(text: str) -> None:
    assert is_plain(text, to_ms(text))


@pytest.mark.parametrize("text", ["1795788300000", "20261127", "14:05", "-2h", "2026-11-27T14:05+02:00", "2026-W48-4"])
def test_text_that_hides_its_instant_is_not_plain(text: str) -> None:
    assert not is_plain(text, to_ms(text, NOW))


@pytest.mark.parametrize("ms", [2**63 - 1, -(2**63), 10**16, 253_402_300_800_000, -62_135_596_800_001])
def test_instant_outside_of_all_years_is_written_as_a_number(ms: int) -> None:
    assert to_iso(ms) == str(ms)


@pytest.mark.parametrize("text", ["0s", "0ms", "0d", "0w", "00h", "0m"])
def test_nothing_is_kept_for_no_time(text: str) -> None:
    with pytest.raises(BadRequest, match=f"Invalid duration {text}: nothing would be kept"):
        kept_ms(text, minutes=True)


@pytest.mark.parametrize("number", [1, 3, 6, 12, 18, 24])
def test_minutes_that_can_be_months_are_refused(number: int) -> None:
    expected = f"m can be minutes or months. Write PT{number}M for {number} minutes, or {30 * number}d for {number} mon"
    for minutes in (True, False):
        with pytest.raises(BadRequest, match=expected):
            kept_ms(f"{number}m", minutes=minutes)
        assert kept_ms(f"PT{number}M", minutes=minutes) == 60_000 * number


def test_other_minutes_are_read_where_minutes_are_usual() -> None:
    assert kept_ms("90m", minutes=True) == 5_400_000
    with pytest.raises(BadRequest, match="Write PT90M for 90 minutes, or 2700d for 90 months"):
        kept_ms("90m")


@pytest.mark.parametrize("text", ["7d", "36h", "PT0S", "PT6M", "PT18M", "30m", "90m", "45s", "1500ms", "PT1H30M"])
def test_written_duration_is_read_again(text: str) -> None:
    assert kept_ms(kept_text(kept_ms(text, minutes=True)), minutes=True) == duration_ms(text)
