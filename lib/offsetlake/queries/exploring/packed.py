"""Changes of offsets in a fifth to a third of their memory: their columns differ little from one row to the next."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from offsetlake.queries.exploring.changes import Changes
from offsetlake.queries.exploring.steps import OffsetSteps
from offsetlake.util.row_codes import Ints

_BLOCK = 64
_TYPES = (np.int8, np.int16, np.int32, np.int64)


@dataclass(frozen=True, slots=True)
class PackedInts:
    """Integers as the differences between them, modulo 2**64, of the type in which they need the least memory.

    A part of them is unpacked from the first integer of its blocks on: `packed[slice]`, `packed[indexes]`.

    | Field         | Description |
    |---------------|-------------|
    | length        | the number of integers |
    | firsts        | the first integer of each block of _BLOCK |
    | differences   | the differences, a row for each block; the first one and those after the end are not used |
    | places, wide  | the indexes of differences that the type does not have, and these differences |
    """

    length: int
    firsts: Ints
    differences: npt.NDArray[np.signedinteger[Any]]
    places: Ints
    wide: Ints

    @classmethod
    def of(cls, values: Ints) -> "PackedInts":
        """Pack integers."""
        differences = np.zeros(-(-len(values) // _BLOCK) * _BLOCK, np.int64)
        differences[1 : len(values)] = np.diff(values)
        differences[::_BLOCK] = 0
        best = cls._as(values, differences, _TYPES[0])
        for kind in _TYPES[1:]:
            if best.differences.nbytes + best.wide.nbytes * 2 <= len(differences) * np.dtype(kind).itemsize:
                break  # this type needs more memory, even if it has all differences
            best = min(best, cls._as(values, differences, kind), key=lambda packed: packed.nbytes)
        return best

    @classmethod
    def _as(cls, values: Ints, differences: Ints, kind: type[np.signedinteger[Any]]) -> "PackedInts":
        narrow = differences.astype(kind)
        places = np.flatnonzero(narrow != differences)
        return cls(len(values), values[::_BLOCK].copy(), narrow.reshape(-1, _BLOCK), places, differences[places])

    @property
    def nbytes(self) -> int:
        """The memory that the arrays need."""
        return sum(array.nbytes for array in (self.firsts, self.differences, self.places, self.wide))

    def __len__(self) -> int:
        """Return the number of integers."""
        return self.length

    def __getitem__(self, rows: slice | Ints, /) -> Ints:
        """Return the integers of a slice without step, or those at some indexes, which are not negative."""
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(self.length)
            first, last = start // _BLOCK, -(-stop // _BLOCK)
            values = self._unpacked(np.arange(first, last)).ravel()
            return values[start - first * _BLOCK : max(stop - first * _BLOCK, 0)]
        blocks, number = np.unique(rows // _BLOCK, return_inverse=True)
        found: Ints = self._unpacked(blocks)[number, rows % _BLOCK]
        return found

    def _unpacked(self, blocks: Ints) -> Ints:
        """Return the integers of some blocks, which are in ascending order, a row for each block."""
        values = self.differences[blocks].astype(np.int64)
        row = np.searchsorted(blocks, self.places // _BLOCK)
        wanted = np.append(blocks, [-1])[row] == self.places // _BLOCK
        values[row[wanted], self.places[wanted] % _BLOCK] = self.wide[wanted]
        values[:, 0] = self.firsts[blocks]
        return np.cumsum(values, axis=1, out=values)


def packed(changes: Changes[Ints]) -> Changes[PackedInts]:
    """Return changes whose integers are packed."""
    steps = changes.steps
    columns = [getattr(steps, field.name) for field in fields(OffsetSteps)[1:]]
    both: list[Any] = [column if column.dtype == np.bool_ else PackedInts.of(column) for column in columns]
    return Changes(OffsetSteps(steps.offsets, *both), changes.kinds, changes.decisions)
