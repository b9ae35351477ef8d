"""A program that commits random offsets of GROUPS whenever the log is not locked, until it is killed.

python -m support.e2e.committing LOG SEED
"""

import random
import sys
import time
from pathlib import Path

from offsetlake.errors import LogBusy
from offsetlake.kafka.batches.writer import Batch, record_batch
from offsetlake.log.writer.appending import appending
from support.oracle.encoders import group_log_partition, offset_key, offset_value

LOG_PARTITIONS = 10
TOPIC = "orders"
GROUPS = {**{f"wide-{number}": 60 for number in range(40)}, **{f"narrow-{number}": 2 for number in range(300)}}
"""Number of partitions that each group commits."""

T = 1_700_000_000_000
_COMMITS_PER_APPEND = 6
_MAX_PAUSE_SECONDS = 0.01


def commit(group_id: str, partitions: list[int], committed_offset: int) -> Batch:
    value = offset_value(3, committed_offset, commit_timestamp=T + committed_offset)
    return record_batch(T, [(offset_key(group_id, TOPIC, partition), value) for partition in partitions])


def commit_all(log: Path) -> None:
    """Commit all partitions of every group."""
    with appending(log, "committing") as appender:
        for group_id, count in GROUPS.items():
            appender.append(group_log_partition(group_id, LOG_PARTITIONS), [commit(group_id, [*range(count)], 0)])


def main(log: Path, rng: random.Random) -> None:
    names, committed_offset = [*GROUPS], 0
    while True:
        committed_offset += 1
        try:
            with appending(log, "committing") as appender:
                for group_id in rng.sample(names, _COMMITS_PER_APPEND):
                    partitions = rng.sample(range(GROUPS[group_id]), min(GROUPS[group_id], rng.randint(1, 30)))
                    appender.append(
                        group_log_partition(group_id, LOG_PARTITIONS), [commit(group_id, partitions, committed_offset)]
                    )
        except LogBusy:
            pass
        time.sleep(rng.random() * _MAX_PAUSE_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), random.Random(int(sys.argv[2])))
