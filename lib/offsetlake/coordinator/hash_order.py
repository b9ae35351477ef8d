"""The order in which Java iterates over hash tables: assignors, votes and elections of leaders depend on it.

The balance of an assignment is the same in any order, but not which member has which partition. With Java's order, this
coordinator assigns the same partitions as a broker.
"""

import struct
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import TypeVar

from offsetlake.kafka.uuid import uuid_bytes

T = TypeVar("T")

DEFAULT_CAPACITY = 16
_MIN_TIMELINE_CAPACITY = 2
_POSITION_BITS = 32  # of a slot, which are followed by those of the bucket
_MIN_SORTED = 64  # keys that stay sorted
_FIBONACCI = -7046029254386353131  # BaseHashTable of Kafka's server-common


def hash_code(text: str) -> int:
    """Return `String.hashCode` of a text, as an unsigned number."""
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        code = (31 * code + unit) & 0xFFFFFFFF
    return code


@lru_cache(maxsize=10_000)
def topic_id_hash_code(topic_id: str) -> int:
    """Return `Uuid.hashCode` of a topic ID, as an unsigned number."""
    data = uuid_bytes(topic_id)
    xor = int.from_bytes(data[:8]) ^ int.from_bytes(data[8:])
    return (xor >> 32) ^ (xor & 0xFFFFFFFF)


def hash_order(keys: Collection[T], code: Callable[[T], int], capacity: int = DEFAULT_CAPACITY) -> list[T]:
    """Return keys in the order of a `HashMap` of this initial capacity into which they were inserted as given."""
    mask = table_capacity(len(keys), capacity) - 1
    return sorted(keys, key=lambda key: _spread(code(key)) & mask)


def set_order(keys: Collection[T], code: Callable[[T], int], size: int = 0) -> list[T]:
    """Return keys in the order of a `HashSet` of a collection with the given order.

    `size` is the size of the collection if the keys are only some of its elements.
    """
    return hash_order(keys, code, set_capacity(max(len(keys), size)))


def set_capacity(size: int) -> int:
    """Return the capacity of a `HashSet` of a collection of a size; that of an empty one is the default one."""
    return 1 << max(int(size / 0.75), DEFAULT_CAPACITY - 1).bit_length()


def sized_capacity(size: int) -> int:
    """Return the capacity of a `HashMap` or `HashSet` with an initial capacity of at least a size."""
    return 1 << max(size - 1, 0).bit_length()


def partition_order(partitions: Sequence[int], capacity: int = DEFAULT_CAPACITY) -> tuple[int, ...]:
    """Return partitions in the order of a `HashSet` of this initial capacity to which they were added as given."""
    mask = table_capacity(len(partitions), capacity) - 1
    if not partitions or max(partitions) <= mask:
        return tuple(sorted(partitions))
    return tuple(sorted(partitions, key=mask.__and__))


class TimelineOrder:
    """The order of keys that are copied from a `TimelineHashMap` of Kafka's server-common to a `HashMap`.

    Many keys stay sorted as long as neither table grows: each change of a large group needs their order.
    """

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._most = 0  # the capacity of a TimelineHashMap does not shrink
        self._sorted = _NOT_SORTED

    def add(self, key: str) -> None:
        """Add a key."""
        self._codes[key] = code = hash_code(key)
        self._most = max(self._most, len(self._codes))
        if self._sorted.shift != self._shift():
            self._sorted = _NOT_SORTED
        else:
            self._sorted.add(key, code)

    def remove(self, key: str) -> None:
        """Remove a key."""
        code = self._codes.pop(key)
        if self._sorted is not _NOT_SORTED:
            self._sorted.remove(key, code)

    def keys(self) -> list[str]:
        """Return the keys in the order of the `TimelineHashMap`, which takes the last key of a slot first."""
        shift, keys = self._shift(), list(self._codes)
        keys.reverse()
        return sorted(keys, key=lambda key: _slot(self._codes[key], shift))

    def ordered(self, added: str | None = None, removed: str | None = None) -> list[str]:
        """Return the keys in the order of the copy, after a key was added to it and another one removed.

        The two changes are themselves in a `HashMap`. If the key is removed first, the copy may be a smaller table.
        """
        is_new = added is not None and added not in self._codes
        changes = [key for key in (added, removed) if key is not None]
        removed_first = removed is not None and hash_order(changes, hash_code)[0] == removed
        mask = table_capacity(len(self._codes) + is_new - removed_first, DEFAULT_CAPACITY) - 1
        order = self._sorted_with(mask)
        keys = order.keys.copy()
        if added is not None and is_new:
            keys.insert(order.end_of_bucket(hash_code(added)), added)
        if removed is not None:
            keys.remove(removed)
        return keys

    def _sorted_with(self, mask: int) -> "_SortedKeys":
        shift = self._shift()
        if (self._sorted.mask, self._sorted.shift) == (mask, shift):
            return self._sorted
        order = _SortedKeys(self._codes, mask, shift)
        self._sorted = order if len(order.keys) >= _MIN_SORTED else _NOT_SORTED
        return order

    def ordered_with(self, key: str) -> list[str]:
        """Return the keys in the order of the copy, after a key was added to the table, whose record is not replayed.

        The replay puts the key into the table again, and only that may enlarge the table.
        """
        codes = {**self._codes, key: hash_code(key)}
        return _SortedKeys(codes, table_capacity(len(codes), DEFAULT_CAPACITY) - 1, self._shift()).keys

    def _shift(self) -> int:
        """Return how many bits of a hash do not determine the slot of its key."""
        capacity = _MIN_TIMELINE_CAPACITY
        while (self._most + 1) * 0.75 > capacity:
            capacity *= 2
        return 65 - capacity.bit_length()


class _SortedKeys:
    """The keys of a TimelineOrder in the order of a copy with a mask, while the slots have a shift."""

    __slots__ = ("_positions", "keys", "mask", "shift")

    def __init__(self, codes: Mapping[str, int], mask: int, shift: int) -> None:
        self.mask, self.shift = mask, shift
        positions = [(self._position(code), key) for key, code in codes.items()]
        positions.reverse()  # the iterator of a TimelineHashMap takes the last key of a slot first
        positions.sort(key=itemgetter(0))
        self._positions = [position for position, _ in positions]
        self.keys = [key for _, key in positions]

    def add(self, key: str, code: int) -> None:
        position = self._position(code)
        index = bisect_left(self._positions, position)
        self._positions.insert(index, position)
        self.keys.insert(index, key)

    def remove(self, key: str, code: int) -> None:
        index = self.keys.index(key, bisect_left(self._positions, self._position(code)))
        del self._positions[index], self.keys[index]

    def end_of_bucket(self, code: int) -> int:
        """Return the index of a key that is added to the copy."""
        return bisect_left(self._positions, ((_spread(code) & self.mask) + 1) << _POSITION_BITS)

    def _position(self, code: int) -> int:
        """Return the bucket of a key in the copy, followed by its slot."""
        return (_spread(code) & self.mask) << _POSITION_BITS | _slot(code, self.shift)


_NOT_SORTED = _SortedKeys({}, -1, -1)


def table_capacity(keys: int, capacity: int) -> int:
    """Return the capacity of a `HashMap` of an initial capacity to which keys were added."""
    while keys > 0.75 * capacity:
        capacity *= 2
    return capacity


def _spread(code: int) -> int:
    return code ^ (code >> 16)


def _slot(code: int, shift: int) -> int:
    return ((_signed(code) * _FIBONACCI) & 0xFFFFFFFFFFFFFFFF) >> shift


def _signed(code: int) -> int:
    return code - (1 << 32) if code >> 31 else code
