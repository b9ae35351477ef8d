"""The rows of `runs` of `adopt` and `return`, which move `__consumer_offsets` of a cluster."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from offsetlake.lake import current_run, plans
from offsetlake.lake.foreign.guard import writing
from offsetlake.lake.lake import Lake
from offsetlake.lake.location.locate import LakeLocation


@contextmanager
def recorded(
    location: LakeLocation, job: Literal["adopt", "return"], log: str, node: str, say: Callable[[str], None]
) -> Iterator[Counter[str]]:
    """Lock the lake, which is created if there is none, during the block, and record it as a run if it succeeds.

    The cluster knows what an interrupted block has moved, so the lake keeps no plan of it: the run that resumes it is
    recorded.

    Args:
        location: The lake.
        job: The name of the job.
        log: The folder of the log.
        node: The node and its cluster, for the notes of the run.
        say: Called with a text for each change by another program to which the lake is adapted.

    Yields:
        The counts of the run.

    Raises:
        LakeBusy: Another job writes to the lake.
        LakeUnusable: The lake cannot be written.

    """
    lake = Lake.create(location)
    with writing(lake, job, say):
        run = current_run.begin(lake, job, plans.Plan(notes=(node,)), idle=True)
        counts = Counter[str]()
        yield counts
        current_run.finish(lake, job, run, outcome="done", log=log, counts=counts)
