"""A program that runs jobs without Spark, on any lake.

    python -m support.object_store.jobs LAKE LOG        every job that writes to the lake
    python -m support.object_store.jobs LAKE LOG cycle  what `offsetlake run` does

It exits with the code of the error of the project that ended it. Leases expire after a second, not after half a minute.
"""

import sys
from pathlib import Path

from offsetlake.errors import OffsetlakeError
from offsetlake.lake.lake import Lake
from offsetlake.lake.location import lease
from offsetlake.log.address import LogAddress
from offsetlake.pipeline import runner
from offsetlake.rules.policy import RetentionPolicy
from support.e2e.in_process import InProcess, NoSpark
from support.e2e.lakes import LATER, cycle, plan_expiry, upkeep

SHORT_LEASES = {"TTL_SECONDS": 1.0, "RENEWAL_SECONDS": 0.3, "_POLL_SECONDS": 0.05}


def run(lake: Lake, log: Path) -> None:
    """Run every job that writes to the lake, each to its end."""
    while any(report.resumed for report in cycle(InProcess(), lake, log)):
        pass
    while plan_expiry(InProcess(), lake).resumed:
        pass
    upkeep(lake)


def run_cycle(lake: str, log: Path) -> None:
    """Run a cycle as `offsetlake run`."""
    runner.LazySession = NoSpark
    expiry = runner.Expiry(RetentionPolicy(7 * 86_400_000), LATER)
    runner.run_jobs(lake, LogAddress(folder=log), ("ingest", "compact", "expire"), expiry, lambda _: None)


if __name__ == "__main__":
    for name, seconds in SHORT_LEASES.items():
        setattr(lease, name, seconds)
    try:
        if sys.argv[3:] == ["cycle"]:
            run_cycle(sys.argv[1], Path(sys.argv[2]))
        else:
            run(Lake.create(sys.argv[1]), Path(sys.argv[2]))
    except OffsetlakeError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.exit(error.exit_code)
