"""How far long work is, in words: "12.0 of 22.5 M records, about 20 s left"."""

_UNITS = ((1_000_000_000, " G"), (1_000_000, " M"), (1_000, " k"))
_MAX_SECONDS = 99  # more are told in minutes


def progress_text(done: int, total: int, seconds: float, unit: str = "records") -> str:
    """Return how much of `total` units is done, and about how long the rest takes at the pace of these seconds."""
    factor, prefix = next(((factor, prefix) for factor, prefix in _UNITS if total >= factor), (1, ""))
    digits = 0 if factor == 1 else 1
    text = f"{done / factor:.{digits}f} of {total / factor:.{digits}f}{prefix} {unit}"
    if not 0 < done < total:
        return text
    left = seconds * (total - done) / done
    return f"{text}, about {left:.0f} s left" if left <= _MAX_SECONDS else f"{text}, about {left / 60:.0f} min left"
