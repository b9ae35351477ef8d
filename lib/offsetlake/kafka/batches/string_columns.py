"""Copies strings from a buffer into an Arrow column, without a Python object for each string."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offsetlake.kafka.batches.kernels import Bytes, Ints
from offsetlake.kafka.batches.words import gather


def strings(
    buffer: Bytes, positions: Ints, lengths: Ints, absent: npt.NDArray[np.bool_] | None = None
) -> pa.StringArray:
    """Return the strings at some positions as a column; null where `absent`, whose lengths must be 0.

    Whether the bytes are UTF-8 is not checked.
    """
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = np.empty(offsets[-1], np.uint8)
    gather(buffer, positions, offsets, data)
    validity = None
    if absent is not None and absent.any():
        validity = pa.py_buffer(np.packbits(~absent, bitorder="little"))
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(data), validity)
