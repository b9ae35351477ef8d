"""Reads the headers of commits in parts: commits that consist of several records and take effect together.

| Header        | Type              | Description |
|---------------|-------------------|-------------|
| `commit.id`   | big-endian int64  | The ID of the commit, the same in all its parts |
| `commit.size` | big-endian int32  | The number of its parts, greater than 0 |

A part has each header exactly once. In transactional records they are ignored, because the transaction marker
determines the outcome. Brokers write no headers.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from offsetlake.kafka.batches.kernels import Ints, int32_at, int64_at, is_text, sized, varint
from offsetlake.kafka.batches.reader import Records
from offsetlake.kafka.compiled import compiled

_ID, _SIZE = (np.frombuffer(name, np.uint8) for name in (b"commit.id", b"commit.size"))

_NO_PART, _PART, _ONE_MISSING, _DUPLICATE, _WRONG_LENGTH, _INVALID_SIZE = 0, 1, 2, 3, 4, 5
_MALFORMED = "the headers of a commit in parts are malformed: "
_REASONS = {
    _ONE_MISSING: _MALFORMED + "commit.id or commit.size is missing",
    _DUPLICATE: _MALFORMED + "commit.id or commit.size appears more than once",
    _WRONG_LENGTH: _MALFORMED + "commit.id must have 8 bytes and commit.size 4",
    _INVALID_SIZE: _MALFORMED + "commit.size is {size}, but must be greater than 0",
}


class CommitParts(NamedTuple):
    """Columns of records: whether each is a part of a commit in parts, and of which; 0 if it is not."""

    is_part: npt.NDArray[np.bool_]
    commit_id: Ints
    commit_size: Ints

    def where(self, chosen: npt.NDArray[np.bool_]) -> "CommitParts":
        """Return the selected rows; `chosen` is a mask."""
        return CommitParts(self.is_part[chosen], self.commit_id[chosen], self.commit_size[chosen])


def commit_parts(records: Records) -> tuple[CommitParts, dict[int, str]]:
    """Return the parts among offset commits, and {row: reason} for those with malformed headers."""
    ids, sizes, codes = np.zeros((3, len(records)), np.int64)
    rows = np.flatnonzero((records.headers_at >= 0) & (records.producer_id == -1))
    if len(rows):
        _read_headers(records.buffer, rows, records.headers_at, ids, sizes, codes)
    malformed = {
        int(row): _REASONS[int(codes[row])].format(size=int(sizes[row])) for row in np.flatnonzero(codes > _PART)
    }
    return CommitParts(codes == _PART, ids, sizes), malformed


@compiled(cache=True, nogil=True)
def _read_headers(buffer, rows, headers_at, ids, sizes, codes):  # type: ignore[no-untyped-def]
    """Read the headers of `rows`, which are known to be well-formed as headers."""
    end = len(buffer)
    for row in rows:
        id_count, size_count, lengths_valid = 0, 0, True
        count, position = varint(buffer, headers_at[row], end)
        for _ in range(count):
            name_at, name_length, position = sized(buffer, position, end)
            value_at, value_length, position = sized(buffer, position, end)
            if is_text(buffer, name_at, name_length, _ID):
                id_count += 1
                lengths_valid &= value_length == 8
                ids[row] = int64_at(buffer, value_at) if value_length == 8 else 0
            elif is_text(buffer, name_at, name_length, _SIZE):
                size_count += 1
                lengths_valid &= value_length == 4
                sizes[row] = int32_at(buffer, value_at) if value_length == 4 else 0
        codes[row] = _code(id_count, size_count, lengths_valid, sizes[row])


@compiled(cache=True, nogil=True)
def _code(id_count, size_count, lengths_valid, size):  # type: ignore[no-untyped-def]
    """Return the code of a record from the number of its `commit.id` and `commit.size` headers and their values."""
    if id_count == 0 and size_count == 0:
        return _NO_PART
    if id_count == 0 or size_count == 0:
        return _ONE_MISSING
    if id_count > 1 or size_count > 1:
        return _DUPLICATE
    if not lengths_valid:
        return _WRONG_LENGTH
    return _PART if size > 0 else _INVALID_SIZE
