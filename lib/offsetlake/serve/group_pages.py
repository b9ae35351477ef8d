"""Groups page by page, in the order of the CRC-32 of their names: the base has that order, and a fold keeps it."""

from collections.abc import Callable, Mapping
from heapq import merge
from itertools import groupby
from typing import Any
from zlib import crc32

from offsetlake.serve.store import Store

LOOKED_AT = 5000  # groups of one page, those passed over too: about 10 ms, in which nothing else is answered

Kind = Mapping[str, Any]


def page(
    store: Store, begin: int, most: int, wanted: Callable[[bytes, Kind], bool]
) -> tuple[list[tuple[bytes, Kind]], int | None]:
    """Give groups with their kinds from a CRC-32 on, and that at which the next page begins; None: this is the last.

    The first page begins at 0. Groups of one CRC-32 are on one page, which then may have more than `most`; it has
    fewer, or none, where few were wanted. A group that is there all the time is on one page; whatever comes and goes
    meanwhile may be.
    """
    changed = {*store.fresh, *store.frozen}
    new = sorted(place for name in changed if (place := (crc32(name), name))[0] >= begin)
    old = (place for place in store.base.places(begin) if place[1] not in changed)
    found: list[tuple[bytes, Kind]] = []
    looked_at = last = 0
    for code, places in groupby(merge(old, new), key=lambda place: place[0]):
        if len(found) >= most or looked_at >= LOOKED_AT:
            return found, _between(last, code)
        for _, name in places:
            looked_at += 1
            kind = store.group(name)
            if kind is not None and wanted(name, kind):
                found.append((name, kind))
        last = code
    return found, None


def _between(last: int, following: int) -> int:
    """Give where to go on between two CRC-32s: the roundest number, as names can be guessed by their CRC-32."""
    return following & -1 << ((last ^ following).bit_length() - 1)
