"""Formats numbers, instants and names for the report."""

from offsetlake.util.escaping import visible
from offsetlake.util.times import about, to_duration, to_iso

_UNITS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


def count(number: int) -> str:
    """Return a number in at most four characters, as on an axis: 950, 1.2k, 34M."""
    for unit, letter in _UNITS:
        if abs(number) >= unit:
            scaled = number / unit
            return f"{scaled:.1f}{letter}" if abs(scaled) < 10 and number % unit else f"{scaled:.0f}{letter}"
    return str(number)


def share(part: int, whole: int) -> str:
    """Return a share in percent; 0% and 100% only if they are exact."""
    percent = round(100 * part / whole)
    if part and not percent:
        return "<1%"
    return ">99%" if part < whole and percent == 100 else f"{percent}%"


Unit = tuple[int, str]
"""The number of bytes of a unit, and its name."""


def unit_of(largest: int) -> Unit:
    """Return the unit for sizes of up to this number of bytes."""
    return next(((unit, f"{letter}B") for unit, letter in _UNITS if largest >= unit), (1, "B"))


def size(number: int, unit: Unit) -> str:
    """Return a number of bytes in a unit, with one decimal if it is less than ten units; 0 only if it is exact."""
    scaled, name = number / unit[0], unit[1]
    if scaled >= 10 or unit[0] == 1 or not number:
        return f"{scaled:,.0f} {name}"
    return f"{scaled:.1f} {name}" if scaled >= 0.1 else f"<0.1 {name}"


def day(ms: int) -> str:
    """Return the day of an instant, such as 31 Jan; the number of an instant outside of the years 1 to 9999."""
    date, is_date, _ = to_iso(ms).partition("T")
    if not is_date:
        return date
    _, month, of_month = date.split("-")
    return f"{int(of_month)} {_MONTHS[int(month) - 1]}"


def moment(ms: int, step_ms: int) -> str:
    """Return an instant in two lines, with the precision that a time step needs."""
    if step_ms >= 86_400_000:
        return f"{day(ms)}\n{to_iso(ms)[:4]}"
    return f"{to_iso(ms)[11 : 16 if step_ms >= 60_000 else 19]}\n{day(ms)}"


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def instant(ms: int | None) -> str:
    """Return an instant with minutes, as a number if outside of the years 1 to 9999; an empty string for None."""
    text = "" if ms is None else to_iso(ms)
    return text[:16].replace("T", " ") if "T" in text else text


def duration(ms: int | None) -> str:
    """Return an approximate duration; an empty string for None."""
    return "" if ms is None else to_duration(about(ms))


def shortened(name: str, max_characters: int) -> str:
    """Return the start and the end of a name in at most `max_characters`, with control characters escaped."""
    shown = visible(name)
    if len(shown) <= max_characters:
        return shown
    end = max_characters // 3
    return f"{shown[: max_characters - end - 1]}…{shown[-end:]}"
