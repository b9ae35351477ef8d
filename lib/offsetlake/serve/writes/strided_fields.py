"""Fields of eight bytes at many positions of a buffer, which are read and written together.

Fields at equal distances are copied by strided slices, one for each of the eight bytes, without work per field.
"""

from collections.abc import Iterator, Sequence

FIELD_BYTES = 8
_MIN_RUN = 8  # fields; for fewer, one slice per field is faster


class Places:
    """The positions of fields, in ascending order, of which none overlap."""

    __slots__ = ("_runs", "number")

    def __init__(self, positions: Sequence[int]) -> None:
        self.number = len(positions)
        self._runs = [*_runs(positions)]

    def read(self, buffer: bytes) -> bytes:
        """Return the fields one after the other."""
        if self.number == 1:
            start = self._runs[0][0]
            return buffer[start : start + FIELD_BYTES]
        fields = bytearray(FIELD_BYTES * self.number)
        for (start, stride, count), (begin, end) in self._spans():
            if count == 1:
                fields[begin:end] = buffer[start : start + FIELD_BYTES]
            else:
                stop = start + stride * (count - 1) + 1
                for byte in range(FIELD_BYTES):
                    fields[begin + byte : end : FIELD_BYTES] = buffer[start + byte : stop + byte : stride]
        return bytes(fields)

    def write(self, buffer: bytearray, fields: bytes) -> None:
        """Write fields that are given one after the other."""
        if self.number == 1:
            start = self._runs[0][0]
            buffer[start : start + FIELD_BYTES] = fields
            return
        for (start, stride, count), (begin, end) in self._spans():
            if count == 1:
                buffer[start : start + FIELD_BYTES] = fields[begin:end]
            else:
                stop = start + stride * (count - 1) + 1
                for byte in range(FIELD_BYTES):
                    buffer[start + byte : stop + byte : stride] = fields[begin + byte : end : FIELD_BYTES]

    def fill(self, buffer: bytearray, field: bytes) -> None:
        """Write the same field to all positions."""
        for start, stride, count in self._runs:
            if count == 1:
                buffer[start : start + FIELD_BYTES] = field
            else:
                stop = start + stride * (count - 1) + 1
                for byte in range(FIELD_BYTES):
                    buffer[start + byte : stop + byte : stride] = field[byte : byte + 1] * count

    def _spans(self) -> Iterator[tuple[tuple[int, int, int], tuple[int, int]]]:
        """Yield each run with the begin and the end of its fields when they are one after the other."""
        begin = 0
        for run in self._runs:
            end = begin + FIELD_BYTES * run[2]
            yield run, (begin, end)
            begin = end


def _runs(positions: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield first position, distance and number of fields at equal distances; a short run is divided into fields."""
    first = 0
    while first < len(positions):
        stride = positions[first + 1] - positions[first] if first + 1 < len(positions) else FIELD_BYTES
        last = first
        while last + 1 < len(positions) and positions[last + 1] - positions[last] == stride:
            last += 1
        count = last + 1 - first
        if count >= _MIN_RUN:
            yield positions[first], stride, count
        else:
            yield from ((position, FIELD_BYTES, 1) for position in positions[first : last + 1])
        first = last + 1
