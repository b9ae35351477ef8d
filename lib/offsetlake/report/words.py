"""How the report writes numbers, instants and names."""

from offsetlake.util.escaping import visible
from offsetlake.util.times import about, to_duration, to_iso

_UNITS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


def count(number: int) -> str:
    """Write a number in four places at the most, as on an axis: 950, 1.2k, 34M."""
    for unit, letter in _UNITS:
        if abs(number) >= unit:
            scaled = number / unit
            return f"{scaled:.1f}{letter}" if abs(scaled) < 10 and number % unit else f"{scaled:.0f}{letter}"
    return str(number)


def share(part: int, whole: int) -> str:
    """Write a part of a whole in percent; 0% and 100% only if they are exact."""
    percent = round(100 * part / whole)
    if part and not percent:
        return "<1%"
    return ">99%" if part < whole and percent == 100 else f"{percent}%"


Unit = tuple[int, str]
"""How many bytes a unit has, and its name."""


def unit_of(largest: int) -> Unit:
    """Return the unit in which sizes up to this number of bytes are written."""
    return next(((unit, f"{letter}B") for unit, letter in _UNITS if largest >= unit), (1, "B"))


def size(number: int, unit: Unit) -> str:
    """Write a number of bytes in a unit, to the nearest tenth if it is less than ten of them; 0 only if it is 0."""
    scaled, name = number / unit[0], unit[1]
    if scaled >= 10 or unit[0] == 1 or not number:
        return f"{scaled:,.0f} {name}"
    return f"{scaled:.1f} {name}" if scaled >= 0.1 else f"<0.1 {name}"


def day(ms: int) -> str:
    """Write the day of an instant, short: 31 Jan."""
    year_month_day = to_iso(ms)[:10].split("-")
    return f"{int(year_month_day[2])} {_MONTHS[int(year_month_day[1]) - 1]}"


def moment(ms: int, step_ms: int) -> str:
    """Write an instant in two lines, as exactly as a step of an axis wants it."""
    if step_ms >= 86_400_000:
        return f"{day(ms)}\n{to_iso(ms)[:4]}"
    return f"{to_iso(ms)[11 : 16 if step_ms >= 60_000 else 19]}\n{day(ms)}"


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def instant(ms: int | None) -> str:
    """Write an instant to the minute; nothing where there is none."""
    return "" if ms is None else to_iso(ms)[:16].replace("T", " ")


def duration(ms: int | None) -> str:
    """Write about how long something takes; nothing where that is not known."""
    return "" if ms is None else to_duration(about(ms))


def shortened(name: str, longest: int) -> str:
    """Write a name in so many characters at the most: its beginning and its end. What no line takes is spelt out."""
    shown = visible(name)
    if len(shown) <= longest:
        return shown
    end = longest // 3
    return f"{shown[: longest - end - 1]}…{shown[-end:]}"
