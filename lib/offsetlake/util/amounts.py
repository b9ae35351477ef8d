"""Formats numbers of things, such as "1 change", and progress, such as "12.0 of 22.5 M records, about 20 s left"."""

_UNITS = ((1_000_000_000, " G"), (1_000_000, " M"), (1_000, " k"))
_MAX_SECONDS = 99  # longer times are shown in minutes


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun: `1 change`, `2 changes`; `many` is the plural if it is not `one` with an s."""
    return f"{count:,} {noun(count, one, many)}"


def noun(count: int, one: str, many: str | None = None) -> str:
    """Return the noun or verb that follows a number: `one` after 1, otherwise `many`, by default `one` with an s."""
    return one if count == 1 else f"{one}s" if many is None else many


def progress_text(done: int, total: int, seconds: float, unit: str = "records") -> str:
    """Return how many of `total` units are done after `seconds`, and the estimated remaining time."""
    factor, prefix = next(((factor, prefix) for factor, prefix in _UNITS if total >= factor), (1, ""))
    digits = 0 if factor == 1 else 1
    text = f"{done / factor:.{digits}f} of {total / factor:.{digits}f}{prefix} {unit}"
    if not 0 < done < total:
        return text
    remaining = seconds * (total - done) / done
    return (
        f"{text}, about {remaining:.0f} s left"
        if remaining <= _MAX_SECONDS
        else f"{text}, about {remaining / 60:.0f} min left"
    )
