"""The bytes of a segment, and the log offset at which its whole batches end."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.batches import kernels
from offsetlake.kafka.batches.framing import batches_of_segment
from offsetlake.kafka.batches.kernels import Bytes


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raise LogUnavailable if a file of the log cannot be read in the block."""
    try:
        yield
    except FileNotFoundError as error:
        raise LogUnavailable(
            f"{path} was deleted while the log was read: a running broker deletes segments. "
            "Read a copy of the folder, or the live topic with --bootstrap."
        ) from error
    except OSError as error:
        raise LogUnavailable(f"{path} cannot be read: {error.strerror}.") from error


def map_segment(path: Path) -> Bytes:
    """Return the bytes of a segment, which are mapped into memory; raise LogUnavailable if it cannot be read."""
    with readable(path):
        return np.asarray(np.memmap(path, np.uint8, "r")) if path.stat().st_size else np.frombuffer(b"", np.uint8)


def end_of(path: Path, base_offset: int) -> tuple[int, int]:
    """Return the offset after the last valid batch of a partition's last segment, and the number of bytes after it.

    A last batch with a wrong checksum is indistinguishable from one that is still being written.
    """
    buffer = map_segment(path)
    positions = batches_of_segment(buffer, base_offset)
    if not len(positions):
        return base_offset, len(buffer)
    position = int(positions[-1])
    end = int(kernels.spans(buffer, positions[-1:])[1, 0]) + 1
    return end, len(buffer) - position - int(kernels.batch_size(buffer, position))
