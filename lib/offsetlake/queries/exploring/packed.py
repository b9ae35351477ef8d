"""Changes of offsets in a fifth to a third of their memory: their columns differ little from one row to the next."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from offsetlake.queries.exploring.changes import Changes, Kinds
from offsetlake.queries.exploring.steps import Flags, Steps
from offsetlake.util.row_codes import Ints

_MAX_SMALL = 1 << 18
_ONE_LARGE = threading.Lock()
_TYPES = (np.int8, np.int16, np.int32, np.int64)


@dataclass(frozen=True, slots=True)
class PackedInts:
    """Integers as the differences between them, modulo 2**64, of the type in which they need the least memory.

    | Field         | Description |
    |---------------|-------------|
    | differences   | the differences |
    | places, wide  | the indexes of differences that the type does not have, and these differences |
    """

    differences: npt.NDArray[np.signedinteger[Any]]
    places: Ints
    wide: Ints

    @classmethod
    def of(cls, values: Ints) -> "PackedInts":
        """Pack integers."""
        differences = np.diff(values, prepend=0)
        return min((cls._as(differences, kind) for kind in _TYPES), key=lambda packed: packed.nbytes)

    @classmethod
    def _as(cls, differences: Ints, kind: type[np.signedinteger[Any]]) -> "PackedInts":
        narrow = differences.astype(kind)
        places = np.flatnonzero(narrow != differences)
        return cls(narrow, places, differences[places])

    @property
    def nbytes(self) -> int:
        """The memory that the arrays need."""
        return self.differences.nbytes + self.places.nbytes + self.wide.nbytes

    def values(self) -> Ints:
        """Return the integers."""
        differences = self.differences.astype(np.int64)
        differences[self.places] = self.wide
        return np.cumsum(differences)


@dataclass(frozen=True, slots=True)
class PackedChanges:
    """Packed `Changes`."""

    offsets: Sequence[tuple[str, int]]
    columns: Sequence[PackedInts | Flags]
    kinds: Kinds

    @classmethod
    def of(cls, changes: Changes) -> "PackedChanges":
        """Pack changes."""
        columns = (getattr(changes.steps, field.name) for field in fields(Steps)[1:])
        packed = [column if column.dtype == np.bool_ else PackedInts.of(column) for column in columns]
        return cls(changes.steps.offsets, packed, changes.kinds)

    def unpacked(self) -> Changes:
        """Return the changes."""
        columns = (column.values() if isinstance(column, PackedInts) else column for column in self.columns)
        return Changes(Steps(self.offsets, *columns), self.kinds)  # type: ignore[arg-type]

    @contextmanager
    def unpacked_of(self, topic: str, partition: int) -> Iterator[Changes]:
        """Unpack the changes of one offset while the block runs: if they are many, in one thread at a time."""
        with _ONE_LARGE if len(self.kinds) > _MAX_SMALL else nullcontext():
            yield self.unpacked().of(topic, partition)
