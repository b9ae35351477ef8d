"""Strings that stand anywhere in a buffer, as one Arrow column: copied once, no object a string."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offsetlake.kafka.batches import kernels
from offsetlake.kafka.batches.kernels import Bytes, Ints


def strings(
    buffer: Bytes, positions: Ints, lengths: Ints, absent: npt.NDArray[np.bool_] | None = None
) -> pa.StringArray:
    """Give the strings at some positions, null where `absent`, of length 0 there; UTF-8 or not is not asked."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = np.empty(offsets[-1], np.uint8)
    kernels.gather(buffer, positions, offsets, data)
    validity = None
    if absent is not None and absent.any():
        validity = pa.py_buffer(np.packbits(~absent, bitorder="little"))
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(data), validity)
