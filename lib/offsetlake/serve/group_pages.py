"""Groups page by page, in the order of the CRC-32 of their names: the base has that order, and a fold keeps it."""

from collections.abc import Callable, Mapping
from heapq import merge, nsmallest
from typing import Any
from zlib import crc32

from offsetlake.serve.store import Store

LOOKED_AT = 5000  # groups of one page, those passed over too: about 10 ms, in which nothing else is answered

Kind = Mapping[str, Any]


def page(
    store: Store, after: bytes | None, most: int, wanted: Callable[[Kind], bool]
) -> tuple[list[tuple[bytes, Kind]], bytes | None]:
    """Give groups with their kinds, and the group behind which the next page begins; None where this is the last.

    `after` is that of the page before, None for the first. A page has fewer than `most` groups, or none, where few were
    wanted. A group that is there all the time is on one page; whatever comes and goes meanwhile may be.
    """
    begin = (-1, b"") if after is None else (crc32(after), after)
    changed = {*store.fresh, *store.frozen}
    new = nsmallest(LOOKED_AT + 1, (place for name in changed if (place := (crc32(name), name)) > begin))
    old = (place for place in store.base.places(max(begin[0], 0)) if place > begin and place[1] not in changed)
    found: list[tuple[bytes, Kind]] = []
    last = after
    for number, (_, name) in enumerate(merge(old, new)):
        if len(found) == most or number == LOOKED_AT:
            return found, last
        kind = store.group(name)
        if kind is not None and wanted(kind):
            found.append((name, kind))
        last = name
    return found, None
