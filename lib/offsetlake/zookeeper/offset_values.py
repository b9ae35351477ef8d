"""The content of the znode of an offset: decimal digits."""

import re

MAX_OFFSET = 2**63 - 1
_OFFSET = re.compile(rb"[0-9]{1,19}")


def offset_in(value: bytes) -> tuple[int | None, str | None]:
    """Return the offset that a znode contains, or what is wrong with it."""
    if _OFFSET.fullmatch(value) and int(value) <= MAX_OFFSET:
        return int(value), None
    if not value:
        return None, "is empty: set the offset with `offsetlake reset`"
    return (
        None,
        f"contains {value[:40]!r}, not an offset from 0 to {MAX_OFFSET}: set the offset with `offsetlake reset`",
    )
