"""A commit in parts: one commit spread over several records, which its headers hold together.

| header        | is |
|---------------|----|
| `commit.id`   | int64, big-endian: the same in every part of a commit |
| `commit.size` | int32, big-endian: how many parts the commit has, above 0 |

A part has both, once each. Headers of other names say nothing here, and in a transaction these two do not either: there
the marker tells what counts. Brokers write no headers at all.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from offsetlake.kafka.batches.kernels import Ints, int32_at, int64_at, is_text, sized, varint
from offsetlake.kafka.batches.reader import Records

_ID, _SIZE = (np.frombuffer(name, np.uint8) for name in (b"commit.id", b"commit.size"))

_NO_PART, _PART, _ONE_MISSING, _TWICE, _WRONG_LENGTH, _NO_SIZE = 0, 1, 2, 3, 4, 5
_MALFORMED = "the headers of a commit in parts are malformed: "
_REASONS = {
    _ONE_MISSING: _MALFORMED + "of commit.id and commit.size one is missing",
    _TWICE: _MALFORMED + "commit.id or commit.size stands there twice",
    _WRONG_LENGTH: _MALFORMED + "commit.id takes 8 bytes and commit.size 4",
    _NO_SIZE: _MALFORMED + "commit.size is {size}, which no commit has",
}


class CommitParts(NamedTuple):
    """What the headers of some records say: of each whether it is a part, and of which commit; 0 where it is none."""

    is_part: npt.NDArray[np.bool_]
    commit_id: Ints
    commit_size: Ints

    def where(self, chosen: npt.NDArray[np.bool_]) -> "CommitParts":
        """Keep the rows for which `chosen` is true."""
        return CommitParts(self.is_part[chosen], self.commit_id[chosen], self.commit_size[chosen])


def commit_parts(records: Records) -> tuple[CommitParts, dict[int, str]]:
    """Read the headers of offset commits; also say which rows have malformed ones, and why."""
    ids, sizes, codes = np.zeros((3, len(records)), np.int64)
    rows = np.flatnonzero((records.headers_at >= 0) & (records.producer_id == -1))
    if len(rows):
        _read_headers(records.buffer, rows, records.headers_at, ids, sizes, codes)
    bad = {int(row): _REASONS[int(codes[row])].format(size=int(sizes[row])) for row in np.flatnonzero(codes > _PART)}
    return CommitParts(codes == _PART, ids, sizes), bad


@njit(cache=True, nogil=True)
def _read_headers(buffer, rows, headers_at, ids, sizes, codes):  # type: ignore[no-untyped-def]
    """Read the headers of `rows`, which are known to be laid out well."""
    end = len(buffer)
    for row in rows:
        id_count, size_count, well = 0, 0, True
        count, at = varint(buffer, headers_at[row], end)
        for _ in range(count):
            name_at, name_length, at = sized(buffer, at, end)
            value_at, value_length, at = sized(buffer, at, end)
            if is_text(buffer, name_at, name_length, _ID):
                id_count += 1
                well &= value_length == 8
                ids[row] = int64_at(buffer, value_at) if value_length == 8 else 0
            elif is_text(buffer, name_at, name_length, _SIZE):
                size_count += 1
                well &= value_length == 4
                sizes[row] = int32_at(buffer, value_at) if value_length == 4 else 0
        codes[row] = _code(id_count, size_count, well, sizes[row])


@njit(cache=True, nogil=True)
def _code(id_count, size_count, well, size):  # type: ignore[no-untyped-def]
    """Tell what a record is that has the two headers this often, all of them of the right length or not."""
    if id_count == 0 and size_count == 0:
        return _NO_PART
    if id_count == 0 or size_count == 0:
        return _ONE_MISSING
    if id_count > 1 or size_count > 1:
        return _TWICE
    if not well:
        return _WRONG_LENGTH
    return _PART if size > 0 else _NO_SIZE
