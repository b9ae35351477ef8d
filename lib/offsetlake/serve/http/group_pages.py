"""Groups page by page, in the order of the CRC-32 of their names: the base has that order, and a fold keeps it."""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from heapq import merge
from itertools import groupby, islice
from typing import Any
from zlib import crc32

from offsetlake.serve.storage.store import Store

LOOKED_AT = 5000  # groups of one page, those passed over too
AT_ONCE = 1000  # of these and of those changed: with 100,000 changed a page takes 0.15 s, others wait 20 ms at most

Kind = Mapping[str, Any]


async def page(
    store: Store, begin: int, most: int, wanted: Callable[[bytes, Kind], bool]
) -> tuple[list[tuple[bytes, Kind]], int | None]:
    """Give groups with their kinds from a CRC-32 on, and that at which the next page begins; None: this is the last.

    The first page begins at 0. Groups of one CRC-32 are on one page, which then may have more than `most`; it has
    fewer, or none, where few were wanted. A group that is there all the time is on one page; whatever comes and goes
    meanwhile may be.
    """
    base, changed = store.base, {*store.fresh, *store.frozen}  # of one moment: a fold may come in between
    new = await _smallest(changed, begin)
    old = (place for place in base.places(begin) if place[1] not in changed)
    found: list[tuple[bytes, Kind]] = []
    looked_at = last = 0
    for code, places in groupby(merge(old, new), key=lambda place: place[0]):
        if len(found) >= most or looked_at >= LOOKED_AT:
            return found, _between(last, code)
        for _, name in places:
            looked_at += 1
            if looked_at % AT_ONCE == 0:
                await asyncio.sleep(0)
            kind = store.group(name)
            if kind is not None and wanted(name, kind):
                found.append((name, kind))
        last = code
    return found, None


async def _smallest(names: Iterable[bytes], begin: int) -> list[tuple[int, bytes]]:
    """Give CRC-32 and name of as many groups as a page may look at and one more, those of one CRC-32 together."""
    smallest: list[tuple[int, bytes]] = []
    rest = iter(names)
    while chunk := [*islice(rest, AT_ONCE)]:
        smallest += [place for name in chunk if (place := (crc32(name), name))[0] >= begin]
        smallest.sort()
        if len(smallest) > LOOKED_AT:
            del smallest[bisect_left(smallest, (smallest[LOOKED_AT][0] + 1,)) :]
        await asyncio.sleep(0)
    return smallest


def _between(last: int, following: int) -> int:
    """Give where to go on between two CRC-32s: the roundest number, as names can be guessed by their CRC-32."""
    return following & -1 << ((last ^ following).bit_length() - 1)
