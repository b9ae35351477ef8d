"""Scratch copies of a lake, for plans: a copy can be brought up to date with the log without changing the lake."""

from collections.abc import Iterator
from contextlib import contextmanager

from offsetlake.errors import OffsetlakeError
from offsetlake.lake.lake import Lake
from offsetlake.util.temporary_folders import temporary_folder


@contextmanager
def scratch(lake: Lake) -> Iterator[Lake]:
    """Yield a copy of a lake to write to; it is removed after the block. The lake is neither locked nor written to.

    A job that is writing to the lake looks as if it had been killed: the copy finishes its run. Errors raised in the
    block name the lake instead of the copy. A lake in an object store is yielded itself: it has no cheap copies, and
    bringing it up to date with the log does what the next cycle would do.
    """
    with temporary_folder("offsetlake-plan-") as folder:
        copy = lake.location.linked_copy(folder)
        try:
            yield Lake.create(copy)
        except OffsetlakeError as error:
            error.args = (str(error).replace(str(copy), str(lake.location)),)
            raise
