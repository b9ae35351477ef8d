"""Finds the position in a replica of a partition by the content of the records around an offset of the source."""

from collections.abc import Sequence
from typing import NamedTuple

Digest = bytes
"""Identifies the timestamp, the key, the headers and the value of a record."""


class Copied(NamedTuple):
    """A record of the target."""

    offset: int
    digest: Digest


def first_not_before(before: Sequence[Digest], after: Sequence[Digest], target: Sequence[Copied]) -> int | None:
    """Return the offset of the first copy of a record that is not before an offset, if the content determines it.

    Args:
        before: Records of the source before the offset, in order; empty only at the beginning of its log.
        after: Records of the source from the offset on; empty only at the end of its log.
        target: Consecutive records of the target that include the first copies of the records next to the offset.

    Returns:
        The offset; at the end of the log of the source, that after the copy of its last record. None if not exactly one
        position is between copies of these records, or if an earlier one is between copies of the two next to it.
    """
    digests = [copied.digest for copied in target]
    candidates = [i for i in range(len(digests) + 1) if _agrees(before[-1:], after[:1], digests, i)]
    agreeing = [i for i in candidates if _agrees(before, after, digests, i)]
    if agreeing != candidates[:1] or not candidates:
        return None
    [first] = agreeing
    return target[first].offset if after else target[first - 1].offset + 1


def _agrees(before: Sequence[Digest], after: Sequence[Digest], digests: Sequence[Digest], at: int) -> bool:
    """Return whether records next to a position are those next to the offset, as far as both are known."""
    if (before and not at) or (after and at == len(digests)) or not (before or after):
        return False
    known_before = digests[max(at - len(before), 0) : at]
    known_after = digests[at : at + len(after)]
    return [*known_before] == [*before[len(before) - len(known_before) :]] and [*known_after] == [
        *after[: len(known_after)]
    ]
