"""Pages of groups, in the order of the CRC-32 of their names, which is the order of the mapped snapshot."""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable
from heapq import merge
from itertools import groupby, islice
from zlib import crc32

from offsetlake.serve.storage.group_details import GroupKind
from offsetlake.serve.storage.store import Store

MAX_EXAMINED_GROUPS = 5000
"""The groups that one page examines, including those that do not match."""

STEP_GROUPS = 1000
"""With 100,000 changed groups a page takes 0.15 s, and other requests wait 20 ms at most."""


async def page(
    store: Store, min_hash: int, limit: int, matches: Callable[[bytes, GroupKind], bool]
) -> tuple[list[tuple[bytes, GroupKind]], int | None]:
    """Return the matching groups with their kinds, from a CRC-32 on, and the CRC-32 at which the next page begins.

    The first page begins at 0; after the last page comes None. Groups with the same CRC-32 are on one page, which can
    therefore have more than `limit` groups; it has fewer, or none, if few match. A group that exists throughout is on
    exactly one page; one that is created or deleted meanwhile may be missing.
    """
    snapshot, changed = (
        store.snapshot,
        {*store.memtable, *store.immutable_memtable, *store.live},
    )  # before a refresh may switch them
    new = await _smallest(changed, min_hash)
    old = (item for item in snapshot.names_by_hash(min_hash) if item[1] not in changed)
    groups: list[tuple[bytes, GroupKind]] = []
    examined = last = 0
    for name_hash, items in groupby(merge(old, new), key=lambda item: item[0]):
        if len(groups) >= limit or examined >= MAX_EXAMINED_GROUPS:
            return groups, _between(last, name_hash)
        for _, name in items:
            examined += 1
            if examined % STEP_GROUPS == 0:
                await asyncio.sleep(0)
            kind = store.group(name)
            if kind is not None and matches(name, kind):
                groups.append((name, kind))
        last = name_hash
    return groups, None


async def _smallest(names: Iterable[bytes], min_hash: int) -> list[tuple[int, bytes]]:
    """Return the CRC-32 and name of one group more than a page may examine, and of those with the last CRC-32."""
    smallest: list[tuple[int, bytes]] = []
    remaining = iter(names)
    while chunk := [*islice(remaining, STEP_GROUPS)]:
        smallest += [item for name in chunk if (item := (crc32(name), name))[0] >= min_hash]
        smallest.sort()
        if len(smallest) > MAX_EXAMINED_GROUPS:
            del smallest[bisect_left(smallest, (smallest[MAX_EXAMINED_GROUPS][0] + 1,)) :]
        await asyncio.sleep(0)
    return smallest


def _between(last: int, next_hash: int) -> int:
    """Return the roundest number between two CRC-32s, as the CRC-32 of a name would help to guess the name."""
    return next_hash & -1 << ((last ^ next_hash).bit_length() - 1)
